"""The loops that run a program's steps, on one thread or on several."""

from __future__ import annotations

from nnbridge.cpu.compiled.emitter import I64, Emitter, Value
from nnbridge.cpu.compiled.library import Fields, kernel

ENTRY_FIELDS = 3
"""Of a step in a program's table: kernel, argument block, chunks."""


@kernel("table count")
def run_steps(e: Emitter, f: Fields, part: Value, parts: Value) -> None:
    """Each step's chunks, one after the other."""

    def step(index: Value) -> None:
        entry = f.table + index * (8 * ENTRY_FIELDS)
        address, block, chunks = (e.load(entry, I64, 8 * i) for i in range(ENTRY_FIELDS))
        e.loop(0, chunks, lambda chunk: e.invoke(address, block, chunk, chunks))

    e.loop(0, f.count, step)
