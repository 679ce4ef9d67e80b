"""Inlining: the branch of each If that is always taken, and Loop and Scan whose iterations are known and few, written out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from nnbridge.budget import operations_limit
from nnbridge.errors import ConversionError, Reason
from nnbridge.model import Array
from nnbridge.records import dataclass
from nnbridge_onnx.passes.folding import Known
from nnbridge_onnx.read.graph import subgraphs

MAX_NODES = 4096
"""The number of nodes that a graph may have once loops are written out."""
MAX_COPIED = 32 << 20
"""Bytes of the nodes that calls of functions stand for, or of those that one loop or branch does, with their names."""
MAX_CALLS = 100
"""The depth of calls of functions."""
_FIRST_PLAIN_SCAN = 9
_AXES_AS_INPUT = 13
"""The opset from which Unsqueeze reads its axes."""


def check_nodes(model: Any, source: str, size_of_file: int) -> None:
    """ConversionError for too many nodes, those of bodies and of functions among them, which may call each other."""
    bodies = {(f.domain, f.name, f.overload): f for f in model.functions}
    sizes: dict[tuple[str, str, str], int] = {}
    copied: dict[tuple[str, str, str], int] = {}
    """Bytes that a call of a function stands for."""
    most = operations_limit(size_of_file)
    too_many = f"at most {most:,} nodes{' once functions are inlined' if bodies else ''}, for a file of this size"

    def refused(rule: str) -> ConversionError:
        return ConversionError(Reason(rule, "more", file=source))

    def size(nodes: Iterable[Any], callers: tuple[tuple[str, str, str], ...]) -> int:
        return sum(size_of(node, callers) for node in nodes)

    def size_of(node: Any, callers: tuple[tuple[str, str, str], ...]) -> int:
        total, key = 1, (node.domain, node.op_type, node.overload)
        if key in callers or len(callers) > MAX_CALLS:
            rule = f"functions that do not call themselves, {MAX_CALLS} calls deep at most"
            raise ConversionError(Reason(rule, node.op_type, file=source))
        if key in bodies:
            if key not in sizes:
                before, calls[0] = calls[0], 0
                sizes[key] = size(bodies[key].node, (*callers, key))
                copied[key] = bodies[key].ByteSize() + calls[0]
                calls[0] = before
            total = sizes[key]
            calls[0] += copied[key]
            if calls[0] > max(MAX_COPIED, 4 * size_of_file):
                raise refused(f"functions whose calls expand to at most {MAX_COPIED:,} bytes, or four times the file's")
        for attribute in node.attribute:
            for graph in subgraphs(attribute):
                total += size(graph.node, callers)
        if total > most:
            raise refused(too_many)
        return total

    calls = [0]
    """Bytes that the calls so far stand for, of the function in question or the graph."""
    if size(model.graph.node, ()) > most:
        raise refused(too_many)


def state_defaults(model: Any) -> None:
    """Write the defaults of functions' attributes into the calls that leave them out, which the package's inliner does not."""
    defaults = {(f.domain, f.name, f.overload): f.attribute_proto for f in model.functions}

    def visit(nodes: Iterable[Any]) -> None:
        for node in nodes:
            stated = {attribute.name for attribute in node.attribute}
            missing = defaults.get((node.domain, node.op_type, node.overload), ())
            node.attribute.extend(attribute for attribute in missing if attribute.name not in stated)
            for attribute in node.attribute:
                for graph in subgraphs(attribute):
                    visit(graph.node)

    if any(defaults.values()):
        for nodes in (model.graph.node, *(function.node for function in model.functions)):
            visit(nodes)


def replace_nodes(onnx: Any, graph: Any, nodes: Sequence[Any]) -> None:
    """Other nodes, of which some may be the graph's own."""
    copies = [onnx.NodeProto.FromString(node.SerializeToString()) for node in nodes]
    del graph.node[:]
    graph.node.extend(copies)


def inline(onnx: Any, bare: Any, known: Known, weights: dict[str, Any], *, loops: bool) -> bool:
    """Put the branch of each If whose condition is known in its place, and write short loops out; True if there was one."""
    nodes: list[Any] = []
    found, version = False, _version(bare)
    for node in bare.graph.node:
        condition = known.constants.get(node.input[0]) if node.op_type == "If" and node.domain in ("", "ai.onnx") else None
        if condition is None or condition.size != 1:
            budget = MAX_NODES - len(bare.graph.node) - len(nodes)
            written = _unrolled(onnx, node, known, weights, budget, version) if loops else None
            nodes += [node] if written is None else written
            found |= written is not None
            continue
        branch = next(a.g for a in node.attribute if a.name == ("then_branch" if condition.item() else "else_branch"))
        if _copied(branch, node.output[0] if node.output else "", 1) > MAX_COPIED:
            nodes.append(node)
            continue
        found = True
        nodes += branch_nodes(onnx, node, branch, weights)
    if found:
        replace_nodes(onnx, bare.graph, nodes)
    return found


def _copied(body: Any, prefix: str, times: int) -> int:
    """Bytes of a body's nodes that are written out so many times, with a prefix in front of their names."""
    return times * (int(body.ByteSize()) + len(prefix) * sum(len(node.input) + len(node.output) for node in body.node))


def branch_nodes(onnx: Any, node: Any, branch: Any, weights: dict[str, Any]) -> list[Any]:
    """The nodes of a branch under names that no other has, and its constants among the weights."""
    inner = {name for made in branch.node for name in made.output} | {tensor.name for tensor in branch.initializer}
    names = {name: f"{node.output[0]}/{name}" for name in inner if name}
    weights.update(_renamed_tensors(onnx, branch, names))
    made = [_renamed(onnx, inside, names) for inside in branch.node]
    results = zip(branch.output, node.output, strict=True)
    made += [onnx.helper.make_node("Identity", [names[r.name]], [name]) for r, name in results if name]
    return made


def _renamed_tensors(onnx: Any, graph: Any, names: Mapping[str, str]) -> Iterator[tuple[str, Any]]:
    for tensor in graph.initializer:
        copy = onnx.TensorProto()
        copy.CopyFrom(tensor)
        copy.name = names[tensor.name]
        yield copy.name, copy


def _version(model: Any) -> int:
    return next((int(e.version) for e in model.opset_import if e.domain in ("", "ai.onnx")), 1)


def _renamed(onnx: Any, node: Any, names: Mapping[str, str]) -> Any:
    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    for part in (copy.input, copy.output):
        part[:] = [names.get(name, name) for name in part]
    for attribute in copy.attribute:
        for graph in subgraphs(attribute):
            _rename_captured(onnx, graph, names)
    return copy


def _rename_captured(onnx: Any, graph: Any, names: Mapping[str, str]) -> None:
    """New names for what a subgraph reads from outside."""
    own = {value.name for value in graph.input} | {tensor.name for tensor in graph.initializer}
    own.update(name for node in graph.node for name in node.output)
    outer = {old: new for old, new in names.items() if old not in own}
    for node in graph.node:
        node.CopyFrom(_renamed(onnx, node, outer))
    for value in graph.output:
        value.name = outer.get(value.name, value.name)


# -- loops -----------------------------------------------------------------------------------------------------------


def _unrolled(onnx: Any, node: Any, known: Known, weights: dict[str, Any], budget: int, version: int) -> list[Any] | None:
    """The nodes that a Loop or Scan stands for; new constants become ``weights``. None if that is not known, or too many."""
    if node.domain not in ("", "ai.onnx") or node.op_type not in ("Loop", "Scan") or not node.output:
        return None
    body = next(a.g for a in node.attribute if a.name == "body")
    scanning = _scanned(onnx, node, known, version) if node.op_type == "Scan" else _looped(node, body, known)
    if scanning is None or scanning.count < 1:
        return None
    # A row taken out of each input, and an axis more for each row that stays.
    each = len(body.node) + len(scanning.scanned) + len(scanning.stacked)
    if scanning.count * max(each, 1) > budget or _copied(body, max(node.output, key=len), scanning.count) > MAX_COPIED:
        return None
    return _LoopWriter(onnx, node, body, weights, version).nodes(scanning)


@dataclass(frozen=True)
class _Scanning:
    """The number of the body's runs, and the values that it reads and leaves at each iteration."""

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


def _scanned(onnx: Any, node: Any, known: Known, version: int) -> _Scanning | None:
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
    shapes = [known.tensor(name).shape for name, _, _ in scanned]
    lengths = {-1 if s is None or not s else s[axis] for s, (_, axis, _) in zip(shapes, scanned, strict=True)}
    if len(lengths) != 1 or min(lengths) < 1:
        return None
    return _Scanning(lengths.pop(), tuple(node.input[:first]), scanned, tuple(orders("output", made)))


def _looped(node: Any, body: Any, known: Known) -> _Scanning | None:
    trips = known.constants.get(node.input[0]) if node.input and node.input[0] else None
    if trips is None or trips.size != 1 or not _is_true(known, node.input[1] if len(node.input) > 1 else ""):
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


def _keeps_going(body: Any, known: Known) -> bool:
    """True if the body's condition is the one that is passed to it, or always true."""
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
    return made is None and name in known.constants and _is_true(known, name)


def _is_true(known: Known, name: str) -> bool:
    """True if nothing speaks against a condition: it is omitted, or known to be true."""
    return not name or (name in known.constants and bool(np.ravel(known.constants[name])[0]))


class _LoopWriter:
    """One loop being written out."""

    def __init__(self, onnx: Any, node: Any, body: Any, weights: dict[str, Any], version: int) -> None:
        self._onnx = onnx
        self._node = node
        self._body = body
        self._weights = weights
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
        names = {tensor.name: f"{self._prefix}/{tensor.name}" for tensor in self._body.initializer}
        self._weights.update(_renamed_tensors(self._onnx, self._body, names))
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
        self._made += [_renamed(self._onnx, node, renamed) for node in self._body.node]
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
