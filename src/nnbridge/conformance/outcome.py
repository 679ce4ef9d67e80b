"""The outcome of conformance cases, counted by suite, by operation and by the reasons of drivers that do not accept them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, field
from typing import Any

from nnbridge.devices.evidence import NUMBERS_UNKNOWN, Evidence, unknown_numbers
from nnbridge.errors import Reason
from nnbridge.records import dataclass

PASSED, FAILED, REFUSED, NOT_TAKEN = STATUSES = ("passed", "failed", "refused_as_expected", "not_taken")
"""``refused_as_expected``: a model that must be refused, and was. ``not_taken``: the driver does not accept every operation of
the case; Android's suite skips such cases as well."""


@dataclass(frozen=True)
class Failure:
    """A fault of one case; ``output`` and ``index`` are -1 where no single value is wrong."""

    message: str
    output: int = -1
    index: int = -1
    expected: float | None = None
    actual: float | None = None
    tolerance: float | None = None


@dataclass(frozen=True)
class CaseResult:
    """The outcome of one case."""

    suite: str
    spec: str
    case: str
    status: str
    operations: tuple[str, ...] = ()
    """The operations of the main model, each once."""
    seconds: float = 0.0
    failure: Failure | None = None
    unsupported: tuple[Reason, ...] = ()
    """Why the driver does not accept operations of the case, each reason once."""


def _tally(results: Iterable[CaseResult]) -> dict[str, int]:
    counts = Counter(result.status for result in results)
    return {**{status: counts[status] for status in STATUSES}, "total": counts.total()}


@dataclass
class SuiteOutcome:
    """The results of many cases."""

    results: list[CaseResult] = field(default_factory=list)

    @property
    def failures(self) -> list[CaseResult]:
        """The results that failed."""
        return [result for result in self.results if result.failure is not None]

    @property
    def total(self) -> int:
        """The number of cases."""
        return len(self.results)

    @property
    def suites(self) -> dict[str, dict[str, int]]:
        """The number of cases of each suite by outcome."""
        names = sorted({result.suite for result in self.results})
        return {name: _tally(r for r in self.results if r.suite == name) for name in names}

    @property
    def operations(self) -> dict[str, dict[str, int]]:
        """The number of cases with each operation by outcome."""
        by_name: dict[str, list[CaseResult]] = {}
        for result in self.results:
            for name in result.operations:
                by_name.setdefault(name, []).append(result)
        return {name: _tally(by_name[name]) for name in sorted(by_name)}

    @property
    def unsupported(self) -> list[tuple[Reason, int]]:
        """The reasons why cases were not accepted, each with its number of cases, the most frequent first."""
        return Counter(reason for result in self.results for reason in result.unsupported).most_common()

    @property
    def sums(self) -> dict[str, int]:
        """The number of cases by outcome."""
        return _tally(self.results)

    @property
    def nothing_ran(self) -> bool:
        """True if the device accepted no case whole; models that must be refused never reach it."""
        sums = self.sums
        return sums[PASSED] + sums[FAILED] == 0 and (sums[NOT_TAKEN] > 0 or not self.results)

    @property
    def passed(self) -> bool:
        """True if nothing failed and something ran."""
        return not self.failures and not self.nothing_ran

    def verdict(self, evidence: Sequence[Evidence] = ()) -> str:
        """``pass`` or ``FAIL``; where no case fails by the numbers of a device of which nothing is known, that."""
        return (NUMBERS_UNKNOWN if unknown_numbers(evidence) else "pass") if self.passed else "FAIL"

    def as_dict(self, evidence: Sequence[Evidence] = ()) -> dict[str, Any]:
        """JSON-ready counts, failures and evidence."""
        verdict = self.verdict(evidence)
        return {
            "pass": {"pass": True, "FAIL": False}.get(verdict),
            "within": self.passed,
            "verdict": verdict,
            "evidence": [each.as_dict() for each in evidence],
            "suites": self.suites,
            "operations": self.operations,
            "unsupported": [{**reason.as_dict(), "cases": count} for reason, count in self.unsupported],
            "failures": [
                {"suite": r.suite, "spec": r.spec, "case": r.case, **asdict(r.failure)} for r in self.results if r.failure
            ],
        }
