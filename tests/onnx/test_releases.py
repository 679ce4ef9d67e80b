"""Operators that ONNX Runtime's releases hand to NNAPI: nnapi_builtin/builders of microsoft/onnxruntime at v1.11.0 to v1.22.0."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nnbridge
from nnbridge.converters import ConversionOptions
from nnbridge.errors import InputError, Stage
from nnbridge.file import ModelFile
from nnbridge.releases import ORT
from nnbridge.since import since
from tests.onnx.test_convert import model

onnx = pytest.importorskip("onnx")
make = onnx.helper.make_node
IMAGE = [1, 4, 6, 6]
STACK = {"b": np.ones((2, 3, 4), np.float32)}
THIRDS = {"s": np.array([1, 1, 0.4, 0.4], np.float32)}
HALVES = {"s": np.array([1, 1, 0.5, 0.5], np.float32)}
ASYMMETRIC = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}


def releases_of(path: Path) -> str:
    """The releases whose provider accepts the first node of a file."""
    file = ModelFile(path, ConversionOptions(8, "provider"))
    return ORT.spans(
        name
        for name in ORT.names
        if not any(reason.stage in (Stage.PROVIDER, Stage.LOADING) for reason in file.with_(ort=name).mapped[0].reasons)
    )


CASES: dict[str, tuple[Any, list[int], dict[str, np.ndarray], int, str]] = {
    "Relu": (make("Relu", ["x"], ["y"]), IMAGE, {}, 13, "1.11 and newer"),
    "PRelu": (make("PRelu", ["x", "a"], ["y"]), IMAGE, {"a": np.ones((4, 1, 1), np.float32)}, 13, "1.12 and newer"),
    "PRelu of opset 16": (make("PRelu", ["x", "a"], ["y"]), IMAGE, {"a": np.ones((4, 1, 1), np.float32)}, 16, "1.13 and newer"),
    "DepthToSpace": (make("DepthToSpace", ["x"], ["y"], blocksize=2), IMAGE, {}, 13, "1.12 and newer"),
    "Unsqueeze": (make("Unsqueeze", ["x", "a"], ["y"]), [1, 4], {"a": np.array([1])}, 13, "1.12 and newer"),
    "Pad": (make("Pad", ["x", "p"], ["y"]), IMAGE, {"p": np.array([0, 0, 1, 1] * 2)}, 13, "1.12 and newer"),
    "Pad of opset 18": (make("Pad", ["x", "p"], ["y"]), IMAGE, {"p": np.array([0, 0, 1, 1] * 2)}, 18, "1.14 and newer"),
    "Pad of opset 19": (make("Pad", ["x", "p"], ["y"]), IMAGE, {"p": np.array([0, 0, 1, 1] * 2)}, 19, "1.15 and newer"),
    "Gather": (make("Gather", ["x", "i"], ["y"], axis=1), IMAGE, {"i": np.array([1])}, 13, "1.12 and newer"),
    "LeakyRelu": (make("LeakyRelu", ["x"], ["y"]), IMAGE, {}, 13, "1.16 and newer"),
    "ReduceMean": (make("ReduceMean", ["x"], ["y"], axes=[1]), IMAGE, {}, 13, "1.16 and newer"),
    "Split": (make("Split", ["x"], ["y", "z"], axis=1), IMAGE, {}, 13, "1.17 and newer"),
    "MatMul of stacks": (make("MatMul", ["x", "b"], ["y"]), [2, 5, 3], STACK, 13, "1.13 and newer"),
    "Sigmoid of rank 5": (make("Sigmoid", ["x"], ["y"]), [1, 1, 1, 1, 4], {}, 13, "1.11 to 1.12"),
    "Softmax of rank 3": (make("Softmax", ["x"], ["y"]), [1, 2, 3], {}, 13, "1.16 and newer"),
    "Softmax of rank 4": (make("Softmax", ["x"], ["y"]), IMAGE, {}, 13, "1.11 and newer"),
    "Resize without roi": (make("Resize", ["x", "", "s"], ["y"], **ASYMMETRIC), IMAGE, HALVES, 13, "1.16 and newer"),
    "Resize by another factor": (make("Resize", ["x", "", "s"], ["y"], **ASYMMETRIC), IMAGE, THIRDS, 13, "1.16 to 1.18"),
    "Transpose of opset 21": (make("Transpose", ["x"], ["y"], perm=[0, 2, 3, 1]), IMAGE, {}, 21, "1.18 and newer"),
}


@pytest.mark.parametrize("name", CASES)
def test_the_releases_whose_provider_accepts_a_node(tmp_path: Path, name: str) -> None:
    node, shape, constants, opset, releases = CASES[name]
    assert releases_of(model(tmp_path, [node], shape, constants, opset=opset)) == releases


@pytest.mark.parametrize("release", ["1.10", "1.9", "1.23", "2.8", "1"])
def test_a_release_that_was_not_read_is_refused(tmp_path: Path, release: str) -> None:
    path = model(tmp_path, [make("Relu", ["x"], ["y"])], IMAGE, {})
    with pytest.raises(InputError, match=r"ort: expected a release of ONNX Runtime whose source was read \(1\.11, "):
        nnbridge.plan(path, ort=release)


def test_a_plan_names_its_release(tmp_path: Path) -> None:
    planned = nnbridge.plan(model(tmp_path, [make("Relu", ["x"], ["y"])], IMAGE, {}), ort="1.14")
    assert "ONNX Runtime 1.14's" in planned.summary.sentence
    assert planned.to_dict()["ort"] == "1.14"


def test_the_release_of_the_other_runtime_is_an_option_that_does_nothing(tmp_path: Path) -> None:
    path = model(tmp_path, [make("Relu", ["x"], ["y"])], IMAGE, {})
    with pytest.raises(nnbridge.errors.OptionError, match="tflite"):
        nnbridge.plan(path, tflite="2.8")


def test_since_names_the_first_release_and_the_first_android_with_it(tmp_path: Path) -> None:
    (found,) = since(ModelFile(model(tmp_path, [make("LeakyRelu", ["x"], ["y"])], IMAGE, {}), ConversionOptions(8, "provider")))
    assert (found.first, found.releases) == ("1.16", "1.16 and newer")


@pytest.mark.parametrize(
    ("opset", "ir_version", "release", "words"),
    [
        (18, 8, "1.14", ""),
        (19, 8, "1.14", "opset: ONNX Runtime requires 18 at most, the last one of release 1.14, found 19"),
        (17, 9, "1.13", "IR version: ONNX Runtime requires 8 at most, the last one of release 1.13, found 9"),
        (21, 10, "1.18", ""),
        (21, 10, "1.17", "opset: ONNX Runtime requires 20 at most"),
        (17, 8, "1.11", "opset: ONNX Runtime requires 16 at most"),
    ],
)
def test_a_release_loads_files_up_to_the_opset_and_format_that_its_wheel_loads(
    opset: int, ir_version: int, release: str, words: str, tmp_path: Path
) -> None:
    path = model(tmp_path, [make("Relu", ["x"], ["y"])], IMAGE, {}, opset=opset)
    changed = onnx.load(str(path))
    changed.ir_version = ir_version
    path.write_bytes(changed.SerializeToString())
    shown = nnbridge.plan(path, ort=release).summary.judgement
    assert ("ONNX Runtime does not load this file" in shown) is bool(words)
    assert words in shown
