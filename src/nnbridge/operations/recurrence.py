"""What float recurrent operations compute with: activations in place, products of all time steps, room for outputs.

The members of a batch are columns here, so that a gate's values are one block of memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np

from nnbridge.model import Array
from nnbridge.operations.call import Call

Activation: TypeAlias = Callable[[Array, Array], Array]
"""From values, and where the results go (maybe their own place), to the results."""

# NumPy takes an array without dimensions in half the time that it takes a number of Python's.
ONE = np.array(1, np.float32)


def _sigmoid(x: Array, out: Array) -> Array:
    """1 / (1 + exp(-x))."""
    np.negative(x, out)
    np.exp(out, out)
    np.add(out, ONE, out)
    return np.reciprocal(out, out)


def limited(low: float, high: float) -> Activation:
    """Array kept between two limits."""
    lowest, highest = np.array(low, np.float32), np.array(high, np.float32)
    return lambda x, out: np.minimum(np.maximum(x, lowest, out=out), highest, out=out)


_ACTIVATIONS: dict[int, Activation] = {
    0: np.positive,
    1: limited(0, np.inf),
    2: limited(-1, 1),
    3: limited(0, 6),
    4: np.tanh,
    6: _sigmoid,
}


def recurrent_activation(call: Call) -> Activation:
    """The function behind the activation input: 0 none, 1 RELU, 2 RELU1, 3 RELU6, 4 TANH, 6 SIGMOID."""
    code = int(call.scalar("activation"))
    call.require(code in _ACTIVATIONS, "an activation of 0, 1, 2, 3, 4 or 6", code, "activation")
    return _ACTIVATIONS[code]


# -- sequences -------------------------------------------------------------------------------------------------------


def sequence_dims(call: Call) -> tuple[int, int, int]:
    """Time steps, batches and the size of one step."""
    first, second, size = call["input"].dims
    return (first, second, size) if call.scalar("time_major") else (second, first, size)


def in_order(call: Call, steps: int, batch: int, size: int) -> tuple[int, int, int]:
    """Dimensions of a sequence in the client's order."""
    return (steps, batch, size) if call.scalar("time_major") else (batch, steps, size)


_SMALL = 1 << 15
"""Weights that are so few multiply a single column faster if they are turned around."""


def turned(weights: Array, columns: int) -> Array:
    """Weights [rows, size] as [size, rows], for values [columns, size] to be multiplied with."""
    return np.ascontiguousarray(weights.T) if columns == 1 and weights.size <= _SMALL else weights.T


def times(weights: Array, columns: int) -> Callable[..., Array]:
    """From values [size, columns], and maybe where the result goes, to weights [rows, size] times them."""
    return turned(weights, columns).T.dot


Begin: TypeAlias = Callable[[Array, Sequence[Array]], "tuple[Array, Array]"]
"""From the state [batch, n] and sequences to what is added to each step's product [time, rows, batch], and the first factor."""


def steps_of(
    recurrent: Array, weights: Sequence[Array], bias: Array, steps: int, batch: int, time_major: bool
) -> tuple[Callable[..., Array], Begin]:
    """The recurrent product of a step, and how a run begins. There is one matrix of weights [rows, size] for each sequence."""
    if steps == 1:
        column = bias.reshape(1, -1, 1)
        together = times(np.concatenate([recurrent, *weights], axis=1), batch)
        return together, lambda hidden, x: (column, np.concatenate([hidden, *(s.reshape(batch, -1) for s in x)], axis=1).T)
    axes, column = (0, 2, 1) if time_major else (1, 2, 0), bias[:, None]

    def product(w: Array, x: Array) -> Array:
        if batch > 1:
            return np.matmul(w, x.transpose(axes))
        return x.reshape(steps, w.shape[1]).dot(w.T)[..., None]

    def begin(hidden: Array, sequences: Sequence[Array]) -> tuple[Array, Array]:
        sums, *others = [product(w, x) for w, x in zip(weights, sequences, strict=True)]
        sums += column
        for other in others:
            sums += other
        return sums, hidden.T

    return times(recurrent, batch), begin


def output_rows(call: Call, sizes: Sequence[int], merged: bool = False) -> Callable[[], tuple[list[Array], list[Array]]]:
    """Makes room for output sequences of these sizes: as the client sees it, and as [time, size, batch] for each of them."""
    steps, batch, _ = sequence_dims(call)
    wholes = [sum(sizes)] if merged else sizes
    parts = [slice(sum(sizes[:k]), sum(sizes[: k + 1])) for k in range(len(sizes))]
    seen, computed = [in_order(call, steps, batch, size) for size in wholes], [(steps, size, batch) for size in wholes]
    axes = (0, 2, 1) if call.scalar("time_major") else (2, 0, 1)

    def make() -> tuple[list[Array], list[Array]]:
        if batch == 1:
            outputs = [np.empty(shape, np.float32) for shape in seen]
            made = [output.reshape(shape) for output, shape in zip(outputs, computed, strict=True)]
        else:
            made = [np.empty(shape, np.float32) for shape in computed]
            outputs = [rows.transpose(axes) for rows in made]
        return outputs, [made[0][:, part] for part in parts] if merged else made

    return make


READS = {"none": ([0], [0]), "parallel": ([0], [1]), "cross": ([0, 1], [0, 1])}
"""Which of input and auxiliary input the forward and the backward cell read, by how the auxiliary input is used."""
