"""NumPy kernels with TFLite's integer arithmetic, bit for bit."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from nnbridge.extensions import HostTensor
from nnbridge.operations.arithmetic import mbqm, quantize_multiplier, saturate
from nnbridge_tflite.kernels import Array, Options, Tensors, axes, given, kernel, quantised, real, stored


def requantised(sums: Array, factor: float, out: HostTensor) -> Array:
    """Integer sums times a factor, moved to the output's zero point, in its element type."""
    return saturate(mbqm(sums, *quantize_multiplier(factor)) + out.zero_point, out.dtype)


@kernel("MEAN")
def mean(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    """The mean over axes; of quantised numbers the sum times a multiplier that the count divides."""
    data, out = inputs[0], outputs[0]
    keep, over = bool(options.get("keep_dims")), axes(inputs[1], len(data.dims))
    if not (quantised(data) and quantised(out)):
        return [stored(np.asarray(np.mean(real(data), over, keepdims=keep)), out)]
    sums = np.asarray((given(data).astype(np.int64) - data.zero_point).sum(over, keepdims=keep))
    count = max(math.prod(data.dims[a] for a in over), 1)
    multiplier, shift = quantize_multiplier(data.scale / out.scale)
    extra = max(min(count.bit_length() - 1, 32, 31 + shift), 0)
    divided = mbqm(sums, (multiplier << extra) // count, shift - extra)
    return [saturate(divided + out.zero_point, out.dtype)]
