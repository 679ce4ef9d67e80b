"""Constants that lie in memory as kernels read them."""

from __future__ import annotations

from dataclasses import dataclass

from nnbridge.cpu.arena import allocate
from nnbridge.model import Array

SLACK = 256
"""Bytes behind the arena and behind constants that kernels may read."""


@dataclass(frozen=True, eq=False, slots=True)
class Constant:
    """Bytes that a kernel reads where they are: aligned, with :data:`SLACK` behind them."""

    data: Array

    @classmethod
    def of(cls, size: int) -> Constant:
        """Zeros."""
        memory = allocate(size + SLACK)
        memory[:] = 0
        return cls(memory[:size])
