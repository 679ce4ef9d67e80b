"""Bursts: many executions of one compilation, one after another."""

from __future__ import annotations

import threading

from nnbridge.errors import BadDataError, BadStateError, Reason
from nnbridge.runtime.compilation import Compilation
from nnbridge.runtime.execution import Execution


class Burst:
    """``ANeuralNetworksBurst`` of a finished compilation (feature level 3).

    nnbridge's devices are prepared once and for all, so that a burst computes as any other execution does, by
    Android's rules: executions of the same compilation (BAD_DATA), one at a time (BAD_STATE).
    """

    def __init__(self, compilation: Compilation) -> None:
        _ = compilation.prepared_plan
        self._compilation = compilation
        self._busy = threading.Lock()

    def compute(self, execution: Execution) -> None:
        """``burstCompute``."""
        if execution.compilation is not self._compilation:
            raise BadDataError(Reason("an execution of the burst's compilation", "another", "burstCompute"))
        if not self._busy.acquire(blocking=False):
            raise BadStateError(Reason("one computing at a time", "a second one", "burstCompute"))
        try:
            execution.compute()
        finally:
            self._busy.release()
