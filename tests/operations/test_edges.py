"""Edges that neither Android's cases nor the tests by topic touch: each was found by a changed kernel that nothing noticed."""

from __future__ import annotations

import numpy as np
import pytest

from nnbridge.errors import NnapiError, OpFailedError
from nnbridge.operations import definition
from nnbridge.operations.arithmetic import mbqm, rdbp
from nnbridge.operations.call import Arg
from nnbridge.operations.detection import first_picks, hard, suppression
from nnbridge.operations.evaluate import make_call
from nnbridge.operations.fixedpoint import tanh
from nnbridge.operations.lookup import _first_above
from nnbridge.operations.numerics import NUMERICS, using
from nnbridge.operations.resizing import neighbours_fixed
from nnbridge.types import OperandCode, OperationCode
from tests.operations.calls import FLOAT, I8, U8, integers, output, run, scalar, tensor

Op, T = OperationCode, OperandCode
F32, BOOL, INTS = OperandCode.FLOAT32, OperandCode.BOOL, OperandCode.TENSOR_INT32


def whole(*values: int) -> list[Arg]:
    return [scalar(value) for value in values]


# -- arithmetic --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [-9, -8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6])
@pytest.mark.parametrize("exponent", [0, 1, 2, 3])
def test_a_number_is_divided_as_an_array_is(value: int, exponent: int) -> None:
    assert rdbp(value, exponent) == int(rdbp(np.array([value]), exponent)[0])


def test_channels_that_are_not_shifted_stay_beside_those_that_are() -> None:
    # -3 / 2 is -1.5, away from zero -2; -3 * (1 - 2**-31) is -3.
    x, multipliers, shifts = np.array([-3, -3]), np.array([2**31 - 1, 2**31 - 1]), np.array([0, -1])
    assert mbqm(x, multipliers, shifts).tolist() == [-3, -2]


def test_tanh_of_0_is_0_and_of_a_step_is_not() -> None:
    below, none, above = tanh(np.array([-1, 0, 1]), 4).tolist()
    assert (none, -below) == (0, above)
    assert above > 0


def test_a_target_beyond_a_row_is_found_behind_it() -> None:
    assert _first_above(np.array([[1.0, 2.0, 3.0]]), np.array([[0.0, 2.0, 3.0, 9.0]])).tolist() == [[0, 2, 3, 3]]


@pytest.mark.parametrize(
    ("code", "arguments", "out", "expected"),
    [
        # tanh(1) is 0.7616, 97.5 of 128 steps above the zero point.
        (Op.TANH, [tensor([0, 2], U8, scale=0.5)], output(U8, scale=1 / 128, zero_point=128), [128, 225]),
        # 1 of 1 + e, and e of it.
        (
            Op.SOFTMAX,
            [tensor([[0, 2]], U8, scale=0.5), scalar(1.0, F32)],
            output(U8, scale=1 / 256),
            [[69, 187]],
        ),
    ],
    ids=["TANH", "SOFTMAX"],
)
def test_functions_of_real_numbers_are_rounded_about_the_zero_point(
    code: OperationCode, arguments: list[Arg], out: Arg, expected: list[int]
) -> None:
    with using(NUMERICS["matrix_rounding"]):
        assert run(code, arguments, out)[0].tolist() == expected


def test_softmax_of_a_beta_beyond_all_shifts_is_of_the_largest_number() -> None:
    x = tensor([[3, 4, 4, 1]], U8, scale=1.0)
    assert run(Op.SOFTMAX, [x, scalar(1e9, F32)], output(U8, scale=1 / 256))[0].tolist() == [[0, 128, 128, 0]]


def test_softmax_of_a_beta_of_a_step_is_nearly_even() -> None:
    x = tensor([[0, 255]], U8, scale=2.0**-13)
    assert run(Op.SOFTMAX, [x, scalar(2.0**-12, F32)], output(U8, scale=1 / 256))[0].tolist() == [[128, 128]]


# -- moving ------------------------------------------------------------------------------------------------------------------


def strided(x: Arg, begin: list[int], end: list[int], step: list[int], shrink: int = 0) -> list[object]:
    vectors = [integers(values) for values in (begin, end, step)]
    return list(run(Op.STRIDED_SLICE, [x, *vectors, *whole(0, 0, shrink)])[0].tolist())


def test_strided_slice_backwards_stops_before_the_first_element() -> None:
    assert strided(tensor([1, 2, 3, 4]), [3], [0], [-1]) == [4, 3, 2]


def test_strided_slice_drops_the_second_axis() -> None:
    assert strided(tensor([[1, 2, 3], [4, 5, 6]]), [0, 1], [2, 2], [1, 1], shrink=2) == [2, 5]


@pytest.mark.parametrize(("mode", "most"), [(0, 2), (1, 3)])
def test_mirrored_paddings_reach_as_far_as_the_values_do(mode: int, most: int) -> None:
    def padded(before: int) -> list[float]:
        return list(run(Op.MIRROR_PAD, [tensor([1, 2, 3]), integers([[before, 0]]), scalar(mode)])[0].tolist())

    assert padded(most)[:most] == [3, 2, 1][:most]
    with pytest.raises(OpFailedError, match=f"paddings of at most {most}"):
        padded(most + 1)


def test_the_largest_of_whole_numbers_are_found_one_after_another() -> None:
    values, places = run(Op.TOPK_V2, [integers(np.arange(100) % 50), scalar(3)], output(INTS), output(INTS))
    assert (values.tolist(), places.tolist()) == ([49, 49, 48], [99, 49, 98])


def test_blocks_of_0_are_refused() -> None:
    for code in (Op.SPACE_TO_DEPTH, Op.DEPTH_TO_SPACE):
        with pytest.raises(OpFailedError, match="a block size of at least 1, found 0"):
            run(code, [tensor(np.ones((1, 2, 2, 4))), scalar(0)])


def test_nothing_is_filled() -> None:
    assert run(Op.FILL, [integers([0]), scalar(1.0, F32)])[0].shape == (0,)


# -- images ------------------------------------------------------------------------------------------------------------------


def test_averages_of_large_windows_hold_their_sums() -> None:
    # 12 x 12 values of 255 are 36,720.
    image = tensor(np.full((1, 12, 12, 1), 255), U8, scale=1.0)
    inputs = [image, *whole(0, 0, 0, 0, 1, 1, 12, 12, 0)]
    assert run(Op.AVERAGE_POOL_2D, inputs, output(U8, scale=1.0))[0].tolist() == [[[[255]]]]


def test_strides_of_0_are_refused() -> None:
    ones = [tensor(np.ones((1, 2, 2, 1))), tensor(np.ones((1, 1, 1, 1))), tensor([0])]
    with pytest.raises(OpFailedError, match="a stride of at least 1, found 0"):
        run(Op.TRANSPOSE_CONV_2D, [*ones, *whole(0, 0, 0, 0, 0, 1, 0), scalar(False, BOOL)])


def test_transposed_sums_of_many_terms_are_exact() -> None:
    # Each product is 255 * 255: 300 of them are 19,507,500, which float32 holds to 2 only.
    depth = 300
    x = np.full((1, 1, 1, depth), 255)
    x[..., 0] = 254  # 255 less, an odd sum
    inputs = [tensor(x, U8, scale=1.0), tensor(np.full((1, 1, 1, depth), 255), U8, scale=1.0), integers([-19_507_200])]
    inputs[2] = Arg(INTS, (1,), 1.0, 0, None, inputs[2].data)
    parameters = [*whole(0, 0, 0, 0, 1, 1, 0), scalar(False, BOOL)]
    # 19,507,245 less 19,507,200 is 45.
    [y] = run(Op.TRANSPOSE_CONV_2D, [*inputs, *parameters], output(U8, scale=1.0))
    assert y.ravel().tolist() == [45]


def test_transposed_sums_of_several_taps_are_exact() -> None:
    # The middle gets four taps of 70 products of 255 * 255, less 255: 18,206,745, which float32 does not hold.
    image = np.full((1, 2, 2, 70), 255)
    image[0, 0, 0, 0] = 254
    inputs = [tensor(image, U8, scale=1.0), tensor(np.full((1, 2, 2, 70), 255), U8, scale=1.0)]
    inputs.append(Arg(INTS, (1,), 1.0, 0, None, np.array([1 - 18_206_745], np.int32)))
    [y] = run(Op.TRANSPOSE_CONV_2D, [*inputs, *whole(0, 0, 0, 0, 1, 1, 0), scalar(False, BOOL)], output(U8, scale=1.0))
    assert y[0, 1, 1].tolist() == [1]


def test_an_odd_padding_of_a_transposed_convolution_is_larger_behind() -> None:
    # A filter of 2 over an image of 2 reaches one column beyond it, which is cut off.
    inputs = [tensor([[[[1], [10]]]]), tensor([[[[1], [2]]]]), tensor([0]), integers([1, 1, 2, 1])]
    [y] = run(Op.TRANSPOSE_CONV_2D, [*inputs, *whole(1, 1, 1, 0), scalar(False, BOOL)])
    assert y.ravel().tolist() == [1, 12]


def test_neighbours_between_aligned_corners_are_at_rounded_steps() -> None:
    # TFLite's scale is (1024 * 3 + 2) // 5 = 614 of 1,024.
    lower, upper, share = neighbours_fixed(4, 6, align_corners=True, half_pixel_centers=False)
    assert (lower.tolist(), upper.tolist()) == ([0, 0, 1, 1, 2, 2], [0, 1, 2, 2, 3, 3])
    assert share.tolist() == [0, 614, 204, 818, 408, 1022]
    # A step of 1,025 of 1,024 leads just beyond a pixel.
    lower, upper, share = neighbours_fixed(1001, 1000, align_corners=False, half_pixel_centers=False)
    assert (lower[1], upper[1], share[1]) == (1, 2, 1)


# -- boxes -------------------------------------------------------------------------------------------------------------------


def test_the_foremost_boxes_give_the_picks_that_all_of_them_give() -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        low = rng.random((300, 2)) * 20
        boxes = np.concatenate([low, low + 1 + 9 * rng.random((300, 2))], axis=1).astype(np.float32)
        scores = rng.permutation(300).astype(np.float32)
        found = first_picks(lambda chosen, boxes=boxes: boxes[chosen].T, scores, np.float32(-1), 0.3, 10)
        assert found == [box for box, _ in suppression(boxes.T, scores, hard(0.3))][:10]


def proposals(scores: list[float], size: tuple[int, int], anchors: list[list[int]], before: int) -> list[float]:
    inputs = [tensor([[[scores]]]), tensor(np.zeros((1, 1, 1, 4 * len(scores)))), tensor(anchors), tensor([size])]
    limits = [scalar(before), scalar(-1), scalar(0.5, F32), scalar(-1.0, F32), scalar(False, BOOL)]
    arguments = [*inputs, scalar(1.0, F32), scalar(1.0, F32), *limits]
    return list(run(Op.GENERATE_PROPOSALS, arguments, output(), output(), output(INTS))[0].tolist())


@pytest.mark.parametrize(("before", "left"), [(-1, 3), (0, 3), (1, 1), (2, 2)])
def test_proposals_are_as_many_as_may_be_suppressed(before: int, left: int) -> None:
    anchors = [[0, 0, 2, 2], [4, 4, 6, 6], [7, 7, 9, 9]]
    assert proposals([0.5, 0.75, 0.25], (10, 10), anchors, before) == [0.75, 0.5, 0.25][:left]


def test_proposals_of_a_wide_image_lie_in_its_width_and_height() -> None:
    # Middles at x 15 and y 3 of an image 6 high and 20 wide.
    assert proposals([0.5], (6, 20), [[14, 2, 16, 4]], -1) == [0.5]
    assert proposals([0.5], (6, 20), [[2, 8, 4, 12]], -1) == []


def test_a_box_grows_by_its_own_height_and_width() -> None:
    move = tensor([[[0, 0, np.log(2), np.log(4)]]])
    limits = [scalar(False, BOOL), *whole(1, 1, 1), scalar(0.0, F32), scalar(0.5, F32), scalar(False, BOOL)]
    inputs = [tensor([[[0, 0.5]]]), move, tensor([[10, 10, 2, 2]]), *(scalar(1.0, F32) for _ in range(4)), *limits]
    outputs = [output(), output(), output(INTS), output(INTS)]
    scores, boxes, classes, count = run(Op.DETECTION_POSTPROCESSING, inputs, *outputs)
    np.testing.assert_allclose(boxes, [[[8, 6, 12, 14]]], rtol=1e-6)
    assert [part.dtype for part in (scores, classes, count)] == [np.float32, np.int32, np.int32]


# -- levels ------------------------------------------------------------------------------------------------------------------


def level(code: OperationCode, inputs: list[Arg], out: Arg) -> int:
    """The level that the rules of an operation ask for; 1 where none does."""
    declared = definition(code)
    assert declared is not None
    asked = [rule(make_call(declared, inputs, [out])) for rule in declared.level_rules]
    return max((found[0] for found in asked if found is not None), default=1)


@pytest.mark.parametrize(("scale", "expected"), [(0.25, 3), (0.26, 1)])
def test_fully_connected_needs_level_3_up_to_the_product_of_its_scales(scale: float, expected: int) -> None:
    eights = [tensor([[1]], U8, scale=0.5) for _ in range(2)]
    assert level(Op.FULLY_CONNECTED, [*eights, integers([0]), *whole(0)], output(U8, scale=scale)) == expected


@pytest.mark.parametrize(("zero_point", "expected"), [(0, 1), (1, 3)])
def test_padding_of_bytes_needs_level_3_with_a_zero_point(zero_point: int, expected: int) -> None:
    x = tensor([1], U8, scale=1.0, zero_point=zero_point)
    assert level(Op.PAD, [x, integers([[0, 1]])], output(U8, scale=1.0, zero_point=zero_point)) == expected


@pytest.mark.parametrize(("rank", "expected"), [(1, 3), (2, 1), (3, 3), (4, 1)])
def test_softmax_without_an_axis_needs_level_3_for_other_ranks_than_2_and_4(rank: int, expected: int) -> None:
    assert level(Op.SOFTMAX, [tensor(np.ones([1] * rank)), scalar(1.0, F32)], output()) == expected


@pytest.mark.parametrize(("kind", "other", "expected"), [(U8, 0.5, 3), (U8, 0.25, 1), (I8, 0.5, 1)])
def test_concatenation_of_bytes_needs_level_3_to_rescale(kind: OperandCode, other: float, expected: int) -> None:
    parts = [tensor([1], kind, scale=scale) for scale in (0.25, other)]
    assert level(Op.CONCATENATION, [*parts, scalar(0)], output(kind, scale=0.25)) == expected


@pytest.mark.parametrize("code", [Op.CONV_2D, Op.DEPTHWISE_CONV_2D])
def test_convolutions_have_three_more_inputs_from_level_3(code: OperationCode) -> None:
    declared = definition(code)
    assert declared is not None
    for form in declared.signatures:
        least = min(form.counts)
        assert {count - least: needed for count, needed in form.counts.items()} == {0: 1, 1: 3, 3: 3}


def test_signed_bytes_and_control_flow_come_with_level_4() -> None:
    for code in (Op.RESHAPE, Op.DEPTH_TO_SPACE, Op.RESIZE_BILINEAR, Op.IF, Op.WHILE):
        declared = definition(code)
        assert declared is not None
        assert {s.level for s in declared.types if I8 in s.types.values() or not s.types} == {4}


# -- what is known when a model is built -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("x", "weights", "refused"),
    [((1, 5), (2, 3), True), ((1, 6), (2, 3), False), ((1, 5), (2, 0), False), ((0, 5), (2, 3), False), ((2, 5), (), False)],
)
def test_rows_are_counted_as_far_as_sizes_are_known(x: tuple[int, ...], weights: tuple[int, ...], refused: bool) -> None:
    declared = definition(Op.FULLY_CONNECTED)
    assert declared is not None
    inputs = [Arg(FLOAT, x), Arg(FLOAT, weights), Arg(FLOAT, (2,)), *whole(0)]
    found = [check(make_call(declared, inputs, [output()])) for check in declared.build_checks]
    assert any(reason is not None for reason in found) == refused


@pytest.mark.parametrize(("zero_point", "expected"), [(200, 101), (150, 51)])
def test_sums_of_8_bit_values_have_multipliers_that_are_doubles(zero_point: int, expected: int) -> None:
    # (-234 * 0.35 + 89 * 0.16) / 0.68 is -99.4999974 with these float32 scales; quotients that are float32 would make it -100.
    first, second = tensor([21], U8, scale=0.35, zero_point=255), tensor([89], U8, scale=0.16)
    assert run(Op.ADD, [first, second, scalar(0)], output(U8, scale=0.68, zero_point=zero_point))[0].tolist() == [expected]


@pytest.mark.parametrize("code", [Op.ADD, Op.SUB, Op.MUL])
def test_scales_whose_quotient_is_0_in_float32_are_refused(code: OperationCode) -> None:
    # 2**20 * 1e38 and 1e-30 ** 2 are beyond float32 on either side.
    small, large = (1e-30, 1.0) if code == Op.MUL else (1.0, 1e38)
    x = tensor([1], U8, scale=small)
    with pytest.raises(NnapiError, match="above 0, found 0"):
        run(code, [x, x, scalar(0)], output(U8, scale=large))


@pytest.mark.parametrize(("left", "right", "expected"), [(1, -2, [2, 3, 0, 0]), (0, 2, [1]), (2, -1, [3, 0])])
def test_paddings_of_a_transposed_convolution_may_exceed_the_filter_and_those_behind_be_negative(
    left: int, right: int, expected: list[int]
) -> None:
    # Android checks those before alone; three columns of a filter of one, from the left one on, and as many as remain.
    columns, one = tensor(np.reshape([1, 2, 3], (1, 1, 3, 1))), tensor(np.ones((1, 1, 1, 1)))
    parameters = [scalar(v) for v in (left, right, 0, 0, 1, 1, 0)]
    [y] = run(Op.TRANSPOSE_CONV_2D, [columns, one, tensor([0]), *parameters, scalar(False, BOOL)])
    assert y.ravel().tolist() == expected


def test_paddings_before_a_transposed_convolution_are_not_negative() -> None:
    one, parameters = tensor(np.ones((1, 1, 1, 1))), [scalar(v) for v in (-1, 0, 0, 0, 1, 1, 0)]
    with pytest.raises(NnapiError, match="pad_left: expected a padding of at least 0, found -1"):
        run(Op.TRANSPOSE_CONV_2D, [one, one, tensor([0]), *parameters, scalar(False, BOOL)])


def test_an_output_of_no_elements_is_bounded_by_its_other_dimensions() -> None:
    # 2**31 - 1 by as many pixels of 1,024 channels: NumPy holds no such array, even of no images.
    images, size = tensor(np.zeros((0, 2, 2, 1024))), 2**31 - 1
    with pytest.raises(OpFailedError, match="an output of 4294967295 bytes at most"):
        run(Op.RESIZE_BILINEAR, [images, *whole(size, size), scalar(False, BOOL)])
