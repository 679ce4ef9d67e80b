"""Shape rules and shape arithmetic that several operations share."""

from __future__ import annotations

from collections.abc import Callable

from nnbridge.operations.call import Call
from nnbridge.records import dataclass
from nnbridge.types import PaddingCode


def same_as(name: str) -> Callable[[Call], tuple[int, ...]]:
    """The rule of operations whose output has the named input's dimensions."""

    def rule(call: Call) -> tuple[int, ...]:
        return call[name].dims

    return rule


same_as_input = same_as("input")


def broadcast(call: Call, *dims: tuple[int, ...]) -> tuple[int, ...]:
    """Shapes aligned at the end; a size of 1 yields to any other, 0 included."""
    rank = max(len(d) for d in dims)
    padded = [(1,) * (rank - len(d)) + tuple(d) for d in dims]
    result = []
    for sizes in zip(*padded, strict=True):
        wider = {size for size in sizes if size != 1}
        call.require(len(wider) <= 1, "dimensions that broadcast", " and ".join(str(list(d)) for d in dims))
        result.append(wider.pop() if wider else 1)
    return tuple(result)


@dataclass(frozen=True, slots=True)
class Window:
    """A sliding window along one axis: size, stride, dilation and the padding before and after."""

    size: int
    stride: int
    dilation: int
    before: int
    after: int

    @property
    def extent(self) -> int:
        """Cells that the dilated window spans."""
        return (self.size - 1) * self.dilation + 1

    def positions(self, length: int) -> int:
        """The number of windows."""
        return (length - self.extent + self.stride + self.before + self.after) // self.stride


def implicit_padding(length: int, size: int, stride: int, dilation: int, scheme: int) -> tuple[int, int]:
    """Padding before and after an axis under SAME (1) or VALID (2)."""
    if scheme != PaddingCode.SAME:
        return 0, 0
    extent = (size - 1) * dilation + 1
    total = max(0, (-(-length // stride) - 1) * stride + extent - length)
    return total // 2, total - total // 2


def positions(call: Call, window: tuple[Window, Window], what: str) -> tuple[int, int]:
    """Height and width of the output; refused where the window fits nowhere."""
    dims = call["input"].dims
    size = window[0].positions(dims[1]), window[1].positions(dims[2])
    call.require(min(size) > 0, f"{what} that fits into the padded input", list(dims), "filter")
    return size


def require_pixels(call: Call) -> None:
    """Refuses images [batch, height, width, depth] of which a dimension but the batch is 0."""
    dims = call["input"].dims
    call.require(0 not in dims[1:], "height, width and depth above 0", list(dims), "input")


def windows(call: Call, height: int, width: int, filter_h: int, filter_w: int) -> tuple[Window, Window]:
    """The windows over height and width of a convolution or pooling call, from its padding, strides and dilations.

    Reads ``padding`` (implicit form) or ``pad_left/right/top/bottom``, ``stride_w/h`` and, where declared,
    ``dilation_w/h``. Refuses strides, dilations and filter sizes below 1 and paddings that are negative or at least as
    large as the dilated filter.
    """
    declared = call.signature.names
    implicit = "padding" in declared
    found = []
    for axis, length, size, first, last in (
        ("h", height, filter_h, "pad_top", "pad_bottom"),
        ("w", width, filter_w, "pad_left", "pad_right"),
    ):
        stride = int(call.scalar(f"stride_{axis}"))
        dilation = int(call.scalar(f"dilation_{axis}")) if f"dilation_{axis}" in declared else 1
        for value, name in ((stride, "stride"), (dilation, "dilation"), (size, "filter")):
            if value <= 0:
                call.fail(f"{name}_{axis} of at least 1", value, f"{name}_{axis}")
        if implicit:
            scheme = int(call.scalar("padding"))
            call.require(scheme in (1, 2), "a padding scheme of 1 (SAME) or 2 (VALID)", scheme, "padding")
            before, after = implicit_padding(length, size, stride, dilation, scheme)
        else:
            before, after = int(call.scalar(first)), int(call.scalar(last))
            for value, name in ((before, first), (after, last)):
                call.require(0 <= value < (size - 1) * dilation + 1, "a padding from 0 to below the filter", value, name)
        found.append(Window(size, stride, dilation, before, after))
    return found[0], found[1]
