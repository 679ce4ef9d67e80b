"""Outputs beside a reference's: samples, tolerances, verdicts.

Names are loaded when they are used: the process of a reference imports its own module of this package only.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

# What is imported here is the package's interface.
# mypy: implicit-reexport
# ruff: noqa: F401
if TYPE_CHECKING:
    from nnbridge.compare.arrays import Array, load_array, load_arrays, save_arrays
    from nnbridge.compare.comparison import (
        Comparison,
        OutputComparison,
        add_sample,
        compare,
        fallbacks_of,
        new_comparisons,
    )
    from nnbridge.compare.metrics import Metrics
    from nnbridge.compare.samples import (
        Reference,
        Sample,
        as_samples,
        in_model,
        input_samples,
        named_inputs,
        named_outputs,
        open_dimensions,
        random_array,
        seeded_inputs,
        seeded_samples,
        sign_flipped,
        stating_open_dimensions,
        stored_samples,
        unpacked,
    )
    from nnbridge.compare.tolerance import (
        DEFAULT_TOLERANCE,
        RELATIVE_TOLERANCE,
        SINGLE_OPERATION,
        Acceptance,
        Tolerance,
        Tolerances,
        read_tolerances,
    )

_NAMES = {
    "arrays": ("Array", "load_array", "load_arrays", "save_arrays"),
    "comparison": ("Comparison", "OutputComparison", "add_sample", "compare", "fallbacks_of", "new_comparisons"),
    "metrics": ("Metrics",),
    "samples": (
        "Reference",
        "Sample",
        "as_samples",
        "in_model",
        "input_samples",
        "named_inputs",
        "named_outputs",
        "open_dimensions",
        "random_array",
        "seeded_inputs",
        "seeded_samples",
        "sign_flipped",
        "stating_open_dimensions",
        "stored_samples",
        "unpacked",
    ),
    "tolerance": (
        "Acceptance",
        "DEFAULT_TOLERANCE",
        "RELATIVE_TOLERANCE",
        "SINGLE_OPERATION",
        "Tolerance",
        "Tolerances",
        "read_tolerances",
    ),
}
_WHERE = {name: f"{__name__}.{module}" for module, names in _NAMES.items() for name in names}
__all__ = sorted(_WHERE)


def __getattr__(name: str) -> Any:
    """A name of the interface, loaded once."""
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(_WHERE[name]), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_WHERE})
