"""Count of plans and advices by outcome: each is in one class, and the classes add up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

PREDICTED = "re-planned as predicted"
REFUSED = "cannot be planned"
DIFFERS = "planned, not as predicted"
UNEQUAL = "answers not shown equal"
ADVISED = "planned, with advice"
UNADVISED = "planned, without advice"
NOT_PLANNED = "not planned"
LOST = "planned, but the advice on it is refused"
FAILURES = (REFUSED, DIFFERS, UNEQUAL, LOST)
_KINDS = {
    "rewrite": "exact rewrites",
    "setting": "settings of the command, planned with them",
    "round": "edits that round otherwise",
    "change": "edits that change answers",
    "calibrate": "edits whose numbers must come from data, planned with stand-ins",
}
"""Kind of advice → in words; all kinds are planned anew, the first one runs as well."""


@dataclass(frozen=True)
class Tally:
    """Plans and advices by class and reason, and rewrites by their judges."""

    plans: Counter[tuple[str, str]] = field(default_factory=Counter)
    """A file on a device under an Android version."""
    advices: Counter[tuple[str, str]] = field(default_factory=Counter)
    rewrites: Counter[str] = field(default_factory=Counter)
    """Different rewrites that ran; many advices may be about one."""

    def __add__(self, other: Tally) -> Tally:
        return Tally(self.plans + other.plans, self.advices + other.advices, self.rewrites + other.rewrites)

    @property
    def failed(self) -> bool:
        """True if anything is in a class that is a failure."""
        return any(one in FAILURES for one, _ in (*self.plans, *self.advices))

    @property
    def short(self) -> str:
        """One line."""
        return f"{_sum('combinations', self.plans)}; {_sum('advices', self.advices)}"

    def lines(self) -> Iterable[str]:
        """The sums, and what each class consists of."""
        for what, counts in (("combinations of file, device and Android", self.plans), ("advices", self.advices)):
            yield _sum(what, counts)
            for (one, detail), count in sorted(counts.items()):
                if detail:
                    yield f"  {one}: {count} {_KINDS.get(detail, detail)}"
        yield f"{self.rewrites.total()} different rewrites run"
        for judges, count in self.rewrites.items():
            yield f"  {count} {judges}"


def _sum(what: str, counts: Counter[tuple[str, str]]) -> str:
    """``5 advices = 3 re-planned as predicted + 2 cannot be planned``."""
    classes: Counter[str] = Counter()
    for (one, _), count in counts.items():
        classes[one] += count
    return (
        f"{counts.total()} {what}" + (" = " if classes else "") + " + ".join(f"{n} {one}" for one, n in sorted(classes.items()))
    )
