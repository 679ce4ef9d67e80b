"""Loop and Scan written out, where the number of their iterations is known and small."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from nnbridge_onnx.graph import Array, Dims, Graph

Rename: TypeAlias = "Callable[[Any, Any, Mapping[str, str]], Any]"

MAX_NODES = 4096
"""How many nodes a graph may have once loops are written out."""

_FIRST_PLAIN_SCAN = 9
_AXES_AS_INPUT = 13
"""The opset from which Unsqueeze reads its axes."""


@dataclass(frozen=True)
class _Known:
    """What is known of the graph around a loop."""

    graph: Graph
    constants: Mapping[str, Array]

    def shape(self, name: str) -> Dims | None:
        """A value's shape, None while a dimension is open."""
        tensor = self.graph.tensors.get(name)
        shape = None if tensor is None else tensor.shape
        return None if shape is None or min(shape, default=0) < 0 else shape

    def flag(self, name: str) -> bool:
        """True if nothing speaks against a condition: it is omitted, or known to be true."""
        return not name or (name in self.constants and bool(np.ravel(self.constants[name])[0]))


def unrolled(
    onnx: Any, node: Any, graph: Graph, constants: Mapping[str, Array], weights: dict[str, Any], rename: Rename, room: int
) -> list[Any] | None:
    """The nodes that a Loop or Scan stands for; new constants become ``weights``.

    None if that is not known, or there is no ``room`` for as many nodes.
    """
    if node.domain not in ("", "ai.onnx") or node.op_type not in ("Loop", "Scan") or not node.output:
        return None
    known, body = _Known(graph, constants), next(a.g for a in node.attribute if a.name == "body")
    version = graph.opsets.get("", 1)
    scanning = _scanned(onnx, node, known, version) if node.op_type == "Scan" else _looped(node, body, known)
    if scanning is None or scanning.count < 1:
        return None
    # A row taken out of each input, and an axis more for each row that is kept.
    each = len(body.node) + len(scanning.scanned) + len(scanning.stacked)
    if scanning.count * max(each, 1) > room:
        return None
    return _Writer(onnx, node, body, weights, rename, version).nodes(scanning)


@dataclass(frozen=True)
class _Scanning:
    """How often the body runs, and what it reads and leaves at each iteration."""

    count: int
    states: tuple[str, ...]
    scanned: tuple[tuple[str, int, bool], ...] = ()
    """Inputs taken apart: name, axis, and whether backwards."""
    stacked: tuple[tuple[int, bool], ...] = ()
    """Outputs put together: axis, and whether backwards."""
    leading: int = 0
    """How many of the body's inputs come before the states: a loop's number and condition."""
    conditions: int = 0
    """How many of the body's outputs come before the states: a loop's condition."""


def _scanned(onnx: Any, node: Any, known: _Known, version: int) -> _Scanning | None:
    if version < _FIRST_PLAIN_SCAN:
        return None
    attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
    count = int(attributes["num_scan_inputs"])
    first = len(node.input) - count
    made = len(node.output) - first
    if first < 0 or made < 0:
        return None

    def orders(side: str, n: int) -> list[tuple[int, bool]]:
        axes, directions = (list(attributes.get(f"scan_{side}_{what}") or [0] * n) for what in ("axes", "directions"))
        return [(int(axis), bool(back)) for axis, back in zip(axes, directions, strict=True)]

    scanned = tuple((name, *order) for name, order in zip(node.input[first:], orders("input", count), strict=True))
    tensors = [known.graph.tensors.get(name) for name, _, _ in scanned]
    shapes = [None if tensor is None else tensor.shape for tensor in tensors]
    lengths = {-1 if s is None or not s else s[axis] for s, (_, axis, _) in zip(shapes, scanned, strict=True)}
    if len(lengths) != 1 or min(lengths) < 1:
        return None
    return _Scanning(lengths.pop(), tuple(node.input[:first]), scanned, tuple(orders("output", made)))


def _looped(node: Any, body: Any, known: _Known) -> _Scanning | None:
    trips = known.constants.get(node.input[0]) if node.input and node.input[0] else None
    if trips is None or trips.size != 1 or not known.flag(node.input[1] if len(node.input) > 1 else ""):
        return None
    if not _keeps_going(body, known):
        return None
    states = tuple(node.input[2:])
    if any(
        known.shape(before) is None or known.shape(before) != known.shape(made)
        for before, made in zip(states, node.output, strict=False)
    ):
        # States that grow may grow beyond all bounds.
        return None
    stacked = ((0, False),) * (len(node.output) - len(states))
    return _Scanning(int(np.ravel(trips)[0]), states, (), stacked, 2, 1)


def _keeps_going(body: Any, known: _Known) -> bool:
    """True if the body's condition is the one that it was given, or always true."""
    from onnx.numpy_helper import to_array

    name, makers = body.output[0].name, {out: node for node in body.node for out in node.output}
    while name in makers and makers[name].op_type == "Identity":
        name = makers[name].input[0]
    if name == body.input[1].name:
        return True
    made = makers.get(name)
    tensors = [t for t in body.initializer if t.name == name]
    if made is not None and made.op_type == "Constant":
        tensors += [a.t for a in made.attribute if a.HasField("t")]
    if tensors:
        return bool(np.all(to_array(tensors[0])))
    return made is None and name in known.constants and known.flag(name)


class _Writer:
    """One loop being written out."""

    def __init__(self, onnx: Any, node: Any, body: Any, weights: dict[str, Any], rename: Rename, version: int) -> None:
        self._onnx = onnx
        self._node = node
        self._body = body
        self._weights = weights
        self._rename = rename
        self._version = version
        self._prefix = next(filter(None, node.output), node.op_type)
        self._made: list[Any] = []

    def nodes(self, scanning: _Scanning) -> list[Any]:
        shared = self._constants()
        states, rows = list(scanning.states), []
        for step in range(scanning.count):
            names = {**shared, **self._given(scanning, step, states)}
            left = self._iteration(step, names)[scanning.conditions :]
            states, row = left[: len(states)], left[len(states) :]
            rows.append(row)
        for name, target in zip(states, self._node.output, strict=False):
            if target:
                self._add("Identity", [name], target)
        targets = self._node.output[len(states) :]
        for target, (axis, backwards), column in zip(targets, scanning.stacked, zip(*rows, strict=True), strict=True):
            if target:
                self._stack(target, column[::-1] if backwards else column, axis)
        return self._made

    def _constants(self) -> dict[str, str]:
        """The body's own constants, once for all iterations."""
        names = {}
        for tensor in self._body.initializer:
            copy = self._onnx.TensorProto()
            copy.CopyFrom(tensor)
            copy.name = names[tensor.name] = f"{self._prefix}/{tensor.name}"
            self._weights[copy.name] = copy
        return names

    def _given(self, scanning: _Scanning, step: int, states: Sequence[str]) -> dict[str, str]:
        """The body's inputs at one iteration."""
        values = []
        if scanning.leading:
            values = [self._constant(f"number {step}", np.array(step, np.int64)), self._constant("going", np.array(True))]
        values += states
        for i, (name, axis, backwards) in enumerate(scanning.scanned):
            place = scanning.count - 1 - step if backwards else step
            index = self._constant(f"place {place}", np.array(place, np.int64))
            values.append(self._add("Gather", [name, index], f"{self._prefix}/{step}/input {i}", axis=axis))
        return {value.name: name for value, name in zip(self._body.input, values, strict=True)}

    def _iteration(self, step: int, names: Mapping[str, str]) -> list[str]:
        """The body's nodes once more; the names of its outputs."""
        inner = {name: f"{self._prefix}/{step}/{name}" for node in self._body.node for name in node.output if name}
        renamed = {**names, **inner}
        self._made += [self._rename(self._onnx, node, renamed) for node in self._body.node]
        return [renamed.get(value.name, value.name) for value in self._body.output]

    def _stack(self, target: str, column: Sequence[str], axis: int) -> None:
        wide = [self._unsqueezed(name, axis, f"{target}/{i} of all") for i, name in enumerate(column)]
        self._add("Concat", wide, target, axis=axis)

    def _unsqueezed(self, name: str, axis: int, target: str) -> str:
        if self._version < _AXES_AS_INPUT:
            return self._add("Unsqueeze", [name], target, axes=[axis])
        return self._add("Unsqueeze", [name, self._constant(f"axis {axis}", np.array([axis], np.int64))], target)

    def _constant(self, what: str, array: Array) -> str:
        name = f"{self._prefix}/{what}"
        self._weights[name] = self._onnx.numpy_helper.from_array(array, name)
        return name

    def _add(self, kind: str, inputs: Sequence[str], target: str, **attributes: Any) -> str:
        self._made.append(self._onnx.helper.make_node(kind, list(inputs), [target], name=self._node.name, **attributes))
        return target
