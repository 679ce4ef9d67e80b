"""Reductions along axes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from nnbridge.converters.declaration import Option, lowers
from nnbridge.converters.draft import Value
from nnbridge.errors import Why
from nnbridge.model import Array
from nnbridge.types import OperationCode
from nnbridge_onnx.declaration import MOVED, NO_BUILDER, OnnxOperator, operator
from nnbridge_onnx.host.evaluator import HostCall
from nnbridge_onnx.lowerer import C, Lowerer
from nnbridge_onnx.operands import LAST
from nnbridge_onnx.rules import RANK_4, Provider, condition, constant_input

_OPTIONS = (
    Option("axes", None, "the axes to reduce, before they were an input"),
    Option("keepdims", 1, "1 to retain the axes with a size of 1"),
    Option("noop_with_empty_axes", 0, "1 if no axes mean none, 0 if they mean all"),
)


_AXES_FROM_18 = condition(
    "noop_with_empty_axes of 0 from opset 18 on",
    lambda u: u.node.version < 18 or not u.attribute("noop_with_empty_axes", 0),
    lambda u: 1,
    kind=Why.ARGUMENT,
)


def _reduction(name: str, number: int, summary: str, provider: Provider | str = NO_BUILDER) -> OnnxOperator:
    return operator(name, number, "data axes!? -> reduced", summary, options=_OPTIONS, folding=MOVED, provider=provider)


REDUCE_SUM = _reduction("ReduceSum", 143, "Sums along axes.")
REDUCE_MEAN = _reduction(
    "ReduceMean",
    140,
    "Means along axes.",
    Provider(2, conditions=(RANK_4, constant_input(1, "list of axes"), _AXES_FROM_18)),
)
REDUCE_MAX = _reduction("ReduceMax", 139, "Largest numbers along axes.")
REDUCE_MIN = _reduction("ReduceMin", 141, "Smallest numbers along axes.")
REDUCE_PROD = _reduction("ReduceProd", 142, "Products along axes.")
REDUCE_L1 = _reduction("ReduceL1", 135, "Sums of absolute values along axes.")
REDUCE_L2 = _reduction("ReduceL2", 136, "Roots of sums of squares along axes.")
REDUCE_SUM_SQUARE = _reduction("ReduceSumSquare", 144, "Sums of squares along axes.")
REDUCE_LOG_SUM = _reduction("ReduceLogSum", 137, "Logarithms of sums along axes.")
REDUCE_LOG_SUM_EXP = _reduction("ReduceLogSumExp", 138, "Logarithms of sums of exponentials along axes.")

_CODES = {
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
        axes = to.option("axes", [])
    else:
        found = to.optional(1)
        axes = [] if found is None else to.whole(found)
    if not axes and to.option("noop_with_empty_axes"):
        to.refuse("axes to reduce", "none")
    to.require(all(-rank <= a < rank for a in axes), f"axes in [{-rank}, {rank})", axes)
    return sorted({a % rank for a in axes}) or list(range(rank))


@lowers(REDUCE_SUM, REDUCE_MEAN, REDUCE_MAX, REDUCE_MIN, REDUCE_PROD)
def _reduce(to: Lowerer) -> None:
    """Over some axes; images stay as they are where the axes are retained, or those that are left keep their order."""
    code, rank = _CODES[to.node.type], to.rank()
    to.require(rank > 0, "an input of rank 1 at least", rank)
    to.require(
        to.node.type not in _STARTING or not to.operands.may_be_infinite(to.name(0)),
        "finite values: REDUCE_MAX and REDUCE_MIN start from finite ones, which rows of infinities do not replace",
        "an infinite constant",
        to.name(0),
    )
    axes, keep = _axes(to, rank), bool(to.option("keepdims"))
    left = [a for a in LAST.get(rank, ()) if a not in axes]
    images = to.is_image and (keep or left == sorted(left))
    if images:
        axes = sorted(LAST[rank].index(a) for a in axes)
    x = to.image_if(images)
    to.require_float(x)
    flag = to.scalar(int(keep)) if code is C.MEAN else to.flag(keep)
    to.finish(code, x, to.vector(axes), flag, images=images and keep)


_COMPOSED: dict[str, tuple[OperationCode | None, OperationCode | None]] = {
    "ReduceL1": (C.ABS, None),
    "ReduceL2": (C.MUL, C.SQRT),
    "ReduceSumSquare": (C.MUL, None),
    "ReduceLogSum": (None, C.LOG),
}
"""Operator → what comes before REDUCE_SUM, and what comes after."""


def _real_rows(to: Lowerer) -> Value:
    """The input, which must have axes."""
    x = to.input()
    to.require(to.rank() > 0 and to.is_float(x), "floating values of rank 1 at least", to.rank())
    return x


@lowers(REDUCE_L1, REDUCE_L2, REDUCE_SUM_SQUARE, REDUCE_LOG_SUM)
def _composed(to: Lowerer) -> None:
    before, behind = _COMPOSED[to.node.type]
    x = _real_rows(to)
    axes, keep = to.vector(_axes(to, to.rank())), to.flag(to.option("keepdims"))
    if before is not None:
        x = to.emit(before, *([x] if before is C.ABS else [x, x]))
    if behind is None:
        to.finish(C.REDUCE_SUM, x, axes, keep)
    else:
        to.finish(behind, to.emit(C.REDUCE_SUM, x, axes, keep))


@REDUCE_LOG_SUM_EXP.lowering()
def _log_sum(to: Lowerer) -> None:
    """log(sum(exp(x - m))) + m with the largest value m, which does not overflow."""
    x = _real_rows(to)
    to.require(not to.operands.may_be_infinite(to.name(0)), "finite values", "an infinite constant", to.name(0))
    axes, keep = to.vector(_axes(to, to.rank())), to.flag(to.option("keepdims"))
    wide, narrow = to.emit(C.REDUCE_MAX, x, axes, to.flag(True)), to.emit(C.REDUCE_MAX, x, axes, keep)
    total = to.emit(C.REDUCE_SUM, to.emit(C.EXP, to.emit(C.SUB, x, wide)), axes, keep)
    to.finish(C.ADD, to.emit(C.LOG, total), narrow)


@REDUCE_LOG_SUM.host_kernel
def _run_log_sum(call: HostCall) -> Sequence[Array]:
    return _logarithms(call, exponentials=False)


@REDUCE_LOG_SUM_EXP.host_kernel
def _run_log_sum_exp(call: HostCall) -> Sequence[Array]:
    return _logarithms(call, exponentials=True)


def _logarithms(call: HostCall, *, exponentials: bool) -> Sequence[Array]:
    """In float64 for whole numbers, which the evaluator has no form for."""
    x, stated = call.input(0), call.optional(1)
    axes = tuple(int(a) for a in (call.option("axes") or () if stated is None else np.ravel(stated)))
    if not axes and call.option("noop_with_empty_axes"):
        # Nothing is added up, the logarithm remains.
        return [x if exponentials else np.asarray(np.log(x)).astype(x.dtype)]
    numbers = x.astype(np.promote_types(x.dtype, np.float32))
    options: dict[str, Any] = {"axis": axes or None, "keepdims": bool(call.option("keepdims"))}
    with np.errstate(divide="ignore"):
        if not exponentials:
            return [np.asarray(np.log(np.sum(numbers, **options))).astype(x.dtype)]
        top = np.max(numbers, axis=axes or None, keepdims=True, initial=-np.inf)
        top = np.where(np.isfinite(top), top, 0)
        found = np.log(np.sum(np.exp(numbers - top), **options))
    return [np.asarray(found + top.reshape(found.shape)).astype(x.dtype)]
