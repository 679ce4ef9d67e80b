"""Files of other formats: one sentence says what they are and what to do."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from nnbridge.errors import ConversionError
from nnbridge.file import ModelFile
from tests.commands import call

BYTES = {
    "m.h5": (b"\x89HDF\r\n\x1a\n" + bytes(8), "an HDF5 file of Keras: convert its model to TFLite"),
    "m.pte": (b"\x1c\0\0\0ET12" + bytes(8), "an ExecuTorch program (.pte): export the model to ONNX"),
    "m.tflite": (b"\x1c\0\0\0ET12" + bytes(8), "an ExecuTorch program"),
    "m.onnx": (b"\x1c\0\0\0ORTM" + bytes(8), "an ORT format model of ONNX Runtime: use the ONNX file"),
    "m.litertlm": (b"LITERTLM" + bytes(8), "a LiteRT-LM bundle of a language model"),
    "m.gguf": (b"GGUF" + bytes(8), "a GGUF file of llama.cpp"),
    "m.rknn": (b"RKNN" + bytes(8), "an RKNN model, compiled for a Rockchip NPU: use the file that it was made from"),
    "m.hef": (b"\x01HEF" + bytes(8), "a HEF, compiled for a Hailo device"),
    "m.pb": (b"\x0a\x0d" + bytes(8), "a TensorFlow graph: convert its model to TFLite"),
    "m.dlc": (b"DLC?" + bytes(8), "a Qualcomm DLC"),
    "m.bin": (b"version https://git-lfs.github.com/spec/v1", "a Git LFS pointer: `git lfs pull`"),
}
MEMBERS = {
    "face.task": ("face_detector.tflite", "such as a MediaPipe task: unzip it, and use one of them (face_detector.tflite)"),
    "m.tflite": ("a/b.tflite", "unzip it, and use one of them (a/b.tflite)"),
    "m.pt": ("archive/data.pkl", "a PyTorch file: export the model to ONNX"),
    "m.keras": ("model.weights.h5", "a Keras model (.keras): convert its model to TFLite"),
    "m.dlc": ("model.params", "a Qualcomm DLC: use the file that it was made from"),
    "m.zip": ("notes.txt", "a ZIP archive: unzip it, and use the model file in it"),
}


@pytest.mark.parametrize("name", BYTES)
def test_the_first_bytes_or_the_name_say_what_a_file_is(name: str, tmp_path: Path) -> None:
    content, what = BYTES[name]
    path = tmp_path / name
    path.write_bytes(content)
    for command in ("plan", "inspect", "run"):
        failed = call(command, str(path))
        assert (failed.exit_code, what in failed.stderr) == (2, True), failed.stderr


@pytest.mark.parametrize("name", MEMBERS)
def test_the_members_of_an_archive_say_what_it_is(name: str, tmp_path: Path) -> None:
    member, what = MEMBERS[name]
    with zipfile.ZipFile(tmp_path / name, "w") as archive:
        archive.writestr(member, b"content")
    with pytest.raises(ConversionError) as caught:
        ModelFile(tmp_path / name)
    assert what in str(caught.value)


def test_a_damaged_archive_is_one(tmp_path: Path) -> None:
    (tmp_path / "m.task").write_bytes(b"PK\x03\x04" + bytes(30))
    with pytest.raises(ConversionError, match="found a ZIP archive: unzip it"):
        ModelFile(tmp_path / "m.task")
