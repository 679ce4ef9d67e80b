"""The memory that a run of a program writes to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn, Protocol

import numpy as np

from nnbridge.cpu.arena import allocate
from nnbridge.cpu.compiled.constants import SLACK
from nnbridge.cpu.compiled.instructions import InstructionSet
from nnbridge.cpu.compiled.kernels.loops import COUNTER_BYTES
from nnbridge.cpu.compiled.objects import whole_run
from nnbridge.cpu.compiled.threads import pool
from nnbridge.model import Array
from nnbridge.records import dataclass

FAULT_WORDS = 2
"""Of a kernel's report: whether there is one, and the value."""


@dataclass(frozen=True, eq=False, slots=True)
class Fault:
    """The address of two words in which a kernel reports values that it cannot compute with: that it does, and the value."""

    fail: Callable[[int], NoReturn]
    """Raises for the value what the reference kernel raises."""


class Runnable(Protocol):
    """The parts of an instance: a program's memory, argument blocks and loops."""

    instructions: InstructionSet
    memory_size: int
    slots: int
    faults: tuple[Fault, ...]
    blocks: Array
    relocated: Array
    table: Array
    run_alone: Callable[[int, int, int], None]
    run_shared: Callable[[int, int, int], None]


class Instance:
    """The memory that one run writes to: the arena, argument blocks, and data that threads share."""

    def __init__(self, program: Runnable) -> None:
        self._program = program
        # Kernels read bytes that nothing wrote, whose products are left out: they must not slow floats down.
        self._memory = allocate(program.memory_size + SLACK)
        self._memory[:] = 0
        base = self._memory.ctypes.data
        self._blocks = program.blocks.copy()
        self._blocks[program.relocated] += base
        self.table = program.table.copy()
        self.table[:, 1] += self._blocks.ctypes.data
        self.slots = self._memory[: 8 * program.slots].view(np.int64)
        """Addresses of the caller's arrays."""
        words = self._memory[8 * program.slots :][: 8 * FAULT_WORDS * len(program.faults)]
        self._faults = words.view(np.int64).reshape(-1, FAULT_WORDS)
        self.held: Any = None
        """Those arrays, where they stay bound."""
        self._counters = allocate(COUNTER_BYTES * len(self.table)).view(np.int64)
        self._inside = np.zeros(16, np.int64)
        self._job = np.array(
            [self.table.ctypes.data, len(self.table), self._counters.ctypes.data, self._inside.ctypes.data], np.int64
        )
        self._address = int(self._job.ctypes.data)
        self.arguments = whole_run(self._address)
        """What the loop over all steps is called with by one thread."""
        self._request = np.zeros(6, np.int64)
        self._request_address = int(self._request.ctypes.data)
        self._request[1:4] = self._address, self._inside.ctypes.data, self._request_address + 32

    def run_checked(self, threads: int = 1) -> None:
        """All steps; raises for a value that a kernel could not compute with."""
        self.run(threads)
        if self._faults.any():
            number = int(self._faults[:, 0].argmax())
            value = int(self._faults[number, 1])
            self._faults[:] = 0
            self._program.faults[number].fail(value)

    def run(self, threads: int = 1) -> None:
        """All steps. Helpers that have not left the run before are not waited for: the caller then works without them."""
        program = self._program
        if threads <= 1 or self._inside[0]:
            program.run_alone(*self.arguments)
            return
        self._counters[:] = 0
        helpers = pool(program.instructions)
        helpers.begin()
        try:
            for helper in helpers.free(threads - 1):
                helper.recruit(self, self._request, self._request_address)
            program.run_shared(self._address, 0, 1)
        finally:
            helpers.end()
