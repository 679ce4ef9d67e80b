"""``nnbridge run``: a model's outputs and times."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from nnbridge.cli.arguments import check_outputs, device_files, input_files, read_inputs
from nnbridge.cli.options import MODEL, compiled, device_options, model_options, option
from nnbridge.cli.output import echo, json_option, print_json, progress
from nnbridge.errors import InputError, Reason


@click.command(short_help="Run a model and write or describe its outputs.")
@MODEL
@option("--input", "inputs", multiple=True, metavar="NAME=FILE.npy", help="An input; repeatable.")
@option("--seed", type=click.IntRange(min=0), metavar="N", help="Draw the inputs without --input with this seed.")
@option("-o", "--output", type=click.Path(path_type=Path), help="Write the outputs to this .npz file.")
@option("--repeat", type=click.IntRange(min=1), metavar="N", default=1, help="Runs in a row; states continue.")
@option(
    "--samples", type=click.Path(path_type=Path), metavar="FILE.npz", help="Write inputs and outputs for compare --reference."
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
    from nnbridge.compare import as_samples, save_arrays
    from nnbridge.report.outputs import run_as_dict, run_lines
    from nnbridge.runtime.execution import Execution
    from nnbridge.runtime.states import States

    if samples is not None and repeat > 1:
        raise InputError(Reason("one run, as compare begins each sample anew", f"--repeat {repeat}", operand="--samples"))
    read = {"the model": [model], "a device's": device_files(options["devices"]), "an input": input_files(inputs)}
    check_outputs({"--output": output, "--samples": samples}, read, ".npz")
    compilation, _ = compiled(model, **options)
    values = read_inputs(compilation.model, inputs, seed)
    states = States(compilation.model)
    reports = []
    with progress("Running", repeat, as_json) as advance:
        for _ in range(repeat):
            execution = Execution(compilation, states)
            execution.measure_steps()
            outputs = execution.run(values)
            reports.append(execution.report)
            advance(1)
    if output is not None:
        save_arrays(output, outputs)
    if samples is not None:
        save_arrays(samples, as_samples(values, outputs))
    result = run_as_dict(compilation, outputs, reports)
    if as_json:
        print_json({"model": str(model), **result})
        return
    described, notes = run_lines(compilation, result)
    for line in described:
        echo(line)
    for line in notes:
        echo(line, err=True)
