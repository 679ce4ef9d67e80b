"""Processes that compute cells. One that dies or takes too long costs its cell alone; the rest of its model goes to another."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from typing import Any

from nnbridge.matrix.cells import Cell, Task, compute_all, failed

_LOOK_EVERY = 0.5
"""Seconds between looks at time-outs."""
_START = 120.0
"""Seconds that a process may take to start, in which its cell's time does not count."""


@dataclass
class _Worker:
    process: BaseProcess
    connection: Any
    """A Connection; on Windows a class of its own."""
    group: deque[Task] = field(default_factory=deque)
    """What is still to come of its model, the cell in work first."""
    since: float = 0.0


def compute(groups: Sequence[Sequence[Task]], jobs: int, timeout: float) -> Iterator[tuple[Task, Cell]]:
    """Cells as they are done, of ``jobs`` processes; a cell fails that takes longer than ``timeout`` seconds."""
    context = multiprocessing.get_context("spawn")
    waiting = deque(deque(group) for group in sorted(groups, key=len, reverse=True) if group)
    workers: list[_Worker] = []
    try:
        while waiting or workers:
            while waiting and len(workers) < jobs:
                workers.append(_started(context))
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
                    _stop(worker)
                    workers.remove(worker)
    finally:
        for worker in workers:
            worker.process.kill()
            _stop(worker)


def _started(context: multiprocessing.context.SpawnContext) -> _Worker:
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(theirs,), daemon=True)
    process.start()
    theirs.close()
    return _Worker(process, ours)


def _assign(worker: _Worker, group: deque[Task]) -> None:
    worker.group, worker.since = group, time.monotonic() + (_START if worker.since == 0 else 0)
    worker.connection.send(list(group))


def _received(worker: _Worker) -> Cell | None:
    """The worker's next cell, or how it ended instead; None from a worker that has just started."""
    try:
        cell: Cell | None = worker.connection.recv()
    except (EOFError, OSError):
        worker.process.join()
        worker.connection.close()
        return failed(worker.group[0], _end_of(worker.process.exitcode or 0))
    return cell


def _end_of(code: int) -> str:
    if code >= 0:
        return f"the process ended with status {code}"
    try:
        return f"the process was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"the process was ended by signal {-code}"


def _stop(worker: _Worker) -> None:
    worker.connection.close()
    worker.process.join(1)
    if worker.process.is_alive():
        worker.process.kill()
        worker.process.join()


def _serve(connection: Any) -> None:
    """In a process of its own: groups come in, their cells go out one by one."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # The parent decides what an interruption ends.
    parent = multiprocessing.parent_process()
    with suppress(RuntimeError):  # Without a thread to spare, the end is seen when the next cell is sent.
        if parent is not None:
            threading.Thread(target=_end_with, args=(parent.sentinel,), name="nnbridge-parent", daemon=True).start()
    with suppress(EOFError, OSError):  # The parent has ended.
        connection.send(None)
        while True:
            for cell in compute_all(connection.recv()):
                connection.send(cell)


def _end_with(parent: int) -> None:
    """End as soon as the parent has ended: nothing is done with what is still computed."""
    wait([parent])
    os._exit(0)
