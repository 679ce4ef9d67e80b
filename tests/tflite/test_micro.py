"""Files that TFLite does not load and TFLite Micro's compilers accept: scales along an axis that is not there, few zero points.

Judge for numbers: LiteRT, of the same file without the mistake.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nnbridge
from nnbridge.file import ModelFile
from nnbridge_tflite.edits import AXES
from tests.commands import call
from tests.remedies.files import advice, written
from tests.tflite.agreement import litert
from tests.tflite.files import TfliteBuilder

SCALES = [0.01, 0.02, 0.04]
MISTAKES: dict[str, dict[str, Any]] = {
    "an axis that a bias does not have": {"bias": {"scale": SCALES, "axis": 3}},
    "another one": {"bias": {"scale": SCALES, "axis": 1}},
    "an axis of one scale": {"x": {"scale": 1.0, "axis": 7}},
    "an axis beyond the filter's": {"y": {"scale": 2.0, "axis": 4}},
    "one zero point for all scales": {"bias": {"scale": SCALES, "axis": 0, "zero_point": [0]}},
    "one zero point for the filter": {"weights": {"scale": SCALES, "axis": 0, "zero_point": [0]}},
}


def file(folder: Path, mistake: dict[str, Any]) -> Path:
    """An int8 CONV_2D of three channels."""
    b = TfliteBuilder()
    stated: dict[str, dict[str, Any]] = {
        "x": {"scale": 1.0}, "y": {"scale": 2.0}, "weights": {"scale": SCALES, "axis": 0}, "bias": {"scale": SCALES, "axis": 0},
    } | mistake  # fmt: skip
    x, y = b.tensor((1, 4, 4, 2), "int8", name="x", **stated["x"]), b.tensor((1, 4, 4, 3), "int8", name="y", **stated["y"])
    weights = b.constant((np.arange(54).reshape(3, 3, 3, 2) % 11 - 5).astype(np.int8), **stated["weights"])
    bias = b.constant(np.int32([100, -200, 300]), **stated["bias"])
    options = {"padding": 0, "stride_w": 1, "stride_h": 1, "dilation_w_factor": 1, "dilation_h_factor": 1}
    b.operator("CONV_2D", [x, weights, bias], [y], options, 3)
    return b.write(folder / "file.tflite", [x], [y])


@pytest.mark.parametrize("mistake", MISTAKES)
@pytest.mark.parametrize("device", ["nnapi-sample_all", "xnnpack", "tflite-gpu-delegate", "hexagon"])
def test_what_tflite_does_not_load_is_the_first_line(mistake: str, device: str, tmp_path: Path) -> None:
    shown = call("plan", file(tmp_path, MISTAKES[mistake]), "--device", device)
    assert shown.exit_code == 0, shown.output
    assert shown.stdout.startswith("TFLite does not load this file: tensor "), shown.stdout


@pytest.mark.parametrize("mistake", MISTAKES)
def test_litert_does_not_load_it_either(mistake: str, tmp_path: Path) -> None:
    interpreter = pytest.importorskip("ai_edge_litert.interpreter")
    with pytest.raises(ValueError, match=r"quantized_dimension|zero_point|quantization"):
        interpreter.Interpreter(str(file(tmp_path, MISTAKES[mistake]))).allocate_tensors()


@pytest.mark.parametrize("mistake", MISTAKES)
@pytest.mark.parametrize("device", ["ethos-u55-128", "ethos-u85-256"])
def test_a_compiler_for_tflite_micro_accepts_it_and_the_numbers_are_those_of_the_right_file(
    mistake: str, device: str, tmp_path: Path
) -> None:
    path = file(tmp_path, MISTAKES[mistake])
    shown = call("plan", path, "--device", device)
    assert shown.stdout.startswith(f"The operator runs on {device}"), shown.stdout
    assert shown.stderr.startswith("TFLite does not load this file")
    assert "runs on TFLite Micro" in shown.stderr
    values = {"x": np.arange(-16, 16, dtype=np.int8).reshape(1, 4, 4, 2)}
    found = nnbridge.run(path, values, device=device)["y"]
    (expected,) = litert(file(tmp_path, {}), list(values.values()))
    np.testing.assert_array_equal(found, expected)


def test_the_wide_mapping_computes_it_and_warns(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = file(tmp_path, MISTAKES["an axis that a bias does not have"])
    assert nnbridge.plan(path, mapping="wide").summary.operators == 1
    assert "TFLite does not load" in caplog.text
    assert "a quantized_dimension from 0 to 0, found 3" in caplog.text


def test_a_published_file_is_planned_as_vela_compiles_it(real_models: Path) -> None:
    # Vela's debug database has all of its operators: tests/estimate/test_estimates.py.
    path = real_models / "person_detect.tflite"
    assert call("plan", path, "--device", "ethos-u55-128").stdout.startswith("All 31 operators run on ethos-u55-128")
    assert "TFLite does not load this file: tensor 33 " in call("plan", path, "--device", "nnapi-sample_all").stdout


@pytest.mark.parametrize("mistake", MISTAKES)
def test_the_file_with_a_dimension_that_is_there_is_advised_and_loads(mistake: str, tmp_path: Path) -> None:
    path = file(tmp_path, MISTAKES[mistake])
    found = advice(path, "nnapi-sample_all")[0]
    assert (found.kind, found.text) == ("rewrite", f"whole file: {AXES}")
    assert found.after.standing < found.before.standing
    after = written(found, tmp_path, ".tflite")
    (expected,) = litert(file(tmp_path, {}), values := [np.arange(-16, 16, dtype=np.int8).reshape(1, 4, 4, 2)])
    np.testing.assert_array_equal(litert(after, values)[0], expected)


def test_a_file_that_loads_is_not_amended(tmp_path: Path) -> None:
    assert AXES not in {one.text for one in ModelFile(file(tmp_path, {})).edits}
