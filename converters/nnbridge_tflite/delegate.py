"""When Android's TFLite delegate hands an operator to NNAPI: versions, feature levels, types and further conditions, as data.

The table states what the NNAPI delegate of TFLite checks before it takes a node. An operator that is not in it is never
handed over. What NNAPI itself does not accept is not repeated here; the declarations know it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from nnbridge.errors import Reason
from nnbridge_tflite.graph import Operator, Tensor
from nnbridge_tflite.values import Values

FLOAT = ("FLOAT32",)
QUANT8 = ("UINT8", "INT8")
FLOAT_QUANT8 = (*FLOAT, *QUANT8)
FLOAT_INT32 = ("FLOAT32", "INT32")
NUMBERS = (*FLOAT_QUANT8, "INT32")
NUMBERS_HALF = (*NUMBERS, "FLOAT16")


@dataclass(frozen=True, slots=True)
class Node:
    """An operator as a condition sees it."""

    operator: Operator
    values: Values
    level: int

    def input(self, i: int) -> Tensor | None:
        """Input ``i``, or None if it is not given."""
        inputs = self.operator.inputs
        return self.values.tensors[inputs[i]] if i < len(inputs) and inputs[i] >= 0 else None

    def constant(self, i: int) -> bool:
        """True if input ``i`` is a constant."""
        tensor = self.input(i)
        return tensor is not None and self.values.constant(tensor.index) is not None

    def output(self, i: int = 0) -> Tensor:
        """An output."""
        return self.values.tensors[self.operator.outputs[i]]

    def type(self, i: int) -> str:
        """The element type of input ``i``, empty if it is not given."""
        tensor = self.input(i)
        return tensor.type.name if tensor is not None else ""

    def option(self, name: str) -> int:
        """A builtin option as a number."""
        return int(self.operator.options.get(name) or 0)


@dataclass(frozen=True, slots=True)
class Condition:
    """What must hold, from one feature level up to another; ``found`` tells what was met instead."""

    rule: str
    holds: Callable[[Node], object]
    found: Callable[[Node], object] = lambda node: node.type(0)
    below: int = 99
    """Checked below this feature level only."""


Conditions: TypeAlias = "tuple[Condition, ...]"


@dataclass(frozen=True, slots=True)
class Rule:
    """One row of the table."""

    version: int
    """Highest version of the operator."""
    level: int = 1
    """First feature level."""
    types: tuple[str, ...] | None = None
    """Element types of input ``of``."""
    of: int = 0
    conditions: Conditions = ()


def _activation(types: tuple[str, ...]) -> Condition:
    return Condition(
        f"no fused activation for {' or '.join(types)}",
        lambda node: node.type(0) not in types or node.option("fused_activation_function") == 0,
        lambda node: node.option("fused_activation_function"),
    )


def _constant(i: int, what: str) -> Condition:
    return Condition(f"a constant {what}", lambda node: node.constant(i), lambda node: "computed")


def _type(i: int, *types: str) -> Condition:
    return Condition(f"an input {i} of {' or '.join(types)}", lambda node: node.type(i) in types, lambda node: node.type(i))


def _from_level(level: int, rule: str, exempt: Callable[[Node], object]) -> Condition:
    return Condition(f"feature level {level} for {rule}", exempt, lambda node: node.level, below=level)


def _hybrid(node: Node) -> bool:
    weights = node.input(1)
    return node.type(0) == "FLOAT32" and weights is not None and weights.type.name in QUANT8


def _scales_restricted(node: Node) -> bool:
    data, filter, out = node.input(0), node.input(1), node.output()
    if node.type(0) != "UINT8" or data is None or filter is None:
        return True
    return data.quantisation.scale * filter.quantisation.scale < out.quantisation.scale


def _same_parameters(node: Node) -> bool:
    data, out = node.input(0), node.output()
    pair = [(t.quantisation.scale, t.quantisation.zero_point) for t in (data, out) if t is not None]
    return pair[0] == pair[-1]


_NO_HYBRID = Condition("float weights for float activations", lambda node: not _hybrid(node), lambda node: "8-bit weights")
_NO_OLD_HYBRID = _from_level(3, "8-bit weights of float activations", lambda node: not _hybrid(node))
_RESTRICTED_SCALES = Condition("input scale x filter scale below the output's", _scales_restricted, below=3)
_OLD_TYPES = Condition("float32 or uint8 below feature level 3", lambda node: node.type(0) in ("FLOAT32", "UINT8"), below=3)
_TENSOR_OUT = Condition("an output that is not a scalar", lambda node: node.output().shape, lambda node: "a scalar")
_RANK_4 = Condition(
    "inputs of rank 4 at most",
    lambda node: all(len(t.shape) <= 4 for i in (0, 1) if (t := node.input(i)) is not None),
)
_NO_DILATION = _from_level(
    3, "dilations", lambda node: all(node.operator.options.get(f"dilation_{a}_factor", 1) == 1 for a in "wh")
)
_NO_ALIGNMENT = _from_level(
    4,
    "align_corners and half_pixel_centers",
    lambda node: not node.option("align_corners") and not node.option("half_pixel_centers"),
)
_ANSWERS_INT32 = Condition(
    "an int32 output", lambda node: node.output().type.name == "INT32", lambda node: node.output().type.name
)
_AXIS = (_type(1, "INT32"), _constant(1, "axis"))
_SIZE = _constant(1, "size")

_ARITHMETIC: Conditions = (
    _activation(("INT32",)),
    _from_level(4, "int32", lambda node: node.type(0) != "INT32"),
)
_COMPARISON = Rule(2, 2, ("FLOAT32", "UINT8", "INT8", "BOOL", "INT32"))
_LOGICAL = Rule(1, 3, ("BOOL",))
_MATH = Rule(1, 3, FLOAT)
_RELU = Rule(2, 1, FLOAT_QUANT8)
_EXTREME = Rule(2, 3, NUMBERS_HALF, conditions=(_type(1, "INT32", "INT64"), _ANSWERS_INT32))

RULES: Mapping[str, Rule] = {
    "ABS": _MATH,
    "ADD": Rule(2, 1, NUMBERS, conditions=_ARITHMETIC),
    "ARG_MAX": _EXTREME,
    "ARG_MIN": _EXTREME,
    "AVERAGE_POOL_2D": Rule(
        2,
        1,
        FLOAT_QUANT8,
        conditions=(
            Condition(
                "a window of at most 256 elements for 8-bit tensors",
                lambda node: node.type(0) not in QUANT8 or node.option("filter_width") * node.option("filter_height") <= 256,
            ),
        ),
    ),
    "BATCH_TO_SPACE_ND": Rule(2, 2, conditions=(_constant(2, "crops"),)),
    "BIDIRECTIONAL_SEQUENCE_LSTM": Rule(1, 3, conditions=(_NO_HYBRID,)),
    "CAST": Rule(1, 3, NUMBERS),
    "CONCATENATION": Rule(2, 1, ("FLOAT16", *FLOAT_QUANT8), conditions=(_activation((*NUMBERS_HALF,)), _RANK_4)),
    "CONV_2D": Rule(
        3,
        conditions=(
            _NO_OLD_HYBRID,
            _OLD_TYPES,
            _RESTRICTED_SCALES,
            Condition("a bias", lambda node: node.input(2) is not None, lambda node: "none"),
            _NO_DILATION,
        ),
    ),
    "DEPTHWISE_CONV_2D": Rule(3, conditions=(_OLD_TYPES, _RESTRICTED_SCALES, _NO_DILATION)),
    "DEPTH_TO_SPACE": Rule(99, 1, FLOAT_QUANT8),
    "DEQUANTIZE": Rule(2, 1, QUANT8),
    "DIV": Rule(1, 2, FLOAT),
    "ELU": Rule(1, 4, FLOAT),
    "EMBEDDING_LOOKUP": Rule(1, conditions=(_type(1, "FLOAT32"),)),
    "EQUAL": _COMPARISON,
    "EXP": _MATH,
    "EXPAND_DIMS": Rule(1, 3, NUMBERS_HALF, conditions=_AXIS),
    "FILL": Rule(
        1, 4, ("INT32", "INT64"), conditions=(_constant(0, "dimensions"), _TENSOR_OUT, _type(1, "FLOAT32", "INT32", "INT64"))
    ),
    "FLOOR": Rule(1),
    "FULLY_CONNECTED": Rule(
        5,
        conditions=(
            _NO_OLD_HYBRID,
            _OLD_TYPES,
            _RESTRICTED_SCALES,
            _from_level(4, "kept dimensions", lambda node: not node.option("keep_num_dims")),
        ),
    ),
    "GATHER": Rule(2, 3, NUMBERS_HALF, conditions=(_type(1, "INT32"),)),
    "GREATER": _COMPARISON,
    "GREATER_EQUAL": _COMPARISON,
    "HARD_SWISH": Rule(99, 1, FLOAT_QUANT8),
    "HASHTABLE_LOOKUP": Rule(1, conditions=(Condition("a float32 output", lambda node: node.output().type.name == "FLOAT32"),)),
    "L2_NORMALIZATION": Rule(2, conditions=(_activation((*NUMBERS_HALF,)),)),
    "L2_POOL_2D": Rule(
        1,
        1,
        FLOAT,
        conditions=(_from_level(3, "a fused activation", lambda node: node.option("fused_activation_function") == 0),),
    ),
    "LEAKY_RELU": Rule(1, 3, FLOAT_QUANT8),
    "LESS": _COMPARISON,
    "LESS_EQUAL": _COMPARISON,
    "LOCAL_RESPONSE_NORMALIZATION": Rule(1),
    "LOG": _MATH,
    "LOGICAL_AND": _LOGICAL,
    "LOGICAL_NOT": _LOGICAL,
    "LOGICAL_OR": _LOGICAL,
    "LOGISTIC": _RELU,
    "LOG_SOFTMAX": Rule(1, 3, FLOAT),
    "LSTM": Rule(3, 2, conditions=(_NO_OLD_HYBRID,)),
    "MAXIMUM": Rule(3, 3, NUMBERS),
    "MAX_POOL_2D": Rule(2, 1, FLOAT_QUANT8),
    "MEAN": Rule(
        2,
        2,
        FLOAT_QUANT8,
        conditions=(
            _TENSOR_OUT,
            Condition("one scale and zero point for input and output", _same_parameters),
            Condition("float32 below feature level 3", lambda node: node.type(0) == "FLOAT32", below=3),
        ),
    ),
    "MINIMUM": Rule(3, 3, NUMBERS),
    "MUL": Rule(2, 1, NUMBERS, conditions=_ARITHMETIC),
    "NEG": Rule(2, 2, FLOAT_INT32),
    "NOT_EQUAL": _COMPARISON,
    "PACK": Rule(2, 4, ("INT32", "FLOAT32", "INT8")),
    "PAD": Rule(
        2,
        2,
        FLOAT_QUANT8,
        conditions=(Condition("float32 below feature level 3", lambda node: node.type(0) == "FLOAT32", below=3),),
    ),
    "PADV2": Rule(2, 3, FLOAT_QUANT8),
    "POW": _MATH,
    "PRELU": Rule(1, 3, FLOAT_QUANT8),
    "QUANTIZE": Rule(
        2,
        3,
        FLOAT_QUANT8,
        conditions=(Condition("a uint8 output below feature level 4", lambda node: node.output().type.name == "UINT8", below=4),),
    ),
    "REDUCE_ANY": Rule(2, 3, conditions=(_TENSOR_OUT,)),
    "REDUCE_MAX": Rule(2, 3, FLOAT_QUANT8),
    "REDUCE_MIN": Rule(2, 3, FLOAT_QUANT8),
    "REDUCE_PROD": Rule(1, 3, FLOAT, conditions=(_TENSOR_OUT,)),
    "RELU": _RELU,
    "RELU6": _RELU,
    "RELU_N1_TO_1": _RELU,
    "RESHAPE": Rule(
        1,
        1,
        FLOAT_QUANT8,
        conditions=(
            Condition("a constant shape", lambda node: node.input(1) is None or node.constant(1), lambda node: "computed"),
        ),
    ),
    "RESIZE_BILINEAR": Rule(3, conditions=(_SIZE, _NO_ALIGNMENT)),
    "RESIZE_NEAREST_NEIGHBOR": Rule(3, 3, FLOAT_QUANT8, conditions=(_SIZE, _NO_ALIGNMENT)),
    "RNN": Rule(1, conditions=(_type(1, "FLOAT32"),)),
    "RSQRT": _MATH,
    "SELECT": Rule(
        2,
        2,
        NUMBERS,
        1,
        conditions=(
            Condition(
                "a condition of the tensors' shape",
                lambda node: (a := node.input(0)) is not None and (b := node.input(1)) is not None and a.shape == b.shape,
            ),
        ),
    ),
    "SIN": _MATH,
    "SLICE": Rule(2, 3, NUMBERS, conditions=(_type(1, "INT32"), _type(2, "INT32"))),
    "SOFTMAX": Rule(2, 1, FLOAT_QUANT8, conditions=(_RANK_4,)),
    "SPACE_TO_BATCH_ND": Rule(2, 2),
    "SPACE_TO_DEPTH": Rule(2, 1, FLOAT_QUANT8),
    "SPLIT": Rule(3, 3, NUMBERS, 1, conditions=(_type(0, "INT32"), _constant(0, "axis"))),
    "SPLIT_V": Rule(2, 3, NUMBERS, conditions=(_constant(1, "sizes"), _constant(2, "axis"))),
    "SQRT": _MATH,
    "SQUARED_DIFFERENCE": Rule(2, 2, NUMBERS, conditions=(_RANK_4,)),
    "SQUEEZE": Rule(1, 2),
    "STRIDED_SLICE": Rule(2, 2),
    "SUB": Rule(3, 2, NUMBERS, conditions=(*_ARITHMETIC, _RANK_4)),
    "SUM": Rule(1, 3, FLOAT, conditions=(_TENSOR_OUT,)),
    "SVDF": Rule(1, 2, conditions=(_type(1, "FLOAT32"),)),
    "TANH": Rule(2, 1, FLOAT_QUANT8, conditions=(_from_level(3, "8-bit tensors", lambda node: node.type(0) == "FLOAT32"),)),
    "TILE": Rule(1, 3, NUMBERS, conditions=(_type(1, "INT32"),)),
    "TOPK_V2": Rule(2, 3, NUMBERS, conditions=(_type(1, "INT32"), _constant(1, "k"))),
    "TRANSPOSE": Rule(2, 2, conditions=(_constant(1, "permutation"),)),
    "TRANSPOSE_CONV": Rule(3, 3, conditions=(_constant(0, "output shape"), _constant(1, "filter"))),
    "UNIDIRECTIONAL_SEQUENCE_LSTM": Rule(2, 3, conditions=(_NO_HYBRID,)),
    "UNIDIRECTIONAL_SEQUENCE_RNN": Rule(1, 3, conditions=(_NO_HYBRID,)),
}
"""Operator → when the delegate takes it."""


def refusal(operator: Operator, values: Values, level: int) -> Reason | None:
    """Why the delegate leaves an operator to TFLite; None if it takes it."""
    rule = None if operator.custom else RULES.get(operator.name)
    if rule is None:
        return Reason("an operator that Android's delegate maps", operator.name, operator.label)
    node = Node(operator, values, level)
    if operator.version > rule.version:
        return Reason(f"operator version {rule.version} at most", str(operator.version), operator.label)
    if level < rule.level:
        return Reason(f"feature level {rule.level}", str(level), operator.label)
    if rule.types is not None and node.type(rule.of) not in rule.types:
        return Reason(f"an input {rule.of} of {' or '.join(rule.types)}", node.type(rule.of), operator.label)
    for condition in rule.conditions:
        if level < condition.below and not condition.holds(node):
            return Reason(condition.rule, str(condition.found(node)), operator.label)
    return None
