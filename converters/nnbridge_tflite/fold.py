"""Operators whose answer is known at conversion become constants."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from nnbridge.errors import ConversionError, Reason
from nnbridge.extensions import HostTensor
from nnbridge_tflite.graph import Operator, Tensor
from nnbridge_tflite.kernels import BINARY, KERNELS, REDUCTIONS, UNARY
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
    if name not in UNPACKS_WEIGHTS and any(tensor.elements > MAX_ELEMENTS for tensor in outputs):
        return False
    arrays = [values.constant(i) if i >= 0 else None for i in operator.inputs]
    tensors = [values.tensors[i] for i in operator.inputs if i >= 0]
    if not arrays or any(a is None and i >= 0 for a, i in zip(arrays, operator.inputs, strict=True)):
        return False
    if name in COMPUTES and any(t.quantisation.scales for t in (*tensors, *outputs)):
        return False
    if name == "DEQUANTIZE" and tensors[0].quantisation.per_channel:
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
            results = KERNELS[operator.name](inputs, outputs, operator.options)
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
