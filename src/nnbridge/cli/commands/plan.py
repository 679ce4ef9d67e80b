"""``nnbridge plan``: which device runs each operation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from nnbridge.cli.options import MODEL, compilation_of, conversion_of, device_options, finish, model_options
from nnbridge.cli.output import json_option, print_blocks, print_json
from nnbridge.errors import NnapiError


@click.command(short_help="Show which device accepts each operation, and why.")
@MODEL
@click.option("--full", is_flag=True, help="One row for each operation instead of groups.")
@click.option("--cost", "with_cost", is_flag=True, help="Multiply-adds, parameters and bytes of operations and steps as well.")
@click.option("--advice", "with_advice", is_flag=True, help="What to change so that more runs on the devices as well.")
@device_options
@model_options
@json_option
def plan(model: Path, full: bool, with_cost: bool, with_advice: bool, as_json: bool, **options: Any) -> None:
    """Show which device runs each operation, and why not the others.

    The first line has it in a sentence. With --no-fallback, what the devices refuse is listed, and the exit status is 2.

    \b
    Examples:
      nnbridge plan model.tflite --device nnapi-sample_float_fast
      nnbridge plan model.tflite --device arm-nn-21.11 --android 11
      nnbridge plan model.tflite --cost
      nnbridge plan model.tflite --device arm-nn-21.11 --advice
      nnbridge plan model.tflite --device nnapi-sample_float_fast,nnapi-sample_minimal --preference low-power
    """
    from nnbridge.cli.advising import advice_on
    from nnbridge.converters.inspection import mapped_as_dict
    from nnbridge.cost import cost_of
    from nnbridge.loading import mapping_of
    from nnbridge.report.advice import advice_table
    from nnbridge.report.cost import cost_tables
    from nnbridge.report.inspection import host_reasons
    from nnbridge.report.plan import plan_as_dict, plan_tables, refusals_as_dict, refusals_table
    from nnbridge.report.summary import summarise
    from nnbridge.types import android_name

    # What would run is not run: nothing is compiled.
    compilation, mapped = compilation_of(model, kernels="reference", **options)
    try:
        finish(compilation, model)
    except NnapiError as error:
        refused = refusals_as_dict(compilation)
        if as_json and refused:
            print_json({"model": str(model), "error": error.reason.as_dict(), "refusals": refused})
        elif refused:
            print_blocks([refusals_table(compilation.model.name, refused)])
        raise
    asked = conversion_of(options)
    mapping, level = mapping_of(model, asked), asked.feature_level
    android = f"Android {options['android']}" if options["android"] else android_name(level)
    summary = summarise(compilation, mapped, mapping, level, android)
    cost = cost_of(compilation.plan) if as_json or with_cost else None
    advice = advice_on(model, options) if with_advice else []
    if as_json:
        data = {**plan_as_dict(compilation), "model": str(model), "summary": summary.as_dict(), "cost": cost and cost.as_dict()}
        if with_advice:
            data["advice"] = [one.as_dict() for one in advice]
        print_json({**data, "conversion": {mapping: mapped_as_dict(mapped)}})
    else:
        costs = cost_tables(cost) if cost else ()
        advised = [advice_table(advice)] if with_advice else []
        print_blocks([summary.sentence, *plan_tables(compilation, full), *host_reasons(mapping, mapped), *costs, *advised])
