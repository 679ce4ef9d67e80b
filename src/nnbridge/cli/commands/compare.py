"""``nnbridge compare``: a model's outputs against a reference's."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nnbridge.cli.arguments import check_outputs, parse_preparation, parse_seeds, refuse_options
from nnbridge.cli.options import (
    MODEL,
    PREPARATION,
    compiled,
    compute_options,
    device_options,
    input_options,
    model_options,
    option,
)
from nnbridge.cli.output import echo, json_option, print_blocks, print_json, progress
from nnbridge.errors import InputError, Reason

if TYPE_CHECKING:
    from nnbridge.compare import Sample
    from nnbridge.compare.layers import DeviceReference
    from nnbridge.compare.references import LiteRT, OnnxRuntime


@click.command(short_help="Compare a model's outputs with a reference.")
@MODEL
@option("--reference", metavar="litert|onnxruntime|FILE.npz", help="What to compare with.")
@option("--layers", is_flag=True, help="Compare every tensor on the way: where a difference starts (docs/layers.md).")
@option("--csv", "csv_file", type=click.Path(path_type=Path), metavar="FILE", help="With --layers: write a row per tensor.")
@option("--against", metavar="DEVICE", help="With --layers: a device as reference; reference is NNAPI's reference kernels.")
@input_options
@option("--seeds", default="0,1,2", metavar="N[,N…]", help="Seeds that inputs are drawn with.")
@option("--steps", type=click.IntRange(min=1), metavar="N", default=1, help="Calls per seed; states continue.")
@option("--atol", type=float, metavar="X", help="Absolute tolerance of floats. Default: --rtol times the typical magnitude.")
@option("--rtol", type=float, metavar="X", help="Relative tolerance of floats. Default: 1e-4, for float16 2**-10.")
@option("--quant-steps", type=click.IntRange(min=0), metavar="N", default=1, help="Tolerance of 8- and 16-bit integers.")
@option("--plan", "show_plan", is_flag=True, help="Print the plan before the comparison.")
@compute_options
@device_options
@model_options
@json_option
def compare(
    model: Path,
    reference: str | None,
    layers: bool,
    csv_file: Path | None,
    against: str | None,
    inputs: tuple[str, ...],
    labels: Path | None,
    seeds: str,
    steps: int,
    atol: float | None,
    rtol: float | None,
    quant_steps: int,
    show_plan: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Run a model and compare every output with a reference; exit status 1 if one is outside tolerance.

    \b
    Examples:
      nnbridge compare model.tflite --reference litert --seeds 0,1,2
      nnbridge compare model.onnx --device nnapi-sample_float_fast --reference onnxruntime
      nnbridge compare model.tflite --reference outputs.npz --plan
      nnbridge compare model.tflite --reference litert --input cat.png
      nnbridge compare model.tflite --reference litert --input photos/ --labels labels.txt
      nnbridge compare model.tflite --device my_module:MINE --layers --against reference
    """
    from nnbridge import compare as comparing
    from nnbridge.cli.file_samples import FileSamples
    from nnbridge.compare.layers import DeviceReference, compare_layers, stored_tensors, tensors_of
    from nnbridge.compare.references import reference as reference_runtime
    from nnbridge.report.layers import layer_tables, write_csv
    from nnbridge.report.outputs import comparison_tables
    from nnbridge.report.plan import cache_lines, plan_as_dict, plan_tables

    how, options = parse_preparation(**options)
    numbers = parse_seeds(seeds)
    if not layers:
        refuse_options("--csv", "--against", why="it belongs to --layers")
    if (reference is None) == (against is None):
        raise click.UsageError(
            "Missing option '--reference'." if reference is None else "--reference and --against exclude each other."
        )
    reference = f"device {against}" if reference is None else reference
    check_outputs({"--csv": csv_file}, {"the model": [model], "the reference": [Path(reference)]})
    for name, value in (("--atol", atol), ("--rtol", rtol)):
        if value is not None and not 0 <= value < math.inf:
            raise InputError(Reason("a finite number from 0", str(value), operand=name))
    stored = reference.endswith(".npz")
    if inputs:
        refuse_options("--steps", why="--input has its own samples")
    else:
        refuse_options("--labels", *PREPARATION, why="no --input has a file")
    if stored and not inputs:
        refuse_options("--seeds", "--steps", why="--reference FILE.npz has its own samples")
    compilation, mapped = compiled(model, **options)
    runtime: LiteRT | OnnxRuntime | DeviceReference | None = None
    if against:
        runtime = DeviceReference(compilation.model, against)
    elif not stored:
        runtime = reference_runtime(reference, model, options["signature"], preserve=layers)
    files = FileSamples(compilation.model, model, inputs, labels, how, options, numbers[0]) if inputs else None
    if files is not None:
        samples: Iterable[Sample] = files.samples(runtime or Path(reference))
        total = len(files)
    elif runtime is None:
        samples = (all_stored := comparing.stored_samples(compilation.model, Path(reference)))
        total = len(all_stored)
    else:
        samples = comparing.seeded_samples(compilation.model, runtime, numbers, steps)
        total = len(numbers) * steps
    if show_plan and not as_json:
        print_blocks(plan_tables(compilation))
    with progress("Comparing samples", total, as_json) as advance:

        def counted_samples() -> Iterator[Sample]:
            for sample in samples:
                yield sample
                advance(1)

        tolerance = comparing.Tolerance(atol, rtol, quant_steps)
        if layers:
            tensors = stored_tensors(Path(reference)) if runtime is None else tensors_of(runtime)
            by_layer = compare_layers(compilation, reference, counted_samples(), tensors, tolerance, mapped)
        else:
            observe = None if files is None else files.observe
            comparison = comparing.compare(compilation, reference, counted_samples(), tolerance, observe)
    if layers:
        if csv_file is not None:
            write_csv(by_layer, csv_file)
        if as_json:
            print_json({**by_layer.as_dict(), "model": str(model)})
        else:
            print_blocks(layer_tables(by_layer))
        sys.exit(0 if by_layer.passed else 1)
    if as_json:
        data = {**comparison.as_dict(), "model": str(model), **({} if files is None else files.as_dict())}
        if show_plan:
            data["plan"] = {**plan_as_dict(compilation), "model": str(model)}
        print_json(data)
    else:
        cached = [] if show_plan else cache_lines(compilation)
        fallbacks = (f"Fell back: {line}" for line in comparison.fallbacks)
        print_blocks([*comparison_tables(comparison), *map(str, comparison.shares), *fallbacks, *cached])
        for line in () if files is None else files.lines():
            echo(line)
        for line in () if files is None else files.dataset.notes:
            echo(line, err=True)
    sys.exit(0 if comparison.passed else 1)
