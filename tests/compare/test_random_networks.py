"""Faults planted in random networks of both formats are named; `scripts/nets/plant_faults.py` does it for 200."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from nnbridge.compare import Tolerance, compare, seeded_samples
from nnbridge.compare.layers import compare_layers
from nnbridge.compare.references import reference
from nnbridge.compare.tensors import tensors_of
from nnbridge.file import load
from nnbridge.runtime.compilation import Compilation
from tests.compare.faults import FAULTS, FaultyDriver, applies
from tests.compare.random_networks import onnx_network, tflite_network


def network(kind: str, folder: Path, seed: int) -> Path:
    if kind == "onnx":
        return onnx_network(folder / "m.onnx", seed)
    return tflite_network(folder / "m.tflite", seed, quantised=kind == "int8")


@pytest.mark.parametrize("kind", ["float", "int8", "onnx"])
def test_the_operation_with_a_fault_is_named(kind: str, tmp_path: Path) -> None:
    path = network(kind, tmp_path, seed=5)
    model, name = load(path), "onnxruntime" if kind == "onnx" else "litert"
    rng = np.random.default_rng(0)
    targets = [(o, fault) for o in model.main.operations for fault in FAULTS if applies(fault, model, o)]
    for k in rng.permutation(len(targets))[:3]:
        target, fault = targets[int(k)]
        runtime = reference(name, path, preserve=True)
        compilation = Compilation.create(model, [FaultyDriver(target.name, fault)])
        compilation.finish()
        samples = seeded_samples(model, runtime, [0])
        found = compare_layers(compilation, name, samples, tensors_of(runtime), Tolerance(steps=0), explained=False)
        own = next(layer.own for layer in found.layers if layer.position == ("", target.outputs[0]))
        if own is not None and own.beyond:
            assert found.origin is not None
            assert found.origin.position == ("", target.outputs[0])


@pytest.mark.parametrize("kind", ["float", "int8", "onnx"])
def test_results_are_tables_in_notebooks_and_data_frames(kind: str, tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    path = network(kind, tmp_path, seed=1)
    model, name = load(path), "onnxruntime" if kind == "onnx" else "litert"
    compilation = Compilation.create(model, [])
    compilation.finish()
    runtime = reference(name, path, preserve=True)
    outputs = compare(compilation, name, seeded_samples(model, runtime, [0]))
    layers = compare_layers(compilation, name, seeded_samples(model, runtime, [0]), tensors_of(runtime))
    for result in (outputs, layers):
        assert isinstance(result.to_pandas(), pandas.DataFrame)
        assert result._repr_html_().startswith("<p>")
        assert len(result.to_pandas()) == len(result.records()) > 0
