"""Finishing a model: facts M39 to M59 of Android's runtime, by number, and Android's TestRemoveDefaultArguments."""

from __future__ import annotations

import numpy as np
import pytest

from nnbridge.builder import ModelBuilder
from nnbridge.errors import BadDataError, BadStateError
from nnbridge.extensions import TYPES, Extension, ExtensionOperandType
from nnbridge.model import Model, Pool
from nnbridge.runtime.compilation import supported_operations
from nnbridge.types import Lifetime, OperandCode, OperationCode
from tests.graphs import FLOAT, unary_chain
from tests.runtime.drivers import Driver

FLOOR, ABS, ADD, OEM, IF = (
    OperationCode.FLOOR,
    OperationCode.ABS,
    OperationCode.ADD,
    OperationCode.OEM_OPERATION,
    OperationCode.IF,
)
OEM_BYTES = OperandCode.TENSOR_OEM_BYTE


def graph(operands: int, *operations: tuple[OperationCode, list[int], list[int]]) -> ModelBuilder:
    """Float operands and operations between them, nothing named yet."""
    builder = ModelBuilder()
    for _ in range(operands):
        builder.add_operand(FLOAT, (2,))
    for code, inputs, outputs in operations:
        builder.add_operation(code, inputs, outputs)
    return builder


# -- order ------------------------------------------------------------------------------------------------------------


def test_m39_a_failed_finish_leaves_an_invalid_model() -> None:
    builder = graph(2, (FLOOR, [0], [1]))
    with pytest.raises(BadDataError):
        builder.finish()
    with pytest.raises(BadStateError):
        builder.identify_inputs_and_outputs([0], [1])


def test_m39_a_large_value_must_be_there_at_finish_alone() -> None:
    value = bytearray(200)
    builder = graph(0)
    x, c, y = (builder.add_operand(OEM_BYTES, (200,)) for _ in range(3))
    builder.set_operand_value(c, value)
    builder.add_operation(OEM, [x, c], [y])
    builder.identify_inputs_and_outputs([x], [y])
    model = builder.finish()
    value[0] = 1
    assert bytes(model.bytes_of(model.main.operands[c]))[0] == 0


def test_m40_m41_ready_operations_are_a_stack() -> None:
    # A and B are independent, C uses A.
    builder = graph(4, (FLOOR, [0], [1]), (FLOOR, [0], [2]), (FLOOR, [1], [3]))
    builder.identify_inputs_and_outputs([0], [2, 3])
    builder.finish()
    assert builder.run_order == (1, 0, 2)


def test_m40_outputs_release_operations_in_order_of_outputs() -> None:
    # The first operation has two outputs; the readers of the first are pushed first, so they run last.
    builder = graph(0)
    x, a, b, c, d = (builder.add_operand(OEM_BYTES, (2,)) for _ in range(5))
    builder.add_operation(OEM, [b], [d])
    builder.add_operation(OEM, [a], [c])
    builder.add_operation(OEM, [x], [a, b])
    builder.identify_inputs_and_outputs([x], [c, d])
    builder.finish()
    assert builder.run_order == (2, 0, 1)


def test_m42_an_operand_that_is_read_twice_is_waited_for_once() -> None:
    builder = graph(3)
    none = builder.add_operand(OperandCode.INT32)
    builder.set_operand_value(none, 0)
    builder.add_operation(ADD, [1, 1, none], [2])
    builder.add_operation(FLOOR, [0], [1])
    builder.identify_inputs_and_outputs([0], [2])
    builder.finish()
    assert builder.run_order == (1, 0)


def test_m43_a_cycle() -> None:
    # Android's: 3 = ADD(0, 4, 2), 4 = ADD(1, 3, 2), 5 = ADD(4, 0, 2).
    builder = ModelBuilder()
    for code in (FLOAT, FLOAT, OperandCode.INT32, FLOAT, FLOAT, FLOAT):
        builder.add_operand(code, (1,) if code == FLOAT else ())
    builder.add_operation(ADD, [0, 4, 2], [3])
    builder.add_operation(ADD, [1, 3, 2], [4])
    builder.add_operation(ADD, [4, 0, 2], [5])
    builder.identify_inputs_and_outputs([0, 1, 2], [5])
    with pytest.raises(BadDataError, match="cycle"):
        builder.finish()


def test_m34_operations_are_sorted() -> None:
    # Android's AcyclicReadBeforeWrite: 1 = LOGISTIC(2), 2 = LOGISTIC(0).
    builder = graph(3, (OperationCode.LOGISTIC, [2], [1]), (OperationCode.LOGISTIC, [0], [2]))
    builder.identify_inputs_and_outputs([0], [1])
    assert [o.outputs for o in builder.finish().main.operations] == [(2,), (1,)]


def test_m43_an_input_that_nobody_makes() -> None:
    # Android's MissingWrite.
    builder = graph(4, (FLOOR, [1], [2]), (FLOOR, [0], [3]))
    builder.identify_inputs_and_outputs([0], [2, 3])
    with pytest.raises(BadDataError):
        builder.finish()


def test_m44_support_is_reported_in_the_clients_order() -> None:
    from nnbridge import ndk

    code, model = ndk.ANeuralNetworksModel_create()
    for _ in range(4):
        ndk.ANeuralNetworksModel_addOperand(model, ndk.OperandType(FLOAT, (2,)))
    # Both are ready at once, so they run in reverse order; the CPU does not take the OEM operation.
    for operation, output in ((OEM, 1), (FLOOR, 2), (FLOOR, 3)):
        assert ndk.ANeuralNetworksModel_addOperation(model, operation, [0], [output]) == 0
    ndk.ANeuralNetworksModel_identifyInputsAndOutputs(model, [0], [1, 2, 3])
    assert ndk.ANeuralNetworksModel_finish(model) == 0
    cpu = ndk.ANeuralNetworks_getDevice(ndk.ANeuralNetworks_getDeviceCount()[1] - 1)[1]
    answer = ndk.ANeuralNetworksModel_getSupportedOperationsForDevices(model, [cpu])
    assert (code, answer) == (0, (0, [False, True, True]))


# -- trailing defaults ------------------------------------------------------------------------------------------------

KINDS = {
    "F4": (FLOAT, (1, 4, 4, 4)),
    "F1": (FLOAT, (4,)),
    "I2": (OperandCode.TENSOR_INT32, (2,)),
    "I22": (OperandCode.TENSOR_INT32, (2, 2)),
    "i": (OperandCode.INT32, ()),
    "f": (OperandCode.FLOAT32, ()),
    "b": (OperandCode.BOOL, ()),
}


def sent(code: OperationCode, kinds: str, tail: list[float], *, omit: bool = False, reference: bool = False) -> int:
    """The number of inputs that a driver gets of an operation whose last inputs have these values."""
    builder = ModelBuilder()
    types = [KINDS[kind] for kind in kinds.split()]
    inputs = [builder.add_operand(type, dims) for type, dims in types]
    first = len(inputs) - len(tail)
    for i, (type, dims) in list(zip(inputs, types, strict=True))[1:]:
        value = 1 if i < first else tail[i - first]
        array = np.full(dims, value, np.uint8 if type == OperandCode.BOOL else "f4" if type in (FLOAT, 0) else "i4")
        if reference and i == inputs[-1]:
            builder.set_operand_value_from_memory(i, Pool.of(array.tobytes()), 0, array.nbytes)
        else:
            builder.set_operand_value(i, None if omit and i == inputs[-1] else array)
    output = builder.add_operand(FLOAT)
    builder.add_operation(code, inputs, [output])
    builder.identify_inputs_and_outputs([inputs[0]], [output])
    driver = Driver("driver")
    supported_operations(builder.finish(), [driver])
    return len(driver.asked[0].main.operations[0].inputs)


@pytest.mark.parametrize("code", [OperationCode.AVERAGE_POOL_2D, OperationCode.MAX_POOL_2D, OperationCode.L2_POOL_2D])
@pytest.mark.parametrize(
    ("kinds", "tail", "count"),
    [
        ("F4 i i i i i i i i i b", [0], 10),
        ("F4 i i i i i i i i i b", [1], 11),
        ("F4 i i i i i i b", [0], 7),
        ("F4 i i i i i i b", [1], 8),
    ],
)
def test_m45_pooling(code: OperationCode, kinds: str, tail: list[float], count: int) -> None:
    assert sent(code, kinds, tail) == count


EXPLICIT, IMPLICIT = "F4 F4 F1 i i i i i i i b i i", "F4 F4 F1 i i i i b i i"


@pytest.mark.parametrize(
    ("kinds", "tail", "count"),
    [
        (EXPLICIT, [0, 1, 1], 10),
        (EXPLICIT, [1, 1, 1], 11),
        (EXPLICIT, [0, 2, 1], 13),
        (EXPLICIT, [0, 1, 2], 13),
        (EXPLICIT[:-4], [0], 10),
        (IMPLICIT, [0, 1, 1], 7),
        (IMPLICIT, [1, 1, 1], 8),
        (IMPLICIT, [0, 2, 1], 10),
        (IMPLICIT[:-4], [0], 7),
    ],
)
def test_m45_m46_both_dilations_go_or_none(kinds: str, tail: list[float], count: int) -> None:
    assert sent(OperationCode.CONV_2D, kinds, tail) == count
    # The depth multiplier is one scalar more.
    deeper = kinds.replace("F1 i", "F1 i i")
    assert sent(OperationCode.DEPTHWISE_CONV_2D, deeper, tail) == count + 1


@pytest.mark.parametrize(
    ("code", "kinds", "tail", "count"),
    [
        (OperationCode.DEPTH_TO_SPACE, "F4 i b", [0], 2),
        (OperationCode.SPACE_TO_DEPTH, "F4 i b", [0], 2),
        (OperationCode.SPACE_TO_DEPTH, "F4 i b", [1], 3),
        (OperationCode.BATCH_TO_SPACE_ND, "F4 I2 b", [0], 2),
        (OperationCode.SPACE_TO_BATCH_ND, "F4 I2 I22 b", [0], 3),
        (OperationCode.L2_NORMALIZATION, "F4 i", [-1], 1),
        (OperationCode.L2_NORMALIZATION, "F4 i", [3], 2),
        (OperationCode.LOCAL_RESPONSE_NORMALIZATION, "F4 i f f f i", [-1], 5),
        (OperationCode.SOFTMAX, "F4 f i", [-1], 2),
        (OperationCode.SOFTMAX, "F4 f i", [0], 3),
        (OperationCode.RESIZE_BILINEAR, "F4 i i b b b", [0, 0, 0], 3),
        (OperationCode.RESIZE_BILINEAR, "F4 i i b b b", [0, 1, 0], 5),
        (OperationCode.RESIZE_BILINEAR, "F4 i i b b b", [0, 0, 1], 6),
        (OperationCode.RESIZE_BILINEAR, "F4 f f b b b", [1, 0, 0], 4),
        (OperationCode.RESIZE_BILINEAR, "F4 i i b", [0], 3),
        (OperationCode.RESIZE_NEAREST_NEIGHBOR, "F4 i i b b b", [0, 0, 0], 4),
        (OperationCode.RESIZE_NEAREST_NEIGHBOR, "F4 i i b b b", [0, 1, 0], 5),
        (OperationCode.RESIZE_NEAREST_NEIGHBOR, "F4 i i b b b", [0, 1, 1], 6),
    ],
)
def test_m45_the_other_operations_of_the_table(code: OperationCode, kinds: str, tail: list[float], count: int) -> None:
    assert sent(code, kinds, tail) == count


def test_m45_only_a_value_that_was_copied_is_a_default() -> None:
    assert sent(OperationCode.SOFTMAX, "F4 f i", [-1], reference=True) == 3
    assert sent(OperationCode.SOFTMAX, "F4 f i", [-1], omit=True) == 3


@pytest.mark.parametrize(
    ("code", "kinds", "tail"),
    [
        (OperationCode.GROUPED_CONV_2D, "F4 F4 F1 i i i i i b", [0]),
        (OperationCode.TRANSPOSE_CONV_2D, "F4 F4 F1 i i i i i i i b", [0]),
        (OperationCode.INSTANCE_NORMALIZATION, "F4 f f f b", [0]),
        (OperationCode.CHANNEL_SHUFFLE, "F4 i i", [-1]),
    ],
)
def test_m47_other_operations_keep_all_inputs(code: OperationCode, kinds: str, tail: list[float]) -> None:
    assert sent(code, kinds, tail) == len(kinds.split())


# -- the devices' view ------------------------------------------------------------------------------------------------


def test_m49_operands_that_nothing_uses_are_gone_from_the_main_subgraph() -> None:
    builder = graph(3, (FLOOR, [0], [2]))
    builder.set_operand_value(1, bytes(8))
    unused = builder.add_operand(FLOAT, (2,))
    builder.identify_inputs_and_outputs([0, unused], [2])
    model = builder.finish()
    # The constant is gone, the input that nothing reads stays.
    assert [o.lifetime.name for o in model.main.operands] == ["SUBGRAPH_INPUT", "SUBGRAPH_OUTPUT", "SUBGRAPH_INPUT"]
    assert (model.main.inputs, model.operand_values) == ((0, 2), b"")


def with_unused_constant(dims: tuple[int, ...] = (1, 4)) -> Model:
    builder = ModelBuilder()
    x, y, unused = (builder.add_operand(FLOAT, dims) for _ in range(3))
    builder.set_operand_value(unused, bytes(4 * int(np.prod(dims))))
    builder.add_operation(FLOOR, [x], [y])
    builder.identify_inputs_and_outputs([x], [y])
    return builder.finish()


def conditional(*bodies: Model, extra: Model | None = None) -> ModelBuilder:
    builder = ModelBuilder()
    flag, a, b = builder.add_operand(OperandCode.TENSOR_BOOL8, (1,)), *(builder.add_operand(OperandCode.MODEL) for _ in "ab")
    x, y = (builder.add_operand(FLOAT, (1, 4)) for _ in "xy")
    if extra is not None:
        builder.set_operand_value_from_model(a, extra)
    for operand, body in zip((a, b), bodies, strict=True):
        builder.set_operand_value_from_model(operand, body)
    builder.add_operation(IF, [flag, a, b, x], [y])
    builder.identify_inputs_and_outputs([flag, x], [y])
    return builder


def test_m49_bodies_that_are_not_used_any_more_are_gone() -> None:
    floor, absolute = unary_chain(FLOOR), unary_chain(ABS)
    model = conditional(floor, absolute, extra=unary_chain(FLOOR, ABS)).finish()
    assert [s.operations[0].type for s in model.referenced] == [FLOOR, ABS]
    bodies = [o.location.offset for o in model.main.operands if o.lifetime is Lifetime.SUBGRAPH]
    assert bodies == [0, 1]


def test_m49_a_memory_that_no_value_lies_in_any_more_is_gone() -> None:
    builder = graph(0)
    x, y, c = (builder.add_operand(OEM_BYTES, (4,)) for _ in range(3))
    first, second = Pool.of(bytes(4)), Pool.of(b"1234")
    for pool in (first, second):
        builder.set_operand_value_from_memory(c, pool, 0, 4)
    builder.add_operation(OEM, [x, c], [y])
    builder.identify_inputs_and_outputs([x], [y])
    model = builder.finish()
    assert model.pools == (second,)
    assert bytes(model.bytes_of(model.main.operands[c])) == b"1234"


def test_m50_small_values_are_packed_in_order_of_operands() -> None:
    builder = graph(0)
    x, y, a, b = (builder.add_operand(OEM_BYTES, (4,)) for _ in range(4))
    builder.set_operand_value(b, b"bbbb")
    builder.set_operand_value(a, b"????")
    builder.set_operand_value(a, b"aaaa")
    builder.add_operation(OEM, [x, b, a], [y])
    builder.identify_inputs_and_outputs([x], [y])
    assert builder.finish().operand_values == b"aaaabbbb"


def test_m50_bodies_come_depth_first_with_their_values_behind_the_main_ones() -> None:
    inner = conditional(unary_chain(FLOOR), unary_chain(ABS))
    outer = ModelBuilder()
    flag, a, b = outer.add_operand(OperandCode.TENSOR_BOOL8, (1,)), *(outer.add_operand(OperandCode.MODEL) for _ in "ab")
    x, y = (outer.add_operand(FLOAT, (1, 4)) for _ in "xy")
    nested, plain = inner.finish(), two_inputs()
    outer.set_operand_value_from_model(a, nested)
    outer.set_operand_value_from_model(b, plain)
    outer.add_operation(IF, [flag, a, b, flag, x], [y])
    outer.identify_inputs_and_outputs([flag, x], [y])
    model = outer.finish()
    assert [s.operations[0].type for s in model.referenced] == [IF, FLOOR, ABS, OperationCode.LOGISTIC]


def two_inputs() -> Model:
    builder = ModelBuilder()
    builder.add_operand(OperandCode.TENSOR_BOOL8, (1,))
    x, y = (builder.add_operand(FLOAT, (1, 4)) for _ in "xy")
    builder.add_operation(OperationCode.LOGISTIC, [x], [y])
    builder.identify_inputs_and_outputs([0, x], [y])
    return builder.finish()


@pytest.mark.parametrize(("main", "body"), [(True, False), (False, True)])
def test_m51_the_main_models_relaxation_is_the_views(main: bool, body: bool) -> None:
    branch = unary_chain(FLOOR, relaxed=body)
    builder = conditional(branch, branch)
    builder.relax_computation_float32_to_float16(main)
    assert builder.finish().relaxed is main


def test_m52_extensions_are_named_in_order_of_first_use() -> None:
    for name in ("com.example.first", "com.example.second", "com.example.third"):
        TYPES.register(Extension(name, (ExtensionOperandType(0, True, 1),)))
    builder = ModelBuilder()
    second = TYPES.code("com.example.second", 0)
    x, y = builder.add_operand(second, (2,)), builder.add_operand(second, (2,))
    builder.set_operand_value(builder.add_operand(TYPES.code("com.example.first", 0), (2,)), bytes(2))
    builder.add_operation(TYPES.code("com.example.third", 0), [x], [y])
    builder.identify_inputs_and_outputs([x], [y])
    # The constant of the first extension is used by nothing.
    assert list(builder.finish().extensions) == ["com.example.second", "com.example.third"]


def test_m57_an_operand_without_value_and_use_is_never_written() -> None:
    # Android's UnwrittenOperand.
    builder = graph(3, (FLOOR, [0], [2]))
    builder.identify_inputs_and_outputs([0], [2])
    with pytest.raises(BadDataError, match="writes it"):
        builder.finish()


def test_m57_an_unused_constant_is_no_fault() -> None:
    assert len(with_unused_constant().main.operands) == 2


@pytest.mark.parametrize("operands", [0, 2])
def test_m58_a_model_has_operands_and_operations(operands: int) -> None:
    builder = graph(operands)
    builder.identify_inputs_and_outputs(list(range(operands)), [])
    with pytest.raises(BadDataError):
        builder.finish()


def test_m59_an_operand_is_read_often_but_written_once() -> None:
    # Android's MultipleWrite.
    builder = graph(3, (FLOOR, [0], [1]), (FLOOR, [0], [1]))
    builder.identify_inputs_and_outputs([0], [1])
    builder.set_operand_value(2, bytes(8))
    with pytest.raises(BadDataError):
        builder.finish()
    builder = graph(3, (FLOOR, [0], [1]), (FLOOR, [0], [2]))
    builder.identify_inputs_and_outputs([0], [1, 2])
    assert len(builder.finish().main.operations) == 2
