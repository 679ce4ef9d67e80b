"""Helper threads, one pool for the process: they take chunks of a running program's steps (see ``kernels/loops.py``).

The caller starts at once and never waits for a helper to wake. A helper that is still busy is left alone.
"""

from __future__ import annotations

import os
import threading
from typing import Any

import numpy as np

from nnbridge.cpu.compiled.instructions import InstructionSet
from nnbridge.cpu.compiled.objects import Variant, function, library

_SPINS = 5000
"""Rounds that a helper waits for the next run before it sleeps: about 0.1 ms."""


class Helper:
    """A thread that takes part in runs."""

    def __init__(self, instructions: InstructionSet) -> None:
        code = library(instructions)
        # State and job on a line of their own, which other threads' writes do not touch.
        raw = np.zeros(48, np.int64)
        start = (-raw.ctypes.data % 128) // 8
        self._control = raw[start : start + 16]
        self._block = np.array([self._control.ctypes.data, _SPINS], np.int64)
        self._work = function(code.address(Variant("help_out")))
        self._recruit = function(code.address(Variant("recruit")))
        self._wake = threading.Lock()
        self._wake.acquire()
        self.job: Any = None
        """What the helper worked on last: its memory must not go before the helper has left it."""
        threading.Thread(target=self._loop, name="nnbridge-helper", daemon=True).start()

    def _loop(self) -> None:
        address = self._block.ctypes.data
        while True:
            self._wake.acquire()
            self._work(address, 0, 1)

    def recruit(self, job: Any, request: Any, request_address: int) -> None:
        """Take part in a job unless busy; ``request`` is the job's block for the kernel ``recruit``."""
        request[0] = self._control.ctypes.data
        self._recruit(request_address, 0, 1)
        result = request[4]
        if result:
            self.job = job
        if result == 2:
            self._wake.release()


class Pool:
    """The helpers of one instruction-set form."""

    def __init__(self, instructions: InstructionSet) -> None:
        self._instructions = instructions
        self._helpers: list[Helper] = []
        self._lock = threading.Lock()

    def helpers(self, count: int) -> list[Helper]:
        """So many helpers, which are started if need be. Two runs may ask for the same ones: who comes first gets them."""
        if len(self._helpers) < count:
            with self._lock:
                while len(self._helpers) < count:
                    self._helpers.append(Helper(self._instructions))
        return self._helpers[:count]


_pools: dict[str, Pool] = {}


def pool(instructions: InstructionSet) -> Pool:
    """The process's pool. There is one for each form in use, of which there is one but in tests."""
    return _pools.setdefault(instructions.name, Pool(instructions))


if hasattr(os, "register_at_fork"):
    # Threads do not follow into a forked process.
    os.register_at_fork(after_in_child=_pools.clear)
