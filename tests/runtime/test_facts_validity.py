"""Validity of a finished model: facts V1 to V35 of Android's runtime, by number (V36 to V38 are requests)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from nnbridge.builder import ModelBuilder
from nnbridge.errors import BadDataError
from nnbridge.extensions import TYPES, Extension, ExtensionOperandType
from nnbridge.model import ChannelQuant, Location, Model, Operand, Operation, Pool, Subgraph
from nnbridge.operations.validation import validate_model
from nnbridge.types import Lifetime, OperandCode, OperationCode
from tests.graphs import FLOAT, unary_chain

FLOOR, IF, WHILE, OEM = OperationCode.FLOOR, OperationCode.IF, OperationCode.WHILE, OperationCode.OEM_OPERATION
BOOL8, MODEL = OperandCode.TENSOR_BOOL8, OperandCode.MODEL
EXTENSION = "com.example.validity"
TYPES.register(Extension(EXTENSION, (ExtensionOperandType(0, False, 8), ExtensionOperandType(1, True, 8))))
TENSOR64 = TYPES.code(EXTENSION, 1)

PLAIN = unary_chain(FLOOR)


def refused(model: Model) -> str:
    """The reason why a model is not valid; empty if it is."""
    reason = validate_model(model).reason
    return "" if reason is None else str(reason)


def level(model: Model) -> int:
    verdict = validate_model(model)
    assert verdict.reason is None, verdict.reason
    return verdict.level


def with_operand(operand: Operand, model: Model = PLAIN, **changes: Any) -> Model:
    """The model and one operand more."""
    main = replace(model.main, operands=(*model.main.operands, operand))
    return replace(model, main=main, **changes)


def constant(type: int = FLOAT, dims: tuple[int, ...] = (1,), length: int = 4, **fields: Any) -> Operand:
    return Operand(type, dims, lifetime=Lifetime.CONSTANT_COPY, location=Location(0, 0, length), **fields)


def test_the_model_that_the_others_are_made_of_is_valid() -> None:
    assert refused(PLAIN) == ""
    assert refused(with_operand(constant(), operand_values=bytes(4))) == ""


@pytest.mark.parametrize("prefixes", [{EXTENSION: 7, "com.example.other": 7}])
def test_v1_each_extension_has_a_prefix_of_its_own(prefixes: dict[str, int]) -> None:
    assert "prefix" in refused(replace(PLAIN, extensions=prefixes))


@pytest.mark.parametrize(
    ("name", "valid"),
    [
        ("com.example", True),
        ("a.b_1.c", True),
        (".", True),
        ("example", False),
        ("", False),
        ("com.Example", False),
        ("a-b.c", False),
    ],
)
def test_v2_names_of_extensions(name: str, valid: bool) -> None:
    assert (refused(replace(PLAIN, extensions={name: 7})) == "") is valid


def body_that_uses(offset: int) -> Subgraph:
    """x → y, with a MODEL operand that refers to a subgraph."""
    model = Operand(MODEL, lifetime=Lifetime.SUBGRAPH, location=Location(offset=offset))
    return replace(PLAIN.main, operands=(*PLAIN.main.operands, model))


@pytest.mark.parametrize(
    ("bodies", "valid"), [((1, 2, None), True), ((0,), False), ((1, 0), False), ((None, 2, 1), False), ((2, 2, None), True)]
)
def test_v3_subgraphs_are_not_in_themselves(bodies: tuple[int | None, ...], valid: bool) -> None:
    referenced = tuple(PLAIN.main if offset is None else body_that_uses(offset) for offset in bodies)
    assert ("cycle" not in refused(replace(PLAIN, referenced=referenced))) is valid


@pytest.mark.parametrize("empty", [Subgraph((), (), (), ()), replace(PLAIN.main, operations=())])
def test_v4_a_subgraph_has_operands_and_operations(empty: Subgraph) -> None:
    assert refused(replace(PLAIN, main=empty))
    assert refused(replace(PLAIN, referenced=(empty,)))


def test_v4_there_need_be_no_inputs_and_outputs() -> None:
    builder = ModelBuilder()
    x, y = builder.add_operand(FLOAT, (2,)), builder.add_operand(FLOAT, (2,))
    builder.set_operand_value(x, bytes(8))
    builder.add_operation(FLOOR, [x], [y])
    builder.identify_inputs_and_outputs([], [])
    assert refused(builder.finish()) == ""


@pytest.mark.parametrize("code", [16, 9999, 10002, TYPES.code(EXTENSION, 2)])
def test_v5_types_are_known(code: int) -> None:
    assert refused(with_operand(constant(code, ()), operand_values=bytes(4)))


@pytest.mark.parametrize(
    "operand", [Operand(MODEL, lifetime=Lifetime.NO_VALUE), Operand(FLOAT, (2,), lifetime=Lifetime.SUBGRAPH), constant(MODEL, ())]
)
def test_v6_models_are_subgraphs_and_only_they(operand: Operand) -> None:
    assert "MODEL" in refused(with_operand(operand, referenced=(PLAIN.main,), operand_values=bytes(4)))


@pytest.mark.parametrize("code", [c for c in OperandCode if not c.name.startswith("TENSOR_")])
def test_v7_scalars_have_no_dimensions(code: int) -> None:
    assert "dimensions" in refused(with_operand(Operand(code, (1,), lifetime=Lifetime.NO_VALUE)))


@pytest.mark.parametrize("dims", [(), (0,), (2, 0)])
@pytest.mark.parametrize("lifetime", [Lifetime.CONSTANT_COPY, Lifetime.CONSTANT_REFERENCE])
def test_v8_constants_have_known_sizes_above_0(dims: tuple[int, ...], lifetime: Lifetime) -> None:
    found = replace(constant(dims=dims), lifetime=lifetime)
    assert refused(with_operand(found, operand_values=bytes(4), pools=(Pool.of(bytes(4)),)))


@pytest.mark.parametrize(("dims", "needs"), [((0, 3), 1), ((), 3)])
def test_v9_an_unknown_rank_needs_level_3(dims: tuple[int, ...], needs: int) -> None:
    assert level(unary_chain(OperationCode.RELU, dims=dims)) == needs


@pytest.mark.parametrize(("scale", "zero_point", "valid"), [(0.5, 0, True), (-0.5, 0, False), (0.5, 1, False)])
def test_v10_v11_int32_tensors_may_have_a_scale_alone(scale: float, zero_point: int, valid: bool) -> None:
    builder = ModelBuilder()
    x, y = (builder.add_operand(FLOAT, (2,)) for _ in "xy")
    c = builder.add_operand(OperandCode.TENSOR_INT32, (2,), scale=scale, zero_point=zero_point)
    builder.set_operand_value(c, bytes(8))
    builder.add_operation(FLOOR, [x], [y])
    builder.identify_inputs_and_outputs([x], [y])
    if valid:
        assert len(builder.finish().main.operations) == 1
        return
    with pytest.raises(BadDataError, match="zero point 0"):
        builder.finish()


@pytest.mark.parametrize("code", [c for c in OperandCode if c.name.startswith("TENSOR_QUANT") and "CHANNEL" not in c.name])
def test_v10_quantised_tensors_have_a_scale(code: int) -> None:
    assert "scale" in refused(with_operand(Operand(code, (2,), 0.0, lifetime=Lifetime.NO_VALUE)))


@pytest.mark.parametrize("code", [OperandCode.OEM_SCALAR, OperandCode.TENSOR_OEM_BYTE])
def test_v12_v14_oem_types_are_not_checked(code: int) -> None:
    dims = () if code == OperandCode.OEM_SCALAR else (9,)
    odd = constant(code, dims, 3, scale=-1.0, zero_point=-999)
    assert refused(with_operand(odd, operand_values=bytes(4))) == ""


SCALES = ChannelQuant((1.0,), 0)


@pytest.mark.parametrize(
    ("operand", "valid"),
    [
        (Operand(OperandCode.TENSOR_QUANT8_SYMM_PER_CHANNEL, (1,), channel_quant=SCALES, lifetime=Lifetime.NO_VALUE), True),
        (Operand(OperandCode.TENSOR_QUANT8_SYMM_PER_CHANNEL, (1,), lifetime=Lifetime.NO_VALUE), False),
        (Operand(FLOAT, (1,), channel_quant=SCALES, lifetime=Lifetime.NO_VALUE), False),
        (Operand(TENSOR64, (1,), channel_quant=SCALES, lifetime=Lifetime.NO_VALUE), False),
        (Operand(TENSOR64, (1,), extension_data=b"data", lifetime=Lifetime.NO_VALUE), True),
        (Operand(FLOAT, (1,), extension_data=b"data", lifetime=Lifetime.NO_VALUE), False),
    ],
)
def test_v13_who_has_extra_parameters(operand: Operand, valid: bool) -> None:
    assert (refused(with_operand(operand)) == "") is valid


@pytest.mark.parametrize(("dims", "length", "valid"), [((1,), 4, True), ((1,), 3, False), ((2,), 4, False)])
def test_v14_the_length_is_that_of_the_dimensions(dims: tuple[int, ...], length: int, valid: bool) -> None:
    assert (refused(with_operand(constant(dims=dims, length=length), operand_values=bytes(8))) == "") is valid


@pytest.mark.parametrize(
    ("lifetime", "place", "valid"),
    [
        (Lifetime.CONSTANT_COPY, (0, 4, 4), True),
        (Lifetime.CONSTANT_COPY, (0, 5, 4), False),
        (Lifetime.CONSTANT_COPY, (1, 0, 4), False),
        (Lifetime.CONSTANT_REFERENCE, (0, 12, 4), True),
        (Lifetime.CONSTANT_REFERENCE, (0, 13, 4), False),
        (Lifetime.CONSTANT_REFERENCE, (1, 0, 4), False),
        (Lifetime.NO_VALUE, (0, 0, 0), True),
        (Lifetime.NO_VALUE, (0, 0, 4), False),
        (Lifetime.NO_VALUE, (0, 4, 0), False),
    ],
)
def test_v15_places_lie_inside_and_what_has_no_value_has_none(
    lifetime: Lifetime, place: tuple[int, int, int], valid: bool
) -> None:
    operand = Operand(FLOAT, (1,), lifetime=lifetime, location=Location(*place))
    assert (refused(with_operand(operand, operand_values=bytes(8), pools=(Pool.of(bytes(16)),))) == "") is valid


@pytest.mark.parametrize(
    ("index", "place", "valid"), [(0, {}, True), (1, {}, False), (0, {"length": 4}, False), (0, {"pool": 1}, False)]
)
def test_v16_a_models_place_is_the_index_of_a_subgraph(index: int, place: dict[str, int], valid: bool) -> None:
    operand = Operand(MODEL, lifetime=Lifetime.SUBGRAPH, location=Location(offset=index, **place))
    assert (refused(with_operand(operand, referenced=(PLAIN.main,))) == "") is valid


@pytest.mark.parametrize(("inputs", "outputs"), [((2,), (1,)), ((0,), (2,)), ((-1,), (1,))])
def test_v18_operations_refer_to_operands(inputs: tuple[int, ...], outputs: tuple[int, ...]) -> None:
    broken = replace(PLAIN.main, operations=(Operation(FLOOR, inputs, outputs),))
    assert "operand indexes below 2" in refused(replace(PLAIN, main=broken))


def unary_of_any(code: int, type: int, dims: tuple[int, ...] = (2,)) -> Model:
    builder = ModelBuilder()
    x, y = builder.add_operand(type, dims), builder.add_operand(type, dims)
    builder.add_operation(code, [x], [y])
    builder.identify_inputs_and_outputs([x], [y])
    return builder.finish()


@pytest.mark.parametrize(
    ("code", "type", "needs"),
    [
        (OEM, OperandCode.TENSOR_OEM_BYTE, 1),
        (OEM, OperandCode.TENSOR_FLOAT16, 3),
        (TYPES.code(EXTENSION, 9), FLOAT, 3),
        (OEM, TENSOR64, 3),
        (FLOOR, FLOAT, 1),
        (FLOOR, OperandCode.TENSOR_FLOAT16, 3),
    ],
)
def test_v19_v20_levels_are_the_highest_of_operation_and_operands(code: int, type: int, needs: int) -> None:
    assert level(unary_of_any(code, type)) == needs


def interface(inputs: tuple[int, ...], outputs: tuple[int, ...]) -> Model:
    return replace(PLAIN, main=replace(PLAIN.main, inputs=inputs, outputs=outputs))


@pytest.mark.parametrize(
    ("inputs", "outputs"), [((0, 0), (1,)), ((0,), (1, 1)), ((0, 2), (1,)), ((), (1,)), ((0,), ()), ((1,), (0,)), ((0,), (0,))]
)
def test_v21_v22_lists_and_lifetimes_agree(inputs: tuple[int, ...], outputs: tuple[int, ...]) -> None:
    assert refused(interface(inputs, outputs))


def test_v23_operations_stand_in_run_order() -> None:
    chain = unary_chain(FLOOR, FLOOR)
    assert refused(chain) == ""
    assert refused(replace(chain, main=replace(chain.main, operations=chain.main.operations[::-1])))


@pytest.mark.parametrize("output", [0, 2])
def test_v24_inputs_and_constants_are_not_written(output: int) -> None:
    model = with_operand(constant(dims=(1,)), operand_values=bytes(4))
    operations = (*model.main.operations, Operation(FLOOR, (0,), (output,)))
    assert "written once" in refused(replace(model, main=replace(model.main, operations=operations)))


def test_v25_nothing_is_left_without_a_writer() -> None:
    assert "that writes it" in refused(with_operand(Operand(FLOAT, (2,))))


def test_v26_results_that_nobody_reads_are_no_fault() -> None:
    builder = ModelBuilder()
    x, y, dead = (builder.add_operand(FLOAT, (2,)) for _ in range(3))
    builder.add_operation(FLOOR, [x], [dead])
    builder.add_operation(FLOOR, [x], [y])
    builder.identify_inputs_and_outputs([x], [y])
    assert len(builder.finish().main.operations) == 2


def test_v27_relaxation_needs_no_level() -> None:
    assert level(unary_chain(FLOOR, relaxed=True)) == level(PLAIN) == 1


def test_v28_referenced_subgraphs_need_level_4() -> None:
    assert level(replace(PLAIN, referenced=(PLAIN.main,))) == 4


# -- control flow -----------------------------------------------------------------------------------------------------


def model_of(*dims: tuple[int, ...], type: int = FLOAT, outputs: int = 1) -> Model:
    """As many inputs as dimensions; the outputs are FLOOR of the first."""
    builder = ModelBuilder()
    inputs = [builder.add_operand(type, d) for d in dims]
    made = [builder.add_operand(type, dims[0]) for _ in range(outputs)]
    for output in made:
        builder.add_operation(OEM, inputs[:1], [output])
    builder.identify_inputs_and_outputs(inputs, made)
    return builder.finish()


def if_of(
    then: Model, otherwise: Model, *, flag: tuple[int, tuple[int, ...]] = (BOOL8, (1,)), dims: tuple[int, ...] = (2,)
) -> None:
    """Add an IF of one input and one output."""
    builder = ModelBuilder()
    condition, a, b = builder.add_operand(*flag), builder.add_operand(MODEL), builder.add_operand(MODEL)
    builder.set_operand_value_from_model(a, then)
    builder.set_operand_value_from_model(b, otherwise)
    x, y = builder.add_operand(FLOAT, dims), builder.add_operand(FLOAT, dims)
    builder.add_operation(IF, [condition, a, b, x], [y])


RIGHT = model_of((2,))


@pytest.mark.parametrize(
    "flag", [(BOOL8, ()), (BOOL8, (0,)), (BOOL8, (2,)), (BOOL8, (1, 1)), (FLOAT, (1,)), (OperandCode.BOOL, ())]
)
def test_v29_the_condition_is_one_boolean_of_known_shape(flag: tuple[int, tuple[int, ...]]) -> None:
    with pytest.raises(BadDataError):
        if_of(RIGHT, RIGHT, flag=flag)


@pytest.mark.parametrize(
    "wrong", [model_of((2,), (2,)), model_of((2,), outputs=2), model_of((3,)), model_of((2,), type=OperandCode.TENSOR_FLOAT16)]
)
def test_v30_branches_take_and_give_what_the_operation_does(wrong: Model) -> None:
    if_of(RIGHT, RIGHT)
    for then, otherwise in ((wrong, RIGHT), (RIGHT, wrong)):
        with pytest.raises(BadDataError):
            if_of(then, otherwise)


@pytest.mark.parametrize(
    ("outer", "inner", "fits"),
    [((2,), (0,), True), ((0,), (2,), True), ((), (2,), True), ((2,), (), True), ((2, 0), (0, 3), True), ((2, 1), (0,), False)],
)
def test_v31_unknown_dimensions_and_ranks_fit_any(outer: tuple[int, ...], inner: tuple[int, ...], fits: bool) -> None:
    body = model_of(inner)
    if fits:
        if_of(body, body, dims=outer)
        return
    with pytest.raises(BadDataError):
        if_of(body, body, dims=outer)


def test_v31_quantisation_is_compared() -> None:
    builder = ModelBuilder()
    x, y = (builder.add_operand(OperandCode.TENSOR_QUANT8_ASYMM, (2,), scale=0.5) for _ in "xy")
    builder.add_operation(OEM, [x], [y])
    builder.identify_inputs_and_outputs([x], [y])
    body = builder.finish()
    for scale, point, fits in ((0.5, 0, True), (0.25, 0, False), (0.5, 1, False)):
        outer = ModelBuilder()
        flag, a, b = outer.add_operand(BOOL8, (1,)), outer.add_operand(MODEL), outer.add_operand(MODEL)
        for operand in (a, b):
            outer.set_operand_value_from_model(operand, body)
        x, y = (outer.add_operand(OperandCode.TENSOR_QUANT8_ASYMM, (2,), scale=scale, zero_point=point) for _ in "xy")
        if fits:
            outer.add_operation(IF, [flag, a, b, x], [y])
            continue
        with pytest.raises(BadDataError):
            outer.add_operation(IF, [flag, a, b, x], [y])


def condition(*dims: tuple[int, ...], answer: tuple[int, tuple[int, ...]] = (BOOL8, (1,)), answers: int = 1) -> Model:
    builder = ModelBuilder()
    inputs = [builder.add_operand(FLOAT, d) for d in dims]
    made = [builder.add_operand(*answer) for _ in range(answers)]
    for output in made:
        builder.add_operation(OEM, inputs, [output])
    builder.identify_inputs_and_outputs(inputs, made)
    return builder.finish()


def while_of(test: Model, body: Model, values: tuple[tuple[int, ...], ...], outputs: tuple[tuple[int, ...], ...]) -> ModelBuilder:
    builder = ModelBuilder()
    a, b = builder.add_operand(MODEL), builder.add_operand(MODEL)
    builder.set_operand_value_from_model(a, test)
    builder.set_operand_value_from_model(b, body)
    given = [builder.add_operand(FLOAT, d) for d in values]
    made = [builder.add_operand(FLOAT, d) for d in outputs]
    builder.add_operation(WHILE, [a, b, *given], made)
    builder.identify_inputs_and_outputs(given, made)
    return builder


TWO = ((2,), (2,))


@pytest.mark.parametrize(("made", "outputs"), [(1, 1), (2, 1), (2, 2)])
def test_v32_a_body_gives_the_outputs_and_then_state(made: int, outputs: int) -> None:
    assert len(while_of(condition(*TWO), model_of(*TWO, outputs=made), TWO, TWO[:outputs]).finish().referenced) == 2


@pytest.mark.parametrize(
    ("test", "body"),
    [
        (condition((2,)), model_of(*TWO)),
        (condition(*TWO, (2,)), model_of(*TWO)),
        (condition(*TWO, answers=2), model_of(*TWO)),
        (condition(*TWO, answer=(FLOAT, (1,))), model_of(*TWO)),
        (condition(*TWO, answer=(BOOL8, (2,))), model_of(*TWO)),
        (condition(*TWO, answer=(BOOL8, ())), model_of(*TWO)),
        (condition(*TWO), model_of((2,))),
        (condition(*TWO), model_of(*TWO, outputs=3)),
        (condition((2,), (3,)), model_of(*TWO)),
        (condition(*TWO), model_of((2,), (3,))),
        (condition(*TWO), model_of((3,), (3,))),
    ],
)
def test_v33_v34_condition_and_body_fit_the_values(test: Model, body: Model) -> None:
    with pytest.raises(BadDataError):
        while_of(test, body, TWO, TWO[:1])


def test_v33_a_body_has_at_least_the_outputs() -> None:
    with pytest.raises(BadDataError):
        while_of(condition(*TWO), model_of(*TWO, outputs=1), TWO, TWO)


@pytest.mark.parametrize(("dims", "runtime_only"), [((2,), False), ((0,), True), ((), True)])
def test_v35_loops_over_unknown_sizes_are_the_runtimes(dims: tuple[int, ...], runtime_only: bool) -> None:
    model = while_of(condition(dims), model_of(dims), (dims,), (dims,)).finish()
    assert validate_model(model).runtime_only is runtime_only
