"""The nodes of host operations: their tensors, and files of some of them (:mod:`nnbridge.converters.hosted`)."""

from __future__ import annotations

import copy
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from nnbridge.converters.hosted import Ends, GraphKey, Piece, Tensor
from nnbridge.errors import ConversionError, Reason
from nnbridge.extensions import host_options, is_options
from nnbridge.model import Array, Model, Operation
from nnbridge_onnx.part import excerpt, inline_branches, loaded
from nnbridge_onnx.read.graph import Graph, dtype_of


class Parts:
    """An ONNX file; tensors are names."""

    def __init__(self, path: Path, graph: Graph) -> None:
        from onnx import helper

        self._path = path
        self._nodes = {node.index: node for node in graph.nodes}
        self._tensors = graph.tensors
        self._model = loaded(path)
        file = self._model.graph
        self._weights = _taken_out(file)
        # Nodes of other domains have types that the onnx package does not infer.
        self._types: dict[str, Any] = {
            name: helper.make_tensor_value_info(name, tensor.type, _dimensions(tensor.shape))
            for name, tensor in graph.tensors.items()
            if dtype_of(tensor.type) is not None
        }
        self._types |= {value.name: value for value in (*file.value_info, *file.input, *file.output)}

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
        inputs = {i: name for i, name in zip(data, names, strict=True) if name}
        return Ends((0, ()), inputs, dict(zip(operation.outputs, node.results, strict=True)), {})

    def piece(
        self, graph: GraphKey, inputs: Collection[Tensor], outputs: Collection[Tensor], constants: Mapping[Tensor, Array]
    ) -> Piece:
        """The nodes between tensors; ``constants`` that depend on more than the file's (on dimensions) are initialisers.

        The nodes that compute the others are part of it: ONNX Runtime fuses the DequantizeLinear of weights with what reads it.
        """
        from onnx import numpy_helper

        model = copy.deepcopy(self._model)
        names, ends = [str(name) for name in inputs], [str(name) for name in outputs]
        inline_branches(model.graph, {*names, *ends})
        stored = _from_constants(model.graph)
        for name, array in constants.items():
            known = self._tensors.get(str(name))
            dtype = None if known is None else dtype_of(known.type)
            if name not in stored and known is not None and dtype is not None:
                dims = array.shape if known.shape is None or -1 in known.shape else known.shape
                model.graph.initializer.append(numpy_helper.from_array(np.asarray(array, dtype).reshape(dims), str(name)))
                names.append(str(name))
        found = excerpt(model, ends, names, self._types, str(self._path))
        missing = next((name for name in found.inputs if name not in inputs), None)
        if missing is not None:
            raise ConversionError(Reason("tensors that the plan computes", missing, str(self._path)))
        for tensor in model.graph.initializer:
            if tensor.name in self._weights:
                tensor.CopyFrom(self._weights[tensor.name])
        return Piece(model.SerializeToString(), found.inputs, tuple(ends), {})


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
