"""A C header of our own with NNAPI's names, generated from nnbridge's enumerations and the table of signatures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import IntEnum

from nnbridge import types
from nnbridge.clib.signatures import HANDLES, PREFIX, SIGNATURES

_ENUMERATIONS: Mapping[str, tuple[type[IntEnum], str]] = {
    "OperandCode": (types.OperandCode, ""),
    "OperationCode": (types.OperationCode, ""),
    "FuseCode": (types.FuseCode, "FUSED_"),
    "PaddingCode": (types.PaddingCode, "PADDING_"),
    "PreferenceCode": (types.PreferenceCode, "PREFER_"),
    "DeviceTypeCode": (types.DeviceTypeCode, "DEVICE_"),
    "ResultCode": (types.ResultCode, ""),
    "DurationCode": (types.DurationCode, "DURATION_"),
    "PriorityCode": (types.PriorityCode, "PRIORITY_"),
}
GUARD = "NNBRIDGE_NEURAL_NETWORKS_H"
_NOT_DURATIONS = "DURATION_FENCED_"

STRUCTURES = f"""\
typedef struct {PREFIX}OperandType {{
    int32_t type;
    uint32_t dimensionCount;
    const uint32_t* dimensions;
    float scale;
    int32_t zeroPoint;
}} {PREFIX}OperandType;

typedef struct {PREFIX}SymmPerChannelQuantParams {{
    uint32_t channelDim;
    uint32_t scaleCount;
    const float* scales;
}} {PREFIX}SymmPerChannelQuantParams;

typedef int32_t {PREFIX}OperationType;
"""


def opaque_types() -> str:
    """The handles."""
    return "\n".join(f"typedef struct {PREFIX}{name} {PREFIX}{name};" for name in HANDLES)


def prototypes() -> str:
    """Every function."""
    return "\n".join(f"{signature.prototype()};" for signature in SIGNATURES)


def header() -> str:
    """The whole header."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield "/* NNAPI's C interface as nnbridge has it, generated from nnbridge's own tables. */"
    yield f"#ifndef {GUARD}\n#define {GUARD}"
    yield "#include <stdbool.h>\n#include <stddef.h>\n#include <stdint.h>"
    yield '#ifdef __cplusplus\nextern "C" {\n#endif\n'
    for name, (enumeration, infix) in _ENUMERATIONS.items():
        yield f"typedef enum {{\n{_members(enumeration, infix)}\n}} {name};\n"
    levels = [level for level in types.FeatureLevel if level is not types.FeatureLevel.EXPERIMENTAL]
    yield "enum {"
    yield from (f"    ANEURALNETWORKS_FEATURE_{level.name} = {level.constant}," for level in levels)
    yield f"    ANEURALNETWORKS_MAX_SIZE_OF_IMMEDIATELY_COPIED_VALUES = {types.MAX_SIZE_OF_IMMEDIATELY_COPIED_VALUES},"
    yield "    ANEURALNETWORKS_BYTE_SIZE_OF_CACHE_TOKEN = 32,\n};\n"
    yield opaque_types()
    yield ""
    yield STRUCTURES
    yield prototypes()
    yield "#ifdef __cplusplus\n}\n#endif\n#endif"


def _members(enumeration: type[IntEnum], infix: str) -> str:
    named = ((f"{infix}{member.name}".replace(_NOT_DURATIONS, "FENCED_DURATION_"), int(member)) for member in enumeration)
    return "\n".join(f"    ANEURALNETWORKS_{name} = {value}," for name, value in named)
