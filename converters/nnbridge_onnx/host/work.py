"""Multiply-adds of ONNX's operators on the host, counted as those of NNAPI's operations."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from nnbridge.extensions import Dims

Count = Callable[[Dims, Dims], int]


def _convolution(weights: int) -> Count:
    return lambda i, o: math.prod(o[0]) * math.prod(i[weights][1:])


def _product(i: Dims, o: Dims) -> int:
    return math.prod(o[0]) * i[0][-1]


def _rows(i: Dims, o: Dims) -> int:
    """Of stacks of matrices, the first perhaps transposed."""
    return math.prod(o[0]) * math.prod(i[0][-2:]) // o[0][-2]


def _recurrent(i: Dims, o: Dims) -> int:
    """Time steps × batch × elements of the weights of all directions."""
    return math.prod(i[0][:-1]) * (math.prod(i[1]) + math.prod(i[2]))


_OF: Mapping[str, Count] = {
    **dict.fromkeys(("Conv", "ConvInteger", "FusedConv"), _convolution(1)),
    "QLinearConv": _convolution(3),
    "ConvTranspose": lambda i, o: math.prod(i[0]) * math.prod(i[1][1:]),
    **dict.fromkeys(("Gemm", "FusedGemm", "QGemm", "FusedMatMul"), _rows),
    **dict.fromkeys(("MatMul", "MatMulInteger", "QLinearMatMul", "DynamicQuantizeMatMul", "MatMulIntegerToFloat"), _product),
    **dict.fromkeys(("LSTM", "GRU", "RNN"), _recurrent),
}


def work(options: Mapping[str, Any]) -> Count | None:
    """What counts the multiply-adds of the operator that options name; None for one that has none."""
    return _OF.get(str(options.get("op")))
