"""Many items in threads, in their order: reading one, preparing and computing others at the same time, with bounded memory."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from itertools import islice
from typing import Any, TypeAlias, TypeVar

from nnbridge.errors import pass_shortage

Item = TypeVar("Item")
Result = TypeVar("Result")

_SHORT = 1e-3
"""Seconds that a turn of a thread should take at least: a shorter one costs more to hand over than to compute."""
_Turn: TypeAlias = "Future[tuple[list[Any], BaseException | None]]"
"""Results, and what ended the turn before it had them all."""


def read_ahead(items: Iterable[Item], count: int = 2) -> Iterator[Item]:
    """The same items in the same order, at most so many of them read before they are asked for."""
    return in_order(lambda item: item, items, 1, max(1, count))


def in_order(
    function: Callable[[Item], Result], items: Iterable[Item], threads: int, ahead: int = 2, most: int = 1
) -> Iterator[Result]:
    """A function's results for all items in their order, computed by so many threads.

    One thread at a time takes items, up to ``most`` where they take little time. At most ``ahead`` such turns for each thread
    are taken before the results are asked for. What taking or computing raises is raised in its place, and nothing comes after
    it. The threads end with the iterator that is closed or collected.
    """
    turns = _Turns(function, iter(items), ahead * threads, most)
    try:
        for _ in range(threads):
            _start(turns.work)
        while (turn := turns.queue.get()) is not None:
            results, error = turn.result()
            turns.free.release()
            yield from results
            if error is not None:
                raise error
    finally:
        turns.closed.set()
        turns.free.release()


def _start(work: Callable[[], None]) -> None:
    """A thread; ShortageError if none can be started."""
    try:
        threading.Thread(target=work, name="nnbridge-reader", daemon=True).start()
    except RuntimeError as error:
        pass_shortage(error)
        raise


class _Turns:
    """The turns that threads take."""

    def __init__(self, function: Callable[[Any], Any], items: Iterator[Any], ahead: int, most: int) -> None:
        self._function, self._items, self._most, self._size = function, items, most, 1
        self._taking = threading.Lock()
        self.queue: queue.SimpleQueue[_Turn | None] = queue.SimpleQueue()
        """Turns in the order of their items; None after the last one."""
        self.closed, self.free = threading.Event(), threading.Semaphore(ahead)

    def _take(self) -> tuple[list[Any], _Turn]:
        """The items of a turn, which is in the queue; none after the last one."""
        found: list[Any] = []
        done: _Turn = Future()
        with self._taking:
            self.free.acquire()
            if self.closed.is_set():
                return found, done
            ends: list[_Turn | None] = []
            """What comes after this turn, if it is the last one."""
            try:
                found.extend(islice(self._items, self._size))
                ends += [None] if len(found) < self._size else []
            except BaseException as error:
                failed: _Turn = Future()
                failed.set_result(([], error))
                ends.append(failed)
            for turn in (*([done] if found else []), *ends):
                self.queue.put(turn)
            if ends:
                self.closed.set()
        return found, done

    def work(self) -> None:
        """Take turns until there are no more."""
        while (taken := self._take())[0]:
            found, done = taken
            results: list[Any] = []
            started = time.perf_counter()
            try:
                results.extend(map(self._function, found))
            except BaseException as error:
                self.closed.set()
                done.set_result((results, error))
            else:
                done.set_result((results, None))
            if len(found) == self._size < self._most and time.perf_counter() - started < _SHORT:
                self._size = min(2 * self._size, self._most)
        self.free.release()  # The next thread that waits sees that it is closed.
