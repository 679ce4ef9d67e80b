"""One cell: a model on a device at a feature level, planned and, against a reference, run. Failures are cells as well."""

from __future__ import annotations

import hashlib
import json
import logging
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, field, replace
from functools import cache, cached_property
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, TypeVar

from nnbridge import __version__
from nnbridge.compare.comparison import Comparison, compare
from nnbridge.compare.references import OF_FORMAT, REFERENCE_RUNTIMES
from nnbridge.compare.references import reference as reference_runtime
from nnbridge.compare.samples import Reference, Sample, named_inputs, named_outputs, seeded_inputs
from nnbridge.converters import PHONE, ConversionOptions
from nnbridge.cost.plan import cost_of
from nnbridge.devices.cpu import CPU_NAME
from nnbridge.devices.evidence import IDLE, NUMBERS_UNKNOWN
from nnbridge.devices.profile_file import SUFFIX
from nnbridge.devices.source_profiles import BoundDevice
from nnbridge.errors import InapplicableError, InputError, NnbridgeError, OpFailedError, Reason, ShortageError, lacking
from nnbridge.estimate import ESTIMATE_CPU
from nnbridge.estimate.plans import estimate
from nnbridge.extensions import readable_operation
from nnbridge.file import ModelFile
from nnbridge.foreign import MAX_TEXT, MAX_WHOLE, Shape, checked, shape_of
from nnbridge.inputs import Preparation
from nnbridge.plan import Planned, plan
from nnbridge.plan_data import PLACES
from nnbridge.records import dataclass
from nnbridge.releases import NEWEST, RUNTIMES
from nnbridge.report.outcomes import reasons_off
from nnbridge.report.page import PageFacts, page, page_data
from nnbridge.runtime.compilation import Compilation
from nnbridge.runtime.execution import Execution
from nnbridge.runtime.plan import Plan
from nnbridge.sampling import samples_of
from nnbridge.storage.atomic import atomic_write, file_checksum
from nnbridge.target import PREFERENCES, Target
from nnbridge.types import PreferenceCode, android_name

if TYPE_CHECKING:
    from nnbridge.devices.device import Device

_LOG = logging.getLogger(__name__)
_REVISION = 2
"""Of what a cell has: cells of an older one are computed again."""
_TIMED_RUNS = 5
_AND = "+"
FAILED, INAPPLICABLE, NOT_COMPARED = "failed", "n/a", "not compared"
"""Verdicts of cells without a comparison."""
_NAME = 120
"""Characters of a report's name before its checksum."""
_Answer = TypeVar("_Answer")


@dataclass(frozen=True)
class MatrixSettings:
    """The settings that all cells of a run share."""

    mapping: str = PHONE
    reference: str = ""
    """A runtime's name, or ``auto``: ``litert`` or ``onnxruntime``, by the file's format; empty for none."""
    seeds: tuple[int, ...] = (0,)
    timed: bool = False
    """Measure the time of a run on this machine."""
    preference: int = 1
    tflite: str = NEWEST
    ort: str = NEWEST
    """The releases of TFLite and ONNX Runtime that hand operators over."""
    inputs: tuple[str, ...] = ()
    """``[NAME=]FILE`` of inputs that are compared, as ``--input`` has them; drawn with the seeds where there are none."""
    content: str = ""
    """A checksum of these files."""
    how: Preparation = field(default_factory=Preparation)


@dataclass(frozen=True)
class Task:
    """A cell to compute."""

    path: str
    digest: str
    """SHA-256 of the file."""
    device: str
    """A device's name as ``--device`` has it; several, joined by ``+``, are offered the model in this order."""
    level: int
    settings: MatrixSettings
    name: str = ""
    """The model's name in tables."""
    reports: str = ""
    """The folder of reports; empty for none."""

    @property
    def report(self) -> Path | None:
        """The file of the cell's report, whose name has a checksum of all that the cell depends on."""
        if not self.reports:
            return None
        words = re.sub(r"[^\w.+-]+", "_", f"{self.name}-{self.device}-{android_name(self.level)}", flags=re.ASCII)
        return Path(self.reports, f"{words[:_NAME]}-{self.key[:12]}.html")

    @property
    def key(self) -> str:
        """A checksum of everything that the answer depends on: files of profiles with their content, code and models by name."""
        own = [file_checksum(Path(name.partition("#")[0])) for name in self.device.split(_AND) if SUFFIX in name]
        known = [__version__, _REVISION, self.digest, self.name, self.device, own, self.level, asdict(self.settings)]
        return hashlib.sha256(json.dumps(known).encode()).hexdigest()


@dataclass(frozen=True)
class Cell:
    """The answer. Counts are of operations of the converted model, those of interpreted bodies included."""

    model: str
    device: str
    level: int
    mapping: str = ""
    error: str = ""
    """Why there is no answer; everything below is then as it starts."""
    operations: int = 0
    on_device: int = 0
    on_cpu: int = 0
    """On NNAPI's CPU or its runtime."""
    on_host: int = 0
    """What NNAPI cannot express or a phone does not hand to it: on a phone, TFLite's or ONNX Runtime's own CPU."""
    partitions: int = 0
    """Steps on devices."""
    macs: int = 0
    """Multiply-adds."""
    macs_on_device: int = 0
    transfers: int = 0
    """Bytes of tensors that cross a border between steps."""
    fallback: str = ""
    """Why the whole model went to the CPU."""
    reference: str = ""
    within: bool | None = None
    """True if every output is within tolerance, or detections match; None without a reference."""
    difference: float | None = None
    """The largest difference of an output: in steps for integers."""
    quantised: bool = False
    """True if the difference is in steps."""
    time_ms: float | None = None
    """Median of a run on this machine's emulation."""
    estimated_ms: float | None = None
    """Estimated time on the device and, for the rest, on a phone's CPU (:mod:`nnbridge.estimate`); None without a cost model."""
    refused: tuple[tuple[int, str, str, str], ...] = field(default=(), repr=False)
    """Operations off the device: index, type, name, why."""
    placed: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    """Type and name of each operation."""
    inapplicable: str = ""
    """Why the device does not apply to a file of this format, which is no failure; counts are then as they start."""
    unknown: bool = False
    """True if a device ran something whose arithmetic nothing emulates: NNAPI's CPU was compared in its place."""
    tolerance: float | None = None
    """The absolute tolerance of the output with the largest difference, in steps for integers."""
    passed_by: str = ""
    """What decided in place of elements, such as ``matched boxes``."""
    shortage: bool = False
    """True if there is no answer as the machine lacked something. Such a cell is not stored."""
    notes: tuple[str, ...] = field(default=(), repr=False, compare=False)
    """Warnings while it was computed; those of a file's conversion are in the first cell that needed it."""

    @property
    def answered(self) -> bool:
        """True if there are counts: the cell neither failed, nor does the device not apply."""
        return not self.error and not self.inapplicable

    @property
    def whole(self) -> bool:
        """True if every operation is on the device."""
        return self.answered and self.on_device == self.operations

    @property
    def idle(self) -> bool:
        """True if nothing runs on the device, which may be NNAPI's CPU: whatever was compared, others computed."""
        on_named = self.on_device + (self.on_cpu if CPU_NAME in self.device.split(_AND) else 0)
        return self.answered and self.operations > 0 and on_named == 0

    @property
    def passed(self) -> bool | None:
        """:attr:`within`, None where that says nothing of the device."""
        return None if self.unknown or self.idle else self.within

    @property
    def verdict(self) -> str:
        """``failed``, ``n/a``, ``nothing on the device``, ``not compared``, ``pass`` or ``FAIL``; or that the device's numbers
        are unknown."""
        if not self.answered:
            return FAILED if self.error else INAPPLICABLE
        if self.idle:
            return IDLE
        if self.within is None:
            return NOT_COMPARED
        return NUMBERS_UNKNOWN if self.unknown else "pass" if self.within else "FAIL"

    @property
    def android(self) -> str:
        """The first Android version with the cell's feature level."""
        return android_name(self.level)

    @property
    def share(self) -> float:
        """Share of operations on the device, 0 to 1."""
        return self.on_device / self.operations if self.operations else 0.0

    @property
    def mac_share(self) -> float | None:
        """Share of multiply-adds on the device; None for a model without any."""
        return self.macs_on_device / self.macs if self.macs else None

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return {**asdict(self), "passed": self.passed, "share": self.share, "mac_share": self.mac_share, "verdict": self.verdict}

    @classmethod
    def of(cls, data: object, where: str = "a cell") -> Cell:
        """A cell from what :meth:`as_dict` returned; InputError for anything else, as a store may come from elsewhere."""
        if isinstance(data, Mapping) and "within" not in data and "passed" in data:
            data = {**data, "within": data["passed"]}  # Of an earlier release, for which it was the same.
        found = checked(data, _cell_shape(), where)
        known = {key: value for key, value in found.items() if key in cls.__dataclass_fields__}
        known.update({key: tuple(map(tuple, known[key])) for key in ("refused", "placed") if key in known})
        known["notes"] = tuple(known.get("notes", ()))
        return cls(**known)


@cache
def _cell_shape() -> dict[str, Shape]:
    return shape_of(Cell)


def tasks(
    models: Mapping[str, Path], devices: Sequence[str], levels: Sequence[int], settings: MatrixSettings, reports: str = ""
) -> list[list[Task]]:
    """The cells, in groups of one model and level that share what is read and what the reference computes.

    ``reports``: the folder that the report of each cell is written to, if any.
    """
    digests = {path: file_checksum(path) for path in models.values()}
    return [
        [Task(str(path), digests[path], device, level, settings, name, reports) for device in devices]
        for name, path in models.items()
        for level in levels
    ]


def compute_all(group: Sequence[Task]) -> Iterator[Cell]:
    """The cells of one model at one level, one after another."""
    opened: _Opened | Exception | None = None
    for task in group:
        with _warnings() as notes:
            if opened is None:
                opened = _guarded(_Opened, task)
            found = opened if isinstance(opened, Exception) else _guarded(_cell, task, opened)
        yield replace(failed(task, found) if isinstance(found, Exception) else found, notes=tuple(dict.fromkeys(notes)))


class _Warnings(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage()[:MAX_TEXT])


@contextmanager
def _warnings() -> Iterator[list[str]]:
    """The libraries' warnings: printed here, they would be in the middle of the parent's progress."""
    notes, root = _Warnings(), logging.getLogger()
    root.addHandler(notes)
    try:
        yield notes.texts
    finally:
        root.removeHandler(notes)


def failed(task: Task, why: str | Exception) -> Cell:
    """The cell of a task that has no answer."""
    error = f"{type(why).__name__}: {why}" if isinstance(why, Exception) and not isinstance(why, NnbridgeError) else str(why)
    short = isinstance(why, ShortageError)
    return Cell(task.name, task.device, task.level, task.settings.mapping, error[:MAX_TEXT], shortage=short)


def _guarded(compute: Callable[..., _Answer], *arguments: Any) -> _Answer | Exception:
    """The result of a function; the exception in its place, as a shortage if it is one."""
    try:
        return compute(*arguments)
    except Exception as error:
        return lacking(error) or error


class _Opened:
    """A model file at a feature level, with the reference's outputs once they are needed."""

    def __init__(self, task: Task) -> None:
        self.settings = task.settings
        file = ModelFile(task.path, ConversionOptions(task.level, task.settings.mapping))
        known = {name: getattr(task.settings, name) for name in RUNTIMES if name in file.importer.options}
        self.file = file.with_(**known)
        self._samples: dict[str, list[Sample]] = {}
        self.file.importer.resolved(self.file.asked)

    @cached_property
    def reference(self) -> str:
        """The reference's name; empty where none was asked for, or another one than the format's."""
        asked = self.settings.reference
        if asked == "auto":
            return OF_FORMAT.get(self.file.format, "")
        return asked if asked and REFERENCE_RUNTIMES[asked].format == self.file.format else ""

    @cached_property
    def _runtime(self) -> Reference:
        return reference_runtime(self.reference, self.file.path)

    def samples(self, planned: Planned) -> list[Sample]:
        """Inputs with the reference's outputs, once for all plans with the same interface.

        A device's feature level may change it: below level 4 int8 is uint8.
        """
        interface = (named_inputs(planned.model), named_outputs(planned.model))
        key = repr([(name, one.type, one.dims, one.source_type) for each in interface for name, one in each.items()])
        if key not in self._samples:
            asked = self.settings
            drawn = samples_of(planned, self._runtime, asked.inputs, None, asked.how, asked.seeds)
            self._samples[key] = list(drawn.draw())
            for note in drawn.files.dataset.notes if drawn.files else ():
                _LOG.warning("%s: %s", self.file.path, note)
        return self._samples[key]


def _cell(task: Task, opened: _Opened) -> Cell:
    level, preference = task.level, PreferenceCode(task.settings.preference)
    word = next(name for name, code in PREFERENCES.items() if code == preference)
    try:
        planned = plan(opened.file, Target.of(task.device.split(_AND), feature_level=level, preference=word), asks=True)
    except InapplicableError as error:
        return Cell(task.name, task.device, task.level, task.settings.mapping, inapplicable=str(error)[:MAX_TEXT])
    for note in planned.of_other_androids:
        _LOG.warning("%s", note)
    planned.require_loaded()
    compilation = planned.compilation
    counted = {**_placement(planned), **_work(compilation.plan)}
    comparison = compare(compilation, opened.reference, opened.samples(planned)) if opened.reference else None
    compared = {} if comparison is None else _compared(comparison)
    time_ms = _time(compilation) if task.settings.timed else None
    found = {**counted, **compared, "time_ms": time_ms, "estimated_ms": _estimate(planned.drivers)}
    if task.report is not None:
        _write_report(task, planned, comparison)
    return Cell(task.name, task.device, task.level, planned.mapping, **found)


def _write_report(task: Task, planned: Planned, comparison: Comparison | None) -> None:
    """Write the page of a cell (docs/report.md). A cell is as good without one: why there is none is a warning."""
    asked = task.settings
    samples = "inputs from files" if asked.inputs else f"seeds {', '.join(map(str, asked.seeds))}"
    facts = replace(PageFacts.of(planned), comparison=comparison, samples=samples)
    try:
        with atomic_write(task.report or Path(), follow_links=False) as out:
            out.write(page(page_data(facts)))
    except InputError as error:
        _LOG.warning("no report: %s", error)


def _estimate(devices: Sequence[Device]) -> float | None:
    """The estimated time of the file on the only device that has a cost model, what it leaves on :data:`ESTIMATE_CPU`."""
    known = [device for device in devices if isinstance(device, BoundDevice) and device.profile.cost is not None]
    if len(known) != 1 or len(devices) != 1:
        return None
    (device,) = known
    accepted = {claim.operator.index for claim in device.claims if claim.accepted}
    return estimate(device.graph, accepted, device.name, device.profile.cost, ESTIMATE_CPU).us / 1e3


def _placement(planned: Planned) -> dict[str, Any]:
    plan, outcomes = planned.compilation.plan, {found.key: found for found in planned.mapped}
    placed: list[tuple[str, str]] = []
    refused: list[tuple[int, str, str, str]] = []
    counts = dict.fromkeys(("device", "cpu", "host"), 0)
    for source, placement in plan.placed():
        model = plan.partition.sources[source].model
        operation = model.main.operations[placement.operation]
        kind = readable_operation(model, operation)
        place = plan.device_of(placement.operation, source).kind
        counts[place if place in counts else "cpu"] += 1
        if place != "device":
            stated = reasons_off(plan, placement, source, outcomes, planned.mapping)
            why = "; ".join(map(_sentence, stated)) or PLACES[place]
            refused.append((len(placed), kind, operation.name, why))
        placed.append((kind, operation.name))
    return {
        "operations": len(placed),
        "on_device": counts["device"],
        "on_cpu": counts["cpu"],
        "on_host": counts["host"],
        "partitions": sum(plan.devices[step.device].kind == "device" for step in plan.steps),
        "fallback": str(plan.fallback) if plan.fallback else "",
        "refused": tuple(refused),
        "placed": tuple(placed),
    }


def _work(plan: Plan) -> dict[str, Any]:
    """Multiply-adds and bytes that cross borders; what has open dimensions counts nothing."""
    cost = cost_of(plan)
    on_device = {(step.source, i) for step in plan.steps if plan.devices[step.device].kind == "device" for i in step.operations}
    work = {(operation.source, operation.index): operation.multiply_adds or 0 for operation in cost.operations}
    counts = {
        "macs": sum(work.values()),
        "macs_on_device": sum(work[key] for key in on_device),
        "transfers": cost.crossing_bytes or 0,
    }
    return {key: min(count, MAX_WHOLE) for key, count in counts.items()}


def _sentence(reason: Mapping[str, Any]) -> str:
    """A reason in a line; one that two devices share names its device."""
    if "fallback" in reason:
        return f"{reason['device']}: the whole model fell back to the CPU"
    found = f", found {reason['found']}" if reason.get("found") else ""
    operand = f"{reason['operand']}: " if reason.get("operand") else ""
    return f"{reason['device']}: {operand}requires {reason['rule']}{found}"


def _compared(comparison: Comparison) -> dict[str, Any]:
    if comparison.ended and not comparison.failed:
        label, why = comparison.ended[0]
        raise OpFailedError(Reason(f"{why} at {label}"))
    outputs = comparison.outputs
    worst = max(outputs, key=lambda output: output.largest, default=None)
    quantised = bool(outputs) and all(output.max_quant_diff is not None for output in outputs)
    fell_back = {"fallback": "; ".join(comparison.fallbacks)} if comparison.fallbacks else {}
    return {
        "reference": comparison.reference,
        "within": comparison.passed,
        "unknown": bool(comparison.unknown),
        "difference": None if worst is None else worst.largest,
        "tolerance": None if worst is None else worst.atol,
        "passed_by": " and ".join(check.title for check, _ in comparison.checks),
        "quantised": quantised,
        **fell_back,
    }


def _time(compilation: Compilation) -> float:
    inputs = seeded_inputs(compilation.model, 0)
    times = []
    for _ in range(_TIMED_RUNS + 1):
        started = time.perf_counter()
        Execution(compilation).run(inputs)
        times.append(time.perf_counter() - started)
    return median(times[1:]) * 1e3
