"""Networks to draw: names that try to become markup, branches over any number of operations, bodies of control flow."""

from __future__ import annotations

import numpy as np

from nnbridge.builder import ModelBuilder
from nnbridge.model import Model
from nnbridge.types import OperandCode, OperationCode
from tests.graphs import unary_chain
from tests.runtime.planning import BOOL8, FLOAT, Graph

UNKIND = (
    '<script>alert("1")</script>',
    '"><img src=x onerror=alert(2)>',
    "]]></script><b>bold",
    "\u202egnp.evil",
    "a" * 300,
    "&lt;amp;&#x27;'`${7*7}`",
    "line\nbreak\ttab\x00",
    "=1+1",
    "__DATA__",
    "\u2028名前/зарубка/🙂",
)
SIDE = 14


class _Network:
    """Float images of one size; every 97th tensor has an unkind name."""

    def __init__(self, name: str) -> None:
        self.builder, self.made = ModelBuilder(name), 0
        self._values = np.random.default_rng(7)

    def _constant(self, *dims: int) -> int:
        index = self.builder.add_operand(OperandCode.TENSOR_FLOAT32, dims)
        self.builder.set_operand_value(index, self._values.standard_normal(dims).astype(np.float32) / 10)
        return index

    def _scalars(self, *values: int) -> list[int]:
        found = []
        for value in values:
            found.append(self.builder.add_operand(OperandCode.INT32))
            self.builder.set_operand_value(found[-1], value)
        return found

    def image(self, depth: int, name: str) -> int:
        return self.builder.add_operand(OperandCode.TENSOR_FLOAT32, (1, SIDE, SIDE, depth), name=name)

    def add(self, code: OperationCode, inputs: list[int], depth: int, name: str) -> int:
        shown = UNKIND[self.made // 97 % len(UNKIND)] if self.made % 97 == 13 else name
        output = self.image(depth, shown)
        self.builder.add_operation(code, inputs, [output], name=f"{self.made}: {code.name} {shown}", mapping="delegate")
        self.made += 1
        return output

    def conv(self, x: int, before: int, after: int, name: str) -> int:
        inputs = [x, self._constant(after, 1, 1, before), self._constant(after), *self._scalars(1, 1, 1, 3)]
        return self.add(OperationCode.CONV_2D, inputs, after, name)

    def two(self, code: OperationCode, x: int, y: int, name: str) -> int:
        return self.add(code, [x, y, *self._scalars(0)], 16, name)

    def one(self, code: OperationCode, x: int, name: str) -> int:
        return self.add(code, [x], 16, name)


def branching(count: int) -> Model:
    """``count`` operations: blocks of branches and sums, MAXIMUM and NEG of feature level 3, a few reads from far above."""
    net = _Network("branching")
    x = start = net.image(16, "image")
    saved, block = [], 0
    while net.made < count - 12:
        name = f"stage{block // 12}/block{block}"
        if block % 3 == 0:
            sides = [net.conv(x, 16, 8, f"{name}/{k}") for k in range(3)]
            outs = [net.conv(side, 8, 16, f"{name}/{k}/out") for k, side in enumerate(sides)]
            x = net.two(OperationCode.ADD, net.two(OperationCode.ADD, outs[0], outs[1], f"{name}/sum"), outs[2], f"{name}/add")
        elif block % 3 == 1:
            gate = net.one(OperationCode.LOGISTIC, net.conv(x, 16, 16, f"{name}/gate"), f"{name}/sigmoid")
            x = net.two(OperationCode.MUL, x, gate, f"{name}/mul")
        else:
            sides = [net.one(OperationCode.TANH, x, f"{name}/tanh"), net.one(OperationCode.NEG, x, f"{name}/neg")]
            x = net.add(OperationCode.MAXIMUM, sides, 16, f"{name}/max")
        if block % 24 == 5 and len(saved) < 4:
            saved.append(x)
        block += 1
    for n, far in enumerate(saved):
        x = net.two(OperationCode.ADD, x, far, f"head/skip{n}")
    while net.made < count:
        x = net.one(OperationCode.RELU, x, "scores" if net.made == count - 1 else f"head/relu{net.made}")
    net.builder.identify_inputs_and_outputs([start], [x])
    return net.builder.finish()


def unkind() -> Model:
    """A chain whose tensors have the unkind names."""
    builder = ModelBuilder(UNKIND[0])
    last = first = builder.add_operand(OperandCode.TENSOR_FLOAT32, (1, 4), name="x")
    for n, name in enumerate(UNKIND):
        output = builder.add_operand(OperandCode.TENSOR_FLOAT32, (1, 4), name=name)
        builder.add_operation(OperationCode.RELU, [last], [output], name=f"{n}: RELU {name}")
        last = output
    builder.identify_inputs_and_outputs([first], [last])
    return builder.finish()


def conditional() -> Model:
    """FLOOR, then an IF: either NEG and ABS, or ABS; then FLOOR."""
    graph = Graph()
    condition, x = graph.operand("condition", (1,), BOOL8), graph.operand("x", (1, 4))
    before = graph.add("FLOOR", [x], "before", (1, 4))
    chosen = graph.operand("chosen", (1, 4))
    then, otherwise = unary_chain(OperationCode.NEG, OperationCode.ABS), unary_chain(OperationCode.ABS)
    graph.branch(condition, then, otherwise, [before], [chosen])
    after = graph.add("FLOOR", [chosen], "after", (1, 4))
    return graph.finish([condition, x], [after])


def looping() -> Model:
    """A WHILE over a counter and x: below 3, NEG and an IF of either ABS or FLOOR and ABS; then FLOOR."""
    test = Graph()
    count, x = test.operand("count", (1,)), test.operand("x", (1, 4))
    going_on = test.add("LESS", [count, test.constant([3.0], FLOAT, (1,))], "below", (1,), BOOL8)
    condition = test.finish([count, x], [going_on])

    graph = Graph()
    count, x = graph.operand("count", (1,)), graph.operand("x", (1, 4))
    more = graph.add("ADD0", [count, graph.constant([1.0], FLOAT, (1,))], "count + 1", (1,))
    negative = graph.add("NEG", [x], "negative", (1, 4))
    early = graph.add("LESS", [more, graph.constant([2.0], FLOAT, (1,))], "early", (1,), BOOL8)
    chosen = graph.operand("chosen", (1, 4))
    then, otherwise = unary_chain(OperationCode.ABS), unary_chain(OperationCode.FLOOR, OperationCode.ABS)
    graph.branch(early, then, otherwise, [negative], [chosen])
    body = graph.finish([count, x], [more, chosen])

    graph = Graph()
    count, x = graph.operand("start", (1,)), graph.operand("x", (1, 4))
    counted, looped = graph.operand("counted", (1,)), graph.operand("looped", (1, 4))
    graph.loop(condition, body, [count, x], [counted, looped])
    return graph.finish([count, x], [graph.add("FLOOR", [looped], "result", (1, 4))])


def crowded(branches: int = 9) -> Model:
    """Operations side by side of which one reads all."""
    network = _Network("crowded")
    x = network.image(4, "x")
    read = [network.add(OperationCode.FLOOR, [x], 4, f"floor {k}") for k in range(branches)]
    joined = network.add(OperationCode.CONCATENATION, [*read, *network._scalars(3)], 4 * branches, "joined")
    network.builder.identify_inputs_and_outputs([x], [joined])
    return network.builder.finish()
