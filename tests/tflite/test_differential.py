"""Operators drawn at random beside LiteRT's reference kernels, and the faults that such runs found, with LiteRT's answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.tflite.agreement import Array, converted, run
from tests.tflite.differential import DRAWS, verdicts
from tests.tflite.differential_graphs import GRAPH
from tests.tflite.differential_graphs import verdicts as graph_verdicts
from tests.tflite.files import TfliteBuilder

CASES = 200


def test_random_operators_compute_what_litert_computes() -> None:
    pytest.importorskip("ai_edge_litert.interpreter", reason="LiteRT is not installed")
    found = list(verdicts(range(CASES), 2024, sorted(DRAWS)))
    assert [v for v in found if v.outcome in ("differs", "fails")] == []
    assert sum(v.outcome == "equal" for v in found) > CASES * 3 // 4


@pytest.mark.parametrize("mapping", ["wide", "delegate"])
def test_random_graphs_compute_what_litert_computes(mapping: str) -> None:
    pytest.importorskip("ai_edge_litert.interpreter", reason="LiteRT is not installed")
    found = list(graph_verdicts(range(60), 2024, [GRAPH], mapping))
    assert [v for v in found if v.outcome in ("differs", "fails")] == []
    assert sum(v.outcome == "equal" for v in found) > 50


def test_what_is_cast_to_truth_values_is_0_or_1(tmp_path: Path) -> None:
    found = computed(tmp_path, "CAST", np.array([0, 1, 2, 255], np.uint8), ((4,), "bool"), {}, scale=1.0)
    assert found.view(np.uint8).tolist() == [0, 1, 1, 1]  # LiteRT's answer


@pytest.mark.parametrize("shape", [(4,), (1, 2, 1, 2, 2)])
def test_8_bit_products_have_any_rank(shape: tuple[int, ...], tmp_path: Path) -> None:
    """LiteRT's answers: NNAPI has ranks 2 to 4."""
    builder, data = TfliteBuilder(), np.arange(np.prod(shape), dtype=np.int8).reshape(shape)
    x = builder.tensor(shape, "int8", scale=1.0)
    weights = builder.constant(np.ones((1, 2), np.int8), scale=1.0)
    y = builder.tensor((data.size // 2, 1), "int8", scale=1.0)
    builder.operator("FULLY_CONNECTED", [x, weights, -1], [y], {}, 4)
    model, _ = converted(builder.write(tmp_path / "m.tflite", [x], [y]))
    assert run(model, {"t0": data})[0].reshape(-1).tolist() == data.reshape(-1, 2).sum(1).tolist()


def computed(folder: Path, name: str, data: Array, out: tuple[Any, ...], options: Any, *more: Any, **parameters: Any) -> Array:
    """The answer of one operator; ``out`` is the output's shape, type and, if quantised, scale and zero point."""
    builder = TfliteBuilder()
    x = builder.tensor(data.shape, data.dtype.name, **parameters)
    shape, type, *rest = out
    y = builder.tensor(shape, type, **dict(zip(("scale", "zero_point"), rest, strict=False)))
    builder.operator(name, [x, *(builder.constant(v, "int32") for v in more)], [y], options, 2)
    model, _ = converted(builder.write(folder / "m.tflite", [x], [y]))
    return run(model, {model.main.operands[model.main.inputs[0]].name: data})[0]


@pytest.mark.parametrize(
    ("begin", "stride", "masks", "litert"),
    [(-9, 1, {}, [0, 1]), (1, 1, {"begin_mask": 1}, [0, 1]), (1, 2, {}, [2, 3]), (-1, 1, {}, [4, 5])],
)
def test_an_index_of_a_dropped_axis_is_clamped_at_the_front(
    begin: int, stride: int, masks: dict[str, int], litert: list[int], tmp_path: Path
) -> None:
    data = np.arange(6, dtype=np.int32).reshape(3, 2)
    ranges = [begin, 0], [0, 2], [stride, 1]
    found = computed(tmp_path, "STRIDED_SLICE", data, ((2,), "int32"), {"shrink_axis_mask": 1, **masks}, *ranges)
    assert found.tolist() == litert


def test_an_end_that_counts_from_the_begin_is_not_masked(tmp_path: Path) -> None:
    data = np.arange(5, dtype=np.int32)
    found = computed(tmp_path, "STRIDED_SLICE", data, ((2,), "int32"), {"end_mask": 1, "offset": True}, [1], [2], [1])
    assert found.tolist() == [1, 2]  # LiteRT's answer


FLOATS = np.array([0, 0.3, -0.9, 256, 1e-40, -5, 300.5, -1e20, np.nan, np.inf], np.float32)


@pytest.mark.parametrize(
    ("type", "litert"),
    [
        ("bool", [False, True, True, True, True, True, True, True, True, True]),
        ("int8", [0, 0, 0, 127, 0, -5, 127, -128, 127, 127]),
        ("int64", [0, 0, 0, 256, 0, -5, 300, -(2**63), 2**63 - 1, 2**63 - 1]),
    ],
)
def test_casts_of_floats_on_the_host_saturate_and_all_but_zero_is_true(type: str, litert: list[Any], tmp_path: Path) -> None:
    assert computed(tmp_path, "CAST", FLOATS, ((10,), type), {}).tolist() == litert


@pytest.mark.parametrize(
    ("name", "type", "before", "after", "options", "data", "litert"),
    [
        ("ABS", "int8", (0.02, 3), (1 / 3, -4), {}, [-122, -105, -72, -55, -22], [4, 3, 1, 0, -2]),
        ("ABS", "int16", (0.02, 0), (0.04, 0), {}, [-32671, -32477, -32283], [16336, 16239, 16142]),
        ("RELU6", "uint8", (0.02, 0), (0.04, 128), None, [1, 3, 5, 9, 11], [129, 130, 131, 133, 134]),
        ("RELU_N1_TO_1", "uint8", (1 / 128, 128), (1 / 64, 128), None, [1, 3, 5, 7, 9], [65, 66, 67, 68, 69]),
        ("LEAKY_RELU", "int8", (0.05, 0), (0.05, 0), {"alpha": -0.3}, [-128, -121, -118, -111], [39, 37, 36, 34]),
        ("LEAKY_RELU", "int8", (1.0, 0), (1.0, 0), {"alpha": -0.5}, [-127, -125, -126], [63, 62, 63]),
    ],
)
def test_activations_that_android_does_not_map_are_rounded_as_tflite_rounds(
    name: str, type: str, before: Any, after: Any, options: Any, data: list[int], litert: list[int], tmp_path: Path
) -> None:
    stored = np.array(data, type)
    found = computed(tmp_path, name, stored, (stored.shape, type, *after), options, scale=before[0], zero_point=before[1])
    assert found.tolist() == litert


@pytest.mark.parametrize(("after", "place", "litert"), [(0.02, "host", [-87, -12]), (0.05, "wide", [-35, -5])])
def test_leaky_relu_is_prelu_where_the_delegate_refuses_it_if_prelu_rounds_alike(
    after: float, place: str, litert: list[int], tmp_path: Path
) -> None:
    """0.125 * 0.5 / 0.02 is 3.125 as a quotient of float32, and a little more as PRELU computes it: a tie, or not."""
    builder = TfliteBuilder()
    data, out = builder.tensor((2,), "int8", scale=0.125), builder.tensor((2,), "int8", scale=after)
    builder.operator("LEAKY_RELU", [data], [out], {"alpha": 0.5}, 2)
    path = builder.write(tmp_path / "m.tflite", [data], [out])
    model, mapped = converted(path, mapping="wide")
    assert mapped[0].mapping == place
    assert run(model, {"t0": np.array([-28, -4], np.int8)})[0].tolist() == litert


def test_a_scale_that_is_a_rounding_away_does_not_stop_the_run(tmp_path: Path) -> None:
    data = np.array([-9, 0, 1, 9], np.int8)
    found = computed(tmp_path, "RELU_N1_TO_1", data, ((4,), "int8", 1.0, 0), None, scale=0.999999, zero_point=0)
    assert found.tolist() == [-1, 0, 1, 1]  # LiteRT's answers


def test_a_16_bit_transposed_convolution_has_the_dimensions_that_it_states(tmp_path: Path) -> None:
    builder = TfliteBuilder()
    data, out = builder.tensor((1, 4, 5, 2), "int16", scale=0.1), builder.tensor((1, 8, 10, 3), "int16", scale=0.1)
    weights = builder.constant(np.ones((3, 3, 3, 2)), "int8", scale=[0.1] * 3, axis=0)
    options = {"padding": 0, "stride_h": 2, "stride_w": 2}
    builder.operator("TRANSPOSE_CONV", [builder.constant([1, 8, 12, 3], "int32"), weights, data], [out], options, 3)
    model, _ = converted(builder.write(tmp_path / "m.tflite", [data], [out]))
    assert model.main.operands[model.main.outputs[0]].dims == (1, 8, 12, 3)


def test_16_bit_sums_beyond_32_bits_wrap(tmp_path: Path) -> None:
    builder = TfliteBuilder()
    data, out = builder.tensor((1, 1, 1, 1), "int16", scale=7.3), builder.tensor((1, 1, 1, 1), "int16", scale=2.0**-10)
    weights = builder.constant(np.full((1, 1, 1, 1), 127), "int8", scale=[1.0], axis=0)
    bias = builder.constant([0], "int64", scale=[7.3])
    builder.operator("CONV_2D", [data, weights, bias], [out], {"padding": 1, "stride_h": 1, "stride_w": 1}, 4)
    model, _ = converted(builder.write(tmp_path / "m.tflite", [data], [out]))
    found = [run(model, {"t0": np.full((1, 1, 1, 1), v, np.int16)})[0].item() for v in (2000, 3000, -3000)]
    assert found == [32767, -32768, 32767]  # LiteRT's answers


def test_a_16_bit_fully_connected_sum_beyond_32_bits_becomes_the_lowest_number(tmp_path: Path) -> None:
    builder = TfliteBuilder()
    data, out = builder.tensor((3, 1), "int16", scale=1.0), builder.tensor((3, 1), "int16", scale=2.0**-20)
    units = builder.constant([0], "int64", scale=[1.0], axis=0)
    weights = builder.constant(np.ones((1, 1)), "int8", scale=[1.0], axis=0)
    builder.operator("FULLY_CONNECTED", [data, weights, units], [out], {}, 4)
    model, _ = converted(builder.write(tmp_path / "m.tflite", [data], [out]))
    found = run(model, {"t0": np.array([[2047], [2048], [-4096]], np.int16)})[0]
    assert found.reshape(-1).tolist() == [32767, -32768, -32768]  # LiteRT's answers


@pytest.mark.parametrize(("name", "litert"), [("ADD", [31029, 0, 1, 13616]), ("SUB", [0, 0, 0, 32767])])
def test_16_bit_scales_near_powers_of_two_are_shifts(name: str, litert: list[int], tmp_path: Path) -> None:
    builder = TfliteBuilder()
    a, b, y = (builder.tensor((4,), "int16", scale=scale) for scale in (0.999999, 0.5, 1.0))
    builder.operator(name, [a, b], [y], {"fused_activation_function": 1}, 2)
    model, _ = converted(builder.write(tmp_path / "m.tflite", [a, b], [y]))
    data = {"t0": [14645, -26088, 0, 30000], "t1": [32767, -32767, 1, -32767]}
    found = run(model, {name: np.array(values, np.int16) for name, values in data.items()})[0]
    assert found.tolist() == litert


def test_a_cast_of_32_bits_to_8_wraps_where_android_does_not_map_it(tmp_path: Path) -> None:
    data = np.array([-1, 255, 256, 513], np.int32)
    assert computed(tmp_path, "CAST", data, ((4,), "uint8"), {}).tolist() == [255, 255, 0, 1]  # LiteRT's answers


@pytest.mark.parametrize(("padding", "litert"), [(0, [-5, -2, -2]), (1, [-5, -2])])
def test_the_maximum_of_16_bit_windows_leaves_padding_out(padding: int, litert: list[int], tmp_path: Path) -> None:
    builder = TfliteBuilder()
    x, y = (builder.tensor((1, 1, n, 1), "int16", scale=0.5) for n in (3, len(litert)))
    options = {"padding": padding, "stride_h": 1, "stride_w": 1, "filter_height": 1, "filter_width": 2}
    builder.operator("MAX_POOL_2D", [x], [y], options, 3)
    model, _ = converted(builder.write(tmp_path / "m.tflite", [x], [y]), mapping="delegate")
    data = np.array([-9, -5, -2], np.int16).reshape(1, 1, 3, 1)
    assert run(model, {"t0": data})[0].reshape(-1).tolist() == litert  # LiteRT's answers


def test_wrapping_sums_of_a_fully_connected_operator_are_those_of_the_optimised_kernel(tmp_path: Path) -> None:
    """A multiplier of 1 doubles the sum in 32 bits before it halves it."""
    builder = TfliteBuilder()
    data, out = builder.tensor((1, 1), "int8", scale=1.0), builder.tensor((1, 4), "int8", scale=1.0, zero_point=-128)
    weights = builder.constant(np.ones((4, 1)), "int8", scale=1.0)
    bias = builder.constant([2**30 - 1, 2**30, 2**30 + 5, -(2**30) - 1], "int32", scale=1.0)
    builder.operator("FULLY_CONNECTED", [data, weights, bias], [out], {}, 4)
    model, _ = converted(builder.write(tmp_path / "m.tflite", [data], [out]))
    assert run(model, {"t0": np.zeros((1, 1), np.int8)})[0].tolist() == [[127, -128, -128, 127]]  # LiteRT's answers


def test_sums_of_units_with_large_scales_wrap_as_those_of_the_optimised_kernel(tmp_path: Path) -> None:
    """With a scale for each unit, which the host computes: 1084134 << 12 keeps its sign in 32 bits, 600000 << 12 does not."""
    builder = TfliteBuilder()
    data, out = builder.tensor((1, 1), "int8", scale=1.0), builder.tensor((1, 3), "int8", scale=1.0)
    scales = [3799.58, 3799.58, 2.0]
    weights = builder.constant(np.ones((3, 1)), "int8", scale=scales, axis=0)
    bias = builder.constant([1084134, 600000, -20], "int32", scale=scales, axis=0)
    builder.operator("FULLY_CONNECTED", [data, weights, bias], [out], {}, 4)
    model, _ = converted(builder.write(tmp_path / "m.tflite", [data], [out]))
    assert run(model, {"t0": np.zeros((1, 1), np.int8)})[0].tolist() == [[127, -128, -40]]  # LiteRT's answers


def test_ends_count_from_the_begins_whatever_end_mask_says(tmp_path: Path) -> None:
    """LiteRT has this shape, but reads to the dimension's end: it would write six numbers and more into it."""
    builder = TfliteBuilder()
    data, out = builder.tensor((4, 4), "int32"), builder.tensor((2, 2), "int32")
    numbers = [builder.constant(pair, "int32") for pair in ([1, 1], [2, 2], [1, 1])]
    builder.operator("STRIDED_SLICE", [data, *numbers], [out], {"end_mask": 3, "offset": True}, 2)
    model, _ = converted(builder.write(tmp_path / "m.tflite", [data], [out]))
    found = run(model, {"t0": np.arange(16, dtype=np.int32).reshape(4, 4)})[0]
    assert found.tolist() == [[5, 6], [9, 10]]


@pytest.mark.parametrize(("x", "litert"), [(-4.697362, -1.6799075e-06), (-2.4500177, -0.01707857)])
def test_gelu_by_tanh_is_litert_s_but_for_the_last_digits_of_1(x: float, litert: float, tmp_path: Path) -> None:
    found = computed(tmp_path, "GELU", np.array([x], np.float32), ((1,), "float32"), {"approximate": True})
    assert abs(found.item() - litert) < 2.0**-22 * abs(x)
