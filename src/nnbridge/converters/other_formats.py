"""Files that are often taken for models that nnbridge reads: what their first bytes or their names say, and what to do."""

from __future__ import annotations

import zipfile
from pathlib import Path

from nnbridge.reading import open_archive

_TO_TFLITE = "convert its model to TFLite (litert-torch, or TensorFlow's converter)"
_TO_ONNX = "export the model to ONNX (torch.onnx.export) or to TFLite (litert-torch)"
_SOURCE = "use the file that it was made from"
_MARKS = (
    (0, b"version https://git-lfs", "a Git LFS pointer", "`git lfs pull` fetches the file that it represents"),
    (0, b"<!doctype html", "an HTML page, such as a download's error or preview page", "download the file itself"),
    (0, b"<html", "an HTML page, such as a download's error or preview page", "download the file itself"),
    (0, b"\x89hdf", "an HDF5 file of Keras", _TO_TFLITE),
    (4, b"et12", "an ExecuTorch program (.pte)", _TO_ONNX),
    (4, b"eh00", "an extended ExecuTorch program (.pte)", _TO_ONNX),
    (4, b"ortm", "an ORT format model of ONNX Runtime", "use the ONNX file that it was converted from"),
    (
        0,
        b"litertlm",
        "a LiteRT-LM bundle of a language model",
        "its sections hold TFLite files: extract one with LiteRT-LM's tools",
    ),
    (0, b"gguf", "a GGUF file of llama.cpp", "it has only weights; " + _TO_ONNX),
    (0, b"rknn", "an RKNN model, compiled for a Rockchip NPU", _SOURCE),
    (0, b"\x01hef", "a HEF, compiled for a Hailo device", _SOURCE),
    (0, b"ftrt", "a TensorRT engine", _SOURCE),
    (0, b"\x7felf", "a shared library or program", "use the model file"),
    (0, b"\x80\x02", "a Python pickle, such as an old PyTorch checkpoint", _TO_ONNX),
    (0, b"\x1f\x8b", "a gzip archive", "unpack it, and use the model file in it"),
)
"""Position, bytes in lower case (letters of either case fit), what such files are, what to do."""
_MEMBERS = (
    (".tflite", "a bundle with TFLite files, such as a MediaPipe task", "unzip it, and use one of them"),
    (".dlc", "a bundle with Qualcomm DLC files", _SOURCE),
    ("model.params", "a Qualcomm DLC", _SOURCE),
    ("model.weights.h5", "a Keras model (.keras)", _TO_TFLITE),
    ("data.pkl", "a PyTorch file", _TO_ONNX),
    (".onnx", "an archive with ONNX files", "unzip it, and use one of them"),
    ("saved_model.pb", "a zipped TensorFlow SavedModel", _TO_TFLITE),
    (".mlmodel", "a Core ML package", _TO_ONNX),
    ("", "a ZIP archive", "unzip it, and use the model file in it"),
)
"""The end of a member's name in a ZIP archive, what such archives are, what to do."""
_NAMES = {
    ".pb": ("a TensorFlow graph", _TO_TFLITE),
    ".pbtxt": ("a TensorFlow graph as text", _TO_TFLITE),
    ".mlmodel": ("a Core ML model", _TO_ONNX),
    ".dlc": ("a Qualcomm DLC", _SOURCE),
    ".safetensors": ("a file of weights only (safetensors)", _TO_ONNX),
    ".xml": ("an OpenVINO model, if it is one", _SOURCE),
    ".caffemodel": ("a Caffe model", "convert it to ONNX"),
}
"""The end of a file's name, for formats without a mark."""


def other_format(path: Path, head: bytes) -> str:
    """The kind of a file that nnbridge does not read, and what to do; empty where nothing says so."""
    if not head:
        return "an empty file"
    start = head.removeprefix(b"\xef\xbb\xbf").lstrip(b" \t\r\n").lower()
    what = next(((kind, todo) for at, mark, kind, todo in _MARKS if start[at : at + len(mark)] == mark), None)
    if what is None and head.startswith(b"PK\x03\x04"):
        return _archive(path)
    return "" if what is None else f"{what[0]}: {what[1]}"


def format_of_name(path: Path) -> str:
    """The same for a file whose bytes no importer recognises, by its name."""
    found = _NAMES.get(path.suffix.lower())
    return "" if found is None else f"{found[0]}: {found[1]}"


def _archive(path: Path) -> str:
    try:
        with open_archive(path) as archive:
            names = archive.namelist()
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError, EOFError):
        names = []
    end, kind, todo = next(row for row in _MEMBERS if not row[0] or any(name.endswith(row[0]) for name in names))
    inside = [name for name in names if end and name.endswith(end)]
    return f"{kind}: {todo}" + (f" ({', '.join(inside[:3])})" if end in (".tflite", ".onnx") else "")
