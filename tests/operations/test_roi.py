"""Regions of feature maps, bin by bin."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nnbridge.errors import NnapiError
from nnbridge.types import OperandCode, OperationCode
from tests.operations.calls import U8, integers, output, run, scalar, tensor


def bins(start: int, end: int, count: int, size: int) -> list[range]:
    """The cells of each bin of a region that both of its ends belong to; bins overlap where they share a cell."""
    width = (end - start + 1) / count
    return [range(start + math.floor(k * width), min(start + math.ceil((k + 1) * width), size)) for k in range(count)]


@settings(max_examples=100, deadline=None)
@given(
    seed=st.integers(0, 2**32), sizes=st.tuples(*[st.integers(1, 12)] * 2), outputs=st.tuples(*[st.sampled_from([1, 2, 4])] * 2)
)
def test_roi_pooling_takes_the_highest_cell_of_each_bin(seed: int, sizes: tuple[int, int], outputs: tuple[int, int]) -> None:
    rng = np.random.default_rng(seed)
    maps = rng.integers(-9, 9, (2, *sizes, 3)).astype(np.float32)
    (y1, y2), (x1, x2) = (sorted(rng.integers(0, size, 2).tolist()) for size in sizes)
    image = int(rng.integers(2))
    expected = np.zeros((1, *outputs, 3), np.float32)
    for i, rows in enumerate(bins(y1, y2, outputs[0], sizes[0])):
        for j, columns in enumerate(bins(x1, x2, outputs[1], sizes[1])):
            cells = [maps[image, y, x] for y in rows for x in columns]
            expected[0, i, j] = np.max(cells, axis=0) if cells else 0
    scalars = [*(scalar(size) for size in outputs), *[scalar(1.0, OperandCode.FLOAT32)] * 2, scalar(False, OperandCode.BOOL)]
    [pooled] = run(OperationCode.ROI_POOLING, [tensor(maps), tensor([[x1, y1, x2, y2]]), integers([image]), *scalars])
    np.testing.assert_array_equal(pooled, expected)


def test_regions_may_reach_as_far_as_the_image_on_each_side() -> None:
    # Two rows and four columns, of which each stands for one row and two columns of the image: x up to 8, y up to 2.
    maps, sizes = tensor(np.arange(8).reshape(1, 2, 4, 1)), [scalar(1)] * 2
    rest = [*sizes, scalar(1.0, OperandCode.FLOAT32), scalar(2.0, OperandCode.FLOAT32), scalar(False, OperandCode.BOOL)]
    [pooled] = run(OperationCode.ROI_POOLING, [maps, tensor([[0, 0, 8, 2]]), integers([0]), *rest])
    assert pooled.item() == 7
    for region in ([0, 0, 8.5, 2], [0, 0, 8, 2.5], [-0.5, 0, 8, 2], [0, -0.5, 8, 2]):
        with pytest.raises(NnapiError, match="regions inside the image"):
            run(OperationCode.ROI_POOLING, [maps, tensor([region]), integers([0]), *rest])


@pytest.mark.parametrize("region", [[2, 0, 1, 1], [0, 2, 1, 1]])
def test_corners_are_in_order_along_both_axes(region: list[int]) -> None:
    with pytest.raises(NnapiError, match="corners with x1 <= x2 and y1 <= y2"):
        run(OperationCode.ROI_POOLING, [tensor(np.ones((1, 4, 4, 1))), tensor([region]), integers([0]), *_ONE_CELL])


def test_the_refusal_of_corners_shows_the_first_region_that_is_wrong() -> None:
    regions = tensor([[0, 0, 1, 1], [2, 0, 1, 1], [3, 0, 1, 1]])
    with pytest.raises(NnapiError, match=r"found \[\[2\.0, 0\.0, 1\.0, 1\.0\]\]"):
        run(OperationCode.ROI_POOLING, [tensor(np.ones((1, 4, 4, 1))), regions, integers([0] * 3), *_ONE_CELL])


_ONE_CELL = [scalar(1), scalar(1), *[scalar(1.0, OperandCode.FLOAT32)] * 2, scalar(False, OperandCode.BOOL)]


def test_a_region_at_the_far_edge_has_no_cells() -> None:
    # Its first row and column lie behind the last ones of a map that is deeper than it is high and wide.
    [pooled] = run(OperationCode.ROI_POOLING, [tensor(np.ones((1, 2, 3, 9))), tensor([[3, 2, 3, 2]]), integers([0]), *_ONE_CELL])
    assert pooled.tolist() == [[[[0.0] * 9]]]


def test_one_sample_of_a_bin_lies_in_its_middle() -> None:
    # The middle of 0 to 3 is 1.5, between the cells 4 and 9. As many samples as cells, at 0.5, 1.5 and 2.5: 2, 6.5 and 12.5.
    maps, middle = tensor(np.reshape([0, 4, 9, 16], (1, 1, 4, 1))), [scalar(1.0, OperandCode.FLOAT32)] * 2
    for samples, mean in ((1, 6.5), (0, 7.0)):
        tail = [scalar(1), scalar(1), *middle, scalar(1), scalar(samples), scalar(False, OperandCode.BOOL)]
        [y] = run(OperationCode.ROI_ALIGN, [maps, tensor([[0, 0, 3, 0]]), integers([0]), *tail])
        assert y.item() == mean


def heatmap(cells: list[list[float]], kind: OperandCode = OperandCode.TENSOR_FLOAT32, boxes: int = 1) -> list[list[float]]:
    """The keypoint of one heatmap in boxes as wide and high as its cells, and its score."""
    size = len(cells)
    maps = tensor(np.reshape(cells, (1, size, size, 1)), kind)
    arguments = [maps, tensor([[0, 0, size, size]] * boxes, kind), scalar(False, OperandCode.BOOL)]
    scores, points = run(OperationCode.HEATMAP_MAX_KEYPOINT, arguments, output(kind), output(kind))
    return [*points.reshape(-1, 2).tolist(), scores.reshape(-1).tolist()]


def test_the_smallest_heatmap_mirrors_at_both_sides() -> None:
    # Around the cell 1 at 0, 0 lie 0 on all sides: its own middle is the top.
    assert heatmap([[1, 0], [0, 0]]) == [[0.5, 0.5], [1.0]]


def test_a_heatmap_without_its_box_is_refused_by_name() -> None:
    with pytest.raises(NnapiError, match="boxes: expected 1 boxes, found 3"):
        heatmap([[1, 0], [0, 0]], boxes=3)


def test_a_ridge_has_no_summit_beside_its_highest_cell() -> None:
    # The mixed curvature is the root of the others' product, -2.25 by -2: the determinant is 0, whatever the slope (N169).
    far = -4 * 4.5**0.5 / 2 - 0.25
    assert heatmap([[-0.25, -1, far], [-1, 0, -1.25], [far, -1, -0.25]]) == [[1.5, 1.5], [0]]


def test_a_float16_summit_counts_as_flat_earlier() -> None:
    # Curvatures of -1/64 have a determinant of 1/4096: above 1e-5, below 1e-3 (N169). The slope of 1/256 moves the top by 1/4.
    low, high = 1 - 3 / 256, 1 - 1 / 256
    cells = [[0.5, 1 - 2 / 256, 0.5], [low, 1, high], [0.5, 1 - 2 / 256, 0.5]]
    assert heatmap(cells)[0] == pytest.approx([1.75, 1.5])
    assert heatmap(cells, OperandCode.TENSOR_FLOAT16)[0] == [1.5, 1.5]


def test_regions_are_scaled_by_the_reciprocal_of_the_stride() -> None:
    # 1 / 41 in float32 is below a 41st: 20.5 is 0.49999997 of a cell and begins in the first one, where 20.5 / 41 is a half.
    maps, stride = tensor(np.arange(2).reshape(1, 1, 2, 1)), scalar(41.0, OperandCode.FLOAT32)
    rest = [integers([0]), scalar(1), scalar(1), stride, stride, scalar(False, OperandCode.BOOL)]
    [pooled] = run(OperationCode.ROI_POOLING, [maps, tensor([[0, 0, 20.5, 0]]), *rest])
    assert pooled.item() == 0


def test_8_bit_samples_have_weights_of_whole_float32_steps_of_a_255th() -> None:
    # The middle of 1 to 2 is a half of either cell: 127 steps each, for float32's are a bit longer. 200 * 254 / 255 is 199.2.
    maps = tensor(np.full((1, 1, 4, 1), 200), U8, scale=1.0)
    regions = tensor([[8, 0, 16, 0]], OperandCode.TENSOR_QUANT16_ASYMM, scale=0.125)
    rest = [scalar(1), scalar(1), *[scalar(1.0, OperandCode.FLOAT32)] * 2, scalar(1), scalar(1), scalar(False, OperandCode.BOOL)]
    [y] = run(OperationCode.ROI_ALIGN, [maps, regions, integers([0]), *rest], output(U8, scale=1.0))
    assert y.item() == 199


def test_a_keypoint_is_not_where_there_is_no_number() -> None:
    assert heatmap([[0, 0, np.nan, 0], [0, 0, 0, 0], [0, 1, 0, 0], [0, 0, 0, 0]])[0] == [1.5, 2.5]
