"""Recurrent operators: RNN and LSTM as NNAPI's operations over sequences, GRU as operations step by step."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from nnbridge.converters.declaration import Option
from nnbridge.converters.draft import Value
from nnbridge.converters.rules import Condition
from nnbridge.errors import Why
from nnbridge.operations import work
from nnbridge.types import OperandCode, OperationCode
from nnbridge_onnx.declaration import operator
from nnbridge_onnx.host.recurrent import DIRECTIONS, prepared_layer, run_layer
from nnbridge_onnx.lowerer import C, Lowerer
from nnbridge_onnx.read.graph import Dims, Node

_OPTIONS = (
    Option("activations", None, "the activations of each direction"),
    Option("clip", None, "bound of what goes into activations"),
    Option("direction", "forward", "forward, reverse or bidirectional"),
    Option("layout", 0, "1 for batches before steps"),
)
_INPUTS = "X W R B? sequence_lens? initial_h?"
_WORK = work.MultiplyAdds(work.LAYER.text, lambda i, o, names: math.prod(i[0][:-1]) * (math.prod(i[1]) + math.prod(i[2])))
_LOADS: tuple[Condition[Node], ...] = (
    Condition(
        "layout 0, with a Transpose before and after the node",
        lambda node: not node.attributes.get("layout", 0),
        lambda node: f"layout {node.attributes['layout']}",
        kind=Why.ARGUMENT,
        says=lambda node: "Batchwise recurrent operations (layout == 1) are not supported",
    ),
)
RNN = operator(
    "RNN", 128, f"{_INPUTS} -> Y? Y_h?", "A layer whose state is its last output.", options=_OPTIONS, work=_WORK, loads=_LOADS
)
LSTM = operator(
    "LSTM", 86, f"{_INPUTS} initial_c? P? -> Y? Y_h? Y_c?", "A layer with a cell, and gates for what goes in and out.",
    options=(*_OPTIONS, Option("input_forget", 0, "1 to couple input and forget gate")), work=_WORK, loads=_LOADS,
)  # fmt: skip
GRU = operator(
    "GRU", 61, f"{_INPUTS} -> Y? Y_h?", "A layer with an update and a reset gate.",
    options=(*_OPTIONS, Option("linear_before_reset", 0, "1 to reset what the state is multiplied to")), work=_WORK, loads=_LOADS,
)  # fmt: skip


class Recurrence:
    """An RNN, GRU or LSTM node: sizes, weights by gate, and initial states."""

    def __init__(self, to: Lowerer, gates: int) -> None:
        self.to = to
        self.gates = gates
        self.batch_first = bool(to.option("layout"))
        name = to.option("direction")
        to.require(name in DIRECTIONS, ", ".join(DIRECTIONS), name, "direction")
        self.backwards = DIRECTIONS[name]
        shape = to.shape()
        to.require(len(shape) == 3 and 0 not in shape, "a sequence of rank 3 with elements", list(shape))
        self.batch, self.steps = shape[:2] if self.batch_first else shape[1::-1]
        self.size, self.units = shape[2], to.shape(2)[2]
        to.require(to.shape(1) == (len(self.backwards), gates * self.units, self.size), "weights of all gates", to.shape(1))
        self.x = to.input()
        to.require(to.is_float(self.x), "floating values", OperandCode(self.x.type).name, self.x.name)
        to.require(not to.option("clip"), "no clip of what goes into activations", to.option("clip"))
        self._check_lengths()

    def _check_lengths(self) -> None:
        """Every sequence has to be as long as the longest."""
        lengths = self.to.optional(4)
        full = lengths is None or all(int(n) == self.steps for n in np.ravel(lengths))
        self.to.require(full, f"sequences of {self.steps} steps each", "shorter ones", self.to.name(4))

    def activations(self, defaults: Sequence[str]) -> list[str]:
        """The activations of one direction, which both directions must share."""
        names = list(self.to.option("activations", [*defaults] * len(self.backwards)))
        count = len(defaults)
        to = self.to
        to.require(len(names) == count * len(self.backwards), f"{count} activations for each direction", names)
        to.require(names[:count] == names[-count:], "the same activations in both directions", names)
        return names[:count]

    # -- operands -----------------------------------------------------------------------------------------------------

    def matrix(self, position: int, direction: int, gates: Sequence[int]) -> Value:
        """Rows of the weights for some gates that stand side by side: [gates x units, columns]."""
        columns = self.size if position == 1 else self.units
        first, count = gates[0] * self.units, len(gates) * self.units
        return self._part(position, direction, first, count, (count, columns))

    def bias(self, direction: int, gates: Sequence[int], *, recurrent: bool | None = None) -> Value:
        """The biases of gates; both of each gate are added unless one of them is chosen."""
        count = len(gates) * self.units
        if not self.to.name(3):
            return self.to.float_tensor(np.zeros(count), self.x)
        first, half = gates[0] * self.units, self.gates * self.units
        parts = [self._part(3, direction, first + side * half, count, (count,)) for side in _sides(recurrent)]
        return parts[0] if len(parts) == 1 else self._sum(*parts)

    def peephole(self, direction: int, gate: int) -> Value | None:
        """The term that the cell adds to a gate of an LSTM."""
        return self._part(7, direction, gate * self.units, self.units, (self.units,)) if self.to.name(7) else None

    def state(self, position: int, direction: int) -> Value:
        """An initial state [batch, units], zeros if it is omitted."""
        dims = (self.batch, self.units)
        if not self.to.name(position):
            self.to.draft.spend(self.batch * self.units)
            return self.to.float_tensor(np.zeros(dims), self.x)
        constant = self.to.operands.constants.get(self.to.name(position))
        if constant is not None:
            return self.to.float_tensor(np.take(constant, direction, 1 if self.batch_first else 0), self.x)
        return self._sliced(position, 1 if self.batch_first else 0, direction, 1, dims)

    def _part(self, position: int, direction: int, first: int, count: int, dims: Dims) -> Value:
        constant = self.to.operands.constants.get(self.to.name(position))
        if constant is not None:
            return self.to.float_tensor(constant[direction, first : first + count], self.x, dims)
        shape = self.to.shape(position)
        starts, sizes = [direction, first, *[0] * (len(shape) - 2)], [1, count, *shape[2:]]
        return self._block(position, starts, sizes, dims)

    def _sliced(self, position: int, axis: int, first: int, count: int, dims: Dims) -> Value:
        shape = list(self.to.shape(position))
        starts = [first if i == axis else 0 for i in range(len(shape))]
        sizes = [count if i == axis else d for i, d in enumerate(shape)]
        return self._block(position, starts, sizes, dims)

    def _block(self, position: int, starts: Sequence[int], sizes: Sequence[int], dims: Dims) -> Value:
        part = self._emit(C.SLICE, [self.to.input(position), self.to.vector(starts), self.to.vector(sizes)])
        return self._emit(C.RESHAPE, [part, self.to.vector(dims)])

    def _sum(self, a: Value, b: Value) -> Value:
        if a.data is not None and b.data is not None:
            return self.to.float_tensor(a.data + b.data, self.x)
        return self._emit(C.ADD, [a, b, self.to.scalar(0)])

    def _emit(self, code: OperationCode, inputs: Sequence[Value]) -> Value:
        return self.to.emit(code, *inputs, like=self.x)

    def reversed(self, x: Value) -> Value:
        """A sequence from its end to its beginning."""
        axis, to = (1 if self.batch_first else 0), self.to
        starts = [d - 1 if i == axis else 0 for i, d in enumerate(x.dims)]
        ends = [0 if i == axis else d for i, d in enumerate(x.dims)]
        strides = [-1 if i == axis else 1 for i in range(x.rank)]
        # The end lies before the first step, which only the mask can say.
        masks = [to.scalar(0), to.scalar(1 << axis), to.scalar(0)]
        return self._emit(C.STRIDED_SLICE, [x, to.vector(starts), to.vector(ends), to.vector(strides), *masks])

    # -- results ------------------------------------------------------------------------------------------------------

    def finish(self, sequences: Sequence[Value], states: Sequence[Sequence[Value]]) -> None:
        """The outputs: the whole sequence, and last states [batch, units] by output and direction."""
        if self._requested(0):
            dims = (self.batch, self.steps, 1, self.units) if self.batch_first else (self.steps, 1, self.batch, self.units)
            self._joined(0, sequences, dims, 2 if self.batch_first else 1)
        for position, found in enumerate(states, 1):
            if self._requested(position):
                single = (self.batch, 1, self.units) if self.batch_first else (1, self.batch, self.units)
                self._joined(position, found, single, 1 if self.batch_first else 0)

    def _requested(self, position: int) -> bool:
        return position < len(self.to.node.outputs) and bool(self.to.node.outputs[position])

    def _joined(self, position: int, parts: Sequence[Value], dims: Dims, axis: int) -> None:
        shape = self.to.vector(dims)
        if len(parts) == 1:
            self.to.finish(C.RESHAPE, parts[0], shape, position=position)
            return
        reshaped = [self._emit(C.RESHAPE, [part, shape]) for part in parts]
        self.to.finish(C.CONCATENATION, *reshaped, self.to.scalar(axis), position=position)

    def last(self, sequence: Value, *, backward: bool) -> Value:
        """The last step of a sequence in its own direction."""
        axis = 1 if self.batch_first else 0
        starts, sizes = [0] * 3, list(sequence.dims)
        starts[axis], sizes[axis] = (0 if backward else self.steps - 1), 1
        part = self._emit(C.SLICE, [sequence, self.to.vector(starts), self.to.vector(sizes)])
        return self._emit(C.RESHAPE, [part, self.to.vector((self.batch, self.units))])


def _sides(recurrent: bool | None) -> tuple[int, ...]:
    return (0, 1) if recurrent is None else (int(recurrent),)


# -- RNN and LSTM ------------------------------------------------------------------------------------------------------------

_ACTIVATIONS = {"Relu": 1, "Tanh": 4, "Sigmoid": 6}
"""Activation → the number that NNAPI's recurrent operations have for it."""

_STATES_SINCE = 4
"""The feature level from which sequences hand out their last states."""


def _activation(to: Lowerer, name: str) -> Value:
    to.require(name in _ACTIVATIONS, f"an activation of {', '.join(_ACTIVATIONS)}", name)
    return to.scalar(_ACTIVATIONS[name])


@RNN.lowering()
def _rnn(to: Lowerer) -> None:
    """UNIDIRECTIONAL_SEQUENCE_RNN or BIDIRECTIONAL_SEQUENCE_RNN."""
    run = Recurrence(to, 1)
    activation = _activation(to, run.activations(["Tanh"])[0])
    cells = [[run.matrix(1, i, [0]), run.matrix(2, i, [0]), run.bias(i, [0]), run.state(5, i)] for i in range(len(run.backwards))]
    if len(cells) == 2:
        nothing = [to.draft.omitted(run.x.type)] * 3
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


@LSTM.lowering()
def _lstm(to: Lowerer) -> None:
    """UNIDIRECTIONAL_SEQUENCE_LSTM or BIDIRECTIONAL_SEQUENCE_LSTM."""
    to.require(not to.option("input_forget"), "separate input and forget gates (input_forget 0)", "input_forget 1")
    run = Recurrence(to, 4)
    gate, cell, hidden = run.activations(["Sigmoid", "Tanh", "Tanh"])
    to.require((gate, cell) == ("Sigmoid", hidden), "Sigmoid gates, one activation of cell and output", [gate, cell, hidden])
    activation = _activation(to, cell)
    cells = [_lstm_cell(to, run, i) for i in range(len(run.backwards))]
    states = [[run.state(5, i), run.state(6, i)] for i in range(len(run.backwards))]
    clips = [to.float_scalar(0.0, run.x)] * 2
    order, nothing = to.flag(not run.batch_first), to.draft.omitted(run.x.type)
    if len(cells) == 2:
        inputs = [run.x, *cells[0], *cells[1], *states[0], *states[1], *[nothing] * 9]
        _both(to, run, C.BIDIRECTIONAL_SEQUENCE_LSTM, [*inputs, activation, *clips, to.flag(False), order, *[nothing] * 8], 2)
        return
    source = run.reversed(run.x) if run.backwards[0] else run.x
    inputs = [source, *cells[0], *states[0], activation, *clips, order, *[nothing] * 4]
    _one(to, run, C.UNIDIRECTIONAL_SEQUENCE_LSTM, inputs, 2)


def _lstm_cell(to: Lowerer, run: Recurrence, direction: int) -> list[Value]:
    """Weights, peepholes and biases in NNAPI's order; no projection."""
    nothing = to.draft.omitted(run.x.type)
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
    cell_requested = len(to.node.outputs) > 2 and bool(to.node.outputs[2])
    later = to.draft.feature_level >= _STATES_SINCE
    to.require(later or not cell_requested, f"feature level {_STATES_SINCE} for the last state of cells", to.node.outputs[2:])
    outputs = [to.temporary(run.x) for _ in range(sequences + (states if later else 0))]
    return to.emit_all(code, inputs, outputs)


# -- GRU ---------------------------------------------------------------------------------------------------------------------

MAX_STEPS = 128
"""Longer sequences are not unrolled."""
_CODES = {"Relu": C.RELU, "Sigmoid": C.LOGISTIC, "Tanh": C.TANH}
_UPDATE, _RESET, _HIDDEN = range(3)


@GRU.lowering()
def _gru(to: Lowerer) -> None:
    """Products with the inputs for all steps at once, then about eleven operations for each step."""
    run = Recurrence(to, 3)
    to.require(run.steps <= MAX_STEPS, f"{MAX_STEPS} steps at most", run.steps)
    names = run.activations(["Sigmoid", "Tanh"])
    to.require(set(names) <= set(_CODES), f"activations of {', '.join(_CODES)}", names)
    x = run.x
    if run.batch_first:
        x = to.emit(C.TRANSPOSE, x, to.vector([1, 0, 2]))
    rows = to.emit(C.RESHAPE, x, to.vector([run.steps * run.batch, run.size]))
    passes = [_Pass(run, rows, i, [_CODES[n] for n in names]) for i in range(len(run.backwards))]
    made = [one.run(backward) for one, backward in zip(passes, run.backwards, strict=True)]
    run.finish([_sequence(run, hidden) for hidden, _ in made], [[last for _, last in made]])


def _sequence(run: Recurrence, hidden: Sequence[Value]) -> Value:
    """States of all steps [batch, units], as one sequence in the node's layout."""
    to = run.to
    joined = hidden[0]
    if len(hidden) > 1:
        joined = to.emit(C.CONCATENATION, *hidden, to.scalar(0), like=run.x)
    steps = to.emit(C.RESHAPE, joined, to.vector([run.steps, run.batch, run.units]), like=run.x)
    return to.emit(C.TRANSPOSE, steps, to.vector([1, 0, 2]), like=run.x) if run.batch_first else steps


class _Pass:
    """One direction of a GRU."""

    def __init__(self, run: Recurrence, rows: Value, direction: int, activations: Sequence[OperationCode]) -> None:
        self._run = run
        self._to = run.to
        self._gate, self._cell = activations
        self._after = bool(run.to.option("linear_before_reset"))
        gates, hidden = [_UPDATE, _RESET], [_HIDDEN]
        self._gates_in = self._split(self._product(rows, run.matrix(1, direction, gates), run.bias(direction, gates)))
        # With linear_before_reset the recurrent bias of the hidden gate goes through the reset gate too.
        bias = run.bias(direction, hidden, recurrent=False if self._after else None)
        self._hidden_in = self._split(self._product(rows, run.matrix(1, direction, hidden), bias))
        self._gate_weights = run.matrix(2, direction, gates)
        self._hidden_weights = run.matrix(2, direction, hidden)
        self._no_gate_bias = run.to.float_tensor(np.zeros(2 * run.units), run.x)
        none = run.to.float_tensor(np.zeros(run.units), run.x)
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
        return self._to.emit(code, *inputs, like=self._run.x)


for _definition in (RNN, LSTM, GRU):
    _definition.host_kernel(run_layer)
    _definition.preparing = prepared_layer
