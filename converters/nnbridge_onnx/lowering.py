"""How lowerings are registered, and what they work with.

A lowering drafts NNAPI operations for one node, or raises :class:`Unmappable` with the reason why NNAPI cannot express it;
then the next one for the operator is tried, and in the end the node goes to the host.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn, TypeAlias

import numpy as np

from nnbridge.converters.draft import Step, Unmappable, Value
from nnbridge.errors import Reason
from nnbridge.model import Model
from nnbridge.types import FuseCode, OperandCode, OperationCode
from nnbridge_onnx.graph import Array, Dims, Node
from nnbridge_onnx.values import INT64, LAST, MOVABLE, Values, dims_of, in_place, moved

Lower: TypeAlias = "Callable[[Lowerer], None]"

LOWERINGS: dict[str, list[Lower]] = {}
"""ONNX operator → lowerings, the preferred one first."""

_INT32 = range(-(2**31), 2**31)


def lowers(*names: str) -> Callable[[Lower], Lower]:
    """Register a lowering function for some operators."""

    def register(function: Lower) -> Lower:
        for name in names:
            LOWERINGS.setdefault(name, []).append(function)
        return function

    return register


class Lowerer:
    """One node on its way into the draft."""

    def __init__(
        self,
        node: Node,
        values: Values,
        layout: str,
        convert: Callable[[Any], Model],
        activation: FuseCode = FuseCode.NONE,
        *,
        grouped: bool = False,
    ) -> None:
        self.node = node
        self._grouped = grouped
        self._convert = convert
        self._activation = activation
        self.activated = activation is FuseCode.NONE
        """True once the activation that follows the node is drafted."""
        self.values = values
        self.channels_last = layout != "nchw"
        """True if images are wanted with channels last; else operations carry NNAPI's NCHW flag."""

    # -- the node ---------------------------------------------------------------------------------------------------

    def refuse(self, rule: str, found: object = "", operand: str = "") -> NoReturn:
        """This node is not expressible."""
        raise Unmappable(Reason(rule, str(found), self.node.label, operand))

    def require(self, condition: object, rule: str, found: object = "", operand: str = "") -> None:
        """Refuse unless the condition holds."""
        if not condition:
            self.refuse(rule, found, operand)

    def name(self, position: int) -> str:
        """The name of an input, empty where it is omitted."""
        return self.node.inputs[position] if position < len(self.node.inputs) else ""

    def attribute(self, name: str, default: Any = None) -> Any:
        """An attribute's value."""
        return self.node.attributes.get(name, default)

    def ints(self, name: str, default: Sequence[int]) -> list[int]:
        """An attribute of whole numbers."""
        return [int(v) for v in self.node.attributes.get(name, default)]

    def shape(self, position: int = 0) -> Dims:
        """The shape of an input, which must be known."""
        shape = self.values.shape(self.name(position))
        if shape is None:
            self.refuse(
                "an input of known shape (see --shape)", self.values.tensor(self.name(position)).shape, self.name(position)
            )
        return shape

    def out_shape(self, position: int = 0) -> Dims:
        """The shape of an output, which must be known."""
        name = self.node.outputs[position]
        shape = self.values.shape(name)
        if shape is None:
            self.refuse("an output of known shape (see --shape)", self.values.tensor(name).shape, name)
        return shape

    def rank(self, position: int = 0) -> int:
        """The number of axes of an input, which must be known."""
        shape = self.values.tensor(self.name(position)).shape
        if shape is None:
            self.refuse("an input of known rank", "none", self.name(position))
        return len(shape)

    def axis(self, name: str, default: int, rank: int) -> int:
        """An attribute that is an axis, counted from the front."""
        axis = int(self.attribute(name, default))
        self.require(-rank <= axis < max(rank, 1), f"an axis in [{-rank}, {rank})", axis, name)
        return axis % max(rank, 1)

    def constant(self, position: int) -> Array:
        """The value of an input that must be a constant."""
        name = self.name(position)
        if name not in self.values.constants:
            self.refuse("a constant", "a computed value" if name else "none", name or f"input {position}")
        return self.values.constants[name]

    def optional_constant(self, position: int) -> Array | None:
        """The same for an optional input."""
        return self.constant(position) if self.name(position) else None

    def operand(self, position: int, like: Value, dims: Dims | None = None) -> Value:
        """An input beside a floating value, in other dimensions maybe: constants take its type."""
        name = self.name(position)
        if name in self.values.constants:
            return self.real(self.values.constants[name], like, dims)
        value = self.value(position)
        if dims is None or dims == value.dims:
            return value
        return self.emit(OperationCode.RESHAPE, [value, self.vector(dims)], self.temporary(value))

    def whole(self, array: Array, operand: str = "") -> list[int]:
        """Whole numbers that fit into INT32."""
        numbers = [int(v) for v in np.ravel(array)]
        bad = next((v for v in numbers if v not in _INT32), None)
        self.require(bad is None, "values that fit into 32 bits", bad, operand)
        return numbers

    # -- values -----------------------------------------------------------------------------------------------------

    def value(self, position: int = 0) -> Value:
        """An input in ONNX's order of axes."""
        name = self.name(position)
        self.require(name, "a value", "none", f"input {position}")
        value = self.values.narrow(name) if self.values.is_narrow(name) else self.values.value(name)
        self.require(not value.extension, "an element type of NNAPI", self._type(name), name)
        self.require(not value.omitted and 0 not in (self.values.tensor(name).shape or ()), "a value with elements", "none", name)
        return value

    def indexes(self, position: int) -> Value:
        """An input of whole numbers, as INT32."""
        name = self.name(position)
        if self.values.tensor(name).type == INT64:
            return self.values.narrow(name)
        value = self.value(position)
        self.require(value.type == OperandCode.TENSOR_INT32, "int32 or int64", OperandCode(value.type).name, name)
        return value

    def require_exact(self) -> None:
        """Refuse arithmetic on int64, whose results may not fit where its operands do."""
        names = [n for n in self.node.inputs if self.values.tensor(n).type == INT64]
        self.require(not names, "numbers other than int64", "INT64", names[0] if names else "")

    def named(self, name: str) -> Value:
        """A value by its name, INT64 as INT32."""
        value = self.values.narrow(name) if self.values.tensor(name).type == INT64 else self.values.value(name)
        self.require(not value.extension, "an element type of NNAPI", self._type(name), name)
        return value

    def body(self, model: Any) -> Model:
        """A ``ModelProto`` inside this one, converted."""
        return self._convert(model)

    def _type(self, name: str) -> str:
        from nnbridge_onnx.extension import ELEMENT_TYPES

        return ELEMENT_TYPES.get(self.values.tensor(name).type, ("a type that nnbridge cannot hold",))[0]

    def image(self, position: int = 0) -> Value:
        """A line or plane of channels in the order that convolutions compute in."""
        value = self.value(position)
        return self.values.image(self.name(position)) if self.channels_last else value

    def scalar(self, value: float, kind: OperandCode = OperandCode.INT32) -> Value:
        """A constant scalar."""
        return self.values.draft.scalar(kind, value)

    def flag(self, value: bool) -> Value:
        """A constant BOOL."""
        return self.scalar(value, OperandCode.BOOL)

    def activation(self) -> Value:
        """The activation of the operation that makes the output."""
        self.activated = True
        return self.scalar(int(self._activation))

    def layout(self, *, needed: bool = False) -> list[Value]:
        """NNAPI's flag for channels first (feature level 3), left away where it says what the oldest signature says."""
        return [self.flag(not self.channels_last)] if needed or not self.channels_last else []

    def like_scalar(self, like: Value, value: float) -> Value:
        """A FLOAT32 or FLOAT16 scalar that goes with a tensor."""
        half = like.type == OperandCode.TENSOR_FLOAT16
        return self.scalar(value, OperandCode.FLOAT16 if half else OperandCode.FLOAT32)

    def vector(self, values: Sequence[int]) -> Value:
        """A constant TENSOR_INT32 of rank 1."""
        return self.values.draft.ints(self.whole(np.array(values, np.int64)))

    def real(self, array: Any, like: Value, dims: Dims | None = None) -> Value:
        """A constant of the floating type of another value."""
        types = {OperandCode.TENSOR_FLOAT32: np.float32, OperandCode.TENSOR_FLOAT16: np.float16}
        dtype = types.get(OperandCode(like.type)) if not like.extension else None
        if dtype is None:
            self.refuse("float32 or float16", OperandCode(like.type).name, like.name)
        data = np.ascontiguousarray(array, dtype)
        data = data.reshape(dims if dims is not None else data.shape or (1,))
        return in_place(Value(like.type, data.shape, data=data))

    def require_numbers(self, *values: Value) -> None:
        """Refuse 8-bit values outside a group: NNAPI computes on what they stand for, ONNX on the bytes."""
        for value in values:
            plain = value.type not in (OperandCode.TENSOR_QUANT8_ASYMM, OperandCode.TENSOR_QUANT8_ASYMM_SIGNED)
            self.require(plain or self._grouped, "values other than bytes", OperandCode(value.type).name, value.name)

    def is_float(self, value: Value) -> bool:
        """True for float32 and float16."""
        return value.type in (OperandCode.TENSOR_FLOAT32, OperandCode.TENSOR_FLOAT16)

    # -- operations -------------------------------------------------------------------------------------------------

    def emit(self, code: OperationCode, inputs: Sequence[Value], output: Value) -> Value:
        """Draft an operation; its output gets the dimensions that NNAPI computes."""
        self.values.draft.add(Step(code, tuple(inputs), (output,), self.node.title, self.values.mapping))
        return output

    def emit_all(self, code: OperationCode, inputs: Sequence[Value], outputs: Sequence[Value]) -> Sequence[Value]:
        """Draft an operation of several outputs."""
        self.values.draft.add(Step(code, tuple(inputs), tuple(outputs), self.node.title, self.values.mapping))
        return outputs

    def temporary(self, like: Value, dims: Dims = ()) -> Value:
        """A value between two operations of one node."""
        return like.like(dims=dims)

    def output(self, position: int = 0) -> Value:
        """A new value for an output, as inference describes it."""
        name = self.node.outputs[position]
        tensor = self.values.tensor(name)
        if tensor.type == INT64:
            return Value(OperandCode.TENSOR_INT32, dims_of(tensor.shape), name=name)
        value = self.values.declared(name)
        self.require(not value.extension, "an element type of NNAPI", self._type(self.node.outputs[position]), value.name)
        return value

    def image_output(self, position: int = 0) -> Value:
        """A new value for an output in the order that convolutions compute in."""
        value = self.output(position)
        if self.channels_last and value.rank in LAST:
            value.dims = moved(value.dims, LAST[value.rank])
            value.name = f"{value.name} NHWC"
        return value

    def finish(self, code: OperationCode, inputs: Sequence[Value], position: int = 0) -> None:
        """Draft the operation that makes an output."""
        self.result(self.emit(code, inputs, self.output(position)), position)

    def finish_image(self, code: OperationCode, inputs: Sequence[Value], position: int = 0) -> None:
        """Draft the operation that makes an output image."""
        self.image_result(self.emit(code, inputs, self.image_output(position)), position)

    def result(self, value: Value, position: int = 0) -> None:
        """A value is the output."""
        self._check_shape(value.dims, self.values.shape(self.node.outputs[position]), position)
        name = self.node.outputs[position]
        if self.values.tensor(name).type == INT64:
            self.values.set_narrow(name, value)
        else:
            self.values.set(name, value)

    def image_result(self, value: Value, position: int = 0) -> None:
        """An image is the output."""
        if not self.channels_last:
            self.result(value, position)
            return
        shape = self.values.shape(self.node.outputs[position])
        self._check_shape(value.dims, None if shape is None else moved(shape, LAST[len(shape)]), position)
        self.values.set_image(self.node.outputs[position], value)

    def _check_shape(self, computed: Dims, inferred: Dims | None, position: int) -> None:
        """NNAPI must compute what ONNX's inference says."""
        if inferred is None or 0 in inferred or 0 in computed or not computed:
            return
        self.require(
            computed == (inferred or (1,)), f"an output of {list(inferred)}", list(computed), self.node.outputs[position]
        )

    # -- either order of axes ---------------------------------------------------------------------------------------

    def alike(self, *positions: int) -> tuple[list[Value], bool]:
        """Inputs of an element-wise operator in one order of axes, and whether that is channels-last.

        Images stay as they are: where one of them exists with channels last, the others are brought into that order, unless
        fewer would have to be turned for ONNX's own.
        """
        names = [self.name(p) for p in positions]
        images = self.channels_last and any(map(self.values.is_image, names)) and self._all_movable(names)
        if images and not self.values.prefers_first(names):
            rank = max(self.values.image(n).rank for n in names if self.values.is_image(n))
            aligned = [self._as_image(p, rank) for p in positions]
            if all(value is not None for value in aligned):
                return [value for value in aligned if value is not None], True
        return [self.value(p) for p in positions], False

    def _all_movable(self, names: Sequence[str]) -> bool:
        """True if TRANSPOSE takes the outputs, and the inputs that would have to be turned."""
        computed = [n for n in names if n not in self.values.constants and not self.values.is_image(n)]
        return all(self.values.tensor(n).type in MOVABLE for n in (*computed, *filter(None, self.node.outputs)))

    def _as_image(self, position: int, rank: int) -> Value | None:
        """An operand that broadcasts against images with channels last, or None if it has to be computed for that."""
        name = self.name(position)
        shape = self.values.tensor(name).shape
        if shape is not None and len(shape) == rank:
            return self.image(position)
        if name in self.values.constants and shape is not None and len(shape) < rank:
            array = self.values.constants[name]
            if array.size == 1:
                return self.value(position)
            wide = array.reshape((1,) * (rank - array.ndim) + array.shape).transpose(LAST[rank])
            return self.values.constant(np.ascontiguousarray(wide), self.values.tensor(name).type, f"{name} NHWC")
        return self.value(position) if shape in ((), (1,)) else None

    def finish_alike(self, code: OperationCode, inputs: Sequence[Value], images: bool, position: int = 0) -> None:
        """Draft the operation that makes an output in the order of its inputs."""
        if images:
            self.finish_image(code, inputs, position)
        else:
            self.finish(code, inputs, position)
