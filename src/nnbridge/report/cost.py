"""Tables of a plan's costs."""

from __future__ import annotations

from collections.abc import Iterator

from nnbridge.cost import PlanCost
from nnbridge.report.terminal import Table, short_name


def cost_tables(cost: PlanCost) -> Iterator[Table | str]:
    """The sums in a sentence, a row for each step, a row for each operation."""
    yield (
        f"{_shown(cost.multiply_adds)} multiply-adds, {cost.parameters:,} parameters in {cost.parameter_bytes:,} bytes; "
        f"{_shown(cost.crossing_bytes)} bytes cross between steps, {_shown(cost.peak_bytes)} bytes at once for values in between"
    )
    steps = [
        (
            str(number),
            step.device,
            str(step.operations),
            _shown(step.multiply_adds),
            f"{step.parameters:,}",
            _shown(step.inputs.bytes),
            _shown(step.outputs.bytes),
            _shown(step.peak_bytes),
        )
        for number, step in enumerate(cost.steps)
    ]
    columns = ("step", "device", "operations", "multiply-adds", "parameters", "bytes in", "bytes out", "peak bytes")
    yield Table("Cost of steps", columns, steps, "peak bytes: for values between the step's operations")
    largest_first = sorted(cost.operations, key=lambda o: -1 if o.multiply_adds is None else o.multiply_adds, reverse=True)
    operations = [
        (
            short_name(o.name or o.type),
            _shown(o.multiply_adds),
            f"{o.parameters:,}",
            f"{o.parameter_bytes:,}",
            _shown(o.activation_bytes),
        )
        for o in largest_first
    ]
    yield Table(
        "Cost of operations, largest first",
        ("operation", "multiply-adds", "parameters", "parameter bytes", "activation bytes"),
        operations,
    )


def _shown(number: int | None) -> str:
    return "open" if number is None else f"{number:,}"
