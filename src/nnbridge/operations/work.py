"""Multiply-adds of an operation, which its declaration states, as those of operators of files do.

A multiply-add is a product that is added to a sum. Biases, activations, pooling and element-wise arithmetic count nothing, as
in the figures that are published with networks. Padding counts as if it were computed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import prod

from nnbridge.extensions import Dims
from nnbridge.records import dataclass


@dataclass(frozen=True, slots=True)
class MultiplyAdds:
    """A count of operators' multiply-adds: by the dimensions of inputs, () of omitted ones, and outputs."""

    text: str
    count: Callable[[Dims, Dims, Sequence[str]], int]
    """With the inputs' names."""

    def of(self, names: Sequence[str]) -> Callable[[Dims, Dims], int]:
        """The counter for inputs of these names."""
        return partial(self._count, names)

    def _count(self, names: Sequence[str], inputs: Dims, outputs: Dims) -> int:
        return self.count(inputs, outputs, names)


def convolution(weights: int = 1) -> MultiplyAdds:
    """Of a convolution with the weights [depth out, sides, depth in] or [depth out, depth in, sides]."""
    text = "output elements × filter height × width × depth"
    return MultiplyAdds(text, lambda i, o, names: prod(o[0]) * prod(i[weights][1:]))


def transposed_convolution(data: int = 0, first: int = 0, last: int | None = 3) -> MultiplyAdds:
    """Of a convolution that spreads each element of an input by these dimensions of the weights, input 1."""
    text = "input elements × filter height × width × output depth"
    return MultiplyAdds(text, lambda i, o, names: prod(i[data]) * prod(i[1][first:last]))


def recurrent(text: str) -> MultiplyAdds:
    """Of a layer that multiplies by all of its matrices of weights in each time step."""
    return MultiplyAdds(text, _by_weights)


def _by_weights(inputs: Dims, outputs: Dims, names: Sequence[str]) -> int:
    weights = [dims for dims, name in zip(inputs, names, strict=False) if "weights" in name or name.endswith("projection")]
    return prod(inputs[0][:-1]) * sum(prod(dims) for dims in weights if len(dims) == 2)


CONVOLUTION = convolution()
DEPTHWISE = MultiplyAdds("output elements × filter height × width", lambda i, o, names: prod(o[0]) * prod(i[1][1:3]))
FULLY_CONNECTED = MultiplyAdds("output elements × input size", lambda i, o, names: prod(o[0]) * i[1][1])
_ROWS = "output elements × length of the rows that are multiplied"
PRODUCTS = MultiplyAdds(_ROWS, lambda i, o, names: prod(o[0]) * i[0][-1])
STACKED_PRODUCTS = MultiplyAdds(_ROWS, lambda i, o, names: prod(o[0]) * prod(i[0][-2:]) // o[0][-2])
"""Of stacks of matrices, the first of them perhaps transposed."""
CELL = recurrent("batch × elements of all weight matrices")
LAYER = recurrent("batch × time steps × elements of all weight matrices")
TWO_LAYERS = recurrent("batch × time steps × elements of all weight matrices, of both directions")
SVDF = recurrent("batch × elements of weights_feature and weights_time")
