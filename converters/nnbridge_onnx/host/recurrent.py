"""Recurrent layers on the host, step by step: RNN, GRU and LSTM in every form that ONNX has."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TypeAlias

import numpy as np

from nnbridge.extensions import Arg, PreparedHostKernel
from nnbridge.model import Array
from nnbridge.operations.recurrent_layer import GATES, RecurrentLayer
from nnbridge.records import dataclass
from nnbridge_onnx.host.evaluator import HostCall, HostNode

DIRECTIONS = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}
"""Attribute ``direction`` → whether each direction goes from the last step to the first."""
_FUNCTIONS: Mapping[str, tuple[tuple[float, ...], Callable[..., Array]]] = {
    "affine": ((1.0, 0.0), lambda x, a, b: a * x + b),
    "elu": ((1.0,), lambda x, a: np.where(x < 0, a * np.expm1(np.minimum(x, 0)), x)),
    "hardsigmoid": ((0.2, 0.5), lambda x, a, b: np.clip(a * x + b, 0, 1)),
    "leakyrelu": ((0.01,), lambda x, a: np.where(x < 0, a * x, x)),
    "relu": ((), lambda x: np.maximum(x, 0)),
    "scaledtanh": ((1.0, 1.0), lambda x, a, b: a * np.tanh(b * x)),
    "sigmoid": ((), lambda x: 1 / (1 + np.exp(-x))),
    "softplus": ((), lambda x: np.logaddexp(x, 0)),
    "softsign": ((), lambda x: x / (1 + np.abs(x))),
    "tanh": ((), np.tanh),
    "thresholdedrelu": ((1.0,), lambda x, a: np.where(x > a, x, 0)),
}
"""Activation → its default alpha and beta, and the function."""
_USUAL = {"RNN": ("Tanh",), "GRU": ("Sigmoid", "Tanh"), "LSTM": ("Sigmoid", "Tanh", "Tanh")}
Activation: TypeAlias = "Callable[[Array], Array]"


def _functions(call: HostCall, kind: str, ways: int) -> list[list[Activation]]:
    """The activations of each direction; alphas and betas are listed for those that have one, in their order."""
    count = len(_USUAL[kind])
    found: list[Activation] = []
    numbers = [iter(call.option(name) or ()) for name in ("activation_alpha", "activation_beta")]
    for name in call.option("activations") or _USUAL[kind] * ways:
        defaults, function = _FUNCTIONS[(name.decode() if isinstance(name, bytes) else name).lower()]
        parameters = [float(next(n, default)) for n, default in zip(numbers, defaults, strict=False)]
        found.append(partial(_applied, function, parameters))
    return [found[i * count : (i + 1) * count] for i in range(ways)]


def _applied(function: Callable[..., Array], parameters: Sequence[float], x: Array) -> Array:
    return function(x, *parameters)


def run_layer(call: HostCall) -> Sequence[Array]:
    """Step by step in any form: clips, coupled gates, peepholes, sequences of their own lengths, every activation."""
    kind = call.node.proto.op_type
    ways, swapped = DIRECTIONS[call.option("direction")], bool(call.option("layout"))
    x, weights, recurrent = call.input(0), call.input(1), call.input(2)
    x = x.swapaxes(0, 1) if swapped else x
    (steps, batch, _), units, gates = x.shape, recurrent.shape[2], weights.shape[1] // recurrent.shape[2]
    bias, lengths, peephole = call.optional(3), call.optional(4), call.optional(7) if kind == "LSTM" else None
    lengths = np.full(batch, steps) if lengths is None else lengths
    states = []
    for stated in (call.optional(5), call.optional(6) if kind == "LSTM" else None):
        usual = np.zeros((len(ways), batch, units), x.dtype)
        states.append(usual if stated is None else np.array(stated.swapaxes(0, 1) if swapped else stated))
    y, rows = np.zeros((steps, len(ways), batch, units), x.dtype), np.arange(batch)
    functions = _functions(call, kind, len(ways))
    for way, backwards in enumerate(ways):
        sides = np.zeros((2, gates, units), x.dtype) if bias is None else bias[way].reshape(2, gates, units)
        checks = np.zeros((3, units), x.dtype) if peephole is None else peephole[way].reshape(3, units)
        cell = _Direction(call, kind, functions[way], weights[way], recurrent[way], sides, checks)
        state, memory = states[0][way], states[1][way]
        for step in range(steps):
            live = step < lengths
            at = np.where(live, lengths - 1 - step if backwards else step, 0)
            after = cell.step(x[at, rows], state, memory)
            state, memory = (np.where(live[:, None], new, old) for new, old in zip(after, (state, memory), strict=True))
            y[at[live], way, rows[live]] = state[live]
        states[0][way], states[1][way] = state, memory
    last = [state.swapaxes(0, 1) if swapped else state for state in states]
    outputs = (y.transpose(2, 0, 1, 3) if swapped else y, *last)
    return [np.ascontiguousarray(output) for output, name in zip(outputs, call.node.proto.output, strict=False) if name]


def prepared_layer(
    node: HostNode, names: Sequence[str], inputs: Sequence[Arg], outputs: Sequence[Arg], run: PreparedHostKernel
) -> RecurrentLayer | None:
    """A layer of constant weights without clip, peepholes, coupled gates and sequences of their own lengths."""
    kind, call, listed = node.proto.op_type, HostCall(node, {}), [*node.proto.input, *[""] * 8]
    tensors = dict(zip(names, inputs, strict=True))
    stated: list[Arg | None] = [tensors[name] if name else None for name in listed[:8]]
    x, weights, recurrent, bias = (None if one is None else one.value for one in stated[:4])
    unusual = any(call.option(name) for name in ("clip", "input_forget", "activation_alpha", "activation_beta"))
    if unusual or stated[4] is not None or stated[7] is not None or (stated[3] is not None and bias is None):
        return None
    if x is not None or weights is None or recurrent is None or weights.dtype != np.float32:
        return None
    backwards, count = DIRECTIONS[call.option("direction")], len(_USUAL[kind])
    named = call.option("activations") or _USUAL[kind] * len(backwards)
    activations = [(name.decode() if isinstance(name, bytes) else name).lower() for name in named]
    if activations[:count] * len(backwards) != activations:
        return None
    sides = (len(backwards), 2, GATES[kind], recurrent.shape[2])
    present = [bool(name) for name in (*node.proto.output, "", "", "")][:3]
    return RecurrentLayer(
        inputs,
        outputs,
        tuple(names.index(listed[i]) for i in (0, 5, 6) if listed[i]),
        kind,
        backwards,
        tuple(activations[:count]),
        weights,
        recurrent,
        np.zeros(sides, np.float32) if bias is None else bias.reshape(sides),
        (present[0], present[1], present[2]),
        bool(call.option("layout")),
        bool(call.option("linear_before_reset")),
        run,
    )


@dataclass
class _Direction:
    """One direction of a layer."""

    call: HostCall
    kind: str
    functions: Sequence[Activation]
    weights: Array
    recurrent: Array
    bias: Array
    """[input or recurrent, gate, unit]"""
    peephole: Array
    """For input, output and forget gate."""

    def step(self, x: Array, state: Array, memory: Array) -> tuple[Array, Array]:
        """The next state and cell."""
        gates = self.bias.shape[1]
        read = np.split(x @ self.weights.T + self.bias[0].ravel(), gates, axis=1)
        if self.kind == "GRU":
            return self._gru(read, state), memory
        total = [
            a + b for a, b in zip(read, np.split(state @ self.recurrent.T + self.bias[1].ravel(), gates, axis=1), strict=True)
        ]
        if self.kind == "RNN":
            return self.functions[0](self._clipped(total[0])), memory
        gate, candidate, out = self.functions
        opened = gate(self._clipped(total[0] + self.peephole[0] * memory))
        coupled = self.call.option("input_forget", 0)
        retained = 1 - opened if coupled else gate(self._clipped(total[2] + self.peephole[2] * memory))
        memory = retained * memory + opened * candidate(self._clipped(total[3]))
        return gate(self._clipped(total[1] + self.peephole[1] * memory)) * out(memory), memory

    def _gru(self, read: Sequence[Array], state: Array) -> Array:
        gate, candidate = self.functions
        update, reset, hidden = np.split(self.recurrent, 3)
        z = gate(self._clipped(read[0] + state @ update.T + self.bias[1, 0]))
        r = gate(self._clipped(read[1] + state @ reset.T + self.bias[1, 1]))
        if self.call.option("linear_before_reset"):
            behind = r * (state @ hidden.T + self.bias[1, 2])
        else:
            behind = (r * state) @ hidden.T + self.bias[1, 2]
        return (1 - z) * candidate(self._clipped(read[2] + behind)) + z * state

    def _clipped(self, x: Array) -> Array:
        bound = self.call.option("clip")
        return np.clip(x, -bound, bound) if bound else x
