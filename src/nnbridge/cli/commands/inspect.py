"""``nnbridge inspect``: the content of a model file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from nnbridge.cli.options import MODEL, begin_runtime, conversion_options, file_of, named_devices, option
from nnbridge.cli.output import echo, json_option, print_blocks, print_json, working
from nnbridge.cli.sections import command


@command(short_help="Show what a model file holds, and what maps to NNAPI.")
@MODEL
@option("--device", "devices", multiple=True, metavar="NAME[,NAME…]", help="Drivers whose extensions a saved model uses.")
@conversion_options
@json_option
def inspect(model: Path, devices: tuple[str, ...], as_json: bool, **options: Any) -> None:
    """Show what a model file holds and what of it maps to NNAPI under each mapping, without running anything.

    Where LiteRT is installed, it is asked whether it loads a TFLite file, and ONNX Runtime whether it loads an ONNX file; a line
    says so where nnbridge's rules differ.

    \b
    Examples:
      nnbridge inspect model.tflite
      nnbridge inspect model.onnx --json
      nnbridge inspect traced.model1.nnapi --device my_npu:NPU
    """
    begin_runtime(model)
    from nnbridge.engines.loading import question_of
    from nnbridge.report.inspection import inspection_tables

    named_devices(devices)
    with working(f"Reading {model.name}"):
        file = file_of(model, options).with_(mapping="wide")
        asked = question_of(model, file.format)
        found = file.inspection
        disagreement = asked.disagreement(found.loads)
    if disagreement:
        echo(disagreement, err=True)
    if as_json:
        print_json("inspect", found.as_dict())
    else:
        print_blocks(inspection_tables(found))
