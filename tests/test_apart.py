"""A signal or error that ends a runtime's process is a row of the result, and ends no command."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nnbridge import apart
from nnbridge.apart import Apart, EndedError
from nnbridge.errors import ConversionError, InputError, OpFailedError, Reason, ShortageError, Why
from tests.tflite.files import TfliteBuilder

NNBRIDGE = Path(sys.executable).with_name("nnbridge")
ROOT = Path(__file__).parents[1]


WAYS = ["fresh", *(["copy"] if sys.platform == "linux" else [])]


@pytest.fixture(autouse=True, params=WAYS)
def way(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The way in which processes start; they import nothing from the current folder, which is often that of these tests."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(apart, "copies_safely", lambda: request.param == "copy")
    return str(request.param)


class Object:
    """An object that tests serve."""

    def __init__(self, start: int = 0) -> None:
        self.count = start

    def add(self, number: int) -> int:
        self.count += number
        return self.count

    def same(self, value: Any) -> Any:
        return value

    def fails(self, kind: str) -> None:
        errors: dict[str, BaseException] = {
            "input": InputError(Reason("rule", "found", "operation", "operand", Why.RANK)),
            "conversion": ConversionError("a file"),
            "thread": RuntimeError("can't start new thread"),
            "memory": MemoryError("much"),
            "other": ZeroDivisionError("by 0\nsecond line"),
            "code": OpFailedError("failed"),
        }
        raise errors[kind]

    def ends(self, how: str) -> None:
        if how.startswith("SIG"):
            os.kill(os.getpid(), getattr(signal, how))
        os._exit(int(how))

    def prints(self) -> None:
        os.write(1, b"native code prints here")
        print("and Python")

    def path(self) -> list[str]:
        return sys.path

    def kept(self) -> list[str]:
        """Descriptors, handlers and threads of the process that started this one."""
        files = [os.path.realpath(f"/proc/self/fd/{name}") for name in os.listdir("/proc/self/fd")]
        handlers = [str(number) for number in (signal.SIGTERM, signal.SIGUSR1) if callable(signal.getsignal(number))]
        return files + handlers + [one.name for one in threading.enumerate() if one is not threading.main_thread()]


def served(start: int = 0) -> Apart:
    return Apart("the runtime", f"{__name__}:Object", start)


VALUES: list[Any] = [
    None, True, 3, 1.5, float("inf"), "text é", b"bytes", (1, "a"), [], {}, {(0, "x"): None, 3: [1]}, Path("a/b"),
    np.arange(6, dtype=np.int16).reshape(2, 3), np.float32(2), np.zeros((2, 0)), np.array(["a", "bc"]), np.array([True]),
    np.array(["a", b"b", None], object), np.arange(4)[::-2], np.ones((), np.complex64),
]  # fmt: skip


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_values_come_back_as_they_went(value: Any) -> None:
    found = served().call("same", value)
    if not isinstance(value, (np.ndarray, np.generic)):
        assert found == value
        assert type(found) is type(value)
    else:
        assert (found.dtype, found.shape, found.tolist()) == (value.dtype, value.shape, value.tolist())


@pytest.mark.parametrize("name", ["bfloat16", "float8_e5m2", "float8_e4m3fn", "int4", "uint4"])
def test_small_types_come_back_as_they_went(name: str) -> None:
    small = np.zeros(3, getattr(pytest.importorskip("ml_dtypes"), name))
    found = served().call("same", small)
    assert found.dtype == small.dtype


def test_arrays_can_be_written_and_are_aligned() -> None:
    first, second = served().call("same", [np.zeros(3, np.int8), np.zeros(3)])
    second[0] = first[0] = 1
    assert second.flags.aligned


def test_an_object_keeps_its_state_between_calls() -> None:
    counter = served(5)
    assert [counter.call("add", 1), counter.call("add", 2)] == [6, 8]


@pytest.mark.parametrize("how", ["SIGFPE", "SIGSEGV", "SIGABRT", "SIGBUS", "SIGILL"])
def test_a_signal_is_an_error_that_names_it_and_the_next_call_has_a_new_object(how: str) -> None:
    counter = served(5)
    counter.call("add", 1)
    with pytest.raises(EndedError, match=f"the runtime ended with signal {how}") as raised:
        counter.call("ends", how)
    assert raised.value.reason.kind is Why.ENDED
    assert (counter.call("add", 1), counter.generation) == (6, 2)


@pytest.mark.parametrize("how", ["SIGKILL", "SIGXCPU"])
def test_a_signal_of_a_system_that_lacks_something_is_a_shortage(how: str) -> None:
    counter = served(5)
    with pytest.raises(ShortageError, match=f"the process was ended by {how}"):
        counter.call("ends", how)
    assert counter.call("add", 1) == 6


def test_an_exit_status_is_one_too() -> None:
    with pytest.raises(EndedError, match="the runtime ended with exit status 3"):
        served().call("ends", "3")


@pytest.mark.parametrize(
    ("kind", "error", "text"),
    [
        ("input", InputError, "operation operand: expected rule, found found"),
        ("conversion", ConversionError, "a file"),
        ("code", OpFailedError, "failed"),
        ("thread", ShortageError, "no thread could be started"),
        ("memory", MemoryError, "much"),
        ("other", RuntimeError, "by 0"),
    ],
)
def test_errors_are_raised_here_as_they_are_there(kind: str, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text) as raised:
        served().call("fails", kind)
    assert type(raised.value) is error


def test_prints_go_to_standard_error(capfd: pytest.CaptureFixture[str]) -> None:
    served().call("prints")
    out, errors = capfd.readouterr()
    assert out == ""
    assert "native code prints here" in errors


@pytest.mark.parametrize("way", ["fresh"], indirect=True)  # A copy has the path of the program, which test_traps tests.
def test_the_current_folder_is_not_imported_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(tmp_path), "", *sys.path])
    monkeypatch.chdir(tmp_path)
    (tmp_path / "json.py").write_text("raise SystemExit('planted')")
    assert {"", str(tmp_path)}.isdisjoint(served().call("path"))


def test_threads_take_turns() -> None:
    counter, found = served(), []
    threads = [threading.Thread(target=lambda: found.append(counter.call("add", 1))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == list(range(1, 9))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no process can fork here")
def test_a_fork_has_a_process_of_its_own() -> None:
    counter = served()
    counter.call("add", 1)
    child = os.fork()
    if child == 0:
        os._exit(counter.call("add", 5))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 5
    assert counter.call("add", 1) == 2


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_nothing_that_is_open_here_is_open_there(tmp_path: Path) -> None:
    old = [signal.signal(number, lambda *_: None) for number in (signal.SIGTERM, signal.SIGUSR1)]
    try:
        with (tmp_path / "open").open("w") as file:
            os.set_inheritable(file.fileno(), True)
            found = served().call("kept")
            assert [one for one in found if str(tmp_path) in one or one.isdecimal() or "Thread" in one] == []
    finally:
        for number, handler in zip((signal.SIGTERM, signal.SIGUSR1), old, strict=True):
            signal.signal(number, handler)


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere no process is a copy")
@pytest.mark.parametrize(
    ("before", "copies"),
    [
        ("platforms.begin_program()", True),
        ("", False),  # A program that imports nnbridge.
        ("platforms.begin_program(); threading.Thread(target=threading.Event().wait, daemon=True).start()", False),
        ("platforms.begin_program(); os.environ['LD_LIBRARY_PATH'] = '/usr/lib:'", False),
        ("platforms.begin_program(); os.environ['PYTHONPATH'] = 'relative'", False),
    ],
    ids=["a program", "another's program", "a thread", "libraries of the current folder", "modules of the current folder"],
)
def test_only_a_program_without_threads_and_odd_paths_is_copied(before: str, copies: bool) -> None:
    program = f"import os, threading\nfrom nnbridge import platforms\n{before}\nprint(platforms.copies_safely())"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(copies)


# -- runtimes -----------------------------------------------------------------------------------------------------------

LOWEST, LOWEST64 = np.iinfo(np.int32).min, np.iinfo(np.int64).min
DIVISIONS = [("FLOOR_MOD", "int32", LOWEST, -1), ("FLOOR_MOD", "int64", LOWEST64, -1)]


def division(folder: Path, operator: str, type: str) -> Path:
    graph = TfliteBuilder()
    x, y, z = (graph.tensor((3,), type, name=name) for name in "xyz")
    graph.operator(operator, [x, y], [z], {})
    return graph.write(folder / f"{operator}.tflite", [x, y], [z])


def nnbridge(*arguments: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run([NNBRIDGE, *map(str, arguments)], capture_output=True, text=True, timeout=300)


def fed(folder: Path, type: str, low: int, divisor: int) -> list[Any]:
    np.save(folder / "x.npy", np.array([low, 7, -7], type))
    np.save(folder / "y.npy", np.array([divisor, 2, 2], type))
    return ["--input", f"x={folder / 'x.npy'}", "--input", f"y={folder / 'y.npy'}"]


@pytest.mark.parametrize(("operator", "type", "low", "divisor"), DIVISIONS)
def test_a_division_that_ends_litert_is_a_message(tmp_path: Path, operator: str, type: str, low: int, divisor: int) -> None:
    pytest.importorskip("ai_edge_litert")
    path, inputs = division(tmp_path, operator, type), fed(tmp_path, type, low, divisor)
    compared = nnbridge("compare", path, "--reference", "litert", *inputs)
    assert compared.returncode == 2
    assert "LiteRT ended with signal SIGFPE" in compared.stderr
    assert "z " in compared.stdout
    for host in ((), ("--host", "litert"), ("--host", "auto")):
        ran = nnbridge("run", path, *host, *inputs)
        assert (ran.returncode, "LiteRT ended with signal SIGFPE" in ran.stderr) == (2, True)
    assert nnbridge("run", path, "--host", "nnbridge", *inputs).returncode == 0


def test_samples_beside_the_one_that_ends_litert_are_compared(tmp_path: Path) -> None:
    pytest.importorskip("ai_edge_litert")
    path = division(tmp_path, "FLOOR_MOD", "int32")
    x = np.array([[5, 7, -7], [LOWEST, 7, -7], [6, 7, -7]], np.int32)
    np.savez(tmp_path / "in.npz", **{"input:x": x, "input:y": np.tile(np.array([-1, 2, 2], np.int32), (3, 1))})
    done = nnbridge("compare", path, "--reference", "litert", "--input", tmp_path / "in.npz", "--json")
    assert done.returncode == 2, done.stderr
    found = json.loads(done.stdout)
    assert found["samples"] == 2
    assert [row["sample"] for row in found["ended"]] == ["in.npz 1"]
    assert found["ended"][0]["reason"] == "LiteRT ended with signal SIGFPE"
    assert found["within"] is False


def test_layers_of_a_file_with_resource_variables_are_those_that_hold_numbers(tmp_path: Path) -> None:
    pytest.importorskip("ai_edge_litert")
    main = TfliteBuilder()
    x, y, read = (main.tensor((1, 4), name=name) for name in ("x", "y", "read"))
    first = main.beside()
    handle = first.tensor((), "RESOURCE", name="state")
    first.operator("VAR_HANDLE", [], [handle], {"container": "", "shared_name": "s"})
    first.operator("ASSIGN_VARIABLE", [handle, first.constant(np.ones((1, 4), np.float32))], [], {})
    main.operator("CALL_ONCE", [], [], {"init_subgraph_index": main.add(first, [], [])})
    own = main.tensor((), "RESOURCE", name="state")
    main.operator("VAR_HANDLE", [], [own], {"container": "", "shared_name": "s"})
    main.operator("READ_VARIABLE", [own], [read], {})
    main.operator("ADD", [read, x], [y], {"fused_activation_function": 0})
    main.operator("ASSIGN_VARIABLE", [own, y], [], {})
    path = main.write(tmp_path / "states.tflite", [x], [y])
    done = nnbridge("compare", path, "--reference", "litert", "--layers", "--json", "--seeds", "0")
    assert done.returncode == 0, done.stderr
    assert "y" in {layer["tensor"] for layer in json.loads(done.stdout)["layers"]}
    report = nnbridge("report", path, "--reference", "litert", "-o", tmp_path / "r.html")
    assert (report.returncode, (tmp_path / "r.html").exists()) == (0, True)


def test_what_creating_raises_comes_with_the_first_use_where_no_one_waits() -> None:
    apart = Apart("a number", "builtins:int", "x", wait=False)
    with pytest.raises(RuntimeError, match="invalid literal"):
        apart.start()
    with pytest.raises(RuntimeError, match="invalid literal"):  # by another process
        apart.call("bit_length")
    assert apart.generation == 2
    good = Apart("a number", "builtins:int", "12", wait=False)
    assert good.call("bit_length") == 4
    assert (good.start(), good.generation) == (1, 1)


@pytest.mark.parametrize("number", [errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.ENOSPC])
def test_a_process_that_cannot_start_ahead_is_missed_by_what_needs_one(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(apart, "copies_safely", lambda: True)
    monkeypatch.setattr(apart.subprocess, "Popen", fail)
    apart.prepare()
    with pytest.raises(ShortageError):
        apart.Apart("It", "builtins:list")
