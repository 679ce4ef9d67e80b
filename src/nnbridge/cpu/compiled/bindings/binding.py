"""What bindings share: the operation on its way to steps, requirements, the reference kernel on other data."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from nnbridge.cpu.compiled.instructions import InstructionSet
from nnbridge.cpu.compiled.objects import Variant
from nnbridge.cpu.compiled.program import (
    Argument,
    Bound,
    Candidate,
    Place,
    Scratch,
    Step,
    Unsupported,
    View,
    is_signed,
)
from nnbridge.model import Array
from nnbridge.operations.arithmetic import (
    activation_range,
    is_quant8,
)
from nnbridge.operations.call import Arg, Call
from nnbridge.operations.evaluate import run_kernel
from nnbridge.types import FuseCode, OperandCode, OperationCode

Binder: TypeAlias = "Callable[[Binding], None]"

BINDERS: dict[int, Binder] = {}
"""Operation code → its binding."""

_OMITTING: set[Binder] = set()
"""Bindings of operations whose operands may be omitted."""

_log = logging.getLogger(__name__)
_CHUNK_US, _MOST_CHUNKS = 4.0, 16


def binds(*codes: OperationCode, omitting: bool = False) -> Callable[[Binder], Binder]:
    """Register a binding for operations; ``omitting``: whose operands may be omitted."""

    def register(binder: Binder) -> Binder:
        if omitting:
            _OMITTING.add(binder)
        for code in codes:
            assert code not in BINDERS, f"{code.name} has two bindings"
            BINDERS[code] = binder
        return binder

    return register


def bind(
    candidate: Candidate, producers: Mapping[int, Candidate], instructions: InstructionSet, shared: dict[Any, Any] | None = None
) -> list[Bound]:
    """The steps of an operation; raises :class:`Unsupported`, or the error that its call is refused with.

    ``shared``: what operations of one plan have in common, such as tables of equal windows.
    """
    if candidate.resolved is None:
        raise Unsupported(candidate.reason)
    binder = BINDERS.get(candidate.call.definition.code)
    if binder is None:
        raise Unsupported("requires a compiled kernel, found none")
    binding = Binding(candidate, producers, instructions, {} if shared is None else shared)
    for arg in (*candidate.call.args, *candidate.call.outs):
        if not arg.present:
            require(binder in _OMITTING, "operands that are present")
        elif not arg.constant:
            require(0 not in arg.dims, "tensors that hold something")
        if arg.dims:
            # Tables of offsets have 32 bits.
            require(math.prod(arg.dims) < 2**29, "tensors of fewer than 2**29 elements")
    binder(binding)
    return binding.bound


def require(condition: object, what: str) -> None:
    """Leave the operation to the reference tier unless the condition holds."""
    if not condition:
        raise Unsupported(f"requires {what}")


def require_at_most(most: int, found: int, what: str) -> None:
    """Leave operations that are too large for tables to the reference tier, which is logged at INFO level."""
    if found > most:
        _log.info("the reference kernel is used, for a compiled one takes at most %d %s: found %d", most, what, found)
    require(found <= most, f"at most {most} {what}")


class Binding:
    """One operation on its way to steps."""

    def __init__(
        self,
        candidate: Candidate,
        producers: Mapping[int, Candidate],
        instructions: InstructionSet,
        shared: dict[Any, Any],
    ) -> None:
        self.candidate, self.call, self.producers, self.instructions = candidate, candidate.call, producers, instructions
        self.out = self.call.out
        """The first output."""
        self.shared = shared
        self.bound: list[Bound] = []

    def operand(self, arg: Arg) -> int:
        """The operand index of an argument."""
        for i, other in zip(self.candidate.inputs, self.call.args, strict=True):
            if other is arg:
                return i
        raise AssertionError(f"{arg} is no argument")

    def source(self, arg: Arg) -> Place | Array:
        """Where a kernel reads an argument: in the arena, or a constant, whose bytes are unsigned."""
        if not arg.constant:
            return Place(self.operand(arg))
        data = np.ascontiguousarray(arg.data)
        return data.view(np.uint8) ^ np.uint8(0x80) if is_signed(arg) else data

    def target(self, k: int = 0) -> Place:
        """Where an output lies."""
        return Place(self.candidate.outputs[k])

    def scratch(self, size: int) -> Place:
        """A buffer for this operation alone."""
        return Place(Scratch(size))

    def step(self, kernel: str, us: float, arguments: Mapping[str, Argument], /, **parameters: Any) -> None:
        """A call of a kernel that takes about ``us`` microseconds."""
        chunks = min(max(round(us / _CHUNK_US), 1), _MOST_CHUNKS)
        variant = Variant(kernel, tuple(sorted(parameters.items())))
        places = [value.buffer for value in arguments.values() if isinstance(value, Place)]
        reads = tuple({buffer for buffer in places if isinstance(buffer, int)}.difference(self.candidate.outputs))
        self.bound.append(Step(variant, arguments, chunks, self.candidate.index, reads, self.candidate.outputs))

    def view(self, output: int, of: int, offset: int = 0) -> None:
        """The output is part of another operand's buffer."""
        self.bound.append(View(output, of, offset, self.candidate.index))


def offset_of(arg: Arg) -> int:
    """What is added to 8-bit values inside programs."""
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

BOUNDS: dict[int, tuple[float, float]] = {
    FuseCode.NONE: (-math.inf, math.inf),
    FuseCode.RELU: (0.0, math.inf),
    FuseCode.RELU1: (-1.0, 1.0),
    FuseCode.RELU6: (0.0, 6.0),
}
"""Fused activation → bounds of real numbers."""


def is_real(arg: Arg) -> bool:
    """True for float32."""
    return arg.type == OperandCode.TENSOR_FLOAT32


def require_types(*args: Arg) -> bool:
    """True for float32, False for 8-bit; other types are left to the reference tier."""
    for arg in args:
        require(is_real(arg) or is_quant8(arg.type), "float32 or 8-bit operands")
    require(len({is_real(arg) for arg in args}) == 1, "operands of one kind")
    return is_real(args[0])


def require_nhwc(call: Call) -> None:
    """Leave images in NCHW to the reference tier."""
    flag = call.get("nchw")
    require(flag is None or (flag.constant and not bool(call.scalar("nchw"))), "NHWC data")


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
