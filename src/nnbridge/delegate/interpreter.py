"""A TFLite interpreter's memory: its graph as it is now, and the file that it runs.

A graph's tensors point at their names and constants in the file's bytes. The file is looked for in front of them, and accepted
only where every name and constant of a subgraph lies exactly where the interpreter has it, and the operators are the nodes'.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from io import FileIO
from pathlib import Path
from typing import Any

from nnbridge.budget import WorkBudget
from nnbridge.converters import converters
from nnbridge.converters.delegation import Delegation, InMemory, Place
from nnbridge.errors import ConversionError, Reason
from nnbridge.records import dataclass

DELEGATED = 51
"""The builtin code of a node that a delegate runs."""
CONSTANT, DYNAMIC = 1, 4
"""Kinds of a tensor's memory (``TfLiteAllocationType``)."""
_CHUNK = 1 << 20
_MAX_WORK, _MARK_WORK = 300_000, 4
"""Tables that are decoded in search of the file, and those that each mark counts for: any constant may hold marks."""


@dataclass(frozen=True)
class OpenGraph:
    """The file of an interpreter, and which of its subgraphs a context is."""

    delegation: Delegation
    subgraph: int
    tensors: int
    """How many tensors the file has for it; the interpreter may have more."""


class InterpreterContext:
    """A TfLiteContext: one subgraph of an interpreter."""

    def __init__(self, embedded: Any, context: Any) -> None:
        self._ffi, self._lib, self._context = embedded.ffi, embedded.lib, context

    def nodes(self) -> list[int]:
        """Indexes of the nodes in the order of their run."""
        plan = self._ffi.new("TfLiteIntArray**")
        self._check(self._context.GetExecutionPlan(self._context, plan), "GetExecutionPlan")
        return integers(self._ffi, plan[0])

    def builtin_code(self, node: int) -> tuple[int, int]:
        """A node's operator and its version."""
        found, registration = self._ffi.new("TfLiteNode**"), self._ffi.new("TfLiteRegistration**")
        self._check(self._context.GetNodeAndRegistration(self._context, node, found, registration), "GetNodeAndRegistration")
        return int(registration[0].builtin_code), int(registration[0].version)

    @contextmanager
    def reading(self, constants: Mapping[int, int]) -> Iterator[None]:
        """While it lasts, nodes read the constants that tensors are computed from (tensor → constant) in place of the tensors.

        TFLite's partitions are then not cut by the operators between. The nodes read the tensors again at the end.
        """
        changed = []
        for node in self.nodes() if constants else ():
            found, registration = self._ffi.new("TfLiteNode**"), self._ffi.new("TfLiteRegistration**")
            self._check(self._context.GetNodeAndRegistration(self._context, node, found, registration), "GetNodeAndRegistration")
            inputs = found[0].inputs
            for i, tensor in enumerate(integers(self._ffi, inputs)):
                if tensor in constants and registration[0].builtin_code != DELEGATED:
                    changed.append((inputs, i, tensor))
                    inputs.data[i] = constants[tensor]
        try:
            yield
        finally:
            for inputs, i, tensor in changed:
                inputs.data[i] = tensor

    def partitions(self, nodes: Sequence[int]) -> list[tuple[list[int], list[int], list[int]]]:
        """TFLite's groups of nodes: nodes, input tensors and output tensors of each group."""
        array, count = self._ffi.new("TfLiteDelegateParams**"), self._ffi.new("int*")
        listed = int_array(self._ffi, nodes)
        self._check(self._context.PreviewDelegatePartitioning(self._context, listed, array, count), "PreviewDelegatePartitioning")
        groups = [array[0][i] for i in range(count[0])]
        return [
            (integers(self._ffi, g.nodes_to_replace), integers(self._ffi, g.input_tensors), integers(self._ffi, g.output_tensors))
            for g in groups
        ]

    def replace(self, nodes: Sequence[int], delegate: Any) -> int:
        """Hand nodes to the delegate; TFLite's status."""
        return int(self._lib.nnbridge_replace(self._context, int_array(self._ffi, nodes), delegate))

    def dims(self, tensor: int) -> tuple[int, ...]:
        """A tensor's dimensions now."""
        array = self._context.tensors[tensor].dims
        return () if array == self._ffi.NULL else tuple(integers(self._ffi, array))

    def all_dims(self, count: int) -> list[tuple[int, ...]]:
        """The dimensions of the first tensors."""
        return [self.dims(i) for i in range(count)]

    def buffer(self, tensor: int) -> Any:
        """A tensor's bytes where they are; empty for a tensor without memory."""
        found = self._context.tensors[tensor]
        return self._ffi.buffer(found.data, found.bytes) if found.data != self._ffi.NULL else b""

    def set_dynamic(self, tensor: int) -> None:
        """Leave a tensor's memory to the time of its computation."""
        found = self._context.tensors[tensor]
        if found.allocation_type != DYNAMIC:
            found.allocation_type, found.data = DYNAMIC, self._ffi.NULL

    def resize(self, tensor: int, dims: Sequence[int]) -> None:
        """Give a tensor other dimensions."""
        self._check(self._lib.nnbridge_resize(self._context, tensor, list(dims), len(dims)), "ResizeTensor")

    def report(self, text: str) -> None:
        """An error in the interpreter's log."""
        self._lib.nnbridge_report(self._context, text.encode())

    def open(self, nodes: Sequence[int]) -> OpenGraph:
        """The file that the interpreter runs. ConversionError if it cannot be found or read."""
        addresses, work = self._addresses(), WorkBudget(_MAX_WORK, "tables in what may be a model file in memory", _too_much)
        for reader in (c.in_memory for c in converters() if c.in_memory is not None):
            for data, base in _candidates(self._ffi, reader, [a for pair in addresses for a in pair if a]):
                work.spend(_MARK_WORK)
                places = reader.places(data, work) or ()
                fitting = [k for k, placed in enumerate(places) if _fits(placed, base, len(data), addresses)]
                if not fitting:
                    continue
                delegation = reader.open(data)
                same = [k for k in fitting if self._has_nodes(nodes, delegation.codes(k))]
                if len(same) == 1:
                    return OpenGraph(delegation, same[0], len(places[same[0]]))
                found = f"{len(same)} subgraphs" if same else "other operators"
                raise ConversionError(Reason("a file with one subgraph that is the interpreter's", found))
        raise ConversionError(Reason("a model file in the interpreter's memory", "none in front of its tensors"))

    def _has_nodes(self, nodes: Sequence[int], codes: Sequence[int]) -> bool:
        """True if the nodes that no delegate runs are the file's operators."""
        own = [(node, code) for node in nodes if node < len(codes) and (code := self.builtin_code(node)[0]) != DELEGATED]
        return all(codes[node] == code for node, code in own)

    def _addresses(self) -> list[tuple[int, int]]:
        """The addresses of the tensors' names and constants."""
        tensors = (self._context.tensors[i] for i in range(self._context.tensors_size))
        return [(self._number(t.name), self._number(t.data) if t.allocation_type == CONSTANT else 0) for t in tensors]

    def _number(self, pointer: Any) -> int:
        return int(self._ffi.cast("uintptr_t", pointer))

    def _check(self, status: int, call: str) -> None:
        if status != 0:
            raise ConversionError(Reason(f"a {call} that succeeds", f"status {status}"))


def _too_much(rule: str, found: str, _: str) -> ConversionError:
    return ConversionError(Reason(rule, found))


def integers(ffi: Any, array: Any) -> list[int]:
    """The members of a TfLiteIntArray."""
    return ffi.unpack(array.data, array.size) if array.size else []


def int_array(ffi: Any, values: Sequence[int]) -> Any:
    """A TfLiteIntArray of our own."""
    return ffi.new("TfLiteIntArray*", {"size": len(values), "data": list(values)})


def _fits(
    placed: Sequence[tuple[Place | None, Place | None]], base: int, size: int, addresses: Sequence[tuple[int, int]]
) -> bool:
    """True if names and constants of a subgraph are where the interpreter has them, and there are some.

    Those that the interpreter has outside of the ``size`` bytes from ``base`` on do not count: DENSIFY names its outputs itself.
    """
    if len(placed) > len(addresses):
        return False
    pairs = [pair for places, at in zip(placed, addresses, strict=False) for pair in zip(places, at, strict=True)]
    known = [(place, at) for place, at in pairs if place is not None and base <= at < base + size]
    return bool(known) and all(base + place[0] == at for place, at in known)


def _candidates(ffi: Any, reader: InMemory, addresses: Sequence[int]) -> Iterator[tuple[memoryview, int]]:
    """The places in front of an address where a file may begin, nearest first: the bytes from there on, and their address."""
    offset, mark = reader.mark
    with Path("/proc/self/mem").open("rb", buffering=0) as memory:
        for begin, end in _mappings():
            inside = [address for address in addresses if begin <= address < end]
            at = min(inside, default=begin)
            while at > begin:
                start = max(begin, at - _CHUNK)
                # A mark may lie across two chunks.
                chunk = read_memory(memory, start, min(at + len(mark) - 1, end))
                found = chunk.rfind(mark)
                while found >= 0:
                    base = start + found - offset
                    if base >= begin:
                        yield memoryview(ffi.buffer(ffi.cast("char*", base), end - base)).cast("B").toreadonly(), base
                    found = chunk.rfind(mark, 0, found + len(mark) - 1)
                at = start


def read_memory(memory: FileIO, start: int, end: int) -> bytes:
    """The process's memory as the system reads it: zeros where another thread has unmapped it since.

    To read such addresses directly would end the process.
    """
    try:
        memory.seek(start)
        found = memory.read(end - start)
    except OSError:
        found = b""
    if len(found) == end - start or end - start <= mmap.PAGESIZE:
        return found.ljust(end - start, b"\0")
    stops = [*range(start - start % mmap.PAGESIZE + mmap.PAGESIZE, end, mmap.PAGESIZE), end]
    return b"".join(read_memory(memory, page, stop) for page, stop in zip([start, *stops], stops, strict=False))


def _mappings() -> list[tuple[int, int]]:
    """First and last address of the process's readable memory; neighbours of one file, or without one, are one."""
    found: list[tuple[int, int, str]] = []
    for line in Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace").splitlines():
        extent, flags, _, *of = line.split(maxsplit=3)
        low, high = (int(part, 16) for part in extent.split("-"))
        origin = of[0].split(maxsplit=1)[-1] if of else ""
        if not flags.startswith("r") or "[v" in origin:
            continue
        if found and found[-1][1:] == (low, origin):
            low = found.pop()[0]
        found.append((low, high, origin))
    return [(low, high) for low, high, _ in found]
