"""Rules of operations at their boundaries: what is refused by one step too many, and what is still accepted."""

from __future__ import annotations

import numpy as np
import pytest

from nnbridge.builder import ModelBuilder
from nnbridge.errors import BadDataError, OpFailedError
from nnbridge.operations import definition
from nnbridge.operations.call import Arg
from nnbridge.operations.numerics import Numerics
from nnbridge.types import OperandCode, OperationCode
from tests.operations.calls import FLOAT, U8, integers, output, run, scalar, tensor

Op, T = OperationCode, OperandCode


def ones(*dims: int) -> Arg:
    return tensor(np.ones(dims))


def real(value: float) -> Arg:
    return scalar(value, T.FLOAT32)


def whole(*values: int) -> list[Arg]:
    return [scalar(value) for value in values]


def regions(image: int) -> list[Arg]:
    """An image of 2 x 2, a region of it, and the number of its image."""
    return [ones(1, 2, 2, 1), tensor([[0, 0, 1, 1]]), integers([image])]


def aligned(scale: float) -> list[Arg]:
    """ROI_ALIGN of one sample with an 8-bit image of this scale."""
    rois = tensor([[0, 0, 8, 8]], T.TENSOR_QUANT16_ASYMM, scale=0.125)
    sizes = [*whole(1, 1), real(1), real(1), *whole(1, 1), scalar(False, T.BOOL)]
    return [tensor(np.ones((1, 2, 2, 1)), U8, scale=scale), rois, integers([0]), *sizes]


REFUSED: dict[str, tuple[OperationCode, list[Arg]]] = {
    "image numbers below 1": (Op.ROI_POOLING, [*regions(1), *whole(1, 1), real(1), real(1), scalar(False, T.BOOL)]),
    "an output height and width above 0": (
        Op.TRANSPOSE_CONV_2D,
        [ones(1, 1, 1, 1), ones(1, 1, 1, 1), ones(1), integers([1, 0, 1, 1]), *whole(1, 1, 1, 0), scalar(False, T.BOOL)],
    ),
    "a padding from 0 to below the filter": (Op.MAX_POOL_2D, [ones(1, 9, 9, 1), *whole(3, 0, 0, 0, 1, 1, 3, 3, 0)]),
    "stride_w of at least 1": (Op.MAX_POOL_2D, [ones(1, 9, 9, 1), *whole(0, 0, 0, 0, 0, 1, 3, 3, 0)]),
    "a part of": (Op.SLICE, [ones(3), integers([2]), integers([2])]),
    "height, width and depth above 0": (Op.RESIZE_BILINEAR, [ones(1, 2, 0, 1), *whole(2, 2)]),
    "a depth divisible by 9": (Op.DEPTH_TO_SPACE, [ones(1, 1, 1, 6), *whole(3)]),
    "a rank that divides 2 filters": (
        Op.SVDF,
        [ones(1, 1), ones(2, 1), ones(2, 1), ones(2), ones(1, 2), *whole(0, 0)],
    ),
    "weights with a second dimension above 0": (Op.FULLY_CONNECTED, [ones(1, 2), ones(1, 0), ones(1), *whole(0)]),
    "a stride above 0 along a dropped axis": (
        Op.STRIDED_SLICE,
        [ones(2, 2), integers([0, 1]), integers([1, 0]), integers([1, -1]), *whole(0, 0, 2)],
    ),
    "dimensions that broadcast": (Op.ADD, [ones(2), ones(3), *whole(0)]),
    "at most 32 bits": (Op.LSH_PROJECTION, [ones(1, 33), ones(2), ones(2), *whole(2)]),
    "samples below 1": (Op.ROI_ALIGN, aligned(400.0)),
    "a limit above 0": (
        Op.DETECTION_POSTPROCESSING,
        [
            *(ones(1, 1, 2), ones(1, 1, 4), ones(1, 4), real(1), real(1), real(1), real(1), scalar(False, T.BOOL)),
            *(*whole(0, 1, 1), real(0.5), real(0.5), scalar(False, T.BOOL)),
        ],
    ),
    "more than the background class": (
        Op.BOX_WITH_NMS_LIMIT,
        [ones(1, 1), ones(1, 4), integers([0]), real(0.1), *whole(-1, 0), real(0.5), real(0.5), real(0.5)],
    ),
}


NUMBERS = output(T.TENSOR_INT32)
OUTPUTS: dict[OperationCode, list[Arg]] = {
    Op.SVDF: [output(), output()],
    Op.LSH_PROJECTION: [NUMBERS],
    Op.BOX_WITH_NMS_LIMIT: [output(), output(), NUMBERS, NUMBERS],
    Op.DETECTION_POSTPROCESSING: [output(), output(), NUMBERS, NUMBERS],
}
"""Of operations whose outputs are not one of the first input's type."""


@pytest.mark.parametrize("rule", REFUSED)
def test_one_step_beyond_a_rule_is_refused(rule: str) -> None:
    code, arguments = REFUSED[rule]
    with pytest.raises(OpFailedError, match=rule):
        run(code, arguments, *OUTPUTS.get(code, [output(arguments[0].type, scale=float(arguments[0].type == U8))]))


def test_the_same_scale_of_a_region_is_accepted_below_1() -> None:
    # Weights are rounded to 255ths.
    [y] = run(Op.ROI_ALIGN, aligned(200.0), output(U8, scale=1.0))
    np.testing.assert_allclose(y.reshape(-1), [200], atol=1)


def test_a_padding_may_be_as_large_as_a_dilated_filter_less_one() -> None:
    # A filter of 3 at distances of 3 is 7 long: its last weight meets the one pixel.
    image, filters = tensor([[[[5]]]]), tensor([[[[1], [2], [4]]]])
    arguments = [image, filters, tensor([0]), *whole(6, 0, 0, 0, 1, 1, 0), scalar(False, T.BOOL), *whole(3, 1)]
    assert run(Op.CONV_2D, arguments)[0].tolist() == [[[[20]]]]


def test_one_group_is_a_convolution() -> None:
    arguments = [tensor([[[[5]]]]), tensor([[[[3]]]]), tensor([1]), *whole(0, 0, 0, 0, 1, 1, 1, 0), scalar(False, T.BOOL)]
    assert run(Op.GROUPED_CONV_2D, arguments)[0].tolist() == [[[[16]]]]


def test_a_radius_of_0_looks_at_the_value_alone() -> None:
    # 2 / (1 + 3 * 2 * 2).
    arguments = [tensor([[[[2]]]]), *whole(0), real(1), real(3), real(1)]
    np.testing.assert_allclose(run(Op.LOCAL_RESPONSE_NORMALIZATION, arguments)[0], [[[[2 / 13]]]], rtol=1e-6)


def test_a_multiple_of_0_leaves_nothing() -> None:
    assert run(Op.TILE, [ones(2, 3), integers([1, 0])])[0].shape == (2, 0)


def test_a_dimension_of_minus_1_is_what_is_left() -> None:
    assert run(Op.RESHAPE, [ones(4, 3), integers([2, -1])])[0].shape == (2, 6)


def test_float16_moves_from_level_3_and_control_flow_comes_with_level_4() -> None:
    [halves] = [s for s in definition(Op.SPACE_TO_DEPTH).types if T.TENSOR_FLOAT16 in s.types.values()]
    assert halves.level == 3
    assert [definition(code).since for code in (Op.IF, Op.WHILE)] == [4, 4]


def test_sums_of_float16_lose_digits() -> None:
    assert [Numerics("npu", "a device", sums=sums).halves for sums in ("float32", "float16")] == [False, True]


# -- when a model is built ---------------------------------------------------------------------------------------------


def built(code: OperationCode, *operands: tuple[OperandCode, tuple[int, ...], float, object], result: tuple[int, ...]) -> None:
    """A model of an operation, whose operands have a type, dimensions, a scale and perhaps a value."""
    builder = ModelBuilder("rules")
    indexes = []
    for kind, dims, scale, value in operands:
        index = builder.add_operand(kind, dims, scale=scale)
        if value is not None:
            builder.set_operand_value(index, value)
        indexes.append(index)
    out = builder.add_operand(T.TENSOR_QUANT8_ASYMM if code == Op.CAST else operands[0][0], result, scale=float(code == Op.CAST))
    builder.add_operation(code, indexes, [out])
    builder.identify_inputs_and_outputs([i for i, o in zip(indexes, operands, strict=True) if o[3] is None], [out])
    builder.finish()


def test_declared_dimensions_of_a_cast_are_the_inputs_or_unknown() -> None:
    built(Op.CAST, (FLOAT, (2,), 0.0, None), result=(0,))
    built(Op.CAST, (FLOAT, (2,), 0.0, None), result=(2,))
    with pytest.raises(BadDataError, match="the input's dimensions"):
        built(Op.CAST, (FLOAT, (2,), 0.0, None), result=(1,))


def test_mirrored_paddings_are_two_for_each_dimension_or_unknown() -> None:
    image = FLOAT, (2, 2), 0.0, None
    for rows in (0, 2):
        built(Op.MIRROR_PAD, image, (T.TENSOR_INT32, (rows, 2), 0.0, None), (T.INT32, (), 0.0, 0), result=(0, 0))
    with pytest.raises(BadDataError, match="paddings of"):
        built(Op.MIRROR_PAD, image, (T.TENSOR_INT32, (1, 2), 0.0, None), (T.INT32, (), 0.0, 0), result=(0, 0))


def test_the_refusal_of_a_first_operand_names_all_types_that_it_may_have() -> None:
    with pytest.raises(BadDataError, match="TENSOR_FLOAT16 or TENSOR_FLOAT32"):
        built(Op.FLOOR, (T.TENSOR_BOOL8, (2,), 0.0, None), result=(2,))
