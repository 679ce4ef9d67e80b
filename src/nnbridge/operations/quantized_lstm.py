"""Integer LSTMs: QUANTIZED_16BIT_LSTM and QUANTIZED_LSTM, bit-exact to Android's arithmetic."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from nnbridge.model import Array
from nnbridge.operations import work
from nnbridge.operations.arithmetic import mbqm, quantize_multiplier, rdbp, sat16, saturate, srdhm16, wrap32
from nnbridge.operations.call import Arg, Call
from nnbridge.operations.correlation import exact_dtype
from nnbridge.operations.declaration import Input, Output, like, operation, types
from nnbridge.operations.fixedpoint import inverse_sqrt_multiplier, logistic16, tanh16
from nnbridge.operations.kernels import Compute, prepared
from nnbridge.operations.lstm import GATES, Structure, cell_inputs, gate_tensors, layer_norm_inputs, structure
from nnbridge.operations.rnn import check_dims, tensor
from nnbridge.types import OperandCode as T
from nnbridge.types import OperationCode


def _times(weights: Array) -> Callable[[Array], Array]:
    """From 8-bit differences [batch, n] to their exact products with weights [rows, n]."""
    dtype = exact_dtype(weights.shape[1])
    transposed = weights.astype(dtype).T
    return lambda values: values.astype(dtype).dot(transposed).astype(np.int64)


def _16bit_shape(call: Call) -> list[tuple[int, ...]]:
    batch, size = call["input"].dims
    units = call["prev_output"].dims[1]
    for gate in GATES:
        check_dims(call, f"input_to_{gate}_weights", units, size)
        check_dims(call, f"recurrent_to_{gate}_weights", units, units)
        check_dims(call, f"{gate}_gate_bias", units)
    check_dims(call, "prev_cell_state", batch, units)
    check_dims(call, "prev_output", batch, units)
    first = call["input_to_input_weights"]
    for name, pair in (("input", (1 / 128, 128)), ("prev_output", (1 / 128, 128)), ("prev_cell_state", (1 / 2048, 0))):
        found = (call[name].scale, call[name].zero_point)
        call.require(found == pair, f"scale {pair[0]} and zero point {pair[1]}", found, name)
    for gate in GATES:
        for name in (f"input_to_{gate}_weights", f"recurrent_to_{gate}_weights"):
            same = (call[name].scale, call[name].zero_point) == (first.scale, first.zero_point)
            call.require(same, "the same parameters for all weights", call[name].scale, name)
        bias = call[f"{gate}_gate_bias"]
        found, pair = (float(np.float32(bias.scale)), bias.zero_point), (float(np.float32(first.scale)) / 128, 0)
        call.require(found == pair, f"scale {pair[0]:g}, that of the weights / 128, and zero point 0", found, f"{gate}_gate_bias")
    return [(batch, units)] * 2


@operation(
    OperationCode.QUANTIZED_16BIT_LSTM,
    since=3,
    summary="One time step of an 8-bit LSTM with 16-bit state.",
    work=work.CELL,
    types=[types(3)],
    inputs=[
        tensor("input", T.TENSOR_QUANT8_ASYMM, 2),
        *gate_tensors("", "input_to_{}_weights", T.TENSOR_QUANT8_ASYMM, 2, ()),
        *gate_tensors("", "recurrent_to_{}_weights", T.TENSOR_QUANT8_ASYMM, 2, ()),
        *gate_tensors("", "{}_gate_bias", T.TENSOR_INT32, 1, ()),
        tensor("prev_cell_state", T.TENSOR_QUANT16_SYMM, 2),
        tensor("prev_output", T.TENSOR_QUANT8_ASYMM, 2),
    ],
    outputs=[
        Output("cell_state_out", T.TENSOR_QUANT16_SYMM, "new cell state", like("prev_cell_state")),
        Output("output", T.TENSOR_QUANT8_ASYMM, "output", like("prev_output")),
    ],
    shape=_16bit_shape,
    handled="executor",
)
@prepared("input", "prev_cell_state", "prev_output")
def quantized_16bit_lstm(call: Call) -> Compute:
    """N125 to N128. Android multiplies [input, output] by [recurrent, input] weights, and its cases hold it to that."""
    order = ("input", "forget", "output", "cell")
    kinds = ("recurrent", "input")
    times = _times(np.block([[call[f"{kind}_to_{gate}_weights"].centred for kind in kinds] for gate in order]))
    bias = np.concatenate([call[f"{gate}_gate_bias"].data for gate in order])
    multiplier = quantize_multiplier(4096 * float(np.float32(call["input_gate_bias"].scale)))

    def compute(x: Array, state: Array, hidden: Array) -> Sequence[Array]:
        sums = times(np.concatenate([x, hidden], axis=1).astype(np.int16) - 128)
        sums += bias
        *sigmoids, candidate = np.split(sat16(mbqm(wrap32(sums), *multiplier)), len(order), axis=1)
        opened, forget, out = (logistic16(gate) for gate in sigmoids)
        new = sat16(rdbp(srdhm16(opened, tanh16(candidate)), 4) + srdhm16(forget, state))
        output = rdbp(srdhm16(out, tanh16(sat16(new << 1))), 8)
        return new, np.clip(output, -128, 127) + 128

    return compute


_CELL_BIAS = "cell_gate_bias"


def _state_exponent(call: Call) -> int:
    """k with a state scale of 2**k; at most -9."""
    exact = math.log2(call["prev_cell_state"].scale)
    rule = "a state scale that is a power of two, 2**-9 or less"
    call.require(abs(exact - round(exact)) <= 1e-3 and round(exact) <= -9, rule, call["prev_cell_state"].scale, "prev_cell_state")
    return round(exact)


def _quantized_shape(call: Call) -> list[tuple[int, ...]]:
    batch, size = call["input"].dims
    form = structure(call, "", size, _CELL_BIAS)
    check_dims(call, "prev_output", batch, form.outputs)
    check_dims(call, "prev_cell_state", batch, form.units)
    _state_exponent(call)
    return [(batch, form.outputs), (batch, form.units), (batch, form.outputs)]


def _float32(*factors: float, over: float) -> float:
    """A product of float32 numbers over another, rounded to float32 at each step."""
    product = np.float32(1)
    for factor in factors:
        product = np.float32(product * np.float32(factor))
    return float(np.float32(product / np.float32(over)))


def _sums(call: Call, gates: Sequence[str]) -> Callable[[Array, Array], Array]:
    """From input and previous output to the gates' 16-bit sums [batch, gates, units] (N129, N130)."""
    x, prev = call["input"], call["prev_output"]
    scales = [call.scalar(f"{gate}_intermediate_scale") for gate in gates]

    def part(source: Arg, kind: str) -> Callable[[Array], Array]:
        weights = [call[f"{kind}_to_{gate}_weights"] for gate in gates]
        times, zero_point = _times(np.concatenate([w.data for w in weights])), np.int16(source.zero_point)
        found = [quantize_multiplier(_float32(w.scale, source.scale, over=s)) for w, s in zip(weights, scales, strict=True)]
        multipliers, shifts = (np.reshape(numbers, (-1, 1)) for numbers in zip(*found, strict=True))

        def products(values: Array) -> Array:
            sums = times(values.astype(np.int16) - zero_point)
            return mbqm(sums.reshape(len(values), len(gates), -1), multipliers, shifts)

        return products

    direct, recurrent = part(x, "input"), part(prev, "recurrent")
    return lambda values, hidden: sat16(sat16(direct(values)) + recurrent(hidden))


def _finish(call: Call, gate: str, exponent: int, form: Structure) -> Callable[[Array, Array], Array]:
    """From a gate's sums and the state that it looks at to its value (N131, N132). Biases act with layer norm only, as in
    Android."""
    own = call.get(f"cell_to_{gate}_weights") if form.peephole else None
    norm = _layer_norm(call, gate) if form.normalised else None
    if own is not None:
        peephole = own.data.astype(np.int64)
        scale = _float32(own.scale, over=call.scalar(f"{gate}_intermediate_scale"))
        multiplier = quantize_multiplier(float(np.ldexp(scale, exponent)))

    def finish(total: Array, looking: Array) -> Array:
        if own is not None:
            total = sat16(total + mbqm(peephole * looking, *multiplier))
        return total if norm is None else norm(total)

    return finish


def _truncated(numerator: Array, denominator: int) -> Array:
    """Integer division that rounds towards 0."""
    return np.sign(numerator) * (np.abs(numerator) // denominator)


def _layer_norm(call: Call, gate: str) -> Callable[[Array], Array]:
    """N132, with 10 fractional bits for the mean and the normalised values."""
    weights = call[f"{gate}_layer_norm_weights"]
    factors, least = weights.data.astype(np.int64), min(1, int(10000 * weights.scale))
    bias = call[_CELL_BIAS if gate == "cell" else f"{gate}_gate_bias"].data.astype(np.int64)
    own, exponent = quantize_multiplier(float(np.float32(weights.scale)))
    count = len(factors)

    def normalise(v: Array) -> Array:
        v = v.astype(np.int64)
        mean = _truncated(v.sum(axis=-1, keepdims=True) * 1024, count)
        spread = np.square(v).sum(axis=-1, keepdims=True) * ((1 << 20) // count) - mean * mean
        variance = _truncated(spread, 1 << 20)
        variance = np.where(variance < 1, least, variance)
        multiplier, shift = inverse_sqrt_multiplier(variance)
        normal = mbqm(1024 * v - mean, multiplier, shift)
        scaled = wrap32(normal * factors + bias)
        scaled = _truncated(scaled + np.where(scaled > 0, 512, -512), 1024)
        return sat16(mbqm(scaled, own, exponent + 12))

    return normalise


def _clip(call: Call, name: str, scale: float, bits: int) -> int:
    """A clip in steps of a scale; 0 where there is none."""
    value = float(call.scalar(name)) if call.get(name) is not None else 0.0
    limit = (1 << (bits - 1)) - 1
    return int(min(max(value / float(np.float32(scale)), -limit - 1), limit)) if value > 0 else 0


@operation(
    OperationCode.QUANTIZED_LSTM,
    since=4,
    summary="One time step of an LSTM in integers.",
    work=work.CELL,
    types=[types(4)],
    inputs=[
        tensor("input", T.TENSOR_QUANT8_ASYMM_SIGNED, 2),
        *cell_inputs("", T.TENSOR_QUANT8_SYMM, T.TENSOR_QUANT16_SYMM, T.TENSOR_INT32, _CELL_BIAS),
        tensor("prev_output", T.TENSOR_QUANT8_ASYMM_SIGNED, 2),
        tensor("prev_cell_state", T.TENSOR_QUANT16_SYMM, 2),
        *layer_norm_inputs("", T.TENSOR_QUANT16_SYMM),
        Input("cell_clip", T.FLOAT32, "clip of the cell state; 0 for none", optional=True),
        Input("proj_clip", T.FLOAT32, "clip of the projection; 0 for none", optional=True),
        *(Input(f"{gate}_intermediate_scale", T.FLOAT32, "scale of the gate's sums") for gate in GATES),
        Input("hidden_state_zero_point", T.INT32, "zero point of the hidden state"),
        Input("hidden_state_scale", T.FLOAT32, "scale of the hidden state"),
    ],
    outputs=[
        Output("output_state_out", T.TENSOR_QUANT8_ASYMM_SIGNED, "new output state [batch, outputs]"),
        Output("cell_state_out", T.TENSOR_QUANT16_SYMM, "new cell state [batch, units]"),
        Output("output", T.TENSOR_QUANT8_ASYMM_SIGNED, "the same values as output_state_out"),
    ],
    shape=_quantized_shape,
)
@prepared("input", "prev_output", "prev_cell_state")
def quantized_lstm(call: Call) -> Compute:
    """N129 to N137.

    Android's input and forget peepholes read the cell state's output buffer before it is written; here they read the
    previous state, as the contract says.
    """
    form: Structure = structure(call, "", call["input"].dims[1], _CELL_BIAS)
    k, gates = _state_exponent(call), form.gates
    index = {gate: k for k, gate in enumerate(gates)}
    gate_sums, finish = _sums(call, gates), {gate: _finish(call, gate, k, form) for gate in gates}
    cell_clip = _clip(call, "cell_clip", call["prev_cell_state"].scale, 16)
    hidden_scale, hidden_point = call.scalar("hidden_state_scale"), int(call.scalar("hidden_state_zero_point"))
    multiplier = quantize_multiplier(float(np.float32(2.0**-30 / np.float32(hidden_scale))))
    project = _projection(call, hidden_scale, hidden_point) if form.projected else None

    def compute(x: Array, prev: Array, state: Array) -> Sequence[Array]:
        sums, state = gate_sums(x, prev), state.astype(np.int64)

        def gate(name: str, looking: Array) -> Array:
            return finish[name](sums[:, index[name]], looking)

        forget = logistic16(gate("forget", state))
        opened = 32767 - forget if form.cifg else logistic16(gate("input", state))
        candidate = tanh16(gate("cell", state))
        new = sat16(rdbp(forget.astype(np.int64) * state, 15) + rdbp(opened.astype(np.int64) * candidate, 30 + k))
        if cell_clip:
            new = np.clip(new, -cell_clip, cell_clip)
        out = logistic16(gate("output", new))
        product = out.astype(np.int64) * tanh16(new, 15 + k)
        hidden = saturate(mbqm(product, *multiplier) - hidden_point, np.int8)
        output = hidden if project is None else project(hidden)
        return output, new, output.copy()

    return compute


def _projection(call: Call, hidden_scale: float, hidden_point: int) -> Callable[[Array], Array]:
    """From the 8-bit hidden state to the output."""
    projection, bias, prev = call["projection_weights"], call.get("projection_bias"), call["prev_output"]
    times, limit = _times(projection.data), _clip(call, "proj_clip", projection.scale, 8)
    added = hidden_point * projection.data.astype(np.int64).sum(axis=1) + (0 if bias is None else bias.data)
    multiplier = quantize_multiplier(_float32(projection.scale, hidden_scale, over=prev.scale))

    def project(hidden: Array) -> Array:
        output = saturate(mbqm(wrap32(times(hidden) + added), *multiplier) + prev.zero_point, np.int8)
        return np.clip(output, -limit, limit) if limit else output

    return project
