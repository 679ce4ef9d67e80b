"""``nnbridge compare``: a model's outputs against a reference's."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from nnbridge.cli.arguments import (
    check_outputs,
    parse_acceptance,
    parse_preparation,
    parse_seeds,
    refuse_options,
    tolerances_of,
    typed_options,
)
from nnbridge.cli.options import (
    ACCEPTANCE,
    KNOWN_REFERENCES,
    MODEL,
    PREPARATION,
    WRITTEN,
    acceptance_options,
    begin_runtime,
    compute_options,
    device_options,
    file_of,
    finished,
    input_options,
    model_options,
    of_comparison,
    of_output,
    of_reference,
    option,
    seeds_option,
    target_of,
    tell_host,
)
from nnbridge.cli.output import INTERRUPTED, echo, json_option, print_blocks, print_json, progress
from nnbridge.cli.sections import command
from nnbridge.errors import InputError, Reason
from nnbridge.records import dataclass

if TYPE_CHECKING:
    from nnbridge.compare import Array, Comparison, Sample, Tolerances
    from nnbridge.compare.envelope import Envelope
    from nnbridge.compare.layers import LayerComparison
    from nnbridge.compare.references import ApartReference
    from nnbridge.compare.several import SideBySide
    from nnbridge.compare.tensors import DeviceReference
    from nnbridge.devices.evidence import Evidence
    from nnbridge.file import ModelFile
    from nnbridge.inputs import Preparation
    from nnbridge.plan import Planned
    from nnbridge.runtime.compilation import Compilation
    from nnbridge.sampling import FileSamples


@command(short_help="Compare a model's outputs with a reference.")
@MODEL
@of_reference(
    help=f"""What to compare with: {KNOWN_REFERENCES}. Default: litert or onnxruntime, by the file's format.
    Several with commas: a table of who agrees with whom."""
)
@option("--layers", is_flag=True, help="Compare every tensor: find the first wrong layer (docs/layers.md).")
@option("--envelope", is_flag=True, help="Run under every plausible arithmetic: the numerical spread (docs/envelope.md).")
@of_output("--csv", "csv_file", type=WRITTEN, metavar="FILE", help="With --layers: write a row per tensor.")
@of_comparison(
    "--against", metavar="DEVICE", help="With --layers: a device as reference; reference is NNAPI's reference kernels."
)
@input_options
@seeds_option
@of_comparison(
    "--steps", type=click.IntRange(min=1), metavar="N", default=1, help="Invocations per seed, for models with states."
)
@of_comparison(
    "--atol", type=float, metavar="X", help="Absolute tolerance of floats. Default: --rtol times the typical magnitude."
)
@of_comparison("--rtol", type=float, metavar="X", help="Relative tolerance of floats. Default: 1e-4, for float16 2**-10.")
@of_comparison(
    "--quant-steps", type=click.IntRange(min=0), metavar="N", default=1, help="Tolerance of 8- and 16-bit integers, in steps."
)
@of_comparison(
    "--tolerances", type=click.Path(path_type=Path), metavar="FILE.toml", help="Tolerances of single outputs, by name."
)
@acceptance_options
@of_output("--plan", "show_plan", is_flag=True, help="Print the plan before the comparison.")
@compute_options
@device_options
@model_options
@json_option
def compare(
    model: Path,
    reference: str | None,
    layers: bool,
    envelope: bool,
    csv_file: Path | None,
    against: str | None,
    inputs: tuple[str, ...],
    labels: Path | None,
    seeds: str,
    steps: int,
    atol: float | None,
    rtol: float | None,
    quant_steps: int,
    tolerances: Path | None,
    show_plan: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Run a model and compare every output with a reference; exit status 1 if one is outside tolerance.

    Detections that are outside it by position are compared by matching boxes. Where a device's numbers are unknown, the exit
    status is about what NNAPI's CPU computes in its place, and "pass" in --json is null (docs/comparisons.md).

    After Ctrl-C the finished samples are compared; the exit status is 130.

    \b
    Examples:
      nnbridge compare model.tflite --device vsi-imx-1.3.0
      nnbridge compare model.onnx --device nnapi-sample_float_fast --reference onnxruntime --seeds 0-9
      nnbridge compare model.tflite --reference litert,xnnpack,litert-gpu,tflm
      nnbridge compare model.tflite --reference outputs.npz --plan
      nnbridge compare model.tflite --reference litert --tolerances tolerances.toml
      nnbridge compare model.tflite --reference litert --input photos/ --labels labels.txt
      nnbridge compare detector.tflite --reference litert --input photos/ --accept-iou 0.9
      nnbridge compare model.tflite --device my_module:MINE --layers --against reference
      nnbridge compare model.tflite --envelope --reference litert --seeds 0-99
    """
    begin_runtime(model, reference)
    how, options = parse_preparation(**options)
    accept, options = parse_acceptance(**options)
    numbers = parse_seeds(seeds)
    if layers and envelope:
        raise click.UsageError("--layers and --envelope exclude each other.")
    if not layers:
        refuse_options("--csv", "--against", why="it belongs to --layers")
    if layers or envelope:
        refuse_options(*ACCEPTANCE, why="--layers and --envelope compare elements")
    opened = cache(partial(file_of, model, options))
    reference = _reference(opened, reference, against, envelope, inputs)
    name = (f"device {against}" if against else "") if reference is None else reference
    several = _several(name)
    if several:
        refuse_options("--layers", "--envelope", "--labels", *ACCEPTANCE, why="several references compare outputs only")
    check_outputs({"--csv": csv_file})
    tolerance = replace(_tolerances(atol, rtol, quant_steps, tolerances), accept=accept)
    stored = name.endswith(".npz")
    if inputs:
        refuse_options("--steps", why="--input has its own samples")
    else:
        refuse_options("--labels", *PREPARATION, why="no --input has a file")
    if stored and not inputs:
        refuse_options("--seeds", "--steps", why="--reference FILE.npz has its own samples")
    if several:
        _end(_side_by_side(model, opened, several, tolerance, (inputs, how, numbers, steps), show_plan, as_json, options))
    begun = None if reference is None or stored else _begun(name, model, options["signature"], preserve=layers)
    # What else is needed is imported while the reference starts.
    from nnbridge.compare.tensors import DeviceReference
    from nnbridge.sampling import samples_of

    plan = finished(opened(), target_of(options), begun)
    compilation = plan.compilation
    runtime: ApartReference | DeviceReference | None = begun
    if against:
        runtime = DeviceReference(compilation.model, against)
    if begun is not None:
        begun.ready()
    path = Path(name) if stored else None
    source = path if runtime is None else runtime
    drawn = samples_of(plan, source, inputs, labels, how, numbers, steps)
    if show_plan and not as_json:
        from nnbridge.report.plan import plan_tables

        print_blocks(plan_tables(plan))
    sides = plan, runtime, drawn.draw(), drawn.total
    subject = _Subject(name, *sides, tolerance, drawn.files, as_json, show_plan, csv_file, envelope)
    found = (_layers if layers else _envelope if envelope else _outputs)(subject)
    tell_host(compilation, options["host"])
    _end(found)


def _reference(
    opened: Callable[[], ModelFile], reference: str | None, against: str | None, envelope: bool, inputs: tuple[str, ...]
) -> str | None:
    """The reference that is named, else a file of inputs that has outputs too, else the runtime of the file's format."""
    if reference is not None and against is not None:
        raise click.UsageError("--reference and --against exclude each other.")
    if reference is not None or against is not None or envelope:
        return reference
    from nnbridge.compare.references import OF_FORMAT
    from nnbridge.sampling import with_outputs

    found = with_outputs(inputs) or OF_FORMAT.get(opened().format)
    if found is None:
        raise click.UsageError(f"{opened().path}: no runtime reads it to compare with: --reference FILE.npz has stored outputs.")
    return found


def _several(name: str) -> list[str]:
    """The references of a list with commas; none where there is one."""
    names = list(dict.fromkeys(each.strip() for each in name.split(",") if each.strip()))
    if len(names) < 2 or name.endswith(".npz"):
        return []
    return names


def _tolerances(atol: float | None, rtol: float | None, quant_steps: int, path: Path | None) -> Tolerances:
    """The tolerances of a file, and of typed options, which override its general ones."""
    from nnbridge.compare.tolerance import read_tolerances

    tolerances = tolerances_of(atol, rtol, quant_steps)
    if path is None:
        return tolerances
    stated = {"atol": atol, "rtol": rtol, "steps": quant_steps}
    fields = dict(zip(stated, ("--atol", "--rtol", "--quant-steps"), strict=True))
    return read_tolerances(path, {f: stated[f] for f, o in fields.items() if o in typed_options()})


def _begun(name: str, model: Path, signature: str, *, preserve: bool) -> ApartReference:
    """A reference that starts and reads the file while this process plans."""
    from nnbridge.compare.references import reference

    return reference(name, model, signature, preserve=preserve, wait=False)


def _side_by_side(
    model: Path,
    opened: Callable[[], ModelFile],
    names: Sequence[str],
    tolerance: Tolerances,
    drawing: tuple[tuple[str, ...], Preparation, Sequence[int], int],
    show_plan: bool,
    as_json: bool,
    options: dict[str, Any],
) -> SideBySide:
    """The plan and several references, each beside each."""
    begun = {name: _begun(name, model, options["signature"], preserve=False) for name in names}
    # What else is needed is imported while the references start.
    from nnbridge.compare.several import present, side_by_side
    from nnbridge.devices.evidence import evidence_lines, next_step
    from nnbridge.report.outputs import side_tables
    from nnbridge.sampling import samples_of

    plan = finished(opened(), target_of(options))
    absent: dict[str, str] = {}
    references = present(begun, absent)
    inputs, how, seeds, steps = drawing
    drawn = samples_of(plan, next(iter(references.values())), inputs, None, how, seeds, steps)
    if show_plan and not as_json:
        from nnbridge.report.plan import plan_tables

        print_blocks(plan_tables(plan))
    with progress("Comparing samples", drawn.total, as_json) as advance:
        found = side_by_side(plan.compilation, references, drawn.counted(advance), tolerance, absent)
    tell_host(plan.compilation, options["host"])
    if as_json:
        print_json("compare", {**found.as_dict(), "model": str(model)})
    else:
        lines = [*evidence_lines(found.evidence), *([f"Next: {next_step()}"] if found.unknown else [])]
        print_blocks([*side_tables(found), *lines, f"{found.sentence}."])
    return found


def _end(found: Comparison | LayerComparison | Envelope | SideBySide) -> NoReturn:
    """The exit status; a message where samples could not be compared and the others pass."""
    if found.interrupted:
        sys.exit(INTERRUPTED)
    if found.ended and not found.failed:
        raise InputError(Reason("samples that can be compared", f"{found.ended[0][1]} at {found.ended[0][0]}"))
    sys.exit(1 if found.failed else 0)


@dataclass
class _Subject:
    """The file, options and target that are compared."""

    reference: str
    planned: Planned
    runtime: ApartReference | DeviceReference | None
    samples: Iterable[Sample]
    total: int
    tolerance: Tolerances
    files: FileSamples | None
    as_json: bool
    show_plan: bool
    csv_file: Path | None
    envelope: bool

    @property
    def path(self) -> Path:
        """The model's file."""
        return self.planned.file.path

    @property
    def compilation(self) -> Compilation:
        """The plan that is compared."""
        return self.planned.compilation

    def counted(self, advance: Callable[[int], None]) -> Iterator[Sample]:
        """The samples; ``advance`` is called when each is done."""
        for sample in self.samples:
            yield sample
            advance(1)

    def print(self, data: Mapping[str, Any], blocks: Callable[[], Iterable[Any]], verdict: str = "") -> None:
        """As JSON or as tables; the verdict is repeated after long ones."""
        if self.as_json:
            known = [each.as_dict() for each in self.evidence]
            print_json("compare", {"evidence": known, **data, "model": str(self.path)})
        else:
            print_blocks(blocks(), verdict=verdict)

    @property
    def evidence(self) -> list[Evidence]:
        """The evidence of each driver that the plan uses."""
        from nnbridge.devices.evidence import evidences

        return evidences(device for device in self.compilation.devices if device.name in self.used)

    @property
    def used(self) -> set[str]:
        """The devices that run a step of the plan."""
        plan = self.compilation.plan
        return {plan.devices[step.device].name for step in plan.steps}

    @property
    def idle(self) -> tuple[str, ...]:
        """The devices that were offered the model where none of them runs anything."""
        from nnbridge.devices.evidence import idle_devices

        return idle_devices(self.compilation.devices, self.used)

    def evidence_lines(self) -> Iterator[str]:
        """The same as lines, and last what helps where numbers are unknown."""
        from nnbridge.devices.evidence import evidence_lines, next_step, unknown_numbers

        yield from evidence_lines(self.evidence)
        if unknown_numbers(self.evidence) and not self.envelope:
            yield f"Next: {next_step(self.reference)}"


def _layers(subject: _Subject) -> LayerComparison:
    from nnbridge.compare.layers import compare_layers
    from nnbridge.compare.tensors import stored_tensors, tensors_of
    from nnbridge.report.layers import layer_tables, write_csv

    tensors = stored_tensors(Path(subject.reference)) if subject.runtime is None else tensors_of(subject.runtime)
    with progress("Comparing samples", subject.total, subject.as_json) as advance:
        samples = subject.counted(advance)
        found = compare_layers(
            subject.compilation, subject.reference, samples, tensors, subject.tolerance, subject.planned.mapped
        )
    if subject.csv_file is not None:
        write_csv(found, subject.csv_file)
    verdict = f"Verdict: {found.verdict}"
    subject.print(found.as_dict(), lambda: [*layer_tables(found), *subject.evidence_lines(), verdict], found.sentence)
    return found


def _envelope(subject: _Subject) -> Envelope:
    from nnbridge.compare.arithmetics import arithmetics, stated
    from nnbridge.compare.envelope import envelope, reference_answers
    from nnbridge.report.envelope import envelope_tables
    from nnbridge.runtime.execution import Execution
    from nnbridge.runtime.states import States

    subject.planned.require_loaded()
    compilation, model = subject.compilation, subject.compilation.model
    states = States(model)

    def own(sample: Sample) -> Mapping[str, Array]:
        if not sample.continues:
            states.reset()
        return Execution(compilation, states).run(sample.inputs)

    drivers = [device for device in compilation.devices if device.kind == "device"]
    devices, known = ", ".join(device.name for device in drivers), stated(drivers) if not subject.reference else {}
    others: dict[str, Callable[[Sample], Mapping[str, Array]]] = {devices: own} if devices else {}
    if subject.reference:
        others[subject.reference] = reference_answers(model)
    with progress("Running arithmetics", subject.total * len(arithmetics(model, known)), subject.as_json) as advance:
        found = envelope(model, subject.samples, others, subject.tolerance, advance, known)
    found = replace(found, evidence=tuple(subject.evidence), idle=subject.idle, devices=devices)
    verdict = f"Verdict: {found.verdict}"
    subject.print(found.as_dict(), lambda: [*envelope_tables(found), *subject.evidence_lines(), verdict], found.sentence)
    return found


def _outputs(subject: _Subject) -> Comparison:
    from nnbridge.api import compare_samples
    from nnbridge.inputs import read_ahead
    from nnbridge.report.agreement import Agreement
    from nnbridge.report.outputs import comparison_tables
    from nnbridge.report.plan import cache_lines

    compilation, files = subject.compilation, subject.files
    agreement = Agreement() if files is None else files.agreement
    observe = partial(agreement.observe, compilation.model) if files is None else files.observe
    # The next samples are read, and run by the reference, while one is computed and compared.
    subject.samples = read_ahead(subject.samples)
    with progress("Comparing samples", subject.total, subject.as_json) as advance:
        found = compare_samples(subject.planned, subject.reference, subject.counted(advance), subject.tolerance, observe)
    data = {**found.as_dict(), "agreement": agreement.as_dict(), **({} if files is None else files.as_dict())}
    if subject.show_plan:
        data["plan"] = subject.planned.to_dict()
    cached = [] if subject.show_plan else cache_lines(compilation)
    fallbacks = (f"Fell back: {line}" for line in found.fallbacks)
    subject.print(data, lambda: [*comparison_tables(found), *map(str, found.shares), *fallbacks, *cached])
    if not subject.as_json:
        print_blocks([*agreement.lines(), *(() if files is None else files.lines())])
        for line in () if files is None else files.dataset.notes:
            echo(line, err=True)
        print_blocks([f"Verdict: {found.verdict_line}"])
    return found
