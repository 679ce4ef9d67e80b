"""A conformance run as tables and as JUnit XML."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from xml.etree import ElementTree

from nnbridge.conformance.outcome import NOT_TAKEN, STATUSES, SuiteOutcome
from nnbridge.devices.evidence import Evidence, evidence_lines
from nnbridge.report.terminal import Table, counted, printable
from nnbridge.storage.atomic import atomic_write


def conformance_tables(outcome: SuiteOutcome, device: str, variant: str, evidence: Sequence[Evidence] = ()) -> list[Table | str]:
    """Counts by suite, the operations that a driver does not accept and the reasons, failures, evidence, and last the verdict."""

    def tallies(what: str, title: str, counts: Mapping[str, Mapping[str, int]]) -> Table:
        columns = (what, *(status.replace("_", " ") for status in STATUSES), "total")
        return Table(title, columns, [(name, *map(str, tally.values())) for name, tally in counts.items()])

    blocks: list[Table | str] = [tallies("suite", f"Conformance on {device}{variant}", {**outcome.suites, "all": outcome.sums})]
    partly = {name: tally for name, tally in outcome.operations.items() if tally[NOT_TAKEN]}
    if partly:
        blocks.append(tallies("operation", "Operations of cases that were not accepted", partly))
        reasons = [
            (r.operation, str(count), " ".join(filter(None, (r.operand, r.rule))), r.found) for r, count in outcome.unsupported
        ]
        blocks.append(Table("Why not", ("operation", "cases", "requires", "found"), reasons))
    failures = [(f"{r.suite}/{r.spec} {r.case}", r.failure.message) for r in outcome.results if r.failure]
    if failures:
        blocks.append(Table("Failures", ("case", "what failed"), failures))
    return [*blocks, *evidence_lines(evidence), f"{outcome.verdict(evidence)}: {_verdict(outcome, device)}"]


def _verdict(outcome: SuiteOutcome, device: str) -> str:
    if outcome.nothing_ran:
        return f"no case ran; {device} accepts none of them completely"
    sums = outcome.sums
    counts = ", ".join(f"{sums[status]:,} {status.replace('_', ' ')}" for status in STATUSES if sums[status])
    return f"{counts} of {counted(outcome.total, 'case')} on {device}"


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
