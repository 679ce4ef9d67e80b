"""MediaPipe's custom operators on the host: values by hand, and stock LiteRT, whose XNNPACK computes one of them."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flatbuffers import flexbuffers

import nnbridge
from nnbridge.errors import NnbridgeError
from tests.tflite.files import TfliteBuilder

SAME, VALID = 1, 2
"""TfLitePadding, as it is in memory."""


def run(
    operator: str, arrays: Sequence[Any], shapes: Sequence[tuple[int, ...]], options: bytes, path: Path, version: int = 1
) -> list[np.ndarray]:
    """The operator's outputs, of these shapes."""
    file = TfliteBuilder()
    inputs = [file.tensor(np.shape(array)) for array in arrays]
    outputs = [file.tensor(shape) for shape in shapes]
    file.operator(operator, inputs, outputs, version=version, custom=options)
    found = nnbridge.plan(file.write(path / "m.tflite", inputs, outputs))
    return list(found.run([np.asarray(array, np.float32) for array in arrays]).values())


def pool(filter: int, stride: int, padding: int = SAME) -> bytes:
    """TfLitePoolParams up to its activation: of height and width alike."""
    return struct.pack("<6i", padding, stride, stride, filter, filter, 0)


def image(rows: Sequence[Sequence[float]]) -> np.ndarray:
    return np.asarray(rows, np.float32)[None, ..., None]


def test_a_transposed_convolution_begins_with_the_bias(tmp_path: Path) -> None:
    step = struct.pack("<3i", VALID, 2, 2)
    filter = np.arange(1, 5, dtype=np.float32).reshape(1, 2, 2, 1)
    (found,) = run("Convolution2DTransposeBias", [image([[1, 2]]), filter, [10]], [(1, 2, 4, 1)], step, tmp_path)
    assert found[0, ..., 0].tolist() == [[11, 12, 12, 14], [13, 14, 16, 18]]


def spread(shape: tuple[int, int], cells: int, stride: int, padding: int, stated: tuple[int, int]) -> bytes:
    """A file of one transposed convolution of images of this shape, whose output has the stated height and width."""
    rng, file = np.random.default_rng(cells), TfliteBuilder()
    x, out = file.tensor((1, *shape, 3)), file.tensor((1, *stated, 2))
    filter = file.constant(rng.standard_normal((2, cells, cells, 3)).astype(np.float32))
    bias = file.constant(rng.standard_normal(2).astype(np.float32))
    file.operator("Convolution2DTransposeBias", [x, filter, bias], [out], custom=struct.pack("<3i", padding, stride, stride))
    return file.content([x], [out])


def by_litert(model: bytes) -> list[np.ndarray]:
    """The output for drawn numbers; empty if XNNPACK leaves the operator, for which LiteRT has no kernel."""
    interpreter = pytest.importorskip("ai_edge_litert.interpreter", reason="LiteRT is not installed")
    litert = interpreter.Interpreter(model_content=model)
    try:
        litert.allocate_tensors()
    except RuntimeError:
        return []
    litert.set_tensor(0, np.random.default_rng(1).standard_normal(litert.get_input_details()[0]["shape"]).astype(np.float32))
    litert.invoke()
    return [litert.get_tensor(litert.get_output_details()[0]["index"])]


@pytest.mark.parametrize("padding", [SAME, VALID])
@pytest.mark.parametrize(
    ("length", "stride", "cells"), [(5, 1, 1), (5, 1, 3), (3, 2, 2), (4, 2, 3), (5, 2, 4), (2, 3, 3), (3, 3, 5), (3, 2, 1)]
)
def test_a_transposed_convolution_is_that_of_litert_whatever_the_file_states(
    length: int, stride: int, cells: int, padding: int, tmp_path: Path
) -> None:
    data = np.random.default_rng(1).standard_normal((1, length, length, 3)).astype(np.float32)
    path, compared = tmp_path / "m.tflite", 0
    for side in range(1, stride * length + cells + 1):
        path.write_bytes(spread((length, length), cells, stride, padding, (side, side)))
        (ours,) = nnbridge.plan(path).run([data]).values()
        for expected in by_litert(path.read_bytes()):
            compared += 1
            assert ours.shape == expected.shape, side
            np.testing.assert_allclose(ours, expected, rtol=1e-5, atol=1e-5)
    assert compared or (padding == SAME and cells < stride)


MEDIAPIPE = (1, 5, 5, 2)
"""The dimensions that MediaPipe's kernel gives to 3 by 3 pixels by stride 2, SAME: 2·2 + 2 - max(0, 2 - 2 % 2 - 1)."""


FOLLOWED = [((6, 5), (1, 6, 5, 2)), ((6, 6), (1, 6, 6, 2)), ((5, 5), MEDIAPIPE)]
LEFT = [((6, 7), MEDIAPIPE), ((7, 6), MEDIAPIPE), ((0, 0), MEDIAPIPE)]


@pytest.mark.parametrize(("stated", "dims"), [*FOLLOWED, *LEFT])
def test_what_xnnpack_leaves_has_the_dimensions_of_mediapipes_kernel(
    stated: tuple[int, int], dims: tuple[int, ...], tmp_path: Path
) -> None:
    path = tmp_path / "m.tflite"
    path.write_bytes(spread((3, 3), 2, 2, SAME, stated))
    (ours,) = nnbridge.plan(path).run([np.ones((1, 3, 3, 3), np.float32)]).values()
    assert ours.shape == dims


def test_the_index_of_a_maximum_is_that_of_the_first_one_and_a_tenth(tmp_path: Path) -> None:
    data = image([[1, 5, -3, -2], [5, 0, -2, -9]])
    largest, indices = run("MaxPoolingWithArgmax2D", [data], [(1, 1, 2, 1)] * 2, pool(2, 2), tmp_path)
    assert largest.ravel().tolist() == [5, -2]
    assert indices.ravel().tolist() == pytest.approx([1.1, 1.1])


def test_padding_is_never_a_maximum(tmp_path: Path) -> None:
    # The window of 2 by 2 at the end has one column and one row of the image.
    largest, indices = run("MaxPoolingWithArgmax2D", [image([[-1, -2, -7]] * 3)], [(1, 2, 2, 1)] * 2, pool(2, 2), tmp_path)
    assert largest.ravel().tolist() == [-1, -7, -1, -7]
    assert indices.ravel().tolist() == pytest.approx([0.1] * 4)


def test_unpooling_puts_numbers_where_they_were(tmp_path: Path) -> None:
    (found,) = run("MaxUnpooling2D", [image([[5, -2]]), image([[1.1, 2.9]])], [(1, 2, 4, 1)], pool(2, 2), tmp_path)
    assert found[0, ..., 0].tolist() == [[0, 5, 0, 0], [0, 0, -2, 0]]


def test_of_two_numbers_for_one_cell_the_last_one_stays_and_those_outside_go(tmp_path: Path) -> None:
    # Stride 1 and windows of 2: 2·2 rows, padding (1 + 2 - 4) / 2 = 0. The first window's second column is the second's first.
    data, cells = image([[5, 7], [1, 2]]), image([[1, 0], [0, 99]])
    (found,) = run("MaxUnpooling2D", [data, cells], [(1, 4, 4, 1)], pool(2, 1), tmp_path)
    assert found[0, ..., 0].tolist() == [[0, 7, 0, 0], [1, 0, 0, 0], [0] * 4, [0] * 4]


def matrix(scale: float, x: float, y: float) -> np.ndarray:
    return np.array([[[scale, 0, 0, x], [0, scale, 0, y], [0, 0, 1, 0], [0, 0, 0, 1]]], np.float32)


def test_points_are_transformed_and_their_depth_stays(tmp_path: Path) -> None:
    points = [[[1, 2, 7], [-1, 0, 8]]]
    (found,) = run("TransformLandmarks", [points, matrix(2, 10, 20)], [(1, 2, 3)], b"", tmp_path, version=2)
    assert found.tolist() == [[[12, 24, 7], [8, 20, 8]]]


def test_a_crop_is_interpolated_between_centres_of_pixels_and_zero_outside(tmp_path: Path) -> None:
    size = flexbuffers.Dumps({"output_height": 1, "output_width": 4})
    data = image([[0, 10, 20], [30, 40, 50], [60, 70, 80]])
    # Twice as fine: the centres 0.25, 0.75, 1.25, 1.75 of the crop are -0.25, 0.25, 0.75, 1.25 pixels of the image, in row 0.5.
    half = matrix(0.5, 0, 0.75)
    (found,) = run("TransformTensorBilinear", [data, half], [(1, 1, 4, 1)], size, tmp_path, version=2)
    assert found.ravel().tolist() == [0, 17.5, 22.5, 27.5]


def test_the_matrix_of_landmarks_leads_from_the_crop_to_the_image(tmp_path: Path) -> None:
    stated = {"left_rotation_idx": 0, "right_rotation_idx": 1, "target_rotation_radians": 0.0, "subset_idxs": [0, 1, 2, 3]}
    options = flexbuffers.Dumps({**stated, "output_height": 10, "output_width": 20, "scale_x": 1.0, "scale_y": 2.0})
    # A box from (2, 4) to (6, 8), not rotated: its width of 4 is 20 pixels, twice its height of 4 is 10, around (4, 6).
    points = [[[2, 6, 0], [6, 6, 0], [4, 4, 0], [4, 8, 0]]]
    (found,) = run("Landmarks2TransformMatrix", [points], [(1, 4, 4)], options, tmp_path, version=2)
    assert found[0, :2].ravel().tolist() == pytest.approx([0.2, 0, 0, 2, 0, 0.8, 0, 2])
    upright = [[[6, 2, 0], [6, 6, 0], [4, 4, 0], [8, 4, 0]]]
    (found,) = run("Landmarks2TransformMatrix", [upright], [(1, 4, 4)], options, tmp_path, version=2)
    # Rotated by a quarter: along the crop's width the image's y grows, along its height x falls.
    assert found[0, :2].ravel().tolist() == pytest.approx([0, -0.8, 0, 10, 0.2, 0, 0, 2], abs=1e-6)


REFUSED = {
    "no struct": ("MaxUnpooling2D", pool(2, 2)[:8], 1, "custom options of 24 bytes at least, found 8"),
    "padding 0": ("MaxUnpooling2D", pool(2, 2, padding=0), 1, r"padding 1 \(SAME\) or 2 \(VALID\), found 0"),
    "stride 0": ("MaxUnpooling2D", pool(2, 0), 1, "strides and windows of 1 at least"),
    "version 2": ("MaxUnpooling2D", pool(2, 2), 2, "version 1, which MediaPipe registers, found 2"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_mediapipe_does_not_compute_is_refused_with_the_reason(case: str, tmp_path: Path) -> None:
    operator, options, version, message = REFUSED[case]
    with pytest.raises(NnbridgeError, match=message):
        run(operator, [image([[1]]), image([[0]])], [(1, 2, 2, 1)], options, tmp_path, version)
