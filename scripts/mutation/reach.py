"""Which cases and tests execute which lines of the kernels."""

from __future__ import annotations

import contextlib
import functools
import gc
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import CodeType, FrameType
from typing import Any

from mutation.drawing import OPERATIONS, Mutant, lines_of

Place = tuple[str, int]
"""A module of operations and a line in it."""


@dataclass
class Map:
    """Which places are executed by what, and how long that took: names of cases and of tests."""

    imported: set[Place] = field(default_factory=set)
    """Places that are executed while modules are imported and tests collected."""
    reached: dict[Place, list[str]] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)

    @contextlib.contextmanager
    def noting(self, name: str) -> Iterator[None]:
        """Note what runs under a name."""
        started = time.process_time()
        with traced() as seen:
            yield
        self.seconds[name] = time.process_time() - started
        for place in seen:
            self.reached.setdefault(place, []).append(name)

    def reaching(self, mutant: Mutant) -> list[str]:
        """What executes a mutant's line, the cheapest first."""
        found = {name for line in lines_of(mutant) for name in self.reached.get((mutant.module, line), ())}
        return sorted(found, key=lambda name: (self.seconds[name], name))


@contextlib.contextmanager
def traced() -> Iterator[set[Place]]:
    """The places of operations that are executed meanwhile."""
    missing: dict[CodeType, set[int]] = {}
    """Code object -> its lines that were not executed yet; empty for those of other packages."""

    def called(frame: FrameType, event: str, _: Any) -> Any:
        code = frame.f_code
        if code not in missing:
            missing[code] = set(lines_of_code(code))
        return executed if missing[code] else None

    def executed(frame: FrameType, event: str, _: Any) -> Any:
        left = missing[frame.f_code]
        left.discard(frame.f_lineno)
        return executed if left else None

    seen: set[Place] = set()
    outer = sys.gettrace()
    sys.settrace(called)
    try:
        yield seen
    finally:
        sys.settrace(outer)
        for code, left in missing.items():
            seen |= {(os.path.basename(code.co_filename), line) for line in lines_of_code(code) - left}


@functools.cache
def lines_of_code(code: CodeType) -> frozenset[int]:
    """The lines of a code object of operations; none of another's."""
    inside = os.path.dirname(code.co_filename) == str(OPERATIONS)
    return frozenset(line for _, _, line in code.co_lines() if line) if inside else frozenset()


def forget() -> None:
    """Empty the caches of functions, so that what they cached is computed again."""
    for cached in caches():
        cached.cache_clear()


@functools.cache
def caches() -> list[Any]:
    """The caches of nnbridge's functions; that of declarations, which other modules hold, is none of them."""
    kind = type(caches)
    return [
        found
        for found in gc.get_objects()
        if isinstance(found, kind) and str(found.__module__).startswith("nnbridge.") and found.__name__ != "definitions"
    ]
