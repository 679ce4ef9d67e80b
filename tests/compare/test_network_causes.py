"""Causes that a network has as a whole: rounding that it amplifies, and a reference that differs from itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nnbridge.compare import Comparison, compare, input_samples
from nnbridge.compare.arithmetics import Runner
from nnbridge.compare.explanation import AMPLIFIED, FUSIONS, with_causes
from nnbridge.compare.references import reference
from nnbridge.converters import ConversionOptions
from nnbridge.devices.device import Device
from nnbridge.file import load
from nnbridge.operations.numerics import DISTURBED, EXACT
from nnbridge.runtime.compilation import Compilation
from tests.compare.faults import FaultyDriver
from tests.conftest import shared_folder
from tests.tflite.files import TfliteBuilder

NONE = {"fused_activation_function": 0}


def amplifying(folder: Path) -> tuple[Path, dict[str, Any]]:
    """Three products of 512 columns, and a sum in which most of their digits are lost."""
    rng, file = np.random.default_rng(1), TfliteBuilder()
    x = last = file.tensor([1, 512], name="x")

    def add(kind: str, *others: Any, **options: Any) -> int:
        out = file.tensor([1, 512])
        file.operator(kind, [last, *map(file.constant, others)], [out], NONE | options)
        return out

    for _ in range(3):
        weights = rng.standard_normal((512, 512)).astype(np.float32)
        last = add("FULLY_CONNECTED", weights, np.zeros(512, np.float32), weights_format=0)
        last = add("MUL", np.float32([1 / 22.6]))
    for kind, number in (("ADD", 3000.0), ("SUB", 3000.0), ("MUL", 10.0)):
        last = add(kind, np.float32([number]))
    return file.write(folder / "amplifies.tflite", [x], [last]), {"x": rng.standard_normal((1, 512)).astype(np.float32)}


def explained(
    path: Path, inputs: dict[str, Any], judge: str, devices: list[Device], options: ConversionOptions | None = None
) -> Comparison:
    compilation = Compilation.create(load(path, options or ConversionOptions()), devices)
    compilation.finish()
    samples = list(input_samples(compilation.model, reference(judge, path), [("", inputs)]))
    return with_causes(compare(compilation, judge, samples), compilation, path, samples)


def test_amplified_rounding_is_named_beside_the_verdict(tmp_path: Path) -> None:
    pytest.importorskip("ai_edge_litert")
    found = explained(*amplifying(tmp_path), "litert", [])
    assert not found.passed
    assert AMPLIFIED in {cause.kind for cause in found.causes}


def test_a_wrong_operator_is_no_amplified_rounding(tmp_path: Path) -> None:
    pytest.importorskip("ai_edge_litert")
    path, inputs = amplifying(tmp_path)
    target = next(o.name for o in load(path).main.operations if "FULLY_CONNECTED" in o.name)
    found = explained(path, inputs, "litert", [FaultyDriver(target, "float16")])
    assert not found.passed
    assert AMPLIFIED not in {cause.kind for cause in found.causes}


def test_a_reference_that_differs_from_itself_by_its_fusions_is_named(tmp_path: Path) -> None:
    """A published classifier of angles, quantised by ONNX Runtime's tool: 0.016 of 1 between its levels of optimisation."""
    pytest.importorskip("onnxruntime")
    published = shared_folder() / "models" / "street" / "ppocr_cls.onnx"
    if not published.exists():
        pytest.skip("published models are not here")
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, quantize_static

    rng = np.random.default_rng(0)
    drawn = [{"x": rng.standard_normal((1, 3, 48, 192)).astype(np.float32)} for _ in range(3)]

    class Reader(CalibrationDataReader):  # type: ignore[misc]  # of any type
        def get_next(self) -> Any:
            return drawn.pop() if drawn else None

    path = tmp_path / "quantised.onnx"
    quantize_static(published, path, Reader(), quant_format=QuantFormat.QDQ)
    inputs = {"x": np.random.default_rng(0).standard_normal((1, 3, 48, 192)).astype(np.float32)}
    options = ConversionOptions(mapping="provider", shapes={"x": (1, 3, 48, 192)})
    found = explained(path, inputs, "onnxruntime", [], options)
    assert not found.passed
    assert {cause.kind for cause in found.causes} == {FUSIONS}


def hosted(path: Path, operator: str) -> Path:
    """A function of a table's row, which a whole number chooses."""
    onnx = pytest.importorskip("onnx")
    helper, table = onnx.helper, np.float32([[1.1, 1.7, 2.4]])
    nodes = [helper.make_node("Gather", ["table", "row"], ["x"]), helper.make_node(operator, ["x"], ["y"])]
    ends = (("row", onnx.TensorProto.INT64, ["n"]), ("y", onnx.TensorProto.FLOAT, ["n", 3]))
    row, y = (helper.make_tensor_value_info(*end) for end in ends)
    graph = helper.make_graph(nodes, "g", [row], [y], [onnx.numpy_helper.from_array(table, "table")])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), path)
    return path


@pytest.mark.parametrize("operator", ["Tanh", "Sigmoid", "Sqrt", "Erf", "Softplus", "Acosh"])
def test_results_are_moved_in_their_last_place_wherever_they_are_computed(operator: str, tmp_path: Path) -> None:
    """Tanh, Sigmoid and Sqrt are the device's, the others the host's."""
    path = hosted(tmp_path / "m.onnx", operator)
    model, inputs = load(path, ConversionOptions(mapping="wide")), {"row": np.int64([0])}
    moved, exact = (Runner(model, numerics, host=True).run(inputs)["y"] for numerics in (DISTURBED, EXACT))
    assert np.abs(moved - exact).max() > 0
    np.testing.assert_allclose(moved, exact, rtol=1e-5)
