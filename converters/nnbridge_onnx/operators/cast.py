"""Conversions between element types."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from nnbridge.converters.declaration import Option, lowers
from nnbridge.errors import OpFailedError, Reason, Why
from nnbridge.types import QUANT8, OperandCode
from nnbridge_onnx.declaration import MOVED, operator
from nnbridge_onnx.host.evaluator import HostCall
from nnbridge_onnx.lowerer import C, Lowerer
from nnbridge_onnx.operators.elementwise import constant_like, filled
from nnbridge_onnx.passes.folding import Known
from nnbridge_onnx.read.graph import FLOAT, INT32, INT64, STRING, Node, dtype_of
from nnbridge_onnx.rules import Provider, condition

_NUMBERS = (OperandCode.TENSOR_FLOAT16, OperandCode.TENSOR_FLOAT32, OperandCode.TENSOR_INT32)

CAST = operator(
    "Cast", 24, "input -> output", "Values in another element type.", options=(Option("to", None, "the element type"),),
    folding=MOVED,
    provider=Provider(
        3,
        conditions=(
            condition(
                "a cast to float or int32",
                lambda u: u.attribute("to", 0) in (FLOAT, INT32),
                lambda u: u.attribute("to", 0),
                kind=Why.OUTPUT_TYPE
            ),
        ),
    ),
)  # fmt: skip


def _fold_like(node: Node, known: Known) -> bool:
    """A constant in the type of another value, of which nothing else needs to be known."""
    array, target = known.constants.get(node.name_of(0)), known.tensor(node.outputs[0]).type
    dtype = dtype_of(target)
    if array is None or dtype is None or array.dtype.kind not in "fiub" or dtype.kind not in "fiub":
        return False
    with np.errstate(invalid="ignore"):  # ONNX does not say which integers stand for NaN and what lies beyond them.
        known.fold(node.outputs[0], array.astype(dtype), target)
    return True


CAST_LIKE = operator(
    "CastLike", 25, "input target_type -> output", "Values in the element type of another value.", fold=_fold_like
)
operator("BitCast", 17, "input -> output", "The same bits as another element type.")


@lowers(CAST, CAST_LIKE)
def _cast(to: Lowerer) -> None:
    """CAST between the types that NNAPI has, bytes as numbers; booleans go by comparison and selection."""
    (x,), images = to.aligned(0)
    out, target = to.output(), to.operands.tensor(to.node.outputs[0]).type
    if to.operands.tensor(to.name(0)).type == target:
        to.operands.alias(to.node.outputs[0], to.name(0))
        return
    if x.type == out.type == OperandCode.TENSOR_INT32:
        to.result(x)
        return
    to.require(target != INT64 or not to.is_float(x), "whole numbers for int64", OperandCode(x.type).name)
    if out.type == OperandCode.TENSOR_BOOL8:
        to.require(x.type in _NUMBERS, "numbers to compare with 0", OperandCode(x.type).name)
        to.finish(C.NOT_EQUAL, x, constant_like(to, x, 0), images=images)
        return
    to.require(out.type in _NUMBERS, "float16, float32 or int32", OperandCode(out.type).name)
    if x.type == OperandCode.TENSOR_BOOL8:
        to.require_shape(x)
        to.finish(C.SELECT, x, *(filled(to, out, x.dims, number) for number in (1, 0)), images=images)
        return
    to.require(x.type in (*_NUMBERS, *QUANT8), "numbers", OperandCode(x.type).name)
    to.finish(C.CAST, x, images=images)


@CAST.host_kernel
def _compute(call: HostCall) -> Sequence[Any] | None:
    """The evaluator's; casts that the conversion inserts refuse numbers that do not fit."""
    for name, array in call.feeds.items() if call.node.checked else ():
        bad = array[(array < -(2**31)) | (array >= 2**31)]
        if bad.size:
            raise OpFailedError(Reason("values that fit into 32 bits", str(bad[0]), call.node.label, name))
    return [_text(call.input(0))] if call.option("to") == STRING else None


@CAST_LIKE.host_kernel
def _compute_like(call: HostCall) -> Sequence[Any] | None:
    return [_text(call.input(0))] if call.input(1).dtype.kind == "O" else None


def _text(values: Any) -> Any:
    """Numbers as ONNX Runtime writes them: floats of any width with 8 digits, booleans as 1 and 0."""
    if values.dtype.kind == "O":
        return values
    kind = "i" if values.dtype.kind in "iub" else "f"
    numbers = values.astype(np.int64 if values.dtype.kind == "b" else np.float64 if kind == "f" else values.dtype).reshape(-1)
    words = [_NOT_FINITE.get(word, word) for word in (str(x) if kind == "i" else f"{x:.8g}" for x in numbers.tolist())]
    return np.array(words, object).reshape(values.shape)


_NOT_FINITE = {"nan": "NaN", "inf": "INF", "-inf": "-INF"}
