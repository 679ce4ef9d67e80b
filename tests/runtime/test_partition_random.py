"""Random graphs over random drivers give the CPU's answers: the counterpart of TestPartitioningRandom.cpp.

As there, all data are tensors of one shape, intermediate dimensions are left out at random, and each kind of operation belongs
to one driver at most. Beyond it, drivers fail to prepare or to execute, and branches and loops stand in the graphs.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from nnbridge.cpu.executor import Executor
from nnbridge.devices.device import PreparedModel, Result
from nnbridge.errors import OpFailedError, Reason
from nnbridge.model import Model
from nnbridge.runtime.compilation import Compilation
from nnbridge.runtime.execution import Execution
from nnbridge.types import OperandCode, ResultCode
from tests.runtime.planning import BOOL8, Graph, Scripted, binary

BINARY = ("ADD0", "ADD1", "MUL0", "SUB0", "MAXIMUM", "MINIMUM")
UNARY = ("ABS", "NEG", "FLOOR", "RELU", "HARD_SWISH")
KINDS = (*BINARY, *UNARY, "LESS", "IF", "WHILE")
FLOAT, DIMS = OperandCode.TENSOR_FLOAT32, (2, 3)
X = np.array([[-2, 3, 0.5], [1, -7, 4]], np.float32)
COUNT = np.array([3], np.float32)


class Faulty(Scripted):
    """A driver that cannot prepare anything."""

    def prepare_model(self, *args: object, **options: object) -> PreparedModel:
        raise OpFailedError(Reason("a driver that prepares", "another", self.name))


def loop_models() -> tuple[Model, Model]:
    """``while i < n: i, x = i + 1, x + x``."""
    graph = Graph()
    i, x, n = graph.operand("i", (1,)), graph.operand("x", DIMS), graph.operand("n", (1,))
    condition = graph.finish([i, x, n], [graph.add("LESS", [i, n], "more", (1,), BOOL8)])
    graph = Graph()
    i, x, n = graph.operand("i", (1,)), graph.operand("x", DIMS), graph.operand("n", (1,))
    one = graph.constant([1.0], FLOAT, (1,))
    return condition, graph.finish([i, x, n], [graph.add("ADD0", [i, one], "", (1,)), graph.add("ADD1", [x, x], "", DIMS)])


class Drawn:
    """A graph as it is drawn, operation by operation."""

    def __init__(self, draw: Callable[..., int]) -> None:
        self.draw = draw
        self.graph = Graph()
        self.count, self.flag = self.graph.operand("count", (1,)), self.graph.operand("flag", (1,), BOOL8)
        self.inputs = [self.graph.operand(f"x{k}", DIMS) for k in range(2)]
        self.constant = self.graph.constant(np.full(DIMS, 2, np.float32), FLOAT, DIMS)
        self.values = list(self.inputs)
        self.made: list[int] = []
        self.read: set[int] = set()

    def any_value(self) -> int:
        found = self.draw(st.sampled_from(self.values))
        self.read.add(found)
        return found

    def add(self, kind: str) -> None:
        if kind in BINARY or kind in UNARY:
            inputs = [self.any_value()]
            if kind in BINARY:
                inputs.append(self.constant if self.draw(st.integers(0, 5)) == 0 else self.any_value())
            dims = self.draw(st.sampled_from([DIMS, DIMS, DIMS, (0, 3), (0, 0)]))
            made = self.graph.add(kind, inputs, "", dims)  # type: ignore[arg-type]
        elif kind == "IF":
            made = self.graph.operand("", DIMS)
            self.graph.branch(self.flag, binary("ADD0", DIMS), binary("SUB0", DIMS), [self.known(), self.known()], [made])
        else:
            made, end = self.graph.operand("", DIMS), self.graph.operand("", (1,))
            zero = self.graph.constant([0.0], FLOAT, (1,))
            self.graph.loop(*loop_models(), [zero, self.known(), self.count], [end, made])
        self.values.append(made)
        self.made.append(made)

    def known(self) -> int:
        """A value of known dimensions, so that control flow is interpreted."""
        operands = self.graph.builder._operands
        found = self.draw(st.sampled_from([i for i in self.values if operands[i].dims == DIMS]))
        self.read.add(found)
        return found


@st.composite
def models(draw: Callable[..., int], dead: bool = True) -> Model:
    """A random graph; with ``dead`` some have operations that no output needs, which NNAPI's CPU alone refuses (fact P29)."""
    drawn = Drawn(draw)
    kinds = st.sampled_from([*BINARY, *UNARY, "IF", "WHILE", "IF", "WHILE"])
    for kind in draw(st.lists(kinds, min_size=3, max_size=20)):  # type: ignore[attr-defined]
        drawn.add(kind)
    outputs = [i for i in drawn.made if i not in drawn.read or draw(st.integers(0, 3)) == 0]
    if dead and len(outputs) > 1 and draw(st.integers(0, 9)) == 0:
        outputs.pop(0)  # what only it needs is dead now
    return drawn.graph.finish([drawn.count, drawn.flag, *drawn.inputs], outputs)  # type: ignore[arg-type]


@st.composite
def drivers(draw: Callable[..., int]) -> list[Scripted]:
    owners = {kind: draw(st.integers(0, 4)) for kind in KINDS}
    made = []
    for number in range(4):
        kinds = frozenset(kind for kind, owner in owners.items() if owner == number)
        fails = draw(st.sampled_from([0, 0, 0, 0, 1, 3]))
        results = [Result(ResultCode.OP_FAILED)] * fails
        kind = draw(st.sampled_from([Scripted] * 29 + [Faulty]))
        level = draw(st.sampled_from([1, 2, 3, 4, 8, 8, 8, 8]))
        made.append(kind(f"driver {number}", None, 0.5, 0.5, level, kinds=kinds, results=results))  # type: ignore[operator]
    return made


@settings(max_examples=150, deadline=None)
@given(models(), drivers(), st.booleans())
def test_random_graphs_over_random_drivers_give_the_answers_of_the_cpu(model: Model, chosen: list[Scripted], flag: bool) -> None:
    inputs = [COUNT, np.array([flag]), X, X[::-1].copy()]
    expected = [arg.value for arg in Executor(model).run(inputs)]
    compilation = Compilation.create(model, chosen)
    compilation.finish()
    for _ in range(2):
        found = list(Execution(compilation).run(inputs).values())
        for answer, value in zip(found, expected, strict=True):
            np.testing.assert_array_equal(answer, value)


def test_sixteen_threads_on_one_partitioned_compilation_give_the_answers_of_one() -> None:
    drawn = Drawn(lambda strategy: 0)
    graph, (a, b) = drawn.graph, drawn.inputs
    changed, doubled, end = graph.operand("", DIMS), graph.operand("", DIMS), graph.operand("", (1,))
    graph.branch(drawn.flag, binary("ADD0", DIMS), binary("SUB0", DIMS), [a, b], [changed])
    graph.loop(*loop_models(), [graph.constant([0.0], FLOAT, (1,)), changed, drawn.count], [end, doubled])
    open_dims = graph.add("ABS", [doubled], "", (0, 3))
    model = graph.finish([drawn.count, drawn.flag, a, b], [graph.add("SUB0", [open_dims, b], "y", DIMS)])
    dealt = ({"ADD0", "LESS"}, {"ADD1", "ABS"}, {"SUB0"})
    chosen = [Scripted(f"driver {n}", None, 0.5, 0.5, kinds=frozenset(kinds)) for n, kinds in enumerate(dealt)]
    compilation = Compilation.create(model, chosen)
    assert not compilation.finish().simple

    def once(seed: int) -> np.ndarray:
        inputs = [COUNT, np.array([seed % 2 == 0]), X * seed, X + seed]
        [y] = Execution(compilation).run(inputs).values()
        return y

    alone = [once(seed) for seed in range(160)]
    with ThreadPoolExecutor(16) as pool:
        for answer, value in zip(pool.map(once, range(160)), alone, strict=True):
            np.testing.assert_array_equal(answer, value)
