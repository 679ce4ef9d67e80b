"""Every NNAPI operation, one module per family, one place per operation."""

from __future__ import annotations

import pkgutil
from functools import cache
from importlib import import_module

from nnbridge.operations.declaration import REGISTRY, OperationDef


@cache
def definitions() -> dict[int, OperationDef]:
    """Operation code → declaration, for every operation that a module of this package declares."""
    for module in pkgutil.iter_modules(__path__):
        import_module(f"{__name__}.{module.name}")
    return dict(sorted(REGISTRY.items()))


def definition(code: int) -> OperationDef | None:
    """The declaration of an operation code, or None (extension and OEM operations have none)."""
    return definitions().get(code)
