"""Counterparts of Android's TestValidateOperations.cpp: valid signatures are accepted, each single mutation is refused.

The signatures are written by hand in validate_cases.py; what a mutation may be in spite of its being one (another valid
signature) is listed here by hand too. Neither is read from the declarations that are tested.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from nnbridge.builder import ModelBuilder
from nnbridge.errors import BadDataError
from nnbridge.model import Model
from nnbridge.types import OperandCode, OperationCode
from tests.operations.validate_cases import Signature, signatures

TENSORS = {
    "f": OperandCode.TENSOR_FLOAT32,
    "h": OperandCode.TENSOR_FLOAT16,
    "i": OperandCode.TENSOR_INT32,
    "q": OperandCode.TENSOR_QUANT8_ASYMM,
    "s": OperandCode.TENSOR_QUANT8_ASYMM_SIGNED,
    "b": OperandCode.TENSOR_BOOL8,
    "p": OperandCode.TENSOR_QUANT8_SYMM_PER_CHANNEL,
    "a": OperandCode.TENSOR_QUANT16_ASYMM,
    "m": OperandCode.TENSOR_QUANT16_SYMM,
    "y": OperandCode.TENSOR_QUANT8_SYMM,
}
SCALARS = {
    "I": OperandCode.INT32,
    "F": OperandCode.FLOAT32,
    "H": OperandCode.FLOAT16,
    "B": OperandCode.BOOL,
    "u": OperandCode.UINT32,
}
# Types that no signature has.
ELSEWHERE = {"o": OperandCode.TENSOR_OEM_BYTE}
CODES = {**TENSORS, **SCALARS, **ELSEWHERE}
EVERY = "".join(CODES)
QUANTISED = "qsamy"
SCALE = 1 / 256

# What Android's tests do not try, because it is another valid signature: operation -> input -> types.
ALSO_VALID: dict[str, dict[int, str]] = {
    "LSH_PROJECTION": {1: EVERY},
    "ARGMIN": {0: "fhiqs"},
    "ARGMAX": {0: "fhiqs"},
    "CAST": {0: "fhiqs"},
    "DEQUANTIZE": {0: "qsyp"},
    "RANDOM_MULTINOMIAL": {0: "fh"},
    "AXIS_ALIGNED_BBOX_TRANSFORM": {1: "qs"},
    "QUANTIZE": {0: "fh"},
    "RANK": {0: "".join(TENSORS) + "o"},
}
ALSO_VALID_OUTPUT: dict[str, str] = {"CAST": "fhiq", "DEQUANTIZE": "fh", "QUANTIZE": "qs"}

# Convolutions, whose filter may be quantised as the input or per channel. Android's tests of CONV_2D and GROUPED_CONV_2D leave
# the parameters of the one at the other, and so have it refused for these.
CONVOLUTIONS = ("CONV_2D", "DEPTHWISE_CONV_2D", "GROUPED_CONV_2D", "TRANSPOSE_CONV_2D")
# In the form of this many inputs, this one is the layout or a padding.
LAYOUT_OR_PADDING = {"CONV_2D": (10, 7), "DEPTHWISE_CONV_2D": (11, 8)}

# How many operands more Android's tests try, and how many of them may be valid: an LSTM with 4 more is one with layer norm;
# states may be returned; SPLIT has as many outputs as an input's value says.
INPUTS_MORE, OUTPUTS_MORE = 5, 6
TRIED = {"LSTM": 3}
STATES = {
    "SPLIT": OUTPUTS_MORE,
    "UNIDIRECTIONAL_SEQUENCE_RNN": 1,
    "UNIDIRECTIONAL_SEQUENCE_LSTM": 3,
    "BIDIRECTIONAL_SEQUENCE_RNN": 3,
    "BIDIRECTIONAL_SEQUENCE_LSTM": 5,
}


@dataclass(frozen=True)
class Operand:
    """One operand of a call."""

    letter: str
    dims: tuple[int, ...]


def parsed(text: str) -> Operand:
    """``T[2,3]``, ``T4`` or a scalar."""
    letter, rest = text[0], text[1:].strip("[]")
    if not rest:
        return Operand(letter, ())
    dims = tuple(map(int, rest.split(","))) if text[1] == "[" else (2,) * int(rest)
    return Operand(letter, dims)


def accepted(operation: str, inputs: list[Operand], outputs: list[Operand]) -> bool:
    """True if the operation can be added to a model."""
    builder = ModelBuilder()
    try:
        indexes = [add(builder, operand) for operand in (*inputs, *outputs)]
        builder.add_operation(OperationCode[operation], indexes[: len(inputs)], indexes[len(inputs) :])
    except BadDataError:
        return False
    return True


def add(builder: ModelBuilder, operand: Operand) -> int:
    """The operand in a builder."""
    dims = () if operand.letter in SCALARS else operand.dims
    index = builder.add_operand(CODES[operand.letter], dims, scale=SCALE if operand.letter in QUANTISED else 0.0)
    if operand.letter == "p":
        axis = 3 if len(dims) == 4 and dims[0] == 1 else 0
        builder.set_operand_symm_per_channel_quant_params(index, [0.5] * dims[axis], axis)
    return index


def retyped(operand: Operand, letter: str) -> Operand:
    """The operand with another type; a scalar that becomes a tensor gets one dimension."""
    return Operand(letter, operand.dims or (() if letter in SCALARS else (1,)))


def input_types(signature: Signature) -> Iterator[tuple[int, str]]:
    """Every other type of every input that must be refused."""
    for i, text in enumerate(signature.inputs):
        allowed = ALSO_VALID.get(signature.operation, {}).get(i, "")
        if signature.operation in CONVOLUTIONS and i == 1:
            allowed = {"q": "p", "s": "p", "p": signature.inputs[0][0]}.get(text[0], "")
        if LAYOUT_OR_PADDING.get(signature.operation) == (len(signature.inputs), i):
            allowed = "IB"
        yield from ((i, letter) for letter in CODES if letter != text[0] and letter not in allowed)


def ranks(rule: str, inputs: list[Operand]) -> Iterator[tuple[list[Operand], bool]]:
    """The inputs with the ranks at the ends of a rule and beyond them, and whether those are valid."""
    found = re.fullmatch(r"([\d,]+)(<=|>=|=)(\d+)(?:-(\d+))?", rule)
    assert found is not None, rule
    positions = tuple(map(int, found.group(1).split(",")))
    first, last = int(found.group(3)), int(found.group(4) or found.group(3))
    low = {"<=": 1, ">=": first, "=": first}[found.group(2)]
    high = None if found.group(2) == ">=" else last
    if low == high:
        assert all(len(inputs[i].dims) == low for i in positions), f"{rule}: the signature itself has other ranks"

    def moved(rank: int) -> list[Operand]:
        return [ranked(operand, rank) if i in positions else operand for i, operand in enumerate(inputs)]

    yield from ((moved(rank), True) for rank in sorted({low, low + 1 if high is None else high}))
    if high is not None:
        yield moved(high + 1), False
    if low > 1:
        yield moved(low - 1), False


def ranked(operand: Operand, rank: int) -> Operand:
    """The operand with a rank: further dimensions are 1."""
    return Operand(operand.letter, (operand.dims + (1,) * rank)[:rank])


ROWS = list(signatures())
CASES = [pytest.param(row, id=f"{row.test}-{i}") for i, row in enumerate(ROWS)]


def operands(signature: Signature) -> tuple[list[Operand], list[Operand]]:
    """The signature's operands."""
    return [parsed(o) for o in signature.inputs], [parsed(o) for o in signature.outputs]


@pytest.mark.parametrize("signature", CASES)
def test_the_valid_signature_is_accepted(signature: Signature) -> None:
    assert accepted(signature.operation, *operands(signature))


@pytest.mark.parametrize("signature", CASES)
def test_another_type_of_an_input_is_refused(signature: Signature) -> None:
    inputs, outputs = operands(signature)
    wrong = [
        (i, letter)
        for i, letter in input_types(signature)
        if accepted(signature.operation, [*inputs[:i], retyped(inputs[i], letter), *inputs[i + 1 :]], outputs)
    ]
    assert wrong == []


@pytest.mark.parametrize("signature", CASES)
def test_another_type_of_an_output_is_refused(signature: Signature) -> None:
    inputs, outputs = operands(signature)
    allowed = ALSO_VALID_OUTPUT.get(signature.operation, "")
    wrong = [
        (i, letter)
        for i, letter in itertools.product(range(len(outputs)), CODES)
        if letter != outputs[i].letter and letter not in allowed
        if accepted(signature.operation, inputs, [*outputs[:i], retyped(outputs[i], letter), *outputs[i + 1 :]])
    ]
    assert wrong == []


@pytest.mark.parametrize("signature", CASES)
def test_more_operands_and_none_are_refused(signature: Signature) -> None:
    operation, (inputs, outputs) = signature.operation, operands(signature)
    for more in range(1, TRIED.get(operation, INPUTS_MORE) + 1):
        assert not accepted(operation, inputs + inputs[:1] * more, outputs), f"{more} inputs more"
    for more in range(STATES.get(operation, 0) + 1, OUTPUTS_MORE + 1):
        assert not accepted(operation, inputs, outputs + outputs[:1] * more), f"{more} outputs more"
    assert not accepted(operation, [], outputs)
    assert not accepted(operation, inputs, [])


@pytest.mark.parametrize("signature", [case for case in CASES if case.values[0].ranks])
def test_ranks(signature: Signature) -> None:
    inputs, outputs = operands(signature)
    for rule in signature.ranks.split():
        for moved, valid in ranks(rule, inputs):
            # Without its dimension of channels a filter cannot be quantised by them.
            if valid or not any(was.letter == "p" and is_ != was for was, is_ in zip(inputs, moved, strict=True)):
                assert accepted(signature.operation, moved, outputs) == valid, (rule, moved)


RANKS = [
    ("ExactlyWillReturnSameInputAsValidMutation", "0=3", True, [(2, 2, 2)]),
    ("ExactlyWillReturnTwoInvalidMutationsWithLowerAndHigherRank", "0=3", False, [(2, 2, 2, 1), (2, 2)]),
    ("AtLeastWillReturnTwoValidMutationsAboveThreshold", "0>=1", True, [(2,), (2, 2)]),
    ("AtLeastWillReturnOneInvalidMutationsBelowThreshold", "0>=2", False, [(2,)]),
    ("AtLeastWillReturnNoInvalidMutationsIfThresholdIs1", "0>=1", False, []),
    ("UpToWillReturnUpToTwoValidMutationsBelowThreshold", "0<=3", True, [(2,), (2, 2, 2)]),
    ("UpToWillReturnOneInvalidMutationsAboveThreshold", "0<=3", False, [(2, 2, 2, 1)]),
    ("BetweenWillReturnTwoValidMutationsOnRangeBoundaries", "0=2-4", True, [(2, 2), (2, 2, 2, 1)]),
    ("BetweenWillReturnTwoInvValidMutationsAdjacentToRangeBoundaries", "0=2-4", False, [(2, 2, 2, 1, 1), (2,)]),
    ("BetweenWillReturnOneInvalidMutationsOnlyIfLowerBoundIs1", "0=1-4", False, [(2, 2, 2, 1, 1)]),
]
APPLIES = [
    ("AppliesConstraintToInputsAtGivenInputsToGenerateValidMutations", True, [((0, 0), (2, 2)), ((0, 0, 1), (2, 2, 1))]),
    ("AppliesConstraintToInputsAtGivenInputsToGenerateInvalidMutations", False, [((0,), (2,))]),
]


@pytest.mark.parametrize(("rule", "valid", "expected"), [pytest.param(*rest, id=name) for name, *rest in RANKS])
def test_a_rule_of_ranks_is_tried_at_its_ends_and_beyond(rule: str, valid: bool, expected: list[tuple[int, ...]]) -> None:
    tried = [moved[0].dims for moved, fits in ranks(rule, [Operand("i", (2, 2, 2))]) if fits == valid]
    assert tried == expected


def test_ExactlyWillFailIfValidInputHasInvalidSize() -> None:
    with pytest.raises(AssertionError, match="0=3: the signature itself has other ranks"):
        list(ranks("0=3", [Operand("i", (2, 2))]))


@pytest.mark.parametrize(("valid", "expected"), [pytest.param(*rest, id=name) for name, *rest in APPLIES])
def test_a_rule_of_several_inputs_gives_all_of_them_the_rank_and_leaves_the_others(
    valid: bool, expected: list[tuple[tuple[int, ...], tuple[int, ...]]]
) -> None:
    inputs = [Operand("i", (0, 0)), Operand("i", (1,)), Operand("i", (2, 2))]
    tried = [moved for moved, fits in ranks("0,2>=2", inputs) if fits == valid]
    assert [(first.dims, last.dims) for first, _, last in tried] == expected
    assert [middle for _, middle, _ in tried] == [inputs[1]] * len(expected)


# -- tests of their own ------------------------------------------------------------------------------------------------


def quantised(type: OperandCode, out_scale: float, out_point: int, operation: str, *, rank: int = 4) -> bool:
    """True if PACK or REVERSE is accepted with these output parameters; the input has scale 1/256 and zero point 0."""
    builder = ModelBuilder()
    eight = type != OperandCode.TENSOR_FLOAT32
    dims = (2, 3, 4, 2)[: 3 if operation == "PACK" else 4]
    x = builder.add_operand(type, dims, scale=SCALE if eight else 0)
    second = builder.add_operand(type, dims, scale=SCALE if eight else 0)
    out_dims = ((2, *dims) + (1,) * rank)[:rank] if operation == "PACK" else (dims + (1,) * rank)[:rank]
    y = builder.add_operand(type, out_dims, scale=out_scale if eight else 0, zero_point=out_point if eight else 0)
    if operation == "PACK":
        axis = builder.add_operand(OperandCode.INT32)
        builder.set_operand_value(axis, 0)
        inputs = [axis, x, second]
    else:
        axes = builder.add_operand(OperandCode.TENSOR_INT32, (1,))
        inputs = [x, axes]
    try:
        builder.add_operation(OperationCode[operation], inputs, [y])
    except BadDataError:
        return False
    return True


EIGHT = {"quant8": OperandCode.TENSOR_QUANT8_ASYMM, "quant8_signed": OperandCode.TENSOR_QUANT8_ASYMM_SIGNED}
BAD_PARAMETERS = [
    pytest.param(operation, type, scale, point, id=f"{operation}_{name}_bad_{what}")
    for operation in ("PACK", "REVERSE")
    for name, type in EIGHT.items()
    for what, scale, point in (("scale", 2 * SCALE, 0), ("zeroPoint", SCALE, 1))
]


@pytest.mark.parametrize(("operation", "type", "scale", "point"), BAD_PARAMETERS)
def test_other_parameters_of_the_output_are_refused(operation: str, type: OperandCode, scale: float, point: int) -> None:
    assert not quantised(type, scale, point, operation)


@pytest.mark.parametrize("operation", ["PACK", "REVERSE"], ids=["PACK_quant8_bad_none", "REVERSE_quant8_bad_none"])
def test_the_same_parameters_are_accepted(operation: str) -> None:
    assert quantised(OperandCode.TENSOR_QUANT8_ASYMM, SCALE, 0, operation)


@pytest.mark.parametrize(
    ("operation", "rank", "valid"),
    [
        pytest.param(operation, 4 + step, step == 0, id=f"{operation}_float32_rank_{name}")
        for operation in ("PACK", "REVERSE")
        for step, name in ((-1, "lo"), (0, "good"), (1, "hi"))
    ],
)
def test_the_output_has_the_rank_that_follows_from_the_inputs(operation: str, rank: int, valid: bool) -> None:
    assert quantised(OperandCode.TENSOR_FLOAT32, 0, 0, operation, rank=rank) == valid


def test_MUL_quant8_bad_output_scale() -> None:
    builder = ModelBuilder()
    x, y = (builder.add_operand(OperandCode.TENSOR_QUANT8_ASYMM, (2, 2), scale=0.5) for _ in range(2))
    activation = builder.add_operand(OperandCode.INT32)
    # Android requires the output's scale above the product of the inputs', 0.25.
    out = builder.add_operand(OperandCode.TENSOR_QUANT8_ASYMM, (2, 2), scale=0.25)
    with pytest.raises(BadDataError, match=r"above 0\.25"):
        builder.add_operation(OperationCode.MUL, [x, y, activation], [out])


def identity(dims: tuple[int, ...], kind: OperandCode = OperandCode.TENSOR_FLOAT32, code: str = "RELU") -> Model:
    """A model of one element-wise operation."""
    builder = ModelBuilder()
    x, y = (builder.add_operand(kind, dims) for _ in range(2))
    builder.add_operation(OperationCode[code], [x], [y])
    builder.identify_inputs_and_outputs([x], [y])
    return builder.finish()


def condition(dims: tuple[int, ...], result: tuple[int, ...] = (1,)) -> Model:
    """A model that answers with a boolean: whether its input equals itself."""
    builder = ModelBuilder()
    x = builder.add_operand(OperandCode.TENSOR_FLOAT32, dims)
    y = builder.add_operand(OperandCode.TENSOR_BOOL8, result)
    builder.add_operation(OperationCode.EQUAL, [x, x], [y])
    builder.identify_inputs_and_outputs([x], [y])
    return builder.finish()


def branches(then: Model, otherwise: Model, dims: tuple[int, ...], chooser: tuple[int, ...] = (1,)) -> bool:
    """True if IF is accepted with these branches."""
    builder = ModelBuilder()
    flag = builder.add_operand(OperandCode.TENSOR_BOOL8, chooser)
    models = [builder.add_operand(OperandCode.MODEL) for _ in range(2)]
    for index, model in zip(models, (then, otherwise), strict=True):
        builder.set_operand_value_from_model(index, model)
    x, y = (builder.add_operand(OperandCode.TENSOR_FLOAT32, dims) for _ in range(2))
    try:
        builder.add_operation(OperationCode.IF, [flag, *models, x], [y])
    except BadDataError:
        return False
    return True


def loop(test: Model, body: Model, dims: tuple[int, ...]) -> bool:
    """True if WHILE is accepted with these models."""
    builder = ModelBuilder()
    models = [builder.add_operand(OperandCode.MODEL) for _ in range(2)]
    for index, model in zip(models, (test, body), strict=True):
        builder.set_operand_value_from_model(index, model)
    x, y = (builder.add_operand(OperandCode.TENSOR_FLOAT32, dims) for _ in range(2))
    try:
        builder.add_operation(OperationCode.WHILE, [*models, x], [y])
    except BadDataError:
        return False
    return True


def test_IF() -> None:
    good = identity((2, 3))
    assert branches(good, good, (2, 3))
    assert branches(identity((0, 3)), good, (2, 3))
    assert not branches(identity((2, 4)), good, (2, 3))
    assert not branches(good, identity((2, 4)), (2, 3))
    assert not branches(good, identity((2, 3), OperandCode.TENSOR_INT32, "ABS"), (2, 3))
    assert not branches(good, good, (2, 3), chooser=(2,))


def test_WHILE() -> None:
    good, body = condition((1,)), identity((1,))
    assert loop(good, body, (1,))
    assert not loop(identity((1,)), body, (1,))
    assert not loop(condition((2,), (2,)), identity((2,)), (2,))
    assert not loop(good, identity((3,)), (1,))
    assert not loop(condition((3,), (3,)), body, (1,))


ANDROIDS = """
ARGMIN ARGMAX DEQUANTIZE EXPAND_DIMS GATHER QUANTIZE_float16 QUANTIZE_float32 QUANTIZED_16BIT_LSTM SPLIT TILE TOPK_V2
ADD_float16 ADD_float32 ADD_quant8 ADD_quant8_signed ADD_int32 MUL_float16 MUL_float32 MUL_quant8 MUL_quant8_signed
MUL_int32 SUB_float16 SUB_float32 SUB_quant8 SUB_quant8_signed SUB_int32 DIV_float16 DIV_float32 DIV_int32
MUL_quant8_bad_output_scale MAXIMUM_float16 MAXIMUM_float32 MAXIMUM_int32 MAXIMUM_quant8 MAXIMUM_quant8signed
MINIMUM_float16 MINIMUM_float32 MINIMUM_int32 MINIMUM_quant8 MINIMUM_quant8signed ABS_float16 ABS_float32 ABS_int32
EXP_float16 EXP_float32 LOG_float16 LOG_float32 RSQRT_float16 RSQRT_float32 RSQRT_quant8 RSQRT_quant8_signed SIN_float16
SIN_float32 SQRT_float16 SQRT_float32 NEG_float16 NEG_float32 NEG_int32 FLOOR_float16 FLOOR_float32 LOGICAL_NOT_bool
TANH_float16 TANH_float32 TANH_quant8 TANH_quant8_signed RELU_float16 RELU1_float16 RELU6_float16 RELU_float32
RELU1_float32 RELU6_float32 RELU_quant8 RELU1_quant8 RELU6_quant8 RELU_quant8_signed RELU1_quant8_signed
RELU6_quant8_signed LOGISTIC_float16 LOGISTIC_float32 LOGISTIC_quant8 LOGISTIC_quant8_signed HARD_SWISH_float16
HARD_SWISH_float32 HARD_SWISH_quant8 HARD_SWISH_quant8_signed ELU_float16 ELU_float32 RESHAPE LOG_SOFTMAX_float16
LOG_SOFTMAX_float32 MEAN_float16 MEAN_float32 MEAN_quant8 MEAN_quant8_signed PAD MIRROR_PAD PAD_V2 SOFTMAX_float16
SOFTMAX_float32 SOFTMAX_quant8 SOFTMAX_quant8_signed AVERAGE_POOL_2D_float16 AVERAGE_POOL_2D_float32
AVERAGE_POOL_2D_quant8 AVERAGE_POOL_2D_quant8_signed MAX_POOL_2D_float32 MAX_POOL_2D_float16 MAX_POOL_2D_quant8
MAX_POOL_2D_quant8_signed L2_POOL_2D_float16 L2_POOL_2D_float32 SPACE_TO_DEPTH_float16 DEPTH_TO_SPACE_float16
SPACE_TO_DEPTH_float32 DEPTH_TO_SPACE_float32 SPACE_TO_DEPTH_quant8 DEPTH_TO_SPACE_quant8 SPACE_TO_DEPTH_quant8signed
DEPTH_TO_SPACE_quant8signed SPACE_TO_BATCH_ND_float16 BATCH_TO_SPACE_ND_float16 SPACE_TO_BATCH_ND_float32
BATCH_TO_SPACE_ND_float32 SPACE_TO_BATCH_ND_quant8 BATCH_TO_SPACE_ND_quant8 SPACE_TO_BATCH_ND_quant8signed
BATCH_TO_SPACE_ND_quant8signed TRANSPOSE_float16 SQUEEZE_float16 TRANSPOSE_float32 SQUEEZE_float32 TRANSPOSE_quant8
TRANSPOSE_quant8signed SQUEEZE_quant8 SQUEEZE_quant8_signed CONV_2D_float16 CONV_2D_float32 CONV_2D_quant8
CONV_2D_quant8_per_channel CONV_2D_quant8_signed CONV_2D_quant8_signed_per_channel DEPTHWISE_CONV_2D_float32
DEPTHWISE_CONV_2D_float16 DEPTHWISE_CONV_2D_quant8 DEPTHWISE_CONV_2D_quant8_per_channel DEPTHWISE_CONV_2D_quant8_signed
DEPTHWISE_CONV_2D_quant8_signed_per_channel FULLY_CONNECTED_float16 FULLY_CONNECTED_float32 FULLY_CONNECTED_quant8
FULLY_CONNECTED_quant8_signed CONCATENATION_float16 CONCATENATION_float32 CONCATENATION_quant8
CONCATENATION_quant8_signed RESIZE_BILINEAR EMBEDDING_LOOKUP_float32 EMBEDDING_LOOKUP_int32 EMBEDDING_LOOKUP_quant8
EMBEDDING_LOOKUP_quant8_signed HASHTABLE_LOOKUP_float32 HASHTABLE_LOOKUP_int32 HASHTABLE_LOOKUP_quant8
LSH_PROJECTION_float16 LSH_PROJECTION_float32 LSH_PROJECTION_quant8 LSH_PROJECTION_int32 LSTM_float32 LSTM_V1_2
LSTM_BIDIRECTIONAL_SEQUENCE RANDOM_MULTINOMIAL_float16 RANDOM_MULTINOMIAL_float32 RNN_float16 RNN_float32 SVDF_float32
SVDF_float16 STRIDED_SLICE_float32 STRIDED_SLICE_float16 STRIDED_SLICE_quant8 STRIDED_SLICE_quant8_signed
ROI_ALIGN_float16 ROI_ALIGN_float32 ROI_ALIGN_quant8 ROI_ALIGN_quant8signed ROI_POOLING_float16 ROI_POOLING_float32
ROI_POOLING_quant8 ROI_POOLING_quant8signed HEATMAP_MAX_KEYPOINT_float16 HEATMAP_MAX_KEYPOINT_float32
HEATMAP_MAX_KEYPOINT_quant HEATMAP_MAX_KEYPOINT_quant_signed INSTANCE_NORMALIZATION GROUPED_CONV_2D_float16
GROUPED_CONV_2D_float32 GROUPED_CONV_2D_quant8 GROUPED_CONV_2D_quant8_per_channel GROUPED_CONV_2D_quant8signed
GROUPED_CONV_2D_quant8signed_per_channel TRANSPOSE_CONV_2D_float16 TRANSPOSE_CONV_2D_float32 TRANSPOSE_CONV_2D_quant8
TRANSPOSE_CONV_2D_quant8_per_channel TRANSPOSE_CONV_2D_quant8_signed TRANSPOSE_CONV_2D_quant8_signed_per_channel
CHANNEL_SHUFFLE_float16 CHANNEL_SHUFFLE_float32 CHANNEL_SHUFFLE_quant8 CHANNEL_SHUFFLE_quant8signed
DETECTION_POSTPROCESSING PRELU_float16 PRELU_float32 PRELU_quant8 PRELU_quant8signed L2_NORMALIZATION_float16
L2_NORMALIZATION_float32 L2_NORMALIZATION_quant8 L2_NORMALIZATION_quant8_signed LOCAL_RESPONSE_NORMALIZATION_float16
LOCAL_RESPONSE_NORMALIZATION_float32 AXIS_ALIGNED_BBOX_TRANSFORM_float16 AXIS_ALIGNED_BBOX_TRANSFORM_float32
AXIS_ALIGNED_BBOX_TRANSFORM_quant AXIS_ALIGNED_BBOX_TRANSFORM_quant_signed SLICE_float32 SLICE_int32 SLICE_uint8
SLICE_int8 SLICE_float16 LOGICAL_AND LOGICAL_OR LESS LESS_EQUAL EQUAL NOT_EQUAL GREATER GREATER_EQUAL REDUCE_PROD
REDUCE_SUM REDUCE_MAX REDUCE_MIN REDUCE_ANY REDUCE_ALL SELECT POW BOX_WITH_NMS_LIMIT_float16 BOX_WITH_NMS_LIMIT_float32
BOX_WITH_NMS_LIMIT_quant BOX_WITH_NMS_LIMIT_quant_signed CAST CAST_identity BIDIRECTIONAL_SEQUENCE_RNN_float32
BIDIRECTIONAL_SEQUENCE_RNN_float16 UNIDIRECTIONAL_SEQUENCE_RNN_float32 UNIDIRECTIONAL_SEQUENCE_RNN_float16
UNIDIRECTIONAL_SEQUENCE_LSTM_float32 UNIDIRECTIONAL_SEQUENCE_LSTM_float16 GENERATE_PROPOSALS_float16
GENERATE_PROPOSALS_float32 GENERATE_PROPOSALS_quant GENERATE_PROPOSALS_quant_signed RESIZE_NEAREST_NEIGHBOR
RESIZE_NEAREST_NEIGHBOR_float16 RESIZE_NEAREST_NEIGHBOR_quant8 RESIZE_NEAREST_NEIGHBOR_quant8_signed QUANTIZED_LSTM
FILL_float16 FILL_float32 FILL_int32 RANK_float16 RANK_float32 RANK_int32 RANK_quant8 RANK_quant8_signed
BATCH_MATMUL_float16 BATCH_MATMUL_float32 BATCH_MATMUL_int32 BATCH_MATMUL_quant8_signed IF WHILE PACK_float16
PACK_float32 PACK_quant8 PACK_quant8_signed PACK_int32 PACK_quant8_bad_none PACK_quant8_bad_zeroPoint
PACK_quant8_bad_scale PACK_quant8_signed_bad_zeroPoint PACK_quant8_signed_bad_scale PACK_float32_rank_good
PACK_float32_rank_lo PACK_float32_rank_hi REVERSE_float16 REVERSE_float32 REVERSE_quant8 REVERSE_quant8_signed
REVERSE_int32 REVERSE_quant8_bad_none REVERSE_quant8_bad_zeroPoint REVERSE_quant8_bad_scale
REVERSE_quant8_signed_bad_zeroPoint REVERSE_quant8_signed_bad_scale REVERSE_float32_rank_good REVERSE_float32_rank_lo
REVERSE_float32_rank_hi
"""
# The names of Android's tests of operations; 13 more test the generator of ranks.
OWN = {"MUL_quant8_bad_output_scale", "IF", "WHILE"}
OWN |= {str(case.id) for case in BAD_PARAMETERS}
OWN |= {f"{operation}_{rest}" for operation in ("PACK", "REVERSE") for rest in ("quant8_bad_none", "float32_rank_good")}
OWN |= {f"{operation}_float32_rank_{end}" for operation in ("PACK", "REVERSE") for end in ("lo", "hi")}


def test_each_of_androids_tests_has_a_counterpart() -> None:
    assert {row.test for row in ROWS} | OWN == set(ANDROIDS.split())
    generator = {name for name, *_ in (*RANKS, *APPLIES)} | {"ExactlyWillFailIfValidInputHasInvalidSize"}
    assert len(set(ANDROIDS.split())) + len(generator) == 319
