"""Outputs: a run as JSON-ready data and as lines, a comparison as a table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from nnbridge.devices.evidence import NUMBERS_UNKNOWN, evidence_lines, evidences, next_step, unknown_numbers
from nnbridge.devices.host import Computing, HostDevice
from nnbridge.model import Source
from nnbridge.plan_data import cache_as_dict
from nnbridge.report.plan import cache_lines
from nnbridge.report.terminal import Table, counted
from nnbridge.runtime.compilation import Compilation

if TYPE_CHECKING:  # `plan` prints lines of this module, and neither runs nor compares.
    from nnbridge.compare import Comparison, OutputComparison
    from nnbridge.compare.causes import Cause
    from nnbridge.compare.several import SideBySide, SidePair
    from nnbridge.runtime.plan_runner import RunReport

_MOST = 5
"""Operators that a line names."""


def host_as_dict(compilation: Compilation) -> dict[str, Any] | None:
    """The host's name, version and operators, and why others than the phone's computed; None where nothing is left to it.

    ``computed`` has an entry for each that computed and each reason.
    """
    groups: dict[Computing, list[str]] = {}
    for host, source in _hosted(compilation):
        groups.setdefault(host.computing(source), []).append(f"{source.index}: {source.operator}")
    if not groups:
        return None
    first = min(groups, key=lambda computing: computing.reason is not None)
    computed = [
        {"name": found.by, "operators": operators, "reason": found.reason and str(found.reason)}
        for found, operators in groups.items()
    ]
    return {"name": first.by, "version": first.version, "reason": first.reason and str(first.reason), "computed": computed}


def host_lines(host: Mapping[str, Any] | None) -> list[str]:
    """A line for each entry of ``computed``."""
    if host is None:
        return []
    lines = []
    for entry in host["computed"]:
        name = (entry["name"] == host["name"] and host["version"]) or entry["name"]
        names = entry["operators"]
        listed = ", ".join([*names[:_MOST], *(["…"] if len(names) > _MOST else [])]) if entry["reason"] else ""
        what = counted(len(names), "operator") + (f" ({listed})" if listed else "")
        why = f": {entry['reason']}" if entry["reason"] else ""
        lines.append(f"host: {name} computed {what}{why}")
    return lines


def _hosted(compilation: Compilation) -> Iterator[tuple[HostDevice, Source]]:
    """The file's operators that a host computes, in the plan's order."""
    plan, seen = compilation.plan, set()
    for step in plan.steps:
        host = plan.devices[step.device]
        for operation in step.model.main.operations if isinstance(host, HostDevice) else ():
            if isinstance(host, HostDevice) and operation.source is not None and operation.source not in seen:
                seen.add(operation.source)
                yield host, operation.source


def run_as_dict(compilation: Compilation, outputs: Mapping[str, Any], reports: Sequence[RunReport]) -> dict[str, Any]:
    """The outputs' shapes and ranges, the last run's steps, who computed what no device got, what fell back and what the cache
    did.
    """
    from nnbridge.compare import named_outputs, unpacked

    last = reports[-1]
    described = []
    for name, array in unpacked(named_outputs(compilation.model), outputs).items():
        numbers = {}
        if array.size and array.dtype.kind in "fiu":
            numbers = {"min": float(array.min()), "max": float(array.max()), "mean": float(array.mean())}
        described.append({"name": name, "type": str(array.dtype), "shape": list(array.shape), **numbers})
    steps = [
        {
            "device": s.device,
            "milliseconds": s.nanoseconds / 1e6,
            "on_device_milliseconds": s.on_device and s.on_device / 1e6,
            "in_driver_milliseconds": s.in_driver and s.in_driver / 1e6,
            "runs": s.runs,
            "failed": s.failed,
            "fallback": s.fallback and str(s.fallback),
        }
        for s in last.steps
    ]
    fallback = compilation.plan.fallback or last.fallback
    return {
        "outputs": described,
        "steps": steps,
        "milliseconds": [sum(step.nanoseconds for step in report.steps) / 1e6 for report in reports],
        "fallback": fallback and str(fallback),
        "host": host_as_dict(compilation),
        "offered": [asdict(share) for share in compilation.shares()],
        "cache": [cache_as_dict(record) for record in compilation.plan.cache],
    }


def run_lines(compilation: Compilation, run: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """The lines to print of a run's outputs, and of how it went."""
    notes = []
    for number, step in enumerate(run["steps"]):
        often = f" in {counted(step['runs'], 'execution')}" if step["runs"] > 1 else ""
        often += f", {step['failed']} failed" if step["failed"] else ""
        why = f" (fell back: {step['fallback']})" if step["fallback"] else ""
        notes.append(f"step {number}, {step['device']}: {step['milliseconds']:.2f} ms, emulated on this machine{often}{why}")
    times = run["milliseconds"]
    if len(times) > 1:
        mean = sum(times[1:]) / len(times[1:])
        statistics = f"first {times[0]:.2f} ms, then mean {mean:.2f}, min {min(times[1:]):.2f}, max {max(times[1:]):.2f} ms"
        notes.append(f"{counted(len(times), 'run')}: {statistics}; the steps' times are the last run's")
    elif len(run["steps"]) > 1:
        notes.append(f"total: {times[0]:.2f} ms, emulated on this machine, first run (--repeat N for warm runs)")
    notes += [*host_lines(run["host"]), *map(str, compilation.shares()), *cache_lines(compilation)]
    used = {share.device for share in compilation.shares() if share.accepted}
    known = evidences(device for device in compilation.devices if device.name in used)
    notes += [f"{device}: {NUMBERS_UNKNOWN}; {next_step()}" for device in unknown_numbers(known)]
    if run["fallback"]:
        when = "fell back to" if compilation.plan.fallback else "was repeated on"
        notes.append(f"The whole model {when} the CPU: {run['fallback']}")
    return [line for item in run["outputs"] for line in output_lines(item)], notes


def output_lines(item: Mapping[str, Any]) -> list[str]:
    """An output in one line, in two where that would be longer than a terminal's."""
    numbers = ", ".join(f"{key} {item[key]:.6g}" for key in ("min", "max", "mean") if key in item)
    if "real_min" in item:
        numbers += f" (real {item['real_min']:.6g} to {item['real_max']:.6g})"
    head = f"{item['name']}: {item['type']}{item['shape']}"
    return [f"{head} {numbers}"] if len(head) + len(numbers) < 80 else [head, f"  {numbers}"]


def side_tables(found: SideBySide) -> list[Table | str]:
    """Each side beside each: how far apart they are, and why others are not there."""
    cells = {(pair.first, pair.second): _side_cell(pair) for pair in found.pairs}
    rows = [
        (str(number), _side_name(found, name), *(cells.get((other, name), cells.get((name, other), "")) for other in found.names))
        for number, name in enumerate(found.names, 1)
    ]
    title = f"{found.model}, {counted(found.samples, 'sample')}: largest difference of each two sides"
    columns = ("", "side", *(str(number) for number, _ in enumerate(found.names, 1)))
    absent = [f"{name}: no outputs: {why}" for name, why in found.absent.items()]
    return [Table(title, columns, rows), *absent]


def _side_name(found: SideBySide, name: str) -> str:
    """The plan's side says where nothing is known of its devices."""
    return f"{name} ({found.reservation.partition(' (')[0]})" if found.reservation and name == found.names[0] else name


def _side_cell(pair: SidePair) -> str:
    """The worst output of two sides, by its share of the range where they do not agree."""
    worst = pair.worst
    if worst.problem:
        return "other shapes"
    if pair.agrees:
        return "equal" if not any(output.mismatches for output in pair.outputs) else f"within, {worst.largest:.2g}"
    from nnbridge.compare.several import share

    what = "infinite or NaN" if worst.non_finite_unequal else f"{worst.largest:.2g}, {share(worst):.0%} of the range"
    return f"APART, {what}"


def comparison_tables(comparison: Comparison) -> list[Table | str]:
    """One row for each output, and below the table where those that fail differ or why they could not be compared."""
    words = ("outside tolerance", "within tolerance") if comparison.reservation else ("FAIL", "pass")
    title = f"{comparison.model} on {comparison.device} against {comparison.reference}"
    columns = ("output", "type", "elements", "max diff", "mean diff", "unequal", "allowed", "verdict")
    rows = [(o.name, o.type, str(o.elements), *_differences(o), _verdict(o, words)) for o in comparison.outputs]
    decided = [sentence[:1].upper() + sentence[1:] for sentence in comparison.check_sentences]
    decided += [f"{check.outputs[0]}: {line}" for check, _ in comparison.checks for line in check.why]
    lines = [*decided, *(f"{o.name}: {line}" for o in comparison.outputs for line in _failure(o))]
    lines += cause_lines(comparison.causes, "Cause: ")
    lines += ended_lines(comparison.ended)
    if comparison.interrupted:
        lines.append("Interrupted: only the samples above were finished.")
    table = Table(f"{title}, {counted(comparison.samples, 'sample')}: {comparison.verdict}", columns, rows)
    return [table, *_metrics(comparison.outputs), *lines, *evidence_lines(comparison.evidence), *_reserved(comparison)]


def _verdict(output: OutputComparison, words: tuple[str, str]) -> str:
    return words[output.passed] + (f" ({output.decided_by})" if output.decided_by else "")


def _reserved(comparison: Comparison) -> list[str]:
    """The part of a comparison that is known, and the part that is not, where the numbers say nothing of the devices."""
    if not comparison.reservation:
        return []
    found = "within" if comparison.passed else "outside"
    computed = (
        f"what NNAPI's CPU computed in place of {', '.join(comparison.unknown)}"
        if comparison.unknown
        else f"nothing runs on {', '.join(comparison.idle)}; what {comparison.device} computed"
    )
    next_steps = [f"Next: {next_step(comparison.reference)}"] if comparison.unknown else []
    return [f"{comparison.reservation}: {computed} is {found} tolerance, which the exit status says", *next_steps]


def ended_lines(ended: Sequence[tuple[str, str]]) -> list[str]:
    """A line for each sample at which a runtime's process ended."""
    return [f"{label}: {why}" for label, why in ended]


_MAX_CAUSES = 10
"""Lines of causes below a table; the others are in ``--json``."""
_MAX_OPERATORS = 3
"""Operators that a line of a cause names."""


def cause_lines(causes: Iterable[Cause], start: str = "", *, keys: bool = False) -> list[str]:
    """A line for each cause, with all operators that have it; after its key, where a table has ``keys``."""
    from nnbridge.compare.causes import shared_causes

    lines = [
        f"{start}{f'{each.kind}: ' if keys else ''}{_operators(each.operators)}{each.text}" for each in shared_causes(causes)
    ]
    more = [f"{counted(len(lines) - _MAX_CAUSES, 'more cause')}: see --json"] if len(lines) > _MAX_CAUSES else []
    return [*lines[:_MAX_CAUSES], *more]


def _operators(names: Sequence[str]) -> str:
    """Operators before the text of what they have in common."""
    if len(names) <= _MAX_OPERATORS:
        return f"{', '.join(names)}: " if names else ""
    return f"{counted(len(names), 'operator')} ({', '.join(names[:_MAX_OPERATORS])}, …): "


def _metrics(outputs: Sequence[OutputComparison]) -> list[Table | str]:
    """A row for each output that is not equal."""

    def text(number: float | None, form: str) -> str:
        return "-" if number is None else format(number, form)

    unequal = [(o, o.metrics) for o in outputs if o.mismatches and o.compared]
    rows = [
        (o.name, text(m.rmse, ".2g"), text(m.sqnr, ".1f"), text(m.cosine, ".8f"), _steps(m.histogram(), o.compared))
        for o, m in unequal
    ]
    columns = ("output", "RMSE", "SQNR dB", "cosine", "steps above the reference")
    return [Table("Error metrics", columns, rows)] if rows else []


def _steps(histogram: Mapping[str, int], elements: int) -> str:
    return ", ".join(f"{step}: {count / elements:.2%}" for step, count in histogram.items())


def _differences(output: OutputComparison) -> tuple[str, ...]:
    if output.problem or not output.elements:
        return ("-",) * 4
    largest, mean = output.max_abs_diff, output.mean_abs_diff
    allowed = f"{output.atol:.3g}" + (f" + {output.rtol:.2g}·|r|" if output.rtol else "")
    return (
        "-" if largest is None else f"{largest:.3g}",
        "-" if mean is None else f"{mean:.2g}",
        f"{output.mismatches / output.elements:.2%}",
        allowed,
    )


def _failure(output: OutputComparison) -> list[str]:
    """The reason why an output fails, and where it differs most; values that are not finite in any case."""
    lines = [output.problem] if output.problem else []
    if output.non_finite:
        unequal = f", {output.non_finite_unequal} of them not the same" if output.non_finite_unequal else ", all of them the same"
        lines.append(f"{counted(output.non_finite, 'element')} infinite or NaN on one side or both{unequal}")
    if output.beyond and output.worst is not None:
        at = f"{list(output.worst.index)} of {output.worst.sample}" if output.worst.sample else str(list(output.worst.index))
        found = f"{_number(output.worst.actual)}, reference {_number(output.worst.expected)}"
        lines.append(f"{output.beyond:,} of {counted(output.elements, 'element')} beyond tolerance, the worst at {at}: {found}")
    return lines


def _number(value: complex) -> str:
    return str(value) if isinstance(value, int) else f"{value:.6g}"
