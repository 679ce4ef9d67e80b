"""Files that are too large to be edited have settings only."""

from __future__ import annotations

from pathlib import Path

import pytest

from nnbridge.errors import ConversionError
from nnbridge.file import ModelFile
from tests.remedies.files import PHONE, advice, flattened, npu, onnx_file, products, splits


def test_a_file_beyond_what_is_edited_has_settings_and_is_read_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With 1 for its open batch, more runs on the device."""
    nodes, constants = flattened()
    path = onnx_file(tmp_path / "chain.onnx", nodes, ["batch", 2, 4, 4], [None, None], constants)
    monkeypatch.setattr("nnbridge.converters.edits.MOST_EDITED", path.stat().st_size - 1)
    found = advice(path, npu(tmp_path, "RESHAPE"))
    assert {one.kind for one in found} == {"setting"}
    assert "to be edited, found" in caplog.text
    assert caplog.text.count("only settings are tried") == 1


def test_weights_in_another_file_count(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    path = products(tmp_path / "a.onnx", [1, 4, 4], (4, 4))
    model = onnx.load(str(path))
    weights = model.graph.initializer[0]
    weights.ClearField("raw_data")
    weights.data_location = onnx.TensorProto.EXTERNAL
    for key, value in (("location", "w.bin"), ("length", str(1 << 31))):
        weights.external_data.add(key=key, value=value)
    onnx.save_model(model, str(path))
    with (tmp_path / "w.bin").open("wb") as file:
        file.truncate(1 << 31)  # takes no place on the disk
    with pytest.raises(ConversionError, match="at most 1,073,741,824 bytes with all weights, to be edited, found 2,147,48"):
        _ = ModelFile(path, PHONE).edits


def test_a_large_tflite_file_is_not_edited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = splits(tmp_path)
    monkeypatch.setattr("nnbridge.converters.edits.MOST_EDITED", path.stat().st_size - 1)
    with pytest.raises(ConversionError, match="to be edited"):
        _ = ModelFile(path, PHONE).edits
