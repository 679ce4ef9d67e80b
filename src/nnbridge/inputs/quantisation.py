"""Real numbers as an operand stores them, and back."""

from __future__ import annotations

import numpy as np

from nnbridge.compare.arrays import Array
from nnbridge.extensions import operand_dtype
from nnbridge.model import Operand


def is_quantised(operand: Operand) -> bool:
    """True for integers with a scale."""
    return operand.scale != 0 and operand_dtype(operand).kind in "iu"


def quantised(operand: Operand, real: Array) -> Array:
    """Real numbers in a quantised operand's steps: rounded half away from zero, as TFLite does, and saturated."""
    dtype = operand_dtype(operand)
    steps = real.astype(np.float64) / operand.scale
    limits = np.iinfo(dtype)
    rounded = np.trunc(steps + np.copysign(0.5, steps)) + operand.zero_point
    return np.nan_to_num(np.clip(rounded, limits.min, limits.max)).astype(dtype)


def dequantised(operand: Operand, stored: Array) -> Array:
    """The real numbers that an output's stored values stand for; values without a scale as they are."""
    if not is_quantised(operand) or stored.dtype.kind not in "iu":
        return stored
    return (stored.astype(np.float64) - operand.zero_point) * operand.scale
