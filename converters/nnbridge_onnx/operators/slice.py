"""Parts of tensors, tensors side by side, and padding."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from nnbridge.converters.declaration import Option
from nnbridge.converters.draft import Unmappable
from nnbridge.converters.mapping import MappingKind
from nnbridge.errors import Reason, Stage, Why
from nnbridge.model import Array
from nnbridge.types import QUANT8
from nnbridge_onnx.declaration import MOVED, Quantised, operator
from nnbridge_onnx.host.evaluator import HostCall
from nnbridge_onnx.lowerer import C, Lowerer
from nnbridge_onnx.operands import LAST
from nnbridge_onnx.operators.gather import gather_along
from nnbridge_onnx.operators.reshaping import MAX_RANK
from nnbridge_onnx.read.graph import Dims
from nnbridge_onnx.rules import (
    FLOAT_OR_UINT8,
    RANK_4,
    Provider,
    Unit,
    condition,
    constant_input,
    one_of,
    ranks,
    uint8_parameters,
)  # fmt: skip


def _unregistered(unit: Unit) -> str:
    """A further input of a group whose scale the provider does not find; empty if there is none."""
    graph = unit.graph
    stored = {*graph.inputs, *graph.constants}
    for io in unit.inputs[1:]:
        readers = [node for node in graph.nodes if io.name in node.inputs]
        if io.name in stored and len(readers) == 1 and io.name != unit.inputs[0].name:
            return io.name
    return ""


CONCAT = operator(
    "Concat", 33, "inputs+ -> concat_result", "Tensors side by side along an axis.", folding=MOVED,
    options=(Option("axis", 1, "the axis to join along"),), quantised=Quantised(0, moves=True),
    provider=Provider(
        types=FLOAT_OR_UINT8,
        conditions=(uint8_parameters(all_inputs=True), RANK_4),
        grouped=True,
        follows=True,
        builds=(
            # Scales of a model's inputs and constants are found by the first input of groups, and by both of binary ones.
            condition(
                "further inputs that nodes write, in groups",
                lambda u: not u.quantised or not _unregistered(u),
                lambda u: _unregistered(u),
                kind=Why.QUANTISATION_TYPE,
                says=lambda u: f"The input/initializer of graph has unsupported quantized type, name: {_unregistered(u)} type: 2",
            ),
        ),
    ),
)  # fmt: skip


@CONCAT.lowering()
def _concat(to: Lowerer) -> None:
    """CONCATENATION of what has elements."""
    positions = [i for i, name in enumerate(to.node.inputs) if 0 not in (to.operands.shape(name) or (1,))]
    inputs, images = to.aligned(*positions)
    axis = to.axis(to.option("axis"), to.rank(positions[0]))
    bytes_of_the_file = to.mapping == MappingKind.PROVIDER and to.group is None and inputs[0].type in QUANT8
    for i, value in enumerate(inputs[1:] if bytes_of_the_file else (), 1):
        # The builder compares them, and leaves none to NNAPI.
        found, first = (value.scale, value.zero_point), (inputs[0].scale, inputs[0].zero_point)
        if found != first:
            what, own, other = ("scale", f"{found[0]:g}", f"{first[0]:g}")
            if found[0] == first[0]:
                what, own, other = ("zero_point", str(found[1]), str(first[1]))
            says = f"Input[{i}]'s {what}: {own} is different than input[0]'s {what}: {other}"
            required, kind = f"input {i} with the {what} of input 0, {other}", Why.QUANTISATION_PARAMETERS
            raise Unmappable(Reason(required, own, to.label, "", kind, says, Stage.BUILDER))
    to.finish(C.CONCATENATION, *inputs, to.scalar(LAST[inputs[0].rank].index(axis) if images else axis), images=images)


def _even_split(unit: Unit) -> bool:
    shape, outputs, axis = unit.shape(), len(unit.node.outputs), int(unit.attribute("axis", 0))
    if not -len(shape) <= axis < len(shape):
        return False
    size, sizes = shape[axis], unit.constant(1)
    return size % outputs == 0 if sizes is None else len({int(s) for s in np.ravel(sizes)}) == 1 and int(sizes.sum()) == size


def _axis_of(unit: Unit) -> int:
    return int(unit.attribute("axis", 0)) % len(unit.shape())


SPLIT = operator(
    "Split", 179, "input split!? -> outputs+", "Parts of a tensor along an axis.", folding=MOVED,
    options=(Option("axis", 0, "the axis to split"), Option("split", None, "sizes of the parts, before opset 13")),
    provider=Provider(
        3,
        conditions=(
            constant_input(1, "list of sizes"),
            condition(
                "sizes, or num_outputs that counts the outputs",
                lambda u: u.node.version < 18 or u.has(1) or u.attribute("num_outputs", 0) == len(u.node.outputs),
                lambda u: u.attribute("num_outputs", "neither"),
                kind=Why.ARGUMENT,
            ),
            condition("parts of one size", _even_split, lambda u: list(u.shape()), kind=Why.ARGUMENT),
        ),
        opset=13,
        builds=(
            # The builder counts the parts by it from opset 18 on, where it is absent beside sizes.
            condition(
                "num_outputs from opset 18 on, also beside sizes",
                lambda u: u.node.version < 18 or not u.has(1) or u.attribute("num_outputs", 0) > 0,
                lambda u: "none",
                kind=Why.ARGUMENT,
                says=lambda u: f"count [0] does not evenly divide dimension {_axis_of(u)} [{u.shape()[_axis_of(u)]}]",
            ),
        ),
    ),
)  # fmt: skip


@SPLIT.lowering()
def _split_evenly(to: Lowerer) -> None:
    """SPLIT into parts of one size."""
    shape, sizes, axis = *_parts(to), to.axis(to.option("axis"), to.rank())
    to.require(len(set(sizes)) == 1, "parts of one size", sizes)
    (x,), images = to.aligned(0)
    place = LAST[len(shape)].index(axis) if images else axis
    made = [to.output(position, images=images) for position in range(len(sizes))]
    to.emit_all(C.SPLIT, (x, to.scalar(place), to.scalar(len(sizes))), made)
    for position, value in enumerate(made):
        to.result(value, position, images=images)


@SPLIT.host_kernel
def _split_on_host(call: HostCall) -> None:
    """The evaluator's parts; ValueError for more of one size than there are elements, which it cuts short."""
    count = call.outputs
    if call.optional(1) is None and call.option("split") is None:
        side = call.input(0).shape[call.option("axis")]
        if -(-side // count) * (count - 1) > side:
            raise ValueError(f"{count} parts of {-(-side // count)} in {side}")


@SPLIT.lowering()
def _split(to: Lowerer) -> None:
    """One SLICE for each part."""
    shape, sizes = _parts(to)
    axis = to.axis(to.option("axis"), len(shape))
    x = to.input()
    begin = 0
    for position, size in enumerate(sizes):
        starts, extents = [0] * len(shape), list(shape)
        starts[axis], extents[axis] = begin, size
        to.finish(C.SLICE, x, to.vector(starts), to.vector(extents), position=position)
        begin += size


def _parts(to: Lowerer) -> tuple[Dims, list[int]]:
    """The shape of the input, and the sizes of the parts along the axis."""
    shape = to.shape()
    axis = to.axis(to.option("axis"), len(shape))
    count = len(to.node.outputs)
    if "split" in to.node.attributes:
        sizes = to.option("split", [])
    else:
        stated = to.optional(1)
        each = -(-shape[axis] // count)
        sizes = [min(each, shape[axis] - i * each) for i in range(count)] if stated is None else to.whole(stated)
    to.require(len(sizes) == count and sum(sizes) == shape[axis] and min(sizes) > 0, f"sizes that sum to {shape[axis]}", sizes)
    return shape, list(sizes)


SLICE = operator(
    "Slice", 173, "data starts!? ends!? axes!? steps!? -> output", "Elements from starts to ends along axes.", folding=MOVED,
    quantised=Quantised(moves=True), keeps_quantisation=True,
    options=tuple(Option(name, None, f"the {name}, before opset 10") for name in ("starts", "ends", "axes")),
    provider=Provider(
        2,
        conditions=(
            ranks(0, MAX_RANK),
            *(constant_input(i, f"list of {what}") for i, what in enumerate(("starts", "ends", "axes", "steps"), 1)),
        ),
        opset=10,
    ),
)  # fmt: skip


@SLICE.lowering()
def _slice(to: Lowerer) -> None:
    """SLICE, or STRIDED_SLICE for steps."""
    shape = to.shape()
    rank = len(shape)
    begin, end, step = _normalised(to, shape)
    sizes = [len(range(b, e, s)) for b, e, s in zip(begin, end, step, strict=True)]
    to.require(min(sizes, default=1) > 0 and rank > 0, "a slice with elements", sizes)
    x = to.input()
    if all(s == 1 for s in step):
        to.finish(C.SLICE, x, to.vector(begin), to.vector(sizes))
        return
    to.require(rank <= MAX_RANK, f"rank {MAX_RANK} at most", rank)
    # An end before the first element cannot be written as a number; the mask says "to the end".
    open_ends = sum(1 << i for i, (e, s) in enumerate(zip(end, step, strict=True)) if s < 0 and e < 0)
    ends_given = [e if e >= 0 else 0 for e in end]
    masks = [to.scalar(0), to.scalar(open_ends), to.scalar(0)]
    to.finish(C.STRIDED_SLICE, x, to.vector(begin), to.vector(ends_given), to.vector(step), *masks)


def _normalised(to: Lowerer, shape: Dims) -> tuple[list[int], list[int], list[int]]:
    """Begin, end and step of each axis; the end of a backward slice may be -1."""
    rank = len(shape)
    if to.node.version < 10:
        starts, ends = to.option("starts", []), to.option("ends", [])
        axes, steps = to.option("axes", range(len(starts))), [1] * len(starts)
    else:
        starts, ends = ([int(v) for v in np.ravel(to.constant(i))] for i in (1, 2))
        stated, stepped = to.optional(3), to.optional(4)
        axes = list(range(len(starts))) if stated is None else [int(v) for v in np.ravel(stated)]
        steps = [1] * len(starts) if stepped is None else [int(v) for v in np.ravel(stepped)]
    begin, end, step = [0] * rank, list(shape), [1] * rank
    for axis, start, stop, by in zip(axes, starts, ends, steps, strict=True):
        to.require(-rank <= axis < rank and by != 0, "axes and steps of the input", [axis, by])
        begin[axis], end[axis], step[axis] = slice(start, stop, by).indices(shape[axis])
    return begin, end, step


@SLICE.provider_lowering
def _slice_as_built(to: Lowerer) -> None:
    """SLICE from feature level 3 on, STRIDED_SLICE below and for steps; an end before the first element is -size - 1."""
    shape = to.shape()
    begin, end, step = _normalised(to, shape)
    sizes = [len(range(b, e, s)) for b, e, s in zip(begin, end, step, strict=True)]
    to.require(min(sizes, default=1) > 0 and shape, "a slice with elements", sizes)
    x = to.input()
    if all(s == 1 for s in step) and to.draft.feature_level > 2:
        to.finish(C.SLICE, x, to.vector(begin), to.vector(sizes))
        return
    ends = [-size - 1 if e == -1 else e for e, size in zip(end, shape, strict=True)]
    to.finish(C.STRIDED_SLICE, x, to.vector(begin), to.vector(ends), to.vector(step), *[to.scalar(0) for _ in range(3)])


@SLICE.host_kernel
def _run_slice(call: HostCall) -> Sequence[Array]:
    """Starts are inside the axis, ends next to it at most: NumPy bounds starts of backward slices otherwise."""
    x, recent = call.input(0), call.version >= 10
    names = ("starts", "ends", "axes", "steps")
    parts = [call.optional(i + 1) if recent else call.option(name) for i, name in enumerate(names)]
    starts, ends, axes, steps = ([] if part is None else [int(v) for v in np.ravel(part)] for part in parts)
    at = [slice(None)] * x.ndim
    for start, end, axis, step in zip(starts, ends, axes or range(len(starts)), steps or [1] * len(starts), strict=True):
        n = x.shape[axis]
        start, end = (v + n if v < 0 else v for v in (start, end))
        low, high = (0, n) if step > 0 else (-1, n - 1)
        start, end = min(max(start, 0), high), min(max(end, low), high)
        at[axis] = slice(start, None if end < 0 else end, step) if n else slice(0, 0)
    return [x[tuple(at)]]


PAD = operator(
    "Pad", 122, "data pads!? constant_value? axes!? -> output", "Pads axes.",
    options=(
        Option("mode", "constant", "what the padding holds"),
        Option("pads", None, "the paddings, before opset 11"),
        Option("value", 0.0, "the fill, before opset 11"),
    ),
    provider=Provider(
        3,
        conditions=(
            RANK_4,
            condition("an input with elements", lambda u: 0 not in u.shape(), lambda u: list(u.shape()), kind=Why.OPERAND_SIZE),
            one_of("mode", "constant"),
            condition("constant paddings of at least 0", lambda u: (p := u.constant(1)) is not None and p.size and p.min() >= 0),
            constant_input(2, "fill"),
        ),
        opset=11,
        builds=(
            # The builder reads two paddings for each axis of the input, and lets NNAPI's model have the list of axes.
            condition(
                "paddings of all axes, without a list of axes",
                lambda u: not u.has(3),
                lambda u: u.inputs[3].name,
                kind=Why.MISSING_OPERAND,
                says=lambda u: f"The input/initializer of graph doesn't have valid type, name: {u.inputs[3].name} type: 7",
            ),
        ),
    ),
)  # fmt: skip


def _pads(to: Lowerer, rank: int) -> list[tuple[int, int]]:
    """The paddings before and after each axis."""
    pads = to.option("pads", []) if to.node.version < 11 else to.whole(to.constant(1))
    chosen = to.optional(3) if to.node.version >= 18 else None
    axes = list(range(rank)) if chosen is None else [int(a) % rank for a in np.ravel(chosen)]
    to.require(len(pads) == 2 * len(axes) and min(pads, default=0) >= 0, "two paddings of at least 0 for each axis", pads)
    return _pairs(rank, axes, pads)


def _pairs(rank: int, axes: Sequence[int], pads: Sequence[int]) -> list[tuple[int, int]]:
    """The paddings of each axis, of which ``pads`` has first those before some axes, then those after them."""
    pairs = [(0, 0)] * rank
    for i, axis in enumerate(axes):
        pairs[axis] = (pads[i], pads[i + len(axes)])
    return pairs


@PAD.lowering()
def _pad(to: Lowerer) -> None:
    """PAD_V2 with a constant, MIRROR_PAD for reflection."""
    rank = len(to.shape())
    pairs = _pads(to, rank)
    images = to.is_image
    x = to.image_if(images)
    ordered = [pairs[i] for i in LAST[rank]] if images else pairs
    numbers = to.draft.ints([n for pair in ordered for n in pair], (rank, 2))
    mode = to.option("mode")
    if mode == "reflect":
        to.finish(C.MIRROR_PAD, x, numbers, to.scalar(0), images=images)
        return
    to.require(mode == "constant" and to.is_float(x) and rank <= MAX_RANK, "a constant mode of floating values", mode)
    stated = None if to.node.version < 11 else to.optional(2)
    fill = float(to.option("value")) if stated is None else float(stated.item())
    to.finish(C.PAD_V2, x, numbers, to.float_scalar(fill, x), images=images)


@PAD.lowering()
def _pad_by_gathering(to: Lowerer) -> None:
    """GATHER for paddings with edges, reflections and repetitions."""
    shape, mode = to.shape(), to.option("mode")
    to.require(mode in ("edge", "wrap", "reflect"), "mode edge, wrap or reflect", mode)
    chosen = {}
    for axis, (size, pair) in enumerate(zip(shape, _pads(to, len(shape)), strict=True)):
        to.draft.spend(size + sum(pair))
        if any(pair):
            chosen[axis] = np.pad(np.arange(size), pair, mode).tolist()
    gather_along(to, chosen)


@PAD.host_kernel
def _run_pad(call: HostCall) -> Sequence[Array]:
    """Negative paddings crop, before the others are added."""
    x, recent = call.input(0), call.version >= 11
    pads = [int(p) for p in (np.ravel(call.input(1)) if recent else call.option("pads"))]
    chosen = call.optional(3)
    axes = range(x.ndim) if chosen is None else [int(a) % x.ndim for a in np.ravel(chosen)]
    pairs = _pairs(x.ndim, axes, pads)
    x = x[tuple(slice(max(-b, 0), n - max(-e, 0)) for (b, e), n in zip(pairs, x.shape, strict=True))]
    pairs = [(max(b, 0), max(e, 0)) for b, e in pairs]
    mode, fill = call.option("mode"), call.optional(2) if recent else call.option("value")
    if mode != "constant":
        return [np.pad(x, pairs, mode)]
    return [np.pad(x, pairs, constant_values=np.asarray(0 if fill is None else fill).astype(x.dtype).item())]


operator(
    "ReverseSequence",
    149,
    "input sequence_lens -> Y",
    "Sequences of a batch backwards, each up to its own length.",
    folding=MOVED,
)
operator("CenterCropPad", 29, "input_data shape! -> output_data", "Cropped or padded at both ends to a shape.")
