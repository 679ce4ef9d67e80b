"""Pooling."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from nnbridge.converters.declaration import Option, lowers
from nnbridge.converters.rules import Condition
from nnbridge.errors import Stage, Why
from nnbridge.model import Array
from nnbridge_onnx.declaration import WINDOW, Quantised, operator
from nnbridge_onnx.host.evaluator import HostCall
from nnbridge_onnx.lowerer import C, Lowerer
from nnbridge_onnx.operands import LAST
from nnbridge_onnx.operators.windows import WindowOptions, Windows, padding, plane, window, windows
from nnbridge_onnx.read.graph import Node
from nnbridge_onnx.rules import (
    FLOAT_OR_UINT8,
    NCHW,
    SAME_PARAMETERS,
    Provider,
    condition,
    one_of,
    ranks,
    uint8_parameters,
)  # fmt: skip

_CEIL = Option("ceil_mode", 0, "1 to keep a last window that reaches beyond the padding")
_PADDING_VALID = 2
"""NNAPI's number for no padding."""
_POWER = Option("p", 2, "the power of the norm")
POOL_CONDITIONS = (
    NCHW,
    ranks(4, 4),
    one_of("count_include_pad", 0),
    one_of("storage_order", 0),
    one_of("ceil_mode", 0),
    condition("a window over two axes", lambda u: len(u.attribute("kernel_shape", (1, 1))) == 2, kind=Why.RANK),
    condition(
        "no dilation",
        lambda u: list(u.attribute("dilations", [1, 1])) == [1, 1],
        lambda u: u.attribute("dilations", []),
        kind=Why.ARGUMENT,
    ),
    condition("no indexes", lambda u: len(u.node.outputs) == 1, lambda u: "a second output", kind=Why.VARIANT),
)


def _small_pads(node: Node) -> bool:
    pads, kernel = node.attributes.get("pads", ()), node.attributes.get("kernel_shape", ())
    return node.attributes.get("auto_pad", "NOTSET") != "NOTSET" or all(
        p < k for p, k in zip(pads, [*kernel, *kernel], strict=False)
    )


_LOADS: tuple[Condition[Node], ...] = (
    Condition(
        "paddings below the window",
        _small_pads,
        lambda node: list(node.attributes["pads"]),
        kind=Why.ARGUMENT,
        says=lambda node: "Pad should be smaller than kernel",
    ),
)
_GLOBAL = Provider(2, conditions=(NCHW, ranks(4, 4)))

MAX_POOL = operator(
    "MaxPool", 100, "X -> Y Indices?", "Largest numbers of windows.",
    options=(_CEIL, *WINDOW, Option("storage_order", 0, "1 for indexes that count columns first")),
    quantised=Quantised(moves=True), keeps_quantisation=True, fuses_activation=True, loads=_LOADS,
    provider=Provider(2, FLOAT_OR_UINT8, POOL_CONDITIONS, follows=True),
)  # fmt: skip
AVERAGE_POOL = operator(
    "AveragePool", 14, "X -> Y", "Averages of windows.",
    options=(_CEIL, *WINDOW, Option("count_include_pad", 0, "1 to count padding as zeros")), quantised=Quantised(),
    loads=_LOADS,
    fuses_activation=True, provider=Provider(2, conditions=(*POOL_CONDITIONS, uint8_parameters(), SAME_PARAMETERS), grouped=True),
)  # fmt: skip
LP_POOL = operator("LpPool", 96, "X -> Y", "Norms of windows.", options=(_CEIL, *WINDOW, _POWER), loads=_LOADS)


@lowers(MAX_POOL, AVERAGE_POOL, LP_POOL)
def _pool(to: Lowerer) -> None:
    to.require(len(to.node.results) == 1, "no indexes", "a second output")
    image = plane(to)
    kernel, shape, x = image.pair(to.option("kernel_shape", [])), image.shape, image.x
    found = window(to, image, kernel)
    to.require(found.dilations == [1, 1], "no dilation", found.dilations)
    pads = _rounded_up(found, kernel, shape) if to.option("ceil_mode") else found.pads
    counted = to.node.type == "AveragePool" and to.option("count_include_pad") and any(found.pads)
    limits = [kernel[1], kernel[1], kernel[0], kernel[0]]
    to.require(all(p < k for p, k in zip(pads, limits, strict=True)), "paddings below the kernel", pads, stage=Stage.RUNNING)
    if counted:
        # Averages over padding count zeros: they are put there first.
        to.require(pads == found.pads and to.is_float(x), "no ceil_mode with count_include_pad", "both")
        x, pads = padding(to, x, pads), [0, 0, 0, 0]
    window_inputs = [to.scalar(v) for v in (*found.stated(pads), *found.strides, kernel[1], kernel[0])]
    if to.node.type == "LpPool":
        # NNAPI takes the root of the mean of squares, ONNX that of their sum.
        to.require(to.option("p") == 2 and not any(pads), "p of 2 without padding", [to.option("p"), pads])
        means = to.emit(C.L2_POOL_2D, x, *window_inputs, to.scalar(0), *to.layout())
        root = to.float_tensor([math.sqrt(kernel[0] * kernel[1])], x)
        image.finish(to, to.emit(C.MUL, means, root, to.activation(), out=image.output(to)))
        return
    code = C.MAX_POOL_2D if to.node.type == "MaxPool" else C.AVERAGE_POOL_2D
    image.finish(to, to.emit(code, x, *window_inputs, to.activation(), *to.layout(), out=image.output(to)))


def _rounded_up(found: WindowOptions, kernel: Sequence[int], shape: Sequence[int]) -> list[int]:
    """Padding at the ends for the last, partial window of ceil_mode."""
    left, right, top, bottom = found.pads
    ends = []
    for size, before, after, k, s in (
        (shape[3], left, right, kernel[1], found.strides[0]),
        (shape[2], top, bottom, kernel[0], found.strides[1]),
    ):
        count = math.ceil((size + before + after - k) / s) + 1
        if (count - 1) * s >= size + before:
            count -= 1
        ends.append(max(after, (count - 1) * s + k - size - before))
    return [left, ends[0], top, ends[1]]


GLOBAL_AVERAGE_POOL = operator(
    "GlobalAveragePool", 67, "X -> Y", "Average of each channel.", quantised=Quantised(), provider=_GLOBAL, fuses_activation=True
)
GLOBAL_MAX_POOL = operator(
    "GlobalMaxPool", 69, "X -> Y", "Largest number of each channel.", provider=_GLOBAL, fuses_activation=True
)


@GLOBAL_AVERAGE_POOL.provider_lowering
@GLOBAL_MAX_POOL.provider_lowering
def _pool_the_image(to: Lowerer) -> None:
    """AVERAGE_POOL_2D or MAX_POOL_2D with a window as large as the image."""
    x, (height, width) = to.image(), to.shape()[2:]
    code = C.AVERAGE_POOL_2D if to.node.type == "GlobalAveragePool" else C.MAX_POOL_2D
    numbers = [to.scalar(v) for v in (_PADDING_VALID, 1, 1, width, height)]
    to.finish(code, x, *numbers, to.activation(), *to.layout(), images=True)


@GLOBAL_AVERAGE_POOL.host_kernel
def _run_global_average(call: HostCall) -> Sequence[Array] | None:
    """Of images without elements, at which the evaluator divides by their number."""
    x = call.input(0)
    return [np.full((*x.shape[:2], *(1,) * (x.ndim - 2)), np.nan, x.dtype)] if x.size == 0 else None


@lowers(GLOBAL_AVERAGE_POOL, GLOBAL_MAX_POOL)
def _global_pool(to: Lowerer) -> None:
    """MEAN or REDUCE_MAX over height and width, or length."""
    rank = to.rank()
    to.require(rank in LAST, "rank 3 or 4", rank)
    x = to.image()
    axes = to.vector(range(1, rank - 1) if to.channels_last else range(2, rank))
    if to.node.type == "GlobalAveragePool":
        to.finish(C.MEAN, x, axes, to.scalar(1), images=True)
    else:
        to.finish(C.REDUCE_MAX, x, axes, to.flag(True), images=True)


@GLOBAL_AVERAGE_POOL.quantised_lowering
def _quantised_average(to: Lowerer) -> None:
    """AVERAGE_POOL_2D, whose input and output share their parameters."""
    _, _, height, width = to.shape()
    x, one = to.image(), to.scalar(1)
    window_inputs = [*[to.scalar(0)] * 4, one, one, to.scalar(width), to.scalar(height), to.scalar(0), *to.layout()]
    to.finish(C.AVERAGE_POOL_2D, x, *window_inputs, images=True)


# -- the host's --------------------------------------------------------------------------------------------------------------


def _pooled(call: HostCall) -> tuple[Array, Windows | None]:
    data = call.input(0)
    return data, windows(call, data.shape[2:], call.option("kernel_shape"), beyond=True)


def _inside(data: Array) -> tuple[int, ...]:
    """The axes of the cells within each window."""
    return tuple(range(data.ndim, 2 * data.ndim - 2))


@MAX_POOL.host_kernel
def _max_pool(call: HostCall) -> Sequence[Array] | None:
    data, found = _pooled(call)
    if found is None:
        return None
    lowest = -np.inf if data.dtype.kind == "f" else np.iinfo(data.dtype).min
    seen = found.of(data, lowest)
    if call.outputs == 1:
        return [seen.max(axis=_inside(data))]
    # The second output numbers all elements, those of an image column by column if the storage order says so.
    numbers = np.arange(math.prod(data.shape[2:]))
    image = numbers.reshape(data.shape[2:]) if not call.option("storage_order") else numbers.reshape(data.shape[:1:-1]).T
    first = np.arange(math.prod(data.shape[:2])).reshape(*data.shape[:2], *(1,) * image.ndim) * image.size
    places = found.of(first + image, -1)
    flat = [array.reshape(*array.shape[: data.ndim], -1) for array in (seen, places)]
    best = np.where(flat[1] < 0, -1, flat[0] == flat[0].max(-1, keepdims=True)).argmax(-1)[..., None]
    return [np.take_along_axis(array, best, -1)[..., 0] for array in flat]


@AVERAGE_POOL.host_kernel
def _average_pool(call: HostCall) -> Sequence[Array] | None:
    data, found = _pooled(call)
    if found is None or data.dtype.kind != "f":
        return None
    inside = _inside(data)
    sums = found.of(data, 0.0).sum(axis=inside)
    ones = np.ones((1, 1, *data.shape[2:]), data.dtype)
    if call.option("count_include_pad"):
        # What is counted is the padding that the node says, not what rounding up adds to it.
        pairs = [(0, 0), (0, 0), *zip(found.begin, found.end, strict=True)]
        ones = np.pad(ones, pairs, constant_values=1)
        none = (0,) * len(found.kernel)
        found = replace(found, begin=none, end=none)
    return [(sums / found.of(ones, 0.0).sum(axis=inside)).astype(data.dtype)]


@LP_POOL.host_kernel
def _lp_pool(call: HostCall) -> Sequence[Array] | None:
    data, found = _pooled(call)
    if found is None or data.dtype.kind != "f":
        return None
    power = call.option("p")
    sums = (np.abs(found.of(data, 0.0)) ** power).sum(axis=_inside(data))
    return [(sums ** (1 / power)).astype(data.dtype)]


@GLOBAL_MAX_POOL.host_kernel
def _global_max(call: HostCall) -> Sequence[Array]:
    data = call.input(0)
    return [data.max(axis=tuple(range(2, data.ndim)), keepdims=True)]


GLOBAL_LP_POOL = operator("GlobalLpPool", 68, "X -> Y", "Norm of each channel.", options=(Option("p", 2, "power of the norm"),))
MAX_ROI_POOL = operator(
    "MaxRoiPool", 101, "X rois -> Y", "Largest numbers of parts of regions.",
    options=(Option("pooled_shape", (1, 1), "parts of a region"), Option("spatial_scale", 1.0, "from regions' units to pixels")),
)  # fmt: skip


@GLOBAL_LP_POOL.host_kernel
def _global_norm(call: HostCall) -> Sequence[Array]:
    data, power = call.input(0), call.option("p")
    sums = (np.abs(data) ** power).sum(tuple(range(2, data.ndim)), keepdims=True)
    return [(sums ** (1 / power)).astype(data.dtype)]


@MAX_ROI_POOL.host_kernel
def _max_region(call: HostCall) -> Sequence[Array]:
    """The largest number of each part of each region; parts outside the image are 0."""
    data, regions, shape = call.input(0), call.input(1), call.option("pooled_shape")
    made = np.zeros((len(regions), data.shape[1], *shape), data.dtype)
    for region, answer in zip(regions, made, strict=True):
        corners = np.floor(region[1:] * call.option("spatial_scale") + 0.5).astype(int)
        image, parts = data[int(region[0])], []
        for size, low, high, count in zip(data.shape[2:], corners[1::-1], corners[3:1:-1], shape, strict=True):
            step = max(int(high - low) + 1, 1) / count
            starts = [min(max(math.floor(i * step) + int(low), 0), size) for i in range(count)]
            ends = [min(max(math.ceil((i + 1) * step) + int(low), 0), size) for i in range(count)]
            parts.append([slice(*pair) for pair in zip(starts, ends, strict=True)])
        for row, rows in enumerate(parts[0]):
            for column, columns in enumerate(parts[1]):
                part = image[:, rows, columns]
                answer[:, row, column] = part.max(axis=(1, 2)) if part.size else 0
    return [made]


operator("MaxUnpool", 102, "X I output_shape!? -> output", "Numbers back at the places that MaxPool found them.")
