"""An ONNX file's messages while the file is edited: one node is replaced, or changed in place."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, lru_cache, partial
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

from nnbridge.converters.edits import Content
from nnbridge.errors import ConversionError, Reason, first_line, pass_shortage
from nnbridge.model import Array
from nnbridge.records import dataclass
from nnbridge_onnx.native import infer_shapes
from nnbridge_onnx.read.graph import Graph, subgraphs
from nnbridge_onnx.weights import StoredWeights, with_weights

_GROUPED = {"DequantizeLinear": "QuantizeLinear"}
"""What is before a node of a quantised group, and what after it."""


def copied(message: Any) -> Any:
    """A message that may be changed while the original stays."""
    made = type(message)()
    made.CopyFrom(message)
    return made


def positions(path: Path, graph: Graph) -> dict[int, int]:
    """Nodes of a converted graph → those of the file, by index: the one whose result they compute, or lead to."""
    import onnx

    nodes = onnx.load(str(path), load_external_data=False).graph.node
    makers = {name: index for index, node in enumerate(nodes) for name in node.output if name}
    found, last = {}, None
    for node in reversed(graph.nodes):
        last = next((makers[name] for name in node.outputs if name in makers), last)
        if last is not None:
            found[node.index] = last
    return found


def names_read(node: Any) -> Iterator[str]:
    """The values that a node reads, bodies of control flow included."""
    yield from node.input
    for attribute in node.attribute:
        for graph in subgraphs(attribute):
            yield from (name for inner in graph.node for name in names_read(inner))
            yield from (value.name for value in graph.output)


def without_unread(model: Any) -> Any:
    """The model without the initialisers that nothing reads."""
    graph = model.graph
    read = {name for node in graph.node for name in names_read(node)} | {value.name for value in graph.output}
    read |= {value.name for value in graph.input}
    rest = [tensor for tensor in graph.initializer if tensor.name in read]
    if len(rest) < len(graph.initializer):
        rest = [copied(tensor) for tensor in rest]
        del graph.initializer[:]
        graph.initializer.extend(rest)
    return model


def loaded(path: Path) -> tuple[InferredModel, Callable[..., EditedOnnxGraph]]:
    """A file's model with inferred shapes, not to be changed, and its graph seen from a node. ConversionError for other files."""
    facts = _facts(path, path.stat().st_mtime_ns)
    return facts, partial(EditedOnnxGraph, facts)


@lru_cache(maxsize=1)
def _facts(path: Path, changed: int) -> InferredModel:
    import onnx

    try:
        return inferred(*with_weights(onnx, path))
    except ConversionError:
        raise
    except Exception as error:
        pass_shortage(error)
        # protobuf's, the checker's and the operating system's errors have no common class.
        raise ConversionError(Reason("an ONNX model", first_line(error), file=str(path))) from error


def inferred(model: Any, weights: StoredWeights) -> InferredModel:
    """A model with the types that follow from it."""
    import onnx

    graph = infer_shapes(onnx, model).graph
    return InferredModel(model, {value.name: value for value in (*graph.value_info, *graph.input, *graph.output)}, weights)


@dataclass(frozen=True)
class InferredModel:
    """A model and what is known of its values."""

    model: Any
    types: dict[str, Any]
    weights: StoredWeights

    @cached_property
    def constants(self) -> dict[str, Any]:
        """Initialisers and tensors of Constant nodes by name; initialisers that are inputs too are left out."""
        inputs = {value.name for value in self.model.graph.input}
        stored = {tensor.name: tensor for tensor in self.model.graph.initializer if tensor.name not in inputs}
        return {**stored, **dict(_of_nodes(self.model.graph.node))}

    @cached_property
    def makers(self) -> dict[str, Any]:
        """Values → the nodes that compute them."""
        return {name: node for node in self.model.graph.node for name in node.output if name}

    @cached_property
    def readers(self) -> dict[str, list[Any]]:
        """Values → the nodes that read them, outputs of the graph left out: these have more readers."""
        ends = {value.name for value in self.model.graph.output}
        found: dict[str, list[Any]] = {}
        for node in self.model.graph.node:
            for name in names_read(node):
                if name not in ends:
                    found.setdefault(name, []).append(node)
        return found

    @cached_property
    def names(self) -> set[str]:
        """Every name of a value."""
        found = {name for node in self.model.graph.node for name in (*node.input, *node.output)}
        return found | {tensor.name for tensor in self.model.graph.initializer} | {v.name for v in self.model.graph.input}


def _of_nodes(nodes: Sequence[Any]) -> Iterator[tuple[str, Any]]:
    for node in nodes:
        value = next((a.t for a in node.attribute if a.name == "value"), None) if node.op_type == "Constant" else None
        if value is not None:
            tensor = copied(value)
            tensor.name = node.output[0]
            yield tensor.name, tensor


class EditedOnnxGraph:
    """The main graph of a file while one of its nodes is edited."""

    def __init__(self, facts: InferredModel, index: int, taken: set[str] | None = None) -> None:
        """``taken``: names of new values that edits of other nodes have."""
        self._facts = facts
        self._index = index
        self._taken = set() if taken is None else taken
        self.node = copied(facts.model.graph.node[index])
        self._placed: list[Any] = []
        self._constants: list[Any] = []

    @property
    def out(self) -> str:
        """The first output's name."""
        return str(self.node.output[0])

    @property
    def opset(self) -> int:
        """The opset of ONNX's own domain."""
        return next((int(entry.version) for entry in self._facts.model.opset_import if entry.domain in ("", "ai.onnx")), 1)

    def attribute(self, name: str, default: Any) -> Any:
        """An attribute's value."""
        from onnx import helper

        found = next((a for a in self.node.attribute if a.name == name), None)
        return default if found is None else helper.get_attribute_value(found)

    def set_attribute(self, node: Any, name: str, value: Any) -> None:
        """Give a node an attribute's value."""
        from onnx import helper

        rest = [a for a in node.attribute if a.name != name]
        del node.attribute[:]
        node.attribute.extend([*rest, helper.make_attribute(name, value)])

    def shape(self, name: str) -> tuple[int, ...] | None:
        """All dimensions of a value; None unless they are known and none is 0."""
        if name in self._facts.constants:
            return tuple(int(d) for d in self._facts.constants[name].dims)
        value = self._facts.types.get(name)
        if value is None or not value.type.tensor_type.HasField("shape"):
            return None
        dims = tuple(int(d.dim_value) for d in value.type.tensor_type.shape.dim)
        return dims if all(dims) else None

    def type(self, name: str) -> str:
        """A value's element type; empty if it is not known."""
        if name in self._facts.constants:
            return _type_name(self._facts.constants[name].data_type)
        value = self._facts.types.get(name)
        return _type_name(value.type.tensor_type.elem_type) if value is not None else ""

    def value(self, name: str) -> Array | None:
        """A constant's value; None for what is computed."""
        found = self._facts.constants.get(name)
        return None if found is None else self._facts.weights.array(found)

    @property
    def reads_numbers(self) -> bool:
        """True if sizes, axes or bounds after the first input are computed, so that the file does not state them."""
        return any(name and self.value(name) is None for name in self.node.input[1:])

    def bound(self, i: int, attribute: str) -> float | None:
        """A bound of Clip; None where there is none, or a computed one."""
        stated = self.attribute(attribute, None)
        array = self.value(self.node.input[i]) if i < len(self.node.input) and self.node.input[i] else None
        found = stated if stated is not None else None if array is None else array.item()
        return None if found is None else float(found)

    def name(self, near: str) -> str:
        """A name that no value has."""
        names = (f"{near}_{k}" if k else near for k in count())
        found = next(name for name in names if name not in self._facts.names and name not in self._taken)
        self._taken.add(found)
        return found

    def constant(self, array: Array | np.generic) -> str:
        """A new constant."""
        from onnx import numpy_helper

        name = self.name("edited")
        self._constants.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def place(self, operator: str, inputs: Sequence[str], outputs: Sequence[str]) -> None:
        """A node in the place of the one that is replaced."""
        from onnx import helper

        self._placed.append(helper.make_node(operator, inputs, outputs))

    def reshaped(self, name: str, dims: Sequence[int]) -> str:
        """A value of other dimensions; what a quantised group reads begins another one."""
        made = self.name(f"{name}_reshaped")
        self.place("Reshape", [name, self.constant(np.asarray(dims, np.int64))], [made])
        source = self._facts.makers.get(name)
        grouped = source is not None and source.op_type in _GROUPED and self._is_plain(source)
        return self._quantised(made, source, self.name(f"{made}_real")) if grouped else made

    def shaped_as(self, name: str, output: str, dims: Sequence[int]) -> None:
        """The output from a value of other dimensions; what ends a quantised group is followed by one more."""
        readers = self._facts.readers.get(output, [])
        if len(readers) == 1 and readers[0].op_type in _GROUPED.values() and self._is_plain(readers[0]):
            name = self._quantised(name, readers[0], self.name(f"{name}_real"))
        self.place("Reshape", [name, self.constant(np.asarray(dims, np.int64))], [output])

    def _is_plain(self, node: Any) -> bool:
        """True for a QuantizeLinear or DequantizeLinear of one constant scale."""
        scale = self.value(node.input[1])
        return scale is not None and scale.size == 1 and self.value(node.input[0]) is None

    def _quantised(self, name: str, like: Any, real: str) -> str:
        """A value through 8 bits and back, with the scale and zero point of a node."""
        steps, parameters = self.name(f"{name}_steps"), list(like.input)[1:]
        self.place("QuantizeLinear", [name, *parameters], [steps])
        self.place("DequantizeLinear", [steps, *parameters], [real])
        return real

    def same(self, inputs: Sequence[str], outputs: Sequence[str]) -> Any:
        """The node itself with other values, in its place."""
        made = copied(self.node)
        del made.input[:], made.output[:]
        made.input.extend(inputs)
        made.output.extend(outputs)
        self._placed.append(made)
        return made

    def finished(self, *, alone: bool) -> Content:
        """The edited file; ``alone``: only the node and its quantised group."""
        if not alone:
            return together([self])
        made = type(self._facts.model)()
        nodes = self._group(self._placed or [self.node])
        made.graph.node.extend(nodes)
        self._surround(made, nodes)
        made.graph.initializer.extend(self._constants)
        return self._facts.weights.content(made)

    def replacing(self) -> tuple[int, Sequence[Any], Sequence[Any]]:
        """The node's index, the nodes in its place and the new constants."""
        return self._index, self._placed or [self.node], self._constants

    @property
    def facts(self) -> InferredModel:
        """The file's model, not to be changed, with its weights."""
        return self._facts

    def _group(self, placed: Sequence[Any]) -> list[Any]:
        nodes = self._facts.model.graph.node
        before = [n for n in nodes if n.op_type in _GROUPED and n.output[0] in self.node.input]
        behind = [n for n in nodes if n.op_type in _GROUPED.values() and n.input[0] in self.node.output] if before else []
        return [*before, *placed, *behind]

    def _surround(self, made: Any, nodes: Sequence[Any]) -> None:
        """Inputs, outputs and constants of the given nodes."""
        model = self._facts.model
        made.ir_version = max(model.ir_version, 4)
        made.opset_import.extend(model.opset_import)
        made.graph.name = "alone"
        written = [name for node in nodes for name in node.output if name]
        read = [name for node in nodes for name in node.input if name]
        fresh = {tensor.name for tensor in self._constants}
        made.graph.initializer.extend(
            self._facts.constants[name] for name in dict.fromkeys(read) if name in self._facts.constants
        )
        starts = [n for n in dict.fromkeys(read) if n not in written and n not in self._facts.constants and n not in fresh]
        unknown = next((name for name in starts if name not in self._facts.types), None)
        if unknown is not None:
            raise ConversionError(Reason("values of known types", unknown, self.node.op_type))
        made.graph.input.extend(self._facts.types[name] for name in starts)
        for name in written:
            if name not in read:
                value = copied(self._facts.types[name]) if name in self._facts.types else made.graph.output.add(name=name)
                if name in self._facts.types:
                    value.type.tensor_type.ClearField("shape")
                    made.graph.output.append(value)


def together(graphs: Sequence[EditedOnnxGraph]) -> Content:
    """The file with several nodes edited."""
    return graphs[0].facts.weights.content(edited(graphs))


def edited(graphs: Sequence[EditedOnnxGraph]) -> Any:
    """The model with several nodes edited."""
    facts = graphs[0].facts
    made = copied(facts.model)
    changes = {index: (nodes, constants) for index, nodes, constants in (graph.replacing() for graph in graphs)}
    nodes = [node for k, one in enumerate(facts.model.graph.node) for node in (changes[k][0] if k in changes else [one])]
    del made.graph.node[:]
    made.graph.node.extend(nodes)
    # What the file states of values after the edits is inferred again.
    del made.graph.value_info[:]
    for _, constants in changes.values():
        made.graph.initializer.extend(constants)
    return made


def _type_name(code: int) -> str:
    """ONNX's name of an element type; the number of one that it does not define."""
    from onnx import TensorProto

    return str(TensorProto.DataType.Name(code)) if code in TensorProto.DataType.values() else str(code)
