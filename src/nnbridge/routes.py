"""The routes that a TFLite file has on phones: selected, compiles, right; three verdicts for each, which no other follows from.

``selected``: the operators that the route takes, by its rules. ``compiles``: whether it then prepares what it took, asked of the
engine where it is installed. ``right``: whether its outputs are those of LiteRT's reference kernels, compared where the engine
runs here, or where nnbridge emulates its arithmetic. What nothing here can evaluate is not known, and never right.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

from nnbridge import devices as device_list
from nnbridge.compare.acceptance import BoxCheck, Checks
from nnbridge.compare.arrays import Array
from nnbridge.compare.comparison import OutputComparison, add_sample, new_comparisons
from nnbridge.compare.references import REFERENCE_RUNTIMES, ApartReference, reference
from nnbridge.compare.samples import Missing, Sample, answered, outputs_in_model, seeded_samples
from nnbridge.compare.several import share
from nnbridge.compare.tolerance import Acceptance
from nnbridge.devices.evidence import evidences, unknown_numbers
from nnbridge.devices.source_profiles import BoundDevice, Claim, SourceProfile
from nnbridge.engines.accelerator import BROKEN_SHADER
from nnbridge.errors import NnbridgeError, Reason, RefusalError
from nnbridge.file import ModelFile
from nnbridge.model import Model
from nnbridge.plan import Planned, plan
from nnbridge.records import dataclass
from nnbridge.target import Target

_MOST_8_BITS, _MOST_REAL = 0.03, 0.01
"""Shares of an output's range up to which outputs are right: engines round in other places, which adds up in networks."""


@dataclass(frozen=True)
class RouteVerdict:
    """One of a route's verdicts; None where nothing here can say."""

    holds: bool | None = None
    why: str = ""
    """What the verdict rests on, or what stands against it."""
    by: str = ""
    """``engine``, ``emulation`` or ``rules``; empty where it is not known."""

    @property
    def word(self) -> str:
        """``yes``, ``no`` or ``not known``."""
        return "not known" if self.holds is None else "yes" if self.holds else "no"

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return {"verdict": self.word, "by": self.by, "why": self.why}


UNKNOWN = RouteVerdict()


@dataclass(frozen=True)
class FileRoute:
    """One way for a file to run, with its three verdicts."""

    name: str
    title: str
    operators: int
    selected: int | None
    """Operators that it takes; None where only the engine itself says that."""
    partitions: int | None
    compiles: RouteVerdict
    right: RouteVerdict
    obstacle: str = ""
    """What keeps it from being whole: the operators that it leaves, and the first one's reason."""

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        counts = {"operators": self.operators, "selected": self.selected, "partitions": self.partitions}
        verdicts = {"compiles": self.compiles.as_dict(), "right": self.right.as_dict()}
        return {"route": self.name, "title": self.title, **counts, **verdicts, "obstacle": self.obstacle}


@dataclass(frozen=True)
class _Way:
    """A route before a file is known."""

    name: str
    title: str
    profile: str = ""
    """The device with its rules; empty for engines that take a file whole."""
    engine: str = ""
    """The reference that is the engine itself."""
    secret: str = ""
    """Of a route without public rules: why nothing is known."""


_WAYS = (
    _Way("litert-gpu", "LiteRT, GPU (float16)", "litert-gpu", "litert-gpu"),
    _Way("litert-gpu-float32", "LiteRT, GPU (float32)", "litert-gpu-float32", "litert-gpu-float32"),
    _Way("xnnpack", "LiteRT, CPU (XNNPACK)", "xnnpack", "xnnpack"),
    _Way("tflite-gpu-delegate", "TFLite's older GPU delegate", "tflite-gpu-delegate"),
    _Way("litert-qualcomm", "LiteRT, Qualcomm", "litert-qualcomm"),
    _Way("litert-mediatek", "LiteRT, MediaTek", "litert-mediatek"),
    _Way("hexagon", "TFLite, Hexagon", "hexagon"),
    _Way("edgetpu", "Edge TPU", "edgetpu"),
    _Way("ethos-u55-128", "Arm Ethos-U55 (Vela)", "ethos-u55-128"),
    _Way("tflm", "Cortex-M (TFLite Micro)", engine="tflm"),
    _Way(
        "litert-google-tensor",
        "LiteRT, Google Tensor",
        secret="no public rules are known: its compiler is in an SDK with registration",
    ),
    _Way("litert-samsung", "LiteRT, Samsung", secret="no public rules are known: its compiler is Samsung's Exynos AI LiteCore"),
)
_NNAPI = "nnapi"
ENGINES = {way.profile: way.engine for way in _WAYS if way.profile and way.engine}
"""Device → the engine itself, as a reference."""


def proof(path: Path, device: str) -> RouteVerdict:
    """The verdict on a device's engine computing a file as the reference kernels do; not known where it is not installed."""
    judge = _Judge(ModelFile(path), 0)
    compiles = judge.engine(ENGINES[device])
    return judge.right(ENGINES[device]) if compiles.holds else compiles


def routes(file: ModelFile, *, engines: bool = True, seed: int = 0) -> list[FileRoute]:
    """Every route of a file, NNAPI first; without ``engines`` nothing runs, and only rules are evaluated.

    Formats other than TFLite have NNAPI's only.
    """
    judge = _Judge(file, seed) if engines else None
    found = [_nnapi(file, judge)]
    if file.format == "tflite":
        found += [_route(file, way, judge) for way in _WAYS if way.profile or way.secret or judge is not None]
    return found


def _route(file: ModelFile, way: _Way, judge: _Judge | None) -> FileRoute:
    if way.secret:
        return FileRoute(way.name, way.title, len(file.source_graph.operators), None, None, UNKNOWN, UNKNOWN, way.secret)
    profile = device_list.device(way.profile) if way.profile else None
    if not isinstance(profile, SourceProfile):
        compiles, right = UNKNOWN if judge is None else judge.engine(way.engine), UNKNOWN
        if judge is not None and compiles.holds:
            right = judge.right(way.engine)
        count = len(file.source_graph.operators)
        selected = None if compiles.holds is None else count if compiles.holds else 0
        return FileRoute(way.name, way.title, count, selected, selected and 1, compiles, right)
    bound = profile.bound(file.source_graph)
    taken = sum(claim.accepted for claim in bound.claims)
    compiles, right = _profile_verdicts(file, bound, way, judge)
    partitions = _partitions(file, way) if taken else 0
    return FileRoute(way.name, way.title, len(bound.claims), taken, partitions, compiles, right, _obstacle(bound))


def _profile_verdicts(file: ModelFile, bound: BoundDevice, way: _Way, judge: _Judge | None) -> tuple[RouteVerdict, RouteVerdict]:
    if bound.failure is not None:
        broken = RouteVerdict(False, str(bound.failure), "rules")
        asked = UNKNOWN if judge is None or not way.engine else judge.engine(way.engine)
        return (broken if asked.holds is None else asked), UNKNOWN
    if not any(claim.accepted for claim in bound.claims):
        return RouteVerdict(False, "no operator is taken", "rules"), UNKNOWN
    fault = next((claim for claim in bound.claims if claim.fault), None)
    known = UNKNOWN if fault is None else RouteVerdict(None, f"known fault: {_faulty(fault)}", "")
    if judge is None:
        return UNKNOWN, known
    compiles = judge.engine(way.engine) if way.engine else UNKNOWN
    if compiles.holds is not None:
        right = judge.right(way.engine)
        return compiles, known if right.holds is None and fault is not None else right
    return compiles, known if fault is not None else judge.emulated(way.profile)


def _faulty(claim: Claim) -> str:
    return f"{claim.operator.label}: {claim.fault}"


def _partitions(file: ModelFile, way: _Way) -> int | None:
    try:
        return plan(file, Target.of(way.profile, kernels="reference"), prepare=False).summary.partitions
    except RefusalError:
        return None  # LiteRT does not load the file; a compiler reads it all the same.


def _obstacle(bound: BoundDevice) -> str:
    left = [claim for claim in bound.claims if not claim.accepted]
    if not left:
        return ""
    names = Counter(claim.operator.name.removeprefix("CUSTOM:") for claim in left).most_common()
    listed = ", ".join(name + (f" ×{count}" if count > 1 else "") for name, count in names[:3])
    reason = left[0].reason
    assert reason is not None
    why = reason.says or f"{reason.rule}, found {reason.found}"
    return f"{listed}{', …' if len(names) > 3 else ''}: {why}"


def _nnapi(file: ModelFile, judge: _Judge | None) -> FileRoute:
    """The route of the app's delegate or provider to NNAPI, which a phone without drivers computes on its CPU."""
    try:
        planned = plan(file, Target.of(kernels="reference"), prepare=False)
    except RefusalError as error:
        return FileRoute(_NNAPI, "NNAPI", 0, 0, None, RouteVerdict(False, str(error), "rules"), UNKNOWN, str(error))
    summary = planned.summary
    loads = planned.not_loaded
    if loads is not None or not summary.handed_over:
        why = str(loads) if loads is not None else "no operator is handed over"
        compiles = RouteVerdict(False, why, "rules")
    else:
        compiles = RouteVerdict(True, "NNAPI's own checks", "emulation")
    left = summary.operators - summary.handed_over
    names = [one.operator for one in planned.mapped if one.mapping != planned.mapping and one.reasons]
    first = next((str(reason) for one in planned.mapped if one.mapping != planned.mapping for reason in one.reasons), "")
    obstacle = f"{', '.join(dict.fromkeys(names))}: {first}" if left and names else ""
    right = judge.emulated("") if judge is not None and compiles.holds else UNKNOWN
    right = right if right.holds is None else replace(right, why=f"on NNAPI's CPU: {right.why}")
    return FileRoute(_NNAPI, "NNAPI", summary.operators, summary.handed_over, summary.partitions, compiles, right, obstacle)


class _Judge:
    """Engines that are asked about one file, each once, and the sample that all are compared on."""

    def __init__(self, file: ModelFile, seed: int) -> None:
        self._file, self._seed = file, seed
        self._engines: dict[str, ApartReference | Reason] = {}

    def engine(self, name: str) -> RouteVerdict:
        """The verdict on reading and preparing the file; not known where the engine is absent."""
        if REFERENCE_RUNTIMES[name].absent() is not None:
            return UNKNOWN
        runtime = self._opened(name)
        if isinstance(runtime, Reason):
            return RouteVerdict(False, str(runtime), "engine")
        broken = next((note for note in runtime.notes if BROKEN_SHADER in note), "")
        return RouteVerdict(not broken, broken or "asked", "engine")

    def right(self, name: str) -> RouteVerdict:
        """The verdict on an engine's outputs; in float16 only where its driver has that."""
        runtime = self._opened(name)
        if isinstance(runtime, Reason) or isinstance(self._expected, Reason):
            return RouteVerdict(None, "" if isinstance(runtime, Reason) else str(self._expected))
        try:
            runtime.reset()
            found = answered(self._model, runtime, self._sample.inputs)
        except RefusalError as error:
            return RouteVerdict(False, f"it does not run: {error.reason}", "engine")
        verdict = self._compared(outputs_in_model(self._model, found), "engine")
        if name == "litert-gpu" and verdict.holds and runtime.lacks_float16:
            return RouteVerdict(None, "right in float32; this driver has no float16, which is the default on phones")
        return verdict

    def emulated(self, device: str) -> RouteVerdict:
        """The verdict on outputs computed as a device does; not known where its arithmetic is not emulated."""
        if isinstance(self._expected, Reason):
            return RouteVerdict(None, str(self._expected))
        try:
            planned = self._planned if not device else plan(self._file, Target.of(device))
            if unknown_numbers(evidences(planned.drivers)):
                return RouteVerdict(None, "its arithmetic is not emulated")
            return self._compared(planned.run(self._sample.inputs), "emulation")
        except RefusalError as error:
            return RouteVerdict(None, str(error))

    def _compared(self, found: Mapping[str, Array], by: str) -> RouteVerdict:
        outputs = new_comparisons(self._model)
        assert not isinstance(self._expected, Reason)
        add_sample(self._model, outputs, found, self._expected)
        checks = Checks(self._model, Acceptance(), lambda names: [o for o in new_comparisons(self._model) if o.name in names])
        checks.add(found, self._expected)
        boxes = next((check for check in checks.deciding(outputs) if isinstance(check, BoxCheck)), None)
        if boxes is not None:  # Their places in the outputs mean nothing.
            others = [output for output in outputs if output.name not in boxes.outputs]
            matched = not boxes.problem and boxes.found == boxes.boxes and not boxes.extra
            numbers = all(_close(output) for output in (*boxes.compared, *others) if isinstance(output, OutputComparison))
            return RouteVerdict(matched and numbers, f"matched boxes: {boxes.counts}", by)
        worst = max(outputs, key=lambda output: (bool(output.problem), output.non_finite_unequal, share(output)))
        return RouteVerdict(all(map(_close, outputs)), _difference(worst), by)

    def _opened(self, name: str) -> ApartReference | Reason:
        if name not in self._engines:
            try:
                runtime = reference(name, self._file.path, self._file.asked.signature)
                runtime.start(quiet=True)
                self._engines[name] = runtime
            except RefusalError as error:
                self._engines[name] = error.reason
        return self._engines[name]

    @cached_property
    def _planned(self) -> Planned:
        return plan(self._file, Target.of())

    @property
    def _model(self) -> Model:
        return self._planned.model

    @cached_property
    def _sample(self) -> Sample:
        runtime = self._opened("litert" if self._file.format == "tflite" else "onnxruntime")
        if isinstance(runtime, Reason):
            raise NnbridgeError(runtime)
        return next(iter(seeded_samples(self._model, runtime, [self._seed])))

    @cached_property
    def _expected(self) -> Sequence[Array] | Mapping[str, Array] | Reason:
        """The reference's outputs, or why there are none."""
        try:
            found = self._sample.outputs
        except RefusalError as error:
            return error.reason
        return found.why if isinstance(found, Missing) else found


def _close(output: OutputComparison) -> bool:
    if output.problem or output.non_finite_unequal:
        return False
    eight = output.max_quant_diff is not None
    return output.within or share(output) <= (_MOST_8_BITS if eight else _MOST_REAL)


def _difference(output: OutputComparison) -> str:
    """The largest difference in words."""
    if output.problem:
        return output.problem
    if output.non_finite_unequal:
        return f"{output.non_finite_unequal} of {output.elements} numbers are infinite or NaN on one side"
    if output.max_quant_diff is not None:
        return f"largest difference {output.max_quant_diff} steps" if output.max_quant_diff else "equal"
    return f"largest difference {share(output):.2g} of the range" if output.largest else "equal"
