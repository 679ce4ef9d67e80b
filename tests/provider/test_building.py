"""Nodes that the provider fails to build or to run in stock ONNX Runtime: the plan says so there, and nowhere else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.provider.sessions import needs, session

needs()

from tests.onnx.test_provider_building import BUILDER, BUILDING, FLOAT, GOOD, INT32, RUNNING, UINT8, Network, make, runtime  # noqa: E402

TYPES = {FLOAT: np.float32, UINT8: np.uint8, INT32: np.int32}
FAILING = {name: one[0] for name, one in (BUILDER | BUILDING).items() if one[0].level == 8}


def feeds(network: Network) -> dict[str, np.ndarray]:
    return {name: np.ones(dims, TYPES[type]) for name, (type, dims) in network.inputs.items()}


@pytest.mark.parametrize("network", FAILING.values(), ids=FAILING)
def test_there_is_no_session_where_the_plan_says_so(network: Network, tmp_path: Path) -> None:
    with pytest.raises(Exception, match="expected"):
        session(str(network.write(tmp_path)))


@pytest.mark.parametrize("network", [one[0] for one in RUNNING.values()], ids=RUNNING)
def test_runs_fail_where_the_plan_says_so(network: Network, tmp_path: Path) -> None:
    running = session(str(network.write(tmp_path)))
    with pytest.raises(Exception, match="expected"):
        running.run(None, feeds(network))


@pytest.mark.parametrize("network", [one[0] for one in GOOD.values()], ids=GOOD)
def test_what_builders_add_computes_what_onnx_runtime_does(network: Network, tmp_path: Path) -> None:
    path = network.write(tmp_path)
    found, own = (one.run(None, feeds(network)) for one in (session(str(path)), runtime(path)))
    for ours, theirs in zip(found, own, strict=True):
        np.testing.assert_allclose(ours.astype(np.float64), theirs.astype(np.float64), atol=1e-5)


RANDOM = np.random.default_rng(0)


def image(*nodes: Any, opset: int = 18, **constants: Any) -> Network:
    """Nodes that read ``c``, which a convolution writes: images are channels-last in the models."""
    weights = RANDOM.standard_normal((8, 3, 3, 3)).astype(np.float32)
    first = make("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1])
    return Network([first, *nodes], {"x": (FLOAT, [1, 3, 6, 6])}, {"w": weights, **constants}, opset=opset)


IMAGES = {
    "channels that are split": image(make("Split", ["c"], ["a", "b"], axis=1, num_outputs=2), make("Mul", ["a", "b"], ["y"])),
    "a channel": image(make("Gather", ["c", "i"], ["y"], axis=1), i=np.array(3)),
    "rows by index": image(make("Gather", ["c", "i"], ["y"], axis=2), i=np.array([3, 1])),
    "rows backwards": image(
        make("Slice", ["c", "b", "e", "a", "s"], ["y"]),
        b=np.array([-1]), e=np.array([-99]), a=np.array([2]), s=np.array([-2]),
    ),
    "softmax over channels": image(make("Softmax", ["c"], ["y"], axis=1)),
    "softmax of rows, before opset 13": image(make("Softmax", ["c"], ["y"], axis=3), opset=11),
    "a classifier's head": image(
        make("GlobalAveragePool", ["c"], ["g"]), make("Flatten", ["g"], ["f"]), make("Gemm", ["f", "v", "b"], ["y"]),
        v=np.ones((8, 4), np.float32), b=np.ones((1, 4), np.float32),
    ),
    "rows of an image": image(make("Flatten", ["c"], ["f"]), make("MatMul", ["f", "v"], ["y"]), v=np.ones((288, 4), np.float32)),
    "aligned corners": image(
        make("Resize", ["c", "", "", "k"], ["y"], mode="linear", coordinate_transformation_mode="align_corners"),
        k=np.array([1, 8, 9, 7]),
    ),
    "only wider": image(
        make("Resize", ["c", "", "k"], ["y"], coordinate_transformation_mode="asymmetric", nearest_mode="floor"),
        k=np.float32([1, 1, 1, 2]),
    ),
    "padding by rule": image(make("AveragePool", ["c"], ["y"], kernel_shape=[3, 3], strides=[2, 2], auto_pad="SAME_LOWER")),
    "groups of channels": image(
        make("Conv", ["c", "u"], ["d"], group=2, pads=[1, 1, 1, 1]), make("Relu", ["d"], ["y"]),
        u=np.ones((8, 4, 3, 3), np.float32),
    ),
}  # fmt: skip


@pytest.mark.parametrize("network", IMAGES.values(), ids=IMAGES)
def test_images_are_computed_as_onnx_runtime_does(network: Network, tmp_path: Path) -> None:
    path = network.write(tmp_path)
    assert not [one for one in network.converted(tmp_path)[1] if one.mapping == "host"]
    given = {"x": RANDOM.standard_normal((1, 3, 6, 6)).astype(np.float32)}
    (ours,), (theirs,) = (one.run(None, given) for one in (session(str(path)), runtime(path)))
    np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-4)
