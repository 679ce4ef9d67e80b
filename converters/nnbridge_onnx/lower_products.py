"""Matrix products: Gemm, MatMul."""

from __future__ import annotations

import math

import numpy as np

from nnbridge.converters.draft import Value
from nnbridge.types import OperandCode, OperationCode
from nnbridge_onnx.graph import Array, Dims
from nnbridge_onnx.lowering import Lowerer, lowers

C = OperationCode


def rows(to: Lowerer, weights: Array) -> tuple[Value, Array]:
    """The first operand as rows, and weights [units, numbers of a row] in the same order.

    Rows that are flattened images stay in the order of the channels-last image; the weights are turned instead.
    """
    found = to.values.flat(to.name(0)) if to.name(0) else None
    if found is None or math.prod(found[1]) != weights.shape[1]:
        return to.value(), weights
    turned = np.moveaxis(weights.reshape(-1, *found[1]), 1, -1)
    return found[0], np.ascontiguousarray(turned).reshape(weights.shape)


@lowers("Gemm")
def _gemm(to: Lowerer) -> None:
    """FULLY_CONNECTED; alpha and beta go into the constants."""
    to.require(not to.attribute("transA", 0), "a first operand that is not transposed", "transA")
    weights = to.constant(1)
    to.require(weights.ndim == 2, "weights of rank 2", list(weights.shape))
    x, weights = rows(to, weights if to.attribute("transB", 0) else weights.T)
    to.require(to.is_float(x), "floating values", OperandCode(x.type).name, x.name)
    alpha, beta = (np.float32(to.attribute(name, 1.0)) for name in ("alpha", "beta"))
    bias = to.optional_constant(2)
    full = np.zeros(len(weights), weights.dtype) if bias is None else bias * weights.dtype.type(beta)
    to.require(full.size in (1, len(weights)) and full.shape[-1:] in ((), (1,), (len(weights),)), "a bias of one row", full.shape)
    row = np.broadcast_to(full.reshape(-1), (len(weights),))
    scaled = weights if alpha == 1 else weights * weights.dtype.type(alpha)
    to.finish(C.FULLY_CONNECTED, [x, to.real(scaled, x), to.real(row, x), to.activation()])


@lowers("MatMul", "Gemm")
def _matmul(to: Lowerer) -> None:
    """FULLY_CONNECTED for a constant matrix on the right, else BATCH_MATMUL."""
    if to.node.type == "Gemm":
        _general(to)
        return
    left, right = to.shape(0), to.shape(1)
    weights = to.values.constants.get(to.name(1))
    if weights is not None and weights.ndim == 2 and len(left) >= 2:
        x, turned = rows(to, weights.T)
        to.require(to.is_float(x), "floating values", OperandCode(x.type).name, x.name)
        # ONNX's MatMul has no bias; a chain gives it one.
        count, units, bias = math.prod(left[:-1]), weights.shape[1], to.optional_constant(2)
        flat = to.emit(C.RESHAPE, [x, to.vector([count, left[-1]])], to.temporary(x)) if len(left) > 2 else x
        inputs = [flat, to.real(turned, x), to.real(np.zeros(units) if bias is None else bias, x), to.activation()]
        if len(left) == 2:
            to.finish(C.FULLY_CONNECTED, inputs)
            return
        made = to.emit(C.FULLY_CONNECTED, inputs, to.temporary(x))
        to.finish(C.RESHAPE, [made, to.vector([*left[:-1], units])])
        return
    rank = max(len(left), len(right))
    to.require(min(len(left), len(right)) >= 2 and rank <= 4, "matrices of rank 2 to 4", [len(left), len(right)])
    sides = []
    source = _turned(to, right) if len(right) == rank else None
    for position, shape in ((0, left), (1, right)):
        value = source if position and source is not None else to.value(position)
        if len(shape) < rank:
            wide = to.vector([1] * (rank - len(shape)) + list(shape))
            value = to.emit(C.RESHAPE, [value, wide], to.temporary(value))
        sides.append(value)
    to.finish(C.BATCH_MATMUL, [*sides, to.flag(False), to.flag(source is not None)])


def _turned(to: Lowerer, shape: Dims) -> Value | None:
    """What the second operand is the transposition of, if BATCH_MATMUL can turn it itself."""
    maker, rank = to.values.maker(to.name(1)), len(shape)
    order = list(maker.attributes.get("perm", ())) if maker is not None and maker.type == "Transpose" else []
    if maker is None or order != [*range(rank - 2), rank - 1, rank - 2]:
        return None
    source = to.named(maker.inputs[0])
    return source if source.rank == rank and not source.omitted else None


def _general(to: Lowerer) -> None:
    """A Gemm of computed matrices."""
    x, w = to.value(0), to.value(1)
    to.require(to.is_float(x), "floating values")
    steps = [(name, float(to.attribute(name, 1.0))) for name in ("alpha", "beta")]
    flags = [to.flag(bool(to.attribute(name, 0))) for name in ("transA", "transB")]
    (_, alpha), (_, beta) = steps
    last = not to.name(2) and alpha == 1
    if last:
        to.finish(C.BATCH_MATMUL, [x, w, *flags])
        return
    made = to.emit(C.BATCH_MATMUL, [x, w, *flags], to.temporary(x))
    if not to.name(2):
        to.finish(C.MUL, [made, to.real([alpha], x), to.scalar(0)])
        return
    if alpha != 1:
        made = to.emit(C.MUL, [made, to.real([alpha], x), to.scalar(0)], to.temporary(x))
    bias = to.value(2)
    if beta != 1:
        bias = to.emit(C.MUL, [bias, to.real([beta], x), to.scalar(0)], to.temporary(bias))
    to.finish(C.ADD, [made, bias, to.scalar(0)])
