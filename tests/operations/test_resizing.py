"""RESIZE_BILINEAR and RESIZE_NEAREST_NEIGHBOR: where pixels lie and how they are mixed."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from nnbridge.errors import OpFailedError
from nnbridge.operations import resizing
from nnbridge.operations.call import Arg
from nnbridge.types import OperandCode, OperationCode
from tests.operations.calls import FLOAT, I8, U8, output, run, scalar, tensor

Op = OperationCode
F32, BOOL = OperandCode.FLOAT32, OperandCode.BOOL


def row(values: Any, kind: OperandCode = FLOAT) -> Arg:
    """An image of one row and one channel."""
    scale = 0.0 if kind == FLOAT else 1.0
    return tensor(np.reshape(values, (1, 1, -1, 1)), kind, scale=scale)


def resized(code: OperationCode, image: Arg, width: float, *, corners: bool = False, centres: bool = False) -> npt.NDArray[Any]:
    """A row at another width."""
    kind = OperandCode(image.type)
    flags = [scalar(flag, BOOL) for flag in (False, corners, centres)]
    [y] = run(code, [image, scalar(width), scalar(1), *flags], output(kind, scale=image.scale))
    return y.reshape(-1)


# A size of an image and the new one: any two, or two in proportion, whose positions repeat.
_SIZES = st.tuples(st.integers(1, 14), st.integers(1, 14)) | st.tuples(*[st.integers(1, 4)] * 3).map(
    lambda sizes: (4 * sizes[0] * sizes[1], 4 * sizes[0] * sizes[2])
)


def test_bilinear_weights_follow_the_distance() -> None:
    # Positions 0, 2/3, 4/3 of [0, 3]: 0, 2, and the last pixel again.
    np.testing.assert_allclose(resized(Op.RESIZE_BILINEAR, row([0, 3]), 3), [0, 2, 3], rtol=1e-6)


def test_aligned_corners_keep_both_ends() -> None:
    # Positions 0, 0.5 and 1 of [0, 3].
    np.testing.assert_allclose(resized(Op.RESIZE_BILINEAR, row([0, 3]), 3, corners=True), [0, 1.5, 3])


def test_half_pixel_centres_move_bilinear_positions_by_half_a_pixel() -> None:
    # (x + 0.5) / 2 - 0.5 = -0.25, 0.25, 0.75, 1.25; the first is counted from pixel 0, whose both sides it is.
    np.testing.assert_allclose(resized(Op.RESIZE_BILINEAR, row([0, 4]), 4, centres=True), [0, 1, 3, 4])


def test_nearest_rounds_down_and_with_aligned_corners_to_nearest() -> None:
    # Positions 0, 0.5, 1, 1.5 rounded down; aligned 0, 1/3, 2/3, 1 rounded to nearest.
    assert resized(Op.RESIZE_NEAREST_NEIGHBOR, row([7, 9]), 4).tolist() == [7, 7, 9, 9]
    assert resized(Op.RESIZE_NEAREST_NEIGHBOR, row([7, 9, 8]), 4).tolist() == [7, 7, 9, 8]
    assert resized(Op.RESIZE_NEAREST_NEIGHBOR, row([7, 9, 8]), 4, corners=True).tolist() == [7, 9, 9, 8]


def test_nearest_with_half_pixel_centres_does_not_take_the_half_off_again() -> None:
    # (x + 0.5) * 2 = 1 and 3 of four pixels.
    assert resized(Op.RESIZE_NEAREST_NEIGHBOR, row([1, 2, 3, 4]), 2, centres=True).tolist() == [2, 4]


def test_width_comes_before_height() -> None:
    [y] = run(Op.RESIZE_BILINEAR, [tensor(np.ones((1, 2, 3, 1))), scalar(5), scalar(7)])
    assert y.shape == (1, 7, 5, 1)


def test_factors_are_rounded_down_to_sizes() -> None:
    # 3 * 1.5 = 4.5 wide, 2 * 0.9 = 1.8 high.
    [y] = run(Op.RESIZE_BILINEAR, [tensor(np.ones((1, 2, 3, 1))), scalar(1.5, F32), scalar(0.9, F32)])
    assert y.shape == (1, 1, 4, 1)


@pytest.mark.parametrize("factor", [0.1, -1.0, np.nan, np.inf])
def test_a_factor_that_gives_no_size_is_refused(factor: float) -> None:
    with pytest.raises(OpFailedError, match="a width above 0"):
        run(Op.RESIZE_BILINEAR, [tensor(np.ones((1, 2, 2, 1))), scalar(factor, F32), scalar(1.0, F32)])


def test_both_ways_to_place_pixels_at_once_are_refused() -> None:
    with pytest.raises(OpFailedError, match="at most one of align_corners and half_pixel_centers"):
        resized(Op.RESIZE_BILINEAR, row([1, 2]), 3, corners=True, centres=True)


def test_unsigned_results_truncate_and_signed_ones_round() -> None:
    # 2/3 of the way from 100 to 200 is 166.67.
    assert resized(Op.RESIZE_BILINEAR, row([100, 200], U8), 3).tolist() == [100, 166, 200]
    assert resized(Op.RESIZE_BILINEAR, row([-28, 72], I8), 3).tolist() == [-28, 39, 72]


def test_signed_positions_past_the_last_pixel_repeat_it() -> None:
    # 5 * 1024 / 3000 = 1.71 rounds to 2, and 2999 * 2 / 1024 = 5.86 is outside five pixels.
    y = resized(Op.RESIZE_BILINEAR, row([-128, -50, 0, 50, 127], I8), 3000)
    assert y[0] == -128
    assert set(y[2560:].tolist()) == {127}


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_a_value_that_is_not_finite_leaves_no_number_where_it_has_a_share_of_0(value: float) -> None:
    # What LiteRT's reference kernel, which is NNAPI's, answers: the rows' shares are 1 and 0.
    np.testing.assert_array_equal(resized(Op.RESIZE_BILINEAR, row([1, value, 3]), 6), [1, np.nan, np.nan, np.nan, 3, 3])


def test_an_image_that_shrinks_has_no_number_where_it_takes_infinity() -> None:
    np.testing.assert_array_equal(resized(Op.RESIZE_BILINEAR, row([1, np.inf, np.inf, 4]), 2), [1, np.nan])


def test_images_stay_as_they_are_when_rows_are_left_out_and_columns_double() -> None:
    image = tensor(np.arange(24, dtype=np.float32).reshape(1, 8, 3, 1))
    [y] = run(Op.RESIZE_BILINEAR, [image, scalar(6), scalar(4)])
    assert y[0, 1, :, 0].tolist() == [6, 6.5, 7, 7.5, 8, 8]
    assert image.data.reshape(-1).tolist() == list(range(24))


def test_an_image_of_its_own_size_is_a_copy() -> None:
    image = row([1, 2, 3])
    assert not np.shares_memory(run(Op.RESIZE_BILINEAR, [image, scalar(3), scalar(1)])[0], image.data)


def test_nchw_images_are_resized_over_their_last_dimensions() -> None:
    x = np.random.default_rng(2).normal(size=(2, 3, 4, 5)).astype(np.float32)
    size = [scalar(7), scalar(6)]
    [nhwc] = run(Op.RESIZE_BILINEAR, [tensor(x), *size, scalar(False, BOOL)])
    [nchw] = run(Op.RESIZE_BILINEAR, [tensor(x.transpose(0, 3, 1, 2)), *size, scalar(True, BOOL)])
    np.testing.assert_array_equal(nchw.transpose(0, 2, 3, 1), nhwc)


def test_no_images_give_no_images() -> None:
    [y] = run(Op.RESIZE_NEAREST_NEIGHBOR, [tensor(np.ones((0, 2, 2, 1))), scalar(3), scalar(3), scalar(False, BOOL)])
    assert y.shape == (0, 3, 3, 1)


@settings(max_examples=200, deadline=None)
@given(
    vertical=_SIZES,
    horizontal=_SIZES,
    channels=st.sampled_from([1, 3]),
    placing=st.sampled_from(["", "corners", "centres"]),
    seed=st.integers(0, 2**32),
)
@example((12, 8), (12, 8), 3, "", 0)
@example((17, 187), (14, 144), 1, "", 0)  # shares that round differently, at positions without an even distance
@example((3, 5), (14, 144), 1, "corners", 0)
def test_pixels_are_mixed_of_four_wherever_they_lie(
    vertical: tuple[int, int], horizontal: tuple[int, int], channels: int, placing: str, seed: int
) -> None:
    image = np.random.default_rng(seed).integers(-128, 128, (2, vertical[0], horizontal[0], channels))
    flags = [scalar(flag, BOOL) for flag in (False, placing == "corners", placing == "centres")]
    arguments = [scalar(horizontal[1]), scalar(vertical[1]), *flags]
    [real] = run(Op.RESIZE_BILINEAR, [tensor(image), *arguments])
    np.testing.assert_allclose(real, _mixed(image, vertical, horizontal, placing), rtol=1e-4, atol=1e-3)
    [signed] = run(Op.RESIZE_BILINEAR, [tensor(image, I8, scale=1.0), *arguments], output(I8, scale=1.0))
    # Its start and its steps are only good to half of 1/1024 each, down and across, of a difference of 255.
    assert np.abs(signed - real).max() <= 0.5 + (vertical[1] + horizontal[1] + 2) / 2 * 255 / 1024


def _mixed(image: npt.NDArray[Any], vertical: tuple[int, int], horizontal: tuple[int, int], placing: str) -> npt.NDArray[Any]:
    """Rows, then columns of an image, each mixed of its two neighbours."""
    for axis, (size, new_size) in ((1, vertical), (2, horizontal)):
        step = (size - 1) / (new_size - 1) if placing == "corners" and new_size > 1 else size / new_size
        places = [(i + 0.5) * step - 0.5 if placing == "centres" else i * step for i in range(new_size)]
        inside = np.clip(places, 0, size - 1)
        lower = np.floor(inside).astype(int)
        share = np.reshape(inside - lower, [-1 if k == axis else 1 for k in range(4)])
        image = image.take(lower, axis) * (1 - share) + image.take(np.minimum(lower + 1, size - 1), axis) * share
    return image


@given(st.lists(st.integers(0, 255), min_size=1, max_size=6), st.integers(1, 9), st.sampled_from(["", "corners", "centres"]))
def test_mixed_values_lie_between_their_neighbours(values: list[int], width: int, placing: str) -> None:
    flags: dict[str, bool] = {placing: True} if placing else {}
    unsigned = resized(Op.RESIZE_BILINEAR, row(values, U8), width, **flags).astype(int)
    signed = resized(Op.RESIZE_BILINEAR, row(np.subtract(values, 128), I8), width, **flags).astype(int)
    # Truncation takes up to 1 off, and positions are only good to 1/1024 for signed values.
    assert np.abs(unsigned - (signed + 128)).max() <= 2
    assert min(values) - 1 <= unsigned.min()
    assert unsigned.max() <= max(values)


@pytest.mark.parametrize("centres", [True, False])
@pytest.mark.parametrize("kind", [FLOAT, I8])
@pytest.mark.parametrize("depth", [1, 3])
def test_doubled_images_are_the_same_whether_pieces_are_added_as_one_or_each(
    depth: int, kind: OperandCode, centres: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    image = tensor(np.random.default_rng(depth).integers(-128, 128, (2, 5, 6, depth)), kind, scale=0.0 if kind == FLOAT else 1.0)
    flags = [scalar(flag, BOOL) for flag in (False, False, centres)]
    made = []
    for many in (0, 1 << 30):
        monkeypatch.setattr(resizing, "_MANY", many)
        made += run(Op.RESIZE_BILINEAR, [image, scalar(12), scalar(10), *flags], output(kind, scale=image.scale))
    np.testing.assert_array_equal(*made)


@pytest.mark.parametrize("code", [Op.RESIZE_BILINEAR, Op.RESIZE_NEAREST_NEIGHBOR])
def test_long_tables_are_left_to_the_run_and_give_the_same(code: OperationCode, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = resized(code, row([0, 3, 5]), 8)
    monkeypatch.setattr(resizing, "_LONG", 2)
    np.testing.assert_array_equal(resized(code, row([0, 3, 5]), 8), expected)


def test_images_shrunk_by_a_third_are_the_same_whether_pieces_are_added_as_one_or_each(monkeypatch: pytest.MonkeyPatch) -> None:
    # Every second pixel of three in place of two lies between neighbours that are three apart from the next.
    image = tensor(np.random.default_rng(0).normal(size=(2, 12, 12, 3)))
    [each] = run(Op.RESIZE_BILINEAR, [image, scalar(8), scalar(8)])
    monkeypatch.setattr(resizing, "_MANY", 0)
    [as_one] = run(Op.RESIZE_BILINEAR, [image, scalar(8), scalar(8)])
    np.testing.assert_array_equal(as_one, each)


def test_a_size_of_32_bits_is_refused() -> None:
    with pytest.raises(OpFailedError, match=r"a width above 0 and below 2\*\*31, found 3000000000\.0"):
        run(Op.RESIZE_BILINEAR, [row([1, 2, 3]), scalar(1e9, F32), scalar(1.0, F32)])


def test_signed_positions_of_aligned_corners_are_steps_of_1_over_1024_rounded_half_up() -> None:
    # 1024 / 22 = 46.5 is 47: pixel 21 lies at 987 / 1024 of -128 to 127. 1024 / 2048 = 0.5 is 1: pixel 512 lies in the middle.
    assert resized(Op.RESIZE_BILINEAR, row([-128, 127], I8), 23, corners=True)[21] == 118
    assert resized(Op.RESIZE_BILINEAR, row([-100, 100], I8), 2049, corners=True)[512] == 0


def test_the_last_of_millions_of_pixels_rounds_to_no_pixel_behind_the_image() -> None:
    # In float32, (8388604 + 0.5) * (3 / 8388605) is 3.
    assert resized(Op.RESIZE_NEAREST_NEIGHBOR, row([1, 2, 3], U8), 8_388_605, centres=True)[-1] == 3
