"""How a TFLite operator becomes NNAPI operations: the table of lowerings and what a lowering function works with.

A family module registers one function per operator and form::

    @lowers("ADD", "SUB")
    def arithmetic(x: Lowerer) -> None:
        x.emit(...)

The first form is what Android's TFLite delegate does, where it maps the operator at all; forms registered with
``wide=True`` are decompositions that it never makes. A function raises :class:`~nnbridge_tflite.draft.Unmappable`
(mostly through ``x.require`` or because an emitted operation is not valid) and the next form is tried.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from nnbridge.converters.draft import Step, Unmappable, Value
from nnbridge.errors import Reason
from nnbridge.types import OperandCode, OperationCode
from nnbridge_tflite.graph import Operator, Tensor
from nnbridge_tflite.values import Values

LowerFunction: TypeAlias = "Callable[[Lowerer], None]"

FLOATS = (OperandCode.TENSOR_FLOAT32, OperandCode.TENSOR_FLOAT16)
QUANT8 = (OperandCode.TENSOR_QUANT8_ASYMM, OperandCode.TENSOR_QUANT8_ASYMM_SIGNED)
INT32 = OperandCode.TENSOR_INT32
FLOAT32 = OperandCode.TENSOR_FLOAT32
BOOL8 = OperandCode.TENSOR_BOOL8


@dataclass(frozen=True, slots=True)
class Form:
    """One way of lowering an operator."""

    lower: LowerFunction
    wide: bool = False
    """True if Android's delegate does not do this."""


LOWERINGS: dict[str, tuple[Form, ...]] = {}
"""Operator name → forms, in the order in which they are tried."""


def lowers(*names: str, wide: bool = False) -> Callable[[LowerFunction], LowerFunction]:
    """Register a form of these operators."""

    def register(function: LowerFunction) -> LowerFunction:
        for name in names:
            LOWERINGS[name] = (*LOWERINGS.get(name, ()), Form(function, wide))
        return function

    return register


class Lowerer:
    """One operator being lowered in one form."""

    def __init__(self, operator: Operator, values: Values, mapping: str, *, free: bool = True) -> None:
        self.operator = operator
        self.values = values
        self.draft = values.draft
        self.mapping = mapping
        self.free = free
        """True if the conversion may go beyond what Android's delegate does."""
        self.outputs = [values.fresh_output(i) for i in operator.outputs]
        self.carried: dict[int, Value] = {}
        """Places of inputs that are states: what they hold after the operator."""

    # -- what the file says -----------------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """The operator's name."""
        return self.operator.name

    @property
    def count(self) -> int:
        """Number of inputs, omitted ones included."""
        return len(self.operator.inputs)

    def option(self, name: str, default: Any = 0) -> Any:
        """A builtin option."""
        value = self.operator.options.get(name)
        return default if value is None else value

    def has(self, i: int) -> bool:
        """True if input ``i`` is given."""
        return i < self.count and self.operator.inputs[i] >= 0

    def tensor(self, i: int) -> Tensor:
        """Input ``i`` as the file declares it."""
        self.require(self.has(i), f"an input {i}", "none")
        return self.values.tensors[self.operator.inputs[i]]

    def output_tensor(self, i: int = 0) -> Tensor:
        """Output ``i`` as the file declares it."""
        return self.values.tensors[self.operator.outputs[i]]

    def input(self, i: int) -> Value:
        """Input ``i``."""
        self.require(self.has(i), f"an input {i}", "none")
        return self.values.value(self.operator.inputs[i])

    def inputs(self) -> list[Value]:
        """All inputs."""
        return [self.input(i) for i in range(self.count)]

    def optional(self, i: int, type: int) -> Value:
        """Input ``i``, or an omitted operand of this type."""
        return self.input(i) if self.has(i) else self.draft.omitted(type)

    @property
    def out(self) -> Value:
        """The first output."""
        return self.outputs[0]

    def is_state(self, i: int) -> bool:
        """True if input ``i`` keeps its value from run to run."""
        return self.has(i) and self.values.is_state(self.operator.inputs[i])

    def carry(self, i: int, value: Value) -> Value:
        """Say what the state at input ``i`` holds afterwards."""
        self.carried[i] = value
        return value

    def constant(self, i: int) -> npt.NDArray[Any]:
        """The value of an input that must be constant."""
        value = self.values.constant(self.operator.inputs[i]) if self.has(i) else None
        if value is None:
            raise Unmappable(Reason("a constant", "a computed tensor", self.operator.label, f"input {i}"))
        return value

    def integers(self, i: int) -> list[int]:
        """A constant input as a flat list of integers that fit 32 bits."""
        listed = [int(v) for v in self.constant(i).reshape(-1)]
        self.require(all(-(2**31) <= v < 2**31 for v in listed), "32-bit integers", listed)
        return listed

    def integer(self, i: int) -> int:
        """A constant input as one integer."""
        listed = self.integers(i)
        self.require(len(listed) == 1, f"one value in input {i}", len(listed))
        return listed[0]

    def shape(self, i: int) -> tuple[int, ...]:
        """The dimensions of input ``i`` as TFLite counts them; refused while they are not known."""
        shape = self.values.shape(self.operator.inputs[i])
        if shape is None:
            raise Unmappable(Reason("known dimensions", "open ones", self.operator.label, f"input {i}"))
        return shape

    def axis(self, axis: int, rank: int) -> int:
        """An axis counted from the front."""
        self.require(-rank <= axis < rank, f"an axis in [{-rank}, {rank})", axis)
        return axis % rank

    # -- refusals ---------------------------------------------------------------------------------------------------

    def require(self, condition: object, rule: str, found: object = "") -> None:
        """Give up this form unless the condition holds."""
        if not condition:
            raise Unmappable(Reason(rule, str(found), self.operator.label))

    # -- constants --------------------------------------------------------------------------------------------------

    def i32(self, value: int) -> Value:
        """An INT32 scalar."""
        return self.draft.scalar(OperandCode.INT32, int(value))

    def flag(self, value: object) -> Value:
        """A BOOL scalar."""
        return self.draft.scalar(OperandCode.BOOL, bool(value))

    def real(self, value: float, like: Value) -> Value:
        """A float scalar in the precision that goes with a tensor."""
        half = like.type == OperandCode.TENSOR_FLOAT16
        return self.draft.scalar(OperandCode.FLOAT16 if half else OperandCode.FLOAT32, float(value))

    def ints(self, values: Sequence[int]) -> Value:
        """A TENSOR_INT32 constant of rank 1."""
        return self.draft.ints(values)

    def array(self, array: npt.NDArray[Any], like: Value, **changes: Any) -> Value:
        """A constant tensor with the type of another value; the array has that type's elements."""
        made = like.like(dims=array.shape or (1,), **changes)
        made.data = array.reshape(made.dims)
        return made

    def fill(self, value: float, like: Value, dims: tuple[int, ...] = (1,)) -> Value:
        """A constant float or int32 tensor of one value, to be broadcast."""
        dtype = {FLOAT32: np.float32, OperandCode.TENSOR_FLOAT16: np.float16, INT32: np.int32}.get(OperandCode(like.type))
        self.require(dtype is not None, "a float or int32 tensor", like.type)
        self.draft.spend(product(dims))
        return self.array(np.full(dims, value, dtype), like)

    # -- operations -------------------------------------------------------------------------------------------------

    def emit(self, code: OperationCode, *inputs: Value, out: Value | Sequence[Value] | None = None) -> Value:
        """Emit an operation; without ``out`` it writes the operator's first output. Gives the first output."""
        outputs = [self.out] if out is None else [out] if isinstance(out, Value) else list(out)
        name = f"{self.operator.index}: {self.name} {self.output_tensor().name if self.outputs else ''}".rstrip()
        self.draft.add(Step(code, tuple(inputs), tuple(outputs), name, self.mapping))
        return outputs[0]

    def temp(self, code: OperationCode, *inputs: Value, like: Value | None = None, **changes: Any) -> Value:
        """Emit an operation that writes a new temporary, of the first input's type unless said otherwise."""
        return self.emit(code, *inputs, out=(like or inputs[0]).like(**changes))

    def emit_fused(self, code: OperationCode, *inputs: Value, at: int | None = None) -> None:
        """Emit an operation with the operator's fused activation as input ``at`` (by default the last)."""
        place = len(inputs) if at is None else at
        fused = self.i32(self.option("fused_activation_function"))
        self.emit(code, *inputs[:place], fused, *inputs[place:])

    def reshaped(self, value: Value, dims: Sequence[int], out: Value | None = None) -> Value:
        """A value with other dimensions; constants are only seen differently."""
        dims = tuple(dims) or (1,)
        if out is None and value.dims == dims:
            return value
        if out is None and value.data is not None and value.channel_quant is None:
            seen = value.like(dims=dims, name=value.name)
            seen.data, seen.region = value.data.reshape(dims), value.region
            return seen
        self.require(sum(d < 1 for d in dims) <= 1, "at most one dimension that is not known", list(dims))
        shape = self.ints([d or -1 for d in dims])
        return self.emit(OperationCode.RESHAPE, value, shape, out=out or value.like(dims=dims))

    def dequantised(self, value: Value) -> Value:
        """A quantised value as float32: constants now, others by DEQUANTIZE."""
        if value.type in FLOATS:
            return value
        if value.data is not None:
            return Value(FLOAT32, value.dims, name=value.name, data=real_numbers(value))
        return self.emit(OperationCode.DEQUANTIZE, value, out=Value(FLOAT32, value.dims))

    def quantised(self, value: Value) -> None:
        """Write the operator's output from a float32 value."""
        self.emit(OperationCode.QUANTIZE, value)


def real_numbers(value: Value) -> npt.NDArray[np.float32]:
    """A constant's real numbers in float32."""
    assert value.data is not None
    if value.data.dtype.kind == "f":
        return value.data.astype(np.float32)
    if value.channel_quant is not None:
        shape = [1] * value.data.ndim
        shape[value.channel_quant.channel_dim] = -1
        scales = np.asarray(value.channel_quant.scales, np.float32).reshape(shape)
        return value.data.astype(np.float32) * scales
    return (value.data.astype(np.float32) - np.float32(value.zero_point)) * np.float32(value.scale)


def product(dims: Sequence[int]) -> int:
    """Number of elements."""
    return math.prod(dims)
