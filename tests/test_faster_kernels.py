"""Faster kernels against the reference kernels of the declarations."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from nnbridge.cpu.binding import Lease, plan_arena

from nnbridge.builder import ModelBuilder
from nnbridge.cpu.executor import Executor
from nnbridge.model import Model
from nnbridge.types import OperandCode, OperationCode

F32, U8, I8 = OperandCode.TENSOR_FLOAT32, OperandCode.TENSOR_QUANT8_ASYMM, OperandCode.TENSOR_QUANT8_ASYMM_SIGNED
PER_CHANNEL = OperandCode.TENSOR_QUANT8_SYMM_PER_CHANNEL


def convolution(
    rng: np.random.Generator,
    kind: OperandCode,
    *,
    depthwise: bool,
    size: int,
    stride: int,
    padding: int,
    activation: int,
    per_channel: bool = False,
    depth: int = 3,
    units: int = 5,
) -> Model:
    """One convolution of random weights over 7 x 6 images."""
    units = depth if depthwise else units
    shape = (1, size, size, units) if depthwise else (units, size, size, depth)
    builder = ModelBuilder()
    quantised = kind != F32
    point = int(rng.integers(0, 256)) - (128 if kind == I8 else 0)
    x = builder.add_operand(kind, (2, 7, 6, depth), scale=0.02 if quantised else 0, zero_point=point if quantised else 0)
    if not quantised:
        w = builder.add_operand(F32, shape)
        builder.set_operand_value(w, rng.normal(size=shape).astype(np.float32))
        b = builder.add_operand(F32, (units,))
        builder.set_operand_value(b, rng.normal(size=units).astype(np.float32))
    elif per_channel:
        w = builder.add_operand(PER_CHANNEL, shape)
        scales = rng.uniform(0.001, 0.02, units).astype(np.float32).tolist()
        builder.set_operand_symm_per_channel_quant_params(w, scales, 3 if depthwise else 0)
        builder.set_operand_value(w, rng.integers(-127, 128, shape).astype(np.int8))
        b = builder.add_operand(OperandCode.TENSOR_INT32, (units,))
        builder.set_operand_value(b, rng.integers(-5000, 5000, units).astype(np.int32))
    else:
        weights = rng.integers(0, 256, shape)
        w = builder.add_operand(kind, shape, scale=0.01, zero_point=131 if kind == U8 else 3)
        builder.set_operand_value(w, weights.astype(np.uint8) if kind == U8 else (weights - 128).astype(np.int8))
        b = builder.add_operand(OperandCode.TENSOR_INT32, (units,), scale=float(np.float32(0.02) * np.float32(0.01)))
        builder.set_operand_value(b, rng.integers(-5000, 5000, units).astype(np.int32))
    numbers = [padding, stride, stride, *([1] if depthwise else []), activation]
    scalars = []
    for number in numbers:
        scalars.append(builder.add_operand(OperandCode.INT32))
        builder.set_operand_value(scalars[-1], number)
    out = [-(-n // stride) if padding == 1 else (n - size) // stride + 1 for n in (7, 6)]
    y = builder.add_operand(kind, (2, *out, units), scale=0.03 if quantised else 0, zero_point=5 if quantised else 0)
    code = OperationCode.DEPTHWISE_CONV_2D if depthwise else OperationCode.CONV_2D
    builder.add_operation(code, [x, w, b, *scalars], [y])
    builder.identify_inputs_and_outputs([x], [y])
    return builder.finish()


def sample(rng: np.random.Generator, model: Model) -> np.ndarray:
    operand = model.main.operands[model.main.inputs[0]]
    if operand.type == F32:
        return rng.normal(size=operand.dims).astype(np.float32)
    low = 0 if operand.type == U8 else -128
    return rng.integers(low, low + 256, operand.dims).astype(np.uint8 if operand.type == U8 else np.int8)


@settings(max_examples=150, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    kind=st.sampled_from([F32, U8, I8]),
    depthwise=st.booleans(),
    size=st.integers(1, 3),
    stride=st.integers(1, 2),
    padding=st.sampled_from([1, 2]),
    activation=st.integers(0, 3),
    per_channel=st.booleans(),
)
def test_convolutions_equal_the_reference_kernels(
    seed: int, kind: OperandCode, depthwise: bool, size: int, stride: int, padding: int, activation: int, per_channel: bool
) -> None:
    rng = np.random.default_rng(seed)
    model = convolution(
        rng,
        kind,
        depthwise=depthwise,
        size=size,
        stride=stride,
        padding=padding,
        activation=activation,
        per_channel=per_channel,
    )
    fast, slow = Executor(model), Executor(model, kernels="reference")
    for _ in range(2):  # the second run finds the scratch memory of the first
        value = sample(rng, model)
        [got], [want] = fast.run([value]), slow.run([value])
        if kind == F32:
            np.testing.assert_allclose(got.data, want.data, atol=1e-5, rtol=1e-5)
        else:
            np.testing.assert_array_equal(got.data, want.data)


@given(st.lists(st.tuples(st.integers(1, 1000), st.integers(0, 20), st.integers(0, 10)), max_size=30))
def test_buffers_that_live_at_the_same_time_never_overlap(sizes: list[tuple[int, int, int]]) -> None:
    leases = [Lease(i, size, first, first + length) for i, (size, first, length) in enumerate(sizes)]
    offsets, total = plan_arena(leases)
    for a in leases:
        assert offsets[a.index] % 64 == 0
        assert offsets[a.index] + a.size <= total
        for b in leases:
            if a.index < b.index and a.first <= b.last and b.first <= a.last:
                apart = offsets[a.index] + a.size <= offsets[b.index] or offsets[b.index] + b.size <= offsets[a.index]
                assert apart


def test_buffers_share_memory_when_their_lifetimes_allow_it() -> None:
    _, total = plan_arena([Lease(0, 640, 0, 1), Lease(1, 640, 1, 2), Lease(2, 640, 2, 3)])
    assert total == 1280


def test_an_output_that_is_not_contiguous_is_left_alone() -> None:
    model = convolution(np.random.default_rng(1), F32, depthwise=True, size=3, stride=1, padding=1, activation=1)
    executor, x = Executor(model), sample(np.random.default_rng(2), model)
    [want] = executor.run([x])
    apart = np.zeros((*want.dims, 2), np.float32)[..., 0]
    [got] = executor.run([x], [apart])
    np.testing.assert_array_equal(got.data, want.data)
    assert not apart.any()
