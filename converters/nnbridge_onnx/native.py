"""The onnx package's native code, in a separate process: a crash there becomes an error here.

Shape inference takes numbers of files for addresses and counts, not all of which it looks at first; a file may end the process
that infers, and that is not the user's. The version converter infers too. The process starts with the first file, beside the
import of the package, and serves all files after it; one that a file has ended is replaced. What runs in it is
:mod:`nnbridge_onnx.native_process`.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from nnbridge.errors import InputError, Reason, ShortageError, first_line, pass_shortage
from nnbridge.platforms import after_fork
from nnbridge.trust import environment
from nnbridge_onnx.native_process import CHECK, CHECK_IN, CONVERT, FOLLOW, FULL, HEAD, INFER, INLINE, SHORT, STRICT, WRITE_OUT

BOUNDED = sys.platform == "linux"
"""True where the process's memory is bounded: Windows and macOS bound none so."""
SECONDS = 120.0
"""A model that takes longer is refused."""
REMEMBERED = 8 << 20
"""Bytes of requests and answers that are remembered: files are loaded again, bodies inferred before they are read."""
_PROCESS = "a program of Python's that runs the onnx package's native code (sys.executable)"
_WHAT = {
    INFER: "shape inference",
    FOLLOW: "shape inference",
    CHECK: "the checker",
    CHECK_IN: "the checker",
    CONVERT: "the version converter",
    INLINE: "the inliner",
    WRITE_OUT: "the inliner",
    STRICT: "shape inference",
}


class CrashError(RuntimeError):
    """The process has ended without an answer."""


class LateError(CrashError):
    """It was ended, as it took too long."""


class _Answer:
    """An answer that a process owes; answers come in the order of the requests."""

    def __init__(self, process: _NativeProcess, kind: int) -> None:
        self._process = process
        self._kind = kind
        self._started = time.monotonic()
        self._got: tuple[bool, bytes] | CrashError | ShortageError | None = None

    def get(self) -> tuple[bool, bytes]:
        """True if the act succeeded, and its bytes. CrashError if the process has ended, as it does by an interruption too;
        ShortageError if it could not work."""
        if self._got is None:
            try:
                self._got = self._process.receive()
            except (OSError, EOFError, ValueError) as error:  # ValueError: of pipes that an interruption has closed
                late = time.monotonic() - self._started >= self._process.seconds
                self._got = self._process.ended(_WHAT[self._kind], late)
                self._got.__cause__ = error
            except BaseException:
                self._process.end()
                self._got = CrashError(f"{_WHAT[self._kind]} of the onnx package was interrupted")
                raise
        if isinstance(self._got, (CrashError, ShortageError)):
            raise self._got
        return self._got


class _NativeProcess:
    """A process that runs native code, as long as it lives."""

    def __init__(self, folder: Path, seconds: float = SECONDS) -> None:
        script = Path(__file__).with_name("native_process.py")
        command = [sys.executable, "-I", "-S", str(script), str(folder), str(seconds)]
        # In a session of its own: Ctrl-C at a terminal is for the user's process only.
        self._process = subprocess.Popen(
            command,
            env=environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            pipesize=1 << 20,
            creationflags=getattr(subprocess, "CREATE_NO_WINDOW", 0),
        )
        self.number = self._process.pid
        self.seconds = seconds
        self.end = weakref.finalize(self, _end, self._process)

    def ask(self, kind: int, content: bytes) -> _Answer:
        """The answer that comes."""
        requests = self._process.stdin
        assert requests is not None
        answer = _Answer(self, kind)
        with contextlib.suppress(OSError):  # A process that has ended gives no answer, which is raised there.
            requests.write(HEAD.pack(len(content), kind))
            requests.write(content)
            requests.flush()
        return answer

    def receive(self) -> tuple[bool, bytes]:
        """The next answer's flag and bytes; EOFError if the process has ended."""
        answers = self._process.stdout
        assert answers is not None
        head = answers.read(HEAD.size)
        length, good = HEAD.unpack(head) if len(head) == HEAD.size else (1, False)
        content = answers.read(length)
        if len(content) != length:
            raise EOFError
        return bool(good), content

    @property
    def runs(self) -> bool:
        """False for a process that was ended, by nnbridge or from outside between two requests."""
        return self.end.alive and self._process.poll() is None

    def ended(self, what: str, late: bool) -> CrashError | ShortageError:
        """The error for a process that gives no more answers, of how it ended."""
        status = self._process.wait()
        self.end()
        if status == SHORT:
            return ShortageError(f"no memory, thread or descriptor for {what} of the onnx package (limits of this process)")
        if late:
            return LateError(f"{what} of the onnx package takes more than {self.seconds:g} s")
        how = signal.Signals(-status).name if status < 0 else f"status {status}"
        does = "uses more memory than allowed" if status == FULL else f"crashes ({how})"
        return CrashError(f"{what} of the onnx package {does}")

    def forget(self) -> None:
        """In a forked process: close its ends, and leave the process to the parent.

        Below their buffers, whose locks stay locked here if another thread of the parent was reading or writing.
        """
        self.end.detach()
        self._process.returncode = 0
        for pipe in (self._process.stdin, self._process.stdout):
            # Not the buffer, which another thread may hold, and would write what the parent writes too.
            getattr(pipe, "raw").close()  # noqa: B009 - IO[bytes] does not declare it


@contextlib.contextmanager
def _ended_if_interrupted(process: _NativeProcess) -> Iterator[_NativeProcess]:
    """A process that is ended by an interruption: half a request, or an answer that no one has read, would be the next one's."""
    try:
        yield process
    except BaseException:
        process.end()
        raise


def _nothing() -> None:
    """The action where nothing is asked for."""


def _close(process: subprocess.Popen[bytes]) -> None:
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with contextlib.suppress(OSError):  # What was not yet written has no reader.
                pipe.close()


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    _close(process)
    process.wait()


class _Memory:
    """The last requests and their answers, which are always the same."""

    def __init__(self) -> None:
        self._answers: dict[tuple[int, bytes], tuple[bool, bytes]] = {}
        self._size = 0

    def get(self, kind: int, content: bytes) -> tuple[bool, bytes] | None:
        """The answer, if it is known."""
        return self._answers.get((kind, content))

    def put(self, kind: int, content: bytes, answer: tuple[bool, bytes]) -> None:
        """Remember an answer; the oldest ones are forgotten for it."""
        size = len(content) + len(answer[1])
        if size > REMEMBERED or (kind, content) in self._answers:
            return
        self._answers[kind, content] = answer
        self._size += size
        while self._size > REMEMBERED:
            key, (_, text) = next(iter(self._answers.items()))
            self._size -= len(key[1]) + len(text)
            del self._answers[key]


class Native:
    """The process that runs native code for this one, for one thread at a time."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._process: _NativeProcess | None = None
        self._owed: _Answer | None = None
        self._memory = _Memory()
        after_fork(self._forget)

    @property
    def number(self) -> int | None:
        """The process's number, for those who measure what it takes; None where none runs."""
        process = self._process
        return process.number if process is not None and process.end.alive else None

    def start(self) -> None:
        """Let the process start, which takes as long as the import of the package. ImportError without the onnx package."""
        with self._lock:
            self._started()

    def ask(self, kind: int, content: bytes, meanwhile: Callable[[], None] | None = None) -> tuple[bool, bytes]:
        """As :meth:`_Answer.get`, of a request whose answer is always the same; ``meanwhile`` is done before it is waited for."""
        do = meanwhile or _nothing
        with self._lock:
            known = self._memory.get(kind, content)
            if known is not None:
                do()
                return known
            with self.asked(kind, content) as answer:
                do()
                found = answer.get()
            if found[0]:  # Memory that a process lacks once need not lack again.
                self._memory.put(kind, content, found)
            return found

    @contextlib.contextmanager
    def asked(self, kind: int, content: bytes) -> Iterator[_Answer]:
        """The answer that comes while the caller does other things; it is waited for at the end."""
        with self._lock:
            with _ended_if_interrupted(self._started()) as process:
                self._owed = answer = process.ask(kind, content)
            try:
                yield answer
            finally:
                self._receive_owed()

    def _receive_owed(self) -> None:
        """Take the answer that is still owed: answers come in the order of the requests."""
        if self._owed is None or self._process is None:
            return
        try:
            with _ended_if_interrupted(self._process), contextlib.suppress(CrashError, ShortageError):  # raised to who asked
                self._owed.get()
        finally:
            self._owed = None

    def _started(self) -> _NativeProcess:
        self._receive_owed()
        if self._process is None or not self._process.runs:
            found = importlib.util.find_spec("onnx")
            if found is None or found.origin is None:
                raise ModuleNotFoundError("No module named 'onnx'", name="onnx")
            # What has Python inside may have no program of Python's, or would start itself.
            if not sys.executable or getattr(sys, "frozen", False):
                raise InputError(Reason(_PROCESS, f"{sys.executable!r}, not a Python interpreter"))
            try:
                self._process = _NativeProcess(Path(found.origin).parent)
            except OSError as error:
                pass_shortage(error)
                raise InputError(Reason(_PROCESS, f"{sys.executable!r}: {first_line(error)}")) from error
        return self._process

    def _forget(self) -> None:
        self._lock = threading.RLock()
        if self._process is not None:
            self._process.forget()
            self._process = self._owed = None


NATIVE = Native()


class Check:
    """A file that is being checked; without an answer where native code cannot open a path, as it is not in UTF-8."""

    def __init__(self, folder: Path, answer: _Answer | None) -> None:
        self.folder = folder
        self._answer = answer

    def wait(self, onnx: Any, model: Any) -> None:
        """Checks the file, whose content is ``model``. Errors as of :func:`check_model`."""
        if self._answer is None:
            check_model(onnx, model, self.folder)
        else:
            _require_good(onnx, self._answer)


@contextlib.contextmanager
def checking(path: Path) -> Iterator[Check]:
    """A file that is checked while the caller reads it. ImportError without the onnx package."""
    name = os.fsencode(path.absolute())
    try:
        name.decode()
    except UnicodeDecodeError:
        NATIVE.start()
        yield Check(path.absolute().parent, None)
        return
    with NATIVE.asked(CHECK, name) as answer:
        yield Check(path.absolute().parent, answer)


def check_model(onnx: Any, model: Any, folder: Path) -> None:
    """Check a ``ModelProto`` whose external data lies in a folder.

    ValidationError of the ``onnx`` package for what it refuses, CrashError for what crashes it or takes too long.
    """
    with NATIVE.asked(CHECK_IN, os.fsencode(folder) + b"\0" + model.SerializeToString()) as answer:
        _require_good(onnx, answer)


def _require_good(onnx: Any, answer: _Answer) -> None:
    good, text = answer.get()
    if not good:
        raise onnx.checker.ValidationError(text.decode())


def convert_version(onnx: Any, model: Any, opset: int) -> Any:
    """A ``ModelProto`` of another opset of ONNX's own domain; RuntimeError if the package cannot convert it."""
    return _made(onnx, CONVERT, bytes((opset,)) + model.SerializeToString())


def inline_functions(onnx: Any, model: Any) -> Any:
    """A ``ModelProto`` without calls of its own functions; RuntimeError if the package cannot write them out."""
    return _made(onnx, INLINE, model.SerializeToString())


def write_out(onnx: Any, model: Any, domain: str, type: str) -> Any:
    """A ``ModelProto`` whose nodes of an operator are written out as its function; RuntimeError if the package cannot do so."""
    return _made(onnx, WRITE_OUT, b"\0".join((domain.encode(), type.encode(), model.SerializeToString())))


def _made(onnx: Any, kind: int, request: bytes) -> Any:
    good, answer = NATIVE.ask(kind, request)
    if not good:
        raise RuntimeError(answer.decode())
    return onnx.load_model_from_string(answer)


def infer_shapes(onnx: Any, model: Any, *, follow: bool = False, meanwhile: Callable[[], None] | None = None) -> Any:
    """A ``ModelProto`` with what inference finds of its values; with ``follow`` it follows the elements of shapes.

    ``meanwhile`` is done here while the other process infers.

    InferenceError of the ``onnx`` package for what it refuses, CrashError for what crashes it or takes too long, with the node
    that crashes plain inference.
    """
    kind = FOLLOW if follow else INFER
    try:
        good, answer = NATIVE.ask(kind, model.SerializeToString(), meanwhile)
    except CrashError as error:
        if follow or isinstance(error, LateError):
            raise
        raise CrashError(f"{error}{_crashing_node(kind, model)}") from error
    if not good:
        raise onnx.shape_inference.InferenceError(answer.decode())
    return onnx.load_model_from_string(answer)


def infer_strictly(onnx: Any, model: Any) -> Any:
    """A ``ModelProto`` with the types and shapes of its values; errors as of :func:`infer_shapes`, also for types and shapes that
    do not fit together."""
    good, answer = NATIVE.ask(STRICT, model.SerializeToString())
    if not good:
        raise onnx.shape_inference.InferenceError(answer.decode())
    return onnx.load_model_from_string(answer)


def _crashing_node(kind: int, model: Any) -> str:
    """The node whose inference crashes: the last of the shortest beginning of the model that crashes too; empty if none does."""
    part = type(model)()
    crashes, nodes = -1, range(len(model.graph.node))
    while nodes:
        middle = nodes[len(nodes) // 2]
        part.CopyFrom(model)
        del part.graph.node[middle + 1 :]
        try:
            NATIVE.ask(kind, part.SerializeToString())
        except CrashError:
            crashes, nodes = middle, nodes[: len(nodes) // 2]
        else:
            nodes = nodes[len(nodes) // 2 + 1 :]
    if crashes < 0:
        return ""
    node = model.graph.node[crashes]
    return f" at {node.op_type} {node.name or next(iter(node.output), '')}".rstrip()
