"""LSTM and RNN: NNAPI's operations over whole sequences."""

from __future__ import annotations

from collections.abc import Sequence

from nnbridge.converters.draft import Value
from nnbridge.types import OperationCode
from nnbridge_onnx.lowering import Lowerer, lowers
from nnbridge_onnx.sequences import Recurrence

C = OperationCode

_CODES = {"Relu": 1, "Tanh": 4, "Sigmoid": 6}
"""Activation → the number that NNAPI's recurrent operations have for it."""

_STATES_SINCE = 4
"""The feature level from which sequences hand out their last states."""


def _activation(to: Lowerer, name: str) -> Value:
    to.require(name in _CODES, f"an activation of {', '.join(_CODES)}", name)
    return to.scalar(_CODES[name])


@lowers("RNN")
def _rnn(to: Lowerer) -> None:
    """UNIDIRECTIONAL_SEQUENCE_RNN or BIDIRECTIONAL_SEQUENCE_RNN."""
    run = Recurrence(to, 1)
    activation = _activation(to, run.activations(["Tanh"])[0])
    cells = [[run.matrix(1, i, [0]), run.matrix(2, i, [0]), run.bias(i, [0]), run.state(5, i)] for i in range(len(run.backwards))]
    if len(cells) == 2:
        nothing = [to.values.draft.omitted(run.x.type)] * 3
        order = to.flag(not run.batch_first)
        inputs = [run.x, *cells[0], *cells[1], *nothing, activation, order, to.flag(False)]
        _both(to, run, C.BIDIRECTIONAL_SEQUENCE_RNN, inputs, 1)
        return
    source = run.reversed(run.x) if run.backwards[0] else run.x
    inputs = [source, *cells[0], activation, to.scalar(int(not run.batch_first))]
    _one(to, run, C.UNIDIRECTIONAL_SEQUENCE_RNN, inputs, 1)


# Gates as ONNX orders them: input, output, forget, cell; and peepholes: input, output, forget.
_NNAPI_GATES = (0, 2, 3, 1)
_NNAPI_PEEPHOLES = (0, 2, 1)


@lowers("LSTM")
def _lstm(to: Lowerer) -> None:
    """UNIDIRECTIONAL_SEQUENCE_LSTM or BIDIRECTIONAL_SEQUENCE_LSTM."""
    to.require(not to.attribute("input_forget", 0), "gates of their own for input and forgetting", "input_forget")
    run = Recurrence(to, 4)
    gate, cell, hidden = run.activations(["Sigmoid", "Tanh", "Tanh"])
    to.require((gate, cell) == ("Sigmoid", hidden), "Sigmoid gates, one activation of cell and output", [gate, cell, hidden])
    activation = _activation(to, cell)
    cells = [_lstm_cell(to, run, i) for i in range(len(run.backwards))]
    states = [[run.state(5, i), run.state(6, i)] for i in range(len(run.backwards))]
    clips = [to.like_scalar(run.x, 0.0)] * 2
    order, nothing = to.flag(not run.batch_first), to.values.draft.omitted(run.x.type)
    if len(cells) == 2:
        inputs = [run.x, *cells[0], *cells[1], *states[0], *states[1], *[nothing] * 9]
        _both(to, run, C.BIDIRECTIONAL_SEQUENCE_LSTM, [*inputs, activation, *clips, to.flag(False), order, *[nothing] * 8], 2)
        return
    source = run.reversed(run.x) if run.backwards[0] else run.x
    inputs = [source, *cells[0], *states[0], activation, *clips, order, *[nothing] * 4]
    _one(to, run, C.UNIDIRECTIONAL_SEQUENCE_LSTM, inputs, 2)


def _lstm_cell(to: Lowerer, run: Recurrence, direction: int) -> list[Value]:
    """Weights, peepholes and biases in NNAPI's order; no projection."""
    nothing = to.values.draft.omitted(run.x.type)
    peepholes = [run.peephole(direction, gate) for gate in _NNAPI_PEEPHOLES]
    return [
        *(run.matrix(1, direction, [gate]) for gate in _NNAPI_GATES),
        *(run.matrix(2, direction, [gate]) for gate in _NNAPI_GATES),
        *(nothing if p is None else p for p in peepholes),
        *(run.bias(direction, [gate]) for gate in _NNAPI_GATES),
        nothing,
        nothing,
    ]


def _one(to: Lowerer, run: Recurrence, code: OperationCode, inputs: Sequence[Value], states: int) -> None:
    """One direction: an operation with its last states where the feature level knows them."""
    made = _run(to, run, code, inputs, 1, states)
    sequence = run.reversed(made[0]) if run.backwards[0] else made[0]
    last = made[1:] or [run.last(sequence, backward=run.backwards[0])]
    run.finish([sequence], [[state] for state in last])


def _both(to: Lowerer, run: Recurrence, code: OperationCode, inputs: Sequence[Value], states: int) -> None:
    """Both directions in one operation, whose states come by direction."""
    forward, backward, *found = _run(to, run, code, inputs, 2, 2 * states)
    if found:
        last = [[found[k], found[states + k]] for k in range(states)]
    else:
        last = [[run.last(forward, backward=False), run.last(backward, backward=True)]]
    run.finish([forward, backward], last)


def _run(
    to: Lowerer, run: Recurrence, code: OperationCode, inputs: Sequence[Value], sequences: int, states: int
) -> Sequence[Value]:
    cell_wanted = len(to.node.outputs) > 2 and bool(to.node.outputs[2])
    later = to.values.draft.feature_level >= _STATES_SINCE
    to.require(later or not cell_wanted, f"feature level {_STATES_SINCE} for the last state of cells", to.node.outputs[2:])
    outputs = [to.temporary(run.x) for _ in range(sequences + (states if later else 0))]
    return to.emit_all(code, inputs, outputs)
