"""Regions of feature maps, bin by bin."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nnbridge.errors import NnapiError
from nnbridge.types import OperandCode, OperationCode
from tests.operations.calls import integers, run, scalar, tensor


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
