"""Models that would never end or would fill the memory if conversion ran what is constant in them."""

from __future__ import annotations

import logging
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nnbridge.converters import ConversionOptions
from nnbridge.errors import ConversionError
from nnbridge.file import load
from tests.hostile import check_conversion

onnx = pytest.importorskip("onnx")
from nnbridge_onnx import native  # noqa: E402

helper, FLOAT, INT64, BOOL = onnx.helper, onnx.TensorProto.FLOAT, onnx.TensorProto.INT64, onnx.TensorProto.BOOL
HUGE = 1 << 40


X = helper.make_tensor_value_info("x", FLOAT, [4])


def model(nodes: list[Any], constants: dict[str, Any], element: int = FLOAT, x: Any = X) -> Any:
    """A model whose output y is said to have 4 elements, whatever its nodes make."""
    graph = helper.make_graph(
        nodes,
        "graph",
        [x],
        [helper.make_tensor_value_info("y", element, [4])],
        [onnx.numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def loop(step: Any, **constants: Any) -> Any:
    """A loop over s of all constants."""
    values = [("i", INT64, []), ("go", BOOL, []), ("s", FLOAT, ["n"])]
    body = helper.make_graph(
        [helper.make_node("Identity", ["go"], ["on"]), step],
        "body",
        [helper.make_tensor_value_info(*value) for value in values],
        [helper.make_tensor_value_info("on", BOOL, []), helper.make_tensor_value_info("t", FLOAT, ["n"])],
    )
    count, condition = ("count" if "count" in constants else ""), ("go" if "go" in constants else "")
    return model([helper.make_node("Loop", [count, condition, "s"], ["y"], body=body)], {"s": np.float32([1]), **constants})


ADD, DOUBLE = helper.make_node("Add", ["s", "s"], ["t"]), helper.make_node("Concat", ["s", "s"], ["t"], axis=0)
ONE, SIZES = np.ones((1, 1, 2, 2), np.float32), np.array([1, 1, 1 << 20, 1 << 20])
BOMBS = {
    "a loop that never ends": loop(ADD, go=np.array(True)),
    "a loop of too many steps": loop(ADD, count=np.array(HUGE)),
    "a loop that doubles its state": loop(DOUBLE, count=np.array(60)),
    "a resized image": model([helper.make_node("Resize", ["s", "", "", "n"], ["y"])], {"s": ONE, "n": SIZES}),
    "padding": model([helper.make_node("Pad", ["s", "n"], ["y"])], {"s": np.ones(1, np.float32), "n": np.array([0, HUGE])}),
    "a window": model([helper.make_node("HannWindow", ["n"], ["y"])], {"n": np.array(HUGE)}),
    "a range": model(
        [helper.make_node("Range", ["a", "n", "b"], ["y"])], {"a": np.array(0), "n": np.array(HUGE), "b": np.array(1)}, INT64
    ),
    "an outer product": model(
        [helper.make_node("Einsum", ["s", "s", "s"], ["y"], equation="i,j,k->ijk")], {"s": np.ones(4096, np.float32)}
    ),
    "numbers joined with themselves": model(
        [helper.make_node("Concat", [f"a{i}", f"a{i}"], [f"a{i + 1}" if i < 49 else "y"], axis=0) for i in range(50)],
        {"a0": np.array([1])},
        INT64,
    ),
    "broadcasting": model(
        [helper.make_node("Mul", ["a", "b"], ["y"])],
        {"a": np.ones((1 << 20, 1), np.float32), "b": np.ones((1, 1 << 20), np.float32)},
    ),
}


@pytest.mark.parametrize("name", BOMBS)
def test_constants_are_only_folded_where_that_is_little_work(name: str, tmp_path: Path) -> None:
    path = tmp_path / "bomb.onnx"
    path.write_bytes(BOMBS[name].SerializeToString())
    verdict = check_conversion(path, ConversionOptions())
    assert verdict.good, verdict


def test_an_input_of_very_many_numbers_that_may_be_dimensions_costs_nothing(tmp_path: Path) -> None:
    made = model([helper.make_node("Slice", ["x", "n", "n", "n", "n"], ["y"])], {})
    made.graph.input.append(helper.make_tensor_value_info("n", INT64, [1 << 24]))
    path = tmp_path / "bomb.onnx"
    path.write_bytes(made.SerializeToString())
    verdict = check_conversion(path, ConversionOptions())
    assert verdict.good, verdict


def test_names_that_are_no_text_are_refused(tmp_path: Path) -> None:
    content = model([helper.make_node("Atan", ["x"], ["y"], name="angle", domain="")], {}).SerializeToString()
    path = tmp_path / "names.onnx"
    path.write_bytes(content.replace(b"angle", b"ang\xc7e"))
    with pytest.raises(ConversionError, match="names in UTF-8"):
        load(path)


def doubling(count: int) -> Any:
    """Functions each of which calls the one before it twice."""
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]

    def body(i: int) -> list[Any]:
        if not i:
            return [helper.make_node("Relu", ["a"], ["b"])]
        calls = zip(("a", "t"), ("t", "b"), strict=True)
        return [helper.make_node(f"f{i - 1}", [x], [y], domain="own") for x, y in calls]

    functions = [helper.make_function("own", f"f{i}", ["a"], ["b"], body(i), opsets) for i in range(count + 1)]
    made = model([helper.make_node(f"f{count}", ["x"], ["y"], domain="own")], {})
    made.functions.extend(functions)
    made.opset_import.append(opsets[1])
    return made


@pytest.mark.parametrize("count", [20, 60])
def test_functions_that_would_become_too_many_nodes_are_refused_at_once(count: int, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(doubling(count).SerializeToString())
    verdict = check_conversion(path, ConversionOptions())
    assert verdict.good
    assert "nodes once functions are inlined" in verdict.message


def test_functions_that_call_themselves_are_refused(tmp_path: Path) -> None:
    made = doubling(1)
    made.functions[0].node[0].CopyFrom(helper.make_node("f1", ["a"], ["b"], domain="own"))
    path = tmp_path / "model.onnx"
    path.write_bytes(made.SerializeToString())
    with pytest.raises(ConversionError, match=r"do not call themselves|must not be recursive"):
        load(path)


def test_a_few_functions_are_inlined(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(doubling(3).SerializeToString())
    assert len(load(path).main.operations) == 8


def test_a_file_with_functions_is_inferred_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    runs: list[str] = []
    infer = native.infer_shapes
    monkeypatch.setattr(native, "infer_shapes", lambda *a, **k: runs.append("run") or infer(*a, **k))
    path = tmp_path / "model.onnx"
    path.write_bytes(doubling(3).SerializeToString())
    load(path)
    assert 1 <= len(runs) <= 2


def test_a_range_of_constants_is_not_followed_by_inference(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Range", ["a", "n", "b"], ["c"]),
        helper.make_node("Cast", ["c"], ["f"], to=FLOAT),
        helper.make_node("ReduceSum", ["f"], ["r"], keepdims=0),
        helper.make_node("Add", ["x", "r"], ["y"]),
    ]
    path = tmp_path / "model.onnx"
    path.write_bytes(model(nodes, {"a": np.array(0), "n": np.array(1 << 30), "b": np.array(1)}).SerializeToString())
    verdict = check_conversion(path, ConversionOptions())
    assert verdict.outcome == "model"
    assert verdict.good


LONG = 1 << 24
VECTORS = {
    "squeezed": (helper.make_node("Squeeze", ["x", "a"], ["t"]), helper.make_tensor_value_info("x", FLOAT, [1, LONG])),
    "repeated": (helper.make_node("Tile", ["x", "n"], ["t"]), helper.make_tensor_value_info("x", FLOAT, [1])),
    "of a sequence": (
        helper.make_node("SequenceAt", ["x", "z"], ["t"]),
        helper.make_tensor_sequence_value_info("x", FLOAT, [LONG]),
    ),
}


@pytest.mark.parametrize("form", VECTORS)
@pytest.mark.parametrize("computed", [False, True])
def test_inference_does_not_follow_the_elements_of_long_vectors(form: str, computed: bool, tmp_path: Path) -> None:
    node, value = VECTORS[form]
    sizes = {"a": np.array([0]), "n": np.array([LONG]), "z": np.array(0)}
    total = helper.make_node("Add", ["t", "t"], ["s" if computed else "y"])
    shaping = [helper.make_node("Shape", ["t"], ["d"]), helper.make_node("Reshape", ["s", "d"], ["y"])] if computed else []
    path = tmp_path / "model.onnx"
    path.write_bytes(model([node, total, *shaping], sizes, x=value).SerializeToString())
    verdict = check_conversion(path, ConversionOptions())
    assert (verdict.outcome, verdict.good) == ("model", True), verdict


OPEN = helper.make_tensor_value_info("x", FLOAT, ["n", 4])


def test_inference_does_not_follow_vectors_whose_length_is_a_product_of_small_numbers(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Shape", ["x"], ["all"]),
        helper.make_node("Gather", ["all", "one"], ["four"]),
        helper.make_node("Mul", ["four", "k"], ["large"]),
        helper.make_node("Mul", ["large", "k"], ["huge"]),
        helper.make_node("ConstantOfShape", ["huge"], ["v"]),
        helper.make_node("Add", ["v", "v"], ["y"]),
    ]
    path = tmp_path / "model.onnx"
    path.write_bytes(model(nodes, {"one": np.array([1]), "k": np.array([5000])}, x=OPEN).SerializeToString())
    assert check_conversion(path, ConversionOptions()).good


def test_what_inference_follows_is_bounded_in_all(tmp_path: Path) -> None:
    nodes = [helper.make_node("Shape", ["x"], ["c0"])]
    nodes += [helper.make_node("Concat", [f"c{i}"] * 2, [f"c{i + 1}"], axis=0) for i in range(15)]
    nodes += [helper.make_node("Add", [f"c{i}", "c15"], [f"c{i + 1}"]) for i in range(15, 500)]
    nodes += [helper.make_node("Gather", ["c500", "one"], ["d"]), helper.make_node("Reshape", ["x", "d"], ["y"])]
    path = tmp_path / "model.onnx"
    path.write_bytes(model(nodes, {"one": np.array([1])}, x=OPEN).SerializeToString())
    verdict = check_conversion(path, ConversionOptions())
    assert verdict.good
    assert verdict.bytes < 2**29  # 485 sums of 32,768 elements of 100 bytes are 1.6 GB


def doubled(times: int) -> Any:
    """A model that reshapes to a number among the dimensions of its input, joined with themselves many times."""
    nodes = [helper.make_node("Shape", ["x"], ["c0"])]
    nodes += [helper.make_node("Concat", [f"c{i}"] * 2, [f"c{i + 1}"], axis=0) for i in range(times)]
    nodes += [helper.make_node("Gather", [f"c{times}", "one"], ["d"]), helper.make_node("Reshape", ["x", "d"], ["y"])]
    return model(nodes, {"one": np.array([1])}, x=OPEN)


@pytest.mark.skipif(not native.BOUNDED, reason="elsewhere memory is not bounded")
def test_a_file_whose_computed_numbers_take_too_much_memory_is_inferred_without_them(
    caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(doubled(40).SerializeToString())
    with caplog.at_level(logging.INFO, "nnbridge_onnx"):
        assert load(path).main.operations
    [message] = [text for text in caplog.messages if "does not follow computed numbers" in text]
    assert message.endswith("shape inference of the onnx package uses more memory than allowed")
    assert native.infer_shapes(onnx, doubled(3), follow=True).graph.output  # The next file has another process.


def test_where_memory_is_not_bounded_long_joins_are_not_followed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(native, "BOUNDED", False)
    kinds: list[bool] = []
    infer = native.infer_shapes
    monkeypatch.setattr(native, "infer_shapes", lambda *a, **k: kinds.append(k["follow"]) or infer(*a, **k))
    path = tmp_path / "model.onnx"
    for times, followed in ((3, True), (40, False)):
        kinds.clear()
        path.write_bytes(doubled(times).SerializeToString())
        load(path)
        assert any(kinds) is followed


def test_not_a_number_as_an_integer_is_folded_without_a_warning(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    node = helper.make_node("CastLike", ["a", "n"], ["t"])
    total = helper.make_node("Add", ["t", "n"], ["y"])
    path.write_bytes(model([node, total], {"a": np.float32([np.nan] * 4), "n": np.int32([1])}, INT64).SerializeToString())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert check_conversion(path, ConversionOptions()).outcome in ("model", "refused")
