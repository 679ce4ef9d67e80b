"""Values known at conversion become constants, and nothing grows beyond a limit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nnbridge.compare import seeded_inputs
from nnbridge.types import OperationCode
from tests.tflite.agreement import converted, litert, run
from tests.tflite.files import TfliteBuilder
from tests.tflite.shared import real_model


def test_shape_chain_gives_reshape_a_constant(tmp_path: Path) -> None:
    builder = TfliteBuilder()
    data = builder.tensor((2, 3, 4))
    shape, first, packed, out = builder.tensor((3,), "int32"), builder.tensor((), "int32"), builder.tensor((2,), "int32"), 0
    out = builder.tensor((2, 12))
    builder.operator("SHAPE", [data], [shape], {"out_type": 2})
    ranges = [builder.constant([v], "int32") for v in (0, 1, 1)]
    builder.operator("STRIDED_SLICE", [shape, *ranges], [first], {"shrink_axis_mask": 1})
    builder.operator("PACK", [first, builder.constant(-1, "int32")], [packed], {"values_count": 2, "axis": 0})
    builder.operator("RESHAPE", [data, packed], [out], {})
    model, placements = converted(builder.write(tmp_path / "m.tflite", [data], [out]))
    assert [p.mapping for p in placements] == ["folded", "folded", "folded", "wide"]
    assert [o.type for o in model.main.operations] == [OperationCode.RESHAPE]
    assert model.main.operands[model.main.outputs[0]].dims == (2, 12)


def test_resized_input_reaches_folded_shapes(tmp_path: Path) -> None:
    builder = TfliteBuilder()
    data, shape, out = builder.tensor((1, 6), name="data"), builder.tensor((2,), "int32"), builder.tensor((1, 6))
    builder.operator("SHAPE", [data], [shape], {"out_type": 2})
    builder.operator("RESHAPE", [data, shape], [out], {})
    model, _ = converted(builder.write(tmp_path / "m.tflite", [data], [out]), shapes={"data": (5, 6)})
    assert model.main.operands[model.main.outputs[0]].dims == (5, 6)


def test_half_weights_become_float32(tmp_path: Path) -> None:
    builder = TfliteBuilder()
    data, weights, out = builder.tensor((1, 8)), builder.tensor((4, 8)), builder.tensor((1, 4))
    values = np.random.default_rng(0).standard_normal((4, 8)).astype(np.float16)
    builder.operator("DEQUANTIZE", [builder.constant(values)], [weights], {})
    builder.operator("FULLY_CONNECTED", [data, weights], [out], {})
    path = builder.write(tmp_path / "m.tflite", [data], [out])
    model, placements = converted(path)
    assert [p.mapping for p in placements] == ["folded", "delegate"]
    inputs = seeded_inputs(model, 0)
    np.testing.assert_allclose(run(model, inputs)[0], litert(path, list(inputs.values()))[0], rtol=1e-5, atol=1e-6)


def _sparse(builder: TfliteBuilder) -> int:
    """[[0, 5, 0], [7, 0, 9]] as rows that list their columns."""
    level: dict[str, Any] = {"format": 1, "array_segments_type": 1, "array_segments": {"values": [0, 1, 3]}}
    level.update(array_indices_type=1, array_indices={"values": [1, 0, 2]})
    sparsity = {"traversal_order": [0, 1], "dim_metadata": [{"format": 0, "dense_size": 2}, level]}
    weights = builder.constant(np.array([5, 7, 9], np.float32))
    builder.tensors[weights].update(shape=[2, 3], sparsity=sparsity)
    return weights


def test_sparse_weights_are_expanded(tmp_path: Path) -> None:
    builder = TfliteBuilder()
    data, weights, out = builder.tensor((1, 3)), builder.tensor((2, 3)), builder.tensor((1, 2))
    builder.operator("DENSIFY", [_sparse(builder)], [weights], {})
    builder.operator("FULLY_CONNECTED", [data, weights], [out], {})
    model, _ = converted(builder.write(tmp_path / "m.tflite", [data], [out]))
    # 5 · 2 and 7 · 1 + 9 · 3
    answer = run(model, {"t0": np.array([[1, 2, 3]], np.float32)})[0]
    assert answer.tolist() == [[10.0, 34.0]]


def test_sparse_weights_have_blocks(tmp_path: Path) -> None:
    """Blocks of 2 by 1, of which the second row of blocks lists one column: LiteRT's answer."""
    builder = TfliteBuilder()
    weights = builder.constant(np.array([1, 2, 3, 4], np.float32))
    level: dict[str, Any] = {"format": 1, "array_segments_type": 1, "array_segments": {"values": [0, 1, 2]}}
    level.update(array_indices_type=1, array_indices={"values": [1, 2]})
    sizes = [{"format": 0, "dense_size": 2}, level, {"format": 0, "dense_size": 2}]
    sparsity = {"traversal_order": [0, 1, 2], "block_map": [0], "dim_metadata": sizes}
    builder.tensors[weights].update(shape=[4, 3], sparsity=sparsity)
    data, dense, out = builder.tensor((4, 3)), builder.tensor((4, 3)), builder.tensor((4, 3))
    builder.operator("DENSIFY", [weights], [dense], {})
    builder.operator("ADD", [data, dense], [out], {})
    path = builder.write(tmp_path / "m.tflite", [data], [out])
    zeros = np.zeros((4, 3), np.float32)
    answer = run(converted(path)[0], {"t1": zeros})[0]
    assert answer.tolist() == [[0, 1, 0], [0, 2, 0], [0, 0, 3], [0, 0, 4]]
    np.testing.assert_array_equal(answer, litert(path, [zeros])[0])


def test_four_bit_weights_of_a_large_file_become_real_numbers(tmp_path: Path) -> None:
    builder, rows = TfliteBuilder(), 1 << 14
    builder.buffers.append({"data": np.full(rows * 512, 0x21, np.uint8)})
    data, out, real = builder.tensor((1, 1024)), builder.tensor((1, rows)), builder.tensor((rows, 1024))
    packed = builder.tensor((rows, 1024), "int4", buffer=1, scale=0.5)
    builder.operator("DEQUANTIZE", [packed], [real], {}, 6)
    builder.operator("FULLY_CONNECTED", [data, real], [out], {})
    path = builder.write(tmp_path / "m.tflite", [data], [out])
    model, _ = converted(path, mapping="delegate")
    assert run(model, {"t0": np.ones((1, 1024), np.float32)})[0].tolist() == [[768.0] * rows]


def test_large_constant_is_not_made(tmp_path: Path) -> None:
    builder = TfliteBuilder()
    data, out = builder.tensor((1,), "float32"), builder.tensor((1,))
    big = builder.tensor((1,))
    builder.operator("FILL", [builder.constant([2**15, 2**15], "int32"), builder.constant(1.0, "float32")], [big], {})
    builder.operator("ADD", [data, big], [out], {})
    model, placements = converted(builder.write(tmp_path / "m.tflite", [data], [out]))
    assert placements[0].mapping != "folded"
    assert all(o.location.length < 100 for o in model.main.operands if o.is_constant)


def test_unneeded_operator_is_dropped(tmp_path: Path) -> None:
    builder = TfliteBuilder()
    data, used, unused = builder.tensor((2,)), builder.tensor((2,)), builder.tensor((2,))
    builder.operator("ABS", [data], [used], {})
    builder.operator("NEG", [data], [unused], {})
    model, placements = converted(builder.write(tmp_path / "m.tflite", [data], [used]))
    assert [p.mapping for p in placements] == ["delegate", "dead"]
    assert len(model.main.operations) == 1


def test_real_shape_chains_are_gone() -> None:
    model, placements = converted(real_model("ultraface_rfb_320"))
    names = " ".join(o.name for o in model.main.operations)
    assert not any(name in names for name in ("SHAPE t", "STRIDED_SLICE", "PACK"))
    assert sum(p.mapping == "folded" for p in placements) == 24


@pytest.mark.parametrize("segments", [[0, 1], [0, 2, 1], [0, 1, 9]])
def test_wrong_sparsity_is_refused(segments: list[int], tmp_path: Path) -> None:
    from nnbridge.errors import ConversionError

    builder = TfliteBuilder()
    weights, dense, data, out = _sparse(builder), builder.tensor((2, 3)), builder.tensor((2, 3)), builder.tensor((2, 3))
    builder.tensors[weights]["sparsity"]["dim_metadata"][1]["array_segments"] = {"values": segments}
    builder.operator("DENSIFY", [weights], [dense], {})
    builder.operator("ADD", [data, dense], [out], {})
    with pytest.raises(ConversionError, match="segments"):
        converted(builder.write(tmp_path / "m.tflite", [data], [out]))
