"""``nnbridge.plan``, ``run``, ``compare``, ``report`` and ``inspect``: the commands in Python, with their defaults.

Keyword arguments are the commands' options: ``--max-partitions 0`` is ``max_partitions=0``. Those of the file (``mapping``,
``shapes``, ``signature``, ``layout``, ``float64``, ``allow_dynamic_dimensions``, ``tflite``, ``ort``) are fields of
:class:`~nnbridge.converters.ConversionOptions`, those of the phone (``device``, ``android``, ``feature_level``, ``fallback``,
``max_partitions``, ``preference``, ``partitioning``, ``host``, ``kernels``, ``threads``, ``cache_dir``) are attributes of
:class:`~nnbridge.target.Target`. InputError for other words.
"""

from __future__ import annotations

import logging
import platform
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import fields, replace
from importlib.metadata import PackageNotFoundError, version
from os import cpu_count
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypedDict, TypeGuard

from nnbridge.compare.arrays import load_arrays
from nnbridge.compare.comparison import Comparison
from nnbridge.compare.comparison import compare as compare_outputs
from nnbridge.compare.references import REFERENCE_RUNTIMES
from nnbridge.compare.references import reference as reference_runtime
from nnbridge.compare.samples import Sample, input_samples
from nnbridge.compare.tensors import stored_tensors, tensors_of
from nnbridge.compare.tolerance import DEFAULT_TOLERANCE, Acceptance, Tolerance, Tolerances, as_tolerances
from nnbridge.converters import PHONE, ConversionOptions
from nnbridge.converters.inspection import Inspection
from nnbridge.devices.device import Device
from nnbridge.engines import AUTO
from nnbridge.engines.loading import question_of
from nnbridge.errors import InputError, Reason, near
from nnbridge.file import ModelFile
from nnbridge.inputs import Dataset, Preparation
from nnbridge.model import Array
from nnbridge.plan import Planned
from nnbridge.plan import plan as plan_file
from nnbridge.releases import RUNTIMES
from nnbridge.runtime.execution import Execution
from nnbridge.runtime.plan_runner import RunReport
from nnbridge.runtime.states import States
from nnbridge.sampling import Samples, samples_of
from nnbridge.storage.atomic import atomic_write
from nnbridge.target import Target

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from nnbridge.compare.references import ApartReference
    from nnbridge.phone_log.explaining import LogExplanation
    from nnbridge.report.page import PageFacts

Progress: TypeAlias = "Callable[[str, int], AbstractContextManager[Callable[[int], None]]]"
"""``progress(what, total)`` shows how much is done; the function that it yields advances it."""
LOG = logging.getLogger(__name__)
_OF_FILE = ("mapping", "layout", "signature", "shapes", "float64", "allow_dynamic_dimensions", *RUNTIMES)


class Words(TypedDict, total=False):
    """Keyword arguments of all functions: what is said of the file and of the phone."""

    device: str | Device | Iterable[str | Device]
    android: str
    feature_level: int
    fallback: str | None
    max_partitions: int | None
    preference: str
    partitioning: str
    host: str
    kernels: str | None
    threads: int | None
    cache_dir: Path | None
    mapping: str
    layout: str
    signature: str
    shapes: Mapping[str, tuple[int, ...]]
    float64: str
    allow_dynamic_dimensions: bool
    tflite: str
    ort: str


def plan(model: str | Path | ModelFile, target: Target | None = None, *, prepare: bool = True, **words: Unpack[Words]) -> Planned:
    """The plan of a model file on a phone: what is handed to NNAPI, which device runs what, and why no other does.

    Parameters
    ----------
    model
        The path of a TFLite, ONNX or saved ``.nnapi`` file, or an opened file.
    target
        The phone; or in words: ``device="arm-nn-21.11"`` (a name, several joined by commas, your own device, a list),
        ``android="12"``, and the rest of the module's keyword arguments. By default a phone without drivers: NNAPI's CPU.
    prepare
        False for a plan to look at, which takes less time and cannot run.

    Returns
    -------
    Planned
        With ``summary``, ``run(inputs)``, ``to_dict()`` (what ``nnbridge plan --json`` prints) and ``to_pandas()``.

    Raises
    ------
    ConversionError
        For what is wrong with the file, with the place in it.
    InputError
        For a word that is wrong.
    NnapiError
        Where devices refuse operations and nothing may fall back.
    """
    return plan_file(*_asked(model, target, words), prepare=prepare, asks=True)


def run(
    model: str | Path | ModelFile,
    inputs: Mapping[str, Any] | Sequence[Any] | str | Path | None = None,
    *,
    seed: int | None = None,
    how: Preparation | None = None,
    target: Target | None = None,
    **words: Unpack[Words],
) -> dict[str, Array]:
    """A model's outputs by name, for one set of inputs.

    Parameters
    ----------
    inputs
        Arrays by the inputs' names or in their order, or files: ``"cat.png"`` for the first input, ``"NAME=tokens.npy"``, or a
        list of such texts (docs/inputs.md).
    seed
        Inputs without a value are drawn with it; without a seed, they are an InputError.
    how
        The preparation of images and sound.

    Operators that stay with the app's runtime are computed by it where it is installed (``host="auto"``). Errors as :func:`plan`.
    """
    planned = _planned_to_run(model, target, words)
    if _are_arrays(inputs):
        return _said(planned).run(inputs)
    items = Dataset.of(planned.model, _texts(inputs), seed=seed, how=how, stated=planned.file.interface.inputs)
    if len(items) != 1:
        raise InputError(Reason("files of one sample (compare accepts more)", f"{len(items)} samples", operand="inputs"))
    return _said(planned).run(next(iter(items)).inputs)


def compare(
    model: str | Path | ModelFile,
    reference: str,
    inputs: Mapping[str, Any] | str | Path | Sequence[str | Path] = (),
    *,
    seeds: Sequence[int] = (0, 1, 2),
    steps: int = 1,
    how: Preparation | None = None,
    labels: Path | None = None,
    tolerances: Tolerances | Tolerance | None = None,
    accept_iou: float | None = None,
    accept_score: float | None = None,
    score_threshold: float | None = None,
    accept_top1: float | None = None,
    progress: bool | Progress = False,
    target: Target | None = None,
    **words: Unpack[Words],
) -> Comparison:
    """Every output of a plan beside a reference's.

    Parameters
    ----------
    reference
        ``litert``, ``onnxruntime``, or an ``.npz`` file of stored samples.
    inputs
        Arrays of one sample by name, or files and folders (docs/inputs.md); else inputs are drawn with ``seeds``, each for
        ``steps`` runs in a row.
    tolerances
        By default those of docs/comparisons.md.
    accept_iou, accept_score, score_threshold, accept_top1
        Figures that are enough for detections, and for classes, instead.
    progress
        True for a bar in terminals and notebooks.

    Returns
    -------
    Comparison
        ``passed``, ``sentence``, ``outputs``, ``causes`` and ``as_dict()`` (what ``nnbridge compare --json`` prints).
    """
    planned = plan_file(*_asked(model, target, words), asks=True)
    stored = Path(reference) if reference.endswith(".npz") else None
    runtime = stored or reference_runtime(reference, planned.file.path, planned.file.asked.signature)
    known = as_tolerances(tolerances or DEFAULT_TOLERANCE)
    if (accept := Acceptance(accept_iou, accept_score, score_threshold, accept_top1)) != Acceptance():
        known = replace(known, accept=accept)
    if isinstance(inputs, Mapping):
        drawn = Samples(lambda: input_samples(planned.model, runtime, [("", inputs)]), 1, None)
    else:
        drawn = samples_of(planned, runtime, _texts(inputs), labels, how or Preparation(), seeds, steps)
    observe = None if drawn.files is None else drawn.files.observe
    with _shown(progress)("Comparing samples", drawn.total) as advance:
        return compare_samples(_said(planned), reference, drawn.ahead().counted(advance), known, observe)


def compare_samples(
    planned: Planned,
    reference: str,
    samples: Iterable[Sample],
    tolerances: Tolerances,
    observe: Callable[[Sample, Mapping[str, Array]], None] | None = None,
) -> Comparison:
    """A plan's outputs for samples beside a reference's, with the causes of the first sample's differences.

    ConversionError for a file that the app's runtime does not load: there is nothing on a phone to compare.
    """
    from nnbridge.compare.explanation import with_causes

    first: list[Sample] = []

    def drawn() -> Iterator[Sample]:
        for sample in samples:
            first.append(sample) if not first else None
            yield sample

    found = compare_outputs(planned.compilation, reference, drawn(), tolerances, observe)
    return with_causes(found, planned.compilation, planned.file.path, first, planned.file.asked.signature)


def report(
    model: str | Path | ModelFile,
    output: str | Path = "",
    *,
    reference: str = "",
    layers: bool = True,
    against: str | Device | Iterable[str | Device] = (),
    inputs: str | Path | Sequence[str | Path] = (),
    seeds: Sequence[int] = (0, 1, 2),
    how: Preparation | None = None,
    labels: Path | None = None,
    accept_iou: float | None = None,
    accept_score: float | None = None,
    score_threshold: float | None = None,
    accept_top1: float | None = None,
    repeat: int = 0,
    progress: bool | Progress = False,
    commands: Sequence[str] = (),
    notes: Sequence[str] = (),
    target: Target | None = None,
    **words: Unpack[Words],
) -> PageFacts:
    """Write a plan, its cost and its comparison with a reference as one HTML page to read and to send.

    Parameters
    ----------
    output
        The page, by default MODEL.html in the current folder, unless that is a file that is no page.
    reference
        Compare with it, as :func:`compare`; ``layers``: every tensor on the way as well, and
        ``accept_iou`` and the others too.
    against
        Other devices, whose plan is shown beside the first.
    repeat
        Runs that are measured, after one that is not counted; 0 for none.
    commands, notes
        Lines of the page: the commands that write it again, and what a reader must know.
    """
    # Commands that write no page import nothing of it.
    from nnbridge.report.page import PageFacts, default_page, page, page_data

    file, phone = _asked(model, target, words)
    path = Path(output) if output else default_page(file.path)
    show = _shown(progress)
    stored = not reference or reference.endswith(".npz")
    begun = None if stored else reference_runtime(reference, file.path, file.asked.signature, preserve=layers, wait=False)
    facts = PageFacts.of(_said(plan_file(file, phone, asks=True)), list(commands), notes=notes)
    if other := Target.of(against).devices:
        facts = replace(facts, against=plan_file(file, phone.with_(devices=other, cache_dir=None)))
    how = how or Preparation()
    if reference:
        accept = Acceptance(accept_iou, accept_score, score_threshold, accept_top1)
        facts = _compared(facts, reference, begun, layers, _texts(inputs), labels, how, seeds, accept, show)
    interrupted = facts.comparison is not None and facts.comparison.interrupted
    if repeat and not interrupted:
        stated = file.interface.inputs
        items = Dataset.of(facts.planned.model, _texts(inputs), seed=seeds[0], how=how, stated=stated)
        facts = replace(facts, runs=_measured(facts.planned, next(iter(items)).inputs, repeat, show), machine=_machine())
    with atomic_write(path) as out:
        out.write(page(page_data(facts)))
    return facts


def explain_log(
    model: str | Path | ModelFile, log: str | Path | bytes, *, target: Target | None = None, **words: Unpack[Words]
) -> LogExplanation:
    """Explain each line of a phone's log for a file: the rule, the operator, and what to do next.

    Parameters
    ----------
    log
        The path of the log, or its bytes: logcat's output in any form, a terminal's, or part of either.

    Returns
    -------
    LogExplanation
        ``lines``, ``unmatched``, ``sentence`` and ``as_dict()`` (what ``nnbridge plan --explain-log --json`` prints).
    """
    from nnbridge.log_lines.reader import read_content
    from nnbridge.phone_log.explaining import explain_log as explain

    content = log if isinstance(log, bytes) else read_content(Path(log))
    return explain(*_asked(model, target, words), content, "log" if isinstance(log, bytes) else str(log))


def inspect(model: str | Path | ModelFile, **words: Unpack[Words]) -> Inspection:
    """Describe a model file and how much of it maps to NNAPI under each mapping, without running anything."""
    file = _asked(model, None, words)[0].with_(mapping=ConversionOptions().mapping)
    asked = question_of(file.path, file.format)
    found = file.inspection
    _warn(file.path, asked.disagreement(found.loads))
    return found


def asked(model: str | Path | ModelFile, words: Mapping[str, Any]) -> tuple[ModelFile, Target]:
    """The file and the phone of keyword arguments; InputError for one that is none."""
    known = [*_OF_FILE, "device", *(field.name for field in fields(Target) if field.name != "devices")]
    unknown = next((word for word in words if word not in known), None)
    if unknown is not None:
        raise InputError(Reason(f"one of {', '.join(known)}{near(unknown, known)}", unknown, operand="keyword argument"))
    of_file = {name: value for name, value in words.items() if name in _OF_FILE}
    target = Target.of(**{name: value for name, value in words.items() if name not in _OF_FILE})
    if isinstance(model, ModelFile):
        return model.with_(**of_file), target
    return ModelFile(model, ConversionOptions(target.level, **{"mapping": PHONE, **of_file})), target


def _asked(model: str | Path | ModelFile, target: Target | None, words: Mapping[str, Any]) -> tuple[ModelFile, Target]:
    if target is not None and (both := [word for word in words if word not in _OF_FILE]):
        raise InputError(Reason("a target or words of one", f"both, and {', '.join(both)}", operand="target"))
    file, of_words = asked(model, words)
    return file, of_words if target is None else target


def _planned_to_run(model: str | Path | ModelFile, target: Target | None, words: Mapping[str, Any]) -> Planned:
    return plan_file(*_asked(model, target, words if target is not None else {"host": AUTO, **words}), asks=True)


def _said(planned: Planned) -> Planned:
    """A plan; warnings say where the installed runtime does not agree that the file is loaded, and which drivers are of another
    Android."""
    _warn(planned.file.path, planned.disagreement)
    for line in planned.of_other_androids:
        LOG.warning("%s", line)
    return planned


def _warn(path: Path, disagreement: str) -> None:
    if disagreement:
        LOG.warning("%s: %s", path, disagreement)


def _are_arrays(inputs: Mapping[str, Any] | Sequence[Any] | str | Path | None) -> TypeGuard[Mapping[str, Any] | Sequence[Any]]:
    if inputs is None or isinstance(inputs, (str, Path)):
        return False
    return isinstance(inputs, Mapping) or not all(isinstance(one, (str, Path)) for one in inputs)


def _texts(inputs: Mapping[str, Any] | Sequence[Any] | str | Path | None) -> tuple[str, ...]:
    return () if inputs is None else (str(inputs),) if isinstance(inputs, (str, Path)) else tuple(map(str, inputs))


def _shown(progress: bool | Progress) -> Progress:
    return _bar if progress is True else _silent if progress is False else progress


@contextmanager
def _silent(what: str, total: int) -> Iterator[Callable[[int], None]]:
    yield lambda done: None


@contextmanager
def _bar(what: str, total: int) -> Iterator[Callable[[int], None]]:
    from rich.progress import Progress as Bar

    with Bar(transient=True) as bar:
        task = bar.add_task(what, total=total)
        yield lambda done: bar.advance(task, done)


def _compared(
    facts: PageFacts,
    reference: str,
    begun: ApartReference | None,
    layers: bool,
    inputs: tuple[str, ...],
    labels: Path | None,
    how: Preparation,
    seeds: Sequence[int],
    accept: Acceptance,
    show: Progress,
) -> PageFacts:
    """The comparison of outputs, and of every tensor on the way where the reference has them."""
    from nnbridge.compare.layers import compare_layers

    planned, compilation = facts.planned, facts.planned.compilation
    stored = Path(reference) if begun is None else None
    layers = layers and (stored is None or any(name.startswith("tensor:") for name in load_arrays(stored)))
    if begun is not None:
        begun.ready()
    drawn = samples_of(planned, stored if begun is None else begun, inputs, labels, how, seeds)
    with show("Comparing outputs", drawn.total) as advance:
        found = compare_outputs(compilation, reference, drawn.counted(advance), Tolerances(accept=accept))
    which = f"seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds))}" if len(seeds) <= 12 else f"{len(seeds)} seeds"
    which = "inputs from files" if inputs else f"samples of {stored.name}" if stored else which
    facts = replace(facts, comparison=found, samples=which, versions={**facts.versions, **_version_of(reference)})
    if not layers or found.interrupted:
        return facts
    tensors = stored_tensors(Path(reference)) if begun is None else tensors_of(begun)
    with show("Comparing tensors", drawn.total) as advance:
        by_layer = compare_layers(compilation, reference, drawn.counted(advance), tensors, mapped=planned.mapped)
    return replace(facts, layers=by_layer)


def _version_of(reference: str) -> dict[str, str]:
    runtime = REFERENCE_RUNTIMES.get(reference)
    try:
        return {} if runtime is None else {runtime.title: version(runtime.distribution)}
    except PackageNotFoundError:
        return {}


def _measured(planned: Planned, inputs: Mapping[str, Array], repeat: int, show: Progress) -> list[RunReport]:
    """The reports of N runs, after a warm-up."""
    reports = []
    states = States(planned.model)
    with show("Measuring", repeat + 1) as advance:
        for _ in range(repeat + 1):
            execution = Execution(planned.compilation, states)
            execution.measure_steps()
            execution.run(inputs)
            reports.append(execution.report)
            advance(1)
    return reports[1:]


def _machine() -> str:
    cores = cpu_count() or 1
    return f"{platform.machine()}, {cores} core{'' if cores == 1 else 's'}, {platform.system()}"
