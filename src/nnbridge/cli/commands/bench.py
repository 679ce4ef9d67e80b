"""``nnbridge bench``: the time of a model on this machine, compared with its own runtime."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nnbridge.cli.arguments import check_outputs, parse_preparation, refuse_options
from nnbridge.cli.options import (
    MODEL,
    PREPARATION,
    WRITTEN,
    file_of,
    file_options,
    interface_of,
    model_options,
    of_devices,
    of_output,
    option,
    read_model,
)
from nnbridge.cli.output import json_option, print_blocks, print_json, working
from nnbridge.cli.sections import command

if TYPE_CHECKING:
    from nnbridge.model import Array
    from nnbridge.runtime.compilation import Compilation

TIERS = {"auto": ("compiled", "reference"), "compiled": ("compiled",), "reference": ("reference",)}
"""What ``--kernels`` measures."""


@command(short_help="Benchmark a model against LiteRT or ONNX Runtime.")
@MODEL
@of_devices("--threads", type=click.IntRange(1, 256), metavar="N", default=1, help="Measure on N threads as well as on one.")
@of_devices("--kernels", values=tuple(TIERS), default="auto", help="Tiers to measure; auto: all.")
@option("--rounds", type=click.IntRange(3, 100_000), metavar="N", default=100, help="Maximum number of runs of each runtime.")
@option("--seconds", type=click.FloatRange(0.1, 3600), metavar="S", default=10.0, help="Time after which no new round begins.")
@option("--seed", type=click.IntRange(min=0), metavar="N", default=0, help="Seed that inputs are drawn with.")
@option("--first/--no-first", default=True, help="Start fresh processes and measure their first result and memory.")
@of_output("--trace", type=WRITTEN, metavar="FILE", help="Write a trace that Chrome and Perfetto open.")
@file_options
@model_options
@json_option
def bench(
    model: Path,
    threads: int,
    kernels: str,
    rounds: int,
    seconds: float,
    seed: int,
    first: bool,
    inputs: tuple[str, ...],
    trace: Path | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Benchmark a model on nnbridge's tiers against LiteRT or ONNX Runtime, interleaved in one process.

    Shows latency (least, median, 95th percentile), the time of each operation, and first result and memory of fresh processes.

    \b
    Examples:
      nnbridge bench model.tflite
      nnbridge bench model.onnx --threads 2 --json
      nnbridge bench model.tflite --trace trace.json --no-first
      nnbridge bench speech.onnx --input sr=rate.npy
    """
    from dataclasses import replace

    from nnbridge.bench.measure import first_answers, measure
    from nnbridge.bench.profiling import profile
    from nnbridge.errors import InputError, Reason
    from nnbridge.inputs import Dataset
    from nnbridge.plan import plan
    from nnbridge.report.bench import bench_as_dict, bench_events, bench_tables
    from nnbridge.report.trace import write_trace
    from nnbridge.target import Target

    check_outputs({"--trace": trace}, suffix=".json")
    how, options = parse_preparation(**options)
    if not inputs:
        refuse_options(*PREPARATION, why="no --input has a file")
    file = file_of(model, options)
    nnapi = read_model(file)
    items = Dataset.of(nnapi, inputs, seed=seed, how=how, stated=interface_of(file).inputs)
    if len(items) != 1:
        raise InputError(Reason("files of one sample", f"{len(items)} samples", operand="--input"))
    values = dict(next(iter(items)).inputs)
    with working("Measuring"):
        single = plan(file, Target(threads=1), asks=True)
        single.require_loaded()
        if not inputs:
            values = _that_run(single.compilation, values)
        found = measure(model, nnapi, values, sorted({1, threads}), rounds, seconds, TIERS[kernels])
        found = replace(found, operations=profile(single.compilation, values), first=first_answers(model) if first else {})
    if trace is not None:
        write_trace(trace, bench_events(model.name, found))
    if as_json:
        print_json("bench", {"model": str(model), **bench_as_dict(found)})
    else:
        print_blocks(bench_tables(f"{model.name}, runtimes in turn", found))


def _that_run(compilation: Compilation, values: Mapping[str, Array]) -> dict[str, Array]:
    """Drawn inputs, with smaller whole numbers where operators refuse them as indexes."""
    from nnbridge.compare.samples import smaller
    from nnbridge.errors import OpFailedError
    from nnbridge.runtime.execution import Execution

    def run(inputs: Mapping[str, Array]) -> None:
        Execution(compilation).run(inputs)

    try:
        run(values)
    except OpFailedError as error:
        _, found, _ = smaller(values, run, error)
        return found
    return dict(values)
