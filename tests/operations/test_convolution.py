"""Convolutions against sums written out in 64-bit integers, however the weights come."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from nnbridge.builder import ModelBuilder
from nnbridge.cpu.executor import Executor
from nnbridge.cpu.settings import Tier
from nnbridge.errors import OpFailedError
from nnbridge.model import Model
from nnbridge.operations.arithmetic import mbqm, quantize_multiplier, quantize_multipliers
from nnbridge.types import Lifetime, OperandCode, OperationCode

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
    out_scale: float = 0.03,
    bias: int = 5000,
) -> Model:
    """One convolution of random weights over 7 x 6 images; biases reach from -bias to bias."""
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
        builder.set_operand_value(b, rng.integers(-bias, bias, units).astype(np.int32))
    else:
        weights = rng.integers(0, 256, shape)
        w = builder.add_operand(kind, shape, scale=0.01, zero_point=131 if kind == U8 else 3)
        builder.set_operand_value(w, weights.astype(np.uint8) if kind == U8 else (weights - 128).astype(np.int8))
        b = builder.add_operand(OperandCode.TENSOR_INT32, (units,), scale=float(np.float32(0.02) * np.float32(0.01)))
        builder.set_operand_value(b, rng.integers(-bias, bias, units).astype(np.int32))
    numbers = [padding, stride, stride, *([1] if depthwise else []), activation]
    scalars = []
    for number in numbers:
        scalars.append(builder.add_operand(OperandCode.INT32))
        builder.set_operand_value(scalars[-1], number)
    out = [-(-n // stride) if padding == 1 else (n - size) // stride + 1 for n in (7, 6)]
    y = builder.add_operand(kind, (2, *out, units), scale=out_scale if quantised else 0, zero_point=5 if quantised else 0)
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


def with_weights_as_inputs(model: Model) -> tuple[Model, list[npt.NDArray]]:
    """The same model whose filter and bias are model inputs, and their values."""
    main, [x, w, b] = model.main, model.main.operations[0].inputs[:3]
    values = [np.array(model.value(main.operands[i])) for i in (w, b)]
    operands = [
        replace(o, lifetime=Lifetime.SUBGRAPH_INPUT, location=type(o.location)()) if i in (w, b) else o
        for i, o in enumerate(main.operands)
    ]
    return replace(model, main=replace(main, operands=tuple(operands), inputs=(x, w, b))), values


def written_out(model: Model, x: npt.NDArray) -> npt.NDArray:
    """Window by window; 8-bit sums wrap in 32 bits, as Android's do."""
    main, operation = model.main, model.main.operations[0]
    xo, wo, _ = (main.operands[i] for i in operation.inputs[:3])
    out = main.operands[operation.outputs[0]]
    w, b, *numbers = (np.array(model.value(main.operands[i])) for i in operation.inputs[1:])
    padding, stride, activation = int(numbers[0].item()), int(numbers[1].item()), int(numbers[-1].item())
    depthwise, real = operation.type == OperationCode.DEPTHWISE_CONV_2D, xo.type == F32
    filters = (w if real else w.astype(np.int64) - wo.zero_point).astype(np.float64 if real else np.int64)
    images = x.astype(filters.dtype) - xo.zero_point
    size = w.shape[1]
    shape = out.dims
    pads = [max(0, (n - 1) * stride + size - m) if padding == 1 else 0 for n, m in zip(shape[1:3], x.shape[1:3], strict=True)]
    wide = np.pad(images, ((0, 0), *((p // 2, p - p // 2) for p in pads), (0, 0)))
    sums = np.zeros(shape, filters.dtype)
    for i, j in np.ndindex(shape[1:3]):
        seen = wide[:, i * stride : i * stride + size, j * stride : j * stride + size]
        sums[:, i, j] = np.einsum("bhwc,hwc->bc", seen, filters[0]) if depthwise else np.einsum("bhwc,uhwc->bu", seen, filters)
    sums += b
    if real:
        return np.clip(sums, {1: 0, 2: -1, 3: 0}.get(activation, -np.inf), {2: 1, 3: 6}.get(activation, np.inf))
    if wo.channel_quant is None:
        multiplier = quantize_multiplier(
            float(np.float32(np.float32(xo.scale) * np.float32(wo.scale))) / float(np.float32(out.scale))
        )
    else:
        scales = np.asarray(wo.channel_quant.scales, np.float64)
        multiplier = quantize_multipliers(float(np.float32(xo.scale)) * scales / float(np.float32(out.scale)))
    low, high = (0, 255) if out.type == U8 else (-128, 127)
    steps = {k: out.zero_point + round(real / out.scale) for k, real in ((-1, -1.0), (0, 0.0), (1, 1.0), (6, 6.0))}
    low = max(low, {1: steps[0], 2: steps[-1], 3: steps[0]}.get(activation, low))
    high = min(high, {2: steps[1], 3: steps[6]}.get(activation, high))
    return np.clip(mbqm(sums.astype(np.int32), *multiplier) + out.zero_point, low, high)


@pytest.mark.parametrize("tier", Tier)
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
    reach=st.sampled_from([(0.03, 5000), (0.0000011, 5000), (0.03, 2**31 - 1), (1e-8, 2**31 - 1)]),
)
@example(seed=0, kind=U8, depthwise=False, size=3, stride=1, padding=1, activation=0, per_channel=False, reach=(1e-8, 2**31 - 1))
def test_convolutions_are_their_sums_written_out_whether_weights_are_constants_or_inputs(
    tier: Tier,
    seed: int,
    kind: OperandCode,
    depthwise: bool,
    size: int,
    stride: int,
    padding: int,
    activation: int,
    per_channel: bool,
    reach: tuple[float, int],
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
        out_scale=reach[0],
        bias=reach[1],
    )
    other, weights = with_weights_as_inputs(model)
    constant, given_with_the_run = Executor(model, kernels=tier), Executor(other, kernels=tier)
    for _ in range(2):  # the second run finds the buffers of the first
        x = sample(rng, model)
        [a], [b] = constant.run([x]), given_with_the_run.run([x, *weights])
        if kind == F32 and tier is Tier.COMPILED:  # weights that the run brings are the reference tier's
            np.testing.assert_allclose(a.data, b.data, atol=1e-5, rtol=1e-5)
        else:
            np.testing.assert_array_equal(a.data, b.data)
        if kind == F32:
            np.testing.assert_allclose(a.data, written_out(model, x), atol=1e-5, rtol=1e-5)
        else:
            np.testing.assert_array_equal(a.data, written_out(model, x))


def test_sums_within_a_unit_of_a_tie_round_as_in_integers() -> None:
    # The products are 0, so that each channel's result is that of its bias.
    rng = np.random.default_rng(0)
    for real in [*rng.uniform(1e-4, 0.9, 20), *10 ** rng.uniform(-7.5, -4, 20)]:
        ties = ((np.arange(-60, 60) + 0.5) / real).astype(np.int64)
        bias = np.concatenate([ties + k for k in (-1, 0, 1)]).astype(np.int32)
        builder = ModelBuilder()
        x = builder.add_operand(U8, (1, 1, 1, 1), scale=1.0)
        w = builder.add_operand(U8, (len(bias), 1, 1, 1), scale=1.0)
        builder.set_operand_value(w, np.zeros((len(bias), 1, 1, 1), np.uint8))
        b = builder.add_operand(OperandCode.TENSOR_INT32, (len(bias),), scale=1.0)
        builder.set_operand_value(b, bias)
        numbers = [builder.add_operand(OperandCode.INT32) for _ in range(4)]
        for operand, number in zip(numbers, (1, 1, 1, 0), strict=True):
            builder.set_operand_value(operand, number)
        y = builder.add_operand(U8, (1, 1, 1, len(bias)), scale=float(np.float32(1 / np.float32(real))), zero_point=100)
        builder.add_operation(OperationCode.CONV_2D, [x, w, b, *numbers], [y])
        builder.identify_inputs_and_outputs([x], [y])
        model = builder.finish()
        multiplier = quantize_multiplier(1 / float(np.float32(model.main.operands[model.main.outputs[0]].scale)))
        [got] = Executor(model).run([np.zeros((1, 1, 1, 1), np.uint8)])
        np.testing.assert_array_equal(got.data.reshape(-1), np.clip(mbqm(bias, *multiplier) + 100, 0, 255))


@pytest.mark.parametrize("tier", Tier)
@pytest.mark.parametrize(
    ("scale", "weight", "bias", "expected"),
    # Exact products are less than 2**-46 below what would round to the next number; float64 has steps of 2**-45 or 2**-46 there.
    [
        (0.526, 3.8385392e-07, 542328441, 109),
        (0.678, 5.9175494e-07, 387577738, 155),
        (0.331, 2.6893616e-07, 2038916461, 181),
        (0.283, 8.477211e-07, 835747274, 200),
    ],
)
def test_products_that_float64_does_not_hold_round_as_in_integers(
    tier: Tier, scale: float, weight: float, bias: int, expected: int
) -> None:
    builder = ModelBuilder()
    x = builder.add_operand(U8, (1, 1, 1, 1), scale=scale)
    w = builder.add_operand(PER_CHANNEL, (1, 1, 1, 1))
    builder.set_operand_symm_per_channel_quant_params(w, [weight], 0)
    builder.set_operand_value(w, np.ones((1, 1, 1, 1), np.int8))
    b = builder.add_operand(OperandCode.TENSOR_INT32, (1,))
    builder.set_operand_value(b, np.array([bias], np.int32))
    numbers = [builder.add_operand(OperandCode.INT32) for _ in range(4)]
    for operand, number in zip(numbers, (1, 1, 1, 0), strict=True):
        builder.set_operand_value(operand, number)
    y = builder.add_operand(U8, (1, 1, 1, 1), scale=1.0)
    builder.add_operation(OperationCode.CONV_2D, [x, w, b, *numbers], [y])
    builder.identify_inputs_and_outputs([x], [y])
    [got] = Executor(builder.finish(), kernels=tier).run([np.zeros((1, 1, 1, 1), np.uint8)])
    assert got.data.item() == expected


def test_parameters_beyond_floats_prepare_and_are_refused_by_the_run() -> None:
    # RELU6 with an output scale of 1e-38: 6 / scale is infinite.
    builder = ModelBuilder()
    x = builder.add_operand(U8, (1, 2, 2, 1), scale=1e-20)
    w = builder.add_operand(U8, (1, 1, 1, 1), scale=1e-18)
    builder.set_operand_value(w, np.ones((1, 1, 1, 1), np.uint8))
    b = builder.add_operand(OperandCode.TENSOR_INT32, (1,), scale=float(np.float32(1e-20) * np.float32(1e-18)))
    builder.set_operand_value(b, np.zeros(1, np.int32))
    numbers = [builder.add_operand(OperandCode.INT32) for _ in range(4)]
    for operand, number in zip(numbers, (1, 1, 1, 3), strict=True):
        builder.set_operand_value(operand, number)
    y = builder.add_operand(U8, (1, 2, 2, 1), scale=1e-38)
    builder.add_operation(OperationCode.CONV_2D, [x, w, b, *numbers], [y])
    builder.identify_inputs_and_outputs([x], [y])
    executor = Executor(builder.finish())
    with pytest.raises(OpFailedError, match="CONV_2D: expected parameters whose products floats hold"):
        executor.run([np.zeros((1, 2, 2, 1), np.uint8)])
