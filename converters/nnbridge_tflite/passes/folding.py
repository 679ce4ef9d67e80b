"""Constant folding: operators whose result is known at conversion become constants."""

from __future__ import annotations

import numpy as np

from nnbridge.errors import ConversionError, Reason
from nnbridge.extensions import HostTensor
from nnbridge.model import Array
from nnbridge_tflite.declaration import TfliteOperator
from nnbridge_tflite.host.options import host_options
from nnbridge_tflite.passes.values import TensorValues
from nnbridge_tflite.read.graph import Operator

MAX_ELEMENTS = 65_536
"""Larger results stay computed: folding is for shapes and small tables."""

KERNEL_ERRORS = (ValueError, IndexError, TypeError, ArithmeticError, KeyError, AttributeError, MemoryError)
"""What a kernel raises for operands that do not fit its operator."""

_OMITTED = HostTensor(None, (), np.dtype(np.float32), omitted=True)


def fold(declared: TfliteOperator | None, operator: Operator, values: TensorValues) -> bool:
    """Make the operator's outputs constants if all that it reads is known; True if done."""
    if declared is None:
        return False
    if declared.folded_from_shape is not None:
        shape = values.shape(operator.inputs[0])
        if shape is not None:
            dtype = values.tensors[operator.outputs[0]].type.dtype
            values.fold(operator.outputs[0], np.array(declared.folded_from_shape(shape), dtype))
        return shape is not None
    folding = declared.folding
    if folding is None or declared.kernel is None:
        return False
    arrays = [values.constant(i) if i >= 0 else None for i in operator.inputs]
    if not arrays or any(a is None and i >= 0 for a, i in zip(arrays, operator.inputs, strict=True)):
        return False
    if not folding.fits([a for a in arrays if a is not None], MAX_ELEMENTS):
        return False
    tensors = [values.tensors[i] for i in (*operator.inputs, *operator.outputs) if i >= 0]
    # Numbers that stand for others are computed at run time, as NNAPI rounds them.
    if not folding.moves_only and any(t.quantisation.scales for t in tensors):
        return False
    _store(declared, operator, values, arrays)
    return True


def _store(declared: TfliteOperator, operator: Operator, values: TensorValues, arrays: list[Array | None]) -> None:
    assert declared.kernel is not None
    inputs = [
        values.tensors[i].host_tensor(array) if i >= 0 else _OMITTED for i, array in zip(operator.inputs, arrays, strict=True)
    ]
    outputs = [values.tensors[i].host_tensor(None) for i in operator.outputs]
    try:
        results = declared.kernel(inputs, outputs, declared.complete(host_options(operator, values.tensors)))
    except KERNEL_ERRORS as error:
        raise ConversionError(Reason("operands that fit the operator", str(error), operator.label)) from error
    if len(results) != len(outputs):
        raise ConversionError(Reason(f"{len(results)} outputs", str(len(outputs)), operator.label))
    for i, out, result in zip(operator.outputs, outputs, results, strict=True):
        values.fold(i, np.ascontiguousarray(np.asarray(result).astype(out.dtype, copy=False)).reshape(np.shape(result)))
