"""GRU: NNAPI has no operation for it, so that its steps are operations one after another."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from nnbridge.converters.draft import Value
from nnbridge.types import OperationCode
from nnbridge_onnx.lowering import Lowerer, lowers
from nnbridge_onnx.sequences import Recurrence

C = OperationCode

MAX_STEPS = 128
"""Longer sequences are not unrolled."""

_CODES = {"Relu": C.RELU, "Sigmoid": C.LOGISTIC, "Tanh": C.TANH}
_UPDATE, _RESET, _HIDDEN = range(3)


@lowers("GRU")
def _gru(to: Lowerer) -> None:
    """Products with the inputs for all steps at once, then about eleven operations for each step."""
    run = Recurrence(to, 3)
    to.require(run.steps <= MAX_STEPS, f"{MAX_STEPS} steps at most", run.steps)
    names = run.activations(["Sigmoid", "Tanh"])
    to.require(set(names) <= set(_CODES), f"activations of {', '.join(_CODES)}", names)
    x = run.x
    if run.batch_first:
        x = to.emit(C.TRANSPOSE, [x, to.vector([1, 0, 2])], to.temporary(x))
    rows = to.emit(C.RESHAPE, [x, to.vector([run.steps * run.batch, run.size])], to.temporary(x))
    passes = [_Pass(run, rows, i, [_CODES[n] for n in names]) for i in range(len(run.backwards))]
    made = [one.run(backward) for one, backward in zip(passes, run.backwards, strict=True)]
    run.finish([_sequence(run, hidden) for hidden, _ in made], [[last for _, last in made]])


def _sequence(run: Recurrence, hidden: Sequence[Value]) -> Value:
    """States of all steps [batch, units], as one sequence in the node's layout."""
    to = run.to
    joined = hidden[0]
    if len(hidden) > 1:
        joined = to.emit(C.CONCATENATION, [*hidden, to.scalar(0)], to.temporary(run.x))
    steps = to.emit(C.RESHAPE, [joined, to.vector([run.steps, run.batch, run.units])], to.temporary(run.x))
    return to.emit(C.TRANSPOSE, [steps, to.vector([1, 0, 2])], to.temporary(run.x)) if run.batch_first else steps


class _Pass:
    """One direction of a GRU."""

    def __init__(self, run: Recurrence, rows: Value, direction: int, activations: Sequence[OperationCode]) -> None:
        self._run = run
        self._to = run.to
        self._gate, self._cell = activations
        self._after = bool(run.to.attribute("linear_before_reset", 0))
        gates, hidden = [_UPDATE, _RESET], [_HIDDEN]
        self._gates_in = self._split(self._product(rows, run.matrix(1, direction, gates), run.bias(direction, gates)))
        # With linear_before_reset the recurrent bias of the hidden gate goes through the reset gate too.
        bias = run.bias(direction, hidden, recurrent=False if self._after else None)
        self._hidden_in = self._split(self._product(rows, run.matrix(1, direction, hidden), bias))
        self._gate_weights = run.matrix(2, direction, gates)
        self._hidden_weights = run.matrix(2, direction, hidden)
        self._no_gate_bias = run.to.real(np.zeros(2 * run.units), run.x)
        none = run.to.real(np.zeros(run.units), run.x)
        self._hidden_bias = run.bias(direction, hidden, recurrent=True) if self._after else none
        self._first = run.state(5, direction)

    def run(self, backward: bool) -> tuple[list[Value], Value]:
        """States by step, and the one that was computed last."""
        order = list(range(self._run.steps))[:: -1 if backward else 1]
        state, found = self._first, {}
        for t in order:
            state = found[t] = self._step(state, self._gates_in[t], self._hidden_in[t])
        return [found[t] for t in range(self._run.steps)], state

    def _step(self, state: Value, gates_in: Value, hidden_in: Value) -> Value:
        products = self._product(state, self._gate_weights, self._no_gate_bias)
        gates = self._emit(self._gate, self._pair(C.ADD, gates_in, products))
        pair = [self._to.temporary(gates), self._to.temporary(gates)]
        update, reset = self._to.emit_all(C.SPLIT, [gates, self._to.scalar(1), self._to.scalar(2)], pair)
        if self._after:
            hidden = self._pair(C.MUL, reset, self._product(state, self._hidden_weights, self._hidden_bias))
        else:
            hidden = self._product(self._pair(C.MUL, reset, state), self._hidden_weights, self._hidden_bias)
        candidate = self._emit(self._cell, self._pair(C.ADD, hidden_in, hidden))
        # (1 - update) * candidate + update * state
        return self._pair(C.ADD, candidate, self._pair(C.MUL, update, self._pair(C.SUB, state, candidate)))

    def _split(self, rows: Value) -> Sequence[Value]:
        """Rows of all steps, step by step."""
        count = self._run.steps
        if count == 1:
            return [rows]
        parts = [self._to.temporary(rows) for _ in range(count)]
        return self._to.emit_all(C.SPLIT, [rows, self._to.scalar(0), self._to.scalar(count)], parts)

    def _product(self, x: Value, weights: Value, bias: Value) -> Value:
        return self._emit(C.FULLY_CONNECTED, x, weights, bias, self._to.scalar(0))

    def _pair(self, code: OperationCode, a: Value, b: Value) -> Value:
        return self._emit(code, a, b, self._to.scalar(0))

    def _emit(self, code: OperationCode, *inputs: Value) -> Value:
        return self._to.emit(code, inputs, self._to.temporary(self._run.x))
