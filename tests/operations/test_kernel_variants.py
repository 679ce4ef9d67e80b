"""Variants of kernels for many values, few rows or short axes compute what the ordinary ones compute."""

from __future__ import annotations

import gc
import weakref
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nnbridge.builder import ModelBuilder
from nnbridge.cpu.executor import Executor
from nnbridge.errors import OpFailedError
from nnbridge.operations import correlation, topk
from nnbridge.operations.arithmetic import mbqm, quantize_multiplier, rdbp, srdhm
from nnbridge.operations.fixedpoint import inverse_sqrt_multiplier, one_over_one_plus_x
from nnbridge.operations.shapes import Window
from nnbridge.types import OperandCode, OperationCode
from tests.operations.calls import FLOAT, I8, U8, output, run, scalar, tensor

Op = OperationCode
F32 = OperandCode.FLOAT32
INDEXES = OperandCode.TENSOR_INT32
MANY = (1 << 17) + 2
"""Elements beyond which 8-bit values are looked up in pairs."""


def signed(seed: int, *dims: int) -> npt.NDArray[np.int8]:
    return np.random.default_rng(seed).integers(-128, 128, dims).astype(np.int8)


def in_rows(code: OperationCode, sides: list[npt.NDArray[Any]], *outputs: Any, scales: list[float]) -> npt.NDArray[Any]:
    """The results of an element-wise operation, one row of its operands at a time."""
    made = []
    for rows in zip(*sides, strict=True):
        args = [tensor(row, I8, scale=scale, zero_point=3) for row, scale in zip(rows, scales, strict=True)]
        made.append(run(code, [*args, *([scalar(0)] if code in (Op.ADD, Op.SUB, Op.MUL) else [])], *outputs)[0])
    return np.stack(made)


@pytest.mark.parametrize("count", [MANY // 2, MANY + 1])
@pytest.mark.parametrize("code", [Op.LOGISTIC, Op.TANH, Op.HARD_SWISH])
def test_large_tensors_are_looked_up_in_pairs_of_bytes(code: OperationCode, count: int) -> None:
    x = signed(1, 2 - count % 2, count)
    out = {Op.LOGISTIC: output(I8, scale=1 / 256, zero_point=-128), Op.TANH: output(I8, scale=1 / 128)}.get(
        code, output(I8, scale=0.04, zero_point=5)
    )
    [together] = run(code, [tensor(x, I8, scale=0.05, zero_point=3)], out)
    np.testing.assert_array_equal(together, in_rows(code, [x], out, scales=[0.05]))


@pytest.mark.parametrize("code", [Op.ADD, Op.SUB, Op.MUL, Op.PRELU])
def test_from_as_many_elements_as_there_are_pairs_results_are_looked_up(code: OperationCode) -> None:
    sides = [signed(seed, 300, 256) for seed in (1, 2)]
    out = output(I8, scale=0.2, zero_point=-7)
    args = [tensor(side, I8, scale=scale, zero_point=3) for side, scale in zip(sides, (0.05, 0.03), strict=True)]
    [together] = run(code, [*args, *([scalar(0)] if code != Op.PRELU else [])], out)
    np.testing.assert_array_equal(together, in_rows(code, sides, out, scales=[0.05, 0.03]))


@pytest.mark.parametrize("length", [40, 700])
def test_8_bit_softmax_of_many_rows_is_that_of_each_row(length: int) -> None:
    x, out = signed(1, 12, length), output(I8, scale=1 / 256, zero_point=-128)
    [together] = run(Op.SOFTMAX, [tensor(x, I8, scale=0.1), scalar(0.7, F32)], out)
    alone = [run(Op.SOFTMAX, [tensor(row[None], I8, scale=0.1), scalar(0.7, F32)], out)[0][0] for row in x]
    np.testing.assert_array_equal(together, alone)


def test_8_bit_softmax_of_more_terms_than_32_bits_add_up_gives_shares_of_0() -> None:
    # 8192 equal values: each share is 1 / 8192, which is 1 / 32 of a step.
    [y] = run(Op.SOFTMAX, [tensor(np.full((1, 8192), 7), U8, scale=0.1), scalar(1.0, F32)], output(U8, scale=1 / 256))
    assert not y.any()


@pytest.mark.parametrize("dims", [(300, 128), (3, 20_000)])
def test_8_bit_rows_are_normalised_by_blocks_each_by_its_own_length(dims: tuple[int, int]) -> None:
    x, out = signed(1, *dims), output(I8, scale=1 / 128)
    [together] = run(Op.L2_NORMALIZATION, [tensor(x, I8, scale=0.1, zero_point=9), scalar(1)], out)
    alone = [run(Op.L2_NORMALIZATION, [tensor(row[None], I8, scale=0.1, zero_point=9), scalar(1)], out)[0][0] for row in x]
    np.testing.assert_array_equal(together, alone)
    lengths = np.sqrt(np.square(x.astype(np.float64) - 9).sum(axis=1, keepdims=True))
    np.testing.assert_allclose(together, np.minimum((x.astype(np.float64) - 9) / lengths * 128, 127), atol=0.6)


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    point=st.sampled_from([0, 32, 35, 128, 223, 255]),
    size=st.sampled_from([1, 2, 30, 700, 20_000]),
    spread=st.sampled_from([0, 3, 255]),
)
def test_8_bit_normalisation_is_androids_two_roundings(seed: int, point: int, size: int, spread: int) -> None:
    rng = np.random.default_rng(seed)
    x = 255 - rng.integers(0, spread + 1, (3, size))
    [y] = run(
        Op.L2_NORMALIZATION, [tensor(x, U8, scale=0.1, zero_point=point), scalar(1)], output(U8, scale=1 / 128, zero_point=128)
    )
    expected = mbqm(128 * (x - point), *inverse_sqrt_multiplier(np.square(x - point).sum(axis=1, keepdims=True))) + 128
    np.testing.assert_array_equal(y, np.clip(expected, 0, 255))


@settings(max_examples=150, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    sizes=st.tuples(*[st.integers(1, 4)] * 2),
    strides=st.tuples(*[st.integers(1, 3)] * 2),
    dilations=st.tuples(*[st.integers(1, 3)] * 2),
    outputs=st.tuples(*[st.integers(1, 9)] * 2),
    block=st.sampled_from([1, 60, 1 << 15]),
)
def test_depthwise_sums_tap_by_tap_are_those_window_by_window(
    seed: int, sizes: tuple[int, int], strides: tuple[int, int], dilations: tuple[int, int], outputs: tuple[int, int], block: int
) -> None:
    rng = np.random.default_rng(seed)
    rows, columns = (Window(*window, 0, 0) for window in zip(sizes, strides, dilations, strict=True))
    reach = ((out - 1) * window.stride + window.extent for out, window in zip(outputs, (rows, columns), strict=True))
    # What lies behind the last window is left over.
    images = rng.normal(size=(3, *(length + int(rng.integers(3)) for length in reach), 3)).astype(np.float32)
    weights = rng.normal(size=(*sizes, 3)).astype(np.float32)
    made = np.empty((2, 3, *outputs, 3), np.float32)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(correlation, "_TAP_BLOCK", block)
        for sums, way in zip(made, (correlation.by_taps, correlation.by_windows), strict=True):
            way(weights, rows, columns, *outputs)(images, sums)
    np.testing.assert_array_equal(*made)


@pytest.mark.parametrize(("code", "choose"), [(Op.ARGMAX, np.argmax), (Op.ARGMIN, np.argmin)])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_short_axes_of_many_rows_are_compared_together_the_first_of_equal_values_stands(
    code: OperationCode, choose: Any, axis: int
) -> None:
    x = np.random.default_rng(axis).integers(0, 3, (7, 70, 80)[axis:] + (7, 70, 80)[:axis]).astype(np.float32)
    axis = x.shape.index(7)
    [y] = run(code, [tensor(x), scalar(axis)], output(INDEXES))
    np.testing.assert_array_equal(y, choose(x, axis=axis))


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("rows", [3, 300])
def test_what_is_not_a_number_is_an_extreme_only_where_it_comes_first(rows: int, axis: int) -> None:
    # As in Android's kernel: nothing compares as greater or less, in either direction.
    x = np.tile(np.float32([1, 3, 2, 0]), (rows, 1))
    x[0, 1], x[1, 0], x[2, 3] = [np.nan] * 3
    for kind in (FLOAT, OperandCode.TENSOR_FLOAT16):
        args = [tensor(x if axis else x.T, kind), scalar(axis)]
        largest, smallest = (run(code, args, output(INDEXES))[0] for code in (Op.ARGMAX, Op.ARGMIN))
        assert largest[:3].tolist() == [2, 0, 1]
        assert smallest[:3].tolist() == [3, 0, 0]
        assert (largest[3:] == 1).all()
        assert (smallest[3:] == 3).all()


@pytest.mark.parametrize("channels", [1, 16, 300])
@pytest.mark.parametrize("kind", [FLOAT, U8, I8])
def test_what_follows_the_sums_of_a_convolution_does_not_depend_on_how_many_pixels_there_are(
    kind: OperandCode, channels: int
) -> None:
    # 997 is prime: rows that are treated together leave some over, which 16 rows do not.
    rng, real, pixels = np.random.default_rng(channels), kind == FLOAT, 997
    low, high = (-128, 128) if kind == I8 else (0, 256)
    images, weights = (rng.integers(low, high, dims) for dims in ((1, pixels, 1, 3), (channels, 1, 1, 3)))
    scale = 0.0 if real else 0.5
    bias = tensor(rng.integers(-999, 999, channels), FLOAT if real else OperandCode.TENSOR_INT32, scale=scale**2)

    def convolved(some: npt.NDArray[Any]) -> npt.NDArray[Any]:
        args = [tensor(values, kind, scale=scale, zero_point=0 if real else 7) for values in (some, weights)]
        parameters = [scalar(number) for number in (1, 1, 1, 1)]
        return run(Op.CONV_2D, [*args, bias, *parameters], output(kind, scale=200 * scale, zero_point=0 if real else 9))[0]

    parts = [convolved(images[:, start : start + 16]) for start in range(0, pixels, 16)]
    np.testing.assert_array_equal(convolved(images), np.concatenate(parts, axis=1))


def pick_from_all_rows(patch: pytest.MonkeyPatch) -> None:
    """Few values are picked one after the other however short and few the rows."""
    patch.setattr(topk, "_LONG", 0)
    patch.setattr(topk, "_MANY", 0)


@settings(max_examples=50, deadline=None)
@given(
    picked=st.booleans(),
    seed=st.integers(0, 2**32),
    rows=st.integers(1, 4),
    size=st.integers(1, 40),
    ties=st.booleans(),
    data=st.data(),
)
def test_topk_is_a_descending_sort_that_puts_later_equals_first(
    picked: bool, seed: int, rows: int, size: int, ties: bool, data: st.DataObject
) -> None:
    k = data.draw(st.integers(1, size))
    rng = np.random.default_rng(seed)
    x = (rng.integers(0, 4, (rows, size)) if ties else rng.permuted(np.tile(np.arange(size), (rows, 1)), axis=1)).astype(
        np.float32
    )
    x[x == 0] = -np.inf
    with pytest.MonkeyPatch.context() as patch:
        if picked:
            pick_from_all_rows(patch)
        values, places = run(Op.TOPK_V2, [tensor(x), scalar(k)], output(), output(INDEXES))
    order = [sorted(range(size), key=lambda i, row=row: (-row[i], -i))[:k] for row in x]
    assert places.tolist() == order
    np.testing.assert_array_equal(values, np.take_along_axis(x, np.array(order), axis=1))


@pytest.mark.parametrize("rows", [1, 2])
@pytest.mark.parametrize("kind", [FLOAT, U8, OperandCode.TENSOR_QUANT8_ASYMM_SIGNED, OperandCode.TENSOR_INT32])
def test_topk_finds_the_lowest_of_all_values_each_in_its_place(
    kind: OperandCode, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    pick_from_all_rows(monkeypatch)
    dtype = tensor([], kind).dtype
    lowest = -np.inf if dtype.kind == "f" else np.iinfo(str(dtype)).min
    for last in (lowest, 5):
        x = tensor([[lowest, 7, 9, last]] * rows, kind)
        values, places = run(Op.TOPK_V2, [x, scalar(4)], output(kind), output(INDEXES))
        assert values.tolist() == [[9, 7, last, lowest]] * rows
        assert places.tolist() == [[2, 1, 3, 0]] * rows


@pytest.mark.parametrize("picked", [True, False])
def test_topk_takes_what_is_not_a_number_for_the_largest(picked: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if picked:
        pick_from_all_rows(monkeypatch)
    x = tensor([[np.nan, 7, 2, 1], [5, 5, 5, 1]])
    values, places = run(Op.TOPK_V2, [x, scalar(2)], output(), output(INDEXES))
    np.testing.assert_array_equal(values, [[np.nan, 7], [5, 5]])
    assert places.tolist() == [[0, 1], [2, 1]]


def test_quantize_makes_the_zero_point_of_what_is_not_a_number() -> None:
    [y] = run(Op.QUANTIZE, [tensor([np.nan, np.inf, -np.inf])], output(U8, scale=1.0, zero_point=10))
    assert y.tolist() == [10, 255, 0]


@settings(max_examples=300, deadline=None)
@given(
    x=st.floats(-300, 300, width=32) | st.integers(-600, 600).map(lambda n: n / 2),
    scale=st.sampled_from([1.0, 0.5, 0.1, 0.0039215689]),
    zero_point=st.sampled_from([0, 3, 128, 255]),
)
def test_quantize_is_the_float_quotient_rounded_half_away_from_zero_and_clamped(x: float, scale: float, zero_point: int) -> None:
    quotient = Fraction(float(np.float32(x) / np.float32(scale)))
    rounded = int(abs(quotient) + Fraction(1, 2)) * (1 if quotient >= 0 else -1)
    [y] = run(Op.QUANTIZE, [tensor([x])], output(U8, scale=scale, zero_point=zero_point))
    assert y.tolist() == [min(max(rounded + zero_point, 0), 255)]


def test_select_takes_any_non_zero_byte_for_true() -> None:
    condition = tensor([True, False, True], OperandCode.TENSOR_BOOL8)
    condition = condition.replace(value=np.array([2, 0, 255], np.uint8).view(np.bool_))
    [y] = run(Op.SELECT, [condition, tensor([1, np.inf, np.nan]), tensor([4, 5, 6])])
    np.testing.assert_array_equal(y, [1, 5, np.nan])


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32), depth=st.integers(1, 300), point=st.integers(0, 255), weights_point=st.integers(0, 255))
def test_sums_of_8_bit_products_are_exact_whatever_the_zero_points(seed: int, depth: int, point: int, weights_point: int) -> None:
    rng = np.random.default_rng(seed)
    x, w = rng.integers(0, 256, (2, 3, 4, depth)), rng.integers(0, 256, (5, 2, 2, depth))
    bias = rng.integers(-9999, 9999, 5)
    args = [
        tensor(x, U8, scale=0.5, zero_point=point),
        tensor(w, U8, scale=0.25, zero_point=weights_point),
        tensor(bias, INDEXES, scale=0.125),
    ]
    [y] = run(Op.CONV_2D, [*args, scalar(1), scalar(1), scalar(1), scalar(0)], output(U8, scale=700.0, zero_point=100))
    # SAME padding of a 2 x 2 filter: one row below and one column to the right, where values stand for 0.
    wide = np.zeros((2, 4, 5, depth), np.int64)
    wide[:, :3, :4] = x - point
    taps = [wide[:, i : i + 3, j : j + 4] @ (w - weights_point)[:, i, j].T for i in range(2) for j in range(2)]
    expected = mbqm(sum(taps) + bias, *quantize_multiplier(0.125 / 700)) + 100
    np.testing.assert_array_equal(y, np.clip(expected, 0, 255))


@pytest.mark.parametrize("depth", [1, 2])
def test_depthwise_filters_of_one_channel_or_more_sum_their_own_channel(depth: int) -> None:
    rng = np.random.default_rng(depth)
    x, w, bias = (
        rng.integers(0, 256, (2, 4, 5, depth)),
        rng.integers(0, 256, (1, 2, 3, 3 * depth)),
        rng.integers(-99, 99, 3 * depth),
    )
    args = [
        tensor(x, U8, scale=0.5, zero_point=9),
        tensor(w, U8, scale=0.25, zero_point=100),
        tensor(bias, INDEXES, scale=0.125),
    ]
    numbers = [scalar(n) for n in (2, 1, 1, 3, 0)]  # VALID, strides of 1, three filters for each channel
    [y] = run(Op.DEPTHWISE_CONV_2D, [*args, *numbers], output(U8, scale=40.0, zero_point=100))
    own = np.repeat(x - 9, 3, axis=3)
    sums = sum(own[:, i : i + 3, j : j + 3] * (w[0, i, j] - 100) for i in range(2) for j in range(3))
    np.testing.assert_array_equal(y, np.clip(mbqm(sums + bias, *quantize_multiplier(0.125 / 40)) + 100, 0, 255))


@given(a=st.integers(-(2**31), 2**31 - 1), b=st.integers(-(2**31), 2**31 - 1), exponent=st.integers(0, 31))
def test_fixed_point_arithmetic_of_numbers_is_that_of_arrays(a: int, b: int, exponent: int) -> None:
    assert srdhm(a, b) == srdhm(np.array([a]), np.array([b]))[0]
    assert rdbp(a, exponent) == rdbp(np.array([a]), np.array([exponent]))[0]


@given(raw=st.integers(0, 2**31 - 1))
def test_a_reciprocal_of_a_number_is_that_of_an_array(raw: int) -> None:
    assert one_over_one_plus_x(raw) == one_over_one_plus_x(np.array([raw]))[0]


def test_what_a_kernel_refuses_when_it_is_prepared_is_reported_by_the_run() -> None:
    builder = ModelBuilder()
    x, y = (builder.add_operand(U8, (4,), scale=scale) for scale in (2**-28, 1 / 256))
    builder.add_operation(Op.LOGISTIC, [x], [y])
    builder.identify_inputs_and_outputs([x], [y])
    executor = Executor(builder.finish())
    with pytest.raises(OpFailedError, match="an input scale above 2"):
        executor.run([np.zeros(4, np.uint8)])


def test_parameters_that_come_with_the_run_are_prepared_with_it() -> None:
    # The permutation is a model input: each run may bring another one.
    builder = ModelBuilder()
    x = builder.add_operand(OperandCode.TENSOR_FLOAT32, (2, 3))
    order = builder.add_operand(INDEXES, (2,))
    y = builder.add_operand(OperandCode.TENSOR_FLOAT32, (0, 0))
    builder.add_operation(Op.TRANSPOSE, [x, order], [y])
    builder.identify_inputs_and_outputs([x, order], [y])
    executor, values = Executor(builder.finish()), np.arange(6, dtype=np.float32).reshape(2, 3)
    for axes in ([1, 0], [0, 1], [1, 0]):
        [got] = executor.run([values, np.array(axes, np.int32)])
        np.testing.assert_array_equal(got.data, values.transpose(axes))


def test_a_split_into_one_part_is_the_tensor() -> None:
    builder = ModelBuilder()
    x, y = (builder.add_operand(OperandCode.TENSOR_FLOAT32, (2, 3)) for _ in range(2))
    axis, parts = (builder.add_operand(OperandCode.INT32) for _ in range(2))
    builder.set_operand_value(axis, 1)
    builder.set_operand_value(parts, 1)
    builder.add_operation(Op.SPLIT, [x, axis, parts], [y])
    builder.identify_inputs_and_outputs([x], [y])
    values = np.arange(6, dtype=np.float32).reshape(2, 3)
    [got] = Executor(builder.finish()).run([values])
    np.testing.assert_array_equal(got.data, values)


def unary(code: OperationCode, dims: tuple[int, ...], scale: float, out_scale: float) -> Executor:
    """An 8-bit operation of one operand."""
    builder = ModelBuilder()
    x, y = (builder.add_operand(U8, dims, scale=s) for s in (scale, out_scale))
    builder.add_operation(code, [x], [y])
    builder.identify_inputs_and_outputs([x], [y])
    return Executor(builder.finish())


def test_large_inputs_may_lie_apart_in_memory() -> None:
    apart = np.arange(2 * MANY).astype(np.uint8)[::2]
    executor = unary(Op.LOGISTIC, (MANY,), 0.05, 1 / 256)
    [got], [expected] = executor.run([apart]), executor.run([apart.copy()])
    np.testing.assert_array_equal(got.data, expected.data)


def test_a_product_of_scales_that_no_float_holds_is_refused_by_name() -> None:
    x = tensor([[1, 2]], U8, scale=1e30)
    with pytest.raises(OpFailedError, match="PRELU: expected parameters whose products floats hold"):
        run(Op.PRELU, [x, tensor([1, 2], U8, scale=1e30)], output(U8, scale=1.0))


def test_scales_beyond_computing_are_reported_by_the_run() -> None:
    executor = unary(Op.RELU1, (4,), 1e-45, 1e-45)
    with pytest.raises(OpFailedError, match="RELU1: expected parameters whose products floats hold"):
        executor.run([np.zeros(4, np.uint8)])


@pytest.mark.parametrize("constant", [True, False])
def test_a_result_that_is_a_view_of_an_input_is_copied(constant: bool) -> None:
    builder = ModelBuilder()
    x = builder.add_operand(OperandCode.TENSOR_FLOAT32, (2, 3))
    shape = builder.add_operand(INDEXES, (1,))
    y = builder.add_operand(OperandCode.TENSOR_FLOAT32, (6,))
    if constant:
        builder.set_operand_value(shape, np.array([6], np.int32))
    builder.add_operation(Op.RESHAPE, [x, shape], [y])
    builder.identify_inputs_and_outputs([x] if constant else [x, shape], [y])
    values = np.arange(6, dtype=np.float32).reshape(2, 3)
    [got] = Executor(builder.finish()).run([values] if constant else [values, np.array([6], np.int32)])
    assert not np.shares_memory(got.data, values)
    assert got.data.flags.writeable


def test_a_reshaped_constant_is_no_view_of_the_model() -> None:
    builder = ModelBuilder()
    x = builder.add_operand(OperandCode.TENSOR_FLOAT32, (2, 3))
    builder.set_operand_value(x, np.arange(6, dtype=np.float32))
    shape = builder.add_operand(INDEXES, (1,))
    y, unused, twice = (builder.add_operand(OperandCode.TENSOR_FLOAT32, (6,)) for _ in range(3))
    builder.set_operand_value(shape, np.array([6], np.int32))
    builder.add_operation(Op.RESHAPE, [x, shape], [y])
    builder.add_operation(Op.FLOOR, [unused], [twice])
    builder.identify_inputs_and_outputs([unused], [y, twice])
    [got, _] = Executor(builder.finish()).run([np.zeros(6, np.float32)])
    assert got.data.tolist() == [0, 1, 2, 3, 4, 5]
    assert got.data.flags.writeable


def test_a_kernel_holds_on_to_no_run_s_input() -> None:
    # Rounded to float16, all results come from kernels that are prepared by their first run.
    builder = ModelBuilder()
    a, b, y = (builder.add_operand(U8, (2, 2), scale=scale) for scale in (0.5, 0.5, 1.0))
    activation = builder.add_operand(OperandCode.INT32)
    builder.set_operand_value(activation, 0)
    builder.add_operation(Op.MUL, [a, b, activation], [y])
    builder.identify_inputs_and_outputs([a, b], [y])
    builder.relax_computation_float32_to_float16(True)
    executor, values = Executor(builder.finish(), numerics="float16"), np.ones((2, 2), np.uint8)
    kept = weakref.ref(values)
    executor.run([values, values])
    del values
    gc.collect()
    assert kept() is None


@settings(max_examples=60, deadline=None)
@given(
    dims=st.lists(st.integers(1, 9), min_size=1, max_size=3),
    many=st.integers(600, 1100),
    leading=st.integers(0, 2),
    swapped=st.booleans(),
    seed=st.integers(0, 2**32),
)
def test_short_rows_are_combined_several_at_a_time_with_the_same_results(
    dims: list[int], many: int, leading: int, swapped: bool, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    matrix = rng.standard_normal((many, *dims)).astype(np.float32)
    row = rng.standard_normal((*[1] * leading, *dims)[-4:]).astype(np.float32)
    pair = (row, matrix) if swapped else (matrix, row)
    if max(row.ndim, matrix.ndim) > 4:
        return
    [y] = run(Op.SUB, [tensor(pair[0]), tensor(pair[1]), scalar(0)])
    assert np.array_equal(y, pair[0] - pair[1])


@pytest.mark.parametrize("channels", [1, 7, 24, 300])
@pytest.mark.parametrize("height", [1, 150])
def test_biases_are_added_to_several_pixels_at_a_time(channels: int, height: int) -> None:
    rng = np.random.default_rng(channels)
    image, bias = np.ones((1, height, 37, 1), np.float32), rng.standard_normal(channels).astype(np.float32)
    weights = rng.standard_normal((channels, 1, 1, 1)).astype(np.float32)
    [y] = run(Op.CONV_2D, [tensor(image), tensor(weights), tensor(bias), *map(scalar, (1, 1, 1, 1))])
    expected = np.maximum(weights.reshape(-1) + bias, 0)
    np.testing.assert_allclose(y, np.broadcast_to(expected, y.shape), rtol=1e-6)
