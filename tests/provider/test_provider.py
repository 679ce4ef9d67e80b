"""The provider in stock ONNX Runtime: nodes, partitions and outputs are those of the file importer's mapping."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nnbridge import Compilation, Execution, provider
from nnbridge.converters import ConversionOptions
from nnbridge.file import ModelFile
from tests.conftest import MODELS, REPOSITORY
from tests.provider.sessions import DEVICE, alone, chain, claimed, model, needs, node, session

needs()

X = np.array([[-1, 0, 2], [3, -4, 5]], np.float32)
EIGHT = {"s": np.float32(0.5), "z": np.uint8(10), "t": np.float32(0.25), "u": np.uint8(0)}


def run(data: Any, feeds: dict[str, Any] | None = None, **settings: Any) -> list[Any]:
    found: list[Any] = session(data, **settings).run(None, feeds or {"x": X})
    return found


@pytest.mark.parametrize("device", ["nnapi-reference", "nnapi-sample_float_fast", DEVICE])
def test_a_files_answers_are_nnbridges_own_bit_for_bit(device: str) -> None:
    path = MODELS / "digits_float32.onnx"
    image = np.random.default_rng(0).random((1, 1, 8, 8), np.float32)
    loaded, _ = ModelFile(path, ConversionOptions(mapping="provider")).converted
    compilation = Compilation.create(loaded, [device])
    compilation.finish()
    running = session(str(path), device)
    (ours,) = Execution(compilation).run([image]).values()
    assert running.run(None, {"image": image})[0].tobytes() == ours.tobytes()
    assert [len(group) for group in claimed(running)] == [15]


def test_int8_groups_stay_with_onnx_runtime_as_in_the_plan() -> None:
    _, mapped = ModelFile(MODELS / "digits_qdq.onnx", ConversionOptions(mapping="provider")).converted
    assert not [m for m in mapped if m.mapping == "provider"]
    assert claimed(session(str(MODELS / "digits_qdq.onnx"))) == []


def test_a_node_that_the_provider_does_not_map_divides_the_graph() -> None:
    running = session(chain("Relu", "Sinh", "Abs"))
    assert claimed(running) == [["relu0"], ["abs2"]]
    np.testing.assert_array_equal(running.run(None, {"x": X})[0], np.abs(np.sinh(np.maximum(X, 0))))


def test_a_group_on_8_bit_values_runs_as_one_operation() -> None:
    x = np.arange(16, dtype=np.uint8).reshape(1, 1, 4, 4)
    nodes = [
        node("DequantizeLinear", "x s z", "xf"),
        node("DequantizeLinear", "w t u", "wf"),
        node("Conv", "xf wf", "yf"),
        node("QuantizeLinear", "yf s z", "y"),
    ]
    data = model(nodes, {"x": x.shape}, ["y"], {**EIGHT, "w": np.full((1, 1, 2, 2), 4, np.uint8)}, dtype="uint8")
    for optimised in (True, False):
        running = session(data, optimised=optimised)
        assert claimed(running) == [["wf", "xf", "y", "yf"]]
        # Real weights of 1: a sum of four values, (a + b + c + d - 40) / 2 in real numbers.
        sums = x[0, 0, :-1, :-1].astype(int) + x[0, 0, 1:, :-1] + x[0, 0, :-1, 1:] + x[0, 0, 1:, 1:] - 40
        np.testing.assert_array_equal(running.run(None, {"x": x})[0][0, 0], np.clip(sums + 10, 0, 255))


def test_what_the_importer_computes_is_claimed_with_its_readers() -> None:
    nodes = [node("Shape", "x", "n"), node("Relu", "x", "r"), node("Reshape", "r n", "y")]
    running = session(model(nodes, {"x": (2, 3)}, ["y", "n"]), optimised=False)
    assert claimed(running) == [["n", "r", "y"]]
    y, n = running.run(None, {"x": X})
    assert (y.tolist(), n.tolist()) == (np.maximum(X, 0).tolist(), [2, 3])


def test_omitted_inputs_are_omitted() -> None:
    data = model([node("Clip", "x", "c"), node("Relu", "c", "y")], {"x": (2, 3)}, ["y"])
    assert run(data)[0].tolist() == np.maximum(X, 0).tolist()
    clip = model([node("Relu", "x", "r")], {"x": (2, 3)}, ["r"], {"high": np.float32(2)})
    assert run(clip)[0].tolist() == np.maximum(X, 0).tolist()


@pytest.mark.parametrize(
    ("data", "shape"),
    [
        (model([node("Add", "x c", "y")], {"x": ()}, ["y"], {"c": np.float32(1)}), ()),
        (model([node("Add", "x c", "y")], {"x": (0, 3)}, ["y"], {"c": np.float32(1)}), (0, 3)),
    ],
    ids=["a scalar", "nothing"],
)
def test_shapes_at_the_edge_are_right(data: bytes, shape: tuple[int, ...]) -> None:
    x = np.full(shape, 2, np.float32)
    (y,) = run(data, {"x": x})
    assert (y.shape, y.dtype, y.tolist()) == (shape, np.float32, (x + 1).tolist())


def test_other_element_types_leave_as_onnx_runtime_has_them() -> None:
    nodes = [node("ArgMax", "x", "i", axis=1, keepdims=0), node("Cast", "x", "c", to=6), node("Relu", "x", "r")]
    data = model(nodes, {"x": (2, 3)}, ["i", "c", "r"])
    for ours, theirs in zip(run(data), alone(data, {"x": X}), strict=True):
        assert (ours.dtype, ours.tolist()) == (theirs.dtype, theirs.tolist())


def test_open_dimensions_stay_with_onnx_runtime_until_they_are_fixed() -> None:
    import onnxruntime as ort

    data, options = chain("Relu", "Abs", dims=("n", 3)), ort.SessionOptions()
    assert claimed(session(data)) == []
    options.add_free_dimension_override_by_name("n", 2)
    running = session(data, options=options)
    assert claimed(running) == [["abs1", "relu0"]]
    assert running.run(None, {"x": X})[0].tolist() == np.maximum(X, 0).tolist()


def test_constants_that_callers_may_replace_are_inputs_here_and_in_the_plan(tmp_path: Path) -> None:
    nodes = [node("Conv", "x w", "c"), node("Relu", "c", "y")]
    x, w = np.ones((1, 1, 2, 2), np.float32), np.full((1, 1, 1, 1), 3, np.float32)
    for ir, expected in ((3, ["c", "y"]), (8, ["y"])):
        data = model(nodes, {"x": x.shape}, ["y"], {"w": w}, ir=ir, overridable=True)
        assert claimed(session(data)) == [expected]
        (tmp_path / "m.onnx").write_bytes(data)
        _, mapped = ModelFile(tmp_path / "m.onnx", ConversionOptions(mapping="provider")).converted
        assert [m.mapping == "provider" for m in mapped] == [name in expected for name in "cy"]
    assert run(data, {"x": x, "w": -w})[0].max() == 0


def test_constants_in_other_files_are_left_here_and_in_the_plan(tmp_path: Path) -> None:
    import onnx

    nodes = [node("Conv", "x w", "c"), node("Relu", "c", "y")]
    data = model(nodes, {"x": (1, 64, 2, 2)}, ["y"], {"w": np.ones((64, 64, 1, 1), np.float32)})
    path = tmp_path / "m.onnx"
    onnx.save_model(onnx.load_model_from_string(data), str(path), save_as_external_data=True, location="w.bin", size_threshold=0)
    _, mapped = ModelFile(path, ConversionOptions(mapping="provider")).converted
    assert [m.mapping for m in mapped] == ["host", "provider"]
    assert claimed(session(str(path))) == [["y"]]


def test_nodes_behind_a_non_max_suppression_are_left_unless_the_session_says_otherwise(tmp_path: Path) -> None:
    import onnxruntime as ort

    nodes = [
        node("Relu", "x", "r"),
        node("NonMaxSuppression", "r scores", "i"),
        node("Shape", "i", "n"),
        node("Abs", "r", "y"),
    ]
    constants = {"scores": np.ones((1, 1, 2), np.float32)}
    data = model(nodes, {"x": (1, 2, 4)}, ["n", "y"], constants)
    assert claimed(session(data)) == [["r", "y"]]
    options = ort.SessionOptions()
    options.add_session_config_entry("ep.nnapi.partitioning_stop_ops", "Relu")
    assert claimed(session(data, options=options)) == []


def test_branches_of_an_if_stay_with_onnx_runtime() -> None:
    from onnx import helper

    branches = {}
    for name, operator in (("then_branch", "Relu"), ("else_branch", "Abs")):
        out = helper.make_tensor_value_info(f"{operator} out", 1, (2, 3))
        branches[name] = helper.make_graph([helper.make_node(operator, ["r"], [out.name], name=operator)], name, [], [out])
    nodes = [
        node("Relu", "x", "r"),
        node("ReduceMax", "x", "m", keepdims=0),
        node("Greater", "m c", "p"),
        node("If", "p", "y", **branches),
    ]
    data = model(nodes, {"x": (2, 3)}, ["y"], {"c": np.float32(0)})
    running = session(data)
    assert not [name for group in claimed(running) for name in group if name in ("Relu", "Abs", "y")]
    assert running.run(None, {"x": X})[0].tolist() == alone(data, {"x": X})[0].tolist()


def test_a_shape_that_the_model_does_not_have_is_refused() -> None:
    with pytest.raises(Exception, match="Got invalid dimensions for input: x"):
        session(chain("Relu")).run(None, {"x": np.zeros((3, 3), np.float32)})


def test_the_second_name_is_found_by_providers() -> None:
    import onnxruntime as ort

    provider.register()
    chosen = [("NnbridgeExecutionProvider", {"nnbridge_devices": DEVICE})]
    if tuple(map(int, ort.__version__.split(".")[:2])) < (1, 25):
        pytest.skip("providers=[...] finds plug-ins from ONNX Runtime 1.25 on")
    running = ort.InferenceSession(chain("Relu"), providers=chosen)
    assert running.get_providers()[0] == "NnbridgeExecutionProvider"
    assert running.run(None, {"x": X})[0].tolist() == np.maximum(X, 0).tolist()


def test_a_second_provider_gets_what_the_first_one_left() -> None:
    import onnxruntime as ort

    found = {device.ep_name: device for device in provider.register()}
    options = ort.SessionOptions()
    options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    # ABS exists from feature level 3 on, RELU from 1.
    first = {"nnbridge_devices": f"{DEVICE}@1", "cpu_disabled": "1"}
    options.add_provider_for_devices([found["NnbridgeExecutionProvider"]], first)
    options.add_provider_for_devices([found["NnapiExecutionProvider"]], {"nnbridge_devices": DEVICE})
    running = ort.InferenceSession(chain("Relu", "Abs", "Relu"), options, enable_fallback=0)
    groups = {g.ep_name: [n.name for n in g.get_nodes()] for g in running.get_provider_graph_assignment_info()}
    assert groups["NnapiExecutionProvider"] == ["abs1"]
    assert running.run(None, {"x": X})[0].tolist() == np.maximum(X, 0).tolist()


def test_files_in_onnx_runtimes_own_format_run_too(tmp_path: Path) -> None:
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.log_severity_level = 3
    options.optimized_model_filepath = str(tmp_path / "m.ort")
    ort.InferenceSession(chain("Relu", "Sinh", "Abs"), options, providers=["CPUExecutionProvider"])
    running = session(str(tmp_path / "m.ort"), cpu_disabled=True, nnbridge_plan=tmp_path / "plan.json")
    assert len(json.loads((tmp_path / "plan.json").read_text())["partitions"]) == 2
    np.testing.assert_array_equal(running.run(None, {"x": X})[0], np.abs(np.sinh(np.maximum(X, 0))))


def test_the_log_has_the_providers_line(capfd: pytest.CaptureFixture[str]) -> None:
    session(chain("Relu", "Sinh", "Abs"), log=2)
    line = "NnapiExecutionProvider::GetCapability, number of partitions supported by NNAPI: 2 "
    assert f"{line}number of nodes in the graph: 3 number of nodes supported by NNAPI: 2" in capfd.readouterr().err


def test_four_threads_on_one_session_and_sessions_in_four_threads() -> None:
    data, shared = chain("Relu", "Abs"), session(chain("Relu", "Neg"))
    found: dict[int, list[float]] = {}

    def work(number: int) -> None:
        own = session(data)
        x = np.full((2, 3), number, np.float32)
        found[number] = [float(s.run(None, {"x": x})[0][0, 0]) for _ in range(20) for s in (own, shared)]

    threads = [threading.Thread(target=work, args=(k,)) for k in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {k: [float(k), float(-k)] * 20 for k in range(1, 5)}


def test_memory_stays_flat_over_200_rounds_of_creating_and_freeing() -> None:
    weights = np.random.default_rng(0).random((256, 256), np.float32)
    data = model([node("Gemm", "x w", "g"), node("Relu", "g", "y")], {"x": (1, 256)}, ["y"], {"w": weights})

    def rounds(count: int) -> int:
        for _ in range(count):
            run(data, {"x": weights[:1]})
        gc.collect()
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    before = rounds(50)
    assert rounds(200) - before < 8 << 20  # the weights of 200 rounds are 50 MiB


def test_a_session_outlives_the_registration() -> None:
    program = """
import numpy as np, onnxruntime as ort
from nnbridge import provider
from tests.provider.sessions import chain, session
running = session(chain("Relu"))
ort.unregister_execution_provider_library(provider.REGISTRATION)
assert running.run(None, {"x": np.ones((2, 3), np.float32)})[0].sum() == 6
provider.register()
assert session(chain("Abs")).run(None, {"x": -np.ones((2, 3), np.float32)})[0].sum() == 6
"""
    subprocess.run([sys.executable, "-c", program], check=True, cwd=REPOSITORY, timeout=120)
