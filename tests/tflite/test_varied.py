"""Faults that changed random operators and published files showed; the expected numbers are LiteRT's answers."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nnbridge.errors import ConversionError
from nnbridge_tflite.declaration import REGISTRY
from nnbridge_tflite.host.numbers import joined
from nnbridge_tflite.host.running import prepare
from tests.graphs import argument
from tests.tflite.agreement import Array, converted, differences, run
from tests.tflite.differential import verdicts
from tests.tflite.files import TfliteBuilder

MAPPINGS = ("wide", "delegate")


def test_changed_random_operators_compute_what_litert_computes() -> None:
    pytest.importorskip("ai_edge_litert.interpreter", reason="LiteRT is not installed")
    found = list(verdicts(range(120), 910_002, ["CONCATENATION", "CONV_2D", "EXP", "EXPAND_DIMS", "GELU", "MEAN", "SQRT"]))
    assert [v for v in found if v.outcome in ("differs", "fails")] == []


def test_integer_products_are_those_of_litert() -> None:
    pytest.importorskip("ai_edge_litert.interpreter", reason="LiteRT is not installed")
    found = list(verdicts(range(90), 950_001, ["BATCH_MATMUL", "POW", "REDUCE_PROD"]))
    assert [v for v in found if v.outcome in ("differs", "fails")] == []


def unary(folder: Path, name: str, data: Array, out: tuple[Any, ...], options: Any = None, **parameters: Any) -> Path:
    builder = TfliteBuilder()
    x, y = builder.tensor(data.shape, data.dtype.name, **parameters), builder.tensor(data.shape, out[0], scale=out[1])
    builder.tensors[y]["quantization"]["zero_point"] = np.array([out[2]], np.int64)
    builder.operator(name, [x], [y], options or {}, 2)
    return builder.write(folder / "m.tflite", [x], [y])


@pytest.mark.parametrize("mapping", MAPPINGS)
@pytest.mark.parametrize("type", ["int8", "int16"])
def test_a_quantised_root_is_cut_off(mapping: str, type: str, tmp_path: Path) -> None:
    point = -128 if type == "int8" else 0
    data = np.array([0, 1, 2, 3, 158], np.int64) + point
    path = unary(tmp_path, "SQRT", data.astype(type), (type, 0.5, point), scale=0.5, zero_point=point)
    model, _ = converted(path, mapping=mapping)
    assert (run(model, {"t0": data.astype(type)})[0].astype(int) - point).tolist() == [0, 1, 2, 2, 17]


@pytest.mark.parametrize(
    ("name", "options", "litert"),
    [
        ("EXP", None, [1021, 999, 1350]),
        ("GELU", {"approximate": True}, [10, -1, 186]),
        ("LOG", None, [-22514, -25257, -1216]),
        ("RSQRT", None, [22971, 25679, 1842]),
    ],
)
def test_16_bit_functions_come_of_a_table(name: str, options: Any, litert: list[int], tmp_path: Path) -> None:
    data = np.array([21, 0, 300], np.int16) if name in ("EXP", "GELU") else np.array([16, 1, 300], np.int16)
    path = unary(tmp_path, name, data, ("int16", 0.001, 0), options, scale=0.001)
    model, _ = converted(path)
    found = run(model, {"t0": data})[0].tolist()
    assert found == litert


def test_a_16_bit_softmax_of_8_bit_numbers_has_its_zero_point(tmp_path: Path) -> None:
    data = np.array([[0, 3], [5, 5]], np.int8)
    path = unary(tmp_path, "SOFTMAX", data, ("int16", 2.0**-16, -32768), {"beta": 1.0}, scale=0.0699, zero_point=2)
    model, _ = converted(path)
    assert run(model, {"t0": data})[0].tolist() == [[-3423, 3423], [0, 0]]


@pytest.mark.parametrize("constant", [True, False])
def test_joined_parts_of_five_dimensions_are_rescaled(constant: bool, tmp_path: Path) -> None:
    builder = TfliteBuilder()
    numbers = np.array([54, 35, 240, 58], np.uint8).reshape(1, 1, 1, 1, 4)
    x = builder.constant(numbers, scale=0.0625) if constant else builder.tensor(numbers.shape, "uint8", scale=0.0625)
    y = builder.tensor((1, 1, 1, 1, 8), "uint8", scale=0.03667218)
    builder.operator("CONCATENATION", [x, x], [y], {"axis": 4}, 2)
    model, _ = converted(builder.write(tmp_path / "m.tflite", [] if constant else [x], [y]))
    found = run(model, {} if constant else {"t0": numbers})[0]
    assert found.reshape(-1).tolist() == [92, 60, 255, 99] * 2


@pytest.mark.parametrize("mapping", MAPPINGS)
@pytest.mark.parametrize("scale", [0.25, 0.5])
def test_a_bias_that_is_computed_is_added(mapping: str, scale: float, tmp_path: Path) -> None:
    builder = TfliteBuilder()
    x, units = builder.tensor((1, 1, 1, 1), "int8", scale=0.5), builder.tensor((2,), "int32", scale=scale)
    weights = builder.constant(np.ones((2, 1, 1, 1)), "int8", scale=[0.5, 0.25], axis=0)
    y = builder.tensor((1, 1, 1, 2), "int8", scale=0.5)
    builder.operator("CONV_2D", [x, weights, units], [y], {"padding": 1, "stride_h": 1, "stride_w": 1}, 3)
    model, _ = converted(builder.write(tmp_path / "m.tflite", [x, units], [y]), mapping=mapping)
    found = run(model, {"t0": np.full((1, 1, 1, 1), 40, np.int8), "t1": np.array([4, -8], np.int32)})[0]
    assert found.reshape(-1).tolist() == [22, 8]


def test_a_16_bit_mean_has_computed_axes(tmp_path: Path) -> None:
    builder = TfliteBuilder()
    x, axes, y = (
        builder.tensor((2, 2), "int16", scale=0.5),
        builder.tensor((2,), "int32"),
        builder.tensor((1, 1), "int16", scale=0.5),
    )
    builder.operator("MEAN", [x, axes], [y], {"keep_dims": True}, 2)
    model, _ = converted(builder.write(tmp_path / "m.tflite", [x, axes], [y]))
    found = run(model, {"t0": np.array([[1, 2], [3, 10]], np.int16), "t1": np.array([0, 1], np.int32)})[0]
    assert found.tolist() == [[4]]


def test_a_scalar_gets_one_dimension(tmp_path: Path) -> None:
    builder = TfliteBuilder()
    x, y = builder.tensor((), "float32"), builder.tensor((1,), "float32")
    builder.operator("EXPAND_DIMS", [x, builder.constant([0], "int32")], [y], {}, 1)
    model, _ = converted(builder.write(tmp_path / "m.tflite", [x], [y]))
    assert model.main.operands[model.main.outputs[0]].dims == (1,)


@pytest.mark.parametrize("type", ["int8", "uint8"])
def test_more_than_four_dimensions_are_normalised(type: str, tmp_path: Path) -> None:
    builder, point = TfliteBuilder(), 0 if type == "int8" else 128
    x = builder.tensor((1, 2, 1, 2, 3), type, scale=0.1, zero_point=point)
    y = builder.tensor((1, 2, 1, 2, 3), type, scale=1 / 128, zero_point=point)
    builder.operator("L2_NORMALIZATION", [x], [y], {}, 2)
    found, _ = differences(builder.write(tmp_path / "m.tflite", [x], [y]))
    assert found == [0]


@pytest.mark.parametrize("type", ["int64", "bool", "uint32"])
def test_tables_have_values_of_any_type(type: str, tmp_path: Path) -> None:
    builder = TfliteBuilder()
    asked, keys, rows = builder.tensor((3,), "int32"), builder.tensor((2,), "int32"), builder.tensor((2, 2), type)
    y, hits = builder.tensor((3, 2), type), builder.tensor((3,), "uint8")
    builder.operator("HASHTABLE_LOOKUP", [asked, keys, rows], [y, hits], {}, 1)
    model, _ = converted(builder.write(tmp_path / "m.tflite", [asked, keys, rows], [y, hits]))
    table = np.array([[1, 0], [1, 1]], type)
    found = run(model, {"t0": np.array([7, 5, 3], np.int32), "t1": np.array([3, 7], np.int32), "t2": table})
    assert [a.astype(int).tolist() for a in found] == [[[1, 1], [0, 0], [1, 0]], [1, 0, 1]]


@pytest.mark.parametrize("mapping", MAPPINGS)
def test_a_scalar_has_no_dimensions(mapping: str, tmp_path: Path) -> None:
    builder = TfliteBuilder()
    x, y = builder.tensor((), "int32"), builder.tensor((), "int32")
    builder.operator("RANK", [x], [y], {}, 1)
    model, _ = converted(builder.write(tmp_path / "m.tflite", [x], [y]), mapping=mapping)
    inputs = {model.main.operands[i].name: np.array([19], np.int32) for i in model.main.inputs}
    assert run(model, inputs)[0].item() == 0


def blocks(folder: Path, **changed: int) -> Path:
    """FULLY_CONNECTED of two units with a scale for each two weights of 4 bits."""
    builder = TfliteBuilder()
    x, y = builder.tensor((1, 4), "float32"), builder.tensor((1, 2), "float32")
    scales = builder.constant([[0.5, 2.0], [1.0, 0.25]], "float16")
    builder.buffers.append({"data": np.array([0x21, 0x43, 0xF7, 0x8E], np.uint8)})
    details = {"scales": scales, "zero_points": -1, "block_size": 2, **changed}
    weights = builder.tensor((2, 4), "float32", buffer=len(builder.buffers) - 1)
    builder.tensors[weights] |= {"type": 17, "quantization": {"details_type": 2, "details": details}}
    builder.operator("FULLY_CONNECTED", [x, weights], [y], {}, 6)
    return builder.write(folder / "m.tflite", [x], [y])


@pytest.mark.parametrize("mapping", MAPPINGS)
def test_weights_have_a_scale_for_each_block(mapping: str, tmp_path: Path) -> None:
    """[1, 2, 3, 4] and [7, -1, -2, -8] in blocks of two."""
    model, _ = converted(blocks(tmp_path), mapping=mapping)
    found = run(model, {"t0": np.array([[1, 10, 100, 1000]], np.float32)})[0]
    assert found.tolist() == [[0.5 * 21 + 2 * 4300, -3 + 0.25 * -8200]]


@pytest.mark.parametrize("changed", [{"scales": 99}, {"scales": 0}, {"block_size": 3}, {"block_size": 0}, {"zero_points": 1}])
def test_blocks_that_do_not_fit_are_refused(changed: dict[str, int], tmp_path: Path) -> None:
    with pytest.raises(ConversionError, match="expected"):
        converted(blocks(tmp_path, **changed))


@pytest.mark.parametrize(
    ("name", "type"),
    [*((name, "int16") for name in ("EXP", "GELU", "LOG")), *((name, "int8") for name in ("EXP", "GELU", "LOG", "SQRT"))],
)
def test_functions_of_integers_agree_with_litert(name: str, type: str, tmp_path: Path) -> None:
    point = -128 if type == "int8" else 0
    scale = 0.02 if type == "int8" else 0.0002
    found, _ = differences(unary(tmp_path, name, np.zeros(500, type), (type, 0.01, point), scale=scale, zero_point=point))
    assert found == [0]


def sliced(folder: Path, shape: tuple[int, ...], result: tuple[int, ...], *ranges: list[int]) -> Path:
    builder = TfliteBuilder()
    x, y = builder.tensor(shape, "int32"), builder.tensor(result, "int32")
    named = [builder.constant(one, "int32") for one in ranges]
    builder.operator("STRIDED_SLICE", [x, *named], [y], {}, 1)
    return builder.write(folder / "m.tflite", [x], [y])


@pytest.mark.parametrize("mapping", MAPPINGS)
@pytest.mark.parametrize(("shape", "result"), [((3,), (2,)), ((), ())])
def test_no_range_beyond_the_dimensions_is_read(
    shape: tuple[int, ...], result: tuple[int, ...], mapping: str, tmp_path: Path
) -> None:
    model, _ = converted(sliced(tmp_path, shape, result, [0, 5], [2, 9], [1, 1]), mapping=mapping)
    data = np.array([7, 8, 9], np.int32)[: 3 if shape else 1]
    assert run(model, {"t0": data})[0].reshape(-1).tolist() == ([7, 8] if shape else [7])


@pytest.mark.parametrize("type", ["int16", "int32"])
def test_integers_without_a_scale_are_quantised_to_the_zero_point(type: str, tmp_path: Path) -> None:
    """8 bits without a scale have a scale of 1 for Android's delegate."""
    path = unary(tmp_path, "QUANTIZE", np.zeros(3, type), ("int8", 0.5, -45))
    model, _ = converted(path)
    assert run(model, {"t0": np.array([20, 1, 0], type)})[0].tolist() == [-45] * 3


def test_five_dimensions_are_rescaled_as_integers(tmp_path: Path) -> None:
    data = np.zeros((1, 1, 1, 1, 256), np.uint8)
    path = unary(tmp_path, "QUANTIZE", data, ("uint8", 0.14, 7), scale=0.333, zero_point=9)
    found, _ = differences(path)
    assert found == [0]


@pytest.mark.parametrize(
    ("name", "weights", "bias", "rule"),
    [
        ("CONV_2D", "uint8", "int64", "expected signed weights of at most 8 bits, found UINT8"),
        ("CONV_2D", "int16", "int64", "expected signed weights of at most 8 bits, found INT16"),
        ("CONV_2D", "int8", "int8", "expected a bias of int32 or int64 beside int16, found INT8"),
        ("DEPTHWISE_CONV_2D", "int16", "int32", "expected signed weights of at most 8 bits, found INT16"),
    ],
)
def test_weights_that_litert_would_read_as_others_are_refused(
    name: str, weights: str, bias: str, rule: str, tmp_path: Path
) -> None:
    builder = TfliteBuilder()
    x = builder.tensor((1, 2, 2, 1), "int16", scale=0.5)
    filter = builder.constant(np.ones((1, 1, 1, 1)), weights, scale=0.5)
    units = builder.constant([1], bias, scale=0.25)
    y = builder.tensor((1, 2, 2, 1), "int16", scale=0.5)
    builder.operator(name, [x, filter, units], [y], {"padding": 1, "stride_h": 1, "stride_w": 1}, 3)
    with pytest.raises(ConversionError, match=rule):
        converted(builder.write(tmp_path / "m.tflite", [x], [y]))


@pytest.mark.parametrize("type", ["int8", "uint8"])
def test_a_bias_of_64_bits_beside_bytes_is_refused(type: str, tmp_path: Path) -> None:
    builder = TfliteBuilder()
    x, y = builder.tensor((1, 4), type, scale=0.5), builder.tensor((1, 2), type, scale=0.5)
    weights, units = builder.constant(np.ones((2, 4)), type, scale=0.5), builder.constant([1, 2], "int64", scale=0.25)
    builder.operator("FULLY_CONNECTED", [x, weights, units], [y], {}, 4)
    with pytest.raises(ConversionError, match=f"expected a bias of int32 beside {type}, found INT64"):
        converted(builder.write(tmp_path / "m.tflite", [x], [y]))


@pytest.mark.parametrize(("time", "state"), [("int8", "int16"), ("int16", "int8")])
def test_an_integer_svdf_has_16_bits_in_time(time: str, state: str, tmp_path: Path) -> None:
    builder = TfliteBuilder()
    x, y = builder.tensor((1, 2), "int8", scale=0.5), builder.tensor((1, 1), "int8", scale=0.5)
    features, times = builder.constant(np.ones((1, 2)), "int8", scale=0.5), builder.constant(np.ones((1, 2)), time, scale=0.5)
    memory = builder.tensor((1, 2), state, scale=0.5, is_variable=True)
    builder.operator("SVDF", [x, features, times, builder.constant([1], "int32", scale=0.25), memory], [y], {"rank": 1}, 3)
    with pytest.raises(ConversionError, match="expected weights in time and a state of int16 beside int8, found INT8"):
        converted(builder.write(tmp_path / "m.tflite", [x], [y]))


def test_a_product_on_the_host_has_litert_s_multiplier(tmp_path: Path) -> None:
    """9 products of steps of 0.5 are 6.75 of float32's third: 0.25 / 0.33333334 is 0.75 in float32, and less as a double."""
    builder = TfliteBuilder()
    third = float(np.float32(1 / 3))
    x, z = builder.tensor((1, 1, 1, 1, 1, 3), "int8", scale=0.5), builder.tensor((1, 1, 1, 1, 1, 3), "int8", scale=third)
    y = builder.tensor((1, 1, 1, 1, 1, 3), "int8", scale=0.5)
    builder.operator("MUL", [x, y], [z], {}, 2)
    found, _ = differences(builder.write(tmp_path / "m.tflite", [x, y], [z]))
    assert found == [0]


def test_what_is_cast_at_conversion_is_no_truth_value(tmp_path: Path) -> None:
    builder = TfliteBuilder()
    x, whole, y = builder.tensor((3,), "uint8"), builder.tensor((3,), "uint8"), builder.tensor((3,), "uint8")
    builder.operator("CAST", [builder.constant([5.5, 0.25, 7.0], "float32")], [whole], {}, 1)
    builder.operator("MAXIMUM", [x, whole], [y], {}, 1)
    model, _ = converted(builder.write(tmp_path / "m.tflite", [x], [y]))
    assert run(model, {"t0": np.array([1, 1, 1], np.uint8)})[0].tolist() == [5, 1, 7]


@pytest.mark.parametrize("mapping", MAPPINGS)
def test_8_bit_functions_on_the_host_come_of_a_table(mapping: str, tmp_path: Path) -> None:
    """79 steps of 0.5 are 118.5 of a third by its inverse in float32, which is 3, and fewer by a division; five dimensions."""
    data = np.array([79, -128, 0, 67], np.int8).reshape(1, 1, 1, 1, 4)
    path = unary(tmp_path, "ELU", data, ("int8", float(np.float32(1 / 3)), -48), scale=0.5)
    model, _ = converted(path, mapping=mapping)
    assert run(model, {"t0": data})[0].reshape(-1).tolist() == [71, -51, -48, 53]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", ["EXP", "GELU", "LOG", "RSQRT"])
def test_a_table_is_made_without_warnings(name: str) -> None:
    ends = [argument((3,), "i1", scale, 3) for scale in (300.0, 0.01)]
    data = np.array([-128 if name != "RSQRT" else 4, 3, 127], np.int8)
    [found] = prepare(REGISTRY[name], 0, ends[:1], ends[1:], {})([data])
    assert found.dtype == np.int8


def test_truth_values_have_a_sum_of_one(tmp_path: Path) -> None:
    builder = TfliteBuilder()
    x, y = builder.tensor((2, 3), "bool"), builder.tensor((2,), "bool")
    builder.operator("SUM", [x, builder.constant([1], "int32")], [y], {}, 1)
    model, _ = converted(builder.write(tmp_path / "m.tflite", [x], [y]))
    found = run(model, {"t0": np.array([[True, True, True], [False, False, False]])})[0]
    assert found.view(np.uint8).tolist() == [1, 0]


def test_a_quotient_of_integers_has_an_activation(tmp_path: Path) -> None:
    builder = TfliteBuilder()
    x, y, z = (builder.tensor((3,), "int32") for _ in range(3))
    builder.operator("DIV", [x, y], [z], {"fused_activation_function": 3}, 1)
    model, _ = converted(builder.write(tmp_path / "m.tflite", [x, y], [z]), mapping="delegate")
    assert run(model, {"t0": np.array([-18, 19, 90], np.int32), "t1": np.array([11, 3, 4], np.int32)})[0].tolist() == [0, 6, 6]


@pytest.mark.parametrize(
    ("name", "count"), [("ADD", 2), ("HARD_SWISH", 1), ("LOGISTIC", 1), ("SQUARED_DIFFERENCE", 2), ("TANH", 1)]
)
def test_six_dimensions_are_computed_as_integers(name: str, count: int, tmp_path: Path) -> None:
    builder = TfliteBuilder()
    shapes = [(1, 2, 3, 1, 4, 5), (3, 1, 1, 5)][:count]
    ends = [builder.tensor(shape, "int8", scale=0.11, zero_point=5) for shape in shapes]
    scale, point = {"LOGISTIC": (1 / 256, -128), "TANH": (1 / 128, 0)}.get(name, (0.17, -9))
    y = builder.tensor(shapes[0], "int8", scale=scale, zero_point=point)
    builder.operator(name, ends, [y], {}, 1 if name == "HARD_SWISH" else 2)
    found, _ = differences(builder.write(tmp_path / "m.tflite", ends, [y]))
    assert max(found) == 0


@given(shape=st.lists(st.integers(1, 3), min_size=1, max_size=7), data=st.data())
def test_joined_shapes_are_broadcast_to_the_same_elements(shape: list[int], data: st.DataObject) -> None:
    mask = data.draw(st.lists(st.booleans(), min_size=len(shape), max_size=len(shape)))
    other = tuple(1 if one else size for one, size in zip(mask, shape, strict=True))[data.draw(st.integers(0, len(shape) - 1)) :]
    pair = [np.arange(math.prod(dims)).reshape(dims) for dims in (tuple(shape), other)]
    flat = [array.reshape(dims) for array, dims in zip(pair, joined([a.shape for a in pair]), strict=True)]
    assert (pair[0] * 1000 + pair[1]).ravel().tolist() == (flat[0] * 1000 + flat[1]).ravel().tolist()


@pytest.mark.parametrize("mapping", MAPPINGS)
def test_the_zero_point_of_hard_swish_is_added_in_16_bits(mapping: str, tmp_path: Path) -> None:
    """Numbers as LiteRT has them, whose kernel is Android's: 32,640 and 255 are more than 16 bits hold."""
    data = np.array([255, 254, 10, 0], np.uint8)
    builder = TfliteBuilder()
    x = builder.tensor((4,), "uint8", scale=float(np.float32(0.999999)))
    y = builder.tensor((4,), "uint8", scale=2.0**-7, zero_point=255)
    builder.operator("HARD_SWISH", [x], [y], {}, 1)
    model, _ = converted(builder.write(tmp_path / "m.tflite", [x], [y]), mapping=mapping)
    assert run(model, {"t0": data})[0].tolist() == [0, 255, 255, 255]


@pytest.mark.parametrize("mapping", MAPPINGS)
def test_a_constant_scalar_gets_one_dimension(mapping: str, tmp_path: Path) -> None:
    builder = TfliteBuilder()
    x, whole, y = builder.tensor((3,), "float32"), builder.tensor((1,), "float32"), builder.tensor((1,), "float32")
    builder.operator("EXPAND_DIMS", [builder.constant(0.5, "float32"), builder.constant([-1], "int32")], [y], {}, 1)
    builder.operator("ADD", [x, y], [whole], {}, 1)
    builder.tensors[whole]["shape"] = [3]
    model, _ = converted(builder.write(tmp_path / "m.tflite", [x], [y, whole]), mapping=mapping)
    found = run(model, {"t0": np.zeros(3, np.float32)})
    assert [a.tolist() for a in found] == [[0.5], [0.5] * 3]


def test_products_of_floats_in_an_output_of_integers_are_refused(tmp_path: Path) -> None:
    builder = TfliteBuilder()
    left, right, y = builder.tensor((2, 3)), builder.tensor((3, 2)), builder.tensor((2, 2), "int32")
    builder.operator("BATCH_MATMUL", [left, right], [y], {}, 1)
    with pytest.raises(ConversionError, match="expected an output of float32, found INT32"):
        converted(builder.write(tmp_path / "m.tflite", [left, right], [y]))
