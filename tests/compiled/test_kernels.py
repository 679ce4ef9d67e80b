"""Single operations of random shapes and parameters, compiled against the reference kernels, with every instruction set."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from nnbridge.cpu.compiled.instructions import InstructionSet
from nnbridge.types import OperandCode, OperationCode
from tests.compiled.hybrid import Hybrid
from tests.compiled.models import F32, I8, I32, PER_CHANNEL, U8, Tensor, assert_same, check, model_of, random_data

KINDS = [F32, U8, I8]
SEEDS = range(12)


def point(rng: np.random.Generator, kind: OperandCode) -> int:
    """A zero point, its range's ends among them."""
    if kind == F32:
        return 0
    low = 0 if kind == U8 else -128
    return int(rng.choice([low, low + 255, low + 128, low + int(rng.integers(0, 256))]))


def quantised(rng: np.random.Generator, kind: OperandCode, dims: tuple[int, ...], scale: float, value: Any = None) -> Tensor:
    """An operand, with parameters if it is 8-bit."""
    return Tensor(kind, dims, 0.0 if kind == F32 else scale, point(rng, kind), value)


def filters(rng: np.random.Generator, kind: OperandCode, dims: tuple[int, ...], channel: int, x: Tensor) -> tuple[Tensor, Tensor]:
    """A constant filter, per channel in half of the cases, and its bias."""
    units = dims[channel]
    if kind == F32:
        weights = rng.normal(size=dims).astype(np.float32) / np.float32(np.sqrt(np.prod(dims) / units))
        return Tensor(F32, dims, value=weights), Tensor(F32, (units,), value=rng.normal(size=units).astype(np.float32))
    bias = rng.integers(-20000, 20000, units).astype(np.int32)
    if rng.random() < 0.5:
        scales = rng.uniform(0.002, 0.02, units).astype(np.float32).tolist()
        weights = rng.integers(-127, 128, dims).astype(np.int8)
        return Tensor(PER_CHANNEL, dims, value=weights, scales=scales, channel=channel), Tensor(I32, (units,), value=bias)
    w = quantised(rng, kind, dims, 0.01, random_data(rng, kind, dims))
    return w, Tensor(I32, (units,), float(np.float32(x.scale) * np.float32(w.scale)), value=bias)


def window(rng: np.random.Generator, size: int, length: int) -> tuple[int, int, int]:
    """Stride, padding scheme and number of positions along an axis; the scheme is 2 (VALID) where the filter fits."""
    stride = int(rng.integers(1, 4))
    scheme = int(rng.integers(1, 3)) if size <= length else 1
    return stride, scheme, -(-length // stride) if scheme == 1 else (length - size) // stride + 1


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
@pytest.mark.parametrize("seed", SEEDS)
def test_conv_2d(isa: InstructionSet, kind: OperandCode, seed: int) -> None:
    rng = np.random.default_rng(seed)
    size, batch = int(rng.choice([1, 1, 2, 3, 5])), int(rng.integers(1, 3))
    height, width = int(rng.integers(size, 12)), int(rng.integers(size, 12))
    depth, units = int(rng.choice([1, 3, 4, 7, 16, 33, 40])), int(rng.choice([1, 5, 16, 24, 33, 65, 100]))
    dilation = int(rng.integers(1, 3)) if (size - 1) * 2 < min(height, width) else 1
    x = quantised(rng, kind, (batch, height, width, depth), 0.02)
    w, bias = filters(rng, kind, (units, size, size, depth), 0, x)
    extent = (size - 1) * dilation + 1
    stride, scheme, out_h = window(rng, extent, height)
    out_w = -(-width // stride) if scheme == 1 else (width - extent) // stride + 1
    y = quantised(rng, kind, (batch, out_h, out_w, units), float(rng.choice([0.0003, 0.03, 0.2, 30.0])))
    numbers = [scheme, stride, stride, int(rng.integers(0, 4)), False, dilation, dilation]
    check(model_of(OperationCode.CONV_2D, [x, w, bias, *numbers], [y]), isa, rng)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
@pytest.mark.parametrize("seed", SEEDS)
def test_depthwise_conv_2d(isa: InstructionSet, kind: OperandCode, seed: int) -> None:
    rng = np.random.default_rng(seed)
    size, batch = int(rng.choice([1, 2, 3, 3, 5])), int(rng.integers(1, 3))
    height, width = int(rng.integers(size, 12)), int(rng.integers(size, 12))
    depth, multiplier = int(rng.choice([1, 3, 8, 16, 33, 48, 80, 144])), int(rng.choice([1, 1, 1, 2, 3]))
    x = quantised(rng, kind, (batch, height, width, depth), 0.02)
    w, bias = filters(rng, kind, (1, size, size, depth * multiplier), 3, x)
    stride, scheme, out_h = window(rng, size, height)
    out_w = -(-width // stride) if scheme == 1 else (width - size) // stride + 1
    y = quantised(rng, kind, (batch, out_h, out_w, depth * multiplier), float(rng.choice([0.0003, 0.03, 0.2])))
    numbers = [scheme, stride, stride, multiplier, int(rng.integers(0, 4))]
    check(model_of(OperationCode.DEPTHWISE_CONV_2D, [x, w, bias, *numbers], [y]), isa, rng)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_grouped_conv_2d(isa: InstructionSet, kind: OperandCode) -> None:
    rng = np.random.default_rng(7)
    x = quantised(rng, kind, (2, 6, 7, 12), 0.02)
    w, bias = filters(rng, kind, (9, 3, 3, 4), 0, x)
    y = quantised(rng, kind, (2, 6, 7, 9), 0.03)
    check(model_of(OperationCode.GROUPED_CONV_2D, [x, w, bias, 1, 1, 1, 3, 1, False], [y]), isa, rng)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
@pytest.mark.parametrize("seed", SEEDS)
def test_fully_connected(isa: InstructionSet, kind: OperandCode, seed: int) -> None:
    rng = np.random.default_rng(seed)
    batch, size, units = int(rng.choice([1, 2, 13, 40])), int(rng.choice([1, 5, 64, 130])), int(rng.choice([1, 4, 17, 130]))
    x = quantised(rng, kind, (batch, size), 0.02)
    bias_scale = 0.0 if kind == F32 else float(np.float32(0.02) * np.float32(0.01))
    w = quantised(rng, kind, (units, size), 0.01, random_data(rng, kind, (units, size)))
    values = rng.integers(-9000, 9000, units)
    bias = (values / 9000).astype(np.float32) if kind == F32 else values.astype(np.int32)
    b = Tensor(F32 if kind == F32 else I32, (units,), bias_scale, value=bias)
    y = quantised(rng, kind, (batch, units), float(rng.choice([0.0001, 0.01, 0.3])))
    check(model_of(OperationCode.FULLY_CONNECTED, [x, w, b, int(rng.integers(0, 4))], [y]), isa, rng)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
@pytest.mark.parametrize("seed", range(6))
def test_transpose_conv_2d(isa: InstructionSet, kind: OperandCode, seed: int) -> None:
    rng = np.random.default_rng(seed)
    size, stride, scheme = int(rng.integers(1, 5)), int(rng.integers(1, 4)), int(rng.integers(1, 3))
    height, width, depth, units = (
        int(rng.integers(1, 7)),
        int(rng.integers(1, 7)),
        int(rng.choice([1, 8, 19])),
        int(rng.choice([1, 20])),
    )
    x = quantised(rng, kind, (2, height, width, depth), 0.02)
    w, bias = filters(rng, kind, (units, size, size, depth), 0, x)
    sizes = [n * stride if scheme == 1 else (n - 1) * stride + size for n in (height, width)]
    y = quantised(rng, kind, (2, *sizes, units), 0.05)
    shape = Tensor(I32, (4,), value=np.array(y.dims, np.int32))
    numbers = [scheme, stride, stride, int(rng.integers(0, 4)), False]
    check(model_of(OperationCode.TRANSPOSE_CONV_2D, [x, w, bias, shape, *numbers], [y]), isa, rng)


def test_sums_beyond_32_bits_are_left_to_the_reference() -> None:
    from tests.compiled.hybrid import compile_model

    size = 40_000
    x, y = Tensor(U8, (1, size), 0.02, 0), Tensor(U8, (1, 1), 0.02, 0)
    for value, left in ((255, True), (1, False)):
        w = Tensor(U8, (1, size), 0.01, 0, np.full((1, size), value, np.uint8))
        b = Tensor(I32, (1,), float(np.float32(0.02) * np.float32(0.01)), value=np.zeros(1, np.int32))
        plan = compile_model(model_of(OperationCode.FULLY_CONNECTED, [x, w, b, 0], [y]))
        assert bool(plan.left) == left


SHAPES = [
    ((2, 5, 7, 19), (2, 5, 7, 19)),
    ((2, 5, 7, 70), (70,)),
    ((70,), (3, 2, 70)),
    ((3, 4, 5), (1,)),
    ((1, 1, 1, 1), (2, 3, 4, 5)),
    ((2, 1, 1, 24), (2, 6, 5, 24)),
    ((2, 6, 5, 1), (2, 6, 5, 24)),
    ((3, 1, 40), (1, 5, 40)),
    ((3, 1), (1, 7)),
    ((1, 64, 128), (1, 64, 128)),
]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
@pytest.mark.parametrize("code", [OperationCode.ADD, OperationCode.SUB, OperationCode.MUL], ids=lambda code: code.name)
@pytest.mark.parametrize("shapes", SHAPES, ids=str)
def test_arithmetic(isa: InstructionSet, kind: OperandCode, code: OperationCode, shapes: Any) -> None:
    rng = np.random.default_rng(abs(hash((str(shapes), code.name))) % 2**32)
    scales = [0.02, float(rng.choice([0.02, 0.03, 0.0007]))]
    a, b = (quantised(rng, kind, dims, scale) for dims, scale in zip(shapes, scales, strict=True))
    out = np.broadcast_shapes(*shapes)
    y = quantised(rng, kind, out, float(rng.choice([0.015, 0.05, 4.0])))
    check(model_of(code, [a, b, int(rng.integers(0, 4))], [y]), isa, rng)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_a_constant_operand(isa: InstructionSet, kind: OperandCode) -> None:
    rng = np.random.default_rng(1)
    a = quantised(rng, kind, (4, 6, 33), 0.02)
    b = quantised(rng, kind, (33,), 0.05, random_data(rng, kind, (33,)))
    check(model_of(OperationCode.ADD, [a, b, 0], [quantised(rng, kind, (4, 6, 33), 0.1)]), isa, rng)


@pytest.mark.parametrize("code", [OperationCode.DIV, OperationCode.MAXIMUM, OperationCode.MINIMUM, OperationCode.PRELU])
def test_real_operators(isa: InstructionSet, code: OperationCode) -> None:
    rng = np.random.default_rng(2)
    activation = [0] if code == OperationCode.DIV else []
    inputs = [Tensor(F32, (3, 5, 21)), Tensor(F32, (21,)), *activation]
    check(model_of(code, inputs, [Tensor(F32, (3, 5, 21))]), isa, rng)


@pytest.mark.parametrize("kind", [U8, I8], ids=lambda kind: kind.name)
@pytest.mark.parametrize("code", [OperationCode.MAXIMUM, OperationCode.MINIMUM, OperationCode.PRELU])
@pytest.mark.parametrize("shapes", [SHAPES[0], SHAPES[1], SHAPES[8]], ids=str)
def test_pairs_of_bytes(isa: InstructionSet, kind: OperandCode, code: OperationCode, shapes: Any) -> None:
    rng = np.random.default_rng(15)
    a, b = (quantised(rng, kind, dims, scale) for dims, scale in zip(shapes, (0.1, 0.02), strict=True))
    y = quantised(rng, kind, np.broadcast_shapes(*shapes), 0.1)
    check(model_of(code, [a, b], [y]), isa, rng)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
@pytest.mark.parametrize("dims", [(3,), (1, 1, 1, 3), (5, 1, 3), (2, 1, 1, 1)], ids=str)
def test_short_constants_are_stretched(isa: InstructionSet, kind: OperandCode, dims: tuple[int, ...]) -> None:
    rng = np.random.default_rng(16)
    a = quantised(rng, kind, (2, 5, 40, 3), 0.02)
    b = quantised(rng, kind, dims, 0.05, random_data(rng, kind, dims))
    check(model_of(OperationCode.SUB, [b, a, 0], [quantised(rng, kind, (2, 5, 40, 3), 0.1)]), isa, rng)


@pytest.mark.parametrize("name", ["ADD", "SUB", "MUL", "DIV"])
def test_integers(isa: InstructionSet, name: str) -> None:
    from tests.compiled.hybrid import Hybrid

    rng = np.random.default_rng(17)
    ends = np.array([0, 1, -1, 7, -7, 2**31 - 1, -(2**31)], np.int32)
    a, b = (np.concatenate([rng.choice(ends, 60), rng.integers(-(2**31), 2**31, 30), rng.integers(-9, 9, 30)]) for _ in range(2))
    model = model_of(OperationCode[name], [Tensor(I32, (120,)), Tensor(I32, (120,)), 0], [Tensor(I32, (120,))])
    hybrid = Hybrid(model, isa)
    inputs = [a.astype(np.int32), b.astype(np.int32)]
    assert not hybrid.plan.left
    assert_same(hybrid.run(inputs)[0], hybrid.reference(inputs)[0])


@pytest.mark.parametrize("target", [F32, I32], ids=lambda kind: kind.name)
@pytest.mark.parametrize("source", [U8, I32], ids=lambda kind: kind.name)
def test_cast(isa: InstructionSet, source: OperandCode, target: OperandCode) -> None:
    from tests.compiled.hybrid import Hybrid

    rng = np.random.default_rng(18)
    x = Tensor(source, (3, 50), 0.1 if source == U8 else 0.0)
    model = model_of(OperationCode.CAST, [x], [Tensor(target, (3, 50))])
    hybrid = Hybrid(model, isa)
    data = random_data(rng, U8, (3, 50)) if source == U8 else rng.integers(-(2**31), 2**31, (3, 50)).astype(np.int32)
    assert_same(hybrid.run([data])[0], hybrid.reference([data])[0])


UNARY = ["RELU", "RELU1", "RELU6", "LOGISTIC", "TANH", "HARD_SWISH", "EXP", "ABS", "NEG", "FLOOR"]


@pytest.mark.parametrize("name", UNARY)
def test_functions_of_real_values(isa: InstructionSet, name: str) -> None:
    model = model_of(OperationCode[name], [Tensor(F32, (5, 77))], [Tensor(F32, (5, 77))])
    check(model, isa, np.random.default_rng(3))


@pytest.mark.parametrize("name", ["LOGISTIC", "TANH", "EXP"])
def test_functions_hold_over_the_whole_range(isa: InstructionSet, name: str) -> None:
    from tests.compiled.hybrid import Hybrid

    x = np.concatenate([np.linspace(-110, 88.6, 20001), [0.0, -0.0, np.inf, -np.inf, 1e-30, -1e-30]]).astype(np.float32)
    hybrid = Hybrid(model_of(OperationCode[name], [Tensor(F32, x.shape)], [Tensor(F32, x.shape)]), isa)
    assert_same(hybrid.run([x])[0], hybrid.reference([x])[0])


@pytest.mark.parametrize("kind", [U8, I8], ids=lambda kind: kind.name)
@pytest.mark.parametrize("name", ["RELU", "RELU1", "RELU6", "LOGISTIC", "TANH", "HARD_SWISH"])
def test_functions_of_bytes(isa: InstructionSet, kind: OperandCode, name: str) -> None:
    rng = np.random.default_rng(4)
    x = quantised(rng, kind, (3, 100), 0.05)
    low = -128 if kind == I8 else 0
    fixed = {"LOGISTIC": (1 / 256, low), "TANH": (1 / 128, low + 128), "HARD_SWISH": (0.03, low + 10)}
    scale, zero_point = fixed.get(name, (x.scale, x.zero_point))
    check(model_of(OperationCode[name], [x], [Tensor(kind, (3, 100), scale, zero_point)]), isa, rng)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
@pytest.mark.parametrize("name", ["AVERAGE_POOL_2D", "MAX_POOL_2D", "L2_POOL_2D"])
@pytest.mark.parametrize("seed", range(4))
def test_pooling(isa: InstructionSet, kind: OperandCode, name: str, seed: int) -> None:
    if name == "L2_POOL_2D" and kind != F32:
        pytest.skip("NNAPI pools the L2 norm of real numbers only")
    rng = np.random.default_rng(seed)
    size, depth = int(rng.choice([2, 3, 7])), int(rng.choice([1, 5, 16, 70]))
    height, width = int(rng.integers(size, 10)), int(rng.integers(size, 10))
    stride, scheme, out_h = window(rng, size, height)
    out_w = -(-width // stride) if scheme == 1 else (width - size) // stride + 1
    x = quantised(rng, kind, (2, height, width, depth), 0.05)
    y = Tensor(kind, (2, out_h, out_w, depth), x.scale, x.zero_point)
    numbers = [scheme, stride, stride, size, size, int(rng.integers(0, 4))]
    check(model_of(OperationCode[name], [x, *numbers], [y]), isa, rng)


@pytest.mark.parametrize("name", ["AVERAGE_POOL_2D", "L2_POOL_2D"])
def test_windows_of_thousands_of_cells_lose_no_more_than_last_digits(isa: InstructionSet, name: str) -> None:
    # One after the other, 3,000 of these numbers add up to 1.2e-5 more than they should.
    value = np.float32(2.5916414)
    model = model_of(OperationCode[name], [Tensor(F32, (1, 60, 50, 3)), 2, 1, 1, 50, 60, 0], [Tensor(F32, (1, 1, 1, 3))])
    found = Hybrid(model, isa).run([np.full((1, 60, 50, 3), value)])[0]
    np.testing.assert_allclose(found, value, rtol=1e-6)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
@pytest.mark.parametrize("axes", [(1, 2), (3,), (0,), (1, 2, 3), (-1,), (0, 3), (1, 3)], ids=str)
def test_mean(isa: InstructionSet, kind: OperandCode, axes: tuple[int, ...]) -> None:
    rng = np.random.default_rng(5)
    x = quantised(rng, kind, (2, 5, 6, 20), 0.05)
    dims = tuple(1 if i in [a % 4 for a in axes] else d for i, d in enumerate(x.dims))
    y = Tensor(kind, dims, x.scale, x.zero_point)
    axis = Tensor(I32, (len(axes),), value=np.array(axes, np.int32))
    check(model_of(OperationCode.MEAN, [x, axis, 1], [y]), isa, rng)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
@pytest.mark.parametrize("axes", [(1, 2), (0,), (2, 3), (-1,), (0, 2), (1, 3)], ids=str)
@pytest.mark.parametrize("name", ["MAX", "MIN", "SUM", "PROD"])
def test_reductions(isa: InstructionSet, kind: OperandCode, axes: tuple[int, ...], name: str) -> None:
    if kind != F32 and name in ("SUM", "PROD"):
        pytest.skip("NNAPI adds and multiplies real numbers only")
    code = OperationCode[f"REDUCE_{name}"]
    rng = np.random.default_rng(5)
    x = quantised(rng, kind, (2, 5, 6, 70), 0.05)
    dims = tuple(1 if i in [a % 4 for a in axes] else d for i, d in enumerate(x.dims))
    axis = Tensor(I32, (len(axes),), value=np.array(axes, np.int32))
    check(model_of(code, [x, axis, True], [Tensor(kind, dims, x.scale, x.zero_point)]), isa, rng)


@pytest.mark.parametrize("axis", [0, 1])
def test_a_product_with_0_is_0(isa: InstructionSet, axis: int) -> None:
    rows = np.float32([[2, np.inf, 0, 5], [0, -np.inf, np.nan, 1], [np.inf, 2, 3, -1], [np.nan, 1, 1, 0], [4, 0.5, 2, -3]])
    x, out = Tensor(F32, (5, 4)), Tensor(F32, (5,) if axis else (4,))
    axes = Tensor(I32, (1,), value=np.array([axis], np.int32))
    hybrid = Hybrid(model_of(OperationCode.REDUCE_PROD, [x, axes, False], [out]), isa)
    expected = hybrid.reference([rows])[0]
    assert not hybrid.plan.left
    assert (expected == 0).any()
    np.testing.assert_array_equal(hybrid.run([rows])[0], expected)


@pytest.mark.parametrize("kept", [(), (0,), (1,), (2,), (0, 1)], ids=str)
@pytest.mark.parametrize("code", [OperationCode.REDUCE_ANY, OperationCode.REDUCE_ALL], ids=lambda code: code.name)
def test_reductions_of_booleans(isa: InstructionSet, kept: tuple[int, ...], code: OperationCode) -> None:
    """Whatever is not 0 is true, and the answer is 0 or 1."""
    rng = np.random.default_rng(7)
    found, numbers = code == OperationCode.REDUCE_ANY, rng.integers(1, 256, (3, 4, 130))
    x = np.where(rng.random(numbers.shape) < (0.01 if found else 0.99), numbers, 0).astype(np.uint8)
    axes = tuple(i for i in range(3) if i not in kept)
    expected = (x.any if found else x.all)(axis=axes, keepdims=True)
    axis = Tensor(I32, (len(axes),), value=np.array(axes, np.int32))
    boolean = OperandCode.TENSOR_BOOL8
    hybrid = Hybrid(model_of(code, [Tensor(boolean, x.shape), axis, True], [Tensor(boolean, expected.shape)]), isa)
    assert not hybrid.plan.left
    assert_same(hybrid.run([x])[0], expected.astype(np.uint8))


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
@pytest.mark.parametrize("dims", [(1, 1001), (7, 3), (2, 3, 5), (40, 2), (1, 1)], ids=str)
@pytest.mark.parametrize("beta", [1.0, 0.3, 3.0])
def test_softmax(isa: InstructionSet, kind: OperandCode, dims: tuple[int, ...], beta: float) -> None:
    rng = np.random.default_rng(6)
    low = -128 if kind == I8 else 0
    x = quantised(rng, kind, dims, 0.1)
    y = Tensor(kind, dims, 0.0 if kind == F32 else 1 / 256, 0 if kind == F32 else low)
    check(model_of(OperationCode.SOFTMAX, [x, beta], [y]), isa, rng)
    check(model_of(OperationCode.SOFTMAX, [x, beta, 0], [y]), isa, rng)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_concatenation(isa: InstructionSet, kind: OperandCode, axis: int) -> None:
    rng = np.random.default_rng(8)
    dims = [(2, 3, 5), (2, 3, 5), (2, 3, 5)]
    dims[1] = tuple(7 if i == axis else d for i, d in enumerate(dims[1]))
    x = [Tensor(kind, d, 0.0 if kind == F32 else 0.1, 0 if kind == F32 else 3) for d in dims]
    total = tuple(sum(d[i] for d in dims) if i == axis else n for i, n in enumerate(dims[0]))
    y = Tensor(kind, total, x[0].scale, x[0].zero_point)
    check(model_of(OperationCode.CONCATENATION, [*x, axis], [y]), isa, rng)


@pytest.mark.parametrize("kind", [U8, I8], ids=lambda kind: kind.name)
@pytest.mark.parametrize("axis", [0, 1])
def test_concatenation_of_other_scales(isa: InstructionSet, kind: OperandCode, axis: int) -> None:
    rng = np.random.default_rng(9)
    x = [quantised(rng, kind, (2, 30), scale) for scale in (0.1, 0.05, 0.3)]
    y = quantised(rng, kind, (6, 30) if axis == 0 else (2, 90), 0.1)
    check(model_of(OperationCode.CONCATENATION, [*x, axis], [y]), isa, rng)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_pad(isa: InstructionSet, kind: OperandCode) -> None:
    rng = np.random.default_rng(10)
    x = quantised(rng, kind, (2, 3, 4, 5), 0.1)
    y = Tensor(kind, (2, 6, 4, 8), x.scale, x.zero_point)
    pads = Tensor(I32, (4, 2), value=np.array([[0, 0], [1, 2], [0, 0], [3, 0]], np.int32))
    check(model_of(OperationCode.PAD, [x, pads], [y]), isa, rng)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
@pytest.mark.parametrize(("before", "after"), [(1, 0), (3, 2), (5, 5)])
def test_padding_before_the_first_element_is_no_part_of_the_data(
    before: int, after: int, isa: InstructionSet, kind: OperandCode
) -> None:
    x = quantised(np.random.default_rng(0), kind, (5,), 0.1)
    y = Tensor(kind, (5 + before + after,), x.scale, x.zero_point)
    pads = Tensor(I32, (1, 2), value=[[before, after]])
    check(model_of(OperationCode.PAD, [x, pads], [y]), isa, np.random.default_rng(0))


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
@pytest.mark.parametrize("perm", [(0, 2, 1, 3), (0, 3, 1, 2), (3, 2, 1, 0)], ids=str)
def test_transpose(isa: InstructionSet, kind: OperandCode, perm: tuple[int, ...]) -> None:
    rng = np.random.default_rng(11)
    x = quantised(rng, kind, (2, 3, 4, 5), 0.1)
    y = Tensor(kind, tuple(x.dims[p] for p in perm), x.scale, x.zero_point)
    order = Tensor(I32, (4,), value=np.array(perm, np.int32))
    check(model_of(OperationCode.TRANSPOSE, [x, order], [y]), isa, rng)


@pytest.mark.parametrize("kind", [U8, I8], ids=lambda kind: kind.name)
def test_quantise(isa: InstructionSet, kind: OperandCode) -> None:
    from tests.compiled.hybrid import Hybrid

    # Ties, both ends, and what is no number.
    steps = np.concatenate([np.arange(-400, 400) / 2, np.random.default_rng(0).normal(size=500) * 80, [np.nan, np.inf, -np.inf]])
    x = (steps * np.float32(0.25)).astype(np.float32)
    model = model_of(OperationCode.QUANTIZE, [Tensor(F32, x.shape)], [Tensor(kind, x.shape, 0.25, 7)])
    hybrid = Hybrid(model, isa)
    assert_same(hybrid.run([x])[0], hybrid.reference([x])[0])


@pytest.mark.parametrize("kind", [U8, I8], ids=lambda kind: kind.name)
def test_dequantise(isa: InstructionSet, kind: OperandCode) -> None:
    rng = np.random.default_rng(12)
    x = quantised(rng, kind, (3, 50), 0.013)
    check(model_of(OperationCode.DEQUANTIZE, [x], [Tensor(F32, (3, 50))]), isa, rng)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
@pytest.mark.parametrize("size", [(10, 14), (3, 4), (9, 7), (5, 7)], ids=str)
@pytest.mark.parametrize(("corners", "half"), [(False, False), (True, False), (False, True)])
def test_resize_bilinear(isa: InstructionSet, kind: OperandCode, size: tuple[int, int], corners: bool, half: bool) -> None:
    rng = np.random.default_rng(13)
    x = quantised(rng, kind, (2, 5, 7, 21), 0.1)
    y = Tensor(kind, (2, *size, 21), x.scale, x.zero_point)
    check(model_of(OperationCode.RESIZE_BILINEAR, [x, size[1], size[0], False, corners, half], [y]), isa, rng)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_pack(isa: InstructionSet, kind: OperandCode, axis: int) -> None:
    rng = np.random.default_rng(14)
    x = [Tensor(kind, (3, 4), 0.0 if kind == F32 else 0.1, 0 if kind == F32 else 3) for _ in range(3)]
    dims = {0: (3, 3, 4), 1: (3, 3, 4), -1: (3, 4, 3)}[axis]
    check(model_of(OperationCode.PACK, [axis, *x], [Tensor(kind, dims, x[0].scale, x[0].zero_point)]), isa, rng)
