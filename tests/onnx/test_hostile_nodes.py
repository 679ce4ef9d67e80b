"""Hostile ONNX files of one node: one of nnbridge's errors, quickly and in little memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx")

from onnx import TensorProto, helper, numpy_helper

from nnbridge.converters import ConversionOptions
from tests.hostile import check_conversion, check_run

BIG = 2**31 - 1
Constants = dict[str, np.ndarray]


def _write(folder: Path, node: Any, shape: list[Any], constants: Constants, opset: int = 17) -> Path:
    """One node on ``x``, giving ``y``."""
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    tensors = [numpy_helper.from_array(value, name) for name, value in constants.items()]
    graph = helper.make_graph([node], "graph", [x], [y], tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    path = folder / "hostile.onnx"
    path.write_bytes(model.SerializeToString())
    return path


def _i64(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


_PAD = helper.make_node("Pad", ["x", "p"], ["y"])
HOSTILE: dict[str, tuple[Any, list[Any], Constants]] = {
    "input of 2^62 elements": (helper.make_node("Relu", ["x"], ["y"]), [BIG, BIG], {}),
    "input of 2^63 - 1 elements": (helper.make_node("Relu", ["x"], ["y"]), [2**63 - 1], {}),
    "image of 2^31 rows": (helper.make_node("DepthToSpace", ["x"], ["y"], blocksize=2), [1, 4, 2**31, 1], {}),
    "split along an axis that is not there": (helper.make_node("Split", ["x"], ["y"], axis=5), [2, 2], {}),
    "vector of 2^32 - 1 elements": (helper.make_node("Add", ["x", "c"], ["y"]), [2**32 - 1], {"c": np.float32(1)}),
    "negative dimension": (helper.make_node("Relu", ["x"], ["y"]), [-5, 2], {}),
    "split of an axis far away": (helper.make_node("Split", ["x"], ["y"], axis=7), [2, 2], {}),
    "strings that nothing makes": (helper.make_node("RegexFullMatch", ["nobody"], ["y"], pattern="a"), [2], {}),
    **{
        f"Einsum of {text!r}": (helper.make_node("Einsum", ["x"], ["y"], equation=text), [3, 5, 5], {})
        for text in ("ii.i", ".iii", "ii\0", "...i...i", "...ii .i")  # inference would read these without end
    },
    "huge expansion": (helper.make_node("Expand", ["x", "s"], ["y"]), [1], {"s": _i64(BIG, BIG)}),
    "huge repetition": (helper.make_node("Tile", ["x", "s"], ["y"]), [2], {"s": _i64(BIG)}),
    "negative repetition": (helper.make_node("Tile", ["x", "s"], ["y"]), [2], {"s": _i64(-3)}),
    "huge padding": (_PAD, [2], {"p": _i64(BIG, BIG)}),
    "cropping beyond the edge": (_PAD, [2], {"p": _i64(-BIG, -BIG)}),
    "huge constant": (helper.make_node("ConstantOfShape", ["s"], ["y"]), [2], {"s": _i64(BIG, BIG)}),
    "impossible reshape": (helper.make_node("Reshape", ["x", "s"], ["y"]), [2], {"s": _i64(BIG, 3)}),
    "huge resize": (
        helper.make_node("Resize", ["x", "", "", "s"], ["y"], mode="linear"),
        [1, 1, 2, 2],
        {"s": _i64(1, 1, BIG, BIG)},
    ),
    "huge one-hot": (
        helper.make_node("OneHot", ["i", "d", "v"], ["y"]),
        [2],
        {"i": _i64(1), "d": _i64(BIG), "v": np.float32([0, 1])},
    ),
    "negative stride": (
        helper.make_node("Conv", ["x", "w"], ["y"], strides=[-1, 0]),
        [1, 2, 4, 4],
        {"w": np.ones((2, 2, 3, 3), np.float32)},
    ),
    "huge dilation": (
        helper.make_node("Conv", ["x", "w"], ["y"], dilations=[BIG, BIG]),
        [1, 2, 4, 4],
        {"w": np.ones((2, 2, 3, 3), np.float32)},
    ),
    "no groups": (
        helper.make_node("Conv", ["x", "w"], ["y"], group=0),
        [1, 2, 4, 4],
        {"w": np.ones((2, 2, 3, 3), np.float32)},
    ),
    **{  # inference would take these for addresses
        f"normalisation from axis {axis} on": (
            helper.make_node("LayerNormalization", ["x", "w"], ["y", "mean", "deviation"], axis=axis),
            [3, 4],
            {"w": np.ones(4, np.float32)},
        )
        for axis in (2**31, 2**63 - 1)
    },
    "elements by a negative number of batches": (
        helper.make_node("GatherND", ["x", "i"], ["y"], batch_dims=-1000),
        [2, 3],
        {"i": _i64(1).reshape(1, 1)},
    ),
    **{  # the evaluator would try every number of items to skip
        f"n-grams of {least} items or more that skip {skipped}": (
            helper.make_node(
                "TfIdfVectorizer",
                ["x"],
                ["y"],
                mode="TF",
                min_gram_length=least,
                max_gram_length=2,
                max_skip_count=skipped,
                ngram_counts=[0, 4],
                ngram_indexes=[0, 1, 2],
                pool_int64s=[2, 3, 5, 4, 5],
            ),
            [12],
            {},
        )
        for least, skipped in ((2, 2**31 + 1), (2**20 + 1, 5))
    },
    "windows that never move on": (
        helper.make_node("MaxPool", ["x"], ["y"], kernel_shape=[2, 2], strides=[1, 0], ceil_mode=1),
        [1, 1, 5, 5],
        {},
    ),
    "axis far away": (helper.make_node("Softmax", ["x"], ["y"], axis=-7), [2, 2], {}),
    "permutation that is none": (helper.make_node("Transpose", ["x"], ["y"], perm=[0, 0]), [2, 2], {}),
    "steps of zero": (
        helper.make_node("Slice", ["x", "a", "b", "c", "z"], ["y"]),
        [4],
        {"a": _i64(0), "b": _i64(4), "c": _i64(0), "z": _i64(0)},
    ),
    "an operator that reads itself": (helper.make_node("Add", ["x", "y"], ["y"]), [2], {}),
    "an operator without outputs": (helper.make_node("Relu", ["x"], [""]), [2], {}),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_is_refused_before_or_at_the_run(name: str, tmp_path: Path) -> None:
    node, shape, constants = HOSTILE[name]
    path = _write(tmp_path, node, shape, constants)
    verdict = check_conversion(path, ConversionOptions())
    assert verdict.good, verdict
    if verdict.outcome == "model":
        verdict = check_run(path, ConversionOptions())
    assert verdict.outcome == "refused", verdict
    assert len(verdict.message) < 1000


def test_windows_far_larger_than_the_image_are_refused_or_see_the_image(tmp_path: Path) -> None:
    node = helper.make_node("MaxPool", ["x"], ["y"], kernel_shape=[BIG, BIG], strides=[1, 1], auto_pad="SAME_UPPER")
    path = _write(tmp_path, node, [1, 1, 4, 4], {})
    assert check_conversion(path, ConversionOptions()).good
    assert check_run(path, ConversionOptions()).good


@pytest.mark.parametrize("opset", [-1, 0, 1000, 2**62])
def test_opsets_that_nobody_knows_are_refused(opset: int, tmp_path: Path) -> None:
    path = _write(tmp_path, helper.make_node("Relu", ["x"], ["y"]), [2], {}, opset)
    assert check_conversion(path, ConversionOptions()).outcome == "refused"


@pytest.mark.parametrize(("outputs", "stated"), [(["y"], 2**31), (["y", "z"], 1)])
def test_a_split_states_as_many_parts_as_it_has_outputs(outputs: list[str], stated: int, tmp_path: Path) -> None:
    # Inference would make billions of parts, or look for parts that it has not made.
    path = _write(tmp_path, helper.make_node("Split", ["x"], outputs, num_outputs=stated), [4], {}, 18)
    verdict = check_conversion(path, ConversionOptions())
    assert verdict.good
    assert f"num_outputs of {len(outputs)}, found {stated}" in verdict.message
