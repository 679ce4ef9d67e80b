"""Steps of operations like earlier ones: networks, and programs that load them again, repeat the same few.

What a binding decides depends on types, dimensions, quantisation and parameters, on the instruction set, and on few operations
before it; not on the numbers of operands. Operations with weights are bound each time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from threading import Lock
from typing import Any, TypeAlias

import numpy as np

from nnbridge.cpu.compiled.constants import POOLED
from nnbridge.cpu.compiled.instructions import InstructionSet
from nnbridge.cpu.compiled.program import Bound, Buffer, Candidate, Join, KernelCall, Place, Scratch, Slot, View
from nnbridge.operations.evaluate import is_nchw
from nnbridge.types import OperationCode

Key: TypeAlias = "tuple[Any, ...]"

MERGED = (OperationCode.PAD, OperationCode.PAD_V2, OperationCode.DEQUANTIZE)
"""Operations that a reader may compute along with itself, from what they read."""
_SMALL = 128
"""The largest parameter in bytes; larger constants count as weights."""
_MOST_BYTES = 8 << 20
_ENTRY = 4096
"""What each operation counts beside its tables."""


class KnownSteps:
    """The steps of earlier operations, all with the operand indexes of their time."""

    def __init__(self) -> None:
        self._known: dict[Key, tuple[tuple[int, ...], Sequence[Bound]]] = {}
        self._bytes = 0
        self._lock = Lock()

    def find(self, key: Key, candidate: Candidate) -> list[Bound] | None:
        """The steps of an operation like an earlier one."""
        found = self._known.get(key)
        if found is None:
            return None
        operands, bound = found
        return _renamed(bound, dict(zip(operands, (*candidate.inputs, *candidate.outputs), strict=True)), candidate.index)

    def add(self, key: Key, candidate: Candidate, bound: Sequence[Bound]) -> None:
        """Keep an operation's steps if they hold no more than some tables."""
        size, held = _ENTRY, []
        for item in bound:
            if isinstance(item, KernelCall):
                arguments = dict(item.arguments)
                for name, value in arguments.items():
                    if isinstance(value, np.ndarray):
                        size += value.nbytes
                        # A parameter itself would keep its file mapped.
                        arguments[name] = value.copy() if value.nbytes <= _SMALL else value
                    elif not isinstance(value, int | float | np.number | Place | Slot):
                        return
                item = replace(item, arguments=arguments)
            held.append(item)
        if size > _ENTRY + 2 * POOLED:
            return
        with self._lock:
            self._bytes += size
            if self._bytes > _MOST_BYTES:
                self._known.clear()
                self._bytes = size
            self._known[key] = (*candidate.inputs, *candidate.outputs), held


def key_of(candidate: Candidate, producers: Mapping[int, Candidate], instructions: InstructionSet) -> Key | None:
    """All that the steps of an operation depend on; None for one with weights, and for what its neighbours have a part in."""
    call, names = candidate.call, dict[int, int]()
    if len(call.args) > 1 and call.args[1].channel_quant is not None:
        return None  # As most with weights.
    parts: list[Key] = []
    for operand, arg in zip((*candidate.inputs, *candidate.outputs), (*call.args, *call.outs), strict=True):
        value = arg.value if arg.constant else None
        if (value is not None and value.nbytes > _SMALL) or arg.channel_quant is not None:
            return None
        producer = None if arg.constant else producers.get(operand)
        if producer is not None and producer is not candidate and producer.call.definition.code in MERGED:
            return None
        content = None if value is None else (value.shape, value.tobytes())
        name = names.setdefault(operand, len(names))
        parts.append((name, arg.type, arg.dims, arg.scale, arg.zero_point, arg.present, arg.constant, content))
    return None if is_nchw(call) else (call.definition.code, instructions, len(call.args), *parts)


def _renamed(bound: Sequence[Bound], names: Mapping[int, int], index: int) -> list[Bound]:
    """The same steps for an operation of this index, with other operands and scratch buffers."""
    scratch: dict[Scratch, Scratch] = {}

    def buffer(of: Buffer) -> Buffer:
        if not isinstance(of, Scratch):
            return names[of]
        if of not in scratch:
            scratch[of] = Scratch(of.size)
        return scratch[of]

    made: list[Bound] = []
    for item in bound:
        if isinstance(item, KernelCall):
            arguments = {
                name: Place(buffer(value.buffer), value.offset) if type(value) is Place else value
                for name, value in item.arguments.items()
            }
            reads, writes = tuple([buffer(of) for of in item.reads]), tuple([buffer(of) for of in item.writes])
            made.append(KernelCall(item.variant, arguments, item.chunks, index, reads, writes))
        elif isinstance(item, View):
            made.append(View(names[item.operand], names[item.of], item.offset, index))
        else:
            parts = tuple([(names[operand], at, size) for operand, at, size in item.parts])
            made.append(Join(parts, names[item.whole], index))
    return made
