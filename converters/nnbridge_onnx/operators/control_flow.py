"""If and Loop as NNAPI's IF and WHILE, whose bodies are models of their own; Loop and Scan on the host."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import field
from typing import Any

import numpy as np

from nnbridge.converters.draft import Value
from nnbridge.errors import ConversionError
from nnbridge.model import Array, Model
from nnbridge.records import dataclass
from nnbridge.types import OperandCode
from nnbridge_onnx.declaration import operator
from nnbridge_onnx.host.evaluator import HostCall
from nnbridge_onnx.lowerer import C, Lowerer
from nnbridge_onnx.read.graph import BOOL, INT32, INT64, Dims, Tensor, dtype_of, type_name

_COUNT, _GOING, _MORE, _TRUE, _ONE = (f"nnbridge {what}" for what in ("count", "going", "more", "true", "one"))
_BRANCHES = ("then_branch", "else_branch")
_FIRST_PLAIN_SCAN = 9
"""The oldest opset whose Scan has no batches."""
_LEAST = 64 << 10
"""Bytes that each body counts, for the time that converting a small one takes."""
_EACH = 1 << 10
"""Bytes that each operation of a body counts: it is copied and checked once more in each model that the body is part of."""
IF = operator("If", 80, "cond! -> outputs+", "One of two branches.")
LOOP = operator("Loop", 94, "M!? cond!? v_initial* -> v_final_and_scan_outputs+", "A body that is run again and again.")
SCAN = operator(
    "Scan",
    154,
    "initial_state_and_scan_inputs+ -> final_state_and_scan_outputs+",
    "A body that is run for each row of its inputs.",
)


@dataclass
class _Body:
    """A model that control flow refers to, as an ONNX graph being made. INT64 values come and go as INT32."""

    to: Lowerer
    inputs: list[Any] = field(default_factory=list)
    nodes: list[Any] = field(default_factory=list)
    outputs: list[Any] = field(default_factory=list)
    constants: list[Any] = field(default_factory=list)
    ranks: list[bool] = field(default_factory=list)
    """True for each output whose rank the file states."""

    def __post_init__(self) -> None:
        import onnx

        self._onnx = onnx

    def take(self, name: str, tensor: Tensor) -> None:
        """An input under the name that the graph's nodes read."""
        helper = self._onnx.helper
        shape = None if tensor.shape is None else [None if d < 0 else d for d in tensor.shape]
        self.to.require(dtype_of(tensor.type) is not None, "a tensor of numbers", tensor.instead or type_name(tensor.type), name)
        if tensor.type != INT64:
            self.inputs.append(helper.make_tensor_value_info(name, tensor.type, shape))
            return
        self.inputs.append(helper.make_tensor_value_info(f"{name} int32", INT32, shape))
        self.add("Cast", [f"{name} int32"], name, to=INT64)

    def leave(self, name: str, type: int, stated: bool = False) -> None:
        """An output; ``stated``: the file describes its rank, which counts where nothing else is known."""
        self.ranks.append(stated)
        self.to.require(dtype_of(type) is not None, "a tensor of numbers", type_name(type), name)
        made = f"{name} out {len(self.outputs)}"
        if type == INT64:
            self.add("Cast", [name], made, to=INT32)
        elif type == BOOL:
            # NNAPI's RESHAPE does not copy booleans.
            self.add("And", [name, self.constant(_TRUE, True)], made)
        else:
            self.add("Identity", [name], made)
        self.outputs.append(self._onnx.helper.make_tensor_value_info(made, INT32 if type == INT64 else type, None))

    def add(self, kind: str, inputs: Sequence[str], output: str, **attributes: Any) -> None:
        """A node."""
        self.nodes.append(self._onnx.helper.make_node(kind, list(inputs), [output], **attributes))

    def graph(self, graph: Any) -> None:
        """All nodes and constants of a subgraph."""
        self.to.operands.bodies.spend(graph.ByteSize())
        self.nodes.extend(graph.node)
        self.constants.extend(graph.initializer)

    def constant(self, name: str, value: Any) -> str:
        """A constant; those that the file has, and others once."""
        array = np.asarray(value, np.int32) if type(value) is int else np.asarray(value)
        known = next((tensor for tensor in self.constants if tensor.name == name), None)
        if known is not None:
            there = self._onnx.numpy_helper.to_array(known)
            same = there.dtype == array.dtype and np.array_equal(there, array)
            self.to.require(same, "a constant of another name than nnbridge's", name)
        else:
            self.to.operands.bodies.spend(array.nbytes)
            self.constants.append(self._onnx.numpy_helper.from_array(array, name))
        return name

    def _require_distinct(self) -> None:
        """Refuse names that the file uses and the body has for something else: the checker saw the file without them."""
        values = (*self.inputs, *self.constants)
        names = [*(value.name for value in values), *(name for node in self.nodes for name in node.output if name)]
        twice = next((name for name, count in Counter(names).items() if count > 1), None)
        self.to.require(twice is None, "a body whose values have different names", f"two named {twice}")

    def model(self, label: str, number: int) -> Value:
        """The finished model, as an operand; the bodies of a node are numbered from 1."""
        helper = self._onnx.helper
        self.to.operands.bodies.spend(_LEAST)
        self._require_distinct()
        graph = helper.make_graph(self.nodes, label, self.inputs, self.outputs, self.constants)
        opsets = {**self.to.operands.opsets, "": self.to.node.version}
        made = helper.make_model(graph, opset_imports=[helper.make_opsetid(*one) for one in opsets.items()])
        try:
            model = self.to.body(made, number)
        except ConversionError as error:
            self.to.refuse("a body that can be converted", str(error))
        # A branch that no input takes may leave its results open; then the file's own description has to do.
        for value, i, stated in zip(self.outputs, model.main.outputs, self.ranks, strict=True):
            known = stated or model.main.operands[i].dims != ()
            self.to.require(known, "a body whose results have known ranks", "none", value.name)
        self.to.operands.bodies.spend(_EACH * sum(len(subgraph.operations) for subgraph in model.subgraphs()))
        return Value(OperandCode.MODEL, model=model)


def _outer(to: Lowerer) -> list[str]:
    """The values that the bodies read from outside and that are computed there."""
    return [name for name in to.node.captured if name not in to.operands.constants]


def _capture(to: Lowerer, body: _Body) -> None:
    """The values that the bodies read from outside."""
    for name in to.node.captured:
        if name in to.operands.constants:
            body.constant(name, to.operands.constants[name])
        else:
            body.take(name, to.operands.tensor(name))


def _subgraph(to: Lowerer, name: str) -> Any:
    found = next((a.g for a in to.node.proto.attribute if a.name == name), None)
    to.require(found is not None, f"a {name}", "none")
    return found


def _dims(model: Model | None, place: int) -> Dims:
    assert model is not None
    return tuple(model.main.operands[model.main.outputs[place]].dims)


def _stated(to: Lowerer, branch: str, place: int) -> Dims:
    """Open dimensions of a branch's result, as many as the file states."""
    kind = _subgraph(to, branch).output[place].type.tensor_type
    return (0,) * max(1, len(kind.shape.dim))


@IF.lowering()
def _if(to: Lowerer) -> None:
    """IF; both branches take what either of them reads."""
    condition, operands = to.input(0), [to.named(name) for name in _outer(to)]
    to.require(condition.type == OperandCode.TENSOR_BOOL8 and condition.dims == (1,), "one boolean", list(condition.dims))
    models: list[Value] = []
    for name in _BRANCHES:
        branch, body = _subgraph(to, name), _Body(to)
        _capture(to, body)
        body.graph(branch)
        for value, output in zip(branch.output, to.node.outputs, strict=True):
            body.leave(value.name, to.operands.tensor(output).type, value.type.tensor_type.HasField("shape"))
        models.append(body.model(name, len(models) + 1))
    outputs = [to.output(i) for i in range(len(to.node.outputs))]
    for i, value in enumerate(outputs):
        first, second = (_dims(model.model, i) or _stated(to, name, i) for model, name in zip(models, _BRANCHES, strict=True))
        to.require(len(first) == len(second), "branches whose results have one rank", [first, second], value.name)
        value.dims = tuple(a if a == b else 0 for a, b in zip(first, second, strict=True))
    to.emit_all(C.IF, [condition, *models, *operands], outputs)
    for i, value in enumerate(outputs):
        to.result(value, i)


@LOOP.lowering()
def _loop(to: Lowerer) -> None:
    """WHILE over a number, the condition and the states; results of single iterations are not stored."""
    body, states = _subgraph(to, "body"), list(to.node.inputs[2:])
    to.require(
        len(to.node.outputs) == len(states), "only loop-carried states", f"{len(to.node.outputs) - len(states)} stacked results"
    )
    tensors = [to.operands.tensor(name) for name in states]
    names = [value.name for value in body.input]
    parts = []
    for part in (_Body(to), _Body(to)):
        part.take(_COUNT, Tensor(INT32, ()))
        part.take(_GOING, Tensor(BOOL, ()))
        for name, tensor in zip(names[2:], tensors, strict=True):
            part.take(name, tensor)
        _capture(to, part)
        parts.append(part)
    _condition(to, parts[0])
    _iteration(parts[1], body, names, tensors)
    outer = [to.named(name) for name in _outer(to)]
    first = [to.vector([0]), _going(to), *(to.named(name) for name in states)]
    models = [part.model(what, i) for i, (part, what) in enumerate(zip(parts, ("condition", "body"), strict=True), 1)]
    outputs = [first[0].like(), first[1].like(), *(to.output(i) for i in range(len(states)))]
    for i, value in enumerate(outputs):
        value.dims = _dims(models[1].model, i)
    to.emit_all(C.WHILE, [*models, *first, *outer], outputs)
    for i, value in enumerate(outputs[2:]):
        to.result(value, i)


def _condition(to: Lowerer, part: _Body) -> None:
    """True if there is another iteration."""
    trips = to.constant(0) if to.has(0) else None
    if trips is None:
        part.leave(_GOING, BOOL)
        return
    limit = part.constant(f"{_MORE} than", to.whole(trips)[0])
    part.add("Less", [_COUNT, limit], f"{_MORE} left")
    part.add("And", [f"{_MORE} left", _GOING], _MORE)
    part.leave(_MORE, BOOL)


def _iteration(part: _Body, body: Any, names: Sequence[str], tensors: Sequence[Tensor]) -> None:
    """One iteration, and the number of the next one."""
    part.add("Cast", [_COUNT], names[0], to=INT64)
    part.add("And", [_GOING, part.constant(_TRUE, True)], names[1])
    part.graph(body)
    part.add("Add", [_COUNT, part.constant(_ONE, 1)], f"{_COUNT} next")
    part.leave(f"{_COUNT} next", INT32)
    part.leave(body.output[0].name, BOOL)
    for value, tensor in zip(body.output[1:], tensors, strict=True):
        part.leave(value.name, tensor.type)


def _going(to: Lowerer) -> Value:
    """The condition before the first iteration."""
    if to.has(1):
        return to.input(1)
    return Value(OperandCode.TENSOR_BOOL8, (1,), data=np.ones(1, np.uint8))


# -- the host's --------------------------------------------------------------------------------------------------------------


@IF.host_kernel
def _run_if(call: HostCall) -> Sequence[Any]:
    """One of the branches, which read only values from outside."""
    branch = "then_branch" if bool(np.ravel(call.input(0))[0]) else "else_branch"
    return call.node.body(list(call.feeds), branch)(call.feeds)


@LOOP.host_kernel
def _run_loop(call: HostCall) -> Sequence[Any]:
    """Iteration by iteration; the evaluator's own makes columns of stacked scalars."""
    body, names = call.option("body"), call.node.proto.input
    own = [value.name for value in body.input]
    count, condition = call.optional(0), call.optional(1)
    outer = {name: array for name, array in call.feeds.items() if name not in own}
    evaluate = call.node.body(list(outer))
    states: list[Any] = [call.feeds[name] for name in names[2:]]
    going = condition is None or bool(np.ravel(condition)[0])
    stacked: list[list[Any]] = [[] for _ in range(len(body.output) - 1 - len(states))]
    iteration, last = 0, None if count is None else int(np.ravel(count)[0])
    while going and (last is None or iteration < last):
        known = dict(zip(own, [np.array(iteration, np.int64), np.array(going), *states], strict=True))
        results = evaluate({**outer, **known})
        going, states = bool(np.ravel(results[0])[0]), list(results[1 : 1 + len(states)])
        for group, value in zip(stacked, results[1 + len(states) :], strict=True):
            group.append(value)
        iteration += 1
    kinds = [value.type.tensor_type for value in body.output[1 + len(states) :]]
    return [*states, *(np.stack(group) if group else _nothing(kind) for group, kind in zip(stacked, kinds, strict=True))]


def _nothing(kind: Any) -> Array:
    """The stacked output of a loop without iterations."""
    return np.zeros((0, *(max(int(d.dim_value), 0) for d in kind.shape.dim)), dtype_of(int(kind.elem_type)))


@SCAN.host_kernel
def _run_scan(call: HostCall) -> Sequence[Any]:
    """Row by row, along each input's axis and in its direction; results are stacked likewise."""
    if call.version < _FIRST_PLAIN_SCAN:
        return _scan_batches(call)
    node, body, count = call.node, call.option("body"), call.option("num_scan_inputs")
    first = len(node.proto.input) - count
    own = [value.name for value in body.input]
    scanned = []
    for name, axis, backwards in zip(node.proto.input[first:], *_orders(call, "input", count), strict=True):
        moved = np.moveaxis(call.feeds[name], axis, 0)
        scanned.append(np.ascontiguousarray(moved[::-1] if backwards else moved))
    if len({len(rows) for rows in scanned}) > 1:
        raise ValueError(f"inputs of one length, found {[len(rows) for rows in scanned]}")
    outer = {name: array for name, array in call.feeds.items() if name not in own}
    evaluate, states = node.body(list(outer)), [call.feeds[name] for name in node.proto.input[:first]]
    stacked: list[list[Any]] = [[] for _ in body.output[first:]]
    for row in zip(*scanned, strict=True):
        results = evaluate({**outer, **dict(zip(own, [*states, *map(np.asarray, row)], strict=True))})
        states = list(results[:first])
        for group, value in zip(stacked, results[first:], strict=True):
            group.append(value)
    kinds = [value.type.tensor_type for value in body.output[first:]]
    made = [np.stack(group) if group else _nothing(kind) for group, kind in zip(stacked, kinds, strict=True)]
    orders = zip(made, *_orders(call, "output", len(made)), strict=True)
    return [*states, *(np.moveaxis(rows[::-1] if backwards else rows, 0, axis) for rows, axis, backwards in orders)]


def _scan_batches(call: HostCall) -> Sequence[Any]:
    """Scan of opset 8: axis 0 of every input and output is that of batches, each of which has a length of its own."""
    node, body, feeds = call.node.proto, call.option("body"), call.feeds
    names, count = list(node.input[1:]), call.option("num_scan_inputs")
    first = len(names) - count
    backwards = call.option("directions") or [0] * count
    outer = {name: array for name, array in feeds.items() if name not in names and name != node.input[0]}
    evaluate = call.node.body(list(outer))
    scanned = [feeds[name] for name in names[first:]]
    batches, longest = scanned[0].shape[:2]
    lengths = feeds[node.input[0]] if node.input[0] else np.full(batches, longest)
    kinds, made = [value.type.tensor_type for value in body.output[first:]], []
    for batch in range(batches):
        states = [feeds[name][batch] for name in names[:first]]
        rows: list[Sequence[Any]] = []
        for step in range(int(lengths[batch])):
            indexes = [int(lengths[batch]) - 1 - step if back else step for back in backwards]
            elements = [array[batch, index] for array, index in zip(scanned, indexes, strict=True)]
            known = dict(zip((value.name for value in body.input), [*states, *elements], strict=True))
            results = evaluate({**outer, **known})
            states, rows = list(results[:first]), [*rows, results[first:]]
        # What comes after a batch's own length is zero.
        stacked = [np.stack(group) for group in zip(*rows, strict=True)] or [_nothing(kind) for kind in kinds]
        padded = [np.pad(a, [(0, longest - len(a))] + [(0, 0)] * (a.ndim - 1)) for a in stacked]
        made.append([*states, *padded])
    return [np.stack(group) for group in zip(*made, strict=True)]


def _orders(call: HostCall, side: str, count: int) -> tuple[Sequence[int], Sequence[int]]:
    """Axis and direction of each scanned input or output."""
    axes, directions = (call.option(f"scan_{side}_{what}") or [0] * count for what in ("axes", "directions"))
    return list(axes), list(directions)
