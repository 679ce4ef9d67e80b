"""The smallest part of a model that still shows what the whole one does, fed what reaches it in the whole."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from nnbridge.compare.layers import titles
from nnbridge.compare.results import NotebookResult
from nnbridge.model import Model
from nnbridge.records import dataclass
from nnbridge.reduction.parts import ReductionCandidate, Whole
from nnbridge.reduction.search import minimised
from nnbridge.reduction.simplifying import simplified
from nnbridge.reduction.symptoms import Predicate, Symptom


@dataclass(frozen=True, repr=False)
class Reduction(NotebookResult):
    """A part of a model that shows a symptom, without any operation of which it shows it no more."""

    model: str
    of: int
    """Operations of the whole model."""
    operations: tuple[int, ...]
    """Those that are left, by their index in the whole model."""
    symptom: Symptom | None
    """What the part shows; None if the whole model does not show it."""
    runs: int
    candidate: ReductionCandidate
    whole: Model
    interrupted: bool = False
    simplified: tuple[str, ...] = ()
    """Sizes, inputs and constants of the candidate that are not the whole model's."""

    @property
    def sentence(self) -> str:
        """The answer in one sentence."""
        runs = f"{self.runs} run{'' if self.runs == 1 else 's'}"
        if self.symptom is None:
            return f"{self.model}: the whole model does not show the fault ({runs})"
        names = ", ".join(record["operator"] for record in self.records()[:3])
        more = f" and {len(self.operations) - 3} more" if len(self.operations) > 3 else ""
        shows = "shows" if len(self.operations) == 1 else "show"
        return f"{self.model}: {len(self.operations)} of {self.of} operations {shows} it: {names}{more}; {self.symptom} ({runs})"

    def records(self) -> Sequence[Mapping[str, Any]]:
        """A row for each operation that is left."""
        main = self.whole.main
        rows = []
        for k in self.operations if self.symptom is not None else ():
            operator, operation = titles(self.whole, main.operations[k])
            tensor = main.operands[main.operations[k].outputs[0]].name if main.operations[k].outputs else ""
            rows.append({"operation": k, "operator": operator, "type": operation, "tensor": tensor})
        return rows

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        symptom = None if self.symptom is None else {"symptom": self.symptom.kind, "detail": self.symptom.detail}
        head = {"model": self.model, "of": self.of, "runs": self.runs, "sentence": self.sentence, "shows": symptom}
        changes = {"operations": list(self.records()), "simplified": list(self.simplified)}
        return {**head, **changes, "interrupted": self.interrupted}


def reduce(
    whole: Whole, predicate: Predicate, progress: Callable[[int], None] = lambda done: None, *, simplify: bool = False
) -> Reduction:
    """The smallest part for which a predicate holds, if it holds for the whole; ``progress`` is called after each run.

    ``simplify``: its shapes and values are made smaller and plainer too.

    The part is minimal: it loses the symptom without any one of its operations. After KeyboardInterrupt the smallest part so
    far is the result.
    """
    model = whole.candidate.model
    count = len(model.main.operations)
    best, runs, interrupted = whole.candidate, 0, False
    left: tuple[int, ...] = tuple(range(count))
    symptom: Symptom | None = None

    def shows(candidate: ReductionCandidate) -> bool:
        nonlocal best, symptom, runs
        runs += 1
        found = predicate(candidate)
        progress(1)
        if found is not None:
            best, symptom = candidate, found
        return found is not None

    def holds(chosen: tuple[int, ...]) -> bool:
        nonlocal left
        candidate = whole.candidate if len(chosen) == count else whole.part(chosen)
        if candidate is None or not shows(candidate):
            return False
        left = chosen
        return True

    changes: list[str] = []
    try:
        if holds(left):
            minimised(left, holds)
            for change in simplified(best, whole.reference, shows) if simplify else ():
                changes.append(change)
    except KeyboardInterrupt:
        interrupted = True
    return Reduction(model.name, count, left, symptom, runs, best, model, interrupted, tuple(changes))
