"""Calls to drivers: whatever a driver does, the runtime gets a right answer or an error of NNAPI's.

Drivers on Android speak a smaller set of errors than clients see (facts T1 and T2); what does not exist there is
GENERAL_FAILURE, which clients see as OP_FAILED.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from nnbridge.devices.device import Device, OutputShape, PreparedModel, Request, Result, Support
from nnbridge.errors import ERROR_OF_CODE, NnapiError, OpFailedError, Reason, pass_shortage, raised
from nnbridge.extensions import operand_dtype
from nnbridge.model import Operand, known
from nnbridge.operations.validation import byte_size
from nnbridge.types import ResultCode

AS_IN_DRIVERS = {
    ResultCode.OUT_OF_MEMORY: ResultCode.OP_FAILED,
    ResultCode.UNMAPPABLE: ResultCode.OP_FAILED,
    ResultCode.BAD_STATE: ResultCode.OP_FAILED,
    ResultCode.INCOMPLETE: ResultCode.OP_FAILED,
    ResultCode.UNEXPECTED_NULL: ResultCode.BAD_DATA,
}
"""Result codes that drivers do not have → what they become on their way through a driver's errors and back."""

FINAL = (ResultCode.NO_ERROR, ResultCode.OUTPUT_INSUFFICIENT_SIZE)
"""Results after which nothing is tried again."""

MAX_DIMENSION = 2**32 - 1
_CODES = tuple(ResultCode)
_CRASHES = (Exception, SystemExit)
"""What a driver in this process may raise instead of dying; an interrupt by the user goes through."""

_Answer = TypeVar("_Answer")


def called(call: Callable[[], _Answer], name: str, device: str) -> _Answer:
    """A driver's answer to a call; what it raises comes out as an NNAPI error that drivers have.

    ShortageError for what this process lacks.
    """
    try:
        return call()
    except NnapiError as error:
        code = AS_IN_DRIVERS.get(error.code, error.code)
        if code is error.code:
            raise
        raise ERROR_OF_CODE[code](error.reason) from error
    except _CRASHES as error:
        pass_shortage(error)
        found = raised(error)
        raise OpFailedError(Reason(f"{name} without failure", found, device)) from error


def checked_support(answer: object, count: int) -> list[Support]:
    """The answers of ``getSupportedOperations``; ValueError or TypeError for anything but one for each operation."""
    answers = list(answer)  # type: ignore[call-overload]  # whatever a driver returns; a TypeError is an answer as well
    if len(answers) != count:
        raise ValueError(f"{len(answers)} answers for {count} operations")
    for answer in answers:
        if not isinstance(answer, (bool, np.bool_, Reason)):
            raise TypeError(f"{answer!r} instead of True, False or a Reason")
    return [answer if isinstance(answer, Reason) else bool(answer) for answer in answers]


def executed(prepared: PreparedModel, request: Request, outputs: Sequence[Operand], device: str) -> Result:
    """One execution of a model with these output operands, and its result; whatever else it does is OP_FAILED (E34, E35).

    The client's inputs are the driver's to read, not to write.
    """
    inputs = tuple(map(read_only, request.inputs))
    unchanged = all(map(operator.is_, inputs, request.inputs))
    seen = request if unchanged else replace(request, inputs=inputs)
    try:
        result = called(lambda: prepared.execute(seen), "execute", device)
    except NnapiError as error:
        return Result(error.code, (), error.reason)
    return _checked(result, outputs, request, device)


def read_only(value: npt.NDArray[Any] | None) -> npt.NDArray[Any] | None:
    """An input as drivers see it."""
    if value is None or not value.flags.writeable:
        return value
    view = value.view()
    view.flags.writeable = False
    return view


def _checked(result: object, operands: Sequence[Operand], request: Request, device: str) -> Result:
    """A result that holds together, or OP_FAILED with what is wrong with it."""
    try:
        return _consistent(result, operands, request)
    except _Wrong as wrong:
        rule, found = wrong.args
        return Result(ResultCode.OP_FAILED, (), Reason(rule, str(found), device))


class _Wrong(Exception):
    """The requirement of a result, and what was found."""


def _consistent(result: object, operands: Sequence[Operand], request: Request) -> Result:
    """The result, with the shapes that the model declares where it has none."""
    if not isinstance(result, Result):
        raise _Wrong("a Result from execute", type(result).__name__)
    if result.code not in _CODES:
        raise _Wrong("a result code of NNAPI", repr(result.code))
    if not isinstance(result.shapes, (tuple, list)) or not all(map(_is_shape, result.shapes)):
        raise _Wrong("output shapes with dimensions from 0 to 2**32 - 1", result.shapes)
    code = result.code if isinstance(result.code, ResultCode) else ResultCode(result.code)
    code = AS_IN_DRIVERS.get(code, code)
    shapes = tuple(result.shapes)
    reason = result.reason if isinstance(result.reason, Reason) else None
    times = _time(result.on_device), _time(result.in_driver)
    if code is ResultCode.NO_ERROR and not shapes:
        declared = [buffer.dims for buffer in request.outputs]
        if all(known(dims) or not operand.is_tensor for dims, operand in zip(declared, operands, strict=True)):
            return Result(code, tuple(OutputShape(dims) for dims in declared), None, *times)
        raise _Wrong("output shapes where the model leaves them open", "none")
    if code not in FINAL:
        if shapes:
            raise _Wrong(f"no output shapes with {code.name}", len(shapes))
        return Result(code, (), reason)
    _check_shapes(code, shapes, operands, request)
    return Result(code, shapes, reason, *times)


def _check_shapes(code: ResultCode, shapes: Sequence[OutputShape], operands: Sequence[Operand], request: Request) -> None:
    """Shapes are as the model and the request have them, and each output's size fits its buffer if it is said to."""
    if len(shapes) != len(operands):
        raise _Wrong(f"{len(operands)} output shapes", len(shapes))
    if all(shape.sufficient for shape in shapes) is not (code is ResultCode.NO_ERROR):
        raise _Wrong("insufficient outputs exactly with OUTPUT_INSUFFICIENT_SIZE", code.name)
    for shape, buffer, operand in zip(shapes, request.outputs, operands, strict=True):
        if buffer.dims != shape.dims and not _updatable(buffer.dims, shape.dims):
            raise _Wrong(f"an output of {list(buffer.dims)} as declared for {operand.name}", list(shape.dims))
        if code is ResultCode.NO_ERROR and operand.is_tensor and not shape.dims:
            raise _Wrong(f"a rank of {operand.name or 'every output'}", "none")
        size, capacity = size_of(operand, shape.dims) or 0, None if buffer.data is None else len(buffer.data)
        if shape.sufficient and capacity is not None and size > capacity:
            raise _Wrong(f"an output that fits into {capacity} bytes as reported", f"{size} bytes")


def size_of(operand: Operand, dims: tuple[int, ...]) -> int | None:
    """Bytes of an operand with these dimensions; None if not known."""
    if operand.dims == dims:
        return byte_size(operand)
    return math.prod(dims) * operand_dtype(operand).itemsize if known(dims) else None


def _is_shape(shape: object) -> bool:
    return (
        isinstance(shape, OutputShape)
        and isinstance(shape.dims, tuple)
        and all(isinstance(d, (int, np.integer)) and 0 <= d <= MAX_DIMENSION for d in shape.dims)
    )


def _time(nanoseconds: Any) -> int | None:
    return int(nanoseconds) if isinstance(nanoseconds, (int, np.integer)) and nanoseconds >= 0 else None


def _updatable(declared: tuple[int, ...], reported: tuple[int, ...]) -> bool:
    """True if dimensions only fill in what was not known (fact E35)."""
    if not declared:
        return True
    return len(declared) == len(reported) and all(a in (0, b) for a, b in zip(declared, reported, strict=True))


def named(reason: Reason, device: str) -> Reason:
    """A driver's reason with the driver's name in front, unless it is there."""
    if reason.operation == device or reason.operation.startswith((f"{device}: ", f"{device} (")):
        return reason
    return replace(reason, operation=f"{device}: {reason.operation}" if reason.operation else device)


def prepared_by(device: Device, call: Callable[[], object]) -> PreparedModel:
    """The prepared model that a call to a driver returns; OP_FAILED if it returns anything else."""
    try:
        prepared = called(call, "prepareModel", device.name)
    except NnapiError as error:
        raise type(error)(named(error.reason, device.name)) from error
    if not isinstance(prepared, PreparedModel):
        raise OpFailedError(Reason("a prepared model", type(prepared).__name__, device.name))
    return prepared
