"""Slices for devices of a lower feature level, fact by fact (S6 to S12)."""

from __future__ import annotations

from collections.abc import Sequence

from nnbridge.builder import ModelBuilder
from nnbridge.model import Model
from nnbridge.runtime.feature_level_slices import Slices, requirements, slice_model
from nnbridge.types import Lifetime, OperandCode, OperationCode
from tests.graphs import FLOAT, unary_chain
from tests.runtime.drivers import Driver

ADD, FLOOR, RELU, ABS, EXP, WHILE = (OperationCode[name] for name in ("ADD", "FLOOR", "RELU", "ABS", "EXP", "WHILE"))
Row = tuple[OperationCode, tuple[str, ...], str]


def graph(rows: Sequence[Row], inputs: Sequence[str], outputs: Sequence[str], dims: dict[str, tuple[int, ...]]) -> Model:
    """Float operations on named operands; ADD gets its activation."""
    builder = ModelBuilder()
    builder.relax_computation_float32_to_float16(True)
    none = builder.add_operand(OperandCode.INT32, name="none")
    builder.set_operand_value(none, 0)
    named: dict[str, int] = {}

    def operand(name: str) -> int:
        if name not in named:
            named[name] = builder.add_operand(FLOAT, dims.get(name, (2,)), name=name)
        return named[name]

    for code, sources, target in rows:
        fused = [none] if code is ADD else []
        builder.add_operation(code, [*map(operand, sources), *fused], [operand(target)])
    builder.identify_inputs_and_outputs([operand(n) for n in inputs], [operand(n) for n in outputs])
    return builder.finish()


def at_level(model: Model, level: int) -> Model:
    sliced = Slices(model).for_device(Driver("old", feature_level=level)).model
    assert sliced is not None
    return sliced


def names(model: Model, indexes: Sequence[int]) -> list[str]:
    return [model.main.operands[i].name for i in indexes]


def test_s6_a_device_that_complies_with_everything_gets_the_whole_model() -> None:
    model = unary_chain(FLOOR, ABS)
    assert at_level(model, 3) is model


def test_s6_operations_above_the_device_are_removed() -> None:
    model = unary_chain(FLOOR, ABS, RELU)
    part = Slices(model).for_device(Driver("old", feature_level=2))
    assert part.included == tuple(i for i, o in enumerate(model.main.operations) if o.type != ABS)
    (refused,) = part.refused.values()
    assert str(refused) == "ABS: expected feature level 2 at most, the device's, found level 3"


def test_s6_control_flow_needs_what_its_bodies_need() -> None:
    # MIRROR_PAD, of level 7, lifts the loop above its own level 4.
    builder = ModelBuilder()
    x, y = builder.add_operand(FLOAT, (2,)), builder.add_operand(FLOAT, (2,))
    condition, body = (builder.add_operand(OperandCode.MODEL) for _ in range(2))
    builder.set_operand_value_from_model(condition, _always())
    builder.set_operand_value_from_model(body, _padding())
    builder.add_operation(WHILE, [condition, body, x], [y])
    builder.identify_inputs_and_outputs([x], [y])
    [need] = requirements(builder.finish())
    assert need.level == 7


def _always() -> Model:
    builder = ModelBuilder()
    x, yes = builder.add_operand(FLOAT, (2,)), builder.add_operand(OperandCode.TENSOR_BOOL8, (1,))
    first, size = (builder.add_operand(OperandCode.TENSOR_INT32, (1,)) for _ in range(2))
    part, zero = builder.add_operand(FLOAT, (1,)), builder.add_operand(FLOAT, (1,))
    builder.set_operand_value(first, [0])
    builder.set_operand_value(size, [1])
    builder.set_operand_value(zero, [0.0])
    builder.add_operation(OperationCode.SLICE, [x, first, size], [part])
    builder.add_operation(OperationCode.LESS, [part, zero], [yes])
    builder.identify_inputs_and_outputs([x], [yes])
    return builder.finish()


def _padding() -> Model:
    builder = ModelBuilder()
    x, y = builder.add_operand(FLOAT, (2,)), builder.add_operand(FLOAT, (2,))
    pads, mode = builder.add_operand(OperandCode.TENSOR_INT32, (1, 2)), builder.add_operand(OperandCode.INT32)
    builder.set_operand_value(pads, [[0, 0]])
    builder.set_operand_value(mode, 0)
    builder.add_operation(OperationCode.MIRROR_PAD, [x, pads, mode], [y])
    builder.identify_inputs_and_outputs([x], [y])
    return builder.finish()


def test_s8_constants_come_first_then_inputs_of_retained_operations_then_what_dropped_ones_made() -> None:
    model = graph([(ABS, ("a",), "t"), (ADD, ("t", "b"), "y")], ["a", "b"], ["y"], {"a": (2,), "t": (2,), "b": (1,), "y": (2,)})
    part = at_level(model, 1)
    assert [o.name for o in part.main.operands] == ["none", "b", "t", "y"]
    assert names(part, part.main.inputs) == ["b", "t"]


def test_s9_inputs_of_equal_type_are_one_operand() -> None:
    model = graph([(ADD, ("a", "b"), "t"), (ABS, ("t",), "u"), (ADD, ("u", "c"), "y")], ["a", "b", "c"], ["y"], {"c": (1,)})
    part = at_level(model, 1)
    first, second = part.main.operations
    assert first.inputs[0] == first.inputs[1] == second.inputs[0]
    assert len(part.main.inputs) == 2
    assert part.main.operands[second.inputs[1]].dims == (1,)


def test_s9_another_shape_or_scale_is_another_operand() -> None:
    builder = ModelBuilder()
    q = OperandCode.TENSOR_QUANT8_ASYMM
    none = builder.add_operand(OperandCode.INT32)
    builder.set_operand_value(none, 0)
    a, b = builder.add_operand(q, (2,), scale=0.5), builder.add_operand(q, (2,), scale=0.25)
    y, x, z = builder.add_operand(q, (2,), scale=1.0), builder.add_operand(FLOAT, (2,)), builder.add_operand(FLOAT, (2,))
    builder.add_operation(ADD, [a, b, none], [y])
    builder.add_operation(EXP, [x], [z])
    builder.identify_inputs_and_outputs([a, b, x], [y, z])
    assert len(at_level(builder.finish(), 1).main.inputs) == 2


def test_s10_what_only_dropped_operations_read_is_an_output_and_what_retained_ones_read_is_not() -> None:
    model = graph(
        [(FLOOR, ("x",), "t"), (ABS, ("t",), "u"), (RELU, ("x",), "v"), (FLOOR, ("v",), "w"), (ADD, ("v", "u"), "y")],
        ["x"],
        ["w", "y"],
        {},
    )
    part = at_level(model, 1)
    outputs = {part.main.operands[i].name for i in part.main.outputs}
    # t is read by ABS alone; v also by operations that stay.
    assert outputs == {"t", "w", "y"}
    both = graph([(FLOOR, ("x",), "t"), (ABS, ("t",), "u"), (RELU, ("t",), "y")], ["x"], ["u", "y"], {})
    part = at_level(both, 1)
    assert {part.main.operands[i].name for i in part.main.outputs} == {"y"}


def test_s10_outputs_that_nobody_reads_stay_temporaries() -> None:
    model = graph([(FLOOR, ("x",), "dead"), (RELU, ("x",), "y"), (ABS, ("x",), "z")], ["x"], ["y", "z"], {})
    part = at_level(model, 1)
    [dead] = [o for o in part.main.operands if o.name == "dead"]
    assert dead.lifetime is Lifetime.TEMPORARY_VARIABLE


def test_s7_a_slice_with_control_flow_left_is_invalid() -> None:
    builder = ModelBuilder()
    x, y, z = (builder.add_operand(FLOAT, (2,)) for _ in range(3))
    condition, body = (builder.add_operand(OperandCode.MODEL) for _ in range(2))
    pads, mode = builder.add_operand(OperandCode.TENSOR_INT32, (1, 2)), builder.add_operand(OperandCode.INT32)
    builder.set_operand_value(pads, [[0, 0]])
    builder.set_operand_value(mode, 0)
    builder.set_operand_value_from_model(condition, _always())
    builder.set_operand_value_from_model(body, unary_chain(FLOOR, dims=(2,)))
    builder.add_operation(WHILE, [condition, body, x], [y])
    builder.add_operation(OperationCode.MIRROR_PAD, [y, pads, mode], [z])
    builder.identify_inputs_and_outputs([x], [z])
    model = builder.finish()
    assert Slices(model).for_device(Driver("level 4", feature_level=4)).model is None
    assert Slices(model).for_device(Driver("level 7", feature_level=7)).model is model


def test_s11_a_slice_without_operations_or_outputs_is_invalid() -> None:
    assert slice_model(unary_chain(ABS), []) is None
    dead = graph([(FLOOR, ("x",), "dead"), (ABS, ("x",), "y")], ["x"], ["y"], {})
    assert Slices(dead).for_device(Driver("old", feature_level=1)).model is None


def test_s12_a_slice_is_not_relaxed_and_names_no_extensions() -> None:
    model = graph([(FLOOR, ("x",), "t"), (ABS, ("t",), "y")], ["x"], ["y"], {})
    part = at_level(model, 1)
    assert model.relaxed
    assert not part.relaxed
    assert part.extensions == {}
    assert part.pools is model.pools
