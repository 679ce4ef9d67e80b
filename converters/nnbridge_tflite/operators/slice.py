"""Blocks of tensors: read, or replaced."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from nnbridge.converters.declaration import Option
from nnbridge.converters.draft import Unmappable
from nnbridge.converters.folding import Folding
from nnbridge.errors import Reason, Stage, Why
from nnbridge.records import dataclass
from nnbridge.types import OperationCode
from nnbridge_tflite import dims
from nnbridge_tflite.declaration import NEVER_KNOWN, TfliteOperator, inputs
from nnbridge_tflite.dims import OPEN
from nnbridge_tflite.host.numbers import Array, Options, Tensors, data_of, integers
from nnbridge_tflite.loads import INDEXES, OUT, SAME, PreparedOperator, alike, ranked, requires, same_shape, typed
from nnbridge_tflite.lowerer import Lowerer
from nnbridge_tflite.read.graph import Operator, Tensor
from nnbridge_tflite.rules import FLOAT_QUANT8, NUMBERS, DelegateRule, Past, type_in


def _slices(node: PreparedOperator) -> bool:
    """True if a slice, where it is known, is within its input and has the dimensions that the file states."""
    # The type of the begins is that of the sizes, whatever the file says.
    first, sizes, shape = node.numbers(1), node.words(2, "<i8" if node.type(1) == "INT64" else "<i4"), node.shape(0)
    if first is None or sizes is None or -1 in node.inputs[0].signature:
        return True
    out = node.at(OUT)
    stated = out is not None and out.shape and -1 not in out.signature
    if stated and not shape:
        return True  # TFLite takes a scalar for a tensor of unknown rank.
    if len(first) != len(shape) or any(
        size < -1 or not 0 <= at <= d or at + size > d for at, size, d in zip(first, sizes, shape, strict=True)
    ):
        return False
    found = tuple(d - at if size == -1 else size for at, size, d in zip(first, sizes, shape, strict=True))
    return out is None or not stated or found == out.shape


_SLICE_FITS = requires(
    "a slice within the input, of the output's dimensions",
    _slices,
    lambda node: f"{node.numbers(1)} and sizes {node.numbers(2)} of {node.at(0)}",
)
_UPDATE_FITS = requires(
    "an update that fits the operand, and an index for each dimension",
    lambda node: len(node.shape(0)) == len(node.shape(1)) == node.shape(2)[0]
    and all(small <= large for small, large in zip(node.shape(1), node.shape(0), strict=True)),
    kind=Why.OPERAND_SIZE,
)  # fmt: skip


def _moves(node: PreparedOperator) -> bool:
    """True if the steps of dimensions, where TFLite computes them when it prepares, are some that it divides by."""
    steps = node.numbers(3)
    if steps is None or (not node.option("offset") and None in (node.numbers(1), node.numbers(2))):
        return True
    if len(steps) < node.shape(1)[0]:
        return False
    apart, dropped = int(node.option("ellipsis_mask")) | int(node.option("new_axis_mask")), int(node.option("shrink_axis_mask"))
    kept = [(step, dropped >> i & 1) for i, step in enumerate(steps) if not apart >> i & 1]
    return all(step != 0 and (drops or step != -(1 << 31)) for step, drops in kept)


_MOVES = requires("steps that are not 0 or -2^31", _moves, lambda node: str(node.numbers(3)))
_OFFSET = requires(
    "an end that is known where it is an offset, without which LiteRT ends the process",
    lambda node: (
        not node.option("offset")
        or node.numbers(2) is not None
        or node.numbers(3) is None
        or all(int(node.option("shrink_axis_mask")) >> i & 1 for i in range(len(node.numbers(3) or ())))
    ),
    lambda node: "a computed one",
    Why.NOT_CONSTANT,
)


def _block(operator: Operator, tensors: Sequence[Tensor]) -> Sequence[int]:
    """SLICE takes its output's dimensions if the file states them all; else those of its input have to be stated."""
    data, out = tensors[operator.inputs[0]], tensors[operator.outputs[0]]
    if out.shape and -1 not in out.signature:
        return ()
    return NEVER_KNOWN if -1 in data.signature else (1, 2)


def _strided_dims(node: PreparedOperator) -> list[tuple[int, ...]]:
    """The dimensions of a STRIDED_SLICE; open ones where they are not known, if the masks say how many there are."""
    shape, masks = node.shape(0), {option.name: node.option(option.name) for option in STRIDED_SLICE.options}
    begins, ends, steps = (node.numbers(i) for i in (1, 2, 3))
    if begins is not None and ends is not None and steps is not None:
        return [cuts(shape, begins, ends, steps, masks).shape]
    count = node.shape(1)[0]
    marked = {name: sum(int(masks[f"{name}_mask"]) >> i & 1 for i in range(count)) for name in ("new_axis", "shrink_axis")}
    return [(OPEN,) * max(len(shape) + marked["new_axis"] - marked["shrink_axis"], 0)]


def _strided(operator: Operator, tensors: Sequence[Tensor]) -> Sequence[int]:
    """With ends that count from the begins, STRIDED_SLICE needs only the strides."""
    return (3,) if operator.options.get("offset") else (1, 2, 3)


SLICE = TfliteOperator(
    "SLICE",
    "A block; a size of -1 reaches the end.",
    inputs("input", "begin!", "size!"),
    folding=Folding(moves_only=True),
    delegate=DelegateRule(version=2, level=3, types=NUMBERS, conditions=(type_in(1, "INT32"), type_in(2, "INT32"))),
    dynamic_unless=_block,
    versions=(1, 8),
    loads=(SAME, typed(1, *INDEXES), typed(2, *INDEXES), ranked(1, 1), ranked(2, 1), same_shape(1, 2), _SLICE_FITS),
    dims=dims.sliced,
)
STRIDED_SLICE = TfliteOperator(
    "STRIDED_SLICE",
    "Python's slicing, spelled with masks.",
    inputs("input", "begin!", "end!", "strides!"),
    options=(
        Option("begin_mask", 0, "bits of ranges that begin at the front"),
        Option("end_mask", 0, "bits of ranges that reach the end"),
        Option("ellipsis_mask", 0, "the bit of the range that covers all dimensions in between"),
        Option("new_axis_mask", 0, "bits of ranges that are new dimensions of size 1"),
        Option("shrink_axis_mask", 0, "bits of ranges that are one index, whose dimension goes"),
        Option("offset", False, "ends count from the begins"),
    ),
    folding=Folding(moves_only=True),
    delegate=DelegateRule(version=2, level=2, types=FLOAT_QUANT8, past=(Past(until="2.7", types=()),)),
    dynamic_unless=_strided,
    known_when_prepared=True,
    needs_ranks=True,
    versions=(1, 8),
    loads=(
        ranked(1, 1),
        ranked(2, 1),
        ranked(3, 1),
        same_shape(1, 2),
        SAME,
        typed(1, "INT32"),
        typed(2, "INT32"),
        typed(3, "INT32"),
        _MOVES,
        _OFFSET,
    ),
    dims=_strided_dims,
)
DYNAMIC_UPDATE_SLICE = TfliteOperator(
    "DYNAMIC_UPDATE_SLICE",
    "A block replaced; the start is shifted so that it fits.",
    inputs("input", "update", "start"),
    versions=(1, 6),
    loads=(ranked(2, 1), _UPDATE_FITS, alike(0, 1), typed(2, *INDEXES)),
    dims=dims.like(),
    writes_type=0,
)


@SLICE.lowering()
def slice_(to: Lowerer) -> None:
    """SLICE; a size of -1 means "to the end"."""
    shape, begin, size = to.shape(0), to.integers(1), to.integers(2)
    to.require(len(begin) == len(size) == len(shape), f"{len(shape)} begins and sizes", [begin, size])
    sizes = [d - b if s == -1 else s for d, b, s in zip(shape, begin, size, strict=True)]
    to.finish(OperationCode.SLICE, to.input(0), to.vector(begin), to.vector(sizes))


@SLICE.host_kernel
def host_slice(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    data = data_of(inputs[0])
    ranges = zip(integers(inputs[1]), integers(inputs[2]), data.shape, strict=True)
    return [data[tuple(slice(b, d if s == -1 else b + s) for b, s, d in ranges)]]


@dataclass(frozen=True, slots=True)
class StridedRange:
    """The range that a STRIDED_SLICE reads of one dimension."""

    begin: int
    size: int
    stride: int

    @property
    def end(self) -> int:
        """The first index that is not read; below 0 where a backward cut reaches the front."""
        return self.begin + self.size * self.stride


@dataclass(frozen=True, slots=True)
class Cuts:
    """A STRIDED_SLICE with its masks worked out."""

    cuts: tuple[StridedRange, ...]
    shape: tuple[int, ...]
    """The result's dimensions: dropped axes gone, new ones in place."""

    @property
    def sizes(self) -> list[int]:
        """The result's size along each of the input's dimensions."""
        return [cut.size for cut in self.cuts]


def cuts(
    shape: Sequence[int], begins: Sequence[int], ends: Sequence[int], steps: Sequence[int], options: Mapping[str, Any]
) -> Cuts:
    """The ranges that a STRIDED_SLICE names, with ellipsis and new axes; ValueError where it names none.

    Begins and ends are clamped to the dimension. Of a dropped axis only the begin counts, which is clamped as well.
    Ends that count from the begins are not masked.
    """
    if not len(begins) == len(ends) == len(steps) or 0 in steps:
        raise ValueError(f"as many begins as ends and strides other than 0, found {[*begins]}, {[*ends]}, {[*steps]}")

    def marked(mask: str, i: int) -> bool:
        return bool((options.get(f"{mask}_mask") or 0) >> i & 1)

    if not (options.get("new_axis_mask") or options.get("ellipsis_mask")):  # LiteRT reads no range beyond the dimensions.
        begins, ends, steps = begins[: len(shape)], ends[: len(shape)], steps[: len(shape)]
    named = sum(not marked("new_axis", i) and not marked("ellipsis", i) for i in range(len(begins)))
    if named > len(shape):
        raise ValueError(f"at most {len(shape)} ranges, found {named}")
    ranges: list[StridedRange] = []
    result: list[int] = []

    def whole(until: int) -> None:
        result.extend(shape[len(ranges) : until])
        ranges.extend(StridedRange(0, size, 1) for size in shape[len(ranges) : until])

    for i, (begin, end, step) in enumerate(zip(begins, ends, steps, strict=True)):
        if marked("ellipsis", i):
            whole(len(ranges) + len(shape) - named)
            named = len(shape)
            continue
        if marked("new_axis", i):
            result.append(1)
            continue
        size = shape[len(ranges)]
        low, high = (0, size) if step > 0 else (-1, size - 1)
        start = (low if step > 0 else high) if marked("begin", i) else min(max(begin + size * (begin < 0), low), high)
        if marked("shrink_axis", i):
            if not 0 <= start < size:
                raise ValueError(f"an index below {size}, found {begin}")
            ranges.append(StridedRange(start, 1, 1))
            continue
        offset = options.get("offset")
        stop = end + start if offset else end
        open_end = marked("end", i) and not offset
        stop = (high if step > 0 else low) if open_end else min(max(stop + size * (stop < 0), low), high)
        ranges.append(StridedRange(start, len(range(start, stop, step)), step))
        result.append(ranges[-1].size)
    whole(len(shape))
    return Cuts(tuple(ranges), tuple(result))


@STRIDED_SLICE.lowering()
def strided_slice(to: Lowerer) -> None:
    """STRIDED_SLICE with NNAPI's three masks."""
    to.require(to.shape(0), "a tensor that is not a scalar", to.declared(0))
    for mask in ("ellipsis_mask", "new_axis_mask"):
        # The delegate does not pass this mask, so that NNAPI computes another shape.
        to.require(to.option(mask) == 0, f"no {mask}", to.option(mask), stage=Stage.RUNNING)
    to.require(not to.option("offset"), "ends that do not count from begin", "offset")
    # NNAPI reads the end of a dropped axis as it stands, which is before the last index where that is -1.
    from_end = any(begin < 0 and to.option("shrink_axis_mask") >> i & 1 for i, begin in enumerate(to.integers(1)))
    to.require(not from_end or 0 not in to.input(0).dims, "known dimensions for an index from the end", to.input(0).dims)
    ranges = [to.vector(to.integers(i)) for i in (1, 2, 3)]
    masks = [to.scalar(to.option(name)) for name in ("begin_mask", "end_mask", "shrink_axis_mask")]
    to.finish(OperationCode.STRIDED_SLICE, to.input(0), *ranges, *masks)


@STRIDED_SLICE.lowering(wide=True)
def strided_slice_plain(to: Lowerer) -> None:
    """Ranges without masks, as SLICE where every stride is 1, then RESHAPE for dropped and new axes."""
    to.require(to.shape(0), "a tensor that is not a scalar", to.declared(0))
    data, masks = to.input(0), {option.name: to.option(option.name) for option in STRIDED_SLICE.options}
    try:
        cut = cuts(to.shape(0), to.integers(1), to.integers(2), to.integers(3), masks)
    except ValueError as error:
        rule, _, found = str(error).partition(", found ")
        raise Unmappable(Reason(rule, found, to.label)) from error
    to.require(0 not in cut.sizes, "a slice that is not empty", cut.sizes)
    if cut.sizes == list(data.dims) and all(c.stride == 1 for c in cut.cuts):
        to.reshaped(data, cut.shape, out=to.out)
        return
    target = to.out if tuple(cut.sizes) == (cut.shape or (1,)) else data.like(dims=tuple(cut.sizes))
    begins = to.vector([c.begin for c in cut.cuts])
    if all(c.stride == 1 for c in cut.cuts):
        to.emit(OperationCode.SLICE, data, begins, to.vector(cut.sizes), out=target)
    else:
        open_ends = sum(1 << i for i, c in enumerate(cut.cuts) if c.end < 0)
        ends, steps = to.vector([c.end for c in cut.cuts]), to.vector([c.stride for c in cut.cuts])
        none = to.scalar(0)
        to.emit(OperationCode.STRIDED_SLICE, data, begins, ends, steps, none, to.scalar(open_ends), none, out=target)
    if target is not to.out:
        to.reshaped(target, cut.shape, out=to.out)


@STRIDED_SLICE.host_kernel
def host_strided_slice(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    data = data_of(inputs[0])
    begins, ends, steps = (integers(t) for t in inputs[1:4])
    found = cuts(data.shape, begins, ends, steps, options)
    picked = tuple(slice(c.begin, None if c.end < 0 else c.end, c.stride) if c.size else slice(0) for c in found.cuts)
    return [data[picked].reshape(found.shape)]


@DYNAMIC_UPDATE_SLICE.host_kernel
def host_dynamic_update_slice(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    data, update = data_of(inputs[0]).copy(), data_of(inputs[1])
    sizes = zip(integers(inputs[2]), data.shape, update.shape, strict=True)
    starts = [min(max(s, 0), d - u) for s, d, u in sizes]
    data[tuple(slice(s, s + u) for s, u in zip(starts, update.shape, strict=True))] = update
    return [data]
