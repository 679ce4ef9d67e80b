"""BATCH_MATMUL: products of matrices that are both computed."""

from __future__ import annotations

import math
from functools import cached_property

import numpy as np

from nnbridge.cpu.compiled.bindings.binding import (
    BOUNDS,
    Binding,
    binds,
    is_real,
    limits_of,
    require,
    require_at_most,
    round_results,
    transpose,
    zero_of,
)
from nnbridge.cpu.compiled.bindings.products import (
    multiply,
    product_arguments,
    rows_of_matrix,
    sums_of_rows,
    tiles_of,
)
from nnbridge.cpu.compiled.constants import Constant
from nnbridge.cpu.compiled.kernels.products import STRIP_FIELDS, strips_of, tile_shapes
from nnbridge.cpu.compiled.kernels.tiles import DEPTH
from nnbridge.cpu.compiled.program import Argument, Place, element_of
from nnbridge.cpu.compiled.requantise import Rescaling
from nnbridge.model import Array
from nnbridge.operations.arithmetic import product_multiplier, quantize_multiplier
from nnbridge.operations.call import Arg
from nnbridge.records import dataclass
from nnbridge.types import FuseCode, OperandCode, OperationCode

_MOST_MATRICES = 1 << 10
"""Products of one operation, each of which is a step."""


@dataclass(frozen=True)
class _Right:
    """The packing of the second operand's matrices, one at a time."""

    b: Binding
    form: str
    parameters: Array
    """The block of all columns, without a bias."""
    tall: int
    """Matrix tiles of rows that are summed together, 0 for none."""

    @cached_property
    def transposed(self) -> bool:
        return bool(self.b.call.scalar("adj_y"))

    @cached_property
    def length(self) -> int:
        """Elements of a column."""
        return self.b.call["input2"].dims[-1 if self.transposed else -2]

    @property
    def quantised(self) -> bool:
        return self.form not in ("real", "integer")

    @property
    def element(self) -> int:
        """Bytes of an element."""
        return 1 if self.quantised else 4

    @cached_property
    def steps(self) -> int:
        """Words of a column, zeros after its elements among them."""
        if self.tall:
            return -(-self.length // DEPTH) * (DEPTH // 4)
        return -(-self.length // (self.b.instructions.step_elements if self.quantised else 1))

    @cached_property
    def strips(self) -> tuple[Constant, int, int]:
        """The table of the strips with their parameters, how many there are, and the bytes of a packed matrix."""
        shapes, units, rows = tile_shapes(self.b.instructions, self.form), self.b.out.dims[-1], []
        packed = 0
        for shape, first, count in strips_of(shapes, units):
            for column in range(first, first + count * shape.width, shape.width):
                rows.append((shape.width, packed, 0, column * self.element, min(units - column, shape.width)))
                packed += 4 * shape.width * (self.steps + self.quantised)
        table = np.array(rows, np.int64).reshape(-1, STRIP_FIELDS)
        # One block of parameters for each vector of the widest strip, at a multiple of 64 bytes.
        at = table.nbytes + -table.nbytes % 64
        table[:, 2] = at
        blocks = np.repeat(self.parameters, shapes[0].vectors, axis=0)
        made = Constant.of(at + blocks.nbytes)
        made.data[: table.nbytes] = table.reshape(-1).view(np.uint8)
        made.data[at:] = blocks.reshape(-1).view(np.uint8)
        return made, len(table), packed

    def pack(self, matrix: int) -> Place:
        """A step that packs one of the matrices."""
        b, (table, strips, size) = self.b, self.strips
        x, y = b.call["input1"], b.call["input2"]
        row = y.dims[-1] * self.element
        source, target = b.source(y), b.scratch(size)
        stride = y.dims[-2] * row
        at = Place(source.buffer, matrix * stride) if isinstance(source, Place) else source.reshape(-1, *y.dims[-2:])[matrix]
        zero = zero_of(y) if self.quantised else 0
        arguments: dict[str, Argument] = {
            "source": at,
            "target": target,
            "strips": table,
            "strip_count": strips,
            "count": self.length,
            "steps": self.steps,
            "columns": b.out.dims[-1],
            "row": row,
            "zero": zero,
            "factor": -zero_of(x) if self.quantised else 0,
            "constant": self.length * zero_of(x) * y.zero_point if self.quantised and b.instructions.quads else 0,
            "element": self.element,
        }
        b.step("pack_computed", size / 4_000, arguments, form="bytes" if self.quantised else "real", transposed=self.transposed)
        return target


@binds(OperationCode.BATCH_MATMUL)
def batch_matmul(b: Binding) -> None:
    """Each matrix of the second operand is packed as constant weights are, then multiplied. Sums of float16 are of float32."""
    call, out = b.call, b.out
    x, y = call["input1"], call["input2"]
    form = "integer" if out.type == OperandCode.TENSOR_INT32 else "real"
    parameters = np.zeros((1, b.instructions.lanes), np.int32)
    quantised = out.type == OperandCode.TENSOR_QUANT8_ASYMM_SIGNED
    if quantised:
        multiplier, exponent = quantize_multiplier(product_multiplier(x.scale, y.scale, out.scale))
        rescaling = Rescaling.twice(np.array([multiplier]), np.array([exponent]), zero_of(out))
        form, parameters = rescaling.form, rescaling.uniform(b.instructions.lanes)
    require(quantised or form == "integer" or is_real(out), "float32, INT32 or signed 8-bit operands")
    length = x.dims[-2 if call.scalar("adj_x") else -1]
    require(not quantised or length * 255 * 255 < 2**31, "sums that 32 bits hold")
    left = rows_of_matrix(b, x, _first(b, x), length, quantised=quantised)
    factor = -y.zero_point if quantised and b.instructions.quads else 0
    sums = sums_of_rows(b, left, factor) if factor else None
    count, units = out.dims[-2:]
    tall = tiles_of(b, left.part(0, count)) if quantised else 0
    right = _Right(b, form, parameters, tall)
    low, high = limits_of(out, FuseCode.NONE) if quantised else BOUNDS[None]
    pairs = list(zip(_matrices(x, out), _matrices(y, out), strict=True))
    require_at_most(_MOST_MATRICES, len(pairs), "products of matrices")
    packed = {matrix: right.pack(matrix) for matrix in dict.fromkeys(matrix for _, matrix in pairs)}
    for k, (first, second) in enumerate(pairs):
        part = left.part(first * count, count)
        target = Place(b.target().buffer, k * count * units * right.element)
        table, strips, _ = right.strips
        steps = right.steps // (DEPTH // 4) if tall else right.steps
        arguments = product_arguments(part, table, strips, steps, target, units * right.element)
        arguments.update(weights=packed[second], low=low, high=high, factor=factor)
        arguments["zero_point"] = zero_of(out) if quantised else 0
        arguments["sums"] = 0 if sums is None else Place(sums.buffer, 4 * first * count)
        row_sums = "table" if factor else ""
        multiply(b, part, arguments, length * units, tall, form=form, row_sums=row_sums, column_sums=quantised)
    round_results(b)


def _first(b: Binding, x: Arg) -> Place | Array:
    """The first operand's matrices, with their rows one after the other."""
    source = b.source(x)
    if not b.call.scalar("adj_x"):
        return source
    rows, columns = x.dims[-2:]
    return transpose(b, source, (math.prod(x.dims[:-2]), rows, columns), element_of(x))


def _matrices(x: Arg, out: Arg) -> list[int]:
    """For each of the products the number of the operand's matrix."""
    batch = x.dims[:-2]
    numbers = np.arange(math.prod(batch)).reshape(batch)
    return [int(n) for n in np.broadcast_to(numbers, out.dims[:-2]).reshape(-1)]
