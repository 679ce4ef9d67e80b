"""Simple recurrent cells: RNN, UNIDIRECTIONAL_SEQUENCE_RNN, BIDIRECTIONAL_SEQUENCE_RNN, SVDF."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from nnbridge.operations.declaration import Input, Output, operation, types
from nnbridge.operations.recurrent import (
    check_dims,
    in_order,
    recurrent_activation,
    sequence_dims,
    tensor,
    time_first,
    together,
)
from nnbridge.types import OperandCode as T
from nnbridge.types import OperationCode

if TYPE_CHECKING:
    from nnbridge.model import Array
    from nnbridge.operations.call import Call

Values = npt.NDArray[Any]

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


def _sequence(call: Call, prefix: str, state: str, steps: Values, extra: Values | None, backward: bool) -> tuple[Values, Values]:
    """Steps [time, batch, size]: outputs and the last state (N121)."""
    activation = recurrent_activation(call)
    recurrent = call[f"{prefix}recurrent_weights"].data.T
    products = call[f"{prefix}bias"].data + steps @ call[f"{prefix}weights"].data.T
    if extra is not None:
        products = products + extra
    hidden = call[prefix + state].data
    outputs = np.empty(products.shape, np.float32)
    order = range(len(products))
    for t in reversed(order) if backward else order:
        hidden = activation(products[t] + hidden @ recurrent)
        outputs[t] = hidden
    return outputs, hidden


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
def rnn(call: Call) -> Sequence[Array]:
    """activation(bias + W x + R h)."""
    outputs, hidden = _sequence(call, "", "hidden_state_in", call["input"].data[None], None, False)
    return hidden, outputs[0]


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
def unidirectional_sequence_rnn(call: Call) -> Sequence[Array]:
    """Forward over time."""
    steps = time_first(call, call["input"].data)
    outputs, hidden = _sequence(call, "", "hidden_state", steps, None, False)
    return [time_first(call, outputs), hidden][: len(call.outs)]


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
def bidirectional_sequence_rnn(call: Call) -> Sequence[Array]:
    """Each direction's outputs stand at their own time index."""
    steps, linking = time_first(call, call["input"].data), _linking(call)
    aux = time_first(call, call["aux_input"].data) if linking != "none" else None
    outputs, states = [], []
    for prefix, backward in (("fw_", False), ("bw_", True)):
        source = aux if backward and linking == "parallel" and aux is not None else steps
        extra = aux @ call[f"{prefix}aux_weights"].data.T if linking == "cross" and aux is not None else None
        made, last = _sequence(call, prefix, "hidden_state", source, extra, backward)
        outputs.append(made)
        states.append(last)
    if call.scalar("merge_outputs"):
        outputs = [np.concatenate(outputs, axis=-1)]
    return [*(time_first(call, made) for made in outputs), *states][: len(call.outs)]


def _svdf_shape(call: Call) -> list[tuple[int, ...]]:
    batch, size = call["input"].dims
    filters, memory = call["weights_time"].dims
    group = int(call.scalar("rank"))
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
def svdf(call: Call) -> Sequence[Array]:
    """N123, N124: the state is memory * filters wide, and its last column is free on the way out."""
    x, bias = call["input"].data, call.get("bias")
    filters, memory = call["weights_time"].dims
    state = call["state_in"].data.reshape(len(x), filters, memory).copy()
    state[:, :, -1] = x @ call["weights_feature"].data.T
    values = (state * call["weights_time"].data).sum(axis=-1)
    units = values.reshape(len(x), -1, int(call.scalar("rank"))).sum(axis=-1)
    if bias is not None:
        units = units + bias.data
    moved = np.zeros_like(state)
    moved[:, :, :-1] = state[:, :, 1:]
    return moved.reshape(len(x), -1), recurrent_activation(call)(units)
