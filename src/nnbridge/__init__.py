"""nnbridge: Android's Neural Networks API on a workstation.

A file becomes a :class:`~nnbridge.model.Model`, a compilation asks the devices and makes an execution plan, an
execution runs it. ``import nnbridge`` imports NumPy and nothing heavier; names are loaded when they are used.
"""

from __future__ import annotations

from nnbridge import trust

trust.clean_path_of_program()  # before anything else is imported

from importlib import import_module  # noqa: E402
from typing import Any  # noqa: E402

__version__ = "0.1.0"

_WHERE = {
    "ModelBuilder": "nnbridge.builder",
    "Model": "nnbridge.model",
    "Operand": "nnbridge.model",
    "Operation": "nnbridge.model",
    "OperandCode": "nnbridge.types",
    "OperationCode": "nnbridge.types",
    "ResultCode": "nnbridge.types",
    "PreferenceCode": "nnbridge.types",
    "PriorityCode": "nnbridge.types",
    "FeatureLevel": "nnbridge.types",
    "NnbridgeError": "nnbridge.errors",
    "NnapiError": "nnbridge.errors",
    "ConversionError": "nnbridge.errors",
    "InputError": "nnbridge.errors",
    "Reason": "nnbridge.errors",
    "Compilation": "nnbridge.runtime.compilation",
    "Execution": "nnbridge.runtime.execution",
    "load": "nnbridge.loading",
    "devices": "nnbridge.devices",
    "compare": "nnbridge.compare",
}

__all__ = [*sorted(_WHERE), "__version__"]


def __getattr__(name: str) -> Any:
    where = _WHERE.get(name)
    if where is None:
        raise AttributeError(f"module 'nnbridge' has no attribute {name!r}")
    module = import_module(where)
    return module if where.endswith(f".{name}") else getattr(module, name)
