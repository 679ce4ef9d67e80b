"""Constant folding: operators whose result is known at conversion become constants."""

from __future__ import annotations

import numpy as np

from nnbridge.errors import ConversionError, Reason
from nnbridge.extensions import Arg
from nnbridge.model import Array
from nnbridge.types import OperandCode
from nnbridge_tflite.declaration import TfliteOperator
from nnbridge_tflite.host.options import host_options
from nnbridge_tflite.passes.values import TensorValues
from nnbridge_tflite.read.graph import Operator

MAX_ELEMENTS = 65_536
"""Larger results stay computed: folding is for shapes and small tables."""

KERNEL_ERRORS = (ValueError, IndexError, TypeError, ArithmeticError, KeyError, AttributeError, MemoryError)
"""What a kernel raises for operands that do not fit its operator."""

_OMITTED = Arg(OperandCode.TENSOR_FLOAT32, present=False)


def folded(declared: TfliteOperator | None, operator: Operator, values: TensorValues) -> list[Array]:
    """The operator's outputs if all that it reads is known; empty if not."""
    if declared is None:
        return []
    if declared.folded_from_shape is not None:
        shape = values.shape(operator.inputs[0])
        dtype = values.tensors[operator.outputs[0]].type.dtype
        return [] if shape is None else [np.array(declared.folded_from_shape(shape), dtype)]
    folding = declared.folding
    if folding is None or declared.kernel is None:
        return []
    arrays = [values.known(i) if i >= 0 else None for i in operator.inputs]
    if not arrays or any(a is None and i >= 0 for a, i in zip(arrays, operator.inputs, strict=True)):
        return []
    if not folding.fits([a for a in arrays if a is not None], MAX_ELEMENTS):
        return []
    tensors = [values.tensors[i] for i in (*operator.inputs, *operator.outputs) if i >= 0]
    # Numbers that stand for others are computed at run time, as NNAPI rounds them.
    if not folding.moves_only and any(t.quantisation.scales for t in tensors):
        return []
    return _computed(declared, operator, values, arrays)


def _computed(declared: TfliteOperator, operator: Operator, values: TensorValues, arrays: list[Array | None]) -> list[Array]:
    assert declared.kernel is not None
    inputs = [
        values.tensors[i].host_tensor(array) if i >= 0 else _OMITTED for i, array in zip(operator.inputs, arrays, strict=True)
    ]
    outputs = [values.tensors[i].host_tensor(None) for i in operator.outputs]
    try:
        results = declared.kernel(inputs, outputs, declared.complete(host_options(operator, values.tensors)))
    except KERNEL_ERRORS as error:
        raise ConversionError(Reason.of_kernel(error, "operands that fit the operator", operator.label)) from error
    if len(results) != len(outputs):
        raise ConversionError(Reason(f"{len(results)} outputs", str(len(outputs)), operator.label))
    return [
        np.ascontiguousarray(np.asarray(result).astype(out.dtype, copy=False)).reshape(np.shape(result))
        for out, result in zip(outputs, results, strict=True)
    ]
