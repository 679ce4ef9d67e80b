"""Reductions along axes, ArgMax and ArgMin, TopK's relatives and softmax."""

from __future__ import annotations

import math

from nnbridge.converters.draft import Value
from nnbridge.types import OperationCode
from nnbridge_onnx.lowering import Lowerer, lowers
from nnbridge_onnx.values import LAST

C = OperationCode

_REDUCTIONS = {
    "ReduceSum": C.REDUCE_SUM,
    "ReduceMean": C.MEAN,
    "ReduceMax": C.REDUCE_MAX,
    "ReduceMin": C.REDUCE_MIN,
    "ReduceProd": C.REDUCE_PROD,
}

_STARTING = ("ReduceMax", "ReduceMin")
"""Reductions that NNAPI starts from the lowest or the highest finite number."""


def _axes(to: Lowerer, rank: int) -> list[int]:
    """The axes as an input or an attribute; all of them by default."""
    if "axes" in to.node.attributes:
        axes = to.ints("axes", [])
    else:
        found = to.optional_constant(1)
        axes = [] if found is None else to.whole(found)
    if not axes and to.attribute("noop_with_empty_axes", 0):
        to.refuse("axes to reduce", "none")
    to.require(all(-rank <= a < rank for a in axes), f"axes in [{-rank}, {rank})", axes)
    return sorted({a % rank for a in axes}) or list(range(rank))


@lowers(*_REDUCTIONS)
def _reduce(to: Lowerer) -> None:
    """Over some axes; images stay as they are where the axes are kept, or those that are left keep their order."""
    code, rank = _REDUCTIONS[to.node.type], to.rank()
    to.require(rank > 0, "an input of rank 1 at least", rank)
    to.require(
        to.node.type not in _STARTING or not to.values.may_be_infinite(to.name(0)),
        "finite values: REDUCE_MAX and REDUCE_MIN start from finite ones, which rows of infinities do not replace",
        "an infinite constant",
        to.name(0),
    )
    axes, keep = _axes(to, rank), bool(to.attribute("keepdims", 1))
    flag = to.scalar(int(keep)) if code is C.MEAN else to.flag(keep)
    if to.channels_last and to.values.is_image(to.name(0)):
        left = [a for a in LAST[rank] if a not in axes]
        if keep or left == sorted(left):
            x = to.image()
            to.require(to.is_float(x), "floating values")
            finish = to.finish_image if keep else to.finish
            finish(code, [x, to.vector(sorted(LAST[rank].index(a) for a in axes)), flag])
            return
    x = to.value()
    to.require(to.is_float(x), "floating values")
    to.finish(code, [x, to.vector(axes), flag])


_COMPOSED = {
    "ReduceL1": (C.ABS, C.REDUCE_SUM, None),
    "ReduceL2": (C.MUL, C.REDUCE_SUM, C.SQRT),
    "ReduceSumSquare": (C.MUL, C.REDUCE_SUM, None),
    "ReduceLogSum": (None, C.REDUCE_SUM, C.LOG),
}
"""Operator → what comes before, the reduction, and what comes behind."""


@lowers(*_COMPOSED)
def _composed(to: Lowerer) -> None:
    before, code, behind = _COMPOSED[to.node.type]
    rank, x = to.rank(), to.value()
    to.require(rank > 0 and to.is_float(x), "floating values of rank 1 at least", rank)
    axes, keep = to.vector(_axes(to, rank)), to.flag(bool(to.attribute("keepdims", 1)))
    if before is not None:
        inputs = [x] if before is C.ABS else [x, x, to.scalar(0)]
        x = to.emit(before, inputs, to.temporary(x))
    if behind is None:
        to.finish(code, [x, axes, keep])
        return
    total = to.emit(code, [x, axes, keep], to.temporary(x))
    to.finish(behind, [total])


@lowers("ReduceLogSumExp")
def _log_sum(to: Lowerer) -> None:
    """log(sum(exp(x - m))) + m with the largest value m, which does not overflow."""
    rank, x = to.rank(), to.value()
    to.require(rank > 0 and to.is_float(x), "floating values of rank 1 at least", rank)
    to.require(not to.values.may_be_infinite(to.name(0)), "finite values", "an infinite constant", to.name(0))
    axes, keep = to.vector(_axes(to, rank)), bool(to.attribute("keepdims", 1))

    def step(code: OperationCode, *inputs: Value) -> Value:
        return to.emit(code, inputs, to.temporary(x))

    wide, narrow = step(C.REDUCE_MAX, x, axes, to.flag(True)), step(C.REDUCE_MAX, x, axes, to.flag(keep))
    total = step(C.REDUCE_SUM, step(C.EXP, step(C.SUB, x, wide, to.scalar(0))), axes, to.flag(keep))
    to.finish(C.ADD, [step(C.LOG, total), narrow, to.scalar(0)])


@lowers("Softmax", "LogSoftmax")
def _softmax(to: Lowerer) -> None:
    """Along one axis; before opset 13 over all axes from it on, as one."""
    x, rank = to.value(), to.rank()
    to.require_numbers(x)
    recent = to.node.version >= 13
    axis = to.axis("axis", -1 if recent else 1, rank)
    code = C.SOFTMAX if to.node.type == "Softmax" else C.LOG_SOFTMAX
    if recent or axis == rank - 1:
        _along(to, code, x, axis, rank)
        return
    shape = to.shape()
    flat = to.emit(C.RESHAPE, [x, to.vector([math.prod(shape[:axis]), math.prod(shape[axis:])])], to.temporary(x))
    made = to.emit(code, [flat, to.like_scalar(x, 1.0), to.scalar(1)], to.temporary(x))
    to.finish(C.RESHAPE, [made, to.vector(shape)])


def _along(to: Lowerer, code: OperationCode, x: Value, axis: int, rank: int) -> None:
    """NNAPI takes up to four axes."""
    if rank <= 4:
        # The last axis of a matrix needs no number, which feature levels below 3 do not know.
        plain = code is C.SOFTMAX and rank == 2 and axis == 1
        to.finish(code, [x, to.like_scalar(x, 1.0), *([] if plain else [to.scalar(axis)])])
        return
    shape = to.shape()
    folded = [math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :])]
    flat = to.emit(C.RESHAPE, [x, to.vector(folded)], to.temporary(x))
    made = to.emit(code, [flat, to.like_scalar(x, 1.0), to.scalar(1)], to.temporary(x))
    to.finish(C.RESHAPE, [made, to.vector(shape)])
