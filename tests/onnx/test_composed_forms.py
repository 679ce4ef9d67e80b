"""Forms of resizing, padding, pooling and transposed convolution that NNAPI expresses by other operations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nnbridge.converters import ConversionOptions
from nnbridge.file import ModelFile
from tests.onnx.test_convert import agrees, model

onnx = pytest.importorskip("onnx")
make = onnx.helper.make_node
RNG = np.random.default_rng(4)
IMAGE = [1, 4, 5, 6]


def resized(rule: str, rounding: str) -> Any:
    """Heights and widths by factors that are not whole."""
    return make("Resize", ["x", "", "s"], ["y"], coordinate_transformation_mode=rule, nearest_mode=rounding)


SCALES = {"s": np.float32([1, 1, 1.6, 0.7])}
RULES = [
    ("half_pixel", "round_prefer_ceil"),
    ("half_pixel", "floor"),
    ("asymmetric", "ceil"),
    ("align_corners", "round_prefer_floor"),
    ("pytorch_half_pixel", "ceil"),
]


@pytest.mark.parametrize(("rule", "rounding"), RULES)
def test_nearest_neighbours_by_any_rule(rule: str, rounding: str, tmp_path: Path) -> None:
    assert on_nnapi(model(tmp_path, [resized(rule, rounding)], IMAGE, SCALES))


@pytest.mark.parametrize("mode", ["edge", "reflect", "wrap"])
def test_paddings_of_any_kind(mode: str, tmp_path: Path) -> None:
    pads = {"p": np.array([0, 1, 2, 0, 0, 2, 1, 3])}
    assert on_nnapi(model(tmp_path, [make("Pad", ["x", "p"], ["y"], mode=mode)], IMAGE, pads, 19))


@pytest.mark.parametrize("attributes", [{}, {"exclusive": 1}, {"reverse": 1}, {"exclusive": 1, "reverse": 1}])
@pytest.mark.parametrize("axis", [1, -1])
def test_running_sums(attributes: dict[str, int], axis: int, tmp_path: Path) -> None:
    assert on_nnapi(model(tmp_path, [make("CumSum", ["x", "a"], ["y"], **attributes)], [2, 3, 4], {"a": np.array(axis)}))


@pytest.mark.parametrize(
    "attributes",
    [
        {"group": 2},
        {"dilations": [2, 1], "strides": [2, 2]},
        {"pads": [1, 0, 1, 1], "strides": [2, 3], "output_padding": [1, 0]},
        {"group": 4, "auto_pad": "SAME_UPPER", "strides": [2, 2]},
    ],
)
def test_transposed_convolutions(attributes: dict[str, Any], tmp_path: Path) -> None:
    groups = attributes.get("group", 1)
    constants = {"w": RNG.normal(size=(4, 8 // groups, 3, 3)).astype(np.float32), "b": RNG.normal(size=8).astype(np.float32)}
    assert on_nnapi(model(tmp_path, [make("ConvTranspose", ["x", "w", "b"], ["y"], **attributes)], IMAGE, constants))


def test_a_transposed_convolution_of_lines(tmp_path: Path) -> None:
    constants = {"w": RNG.normal(size=(4, 3, 5)).astype(np.float32)}
    node = make("ConvTranspose", ["x", "w"], ["y"], strides=[2], pads=[1, 2])
    assert on_nnapi(model(tmp_path, [node], [1, 4, 7], constants))


OTHERS = {
    "shuffled pixels": make("DepthToSpace", ["x"], ["y"], blocksize=2, mode="CRD"),
    "leaky": make("LeakyRelu", ["x"], ["y"], alpha=0.2),
    "root of squares": make("LpPool", ["x"], ["y"], kernel_shape=[2, 3], strides=[1, 2]),
    "log of sums": make("ReduceLogSumExp", ["x"], ["y"], axes=[1, 3], keepdims=0),
    "celu": make("Celu", ["x"], ["y"], alpha=1.5),
    "thresholded": make("ThresholdedRelu", ["x"], ["y"], alpha=0.3),
}


def test_shuffled_pixels_of_several_channels(tmp_path: Path) -> None:
    node = make("DepthToSpace", ["x"], ["y"], blocksize=2, mode="CRD")
    assert on_nnapi(model(tmp_path, [node], [2, 12, 3, 2], {}))


@pytest.mark.parametrize("name", OTHERS)
def test_what_is_composed_of_other_operations(name: str, tmp_path: Path) -> None:
    assert on_nnapi(model(tmp_path, [OTHERS[name]], IMAGE, {}))


def on_nnapi(path: Path) -> bool:
    """True if a conversion stays on NNAPI and agrees with ONNX Runtime."""
    assert [m for m in ModelFile(path, ConversionOptions()).converted[1] if m.mapping == "host"] == []
    return agrees(path)
