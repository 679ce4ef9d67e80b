"""A comparison as a table."""

from __future__ import annotations

from nnbridge.compare import Comparison, OutputComparison
from nnbridge.report.terminal import Table, counted


def comparison_tables(comparison: Comparison) -> list[Table | str]:
    """One row for each output, and below the table where those that fail differ or why they could not be compared."""
    verdict = "pass" if comparison.passed else "FAIL"
    title = f"{comparison.model} on {comparison.device} against {comparison.reference}"
    columns = ("output", "type", "elements", "max diff", "mean diff", "unequal", "allowed", "verdict")
    rows = [(o.name, o.type, str(o.elements), *_differences(o), "pass" if o.passed else "FAIL") for o in comparison.outputs]
    lines = [f"{o.name}: {line}" for o in comparison.outputs for line in _failure(o)]
    return [Table(f"{title}, {counted(comparison.samples, 'sample')}: {verdict}", columns, rows), *lines]


def _differences(output: OutputComparison) -> tuple[str, ...]:
    if output.problem or not output.elements:
        return ("-",) * 4
    largest, mean = output.max_abs_diff, output.mean_abs_diff
    allowed = f"{output.atol:.3g}" + (f" + {output.rtol:.2g}·|r|" if output.rtol else "")
    return (
        "-" if largest is None else f"{largest:.3g}",
        "-" if mean is None else f"{mean:.2g}",
        f"{output.mismatches / output.elements:.2%}",
        allowed,
    )


def _failure(output: OutputComparison) -> list[str]:
    """Why an output fails, and where it differs most; values that are not finite in any case."""
    lines = [output.problem] if output.problem else []
    if output.non_finite:
        unequal = f", {output.non_finite_unequal} of them not the same" if output.non_finite_unequal else ", all of them the same"
        lines.append(f"{counted(output.non_finite, 'element')} infinite or no number on one side or both{unequal}")
    if output.beyond and output.worst is not None:
        at = f"{list(output.worst.index)} of {output.worst.sample}" if output.worst.sample else str(list(output.worst.index))
        found = f"{_number(output.worst.actual)}, reference {_number(output.worst.expected)}"
        lines.append(f"{output.beyond:,} of {counted(output.elements, 'element')} beyond tolerance, the worst at {at}: {found}")
    return lines


def _number(value: complex) -> str:
    return str(value) if isinstance(value, int) else f"{value:.6g}"
