"""Moving data without looking at it: RESHAPE, SQUEEZE, EXPAND_DIMS, TRANSPOSE, CONCATENATION, SPLIT, PACK, TILE, and the like."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from nnbridge.errors import BadDataError, Reason
from nnbridge.model import Array
from nnbridge.operations.arithmetic import by_table, every_value, integer_range, is_quant8, round_half_away
from nnbridge.operations.call import Arg, Call
from nnbridge.operations.declaration import Input, Output, TypeSet, at_least, like, operation, rank, signature, types, up_to
from nnbridge.operations.kernels import Function, prepared
from nnbridge.types import OperandCode as T
from nnbridge.types import OperationCode


def moved_types(first: int, *, integers: int | None = None) -> list[TypeSet]:
    """Float, 8-bit and perhaps INT32 data, as most operations that move data accept it."""
    sets = [
        types(first, T=T.TENSOR_FLOAT32),
        types(max(first, 3), T=T.TENSOR_FLOAT16),
        types(first, T=T.TENSOR_QUANT8_ASYMM),
        types(max(first, 4), T=T.TENSOR_QUANT8_ASYMM_SIGNED),
    ]
    return sets if integers is None else [*sets, types(integers, T=T.TENSOR_INT32)]


UP_TO_4 = Input("input", "T", "data", rank=up_to(4, build=True))
ANY_RANK = Input("input", "T", "data", rank=at_least(1))
SAME_DATA = Output("output", "T", "the same values", like("input"))

moves = partial(operation, outputs=[SAME_DATA], half="native")
"""Declares an operation that moves values without computing with them."""


def check_same_quantisation(name: str) -> Any:
    """The build check of later operations: an input's scale and zero point are the output's."""

    def check(call: Call) -> Reason | None:
        named: list[Arg] = call.repeated(name) if name == "inputs" else [call[name]]
        out = call.out
        for arg in named:
            if (arg.scale, arg.zero_point) != (out.scale, out.zero_point):
                found = f"{arg.scale:g}, {arg.zero_point}"
                rule = f"the output's scale and zero point {out.scale:g}, {out.zero_point}"
                return Reason(rule, found, call.definition.name, name)
        return None

    return check


def _reshape_shape(call: Call) -> tuple[int, ...]:
    dims = [int(d) for d in call["shape"].data]
    count = math.prod(call["input"].dims)
    call.require(dims.count(-1) <= 1, "at most one dimension of -1", dims, "shape")
    call.require(all(d >= -1 for d in dims), "dimensions of at least 0, or -1", dims, "shape")
    known = math.prod(d for d in dims if d != -1)
    if -1 in dims:
        call.require(known > 0 and count % known == 0, f"dimensions that divide {count} elements", dims, "shape")
        dims[dims.index(-1)] = count // known
    call.require(math.prod(dims) == count, f"{count} elements", dims, "shape")
    return tuple(dims)


@moves(
    OperationCode.RESHAPE,
    since=1,
    summary="The same values in other dimensions.",
    types=moved_types(1, integers=6),
    inputs=[UP_TO_4, Input("shape", T.TENSOR_INT32, "dimensions, one of which may be -1", rank=rank(1))],
    counts={2: 1},
    shape=_reshape_shape,
    handled="executor",
)
@prepared("input")
def reshape(call: Call) -> Callable[[Array], Array]:
    """Values in row-major order."""
    dims = call.out.dims
    return lambda x: x.reshape(dims)


def _squeeze_shape(call: Call) -> tuple[int, ...]:
    dims = call["input"].dims
    axes = call.get("axes")
    if axes is None:
        remaining = tuple(d for d in dims if d != 1)
    else:
        dropped = set()
        for axis in (int(a) for a in axes.data):
            call.require(-len(dims) <= axis < len(dims), f"axes in [{-len(dims)}, {len(dims)})", axis, "axes")
            call.require(dims[axis] == 1, "axes of size 1", f"axis {axis} of {list(dims)}", "axes")
            dropped.add(axis % len(dims))
        remaining = tuple(d for i, d in enumerate(dims) if i not in dropped)
    return remaining or (1,)


moves(
    OperationCode.SQUEEZE,
    since=2,
    summary="The same values without dimensions of size 1.",
    types=moved_types(2),
    inputs=[UP_TO_4, Input("axes", T.TENSOR_INT32, "axes to drop; omitted: all of size 1", rank=rank(1), optional=True)],
    counts={2: 2},
    shape=_squeeze_shape,
    omitted=True,
)(reshape)


def _expand_shape(call: Call) -> tuple[int, ...]:
    dims = call["input"].dims
    axis = call.axis("axis", len(dims) + 1)
    return (*dims[:axis], 1, *dims[axis:])


moves(
    OperationCode.EXPAND_DIMS,
    since=3,
    summary="The same values with a dimension of size 1 inserted.",
    types=moved_types(3, integers=3),
    inputs=[ANY_RANK, Input("axis", T.INT32, "where the dimension goes, counted from the end if negative")],
    shape=_expand_shape,
    handled="executor",
)(reshape)


def _permutation(call: Call) -> list[int]:
    count = call["input"].rank
    perm = call.get("perm")
    if perm is None:
        call.require(count == 2, "rank 2 where the permutation is omitted", count, "input")
        return [1, 0]
    order = [int(p) for p in perm.data]
    call.require(sorted(order) == list(range(count)), f"a permutation of 0 to {count - 1}", order, "perm")
    return order


@moves(
    OperationCode.TRANSPOSE,
    since=2,
    summary="Dimensions in another order.",
    types=moved_types(2),
    inputs=[
        UP_TO_4,
        Input("perm", T.TENSOR_INT32, "which input dimension each output dimension is", rank=rank(1), optional=True),
    ],
    counts={2: 2},
    shape=lambda call: tuple(call["input"].dims[p] for p in _permutation(call)),
    zero_sized=True,
    omitted=True,
)
@prepared("input")
def transpose(call: Call) -> Callable[[Array], Array]:
    """Output dimension k is input dimension perm[k]."""
    order = _permutation(call)
    return lambda x: x.transpose(order)


def _join_axis(call: Call) -> int:
    axis, count = int(call.scalar("axis")), call.repeated("inputs")[0].rank
    call.require(0 <= axis < count, f"an axis from 0 to {count - 1}", axis, "axis")
    return axis


def _concatenation_shape(call: Call) -> tuple[int, ...]:
    axis, tensors = _join_axis(call), call.repeated("inputs")
    first = tensors[0].dims
    for other in tensors[1:]:
        same = len(other.dims) == len(first) and all(
            a == b for i, (a, b) in enumerate(zip(first, other.dims, strict=True)) if i != axis
        )
        call.require(same, f"the dimensions of the first tensor but along axis {axis}", list(other.dims), "inputs")
    total = sum(t.dims[axis] for t in tensors)
    return (*first[:axis], total, *first[axis + 1 :])


def _rescaling_level(call: Call) -> tuple[int, str] | None:
    out = call.out
    differs = any((a.scale, a.zero_point) != (out.scale, out.zero_point) for a in call.repeated("inputs"))
    if out.type == T.TENSOR_QUANT8_ASYMM and differs:
        return 3, "inputs quantised unlike the output"
    return None


def _rescaled(arg: Arg, out: Arg) -> Function | None:
    """N94: 8-bit values at the output's parameters; None if they are so already."""
    if not is_quant8(out.type) or (arg.scale, arg.zero_point) == (out.scale, out.zero_point):
        return None
    factor = np.float32(np.float32(arg.scale) * (np.float32(1) / np.float32(out.scale)))
    bias = np.float32(-arg.zero_point) * factor
    raw = (every_value(arg) + arg.zero_point).astype(np.float32)
    return by_table(arg, out, np.clip(round_half_away(raw * factor + bias) + out.zero_point, *integer_range(out)))


_JOINED = Input("inputs", "T", "tensors to join", rank=up_to(4, build=True), repeat=True)


@operation(
    OperationCode.CONCATENATION,
    since=1,
    summary="Joins tensors along an axis; 8-bit values are rescaled to the output.",
    types=moved_types(1),
    signatures=[signature([_JOINED, Input("axis", T.INT32, "axis, from 0 to rank - 1")], {}, minimum=2)],
    outputs=[Output("output", "T", "the tensors one after another; its scale and zero point are its own from level 3")],
    shape=_concatenation_shape,
    level_rules=(_rescaling_level,),
    zero_sized=True,
    half="native",
)
@prepared("inputs")
def concatenation(call: Call) -> Callable[..., Array]:
    """Values in the order of the inputs."""
    axis, rescaling = _join_axis(call), [_rescaled(arg, call.out) for arg in call.repeated("inputs")]
    if not any(rescaling):
        return lambda *parts: np.concatenate(parts, axis)
    return lambda *parts: np.concatenate(
        [part if rescale is None else rescale(part) for part, rescale in zip(parts, rescaling, strict=True)], axis
    )


def _pack_shape(call: Call) -> tuple[int, ...]:
    tensors = call.repeated("inputs")
    dims = tensors[0].dims
    call.require(all(t.dims == dims for t in tensors), "tensors of equal dimensions", [t.dims for t in tensors], "inputs")
    axis = call.axis("axis", len(dims) + 1)
    return (*dims[:axis], len(tensors), *dims[axis:])


def _check_pack_ranks(call: Call) -> Reason | None:
    ranks = {arg.rank for arg in call.repeated("inputs") if arg.dims}
    if len(ranks) > 1:
        return Reason("inputs of equal rank", str(sorted(ranks)), call.definition.name, "inputs")
    if ranks and call.out.dims and call.out.rank != ranks.copy().pop() + 1:
        return Reason(f"an output of rank {ranks.pop() + 1}", str(call.out.rank), call.definition.name, "output")
    return None


@operation(
    OperationCode.PACK,
    since=6,
    summary="Stacks tensors along a new axis.",
    types=[types(6, T=t.types["T"]) for t in moved_types(6, integers=6)],
    signatures=[
        signature(
            [
                Input("axis", T.INT32, "the new axis, counted from the end if negative"),
                Input("inputs", "T", "tensors of equal dimensions", rank=at_least(1), repeat=True),
            ],
            {},
            minimum=2,
        )
    ],
    outputs=[Output("output", "T", "the stacked tensors")],
    shape=_pack_shape,
    build_checks=(check_same_quantisation("inputs"), _check_pack_ranks),
    half="native",
)
@prepared("inputs")
def pack(call: Call) -> Callable[..., Array]:
    """Values in the order of the inputs."""
    axis = call.axis("axis", call.repeated("inputs")[0].rank + 1)
    return lambda *parts: np.stack(parts, axis)


def _split_shape(call: Call) -> list[tuple[int, ...]]:
    dims = call["input"].dims
    axis, count = call.axis("axis", len(dims)), int(call.scalar("splits"))
    if count != len(call.outs):
        raise BadDataError(Reason(f"{len(call.outs)} splits, one for each output", str(count), "SPLIT", "splits"))
    call.require(dims[axis] % count == 0, f"a dimension divisible by {count}", dims[axis], "input")
    return [(*dims[:axis], dims[axis] // count, *dims[axis + 1 :])] * count


@operation(
    OperationCode.SPLIT,
    since=3,
    summary="Cuts a tensor into equal parts along an axis.",
    types=moved_types(3, integers=3),
    inputs=[
        ANY_RANK,
        Input("axis", T.INT32, "axis, counted from the end if negative"),
        Input("splits", T.INT32, "number of parts"),
    ],
    outputs=[Output("outputs", "T", "the parts in order", like("input"), repeat=True)],
    shape=_split_shape,
    handled="executor",
    half="native",
)
@prepared("input")
def split(call: Call) -> Callable[[Array], Sequence[Array]]:
    """Parts in order."""
    dims = call["input"].dims
    axis = call.axis("axis", len(dims))
    size = dims[axis] // len(call.outs)
    parts = [(*[slice(None)] * axis, slice(start, start + size)) for start in range(0, dims[axis], size)]
    return lambda x: [x[part].copy() for part in parts]


def _tile_shape(call: Call) -> tuple[int, ...]:
    dims, multiples = call["input"].dims, [int(m) for m in call["multiples"].data]
    call.require(len(multiples) == len(dims), f"{len(dims)} multiples", len(multiples), "multiples")
    call.require(all(m >= 0 for m in multiples), "multiples of at least 0", multiples, "multiples")
    return tuple(d * m for d, m in zip(dims, multiples, strict=True))


@moves(
    OperationCode.TILE,
    since=3,
    summary="Repeats a tensor along each axis.",
    types=moved_types(3, integers=3),
    inputs=[ANY_RANK, Input("multiples", T.TENSOR_INT32, "repetitions, one for each axis", rank=rank(1))],
    shape=_tile_shape,
    handled="executor",
)
@prepared("input")
def tile(call: Call) -> Function:
    """Whole copies side by side."""
    multiples = call["multiples"].data
    return lambda x: np.tile(x, multiples)


def _fill_shape(call: Call) -> tuple[int, ...]:
    dims = tuple(int(d) for d in call["dims"].data)
    call.require(all(d >= 0 for d in dims), "dimensions of at least 0", dims, "dims")
    return dims


@operation(
    OperationCode.FILL,
    since=4,
    summary="A tensor of one value.",
    types=[
        types(4, O=T.TENSOR_FLOAT32, P=T.FLOAT32),
        types(4, O=T.TENSOR_FLOAT16, P=T.FLOAT16),
        types(4, O=T.TENSOR_INT32, P=T.INT32),
    ],
    inputs=[Input("dims", T.TENSOR_INT32, "dimensions of the output", rank=rank(1)), Input("value", "P", "the value")],
    outputs=[Output("output", "O", "the value everywhere")],
    shape=_fill_shape,
    half="native",
)
def fill(call: Call) -> Array:
    """The value everywhere."""
    return np.full(call.out.dims, call["value"].data.reshape(()), call.out.dtype)


_RANKED = (
    T.TENSOR_FLOAT16,
    T.TENSOR_FLOAT32,
    T.TENSOR_INT32,
    T.TENSOR_QUANT8_ASYMM,
    T.TENSOR_QUANT16_SYMM,
    T.TENSOR_BOOL8,
    T.TENSOR_QUANT8_SYMM_PER_CHANNEL,
    T.TENSOR_QUANT16_ASYMM,
    T.TENSOR_QUANT8_SYMM,
    T.TENSOR_QUANT8_ASYMM_SIGNED,
)


@operation(
    OperationCode.RANK,
    since=4,
    summary="The number of dimensions.",
    types=[types(4, T=kind) for kind in _RANKED],
    inputs=[ANY_RANK],
    outputs=[Output("output", T.INT32, "a scalar")],
    shape=lambda call: (),
)
def rank_of(call: Call) -> Array:
    """A scalar."""
    return np.array(call["input"].rank, np.int32)


def _check_reverse(call: Call) -> Reason | None:
    x, axis, out = call["input"], call["axis"], call.out
    if axis.dims and axis.dims not in ((1,), (0,)):
        return Reason("one axis in a tensor of rank 1", str(list(axis.dims)), call.definition.name, "axis")
    if x.dims and out.dims and x.rank != out.rank:
        return Reason(f"an output of rank {x.rank}", str(out.rank), call.definition.name, "output")
    return None


def _reverse_axis(call: Call) -> int:
    axis, count = int(call["axis"].data.reshape(-1)[0]), call["input"].rank
    call.require(0 <= axis < count, f"an axis from 0 to {count - 1}", axis, "axis")
    return axis


@operation(
    OperationCode.REVERSE,
    since=7,
    summary="Reverses the order along one axis.",
    types=[types(7, T=t.types["T"]) for t in moved_types(7, integers=7)],
    inputs=[
        Input("input", "T", "data", rank=up_to(8, low=1)),
        Input("axis", T.TENSOR_INT32, "the axis, from 0 to rank - 1; one element", rank=rank(1)),
    ],
    outputs=[Output("output", "T", "the same values backwards")],
    shape=lambda call: call["input"].dims if _reverse_axis(call) >= 0 else (),
    build_checks=(check_same_quantisation("input"), _check_reverse),
    half="native",
)
@prepared("input")
def reverse(call: Call) -> Function:
    """Values backwards along the axis."""
    axis = _reverse_axis(call)
    return lambda x: np.flip(x, axis)


def _shuffle_shape(call: Call) -> tuple[int, ...]:
    x, groups = call["input"], int(call.scalar("groups"))
    size = x.dims[call.axis("axis", x.rank)]
    call.require(groups > 0 and size % groups == 0, f"groups that divide {size} channels", groups, "groups")
    return x.dims


@moves(
    OperationCode.CHANNEL_SHUFFLE,
    since=3,
    summary="Interleaves groups of channels.",
    types=moved_types(3),
    inputs=[
        UP_TO_4,
        Input("groups", T.INT32, "number of groups; divides the channels"),
        Input("axis", T.INT32, "axis of the channels, counted from the end if negative"),
    ],
    shape=_shuffle_shape,
)
@prepared("input")
def channel_shuffle(call: Call) -> Function:
    """Channel g * n + k goes to k * groups + g."""
    dims, groups = call["input"].dims, int(call.scalar("groups"))
    axis = call.axis("axis", len(dims))
    split_dims = (*dims[:axis], groups, dims[axis] // groups, *dims[axis + 1 :])
    return lambda x: x.reshape(split_dims).swapaxes(axis, axis + 1).reshape(dims)
