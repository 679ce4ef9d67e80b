"""Comparisons with LiteRT: element types that the model has otherwise than the file, and what LiteRT refuses."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from nnbridge import devices, storage
from nnbridge.compare import compare, seeded_samples, sign_flipped, stored_samples
from nnbridge.compare.litert import LiteRT
from nnbridge.converters import ConversionOptions
from nnbridge.errors import InputError
from nnbridge.file import load
from nnbridge.model import Model, Operand
from nnbridge.runtime.compilation import Compilation
from nnbridge.types import OperandCode
from tests.tflite.files import TfliteBuilder


def _file(folder: Path) -> Path:
    """An int8 addition."""
    builder = TfliteBuilder()
    a, b = (builder.tensor((2, 3), "int8", scale=0.05, zero_point=-8, name=name) for name in "ab")
    out = builder.tensor((2, 3), "int8", scale=0.11, zero_point=2, name="sum")
    builder.operator("ADD", [a, b], [out], {"fused_activation_function": 0}, 2)
    return builder.write(folder / "m.tflite", [a, b], [out])


def _finished(model: Model) -> Compilation:
    compilation = Compilation.create_for_devices(model, [devices.cpu()])
    compilation.finish()
    return compilation


def test_a_uint8_operand_that_was_int8_is_sign_flipped() -> None:
    operand = Operand(OperandCode.TENSOR_QUANT8_ASYMM, (3,), 1.0, source_type="int8")
    values = np.array([0, 128, 255], np.uint8)
    assert sign_flipped(operand, values).tolist() == [-128, 0, 127]
    np.testing.assert_array_equal(sign_flipped(operand, sign_flipped(operand, values)), values)
    assert sign_flipped(Operand(OperandCode.TENSOR_QUANT8_ASYMM, (3,), 1.0), values) is values


@pytest.mark.parametrize("level", [1, 2, 3, 4])
def test_int8_interface_is_compared_at_every_level(level: int, tmp_path: Path) -> None:
    pytest.importorskip("ai_edge_litert")
    path = _file(tmp_path)
    model = load(path, ConversionOptions(level))
    compared = compare(_finished(model), "litert", seeded_samples(model, LiteRT(path), [0, 1]))
    assert compared.outputs[0].type == ("uint8" if level < 4 else "int8")
    assert compared.outputs[0].max_quant_diff == 0
    assert compared.outputs[0].elements == 12


def test_stored_int8_samples_serve_a_saved_uint8_model(tmp_path: Path) -> None:
    storage.save(load(_file(tmp_path), ConversionOptions(3)), tmp_path / "m.nnapi")
    model = load(tmp_path / "m.nnapi")
    inputs = {f"input:{name}": np.full((1, 2, 3), 12, np.int8) for name in "ab"}
    # (12 + 8) * 0.05 + (12 + 8) * 0.05 = 2; 2 / 0.11 + 2 = 20.2.
    np.savez(tmp_path / "s.npz", **inputs, **{"output:sum": np.full((1, 2, 3), 20, np.int8)})
    compared = compare(_finished(model), "stored", stored_samples(model, tmp_path / "s.npz"))
    assert compared.outputs[0].max_quant_diff == 0


def test_what_litert_refuses_is_one_error(tmp_path: Path) -> None:
    pytest.importorskip("ai_edge_litert")
    with pytest.raises(InputError, match="inputs that LiteRT runs") as raised:
        LiteRT(_file(tmp_path)).run({"a": np.zeros((2, 3), np.float32), "b": np.zeros((2, 3), np.float32)})
    assert "\n" not in str(raised.value)


def test_kernels_that_only_xnnpack_has_are_compared_with_by_name(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    builder = TfliteBuilder()
    x, y = builder.tensor([1, 1, 1, 2]), builder.tensor([1, 2, 2, 1])
    weights, bias = builder.constant(np.ones((1, 2, 2, 2), np.float32)), builder.constant(np.float32([0.25]))
    builder.operator("Convolution2DTransposeBias", [x, weights, bias], [y], custom=np.int32([1, 2, 2]).tobytes())
    (found,) = LiteRT(builder.write(tmp_path / "m.tflite", [x], [y])).run({"x": np.float32([[[[1, 2]]]])})
    assert found.reshape(-1).tolist() == [3.25] * 4
    assert "compared with its default ones, XNNPACK's" in caplog.text
