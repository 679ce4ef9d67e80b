"""The host extension ``org.tensorflow.lite``: TFLite's operators and element types that NNAPI does not have."""

from __future__ import annotations

from nnbridge.extensions import OPTIONS_TYPE, ExtensionOperandType, HostExtension, HostOperation
from nnbridge_tflite.declaration import NO_KERNEL, REGISTRY
from nnbridge_tflite.host.running import preparation
from nnbridge_tflite.read.graph import ELEMENT_TYPES, EXTENSION
from nnbridge_tflite.read.schema import builtin_names


def _operation(code: int, name: str) -> HostOperation:
    declared = REGISTRY.get(name)
    if declared is None:
        return HostOperation(name, reason=NO_KERNEL)
    prepare = preparation(declared, code)
    refused = "" if prepare is not None or declared.control else declared.refusal
    count = None if declared.work is None else declared.work.of([one.name for one in declared.inputs])
    return HostOperation(name, None, refused, declared.control, prepare, None if count is None else lambda options: count)


# Strings and handles have no element size; their constants are bytes.
_TYPES = tuple(
    ExtensionOperandType(
        element.code,
        True,
        max(element.bits // 8, 1),
        element.name,
        None if element.dtype is None else element.dtype.str.lstrip("<|"),
    )
    for element in ELEMENT_TYPES.values()
)

HOST = HostExtension(EXTENSION, (*_TYPES, OPTIONS_TYPE), {code: _operation(code, name) for code, name in builtin_names().items()})
