"""Models of one operation with random constants, through the ordinary builder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from nnbridge.builder import ModelBuilder
from nnbridge.cpu.compiled.instructions import InstructionSet
from nnbridge.model import Model
from nnbridge.types import TYPE_FACTS, OperandCode, OperationCode
from tests.compiled.hybrid import Hybrid

F32, U8, I8 = OperandCode.TENSOR_FLOAT32, OperandCode.TENSOR_QUANT8_ASYMM, OperandCode.TENSOR_QUANT8_ASYMM_SIGNED
PER_CHANNEL, I32 = OperandCode.TENSOR_QUANT8_SYMM_PER_CHANNEL, OperandCode.TENSOR_INT32
F16 = OperandCode.TENSOR_FLOAT16


@dataclass(frozen=True)
class Tensor:
    """An operand of a test: an input of the model unless it has a value."""

    type: OperandCode
    dims: tuple[int, ...]
    scale: float = 0.0
    zero_point: int = 0
    value: Any = None
    scales: Sequence[float] = field(default=())
    channel: int = 0


def model_of(code: OperationCode, inputs: Sequence[Tensor | int | float | bool | None], outputs: Sequence[Tensor]) -> Model:
    """One operation; numbers are INT32, FLOAT32 and BOOL scalars, None an omitted tensor of float32."""
    builder = ModelBuilder(code.name)
    operands, free = [], []
    for given in inputs:
        if given is None:
            operands.append(builder.add_operand(F32))
            builder.set_operand_value(operands[-1], None)
            continue
        if not isinstance(given, Tensor):
            kind = (
                OperandCode.BOOL
                if isinstance(given, bool)
                else OperandCode.INT32
                if isinstance(given, int)
                else OperandCode.FLOAT32
            )
            operands.append(builder.add_operand(kind))
            builder.set_operand_value(operands[-1], given)
            continue
        operands.append(builder.add_operand(given.type, given.dims, scale=given.scale, zero_point=given.zero_point))
        if given.scales:
            builder.set_operand_symm_per_channel_quant_params(operands[-1], list(given.scales), given.channel)
        if given.value is None:
            free.append(operands[-1])
        else:
            builder.set_operand_value(operands[-1], given.value)
    results = [builder.add_operand(o.type, o.dims, scale=o.scale, zero_point=o.zero_point) for o in outputs]
    builder.add_operation(code, operands, results)
    builder.identify_inputs_and_outputs(free, results)
    return builder.finish()


def random_data(rng: np.random.Generator, kind: OperandCode, dims: tuple[int, ...]) -> Any:
    """Values over the whole range of an integer type, or normally distributed ones."""
    if kind in (F32, F16):
        return rng.normal(size=dims).astype(TYPE_FACTS[kind].dtype)
    if kind == I32:
        return rng.integers(-(2**31), 2**31, dims, np.int32)
    return rng.integers(0, 256, dims).astype(np.uint8).view(TYPE_FACTS[kind].dtype)


def check(model: Model, isa: InstructionSet, rng: np.random.Generator, rounds: int = 2) -> None:
    """Compiled and reference kernels give the same: bit for bit, or within 1e-5 and 5 units in the last place."""
    hybrid = Hybrid(model, isa)
    assert not hybrid.plan.left, hybrid.plan.left
    for _ in range(rounds):
        inputs = [
            random_data(rng, OperandCode(model.main.operands[i].type), model.main.operands[i].dims) for i in model.main.inputs
        ]
        for expected, found in zip(hybrid.reference(inputs), hybrid.run(inputs), strict=True):
            assert_same(found, expected)


def assert_same(found: Any, expected: Any) -> None:
    """Equal integers, float32 within 1e-5 and 5 units in the last place, float16 within one: where float32 rounds otherwise."""
    assert found.shape == expected.shape
    assert found.dtype == expected.dtype
    if expected.dtype.kind == "f":
        rtol = 2.0**-10 if expected.dtype == np.float16 else 5 * 2.0**-23
        np.testing.assert_allclose(found, expected, rtol=rtol, atol=1e-5)
    else:
        np.testing.assert_array_equal(found, expected)
