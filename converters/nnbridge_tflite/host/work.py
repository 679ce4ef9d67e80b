"""Multiply-adds of TFLite's operators on the host, counted as those of NNAPI's operations."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from nnbridge.extensions import Dims
from nnbridge_tflite.declaration import TfliteOperator

_PRODUCTS: Mapping[str, Callable[[Dims, Dims], int]] = {
    "CONV_2D": lambda i, o: math.prod(o[0]) * math.prod(i[1][1:]),
    "DEPTHWISE_CONV_2D": lambda i, o: math.prod(o[0]) * math.prod(i[1][1:3]),
    "TRANSPOSE_CONV": lambda i, o: math.prod(i[2]) * math.prod(i[1][:3]),
    "CONV_3D": lambda i, o: math.prod(o[0]) * math.prod(i[1][:4]),
    "CONV_3D_TRANSPOSE": lambda i, o: math.prod(i[2]) * math.prod(i[1][:4]),
    "FULLY_CONNECTED": lambda i, o: math.prod(o[0]) * i[1][1],
    "BATCH_MATMUL": lambda i, o: math.prod(o[0]) * math.prod(i[0][-2:]) // o[0][-2],
}


def _recurrent(weights: Sequence[int], inputs: Dims, _: Dims) -> int:
    """Batch × time steps × elements of all matrices of weights."""
    present = [inputs[k] for k in weights if k < len(inputs) and len(inputs[k]) == 2]
    return math.prod(inputs[0][:-1]) * sum(map(math.prod, present))


def work_of(declared: TfliteOperator) -> Callable[[Dims, Dims], int] | None:
    """What counts an operator's multiply-adds; None for one that has none."""
    if not declared.name.endswith(("RNN", "LSTM", "SVDF")):
        return _PRODUCTS.get(declared.name)
    names = enumerate(each.name for each in declared.inputs)
    return partial(_recurrent, [k for k, name in names if name.endswith(("weights", "projection"))])
