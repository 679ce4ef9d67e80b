"""Constants that lie in memory as kernels read them."""

from __future__ import annotations

import numpy as np

from nnbridge.cpu.arena import ALIGNMENT, allocate
from nnbridge.model import Array
from nnbridge.records import dataclass

SLACK = 256
"""Bytes after the arena and after constants that kernels may read."""


@dataclass(frozen=True, eq=False, slots=True)
class Constant:
    """Bytes that a kernel reads where they are: aligned, with :data:`SLACK` after them."""

    data: Array

    @classmethod
    def of(cls, size: int) -> Constant:
        """Zeros."""
        return cls(allocate(size + SLACK, np.zeros)[:size])

    @classmethod
    def of_array(cls, value: Array) -> Constant:
        """A copy of an array's elements."""
        made = cls.of(value.nbytes)
        made.data[:] = np.ascontiguousarray(value).reshape(-1).view(np.uint8)
        return made


POOLED = 1 << 16
"""The largest constant in bytes that lies with others."""


class ConstantPool:
    """The constants of a program: small ones one after the other, equal ones once."""

    def __init__(self) -> None:
        self.positions: list[int] = []
        """Where argument blocks hold offsets among the small ones."""
        self.large: dict[int, Constant] = {}
        self._content = bytearray()
        self._offsets: dict[bytes, int] = {}

    def held(self, value: Constant | Array) -> Constant:
        """A large one, copied unless it lies as kernels need it."""
        made = self.large.get(id(value))
        if made is None:
            made = self.large[id(value)] = value if isinstance(value, Constant) else Constant.of_array(value)
        return made

    def place(self, value: Array) -> int:
        """The offset of an array's elements."""
        content = value.tobytes()
        offset = self._offsets.get(content)
        if offset is None:
            offset = self._offsets[content] = len(self._content)
            self._content += content
            self._content += bytes(-len(content) % ALIGNMENT)
        return offset

    def constant(self) -> Constant:
        """All small ones."""
        return self.held(np.frombuffer(self._content, np.uint8))
