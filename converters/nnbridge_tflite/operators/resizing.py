"""Images of another size."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from nnbridge.converters.declaration import lowers
from nnbridge.converters.rules import since
from nnbridge.errors import Why
from nnbridge.operations.arithmetic import rdbp
from nnbridge.operations.resizing import Neighbours, neighbours, neighbours_fixed
from nnbridge.types import OperationCode
from nnbridge_tflite import dims
from nnbridge_tflite.declaration import ALIGNMENT, TfliteOperator, inputs
from nnbridge_tflite.host.numbers import Array, Options, Tensors, bounded, data_of, integers
from nnbridge_tflite.loads import ranked, requires, sized, typed
from nnbridge_tflite.lowerer import Lowerer
from nnbridge_tflite.rules import FLOAT_QUANT8, Condition, DelegateRule, constant, from_level, input_in, input_rank

_TWO = requires("a size of two numbers", lambda node: node.shape(1) == (2,), lambda node: str(node.at(1)), Why.OPERAND_SIZE)
_ALIGNED = requires(
    "half_pixel_centers without align_corners",
    lambda node: node.numbers(1) is None or not (node.option("half_pixel_centers") and node.option("align_corners")),
    lambda node: "both",
)
_RESIZED = sized(lambda node: node.numbers(1) and [node.shape(0)[0], *(node.numbers(1) or ()), node.shape(0)[3]])
_SIZES = requires("sizes above 0", lambda node: min(node.numbers(1) or [1]) > 0, lambda node: str(node.numbers(1)))

_CONDITIONS = (
    constant(1, "size"),
    from_level(
        4,
        "align_corners and half_pixel_centers",
        lambda node: not node.option("align_corners") and not node.option("half_pixel_centers"),
    ),
)
RESIZE_BILINEAR = TfliteOperator(
    "RESIZE_BILINEAR",
    "Images of another size, each pixel from the four nearest.",
    inputs("images", "size!"),
    options=ALIGNMENT,
    delegate=DelegateRule(
        version=3,
        types=FLOAT_QUANT8,
        conditions=(
            *_CONDITIONS,
            input_rank("an input of rank 4", 4),
            input_in("FLOAT32", below=3),
            Condition(
                "a square output",
                lambda node: node.output().shape[1:2] == node.output().shape[2:3],
                lambda node: node.output(),
                below=3,
            ),
        ),
    ),
    versions=(1, 4),
    loads=(ranked(0, 4), ranked(1, 1), _TWO, typed(1, "INT32"), _ALIGNED, _SIZES, _RESIZED),
    dims=dims.resized,
    writes_type=0,
)
RESIZE_NEAREST_NEIGHBOR = TfliteOperator(
    "RESIZE_NEAREST_NEIGHBOR",
    "Images of another size, of the nearest pixels.",
    inputs("images", "size!"),
    options=ALIGNMENT,
    delegate=DelegateRule(version=3, level=3, types=FLOAT_QUANT8, conditions=(since("2.4", _CONDITIONS[0]), *_CONDITIONS[1:])),
    versions=(1, 4),
    loads=(ranked(0, 4), ranked(1, 1), typed(1, "INT32"), _TWO, _RESIZED),
    dims=dims.resized,
    writes_type=0,
)


@lowers(RESIZE_BILINEAR, RESIZE_NEAREST_NEIGHBOR)
def resize(to: Lowerer) -> None:
    """Resizing to a constant size: NNAPI has the width first."""
    sizes = to.integers(1)
    to.require(len(sizes) == 2, "height and width", sizes)
    height, width = sizes
    corners, centres = to.option("align_corners"), to.option("half_pixel_centers")
    # RESIZE_NEAREST_NEIGHBOR always has its layout flag.
    layout = (to.flag(False),) if corners or centres or to.name == "RESIZE_NEAREST_NEIGHBOR" else ()
    alignment = (to.flag(corners), to.flag(centres)) if corners or centres else ()
    to.finish(OperationCode[to.name], to.input(0), to.scalar(width), to.scalar(height), *layout, *alignment)


def interpolated(inputs: Tensors, data: Array, options: Options) -> Array:
    """Real numbers between the four nearest, summed in the order of TFLite's reference kernel."""
    rows, columns = _sides(inputs, data, options, neighbours)
    return _mixed(data, rows, columns, np.float32(1))


@RESIZE_BILINEAR.integer_kernel
def resize_bilinear_integers(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    """Unsigned integers on real numbers, rounded where NNAPI truncates; signed ones with positions in 1/1024."""
    data = data_of(inputs[0])
    if data.dtype == np.uint8:
        return [(interpolated(inputs, data.astype(np.float32), options) + np.float32(0.5)).astype(np.uint8)]
    rows, columns = _sides(inputs, data, options, neighbours_fixed)
    return [rdbp(_mixed(data.astype(np.int64), rows, columns, np.int64(1 << 10)), 20).astype(data.dtype)]


def _sides(inputs: Tensors, data: Array, options: Options, find: Callable[..., Neighbours]) -> Iterator[Neighbours]:
    """The neighbours of the output's rows, and of its columns."""
    sizes = integers(inputs[1])
    bounded([data.shape[0], *sizes, *data.shape[3:]])
    flags = {name: bool(options[name]) for name in ("align_corners", "half_pixel_centers")}
    return (find(data.shape[1 + i], size, **flags) for i, size in enumerate(sizes))


def _mixed(data: Array, rows: Neighbours, columns: Neighbours, one: np.generic) -> Array:
    """Each of the four corners by its shares along both axes, one after another."""
    (top, bottom, dy), (left, right, along) = rows, columns
    down = dy[:, np.newaxis, np.newaxis]
    heights = ((top, one - down), (bottom, down))
    widths = ((left, one - along[:, np.newaxis]), (right, along[:, np.newaxis]))
    corners = (data[:, row][:, :, column] * share * across for column, across in widths for row, share in heights)
    return functools.reduce(np.add, corners)


@RESIZE_NEAREST_NEIGHBOR.host_kernel
def host_resize_nearest(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    data, sizes = data_of(inputs[0]), integers(inputs[1])
    bounded([data.shape[0], *sizes, *data.shape[3:]])
    rows, columns = (_nearest(data.shape[1 + i], size, options) for i, size in enumerate(sizes))
    return [data[:, rows][:, :, columns]]


def _step_between(size: int, out: int, options: Options) -> np.float32:
    """The distance of two of ``out`` pixels in an input of ``size``."""
    aligned = bool(options["align_corners"]) and out > 1
    return np.float32(size - 1) / np.float32(out - 1) if aligned else np.float32(size) / np.float32(out)


def _nearest(size: int, out: int, options: Options) -> Array:
    """The source index of each of ``out`` pixels."""
    half = np.float32(0.5 if options["half_pixel_centers"] else 0)
    positions = (np.arange(out, dtype=np.float32) + half) * _step_between(size, out, options)
    whole = np.floor(positions + np.float32(0.5)) if options["align_corners"] else np.floor(positions)
    return whole.astype(np.int64).clip(0, size - 1)
