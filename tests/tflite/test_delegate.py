"""Refusals of Android's delegate, by operator: the conditions of nnapi_delegate.cc, one file each."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from nnbridge.converters.inspection import Mapped
from nnbridge.types import OperationCode
from tests.tflite.agreement import converted, differences
from tests.tflite.files import TfliteBuilder
from tests.tflite.shared import real_model

Make = Callable[[TfliteBuilder], tuple[list[int], list[int]]]


def _cast(b: TfliteBuilder) -> tuple[list[int], list[int]]:
    x, y = b.tensor((2, 3)), b.tensor((2, 3), "int64")
    b.operator("CAST", [x], [y], {"in_data_type": 0, "out_data_type": 4})
    return [x], [y]


def _dequantize(b: TfliteBuilder) -> tuple[list[int], list[int]]:
    x, y = b.tensor((2, 3), "int8", scale=0.1, zero_point=3), b.tensor((2, 3))
    b.operator("DEQUANTIZE", [x], [y], {}, 2)
    return [x], [y]


def _half(b: TfliteBuilder) -> tuple[list[int], list[int]]:
    x, y = b.tensor((2, 3), "float16"), b.tensor((2, 3))
    b.operator("DEQUANTIZE", [x], [y], {}, 2)
    return [x], [y]


def _maximum(b: TfliteBuilder) -> tuple[list[int], list[int]]:
    x, s, y = b.tensor((2, 3)), b.tensor(()), b.tensor((2, 3))
    b.operator("MAXIMUM", [x, s], [y], {})
    return [x, s], [y]


def _split(b: TfliteBuilder) -> tuple[list[int], list[int]]:
    x = b.tensor((2, 4), "int8", scale=0.1)
    outs = [b.tensor((2, 2), "int8", scale=0.1) for _ in range(2)]
    b.operator("SPLIT", [b.constant(1, "int32"), x], outs, {"num_splits": 2}, 2)
    return [x], outs


def _split_sizes(b: TfliteBuilder) -> tuple[list[int], list[int]]:
    x, outs = b.tensor((2, 4)), [b.tensor((2, 4)), b.tensor((2, 0))]
    b.operator("SPLIT_V", [x, b.constant([4, -1], "int32"), b.constant(1, "int32")], outs, {"num_splits": 2})
    return [x], outs[:1]


def _resize(b: TfliteBuilder) -> tuple[list[int], list[int]]:
    x, y = b.tensor((1, 2, 2, 1)), b.tensor((1, 4, 6, 1))
    b.operator("RESIZE_BILINEAR", [x, b.constant([4, 6], "int32")], [y], {})
    return [x], [y]


def _squeeze(b: TfliteBuilder) -> tuple[list[int], list[int]]:
    x, y = b.tensor((1, 3)), b.tensor((3,))
    b.operator("SQUEEZE", [x], [y], {})
    return [x], [y]


def _difference(b: TfliteBuilder) -> tuple[list[int], list[int]]:
    x, z, y = b.tensor((2, 3), "int32"), b.tensor((2, 3), "int32"), b.tensor((2, 3), "int32")
    b.operator("SQUARED_DIFFERENCE", [x, z], [y], {})
    return [x, z], [y]


def _projection(b: TfliteBuilder) -> tuple[list[int], list[int]]:
    x, y = b.tensor((6, 2)), b.tensor((3,), "int32")
    b.operator("LSH_PROJECTION", [b.constant(np.ones((3, 4)), "float32"), x], [y], {"type": 1})
    return [x], [y]


def _arg_max(b: TfliteBuilder) -> tuple[list[int], list[int]]:
    x, axis, y = b.tensor((2, 3)), b.tensor((1,), "int64"), b.tensor((2,), "int32")
    b.operator("ARG_MAX", [x, axis], [y], {"output_type": 2})
    return [x, axis], [y]


REFUSED = [
    (_cast, 8, "an output of FLOAT32 or UINT8 or INT8 or INT32"),
    (_dequantize, 3, "int8 with zero point 0 below feature level 4"),
    (_half, 3, "an input of UINT8 or INT8 below feature level 4"),
    (_maximum, 8, "scalars that are constant"),
    (_split, 3, "feature level 4 for int8"),
    (_split_sizes, 8, "sizes above 0"),
    (_resize, 2, "a square output"),
    (_squeeze, 2, "dimensions to squeeze"),
    (_difference, 3, "an input of FLOAT32 or UINT8 below feature level 4"),
    (_projection, 2, "feature level 3 and no weights for sparse projections"),
    (_arg_max, 8, "an int32 axis or a constant one"),
]


def _placed(make: Make, level: int, folder: Path) -> Mapped:
    builder = TfliteBuilder()
    inputs, outputs = make(builder)
    path = builder.write(folder / "m.tflite", inputs, outputs)
    return converted(path, mapping="delegate", feature_level=level, allow_dynamic_dimensions=True)[1][0]


@pytest.mark.parametrize(("make", "level", "rule"), REFUSED)
def test_the_delegate_refuses(make: Make, level: int, rule: str, tmp_path: Path) -> None:
    placed = _placed(make, level, tmp_path)
    assert placed.mapping == "host"
    assert placed.reasons[0].rule == rule


@pytest.mark.parametrize(("make", "level"), [(_dequantize, 4), (_half, 4), (_split, 4), (_resize, 4), (_difference, 4)])
def test_the_delegate_accepts_it_from_the_next_level(make: Make, level: int, tmp_path: Path) -> None:
    assert _placed(make, level, tmp_path).mapping == "delegate"


def _hard_swish(b: TfliteBuilder, type: str) -> tuple[list[int], list[int]]:
    pair = ({"scale": 0.05, "zero_point": 90}, {"scale": 0.035, "zero_point": 11}) if type == "uint8" else ({}, {})
    x, y = b.tensor((2, 9), type, **pair[0]), b.tensor((2, 9), type, **pair[1])
    b.operator("HARD_SWISH", [x], [y], {})
    return [x], [y]


@pytest.mark.parametrize(("type", "most"), [("float32", 1e-6), ("uint8", 3)])
def test_hard_swish_goes_in_parts_below_level_4(type: str, most: float, tmp_path: Path) -> None:
    builder = TfliteBuilder()
    path = builder.write(tmp_path / "m.tflite", *_hard_swish(builder, type))
    model, _ = converted(path, mapping="delegate", feature_level=3)
    codes = [operation.type for operation in model.main.operations]
    assert codes == [OperationCode.MUL, OperationCode.MUL, OperationCode.MUL, OperationCode.ADD]
    # Each part is rounded to steps of its own.
    assert max(differences(path, mapping="delegate", feature_level=3)[0]) <= most


def test_an_8_bit_mean_with_other_parameters_adds_zero(tmp_path: Path) -> None:
    builder = TfliteBuilder()
    x = builder.tensor((1, 4, 4, 3), "int8", scale=0.05, zero_point=-8)
    y = builder.tensor((1, 3), "int8", scale=0.02, zero_point=4)
    builder.operator("MEAN", [x, builder.constant([1, 2], "int32")], [y], {"keep_dims": False}, 2)
    path = builder.write(tmp_path / "m.tflite", [x], [y])
    model, _ = converted(path, mapping="delegate")
    assert [operation.type for operation in model.main.operations] == [OperationCode.MEAN, OperationCode.ADD]
    # NNAPI's mean drops up to one step of 0.05, which is two and a half of 0.02.
    assert max(differences(path, mapping="delegate")[0]) <= 3
    assert [p.mapping for p in converted(path)[1]] == ["host"]


def test_an_8_bit_squared_difference_has_a_difference_of_8_bits(tmp_path: Path) -> None:
    builder = TfliteBuilder()
    pair = [builder.tensor((2, 9), "int8", scale=0.01) for _ in range(2)]
    y = builder.tensor((2, 9), "int8", scale=6.6 / 255, zero_point=-128)
    builder.operator("SQUARED_DIFFERENCE", pair, [y], {}, 2)
    path = builder.write(tmp_path / "m.tflite", pair, [y])
    model, _ = converted(path, mapping="delegate")
    assert [operation.type for operation in model.main.operations] == [OperationCode.SUB, OperationCode.MUL]
    # d * d of a difference that is half a step of 0.02 off: 2 * 2.57 * 0.01 / 0.026.
    assert max(differences(path, mapping="delegate")[0]) <= 2
    assert max(differences(path)[0]) <= 1


def test_detections_stay_with_tflite_as_no_custom_operator_is_mapped() -> None:
    _, placements = converted(real_model("ssd_mobilenet_v1_quant_postprocess"), mapping="delegate")
    placed = next(p for p in placements if p.operator == "TFLite_Detection_PostProcess")
    assert placed.mapping == "host"
    assert placed.reasons[0].rule == "an operator that the delegate supports"


def test_what_tflite_computes_once_stays_a_node(tmp_path: Path) -> None:
    builder = TfliteBuilder()
    x, shape, y = builder.tensor((2, 3)), builder.tensor((2,), "int32"), builder.tensor((2, 3))
    builder.operator("SHAPE", [x], [shape], {"out_type": 2})
    builder.operator("RESHAPE", [x, shape], [y], {})
    path = builder.write(tmp_path / "m.tflite", [x], [y])
    model, placements = converted(path, mapping="delegate")
    assert [str(p.mapping) for p in placements] == ["host", "host"]
    assert placements[1].reasons[0].rule == "a constant shape"
    assert model.main.operands[model.main.outputs[0]].dims == (2, 3)
    # A reshape to known dimensions is NNAPI's all the same where it may be.
    assert [str(p.mapping) for p in converted(path, mapping="wide")[1]] == ["folded", "wide"]


def test_half_precision_weights_are_no_nodes(tmp_path: Path) -> None:
    builder = TfliteBuilder()
    x, half, y = builder.tensor((2, 3)), builder.tensor((3,)), builder.tensor((2, 3))
    builder.operator("DEQUANTIZE", [builder.constant([1, 2, 3], "float16")], [half], {})
    builder.operator("ADD", [x, half], [y], {})
    _, placements = converted(builder.write(tmp_path / "m.tflite", [x], [y]), mapping="delegate")
    assert [str(p.mapping) for p in placements] == ["folded", "delegate"]
