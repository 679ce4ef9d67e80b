"""First feature levels and versions of LiteRT's NNAPI delegate (tflite/delegates/nnapi/nnapi_delegate.cc, v1.0.1 to v2.2.0)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nnbridge.converters import ConversionOptions
from nnbridge.converters.inspection import Mapped
from nnbridge.file import ModelFile
from nnbridge.types import OperationCode
from tests.tflite.files import TfliteBuilder

Make = Callable[[TfliteBuilder], tuple[list[int], list[int]]]
QUANTISED = {"uint8": {"scale": 0.1, "zero_point": 3}, "int8": {"scale": 0.1, "zero_point": 3}}
POOL = {"padding": 0, "stride_w": 1, "stride_h": 1, "filter_width": 17, "filter_height": 16}
WINDOW = {"padding": 0, "stride_w": 1, "stride_h": 1}


def operator(
    name: str,
    shapes: Sequence[Sequence[int]],
    outs: Sequence[Sequence[int]],
    options: dict[str, Any] | None = None,
    *constants: Any,
    type: str = "float32",
    version: int = 1,
    first: bool = False,
) -> Make:
    """One operator: computed inputs, then int32 constants, or these first; all of one element type."""

    def make(b: TfliteBuilder) -> tuple[list[int], list[int]]:
        inputs = [b.tensor(shape, type, **QUANTISED.get(type, {})) for shape in shapes]
        outputs = [b.tensor(shape, type, **QUANTISED.get(type, {})) for shape in outs]
        known = [b.constant(value, "int32") for value in constants]
        b.operator(name, [*known, *inputs] if first else [*inputs, *known], outputs, options or {}, version)
        return inputs, outputs

    return make


def _transposed(b: TfliteBuilder) -> tuple[list[int], list[int]]:
    x, y = b.tensor((1, 2, 2, 1)), b.tensor((1, 2, 2, 1))
    weights = b.constant(np.ones((1, 1, 1, 1)), "float32")
    bias = b.constant([0.0], "float32")
    options = {**WINDOW, "fused_activation_function": 1}
    b.operator("TRANSPOSE_CONV", [b.constant([1, 2, 2, 1], "int32"), weights, x, bias], [y], options, 4)
    return [x], [y]


def _grouped(b: TfliteBuilder) -> tuple[list[int], list[int]]:
    x, y = b.tensor((1, 2, 2, 4)), b.tensor((1, 2, 2, 2))
    weights, bias = b.constant(np.ones((2, 1, 1, 2)), "float32"), b.constant([0.0, 0.0], "float32")
    b.operator("CONV_2D", [x, weights, bias], [y], {**WINDOW, "dilation_w_factor": 1, "dilation_h_factor": 1})
    return [x], [y]


def _half(b: TfliteBuilder) -> tuple[list[int], list[int]]:
    x, y = b.tensor((2, 3), "float16"), b.tensor((2, 3))
    b.operator("DEQUANTIZE", [x], [y], {}, 3)
    return [x], [y]


MATRICES = {"adj_x": False, "adj_y": False}
PACK = partial(operator, "PACK", [(2, 3)] * 2)
FIRST_LEVELS = [
    (operator("RESHAPE", [(2, 3)], [(6,)], None, [6], type="int32"), 6),
    (PACK([(2, 3, 2)], {"values_count": 2, "axis": 2}), 6),
    (PACK([(2, 3, 2)], {"values_count": 2, "axis": -1}), 6),
    (PACK([(2, 2, 3)], {"values_count": 2, "axis": 0}, type="int32"), 6),
    (PACK([(2, 2, 3)], {"values_count": 2, "axis": 0}, type="uint8"), 6),
    (PACK([(2, 2, 3)], {"values_count": 2, "axis": 0}), 4),
    (operator("UNPACK", [(2, 3)], [(3,)] * 2, {"num": 2, "axis": 0}), 4),
    (operator("UNPACK", [(2, 3, 4)], [(2, 4)] * 3, {"num": 3, "axis": 1}, type="uint8"), 4),
    (operator("SPLIT_V", [(2, 4)], [(2, 1), (2, 3)], {"num_splits": 2}, [1, -1], 1), 4),
    (operator("REVERSE_V2", [(2, 3)], [(2, 3)], None, [1]), 7),
    (operator("MIRROR_PAD", [(2, 3)], [(3, 5)], {"mode": 0}, [[1, 0], [0, 2]], type="int8"), 7),
    (operator("RSQRT", [(2, 3)], [(2, 3)]), 3),
    (operator("RSQRT", [(2, 3)], [(2, 3)], type="int8", version=2), 7),
    (operator("COS", [(2, 3)], [(2, 3)]), 3),
    (operator("BATCH_MATMUL", [(2, 3, 4), (2, 4, 5)], [(2, 3, 5)], MATRICES), 6),
    (_transposed, 3),
    (_grouped, 3),
    (_half, 4),
]
NEVER = [
    (operator("UNPACK", [(2, 3)], [(2,)] * 3, {"num": 3, "axis": 1}), "an axis before the last"),
    (operator("UNPACK", [(2,)], [()] * 2, {"num": 2, "axis": 0}), "an input of rank 2 to 4"),
    (operator("REVERSE_V2", [(2, 3)], [(2, 3)], None, [0, 1]), "one axis"),
    (operator("BATCH_MATMUL", [(2, 3, 4), (1, 4, 5)], [(2, 3, 5)], MATRICES), "stacks of one size"),
    (operator("MUL", [(2, 3)] * 2, [(2, 3)], type="int8", version=3), "operator version 2 at most"),
    (
        operator("AVERAGE_POOL_2D", [(1, 16, 17, 1)], [(1, 16, 17, 1)], POOL, type="uint8"),
        "a window of at most 256 elements for 8-bit tensors on NNAPI's CPU",
    ),
]


def placed(make: Make, folder: Path, level: int = 8, *, accelerated: bool = False) -> tuple[Mapped, list[OperationCode]]:
    builder = TfliteBuilder()
    path = builder.write(folder / "m.tflite", *make(builder))
    options = ConversionOptions(level, "delegate", accelerated=accelerated)
    model, (mapped,) = ModelFile(path, options).converted
    return mapped, [OperationCode(o.type) for o in model.main.operations] if mapped.mapping == "delegate" else []


@pytest.mark.parametrize(("make", "level"), FIRST_LEVELS)
def test_the_delegate_maps_it_from_a_feature_level(make: Make, level: int, tmp_path: Path) -> None:
    assert placed(make, tmp_path, level)[0].mapping == "delegate"
    assert placed(make, tmp_path, level - 1)[0].mapping == "host"


@pytest.mark.parametrize(("make", "rule"), NEVER)
def test_the_delegate_leaves_it(make: Make, rule: str, tmp_path: Path) -> None:
    mapped, _ = placed(make, tmp_path)
    assert (mapped.mapping, mapped.reasons[0].rule) == ("host", rule)


@pytest.mark.parametrize("make", [make for make, rule in NEVER if "version 2" in rule or "256" in rule])
def test_without_nnapis_cpu_its_limits_do_not_count(make: Make, tmp_path: Path) -> None:
    assert placed(make, tmp_path, accelerated=True)[0].mapping == "delegate"


def test_pack_becomes_concatenation_below_level_6(tmp_path: Path) -> None:
    make = PACK([(2, 2, 3)], {"values_count": 2, "axis": 0})
    assert placed(make, tmp_path, 6)[1] == [OperationCode.PACK]
    assert placed(make, tmp_path, 5)[1] == [OperationCode.CONCATENATION, OperationCode.RESHAPE]


def test_unpack_becomes_reshape_and_split(tmp_path: Path) -> None:
    make = operator("UNPACK", [(2, 3, 4)], [(2, 4)] * 3, {"num": 3, "axis": 1})
    assert placed(make, tmp_path)[1] == [OperationCode.RESHAPE, OperationCode.SPLIT]


def test_cos_becomes_sin_of_a_difference(tmp_path: Path) -> None:
    assert placed(operator("COS", [(2, 3)], [(2, 3)]), tmp_path)[1] == [OperationCode.SUB, OperationCode.SIN]
