"""One cell: a model on a device at a feature level, planned and, against a reference, run. Failures are cells as well."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache, cached_property
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, TypeVar

from nnbridge import __version__
from nnbridge.compare.comparison import compare
from nnbridge.compare.references import reference as reference_runtime
from nnbridge.compare.samples import Sample, seeded_inputs, seeded_samples
from nnbridge.converters import PHONE, ConversionOptions
from nnbridge.cost.plan import cost_of
from nnbridge.devices.profile_file import SUFFIX
from nnbridge.devices.source_profiles import BoundDevice
from nnbridge.errors import NnbridgeError, OpFailedError, Reason, shortage_of
from nnbridge.estimate import ESTIMATE_CPU
from nnbridge.estimate.plans import estimate
from nnbridge.extensions import readable_operation
from nnbridge.file import ModelFile
from nnbridge.foreign import MAX_TEXT, MAX_WHOLE, Shape, checked, shape_of
from nnbridge.plan import Planned, plan
from nnbridge.plan_data import PLACES
from nnbridge.releases import NEWEST, RUNTIMES
from nnbridge.report.outcomes import reasons_off
from nnbridge.runtime.compilation import Compilation
from nnbridge.runtime.execution import Execution
from nnbridge.runtime.plan import Plan
from nnbridge.storage.atomic import file_checksum
from nnbridge.target import PREFERENCES, Target
from nnbridge.types import PreferenceCode

if TYPE_CHECKING:
    from nnbridge.devices.device import Device

_TIMED_RUNS = 5
_AND = "+"
_Answer = TypeVar("_Answer")


@dataclass(frozen=True)
class MatrixSettings:
    """What all cells of a run share."""

    mapping: str = PHONE
    reference: str = ""
    """``litert``, ``onnxruntime`` or ``auto``, the one that reads the file's format; empty for none."""
    seeds: tuple[int, ...] = (0,)
    timed: bool = False
    """Measure the time of a run on this machine."""
    preference: int = 1
    tflite: str = NEWEST
    ort: str = NEWEST
    """The releases of TFLite and ONNX Runtime that hand operators over."""


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

    @property
    def key(self) -> str:
        """What the answer depends on, as a checksum: files of profiles with their content, code by its name."""
        own = [file_checksum(Path(name.partition("#")[0])) for name in self.device.split(_AND) if SUFFIX in name]
        known = [__version__, self.digest, self.device, own, self.level, asdict(self.settings)]
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
    passed: bool | None = None
    """True if every output is within tolerance; None without a reference."""
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
        return {**asdict(self), "share": self.share, "mac_share": self.mac_share}

    @classmethod
    def of(cls, data: object, where: str = "a cell") -> Cell:
        """A cell from what :meth:`as_dict` returned; InputError for anything else, as a store may come from elsewhere."""
        found = checked(data, _cell_shape(), where)
        known = {key: value for key, value in found.items() if key in cls.__dataclass_fields__}
        known.update({key: tuple(map(tuple, known[key])) for key in ("refused", "placed") if key in known})
        return cls(**known)


@cache
def _cell_shape() -> dict[str, Shape]:
    return shape_of(Cell)


def tasks(
    models: Mapping[str, Path], devices: Sequence[str], levels: Sequence[int], settings: MatrixSettings
) -> list[list[Task]]:
    """The cells, in groups of one model and level that share what is read and what the reference answers."""
    digests = {path: file_checksum(path) for path in models.values()}
    return [
        [Task(str(path), digests[path], device, level, settings, name) for device in devices]
        for name, path in models.items()
        for level in levels
    ]


def compute_all(group: Sequence[Task]) -> Iterator[Cell]:
    """The cells of one model at one level, one after another."""
    opened: _Opened | str | None = None
    for task in group:
        if opened is None:
            opened = _guarded(_Opened, task)
        found = opened if isinstance(opened, str) else _guarded(_cell, task, opened)
        yield failed(task, found) if isinstance(found, str) else found


def failed(task: Task, why: str) -> Cell:
    """The cell of a task that has no answer."""
    return Cell(task.name, task.device, task.level, task.settings.mapping, why[:MAX_TEXT])


def _guarded(compute: Callable[..., _Answer], *arguments: Any) -> _Answer | str:
    """What a function returns; in place of an exception its text."""
    try:
        return compute(*arguments)
    except NnbridgeError as error:
        return str(error)
    except MemoryError:
        return "not enough memory"
    except Exception as error:
        short = shortage_of(error)
        if short is not None:
            return str(short)
        return f"{type(error).__name__}: {error}"


class _Opened:
    """A model file at a feature level, with the reference's outputs once they are needed."""

    def __init__(self, task: Task) -> None:
        self.settings = task.settings
        file = ModelFile(task.path, ConversionOptions(task.level, task.settings.mapping))
        known = {name: getattr(task.settings, name) for name in RUNTIMES if name in file.importer.options}
        self.file = file.with_(**known)
        self.file.importer.resolved(self.file.asked)

    @cached_property
    def reference(self) -> str:
        """The reference's name."""
        name = self.settings.reference
        return {"tflite": "litert", "onnx": "onnxruntime"}.get(self.file.format, "") if name == "auto" else name

    @cached_property
    def samples(self) -> list[Sample]:
        """Inputs with the reference's outputs."""
        return list(seeded_samples(self.file.model, reference_runtime(self.reference, self.file.path), self.settings.seeds))


def _cell(task: Task, opened: _Opened) -> Cell:
    level, preference = task.level, PreferenceCode(task.settings.preference)
    word = next(name for name, code in PREFERENCES.items() if code == preference)
    planned = plan(opened.file, Target.of(task.device.split(_AND), feature_level=level, preference=word))
    compilation = planned.compilation
    counted = {**_placement(planned), **_work(compilation.plan)}
    compared = _comparison(compilation, opened) if opened.reference else {}
    time_ms = _time(compilation) if task.settings.timed else None
    found = {**counted, **compared, "time_ms": time_ms, "estimated_ms": _estimate(planned.drivers)}
    return Cell(task.name, task.device, task.level, planned.mapping, **found)


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


def _comparison(compilation: Compilation, opened: _Opened) -> dict[str, Any]:
    comparison = compare(compilation, opened.reference, opened.samples)
    if comparison.ended and not comparison.failed:
        label, why = comparison.ended[0]
        raise OpFailedError(Reason(f"{why} at {label}"))
    worst = [(output.max_quant_diff is not None, output.largest) for output in comparison.outputs]
    quantised = bool(worst) and all(integer for integer, _ in worst)
    fell_back = {"fallback": "; ".join(comparison.fallbacks)} if comparison.fallbacks else {}
    return {
        "reference": opened.reference,
        "passed": comparison.passed,
        "difference": max((largest for _, largest in worst), default=None),
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
