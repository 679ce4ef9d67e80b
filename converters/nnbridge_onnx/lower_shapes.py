"""Operators that move data: shapes, slices, joins, selections, resizing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from nnbridge.converters.draft import Value
from nnbridge.types import OperandCode, OperationCode
from nnbridge_onnx.graph import Dims
from nnbridge_onnx.lowering import Lowerer, lowers
from nnbridge_onnx.values import FIRST, LAST, keeps_order

C = OperationCode
MAX_RANK = 4


@lowers("Flatten", "Reshape", "Squeeze", "Unsqueeze")
def _reshape(to: Lowerer) -> None:
    """RESHAPE to the output's shape, which inference has found or a folded shape tells."""
    shape = _told_shape(to) if to.node.type == "Reshape" and to.name(1) in to.values.constants else to.out_shape()
    to.require(0 not in shape, "an output with elements", list(shape))
    image = to.values.shape(to.name(0)) if to.channels_last and to.values.is_image(to.name(0)) else None
    if image is not None and shape == (image[0], math.prod(image[1:])):
        _flatten_image(to, image, shape)
        return
    to.finish(C.RESHAPE, [to.value(), to.vector(shape or (1,))])


def _flatten_image(to: Lowerer, image: Dims, shape: Dims) -> None:
    """An image as rows: a matrix product with constants takes them in the order of the channels-last image."""
    rows = to.emit(C.RESHAPE, [to.image(), to.vector(shape)], to.output())
    if keeps_order(image, LAST[len(image)]):
        to.result(rows)
    else:
        to.values.set_flat(to.node.outputs[0], rows, to.name(0))


def _told_shape(to: Lowerer) -> tuple[int, ...]:
    """The shape that the second input tells: 0 keeps an axis, -1 takes what is left."""
    shape, wanted = to.shape(), to.whole(to.constant(1))
    keep = not to.attribute("allowzero", 0)
    to.require(not keep or all(d != 0 or i < len(shape) for i, d in enumerate(wanted)), "axes to keep", wanted)
    sizes = [shape[i] if d == 0 and keep else d for i, d in enumerate(wanted)]
    if -1 in sizes:
        known = math.prod(d for d in sizes if d != -1)
        to.require(known > 0 and math.prod(shape) % known == 0, f"a shape for {math.prod(shape)} elements", wanted)
        sizes[sizes.index(-1)] = math.prod(shape) // known
    to.require(math.prod(sizes) == math.prod(shape), f"a shape for {math.prod(shape)} elements", wanted)
    return tuple(sizes)


@lowers("Transpose")
def _transpose(to: Lowerer) -> None:
    """TRANSPOSE; between an image's two orders of axes nothing needs to be done."""
    rank = to.rank()
    order = tuple(to.ints("perm", range(rank)[::-1]))
    to.require(sorted(order) == list(range(rank)), "an order of the axes", list(order))
    if order == LAST.get(rank) and to.channels_last and to.values.is_image(to.name(0)):
        to.result(to.image())
        return
    if order == FIRST.get(rank) and to.channels_last and not to.value().constant:
        to.image_result(to.value())
        return
    if rank <= MAX_RANK:
        to.finish(C.TRANSPOSE, [to.value(), to.vector(order)])
        return
    shape = to.shape()
    groups = _moving_together(shape, order)
    to.require(len(groups) <= MAX_RANK, f"{MAX_RANK} groups of axes that move at most", len(groups))
    places = sorted(groups)
    x = _regrouped(to, to.value(), [math.prod(shape[axis] for axis in group) for group in places])
    if places != groups:
        x = to.emit(C.TRANSPOSE, [x, to.vector([places.index(group) for group in groups])], to.temporary(x))
    to.finish(C.RESHAPE, [x, to.vector([shape[axis] for axis in order])])


def _moving_together(shape: Dims, order: Dims) -> list[list[int]]:
    """Axes in their new order, those that stay side by side in groups; axes of size 1 need no place."""
    groups: list[list[int]] = []
    wide = [axis for axis in range(len(shape)) if shape[axis] != 1]
    behind = dict(pairwise(wide))
    for axis in (axis for axis in order if shape[axis] != 1):
        if groups and behind.get(groups[-1][-1]) == axis:
            groups[-1].append(axis)
        else:
            groups.append([axis])
    return groups or [[0]]


def _regrouped(to: Lowerer, x: Value, dims: Sequence[int]) -> Value:
    """A value in other dimensions; RESHAPE makes values of more than four axes, but reads none: what it made them of is read."""
    if x.rank > MAX_RANK and not x.constant:
        step = next((s for s in reversed(to.values.draft.steps) if any(output is x for output in s.outputs)), None)
        to.require(step is not None and step.code == C.RESHAPE, f"rank {MAX_RANK} at most, or a reshaped value", x.rank, x.name)
        assert step is not None
        x = step.inputs[0]
    return to.emit(C.RESHAPE, [x, to.vector(dims)], to.temporary(x))


@lowers("Concat")
def _concat(to: Lowerer) -> None:
    """CONCATENATION of what has elements."""
    positions = [i for i, name in enumerate(to.node.inputs) if 0 not in (to.values.shape(name) or (1,))]
    inputs, images = to.alike(*positions)
    axis = to.axis("axis", 1, to.rank(positions[0]))
    to.finish_alike(C.CONCATENATION, [*inputs, to.scalar(LAST[inputs[0].rank].index(axis) if images else axis)], images)


@lowers("Split")
def _split(to: Lowerer) -> None:
    """SPLIT into equal parts, else one SLICE for each."""
    shape = to.shape()
    axis = to.axis("axis", 0, len(shape))
    count = len(to.node.outputs)
    if "split" in to.node.attributes:
        sizes = to.ints("split", [])
    else:
        given = to.optional_constant(1)
        each = -(-shape[axis] // count)
        sizes = [min(each, shape[axis] - i * each) for i in range(count)] if given is None else to.whole(given)
    to.require(len(sizes) == count and sum(sizes) == shape[axis] and min(sizes) > 0, f"sizes that sum to {shape[axis]}", sizes)
    x = to.value()
    begin = 0
    for position, size in enumerate(sizes):
        starts, extents = [0] * len(shape), list(shape)
        starts[axis], extents[axis] = begin, size
        to.finish(C.SLICE, [x, to.vector(starts), to.vector(extents)], position)
        begin += size


@lowers("Slice")
def _slice(to: Lowerer) -> None:
    """SLICE, or STRIDED_SLICE for steps."""
    shape = to.shape()
    rank = len(shape)
    if to.node.version < 10:
        starts, ends = to.ints("starts", []), to.ints("ends", [])
        axes, steps = to.ints("axes", range(len(starts))), [1] * len(starts)
    else:
        starts, ends = ([int(v) for v in np.ravel(to.constant(i))] for i in (1, 2))
        given, stepped = to.optional_constant(3), to.optional_constant(4)
        axes = list(range(len(starts))) if given is None else [int(v) for v in np.ravel(given)]
        steps = [1] * len(starts) if stepped is None else [int(v) for v in np.ravel(stepped)]
    begin, end, step = [0] * rank, list(shape), [1] * rank
    for axis, start, stop, by in zip(axes, starts, ends, steps, strict=True):
        to.require(-rank <= axis < rank and by != 0, "axes and steps of the input", [axis, by])
        begin[axis], end[axis], step[axis] = slice(start, stop, by).indices(shape[axis])
    sizes = [len(range(b, e, s)) for b, e, s in zip(begin, end, step, strict=True)]
    to.require(min(sizes, default=1) > 0 and rank > 0, "a slice with elements", sizes)
    x = to.value()
    if all(s == 1 for s in step):
        to.finish(C.SLICE, [x, to.vector(begin), to.vector(sizes)])
        return
    to.require(rank <= MAX_RANK, f"rank {MAX_RANK} at most", rank)
    # An end before the first element cannot be given as a number; the mask says "to the end".
    open_ends = sum(1 << i for i, (e, s) in enumerate(zip(end, step, strict=True)) if s < 0 and e < 0)
    ends_given = [e if e >= 0 else 0 for e in end]
    masks = [to.scalar(0), to.scalar(open_ends), to.scalar(0)]
    to.finish(C.STRIDED_SLICE, [x, to.vector(begin), to.vector(ends_given), to.vector(step), *masks])


def places_of(to: Lowerer, position: int, size: int) -> Value:
    """Indexes counted from the front of an axis: NNAPI knows no negative ones."""
    known = to.values.constants.get(to.name(position))
    if known is not None:
        numbers = to.whole(known)
        to.require(all(-size <= v < size for v in numbers), f"indexes in [{-size}, {size})", numbers[:8])
        return to.values.draft.ints([v % size for v in numbers], known.shape or (1,))
    given, shape = to.indexes(position), to.shape(position) or (1,)
    negative = to.emit(C.LESS, [given, to.vector([0])], Value(OperandCode.TENSOR_BOOL8, shape))
    turned = to.emit(C.ADD, [given, to.vector([size]), to.scalar(0)], to.temporary(given))
    return to.emit(C.SELECT, [negative, turned, given], to.temporary(given))


@lowers("Gather")
def _gather(to: Lowerer) -> None:
    """GATHER along an axis by constant or computed indexes."""
    x, rank = to.value(), to.rank()
    axis = to.axis("axis", 0, rank)
    known = to.shape(1)
    size = to.shape()[axis]
    places = places_of(to, 1, size)
    if rank > MAX_RANK:
        shape = to.shape()
        x, axis = _regrouped(to, x, [math.prod(shape[:axis]), size, math.prod(shape[axis + 1 :])]), 1
    elif known:
        to.finish(C.GATHER, [x, to.scalar(axis), places])
        return
    picked = to.emit(C.GATHER, [x, to.scalar(axis), places], to.temporary(x))
    to.finish(C.RESHAPE, [picked, to.vector(to.out_shape() or (1,))])


@lowers("Tile")
def _tile(to: Lowerer) -> None:
    repeats = to.whole(to.constant(1))
    to.require(min(repeats, default=0) > 0, "repeats above 0", repeats)
    to.finish(C.TILE, [to.value(), to.vector(repeats)])


@lowers("Expand")
def _expand(to: Lowerer) -> None:
    """TILE of axes of size 1."""
    shape, wanted = to.shape(), to.out_shape()
    to.require(0 not in wanted, "an output with elements", list(wanted))
    padded = (1,) * (len(wanted) - len(shape)) + shape
    x = to.value()
    repeats = [1 if a == b else b for a, b in zip(padded, wanted, strict=True)]
    if all(r == 1 for r in repeats):
        to.finish(C.RESHAPE, [x, to.vector(wanted or (1,))])
        return
    if padded != shape:
        x = to.emit(C.RESHAPE, [x, to.vector(padded)], to.temporary(x))
    to.finish(C.TILE, [x, to.vector(repeats)])


@lowers("Pad")
def _pad(to: Lowerer) -> None:
    """PAD_V2 with a constant, MIRROR_PAD for reflection."""
    shape = to.shape()
    rank = len(shape)
    pads = to.ints("pads", []) if to.node.version < 11 else to.whole(to.constant(1))
    chosen = to.optional_constant(3) if to.node.version >= 18 else None
    axes = list(range(rank)) if chosen is None else [int(a) % rank for a in np.ravel(chosen)]
    to.require(len(pads) == 2 * len(axes) and min(pads, default=0) >= 0, "two paddings of at least 0 for each axis", pads)
    pairs = [[0, 0] for _ in shape]
    for i, axis in enumerate(axes):
        pairs[axis] = [pads[i], pads[i + len(axes)]]
    images = to.channels_last and to.values.is_image(to.name(0))
    x = to.image() if images else to.value()
    ordered = [pairs[i] for i in LAST[rank]] if images else pairs
    numbers = to.values.draft.ints([n for pair in ordered for n in pair], (rank, 2))
    mode = to.attribute("mode", "constant")
    if mode == "reflect":
        to.finish_alike(C.MIRROR_PAD, [x, numbers, to.scalar(0)], images)
        return
    to.require(mode == "constant" and to.is_float(x) and rank <= MAX_RANK, "a constant mode of floating values", mode)
    given = None if to.node.version < 11 else to.optional_constant(2)
    fill = float(to.attribute("value", 0.0)) if given is None else float(given.item())
    to.finish_alike(C.PAD_V2, [x, numbers, to.like_scalar(x, fill)], images)


@lowers("DepthToSpace", "SpaceToDepth")
def _blocks(to: Lowerer) -> None:
    """NNAPI orders depth as ONNX's DCR does; channels in the order of CRD are brought into that one."""
    to.require(to.rank() == 4, "rank 4", to.rank())
    block, x, count = int(to.attribute("blocksize", 1)), to.image(), to.shape()[1]
    size, axis = [to.scalar(block), *to.layout()], to.scalar(3 if to.channels_last else 1)
    turns = to.attribute("mode", "DCR") == "CRD"
    if to.node.type == "DepthToSpace":
        if turns:
            order = np.arange(count).reshape(-1, block * block).T.ravel()
            x = to.emit(C.GATHER, [x, axis, to.values.draft.ints(order.tolist())], to.temporary(x))
        to.finish_image(C.DEPTH_TO_SPACE, [x, *size])
        return
    if not turns:
        to.finish_image(C.SPACE_TO_DEPTH, [x, *size])
        return
    deep = to.emit(C.SPACE_TO_DEPTH, [x, *size], to.temporary(x))
    to.values.draft.spend(count * block * block)
    order = np.arange(count * block * block).reshape(block * block, count).T.ravel()
    to.finish_image(C.GATHER, [deep, axis, to.values.draft.ints(order.tolist())])


@lowers("Resize", "Upsample")
def _resize(to: Lowerer) -> None:
    """RESIZE_BILINEAR and RESIZE_NEAREST_NEIGHBOR where ONNX's rule for positions is one of NNAPI's."""
    shape, wanted = to.shape(), to.out_shape()
    to.require(len(shape) == 4 and shape[:2] == wanted[:2], "images whose height and width change", [list(shape), list(wanted)])
    mode, rule = to.attribute("mode", "nearest"), to.attribute("coordinate_transformation_mode", "half_pixel")
    if to.node.version < 11:
        rule = "asymmetric"
    to.require(not to.attribute("antialias", 0) and not to.ints("axes", []), "no antialias, all axes", "others")
    _check_scales(to, shape, wanted)
    x = to.image()
    to.require(to.is_float(x), "floating images")
    size = [to.scalar(wanted[3]), to.scalar(wanted[2])]
    if mode == "linear":
        rules = {"asymmetric": (False, False), "align_corners": (True, False), "half_pixel": (False, True)}
        if rule == "pytorch_half_pixel" and min(wanted[2:]) > 1:
            rule = "half_pixel"
        to.require(rule in rules, ", ".join(rules), rule)
        aligned, half = rules[rule]
        flags = [to.flag(aligned), to.flag(half)] if aligned or half else []
        to.finish_image(C.RESIZE_BILINEAR, [x, *size, *to.layout(needed=bool(flags)), *flags])
        return
    to.require(mode == "nearest", "mode linear or nearest", mode)
    nearest = "floor" if to.node.version < 11 else to.attribute("nearest_mode", "round_prefer_floor")
    whole = all(w % s == 0 for s, w in zip(shape[2:], wanted[2:], strict=True))
    # For whole factors every rule but align_corners finds the same pixels.
    same = rule == "asymmetric" and nearest == "floor"
    if whole and rule in ("half_pixel", "pytorch_half_pixel", "asymmetric") and (rule != "asymmetric" or nearest == "floor"):
        same = nearest in ("floor", "round_prefer_floor", "round_prefer_ceil") and (rule == "asymmetric" or nearest != "floor")
    to.require(same, "asymmetric positions rounded down, or whole factors", f"{rule}, {nearest}")
    to.finish_image(C.RESIZE_NEAREST_NEIGHBOR, [x, *size, *to.layout()])


def _check_scales(to: Lowerer, shape: tuple[int, ...], wanted: tuple[int, ...]) -> None:
    """Scales must be what the sizes say: NNAPI knows only sizes."""
    position = 1 if to.node.type == "Upsample" or to.node.version < 11 else 2
    scales = to.attribute("scales") if to.node.version < 9 else None
    given = to.optional_constant(position) if scales is None else None
    if given is not None:
        scales = [float(s) for s in np.ravel(given)]
    for size, out, scale in zip(shape, wanted, scales or (), strict=False):
        to.require(math.isclose(size * scale, out, rel_tol=1e-6), "scales that give whole sizes", scale)


@lowers("Mod")
def _mod(to: Lowerer) -> None:
    """x - floor(x / y) * y, which is Python's remainder."""
    divisor = to.constant(1)
    to.require(np.isfinite(divisor).all() and divisor.all(), "a finite divisor other than 0", "others")
    (x, y), images = to.alike(0, 1)
    to.require(to.is_float(x) and not to.attribute("fmod", 0), "floating values without fmod", x.name)

    def step(code: OperationCode, *inputs: Value) -> Value:
        extra = [] if code is C.FLOOR else [to.scalar(0)]
        return to.emit(code, [*inputs, *extra], to.temporary(x))

    quotient = step(C.FLOOR, step(C.DIV, x, y))
    to.finish_alike(C.SUB, [x, step(C.MUL, quotient, y), to.scalar(0)], images)
