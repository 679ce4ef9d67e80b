"""Traces that Perfetto and Chrome open: the events of their JSON format, and a run of a plan as such events.

Times are microseconds from the first event. A run has a track for each device and thread, one for what crosses between devices
and one for the whole runs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from nnbridge.extensions import readable_operation
from nnbridge.json_data import json_text
from nnbridge.report.terminal import counted_kinds
from nnbridge.runtime.partitioner import ExecutionStep
from nnbridge.runtime.plan import Plan
from nnbridge.runtime.plan_runner import RunReport, StepSpan
from nnbridge.storage.atomic import atomic_write

Event = dict[str, Any]
_PROCESS, _RUNS, _COPIES = 1, 2, 3  # a thread of the process's number would be its main thread
_MOST_NAMES = 50
"""Operations that are listed of a step."""


def named(kind: str, process: int, thread: int, name: str) -> Event:
    """A name for a process (``process_name``) or for a track (``thread_name``)."""
    return {"name": kind, "ph": "M", "pid": process, "tid": thread, "args": {"name": name}}


def slice_event(
    name: str, category: str, at: float, duration: float, process: int, thread: int, arguments: Mapping[str, Any]
) -> Event:
    """Something that lasts, in microseconds."""
    shown = {"name": name, "cat": category, "ph": "X", "ts": round(at, 3), "dur": round(duration, 3)}
    return {**shown, "pid": process, "tid": thread, "args": dict(arguments)}


def write_trace(path: Path, events: Sequence[Event]) -> None:
    """Write a file of events, in UTF-8 as it is: Perfetto shows a name's ``\\u00d7`` as these six signs."""
    with atomic_write(path) as file:
        text = json_text({"traceEvents": events, "displayTimeUnit": "ms"}, readable=True)
        file.write(text.encode("utf-8", "backslashreplace"))


def run_events(title: str, runs: Sequence[tuple[str, RunReport]]) -> list[Event]:
    """The events of runs, each with its name; reports of executions that measured their steps."""
    spans = [span for _, report in runs for span in report.spans]
    start = min((span.started for span in spans), default=0)
    tracks: dict[tuple[str, int], int] = {}
    for span in spans:
        tracks.setdefault((span.device, span.thread), _COPIES + 1 + len(tracks))
    threads = Counter(device for device, _ in tracks)
    events = [named("process_name", _PROCESS, 0, title), named("thread_name", _PROCESS, _RUNS, "runs")]
    events.append(named("thread_name", _PROCESS, _COPIES, "between devices"))
    for (device, thread), track in tracks.items():
        name = device if threads[device] == 1 else f"{device}, thread {thread}"
        events.append(named("thread_name", _PROCESS, track, name))
    flows = 0
    for name, report in runs:
        if report.spans:
            first, last = report.spans[0], max(span.ended for span in report.spans)
            at = {"fallback": str(report.fallback)} if report.fallback else {}
            events.append(_slice(name, "run", first.started - start, last - first.started, _RUNS, at))
        events += _steps(report, start, tracks)
        copies = list(_copies(report, start, tracks, flows))
        flows += len(copies)
        events += [event for copy in copies for event in copy]
    return events


def _slice(name: str, category: str, at: int, nanoseconds: int, track: int, arguments: Mapping[str, Any]) -> Event:
    return slice_event(name, category, at / 1e3, nanoseconds / 1e3, _PROCESS, track, arguments)


def _steps(report: RunReport, start: int, tracks: Mapping[tuple[str, int], int]) -> Iterator[Event]:
    """A slice for each step, and a mark where it, or the whole model, falls back to the CPU."""
    plans: list[Plan] = []
    for span in report.spans:
        track, at = tracks[span.device, span.thread], span.started - start
        if plans and span.plan is not plans[-1] and report.fallback is not None:
            yield _mark(f"the whole model falls back: {report.fallback}", at, track, {"reason": str(report.fallback)})
        plans.append(span.plan)
        step = span.plan.steps[span.step]
        if span.fallback is not None:
            yield _mark(f"step {span.step} falls back: {span.fallback}", at, track, {"reason": str(span.fallback)})
        category = "failed" if span.failure else "fallback" if span.fallback else "step"
        name = f"step {span.step}{' fails' if span.failure else ''}: {_kinds(span.plan, step)}"
        yield _slice(name, category, at, span.nanoseconds, track, _arguments(span, step))


def _mark(name: str, at: int, track: int, arguments: Mapping[str, Any]) -> Event:
    shown = {"name": name, "cat": "fallback", "ph": "i", "s": "t", "ts": round(at / 1e3, 3)}
    return {**shown, "pid": _PROCESS, "tid": track, "args": dict(arguments)}


def _kinds(plan: Plan, step: ExecutionStep) -> str:
    model = plan.partition.sources[step.source].model
    return counted_kinds((readable_operation(model, model.main.operations[i]) for i in step.operations), 3)


def _arguments(span: StepSpan, step: ExecutionStep) -> dict[str, Any]:
    model = span.plan.partition.sources[step.source].model
    operations = [model.main.operations[i] for i in step.operations]
    names = [operation.name or readable_operation(model, operation) for operation in operations]
    known = {
        "operations": names[:_MOST_NAMES] + [f"{len(names) - _MOST_NAMES} more"] * (len(names) > _MOST_NAMES),
        "within": span.plan.partition.within(step.source),
        "input bytes": sum(span.inputs),
        "on device ms": span.on_device and span.on_device / 1e6,
        "in driver ms": span.in_driver and span.in_driver / 1e6,
        "fallback": span.fallback and str(span.fallback),
        "failure": span.failure and str(span.failure),
    }
    return {name: value for name, value in known.items() if value not in (None, "")}


def _copies(report: RunReport, start: int, tracks: Mapping[tuple[str, int], int], flows: int) -> Iterator[list[Event]]:
    """A slice and an arrow for each tensor that a step reads and another device computed."""
    made: dict[tuple[int, int, int], StepSpan] = {}
    ended = 0
    for span in report.spans:
        step = span.plan.steps[span.step]
        operands = span.plan.partition.sources[step.source].model.main.operands
        for i, size in zip(step.inputs, span.inputs, strict=True):
            source = made.get((id(span.plan), step.source, i))
            if source is None or source.device == span.device:
                continue
            flows += 1
            begin, gap = ended - start, max(span.started - ended, 0)
            name = operands[i].name or f"operand {i}"
            shown = {"tensor": name, "bytes": size, "from": source.device, "to": span.device}
            flow = {"name": name, "cat": "copy", "id": flows, "pid": _PROCESS}
            yield [
                _slice(f"{name}: {size:,} bytes to {span.device}", "copy", begin, gap, _COPIES, shown),
                {**flow, "ph": "s", "ts": _since(start, source), "tid": tracks[source.device, source.thread]},
                {**flow, "ph": "f", "bp": "e", "ts": _since(start, span), "tid": tracks[span.device, span.thread]},
            ]
        ended = span.ended
        if not span.failure:
            made |= {(id(span.plan), step.source, i): span for i in step.outputs}


def _since(start: int, span: StepSpan) -> float:
    """A moment within a slice, by which arrows find it."""
    return round((span.started - start + span.nanoseconds // 2) / 1e3, 3)
