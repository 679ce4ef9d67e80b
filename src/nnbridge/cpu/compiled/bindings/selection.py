"""GATHER, ARGMAX, ARGMIN, comparisons, logic and SELECT."""

from __future__ import annotations

import math
from typing import NoReturn

import numpy as np

from nnbridge.cpu.compiled.bindings.binding import Binding, binds, is_real, require
from nnbridge.cpu.compiled.bindings.elementwise import Rows, every_byte, every_pair
from nnbridge.cpu.compiled.instance import Fault
from nnbridge.cpu.compiled.program import element_of
from nnbridge.operations.arithmetic import is_quant8
from nnbridge.types import OperandCode, OperationCode


@binds(OperationCode.GATHER)
def gather(b: Binding) -> None:
    """GATHER along any axis."""
    call, x, indices = b.call, b.call["input"], b.call["indices"]
    axis = call.axis("axis", x.rank)
    require(x.type == b.out.type, "operands of one type")
    limit, outer, count = x.dims[axis], math.prod(x.dims[:axis]), math.prod(indices.dims)
    size = math.prod(x.dims[axis + 1 :]) * element_of(x)

    def fail(found: int) -> NoReturn:
        call.fail(f"indexes from 0 to {limit - 1}", found, "indices")

    arguments = {
        "source": b.source(x),
        "target": b.target(),
        "indices": b.source(indices),
        "count": count,
        "limit": limit,
        "outer": outer,
        "size": size,
        "fault": Fault(fail),
    }
    us = outer * count * (0.003 + size / 20_000)
    b.step("gather", us, arguments, piece=size if size in (1, 2, 4, 8) else 0)


@binds(OperationCode.ARGMAX, OperationCode.ARGMIN)
def arg_extreme(b: Binding) -> None:
    """ARGMAX, ARGMIN."""
    call, x = b.call, b.call["input"]
    axis = call.axis("axis", x.rank)
    outer, inner = math.prod(x.dims[:axis]), math.prod(x.dims[axis + 1 :])
    real, integer = is_real(x), x.type == OperandCode.TENSOR_INT32
    element = "byte" if is_quant8(x.type) else "real" if real else "integer" if integer else ""
    require(element, "float32, INT32 or 8-bit operands")
    arguments = {"source": b.source(x), "target": b.target(), "outer": outer, "length": x.dims[axis], "inner": inner}
    largest = call.definition.code == OperationCode.ARGMAX
    us = math.prod(x.dims) / (1_000 if inner == 1 else 4_000)
    b.step("arg_extreme", us, arguments, largest=largest, element=element, alone=inner == 1)


_SIGNS = {
    OperationCode.EQUAL: ("==", False),
    OperationCode.NOT_EQUAL: ("==", True),
    OperationCode.LESS: ("<", False),
    OperationCode.LESS_EQUAL: ("<=", False),
    OperationCode.GREATER: (">", False),
    OperationCode.GREATER_EQUAL: (">=", False),
}
"""Comparison → the sign, and whether its opposite is meant: what is no number is different from all."""


@binds(*_SIGNS, OperationCode.LOGICAL_AND, OperationCode.LOGICAL_OR)
def compare(b: Binding) -> None:
    """Comparisons and logic; of bytes through a table of all pairs."""
    first, second = b.call.args
    require(not (first.constant and second.constant), "an operand that is not constant")
    rows = Rows.of(first, second, b.out)
    count = math.prod(b.out.dims)
    if first.dtype.itemsize == 1:
        arguments = rows.arguments(b, 1)
        arguments["table"] = every_pair(b.call, first, second, b.out)
        b.step("look_up_pairs", count / 500, arguments, repeats=rows.repeats)
        return
    require(is_real(first) or first.type == OperandCode.TENSOR_INT32, "float32, INT32 or operands of bytes")
    sign, negated = _SIGNS[OperationCode(b.call.definition.code)]
    parameters = {"sign": sign, "negated": negated, "real": is_real(first), "repeats": rows.repeats}
    b.step("compare_values", count / 5_000, rows.arguments(b, 4), **parameters)


@binds(OperationCode.LOGICAL_NOT)
def logical_not(b: Binding) -> None:
    """LOGICAL_NOT by a table of all bytes."""
    x, count = b.call.args[0], math.prod(b.out.dims)
    arguments = {"source": b.source(x), "target": b.target(), "count": count, "table": every_byte(b.call, x, b.out)}
    b.step("look_up", count / 1_000, arguments)


@binds(OperationCode.SELECT)
def select(b: Binding) -> None:
    """SELECT; bytes have to have the output's parameters."""
    condition, first, second = b.call.args
    size = element_of(b.out)
    same = {(arg.type, np.float32(arg.scale).item(), arg.zero_point) for arg in (first, second, b.out)}
    require(size in (1, 4) and len(same) == 1, "operands of 1 or 4 bytes with one scale and zero point")
    count = math.prod(b.out.dims)
    sources = {"condition": b.source(condition), "first": b.source(first), "second": b.source(second)}
    b.step("select_values", count / 5_000, {**sources, "target": b.target(), "count": count}, size=size)
