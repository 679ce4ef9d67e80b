"""Every NNAPI operation, one module per family, one place per operation."""

from __future__ import annotations

from functools import cache
from importlib import import_module

from nnbridge.operations.declaration import REGISTRY, OperationDef
from nnbridge.types import OperationCode

FAMILIES = (
    "elementwise",
    "activations",
    "quantization",
    "convolution",
    "products",
    "pooling",
    "reshaping",
    "blocks",
    "slicing",
    "padding",
    "reductions",
    "normalization",
    "resizing",
    "selection",
    "recurrent",
    "rnn",
    "quantized_recurrent",
    "detection",
    "regions",
    "lookup",
    "control_flow",
)


@cache
def definitions() -> dict[int, OperationDef]:
    """Operation code → declaration, for every declared operation."""
    for family in FAMILIES:
        import_module(f"nnbridge.operations.{family}")
    return dict(sorted(REGISTRY.items()))


def definition(code: int) -> OperationDef | None:
    """The declaration of an operation code, or None (extension and OEM operations have none)."""
    return definitions().get(code)


__all__ = ["FAMILIES", "OperationCode", "OperationDef", "definition", "definitions"]
