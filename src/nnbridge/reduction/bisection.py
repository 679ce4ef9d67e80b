"""Search over placements for the operations that cause a symptom when devices run them.

Operations that are not on a driver run on the CPU. The first operations in run order are placed, as many as halving the range
asks for, until one is found that causes the symptom to those before it; then everything else is placed. If that shows the
symptom too there are several, and the search continues without those that were found. docs/reduce.md has an example.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from typing import Any

from nnbridge.compare.results import NotebookResult
from nnbridge.compare.samples import Sample
from nnbridge.errors import InputError, Reason
from nnbridge.model import Model
from nnbridge.records import dataclass
from nnbridge.reduction.parts import ReductionCandidate
from nnbridge.reduction.placing import Placed, Placements
from nnbridge.reduction.search import minimised, shortest_prefix
from nnbridge.reduction.symptoms import Search, Symptom, symptom_of

MAX_RUNS = 500
"""Runs after which a search among several culprits ends with what it has."""


@dataclass(frozen=True)
class Culprit:
    """An operation that causes a symptom."""

    placed: Placed
    symptom: Symptom
    """What was wrong when it came to the operations before it."""

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        at = self.placed
        where = {"operation": at.index, "operator": at.operator, "type": at.operation, "tensor": at.tensor, "body": at.within}
        return {**where, "device": at.device, "symptom": self.symptom.kind, "detail": self.symptom.detail}


@dataclass(frozen=True, repr=False)
class Bisection(NotebookResult):
    """The operations that cause a symptom."""

    model: str
    devices: tuple[str, ...]
    placed: int
    """Operations that drivers get."""
    culprits: tuple[Culprit, ...]
    runs: int
    cured: bool = False
    """True if everything but the culprits, on the devices, was run without the symptom."""
    elsewhere: Symptom | None = None
    """The symptom without any operation on the devices."""
    interrupted: bool = False

    @property
    def found(self) -> bool:
        """True if the culprits are known to be all."""
        return bool(self.culprits) and self.cured

    @property
    def sentence(self) -> str:
        """The answer in one sentence."""
        on = f"{self.model} on {', '.join(self.devices)}"
        runs = f"{self.runs} run{'' if self.runs == 1 else 's'}"
        if self.elsewhere is not None:
            return f"{on}: the device is not the cause: with nothing on it, {self.elsewhere} ({runs})"
        if not self.culprits:
            return (
                f"{on}: {'interrupted' if self.interrupted else 'no fault found'} with {self.placed} operations placed ({runs})"
            )
        first, more = self.culprits[0], len(self.culprits) - 1
        others = f" and {more} other{'' if more == 1 else 's'}" if more else ""
        rest = "the rest on the devices is right" if self.cured else "the rest is not known to be right"
        noun = "operation" if not more else "operations"
        return f"{on}: {noun} {first.placed}{others} of {self.placed}: {first.symptom}; {rest} ({runs})"

    def records(self) -> Sequence[Mapping[str, Any]]:
        """A row for each culprit."""
        return [culprit.as_dict() for culprit in self.culprits]

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        elsewhere = None if self.elsewhere is None else {"symptom": self.elsewhere.kind, "detail": self.elsewhere.detail}
        head = {"model": self.model, "devices": list(self.devices), "placed": self.placed, "runs": self.runs}
        culprits = [culprit.as_dict() for culprit in self.culprits]
        ends = {"elsewhere": elsewhere, "cured": self.cured, "interrupted": self.interrupted}
        return {**head, "sentence": self.sentence, "found": self.found, "culprits": culprits, **ends}


def bisect(
    model: Model,
    search: Search,
    samples: Iterable[Sample],
    *,
    max_partitions: int = 0,
    max_runs: int = MAX_RUNS,
    progress: Callable[[int], None] = lambda done: None,
) -> Bisection:
    """Search for the operations that cause a symptom of some samples with a reference's outputs; states begin again for each.

    ``progress`` is called after each run. After KeyboardInterrupt what was found is the result. InputError if drivers get
    nothing.
    """
    placements = Placements.of(model, search.drivers, search.preference, max_partitions)
    if not placements.placed:
        names = ", ".join(driver.name for driver in search.drivers) or "no driver"
        wrong = next((f": {answer.reason.found}" for answer in placements.wrong if answer.reason is not None), "")
        raise InputError(Reason("a device that accepts an operation of this model", f"none: {names}{wrong}", operand="device"))
    return _Bisecting(model, search, tuple(samples), placements, max_runs, progress).result()


class _Exhausted(Exception):
    """No run is left."""


@dataclass
class _Bisecting:
    model: Model
    search: Search
    samples: Sequence[Sample]
    placements: Placements
    max_runs: int
    progress: Callable[[int], None]
    runs: int = 0
    culprits: list[Culprit] = field(default_factory=list)
    cured: bool = False

    def shows(self, chosen: Sequence[Placed]) -> Symptom | None:
        """One run: of all samples until one shows the symptom."""
        if self.runs >= self.max_runs:
            raise _Exhausted
        self.runs += 1
        drivers = self.placements.limited(chosen)
        found = (symptom_of(self.search, ReductionCandidate(self.model, s.inputs), s.outputs, drivers) for s in self.samples)
        symptom = next((s for s in found if s is not None), None)
        self.progress(1)
        return symptom

    def result(self) -> Bisection:
        elsewhere, interrupted = None, False
        try:
            elsewhere = self._search()
        except KeyboardInterrupt:
            interrupted = True
        except _Exhausted:
            pass
        order = {placed: k for k, placed in enumerate(self.placements.placed)}
        culprits = () if elsewhere else tuple(sorted(self.culprits, key=lambda culprit: order[culprit.placed]))
        names = tuple(driver.name for driver in self.search.drivers)
        placed = len(self.placements.placed)
        return Bisection(self.model.name, names, placed, culprits, self.runs, self.cured, elsewhere, interrupted)

    def _search(self) -> Symptom | None:
        """Add culprits; the symptom without any device, if that is what there is."""
        rest = list(self.placements.placed)
        while rest:
            symptoms: dict[int, Symptom | None] = {}

            def prefix_shows(count: int, rest: Sequence[Placed] = rest, symptoms: dict[int, Symptom | None] = symptoms) -> bool:
                symptoms[count] = self.shows(rest[:count])
                return symptoms[count] is not None

            count = shortest_prefix(len(rest), prefix_shows)
            if count is None:
                break
            brought = symptoms[count]
            assert brought is not None
            self.culprits.append(Culprit(rest.pop(count - 1), brought))
            left = self.shows(rest)
            if left is None:
                self.cured = True
                break
            if not rest or (count == 1 and len(self.culprits) == 1 and (left := self.shows(()))):
                return left
        if self.cured and len(self.culprits) > 1:
            self._minimise()
        return None

    def _minimise(self) -> None:
        """Without those whose company is right once others are left out."""

        def cures(left_out: Sequence[Culprit]) -> bool:
            out = {culprit.placed for culprit in left_out}
            cured = self.shows([placed for placed in self.placements.placed if placed not in out]) is None
            if cured:
                self.culprits = list(left_out)
            return cured

        minimised(self.culprits, cures)
