"""Real numbers as an operand stores them."""

from __future__ import annotations

import numpy as np

from nnbridge.compare.arrays import Array
from nnbridge.extensions import operand_dtype
from nnbridge.model import Operand


def quantised(operand: Operand, real: Array) -> Array:
    """Real numbers in a quantised operand's steps: rounded half away from zero, as TFLite does, and saturated."""
    dtype = operand_dtype(operand)
    steps = real.astype(np.float64) / operand.scale
    limits = np.iinfo(dtype)
    rounded = np.trunc(steps + np.copysign(0.5, steps)) + operand.zero_point
    return np.nan_to_num(np.clip(rounded, limits.min, limits.max)).astype(dtype)
