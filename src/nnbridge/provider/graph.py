"""ONNX Runtime's graph, which exists during a call only, as plain data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from nnbridge.converters.runtime_graph import RuntimeGraph, RuntimeNode, RuntimeValue
from nnbridge.model import Array
from nnbridge.provider.interface import HAS_SHAPE, Interface, OrtError
from nnbridge.records import dataclass

DTYPES: Mapping[int, np.dtype[Any]] = {
    number: np.dtype(name)
    for number, name in {
        1: "float32", 2: "uint8", 3: "int8", 4: "uint16", 5: "int16", 6: "int32", 7: "int64", 9: "bool", 10: "float16",
        11: "float64", 12: "uint32", 13: "uint64",
    }.items()
}  # fmt: skip
"""ONNX Runtime's element types that NumPy has. Constants of others are values that no one knows."""
_TENSOR = 1
_SCALARS = {1: ("INT", "int64_t"), 3: ("FLOAT", "float")}
_LISTS: Mapping[int, tuple[str, np.dtype[Any]]] = {2: ("INTS", np.dtype("int64")), 4: ("FLOATS", np.dtype("float32"))}
_STRING, _STRINGS, _TENSOR_ATTRIBUTE = 5, 6, 8


@dataclass(frozen=True)
class HostedGraph:
    """A graph as data, and ONNX Runtime's nodes in the same order."""

    graph: RuntimeGraph
    nodes: list[Any]


class GraphReader:
    """Reads graphs through ONNX Runtime's interface."""

    def __init__(self, ort: Interface, minor: int, providers: frozenset[str]) -> None:
        self._ort = ort
        self._providers = providers
        self._has_shape: Callable[[Any], bool] | None = None
        if minor >= 24:
            position, type = HAS_SHAPE
            functions = ort.ffi.cast("void* const*", ort.table)
            self._has_shape = ort.ffi.cast(type, functions[position])

    def is_inner(self, graph: Any) -> bool:
        """True for a branch of an If, or the body of a Loop or Scan."""
        return bool(self._ort.get("Graph_GetParentNode", graph, "const void*") != self._ort.ffi.NULL)

    def read(self, graph: Any) -> HostedGraph:
        """The graph. Constants are copied: ONNX Runtime frees its own."""
        ort = self._ort
        constants, external, kinds = self._constants(graph)
        values = dict(kinds)
        inputs, outputs = (self._described(ort.all(name, graph), values) for name in ("Graph_GetInputs", "Graph_GetOutputs"))
        found = ort.all("Graph_GetNodes", graph)
        nodes = tuple(self._node(node, values) for node in found)
        opaque = tuple(name for name in kinds if name not in constants)
        passed = tuple(dict.fromkeys(name for name in (*inputs, *opaque) if name not in constants))
        name, version = ort.string("Graph_GetName", graph), int(ort.get("Graph_GetOnnxIRVersion", graph, "int64_t"))
        read = RuntimeGraph(name, version, self._opsets(graph), passed, outputs, nodes, constants, external, values)
        return HostedGraph(read, found)

    def names(self, values: list[Any]) -> tuple[str, ...]:
        """The names of values; empty for omitted ones."""
        missing = self._ort.ffi.NULL
        return tuple("" if v == missing else self._ort.string("GetValueInfoName", v) for v in values)

    def _described(self, infos: list[Any], values: dict[str, RuntimeValue]) -> tuple[str, ...]:
        """The names of values, whose types are added to ``values``."""
        names = self.names(infos)
        for name, info in zip(names, infos, strict=True):
            if name and name not in values and (value := self._value(info)) is not None:
                values[name] = value
        return names

    def _value(self, info: Any) -> RuntimeValue | None:
        """The type of a value; None for what is not a tensor, or of no known type."""
        ort = self._ort
        type = ort.get("GetValueInfoTypeInfo", info, "const void*")
        if type == ort.ffi.NULL or ort.get("GetOnnxTypeFromTypeInfo", type, "int") != _TENSOR:
            return None
        tensor = ort.get("CastTypeInfoToTensorInfo", type, "const void*")
        kind, dims = ort.type_and_dims(tensor)
        # Before 1.24 a scalar looks as a value of any rank does: it counts as that.
        ranked = bool(dims) or (self._has_shape is not None and self._has_shape(tensor))
        return RuntimeValue(kind, dims if ranked else None)

    def _constants(self, graph: Any) -> tuple[dict[str, Array], frozenset[str], dict[str, RuntimeValue]]:
        """Constants, which of them lie in other files, and the types of all, those of unknown element types too."""
        ort, arrays, external, kinds = self._ort, {}, set(), {}
        for info in ort.all("Graph_GetInitializers", graph):
            if not ort.get("ValueInfo_IsConstantInitializer", info, "bool"):
                continue
            name = ort.string("GetValueInfoName", info)
            value = ort.get("ValueInfo_GetInitializerValue", info, "const void*")
            try:
                kind, array = ort.tensor(value, DTYPES)
            except OrtError:
                described = self._value(info)
                if described is not None:
                    kinds[name] = described
                continue
            arrays[name], kinds[name] = array.copy(), RuntimeValue(kind, array.shape)
            elsewhere = ort.get("ValueInfo_GetExternalInitializerInfo", info, "void*")
            if elsewhere != ort.ffi.NULL:
                ort.call("ReleaseExternalInitializerInfo", elsewhere)
                external.add(name)
        return arrays, frozenset(external), kinds

    def _opsets(self, graph: Any) -> dict[str, int]:
        ort = self._ort
        count = ort.get("Graph_GetNumOperatorSets", graph, "size_t")
        domains, versions = ort.ffi.new("const char*[]", count or 1), ort.ffi.new("int64_t[]", count or 1)
        ort.call("Graph_GetOperatorSets", graph, domains, versions, count)
        named = {ort.text(domains[i]): int(versions[i]) for i in range(count)}
        return {("" if domain == "ai.onnx" else domain): version for domain, version in named.items()}

    def _node(self, node: Any, values: dict[str, RuntimeValue]) -> RuntimeNode:
        ort = self._ort
        inputs, outputs, captured = (
            self._described(ort.all(f"Node_Get{part}", node), values) for part in ("Inputs", "Outputs", "ImplicitInputs")
        )
        type, name, domain = (ort.string(f"Node_Get{part}", node) for part in ("OperatorType", "Name", "Domain"))
        domain = "" if domain == "ai.onnx" else domain
        foreign = domain in self._providers or bool(ort.string("Node_GetEpName", node))
        opaque = foreign or bool(ort.get("Node_GetNumSubgraphs", node, "size_t"))
        attributes = {} if opaque else dict(filter(None, map(self._attribute, ort.all("Node_GetAttributes", node))))
        return RuntimeNode(type, name, domain, inputs, outputs, attributes, captured, opaque)

    def _attribute(self, attribute: Any) -> tuple[str, tuple[str, Any]] | None:
        """Name, type and value; None for an attribute of no known type."""
        ort, ffi = self._ort, self._ort.ffi
        name, kind = ort.string("OpAttr_GetName", attribute), int(ort.get("OpAttr_GetType", attribute, "int"))
        size = ffi.new("size_t*")
        if kind in _SCALARS:
            title, type = _SCALARS[kind]
            value = ffi.new(f"{type}*")
            ort.call("ReadOpAttr", attribute, kind, value, ffi.sizeof(type), size)
            return name, (title, value[0])
        if kind == _TENSOR_ATTRIBUTE:
            held = ort.get("OpAttr_GetTensorAttributeAsOrtValue", attribute, "void*")
            try:
                return name, ("TENSOR", ort.tensor(held, DTYPES)[1].copy())
            except OrtError:
                return None
            finally:
                ort.call("ReleaseValue", held)
        if kind not in _LISTS and kind not in (_STRING, _STRINGS):
            return None
        data = self._bytes(attribute, kind)
        if kind == _STRING:
            return name, ("STRING", data)
        if kind == _STRINGS:
            return name, ("STRINGS", data.split(b"\0")[:-1])
        title, dtype = _LISTS[kind]
        return name, (title, np.frombuffer(data, dtype).tolist())

    def _bytes(self, attribute: Any, kind: int) -> bytes:
        """An attribute's data. Asked without a buffer, ONNX Runtime fails and states the size."""
        ort, ffi = self._ort, self._ort.ffi
        size = ffi.new("size_t*")
        try:
            ort.call("ReadOpAttr", attribute, kind, ffi.NULL, 0, size)
        except OrtError:
            if not size[0]:
                raise
        if not size[0]:
            return b""
        data = ffi.new("char[]", size[0])
        ort.call("ReadOpAttr", attribute, kind, data, size[0], size)
        return bytes(ffi.buffer(data, size[0]))
