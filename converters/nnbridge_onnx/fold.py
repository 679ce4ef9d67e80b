"""Folding: what is known without running the model is worked out once, at conversion."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from nnbridge.errors import OpFailedError
from nnbridge_onnx.graph import Array, Node, dtype_of
from nnbridge_onnx.host import run_node
from nnbridge_onnx.values import Values

INT64 = 7
MAX_ELEMENTS = 1 << 22
"""Constants larger than this are not made at conversion; the operator runs instead."""


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_KEEPING = _names(
    """Abs Acos Acosh ArgMax ArgMin Asin Asinh Atan Atanh BitwiseNot Cast Ceil Celu Clip Compress Concat Constant Cos Cosh CumProd
    CumSum DepthToSpace DequantizeLinear DynamicQuantizeLinear Elu Erf Exp Flatten Floor GatherElements Gelu HardSigmoid HardSwish
    Hardmax Identity IsInf IsNaN LayerNormalization LeakyRelu Log LogSoftmax LpNormalization Mish Neg NonZero Not QuantizeLinear
    Reciprocal ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum ReduceSumSquare
    Relu Reshape ReverseSequence Round Scatter ScatterElements ScatterND Selu Shrink Sigmoid Sign Sin Sinh Slice Softmax Softplus
    Softsign SpaceToDepth Split Sqrt Squeeze Tan Tanh ThresholdedRelu TopK Transpose Trilu Unique Unsqueeze"""
)
"""Operators whose results are no larger than their inputs together, for each axis that NonZero tells of."""

_BROADCASTING = _names(
    """Add And BitShift BitwiseAnd BitwiseOr BitwiseXor Div Equal Greater GreaterOrEqual Less LessOrEqual Max Mean Min Mod Mul Or
    PRelu Pow Sub Sum Where Xor"""
)
"""Operators whose results are as large as their inputs broadcast."""

_MULTIPLYING = frozenset(["Einsum", "Gather", "GatherND", "Gemm", "MatMul", "MatMulInteger"])
"""Operators whose results, and whose work, are no larger than their inputs multiplied."""


def _numbers(array: Array) -> list[int]:
    return [int(v) for v in np.ravel(array)]


def _multiplied(arrays: Sequence[Array]) -> float:
    return math.prod(max(a.size, 1) for a in arrays)


_SIZES: dict[str, Callable[[Sequence[Array]], float]] = {
    **dict.fromkeys(_KEEPING, lambda a: sum(x.size * max(x.ndim, 1) for x in a)),
    **dict.fromkeys(_BROADCASTING, lambda a: math.prod(np.broadcast_shapes(*(x.shape for x in a)))),
    **dict.fromkeys(_MULTIPLYING, _multiplied),
    "ConstantOfShape": lambda a: math.prod(_numbers(a[0])),
    "Range": lambda a: abs(a[1].item() - a[0].item()) / max(abs(a[2].item()), 1e-30),
    "Expand": lambda a: a[0].size * math.prod(_numbers(a[1])),
    "Tile": lambda a: a[0].size * math.prod(_numbers(a[1])),
    "OneHot": lambda a: a[0].size * float(np.ravel(a[1])[0]),
}
"""How large an operator's results are at most, by its inputs; what a file says of shapes may be wrong. Others are not folded:
their results may be of any size, need a model's runtime, or never come."""


def fold(node: Node, values: Values) -> bool:
    """Work the node out if that needs no computed value; True if it is done."""
    if node.domain or not node.outputs:
        return False
    if node.type in ("Shape", "Size"):
        return _fold_shape(node, values)
    if node.type == "CastLike" and node.inputs[0] in values.constants:
        return _fold_cast(node, values)
    names = [name for name in (*node.inputs, *node.captured) if name]
    if node.type not in _SIZES or any(name not in values.constants for name in names):
        return False
    if any(values.tensor(name).type == 0 for name in node.outputs if name):
        return False
    if not _small(node, values):
        return False
    arrays = {name: values.constants[name] for name in names}
    try:
        results = run_node(node, arrays, {name: values.tensor(name).type for name in names})
    except OpFailedError:
        return False
    outputs = [name for name in node.outputs if name]
    for name, result in zip(outputs, results, strict=True):
        type = values.tensor(name).type
        values.fold(name, np.asarray(result).astype(dtype_of(type), copy=False), type)
    return True


def _small(node: Node, values: Values) -> bool:
    arrays = [values.constants[name] for name in node.inputs if name]
    try:
        return all(a.size <= MAX_ELEMENTS for a in arrays) and _SIZES[node.type](arrays) <= MAX_ELEMENTS
    except (ValueError, IndexError, OverflowError):
        # Inputs that do not fit the operator; the host says so when it runs.
        return False


def _fold_cast(node: Node, values: Values) -> bool:
    """A constant in the type of another value, of which nothing else needs to be known."""
    array, target = values.constants[node.inputs[0]], values.tensor(node.outputs[0]).type
    dtype = dtype_of(target)
    if dtype is None or array.dtype.kind not in "fiub" or dtype.kind not in "fiub":
        return False
    values.fold(node.outputs[0], array.astype(dtype), target)
    return True


def _fold_shape(node: Node, values: Values) -> bool:
    """The shape of a value, if it is known."""
    shape = values.tensor(node.inputs[0]).shape
    if shape is None:
        return False
    start, end = node.attributes.get("start", 0), node.attributes.get("end")
    part = shape[slice(start, end)] if node.type == "Shape" else shape
    if any(d < 0 for d in part):
        return False
    array: Array = np.array(part if node.type == "Shape" else math.prod(part), np.int64)
    values.fold(node.outputs[0], array, INT64)
    return True
