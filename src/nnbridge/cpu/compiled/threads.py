"""Helper threads, one pool for the process: they take chunks of a running program's steps (see ``kernels/loops.py``,
also for why they are not Python's).

The caller starts at once and never waits for a helper to wake. A busy helper is not disturbed. A helper never shares
the caller's core: schedulers like to wake a thread where its waker runs, and there it could only take the caller's place.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
from typing import Any

import numpy as np

from nnbridge.cpu.compiled.instructions import InstructionSet
from nnbridge.cpu.compiled.kernels.loops import BACK, FRONT, SEMAPHORE
from nnbridge.cpu.compiled.objects import Variant, function, library

_SPINS = 10_000
"""Rounds that a helper waits for the next run before it sleeps: 0.3 ms (Zen 5) to 0.6 ms, so that it is there after a short step
of the host. Waking takes a third of that, and five times as many rounds gained nothing."""


class Helper:
    """A thread that takes part in runs, on one of some cores (empty where the system does not say which there are)."""

    def __init__(self, instructions: InstructionSet, side: int, cores: frozenset[int]) -> None:
        code = library(instructions)
        # State and job on a line of their own, which other threads' writes do not touch.
        raw = np.zeros(48, np.int64)
        start = (-raw.ctypes.data % 128) // 8
        self._control = raw[start : start + 2 * SEMAPHORE // 8]
        self._block = np.array([self._control.ctypes.data, _SPINS, side], np.int64)
        self._work = function(code.address(Variant("help_out")))
        self._recruit = function(code.address(Variant("recruit")))
        self._wake = threading.Lock()
        # Where there are semaphores it sleeps in compiled code, from the beginning.
        if not _has_semaphore(self._control.ctypes.data + SEMAPHORE):
            self._wake.acquire()
        self._cores, self._avoided = cores, -1
        self.job: Any = None
        """What the helper worked on last: its memory must not go before the helper has left it."""
        self._thread = threading.Thread(target=self._loop, name="nnbridge-helper", daemon=True)
        self._thread.start()

    def _loop(self) -> None:
        address = self._block.ctypes.data
        while True:
            self._wake.acquire()
            self._work(address, 0, 1)

    def recruit(self, job: Any, request: Any, request_address: int) -> None:
        """Take part in a job unless busy; ``request`` is the job's block for the kernel ``recruit``."""
        request[0] = self._control.ctypes.data
        self._recruit(request_address, 0, 1)
        result, core = request[4:].tolist()
        if result:
            self.job = job
            if core != self._avoided:
                self._avoid(core)
        if result == 2:
            self._wake.release()

    @property
    def thread_id(self) -> int | None:
        """The system's number of the thread."""
        return self._thread.native_id

    def _avoid(self, core: int) -> None:
        """Stay away from the caller's core from now on."""
        self._avoided = core
        others = self._cores - {core}
        if others and self.thread_id is not None and hasattr(os, "sched_setaffinity"):
            try:
                os.sched_setaffinity(self.thread_id, others)
            except OSError:
                # Cores were taken from the process: only the scheduler decides.
                self._cores = frozenset()


def _has_semaphore(address: int) -> bool:
    """Make a semaphore there that counts nothing yet, where the system has such and kernels use them."""
    if sys.platform != "linux":
        return False
    return bool(ctypes.CDLL(None).sem_init(ctypes.c_void_p(address), 0, 0) == 0)


class HelperPool:
    """The helpers of one instruction set."""

    def __init__(self, instructions: InstructionSet) -> None:
        self._instructions = instructions
        self._helpers: list[Helper] = []
        self._lock = threading.Lock()
        self._cores = frozenset(os.sched_getaffinity(os.getpid()) if hasattr(os, "sched_getaffinity") else ())
        self.processors = len(self._cores) or os.cpu_count() or 1
        self._runs: list[None] = []
        """One entry for each run under way: lists grow and shrink without a lock."""

    def begin(self) -> None:
        """A run starts."""
        self._runs.append(None)

    def end(self) -> None:
        """It is over."""
        self._runs.pop()

    def free(self, count: int) -> list[Helper]:
        """At most so many helpers, which are started if need be, and no more than there are cores without a run.

        Two runs may ask for the same ones: first come, first served.
        """
        count = min(count, self.processors - len(self._runs))
        if len(self._helpers) < count:
            with self._lock:
                while len(self._helpers) < count:
                    side = FRONT if len(self._helpers) % 2 else BACK
                    self._helpers.append(Helper(self._instructions, side, self._cores))
        return self._helpers[: max(count, 0)]


_pools: dict[str, HelperPool] = {}


def pool(instructions: InstructionSet) -> HelperPool:
    """The process's pool. There is one for each instruction set in use, of which there is one but in tests."""
    found = _pools.get(instructions.name)
    return found if found is not None else _pools.setdefault(instructions.name, HelperPool(instructions))


if hasattr(os, "register_at_fork"):
    # Threads do not follow into a forked process.
    os.register_at_fork(after_in_child=_pools.clear)
