"""Functions of single 8-bit values, as tables of their 256 results."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from nnbridge.operations.arithmetic import integer_range

if TYPE_CHECKING:
    from nnbridge.operations.call import Arg

Values = npt.NDArray[Any]
Function: TypeAlias = Callable[[Values], Values]
"""From one array to another of the same shape."""

_LARGE = 1 << 17
"""From as many elements on, looking pairs of bytes up takes less time, and making their table does not matter."""


def every_value(x: Arg) -> Values:
    """All values of an 8-bit operand in ascending order, less the zero point."""
    low, high = integer_range(x)
    return np.arange(low, high + 1, dtype=np.int64) - x.zero_point


def by_table(x: Arg, out: Arg, results: Values) -> Function:
    """The function that has these results, of ``out``'s type, for :func:`every_value` of ``x``."""
    dtype = out.dtype
    # The byte that holds a value is its place in the table: those of negative values lie behind those of positive ones.
    table = np.roll(results, integer_range(x)[0]).astype(dtype).view(np.uint8)
    count = math.prod(x.dims)
    if count >= _LARGE and count % 2 == 0:
        pairs = table[np.arange(1 << 16, dtype=np.uint16).view(np.uint8)].view(np.uint16)
        # No index is outside; wrap is the mode that takes the least time.
        return lambda values: (
            pairs.take(np.ascontiguousarray(values).reshape(-1).view(np.uint16), mode="wrap").view(dtype).reshape(values.shape)
        )
    # translate looks bytes up in less time than np.take does.
    by_byte = table.tobytes()
    return lambda values: np.frombuffer(bytearray(values).translate(by_byte), dtype).reshape(values.shape)
