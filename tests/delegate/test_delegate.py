"""TFLite's own interpreter with the delegate: nodes, partitions, dimensions, states, threads, failures."""

from __future__ import annotations

import ctypes
import gc
import mmap
import os
import re
import signal
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nnbridge import Compilation, Execution, delegate, devices, plan
from nnbridge.converters import ConversionOptions
from nnbridge.delegate import delegating
from nnbridge.delegate.interpreter import read_memory
from nnbridge.devices import driver
from nnbridge.file import ModelFile, load
from nnbridge.runtime.states import States
from tests.conftest import MODELS
from tests.delegate.interpreters import SHAPE, accumulator, answer, graph, interpreter, needs
from tests.tflite.files import TfliteBuilder

needs()

X = np.linspace(-2, 3, 6, dtype=np.float32).reshape(SHAPE)


def replaced(text: str) -> list[tuple[int, int, int]]:
    """Nodes that were replaced, of how many, and partitions, as the log has them."""
    return [tuple(map(int, found)) for found in re.findall(r"Replacing (\d+) out of (\d+) node.* yielding (\d+) part", text)]  # type: ignore[misc]


@pytest.mark.parametrize("file", ["digits_float32", "digits_int8", "digits_uint8", "digits_float16"])
@pytest.mark.parametrize("device", ["nnapi-reference", "nnapi-sample_all"])
def test_outputs_are_bit_for_bit_those_of_the_delegate_mapping(file: str, device: str) -> None:
    path = MODELS / f"{file}.tflite"
    running = interpreter(path, device)
    detail = running.get_input_details()[0]
    top = 1 if detail["dtype"] == np.float32 else 100
    x = (np.random.default_rng(0).random(detail["shape"]) * top).astype(detail["dtype"])
    compilation = Compilation.create(load(path, ConversionOptions(mapping="delegate")), [device])
    compilation.finish()
    (ours,) = Execution(compilation).run([x]).values()
    assert answer(running, x).tobytes() == ours.tobytes()


@pytest.mark.parametrize("file", ["digits_float32", "digits_int8"])
def test_without_nnapis_cpu_all_outputs_are_bit_for_bit_tflites(file: str) -> None:
    path, device = MODELS / f"{file}.tflite", devices.device("nnapi-sample_minimal")
    running = interpreter(path, device.name)
    detail = running.get_input_details()[0]
    x = np.random.default_rng(0).integers(0, 100, detail["shape"]).astype(detail["dtype"])
    (ours,) = plan(path, device=device).run([x]).values()
    assert answer(running, x).tobytes() == ours.tobytes()


def test_the_log_has_tflites_lines(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    interpreter(graph(tmp_path, "ABS", "EXP", "FLOOR"))
    text = capfd.readouterr().err
    assert (
        "INFO: Replacing 3 out of 3 node(s) with delegate (TfLiteNnapiDelegate) node, yielding 1 partitions for subgraph 0"
        in text
    )


def test_nodes_that_the_device_refuses_stay_with_tflite(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = graph(tmp_path, "ABS", "RELU", "EXP", "RELU6")
    running = interpreter(path, ACCEPTS_RELUS)
    assert replaced(capfd.readouterr().err) == [(2, 4, 4)]
    np.testing.assert_allclose(answer(running, X), np.minimum(np.exp(np.abs(X)), 6), rtol=1e-6)


@pytest.mark.parametrize(("device", "handed"), [("nnapi-sample_float_fast", 11), ("nnapi-sample_minimal", 0)])
def test_files_with_float16_weights_go_as_a_whole_or_not_at_all(
    device: str, handed: int, capfd: pytest.CaptureFixture[str]
) -> None:
    path = MODELS / "digits_float16.tflite"
    interpreter(path, device)
    assert sum(nodes for nodes, _, _ in replaced(capfd.readouterr().err)) == handed
    assert [one.mapping for one in plan(path, device=device).mapped].count("delegate") == handed


def halves(tmp_path: Path, *, sparse: bool) -> Path:
    """ABS, then MUL by the float16 constant [0, 2, 0], of which a sparse tensor stores only the 2."""
    builder = TfliteBuilder()
    x, y, z, whole = (builder.tensor((1, 3), name=name) for name in ("x", "y", "z", "whole"))
    builder.operator("ABS", [x], [y], {})
    half = builder.constant(np.array([2] if sparse else [[0, 2, 0]], np.float16), name="half")
    if sparse:
        segments, indices = {"values": [0, 1]}, {"values": [1]}
        level = {
            "format": 1,
            "array_segments_type": 1,
            "array_segments": segments,
            "array_indices_type": 1,
            "array_indices": indices,
        }
        sparsity = {"traversal_order": [0, 1], "dim_metadata": [{"format": 0, "dense_size": 1}, level]}
        builder.tensors[half].update(shape=[1, 3], sparsity=sparsity)
        dense = builder.tensor((1, 3), "float16", name="dense")
        builder.operator("DENSIFY", [half], [dense], {})
        half = dense
    builder.operator("DEQUANTIZE", [half], [whole], {}, version=3)
    builder.operator("MUL", [y, whole], [z], {})
    return builder.write(tmp_path / "m.tflite", [x], [z])


@pytest.mark.parametrize("sparse", [False, True])
def test_weights_in_another_form_cut_no_partition(sparse: bool, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = halves(tmp_path, sparse=sparse)
    running = interpreter(path, "nnapi-sample_all")
    # ABS and MUL are one partition; DEQUANTIZE, and DENSIFY before it, are TFLite's.
    assert replaced(capfd.readouterr().err) == [(2, 4 if sparse else 3, 2)]
    assert plan(path, device="nnapi-sample_all").summary.partitions == 1
    assert answer(running, np.array([[-1, -2, -3]], np.float32)).tolist() == [[0, 4, 0]]


def test_weights_that_the_device_refuses_are_read_as_before(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    running = interpreter(halves(tmp_path, sparse=True), ACCEPTS_RELUS)
    assert replaced(capfd.readouterr().err) == []
    assert answer(running, np.array([[-1, -2, -3]], np.float32)).tolist() == [[0, 4, 0]]


def test_one_refused_operator_does_not_cost_the_others(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    builder = TfliteBuilder()
    x, y, z = (builder.tensor(SHAPE, name=name) for name in "xyz")
    builder.operator("ADD", [x, x], [y], {"fused_activation_function": 4})  # TANH, which NNAPI does not fuse
    builder.operator("ABS", [y], [z], {})
    running = interpreter(builder.write(tmp_path / "m.tflite", [x], [z]))
    assert replaced(capfd.readouterr().err) == [(1, 2, 2)]
    running.invoke()


def test_nodes_and_partitions_of_a_published_network_are_the_plans(real_models: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = real_models / "ultraface_rfb_320.tflite"
    interpreter(path, allow_dynamic_dimensions=True)  # its batch is open
    ((taken, total, _),) = replaced(capfd.readouterr().err)
    _, mapped = ModelFile(path, ConversionOptions(mapping="delegate", allow_dynamic_dimensions=True)).converted
    # Eight RESHAPE, to dimensions that SHAPE, STRIDED_SLICE and PACK compute, stay with TFLite.
    assert (taken, total) == (sum(m.mapping == "delegate" for m in mapped), len(mapped)) == (83, 115)


def test_a_file_in_memory_is_found(tmp_path: Path) -> None:
    from ai_edge_litert.interpreter import Interpreter

    content = graph(tmp_path, "ABS").read_bytes()
    running = Interpreter(model_content=content, experimental_delegates=[delegate.load("nnapi-reference")])
    running.allocate_tensors()
    assert answer(running, X).tolist() == np.abs(X).tolist()


def test_a_file_without_names_is_found_by_its_constants(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    builder = TfliteBuilder()
    x, y = builder.tensor(SHAPE), builder.tensor(SHAPE)
    builder.operator("ADD", [x, builder.constant([1.0], "float32")], [y], {})
    for tensor in builder.tensors:
        tensor["name"] = None
    running = interpreter(builder.write(tmp_path / "m.tflite", [x], [y]))
    assert replaced(capfd.readouterr().err) == [(1, 1, 1)]
    assert answer(running, X).tolist() == (X + np.float32(1)).tolist()


def test_a_graph_that_points_at_no_file_stays_with_tflite(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    builder = TfliteBuilder()
    x, y = builder.tensor(SHAPE), builder.tensor(SHAPE)
    builder.operator("ABS", [x], [y], {})
    for tensor in builder.tensors:
        tensor["name"] = None
    running = interpreter(builder.write(tmp_path / "m.tflite", [x], [y]))
    assert "WARNING: nothing is handed to NNAPI: expected a model file in the interpreter's memory" in capfd.readouterr().err
    assert answer(running, X).tolist() == np.abs(X).tolist()


def test_subgraphs_that_are_alike_differ_by_their_constants(tmp_path: Path) -> None:
    main = TfliteBuilder()
    maps = []
    for number, graph_ in enumerate((main, main.beside())):
        x, y = graph_.tensor(SHAPE, name="x"), graph_.tensor(SHAPE, name="y")
        graph_.operator("ADD", [x, graph_.constant([10.0 * number], "float32")], [y], {})
        sides = {"inputs": [{"name": "i", "tensor_index": x}], "outputs": [{"name": "o", "tensor_index": y}]}
        maps.append({"signature_key": f"plus{10 * number}", "subgraph_index": number, **sides})
        if number:
            main.add(graph_, [x], [y])
    running = interpreter(main.write(tmp_path / "m.tflite", [0], [1], signature_defs=maps))
    for plus in (0, 10):
        found = running.get_signature_runner(f"plus{plus}")(i=X)["o"]
        assert found.tolist() == (X + np.float32(plus)).tolist()


def test_another_batch_is_computed_after_resizing(tmp_path: Path) -> None:
    running = interpreter(graph(tmp_path, "ABS", "RELU"))
    for batch in (1, 4, 2):
        x = np.arange(batch * 3, dtype=np.float32).reshape(batch, 3) - 2
        running.resize_tensor_input(running.get_input_details()[0]["index"], x.shape)
        running.allocate_tensors()
        assert answer(running, x).tolist() == np.abs(x).tolist()


def test_with_dynamic_dimensions_partitions_are_compiled_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compilations: list[Any] = []
    original = delegating.compiled
    monkeypatch.setattr(delegating, "compiled", lambda *given: compilations.append(original(*given)) or compilations[-1])
    running = interpreter(open_batch(tmp_path), allow_dynamic_dimensions=True)
    for batch in (1, 5, 2):
        x = np.ones((batch, 3), np.float32)
        running.resize_tensor_input(running.get_input_details()[0]["index"], x.shape)
        running.allocate_tensors()
        assert answer(running, -x).tolist() == x.tolist()
    assert len(compilations) == 1


def test_dimensions_that_the_file_fixes_cannot_be_resized_with_dynamic_dimensions(tmp_path: Path) -> None:
    running = interpreter(graph(tmp_path, "ABS", "RELU"), allow_dynamic_dimensions=True)
    running.resize_tensor_input(running.get_input_details()[0]["index"], (5, 3))
    running.allocate_tensors()
    with pytest.raises(RuntimeError, match=r"ANEURALNETWORKS_BAD_DATA .* expected 24 bytes, found 60"):
        running.invoke()


def open_batch(folder: Path) -> Path:
    """ABS and RELU of any number of rows."""
    builder = TfliteBuilder()
    x, y, z = (builder.tensor((1, 3), name=name, shape_signature=[-1, 3]) for name in "xyz")
    builder.operator("ABS", [x], [y], {})
    builder.operator("RELU", [y], [z], {})
    return builder.write(folder / "m.tflite", [x], [z])


def test_states_are_the_interpreters(tmp_path: Path) -> None:
    running = interpreter(accumulator(tmp_path))
    assert [float(answer(running, [[1]])[0, 0]) for _ in range(10)] == list(range(1, 11))
    running.reset_all_variables()
    assert float(answer(running, [[1]])[0, 0]) == 1


@pytest.mark.parametrize("name", ["keras_lstm_mnist_ptq", "dtln_noise_suppression"])
def test_int8_lstms_that_nnapi_does_not_have_leave_the_program_without_an_interpreter(name: str, real_models: Path) -> None:
    """tensorflow 60234: the delegate's Validate has no rule on an LSTM's types, NNAPI's validation has."""
    with pytest.raises(RuntimeError, match=r"ANEURALNETWORKS_BAD_DATA .* while adding operation: operator .*SEQUENCE_LSTM"):
        interpreter(real_models / f"{name}.tflite")


@pytest.mark.parametrize("name", ["mnist_lstm_float"])
def test_published_networks_go_on_as_in_nnbridge_for_ten_invokes(name: str, real_models: Path) -> None:
    path = real_models / f"{name}.tflite"
    running, model = interpreter(path), load(path, ConversionOptions(mapping="delegate"))
    compilation = Compilation.create(model, ["nnapi-sample_all"])
    compilation.finish()
    states, rng = States(model), np.random.default_rng(0)
    for _ in range(10):
        inputs = [(rng.random(d["shape"]) * 50).astype(d["dtype"]) for d in running.get_input_details()]
        ours = next(iter(Execution(compilation, states).run(inputs).values()))
        assert answer(running, *inputs).tobytes() == ours.tobytes()


def test_two_interpreters_have_their_own_states(tmp_path: Path) -> None:
    path = accumulator(tmp_path)
    one, other = interpreter(path), interpreter(path)
    assert [float(answer(one, [[1]])[0, 0]), float(answer(one, [[1]])[0, 0]), float(answer(other, [[1]])[0, 0])] == [1, 2, 1]


def test_each_signature_is_delegated(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    main = TfliteBuilder()
    body = main.beside()
    a, b = body.tensor(SHAPE, name="a"), body.tensor(SHAPE, name="b")
    body.operator("NEG", [a], [b], {})
    other = main.add(body, [a], [b])
    x, y = main.tensor(SHAPE, name="x"), main.tensor(SHAPE, name="y")
    main.operator("ABS", [x], [y], {})
    maps = [
        {
            "signature_key": key,
            "subgraph_index": k,
            "inputs": [{"name": "i", "tensor_index": 0}],
            "outputs": [{"name": "o", "tensor_index": 1}],
        }
        for k, key in ((0, "abs"), (other, "neg"))
    ]
    running = interpreter(main.write(tmp_path / "m.tflite", [x], [y], signature_defs=maps))
    assert [r[:2] for r in replaced(capfd.readouterr().err)] == [(1, 1), (1, 1)]
    assert running.get_signature_runner("abs")(i=X)["o"].tolist() == np.abs(X).tolist()
    assert running.get_signature_runner("neg")(i=X)["o"].tolist() == (-X).tolist()


def test_bodies_of_control_flow_are_delegated(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    from tests.tflite.test_control_flow import _loop

    running = interpreter(_loop(tmp_path))
    assert len(replaced(capfd.readouterr().err)) == 2  # condition and body; WHILE itself is TFLite's
    running.set_tensor(running.get_input_details()[0]["index"], X)
    running.invoke()
    found = [running.get_tensor(detail["index"]) for detail in running.get_output_details()]
    assert found[0] == 3
    np.testing.assert_allclose(found[1], ((X + abs(X)) * 4).astype(np.float32))


def test_four_interpreters_in_four_threads(tmp_path: Path) -> None:
    from ai_edge_litert.interpreter import Interpreter

    path, shared = accumulator(tmp_path), delegate.load("nnapi-sample_all")
    found: dict[int, list[float]] = {}

    def work(number: int) -> None:
        running = Interpreter(str(path), experimental_delegates=[shared])
        running.allocate_tensors()
        found[number] = [float(answer(running, [[number]])[0, 0]) for _ in range(50)]

    threads = [threading.Thread(target=work, args=(k,)) for k in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {k: [float(k * n) for n in range(1, 51)] for k in range(1, 5)}


def test_memory_that_another_thread_unmaps_reads_as_zeros() -> None:
    size = 2 * mmap.PAGESIZE
    mapped = mmap.mmap(-1, size)
    mapped[:] = b"x" * size
    start = ctypes.addressof((ctypes.c_char * size).from_buffer(mapped))
    gc.collect()
    with Path("/proc/self/mem").open("rb", buffering=0) as memory:
        assert read_memory(memory, start + 5, start + size) == b"x" * (size - 5)
        mapped.close()
        assert read_memory(memory, start, start + size) == bytes(size)


def test_memory_stays_flat_over_rounds_of_creating_and_freeing(tmp_path: Path) -> None:
    path = graph(tmp_path, "ABS", "RELU", shape=(64, 1024))

    def rounds(count: int) -> int:
        for _ in range(count):
            answer(interpreter(path), np.ones((64, 1024), np.float32))
        gc.collect()
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    before = rounds(100)  # as many: what waits for the collector is freed, but stays the process's
    assert rounds(100) - before < 8 << 20


def test_a_driver_that_is_killed_fails_the_invoke_and_no_other_interpreter(tmp_path: Path) -> None:
    name = "process:nnapi-sample_all"
    path = graph(tmp_path, "ABS")
    running, other = interpreter(path, name), interpreter(path, "nnapi-sample_all")
    assert answer(running, X).tolist() == np.abs(X).tolist()
    os.kill(devices.device(name).pid, signal.SIGKILL)  # type: ignore[attr-defined]  # of a device in a process of its own
    with pytest.raises(RuntimeError, match=r"NN API returned error ANEURALNETWORKS_DEAD_OBJECT .* failed to invoke"):
        running.invoke()
    assert answer(other, X).tolist() == np.abs(X).tolist()
    assert answer(interpreter(path, name), X).tolist() == np.abs(X).tolist()


def test_a_graph_with_dynamic_tensors_is_refused_before_it_is_looked_at(tmp_path: Path) -> None:
    builder = TfliteBuilder()
    x, sizes, y = builder.tensor((6,), name="x"), builder.tensor((2,), "int32", name="sizes"), builder.tensor((2, 3), name="y")
    builder.operator("RESHAPE", [x, sizes], [y], {"new_shape": []})
    with pytest.raises(RuntimeError):
        interpreter(builder.write(tmp_path / "m.tflite", [x, sizes], [y]))


def test_a_partition_behind_dynamic_tensors_gets_their_dimensions(tmp_path: Path) -> None:
    builder = TfliteBuilder()
    x, sizes = builder.tensor((6,), name="x"), builder.tensor((2,), "int32", name="sizes")
    y, z = (builder.tensor((1, 1), name=name, shape_signature=[-1, -1]) for name in "yz")
    builder.operator("RESHAPE", [x, sizes], [y], {})
    builder.operator("ABS", [y], [z], {})
    running = interpreter(builder.write(tmp_path / "m.tflite", [x, sizes], [z]), allow_dynamic_dimensions=True)
    for dims in ((2, 3), (3, 2), (6, 1)):
        assert answer(running, -np.arange(6), dims).tolist() == np.arange(6.0).reshape(dims).tolist()


def test_an_interpreter_outlives_its_delegate(tmp_path: Path) -> None:
    running = interpreter(graph(tmp_path, "ABS"))
    running._delegates = []
    gc.collect()
    assert answer(running, X).tolist() == np.abs(X).tolist()


@driver("relus")
def ACCEPTS_RELUS(model: Any, operation: Any) -> bool:
    """A driver that supports RELU and RELU6 alone."""
    return operation.type in (19, 21)
