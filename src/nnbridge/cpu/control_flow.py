"""IF and WHILE on the CPU executor, and what bounds a run."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TypeAlias

from nnbridge.errors import MissedDeadlineTransientError, OpFailedError, Reason
from nnbridge.model import Array, Operation, Subgraph
from nnbridge.operations.call import Arg
from nnbridge.records import dataclass
from nnbridge.types import DEFAULT_LOOP_TIMEOUT_NS, OperationCode, is_extension


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of one run, an absolute deadline (``time.monotonic_ns``) and the time for each WHILE loop, and its observer."""

    deadline: int | None = None
    loop_timeout: int | None = DEFAULT_LOOP_TIMEOUT_NS
    """None for no limit."""
    observe: Callable[[int, int, Array], None] | None = None
    """Called with subgraph, operand and value: bodies' inputs, and each value as it is computed; valid during the call only."""

    def check(self) -> None:
        """MISSED_DEADLINE_TRANSIENT once the deadline has passed."""
        if self.deadline is not None and time.monotonic_ns() > self.deadline:
            raise MissedDeadlineTransientError("the execution's deadline has passed")


RunBody: TypeAlias = "Callable[[Subgraph, int, Sequence[Arg], Limits], list[Arg]]"
"""Runs the subgraph that a MODEL operand of another refers to."""


def _condition(arg: Arg, operation: Operation, name: str) -> bool:
    """The first element, which is all that NNAPI looks at; the interpreters that the host stands for require a single one."""
    if not arg.present or arg.value is None:
        raise OpFailedError(Reason("a condition with a value", "none", name, "condition"))
    if arg.value.size == 0 or (arg.value.size > 1 and is_extension(operation.type)):
        raise OpFailedError(Reason("a condition of one element", str(list(arg.value.shape)), name, "condition"))
    return bool(arg.value.reshape(-1)[0])


def _run_if(run_body: RunBody, subgraph: Subgraph, operation: Operation, inputs: list[Arg], limits: Limits) -> list[Arg]:
    """IF: one of two subgraphs (input 0 the condition, 1 then, 2 else)."""
    branch = operation.inputs[1 if _condition(inputs[0], operation, "IF") else 2]
    return run_body(subgraph, branch, inputs[3:], limits)


def _run_while(run_body: RunBody, subgraph: Subgraph, operation: Operation, inputs: list[Arg], limits: Limits) -> list[Arg]:
    """WHILE: the value of the condition is looked at before the time (fact U24)."""
    condition, body = operation.inputs[:2]
    started = time.monotonic_ns()
    state = list(inputs[2:])
    while _condition(run_body(subgraph, condition, state, limits)[0], operation, "WHILE"):
        limits.check()
        if limits.loop_timeout is not None and time.monotonic_ns() - started > limits.loop_timeout:
            raise MissedDeadlineTransientError(Reason(f"a loop that ends within {limits.loop_timeout} ns", "more", "WHILE"))
        results = run_body(subgraph, body, state, limits)
        state[: len(results)] = results
    return state[: len(operation.outputs)]


ControlFlow: TypeAlias = "Callable[[RunBody, Subgraph, Operation, list[Arg], Limits], list[Arg]]"
CONTROL_FLOW: dict[int | str, ControlFlow] = {
    OperationCode.IF: _run_if,
    OperationCode.WHILE: _run_while,
    "if": _run_if,
    "while": _run_while,
}
"""By NNAPI's codes, and by the words of host extensions."""
