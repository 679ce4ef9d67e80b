"""``nnbridge plan``: which device runs each operation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from nnbridge.cli.options import MODEL, compiled, device_options, model_options
from nnbridge.cli.output import json_option, print_blocks, print_json


@click.command(short_help="Show which device accepts each operation, and why.")
@MODEL
@click.option("--full", is_flag=True, help="One row for each operation instead of groups.")
@device_options
@model_options
@json_option
def plan(model: Path, full: bool, as_json: bool, **options: Any) -> None:
    """Show which device runs each operation, and why not the others.

    \b
    Examples:
      nnbridge plan model.tflite --device nnapi-sample_float_fast
      nnbridge plan model.tflite --device nnapi-sample_float_fast,nnapi-sample_minimal --preference low-power
    """
    from nnbridge.converters.inspection import mapped_as_dict
    from nnbridge.report.inspection import host_reasons
    from nnbridge.report.plan import plan_as_dict, plan_tables

    mapping = options["mapping"]
    # What would run is not run: nothing is compiled.
    compilation, mapped = compiled(model, kernels="reference", **options)
    if as_json:
        print_json({**plan_as_dict(compilation), "model": str(model), "conversion": {mapping: mapped_as_dict(mapped)}})
    else:
        print_blocks([*plan_tables(compilation, full), *host_reasons(mapping, mapped)])
