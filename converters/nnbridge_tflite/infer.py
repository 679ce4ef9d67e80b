"""Output dimensions of host operations: the kernel is asked with zeros."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from nnbridge.converters.draft import Step, Value
from nnbridge.errors import ConversionError, Reason
from nnbridge.extensions import HostTensor
from nnbridge_tflite.evaluation import element_type
from nnbridge_tflite.graph import Operator
from nnbridge_tflite.kernels import KERNELS
from nnbridge_tflite.kernels_sixteen import SIXTEEN

MAX_ELEMENTS = 2**22
"""Larger inputs are not tried; their outputs' dimensions stay open."""

DATA_DEPENDENT = frozenset({"RANGE", "SEGMENT_SUM", "UNIQUE", "WHERE"})
"""Operators whose output dimensions only a run tells, unless what they read is constant."""

_REDUCTIONS = ("ARG_MAX", "ARG_MIN", "MEAN", "REDUCE_ALL", "REDUCE_ANY", "REDUCE_MAX", "REDUCE_MIN", "REDUCE_PROD", "SUM")
SHAPE_OPERANDS: Mapping[str, tuple[int, ...]] = {
    **dict.fromkeys(_REDUCTIONS, (1,)),
    "BATCH_TO_SPACE_ND": (1, 2),
    "BROADCAST_ARGS": (0, 1),
    "BROADCAST_TO": (1,),
    "CONV_3D_TRANSPOSE": (0,),
    "EXPAND_DIMS": (1,),
    "FILL": (0,),
    "MIRROR_PAD": (1,),
    "MULTINOMIAL": (1,),
    "ONE_HOT": (1,),
    "PAD": (1,),
    "PADV2": (1,),
    "RANDOM_STANDARD_NORMAL": (0,),
    "RANDOM_UNIFORM": (0,),
    "RESHAPE": (1,),
    "RESIZE_BILINEAR": (1,),
    "RESIZE_NEAREST_NEIGHBOR": (1,),
    "RFFT2D": (1,),
    "SCATTER_ND": (2,),
    "SLICE": (1, 2),
    "SPACE_TO_BATCH_ND": (1, 2),
    "SPARSE_TO_DENSE": (1,),
    "SPLIT": (0,),
    "SPLIT_V": (1, 2),
    "STRIDED_SLICE": (1, 2, 3),
    "TILE": (1,),
    "TOPK_V2": (1,),
    "TRANSPOSE": (1,),
    "TRANSPOSE_CONV": (0,),
}
"""Operator → inputs that decide the output's dimensions: what a file declares holds only where they are constant."""


def shape_is_computed(operator: Operator, inputs: Sequence[Value]) -> bool:
    """True if the output's dimensions depend on numbers that only a run tells."""
    deciding = () if operator.custom else SHAPE_OPERANDS.get(operator.name, ())
    return any(i < len(inputs) and inputs[i].data is None and not inputs[i].omitted for i in deciding)


def infer_dims(operator: Operator, step: Step) -> None:
    """Set the dimensions of a step's outputs; open ones where only a run can tell."""
    inputs = step.inputs[:-1]
    kernel = (
        None if operator.custom or operator.name in DATA_DEPENDENT else KERNELS.get(operator.name) or SIXTEEN.get(operator.name)
    )
    too_large = sum(math.prod(v.dims) for v in inputs) > MAX_ELEMENTS
    if kernel is None or too_large or shape_is_computed(operator, inputs) or any(0 in v.dims and not v.omitted for v in inputs):
        _leave_open(step.outputs)
        return
    try:
        with np.errstate(all="ignore"):
            results = kernel([_tensor(v) for v in inputs], [_tensor(v) for v in step.outputs], operator.options)
    except (ValueError, IndexError, TypeError, ArithmeticError, KeyError, AttributeError, MemoryError) as error:
        raise ConversionError(Reason("operands that fit the operator", str(error), operator.label)) from error
    for value, result in zip(step.outputs, results, strict=False):
        value.dims = np.shape(result) or (1,)


def _leave_open(outputs: Sequence[Value]) -> None:
    for value in outputs:
        value.dims = (0,) * len(value.dims)


def _tensor(value: Value) -> HostTensor:
    dtype = element_type(value)
    data = value.data
    if data is None and not value.omitted:
        data = np.zeros(value.dims, dtype)
    return HostTensor(data, value.dims, dtype, value.scale, value.zero_point)
