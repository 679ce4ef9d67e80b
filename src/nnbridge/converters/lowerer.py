"""The interface of lowering functions, for any file format: constants, axes, scalars, emitted operations, refusals.

An importer's ``Lowerer`` extends :class:`LowererBase` by access to the file's operator. Names mean the same in all importers.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np

from nnbridge.converters.draft import Draft, Step, Unmappable, Value
from nnbridge.errors import Reason, Stage, Why
from nnbridge.model import Array, Source
from nnbridge.types import QUANT8, FuseCode, OperandCode, OperationCode

_INT32 = range(-(2**31), 2**31)
_ARITHMETIC = (OperationCode.ADD, OperationCode.SUB, OperationCode.MUL, OperationCode.DIV)
DTYPES = {
    OperandCode.TENSOR_FLOAT32: np.float32,
    OperandCode.TENSOR_FLOAT16: np.float16,
    OperandCode.TENSOR_INT32: np.int32,
}
"""Element types of constants that lowerings create."""


class LowererBase(ABC):
    """One operator of a file while it is lowered in one way."""

    draft: Draft
    mapping: str
    """What the emitted operations are said to come of: ``delegate``, ``provider``, ``wide``."""
    label: str
    """The operator in messages, such as ``operator 3 CONV_2D``."""
    title: str
    """The name of the emitted operations in reports, such as ``3: CONV_2D conv/Relu6``."""
    source: Source | None

    # -- the operator, by the format's importer -------------------------------------------------------------------------

    @abstractmethod
    def has(self, i: int) -> bool:
        """True if input ``i`` is present."""

    @abstractmethod
    def input(self, i: int = 0) -> Value:
        """Input ``i``; refused if it is omitted or NNAPI cannot hold it."""

    @abstractmethod
    def constant(self, i: int) -> Array:
        """The value of input ``i``; refused unless it is a constant."""

    @abstractmethod
    def shape(self, i: int = 0) -> tuple[int, ...]:
        """The dimensions of input ``i`` as the format counts them (a scalar has none); refused while they are not known."""

    @abstractmethod
    def option(self, name: str, default: Any = None) -> Any:
        """A builtin option or an attribute: the file's value, else the declared default, else ``default``."""

    @abstractmethod
    def finish(self, code: OperationCode, *inputs: Value, position: int = 0) -> None:
        """Emit the operation that writes the operator's output ``position``."""

    # -- refusals ---------------------------------------------------------------------------------------------------------

    def refuse(
        self, rule: str, found: object = "", operand: str = "", kind: Why = Why.OPERAND_VALUE, stage: Stage = Stage.OWN
    ) -> NoReturn:
        """This lowering does not apply; ``stage``: which part of a phone refuses, where the phone does."""
        raise Unmappable(Reason(rule, str(found), self.label, operand, kind), stage)

    def require(
        self,
        condition: object,
        rule: str,
        found: object = "",
        operand: str = "",
        kind: Why = Why.OPERAND_VALUE,
        stage: Stage = Stage.OWN,
    ) -> None:
        """Refuse unless the condition holds."""
        if not condition:
            self.refuse(rule, found, operand, kind, stage)

    # -- numbers ----------------------------------------------------------------------------------------------------------

    def integers(self, i: int) -> list[int]:
        """A constant input as a flat list of integers that fit into 32 bits."""
        return self.whole(self.constant(i), f"input {i}")

    def integer(self, i: int) -> int:
        """A constant input of one element as an integer."""
        numbers = self.integers(i)
        self.require(len(numbers) == 1, f"one value in input {i}", len(numbers))
        return numbers[0]

    def whole(self, array: Array | Sequence[int], operand: str = "") -> list[int]:
        """Whole numbers, refused unless they fit into INT32."""
        numbers = [int(v) for v in np.ravel(np.asarray(array))]
        bad = next((v for v in numbers if v not in _INT32), None)
        self.require(bad is None, "values that fit into 32 bits", bad, operand)
        return numbers

    def axis(self, axis: int, rank: int) -> int:
        """An axis counted from the front; refused outside ``[-rank, rank)``."""
        self.require(-rank <= axis < max(rank, 1), f"an axis in [{-rank}, {rank})", axis, kind=Why.RANGE)
        return axis % max(rank, 1)

    # -- constants --------------------------------------------------------------------------------------------------------

    def scalar(self, value: float, type: OperandCode = OperandCode.INT32) -> Value:
        """A constant scalar, INT32 unless another type is named."""
        return self.draft.scalar(type, int(value) if type is OperandCode.INT32 else value)

    def flag(self, value: object) -> Value:
        """A constant BOOL."""
        return self.draft.scalar(OperandCode.BOOL, bool(value))

    def float_scalar(self, value: float, like: Value) -> Value:
        """A constant FLOAT32 or FLOAT16 scalar, in the precision of a tensor beside it."""
        half = like.type == OperandCode.TENSOR_FLOAT16
        return self.draft.scalar(OperandCode.FLOAT16 if half else OperandCode.FLOAT32, float(value))

    def vector(self, values: Sequence[int]) -> Value:
        """A constant TENSOR_INT32 of rank 1."""
        return self.draft.ints(self.whole(list(values)))

    def tensor(self, array: Any, like: Value, **changes: Any) -> Value:
        """A constant tensor of another value's type and quantisation; numbers are converted to its element type.

        8-bit types take the array as it is stored. ``changes`` replace fields of the value, such as ``scale``.
        """
        dtype = DTYPES.get(OperandCode(like.type)) if not like.extension else None
        self.require(
            dtype is not None or like.type in QUANT8,
            "a tensor of floats, int32 or 8-bit integers",
            like.operand(),
            kind=Why.INPUT_TYPE,
        )
        data = np.asarray(array, dtype)
        value = like.like(dims=data.shape or (1,), **changes)
        value.data = data.reshape(value.dims)
        return value

    def fill(self, number: float, like: Value, dims: tuple[int, ...] = (1,)) -> Value:
        """A constant float or int32 tensor of one number, to be broadcast against ``like``."""
        self.draft.spend(int(np.prod(dims)))
        return self.tensor(np.full(dims, number), like)

    # -- operations -------------------------------------------------------------------------------------------------------

    def temporary(self, like: Value, **changes: Any) -> Value:
        """A new value between two operations, of another value's type, dimensions and quantisation unless changed."""
        return like.like(**changes)

    def emit(
        self, code: OperationCode, *inputs: Value, out: Value | None = None, like: Value | None = None, **changes: Any
    ) -> Value:
        """Emit an operation of one output and return that: ``out``, or a new temporary like ``like`` (the first input).

        The output gets the dimensions that NNAPI computes.
        """
        return self.emit_all(code, inputs, [self.temporary(like or inputs[0], **changes) if out is None else out])[0]

    def emit_all(self, code: OperationCode, inputs: Sequence[Value], outputs: Sequence[Value]) -> Sequence[Value]:
        """Emit an operation with these outputs and return them. ADD, SUB, MUL and DIV of two inputs get no activation."""
        if code in _ARITHMETIC and len(inputs) == 2:
            inputs = (*inputs, self.scalar(FuseCode.NONE))
        self.draft.add(Step(code, tuple(inputs), tuple(outputs), self.title, self.mapping, self.source))
        return outputs

    def reshaped(self, value: Value, dims: Sequence[int], out: Value | None = None) -> Value:
        """A value with other dimensions by RESHAPE; a constant becomes another view of its data."""
        dims = tuple(dims) or (1,)
        if out is None and value.dims == dims:
            return value
        if out is None and value.data is not None and value.channel_quant is None:
            view = value.like(dims=dims, name=value.name)
            view.data, view.region = value.data.reshape(dims), value.region
            return view
        self.require(sum(d < 1 for d in dims) <= 1, "at most one dimension that is not known", list(dims), kind=Why.DYNAMIC_SHAPE)
        return self.emit(OperationCode.RESHAPE, value, self.vector([d or -1 for d in dims]), out=out or value.like(dims=dims))
