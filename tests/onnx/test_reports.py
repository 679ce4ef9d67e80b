"""Public reports of ONNX files: each row with the test of its kind, or with small files that are compared here beside a judge.

The judge is ONNX Runtime without its optimiser; where it is what is reported, the onnx package's evaluator or NumPy.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nnbridge
from tests.commands import call
from tests.conftest import requires_recent_onnx_runtime
from tests.onnx.test_repair import compared, value

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from onnx.reference import ReferenceEvaluator  # noqa: E402

T, make = onnx.TensorProto, onnx.helper.make_node
RNG = np.random.default_rng(5)
MAPPINGS = ("wide", "provider")


def real(*shape: int) -> Any:
    return RNG.normal(size=shape).astype(np.float32)


def file(
    nodes: Sequence[Any] | Any,
    inputs: Mapping[str, Any],
    constants: Mapping[str, Any] | None = None,
    opset: int = 18,
    out: int = T.FLOAT,
) -> Any:
    """A file from inputs (dimensions of float32, or a type and dimensions) to ``y``."""
    typed = [value(n, *(of if isinstance(of, tuple) else (T.FLOAT, of))) for n, of in inputs.items()]
    tensors = [
        array if isinstance(array, T) else onnx.numpy_helper.from_array(np.asarray(array), name)
        for name, array in (constants or {}).items()
    ]
    listed = nodes if isinstance(nodes, list) else [nodes]
    graph = onnx.helper.make_graph(listed, "graph", typed, [value("y", out, None)], tensors)
    opsets = [onnx.helper.make_opsetid("", opset), onnx.helper.make_opsetid("ai.onnx.ml", 3)]
    return onnx.helper.make_model(graph, opset_imports=opsets, ir_version=10)


IMAGE, Y = [1, 2, 7, 7], ["y"]
BYTES = {"s": np.float32(0.02), "z": np.uint8(120)}


def quantised(node: Any) -> list[Any]:
    """A node ``a`` → ``b`` between quantisations."""
    return [
        make("QuantizeLinear", ["x", "s", "z"], ["q"]),
        make("DequantizeLinear", ["q", "s", "z"], ["a"]),
        node,
        make("QuantizeLinear", ["b", "s", "z"], ["r"]),
        make("DequantizeLinear", ["r", "s", "z"], Y),
    ]


def small(type: int, dims: Sequence[int], numbers: Sequence[float]) -> Any:
    return onnx.helper.make_tensor("w", type, dims, numbers)


def lstm(inputs: str = "x W R", constants: Mapping[str, Any] | None = None, **attributes: Any) -> Any:
    named = [name.replace("-", "") for name in inputs.split()]
    weights = {"W": 0.5 * real(1, 12, 4), "R": 0.5 * real(1, 12, 3), **(constants or {})}
    return file([make("LSTM", named, ["h"], hidden_size=3, **attributes), make("Neg", ["h"], Y)], {"x": [5, 2, 4]}, weights)


def pad(mode: str, sizes: list[int]) -> Any:
    return file(make("Pad", ["x", "p"], Y, mode=mode), {"x": IMAGE}, {"p": np.int64(sizes)}, 19)


def pool(**attributes: Any) -> Any:
    return file(
        make("AveragePool", ["x"], Y, kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1, **attributes),
        {"x": [1, 2, 6, 8]},
        opset=19,
    )


def transposed(**attributes: Any) -> Any:
    return file(make("ConvTranspose", ["x", "w"], Y, strides=[2, 2], **attributes), {"x": IMAGE}, {"w": real(2, 3, 3, 3)})


def sizes_of_a_file() -> Any:
    """A view as PyTorch exports it: the batch from Shape, Gather, Unsqueeze and Concat."""
    nodes = [
        make("Shape", ["x"], ["s"]),
        make("Gather", ["s", "i"], ["n"], axis=0),
        make("Unsqueeze", ["n", "o"], ["u"]),
        make("Concat", ["u", "m"], ["t"], axis=0),
        make("Reshape", ["x", "t"], Y),
    ]
    return file(nodes, {"x": [2, 3, 4]}, {"i": np.int64(0), "o": np.int64([0]), "m": np.int64([-1])})


def rotary(**attributes: Any) -> Any:
    inputs = {"x": [1, 2, 3, 8], "p": (T.INT64, [1, 3])}
    nodes = [make("Clip", ["p", "low", "high"], ["c"]), make("RotaryEmbedding", ["x", "cos", "sin", "c"], Y, **attributes)]
    tables = {"cos": real(6, 4), "sin": real(6, 4), "low": np.int64(0), "high": np.int64(5)}
    return file(nodes, inputs, tables, 23)


def tree(transform: str) -> Any:
    """Two trees of one decision each."""
    node = make(
        "TreeEnsembleRegressor",
        ["x"],
        Y,
        domain="ai.onnx.ml",
        n_targets=1,
        post_transform=transform,
        nodes_treeids=[0, 0, 0, 1, 1, 1],
        nodes_nodeids=[0, 1, 2] * 2,
        nodes_featureids=[0, 0, 0, 1, 0, 0],
        nodes_modes=["BRANCH_LEQ", "LEAF", "LEAF"] * 2,
        nodes_values=[0.0, 0, 0, 0.5, 0, 0],
        nodes_truenodeids=[1, 0, 0] * 2,
        nodes_falsenodeids=[2, 0, 0] * 2,
        target_treeids=[0, 0, 1, 1],
        target_nodeids=[1, 2, 1, 2],
        target_ids=[0] * 4,
        target_weights=[0.25, -1.0, 0.5, 2.0],
    )
    return file(node, {"x": [4, 2]})


FILES: dict[str, Any] = {
    "Resize with an empty region": file(
        make("Resize", ["x", "e", "k"], Y), {"x": IMAGE}, {"e": np.float32([]), "k": np.float32([1, 1, 2, 2])}
    ),
    **{f"RotaryEmbedding {o}": rotary(**o) for o in ({}, {"interleaved": 1}, {"rotary_embedding_dim": 8})},
    "DequantizeLinear of uint16": file(
        [make("QuantizeLinear", ["x", "s", "k"], ["q"]), make("DequantizeLinear", ["q", "s", "k"], Y)],
        {"x": IMAGE},
        {"s": np.float32(0.001), "k": np.uint16(30000)},
        21,
    ),
    "DequantizeLinear of int32": file(
        [make("DequantizeLinear", ["w", "s"], ["d"]), make("Add", ["x", "d"], Y)],
        {"x": [2, 3]},
        {"w": np.int32([[1, -2, 70000], [0, 5, 9]]), "s": np.float32(0.01)},
    ),
    "DequantizeLinear by blocks": file(
        [make("DequantizeLinear", ["w", "s"], ["d"], axis=0, block_size=2), make("MatMul", ["x", "d"], Y)],
        {"x": [2, 4]},
        {"w": small(T.INT8, [4, 2], [1, -8, 7, 0, 3, -3, 2, 5]), "s": np.float32([[0.1, 0.2], [0.3, 0.4]])},
        21,
    ),
    "DequantizeLinear of float8": file(
        [make("DequantizeLinear", ["w", "s"], ["d"]), make("Add", ["x", "d"], Y)],
        {"x": [2, 2]},
        {"w": small(T.FLOAT8E4M3FN, [2, 2], [0.5, -1.75, 448, 0]), "s": np.float32(0.1)},
        19,
    ),
    "AveragePool rounded up": pool(),
    "AveragePool rounded up that counts paddings": pool(count_include_pad=1, pads=[1, 1, 1, 1]),
    "AveragePool rounded up without them": pool(pads=[1, 1, 1, 1]),
    "LSTM with peepholes": lstm("x W R - - - - P".replace("-", "-"), {"P": real(1, 9)}),
    "LSTM with a clip": lstm(clip=0.3),
    "LSTM with coupled gates": lstm(input_forget=1),
    "LSTM with other activations": lstm(activations=["HardSigmoid", "Relu", "Tanh"]),
    "LSTM of sequences of their own lengths": lstm("x W R - n", {"n": np.int32([5, 2])}),
    **{
        f"Pad {m} {s}": pad(m, s)
        for m in ("reflect", "edge", "wrap")
        for s in ([0, 0, 2, 1, 0, 0, 1, 3], [0, 0, -1, 2, 0, 0, -2, 0])
    },
    "Pad constant below 0": pad("constant", [0, 0, -1, -2, 0, 0, 0, 3]),
    "ConvTranspose of a stated output": transposed(output_shape=[14, 14]),
    "ConvTranspose of a stated output, SAME_UPPER": transposed(output_shape=[14, 14], auto_pad="SAME_UPPER"),
    "ConvTranspose of a smaller output, SAME_LOWER": transposed(output_shape=[13, 13], auto_pad="SAME_LOWER"),
    "MatMul and an Add that widens": file(
        [make("MatMul", ["x", "w"], ["m"]), make("Add", ["m", "b"], Y)], {"x": [1, 4]}, {"w": real(4, 3), "b": real(5, 3)}
    ),
    "MatMul and an Add that adds axes": file(
        [make("MatMul", ["x", "w"], ["m"]), make("Add", ["b", "m"], Y)], {"x": [2, 4]}, {"w": real(4, 3), "b": real(1, 1, 2, 3)}
    ),
    "Celu": file(make("Celu", ["x"], Y, alpha=2.0), {"x": IMAGE}),
    "Split into uneven parts": file(
        [make("Split", ["x"], ["a", "b", "c"], axis=1, num_outputs=3), make("Concat", ["c", "a", "b"], Y, axis=1)], {"x": [2, 7]}
    ),
    "Split of opset 13 into stated parts": file(
        [make("Split", ["x", "n"], ["a", "b"], axis=1), make("Concat", ["b", "a"], Y, axis=1)],
        {"x": [2, 7]},
        {"n": np.int64([5, 2])},
        13,
    ),
    "sizes that the file computes": sizes_of_a_file(),
    **{f"trees, {transform}": tree(transform) for transform in ("NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO", "PROBIT")},
    "odd names": file(
        [make("Relu", ["x"], ["/a b\n'\"é:0"], name="%s{}"), make("Abs", ["/a b\n'\"é:0"], Y, name="<b>")], {"x": IMAGE}
    ),
    "GridSample": file(make("GridSample", ["x", "g"], Y), {"x": IMAGE, "g": [1, 3, 4, 2]}, opset=16),
    "GridSample of volumes": file(
        make("GridSample", ["x", "g"], Y, mode="linear"), {"x": [1, 2, 3, 4, 5], "g": [1, 2, 2, 2, 3]}, opset=20
    ),
    "TopK": file(make("TopK", ["x", "k"], [*Y, "i"], axis=1), {"x": [2, 9]}, {"k": np.int64([3])}),
    "Einsum": file(make("Einsum", ["x", "z"], Y, equation="bij,bkj->bik"), {"x": [2, 3, 4], "z": [2, 5, 4]}),
    "ScatterElements that adds": file(
        make("ScatterElements", ["x", "i", "u"], Y, axis=1, reduction="add"),
        {"x": [2, 4], "u": [2, 2]},
        {"i": np.int64([[0, 0], [3, -1]])},
    ),
    "ScatterND that takes the largest": file(
        make("ScatterND", ["x", "i", "u"], Y, reduction="max"), {"x": [4, 3], "u": [2, 3]}, {"i": np.int64([[1], [1]])}
    ),
}
"""Beside ONNX Runtime."""
EVALUATED: dict[str, tuple[Any, dict[str, Any]]] = {
    "DequantizeLinear of int4": (
        file(
            [make("DequantizeLinear", ["w", "s"], ["d"]), make("MatMul", ["x", "d"], Y)],
            {"x": [2, 4]},
            {"w": small(T.INT4, [4, 2], [1, -8, 7, 0, 3, -3, 2, 5]), "s": np.float32(0.1)},
            21,
        ),
        {"x": real(2, 4)},
    ),
    "SequenceMap": (
        file(
            [
                make("SequenceConstruct", ["x", "x"], ["q"]),
                make(
                    "SequenceMap",
                    ["q"],
                    ["r"],
                    body=onnx.helper.make_graph(
                        [make("Neg", ["e"], ["o"])], "b", [value("e", T.FLOAT, [2])], [value("o", T.FLOAT, [2])]
                    ),
                ),
                make("ConcatFromSequence", ["r"], Y, axis=0),
            ],
            {"x": [2]},
        ),
        {"x": np.float32([1, -2])},
    ),
    "attention of the newest keys": (
        file(
            make("Attention", ["x", "k", "v", "", "pk", "pv"], [*Y, "a", "b"], is_causal=1),
            {"x": [1, 1, 2, 4], **{n: [1, 1, 2, 4] for n in "kv"}, **{n: [1, 1, 3, 4] for n in ("pk", "pv")}},
            opset=23,
        ),
        {"x": real(1, 1, 2, 4), **{n: real(1, 1, 2, 4) for n in "kv"}, **{n: real(1, 1, 3, 4) for n in ("pk", "pv")}},
    ),
    "attention that is causal": (
        file(make("Attention", ["x", "k", "v"], Y, is_causal=1), {n: [1, 2, 3, 4] for n in "xkv"}, opset=23),
        {n: real(1, 2, 3, 4) for n in "xkv"},
    ),
}
"""Beside the onnx package's evaluator."""
RESIZED = file(
    quantised(make("Resize", ["a", "", "k"], ["b"], mode="linear", coordinate_transformation_mode="asymmetric")),
    {"x": IMAGE},
    {**BYTES, "k": np.float32([1, 1, 2, 2])},
)


@pytest.mark.parametrize("mapping", MAPPINGS)
def test_a_resize_between_quantisations_is_a_step_off(mapping: str, tmp_path: Path) -> None:
    requires_recent_onnx_runtime()
    found = compared(RESIZED, tmp_path, mapping)
    (output,) = found.outputs
    assert 0 < output.largest <= 0.0201


@pytest.mark.parametrize("mapping", MAPPINGS)
@pytest.mark.parametrize("name", FILES)
def test_a_reported_file_is_computed_as_onnx_runtime_does(name: str, mapping: str, tmp_path: Path) -> None:
    if FILES[name].opset_import[0].version > 21:
        requires_recent_onnx_runtime()
    found = compared(FILES[name], tmp_path, mapping)
    assert found.passed, found.outputs


@pytest.mark.parametrize("mapping", MAPPINGS)
@pytest.mark.parametrize("name", EVALUATED)
def test_a_reported_file_is_computed_as_onnx_states_it(name: str, mapping: str, tmp_path: Path) -> None:
    model, feeds = EVALUATED[name]
    path = tmp_path / "m.onnx"
    path.write_bytes(model.SerializeToString())
    expected = ReferenceEvaluator(model).run(None, feeds)[0]
    np.testing.assert_allclose(nnbridge.run(path, feeds, mapping=mapping)["y"], expected, atol=2e-6)


@pytest.mark.parametrize(("size", "sides"), [(8, 1), (7, 1), (7, 0)])
def test_an_inverse_spectrum_is_numpys_at_odd_lengths_too(size: int, sides: int, tmp_path: Path) -> None:
    """ONNX Runtime 1.32 is wrong at odd lengths."""
    data = real(1, size, 1)
    nodes = [
        make("DFT", ["x", "", "a"], ["f"], onesided=sides),
        make("DFT", ["f", "n", "a"], Y, inverse=1, onesided=sides),
    ]
    path = tmp_path / "m.onnx"
    path.write_bytes(file(nodes, {"x": [1, size, 1]}, {"a": np.int64(1), "n": np.int64(size)}, 20).SerializeToString())
    found = nnbridge.run(path, {"x": data}, mapping="wide")["y"]
    np.testing.assert_allclose(found[..., :1], data, atol=1e-5)


def test_nodes_of_a_body_that_are_not_sorted_are_refused(tmp_path: Path) -> None:
    nodes = [make("Neg", ["b"], ["o"]), make("Abs", ["x"], ["b"])]
    branch = onnx.helper.make_graph(nodes, "branch", [], [value("o", T.FLOAT, [2])])
    model = file(make("If", ["c"], Y, then_branch=branch, else_branch=branch), {"x": [2], "c": (T.BOOL, [])})
    path = tmp_path / "m.onnx"
    path.write_bytes(model.SerializeToString())
    found = call("plan", path)
    assert (found.exit_code, found.stdout) == (2, "")
    assert "topologically sorted" in " ".join(found.stderr.split())


def test_positions_beyond_the_tables_are_refused_with_the_node(tmp_path: Path) -> None:
    requires_recent_onnx_runtime()  # older ones read beyond the tables
    node = make("RotaryEmbedding", ["x", "cos", "sin", "p"], Y, name="turn")
    model = file(node, {"x": [1, 2, 3, 8]}, {"cos": real(6, 4), "sin": real(6, 4), "p": np.int64([[0, 1, 9]])}, 23)
    path = tmp_path / "m.onnx"
    path.write_bytes(model.SerializeToString())
    found = call("run", path, "--seed", "0", "--host", "nnbridge")
    assert found.exit_code != 0
    assert "turn" in found.stderr


TWICE = [1, 3]
WORDS: dict[str, tuple[Any, tuple[str, ...], tuple[str, ...]]] = {
    "Pad of nothing": (
        ("run", file(make("Pad", ["x", "p"], Y, mode="edge", name="border"), {"x": [2]}, {"p": np.int64([-2, 3])}, 19)),
        ("Pad 'border'", "invalid mode: 2 with zero effective input extent"),
        ("IndexError", "ValueError", "can't extend"),
    ),
    "Identity of an input": (
        ("plan", file([make("Identity", ["x"], ["a"]), make("Relu", ["a"], Y)], {"x": TWICE})),
        ("provider",),
        ("(wide)",),
    ),
    "Split as declared": (
        ("inspect", file([make("Split", ["x"], ["a", "b"], num_outputs=2, axis=1), make("Add", ["a", "b"], Y)], {"x": [1, 4]})),
        ("Split",),
        ("as declared",),
    ),
    "a layout that ONNX Runtime lacks, and a long name": (
        ("plan", file(make("LSTM", ["x", "w", "r"], Y, hidden_size=2, layout=1, name="n" * 90), {"x": [1, 2, 2]},
                      {"w": np.ones((1, 8, 2), np.float32), "r": np.ones((1, 8, 2), np.float32)}, 14)),
        ("ONNX Runtime does not load this file: node 0 LSTM", "layout == 1"),
        ("runs on ONNX Runtime's CPU",),
    ),
}  # fmt: skip
"""A command on a file, what it says and what it does not say."""


@pytest.mark.parametrize("name", WORDS)
def test_a_sentence_names_the_node_and_its_own_cause(name: str, tmp_path: Path) -> None:
    if name == "Pad of nothing":
        requires_recent_onnx_runtime()  # older ones pad with zeros
    (command, model), said, not_said = WORDS[name]
    path = tmp_path / "m.onnx"
    path.write_bytes(model.SerializeToString())
    options = (
        ("--seed", "0", "--host", "nnbridge") if command == "run" else ("--mapping", "provider") if command == "plan" else ()
    )
    shown = call(command, path, *options)
    text = " ".join((shown.stdout + shown.stderr).split())
    assert all(words in text for words in said), text
    assert not any(words in text for words in not_said), text


HERE = "test_reports"
SAID = "test_a_sentence_names_the_node_and_its_own_cause"
COMPUTED = "test_a_reported_file_is_computed_as_onnx_runtime_does"
STATED = "test_a_reported_file_is_computed_as_onnx_states_it"
BUILDING = "test_provider_building"


@dataclass(frozen=True)
class Row:
    """A row of reports: its kind, and the tests (module of tests/onnx and function) that show the verdict."""

    reports: str
    kind: str
    tests: Mapping[str, str]
    why: str = ""
    """The reason why a part of it is no small file."""


ROWS = (
    Row(
        "onnxruntime 10727, onnx 5783",
        "Resize of a region",
        {"test_resize": "test_half_of_seven_elements_of_a_region_end_at_the_seventh"},
    ),
    Row(
        "onnx 2462, pytorch 76487, TIM-VX 263",
        "aligned corners by scales",
        {"test_resize": "test_interpolation_between_corners_as_pytorch_exports_it"},
    ),
    Row(
        "onnxruntime 21319, 25264, 17564",
        "Resize modes, also between quantisations",
        {"test_resize": "test_forty_lengths_and_scales_are_onnx_runtime_s", HERE: COMPUTED},
    ),
    Row(
        "onnxruntime 17035", "Resize with an empty region", {HERE: COMPUTED, "test_provider": "test_the_reason_of_each_operator"}
    ),
    Row("ultralytics 23055, 22655", "Split", {BUILDING: "test_what_a_builder_presupposes_costs_the_session"}),
    Row("sherpa-onnx 2443, onnxruntime 16224", "Gather by a scalar", {BUILDING: "test_what_nnapi_cannot_run_fails_each_run"}),
    Row(
        "onnxruntime 13056, sherpa-onnx 3611",
        "an input that is an output",
        {BUILDING: "test_what_nnapi_refuses_of_a_builder_costs_the_session"},
    ),
    Row("onnxruntime 12979", "five dimensions", {BUILDING: "test_what_nnapi_refuses_of_a_builder_costs_the_session"}),
    Row("onnxconverter-common 323, onnxruntime 10079", "reductions of float16", {"test_halves": "test_sums_are_of_float32"}),
    Row(
        "onnx 6150, 6529, 3046",
        "more than 2 GiB",
        {"test_onnx_session": "test_weights_beside_a_file_are_left_there_where_bytes_do_not_hold_them"},
        "a file of more than 2 GiB is not small; the test lowers the limit instead",
    ),
    Row(
        "onnxruntime 11137",
        "external data",
        {
            "test_external": "test_external_data_that_is_shorter_than_stated_is_refused",
            "test_convert": "test_external_data_in_a_file_that_cannot_be_is_refused",
        },
    ),
    Row("ir-py 448", "one name twice", {"test_repair": "test_a_file_that_onnx_runtime_runs_has_its_answers"}),
    Row("onnxruntime 5578, 3189", "sparse constants", {"test_repair": "test_a_file_that_onnx_runtime_runs_has_its_answers"}),
    Row(
        "onnxruntime 24769",
        "MatMulNBits",
        {"test_runtime_kernels": "test_an_operator_that_only_onnx_runtime_has_is_computed_by_it"},
    ),
    Row("sklearn-onnx 974", "ZipMap", {"test_runtime_kernels": "test_a_map_is_its_numbers_in_the_order_of_its_keys"}),
    Row(
        "pytorch 174042, 166797, 124956",
        "a bias that does not fit",
        {"test_runtime_kernels": "test_what_onnx_runtime_refuses_is_not_repeated_until_it_fits"},
    ),
    Row(
        "onnxruntime 28205, pytorch PR 162865, onnxruntime PR 29261",
        "RotaryEmbedding",
        {HERE: f"{COMPUTED} test_positions_beyond_the_tables_are_refused_with_the_node"},
    ),
    Row("onnxruntime 22100", "SequenceMap", {HERE: STATED}),
    Row("opencv 26456, onnx 5218", "layout 1", {BUILDING: "test_a_layout_that_onnx_runtime_lacks_is_the_first_thing_said"}),
    Row("onnx 4070", "a body that is not sorted", {HERE: "test_nodes_of_a_body_that_are_not_sorted_are_refused"}),
    Row("onnxruntime 10491, openvino 35931", "Softplus", {"test_ranges": "test_results_of_any_size_agree"}),
    Row("onnxruntime 29020, 28379, 26262, onnx PR 8068", "Attention", {HERE: STATED}),
    Row(
        "onnxruntime 18571, 17718, 19694",
        "quantised twins",
        {"test_quantised_forms": "test_a_quantised_operator_is_nnapis"},
    ),
    Row("onnxruntime 25507", "dynamic quantisation", {"test_quantised_forms": "test_dynamic_quantisation_stays_on_nnapi"}),
    Row(
        "onnxruntime 25223, PR 20187, 3820; openvino 32917; onnx 7752",
        "DequantizeLinear of other types, and by blocks",
        {HERE: COMPUTED},
    ),
    Row("onnxruntime 16105", "products that saturate", {"test_onnx_session": "test_products_are_exact_with_unsigned_weights"}),
    Row("onnx 4958, onnxruntime 16203, pytorch 183528", "AveragePool rounded up", {HERE: COMPUTED}),
    Row(
        "onnxruntime 25234",
        "a pool beyond the image",
        {"test_differential_findings": "test_a_pooling_window_beyond_the_image_is_onnx_runtime_s"},
    ),
    Row(
        "onnx 5920, onnxruntime PR 27028, onnxscript 1638",
        "inverse DFT of one side",
        {HERE: "test_an_inverse_spectrum_is_numpys_at_odd_lengths_too"},
    ),
    Row("opencv PR 29931, onnx-tensorflow 409", "options of recurrent layers", {HERE: COMPUTED}),
    Row("onnx 6735, onnxruntime 20801, 16401, 8265, 11828", "Pad", {HERE: COMPUTED}),
    Row("openvino 31007, onnx 1701, MNN 3977, tvm 18601", "ConvTranspose of a stated output", {HERE: COMPUTED}),
    Row("onnxruntime 3764", "MatMul and an Add that widens", {HERE: COMPUTED}),
    Row(
        "onnxruntime 12506, 10250, 22687; onnx 5817, 5701",
        "functions and references to attributes",
        {"test_structures": "test_attributes_of_functions_have_their_defaults"},
    ),
    Row("onnxruntime 27533", "post-transforms of trees", {HERE: COMPUTED}),
    Row("onnxruntime 11073", "a symbolic batch", {"test_convert": "test_open_dimensions_can_be_stated_or_left_open"}),
    Row(
        "onnxsim 1293",
        "shapes that the file computes",
        {HERE: COMPUTED, "test_computed_shapes": "test_a_reshape_to_rows_is_nnapi_s_for_a_fixed_and_for_an_open_batch"},
    ),
    Row(
        "onnxruntime 9663",
        "old and new files",
        {
            "test_convert": "test_an_old_opset_is_brought_up_to_the_first_that_is_known "
            "test_an_opset_that_the_onnx_package_does_not_know_is_refused"
        },
    ),
    Row(
        "onnxruntime 8880, openvino 21175, onnx2tf 603, onnx 6991",
        "Celu, uneven Split, bfloat16",
        {HERE: COMPUTED, "test_halves": "test_every_operator_is_within_a_unit_of_onnx_runtime_or_of_float64"},
    ),
    Row(
        "onnxruntime-genai 707",
        "a graph that is not sorted",
        {"test_convert": "test_nodes_out_of_order_are_sorted_and_types_of_outputs_are_inferred"},
    ),
    Row(
        "pytorch 147854, 148886, 169178",
        "exports of PyTorch",
        {HERE: COMPUTED},
        "PyTorch is no dependency of the tests: only the pattern of computed sizes is here",
    ),
    Row(
        "fault 7",
        "a cause after a long path",
        {"test_runtime_kernels": "test_a_refusal_has_onnx_runtimes_cause_and_the_nodes_name", HERE: SAID},
    ),
    Row(
        "fault 11",
        "advice for QOperator files",
        {
            "remedies.test_quantised_onnx": "test_int8_qlinear_operators_are_advised_as_their_uint8_twins_are "
            "test_nodes_that_conversion_writes_out_in_several_are_the_files_own_to_advice"
        },
    ),
    Row(
        "fault 12",
        "what ONNX Runtime does not load",
        {BUILDING: "test_a_domain_that_no_one_registers_is_named_wherever_it_is", HERE: SAID},
    ),
    Row("fault 13", "words", {HERE: SAID}),
    Row("–", "odd names, GridSample, Einsum, TopK, Scatter", {HERE: COMPUTED, "test_backend": "test_passes"}),
)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.kind)
def test_every_row_names_tests_that_exist(row: Row) -> None:
    for module, names in row.tests.items():
        package = "tests" if module == "test_onnx_session" or "." in module else "tests.onnx"
        found = importlib.import_module(f"{package}.{module}")
        assert all(hasattr(found, name) for name in names.split()), (module, names)
