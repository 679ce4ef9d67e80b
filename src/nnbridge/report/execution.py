"""A run as JSON-ready data and as lines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from statistics import mean
from typing import Any

from nnbridge.report.plan import cache_as_dict, cache_lines
from nnbridge.report.terminal import counted
from nnbridge.runtime.compilation import Compilation
from nnbridge.runtime.plan_runner import RunReport


def run_as_dict(compilation: Compilation, outputs: Mapping[str, Any], reports: Sequence[RunReport]) -> dict[str, Any]:
    """The outputs' shapes and ranges, the last run's steps, what fell back and what the cache did."""
    last = reports[-1]
    described = []
    for name, array in outputs.items():
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
        "offered": [asdict(share) for share in compilation.shares()],
        "cache": [cache_as_dict(record) for record in compilation.plan.cache],
    }


def run_lines(compilation: Compilation, run: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """What is to be printed of a run's outputs, and of how it went."""
    notes = []
    for number, step in enumerate(run["steps"]):
        often = f" in {counted(step['runs'], 'execution')}" if step["runs"] > 1 else ""
        often += f", {step['failed']} failed" if step["failed"] else ""
        why = f" (fell back: {step['fallback']})" if step["fallback"] else ""
        notes.append(f"step {number}, {step['device']}: {step['milliseconds']:.2f} ms{often}{why}")
    times = run["milliseconds"]
    if len(times) > 1:
        statistics = (
            f"first {times[0]:.2f} ms, then mean {mean(times[1:]):.2f}, min {min(times[1:]):.2f}, max {max(times[1:]):.2f} ms"
        )
        notes.append(f"{counted(len(times), 'run')}: {statistics}; the steps' times are the last run's")
    elif len(run["steps"]) > 1:
        notes.append(f"total: {times[0]:.2f} ms (a first run; --repeat N shows the following ones)")
    notes += [*map(str, compilation.shares()), *cache_lines(compilation)]
    if run["fallback"]:
        when = "fell back to" if compilation.plan.fallback else "was repeated on"
        notes.append(f"The whole model {when} the CPU: {run['fallback']}")
    return [line for item in run["outputs"] for line in output_lines(item)], notes


def output_lines(item: Mapping[str, Any]) -> list[str]:
    """An output in one line, in two where that would be longer than a terminal's."""
    numbers = ", ".join(f"{key} {item[key]:.6g}" for key in ("min", "max", "mean") if key in item)
    head = f"{item['name']}: {item['type']}{item['shape']}"
    return [f"{head} {numbers}"] if len(head) + len(numbers) < 80 else [head, f"  {numbers}"]
