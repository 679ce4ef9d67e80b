"""NNAPI's enumerations and the facts of each operand type.

Names and codes are those of ``NeuralNetworks.h`` and ``NeuralNetworksTypes.h`` (Android 13) without the
``ANEURALNETWORKS_`` prefix. Nothing here computes: the rest of nnbridge reads these tables.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Final

import numpy as np

from nnbridge.records import dataclass


class OperandCode(IntEnum):
    """Operand types (``OperandCode``, ``OEM_*``). Codes of 65536 and above belong to extensions."""

    FLOAT32 = 0
    INT32 = 1
    UINT32 = 2
    TENSOR_FLOAT32 = 3
    TENSOR_INT32 = 4
    TENSOR_QUANT8_ASYMM = 5
    BOOL = 6
    TENSOR_QUANT16_SYMM = 7
    TENSOR_FLOAT16 = 8
    TENSOR_BOOL8 = 9
    FLOAT16 = 10
    TENSOR_QUANT8_SYMM_PER_CHANNEL = 11
    TENSOR_QUANT16_ASYMM = 12
    TENSOR_QUANT8_SYMM = 13
    TENSOR_QUANT8_ASYMM_SIGNED = 14
    MODEL = 15
    OEM_SCALAR = 10000
    TENSOR_OEM_BYTE = 10001


class OperationCode(IntEnum):
    """Operations (``OperationCode``, the OEM operation and the experimental DENSIFY)."""

    ADD = 0
    AVERAGE_POOL_2D = 1
    CONCATENATION = 2
    CONV_2D = 3
    DEPTHWISE_CONV_2D = 4
    DEPTH_TO_SPACE = 5
    DEQUANTIZE = 6
    EMBEDDING_LOOKUP = 7
    FLOOR = 8
    FULLY_CONNECTED = 9
    HASHTABLE_LOOKUP = 10
    L2_NORMALIZATION = 11
    L2_POOL_2D = 12
    LOCAL_RESPONSE_NORMALIZATION = 13
    LOGISTIC = 14
    LSH_PROJECTION = 15
    LSTM = 16
    MAX_POOL_2D = 17
    MUL = 18
    RELU = 19
    RELU1 = 20
    RELU6 = 21
    RESHAPE = 22
    RESIZE_BILINEAR = 23
    RNN = 24
    SOFTMAX = 25
    SPACE_TO_DEPTH = 26
    SVDF = 27
    TANH = 28
    BATCH_TO_SPACE_ND = 29
    DIV = 30
    MEAN = 31
    PAD = 32
    SPACE_TO_BATCH_ND = 33
    SQUEEZE = 34
    STRIDED_SLICE = 35
    SUB = 36
    TRANSPOSE = 37
    ABS = 38
    ARGMAX = 39
    ARGMIN = 40
    AXIS_ALIGNED_BBOX_TRANSFORM = 41
    BIDIRECTIONAL_SEQUENCE_LSTM = 42
    BIDIRECTIONAL_SEQUENCE_RNN = 43
    BOX_WITH_NMS_LIMIT = 44
    CAST = 45
    CHANNEL_SHUFFLE = 46
    DETECTION_POSTPROCESSING = 47
    EQUAL = 48
    EXP = 49
    EXPAND_DIMS = 50
    GATHER = 51
    GENERATE_PROPOSALS = 52
    GREATER = 53
    GREATER_EQUAL = 54
    GROUPED_CONV_2D = 55
    HEATMAP_MAX_KEYPOINT = 56
    INSTANCE_NORMALIZATION = 57
    LESS = 58
    LESS_EQUAL = 59
    LOG = 60
    LOGICAL_AND = 61
    LOGICAL_NOT = 62
    LOGICAL_OR = 63
    LOG_SOFTMAX = 64
    MAXIMUM = 65
    MINIMUM = 66
    NEG = 67
    NOT_EQUAL = 68
    PAD_V2 = 69
    POW = 70
    PRELU = 71
    QUANTIZE = 72
    QUANTIZED_16BIT_LSTM = 73
    RANDOM_MULTINOMIAL = 74
    REDUCE_ALL = 75
    REDUCE_ANY = 76
    REDUCE_MAX = 77
    REDUCE_MIN = 78
    REDUCE_PROD = 79
    REDUCE_SUM = 80
    ROI_ALIGN = 81
    ROI_POOLING = 82
    RSQRT = 83
    SELECT = 84
    SIN = 85
    SLICE = 86
    SPLIT = 87
    SQRT = 88
    TILE = 89
    TOPK_V2 = 90
    TRANSPOSE_CONV_2D = 91
    UNIDIRECTIONAL_SEQUENCE_LSTM = 92
    UNIDIRECTIONAL_SEQUENCE_RNN = 93
    RESIZE_NEAREST_NEIGHBOR = 94
    QUANTIZED_LSTM = 95
    IF = 96
    WHILE = 97
    ELU = 98
    HARD_SWISH = 99
    FILL = 100
    RANK = 101
    BATCH_MATMUL = 102
    PACK = 103
    MIRROR_PAD = 104
    REVERSE = 105
    OEM_OPERATION = 10000
    DENSIFY = 20000


CONTROL_FLOW: Final = (OperationCode.IF, OperationCode.WHILE)
"""Operations that refer to subgraphs."""


class ResultCode(IntEnum):
    """The result of every call of the NDK (``ResultCode``)."""

    NO_ERROR = 0
    OUT_OF_MEMORY = 1
    INCOMPLETE = 2
    UNEXPECTED_NULL = 3
    BAD_DATA = 4
    OP_FAILED = 5
    BAD_STATE = 6
    UNMAPPABLE = 7
    OUTPUT_INSUFFICIENT_SIZE = 8
    UNAVAILABLE_DEVICE = 9
    MISSED_DEADLINE_TRANSIENT = 10
    MISSED_DEADLINE_PERSISTENT = 11
    RESOURCE_EXHAUSTED_TRANSIENT = 12
    RESOURCE_EXHAUSTED_PERSISTENT = 13
    DEAD_OBJECT = 14


class PreferenceCode(IntEnum):
    """Execution preferences (``PreferenceCode``)."""

    LOW_POWER = 0
    FAST_SINGLE_ANSWER = 1
    SUSTAINED_SPEED = 2


class PriorityCode(IntEnum):
    """Compilation priorities (``PriorityCode``, feature level 4)."""

    LOW = 90
    MEDIUM = 100
    HIGH = 110


class FuseCode(IntEnum):
    """Fused activations (``FuseCode``)."""

    NONE = 0
    RELU = 1
    RELU1 = 2
    RELU6 = 3


class PaddingCode(IntEnum):
    """Implicit padding schemes (``PaddingCode``)."""

    SAME = 1
    VALID = 2


class DeviceTypeCode(IntEnum):
    """Kinds of devices (``DeviceTypeCode``, feature level 3)."""

    UNKNOWN = 0
    OTHER = 1
    CPU = 2
    GPU = 3
    ACCELERATOR = 4


class DurationCode(IntEnum):
    """The span that a measured duration covers (``DurationCode``)."""

    ON_HARDWARE = 0
    IN_DRIVER = 1
    FENCED_ON_HARDWARE = 2
    FENCED_IN_DRIVER = 3


class FeatureLevel(IntEnum):
    """Feature levels 1 to 8. The constants of ``FeatureLevelCode`` are :attr:`constant`."""

    LEVEL_1 = 1
    LEVEL_2 = 2
    LEVEL_3 = 3
    LEVEL_4 = 4
    LEVEL_5 = 5
    LEVEL_6 = 6
    LEVEL_7 = 7
    LEVEL_8 = 8
    EXPERIMENTAL = 9

    @property
    def constant(self) -> int:
        """Android's public number: the API level up to level 5, then 1000000 + level."""
        if self is FeatureLevel.EXPERIMENTAL:
            return 0x7FFFFFFF
        return 26 + self if self <= 5 else 1_000_000 + self


RUNTIME_FEATURE_LEVEL: Final = FeatureLevel.LEVEL_8
"""The feature level of the runtime that is emulated: Android 13's."""

ANDROID_LEVELS: Final[Mapping[str, FeatureLevel]] = {
    "8.1": FeatureLevel.LEVEL_1,
    "9": FeatureLevel.LEVEL_2,
    "10": FeatureLevel.LEVEL_3,
    "11": FeatureLevel.LEVEL_4,
    "12": FeatureLevel.LEVEL_5,
    "13": FeatureLevel.LEVEL_8,
    "14": FeatureLevel.LEVEL_8,
    "15": FeatureLevel.LEVEL_8,
    "16": FeatureLevel.LEVEL_8,
}
"""Android's versions and the feature level of their NNAPI runtime. Levels 6 and 7 are updates of Android 12's.

From Android 12 on the runtime is an updatable module (``com.android.neuralnetworks``), and NNAPI is deprecated since Android 15:
``NeuralNetworksTypes.h`` of AOSP's main branch has no level above 8, so that 16 is what 15 is.
"""


def android_name(level: int) -> str:
    """The first Android version whose runtime has a feature level; levels 6 and 7 have none."""
    return next((f"Android {version}" for version, known in ANDROID_LEVELS.items() if known == level), f"feature level {level}")


MAX_SIZE_OF_IMMEDIATELY_COPIED_VALUES: Final = 128
"""``setOperandValue`` copies values up to this many bytes at once; larger ones are read at finish."""

DEFAULT_LOOP_TIMEOUT_NS: Final = 2_000_000_000
MAX_LOOP_TIMEOUT_NS: Final = 15_000_000_000
BYTE_SIZE_OF_CACHE_TOKEN: Final = 32
POOL_ALIGNMENT: Final = 64
"""Bytes; where large constants start in the pools that nnbridge lays out."""


class Lifetime(IntEnum):
    """The source of an operand's value (``Operand::LifeTime``)."""

    TEMPORARY_VARIABLE = 0
    SUBGRAPH_INPUT = 1
    SUBGRAPH_OUTPUT = 2
    CONSTANT_COPY = 3
    CONSTANT_REFERENCE = 4
    NO_VALUE = 5
    SUBGRAPH = 6


WRITTEN: Final = (Lifetime.TEMPORARY_VARIABLE, Lifetime.SUBGRAPH_OUTPUT)
"""Lifetimes of operands that an operation writes."""


@dataclass(frozen=True, slots=True)
class TypeFacts:
    """NNAPI's facts about one operand type."""

    dtype: np.dtype[np.generic] | None
    """Element type; ``None`` for MODEL and the OEM scalar, which have no fixed size."""
    tensor: bool
    since: FeatureLevel
    scale: str = "zero"
    """``zero`` must be 0, ``optional`` at least 0, ``positive`` more than 0, ``unchecked``."""
    zero_points: tuple[int, int] = (0, 0)
    """Smallest and largest zero point."""
    size: int = 0
    """Bytes of one element."""


def _facts(dtype: str | None, tensor: bool, since: int, scale: str = "zero", zero_points: tuple[int, int] = (0, 0)) -> TypeFacts:
    element = None if dtype is None else np.dtype(dtype)
    return TypeFacts(element, tensor, FeatureLevel(since), scale, zero_points, 0 if element is None else element.itemsize)


TYPE_FACTS: Final[dict[int, TypeFacts]] = {
    OperandCode.FLOAT32: _facts("f4", False, 1),
    OperandCode.INT32: _facts("i4", False, 1),
    OperandCode.UINT32: _facts("u4", False, 1),
    OperandCode.TENSOR_FLOAT32: _facts("f4", True, 1),
    OperandCode.TENSOR_INT32: _facts("i4", True, 1, "optional"),
    OperandCode.TENSOR_QUANT8_ASYMM: _facts("u1", True, 1, "positive", (0, 255)),
    # Booleans are bytes on NNAPI's borders: any non-zero byte is true, so they stay uint8 inside.
    OperandCode.BOOL: _facts("u1", False, 3),
    OperandCode.TENSOR_QUANT16_SYMM: _facts("i2", True, 3, "positive"),
    OperandCode.TENSOR_FLOAT16: _facts("f2", True, 3),
    OperandCode.TENSOR_BOOL8: _facts("u1", True, 3),
    OperandCode.FLOAT16: _facts("f2", False, 3),
    OperandCode.TENSOR_QUANT8_SYMM_PER_CHANNEL: _facts("i1", True, 3),
    OperandCode.TENSOR_QUANT16_ASYMM: _facts("u2", True, 3, "positive", (0, 65535)),
    OperandCode.TENSOR_QUANT8_SYMM: _facts("i1", True, 3, "positive"),
    OperandCode.TENSOR_QUANT8_ASYMM_SIGNED: _facts("i1", True, 4, "positive", (-128, 127)),
    OperandCode.MODEL: _facts(None, False, 4),
    OperandCode.OEM_SCALAR: _facts(None, False, 1, "unchecked"),
    OperandCode.TENSOR_OEM_BYTE: _facts("u1", True, 1, "unchecked"),
}

FLOATS: Final = (OperandCode.TENSOR_FLOAT32, OperandCode.TENSOR_FLOAT16)
"""Tensors of floating-point numbers."""
QUANT8: Final = (OperandCode.TENSOR_QUANT8_ASYMM, OperandCode.TENSOR_QUANT8_ASYMM_SIGNED)
"""Tensors of bytes with scale and zero point, unsigned and signed."""

EXTENSION_PREFIX_SHIFT: Final = 16


_OPERAND_NAMES = {int(code): code.name for code in OperandCode}
_OPERATION_NAMES = {int(code): code.name for code in OperationCode}


def is_extension(code: int) -> bool:
    """True if an operand or operation code belongs to a vendor extension (its high 16 bits are not 0)."""
    return (code >> EXTENSION_PREFIX_SHIFT) != 0


def split_extension_code(code: int) -> tuple[int, int]:
    """Prefix and number within the extension of an extension code."""
    return code >> EXTENSION_PREFIX_SHIFT, code & 0xFFFF


def type_name(code: int) -> str:
    """A readable name of an operand type, also for extension types."""
    if is_extension(code):
        prefix, number = split_extension_code(code)
        return f"EXTENSION_{prefix}_TYPE_{number}"
    return _OPERAND_NAMES.get(code) or f"UNKNOWN_TYPE_{code}"


def operation_name(code: int) -> str:
    """A readable name of an operation code, also for extension operations."""
    if is_extension(code):
        prefix, number = split_extension_code(code)
        return f"EXTENSION_{prefix}_OPERATION_{number}"
    return _OPERATION_NAMES.get(code) or f"UNKNOWN_OPERATION_{code}"
