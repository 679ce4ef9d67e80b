"""Values of kernels that are being emitted: their types, and LLVM IR written as arithmetic.

Integers are signed unless an operation says otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, TypeAlias

from llvmlite import ir

Type: TypeAlias = Any
I1, I8, I16, I32, I64 = (ir.IntType(bits) for bits in (1, 8, 16, 32, 64))
F16, F32, F64 = ir.HalfType(), ir.FloatType(), ir.DoubleType()
VOID = ir.VoidType()
_NAMES = {I1: "i1", I8: "i8", I16: "i16", I32: "i32", I64: "i64", F32: "f32", F64: "f64"}
_BYTES = {I8: 1, I16: 2, I32: 4, I64: 8, F32: 4, F64: 8}


def vector(element: Type, count: int) -> Type:
    """The type of ``count`` elements."""
    return ir.VectorType(element, count)


def element_of(kind: Type) -> Type:
    """A vector's element type; a scalar type itself."""
    return kind.element if isinstance(kind, ir.VectorType) else kind


def size_of(kind: Type) -> int:
    """Bytes of a scalar or vector type."""
    return _BYTES[element_of(kind)] * (kind.count if isinstance(kind, ir.VectorType) else 1)


def is_float(kind: Type) -> bool:
    return element_of(kind) in (F32, F64)


def mangled(kind: Type) -> str:
    """A type as LLVM writes it in names of intrinsics."""
    return f"v{kind.count}{_NAMES[kind.element]}" if isinstance(kind, ir.VectorType) else _NAMES[kind]


class Function(Protocol):
    """The kernel's function that is being emitted, as far as its values need it."""

    builder: Any

    def constant(self, kind: Type, value: float | Sequence[float]) -> IrValue:
        """A number of a type."""


class IrValue:
    """A value of the kernel that is being emitted. Python's numbers on the right become constants of its type."""

    __slots__ = ("_e", "raw")

    def __init__(self, function: Function, raw: Any) -> None:
        self._e = function
        self.raw = raw

    @property
    def type(self) -> Type:
        """The LLVM type."""
        return self.raw.type

    @property
    def count(self) -> int:
        """Elements of a vector."""
        return int(self.raw.type.count)

    def _apply(self, other: Operand, integer: str, real: str = "") -> IrValue:
        raw = other.raw if isinstance(other, IrValue) else self._e.constant(self.type, other).raw
        return IrValue(self._e, getattr(self._e.builder, real if real and is_float(self.type) else integer)(self.raw, raw))

    def __add__(self, other: Operand) -> IrValue:
        if isinstance(other, int) and other == 0 and not is_float(self.type):
            return self
        return self._apply(other, "add", "fadd")

    def __sub__(self, other: Operand) -> IrValue:
        return self._apply(other, "sub", "fsub")

    def __mul__(self, other: Operand) -> IrValue:
        return self if isinstance(other, int) and other == 1 else self._apply(other, "mul", "fmul")

    def __truediv__(self, other: Operand) -> IrValue:
        return self._apply(other, "fdiv", "fdiv")

    def __floordiv__(self, other: Operand) -> IrValue:
        """Integers, towards 0."""
        return self._apply(other, "sdiv")

    def __lshift__(self, other: Operand) -> IrValue:
        return self._apply(other, "shl")

    def __rshift__(self, other: Operand) -> IrValue:
        """With the sign."""
        return self._apply(other, "ashr")

    def __and__(self, other: Operand) -> IrValue:
        return self._apply(other, "and_")

    def __or__(self, other: Operand) -> IrValue:
        return self._apply(other, "or_")

    def __xor__(self, other: Operand) -> IrValue:
        return self._apply(other, "xor")

    def __neg__(self) -> IrValue:
        return IrValue(self._e, (self._e.builder.fneg if is_float(self.type) else self._e.builder.neg)(self.raw))

    def logical_shift(self, other: Operand) -> IrValue:
        """To the right, with zeros."""
        return self._apply(other, "lshr")

    def compare(self, sign: str, other: Operand) -> IrValue:
        """Signed integers, or real numbers, of which NaN compares false."""
        raw = other.raw if isinstance(other, IrValue) else self._e.constant(self.type, other).raw
        build = self._e.builder.fcmp_ordered if is_float(self.type) else self._e.builder.icmp_signed
        return IrValue(self._e, build(sign, self.raw, raw))

    def below(self, other: Operand) -> IrValue:
        """Unsigned comparison: true for 0 to ``other`` - 1, so that negative numbers are false."""
        raw = other.raw if isinstance(other, IrValue) else self._e.constant(self.type, other).raw
        return IrValue(self._e, self._e.builder.icmp_unsigned("<", self.raw, raw))

    def __lt__(self, other: Operand) -> IrValue:
        return self.compare("<", other)

    def __gt__(self, other: Operand) -> IrValue:
        return self.compare(">", other)

    def is_(self, other: Operand) -> IrValue:
        """Equality."""
        return self.compare("==", other)

    def _convert(self, how: str, element: Type) -> IrValue:
        kind = vector(element, self.count) if isinstance(self.type, ir.VectorType) else element
        return self if kind == self.type else IrValue(self._e, getattr(self._e.builder, how)(self.raw, kind))

    def signed(self, element: Type) -> IrValue:
        """Wider integers of the same value."""
        return self._convert("sext", element)

    def unsigned(self, element: Type) -> IrValue:
        """Wider integers, read as unsigned."""
        return self._convert("zext", element)

    def truncated(self, element: Type) -> IrValue:
        """The low bits."""
        return self._convert("trunc", element)

    def real(self, element: Type = F32) -> IrValue:
        """Signed integers as real numbers."""
        return self._convert("sitofp", element)

    def widened(self) -> IrValue:
        """Half precision as float32."""
        return self._convert("fpext", F32)

    def rounded(self) -> IrValue:
        """Float32 to the nearest of half precision, ties to even."""
        return self._convert("fptrunc", F16)

    def integer(self, element: Type = I32) -> IrValue:
        """Real numbers as integers, towards 0."""
        return self._convert("fptosi", element)

    def bits(self, kind: Type) -> IrValue:
        """The same bits as another type."""
        return self if kind == self.type else IrValue(self._e, self._e.builder.bitcast(self.raw, kind))


Operand: TypeAlias = "IrValue | int | float"
