"""What ONNX Runtime's NNAPI execution provider hands to NNAPI: operators, feature levels, types and further conditions, as data.

The provider looks at node units: a node alone, or a group of DequantizeLinear nodes, the node that reads them and the
QuantizeLinear behind it. An operator that is not in the table is never handed over. What the provider's fused activations and
ONNX Runtime's own optimiser do before that (batch normalisation into convolutions) is what chains do here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from nnbridge.errors import Reason, listed
from nnbridge.types import FuseCode
from nnbridge_onnx.chains import activation_of
from nnbridge_onnx.graph import Graph
from nnbridge_onnx.node_units import QLINEAR, Io, Unit, type_name

FLOAT, UINT8 = ("FLOAT",), ("UINT8",)
MAX_RANK = 4
_STEP_256 = 1 / 256


@dataclass(frozen=True, slots=True)
class Condition:
    """What must hold; ``found`` tells what was met instead. Checked below a feature level only, if one is given."""

    rule: str
    holds: Callable[[Unit], object]
    found: Callable[[Unit], object] = lambda unit: unit.type()
    below: int = 99


Conditions: TypeAlias = "tuple[Condition, ...]"


@dataclass(frozen=True, slots=True)
class Rule:
    """One row of the table."""

    level: int = 1
    """First feature level."""
    types: tuple[str, ...] | None = FLOAT
    """Element types of input 0 of a unit that is not quantised; None for any."""
    conditions: Conditions = ()
    opset: int = 7
    """First opset."""
    grouped: bool = False
    """True if groups are handed over as quantised operations."""


# -- conditions that several operators share -----------------------------------------------------------------------------


def _ranks(low: int, high: int, *positions: int) -> Condition:
    rule = f"rank {low}" if low == high else f"a rank from {low} to {high}"
    places = positions or (0,)
    return Condition(
        rule,
        lambda unit: all(low <= len(unit.shape(i)) <= high for i in places),
        lambda unit: ", ".join(str(len(unit.shape(i))) for i in places),
    )


def _constant(i: int, what: str) -> Condition:
    return Condition(f"a constant {what}", lambda u: not u.given(i) or u.constant(i) is not None, lambda u: "a computed one")


def _plain(name: str, *allowed: Any) -> Condition:
    """An attribute that has one of these values; the first one is the default."""
    rule = f"{name} of {' or '.join(map(str, allowed))}"
    return Condition(rule, lambda u: u.attribute(name, allowed[0]) in allowed, lambda u: u.attribute(name, allowed[0]))


_NCHW = Condition("feature level 3 for the NCHW layout", lambda unit: not unit.nchw, lambda unit: unit.level, below=3)
_CONSTANT_WEIGHTS = Condition("constant weights", lambda unit: unit.constant(1) is not None, lambda unit: "computed ones")
_RANK_4 = _ranks(1, MAX_RANK)


def _parameters(io: Io, unit: Unit, *, weights: bool = False) -> str:
    """What is wrong with the type, scale and zero point of a quantised input or output; empty if nothing is."""
    type, constants = type_name(unit.graph, io.name), unit.graph.constants
    signed = weights and type == "INT8"
    if type != "UINT8" and not signed:
        return type
    scale, point = constants.get(io.scale), constants.get(io.point)
    if scale is None or (io.point and point is None):
        return "computed parameters"
    if scale.size != 1 and (not signed or unit.level < 3 or unit.node.type not in ("Conv", "QLinearConv")):
        return f"{scale.size} scales"
    if point is not None and signed and point.any():
        return "weights with a zero point other than 0"
    return "several zero points" if point is not None and point.size != 1 and not signed else ""


def _quantised(*weights: int) -> Condition:
    """Parameters that the provider takes; ``weights`` are inputs that may be signed and have a scale for each channel."""

    def wrong(unit: Unit) -> str:
        data = [*unit.inputs[: len(unit.inputs) if unit.node.type == "Concat" else max(1, *(w + 1 for w in (0, *weights)))]]
        found = [_parameters(io, unit, weights=i in weights) for i, io in enumerate(data) if io.scale]
        found += [_parameters(io, unit) for io in unit.outputs if io.scale]
        return next(filter(None, found), "")

    rule = "UINT8 values with one constant scale and zero point each (signed weights may have one for each channel)"
    return Condition(rule, lambda unit: not unit.quantised or not wrong(unit), wrong)


def _real(unit: Unit, io: Io) -> tuple[float, int]:
    """Scale and zero point."""
    scale, point = unit.graph.constants.get(io.scale), unit.graph.constants.get(io.point)
    return (
        float(np.ravel(scale)[0]) if scale is not None and scale.size else 0.0,
        int(np.ravel(point)[0]) if point is not None and point.size else 0,
    )


_PAIR_OF_QUANTISED = Condition(
    "two UINT8 operands",
    lambda u: not u.quantised or (u.type(0), u.type(1)) == ("UINT8", "UINT8"),
    lambda u: (u.type(0), u.type(1)),
)
_SCALE_256 = Condition(
    "an output of scale 1/256 and zero point 0",
    lambda u: not u.quantised or _real(u, u.outputs[0]) == (_STEP_256, 0),
    lambda u: _real(u, u.outputs[0]),
)
_SAME_PARAMETERS = Condition(
    "one scale and zero point for input and output",
    lambda u: not u.quantised or _real(u, u.inputs[0]) == _real(u, u.outputs[0]),
    lambda u: (_real(u, u.inputs[0]), _real(u, u.outputs[0])),
)


# -- conditions of one operator ------------------------------------------------------------------------------------------


def _no_grouped_dilation(unit: Unit) -> bool:
    weights = unit.constant(1)
    depthwise = weights is not None and weights.shape[1:2] == (1,)
    return list(unit.attribute("dilations", [1, 1])) == [1, 1] or unit.attribute("group", 1) == 1 or depthwise


def _clip_bounds(unit: Unit) -> bool:
    return activation_of(unit.node, unit.graph.constants) in (FuseCode.RELU6, FuseCode.RELU1)


def _batched(unit: Unit) -> bool:
    """True for matrices in batches of one shape, which the provider splits into products of two matrices."""
    a, b = unit.shape(0), unit.shape(1)
    plain = unit.node.type == "MatMul" and not unit.grouped and unit.level >= 3
    return plain and len(a) >= 3 and len(a) == len(b) and a[:-2] == b[:-2] and unit.type() == "FLOAT"


def _row_bias(unit: Unit) -> bool:
    if not unit.given(2):
        return True
    bias, transposed = unit.shape(2), unit.attribute("transB", 0)
    count = unit.shape(1)[0 if transposed else 1]
    return bool(bias) and bias[-1] == count and all(d == 1 for d in bias[:-1])


def _even_split(unit: Unit) -> bool:
    shape, outputs = unit.shape(), len(unit.node.outputs)
    size, sizes = shape[int(unit.attribute("axis", 0))], unit.constant(1)
    return size % outputs == 0 if sizes is None else len({int(s) for s in np.ravel(sizes)}) == 1 and int(sizes.sum()) == size


def _image_sizes(unit: Unit) -> bool:
    """Resize changes height and width alone, and makes images smaller by whole factors only."""
    shape = unit.shape()
    if unit.given(2) and (scales := unit.constant(2)) is not None and scales.size == 4:
        found = [float(s) for s in np.ravel(scales)]
        first = found[1] == 1
        spatial = list(zip(shape[2:] if first else shape[1:3], found[2:] if first else found[1:3], strict=True))
        return found[0] == 1 and (first or found[3] == 1) and all(s >= 1 or (n * s).is_integer() for n, s in spatial)
    sizes = unit.constant(3)
    return sizes is not None and sizes.size == 4 and int(sizes[0]) == shape[0] and shape[1] in (int(sizes[1]), int(sizes[3]))


def _resize_positions(unit: Unit) -> bool:
    rule = unit.attribute("coordinate_transformation_mode", "half_pixel")
    if unit.attribute("mode", "nearest") == "linear":
        return rule == "asymmetric" or (rule in ("half_pixel", "align_corners") and unit.level >= 4)
    return rule == "asymmetric" and unit.attribute("nearest_mode", "round_prefer_floor") == "floor"


_POOL: Conditions = (
    _NCHW,
    _ranks(4, 4),
    _plain("count_include_pad", 0),
    _plain("storage_order", 0),
    _plain("ceil_mode", 0),
    Condition("a window over two axes", lambda u: len(u.attribute("kernel_shape", (1, 1))) == 2),
    Condition("no dilation", lambda u: list(u.attribute("dilations", [1, 1])) == [1, 1], lambda u: u.attribute("dilations", [])),
    Condition("no indexes", lambda u: len(u.node.outputs) == 1, lambda u: "a second output"),
)
_CONV = Rule(
    2,
    conditions=(
        _NCHW,
        Condition(
            "UINT8 images and 8-bit weights",
            lambda u: not u.quantised or (u.type(0) == "UINT8" and u.type(1) in ("UINT8", "INT8")),
            lambda u: (u.type(0), u.type(1)),
        ),
        _quantised(1),
        Condition("the operator of ONNX's own domain", lambda u: not u.node.domain, lambda u: u.node.domain),
        _CONSTANT_WEIGHTS,
        Condition("weights of rank 4", lambda u: len(u.shape(1)) == 4, lambda u: len(u.shape(1))),
        Condition("no dilation of a grouped convolution", _no_grouped_dilation, lambda u: u.attribute("dilations", [])),
        Condition(
            "feature level 3 for dilations", lambda u: set(u.attribute("dilations", [1])) == {1}, lambda u: u.level, below=3
        ),
        Condition("a constant bias", lambda u: not u.quantised or not u.given(2) or u.constant(2) is not None),
    ),
    grouped=True,
)
_MATRIX: Conditions = (
    Condition(
        "UINT8 values and 8-bit weights",
        lambda u: not u.quantised or (u.type(0) == "UINT8" and u.type(1) in ("UINT8", "INT8")),
        lambda u: (u.type(0), u.type(1)),
    ),
    _quantised(1),
    Condition(
        "two matrices, or batches of one shape at feature level 3",
        lambda u: _batched(u) or (len(u.shape(0)), len(u.shape(1))) == (2, 2),
        lambda u: (list(u.shape(0)), list(u.shape(1))),
    ),
)
_PRODUCT = Rule(
    conditions=(
        *_MATRIX,
        Condition("a constant second matrix", lambda u: _batched(u) or u.constant(1) is not None, lambda u: "a computed one"),
    ),
    grouped=True,
)
_GEMM = Rule(
    conditions=(
        *_MATRIX,
        _plain("transA", 0),
        _plain("alpha", 1.0),
        _plain("beta", 1.0),
        Condition(
            "a constant second matrix unless transB is set", lambda u: u.attribute("transB", 0) or u.constant(1) is not None
        ),
        Condition("a bias of one row", _row_bias, lambda u: list(u.shape(2))),
        Condition("a constant bias", lambda u: not u.quantised or not u.given(2) or u.constant(2) is not None),
    ),
    grouped=True,
)
_BINARY: Conditions = (_PAIR_OF_QUANTISED, _quantised(1), _ranks(0, MAX_RANK, 0, 1))
_AXES: Conditions = (_RANK_4, _constant(1, "list of axes"))
_MATH = Rule(3)
_EXTREME = Rule(3, conditions=(Condition("two operands", lambda u: len(u.inputs) == 2, lambda u: len(u.inputs)),))
_INNER: tuple[str, ...] = ("FLOAT", "UINT8")

RULES: Mapping[str, Rule] = {
    "Abs": _MATH,
    "Add": Rule(conditions=_BINARY, grouped=True),
    "AveragePool": Rule(2, conditions=(*_POOL, _quantised(), _SAME_PARAMETERS), grouped=True),
    "BatchNormalization": Rule(
        conditions=(
            Condition("one output, as for inference", lambda u: len(u.node.outputs) == 1, lambda u: len(u.node.outputs)),
            _ranks(0, MAX_RANK),
            _plain("spatial", 1),
            *(_constant(i, what) for i, what in enumerate(("scale", "bias", "mean", "variance"), 1)),
        )
    ),
    "Cast": Rule(
        3,
        conditions=(
            Condition("a cast to float or int32", lambda u: u.attribute("to", 0) in (1, 6), lambda u: u.attribute("to", 0)),
        ),
    ),
    "Clip": Rule(conditions=(Condition("bounds of 0 and 6 or -1 and 1", _clip_bounds, lambda u: "others"),)),
    "Concat": Rule(types=_INNER, conditions=(_quantised(), _RANK_4), grouped=True),
    "Conv": _CONV,
    "DepthToSpace": Rule(conditions=(_ranks(4, 4), _NCHW, _plain("mode", "DCR"))),
    "DequantizeLinear": Rule(types=None, conditions=(_quantised(),)),
    "Div": Rule(2, conditions=_BINARY),
    "Elu": Rule(4),
    "Exp": _MATH,
    "Flatten": Rule(conditions=(_RANK_4,)),
    "Floor": Rule(),
    "Gather": Rule(
        3,
        conditions=(
            _RANK_4,
            Condition(
                "constant indexes, or int32 ones",
                lambda u: u.type(1) == "INT32" or u.constant(1) is not None,
                lambda u: u.type(1),
            ),
        ),
    ),
    "Gemm": _GEMM,
    "GlobalAveragePool": Rule(2, conditions=(_NCHW, _ranks(4, 4))),
    "GlobalMaxPool": Rule(2, conditions=(_NCHW, _ranks(4, 4))),
    "Identity": Rule(),
    "LRN": Rule(2, conditions=(_ranks(4, 4),)),
    "LeakyRelu": Rule(conditions=(_ranks(1, 99),)),
    "Log": _MATH,
    "MatMul": _PRODUCT,
    "Max": _EXTREME,
    "MaxPool": Rule(2, _INNER, _POOL),
    "Min": _EXTREME,
    "Mul": Rule(conditions=_BINARY, grouped=True),
    "Neg": _MATH,
    "PRelu": Rule(3, conditions=_BINARY),
    "Pad": Rule(
        3,
        conditions=(
            _RANK_4,
            Condition("an input with elements", lambda u: 0 not in u.shape(), lambda u: list(u.shape())),
            _plain("mode", "constant"),
            Condition(
                "constant paddings of at least 0", lambda u: (p := u.constant(1)) is not None and p.size and p.min() >= 0
            ),
            _constant(2, "fill"),
        ),
        opset=11,
    ),
    "Pow": Rule(
        3, conditions=(*_BINARY, Condition("two float operands", lambda u: u.type(1) == "FLOAT", lambda u: u.type(1)))
    ),
    "QLinearAdd": Rule(types=None, conditions=_BINARY),
    "QLinearAveragePool": Rule(2, None, (*_POOL, _quantised(), _SAME_PARAMETERS)),
    "QLinearConv": Rule(2, None, _CONV.conditions),
    "QLinearMatMul": Rule(types=None, conditions=_PRODUCT.conditions),
    "QLinearMul": Rule(types=None, conditions=_BINARY),
    "QLinearSigmoid": Rule(types=None, conditions=(_quantised(), _SCALE_256)),
    "QuantizeLinear": Rule(3, None, (_quantised(),)),
    "ReduceMean": Rule(2, conditions=(_RANK_4, _constant(1, "list of axes"))),
    "Relu": Rule(),
    "Reshape": Rule(
        conditions=(
            _quantised(),
            Condition("a constant shape", lambda u: u.constant(1) is not None, lambda u: "a computed one"),
            _RANK_4,
            Condition("no 0 where allowzero is set", lambda u: not u.attribute("allowzero", 0) or np.all(u.constant(1))),
        ),
        grouped=True,
    ),
    "Resize": Rule(
        2,
        _INNER,
        (
            Condition("feature level 3 for float images", lambda u: u.type() == "UINT8", lambda u: u.level, below=3),
            _quantised(),
            _ranks(4, 4),
            _plain("mode", "nearest", "linear"),
            _plain("exclude_outside", 0),
            Condition(
                "linear at half_pixel or align_corners (feature level 4) or asymmetric, nearest at asymmetric rounded down",
                _resize_positions,
                lambda u: u.attribute("coordinate_transformation_mode", "half_pixel"),
            ),
            _plain("antialias", 0),
            Condition("no axes", lambda u: not u.attribute("axes", []), lambda u: u.attribute("axes", [])),
            _plain("keep_aspect_ratio_policy", "stretch"),
            Condition("constant scales or sizes", lambda u: u.constant(2) is not None or u.constant(3) is not None),
            Condition("new heights and widths, smaller ones by whole factors", _image_sizes, lambda u: "others"),
        ),
        opset=11,
        grouped=True,
    ),
    "Sigmoid": Rule(conditions=(_RANK_4,)),
    "Sin": _MATH,
    "Slice": Rule(
        2,
        conditions=(
            _ranks(0, MAX_RANK),
            *(_constant(i, f"list of {what}") for i, what in enumerate(("starts", "ends", "axes", "steps"), 1)),
        ),
        opset=10,
    ),
    "Softmax": Rule(
        2,
        conditions=(
            _quantised(),
            _SCALE_256,
            Condition("rank 2 or 4", lambda u: len(u.shape()) in (2, 4), lambda u: len(u.shape())),
            Condition("axis 1 below feature level 3", lambda u: u.attribute("axis", 1) == 1, lambda u: u.attribute("axis", 1), 3),
        ),
        grouped=True,
    ),
    "Split": Rule(
        3,
        conditions=(_constant(1, "list of sizes"), Condition("parts of one size", _even_split, lambda u: list(u.shape()))),
        opset=13,
    ),
    "Sqrt": _MATH,
    "Squeeze": Rule(2, conditions=_AXES),
    "Sub": Rule(2, conditions=_BINARY),
    "Tanh": Rule(),
    "Transpose": Rule(2, _INNER, (_quantised(), _RANK_4), grouped=True),
    "Unsqueeze": Rule(conditions=_AXES),
}  # fmt: skip
"""Operator → when the provider takes it."""


def refusal(unit: Unit) -> Reason | None:
    """Why the provider leaves a unit to ONNX Runtime; None if it takes it."""
    node = unit.node
    rule = RULES.get(unit.operator)
    if rule is None or (node.domain and node.type not in QLINEAR):
        return Reason("an operator that the provider maps", unit.operator, node.label)
    if unit.grouped and not unit.kind and not rule.grouped:
        return Reason("an operator that the provider maps between DequantizeLinear and QuantizeLinear", node.type, node.label)
    if unit.level < rule.level:
        return Reason(f"feature level {rule.level}", str(unit.level), node.label)
    if node.version < rule.opset and not node.domain:
        return Reason(f"opset {rule.opset}", str(node.version), node.label)
    found = _shape_problem(unit.inputs, unit.graph) or _external_problem(unit)
    if found is not None:
        return Reason(*found, node.label)
    if rule.types is not None and not unit.quantised and unit.type() not in rule.types:
        return Reason(f"an input 0 of {' or '.join(rule.types)}", unit.type(), node.label)
    for condition in rule.conditions:
        if unit.level < condition.below and not condition.holds(unit):
            return Reason(condition.rule, listed(condition.found(unit)), node.label)
    return None


def _shape_problem(inputs: Sequence[Io], graph: Graph) -> tuple[str, str] | None:
    for io in inputs:
        tensor = graph.tensors.get(io.name)
        if io.name and (tensor is None or tensor.shape is None or any(d < 0 for d in tensor.shape)):
            return "inputs of known shape (see --shape)", f"{None if tensor is None else tensor.shape} for {io.name}"
    return None


def _external_problem(unit: Unit) -> tuple[str, str] | None:
    names = [name for io in unit.inputs for name in (io.name, io.scale, io.point)]
    found = next((name for name in names if name in unit.graph.external), None)
    return None if found is None else ("constants inside the file", f"{found} in another one")
