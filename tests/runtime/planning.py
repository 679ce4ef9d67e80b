"""Models and drivers for tests of partitioning, in the terms of AOSP's TestPartitioning.cpp.

Operations have kinds: ``ADD0`` to ``ADD3`` and ``MUL0`` to ``MUL3`` (level 1), ``SUB0`` … and ``DIV0`` … (level 2), where the
number is the fused activation; any other operation's kind is its name.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from nnbridge.builder import ModelBuilder
from nnbridge.devices.cpu import CpuPreparedModel
from nnbridge.devices.device import PreparedModel, Request, Result, Support
from nnbridge.model import Model, Operation
from nnbridge.runtime.compilation import Compilation, PartitioningMode
from nnbridge.runtime.partitioner import ExecutionStep, GotoStep, IfStep
from nnbridge.types import OperandCode, OperationCode
from tests.runtime.drivers import Driver

FLOAT, BOOL8 = OperandCode.TENSOR_FLOAT32, OperandCode.TENSOR_BOOL8
_FUSED = ("ADD", "MUL", "SUB", "DIV")


def kind_of(model: Model, operation: Operation) -> str:
    """``ADD1`` for an ADD with fused RELU; the operation's name if it fuses nothing."""
    name = model.operation_name(operation)
    if name not in _FUSED:
        return name
    fused = model.value(model.main.operands[operation.inputs[2]])
    assert fused is not None
    return f"{name}{int(fused)}"


@dataclass
class Picky(Driver):
    """A driver that takes the operations of some kinds; None: all but the OEM operation."""

    kinds: frozenset[str] | None = None

    def supported_operations(self, model: Model) -> Sequence[Support]:
        self.asked.append(model)
        operations = model.main.operations
        if self.kinds is None:
            return [o.type != OperationCode.OEM_OPERATION for o in operations]
        return [kind_of(model, o) in self.kinds for o in operations]


class _Scripted(PreparedModel):
    def __init__(self, driver: Scripted, model: Model) -> None:
        self._driver, self._model = driver, CpuPreparedModel(model)

    def execute(self, request: Request) -> Result:
        self._driver.requests.append(request)
        scripted = self._driver.results.pop(0) if self._driver.results else None
        return self._model.execute(request) if scripted is None else scripted


@dataclass
class Scripted(Picky):
    """A driver that remembers its requests and ends executions as its script says; None and the rest are computed."""

    results: list[Result | None] = field(default_factory=list)
    requests: list[Request] = field(default_factory=list)

    def prepare_model(self, model: Model, *args: object, **options: object) -> PreparedModel:
        self.prepared.append(model)
        return _Scripted(self, model)


def scripted(name: str, *kinds: str, results: Sequence[Result | None] = (), figure: float = 0.5) -> Scripted:
    """A scripted driver for these kinds."""
    return Scripted(name, None, figure, figure, kinds=frozenset(kinds), results=list(results))


def picky(name: str, figure: float, *kinds: str, level: int = 8) -> Picky:
    """A driver with one figure for everything that takes these kinds, or all if none is named."""
    return Picky(name, None, figure, figure, level, kinds=frozenset(kinds) if kinds else None)


class Graph:
    """A model in the making; operands are of shape [2] if nothing else is said, and named as they are added."""

    def __init__(self) -> None:
        self.builder = ModelBuilder()

    def operand(self, name: str = "", dims: Sequence[int] = (2,), type: int = FLOAT) -> int:
        return self.builder.add_operand(type, dims, name=name)

    def constant(self, value: object, type: int, dims: Sequence[int] = ()) -> int:
        index = self.builder.add_operand(type, dims)
        self.builder.set_operand_value(index, value)
        return index

    def add(self, kind: str, inputs: Sequence[int], name: str = "", dims: Sequence[int] = (2,), type: int = FLOAT) -> int:
        """An operation by kind; gives its output."""
        output = self.operand(name, dims, type)
        code, inputs = kind, list(inputs)
        if kind[:-1] in _FUSED:
            code = kind[:-1]
            inputs.append(self.constant(int(kind[-1]), OperandCode.INT32))
        self.builder.add_operation(OperationCode[code], inputs, [output])
        return output

    def model_operand(self, model: Model) -> int:
        index = self.builder.add_operand(OperandCode.MODEL)
        self.builder.set_operand_value_from_model(index, model)
        return index

    def branch(self, condition: int, then: Model, otherwise: Model, inputs: Sequence[int], outputs: Sequence[int]) -> None:
        """IF."""
        models = [self.model_operand(then), self.model_operand(otherwise)]
        self.builder.add_operation(OperationCode.IF, [condition, *models, *inputs], outputs)

    def loop(self, condition: Model, body: Model, inputs: Sequence[int], outputs: Sequence[int]) -> None:
        """WHILE."""
        models = [self.model_operand(condition), self.model_operand(body)]
        self.builder.add_operation(OperationCode.WHILE, [*models, *inputs], outputs)

    def finish(self, inputs: Sequence[int], outputs: Sequence[int]) -> Model:
        self.builder.identify_inputs_and_outputs(inputs, outputs)
        return self.builder.finish()


def compiled(
    model: Model, *drivers: Driver, mode: PartitioningMode = PartitioningMode.WITH_FALLBACK, preference: int = 0
) -> Compilation:
    """A finished compilation over drivers and the CPU."""
    compilation = Compilation.create(model, drivers, mode)
    compilation.set_preference(preference)
    compilation.finish()
    return compilation


def program(compilation: Compilation) -> list[str]:
    """Each logical step: a device's name, ``IF``, ``WHILE`` or ``GOTO``."""
    plan = compilation.plan
    return [
        plan.devices[item.device].name
        if isinstance(item, ExecutionStep)
        else "GOTO"
        if isinstance(item, GotoStep)
        else "IF"
        if isinstance(item, IfStep)
        else "WHILE"
        for item in plan.partition.program
    ]


def places(compilation: Compilation) -> list[str]:
    """The device of each operation of the main subgraph; ``NNAPI`` for interpreted control flow."""
    plan = compilation.plan
    return [plan.device_of(i).name for i in range(len(compilation.model.main.operations))]


def binary(kind: str, dims: Sequence[int] = (2,)) -> Model:
    """One operation on two inputs."""
    graph = Graph()
    a, b = graph.operand("a", dims), graph.operand("b", dims)
    return graph.finish([a, b], [graph.add(kind, [a, b], "y", dims)])


# -- models with control flow ---------------------------------------------------------------------------------------


def below(dims: tuple[int, ...] = (1,)) -> Model:
    """Condition ``i < n`` of a loop over (i, sum, n)."""
    graph = Graph()
    i, total, n = graph.operand("i", dims), graph.operand("total"), graph.operand("n", (1,))
    return graph.finish([i, total, n], [graph.add("LESS", [i, n], "more", (1,), BOOL8)])


def counting() -> Model:
    """Body ``i + 1, total * 2 + i``: with n left as it is."""
    graph = Graph()
    i, total, n = graph.operand("i", (1,)), graph.operand("total"), graph.operand("n", (1,))
    one = graph.constant([1.0], FLOAT, (1,))
    doubled = graph.add("ADD0", [total, total], "doubled")
    next_i = graph.add("ADD0", [i, one], "next i", (1,))
    return graph.finish([i, total, n], [next_i, graph.add("ADD1", [doubled, i], "next total")])


def while_model(*, outputs: int = 2) -> Model:
    """The loop over (i, total, n); outputs i and total, or i alone, total being state then."""
    graph = Graph()
    i, total, n = graph.operand("i", (1,)), graph.operand("total"), graph.operand("n", (1,))
    made = [graph.operand("i out", (1,))] + ([graph.operand("total out")] if outputs == 2 else [])
    graph.loop(below(), counting(), [i, total, n], made)
    return graph.finish([i, total, n], made)


def if_model(then: Model, otherwise: Model, dims: tuple[int, ...] = (2,)) -> Model:
    """``y = then(a, b) if condition else otherwise(a, b)``."""
    graph = Graph()
    condition = graph.operand("condition", (1,), BOOL8)
    a, b, y = graph.operand("a", dims), graph.operand("b", dims), graph.operand("y", dims)
    graph.branch(condition, then, otherwise, [a, b], [y])
    return graph.finish([condition, a, b], [y])


def nested() -> Model:
    """``while i < n: i, total = i + 1, (total + i if flag else total * i)``."""
    then, otherwise = (_with_counter(kind) for kind in ("ADD0", "MUL0"))
    graph = Graph()
    i, total, n, flag = _arguments(graph)
    more = graph.finish([i, total, n, flag], [graph.add("LESS", [i, n], "more", (1,), BOOL8)])
    graph = Graph()
    i, total, n, flag = _arguments(graph)
    one, changed = graph.constant([1.0], FLOAT, (1,)), graph.operand("changed")
    next_i = graph.add("ADD0", [i, one], "next i", (1,))
    graph.branch(flag, then, otherwise, [total, i], [changed])
    body = graph.finish([i, total, n, flag], [next_i, changed])
    graph = Graph()
    i, total, n, flag = _arguments(graph)
    made = [graph.operand("i out", (1,)), graph.operand("total out")]
    graph.loop(more, body, [i, total, n, flag], made)
    return graph.finish([i, total, n, flag], made)


def _arguments(graph: Graph) -> tuple[int, int, int, int]:
    i, total, n = graph.operand("i", (1,)), graph.operand("total"), graph.operand("n", (1,))
    return i, total, n, graph.operand("flag", (1,), BOOL8)


def _with_counter(kind: str) -> Model:
    graph = Graph()
    total, i = graph.operand("total"), graph.operand("i", (1,))
    return graph.finish([total, i], [graph.add(kind, [total, i], "changed")])
