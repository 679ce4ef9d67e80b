"""``nnbridge convert``: a model file becomes a saved NNAPI model, C source or a conformance case."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from nnbridge.cli.arguments import check_outputs
from nnbridge.cli.options import MODEL, WRITTEN, file_of, model_options, read_model
from nnbridge.cli.output import echo, json_option, print_json, working
from nnbridge.report.terminal import counted

OUTPUT = """The file to write: .nnapi, a saved model; .c or .cpp, source for the NDK with .h, .bin, a program and CMakeLists.txt
beside it; .json.gz, a case for vts; .mod.py, a spec of Android's test generator."""


@click.command(short_help="Convert a file to a saved model, source or a case.")
@MODEL
@click.option("-o", "--output", type=WRITTEN, required=True, help=OUTPUT)
@model_options
@json_option
def convert(model: Path, output: Path, as_json: bool, **options: Any) -> None:
    """Convert a TFLite or ONNX file into a saved NNAPI model, C source or a conformance case.

    \b
    Examples:
      nnbridge convert model.tflite -o model.nnapi
      nnbridge convert model.tflite -o app/jni/model.c
      nnbridge convert model.nnapi -o cases/mine/model.json.gz
    """
    from nnbridge import export
    from nnbridge.runtime.placement import required_level

    check_outputs({"--output": output})
    loaded = read_model(file_of(model, options))
    with working("Writing"):
        files = export.write(loaded, output, str(model))
    size = sum(files.values())
    level, operations, operands = int(required_level(loaded)), len(loaded.main.operations), len(loaded.main.operands)
    if as_json:
        counts = {"bytes": size, "operations": operations, "operands": operands, "feature_level": level}
        print_json({"model": str(model), "output": str(output), "files": [str(file) for file in files], **counts})
    else:
        counted_all = (counted(n, noun) for n, noun in ((operations, "operation"), (operands, "operand"), (size, "byte")))
        echo(f"{output}: {', '.join(counted_all)}, feature level {level}")
        for file in list(files)[1:]:
            echo(str(file))
