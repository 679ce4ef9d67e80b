"""``nnbridge convert``: a model file becomes a saved NNAPI model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from nnbridge.cli.arguments import check_outputs
from nnbridge.cli.options import MODEL, conversion, model_options
from nnbridge.cli.output import echo, json_option, print_json, working
from nnbridge.errors import InputError, Reason
from nnbridge.report.terminal import counted


@click.command()
@MODEL
@click.option("-o", "--output", type=click.Path(path_type=Path), required=True, help="The .nnapi file to write.")
@model_options
@json_option
def convert(model: Path, output: Path, as_json: bool, **options: Any) -> None:
    """Convert a TFLite or ONNX file into a saved NNAPI model.

    \b
    Example:
      nnbridge convert model.tflite -o model.nnapi
    """
    from nnbridge import loading, storage
    from nnbridge.runtime.placement import required_level

    check_outputs({"--output": output}, {"the model": [model]})
    with working(f"Reading {model.name}"):
        loaded = loading.load(model, conversion(**options))
    try:
        loaded.name.encode()
    except UnicodeEncodeError as error:
        raise InputError(
            Reason("a file name in UTF-8, as saved models hold the model's name", str(model), operand="MODEL")
        ) from error
    with working("Writing"):
        size = storage.save(loaded, output)
    level, operations, operands = int(required_level(loaded)), len(loaded.main.operations), len(loaded.main.operands)
    if as_json:
        counts = {"bytes": size, "operations": operations, "operands": operands, "feature_level": level}
        print_json({"model": str(model), "output": str(output), **counts})
    else:
        counted_all = (counted(n, noun) for n, noun in ((operations, "operation"), (operands, "operand"), (size, "byte")))
        echo(f"{output}: {', '.join(counted_all)}, feature level {level}")
