"""Which modules register lowerings, loaded on first use."""

from __future__ import annotations

from functools import cache
from importlib import import_module

from nnbridge_tflite.graph import Operator
from nnbridge_tflite.lowering import LOWERINGS, Form

MODULES = (
    "lower_elementwise",
    "lower_conv",
    "lower_pool",
    "lower_shapes",
    "lower_slices",
    "lower_convert",
    "lower_recurrent",
    "lower_custom",
)


@cache
def load() -> None:
    """Fill :data:`~nnbridge_tflite.lowering.LOWERINGS`."""
    for module in MODULES:
        import_module(f"nnbridge_tflite.{module}")


def forms(operator: Operator) -> tuple[Form, ...]:
    """The forms of an operator, in the order in which they are tried."""
    return LOWERINGS.get(f"custom:{operator.name}" if operator.custom else operator.name, ())
