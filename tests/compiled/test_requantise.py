"""Collapsed roundings against the two roundings of the reference arithmetic, in emitted code."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nnbridge.cpu.compiled.declared import Fields, kernel
from nnbridge.cpu.compiled.emitter import Emitter
from nnbridge.cpu.compiled.instructions import InstructionSet, chosen
from nnbridge.cpu.compiled.objects import Variant, function, library
from nnbridge.cpu.compiled.requantise import Inexact, Narrowing, Rescaling, column_order, load_parameters, rescale
from nnbridge.cpu.compiled.values import I32, IrValue, vector
from nnbridge.operations.arithmetic import mbqm, mbqm_once, wrap32


@kernel("source target parameters count")
def rescale_only(e: Emitter, f: Fields, part: IrValue, parts: IrValue, *, form: str) -> None:
    """Vectors of sums, rescaled with the parameters of one vector."""
    lanes = e.instructions.lanes
    loaded = load_parameters(e, f.parameters, lanes, form)

    def one(at: IrValue) -> None:
        e.store(rescale(e, e.load(f.source + at * 4, vector(I32, lanes)), loaded, form), f.target + at * 4)

    e.loop(0, f.count, one, step=lanes)


@kernel("source target low high")
def narrow_rows(e: Emitter, f: Fields, part: IrValue, parts: IrValue, *, across: int, rows: int) -> None:
    """Rows of vectors narrowed to bytes, one row behind the other."""
    lanes = e.instructions.lanes
    narrowing = Narrowing(e, "relu", lanes, e.number(0), f.low, f.high)
    read = [[e.load(f.source, vector(I32, lanes), (r * across + v) * 4 * lanes) for v in range(across)] for r in range(rows)]
    for r, packed in enumerate(narrowing.rows(read)):
        e.store(packed, f.target, r * across * lanes)


def run(isa: InstructionSet, values: np.ndarray, rescaling: Rescaling) -> np.ndarray:
    """The emitted code's results for sums; the zero point is subtracted again where the form adds it."""
    lanes = isa.lanes
    source = np.zeros(-(-len(values) // lanes) * lanes, np.int32)
    source[: len(values)] = wrap32(values)
    target = np.zeros_like(source)
    parameters = rescaling.packed(np.zeros(1, np.int64), np.zeros(lanes, np.int64), lanes)
    block = np.array([source.ctypes.data, target.ctypes.data, parameters.ctypes.data, len(source)], np.int64)
    address = library(isa).address(Variant("rescale_only", (("form", rescaling.form),)))
    function(address)(block.ctypes.data, 0, 1)
    return target[: len(values)].astype(np.int64) - (0 if rescaling.form == "general" else rescaling.zero_point)


def sums(rng: np.random.Generator, multiplier: int, right: int) -> np.ndarray:
    """Sums of every size, the ends of the range, and those next to a tie of either rounding."""
    spread = rng.integers(-(2**31), 2**31, 200) >> rng.integers(0, 31, 200)
    halves = np.arange(-60, 60) * 2 + 1
    ties = (halves * (1 << max(right - 1, 0)) << 31) // max(multiplier, 1)
    near = (ties[:, None] + np.arange(-1, 2)).reshape(-1)
    ends = np.array([-(2**31), -(2**31) + 1, -1, 0, 1, 2**31 - 2, 2**31 - 1])
    return np.concatenate([spread, np.clip(near, -(2**31), 2**31 - 1), ends])


MULTIPLIERS = st.one_of(st.sampled_from([0, 2**30, 2**30 + 1, 2**31 - 1]), st.integers(2**30, 2**31 - 1))


@settings(max_examples=250)
@given(MULTIPLIERS, st.integers(-31, 30), st.integers(0, 255), st.integers(0, 2**32 - 1))
def test_two_roundings_are_those_of_the_reference(multiplier: int, exponent: int, zero_point: int, seed: int) -> None:
    exponent = 0 if multiplier == 0 else exponent
    values = sums(np.random.default_rng(seed), multiplier, max(-exponent, 0))
    rescaling = Rescaling.twice(np.array([multiplier]), np.array([exponent]), zero_point)
    np.testing.assert_array_equal(run(chosen(), values, rescaling), mbqm(values, multiplier, exponent))


@pytest.mark.parametrize("exponent", [-31, -23, -22, -9, -1, 0, 1, 7, 30])
def test_two_roundings_with_every_instruction_set(isa: InstructionSet, exponent: int) -> None:
    rng = np.random.default_rng(exponent + 99)
    for multiplier in (2**30, 2**30 + 1, 2**31 - 1, int(rng.integers(2**30, 2**31))):
        values = sums(rng, multiplier, max(-exponent, 0))
        rescaling = Rescaling.twice(np.array([multiplier]), np.array([exponent]), 77)
        np.testing.assert_array_equal(run(isa, values, rescaling), mbqm(values, multiplier, exponent))


def test_clamped_negative_results_need_no_correction() -> None:
    values = sums(np.random.default_rng(3), 1_500_000_000, 4)
    rescaling = Rescaling.twice(np.array([1_500_000_000]), np.array([-4]), 9, negative_clamped=True)
    assert rescaling.form == "relu"
    expected = mbqm(values, 1_500_000_000, -4)
    np.testing.assert_array_equal(np.maximum(run(chosen(), values, rescaling), 0), np.maximum(expected, 0))


@settings(max_examples=150)
@given(MULTIPLIERS, st.integers(-31, 8), st.integers(0, 2**32 - 1))
def test_one_rounding_is_that_of_the_reference(multiplier: int, exponent: int, seed: int) -> None:
    values = sums(np.random.default_rng(seed), multiplier, 31 - exponent) >> max(exponent + 1, 0)
    bound = int(np.abs(values).max())
    rescaling = Rescaling.once(multiplier, exponent, 40, bound)
    np.testing.assert_array_equal(run(chosen(), values, rescaling), mbqm_once(values, multiplier, exponent))


def test_results_beyond_32_bits_are_left_to_the_reference() -> None:
    with pytest.raises(Inexact, match="below 2"):
        Rescaling.once(2**31 - 1, 4, 0, 2**28)


def test_sums_that_wrap_when_they_are_shifted_to_the_left_are_left_to_the_reference() -> None:
    """A multiplier of 1 is 2**30 * 2**(1 - 31): the sum is doubled first, in 32 bits."""
    Rescaling.once(2**30, 1, 0, 2**30 - 1)
    with pytest.raises(Inexact, match="below 2"):
        Rescaling.once(2**30, 1, 0, 2**30)


@pytest.mark.parametrize("across", [4, 2, 1])
@pytest.mark.parametrize("rows", [1, 4])
def test_narrowed_rows_come_in_the_order_of_columns(isa: InstructionSet, across: int, rows: int) -> None:
    width = across * isa.lanes
    values = np.random.default_rng(across).integers(-400, 600, (rows, width)).astype(np.int32)
    source = np.ascontiguousarray(values[:, column_order(across, isa.lanes)])
    target = np.zeros((rows, width), np.uint8)
    block = np.array([source.ctypes.data, target.ctypes.data, 3, 250], np.int64)
    variant = Variant("narrow_rows", (("across", across), ("rows", rows)))
    function(library(isa).address(variant))(block.ctypes.data, 0, 1)
    np.testing.assert_array_equal(target, np.clip(values, 3, 250))


@pytest.mark.parametrize("exponent", [-60, -22, -5, 0, 3])
@pytest.mark.parametrize("clamped", [False, True])
def test_one_for_all_lanes_is_packed_as_one_channel_is(exponent: int, clamped: bool) -> None:
    one = Rescaling.twice(np.array([1_234_567_890]), np.array([exponent]), 7, negative_clamped=clamped)
    for lanes in (4, 16):
        packed = one.packed(np.zeros(1, np.int64), np.zeros(lanes, np.int64), lanes)
        np.testing.assert_array_equal(one.uniform(lanes), packed)


def test_several_operations_at_once_are_as_each_by_itself() -> None:
    multipliers = np.array([2**30, 2**31 - 1, 0, 1_234_567_890, 2**30 + 1])
    exponents, ends = np.array([-3, -9, 0, 2, -31]), np.array([2, 3, 4, 5])
    zeros, clamped = [9, 0, 77, 255], [True, False, False, False]
    each = Rescaling.each(multipliers, exponents, ends, zeros, clamped)
    for made, part, zero, relu in zip(each, map(slice, [0, 2, 3, 4], ends), zeros, clamped, strict=True):
        alone = Rescaling.twice(multipliers[part], exponents[part], zero, negative_clamped=relu)
        assert made.form == alone.form
        for name in ("multiplier", "left", "constant", "correction", "shift"):
            np.testing.assert_array_equal(getattr(made, name), getattr(alone, name))
