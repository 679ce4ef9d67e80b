"""Processes that compute cells. One that dies or takes too long costs its cell only; the rest of its model goes to another."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Sequence
from multiprocessing.connection import wait

from nnbridge.matrix.cells import Cell, Task, failed
from nnbridge.platforms import end_of, shortage_of_end
from nnbridge.processes import Worker

_LOOK_EVERY = 0.5
"""Seconds between looks at time-outs."""
_START = 120.0
"""Seconds that a process may take to start, in which its cell's time does not count."""


class _MatrixWorker(Worker):
    def __init__(self) -> None:
        super().__init__("nnbridge.matrix.cells:compute_all")
        self.group: deque[Task] = deque()
        """What is still to come of its model, the cell in work first."""
        self.since = 0.0


def compute(groups: Sequence[Sequence[Task]], jobs: int, timeout: float) -> Iterator[tuple[Task, Cell]]:
    """Cells as they are done, of ``jobs`` processes; a cell fails that takes longer than ``timeout`` seconds."""
    waiting = deque(deque(group) for group in sorted(groups, key=len, reverse=True) if group)
    workers: list[_MatrixWorker] = []
    try:
        while waiting or workers:
            while waiting and len(workers) < jobs:
                workers.append(_MatrixWorker())
                _assign(workers[-1], waiting.popleft())
            ready = wait([worker.connection for worker in workers], _LOOK_EVERY)
            for worker in list(workers):
                task = worker.group[0]
                if worker.connection in ready:
                    cell = _received(worker)
                    if cell is None:
                        worker.since = time.monotonic()
                        continue
                    yield task, cell
                elif time.monotonic() - worker.since > timeout:
                    worker.process.kill()
                    worker.connection.close()
                    yield task, failed(task, f"no answer within {timeout:g} seconds")
                else:
                    continue
                worker.group.popleft()
                worker.since = time.monotonic()
                if worker.connection.closed and worker.group:
                    waiting.appendleft(worker.group)
                elif worker.group:
                    continue
                if waiting and not worker.connection.closed:
                    _assign(worker, waiting.popleft())
                else:
                    worker.stop()
                    workers.remove(worker)
    finally:
        for worker in workers:
            worker.process.kill()
            worker.stop()


def _assign(worker: _MatrixWorker, group: deque[Task]) -> None:
    worker.group, worker.since = group, time.monotonic() + (_START if worker.since == 0 else 0)
    worker.connection.send(list(group))


def _received(worker: _MatrixWorker) -> Cell | None:
    """The worker's next cell, or how it ended; None from a worker that has just started. Raises what kept it from starting."""
    try:
        cell: Cell | Exception | None = worker.connection.recv()
    except (EOFError, OSError):
        ended = worker.process.wait()
        worker.connection.close()
        return failed(worker.group[0], shortage_of_end(ended) or end_of(ended))
    if isinstance(cell, Exception):
        raise cell
    return cell
