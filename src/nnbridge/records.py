"""Garbage collection while immutable records are created by the thousand, as a model is loaded and prepared."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_BETWEEN_COLLECTIONS = 10_000
_collecting = threading.Lock()
_usual: list[tuple[int, int, int]] = []
"""The thresholds outside, once for each entry that is open."""


@contextmanager
def seldom_collected() -> Iterator[None]:
    """Thousands of records that stay would set off a search for unreachable cycles every 700 of them; here every 10,000.

    For all threads of the process, until the last one leaves. Where collection is off, it stays off.
    """
    with _collecting:
        _usual.append(_usual[0] if _usual else gc.get_threshold())
        if 0 < _usual[0][0] < _BETWEEN_COLLECTIONS:
            gc.set_threshold(_BETWEEN_COLLECTIONS, *_usual[0][1:])
    try:
        yield
    finally:
        with _collecting:
            usual = _usual.pop()
            if not _usual:
                gc.set_threshold(*usual)
