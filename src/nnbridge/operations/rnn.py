"""Simple recurrent cells: RNN, UNIDIRECTIONAL_SEQUENCE_RNN, BIDIRECTIONAL_SEQUENCE_RNN, SVDF."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from nnbridge.model import Array
from nnbridge.operations.call import Call
from nnbridge.operations.declaration import Input, Output, operation, types
from nnbridge.operations.kernels import Compute, prepared
from nnbridge.operations.lstm import check_dims, tensor, together
from nnbridge.operations.recurrence import (
    READS,
    in_order,
    output_rows,
    recurrent_activation,
    sequence_dims,
    steps_of,
    turned,
)
from nnbridge.types import OperandCode as T
from nnbridge.types import OperationCode

_ACTIVATION = Input("activation", T.INT32, "activation: 0 none, 1 RELU, 3 RELU6, 4 TANH, 6 SIGMOID")
_TYPES = [types(1, T=T.TENSOR_FLOAT32), types(3, T=T.TENSOR_FLOAT16)]
_LATER_TYPES = [types(3, T=T.TENSOR_FLOAT32), types(3, T=T.TENSOR_FLOAT16)]


def _cell_inputs(prefix: str, state: str) -> list[Input]:
    return [
        tensor(f"{prefix}weights", "T", 2, role="[units, size]"),
        tensor(f"{prefix}recurrent_weights", "T", 2, role="[units, units]"),
        tensor(f"{prefix}bias", "T", 1, role="[units]"),
        tensor(prefix + state, "T", 2, role="[batch, units]"),
    ]


def _check_cell(call: Call, prefix: str, state: str, batch: int, size: int) -> int:
    units = call[f"{prefix}weights"].dims[0]
    check_dims(call, f"{prefix}weights", units, size)
    check_dims(call, f"{prefix}recurrent_weights", units, units)
    check_dims(call, f"{prefix}bias", units)
    check_dims(call, prefix + state, batch, units)
    return units


Cell = Callable[[Sequence[Array], Array, Array], Array]


def _cell(call: Call, prefix: str, steps: int, batch: int, *, time_major: bool = True, aux: bool = False) -> Cell:
    """From sequences and the state [batch, units] to outputs [time, units, batch], which it fills, and the last state (N121)."""
    activation = recurrent_activation(call)
    weights = [call[f"{prefix}{name}"].data for name in ("weights", *(["aux_weights"] if aux else []))]
    own, bias = call[f"{prefix}recurrent_weights"].data, call[f"{prefix}bias"].data
    recurrent, begin = steps_of(own, weights, bias, steps, batch, time_major)
    order = slice(None, None, -1 if prefix == "bw_" else 1)

    def run(sequences: Sequence[Array], outputs: Array, hidden: Array) -> Array:
        added, hidden = begin(hidden, sequences)
        for step, y in zip(added[order], outputs[order], strict=True):
            recurrent(hidden, y)
            np.add(step, y, y)
            hidden = activation(y, y)
        return hidden.T.copy()

    return run


def _rnn_shape(call: Call) -> list[tuple[int, ...]]:
    batch, size = call["input"].dims
    units = _check_cell(call, "", "hidden_state_in", batch, size)
    return [(batch, units)] * 2


@operation(
    OperationCode.RNN,
    since=1,
    summary="One time step of a simple recurrent cell.",
    types=_TYPES,
    inputs=[tensor("input", "T", 2), *_cell_inputs("", "hidden_state_in"), _ACTIVATION],
    counts={6: 1},
    outputs=[
        Output("hidden_state_out", "T", "new state [batch, units]"),
        Output("output", "T", "the same values"),
    ],
    shape=_rnn_shape,
    handled="executor",
)
@prepared("input", "hidden_state_in")
def rnn(call: Call) -> Compute:
    """activation(bias + W x + R h)."""
    batch, _ = call["input"].dims
    cell, shape = _cell(call, "", 1, batch), (1, call["weights"].dims[0], batch)

    def compute(x: Array, hidden: Array) -> Sequence[Array]:
        outputs = np.empty(shape, np.float32)
        last = cell([x[None]], outputs, hidden)
        return last, last.copy()

    return compute


def _unidirectional_shape(call: Call) -> list[tuple[int, ...]]:
    major = int(call.scalar("time_major"))
    call.require(major in (0, 1), "time_major of 0 or 1", major, "time_major")
    steps, batch, size = sequence_dims(call)
    units = _check_cell(call, "", "hidden_state", batch, size)
    shapes: list[tuple[int, ...]] = [in_order(call, steps, batch, units), (batch, units)]
    return shapes[: len(call.outs)]


@operation(
    OperationCode.UNIDIRECTIONAL_SEQUENCE_RNN,
    since=3,
    summary="A simple recurrent cell over a sequence.",
    types=_LATER_TYPES,
    inputs=[
        tensor("input", "T", 3),
        *_cell_inputs("", "hidden_state"),
        _ACTIVATION,
        Input("time_major", T.INT32, "1: [time, batch, size], 0: [batch, time, size]"),
    ],
    outputs=[Output("output", "T", "outputs of every step"), Output("hidden_state_out", "T", "last state [batch, units]")],
    output_counts={1: 3, 2: 4},
    shape=_unidirectional_shape,
)
@prepared("input", "hidden_state")
def unidirectional_sequence_rnn(call: Call) -> Compute:
    """Forward over time."""
    steps, batch, _ = sequence_dims(call)
    cell = _cell(call, "", steps, batch, time_major=bool(call.scalar("time_major")))
    make, count = output_rows(call, [call["weights"].dims[0]]), len(call.outs)

    def compute(x: Array, hidden: Array) -> Sequence[Array]:
        outputs, [rows] = make()
        return [*outputs, cell([x], rows, hidden)][:count]

    return compute


def _linking(call: Call) -> str:
    """How the auxiliary input is used: ``none``, ``parallel`` (backward cell reads it) or ``cross`` (both add it)."""
    weights = together(call, "auxiliary weights", "fw_aux_weights", "bw_aux_weights")
    aux = call.get("aux_input")
    call.require(aux is not None or not weights, "an auxiliary input for auxiliary weights", "none", "aux_input")
    if aux is None:
        return "none"
    return "cross" if weights else "parallel"


def _bidirectional_shape(call: Call) -> list[tuple[int, ...]]:
    steps, batch, size = sequence_dims(call)
    linking = _linking(call)
    backward_size = call["aux_input"].dims[2] if linking == "parallel" else size
    units = [
        _check_cell(call, "fw_", "hidden_state", batch, size),
        _check_cell(call, "bw_", "hidden_state", batch, backward_size),
    ]
    if linking == "cross":
        for prefix, count in zip(("fw_", "bw_"), units, strict=True):
            check_dims(call, f"{prefix}aux_weights", count, call["aux_input"].dims[2])
    merged = bool(call.scalar("merge_outputs"))
    shapes = [in_order(call, steps, batch, n) for n in ([sum(units)] if merged else units)]
    count = len(call.outs)
    rule = f"{len(shapes)} or {len(shapes) + 2} outputs, as merge_outputs says"
    call.require(count in (len(shapes), len(shapes) + 2), rule, count)
    return [*shapes, *((batch, n) for n in units)][:count]


@operation(
    OperationCode.BIDIRECTIONAL_SEQUENCE_RNN,
    since=3,
    summary="Simple recurrent cells over a sequence, forwards and backwards.",
    types=_LATER_TYPES,
    inputs=[
        tensor("input", "T", 3),
        *_cell_inputs("fw_", "hidden_state"),
        *_cell_inputs("bw_", "hidden_state"),
        tensor("aux_input", "T", 3, optional=True),
        tensor("fw_aux_weights", "T", 2, optional=True),
        tensor("bw_aux_weights", "T", 2, optional=True),
        _ACTIVATION,
        Input("time_major", T.BOOL, "true: [time, batch, size], false: [batch, time, size]"),
        Input("merge_outputs", T.BOOL, "true: one output, forward first"),
    ],
    outputs=[
        Output("fw_output", "T", "forward outputs, or both if merged"),
        Output("bw_output", "T", "backward outputs; absent if merged"),
        Output("fw_hidden_state_out", "T", "last forward state"),
        Output("bw_hidden_state_out", "T", "last backward state"),
    ],
    output_counts={1: 3, 2: 3, 3: 4, 4: 4},
    shape=_bidirectional_shape,
)
@prepared("input", "fw_hidden_state", "bw_hidden_state", "aux_input")
def bidirectional_sequence_rnn(call: Call) -> Compute:
    """Each direction's outputs stand at their own time index."""
    steps, batch, _ = sequence_dims(call)
    linking, time_major = _linking(call), bool(call.scalar("time_major"))
    cells = [_cell(call, prefix, steps, batch, time_major=time_major, aux=linking == "cross") for prefix in ("fw_", "bw_")]
    sizes = [call[f"{prefix}weights"].dims[0] for prefix in ("fw_", "bw_")]
    make, count = output_rows(call, sizes, bool(call.scalar("merge_outputs"))), len(call.outs)
    reads = READS[linking]

    def compute(x: Array, forward: Array, backward: Array, *aux: Array) -> Sequence[Array]:
        sequences = x, *aux
        outputs, rows = make()
        for k, (cell, hidden) in enumerate(zip(cells, (forward, backward), strict=True)):
            outputs.append(cell([sequences[i] for i in reads[k]], rows[k], hidden))
        return outputs[:count]

    return compute


def _svdf_shape(call: Call) -> list[tuple[int, ...]]:
    batch, size = call["input"].dims
    filters, memory = call["weights_time"].dims
    group = int(call.scalar("rank"))
    call.require(memory > 0, "a memory of at least 1", memory, "weights_time")
    call.require(group > 0 and filters % group == 0, f"a rank that divides {filters} filters", group, "rank")
    check_dims(call, "weights_feature", filters, size)
    check_dims(call, "bias", filters // group)
    check_dims(call, "state_in", batch, memory * filters)
    return [(batch, memory * filters), (batch, filters // group)]


@operation(
    OperationCode.SVDF,
    since=1,
    summary="A convolution over time of rank-reduced filters, one time step.",
    types=_TYPES,
    inputs=[
        tensor("input", "T", 2, role="[batch, size]"),
        tensor("weights_feature", "T", 2, role="[filters, size]"),
        tensor("weights_time", "T", 2, role="[filters, memory]"),
        tensor("bias", "T", 1, optional=True, role="[filters / rank]"),
        tensor("state_in", "T", 2, role="[batch, memory * filters]"),
        Input("rank", T.INT32, "filters that make one unit"),
        _ACTIVATION,
    ],
    counts={7: 1},
    outputs=[
        Output("state_out", "T", "the state moved on by one step"),
        Output("output", "T", "[batch, filters / rank]"),
    ],
    shape=_svdf_shape,
    zero_sized=True,
)
@prepared("input", "state_in")
def svdf(call: Call) -> Compute:
    """N123, N124: the state is memory * filters wide, and its last column is free on the way out."""
    batch, (filters, memory) = call["input"].dims[0], call["weights_time"].dims
    units, length = filters // int(call.scalar("rank")), batch * filters * memory
    features = turned(call["weights_feature"].data, batch)
    # The filters of a unit follow each other: what they add up to is one sum.
    in_time = np.tile(call["weights_time"].data.reshape(units, -1), (batch, 1))
    ones, shape = np.ones(in_time.shape[1], np.float32), (batch, units)
    activation, bias = recurrent_activation(call), call.get("bias")
    added = None if bias is None else bias.data

    def compute(x: Array, state: Array) -> Sequence[Array]:
        # The state that moved on by one step is the state as it stands one place later.
        line = np.empty(length + 1, np.float32)
        now, moved = line[:-1], line[1:]
        now[...] = state.reshape(-1)
        now[memory - 1 :: memory] = x.dot(features).reshape(-1)
        sums = np.empty(shape, np.float32)
        (now.reshape(in_time.shape) * in_time).dot(ones, sums.reshape(-1))
        if added is not None:
            sums += added
        moved[memory - 1 :: memory] = 0
        return moved.reshape(state.shape).copy(), activation(sums, sums)

    return compute
