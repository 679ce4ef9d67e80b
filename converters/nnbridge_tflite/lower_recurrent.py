"""Recurrent operators: RNN, LSTM, SVDF and their sequence forms, for floats.

State that TFLite keeps in variable tensors becomes an input and an output of the model. Android's delegate leaves the
state outputs of the sequence operators out, so that each run is the first one there; the wide mapping has them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from nnbridge.converters.draft import Value
from nnbridge.types import OperandCode, OperationCode
from nnbridge_tflite.lower_conv import weights
from nnbridge_tflite.lowering import FLOATS, Lowerer, lowers

LAYER_NORM = range(20, 24)
"""Where TFLite's LSTM has the weights of its layer normalisation, if any."""


def _floats(x: Lowerer, indexes: Sequence[int]) -> list[Value]:
    """Inputs as floats: 8-bit weights are folded, omitted ones stay omitted."""
    data = x.input(0)
    x.require(data.type in FLOATS, "float activations", x.tensor(0))
    return [weights(x, i, data) if x.has(i) else x.draft.omitted(data.type) for i in indexes]


def _state(x: Lowerer, i: int) -> Value:
    """What the state at input ``i`` becomes."""
    return x.carry(i, x.input(0).like(dims=x.input(i).dims))


def _states(x: Lowerer, *places: int) -> list[Value]:
    """What states become, as outputs of an operation that need not have them: none if nothing keeps them."""
    if not any(map(x.is_state, places)) or (x.mapping == "delegate" and not x.free):
        return []
    x.require(x.mapping != "delegate", "no state kept from run to run", x.tensor(places[0]))
    return [_state(x, i) for i in places]


@lowers("UNIDIRECTIONAL_SEQUENCE_LSTM")
def sequence_lstm(x: Lowerer) -> None:
    """UNIDIRECTIONAL_SEQUENCE_LSTM: the same 20 inputs, options, then layer normalisation."""
    data = x.input(0)
    x.require(not x.option("diagonal_recurrent_tensors", False), "full recurrent matrices", "diagonal ones")
    clips = [x.real(x.option(name, 0.0), data) for name in ("cell_clip", "proj_clip")]
    inputs = [data, *_floats(x, range(1, 20)), x.i32(x.option("fused_activation_function"))]
    norms = _floats(x, LAYER_NORM)
    x.emit(
        OperationCode.UNIDIRECTIONAL_SEQUENCE_LSTM,
        *inputs,
        *clips,
        x.flag(x.option("time_major", False)),
        *norms,
        out=[x.out, *_states(x, 18, 19)],
    )


@lowers("LSTM")
def lstm(x: Lowerer) -> None:
    """LSTM: one step; scratch and states are outputs that nobody reads."""
    data = x.input(0)
    x.require(x.option("kernel_type") == 0 and x.count >= 20, "the full LSTM kernel", x.option("kernel_type"))
    clips = [x.real(x.option(name, 0.0), data) for name in ("cell_clip", "proj_clip")]
    inputs = [data, *_floats(x, range(1, 20)), x.i32(x.option("fused_activation_function")), *clips]
    norms = _floats(x, LAYER_NORM) if x.count == 24 else []
    batch, cells = x.input(19).dims
    scratch = data.like(dims=(batch, cells * (4 if x.has(1) else 3)))
    x.emit(OperationCode.LSTM, *inputs, *norms, out=[scratch, _state(x, 18), _state(x, 19), x.out])


@lowers("LSTM")
def quantised_lstm(x: Lowerer) -> None:
    """The 8-bit full kernel as QUANTIZED_LSTM, under the delegate mapping: NNAPI leaves the gates' biases out."""
    x.require(not x.free, "an 8-bit cell that adds its biases", x.tensor(0))
    x.require(x.option("kernel_type") == 0 and x.count >= 20, "the full LSTM kernel", x.option("kernel_type"))
    data, lent = x.input(0), [x.values.tensors[i].quantisation for i in x.operator.intermediates if i >= 0]
    x.require(data.type == OperandCode.TENSOR_QUANT8_ASYMM_SIGNED and len(lent) == 5, "int8 and 5 intermediates", len(lent))
    symmetric = dict.fromkeys((*range(1, 9), 16), OperandCode.TENSOR_QUANT8_SYMM)
    symmetric |= dict.fromkeys((*range(9, 12), *LAYER_NORM), OperandCode.TENSOR_QUANT16_SYMM)

    def operand(i: int) -> Value:
        type = symmetric.get(i, OperandCode.TENSOR_INT32)
        if not x.has(i):
            return x.draft.omitted(type)
        value = x.input(i)
        return replace(value, type=type, zero_point=0) if type == OperandCode.TENSOR_QUANT8_SYMM else value

    inputs = [data, *map(operand, range(1, 18)), x.input(18), x.input(19), *map(operand, LAYER_NORM)]
    clips = [x.real(x.option(name, 0.0), data) for name in ("cell_clip", "proj_clip")]
    scales = [x.real(quantisation.scale, data) for quantisation in lent]
    tail = [*scales[:4], x.i32(lent[4].zero_point), scales[4]]
    output, cell = x.input(18), x.input(19)
    states = [x.carry(18, output.like()), x.carry(19, cell.like())]
    x.emit(OperationCode.QUANTIZED_LSTM, *inputs, *clips, *tail, out=[*states, x.out])


@lowers("LSTM")
def basic_lstm(x: Lowerer) -> None:
    """The basic kernel of 8-bit integers as QUANTIZED_16BIT_LSTM; its one matrix has the recurrent weights first."""
    x.require(x.option("kernel_type") == 1 and x.count == 5, "the basic LSTM kernel", x.option("kernel_type"))
    data, matrix, sums = x.input(0), x.constant(2), x.constant(3)
    units = x.input(4).dims[-1]
    x.require(len(matrix) == 4 * units and matrix.dtype == np.uint8, "uint8 weights of four gates", matrix.shape)
    x.draft.spend(matrix.size + sums.size)
    # TFLite's gates are input, cell, forget, output.
    order = (0, 2, 1, 3)
    gates, biases = matrix.reshape(4, units, -1), sums.reshape(4, units)
    direct = [x.array(np.ascontiguousarray(gates[k][:, units:]), x.input(2)) for k in order]
    recurrent = [x.array(np.ascontiguousarray(gates[k][:, :units]), x.input(2)) for k in order]
    offsets = [x.array(np.ascontiguousarray(biases[k]), x.input(3), scale=x.tensor(3).quantisation.scale) for k in order]
    out, state = x.outputs[:2]
    inputs = [data, *direct, *recurrent, *offsets, x.input(4), x.input(1)]
    x.emit(OperationCode.QUANTIZED_16BIT_LSTM, *inputs, out=[state, out])
    x.carry(1, out)
    x.carry(4, state)


@lowers("BIDIRECTIONAL_SEQUENCE_LSTM")
def bidirectional_lstm(x: Lowerer) -> None:
    """BIDIRECTIONAL_SEQUENCE_LSTM: the same 48 inputs, options, no layer normalisation."""
    data = x.input(0)
    clips = [x.real(x.option(name, 0.0), data) for name in ("cell_clip", "proj_clip")]
    inputs = [data, *_floats(x, range(1, 48)), x.i32(x.option("fused_activation_function")), *clips]
    flags = [x.flag(x.option("merge_outputs", False)), x.flag(x.option("time_major", True))]
    none = [x.draft.omitted(data.type)] * 8
    x.emit(OperationCode.BIDIRECTIONAL_SEQUENCE_LSTM, *inputs, *flags, *none, out=[*x.outputs, *_states(x, 35, 36, 37, 38)])


@lowers("RNN")
def rnn(x: Lowerer) -> None:
    """RNN: one step."""
    inputs = [x.input(0), *_floats(x, range(1, 5)), x.i32(x.option("fused_activation_function"))]
    x.emit(OperationCode.RNN, *inputs, out=[_state(x, 4), x.out])


@lowers("UNIDIRECTIONAL_SEQUENCE_RNN")
def sequence_rnn(x: Lowerer) -> None:
    """UNIDIRECTIONAL_SEQUENCE_RNN; its flag is an INT32."""
    inputs = [x.input(0), *_floats(x, range(1, 5)), x.i32(x.option("fused_activation_function"))]
    flag = x.i32(bool(x.option("time_major", False)))
    x.emit(OperationCode.UNIDIRECTIONAL_SEQUENCE_RNN, *inputs, flag, out=[x.out, *_states(x, 4)])


@lowers("BIDIRECTIONAL_SEQUENCE_RNN", wide=True)
def bidirectional_rnn(x: Lowerer) -> None:
    """BIDIRECTIONAL_SEQUENCE_RNN: the same 12 inputs, then options."""
    inputs = [x.input(0), *_floats(x, range(1, 12)), x.i32(x.option("fused_activation_function"))]
    flags = [x.flag(x.option("time_major", False)), x.flag(x.option("merge_outputs", False))]
    x.emit(OperationCode.BIDIRECTIONAL_SEQUENCE_RNN, *inputs, *flags, out=[*x.outputs, *_states(x, 4, 8)])


@lowers("SVDF")
def svdf(x: Lowerer) -> None:
    """SVDF: one step; the new state is an output that nobody reads."""
    inputs = [x.input(0), *_floats(x, range(1, 5)), x.i32(x.option("rank")), x.i32(x.option("fused_activation_function"))]
    x.emit(OperationCode.SVDF, *inputs, out=[_state(x, 4), x.out])
