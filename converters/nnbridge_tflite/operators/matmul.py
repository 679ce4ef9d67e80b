"""Matrix products and transforms."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from nnbridge.converters.declaration import Option
from nnbridge.converters.mapping import MappingKind
from nnbridge.converters.rules import until
from nnbridge.errors import Why
from nnbridge.operations import work
from nnbridge.operations.arithmetic import mbqm, mbqm_once
from nnbridge.types import FLOATS, QUANT8, OperationCode
from nnbridge_tflite import dims
from nnbridge_tflite.declaration import FUSED, TfliteOperator, inputs, outputs
from nnbridge_tflite.host.hybrid import biased, centred_asymmetric, scales, symmetric
from nnbridge_tflite.host.numbers import Array, Options, Tensors, data_of, integers, real, stored
from nnbridge_tflite.host.sixteen_bits import centred, finished, rescaled_once
from nnbridge_tflite.loads import (
    ACTIVATED,
    INDEXES,
    OUT,
    QUANTISED,
    PreparedOperator,
    affine,
    bias_for_each,
    bias_scaled,
    channelled,
    do_broadcast,
    no_zero_point,
    ranked,
    requires,
    stated_bias,
    typed,
    zero_centred,
)
from nnbridge_tflite.lowerer import Lowerer
from nnbridge_tflite.operators.convolution import bias, weights
from nnbridge_tflite.rules import NO_OLD_HYBRID, OLD_PRODUCTS, Condition, DelegateRule, OperatorView, Past, from_level, input_rank

_BYTES = ("UINT8", "INT8", "INT4", "INT2")


def _product_types(node: PreparedOperator) -> bool:
    """True for types of input, weights, output and bias that the kernel has (``CheckTypes`` in ``fully_connected.cc``)."""
    data, filter, out, bias = (node.type(i) for i in (0, 1, OUT, 2))
    if filter in _BYTES and node.option("weights_format") == 1:
        return (data, filter, out) == ("UINT8", "UINT8", "INT16") and bias in ("", *INDEXES)
    if filter == "INT16":
        return data == out == "INT16" and bias in ("", *INDEXES)
    if filter in _BYTES and data != "FLOAT32":
        return data in QUANTISED and out in QUANTISED and bias in ("", *INDEXES)
    return data == out == "FLOAT32" and filter in ("FLOAT32", *_BYTES) and bias in ("", "FLOAT32")


def _inner(node: PreparedOperator) -> tuple[int, int]:
    """The dimensions of two matrices over which products are summed."""
    first, second = node.shape(0), node.shape(1)
    return first[-2 if node.option("adj_x") else -1], second[-1 if node.option("adj_y") else -2]


_TWO_LENGTHS = requires("two lengths", lambda node: node.shape(1) == (2,), lambda node: str(node.at(1)), Why.OPERAND_SIZE)
_POWERS_OF_TWO = requires(
    "lengths that are powers of two",
    lambda node: all(n > 0 and n & (n - 1) == 0 for n in node.numbers(1) or ()),
    lambda node: str(node.numbers(1)),
)
_ACTIVATED_AS_FLOAT = requires(
    "a fused activation of none, RELU, RELU_N1_TO_1 or RELU6",
    lambda node: node.activation < 4 or (node.type(0) == "FLOAT32" and node.type(1) in _BYTES),
    lambda node: node.activation,
    Why.ACTIVATION,
)
_FULLY_CONNECTED_TYPES = requires("types that the kernel has for input, weights and bias", _product_types, kind=Why.INPUT_TYPE)
_FORMATS = requires(
    "weights_format 0 or 1", lambda node: node.option("weights_format") in (0, 1), lambda node: node.option("weights_format")
)
_OUTPUTS = requires(
    "one output, or two of shuffled weights",
    lambda node: len(node.operator.outputs) == 1 + (node.option("weights_format") == 1),
    lambda node: len(node.operator.outputs),
)
_BOTH_CENTRED = replace(
    zero_centred(0, OUT),
    holds=lambda node: node.type(0) != node.type(OUT) or zero_centred(0, OUT).holds(node),
)
_KEPT_DIMENSIONS = requires(
    "an input whose last dimension the weights have",
    lambda node: not node.option("keep_num_dims") or not node.shape(1)[1] or (node.shape(0) or (0,))[-1] == node.shape(1)[1],
    kind=Why.OPERAND_SIZE,
)
_MATRIX_TYPES = requires(
    "matrices of one type, or of INT8 beside FLOAT32 or INT16",
    lambda node: node.type(1) in (node.type(0), "INT8" if node.type(0) in ("FLOAT32", "INT16") else ""),
    kind=Why.INPUT_TYPE,
)
_BATCHES_FIT = requires(
    "batches that broadcast",
    lambda node: do_broadcast(node.shape(0)[:-2], node.shape(1)[:-2]),
    kind=Why.OPERAND_SIZE,
)
_INNER_FITS = requires(
    "columns of the first matrix as many as rows of the second",
    lambda node: _inner(node)[0] == _inner(node)[1],
    lambda node: "{} and {}".format(*_inner(node)),
    Why.OPERAND_SIZE,
)

_ASYMMETRIC = Option("asymmetric_quantize_inputs", False, "true: floats beside 8-bit weights get a zero point")

FULLY_CONNECTED = TfliteOperator(
    "FULLY_CONNECTED",
    "A product with a matrix of weights [units, depth].",
    inputs("input", "weights", "bias?"),
    outputs("output", "shuffled_input?"),
    options=(
        FUSED,
        Option("weights_format", 0, "0 as they are, 1 shuffled for a kernel of LiteRT's"),
        Option("keep_num_dims", False, "leading dimensions stay as they are"),
        _ASYMMETRIC,
        Option("quantized_bias_type", 0, "element type of a quantised bias; the bias itself states it"),
    ),
    delegate=DelegateRule(
        version=5,
        conditions=(
            NO_OLD_HYBRID,
            *OLD_PRODUCTS,
            from_level(4, "kept dimensions", lambda node: not node.option("keep_num_dims")),
            until("2.5", Condition("a bias", lambda node: node.input(2), lambda node: "none", kind=Why.MISSING_OPERAND)),
            until("2.5", Condition("no keep_num_dims", lambda n: not n.option("keep_num_dims"), lambda n: "keep_num_dims")),
            Condition(
                "no int16 output", lambda node: node.output().type.name != "INT16", lambda node: "INT16", kind=Why.OUTPUT_TYPE
            ),
        ),
        past=(Past(until="2.3", version=4),),
    ),
    check=lambda node: node.require_weights(0, 1, 2),
    work=work.FULLY_CONNECTED,
    versions=(1, 14),
    loads=(
        _ACTIVATED_AS_FLOAT,
        _FULLY_CONNECTED_TYPES,
        ranked(1, 2),
        bias_for_each(0),
        affine(QUANTISED, 0, 1),
        channelled(0, signed=("INT8", "INT4", "INT2", "INT16")),
        bias_scaled(types=QUANTISED),
        stated_bias(2),
        _BOTH_CENTRED,
        _KEPT_DIMENSIONS,
        _FORMATS,
        _OUTPUTS,
        ACTIVATED,
    ),
    dims=dims.multiplied,
)


def _same_stacks(node: OperatorView) -> bool:
    """True if the dimensions before the matrices are equal."""
    left, right = (tensor.shape if tensor is not None else () for tensor in map(node.input, (0, 1)))
    return len(left) == len(right) and left[:-2] == right[:-2]


def _check_batches(node: OperatorView) -> None:
    """LiteRT writes float32 products into an output of any type."""
    if node.type(0) == "FLOAT32" and node.output().type.name != "FLOAT32":
        node.refuse("an output of float32", f"{node.output()}")


BATCH_MATMUL = TfliteOperator(
    "BATCH_MATMUL",
    "Matrix products of stacks.",
    inputs("left", "right"),
    options=(Option("adj_x", False, "left is transposed"), Option("adj_y", False, "right is transposed"), _ASYMMETRIC),
    check=_check_batches,
    delegate=DelegateRule(
        version=2,
        level=6,
        types=("FLOAT32", "INT32", "INT8"),
        conditions=(
            input_rank("inputs of rank 2 to 4", 2, 3, 4),
            Condition(
                "two inputs of one type", lambda node: node.type(0) == node.type(1), lambda node: node.type(1), kind=Why.HYBRID
            ),
            Condition("stacks of one size", _same_stacks, lambda node: node.input(1), kind=Why.OPERAND_SIZE),
        ),
        since="2.8",
    ),
    work=work.STACKED_PRODUCTS,
    versions=(1, 4),
    loads=(
        typed(0, "FLOAT32", "INT8", "INT16"),
        _MATRIX_TYPES,
        no_zero_point("16-bit integers with a zero point of 0", ("INT16", "INT8"), 0, 1, OUT, beside=("INT16",)),
        ranked(0, 2, 5),
        ranked(1, 2, 5),
        _BATCHES_FIT,
        _INNER_FITS,
    ),
    dims=dims.matrices,
)
RFFT2D = TfliteOperator(
    "RFFT2D",
    "The Fourier transform of real images, cut or padded to a length.",
    inputs("input", "fft_length!"),
    loads=(ranked(0, 2, 0), typed(0, "FLOAT32"), ranked(1, 1), _TWO_LENGTHS, typed(1, "INT32"), _POWERS_OF_TWO),
    dims=dims.spectrum,
    writes_type="COMPLEX64",
)


@RFFT2D.host_kernel
def real_fourier(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    """The transform; of one row, only that along the row, as those along columns of one number change nothing.

    In float64, as LiteRT does: NumPy takes half of the time for it that it takes in float32 (96 rows of 512: 96 of 240 us).
    """
    data, (rows, columns) = data_of(inputs[0]).astype(np.float64), integers(inputs[1])
    found = np.fft.rfft(data[..., :1, :], columns) if rows == 1 else np.fft.rfft2(data, s=(rows, columns))
    return [found.astype(np.complex64, copy=False)]


@FULLY_CONNECTED.lowering()
def fully_connected(to: Lowerer) -> None:
    """FULLY_CONNECTED; leading dimensions that stay are restored by RESHAPE."""
    whole = to.input(0)
    filter = weights(to, 1, whole)
    to.require(to.option("weights_format") == 0, "weights in default format", to.option("weights_format"))
    to.require(filter.rank == 2 or not to.free, "weights of rank 2", filter.rank)
    # As a 1x1 convolution such sums would be rounded twice, where TFLite rounds them once.
    # The delegate adds the operation all the same, and NNAPI refuses it.
    to.require(filter.channel_quant is None or not to.free, "one scale for all weights", "one for each unit")
    units = bias(to, 2, whole, filter, filter.dims[0])
    lowest = 2 if to.mapping == MappingKind.DELEGATE else 1
    to.require(lowest <= whole.rank <= 4 or not to.free, f"an input of rank {lowest} to 4", whole.rank)
    data = (
        whole if whole.rank > 1 or not to.free else to.reshaped(whole, (whole.dims[0] // max(filter.dims[1], 1), filter.dims[1]))
    )
    fused = to.scalar(to.option("fused_activation_function"))
    if not to.option("keep_num_dims") or whole.rank == 2:
        to.finish(OperationCode.FULLY_CONNECTED, data, filter, units, fused)
        return
    rows = math.prod(whole.dims) // max(filter.dims[1], 1)
    flat = to.emit(OperationCode.FULLY_CONNECTED, data, filter, units, fused, like=to.out, dims=(rows, filter.dims[0]))
    to.reshaped(flat, (*whole.dims[:-1], filter.dims[0]), out=to.out)


@FULLY_CONNECTED.hybrid_kernel
def fully_connected_hybrid(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    """Each row in steps of its own."""
    data, weights = data_of(inputs[0]), centred(inputs[1])
    quantise = centred_asymmetric if options["asymmetric_quantize_inputs"] else symmetric
    numbers, steps = quantise(data.reshape(-1, weights.shape[1]))
    sums = (numbers @ weights.T).astype(np.float32)
    result = biased(sums * (steps[:, np.newaxis] * scales(inputs[1], 1, options)), inputs, 2, options)
    return [result.reshape(*data.shape[:-1], -1) if options["keep_num_dims"] else result]


def _narrowed(sums: Array, multiplier: Array, shift: Array) -> Array:
    """Rescaled sums, ties away from zero; beyond 32 bits the lowest number, whatever the sign, as LiteRT's kernel has it."""
    wide = np.sign(sums) * rescaled_once(np.abs(sums), multiplier, shift)
    return np.where(np.abs(wide) < 2**31, wide, -(2**31))


@FULLY_CONNECTED.kernel_16_bit
@FULLY_CONNECTED.channels_kernel
def fully_connected_16_bit(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    """A product with a matrix of weights; sums of 8-bit data wrap in 32 bits, as in LiteRT's optimised kernel."""
    weights = centred(inputs[1])
    data = centred(inputs[0])
    sums = data.reshape(-1, weights.shape[1]) @ weights.T
    rescale = _narrowed if inputs[0].dtype == np.int16 else mbqm_once
    result = finished(sums, inputs, (0, 1, 2), outputs[0], options, rescale)
    return [result.reshape(*data.shape[:-1], -1) if options["keep_num_dims"] else result]


@BATCH_MATMUL.lowering()
def batch_matmul(to: Lowerer) -> None:
    """BATCH_MATMUL of equal ranks; a side with fewer or smaller batches is repeated."""

    left, right = to.inputs()
    rank = max(left.rank, right.rank)
    to.require(0 not in (*left.dims, *right.dims), "known dimensions", [left.dims, right.dims])
    batches = [(1,) * (rank - v.rank) + v.dims[:-2] for v in (left, right)]
    common = tuple(max(a, b) for a, b in zip(*batches, strict=True))
    left, right = (to.broadcast(v, (*common, *v.dims[-2:])) for v in (left, right))
    to.finish(OperationCode.BATCH_MATMUL, left, right, to.flag(to.option("adj_x")), to.flag(to.option("adj_y")))


@BATCH_MATMUL.lowering(wide=True)
def matmul_by_constant(to: Lowerer) -> None:
    """A product with a constant matrix as FULLY_CONNECTED, for feature levels and types without BATCH_MATMUL."""
    left, right = to.inputs()
    to.require_known(right, "a constant matrix on the right")
    to.require(math.prod(right.dims[:-2]) == 1, "a constant matrix on the right", right.dims)
    to.require(not to.option("adj_x") and left.type in (*FLOATS, *QUANT8), "floats or 8-bit integers", to.declared(0))
    assert right.data is not None
    matrix = right.data.reshape(right.dims[-2:])
    transposed = right.like(dims=matrix.shape if to.option("adj_y") else matrix.shape[::-1])
    transposed.data = matrix if to.option("adj_y") else np.ascontiguousarray(matrix.T)
    units, depth = transposed.dims
    rows = math.prod(left.dims) // max(depth, 1)
    flat = to.emit(
        OperationCode.FULLY_CONNECTED,
        left if left.rank <= 4 else to.reshaped(left, (rows, depth)),
        transposed,
        bias(to, to.count, left, transposed, units),
        to.scalar(0),
        out=to.out.like(dims=(rows, units)),
    )
    to.reshaped(flat, (*left.dims[:-1], units), out=to.out)


def _matmul(a: Array, b: Array, options: Options) -> Array:
    a = np.swapaxes(a, -1, -2) if options["adj_x"] else a
    return np.asarray(np.matmul(a, np.swapaxes(b, -1, -2) if options["adj_y"] else b))


@BATCH_MATMUL.host_kernel
def host_batch_matmul(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    return [stored(_matmul(real(inputs[0]), real(inputs[1]), options), outputs[0])]


@BATCH_MATMUL.hybrid_kernel
def batch_matmul_hybrid(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    """Each row of the left operand in steps of its own."""
    left, right = data_of(inputs[0]), inputs[1]
    left = np.swapaxes(left, -1, -2) if options["adj_x"] else left
    rows = left.reshape(-1, left.shape[-1])
    numbers, steps = (centred_asymmetric if options["asymmetric_quantize_inputs"] else symmetric)(rows)
    sums = _matmul(numbers.reshape(left.shape), centred(right), {**options, "adj_x": False}).astype(np.float32)
    factors = (steps * np.float32(right.scale)).reshape(*left.shape[:-1], 1)
    return [sums * factors]


@BATCH_MATMUL.integer_kernel
def batch_matmul_integers(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    """Exact sums of products; those of 8-bit numbers wrap in 32 bits, those of 16 are rescaled as sums of convolutions."""
    if outputs[0].dtype == np.int32:  # LiteRT's kernel of such sums looks at no zero point.
        left, right = (data_of(x).astype(np.float64) for x in inputs[:2])
        return [_matmul(left, right, options).astype(np.int64).astype(np.int32)]
    rescale = mbqm if inputs[0].dtype.itemsize == 1 else None
    sums = _matmul(centred(inputs[0]), centred(inputs[1]), options)
    return [finished(sums, inputs, (0, 1, 2), outputs[0], options, rescale)]
