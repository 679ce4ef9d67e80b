"""The interface of lowering functions: one TFLite operator while it is expressed in NNAPI operations.

The first lowerings of an operator are what Android's TFLite delegate does, where it maps the operator at all; those with
``wide=True`` are decompositions that it never uses. A lowering raises :class:`~nnbridge.converters.draft.Unmappable`
(mostly by ``to.require``, or because an emitted operation is not valid), and the next one is tried.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from nnbridge.converters.draft import Step, Unmappable
from nnbridge.converters.draft import Value as Value
from nnbridge.converters.lowerer import LowererBase
from nnbridge.converters.mapping import MappingKind
from nnbridge.errors import Reason, Stage, Why
from nnbridge.model import Array, Source
from nnbridge.types import FLOATS, QUANT8, OperandCode, OperationCode
from nnbridge_tflite.declaration import TfliteOperator
from nnbridge_tflite.host.codes import PARAMETERS, builtin_code, options_value
from nnbridge_tflite.passes.values import TensorValues
from nnbridge_tflite.read.graph import Operator, Tensor

INT32 = OperandCode.TENSOR_INT32
FLOAT32 = OperandCode.TENSOR_FLOAT32
BOOL8 = OperandCode.TENSOR_BOOL8

ADDED = ("FLOAT32", "FLOAT16", "UINT8", "INT8", "INT32", "BOOL", "INT16")
"""Element types that the delegate makes operands of (nnapi_delegate.cc of LiteRT, ``AddTensor``, lines 1780 to 1893)."""
MAX_SLICES = 64
"""Most slices that a decomposition cuts a tensor into."""


class UnknownValue(Unmappable):
    """A lowering requires a constant where the operator has a computed tensor."""


class Lowerer(LowererBase):
    """One operator while one of its lowerings is tried."""

    def __init__(
        self,
        definition: TfliteOperator | None,
        operator: Operator,
        values: TensorValues,
        mapping: str = MappingKind.WIDE,
        *,
        free: bool = True,
        source: Source | None = None,
    ) -> None:
        self.definition = definition
        self.operator = operator
        self.values = values
        self.draft = values.draft
        self.mapping = mapping
        self.free = free
        """True if the conversion may go beyond what Android's delegate does."""
        self.source = source
        self.label = operator.label
        self.outputs = [values.fresh_output(i) for i in operator.outputs]
        self.title = f"{operator.index}: {operator.name} {self.outputs[0].name if self.outputs else ''}".rstrip()
        self.carried: dict[int, Value] = {}
        """Inputs that are states, by index: what they hold after the operator."""

    # -- what the file states -------------------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """The operator's name."""
        return self.operator.name

    @property
    def count(self) -> int:
        """Number of inputs, omitted ones included."""
        return len(self.operator.inputs)

    def option(self, name: str, default: Any = None) -> Any:
        """A builtin option: the file's value, else the declared default, else ``default``."""
        value = self.operator.options.get(name)
        if value is None and self.definition is not None and (declared := self.definition.option(name)) is not None:
            value = self.definition.default_of(declared, self.operator.options)
        return default if value is None else value

    def has(self, i: int) -> bool:
        """True if input ``i`` is present."""
        inputs = self.operator.inputs
        return i < len(inputs) and inputs[i] >= 0

    def declared(self, i: int = 0) -> Tensor:
        """Input ``i`` as the file declares it."""
        self.require(self.has(i), f"an input {i}", "none", kind=Why.MISSING_OPERAND)
        return self.values.tensors[self.operator.inputs[i]]

    def declared_output(self, i: int = 0) -> Tensor:
        """Output ``i`` as the file declares it."""
        return self.values.tensors[self.operator.outputs[i]]

    def input(self, i: int = 0) -> Value:
        """Input ``i``; refused if it is omitted."""
        if not self.has(i):
            self.refuse(f"an input {i}", "none", kind=Why.MISSING_OPERAND)
        self._require_added(i)
        return self.values.value(self.operator.inputs[i])

    def _require_added(self, i: int) -> None:
        """Refuse what the delegate cannot make an operand of, which it finds while it builds the model."""
        if self.free:
            return
        tensor = self.values.tensors[self.operator.inputs[i]]
        name = "INT4" if tensor.blocks is not None else tensor.type.name
        if name not in ADDED:
            from nnbridge.log_lines.patterns import BY_NAME  # whose expressions are compiled

            says = BY_NAME["tensor-type"].format(kind=name)
            reason = Reason(f"a tensor of {', '.join(ADDED)}", name, self.label, f"input {i}", Why.INPUT_TYPE, says)
            raise Unmappable(reason, Stage.BUILDING)

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
        """True if input ``i`` holds its value from one execution to the next."""
        return self.has(i) and self.values.is_state(self.operator.inputs[i])

    def carry(self, i: int, value: Value) -> Value:
        """State what the state at input ``i`` holds afterwards."""
        self.carried[i] = value
        return value

    def constant(self, i: int) -> Array:
        """The value of an input that must be constant."""
        value = self.values.constant(self.operator.inputs[i]) if self.has(i) else None
        if self.has(i) and self.definition is not None and not self.definition.wide_constants:
            self._require_added(i)
        if value is None:
            raise UnknownValue(Reason("a constant", "a computed tensor", self.label, f"input {i}", Why.NOT_CONSTANT))
        return value

    def require_known(self, value: Value, rule: str) -> None:
        """Refuse unless a value is a constant."""
        if value.data is None:
            raise UnknownValue(Reason(rule, str(value.operand()), self.label, kind=Why.NOT_CONSTANT))

    def shape(self, i: int = 0) -> tuple[int, ...]:
        """The dimensions of input ``i`` as TFLite counts them; refused while they are not known."""
        shape = self.values.shape(self.operator.inputs[i])
        if shape is None:
            raise Unmappable(Reason("known dimensions", "open ones", self.label, f"input {i}", Why.DYNAMIC_SHAPE))
        return shape

    # -- operations -------------------------------------------------------------------------------------------------------

    def finish(self, code: OperationCode, *inputs: Value, position: int = 0) -> None:
        """Emit the operation that writes the operator's output ``position``."""
        self.emit_all(code, inputs, [self.outputs[position]])

    def finish_fused(self, code: OperationCode, *inputs: Value, at: int | None = None) -> None:
        """Emit the last operation with the operator's fused activation as input ``at`` (by default the last)."""
        index = len(inputs) if at is None else at
        fused = self.scalar(self.option("fused_activation_function"))
        self.finish(code, *inputs[:index], fused, *inputs[index:])

    def dequantised(self, value: Value) -> Value:
        """A quantised value as float32: constants are converted now, others by DEQUANTIZE."""
        if value.type in FLOATS:
            return value
        if value.data is not None:
            return Value(FLOAT32, value.dims, name=value.name, data=real_numbers(value))
        return self.emit(OperationCode.DEQUANTIZE, value, out=Value(FLOAT32, value.dims))

    def finish_quantised(self, value: Value) -> None:
        """Write the operator's output from a float32 value."""
        self.finish(OperationCode.QUANTIZE, value)

    def broadcast(self, value: Value, dims: tuple[int, ...]) -> Value:
        """A value with its dimensions grown to ``dims``: booleans by LOGICAL_OR, others by TILE."""
        extra = value.rank - len(dims)
        if extra > 0 and set(value.dims[:extra]) == {1}:
            # Where a file states fewer dimensions, of a single element LiteRT answers as many.
            value = self.reshaped(value, value.dims[extra:])
        if value.dims == dims:
            return value
        self._fitting(value, dims)
        if value.constant or value.type == BOOL8:
            self.draft.spend(math.prod(dims))
        if value.data is not None:
            grown = value.like(dims=dims)
            grown.data = np.ascontiguousarray(np.broadcast_to(value.data, dims))
            return grown
        if value.type == BOOL8:
            nothing = Value(BOOL8, dims, data=np.zeros(dims, np.uint8))
            return self.emit(OperationCode.LOGICAL_OR, value, nothing, dims=dims)
        aligned, multiples = self.tiling(value, dims)
        return self.emit(OperationCode.TILE, aligned, self.vector(multiples), dims=dims)

    def tiling(self, value: Value, dims: tuple[int, ...]) -> tuple[Value, list[int]]:
        """A value reshaped to the rank of ``dims``, and how often each dimension is repeated."""
        padded = self._fitting(value, dims)
        multiples = [grown if have == 1 else 1 for have, grown in zip(padded, dims, strict=True)]
        return (value, multiples) if padded == value.dims else (self.reshaped(value, padded), multiples)

    def _fitting(self, value: Value, dims: tuple[int, ...]) -> tuple[int, ...]:
        """A value's dimensions with ones in front, which must broadcast to ``dims``."""
        padded = (1,) * (len(dims) - value.rank) + value.dims
        fits = len(padded) == len(dims) and all(have in (1, grown) for have, grown in zip(padded, dims, strict=True))
        self.require(fits, f"dimensions that broadcast to {list(dims)}", list(value.dims))
        return padded

    def slices(self, value: Value, axis: int) -> Sequence[Value]:
        """A value cut into slices of size 1 along an axis; constants are cut now."""
        count = value.dims[axis]
        self.require(0 < count <= MAX_SLICES, f"1 to {MAX_SLICES} slices", count)
        dims = (*value.dims[:axis], 1, *value.dims[axis + 1 :])
        if value.data is not None:
            return [replace(value.like(dims=dims), data=np.ascontiguousarray(p)) for p in np.split(value.data, count, axis)]
        if count == 1:
            return [value]
        outs = [value.like(dims=dims) for _ in range(count)]
        return self.emit_all(OperationCode.SPLIT, (value, self.scalar(axis), self.scalar(count)), outs)


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


class FloatLowerer(Lowerer):
    """Quantised operands as float32, quantised outputs from float32: for what NNAPI computes only on floats."""

    def __init__(
        self, definition: TfliteOperator | None, operator: Operator, values: TensorValues, mapping: str, **more: Any
    ) -> None:
        super().__init__(definition, operator, values, mapping, **more)
        self._quantised = self.outputs
        self._floats: dict[int, Value] = {}
        self.outputs = [
            Value(FLOAT32, value.dims) if self.is_quantised(values.tensors[index], value) else value
            for index, value in zip(operator.outputs, self._quantised, strict=True)
        ]

    def input(self, i: int = 0) -> Value:
        """Input ``i`` as float32 if it is quantised."""
        tensor, value = self.declared(i), super().input(i)
        if not self.is_quantised(tensor, value):
            return value
        if i not in self._floats:
            self._floats[i] = self.as_float(tensor, value)
        return self._floats[i]

    def quantise_outputs(self) -> None:
        """Write the quantised outputs, when the operator's operations are emitted."""
        for index, computed, value in zip(self.operator.outputs, self.outputs, self._quantised, strict=True):
            if computed is not value:
                self.from_float(self.values.tensors[index], computed, value)
        self.outputs = self._quantised

    def is_quantised(self, tensor: Tensor, value: Value) -> bool:
        """True for operands that become floats."""
        return value.type in QUANT8

    def as_float(self, tensor: Tensor, value: Value) -> Value:
        """A quantised operand as float32."""
        return self.dequantised(value)

    def from_float(self, tensor: Tensor, computed: Value, out: Value) -> None:
        """Write a quantised output."""
        self.emit(OperationCode.QUANTIZE, computed, out=out)


def through_float(*definitions: TfliteOperator) -> None:
    """Declare that the first lowering of operators, applied to float32, serves 8-bit tensors that NNAPI's operation does not."""
    for definition in definitions:
        lower = definition.lowerings[0].lower

        def lowered(to: Lowerer, lower: Callable[[Lowerer], None] = lower) -> None:
            rule = "an operator that computes with the real numbers that quantised integers stand for"
            to.require(to.definition is not None and not to.definition.as_stored, rule, to.name)
            to.require(to.input().type in QUANT8 and to.out.type in QUANT8, "8-bit tensors", to.declared())
            inner = FloatLowerer(to.definition, to.operator, to.values, to.mapping, free=to.free, source=to.source)
            lower(inner)
            inner.quantise_outputs()
            to.outputs = inner.outputs

        definition.lowering(wide=True)(lowered)


class HostFloatLowerer(FloatLowerer):
    """For 16-bit activations, which NNAPI computes nothing with: the operator runs on float32 between two host conversions."""

    def is_quantised(self, tensor: Tensor, value: Value) -> bool:
        """True for integers of any width that stand for real numbers."""
        return bool(tensor.quantisation.scales)

    def carry(self, i: int, value: Value) -> Value:
        """States of integers are not stored as floats."""
        self.require(not self.is_state(i), "float states", self.declared(i))
        return value

    def as_float(self, tensor: Tensor, value: Value) -> Value:
        """A constant converted now, another operand by DEQUANTIZE on the host."""
        array = self.values.constant(tensor.index)
        if array is None:
            return self._convert("DEQUANTIZE", value, Value(FLOAT32, value.dims), tensor)
        self.draft.spend(array.size)
        scales = np.asarray(tensor.quantisation.scales, np.float64)
        if tensor.quantisation.per_channel:
            shape = [1] * array.ndim
            shape[tensor.quantisation.axis] = -1
            scales = scales.reshape(shape)
        centred = array.astype(np.float64) - tensor.quantisation.zero_point
        return Value(FLOAT32, value.dims, name=tensor.name, data=(centred * scales).astype(np.float32).reshape(value.dims))

    def from_float(self, tensor: Tensor, computed: Value, out: Value) -> None:
        """Write a quantised output by QUANTIZE on the host."""
        out.dims = computed.dims
        self._convert("QUANTIZE", computed, out, tensor)

    def _convert(self, name: str, value: Value, out: Value, tensor: Tensor) -> Value:
        """A conversion on the host; its options hold the parameters where the operand's type cannot have them."""
        side = "inputs" if value.extension else "outputs" if out.extension else ""
        listed = {side: {"0": [tensor.quantisation.scale, tensor.quantisation.zero_point]}}
        options = options_value({PARAMETERS: listed} if side else {})
        title = f"{self.operator.index}: {self.name} {self.declared_output().name} ({name})"
        self.draft.add(Step(builtin_code(name), (value, options), (out,), title, MappingKind.HOST, self.source))
        return out
