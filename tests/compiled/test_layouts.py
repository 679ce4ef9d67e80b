"""Images in NCHW on compiled kernels: transposed before and after, and not in between."""

from __future__ import annotations

import numpy as np
import pytest

from nnbridge.builder import ModelBuilder
from nnbridge.cpu.compiled.instructions import InstructionSet
from nnbridge.types import OperandCode, OperationCode
from tests.compiled.hybrid import Hybrid
from tests.compiled.models import F32, I8, I32, U8, Tensor, assert_same, check, model_of, random_data

KINDS = [F32, U8, I8]


def images(kind: OperandCode, dims: tuple[int, ...], scale: float = 0.02, point: int = 3) -> Tensor:
    """An operand, with parameters if it is 8-bit."""
    return Tensor(kind, dims, *((0.0, 0) if kind == F32 else (scale, point)))


def constants(kind: OperandCode, dims: tuple[int, ...], units: int, seed: int = 1) -> tuple[Tensor, Tensor]:
    """A filter and its bias."""
    rng = np.random.default_rng(seed)
    weights = Tensor(kind, dims, *((0.0, 0) if kind == F32 else (0.01, 5)), random_data(rng, kind, dims))
    if kind == F32:
        return weights, Tensor(F32, (units,), value=random_data(rng, F32, (units,)))
    scale = float(np.float32(0.02) * np.float32(0.01))
    return weights, Tensor(I32, (units,), scale, value=rng.integers(-999, 999, units, np.int32))


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
@pytest.mark.parametrize("channels", [3, 18])
def test_images_in_nchw(isa: InstructionSet, kind: OperandCode, channels: int) -> None:
    rng = np.random.default_rng(channels)
    x = images(kind, (2, channels, 5, 7))
    w, bias = constants(kind, (9, 3, 3, channels), 9)
    check(model_of(OperationCode.CONV_2D, [x, w, bias, 1, 1, 1, 0, True], [images(kind, (2, 9, 5, 7), 0.5)]), isa, rng)
    w, bias = constants(kind, (1, 3, 3, channels), channels)
    out = images(kind, (2, channels, 5, 7), 0.5)
    check(model_of(OperationCode.DEPTHWISE_CONV_2D, [x, w, bias, 1, 1, 1, 1, 1, True], [out]), isa, rng)
    out = images(kind, (2, channels, 3, 4))
    check(model_of(OperationCode.MAX_POOL_2D, [x, 1, 2, 2, 2, 2, 0, True], [out]), isa, rng)
    w, bias = constants(kind, (4, 2, 2, channels), 4)
    shape = Tensor(I32, (4,), value=np.array((2, 4, 10, 14), np.int32))
    out = images(kind, (2, 4, 10, 14), 0.5)
    check(model_of(OperationCode.TRANSPOSE_CONV_2D, [x, w, bias, shape, 1, 2, 2, 0, True], [out]), isa, rng)
    check(model_of(OperationCode.RESIZE_BILINEAR, [x, 9, 6, True], [images(kind, (2, channels, 6, 9))]), isa, rng)


def test_images_stay_transposed_between_two_operations() -> None:
    builder = ModelBuilder("two")
    first, between, last = (builder.add_operand(F32, (1, 18, 6, 6)) for _ in range(3))
    values = (1, 1, 1, 2, 2, 0, True)
    numbers = [builder.add_operand(OperandCode.BOOL if value is True else OperandCode.INT32) for value in values]
    for operand, value in zip(numbers, values, strict=True):
        builder.set_operand_value(operand, value)
    for x, y, code in ((first, between, OperationCode.MAX_POOL_2D), (between, last, OperationCode.AVERAGE_POOL_2D)):
        builder.add_operation(code, [x, *numbers], [y])
    builder.identify_inputs_and_outputs([first], [last])
    hybrid = Hybrid(builder.finish())
    assert [step.variant.kernel for step in hybrid.plan.programs[0].steps if step.operation >= 0] == [
        "transpose",
        "pool",
        "pool",
        "transpose",
    ]
    data = random_data(np.random.default_rng(0), F32, (1, 18, 6, 6))
    assert_same(hybrid.run([data])[0], hybrid.reference([data])[0])


@pytest.mark.parametrize("kind", [*KINDS, OperandCode.TENSOR_FLOAT16], ids=lambda kind: kind.name)
@pytest.mark.parametrize("dims", [(1, 3, 7, 5), (2, 16, 4, 8), (1, 33, 1, 17), (3, 5, 1, 2)])
def test_channels_become_last_and_first(isa: InstructionSet, kind: OperandCode, dims: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    scale = 0.1 if kind in (U8, I8) else 0.0
    for order in ((0, 2, 3, 1), (0, 3, 1, 2)):
        permutation = Tensor(I32, (4,), value=np.array(order, np.int32))
        out = Tensor(kind, tuple(dims[axis] for axis in order), scale)
        model = model_of(OperationCode.TRANSPOSE, [Tensor(kind, dims, scale), permutation], [out])
        if Hybrid(model, isa).plan.programs:
            check(model, isa, rng)
