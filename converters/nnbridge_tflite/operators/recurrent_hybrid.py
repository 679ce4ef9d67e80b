"""Recurrent operators of float activations beside 8-bit weights, as LiteRT's hybrid kernels compute them.

Inputs and states are quantised at each step, a row at a time; gates, cells and activations are float32. Each kernel returns the
operator's outputs, then its new states.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from nnbridge.records import dataclass
from nnbridge_tflite.host.hybrid import centred_asymmetric, symmetric
from nnbridge_tflite.host.numbers import Arg, Array, Options, Tensors, cell_activated, data_of, real
from nnbridge_tflite.host.sixteen_bits import centred
from nnbridge_tflite.operators import recurrent as declared

_ONE = np.float32(1)
_VARIANCE = np.float32(1e-8)
"""What LiteRT's layer normalisation adds to the variance."""


def _given(tensor: Arg) -> bool:
    return tensor.value is not None


def _products(rows: Array, matrices: Tensors, options: Options) -> list[Array]:
    """[batch, units] for each matrix [units, size]: sums of integers times the scales of row and matrix; 0 for omitted ones."""
    numbers, steps = (centred_asymmetric if options["asymmetric_quantize_inputs"] else symmetric)(rows)
    zero = np.zeros((), np.float32)
    return [
        (numbers @ centred(one).T).astype(np.float32) * (steps * np.float32(one.scale))[:, np.newaxis] if _given(one) else zero
        for one in matrices
    ]


def _sequence(data: Array, options: Options) -> Array:
    """[steps, batch, size] of a sequence in either order, or the other way round."""
    return data if options["time_major"] else data.swapaxes(0, 1)


# -- cells -------------------------------------------------------------------------------------------------------------------


def _rnn(steps: Array, cell: Tensors, options: Options, more: Array | None = None, weights: Arg | None = None) -> Array:
    """Outputs [steps, batch, units] of a cell: weights, recurrent weights, bias, state; ``more`` is an auxiliary sequence."""
    bias, state = data_of(cell[2]), data_of(cell[3])
    found = np.empty((*steps.shape[:2], len(bias)), np.float32)
    for i, rows in enumerate(steps):
        sums = bias + _products(rows, cell[:1], options)[0]
        if more is not None and weights is not None:
            sums = sums + _products(more[i], [weights], options)[0]
        found[i] = state = cell_activated(sums + _products(state, cell[1:2], options)[0], options)
    return found


@dataclass(frozen=True)
class _Lstm:
    """The tensors of an LSTM, gates in TFLite's order: input, forget, cell, output."""

    weights: Tensors
    recurrent: Tensors
    peepholes: Tensors
    biases: Tensors
    projection: Arg
    projection_bias: Arg
    norms: Tensors = ()
    auxiliary: Tensors = ()

    @classmethod
    def of(cls, parts: Tensors, norms: Tensors = (), auxiliary: Tensors = ()) -> _Lstm:
        """From the 17 inputs of one direction."""
        return cls(parts[:4], parts[4:8], parts[8:11], parts[11:15], parts[15], parts[16], norms, auxiliary)

    def run(self, steps: Array, states: Tensors, options: Options, more: Array | None = None) -> tuple[Array, Array, Array]:
        """Outputs [steps, batch, units], the output state, the cell state."""
        output, cell = (data_of(state).astype(np.float32) for state in states)
        found = np.empty((*steps.shape[:2], output.shape[1]), np.float32)
        for i, rows in enumerate(steps):
            output, cell = self._step(rows, output, cell, options, None if more is None else more[i])
            found[i] = output
        return found, output, cell

    def _step(self, rows: Array, output: Array, cell: Array, options: Options, more: Array | None) -> tuple[Array, Array]:
        parts = [_products(rows, self.weights, options)]
        if more is not None and self.auxiliary:
            parts.append(_products(more, self.auxiliary, options))
        parts.append(_products(output, self.recurrent, options))
        forget = _sigmoid(self._gate(1, parts, cell, self.peepholes[1]))
        entering = _sigmoid(self._gate(0, parts, cell, self.peepholes[0])) if _given(self.weights[0]) else _ONE - forget
        candidate = cell_activated(self._gate(2, parts, cell, None), options)
        cell = _clipped(forget * cell + candidate * entering, options["cell_clip"])
        released = _sigmoid(self._gate(3, parts, cell, self.peepholes[2])) * cell_activated(cell, options)
        return self._projected(released, options), cell

    def _gate(self, gate: int, parts: Iterable[Sequence[Array]], cell: Array, peephole: Arg | None) -> Array:
        """The sums of a gate, before its activation."""
        normed, bias = bool(self.norms), data_of(self.biases[gate])
        sums: Array = np.zeros_like(cell) if normed else np.broadcast_to(bias, cell.shape)
        for products in parts:
            sums = sums + products[gate]
        if peephole is not None and _given(peephole):
            sums = sums + real(peephole) * cell
        if not normed:
            return sums
        apart = sums - sums.mean(axis=1, keepdims=True)
        variance = np.square(apart).mean(axis=1, keepdims=True)
        return apart * (_ONE / np.sqrt(variance + _VARIANCE)) * data_of(self.norms[gate]) + bias

    def _projected(self, released: Array, options: Options) -> Array:
        if not _given(self.projection):
            return released
        found = _products(released, [self.projection], options)[0]
        found = data_of(self.projection_bias) + found if _given(self.projection_bias) else found
        return _clipped(found, options["proj_clip"])


def _sigmoid(values: Array) -> Array:
    return _ONE / (_ONE + np.exp(-values))


def _clipped(values: Array, limit: float) -> Array:
    return np.clip(values, -np.float32(limit), np.float32(limit)) if limit > 0 else values


# -- kernels -----------------------------------------------------------------------------------------------------------------


@declared.RNN.hybrid_kernel
def rnn(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    found = _rnn(data_of(inputs[0])[np.newaxis], inputs[1:5], options)[0]
    return [found, found]


@declared.UNIDIRECTIONAL_SEQUENCE_RNN.hybrid_kernel
def sequence_rnn(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    found = _rnn(_sequence(data_of(inputs[0]), options), inputs[1:5], options)
    return [_sequence(found, options), found[-1]]


@declared.BIDIRECTIONAL_SEQUENCE_RNN.hybrid_kernel
def bidirectional_rnn(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    """As LiteRT does: where time comes first, each direction runs as often as there are steps, its state going on; where the
    batch does, the second direction reads the first input, whatever the other one is.
    """
    others, auxiliary = (inputs[9], inputs[10:12]) if len(inputs) > 11 else (None, ())
    sequences = _directions(inputs[0], others, auxiliary, options)
    if not options["time_major"]:
        sequences[1] = (sequences[0][0][::-1], sequences[1][1])
    found = []
    for way, (data, more) in enumerate(sequences):
        cell = list(inputs[1 + 4 * way : 5 + 4 * way])
        for _ in range(len(data) if options["time_major"] else 1):
            steps = _rnn(data, cell, options, more, auxiliary[way] if more is not None else None)
            cell[3] = replace(cell[3], value=steps[-1])
        found.append(steps)
    return [*_both(found, options), *(steps[-1] for steps in found)]


@declared.LSTM.hybrid_kernel
def lstm(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    if options["kernel_type"] == declared.BASIC:
        raise ValueError("the full LSTM kernel")
    found, output, cell = _Lstm.of(inputs[1:18], inputs[20:24]).run(data_of(inputs[0])[np.newaxis], inputs[18:20], options)
    return [found[0], output, cell]


@declared.UNIDIRECTIONAL_SEQUENCE_LSTM.hybrid_kernel
def sequence_lstm(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    if options["diagonal_recurrent_tensors"]:
        raise ValueError("full recurrent matrices")
    steps = _sequence(data_of(inputs[0]), options)
    found, output, cell = _Lstm.of(inputs[1:18], inputs[20:24]).run(steps, inputs[18:20], options)
    return [_sequence(found, options), output, cell]


@declared.BIDIRECTIONAL_SEQUENCE_LSTM.hybrid_kernel
def bidirectional_lstm(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    others, auxiliary = (inputs[39], inputs[40:48]) if len(inputs) > 47 else (None, ())
    sequences = _directions(inputs[0], others, auxiliary, options)
    found = []
    for way, (data, more) in enumerate(sequences):
        cells = _Lstm.of(
            inputs[1 + 17 * way : 18 + 17 * way], auxiliary=auxiliary[4 * way : 4 * way + 4] if more is not None else ()
        )
        found.append(cells.run(data, inputs[35 + 2 * way : 37 + 2 * way], options, more))
    return [*_both([steps for steps, *_ in found], options), *(state for _, *states in found for state in states)]


def _directions(data: Arg, others: Arg | None, auxiliary: Tensors, options: Options) -> list[tuple[Array, Array | None]]:
    """Each direction's sequence and its auxiliary one. Without weights for these, the second direction reads the other input."""
    steps = _sequence(data_of(data), options)
    if others is None or not _given(others):
        return [(steps, None), (steps[::-1], None)]
    more = _sequence(data_of(others), options)
    if any(map(_given, auxiliary)):
        return [(steps, more), (steps[::-1], more[::-1])]
    return [(steps, None), (more[::-1], None)]


def _both(found: Sequence[Array], options: Options) -> list[Array]:
    forward, backward = found[0], found[1][::-1]
    parts = [np.concatenate([forward, backward], axis=-1)] if options["merge_outputs"] else [forward, backward]
    return [_sequence(part, options) for part in parts]


@declared.SVDF.hybrid_kernel
def svdf(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    data, features, time, bias, state = inputs
    projected = _products(data_of(data), [features], options)[0]
    memory = data_of(state).reshape(*projected.shape, -1)
    memory = np.concatenate([memory[..., 1:], projected[..., np.newaxis]], axis=-1)
    sums = (memory * real(time)).sum(-1).reshape(len(memory), -1, options["rank"]).sum(-1)
    return [cell_activated(sums + data_of(bias) if _given(bias) else sums, options), memory.reshape(data_of(state).shape)]
