"""The provider's C functions: ONNX Runtime calls them, and no exception leaves for C."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from functools import wraps
from importlib.util import find_spec
from typing import Any

import numpy as np

from nnbridge import ndk
from nnbridge.clib.glue import begin_log
from nnbridge.converters import converters
from nnbridge.errors import NnbridgeError, PackageError, shortage_of
from nnbridge.model import Array
from nnbridge.provider.graph import DTYPES, GraphReader
from nnbridge.provider.interface import FAIL, Interface
from nnbridge.provider.options import parse
from nnbridge.provider.session import FailingKernel, ProviderKernel, ProviderSession
from nnbridge.provider.source import NAMES


def connect(embedded: Any) -> None:
    """Define every function of the library. InputError for environment variables with a wrong value, and without an importer."""
    if not any(c.runtime_graph for c in converters()) or find_spec("onnx") is None:
        raise PackageError.needed("nnbridge with its ONNX importer and the onnx package", "'.[provider]'", "none")
    begin_log()
    ndk.check_environment()
    glue = _ProviderGlue(embedded)
    for name in ("ready", "create_ep", "release_ep", "capability", "compile", "release_infos", "compute"):
        embedded.ffi.def_extern(name=f"nnbridge_{name}")(getattr(glue, name))


def message(error: BaseException) -> str:
    """The text of an error for users."""
    if isinstance(error, NnbridgeError):
        return str(error)
    short = "not enough memory" if isinstance(error, MemoryError) else shortage_of(error)
    if short is not None:
        return f"{short}"
    traceback.print_exception(error)
    return f"nnbridge failed: {type(error).__name__}: {error}"


def _guarded(function: Callable[..., None]) -> Callable[..., Any]:
    """The function with a status as its result: code 1 for every error, which ONNX Runtime shows and never hides."""

    @wraps(function)
    def call(self: _ProviderGlue, *arguments: Any) -> Any:
        try:
            function(self, *arguments)
        except KeyboardInterrupt:
            self._lib.nnbridge_interrupt()
            return self.ort.status(FAIL, "interrupted")
        except BaseException as error:
            return self.ort.status(FAIL, message(error))
        return self.ffi.NULL

    return call


class _ProviderGlue:
    """The functions, with the sessions that are alive."""

    ort: Interface
    reader: GraphReader

    def __init__(self, embedded: Any) -> None:
        self._lib, self.ffi = embedded.lib, embedded.ffi
        self._sessions: dict[int, ProviderSession] = {}
        self._kernels: dict[int, ProviderKernel | FailingKernel] = {}

    def ready(self, api: Any, version: Any) -> int:
        """Python runs: note the functions of ONNX Runtime; 1, or 0 with the reason on standard error."""
        try:
            self.ort = Interface(self.ffi, api)
            minor = int(self.ort.text(version).split(".")[1])
            self.reader = GraphReader(self.ort, minor, frozenset(NAMES))
        except Exception as error:
            traceback.print_exception(error)
            return 0
        return 1

    @_guarded
    def create_ep(self, name: Any, options: Any, logger: Any, out: Any) -> None:
        """``OrtEpFactory.CreateEp``."""
        provider_name = self.ort.text(name)
        chosen = parse(provider_name, self.ort.pairs(options))
        provider = ProviderSession.of(provider_name, chosen, lambda level, text: self.ort.log(logger, level, text))
        ep = self._lib.nnbridge_new_ep(name)
        if ep == self.ffi.NULL:
            raise MemoryError
        self._sessions[self._address(ep)] = provider
        out[0] = ep

    def release_ep(self, ep: Any) -> None:
        """``OrtEpFactory.ReleaseEp``."""
        if self._sessions.pop(self._address(ep), None) is not None:
            self._lib.nnbridge_free(ep)

    @_guarded
    def capability(self, ep: Any, graph: Any, info: Any) -> None:
        """``OrtEp.GetCapability``: claim nodes of the main graph; as in Android's provider none of inner graphs."""
        if self.reader.is_inner(graph):
            return
        hosted = self.reader.read(graph)
        for partition in self._sessions[self._address(ep)].claim(hosted.graph):
            self.ort.fuse(info, [hosted.nodes[i] for i in sorted(partition.nodes)])

    @_guarded
    def compile(self, ep: Any, _graphs: Any, nodes: Any, count: int, infos: Any, _contexts: Any) -> None:
        """``OrtEp.Compile``."""
        provider = self._sessions[self._address(ep)]
        for i in range(count):
            inputs, outputs = (self.reader.names(self.ort.all(f"Node_Get{part}", nodes[i])) for part in ("Inputs", "Outputs"))
            kernel = provider.compile(inputs, outputs)
            info = self._lib.nnbridge_new_info()
            if info == self.ffi.NULL:
                raise MemoryError
            self._kernels[self._address(info)] = kernel
            infos[i] = info
        provider.write_plans()

    def release_infos(self, _ep: Any, infos: Any, count: int) -> None:
        """``OrtEp.ReleaseNodeComputeInfos``."""
        for i in range(count):
            if infos[i] != self.ffi.NULL:
                self._kernels.pop(self._address(infos[i]), None)
                self._lib.nnbridge_free(infos[i])

    @_guarded
    def compute(self, info: Any, _state: Any, context: Any) -> None:
        """``OrtNodeComputeInfo.Compute``."""
        kernel = self._kernels[self._address(info)]
        for i, array in enumerate(kernel.compute(lambda i: self._input(context, i))):
            self._write(context, i, array)

    def _input(self, context: Any, i: int) -> Array:
        """A view of an input."""
        value = self.ffi.new("const void**")
        self.ort.call("KernelContext_GetInput", context, i, value)
        return self.ort.tensor(value[0], DTYPES)[1]

    def _write(self, context: Any, i: int, array: Array) -> None:
        value = self.ffi.new("void**")
        self.ort.call("KernelContext_GetOutput", context, i, self.ffi.new("int64_t[]", array.shape or 1), array.ndim, value)
        np.copyto(self.ort.tensor(value[0], DTYPES)[1], array, casting="no")

    def _address(self, pointer: Any) -> int:
        return int(self.ffi.cast("uintptr_t", pointer))
