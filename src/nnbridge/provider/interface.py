"""ONNX Runtime's C interface in Python: functions by their positions, statuses as exceptions, strings and arrays as Python's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from nnbridge.errors import RefusalError
from nnbridge.model import Array

API: Mapping[str, tuple[int, str]] = {
    "CreateStatus": (0, "void*(*)(int, const char*)"),
    "GetErrorMessage": (2, "const char*(*)(const void*)"),
    "GetTensorMutableData": (51, "void*(*)(const void*, void**)"),
    "CastTypeInfoToTensorInfo": (55, "void*(*)(const void*, const void**)"),
    "GetOnnxTypeFromTypeInfo": (56, "void*(*)(const void*, int*)"),
    "GetTensorElementType": (60, "void*(*)(const void*, int*)"),
    "GetDimensionsCount": (61, "void*(*)(const void*, size_t*)"),
    "GetDimensions": (62, "void*(*)(const void*, int64_t*, size_t)"),
    "GetTensorTypeAndShape": (65, "void*(*)(const void*, void**)"),
    "KernelContext_GetInput": (90, "void*(*)(const void*, size_t, const void**)"),
    "KernelContext_GetOutput": (91, "void*(*)(void*, size_t, const int64_t*, size_t, void**)"),
    "ReleaseStatus": (93, "void(*)(void*)"),
    "ReleaseValue": (96, "void(*)(void*)"),
    "ReleaseTensorTypeAndShapeInfo": (99, "void(*)(void*)"),
    "Logger_LogMessage": (247, "void*(*)(const void*, int, const char*, const char*, int, const char*)"),
    "ReadOpAttr": (272, "void*(*)(const void*, int, void*, size_t, size_t*)"),
    "GetValueInfoName": (289, "void*(*)(const void*, const char**)"),
    "GetValueInfoTypeInfo": (290, "void*(*)(const void*, const void**)"),
    "GetKeyValuePairs": (298, "void(*)(const void*, const char* const**, const char* const**, size_t*)"),
    "ReleaseKeyValuePairs": (300, "void(*)(void*)"),
    "GetEpApi": (317, "void* const*(*)(void)"),
    "GetTensorSizeInBytes": (318, "void*(*)(const void*, size_t*)"),
    "ValueInfo_GetInitializerValue": (326, "void*(*)(const void*, const void**)"),
    "ValueInfo_GetExternalInitializerInfo": (327, "void*(*)(const void*, void**)"),
    "ValueInfo_IsConstantInitializer": (331, "void*(*)(const void*, bool*)"),
    "Graph_GetName": (333, "void*(*)(const void*, const char**)"),
    "Graph_GetOnnxIRVersion": (335, "void*(*)(const void*, int64_t*)"),
    "Graph_GetNumOperatorSets": (336, "void*(*)(const void*, size_t*)"),
    "Graph_GetOperatorSets": (337, "void*(*)(const void*, const char**, int64_t*, size_t)"),
    "Graph_GetNumInputs": (338, "void*(*)(const void*, size_t*)"),
    "Graph_GetInputs": (339, "void*(*)(const void*, const void**, size_t)"),
    "Graph_GetNumOutputs": (340, "void*(*)(const void*, size_t*)"),
    "Graph_GetOutputs": (341, "void*(*)(const void*, const void**, size_t)"),
    "Graph_GetNumInitializers": (342, "void*(*)(const void*, size_t*)"),
    "Graph_GetInitializers": (343, "void*(*)(const void*, const void**, size_t)"),
    "Graph_GetNumNodes": (344, "void*(*)(const void*, size_t*)"),
    "Graph_GetNodes": (345, "void*(*)(const void*, const void**, size_t)"),
    "Graph_GetParentNode": (346, "void*(*)(const void*, const void**)"),
    "Node_GetName": (349, "void*(*)(const void*, const char**)"),
    "Node_GetOperatorType": (350, "void*(*)(const void*, const char**)"),
    "Node_GetDomain": (351, "void*(*)(const void*, const char**)"),
    "Node_GetNumInputs": (353, "void*(*)(const void*, size_t*)"),
    "Node_GetInputs": (354, "void*(*)(const void*, const void**, size_t)"),
    "Node_GetNumOutputs": (355, "void*(*)(const void*, size_t*)"),
    "Node_GetOutputs": (356, "void*(*)(const void*, const void**, size_t)"),
    "Node_GetNumImplicitInputs": (357, "void*(*)(const void*, size_t*)"),
    "Node_GetImplicitInputs": (358, "void*(*)(const void*, const void**, size_t)"),
    "Node_GetNumAttributes": (359, "void*(*)(const void*, size_t*)"),
    "Node_GetAttributes": (360, "void*(*)(const void*, const void**, size_t)"),
    "OpAttr_GetTensorAttributeAsOrtValue": (362, "void*(*)(const void*, void**)"),
    "OpAttr_GetType": (363, "void*(*)(const void*, int*)"),
    "OpAttr_GetName": (364, "void*(*)(const void*, const char**)"),
    "Node_GetNumSubgraphs": (365, "void*(*)(const void*, size_t*)"),
    "Node_GetEpName": (368, "void*(*)(const void*, const char**)"),
    "ReleaseExternalInitializerInfo": (369, "void(*)(void*)"),
    "GetSessionOptionsConfigEntries": (379, "void*(*)(const void*, void**)"),
}
"""Functions of OrtApi: position and type. All that return an address return a status, NULL for success."""
HAS_SHAPE = (390, "bool(*)(const void*)")
"""TensorTypeAndShape_HasShape, from 1.24 on."""
_ADD_NODES_TO_FUSE = (2, "void*(*)(void*, const void* const*, size_t, const OrtNodeFusionOptions*)")
_NO_STATUS = frozenset(name for name, (_, type) in API.items() if not type.startswith("void*(*)")) | {"CreateStatus"}
FAIL = 1
INFO, WARNING = 1, 2
"""Levels of ONNX Runtime's log."""


class OrtError(RefusalError):
    """A call of ONNX Runtime's that failed."""


class Interface:
    """The functions of a running ONNX Runtime."""

    def __init__(self, ffi: Any, api: Any) -> None:
        self.ffi = ffi
        self.table = table = ffi.cast("void* const*", api)
        self._functions = {name: ffi.cast(type, table[position]) for name, (position, type) in API.items()}
        position, type = _ADD_NODES_TO_FUSE
        self._fuse = ffi.cast(type, self._functions["GetEpApi"]()[position])

    def call(self, name: str, *arguments: Any) -> Any:
        """Call a function; OrtError for a status."""
        result = self._functions[name](*arguments)
        if name in _NO_STATUS:
            return result
        self._check(name, result)
        return None

    def _check(self, name: str, status: Any) -> None:
        if status != self.ffi.NULL:
            text = self.text(self._functions["GetErrorMessage"](status))
            self._functions["ReleaseStatus"](status)
            raise OrtError(f"ONNX Runtime's {name}: {text}")

    def get(self, name: str, of: Any, type: str) -> Any:
        """The value that a function writes to its last argument."""
        found = self.ffi.new(f"{type}*")
        self.call(name, of, found)
        return found[0]

    def string(self, name: str, of: Any) -> str:
        """A string that a function writes."""
        return self.text(self.get(name, of, "const char*"))

    def all(self, name: str, of: Any) -> list[Any]:
        """The objects that a pair of functions, of a count and of the things, has."""
        owner, _, things = name.partition("_Get")
        count = self.get(f"{owner}_GetNum{things}", of, "size_t")
        found = self.ffi.new("const void*[]", count or 1)
        self.call(name, of, found, count)
        return [found[i] for i in range(count)]

    def text(self, pointer: Any) -> str:
        """A C string."""
        return "" if pointer == self.ffi.NULL else self.ffi.string(pointer).decode(errors="replace")

    def status(self, code: int, text: str) -> Any:
        """A new status, which is ONNX Runtime's from then on."""
        return self.call("CreateStatus", code, text.encode(errors="replace").replace(b"\0", b" "))

    def log(self, logger: Any, level: int, text: str) -> None:
        """Write a line to a session's log."""
        self.call("Logger_LogMessage", logger, level, text.encode(errors="replace"), b"nnbridge", 0, b"GetCapability")

    def fuse(self, info: Any, nodes: list[Any]) -> None:
        """Claim nodes as one; ONNX Runtime may free their constants."""
        options = self.ffi.new("OrtNodeFusionOptions*")
        options.version, options.drop_constant_initializers = 23, True
        self._check("AddNodesToFuse", self._fuse(info, self.ffi.new("const void*[]", nodes), len(nodes), options))

    def pairs(self, options: Any) -> dict[str, str]:
        """The entries of a session's configuration."""
        found = self.get("GetSessionOptionsConfigEntries", options, "void*")
        keys, values, count = (self.ffi.new(t) for t in ("const char* const**", "const char* const**", "size_t*"))
        try:
            self.call("GetKeyValuePairs", found, keys, values, count)
            return {self.text(keys[0][i]): self.text(values[0][i]) for i in range(count[0])}
        finally:
            self.call("ReleaseKeyValuePairs", found)

    def tensor(self, value: Any, dtypes: Mapping[int, Any]) -> tuple[int, Array]:
        """Element type and a view of a tensor's memory; OrtError for an element type that is not among ``dtypes``."""
        info = self.get("GetTensorTypeAndShape", value, "void*")
        try:
            kind, dims = self.type_and_dims(info)
        finally:
            self.call("ReleaseTensorTypeAndShapeInfo", info)
        if kind not in dtypes:
            raise OrtError(f"expected a tensor of numbers, found element type {kind}")
        size = self.get("GetTensorSizeInBytes", value, "size_t")
        if not size:
            return kind, np.zeros(dims, dtypes[kind])
        data = self.get("GetTensorMutableData", value, "void*")
        return kind, np.frombuffer(self.ffi.buffer(data, size), dtypes[kind]).reshape(dims)

    def type_and_dims(self, info: Any) -> tuple[int, tuple[int, ...]]:
        """Element type and dimensions of a tensor's description; open ones are -1."""
        rank = self.get("GetDimensionsCount", info, "size_t")
        dims = self.ffi.new("int64_t[]", rank or 1)
        self.call("GetDimensions", info, dims, rank)
        return self.get("GetTensorElementType", info, "int"), tuple(int(dims[i]) for i in range(rank))
