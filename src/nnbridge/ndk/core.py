"""Parts shared by the NDK's functions: handles, result codes for errors, buffers."""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import field
from functools import cache, wraps
from typing import Any, TypeVar

from nnbridge.builder import ModelBuilder
from nnbridge.errors import BadDataError, BadStateError, NnapiError, NnbridgeError, Reason, UnexpectedNullError, shortage_of
from nnbridge.model import Model
from nnbridge.ndk.trace import from_environment
from nnbridge.platforms import after_fork
from nnbridge.records import dataclass
from nnbridge.runtime.compilation import Compilation
from nnbridge.types import ResultCode

LOG = logging.getLogger("nnbridge.ndk")
Handle = int
Buffer = Any
NO_ERROR = int(ResultCode.NO_ERROR)
DEVICES_VARIABLE, CPU_ONLY_VARIABLE = "NNBRIDGE_DEVICES", "NNBRIDGE_CPU_ONLY"
PARTITION_VARIABLE = "NNBRIDGE_PARTITION"

TRACE = from_environment()
"""The trace of this process's calls, if the environment names a file."""

FUNCTIONS: dict[str, Callable[..., Any]] = {}
"""Every exported function by name."""

_Object = TypeVar("_Object")


@dataclass(frozen=True)
class OperandType:
    """``ANeuralNetworksOperandType``."""

    type: int
    dimensions: Sequence[int] | None = ()
    """None where C passed no array although it passed a count, or an array with a count of 0 (fact M6)."""
    scale: float = 0.0
    zeroPoint: int = 0


@dataclass(frozen=True)
class SymmPerChannelQuantParams:
    """``ANeuralNetworksSymmPerChannelQuantParams``."""

    channelDim: int
    scales: Sequence[float] | None
    """None as in :class:`OperandType`."""


@dataclass
class ModelHandle:
    """``ANeuralNetworksModel``: under construction, then finished."""

    builder: ModelBuilder = field(default_factory=ModelBuilder)
    model: Model | None = None

    def finished(self, call: str) -> Model:
        """The model; BAD_STATE before a finish that succeeded."""
        if self.model is None:
            raise BadStateError(Reason("a model that finished", "one that did not", call))
        return self.model


# -- handles ---------------------------------------------------------------------------------------------------------


class _Handles:
    """Objects by number. Numbers are not used again."""

    def __init__(self) -> None:
        self._numbers = itertools.count(0x1000, 16)
        self._objects: dict[int, object] = {}
        self._lock = threading.Lock()

    def add(self, new: object) -> Handle:
        with self._lock:
            number = next(self._numbers)
            self._objects[number] = new
        return number

    def get(self, handle: Handle | None, kind: type[_Object]) -> _Object:
        if not handle:
            raise UnexpectedNullError(Reason(f"a handle of a {kind.__name__.strip('_')}", "NULL"))
        found = self._objects.get(handle)
        if not isinstance(found, kind):
            raise BadDataError(Reason(f"a handle of a {kind.__name__.strip('_')}", f"{handle:#x}"))
        return found

    def remove(self, handle: Handle | None, kind: type[_Object]) -> _Object | None:
        with self._lock:
            found = self._objects.get(handle) if handle else None
            if not handle or not isinstance(found, kind):
                return None
            del self._objects[handle]
            return found

    def unlock(self) -> None:
        """Begin again in a forked process: another thread may have held the lock."""
        self._lock = threading.Lock()


HANDLES = _Handles()
after_fork(HANDLES.unlock)


def function(*failed: object) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Convert errors to codes, and export what has a public name. ``failed``: the results of a call that fails."""

    def export(body: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(body)
        def call(*arguments: Any) -> Any:
            code, results = NO_ERROR, None
            began = time.perf_counter() if TRACE is not None else 0.0
            try:
                results = body(*arguments)
            except NnapiError as error:
                code = int(error.code)
                LOG.debug("%s: %s: %s", body.__name__, error.code.name, error)
            except MemoryError:
                code = int(ResultCode.OUT_OF_MEMORY)
                _say_once(f"{body.__name__}: not enough memory")
            except NnbridgeError as error:
                code = int(getattr(error, "code", ResultCode.OP_FAILED))
                _say_once(str(error))
            except Exception as error:
                code, short = int(ResultCode.OP_FAILED), shortage_of(error)
                if short is None:
                    _log_once(body.__name__)
                else:
                    code = int(short.code)
                    _say_once(f"{body.__name__}: {short}")
            if TRACE is not None and not body.__name__.startswith("_"):
                TRACE.call(body.__name__, code, began, **more(body.__name__, code, arguments))
            if not failed:
                return code
            if code != NO_ERROR or results is None:
                return (code, *failed)
            return (code, *(results if isinstance(results, tuple) else (results,)))

        if not body.__name__.startswith("_"):
            FUNCTIONS[body.__name__] = call
        return call

    return export


def refuse(name: str, error: NnapiError) -> int:
    """The code of a call whose arguments cannot be read; it is logged and traced as other failures are."""
    LOG.debug("%s: %s: %s", name, error.code.name, error)
    if TRACE is not None:
        TRACE.call(name, int(error.code), time.perf_counter())
    return int(error.code)


def more(name: str, code: int, arguments: Sequence[Any]) -> dict[str, Any]:
    """Further fields of a call in the trace: the file of a finished model, the plan of a compilation."""
    if TRACE is None or code != NO_ERROR:
        return {}
    if name == "ANeuralNetworksModel_finish":
        return {"saved": TRACE.model(HANDLES.get(arguments[0], ModelHandle).finished(name))}
    if name == "ANeuralNetworksCompilation_finish":
        compilation = HANDLES.get(arguments[0], Compilation)
        return {"plan": TRACE.plan(compilation), **TRACE.answers(compilation)}
    return {}


def value_function(body: Callable[..., Any]) -> Callable[..., Any]:
    """Export a function without a result code."""
    FUNCTIONS[body.__name__] = body
    return body


@cache
def _log_once(name: str) -> None:
    LOG.exception("%s failed inside nnbridge", name)


@cache
def _say_once(message: str) -> None:
    LOG.error("%s", message)


def free(handle: Handle | None, kind: type[Any]) -> None:
    freed = HANDLES.remove(handle, kind)
    close = getattr(freed, "close", None)
    if close is not None:
        close()


def not_null(value: _Object | None, what: str) -> _Object:
    if value is None:
        raise UnexpectedNullError(Reason(what, "NULL"))
    return value


def sized(values: Sequence[_Object] | None, call: str) -> Sequence[_Object]:
    """The values; BAD_DATA where an array and its count contradict each other (fact M6)."""
    if values is None:
        raise BadDataError(Reason("an array with a count, or neither", "one without the other", call))
    return values


def exactly(buffer: Buffer, length: int | None) -> Buffer:
    """The first ``length`` bytes of a buffer; NULL stays NULL, and is refused with a length (fact E11)."""
    if buffer is None:
        if length:
            raise UnexpectedNullError(Reason("a buffer", f"NULL of {length} bytes"))
        return None
    view = memoryview(buffer)
    view = view.cast("B") if view.contiguous and view.nbytes else view
    if length is None:
        return view
    if length > view.nbytes:
        raise BadDataError(Reason(f"a buffer of {length} bytes", str(view.nbytes)))
    return view[:length] if length != view.nbytes else view


def traced(call: str, act: Callable[[], _Object], **more: Callable[[], Any]) -> _Object:
    """Do what an NNAPI call does, and write it to ``NNBRIDGE_TRACE`` as the functions here are."""
    if TRACE is None:
        return act()
    began, code = time.perf_counter(), int(ResultCode.OP_FAILED)
    try:
        result = act()
        code = int(ResultCode.NO_ERROR)
    except NnapiError as error:
        code = int(error.code)
        raise
    finally:
        done = code == ResultCode.NO_ERROR
        TRACE.call(f"ANeuralNetworks{call}", code, began, **{name: value() for name, value in more.items() if done})
    return result
