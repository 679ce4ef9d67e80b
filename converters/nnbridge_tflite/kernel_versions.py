"""Versions of operators that older releases of TFLite have kernels for.

Each release was asked whether it finds a kernel for each builtin operator in versions 1 to 14: the wheels of tensorflow-cpu
2.3.4, 2.4.4, 2.5.3, 2.6.5 and 2.15.1, and of tflite-runtime 2.7.0 to 2.14.0. ``scripts/comparisons/compare_kernels.py`` asks.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from nnbridge.releases import NEWEST, within

LAST_VERSIONS: tuple[tuple[str, Mapping[str, int]], ...] = (
    ("UNSORTED_SEGMENT_MIN", {"2.10": 0}),
    ("SIGN", {"2.10": 0, "2.11": 1}),
    ("SELECT", {"2.11": 2, "2.13": 3}),
    ("TRANSPOSE_CONV", {"2.11": 3, "2.14": 4}),
    ("BITCAST BITWISE_XOR RIGHT_SHIFT", {"2.12": 0}),
    ("EXP FLOOR_MOD", {"2.12": 1}),
    ("FLOOR_DIV GREATER_EQUAL LESS MIRROR_PAD TOPK_V2", {"2.12": 2}),
    ("BATCH_TO_SPACE_ND SPACE_TO_BATCH_ND", {"2.12": 3}),
    ("EQUAL", {"2.12": 3, "2.15": 4}),
    ("RANGE SELECT_V2", {"2.13": 1}),
    ("CONCATENATION PACK", {"2.13": 3, "2.15": 4}),
    ("DILATE REDUCE_WINDOW STABLEHLO_RNG_BIT_GENERATOR STABLEHLO_SCATTER", {"2.14": 0}),
    ("LOG", {"2.14": 1}),
    (
        "STABLEHLO_ADD STABLEHLO_AND STABLEHLO_COMPOSITE STABLEHLO_GATHER STABLEHLO_MAXIMUM STABLEHLO_MINIMUM "
        "STABLEHLO_MULTIPLY STABLEHLO_PAD STABLEHLO_REDUCE_WINDOW STABLEHLO_SHIFT_LEFT",
        {"2.15": 0},
    ),
    ("COS SIN SQRT", {"2.15": 1}),
    ("SPLIT_V", {"2.15": 2}),
    ("EMBEDDING_LOOKUP NOT_EQUAL SOFTMAX", {"2.15": 3}),
    ("SPLIT UNPACK", {"2.15": 4}),
    ("CUMSUM", {"2.3": 0}),
    ("ABS", {"2.3": 1, "2.4": 2, "2.5": 3, "2.11": 4}),
    ("BIDIRECTIONAL_SEQUENCE_RNN MEAN RNN UNIDIRECTIONAL_SEQUENCE_RNN", {"2.3": 2}),
    ("UNIDIRECTIONAL_SEQUENCE_LSTM", {"2.3": 2, "2.11": 3}),
    ("BATCH_MATMUL", {"2.3": 2, "2.4": 3}),
    ("ADD", {"2.3": 2, "2.4": 4, "2.5": 3, "2.12": 4, "2.15": 5}),
    ("PAD PADV2", {"2.3": 2, "2.5": 3, "2.15": 4}),
    ("LSTM RESIZE_NEAREST_NEIGHBOR SUB SVDF", {"2.3": 3}),
    ("GATHER", {"2.3": 3, "2.4": 4, "2.12": 5, "2.14": 6, "2.15": 7}),
    ("SLICE", {"2.3": 3, "2.4": 4, "2.13": 5, "2.15": 6}),
    ("TRANSPOSE", {"2.3": 4, "2.11": 5, "2.15": 6}),
    ("CONV_2D", {"2.3": 4, "2.8": 5, "2.11": 6, "2.14": 7}),
    ("DEPTHWISE_CONV_2D", {"2.3": 5, "2.12": 6}),
    ("FULLY_CONNECTED", {"2.3": 8, "2.12": 9, "2.14": 10, "2.15": 11}),
    ("CALL_ONCE COMPLEX_ABS CONV_3D HASHTABLE HASHTABLE_FIND HASHTABLE_IMPORT HASHTABLE_SIZE IMAG REAL RFFT2D", {"2.4": 0}),
    ("BROADCAST_TO", {"2.4": 0, "2.15": 3}),
    ("DEPTH_TO_SPACE SQUARED_DIFFERENCE SQUEEZE", {"2.4": 1}),
    ("RSQRT", {"2.4": 1, "2.14": 2}),
    ("REDUCE_MAX REDUCE_MIN RELU RELU6", {"2.4": 2}),
    ("FILL", {"2.4": 2, "2.11": 3, "2.15": 4}),
    ("GATHER_ND", {"2.4": 2, "2.12": 3, "2.15": 4}),
    ("REVERSE_V2", {"2.4": 2, "2.15": 3}),
    ("RESIZE_BILINEAR", {"2.4": 3}),
    ("STRIDED_SLICE", {"2.4": 4, "2.5": 5, "2.13": 6}),
    ("ASSIGN_VARIABLE CONV_3D_TRANSPOSE READ_VARIABLE REDUCE_ALL VAR_HANDLE", {"2.5": 0}),
    ("MUL", {"2.5": 4, "2.10": 5, "2.12": 6, "2.15": 7}),
    ("BROADCAST_ARGS RANDOM_STANDARD_NORMAL", {"2.6": 0}),
    ("REDUCE_PROD", {"2.6": 1}),
    ("CAST", {"2.6": 1, "2.7": 2, "2.8": 3, "2.12": 4, "2.14": 5, "2.15": 6}),
    ("QUANTIZE", {"2.6": 2, "2.15": 3}),
    ("DEQUANTIZE", {"2.6": 4, "2.15": 5}),
    ("BUCKETIZE MULTINOMIAL RANDOM_UNIFORM", {"2.7": 0}),
    ("GELU", {"2.7": 0, "2.8": 1, "2.15": 2}),
    ("WHERE", {"2.7": 1}),
    ("TILE", {"2.7": 2}),
    ("DYNAMIC_UPDATE_SLICE", {"2.8": 0, "2.15": 1}),
    ("ARG_MAX ARG_MIN", {"2.8": 2}),
    ("ATAN2 RELU_0_TO_1 UNSORTED_SEGMENT_MAX UNSORTED_SEGMENT_PROD UNSORTED_SEGMENT_SUM", {"2.9": 0}),
)
"""Operators → up to a release, the last version that it has a kernel for, 0 for none; the declarations have those of the newest.
All begin with version 1, as in the newest release."""


@cache
def _of_older() -> Mapping[str, Mapping[str, int]]:
    return {name: last for names, last in LAST_VERSIONS for name in names.split()}


def versions_of(operator: str, newest: tuple[int, int] | None, release: str) -> tuple[int, int] | None:
    """The first and the last version of an operator that a release has a kernel for; None if it has none."""
    older = _of_older().get(operator, {}) if release != NEWEST else {}
    last = next((last for until, last in older.items() if within(release, "", until)), None)
    return newest if last is None or newest is None else (newest[0], last) if last else None
