"""What a bound subgraph is made of: steps, and the values of one run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

from nnbridge.cpu.control_flow import Limits
from nnbridge.operations.call import Arg


class Run:
    """One run: the arrays by operand index, then scratch buffers (None where nothing is held), and what it resolved itself."""

    __slots__ = ("limits", "resolved", "values")

    def __init__(self, values: list[Any], limits: Limits) -> None:
        self.values = values
        self.limits = limits
        self.resolved: dict[int, Arg] = {}


Step: TypeAlias = Callable[[Run], None]


class PreparedRun(NamedTuple):
    """An operation whose shapes a run brought: its outputs, the operands that it reads, and its kernel."""

    outs: tuple[Arg, ...]
    sources: list[int]
    compute: Callable[..., Any]


def nothing(_: Run) -> None:
    """The step of an operation that a program computes."""


def ignoring(function: Callable[[], None]) -> Step:
    """A function of nothing as a step."""
    return lambda _: function()
