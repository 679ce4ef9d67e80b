"""Integer LSTMs: gates that are multiplied together are those that are multiplied one by one."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nnbridge.errors import OpFailedError
from nnbridge.operations import definitions
from nnbridge.operations.arithmetic import mbqm, quantize_multiplier, rdbp, srdhm16
from nnbridge.operations.call import Arg
from nnbridge.operations.evaluate import make_call
from nnbridge.operations.fixedpoint import logistic16, tanh16
from nnbridge.types import TYPE_FACTS, OperandCode, OperationCode
from tests.operations.calls import I8, U8, omitted, output, scalar, tensor, twice

Op = OperationCode
S16, S8, I32 = OperandCode.TENSOR_QUANT16_SYMM, OperandCode.TENSOR_QUANT8_SYMM, OperandCode.TENSOR_INT32
Ints = npt.NDArray[Any]
GATES = ("input", "forget", "cell", "output")
SIZES, SEEDS = st.tuples(st.integers(1, 4), st.sampled_from([1, 5, 300]), st.sampled_from([1, 6])), st.integers(0, 2**32 - 1)


def results(code: OperationCode, args: list[Arg], *outputs: Arg) -> list[Ints]:
    """An operation's outputs, which a second run leaves alone and gives again."""
    return twice(make_call(definitions()[code], args, outputs))[0]


def numbers(rng: np.random.Generator, kind: OperandCode, *dims: int, scale: float, zero_point: int = 0) -> Arg:
    """A tensor of any values of its type; biases are small."""
    dtype = TYPE_FACTS[kind].dtype
    assert dtype is not None
    limits = np.iinfo(np.int16 if kind == I32 else np.dtype(dtype).name)
    return tensor(rng.integers(limits.min, limits.max, dims, endpoint=True), kind, scale=scale, zero_point=zero_point)


@given(SIZES, st.integers(0, 255), st.booleans(), SEEDS)
def test_a_16_bit_lstm_is_the_one_of_its_gates(sizes: tuple[int, int, int], zero_point: int, constant: bool, seed: int) -> None:
    rng, (batch, size, units) = np.random.default_rng(seed), sizes
    scale = float(np.float32(rng.uniform(0.001, 0.02)))
    weights = [[numbers(rng, U8, units, n, scale=scale, zero_point=zero_point) for _ in GATES] for n in (size, units)]
    biases = [numbers(rng, I32, units, scale=scale / 128) for _ in GATES]
    x, state = numbers(rng, U8, batch, size, scale=1 / 128, zero_point=128), numbers(rng, S16, batch, units, scale=1 / 2048)
    hidden = numbers(rng, U8, batch, units, scale=1 / 128, zero_point=128)
    fixed = [arg.replace(constant=constant) for arg in (*weights[0], *weights[1], *biases)]
    args = [x, *fixed, state, hidden]
    found = results(Op.QUANTIZED_16BIT_LSTM, args, output(S16, scale=1 / 2048), output(U8, scale=1 / 128, zero_point=128))

    row = np.concatenate([x.data, hidden.data], axis=1).astype(np.int64) - 128
    multiplier, gates = quantize_multiplier(4096 * float(np.float32(biases[0].scale))), {}
    for gate, direct, recurrent, bias in zip(GATES, *weights, biases, strict=True):
        weight = np.concatenate([recurrent.data, direct.data], axis=1).astype(np.int64) - zero_point
        gates[gate] = np.clip(mbqm(row @ weight.T + bias.data, *multiplier), -32768, 32767)
    opened, kept, out = (logistic16(gates[gate]) for gate in ("input", "forget", "output"))
    new = np.clip(rdbp(srdhm16(opened, tanh16(gates["cell"])), 4) + srdhm16(kept, state.data), -32768, 32767)
    y = rdbp(srdhm16(out, tanh16(np.clip(new << 1, -32768, 32767))), 8)
    np.testing.assert_array_equal(found[0], new)
    np.testing.assert_array_equal(found[1], np.clip(y, -128, 127) + 128)


@given(SIZES, st.tuples(*[st.booleans()] * 4), st.booleans(), SEEDS)
def test_batches_of_an_8_bit_lstm_do_not_see_each_other(
    sizes: tuple[int, int, int], form: tuple[bool, bool, bool, bool], constant: bool, seed: int
) -> None:
    rng, (batch, size, units), (cifg, peephole, projection, norm) = np.random.default_rng(seed), sizes, form
    outputs = 3 if projection else units

    def weights(there: bool, kind: OperandCode, *dims: int) -> Arg:
        return numbers(rng, kind, *dims, scale=float(np.float32(rng.uniform(0.002, 0.02)))) if there else omitted(kind)

    def gates(kind: OperandCode, *dims: int, there: bool = True) -> list[Arg]:
        return [weights(there and not (cifg and gate == "input"), kind, *dims) for gate in GATES]

    constants = [
        *gates(S8, units, size),
        *gates(S8, units, outputs),
        *(weights(peephole and not (cifg and gate == "input"), S16, units) for gate in ("input", "forget", "output")),
        *gates(I32, units),
        weights(projection, S8, outputs, units),
        weights(projection, I32, outputs),
    ]
    norms = gates(S16, units, there=norm)
    real = OperandCode.FLOAT32
    scales = [scalar(rng.uniform(1e-4, 1e-3), real) for _ in GATES]
    tail = [*norms, scalar(1.5, real), scalar(0.5, real), *scales, scalar(-3), scalar(0.007, real)]
    constants, tail = ([arg.replace(constant=constant) for arg in args] for args in (constants, tail))
    data = {
        "x": numbers(rng, I8, batch, size, scale=0.02, zero_point=3),
        "hidden": numbers(rng, I8, batch, outputs, scale=1 / 128, zero_point=-5),
        "state": numbers(rng, S16, batch, units, scale=2.0**-11),
    }

    def run(rows: slice) -> list[Ints]:
        x, hidden, state = (arg.with_value(arg.data[rows], arg.data[rows].shape) for arg in data.values())
        like_hidden = [output(I8, scale=1 / 128, zero_point=-5) for _ in range(2)]
        args = [x, *constants, hidden, state, *tail]
        return results(Op.QUANTIZED_LSTM, args, like_hidden[0], output(S16, scale=2.0**-11), like_hidden[1])

    alone = [run(slice(k, k + 1)) for k in range(batch)]
    for whole, *rows in zip(run(slice(None)), *alone, strict=True):
        np.testing.assert_array_equal(whole, np.concatenate(rows))


@pytest.mark.parametrize(("clip", "state", "drive", "expected"), [(0.5, 20_000, 0, 1024), (100.0, -32768, 100, -32767)])
def test_an_8_bit_lstm_s_state_is_clipped_to_as_far_on_both_sides(clip: float, state: int, drive: int, expected: int) -> None:
    # Gates of nothing are open by half: of 20,000 steps of 2**-11 10,000 are left, clipped to those of 0.5. Open gates keep
    # nearly all of -32768 and add 2047 steps to it; a clip beyond 16 bits is one to 32767.
    assert small_lstm(clip=clip, state=state, drive=drive)[1].tolist() == [[expected]]


def test_an_8_bit_lstm_s_state_may_be_as_coarse_as_2_to_the_minus_9() -> None:
    assert small_lstm(state=20_000, exponent=-9)[1].tolist() == [[10_000]]
    with pytest.raises(OpFailedError, match=r"2\*\*-9 or less"):
        small_lstm(state=20_000, exponent=-8)


def test_an_8_bit_lstm_adds_the_bias_of_its_projection() -> None:
    # The projection's scale times the hidden state's is the output's: 5 steps are 5, above a zero point of 3.
    assert small_lstm(projection_bias=5)[0].tolist() == [[8]]
    # A clip beyond 8 bits is one to 127.
    assert small_lstm(projection_bias=-500, proj_clip=100.0)[0].tolist() == [[-127]]


def test_an_8_bit_lstm_s_forget_gate_opens_by_the_state_that_it_looks_at() -> None:
    # 1000 * 20,000 * 2 steps of 2**-12 are more than a gate holds: it is open as far as 32767 steps open it.
    opened = int(logistic16(32767))
    assert small_lstm(peephole=1000, state=20_000)[1].tolist() == [[int(rdbp(opened * 20_000, 15))]]
    closed = int(logistic16(-32768))
    assert small_lstm(peephole=-1, state=20_000)[1].tolist() == [[int(rdbp(closed * 20_000, 15))]]


def test_an_8_bit_lstm_without_a_clip_clips_nothing() -> None:
    assert small_lstm(clip=None, state=20_000)[1].tolist() == [[10_000]]


def small_lstm(
    *,
    clip: float | None = 0.0,
    state: int = 0,
    drive: int = 0,
    peephole: int | None = None,
    projection_bias: int = 0,
    proj_clip: float = 0.0,
    exponent: int = -11,
) -> list[Ints]:
    """A step of one unit, whose gates the input opens while it draws the candidate to the other side."""
    weights = [tensor([[-1 if gate == "cell" else 1]], S8, scale=0.5) for gate in GATES]
    looking = [omitted(S16) if peephole is None else tensor([peephole], S16, scale=1.0) for _ in range(3)]
    biases = [tensor([0], I32, scale=1.0) for _ in GATES]
    projection = [tensor([[0]], S8, scale=0.5), tensor([projection_bias], I32, scale=2.0**-8)]
    hidden = tensor([[3]], I8, scale=2.0**-8, zero_point=3)
    kind = OperandCode.FLOAT32
    real = [omitted(kind) if value is None else scalar(value, kind) for value in (clip, proj_clip, *[2.0**-12] * 4)]
    tail = [*[omitted(S16)] * 4, *real, scalar(0), scalar(2.0**-7, OperandCode.FLOAT32)]
    previous = tensor([[state]], S16, scale=2.0**exponent)
    args = [tensor([[drive]], I8, scale=1.0), *weights, *weights, *looking, *biases, *projection, hidden, previous, *tail]
    outs = [output(I8, scale=2.0**-8, zero_point=3) for _ in range(2)]
    return results(Op.QUANTIZED_LSTM, args, outs[0], output(S16, scale=2.0**exponent), outs[1])


def step_of_16_bits(bias: int, *, bias_scale: float = 2.0**-14, zero_point: int = 0) -> list[Ints]:
    """A step of one unit, whose gates sum two products of 127 * 127 and a bias."""
    weights = [tensor([[127]], U8, scale=2.0**-7) for _ in range(8)]
    biases = [tensor([bias], I32, scale=bias_scale, zero_point=zero_point) for _ in GATES]
    x, hidden = (tensor([[255]], U8, scale=1 / 128, zero_point=128) for _ in range(2))
    state = tensor([[0]], S16, scale=1 / 2048)
    outs = output(S16, scale=1 / 2048), output(U8, scale=1 / 128, zero_point=128)
    return results(Op.QUANTIZED_16BIT_LSTM, [x, *weights, *biases, state, hidden], *outs)


def test_sums_of_a_16_bit_lstm_wrap_in_32_bits() -> None:
    # 2**31 - 1 and 32,258 wrap to the lowest numbers: the candidate is -1, and the gates are closed.
    assert step_of_16_bits(2**31 - 1)[0].tolist() == step_of_16_bits(-(2**31) + 32_257)[0].tolist()


@pytest.mark.parametrize("wrong", [{"bias_scale": 2.0**-13}, {"zero_point": 1}])
def test_biases_of_a_16_bit_lstm_have_the_scale_of_the_weights_over_128(wrong: dict[str, Any]) -> None:
    with pytest.raises(OpFailedError, match=r"input_gate_bias: expected scale 6\.10352e-05"):
        step_of_16_bits(0, **wrong)
