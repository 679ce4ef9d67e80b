"""Routes of a file: selected, compiles, right, each by itself; what nothing here can evaluate is not known."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from nnbridge.engines import accelerator
from nnbridge.file import ModelFile
from nnbridge.report.routes import routes_table
from nnbridge.routes import FileRoute, routes
from tests.commands import call, data
from tests.conftest import MODELS
from tests.tflite.files import TfliteBuilder


def by_name(path: Path, *, engines: bool) -> dict[str, FileRoute]:
    return {route.name: route for route in routes(ModelFile(path), engines=engines)}


@pytest.fixture
def gpu() -> None:
    """Skips the test where the accelerator cannot run."""
    if (missing := accelerator.unavailable()) is not None:
        pytest.skip(str(missing))


def constant_add(folder: Path, *shape: int) -> Path:
    """ADD with a constant of its shape, which LiteRT 2.3.0's GPU computes wrongly below rank 4 (issue 8619)."""
    file = TfliteBuilder()
    value, out = file.tensor(shape), file.tensor(shape)
    constant = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    file.operator("ADD", [value, file.constant(constant, "float32")], [out], {"fused_activation_function": 0})
    return file.write(folder / "m.tflite", [value], [out])


def test_without_engines_rules_select_and_nothing_is_right() -> None:
    found = by_name(MODELS / "digits_uint8.tflite", engines=False)
    gpu = found["litert-gpu"]
    assert (gpu.selected, gpu.operators, gpu.partitions) == (10, 11, 1)
    assert gpu.obstacle.startswith("FULLY_CONNECTED: Expected Int8")
    assert all(route.right.holds is None for route in found.values())


def test_a_known_fault_is_not_known_where_no_engine_decides(tmp_path: Path) -> None:
    right = by_name(constant_add(tmp_path, 8, 16), engines=False)["litert-gpu-float32"].right
    assert right.word == "not known"
    assert "known fault: operator 0 ADD" in right.why


def test_the_engine_decides_whether_outputs_are_right(gpu: None, tmp_path: Path) -> None:
    found = by_name(constant_add(tmp_path, 8, 16), engines=True)["litert-gpu-float32"]
    assert (found.selected, found.compiles.word, found.right.word, found.right.by) == (1, "yes", "no", "engine")


def test_rank_4_is_right_in_float32_and_not_known_in_float16(gpu: None, tmp_path: Path) -> None:
    found = by_name(constant_add(tmp_path, 1, 1, 8, 16), engines=True)
    assert found["litert-gpu-float32"].right.word == "yes"
    assert found["litert-gpu"].right.word in ("yes", "not known")  # by the driver's types


def test_a_shader_that_does_not_compile_is_selected_and_does_not_compile(gpu: None, tmp_path: Path) -> None:
    # LiteRT issue 8459: DEPTH_TO_SPACE with batches.
    file = TfliteBuilder()
    value, out = file.tensor((2, 2, 2, 4)), file.tensor((2, 4, 4, 1))
    file.operator("DEPTH_TO_SPACE", [value], [out], {"block_size": 2})
    found = by_name(file.write(tmp_path / "m.tflite", [value], [out]), engines=True)["litert-gpu-float32"]
    assert (found.selected, found.compiles.word) == (1, "no")
    assert "shader" in found.compiles.why


def test_a_file_that_ends_the_engine_is_taken_by_no_rule(gpu: None, tmp_path: Path) -> None:
    file = TfliteBuilder()
    value, out = file.tensor((1, 2, 2, 4)), file.tensor((1, 2, 2, 4))
    file.operator("SPLIT", [file.constant(np.array(3, np.int32), "int32"), value], [out], {"num_splits": 1})
    found = by_name(file.write(tmp_path / "m.tflite", [value], [out]), engines=True)["litert-gpu-float32"]
    assert found.compiles.word == "no"
    assert "ended with" in found.compiles.why


def test_devices_without_arithmetic_are_never_right() -> None:
    pytest.importorskip("ai_edge_litert")
    found = by_name(MODELS / "digits_int8.tflite", engines=True)
    assert found["litert-qualcomm"].right.word == found["hexagon"].right.word == "not known"
    assert found["nnapi"].right.word == "yes"


def test_other_formats_have_the_route_of_nnapi_only() -> None:
    pytest.importorskip("onnx")
    assert list(by_name(MODELS / "digits_float32.onnx", engines=False)) == ["nnapi"]


def test_the_table_has_a_line_for_each_route() -> None:
    found = routes(ModelFile(MODELS / "digits_float32.tflite"), engines=False)
    table = routes_table(found, "digits")
    assert [row[0] for row in table.rows] == [route.name for route in found]


def test_the_command_prints_routes_and_json() -> None:
    found = data("plan", MODELS / "digits_float32.tflite", "--routes")["routes"]
    assert {"nnapi", "litert-gpu", "xnnpack", "litert-qualcomm"} <= {route["route"] for route in found}
    assert "right" in call("plan", MODELS / "digits_float32.tflite", "--routes").stdout


def test_routes_without_public_rules_have_a_row_that_says_so() -> None:
    found = by_name(MODELS / "digits_float32.tflite", engines=False)
    for name in ("litert-google-tensor", "litert-samsung"):
        route = found[name]
        assert (route.selected, route.compiles.word, route.right.word) == (None, "not known", "not known")
        assert "no public rules are known" in route.obstacle


def test_reasons_of_routes_are_whole_in_pipes() -> None:
    text = call("plan", MODELS / "digits_int8.tflite", "--routes").stdout
    assert "…" not in text.replace(", …: ", "")
    assert "some steps off in networks; the" in text
