"""Output dimensions of host operations: by the operator's lowering or as TFLite prepares it, else the kernel is run on zeros."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

import numpy as np

from nnbridge.converters.draft import Value
from nnbridge.errors import ConversionError, Reason
from nnbridge_tflite.declaration import OperandKind, TfliteOperator
from nnbridge_tflite.host.running import element_type, host_tensor, lowered
from nnbridge_tflite.loads import PreparedOperator
from nnbridge_tflite.passes.folding import KERNEL_ERRORS
from nnbridge_tflite.passes.prepared import prepared_dims
from nnbridge_tflite.passes.values import TensorValues
from nnbridge_tflite.read.graph import Operator, Quantisation, Tensor, TfliteSubgraph, element_of

LARGEST = 2**28
"""Elements of tensors that a model states the dimensions of; a run refuses larger ones."""
MAX_ELEMENTS = 2**22
"""Larger inputs are not tried; their outputs' dimensions stay open."""


def infer_dims(
    declared: TfliteOperator | None,
    operator: Operator,
    values: TensorValues,
    inputs: Sequence[Value],
    outputs: Sequence[Value],
    results: Sequence[Value],
) -> None:
    """Set the dimensions of a host operation's outputs; ``results`` are those with new states after them.

    By the operator's lowering, else as TFLite prepares it. What the file declares holds for other operators whose inputs are as
    it declares them, and of which no computed number decides dimensions.
    """
    found = _lowered_dims(operator, values)
    if found is not None:
        for value, dims in zip(outputs, found, strict=True):
            value.dims = dims
        return
    given = None if declared is None else prepared_dims(declared, _prepared(operator, values))
    if given is not None and len(given) == len(outputs):
        for value, dims in zip(outputs, given, strict=True):
            large = math.prod(max(d, 1) for d in dims) > LARGEST
            value.dims = (0,) * len(dims) if large else tuple(max(d, 0) for d in dims) or (1,)
        return
    known = [
        value.data if value.data is not None or i < 0 else values.known(i)
        for i, value in zip(operator.inputs, inputs, strict=False)
    ]
    decided = declared is not None and any(
        i < len(known) and known[i] is None and not inputs[i].omitted
        for i, one in enumerate(declared.inputs)
        if one.decides_shape
    )
    dependent = declared is not None and declared.data_dependent
    stale = any(i >= 0 and v.dims != (values.tensors[i].shape or (1,)) for i, v in zip(operator.inputs, inputs, strict=False))
    if not (stale or dependent or decided):
        return
    kernel = None if declared is None or dependent else declared.kernel or declared.sixteen_bits
    # Products with weights have at most the data's places times the weights' longest dimension.
    weighed = declared is not None and OperandKind.HYBRID in declared.kernels and len(inputs) > 1
    made = math.prod(inputs[0].dims[:-1]) * max(inputs[1].dims, default=1) if weighed else 0
    too_large = max(made, sum(math.prod(v.dims) for v in inputs)) > MAX_ELEMENTS
    if declared is None or kernel is None or too_large or decided or any(0 in v.dims and not v.omitted for v in inputs):
        for value in results:
            value.dims = (0,) * len(value.dims)
        return
    known += [value.data for value in inputs[len(known) :]]
    zeros = [np.zeros(v.dims, element_type(v)) if a is None and not v.omitted else a for v, a in zip(inputs, known, strict=True)]
    tensors = [host_tensor(value, data) for value, data in zip(inputs, zeros, strict=True)]
    outs = [host_tensor(value, np.zeros(value.dims, element_type(value))) for value in results]
    try:
        computed = kernel(tensors, outs, declared.complete(operator.options))
    except KERNEL_ERRORS as error:
        raise ConversionError(Reason.of_kernel(error, "operands that fit the operator", operator.label)) from error
    for value, result in zip(results, computed, strict=False):
        value.dims = np.shape(result) or (1,)


def _prepared(operator: Operator, values: TensorValues) -> PreparedOperator:
    """The operator with the dimensions and numbers that its inputs have by now."""
    read = [i for i in operator.inputs if i >= 0]
    graph = TfliteSubgraph("", tuple(values.tensors), (operator,), tuple(read), operator.outputs)
    dims = {i: values.shape(i) for i in read}
    return PreparedOperator(graph, operator, lambda tensor: values.known(tensor.index), lambda tensor, count: None, dims)


def _lowered_dims(operator: Operator, values: TensorValues) -> list[tuple[int, ...]] | None:
    """The output dimensions that follow from what is known of the inputs; None if no lowering of the operator fits them."""
    operands = (*operator.inputs, *operator.outputs)
    arrays = {i: values.known(index) for i, index in enumerate(operator.inputs) if index >= 0}
    tensors = []
    for i, index in enumerate(operands):
        tensor = values.tensors[max(index, 0)]
        known = tensor.shape if index in operator.outputs or index < 0 else values.value(index).dims
        tensors.append(replace(tensor, index=i, shape=known if tensor.shape or known != (1,) else ()))
    local = replace(
        operator,
        inputs=tuple(i if index >= 0 else -1 for i, index in enumerate(operator.inputs)),
        outputs=tuple(range(len(operator.inputs), len(operands))),
    )
    known_arrays = {i: array for i, array in arrays.items() if array is not None}
    for stand_in in (False, True):
        forms = [_as_float(tensor) for tensor in tensors] if stand_in else tensors
        constants = {i: array for i, array in known_arrays.items() if forms[i] is tensors[i]}
        with suppress(ValueError):
            return [value.dims for value in lowered(local, forms, constants).outputs]
    return None


def _as_float(tensor: Tensor) -> Tensor:
    """A stand-in for numbers that NNAPI has no type for, such as 16-bit ones: the same dimensions."""
    if not tensor.quantisation.scales:
        return tensor
    return replace(tensor, type=element_of(np.dtype(np.float32)), quantisation=Quantisation())
