"""Arguments of executions: buffers, arrays and dimensions that are bound to inputs and outputs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from nnbridge.errors import BadDataError, Reason, first_line
from nnbridge.extensions import Codec, codec_of, is_tensor, operand_dtype
from nnbridge.model import Array, Operand
from nnbridge.operations.evaluate import merge_dims
from nnbridge.records import dataclass
from nnbridge.runtime.driver_calls import read_only
from nnbridge.runtime.memory import Memory
from nnbridge.types import OperandCode, is_extension, type_name

MAX_LENGTH = 2**32 - 1
"""Bytes of the largest input or output."""


@dataclass(frozen=True, slots=True)
class Argument:
    """An input or output that was set: its bytes (None: omitted), its dimensions, and the memory that they lie in."""

    data: npt.NDArray[np.uint8] | None
    dims: tuple[int, ...]
    memory: Memory | None = None
    array: Array | None = None
    """The caller's array, if the input was set with one."""


def fill(declared: tuple[int, ...], dims: tuple[int, ...]) -> tuple[int, ...] | None:
    """Declared dimensions, with ``dims`` where they are open; None if the two contradict."""
    return None if any(d < 0 for d in dims) else merge_dims(declared, dims)


def bytes_of(buffer: object | None, call: str) -> npt.NDArray[np.uint8] | None:
    """A buffer as flat bytes, without a copy; BAD_DATA for an empty one and for what is not contiguous."""
    if buffer is None:
        return None
    try:
        view = memoryview(buffer)  # type: ignore[arg-type]  # whatever has the buffer protocol
        data = np.frombuffer(view.cast("B") if view.contiguous else view, np.uint8)
    except (TypeError, ValueError, BufferError) as error:
        raise BadDataError(Reason("a contiguous buffer", str(error), call)) from error
    if len(data) == 0:
        raise BadDataError(Reason("a buffer of at least one byte", "0 bytes", call))
    return data


def as_array(operand: Operand, value: object, call: str) -> Array:
    """An array of the operand's element type: arrays as they are, numbers and lists of numbers converted.

    One number may be of rank 0 where the operand is a vector of one, as scalars of files are; text, sequences and optional
    values are packed. BAD_DATA for anything else, for another type or shape, and for numbers that the element type does not have.
    """
    if (codec := codec_of(operand)) is not None and getattr(value, "dtype", None) != np.uint8:
        return _packed(codec, value, operand, call)
    if isinstance(value, np.ndarray | np.generic) or hasattr(value, "__array__"):
        array = np.asarray(value)
        array = array.reshape(1) if array.ndim == 0 and is_tensor(operand) and operand.dims in ((0,), (1,)) else array
        check_array(operand, array, call)
        return np.ascontiguousarray(array)
    rule = "an array, a number or a list of numbers"
    if not isinstance(value, bool | int | float | complex | list | tuple):
        raise BadDataError(Reason(rule, type(value).__name__, call, operand.name))
    dtype = operand_dtype(operand)
    try:
        typed = np.asarray(value)
        with np.errstate(all="ignore"):
            array = typed.astype(dtype)
    except (ValueError, TypeError, OverflowError) as error:
        raise BadDataError(Reason(rule, str(error), call, operand.name)) from error
    if typed.dtype.kind not in "biufc" or (dtype.kind in "biu" and not np.array_equal(array, typed)):
        raise BadDataError(Reason(f"numbers of {dtype}", str(value)[:60], call, operand.name))
    check_array(operand, array, call)
    return np.ascontiguousarray(array)


def _packed(codec: Codec, value: object, operand: Operand, call: str) -> Array:
    """The bytes of a sequence (a list of arrays), a map (a dictionary), an optional value (one array) or text."""
    if isinstance(value, Mapping):
        value = [list(value), list(value.values())]
    listed = codec.several and isinstance(value, list | tuple)
    try:
        return codec.pack([np.asarray(one) for one in (value if listed else [value])])  # type: ignore[attr-defined]
    except (TypeError, ValueError, AttributeError) as error:
        raise BadDataError(Reason("text, or a list of arrays for a sequence", first_line(error), call, operand.name)) from error


def check_array(operand: Operand, value: Array, call: str) -> None:
    """BAD_DATA unless an array has the operand's element type and fits its dimensions."""
    expected = operand_dtype(operand)
    if value.dtype != expected and not (value.dtype == np.bool_ and operand.type in _BOOLEAN):
        rule = f"{expected} for {type_name(operand.type)}"
        raise BadDataError(Reason(rule, str(value.dtype), call, operand.name))
    if value.shape != operand.dims and not _fits(operand, value):
        raise BadDataError(Reason(f"shape {list(operand.dims)}", str(list(value.shape)), call, operand.name))


_BOOLEAN = (OperandCode.TENSOR_BOOL8, OperandCode.BOOL)


def _fits(operand: Operand, value: Array) -> bool:
    """True for one number where a scalar is asked for, and for a shape that agrees with all dimensions that are known."""
    if not operand.is_tensor and not is_extension(operand.type):
        return value.size == 1
    same_rank = value.ndim == len(operand.dims)
    return not operand.dims or (same_rank and all(d in (0, n) for d, n in zip(operand.dims, value.shape, strict=True)))


def fixed_dims(operand: Operand, dims: Sequence[int] | None, call: str) -> tuple[int, ...]:
    """The operand's dimensions with what the ``type`` argument adds (fact E8)."""
    if dims is None:
        return operand.dims
    merged = fill(operand.dims, tuple(dims))
    if merged is None:
        raise BadDataError(Reason(f"dimensions that fit {list(operand.dims)}", str(list(dims)), call, operand.name))
    if math.prod(d for d in merged if d) * operand_dtype(operand).itemsize > MAX_LENGTH:
        raise BadDataError(Reason(f"{MAX_LENGTH} bytes at most", str(list(dims)), call, operand.name))
    return merged


def input_array(argument: Argument | None, operand: Operand) -> Array | None:
    """The array that a device reads: the caller's array, or its bytes; None for an omitted input."""
    assert argument is not None
    if argument.array is not None or argument.data is None:
        return read_only(argument.array)
    if argument.memory is not None:
        argument.memory.check_input(argument.dims)
    dtype = operand_dtype(operand)
    return read_only(argument.data[: math.prod(argument.dims) * dtype.itemsize].view(dtype).reshape(argument.dims))
