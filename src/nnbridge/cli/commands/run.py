"""``nnbridge run``: a model's outputs, what they answer, and times."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import click

from nnbridge.cli.arguments import check_outputs, parse_preparation, refuse_options
from nnbridge.cli.options import (
    MODEL,
    PREPARATION,
    WRITTEN,
    begin_runtime,
    compute_options,
    input_options,
    interface_of,
    model_options,
    of_inputs,
    of_output,
    option,
    planned,
    running_options,
)
from nnbridge.cli.output import Interruption, echo, json_option, print_blocks, print_json, progress, working
from nnbridge.cli.sections import command
from nnbridge.errors import InputError, Reason
from nnbridge.records import dataclass

if TYPE_CHECKING:
    from nnbridge.bench.profiling import OperationTime
    from nnbridge.converters.inspection import SignatureInfo
    from nnbridge.inputs import Dataset, Item
    from nnbridge.model import Array
    from nnbridge.report.answers import Answer
    from nnbridge.runtime.batches import Batches
    from nnbridge.runtime.compilation import Compilation
    from nnbridge.runtime.plan_runner import RunReport

_PROFILE_RUNS = 20
_Run: TypeAlias = "tuple[Mapping[str, Array], RunReport]"
"""Outputs and report."""


@command(short_help="Run a model and write or describe its outputs.")
@MODEL
@input_options
@of_inputs("--seed", type=click.IntRange(min=0), metavar="N", help="Seed of random inputs, for those without --input.")
@option("-o", "--output", type=WRITTEN, help="Write the outputs to this .npz file.")
@of_inputs(
    "--batch", type=click.IntRange(min=1), metavar="N", help="Read up to N samples ahead, and compute them on the same buffers."
)
@option("--repeat", type=click.IntRange(min=1), metavar="N", default=1, help="Runs in a row; states continue.")
@of_output("--samples", type=WRITTEN, metavar="FILE.npz", help="Write inputs and outputs for compare --reference.")
@of_output("--save-image", type=WRITTEN, metavar="FILE.png", help="Draw boxes, mask or points over the input image.")
@option("--profile", is_flag=True, help="Time each operation by itself: as many runs as --repeat states, 20 by default.")
@compute_options
@of_output("--trace", type=WRITTEN, metavar="FILE.json", help="Write a timeline that Perfetto opens.")
@running_options
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

    Prints the top five classes, the boxes of detections, or the share of each class in a mask.

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
    begin_runtime(model)
    from nnbridge.ahead import in_order
    from nnbridge.bench.profiling import profile as profiled
    from nnbridge.compare import named_outputs, save_arrays, unpacked
    from nnbridge.inputs import Dataset, read_ahead, read_labels
    from nnbridge.platforms import available_cores
    from nnbridge.runtime.batches import Batches
    from nnbridge.storage.atomic import written_together

    how, options = parse_preparation(**options)
    if not inputs:
        refuse_options(*PREPARATION, why="no --input has a file")
    if samples is not None and repeat > 1:
        raise InputError(Reason("one run per sample, as states restart with each", f"--repeat {repeat}", operand="--samples"))
    check_outputs({"--output": output, "--samples": samples}, suffix=".npz")
    check_outputs({"--save-image": save_image}, suffix=".png")
    check_outputs({"--trace": trace}, suffix=".json")
    if trace is not None and batch is not None:
        raise click.UsageError("--trace and --batch exclude each other: steps of batches are not observed.")
    typed_labels = read_labels(labels) if labels is not None else ()
    found = planned(model, options)
    compilation, stated = found.compilation, interface_of(found.file)
    dataset = Dataset.of(compilation.model, inputs, seed=seed, how=how, stated=stated.inputs)
    batches = None if batch is None else Batches(compilation)
    several = len(dataset) > 1
    if several:
        _require_one_sample(
            len(dataset), {"--output": output, "--save-image": save_image, "--repeat": repeat > 1, "--profile": profile}
        )
    runs = _Runs(compilation, stated, typed_labels, repeat, bool(inputs), several and as_json, samples is not None, batches)
    interruption = Interruption()
    answered: Iterable[tuple[Item, Iterable[_Run]]]
    with progress("Running", len(dataset) * repeat, as_json) as advance:
        if several and repeat == 1 and batch is None and trace is None:
            # Samples read, prepared and computed at the same time, on all cores.
            threads = max(1, available_cores() // compilation.threads)
            answered = in_order(lambda k: runs.whole(dataset[k], advance), range(len(dataset)), threads)
        else:
            answered = ((item, runs.of(item, advance)) for item in (dataset if batch is None else read_ahead(dataset, batch)))
        runs.compute(answered, interruption, traced=trace is not None)
    times: list[OperationTime] | None = None
    if profile:
        times = []
        if not interruption.happened:
            with working("Timing each operation"):
                times = profiled(compilation, runs.item.inputs, repeat if repeat > 1 else _PROFILE_RUNS)
    with written_together():
        if trace is not None:
            _write_trace(trace, model, runs, times)
        if output is not None:
            save_arrays(output, unpacked(named_outputs(compilation.model), runs.outputs))
        if samples is not None:
            save_arrays(samples, _stacked(runs.stacks))
        if save_image is not None:
            _draw(save_image, runs.item, runs.answered[-1].answers)
    _show(model, dataset, runs, times, interruption.happened, as_json)
    interruption.leave()


def _require_one_sample(count: int, options: Mapping[str, object]) -> None:
    """InputError for options that were typed and hold for one sample only."""
    for name, typed in options.items():
        if typed:
            raise InputError(Reason(f"one sample with {name}", f"{count} files (--samples writes all)", operand="--input"))


@dataclass
class _Answered:
    """A sample that has been run."""

    item: Item
    answers: list[Answer]
    outputs: list[dict[str, Any]]
    """The outputs as real numbers where they are printed."""


@dataclass
class _Runs:
    """Runs of samples, and what is retained of them."""

    compilation: Compilation
    stated: SignatureInfo
    labels: Sequence[str]
    repeat: int
    from_files: bool
    with_values: bool
    """Every sample's outputs are printed."""
    with_samples: bool
    """Every sample's inputs and outputs are written."""
    batches: Batches | None
    answered: list[_Answered] = field(default_factory=list)
    stacks: list[dict[str, Any]] = field(default_factory=list)
    traced: list[tuple[str, RunReport]] = field(default_factory=list)
    outputs: Mapping[str, Array] = field(default_factory=dict)
    """Those of the last run."""
    reports: list[RunReport] = field(default_factory=list)
    """Those of the last sample."""

    def __post_init__(self) -> None:
        from nnbridge.report.answers import Accuracy

        self.accuracy = Accuracy()

    @property
    def item(self) -> Item:
        """The last sample."""
        return self.answered[-1].item

    def compute(self, answered: Iterable[tuple[Item, Iterable[_Run]]], interruption: Interruption, *, traced: bool) -> None:
        """Run samples until Ctrl-C; KeyboardInterrupt if that comes before the first one is done."""
        for item, runs in interruption.until(answered):
            done = list(interruption.until(runs))
            if not done:
                break
            self.add(item, done, traced=traced)
        if interruption.happened and not self.answered:
            raise KeyboardInterrupt

    def whole(self, item: Item, advance: Callable[[int], None]) -> tuple[Item, list[_Run]]:
        """A sample with its runs."""
        return item, list(self.of(item, advance))

    def of(self, item: Item, advance: Callable[[int], None]) -> Iterator[_Run]:
        """The outputs and the report of each run of a sample; ``advance`` is called after each."""
        from nnbridge.compare import named_inputs, stating_open_dimensions
        from nnbridge.runtime.execution import Execution
        from nnbridge.runtime.states import States

        nnapi = self.compilation.model
        states = States(nnapi)
        for _ in range(self.repeat):
            with stating_open_dimensions(nnapi, named_inputs(nnapi) if self.from_files else ()):
                if self.batches is not None:
                    yield self.batches.run(item.inputs), self.batches.report
                else:
                    execution = Execution(self.compilation, states)
                    execution.measure_steps()
                    yield execution.run(item.inputs), execution.report
            advance(1)

    def add(self, item: Item, done: Sequence[_Run], *, traced: bool) -> None:
        """Retain what is printed and written of a sample's runs."""
        from nnbridge.compare import as_samples
        from nnbridge.report.answers import answers, label_names, real_numbers

        nnapi = self.compilation.model
        self.outputs, self.reports = done[-1][0], [report for _, report in done]
        if traced:
            self.traced += [(item.name or f"run {number}", report) for number, report in enumerate(self.reports)]
        names = label_names(nnapi, self.stated.outputs, self.labels, self.outputs)
        found = answers(nnapi, self.outputs, names)
        self.accuracy.add(found, item.label, names)
        values = real_numbers(nnapi, self.outputs, values=True) if self.with_values else []
        if self.answered:
            # Inputs and image are those of the last sample: a data set's need not fit into memory.
            last = self.answered[-1]
            self.answered[-1] = replace(last, item=replace(last.item, inputs={}, picture=None))
        self.answered.append(_Answered(item, found, values))
        if self.with_samples:
            self.stacks.append(as_samples(item.inputs, self.outputs))


def _write_trace(path: Path, model: Path, runs: _Runs, times: Sequence[OperationTime] | None) -> None:
    from nnbridge.report.bench import operation_events
    from nnbridge.report.trace import run_events, write_trace

    single = [] if times is None else operation_events(f"{model.name}: single operations", times, 2)
    write_trace(path, run_events(model.name, runs.traced) + single)


def _show(
    model: Path, dataset: Dataset, runs: _Runs, times: Sequence[OperationTime] | None, interrupted: bool, as_json: bool
) -> None:
    """Print what the runs answered, as JSON or as lines and tables."""
    from nnbridge.report.answers import answer_as_dict, real_numbers
    from nnbridge.report.bench import profile_tables
    from nnbridge.report.outputs import run_as_dict, run_lines
    from nnbridge.report.terminal import counted

    several = len(dataset) > 1
    result = run_as_dict(runs.compilation, runs.outputs, runs.reports)
    for described, real in zip(
        result["outputs"], real_numbers(runs.compilation.model, runs.outputs, values=as_json), strict=True
    ):
        described.update(real)
    if as_json:
        data = {"model": str(model), **result, "answers": [answer_as_dict(answer) for answer in runs.answered[-1].answers]}
        if several:
            data["samples"] = [
                {
                    "name": one.item.name,
                    "label": one.item.label,
                    "outputs": one.outputs,
                    "answers": [answer_as_dict(answer) for answer in one.answers],
                }
                for one in runs.answered
            ]
        if times is not None:
            data["profile"] = [asdict(entry) for entry in times]
        data |= {"accuracy": runs.accuracy.as_dict(), "interrupted": interrupted, "notes": list(dataset.notes)}
        print_json("run", data)
        return
    lines, notes = run_lines(runs.compilation, result)
    if several:
        lines = [line for one in runs.answered for line in _item_lines(one.item, one.answers)] + runs.accuracy.lines("accuracy")
    else:
        lines += [line for answer in runs.answered[-1].answers for line in answer.lines()]
    for line in lines:
        echo(line)
    if times is not None:
        print_blocks(profile_tables(times))
    for line in (*dataset.notes, *notes):
        echo(line, err=True)
    if interrupted:
        done, last = counted(len(runs.answered), "sample"), counted(len(runs.reports), "run")
        echo(f"Interrupted: {done} of {len(dataset)}, {last} of the last.")


def _stacked(stacks: list[dict[str, Any]]) -> dict[str, Any]:
    """The arrays of all samples, concatenated."""
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
        rule = "outputs that can be drawn on the image (boxes, a mask, points of a body)"
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
    return lines or [f"{item.name}: no known form of result (--json has the values)"]
