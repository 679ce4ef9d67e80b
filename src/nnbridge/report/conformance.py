"""A conformance run as tables and as JUnit XML."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from xml.etree import ElementTree

from nnbridge.conformance.outcome import NOT_TAKEN, STATUSES, SuiteOutcome
from nnbridge.report.terminal import Table, counted, printable
from nnbridge.storage.atomic import atomic_write

_MAX_FAILURES = 20
_MAX_REASONS = 20


def conformance_tables(outcome: SuiteOutcome, title: str) -> list[Table | str]:
    """The first failures, counts by suite, and which operations a driver does not accept for which reasons."""
    failures = [f"{r.suite}/{r.spec} {r.case}: {r.failure.message}" for r in outcome.results if r.failure]
    shown: list[Table | str] = [*failures[:_MAX_FAILURES]]
    if len(failures) > _MAX_FAILURES:
        shown.append(f"{counted(len(failures) - _MAX_FAILURES, 'more failure')}: see --json")

    def tallies(what: str, title: str, counts: Mapping[str, Mapping[str, int]]) -> Table:
        columns = (what, *(status.replace("_", " ") for status in STATUSES), "total")
        return Table(title, columns, [(name, *map(str, tally.values())) for name, tally in counts.items()])

    shown.append(tallies("suite", title, {**outcome.suites, "all": outcome.sums}))
    partly = {name: tally for name, tally in outcome.operations.items() if tally[NOT_TAKEN]}
    if partly:
        shown.append(tallies("operation", "Operations of cases that were not accepted", partly))
        counts = [
            (r.operation, str(count), " ".join(filter(None, (r.operand, r.rule))), r.found) for r, count in outcome.unsupported
        ]
        more = f"{counted(len(counts) - _MAX_REASONS, 'more reason')}: see --json" if len(counts) > _MAX_REASONS else ""
        shown.append(Table("Why not", ("operation", "cases", "requires", "found"), counts[:_MAX_REASONS], more))
    return shown


def write_junit(outcome: SuiteOutcome, device: str, path: Path) -> None:
    """Write a run as JUnit XML: a test suite for each suite, ``skipped`` for cases that the driver does not accept."""
    root = ElementTree.Element("testsuites", name=printable(f"nnbridge vts {device}"))
    for suite, tally in outcome.suites.items():
        results = [result for result in outcome.results if result.suite == suite]
        numbers = {"tests": tally["total"], "failures": tally["failed"], "errors": 0, "skipped": tally[NOT_TAKEN]}
        seconds = f"{sum(result.seconds for result in results):.3f}"
        names = {"name": printable(suite), **{key: str(number) for key, number in numbers.items()}, "time": seconds}
        element = ElementTree.SubElement(root, "testsuite", names)
        for result in results:
            where = {"classname": printable(f"{suite}.{result.spec}"), "name": printable(result.case)}
            case = ElementTree.SubElement(element, "testcase", where, time=f"{result.seconds:.3f}")
            if result.failure is not None:
                message = printable(result.failure.message)
                ElementTree.SubElement(case, "failure", message=message).text = message
            elif result.status == NOT_TAKEN:
                why = "; ".join(printable(str(reason)) for reason in result.unsupported)
                ElementTree.SubElement(case, "skipped", message=why)
    with atomic_write(path) as file:
        ElementTree.ElementTree(root).write(file, encoding="utf-8", xml_declaration=True)
