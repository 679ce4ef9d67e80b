"""Values that are no tensors of numbers: strings, sequences, optionals, maps.

Operands hold numbers of a fixed size, so such a value is the bytes of ONNX's own message for it: a ``TensorProto`` of strings, a
``SequenceProto``, an ``OptionalProto`` or a ``MapProto``. It has one axis of open size. Only the host reads and writes it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from nnbridge.errors import OpFailedError, Reason, first_line, pass_shortage
from nnbridge.extensions import Codec
from nnbridge.model import Array
from nnbridge_onnx.read.graph import INT64, MAP, OPTIONAL, SEQUENCE, STRING

_MESSAGES = {STRING: "TensorProto", SEQUENCE: "SequenceProto", OPTIONAL: "OptionalProto", MAP: "MapProto"}


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
    elif type == MAP:
        message = _map(value)
    else:
        content = value if value is None or isinstance(value, list) else np.asarray(value)
        message = numpy_helper.from_optional(content)
    return np.frombuffer(message.SerializeToString(deterministic=True), np.uint8)


def _numbers(value: Mapping[Any, Any]) -> Array:
    return np.asarray([value[key] for key in sorted(value)])


def _map(value: Any) -> Any:
    """The message of a dictionary; TypeError for anything else, and for keys that ONNX has no maps of."""
    import onnx
    from onnx import numpy_helper

    if not isinstance(value, Mapping):
        raise TypeError(f"expected a map, found {type(value).__name__}")
    keys = np.asarray(list(value))
    if value and keys.dtype.kind not in "iuU":
        raise TypeError(f"expected keys that are whole numbers or text, found {keys.dtype}")
    message = onnx.MapProto(key_type=STRING if keys.dtype.kind == "U" else INT64)
    if keys.dtype.kind == "U":
        message.string_keys.extend(str(key).encode() for key in keys)
    elif value:
        message.keys.extend(map(int, keys))
    numbers = np.asarray(list(value.values()))
    message.values.CopyFrom(numpy_helper.from_list([numbers.astype(object) if numbers.dtype.kind == "U" else numbers]))
    return message


def _dictionary(message: Any) -> dict[Any, Any]:
    from onnx import numpy_helper

    (numbers,) = numpy_helper.to_list(message.values)
    keys = [key.decode() for key in message.string_keys] if message.key_type == STRING else list(message.keys)
    return dict(zip(keys, np.asarray(numbers).tolist(), strict=True))


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
        if type == MAP:
            return _dictionary(message)
        return numpy_helper.to_list(message) if type == SEQUENCE else numpy_helper.to_optional(message)
    except Exception as error:
        pass_shortage(error)
        # protobuf's DecodeError, and whatever the contents raise
        found = first_line(error)
        raise OpFailedError(Reason(f"the bytes of an ONNX {kind}", found, operand=name)) from error


def codec(type: int) -> Codec | None:
    """The reader of a type's messages as arrays: a sequence's tensors, an array of strings, an optional's content, if any, the
    keys and the values of a map."""
    return Codec(partial(_packed, type), partial(_unpacked, type), type != STRING) if type in _MESSAGES else None


def _packed(type: int, arrays: Sequence[Array]) -> Array:
    if type == SEQUENCE:
        return encode(list(arrays), type)
    if type == MAP:
        if len(arrays) != 2 or arrays[0].shape != arrays[1].shape or arrays[0].ndim != 1:
            raise TypeError(f"expected two vectors of one length, keys and values, found {[a.shape for a in arrays]}")
        return encode(dict(zip(arrays[0].tolist(), arrays[1].tolist(), strict=True)), type)
    if len(arrays) != 1 and (type == STRING or arrays):
        raise TypeError(f"expected one array, found {len(arrays)}")
    return encode(arrays[0] if arrays else None, type)


def _unpacked(type: int, data: Array) -> list[Array]:
    value = decode(data, type)
    if isinstance(value, dict):
        value = [list(value), list(value.values())]
    values = value if isinstance(value, list) else [] if value is None else [value]
    return [np.asarray(one) for one in values]
