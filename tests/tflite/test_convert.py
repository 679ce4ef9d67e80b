"""From a file to a model: names, interface, mappings, feature levels, the host extension."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from flatbuffers import flexbuffers

from nnbridge.errors import ConversionError, NnapiError
from nnbridge.types import Lifetime, OperandCode, OperationCode, is_extension
from tests.tflite.agreement import converted, differences, run
from tests.tflite.files import TfliteBuilder
from tests.tflite.shared import real_model


@pytest.mark.parametrize("name", ["dtln_noise_suppression", "tf2_mobilenet_v2_1.0_224_ptq", "yamnet_wavin_quantized_mel_relu6"])
@pytest.mark.parametrize("mapping", ["delegate", "wide"])
@pytest.mark.parametrize("level", [1, 2, 3, 4, 6, 8])
def test_real_file_converts_at_every_level(name: str, mapping: str, level: int) -> None:
    model, placements = converted(real_model(name), mapping=mapping, feature_level=level)
    assert {o.mapping for o in model.main.operations} <= {"delegate", "wide", "host"}
    assert mapping == "wide" or all(p.mapping != "wide" for p in placements)


def _pair(name: str = "ADD", **options: object) -> TfliteBuilder:
    builder = TfliteBuilder()
    data, other, out = builder.tensor((2, 3), name="x"), builder.tensor((2, 3), name="x"), builder.tensor((2, 3), name="sum")
    builder.operator(name, [data, other], [out], dict(options))
    return builder


def test_operations_and_operands_carry_names(tmp_path: Path) -> None:
    model, _ = converted(_pair().write(tmp_path / "adder.tflite", [0, 1], [2]))
    operands = model.main.operands
    assert [operands[i].name for i in model.main.inputs] == ["x", "x#2"]
    assert operands[model.main.outputs[0]].name == "sum"
    assert (model.main.operations[0].name, model.main.operations[0].mapping) == ("0: ADD sum", "delegate")
    assert model.name == "adder"


def test_model_without_operators_copies(tmp_path: Path) -> None:
    builder = TfliteBuilder()
    a, b = builder.tensor((2,), name="a"), builder.tensor((2,), name="b")
    model, _ = converted(builder.write(tmp_path / "m.tflite", [a, b], [b, a]))
    assert [o.type for o in model.main.operations] == [OperationCode.RESHAPE] * 2
    first, second = run(model, {"a": np.array([1, 2], np.float32), "b": np.array([3, 4], np.float32)})
    assert (first.tolist(), second.tolist()) == ([3, 4], [1, 2])


def test_output_listed_twice_is_copied(tmp_path: Path) -> None:
    model, _ = converted(_pair().write(tmp_path / "m.tflite", [0, 1], [2, 2]))
    assert len(set(model.main.outputs)) == 2


def test_operator_that_nnapi_lacks_goes_to_the_host_with_its_options(tmp_path: Path) -> None:
    builder = TfliteBuilder()
    data, out = builder.tensor((2, 5)), builder.tensor((2, 5))
    builder.operator("CUMSUM", [data, builder.constant(0, "int32")], [out], {"exclusive": True, "reverse": True})
    model, placements = converted(builder.write(tmp_path / "m.tflite", [data], [out]))
    (operation,) = model.main.operations
    assert placements[0].mapping == operation.mapping == "host"
    assert placements[0].reasons
    assert model.extension_of(operation.type) == ("org.tensorflow.lite", 128)
    options = model.main.operands[operation.inputs[-1]]
    assert json.loads(bytes(model.bytes_of(options))) == {"exclusive": True, "reverse": True}


def test_string_operator_converts_and_is_refused_when_it_runs(tmp_path: Path) -> None:
    builder = TfliteBuilder()
    table, key, out = builder.tensor((1,), "RESOURCE"), builder.tensor((1,), "int64"), builder.tensor((1,), "int64")
    builder.operator("HASHTABLE_FIND", [table, key, key], [out], {})
    model, placements = converted(builder.write(tmp_path / "m.tflite", [table, key], [out]))
    assert placements[0].mapping == "host"
    with pytest.raises(NnapiError, match="HASHTABLE_FIND"):
        run(model, {"t0": np.zeros(1, np.uint8), "t1": np.zeros(1, np.int64)})


def test_signed_bytes_go_as_unsigned_below_level_4(tmp_path: Path) -> None:
    builder = TfliteBuilder()
    data, out = (builder.tensor((1, 4), "int8", scale=0.5, zero_point=-3) for _ in range(2))
    constant = builder.constant(np.array([-128, 0, 5, 127]), "int8", scale=0.5, zero_point=-3)
    builder.operator("ADD", [data, constant], [out], {}, version=2)
    path = builder.write(tmp_path / "m.tflite", [data], [out])
    old, _ = converted(path, feature_level=1)
    new, _ = converted(path)
    assert old.main.operands[0].type == OperandCode.TENSOR_QUANT8_ASYMM
    assert old.main.operands[0].zero_point == 125
    values = np.array([[-100, 3, 60, 127]], np.int8)
    signed = run(new, {"t0": values})[0]
    unsigned = run(old, {"t0": values.view(np.uint8) ^ 0x80})[0]
    assert (unsigned ^ 0x80).view(np.int8).tolist() == signed.tolist()


def test_hybrid_weights_are_folded_or_dequantised_at_run(tmp_path: Path) -> None:
    builder = TfliteBuilder()
    data, out = builder.tensor((2, 6)), builder.tensor((2, 4))
    weights = builder.constant(np.arange(24).reshape(4, 6) - 12, "int8", scale=0.25)
    builder.operator("FULLY_CONNECTED", [data, weights], [out], {}, version=3)
    path = builder.write(tmp_path / "m.tflite", [data], [out])
    values = np.arange(12, dtype=np.float32).reshape(2, 6)
    expected = values @ ((np.arange(24).reshape(4, 6) - 12) * 0.25).T
    for mapping, operations in (("delegate", ["DEQUANTIZE", "FULLY_CONNECTED"]), ("wide", ["FULLY_CONNECTED"])):
        model, placements = converted(path, mapping=mapping)
        np.testing.assert_allclose(run(model, {"t0": values})[0], expected, rtol=1e-6)
        assert [model.operation_name(o) for o in model.main.operations] == operations
        assert placements[0].mapping == mapping


def test_per_channel_weights_are_not_mistaken_for_per_tensor_ones(tmp_path: Path) -> None:
    builder = TfliteBuilder()
    data, out = (builder.tensor((1, 4, 4, 2), "int8", scale=0.5) for _ in range(2))
    weights = builder.constant(np.ones((2, 1, 1, 2)), "int8", scale=(0.1, 0.9))
    bias = builder.constant(np.zeros(2), "int32")
    builder.operator("CONV_2D", [data, weights, bias], [out], {"padding": 0, "stride_w": 1, "stride_h": 1}, version=3)
    path = builder.write(tmp_path / "m.tflite", [data], [out])
    assert [p.mapping for p in converted(path, feature_level=3)[1]] == ["delegate"]
    assert [p.mapping for p in converted(path, feature_level=2)[1]] == ["host"]


def test_resized_input_changes_every_shape(tmp_path: Path) -> None:
    builder = TfliteBuilder()
    data, out = builder.tensor((1, 8, 8, 3), name="image"), builder.tensor((1, 4, 4, 5))
    weights = builder.constant(np.ones((5, 3, 3, 3)), "float32")
    bias = builder.constant(np.zeros(5), "float32")
    builder.operator("CONV_2D", [data, weights, bias], [out], {"padding": 0, "stride_w": 2, "stride_h": 2})
    path = builder.write(tmp_path / "m.tflite", [data], [out])
    model, _ = converted(path, shapes={"image": (2, 10, 12, 3)})
    assert model.main.operands[model.main.outputs[0]].dims == (2, 5, 6, 5)
    with pytest.raises(ConversionError, match="an input \\(image\\), found picture"):
        converted(path, shapes={"picture": (1, 1, 1, 3)})


def test_omitted_operand_stays_omitted(tmp_path: Path) -> None:
    builder = TfliteBuilder()
    data, out = builder.tensor((1, 2, 1, 3)), builder.tensor((2, 3))
    builder.operator("SQUEEZE", [data], [out], {})
    model, _ = converted(builder.write(tmp_path / "m.tflite", [data], [out]))
    assert model.main.operands[model.main.operations[0].inputs[1]].lifetime is Lifetime.NO_VALUE


@pytest.mark.parametrize(
    ("options", "message"),
    [(b"\x01", "custom options as a flexbuffer"), (bytes(flexbuffers.Dumps([1, 2])), "custom options as a map")],
)
def test_broken_custom_options_are_refused(options: bytes, message: str, tmp_path: Path) -> None:
    builder = TfliteBuilder()
    inputs = [builder.tensor((1, 4, 4)), builder.tensor((1, 4, 3)), builder.tensor((4, 4))]
    outputs = [builder.tensor((1,)) for _ in range(4)]
    builder.operator("TFLite_Detection_PostProcess", inputs, outputs, custom=options)
    with pytest.raises(ConversionError, match=message):
        converted(builder.write(tmp_path / "m.tflite", inputs, outputs))


def test_detections_agree_with_litert() -> None:
    model, placements = converted(real_model("ssd_mobilenet_v1_quant_postprocess"))
    assert not any(is_extension(o.type) for o in model.main.operations)
    assert placements[-1].mapping == "wide"
    found, _ = differences(real_model("ssd_mobilenet_v1_quant_postprocess"))
    assert max(found) < 1e-4


def test_every_refusal_of_the_delegate_has_a_reason() -> None:
    _, placements = converted(real_model("movenet_single_pose_lightning_ptq"), mapping="delegate")
    left = [p for p in placements if p.mapping == "host"]
    assert left
    assert all(p.reasons for p in left)
    assert str(left[0].reasons[0]).startswith(f"operator {left[0].index} {left[0].operator}: ")


def test_state_of_any_size_is_not_made(tmp_path: Path) -> None:
    builder = TfliteBuilder()
    data, out = builder.tensor((1, 2)), builder.tensor((1, 2))
    state = builder.tensor((1 << 14, 1 << 15), is_variable=True)
    builder.operator("ADD", [data, state], [out], {})
    with pytest.raises(ConversionError, match="elements of new constants"):
        converted(builder.write(tmp_path / "m.tflite", [data], [out]))


def test_dimensions_that_data_decides_stay_open(tmp_path: Path) -> None:
    builder = TfliteBuilder()
    data, out = builder.tensor((5,), "bool"), builder.tensor((3, 1), "int64")
    builder.operator("WHERE", [data], [out], {})
    model, _ = converted(builder.write(tmp_path / "m.tflite", [data], [out]))
    assert model.main.operands[model.main.outputs[0]].dims == (0, 1)  # a row for each, of one number for each dimension
    assert run(model, {"t0": np.array([0, 1, 0, 0, 1], bool)})[0].tolist() == [[1], [4]]


def test_slices_of_a_computed_size_stay_open(tmp_path: Path) -> None:
    builder = TfliteBuilder()
    data, begin, size = builder.tensor((4, 2)), builder.tensor((2,), "int32"), builder.tensor((2,), "int32")
    out = builder.tensor((1, 1))  # What a file declares of such a tensor means nothing.
    builder.operator("SLICE", [data, begin, size], [out], {})
    model, _ = converted(builder.write(tmp_path / "m.tflite", [data, begin, size], [out]))
    inputs = {"t0": np.arange(8, dtype=np.float32).reshape(4, 2), "t1": np.int32([1, 0]), "t2": np.int32([-1, 2])}
    assert run(model, inputs)[0].tolist() == [[2, 3], [4, 5], [6, 7]]


def test_rows_are_picked_from_a_slice_of_computed_size(tmp_path: Path) -> None:
    builder = TfliteBuilder()
    data, begin, size, index = builder.tensor((4, 2)), *(builder.tensor(d, "int32") for d in ((2,), (2,), ()))
    cut, picked, last = builder.tensor((1, 1)), builder.tensor((1,)), builder.tensor((1,))
    builder.operator("SLICE", [data, begin, size], [cut], {})
    builder.operator("GATHER", [cut, index], [picked], {"axis": 0})
    ranges = [builder.constant(np.int32(v)) for v in ([-1, 0], [0, 2], [1, 1])]
    builder.operator("STRIDED_SLICE", [cut, *ranges], [last], {"shrink_axis_mask": 1})
    inputs = [data, begin, size, index]
    model, _ = converted(builder.write(tmp_path / "m.tflite", inputs, [picked, last]))
    values = [np.arange(8, dtype=np.float32).reshape(4, 2), np.int32([1, 0]), np.int32([2, 2]), np.int32([0])]
    answers = run(model, {f"t{i}": value for i, value in zip(inputs, values, strict=True)})
    assert [a.tolist() for a in answers] == [[2, 3], [4, 5]]
