"""The nodes of host operations: their tensors, and files of some of them (:mod:`nnbridge.converters.hosted`)."""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from nnbridge.converters.cutting import Excerpt
from nnbridge.converters.hosted import Ends, GraphKey, Piece, Tensor
from nnbridge.errors import ConversionError, Reason
from nnbridge.extensions import host_options, is_options
from nnbridge.model import Array, Model, Operation
from nnbridge.records import dataclass
from nnbridge_onnx.part import excerpt, loaded
from nnbridge_onnx.read.graph import Graph, dtype_of


@dataclass(frozen=True)
class _Whole:
    """A graph that pieces are cut from: the file's, or the importer's, whose functions, branches and loops are written out."""

    model: Any
    """A ``ModelProto`` whose initialisers have names only, so that copies of it are cheap."""
    weight: Callable[[str], Any]
    """An initialiser by its name."""
    types: Mapping[str, Any]
    """A ``ValueInfoProto`` of each value."""

    @cached_property
    def names(self) -> frozenset[str]:
        """All values."""
        graph = self.model.graph
        computed = (name for node in graph.node for name in node.output)
        return frozenset([*computed, *(value.name for value in (*graph.input, *graph.initializer))])


class Parts:
    """An ONNX file; tensors are names."""

    def __init__(self, path: Path, graph: Graph) -> None:
        from onnx import helper

        self._path = path
        self._graph = graph
        self._nodes = {node.index: node for node in graph.nodes}
        # Nodes of other domains have types that the onnx package does not infer.
        self._types: dict[str, Any] = {
            name: helper.make_tensor_value_info(name, tensor.type, _dimensions(tensor.shape))
            for name, tensor in graph.tensors.items()
            if dtype_of(tensor.type) is not None
        }

    @cached_property
    def _file(self) -> _Whole:
        model = loaded(self._path)
        weights = _taken_out(model.graph)
        stated = {value.name: value for value in (*model.graph.value_info, *model.graph.input, *model.graph.output)}
        return _Whole(model, weights.__getitem__, self._types | stated)

    @cached_property
    def _written_out(self) -> _Whole:
        from onnx import TensorProto, helper, numpy_helper

        graph = self._graph
        inputs = [self._types[name] for name in (*graph.inputs, *graph.overridable) if name in self._types]
        weights = [TensorProto(name=name) for name in graph.constants]
        made = helper.make_graph([node.proto for node in graph.nodes], graph.name, inputs, [], weights)
        for node in made.node:
            node.ClearField("name")  # Nodes that were written out share that of the one that they stand for.
        opsets = [helper.make_opsetid(domain, version) for domain, version in graph.opsets.items()]
        model = helper.make_model(made, opset_imports=opsets, ir_version=self._file.model.ir_version)
        return _Whole(model, lambda name: numpy_helper.from_array(np.asarray(graph.constants[name]), name), self._types)

    def ends(self, model: Model, operation: Operation) -> Ends | None:
        """Operands of a host operation are the node's, then what its bodies read; None for what the importer added."""
        source = operation.source
        node = None if source is None or source.subgraph or source.callers else self._nodes.get(source.index)
        options = host_options(model, model.main, operation)
        if node is None or (options["op"], options["domain"]) != (node.type, node.domain):
            return None
        names = list(node.inputs) + [name for name in node.captured if name not in node.inputs]
        if options["inputs"] != names:
            return None
        data = [i for i in operation.inputs if not is_options(model.main.operands[i])]
        inputs = [(i, name) for i, name in zip(data, names, strict=True) if name]
        return Ends((0, ()), inputs, dict(zip(operation.outputs, node.results, strict=True)), {})

    def piece(
        self, graph: GraphKey, inputs: Collection[Tensor], outputs: Collection[Tensor], constants: Mapping[Tensor, Array]
    ) -> Piece:
        """The nodes between tensors; ``constants`` that depend on more than the file's (on dimensions) are initialisers.

        The nodes that compute the others are part of it: ONNX Runtime fuses the DequantizeLinear of weights with what reads it.
        The nodes are the file's, or the importer's where functions, branches or loops that it writes out have one of the tensors,
        or where a branch that it left out reads others.
        """
        names, ends = [str(name) for name in inputs], [str(name) for name in outputs]
        wholes = [self._file] if self._file.names.issuperset((*names, *ends)) else []
        missing = ""
        for whole in (*wholes, self._written_out):
            model, found = self._cut(whole, names, ends, constants)
            missing = next((name for name in found.inputs if name not in inputs), "")
            if not missing:
                # ONNX Runtime does not say whether an input is a scalar or of any rank.
                scalars = [n for n in found.inputs if (known := self._graph.tensors.get(n)) is not None and known.shape == ()]
                return Piece(model.SerializeToString(), found.inputs, tuple(ends), {}, scalars)
        raise ConversionError(Reason("tensors that the plan computes", missing, file=str(self._path)))

    def _cut(
        self, whole: _Whole, inputs: Collection[str], outputs: Sequence[str], constants: Mapping[Tensor, Array]
    ) -> tuple[Any, Excerpt[str]]:
        from onnx import numpy_helper

        model = copy.deepcopy(whole.model)
        stored, added = _from_constants(model.graph), set[str]()
        for name, array in constants.items():
            known = self._graph.tensors.get(str(name))
            dtype = None if known is None else dtype_of(known.type)
            if name not in stored and known is not None and dtype is not None:
                dims = array.shape if known.shape is None or -1 in known.shape else known.shape
                model.graph.initializer.append(numpy_helper.from_array(np.asarray(array, dtype).reshape(dims), str(name)))
                added.add(str(name))
        found = excerpt(model, outputs, {*inputs, *added}, whole.types, str(self._path))
        for tensor in model.graph.initializer:
            if tensor.name not in added:
                tensor.CopyFrom(whole.weight(tensor.name))
        return model, found


def _taken_out(graph: Any) -> dict[str, Any]:
    """The initialisers by name; the graph keeps their names, so that copies of it are cheap."""
    weights = {}
    for tensor in graph.initializer:
        name = tensor.name
        weights[name] = copy.deepcopy(tensor)
        tensor.Clear()
        tensor.name = name
    return weights


def _from_constants(graph: Any) -> set[str]:
    """The file's constants, and what nodes without bodies compute only from them."""
    known = {tensor.name for tensor in (*graph.initializer, *(t.values for t in graph.sparse_initializer))}
    for node in graph.node:
        if all(not name or name in known for name in node.input) and not any(a.HasField("g") or a.graphs for a in node.attribute):
            known.update(node.output)
    return known


def _dimensions(shape: tuple[int, ...] | None) -> list[int | None] | None:
    return None if shape is None else [None if side < 0 else side for side in shape]
