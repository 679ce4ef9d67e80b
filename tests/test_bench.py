"""``nnbridge bench``: runtimes in turn, operations, first answers, a trace."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nnbridge import load
from nnbridge.bench.contenders import Run
from nnbridge.bench.first import answered, peak_memory
from nnbridge.bench.measure import Bench, Latency, alternating, measure
from nnbridge.bench.profiling import OperationTime, profile
from nnbridge.compare import seeded_inputs
from nnbridge.cpu import compiled
from nnbridge.devices import device
from nnbridge.report.bench import bench_events, bench_tables, by_operation
from nnbridge.runtime.compilation import Compilation
from tests.commands import call
from tests.conftest import MODELS

FIRST = {"nnbridge": {"total": 100.0, "import": 40.0, "load": 20.0, "prepare": 20.0, "run": 10.0}}
FOUND = Bench(
    [Latency("nnbridge compiled", 1, 0.5, 1.0, 2.0, 9), Latency("LiteRT XNNPACK", 1, 1.0, 2.0, 3.0, 9)],
    {"LiteRT plain": "no such operator"},
    [
        OperationTime.of(0, "CONV_2D", "compiled", [30.0, 40.0, 50.0], 0),
        OperationTime.of(1, "ADD", "reference", [10.0], 0),
    ],
    FIRST,
)


def ran(*arguments: str) -> Any:
    """A command's JSON."""
    result = call("bench", *arguments, "--rounds", "3", "--no-first", "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_contenders_take_turns() -> None:
    order: list[str] = []

    def contender(name: str) -> Run:
        def run() -> None:
            order.append(name)
            time.sleep(0.004)

        return run

    times = alternating({"a": contender("a"), "b": contender("b")}, 8, 1.0)
    assert {name: len(found) for name, found in times.items()} == {"a": 8, "b": 8}
    # Each once before all, then in each round once unmeasured and once measured, in an order that changes.
    rounds = ["".join(order[k : k + 4]) for k in range(2, len(order), 4)]
    assert set(rounds) == {"aabb", "bbaa"}


def test_no_round_begins_once_the_time_is_over() -> None:
    assert len(alternating({"a": lambda: None}, 1000, 0.0)["a"]) == 3


def test_a_file_is_measured_beside_its_own_runtime() -> None:
    pytest.importorskip("ai_edge_litert")
    found = ran(str(MODELS / "digits_int8.tflite"), "--threads", "2")
    measured = {(entry["contender"], entry["threads"]) for entry in found["latencies"]}
    peers = {"LiteRT XNNPACK", "LiteRT plain", "LiteRT reference"}
    assert {(name, threads) for name in (*peers, "nnbridge reference") for threads in (1, 2)} <= measured
    assert all(0 < entry["least"] <= entry["median"] <= entry["p95"] for entry in found["latencies"])


def test_an_onnx_file_is_measured_beside_onnx_runtime() -> None:
    pytest.importorskip("onnxruntime")
    found = ran(str(MODELS / "digits_float32.onnx"), "--kernels", "reference")
    assert [entry["contender"] for entry in found["latencies"]] == ["nnbridge reference", "ONNX Runtime"]


def test_a_saved_model_is_measured_alone(tmp_path: Path) -> None:
    from nnbridge.storage import save

    save(load(MODELS / "digits_int8.tflite"), path := tmp_path / "model.nnapi")
    assert [entry["contender"] for entry in ran(str(path), "--kernels", "reference")["latencies"]] == ["nnbridge reference"]


def compiled_for(*devices: str) -> Compilation:
    """digits_int8, finished."""
    compilation = Compilation.create(load(MODELS / "digits_int8.tflite"), [device(name) for name in devices])
    compilation.finish()
    return compilation


@pytest.mark.parametrize("devices", [(), ("nnapi-sample_minimal",)])
def test_the_profile_has_every_operation_on_every_step(devices: tuple[str, ...]) -> None:
    compilation = compiled_for(*devices)
    model, plan = compilation.model, compilation.plan
    found = profile(compilation, seeded_inputs(model, 0), runs=3)
    assert {entry.step for entry in found} == set(range(len(plan.steps)))
    for entry in found:
        # A view is no step of its own, nor is what is part of another step.
        assert entry.index == -1 or entry.index in plan.steps[entry.step].operations
        assert 0 < entry.microseconds <= entry.median <= entry.p90
        assert entry.runs == 3
    assert "CONV_2D" in {entry.name for entry in found}


def test_a_driver_of_functions_has_one_time_for_each_of_its_steps() -> None:
    compilation = compiled_for("tests.reduction.drivers:STEP")
    found = profile(compilation, seeded_inputs(compilation.model, 0), runs=2)
    steps = [step.number for step in compilation.plan.steps if compilation.plan.devices[step.device].kind == "device"]
    assert [entry.step for entry in found if entry.index == -1 and entry.name.startswith("step ")] == steps


def test_an_operations_time_is_the_least_the_median_and_the_slowest_tenths_begin() -> None:
    entry = OperationTime.of(0, "ADD", "compiled", [float(us) for us in range(10, -1, -1)], 0)
    assert (entry.microseconds, entry.median, entry.p90, entry.runs) == (0.0, 5.0, 9.0, 11)


def test_run_profiles_operations_into_json_and_trace(tmp_path: Path) -> None:
    arguments = [str(MODELS / "digits_int8.tflite"), "--seed", "0", "--repeat", "3", "--profile"]
    result = call("run", *arguments, "--trace", tmp_path / "trace.json", "--json")
    assert result.exit_code == 0, result.output
    times = json.loads(result.stdout)["profile"]
    assert {entry["runs"] for entry in times} == {3}
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    alone = [event["args"]["median µs"] for event in events if event["pid"] == 2 and event["ph"] == "X"]
    assert alone == [round(entry["median"], 3) for entry in times]


def test_without_a_compiler_the_compiled_tier_is_missing_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "unavailable", lambda: "no llvmlite here")
    path = MODELS / "digits_int8.tflite"
    model = load(path)
    found = measure(path, model, seeded_inputs(model, 0), [1], rounds=3, seconds=0.0)
    assert found.missing["nnbridge compiled"] == "no llvmlite here"
    assert found.time("nnbridge reference", 1) is not None


def test_tables_state_ratios_and_what_is_missing() -> None:
    judgement, table, missing, first, operations = bench_tables("title", FOUND)
    assert judgement == "nnbridge compiled takes 0.50 of the time of LiteRT XNNPACK (median, 1 thread)."
    assert [row[-1] for row in table.rows] == ["0.50", "1.00"]
    assert missing == "LiteRT plain does not run it: no such operator"
    assert first.rows[0][:6] == ("nnbridge", "100", "40", "20", "20", "10")
    assert [row[-1] for row in operations.rows] == ["75.0%", "25.0%"]


def test_operations_of_one_name_are_added_up() -> None:
    times = [OperationTime.of(k, "ADD", "compiled", [2.0], 0) for k in range(3)]
    times.append(OperationTime.of(3, "CONV_2D", "compiled", [7.0], 0))
    assert by_operation(times) == [("CONV_2D", "compiled", 1, 7.0), ("ADD", "compiled", 3, 6.0)]


def test_the_trace_has_complete_events_one_behind_another() -> None:
    events = bench_events("title", FOUND)
    assert {event["ph"] for event in events} == {"M", "X"}
    operations = [event for event in events if event["ph"] == "X" and event["pid"] == 1]
    assert [(event["name"], event["ts"], event["dur"]) for event in operations] == [("CONV_2D", 0.0, 30.0), ("ADD", 30.0, 10.0)]
    first = [(event["name"], event["ts"], event["dur"]) for event in events if event["ph"] == "X" and event["pid"] == 2]
    assert first[:2] == [("start of the process", 0.0, 10_000.0), ("import", 10_000.0, 40_000.0)]


def test_the_trace_is_written(tmp_path: Path) -> None:
    trace = tmp_path / "trace.json"
    ran(str(MODELS / "digits_int8.tflite"), "--trace", str(trace))
    assert json.loads(trace.read_text())["traceEvents"]


def test_a_trace_is_not_written_over_the_model() -> None:
    path = str(MODELS / "digits_int8.tflite")
    result = call("bench", path, "--trace", path)
    assert result.exit_code == 2
    assert "a file other than the model" in result.stderr


def test_the_first_answer_has_its_parts() -> None:
    found = answered("nnbridge", MODELS / "digits_int8.tflite")
    assert all(found[part] >= 0 for part in ("import", "load", "prepare", "run"))
    if (memory := peak_memory()) is not None:
        assert found["imports_bytes"] <= found["peak_bytes"] <= memory


def looked_up(folder: Path) -> Path:
    """Rows of a table by indexes, which are an output as well, of an open shape."""
    onnx = pytest.importorskip("onnx")
    helper, types = onnx.helper, onnx.TensorProto
    nodes = [helper.make_node("Identity", ["ids"], ["same"]), helper.make_node("Gather", ["table", "ids"], ["y"])]
    outputs = [helper.make_tensor_value_info(name, type, None) for name, type in (("same", types.INT64), ("y", types.FLOAT))]
    ids = helper.make_tensor_value_info("ids", types.INT64, ["b", "s"])
    table = onnx.numpy_helper.from_array(np.ones((2, 4), np.float32), "table")
    path = folder / "looked_up.onnx"
    graph = helper.make_graph(nodes, "g", [ids], outputs, [table])
    path.write_bytes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8).SerializeToString())
    return path


def test_outputs_of_open_size_are_measured_with_indexes_that_a_table_has(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    found = ran(str(looked_up(tmp_path)), "--shape", "ids=1,32")
    assert {one["contender"] for one in found["latencies"]} >= {"nnbridge reference", "ONNX Runtime"}


def test_inputs_are_files(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    np.save(tmp_path / "ids.npy", np.zeros((1, 32), np.int64))
    found = ran(str(looked_up(tmp_path)), "--shape", "ids=1,32", "--input", f"ids={tmp_path / 'ids.npy'}")
    assert "ONNX Runtime" in {one["contender"] for one in found["latencies"]}
