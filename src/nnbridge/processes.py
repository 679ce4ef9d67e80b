"""Processes of Python's that compute: each starts fresh, with a safe path, and calls one function for every request.

:mod:`multiprocessing` starts its processes with ``python -c`` in the current folder, where files named like standard modules
would be run; the connections between processes are its.
"""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from importlib import import_module
from multiprocessing.connection import Connection, Pipe, wait
from typing import Any, TypeVar

from nnbridge.errors import lacking, pass_shortage
from nnbridge.platforms import end_of, shortage_of_end
from nnbridge.trust import environment, python_command

_Request = TypeVar("_Request")


class Worker:
    """A process that computes what ``module:function`` yields for each request; ``connection`` sends and receives.

    The first thing that it sends is None: it has started.
    """

    def __init__(self, function: str) -> None:
        """ShortageError if no process can be started."""
        try:
            self.connection, theirs = Pipe()
            self.process = self._started(function, theirs)
        except OSError as error:
            pass_shortage(error)
            raise

    def _started(self, function: str, theirs: Any) -> subprocess.Popen[bytes]:
        number = theirs.fileno()
        given: dict[str, Any] = {"pass_fds": [number]}
        if sys.platform == "win32":
            os.set_handle_inheritable(number, True)
            given = {"startupinfo": subprocess.STARTUPINFO(lpAttributeList={"handle_list": [number]})}
        with theirs:
            # What a driver prints must not mix with this process's output.
            return subprocess.Popen(
                python_command("nnbridge.processes", function, str(number)),
                env=environment(),
                stdin=subprocess.DEVNULL,
                stdout=None if sys.platform == "win32" else 2,
                **given,
            )

    def stop(self, grace: float = 1.0) -> None:
        """End the process, by force if it has not ended by itself in so many seconds."""
        self.connection.close()
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(grace)
        self.process.kill()
        self.process.wait()


def main() -> None:
    """The process: requests come in, results go out one by one."""
    _, function, number = sys.argv
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # The parent decides what an interruption ends.
    if sys.platform == "win32":
        from multiprocessing.connection import PipeConnection

        connection: Any = PipeConnection(int(number))
    else:
        connection = Connection(int(number))
    module, _, name = function.partition(":")
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)  # What a driver prints is seen when it prints it, and if it is killed.
    with suppress(EOFError, OSError):  # The parent has ended.
        try:
            compute: Callable[[Any], Iterable[Any]] = getattr(import_module(module), name)
        except Exception as error:  # of any kind, shortages too: the parent raises what this is
            connection.send(lacking(error) or error)
            return
        connection.send(None)
        while True:
            for result in _results(compute, connection.recv()):
                connection.send(result)


def _results(compute: Callable[[Any], Iterable[Any]], request: Any) -> Iterator[Any]:
    """The results of a request; an error that ends it is the last result, to be raised by the parent."""
    try:
        yield from compute(request)
    except Exception as error:  # of any kind, shortages too: the parent raises what this is
        yield lacking(error) or error


def computed(function: str, requests: Sequence[_Request], jobs: int) -> Iterator[Any]:
    """Results of ``module:function``, which yields one for each request, in the order in which they are done.

    What it raises is raised here; RuntimeError for a process that ends without a result, ShortageError where the machine ends it.
    """
    waiting = deque(requests)
    workers: list[Worker] = []
    try:
        workers += (Worker(function) for _ in range(min(jobs, len(waiting))))
        busy = len(waiting)
        while busy:
            ready: Any
            for ready in wait([worker.connection for worker in workers]):
                try:
                    result = ready.recv()
                except (EOFError, OSError) as error:
                    pass_shortage(error)
                    (worker,) = (worker for worker in workers if worker.connection is ready)
                    status = worker.process.wait()
                    raise shortage_of_end(status) or RuntimeError(
                        f"a process ended while it computed: {end_of(status)}"
                    ) from error
                if isinstance(result, Exception):
                    raise result
                if result is not None:
                    busy -= 1
                    yield result
                if waiting:
                    ready.send(waiting.popleft())
    finally:
        for worker in workers:
            worker.process.kill()
            worker.stop()
