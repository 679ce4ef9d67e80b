"""The onnx package's shape inference, in a process of its own: whatever a file does to native code is an answer here.

Inference takes numbers of files for addresses and counts, not all of which it looks at first; a file may end the process that
infers, and that is not the user's. It starts with the first file, beside the import of the package, and serves all files after
it; one that a file has ended is replaced. :mod:`nnbridge_onnx.inference_process` is what runs in it.
"""

from __future__ import annotations

import contextlib
import importlib.util
import signal
import subprocess
import sys
import threading
import time
import weakref
from pathlib import Path
from typing import Any

from nnbridge.platforms import after_fork
from nnbridge_onnx.inference_process import HEAD

SECONDS = 120.0
"""A model whose inference takes longer is refused."""


class _Process:
    """A process that infers, as long as it lives."""

    def __init__(self, folder: Path, seconds: float = SECONDS) -> None:
        script = Path(__file__).with_name("inference_process.py")
        command = [sys.executable, "-I", "-S", str(script), str(folder), str(seconds)]
        # In a session of its own: Ctrl-C at a terminal is for the user's process alone.
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            pipesize=1 << 20,
            creationflags=getattr(subprocess, "CREATE_NO_WINDOW", 0),
        )
        self.number = self._process.pid
        self._seconds = seconds
        self.end = weakref.finalize(self, _end, self._process)

    def ask(self, model: bytes, propagate: bool) -> tuple[bool, bytes]:
        """Whether inference succeeded, and its bytes. RuntimeError if the process ends, as it does by an interruption too."""
        started = time.monotonic()
        try:
            return self._asked(model, propagate)
        except (OSError, EOFError) as error:
            status, late = self._process.wait(), time.monotonic() - started >= self._seconds
            self.end()
            how = f"takes more than {self._seconds:g} s" if late else f"crashes ({_name(status)})"
            raise RuntimeError(f"shape inference of the onnx package {how}") from error
        except BaseException:
            self.end()
            raise

    def _asked(self, model: bytes, propagate: bool) -> tuple[bool, bytes]:
        requests, answers = self._process.stdin, self._process.stdout
        assert requests is not None
        assert answers is not None
        for part in (HEAD.pack(len(model), propagate), model):
            requests.write(part)
        requests.flush()
        head = answers.read(HEAD.size)
        length, good = HEAD.unpack(head) if len(head) == HEAD.size else (1, False)
        answer = answers.read(length)
        if len(answer) != length:
            raise EOFError
        return good, answer

    def forget(self) -> None:
        """In a forked process: close its ends, and leave the process to the parent."""
        self.end.detach()
        self._process.returncode = 0
        _close(self._process)


def _name(status: int) -> str:
    return signal.Signals(-status).name if status < 0 else f"status {status}"


def _close(process: subprocess.Popen[bytes]) -> None:
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with contextlib.suppress(OSError):  # What was not yet written has no reader.
                pipe.close()


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    _close(process)
    process.wait()


class _Inference:
    """The process of this one, if there is one, for one thread at a time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: _Process | None = None
        after_fork(self._forget)

    def start(self) -> None:
        """Start the process, unless it runs. ImportError without the onnx package."""
        with self._lock:
            self._started()

    @property
    def process(self) -> int | None:
        """The process's number."""
        process = self._process
        return None if process is None else process.number

    def ask(self, model: bytes, propagate: bool) -> tuple[bool, bytes]:
        """As :meth:`_Process.ask`."""
        with self._lock:
            process = self._started()
            try:
                return process.ask(model, propagate)
            finally:
                if not process.end.alive:
                    self._process = None

    def _started(self) -> _Process:
        if self._process is None:
            found = importlib.util.find_spec("onnx")
            if found is None or found.origin is None:
                raise ModuleNotFoundError("No module named 'onnx'", name="onnx")
            self._process = _Process(Path(found.origin).parent)
        return self._process

    def _forget(self) -> None:
        self._lock = threading.Lock()
        if self._process is not None:
            self._process.forget()
            self._process = None


_INFERENCE = _Inference()


def start() -> None:
    """Let the process start, which takes as long as the import of the package. ImportError without the onnx package."""
    _INFERENCE.start()


def process() -> int | None:
    """The number of the process that infers, for those who measure what it takes; None before the first file."""
    return _INFERENCE.process


def infer_shapes(onnx: Any, model: Any, *, propagate: bool = False) -> Any:
    """A ``ModelProto`` with what inference finds of its values; with ``propagate`` it follows the elements of shapes.

    InferenceError of the ``onnx`` package for what it refuses, RuntimeError for what crashes it or takes too long.
    """
    good, answer = _INFERENCE.ask(model.SerializeToString(), propagate)
    if not good:
        raise onnx.shape_inference.InferenceError(answer.decode())
    return onnx.load_model_from_string(answer)
