"""MediaPipe's custom operators, which its programs register with TFLite: they are computed on the host.

As ``mediapipe/util/tflite/operations/`` of google-ai-edge/mediapipe defines them, of the versions that its resolver registers:
``transpose_conv_bias.cc``, ``max_pool_argmax.cc``, ``max_unpooling.cc``, ``transform_tensor_bilinear.cc``,
``transform_landmarks.cc``, ``landmarks_to_transform_matrix.cc``. All of them compute float32 only.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from nnbridge.records import dataclass
from nnbridge_tflite.declaration import TfliteOperator, inputs, outputs
from nnbridge_tflite.dims import Dims
from nnbridge_tflite.host.codes import VERSION
from nnbridge_tflite.host.numbers import Array, Options, Tensors, activated, bounded, real
from nnbridge_tflite.host.windows import positions, taps, windows
from nnbridge_tflite.loads import OUT, PreparedOperator
from nnbridge_tflite.operators.convolution import spread
from nnbridge_tflite.operators.detection import DETECTION, flexbuffer
from nnbridge_tflite.rules import Shape

if TYPE_CHECKING:
    pass

_SAME, _VALID = 0, 1
"""TFLite's codes of paddings in a file."""
_PADDINGS = {1: _SAME, 2: _VALID}
"""``TfLitePadding``, which custom options hold as it is in memory → its code in a file."""
_POOL = ("padding", "stride_w", "stride_h", "filter_width", "filter_height", "fused_activation_function")
_SPREAD = ("padding", "stride_w", "stride_h")


def _struct(content: bytes, names: Sequence[str]) -> dict[str, int]:
    """Custom options that are a struct of TFLite's in memory. ValueError for what is none."""
    if len(content) < 4 * len(names):
        raise ValueError(f"custom options of {4 * len(names)} bytes at least, found {len(content)}")
    found = dict(zip(names, struct.unpack_from(f"<{len(names)}i", content), strict=True))
    if found["padding"] not in _PADDINGS:
        raise ValueError(f"padding 1 (SAME) or 2 (VALID), found {found['padding']}")
    low = {name: value for name, value in found.items() if name.startswith(("stride", "filter")) and value < 1}
    if low:
        raise ValueError(f"strides and windows of 1 at least, found {low}")
    return {**found, "padding": _PADDINGS[found["padding"]]}


def _content(options: Options) -> bytes:
    return bytes.fromhex(options["custom_options"])


def _upsampled(shape: Shape, filter: Shape, step: Mapping[str, int], stated: Shape) -> list[int]:
    """The height and width that a transposed convolution of an image has, where the file states these dimensions of it.

    MediaPipe's kernel computes them. LiteRT has no such kernel: its XNNPACK delegate follows the file where some padding leads to
    its dimensions (CalculateTransposeConvPaddings of ``xnnpack_delegate.cc``), and else leaves the operator to the app's kernel.
    """
    sides = [
        _SpreadSide(length, cells, step[f"stride_{axis}"], step["padding"] == _SAME, known)
        for axis, length, cells, known in zip("hw", shape[1:3], filter[1:3], stated[1:3] or (0, 0), strict=True)
    ]
    followed = all(side.followed for side in sides)
    return [side.delegated if followed else side.computed for side in sides]


@dataclass(frozen=True)
class _SpreadSide:
    """The height or width of a transposed convolution."""

    length: int
    cells: int
    stride: int
    same: bool
    stated: int
    """As the file has it; 0 where it is open."""

    @property
    def computed(self) -> int:
        """As MediaPipe's kernel resizes it."""
        cut = max(0, self.cells - (self.length - 1) % self.stride - 1) if self.same else 0
        return self.stride * (self.length - 1) + self.cells - cut

    @property
    def followed(self) -> bool:
        """True if XNNPACK takes what the file states."""
        if not self.same:
            return self.stated >= self.cells
        return -(-self.stated // self.stride) == self.length and self.cells >= self.stride

    @property
    def delegated(self) -> int:
        """As XNNPACK resizes it: the file's, of which VALID padding leaves what exceeds whole strides."""
        return self.stated if self.same else self.computed + (self.stated - self.cells) % self.stride


Sized: TypeAlias = Callable[[Sequence[Shape], Mapping[str, int], Shape], Sequence[Shape]]


def _sized(names: Sequence[str], dims: Sized) -> Dims:
    """Dimensions of outputs by those of images, the options' struct and the file's own."""

    def found(node: PreparedOperator) -> Sequence[Shape]:
        shapes = (node.known_dims(one) for one in node.inputs)
        images = [shape for shape in shapes if shape is not None and len(shape) == 4 and 0 not in shape]
        (out,) = node.there((OUT,))
        stated = tuple(0 if open < 0 else d for d, open in zip(out.shape, out.signature or out.shape, strict=True))
        return dims(images, _struct(node.operator.custom_options, names), stated)

    return found


def _spread_dims(images: Sequence[Shape], step: Mapping[str, int], stated: Shape) -> Sequence[Shape]:
    data, filter = images[0], images[1]
    return ((data[0], *_upsampled(data, filter, step, stated), filter[0]),)


def _pooled_dims(images: Sequence[Shape], step: Mapping[str, int], stated: Shape) -> Sequence[Shape]:
    data = images[0]
    window = windows(data[1:3], (step["filter_height"], step["filter_width"]), step)
    dims = (data[0], *(w.positions(n) for w, n in zip(window, data[1:3], strict=True)), data[3])
    return dims, dims


def _unpooled_dims(images: Sequence[Shape], step: Mapping[str, int], stated: Shape) -> Sequence[Shape]:
    data = images[0]
    return ((data[0], data[1] * step["filter_height"], data[2] * step["filter_width"], data[3]),)


def _floats(inputs: Tensors, options: Options, *ranks: int, version: int = 1) -> list[Array]:
    """The inputs of an operator that MediaPipe's kernel computes: float32 of these ranks (0: of any), and its version."""
    found = options.get(VERSION, 1)
    if found != version:
        raise ValueError(f"version {version}, which MediaPipe registers, found {found}")
    for i, (tensor, rank) in enumerate(zip(inputs, ranks, strict=True)):
        if tensor.dtype != np.float32 or (rank and len(tensor.dims) != rank):
            raise ValueError(f"input {i} of float32{f' and rank {rank}' if rank else ''}, found {tensor.dtype}{[*tensor.dims]}")
    return [real(tensor) for tensor in inputs]


CONVOLUTION_TRANSPOSE_BIAS = TfliteOperator(
    "Convolution2DTransposeBias",
    "MediaPipe's transposed convolution with a bias, whose output's dimensions follow from its strides.",
    inputs("input", "filter", "bias"),
    delegate=DETECTION.delegate,
    custom=True,
    dims=_sized(_SPREAD, _spread_dims),
)
MAX_POOLING_WITH_ARGMAX = TfliteOperator(
    "MaxPoolingWithArgmax2D",
    "MediaPipe's MAX_POOL_2D that also returns which cell of each window is the first of the largest, plus 0.1.",
    outputs=outputs("output", "indices"),
    delegate=DETECTION.delegate,
    custom=True,
    dims=_sized(_POOL, _pooled_dims),
)
MAX_UNPOOLING = TfliteOperator(
    "MaxUnpooling2D",
    "MediaPipe's inverse of MaxPoolingWithArgmax2D: each number at the cell of its window, zeros elsewhere.",
    inputs("input", "indices"),
    delegate=DETECTION.delegate,
    custom=True,
    dims=_sized(_POOL, _unpooled_dims),
)
TRANSFORM_TENSOR = TfliteOperator(
    "TransformTensorBilinear",
    "MediaPipe's crop of an image by a matrix from the crop's pixels to the image's; zeros outside of it.",
    inputs("image", "matrix"),
    delegate=DETECTION.delegate,
    custom=True,
)
TRANSFORM_LANDMARKS = TfliteOperator(
    "TransformLandmarks",
    "MediaPipe's points in another system of coordinates, by a matrix; a third coordinate stays as it is.",
    inputs("landmarks", "matrix"),
    delegate=DETECTION.delegate,
    custom=True,
)
LANDMARKS_TO_MATRIX = TfliteOperator(
    "Landmarks2TransformMatrix",
    "MediaPipe's matrix from the pixels of a crop around some landmarks to the image's, rotated as two of them are.",
    inputs("landmarks"),
    delegate=DETECTION.delegate,
    custom=True,
)


@CONVOLUTION_TRANSPOSE_BIAS.host_kernel
def host_transpose_bias(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    data, filter, bias = _floats(inputs, options, 4, 4, 1)
    if bias.shape != filter.shape[:1] or data.shape[3] != filter.shape[3]:
        raise ValueError(f"a filter and bias that fit the input, found {[*filter.shape]} and {[*bias.shape]}")
    step = _struct(_content(options), _SPREAD)
    shape = bounded([len(data), *_upsampled(data.shape, filter.shape, step, outputs[0].dims), len(filter)])
    return [spread(shape, data, filter.transpose(1, 2, 0, 3), step) + bias]


@MAX_POOLING_WITH_ARGMAX.host_kernel
def host_argmax_pool(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    (data,), step = _floats(inputs, options, 4), _struct(_content(options), _POOL)
    window = windows(data.shape[1:3], (step["filter_height"], step["filter_width"]), step)
    best = np.full((len(data), *positions(data, window), data.shape[3]), np.finfo(np.float32).min, np.float32)
    indices = np.zeros(best.shape, np.float32)
    within = np.ones((1, *data.shape[1:3], 1), np.float32)
    for ((y, x), part), (_, inside) in zip(taps(data, window), taps(within, window), strict=True):
        larger = (inside > 0) & (part > best)  # The first of equal ones stays.
        best[larger] = part[larger]
        indices[larger] = y * step["filter_width"] + x
    return [activated(best, step), indices + np.float32(0.1)]


@MAX_UNPOOLING.host_kernel
def host_unpool(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    data, places = _floats(inputs, options, 4, 4)
    step = _struct(_content(options), _POOL)
    sides = (step["filter_height"], step["filter_width"])
    shape = bounded([len(data), data.shape[1] * sides[0], data.shape[2] * sides[1], data.shape[3]])
    if places.shape != data.shape:
        raise ValueError(f"an index for each number, found {[*places.shape]} for {[*data.shape]}")
    found = np.zeros(shape, np.float32)
    grid: Array = np.indices(data.shape)
    batch, y, x, channel = (grid[k] for k in range(4))
    cell = np.trunc(places).astype(np.int64)
    row = np.trunc(cell / sides[1]).astype(np.int64)
    to = []
    for i, offset in enumerate((row, cell - row * sides[1])):
        stride, size, count, length = step[f"stride_{'hw'[i]}"], sides[i], data.shape[1 + i], shape[1 + i]
        before = max(0, (count - 1) * stride + size - length) // 2
        to.append((y, x)[i] * stride - before + offset)
    inside = (to[0] >= 0) & (to[0] < shape[1]) & (to[1] >= 0) & (to[1] < shape[2])
    # Of several numbers for one cell the last one stays, in the order of the input.
    found[batch[inside], to[0][inside], to[1][inside], channel[inside]] = data[inside]
    return [found]


def _rows(matrix: Array) -> Array:
    """The first two rows of a 4x4 matrix."""
    if matrix.size != 16:
        raise ValueError(f"a matrix of 4 x 4 numbers, found {[*matrix.shape]}")
    return matrix.reshape(4, 4)[:2].astype(np.float32)


@TRANSFORM_TENSOR.host_kernel
def host_transform_tensor(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    image, matrix = _floats(inputs, options, 4, 0, version=2)
    rows = _rows(matrix).copy()
    height, width = bounded(outputs[0].dims[1:3]) if len(outputs[0].dims) == 4 else (0, 0)
    if len(image) != 1 or not height or not width:
        raise ValueError(f"one image and an output of stated height and width, found {[*image.shape]}, {[*outputs[0].dims]}")
    # Pixels are seen as squares around their centres.
    rows[:, 3] = (rows[:, 3] + (rows[:, 0] * 0.5 + rows[:, 1] * 0.5 - 0.5)).astype(np.float32)
    x, y = np.meshgrid(np.arange(width, dtype=np.float32), np.arange(height, dtype=np.float32))
    across, down = (row[0] * x + row[1] * y + row[3] for row in rows)
    outside = (across < 0) | (across > image.shape[2] - 1) | (down < 0) | (down > image.shape[1] - 1)
    left, top = (np.where(outside, 0, np.floor(at)).astype(np.int64) for at in (across, down))
    padded = np.pad(image[0], ((0, 1), (0, 1), (0, 0)))
    to_right, to_bottom = ((at - np.floor(at)).astype(np.float32)[..., None].astype(np.float64) for at in (across, down))
    upper, lower = (
        ((1.0 - to_right) * padded[top + k, left] + to_right * padded[top + k, left + 1]).astype(np.float32) for k in (0, 1)
    )
    result = (to_bottom * lower + (1.0 - to_bottom) * upper).astype(np.float32)
    return [np.where(outside[..., None], np.float32(0), result)[None]]


@TRANSFORM_LANDMARKS.host_kernel
def host_transform_landmarks(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    landmarks, matrix = _floats(inputs, options, 3, 0, version=2)
    points, rows = landmarks.copy(), _rows(matrix)
    if points.shape[-1] not in (2, 3):
        raise ValueError(f"points of 2 or 3 coordinates, found {points.shape[-1]}")
    x, y = points[..., 0].copy(), points[..., 1].copy()
    for i, row in enumerate(rows):
        points[..., i] = row[0] * x + row[1] * y + row[3]
    return [points]


_NEEDED = ("left_rotation_idx", "right_rotation_idx", "target_rotation_radians", "output_height", "output_width")


@LANDMARKS_TO_MATRIX.host_kernel
def host_matrix(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    (landmarks,) = _floats(inputs, options, 3, version=2)
    points = landmarks.reshape(-1, 3)
    stated = flexbuffer(_content(options), LANDMARKS_TO_MATRIX.name)
    left, right, target, height, width = (float(stated.get(name, 0)) for name in _NEEDED)
    scales = [float(stated.get(f"scale_{axis}", 0)) for axis in "xy"]
    listed = [int(i) for i in np.ravel(stated.get("subset_idxs", ()))]
    if min((*listed, left, right)) < 0 or max((*listed, left, right)) >= len(points) or not listed:
        raise ValueError(f"indexes of the {len(points)} landmarks, found {listed[:4]}, {left:g}, {right:g}")
    if min(height, width, *scales) <= 0:
        raise ValueError(f"output sizes and scales above 0, found {height:g}, {width:g}, {scales}")
    across, down = points[int(right), :2] - points[int(left), :2]
    angle = np.float32(target - math.atan2(down, across))
    turn = _rotation(angle)
    chosen = points[listed, :2] @ turn.T
    low, high = chosen.min(0), chosen.max(0)
    crop_x, crop_y = _rotation(-angle) @ ((low + high) / np.float32(2))
    steps = [np.eye(4, dtype=np.float32) for _ in range(4)]
    steps[0][:2, 3] = crop_x, crop_y
    steps[1][:2, :2] = _rotation(-angle)
    steps[2][0, 0], steps[2][1, 1] = (s * d / n for s, d, n in zip(scales, high - low, (width, height), strict=True))
    steps[3][:2, 3] = -width / 2, -height / 2
    return [(steps[0] @ steps[1] @ steps[2] @ steps[3])[None]]


def _rotation(angle: np.float32) -> Array:
    cosine, sine = np.float32(np.cos(angle)), np.float32(np.sin(angle))
    return np.array([[cosine, -sine], [sine, cosine]], np.float32)
