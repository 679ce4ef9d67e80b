"""Constant weights packed by a kernel lie as NumPy packs them; steps of operations like earlier ones are theirs."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from nnbridge.builder import ModelBuilder
from nnbridge.cpu.compiled.bindings import binding
from nnbridge.cpu.compiled.bindings.binding import KnownSteps
from nnbridge.cpu.compiled.bindings.products import pack_bytes
from nnbridge.cpu.compiled.instructions import host_sets
from nnbridge.cpu.compiled.kernels.products import pack_strips
from nnbridge.cpu.compiled.requantise import Rescaling
from nnbridge.model import Model
from nnbridge.types import OperandCode, OperationCode
from tests.compiled.hybrid import candidates, compile_model


@pytest.mark.parametrize("exponents", [(-20, -1), (-30, 5), (-5, 0)], ids=["right", "both ways", "slightly right"])
@pytest.mark.parametrize("each", [True, False], ids=["by channel", "one for all"])
def test_packed_bytes_are_those_of_numpy(exponents: tuple[int, int], each: bool) -> None:
    rng = np.random.default_rng(16)
    for isa in host_sets():
        for channels, segments, length in ((1, 1, 1), (16, 1, 64), (33, 3, 9), (70, 1, 40), (129, 2, 7)):
            if not isa.quads:
                continue
            weights = rng.integers(-128, 128, (channels, segments, length)).astype(np.int8)
            bias, zero = rng.integers(-(2**31), 2**31, channels).astype(np.int32), int(rng.integers(0, 256))
            count = channels if each else 1
            shifts = rng.integers(*exponents, count)
            rescaling = Rescaling.twice(rng.integers(2**30, 2**31, count), shifts, 7, negative_clamped=channels > 20)
            totals = weights.reshape(channels, -1).sum(axis=1, dtype=np.int64)
            strips = pack_strips(isa, weights, (bias - zero * totals).astype(np.int32), rescaling)
            block, found = pack_bytes(isa, weights, bias, rescaling, zero)
            assert found == strips.count
            np.testing.assert_array_equal(block.data, strips.block(1).data)


def chain(count: int) -> Model:
    """Softmax after softmax, all alike."""
    builder = ModelBuilder()
    values = [builder.add_operand(OperandCode.TENSOR_QUANT8_ASYMM, (2, 5), scale=1 / 256) for _ in range(count + 1)]
    for before, after in itertools.pairwise(values):
        beta = builder.add_operand(OperandCode.FLOAT32)
        builder.set_operand_value(beta, np.float32(1))
        builder.add_operation(OperationCode.SOFTMAX, [before, beta], [after])
    builder.identify_inputs_and_outputs(values[:1], values[-1:])
    return builder.finish()


def test_like_operations_are_bound_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(binding, "_REPEATED", KnownSteps())
    calls = []
    bound = binding._bound
    monkeypatch.setattr(binding, "_bound", lambda *args: calls.append(args) or bound(*args))
    [program] = compile_model(chain(4)).programs
    assert len(calls) == 1
    assert program.operations == (0, 1, 2, 3)
    x, y = np.arange(10, dtype=np.uint8).reshape(2, 5), np.zeros((2, 5), np.uint8)
    program.run([x], [y])
    monkeypatch.setattr(binding, "key_of", lambda *_: None)
    expected = np.zeros((2, 5), np.uint8)
    compile_model(chain(4)).programs[0].run([x], [expected])
    np.testing.assert_array_equal(y, expected)


def test_steps_that_are_kept_take_a_bounded_number_of_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nnbridge.cpu.compiled.bindings.binding._MOST_BYTES", 3 * 4096)
    repeated = KnownSteps()
    [candidate] = candidates(chain(1))
    for k in range(10):
        repeated.add((k,), candidate, [])
    assert sum(repeated.find((k,), candidate) is not None for k in range(10)) <= 3
