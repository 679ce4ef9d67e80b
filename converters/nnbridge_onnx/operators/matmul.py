"""Matrix products: Gemm, MatMul, Einsum."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from nnbridge.converters.declaration import Option
from nnbridge.converters.draft import Value
from nnbridge.errors import Stage, Why
from nnbridge.model import Array
from nnbridge.operations import work
from nnbridge_onnx.declaration import MULTIPLIED, Product, Quantised, QuantisedIo, attribute, operator
from nnbridge_onnx.lowerer import C, Lowerer
from nnbridge_onnx.operators.quantisation import Numbers, quantised_bias, quantised_filter, stored_weights
from nnbridge_onnx.read.graph import Dims, Node
from nnbridge_onnx.rules import CONSTANT_BIAS, Provider, Unit, condition, one_of, uint8_parameters, weights_of_bytes

_SPENT_BY_PRODUCT = 1 << 10
"""Elements that a product of a batch counts as, so that files cannot ask for any number of operations."""


def _batched(unit: Unit) -> bool:
    """True for matrices in batches of one shape, which the provider splits into products of two matrices."""
    a, b = unit.shape(0), unit.shape(1)
    plain = unit.node.type == "MatMul" and not unit.grouped and unit.level >= 3
    return plain and len(a) >= 3 and len(a) == len(b) and a[:-2] == b[:-2] and unit.type() == "FLOAT"


def _row_bias(unit: Unit) -> bool:
    if not unit.has(2):
        return True
    bias, transposed = unit.shape(2), unit.attribute("transB", 0)
    count = unit.shape(1)[0 if transposed else 1]
    return bool(bias) and bias[-1] == count and all(d == 1 for d in bias[:-1])


_MATRICES = (
    condition(
        "two matrices, or batches of one shape at feature level 3",
        lambda u: _batched(u) or (len(u.shape(0)), len(u.shape(1))) == (2, 2),
        lambda u: (list(u.shape(0)), list(u.shape(1))),
        kind=Why.RANK,
    ),
)
_PRODUCT = (
    weights_of_bytes("values"),
    uint8_parameters(1),
    *_MATRICES,
    condition(
        "a constant second matrix",
        lambda u: _batched(u) or u.constant(1) is not None,
        lambda u: "a computed one",
        kind=Why.NOT_CONSTANT,
    ),
)


def _by_column(node: Node, weights: Array, factor: Array) -> Array:
    return weights * (factor[:, None] if attribute(node, "transB") else factor)


GEMM = operator(
    "Gemm", 66, "A B C? -> Y", "alpha * A * B + beta * C.", folding=MULTIPLIED, fuses_activation=True,
    options=(
        Option("alpha", 1.0, "factor of the product"),
        Option("beta", 1.0, "factor of the bias"),
        Option("transA", 0, "1 to transpose A"),
        Option("transB", 0, "1 to transpose B"),
    ),
    quantised=Quantised(3, activation=True), work=work.STACKED_PRODUCTS,
    product=Product(-1, lambda node, w: w.shape[0 if attribute(node, "transB") else 1], _by_column),
    provider=Provider(
        conditions=(
            weights_of_bytes("values"),
            uint8_parameters(1, per_channel=True),
            *_MATRICES,
            one_of("transA", 0),
            one_of("alpha", 1.0),
            one_of("beta", 1.0),
            condition(
                "a constant second matrix unless transB is set",
                lambda u: u.attribute("transB", 0) or u.constant(1) is not None,
                kind=Why.NOT_CONSTANT
            ),
            condition("a bias of one row", _row_bias, lambda u: list(u.shape(2)), kind=Why.RANK),
            CONSTANT_BIAS,
        ),
        grouped=True,
        builds=(
            # Weights that the builder does not transpose it leaves among the model's constants, where int8 is no type.
            condition(
                "UINT8 weights with transB, in groups",
                lambda u: not u.quantised or not u.attribute("transB", 0) or u.type(1) != "INT8",
                lambda u: "INT8",
                kind=Why.INPUT_TYPE,
                says=lambda u: f"The input/initializer of graph doesn't have valid type, name: {u.inputs[1].name} type: 3",
            ),
            condition(
                "a scale above 0 for the weights, which have one for each channel in the file",
                lambda u: not u.quantised or (scale := u.graph.constants.get(u.inputs[1].scale)) is None or scale.size == 1,
                lambda u: "0",
                kind=Why.QUANTISATION_TYPE,
                stage=Stage.BUILDING,
                says=lambda u: "ResultCode: ANEURALNETWORKS_BAD_DATA",
            ),
        ),
    ),
)  # fmt: skip
MATMUL = operator(
    "MatMul", 97, "A B -> Y", "Product of matrices, in batches.", folding=MULTIPLIED, fuses_activation=True,
    quantised=Quantised(2), product=Product(-1, lambda node, w: w.shape[1], _by_column),
    provider=Provider(conditions=_PRODUCT, grouped=True), work=work.PRODUCTS,
)  # fmt: skip
operator(
    "QLinearMatMul", 125, "a a_scale a_zero_point b b_scale b_zero_point y_scale y_zero_point -> y", "MatMul of 8-bit values.",
    quantised_io=QuantisedIo(((0, 1, 2), (3, 4, 5)), (6, 7), computes="MatMul"),
    provider=Provider(types=None, conditions=_PRODUCT), work=work.PRODUCTS,
)  # fmt: skip


def rows(to: Lowerer, weights: Array) -> tuple[Value, Array]:
    """The first operand as rows, and weights [units, numbers of a row] in the same order.

    Rows that are flattened images stay in the order of the channels-last image; the weights are transposed instead.
    """
    found = to.operands.flat(to.name(0)) if to.has(0) else None
    if found is None or math.prod(found[1]) != weights.shape[1]:
        return to.input(), weights
    transposed = np.moveaxis(weights.reshape(-1, *found[1]), 1, -1)
    return found[0], np.ascontiguousarray(transposed).reshape(weights.shape)


@GEMM.lowering()
def _gemm(to: Lowerer) -> None:
    """FULLY_CONNECTED; alpha and beta go into the constants."""
    to.require(not to.option("transA"), "a first operand that is not transposed", "transA")
    weights = to.constant(1)
    to.require(weights.ndim == 2, "weights of rank 2", list(weights.shape))
    x, weights = rows(to, weights if to.option("transB") else weights.T)
    to.require_float(x)
    alpha, beta = (np.float32(to.option(name)) for name in ("alpha", "beta"))
    bias = to.optional(2)
    full = np.zeros(len(weights), weights.dtype) if bias is None else bias * weights.dtype.type(beta)
    # A column of as many numbers as there are units has another one for each row.
    to.require(full.size == 1 or full.size == full.shape[-1] == len(weights), "a bias of one row", list(full.shape))
    row = np.broadcast_to(full.reshape(-1), (len(weights),))
    scaled = weights if alpha == 1 else weights * weights.dtype.type(alpha)
    to.finish(C.FULLY_CONNECTED, x, to.float_tensor(scaled, x), to.float_tensor(row, x), to.activation())


@GEMM.provider_lowering
@MATMUL.provider_lowering
def _product_as_built(to: Lowerer) -> None:
    """FULLY_CONNECTED of two matrices; SQUEEZE of a bias of further axes. Batches are products one by one."""
    left, right = to.shape(0), to.shape(1)
    if len(left) > 2:
        _batch_as_built(to, left, right)
        return
    x, transposed = to.input(), to.node.type == "Gemm" and bool(to.option("transB"))
    to.require_float(x)
    weights = to.input(1) if transposed else to.float_tensor(to.constant(1).T, x)
    units = right[0] if transposed else right[1]
    bias = to.input(2) if to.has(2) else to.float_tensor(np.zeros(units), x)
    if bias.rank > 1:
        bias = to.emit(C.SQUEEZE, bias, to.vector([i for i, size in enumerate(bias.dims) if size == 1]), dims=())
    to.finish(C.FULLY_CONNECTED, x, weights, bias, to.activation())


def _batch_as_built(to: Lowerer, left: Dims, right: Dims) -> None:
    """SPLIT into matrices, FULLY_CONNECTED for each pair, CONCATENATION."""
    count, (m, k), n = math.prod(left[:-2]), left[-2:], right[-1]
    to.draft.spend(count * _SPENT_BY_PRODUCT)
    a, b = to.input(0), to.input(1)
    to.require_float(a, b)
    if len(left) > 3:
        a, b = (to.emit(C.RESHAPE, v, to.vector(dims), dims=()) for v, dims in ((a, (count, m, k)), (b, (count, k, n))))
    b = to.emit(C.TRANSPOSE, b, to.vector([0, 2, 1]), dims=())
    sides = [to.emit_all(C.SPLIT, (v, to.scalar(0), to.scalar(count)), [to.temporary(v) for _ in range(count)]) for v in (a, b)]
    zeros, made = to.float_tensor(np.zeros(n), a), []
    for one, other in zip(*sides, strict=True):
        flat = [to.emit(C.RESHAPE, v, to.vector(dims), dims=()) for v, dims in ((one, (m, k)), (other, (n, k)))]
        product = to.emit(C.FULLY_CONNECTED, *flat, zeros, to.scalar(0), dims=())
        made.append(to.emit(C.RESHAPE, product, to.vector((1, m, n)), dims=()))
    if len(left) == 3:
        to.finish(C.CONCATENATION, *made, to.scalar(0))
        return
    joined = to.emit(C.CONCATENATION, *made, to.scalar(0), dims=())
    to.finish(C.RESHAPE, joined, to.vector((*left[:-1], n)))


@GEMM.lowering()
def _computed_gemm(to: Lowerer) -> None:
    """A Gemm of computed matrices."""
    x, w = to.input(0), to.input(1)
    to.require_float(x)
    alpha, beta = to.option("alpha"), to.option("beta")
    flags = [to.flag(to.option(name)) for name in ("transA", "transB")]
    if not to.has(2) and alpha == 1:
        to.finish(C.BATCH_MATMUL, x, w, *flags)
        return
    product = to.emit(C.BATCH_MATMUL, x, w, *flags)
    if not to.has(2):
        to.finish(C.MUL, product, to.float_tensor([alpha], x))
        return
    product = product if alpha == 1 else to.compute(C.MUL, product, alpha)
    bias = to.input(2)
    to.finish(C.ADD, product, bias if beta == 1 else to.compute(C.MUL, bias, beta))


@MATMUL.lowering()
def _matmul(to: Lowerer) -> None:
    """FULLY_CONNECTED for a constant matrix on the right, else BATCH_MATMUL."""
    left, right = to.shape(0), to.shape(1)
    weights = to.known(1)
    if weights is not None and weights.ndim == 2 and len(left) >= 2:
        x, transposed = rows(to, weights.T)
        to.require_float(x)
        # ONNX's MatMul has no bias; a chain gives it one.
        count, units, bias = math.prod(left[:-1]), weights.shape[1], to.optional(2)
        flat = to.emit(C.RESHAPE, x, to.vector([count, left[-1]])) if len(left) > 2 else x
        inputs = [
            flat,
            to.float_tensor(transposed, x),
            to.float_tensor(np.zeros(units) if bias is None else bias, x),
            to.activation(),
        ]
        if len(left) == 2:
            to.finish(C.FULLY_CONNECTED, *inputs)
            return
        made = to.emit(C.FULLY_CONNECTED, *inputs, like=x)
        to.finish(C.RESHAPE, made, to.vector([*left[:-1], units]))
        return
    rank = max(len(left), len(right))
    to.require(min(len(left), len(right)) >= 2 and rank <= 4, "matrices of rank 2 to 4", [len(left), len(right)])
    sides = []
    source = _transposed(to, right) if len(right) == rank else None
    for position, shape in ((0, left), (1, right)):
        value = source if position and source is not None else to.input(position)
        if len(shape) < rank:
            wide = to.vector([1] * (rank - len(shape)) + list(shape))
            value = to.emit(C.RESHAPE, value, wide)
        sides.append(value)
    to.finish(C.BATCH_MATMUL, *sides, to.flag(False), to.flag(source is not None))


def _transposed(to: Lowerer, shape: Dims) -> Value | None:
    """The source of a second operand that is its transposition, if BATCH_MATMUL can transpose it itself."""
    producer, rank = to.operands.producer(to.name(1)), len(shape)
    order = list(producer.attributes.get("perm", ())) if producer is not None and producer.type == "Transpose" else []
    if producer is None or order != [*range(rank - 2), rank - 1, rank - 2]:
        return None
    source = to.named(producer.inputs[0])
    return source if source.rank == rank and not source.omitted else None


@GEMM.quantised_lowering
@MATMUL.quantised_lowering
def _quantised_product(to: Lowerer) -> None:
    """FULLY_CONNECTED with one scale for the weights; BATCH_MATMUL of two computed operands."""
    gemm = to.node.type == "Gemm"
    if not gemm and to.group is not None and 1 not in to.group.constants:
        to.finish(C.BATCH_MATMUL, to.input(0), to.input(1), to.flag(False), to.flag(False))
        return
    stored, shape = stored_weights(to, 1), to.shape()
    to.require(stored.ndim == 2 and len(shape) >= 2, "a matrix of weights", [list(stored.shape), len(shape)])
    plain = not gemm or (to.option("alpha"), to.option("beta"), to.option("transA")) == (1.0, 1.0, 0)
    to.require(plain, "alpha and beta of 1, the first operand as it is", "others")
    x, ordered = rows(to, stored if gemm and to.option("transB") else stored.T)
    filter, scales = quantised_filter(to, ordered, x, (0, 1))
    to.require(scales.size == 1, "one scale for the weights", scales.size)
    units = filter.dims[0]
    if len(shape) > 2:
        x = to.emit(C.RESHAPE, x, to.vector([math.prod(shape[:-1]), shape[-1]]))
    inputs = [x, filter, quantised_bias(to, x, scales, units), to.activation()]
    if len(shape) == 2:
        to.finish(C.FULLY_CONNECTED, *inputs)
        return
    made = to.emit(C.FULLY_CONNECTED, *inputs, out=to.output().like())
    to.finish(C.RESHAPE, made, to.vector([*shape[:-1], units]))


MATMUL_INTEGER = operator(
    "MatMulInteger",
    98,
    "A B a_zero_point? b_zero_point? -> Y",
    "MatMul of bytes that counts from zero points.",
    folding=MULTIPLIED,
    work=work.PRODUCTS,
)


@MATMUL_INTEGER.lowering()
def _matmul_integer(to: Lowerer) -> None:
    """BATCH_MATMUL, or FULLY_CONNECTED with constant weights, in float32."""
    floats, left, right = Numbers(to), to.shape(0), to.shape(1)
    first, point = floats.point(2), floats.point(3)
    to.require(first is None or math.prod(to.shape(2)) == 1, "one zero point of the first operand", "several")
    a = floats.without(floats.whole(to.input(0)), first)
    to.require(min(len(left), len(right)) >= 2, "matrices", [list(left), list(right)])
    weights = to.known(1)
    if weights is not None and weights.ndim == 2 and (point is None or point.data is not None):
        numbers = weights.astype(np.float64) - (0 if point is None or point.data is None else point.data)
        units = right[1]
        flat = floats.emit(C.RESHAPE, a, to.vector([math.prod(left[:-1]), left[-1]]))
        inputs = [flat, to.float_tensor(numbers.T, floats.like), to.float_tensor(np.zeros(units), floats.like), to.scalar(0)]
        made = floats.emit(C.FULLY_CONNECTED, *inputs)
        shaped = floats.emit(C.RESHAPE, made, to.vector([*left[:-1], units]))
    else:
        b = floats.without(floats.whole(to.input(1)), point)
        to.require(len(left) == len(right) <= 4, "matrices of one rank, 4 at most", [len(left), len(right)])
        shaped = floats.emit(C.BATCH_MATMUL, a, b, to.flag(False), to.flag(False))
    to.finish(C.CAST, shaped)


# -- Einsum ------------------------------------------------------------------------------------------------------------------

EINSUM = operator(
    "Einsum", 52, "Inputs+ -> Output", "Sums of products over the axes that an equation names.", folding=MULTIPLIED,
    options=(Option("equation", "", "a letter for each axis"),),
)  # fmt: skip


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
        return self.to.input(position)

    def summed(self, x: Value, letters: str, retained: str) -> tuple[Value, str]:
        """The value without the axes that nothing else mentions."""
        gone = [i for i, letter in enumerate(letters) if letter not in retained]
        if not gone:
            return x, letters
        made = self.to.emit(C.REDUCE_SUM, x, self.to.vector(gone), self.to.flag(False))
        return made, "".join(letter for letter in letters if letter in retained)

    def transposed(self, x: Value, letters: str, required: str) -> Value:
        """The value with its axes in another order."""
        order = [letters.index(letter) for letter in required]
        if order == sorted(order):
            return x
        return self.to.emit(C.TRANSPOSE, x, self.to.vector(order))

    def grouped(self, x: Value, groups: Sequence[str]) -> Value:
        """The value with each group of axes as one."""
        return self.to.emit(C.RESHAPE, x, self.to.vector([self.count(g) for g in groups]))

    def count(self, letters: str) -> int:
        return math.prod(self.sizes[letter] for letter in letters)


@EINSUM.lowering()
def _einsum(to: Lowerer) -> None:
    """Letters of both operands and the result are batches; those that only the operands have are summed over."""
    inputs, result = _parsed(to)
    to.require(len(inputs) <= 2, "two operands at most", len(inputs))
    terms = _Terms(to)
    values = [terms.operand(i, letters) for i, letters in enumerate(inputs)]
    to.require(to.is_float(values[0]), "floating values")
    if len(values) == 1:
        x, letters = terms.summed(values[0], inputs[0], result)
        to.require(set(letters) == set(result), "letters of the operand in the result", result)
        to.finish(C.RESHAPE, terms.transposed(x, letters, result), to.vector([terms.sizes[c] for c in result] or [1]))
        return
    (a, left), (b, right) = (terms.summed(values[i], inputs[i], result + inputs[1 - i]) for i in (0, 1))
    to.require(set(result) <= set(left + right), "letters of the operands in the result", result)
    batch = "".join(c for c in result if c in left and c in right)
    inner = "".join(c for c in left if c in right and c not in result)
    rows, columns = ("".join(c for c in result if c in side and c not in batch) for side in (left, right))
    a = terms.grouped(terms.transposed(a, left, batch + rows + inner), [batch, rows, inner])
    b = terms.grouped(terms.transposed(b, right, batch + inner + columns), [batch, inner, columns])
    made = to.emit(C.BATCH_MATMUL, a, b, to.flag(False), to.flag(False))
    order = batch + rows + columns
    dims = [terms.sizes[c] for c in order] or [1]
    if order == result:
        to.finish(C.RESHAPE, made, to.vector(dims))
        return
    spread = to.emit(C.RESHAPE, made, to.vector(dims), like=a)
    to.finish(C.TRANSPOSE, spread, to.vector([order.index(c) for c in result]))


def _parsed(to: Lowerer) -> tuple[list[str], str]:
    """The letters of each operand and of the result; those that occur once, in their order, where it is omitted."""
    equation = str(to.option("equation")).replace(" ", "")
    to.require("." not in equation, "an equation without dots", equation)
    left, arrow, result = equation.partition("->")
    inputs = left.split(",")
    to.require(len(inputs) == len(to.node.inputs), "letters for each operand", equation)
    if not arrow:
        result = "".join(sorted(c for c in set(left) - {","} if left.count(c) == 1))
    return inputs, result
