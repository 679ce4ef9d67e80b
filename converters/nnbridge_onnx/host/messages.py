"""Values that are no tensors of numbers: strings, sequences, optionals.

Operands hold numbers of a fixed size, so such a value is the bytes of ONNX's own message for it: a ``TensorProto`` of strings, a
``SequenceProto`` or an ``OptionalProto``. It has one axis of open size. Only the host reads and writes it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from nnbridge.errors import OpFailedError, Reason, first_line, pass_shortage
from nnbridge.extensions import Codec
from nnbridge.model import Array
from nnbridge_onnx.read.graph import OPTIONAL, SEQUENCE, STRING

_MESSAGES = {STRING: "TensorProto", SEQUENCE: "SequenceProto", OPTIONAL: "OptionalProto"}


def encode(value: Any, type: int) -> Array:
    """A value as bytes: strings as an array, a sequence as a list, an empty optional as None. TypeError for another value.

    A map in a sequence is held as its numbers, in the order of its keys.
    """
    from onnx import numpy_helper

    if type == STRING:
        message: Any = numpy_helper.from_array(np.asarray(value, object))
    elif type == SEQUENCE:
        if not isinstance(value, (list, tuple)):
            found = "an array" if isinstance(value, np.ndarray) else repr(value)
            raise TypeError(f"expected a sequence, found {found}")
        message = numpy_helper.from_list([_numbers(one) if isinstance(one, Mapping) else one for one in value])
    else:
        content = value if value is None or isinstance(value, list) else np.asarray(value)
        message = numpy_helper.from_optional(content)
    return np.frombuffer(message.SerializeToString(deterministic=True), np.uint8)


def _numbers(value: Mapping[Any, Any]) -> Array:
    return np.asarray([value[key] for key in sorted(value)])


def decode(data: Array, type: int, name: str = "") -> Any:
    """The value that bytes hold; OP_FAILED for bytes that are no such message."""
    import onnx
    from onnx import numpy_helper

    kind = _MESSAGES[type]
    try:
        message = getattr(onnx, kind).FromString(data.tobytes())
        if type == STRING:
            if message.data_type != STRING:
                raise TypeError(f"elements of type {message.data_type}")
            # `to_array` reads the UTF-8 text; the evaluator compares and joins Python's strings.
            return numpy_helper.to_array(message).astype(object)
        return numpy_helper.to_list(message) if type == SEQUENCE else numpy_helper.to_optional(message)
    except Exception as error:
        pass_shortage(error)
        # protobuf's DecodeError, and whatever the contents raise
        found = first_line(error)
        raise OpFailedError(Reason(f"the bytes of an ONNX {kind}", found, operand=name)) from error


def codec(type: int) -> Codec | None:
    """The reader of a type's messages as arrays: a sequence's tensors, an array of strings, an optional's content, if any."""
    return Codec(partial(_packed, type), partial(_unpacked, type), type != STRING) if type in _MESSAGES else None


def _packed(type: int, arrays: Sequence[Array]) -> Array:
    if type == SEQUENCE:
        return encode(list(arrays), type)
    if len(arrays) != 1 and (type == STRING or arrays):
        raise TypeError(f"expected one array, found {len(arrays)}")
    return encode(arrays[0] if arrays else None, type)


def _unpacked(type: int, data: Array) -> list[Array]:
    value = decode(data, type)
    values = value if isinstance(value, list) else [] if value is None else [value]
    return [np.asarray(one) for one in values]
