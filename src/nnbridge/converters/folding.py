"""Constant folding: which operators an importer computes at conversion, and how large their results may get.

Sizes are bounded before anything is computed, because a file may ask for a result of any size.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from nnbridge.model import Array
from nnbridge.records import dataclass

Size: TypeAlias = "Callable[..., float]"
"""From an operator's input arrays, as positional arguments, to an upper bound of the elements that it creates."""


def elements_read(*arrays: Array) -> float:
    """As many elements as the inputs have together."""
    return sum(array.size for array in arrays)


def elements_broadcast(*arrays: Array) -> float:
    """As many elements as the inputs have when they are broadcast; shapes that do not fit raise ValueError."""
    return math.prod(np.broadcast_shapes(*(array.shape for array in arrays)))


def elements_multiplied(*arrays: Array) -> float:
    """As many elements as the inputs' sizes multiplied."""
    return math.prod(max(array.size, 1) for array in arrays)


def elements_of_shape(array: Array) -> float:
    """As many elements as a tensor has whose dimensions are this array's numbers."""
    return math.prod(max(int(v), 0) for v in np.ravel(array))


@dataclass(frozen=True, slots=True)
class Folding:
    """The folding of an operator."""

    size: Size = elements_read
    limit: int | None = None
    """The most elements that a folded result may have; None for the importer's own limit."""
    moves_only: bool = False
    """True if it only moves elements, so that it is folded for quantised tensors as well."""
    unlimited: bool = False
    """True where the inputs are a packed form of weights: folded whatever the size."""

    def fits(self, arrays: Sequence[Any], limit: int) -> bool:
        """True if the result is small enough to be computed at conversion."""
        if self.unlimited:
            return True
        try:
            return self.size(*arrays) <= (limit if self.limit is None else self.limit)
        except (ValueError, IndexError, TypeError, OverflowError, ArithmeticError):
            # Inputs that do not fit the operator: whoever runs it reports that.
            return False
