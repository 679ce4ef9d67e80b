"""Reading samples in a thread while the ones before are computed."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

Item = TypeVar("Item")

_PATIENCE = 0.1
"""Seconds after which a reader looks whether anybody still waits for what it has read."""


def read_ahead(items: Iterable[Item], count: int = 2) -> Iterator[Item]:
    """The same items in the same order, at most so many of them read before they are asked for.

    What reading raises is raised where the item would come. A reader ends with the iterator that is closed or collected.
    """
    found: queue.Queue[tuple[str, Any]] = queue.Queue(max(1, count))
    closed = threading.Event()

    def put(kind: str, item: Any) -> bool:
        while not closed.is_set():
            try:
                found.put((kind, item), timeout=_PATIENCE)
                return True
            except queue.Full:
                continue
        return False

    def read() -> None:
        try:
            for item in items:
                if not put("item", item):
                    return
        except BaseException as error:
            put("error", error)
        else:
            put("end", None)

    threading.Thread(target=read, name="nnbridge-reader", daemon=True).start()
    try:
        while True:
            kind, item = found.get()
            if kind == "error":
                raise item
            if kind == "end":
                return
            yield item
    finally:
        closed.set()
