"""Operations that move values: where they begin, end and are refused."""

from __future__ import annotations

import numpy as np
import pytest

from nnbridge.builder import ModelBuilder
from nnbridge.errors import BadDataError, NnapiError, OpFailedError
from nnbridge.types import OperandCode, OperationCode
from tests.operations.calls import integers, omitted, output, run, scalar, tensor

Op = OperationCode


def test_strided_slice_backwards_from_end_to_beginning_by_masks() -> None:
    bounds = [integers([0]), integers([0]), integers([-1]), scalar(1), scalar(1), scalar(0)]
    [y] = run(Op.STRIDED_SLICE, [tensor([1, 2, 3]), *bounds])
    assert y.tolist() == [3, 2, 1]


def test_pack_s_axis_may_lie_behind_the_last_of_its_inputs_and_no_further() -> None:
    rows = [tensor([1, 2]), tensor([3, 4])]
    assert run(Op.PACK, [scalar(-1), *rows])[0].tolist() == [[1, 3], [2, 4]]
    with pytest.raises(NnapiError, match=r"\[-2, 2\), found 2"):
        run(Op.PACK, [scalar(2), *rows])


def test_densify_refuses_segments_that_go_back() -> None:
    metadata = [omitted(OperandCode.TENSOR_INT32)] * 2 + [integers([0, 2, 1, 3]), integers([0, 1, 2])]
    inputs = [tensor([1, 2, 3]), integers([0, 1]), omitted(OperandCode.TENSOR_INT32), integers([0, 1]), integers([3, 3])]
    with pytest.raises(OpFailedError, match="4 segments from 0 to the number of indexes"):
        run(Op.DENSIFY, [*inputs, *metadata])


def test_a_padding_below_0_is_refused_beside_others() -> None:
    with pytest.raises(NnapiError, match="paddings of at least 0"):
        run(Op.PAD, [tensor([1, 2]), integers([[2, -1]])])


def test_densify_refuses_indexes_that_are_not_there() -> None:
    for indexes in ([0, 2, 3], [0, -1, 2]):
        metadata = [omitted(OperandCode.TENSOR_INT32)] * 2 + [integers([0, 2, 3]), integers(indexes)]
        inputs = [tensor([1, 2, 3]), integers([0, 1]), omitted(OperandCode.TENSOR_INT32), integers([0, 1]), integers([2, 3])]
        with pytest.raises(OpFailedError, match="metadata of dimension 1: expected indexes below 3"):
            run(Op.DENSIFY, [*inputs, *metadata])


def test_strided_slice_backwards_clamps_an_end_far_before_the_beginning() -> None:
    bounds = [integers([9]), integers([-9]), integers([-1]), scalar(0), scalar(0), scalar(0)]
    [y] = run(Op.STRIDED_SLICE, [tensor([1, 2, 3]), *bounds])
    assert y.tolist() == [3, 2, 1]


def test_squeeze_counts_axes_from_the_end_as_far_as_the_first() -> None:
    assert run(Op.SQUEEZE, [tensor([[1, 2]]), integers([-2])])[0].tolist() == [1, 2]


def test_concatenation_takes_one_tensor_and_refuses_another_shape() -> None:
    assert run(Op.CONCATENATION, [tensor([[1, 2]]), scalar(0)])[0].tolist() == [[1, 2]]
    with pytest.raises(NnapiError, match="the dimensions of the first tensor but along axis 0, found"):
        run(Op.CONCATENATION, [tensor([[1, 2]]), tensor([[1, 2, 3]]), scalar(0)])


def test_pack_refuses_ranks_that_are_not_equal_when_the_model_is_built() -> None:
    builder = ModelBuilder()
    axis = builder.add_operand(OperandCode.INT32, ())
    builder.set_operand_value(axis, np.int32(0))
    parts = [builder.add_operand(OperandCode.TENSOR_FLOAT32, dims) for dims in ((2,), (2, 2))]
    packed = builder.add_operand(OperandCode.TENSOR_FLOAT32, ())
    with pytest.raises(BadDataError, match="inputs of equal rank"):
        builder.add_operation(Op.PACK, [axis, *parts], [packed])


@pytest.mark.parametrize("block", [(3, 2), (3, 1), (1, 3)])
def test_batches_become_blocks_that_are_no_squares(block: tuple[int, int]) -> None:
    # Batches of one pixel are the rows and columns of one block.
    pixels = np.arange(block[0] * block[1])
    [y] = run(Op.BATCH_TO_SPACE_ND, [tensor(pixels.reshape(-1, 1, 1, 1)), integers(block)])
    assert y.tolist() == pixels.reshape(1, *block, 1).tolist()


def test_blocks_of_nothing_are_refused() -> None:
    with pytest.raises(NnapiError, match="two block sizes of at least 1"):
        run(Op.BATCH_TO_SPACE_ND, [tensor(np.ones((6, 1, 1, 1))), integers([0, 2])])


def test_channels_are_not_shuffled_in_no_groups() -> None:
    with pytest.raises(NnapiError, match="groups that divide 4 channels, found 0"):
        run(Op.CHANNEL_SHUFFLE, [tensor([[1, 2, 3, 4]]), scalar(0), scalar(1)])


def test_topk_of_rows_that_are_all_lowest_beside_others_that_are_not() -> None:
    # Of equal values the last comes first.
    rows = np.full((2, 1500), -(2**31))
    rows[0, :2] = 7, 5
    [values, indexes] = run(Op.TOPK_V2, [integers(rows), scalar(2)], *[output(OperandCode.TENSOR_INT32)] * 2)
    assert values.tolist() == [[7, 5], [-(2**31)] * 2]
    assert indexes.tolist() == [[0, 1], [1499, 1498]]
