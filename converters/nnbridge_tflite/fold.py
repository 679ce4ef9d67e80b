"""Operators whose answer is known at conversion become constants."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from nnbridge.errors import ConversionError, Reason
from nnbridge.extensions import HostTensor
from nnbridge_tflite.graph import Operator, Tensor
from nnbridge_tflite.kernels import BINARY, KERNELS, REDUCTIONS, UNARY
from nnbridge_tflite.options import host_options
from nnbridge_tflite.values import Values

MAX_ELEMENTS = 65_536
"""Larger results stay computed: folding is for shapes and small tables."""

_MOVES = """BROADCAST_ARGS BROADCAST_TO CONCATENATION EXPAND_DIMS FILL GATHER GATHER_ND PACK PAD RESHAPE REVERSE_V2 SLICE SPLIT
SPLIT_V SQUEEZE STRIDED_SLICE TILE TRANSPOSE UNPACK"""

MOVES = frozenset(_MOVES.split())
"""Folded for every element type: they do not compute."""

COMPUTES = frozenset({*UNARY, *BINARY, *REDUCTIONS, "CAST", "DIV", "RANGE", "SELECT", "SELECT_V2", "ONE_HOT", "CUMSUM"})
"""Folded for numbers that stand for themselves."""

UNPACKS_WEIGHTS = frozenset({"DENSIFY", "DEQUANTIZE"})
"""Folded whatever the size: what they read is a packed form of weights."""

ABOUT_SHAPES = frozenset({"RANK", "SHAPE"})


Arrays: TypeAlias = "Sequence[npt.NDArray[Any]]"


def _whole(array: npt.NDArray[Any]) -> int:
    """The product of an array's numbers, as dimensions."""
    return math.prod(max(int(v), 0) for v in array.reshape(-1))


def _padded(arrays: Arrays) -> int:
    widths = arrays[1].reshape(-1, 2).sum(-1).tolist()
    return math.prod(d + abs(int(w)) for d, w in zip(arrays[0].shape, widths, strict=False))


GROWTH: Mapping[str, Callable[[Arrays], int]] = {
    "BROADCAST_TO": lambda a: _whole(a[1]),
    "FILL": lambda a: _whole(a[0]),
    "GATHER": lambda a: a[0].size * a[1].size,
    "GATHER_ND": lambda a: a[0].size * a[1].size,
    "ONE_HOT": lambda a: a[0].size * _whole(a[1]),
    "PAD": _padded,
    "RANGE": lambda a: int(min(abs((a[1] - a[0]) / (a[2] or 1)).max(initial=0.0), 2.0**40)),
    "TILE": lambda a: a[0].size * _whole(a[1]),
    **dict.fromkeys((*BINARY, "DIV", "SELECT", "SELECT_V2"), lambda a: math.prod(max(d) for d in _aligned(a))),
}
"""How many elements an operator makes at most, where that is not as many as it reads."""


def _aligned(arrays: Arrays) -> list[tuple[int, ...]]:
    """The sizes that meet in each dimension when shapes are broadcast."""
    rank = max(a.ndim for a in arrays)
    return list(zip(*((1,) * (rank - a.ndim) + a.shape for a in arrays), strict=True))


def _read(arrays: Arrays) -> int:
    """Elements that an operator reads."""
    return sum(array.size for array in arrays)


def _too_large(operator: Operator, arrays: Arrays) -> bool:
    return GROWTH.get(operator.name, _read)(arrays) > MAX_ELEMENTS


def fold(operator: Operator, values: Values) -> bool:
    """Make the operator's outputs constants if all that it reads is known; True if done."""
    name = operator.name
    if operator.custom or name not in KERNELS:
        return False
    if name in ABOUT_SHAPES:
        return _fold_shape(operator, values)
    if name not in MOVES and name not in COMPUTES and name not in UNPACKS_WEIGHTS:
        return False
    outputs = [values.tensors[i] for i in operator.outputs]
    arrays = [values.constant(i) if i >= 0 else None for i in operator.inputs]
    tensors = [values.tensors[i] for i in operator.inputs if i >= 0]
    if not arrays or any(a is None and i >= 0 for a, i in zip(arrays, operator.inputs, strict=True)):
        return False
    if name not in UNPACKS_WEIGHTS and _too_large(operator, [a for a in arrays if a is not None]):
        return False
    if name in COMPUTES and any(t.quantisation.scales for t in (*tensors, *outputs)):
        return False
    _store(operator, values, arrays)
    return True


def _fold_shape(operator: Operator, values: Values) -> bool:
    if len(operator.inputs) != 1 or operator.inputs[0] < 0:
        return False
    shape = values.shape(operator.inputs[0])
    if shape is None:
        return False
    dtype = values.tensors[operator.outputs[0]].type.dtype
    values.fold(operator.outputs[0], np.array(len(shape) if operator.name == "RANK" else shape, dtype))
    return True


def _store(operator: Operator, values: Values, arrays: list[npt.NDArray[Any] | None]) -> None:
    inputs = [_tensor(values.tensors[i] if i >= 0 else None, array) for i, array in zip(operator.inputs, arrays, strict=True)]
    outputs = [_tensor(values.tensors[i], None) for i in operator.outputs]
    try:
        with np.errstate(all="ignore"):
            results = KERNELS[operator.name](inputs, outputs, host_options(operator, values.tensors))
    except (ValueError, IndexError, TypeError, ArithmeticError, KeyError, AttributeError, MemoryError) as error:
        raise ConversionError(Reason("operands that fit the operator", str(error), operator.label)) from error
    if len(results) != len(outputs):
        raise ConversionError(Reason(f"{len(results)} outputs", str(len(outputs)), operator.label))
    for i, declared, result in zip(operator.outputs, outputs, results, strict=True):
        values.fold(i, np.ascontiguousarray(np.asarray(result).astype(declared.dtype, copy=False)).reshape(np.shape(result)))


def _tensor(tensor: Tensor | None, array: npt.NDArray[Any] | None) -> HostTensor:
    if tensor is None:
        return HostTensor(None, (), np.dtype(np.float32))
    dtype = tensor.type.dtype or np.dtype(np.uint8)
    dims = tensor.shape if array is None else array.shape
    return HostTensor(array, dims, dtype, tensor.quantisation.scale, tensor.quantisation.zero_point)
