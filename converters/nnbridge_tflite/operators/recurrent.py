"""Recurrent operators: RNN, LSTM, SVDF and their sequence forms.

State that TFLite stores in variable tensors becomes an input and an output of the model. Android's delegate leaves the
state outputs of the sequence operators out, so that each run is the first one there; the wide mapping has them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from nnbridge.converters.declaration import Option
from nnbridge.converters.mapping import MappingKind
from nnbridge.converters.rules import until
from nnbridge.errors import Stage, Why
from nnbridge.operations import work
from nnbridge.operations.integer_lstm import IntegerLstm
from nnbridge.operations.integer_svdf import IntegerSvdf
from nnbridge.types import FLOATS, OperandCode, OperationCode
from nnbridge_tflite.declaration import ACTIVATION, TfliteOperator, inputs, outputs
from nnbridge_tflite.host.codes import STATES
from nnbridge_tflite.host.numbers import Array, Options, Tensors, data_of
from nnbridge_tflite.loads import Prepare, PreparedOperator, alike, fits, ranked, requires, typed, variable
from nnbridge_tflite.lowerer import Lowerer, Value
from nnbridge_tflite.operators.convolution import weights
from nnbridge_tflite.read.graph import Tensor
from nnbridge_tflite.rules import NO_HYBRID, NO_OLD_HYBRID, Condition, DelegateRule, OperatorView, type_in

LAYER_NORM = range(20, 24)
"""Where TFLite's LSTM has the weights of its layer normalisation, if any."""
BASIC = 1
"""LSTMKernelType of the cell with one matrix of weights."""

_CLIPS = (
    Option("cell_clip", 0.0, "limit of the cell state's magnitude; 0 for none"),
    Option("proj_clip", 0.0, "limit of the projection's magnitude; 0 for none"),
)
_ASYMMETRIC = Option("asymmetric_quantize_inputs", False, "8-bit weights: floats in 256 steps with a zero point, on the host")
_TIME_MAJOR = Option("time_major", False, "the first dimension is time, not the batch")
_MERGE = Option("merge_outputs", False, "both directions in one output")
_GATES = ("input", "forget", "cell", "output")
_ONE_DIRECTION = (
    "input",
    *(f"{gate}_weights?" for gate in _GATES),
    *(f"{gate}_recurrent_weights?" for gate in _GATES),
    *(f"{gate}_peephole?" for gate in _GATES if gate != "cell"),
    *(f"{gate}_bias?" for gate in _GATES),
    "projection?",
    "projection_bias?",
    "output_state?",
    "cell_state?",
)
_LSTM = inputs(*_ONE_DIRECTION, *(f"{gate}_norm?" for gate in _GATES))


def _weights_type(node: OperatorView) -> str:
    weights = node.input(2 if node.option("kernel_type") == BASIC else 4)
    return weights.type.name if weights is not None else ""


def _fixed_parameters(tensor: Tensor | None, scale: float, zero_point: int) -> bool:
    return tensor is not None and (tensor.quantisation.scale, tensor.quantisation.zero_point) == (scale, zero_point)


def _basic(node: OperatorView) -> bool:
    """The basic kernel is QUANTIZED_16BIT_LSTM: 8-bit weights, constants, fixed parameters."""
    if node.option("kernel_type") != BASIC:
        return True
    fixed = _fixed_parameters(node.input(0), 1 / 128, 128) and _fixed_parameters(node.output(), 1 / 128, 128)
    return _weights_type(node) == "UINT8" and fixed and node.constant(2) and node.constant(3)


def _full(node: OperatorView) -> bool:
    allowed = ("FLOAT32", "UINT8") if node.level < 4 else ("FLOAT32", "UINT8", "INT8")
    fits = node.level >= 3 or len(node.operator.inputs) != 24
    return node.option("kernel_type") == BASIC or (_weights_type(node) in allowed and fits)


def _batch_first(node: PreparedOperator) -> dict[str, str]:
    """Letters of a sequence's first two dimensions."""
    return {"b": "t", "t": "b"} if node.option("time_major") else {}


def _directions(node: PreparedOperator) -> bool:
    return len(node.operator.outputs) == (1 if node.option("merge_outputs") else 2)


def _basic_inputs(node: PreparedOperator) -> bool:
    """True if the operands of the basic cell fit: data, activations, weights, bias, state."""
    if len(node.operator.inputs) != 5:
        return False
    (batches, width), (rows, units) = node.shape(0), node.shape(1)
    state = (batches, units)
    return rows == batches and (node.shape(2), node.shape(3), node.shape(4)) == ((4 * units, width + units), (4 * units,), state)


def _of_weights(node: PreparedOperator) -> bool:
    """True if all weights of an LSTM have one type, and biases the one that goes with the data's."""
    weights = {tensor.type.name for tensor in node.there((1, 2, 3, 5, 6, 7, 16))}
    biases = {tensor.type.name for tensor in node.there((*range(12, 16), 17))}
    return len(weights) < 2 and biases <= {"INT32" if node.type(0) == "INT8" else "FLOAT32"}


def _if_full(condition: Prepare) -> Prepare:
    """A condition of the full kernel only."""
    return replace(condition, holds=lambda node: node.option("kernel_type") == BASIC or condition.holds(node))


_CELL_FITS = (
    *("c i" for _ in range(4)),
    *("c o" for _ in range(4)),
    *("c" for _ in range(7)),
    *("o c", "o", "=b o", "=b c"),
    *("c" for _ in range(4)),
)
"""Of the inputs of an LSTM after the first: c cells, i input, o output, b batches."""
_DIAGONAL_FITS = (*_CELL_FITS[:4], "c o|c", "f o|f", "g o|g", "c o|c", *_CELL_FITS[8:])
"""The same where recurrent weights may be diagonals; the kernel does not count the rows of those of forget and cell gates."""
_RECURRENT_FIT = requires(
    "recurrent weights of the input weights' type, and biases of the type that goes with the input's",
    lambda node: (
        {one.type.name for one in node.there((5, 6, 7))} <= {node.type(2)}
        and node.type(8) == node.type(4)
        and {one.type.name for one in node.there((*range(12, 16), 17))} <= {"INT32" if node.type(0) == "INT8" else "FLOAT32"}
    ),
    kind=Why.INPUT_TYPE,
)
_BOTH_WEIGHTS_FIT = requires(
    "weights of one type, and biases of FLOAT32",
    lambda node: (
        len({tensor.type.name for tensor in node.there((*range(1, 12), 16, *range(18, 29), 33))}) < 2
        and {tensor.type.name for tensor in node.there((*range(12, 16), 17, *range(29, 33), 34))} <= {"FLOAT32"}
    ),
    kind=Why.INPUT_TYPE,
)
_BACKWARD = {"c": "k", "o": "p"}
_BOTH_FIT = (
    "b t i",
    *_CELL_FITS[:17],
    *(" ".join(_BACKWARD.get(letter, letter) for letter in spec.split()) for spec in _CELL_FITS[:17]),
    *("=b o", "=b c", "=b p", "=b k"),
)
"""Of all inputs of both directions: k cells and p output of the backward one."""
_WEIGHTS_FIT = requires(
    "weights of one type, and biases of the type that goes with the input's", _of_weights, kind=Why.INPUT_TYPE
)
_DIRECTIONS = requires("one output if merge_outputs says so, else two", _directions, lambda node: len(node.operator.outputs))
_KERNELS = requires(
    "kernel_type 0 or 1", lambda node: node.option("kernel_type") in (0, 1), lambda node: node.option("kernel_type")
)
_NORMALISED = requires(
    "layer normalisation of all gates, or of none, by numbers of the type that goes with the input's",
    lambda node: node.at(21) is None
    or (
        None not in (node.at(22), node.at(23))
        and (node.at(20) is None) == (node.at(1) is None)
        and {one.type.name for one in node.there(range(20, 24))} <= {"INT16" if node.type(0) == "INT8" else "FLOAT32"}
    ),
    kind=Why.MISSING_OPERAND,
)  # fmt: skip


def _coupled(first: int) -> Prepare:
    """The condition on operands of a direction, whose weights begin at an input."""

    def holds(node: PreparedOperator) -> bool:
        absent = [node.at(i + first - 1) is None for i in range(16)]
        return (
            absent[1] == absent[5] == absent[12]
            and not any(absent[i] for i in (2, 3, 4, 6, 7, 8, 13, 14, 15))
            and len({*(absent[10:12] if absent[1] else absent[9:12])}) == 1
        )

    rule = "all weights of each gate; only those of the input gate and the peepholes may be absent, and then all of them"
    return requires(rule, holds, kind=Why.MISSING_OPERAND)


_COUPLED = _coupled(1)
_PEEPHOLES = requires(
    "peepholes of the weights' type, of 16 bits beside 8-bit numbers",
    lambda node: {one.type.name for one in node.there((9, 10, 11))} <= {"INT16" if node.type(0) == "INT8" else node.type(2)},
    kind=Why.INPUT_TYPE,
)
_BASIC_FITS = requires(
    "inputs whose dimensions fit together", lambda node: node.option("kernel_type") != BASIC or _basic_inputs(node)
)
_SVDF_FITS = requires(
    "a rank that divides the rows of weights, and a bias and state that fit",
    lambda node: (
        node.option("rank") > 0
        and node.shape(1)[0] % node.option("rank") == 0
        and (node.at(3) is None or node.shape(3)[0] == node.shape(1)[0] // node.option("rank"))
        and node.shape(4) == (node.shape(0)[0], node.shape(2)[1] * node.shape(1)[0])
    ),
    kind=Why.OPERAND_SIZE,
)
LSTM = TfliteOperator(
    "LSTM",
    "One step of an LSTM: the full kernel, or the basic one with one matrix of weights.",
    _LSTM,
    outputs("output", "cell_state?", "concatenated?", "sums?"),
    options=(ACTIVATION, *_CLIPS, Option("kernel_type", 0, "0 full, 1 basic"), _ASYMMETRIC),
    delegate=DelegateRule(
        version=3,
        level=2,
        conditions=(
            NO_OLD_HYBRID,
            Condition(
                "weights of FLOAT32, UINT8 or (feature level 4) INT8; level 3 for 24 inputs",
                _full,
                _weights_type,
                kind=Why.INPUT_TYPE,
            ),
            until("2.4", Condition("no int8 weights", lambda n: _weights_type(n) != "INT8", _weights_type, kind=Why.INPUT_TYPE)),
            Condition(
                "constant uint8 weights, scale 1/128 and zero point 128 for the basic kernel",
                _basic,
                _weights_type,
                kind=Why.QUANTISATION_PARAMETERS,
            ),
        ),
    ),
    least_inputs=5,
    work=work.CELL,
    versions=(1, 4),
    loads=(
        _KERNELS,
        _BASIC_FITS,
        _PEEPHOLES,
        *map(_if_full, (_COUPLED, variable(18, 19), _WEIGHTS_FIT, _NORMALISED, fits("b i +", *_CELL_FITS))),
    ),
)
UNIDIRECTIONAL_SEQUENCE_LSTM = TfliteOperator(
    "UNIDIRECTIONAL_SEQUENCE_LSTM",
    "An LSTM over a sequence.",
    _LSTM,
    options=(
        ACTIVATION,
        *_CLIPS,
        _TIME_MAJOR,
        _ASYMMETRIC,
        Option("diagonal_recurrent_tensors", False, "recurrent weights are diagonal matrices"),
    ),
    delegate=DelegateRule(
        version=2,
        level=3,
        conditions=(
            NO_HYBRID,
            Condition(
                "20 or 24 inputs",
                lambda node: len(node.operator.inputs) in (20, 24),
                lambda node: len(node.operator.inputs),
                kind=Why.VARIANT,
            ),
        ),
    ),
    least_inputs=20,
    work=work.LAYER,
    versions=(1, 4),
    loads=(
        _COUPLED,
        variable(18, 19),
        _PEEPHOLES,
        _RECURRENT_FIT,
        _NORMALISED,
        fits("b t i|b t i x", *_DIAGONAL_FITS, of=_batch_first),
    ),
)
BIDIRECTIONAL_SEQUENCE_LSTM = TfliteOperator(
    "BIDIRECTIONAL_SEQUENCE_LSTM",
    "Two LSTMs over a sequence, from its start and from its end.",
    inputs(
        "input",
        *(f"{way}_{name}" for way in ("forward", "backward") for name in _ONE_DIRECTION[1:18]),
        *(f"{way}_{name}" for way in ("forward", "backward") for name in _ONE_DIRECTION[18:]),
        "aux_input?",
        *(f"{way}_aux_{name}" for way in ("forward", "backward") for name in _ONE_DIRECTION[1:5]),
    ),
    outputs("output", "backward_output?"),
    options=(ACTIVATION, *_CLIPS, _MERGE, replace(_TIME_MAJOR, default=True), _ASYMMETRIC),
    delegate=DelegateRule(version=1, level=3, conditions=(NO_HYBRID,)),
    least_inputs=48,
    work=work.TWO_LAYERS,
    versions=(1, 3),
    loads=(
        typed(0, "FLOAT32"),
        ranked(0, 3),
        _DIRECTIONS,
        _COUPLED,
        _coupled(18),
        _BOTH_WEIGHTS_FIT,
        variable(35, 36, 37, 38),
        fits(*_BOTH_FIT, of=_batch_first),
    ),
)
_RNN = inputs("input", "weights", "recurrent_weights", "bias", "state")
RNN = TfliteOperator(
    "RNN",
    "One step of a recurrent network.",
    _RNN,
    options=(ACTIVATION, _ASYMMETRIC),
    delegate=DelegateRule(version=1, conditions=(type_in(1, "FLOAT32"),)),
    work=work.CELL,
    versions=(1, 3),
    loads=(fits("b i +", "u i +", "u u +", "u +", "b u"), typed(0, "FLOAT32"), alike(1, 2)),
)
UNIDIRECTIONAL_SEQUENCE_RNN = TfliteOperator(
    "UNIDIRECTIONAL_SEQUENCE_RNN",
    "A recurrent network over a sequence.",
    _RNN,
    options=(_TIME_MAJOR, ACTIVATION, _ASYMMETRIC),
    delegate=DelegateRule(version=1, level=3, conditions=(NO_HYBRID,)),
    work=work.LAYER,
    versions=(1, 3),
    loads=(fits("b t i", "u i", "u u", "u", "b u", of=_batch_first), typed(0, "FLOAT32"), alike(1, 2)),
)
BIDIRECTIONAL_SEQUENCE_RNN = TfliteOperator(
    "BIDIRECTIONAL_SEQUENCE_RNN",
    "Two recurrent networks over a sequence, from its start and from its end.",
    inputs(
        "input",
        *(f"{way}_{name}" for way in ("forward", "backward") for name in ("weights", "recurrent_weights", "bias", "state")),
        "aux_input?",
        "forward_aux_weights?",
        "backward_aux_weights?",
    ),
    outputs("output", "backward_output?"),
    options=(_TIME_MAJOR, ACTIVATION, _MERGE, _ASYMMETRIC),
    least_inputs=12,
    work=work.TWO_LAYERS,
    versions=(1, 3),
    loads=(
        typed(0, "FLOAT32"),
        _DIRECTIONS,
        fits("b t i", "f i +", "f +", "f +", "b f", "r i +", "x r +", "r +", "b r", of=_batch_first),
    ),
)


def _check_svdf(node: OperatorView) -> None:
    node.require_weights(0, 1, 3)
    for i in (2, 4):
        if node.type(0) == "INT8" and node.type(i) != "INT16":
            node.refuse("weights in time and a state of int16 beside int8", f"{node.input(i)}")


SVDF = TfliteOperator(
    "SVDF",
    "One step of a layer whose weights are products of vectors over features and time.",
    inputs("input", "feature_weights", "time_weights", "bias?", "state"),
    options=(Option("rank", 0, "vectors of each unit"), ACTIVATION, _ASYMMETRIC),
    delegate=DelegateRule(version=1, level=2, conditions=(type_in(1, "FLOAT32"),)),
    check=_check_svdf,
    work=work.SVDF,
    versions=(1, 4),
    loads=(typed(0, "FLOAT32", "INT8"), fits("b i +", "f i +", "f m +", "*", "*"), _SVDF_FITS),
)


def _floats(to: Lowerer, indexes: Sequence[int]) -> list[Value]:
    """Inputs as floats: 8-bit weights are folded, omitted ones stay omitted."""
    data = to.input(0)
    # The delegate adds the operation all the same.
    to.require(data.type in FLOATS, "float activations", to.declared(0), kind=Why.INPUT_TYPE, stage=Stage.BUILDING)
    return [weights(to, i, data) if to.has(i) else to.draft.omitted(data.type) for i in indexes]


def _state(to: Lowerer, i: int) -> Value:
    """The new state at input ``i``."""
    return to.carry(i, to.input(0).like(dims=to.input(i).dims))


def _states(to: Lowerer, *indexes: int) -> list[Value]:
    """New states, as outputs of an operation that need not have them: none if nothing reads them."""
    if not any(map(to.is_state, indexes)) or (to.mapping == MappingKind.DELEGATE and not to.free):
        return []
    to.require(to.mapping != MappingKind.DELEGATE, "no state carried from run to run", to.declared(indexes[0]))
    return [_state(to, i) for i in indexes]


def _clips(to: Lowerer, data: Value) -> list[Value]:
    """Clips of the cell and of the projection, in the data's type."""
    return [to.float_scalar(to.option(name, 0.0), data) for name in ("cell_clip", "proj_clip")]


def _require_full(to: Lowerer) -> None:
    to.require(to.option("kernel_type") == 0 and to.count >= 20, "the full LSTM kernel", to.option("kernel_type"))


@UNIDIRECTIONAL_SEQUENCE_LSTM.lowering()
def sequence_lstm(to: Lowerer) -> None:
    """UNIDIRECTIONAL_SEQUENCE_LSTM: the same 20 inputs, options, then layer normalisation."""
    data = to.input(0)
    to.require(not to.option("diagonal_recurrent_tensors"), "full recurrent matrices", "diagonal ones")
    clips = _clips(to, data)
    fused, major = to.scalar(to.option("fused_activation_function")), to.flag(to.option("time_major"))
    inputs = [data, *_floats(to, range(1, 20)), fused, *clips, major, *_floats(to, LAYER_NORM)]
    to.emit_all(OperationCode.UNIDIRECTIONAL_SEQUENCE_LSTM, inputs, [to.out, *_states(to, 18, 19)])


@LSTM.lowering()
def lstm(to: Lowerer) -> None:
    """LSTM: one step; scratch and states are outputs that nothing reads."""
    data = to.input(0)
    _require_full(to)
    clips = _clips(to, data)
    inputs = [data, *_floats(to, range(1, 20)), to.scalar(to.option("fused_activation_function")), *clips]
    norms = _floats(to, LAYER_NORM) if to.count == 24 else []
    batch, cells = to.input(19).dims
    scratch = data.like(dims=(batch, cells * (4 if to.has(1) else 3)))
    to.emit_all(OperationCode.LSTM, (*inputs, *norms), [scratch, _state(to, 18), _state(to, 19), to.out])


@LSTM.lowering()
def quantised_lstm(to: Lowerer) -> None:
    """The 8-bit full kernel as QUANTIZED_LSTM, under the delegate mapping: NNAPI leaves the gates' biases out."""
    to.require(not to.free, "an 8-bit cell that adds its biases", to.declared(0))
    _require_full(to)
    data, lent = to.input(0), [to.values.tensors[i].quantisation for i in to.operator.intermediates if i >= 0]
    to.require(data.type == OperandCode.TENSOR_QUANT8_ASYMM_SIGNED and len(lent) == 5, "int8 and 5 intermediates", len(lent))
    symmetric = dict.fromkeys((*range(1, 9), 16), OperandCode.TENSOR_QUANT8_SYMM)
    symmetric |= dict.fromkeys((*range(9, 12), *LAYER_NORM), OperandCode.TENSOR_QUANT16_SYMM)

    def operand(i: int) -> Value:
        type = symmetric.get(i, OperandCode.TENSOR_INT32)
        if not to.has(i):
            return to.draft.omitted(type)
        value = to.input(i)
        return replace(value, type=type, zero_point=0) if type == OperandCode.TENSOR_QUANT8_SYMM else value

    inputs = [data, *map(operand, range(1, 18)), to.input(18), to.input(19), *map(operand, LAYER_NORM)]
    clips = _clips(to, data)
    scales = [to.float_scalar(quantisation.scale, data) for quantisation in lent]
    tail = [*scales[:4], to.scalar(lent[4].zero_point), scales[4]]
    output, cell = to.input(18), to.input(19)
    states = [to.carry(18, output.like()), to.carry(19, cell.like())]
    to.emit_all(OperationCode.QUANTIZED_LSTM, (*inputs, *clips, *tail), [*states, to.out])


@LSTM.lowering()
def basic_lstm(to: Lowerer) -> None:
    """The basic kernel of 8-bit integers as QUANTIZED_16BIT_LSTM; its one matrix has the recurrent weights first."""
    to.require(to.option("kernel_type") == 1 and to.count == 5, "the basic LSTM kernel", to.option("kernel_type"))
    data, matrix, sums = to.input(0), to.constant(2), to.constant(3)
    units = to.input(4).dims[-1]
    to.require(len(matrix) == 4 * units and matrix.dtype == np.uint8, "uint8 weights of four gates", matrix.shape)
    to.draft.spend(matrix.size + sums.size)
    # TFLite's gates are input, cell, forget, output.
    order = (0, 2, 1, 3)
    gates, biases = matrix.reshape(4, units, -1), sums.reshape(4, units)
    direct = [to.tensor(np.ascontiguousarray(gates[k][:, units:]), to.input(2)) for k in order]
    recurrent = [to.tensor(np.ascontiguousarray(gates[k][:, :units]), to.input(2)) for k in order]
    offsets = [to.tensor(np.ascontiguousarray(biases[k]), to.input(3), scale=to.declared(3).quantisation.scale) for k in order]
    out, state = to.outputs[:2]
    inputs = [data, *direct, *recurrent, *offsets, to.input(4), to.input(1)]
    to.emit_all(OperationCode.QUANTIZED_16BIT_LSTM, inputs, [state, out])
    to.carry(1, out)
    to.carry(4, state)


@BIDIRECTIONAL_SEQUENCE_LSTM.lowering()
def bidirectional_lstm(to: Lowerer) -> None:
    """BIDIRECTIONAL_SEQUENCE_LSTM: the same 48 inputs, options, no layer normalisation."""
    data = to.input(0)
    clips = _clips(to, data)
    inputs = [data, *_floats(to, range(1, 48)), to.scalar(to.option("fused_activation_function")), *clips]
    flags = [to.flag(to.option("merge_outputs")), to.flag(to.option("time_major"))]
    none = [to.draft.omitted(data.type)] * 8
    to.emit_all(OperationCode.BIDIRECTIONAL_SEQUENCE_LSTM, (*inputs, *flags, *none), [*to.outputs, *_states(to, 35, 36, 37, 38)])


def _cell(to: Lowerer) -> list[Value]:
    """Data, weights, recurrent weights, bias and state of a simple cell, and its activation."""
    return [to.input(0), *_floats(to, range(1, 5)), to.scalar(to.option("fused_activation_function"))]


@RNN.lowering()
def rnn(to: Lowerer) -> None:
    """RNN: one step."""
    inputs = _cell(to)
    to.emit_all(OperationCode.RNN, inputs, [_state(to, 4), to.out])


@UNIDIRECTIONAL_SEQUENCE_RNN.lowering()
def sequence_rnn(to: Lowerer) -> None:
    """UNIDIRECTIONAL_SEQUENCE_RNN; its flag is an INT32."""
    inputs = _cell(to)
    flag = to.scalar(bool(to.option("time_major")))
    to.emit_all(OperationCode.UNIDIRECTIONAL_SEQUENCE_RNN, (*inputs, flag), [to.out, *_states(to, 4)])


@BIDIRECTIONAL_SEQUENCE_RNN.lowering(wide=True)
def bidirectional_rnn(to: Lowerer) -> None:
    """BIDIRECTIONAL_SEQUENCE_RNN: the same 12 inputs, then options."""
    inputs = [to.input(0), *_floats(to, range(1, 12)), to.scalar(to.option("fused_activation_function"))]
    flags = [to.flag(to.option("time_major")), to.flag(to.option("merge_outputs"))]
    to.emit_all(OperationCode.BIDIRECTIONAL_SEQUENCE_RNN, (*inputs, *flags), [*to.outputs, *_states(to, 4, 8)])


@SVDF.lowering()
def svdf(to: Lowerer) -> None:
    """SVDF: one step; the new state is an output that nothing reads."""
    inputs = [
        to.input(0),
        *_floats(to, range(1, 5)),
        to.scalar(to.option("rank")),
        to.scalar(to.option("fused_activation_function")),
    ]
    to.emit_all(OperationCode.SVDF, inputs, [_state(to, 4), to.out])


@UNIDIRECTIONAL_SEQUENCE_LSTM.prepared_kernel
def host_sequence_lstm(inputs: Tensors, outputs: Tensors, options: Options) -> IntegerLstm:
    return IntegerLstm(inputs, outputs, options, time_major=bool(options["time_major"]))


@UNIDIRECTIONAL_SEQUENCE_LSTM.host_kernel
def host_sequence_lstm_at_once(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    return host_sequence_lstm(inputs, outputs, options)([tensor.value for tensor in inputs])


@LSTM.prepared_kernel
def host_lstm(inputs: Tensors, outputs: Tensors, options: Options) -> IntegerLstm:
    if options["kernel_type"] == BASIC:
        raise ValueError("the full LSTM kernel")
    return IntegerLstm(inputs, outputs, options)


@LSTM.host_kernel
def host_lstm_at_once(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    if options["kernel_type"] == BASIC:
        return _host_basic_lstm(inputs, outputs, options)
    return host_lstm(inputs, outputs, options)([tensor.value for tensor in inputs])


def _host_basic_lstm(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    """The cell with one matrix: the output, the state, and what TFLite shows of its work; then new states."""
    if inputs[0].dtype.kind != "f":
        raise ValueError("a basic LSTM of floats")
    data, previous, weights, biases, state = map(data_of, inputs[:5])
    joined = np.concatenate([data, previous], axis=-1)
    sums = joined @ weights.T + biases
    opened, candidate, forgotten, released = np.split(sums, 4, axis=-1)
    after = _sigmoid(opened) * np.tanh(candidate) + _sigmoid(forgotten) * state
    shown = _sigmoid(released) * np.tanh(after)
    work = [shown, after, joined, sums][: len(outputs) - len(options.get(STATES, ()))]
    return [*work, shown, after]


def _sigmoid(values: Array) -> Array:
    return 1 / (1 + np.exp(-values))


@SVDF.prepared_kernel
def integer_svdf(inputs: Tensors, outputs: Tensors, options: Options) -> IntegerSvdf:
    return IntegerSvdf(inputs, outputs, options["rank"])


@SVDF.kernel_16_bit
def host_integer_svdf(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    """One step with 8-bit activations and a 16-bit state in TFLite's integers: the output and the new state."""
    return integer_svdf(inputs, outputs, options)([tensor.value for tensor in inputs])
