"""ONNX Runtime's products of unsigned and signed bytes, which some processors saturate, are exact in our sessions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

onnx = pytest.importorskip("onnx")
ort = pytest.importorskip("onnxruntime")

from onnx import helper, numpy_helper  # noqa: E402
from onnx.reference import ReferenceEvaluator  # noqa: E402

import nnbridge  # noqa: E402
from nnbridge.compare.onnx_runtime import OnnxRuntime  # noqa: E402
from nnbridge.engines import onnx_session  # noqa: E402
from nnbridge.engines.onnx_session import open_session, with_unsigned_weights  # noqa: E402
from tests.conftest import requires_recent_onnx_runtime  # noqa: E402

Array = npt.NDArray[Any]
UINT8, INT8 = onnx.TensorProto.UINT8, onnx.TensorProto.INT8
MICROSOFT = "com.microsoft"
LEFT = np.array([[255, 255, 3, 0], [250, 254, 255, 255]], np.uint8)
RIGHT = np.array([[127, -128, 1], [127, -128, -7], [-5, 100, 127], [90, -90, 126]], np.int8)
"""Pairs of their products are beyond 16 bits."""
IMAGE, FILTER = LEFT.T[None, :, :, None], RIGHT.T[:, :, None, None]
STEP, BIG = np.float32(0.5), np.float32(300)
LEFT_ZERO, RIGHT_ZERO = np.uint8(3), np.int8(-2)
SIGNED_IMAGE, UNSIGNED_FILTER = (IMAGE.astype(np.int16) - 128).astype(np.int8), (FILTER.astype(np.int16) + 128).astype(np.uint8)
EXACT = (LEFT.astype(np.int64) - 3) @ (RIGHT.astype(np.int64) + 2)
LEVELS = pytest.mark.parametrize("level", ["ORT_DISABLE_ALL", "ORT_ENABLE_BASIC", "ORT_ENABLE_ALL"])


@pytest.fixture
def saturating(monkeypatch: pytest.MonkeyPatch) -> None:
    """The processor is taken for one whose products saturate, so that files are rewritten."""
    monkeypatch.setattr(onnx_session, "saturates", lambda: True)


def model(
    operator: str, given: Sequence[object], domain: str = "", *, inputs: Sequence[int] = (), result: int = UINT8, **options: Any
) -> Any:
    """One node of constants; of ``given``, those at the places in ``inputs`` are inputs ``x0``, ``x1``…, None is left out."""
    names = ["" if value is None else f"x{i}" for i, value in enumerate(given)]
    arrays = {name: np.asarray(value) for name, value in zip(names, given, strict=True) if name}
    asked = [names[i] for i in inputs]
    node = helper.make_node(operator, names, ["y"], domain=domain, **options)
    declared = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(arrays[n].dtype), arrays[n].shape) for n in asked
    ]
    constants = [numpy_helper.from_array(array, name) for name, array in arrays.items() if name not in asked]
    graph = helper.make_graph([node], "g", declared, [helper.make_tensor_value_info("y", result, None)], constants)
    opsets = [helper.make_opsetid("", 13)] if not domain else [helper.make_opsetid(domain, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def answer(made: Any, level: str, feeds: dict[str, Array] | None = None) -> Array:
    """ONNX Runtime's, in a session of ours."""
    options = ort.SessionOptions()
    options.graph_optimization_level = getattr(ort.GraphOptimizationLevel, level)
    found: Array = open_session(made.SerializeToString(), options).run(None, feeds or {})[0]
    return found


def rounded(sums: Array, zero: int) -> Array:
    """Sums of the table's scales as bytes."""
    return np.clip(np.rint(sums * float(STEP) * float(STEP) / float(BIG)) + zero, 0, 255).astype(np.uint8)


QUANTISED = (LEFT, STEP, LEFT_ZERO, RIGHT, STEP, RIGHT_ZERO, BIG, np.uint8(100))
PRODUCTS: dict[str, Callable[[], tuple[Any, Array]]] = {
    "MatMulInteger": lambda: (
        model("MatMulInteger", [LEFT, RIGHT, LEFT_ZERO, RIGHT_ZERO], result=onnx.TensorProto.INT32),
        EXACT.astype(np.int32),
    ),
    "MatMulInteger without zero points": lambda: (
        model("MatMulInteger", [LEFT, RIGHT], result=onnx.TensorProto.INT32),
        LEFT.astype(np.int32) @ RIGHT.astype(np.int32),
    ),
    "QLinearMatMul": lambda: (model("QLinearMatMul", QUANTISED), rounded(EXACT, 100)),
    "QLinearConv": lambda: (
        model(
            "QLinearConv",
            [IMAGE, STEP, LEFT_ZERO, FILTER, STEP, RIGHT_ZERO, BIG, np.uint8(100)],
        ),
        rounded(EXACT.T, 100)[None, :, :, None],
    ),
    "QLinearConv by channel": lambda: (
        model(
            "QLinearConv",
            [IMAGE, STEP, LEFT_ZERO, FILTER, np.full(3, STEP), np.full(3, RIGHT_ZERO), BIG, np.uint8(100)],
        ),
        rounded(EXACT.T, 100)[None, :, :, None],
    ),
    "QLinearConv with channels last": lambda: (
        model(
            "QLinearConv",
            [IMAGE.transpose(0, 2, 3, 1), STEP, LEFT_ZERO, FILTER, STEP, RIGHT_ZERO, BIG, np.uint8(100)],
            MICROSOFT,
            channels_last=1,
        ),
        rounded(EXACT, 100)[None, :, None, :],
    ),
    "ConvInteger of signed data": lambda: (
        model("ConvInteger", [SIGNED_IMAGE, UNSIGNED_FILTER, np.int8(-125), np.uint8(126)], result=onnx.TensorProto.INT32),
        EXACT.T.astype(np.int32)[None, :, :, None],
    ),
    "QGemm": lambda: (
        model(
            "QGemm",
            [LEFT, STEP, LEFT_ZERO, RIGHT, STEP, RIGHT_ZERO, None, BIG, np.uint8(100)],
            MICROSOFT,
        ),
        rounded(EXACT, 100),
    ),
    "MatMulIntegerToFloat": lambda: (
        model(
            "MatMulIntegerToFloat",
            [LEFT, RIGHT, STEP, STEP, LEFT_ZERO, RIGHT_ZERO],
            MICROSOFT,
            result=onnx.TensorProto.FLOAT,
        ),
        (EXACT * 0.25).astype(np.float32),
    ),
    "DynamicQuantizeMatMul": lambda: (
        model(
            "DynamicQuantizeMatMul",
            [LEFT.astype(np.float32), RIGHT, STEP, RIGHT_ZERO],
            MICROSOFT,
            result=onnx.TensorProto.FLOAT,
        ),
        (LEFT.astype(np.float32) @ (RIGHT.astype(np.float32) + 2)) / 2,
    ),
}


@LEVELS
@pytest.mark.parametrize("name", PRODUCTS)
def test_products_are_exact_with_unsigned_weights(name: str, level: str, saturating: None) -> None:
    made, expected = PRODUCTS[name]()
    found = answer(made, level)
    assert found.dtype == expected.dtype
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=0)


@LEVELS
@pytest.mark.parametrize("name", PRODUCTS)
def test_products_are_exact_on_this_processor(name: str, level: str) -> None:
    if name == "ConvInteger of signed data":  # Older ones have no kernel for it.
        requires_recent_onnx_runtime()
    made, expected = PRODUCTS[name]()
    np.testing.assert_allclose(answer(made, level), expected, rtol=1e-6, atol=0)


@pytest.mark.parametrize(
    "name", ["MatMulInteger", "QLinearMatMul", "QLinearConv", "QLinearConv by channel", "ConvInteger of signed data"]
)
def test_what_is_written_has_the_answer_of_onnx_s_evaluator(name: str) -> None:
    made, _ = PRODUCTS[name]()
    (before,) = ReferenceEvaluator(made).run(None, {})
    assert with_unsigned_weights(made)
    np.testing.assert_array_equal(ReferenceEvaluator(made).run(None, {})[0], before)


def test_weights_that_are_an_input_are_written_unsigned(saturating: None) -> None:
    given = [LEFT, RIGHT, LEFT_ZERO, RIGHT_ZERO]
    made = model("MatMulInteger", given, inputs=[0, 1], result=onnx.TensorProto.INT32)
    np.testing.assert_array_equal(answer(made, "ORT_ENABLE_ALL", {"x0": LEFT, "x1": RIGHT}), EXACT)
    assert with_unsigned_weights(made)


def test_weights_that_the_graph_quantises_are_written_unsigned() -> None:
    made, _ = PRODUCTS["QLinearMatMul"]()
    made.graph.node[0].input[3] = "w"
    made.graph.node.insert(0, helper.make_node("QuantizeLinear", ["f", "x4", "x5"], ["w"]))
    made.graph.initializer.append(numpy_helper.from_array((RIGHT.astype(np.float32) + 2) / 2, "f"))
    (before,) = ReferenceEvaluator(made).run(None, {})
    assert with_unsigned_weights(made)
    np.testing.assert_array_equal(ReferenceEvaluator(made).run(None, {})[0], before)


@pytest.mark.parametrize(
    ("left", "right"), [(LEFT, RIGHT.astype(np.uint8)), ((LEFT // 2).astype(np.int8), RIGHT)], ids=["unsigned", "signed"]
)
def test_products_of_one_type_are_left(left: Array, right: Array) -> None:
    made = model("MatMulInteger", [left, right], result=onnx.TensorProto.INT32)
    before = made.SerializeToString()
    assert not with_unsigned_weights(made)
    assert made.SerializeToString() == before


def test_bodies_are_written_too(saturating: None) -> None:
    inner, expected = PRODUCTS["MatMulInteger"]()
    node = helper.make_node("If", ["c"], ["z"], then_branch=inner.graph, else_branch=inner.graph)
    inputs = [helper.make_tensor_value_info("c", onnx.TensorProto.BOOL, [])]
    outputs = [helper.make_tensor_value_info("z", onnx.TensorProto.INT32, None)]
    graph = helper.make_graph([node], "g", inputs, outputs)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    np.testing.assert_array_equal(answer(made, "ORT_DISABLE_ALL", {"c": np.array(True)}), expected)
    assert with_unsigned_weights(made)


def test_a_reference_reads_weights_beside_its_file(tmp_path: Path, saturating: None) -> None:
    made, expected = PRODUCTS["QLinearMatMul"]()
    made.graph.node[0].input[0] = "x"
    made.graph.input.append(helper.make_tensor_value_info("x", UINT8, LEFT.shape))
    path = tmp_path / "m.onnx"
    onnx.save(made, str(path), save_as_external_data=True, size_threshold=0, location="m.data")
    for preserve in (False, True):
        (found,) = OnnxRuntime(path, preserve=preserve).run({"x": LEFT})
        np.testing.assert_array_equal(found, expected)


RNG = np.random.default_rng(0)
EXTREMES = np.array([-128, -127, 127, 126, 100], np.int8)
"""Weights that saturate beside numbers of 255."""


def real_network(form: str) -> Any:
    """Products of real numbers between DequantizeLinear and QuantizeLinear, as exporters write quantised networks."""
    signed = "signed" in form
    zero = np.array(-3, np.int8) if signed else np.array(5, np.uint8)
    constants: dict[str, Array] = {"step": np.float32(0.02), "zero": zero, "half": np.float32(0.01), "none": np.int8(0)}
    constants["kernel"] = RNG.choice(EXTREMES, (8, 4, 3, 3))
    constants["matrix"] = RNG.choice(EXTREMES, (64, 64))
    constants["steps"] = (RNG.random(8) * 0.01 + 0.001).astype(np.float32)
    constants["zeros"] = np.zeros(8, np.int8)
    constants["real"] = (constants["matrix"] * np.float32(0.01)).astype(np.float32)
    constants["sums"] = np.float32(0.5)
    make = helper.make_node
    behind = {
        "Conv": [make("DequantizeLinear", ["kernel", "half", "none"], ["w"]), make("Conv", ["d", "w"], ["r"])],
        "Conv by channel": [
            make("DequantizeLinear", ["kernel", "steps", "zeros"], ["w"], axis=0),
            make("Conv", ["d", "w"], ["r"]),
        ],
        "Conv by channel without zero points": [
            make("DequantizeLinear", ["kernel", "steps"], ["w"], axis=0),
            make("Conv", ["d", "w"], ["r"]),
        ],
        "MatMul": [make("DequantizeLinear", ["matrix", "half", "none"], ["w"]), make("MatMul", ["d", "w"], ["r"])],
        "MatMul without zero point": [make("DequantizeLinear", ["matrix", "half"], ["w"]), make("MatMul", ["d", "w"], ["r"])],
        "Gemm": [make("DequantizeLinear", ["matrix", "half", "none"], ["w"]), make("Gemm", ["d", "w"], ["r"], transB=1)],
        "MatMul of a Transpose": [
            make("DequantizeLinear", ["matrix", "half", "none"], ["v"]),
            make("Transpose", ["v"], ["w"], perm=[1, 0]),
            make("MatMul", ["d", "w"], ["r"]),
        ],
        "MatMul of what the graph quantises": [
            make("QuantizeLinear", ["real", "half", "none"], ["p"]),
            make("DequantizeLinear", ["p", "half", "none"], ["w"]),
            make("MatMul", ["d", "w"], ["r"]),
        ],
        "MatMul of two results": [
            make("Transpose", ["d"], ["e"], perm=[1, 0]),
            make("QuantizeLinear", ["e", "half", "none"], ["p"]),
            make("DequantizeLinear", ["p", "half", "none"], ["w"]),
            make("MatMul", ["d", "w"], ["r"]),
        ],
        "two Convs of the same weights": [
            make("DequantizeLinear", ["kernel", "half", "none"], ["w"]),
            make("Conv", ["d", "w"], ["r1"]),
            make("QuantizeLinear", ["r1", "sums", "zero"], ["q1"]),
            make("DequantizeLinear", ["q1", "sums", "zero"], ["d1"]),
            make("Slice", ["d1", "from", "to", "axis"], ["d2"]),
            make("Conv", ["d2", "w"], ["r"]),
        ],
    }
    constants |= {"from": np.array([0]), "to": np.array([4]), "axis": np.array([1])}
    nodes = [
        make("QuantizeLinear", ["x", "step", "zero"], ["q"]),
        make("DequantizeLinear", ["q", "step", "zero"], ["d"]),
        *behind[form.removesuffix(", signed")],
        make("QuantizeLinear", ["r", "sums", "zero"], ["s"]),
        make("DequantizeLinear", ["s", "sums", "zero"], ["y"]),
    ]
    dims = [1, 4, 6, 6] if "Conv" in form else [64, 64]
    ends = [[helper.make_tensor_value_info("x", 1, dims)], [helper.make_tensor_value_info("y", 1, None)]]
    used = {name for node in nodes for name in node.input}
    graph = helper.make_graph(
        nodes, "g", *ends, [numpy_helper.from_array(np.asarray(v), k) for k, v in constants.items() if k in used]
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)


FORMS = (
    "Conv",
    "Conv by channel",
    "Conv by channel without zero points",
    "MatMul",
    "MatMul without zero point",
    "MatMul of a Transpose",
    "MatMul of what the graph quantises",
    "MatMul of two results",
    "Gemm",
    "two Convs of the same weights",
)


@LEVELS
@pytest.mark.parametrize("kind", ["", ", signed"])
@pytest.mark.parametrize("form", FORMS)
def test_quantised_networks_are_as_exact_as_their_steps(form: str, kind: str, level: str, saturating: None) -> None:
    made = real_network(form + kind)
    x = RNG.choice(
        np.array([-5.0, 5.0, 4.9, 0.3], np.float32), [d.dim_value for d in made.graph.input[0].type.tensor_type.shape.dim]
    )
    (expected,) = ReferenceEvaluator(made).run(None, {"x": x})
    found = answer(made, level, {"x": x})
    np.testing.assert_allclose(
        found, expected, rtol=0, atol=0.5
    )  # one step: real numbers and whole ones round some sums otherwise


def small(*dims: int) -> Array:
    """Weights whose products no processor saturates, so that a session without rewriting is right everywhere."""
    return RNG.integers(-60, 61, dims).astype(np.int8)


def lstm() -> Any:
    given = [RNG.standard_normal((3, 2, 4)).astype(np.float32), small(1, 4, 20), small(1, 5, 20), *[None] * 5]
    given += [np.float32([0.02]), np.int8([3]), np.float32([0.01]), np.int8([-7])]
    made = model("DynamicQuantizeLSTM", given, MICROSOFT, result=onnx.TensorProto.FLOAT)
    made.graph.node[0].attribute.append(helper.make_attribute("hidden_size", 5))
    return made


def attention() -> Any:
    given = [RNG.integers(0, 256, (1, 3, 8)).astype(np.uint8), small(8, 24), RNG.standard_normal(24).astype(np.float32)]
    given += [np.float32(0.02), np.float32(0.03), None, np.uint8(120), np.int8(9)]
    made = model("QAttention", given, MICROSOFT, result=onnx.TensorProto.FLOAT)
    made.graph.node[0].attribute.append(helper.make_attribute("num_heads", 2))
    return made


@pytest.mark.parametrize("made", [lstm(), attention()], ids=["DynamicQuantizeLSTM", "QAttention"])
def test_recurrent_and_attention_weights_are_the_same_unsigned(made: Any, saturating: None) -> None:
    (expected,) = ort.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, {})
    for level in ("ORT_DISABLE_ALL", "ORT_ENABLE_ALL"):
        np.testing.assert_array_equal(answer(made, level), expected)
    assert with_unsigned_weights(made)


@pytest.mark.parametrize("kind", ["Transpose", "Cast"])
def test_weights_that_are_moved_or_cast_are_written_unsigned(kind: str, saturating: None) -> None:
    made, expected = PRODUCTS["MatMulInteger"]()
    weights = made.graph.initializer[1]
    if kind == "Transpose":
        weights.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(RIGHT.T), weights.name))
        step = helper.make_node("Transpose", [weights.name], ["w"], perm=[1, 0])
    else:
        weights.CopyFrom(numpy_helper.from_array(RIGHT.astype(np.int32), weights.name))
        step = helper.make_node("Cast", [weights.name], ["w"], to=INT8)
    made.graph.node[0].input[1] = "w"
    made.graph.node.insert(0, step)
    np.testing.assert_array_equal(answer(made, "ORT_ENABLE_ALL"), expected)
    assert with_unsigned_weights(made)


def test_rings_of_transpositions_are_left() -> None:
    nodes = [
        helper.make_node("Transpose", ["b"], ["a"]),
        helper.make_node("Transpose", ["a"], ["b"]),
        helper.make_node("MatMul", ["x", "a"], ["y"]),
    ]
    ends = [[helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [2, 2])] for name in "xy"]
    assert not with_unsigned_weights(helper.make_model(helper.make_graph(nodes, "g", *ends)))


def integers(*nodes: Any, weights: Array = RIGHT, inputs: Sequence[Any] = (), outputs: Sequence[str] = ("y",)) -> Any:
    """Nodes on the data ``x`` and the weights ``w``."""
    ends = [helper.make_tensor_value_info("x", UINT8, LEFT.shape), *inputs]
    results = [helper.make_tensor_value_info(name, onnx.TensorProto.INT32, None) for name in outputs]
    graph = helper.make_graph(nodes, "g", ends, results, [numpy_helper.from_array(weights, "w")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


PRODUCT = helper.make_node("MatMulInteger", ["x", "w"], ["y"])
PLAIN = LEFT.astype(np.int32) @ RIGHT.astype(np.int32)


def test_constants_that_an_input_replaces_are_computed(saturating: None) -> None:
    made = integers(PRODUCT, inputs=[helper.make_tensor_value_info("w", INT8, RIGHT.shape)])
    other = RIGHT[::-1].copy()
    np.testing.assert_array_equal(answer(made, "ORT_ENABLE_ALL", {"x": LEFT}), PLAIN)
    found = answer(made, "ORT_ENABLE_ALL", {"x": LEFT, "w": other})
    np.testing.assert_array_equal(found, LEFT.astype(np.int32) @ other.astype(np.int32))


def test_constants_of_files_whose_constants_are_all_inputs_stay_constants() -> None:
    made = integers(PRODUCT, inputs=[helper.make_tensor_value_info("w", INT8, RIGHT.shape)])
    made.ir_version = 3
    assert with_unsigned_weights(made)
    assert [node.op_type for node in made.graph.node] == ["Constant", "Constant", "MatMulInteger"]


def test_data_of_a_type_that_only_inference_finds_is_multiplied_with_unsigned_weights(saturating: None) -> None:
    condition = helper.make_tensor_value_info("c", onnx.TensorProto.BOOL, [1])
    chosen, product = helper.make_node("Where", ["c", "x", "x"], ["a"]), helper.make_node("MatMulInteger", ["a", "w"], ["y"])
    made = integers(chosen, product, inputs=[condition])
    np.testing.assert_array_equal(answer(made, "ORT_DISABLE_ALL", {"x": LEFT, "c": np.array([True])}), PLAIN)
    assert with_unsigned_weights(made)


def test_weights_of_many_products_are_written_once_and_replace_the_signed_ones() -> None:
    weights = np.ones((4, 10_000), np.int8)
    names = [f"y{i}" for i in range(50)]
    made = integers(*(helper.make_node("MatMulInteger", ["x", "w"], [name]) for name in names), weights=weights, outputs=names)
    assert with_unsigned_weights(made)
    assert made.ByteSize() < 50_000


@pytest.mark.parametrize("reader", ["an output", "another operator", "a body"])
def test_signed_weights_that_are_read_elsewhere_stay(reader: str, saturating: None) -> None:
    cast = helper.make_node("Cast", ["w"], ["z"], to=onnx.TensorProto.INT32)
    if reader == "a body":
        body = helper.make_graph([cast], "b", [], [helper.make_tensor_value_info("z", onnx.TensorProto.INT32, None)])
        other = helper.make_node("If", ["c"], ["z"], then_branch=body, else_branch=body)
        made = integers(PRODUCT, other, inputs=[helper.make_tensor_value_info("c", onnx.TensorProto.BOOL, [])], outputs="yz")
    else:
        made = integers(PRODUCT, cast, outputs="yz")
    if reader == "an output":
        del made.graph.node[1], made.graph.output[1]
        made.graph.output.append(helper.make_tensor_value_info("w", INT8, None))
    feeds = {"x": LEFT, "c": np.array(True)} if reader == "a body" else {"x": LEFT}
    product, weights = open_session(made.SerializeToString()).run(None, feeds)
    np.testing.assert_array_equal(product, PLAIN)
    np.testing.assert_array_equal(weights, RIGHT)


def test_weights_beside_a_file_are_left_there_where_bytes_do_not_hold_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, saturating: None
) -> None:
    monkeypatch.setattr(onnx_session, "_MOST_BYTES", 0)
    made = integers(PRODUCT, helper.make_node("Add", ["y", "b"], ["z"]), outputs="z")
    made.graph.initializer.append(numpy_helper.from_array(np.arange(3, dtype=np.int32) * 1000, "b"))
    path = tmp_path / "m.onnx"
    onnx.save(made, str(path), save_as_external_data=True, size_threshold=0, location="m.data")
    for preserve in (False, True):
        (found,) = OnnxRuntime(path, preserve=preserve).run({"x": LEFT})
        np.testing.assert_array_equal(found, PLAIN + np.arange(3) * 1000)


def test_the_file_that_asks_whether_products_saturate_is_one_product_of_bytes() -> None:
    from onnx import helper
    from onnx.numpy_helper import to_array

    from nnbridge.engines.onnx_session import PROBE

    model = onnx.load_model_from_string(PROBE)
    onnx.checker.check_model(model)
    assert [node.op_type for node in model.graph.node] == ["MatMulInteger"]
    assert [to_array(tensor).tolist() for tensor in model.graph.initializer] == [[[255, 255]], [[127], [127]]]
    assert [helper.tensor_dtype_to_np_dtype(t.data_type).name for t in model.graph.initializer] == ["uint8", "int8"]


@pytest.mark.parametrize("preserve", [False, True])
@pytest.mark.parametrize("value", [(), (1,), (1, 1), (2, 3)])
def test_a_value_of_an_input_of_any_rank_keeps_its_shape(value: tuple[int, ...], preserve: bool, tmp_path: Path) -> None:
    runtime = OnnxRuntime(_shape_of(None, tmp_path / "m.onnx"), preserve=preserve)
    assert runtime.run({"x": np.zeros(value, np.float32)})[0].tolist() == list(value)


@pytest.mark.parametrize(("declared", "seen"), [([], []), ([1], [1]), (["N"], [1]), (["N", "N"], [1, 1])])
def test_only_a_declared_scalar_becomes_one(declared: list[int | str], seen: list[int], tmp_path: Path) -> None:
    runtime = OnnxRuntime(_shape_of(declared, tmp_path / "m.onnx"))
    value = np.zeros(seen or (1,), np.float32)  # NNAPI has vectors of one element for scalars.
    assert runtime.run({"x": value})[0].tolist() == seen


def test_an_input_of_any_rank_is_drawn_with_a_shape_that_both_sides_have(tmp_path: Path) -> None:
    assert nnbridge.compare(_shape_of(None, tmp_path / "m.onnx"), "onnxruntime").passed


def _shape_of(shape: list[int | str] | None, path: Path) -> Path:
    """A file that returns its input's shape; the input is declared with ``shape``, None for any rank."""
    x = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, shape)
    y = helper.make_tensor_value_info("y", onnx.TensorProto.INT64, None)
    graph = helper.make_graph([helper.make_node("Shape", ["x"], ["y"])], "g", [x], [y])
    path.write_bytes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9).SerializeToString())
    return path
