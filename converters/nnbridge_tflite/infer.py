"""Output dimensions of host operations: the kernel is asked with zeros."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from nnbridge.converters.draft import Step, Value
from nnbridge.errors import ConversionError, Reason
from nnbridge.extensions import HostTensor
from nnbridge_tflite.evaluation import element_type
from nnbridge_tflite.graph import Operator
from nnbridge_tflite.kernels import KERNELS

MAX_ELEMENTS = 2**22
"""Larger inputs are not tried; their outputs' dimensions stay open."""

DATA_DEPENDENT = frozenset({"RANGE", "SEGMENT_SUM", "UNIQUE", "WHERE"})
"""Operators whose output dimensions only a run tells, unless what they read is constant."""


def infer_dims(operator: Operator, step: Step) -> None:
    """Set the dimensions of a step's outputs; open ones where only a run can tell."""
    inputs = step.inputs[:-1]
    kernel = None if operator.custom or operator.name in DATA_DEPENDENT else KERNELS.get(operator.name)
    too_large = sum(math.prod(v.dims) for v in inputs) > MAX_ELEMENTS
    if kernel is None or too_large or any(0 in v.dims and not v.omitted for v in inputs):
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
