"""Operators that move data: reshaping, joining, cutting, padding."""

from __future__ import annotations

import numpy as np

from nnbridge.converters.draft import Value
from nnbridge.types import OperationCode
from nnbridge_tflite.lowering import INT32, QUANT8, Lowerer, lowers, product

MAX_PIECES = 64
"""Most pieces that a decomposition cuts a tensor into."""


@lowers("RESHAPE")
def reshape(x: Lowerer) -> None:
    """RESHAPE; the shape comes from the second input or, in old files, from the options."""
    if x.has(1) and x.values.constant(x.operator.inputs[1]) is None:
        x.require(x.mapping != "delegate", "a constant shape", "a computed one")
        x.emit(OperationCode.RESHAPE, x.input(0), x.input(1))
        return
    x.reshaped(x.input(0), new_shape(x), out=x.out)


def new_shape(x: Lowerer) -> tuple[int, ...]:
    """The shape that a RESHAPE asks for, -1 filled in."""
    asked = x.integers(1) if x.has(1) else [int(d) for d in x.option("new_shape", ())]
    if asked == [0]:
        # How old files say "a scalar".
        return (1,)
    elements = product(x.input(0).dims)
    if asked.count(-1) == 1 and elements:
        rest = -product(asked)
        x.require(rest > 0 and elements % rest == 0, f"a shape of {elements} elements", asked)
        asked[asked.index(-1)] = elements // rest
    return tuple(asked) or (1,)


@lowers("SQUEEZE")
def squeeze(x: Lowerer) -> None:
    """SQUEEZE of named axes, or of all of size 1."""
    rank = x.input(0).rank
    axes = [x.axis(int(a), rank) for a in x.option("squeeze_dims", ())]
    x.emit(OperationCode.SQUEEZE, x.input(0), x.ints(axes) if axes else x.draft.omitted(INT32))


@lowers("EXPAND_DIMS")
def expand_dims(x: Lowerer) -> None:
    """EXPAND_DIMS at a constant axis."""
    x.emit(OperationCode.EXPAND_DIMS, x.input(0), x.i32(x.axis(x.integer(1), len(x.shape(0)) + 1)))


@lowers("SQUEEZE", "EXPAND_DIMS", wide=True)
def reshape_instead(x: Lowerer) -> None:
    """A RESHAPE to the dimensions that the operator gives."""
    shape = list(x.shape(0))
    if x.name == "EXPAND_DIMS":
        shape.insert(x.axis(x.integer(1), len(shape) + 1), 1)
    else:
        named = {x.axis(int(a), len(shape)) for a in x.option("squeeze_dims", ())}
        axes = named or {i for i, d in enumerate(shape) if d == 1}
        x.require(all(shape[a] == 1 for a in axes), "axes of size 1", shape)
        shape = [d for i, d in enumerate(shape) if i not in axes]
    x.reshaped(x.input(0), shape, out=x.out)


@lowers("TRANSPOSE")
def transpose(x: Lowerer) -> None:
    """TRANSPOSE by a constant permutation."""
    x.emit(OperationCode.TRANSPOSE, x.input(0), x.ints(x.integers(1)))


@lowers("CONCATENATION")
def concatenation(x: Lowerer) -> None:
    """CONCATENATION; NNAPI has the axis last and fuses no activation."""
    fused = x.option("fused_activation_function")
    x.require(fused == 0, "no fused activation", fused)
    axis = x.axis(x.option("axis"), x.input(0).rank)
    x.emit(OperationCode.CONCATENATION, *x.inputs(), x.i32(axis))


@lowers("CONCATENATION", wide=True)
def concatenation_by_pack(x: Lowerer) -> None:
    """Int32, which NNAPI packs but does not concatenate: slices of size 1, packed."""
    values = x.inputs()
    x.require(all(v.type == INT32 for v in values), "int32", x.tensor(0))
    axis = x.axis(x.option("axis"), values[0].rank)
    x.require(sum(v.dims[axis] for v in values) <= MAX_PIECES, f"at most {MAX_PIECES} slices", "more")
    pieces = [piece for value in values for piece in units(x, value, axis)]
    rest = values[0].dims[:axis] + values[0].dims[axis + 1 :]
    if not rest:
        stacked = x.temp(OperationCode.PACK, x.i32(0), *pieces, like=pieces[0], dims=(len(pieces), 1))
        x.reshaped(stacked, (len(pieces),), out=x.out)
        return
    x.emit(OperationCode.PACK, x.i32(axis), *(x.reshaped(piece, rest) for piece in pieces))


def units(x: Lowerer, value: Value, axis: int) -> list[Value]:
    """A value cut into slices of size 1 along an axis; constants are cut now."""
    count = value.dims[axis]
    x.require(0 < count <= MAX_PIECES, f"1 to {MAX_PIECES} slices", count)
    dims = (*value.dims[:axis], 1, *value.dims[axis + 1 :])
    if value.data is not None:
        parts = np.split(value.data, count, axis)
        made = [value.like(dims=dims) for _ in parts]
        for piece, part in zip(made, parts, strict=True):
            piece.data = np.ascontiguousarray(part)
        return made
    if count == 1:
        return [value]
    outs = [value.like(dims=dims) for _ in range(count)]
    x.emit(OperationCode.SPLIT, value, x.i32(axis), x.i32(count), out=outs)
    return outs


@lowers("PACK")
def pack_by_concatenation(x: Lowerer) -> None:
    """What the delegate does: CONCATENATION along the axis, then RESHAPE."""
    values = x.inputs()
    shape = x.shape(0)
    axis = x.axis(x.option("axis"), len(shape) + 1)
    x.require(axis < len(shape) and len(values) > 1, "an axis before the last, two tensors or more", axis)
    x.require(all(v.dims == values[0].dims for v in values), "tensors of one shape", [v.dims for v in values])
    joined = x.temp(OperationCode.CONCATENATION, *values, x.i32(axis))
    x.reshaped(joined, (*shape[:axis], len(values), *shape[axis:]), out=x.out)


@lowers("PACK", wide=True)
def pack(x: Lowerer) -> None:
    """PACK; NNAPI has the axis first. Scalars are vectors of one element and need a RESHAPE."""
    shape = x.shape(0)
    axis = x.axis(x.option("axis"), len(shape) + 1)
    if shape:
        x.emit(OperationCode.PACK, x.i32(axis), *x.inputs())
        return
    packed = x.temp(OperationCode.PACK, x.i32(0), *x.inputs(), like=x.input(0), dims=(x.count, 1))
    x.reshaped(packed, (x.count,), out=x.out)


@lowers("PACK", wide=True)
def pack_expanded(x: Lowerer) -> None:
    """A new axis for each tensor, then CONCATENATION."""
    shape = x.shape(0)
    axis = x.axis(x.option("axis"), len(shape) + 1)
    dims = (*shape[:axis], 1, *shape[axis:])
    grown = [x.reshaped(value, dims) for value in x.inputs()]
    if len(grown) == 1:
        x.reshaped(grown[0], dims, out=x.out)
        return
    x.emit(OperationCode.CONCATENATION, *grown, x.i32(axis))


@lowers("SPLIT")
def split(x: Lowerer) -> None:
    """SPLIT into equal parts; TFLite has the axis first."""
    axis = x.axis(x.integer(0), x.input(1).rank)
    x.emit(OperationCode.SPLIT, x.input(1), x.i32(axis), x.i32(len(x.outputs)), out=x.outputs)


@lowers("SPLIT_V")
def split_v(x: Lowerer) -> None:
    """Parts of given sizes, one SLICE each."""
    data, sizes = x.input(0), x.integers(1)
    axis = x.axis(x.integer(2), data.rank)
    x.require(len(sizes) == len(x.outputs) and sizes.count(-1) <= 1, f"{len(x.outputs)} sizes", sizes)
    if -1 in sizes:
        sizes[sizes.index(-1)] = data.dims[axis] - sum(s for s in sizes if s >= 0)
    start = 0
    for size, out in zip(sizes, x.outputs, strict=True):
        begin, extent = [0] * data.rank, list(data.dims)
        begin[axis], extent[axis] = start, size
        x.emit(OperationCode.SLICE, data, x.ints(begin), x.ints(extent), out=out)
        start += size


@lowers("UNPACK", wide=True)
def unpack(x: Lowerer) -> None:
    """SPLIT into slices of size 1, whose axis a RESHAPE removes."""
    data = x.input(0)
    axis = x.axis(x.option("axis"), data.rank)
    pieces = units(x, data, axis)
    x.require(len(pieces) == len(x.outputs), f"{len(x.outputs)} slices", len(pieces))
    for piece, out in zip(pieces, x.outputs, strict=True):
        x.reshaped(piece, data.dims[:axis] + data.dims[axis + 1 :] or (1,), out=out)


@lowers("TILE")
def tile(x: Lowerer) -> None:
    """TILE."""
    x.emit(OperationCode.TILE, x.input(0), x.ints(x.integers(1)))


@lowers("PAD")
def pad(x: Lowerer) -> None:
    """PAD with zeros, or with the zero point."""
    x.emit(OperationCode.PAD, x.input(0), _paddings(x))


@lowers("PADV2")
def pad_v2(x: Lowerer) -> None:
    """PAD_V2; the value becomes a scalar, of 8-bit tensors the raw number."""
    data = x.input(0)
    x.require(x.constant(2).size == 1, "one value", x.constant(2).size)
    given = x.input(2)
    if data.type not in QUANT8:
        assert given.data is not None
        x.emit(OperationCode.PAD_V2, data, _paddings(x), x.real(float(given.data.reshape(-1)[0]), data))
        return
    x.require((given.scale, given.zero_point) == (data.scale, data.zero_point), "a value in the data's scale", given.scale)
    assert given.data is not None
    x.emit(OperationCode.PAD_V2, data, _paddings(x), x.i32(int(given.data.reshape(-1)[0])))


@lowers("MIRROR_PAD", wide=True)
def mirror_pad(x: Lowerer) -> None:
    """MIRROR_PAD."""
    x.emit(OperationCode.MIRROR_PAD, x.input(0), _paddings(x), x.i32(x.option("mode")))


def _paddings(x: Lowerer) -> Value:
    listed = x.integers(1)
    x.require(len(listed) % 2 == 0, "pairs of paddings", len(listed))
    return x.draft.ints(listed, (len(listed) // 2, 2))


@lowers("SPACE_TO_BATCH_ND")
def space_to_batch(x: Lowerer) -> None:
    """SPACE_TO_BATCH_ND."""
    paddings = x.integers(2)
    x.emit(OperationCode.SPACE_TO_BATCH_ND, x.input(0), x.ints(x.integers(1)), x.draft.ints(paddings, (len(paddings) // 2, 2)))


@lowers("BATCH_TO_SPACE_ND")
def batch_to_space(x: Lowerer) -> None:
    """BATCH_TO_SPACE_ND, which cannot crop."""
    x.require(not any(x.integers(2)), "no crops", x.integers(2))
    x.emit(OperationCode.BATCH_TO_SPACE_ND, x.input(0), x.ints(x.integers(1)))


@lowers("BATCH_TO_SPACE_ND", wide=True)
def batch_to_space_cropped(x: Lowerer) -> None:
    """BATCH_TO_SPACE_ND, then SLICE for the crops."""
    crops = x.integers(2)
    x.require(len(crops) == 4 and min(crops) >= 0, "crops of height and width", crops)
    whole = x.temp(OperationCode.BATCH_TO_SPACE_ND, x.input(0), x.ints(x.integers(1)))
    begin = [0, crops[0], crops[2], 0]
    size = [whole.dims[0], whole.dims[1] - crops[0] - crops[1], whole.dims[2] - crops[2] - crops[3], whole.dims[3]]
    x.emit(OperationCode.SLICE, whole, x.ints(begin), x.ints(size))


@lowers("SPACE_TO_DEPTH")
def space_to_depth(x: Lowerer) -> None:
    """SPACE_TO_DEPTH."""
    x.emit(OperationCode.SPACE_TO_DEPTH, x.input(0), x.i32(x.option("block_size")))


@lowers("DEPTH_TO_SPACE")
def depth_to_space(x: Lowerer) -> None:
    """DEPTH_TO_SPACE."""
    x.emit(OperationCode.DEPTH_TO_SPACE, x.input(0), x.i32(x.option("block_size")))


@lowers("REVERSE_V2", wide=True)
def reverse(x: Lowerer) -> None:
    """One REVERSE for each axis."""
    axes = [x.axis(a, x.input(0).rank) for a in x.integers(1)]
    x.require(axes, "an axis", "none")
    value = x.input(0)
    for axis in axes[:-1]:
        value = x.temp(OperationCode.REVERSE, value, x.ints([axis]))
    x.emit(OperationCode.REVERSE, value, x.ints([axes[-1]]))
