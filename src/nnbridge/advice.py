"""Changes that put more of a model on its devices: every edit is planned before it is advised.

Edits are rewrites of the file that leave the outputs as they are, the smallest changes of single operators that a device would
accept, and settings: a later Android, a higher limit on partitions.
"""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import cache, cached_property, partial
from itertools import combinations, count, islice, product
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np

from nnbridge.converters.delegation import FAILS_BUILDING, Refusal, refusal_of
from nnbridge.converters.edits import WHOLE, Adjustable, Answers, Content, Edit, Key, Parameter, Value, is_large
from nnbridge.cost import driver_multiply_adds, multiply_adds
from nnbridge.devices import device
from nnbridge.devices.source_profiles import BoundDevice
from nnbridge.errors import ConversionError, InputError, NnbridgeError, Reason, RefusalError, Stage, Why
from nnbridge.file import ModelFile
from nnbridge.model import Array
from nnbridge.plan import Planned, draft
from nnbridge.records import dataclass
from nnbridge.runtime.placement import place
from nnbridge.runtime.plan import Plan
from nnbridge.storage.temporary import TemporaryFolder
from nnbridge.summary import operator_outcomes, refusal_kinds
from nnbridge.target import Target
from nnbridge.types import RUNTIME_FEATURE_LEVEL, android_name

LOG = logging.getLogger(__name__)
Adjust: TypeAlias = "Callable[[Path, int, int], Adjustable | None]"
_MAX_VERIFIED = 3
"""Changes of an operator that are planned in the whole file."""
_NOT_EDITED = frozenset({Why.PERFORMANCE, Why.PARTITIONS, Why.FALLBACK})
"""Refusals that no edit of the operator concerns."""
_ACCEPTED = frozenset({Why.PERFORMANCE, Why.PARTITIONS})
"""Of these, refusals of operators that a device accepts."""
_STANDING: Mapping[Stage, int] = {Stage.GRAPH: 1, **dict.fromkeys(FAILS_BUILDING, 1), Stage.LOADING: 2}
"""Stages at which a phone refuses a file as a whole: without an interpreter or session with its client, or without any."""
_OF_FILE = frozenset({"shapes", "allow_dynamic_dimensions"})
"""Settings that are options of the conversion, not of the phone."""


@dataclass(frozen=True)
class Outcome:
    """The figures of a plan that advice compares."""

    elsewhere: frozenset[Key]
    """Operators that do not run on a driver."""
    limited: int
    """Of these, operators beyond the limit on partitions."""
    partitions: int
    """Groups of operators that are handed to NNAPI."""
    steps: int
    multiply_adds: int
    """Of steps on drivers; those of open dimensions count nothing."""
    kinds: Mapping[Key, frozenset[Why]] = field(default_factory=dict)
    """Why the operators run elsewhere."""
    refusal: str = ""
    """Why a phone refuses the file as a whole, in one sentence."""
    standing: int = 0
    """0 if the program has what runs the plan; the higher, the earlier the phone fails (:data:`_STANDING`)."""
    cause: Key | None = None
    """The operator for which the file is refused."""
    work: Mapping[Key, int] = field(default_factory=dict)
    """Multiply-adds of operators of the file; those with none, or of open dimensions, are not in it."""
    faulty: frozenset[Key] = frozenset()
    """Operators on drivers that compute them wrongly, as far as is known."""

    @property
    def loads(self) -> bool:
        """True if the app's runtime loads the file, with or without its client."""
        return self.standing < _STANDING[Stage.LOADING]

    @property
    def figures(self) -> dict[str, int]:
        """The figures that edits are ranked by."""
        return {
            "elsewhere": len(self.elsewhere),
            "partitions": self.partitions,
            "steps": self.steps,
            "multiply_adds": self.multiply_adds,
            "faulty": len(self.faulty),
        }

    def better_than(self, other: Outcome) -> bool:
        """True if more runs on drivers: fewer operators elsewhere with no less work there, or more work with no more of them;
        or if as much does, and fewer known faults of the drivers are met.

        Above all counts whether the program has an interpreter or a session at all.
        """
        if self.standing != other.standing:
            return self.standing < other.standing
        fewer, less = len(self.elsewhere) - len(other.elsewhere), other.multiply_adds - self.multiply_adds
        faults = len(self.faulty) - len(other.faulty)
        return fewer <= 0 and less <= 0 and faults <= 0 and (fewer < 0 or less < 0 or faults < 0)


_LITTLE = 0.001
"""A share of the multiply-adds that no one notices."""


@dataclass(frozen=True)
class Alone:
    """Devices' answers for an operator by itself."""

    every: bool
    """They accept all of it."""
    some: bool
    """They accept a part of it."""
    kinds: frozenset[Why]
    """Why they refuse the rest."""


@dataclass(frozen=True)
class Planner:
    """The way in which files are planned."""

    measure: Callable[[Path, Mapping[str, Any], bool], Outcome]
    """From a path, changed settings by the names of their options, and whether steps are prepared, which is slow and may fail."""
    alone: Callable[[Path], Alone]
    """Devices' answers for a file of one operator, or of its replacement; nothing is prepared."""


@dataclass(frozen=True)
class Advice:
    """One change and what it does."""

    text: str
    before: Outcome
    after: Outcome
    options: Mapping[str, Any] = field(default_factory=dict)
    """Changed options of the command; none for an edit."""
    edit: Edit | None = None

    @property
    def kind(self) -> str:
        """``setting``, ``rewrite``, or what an edit does to the answers."""
        if self.edit is None:
            return "setting"
        return "rewrite" if self.edit.answers is Answers.SAME else str(self.edit.answers)

    @property
    def slight(self) -> bool:
        """True if it moves next to none of the work, and the devices' parts are not fewer: it comes last."""
        before, after = self.before, self.after
        total, gained = sum(before.work.values()), after.multiply_adds - before.multiply_adds
        fewer = after.partitions < before.partitions or after.steps < before.steps or len(after.faulty) < len(before.faulty)
        return 0 <= gained < _LITTLE * total and not fewer and after.standing == before.standing

    @property
    def converter(self) -> str:
        """The change at the source that does the same, in one sentence; empty where nothing is known, and for settings."""
        return "" if self.edit is None else self.edit.converter

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        at = self.edit
        inside = at is not None and at.index != WHOLE
        operator = {"subgraph": at.subgraph, "index": at.index, "operator": at.operator} if at and inside else None
        figures = {
            side: {**one.figures, "refusal": one.refusal} for side, one in (("before", self.before), ("after", self.after))
        }
        exact = {"kind": self.kind, "exact": None if at is None else at.answers is Answers.SAME}
        return {
            "text": self.text,
            "rewrite": self.kind == "rewrite",
            "operator": operator,
            "options": {name: _typed(value) for name, value in self.options.items()},
            "converter": self.converter,
            **figures,
            **exact,
        }


@dataclass(frozen=True)
class Unmoved:
    """An operator elsewhere that no change was found for."""

    subgraph: int
    index: int
    operator: str
    tried: tuple[str, ...]
    """What was changed, in words; empty if nothing of it can be, or the search was over."""
    alone: str = ""
    """A change after which the devices accept the operator by itself, but the rest of the file does not fit it."""
    converter: str = ""
    """What may help at the source."""
    share: float | None = None
    """Of the file's multiply-adds; None where there are none."""

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        at = {"subgraph": self.subgraph, "index": self.index, "operator": self.operator}
        known = {"tried": list(self.tried), "alone": self.alone, "converter": self.converter}
        return {"operator": at, **known, "share": self.share}


@dataclass(frozen=True)
class Advised:
    """Changes that help, the most effective first, and the operators that none of them is about, those with most work first."""

    advice: tuple[Advice, ...]
    unmoved: tuple[Unmoved, ...] = ()


# -- the smallest changes of an operator -----------------------------------------------------------------------------------
# Nothing of a device is known but its answers, so that profiles, drivers in Python and importers' rules are searched alike.

_NEAR = 8
_STEPS = (4, 16, 32, 64, 128, 256, 512, 1024, 4096)
"""Multiples of these are tried as well: hardware counts channels and widths so."""
_OCTAVES = 16
_IN_PAIRS = 3
"""Values of each of two parameters that are changed together."""
_MAX_PAIRS = 100
"""Pairs of values that are planned for an operator."""
_MAX_PLANS = 600
"""Isolated operators that are planned for one file, a few milliseconds each."""


@dataclass(frozen=True)
class Change:
    """New values of parameters."""

    values: tuple[tuple[Parameter, Value], ...]

    @property
    def by_name(self) -> dict[str, Value]:
        """The new values by the names of their parameters."""
        return {parameter.name: value for parameter, value in self.values}

    @property
    def key(self) -> Hashable:
        """The property that changes of equal operators share."""
        return tuple(self.by_name.items())

    @property
    def answers(self) -> Answers:
        """The effect of the change on the model's outputs."""
        return Answers.SAME if all(p.answers is Answers.SAME for p, _ in self.values) else Answers.CHANGE

    @property
    def converter(self) -> str:
        """The change at the source that does the same."""
        return "; ".join(dict.fromkeys(p.converter for p, _ in self.values if p.converter))

    @property
    def order(self) -> tuple[bool, float]:
        """Changes that leave the answers first, then by octaves of numbers and places in lists of choices."""
        return self.answers is not Answers.SAME, sum(_size(parameter, value) for parameter, value in self.values)

    def __str__(self) -> str:
        return ", ".join(f"{p.name} {_text(p.value)} → {_text(value)}" for p, value in self.values)


Accepts: TypeAlias = "Callable[[Change], bool]"


def _text(value: Value) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


class AdjustmentSearch:
    """The search for one file: operators that are equal are searched once, and all of them within one number of plans."""

    def __init__(self, alone: Callable[[Adjustable, Change], Hashable], accepted: Callable[[Any], bool]) -> None:
        self._alone = alone
        """Something that stands for a changed operator by itself, such as a file; equal for equal ones."""
        self._accepted = accepted
        self._known: dict[Hashable, bool] = {}

    def changes(self, adjustable: Adjustable, kinds: Collection[Why], pairs: bool = True) -> tuple[list[Change], tuple[str, ...]]:
        """Changes that devices accept of the operator by itself, the smallest first, and what was tried, in words."""
        concerned = [p for p in adjustable.parameters if not p.kinds or not kinds or p.kinds.intersection(kinds)]
        try:
            accepts = partial(self._accepts, adjustable, self._alone(adjustable, Change(())))
        except RefusalError:
            return [], ()
        if not concerned or accepts(Change(())):
            return [], ()
        found = [change for parameter in concerned if (change := _single(parameter, accepts)) is not None]
        if not found and pairs:
            found = list(_pairs(concerned, accepts))
        tried = tuple(_tried(parameter) for parameter in concerned) if len(self._known) < _MAX_PLANS else ()
        return sorted(found, key=lambda change: change.order), tried

    def _accepts(self, adjustable: Adjustable, unchanged: Hashable, change: Change) -> bool:
        """True if devices accept the changed operator by itself; False for changes that cannot be made."""
        key = unchanged, change.key
        if key not in self._known:
            if len(self._known) >= _MAX_PLANS:
                return False
            try:
                changed = self._alone(adjustable, change)
            except RefusalError:
                return False
            self._known[key] = self._accepted(changed)
        return self._known[key]


def _single(parameter: Parameter, accepts: Accepts) -> Change | None:
    """The smallest change of one parameter."""
    refused: list[Value] = []
    for value in _candidates(parameter):
        if accepts(Change(((parameter, value),))):
            return Change(((parameter, _nearest(parameter, value, refused, accepts)),))
        refused.append(value)
    return None


def _nearest(parameter: Parameter, value: Value, refused: Sequence[Value], accepts: Accepts) -> Value:
    """The number next to the old one that is accepted, between an accepted and the last refused one on its side."""
    old = parameter.value
    if parameter.choices or not isinstance(value, int) or not isinstance(old, int):
        return value
    good, bad = value, next((n for n in reversed(refused) if isinstance(n, int) and (n > old) == (value > old)), old)
    while abs(good - bad) > 1:
        middle = (good + bad) // 2
        good, bad = (middle, bad) if accepts(Change(((parameter, middle),))) else (good, middle)
    return good


def _pairs(parameters: Sequence[Parameter], accepts: Accepts) -> Iterator[Change]:
    """Changes of two parameters; the first pair that works."""
    changes = (
        Change(((one, a), (other, b)))
        for one, other in combinations(parameters, 2)
        for a, b in product(_candidates(one)[:_IN_PAIRS], _candidates(other)[:_IN_PAIRS])
    )
    yield from islice(filter(accepts, islice(changes, _MAX_PAIRS)), 1)


def _candidates(parameter: Parameter) -> list[Value]:
    """Values to try, the nearest first."""
    if parameter.choices or not isinstance(parameter.value, int):
        return list(parameter.choices)
    old = int(parameter.value)
    near = {old + k for k in range(-_NEAR, _NEAR + 1)}
    multiples = {m for step in _STEPS for m in (old // step * step, -(-old // step) * step)}
    octaves = {n for k in range(1, _OCTAVES) for n in (old >> k, old << k)}
    allowed = {n for n in near | multiples | octaves if parameter.low <= n <= parameter.high and n != old}
    return [*sorted(allowed, key=lambda n: (abs(n - old), n))]


def _size(parameter: Parameter, value: Value) -> float:
    old = parameter.value
    if isinstance(old, (int, float)) and isinstance(value, (int, float)) and old > 0 and value > 0:
        return parameter.parts * abs(math.log2(value / old))
    return 0.5 * (1 + parameter.choices.index(value)) if value in parameter.choices else 1.0


def _tried(parameter: Parameter) -> str:
    values = _candidates(parameter)
    numbers = [n for n in values if isinstance(n, int)]
    if parameter.choices or not numbers:
        return f"{parameter.name}: {', '.join(_text(value) for value in values)}"
    return f"{parameter.name}: {len(numbers)} numbers from {min(numbers)} to {max(numbers)}"


# -- files and their edits -----------------------------------------------------------------------------------------------------


def _typed(value: Any) -> Any:
    """A setting's value as it is typed; dimensions by name as ``--shape`` has them."""
    return [f"{name}={','.join(map(str, dims))}" for name, dims in value.items()] if isinstance(value, Mapping) else value


class Editing:
    """A file and what can be changed of it; each edited file is written once, for any number of devices that are asked."""

    def __init__(
        self,
        path: Path,
        edits: Callable[[Path], Iterable[Edit]],
        adjust: Adjust,
        positions: Callable[[], Mapping[int, int]] = dict,
    ) -> None:
        self.path = path
        self._edits, self._adjust, self._positions = edits, adjust, positions
        self._folder = TemporaryFolder()
        self._files: dict[bytes, Path] = {}
        self._numbers = count()
        self._known: dict[Hashable, Path | NnbridgeError] = {}

    @cached_property
    def edits(self) -> tuple[Edit, ...]:
        """Rewrites of operators and edits of the whole file; none, with a warning, of a file that cannot be written again."""
        return self._read[0]

    @cached_property
    def _places(self) -> Mapping[int, int]:
        return self._positions()

    def place(self, key: Key) -> Key:
        """The operator of the file that a converted one comes from, where conversion writes out operators in several."""
        subgraph, index = key
        return key if subgraph else (subgraph, self._places.get(index, index))

    @cached_property
    def _read(self) -> tuple[tuple[Edit, ...], bool]:
        """The edits, and whether the file can be written again: one that cannot is not read once more."""
        try:
            return tuple(self._edits(self.path)), True
        except ConversionError as error:
            LOG.warning("%s; without edits of the file, only settings are tried", error)
            return (), False

    @cached_property
    def adjustable(self) -> Callable[[int, int], Adjustable | None]:
        """The properties of an operator that can be changed; nothing in a file that cannot be written again."""

        def found(subgraph: int, index: int) -> Adjustable | None:
            try:
                return None if not self._read[1] else self._adjust(self.path, subgraph, index)
            except ConversionError:
                return None

        return cache(found)

    def edited(self, edit: Edit, key: Hashable = ()) -> Path:
        """The edited file; ``key`` stands for the values of an edit that has such."""
        return self._written((edit.subgraph, edit.index, edit.operator, edit.text, key), edit.content)

    def replacement(self, edit: Edit) -> Path | None:
        """A file of the replacement of an operator."""
        return None if edit.alone is None else self._written((edit.subgraph, edit.index, edit.text, "alone"), edit.alone)

    def alone(self, adjustable: Adjustable, change: Change) -> Path:
        """A file of a changed operator; equal operators have the same."""
        unchanged = self._written(adjustable.content, partial(adjustable.content, {}, True))
        if not change.values:
            return unchanged
        return self._written((unchanged, change.key), partial(adjustable.content, change.by_name, True))

    def _written(self, key: Hashable, content: Callable[[], Content]) -> Path:
        if key not in self._known:
            try:
                self._known[key] = self._file(content())
            except RefusalError as error:
                self._known[key] = error
        known = self._known[key]
        if isinstance(known, NnbridgeError):
            raise known
        return known

    def _file(self, content: Content) -> Path:
        mark = content.mark()
        if mark is None or mark not in self._files:
            folder = Path(self._folder.name) / str(next(self._numbers))
            folder.mkdir()
            content.write(folder / self.path.name, weights=False)
            if mark is None:
                return folder / self.path.name
            self._files[mark] = folder / self.path.name
        return self._files[mark]


def advise(file: ModelFile, target: Target) -> Advised:
    """Changes that move more of a file to the devices. InputError without a device, and where they get all."""
    return FileAdvice(file).on(target)


class FileAdvice:
    """Advice on one file for any phones: its edits are written and converted once, and planned once for equal answers."""

    def __init__(self, file: ModelFile) -> None:
        self._file = file
        self._editing = Editing(
            file.path,
            lambda path: file.edits,
            lambda path, subgraph, index: file.adjustable(subgraph, index),
            lambda: file.importer.positions(file.options),
        )
        self._files: dict[Path, ModelFile] = {file.path: file}
        self._outcomes: dict[Hashable, Outcome] = {}

    def on(self, target: Target, *, prepare: bool = True) -> Advised:
        """The advice for a phone; without ``prepare``, steps that a device fails to prepare are not noticed."""
        if not target.devices:
            raise InputError(Reason("at least one device, to advise on", "none", operand="advice"))
        opened = (device(one) if isinstance(one, str) else one for one in target.devices)
        # Edited files have other operators: devices that look at these are asked about each.
        devices = tuple(one.profile if isinstance(one, BoundDevice) else one for one in opened)
        target = target.with_(devices=devices, kernels="reference", cache_dir=None, android="", feature_level=target.level)
        planner = Planner(partial(self._measure, target, prepare), partial(self._alone, target))
        stated = {} if self._file.asked.shapes else _open_shapes(self._file)
        return found_by(self._editing, planner, target.level, stated)

    def _opened(self, path: Path) -> ModelFile:
        if path not in self._files:
            self._files[path] = ModelFile(path, self._file.asked)
        return self._files[path]

    def _measure(self, target: Target, may_prepare: bool, path: Path, changed: Mapping[str, Any], prepare: bool) -> Outcome:
        """The outcome of a file's plan with some settings changed."""
        of_file = {name: value for name, value in changed.items() if name in _OF_FILE}
        of_target = {name: value for name, value in changed.items() if name not in of_file}
        planned = draft(self._opened(path).with_(**of_file), target.with_(**of_target))
        # Preparing reads all weights and packs many: of a large file that is left to the run.
        if prepare and may_prepare and not is_large(sum(map(len, planned.model.pools))):
            return _outcome(planned.finish())
        answers = _answers(planned)
        if answers is None or answers not in self._outcomes:
            outcome = _outcome(planned.finish(prepare=False))
            if answers is None:
                return outcome
            self._outcomes[answers] = outcome
        return self._outcomes[answers]

    def _alone(self, target: Target, path: Path) -> Alone:
        """The devices' answers for a file of one operator, or of its replacement; names of the whole file mean nothing to it."""
        planned = draft(self._opened(path).with_(shapes={}, signature=""), target)
        if bound := planned.bound:
            refused = _refused(bound)
            some = any(claim.accepted for device in bound for claim in device.claims)
            return Alone(not refused, some, frozenset().union(*refused.values()))
        devices, operations = planned.compilation.devices, planned.model.main.operations
        placed = place(planned.model, devices, planned.compilation.preference)
        places = [p for p in placed if operations[p.operation].mapping != "host"]
        accepted = [p.device is not None and devices[p.device].kind == "device" for p in places]
        host = [operator for operator in planned.mapped if operator.mapping == "host"]
        answers = [a for p in places for a, device in zip(p.answers, devices, strict=True) if device.kind == "device"]
        reasons = [*(r for operator in host for r in operator.reasons), *(a.reason for a in answers if a.reason is not None)]
        return Alone(all(accepted) and not host, any(accepted), frozenset(r.kind for r in reasons if r.kind is not None))


def _open_shapes(file: ModelFile) -> dict[str, tuple[int, ...]]:
    """The dimensions of inputs that leave some open, with 1 for these."""
    inputs = file.with_(mapping="phone").inspection.inputs
    dims = {tensor.name: [max(d or 0, 0) for d in tensor.shape or ()] for tensor in inputs}
    return {name: tuple(d or 1 for d in shape) for name, shape in dims.items() if 0 in shape}


def _refused(bound: Sequence[BoundDevice]) -> dict[Key, frozenset[Why]]:
    """Operators of the file that none of the devices accepts, with the reasons."""
    subgraph, answers = bound[0].graph.subgraph, zip(*(device.claims for device in bound), strict=True)
    reasons = {(subgraph, claims[0].operator.index): [claim.reason for claim in claims] for claims in answers}
    return {key: frozenset(r.kind for r in each if r and r.kind) for key, each in reasons.items() if None not in each}


def _answers(planned: Planned) -> Hashable | None:
    """All that an unprepared plan depends on; None where bodies of control flow are asked about as well.

    Models are retained by their files, so that each has a number of its own.
    """
    compilation = planned.compilation
    if planned.model.referenced:
        return None
    placed = place(planned.model, compilation.devices, compilation.preference)
    answers = tuple((p.device, *(a.reason and a.reason.kind for a in p.answers)) for p in placed)
    claims = tuple((c.operator.index, c.reason and c.reason.kind, c.fault) for d in planned.bound for c in d.claims)
    kinds = tuple(device.kind for device in compilation.devices)
    return id(planned.model), kinds, compilation.max_partitions, answers, claims


def _outcome(planned: Planned) -> Outcome:
    found = operator_outcomes(planned.compilation, planned.mapped, planned.left or {})
    if bound := planned.bound:
        kinds = _refused(bound)
        elsewhere = frozenset(kinds)
    else:
        kinds = refusal_kinds(planned.compilation, planned.mapped)
        elsewhere = frozenset(key for key, outcome in found.items() if outcome not in ("", "device"))
    plan = planned.compilation.plan
    limited = list(found.values()).count("limited")
    refusal = None if planned.bound else refusal_of(planned.mapped, planned.mapping)
    figures = elsewhere, limited, planned.summary.partitions, len(plan.steps), driver_multiply_adds(plan), kinds
    if refusal is None or refusal.stage not in _STANDING:
        return Outcome(*figures, work=_work(plan), faulty=_faulty(bound))
    return Outcome(*figures, refusal.sentence, _STANDING[refusal.stage], _cause(planned, refusal), _work(plan))


def _faulty(bound: Sequence[BoundDevice]) -> frozenset[Key]:
    """Operators that a device takes and is known to compute wrongly."""
    claims = ((device, claim) for device in bound for claim in device.claims if claim.fault)
    return frozenset(
        (device.graph.subgraph, claim.operator.index) for device, claim in claims if device.answer(claim.operator.index) is None
    )


def _work(plan: Plan) -> Mapping[Key, int]:
    """The multiply-adds of the file's operators; of operations that none of them is named for, by their own place."""
    found = Counter[Key]()
    for source, placement in plan.placed():
        model = plan.partition.sources[source].model
        operation = model.main.operations[placement.operation]
        key = (source, placement.operation) if operation.source is None else operation.source.key
        found[key] += multiply_adds(model, operation) or 0
    return {key: count for key, count in found.items() if count}


def _cause(planned: Planned, refusal: Refusal) -> Key | None:
    """The operator for which a file is refused as a whole; every operator of the file then has this refusal."""
    delegation = planned.file.importer.delegation()
    if refusal.stage is Stage.GRAPH and delegation is not None:
        return delegation.dynamic_operator()
    labels = {f"{refusal.client.operator} {one.index} {one.operator}": one.key for one in planned.mapped if not one.subgraph}
    return next((key for label, key in labels.items() if label in (refusal.reason.operation, refusal.reason.operand)), None)


def found_by(
    editing: Editing, planner: Planner, level: int, shapes: Mapping[str, tuple[int, ...]] = MappingProxyType({})
) -> Advised:
    """Changes that move more of a file to its devices, the most effective first; of one operator the first that helps.

    ``shapes``: values for open dimensions of the inputs.
    """
    advising = _Advising(editing, planner, planner.measure(editing.path, {}, True))
    rewrites = list(advising.rewrites())
    operators = list(advising.smallest(rewrites))
    found = [*advising.settings(level, shapes), *rewrites, *(one for one in operators if isinstance(one, Advice))]
    unmoved = [one for one in operators if isinstance(one, Unmoved)]
    return Advised(tuple(sorted(found, key=rank)), tuple(sorted(unmoved, key=lambda one: -(one.share or 0))))


_ORDER = ("rewrite", "setting", Answers.ROUND, Answers.CHANGE, Answers.CALIBRATE)


def rank(advice: Advice) -> tuple[int, ...]:
    """Smaller changes first among those of one kind that come to the same."""
    after, whole = advice.after, advice.edit is not None and not advice.edit.keys
    runs = len(after.elsewhere), len(after.faulty), after.partitions, after.steps, -after.multiply_adds
    figures = int(advice.slight), after.standing, *runs
    return *figures, _ORDER.index(advice.kind), int(whole)


@dataclass(frozen=True)
class _Advising:
    editing: Editing
    planner: Planner
    before: Outcome

    def settings(self, level: int, shapes: Mapping[str, tuple[int, ...]]) -> Iterator[Advice]:
        """Options of the command that help, and the first feature level that does."""
        if shapes:
            yield from self._setting(f"inputs of stated dimensions ({', '.join(_typed(shapes))})", {"shapes": dict(shapes)})
        for higher in range(level + 1, RUNTIME_FEATURE_LEVEL + 1):
            found = list(self._setting(f"feature level {higher} ({android_name(higher)})", {"feature_level": higher}))
            yield from found
            if found:
                break
        if self.before.limited:
            yield from self._setting("no limit on partitions (the delegate's option)", {"max_partitions": 0})
        if any(Why.DYNAMIC_GRAPH in kinds for kinds in self.before.kinds.values()):
            text = "dynamic dimensions allowed (allow_dynamic_dimensions, the delegate's option)"
            yield from self._setting(text, {"allow_dynamic_dimensions": True})

    def _setting(self, text: str, options: Mapping[str, Any]) -> Iterator[Advice]:
        after = self._improved(self.editing.path, options)
        if after is not None:
            yield Advice(text, self.before, after, options)

    def _improved(self, path: Path, options: Mapping[str, Any]) -> Outcome | None:
        """The outcome if it is better; steps, whose preparation can only fail, are prepared where the plan is."""
        try:
            if self.planner.measure(path, options, False).better_than(self.before):
                after = self.planner.measure(path, options, True)
                return after if after.better_than(self.before) else None
        except RefusalError:
            pass  # Dimensions that do not fit each other are no advice.
        return None

    def rewrites(self) -> Iterator[Advice]:
        """Edits that help: the first one of each operator elsewhere, and those of the whole file.

        What several operators of one name have is one edit of all of them, where that helps.
        """
        helped: set[Key] = set()
        alike: dict[tuple[str, str], list[Edit]] = {}
        for edit in self.editing.edits if self.before.elsewhere or self.before.faulty else ():
            if edit.index == WHOLE:
                yield from self._edited(edit)
            elif self._concerned.intersection(edit.keys) and not self._accepted_but_elsewhere(edit.keys[0]):
                alike.setdefault((edit.operator, edit.text), []).append(edit)
        for edits in alike.values():
            rest = [one for one in edits if not helped.intersection(one.keys) and self._may_help(one)]
            together = list(self._edited(_together(rest))) if len(rest) > 1 and rest[0].several is not None else []
            for one in rest if not together else ():
                for advice in self._edited(one):
                    helped.update(one.keys)
                    yield advice
            for advice in together:
                helped.update(key for one in rest for key in one.keys)
                yield advice

    @cached_property
    def _in_file(self) -> Outcome:
        """The outcome before, by the file's own operators."""
        kinds: dict[Key, frozenset[Why]] = {}
        for key, found in self.before.kinds.items():
            kinds[self.editing.place(key)] = kinds.get(self.editing.place(key), frozenset()) | found
        cause = None if self.before.cause is None else self.editing.place(self.before.cause)
        work = Counter[Key]()
        for key, products in self.before.work.items():
            work[self.editing.place(key)] += products
        elsewhere, faulty = (frozenset(map(self.editing.place, keys)) for keys in (self.before.elsewhere, self.before.faulty))
        return replace(self.before, elsewhere=elsewhere, kinds=kinds, cause=cause, work=work, faulty=faulty)

    @cached_property
    def _concerned(self) -> frozenset[Key]:
        """Operators whose edits may help: those elsewhere, and those that the device computes wrongly; of a file refused as a
        whole, its cause and others of that type."""
        cause = self._in_file.cause
        if not self.before.standing or cause is None:
            return self._in_file.elsewhere | self._in_file.faulty
        found = self.editing.adjustable(*cause)
        alike = {key for edit in self.editing.edits for key in edit.keys if found is not None and edit.operator == found.operator}
        return self._in_file.elsewhere & {cause, *alike}

    def _accepted_but_elsewhere(self, key: Key) -> bool:
        """True for an operator that devices accept, and that runs elsewhere for other reasons."""
        kinds = self._in_file.kinds.get(key, frozenset())
        return bool(kinds) and kinds <= _ACCEPTED

    def _may_help(self, edit: Edit) -> bool:
        """False where the devices accept nothing of the replacement of the operator by itself: the whole file is not planned.

        This counts only if the operator by itself is refused for the reasons that it is refused for in the file.
        """
        key = edit.subgraph, edit.index
        adjustable = self.editing.adjustable(*key)
        if adjustable is None or self.before.standing:
            return True
        try:
            unchanged = self.planner.alone(self.editing.alone(adjustable, Change(())))
            if unchanged.some or unchanged.kinds != self._in_file.kinds.get(key, frozenset()):
                return True
            replacement = self.editing.replacement(edit)
            return replacement is None or self.planner.alone(replacement).some
        except RefusalError:
            return True

    def _edited(self, edit: Edit, key: Hashable = ()) -> Iterator[Advice]:
        """The edit as advice, if it can be made of the file, can be planned and helps."""
        try:
            edited = self.editing.edited(edit, key)
        except RefusalError:
            return
        after = self._improved(edited, {})
        if after is not None:
            place = f"{edit.index} {edit.operator}" if edit.index != WHOLE else edit.operator or "whole file"
            yield Advice(f"{place}: {edit.text}", self.before, after, edit=edit)

    def smallest(self, rewrites: Sequence[Advice]) -> Iterator[Advice | Unmoved]:
        """The smallest change of each operator elsewhere that no rewrite moves; first of those that no edit of the file moves."""
        own = {key for a in rewrites if a.edit for key in a.edit.keys}
        moved: set[Key] = set()
        for whole in (a for a in rewrites if a.edit and a.edit.index == WHOLE and not a.edit.operator):
            gone = self._in_file.elsewhere - {self.editing.place(key) for key in self.before.elsewhere & whole.after.elsewhere}
            moved |= gone
            own |= gone if whole.kind in ("rewrite", Answers.ROUND) else set()
        search = AdjustmentSearch(self.editing.alone, self._accepted)
        searched = self._in_file.elsewhere
        if self.before.standing and self._in_file.cause is not None:
            created = any(a.after.standing < self.before.standing for a in rewrites if a.kind in ("rewrite", Answers.ROUND))
            searched &= set() if created else {self._in_file.cause}
        for key in sorted(searched - own, key=lambda key: (key in moved, key)):
            kinds = self._in_file.kinds.get(key, frozenset())
            adjustable = None if kinds & _NOT_EDITED else self.editing.adjustable(*key)
            if adjustable is None:
                continue  # Nothing to edit, no operator of the file, or a format of which nothing can be changed.
            changes, tried = search.changes(adjustable, kinds, key not in moved)
            advice = next(self._verified(key, adjustable, changes[:_MAX_VERIFIED]), None)
            if advice:
                yield advice
            elif key not in moved or adjustable.converter:
                alone = str(changes[0]) if changes else ""
                yield Unmoved(*key, adjustable.operator, tried, alone, adjustable.converter, self._share(key))

    def _share(self, key: Key) -> float | None:
        total = sum(self.before.work.values())
        return self._in_file.work.get(key, 0) / total if total else None

    def _accepted(self, path: Path) -> bool:
        try:
            return self.planner.alone(path).every
        except RefusalError:
            return False

    def _verified(self, key: Key, adjustable: Adjustable, changes: Sequence[Change]) -> Iterator[Advice]:
        for change in changes:
            content = partial(adjustable.content, change.by_name, False)
            edit = Edit(*key, adjustable.operator, str(change), content, change.answers, converter=change.converter)
            yield from self._edited(edit, change.key)


def _together(edits: Sequence[Edit]) -> Edit:
    """One edit of several operators of one name that have the same replacement."""
    first, keys = edits[0], tuple(key for one in edits for key in one.keys)
    assert first.several is not None, "an edit that several operators share"
    content = partial(first.several, keys)
    return replace(first, index=WHOLE, operator=f"{len(keys)} {first.operator}", content=content, alone=None, together=keys)


def different_outputs(run: Callable[[Path, int], Mapping[str, Array]], path: Path, edited: Path, seeds: Iterable[int]) -> str:
    """The first output in which two files differ in a bit, by name and seed; empty if all answers are equal."""
    for seed in seeds:
        one, other = run(path, seed), run(edited, seed)
        for (name, a), b in zip(one.items(), other.values(), strict=True):
            if a.dtype != b.dtype or a.shape != b.shape or not np.array_equal(a.view(np.uint8), b.view(np.uint8)):
                return f"{name} with seed {seed}"
    return ""
