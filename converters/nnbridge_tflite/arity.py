"""How many inputs and outputs each builtin has."""

from __future__ import annotations

from collections.abc import Mapping

from nnbridge.errors import ConversionError, Reason
from nnbridge_tflite.graph import Operator

MANY = 1 << 30

_ONE_IN = """ABS CAST CEIL COMPLEX_ABS COS DENSIFY DEPTH_TO_SPACE DEQUANTIZE ELU EXP FLOOR GELU HARD_SWISH IMAG L2_NORMALIZATION
L2_POOL_2D AVERAGE_POOL_2D MAX_POOL_2D LEAKY_RELU LOCAL_RESPONSE_NORMALIZATION LOG LOGICAL_NOT LOGISTIC LOG_SOFTMAX NEG QUANTIZE
RANK REAL RELU RELU6 RELU_0_TO_1 RELU_N1_TO_1 ROUND RSQRT SHAPE SIGN SIN SOFTMAX SPACE_TO_DEPTH SQRT SQUARE SQUEEZE TANH WHERE
ZEROS_LIKE"""

_TWO_IN = """ADD ARG_MAX ARG_MIN ATAN2 BATCH_MATMUL BITWISE_XOR BROADCAST_ARGS BROADCAST_TO CUMSUM DIV EMBEDDING_LOOKUP EQUAL
EXPAND_DIMS FILL FLOOR_DIV FLOOR_MOD GATHER GATHER_ND GREATER GREATER_EQUAL LESS LESS_EQUAL LOGICAL_AND LOGICAL_OR MAXIMUM MEAN
MINIMUM MIRROR_PAD MUL NOT_EQUAL PAD POW PRELU REDUCE_ALL REDUCE_ANY REDUCE_MAX REDUCE_MIN REDUCE_PROD RESIZE_BILINEAR
RESIZE_NEAREST_NEIGHBOR REVERSE_SEQUENCE REVERSE_V2 RFFT2D RIGHT_SHIFT SEGMENT_SUM SQUARED_DIFFERENCE SUB SUM TILE TRANSPOSE"""

_THREE_IN = """BATCH_TO_SPACE_ND PADV2 RANGE SCATTER_ND SELECT SELECT_V2 SLICE SPACE_TO_BATCH_ND"""

_OTHERS: Mapping[str, tuple[int, int, int, int]] = {
    "ASSIGN_VARIABLE": (2, 2, 0, 0),
    "CALL": (0, MANY, 0, MANY),
    "CALL_ONCE": (0, 0, 0, 0),
    "HASHTABLE": (0, 0, 1, 1),
    "HASHTABLE_FIND": (3, 3, 1, 1),
    "HASHTABLE_IMPORT": (3, 3, 0, 0),
    "HASHTABLE_SIZE": (1, 1, 1, 1),
    "IF": (1, MANY, 0, MANY),
    "READ_VARIABLE": (1, 1, 1, 1),
    "STABLEHLO_COMPOSITE": (0, MANY, 0, MANY),
    "STABLEHLO_WHILE": (1, MANY, 1, MANY),
    "VAR_HANDLE": (0, 0, 1, 1),
    "WHILE": (1, MANY, 1, MANY),
    "ADD_N": (1, MANY, 1, 1),
    "BIDIRECTIONAL_SEQUENCE_LSTM": (48, 48, 1, 2),
    "BIDIRECTIONAL_SEQUENCE_RNN": (12, 12, 1, 2),
    "CONCATENATION": (1, MANY, 1, 1),
    "CONV_2D": (2, 3, 1, 1),
    "DEPTHWISE_CONV_2D": (2, 3, 1, 1),
    "DYNAMIC_UPDATE_SLICE": (3, 3, 1, 1),
    "FULLY_CONNECTED": (2, 3, 1, 2),
    "HASHTABLE_LOOKUP": (3, 3, 2, 2),
    "LSTM": (5, 24, 1, 4),
    "ONE_HOT": (4, 4, 1, 1),
    "PACK": (1, MANY, 1, 1),
    "RESHAPE": (1, 2, 1, 1),
    "RNN": (5, 5, 1, 1),
    "SPLIT": (2, 2, 1, MANY),
    "SPLIT_V": (3, 3, 1, MANY),
    "STRIDED_SLICE": (4, 4, 1, 1),
    "SVDF": (5, 5, 1, 1),
    "TOPK_V2": (2, 2, 2, 2),
    "TRANSPOSE_CONV": (3, 4, 1, 1),
    "UNIDIRECTIONAL_SEQUENCE_LSTM": (20, 24, 1, 1),
    "UNIDIRECTIONAL_SEQUENCE_RNN": (5, 5, 1, 1),
    "UNIQUE": (1, 1, 2, 2),
    "UNPACK": (1, 1, 1, MANY),
}

ARITY: Mapping[str, tuple[int, int, int, int]] = {
    **dict.fromkeys(_ONE_IN.split(), (1, 1, 1, 1)),
    **dict.fromkeys(_TWO_IN.split(), (2, 2, 1, 1)),
    **dict.fromkeys(_THREE_IN.split(), (3, 3, 1, 1)),
    **_OTHERS,
}
"""Builtin → fewest and most inputs, fewest and most outputs."""

_OPTIONAL: Mapping[str, frozenset[int]] = {
    "BIDIRECTIONAL_SEQUENCE_LSTM": frozenset(range(1, 48)),
    "BIDIRECTIONAL_SEQUENCE_RNN": frozenset(range(9, 12)),
    "CONV_2D": frozenset({2}),
    "DEPTHWISE_CONV_2D": frozenset({2}),
    "FULLY_CONNECTED": frozenset({2}),
    "LSTM": frozenset(range(1, 24)),
    "RESHAPE": frozenset({1}),
    "SVDF": frozenset({3}),
    "TRANSPOSE_CONV": frozenset({3}),
    "UNIDIRECTIONAL_SEQUENCE_LSTM": frozenset(range(1, 24)),
}
"""Inputs that may be left out."""


def check_arity(operator: Operator) -> None:
    """Refuse an operator with too few or too many operands, or without one that it needs."""
    known = None if operator.custom else ARITY.get(operator.name)
    if known is None:
        return
    for what, indexes, low, high in (("inputs", operator.inputs, *known[:2]), ("outputs", operator.outputs, *known[2:])):
        if not low <= len(indexes) <= high:
            many = "or more" if high == MANY else f"to {high}"
            wanted = f"{low} {what}" if low == high else f"{low} {many} {what}"
            raise ConversionError(Reason(wanted, str(len(indexes)), operator.label))
    optional = _OPTIONAL.get(operator.name, frozenset())
    for i, index in enumerate(operator.inputs):
        if index < 0 and i not in optional:
            raise ConversionError(Reason(f"an input {i}", "none", operator.label))
