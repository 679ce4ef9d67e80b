"""``nnbridge plan``: which device runs each operation."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nnbridge.cli.completion import words
from nnbridge.cli.options import (
    MODEL,
    bound_to,
    compilation_of,
    conversion_of,
    device_options,
    finish,
    model_options,
    named_devices,
    option,
    summary_of,
)
from nnbridge.cli.output import json_option, print_blocks, print_json
from nnbridge.errors import NnapiError
from nnbridge.estimate.numbers import ESTIMATE_CPU

if TYPE_CHECKING:
    from nnbridge.devices.device import Device
    from nnbridge.devices.source_profiles import BoundDevice
    from nnbridge.estimate.plans import Estimate

_ESTIMATE = (
    "Time and peak memory of each partition, and whether delegating pays. For devices with a cost model (docs/estimates.md)."
)
_OPTIMISE = "Delegate the best cut by the device's cost model, instead of every partition that it accepts."
_MEMORY = "The device's memory for weights and values; partitions that need more are cut or stay on the CPU."
_CPU = "The CPU that runs what is not delegated, for --estimate and --optimise."


def _cpus() -> Iterable[str]:
    from nnbridge.estimate.plans import cpus

    return cpus()


@click.command(short_help="Show which device accepts each operation, and why.")
@MODEL
@click.option("--full", is_flag=True, help="One row for each operation instead of groups.")
@click.option("--cost", "with_cost", is_flag=True, help="Multiply-adds, parameters and bytes of operations and steps as well.")
@click.option("--advice", "with_advice", is_flag=True, help="What to change so that more runs on the devices as well.")
@option("--estimate", is_flag=True, help=_ESTIMATE)
@option("--optimise", is_flag=True, help=_OPTIMISE)
@option("--memory", type=click.IntRange(min=1), metavar="BYTES", help=_MEMORY)
@option("--cpu", default=ESTIMATE_CPU, metavar="NAME", shell_complete=words(_cpus), help=_CPU)
@device_options
@model_options
@json_option
def plan(
    model: Path,
    full: bool,
    with_cost: bool,
    with_advice: bool,
    as_json: bool,
    estimate: bool,
    optimise: bool,
    memory: int | None,
    cpu: str,
    devices: tuple[str, ...],
    **options: Any,
) -> None:
    """Show which device runs each operation, and why not the others.

    The first line has it in a sentence. With --no-fallback, what the devices refuse is listed, and the exit status is 2.

    \b
    Examples:
      nnbridge plan model.tflite --device nnapi-sample_float_fast
      nnbridge plan model.tflite --device arm-nn-21.11 --android 11
      nnbridge plan model.tflite --cost
      nnbridge plan model.tflite --device arm-nn-21.11 --advice
      nnbridge plan model.tflite --device nnapi-sample_float_fast,nnapi-sample_minimal --preference low-power
      nnbridge plan model.tflite --device ethos-u55-128 --estimate
      nnbridge plan model.tflite --device ethos-u55-128 --optimise --memory 262144
    """
    from nnbridge.cli.advising import advice_on
    from nnbridge.converters.inspection import mapped_as_dict
    from nnbridge.cost import cost_of
    from nnbridge.errors import ConversionError
    from nnbridge.loading import mapping_of
    from nnbridge.report.advice import advice_tables
    from nnbridge.report.cost import cost_tables
    from nnbridge.report.estimate import estimate_as_dict, estimate_tables
    from nnbridge.report.inspection import host_reasons
    from nnbridge.report.operators import operators_of, operators_only
    from nnbridge.report.plan import plan_as_dict, plan_tables, refusals_as_dict, refusals_table

    chosen = named_devices(devices)
    chosen, limit = bound_to(model, chosen, options)
    bound = _bound(chosen)
    found = _estimates(bound, cpu, memory) if estimate or optimise or memory is not None else []
    if optimise:
        best = {each.device: {i for o in each.best.cut.options for i in o.operators} for each in found}
        optimised = {device.name: device.with_only(best[device.name]) for device in bound}
        chosen = [optimised.get(device.name, device) for device in chosen]
        bound = _bound(chosen)
    estimates = {"estimates": [estimate_as_dict(each) for each in found]} if found else {}
    tables = [block for each in found for block in estimate_tables(each, full)]
    options["devices"] = devices
    try:
        # What would run is not run: nothing is compiled.
        compilation, mapped = compilation_of(model, chosen=chosen, limit=limit, kernels="reference", **options)
    except ConversionError as error:
        if not bound:
            raise
        # A compiler reads files that LiteRT, and with it the conversion, refuses.
        if as_json:
            listed = operators_of(bound, {})
            print_json({"model": str(model), "operators": listed, "not_converted": error.reason.as_dict(), **estimates})
        else:
            print_blocks([*operators_only(bound, full), f"Not converted, so that nothing runs: {error}", *tables])
        return
    try:
        finish(compilation, model)
    except NnapiError as error:
        refused = refusals_as_dict(compilation)
        if as_json and refused:
            print_json({"model": str(model), "error": error.reason.as_dict(), "refusals": refused})
        elif refused:
            print_blocks([refusals_table(compilation.model.name, refused)])
        raise
    mapping = mapping_of(model, conversion_of(options))
    summary = summary_of(compilation, mapped, model, options)
    cost = cost_of(compilation.plan) if as_json or with_cost else None
    advised = advice_on(model, options) if with_advice else None
    if as_json:
        data = {**plan_as_dict(compilation), "model": str(model), "summary": summary.as_dict(), "cost": cost and cost.as_dict()}
        if advised is not None:
            data["advice"] = [one.as_dict() for one in advised.advice]
            data["unmoved"] = [one.as_dict() for one in advised.unmoved]
        print_json({**data, "conversion": {mapping: mapped_as_dict(mapped)}, **estimates})
    else:
        costs = cost_tables(cost) if cost else ()
        changes = advice_tables(advised) if advised is not None else []
        print_blocks(
            [summary.sentence, *plan_tables(compilation, full), *tables, *host_reasons(mapping, mapped), *costs, *changes]
        )


def _bound(chosen: Sequence[Device]) -> list[BoundDevice]:
    """The devices that look at the file's operators."""
    from nnbridge.devices.source_profiles import BoundDevice

    return [device for device in chosen if isinstance(device, BoundDevice)]


def _estimates(bound: list[BoundDevice], cpu: str, memory: int | None) -> list[Estimate]:
    """One for each device that looks at files; refused where there is none, or no cost model."""
    from nnbridge.errors import InputError, Reason
    from nnbridge.estimate.plans import estimate

    if not bound:
        rule = "a --device with a cost model, such as ethos-u55-128"
        raise InputError(Reason(rule, "none; nothing is estimated without", operand="--estimate"))
    return [
        estimate(d.graph, {c.operator.index for c in d.claims if c.accepted}, d.name, d.profile.cost, cpu, memory) for d in bound
    ]
