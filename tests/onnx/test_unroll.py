"""Loops whose length is known are written out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nnbridge.compare import compare, seeded_samples
from nnbridge.compare.onnx_runtime import OnnxRuntime
from nnbridge.converters import ConversionOptions
from nnbridge.file import ModelFile
from nnbridge.runtime.compilation import Compilation

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
helper = onnx.helper
make, info = helper.make_node, helper.make_tensor_value_info
FLOAT, INT64, BOOL = onnx.TensorProto.FLOAT, onnx.TensorProto.INT64, onnx.TensorProto.BOOL


def saved(
    folder: Path, node: Any, steps: int | None, constants: dict[str, np.ndarray], outputs: dict[str, list[int | None]]
) -> Path:
    """A file with one loop that reads x [steps, 2] and h [2]."""
    graph = helper.make_graph(
        [node],
        "graph",
        [info("x", FLOAT, [steps, 2]), info("h", FLOAT, [2])],
        [info(name, FLOAT, dims) for name, dims in outputs.items()],
        [onnx.numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    path = folder / "model.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), str(path))
    return path


def running_sum(folder: Path, steps: int | None = 4, **attributes: Any) -> Path:
    """A Scan: each state is half the last one and a row, and every state is kept."""
    body = helper.make_graph(
        [make("Mul", ["s", "half"], ["m"]), make("Add", ["m", "r"], ["n"]), make("Identity", ["n"], ["k"])],
        "body",
        [info("s", FLOAT, [2]), info("r", FLOAT, [2])],
        [info("n", FLOAT, [2]), info("k", FLOAT, [2])],
        [onnx.numpy_helper.from_array(np.array(0.5, np.float32), "half")],
    )
    node = make("Scan", ["h", "x"], ["y", "all"], num_scan_inputs=1, body=body, **attributes)
    return saved(folder, node, steps, {}, {"y": [2], "all": [None, None]})


def counting(folder: Path, trips: int, condition: str = "c") -> Path:
    """A Loop: the state and its number are added, and each sum is kept."""
    body = helper.make_graph(
        [
            make("Cast", ["i"], ["f"], to=FLOAT),
            make("Add", ["s", "f"], ["n"]),
            make("Add", ["n", "h"], ["k"]),
            make("Identity" if condition == "c" else "Not", ["c"], ["d"]),
        ],
        "body",
        [info("i", INT64, []), info("c", BOOL, []), info("s", FLOAT, [2])],
        [info("d", BOOL, []), info("n", FLOAT, [2]), info("k", FLOAT, [2])],
    )
    node = make("Loop", ["t", "", "h"], ["y", "all"], body=body)
    return saved(folder, node, 4, {"t": np.array(trips)}, {"y": [2], "all": [None, None]})


def kinds_that_agree(path: Path) -> set[str]:
    """The places of the nodes of a conversion that agrees with ONNX Runtime."""
    model, mapped = ModelFile(path, ConversionOptions()).converted
    compilation = Compilation.create(model, [])
    compilation.finish()
    assert compare(compilation, "onnxruntime", seeded_samples(model, OnnxRuntime(path), [0, 1])).passed
    assert {"Loop", "Scan"}.isdisjoint(m.operator for m in mapped if m.mapping == "wide")
    return {m.mapping for m in mapped} - {"folded", "dead"}


@pytest.mark.parametrize(
    "attributes", [{}, {"scan_input_directions": [1]}, {"scan_output_directions": [1]}, {"scan_output_axes": [1]}]
)
def test_a_scan_of_known_length_is_nnapis(attributes: dict[str, Any], tmp_path: Path) -> None:
    assert kinds_that_agree(running_sum(tmp_path, **attributes)) == {"wide"}


def test_a_loop_of_known_length_is_nnapis(tmp_path: Path) -> None:
    assert kinds_that_agree(counting(tmp_path, 3)) == {"wide"}


def test_a_loop_that_its_condition_may_end_is_not_written_out(tmp_path: Path) -> None:
    _, mapped = ModelFile(counting(tmp_path, 3, condition="not"), ConversionOptions()).converted
    assert [m.operator for m in mapped] == ["Loop"]


def test_a_long_loop_is_not_written_out(tmp_path: Path) -> None:
    _, mapped = ModelFile(counting(tmp_path, 10_000), ConversionOptions()).converted
    assert [m.operator for m in mapped] == ["Loop"]


def test_a_scan_of_unknown_length_is_the_hosts(tmp_path: Path) -> None:
    assert ModelFile(running_sum(tmp_path, None), ConversionOptions()).converted[1][0].mapping == "host"


def test_the_provider_leaves_loops_to_onnx_runtime(tmp_path: Path) -> None:
    _, mapped = ModelFile(running_sum(tmp_path), ConversionOptions(mapping="provider")).converted
    assert [(m.operator, m.mapping) for m in mapped] == [("Scan", "host")]
