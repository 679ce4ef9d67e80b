"""Reference kernels on values worked by hand; the arithmetic stands beside each."""

from __future__ import annotations

import numpy as np
import pytest

from nnbridge.errors import NnapiError, OpFailedError
from nnbridge.model import ChannelQuant
from nnbridge.operations.arithmetic import quantize_multiplier, quantize_multipliers
from nnbridge.operations.farmhash import fingerprint64
from nnbridge.types import OperandCode, OperationCode
from tests.operations.calls import FLOAT, I8, U8, integers, omitted, output, run, scalar, tensor

Op = OperationCode
F32 = OperandCode.FLOAT32


def test_add_broadcasts_and_clamps() -> None:
    # RELU6 of [[1, 2], [3, 4]] + [-2, 3] = [[-1, 5], [1, 7]].
    [y] = run(Op.ADD, [tensor([[1, 2], [3, 4]]), tensor([-2, 3]), scalar(3)])
    np.testing.assert_array_equal(y, [[0, 5], [1, 6]])


def test_add_of_8_bit_values_rescales_both_sides() -> None:
    # (10 - 2) * 0.5 + (20 - 4) * 0.25 = 4 + 4 = 8; 8 / 2 + 1 = 5.
    a, b = tensor([10], U8, scale=0.5, zero_point=2), tensor([20], U8, scale=0.25, zero_point=4)
    [y] = run(Op.ADD, [a, b, scalar(0)], output(U8, scale=2.0, zero_point=1))
    assert y.tolist() == [5]


def test_add_of_8_bit_values_of_the_smallest_scales_loses_no_digits() -> None:
    # 3 + 4 steps of 2**-22 each.
    a, b = tensor([3], U8, scale=2.0**-22), tensor([4], U8, scale=2.0**-22)
    [y] = run(Op.ADD, [a, b, scalar(0)], output(U8, scale=2.0**-22))
    assert y.tolist() == [7]


def test_int32_division_rounds_down_and_gives_0_for_0() -> None:
    [y] = run(Op.DIV, [integers([7, -7, 7]), integers([2, 2, 0]), scalar(0)], output(OperandCode.TENSOR_INT32))
    assert y.tolist() == [3, -4, 0]


def test_int32_addition_wraps() -> None:
    [y] = run(Op.ADD, [integers([2**31 - 1]), integers([1]), scalar(0)], output(OperandCode.TENSOR_INT32))
    assert y.tolist() == [-(2**31)]


def test_mul_of_8_bit_values() -> None:
    # 3 * 0.5 * 4 * 0.5 = 3; 3 / 1 = 3.
    a = tensor([3], U8, scale=0.5)
    [y] = run(Op.MUL, [a, tensor([4], U8, scale=0.5), scalar(0)], output(U8, scale=1.0))
    assert y.tolist() == [3]


def test_maximum_keeps_the_first_value_against_nan() -> None:
    # std::max(a, b) is a unless a < b, which is false for NaN.
    [y] = run(Op.MAXIMUM, [tensor([1, np.nan]), tensor([np.nan, 1])])
    assert y[0] == 1
    assert np.isnan(y[1])


def test_8_bit_comparison_is_of_real_numbers() -> None:
    # 10 * 0.5 = 5 and 5 * 1 = 5.
    a, b = tensor([10], U8, scale=0.5), tensor([5], U8, scale=1.0)
    [y] = run(Op.EQUAL, [a, b], output(OperandCode.TENSOR_BOOL8))
    assert y.tolist() == [1]


def test_logical_values_are_any_non_zero_byte() -> None:
    booleans = OperandCode.TENSOR_BOOL8
    [y] = run(Op.LOGICAL_AND, [tensor([2, 1, 0], booleans), tensor([1, 0, 3], booleans)], output(booleans))
    assert y.tolist() == [1, 0, 0]


def test_relu_of_8_bit_values_clamps_at_the_inputs_zero_point() -> None:
    [y] = run(Op.RELU, [tensor([100, 128, 200], U8, scale=0.5, zero_point=128)], output(U8, scale=0.5, zero_point=128))
    assert y.tolist() == [128, 128, 200]


def test_softmax_of_8_bit_values_has_a_scale_of_1_over_256() -> None:
    # Four equal values have shares of a quarter: 64 / 256.
    [y] = run(Op.SOFTMAX, [tensor([[7, 7, 7, 7]], U8, scale=0.1), scalar(1.0, F32)], output(U8, scale=1 / 256))
    assert y.tolist() == [[64, 64, 64, 64]]


def test_softmax_of_8_bit_values_counts_differences_of_many_small_steps() -> None:
    # 40 steps of 1/16 are 2.5: 256 / (1 + exp(-2.5)) = 236.6 and 256 / (1 + exp(2.5)) = 19.4.
    [y] = run(Op.SOFTMAX, [tensor([[50, 10]], U8, scale=1 / 16), scalar(1.0, F32)], output(U8, scale=1 / 256))
    assert y.tolist() == [[237, 19]]


def test_logistic_of_signed_values_is_the_unsigned_result_less_128() -> None:
    x = np.arange(0, 256, 5)
    quant = {"scale": 0.05, "zero_point": 128}
    [unsigned] = run(Op.LOGISTIC, [tensor(x, U8, **quant)], output(U8, scale=1 / 256))
    [signed] = run(Op.LOGISTIC, [tensor(x - 128, I8, scale=0.05)], output(I8, scale=1 / 256, zero_point=-128))
    np.testing.assert_array_equal(signed.astype(int), unsigned.astype(int) - 128)


def test_quantize_rounds_half_away_from_zero() -> None:
    # 0.25 / 0.5 = 0.5 -> 1, -0.25 / 0.5 -> -1, and 128 is added.
    [y] = run(Op.QUANTIZE, [tensor([0.25, -0.25, 1000])], output(U8, scale=0.5, zero_point=128))
    assert y.tolist() == [129, 127, 255]


def test_cast_truncates_and_saturates_to_8_bit() -> None:
    [y] = run(Op.CAST, [tensor([-1.5, 2.9, 300.0])], output(U8, scale=1.0))
    assert y.tolist() == [0, 2, 255]
    [z] = run(Op.CAST, [tensor([-1.5, 2.9])], output(OperandCode.TENSOR_INT32))
    assert z.tolist() == [-1, 2]


_IMAGE = np.arange(1, 10, dtype=np.float32).reshape(1, 3, 3, 1)
_PARAMETERS = [scalar(v) for v in (2, 1, 1, 0)]  # VALID, strides 1, no activation


def test_convolution_sums_products_of_windows() -> None:
    # A 2 x 2 window of ones over 1..9: 1+2+4+5, 2+3+5+6, 4+5+7+8, 5+6+8+9, and bias 1.
    [y] = run(Op.CONV_2D, [tensor(_IMAGE), tensor(np.ones((1, 2, 2, 1))), tensor([1]), *_PARAMETERS])
    np.testing.assert_array_equal(y[0, :, :, 0], [[13, 17], [25, 29]])


def test_nchw_data_gives_the_same_numbers_in_the_other_order() -> None:
    weights, bias = tensor(np.random.default_rng(0).normal(size=(2, 2, 2, 1))), tensor([1, 2])
    [nhwc] = run(Op.CONV_2D, [tensor(_IMAGE), weights, bias, *_PARAMETERS])
    flag = scalar(True, OperandCode.BOOL)
    [nchw] = run(Op.CONV_2D, [tensor(_IMAGE.transpose(0, 3, 1, 2)), weights, bias, *_PARAMETERS, flag])
    np.testing.assert_array_equal(nchw, nhwc.transpose(0, 3, 1, 2))


def test_per_channel_filters_have_a_multiplier_for_each_channel() -> None:
    # 4 * 0.5 = 2 times 2 * 0.5 = 1 gives 2; times 2 * 0.25 gives 1. The output's scale is 0.5.
    quant = ChannelQuant((0.5, 0.25), 0)
    weights = tensor(np.full((2, 1, 1, 1), 2), OperandCode.TENSOR_QUANT8_SYMM_PER_CHANNEL, channel_quant=quant)
    inputs = [tensor(np.full((1, 1, 1, 1), 4), U8, scale=0.5), weights, integers([0, 0]), *_PARAMETERS]
    [y] = run(Op.CONV_2D, inputs, output(U8, scale=0.5))
    assert y.reshape(-1).tolist() == [4, 2]


def test_a_bias_of_the_wrong_scale_is_refused() -> None:
    x, w = tensor(np.ones((1, 1, 1, 1)), U8, scale=0.5), tensor(np.ones((1, 1, 1, 1)), U8, scale=0.5)
    bias = tensor([0], OperandCode.TENSOR_INT32, scale=0.3)
    with pytest.raises(OpFailedError, match=r"a bias scale of 0\.25"):
        run(Op.CONV_2D, [x, w, bias, *_PARAMETERS], output(U8, scale=1.0))
    row, column = tensor([[1]], U8, scale=0.5), tensor([[1]], U8, scale=0.5)
    with pytest.raises(OpFailedError, match=r"a bias scale of 0\.25, found 0\.3"):
        run(Op.FULLY_CONNECTED, [row, column, bias, scalar(0)], output(U8, scale=1.0))


def test_depthwise_convolution_keeps_channels_apart() -> None:
    # Multiplier 2: channel 0 (value 3) times 1 and 2, channel 1 (value 5) times 10 and 20.
    inputs = [tensor([[[[3, 5]]]]), tensor([[[[1, 2, 10, 20]]]]), tensor([0, 0, 0, 0])]
    [y] = run(Op.DEPTHWISE_CONV_2D, [*inputs, *(scalar(v) for v in (2, 1, 1, 2, 0))])
    assert y.reshape(-1).tolist() == [3, 6, 50, 100]


def test_transposed_convolution_adds_the_filter_around_each_input() -> None:
    # Stride 1, a 2 x 2 filter of ones over [[1, 2]]: 1, 1+2, 2 in two rows.
    flag = scalar(False, OperandCode.BOOL)
    explicit = [scalar(v) for v in (0, 0, 0, 0, 1, 1, 0)]
    inputs = [tensor(np.array([1, 2]).reshape(1, 1, 2, 1)), tensor(np.ones((1, 2, 2, 1))), tensor([0]), *explicit, flag]
    [y] = run(Op.TRANSPOSE_CONV_2D, inputs)
    np.testing.assert_array_equal(y[0, :, :, 0], [[1, 3, 2], [1, 3, 2]])


def test_fully_connected_flattens_its_input() -> None:
    # [1, 2, 3, 4] against [1, 1, 1, 1] and [0, 0, 0, 2], bias 10.
    inputs = [tensor([[[1, 2], [3, 4]]]), tensor([[1, 1, 1, 1], [0, 0, 0, 2]]), tensor([10, 10]), scalar(0)]
    [y] = run(Op.FULLY_CONNECTED, inputs)
    np.testing.assert_array_equal(y, [[20, 18]])


def test_products_beyond_24_bits_stay_exact() -> None:
    # 3000 products of 255 * 255 are 195,075,000, more than float32 holds; the multiplier brings it to 195.
    x, w = tensor(np.full((1, 3000), 255), U8, scale=1.0), tensor(np.full((1, 3000), 255), U8, scale=1.0)
    [y] = run(
        Op.FULLY_CONNECTED,
        [x, w, tensor([1], OperandCode.TENSOR_INT32, scale=1.0), scalar(0)],
        output(U8, scale=1e6),
    )
    assert y.tolist() == [[195]]


def test_average_pooling_counts_only_cells_inside() -> None:
    # SAME padding of a 3 x 3 window over 3 x 3: the corner sees 1, 2, 4, 5.
    [y] = run(Op.AVERAGE_POOL_2D, [tensor(_IMAGE), *(scalar(v) for v in (1, 1, 1, 3, 3, 0))])
    assert y[0, 0, 0, 0] == 3
    assert y[0, 1, 1, 0] == 5


def test_8_bit_mean_truncates() -> None:
    # (1 + 2) / 2 = 1.5 becomes 1: Android does not round here.
    inputs = [tensor([[1, 2]], U8, scale=1.0), integers([1]), scalar(0)]
    [y] = run(Op.MEAN, inputs, output(U8, scale=1.0))
    assert y.tolist() == [1]


def test_topk_puts_the_larger_index_first_among_equals() -> None:
    [values, indices] = run(Op.TOPK_V2, [tensor([2, 5, 5, 1]), scalar(3)], output(), output(OperandCode.TENSOR_INT32))
    assert values.tolist() == [5, 5, 2]
    assert indices.tolist() == [2, 1, 0]


def test_argmax_takes_the_first_among_equals() -> None:
    [y] = run(Op.ARGMAX, [tensor([2, 5, 5, 1]), scalar(0)], output(OperandCode.TENSOR_INT32))
    assert y.tolist() == [1]


def test_concatenation_rescales_8_bit_inputs() -> None:
    # 10 * 0.5 = 5 is 20 steps of 0.25.
    a, b = tensor([10], U8, scale=0.5), tensor([7], U8, scale=0.25)
    [y] = run(Op.CONCATENATION, [a, b, scalar(0)], output(U8, scale=0.25))
    assert y.tolist() == [20, 7]


def test_strided_slice_counts_negative_indexes_from_the_end() -> None:
    bounds = [integers(v) for v in ([-1], [-4], [-2])]
    [y] = run(Op.STRIDED_SLICE, [tensor([1, 2, 3, 4]), *bounds, scalar(0), scalar(0), scalar(0)])
    assert y.tolist() == [4, 2]


@pytest.mark.parametrize("outside", [2, -1])
def test_gather_refuses_an_index_outside(outside: int) -> None:
    with pytest.raises(OpFailedError, match=f"indexes from 0 to 1, found {outside}"):
        run(Op.GATHER, [tensor([1, 2]), scalar(0), integers([1, outside])])


def test_space_to_depth_puts_blocks_before_channels() -> None:
    [y] = run(Op.SPACE_TO_DEPTH, [tensor(np.array([[1, 2], [3, 4]]).reshape(1, 2, 2, 1)), scalar(2)])
    assert y.reshape(-1).tolist() == [1, 2, 3, 4]
    [back] = run(Op.DEPTH_TO_SPACE, [tensor(y), scalar(2)])
    assert back[0, :, :, 0].tolist() == [[1, 2], [3, 4]]


def test_pad_of_8_bit_data_is_the_zero_point() -> None:
    [y] = run(Op.PAD, [tensor([5], U8, scale=1.0, zero_point=9), integers([[1, 2]])], output(U8, scale=1.0, zero_point=9))
    assert y.tolist() == [9, 5, 9, 9]


def test_mirror_pad_reflects_or_repeats_the_border() -> None:
    [reflected] = run(Op.MIRROR_PAD, [tensor([1, 2, 3]), integers([[2, 1]]), scalar(0)])
    [repeated] = run(Op.MIRROR_PAD, [tensor([1, 2, 3]), integers([[2, 1]]), scalar(1)])
    assert reflected.tolist() == [3, 2, 1, 2, 3, 2]
    assert repeated.tolist() == [2, 1, 1, 2, 3, 3]


def test_resizing_to_double_width_interpolates() -> None:
    # Source positions 0, 0.5, 1, 1.5 of [10, 20]; the last neighbour repeats.
    [y] = run(Op.RESIZE_BILINEAR, [tensor(np.array([10, 20]).reshape(1, 1, 2, 1)), scalar(4), scalar(1)])
    assert y.reshape(-1).tolist() == [10, 15, 20, 20]


def test_an_rnn_step() -> None:
    # RELU of 1 * 2 + 3 * 4 + (-20) = -6 and of 1 * 2 + 3 * 4 + 1 = 15.
    weights, recurrent = tensor([[2], [2]]), tensor([[4, 0], [4, 0]])
    inputs = [tensor([[1]]), weights, recurrent, tensor([-20, 1]), tensor([[3, 0]]), scalar(1)]
    [state, y] = run(Op.RNN, inputs, output(), output())
    assert y.tolist() == state.tolist() == [[0, 15]]


def test_svdf_state_moves_on_by_one_step() -> None:
    # One filter of memory 2: state [1, new], new = 3 * 2 = 6; output 1 * 10 + 6 * 100 = 610.
    inputs = [tensor([[3]]), tensor([[2]]), tensor([[10, 100]]), omitted(), tensor([[1, 0]]), scalar(1), scalar(0)]
    [state, y] = run(Op.SVDF, inputs, output(), output())
    assert state.tolist() == [[6, 0]]
    assert y.tolist() == [[610]]


def test_hard_suppression_drops_what_overlaps_a_better_box() -> None:
    # Two nearly equal boxes and one apart; class 0 is the background.
    boxes = np.array([[0, 0, 10, 10], [1, 1, 10, 10], [20, 20, 30, 30]], np.float32)
    scores = np.array([[0.1, 0.9], [0.2, 0.8], [0.3, 0.7]], np.float32)
    limits = [scalar(0.3, F32), scalar(-1), scalar(0), scalar(0.4, F32), scalar(1.0, F32), scalar(0.3, F32)]
    ints = OperandCode.TENSOR_INT32
    inputs = [tensor(scores), tensor(np.tile(boxes, 2)), integers([0, 0, 0]), *limits]
    [kept, rois, classes, batches] = run(Op.BOX_WITH_NMS_LIMIT, inputs, output(), output(), output(ints), output(ints))
    np.testing.assert_allclose(kept, [0.9, 0.7])
    np.testing.assert_array_equal(rois, boxes[[0, 2]])
    assert classes.tolist() == [1, 1]
    assert batches.tolist() == [0, 0]


def test_densify_expands_compressed_rows() -> None:
    # [[1, 0, 2], [0, 0, 3]]: the second dimension is compressed with segments 0, 2, 3 and indexes 0, 2, 2.
    metadata = [omitted(OperandCode.TENSOR_INT32)] * 2 + [integers([0, 2, 3]), integers([0, 2, 2])]
    inputs = [tensor([1, 2, 3]), integers([0, 1]), omitted(OperandCode.TENSOR_INT32), integers([0, 1]), integers([2, 3])]
    [y] = run(Op.DENSIFY, [*inputs, *metadata])
    np.testing.assert_array_equal(y, [[1, 0, 2], [0, 0, 3]])


def test_densify_of_a_dimension_of_0_is_nothing() -> None:
    inputs = [tensor([1]), integers([0, 1]), omitted(OperandCode.TENSOR_INT32), integers([0, 0]), integers([2, 0])]
    assert run(Op.DENSIFY, [*inputs, *[omitted(OperandCode.TENSOR_INT32)] * 4])[0].shape == (2, 0)


@pytest.mark.parametrize(
    ("sizes", "segments", "operand"),
    [
        ([2, -3], [0, 2, 3], "sizes: expected sizes of at least 0"),
        ([2, 3], [1, 2, 3], "metadata of dimension 1: expected 3 segments from 0 to the number of indexes"),
        ([2, 3], [0, 2, 4], "metadata of dimension 1: expected 3 segments from 0 to the number of indexes"),
    ],
)
def test_densify_refuses_inconsistent_traversal_data_by_name(sizes: list[int], segments: list[int], operand: str) -> None:
    metadata = [omitted(OperandCode.TENSOR_INT32)] * 2 + [integers(segments), integers([0, 2, 2])]
    inputs = [tensor([1, 2, 3]), integers([0, 1]), omitted(OperandCode.TENSOR_INT32), integers([0, 1]), integers(sizes)]
    with pytest.raises(OpFailedError, match=f"DENSIFY {operand}"):
        run(Op.DENSIFY, [*inputs, *metadata])


def test_fully_connected_wraps_a_left_shift_in_32_bits_as_litert_does() -> None:
    # A multiplier of 2**14 is 2**30 / 2**31 shifted to the left by 15: 200,000 * 2**15 = 6,553,600,000 wraps to -2,036,334,592.
    args = [tensor([[2]], U8, scale=1.0), tensor([[1]], U8, scale=1.0), integers([199_998]).replace(scale=1.0), scalar(0)]
    [y] = run(Op.FULLY_CONNECTED, args, output(U8, scale=2.0**-14, zero_point=7))
    assert y.tolist() == [[0]]


def test_fingerprints_depend_on_every_byte_in_each_length_class() -> None:
    for length in (1, 5, 12, 20, 50, 100, 200):
        rows = np.zeros((length + 1, length), np.uint8)
        rows[np.arange(length), np.arange(length)] = 1
        assert len(set(fingerprint64(rows).tolist())) == length + 1


def test_the_fingerprint_of_nothing_is_the_second_constant() -> None:
    # FarmHash's k2, which Fingerprint64 gives for an empty string.
    assert int(fingerprint64(np.zeros((1, 0), np.uint8))[0]) == 0x9AE16A3B2F90404F


def test_equal_seeds_give_equal_draws_with_the_right_frequencies() -> None:
    # Logits log 1 and log 3: a quarter and three quarters.
    logits = tensor(np.log([[1, 3]]))
    ints = OperandCode.TENSOR_INT32
    [a] = run(Op.RANDOM_MULTINOMIAL, [logits, scalar(20000), integers([1, 2])], output(ints))
    [b] = run(Op.RANDOM_MULTINOMIAL, [logits, scalar(20000), integers([1, 2])], output(ints))
    np.testing.assert_array_equal(a, b)
    assert abs(a.mean() - 0.75) < 0.02


def test_float16_is_computed_in_float32_and_rounded_once() -> None:
    # 2048 + 1 is not a float16, but the sum of 2048, 1 and 1 before rounding is 2050.
    half = OperandCode.TENSOR_FLOAT16
    inputs = [tensor([[1, 1, 1]], half), tensor([[2048, 1, 1]], half), tensor([0], half), scalar(0)]
    [y] = run(Op.FULLY_CONNECTED, inputs, output(half))
    assert y.dtype == np.float16
    assert y.tolist() == [[2050]]


def test_a_missing_required_operand_is_named() -> None:
    with pytest.raises(NnapiError, match="FLOOR input: expected a value, found none"):
        run(Op.FLOOR, [omitted(FLOAT)])


def test_multipliers_of_an_array_are_those_of_its_numbers() -> None:
    rng = np.random.default_rng(5)
    reals = np.concatenate([rng.uniform(0, 4, 200), np.ldexp(rng.uniform(0.5, 1, 200), rng.integers(-40, 30, 200))])
    reals = np.concatenate([reals, [0.0, 1.0, 1 - 2.0**-33, 0.5 - 2.0**-34, 2.0**-32, 2.0**-33]]).reshape(2, -1)
    multipliers, shifts = quantize_multipliers(reals)
    pairs = [quantize_multiplier(real) for real in reals.reshape(-1).tolist()]
    assert list(zip(multipliers.reshape(-1).tolist(), shifts.reshape(-1).tolist(), strict=True)) == pairs
    with pytest.raises(OverflowError):
        quantize_multipliers([1.0, np.inf])


def test_windows_of_implicit_padding_follow_height_and_width() -> None:
    # Of 3 rows and 5 columns, windows of 2 by 2 with a stride of 2 give 2 by 3; the last row and column stand alone.
    image = tensor(np.arange(30).reshape(1, 3, 5, 2))
    same, stride, size, none = scalar(1), scalar(2), scalar(2), scalar(0)
    [y] = run(Op.MAX_POOL_2D, [image, same, stride, stride, size, size, none])
    assert y[0, :, :, 0].tolist() == [[12, 16, 18], [22, 26, 28]]


def test_pooled_maxima_pass_over_nan() -> None:
    image = tensor(np.float32([np.nan, 1, np.nan, np.nan]).reshape(1, 1, 4, 1))
    [y] = run(Op.MAX_POOL_2D, [image, *map(scalar, (2, 2, 1, 2, 1, 0))])  # windows of one row and two columns
    assert y.reshape(-1).tolist() == [1, float(np.finfo(np.float32).min)]


def test_explicit_paddings_are_cut_off_a_transposed_convolution() -> None:
    # Ones of 2 by 2 under ones of 3 by 3 reach over 4 by 4; without the outermost cells, each sees all four.
    parameters = [scalar(v) for v in (1, 1, 1, 1, 1, 1, 0)]
    ones, filter = tensor(np.ones((1, 2, 2, 1))), tensor(np.ones((1, 3, 3, 1)))
    [y] = run(Op.TRANSPOSE_CONV_2D, [ones, filter, tensor([0]), *parameters, scalar(False, OperandCode.BOOL)])
    assert y.reshape(2, 2).tolist() == [[4, 4], [4, 4]]


def test_only_one_dimension_of_a_shape_is_inferred() -> None:
    with pytest.raises(NnapiError, match="at most one dimension of -1"):
        run(Op.RESHAPE, [tensor(np.ones(4)), integers([-1, -1])])


def test_a_shape_has_no_dimension_below_minus_1() -> None:
    with pytest.raises(NnapiError, match="dimensions of at least 0, or -1"):
        run(Op.RESHAPE, [tensor(np.ones(4)), integers([-2, 4])])


def test_a_transposed_convolution_is_as_high_and_wide_as_its_own_sides_of_the_filter_say() -> None:
    # (2 - 1) * 2 + 2 rows less paddings of 1 and 0; (3 - 1) * 1 + 4 columns less 0 and 2.
    parameters = [scalar(v) for v in (0, 2, 1, 0, 1, 2, 0)]
    [y] = run(
        Op.TRANSPOSE_CONV_2D,
        [tensor(np.ones((1, 2, 3, 1))), tensor(np.ones((1, 2, 4, 1))), tensor([0]), *parameters, scalar(False, OperandCode.BOOL)],
    )
    assert y.shape == (1, 3, 4, 1)


def test_batches_of_matrices_broadcast() -> None:
    flags = [scalar(False, OperandCode.BOOL)] * 2
    [y] = run(Op.BATCH_MATMUL, [tensor([[[1, 2]]]), tensor([[[3], [4]], [[5], [6]]]), *flags])
    assert y.tolist() == [[[11]], [[17]]]


@pytest.mark.parametrize("code", [Op.MAX_POOL_2D, Op.AVERAGE_POOL_2D])
def test_windows_over_whole_images_keep_batches_apart(code: OperationCode) -> None:
    images = np.arange(24).reshape(2, 3, 2, 2)
    sizes = [scalar(v) for v in (0, 0, 0, 0, 1, 1, 2, 3, 0)]
    [y] = run(code, [tensor(images), *sizes])
    expected = images.max(axis=(1, 2)) if code == Op.MAX_POOL_2D else images.mean(axis=(1, 2))
    np.testing.assert_array_equal(y, expected.reshape(2, 1, 1, 2))


def test_paddings_behind_a_transposed_convolution_cut_what_strides_reach() -> None:
    # Four ones two apart, each under three ones: 1 1 2 1 2 1 2 1 1 along each axis, less the last two.
    parameters = [scalar(v) for v in (0, 2, 0, 2, 2, 2, 0)]
    ones, filter = tensor(np.ones((1, 4, 4, 1))), tensor(np.ones((1, 3, 3, 1)))
    [y] = run(Op.TRANSPOSE_CONV_2D, [ones, filter, tensor([0]), *parameters, scalar(False, OperandCode.BOOL)])
    along = [1, 1, 2, 1, 2, 1, 2]
    assert y.reshape(7, 7).tolist() == np.outer(along, along).tolist()


def test_sums_just_beyond_32_bits_wrap() -> None:
    # (-128 - 127) * 100 - (2**31 - 25,450) = -2**31 - 50 wraps to 2**31 - 50.
    arguments = [
        tensor([[[[-128]]]], I8, scale=0.5, zero_point=127),
        tensor([[[[100]]]], I8, scale=0.5),
        tensor([25_450 - 2**31], OperandCode.TENSOR_INT32, scale=0.25),
    ]
    [y] = run(Op.CONV_2D, [*arguments, scalar(2), scalar(1), scalar(1), scalar(0)], output(I8, scale=1.0))
    assert y.tolist() == [[[[127]]]]


def test_sums_that_a_left_shift_takes_just_beyond_32_bits_wrap() -> None:
    # (2 + 80,000) * 2**15 = 2,621,505,536 wraps to -1,673,461,760, of which half is below 0.
    args = [tensor([[2]], U8, scale=1.0), tensor([[1]], U8, scale=1.0), integers([80_000]).replace(scale=1.0), scalar(0)]
    [y] = run(Op.FULLY_CONNECTED, args, output(U8, scale=2.0**-14, zero_point=7))
    assert y.tolist() == [[0]]
    image, filter = (tensor(np.full((1, 1, 1, 1), value), U8, scale=1.0) for value in (2, 1))
    [y] = run(Op.CONV_2D, [image, filter, args[2], *_PARAMETERS], output(U8, scale=2.0**-14, zero_point=7))
    assert y.item() == 0


def test_images_without_rows_are_refused() -> None:
    sizes = [scalar(v) for v in (0, 0, 0, 0, 1, 1, 1, 1, 0)]
    with pytest.raises(NnapiError, match="height, width and depth above 0"):
        run(Op.MAX_POOL_2D, [tensor(np.ones((1, 0, 2, 1))), *sizes])


def test_no_groups_are_refused() -> None:
    parameters = [scalar(v) for v in (0, 0, 0, 0, 1, 1, 0, 0)]
    with pytest.raises(NnapiError, match="at least one group, found 0"):
        run(
            Op.GROUPED_CONV_2D,
            [
                tensor(np.ones((1, 1, 1, 1))),
                tensor(np.ones((1, 1, 1, 1))),
                tensor([0]),
                *parameters,
                scalar(False, OperandCode.BOOL),
            ],
        )


def test_logistic_of_steps_from_8_on_knows_only_its_limits() -> None:
    # The radius of inputs that are computed is 15 / 16, rounded down to 0 (N44): the zero point has the lower limit already.
    [y] = run(Op.LOGISTIC, [tensor([-1, 0, 1], I8, scale=8.0)], output(I8, scale=1 / 256, zero_point=-128))
    assert y.tolist() == [-128, -128, 127]


def test_a_transposed_convolution_may_be_one_pixel_and_is_exact_beyond_24_bits() -> None:
    # 299 products of 255 by 255 and one of 1 are 19,442,476, and one more: floats hold even numbers there.
    x, w = np.full((1, 1, 1, 300), 255), np.full((1, 1, 1, 300), 255)
    x[..., 0] = w[..., 0] = 1
    bias, shape = integers([7 - 299 * 255**2 - 1]).replace(scale=1.0), integers([1, 1, 1, 1])
    sides = [tensor(side, U8, scale=1.0) for side in (x, w)]
    parameters = [shape, *[scalar(v) for v in (2, 1, 1, 0)], scalar(False, OperandCode.BOOL)]
    [y] = run(Op.TRANSPOSE_CONV_2D, [*sides, bias, *parameters], output(U8, scale=2.0))
    assert y.item() == 4


def test_logistic_takes_the_smallest_steps_that_its_fixed_point_holds() -> None:
    # 127 steps of 2**-26.5 are nothing: half of 256 (N44). Steps of 2**-27 are refused.
    out = output(I8, scale=1 / 256, zero_point=-128)
    assert run(Op.LOGISTIC, [tensor([127], I8, scale=2.0**-26.5)], out)[0].tolist() == [0]
    with pytest.raises(NnapiError, match=r"an input scale above 2\*\*-27"):
        run(Op.LOGISTIC, [tensor([127], I8, scale=2.0**-27)], out)


def test_log_softmax_of_scaled_logits() -> None:
    # exp(2 * ln 3) = 9: shares of 9 / 10 and 1 / 10.
    [y] = run(Op.LOG_SOFTMAX, [tensor([[np.log(3), 0]]), scalar(2.0, OperandCode.FLOAT32), scalar(1)])
    np.testing.assert_allclose(np.exp(y), [[0.9, 0.1]], rtol=1e-6)


def test_softmax_of_large_logits_does_not_overflow() -> None:
    [y] = run(Op.SOFTMAX, [tensor([[1000, 1000, 0]]), scalar(1.0, OperandCode.FLOAT32)])
    assert y.tolist() == [[0.5, 0.5, 0]]
    [y] = run(Op.LOG_SOFTMAX, [tensor([[1000, 0]]), scalar(1.0, OperandCode.FLOAT32), scalar(1)])
    assert y.tolist() == [[0, -1000]]


def test_a_transposed_convolution_of_explicit_paddings_may_be_one_pixel() -> None:
    one, parameters = tensor(np.full((1, 1, 1, 1), 3)), [scalar(v) for v in (0, 0, 0, 0, 1, 1, 0)]
    [y] = run(Op.TRANSPOSE_CONV_2D, [one, one, tensor([0]), *parameters, scalar(False, OperandCode.BOOL)])
    assert y.tolist() == [[[[9]]]]
