"""When Android's TFLite delegate hands an operator to NNAPI: versions, feature levels, types and further conditions, as data.

The table states what the NNAPI delegate of TFLite checks before it takes a node. An operator that is not in it is never
handed over. What NNAPI itself does not accept is not repeated here; the declarations know it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from nnbridge.errors import Reason, listed
from nnbridge_tflite.delegate_conditions import (
    ANSWERS_INT32,
    AXIS,
    FLOAT,
    FLOAT_INT32,
    FLOAT_QUANT8,
    NO_ALIGNMENT,
    NO_DILATION,
    NO_HYBRID,
    NO_OLD_HYBRID,
    NUMBERS,
    NUMBERS_HALF,
    OLD_TYPES,
    QUANT8,
    RANK_4,
    RESTRICTED_SCALES,
    SIZE,
    TENSOR_OUT,
    Condition,
    Conditions,
    Node,
    answers,
    basic_lstm,
    constant,
    from_level,
    full_lstm,
    input_in,
    input_rank,
    lstm_weights,
    no_activation,
    projection,
    scalars_constant,
    symmetric_int8,
    type_in,
    whole_sizes,
)
from nnbridge_tflite.graph import Operator
from nnbridge_tflite.values import Values


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


_ARITHMETIC: Conditions = (
    no_activation(("INT32",)),
    from_level(4, "int32", lambda node: node.type(0) != "INT32"),
)
_COMPARISON = Rule(2, 3, ("FLOAT32", "UINT8", "INT8", "BOOL", "INT32"))
_LOGICAL = Rule(1, 3, ("BOOL",))
_MATH = Rule(1, 3, FLOAT)
_RELU = Rule(2, 1, FLOAT_QUANT8)
_EXTREME = Rule(
    2,
    3,
    NUMBERS_HALF,
    conditions=(
        type_in(1, "INT32", "INT64"),
        Condition("an int32 axis or a constant one", lambda node: node.type(1) == "INT32" or node.constant(1)),
        ANSWERS_INT32,
    ),
)
_LARGER = Rule(3, 3, NUMBERS, conditions=(Condition("scalars that are constant", scalars_constant),))

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
    "BATCH_TO_SPACE_ND": Rule(2, 2, conditions=(constant(2, "crops"),)),
    "BIDIRECTIONAL_SEQUENCE_LSTM": Rule(1, 3, conditions=(NO_HYBRID,)),
    "CAST": Rule(
        1,
        3,
        NUMBERS,
        conditions=(
            input_in("FLOAT32", "UINT8", "INT32", below=4),
            answers(*NUMBERS),
            answers("FLOAT32", "UINT8", "INT32", below=4),
        ),
    ),
    "CONCATENATION": Rule(2, 1, ("FLOAT16", *FLOAT_QUANT8), conditions=(no_activation((*NUMBERS_HALF,)), RANK_4)),
    "CONV_2D": Rule(
        5,
        conditions=(
            NO_OLD_HYBRID,
            OLD_TYPES,
            RESTRICTED_SCALES,
            Condition("a bias", lambda node: node.input(2) is not None, lambda node: "none"),
            NO_DILATION,
        ),
    ),
    "DEPTHWISE_CONV_2D": Rule(3, conditions=(OLD_TYPES, RESTRICTED_SCALES, NO_DILATION)),
    "DEPTH_TO_SPACE": Rule(99, 1, FLOAT_QUANT8),
    "DEQUANTIZE": Rule(
        2,
        1,
        (*QUANT8, "FLOAT16"),
        conditions=(
            input_in(*QUANT8, below=4),
            input_in("UINT8", below=3),
            Condition("int8 with zero point 0 below feature level 4", symmetric_int8, below=4),
        ),
    ),
    "DIV": Rule(1, 2, FLOAT),
    "ELU": Rule(1, 4, FLOAT),
    "EMBEDDING_LOOKUP": Rule(1, conditions=(type_in(1, "FLOAT32"),)),
    "EQUAL": _COMPARISON,
    "EXP": _MATH,
    "EXPAND_DIMS": Rule(1, 3, NUMBERS_HALF, conditions=AXIS),
    "FILL": Rule(
        1, 4, ("INT32", "INT64"), conditions=(constant(0, "dimensions"), TENSOR_OUT, type_in(1, "FLOAT32", "INT32", "INT64"))
    ),
    "FLOOR": Rule(1),
    "FULLY_CONNECTED": Rule(
        5,
        conditions=(
            NO_OLD_HYBRID,
            OLD_TYPES,
            RESTRICTED_SCALES,
            from_level(4, "kept dimensions", lambda node: not node.option("keep_num_dims")),
            Condition("no int16 output", lambda node: node.output().type.name != "INT16", lambda node: "INT16"),
        ),
    ),
    "GATHER": Rule(2, 3, NUMBERS_HALF, conditions=(type_in(1, "INT32"),)),
    "GREATER": _COMPARISON,
    "GREATER_EQUAL": _COMPARISON,
    "HARD_SWISH": Rule(99, 1, FLOAT_QUANT8),
    "HASHTABLE_LOOKUP": Rule(1, conditions=(Condition("a float32 output", lambda node: node.output().type.name == "FLOAT32"),)),
    "L2_NORMALIZATION": Rule(2, conditions=(no_activation((*NUMBERS_HALF,)),)),
    "L2_POOL_2D": Rule(
        1,
        1,
        FLOAT,
        conditions=(from_level(3, "a fused activation", lambda node: node.option("fused_activation_function") == 0),),
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
    "LSH_PROJECTION": Rule(
        1, conditions=(Condition("feature level 3 and no weights for sparse projections", projection, lambda node: node.level),)
    ),
    "LSTM": Rule(
        3,
        2,
        conditions=(
            NO_OLD_HYBRID,
            Condition("weights of FLOAT32, UINT8 or (feature level 4) INT8; level 3 for 24 inputs", full_lstm, lstm_weights),
            Condition("constant uint8 weights, scale 1/128 and zero point 128 for the basic kernel", basic_lstm, lstm_weights),
        ),
    ),
    "MAXIMUM": _LARGER,
    "MAX_POOL_2D": Rule(2, 1, FLOAT_QUANT8),
    "MEAN": Rule(
        2,
        2,
        FLOAT_QUANT8,
        conditions=(
            TENSOR_OUT,
            Condition("float32 below feature level 3", lambda node: node.type(0) == "FLOAT32", below=3),
        ),
    ),
    "MINIMUM": _LARGER,
    "MUL": Rule(2, 1, NUMBERS, conditions=_ARITHMETIC),
    "NEG": Rule(2, 3, FLOAT_INT32),
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
    "REDUCE_ANY": Rule(2, 3, conditions=(TENSOR_OUT,)),
    "REDUCE_MAX": Rule(2, 3, FLOAT_QUANT8),
    "REDUCE_MIN": Rule(2, 3, FLOAT_QUANT8),
    "REDUCE_PROD": Rule(1, 3, FLOAT, conditions=(TENSOR_OUT,)),
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
    "RESIZE_BILINEAR": Rule(
        3,
        1,
        FLOAT_QUANT8,
        conditions=(
            SIZE,
            NO_ALIGNMENT,
            input_rank(0, "an input of rank 4", lambda rank: rank == 4),
            input_in("FLOAT32", below=3),
            Condition(
                "a square output",
                lambda node: node.output().shape[1:2] == node.output().shape[2:3],
                lambda node: node.output(),
                below=3,
            ),
        ),
    ),
    "RESIZE_NEAREST_NEIGHBOR": Rule(3, 3, FLOAT_QUANT8, conditions=(SIZE, NO_ALIGNMENT)),
    "RNN": Rule(1, conditions=(type_in(1, "FLOAT32"),)),
    "RSQRT": _MATH,
    "SELECT": Rule(
        2,
        3,
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
    "SLICE": Rule(2, 3, NUMBERS, conditions=(type_in(1, "INT32"), type_in(2, "INT32"))),
    "SOFTMAX": Rule(
        2,
        1,
        FLOAT_QUANT8,
        conditions=(
            RANK_4,
            answers(*FLOAT_QUANT8),
            input_rank(0, "an input of rank 2 or 4", lambda rank: rank in (2, 4), below=3),
        ),
    ),
    "SPACE_TO_BATCH_ND": Rule(2, 2),
    "SPACE_TO_DEPTH": Rule(2, 1, FLOAT_QUANT8),
    "SPLIT": Rule(
        3,
        3,
        NUMBERS,
        1,
        conditions=(
            type_in(0, "INT32"),
            constant(0, "axis"),
            from_level(4, "int8", lambda node: node.type(1) != "INT8"),
        ),
    ),
    "SPLIT_V": Rule(
        2,
        3,
        NUMBERS,
        conditions=(
            constant(1, "sizes"),
            constant(2, "axis"),
            type_in(1, "INT32"),
            type_in(2, "INT32"),
            Condition("sizes above 0", whole_sizes),
        ),
    ),
    "SQRT": _MATH,
    "SQUARED_DIFFERENCE": Rule(
        2,
        2,
        NUMBERS,
        conditions=(RANK_4, input_in("FLOAT32", "UINT8", below=4), input_in("FLOAT32", below=3)),
    ),
    "SQUEEZE": Rule(
        1,
        2,
        conditions=(
            Condition(
                "dimensions to squeeze", lambda node: node.operator.options.get("squeeze_dims"), lambda node: "none", below=3
            ),
        ),
    ),
    "STRIDED_SLICE": Rule(2, 2),
    "SUB": Rule(3, 2, NUMBERS, conditions=(*_ARITHMETIC, RANK_4)),
    "SUM": Rule(1, 3, FLOAT, conditions=(TENSOR_OUT,)),
    "SVDF": Rule(1, 2, conditions=(type_in(1, "FLOAT32"),)),
    "TANH": Rule(2, 1, FLOAT_QUANT8, conditions=(from_level(3, "8-bit tensors", lambda node: node.type(0) == "FLOAT32"),)),
    "TILE": Rule(1, 3, NUMBERS, conditions=(type_in(1, "INT32"),)),
    "TOPK_V2": Rule(2, 3, NUMBERS, conditions=(type_in(1, "INT32"), constant(1, "k"))),
    "TRANSPOSE": Rule(2, 2, conditions=(constant(1, "permutation"),)),
    "TRANSPOSE_CONV": Rule(3, 3, conditions=(constant(0, "output shape"), constant(1, "filter"))),
    "UNIDIRECTIONAL_SEQUENCE_LSTM": Rule(2, 3, conditions=(NO_HYBRID,)),
    "UNIDIRECTIONAL_SEQUENCE_RNN": Rule(1, 3, conditions=(NO_HYBRID,)),
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
            return Reason(condition.rule, listed(condition.found(node)), operator.label)
    return None
