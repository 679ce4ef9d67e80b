"""Recurrent layers of the host, as ONNX has them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from nnbridge.cpu.compiled.bindings.binding import Binding, is_real, require
from nnbridge.cpu.compiled.bindings.recurrent import backwards, in_blocks, pack_cell
from nnbridge.cpu.compiled.program import Argument, Place
from nnbridge.model import Array
from nnbridge.operations.recurrent_layer import ACTIVATIONS, GATES, RecurrentLayer

_ORDER = {"RNN": (0,), "LSTM": (0, 2, 3, 1)}
"""Gates in the order of the kernels: of an LSTM input, forget, cell and output."""


def recurrent_layer(b: Binding, layer: RecurrentLayer) -> None:
    """Each direction by itself. Operands: the sequence, then first states, and outputs as far as they are present."""
    x, ways = b.call.args[0], len(layer.backwards)
    require(all(map(is_real, (*b.call.args, *b.call.outs))), "float32 operands")
    known = set(layer.activations) <= set(ACTIVATIONS)
    gate, *others = layer.activations
    require(known and len(set(others)) <= 1, "RELU, TANH or SIGMOID, one for candidates and outputs")
    require(layer.kind != "LSTM" or gate == "sigmoid", "SIGMOID gates")
    steps, batch = x.dims[1::-1] if layer.batch_first else x.dims[:2]
    units, size = layer.recurrent.shape[2], x.dims[2]
    states = 2 if layer.kind == "LSTM" else 1
    # Rows of states have to lie one after the other.
    require(ways == 1 or not layer.batch_first, "states of each direction together")
    outputs = _outputs(b, layer, (steps, batch, units, ways), states)
    following = iter(b.call.args[1:])
    has = [i in layer.places for i in (5, 6)][:states]
    firsts = [b.source(next(following)) if there else np.zeros(ways * batch * units, np.float32) for there in has]
    for k, backward in enumerate(layer.backwards):
        step, member = (4 * size, 4 * steps * size) if layer.batch_first else (4 * batch * size, 4 * size)
        out_step = 4 * ways * units * (1 if layer.batch_first else batch)
        out_member = 4 * units * (steps * ways if layer.batch_first else 1)
        at = 4 * k * units * (1 if layer.batch_first else batch)
        before = [_part(first, k * batch * units) for first in firsts]
        after = [Place(place.buffer, 4 * k * batch * units) for place in outputs[1:]]
        arguments: dict[str, Argument] = {
            "input": b.source(x),
            "input_step": step,
            "input_batch": member,
            "inputs": size,
            "hidden": before[0],
            "output": Place(outputs[0].buffer, at + (out_step * (steps - 1) if backward else 0)),
            "output_step": -out_step if backward else out_step,
            "output_batch": out_member,
            "steps": steps,
            "batch": batch,
            "units": units,
            "last_hidden": after[0],
        }
        if backward:
            backwards(arguments, b.source(x), steps)
        us = batch * steps * units * (size + units) * GATES[layer.kind] / 20_000 if batch > 1 else 0.0
        if layer.kind == "GRU":
            _gru(b, layer, k, arguments, us)
            continue
        order = _ORDER[layer.kind]
        rows = [[array[g] for g in order] for array in (*_by_gate(layer, k), layer.bias[k].sum(axis=0))]
        pack_cell(b, arguments, *rows)
        arguments.update(state=before[-1], last_state=after[-1], peepholes=0, clip=0.0, gate_values=0)
        activation = ACTIVATIONS[layer.activations[-1]]
        b.step("recurrent_real", us, arguments, cell=layer.kind.lower(), activation=activation)


def _outputs(b: Binding, layer: RecurrentLayer, sizes: tuple[int, int, int, int], states: int) -> list[Place]:
    """The sequence and the last states: outputs, or buffers where no one reads them."""
    steps, batch, units, ways = sizes
    found, made = [], 0
    for k, length in enumerate((steps, *[1] * states)):
        present = layer.present[k]
        found.append(b.target(made) if present else b.scratch(4 * length * batch * units * ways))
        made += present
    return found


def _part(first: Place | Array, offset: int) -> Place | Array:
    return Place(first.buffer, 4 * offset) if isinstance(first, Place) else first.reshape(-1)[offset:]


def _by_gate(layer: RecurrentLayer, k: int) -> Sequence[Array]:
    """Weights of inputs and of the state [gates, units, values]."""
    gates = GATES[layer.kind]
    return [array[k].reshape(gates, -1, array.shape[2]) for array in (layer.weights, layer.recurrent)]


def _gru(b: Binding, layer: RecurrentLayer, k: int, arguments: dict[str, Argument], us: float) -> None:
    """Gates: update, reset, candidate."""
    weights, recurrent = _by_gate(layer, k)
    bias, lanes = layer.bias[k], b.instructions.lanes
    pack_cell(b, arguments, [*weights[:2]], [*recurrent[:2]], [*bias.sum(axis=0)[:2]])
    batch, blocks = arguments["batch"], arguments["blocks"]
    assert isinstance(batch, int)
    assert isinstance(blocks, int)
    arguments["candidate_weights"] = in_blocks(np.concatenate([weights[2], recurrent[2]], axis=1), lanes)
    arguments["candidate_bias"] = in_blocks(np.ascontiguousarray(bias[:, 2].T), lanes)
    arguments["scratch"] = b.scratch(batch * blocks * 8 * lanes)
    gate, activation = (ACTIVATIONS[name] for name in layer.activations[:2])
    b.step("gru_real", us, arguments, gate=gate, activation=activation, after=layer.after)
