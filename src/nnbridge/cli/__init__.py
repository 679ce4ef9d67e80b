"""The command line ``nnbridge``; :mod:`nnbridge.cli.commands` holds its commands.

Exit status: 0 on success, 1 where a comparison or conformance run fails and for nothing else, 2 for bad input, output that
cannot be written, shortages and internal errors, with one message; 130 and 141 after an interrupt and where no process reads the
output, as in shells. SIGTERM and SIGHUP end the process as they end others, once temporary files are removed.
"""

from __future__ import annotations

import io
import mmap
import os
import signal
import sys
from contextlib import suppress
from typing import Any

from nnbridge.trust import clean_path

_FAILED = 2
_LEAST = 128 << 20
"""Bytes of address space that the imports take, and OpenBLAS for its threads."""
_INTERRUPTED = 128 + 2
"""The exit status that shells have for SIGINT; :mod:`nnbridge.cli.output`, which has it too, may not be imported yet."""


class _Terminated(BaseException):
    """A signal that ends the process has arrived, its number: everything that is open is closed on its way."""


class _Notes(io.FileIO):
    """Standard error: what cannot be written, as the disk is full or nothing reads it, is dropped and changes no exit status."""

    def write(self, data: Any) -> int:
        """All of the data, written or not."""
        with suppress(OSError):
            super().write(data)
        return memoryview(data).nbytes


def main() -> None:
    """Entry point of the console script; a command that fails prints one message and no traceback."""
    clean_path()
    _occupy_streams()
    _stay_within_memory()
    try:
        _run()
        _status[:] = [0]
    except SystemExit as end:
        _status[:] = [end.code if isinstance(end.code, int) else 0 if end.code is None else _FAILED]
        raise
    except _Terminated as end:
        (number,) = end.args
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)


_status = [_FAILED]
"""The exit status, once it is known."""


def _stay_within_memory() -> None:
    """End with a message if a limited address space is too small for what is imported, and with 2 if a library in C ends the
    process for lack of memory: OpenBLAS does so with 1, the status of a failed comparison.
    """
    if sys.platform != "linux":
        return
    try:
        import resource
    except ImportError:  # a Python without limits
        return
    if resource.getrlimit(resource.RLIMIT_AS)[0] == resource.RLIM_INFINITY:
        return
    try:
        mmap.mmap(-1, _LEAST).close()
    except (OSError, MemoryError):
        _print_error("shortage", "not enough memory")
        sys.exit(_FAILED)
    import atexit
    import ctypes

    with suppress(OSError, AttributeError):
        library = ctypes.CDLL(None)
        if library.__cxa_atexit(library._exit, ctypes.c_void_p(_FAILED), None) == 0:
            atexit.register(_end)  # as the first, which is the last that is called


def _end() -> None:
    """End the process as Python does, without what libraries in C do then."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, AttributeError):
            stream.flush()
    os._exit(_status[0])


def _occupy_streams() -> None:
    """Streams that are closed lead nowhere: the next file that is opened would have their descriptors, and be written to by
    drivers that print. Standard output stays closed to the command, which ends with a message.
    """
    with suppress(OSError):
        while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
            os.set_inheritable(descriptor, True)
        os.close(descriptor)
    with suppress(OSError, ValueError, AttributeError):
        encoding = "utf-8" if sys.stderr is None else sys.stderr.encoding
        buffer = getattr(sys.stderr, "buffer", None)  # with PYTHONUNBUFFERED the file itself
        if sys.stderr is None or isinstance(getattr(buffer, "raw", buffer), io.FileIO):
            raw = io.BufferedWriter(_Notes(2, "w", closefd=False))
            sys.stderr = io.TextIOWrapper(raw, encoding, "backslashreplace", line_buffering=True)


def _run() -> None:
    """The command, whose end is an exit status."""
    try:
        for name in ("SIGTERM", "SIGHUP"):
            number = getattr(signal, name, None)
            if number is not None and signal.getsignal(number) is signal.SIG_DFL:  # nohup ignores it.
                signal.signal(number, _terminate)
        from nnbridge.platforms import begin_program, collect_rarely

        collect_rarely()
        from nnbridge.cli.commands import cli, discard_output
        from nnbridge.escaping import printable

        begin_program()
    except ImportError as error:  # pragma: no cover - only in a broken installation
        _print_error("package", f"the command line needs NumPy, click and rich ({error})")
        sys.exit(_FAILED)
    except MemoryError:
        _print_error("shortage", "not enough memory")
        sys.exit(_FAILED)
    except KeyboardInterrupt:
        _print_json("interrupted", "interrupted")
        sys.exit(_INTERRUPTED)
    if sys.stdout is None:
        _print_error("file", "standard output: closed")
        sys.exit(_FAILED)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        cli.main(prog_name="nnbridge")
    except OSError as error:
        discard_output()
        print(f"nnbridge: {printable(str(error.filename or 'standard output'))}: {error.strerror or error}", file=sys.stderr)
        sys.exit(_FAILED)


def _terminate(number: int, _: object) -> None:
    signal.signal(number, signal.SIG_IGN)
    raise _Terminated(number)


def _print_error(kind: str, message: str) -> None:
    """An error before there are commands."""
    _print_json(kind, message)
    print(f"nnbridge: {message}", file=sys.stderr)


def _print_json(kind: str, message: str) -> None:
    if "--json" in sys.argv and sys.stdout is not None:
        from nnbridge.json_data import error_document, json_text

        with suppress(OSError):
            print(json_text(error_document({"kind": kind, "message": message}, {})), flush=True)
