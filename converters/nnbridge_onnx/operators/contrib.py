"""Operators of ``com.microsoft``, written out in ONNX's own before anything else.

Quantised ones become the float operator between DequantizeLinear and QuantizeLinear, which is then one operation on 8-bit
values where NNAPI has it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from nnbridge.operations import work
from nnbridge_onnx.declaration import CONTRIB, QuantisedIo, operator
from nnbridge_onnx.operators.convolution import QLINEAR_CONV
from nnbridge_onnx.operators.pooling import POOL_CONDITIONS
from nnbridge_onnx.operators.quantisation import DEQUANTIZE, QUANTIZE
from nnbridge_onnx.passes.contrib import TO_LAST, Expansion, Skip
from nnbridge_onnx.rules import BINARY, SAME_PARAMETERS, SCALE_256, Provider, uint8_parameters

# -- quantised operators -------------------------------------------------------------------------------------------------


def _pair(e: Expansion) -> None:
    e.quantise(e.add(e.kind.removeprefix("QLinear"), e.real(0), e.real(3)), 6)


def _unary(e: Expansion) -> None:
    e.quantise(e.add(e.kind.removeprefix("QLinear"), e.real(0), **e.others()), 3)


def _softmax(e: Expansion) -> None:
    axis = int(e.attribute("axis", -1))
    if axis != -1 and (int(e.attribute("opset", 13)) < 13) != (e.opset < 13):
        raise Skip
    e.quantise(e.add("Softmax", e.real(0), axis=axis), 3)


def _pool(e: Expansion) -> None:
    image = e.channels_first(e.input(0))
    real = e.add("DequantizeLinear", image, e.input(1), e.input(2))
    made = e.add(e.kind.removeprefix("QLinear"), real, **e.others("channels_last"))
    if not e.attribute("channels_last", 0):
        e.quantise(made, 3)
        return
    e.add("Transpose", e.add("QuantizeLinear", made, e.input(3), e.input(4)), to=e.output(), perm=TO_LAST)


def _mean(e: Expansion) -> None:
    axes, others = e.attribute("axes", []), e.others("axes")
    if e.opset < 18:
        made = e.add("ReduceMean", e.real(0), **e.others())
    else:
        made = e.add("ReduceMean", e.real(0), e.ints(axes) if axes else "", **others)
    e.quantise(made, 3)


def _concat(e: Expansion) -> None:
    made = e.add("Concat", *(e.real(i) for i in range(2, e.count, 3)), **e.others())
    e.quantise(made, 0)


def _convolution(e: Expansion) -> None:
    """ONNX's own QLinearConv, with channels first."""
    others = e.others("channels_last")
    if not e.attribute("channels_last", 0):
        e.add("QLinearConv", *(e.input(i) for i in range(e.count)), to=e.output(), **others)
        return
    image = e.channels_first(e.input(0))
    made = e.add("QLinearConv", image, *(e.input(i) for i in range(1, e.count)), **others)
    e.add("Transpose", made, to=e.output(), perm=TO_LAST)


def _gemm(e: Expansion) -> None:
    if e.attribute("alpha", 1.0) != 1.0:
        raise Skip
    transposed = int(e.attribute("transB", 0))
    weights = e.add("DequantizeLinear", *(e.input(i) for i in range(3, 6)), axis=0 if transposed else 1)
    bias = ""
    if e.input(6):
        # The bias counts in steps of both scales.
        bias = e.add("DequantizeLinear", e.input(6), e.add("Mul", e.input(1), e.input(4)), axis=0)
    result = e.output() if not e.input(7) else ""
    made = e.add("Gemm", e.real(0), weights, bias, to=result, **e.others("alpha"))
    if not result:
        e.quantise(made, 7)


def _integer_product(e: Expansion, x: str, scale: str, point: str, weights: Sequence[str], bias: str) -> None:
    """A product of 8-bit values that are counted in ``scale`` from ``point``."""
    values = e.add("Sub", e.cast(x), e.cast(point)) if point else e.cast(x)
    made = e.add("MatMul", values, e.add("DequantizeLinear", *weights, axis=1))
    made = e.add("Mul", made, scale, to="" if bias else e.output())
    if bias:
        e.add("Add", made, bias, to=e.output())


def _integer_to_float(e: Expansion) -> None:
    weights = [e.input(1), e.input(3), e.input(5)]
    _integer_product(e, e.input(0), e.input(2), e.input(4), weights, e.input(6))


def _dynamic(e: Expansion) -> None:
    x, scale, point = (f"{e.output()} {what}" for what in ("values", "scale", "zero point"))
    e.add_all("DynamicQuantizeLinear", [e.input(0)], [x, scale, point])
    _integer_product(e, x, scale, point, [e.input(1), e.input(2), e.input(3)], e.input(4))


def _same(e: Expansion) -> None:
    e.add(e.kind, *(e.input(i) for i in range(e.count)), to=e.output(), **e.others())


# -- fused float operators -----------------------------------------------------------------------------------------------


def _with_bias(e: Expansion) -> str:
    return e.add("Add", e.input(0), e.input(1)) if e.input(1) else e.input(0)


def _half_of(e: Expansion, x: str, inner: str) -> None:
    """x / 2 * (inner + 1)."""
    e.add("Mul", e.add("Mul", x, e.number(0.5, x)), e.add("Add", inner, e.number(1.0, x)), to=e.output())


def _gelu_of(e: Expansion, x: str) -> None:
    _half_of(e, x, e.add("Erf", e.add("Mul", x, e.number(0.5**0.5, x))))


def _gelu(e: Expansion) -> None:
    _gelu_of(e, _with_bias(e))


def _fast_gelu(e: Expansion) -> None:
    x = _with_bias(e)
    cube = e.add("Mul", e.add("Mul", e.add("Mul", x, x), x), e.number(0.044715, x))
    _half_of(e, x, e.add("Tanh", e.add("Mul", e.add("Add", x, cube), e.number(0.7978845608028654, x))))


def _quick_gelu(e: Expansion) -> None:
    x = e.input(0)
    gate = e.add("Sigmoid", e.add("Mul", x, e.number(float(e.attribute("alpha", 1.702)), x)))
    e.add("Mul", x, gate, to=e.output())


_ACTIVATIONS = {"Relu": (), "Sigmoid": (), "Tanh": (), "LeakyRelu": ("alpha",), "HardSigmoid": ("alpha", "beta")}


def _activated(e: Expansion, value: str, parameters: Sequence[float]) -> None:
    """The activation that a fused operator ends with."""
    kind = e.attribute("activation", "")
    if kind == "Clip":
        bounds = (e.number(float(p), value) for p in parameters)
        e.add("Clip", value, *bounds, to=e.output())
        return
    if kind not in _ACTIVATIONS:
        raise Skip
    e.add(kind, value, to=e.output(), **dict(zip(_ACTIVATIONS[kind], map(float, parameters), strict=False)))


def _fused_convolution(e: Expansion) -> None:
    others = e.others("activation", "activation_params")
    made = e.add("Conv", *(e.input(i) for i in range(3)), **others)
    _activated(e, e.add("Add", made, e.input(3)) if e.input(3) else made, e.attribute("activation_params", []))


def _fused_gemm(e: Expansion) -> None:
    names = [name for name in e.others() if name.startswith("activation")]
    parameters = [float(e.attribute(f"activation_{name}", 0)) for name in ("alpha", "beta")]
    _activated(e, e.add("Gemm", *(e.input(i) for i in range(3)), **e.others(*names)), parameters)


def _fused_product(e: Expansion) -> None:
    flips = [e.attribute(name, 0) for name in ("transA", "transB")]
    alpha, names = float(e.attribute("alpha", 1.0)), [e.input(0), e.input(1)]
    if e.attribute("transBatchA", 0) or e.attribute("transBatchB", 0) or (any(flips) and e.opset < 12):
        raise Skip
    if any(flips):
        # Transpose needs the rank, which nodes do not state; Einsum does not.
        letters = [f"...{'ki' if flips[0] else 'ik'}", f"...{'jk' if flips[1] else 'kj'}"]
        made = e.add("Einsum", *names, to=e.output() if alpha == 1 else "", equation=f"{','.join(letters)}->...ij")
    else:
        made = e.add("MatMul", *names, to=e.output() if alpha == 1 else "")
    if alpha != 1:
        e.add("Mul", made, e.number(alpha, made), to=e.output())


def _skip_normalisation(e: Expansion) -> None:
    """A sum and its normalisation; the sum is output 3."""
    simple = "Simplified" in e.kind
    bias = e.input(3 if simple else 4)
    if e.output(1) or e.output(2):
        raise Skip
    x = e.add("Add", e.input(0), e.input(1), to="" if bias else e.output(3))
    x = e.add("Add", x, bias, to=e.output(3)) if bias else x
    _normalised(e, x, e.input(2), "" if simple else e.input(3), centred=not simple)


def _normalised(e: Expansion, x: str, scale: str, bias: str, *, centred: bool) -> None:
    epsilon = float(e.attribute("epsilon", 1e-12))
    if centred and e.opset >= 17:
        e.add("LayerNormalization", x, scale, bias, to=e.output(), axis=-1, epsilon=epsilon)
        return

    def mean(value: str) -> str:
        return e.add("ReduceMean", value, e.ints([-1])) if e.opset >= 18 else e.add("ReduceMean", value, axes=[-1])

    x = e.add("Sub", x, mean(x)) if centred else x
    root = e.add("Sqrt", e.add("Add", mean(e.add("Mul", x, x)), e.number(epsilon, x)))
    scaled = e.add("Mul", e.add("Div", x, root), scale, to="" if bias else e.output())
    if bias:
        e.add("Add", scaled, bias, to=e.output())


def _layer(e: Expansion) -> None:
    e.add_all(e.kind, [e.input(i) for i in range(e.count)], [e.output(i) for i in range(e.outputs)], **e.others())


def _mean_square(e: Expansion) -> None:
    if e.output(1):
        raise Skip
    e.add("RMSNormalization", e.input(0), e.input(1), to=e.output(), **e.others())


def _contrib(name: str, signature: str, summary: str, expand: Callable[[Expansion], None], **facts: Any) -> None:
    operator(name, 0, signature, summary, domain=CONTRIB, expand=expand, **facts)


_PAIR = "A A_scale A_zero_point B B_scale B_zero_point C_scale C_zero_point? -> C"
_UNARY = "X X_scale X_zero_point? Y_scale Y_zero_point? -> Y"
_PAIR_IO, _UNARY_IO = QuantisedIo(((0, 1, 2), (3, 4, 5)), (6, 7)), QuantisedIo(((0, 1, 2),), (3, 4))

_contrib(
    "QLinearAdd", _PAIR, "Sum of 8-bit values.", _pair, quantised_io=_PAIR_IO, provider=Provider(types=None, conditions=BINARY)
)
_contrib(
    "QLinearMul",
    _PAIR,
    "Product of 8-bit values.",
    _pair,
    quantised_io=_PAIR_IO,
    provider=Provider(types=None, conditions=BINARY),
)
_contrib(
    "QLinearSigmoid", _UNARY, "Logistic function of 8-bit values.", _unary, quantised_io=_UNARY_IO,
    provider=Provider(types=None, conditions=(uint8_parameters(), SCALE_256)),
)  # fmt: skip
_contrib("QLinearLeakyRelu", _UNARY, "LeakyRelu of 8-bit values.", _unary)
_contrib(
    "QLinearAveragePool", _UNARY, "Average of windows of 8-bit values.", _pool, quantised_io=_UNARY_IO,
    provider=Provider(2, None, (*POOL_CONDITIONS, uint8_parameters(), SAME_PARAMETERS)),
)  # fmt: skip
_contrib("QLinearGlobalAveragePool", _UNARY, "Average of each channel of 8-bit values.", _pool)
_contrib("QLinearSoftmax", _UNARY, "Softmax of 8-bit values.", _softmax)
_contrib(
    "QLinearReduceMean",
    "data data_scale data_zero_point? reduced_scale reduced_zero_point? -> reduced",
    "Mean of 8-bit values.",
    _mean,
)
_contrib(
    "QLinearConcat",
    "Y_scale Y_zero_point inputs+ -> Y",
    "8-bit values side by side, each with its own scale and zero point.",
    _concat,
)
_contrib(
    "QLinearConv", "x x_scale x_zero_point w w_scale w_zero_point y_scale y_zero_point B? -> y",
    "ONNX's QLinearConv, maybe with channels last.", _convolution, quantised_io=QLINEAR_CONV.quantised_io,
    provider=QLINEAR_CONV.provider, work=QLINEAR_CONV.work,
)  # fmt: skip
_contrib(
    "QGemm", "A a_scale a_zero_point B b_scale b_zero_point C? y_scale? y_zero_point? -> Y", "Gemm of 8-bit values.", _gemm,
    work=work.STACKED_PRODUCTS,
)  # fmt: skip
_contrib(
    "MatMulIntegerToFloat", "A B a_scale b_scale a_zero_point? b_zero_point? bias? -> Y", "Product of 8-bit matrices as floats.",
    _integer_to_float, work=work.PRODUCTS,
)  # fmt: skip
_contrib(
    "DynamicQuantizeMatMul", "A B b_scale b_zero_point? bias? -> Y", "Product of a matrix that is quantised first.", _dynamic,
    work=work.PRODUCTS,
)  # fmt: skip
_contrib(
    "QuantizeLinear", "x y_scale y_zero_point? -> y", "ONNX's QuantizeLinear.", _same,
    quantised_io=QUANTIZE.quantised_io, provider=QUANTIZE.provider,
)  # fmt: skip
_contrib(
    "DequantizeLinear", "x x_scale x_zero_point? -> y", "ONNX's DequantizeLinear.", _same,
    quantised_io=DEQUANTIZE.quantised_io, provider=DEQUANTIZE.provider,
)  # fmt: skip
_contrib("Gelu", "X -> Y", "Gelu by the error function.", _gelu)
_contrib("BiasGelu", "A B -> C", "Gelu of a sum.", _gelu)
_contrib("FastGelu", "X bias? -> Y", "Gelu by tanh, of a sum maybe.", _fast_gelu)
_contrib("QuickGelu", "X -> Y", "x * sigmoid(alpha * x).", _quick_gelu)
_contrib("FusedConv", "X W B? Z? -> Y", "Conv, a sum and an activation.", _fused_convolution, work=work.CONVOLUTION)
_contrib("FusedGemm", "A B C? -> Y", "Gemm and an activation.", _fused_gemm, work=work.STACKED_PRODUCTS)
_contrib("FusedMatMul", "A B -> Y", "Scaled product of matrices.", _fused_product, work=work.STACKED_PRODUCTS)
_contrib(
    "SkipLayerNormalization", "input skip gamma beta? bias? -> output mean? inv_std_var? input_skip_bias_sum?",
    "LayerNormalization of a sum.", _skip_normalisation,
)  # fmt: skip
_contrib(
    "SkipSimplifiedLayerNormalization", "input skip gamma bias? -> output mean? inv_std_var? input_skip_bias_sum?",
    "RMSNormalization of a sum.", _skip_normalisation,
)  # fmt: skip
_contrib("LayerNormalization", "X Scale B? -> Y Mean? InvStdDev?", "ONNX's LayerNormalization, of opsets before 17.", _layer)
_contrib("SimplifiedLayerNormalization", "X scale -> Y inv_std_var?", "ONNX's RMSNormalization.", _mean_square)
