"""Dynamic-range operators that Android's delegate does not map compute as LiteRT's hybrid kernels do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nnbridge.converters.mapping import MappingKind
from nnbridge_tflite.host.hybrid import centred_asymmetric, symmetric
from tests.tflite.agreement import converted, run
from tests.tflite.differential import reference
from tests.tflite.files import TfliteBuilder


def test_rows_are_quantised_by_their_largest_number() -> None:
    numbers, steps = symmetric(np.float32([[-2.54, 1.27, 0.01], [0, 0, 0]]))
    assert numbers.tolist() == [[-127, 64, 1], [0, 0, 0]]  # 63.5 and 0.5 away from zero
    np.testing.assert_allclose(steps, [0.02, 1.0], rtol=1e-6)


def test_rows_are_quantised_from_their_smallest_to_their_largest_number_with_zero_among_them() -> None:
    numbers, steps = centred_asymmetric(np.float32([[1, 2.55, 0.5], [0, 0, 0]]))
    assert numbers.tolist() == [[100, 255, 50], [0, 0, 0]]
    np.testing.assert_allclose(steps, [0.01, 1.0], rtol=1e-6)


IMAGE = {"padding": 0, "stride_h": 1, "stride_w": 1}
CASES: list[tuple[str, tuple[int, ...], tuple[int, ...], int | None, tuple[int, ...], dict[str, Any], int]] = [
    ("FULLY_CONNECTED", (3, 8), (5, 8), None, (3, 5), {}, 3),
    ("FULLY_CONNECTED", (3, 8), (5, 8), 0, (3, 5), {"asymmetric_quantize_inputs": True, "fused_activation_function": 1}, 12),
    ("CONV_2D", (2, 5, 6, 3), (4, 3, 2, 3), None, (2, 5, 6, 4), IMAGE, 5),
    ("CONV_2D", (2, 5, 6, 3), (4, 3, 2, 3), 0, (2, 5, 6, 4), {**IMAGE, "fused_activation_function": 3}, 5),
    ("DEPTHWISE_CONV_2D", (2, 5, 6, 3), (1, 3, 2, 6), 3, (2, 5, 6, 6), {**IMAGE, "depth_multiplier": 2}, 6),
    ("BATCH_MATMUL", (2, 3, 4), (2, 4, 5), None, (2, 3, 5), {"asymmetric_quantize_inputs": True}, 4),
    ("BATCH_MATMUL", (2, 4, 3), (2, 5, 4), None, (2, 3, 5), {"adj_x": True, "adj_y": True}, 4),
]


@pytest.mark.parametrize(("name", "shape", "size", "axis", "out", "options", "version"), CASES)
def test_a_hybrid_operator_on_the_host_equals_litert_s_bit_for_bit(
    name: str, shape: Any, size: Any, axis: Any, out: Any, options: Any, version: int, tmp_path: Path
) -> None:
    pytest.importorskip("ai_edge_litert.interpreter", reason="LiteRT is not installed")
    rng = np.random.default_rng(4)
    builder = TfliteBuilder()
    scale = [0.01] if axis is None else list(np.linspace(0.005, 0.02, size[axis]))
    weights = builder.constant(rng.integers(-127, 128, size), "int8", scale=scale if axis is not None else 0.01, axis=axis or 0)
    x, y = builder.tensor(shape, "float32"), builder.tensor(out, "float32")
    bias = [] if name == "BATCH_MATMUL" else [builder.constant(rng.standard_normal(out[-1]), "float32")]
    builder.operator(name, [x, weights, *bias], [y], options, version)
    path = builder.write(tmp_path / "m.tflite", [x], [y])
    data = rng.standard_normal(shape).astype(np.float32)
    model, outcomes = converted(path, mapping="delegate", feature_level=1)
    assert outcomes[0].mapping == MappingKind.HOST
    assert run(model, {model.main.operands[model.main.inputs[0]].name: data})[0].tolist() == reference(path, [data])[0].tolist()


def test_a_16_bit_product_beyond_32_bits_is_the_lowest_number_whatever_its_sign(tmp_path: Path) -> None:
    builder = TfliteBuilder()
    data, out = builder.tensor((1, 1), "int16", scale=7.3), builder.tensor((1, 1), "int16", scale=2.0**-10)
    weights, bias = builder.constant([[127]], "int8", scale=1.0), builder.constant([0], "int64", scale=7.3)
    builder.operator("FULLY_CONNECTED", [data, weights, bias], [out], {}, 4)
    model, _ = converted(builder.write(tmp_path / "m.tflite", [data], [out]))
    found = [run(model, {"t0": np.full((1, 1), v, np.int16)})[0].item() for v in (2000, 3000, -3000)]
    assert found == [32767, -32768, -32768]  # LiteRT's answers, 2.3 on x86-64
