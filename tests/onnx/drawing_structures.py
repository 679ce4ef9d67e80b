"""Structures drawn at random: functions with attributes, bodies in bodies, sequences, optionals, defaults, in every opset.

All values of a graph are float32 of one shape, so that any node can follow any other one, in any body.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from onnx import AttributeProto, TensorProto, helper, numpy_helper

from tests.onnx.drawing import Case, draws

OLDEST = 7
"""The oldest opset that ONNX Runtime supports."""
NEWEST = 23
FLOAT = TensorProto.FLOAT


@dataclass
class Graph:
    """Nodes under construction: of the main graph, a body or a function."""

    case: Case
    shape: tuple[int, ...]
    values: list[str]
    """What nodes may read: own values and those from outside."""
    prefix: str = ""
    depth: int = 0
    attributes: tuple[str, ...] = ()
    """A function's own, which nodes may refer to."""
    nodes: list[Any] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)
    """Functions that may be called."""

    def name(self) -> str:
        return f"{self.prefix}v{len(self.nodes)}"

    def add(self, operator: str, inputs: Sequence[str], outputs: int = 1, **attributes: Any) -> str:
        """A node; its first output."""
        names = [f"{self.name()}{'' if i == 0 else f'_{i}'}" for i in range(outputs)]
        domain = attributes.pop("domain", "")
        refers = attributes.pop("refers", {})
        node = helper.make_node(operator, list(inputs), names, domain=domain, **attributes)
        for attribute, (own, type) in refers.items():
            node.attribute.append(AttributeProto(name=attribute, ref_attr_name=own, type=type))
        self.nodes.append(node)
        return names[0]

    def constant(self, array: Any) -> str:
        return self.add("Constant", [], value=numpy_helper.from_array(np.asarray(array)))

    def pick(self) -> str:
        return str(self.case.pick(*self.values))

    def axes(self, operator: str, x: str, axes: Sequence[int], since: int, **more: Any) -> str:
        """An operator whose axes became an input in some opset."""
        if self.case.opset < since:
            return self.add(operator, [x], axes=list(axes), **more)
        return self.add(operator, [x, self.constant(np.int64(axes))], **more)

    def inner(self, values: Sequence[str] = ()) -> Graph:
        """A body, which sees all values."""
        prefix = f"{self.name()}/{len(self.nodes)}b{self.case.whole(0, 10**6)}/"
        return Graph(self.case, self.shape, [*self.values, *values], prefix, self.depth + 1, self.attributes, calls=self.calls)

    def body(self, name: str, inputs: Sequence[Any], outputs: Sequence[Any]) -> Any:
        return helper.make_graph(self.nodes, name, inputs, outputs)

    def described(self, name: str) -> Any:
        return helper.make_tensor_value_info(name, FLOAT, self.case.pick(list(self.shape), [None] * len(self.shape)))

    def draw(self, count: int) -> str:
        """Some nodes; the last value."""
        last = self.pick()
        for _ in range(count):
            kinds = [step for step, since in STEPS if self.case.opset >= since]
            if self.depth < 3:
                kinds += [step for step, since in BODIES if self.case.opset >= since]
            last = self.case.pick(*kinds)(self)
            self.values.append(last)
        return last


# -- nodes -------------------------------------------------------------------------------------------------------------------


def _unary(graph: Graph) -> str:
    return graph.add(graph.case.pick("Relu", "Sigmoid", "Neg", "Tanh", "Abs", "Identity", "Floor", "Softplus"), [graph.pick()])


def _binary(graph: Graph) -> str:
    return graph.add(graph.case.pick("Add", "Mul", "Sub", "Max"), [graph.pick(), graph.pick()])


def _activation(graph: Graph) -> str:
    """With an attribute: a number, or one of the function's own."""
    operator, options = graph.case.pick(
        ("LeakyRelu", ("alpha",)), ("Elu", ("alpha",)), ("HardSigmoid", ("alpha", "beta")), ("ThresholdedRelu", ("alpha",))
    )
    if operator == "ThresholdedRelu" and graph.case.opset < 10:
        operator = "LeakyRelu"
    stated: dict[str, Any] = {}
    refers: dict[str, Any] = {}
    for option in options:
        if "slope" in graph.attributes and graph.case.chance(0.7):
            refers[option] = (graph.case.pick("slope", "other"), AttributeProto.FLOAT)
        elif graph.case.chance(0.6):
            stated[option] = float(graph.case.pick(0.25, 0.5, 1.5))
    return graph.add(operator, [graph.pick()], refers=refers, **stated)


def _softmax(graph: Graph) -> str:
    rank = len(graph.shape)
    if "axis" in graph.attributes and graph.case.chance(0.7):
        return graph.add("Softmax", [graph.pick()], refers={"axis": ("axis", AttributeProto.INT)})
    axis = graph.case.whole(0, rank - 1) - (rank if graph.case.opset >= 11 and graph.case.chance(0.5) else 0)
    return graph.add(graph.case.pick("Softmax", "LogSoftmax", "Hardmax"), [graph.pick()], axis=axis)


def _clipped(graph: Graph) -> str:
    if graph.case.opset < 11:
        return graph.add("Clip", [graph.pick()], min=-0.5, max=float(graph.case.pick(0.75, 2.0)))
    ends = [graph.constant(np.float32(n)) for n in (-0.5, graph.case.pick(0.75, 2.0))]
    return graph.add("Clip", [graph.pick(), *(ends if graph.case.chance(0.6) else ["", ends[1]])])


def _wider(graph: Graph) -> str:
    """An axis more and less."""
    axis = graph.case.whole(0, len(graph.shape))
    return graph.axes("Squeeze", graph.axes("Unsqueeze", graph.pick(), [axis], 13), [axis], 13)


def _reduced(graph: Graph) -> str:
    operator = graph.case.pick("ReduceSum", "ReduceMean", "ReduceMax", "ReduceL1")
    axis = graph.case.whole(0, len(graph.shape) - 1)
    found = graph.axes(operator, graph.pick(), [axis], 13 if operator == "ReduceSum" else 18, keepdims=1)
    return graph.add("Add", [graph.pick(), found])


def _cut(graph: Graph) -> str:
    """Two of a kind joined, and one of them cut out."""
    axis, length = 0, graph.shape[0]
    joined = graph.add("Concat", [graph.pick(), graph.pick()], axis=axis)
    if graph.case.chance(0.5):
        first = graph.case.whole(0, length)
        if graph.case.opset < 10:
            return graph.add("Slice", [joined], axes=[axis], starts=[first], ends=[first + length])
        return graph.add("Slice", [joined, *(graph.constant(np.int64([n])) for n in (first, first + length, axis))])
    if graph.case.opset < 13:
        return graph.add("Split", [joined], 2, axis=axis, split=[length, length])
    return graph.add("Split", [joined, graph.constant(np.int64([length, length]))], 2, axis=axis)


def _cast(graph: Graph) -> str:
    return graph.add(
        "Cast", [graph.add("Cast", [graph.pick()], to=graph.case.pick(TensorProto.DOUBLE, TensorProto.INT32))], to=FLOAT
    )


def _padded(graph: Graph) -> str:
    """With a border, which is cut off again."""
    rank = len(graph.shape)
    if graph.case.opset < 11:
        return graph.add("Pad", [graph.add("Pad", [graph.pick()], pads=[1] * 2 * rank, value=0.5)], pads=[-1] * 2 * rank)
    more = [graph.constant(np.float32(0.5))] if graph.case.chance(0.5) else []
    wide = graph.add("Pad", [graph.pick(), graph.constant(np.int64([1] * 2 * rank)), *more])
    return graph.add("Pad", [wide, graph.constant(np.int64([-1] * 2 * rank))])


def _called(graph: Graph) -> str:
    """A function with some of its attributes, or with those of the function that calls it."""
    if not graph.calls:
        return _unary(graph)
    stated: dict[str, Any] = {}
    refers: dict[str, Any] = {}
    for option, type, numbers in (
        ("slope", AttributeProto.FLOAT, (0.125, 0.75)),
        ("other", AttributeProto.FLOAT, (0.3, 2.0)),
        ("axis", AttributeProto.INT, (0, 0, len(graph.shape) - 1)),
    ):
        if option in graph.attributes and graph.case.chance(0.6):
            refers[option] = (option if option == "axis" else graph.case.pick("slope", "other"), type)
        elif graph.case.chance(0.5) or option == "axis":
            stated[option] = graph.case.pick(*numbers)
    return graph.add(graph.case.pick(*graph.calls), [graph.pick(), graph.pick()], domain="own", refers=refers, **stated)


# -- bodies ------------------------------------------------------------------------------------------------------------------


def _condition(graph: Graph) -> str:
    if graph.case.chance(0.4):
        return graph.constant(np.asarray(graph.case.chance(0.5)))
    total = graph.axes("ReduceSum", graph.pick(), range(len(graph.shape)), 13, keepdims=0)
    return graph.add("Less", [total, graph.constant(np.float32(0.3))])


def _branches(graph: Graph) -> str:
    condition, sides = _condition(graph), {}
    for side in ("then_branch", "else_branch"):
        body = graph.inner()
        last = body.draw(graph.case.whole(1, 3))
        if last not in {name for node in body.nodes for name in node.output}:
            last = body.add("Identity", [last])
        sides[side] = body.body(side, [], [graph.described(last)])
    return graph.add("If", [condition], **sides)


def _loop(graph: Graph) -> str:
    body = graph.inner()
    count, going, state = (f"{body.prefix}{name}" for name in ("i", "going", "state"))
    body.values += [state] * 3
    last = body.draw(graph.case.whole(1, 3))
    last = body.add("Identity", [last]) if last not in {n for node in body.nodes for n in node.output} else last
    if graph.case.chance(0.4):
        last = body.add("Add", [last, body.add("Cast", [count], to=FLOAT)])
    more = body.add("Identity", [going])
    if graph.case.chance(0.3):
        more = body.add("Less", [body.add("Cast", [count], to=FLOAT), body.constant(np.float32(graph.case.whole(0, 2)))])
    outputs = [helper.make_tensor_value_info(more, TensorProto.BOOL, []), body.described(last)]
    rows = graph.case.chance(0.4)
    if rows:
        outputs.append(body.described(body.add("Neg", [body.pick()])))
    inputs = [
        helper.make_tensor_value_info(count, TensorProto.INT64, []),
        helper.make_tensor_value_info(going, TensorProto.BOOL, []),
        helper.make_tensor_value_info(state, FLOAT, list(graph.shape)),
    ]
    trips = graph.constant(np.int64(graph.case.whole(int(rows), 3)))
    start = graph.constant(np.asarray(True)) if graph.case.chance(0.5) else ""
    found = graph.add("Loop", [trips, start, graph.pick()], 1 + rows, body=body.body("loop", inputs, outputs))
    if not rows:
        return found
    return graph.add("Add", [found, graph.axes("ReduceSum", f"{found}_1", [0], 13, keepdims=0)])


def _scan(graph: Graph) -> str:
    rows = [graph.axes("Unsqueeze", graph.pick(), [0], 13) for _ in range(graph.case.whole(1, 3))]
    scanned = graph.add("Concat", rows, axis=0)
    body = graph.inner()
    state, row = f"{body.prefix}state", f"{body.prefix}row"
    body.values += [state, row, row]
    last = body.add("Identity", [body.draw(graph.case.whole(1, 2))])
    other = body.add("Sub", [row, body.pick()])
    kinds = [helper.make_tensor_value_info(name, FLOAT, list(graph.shape)) for name in (state, row, last, other)]
    found = graph.add(
        "Scan", [graph.pick(), scanned], 2, body=body.body("scan", kinds[:2], kinds[2:]), num_scan_inputs=1,
        scan_input_directions=[graph.case.whole(0, 1)],
    )  # fmt: skip
    return graph.add("Add", [found, graph.axes("ReduceSum", f"{found}_1", [0], 13, keepdims=0)])


# -- sequences and optionals -------------------------------------------------------------------------------------------------


def _from_sequence(graph: Graph, sequence: str) -> str:
    """A value of the shape again."""
    if graph.case.chance(0.4):
        at = graph.constant(np.int64(graph.case.pick(0, -1)))
        return graph.add("SequenceAt", [sequence, at])
    stacked = graph.add("ConcatFromSequence", [sequence], axis=0, new_axis=1)
    return graph.axes("ReduceSum", stacked, [0], 13, keepdims=0)


def _sequence(graph: Graph) -> str:
    if graph.case.chance(0.3):
        axis = graph.case.whole(0, len(graph.shape) - 1)
        joined = graph.add("Concat", [graph.pick()] * 2, axis=axis)
        parts = graph.add("SplitToSequence", [joined, graph.constant(np.int64(graph.shape[axis]))], axis=axis)
        return _from_sequence(graph, parts)
    made = graph.add("SequenceConstruct", [graph.pick() for _ in range(graph.case.whole(1, 3))])
    if graph.case.chance(0.5):
        made = graph.add(
            "SequenceInsert", [made, graph.pick(), *([graph.constant(np.int64(0))] if graph.case.chance(0.5) else [])]
        )
        if graph.case.chance(0.4):
            made = graph.add("SequenceErase", [made, graph.constant(np.int64(0))])
    return _from_sequence(graph, made)


def _collected(graph: Graph) -> str:
    """A loop whose state is a sequence."""
    body = graph.inner()
    count, going, state = (f"{body.prefix}{name}" for name in ("i", "going", "state"))
    value = body.draw(graph.case.whole(1, 2))
    grown = body.add("SequenceInsert", [state, value])
    more = body.add("Identity", [going])
    tensor = helper.make_tensor_type_proto(FLOAT, None)
    kinds = [
        helper.make_tensor_value_info(count, TensorProto.INT64, []),
        helper.make_tensor_value_info(going, TensorProto.BOOL, []),
        helper.make_value_info(state, helper.make_sequence_type_proto(tensor)),
    ]
    outputs = [helper.make_tensor_value_info(more, TensorProto.BOOL, []), helper.make_value_info(grown, kinds[2].type)]
    start = graph.add("SequenceConstruct", [graph.pick()]) if graph.case.chance(0.6) else graph.add("SequenceEmpty", [])
    trips = graph.constant(np.int64(graph.case.whole(1, 3)))
    return _from_sequence(graph, graph.add("Loop", [trips, "", start], body=body.body("collect", kinds, outputs)))


def _optional(graph: Graph) -> str:
    """An optional, which is opened where it holds something."""
    held = graph.add("Optional", [graph.pick()])
    if graph.case.chance(0.4):
        return graph.add("OptionalGetElement", [held])
    has = graph.add("OptionalHasElement", [held])
    body, other = graph.inner(), graph.inner()
    opened = body.add("OptionalGetElement", [held])
    body.values.append(opened)
    last = body.add("Neg", [body.draw(graph.case.whole(1, 2))])
    without = other.add("Identity", [other.draw(1)])
    sides = {"then_branch": body.body("some", [], [body.described(last)])}
    return graph.add("If", [has], else_branch=other.body("none", [], [other.described(without)]), **sides)


Step = Callable[[Graph], str]
STEPS: tuple[tuple[Step, int], ...] = (
    (_unary, 7), (_binary, 7), (_activation, 7), (_softmax, 7), (_clipped, 7), (_wider, 7), (_reduced, 7), (_cut, 7), (_cast, 9),
    (_padded, 7), (_called, 7), (_called, 7),
)  # fmt: skip
"""What draws nodes, and its first opset."""
BODIES: tuple[tuple[Step, int], ...] = (
    (_branches, 11), (_loop, 11), (_scan, 11), (_sequence, 11), (_collected, 13), (_optional, 16), (_branches, 11), (_loop, 11),
)  # fmt: skip


def _function(case: Case, shape: tuple[int, ...], number: int, calls: list[str]) -> Any:
    """A function of two values with attributes, some of which have defaults."""
    options = ("slope", "other", "axis")
    graph = Graph(case, shape, ["a", "b"], f"f{number}/", 2, options, calls=calls)
    last = graph.add("Identity", [graph.draw(case.whole(2, 5))])
    defaults = [helper.make_attribute("slope", 0.4), helper.make_attribute("other", 1.25)]
    opsets = [helper.make_opsetid("", case.opset), helper.make_opsetid("own", 1)]
    return helper.make_function("own", f"F{number}", ["a", "b"], [last], graph.nodes, opsets, ["axis"], defaults)


def _draw(case: Case, *, functions: bool, oldest: int, defaults: bool = False) -> None:
    case.opset = case.whole(oldest, NEWEST)
    shape = case.dims(1, 3, 4)
    values = [case.data(shape), case.value(case.values(shape)), case.value(case.values(shape), True)]
    if defaults:
        case.defaulted.append(values[2])
    calls: list[str] = []
    if functions:
        for number in range(case.whole(1, 3)):
            case.functions.append(_function(case, shape, number, list(calls)))
            calls.append(f"F{number}")
    graph = Graph(case, shape, values, calls=calls)
    last = graph.draw(case.whole(2, 6))
    if calls and case.chance(0.8):
        last = _called(graph)
    if last in values:
        last = graph.add("Identity", [last])
    case.nodes, case.outputs = graph.nodes, [last]


@draws("structure of functions")
def functions(case: Case) -> None:
    _draw(case, functions=True, oldest=13)


@draws("structure of bodies")
def bodies(case: Case) -> None:
    _draw(case, functions=False, oldest=11)


@draws("structure of an old opset")
def old(case: Case) -> None:
    _draw(case, functions=False, oldest=OLDEST)


@draws("structure with defaults")
def defaults(case: Case) -> None:
    _draw(case, functions=case.chance(0.5), oldest=13, defaults=True)
