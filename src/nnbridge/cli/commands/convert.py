"""``nnbridge convert``: a model file, or a part of it, becomes a saved NNAPI model, C source or a conformance case."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from nnbridge.cli.arguments import check_outputs, refuse_options
from nnbridge.cli.options import MODEL, WRITTEN, file_of, in_section, model_options, option, read_model
from nnbridge.cli.output import echo, json_option, print_json, working
from nnbridge.cli.parts import show_part, write_part
from nnbridge.cli.sections import command
from nnbridge.report.terminal import counted

OUTPUT = """The file to write: .nnapi, a saved model; .c or .cpp, source for the NDK with .h, .bin, a program and CMakeLists.txt
beside it; .json.gz, a case for vts; .mod.py, a spec of Android's test generator. A part may also be a file of the model's own
format (.tflite, .onnx)."""
OPERATIONS = "Only these of NNAPI's operations, by their number in the run order, from 0 (as in plan --json and bisect)."
OPERATORS = "Only the operations of these operators of the source file, by their index there."
SAMPLES = "Write the values that reach the part, for compare."
part_option = in_section("Part of a model")


@command(short_help="Convert a file, or a part of it, to a saved model, C source or a test case.")
@MODEL
@option("-o", "--output", type=WRITTEN, required=True, help=OUTPUT)
@part_option("--operations", metavar="N[-N][,…]", help=OPERATIONS)
@part_option("--operators", metavar="N[-N][,…]", help=OPERATORS)
@part_option("--samples", type=WRITTEN, metavar="FILE.npz", help=SAMPLES)
@part_option("--seed", type=click.IntRange(min=0), default=0, metavar="N", help="With --samples: the seed of the model's inputs.")
@model_options
@json_option
def convert(
    model: Path,
    output: Path,
    operations: str | None,
    operators: str | None,
    samples: Path | None,
    seed: int,
    as_json: bool,
    **options: Any,
) -> None:
    """Convert a TFLite or ONNX file, or some operations of it, into a saved NNAPI model, C source or a conformance case.

    For a part, values from other operations become inputs, and values that others read become outputs.

    \b
    Examples:
      nnbridge convert model.tflite -o model.nnapi
      nnbridge convert model.tflite -o app/jni/model.c
      nnbridge convert model.nnapi -o cases/mine/model.json.gz
      nnbridge convert model.tflite --operations 12-20 -o part.nnapi --samples part.npz
      nnbridge convert model.tflite --operators 7 -o part.tflite
    """
    from nnbridge import export
    from nnbridge.runtime.placement import required_level

    if operations is not None and operators is not None:
        raise click.UsageError("--operations and --operators exclude each other.")
    whole = operations is None and operators is None
    if whole:
        refuse_options("--samples", "--seed", why="it belongs to --operations and --operators")
    check_outputs({"--output": output, "--samples": samples})
    loaded = read_model(file_of(model, options))
    head = {"model": str(model), "output": str(output)}
    if not whole:
        files, part = write_part(model, loaded, (operations, operators), output, samples, seed)
        if as_json:
            print_json("convert", {**head, "files": [str(file) for file in files], "bytes": sum(files.values()), **part})
        else:
            show_part(output, part, len(loaded.main.operations))
        return
    with working("Writing"):
        files = dict(export.write(loaded, output, str(model)))
    size = sum(files.values())
    level, count, operands = int(required_level(loaded)), len(loaded.main.operations), len(loaded.main.operands)
    if as_json:
        counts = {"bytes": size, "operations": count, "operands": operands, "feature_level": level}
        print_json("convert", {**head, "files": [str(file) for file in files], **counts})
    else:
        counted_all = (counted(n, noun) for n, noun in ((count, "operation"), (operands, "operand"), (size, "byte")))
        echo(f"{output}: {', '.join(counted_all)}, feature level {level}")
        for file in list(files)[1:]:
            echo(str(file))
