"""Recurrent cells: LSTM and RNN, one step, sequences in one or both directions; TFLite's integer LSTM."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np

from nnbridge.cpu.compiled.bindings.binding import Binding, binds, constant_data, is_real, require, zero_of
from nnbridge.cpu.compiled.constants import Constant
from nnbridge.cpu.compiled.kernels.recurrent import ACTIVATIONS, GATES
from nnbridge.cpu.compiled.program import Argument, Place
from nnbridge.model import Array
from nnbridge.operations.fixedpoint import Function16, logistic, table16, tanh
from nnbridge.operations.integer_lstm import IntegerLstm
from nnbridge.operations.lstm import GATES as GATE_NAMES
from nnbridge.records import dataclass
from nnbridge.types import OperationCode


@dataclass(frozen=True)
class _OperandNames:
    """The names of an operation's operands."""

    prefixes: tuple[str, ...]
    """One for each direction, the second backwards."""
    hidden: str
    state: str
    """Only of LSTMs: the cell state."""
    first_state: int
    """The output after which states stand, hidden and cell state of each direction."""
    output: int = 0


_FORMS = {
    OperationCode.LSTM: _OperandNames(("",), "output_state_in", "cell_state_in", 1, 3),
    OperationCode.UNIDIRECTIONAL_SEQUENCE_LSTM: _OperandNames(("",), "output_state_in", "cell_state_in", 1),
    OperationCode.BIDIRECTIONAL_SEQUENCE_LSTM: _OperandNames(("fw_", "bw_"), "activation_state", "cell_state", 2),
    OperationCode.RNN: _OperandNames(("",), "hidden_state_in", "", 0, 1),
    OperationCode.UNIDIRECTIONAL_SEQUENCE_RNN: _OperandNames(("",), "hidden_state", "", 1),
    OperationCode.BIDIRECTIONAL_SEQUENCE_RNN: _OperandNames(("fw_", "bw_"), "hidden_state", "", 2),
}


def in_blocks(rows: Array, lanes: int) -> Array:
    """Rows [units, ...] as [block, ..., lane], zeros in the last block's other lanes."""
    padded = np.zeros((-(-len(rows) // lanes) * lanes, *rows.shape[1:]), rows.dtype)
    padded[: len(rows)] = rows
    return np.ascontiguousarray(np.moveaxis(padded.reshape(-1, lanes, *rows.shape[1:]), 1, -1))


@binds(*_FORMS, omitting=True)
def recurrent(b: Binding) -> None:
    """Cells of float32 without layer normalisation, projection and auxiliary input."""
    call, x = b.call, b.call.args[0]
    form = _FORMS[OperationCode(call.definition.code)]
    require(all(is_real(arg) for arg in (x, *call.outs)), "float32 operands")
    for what in ("aux_input", "projection_weights", "forget_layer_norm_weights"):
        require(all(call.get(prefix + what) is None for prefix in ("", *form.prefixes)), f"no {what}")
    activation = int(call.scalar("activation"))
    require(activation in ACTIVATIONS, "a known activation")
    major = x.rank == 2 or bool(call.scalar("time_major"))
    steps, batch = (1, x.dims[0]) if x.rank == 2 else x.dims[:2] if major else (x.dims[1], x.dims[0])
    names = "recurrent_to_output_weights" if form.state else "recurrent_weights"
    units = [call[prefix + names].dims[0] for prefix in form.prefixes]
    merged = len(units) > 1 and bool(call.scalar("merge_outputs"))
    first_state = form.first_state - merged
    for k, (prefix, size) in enumerate(zip(form.prefixes, units, strict=True)):
        width = sum(units) if merged else size
        target = b.target(0 if merged else form.output + k)
        step = 4 * width * (batch if major else 1)
        arguments: dict[str, Argument] = {
            "input": b.source(x),
            "input_step": 4 * x.dims[-1] * (batch if major else 1),
            "input_batch": 4 * x.dims[-1] * (1 if major else steps),
            "inputs": x.dims[-1],
            "hidden": b.source(call[prefix + form.hidden]),
            "output": Place(target.buffer, (4 * units[0] if merged and k else 0) + (step * (steps - 1) if k else 0)),
            "output_step": -step if k else step,
            "output_batch": 4 * width * (1 if major else steps),
            "steps": steps,
            "batch": batch,
            "units": size,
        }
        if k:
            backwards(arguments, b.source(x), steps)
        places = [_state(b, first_state + (1 + bool(form.state)) * k + i, batch * size) for i in range(1 + bool(form.state))]
        arguments.update(last_hidden=places[0], last_state=places[-1], state=0, peepholes=0, clip=0.0, gate_values=0)
        parameters: dict[str, object] = {"cell": "rnn"}
        if form.state:
            parameters = _gates(b, prefix, arguments)
            arguments["state"] = b.source(call[prefix + form.state])
            parameters["shown"] = form.output == 3
            arguments["gate_values"] = b.target(0) if form.output == 3 else 0
        else:
            pack_cell(b, arguments, *([constant_data(call[prefix + n])] for n in ("weights", "recurrent_weights", "bias")))
        us = batch * steps * size * (x.dims[-1] + size) * GATES[str(parameters["cell"])] / 20_000
        b.step("recurrent_real", us if batch > 1 else 0.0, arguments, activation=activation, **parameters)


def backwards(arguments: dict[str, Argument], source: Place | Array, steps: int) -> None:
    """From the last time step to the first."""
    require(isinstance(source, Place), "an input that is not constant")
    assert isinstance(source, Place)
    step = arguments["input_step"]
    assert isinstance(step, int)
    arguments.update(input=Place(source.buffer, source.offset + step * (steps - 1)), input_step=-step)


def _state(b: Binding, output: int, size: int) -> Place:
    """The place of a last state: an output, which may be left out."""
    return b.target(output) if output < len(b.call.outs) else b.scratch(4 * size)


def _gates(b: Binding, prefix: str, arguments: dict[str, Argument]) -> dict[str, object]:
    """An LSTM's weights by gate; the kernel's parameters."""
    call = b.call
    names = [n for n in GATE_NAMES if call.get(f"{prefix}input_to_{n}_weights") is not None]
    weights, recurrent = (
        [constant_data(call[f"{prefix}{kind}_to_{n}_weights"]) for n in names] for kind in ("input", "recurrent")
    )
    biases = [constant_data(call[f"{prefix}{n}_bias" if n == "cell" else f"{prefix}{n}_gate_bias"]) for n in names]
    pack_cell(b, arguments, weights, recurrent, biases)
    peephole = call.get(f"{prefix}cell_to_forget_weights") is not None
    if peephole:
        # The cell's own gate has none: zeros, so that there are as many rows as gates.
        nothing = np.zeros(recurrent[0].shape[0], np.float32)
        rows = [nothing if n == "cell" else constant_data(call[f"{prefix}cell_to_{n}_weights"]) for n in names]
        arguments["peepholes"] = in_blocks(np.stack(rows, axis=1), b.instructions.lanes)
    clip = float(call.scalar("cell_clip"))
    arguments["clip"] = clip
    return {"cell": "lstm" if "input" in names else "cifg", "peephole": peephole, "clipped": clip > 0}


def pack_cell(
    b: Binding, arguments: dict[str, Argument], weights: Sequence[Array], own: Sequence[Array], bias: Sequence[Array]
) -> None:
    """Weights [units, values] and biases [units] of each gate."""
    lanes = b.instructions.lanes
    joined = np.stack([np.concatenate(pair, axis=1) for pair in zip(weights, own, strict=True)], axis=2)
    packed = in_blocks(joined.astype(np.float32, copy=False), lanes)
    arguments.update(weights=packed, bias=in_blocks(np.stack(bias, axis=1), lanes), blocks=len(packed))


# -- TFLite's integer LSTM ---------------------------------------------------------------------------------------------


@functools.cache
def _table(function: Function16, integer_bits: int) -> Constant:
    """One for all layers of a process."""
    return Constant.of_array(table16(function, integer_bits))


def integer_lstm(b: Binding, layer: IntegerLstm) -> None:
    """A layer without projection. Operands: data, output state and cell state; outputs, then the new states."""
    data, previous, state = b.call.args
    require(layer.projection is None, "no projection")
    require(data.dtype.itemsize == 1 and previous.dtype.itemsize == 1, "8-bit activations")
    same = (b.out.type, b.out.zero_point) == (previous.type, previous.zero_point)
    require(same and (state.dtype.str, state.zero_point) == ("<i2", 0), "an output like its state, and a 16-bit cell state")
    batch, size, units, gates = previous.dims[0], data.dims[-1], layer.units, layer.gates
    steps = 1 if data.rank == 2 else data.dims[0 if layer.time_major else 1]
    lanes, each = b.instructions.lanes, b.instructions.step_elements
    packed, biases = [], []
    for source, zero in ((layer.direct, zero_of(data)), (layer.recurrent, zero_of(previous))):
        rows = source.weights.reshape(gates, units, -1)
        require(np.abs(rows).max() <= 127, "weights that are signed bytes")
        sums = rows.sum(axis=2).astype(np.int64)
        offsets = source.bias.reshape(gates, units)
        largest = np.abs(rows).sum(axis=2) * 255 + np.abs(offsets)
        require(int(largest.max()) < 2**31, "sums that 32 bits hold")
        biases.append((offsets - zero * sums).astype(np.int32))
        words = np.zeros((units, gates, -(-rows.shape[2] // each) * each), np.int8 if each == 4 else np.int16)
        words[:, :, : rows.shape[2]] = rows.transpose(1, 0, 2)
        packed.append(in_blocks(np.ascontiguousarray(words.view(np.int32).transpose(0, 2, 1)), lanes))
    factors = [(s.multiplier[g * units], s.shift[g * units]) for s in (layer.direct, layer.recurrent) for g in range(gates)]
    shifts = [(int(m), max(int(k), 0), max(-int(k), 0)) for m, k in (*factors, layer.hidden_factor)]
    major = batch if layer.time_major else 1
    arguments: dict[str, Argument] = {
        "input": b.source(data),
        "input_step": size * major,
        "input_batch": size * (1 if layer.time_major else steps),
        "inputs": size,
        "hidden": b.source(previous),
        "output": b.target(),
        "output_step": units * major,
        "output_batch": units * (1 if layer.time_major else steps),
        "steps": steps,
        "batch": batch,
        "units": units,
        "blocks": len(packed[0]),
        "weights": packed[0],
        "bias": in_blocks(np.concatenate(biases).T.copy(), lanes),
        "last_hidden": b.target(1) if len(b.call.outs) > 1 else b.scratch(batch * units),
        "state": b.source(state),
        "last_state": b.target(2) if len(b.call.outs) > 2 else b.scratch(2 * batch * units),
        "input_steps": packed[0].shape[1],
        "hidden_steps": packed[1].shape[1],
        "hidden_weights": packed[1],
        "sums": b.scratch(batch * 2 * gates * len(packed[0]) * lanes * 4),
        "parameters": np.array(shifts, np.int64),
        "sigmoids": _table(logistic, 3),
        "tanhs": _table(tanh, 3),
        "state_tanhs": _table(tanh, 15 + layer.exponent),
        "exponent": layer.exponent,
        "hidden_point": layer.hidden_point,
        "clip": layer.clip or 1 << 15,
    }
    us = batch * steps * units * (0.02 + (size + units) * gates / 60_000)
    b.step("lstm_bytes", us if batch > 1 else 0.0, arguments, cell="lstm" if gates == 4 else "cifg")
