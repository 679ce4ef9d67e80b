"""Programs: runs of operations as steps over one arena, run by one compiled loop.

:func:`plan` binds each operation that it can (see :mod:`nnbridge.cpu.compiled.bindings`) and groups neighbours into
:class:`Program` objects. A program is immutable; what a run writes to (arena, argument blocks) belongs to an instance, of which
there are as many as runs at a time. Bytes of signed 8-bit operands are unsigned inside a program, offset by 128; float16 operands
lie as float32, with values that float16 has.
"""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from typing import Any, TypeAlias

import numpy as np

from nnbridge.cpu.arena import ALIGNMENT, Lease, address_of, plan_arena
from nnbridge.cpu.compiled.constants import POOLED, Constant, ConstantPool
from nnbridge.cpu.compiled.declared import KERNELS
from nnbridge.cpu.compiled.instance import FAULT_WORDS, Fault, Instance
from nnbridge.cpu.compiled.instructions import InstructionSet
from nnbridge.cpu.compiled.kernels.loops import ENTRY_FIELDS
from nnbridge.cpu.compiled.objects import Variant, function, library
from nnbridge.model import Array
from nnbridge.operations.call import Arg, Call
from nnbridge.records import dataclass
from nnbridge.types import OperandCode


class Unsupported(Exception):
    """An operation, or a form of it, that no compiled kernel computes; the text says what would be required."""


@dataclass(frozen=True, eq=False, slots=True)
class Scratch:
    """A buffer that one operation works in."""

    size: int


Buffer: TypeAlias = "int | Scratch"
"""An operand's buffer, by the operand's index, or a scratch buffer."""


@dataclass(frozen=True, slots=True)
class Place:
    """An address inside the arena."""

    buffer: Buffer
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Slot:
    """The address of the place that holds the address of a caller's array."""

    number: int


Argument: TypeAlias = "int | float | Place | Slot | Fault | Constant | Array"
"""What an argument block's field holds: a number (real ones as float32), an address in the arena or that of a constant, which an
array is copied for."""


@dataclass(frozen=True)
class KernelCall:
    """One call of a kernel."""

    variant: Variant
    arguments: Mapping[str, Argument]
    chunks: int
    operation: int
    reads: tuple[Buffer, ...] = ()
    writes: tuple[Buffer, ...] = ()

    @functools.cached_property
    def places(self) -> list[tuple[str, Place]]:
        """The arguments that are addresses in the arena."""
        return [(name, value) for name, value in self.arguments.items() if type(value) is Place]


@dataclass(frozen=True)
class View:
    """An operand that is part of another's buffer."""

    operand: int
    of: int
    offset: int
    operation: int


@dataclass(frozen=True)
class Join:
    """Operands that lie one after the other in another operand's buffer: written there at once where that is possible."""

    parts: tuple[tuple[int, int, int], ...]
    """Operand, offset in the whole, size."""
    whole: int
    operation: int


Bound: TypeAlias = "KernelCall | View | Join"


@dataclass(frozen=True)
class Candidate:
    """An operation: its index, operand indexes, and its call with constants and resolved outputs."""

    index: int
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    resolved: Call | None
    """None where dimensions or values are known in the run only, or where nnbridge computes no such operation."""
    reason: str = "requires dimensions that are known before a run"
    """Why there is no call."""

    @property
    def call(self) -> Call:
        """The call of an operation that has one."""
        assert self.resolved is not None, self.reason
        return self.resolved


def is_signed(arg: Arg) -> bool:
    """True for signed 8-bit operands, whose bytes are offset inside a program."""
    return arg.type == OperandCode.TENSOR_QUANT8_ASYMM_SIGNED


def is_half(arg: Arg) -> bool:
    """True for float16 operands, which lie as float32 inside a program."""
    return arg.type == OperandCode.TENSOR_FLOAT16


def element_of(arg: Arg) -> int:
    """Bytes of an element inside a program."""
    return 4 if is_half(arg) else arg.dtype.itemsize


def size_of(arg: Arg) -> int:
    """Bytes of an operand's value inside a program."""
    return math.prod(arg.dims) * element_of(arg)


@dataclass(frozen=True)
class Shared:
    """The data that operations of one plan share."""

    calls: Sequence[Call] = ()
    """All that have one."""
    channels_last: dict[int, Place] = field(default_factory=dict)
    """Where NCHW operands lie as NHWC, written by the operations so far."""
    tables: dict[Any, Any] = field(default_factory=dict)
    """What bindings computed for equal windows, or for several operations at once."""


def program_of(group: Sequence[tuple[Candidate, list[Bound]]], read_outside: set[int], form: InstructionSet) -> Program:
    """A program of operations that are bound one after the other; ``read_outside``: what others read of their outputs."""
    args: dict[int, Arg] = {}
    produced: list[int] = []
    for candidate, _ in group:
        args.update(zip(candidate.inputs, candidate.call.args, strict=True))
        args.update(zip(candidate.outputs, candidate.call.outs, strict=True))
        produced += candidate.outputs
    outputs = tuple(i for i in produced if i in read_outside)
    bound, made_here = [step for _, steps in group for step in steps], set(produced)
    buffers = _buffers(bound, args, made_here, outputs)
    steps: list[KernelCall] = []
    for item in bound:
        if isinstance(item, KernelCall):
            steps.append(item)
        elif isinstance(item, Join):
            steps += _copies(item, buffers)
    steps = _needed(steps, buffers, outputs)
    read = {buffers.root(i)[0] for step in steps for i in step.reads} | {buffers.root(i)[0] for i in outputs}
    first_read = dict.fromkeys(i for c, _ in group for i in c.inputs)
    inputs = tuple(i for i in first_read if i not in made_here and not args[i].constant and i in read)
    direct = _read_directly(inputs, args, steps, buffers, outputs)
    steps = [_from_slot(step, inputs, direct, buffers) for step in steps]
    return Program(form, tuple(c.index for c, _ in group), inputs, outputs, args, steps, buffers, direct)


_DIRECT = ("border", "move")
"""Kernels that can read the caller's array itself: they read nothing after it."""


def _read_directly(
    inputs: Sequence[int], args: Mapping[int, Arg], steps: Sequence[KernelCall], buffers: _Buffers, outputs: Sequence[int]
) -> set[int]:
    """Inputs that need no copy in the arena."""
    direct = {i for i in inputs if not is_signed(args[i]) and not is_half(args[i])}
    direct -= {root for i in outputs if isinstance(root := buffers.root(i)[0], int)}
    for step in steps:
        if not direct:
            break
        for name, value in step.places:
            root, offset = buffers.root(value.buffer)
            as_it_is = step.variant.kernel in _DIRECT and name == "source" and value.offset == 0
            # A view that starts later is not read so.
            if isinstance(root, int) and (offset or not as_it_is):
                direct.discard(root)
    return direct


def _from_slot(step: KernelCall, inputs: Sequence[int], direct: set[int], buffers: _Buffers) -> KernelCall:
    """A step that reads the caller's array where it can."""
    source = step.arguments.get("source")
    if not isinstance(source, Place) or step.variant.kernel not in _DIRECT:
        return step
    root, _ = buffers.root(source.buffer)
    if not isinstance(root, int) or root not in direct:
        return step
    variant = Variant(step.variant.kernel, tuple(sorted({**dict(step.variant.parameters), "outer": True}.items())))
    return replace(step, variant=variant, arguments={**step.arguments, "source": Slot(inputs.index(root))})


class _Buffers:
    """The buffers of operands: their root's buffer and an offset in it."""

    def __init__(self) -> None:
        self.of: dict[Buffer, tuple[int, int]] = {}

    def root(self, buffer: Buffer) -> tuple[Buffer, int]:
        """The buffer that another is part of, and the offset in bytes."""
        offset, of = 0, self.of
        while buffer in of:
            buffer, more = of[buffer]
            offset += more
        return buffer, offset


def _buffers(bound: Sequence[Bound], args: Mapping[int, Arg], produced: set[int], outputs: Sequence[int]) -> _Buffers:
    buffers = _Buffers()
    for item in bound:
        if isinstance(item, View):
            buffers.of[item.operand] = (item.of, item.offset)
    for item in bound:
        if isinstance(item, Join):
            for operand, offset, size in item.parts:
                root, at = buffers.root(operand)
                # Whole buffers of operations of this program, each of which can lie in one place only.
                own = isinstance(root, int) and root in produced and root != buffers.root(item.whole)[0]
                if isinstance(root, int) and own and at == 0 and size_of(args[root]) == size:
                    buffers.of[root] = (item.whole, offset)
    return buffers


def _copies(join: Join, buffers: _Buffers) -> list[KernelCall]:
    """The parts of a join that do not lie in their place."""
    steps = []
    whole, base = buffers.root(join.whole)
    for operand, offset, size in join.parts:
        if buffers.root(operand) != (whole, base + offset):
            arguments: dict[str, Argument] = {
                "source": Place(operand),
                "target": Place(join.whole, offset),
                "size": size,
                "count": 1,
                "sources": np.zeros(1, np.int32),
                "targets": 0,
            }
            variant = Variant("move", (("piece", 0), ("scattered", False)))
            steps.append(KernelCall(variant, arguments, 1, join.operation, (operand,), (join.whole,)))
    return steps


def _needed(steps: Sequence[KernelCall], buffers: _Buffers, outputs: Sequence[int]) -> list[KernelCall]:
    """The steps whose results are read."""
    read = {buffers.root(i)[0] for i in outputs}
    needed: list[KernelCall] = []
    for step in reversed(steps):
        if any(buffers.root(i)[0] in read for i in step.writes):
            needed.append(step)
            read.update(buffers.root(i)[0] for i in step.reads)
    return needed[::-1]


_LEAST_SHARED = 16
"""Chunks below which a program is not worth another thread's waking, which takes as long as five of them."""


class _BoundRun(functools.partial[None]):
    """The machine code's loop on an instance, which lives as long as this function: no Python code is run by a call."""

    instance: Instance

    def __new__(cls, instance: Instance, run: Callable[[Any, Any, Any], None]) -> _BoundRun:
        made = super().__new__(cls, run, *instance.arguments)
        made.instance = instance
        return made


class Program:
    """Compiled operations; ``run`` may be called from several threads at once."""

    def __init__(
        self,
        form: InstructionSet,
        operations: tuple[int, ...],
        inputs: tuple[int, ...],
        outputs: tuple[int, ...],
        args: Mapping[int, Arg],
        steps: Sequence[KernelCall],
        buffers: _Buffers,
        direct: set[int],
    ) -> None:
        self.instructions = form
        self.operations = operations
        """Indexes of the operations that it computes."""
        self.inputs = inputs
        """Operands that ``run`` reads, in order."""
        self.outputs = outputs
        """Operands that ``run`` writes, in order."""
        self.shapes = [(args[i].dims, args[i].dtype) for i in outputs]
        slots = len(inputs) + len(outputs)
        every = [
            *(self._transfer(args[i], i, k, inwards=True) for k, i in enumerate(inputs) if i not in direct),
            *steps,
            *(self._transfer(args[i], i, len(inputs) + k, inwards=False) for k, i in enumerate(outputs)),
        ]
        self.steps = tuple(every)
        self.faults = tuple(v for step in every for v in step.arguments.values() if type(v) is Fault)
        first_byte = -(-8 * (slots + FAULT_WORDS * len(self.faults)) // ALIGNMENT) * ALIGNMENT
        offsets, size = plan_arena(self._leases(every, args, buffers))
        self.arena_size = size
        self.memory_size = first_byte + size
        self.slots = slots
        code = library(form)
        values: list[Argument] = []
        entries = []
        for step in every:
            entries.append((code.address(step.variant), 8 * len(values), step.chunks))
            arguments = step.arguments
            values += [arguments[name] for name in KERNELS[step.variant.kernel].fields]
        pool, relocated = ConstantPool(), list[int]()
        begins = {buffer: first_byte + offset for buffer, offset in offsets.items()}
        blocks = self._written(values, begins, buffers, pool, relocated)
        self.blocks = np.array(blocks, np.int64)
        self.blocks[pool.positions] += address_of(pool.constant().data)
        self._constants = tuple(pool.large.values())
        """Argument blocks, with offsets in an instance's memory at the positions ``relocated``."""
        self.relocated = np.array(relocated, np.int64)
        self.table = np.array(entries, np.int64).reshape(-1, ENTRY_FIELDS)
        """For each step its kernel, the offset of its argument block, and its chunks."""
        self.shared = sum(step.chunks for step in every if step.chunks > 1) >= _LEAST_SHARED
        """True if there is work for several threads."""
        self.run_alone = function(code.address(Variant("run_steps")))
        self.run_shared = function(code.address(Variant("run_shared")))
        self._idle: list[Instance] = []

    def _written(
        self,
        values: Sequence[Argument],
        offsets: Mapping[Buffer, int],
        buffers: _Buffers,
        pool: ConstantPool,
        relocated: list[int],
    ) -> list[int]:
        """Argument blocks as numbers. ``offsets`` of buffers count from an instance's memory, as those at ``relocated`` do."""
        blocks: list[Any] = list(values)
        pooled: dict[int, int] = {}
        # Most are numbers as they are.
        for position in [k for k, value in enumerate(values) if type(value) is not int]:
            value = values[position]
            if isinstance(value, Place):
                relocated.append(position)
                root, more = buffers.root(value.buffer)
                blocks[position] = offsets[root] + more + value.offset
            elif isinstance(value, np.ndarray) and value.nbytes <= POOLED:
                pool.positions.append(position)
                # Operations share tables.
                offset = pooled.get(id(value))
                if offset is None:
                    offset = pooled[id(value)] = pool.place(value)
                blocks[position] = offset
            elif isinstance(value, (Constant, np.ndarray)):
                blocks[position] = address_of(pool.held(value).data)
            elif isinstance(value, (Fault, Slot)):
                relocated.append(position)
                number = value.number if isinstance(value, Slot) else self.slots + FAULT_WORDS * self.faults.index(value)
                blocks[position] = 8 * number
            else:
                blocks[position] = int(np.float32(value).view(np.int32)) if isinstance(value, float) else int(value)
        return blocks

    @staticmethod
    def _transfer(arg: Arg, operand: int, slot: int, *, inwards: bool) -> KernelCall:
        outer, inner = Slot(slot), Place(operand)
        arguments: dict[str, Argument] = {
            "source": outer if inwards else inner,
            "target": inner if inwards else outer,
            "size": size_of(arg),
        }
        kind = "half" if is_half(arg) else "flipped" if is_signed(arg) else "same"
        variant = Variant("transfer", (("inwards", inwards), ("kind", kind)))
        reads, writes = ((), (operand,)) if inwards else ((operand,), ())
        return KernelCall(variant, arguments, 1, -1, reads, writes)

    @staticmethod
    def _leases(steps: Sequence[KernelCall], args: Mapping[int, Arg], buffers: _Buffers) -> list[Lease[Buffer]]:
        first: dict[Buffer, int] = {}
        last: dict[Buffer, int] = {}
        for number, step in enumerate(steps):
            for value in step.arguments.values():
                if type(value) is Place:
                    root, _ = buffers.root(value.buffer)
                    first.setdefault(root, number)
                    last[root] = number
        return [
            Lease(root, root.size if isinstance(root, Scratch) else size_of(args[root]), start, last[root])
            for root, start in first.items()
        ]

    def run(self, inputs: Sequence[Array], outputs: Sequence[Array], threads: int = 1) -> None:
        """Compute: contiguous arrays of the operands' shapes and types in, others written. Releases the interpreter lock."""
        try:
            instance = self._idle.pop()
        except IndexError:
            instance = Instance(self)
        try:
            for k, array in enumerate((*inputs, *outputs)):
                instance.slots[k] = address_of(array)
            run = instance.run_checked if self.faults else instance.run
            run(threads if self.shared else 1)
        finally:
            self._idle.append(instance)

    def bind(self, inputs: Sequence[Array], outputs: Sequence[Array], threads: int = 1) -> Callable[[], None]:
        """A function that runs on these arrays each time, for one thread at a time."""
        instance = Instance(self)
        for k, array in enumerate((*inputs, *outputs)):
            instance.slots[k] = array.ctypes.data
        instance.held = (*inputs, *outputs)
        if not self.faults and (threads <= 1 or not self.shared):
            return _BoundRun(instance, self.run_alone)
        run = instance.run_checked if self.faults else instance.run
        return functools.partial(run, threads if self.shared else 1)

    def profile(
        self, inputs: Sequence[Array], outputs: Sequence[Array], rounds: int = 20
    ) -> list[tuple[KernelCall, list[float]]]:
        """Microseconds of each step in each round, after one that is not measured; each is run in isolation."""
        instance = Instance(self)
        instance.held = (*inputs, *outputs)
        for k, array in enumerate(instance.held):
            instance.slots[k] = array.ctypes.data
        instance.run()
        times: list[list[float]] = [[] for _ in self.steps]
        for _ in range(rounds):
            for i in range(len(self.steps)):
                block = np.array([instance.table.ctypes.data + 24 * i, 1, 0, 0], np.int64)
                start = time.perf_counter()
                self.run_alone(block.ctypes.data, 0, 1)
                times[i].append((time.perf_counter() - start) * 1e6)
        return list(zip(self.steps, times, strict=True))
