"""Element-wise arithmetic with and without broadcast, comparisons, logic and selection."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nnbridge.operations.arithmetic import (
    activate,
    activation_range,
    fused_activation,
    mbqm,
    quantize_multiplier,
)
from nnbridge.operations.declaration import Input, Output, operation, types, up_to
from nnbridge.operations.shapes import broadcast, same_as_input
from nnbridge.types import OperandCode as T
from nnbridge.types import OperationCode

if TYPE_CHECKING:
    from nnbridge.model import Array
    from nnbridge.operations.call import Call

ACTIVATION = Input("activation", T.INT32, "fused activation: 0 none, 1 RELU, 2 RELU1, 3 RELU6")

_BROADCAST_INPUTS = (
    Input("input1", "T", "first operand", rank=up_to(4, build=True)),
    Input("input2", "T", "second operand, broadcast against the first", rank=up_to(4, build=True)),
    ACTIVATION,
)
_ARITHMETIC_TYPES = [
    types(1, T=T.TENSOR_FLOAT32),
    types(3, T=T.TENSOR_FLOAT16),
    types(1, T=T.TENSOR_QUANT8_ASYMM),
    types(4, T=T.TENSOR_QUANT8_ASYMM_SIGNED),
    types(4, T=T.TENSOR_INT32),
]


def _broadcast_shape(call: Call) -> tuple[int, ...]:
    return broadcast(call, call["input1"].dims, call["input2"].dims)


def _add_quantised(call: Call, sign: int) -> Array:
    """N40: both operands brought to a common scale with 20 extra bits, added, rescaled to the output."""
    a, b, out = call["input1"], call["input2"], call.out
    twice_max = 2.0 * max(np.float32(a.scale), np.float32(b.scale))
    real = [float(np.float32(arg.scale)) / twice_max for arg in (a, b)]
    real_out = twice_max / float(np.float32(2**20) * np.float32(out.scale))
    call.require(real_out < 1, "2 * max(input scales) / (2**20 * output scale) below 1", real_out, "output")
    (m1, s1), (m2, s2), (mo, so) = (quantize_multiplier(r) for r in (*real, real_out))
    raw = mbqm(a.centred * (1 << 20), m1, s1) + sign * mbqm(b.centred * (1 << 20), m2, s2)
    low, high = activation_range(out, fused_activation(call))
    return np.clip(mbqm(raw, mo, so) + out.zero_point, low, high)


@operation(
    OperationCode.ADD,
    since=1,
    summary="Element-wise sum with broadcast.",
    types=_ARITHMETIC_TYPES,
    inputs=_BROADCAST_INPUTS,
    outputs=[Output("output", "T", "the sum; its scale and zero point are free")],
    shape=_broadcast_shape,
    zero_sized=True,
)
def add(call: Call) -> Array:
    """Sum; INT32 wraps and takes no activation."""
    a, b = call["input1"], call["input2"]
    if a.type in (T.TENSOR_QUANT8_ASYMM, T.TENSOR_QUANT8_ASYMM_SIGNED):
        return _add_quantised(call, 1)
    activation = fused_activation(call)
    if a.type == T.TENSOR_INT32:
        call.require(activation == 0, "no activation for TENSOR_INT32", activation, "activation")
        return a.data + b.data
    return activate(a.data + b.data, activation)


@operation(
    OperationCode.FLOOR,
    since=1,
    summary="Element-wise floor.",
    types=[types(1, T=T.TENSOR_FLOAT32), types(3, T=T.TENSOR_FLOAT16)],
    inputs=[Input("input", "T", "any values", rank=up_to(4, build=True))],
    outputs=[Output("output", "T", "largest integers not above the input")],
    shape=same_as_input,
    zero_sized=True,
)
def floor(call: Call) -> Array:
    """Floor."""
    return np.floor(call["input"].data)
