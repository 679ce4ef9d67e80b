"""Native code of runtimes, called in a process that serves nothing else: what it prints, and calls that never end."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from nnbridge.errors import pass_shortage

_SECONDS = 120
"""Within which a call returns: the process is ended after it."""
_LOG_BYTES = 400_000
_T = TypeVar("_T")


def logged(work: Callable[[], _T]) -> tuple[_T | Exception, str]:
    """A function's result or exception, and what native code printed in the meantime; the process ends after too long a time."""
    with tempfile.TemporaryFile() as file, _standard_error(file.fileno()), _limit(_SECONDS):
        try:
            found: _T | Exception = work()
        except Exception as error:
            pass_shortage(error)
            found = error
        file.seek(0)
        return found, file.read(_LOG_BYTES).decode(errors="replace")


@contextmanager
def without_infos() -> Iterator[None]:
    """Print what native code prints without its lines that begin with ``INFO:``, when it is done."""
    with tempfile.TemporaryFile() as file:
        try:
            with _standard_error(file.fileno()):
                yield
        finally:
            file.seek(0)
            said = file.read(_LOG_BYTES).decode(errors="replace").splitlines()
            for line in said:
                if not line.startswith("INFO: "):
                    print(line, file=sys.stderr)


@contextmanager
def _standard_error(target: int) -> Iterator[None]:
    """Write to a file what native code prints: the standard output of a process of nnbridge's is the same stream."""
    sys.stderr.flush()
    saved = {number: os.dup(number) for number in (1, 2)}
    for number in saved:
        os.dup2(target, number)
    try:
        yield
    finally:
        for number, stream in saved.items():
            os.dup2(stream, number)
            os.close(stream)


@contextmanager
def _limit(seconds: int) -> Iterator[None]:
    """The signal's own action ends a process in which native code never returns."""
    if sys.platform == "win32" or threading.current_thread() is not threading.main_thread():
        yield
        return
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
