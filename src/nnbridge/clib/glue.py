"""The C library's functions: convert C's arguments to Python's, call :mod:`nnbridge.ndk`, write the results back.

Nothing is copied but numbers and names: values, inputs and outputs are seen through cffi buffers at the client's addresses.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from nnbridge import ndk
from nnbridge.clib.signatures import SIGNATURES, CParameter, CSignature
from nnbridge.errors import BadDataError, InputError, Reason
from nnbridge.types import ResultCode

_NULL = int(ResultCode.UNEXPECTED_NULL)
_TOKEN_BYTES = 32
_MAX_LENGTH = 0xFFFFFFFF
"""Bytes of a value, an input or an output, as in Android."""
_MAX_COUNT = 1 << 24
LOG_VARIABLE = "NNBRIDGE_LOG"
_LEVELS = ("info", "debug", "warning")
_WITH_DIMENSIONS = (int(ResultCode.NO_ERROR), int(ResultCode.OUTPUT_INSUFFICIENT_SIZE))


def connect(embedded: Any) -> None:
    """Define every function of the library. InputError for environment variables with a wrong value."""
    begin_log()
    ndk.check_environment()
    define(embedded.ffi, SIGNATURES, ndk.FUNCTIONS, ArgumentConverter(embedded.ffi))


def define(
    ffi: Any, signatures: Iterable[CSignature], functions: Mapping[str, Callable[..., Any]], converter: ArgumentConverter
) -> None:
    """Define a library's functions by Python functions of the same names, which return a code and then the results."""
    for signature in signatures:
        error = {} if signature.failed is None else {"error": signature.failed}
        ffi.def_extern(name=signature.inner, **error)(_bound(signature, functions[signature.name], converter))


def begin_log() -> None:
    """Log as the environment says."""
    text = os.environ.get(LOG_VARIABLE, "")
    if text and text.lower() not in _LEVELS:
        raise InputError(Reason(f"one of {', '.join(_LEVELS)}", text, operand=LOG_VARIABLE))
    if text:
        logging.basicConfig(level=text.upper(), format="%(name)s: %(message)s")


_Plan: TypeAlias = "Sequence[tuple[Callable[..., Any] | None, slice, bool]]"
"""For each argument in Python: its conversion, None for a number; C's arguments; whether it becomes several."""


def _planned(signature: CSignature, converter: ArgumentConverter) -> tuple[_Plan, Sequence[tuple[CParameter, int]]]:
    """A plan for converting the arguments, and the results with the positions of their pointers."""
    plan: list[tuple[Callable[..., Any] | None, slice, bool]] = []
    results: list[tuple[CParameter, int]] = []
    at = 0
    for parameter in signature.parameters:
        width = len(parameter.c)
        if parameter.is_result:
            results.append((parameter, at))
        else:
            plan.append((converter.of(parameter), slice(at, at + width), parameter.kind == "buffer"))
        at += width
    return plan, results


def _converted(plan: _Plan, arguments: tuple[Any, ...]) -> list[Any]:
    values: list[Any] = []
    for convert, part, splits in plan:
        if convert is None:
            values.append(arguments[part.start])
        elif splits:
            values.extend(convert(*arguments[part]))
        else:
            values.append(convert(*arguments[part]))
    return values


def _bound(signature: CSignature, function: Callable[..., Any], converter: ArgumentConverter) -> Callable[..., Any]:
    plan, results = _planned(signature, converter)

    def call(*arguments: Any) -> Any:
        try:
            values = _converted(plan, arguments)
        except BadDataError as error:
            return ndk.refuse(signature.name, error)
        return function(*values)

    def call_with_results(*arguments: Any) -> Any:
        targets = [arguments[place] for _, place in results]
        if any(target == converter.null for target in targets):
            return _NULL
        try:
            code, *values = function(*_converted(plan, arguments))
        except BadDataError as error:
            code, values = ndk.refuse(signature.name, error), [None] * len(results)
        for (parameter, _), target, value in zip(results, targets, values, strict=True):
            if code in _WITH_DIMENSIONS or parameter.kind in ("out number", "out handle"):
                converter.write(parameter, target, value)
        return code

    return call_with_results if results else call


def _checked(count: int) -> int:
    """The length of a client's array. BAD_DATA for one that no client has, before memory that is not there is read."""
    if count > _MAX_COUNT:
        raise BadDataError(Reason(f"an array of at most {_MAX_COUNT} members", str(count)))
    return count


class ArgumentConverter:
    """Between C's values and Python's."""

    def __init__(self, ffi: Any) -> None:
        self.ffi = ffi
        self.null = ffi.NULL
        self._cast, self._word = ffi.cast, ffi.typeof("uintptr_t")
        self._strings: dict[str, Any] = {}
        self.conversions: dict[str, Callable[..., Any]] = {
            "handle": self._handle,
            "string": self._string,
            "path": lambda p: None if p == self.null else os.fsdecode(self.ffi.string(p)),
            "operandType": self._operand_type,
            "channelQuant": self._channel_quant,
            "token": lambda p: None if p == self.null else self.ffi.buffer(p, _TOKEN_BYTES),
            "pointer": lambda p: None if p == self.null else p,
            "buffer": self._buffer,
            "u32s": lambda count, p: None if p == self.null and count else self._numbers(p, count),
            "u32 array": lambda count, p: None if p == self.null else self._numbers(p, count),
            "handles": self._handles,
        }

    def of(self, parameter: CParameter) -> Callable[..., Any] | None:
        """The conversion of a parameter; None for a number, which stays as it is."""
        return self.conversions.get(parameter.kind)

    def _handle(self, pointer: Any) -> int | None:
        return int(self._cast(self._word, pointer)) or None

    def _handles(self, pointers: Any, count: int) -> list[int | None] | None:
        return None if pointers == self.null and count else [self._handle(pointers[i]) for i in range(_checked(count))]

    def _string(self, pointer: Any) -> str | None:
        return None if pointer == self.null else self.ffi.string(pointer).decode("utf-8", "replace")

    def _numbers(self, pointer: Any, count: int) -> list[int]:
        return list(self.ffi.unpack(pointer, _checked(count))) if count else []

    def _operand_type(self, pointer: Any) -> ndk.OperandType | None:
        if pointer == self.null:
            return None
        dims = self.sized(pointer.dimensions, pointer.dimensionCount)
        return ndk.OperandType(pointer.type, dims, pointer.scale, pointer.zeroPoint)

    def _channel_quant(self, pointer: Any) -> ndk.SymmPerChannelQuantParams | None:
        if pointer == self.null:
            return None
        return ndk.SymmPerChannelQuantParams(pointer.channelDim, self.sized(pointer.scales, pointer.scaleCount))

    def sized(self, pointer: Any, count: int) -> tuple[Any, ...] | None:
        """The numbers of an array; None for one without a count or a count without one."""
        if (pointer == self.null) != (count == 0):
            return None
        return tuple(self.ffi.unpack(pointer, _checked(count))) if count else ()

    def _buffer(self, pointer: Any, length: int) -> tuple[Any, int]:
        # A buffer of length 0 differs from NULL: it is refused, NULL means "no value".
        if length > _MAX_LENGTH:
            raise BadDataError(Reason(f"a length of at most {_MAX_LENGTH} bytes", str(length)))
        return (None, length) if pointer == self.null else (self.ffi.buffer(pointer, length), length)

    def write(self, parameter: CParameter, target: Any, value: Any) -> None:
        """Write a result."""
        if parameter.kind == "out handle":
            target[0] = self.ffi.cast(self.ffi.typeof(target).item, value or 0)
        elif parameter.kind == "out string":
            target[0] = self._c_string(value)
        elif parameter.kind in ("out bools", "out u32s"):
            for i, item in enumerate(value or ()):
                target[i] = item
        elif value is not None:
            target[0] = value

    def _c_string(self, text: str) -> Any:
        """A C string that is never freed."""
        if text not in self._strings:
            self._strings[text] = self.ffi.new("char[]", text.encode())
        return self._strings[text]
