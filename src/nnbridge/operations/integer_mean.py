"""TFLite's mean of quantised numbers: the sum times a multiplier that the count divides.

NNAPI's MEAN truncates, so it cannot stand for it. The arithmetic is here, below the importer, for the compiled kernels to see.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from nnbridge.extensions import Arg, StatedKernel
from nnbridge.model import Array
from nnbridge.operations.arithmetic import mbqm, quantize_multiplier, saturate


class IntegerMean(StatedKernel):
    """The mean over axes of one tensor."""

    places = (0,)

    def __init__(self, inputs: Sequence[Arg], outputs: Sequence[Arg], axes: Sequence[int], *, keep: bool) -> None:
        """``axes`` count from 0; ``keep``: axes of size 1 stay."""
        self.inputs, self.outputs = inputs, outputs
        self.axes, self._keep = tuple(sorted(axes)), keep
        data, out = inputs[0], outputs[0]
        self.count = max(math.prod(data.dims[axis] for axis in self.axes), 1)
        """Of the numbers in each mean."""
        multiplier, shift = quantize_multiplier(data.scale / out.scale)
        extra = max(min(self.count.bit_length() - 1, 32, 31 + shift), 0)
        self.multiplier, self.shift = (multiplier << extra) // self.count, shift - extra
        """Of sums, as :func:`~nnbridge.operations.arithmetic.mbqm` takes them."""

    def __call__(self, arrays: Sequence[Array | None]) -> list[Array]:
        """The means in the output's element type and declared shape."""
        data, out = self.inputs[0], self.outputs[0]
        if arrays[0] is None:
            raise ValueError("an input")
        sums = np.asarray((arrays[0].astype(np.int64).reshape(data.dims) - data.zero_point).sum(self.axes, keepdims=self._keep))
        means = saturate(mbqm(sums, self.multiplier, self.shift) + out.zero_point, out.dtype)
        return [means.reshape(out.dims if out.dims and 0 not in out.dims else means.shape)]  # Axes may be computed.
