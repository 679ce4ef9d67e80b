"""The files that readers have: the repository's models and small ones under the names that the pages use."""

from __future__ import annotations

import importlib.util
import re
import shutil
import wave
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from tests.commands import call
from tests.conftest import MODELS, REPOSITORY, shared_folder
from tests.delegate.interpreters import accumulator


def _own(name: str, path: Path) -> None:
    shutil.copy(MODELS / name, path)


def _states(path: Path) -> None:
    accumulator(path.parent).rename(path)


def _open_image(path: Path) -> None:
    """A convolution of images of any number and size."""
    onnx = pytest.importorskip("onnx")
    helper = onnx.helper
    dims = {"image": ["N", 3, "H", "W"], "features": ["N", 4, None, None]}
    image, features = (helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape) for name, shape in dims.items())
    filters = onnx.numpy_helper.from_array(np.ones((4, 3, 3, 3), np.float32), "filters")
    nodes = [helper.make_node("Conv", ["image", "filters"], ["sums"]), helper.make_node("Relu", ["sums"], ["features"])]
    graph = helper.make_graph(nodes, "open", [image], [features], [filters])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), path)


def _text(text: str, path: Path) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)


def _linked(target: Path, path: Path) -> None:
    path.symlink_to(target)


def _toolchain(path: Path) -> None:
    """An NDK whose compiler and libneuralnetworks are this machine's."""
    libraries = path.parents[2] / "libraries"
    path.parent.mkdir(parents=True)
    built = f'execute_process(COMMAND nnbridge build ndk "{libraries}")'
    path.write_text(f'if(NOT EXISTS "{libraries}")\n  {built}\nendif()\nset(NNBRIDGE_NDK "{libraries}" CACHE PATH "")\n')


def _onnxruntime(folder: Path) -> None:
    """ONNX Runtime's library for C++ programs: that of its Python package."""
    package = importlib.util.find_spec("onnxruntime")
    folder.mkdir(parents=True)
    for library in Path(str(package and package.origin)).parent.glob("capi/libonnxruntime.so.*"):
        for name in ("libonnxruntime.so", "libonnxruntime.so.1"):
            (folder / name).symlink_to(library)


def _clone(folder: Path) -> None:
    """The parts of the repository that installing needs."""
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(REPOSITORY / name, folder)
    for name in ("src", "converters"):
        shutil.copytree(REPOSITORY / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))


def _picture(path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    y, x = np.mgrid[:192, :256]
    image.fromarray(np.stack([x, y, 255 - x // 2], -1).astype(np.uint8)).save(path)


def _tone(path: Path) -> None:
    samples = np.sin(880 * np.pi * np.arange(16000) / 16000) * 12000
    with wave.open(str(path), "wb") as file:
        file.setparams((1, 2, 16000, 0, "NONE", ""))
        file.writeframes(samples.astype("<i2").tobytes())


PROFILE = '[[device]]\nname = "my-npu"\n[device.operations]\nCONV_2D = ["FLOAT32"]\n'


def _store(path: Path) -> None:
    """A matrix of the folder's models, as of an earlier run."""
    done = call("matrix", path.parent / "models", "--devices", "arm-nn-21.11", "--android", "10,13", "--store", path)
    assert done.exit_code == 0, done.output


FILES: dict[str, Callable[[Path], None]] = {
    "my.tflite": partial(_own, "digits_float32.tflite"),
    "model.tflite": partial(_own, "digits_float32.tflite"),
    "model.onnx": partial(_own, "digits_float32.onnx"),
    "kws.tflite": partial(_own, "digits_int8.tflite"),
    "other.tflite": partial(_own, "digits_int8.tflite"),
    "zoo": lambda path: (path.mkdir(), _own("digits_uint8.tflite", path))[0],
    "states.tflite": _states,
    "my.onnx": _open_image,
    "my-npu.toml": partial(_text, PROFILE),
    "scripts": partial(_linked, REPOSITORY / "scripts"),
    "examples": partial(_linked, REPOSITORY / "examples"),
    "client.c": partial(_linked, REPOSITORY / "tests" / "ndk" / "client.c"),
    "host.cpp": partial(_linked, REPOSITORY / "tests" / "provider" / "host.cpp"),
    "onnxruntime": lambda path: _onnxruntime(path.parent / ".machine" / "lib"),
    "NDK": lambda path: _toolchain(path.parent / ".machine" / "ndk" / "build" / "cmake" / "android.toolchain.cmake"),
    "cat.png": _picture,
    "bell.wav": _tone,
    "yamnet_labels.txt": partial(_text, "".join(f"sound {number}\n" for number in range(521))),
    "my_npu.toml": partial(_text, PROFILE),
    "tolerances.toml": partial(_text, "rtol = 1e-3\n"),
    "accepted.db": _store,
    "budget.toml": partial(_text, "[[budget]]\npartitions = 9\n"),
    ".venv": lambda path: _clone(path.parent),
}
"""What a reader has of their own, where a page's blocks name it."""
PUBLISHED = {
    "mobilenet_v2_1.0_224_quant.tflite": "mobilenet_v2_1.0_224_quant.tflite",
    "deeplabv3.tflite": "deeplabv3_float.tflite",
    "yamnet.tflite": "yamnet_wavin_quantized_mel_relu6.tflite",
}
"""Published models that pages name, and their files in the shared folder."""


def furnish(folder: Path, text: str) -> None:
    """Write what the text of a page's blocks names. A folder of models has those that it names, or one."""
    (folder / "models").mkdir()
    named = set(re.findall(r"models/([\w.]+\.(?:tflite|onnx|npz))", text)) or {"digits_uint8.tflite"}
    for name in named:
        (folder / "models" / name).symlink_to(MODELS / name)
    for name, write in FILES.items():
        if re.search(rf"(?<![\w./-]){re.escape(name)}\b", text):
            write(folder / name)
    for name, file in PUBLISHED.items():
        if (source := shared_folder() / "models" / "tflite" / file).exists():
            (folder / name).symlink_to(source)


def missing_models(folder: Path, text: str) -> list[str]:
    """The published models of a block that are not on this machine."""
    return [name for name in PUBLISHED if name in text and not (folder / name).exists()]
