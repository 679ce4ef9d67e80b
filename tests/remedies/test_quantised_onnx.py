"""Quantised ONNX files: QLinear operators, int8 weights, scales for each channel."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nnbridge import load
from nnbridge.advice import advise
from nnbridge.compare import seeded_inputs
from nnbridge.compare.references import reference
from nnbridge.file import ModelFile
from nnbridge.target import Target
from nnbridge.types import OperandCode, OperationCode
from nnbridge_onnx import edits as onnx_edits
from tests.remedies.files import PHONE, Nodes, advice, npu, onnx_file, same_bits, written

STEPS = {"s": np.float32(0.05), "z": np.int8(3), "t": np.float32(0.1), "p": np.int8(-5), "ws": np.float32(0.01), "wz": np.int8(0)}
"""Scales and zero points of values (s, z), of other values (t, p) and of weights."""


def quantised(*nodes: tuple[Any, ...], **constants: Any) -> tuple[Nodes, dict[str, Any]]:
    """Nodes on 8-bit values from ``x8`` of scale s to ``y8`` of scale t, between QuantizeLinear and DequantizeLinear."""
    ends: Nodes = [("QuantizeLinear", ["x", "s", "z"], ["x8"]), *nodes, ("DequantizeLinear", ["y8", "t", "p"], ["y"])]
    return ends, {**STEPS, **constants}


def q_convolution(channels: bool = False) -> tuple[Nodes, dict[str, Any]]:
    weights = np.random.default_rng(0).integers(-127, 128, (3, 2, 3, 3)).astype(np.int8)
    scales = np.float32([0.01, 0.02, 0.015]) if channels else STEPS["ws"]
    points = np.zeros(3, np.int8) if channels else STEPS["wz"]
    node = (
        "QLinearConv",
        ["x8", "s", "z", "w", "ws", "wz", "t", "p", "b"],
        ["y8"],
        {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]},
    )
    return quantised(node, w=weights, b=np.int32([100, -200, 300]), ws=scales, wz=points)


def q_convolution_by_channel() -> tuple[Nodes, dict[str, Any]]:
    return q_convolution(True)


def q_pair(kind: str = "QLinearAdd") -> tuple[Nodes, dict[str, Any]]:
    return quantised((kind, ["x8", "s", "z", "x8", "s", "z", "t", "p"], ["y8"]))


def q_product() -> tuple[Nodes, dict[str, Any]]:
    return q_pair("QLinearMul")


def q_moves() -> tuple[Nodes, dict[str, Any]]:
    """MaxPool, Transpose and Flatten of 8-bit values, then a product with weights."""
    weights = np.random.default_rng(0).integers(-127, 128, (8, 4)).astype(np.int8)
    nodes: Nodes = [
        ("MaxPool", ["x8"], ["m8"], {"kernel_shape": [2, 2], "strides": [2, 2]}),
        ("Transpose", ["m8"], ["n8"], {"perm": [0, 2, 3, 1]}),
        ("Flatten", ["n8"], ["f8"]),
        ("QLinearMatMul", ["f8", "s", "z", "w", "ws", "wz", "t", "p"], ["y8"]),
    ]
    return quantised(*nodes, w=weights)


def q_chain() -> tuple[Nodes, dict[str, Any]]:
    """Average, concatenation, logistic function and Gemm of ONNX Runtime."""
    weights = np.random.default_rng(0).integers(-127, 128, (4, 5)).astype(np.int8)
    nodes: Nodes = [
        ("QLinearGlobalAveragePool", ["x8", "s", "z", "s", "z"], ["g8"]),
        ("QLinearSigmoid", ["x8", "s", "z", "u", "low"], ["l8"]),
        ("QLinearGlobalAveragePool", ["l8", "u", "low", "s", "z"], ["h8"]),
        ("QLinearConcat", ["s", "z", "g8", "s", "z", "h8", "s", "z"], ["c8"], {"axis": 1}),
        ("Flatten", ["c8"], ["f8"]),
        ("QGemm", ["f8", "s", "z", "w", "ws", "wz", "b", "t", "p"], ["y8"]),
    ]
    return quantised(*nodes, w=weights, b=np.int32([1, 2, 3, 4, 5]), u=np.float32(1 / 256), low=np.int8(-128))


QLINEAR = (q_convolution, q_convolution_by_channel, q_pair, q_product, q_moves, q_chain)


def q_file(path: Path, make: Callable[[], tuple[Nodes, dict[str, Any]]]) -> Path:
    """A file of 8-bit operators, those of ONNX Runtime in its domain."""
    onnx = pytest.importorskip("onnx")
    nodes, constants = make()
    rank = 2 if "QGemm" in [one[0] for one in nodes] or "QLinearMatMul" in [one[0] for one in nodes] else 4
    model = onnx.load(str(onnx_file(path, nodes, [1, 2, 4, 4], [None] * rank, constants)))
    standard = {"QLinearConv", "QLinearMatMul"}
    for node in model.graph.node:
        if node.op_type.startswith(("QLinear", "QGemm")) and node.op_type not in standard:
            node.domain = "com.microsoft"
    model.opset_import.append(onnx.helper.make_opsetid("com.microsoft", 1))
    onnx.save(model, str(path))
    return path


@pytest.mark.parametrize("make", QLINEAR)
def test_qlinear_operators_become_onnxs_own_and_uint8_within_one_step(
    make: Callable[[], tuple[Nodes, dict[str, Any]]], tmp_path: Path
) -> None:
    onnx, _ = pytest.importorskip("onnx"), pytest.importorskip("onnxruntime")
    path, after = q_file(tmp_path / "q.onnx", make), tmp_path / "after.onnx"
    edits = [one for one in ModelFile(path, PHONE).edits if one.text.startswith(onnx_edits.QDQ)]
    assert len(edits) == 2
    samples = [seeded_inputs(load(path), seed) for seed in range(5)]
    original = reference("onnxruntime", path)
    before = [original.run(values)[0] for values in samples]
    for edit in edits:
        edit.content().write(after)
        kinds = {node.op_type for node in onnx.load(str(after)).graph.node}
        assert not {kind for kind in kinds if kind.startswith(("QLinear", "QGemm"))}
        runtime = reference("onnxruntime", after)
        assert max(np.abs(one - runtime.run(values)[0]).max() for one, values in zip(before, samples, strict=True)) <= 0.1001


def test_int8_qlinear_operators_are_advised_as_their_uint8_twins_are(tmp_path: Path) -> None:
    path, device = q_file(tmp_path / "q.onnx", q_convolution), npu(tmp_path, "CONV_2D", "QUANTIZE", "DEQUANTIZE", "TRANSPOSE")
    found = [one for one in advice(path, device) if one.kind == "round"]
    assert found[0].text == f"whole file: {onnx_edits.QDQ}, with uint8 in place of int8"
    assert len(found[0].after.elsewhere) == 0 < len(found[0].before.elsewhere)
    assert "QuantFormat.QDQ" in found[0].converter


def test_int8_weights_that_leave_no_session_become_uint8(tmp_path: Path) -> None:
    """ONNX Runtime's builder leaves transposed weights as they are, and knows no int8 there."""
    weights = np.random.default_rng(0).integers(-127, 128, (3, 4)).astype(np.int8)
    nodes: Nodes = [
        ("QuantizeLinear", ["x", "s", "z"], ["x8"]),
        ("DequantizeLinear", ["x8", "s", "z"], ["xr"]),
        ("DequantizeLinear", ["w", "ws", "wz"], ["wr"]),
        ("DequantizeLinear", ["b", "bs"], ["br"]),
        ("Gemm", ["xr", "wr", "br"], ["g"], {"transB": 1}),
        ("QuantizeLinear", ["g", "t", "p"], ["g8"]),
        ("DequantizeLinear", ["g8", "t", "p"], ["y"]),
    ]
    more = {
        "z": np.uint8(3),
        "p": np.uint8(120),
        "w": weights,
        "b": np.int32([1, 2, 3]),
        "bs": np.float32(0.05) * np.float32(0.01),
    }
    path = onnx_file(tmp_path / "gemm.onnx", nodes, [2, 4], [2, 3], {**STEPS, **more})
    first = advice(path, npu(tmp_path, "FULLY_CONNECTED", "QUANTIZE", "DEQUANTIZE"))[0]
    assert (first.text, first.before.standing, first.after.standing) == (f"whole file: {onnx_edits.UNSIGNED}", 1, 0)
    assert same_bits("onnxruntime", path, written(first, tmp_path, ".onnx"))


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("transposed", [False, True])
def test_products_of_weights_with_a_scale_for_each_channel_get_one(signed: bool, transposed: bool, tmp_path: Path) -> None:
    """As quantize_static(per_channel=True) writes Gemm, for which ONNX Runtime's provider has no session."""
    pytest.importorskip("onnxruntime")
    random, axis = np.random.default_rng(0), 0 if transposed else 1
    weights, scales = random.integers(-127, 128, (3, 4)).astype(np.int8), np.float32([0.01, 0.02, 0.015])
    stored = weights if transposed else np.ascontiguousarray(weights.T)
    nodes: Nodes = [
        ("QuantizeLinear", ["x", "s", "z"], ["x8"]),
        ("DequantizeLinear", ["x8", "s", "z"], ["xr"]),
        ("DequantizeLinear", ["w", "ws", "wz"], ["wr"], {"axis": axis}),
        ("DequantizeLinear", ["b", "bs"], ["br"], {"axis": 0}),
        ("Gemm", ["xr", "wr", "br"], ["g"], {"transB": int(transposed)}),
        ("QuantizeLinear", ["g", "t", "p"], ["g8"]),
        ("DequantizeLinear", ["g8", "t", "p"], ["y"]),
    ]
    points = {"z": np.int8(3), "p": np.int8(5)} if signed else {"z": np.uint8(131), "p": np.uint8(133)}
    more = {"w": stored, "ws": scales, "wz": np.zeros(3, np.int8), "b": np.int32([50, 60, 70]), "bs": np.float32(0.05) * scales}
    path = onnx_file(tmp_path / "gemm.onnx", nodes, [2, 4], [2, 3], {**STEPS, **points, **more})
    found = advice(path, npu(tmp_path, "FULLY_CONNECTED", "QUANTIZE", "DEQUANTIZE"))
    first = next(one for one in found if one.text == f"whole file: {onnx_edits.ONE_SCALE}")
    assert (first.kind, first.after.standing, len(first.after.elsewhere)) == ("change", 0, 0)
    assert "per_channel=False" in first.converter
    values, after = seeded_inputs(load(path), 0), written(first, tmp_path, ".onnx")
    one, other = (reference("onnxruntime", file).run(values)[0] for file in (path, after))
    assert np.abs(one - other).max() <= 0.1001


def test_nodes_that_conversion_writes_out_in_several_are_the_files_own_to_advice(tmp_path: Path) -> None:
    """QLinearAdd is four nodes to the importer; LeakyRelu after it has its own rewrite all the same."""
    nodes, constants = q_pair()
    nodes = [*nodes[:-1], ("DequantizeLinear", ["y8", "t", "p"], ["r"]), ("LeakyRelu", ["r"], ["y"], {"alpha": 0.1})]
    path = q_file(tmp_path / "q.onnx", lambda: (nodes, constants))
    file, device = ModelFile(path, PHONE), npu(tmp_path, "PRELU")
    assert list(file.importer.positions(file.options).values())[::-1] == [0, 1, 1, 1, 1, 2, 3]
    advised = advise(file, Target.of(device))
    assert "3 LeakyRelu: PRelu with its alpha as a constant" in [one.text for one in advised.advice]
    found = {(one.index, one.operator) for one in advised.unmoved}
    assert found <= {(0, "QuantizeLinear"), (1, "QLinearAdd"), (2, "DequantizeLinear")}


def q_batches(kind: str, *, unsigned: bool, channels: bool) -> tuple[Nodes, dict[str, Any]]:
    """A product of batches by a matrix of weights, as one QLinearMatMul or as a QDQ group."""
    random, dtype = np.random.default_rng(0), np.uint8 if unsigned else np.int8
    weights = random.integers(-127, 128, (8, 4)) + (128 if unsigned else 0)
    points = {name: dtype(value + 128 if unsigned else value) for name, value in (("z", 3), ("p", -5), ("wz", 0))}
    more: dict[str, Any] = {"w": weights.astype(dtype), **points}
    if channels:
        more |= {"ws": np.float32([0.01, 0.02, 0.005, 0.01]), "wz": np.zeros(4, dtype)}
    if kind == "QLinearMatMul":
        return quantised((kind, ["x8", "s", "z", "w", "ws", "wz", "t", "p"], ["y8"]), **more)
    group: Nodes = [
        ("DequantizeLinear", ["x8", "s", "z"], ["xr"]),
        ("DequantizeLinear", ["w", "ws", "wz"], ["wr"], {"axis": 1}),
        ("MatMul", ["xr", "wr"], ["m"]),
        ("QuantizeLinear", ["m", "t", "p"], ["y8"]),
    ]
    return quantised(*group, **more)


@pytest.mark.parametrize("dims", [[1, 5, 8], [2, 3, 5, 8]])
@pytest.mark.parametrize("kind", ["QLinearMatMul", "MatMul"])
@pytest.mark.parametrize(("unsigned", "channels"), [(True, False), (False, False), (False, True)])
def test_quantised_products_of_batches_run_in_8_bits(
    dims: list[int], kind: str, unsigned: bool, channels: bool, tmp_path: Path
) -> None:
    pytest.importorskip("onnxruntime")
    nodes, constants = q_batches(kind, unsigned=unsigned, channels=channels)
    path = onnx_file(tmp_path / "a.onnx", nodes, dims, [*dims[:-1], 4], constants)
    found = advice(path, npu(tmp_path, "FULLY_CONNECTED", "RESHAPE", "QUANTIZE", "DEQUANTIZE"))[0]
    assert (found.kind, len(found.after.elsewhere)) == ("change" if channels else "round", 0)
    after = written(found, tmp_path, ".onnx")
    main = ModelFile(after, PHONE).model.main
    (product,) = (one for one in main.operations if one.type == OperationCode.FULLY_CONNECTED)
    assert main.operands[product.outputs[0]].type == OperandCode.TENSOR_QUANT8_ASYMM
    assert channels or same_bits("onnxruntime", path, after)
