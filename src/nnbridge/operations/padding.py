"""Padding: PAD, PAD_V2, MIRROR_PAD."""

from __future__ import annotations

from typing import Literal

import numpy as np

from nnbridge.errors import Reason
from nnbridge.model import Array
from nnbridge.operations.arithmetic import is_quant8
from nnbridge.operations.call import Call
from nnbridge.operations.declaration import Input, Output, at_least, operation, rank, types
from nnbridge.operations.kernels import Function, prepared
from nnbridge.operations.reshaping import UP_TO_4, check_same_quantisation, moved_types, moves
from nnbridge.operations.space_to_depth import zero_point_level
from nnbridge.types import OperandCode as T
from nnbridge.types import OperationCode

_PADDINGS = Input("paddings", T.TENSOR_INT32, "cells before and after each axis, [rank, 2]", rank=rank(2))


def _pairs(call: Call) -> list[tuple[int, int]]:
    x, pads = call["input"], call["paddings"].data
    call.require(pads.shape == (x.rank, 2), f"paddings of [{x.rank}, 2]", list(pads.shape), "paddings")
    call.require((pads >= 0).all(), "paddings of at least 0", pads.tolist(), "paddings")
    return [(int(before), int(after)) for before, after in pads]


def _padded_shape(call: Call) -> tuple[int, ...]:
    return tuple(b + d + a for d, (b, a) in zip(call["input"].dims, _pairs(call), strict=True))


@moves(
    OperationCode.PAD,
    since=2,
    summary="Zeros around a tensor.",
    types=moved_types(2),
    inputs=[UP_TO_4, _PADDINGS],
    counts={2: 2},
    shape=_padded_shape,
    level_rules=(zero_point_level,),
    handled="executor",
)
@prepared("input")
def pad(call: Call) -> Function:
    """8-bit padding is the zero point (N95)."""
    x = call["input"]
    return _around(call, np.array(x.zero_point if is_quant8(x.type) else 0, x.dtype))


def _around(call: Call, value: Array) -> Function:
    """A value around the data."""
    pairs, dims = _pairs(call), call.out.dims
    inside = tuple(slice(before, size - after) for (before, after), size in zip(pairs, dims, strict=True))

    def padded(x: Array) -> Array:
        wide = np.full(dims, value)
        wide[inside] = x
        return wide

    return padded


@moves(
    OperationCode.PAD_V2,
    since=3,
    summary="A chosen value around a tensor.",
    types=[
        types(3, T=T.TENSOR_FLOAT32, P=T.FLOAT32),
        types(3, T=T.TENSOR_FLOAT16, P=T.FLOAT16),
        types(3, T=T.TENSOR_QUANT8_ASYMM, P=T.INT32),
        types(4, T=T.TENSOR_QUANT8_ASYMM_SIGNED, P=T.INT32),
    ],
    inputs=[UP_TO_4, _PADDINGS, Input("value", "P", "the value; for 8-bit data the raw number")],
    shape=_padded_shape,
    handled="executor",
)
@prepared("input")
def pad_v2(call: Call) -> Function:
    """For 8-bit data it is the low byte of the value (N95)."""
    return _around(call, call["value"].data.reshape(()).astype(call["input"].dtype))


def _check_mirror(call: Call) -> Reason | None:
    x, pads, out = call["input"], call["paddings"], call.out
    name = call.definition.name
    if pads.dims and (pads.rank != 2 or pads.dims[1] not in (0, 2) or (x.dims and pads.dims[0] not in (0, x.rank))):
        return Reason("paddings of [rank, 2]", str(list(pads.dims)), name, "paddings")
    if x.dims and out.dims and x.rank != out.rank:
        return Reason(f"an output of rank {x.rank}", str(out.rank), name, "output")
    return None


def _mirrored_shape(call: Call) -> tuple[int, ...]:
    mode = int(call.scalar("mode"))
    call.require(mode in (0, 1), "a mode of 0 (REFLECT) or 1 (SYMMETRIC)", mode, "mode")
    for size, pair in zip(call["input"].dims, _pairs(call), strict=True):
        limit = size - 1 if mode == 0 else size
        call.require(max(pair) <= limit, f"paddings of at most {limit}", pair, "paddings")
    return _padded_shape(call)


@operation(
    OperationCode.MIRROR_PAD,
    since=7,
    summary="A tensor's own values mirrored around it.",
    types=[types(7, T=t.types["T"]) for t in moved_types(7, integers=7)],
    inputs=[
        Input("input", "T", "data", rank=at_least(1)),
        _PADDINGS,
        Input("mode", T.INT32, "0 REFLECT: the border is not repeated, 1 SYMMETRIC: it is"),
    ],
    outputs=[Output("output", "T", "the padded tensor")],
    shape=_mirrored_shape,
    build_checks=(check_same_quantisation("input"), _check_mirror),
    half="native",
)
@prepared("input")
def mirror_pad(call: Call) -> Function:
    """N96."""
    mode: Literal["reflect", "symmetric"] = "reflect" if int(call.scalar("mode")) == 0 else "symmetric"
    pairs = _pairs(call)
    return lambda x: np.pad(x, pairs, mode=mode)
