"""Resize beside ONNX Runtime: all modes and rules for positions, over lengths and scales whose products are whole and not."""

from __future__ import annotations

import base64
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnxruntime")
pytest.importorskip("onnx")

import onnx
from onnx import helper

from nnbridge.engines.onnx_session import open_session
from nnbridge_onnx.host.evaluator import HostNode
from nnbridge_onnx.operators.resizing import resized_length
from tests.conftest import requires_recent_onnx_runtime
from tests.differential import computed

RULES = (
    "half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric", "tf_half_pixel_for_nn",
    "tf_crop_and_resize",
)  # fmt: skip
ROUNDINGS = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
MODES = (*(("nearest", rounding) for rounding in ROUNDINGS), ("linear", None), ("cubic", None))
SCALES = (0.5, 0.25, 0.2, 0.75, 1.7, 2, 3, 0.3, 0.7, 0.6, 1.1, 1.05, 0.9, 2.5, 1 / 3, 2 / 3, 4 / 3, 0.95, 1.5, 0.85)
LENGTHS = [(1 + (7 * i) % 23, scale) for i, scale in enumerate(SCALES * 2)]
"""Forty lengths and scales."""


def resize(attributes: dict[str, Any], feeds: dict[str, Any], opset: int = 19) -> Any:
    """A model of one Resize by scales ``s`` or by sizes ``z``."""
    names = ["x", *(name if name in feeds else "" for name in "rsz")]
    while not names[-1]:
        names.pop()
    inputs = [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape) for n, a in feeds.items()]
    graph = helper.make_graph(
        [helper.make_node("Resize", names, ["y"], **attributes)], "g", inputs, [onnx.ValueInfoProto(name="y")]
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def beside_onnx_runtime(attributes: dict[str, Any], feeds: dict[str, Any], opset: int = 19) -> tuple[Any, Any]:
    """The host's result and ONNX Runtime's."""
    model = resize(attributes, feeds, opset)
    node = base64.b64encode(model.graph.node[0].SerializeToString()).decode()
    ours = HostNode({"op": "Resize", "domain": "", "opset": opset, "node": node, "types": {}}).run(feeds)[0]
    return ours, open_session(model.SerializeToString()).run(None, feeds)[0]


@pytest.mark.parametrize(("rule", "mode"), list(product(RULES, MODES)), ids=lambda value: str(value))
def test_forty_lengths_and_scales_are_onnx_runtime_s(rule: str, mode: tuple[str, str | None]) -> None:
    requires_recent_onnx_runtime()
    rng, wrong = np.random.default_rng(0), []
    attributes: dict[str, Any] = {"mode": mode[0], "coordinate_transformation_mode": rule, "extrapolation_value": -3.0}
    if mode[1] is not None:
        attributes["nearest_mode"] = mode[1]
    for i, (length, scale) in enumerate(LENGTHS):
        more = {"exclude_outside": 1} if mode[0] == "cubic" and i % 4 == 0 else {}
        more |= {"antialias": 1} if mode[0] != "nearest" and i % 3 == 0 else {}
        feeds: dict[str, Any] = {"x": rng.standard_normal((1, 1, length, 6)).astype(np.float32)}
        if rule == "tf_crop_and_resize":
            first, last = np.sort(rng.uniform(-0.2, 1.2, 2))
            feeds["r"] = np.float32([0, 0, first, 0, 1, 1, last, 1])
        if i % 2 and resized_length(length, scale):
            feeds["s"] = np.float32([1, 1, scale, (1, 0.5, 2)[i % 3]])
        else:
            feeds["z"] = np.int64([1, 1, max(round(length * scale), 1), 1 + i % 11])
        ours, theirs = beside_onnx_runtime(attributes | more, feeds)
        if ours.shape != theirs.shape or np.abs(ours - theirs).max(initial=0) > (0 if mode[0] == "nearest" else 2e-5):
            wrong.append((length, scale))
    assert wrong == []


@pytest.mark.parametrize(("size", "scale", "length"), [(10, 0.7, 7), (7, 0.5, 3), (8, 1.7, 13), (5, 0.19, 0), (10, 0.3, 3)])
def test_a_length_is_the_whole_part_of_a_product_in_float32(size: int, scale: float, length: int) -> None:
    # 0.7 is 0.69999999 as float32: the exact product with 10 is below 7, the one that float32 has is 7.
    assert resized_length(size, scale) == length


def test_half_of_seven_elements_of_a_region_end_at_the_seventh() -> None:
    feeds = {"x": np.arange(7, dtype=np.float32)[None], "r": np.float32([0, 0, 1, 1]), "s": np.float32([1, 0.5])}
    ours, theirs = beside_onnx_runtime({"mode": "linear", "coordinate_transformation_mode": "tf_crop_and_resize"}, feeds)
    assert ours.tolist() == theirs.tolist() == [[0, 3, 6]]


def test_one_element_of_a_region_is_its_middle() -> None:
    feeds = {"x": np.arange(7, dtype=np.float32)[None], "r": np.float32([0, 0, 1, 1]), "s": np.float32([1, 0.2])}
    ours, theirs = beside_onnx_runtime({"mode": "linear", "coordinate_transformation_mode": "tf_crop_and_resize"}, feeds)
    assert ours.tolist() == theirs.tolist() == [[3]]


@pytest.mark.parametrize("policy", ["not_larger", "not_smaller"])
@pytest.mark.parametrize("axes", [[2, 3], [3]])
def test_ratios_that_are_kept_are_onnx_runtime_s(policy: str, axes: list[int]) -> None:
    x = np.random.default_rng(1).standard_normal((1, 1, 5, 7)).astype(np.float32)
    sizes = np.int64([1, 1, 9, 8])[axes]
    ours, theirs = beside_onnx_runtime({"mode": "linear", "keep_aspect_ratio_policy": policy, "axes": axes}, {"x": x, "z": sizes})
    np.testing.assert_allclose(ours, theirs, atol=1e-6)


def test_nearest_pixels_of_a_smaller_image_are_rounded_up_before_opset_11() -> None:
    node = helper.make_node("Resize", ["x", "s"], ["y"], mode="nearest")
    feeds = {"x": np.arange(7, dtype=np.float32)[None], "s": np.float32([1, 0.6])}
    encoded = base64.b64encode(node.SerializeToString()).decode()
    ours = HostNode({"op": "Resize", "domain": "", "opset": 10, "node": encoded, "types": {}}).run(feeds)[0]
    # Positions 0, 1.67, 3.33 and 5; ONNX Runtime's upsamplebase.h, nearest mode SIMPLE.
    assert ours.tolist() == [[0, 2, 4, 5]]


@pytest.mark.parametrize("mapping", ["wide", "provider"])
@pytest.mark.parametrize(("length", "scale"), [(8, 1.7), (9, 0.5), (7, 0.5), (15, 0.25), (5, 2.0), (6, 0.4)])
def test_interpolation_between_corners_as_pytorch_exports_it(tmp_path: Path, mapping: str, length: int, scale: float) -> None:
    x = np.random.default_rng(0).standard_normal((1, 1, length, length)).astype(np.float32)
    options = {"mode": "linear", "coordinate_transformation_mode": "align_corners", "nearest_mode": "floor"}
    model = resize(options, {"x": x, "s": np.float32([1, 1, scale, scale])}, 17)
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.float32([1, 1, scale, scale]), "s"))
    model.graph.input.pop()
    onnx.save(model, tmp_path / "m.onnx")
    ((ours,), _) = computed(tmp_path / "m.onnx", mapping, [x])
    out = int(length * scale)
    at = np.arange(out) * (length - 1) / (out - 1)  # PyTorch's positions: the corners of both images coincide.
    low = np.minimum(np.floor(at).astype(int), length - 2)
    weights = np.zeros((out, length))
    weights[np.arange(out), low] += 1 - (at - low)
    weights[np.arange(out), low + 1] += at - low
    np.testing.assert_allclose(ours[0, 0], weights @ x[0, 0] @ weights.T, atol=1e-5)
