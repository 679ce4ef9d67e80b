"""Operations of single elements: arithmetic, functions, quantisation, casts."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from nnbridge.cpu.compiled.bindings.binding import (
    BOUNDS,
    MOST_PIECES,
    Binding,
    as_inside,
    binds,
    byte_values,
    is_real,
    limits_of,
    offset_of,
    reference_results,
    require,
    require_at_most,
    require_types,
    run_reference,
    zero_of,
)
from nnbridge.cpu.compiled.objects import Variant
from nnbridge.cpu.compiled.program import (
    Argument,
    KernelCall,
    Place,
    is_half,
)
from nnbridge.cpu.compiled.requantise import Rescaling
from nnbridge.model import Array
from nnbridge.operations.arithmetic import (
    fused_activation,
    integer_range,
    is_quant8,
    product_multiplier,
    quantize_multiplier,
    sum_multipliers,
)
from nnbridge.operations.call import Arg, Call
from nnbridge.types import FuseCode, OperandCode, OperationCode


class Rows:
    """Two operands broadcast against each other, seen as rows of a length."""

    def __init__(self, first: Arg, second: Arg, out: Arg) -> None:
        self.operands = first, second
        rank = len(out.dims)
        dims = [(1,) * (rank - len(arg.dims)) + tuple(arg.dims) for arg in (first, second)]
        split, modes = rank, [0, 0]
        # The longest tail of axes over which each operand advances (1) or repeats (2) all the time.
        while split > 0:
            axis = split - 1
            now = [0 if out.dims[axis] == 1 else 1 if d[axis] == out.dims[axis] else 2 for d in dims]
            if any(m and n and m != n for m, n in zip(modes, now, strict=True)):
                break
            modes = [m or n for m, n in zip(modes, now, strict=True)]
            split = axis
        self.repeats = (modes[0] == 2, modes[1] == 2)
        self.length = math.prod(out.dims[split:])
        self.rows = math.prod(out.dims[:split])
        self._outer = out.dims[:split]
        self._dims = dims
        if self.rows == 1:
            # One long row in pieces, for threads to share.
            pieces = next((n for n in (16, 8, 4, 2) if self.length % n == 0 and self.length // n >= 4096), 1)
            self.rows, self.length = pieces, self.length // pieces
            self._outer, self._dims = (pieces,), [(1 if repeat else pieces, self.length) for repeat in self.repeats]

    @classmethod
    def of(cls, first: Arg, second: Arg, out: Arg) -> Rows:
        """Rows that are not short where a constant can be repeated."""
        rows = cls(first, second, out)
        if rows.length < _SHORT and rows.rows > 1:
            first, second = (_stretched(arg, out) if arg.constant else arg for arg in (first, second))
            rows = cls(first, second, out)
        return rows

    def _table(self, operand: int, element: int) -> Array:
        """The offset of each row of an operand, in bytes."""
        dims, split, repeat = self._dims[operand], len(self._outer), self.repeats[operand]
        tail = 1 if repeat else math.prod(dims[split:])
        offsets = np.zeros((), np.int64)
        for axis in range(split):
            stride = 0 if dims[axis] == 1 else math.prod(dims[axis + 1 : split]) * tail
            offsets = offsets[..., None] + np.arange(self._outer[axis]) * stride
        return (offsets.reshape(-1) * element).astype(np.int32)

    def arguments(self, b: Binding, element: int) -> dict[str, Argument]:
        """The arguments of kernels of two operands."""
        first, second = self.operands
        require_at_most(MOST_PIECES, self.rows, "rows")
        require(self.rows * self.length * element < 2**31, "operands below 2 GB")
        tables = [self._table(operand, element) for operand in range(2)]
        return {
            "first": b.source(first),
            "second": b.source(second),
            "target": b.target(),
            "rows": self.rows,
            "length": self.length,
            "first_table": tables[0],
            "second_table": tables[1],
        }


_SHORT = 64
"""Elements of a row below which a constant operand is stretched over more axes."""


def _stretched(arg: Arg, out: Arg) -> Arg:
    """A constant repeated over the last axes, as far as rows become long enough: it then advances with the other operand."""
    rank = len(out.dims)
    dims = [1] * (rank - len(arg.dims)) + list(arg.dims)
    for axis in range(rank - 1, -1, -1):
        dims[axis] = out.dims[axis]
        if math.prod(dims[axis:]) >= _SHORT:
            break
    if math.prod(dims) > 1 << 20:
        return arg
    value = np.ascontiguousarray(np.broadcast_to(arg.data, dims))
    return arg.replace(value=value, dims=tuple(dims))


_ARITHMETIC = {
    OperationCode.ADD: "add",
    OperationCode.SUB: "sub",
    OperationCode.MUL: "mul",
    OperationCode.DIV: "div",
    OperationCode.MAXIMUM: "maximum",
    OperationCode.MINIMUM: "minimum",
    OperationCode.PRELU: "prelu",
}


@binds(*_ARITHMETIC)
def combine(b: Binding) -> None:
    """Operations of two operands with broadcasting; 8-bit ones other than sums and products through a table of all pairs."""
    call, out = b.call, b.out
    first, second = call.args[0], call.args[1]
    operator = _ARITHMETIC[call.definition.code]
    require(not (first.constant and second.constant), "an operand that is not constant")
    activation = fused_activation(call) if call.get("activation") is not None else None
    count = math.prod(out.dims)
    rows = Rows.of(first, second, out)
    if out.type == OperandCode.TENSOR_INT32:
        require(operator in ("add", "sub", "mul", "div") and activation == FuseCode.NONE, "sums, products or quotients of INT32")
        arguments = rows.arguments(b, 4)
        b.step("combine_integers", count / 2_000, arguments, operator=operator, repeats=rows.repeats)
        return
    real = require_types(first, second, out)
    arguments = rows.arguments(b, 4 if real else 1)
    if real:
        low, high = BOUNDS[activation]
        arguments.update(low=low, high=high)
        b.step("combine_real", count / 5_000, arguments, operator=operator, repeats=rows.repeats)
        return
    limits = limits_of(out, activation or FuseCode.NONE)
    if operator in ("add", "sub"):
        blocks, forms, left = _sum_parameters(b, first, second)
    elif operator == "mul":
        real_multiplier = product_multiplier(first.scale, second.scale, out.scale)
        require(0 < real_multiplier < 1, "a product of input scales below the output scale")
        multiplier, exponent = quantize_multiplier(real_multiplier)
        block, form = _uniform(multiplier, exponent, zero_of(out), b.instructions.lanes)
        blocks, forms, left = [block], (form,), (0, 0)
    else:
        arguments["table"] = every_pair(call, first, second, out)
        b.step("look_up_pairs", count / 500, arguments, repeats=rows.repeats)
        return
    arguments.update(
        parameters=np.concatenate([block.reshape(-1) for block in blocks]),
        first_zero=zero_of(first),
        second_zero=zero_of(second),
        zero_point=zero_of(out),
        low=limits[0],
        high=limits[1],
    )
    vectors = min(-(-rows.length // b.instructions.lanes), 4)
    us = rows.rows * -(-rows.length // b.instructions.lanes) * b.instructions.lanes / 3_000
    b.step("combine_bytes", us, arguments, operator=operator, forms=forms, repeats=rows.repeats, left=left, vectors=vectors)


def every_pair(call: Call, first: Arg, second: Arg, out: Arg) -> Array:
    """The reference kernel's results for all pairs of bytes, in the order and the form of bytes inside programs."""
    a, b = byte_values(first).reshape(256, 1), byte_values(second).reshape(1, 256)
    args = [arg.replace() for arg in call.args]
    args[0], args[1] = first.replace(value=a, dims=a.shape), second.replace(value=b, dims=b.shape)
    made = Call(call.definition, call.signature, tuple(args), (out.replace(dims=(256, 256)),))
    return as_inside(run_reference(made)[0], out)


@lru_cache(maxsize=256)
def _uniform(multiplier: int, exponent: int, zero_point: int, lanes: int) -> tuple[Array, str]:
    """The parameter block of one rescaling for all lanes, and its form."""
    one = Rescaling.twice(np.array([multiplier]), np.array([exponent]), zero_point)
    return one.uniform(lanes), one.form


def _sum_parameters(b: Binding, first: Arg, second: Arg) -> tuple[list[Array], tuple[str, ...], tuple[int, int]]:
    """Parameters of sums: both operands come to a common scale with 20 bits more, their sum to the output's (fact N40)."""
    *of_operands, of_sum = sum_multipliers(first.scale, second.scale, b.out.scale)
    require(0 < of_sum < 1, "twice the larger input scale below 2**20 times the output scale")
    made, left, lanes = [], [], b.instructions.lanes
    for real in of_operands:
        multiplier, exponent = quantize_multiplier(real)
        # The larger scale is exactly one half of the common one: one bit more on the left, and one on the right.
        half = exponent == 0
        made.append(_uniform(multiplier, -1 if half else exponent, 0, lanes))
        left.append(21 if half else 20)
    made.append(_uniform(*quantize_multiplier(of_sum), zero_of(b.out), lanes))
    return [block for block, _ in made], tuple(form for _, form in made), (left[0], left[1])


_FUNCTIONS: dict[OperationCode, tuple[str, FuseCode | None]] = {
    OperationCode.RELU: ("clamp", FuseCode.RELU),
    OperationCode.RELU1: ("clamp", FuseCode.RELU1),
    OperationCode.RELU6: ("clamp", FuseCode.RELU6),
    OperationCode.LOGISTIC: ("logistic", None),
    OperationCode.TANH: ("tanh", None),
    OperationCode.HARD_SWISH: ("hard_swish", None),
    OperationCode.EXP: ("exp", None),
    OperationCode.LOG: ("log", None),
    OperationCode.ABS: ("abs", None),
    OperationCode.NEG: ("neg", None),
    OperationCode.SQRT: ("sqrt", None),
    OperationCode.RSQRT: ("rsqrt", None),
    OperationCode.FLOOR: ("floor", None),
}
"""Operations of one operand: the float32 kernel's function, and the activation that it is."""


@binds(*_FUNCTIONS)
def map_values(b: Binding) -> None:
    """Functions of one operand; of bytes by a table of what the reference kernel makes of each."""
    call, x, out = b.call, b.call.args[0], b.out
    function, activation = _FUNCTIONS[OperationCode(call.definition.code)]
    count = math.prod(out.dims)
    arguments: dict[str, Argument] = {"source": b.source(x), "target": b.target(), "count": count}
    if require_types(x, out):
        low, high = BOUNDS[activation]
        arguments.update(low=low, high=high)
        b.step("map_real", count / 3_000, arguments, function=function)
    elif activation is not None:
        limits = limits_of(x, activation)
        arguments.update(low=limits[0], high=limits[1])
        b.step("clamp_bytes", count / 20_000, arguments)
    else:
        arguments["table"] = every_byte(call, x, out)
        b.step("look_up", count / 1_000, arguments)


def every_byte(call: Call, x: Arg, out: Arg) -> Array:
    """The reference kernel's results for all bytes, in the order and the form of bytes inside programs."""
    return as_inside(reference_results(call, byte_values(x))[0], out)


@binds(OperationCode.QUANTIZE)
def quantise(b: Binding) -> None:
    """QUANTIZE; of dequantised bytes by a table, which is nothing at all where each byte stays what it is."""
    call, x, out = b.call, b.call.args[0], b.out
    count = math.prod(out.dims)
    producer = b.merged(x)
    if producer is not None and producer.call.definition.code == OperationCode.DEQUANTIZE:
        origin = producer.call.args[0]
        if is_quant8(origin.type) and not origin.constant and is_real(x):
            table = _through_real(producer.call, call, origin, out)
            operand = producer.inputs[0]
            if (table == np.arange(256)).all():
                b.view(b.candidate.outputs[0], operand)
                return
            steps: dict[str, Argument] = {"source": Place(operand), "target": b.target(), "count": count, "table": table}
            variant = Variant("look_up")
            b.bound.append(KernelCall(variant, steps, 1, b.candidate.index, (operand,), b.candidate.outputs))
            return
    require(is_real(x) and is_quant8(out.type), "float32 to 8-bit")
    low, high = integer_range(out)
    arguments: dict[str, Argument] = {
        "source": b.source(x),
        "target": b.target(),
        "count": count,
        "scale": float(np.float32(out.scale)),
        "low": float(low - out.zero_point),
        "high": float(high - out.zero_point),
        "lifting": float(3 * 2**22 + out.zero_point),
        "sticky": 0x200 | out.zero_point & 0xFF,
        "flip": offset_of(out),
    }
    b.step("quantise", count / 5_000, arguments)


def _through_real(first: Call, second: Call, x: Arg, out: Arg) -> Array:
    """All bytes dequantised and quantised again."""
    real = reference_results(first, byte_values(x))[0]
    return as_inside(reference_results(second, real)[0], out)


@binds(OperationCode.DEQUANTIZE)
def dequantise(b: Binding) -> None:
    """DEQUANTIZE of 8-bit values with one scale."""
    x, out = b.call.args[0], b.out
    require(is_quant8(x.type) and is_real(out), "8-bit to float32")
    count = math.prod(out.dims)
    arguments: dict[str, Argument] = {
        "source": b.source(x),
        "target": b.target(),
        "count": count,
        "scale": float(np.float32(x.scale)),
        "zero_point": zero_of(x),
    }
    b.step("dequantise", count / 5_000, arguments)


@binds(OperationCode.CAST)
def cast(b: Binding) -> None:
    """CAST of INT32 and unsigned bytes to wider types, and of any type to itself."""
    x, out = b.call.args[0], b.out
    if (x.type == out.type or (is_half(x) and is_real(out))) and not x.constant:
        b.view(b.candidate.outputs[0], b.operand(x))
        return
    count = math.prod(out.dims)
    arguments: dict[str, Argument] = {"source": b.source(x), "target": b.target(), "count": count}
    if is_real(x) and is_half(out):
        # Rounding follows.
        arguments.update(low=BOUNDS[None][0], high=BOUNDS[None][1])
        b.step("map_real", count / 5_000, arguments, function="clamp")
        return
    require(x.type in (OperandCode.TENSOR_INT32, OperandCode.TENSOR_QUANT8_ASYMM), "INT32 or unsigned bytes")
    require(is_real(out) or out.type == OperandCode.TENSOR_INT32, "real numbers or INT32 as the result")
    b.step("cast", count / 5_000, arguments, bytes_=x.type == OperandCode.TENSOR_QUANT8_ASYMM, real=is_real(out))
