"""Float LSTMs: LSTM, UNIDIRECTIONAL_SEQUENCE_LSTM, BIDIRECTIONAL_SEQUENCE_LSTM.

One cell serves all three. The inputs of all time steps are multiplied at once, and the loop over time is left with the
recurrent part.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from nnbridge.model import Array
from nnbridge.operations import work
from nnbridge.operations.call import Call
from nnbridge.operations.declaration import Input, Output, TypeRef, operation, types
from nnbridge.operations.kernels import Compute, prepared
from nnbridge.operations.rnn import (
    ONE,
    READS,
    Activation,
    auxiliary,
    backward_size,
    check_dims,
    in_order,
    limited,
    output_rows,
    recurrent_activation,
    sequence_dims,
    sequence_shapes,
    steps_of,
    tensor,
    times,
    together,
)
from nnbridge.records import dataclass
from nnbridge.types import OperandCode as T
from nnbridge.types import OperationCode

_TINY = np.array(1e-8, np.float32)
GATES = ("input", "forget", "cell", "output")


# -- declarations ----------------------------------------------------------------------------------------------------


def gate_tensors(prefix: str, pattern: str, kind: TypeRef, dims: int, optional: Sequence[str]) -> list[Input]:
    """One tensor for each gate; ``pattern`` has ``{}`` where the gate's name goes."""
    return [tensor(prefix + pattern.format(gate), kind, dims, optional=gate in optional) for gate in GATES]


def cell_inputs(prefix: str, weights: TypeRef, peephole: TypeRef, bias: TypeRef, names: str = "cell_bias") -> list[Input]:
    """Weights, peepholes, biases and projection of one cell, in NNAPI's order."""
    cell_to = [tensor(f"{prefix}cell_to_{g}_weights", peephole, 1, optional=True) for g in ("input", "forget", "output")]
    biases = [
        tensor(f"{prefix}input_gate_bias", bias, 1, optional=True),
        tensor(f"{prefix}forget_gate_bias", bias, 1),
        tensor(prefix + names, bias, 1),
        tensor(f"{prefix}output_gate_bias", bias, 1),
    ]
    return [
        *gate_tensors(prefix, "input_to_{}_weights", weights, 2, ("input",)),
        *gate_tensors(prefix, "recurrent_to_{}_weights", weights, 2, ("input",)),
        *cell_to,
        *biases,
        tensor(f"{prefix}projection_weights", weights, 2, optional=True),
        tensor(f"{prefix}projection_bias", bias, 1, optional=True),
    ]


def layer_norm_inputs(prefix: str, kind: TypeRef) -> list[Input]:
    """Layer-norm weights, all optional."""
    return gate_tensors(prefix, "{}_layer_norm_weights", kind, 1, GATES)


_SCALARS = [
    Input("activation", T.INT32, "activation: 0 none, 1 RELU, 3 RELU6, 4 TANH, 6 SIGMOID"),
    Input("cell_clip", "S", "clip of the cell state; 0 for none"),
    Input("proj_clip", "S", "clip of the projection; 0 for none"),
]
_TYPES = [types(1, T=T.TENSOR_FLOAT32, S=T.FLOAT32), types(3, T=T.TENSOR_FLOAT16, S=T.FLOAT16)]
_LATER_TYPES = [types(3, T=T.TENSOR_FLOAT32, S=T.FLOAT32), types(3, T=T.TENSOR_FLOAT16, S=T.FLOAT16)]


# -- one cell --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Structure:
    """The parts of an LSTM cell that are there, after the rules that tie its optional operands together were checked."""

    units: int
    outputs: int
    cifg: bool
    peephole: bool
    normalised: bool
    projected: bool

    @property
    def gates(self) -> tuple[str, ...]:
        """The gates that have weights; with CIFG the input gate is 1 - forget gate."""
        return GATES[1:] if self.cifg else GATES


def structure(call: Call, prefix: str, inputs: int, cell_bias: str = "cell_bias") -> Structure:
    """Check one cell's operands and return its structure. ``inputs`` is the size of a time step."""
    units = call[f"{prefix}input_to_output_weights"].dims[0]
    outputs = call[f"{prefix}recurrent_to_output_weights"].dims[1]
    has_input = together(
        call, "the input gate's weights", f"{prefix}input_to_input_weights", f"{prefix}recurrent_to_input_weights"
    )
    bias = call.get(f"{prefix}input_gate_bias") is not None
    call.require(bias == has_input, "an input gate bias exactly without CIFG", bias, f"{prefix}input_gate_bias")
    peephole = together(call, "peepholes", f"{prefix}cell_to_forget_weights", f"{prefix}cell_to_output_weights")
    own = call.get(f"{prefix}cell_to_input_weights") is not None
    call.require(own == (peephole and has_input) or (peephole and not has_input), "peepholes of all gates", own)
    gates = GATES if has_input else GATES[1:]
    normalised = together(call, "layer norm", *(f"{prefix}{gate}_layer_norm_weights" for gate in gates))
    if not has_input:
        name = f"{prefix}input_layer_norm_weights"
        call.require(call.get(name) is None, "no layer norm of an absent input gate", "one", name)
    for gate in GATES:
        check_dims(call, f"{prefix}input_to_{gate}_weights", units, inputs)
        check_dims(call, f"{prefix}recurrent_to_{gate}_weights", units, outputs)
        check_dims(call, f"{prefix}cell_to_{gate}_weights", units)
        check_dims(call, f"{prefix}{gate}_layer_norm_weights", units)
        check_dims(call, f"{prefix}{cell_bias}" if gate == "cell" else f"{prefix}{gate}_gate_bias", units)
    check_dims(call, f"{prefix}projection_weights", outputs, units)
    check_dims(call, f"{prefix}projection_bias", outputs)
    projected = call.get(f"{prefix}projection_weights") is not None
    call.require(projected or units == outputs, f"{units} outputs without a projection", outputs, f"{prefix}projection_weights")
    return Structure(units, outputs, not has_input, peephole, normalised, projected)


_ORDER = ("output", "forget", "input", "cell")
"""How a cell's gates follow each other, in blocks of rows."""

_STATE = 3
"""The index of the cell state in what :meth:`_Cell.run` leaves over."""


class _Cell:
    """One float cell over sequences of so many time steps and batches.

    All gates but the last are sigmoids. Their weights are negated, so that 1 + exp of their sums is what divides by them.
    """

    def __init__(
        self, call: Call, prefix: str, form: Structure, steps: int, batch: int, *, time_major: bool = True, aux: bool = False
    ) -> None:
        gates = [gate for gate in _ORDER if gate in form.gates]

        def stacked(pattern: str, names: Sequence[str] = gates) -> Array:
            stack = np.concatenate([call[prefix + pattern.format(gate)].data for gate in names])
            sigmoids = stack[: form.units * sum(gate != "cell" for gate in names)]
            np.negative(sigmoids, sigmoids)
            return stack

        def columns(values: Array, names: Sequence[str] = gates) -> Array:
            return np.repeat(values.reshape(len(names), form.units, 1), batch, axis=2)

        bias = np.concatenate([stacked("{}_gate_bias", gates[:-1]), stacked("{}_bias", gates[-1:])])
        weights = [stacked(pattern) for pattern in ("input_to_{}_weights", *(["aux_input_to_{}_weights"] if aux else []))]
        self._form = form
        self._backward = prefix == "bw_"
        # After layer norm, biases come last.
        first = np.zeros_like(bias) if form.normalised else bias
        self._recurrent, self._begin = steps_of(stacked("recurrent_to_{}_weights"), weights, first, steps, batch, time_major)
        self._peephole = columns(stacked("cell_to_{}_weights", gates[:-1]), gates[:-1]) if form.peephole else None
        self._bias = columns(bias)
        self._norm = None
        if form.normalised:
            self._norm = columns(np.concatenate([call[f"{prefix}{gate}_layer_norm_weights"].data for gate in gates]))
        self._activation = recurrent_activation(call)
        self._cell_limit = _limit(call, "cell_clip")
        self._projection = _projection(call, prefix, batch) if form.projected else None

    def run(self, sequences: Sequence[Array], outputs: Array, hidden: Array, cell: Array) -> tuple[Array, Array]:
        """All time steps (N110 to N116), from states [batch, n] to outputs [time, outputs, batch].

        What is left over: the last hidden state, and of the last step what divides by the output gate, what divides by the forget
        and the input gate (with CIFG these gates themselves), cell state and candidate [5, units, batch].
        """
        units, batch = self._form.units, len(cell)
        late, cifg, activation = self._form.peephole, self._form.cifg, self._activation
        recurrent, cell_limit, project = self._recurrent, self._cell_limit, self._projection

        sums = np.empty((len(self._form.gates) * units, batch), np.float32)
        left = np.empty((5, units, batch), np.float32)
        opening, forget, entering, state, candidate = left
        rows = left.reshape(5 * units, batch)
        gates, pairs = rows[units : 3 * units], rows[3 * units :]
        # The output gate's peephole looks at the new state: that gate has to wait.
        first = units if late else 0
        open_sums, early_sums, candidate_sums = sums[:units], sums[first:-units], sums[-units:]
        early = rows[first : first + len(early_sums)]
        # Where the sums of other gates have been: they were looked at by then.
        parts = sums[units : 3 * units]
        retained, new = parts[:units], parts[units:]
        order = slice(None, None, -1 if self._backward else 1)
        apply = np.multiply if cifg else np.divide
        finish_late = self._finishing(sums, slice(1), state) if late else []
        finish_early = self._finishing(sums, slice(1 if late else 0, None), state)

        state[...] = cell.T
        added, hidden = self._begin(hidden, sequences)
        for step, y in zip(added[order], outputs[order], strict=True):
            recurrent(hidden, sums)
            np.add(sums, step, sums)
            for finish in finish_early:
                finish()
            np.exp(early_sums, early)
            np.add(early, ONE, early)
            if cifg:
                np.reciprocal(forget, forget)
                np.subtract(ONE, forget, entering)
            activation(candidate_sums, candidate)
            apply(pairs, gates, parts)
            np.add(retained, new, state)
            if cell_limit is not None:
                cell_limit(state, state)
            if late:
                for finish in finish_late:
                    finish()
                np.exp(open_sums, opening)
                np.add(opening, ONE, opening)
            target = y if project is None else open_sums
            activation(state, target)
            np.divide(target, opening, target)
            if project is not None:
                project(target, y)
            hidden = y
        return hidden.T.copy(), left

    def _finishing(self, sums: Array, gates: slice, state: Array) -> list[Callable[[], None]]:
        """Functions that change these gates' sums, in place, before their activations."""
        blocks, steps = sums.reshape(len(self._form.gates), *state.shape)[gates], []
        if self._peephole is not None:
            steps.append(_looking(blocks, self._peephole[gates], state))
        if self._norm is not None:
            steps.append(_normalising(blocks, self._norm[gates], self._bias[gates]))
        return steps


def _looking(blocks: Array, peephole: Array, state: Array) -> Callable[[], None]:
    """Adds peepholes to the first blocks."""
    x, buffer = blocks[: len(peephole)], np.empty_like(peephole)

    def look() -> None:
        np.multiply(peephole, state, buffer)
        np.add(x, buffer, x)

    return look


def _normalising(x: Array, norm: Array, bias: Array) -> Callable[[], None]:
    """Layer norm over each block's rows."""
    buffer, count = np.empty_like(x), x.shape[1]

    def normalise() -> None:
        mean = np.add.reduce(x, 1, keepdims=True)
        mean /= count
        np.subtract(x, mean, x)
        spread = np.add.reduce(np.square(x, buffer), 1, keepdims=True)
        spread /= count
        np.add(spread, _TINY, spread)
        np.divide(x, np.sqrt(spread, spread), x)
        np.multiply(x, norm, x)
        np.add(x, bias, x)

    return normalise


def _limit(call: Call, name: str) -> Activation | None:
    """The clip of a scalar; 0 is for none."""
    clip = float(call.scalar(name))
    return limited(-clip, clip) if clip > 0 else None


def _projection(call: Call, prefix: str, batch: int) -> Activation:
    """From rows of units to rows of outputs."""
    project = times(call[f"{prefix}projection_weights"].data, batch)
    bias, limit = call.get(f"{prefix}projection_bias"), _limit(call, "proj_clip")
    column = None if bias is None else np.repeat(bias.data[:, None], batch, axis=1)

    def projected(x: Array, out: Array) -> Array:
        project(x, out)
        if column is not None:
            np.add(out, column, out)
        return out if limit is None else limit(out, out)

    return projected


_CELL = cell_inputs("", "T", "T", "T")
_STATES = [tensor("output_state_in", "T", 2), tensor("cell_state_in", "T", 2)]


def _check_clips(call: Call) -> None:
    for name in ("cell_clip", "proj_clip"):
        call.require(call.scalar(name) >= 0, "a clip of at least 0", call.scalar(name), name)


def _lstm_shape(call: Call) -> list[tuple[int, ...]]:
    batch, size = call["input"].dims
    form = structure(call, "", size)
    _check_clips(call)
    check_dims(call, "output_state_in", batch, form.outputs)
    check_dims(call, "cell_state_in", batch, form.units)
    return [(batch, len(form.gates) * form.units), (batch, form.outputs), (batch, form.units), (batch, form.outputs)]


@operation(
    OperationCode.LSTM,
    since=1,
    summary="One time step of an LSTM cell.",
    work=work.CELL,
    types=_TYPES,
    inputs=[tensor("input", "T", 2), *_CELL, *_STATES, *_SCALARS, *layer_norm_inputs("", "T")],
    counts={23: 1, 27: 3},
    outputs=[
        Output("scratch", "T", "scratch: gate values [batch, 4 * units], 3 * units with CIFG"),
        Output("output_state_out", "T", "new output state [batch, outputs]"),
        Output("cell_state_out", "T", "new cell state [batch, units]"),
        Output("output", "T", "the same values as output_state_out"),
    ],
    shape=_lstm_shape,
    zero_sized=True,
)
@prepared("input", "output_state_in", "cell_state_in")
def lstm(call: Call) -> Compute:
    """The states are the client's to carry from step to step."""
    batch, size = call["input"].dims
    form = structure(call, "", size)
    cell = _Cell(call, "", form, 1, batch)
    # Of what a cell leaves over, what divides by gates, and candidate and gates as they come out.
    sigmoids, order = (slice(1), [4, 1, 0]) if form.cifg else (slice(3), [2, 4, 1, 0])

    def compute(x: Array, hidden: Array, state: Array) -> Sequence[Array]:
        outputs = np.empty((1, form.outputs, batch), np.float32)
        last, left = cell.run([x[None]], outputs, hidden, state)
        np.reciprocal(left[sigmoids], left[sigmoids])
        return left[order].reshape(-1, batch).T.copy(), last, left[_STATE].T.copy(), last.copy()

    return compute


TIME_MAJOR = Input("time_major", T.BOOL, "true: [time, batch, size], false: [batch, time, size]")


def _sequence_shape(call: Call) -> list[tuple[int, ...]]:
    steps, batch, size = sequence_dims(call)
    form = structure(call, "", size)
    check_dims(call, "output_state_in", batch, form.outputs)
    check_dims(call, "cell_state_in", batch, form.units)
    shapes: list[tuple[int, ...]] = [in_order(call, steps, batch, form.outputs), (batch, form.outputs), (batch, form.units)]
    return shapes[: len(call.outs)]


@operation(
    OperationCode.UNIDIRECTIONAL_SEQUENCE_LSTM,
    since=3,
    summary="An LSTM over a sequence.",
    work=work.LAYER,
    types=_LATER_TYPES,
    inputs=[tensor("input", "T", 3), *_CELL, *_STATES, *_SCALARS, TIME_MAJOR, *layer_norm_inputs("", "T")],
    outputs=[
        Output("output", "T", "outputs of every step"),
        Output("output_state_out", "T", "last output state [batch, outputs]"),
        Output("cell_state_out", "T", "last cell state [batch, units]"),
    ],
    output_counts={1: 3, 3: 4},
    shape=_sequence_shape,
)
@prepared("input", "output_state_in", "cell_state_in")
def unidirectional_sequence_lstm(call: Call) -> Compute:
    """Forward over time."""
    steps, batch, size = sequence_dims(call)
    form = structure(call, "", size)
    cell = _Cell(call, "", form, steps, batch, time_major=bool(call.scalar("time_major")))
    allocate, count = output_rows(call, [form.outputs]), len(call.outs)

    def compute(x: Array, hidden: Array, state: Array) -> Sequence[Array]:
        outputs, [rows] = allocate()
        last, left = cell.run([x], rows, hidden, state)
        return [*outputs, last, left[_STATE].T.copy()][:count]

    return compute


_DIRECTIONS = ("fw_", "bw_")
_AUX_WEIGHTS = [f"{prefix}aux_input_to_{gate}_weights" for prefix in _DIRECTIONS for gate in GATES[1:]]
_BOTH_STATES = [f"{prefix}{kind}_state" for prefix in _DIRECTIONS for kind in ("activation", "cell")]


def _aux_weights(prefix: str) -> list[Input]:
    return gate_tensors(prefix, "aux_input_to_{}_weights", "T", 2, GATES)


def _bidirectional_shape(call: Call) -> list[tuple[int, ...]]:
    _, batch, size = sequence_dims(call)
    linking = auxiliary(call, _AUX_WEIGHTS)
    forms = [structure(call, "fw_", size), structure(call, "bw_", backward_size(call, linking, size))]
    _check_clips(call)
    aux = call.get("aux_input")
    if aux is not None:
        call.require(aux.dims[:2] == call["input"].dims[:2], "the input's time and batch", list(aux.dims), "aux_input")
    for prefix, form in zip(_DIRECTIONS, forms, strict=True):
        check_dims(call, f"{prefix}activation_state", batch, form.outputs)
        check_dims(call, f"{prefix}cell_state", batch, form.units)
        if linking == "cross":
            for gate in form.gates:
                check_dims(call, f"{prefix}aux_input_to_{gate}_weights", form.units, call["aux_input"].dims[2])
    states = [(batch, n) for form in forms for n in (form.outputs, form.units)]
    return sequence_shapes(call, [form.outputs for form in forms], states)


@operation(
    OperationCode.BIDIRECTIONAL_SEQUENCE_LSTM,
    since=3,
    summary="LSTMs over a sequence, forwards and backwards.",
    work=work.TWO_LAYERS,
    types=_LATER_TYPES,
    inputs=[
        tensor("input", "T", 3),
        *cell_inputs("fw_", "T", "T", "T"),
        *cell_inputs("bw_", "T", "T", "T"),
        *(tensor(name, "T", 2) for name in _BOTH_STATES),
        tensor("aux_input", "T", 3, optional=True),
        *_aux_weights("fw_"),
        *_aux_weights("bw_"),
        *_SCALARS,
        Input("merge_outputs", T.BOOL, "true: one output, forward first"),
        TIME_MAJOR,
        *layer_norm_inputs("fw_", "T"),
        *layer_norm_inputs("bw_", "T"),
    ],
    outputs=[
        Output("fw_output", "T", "forward outputs, or both if merged"),
        Output("bw_output", "T", "backward outputs; absent if merged"),
        *(Output(f"{name}_out", "T", "last state") for name in _BOTH_STATES),
    ],
    output_counts={1: 3, 2: 3, 5: 4, 6: 4},
    shape=_bidirectional_shape,
    zero_sized=True,
)
@prepared("input", *_BOTH_STATES, "aux_input")
def bidirectional_sequence_lstm(call: Call) -> Compute:
    """Each direction's outputs are at their own time index (N118 to N120)."""
    steps, batch, size = sequence_dims(call)
    linking, time_major = auxiliary(call, _AUX_WEIGHTS), bool(call.scalar("time_major"))
    sizes = size, backward_size(call, linking, size)
    forms = [structure(call, prefix, n) for prefix, n in zip(_DIRECTIONS, sizes, strict=True)]
    cells = [
        _Cell(call, prefix, form, steps, batch, time_major=time_major, aux=linking == "cross")
        for prefix, form in zip(_DIRECTIONS, forms, strict=True)
    ]
    allocate = output_rows(call, [form.outputs for form in forms], bool(call.scalar("merge_outputs")))
    reads, count = READS[linking], len(call.outs)

    def compute(x: Array, *others: Array) -> Sequence[Array]:
        sequences = x, *others[4:]
        outputs, rows = allocate()
        for k, cell in enumerate(cells):
            last, left = cell.run([sequences[i] for i in reads[k]], rows[k], *others[2 * k : 2 * k + 2])
            outputs += [last, left[_STATE].T.copy()]
        return outputs[:count]

    return compute
