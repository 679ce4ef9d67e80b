"""Building a model: facts M1 to M27 of Android's runtime (ModelBuilder.cpp), by number."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from nnbridge.builder import ModelBuilder
from nnbridge.errors import BadDataError, BadStateError, UnexpectedNullError
from nnbridge.extensions import TYPES, Extension, ExtensionOperandType
from nnbridge.model import Model, Pool
from nnbridge.runtime.compilation import Compilation
from nnbridge.runtime.execution import Execution
from nnbridge.types import Lifetime, OperandCode, OperationCode
from tests.graphs import FLOAT, unary_chain

ADD, FLOOR, POOL, OEM = OperationCode.ADD, OperationCode.FLOOR, OperationCode.AVERAGE_POOL_2D, OperationCode.OEM_OPERATION
INT32, BOOL8, MODEL, PER_CHANNEL = (
    OperandCode.INT32,
    OperandCode.TENSOR_BOOL8,
    OperandCode.MODEL,
    OperandCode.TENSOR_QUANT8_SYMM_PER_CHANNEL,
)
EXTENSION = "com.example.facts"
TYPES.register(Extension(EXTENSION, (ExtensionOperandType(0, False, 8), ExtensionOperandType(1, True, 8))))
SCALAR64, TENSOR64 = TYPES.code(EXTENSION, 0), TYPES.code(EXTENSION, 1)


def half_built() -> ModelBuilder:
    """Operands 0 and 1, FLOOR between them; not finished."""
    builder = ModelBuilder()
    x, y = builder.add_operand(FLOAT, (2,)), builder.add_operand(FLOAT, (2,))
    builder.add_operation(FLOOR, [x], [y])
    return builder


def complete() -> ModelBuilder:
    builder = half_built()
    builder.identify_inputs_and_outputs([0], [1])
    return builder


def finished() -> ModelBuilder:
    builder = complete()
    builder.finish()
    return builder


def invalid() -> ModelBuilder:
    """A builder whose finish failed."""
    builder = half_built()
    with pytest.raises(BadDataError):
        builder.finish()
    return builder


def lifetimes(model: Model) -> list[Lifetime]:
    return [operand.lifetime for operand in model.main.operands]


def with_constant(dims: tuple[int, ...] = (2,), type: int = FLOAT, **quant: Any) -> tuple[ModelBuilder, int]:
    """A builder of which only a tensor that requires a value is missing."""
    builder = complete()
    return builder, builder.add_operand(type, dims, **quant)


# -- state ------------------------------------------------------------------------------------------------------------

CHANGES: dict[str, Callable[[ModelBuilder], object]] = {
    "addOperand": lambda b: b.add_operand(FLOAT, (2,)),
    "setOperandValue": lambda b: b.set_operand_value(0, b"12345678"),
    "setOperandValueFromMemory": lambda b: b.set_operand_value_from_memory(0, Pool.of(bytes(8)), 0, 8),
    "setOperandValueFromModel": lambda b: b.set_operand_value_from_model(0, unary_chain(FLOOR)),
    "setOperandSymmPerChannelQuantParams": lambda b: b.set_operand_symm_per_channel_quant_params(0, [1.0], 0),
    "setOperandExtensionData": lambda b: b.set_operand_extension_data(0, b"data"),
    "addOperation": lambda b: b.add_operation(FLOOR, [0], [1]),
    "identifyInputsAndOutputs": lambda b: b.identify_inputs_and_outputs([0], [1]),
    "relaxComputationFloat32toFloat16": lambda b: b.relax_computation_float32_to_float16(True),
    "finish": lambda b: b.finish(),
}
WRONG: dict[str, Callable[[ModelBuilder], object]] = {
    "addOperand": lambda b: b.add_operand(9999, (2,)),
    "setOperandValue": lambda b: b.set_operand_value(99, b"1"),
    "setOperandValueFromMemory": lambda b: b.set_operand_value_from_memory(99, Pool.of(bytes(8)), 9, 9),
    "setOperandValueFromModel": lambda b: b.set_operand_value_from_model(99, unary_chain(FLOOR)),
    "setOperandSymmPerChannelQuantParams": lambda b: b.set_operand_symm_per_channel_quant_params(99, [], 9),
    "setOperandExtensionData": lambda b: b.set_operand_extension_data(99, b""),
    "addOperation": lambda b: b.add_operation(9999, [99], [99]),
    "identifyInputsAndOutputs": lambda b: b.identify_inputs_and_outputs([99], [99]),
}


@pytest.mark.parametrize("make", [finished, invalid])
@pytest.mark.parametrize("call", CHANGES)
def test_m1_m2_m4_a_completed_or_invalid_model_takes_no_change(call: str, make: Callable[[], ModelBuilder]) -> None:
    with pytest.raises(BadStateError, match=call):
        CHANGES[call](make())


@pytest.mark.parametrize("call", WRONG)
def test_m2_the_state_is_looked_at_before_the_arguments(call: str) -> None:
    with pytest.raises(BadStateError):
        WRONG[call](finished())


@pytest.mark.parametrize("call", WRONG)
def test_m3_a_refused_call_leaves_the_model_open(call: str) -> None:
    builder = complete()
    with pytest.raises(BadDataError):
        WRONG[call](builder)
    assert len(builder.finish().main.operations) == 1


# -- addOperand -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [-1, 16, 9999, 10002, TYPES.code(EXTENSION, 2), TYPES.code("com.example.unregistered", 0)])
def test_m7_unknown_types(code: int) -> None:
    with pytest.raises(BadDataError):
        ModelBuilder().add_operand(code, (2,))


@pytest.mark.parametrize(
    "code", [*(c for c in OperandCode if not c.name.startswith("TENSOR_")), pytest.param(SCALAR64, id="extension")]
)
def test_m9_scalars_have_no_dimensions(code: int) -> None:
    ModelBuilder().add_operand(code)
    with pytest.raises(BadDataError):
        ModelBuilder().add_operand(code, (1,))


@pytest.mark.parametrize("quant", [{"scale": 0.5}, {"zero_point": 1}])
@pytest.mark.parametrize(
    "code",
    [c for c in OperandCode if not c.name.startswith("TENSOR_") and c is not OperandCode.OEM_SCALAR],
)
def test_m9_scalars_have_neither_scale_nor_zero_point(code: int, quant: dict[str, Any]) -> None:
    with pytest.raises(BadDataError):
        ModelBuilder().add_operand(code, **quant)


def test_m9_the_oem_scalar_has_any_quantisation() -> None:
    assert ModelBuilder().add_operand(OperandCode.OEM_SCALAR, scale=0.5, zero_point=-7) == 0


@pytest.mark.parametrize("dims", [(), (0,), (2, 0, 3)])
def test_m10_rank_and_dimensions_may_be_unknown(dims: tuple[int, ...]) -> None:
    assert ModelBuilder().add_operand(FLOAT, dims) == 0


@pytest.mark.parametrize(
    ("code", "dims", "fits"),
    [
        (FLOAT, (2**30 - 1,), True),
        (FLOAT, (2**30,), False),
        (FLOAT, (0, 2**30 - 1), True),
        (FLOAT, (0, 2**15, 2**15), False),
        (BOOL8, (2**32 - 1,), True),
        (BOOL8, (2**16, 2**16), False),
        (TENSOR64, (2**29 - 1,), True),
        (TENSOR64, (2**29,), False),
        # Android's own example of a product that wraps around to a small number.
        (FLOAT, (5, 4, 4, 786433, 5, 3, 16777216, 4, 5), False),
        (TENSOR64, (5, 4, 4, 786433, 5, 3, 16777216, 4, 5), False),
    ],
)
def test_m11_at_most_4_gib(code: int, dims: tuple[int, ...], fits: bool) -> None:
    if fits:
        assert ModelBuilder().add_operand(code, dims) == 0
        return
    with pytest.raises(BadDataError):
        ModelBuilder().add_operand(code, dims)


@pytest.mark.parametrize(
    ("code", "low", "high"),
    [
        (OperandCode.TENSOR_QUANT8_ASYMM, 0, 255),
        (OperandCode.TENSOR_QUANT8_ASYMM_SIGNED, -128, 127),
        (OperandCode.TENSOR_QUANT8_SYMM, 0, 0),
        (OperandCode.TENSOR_QUANT16_SYMM, 0, 0),
        (OperandCode.TENSOR_QUANT16_ASYMM, 0, 65535),
    ],
)
def test_m12_quantised_tensors_have_a_scale_above_0_and_a_zero_point_in_range(code: int, low: int, high: int) -> None:
    for point in (low, high):
        ModelBuilder().add_operand(code, (2,), scale=0.5, zero_point=point)
    for scale, point in ((0.0, low), (-1.0, low), (0.5, low - 1), (0.5, high + 1)):
        with pytest.raises(BadDataError):
            ModelBuilder().add_operand(code, (2,), scale=scale, zero_point=point)


@pytest.mark.parametrize("quant", [{"scale": 0.5}, {"zero_point": 1}])
@pytest.mark.parametrize("code", [FLOAT, OperandCode.TENSOR_FLOAT16, BOOL8, PER_CHANNEL, SCALAR64, TENSOR64])
def test_m12_other_types_have_neither_scale_nor_zero_point(code: int, quant: dict[str, Any]) -> None:
    dims = () if code == SCALAR64 else (2,)
    with pytest.raises(BadDataError):
        ModelBuilder().add_operand(code, dims, **quant)


@pytest.mark.parametrize("code", [OperandCode.TENSOR_INT32, OperandCode.TENSOR_OEM_BYTE])
def test_m12_int32_and_oem_tensors_are_not_looked_at_yet(code: int) -> None:
    assert ModelBuilder().add_operand(code, (2,), scale=-1.0, zero_point=5) == 0


def test_m13_operands_are_numbered_from_0_and_are_temporaries() -> None:
    builder = ModelBuilder()
    assert [builder.add_operand(FLOAT, (2,)) for _ in range(3)] == [0, 1, 2]
    builder.add_operation(FLOOR, [0], [1])
    builder.add_operation(FLOOR, [1], [2])
    builder.identify_inputs_and_outputs([0], [2])
    expected = [Lifetime.SUBGRAPH_INPUT, Lifetime.TEMPORARY_VARIABLE, Lifetime.SUBGRAPH_OUTPUT]
    assert lifetimes(builder.finish()) == expected


# -- values -----------------------------------------------------------------------------------------------------------


def test_m14_no_value_is_an_omitted_operand() -> None:
    builder = ModelBuilder()
    sizes = [builder.add_operand(FLOAT, (1, 2)) for _ in range(2)]
    scalar = builder.add_operand(OperandCode.FLOAT32)
    builder.set_operand_value(scalar, None)
    builder.add_operation(FLOOR, sizes[:1], sizes[1:])
    builder.identify_inputs_and_outputs(sizes[:1], sizes[1:])
    assert len(builder.finish().main.operands) == 2  # the omitted one is used by nothing


def test_m14_a_value_has_bytes() -> None:
    with pytest.raises(BadDataError):
        half_built().set_operand_value(0, b"")


@pytest.mark.parametrize("index", [-1, 2, 2**31])
def test_m15_the_operand_exists(index: int) -> None:
    builder = half_built()
    for call in (
        lambda: builder.set_operand_value(index, bytes(8)),
        lambda: builder.set_operand_value_from_memory(index, Pool.of(bytes(8)), 0, 8),
        lambda: builder.set_operand_value_from_model(index, unary_chain(FLOOR)),
        lambda: builder.set_operand_symm_per_channel_quant_params(index, [1.0], 0),
        lambda: builder.set_operand_extension_data(index, b"data"),
    ):
        with pytest.raises(BadDataError):
            call()


@pytest.mark.parametrize("code", [FLOAT, TENSOR64])
@pytest.mark.parametrize("dims", [(), (0,), (3, 0)])
def test_m16_only_known_dimensions_have_a_value(code: int, dims: tuple[int, ...]) -> None:
    builder, tensor = with_constant(dims, code)
    with pytest.raises(BadDataError):
        builder.set_operand_value(tensor, bytes(24))
    with pytest.raises(BadDataError):
        builder.set_operand_value_from_memory(tensor, Pool.of(bytes(24)), 0, 24)


@pytest.mark.parametrize(("code", "dims", "size"), [(FLOAT, (3,), 12), (SCALAR64, (), 8), (TENSOR64, (3,), 24)])
def test_m17_the_length_is_exact(code: int, dims: tuple[int, ...], size: int) -> None:
    for length in (size - 1, size + 1):
        builder, tensor = with_constant(dims, code)
        with pytest.raises(BadDataError):
            builder.set_operand_value(tensor, bytes(length))
        with pytest.raises(BadDataError):
            builder.set_operand_value_from_memory(tensor, Pool.of(bytes(length)), 0, length)
    builder, tensor = with_constant(dims, code)
    builder.set_operand_value(tensor, bytes(size))


@pytest.mark.parametrize("length", [1, 20, 200])
def test_m17_the_oem_scalar_takes_any_length(length: int) -> None:
    builder = complete()
    builder.set_operand_value(builder.add_operand(OperandCode.OEM_SCALAR), bytes(length))
    assert len(builder.finish().main.operations) == 1


def sum_of(constant: object, size: int) -> tuple[ModelBuilder, int]:
    """x + constant, the constant not yet set; its operand."""
    builder = ModelBuilder()
    x, c, none, y = (
        builder.add_operand(FLOAT, (size,), name="x"),
        builder.add_operand(FLOAT, (size,), name="c"),
        builder.add_operand(INT32),
        builder.add_operand(FLOAT, (size,), name="y"),
    )
    builder.set_operand_value(none, 0)
    builder.set_operand_value(c, constant)
    builder.add_operation(ADD, [x, c, none], [y])
    builder.identify_inputs_and_outputs([x], [y])
    return builder, c


@pytest.mark.parametrize(("size", "seen"), [(32, 1), (33, 9)])
def test_m18_values_of_more_than_128_bytes_are_read_at_finish(size: int, seen: int) -> None:
    value = np.ones(size, np.float32)
    builder, _ = sum_of(value, size)
    value[:] = 9
    model = builder.finish()
    constant = next(o for o in model.main.operands if o.name == "c")
    np.testing.assert_array_equal(model.value(constant), seen)


def test_m19_small_values_are_packed_at_multiples_of_1_2_or_4_bytes() -> None:
    builder = ModelBuilder()
    lengths = {"a": 1, "b": 2, "c": 3, "d": 1, "e": 5}
    x, y = builder.add_operand(OperandCode.TENSOR_OEM_BYTE, (1,)), builder.add_operand(OperandCode.TENSOR_OEM_BYTE, (1,))
    constants = [builder.add_operand(OperandCode.TENSOR_OEM_BYTE, (n,), name=name) for name, n in lengths.items()]
    for constant, n in zip(constants, lengths.values(), strict=True):
        builder.set_operand_value(constant, bytes(n))
    builder.add_operation(OEM, [x, *constants], [y])
    builder.identify_inputs_and_outputs([x], [y])
    model = builder.finish()
    offsets = {o.name: o.location.offset for o in model.main.operands if o.is_constant}
    # 1 byte at 0; 2 at the next even place; 3 at 4; 1 right behind at 7; 5 at the next multiple of 4.
    assert offsets == {"a": 0, "b": 2, "c": 4, "d": 7, "e": 8}


def test_m20_large_values_share_one_memory_behind_the_clients() -> None:
    builder = ModelBuilder()
    x, y = builder.add_operand(OperandCode.TENSOR_OEM_BYTE, (1,)), builder.add_operand(OperandCode.TENSOR_OEM_BYTE, (1,))
    constants = [builder.add_operand(OperandCode.TENSOR_OEM_BYTE, (200,)) for _ in range(3)]
    builder.set_operand_value(constants[0], bytes([1]) * 200)
    client = Pool.of(bytes(200))
    builder.set_operand_value_from_memory(constants[1], client, 0, 200)
    builder.set_operand_value(constants[2], bytes([3]) * 200)
    builder.add_operation(OEM, [x, *constants], [y])
    builder.identify_inputs_and_outputs([x], [y])
    model = builder.finish()
    assert (len(model.pools), model.pools[0]) == (2, client)
    places = [model.main.operands[i].location for i in constants]
    assert [place.pool for place in places] == [1, 0, 1]
    assert [bytes(model.bytes_of(model.main.operands[i]))[0] for i in constants] == [1, 0, 3]


def test_m21_a_value_may_be_set_again_and_the_last_counts() -> None:
    for first, last in ((1.0, 2.0), (2.0, 1.0)):
        builder, constant = sum_of(np.full(40, first, np.float32), 40)
        builder.set_operand_value(constant, np.full(40, last, np.float32))
        out = Execution(on_cpu(builder.finish())).run([np.zeros(40, np.float32)])["y"]
        np.testing.assert_array_equal(out, last)


def on_cpu(model: Model) -> Compilation:
    compilation = Compilation.create(model, [])
    compilation.finish()
    return compilation


@pytest.mark.parametrize("index", [0, 1])
def test_m21_an_input_or_output_with_a_value_is_found_at_finish(index: int) -> None:
    builder = complete()
    builder.set_operand_value(index, bytes(8))
    with pytest.raises(BadDataError):
        builder.finish()


@pytest.mark.parametrize(("offset", "length"), [(0, 12), (9, 8), (8, 16), (21, 8), (-1, 8), (0, 0)])
def test_m22_a_value_in_memory_has_the_operands_length_and_lies_inside(offset: int, length: int) -> None:
    builder, tensor = with_constant((2,))
    with pytest.raises(BadDataError):
        builder.set_operand_value_from_memory(tensor, Pool.of(bytes(16)), offset, length)


def test_m22_the_oem_scalar_takes_no_value_from_memory() -> None:
    builder = complete()
    scalar = builder.add_operand(OperandCode.OEM_SCALAR)
    with pytest.raises(BadDataError):
        builder.set_operand_value_from_memory(scalar, Pool.of(bytes(16)), 0, 16)


def test_m23_a_memory_is_one_pool_however_often_it_is_used() -> None:
    builder = ModelBuilder()
    x, y = builder.add_operand(OperandCode.TENSOR_OEM_BYTE, (1,)), builder.add_operand(OperandCode.TENSOR_OEM_BYTE, (1,))
    constants = [builder.add_operand(OperandCode.TENSOR_OEM_BYTE, (4,)) for _ in range(3)]
    first, second = Pool.of(bytes(8)), Pool.of(bytes(8))
    for constant, pool, offset in zip(constants, (second, first, second), (0, 0, 4), strict=True):
        builder.set_operand_value_from_memory(constant, pool, offset, 4)
    builder.add_operation(OEM, [x, *constants], [y])
    builder.identify_inputs_and_outputs([x], [y])
    model = builder.finish()
    assert model.pools == (second, first)
    assert [model.main.operands[i].location.pool for i in constants] == [0, 1, 0]


def conditional(then: Model, otherwise: Model, dims: tuple[int, ...] = (1, 4), first: str = "models") -> ModelBuilder:
    """IF with both branches; ``first`` states whether the models or the operation come first."""
    builder = ModelBuilder()
    flag, a, b = builder.add_operand(BOOL8, (1,)), builder.add_operand(MODEL), builder.add_operand(MODEL)
    x, y = builder.add_operand(FLOAT, dims), builder.add_operand(FLOAT, dims)

    def set_models() -> None:
        builder.set_operand_value_from_model(a, then)
        builder.set_operand_value_from_model(b, otherwise)

    if first == "models":
        set_models()
    builder.add_operation(OperationCode.IF, [flag, a, b, x], [y])
    builder.identify_inputs_and_outputs([flag, x], [y])
    return builder


def test_m24_m50_a_model_that_is_passed_twice_appears_twice() -> None:
    body = unary_chain(FLOOR)
    model = conditional(body, body).finish()
    assert (len(model.referenced), model.referenced[0]) == (2, model.referenced[1])


def test_m24_the_type_of_the_operand_is_looked_at_by_finish_alone() -> None:
    builder, tensor = with_constant((2,))
    builder.set_operand_value_from_model(tensor, unary_chain(FLOOR))
    with pytest.raises(BadDataError, match="SUBGRAPH"):
        builder.finish()


def test_m24_a_missing_model() -> None:
    builder = ModelBuilder()
    builder.add_operand(MODEL)
    with pytest.raises(UnexpectedNullError):
        builder.set_operand_value_from_model(0, None)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("scales", "channel", "dims"),
    [
        ([1.0, 1.0, 1.0], 4, (1, 2, 2, 3)),
        ([1.0, 1.0], 3, (1, 2, 2, 3)),
        ([1.0] * 4, 3, (1, 2, 2, 3)),
        ([], 3, (1, 2, 2, 3)),
        ([], 3, (1, 2, 2, 0)),
        ([1.0, 0.0, 1.0], 3, (1, 2, 2, 3)),
        ([1.0, -1.0, 1.0], 3, (1, 2, 2, 3)),
    ],
)
def test_m26_scales_go_with_the_channel_dimension(scales: list[float], channel: int, dims: tuple[int, ...]) -> None:
    builder = ModelBuilder()
    builder.add_operand(PER_CHANNEL, dims)
    with pytest.raises(BadDataError):
        builder.set_operand_symm_per_channel_quant_params(0, scales, channel)


@pytest.mark.parametrize("code", [c for c in OperandCode if c is not PER_CHANNEL and c.name.startswith("TENSOR_")])
def test_m26_other_types_have_no_scales_of_channels(code: OperandCode) -> None:
    builder = ModelBuilder()
    quantised = "QUANT" in code.name
    builder.add_operand(code, (1, 3), scale=1.0 if quantised else 0.0)
    with pytest.raises(BadDataError):
        builder.set_operand_symm_per_channel_quant_params(0, [1.0, 2.0, 3.0], 1)


def test_m26_an_operand_without_its_scales_is_found_at_finish() -> None:
    builder, tensor = with_constant((3,), PER_CHANNEL)
    builder.set_operand_value(tensor, bytes(3))
    with pytest.raises(BadDataError, match="per-channel"):
        builder.finish()


def test_m27_extension_data_is_of_extension_operands_and_of_any_size() -> None:
    builder = ModelBuilder()
    tensor, ordinary = builder.add_operand(TENSOR64, (2,)), builder.add_operand(FLOAT, (2,))
    for data in (b"\0", bytes(100_000), None):
        builder.set_operand_extension_data(tensor, data)
    with pytest.raises(BadDataError):
        builder.set_operand_extension_data(tensor, b"")
    with pytest.raises(BadDataError):
        builder.set_operand_extension_data(ordinary, b"data")
