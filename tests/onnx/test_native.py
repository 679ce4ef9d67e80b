"""The onnx package's native code in a process of its own."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from nnbridge.errors import ConversionError, InputError
from nnbridge.file import load

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnx.inliner")
pytest.importorskip("onnx.version_converter")
from nnbridge_onnx import native, native_process  # noqa: E402

helper, FLOAT, INT64 = onnx.helper, onnx.TensorProto.FLOAT, onnx.TensorProto.INT64


def _model(node: Any, *inputs: Any) -> Any:
    graph = helper.make_graph([node], "graph", list(inputs), [helper.make_tensor_value_info("y", FLOAT, None)])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


X = helper.make_tensor_value_info("x", FLOAT, [2, 3])
RELU = _model(helper.make_node("Relu", ["x"], ["y"]), X)
CRASHES = {
    "a negative number of indexes": _model(
        helper.make_node("GatherND", ["x", "i"], ["y"]), X, helper.make_tensor_value_info("i", INT64, [2, -(2**31)])
    ),
    "a negative number of batches": _model(
        helper.make_node("GatherND", ["x", "i"], ["y"], batch_dims=-1000), X, helper.make_tensor_value_info("i", INT64, [1, 1])
    ),
    "an axis far away": _model(
        helper.make_node("LayerNormalization", ["x", "x"], ["y", "mean", "deviation"], axis=2**31), X
    ),
}  # fmt: skip
"""Models that end a process of the onnx package 1.23."""


def _dims(model: Any) -> list[int]:
    return [dim.dim_value for dim in model.graph.output[0].type.tensor_type.shape.dim]


@pytest.fixture(autouse=True)
def _nothing_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native.NATIVE, "_memory", native._Memory())


@pytest.fixture
def process() -> Iterator[Any]:
    """The process that infers."""
    native.NATIVE.start()
    yield native.NATIVE._process
    native.NATIVE.start()


def test_inference_finds_what_the_package_finds() -> None:
    assert native.infer_shapes(onnx, RELU) == onnx.shape_inference.infer_shapes(RELU)


@pytest.mark.parametrize("name", CRASHES)
def test_a_file_that_crashes_inference_is_refused_and_the_next_one_is_read(name: str, tmp_path: Path) -> None:
    broken, good = tmp_path / "broken.onnx", tmp_path / "good.onnx"
    broken.write_bytes(CRASHES[name].SerializeToString())
    good.write_bytes(RELU.SerializeToString())
    with pytest.raises(ConversionError, match=r"broken\.onnx"):
        load(broken)
    assert len(load(good).main.operations) == 1


@pytest.mark.parametrize("before", [0, 1, 6])
def test_the_node_whose_inference_crashes_is_named(before: int, tmp_path: Path) -> None:
    made = CRASHES["a negative number of batches"]
    chain = [helper.make_node("Relu", [f"t{i}" if i else "x"], [f"t{i + 1}"], name=f"relu{i}") for i in range(before)]
    several = type(made)()
    several.CopyFrom(made)
    several.graph.node[0].name = "gather"
    several.graph.node.extend([helper.make_node("Relu", ["y"], ["z"], name="after")])
    nodes = [*chain, *several.graph.node]
    del several.graph.node[:]
    several.graph.node.extend(nodes)
    path = tmp_path / "model.onnx"
    path.write_bytes(several.SerializeToString())
    with pytest.raises(ConversionError, match=r"shape inference of the onnx package crashes \(SIG[A-Z]+\) at GatherND gather$"):
        load(path)


def test_a_crash_is_reported_by_its_signal(process: Any) -> None:
    os.kill(process.number, signal.SIGSTOP)

    def crash() -> None:
        os.kill(process.number, signal.SIGSEGV)
        os.kill(process.number, signal.SIGCONT)

    with pytest.raises(native.CrashError, match=r"shape inference of the onnx package crashes \(SIGSEGV\)$"):
        native.infer_shapes(onnx, RELU, meanwhile=crash)
    assert _dims(native.infer_shapes(onnx, RELU)) == [2, 3]


def test_a_process_that_was_ended_between_two_requests_is_replaced(process: Any) -> None:
    os.kill(process.number, signal.SIGKILL)
    os.waitid(os.P_PID, process.number, os.WEXITED | os.WNOWAIT)
    assert _dims(native.infer_shapes(onnx, RELU)) == [2, 3]


def test_an_interruption_that_ends_the_process_of_an_owed_answer_is_not_the_next_request_s(process: Any) -> None:
    native.NATIVE._owed = process.ask(native.INFER, RELU.SerializeToString())
    process.end()
    assert _dims(native.infer_shapes(onnx, RELU)) == [2, 3]


OLD = helper.make_model(RELU.graph, opset_imports=[helper.make_opsetid("", 6)], ir_version=8)
CALL = _model(helper.make_node("Twice", ["x"], ["y"], domain="own"), X)
CALL.opset_import.append(helper.make_opsetid("own", 1))
TWICE = [helper.make_node("Add", ["a", "a"], ["b"])]
CALL.functions.append(helper.make_function("own", "Twice", ["a"], ["b"], TWICE, [helper.make_opsetid("", 17)]))


def test_versions_are_converted_and_functions_inlined_as_by_the_package() -> None:
    assert native.convert_version(onnx, OLD, 7) == onnx.version_converter.convert_version(OLD, 7)
    assert native.inline_functions(onnx, CALL) == onnx.inliner.inline_local_functions(CALL)


@pytest.mark.parametrize(("model", "what"), [(OLD, "version converter"), (CALL, "inliner")])
def test_a_file_that_crashes_the_converter_or_the_inliner_is_refused(
    model: Any, what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask = native._NativeProcess.ask

    def crashing(self: Any, kind: int, content: bytes) -> Any:
        if kind in (native.CONVERT, native.INLINE):
            os.kill(self.number, signal.SIGSEGV)
        return ask(self, kind, content)

    monkeypatch.setattr(native._NativeProcess, "ask", crashing)
    (tmp_path / "model.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(ConversionError, match=rf"model\.onnx.*the {what} of the onnx package crashes \(SIGSEGV\)"):
        load(tmp_path / "model.onnx")


def test_a_conversion_that_the_package_refuses_has_its_error() -> None:
    upsample = helper.make_node("Upsample", ["x"], ["y"], width_scale=2.0, height_scale=2.0)
    old = helper.make_model(_model(upsample, X).graph, opset_imports=[helper.make_opsetid("", 1)], ir_version=3)
    with pytest.raises(RuntimeError, match="Upsample in opset 1 supports only 4D input"):
        native.convert_version(onnx, old, 7)


def test_inference_that_takes_long_is_ended() -> None:
    many = [helper.make_node("Relu", ["x" if i == 0 else f"t{i}"], [f"t{i + 1}"]) for i in range(20_000)]
    graph = helper.make_graph(many, "graph", [X], [helper.make_tensor_value_info("t20000", FLOAT, None)])
    content = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]).SerializeToString()
    process = native._NativeProcess(Path(onnx.__file__).parent, 0.01)
    with pytest.raises(native.LateError, match=r"shape inference of the onnx package takes more than 0\.01 s"):
        process.ask(native.INFER, content).get()
    assert not process.end.alive


def test_an_interruption_leaves_no_answer_for_the_next_request(process: Any) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    os.kill(process.number, signal.SIGSTOP)
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    try:
        with pytest.raises(KeyboardInterrupt):
            native.infer_shapes(onnx, RELU)
    finally:
        signal.signal(signal.SIGALRM, before)
    exponential = _model(helper.make_node("Transpose", ["x"], ["y"], perm=[1, 0]), X)
    assert _dims(native.infer_shapes(onnx, exponential)) == [3, 2]


def test_a_file_is_checked_while_the_caller_reads_it(tmp_path: Path) -> None:
    path, broken = tmp_path / "good.onnx", tmp_path / "broken.onnx"
    for file, inputs in ((path, ["x"]), (broken, ["x", "x"])):
        made = _model(helper.make_node("Relu", inputs, ["y"]), X)
        made.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", FLOAT, [2, 3]))
        file.write_bytes(made.SerializeToString())
    with native.checking(path) as check:
        check.wait(onnx, None)
        assert _dims(native.infer_shapes(onnx, RELU)) == [2, 3]
    with native.checking(broken) as check, pytest.raises(onnx.checker.ValidationError, match="has input size 2 not in range"):
        check.wait(onnx, None)


def test_an_answer_that_nobody_waits_for_is_not_the_next_ones(tmp_path: Path) -> None:
    with native.checking(tmp_path / "missing.onnx"):
        pass
    assert _dims(native.infer_shapes(onnx, RELU)) == [2, 3]


def test_a_crash_of_the_checker_is_reported(process: Any, tmp_path: Path) -> None:
    process.end()
    with native.checking(tmp_path / "missing.onnx") as check:
        os.kill(native.NATIVE.number or 0, signal.SIGSTOP)
        os.kill(native.NATIVE.number or 0, signal.SIGSEGV)
        os.kill(native.NATIVE.number or 0, signal.SIGCONT)
        with pytest.raises(native.CrashError, match="the checker of the onnx package crashes"):
            check.wait(onnx, None)


def test_an_interruption_behind_a_request_leaves_no_answer_for_the_next(process: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(native._Answer, "get", interrupt)
        with pytest.raises(KeyboardInterrupt):
            native.infer_shapes(onnx, RELU)
    transposed = _model(helper.make_node("Transpose", ["x"], ["y"], perm=[1, 0]), X)
    assert _dims(native.infer_shapes(onnx, transposed)) == [3, 2]


def test_threads_share_the_process() -> None:
    shapes = [(n, n + 1) for n in range(1, 33)]

    def inferred(dims: tuple[int, int]) -> list[int]:
        return _dims(native.infer_shapes(onnx, _model(helper.make_node("Relu", ["x"], ["y"]), _value(dims))))

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(inferred, shapes)) == [list(dims) for dims in shapes]


def _value(dims: tuple[int, int]) -> Any:
    return helper.make_tensor_value_info("x", FLOAT, dims)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_process_has_its_own(process: Any) -> None:
    child = multiprocessing.get_context("fork").Process(target=_in_fork, args=(process.number,))
    child.start()
    child.join()
    assert child.exitcode == 0
    assert _dims(native.infer_shapes(onnx, RELU)) == [2, 3]
    assert native.NATIVE._process is process


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_process_writes_nothing_of_a_request_that_its_parent_is_writing(process: Any) -> None:
    content = RELU.SerializeToString()
    process._process.stdin.write(native.HEAD.pack(len(content), native.INFER))  # in a buffer, not in the pipe
    child = multiprocessing.get_context("fork").Process(target=int)
    child.start()
    child.join()
    process._process.stdin.write(content)
    process._process.stdin.flush()
    good, answer = process.receive()
    assert good
    assert _dims(onnx.load_model_from_string(answer)) == [2, 3]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_process_that_is_forked_while_another_thread_waits_for_an_answer_has_its_own(process: Any) -> None:
    os.kill(process.number, signal.SIGSTOP)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(native.infer_shapes, onnx, RELU)
        while native.NATIVE._owed is None:
            time.sleep(0.01)
        time.sleep(0.1)  # It reads now, or will: a lock of the pipe's is locked.
        child = multiprocessing.get_context("fork").Process(target=_in_fork, args=(process.number,))
        child.start()
        child.join(20)
        os.kill(process.number, signal.SIGCONT)
        assert _dims(waiting.result()) == [2, 3]
    hanging = child.is_alive()
    child.kill()
    child.join()
    assert not hanging
    assert child.exitcode == 0


def _in_fork(parents: int) -> None:
    assert _dims(native.infer_shapes(onnx, RELU)) == [2, 3]
    started = native.NATIVE._process
    assert started is not None
    assert started.number != parents


def test_a_model_that_the_package_refuses_has_the_packages_error() -> None:
    wrong = _model(helper.make_node("Relu", ["x"], ["y"], domain="own"), X)
    with pytest.raises(onnx.shape_inference.InferenceError, match="No opset import for domain own"):
        native.infer_shapes(onnx, wrong)


def test_a_refusal_is_not_remembered(process: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    ask = native._NativeProcess.ask
    monkeypatch.setattr(native._NativeProcess, "ask", lambda self, kind, content: asked.append(kind) or ask(self, kind, content))
    for _ in range(2):
        assert not native.NATIVE.ask(native.INFER, b"none")[0]
    assert asked == [native.INFER] * 2


@pytest.mark.parametrize(("executable", "frozen"), [(None, False), ("/none/python", False), (sys.executable, True)])
def test_files_are_refused_where_no_python_can_be_started(
    executable: str | None, frozen: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(native.NATIVE, "_process", None)
    monkeypatch.setattr(sys, "executable", executable)
    monkeypatch.setattr(sys, "frozen", frozen, raising=False)
    path = tmp_path / "model.onnx"
    path.write_bytes(RELU.SerializeToString())
    with pytest.raises(InputError, match=r"a program of Python's .* \(sys\.executable\), found "):
        load(path)


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere memory is not bounded")
def test_memory_is_bounded_where_proc_is_not_mounted(monkeypatch: pytest.MonkeyPatch) -> None:
    import resource

    def missing(*_: object) -> None:
        raise FileNotFoundError

    limits: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    monkeypatch.setattr(resource, "setrlimit", lambda _, limit: limits.append(limit))
    monkeypatch.setattr(native_process, "open", missing, raising=False)
    native_process._limit_memory(1000)
    assert limits == [((3 << 30) + 8000, resource.RLIM_INFINITY)]


def test_a_package_without_the_native_module_is_named(tmp_path: Path) -> None:
    process = native._NativeProcess(tmp_path)
    try:
        good, answer = process.ask(native.INFER, b"").get()
    finally:
        process.end()
    assert not good
    assert f"no onnx_cpp2py_export in {tmp_path}" in answer.decode()


def test_the_process_ends_with_its_owner() -> None:
    process = native._NativeProcess(Path(onnx.__file__).parent)
    assert process.ask(native.INFER, RELU.SerializeToString()).get()[0]
    process._process.stdin.close()  # As the end of the owner closes it.
    assert process._process.wait(10) == 0


def test_a_request_whose_answer_is_known_is_not_asked_again(process: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    ask = native._NativeProcess.ask
    monkeypatch.setattr(native._NativeProcess, "ask", lambda self, kind, content: asked.append(kind) or ask(self, kind, content))
    first, again = native.infer_shapes(onnx, RELU), native.infer_shapes(onnx, RELU)
    assert first == again
    native.infer_shapes(onnx, RELU, follow=True)
    assert asked == [native.INFER, native.FOLLOW]


def test_work_is_done_while_the_process_infers_and_where_the_answer_is_known() -> None:
    done: list[str] = []
    for _ in range(2):
        assert _dims(native.infer_shapes(onnx, RELU, meanwhile=lambda: done.append("read"))) == [2, 3]
    assert done == ["read", "read"]


def test_work_that_fails_leaves_no_answer_for_the_next_request(process: Any) -> None:
    def fail() -> None:
        raise ValueError("a constant that is none")

    with pytest.raises(ValueError, match="a constant that is none"):
        native.infer_shapes(onnx, RELU, meanwhile=fail)
    transposed = _model(helper.make_node("Transpose", ["x"], ["y"], perm=[1, 0]), X)
    assert _dims(native.infer_shapes(onnx, transposed)) == [3, 2]
    assert native.NATIVE._process is process


def test_the_oldest_answers_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "REMEMBERED", 10)
    memory = native._Memory()
    for content in (b"aaa", b"bbb", b"bbb", b"ccc"):
        memory.put(native.INFER, content, (True, b"12"))
    known = [content for content in (b"aaa", b"bbb", b"ccc") if memory.get(native.INFER, content) is not None]
    assert known == [b"bbb", b"ccc"]
    memory.put(native.INFER, b"too long to be remembered", (True, b""))
    assert memory.get(native.INFER, b"too long to be remembered") is None
