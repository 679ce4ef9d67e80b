"""Einsum of one or two operands: transpositions, sums and BATCH_MATMUL."""

from __future__ import annotations

import math
from collections.abc import Sequence

from nnbridge.converters.draft import Value
from nnbridge.types import OperationCode
from nnbridge_onnx.lowering import Lowerer, lowers

C = OperationCode


class _Terms:
    """Operands with a letter for each axis."""

    def __init__(self, to: Lowerer) -> None:
        self.to = to
        self.sizes: dict[str, int] = {}

    def operand(self, position: int, letters: str) -> Value:
        """An input, whose sizes are noted."""
        shape = self.to.shape(position)
        plain = len(shape) == len(letters) == len(set(letters)) and 0 not in shape
        self.to.require(plain, "one letter for each axis, none twice", letters)
        for letter, size in zip(letters, shape, strict=True):
            self.to.require(self.sizes.setdefault(letter, size) == size, f"{self.sizes[letter]} along {letter}", size)
        return self.to.value(position)

    def summed(self, x: Value, letters: str, kept: str) -> tuple[Value, str]:
        """The value without the axes that nothing else mentions."""
        gone = [i for i, letter in enumerate(letters) if letter not in kept]
        if not gone:
            return x, letters
        made = self.to.emit(C.REDUCE_SUM, [x, self.to.vector(gone), self.to.flag(False)], self.to.temporary(x))
        return made, "".join(letter for letter in letters if letter in kept)

    def turned(self, x: Value, letters: str, wanted: str) -> Value:
        """The value with its axes in another order."""
        order = [letters.index(letter) for letter in wanted]
        if order == sorted(order):
            return x
        return self.to.emit(C.TRANSPOSE, [x, self.to.vector(order)], self.to.temporary(x))

    def grouped(self, x: Value, groups: Sequence[str]) -> Value:
        """The value with each group of axes as one."""
        return self.to.emit(C.RESHAPE, [x, self.to.vector([self.count(g) for g in groups])], self.to.temporary(x))

    def count(self, letters: str) -> int:
        return math.prod(self.sizes[letter] for letter in letters)


@lowers("Einsum")
def _einsum(to: Lowerer) -> None:
    """Letters of both operands and the result are batches; those of both operands alone are summed over."""
    inputs, result = _parsed(to)
    to.require(len(inputs) <= 2, "two operands at most", len(inputs))
    terms = _Terms(to)
    values = [terms.operand(i, letters) for i, letters in enumerate(inputs)]
    to.require(to.is_float(values[0]), "floating values")
    if len(values) == 1:
        x, letters = terms.summed(values[0], inputs[0], result)
        to.require(set(letters) == set(result), "letters of the operand in the result", result)
        to.finish(C.RESHAPE, [terms.turned(x, letters, result), to.vector([terms.sizes[c] for c in result] or [1])])
        return
    (a, left), (b, right) = (terms.summed(values[i], inputs[i], result + inputs[1 - i]) for i in (0, 1))
    to.require(set(result) <= set(left + right), "letters of the operands in the result", result)
    batch = "".join(c for c in result if c in left and c in right)
    inner = "".join(c for c in left if c in right and c not in result)
    rows, columns = ("".join(c for c in result if c in side and c not in batch) for side in (left, right))
    a = terms.grouped(terms.turned(a, left, batch + rows + inner), [batch, rows, inner])
    b = terms.grouped(terms.turned(b, right, batch + inner + columns), [batch, inner, columns])
    made = to.emit(C.BATCH_MATMUL, [a, b, to.flag(False), to.flag(False)], to.temporary(a))
    order = batch + rows + columns
    dims = [terms.sizes[c] for c in order] or [1]
    if order == result:
        to.finish(C.RESHAPE, [made, to.vector(dims)])
        return
    spread = to.emit(C.RESHAPE, [made, to.vector(dims)], to.temporary(a))
    to.finish(C.TRANSPOSE, [spread, to.vector([order.index(c) for c in result])])


def _parsed(to: Lowerer) -> tuple[list[str], str]:
    """The letters of each operand and of the result; those that occur once, in their order, where it is not given."""
    equation = str(to.attribute("equation", "")).replace(" ", "")
    to.require("." not in equation, "an equation without dots", equation)
    left, arrow, result = equation.partition("->")
    inputs = left.split(",")
    to.require(len(inputs) == len(to.node.inputs), "letters for each operand", equation)
    if not arrow:
        result = "".join(sorted(c for c in set(left) - {","} if left.count(c) == 1))
    return inputs, result
