"""Facts of Android's TestValidateOperations.cpp about each operation, written by hand: a valid signature and its ranks.

A row is ``operation | test | inputs -> outputs | ranks``. An operand is a type and its dimensions, or a digit for that many
dimensions of 2. Types: ``f h i q s b p`` tensors of FLOAT32, FLOAT16, INT32, QUANT8_ASYMM, QUANT8_ASYMM_SIGNED, BOOL8 and
QUANT8_SYMM_PER_CHANNEL, ``a m y`` of QUANT16_ASYMM, QUANT16_SYMM and QUANT8_SYMM; ``I F H B`` scalars. ``T`` stands for the
types that are named in the test's brackets, each a test of its own (``+`` joins those that Android tries in one test); ``S`` is
the scalar that goes with it (H with h, else F), ``U`` the bias (i with 8-bit types, else T), ``R`` regions of interest (a with
8-bit types, else T). Ranks are ``input=exact``, ``input<=most``, ``input>=least`` or ``input=least-most``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

NAMES = {"float16": "h", "float32": "f", "int32": "i", "quant8": "q", "bool": "b"}
NAMES |= dict.fromkeys(("quant8_signed", "quant8signed", "int8"), "s") | dict.fromkeys(("uint8", "quant"), "q")
NAMES |= {"quant_signed": "s"}

_LSTM = "T[5,3] " + "T[4,3] " * 4 + "T[4,4] " * 4 + "T[4] " * 7 + "T[3,4] T[3] T[5,3] T[5,4] I S S"
_LSTM_12 = _LSTM + " T[4] T[4] T[4] T[4]"
_DIRECTION = "T[4,4] " * 8 + "T[4] " * 7 + "T[4,4] T[4] "
_BIDIRECTIONAL = "T[3,5,4] " + _DIRECTION * 2 + "T[5,4] " * 4 + "T[3,5,4] " + "T[4,4] " * 8 + "I S S B B " + "T[4] " * 8
_Q16 = "q[2,4] " + "q[4,4] " * 8 + "i[4] " * 4 + "m[2,4] q[2,4]"
_QLSTM = (
    "s[2,2] " + "y[4,2] " * 4 + "y[4,4] " * 4 + "m[4] " * 3 + "i[4] " * 4 + "y[3,4] i[3] s[2,3] m[2,4] " + "m[4] " * 4 + "F " * 6
)

TABLE = f"""
ADD SUB | OP_[float16 float32 quant8 quant8_signed int32] | T4 T4 I -> T4 | 0<=4 1<=4
MUL | OP_[float16 float32 quant8 quant8_signed int32] | T4 T4 I -> T4 | 0<=4 1<=4
DIV | OP_[float16 float32 int32] | T4 T4 I -> T4 | 0<=4 1<=4
MAXIMUM MINIMUM | OP_[float16 float32 int32 quant8 quant8signed] | T4 T4 -> T4 |
ABS NEG | OP_[float16 float32 int32] | T4 -> T4 |
EXP LOG SIN SQRT | OP_[float16 float32] | T4 -> T4 |
RSQRT | OP_[float16 float32 quant8 quant8_signed] | T4 -> T4 |
FLOOR | OP_[float16 float32] | T4 -> T4 | 0<=4
LOGICAL_NOT | OP_[bool] | T4 -> T4 |
TANH RELU LOGISTIC | OP_[float16 float32 quant8 quant8_signed] | T4 -> T4 | 0<=4
RELU1 RELU6 | OP_[float16 float32 quant8 quant8_signed] | T4 -> T4 | 0<=4
HARD_SWISH | OP_[float16 float32 quant8 quant8_signed] | T4 -> T4 |
ELU | OP_[float16 float32] | T4 S -> T4 |
LOG_SOFTMAX | OP_[float16 float32] | T2 S I -> T2 |
MEAN | OP_[float16 float32 quant8 quant8_signed] | T3 i1 I -> T3 | 0<=4
SOFTMAX | OP_[float16 float32 quant8 quant8_signed] | T4 S -> T4 | 0<=4
AVERAGE_POOL_2D MAX_POOL_2D | OP_[float16 float32 quant8 quant8_signed] | T4 I I I I I I I I I -> T4 |
L2_POOL_2D | OP_[float16 float32] | T4 I I I I I I I I I -> T4 |
SPACE_TO_DEPTH DEPTH_TO_SPACE | OP_[float16 float32 quant8 quant8signed] | T4 I -> T4 |
SPACE_TO_BATCH_ND | OP_[float16 float32 quant8 quant8signed] | T4 i1 i2 -> T4 |
BATCH_TO_SPACE_ND | OP_[float16 float32 quant8 quant8signed] | T4 i1 -> T4 |
TRANSPOSE | OP_[float16 float32 quant8 quant8signed] | T4 i1 -> T4 | 0<=4
SQUEEZE | OP_[float16 float32 quant8 quant8_signed] | T4 i1 -> T4 | 0<=4
CONV_2D | OP_[float16 float32 quant8 quant8_signed] | T4 T4 U1 I I I I I I I -> T4 | 0=4 1=4
CONV_2D | OP_[quant8 quant8_signed]_per_channel | T4 p4 U1 I I I I I I I -> T4 | 0=4 1=4
DEPTHWISE_CONV_2D | OP_[float16 float32 quant8 quant8_signed] | T4 T[1,2,2,2] U1 I I I I I I I I -> T4 |
DEPTHWISE_CONV_2D | OP_[quant8 quant8_signed]_per_channel | T4 p[1,2,2,2] U1 I I I I I I I I -> T4 |
GROUPED_CONV_2D | OP_[float16 float32 quant8 quant8signed] | T4 T4 U1 I I I I I I I I B -> T4 |
GROUPED_CONV_2D | OP_[quant8 quant8signed]_per_channel | T4 p4 U1 I I I I I I I I B -> T4 |
TRANSPOSE_CONV_2D | OP_[float16 float32 quant8 quant8_signed] | T4 T4 U1 I I I I I I I B -> T4 |
TRANSPOSE_CONV_2D | OP_[quant8 quant8_signed]_per_channel | T4 p4 U1 I I I I I I I B -> T4 |
FULLY_CONNECTED | OP_[float16 float32 quant8 quant8_signed] | T[5,5] T[5,5] U[5] I -> T[5,5] | 0=2-4 1=2 2=1
CONCATENATION | OP_[float16 float32 quant8 quant8_signed] | T2 T2 I -> T2 | 0,1<=4
EMBEDDING_LOOKUP | OP_[float32 int32 quant8 quant8_signed] | i1 T2 -> T2 |
HASHTABLE_LOOKUP | OP_[float32 int32 quant8] | i1 i1 T2 -> T2 q1 |
LSH_PROJECTION | OP_[float16 float32 quant8 int32] | f[5,5] T[5,5] f[5] I -> i[5] |
LSTM | OP_[float32] | {_LSTM} -> T[5,16] T[5,3] T[5,4] T[5,3] |
LSTM | OP_V1_2[float32+float16] | {_LSTM_12} -> T[5,16] T[5,3] T[5,4] T[5,3] |
BIDIRECTIONAL_SEQUENCE_LSTM | LSTM_BIDIRECTIONAL_SEQUENCE[float32+float16] | {_BIDIRECTIONAL} -> T[3,5,4] T[3,5,4] |
RANDOM_MULTINOMIAL | OP_[float16 float32] | T2 I i1 -> i2 |
RNN | OP_[float16 float32] | T2 T2 T2 T1 T2 I -> T2 T2 |
SVDF | OP_[float32 float16] | T2 T2 T2 T1 T2 I I -> T2 T2 |
STRIDED_SLICE | OP_[float32 float16 quant8 quant8_signed] | T4 i1 i1 i1 I I I -> T4 | 0<=4
ROI_ALIGN | OP_[float16 float32 quant8 quant8signed] | T4 R[1,4] i[1] I I S S I I B -> T4 |
ROI_POOLING | OP_[float16 float32 quant8 quant8signed] | T4 R[1,4] i[1] I I S S B -> T4 |
HEATMAP_MAX_KEYPOINT | OP_[float16 float32 quant quant_signed] | T[6,4,4,1] R[6,4] B -> T[6,1] R[6,1,2] |
INSTANCE_NORMALIZATION | OP[float16+float32] | T4 S S S B -> T4 |
CHANNEL_SHUFFLE | OP_[float16 float32 quant8 quant8signed] | T4 I I -> T4 | 0<=4
DETECTION_POSTPROCESSING | OP[float16+float32] | T[2,8,5] T[2,8,4] T[8,4] S S S S B I I I S S B -> T[2,5] T[2,5,4] i[2,5] i[2] |
PRELU | OP_[float16 float32 quant8 quant8signed] | T4 T[1,1,2] -> T4 |
L2_NORMALIZATION | OP_[float16 float32 quant8 quant8_signed] | T4 -> T4 | 0<=4
LOCAL_RESPONSE_NORMALIZATION | OP_[float16 float32] | T4 I S S S -> T4 | 0<=4
AXIS_ALIGNED_BBOX_TRANSFORM | OP_[float16 float32] | T[5,4] T[5,8] i[5] T[5,2] -> T[5,8] |
AXIS_ALIGNED_BBOX_TRANSFORM | OP_[quant quant_signed] | a[5,4] T[5,8] i[5] a[5,2] -> a[5,8] |
SLICE | OP_[float32 int32 uint8 int8 float16] | T3 i1 i1 -> T3 |
LOGICAL_AND LOGICAL_OR | OP[bool] | T4 T4 -> T4 |
LESS LESS_EQUAL EQUAL NOT_EQUAL GREATER GREATER_EQUAL | OP[bool+float16+float32+int32+quant8+quant8_signed] | T4 T4 -> b4 |
REDUCE_ANY REDUCE_ALL | OP[bool] | T4 i1 B -> T4 | 0<=4
REDUCE_PROD REDUCE_SUM | OP[float16+float32] | T4 i1 B -> T4 | 0<=4
REDUCE_MAX REDUCE_MIN | OP[float16+float32+quant8+quant8_signed] | T4 i1 B -> T4 | 0<=4
POW | OP[float16+float32] | T4 T4 -> T4 |
SELECT | OP[float16+float32+int32+quant8+quant8_signed] | b4 T4 T4 -> T4 |
ARGMIN ARGMAX | OP[float16+float32+int32+quant8+quant8_signed] | T4 I -> i3 |
EXPAND_DIMS | OP[float16+float32+int32+quant8+quant8_signed] | T2 I -> T[2,2,1] |
GATHER | OP[float16+float32+int32+quant8+quant8_signed] | T4 I i1 -> T4 |
SPLIT | OP[float16+float32+int32+quant8+quant8_signed] | T[2,2] I I -> T[1,2] T[1,2] |
TILE | OP[float16+float32+int32+quant8+quant8_signed] | T2 i1 -> T2 |
TOPK_V2 | OP[float16+float32+int32+quant8+quant8_signed] | T4 I -> T4 i4 |
RESHAPE | OP[float16+float32+quant8+quant8_signed+int32] | T3 i1 -> T3 | 0<=4
PAD | OP[float16+float32+quant8+quant8_signed] | T4 i2 -> T4 | 0<=4
MIRROR_PAD | OP[float16+float32+quant8+quant8_signed+int32] | T4 i[4,2] I -> T4 |
PAD_V2 | OP[float16+float32] | T4 i2 S -> T4 | 0<=4
PAD_V2 | OP[quant8+quant8_signed] | T4 i2 I -> T4 | 0<=4
RESIZE_BILINEAR | OP[float16+float32+quant8+quant8_signed] | T4 I I -> T4 |
RESIZE_BILINEAR | OP[float16+float32+quant8+quant8_signed] | T4 S S -> T4 |
RESIZE_NEAREST_NEIGHBOR | OP[float32] OP_[float16 quant8 quant8_signed] | T4 I I B -> T4 |
RESIZE_NEAREST_NEIGHBOR | OP[float32] OP_[float16 quant8 quant8_signed] | T4 S S B -> T4 |
BOX_WITH_NMS_LIMIT | OP_[float16 float32 quant quant_signed] | T[19,3] R[19,12] i[2] S I I S S S -> T[12] R[12,4] i[12] i[2] |
GENERATE_PROPOSALS | OP_[float16 float32] | T[1,2,2,2] T[1,2,2,8] T[2,4] T[1,2] S S I I S S B -> T[4] T[4,4] i[1] |
GENERATE_PROPOSALS | OP_[quant quant_signed] | T[1,2,2,2] T[1,2,2,8] m[2,4] a[1,2] S S I I S S B -> T[4] a[4,4] i[1] |
BIDIRECTIONAL_SEQUENCE_RNN | OP_[float32 float16] | T3 T2 T2 T1 T2 T2 T2 T1 T2 T3 T2 T2 I B B -> T3 T3 |
UNIDIRECTIONAL_SEQUENCE_RNN | OP_[float32 float16] | T3 T2 T2 T1 T2 I I -> T3 |
UNIDIRECTIONAL_SEQUENCE_LSTM | OP_[float32 float16] | {_LSTM.replace("T[5,3]", "T[5,3,3]", 1)} B T[4] T[4] T[4] T[4] -> T[5,3,3] |
FILL | OP_[float16] | i1 H -> h1 |
FILL | OP_[float32] | i1 F -> f1 |
FILL | OP_[int32] | i1 I -> i1 |
RANK | OP_[float16 float32 int32 quant8 quant8_signed] | T3 -> I |
BATCH_MATMUL | OP_[float16 float32 int32 quant8_signed] | T3 T3 B B -> T3 | 0=2-4 1=2-4
PACK | OP_[float16 float32 quant8 quant8_signed int32] | I T[3,4] T[3,4] -> T[2,3,4] |
REVERSE | OP_[float16 float32 quant8 quant8_signed int32] | T4 i[1] -> T4 |
QUANTIZE | OP_float16[float16] | T4 -> q4 | 0>=1
QUANTIZE | OP_float16[float16] | T4 -> s4 | 0>=1
QUANTIZE | OP_float32[float32] | T4 -> q4 | 0>=1
QUANTIZE | OP_float32[float32] | T4 -> s4 | 0>=1
DEQUANTIZE | OP[quant8+quant8_signed] | T4 -> f4 | 0<=4
DEQUANTIZE | OP[quant8+quant8_signed] | T4 -> h4 | 0<=4
DEQUANTIZE | OP[quant8] | y4 -> f4 | 0<=4
DEQUANTIZE | OP[quant8] | p4 -> f4 | 0<=4
CAST | OP[float16+float32+int32+quant8] | T3 -> f3 |
CAST | OP[float16+float32+int32+quant8] | T3 -> h3 |
CAST | OP[float16+float32+int32+quant8] | T3 -> i3 |
CAST | OP[float16+float32+int32+quant8] | T3 -> q3 |
CAST | OP_identity[bool+quant8_signed] | T3 -> T3 |
CAST | OP_identity[float32] | a3 -> a3 |
CAST | OP_identity[float32] | m3 -> m3 |
CAST | OP_identity[float32] | y3 -> y3 |
QUANTIZED_16BIT_LSTM | OP[quant8] | {_Q16} -> m[2,4] q[2,4] |
QUANTIZED_LSTM | OP[quant8_signed] | {_QLSTM}I F -> s[2,3] m[2,4] s[2,3] |
"""


@dataclass(frozen=True)
class Signature:
    """One valid call: Android's name of the test, the operation, operands, and ranks by input."""

    test: str
    operation: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    ranks: str


def signatures() -> Iterator[Signature]:
    """Every row, for each of its operations and types."""
    for line in TABLE.strip().splitlines():
        names, tests, operands, ranks = (part.strip() for part in line.split("|"))
        inputs, outputs = (side.split() for side in operands.split("->"))
        for name in names.split():
            for test in _tests(tests):
                for label, type in _named(test.replace("OP", name)):
                    written = [tuple(_operand(o, type) for o in side) for side in (inputs, outputs)]
                    yield Signature(label, name, written[0], written[1], ranks)


def _tests(text: str) -> Iterator[str]:
    """The patterns of a row; brackets may hold spaces."""
    rest = text
    while rest:
        end = rest.index("]") + 1
        while end < len(rest) and rest[end] != " ":
            end += 1
        yield rest[:end].strip()
        rest = rest[end:].strip()


def _named(pattern: str) -> Iterator[tuple[str, str]]:
    """Test names and types of one pattern."""
    before, _, tail = pattern.partition("[")
    listed, _, after = tail.partition("]")
    for group in listed.split():
        for name in group.split("+"):
            one = "+" in group or not before.endswith("_")
            yield (before if one else before + name) + after, NAMES[name]


def _operand(text: str, type: str) -> str:
    letter, rest = text[0], text[1:]
    eight = type in "qs"
    letter = {
        "T": type,
        "S": "H" if type == "h" else "F",
        "U": "i" if eight else type,
        "R": "a" if eight else type,
    }.get(letter, letter)
    return letter + rest
