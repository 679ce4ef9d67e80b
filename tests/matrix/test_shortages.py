"""Cells, cases and runs that this machine has no memory, descriptor, thread, process or space for: exit status 2, and never 1."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nnbridge import plan, storage
from nnbridge.ahead import in_order
from nnbridge.conformance.run import Setting, run_case
from nnbridge.devices import cpu
from nnbridge.errors import NO_SUCH_FILE, InputError, OutOfMemoryError, Reason, ShortageError, lacking
from nnbridge.matrix import Store, run
from nnbridge.matrix.cells import MatrixSettings, Task, compute_all, tasks
from nnbridge.matrix.tables import judgement
from nnbridge.processes import computed
from tests.commands import call
from tests.conftest import MODELS, REPOSITORY
from tests.graphs import add_then
from tests.test_shortages import DIGITS, NO_THREAD, SHORT, command, limited

FAST = "nnapi-sample_float_fast"


def no_memory_for_a_buffer() -> Exception:
    error = OutOfMemoryError(Reason("memory for a buffer of 9 bytes", "none"))
    error.__cause__ = MemoryError()
    return error


KINDS = {**SHORT, "memory": MemoryError(), "a buffer": no_memory_for_a_buffer(), "another's": ShortageError("no space is left")}
kinds = pytest.mark.parametrize("error", KINDS.values(), ids=KINDS)


def raising(error: Exception) -> Any:
    def act(*_: object, **__: object) -> None:
        raise error

    return act


@pytest.fixture
def group(tmp_path: Path) -> list[Task]:
    storage.save(add_then(), tmp_path / "a.nnapi")
    ((*found,),) = tasks({"a": tmp_path / "a.nnapi"}, [FAST, "nnapi-sample_quant"], [8], MatrixSettings())
    return found


@kinds
@pytest.mark.parametrize("where", ["plan", "_Opened", "compare"])
def test_a_cell_for_which_something_lacks_is_none_that_failed(
    group: list[Task], monkeypatch: pytest.MonkeyPatch, error: Exception, where: str
) -> None:
    if where == "compare":
        group = [Task(**{**vars(task), "settings": MatrixSettings(reference="auto")}) for task in group]
        where = "plan"
    monkeypatch.setattr(f"nnbridge.matrix.cells.{where}", raising(error))
    cells = list(compute_all(group))
    assert [cell.shortage for cell in cells] == [True, True]
    status, text = judgement(cells, {})
    assert (status, text) == (2, "2 cells for which this machine lacked something (run it again)")


@pytest.mark.parametrize("error", [InputError("x"), ValueError("x"), FileNotFoundError(2, NO_SUCH_FILE)], ids=repr)
def test_another_failure_is_one(group: list[Task], monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    monkeypatch.setattr("nnbridge.matrix.cells.plan", raising(error))
    cells = list(compute_all(group))
    assert ([cell.shortage for cell in cells], judgement(cells, {})) == ([False, False], (1, "2 cells failed"))


def test_the_next_run_computes_such_a_cell_again(group: list[Task], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nnbridge.matrix.runner.compute", lambda groups, *_: zip(groups[0], compute_all(groups[0]), strict=True))
    with monkeypatch.context() as short, Store(tmp_path / "m.db") as store:
        short.setattr("nnbridge.matrix.cells.plan", raising(MemoryError()))
        assert [cell.error for cell in run([group], store)] == ["not enough memory"] * 2
        assert store.all() == []
    with Store(tmp_path / "m.db") as store:
        assert [cell.error for cell in run([group], store)] == ["", ""]


def test_the_command_has_its_outputs_and_ends_with_2(group: list[Task], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def compute(groups: list[list[Task]], *_: object) -> Iterator[Any]:
        with pytest.MonkeyPatch.context() as short:
            (first,), (rest,) = zip(groups[0][:1], compute_all(groups[0][:1]), strict=True), groups[0][1:]
            yield first
            short.setattr("nnbridge.matrix.cells.plan", raising(MemoryError()))
            yield rest, *compute_all([rest])

    monkeypatch.setattr("nnbridge.matrix.runner.compute", compute)
    devices = ["--devices", f"{FAST},nnapi-sample_quant"]
    paths = ["--store", tmp_path / "m.db", "--csv", tmp_path / "m.csv"]
    done = call("matrix", tmp_path / "a.nnapi", *devices, *paths, "--json")
    assert (done.exit_code, "nnbridge: not enough memory" in done.stderr) == (2, True)
    assert [cell["shortage"] for cell in json.loads(done.stdout)["cells"]] == [False, True]
    assert (tmp_path / "m.csv").read_text().count("\n") == 3


@pytest.mark.skipif(sys.platform != "linux", reason="limits as Linux has them")
@pytest.mark.parametrize(
    ("limit", "value"),
    [("RLIMIT_NOFILE", 5), ("RLIMIT_NOFILE", 10), ("RLIMIT_NOFILE", 16), ("RLIMIT_AS", 300 << 20), ("RLIMIT_AS", 500 << 20)],
)
def test_a_process_that_lacks_something_has_no_failed_comparison(tmp_path: Path, limit: str, value: int) -> None:
    options = ("--devices", FAST, "--reference", "litert", "--store", tmp_path / "m.db", "--jobs", "1")
    done = command("matrix", DIGITS, *options, preexec_fn=limited(limit, value))
    assert done.returncode in (0, 2), done.stderr
    assert "internal error" not in done.stderr


# -- processes and threads ----------------------------------------------------------------------------------------------


@pytest.fixture
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests, for other processes: none has the current folder on its path."""
    monkeypatch.setenv("PYTHONPATH", str(REPOSITORY))


def ends(request: int) -> Iterator[int]:
    """In another process: its end by a signal, or a status."""
    if request < 0:
        os.kill(os.getpid(), -request)
    os._exit(request)


@pytest.mark.skipif(sys.platform == "win32", reason="signals as Unix has them")
@pytest.mark.parametrize("name", ["SIGKILL", "SIGXCPU"])
@pytest.mark.usefixtures("importable")
def test_a_process_that_the_system_ends_is_a_shortage(name: str) -> None:
    with pytest.raises(ShortageError, match=f"the process was ended by {name}"):
        list(computed(f"{__name__}:ends", [-getattr(signal, name)], 1))


@pytest.mark.usefixtures("importable")
def test_a_process_that_ends_otherwise_is_none() -> None:
    with pytest.raises(RuntimeError, match="a process ended while it computed: the process ended with status 3"):
        list(computed(f"{__name__}:ends", [3], 1))


@pytest.mark.parametrize("error", [SHORT["processes"], SHORT["descriptors"], SHORT["the kernel's memory"]], ids=repr)
def test_no_process_is_a_shortage(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    monkeypatch.setattr(subprocess, "Popen", raising(error))
    with pytest.raises(ShortageError):
        list(computed(f"{__name__}:ends", [0], 1))


@pytest.mark.parametrize("started", [0, 1, 2])
def test_no_thread_is_a_shortage_and_those_that_were_started_end(monkeypatch: pytest.MonkeyPatch, started: int) -> None:
    import threading

    start, left = threading.Thread.start, iter([True] * started)

    def refuse(thread: threading.Thread) -> None:
        if not next(left, False):
            raise NO_THREAD
        start(thread)

    monkeypatch.setattr("threading.Thread.start", refuse)
    with pytest.raises(ShortageError, match="no thread could be started"):
        list(in_order(abs, range(9), 3))
    found = plan(MODELS / "digits_float32.tflite")
    with pytest.raises(ShortageError, match="no thread could be started"):
        list(found.map([{}], threads=1))


@kinds
def test_a_conformance_case_is_not_blamed(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    from types import SimpleNamespace

    monkeypatch.setattr("nnbridge.conformance.run.build", raising(error))
    case: Any = SimpleNamespace(suite="s", spec="s", name="n", operations=(), expects_failure=True)
    with pytest.raises(ShortageError):
        run_case(case, Setting(cpu()))


@kinds
def test_what_lacks_has_one_exception(error: Exception) -> None:
    assert isinstance(lacking(error), ShortageError)
