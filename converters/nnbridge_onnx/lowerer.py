"""The interface of the lowerings of ONNX's operators."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from nnbridge.converters.draft import Draft, Value
from nnbridge.converters.lowerer import LowererBase
from nnbridge.errors import Why
from nnbridge.model import Array, Model, Source
from nnbridge.types import FLOATS, QUANT8, FuseCode, OperandCode, OperationCode
from nnbridge_onnx.declaration import OnnxOperator, declared
from nnbridge_onnx.operands import LAST, TRANSPOSABLE, Operands, dims_of, in_place, moved
from nnbridge_onnx.passes.qdq import QdqGroup
from nnbridge_onnx.read.graph import INT64, Dims, Node, type_name

C = OperationCode


class Lowerer(LowererBase):
    """One node while it is lowered in one way."""

    def __init__(
        self,
        node: Node,
        operands: Operands,
        layout: str,
        convert: Callable[[Any, Source | None], Model],
        activation: FuseCode = FuseCode.NONE,
        group: QdqGroup | None = None,
    ) -> None:
        self.node = node
        self.operands = operands
        self.group = group
        """The group on 8-bit values that is lowered, if the node is one."""
        self.channels_last = layout != "nchw"
        """True if images are required with channels last; else operations carry NNAPI's NCHW flag."""
        self.draft: Draft = operands.draft
        self.mapping, self.label, self.title, self.source = operands.mapping, node.label, node.title, operands.source
        self._definition: OnnxOperator | None = declared(node)
        self._convert = convert
        self._activation = activation
        self.activated = activation is FuseCode.NONE
        """True once the activation that follows the node is drafted."""

    # -- the node -----------------------------------------------------------------------------------------------------------

    def name(self, i: int) -> str:
        """The name of an input, empty where it is omitted."""
        return self.node.name_of(i)

    def has(self, i: int) -> bool:
        """True if input ``i`` is present."""
        return bool(self.name(i))

    def option(self, name: str, default: Any = None) -> Any:
        """An attribute: the file's value, else the declared default, else ``default``; refused outside its declared bounds."""
        found = self._definition
        if found is None:
            return self.node.attributes.get(name, default)
        value = found.value(self.node.attributes, name, default)
        option = found.option(name) if name in self.node.attributes else None
        if option is not None and (broken := option.violation(value)):
            self.require(False, broken, value, name)
        return value

    def shape(self, i: int = 0, *, open_dimensions: int = 0) -> Dims:
        """The shape of an input, which must be known but for so many dimensions (-1)."""
        return self._known_shape(self.name(i), "an input", open_dimensions)

    def out_shape(self, position: int = 0, *, open_dimensions: int = 0) -> Dims:
        """The shape of an output, which must be known but for so many dimensions (-1)."""
        return self._known_shape(self.node.outputs[position], "an output", open_dimensions)

    def _known_shape(self, name: str, what: str, open_dimensions: int) -> Dims:
        shape = self.operands.tensor(name).shape
        if shape is None or sum(d < 0 for d in shape) > open_dimensions:
            self.refuse(f"{what} of known shape (see --shape)", shape, name, Why.DYNAMIC_SHAPE)
        return shape

    def rank(self, i: int = 0) -> int:
        """The number of axes of an input, which must be known."""
        shape = self.operands.tensor(self.name(i)).shape
        if shape is None:
            self.refuse("an input of known rank", "none", self.name(i), Why.DYNAMIC_SHAPE)
        return len(shape)

    def known(self, i: int) -> Array | None:
        """The value of an input if it is a constant."""
        return self.operands.constants.get(self.name(i))

    def constant(self, i: int) -> Array:
        """The value of an input; refused unless it is a constant."""
        array, name = self.known(i), self.name(i)
        if array is None:
            self.refuse("a constant", "a computed value" if name else "none", name or f"input {i}", Why.NOT_CONSTANT)
        return array

    def optional(self, i: int) -> Array | None:
        """The value of an optional input, None if it is omitted; refused unless it is a constant."""
        return self.constant(i) if self.has(i) else None

    def body(self, model: Any, number: int) -> Model:
        """A ``ModelProto`` inside this node, converted; bodies are numbered from 1."""
        at = self.source
        return self._convert(model, None if at is None else Source(at.index, at.operator, number, at.callers))

    # -- values -------------------------------------------------------------------------------------------------------------

    def input(self, i: int = 0) -> Value:
        """An input in ONNX's order of axes."""
        name = self.name(i)
        self.require(name, "a value", "none", f"input {i}", Why.MISSING_OPERAND)
        value = self._in_nnapi(name, self.operands.is_narrow(name))
        empty = value.omitted or 0 in (self.operands.tensor(name).shape or ())
        self.require(not empty, "a value with elements", "none", name)
        return value

    def indexes(self, i: int) -> Value:
        """An input of whole numbers, as INT32."""
        name = self.name(i)
        if self.operands.tensor(name).type == INT64:
            return self.operands.narrow(name)
        value = self.input(i)
        self.require(value.type == OperandCode.TENSOR_INT32, "int32 or int64", OperandCode(value.type).name, name, Why.INPUT_TYPE)
        return value

    def named(self, name: str) -> Value:
        """A value by its name, INT64 as INT32."""
        return self._in_nnapi(name, self.operands.tensor(name).type == INT64)

    def _in_nnapi(self, name: str, narrow: bool) -> Value:
        """A value that NNAPI has a type for, INT64 as INT32 if it is to be ``narrow``."""
        value, found = self.operands.narrow(name) if narrow else self.operands.value(name), self.operands.tensor(name).type
        self.require(not value.extension, "an element type of NNAPI", type_name(found), name, Why.INPUT_TYPE)
        return value

    def operand(self, i: int, like: Value, dims: Dims | None = None) -> Value:
        """An input beside a floating value, in other dimensions maybe: constants get its type."""
        array = self.known(i)
        if array is not None:
            return self.float_tensor(array, like, dims)
        value = self.input(i)
        if dims is None or dims == value.dims:
            return value
        return self.emit(C.RESHAPE, value, self.vector(dims))

    def image(self, i: int = 0) -> Value:
        """A line or plane of channels in the order that convolutions compute in."""
        value = self.input(i)
        return self.operands.image(self.name(i)) if self.channels_last else value

    def image_if(self, images: bool) -> Value:
        """The first input, with channels last if ``images``."""
        return self.image() if images else self.input()

    @property
    def is_image(self) -> bool:
        """True if the first input exists with channels last and may be read so."""
        return self.channels_last and self.operands.is_image(self.name(0))

    def activation(self) -> Value:
        """The activation of the operation that writes the output."""
        self.activated = True
        return self.scalar(int(self._activation))

    def layout(self, *, needed: bool = False) -> list[Value]:
        """NNAPI's flag for channels first (feature level 3), left away where it states what the oldest signature means."""
        return [self.flag(not self.channels_last)] if needed or not self.channels_last else []

    def float_tensor(self, array: Any, like: Value, dims: Dims | None = None) -> Value:
        """A constant of the floating type of another value, in other dimensions maybe."""
        self.require(like.type in FLOATS, "float32 or float16", like.operand(), like.name, Why.INPUT_TYPE)
        data = np.asarray(array)
        return in_place(self.tensor(data if dims is None else data.reshape(dims), like))

    # -- requirements -------------------------------------------------------------------------------------------------------

    def is_float(self, value: Value) -> bool:
        """True for float32 and float16."""
        return value.type in FLOATS

    def require_float(self, *values: Value) -> None:
        """Refuse values other than float32 and float16."""
        for value in values:
            self.require(value.type in FLOATS, "floating values", value.operand(), value.name, Why.INPUT_TYPE)

    def require_exact(self) -> None:
        """Refuse arithmetic on int64, whose results may not fit where its operands do."""
        names = [n for n in self.node.inputs if self.operands.tensor(n).type == INT64]
        self.require(not names, "numbers other than int64", "INT64", names[0] if names else "")

    def require_numbers(self, *values: Value) -> None:
        """Refuse 8-bit values outside a group: NNAPI computes on what they stand for, ONNX on the bytes."""
        for value in values:
            plain = value.type not in QUANT8 or self.group is not None
            self.require(plain, "values other than bytes", OperandCode(value.type).name, value.name)

    def require_one_output(self) -> None:
        """Refuse further outputs."""
        self.require(len(self.node.results) == 1, "one output", len(self.node.results))

    def require_shape(self, value: Value) -> None:
        """Refuse a value with open dimensions."""
        known = value.dims and 0 not in value.dims
        self.require(known, "an input of known shape (see --shape)", list(value.dims), value.name, Why.DYNAMIC_SHAPE)

    # -- operations ---------------------------------------------------------------------------------------------------------

    def temporary(self, like: Value, **changes: Any) -> Value:
        """A new value between two operations of one node, whose dimensions NNAPI computes."""
        return like.like(**{"dims": (), **changes})

    def compute(self, code: OperationCode, *inputs: Value | float, out: Value | None = None) -> Value:
        """One element-wise operation on floating values; numbers become constants."""
        like = next(v for v in inputs if isinstance(v, Value))
        values = [v if isinstance(v, Value) else self.float_tensor([v], like) for v in inputs]
        return self.emit(code, *values, out=out, like=like)

    def below(self, x: Value, limit: float, near: Value, far: Value) -> Value:
        """Element by element, one of two values: the first where a third one is below a number."""
        holds = self.emit(C.LESS, x, self.float_tensor([limit], x), out=self.bools(x.dims))
        return self.emit(C.SELECT, holds, near, far, like=near)

    def bound(self, x: Value, limit: float) -> Value:
        """A value between -limit and limit."""
        return self.compute(C.MINIMUM, self.compute(C.MAXIMUM, x, -limit), limit)

    def bools(self, dims: Dims = ()) -> Value:
        """A new temporary of booleans."""
        return Value(OperandCode.TENSOR_BOOL8, dims)

    def output(self, position: int = 0, *, images: bool = False) -> Value:
        """A new value for an output, as inference describes it; with channels last if ``images`` and the layout says so."""
        name = self.node.outputs[position]
        tensor = self.operands.tensor(name)
        if tensor.type == INT64:
            value = Value(OperandCode.TENSOR_INT32, dims_of(tensor.shape), name=name)
        else:
            value = self.operands.declared(name)
            self.require(not value.extension, "an element type of NNAPI", type_name(tensor.type), name, Why.OUTPUT_TYPE)
        if images and self.channels_last and value.rank in LAST:
            value.dims = moved(value.dims, LAST[value.rank])
            value.name = f"{value.name} NHWC"
        return value

    def finish(self, code: OperationCode, *inputs: Value, position: int = 0, images: bool = False) -> None:
        """Emit the operation that writes an output, with channels last if ``images``."""
        self.result(self.emit(code, *inputs, out=self.output(position, images=images)), position, images=images)

    def result(self, value: Value, position: int = 0, *, images: bool = False) -> None:
        """A value is the output; NNAPI must have computed the shape that inference found."""
        name = self.node.outputs[position]
        inferred, images = self.operands.shape(name), images and self.channels_last
        if images and inferred is not None:
            inferred = moved(inferred, LAST[len(inferred)])
        if inferred is not None and 0 not in inferred and 0 not in value.dims and value.dims:
            self.require(value.dims == (inferred or (1,)), f"an output of {list(inferred)}", list(value.dims), name)
        if images:
            self.operands.set_image(name, value)
        elif self.operands.tensor(name).type == INT64:
            self.operands.set_narrow(name, value)
        else:
            self.operands.set(name, value)

    def named_result(self, value: Value, *, images: bool = False) -> None:
        """A temporary is the output and gets its name."""
        value.name = self.node.outputs[0]
        self.result(value, images=images)

    # -- either order of axes -----------------------------------------------------------------------------------------------

    def aligned(self, *positions: int) -> tuple[list[Value], bool]:
        """Inputs of an element-wise operator in one order of axes, and whether that is channels-last.

        Images stay as they are: where one of them exists with channels last, the others are brought into that order, unless
        fewer would have to be transposed for ONNX's own.
        """
        names = [self.name(p) for p in positions]
        images = self.channels_last and any(map(self.operands.is_image, names)) and self._all_transposable(names)
        if images and not self.operands.prefers_first(names):
            rank = max(self.operands.image(n).rank for n in names if self.operands.is_image(n))
            found = [self._as_image(p, rank) for p in positions]
            if all(value is not None for value in found):
                return [value for value in found if value is not None], True
        return [self.input(p) for p in positions], False

    def _all_transposable(self, names: Sequence[str]) -> bool:
        """True if TRANSPOSE accepts the outputs, and the inputs that would have to be transposed."""
        computed = [n for n in names if n not in self.operands.constants and not self.operands.is_image(n)]
        return all(self.operands.tensor(n).type in TRANSPOSABLE for n in (*computed, *self.node.results))

    def _as_image(self, i: int, rank: int) -> Value | None:
        """An operand that broadcasts against images with channels last, or None if it has to be computed for that."""
        name, array = self.name(i), self.known(i)
        shape = self.operands.tensor(name).shape
        if shape is not None and len(shape) == rank:
            return self.image(i)
        if array is not None and shape is not None and len(shape) < rank:
            if array.size == 1:
                return self.input(i)
            wide = array.reshape((1,) * (rank - array.ndim) + array.shape).transpose(LAST[rank])
            return self.operands.constant(np.ascontiguousarray(wide), self.operands.tensor(name).type, f"{name} NHWC")
        return self.input(i) if shape in ((), (1,)) else None
