"""Shortages of a process are errors of a kind of their own: no file, driver or model is blamed, and no comparison has failed."""

from __future__ import annotations

import ast
import errno
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nnbridge.devices.device import Device
from nnbridge.errors import InputError, PackageError, ShortageError, pass_shortage, shortage_of
from nnbridge.ndk import core
from nnbridge.runtime.compilation import Compilation
from nnbridge.runtime.event import Event
from nnbridge.runtime.execution import Execution
from nnbridge.storage.atomic import atomic_write, written_together
from nnbridge.storage.temporary import TemporaryFolder
from nnbridge.types import ResultCode
from tests.devices.test_wrong_answers import Does, raises
from tests.graphs import add_then

ROOT = Path(__file__).parents[1]
NNBRIDGE = Path(sys.executable).with_name("nnbridge")
DIGITS = ROOT / "models/digits_float32.tflite"

NO_THREAD = RuntimeError("can't start new thread")
SHORT: dict[str, Exception] = {
    "descriptors": OSError(errno.EMFILE, "Too many open files"),
    "the machine's files": OSError(errno.ENFILE, "Too many open files in system"),
    "processes": BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable"),
    "threads": NO_THREAD,
    "size of files": OSError(errno.EFBIG, "File too large"),
    "the disk": OSError(errno.ENOSPC, "No space left on device"),
    "the kernel's memory": OSError(errno.ENOMEM, "Cannot allocate memory"),
}
short = pytest.mark.parametrize("error", SHORT.values(), ids=SHORT)


def command(*arguments: Any, **how: Any) -> subprocess.CompletedProcess[str]:
    """``nnbridge`` in a process of its own."""
    return subprocess.run([NNBRIDGE, *map(str, arguments)], capture_output=True, text=True, timeout=120, **how)


def limited(name: str, value: int) -> Any:
    """Set a limit in a child."""
    resource = pytest.importorskip("resource")
    return lambda: resource.setrlimit(getattr(resource, name), (value, value))


# -- errors of the system -----------------------------------------------------------------------------------------------


@short
def test_what_the_system_lacks_is_a_shortage(error: Exception) -> None:
    assert shortage_of(error) is not None
    with pytest.raises(ShortageError):
        pass_shortage(error)


@pytest.mark.parametrize(
    "error",
    [
        FileNotFoundError(errno.ENOENT, "x"),
        PermissionError(errno.EACCES, "x"),
        RuntimeError("another"),
        ValueError("x"),
        OSError(),
    ],
    ids=repr,
)
def test_other_errors_are_none(error: Exception) -> None:
    assert shortage_of(error) is None
    pass_shortage(error)


def computed(device: Device) -> None:
    """A compilation that may fall back, and a run."""
    compilation = Compilation.create(add_then(), [device])
    compilation.finish()
    Execution(compilation).run([np.zeros((1, 4), np.float32)])


@short
def test_a_driver_is_not_blamed_for_what_this_process_lacks(error: Exception) -> None:
    for does in ({"supports": raises(error)}, {"prepares": raises(error)}, {"runs": raises(error)}):
        with pytest.raises(ShortageError):
            computed(Does("short", **does))


@short
def test_a_client_in_c_gets_a_code_of_shortages(error: Exception) -> None:
    @core.function()
    def _body() -> None:
        raise error

    assert _body() in (ResultCode.RESOURCE_EXHAUSTED_TRANSIENT, ResultCode.OUT_OF_MEMORY)


def test_an_execution_without_a_thread_is_over_and_its_event_holds_no_descriptor(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: object) -> None:
        raise NO_THREAD

    before = len(os.listdir("/proc/self/fd")) if os.path.exists("/proc/self/fd") else None
    monkeypatch.setattr("threading.Thread.start", refuse)
    with pytest.raises(ShortageError, match="no thread could be started"):
        Event(lambda: None, fence=True)
    assert before is None or len(os.listdir("/proc/self/fd")) == before


def handlers(path: Path) -> list[tuple[int, ast.ExceptHandler]]:
    """The handlers of a module that catch every error and pass none on."""
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        caught = ast.unparse(node.type) if isinstance(node, ast.ExceptHandler) and node.type is not None else ""
        if isinstance(node, ast.ExceptHandler) and {"Exception", "_CRASHES"} & set(caught.replace(",", " ").strip("()").split()):
            found.append((node.lineno, node))
    return found


_SEE_ALL = {
    "cli/commands/__init__.py", "delegate/glue.py", "provider/glue.py", "ndk/core.py", "neuron/dispatch.py", "embedding.py",
    "matrix/cells.py", "runtime/event.py", "devices/remote/server.py", "native_process.py", "reduction/simplifying.py",
    "runtime/execution.py", "apart.py", "nnbridge/processes.py",
}  # fmt: skip
"""Where errors end: these say what is short in their own way (the tests above and below), or have nothing that can be short."""


def test_every_handler_of_all_errors_passes_shortages_on() -> None:
    silent = []
    for path in (*(ROOT / "src").rglob("*.py"), *(ROOT / "converters").rglob("*.py")):
        if any(str(path).endswith(ending) for ending in _SEE_ALL):
            continue
        passing = [(line, {name.id for name in ast.walk(node) if isinstance(name, ast.Name)}) for line, node in handlers(path)]
        silent += [f"{path.name}:{line}" for line, names in passing if not {"pass_shortage", "lacking"} & names]
    assert not silent


_CODES = {
    "runtime/event.py",
    "runtime/memory.py",
    "remote/client.py",
    "remote/system.py",
    "remote/wire.py",
    "remote/session.py",
    "remote/server.py",
}
"""Where NNAPI, or the messages between driver and client, have a code of their own for a descriptor or memory of others."""


_END = {
    "cli/commands/__init__.py", "ndk/core.py", "ndk/trace.py", "neuron/dispatch.py", "remote/__main__.py", "apart.py",
    "reader.py", "devices/__init__.py", "matrix/cells.py", "glue.py",
}  # fmt: skip
"""Where errors of any kind end, as a code, a message or a line of a log, or are raised again."""


def test_what_tries_and_goes_on_without_does_so_for_refusals_only() -> None:
    silent = []
    for path in (*(ROOT / "src").rglob("*.py"), *(ROOT / "converters").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ExceptHandler) and node.type is not None and not str(path).endswith(tuple(_END)):
                silent += [f"{path.name}:{node.lineno}"] if "NnbridgeError" in ast.unparse(node.type) else []
    assert not silent


def test_errors_of_files_pass_shortages_on() -> None:
    silent = []
    for path in (*(ROOT / "src").rglob("*.py"), *(ROOT / "converters").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.ExceptHandler) or node.type is None or str(path).endswith(tuple(_CODES)):
                continue
            caught, text = ast.unparse(node.type).replace(",", " ").strip("()").split(), ast.unparse(node)
            raises_another = any(isinstance(one, ast.Raise) and one.exc is not None for one in ast.walk(node))
            if "OSError" in caught and raises_another and "pass_shortage" not in text and "cannot_read" not in text:
                silent.append(f"{path.name}:{node.lineno}")
    assert not silent


# -- commands -----------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(sys.platform != "linux", reason="limits of file sizes are those of memory files on Linux")
@pytest.mark.parametrize("verb", [("plan",), ("run", "--seed", "0"), ("compare", "--reference", "litert")], ids=lambda v: v[0])
def test_no_memory_file_for_a_driver_is_one_message(verb: tuple[str, ...]) -> None:
    name, *options = verb
    done = command(name, DIGITS, "--device", "process:nnapi-sample_all", *options, preexec_fn=limited("RLIMIT_FSIZE", 1024))
    assert (done.returncode, done.stdout) == (2, "")
    assert "no memory to share with a driver's process" in done.stderr
    assert "wrong" not in done.stderr


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no device that is always full")
@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        (("run", DIGITS, "--seed", "0", "-v"), 0),
        (("plan", "nothing.tflite"), 2),
        (("plan", "--nothing"), 2),
        (("nothing",), 2),
        ((), 0),
        (("--help",), 0),
    ],
    ids=lambda found: " ".join(map(str, found))[-20:] if isinstance(found, tuple) else str(found),
)
@pytest.mark.parametrize("how", ["full", "closed", "no reader"])
def test_a_standard_error_that_cannot_be_written_changes_no_exit_status(arguments: Any, status: int, how: str) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with open("/dev/full", "wb") as full, os.fdopen(writer, "wb") as broken:
        closed = {"preexec_fn": lambda: os.close(2)}
        streams: Any = closed if how == "closed" else {"stderr": full if how == "full" else broken}
        done = subprocess.run([NNBRIDGE, *map(str, arguments)], stdout=subprocess.PIPE, timeout=120, **streams)
    assert done.returncode == status


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no device that is always full")
@pytest.mark.parametrize("arguments", [("--help",), ("--version",), ("plan", "--help"), ("devices",), ("plan", DIGITS)], ids=str)
def test_a_standard_output_that_cannot_be_written_is_no_failed_comparison(arguments: Any) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    for stream, status in ((os.open("/dev/full", os.O_WRONLY), 2), (writer, 141)):
        done = subprocess.run([NNBRIDGE, *map(str, arguments)], stdout=stream, stderr=subprocess.PIPE, timeout=120)
        os.close(stream)
        assert done.returncode == status


LIBRARY = "libopenblas.so: failed to map segment from shared object"


@pytest.mark.parametrize(
    "error",
    [
        ImportError(LIBRARY),
        ImportError(f"Importing the numpy C-extensions failed.\n\nOriginal error was: {LIBRARY}"),
        ImportError("onnx_cpp2py_export.so: cannot allocate memory in static TLS block"),
        ImportError("libx.so: cannot open shared object file: Too many open files"),
    ],
    ids=lambda error: str(error)[-30:],
)
def test_a_package_that_cannot_be_loaded_for_lack_of_memory_is_not_missing(error: ImportError) -> None:
    with pytest.raises(ShortageError, match="to load a library"):
        raise PackageError.needed("ONNX Runtime", "onnxruntime", error, "host")


def test_a_package_that_is_missing_is_named() -> None:
    with pytest.raises(PackageError, match="pip install onnxruntime"):
        raise PackageError.needed("ONNX Runtime", "onnxruntime", ImportError("No module named 'onnxruntime'"), "host")


@pytest.mark.skipif(sys.platform != "linux", reason="other systems bound no address space")
@pytest.mark.parametrize("megabytes", [48, 64, 80, 96, 112, 128])
@pytest.mark.parametrize("arguments", [("--version",), ("compare", DIGITS, "--reference", "litert")], ids=lambda a: a[0])
def test_an_address_space_that_is_too_small_is_one_message(arguments: tuple[Any, ...], megabytes: int) -> None:
    done = command(*arguments, preexec_fn=limited("RLIMIT_AS", megabytes << 20))
    assert done.returncode == 2, done.stderr
    assert done.stderr.splitlines()[-1] == "nnbridge: not enough memory"
    assert "NumPy" not in done.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="other systems bound no address space")
@pytest.mark.parametrize(
    ("end", "status"),
    [
        ("ctypes.CDLL(None).exit(1)", 2),  # as OpenBLAS does without memory
        ("ctypes.CDLL(None).exit(0)", 2),
        ("sys.exit(0)", 0),
        ("sys.exit(1)", 1),
        ("sys.exit(2)", 2),
        ("sys.exit('words')", 2),
        ("print('printed')", 0),
        ("1 / 0", 2),
    ],
)
def test_only_a_failed_comparison_ends_with_1_where_memory_is_limited(tmp_path: Path, end: str, status: int) -> None:
    code = f"""if True:
        import ctypes, sys
        import nnbridge.cli as cli
        cli._run = lambda: exec({end!r})
        cli.main()"""
    done = subprocess.run(
        [sys.executable, "-c", code], preexec_fn=limited("RLIMIT_AS", 2 << 30), capture_output=True, text=True, timeout=60
    )
    assert done.returncode == status, done.stderr
    assert done.stdout == ("printed\n" if "print" in end else "")


@pytest.mark.skipif(sys.platform != "linux", reason="limits as Linux has them")
@pytest.mark.parametrize("kind", ["no thread", "no library", "no memory"])
def test_the_onnx_checker_is_not_blamed_for_what_the_machine_lacks(tmp_path: Path, kind: str) -> None:
    pytest.importorskip("onnx")
    from nnbridge_onnx import native, native_process

    lacks = {
        "no thread": "module.faulthandler.dump_traceback_later = fail(RuntimeError)",
        "no library": "module._native = fail(ImportError, 'x.so: failed to map segment from shared object')",
        "no memory": "module._acts = lambda _: {module.INFER: fail(MemoryError)}; module._limit_memory = lambda *_: False",
    }[kind]
    script = tmp_path / "native_process.py"
    script.write_text(
        f"import importlib.util, sys\nspec = importlib.util.spec_from_file_location('real', {native_process.__file__!r})\n"
        "module = importlib.util.module_from_spec(spec)\nsys.modules['real'] = module\nspec.loader.exec_module(module)\n"
        "def fail(error, *words):\n    def act(*_, **__):\n        raise error(*words)\n    return act\n"
        f"{lacks}\nmodule.main()\n"
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(native, "__file__", str(tmp_path / "native.py"))
        answer = native._NativeProcess(Path("onnx")).ask(native_process.INFER, b"x")
    for _ in range(2):  # An error that is kept is raised again.
        with pytest.raises(ShortageError, match="shape inference of the onnx package"):
            answer.get()


@pytest.mark.skipif(sys.platform != "linux", reason="limits of file sizes as Linux has them")
@pytest.mark.parametrize("size", [0, 1, 1024, 8192])
def test_a_store_that_cannot_be_written_is_a_shortage_and_leaves_no_file(tmp_path: Path, size: int) -> None:
    store = tmp_path / "m.db"
    done = command("matrix", DIGITS, "--devices", "nnapi-sample_all", "--store", store, "--jobs", "1",
                   preexec_fn=limited("RLIMIT_FSIZE", size))  # fmt: skip
    assert done.returncode == 2, done.stderr
    assert "disk I/O error" in done.stderr or "full" in done.stderr
    assert "expected" not in done.stderr
    assert list(tmp_path.iterdir()) == []


# -- files that are written ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [1, 200, 201, 244, 245, 246, 247, 250, 254, 255])
def test_every_name_that_a_file_system_takes_can_be_written(tmp_path: Path, length: int) -> None:
    for name in ("a" * length, "é" * (length // 2) + "b" * (length % 2)):
        with atomic_write(tmp_path / name) as file:
            file.write(b"1")
        assert [path.name for path in tmp_path.iterdir()] == [name]
        (tmp_path / name).unlink()


def test_a_long_name_that_is_no_unicode_can_be_written(tmp_path: Path) -> None:
    path = tmp_path / os.fsdecode(b"\xff" * 250)
    try:
        path.write_bytes(b"")
    except OSError:
        pytest.skip("this file system has names in Unicode alone")
    with atomic_write(path) as file:
        file.write(b"1")
    assert path.read_bytes() == b"1"


def write_two(folder: Path) -> None:
    for name in "ab":
        with atomic_write(folder / name) as file:
            file.write(b"1")


def test_files_of_one_command_appear_together_or_not_at_all(tmp_path: Path) -> None:
    def fail() -> None:
        with written_together():
            write_two(tmp_path)
            raise InputError("the third cannot be computed")

    with pytest.raises(InputError):
        fail()
    assert not list(tmp_path.iterdir())
    with written_together(), written_together():
        write_two(tmp_path)
        assert not (tmp_path / "a").exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]


@pytest.mark.skipif(sys.platform == "win32", reason="Windows ends processes without a signal")
@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT", "SIGHUP"])
def test_a_signal_leaves_no_temporary_file(tmp_path: Path, name: str) -> None:
    code = f"""
import signal, sys, time
from pathlib import Path
import nnbridge.cli.commands as commands
from nnbridge.cli import main
from nnbridge.storage.atomic import atomic_write
if signal.getsignal(signal.{name}) == signal.SIG_IGN:  # by nohup, or in a shell's background
    signal.signal(signal.{name}, signal.default_int_handler if "{name}" == "SIGINT" else signal.SIG_DFL)  # as Python starts
def slow(**_):
    with atomic_write(Path({str(tmp_path / "x")!r})) as file:
        file.write(b"1")
        print("writing", flush=True)
        time.sleep(60)
commands.cli.callback = slow
sys.argv = ["nnbridge", "devices"]
main()
"""
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert child.stdout is not None
    assert child.stdout.readline() == b"writing\n"
    child.send_signal(getattr(signal, name))
    assert child.wait(30) in (130, -getattr(signal, name))
    assert not list(tmp_path.iterdir())
    child.stdout.close()


def test_extract_that_fails_leaves_no_file(tmp_path: Path) -> None:
    from tests.tflite.files import TfliteBuilder

    graph = TfliteBuilder()
    x, y, z = (graph.tensor((1, 4), name=name) for name in "xyz")
    graph.operator("FLOOR", [x], [y], {})
    graph.operator("FLOOR", [y], [z], {})
    path = graph.write(tmp_path / "m.tflite", [x], [z])
    done = command("extract", path, "--operators", "0", "-o", tmp_path / "e.tflite", "--samples", tmp_path / "no/folder.npz")
    assert done.returncode == 2
    assert [found.name for found in tmp_path.iterdir()] == ["m.tflite"]


# -- pipes, devices and rings of links ----------------------------------------------------------------------------------


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no pipes among its files")
@pytest.mark.parametrize("device", ["/dev/null", "/dev/zero"])
def test_a_device_takes_what_is_packed(device: str) -> None:
    import zipfile

    with atomic_write(Path(device)) as file, zipfile.ZipFile(file, "w") as packed:
        packed.writestr("a", b"1")
        packed.writestr("b", b"2")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes among files")
@pytest.mark.parametrize("size", [1, 100, 1 << 20])
def test_a_pipe_without_a_reader_is_waited_for_with_a_word(tmp_path: Path, caplog: pytest.LogCaptureFixture, size: int) -> None:
    import threading

    path, found = tmp_path / "pipe", []
    os.mkfifo(path)

    def read() -> None:
        while "waiting" not in caplog.text:
            time.sleep(0.01)
        found.append(path.read_bytes())

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    with atomic_write(path) as file:
        file.write(b"x" * size)
    reader.join(20)
    assert found == [b"x" * size]
    assert "is a pipe: waiting for a program that reads it" in caplog.text


@pytest.mark.skipif(sys.platform == "win32", reason="links as Unix has them")
@pytest.mark.parametrize(
    "arguments",
    [
        ("convert", DIGITS, "-o", "RING.nnapi"),
        ("convert", DIGITS, "-o", "RING.json.gz"),
        ("report", DIGITS, "-o", "RING.html"),
        ("run", DIGITS, "--seed", "0", "--samples", "RING.npz"),
        ("matrix", DIGITS, "--devices", "nnapi-sample_all", "--store", "RING.db", "--jobs", "1"),
        ("plan", "RING.tflite"),
    ],
    ids=lambda words: words[0] + str(words[-1]),
)
def test_a_ring_of_links_is_no_file(tmp_path: Path, arguments: tuple[Any, ...]) -> None:
    words = [str(word).replace("RING", str(tmp_path / "ring")) for word in arguments]
    (ring,) = (Path(word) for word in words if "ring" in word and word.startswith(str(tmp_path)))
    ring.symlink_to(ring)
    done = command(*words)
    assert done.returncode == 2
    assert "internal error" not in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == [ring.name]


# -- folders of temporary files -----------------------------------------------------------------------------------------


def filled(folder: str) -> None:
    """Files, folders in folders, and a link out of the folder."""
    deep = Path(folder, "a", "b")
    deep.mkdir(parents=True)
    (deep / "file").write_text("x")
    Path(folder, "out").symlink_to(ROOT)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="descriptors are counted on Unix")
def test_a_temporary_folder_is_removed_where_no_descriptor_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    resource = pytest.importorskip("resource")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    folder, taken, limits = TemporaryFolder(), [], resource.getrlimit(resource.RLIMIT_NOFILE)
    filled(folder.name)
    resource.setrlimit(resource.RLIMIT_NOFILE, (128, limits[1]))
    try:
        with suppress(OSError):
            while True:
                taken.append(os.open(os.devnull, os.O_RDONLY))
        with pytest.raises(OSError, match="Too many open files"):
            TemporaryFolder()
        with folder:
            pass
        left = os.open(os.devnull, os.O_RDONLY)  # what removing has used and given back
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        for descriptor in taken:
            os.close(descriptor)
    os.close(left)
    assert list(tmp_path.iterdir()) == []
    assert DIGITS.exists()


@pytest.mark.parametrize("end", ["del folder", "pass", "raise SystemExit(2)", "raise KeyboardInterrupt"])
def test_a_temporary_folder_ends_with_its_object_or_process(tmp_path: Path, end: str) -> None:
    code = f"from nnbridge.storage.temporary import TemporaryFolder as T\nfolder = T()\nopen(folder.name + '/f', 'w')\n{end}"
    subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "TMPDIR": str(tmp_path)}, stderr=subprocess.DEVNULL, check=False
    )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no copies of processes")
def test_a_copy_of_the_process_removes_no_folder(tmp_path: Path) -> None:
    code = """if True:
        import os
        from nnbridge.storage.temporary import TemporaryFolder
        with TemporaryFolder() as name:
            if os.fork() == 0:
                raise SystemExit(0)
            os.wait()
            print(os.path.exists(name))"""
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "TMPDIR": str(tmp_path)}, capture_output=True, text=True
    )
    assert done.stdout == "True\n"
    assert list(tmp_path.iterdir()) == []


def test_temporary_folders_are_created_in_one_place() -> None:
    users = {
        path.name
        for path in (*(ROOT / "src").rglob("*.py"), *(ROOT / "converters").rglob("*.py"))
        if "TemporaryDirectory" in (text := path.read_text(encoding="utf-8")) or "mkdtemp" in text
    }
    assert users == {"temporary.py"}


# -- workers ------------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(not os.path.exists("/proc"), reason="children are looked for in /proc")
def test_workers_of_a_matrix_end_quietly_with_their_parent(tmp_path: Path) -> None:
    errors = tmp_path / "errors"
    with errors.open("wb") as file:
        child = subprocess.Popen(
            [NNBRIDGE, "matrix", DIGITS.parent, "--devices", "nnapi-sample_all,nnapi-sample_quant", "--store", tmp_path / "m.db"],
            stdout=subprocess.DEVNULL, stderr=file,
        )  # fmt: skip
        workers: list[int] = []
        for _ in range(300):
            workers = children(child.pid)
            if len(workers) > 1 or child.poll() is not None:
                break
            time.sleep(0.1)
        child.kill()
        child.wait()
    assert workers
    for _ in range(200):
        if not any(Path(f"/proc/{worker}").exists() for worker in workers):
            break
        time.sleep(0.1)
    assert not [worker for worker in workers if Path(f"/proc/{worker}").exists()]
    assert b"Traceback" not in errors.read_bytes()


def children(parent: int) -> list[int]:
    """The processes that a process has started."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[1]) == parent:
                found.append(int(entry.name))
    return found


def test_a_matrix_without_processes_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from nnbridge.matrix import workers

    def refuse(*arguments: object, **settings: object) -> None:
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    monkeypatch.setattr("subprocess.Popen", refuse)
    with pytest.raises(ShortageError, match="no process could be started"):
        list(workers.compute([[object()]], 1, 1.0))  # type: ignore[list-item]
