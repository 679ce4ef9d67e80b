"""Files with something to remedy, and devices to ask about them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nnbridge import load
from nnbridge.advice import Advice, advise
from nnbridge.compare import seeded_inputs
from nnbridge.compare.references import reference
from nnbridge.converters import ConversionOptions
from nnbridge.file import ModelFile
from nnbridge.target import Target
from tests.tflite.files import TfliteBuilder

PHONE = ConversionOptions(mapping="phone")


NPU = """
[[device]]
name = "npu"
feature_level = 8
[device.performance]
other = [0.1, 0.1]
[device.operations]
{operations}
"""


def npu(folder: Path, *operations: str) -> str:
    """A device that accepts the named operations."""
    path = folder / "npu.toml"
    path.write_text(NPU.format(operations="\n".join(f"{name} = {{}}" for name in operations)), encoding="utf-8")
    return str(path)


def advice(path: Path, device: str, **options: Any) -> tuple[Advice, ...]:
    """The changes that ``plan --advice`` lists, without NNAPI's CPU."""
    file = ModelFile(path, ConversionOptions(mapping="phone", **options))
    return advise(file, Target.of(device, fallback="app" if path.suffix == ".tflite" else None)).advice


def same_bits(runtime: str, before: Path, after: Path, seeds: int = 5) -> bool:
    """Both files have equal outputs in their own runtime."""
    model, files = load(before), [reference(runtime, one) for one in (before, after)]
    runs = [[[array.tobytes() for array in file.run(seeded_inputs(model, seed))] for file in files] for seed in range(seeds)]
    return all(one == other for one, other in runs)


def written(found: Advice, folder: Path, suffix: str) -> Path:
    """The file that ``rewrite`` writes."""
    assert found.edit is not None
    path = folder / f"after{suffix}"
    found.edit.content().write(path)
    return path


def splits(folder: Path) -> Path:
    """Two SPLITs with an ADD between, so that each device step is cut twice."""
    file = TfliteBuilder()
    x, halves, sums = file.tensor((2, 4)), [file.tensor((2, 2)) for _ in range(2)], file.tensor((2, 2))
    file.operator("SPLIT", [file.constant(1, "int32"), x], halves, {"num_splits": 2})
    file.operator("ADD", halves, [sums], {"fused_activation_function": 0})
    parts = [file.tensor((2, 1)) for _ in range(2)]
    file.operator("SPLIT", [file.constant(1, "int32"), sums], parts, {"num_splits": 2})
    return file.write(folder / "splits.tflite", [x], parts)


MASKS = dict.fromkeys(("begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask", "shrink_axis_mask"), 0)


RELU = {"fused_activation_function": 0}


Nodes = list[tuple[Any, ...]]


def onnx_file(path: Path, nodes: Nodes, x: list[Any], y: list[Any], constants: Mapping[str, Any], opset: int = 17) -> Path:
    """A file of nodes, (type, inputs, outputs, attributes); attributes may be left out."""
    onnx = pytest.importorskip("onnx")
    made = [onnx.helper.make_node(one[0], one[1], one[2], **(one[3] if len(one) > 3 else {})) for one in nodes]
    ends = [onnx.helper.make_tensor_value_info(name, 1, dims) for name, dims in (("x", x), ("y", y))]
    stored = [onnx.numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()]
    graph = onnx.helper.make_graph(made, "g", ends[:1], ends[1:], stored)
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", opset)], ir_version=8), str(path))
    return path


def flattened() -> tuple[Nodes, dict[str, Any]]:
    """``x.view(x.size(0), -1)`` as PyTorch exports it."""
    nodes: Nodes = [
        ("Shape", ["x"], ["s"]),
        ("Gather", ["s", "zero"], ["n"], {"axis": 0}),
        ("Unsqueeze", ["n", "axes"], ["n1"]),
        ("Concat", ["n1", "rest"], ["dims"], {"axis": 0}),
        ("Reshape", ["x", "dims"], ["y"]),
    ]
    return nodes, {"zero": np.int64(0), "axes": np.int64([0]), "rest": np.int64([-1])}


def products(path: Path, x: list[int], *weights: tuple[int, ...]) -> Path:
    """MatMuls by matrices of weights, one after the other, with a Relu after each."""
    random, nodes, name, stored = np.random.default_rng(0), Nodes(), "x", {}
    for k, sides in enumerate(weights):
        stored[f"w{k}"] = random.standard_normal(sides).astype(np.float32)
        last = "y" if k == len(weights) - 1 else f"r{k}"
        nodes += [("MatMul", [name, f"w{k}"], [f"m{k}"]), ("Relu", [f"m{k}"], [last])]
        name = last
    return onnx_file(path, nodes, x, [None] * max(len(x), *map(len, weights)), stored)
