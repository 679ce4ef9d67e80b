"""Simple recurrent cells: RNN, UNIDIRECTIONAL_SEQUENCE_RNN, BIDIRECTIONAL_SEQUENCE_RNN, SVDF; what float LSTMs share with them.

The members of a batch are columns in a cell, so that a gate's values are one block of memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np

from nnbridge.model import Array
from nnbridge.operations import work
from nnbridge.operations.call import Call
from nnbridge.operations.declaration import Input, Output, TypeRef, operation, rank, tensors
from nnbridge.operations.kernels import Compute, prepared
from nnbridge.operations.numerics import current, real_product
from nnbridge.types import OperandCode as T
from nnbridge.types import OperationCode

# -- operands --------------------------------------------------------------------------------------------------------


def tensor(name: str, kind: TypeRef, dims: int, *, optional: bool = False, role: str = "") -> Input:
    """A tensor input of exactly this rank."""
    return Input(name, kind, role, rank=rank(dims), optional=optional)


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


def auxiliary(call: Call, weights: Sequence[str]) -> str:
    """The use of the auxiliary input: ``none``, ``parallel`` (backward cell reads it) or ``cross`` (both add it)."""
    weighted = together(call, "auxiliary weights", *weights)
    aux = call.get("aux_input")
    call.require(aux is not None or not weighted, "an auxiliary input for auxiliary weights", "none", "aux_input")
    if aux is None:
        return "none"
    return "cross" if weighted else "parallel"


def backward_size(call: Call, linking: str, size: int) -> int:
    """The size of a time step that the backward cell reads."""
    return call["aux_input"].dims[2] if linking == "parallel" else size


def sequence_shapes(call: Call, sizes: Sequence[int], states: Sequence[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """The outputs of both directions, merged or not, and the states, which may be left out."""
    steps, batch, _ = sequence_dims(call)
    shapes = [in_order(call, steps, batch, n) for n in ([sum(sizes)] if call.scalar("merge_outputs") else sizes)]
    count, every = len(call.outs), len(shapes) + len(states)
    call.require(count in (len(shapes), every), f"{len(shapes)} or {every} outputs, as merge_outputs says", count)
    return [*shapes, *states][:count]


Activation: TypeAlias = Callable[[Array, Array], Array]
"""From values and the array for the results (maybe their own) to the results."""

# NumPy is twice as fast with an array without dimensions as with a number of Python's.
ONE = np.array(1, np.float32)


def _sigmoid(x: Array, out: Array) -> Array:
    """1 / (1 + exp(-x))."""
    np.negative(x, out)
    np.exp(out, out)
    np.add(out, ONE, out)
    return np.reciprocal(out, out)


def limited(low: float, high: float) -> Activation:
    """Values clamped to two limits."""
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
    """The function of the activation input: 0 none, 1 RELU, 2 RELU1, 3 RELU6, 4 TANH, 6 SIGMOID."""
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
"""So few weights multiply a single column faster if their transpose is contiguous."""


def transposed(weights: Array, columns: int) -> Array:
    """Weights [rows, size] as [size, rows], for values [columns, size] to be multiplied with."""
    return np.ascontiguousarray(weights.T) if columns == 1 and weights.size <= _SMALL else weights.T


def times(weights: Array, columns: int) -> Callable[..., Array]:
    """From values [size, columns], and maybe where the result goes, to weights [rows, size] times them."""
    if current().sums == "blas":
        return transposed(weights, columns).T.dot
    multiply = real_product()
    return lambda values, out=None: multiply(weights, values, out=out)


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
    multiply, plain = real_product(), current().sums == "blas"

    def product(w: Array, x: Array) -> Array:
        if batch > 1:
            return multiply(w, x.transpose(axes))
        rows = x.reshape(steps, w.shape[1])
        return (rows.dot(w.T) if plain else multiply(rows, w.T))[..., None]

    def begin(hidden: Array, sequences: Sequence[Array]) -> tuple[Array, Array]:
        sums, *others = [product(w, x) for w, x in zip(weights, sequences, strict=True)]
        sums += column
        for other in others:
            sums += other
        return sums, hidden.T

    return times(recurrent, batch), begin


def output_rows(call: Call, sizes: Sequence[int], merged: bool = False) -> Callable[[], tuple[list[Array], list[Array]]]:
    """Allocates output sequences of these sizes: as the client sees them, and as [time, size, batch] for each of them."""
    steps, batch, _ = sequence_dims(call)
    wholes = [sum(sizes)] if merged else sizes
    parts = [slice(sum(sizes[:k]), sum(sizes[: k + 1])) for k in range(len(sizes))]
    seen, computed = [in_order(call, steps, batch, size) for size in wholes], [(steps, size, batch) for size in wholes]
    axes = (0, 2, 1) if call.scalar("time_major") else (2, 0, 1)

    def allocate() -> tuple[list[Array], list[Array]]:
        if batch == 1:
            outputs = [np.empty(shape, np.float32) for shape in seen]
            rows = [output.reshape(shape) for output, shape in zip(outputs, computed, strict=True)]
        else:
            rows = [np.empty(shape, np.float32) for shape in computed]
            outputs = [each.transpose(axes) for each in rows]
        return outputs, [rows[0][:, part] for part in parts] if merged else rows

    return allocate


READS = {"none": ([0], [0]), "parallel": ([0], [1]), "cross": ([0, 1], [0, 1])}
"""Which of input and auxiliary input the forward and the backward cell read, by how the auxiliary input is used."""


# -- cells ------------------------------------------------------------------------------------------------------------

_ACTIVATION = Input("activation", T.INT32, "activation: 0 none, 1 RELU, 3 RELU6, 4 TANH, 6 SIGMOID")
_TYPES = tensors(FLOAT32=1, FLOAT16=3)
_LATER_TYPES = tensors(FLOAT32=3, FLOAT16=3)


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
    work=work.CELL,
    types=_TYPES,
    inputs=[tensor("input", "T", 2), *_cell_inputs("", "hidden_state_in"), _ACTIVATION],
    counts={6: 1},
    outputs=[Output("hidden_state_out", "T", "new state [batch, units]"), Output("output", "T", "the same values")],
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
    work=work.LAYER,
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
    allocate, count = output_rows(call, [call["weights"].dims[0]]), len(call.outs)

    def compute(x: Array, hidden: Array) -> Sequence[Array]:
        outputs, [rows] = allocate()
        return [*outputs, cell([x], rows, hidden)][:count]

    return compute


_AUX_WEIGHTS = ("fw_aux_weights", "bw_aux_weights")


def _bidirectional_shape(call: Call) -> list[tuple[int, ...]]:
    _, batch, size = sequence_dims(call)
    linking = auxiliary(call, _AUX_WEIGHTS)
    units = [
        _check_cell(call, "fw_", "hidden_state", batch, size),
        _check_cell(call, "bw_", "hidden_state", batch, backward_size(call, linking, size)),
    ]
    if linking == "cross":
        for prefix, count in zip(("fw_", "bw_"), units, strict=True):
            check_dims(call, f"{prefix}aux_weights", count, call["aux_input"].dims[2])
    return sequence_shapes(call, units, [(batch, n) for n in units])


@operation(
    OperationCode.BIDIRECTIONAL_SEQUENCE_RNN,
    since=3,
    summary="Simple recurrent cells over a sequence, forwards and backwards.",
    work=work.TWO_LAYERS,
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
    """Each direction's outputs are at their own time index."""
    steps, batch, _ = sequence_dims(call)
    linking, time_major = auxiliary(call, _AUX_WEIGHTS), bool(call.scalar("time_major"))
    cells = [_cell(call, prefix, steps, batch, time_major=time_major, aux=linking == "cross") for prefix in ("fw_", "bw_")]
    sizes = [call[f"{prefix}weights"].dims[0] for prefix in ("fw_", "bw_")]
    allocate, count = output_rows(call, sizes, bool(call.scalar("merge_outputs"))), len(call.outs)
    reads = READS[linking]

    def compute(x: Array, forward: Array, backward: Array, *aux: Array) -> Sequence[Array]:
        sequences = x, *aux
        outputs, rows = allocate()
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
    work=work.SVDF,
    types=_TYPES,
    inputs=[
        tensor("input", "T", 2, role="[batch, size]"),
        tensor("weights_feature", "T", 2, role="[filters, size]"),
        tensor("weights_time", "T", 2, role="[filters, memory]"),
        tensor("bias", "T", 1, optional=True, role="[filters / rank]"),
        tensor("state_in", "T", 2, role="[batch, memory * filters]"),
        Input("rank", T.INT32, "filters of one unit"),
        _ACTIVATION,
    ],
    counts={7: 1},
    outputs=[Output("state_out", "T", "the state moved on by one step"), Output("output", "T", "[batch, filters / rank]")],
    shape=_svdf_shape,
    zero_sized=True,
)
@prepared("input", "state_in")
def svdf(call: Call) -> Compute:
    """N123, N124: the state is memory * filters wide, and its last column is free on the way out."""
    batch, (filters, memory) = call["input"].dims[0], call["weights_time"].dims
    units, length = filters // int(call.scalar("rank")), batch * filters * memory
    features = transposed(call["weights_feature"].data, batch)
    # The filters of a unit follow each other: what they add up to is one sum.
    in_time = np.tile(call["weights_time"].data.reshape(units, -1), (batch, 1))
    ones, shape = np.ones(in_time.shape[1], np.float32), (batch, units)
    activation, bias = recurrent_activation(call), call.get("bias")
    added = None if bias is None else bias.data

    def compute(x: Array, state: Array) -> Sequence[Array]:
        # The state that moved on by one step is the state shifted by one element.
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
