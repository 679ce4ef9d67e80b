"""Integer LSTMs: QUANTIZED_16BIT_LSTM and QUANTIZED_LSTM, bit-exact to Android's arithmetic."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from nnbridge.operations.arithmetic import mbqm, quantize_multiplier, rdbp, saturate, srdhm16
from nnbridge.operations.convolution import exact_dtype
from nnbridge.operations.declaration import Input, Output, like, operation, types
from nnbridge.operations.fixedpoint import inverse_sqrt_multiplier, logistic16, tanh16
from nnbridge.operations.recurrent import (
    GATES,
    Structure,
    cell_inputs,
    check_dims,
    gate_tensors,
    layer_norm_inputs,
    structure,
    tensor,
)
from nnbridge.types import OperandCode as T
from nnbridge.types import OperationCode

if TYPE_CHECKING:
    from nnbridge.model import Array
    from nnbridge.operations.call import Call

Ints = npt.NDArray[Any]


def _sat16(x: Ints) -> Ints:
    return np.clip(x, -32768, 32767)


def _products(values: Ints, weights: Ints) -> Ints:
    """Exact integer products of 8-bit values [batch, n] and weights [units, n]."""
    dtype = exact_dtype(values.shape[-1])
    return (values.astype(dtype) @ weights.astype(dtype).T).astype(np.int64)


# -- QUANTIZED_16BIT_LSTM --------------------------------------------------------------------------------------------


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
    return [(batch, units)] * 2


@operation(
    OperationCode.QUANTIZED_16BIT_LSTM,
    since=3,
    summary="One time step of an 8-bit LSTM with 16-bit state.",
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
def quantized_16bit_lstm(call: Call) -> Sequence[Array]:
    """N125 to N128. Android multiplies [input, output] by [recurrent, input] weights, and its cases hold it to that."""
    row = np.concatenate([call["input"].data, call["prev_output"].data], axis=1).astype(np.int32) - 128
    multiplier = quantize_multiplier(4096 * float(np.float32(call["input_gate_bias"].scale)))
    gates = {}
    for gate in GATES:
        recurrent, direct = call[f"recurrent_to_{gate}_weights"], call[f"input_to_{gate}_weights"]
        sums = _products(row, np.concatenate([recurrent.centred, direct.centred], axis=1))
        gates[gate] = _sat16(mbqm(sums + call[f"{gate}_gate_bias"].data, *multiplier)).astype(np.int32)
    opened, kept, out = (logistic16(gates[g]) for g in ("input", "forget", "output"))
    new = rdbp(srdhm16(opened, tanh16(gates["cell"])), 4) + srdhm16(kept, call["prev_cell_state"].data)
    state = _sat16(new)
    output = rdbp(srdhm16(out, tanh16(_sat16(state << 1))), 8)
    return state, np.clip(output, -128, 127) + 128


# -- QUANTIZED_LSTM --------------------------------------------------------------------------------------------------

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


def _gate(call: Call, gate: str, peephole: Ints | None, exponent: int, normalised: bool) -> Ints:
    """A gate's 16-bit sum (N129 to N132). Biases act with layer norm only, as in Android."""
    x, prev, scale = call["input"], call["prev_output"], call.scalar(f"{gate}_intermediate_scale")
    total: Ints = np.zeros(1, np.int64)
    for source, kind in ((x, "input"), (prev, "recurrent")):
        weights = call[f"{kind}_to_{gate}_weights"]
        sums = _products(source.data.astype(np.int32) - source.zero_point, weights.data)
        multiplier = quantize_multiplier(_float32(weights.scale, source.scale, over=scale))
        total = _sat16(total + mbqm(sums, *multiplier))
    own = call.get(f"cell_to_{gate}_weights")
    if peephole is not None and own is not None:
        multiplier = quantize_multiplier(float(np.ldexp(_float32(own.scale, over=scale), exponent)))
        total = _sat16(total + mbqm(own.data.astype(np.int64) * peephole, *multiplier))
    return _layer_norm(call, gate, total) if normalised else total


def _truncated(numerator: Ints, denominator: int) -> Ints:
    """Integer division that rounds towards 0."""
    return np.sign(numerator) * (np.abs(numerator) // denominator)


def _layer_norm(call: Call, gate: str, v: Ints) -> Ints:
    """N132, with 10 fractional bits for the mean and the normalised values."""
    weights = call[f"{gate}_layer_norm_weights"]
    bias = call[_CELL_BIAS if gate == "cell" else f"{gate}_gate_bias"].data.astype(np.int64)
    v = v.astype(np.int64)
    count = v.shape[-1]
    mean = _truncated(v.sum(axis=-1, keepdims=True) * 1024, count)
    spread = np.square(v).sum(axis=-1, keepdims=True) * ((1 << 20) // count) - mean * mean
    variance = _truncated(spread, 1 << 20)
    variance = np.where(variance < 1, min(1, int(10000 * weights.scale)), variance)
    multiplier, shift = inverse_sqrt_multiplier(variance)
    normal = mbqm(1024 * v - mean, multiplier, shift)
    scaled = normal * weights.data.astype(np.int64) + bias
    scaled = _truncated(scaled + np.where(scaled > 0, 512, -512), 1024)
    own, exponent = quantize_multiplier(float(np.float32(weights.scale)))
    return _sat16(mbqm(scaled, own, exponent + 12))


def _clip(call: Call, name: str, scale: float, bits: int) -> int:
    """A clip in steps of a scale; 0 where there is none."""
    value = float(call.scalar(name)) if call.get(name) is not None else 0.0
    limit = (1 << (bits - 1)) - 1
    return int(min(max(value / float(np.float32(scale)), -limit - 1), limit)) if value > 0 else 0


@operation(
    OperationCode.QUANTIZED_LSTM,
    since=4,
    summary="One time step of an LSTM in integers.",
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
def quantized_lstm(call: Call) -> Sequence[Array]:
    """N129 to N137.

    Android's input and forget peepholes read the cell state's output buffer before it is written; here they read the
    previous state, as the contract says.
    """
    form: Structure = structure(call, "", call["input"].dims[1], _CELL_BIAS)
    k = _state_exponent(call)
    state = call["prev_cell_state"].data.astype(np.int64)
    peephole = state if form.peephole else None
    kept = logistic16(_gate(call, "forget", peephole, k, form.normalised))
    opened = 32767 - kept if form.cifg else logistic16(_gate(call, "input", peephole, k, form.normalised))
    candidate = tanh16(_gate(call, "cell", None, k, form.normalised))
    new = rdbp(kept.astype(np.int64) * state, 15) + rdbp(opened.astype(np.int64) * candidate, 30 + k)
    new = _sat16(new)
    cell_clip = _clip(call, "cell_clip", call["prev_cell_state"].scale, 16)
    if cell_clip:
        new = np.clip(new, -cell_clip, cell_clip)
    out = logistic16(_gate(call, "output", new if form.peephole else None, k, form.normalised))
    hidden_scale, hidden_point = call.scalar("hidden_state_scale"), int(call.scalar("hidden_state_zero_point"))
    product = out.astype(np.int64) * tanh16(new, 15 + k)
    multiplier = quantize_multiplier(float(np.float32(2.0**-30 / np.float32(hidden_scale))))
    hidden = saturate(mbqm(product, *multiplier) - hidden_point, np.int8)
    projection = call.get("projection_weights")
    output: Ints = hidden
    if projection is not None:
        prev, bias = call["prev_output"], call.get("projection_bias")
        sums = _products(hidden.astype(np.int32), projection.data)
        sums = sums + hidden_point * projection.data.astype(np.int64).sum(axis=1)
        sums = sums + (0 if bias is None else bias.data)
        multiplier = quantize_multiplier(_float32(projection.scale, hidden_scale, over=prev.scale))
        output = saturate(mbqm(sums, *multiplier) + prev.zero_point, np.int8)
        proj_clip = _clip(call, "proj_clip", projection.scale, 8)
        if proj_clip:
            output = np.clip(output, -proj_clip, proj_clip)
    return output, new, output
