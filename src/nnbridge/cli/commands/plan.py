"""``nnbridge plan``: which device runs each operation."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nnbridge.cli.completion import words
from nnbridge.cli.options import (
    MODEL,
    begin_runtime,
    device_options,
    file_of,
    finished,
    in_section,
    model_options,
    option,
    target_of,
)
from nnbridge.cli.output import json_option, print_blocks, print_json, verbose, working
from nnbridge.cli.sections import ESTIMATE, command
from nnbridge.errors import InputError, NnapiError, Reason
from nnbridge.estimate import ESTIMATE_CPU

if TYPE_CHECKING:
    from nnbridge.advice import Advised
    from nnbridge.devices.device import Device
    from nnbridge.devices.source_profiles import BoundDevice
    from nnbridge.estimate.plans import Estimate
    from nnbridge.file import ModelFile
    from nnbridge.report.terminal import Table
    from nnbridge.target import Target

_ESTIMATE = (
    "Time and peak memory of each partition, and whether delegating pays. For devices with a cost model (docs/estimates.md)."
)
_ROUTES = "List every route of the file instead, such as LiteRT's GPU: selected, compiles, right (docs/plans.md)."
_LOG = "Explain a phone's log instead: for each line the rule, the operator and what to do. - is standard input."
_SINCE = "List the first release of the app's runtime, and the first Android with it, that hands each operator over."
_OPTIMISE = "Delegate the best cut by the device's cost model, instead of every partition that it accepts."
_MEMORY = "The device's memory for weights and values; partitions that need more are cut or stay on the CPU."
_CPU = "The CPU that runs what is not delegated, for --estimate and --optimise."


def _cpus() -> Iterable[str]:
    from nnbridge.estimate.plans import cpus

    return cpus()


of_estimate = in_section(ESTIMATE)


@command(short_help="Show which device accepts each operation, and why.")
@MODEL
@option("--full", is_flag=True, help="One row for each operation instead of groups.")
@option("--cost", "with_cost", is_flag=True, help="Also show multiply-adds, parameters and bytes of operations and steps.")
@option("--advice", "with_advice", is_flag=True, help="Also list changes after which more runs on the devices.")
@option("--routes", "with_routes", is_flag=True, help=_ROUTES)
@option("--explain-log", "log", metavar="LOG", help=_LOG)
@option("--since", "with_since", is_flag=True, help=_SINCE)
@option("--estimate", is_flag=True, help=_ESTIMATE)
@of_estimate("--optimise", is_flag=True, help=_OPTIMISE)
@of_estimate("--memory", type=click.IntRange(min=1), metavar="BYTES", help=_MEMORY)
@of_estimate("--cpu", default=ESTIMATE_CPU, metavar="NAME", shell_complete=words(_cpus), help=_CPU)
@device_options
@model_options
@json_option
def plan(
    model: Path,
    full: bool,
    with_cost: bool,
    with_advice: bool,
    with_since: bool,
    with_routes: bool,
    as_json: bool,
    log: str | None,
    estimate: bool,
    optimise: bool,
    memory: int | None,
    cpu: str,
    **options: Any,
) -> None:
    """Show which device runs each operation, and why not the others.

    The first line is the verdict. With --fallback none, refused operations are listed, and the exit status is 2.

    \b
    Examples:
      nnbridge plan model.tflite --device nnapi-sample_float_fast
      nnbridge plan model.tflite --device arm-nn-21.11 --android 11
      nnbridge plan model.tflite --cost
      nnbridge plan model.tflite --since
      nnbridge plan model.tflite --routes
      nnbridge plan model.tflite --device arm-nn-21.11 --advice
      nnbridge plan model.tflite --device nnapi-sample_float_fast,nnapi-sample_minimal --preference low-power
      adb logcat -d | nnbridge plan model.tflite --device my-npu.toml --explain-log -
      nnbridge plan model.tflite --device ethos-u55-128 --estimate
      nnbridge plan model.tflite --device ethos-u55-128 --optimise --memory 262144
    """
    begin_runtime(model)
    from nnbridge.devices.evidence import evidence_lines, evidences
    from nnbridge.errors import ConversionError
    from nnbridge.plan import opened_devices
    from nnbridge.plan_data import operators_of
    from nnbridge.report.plan import operators_only, plan_tables, refusals_table
    from nnbridge.report.since import since_table
    from nnbridge.since import since
    from nnbridge.target import Fallback

    file = file_of(model, options)
    if with_routes or log is not None:
        _routes(file, as_json) if log is None else _explain(file, target_of(options), log, as_json)
        return
    # What would run is not run: nothing is compiled.
    target = target_of(options).with_(kernels="reference")
    target = target.with_(devices=tuple(opened_devices(file, target)[0]))
    bound = _bound(target.devices)
    found = _estimates(bound, cpu, memory) if estimate or optimise or memory is not None else []
    if optimise:
        best = {each.device: {i for o in each.best.cut.options for i in o.operators} for each in found}
        target = target.with_(devices=tuple(_optimised(device, best) for device in target.devices))
        bound = _bound(target.devices)
    estimates, tables = _estimated(found, full)
    try:
        planned = finished(file, target)
    except ConversionError:
        # A compiler reads files that LiteRT, and with it the conversion, refuses.
        if bound and as_json:
            print_json("plan", {"model": str(model), "operators": operators_of(bound, {}), **estimates})
        elif bound:
            print_blocks([*operators_only(bound, full), *tables], top=0 if full else None)
        raise
    except NnapiError as error:
        refused = error.planned.refusals if error.planned is not None else []
        if as_json and refused:
            print_json("plan", {"model": str(model), "refusals": refused})
        elif refused:
            print_blocks([refusals_table(error.planned.model.name, refused)])
        raise
    advised: Advised | None = None
    more: list[Table | str] = []
    if with_cost:
        from nnbridge.cost import cost_of
        from nnbridge.report.cost import cost_tables

        more += cost_tables(cost_of(planned.compilation.plan))
    if with_advice:
        from nnbridge.advice import advise
        from nnbridge.report.advice import advice_tables

        advised = advise(file, target)
        more += advice_tables(advised)
    known = evidences(planned.drivers)
    history = since(planned.file, accelerated=planned.fallback is Fallback.APP) if with_since else None
    if as_json:
        changes = (
            {} if advised is None else {name: [one.as_dict() for one in getattr(advised, name)] for name in ("advice", "unmoved")}
        )
        dated = {} if history is None else {"since": [one.as_dict() for one in history]}
        print_json("plan", {**planned.to_dict(), **changes, **estimates, **dated})
    else:
        dates = () if history is None else (since_table(history, full=full),)
        first, *others = planned.summary.lines
        placed = plan_tables(planned, full, verbose())
        print_blocks(
            [first, *others, *evidence_lines(known), *placed, *tables, *dates, *more], top=0 if full else None, verdict=first
        )


def _routes(file: ModelFile, as_json: bool) -> None:
    from nnbridge.report.routes import routes_table
    from nnbridge.routes import routes

    with working("Asking the engines"):
        found = routes(file)
    if as_json:
        print_json("plan", {"model": str(file.path), "routes": [route.as_dict() for route in found]})
    else:
        print_blocks([routes_table(found, file.path.name)])


def _estimated(found: Sequence[Estimate], full: bool) -> tuple[dict[str, Any], list[Table | str]]:
    """Estimates as JSON and as tables."""
    if not found:
        return {}, []
    from nnbridge.report.estimate import estimate_as_dict, estimate_tables

    tables = [block for each in found for block in estimate_tables(each, full)]
    return {"estimates": [estimate_as_dict(each) for each in found]}, tables


def _explain(file: ModelFile, target: Target, log: str, as_json: bool) -> None:
    from nnbridge.log_lines.reader import MAX_BYTES, read_content
    from nnbridge.phone_log.explaining import explain_log
    from nnbridge.report.log import log_tables

    content = sys.stdin.buffer.read(MAX_BYTES + 1) if log == "-" else read_content(Path(log))
    with working("Reading the log"):
        found = explain_log(file, target, content, log)
    if as_json:
        print_json("plan", found.as_dict())
    else:
        print_blocks(log_tables(found))


def _optimised(device: Device | str, best: Mapping[str, Collection[int]]) -> Device | str:
    """The device, without the operators that are not worth delegating if it is one before NNAPI."""
    from nnbridge.devices.source_profiles import BoundDevice

    if not isinstance(device, BoundDevice):
        return device
    others = (c.operator for c in device.claims if c.accepted and c.operator.index not in best[device.name])
    rule, found = "an operator that is worth delegating", "left to the CPU by --optimise"
    return device.without({o.index: Reason(rule, found, o.label) for o in others})


def _bound(chosen: Sequence[Device | str]) -> list[BoundDevice]:
    """The devices that look at the file's operators."""
    from nnbridge.devices.source_profiles import BoundDevice

    return [device for device in chosen if isinstance(device, BoundDevice)]


def _estimates(bound: list[BoundDevice], cpu: str, memory: int | None) -> list[Estimate]:
    """One for each device that looks at files; refused where there is none, or no cost model."""
    from nnbridge.devices.profile_levels import shipped_at_source
    from nnbridge.report.estimate import estimate_on

    if not bound:
        known = ", ".join(profile.name for profile in shipped_at_source() if profile.cost is not None)
        raise InputError(Reason(f"no timing is known for these devices; estimates exist for {known}", operand="--estimate"))
    return [estimate_on(device, cpu, memory) for device in bound]
