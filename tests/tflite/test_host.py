"""The host's results beside LiteRT's: rounding, integer kernels, shapes that NNAPI's operations cannot have."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from flatbuffers import flexbuffers

from nnbridge import devices
from nnbridge.compare import seeded_inputs
from nnbridge.converters import ConversionOptions
from nnbridge.devices.host import HostPreparedModel
from nnbridge.errors import OpFailedError
from nnbridge.file import ModelFile
from nnbridge.runtime.compilation import Compilation
from nnbridge.runtime.execution import Execution
from nnbridge.types import is_extension
from nnbridge_tflite.lowerer import Lowerer
from tests.differential import computed
from tests.tflite.agreement import converted, differences
from tests.tflite.differential import reference
from tests.tflite.files import TfliteBuilder


@pytest.mark.parametrize("fused", [2, 3])
def test_bounds_of_16_bit_activations_are_rounded_half_away_from_zero(fused: int, tmp_path: Path) -> None:
    builder = TfliteBuilder()
    data, out = builder.tensor((4, 8), "int16", scale=0.001), builder.tensor((4, 5), "int16", scale={2: 2.0, 3: 12.0}[fused])
    weights = builder.constant(np.random.default_rng(0).integers(-127, 128, (5, 8)), "int8", scale=0.1)
    builder.operator("FULLY_CONNECTED", [data, weights], [out], {"fused_activation_function": fused}, 7)
    assert differences(builder.write(tmp_path / "m.tflite", [data], [out]))[0] == [0]


def test_fully_connected_with_a_scale_for_each_unit_and_a_product_of_scales_above_2_to_14(tmp_path: Path) -> None:
    builder = TfliteBuilder()
    data = builder.tensor((2, 3), "int8", scale=1.0, zero_point=127)
    out = builder.tensor((2, 3), "int8", scale=1 / 4096, zero_point=-128)
    scales = np.array([0.5, 8.0, 0.25])
    weights = builder.constant([[1, 0, -1], [2, -3, 1], [0, 0, 1]], "int8", scale=scales, axis=0)
    bias = builder.constant([127, -5, 100], "int32", scale=scales)
    builder.operator("FULLY_CONNECTED", [data, weights, bias], [out], {}, 5)
    assert differences(builder.write(tmp_path / "m.tflite", [data], [out]))[0] == [0]


@pytest.mark.parametrize("type", ["float32", "uint8", "int8"])
def test_transposed_convolutions_with_filters_smaller_than_strides_have_the_files_shape(type: str, tmp_path: Path) -> None:
    builder = TfliteBuilder()
    rng, quantised = np.random.default_rng(1), type != "float32"
    parameters = {"scale": 0.05, "zero_point": 3} if quantised else {}
    data, out = builder.tensor((1, 4, 3, 2), type, **parameters), builder.tensor((1, 12, 9, 5), type, **parameters)
    shape = builder.constant([1, 12, 9, 5], "int32")
    values = rng.integers(1, 127, (5, 1, 2, 2)) if quantised else rng.standard_normal((5, 1, 2, 2))
    weights = builder.constant(values, type, **({"scale": 0.02, "zero_point": 0} if quantised else {}))
    biases = rng.integers(-99, 99, 5) if quantised else rng.standard_normal(5)
    bias = builder.constant(biases, "int32" if quantised else type, **({"scale": 0.05 * 0.02} if quantised else {}))
    options = {"padding": 1, "stride_w": 3, "stride_h": 3}
    builder.operator("TRANSPOSE_CONV", [shape, weights, data, bias], [out], options, 3)
    found, placements = differences(builder.write(tmp_path / "m.tflite", [data], [out]))
    assert found[0] <= (0 if quantised else 1e-6)
    assert placements[0].mapping == "host"


def test_16_bit_numbers_are_quantised_to_32_bits(tmp_path: Path) -> None:
    builder = TfliteBuilder()
    data, out = builder.tensor((3, 7), "int16", scale=0.01), builder.tensor((3, 7), "int32", scale=0.0003)
    builder.operator("QUANTIZE", [data], [out], {}, 2)
    assert differences(builder.write(tmp_path / "m.tflite", [data], [out]))[0] == [0]


@pytest.mark.parametrize("calls", [1, 4])
@pytest.mark.parametrize("bias", [False, True])
def test_svdf_of_8_bit_activations_and_a_16_bit_state(bias: bool, calls: int, tmp_path: Path) -> None:
    builder, rng = TfliteBuilder(), np.random.default_rng(2)
    units, rank, memory, size, batch = 4, 2, 3, 5, 2
    data = builder.tensor((batch, size), "int8", scale=0.04, zero_point=-7)
    features = builder.constant(rng.integers(-127, 128, (units * rank, size)), "int8", scale=0.02)
    time = builder.constant(rng.integers(-32000, 32001, (units * rank, memory)), "int16", scale=0.00003)
    added = builder.constant(rng.integers(-9000, 9000, units), "int32", scale=0.005 * 0.00003) if bias else -1
    state = builder.tensor((batch, memory * units * rank), "int16", is_variable=True, scale=0.005)
    out = builder.tensor((batch, units), "int8", scale=0.05, zero_point=-128)
    options = {"rank": rank, "fused_activation_function": 1}
    builder.operator("SVDF", [data, features, time, added, state], [out], options, 3)
    assert differences(builder.write(tmp_path / "m.tflite", [data], [out]), calls=calls)[0] == [0]


@pytest.mark.parametrize("stated", [True, False])
@pytest.mark.parametrize(("threshold", "regular"), [(-20.0, False), (-0.5, True), (0.1, False)])
def test_detections_by_a_negative_score_threshold(threshold: float, regular: bool, stated: bool, tmp_path: Path) -> None:
    builder, rng = TfliteBuilder(), np.random.default_rng(4)
    boxes = 12
    inputs = [builder.tensor((1, boxes, 4)), builder.tensor((1, boxes, 3))]
    centres = rng.uniform(0.2, 0.8, (boxes, 4)).astype(np.float32)
    outputs = [builder.tensor(dims if stated else ()) for dims in ((1, 6, 4), (1, 6), (1, 6), (1,))]
    numbers = {"y_scale": 10.0, "x_scale": 10.0, "h_scale": 5.0, "w_scale": 5.0, "nms_iou_threshold": 0.6}
    numbers |= {"max_detections": 6, "max_classes_per_detection": 1, "num_classes": 2, "detections_per_class": 100}
    options = bytes(flexbuffers.Dumps(numbers | {"nms_score_threshold": threshold, "use_regular_nms": regular}))
    builder.operator("TFLite_Detection_PostProcess", [*inputs, builder.constant(centres)], outputs, custom=options)
    found, placements = differences(builder.write(tmp_path / "m.tflite", inputs, outputs))
    assert max(found) < 1e-5
    assert placements[0].mapping == ("host" if threshold < 0 else "wide")


@pytest.mark.parametrize("name", ["CONV_2D", "RESHAPE"])
def test_the_host_lowers_an_operator_when_it_is_prepared_and_never_when_it_runs(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    builder = TfliteBuilder()
    data, out = builder.tensor((1, 4, 4, 2), "int8", scale=0.1), builder.tensor((1, 4, 4, 2), "int8", scale=0.1)
    more = [builder.constant(np.ones((2, 1, 1, 2)), "int8", scale=0.1)] if name == "CONV_2D" else []
    more = more or [builder.constant([1, 4, 4, 2], "int32")]
    options = {"padding": 1, "stride_w": 1, "stride_h": 1} if name == "CONV_2D" else {}
    # A version that the delegate does not know.
    builder.operator(name, [data, *more], [out], options, 60)
    model, placements = converted(builder.write(tmp_path / "m.tflite", [data], [out]), mapping="delegate")
    assert placements[0].mapping == "host"
    compilation = Compilation.create_for_devices(model, [devices.cpu()])
    compilation.finish()
    lowered = []
    monkeypatch.setattr(Lowerer, "__init__", lambda self, *args, **more: lowered.append(self))
    for seed in range(3):
        Execution(compilation).run(seeded_inputs(model, seed))
    assert not lowered


@pytest.mark.parametrize("kind", ["float32", "uint8"])
@pytest.mark.parametrize(("regular", "each"), [(False, 1), (True, 1), (False, 2)])
def test_boxes_are_litert_s_bit_for_bit_and_in_its_order_where_scores_are_equal(
    regular: bool, each: int, kind: str, tmp_path: Path
) -> None:
    pytest.importorskip("ai_edge_litert.interpreter", reason="LiteRT is not installed")
    builder, rng = TfliteBuilder(), np.random.default_rng(3)
    boxes, limit = 12, 6
    parameters = {"scale": 0.05, "zero_point": 20} if kind == "uint8" else {}
    inputs = [builder.tensor((1, boxes, 4), kind, **parameters), builder.tensor((1, boxes, 3), kind, **parameters)]
    centres = rng.uniform(0.2, 0.8, (boxes, 4)).astype(np.float32) * np.float32([1, 1, 0.1, 0.1])
    # LiteRT reads anchors as it reads boxes.
    anchors = builder.constant(centres / 0.004 if kind == "uint8" else centres, kind, scale=0.004 if kind == "uint8" else 0.0)
    outputs = [builder.tensor(dims) for dims in ((1, limit * each, 4), (1, limit * each), (1, limit * each), (1,))]
    numbers = {"y_scale": 10.0, "x_scale": 10.0, "h_scale": 5.0, "w_scale": 5.0, "nms_iou_threshold": 0.6}
    numbers |= {"max_detections": limit, "max_classes_per_detection": each, "num_classes": 2, "nms_score_threshold": 0.1}
    options = bytes(flexbuffers.Dumps(numbers | {"use_regular_nms": regular}))
    builder.operator("TFLite_Detection_PostProcess", [*inputs, anchors], outputs, custom=options)
    path = builder.write(tmp_path / "m.tflite", inputs, outputs)
    scores = np.stack([np.zeros(boxes), rng.integers(1, 4, boxes) / 4, rng.integers(1, 4, boxes) / 4 + 0.1], -1)
    feeds = [rng.normal(0, 0.5, (1, boxes, 4)).astype(np.float32), scores[np.newaxis].astype(np.float32)]
    if kind == "uint8":
        feeds = [np.rint(feed / 0.05 + 20).clip(0, 255).astype(np.uint8) for feed in feeds]
    found, _ = computed(path, "delegate", feeds)
    for ours, litert in zip(found, reference(path, feeds), strict=True):
        np.testing.assert_array_equal(ours, litert)
    assert computed(path, "wide", feeds)[0][3].tolist() == [limit]


def test_transposed_convolution_in_dimensions_that_are_an_input(tmp_path: Path) -> None:
    builder = TfliteBuilder()
    rng = np.random.default_rng(0)
    shape, data = builder.tensor((4,), "int32"), builder.tensor((1, 2, 3, 2), "int16", scale=0.01)
    weights = builder.constant(rng.integers(-127, 128, (4, 3, 2, 2)), "int8", scale=0.02)
    out = builder.tensor((1, 5, 7, 4), "int16", scale=0.05)
    builder.operator("TRANSPOSE_CONV", [shape, weights, data], [out], {"padding": 1, "stride_h": 2, "stride_w": 2}, 2)
    path = builder.write(tmp_path / "m.tflite", [shape, data], [out])
    feeds = [np.int32([1, 5, 7, 4]), rng.integers(-9000, 9000, (1, 2, 3, 2)).astype(np.int16)]
    np.testing.assert_array_equal(computed(path, "wide", feeds)[0][0], reference(path, feeds)[0])


def test_8_bit_steps_of_gelu_are_counted_in_float32(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    for case in range(20):
        builder = TfliteBuilder()
        scales, points = rng.uniform(0.001, 0.2, 2), rng.integers(-128, 128, 2)
        data, out = (
            builder.tensor((256,), "int8", scale=float(s), zero_point=int(p)) for s, p in zip(scales, points, strict=True)
        )
        builder.operator("GELU", [data], [out], {"approximate": bool(case % 2)}, 2)
        path = builder.write(tmp_path / "m.tflite", [data], [out])
        feeds = [np.arange(-128, 128).astype(np.int8)]
        np.testing.assert_array_equal(computed(path, "wide", feeds)[0][0], reference(path, feeds)[0])


def test_magnitudes_of_complex_numbers_are_rounded_as_in_litert(tmp_path: Path) -> None:
    pytest.importorskip("ai_edge_litert.interpreter", reason="LiteRT is not installed")
    builder, rng = TfliteBuilder(), np.random.default_rng(0)
    x, y = builder.tensor((500,), "complex64"), builder.tensor((500,))
    builder.operator("COMPLEX_ABS", [x], [y])
    path = builder.write(tmp_path / "m.tflite", [x], [y])
    feeds = [(rng.normal(size=500) + 1j * rng.normal(size=500)).astype(np.complex64)]
    (found,), _ = computed(path, "delegate", feeds)
    (litert,) = reference(path, feeds)
    assert found.tobytes() == litert.tobytes()


def test_a_constant_condition_of_more_dimensions_than_the_values_selects_as_in_litert(tmp_path: Path) -> None:
    builder = TfliteBuilder()
    condition = builder.constant(np.ones((1, 1, 1, 1), bool), "bool")
    values, out = [builder.tensor((1, 1)) for _ in range(2)], builder.tensor((1, 1))
    builder.operator("SELECT_V2", [condition, *values], [out], {})
    assert differences(builder.write(tmp_path / "m.tflite", values, [out]))[0] == [0]


@pytest.mark.parametrize("length", [5, -1])
def test_sequences_longer_than_the_tensor_are_refused(length: int, tmp_path: Path) -> None:
    builder = TfliteBuilder()
    data, out = builder.tensor((2, 4)), builder.tensor((2, 4))
    builder.operator("REVERSE_SEQUENCE", [data, builder.constant([4, length], "int32")], [out], {"seq_dim": 1, "batch_dim": 0})
    model = converted(builder.write(tmp_path / "m.tflite", [data], [out]))[0]
    compilation = Compilation.create(model, [])
    compilation.finish()
    with pytest.raises(OpFailedError, match=rf"lengths from 0 to 4, found \[4, {length}\]"):
        Execution(compilation).run([np.zeros((2, 4), np.float32)])


def test_the_lowest_byte_divided_by_minus_one_wraps(tmp_path: Path) -> None:
    # As in the last elements of LiteRT's tensors; those before them are computed by vectors, which saturate.
    builder = TfliteBuilder()
    values, out = [builder.tensor((1,), "int8") for _ in range(2)], builder.tensor((1,), "int8")
    builder.operator("FLOOR_DIV", values, [out], {}, 3)
    path, inputs = builder.write(tmp_path / "m.tflite", values, [out]), [np.array([v], np.int8) for v in (-128, -1)]
    [ours], [theirs] = computed(path, "wide", inputs)[0], reference(path, inputs)
    assert ours.tolist() == theirs.tolist() == [-128]


@pytest.mark.parametrize(("operator", "expected"), [("ADD", [8, 32767, -32768]), ("SUB", [-8, 32767, -32768])])
def test_16_bit_sums_whose_output_scale_is_too_small_saturate(operator: str, expected: list[int], tmp_path: Path) -> None:
    # 0.5 is 2**16 steps of the output: LiteRT's ADD ends the process, its SUB shifts by a negative number.
    builder = TfliteBuilder()
    values, out = [builder.tensor((3,), "int16", scale=s) for s in (0.5, 2**-16)], builder.tensor((3,), "int16", scale=2**-17)
    builder.operator(operator, values, [out], {}, 3)
    feeds = [np.array(numbers, np.int16) for numbers in ([0, 1, -1], [4, 0, 0])]
    [found], _ = computed(builder.write(tmp_path / "m.tflite", values, [out]), "wide", feeds)
    assert found.tolist() == expected


def test_16_bit_products_round_ties_away_from_zero(tmp_path: Path) -> None:
    builder = TfliteBuilder()
    data, out = builder.tensor((3, 1), "int16", scale=0.5), builder.tensor((3, 2), "int16", scale=1.0)
    weights, bias = builder.constant([[1], [1]], "int8", scale=1.0), builder.constant([-3, 1], "int64", scale=0.5)
    builder.operator("FULLY_CONNECTED", [data, weights, bias], [out], {}, 4)
    path, feeds = builder.write(tmp_path / "m.tflite", [data], [out]), [np.array([[0], [4], [-4]], np.int16)]
    [ours], [theirs] = computed(path, "wide", feeds)[0], reference(path, feeds)
    assert ours.tolist() == theirs.tolist() == [[-2, 1], [1, 3], [-4, -2]]


def _unpacked(folder: Path) -> Compilation:
    """UNPACK of int8, left to the host by the delegate: NNAPI has no UNPACK, but operations that compute it."""
    builder = TfliteBuilder()
    x = builder.tensor((2, 3), "int8", scale=0.05, zero_point=3)
    parts = [builder.tensor((2,), "int8", scale=0.05, zero_point=3) for _ in range(3)]
    builder.operator("UNPACK", [x], parts, {"num": 3, "axis": 1})
    model, _ = ModelFile(builder.write(folder / "m.tflite", [x], parts), ConversionOptions(mapping="delegate")).converted
    compilation = Compilation.create(model, [])
    compilation.finish()
    return compilation


def test_host_operators_that_nnapis_operations_compute_are_steps_of_one_program(tmp_path: Path) -> None:
    compilation = _unpacked(tmp_path)
    [prepared] = compilation.plan.prepared
    assert isinstance(prepared, HostPreparedModel)
    executor = prepared._executor
    assert executor is not None
    assert len(executor.model.main.operations) == 4
    assert not any(is_extension(operation.type) for operation in executor.model.main.operations)


def test_observers_see_the_files_operands_only(tmp_path: Path) -> None:
    compilation = _unpacked(tmp_path)
    execution, seen = Execution(compilation), []
    execution.observer = lambda plan, step, device, subgraph, operand, value: seen.append((subgraph, operand))
    x = np.int8([[1, 2, 3], [4, 5, 6]])
    outputs = execution.run([x])
    assert set(seen) <= {(0, i) for i in range(len(compilation.model.main.operands))}
    assert {i for _, i in seen} >= {i for operation in compilation.model.main.operations for i in operation.outputs}
    assert [values.tolist() for values in outputs.values()] == [[1, 4], [2, 5], [3, 6]]
