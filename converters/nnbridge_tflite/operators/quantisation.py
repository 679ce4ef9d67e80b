"""Changes of element type and of quantisation."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from nnbridge.converters.declaration import Lowering, Option
from nnbridge.converters.folding import Folding
from nnbridge.converters.mapping import MappingKind
from nnbridge.converters.rules import until
from nnbridge.errors import Why
from nnbridge.operations.arithmetic import saturate
from nnbridge.types import FLOATS, OperandCode, OperationCode
from nnbridge_tflite import dims
from nnbridge_tflite.declaration import TfliteOperator
from nnbridge_tflite.host.codes import CHANNELS
from nnbridge_tflite.host.numbers import (
    Array,
    Options,
    Tensors,
    broadcast_along,
    data_of,
    half_away,
    is_truth,
    real,
    requantised,
    stored,
)
from nnbridge_tflite.host.sixteen_bits import require_integers
from nnbridge_tflite.loads import (
    OUT,
    REALS,
    PreparedOperator,
    affine,
    known_types,
    not_typed,
    parameters,
    requires,
    typed,
    zero_centred,
)
from nnbridge_tflite.lowerer import Lowerer
from nnbridge_tflite.rules import (
    FLOAT_QUANT8,
    NUMBERS,
    QUANT8,
    Condition,
    DelegateRule,
    OperatorView,
    Past,
    first_type,
    input_in,
    output_in,
    version_at_most,
)

_QUANTISED_TO = {
    "FLOAT32": ("UINT8", "INT8", "INT16", "INT4", "UINT4"),
    "INT16": ("INT8", "INT16", "INT32"),
    "INT32": ("INT8", "INT16"),
    "INT8": ("UINT8", "INT8", "INT16"),
    "UINT8": ("UINT8", "INT8", "INT16"),
}
_BOTH_TYPES = requires(
    "an output type that the kernel has for the input's",
    lambda node: node.type(OUT) in _QUANTISED_TO.get(node.type(0), ()),
    lambda node: f"{node.type(OUT)} for {node.type(0)}",
    Why.OUTPUT_TYPE,
)
_BOTH_CENTRED = requires(
    "16-bit integers with a zero point of 0",
    lambda node: (
        (node.type(0), node.type(OUT)) != ("INT16", "INT16") or not any(parameters(one)[1] for one in node.there((0, OUT)))
    ),
    lambda node: "another",
)


def _parameters(node: PreparedOperator) -> list[tuple[float, int]]:
    return [parameters(one) for one in node.there((0, OUT))]


_WIDE_RANGE = requires("the whole range", lambda node: not node.option("narrow_range"), lambda node: "narrow_range")


def _cast_bits(node: PreparedOperator) -> bool:
    """True if the last dimension is that of the elements which become one."""
    before, after = (node.there((0, OUT))[i].type.bits for i in (0, 1))
    return before >= after or (bool(node.shape(0)) and node.shape(0)[-1] == after // before)


_LAST_FITS = requires("a last dimension of the elements that become one", _cast_bits)


def _symmetric_int8(node: OperatorView) -> bool:
    data = node.input(0)
    return data is None or data.type.name != "INT8" or data.quantisation.zero_point == 0


def _scaled(node: OperatorView) -> bool:
    """The delegate reads one scale, which is 0 where there is one for each channel."""
    data = node.input(0)
    return node.output().quantisation.scale > 0 and (node.type(0) not in QUANT8 or data is None or data.quantisation.scale > 0)


CAST = TfliteOperator(
    "CAST",
    "A change of element type; quantised numbers are read as they are stored.",
    options=(
        Option("in_data_type", 0, "the input's TensorType; the tensor itself states it"),
        Option("out_data_type", 0, "the output's TensorType; the tensor itself states it"),
    ),
    folding=Folding(),
    delegate=DelegateRule(
        version=1,
        level=3,
        types=NUMBERS,
        conditions=(
            input_in("FLOAT32", "UINT8", "INT32", below=4),
            output_in(*NUMBERS),
            output_in("FLOAT32", "UINT8", "INT32", below=4),
            until("2.3", output_in("FLOAT32", "UINT8", "INT32")),
        ),
        past=(Past(until="2.3", types=("FLOAT32", "UINT8", "INT32")),),
    ),
    as_stored=True,
    versions=(1, 9),
    loads=(known_types("in_data_type", "out_data_type"),),
    dims=dims.like(),
)
QUANTIZE = TfliteOperator(
    "QUANTIZE",
    "Real numbers as quantised ones, or other parameters for the same numbers.",
    delegate=DelegateRule(
        version=2,
        level=3,
        types=FLOAT_QUANT8,
        conditions=(
            Condition(
                "a uint8 output below feature level 4",
                lambda node: node.output().type.name == "UINT8",
                first_type,
                4,
                Why.OUTPUT_TYPE,
            ),
            output_in(*QUANT8),
            until("2.3", output_in("UINT8")),
            Condition("scales above 0", _scaled, first_type, kind=Why.QUANTISATION_PARAMETERS),
        ),
        past=(Past(until="2.3", version=1, types=("FLOAT32",)),),
    ),
    lowerings=[Lowering(lambda to: to.finish_quantised(to.dequantised(to.input(0))))],
    versions=(1, 6),
    loads=(affine((*REALS, "INT32"), OUT), _BOTH_TYPES, _BOTH_CENTRED),
    dims=dims.like(),
)
_PACKED = Folding(moves_only=True, unlimited=True)
"""What is read is a packed form of weights."""
DEQUANTIZE = TfliteOperator(
    "DEQUANTIZE",
    "Quantised numbers or halves as float32.",
    folding=_PACKED,
    delegate=DelegateRule(
        version=99,
        types=(*QUANT8, "FLOAT16"),
        conditions=(
            version_at_most(2, lambda node: node.type(0) == "FLOAT16"),
            input_in(*QUANT8, below=4),
            input_in("UINT8", below=3),
            Condition(
                "int8 with zero point 0 below feature level 4", _symmetric_int8, first_type, 4, Why.QUANTISATION_PARAMETERS
            ),
            until("2.3", Condition("int8 with zero point 0", _symmetric_int8, first_type, kind=Why.QUANTISATION_PARAMETERS)),
        ),
        past=(Past(until="2.5", version=2, types=QUANT8),),
    ),
    versions=(1, 9),
    loads=(typed(0, "INT2", "INT4", "UINT4", "UINT8", "INT8", "INT16", "FLOAT16"), zero_centred(0)),
    dims=dims.like(),
    writes_type="FLOAT32",
)
DENSIFY = TfliteOperator(
    "DENSIFY",
    "Sparse weights as dense ones.",
    folding=_PACKED,
    kernel=lambda inputs, outputs, options: [data_of(inputs[0])],
    dims=dims.like(),
    writes_type=0,
)
FAKE_QUANT = TfliteOperator(
    "FAKE_QUANT",
    "Numbers that so many bits hold between two limits, which are shifted so that zero is one of them.",
    options=(
        Option("min", 0.0, "the lower limit"),
        Option("max", 0.0, "the upper limit"),
        Option("num_bits", 0, "bits of a number"),
        Option("narrow_range", False, "the lowest number is not used"),
    ),
    versions=(1, 2),
    loads=(_WIDE_RANGE,),
    dims=dims.like(),
    writes_type=0,
)
_UNSIZED = ("STRING", "RESOURCE", "VARIANT")
BITCAST = TfliteOperator(
    "BITCAST",
    "The same bytes as another type.",
    kernel=lambda inputs, outputs, options: [np.ascontiguousarray(data_of(inputs[0])).view(outputs[0].dtype)],
    loads=(not_typed(0, *_UNSIZED), not_typed(OUT, *_UNSIZED), _LAST_FITS),
)


@CAST.lowering()
def cast(to: Lowerer) -> None:
    """CAST between types that NNAPI casts."""
    int8 = "INT8" in (to.declared(0).type.name, to.declared_output().type.name)
    to.require(not int8 or to.mapping == MappingKind.DELEGATE, "no int8", to.declared(0))
    wraps = to.input(0).type == OperandCode.TENSOR_INT32 and to.out.type == OperandCode.TENSOR_QUANT8_ASYMM
    to.require(
        not wraps or to.mapping == MappingKind.DELEGATE, "no int32 to uint8 (NNAPI saturates, TFLite wraps)", to.declared(0)
    )
    to.finish(OperationCode.CAST, to.input(0))


@CAST.host_kernel
def host_cast(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    """Floats saturate as integers, NaN as the largest; what is not 0 is true."""
    data, out = data_of(inputs[0]), outputs[0]
    data = data.real if data.dtype.kind == "c" and out.dtype.kind != "c" else data
    if is_truth(out):
        return [(data != 0).astype(np.uint8)]
    if data.dtype.kind == "f" and out.dtype.kind in "iu":
        limits = np.iinfo(str(out.dtype))
        # The largest integer of 32 and 64 bits is no float: what reaches the power of two above it is replaced.
        within = data < float(limits.max) + 1
        return [np.where(within, np.where(within, data, 0).clip(limits.min, None).astype(out.dtype), out.dtype.type(limits.max))]
    return [data.astype(out.dtype)]


@DEQUANTIZE.lowering()
def dequantize(to: Lowerer) -> None:
    """DEQUANTIZE; float16 is cast."""
    half = to.input(0).type in FLOATS
    to.finish(OperationCode.CAST if half else OperationCode.DEQUANTIZE, to.input(0))


@DEQUANTIZE.host_kernel
@QUANTIZE.host_kernel
def host_requantise(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    """The same numbers with other parameters, or with none."""
    channels = options.get(CHANNELS, {}).get("0")
    if channels is None and inputs[0].dtype.kind in "iu" and outputs[0].scale > 0:  # Ranks that NNAPI has not, too.
        return requantize_16_bit(inputs, outputs, options)
    if channels is None:
        return [stored(real(inputs[0]), outputs[0])]
    data = data_of(inputs[0])
    scales, points = (
        broadcast_along(channels[name], channels["axis"], data.ndim, np.float32) for name in ("scales", "zero_points")
    )
    return [stored((data.astype(np.float32) - points) * scales, outputs[0])]


@QUANTIZE.kernel_16_bit
def requantize_16_bit(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    """Quantised numbers with other parameters, and real ones, which are divided in float32."""
    data, out = inputs[0], outputs[0]
    if data.dtype.kind == "f":
        scaled = data_of(data).astype(np.float32) / np.float32(out.scale)
        return [saturate(half_away(scaled) + out.zero_point, out.dtype)]
    sums = require_integers(data).astype(np.int64) - data.zero_point
    return [requantised(sums, float(data.scale) / float(out.scale), out)]


@FAKE_QUANT.host_kernel
def host_fake_quantised(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    low, high = np.float32(options["min"]), np.float32(options["max"])
    first, last = np.float32(bool(options["narrow_range"])), np.float32((1 << int(options["num_bits"])) - 1)
    scale = (high - low) / (last - first)
    point = np.clip(np.floor(first - low / scale + np.float32(0.5)), first, last)
    nudged, top = (first - point) * scale, (last - point) * scale
    steps = (np.clip(real(inputs[0]), nudged, top) - nudged) * (np.float32(1) / scale)
    return [stored(np.trunc(steps + np.float32(0.5)) * scale + nudged, outputs[0])]
