"""Float LSTMs: LSTM, UNIDIRECTIONAL_SEQUENCE_LSTM, BIDIRECTIONAL_SEQUENCE_LSTM.

One step function serves all three. Sequences multiply the inputs of all time steps at once and loop over time for the
recurrent part alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from nnbridge.operations.declaration import Input, Output, TypeRef, operation, rank, types
from nnbridge.types import OperandCode as T
from nnbridge.types import OperationCode

if TYPE_CHECKING:
    from nnbridge.model import Array
    from nnbridge.operations.call import Arg, Call

Values = npt.NDArray[Any]

GATES = ("input", "forget", "cell", "output")


def sigmoid(x: Values) -> Values:
    """1 / (1 + exp(-x))."""
    return 1 / (1 + np.exp(-x))


_ACTIVATIONS = {
    0: lambda x: x,
    1: lambda x: np.maximum(x, 0),
    2: lambda x: np.clip(x, -1, 1),
    3: lambda x: np.clip(x, 0, 6),
    4: np.tanh,
    6: sigmoid,
}


def recurrent_activation(call: Call) -> Any:
    """The function behind the activation input: 0 none, 1 RELU, 2 RELU1, 3 RELU6, 4 TANH, 6 SIGMOID."""
    code = int(call.scalar("activation"))
    call.require(code in _ACTIVATIONS, "an activation of 0, 1, 2, 3, 4 or 6", code, "activation")
    return _ACTIVATIONS[code]


# -- declarations ----------------------------------------------------------------------------------------------------


def tensor(name: str, kind: TypeRef, dims: int, *, optional: bool = False, role: str = "") -> Input:
    """A tensor input of exactly this rank."""
    return Input(name, kind, role, rank=rank(dims), optional=optional)


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
    """What of an LSTM cell is there, after the rules that tie its optional operands together were checked."""

    units: int
    outputs: int
    cifg: bool
    peephole: bool
    normalised: bool

    @property
    def gates(self) -> tuple[str, ...]:
        """The gates that have weights; with CIFG the input gate is 1 - forget gate."""
        return GATES[1:] if self.cifg else GATES


def together(call: Call, rule: str, *names: str) -> bool:
    """True if all named operands have values, False if none; refused otherwise."""
    present = [call.get(name) is not None for name in names]
    call.require(all(present) or not any(present), f"{rule}: all or none", [n for n, p in zip(names, present, strict=True) if p])
    return all(present)


def check_dims(call: Call, name: str, *dims: int) -> None:
    """Refuse an operand with a value unless it has these dimensions."""
    arg = call.get(name)
    if arg is not None:
        call.require(arg.dims == dims, f"dimensions {list(dims)}", list(arg.dims), name)


def structure(call: Call, prefix: str, inputs: int, cell_bias: str = "cell_bias") -> Structure:
    """Check one cell's operands and tell its structure. ``inputs`` is the size of a time step."""
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
    kept = GATES if has_input else GATES[1:]
    normalised = together(call, "layer norm", *(f"{prefix}{gate}_layer_norm_weights" for gate in kept))
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
    return Structure(units, outputs, not has_input, peephole, normalised)


class _Cell:
    """The weights of one float cell, ready to step."""

    def __init__(self, call: Call, prefix: str, form: Structure) -> None:
        self.form = form
        self.activation = recurrent_activation(call)
        self.cell_clip, self.proj_clip = (np.float32(call.scalar(name)) for name in ("cell_clip", "proj_clip"))

        def stacked(pattern: str) -> Values:
            return np.concatenate([call[prefix + pattern.format(gate)].data for gate in form.gates]).T

        self.input_weights = stacked("input_to_{}_weights")
        self.recurrent_weights = stacked("recurrent_to_{}_weights")
        self.bias = {g: call[f"{prefix}{'cell_bias' if g == 'cell' else g + '_gate_bias'}"].data for g in form.gates}
        self.peephole = {g: _value(call.get(f"{prefix}cell_to_{g}_weights")) for g in form.gates}
        self.norm = {g: _value(call.get(f"{prefix}{g}_layer_norm_weights")) for g in form.gates}
        self.projection = _value(call.get(f"{prefix}projection_weights"))
        self.projection_bias = _value(call.get(f"{prefix}projection_bias"))

    def step(self, products: Values, hidden: Values, cell: Values) -> tuple[Values, Values, dict[str, Values]]:
        """One time step (N110 to N116): hidden state, cell state and the gates' values."""
        sums = products + hidden @ self.recurrent_weights
        raw = dict(zip(self.form.gates, np.split(sums, len(self.form.gates), axis=-1), strict=True))
        forget = sigmoid(self._finished("forget", raw, cell))
        gate = 1 - forget if self.form.cifg else sigmoid(self._finished("input", raw, cell))
        candidate = self.activation(self._finished("cell", raw, None))
        cell = forget * cell + gate * candidate
        if self.cell_clip > 0:
            cell = np.clip(cell, -self.cell_clip, self.cell_clip)
        opening = sigmoid(self._finished("output", raw, cell))
        hidden = opening * self.activation(cell)
        if self.projection is not None:
            hidden = hidden @ self.projection.T
            if self.projection_bias is not None:
                hidden = hidden + self.projection_bias
            if self.proj_clip > 0:
                hidden = np.clip(hidden, -self.proj_clip, self.proj_clip)
        return hidden, cell, {"input": gate, "cell": candidate, "forget": forget, "output": opening}

    def _finished(self, gate: str, raw: dict[str, Values], cell: Values | None) -> Values:
        """A gate's sum with peephole, layer norm and bias."""
        x, peephole, norm = raw[gate], self.peephole.get(gate), self.norm[gate]
        if cell is not None and peephole is not None:
            x = x + peephole * cell
        if norm is not None:
            centred = x - x.mean(axis=-1, keepdims=True)
            x = centred / np.sqrt(np.square(centred).mean(axis=-1, keepdims=True) + np.float32(1e-8)) * norm
        return x + self.bias[gate]

    def sequence(
        self, steps: Values, hidden: Values, cell: Values, *, backward: bool = False, extra: Values | None = None
    ) -> tuple[Values, Values, Values]:
        """Steps [time, batch, size]: outputs [time, batch, outputs] and the last states. ``extra`` adds to the sums."""
        products = steps @ self.input_weights
        if extra is not None:
            products = products + extra
        outputs = np.empty((*products.shape[:2], self.form.outputs), np.float32)
        order = range(len(products))
        for t in reversed(order) if backward else order:
            hidden, cell, _ = self.step(products[t], hidden, cell)
            outputs[t] = hidden
        return outputs, hidden, cell


def _value(arg: Arg | None) -> Values | None:
    return None if arg is None else arg.data


# -- LSTM ------------------------------------------------------------------------------------------------------------

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
    types=_TYPES,
    inputs=[tensor("input", "T", 2), *_CELL, *_STATES, *_SCALARS, *layer_norm_inputs("", "T")],
    counts={23: 1, 27: 3},
    outputs=[
        Output("scratch", "T", "gate values [batch, 4 * units], 3 * units with CIFG; of no use to callers"),
        Output("output_state_out", "T", "new output state [batch, outputs]"),
        Output("cell_state_out", "T", "new cell state [batch, units]"),
        Output("output", "T", "the same values as output_state_out"),
    ],
    shape=_lstm_shape,
    zero_sized=True,
)
def lstm(call: Call) -> Sequence[Array]:
    """The states are the client's to carry from step to step."""
    x = call["input"].data
    cell = _Cell(call, "", structure(call, "", x.shape[1]))
    hidden, state, gates = cell.step(x @ cell.input_weights, call["output_state_in"].data, call["cell_state_in"].data)
    order = ("cell", "forget", "output") if cell.form.cifg else ("input", "cell", "forget", "output")
    return np.concatenate([gates[g] for g in order], axis=-1), hidden, state, hidden


# -- UNIDIRECTIONAL_SEQUENCE_LSTM ------------------------------------------------------------------------------------

TIME_MAJOR = Input("time_major", T.BOOL, "true: [time, batch, size], false: [batch, time, size]")


def time_first(call: Call, x: Values) -> Values:
    """A sequence as [time, batch, size], or back."""
    return x if call.scalar("time_major") else x.swapaxes(0, 1)


def sequence_dims(call: Call) -> tuple[int, int, int]:
    """Time steps, batches and the size of one step."""
    first, second, size = call["input"].dims
    return (first, second, size) if call.scalar("time_major") else (second, first, size)


def in_order(call: Call, steps: int, batch: int, size: int) -> tuple[int, int, int]:
    """Dimensions of a sequence in the client's order."""
    return (steps, batch, size) if call.scalar("time_major") else (batch, steps, size)


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
def unidirectional_sequence_lstm(call: Call) -> Sequence[Array]:
    """Forward over time."""
    steps = time_first(call, call["input"].data)
    cell = _Cell(call, "", structure(call, "", steps.shape[2]))
    outputs, hidden, state = cell.sequence(steps, call["output_state_in"].data, call["cell_state_in"].data)
    return [time_first(call, outputs), hidden, state][: len(call.outs)]


# -- BIDIRECTIONAL_SEQUENCE_LSTM -------------------------------------------------------------------------------------

_DIRECTIONS = ("fw_", "bw_")


def _aux_weights(prefix: str) -> list[Input]:
    return gate_tensors(prefix, "aux_input_to_{}_weights", "T", 2, GATES)


def _linking(call: Call) -> str:
    """How the auxiliary input is used: ``none``, ``parallel`` (backward cell reads it) or ``cross`` (both add it)."""
    names = [f"{prefix}aux_input_to_{gate}_weights" for prefix in _DIRECTIONS for gate in GATES[1:]]
    weights = together(call, "auxiliary weights", *names)
    aux = call.get("aux_input")
    call.require(aux is not None or not weights, "an auxiliary input for auxiliary weights", "none", "aux_input")
    if aux is None:
        return "none"
    return "cross" if weights else "parallel"


def _backward_size(call: Call, linking: str, size: int) -> int:
    return call["aux_input"].dims[2] if linking == "parallel" else size


def _bidirectional_shape(call: Call) -> list[tuple[int, ...]]:
    steps, batch, size = sequence_dims(call)
    linking = _linking(call)
    forms = [structure(call, "fw_", size), structure(call, "bw_", _backward_size(call, linking, size))]
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
    widths = [form.outputs for form in forms]
    merged = bool(call.scalar("merge_outputs"))
    shapes = [in_order(call, steps, batch, n) for n in ([sum(widths)] if merged else widths)]
    states = [(batch, n) for form in forms for n in (form.outputs, form.units)]
    count = len(call.outs)
    rule = f"{len(shapes)} or {len(shapes) + 4} outputs, as merge_outputs says"
    call.require(count in (len(shapes), len(shapes) + 4), rule, count)
    return [*shapes, *states][:count]


@operation(
    OperationCode.BIDIRECTIONAL_SEQUENCE_LSTM,
    since=3,
    summary="LSTMs over a sequence, forwards and backwards.",
    types=_LATER_TYPES,
    inputs=[
        tensor("input", "T", 3),
        *cell_inputs("fw_", "T", "T", "T"),
        *cell_inputs("bw_", "T", "T", "T"),
        *(tensor(f"{p}{kind}_state", "T", 2) for p in _DIRECTIONS for kind in ("activation", "cell")),
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
        *(Output(f"{p}{kind}_state_out", "T", "last state") for p in _DIRECTIONS for kind in ("activation", "cell")),
    ],
    output_counts={1: 3, 2: 3, 5: 4, 6: 4},
    shape=_bidirectional_shape,
    zero_sized=True,
)
def bidirectional_sequence_lstm(call: Call) -> Sequence[Array]:
    """Each direction's outputs stand at their own time index (N118 to N120)."""
    steps, linking = time_first(call, call["input"].data), _linking(call)
    aux = time_first(call, call["aux_input"].data) if linking != "none" else None
    outputs, states = [], []
    for prefix in _DIRECTIONS:
        backward = prefix == "bw_"
        source = aux if backward and linking == "parallel" and aux is not None else steps
        cell = _Cell(call, prefix, structure(call, prefix, source.shape[2]))
        extra = None
        if linking == "cross" and aux is not None:
            names = (f"{prefix}aux_input_to_{gate}_weights" for gate in cell.form.gates)
            extra = aux @ np.concatenate([call[name].data for name in names]).T
        first = call[f"{prefix}activation_state"].data, call[f"{prefix}cell_state"].data
        made, *last = cell.sequence(source, *first, backward=backward, extra=extra)
        outputs.append(made)
        states.extend(last)
    if call.scalar("merge_outputs"):
        outputs = [np.concatenate(outputs, axis=-1)]
    return [*(time_first(call, made) for made in outputs), *states][: len(call.outs)]
