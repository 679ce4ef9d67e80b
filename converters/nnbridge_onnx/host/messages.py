"""Values that are no tensors of numbers: strings, sequences, optionals.

Operands hold numbers of a fixed size, so such a value is the bytes of ONNX's own message for it: a ``TensorProto`` of strings, a
``SequenceProto`` or an ``OptionalProto``. It has one axis of open size. Only the host reads and writes it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nnbridge.errors import OpFailedError, Reason
from nnbridge.model import Array
from nnbridge_onnx.read.graph import OPTIONAL, SEQUENCE, STRING

_MESSAGES = {STRING: "TensorProto", SEQUENCE: "SequenceProto", OPTIONAL: "OptionalProto"}


def encode(value: Any, type: int) -> Array:
    """A value as bytes: strings as an array, a sequence as a list, an empty optional as None. TypeError for another value."""
    from onnx import numpy_helper

    if type == STRING:
        message: Any = numpy_helper.from_array(np.asarray(value, object))
    elif type == SEQUENCE:
        if not isinstance(value, (list, tuple)):
            raise TypeError(f"expected a sequence, found {value.__class__.__name__}")
        message = numpy_helper.from_list(list(value))
    else:
        content = value if value is None or isinstance(value, list) else np.asarray(value)
        message = numpy_helper.from_optional(content)
    return np.frombuffer(message.SerializeToString(deterministic=True), np.uint8)


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
    except Exception as error:  # protobuf's DecodeError, and whatever the contents raise
        found = f"{error.__class__.__name__}: {str(error).strip()[:200]}"
        raise OpFailedError(Reason(f"the bytes of an ONNX {kind}", found, operand=name)) from error
