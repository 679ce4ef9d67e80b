"""Windows that slide over lines and planes: how NNAPI lists them, and how the host's kernels see them."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from nnbridge.converters.draft import Value
from nnbridge.converters.mapping import MappingKind
from nnbridge.errors import OpFailedError, Reason
from nnbridge.model import Array
from nnbridge.records import dataclass
from nnbridge_onnx.host.evaluator import HostCall
from nnbridge_onnx.lowerer import C, Lowerer
from nnbridge_onnx.operands import LAST
from nnbridge_onnx.read.graph import Dims

# -- in NNAPI's operations ---------------------------------------------------------------------------------------------------


_CODES = {"SAME_UPPER": 1, "VALID": 2}
"""ONNX's rule for paddings → NNAPI's number for it."""


@dataclass(frozen=True)
class WindowOptions:
    """Padding as NNAPI lists it (left, right, top, bottom), strides and dilations (width, height)."""

    pads: list[int]
    strides: list[int]
    dilations: list[int]
    code: int = 0
    """NNAPI's number for the padding where the provider's builder states that in place of the paddings; else 0."""

    def stated(self, pads: list[int]) -> list[int]:
        """The padding as operands: the code, or these paddings."""
        return [self.code] if self.code else pads


@dataclass(frozen=True)
class Plane:
    """An image of rank 4, which a line of rank 3 becomes with a height of 1."""

    x: Value
    shape: Dims
    """Batch, channels, height, width."""
    line: bool

    def pair(self, values: Sequence[int], one: int = 1) -> list[int]:
        """Numbers for height and width."""
        return [one, *values] if self.line else list(values)

    def output(self, to: Lowerer) -> Value:
        """The output of the operation on the plane."""
        declared = to.output(images=True)
        return declared.like() if self.line else declared

    def finish(self, to: Lowerer, made: Value) -> None:
        """The node's output: the plane, or the line that it was."""
        if self.line:
            dims = (made.dims[0], made.dims[2], made.dims[3]) if to.channels_last else (*made.dims[:2], made.dims[3])
            made = to.emit(C.RESHAPE, made, to.vector(dims), out=to.output(images=True))
        to.result(made, images=True)


def plane(to: Lowerer) -> Plane:
    """The first input as an image of rank 4."""
    shape, x = to.shape(), to.image()
    to.require(len(shape) in LAST and 0 not in shape, "an image of rank 3 or 4 with elements", list(shape))
    if len(shape) == 4:
        return Plane(x, shape, False)
    batch, channels, length = shape
    dims = (batch, 1, length, channels) if to.channels_last else (batch, channels, 1, length)
    return Plane(to.emit(C.RESHAPE, x, to.vector(dims)), (batch, channels, 1, length), True)


def window(to: Lowerer, image: Plane, kernel: Sequence[int]) -> WindowOptions:
    """The sliding window over an image."""
    to.require(len(kernel) == 2, "one or two spatial axes", len(kernel))
    sizes, one = image.shape[2:], [1] * (1 if image.line else 2)
    strides, dilations = (image.pair(to.option(name, one)) for name in ("strides", "dilations"))
    to.require(len(strides) == len(dilations) == 2, "strides and dilations for each axis", [strides, dilations])
    to.require(min(*strides, *dilations) > 0, "strides and dilations above 0", [strides, dilations])
    auto = to.option("auto_pad")
    same = [_same_upper(*axis) for axis in zip(sizes, kernel, strides, dilations, strict=True)]
    if auto in ("NOTSET", "VALID"):
        numbers = to.option("pads", [0] * 2 * len(one)) if auto == "NOTSET" else [0] * 2 * len(one)
        top, left, bottom, right = [*image.pair(numbers[: len(one)], 0), *image.pair(numbers[len(one) :], 0)]
    else:
        (top, bottom), (left, right) = [(large, small) for small, large in same] if auto == "SAME_LOWER" else same
    to.require(min(top, left, bottom, right) >= 0, "paddings of at least 0", [top, left, bottom, right])
    # The provider's builders state paddings of no rule as SAME where they are that.
    is_same = auto == "NOTSET" and dilations == [1, 1] and [(top, bottom), (left, right)] == same
    code = _CODES.get("SAME_UPPER" if is_same else auto, 0) if to.mapping == MappingKind.PROVIDER else 0
    return WindowOptions([left, right, top, bottom], strides[::-1], dilations[::-1], code)


def _same_upper(size: int, kernel: int, stride: int, dilation: int) -> tuple[int, int]:
    """The padding before and after an axis with which the output has a window for each stride."""
    total = max(0, (-(-size // stride) - 1) * stride + (kernel - 1) * dilation + 1 - size)
    return total // 2, total - total // 2


def padding(to: Lowerer, x: Value, pads: Sequence[int]) -> Value:
    """A PAD of a plane; ``pads`` are left, right, top and bottom."""
    left, right, top, bottom = pads
    spatial = [top, bottom, left, right]
    numbers = [0, 0, *spatial, 0, 0] if to.channels_last else [0, 0, 0, 0, *spatial]
    return to.emit(C.PAD, x, to.draft.ints(numbers, (4, 2)))


# -- in kernels of the host --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Windows:
    """The windows of a convolution or pooling, for each spatial axis."""

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    begin: tuple[int, ...]
    end: tuple[int, ...]
    """Padding, as the node says."""
    extra: tuple[int, ...]
    """What windows that are rounded up reach beyond that."""
    counts: tuple[int, ...]
    """Their number."""

    def of(self, data: Array, fill: float) -> Array:
        """The windows of [batch, channels, ...]: [batch, channels, places ..., kernel ...]."""
        pairs = [(0, 0), (0, 0), *((b, e + x) for b, e, x in zip(self.begin, self.end, self.extra, strict=True))]
        padded = np.pad(data, pairs, constant_values=fill)
        reach = tuple((k - 1) * d + 1 for k, d in zip(self.kernel, self.dilations, strict=True))
        axes = tuple(range(2, data.ndim))
        seen = np.lib.stride_tricks.sliding_window_view(padded, reach, axes)
        places = tuple(slice(None, count * s, s) for count, s in zip(self.counts, self.strides, strict=True))
        inside = tuple(slice(None, None, d) for d in self.dilations)
        at = (slice(None), slice(None), *places, *inside)
        return seen[at]


def windows(call: HostCall, shape: Sequence[int], size: Sequence[int], *, beyond: bool = False) -> Windows | None:
    """The windows of ``size`` that a node's attributes describe; None for negative paddings.

    A window that does not fit into the padded image is refused. ``beyond``, for pooling: one that lies beyond its end by less
    than a stride counts, as in ONNX Runtime, whose division rounds towards 0; by a stride, there is no output.
    """
    rank = len(shape)
    strides, dilations = (tuple(call.option(name) or (1,) * rank) for name in ("strides", "dilations"))
    reach = [(k - 1) * d + 1 for k, d in zip(size, dilations, strict=True)]
    automatic = call.option("auto_pad")
    if automatic in ("SAME_UPPER", "SAME_LOWER"):
        totals = [max((-(-n // s) - 1) * s + r - n, 0) for n, s, r in zip(shape, strides, reach, strict=True)]
        halves = [t // 2 for t in totals]
        rest = [t - h for t, h in zip(totals, halves, strict=True)]
        begin, end = (halves, rest) if automatic == "SAME_UPPER" else (rest, halves)
    else:
        pads = (call.option("pads") if automatic == "NOTSET" else None) or (0,) * 2 * rank
        begin, end = list(pads[:rank]), list(pads[rank:])
    free = [n + b + e - r for n, b, e, r in zip(shape, begin, end, reach, strict=True)]
    if min(*begin, *end, *(d - 1 for d in dilations), *(s - 1 for s in strides)) < 0:
        return None
    counts, extra = [], []
    for n, first, r, s, gap in zip(shape, begin, reach, strides, free, strict=True):
        last = math.trunc(gap / s)
        if (gap if not beyond else last + 1) < 0:
            raise OpFailedError(Reason("a window that fits into the padded image", f"{r} in {gap + r}", call.node.label))
        # A window that would start after the input and its first padding is left out.
        if gap > 0 and call.option("ceil_mode") and -(-gap // s) * s < n + first:
            last = -(-gap // s)
        counts.append(last + 1)
        extra.append(max(max(last, 0) * s - gap, 0))
    return Windows(tuple(size), strides, dilations, tuple(begin), tuple(end), tuple(extra), tuple(counts))
