"""TFLite's integer LSTM, MEAN and SVDF: cells that can be computed by hand, boundaries and refusals."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from nnbridge.extensions import Arg
from nnbridge.operations.integer_lstm import CELL_STATE, DATA, OUTPUT_STATE, IntegerLstm
from nnbridge.operations.integer_mean import IntegerMean
from nnbridge.operations.integer_svdf import IntegerSvdf
from tests.graphs import NO_TENSOR, argument

CELL_SCALE = 2.0**-15
UNITS = 3


def tensor(dims: tuple[int, ...], dtype: str, scale: float = 0.0, point: int = 0, data: Any = None) -> Arg:
    held = None if data is None else np.broadcast_to(np.array(data, dtype), dims)
    return argument(dims, dtype, scale, point, held)


# -- LSTM: sums of gates count 4096 to 1, scales are such that biases and products are sums --------------------------------


def lstm(
    biases: tuple[int | None, int, int, int], weight: int = 0, projection: int | None = None, steps: int = 1, **options: Any
) -> IntegerLstm:
    """One input, three units; biases of the input gate (or none), the forget gate, the cell and the output gate.

    ``weight``: of the input and the output state, to the cell's sums. ``projection``: a bias, to one output.
    """
    size, cifg = UNITS if projection is None else 1, biases[0] is None
    inputs = [NO_TENSOR] * 20
    inputs[DATA] = tensor((steps, 1, 1), "i1", 2.0**-6, 3)
    inputs[OUTPUT_STATE] = tensor((1, size), "i1", 2.0**-7)
    inputs[CELL_STATE] = tensor((1, UNITS), "i2", CELL_SCALE)
    for k, bias in list(enumerate(biases, 1))[cifg:]:
        inputs[k] = tensor((UNITS, 1), "i1", 2.0**-6, data=weight if k == 3 else 0)
        inputs[k + 4] = tensor((UNITS, size), "i1", 2.0**-5, data=weight if k == 3 else 0)
        inputs[k + 11] = tensor((UNITS,), "i4", 2.0**-12, data=bias)
    if projection is not None:
        inputs[16] = tensor((1, UNITS), "i1", 1.0, data=0)
        inputs[17] = tensor((1,), "i4", 2.0**-7, data=projection)
    outputs = [replace(inputs[OUTPUT_STATE], dims=(steps, 1, size)), inputs[OUTPUT_STATE], inputs[CELL_STATE]]
    return IntegerLstm(inputs, outputs, options)


def run(layer: IntegerLstm, state: int = 0, x: int = 3) -> list[list[int]]:
    """Output, output state and cell state; an ``x`` of 3 counts as 0."""
    arrays: list[npt.NDArray[Any] | None] = [None] * 20
    for place, value in ((DATA, x), (OUTPUT_STATE, 0), (CELL_STATE, state)):
        arrays[place] = np.full(layer.inputs[place].dims, value, layer.inputs[place].dtype)
    return [part.reshape(-1).tolist() for part in layer(arrays)]


def test_without_an_input_gate_what_is_forgotten_lets_in() -> None:
    # Sigmoid(0) is 16384 of 32768, and 32767 less that is 16383; tanh(8) is 32767. Their product is 16382.5 of 32768.
    assert run(lstm((None, 0, 32767, 0)))[2] == [16383] * UNITS


def test_the_output_has_its_states_scale_where_no_intermediate_lends_one() -> None:
    # Half of tanh(16383 / 32768) is 0.231, which is 29.6 steps of 1 / 128.
    assert run(lstm((None, 0, 32767, 0)))[0] == [30] * UNITS


def test_one_output_is_enough() -> None:
    layer = lstm((None, 0, 32767, 0))
    assert run(IntegerLstm(layer.inputs, layer.outputs[:1], {})) == [[30] * UNITS]


@pytest.mark.parametrize("sum_of_cell", [32767, -32768])
@pytest.mark.parametrize("clip", [0.25, 0.001])
def test_the_cell_state_is_clipped(sum_of_cell: int, clip: float) -> None:
    expected = int(clip / CELL_SCALE) * (1 if sum_of_cell > 0 else -1)
    assert run(lstm((None, 0, sum_of_cell, 0), cell_clip=clip))[2] == [expected] * UNITS


def test_a_clip_beyond_16_bits_is_their_largest_number() -> None:
    # All gates open: -32768 stays, and as much again is added.
    open_gates = 32767, 32767, -32768, 0
    assert run(lstm(open_gates), state=-32768)[2] == [-32768] * UNITS
    assert run(lstm(open_gates, cell_clip=10.0), state=-32768)[2] == [-32767] * UNITS


@pytest.mark.parametrize(("bias", "state"), [(1000, 3982), (-1000, -4012)])
def test_a_projected_output_saturates_before_it_comes_back(bias: int, state: int) -> None:
    # 8 times 127 and -128 are sums of the second step: tanh(1016 / 4096) is 7965, of which 16383 / 32768 are let in; tanh(-1 / 4)
    # is -8025. In fixed point it is a little beside that; 128 or -129 would be 30 beside it.
    assert run(lstm((None, 0, 0, 0), weight=8, projection=bias, steps=2))[2] == pytest.approx([state] * UNITS, abs=6)


def test_a_constant_input_counts_from_its_zero_point() -> None:
    layer = lstm((None, 0, 0, 0), weight=100)
    inputs = list(layer.inputs)
    inputs[DATA] = replace(inputs[DATA], value=np.full((1, 1, 1), 23, np.int8))
    arrays: list[Any] = [None] * 20
    arrays[OUTPUT_STATE], arrays[CELL_STATE] = np.zeros((1, UNITS), np.int8), np.zeros((1, UNITS), np.int16)
    # 100 * (23 - 3) of 4096: tanh is 14838.8 of 32768, of which 16383 / 32768 are let in: 7418.9, but for fixed point.
    found = IntegerLstm(inputs, layer.outputs, {})(arrays)[2].reshape(-1).tolist()
    assert found == run(layer, x=23)[2] == pytest.approx([7419] * UNITS, abs=2)


@pytest.mark.parametrize("place", [9, 10, 11, 20, 21, 22, 23])
def test_peepholes_and_layer_normalisation_are_refused(place: int) -> None:
    layer = lstm((0, 0, 0, 0))
    inputs = [*layer.inputs, *[NO_TENSOR] * 4]
    inputs[place] = tensor((UNITS,), "i2", 1.0, data=1)
    with pytest.raises(ValueError, match="without peepholes and layer normalisation"):
        IntegerLstm(inputs, layer.outputs, {})


# -- MEAN ------------------------------------------------------------------------------------------------------------------


def mean(dims: tuple[int, ...], scale: float, axes: tuple[int, ...] = (0,)) -> IntegerMean:
    out = tuple(1 if i in axes else d for i, d in enumerate(dims))
    return IntegerMean([tensor(dims, "i1", scale)], [tensor(out, "i1", 1.0)], axes, keep=True)


def test_a_mean_of_one_number_is_that_number() -> None:
    assert mean((1, 2), 1.0)([np.int8([[7, -3]])])[0].tolist() == [[7, -3]]


@pytest.mark.parametrize(
    ("count", "scale", "multiplier", "shift"),
    [
        (4, 2.0, 2**30, 0),  # 2 is 2^30 * 2^2 / 2^31; 2^2 / 4
        (3, 2.0, 2**31 // 3, 1),
        (2**34, 2.0, 2**62 // 2**34, 2 - 32),  # by 32 bits at most
        (4, 2.0**-32, 2**30 // 4, -31),  # as far as the shift is not below -31
        (4, 2.0**-31, 2**31 // 4, -31),
        (1, 2.0, 2**30, 2),
    ],
)
def test_the_count_divides_a_multiplier_of_as_many_bits_as_fit(count: int, scale: float, multiplier: int, shift: int) -> None:
    # LiteRT's rule: the multiplier is moved by the count's bits, by 32 at most, and by no more than keeps the shift above -32.
    found = mean((count,), scale)
    assert (found.multiplier, found.shift) == (multiplier, shift)


# -- SVDF ------------------------------------------------------------------------------------------------------------------


def svdf(data_scale: float = 0.5, out_scale: float = 0.25) -> IntegerSvdf:
    """One unit of rank 2 that remembers two steps."""
    features = tensor((2, 1), "i1", 0.25, data=[[3], [-2]])
    time = tensor((2, 2), "i2", 0.5, data=[[1, 2], [3, -1]])
    state = tensor((1, 4), "i2", 0.0625)
    inputs = [tensor((1, 1), "i1", data_scale, 1), features, time, tensor((1,), "i4", data=[4]), state]
    return IntegerSvdf(inputs, [tensor((1, 1), "i1", out_scale, 3), state], 2)


def test_svdf_by_hand() -> None:
    # 5 less 1 times 3 and -2 is 12 and -8, times 0.5 * 0.25 / 0.0625 is 24 and -16, which push out 10 and 30.
    # 20 * 1 + 24 * 2 + 40 * 3 - 16 * -1 + 4 is 208, times 0.0625 * 0.5 / 0.25 is 26, and 3.
    out, state = svdf()([np.int8([[5]]), None, None, None, np.int16([[10, 20, 30, 40]])])
    assert out.tolist() == [[29]]
    assert state.tolist() == [[20, 24, 40, -16]]


@pytest.mark.parametrize("scales", [{"data_scale": 0.0}, {"out_scale": 0.0}], ids=str)
def test_svdf_of_real_numbers_is_refused(scales: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="integer activations"):
        svdf(**scales)
