"""Reductions over axes: MEAN and the REDUCE family."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from nnbridge.model import Array
from nnbridge.operations.arithmetic import is_quant8
from nnbridge.operations.call import Call
from nnbridge.operations.declaration import Input, Output, TypeSet, like, operation, rank, tensors, types
from nnbridge.operations.kernels import Function, prepared
from nnbridge.operations.numerics import current
from nnbridge.operations.reshaping import UP_TO_4, moved_types
from nnbridge.types import OperandCode as T
from nnbridge.types import OperationCode

_AXES = Input("axes", T.TENSOR_INT32, "axes to reduce, counted from the end if negative; named twice counts once", rank=rank(1))


def _axes(call: Call) -> tuple[int, ...]:
    count = call["input"].rank
    found = set()
    for axis in (int(a) for a in call["axes"].data.reshape(-1)):
        call.require(-count <= axis < count, f"axes in [{-count}, {count})", axis, "axes")
        found.add(axis % count)
    return tuple(sorted(found))


def _reduced_shape(call: Call) -> tuple[int, ...]:
    dims, axes = call["input"].dims, _axes(call)
    if call.scalar("keep_dims") > 0:
        return tuple(1 if i in axes else d for i, d in enumerate(dims))
    return tuple(d for i, d in enumerate(dims) if i not in axes) or (1,)


@operation(
    OperationCode.MEAN,
    since=2,
    summary="Mean over axes.",
    types=moved_types(2),
    inputs=[UP_TO_4, _AXES, Input("keep_dims", T.INT32, "above 0: reduced axes stay with size 1")],
    counts={3: 2},
    outputs=[Output("output", "T", "means", like("input"))],
    shape=_reduced_shape,
    handled="executor",
)
@prepared("input")
def mean(call: Call) -> Function:
    """8-bit means truncate the raw sum towards 0, without rounding (N85)."""
    axes, dims = _axes(call), call.out.dims
    if not axes:
        return lambda x: x
    if not is_quant8(call.out.type):
        return lambda x: x.mean(axis=axes, dtype=np.float32).reshape(dims)
    count = math.prod(call["input"].dims[i] for i in axes)

    def truncated(x: Array) -> Array:
        sums = x.sum(axis=axes, dtype=np.int32)
        return (np.sign(sums) * (np.abs(sums) // count)).reshape(dims)

    def nearest(x: Array) -> Array:
        return np.rint(x.mean(axis=axes, dtype=np.float64)).astype(np.int32).reshape(dims)

    return nearest if current().means == "nearest" else truncated


def _rows(x: Array, axes: tuple[int, ...]) -> Array:
    """The elements to reduce, one after the other along the last axis."""
    others = [i for i in range(x.ndim) if i not in axes]
    return x.transpose(*others, *axes).reshape(*(x.shape[i] for i in others), -1)


def _folded(ufunc: np.ufunc, x: Array, axes: tuple[int, ...]) -> Array:
    """A sum or product in the type of ``x``; float16 is rounded after each step (N33), so that order matters there."""
    if x.dtype != np.float16:
        return ufunc.reduce(x, axis=axes)
    return ufunc.accumulate(_rows(x, axes), axis=-1)[..., -1]


def _product(x: Array, axes: tuple[int, ...]) -> Array:
    """The product with a factor of 0 is 0, also that of infinity (N86); in float16, whose order is known, also from where it
    becomes 0 on the way.
    """
    found = np.where((x == 0).any(axis=axes), x.dtype.type(0), _folded(np.multiply, x, axes))
    if x.dtype == np.float16 and np.isnan(found).any():
        before = np.multiply.accumulate(_rows(x, axes), axis=-1)[..., :-1]
        found = np.where((before == 0).any(axis=-1), x.dtype.type(0), found)
    return found


def _extreme(ufunc: np.ufunc, sign: int) -> Callable[[Array, tuple[int, ...]], Array]:
    """Largest or smallest value; float ones start from the finite range's end (N36) and pass over NaN (N35)."""

    def reduce(x: Array, axes: tuple[int, ...]) -> Array:
        if x.dtype.kind != "f":
            return ufunc.reduce(x, axis=axes)
        return ufunc.reduce(x, axis=axes, initial=-sign * np.finfo(x.dtype).max)

    return reduce


_FLOATS = tensors(FLOAT32=3, FLOAT16=3)
_BOOLEANS = tensors(BOOL8=3)
_ORDERED = [*_FLOATS, types(3, T=T.TENSOR_QUANT8_ASYMM), types(4, T=T.TENSOR_QUANT8_ASYMM_SIGNED)]

_REDUCTIONS: tuple[tuple[OperationCode, str, list[TypeSet], Callable[[Array, tuple[int, ...]], Array]], ...] = (
    (OperationCode.REDUCE_ALL, "Logical and over axes.", _BOOLEANS, lambda x, axes: (x != 0).all(axis=axes)),
    (OperationCode.REDUCE_ANY, "Logical or over axes.", _BOOLEANS, lambda x, axes: (x != 0).any(axis=axes)),
    (OperationCode.REDUCE_MAX, "Maximum over axes.", _ORDERED, _extreme(np.fmax, 1)),
    (OperationCode.REDUCE_MIN, "Minimum over axes.", _ORDERED, _extreme(np.fmin, -1)),
    (OperationCode.REDUCE_PROD, "Product over axes.", _FLOATS, _product),
    (OperationCode.REDUCE_SUM, "Sum over axes.", _FLOATS, lambda x, axes: _folded(np.add, x, axes)),
)


def _declare(
    code: OperationCode, summary: str, type_sets: list[TypeSet], reduce: Callable[[Array, tuple[int, ...]], Array]
) -> None:
    @operation(
        code,
        since=3,
        summary=summary,
        types=type_sets,
        inputs=[UP_TO_4, _AXES, Input("keep_dims", T.BOOL, "true: reduced axes stay with size 1")],
        outputs=[Output("output", "T", "result", like("input"))],
        shape=_reduced_shape,
        half="native",
    )
    @prepared("input")
    def kernel(call: Call) -> Function:
        axes, dims = _axes(call), call.out.dims
        return (lambda x: reduce(x, axes).reshape(dims)) if axes else lambda x: x


for _reduction in _REDUCTIONS:
    _declare(*_reduction)
