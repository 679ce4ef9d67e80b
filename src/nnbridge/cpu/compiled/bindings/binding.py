"""Parts shared by bindings: the operation on its way to steps, requirements, the reference kernel on other data."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from threading import Lock
from typing import Any, TypeAlias

import numpy as np

from nnbridge.cpu.compiled.constants import POOLED
from nnbridge.cpu.compiled.instructions import InstructionSet
from nnbridge.cpu.compiled.objects import Variant
from nnbridge.cpu.compiled.program import (
    Argument,
    Bound,
    Buffer,
    Candidate,
    Join,
    KernelCall,
    Place,
    Scratch,
    Shared,
    Slot,
    Unsupported,
    View,
    element_of,
    is_half,
    is_signed,
    size_of,
)
from nnbridge.model import Array
from nnbridge.operations.arithmetic import (
    FLOAT_RANGES,
    activation_range,
    is_quant8,
)
from nnbridge.operations.call import Arg, Call
from nnbridge.operations.evaluate import is_nchw, run_kernel, to_nhwc, widened
from nnbridge.operations.shapes import Window
from nnbridge.types import OperandCode, OperationCode

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


Binder: TypeAlias = "Callable[[Binding], None]"

BINDERS: dict[int, Binder] = {}
"""Operation code → its binding."""

_OMITTING: set[Binder] = set()
"""Bindings of operations whose operands may be omitted."""

_ANY_LAYOUT: set[Binder] = set()
"""Bindings that see images in NCHW as they are."""

_REPEATED = KnownSteps()
_log = logging.getLogger(__name__)
_CHUNK_US, _MOST_CHUNKS = 4.0, 16


def binds(*codes: OperationCode, omitting: bool = False, any_layout: bool = False) -> Callable[[Binder], Binder]:
    """Register a binding for operations; ``omitting``: whose operands may be omitted; ``any_layout``: also of images in NCHW."""

    def register(binder: Binder) -> Binder:
        if omitting:
            _OMITTING.add(binder)
        if any_layout:
            _ANY_LAYOUT.add(binder)
        for code in codes:
            assert code not in BINDERS, f"{code.name} has two bindings"
            BINDERS[code] = binder
        return binder

    return register


def bind(candidate: Candidate, producers: Mapping[int, Candidate], instructions: InstructionSet, shared: Shared) -> list[Bound]:
    """The steps of an operation; raises :class:`Unsupported`, or the error that its call is refused with."""
    if candidate.resolved is None:
        raise Unsupported(candidate.reason)
    key = key_of(candidate, producers, instructions)
    bound = None if key is None else _REPEATED.find(key, candidate)
    if bound is None:
        bound = _bound(candidate, producers, instructions, shared)
        if key is not None:
            _REPEATED.add(key, candidate, bound)
    return bound


def _bound(candidate: Candidate, producers: Mapping[int, Candidate], instructions: InstructionSet, shared: Shared) -> list[Bound]:
    """The steps of an operation by its binding."""
    stated = candidate.call
    binder = BINDERS.get(stated.definition.code)
    if binder is None:
        raise Unsupported("requires a compiled kernel, found none")
    # Constants as float32 numbers, where the reference kernel computes with these.
    call = widened(stated)
    if call is not stated:
        candidate = replace(candidate, resolved=call)
    binding = Binding(candidate, producers, instructions, shared)
    for arg in (*call.args, *call.outs):
        if not arg.present:
            require(binder in _OMITTING, "operands that are present")
        elif not arg.constant:
            require(0 not in arg.dims, "tensors that hold something")
        if arg.dims:
            # Tables of offsets have 32 bits.
            require(math.prod(arg.dims) < 2**29, "tensors of fewer than 2**29 elements")
    if is_nchw(call) and binder not in _ANY_LAYOUT:
        _bind_as_nhwc(binding, binder, shared.channels_last)
    else:
        binder(binding)
    if call.definition.half == "widen":
        round_results(binding)
    return binding.bound


def round_results(b: Binding) -> None:
    """Float16 outputs, which lie as float32, become numbers that float16 has."""
    for k, out in enumerate(b.call.outs):
        if is_half(out):
            count = math.prod(out.dims)
            b.step("round_half", count / 8_000, {"values": b.target(k), "count": count})


def _bind_as_nhwc(b: Binding, binder: Binder, channels_last: dict[int, Place]) -> None:
    """Images are transposed before and after what the binding adds; between two such operations they stay NHWC."""
    call = to_nhwc(b.call)
    inner = Binding(replace(b.candidate, resolved=call), {}, b.instructions, b.shared)
    inner.bound = b.bound
    for operand, arg, seen in zip(b.candidate.inputs, b.call.args, call.args, strict=True):
        if seen is not arg and not arg.constant:
            known = channels_last.get(operand)
            inner.places[operand] = known or _transposed(b, Place(operand), arg, (2, 3), b.scratch(size_of(arg)))
    outputs = dict(zip(b.candidate.outputs, zip(b.call.outs, call.outs, strict=True), strict=True))
    changed = {operand: b.scratch(size_of(out)) for operand, (out, seen) in outputs.items() if out is not seen}
    inner.places.update(changed)
    binder(inner)
    for operand, place in changed.items():
        _transposed(b, place, outputs[operand][1], (1, 2), Place(operand), writes=(operand,))
    channels_last.update(changed)


def _transposed(
    b: Binding, source: Place, x: Arg, positions: tuple[int, int], target: Place, writes: Sequence[Buffer] | None = None
) -> Place:
    """A step that exchanges an image's channels and its positions, whose axes these are."""
    pixels = math.prod(x.dims[axis] for axis in positions)
    channels = math.prod(x.dims[1:]) // pixels
    sides = (channels, pixels) if positions[1] == 3 else (pixels, channels)
    return transpose(b, source, (x.dims[0], *sides), element_of(x), target, writes)


def transpose(
    b: Binding,
    source: Place | Array,
    matrices: tuple[int, int, int],
    element: int,
    target: Place | None = None,
    writes: Sequence[Buffer] | None = None,
) -> Place:
    """A step that transposes a number of matrices [rows, columns] of elements of 1, 2, 4 or 8 bytes."""
    count, rows, columns = matrices
    size = count * rows * columns * element
    target = target or b.scratch(size)
    arguments: dict[str, Argument] = {"source": source, "target": target, "count": count, "rows": rows, "columns": columns}
    b.step("transpose", size / 8_000, arguments, writes, size=element)
    return target


def require(condition: object, what: str) -> None:
    """Leave the operation to the reference tier unless the condition holds."""
    if not condition:
        raise Unsupported(f"requires {what}")


def require_at_most(most: int, found: int, what: str) -> None:
    """Leave operations that are too large for tables to the reference tier, which is logged at INFO level."""
    if found > most:
        _log.info("using the reference kernel: %d %s exceed the compiled kernel's limit of %d", found, what, most)
    require(found <= most, f"at most {most} {what}")


class Binding:
    """One operation on its way to steps."""

    def __init__(
        self,
        candidate: Candidate,
        producers: Mapping[int, Candidate],
        instructions: InstructionSet,
        shared: Shared,
    ) -> None:
        self.candidate, self.call, self.producers, self.instructions = candidate, candidate.call, producers, instructions
        self.out = self.call.out
        """The first output."""
        self.shared = shared
        self.bound: list[Bound] = []
        self.places: dict[int, Place] = {}
        """Positions of operands that the binding sees in another layout."""

    def operand(self, arg: Arg) -> int:
        """The operand index of an argument."""
        for i, other in zip(self.candidate.inputs, self.call.args, strict=True):
            if other is arg:
                return i
        raise AssertionError(f"{arg} is not an argument")

    def merged(self, arg: Arg) -> Candidate | None:
        """The operation that writes an argument, if its reader may compute it along with itself."""
        producer = None if arg.constant else self.producers.get(self.operand(arg))
        return producer if producer is not None and producer.call.definition.code in MERGED else None

    def source(self, arg: Arg) -> Place | Array:
        """The place where a kernel reads an argument: in the arena, or a constant, whose bytes are unsigned."""
        if not arg.constant:
            return self.place(self.operand(arg))
        data = np.ascontiguousarray(arg.data, np.float32 if is_half(arg) else None)
        return data.view(np.uint8) ^ np.uint8(0x80) if is_signed(arg) else data

    def target(self, k: int = 0) -> Place:
        """The place of an output."""
        return self.place(self.candidate.outputs[k])

    def place(self, operand: int) -> Place:
        """The place of an operand's data for this operation."""
        return self.places.get(operand) or Place(operand)

    def scratch(self, size: int) -> Place:
        """A buffer for this operation only."""
        return Place(Scratch(size))

    def step(
        self,
        kernel: str,
        us: float,
        arguments: Mapping[str, Argument],
        writes: Sequence[Buffer] | None = None,
        /,
        **parameters: Any,
    ) -> None:
        """A call of a kernel that takes about ``us`` microseconds; by default it writes all outputs and scratch buffers."""
        chunks = min(max(round(us / _CHUNK_US), 1), _MOST_CHUNKS)
        variant = Variant(kernel, tuple(sorted(parameters.items())))
        places = {value.buffer for value in arguments.values() if type(value) is Place}
        reads = tuple(places.difference(self.candidate.outputs))
        if writes is None:
            writes = (*self.candidate.outputs, *(buffer for buffer in places if isinstance(buffer, Scratch)))
        self.bound.append(KernelCall(variant, arguments, chunks, self.candidate.index, reads, tuple(writes)))

    def view(self, output: int, of: int, offset: int = 0) -> None:
        """The output is part of another operand's buffer."""
        self.bound.append(View(output, of, offset, self.candidate.index))


def offset_of(arg: Arg) -> int:
    """The offset that is added to 8-bit values inside programs."""
    return 128 if is_signed(arg) else 0


def zero_of(arg: Arg) -> int:
    """A zero point inside programs."""
    return arg.zero_point + offset_of(arg)


def limits_of(out: Arg, activation: int) -> tuple[int, int]:
    """Clamps of 8-bit results inside programs."""
    low, high = activation_range(out, activation)
    return low + offset_of(out), high + offset_of(out)


MOST_PIECES = 1 << 20
"""Pieces or rows of an operand up to which a table lists where each one lies."""

BOUNDS: dict[int | None, tuple[float, float]] = {
    None: (-math.inf, math.inf),
    **{activation: (float(low), float(high)) for activation, (low, high) in FLOAT_RANGES.items()},
}
"""Fused activation, ``None`` where none may be, → bounds of real numbers."""


def is_real(arg: Arg) -> bool:
    """True for float32, and for float16, which is float32 inside programs."""
    return arg.type in (OperandCode.TENSOR_FLOAT32, OperandCode.TENSOR_FLOAT16)


def require_types(*args: Arg) -> bool:
    """True for float32, False for 8-bit; other types are left to the reference tier."""
    for arg in args:
        require(is_real(arg) or is_quant8(arg.type), "float32 or 8-bit operands")
    require(len({is_real(arg) for arg in args}) == 1, "operands of one kind")
    return is_real(args[0])


def window_arguments(
    source: Place | Array,
    target: Place,
    images: tuple[int, int, int],
    outs: Sequence[int],
    pixel: int,
    rows: Window,
    columns: Window,
) -> dict[str, Argument]:
    """The arguments of kernels that move windows over images [batch, height, width]: ``pixel`` bytes a position in these and
    in ``outs``."""
    batch, height, width = images
    return {
        "input": source,
        "height": height,
        "width": width,
        "pixel": pixel,
        "row": width * pixel,
        "image": height * width * pixel,
        "out": target,
        "out_height": outs[0],
        "out_width": outs[1],
        "out_pixel": pixel,
        "images": batch,
        "top": rows.before,
        "left": columns.before,
    }


def constant_data(arg: Arg) -> Array:
    """The value of an argument that has to be constant."""
    require(arg.constant, "constant parameters")
    return arg.data


def byte_values(x: Arg) -> Array:
    """All 256 values of an 8-bit operand, in the order of their bytes inside programs."""
    return (np.arange(256, dtype=np.uint8) ^ np.uint8(offset_of(x))).view(x.dtype)


def as_inside(values: Array, arg: Arg) -> Array:
    """8-bit values as bytes inside programs."""
    return values.view(np.uint8) ^ np.uint8(offset_of(arg))


def reference_results(call: Call, data: Array, kind: OperandCode | None = None) -> list[Array]:
    """The reference kernel on other data for the first argument; of one dimension, or with all operands of a type ``kind``."""
    first, *others = call.args
    outs = [out.replace() for out in call.outs]
    if kind is None:
        first, outs = first.replace(value=data, dims=data.shape), [out.replace(dims=data.shape) for out in outs]
    else:
        plain = {"type": kind, "scale": 0.0, "zero_point": 0}
        first, outs = first.replace(value=data, **plain), [out.replace(**plain) for out in outs]
    made = Call(call.definition, call.signature, (first, *(arg.replace() for arg in others)), tuple(outs))
    return run_reference(made)


def run_reference(call: Call) -> list[Array]:
    """The reference kernel's results."""
    with np.errstate(all="ignore"):
        results: Sequence[Any] = run_kernel(call)
    return [result.data if isinstance(result, Arg) else result for result in results]
