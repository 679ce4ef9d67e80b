"""Objects in a separate process: native code that ends its process, as a file or a value may have it, ends that one only.

The parent writes calls to a pipe and reads results from another, as JSON with the bytes of arrays after it; nothing that the
other process writes is ever executed. A process serves one object until the object is released. One that has ended is an
:class:`EndedError`, and the next call starts another, with a new object.

The process is a fresh one; where nnbridge's own program has not started a thread yet, it is a copy of that one, which has
imported already what both need.
"""

from __future__ import annotations

import contextlib
import gc
import json
import math
import os
import signal
import struct
import subprocess
import sys
import threading
import traceback
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from pathlib import Path
from pkgutil import resolve_name
from typing import IO, Any, BinaryIO, NoReturn

import numpy as np

from nnbridge import errors
from nnbridge.errors import InputError, NnbridgeError, Reason, ShortageError, Stage, Why, first_line, pass_shortage, shortage_of
from nnbridge.platforms import copies_safely, shortage_of_end, signal_name
from nnbridge.trust import environment, python_command

_HEAD = struct.Struct("<QQ?")
"""Bytes of JSON, bytes of arrays after it, and whether a call has succeeded."""
_PROGRAM = "a program of Python's to start a process with (sys.executable)"
_PIPE, _ALIGNMENT = 1 << 20, 16


class EndedError(InputError):
    """The process of an object has ended; the reason says how."""


class Apart:
    """An object of another process, for one thread at a time."""

    def __init__(self, title: str, target: str, *arguments: Any, wait: bool = True) -> None:
        """``title``: what the object is, in messages; ``target``: ``module:function`` that creates it there, with the arguments.

        What creating it raises is raised: nnbridge's errors as they are, others as RuntimeError with their text; by the first
        :meth:`start` or :meth:`call` where this one is not to ``wait``.
        """
        self._title, self._created = title, (target, arguments)
        self._lock = threading.RLock()
        self._process: _ApartProcess | None = None
        self.generation = 0
        """The number of the process, from 1 on: what an object has made is gone with its process."""
        self._creating = False
        self._begin()
        if wait:
            self.start()

    def start(self) -> int:
        """A process with an object, a new one where the last one has ended; its generation."""
        with self._lock:
            process = self._begin()
            if self._creating:
                self._creating = False
                try:
                    self._result(process)
                except BaseException:
                    process.end()  # It has no object.
                    raise
            return self.generation

    def _begin(self) -> _ApartProcess:
        """A process that has an object or creates one."""
        if self._process is None or not (self._process.runs or self._creating):
            self._process, self.generation = _prepared() or _ApartProcess(), self.generation + 1
            self._creating = True
            self._process.send([self._created[0], *self._created[1]], create=True)
        return self._process

    def call(self, method: str, *arguments: Any) -> Any:
        """A method's result: None, numbers, text, bytes, arrays, lists, tuples, mappings of such; of a dataclass its fields."""
        with self._lock:
            self.start()
            process = self._begin()
            try:
                process.send([method, *arguments], create=False)
            except BaseException:
                process.end()  # Half a call.
                raise
            return self._result(process)

    def _result(self, process: _ApartProcess) -> Any:
        """The result of the last message."""
        try:
            good, found = process.receive()
        except (OSError, EOFError, ValueError, KeyError, TypeError) as error:
            pass_shortage(error)
            status = process.ended()
            short = None if status is None else shortage_of_end(status)
            raise short or EndedError(Reason(f"{self._title} ended with {_end_of(status)}", kind=Why.ENDED)) from error
        except BaseException:
            process.end()  # A result that is not read would be the next one's.
            raise
        if not good:
            _raise(found)
        return found


class _ApartProcess:
    """A process that serves one object."""

    def __init__(self) -> None:
        if not sys.executable or getattr(sys, "frozen", False):
            raise InputError(Reason(_PROGRAM, f"{sys.executable!r}, not a Python interpreter"))
        copied = copies_safely()
        if copied:
            gc.freeze()  # A collection writes to all objects that it looks through: each page would be copied for it.
        try:
            # In a session of its own: Ctrl-C at a terminal is for the user's process only.
            self._process = subprocess.Popen(
                python_command("nnbridge.apart"),
                env=environment({"OPENBLAS_NUM_THREADS": "1", **os.environ}),  # NumPy, which only hands arrays on, starts sooner.
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                start_new_session=True,
                pipesize=_PIPE,
                preexec_fn=_serve_in_copy if copied else None,
                restore_signals=not copied,
                creationflags=getattr(subprocess, "CREATE_NO_WINDOW", 0),
            )
        except OSError as error:
            pass_shortage(error)
            raise InputError(Reason(_PROGRAM, f"{sys.executable!r}: {first_line(error)}")) from error
        self._owner = os.getpid()
        self.end = weakref.finalize(self, _end, self._process, self._owner)

    @property
    def runs(self) -> bool:
        """False for a process that has ended, and in a fork of the one that has started it."""
        return self.end.alive and self._owner == os.getpid() and self._process.poll() is None

    def send(self, call: Sequence[Any], *, create: bool) -> None:
        """Begin a call."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # A process that has ended gives no result, which is raised there.
            _send(self._process.stdin, create, call)

    def receive(self) -> tuple[bool, Any]:
        """The result of the last call, or the error's name, text and reason."""
        assert self._process.stdout is not None
        return _receive(self._process.stdout)

    def ended(self) -> int | None:
        """The status of a process that gives no more results; one that gives wrong ones is ended, and has none."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(1.0)
        status = self._process.poll()
        self.end()
        return status


_ready: list[_ApartProcess] = []
"""The process that the next object is created in."""


def prepare() -> None:
    """Copy nnbridge's own program for the next object, which is cheaper and sooner ready before the rest is imported.

    Without effect where no copy is as good as a fresh process, or none can be made: who needs one says so.
    """
    if not _ready and copies_safely():
        with contextlib.suppress(NnbridgeError):
            _ready.append(_ApartProcess())


def _prepared() -> _ApartProcess | None:
    process = _ready.pop() if _ready else None
    return process if process is not None and process.runs else None


def _end_of(status: int | None) -> str:
    if status is None:
        return "a result that cannot be read"
    return f"signal {signal_name(-status).removeprefix('signal ')}" if status < 0 else f"exit status {status}"


def _end(process: subprocess.Popen[bytes], owner: int) -> None:
    if owner != os.getpid():
        process.returncode = 0  # In a fork: the process is the parent's.
        return
    process.kill()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with contextlib.suppress(OSError):  # What was not yet written has no reader.
                pipe.close()
    process.wait()


def _raise(found: Any) -> NoReturn:
    kind, text, reason = found
    known = getattr(errors, str(kind), None)
    if kind == "MemoryError":
        raise MemoryError(text)
    if isinstance(known, type) and issubclass(known, NnbridgeError):
        parts = {str(name): str(value) for name, value in reason.items()}
        why, stage = parts.pop("kind", ""), parts.pop("stage", "")
        line, column = (int(parts.pop(name, "0")) for name in ("line", "column"))
        kinds = (Why(why) if why else None, Stage(stage) if stage else None)
        raise known(Reason(**parts, kind=kinds[0], stage=kinds[1], line=line, column=column))
    raise RuntimeError(str(text))


# -- messages ----------------------------------------------------------------------------------------------------------


def _send(stream: IO[bytes] | BinaryIO, flag: bool, value: Any) -> None:
    parts: list[Any] = []
    text = json.dumps(_written(value, parts)).encode()
    stream.write(_HEAD.pack(len(text), sum(map(_padded, map(len, parts))), flag))
    stream.write(text)
    for part in parts:
        stream.write(part)
        stream.write(bytes(_padded(len(part)) - len(part)))
    stream.flush()


def _padded(length: int) -> int:
    """A length with what aligns the array after it."""
    return -(-length // _ALIGNMENT) * _ALIGNMENT


def _receive(stream: IO[bytes] | BinaryIO) -> tuple[bool, Any]:
    """EOFError at the end; ValueError, KeyError or TypeError for what is no message."""
    length, size, flag = _HEAD.unpack(_exactly(stream, _HEAD.size))
    text = json.loads(_exactly(stream, length))
    return flag, _MessageReader(memoryview(_exactly(stream, size))).read(text)


def _exactly(stream: IO[bytes] | BinaryIO, length: int) -> bytearray:
    found = bytearray(length)
    view, read = memoryview(found), getattr(stream, "readinto")  # noqa: B009 - IO[bytes] does not declare it
    while len(view):
        count = read(view)
        if not count:
            raise EOFError
        view = view[count:]
    return found


def _written(value: Any, parts: list[Any]) -> Any:
    """A value as JSON, the bytes in it among ``parts``."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, Path):
        return {"path": os.fspath(value)}
    if isinstance(value, (bytes, memoryview)):
        parts.append(value)
        return {"bytes": len(value)}
    if isinstance(value, (np.ndarray, np.generic)):
        array = np.asarray(value)
        if array.dtype.kind == "O":
            return {"objects": [_written(one, parts) for one in array.reshape(-1).tolist()], "shape": array.shape}
        flat = np.ascontiguousarray(array).reshape(-1)
        parts.append(flat.view(np.uint8).data if flat.size else b"")
        plain = array.dtype.isbuiltin == 1 or array.dtype.type is np.void or array.dtype.kind in "SU"
        return {"array": array.dtype.str if plain else array.dtype.name, "shape": array.shape}
    if isinstance(value, Mapping):
        return {"map": [[_written(key, parts), _written(one, parts)] for key, one in value.items()]}
    if isinstance(value, tuple):
        return {"tuple": [_written(one, parts) for one in value]}
    if isinstance(value, list):
        return [_written(one, parts) for one in value]
    if is_dataclass(value):
        return {"tuple": [_written(getattr(value, part.name), parts) for part in fields(value)]}
    raise TypeError(f"a {type(value).__name__} between processes")


class _MessageReader:
    """Values of a message, whose bytes come in the order in which they were written."""

    def __init__(self, content: memoryview) -> None:
        self._content, self._at = content, 0

    def read(self, text: Any) -> Any:
        """The value of a part of the message's JSON."""
        if isinstance(text, list):
            return [self.read(one) for one in text]
        if not isinstance(text, dict):
            return text
        if "map" in text:
            return {self.read(key): self.read(one) for key, one in text["map"]}
        if "tuple" in text:
            return tuple(self.read(one) for one in text["tuple"])
        if "bytes" in text:
            return bytes(self._next(text["bytes"]))
        if "path" in text:
            return Path(text["path"])
        shape = tuple(map(int, text["shape"]))
        if "objects" in text:
            found = np.empty(math.prod(shape), object)
            found[:] = [self.read(one) for one in text["objects"]]
            return found.reshape(shape)
        dtype = _dtype(text["array"])
        return np.frombuffer(self._next(math.prod(shape) * dtype.itemsize), dtype).reshape(shape)

    def _next(self, length: int) -> memoryview:
        if length < 0 or self._at + length > len(self._content):
            raise ValueError(f"{length} bytes where fewer are left")
        start, self._at = self._at, self._at + _padded(length)
        return self._content[start : start + length]


def _dtype(name: str) -> np.dtype[Any]:
    try:
        return np.dtype(name)
    except TypeError:
        import ml_dtypes

        return np.dtype(getattr(ml_dtypes, name))


# -- the other process -------------------------------------------------------------------------------------------------


def _serve_in_copy() -> NoReturn:
    """:func:`main` in a copy of the process that needs it, and nothing else of what that one does."""
    try:
        gc.enable()
        for number in signal.valid_signals():
            if callable(signal.getsignal(number)):
                signal.signal(number, signal.SIG_DFL)
        for name in os.listdir("/proc/self/fd"):
            if int(name) > 2:
                with contextlib.suppress(OSError):  # the one that lists them
                    os.close(int(name))
        sys.stdout = sys.stderr = open(2, "w", buffering=1, errors="backslashreplace", closefd=False)  # noqa: SIM115
        main()
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(1)


def main() -> None:
    """Serve one object until the requests end."""
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)  # What native code prints.
    if sys.platform != "win32":
        with contextlib.suppress(ImportError, ValueError, OSError):
            import resource

            resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))  # An end leaves no file.
    served: Any = None
    with contextlib.suppress(EOFError, BrokenPipeError):  # The parent has ended, or has no more calls.
        while True:
            create, (name, *arguments) = _receive(requests)
            try:
                result = resolve_name(name)(*arguments) if create else getattr(served, name)(*arguments)
                if create:
                    served, result = result, None
                good = True
            except Exception as error:
                short = error if isinstance(error, NnbridgeError) else shortage_of(error)
                kind = type(error if short is None else short).__name__
                kind = "ShortageError" if isinstance(short, ShortageError) else kind
                good, result = False, [kind, first_line(error), {} if short is None else short.reason.as_dict()]
            _send(answers, good, result)
    os._exit(0)  # Threads of a runtime do not keep the process.
