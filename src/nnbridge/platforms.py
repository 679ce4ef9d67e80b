"""Gaps of operating systems, and settings of nnbridge's own processes: a refusal's sentence, calls that some do not have.

Linux has everything. macOS has no memfd, eventfd and peer credentials of Linux's kind, Windows no sockets that pass
descriptors, no fork and no poll. What is there is found by asking for it, so that other systems are treated alike.
"""

from __future__ import annotations

import atexit
import gc
import os
import signal
import sys
from collections.abc import Callable

from nnbridge.errors import InputError, Reason, ShortageError
from nnbridge.trust import environment

_NAMES = {"linux": "Linux", "darwin": "macOS", "win32": "Windows"}


def lacks(what: str, missing: str, instead: str) -> Reason:
    """The reason why ``what`` cannot be done here: what this system lacks, and what works on it."""
    return Reason(f"{what} needs {missing}, which {_NAMES.get(sys.platform, sys.platform)} lacks; {instead}")


def require_linux(what: str, missing: str, instead: str) -> None:
    """InputError on macOS and Windows."""
    if sys.platform in ("darwin", "win32"):
        raise InputError(lacks(what, missing, instead))


def after_fork(call: Callable[[], object]) -> None:
    """Have a forked process call this first; without effect where no process can fork."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=call)


def available_cores() -> int:
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


_program: list[int] = []
"""Threads of a program that may be copied, once it is known."""


def begin_program() -> None:
    """Note the threads of a process that is nnbridge's own when it starts: those of NumPy's, which a copy can do without.

    What is imported stays: the garbage collector does not look through it.
    """
    _program[:] = [_threads()]
    gc.freeze()


def copies_safely() -> bool:
    """True if a copy of this process is as good as a fresh one: it is nnbridge's own program on Linux, has started no thread
    since, and loads what a fresh one would load."""
    return bool(_program) and 0 < _threads() <= _program[0] and environment() == os.environ


def _threads() -> int:
    """Threads of this process, native ones too; 0 where that is unknown."""
    try:
        return len(os.listdir("/proc/self/task"))
    except OSError:
        return 0


def collect_rarely() -> None:
    """Run the garbage collector less often: importing and preparing make objects that stay, which it would look through again and
    again, for a sixth of the time to a first answer. For processes that are nnbridge's own.
    """
    gc.set_threshold(100_000, 20, 100)
    # What is there when the process ends is not looked through either.
    atexit.register(gc.freeze)


def end_of(status: int) -> str:
    """A clause on how a process ended."""
    return f"the process ended with status {status}" if status >= 0 else f"the process was ended by {signal_name(-status)}"


def signal_name(number: int) -> str:
    """Its name, or its number where this system has no name for it."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def shortage_of_end(status: int) -> ShortageError | None:
    """The shortage that the end of a process means, if it means one."""
    if status in _ENDS:
        return ShortageError(f"{end_of(status)}, {_ENDS[status]}")
    if status == _WITHOUT_MEMORY and _memory_is_limited():
        return ShortageError(f"{end_of(status)}: not enough memory (limit of address space)")
    return None


_ENDS = {
    -getattr(signal, name): words
    for name, words in (
        ("SIGKILL", "as systems do that lack memory"),
        ("SIGXFSZ", "the limit of file sizes"),
        ("SIGXCPU", "the limit of processor time"),
    )
    if hasattr(signal, name)
}
"""Status of a process that a signal of the system's ended → what was short."""
_WITHOUT_MEMORY = 1
"""The status with which OpenBLAS ends a process for which it finds no memory."""


def _memory_is_limited() -> bool:
    if sys.platform == "win32":
        return False
    try:
        import resource
    except ImportError:  # A Python without it has no limits.
        return False
    return resource.getrlimit(resource.RLIMIT_AS)[0] != resource.RLIM_INFINITY
