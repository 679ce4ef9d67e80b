"""``nnbridge run``: a model's outputs, what they answer, and times."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nnbridge.cli.arguments import check_outputs, device_files, input_files, parse_preparation, refuse_options
from nnbridge.cli.options import (
    MODEL,
    PREPARATION,
    compiled,
    compute_options,
    device_options,
    input_options,
    interface_of,
    model_options,
    option,
)
from nnbridge.cli.output import Interruption, echo, json_option, print_blocks, print_json, progress, working
from nnbridge.errors import InputError, Reason

if TYPE_CHECKING:
    from nnbridge.bench.profiling import OperationTime
    from nnbridge.inputs import Item
    from nnbridge.model import Array
    from nnbridge.report.answers import Answer
    from nnbridge.runtime.plan_runner import RunReport

_PROFILE_RUNS = 20


@click.command(short_help="Run a model and write or describe its outputs.")
@MODEL
@input_options
@option("--seed", type=click.IntRange(min=0), metavar="N", help="Draw the inputs without --input with this seed.")
@option("-o", "--output", type=click.Path(path_type=Path), help="Write the outputs to this .npz file.")
@option(
    "--batch", type=click.IntRange(min=1), metavar="N", help="Read up to N samples ahead, and compute them on the same buffers."
)
@option("--repeat", type=click.IntRange(min=1), metavar="N", default=1, help="Runs in a row; states continue.")
@option(
    "--samples", type=click.Path(path_type=Path), metavar="FILE.npz", help="Write inputs and outputs for compare --reference."
)
@option(
    "--save-image", type=click.Path(path_type=Path), metavar="FILE.png", help="Draw boxes, mask or points over the input image."
)
@option("--profile", is_flag=True, help="Time each operation alone: as many runs as --repeat states, 20 by default.")
@compute_options
@option("--trace", type=click.Path(path_type=Path), metavar="FILE.json", help="Write a timeline that Perfetto opens.")
@device_options
@model_options
@json_option
def run(
    model: Path,
    inputs: tuple[str, ...],
    labels: Path | None,
    seed: int | None,
    output: Path | None,
    batch: int | None,
    repeat: int,
    samples: Path | None,
    save_image: Path | None,
    profile: bool,
    trace: Path | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Run a model and write or describe its outputs, those of the last run if it is repeated.

    Of classes the top five are printed, of detections the boxes, of masks the share of each class.

    \b
    Examples:
      nnbridge run model.tflite --seed 0 -o outputs.npz
      nnbridge run model.tflite --input image=cat.npy --device nnapi-sample_quant -o outputs.npz
      nnbridge run model.tflite --input cat.png --mean 127.5 --std 127.5 --labels labels.txt
      nnbridge run detector.tflite --input street.jpg --save-image boxes.png
      nnbridge run speech.tflite --input yes.wav --rate 16000 --json
      nnbridge run model.tflite --input photos/ --labels labels.txt
      nnbridge run model.tflite --input photos/ --batch 16 --samples answers.npz
      nnbridge run model.nnapi --seed 0 --samples cpu.npz
      nnbridge run model.tflite --seed 0 --kernels reference
      nnbridge run model.tflite --seed 0 --repeat 50 --profile
      nnbridge run model.tflite --seed 0 --repeat 3 --device nnapi-sample_minimal --trace trace.json
    """
    from dataclasses import asdict

    from nnbridge.bench.profiling import profile as profiled
    from nnbridge.compare import as_samples, named_inputs, named_outputs, save_arrays, stating_open_dimensions, unpacked
    from nnbridge.inputs import Dataset, read_ahead, read_labels
    from nnbridge.report.answers import Accuracy, answer_as_dict, answers, label_names, real_numbers
    from nnbridge.report.bench import operation_events, profile_tables
    from nnbridge.report.outputs import run_as_dict, run_lines
    from nnbridge.report.terminal import counted
    from nnbridge.report.trace import run_events, write_trace
    from nnbridge.runtime.batches import Batches
    from nnbridge.runtime.execution import Execution
    from nnbridge.runtime.states import States

    how, options = parse_preparation(**options)
    if not inputs:
        refuse_options(*PREPARATION, why="no --input has a file")
    if samples is not None and repeat > 1:
        raise InputError(Reason("one run, as compare begins each sample anew", f"--repeat {repeat}", operand="--samples"))
    read = {"the model": [model], "a device's": device_files(options["devices"]), "an input": input_files(inputs)}
    read["the labels"] = [labels] if labels is not None else []
    check_outputs({"--output": output, "--samples": samples}, read, ".npz")
    check_outputs({"--save-image": save_image}, read, ".png")
    check_outputs({"--trace": trace}, read, ".json")
    if trace is not None and batch is not None:
        raise click.UsageError("--trace and --batch exclude each other: batches run without a look at their steps.")
    typed_labels = read_labels(labels) if labels is not None else ()
    compilation, _ = compiled(model, **options)
    stated = interface_of(model, options)
    nnapi = compilation.model
    dataset = Dataset.of(nnapi, inputs, seed=seed, how=how, stated=stated.inputs)
    several = len(dataset) > 1
    batches = None if batch is None else Batches(compilation)
    for name, typed in (
        ("--output", output is not None),
        ("--save-image", save_image is not None),
        ("--repeat", repeat > 1),
        ("--profile", profile),
    ):
        if several and typed:
            raise InputError(Reason(f"one sample with {name}", f"{len(dataset)} files (--samples writes all)", operand="--input"))
    accuracy, found_by_item, stacks, traced = Accuracy(), [], [], []

    def runs(item: Item) -> Iterator[tuple[Mapping[str, Array], RunReport]]:
        states = States(nnapi)
        for _ in range(repeat):
            with stating_open_dimensions(nnapi, named_inputs(nnapi) if inputs else ()):
                if batches is not None:
                    yield batches.run(item.inputs), batches.report
                else:
                    execution = Execution(compilation, states)
                    execution.measure_steps()
                    yield execution.run(item.inputs), execution.report
            advance(1)

    interruption = Interruption()
    with progress("Running", len(dataset) * repeat, as_json) as advance:
        for current in interruption.until(dataset if batch is None else read_ahead(dataset, batch)):
            done = list(interruption.until(runs(current)))
            if not done:
                break
            item, outputs, reports = current, done[-1][0], [report for _, report in done]
            traced += [(item.name or f"run {number}", report) for number, report in enumerate(reports)] if trace else []
            names = label_names(nnapi, stated.outputs, typed_labels, outputs)
            found = answers(nnapi, outputs, names)
            accuracy.add(found, item.label, names)
            found_by_item.append((item, found, real_numbers(nnapi, outputs, values=True) if as_json and several else []))
            if samples is not None:
                stacks.append(as_samples(item.inputs, outputs))
    if interruption.happened and not found_by_item:
        raise KeyboardInterrupt
    times: list[OperationTime] = []
    if profile and not interruption.happened:
        with working("Timing each operation"):
            times = profiled(compilation, item.inputs, repeat if repeat > 1 else _PROFILE_RUNS)
    if trace is not None:
        single = operation_events(f"{model.name}: operations alone", times, 2) if profile else []
        write_trace(trace, run_events(model.name, traced) + single)
    if output is not None:
        save_arrays(output, unpacked(named_outputs(nnapi), outputs))
    if samples is not None:
        save_arrays(samples, _stacked(stacks))
    if save_image is not None:
        _draw(save_image, item, found)
    result = run_as_dict(compilation, outputs, reports)
    for described, real in zip(result["outputs"], real_numbers(nnapi, outputs, values=as_json), strict=True):
        described.update(real)
    if as_json:
        data = {"model": str(model), **result, "answers": [answer_as_dict(answer) for answer in found]}
        if several:
            data["samples"] = [
                {"name": i.name, "label": i.label, "outputs": real, "answers": [answer_as_dict(a) for a in f]}
                for i, f, real in found_by_item
            ]
        if profile:
            data["profile"] = [asdict(entry) for entry in times]
        data |= {"accuracy": accuracy.as_dict(), "interrupted": interruption.happened, "notes": list(dataset.notes)}
        print_json(data)
        interruption.leave()
        return
    lines, notes = run_lines(compilation, result)
    if several:
        lines = [line for item, found, _ in found_by_item for line in _item_lines(item, found)] + accuracy.lines("accuracy")
    else:
        lines += [line for answer in found for line in answer.lines()]
    for line in lines:
        echo(line)
    if profile:
        print_blocks(profile_tables(times))
    for line in (*dataset.notes, *notes):
        echo(line, err=True)
    if interruption.happened:
        echo(
            f"Interrupted: {counted(len(found_by_item), 'sample')} of {len(dataset)}, {counted(len(reports), 'run')} of the last."
        )
    interruption.leave()


def _stacked(stacks: list[dict[str, Any]]) -> dict[str, Any]:
    """The arrays of all samples, one behind another."""
    import numpy as np

    for name, array in stacks[0].items():
        shapes = {stack[name].shape for stack in stacks}
        if len(shapes) > 1:
            found = " and ".join(str(list(shape[1:])) for shape in sorted(shapes))
            raise InputError(
                Reason(f"arrays of one shape for {name}, such as {list(array.shape[1:])}", found, operand="--samples")
            )
    return {name: np.concatenate([stack[name] for stack in stacks]) for name in stacks[0]}


def _draw(path: Path, item: Item, found: list[Answer]) -> None:
    from nnbridge.report.pictures import draw, drawable

    if item.picture is None:
        raise InputError(Reason("an image as --input", "none", operand="--save-image"))
    if not drawable(found):
        rule = "outputs that have a place in the image (boxes, a mask, points of a body)"
        raise InputError(Reason(rule, ", ".join(answer.form for answer in found) or "none", operand="--save-image"))
    draw(path, item.picture, found)


def _item_lines(item: Item, found: list[Answer]) -> list[str]:
    """One sample of several in a line if it was classified, in more otherwise."""
    from nnbridge.report.answers import Classification

    lines = []
    for answer in found:
        if isinstance(answer, Classification):
            lines.append(f"{item.name}: {answer.top[0].title} {answer.top[0].score:.4f}")
        else:
            lines += [f"{item.name}: {line}" if k == 0 else line for k, line in enumerate(answer.lines())]
    return lines or [f"{item.name}: no answer of a known form (--json has the values)"]
