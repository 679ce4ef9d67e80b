"""The commands that take a model file: ``convert``, ``inspect``, ``plan``, ``run`` and ``compare``."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from nnbridge.cli.arguments import parse_seeds, read_inputs, refuse_given
from nnbridge.cli.common import console, drivers_apart, json_option, print_json, print_tables, working
from nnbridge.cli.options import (
    MODEL,
    compiled,
    compiled_with_report,
    conversion,
    conversion_options,
    device_options,
    load_model,
    model_options,
    named_devices,
)
from nnbridge.errors import InputError, Reason
from nnbridge.report.wording import counted


@click.command()
@MODEL
@click.option("-o", "--output", type=click.Path(path_type=Path), required=True, help="The .nnapi file to write.")
@model_options
@json_option
def convert(model: Path, output: Path, as_json: bool, **options: Any) -> None:
    """Convert a TFLite or ONNX file into a saved NNAPI model.

    \b
    Example:
      nnbridge convert model.tflite -o model.nnapi
    """
    from nnbridge import storage
    from nnbridge.runtime.placement import required_level

    _check_is_another(output, model)
    loaded = load_model(model, **options)
    with working("Writing"):
        size = storage.save(loaded, output)
    level = int(required_level(loaded))
    summary: dict[str, Any] = {
        "model": str(model),
        "output": str(output),
        "bytes": size,
        "operations": len(loaded.main.operations),
        "operands": len(loaded.main.operands),
        "feature_level": level,
    }
    if as_json:
        print_json(summary)
    else:
        click.echo(
            f"{output}: {counted(summary['operations'], 'operation')}, {counted(summary['operands'], 'operand')}, "
            f"{counted(summary['bytes'], 'byte')}, feature level {level}"
        )


@click.command(short_help="Show what a model file holds, and what maps to NNAPI.")
@MODEL
@click.option(
    "--device",
    "devices",
    multiple=True,
    metavar="NAME[,NAME…]",
    help="Drivers whose vendor extensions a saved model uses; repeatable.",
)
@conversion_options
@json_option
def inspect(model: Path, devices: tuple[str, ...], as_json: bool, **options: Any) -> None:
    """Show what a model file holds and what of it maps to NNAPI under each mapping, without running anything.

    \b
    Examples:
      nnbridge inspect model.tflite
      nnbridge inspect model.onnx --json
      nnbridge inspect traced.model1.nnapi --device my_npu:NPU
    """
    from nnbridge.loading import inspect as look_into
    from nnbridge.report.inspection import inspection_tables

    named_devices(devices)
    with working(f"Reading {model.name}"):
        found = look_into(model, conversion(**options))
    if as_json:
        print_json(found.as_dict())
    else:
        print_tables(list(inspection_tables(found)))


@click.command(short_help="Show which device takes each operation, and why.")
@MODEL
@click.option("--full", is_flag=True, help="One row for each operation instead of groups.")
@device_options
@model_options
@json_option
def plan(model: Path, full: bool, as_json: bool, **options: Any) -> None:
    """Show which device takes each operation, and why not the others.

    \b
    Examples:
      nnbridge plan model.tflite --device nnapi-sample_float_fast
      nnbridge plan model.tflite --device nnapi-sample_float_fast,nnapi-sample_minimal --preference low-power
    """
    from nnbridge import report
    from nnbridge.converters.inspection import mapped_as_dict
    from nnbridge.report.inspection import host_reasons

    mapping = options["mapping"]
    compilation, mapped = compiled_with_report(model, **options)
    if as_json:
        conversion = {mapping: mapped_as_dict(mapped)}
        print_json({**report.plan_as_dict(compilation), "model": str(model), "conversion": conversion})
    else:
        print_tables([*report.plan_tables(compilation, full), *host_reasons(mapping, mapped)])


@click.command(short_help="Run a model and write or describe its outputs.")
@MODEL
@click.option("--input", "inputs", multiple=True, metavar="NAME=FILE.npy", help="An input; repeatable.")
@click.option("--seed", type=click.IntRange(min=0), metavar="N", help="Draw the inputs that are not given with this seed.")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Write the outputs to this .npz file.")
@click.option(
    "--repeat", type=click.IntRange(min=1), metavar="N", default=1, show_default=True, help="Runs in a row; states go on."
)
@click.option(
    "--samples", type=click.Path(path_type=Path), metavar="FILE.npz", help="Write inputs and outputs as compare's --reference."
)
@device_options
@model_options
@json_option
def run(
    model: Path,
    inputs: tuple[str, ...],
    seed: int | None,
    output: Path | None,
    repeat: int,
    samples: Path | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Run a model and write or describe its outputs, those of the last run if it is repeated.

    \b
    Examples:
      nnbridge run model.tflite --seed 0 -o outputs.npz
      nnbridge run model.tflite --input image=cat.npy --device nnapi-sample_quant -o outputs.npz
      nnbridge run model.nnapi --seed 0 --samples cpu.npz
    """
    from nnbridge.compare import as_samples
    from nnbridge.report import cache_as_dict, cache_lines
    from nnbridge.runtime.execution import Execution
    from nnbridge.runtime.states import States

    if samples is not None and repeat > 1:
        raise InputError(Reason("one run, as compare begins each sample anew", f"--repeat {repeat}", operand="--samples"))
    compilation = compiled(model, **options)
    given = read_inputs(compilation.model, inputs, seed)
    states = States(compilation.model)
    with working("Running"):
        for _ in range(repeat):
            execution = Execution(compilation, states)
            execution.measure_steps()
            outputs = execution.run(given)
    if output is not None:
        _write_arrays(output, outputs)
    if samples is not None:
        _write_arrays(samples, as_samples(given, outputs))
    described: list[dict[str, Any]] = [
        {"name": name, "type": str(array.dtype), "shape": list(array.shape), **_range(array)} for name, array in outputs.items()
    ]
    steps: list[dict[str, Any]] = [
        {
            "device": s.device,
            "milliseconds": s.nanoseconds / 1e6,
            "on_device_milliseconds": s.on_device and s.on_device / 1e6,
            "in_driver_milliseconds": s.in_driver and s.in_driver / 1e6,
            "runs": s.runs,
            "failed": s.failed,
            "fallback": s.fallback and str(s.fallback),
        }
        for s in execution.report.steps
    ]
    fallback = compilation.plan.fallback or execution.report.fallback
    if as_json:
        cache = [cache_as_dict(record) for record in compilation.plan.cache]
        offered = [asdict(share) for share in compilation.shares()]
        whole = {"fallback": fallback and str(fallback), "offered": offered, "cache": cache}
        print_json({"model": str(model), "outputs": described, "steps": steps, **whole})
        return
    for item in described:
        click.echo(_output_line(item))
    for step in steps:
        why = f" (fell back: {step['fallback']})" if step["fallback"] else ""
        often = f" in {step['runs']} runs" if step["runs"] > 1 else ""
        often += f", {step['failed']} failed" if step["failed"] else ""
        click.echo(f"{step['device']}: {step['milliseconds']:.2f} ms{often}{why}", err=True)
    for line in (*compilation.shares(), *cache_lines(compilation)):
        click.echo(str(line), err=True)
    if fallback is not None:
        when = "fell back to" if compilation.plan.fallback else "was repeated on"
        click.echo(f"The whole model {when} the CPU: {fallback}", err=True)


@click.command(short_help="Compare a model's outputs with a reference.")
@MODEL
@click.option("--reference", required=True, metavar="litert|onnxruntime|FILE.npz", help="What to compare with.")
@click.option("--seeds", default="0,1,2", metavar="N[,N…]", show_default=True, help="Seeds that inputs are drawn with.")
@click.option(
    "--steps", type=click.IntRange(min=1), metavar="N", default=1, show_default=True, help="Calls per seed; states go on."
)
@click.option("--plan", "show_plan", is_flag=True, help="Print the plan before the comparison.")
@device_options
@model_options
@json_option
def compare(model: Path, reference: str, seeds: str, steps: int, show_plan: bool, as_json: bool, **options: Any) -> None:
    """Run a model and compare every output with a reference; exit status 1 if one is outside tolerance.

    \b
    Examples:
      nnbridge compare model.tflite --reference litert --seeds 0,1,2
      nnbridge compare model.onnx --device nnapi-sample_float_fast --reference onnxruntime
      nnbridge compare model.tflite --reference outputs.npz --plan
    """
    from nnbridge import compare as comparing
    from nnbridge import report
    from nnbridge.compare.references import reference as find_reference

    numbers = parse_seeds(seeds)
    stored = reference.endswith(".npz")
    if stored:
        refuse_given("--seeds", "--steps", why="--reference FILE.npz has its own samples")
    compilation = compiled(model, **options)
    if stored:
        samples: Any = comparing.stored_samples(compilation.model, Path(reference))
    else:
        found = find_reference(reference, model, options["signature"])
        samples = comparing.seeded_samples(compilation.model, found, numbers, steps)
    if show_plan and not as_json:
        print_tables(report.plan_tables(compilation))
    with _progress(as_json) as advance:
        comparison = comparing.compare(compilation, reference, advance(samples))
    if as_json:
        data = {**comparison.as_dict(), "model": str(model)}
        if show_plan:
            data["plan"] = {**report.plan_as_dict(compilation), "model": str(model)}
        print_json(data)
    else:
        cached = [] if show_plan else report.cache_lines(compilation)
        fallbacks = (f"Fell back: {line}" for line in comparison.fallbacks)
        print_tables([*report.comparison_tables(comparison), *map(str, comparison.shares), *fallbacks, *cached])
    sys.exit(0 if comparison.passed else 1)


def _write_arrays(path: Path, arrays: Mapping[str, Any]) -> None:
    import numpy as np

    from nnbridge.storage.atomic import atomic_write

    with atomic_write(path) as file:
        np.savez(file, **arrays)


def _output_line(item: Mapping[str, Any]) -> str:
    """An output in one line, in two where that would be longer than a terminal's."""
    numbers = ", ".join(f"{key} {item[key]:.6g}" for key in ("min", "max", "mean") if key in item)
    head = f"{item['name']}: {item['type']}{item['shape']}"
    return f"{head} {numbers}" if len(head) + len(numbers) < 80 else f"{head}\n  {numbers}"


def _check_is_another(output: Path, model: Path) -> None:
    """InputError for an output that would take the place of its own source."""
    if output.exists() and model.exists() and output.samefile(model):
        raise InputError(Reason("another file than the model", str(output), operand="--output"))


def _range(array: Any) -> dict[str, float]:
    if array.size == 0 or array.dtype.kind not in "fiu":
        return {}
    return {"min": float(array.min()), "max": float(array.max()), "mean": float(array.mean())}


@contextmanager
def _progress(quiet: bool) -> Iterator[Callable[[Any], Any]]:
    """A spinner that counts samples while they are compared."""
    from rich.progress import Progress, SpinnerColumn, TextColumn

    columns = (SpinnerColumn(), TextColumn("Samples compared: {task.completed}"))
    shown = console(err=True)
    bar = Progress(*columns, console=shown, transient=True, disable=quiet or not shown.is_terminal)
    with drivers_apart(), bar as progress:
        task = progress.add_task("samples", total=None)

        def advance(samples: Any) -> Iterator[Any]:
            for sample in samples:
                yield sample
                progress.advance(task)

        yield advance
