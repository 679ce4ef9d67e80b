"""Results of ``nnbridge bench`` as tables, JSON and a trace that Chrome and Perfetto open."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from nnbridge.bench.measure import Bench
from nnbridge.bench.profiling import OperationTime
from nnbridge.report.terminal import Table, counted
from nnbridge.report.trace import Event, named, slice_event

BASES = ("LiteRT XNNPACK", "ONNX Runtime")
"""Contenders that the others are divided by."""


def bench_as_dict(bench: Bench) -> dict[str, Any]:
    """Latencies in milliseconds, operations in microseconds, memory in bytes."""
    first = {name: dict(parts) for name, parts in bench.first.items()}
    return {
        "latencies": [asdict(entry) for entry in bench.latencies],
        "absent": [{"contender": name, "reason": why} for name, why in bench.missing.items()],
        "operations": [asdict(entry) for entry in bench.operations],
        "first_answers": [{"contender": name, **parts} for name, parts in first.items()],
        # By names with blanks, as in the last release.
        "missing": dict(bench.missing),
        "first_answer": first,
    }


def bench_tables(title: str, bench: Bench) -> list[Table | str]:
    """Latencies, first answers, and the operations that take longest."""
    rows = []
    for entry in bench.latencies:
        base = next((m for name in BASES if (m := bench.time(name, entry.threads)) is not None), None)
        times = [f"{value:.4g}" for value in (entry.least, entry.median, entry.p95)]
        ratio = "-" if base is None else f"{entry.median / base:.2f}"
        rows.append((entry.contender, str(entry.threads), *times, str(entry.runs), ratio))
    base_name = next((name for name in BASES if any(e.contender == name for e in bench.latencies)), "peer")
    columns = ("contender", "threads", "min ms", "median ms", "p95 ms", "runs", f"of {base_name}")
    blocks: list[Table | str] = [*_judgement(bench), Table(title, columns, rows)]
    blocks += [f"{name} does not run it: {why}" for name, why in bench.missing.items()]
    if bench.first:
        blocks.append(_first_table(bench.first))
    if bench.operations:
        blocks += _operations_tables(bench.operations)
    return blocks


def _judgement(bench: Bench) -> list[str]:
    """A sentence on nnbridge's quickest median beside the runtime's; none if one of both was not measured."""
    both = (
        (each, name, bench.time(name, each.threads))
        for each in bench.latencies
        if each.contender.startswith("nnbridge")
        for name in BASES
    )
    found = [(each.median / base, each, name) for each, name, base in both if base is not None]
    if not found:
        return []
    ratio, each, name = min(found, key=lambda one: one[0])
    return [f"{each.contender} takes {ratio:.2f} of the time of {name} (median, {counted(each.threads, 'thread')})."]


def _first_table(first: Mapping[str, Mapping[str, float | None]]) -> Table:
    parts = ("total", "import", "load", "prepare", "run")
    rows = []
    for name, found in first.items():
        times = [f"{value:.0f}" if (value := found.get(part)) is not None else "-" for part in parts]
        peak, imports = found.get("peak_bytes"), found.get("imports_bytes")
        memory = ["-", "-"] if peak is None or imports is None else [f"{n / 2**20:.0f}" for n in (peak, peak - imports)]
        rows.append((name, *times, *memory))
    columns = ("first result", *(f"{part} ms" for part in parts), "peak MiB", "without imports")
    return Table("Fresh processes", columns, rows)


def by_operation(operations: Sequence[OperationTime]) -> list[tuple[str, str, int, float]]:
    """Name, tier, number and microseconds of the operations of each name, longest first."""
    sums: dict[tuple[str, str], list[float]] = {}
    for entry in operations:
        sums.setdefault((entry.name, entry.tier), []).append(entry.microseconds)
    return sorted(((*key, len(times), sum(times)) for key, times in sums.items()), key=lambda row: -row[3])


def _operations_tables(operations: Sequence[OperationTime]) -> list[Table | str]:
    total = sum(entry.microseconds for entry in operations) or 1.0
    rows = [(name, tier, str(n), f"{us / 1e3:.4f}", f"{us / total:.1%}") for name, tier, n, us in by_operation(operations)]
    return [Table("Time by operation, one thread, least of the runs", ("operation", "tier", "steps", "ms", "share"), rows)]


def profile_tables(operations: Sequence[OperationTime]) -> list[Table | str]:
    """The operations of a model's profile that take longest, one row each."""
    total = sum(entry.median for entry in operations) or 1.0
    longest = sorted(operations, key=lambda entry: -entry.median)
    rows = [
        (
            str(entry.index) if entry.index >= 0 else "-",
            entry.name,
            str(entry.step),
            entry.tier,
            *(f"{us / 1e3:.4f}" for us in (entry.microseconds, entry.median, entry.p90)),
            f"{entry.median / total:.1%}",
        )
        for entry in longest
    ]
    runs = max((entry.runs for entry in operations), default=0)
    title = f"Operations in isolation on one thread, {counted(runs, 'run')}; sum of medians {total / 1e3:.3g} ms"
    columns = ("operation", "name", "step", "tier", "min ms", "median ms", "p90 ms", "share")
    return [Table(title, columns, rows)]


def operation_events(title: str, operations: Sequence[OperationTime], process: int) -> list[Event]:
    """Trace events: the operations one after another with their least times."""
    events: list[Event] = [named("process_name", process, 0, title), named("thread_name", process, 1, "operations")]
    at = 0.0
    for entry in operations:
        arguments = {"operation": entry.index, "step": entry.step, "tier": entry.tier}
        arguments |= {"median µs": round(entry.median, 3), "p90 µs": round(entry.p90, 3), "runs": entry.runs}
        events.append(slice_event(entry.name, entry.tier, at, entry.microseconds, process, 1, arguments))
        at += entry.microseconds
    return events


def bench_events(title: str, bench: Bench) -> list[Event]:
    """Trace events: the operations of one run, one after another, and the parts of each first answer."""
    events = operation_events(f"{title}: one run", bench.operations, 1)
    if bench.first:
        events.append(named("process_name", 2, 0, "first results"))
    for row, (name, parts) in enumerate(bench.first.items(), 1):
        events.append(named("thread_name", 2, row, name))
        at = 0.0
        measured = [(part, parts.get(part) or 0.0) for part in ("import", "load", "prepare", "run")]
        start = (parts.get("total") or 0.0) - sum(ms for _, ms in measured)
        for part, milliseconds in [("start of the process", max(start, 0.0)), *measured]:
            events.append(slice_event(part, "first answer", at, milliseconds * 1e3, 2, row, {}))
            at += milliseconds * 1e3
    return events
