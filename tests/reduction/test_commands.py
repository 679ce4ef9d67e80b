"""``bisect``, ``reduce`` and ``convert`` of parts on the command line, with drivers in processes of their own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nnbridge.cli.searching import apart
from nnbridge.compare.litert import LiteRT
from nnbridge.file import load
from tests.commands import call
from tests.conftest import MODELS
from tests.tflite.files import TfliteBuilder

FLOAT32, INT8 = str(MODELS / "digits_float32.tflite"), str(MODELS / "digits_int8.tflite")
DRIVERS = "tests.reduction.drivers"


def data(*words: str) -> Any:
    return json.loads(call(*words, "--json").stdout)


@pytest.mark.parametrize(("driver", "why"), [("DIES", "a driver that is alive"), ("HANGS", "a driver that answers in time")])
def test_a_driver_that_dies_or_hangs_is_started_again_for_the_next_run(driver: str, why: str) -> None:
    pytest.importorskip("fcntl")
    found = data("bisect", FLOAT32, "--device", f"{DRIVERS}:{driver}", "--timeout", "2")
    assert [(c["type"], c["symptom"]) for c in found["culprits"]] == [("AVERAGE_POOL_2D", "falls-back")]
    assert why in found["culprits"][0]["detail"]
    assert found["found"]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("mine:DRIVER", "process:mine:DRIVER"),
        ("caching:mine:DRIVER@3", "process:caching:mine:DRIVER@3"),
        ("process:mine:DRIVER", "process:mine:DRIVER"),
        ("nnapi-sample_full@3", "nnapi-sample_full@3"),
        ("folder/npu.toml#a", "folder/npu.toml#a"),
        ("nnapi-reference", "nnapi-reference"),
    ],
)
def test_code_that_is_not_nnbridges_own_runs_apart(name: str, expected: str) -> None:
    assert apart(name) == expected


def test_bisect_without_a_fault_has_exit_status_1() -> None:
    assert call("bisect", FLOAT32, "--device", "nnapi-sample_minimal", "--predicate", "differs").exit_code == 1


def test_a_search_on_devices_needs_a_driver() -> None:
    for command in ("bisect", "reduce"):
        result = call(command, INT8, "--device", "nnapi-reference")
        assert result.exit_code == 2
        assert "at least one driver, found none" in result.stderr


def test_reduce_writes_a_case_that_vts_runs(tmp_path: Path) -> None:
    stem = str(tmp_path / "found" / "part")
    found = data("reduce", INT8, "--device", f"{DRIVERS}:STEP", "--same-process", "-o", stem)
    assert [row["operation"] for row in found["operations"]] == [2]
    assert {Path(file["file"]).name for file in found["files"]} == {
        "part.nnapi", "part.npz", "part.json.gz", "part.tflite", "part.tflite.npz",
    }  # fmt: skip
    # The CPU is right, with the case file named directly.
    assert call("vts", f"{stem}.json.gz").exit_code == 0
    faulty = ("--device", f"{DRIVERS}:STEP")
    assert call("compare", f"{stem}.tflite", "--reference", f"{stem}.tflite.npz", *faulty).exit_code == 1
    assert call("compare", f"{stem}.nnapi", "--reference", f"{stem}.npz", *faulty).exit_code == 1
    # Its inputs have the right outputs beside them, which are the reference where no other is stated.
    for suffix, values in ((".nnapi", ".npz"), (".tflite", ".tflite.npz")):
        found = data("compare", f"{stem}{suffix}", "--input", f"{stem}{values}", *faulty)
        assert (found["reference"], found["samples"], found["pass"]) == (f"{stem}{values}", 1, False)


def test_reduce_refuses_to_write_over_its_model(tmp_path: Path) -> None:
    path = tmp_path / "m.tflite"
    path.write_bytes(Path(INT8).read_bytes())
    result = call("reduce", path, "--predicate", "true", "-o", tmp_path / "m")
    assert result.exit_code == 2
    assert "a file other than the model" in result.stderr


@pytest.mark.parametrize("suffix", [".nnapi", ".json.gz", ".c", ".tflite"])
def test_a_part_is_written_as_their_suffix_says(suffix: str, tmp_path: Path) -> None:
    found = data("convert", INT8, "--operations", "2-3", "-o", str(tmp_path / f"part{suffix}"))
    assert (tmp_path / f"part{suffix}").stat().st_size
    assert found["operations"] == [2, 3]
    assert [len(found[side]) for side in ("inputs", "outputs")] == [2, 1]


def test_extracted_values_are_those_of_the_whole_run(tmp_path: Path) -> None:
    part, samples = str(tmp_path / "part.nnapi"), str(tmp_path / "part.npz")
    assert call("convert", INT8, "--operators", "2,3", "-o", part, "--samples", samples).exit_code == 0
    assert len(load(part).main.operations) == 2
    assert call("compare", part, "--reference", samples).exit_code == 0
    assert all(array.shape[0] == 1 for array in np.load(samples).values())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--operations", "9-20"), "numbers such as 3 or 12-20, from 0 to 10, found '9-20'"),
        (("--operations", "two"), "numbers such as 3 or 12-20, from 0 to 10, found 'two'"),
        (("--operators", "40"), "numbers such as 3 or 12-20, from 0 to 10, found '40'"),
        (("--operations", "2", "--operators", "2"), "--operations and --operators exclude each other."),
    ],
)
def test_operations_that_there_are_not_are_refused(words: tuple[str, ...], message: str, tmp_path: Path) -> None:
    result = call("convert", INT8, *words, "-o", tmp_path / "p.nnapi")
    assert result.exit_code == 2
    assert message in result.stderr


def test_reduce_beside_litert_ends_at_the_operator_that_nnapi_computes_otherwise(tmp_path: Path) -> None:
    pytest.importorskip("ai_edge_litert")
    file, shape, scale = TfliteBuilder(), (1, 4, 4, 8), {"scale": 0.5, "zero_point": 3}
    start, added, after = (file.tensor(shape, "int8", **scale) for _ in range(3))
    mean, out = file.tensor((1, 8), "int8", **scale), file.tensor((1, 8), "int8", scale=1 / 256, zero_point=-128)
    file.operator("ADD", [start, start], [added], {})
    file.operator("ADD", [added, start], [after], {})
    file.operator("MEAN", [after, file.constant([1, 2], "int32")], [mean], {"keep_dims": False})
    file.operator("LOGISTIC", [mean], [out], {})
    path, stem = file.write(tmp_path / "mean.tflite", [start], [out]), tmp_path / "part"
    found = data("reduce", str(path), "--reference", "litert", "--quant-steps", "0", "-o", str(stem))
    assert [row["type"] for row in found["operations"]] == ["MEAN"]
    assert {file["kind"] for file in found["files"] if file["shows"]} == {"model", "inputs", "case", "source"}
    # LiteRT's own answers are stored: NNAPI truncates means, LiteRT rounds them.
    part, arrays = LiteRT(tmp_path / "part.tflite"), np.load(tmp_path / "part.tflite.npz")
    (name,) = (name for name in arrays if name.startswith("input:"))
    (answer,) = (arrays[name][0] for name in arrays if name.startswith("output:"))
    assert np.array_equal(part.run({"input": arrays[name][0]})[0], answer)
    assert call("compare", f"{stem}.tflite", "--reference", f"{stem}.tflite.npz", "--quant-steps", "0").exit_code == 1


def test_reduce_beside_onnx_runtime_finds_what_it_computes_in_floats(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    model = str(MODELS / "digits_qdq.onnx")
    found = data(
        "reduce", model, "--reference", "onnxruntime", "--mapping", "wide", "--quant-steps", "0", "-o", str(tmp_path / "p")
    )
    assert found["shows"]["symptom"] == "differs"
    assert len(found["operations"]) == 1


def test_reduce_beside_a_runtime_compares_answers_only() -> None:
    assert "excludes --against" in call("reduce", INT8, "--reference", "litert", "--predicate", "slow").stderr
    assert "a tflite model" in call("reduce", INT8, "--reference", "onnxruntime").stderr
