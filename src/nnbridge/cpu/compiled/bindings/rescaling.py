"""Requantisation of convolutions: all of a plan at once, since NumPy takes as long for one as for all channels of all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from nnbridge.cpu.compiled.bindings.binding import Binding, limits_of, require, zero_of
from nnbridge.cpu.compiled.requantise import Rescaling
from nnbridge.errors import NnapiError
from nnbridge.operations.arithmetic import fused_activation, is_quant8, quantize_multipliers
from nnbridge.operations.call import Arg, Call, NeedsValue
from nnbridge.operations.correlation import bias_scale, multipliers, real_multipliers
from nnbridge.types import OperationCode

_CONVOLUTIONS = (
    OperationCode.CONV_2D,
    OperationCode.GROUPED_CONV_2D,
    OperationCode.DEPTHWISE_CONV_2D,
    OperationCode.TRANSPOSE_CONV_2D,
)
_RESCALINGS = "rescalings"


def require_bias_scale(x: Arg, w: Arg, bias: Arg) -> None:
    """Where it is another, the reference kernel refuses the operation. Per-channel filters do not look at it."""
    if w.channel_quant is None:
        same, rule, _ = bias_scale(x, w, bias)
        require(same, rule)


def filter_rescaling(b: Binding) -> Rescaling:
    """The requantisation of convolutions."""
    require_bias_scale(b.call["input"], b.call["filter"], b.call["bias"])
    if _RESCALINGS not in b.shared.tables:
        b.shared.tables[_RESCALINGS] = _rescalings(b.shared.calls)
    found: Rescaling | None = b.shared.tables[_RESCALINGS].get(id(b.call))
    return found or Rescaling.twice(*multipliers(b.call), zero_of(b.out), negative_clamped=_negative_clamped(b.call))


def _negative_clamped(call: Call) -> bool:
    """True if negative results become the zero point."""
    low, _ = limits_of(call.out, fused_activation(call))
    return low == zero_of(call.out)


def _rescalings(calls: Sequence[Call]) -> Mapping[int, Rescaling]:
    """The requantisations of all convolutions, by the call's identity."""
    found = [call for call in calls if call.definition.code in _CONVOLUTIONS and is_quant8(call.out.type)]
    try:
        reals = [real_multipliers(call) for call in found]
        zeros, clamped = [zero_of(call.out) for call in found], [_negative_clamped(call) for call in found]
        ends = np.cumsum([len(real) for real in reals])
        rescalings = Rescaling.each(*quantize_multipliers(np.concatenate(reals)), ends, zeros, clamped)
    except (ArithmeticError, ValueError, NnapiError, NeedsValue):
        return {}  # Each by itself, so that the one that is refused is found.
    return {id(call): rescaling for call, rescaling in zip(found, rescalings, strict=True)}
