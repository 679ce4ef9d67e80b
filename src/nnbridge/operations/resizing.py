"""Images in another size: RESIZE_BILINEAR, RESIZE_NEAREST_NEIGHBOR."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from nnbridge.model import Array
from nnbridge.operations.arithmetic import rdbp, round_half_away
from nnbridge.operations.call import Call
from nnbridge.operations.declaration import Input, Layout, Output, TypeSet, like, operation, rank, types
from nnbridge.operations.kernels import Function, prepared
from nnbridge.types import OperandCode as T
from nnbridge.types import OperationCode

_LEVELS = (
    (T.TENSOR_FLOAT32, 3, T.FLOAT32),
    (T.TENSOR_FLOAT16, 3, T.FLOAT16),
    (T.TENSOR_QUANT8_ASYMM, 3, T.FLOAT32),
    (T.TENSOR_QUANT8_ASYMM_SIGNED, 4, T.FLOAT32),
)


def _type_sets(first: int) -> list[TypeSet]:
    """Sizes as INT32 or as factors; float32 images with INT32 sizes came first."""
    by_size = [types(first if kind == T.TENSOR_FLOAT32 else level, T=kind, P=T.INT32) for kind, level, _ in _LEVELS]
    return by_size + [types(level, T=kind, P=factor) for kind, level, factor in _LEVELS]


_INPUTS = (
    Input("input", "T", "images [batch, h, w, depth]", rank=rank(4)),
    Input("width", "P", "width of the output, or a factor"),
    Input("height", "P", "height of the output, or a factor"),
    Input("nchw", T.BOOL, "true: input 0 and the output are NCHW", default=False),
    Input("align_corners", T.BOOL, "true: the corner pixels' centres coincide", default=False),
    Input("half_pixel_centers", T.BOOL, "true: pixels' centres are at halves", default=False),
)


def _flag(call: Call, name: str) -> bool:
    return bool(call.scalar(name))


def _shape(call: Call) -> tuple[int, ...]:
    b, h, w, c = call["input"].dims
    call.require(min(h, w, c) > 0, "height, width and depth above 0", [h, w, c], "input")
    both = _flag(call, "align_corners") and _flag(call, "half_pixel_centers")
    call.require(not both, "at most one of align_corners and half_pixel_centers", "both")
    sizes = []
    for name, size in (("height", h), ("width", w)):
        value = call[name].data.reshape(())
        target = value if value.dtype.kind == "i" else np.floor(np.float32(size) * np.float32(value))
        # Also false for a factor that is not a number.
        call.require(0 < target < 2**31, f"a {name} above 0 and below 2**31", target.item(), name)
        sizes.append(int(target))
    return b, sizes[0], sizes[1], c


_LONG = 1 << 20
"""Rows or columns up to which their tables are made when the model is prepared."""


def _once(call: Call, make: Callable[[Call], Function]) -> Function:
    """A kernel with its tables; longer ones are made again in each run, whose images take far more memory than they."""
    if max(call.out.dims[1:3]) <= _LONG:
        return make(call)
    return lambda x: make(call)(x)


def _scale(size: int, target: int, *, align_corners: bool) -> np.float32:
    """N90."""
    if align_corners and target > 1:
        return np.float32(size - 1) / np.float32(target - 1)
    return np.float32(size) / np.float32(target)


def _nearest(call: Call, size: int, target: int) -> npt.NDArray[np.int64]:
    """N91: the source pixel of each output pixel."""
    offset, aligned = np.float32(0.5 if _flag(call, "half_pixel_centers") else 0), _flag(call, "align_corners")
    source = (np.arange(target, dtype=np.float32) + offset) * _scale(size, target, align_corners=aligned)
    nearest = round_half_away(source) if aligned else np.floor(source)
    return np.minimum(nearest.astype(np.int64), size - 1)


@operation(
    OperationCode.RESIZE_NEAREST_NEIGHBOR,
    since=3,
    summary="Each output pixel is the nearest input pixel.",
    types=_type_sets(3),
    inputs=_INPUTS,
    counts={4: 3, 5: 4, 6: 4},
    outputs=[Output("output", "T", "images", like("input"))],
    shape=_shape,
    layout=Layout(("input",)),
    zero_sized=True,
    half="native",
)
@prepared("input")
def resize_nearest_neighbor(call: Call) -> Function:
    """Pixels by index."""
    return _once(call, _by_index)


def _by_index(call: Call) -> Function:
    rows, columns = (_nearest(call, call["input"].dims[k], call.out.dims[k]) for k in (1, 2))
    return lambda x: x.take(rows, axis=1).take(columns, axis=2)


def neighbours_of(call: Call, size: int, target: int) -> Neighbours:
    """:func:`neighbours` with the call's flags."""
    aligned, centred = _flag(call, "align_corners"), _flag(call, "half_pixel_centers")
    return neighbours(size, target, align_corners=aligned, half_pixel_centers=centred)


def neighbours(size: int, target: int, *, align_corners: bool, half_pixel_centers: bool) -> Neighbours:
    """N92: lower and upper source pixel, and the share of the upper one."""
    scale, position = _scale(size, target, align_corners=align_corners), np.arange(target, dtype=np.float32)
    half = np.float32(0.5)
    source = (position + half) * scale - half if half_pixel_centers else position * scale
    lower = np.maximum(np.floor(source).astype(np.int64), 0)
    # A position on a pixel has that pixel on both sides, as in TFLite's reference kernel, which NNAPI calls.
    upper = np.minimum(np.ceil(source).astype(np.int64), size - 1)
    return lower, upper, source - lower.astype(np.float32)


def neighbours_fixed_of(call: Call, size: int, target: int) -> Neighbours:
    """:func:`neighbours_fixed` with the call's flags."""
    aligned, centred = _flag(call, "align_corners"), _flag(call, "half_pixel_centers")
    return neighbours_fixed(size, target, align_corners=aligned, half_pixel_centers=centred)


def neighbours_fixed(size: int, target: int, *, align_corners: bool, half_pixel_centers: bool) -> Neighbours:
    """N93 for signed integers: lower and upper source pixel, and the share of the upper one in 1/1024."""
    if align_corners and target > 1:
        scale = ((1 << 10) * (size - 1) + (target - 1) // 2) // (target - 1)
    else:
        scale = ((1 << 10) * size + target // 2) // target
    position = np.arange(target, dtype=np.int64)
    source = position * scale + scale // 2 - (1 << 9) if half_pixel_centers else position * scale
    # The rounded scale may lead past the last pixel, where Android reads on; here the last pixel is repeated.
    lower = np.clip(source // (1 << 10), 0, size - 1)
    upper = np.minimum((source + (1 << 10) - 1) // (1 << 10), size - 1)
    return lower, upper, np.minimum(source - (lower << 10), 1 << 10).astype(np.int32)


@operation(
    OperationCode.RESIZE_BILINEAR,
    since=1,
    summary="Each output pixel is the weighted mean of its four neighbours.",
    types=_type_sets(1),
    inputs=_INPUTS,
    counts={3: 1, 4: 3, 5: 4, 6: 4},
    outputs=[Output("output", "T", "images", like("input"))],
    shape=_shape,
    layout=Layout(("input",)),
    zero_sized=True,
)
@prepared("input")
def resize_bilinear(call: Call) -> Function:
    """N92, N93."""
    return _once(call, _by_weights)


def _by_weights(call: Call) -> Function:
    x, dims = call["input"], call.out.dims
    if x.type == T.TENSOR_QUANT8_ASYMM:
        return by_corners(*(neighbours_of(call, x.dims[k], dims[k]) for k in (1, 2)))
    signed = x.type == T.TENSOR_QUANT8_ASYMM_SIGNED
    find: Any = neighbours_fixed_of if signed else neighbours_of
    one = np.int32(1 << 10) if signed else np.float32(1)
    # The rows last where there will be more of them: what is long then lies in one piece.
    order = (2, 1) if dims[1] >= x.dims[1] else (1, 2)
    along = [(axis, _phases(*find(call, x.dims[axis], dims[axis]))) for axis in order]
    quick = _mixers(x.dims, dims, along, one)
    # A share of 0 of infinity is not a number, and counts as such. Infinite values show in the result as well, which is looked
    # at where it is the smaller one.
    exact, before = signed or not _leaves_out(along), math.prod(x.dims) <= math.prod(dims)

    def resize(images: Array) -> Array:
        if exact or not before or _are_finite(images):
            data = _mixed(images, quick, one)
            if exact or before or _are_finite(data):
                return rdbp(data, 20) if signed else data
        return _mixed(images, _mixers(x.dims, dims, along, one, whole=True), one)

    return resize


def _are_finite(values: Array) -> bool:
    """True only if all are finite, but not always then: squares of large values are infinite."""
    every = values.reshape(-1)
    return math.isfinite(every.dot(every))


Neighbours = tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], Array]
"""Along an axis: lower and upper source position of each output position, and the share of the upper one."""


def by_corners(rows: Neighbours, columns: Neighbours) -> Function:
    """Unsigned 8-bit images to float32 sums, which are truncated in the end. That shows the order of the sum: it is Android's,
    in which each corner is weighted and added for itself. Elsewhere the rows are mixed first, which is half the work.
    """
    (top, bottom, dy), (left, right, dx) = rows, columns
    down, across = dy[:, None, None], dx[:, None]
    one = np.float32(1)

    def resize(images: Array) -> Array:
        data = images.astype(np.float32)
        parts = data.take(top, axis=1) * (one - down), data.take(bottom, axis=1) * down
        corners = (part.take(side, axis=2) * share for side, share in ((left, one - across), (right, across)) for part in parts)
        return functools.reduce(lambda total, corner: np.add(total, corner, out=total), corners)

    return resize


Positions = slice | npt.NDArray[np.int64]
"""Positions along an axis: a slice where they are evenly spaced."""
Phase = tuple[Positions, Positions, Positions, Any]
"""Output positions that share one share of the upper neighbour, their lower and upper neighbours, and that share."""


def _phases(lower: npt.NDArray[np.int64], upper: npt.NDArray[np.int64], share: Array) -> list[Phase]:
    """Output positions grouped by share: an image that grows by a whole factor has as many groups, each evenly spaced."""
    if len(share) > _LONG:
        return [(slice(None), lower, upper, share)]
    keys = np.stack([share.astype(np.float64), upper - lower], axis=1)
    _, group = np.unique(keys, axis=0, return_inverse=True)
    group = group.reshape(-1)
    if group.max(initial=0) >= max(len(group) // 4, 1):
        return [(slice(None), lower, upper, share)]
    found = (np.flatnonzero(group == g) for g in range(group.max() + 1))
    return [(_spaced(at), _spaced(lower[at]), _spaced(upper[at]), share[at[0]]) for at in found]


def _spaced(positions: npt.NDArray[np.int64]) -> Positions:
    steps = np.diff(positions)
    if len(positions) > 1 and (steps[0] <= 0 or (steps != steps[0]).any()):
        return positions
    step = int(steps[0]) if len(positions) > 1 else 1
    return slice(int(positions[0]), int(positions[-1]) + 1, step)


Terms = list[tuple[Positions, Any]]
"""Of one or two neighbours: their positions and their share."""
Step = tuple[Positions, Terms]
"""Output positions, and what is added up there."""
Along = list[tuple[int, list[Phase]]]
"""Axes in the order in which they are resized, and their output positions."""
Mixer = tuple[Callable[[Array, bool], Array], bool]
"""From an array, which may be written over if it is ``ours``, to one that is resized along an axis; True if that one will be
ours, False if it is a part of the first.
"""
Put = Callable[[Array, Array], object]
"""From pieces to positions of a target."""
Sum = Callable[[Mapping[Any, Array], Array], object]
"""From the products of all pieces with each share to positions of a target."""


def _leaves_out(along: Along) -> bool:
    """True if neighbours that have a share of 0 are not looked at."""
    return any(np.ndim(share) == 0 and share == 0 for _, phases in along for *_, share in phases)


def _mixers(before: tuple[int, ...], after: tuple[int, ...], along: Along, one: Any, *, whole: bool = False) -> list[Mixer]:
    """One for each axis; shares of 0 are multiplied as well if ``whole``."""
    made, dims = [], list(before)
    for axis, phases in along:
        sides = [(at, ((lower, one - share), (upper, share))) for at, lower, upper, share in phases]
        steps = [(at, [(to, part) for to, part in both if whole or np.ndim(part) or part != 0]) for at, both in sides]
        # What comes after the axis is one piece, what lies before it one axis.
        pieces = math.prod(dims[:axis]), dims[axis], math.prod(dims[axis + 1 :])
        dims[axis] = after[axis]
        made.append(_picker(pieces, tuple(dims), steps) or _mixer(pieces, tuple(dims), dims[axis], steps))
    return made


def _mixed(images: Array, mixers: list[Mixer], one: Any) -> Array:
    """Resized images, none of whose values the others share."""
    data = images.astype(one.dtype, copy=False)
    ours = data is not images
    for mix, makes in mixers:
        data, ours = mix(data, ours), makes
    return data if ours else _copied(data)


def _copied(images: Array) -> Array:
    """A copy, pixel by pixel, which takes less time than value by value."""
    depth = images.shape[-1]
    if depth == 1 or images.strides[-1] != images.itemsize:
        return images.copy()
    result, pixel = np.empty(images.shape, images.dtype), _piece(depth, images)
    result.view(pixel)[...] = images.view(pixel)
    return result


def _picker(shape: tuple[int, int, int], dims: tuple[int, ...], steps: list[Step]) -> Mixer | None:
    """For an axis along which all positions are on pixels: a view of these."""
    (_, [(places, share), *others]), *more = steps
    if more or others or not isinstance(places, slice) or share != 1:
        return None
    there = np.s_[:, places]
    return lambda data, _: data.reshape(shape)[there].reshape(dims), False


def _mixer(shape: tuple[int, int, int], dims: tuple[int, ...], size: int, steps: list[Step]) -> Mixer:
    """Weighted sums of neighbours along the axis in the middle of ``shape``; its results have ``dims``, and ``size`` along it."""
    # What stays in a core's cache from one step to the next takes less time.
    every = max(1, _SMALL // (shape[1] * shape[2]))
    blocks = [slice(start, start + every) for start in range(0, shape[0], every)]
    block = min(every, shape[0]), shape[1], shape[2]
    # An image that doubles has two phases whose products are the same: they are computed once, of the whole image.
    shares = sorted({share for step in steps if _is_half(*step, size) for _, share in step[1]})
    pairs = [[term for term in _runs(terms) if term[1] in shares and isinstance(at, slice)] for at, terms in steps]
    sums = [_sum(block, at, pair) for (at, _), pair in zip(steps, pairs, strict=True) if len(pair) == 2]
    puts = [_put(*step) for step, pair in zip(steps, pairs, strict=True) if len(pair) < 2]

    def mix(data: Array, ours: bool) -> Array:
        images, result = data.reshape(shape), np.empty((shape[0], size, shape[2]), data.dtype)
        for at in blocks:
            pieces, target = images[at], result[at]
            for put in puts:
                put(pieces, target)
            made = {share: np.multiply(pieces, share, out=pieces if ours and share == shares[-1] else None) for share in shares}
            for add in sums:
                add(made, target)
        return result.reshape(dims)

    return mix, True


def _is_half(at: Positions, terms: Terms, size: int) -> bool:
    """True for every second position of an image, each between two neighbours."""
    return len(_runs(terms)) == 2 and isinstance(at, slice) and at.step == 2 and at.stop > size // 2


def _runs(terms: Terms) -> list[tuple[slice, Any]]:
    """The terms that are of neighbours one after another."""
    return [(places, share) for places, share in terms if isinstance(places, slice) and places.step == 1]


def _put(at: Positions, terms: Terms) -> Put:
    """The sum of the terms over pieces, put at positions of the target."""
    here = np.s_[:, at]
    first, *second = (_weighted(places, share) for places, share in terms)
    if second and isinstance(at, slice):
        return lambda pieces, target: np.add(first(pieces), second[0](pieces), out=target[here])

    def put(pieces: Array, target: Array) -> None:
        # Positions that are not a slice are assigned to: indexing by them makes a copy.
        target[here] = first(pieces) + second[0](pieces) if second else first(pieces)

    return put


def _weighted(places: Positions, share: Any) -> Function:
    there = np.s_[:, places]
    if np.ndim(share):
        column = share.reshape(-1, 1)
        return lambda pieces: pieces[there] * column
    return (lambda pieces: pieces[there]) if share == 1 else (lambda pieces: pieces[there] * share)


_MANY, _SHORT, _SHORT_OF_SMALL, _SMALL = 256, 64, 128, 1 << 17
"""So many pieces take less time when all of them are added as one, and then put in their places, if they are short, or not much
longer and an image small enough for a core's cache; single values never do."""


def _sum(shape: tuple[int, int, int], at: Positions, terms: list[tuple[slice, Any]]) -> Sum:
    """Sums of products of all pieces, each at its own positions one after another, put at positions of the target."""
    (here, share), (there, other_share) = terms
    first, second, put = np.s_[:, here], np.s_[:, there], np.s_[:, at]
    count, length = here.stop - here.start, shape[2]
    short = 1 < length <= (_SHORT_OF_SMALL if math.prod(shape) <= _SMALL else _SHORT)
    if not short or shape[0] * count < _MANY or 2 * count < shape[1]:
        return lambda made, target: np.add(made[share][first], made[other_share][second], out=target[put])
    # Added as the values that they are in memory, one of them shifted: sums of pieces that do not belong together come after
    # the last position.
    behind = length * max(here.start, there.start)

    def add(made: Mapping[Any, Array], target: Array) -> None:
        total = np.empty(made[share].shape, target.dtype)
        reach = total.size - behind
        one, other = (made[part].reshape(-1)[length * places.start :][:reach] for places, part in terms)
        np.add(one, other, out=total.reshape(-1)[:reach])
        piece = _piece(length, total)
        target[put].view(piece)[...] = total[:, :count].view(piece)

    return add


def _piece(length: int, values: Array) -> np.dtype[Any]:
    """So many values as one, for moving."""
    return np.dtype((np.void, length * values.itemsize))
