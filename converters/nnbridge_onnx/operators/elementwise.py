"""Declaration and lowering of families of element-wise operators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from nnbridge.converters.declaration import lowers
from nnbridge.converters.draft import Value
from nnbridge.types import OperandCode, OperationCode
from nnbridge_onnx.declaration import BROADCAST, MOVED, OnnxOperator, operator
from nnbridge_onnx.lowerer import Lowerer


def unary(name: str, number: int, code: OperationCode, summary: str, signature: str = "X -> Y", **facts: Any) -> OnnxOperator:
    """Declare an operator of one input that is one of NNAPI's operations."""
    definition = evaluated(name, number, summary, signature, **facts)

    @definition.lowering()
    def lower(to: Lowerer) -> None:
        to.require_exact()
        (x,), images = to.aligned(0)
        to.require_numbers(x)
        to.finish(code, x, images=images)

    return definition


def binary(name: str, number: int, code: OperationCode, summary: str, signature: str = "A B -> C", **facts: Any) -> OnnxOperator:
    """Declare an operator of two inputs, broadcast, that is one of NNAPI's operations."""
    definition = operator(name, number, signature, summary, folding=BROADCAST, **facts)

    @definition.lowering()
    def lower(to: Lowerer) -> None:
        inputs, images = to.aligned(0, 1)
        to.require_numbers(*inputs)
        to.finish(code, *inputs, images=images)

    return definition


def evaluated(name: str, number: int, summary: str, signature: str = "input -> output", **facts: Any) -> OnnxOperator:
    """Declare an operator of one input whose result is as large as that."""
    return operator(name, number, signature, summary, folding=MOVED, **facts)


def composed(
    *definitions: OnnxOperator,
) -> Callable[[Callable[[Lowerer, Value], Value]], Callable[[Lowerer, Value], Value]]:
    """Decorator: a lowering that computes the output from one floating input by several operations."""

    def register(build: Callable[[Lowerer, Value], Value]) -> Callable[[Lowerer, Value], Value]:
        @lowers(*definitions)
        def lower(to: Lowerer) -> None:
            (x,), images = to.aligned(0)
            to.require_float(x)
            to.require_shape(x)
            to.named_result(build(to, x), images=images)

        return build

    return register


def constant_like(to: Lowerer, like: Value, number: float) -> Value:
    """A constant of one element beside a tensor of floats or INT32."""
    if like.type == OperandCode.TENSOR_INT32:
        return to.vector([int(number)])
    return to.float_tensor([number], like)


def filled(to: Lowerer, like: Value, dims: tuple[int, ...], number: int) -> Value:
    """A constant of one number everywhere."""
    size = int(np.prod(dims, dtype=np.int64))
    to.draft.spend(size)
    if like.type == OperandCode.TENSOR_INT32:
        return to.draft.ints([number] * size, dims)
    return to.float_tensor(np.full(dims, number), like)
