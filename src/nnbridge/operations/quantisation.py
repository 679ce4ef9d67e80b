"""Between real and quantised numbers: QUANTIZE, DEQUANTIZE, CAST."""

from __future__ import annotations

import numpy as np

from nnbridge.errors import Reason
from nnbridge.extensions import real_numbers
from nnbridge.model import Array
from nnbridge.operations.arithmetic import integer_range
from nnbridge.operations.call import Call
from nnbridge.operations.declaration import Input, Output, at_least, operation, types, up_to
from nnbridge.operations.kernels import Function, prepared
from nnbridge.operations.shapes import same_as_input
from nnbridge.types import FLOATS, OperationCode
from nnbridge.types import OperandCode as T


@operation(
    OperationCode.QUANTIZE,
    since=3,
    summary="Real numbers to 8-bit: zero point + round(x / scale).",
    types=[
        types(level, T=real, O=kind)
        for kind, level in ((T.TENSOR_QUANT8_ASYMM, 3), (T.TENSOR_QUANT8_ASYMM_SIGNED, 4))
        for real in FLOATS
    ],
    inputs=[Input("input", "T", "real numbers", rank=at_least(1))],
    outputs=[Output("output", "O", "quantised with its own parameters")],
    shape=same_as_input,
    zero_sized=True,
)
@prepared("input")
def quantize(call: Call) -> Function:
    """N52."""
    zero_point, dtype = call.out.zero_point, call.out.dtype
    scale, (low, high) = np.float32(call.out.scale), (np.float32(bound - zero_point) for bound in integer_range(call.out))
    # What is added leaves the sum with a unit in the last place of 1, and the integer, zero point included, in its low bits.
    lifting = np.float32(3 * 2**22 + zero_point)
    # Ties go away from zero. With bits set among its last 10, a quotient below 256 moves away from zero by less than 1/64, and
    # never as far as the next multiple of it: a tie is a tie no longer, and no other quotient comes to one. The low byte is
    # the result of NaN, whose bits pass through the sum unchanged: C++ leaves it open, here it is the zero point.
    sticky = np.int32(0x200 | zero_point & 0xFF)

    def steps(x: Array) -> Array:
        quotients = x / scale
        np.clip(quotients, low, high, out=quotients)
        bits = quotients.view(np.int32)
        bits |= sticky
        quotients += lifting
        return bits.astype(dtype)

    return steps


@operation(
    OperationCode.DEQUANTIZE,
    since=1,
    summary="Integers to real numbers: (value - zero point) * scale.",
    types=[
        types(max(level, 1 if real == T.TENSOR_FLOAT32 else 3), T=kind, O=real)
        for kind, level in (
            (T.TENSOR_QUANT8_ASYMM, 1),
            (T.TENSOR_QUANT8_SYMM, 3),
            (T.TENSOR_QUANT8_SYMM_PER_CHANNEL, 3),
            (T.TENSOR_QUANT8_ASYMM_SIGNED, 4),
        )
        for real in FLOATS
    ],
    inputs=[Input("input", "T", "quantised numbers", rank=up_to(4, build=True))],
    outputs=[Output("output", "O", "real numbers")],
    shape=same_as_input,
    zero_sized=True,
)
@prepared("input")
def dequantize(call: Call) -> Function:
    """Per-channel values have their channel's scale."""
    return real_numbers(call["input"])


_FREE = (T.TENSOR_FLOAT16, T.TENSOR_FLOAT32, T.TENSOR_INT32, T.TENSOR_QUANT8_ASYMM)
_IDENTITIES = (T.TENSOR_BOOL8, T.TENSOR_QUANT16_ASYMM, T.TENSOR_QUANT16_SYMM, T.TENSOR_QUANT8_ASYMM_SIGNED, T.TENSOR_QUANT8_SYMM)


def _check_dims(call: Call) -> Reason | None:
    x, out = call["input"].dims, call.out.dims
    if x and out and 0 not in out and x != out:
        return Reason(f"the input's dimensions {list(x)}", str(list(out)), call.definition.name, "output")
    return None


@operation(
    OperationCode.CAST,
    since=3,
    summary="Values in another type; quantisation parameters are ignored.",
    types=[
        *(types(3, T=source, O=target) for source in _FREE for target in _FREE),
        *(types(4, T=kind, O=kind) for kind in _IDENTITIES),
    ],
    inputs=[Input("input", "T", "any values", rank=at_least(1))],
    outputs=[Output("output", "O", "the values, truncated towards 0, clamped to 0 to 255 for TENSOR_QUANT8_ASYMM")],
    shape=same_as_input,
    build_checks=(_check_dims,),
    handled="executor",
)
@prepared("input")
def cast(call: Call) -> Function:
    """N53."""
    if call["input"].type != call.out.type == T.TENSOR_QUANT8_ASYMM:
        return lambda x: np.clip(x, 0, 255)
    return lambda x: x
