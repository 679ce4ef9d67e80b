"""The command line ``nnbridge``; :mod:`nnbridge.cli.commands` holds its commands.

Exit status: 0 on success, 1 where a comparison or conformance run fails and for nothing else, 2 for bad input, output that
cannot be written, shortages and internal errors, with one message; 130 and 141 after an interrupt and where no process reads the
output, as in shells. SIGTERM and SIGHUP end the process as they end others, once temporary files are removed.
"""

from __future__ import annotations

import io
import os
import signal
import sys
from contextlib import suppress
from typing import Any

from nnbridge.trust import clean_path

_FAILED = 2
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
    try:
        _run()
    except _Terminated as end:
        (number,) = end.args
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)


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
