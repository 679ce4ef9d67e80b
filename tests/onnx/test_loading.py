"""ONNX Runtime asked whether it loads a file: a line says so where nnbridge's rules differ."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nnbridge
from nnbridge.engines.loading import LoadingQuestion
from tests.commands import call

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")

make, info = onnx.helper.make_node, onnx.helper.make_tensor_value_info
FLOAT, INT32, BFLOAT16 = (getattr(onnx.TensorProto, name) for name in ("FLOAT", "INT32", "BFLOAT16"))
IMAGE = [1, 4, 8, 8]
KERNEL = np.ones((4, 4, 3, 3), np.float32)


def written(
    folder: Path, nodes: list[Any], constants: dict[str, Any] | None = None, types: tuple[int, int] = (FLOAT, FLOAT)
) -> Path:
    tensors = [onnx.numpy_helper.from_array(np.asarray(array), name) for name, array in (constants or {}).items()]
    graph = onnx.helper.make_graph(nodes, "graph", [info("x", types[0], IMAGE)], [info("y", types[1], None)], tensors)
    path = folder / "m.onnx"
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    path.write_bytes(model.SerializeToString())
    return path


REFUSED: dict[str, tuple[list[Any], dict[str, Any], tuple[int, int], str]] = {
    "two nodes of one name": (
        [make("Relu", ["x"], ["r"], name="a"), make("Abs", ["r"], ["y"], name="a")],
        {},
        (FLOAT, FLOAT),
        "two nodes with same node name (a)",
    ),
    "paddings stated twice": (
        [make("Conv", ["x", "w"], ["y"], auto_pad="SAME_UPPER", pads=[1, 1, 1, 1])],
        {"w": KERNEL},
        (FLOAT, FLOAT),
        "both 'auto_pad' and 'pads' attributes",
    ),
    "operands of two types": (
        [make("Add", ["x", "c"], ["y"])],
        {"c": np.ones(1)},
        (FLOAT, FLOAT),
        "bound to different types (tensor(float) and tensor(double)",
    ),
    "a type that the operator lacks": ([make("Sin", ["x"], ["y"])], {}, (BFLOAT16, BFLOAT16), "Type 'tensor(bfloat16)' of input"),
    "another type declared than computed": ([make("Relu", ["x"], ["y"])], {}, (FLOAT, INT32), "does not match expected type"),
    "matrices that do not fit": (
        [make("MatMul", ["x", "c"], ["y"])],
        {"c": KERNEL[0]},
        (FLOAT, FLOAT),
        "Incompatible dimensions",
    ),
    "scales of another number than channels": (
        [make("BatchNormalization", ["x", "s", "s", "s", "s"], ["y"])],
        {"s": np.ones(3, np.float32)},
        (FLOAT, FLOAT),
        "Dimension mismatch in unification between 3 and 4",
    ),
    "one axis twice": ([make("Transpose", ["x"], ["y"], perm=[0, 0, 1, 2])], {}, (FLOAT, FLOAT), "repeated value: 0"),
    "an axis beyond the last": ([make("Softmax", ["x"], ["y"], axis=9)], {}, (FLOAT, FLOAT), "must be in [-4 , 3]"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_file_that_onnx_runtime_refuses_is_not_promised_to_it(name: str, tmp_path: Path) -> None:
    nodes, constants, types, words = REFUSED[name]
    path = written(tmp_path, nodes, constants, types)
    assert words in LoadingQuestion(path, "onnx").refusal()
    found = call("plan", str(path))
    asked = "By nnbridge's rules ONNX Runtime loads this file; ONNX Runtime " in found.stderr
    assert asked or found.stdout.startswith("ONNX Runtime does not load this file")


def test_both_agree_on_a_layout_and_a_domain_that_onnx_runtime_lacks(tmp_path: Path) -> None:
    for node in (
        make("MaxPool", ["x"], ["y"], kernel_shape=[1, 1], pads=[1] * 4, ceil_mode=1),
        make("Own", ["x"], ["y"], domain="my.dom"),
    ):
        path = written(tmp_path, [node])
        if node.domain:
            model = onnx.load(str(path))
            model.opset_import.append(onnx.helper.make_opsetid("my.dom", 1))
            onnx.save(model, str(path))
        planned = nnbridge.plan(path)
        assert planned.loads is False
        assert LoadingQuestion(path, "onnx").refusal()
        assert LoadingQuestion(path, "onnx").disagreement(planned.loads) == ""


@pytest.mark.parametrize("door", ["plan", "run --seed 0", "inspect", "compare --reference onnxruntime"])
def test_each_door_says_where_the_two_differ(door: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LoadingQuestion, "refusal", lambda question: "it has other rules")
    command, *options = door.split()
    shown = call(command, str(written(tmp_path, [make("Relu", ["x"], ["y"])])), *options).stderr
    assert "By nnbridge's rules ONNX Runtime loads this file; ONNX Runtime " in shown
    assert shown.count("which was asked, does not: it has other rules") == 1


@pytest.mark.parametrize("door", ["plan", "run --seed 0", "inspect", "plan --mapping wide"])
def test_no_door_speaks_where_the_two_agree(door: str, tmp_path: Path) -> None:
    command, *options = door.split()
    path = written(tmp_path, [make("Relu", ["x"], ["y"])])
    assert "which was asked" not in call(command, str(path), *options).stderr
    assert nnbridge.inspect(path).loads is True


def test_the_wide_mapping_promises_no_runtime_and_asks_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LoadingQuestion, "refusal", lambda question: "it has other rules")
    path = written(tmp_path, [make("Relu", ["x"], ["y"])])
    assert "which was asked" not in call("plan", str(path), "--mapping", "wide").stderr


def test_python_says_it_in_notes_and_warnings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(LoadingQuestion, "refusal", lambda question: "it has other rules")
    path = written(tmp_path, [make("Relu", ["x"], ["y"])])
    assert any("which was asked, does not" in note for note in nnbridge.plan(path).notes)
    nnbridge.run(path, seed=0)
    nnbridge.inspect(path)
    assert caplog.text.count("which was asked, does not: it has other rules") == 2


@pytest.mark.parametrize("door", ["bench", "bisect --device nnapi-sample_all", "reduce --device nnapi-sample_all"])
def test_benchmarks_and_searches_run_no_file_that_the_installed_runtime_does_not_load(
    door: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LoadingQuestion, "refusal", lambda question: "it has other rules")
    command, *options = door.split()
    found = call(command, str(written(tmp_path, [make("Relu", ["x"], ["y"])])), *options)
    assert found.exit_code != 0
    assert "a file that ONNX Runtime loads, found it has other rules" in found.stderr
