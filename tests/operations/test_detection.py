"""Suppression of overlapping boxes, against Android's lists worked one box at a time."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nnbridge.builder import ModelBuilder
from nnbridge.cpu.executor import Executor
from nnbridge.errors import OpFailedError
from nnbridge.operations.call import Arg
from nnbridge.operations.detection import first_picks, hard, soft, suppression
from nnbridge.types import OperandCode, OperationCode
from tests.operations.calls import output, run, scalar, tensor

Boxes = npt.NDArray[np.float32]
F32, BOOL, INTS = OperandCode.FLOAT32, OperandCode.BOOL, OperandCode.TENSOR_INT32
LINEAR, GAUSSIAN = 1, 2


def some_boxes(seed: int, count: int) -> tuple[Boxes, Boxes]:
    """Boxes that often overlap, some of them empty, and scores that are often equal."""
    rng = np.random.default_rng(seed)
    low = rng.integers(0, 6, (count, 2))
    boxes = np.concatenate([low, low + rng.integers(0, 5, (count, 2))], axis=1).astype(np.float32)
    return boxes, (rng.integers(1, 8, count) / 8).astype(np.float32)


def overlap(a: Boxes, b: Boxes) -> Any:
    sides = [max(min(a[k + 2], b[k + 2]) - max(a[k], b[k]), np.float32(0)) for k in (0, 1)]
    areas = [(box[2] - box[0]) * (box[3] - box[1]) for box in (a, b)]
    with np.errstate(invalid="ignore"):
        return sides[0] * sides[1] / (areas[0] + areas[1] - sides[0] * sides[1])


def picks(boxes: Boxes, scores: Boxes, out: Callable[[Any, int], bool]) -> list[int]:
    """The first best score of the list is picked and gives its place to the head; the last box takes that of one that is out."""
    left = list(range(len(scores)))
    found = []
    while left:
        best = max(range(len(left)), key=lambda k: scores[left[k]])
        pick = left[best]
        found.append(pick)
        left[best] = left[0]
        del left[0]
        k = 0
        while k < len(left):
            if out(overlap(boxes[pick], boxes[left[k]]), left[k]):
                left[k] = left[-1]
                del left[-1]
            else:
                k += 1
    return found


CASES = given(seed=st.integers(0, 2**32), count=st.integers(0, 30), threshold=st.sampled_from([0.0, 0.25, 0.5, 1.0]))


@settings(max_examples=150, deadline=None)
@CASES
def test_a_pick_ends_what_overlaps_it_in_the_order_of_androids_list(seed: int, count: int, threshold: float) -> None:
    boxes, scores = some_boxes(seed, count)
    found = suppression(boxes.T, scores, hard(threshold))
    with np.errstate(all="ignore"):
        assert [index for index, _ in found] == picks(boxes, scores, lambda shared, _: bool(shared >= threshold))


@settings(max_examples=150, deadline=None)
@CASES
def test_soft_suppression_lowers_scores_by_their_overlap(seed: int, count: int, threshold: float) -> None:
    boxes, scores = some_boxes(seed, count)
    lowered = scores.copy()

    def out(shared: Any, index: int) -> bool:
        # Two empty boxes share nothing by nothing, which is not a number and lowers nothing.
        lowered[index] *= np.float32(1 - shared if shared >= threshold else 1)
        return bool(lowered[index] < np.float32(0.1))

    with np.errstate(all="ignore"):
        found = list(suppression(boxes.T, scores, soft(LINEAR, threshold, 0.5, np.float32(0.1))))
    assert [index for index, _ in found] == picks(boxes, lowered, out)
    assert [score for _, score in found] == [float(lowered[index]) for index, _ in found]


def test_boxes_behind_the_foremost_are_picked_if_those_are_one_upon_another() -> None:
    boxes, scores = np.tile(np.float32([[0, 0, 4, 4]]), (100, 1)), np.linspace(1, 0.5, 100).astype(np.float32)
    boxes[99] += 9
    assert first_picks(lambda chosen: boxes[chosen].T, scores, np.float32(0.1), 0.5, 2) == [0, 99]


def limited(scores: Any, boxes: Any, kernel: int, *, threshold: float = 0.0, sigma: float = 0.5, limit: int = -1) -> list[Arg]:
    """The inputs of BOX_WITH_NMS_LIMIT for one image; each class has the same boxes."""
    wide, floor = np.tile(boxes, np.shape(scores)[1]), -9.0
    numbers = [scalar(threshold, F32), scalar(limit), scalar(kernel), *(scalar(n, F32) for n in (0.5, sigma, floor))]
    return [tensor(scores), tensor(wide), tensor(np.zeros(len(wide)), INTS), *numbers]


LIMITED = OperationCode.BOX_WITH_NMS_LIMIT
FOUND = output(), output(), output(INTS), output(INTS)


@pytest.mark.parametrize("kernel", [LINEAR, GAUSSIAN])
def test_empty_boxes_at_one_place_keep_their_scores(kernel: int) -> None:
    scores = [[0, 0.9, 0.3], [0, 0.8, 0.2], [0, 0.7, 0.1]]
    best, _, classes, _ = run(LIMITED, limited(scores, [[4, 4, 4, 4]] * 3, kernel, limit=4), *FOUND)
    np.testing.assert_array_equal(best, np.array([0.9, 0.8, 0.7, 0.3], np.float32))
    assert classes.tolist() == [1, 1, 1, 2]


def test_negative_scores_rank_by_what_the_kernel_makes_of_them() -> None:
    # The second box of class 1 rises from -1 to 0: above the first one, and above class 2.
    scores, boxes = [[0, -0.5, -0.2], [0, -1, -3]], [[0, 0, 4, 4]] * 2
    best, _, classes, _ = run(LIMITED, limited(scores, boxes, LINEAR, threshold=-2.0, limit=2), *FOUND)
    np.testing.assert_array_equal(best, np.array([0, -0.2], np.float32))
    assert classes.tolist() == [1, 2]


@pytest.mark.parametrize(("sigma", "expected"), [(0.0, [1, 0.25, 0]), (-1.0, [np.float32(0.5) * np.exp(np.float32(1)), 1, 0.25])])
def test_a_gaussian_kernel_without_width_ends_all_overlaps_and_one_of_negative_width_rewards_them(
    sigma: float, expected: list[float]
) -> None:
    boxes = [[0, 0, 4, 4], [0, 0, 4, 4], [9, 9, 10, 10]]
    best, *_ = run(LIMITED, limited([[0, 1], [0, 0.5], [0, 0.25]], boxes, GAUSSIAN, sigma=sigma), *FOUND)
    np.testing.assert_allclose(best, expected, rtol=1e-6)


def test_a_declared_count_that_the_data_contradicts_is_refused() -> None:
    builder, inputs = ModelBuilder(), limited([[0, 1], [0, 0.5]], [[0, 0, 4, 4], [9, 9, 10, 10]], LINEAR)
    operands = [builder.add_operand(arg.type, arg.dims) for arg in inputs]
    for operand, arg in list(zip(operands, inputs, strict=True))[1:]:
        builder.set_operand_value(operand, arg.data)
    outputs = [builder.add_operand(out.type, dims) for out, dims in zip(FOUND, [(1,), (1, 4), (1,), (1,)], strict=True)]
    builder.add_operation(LIMITED, operands, outputs)
    builder.identify_inputs_and_outputs(operands[:1], outputs)
    with pytest.raises(OpFailedError, match=r"an output of \[1\], found \[2\]"):
        Executor(builder.finish()).run([inputs[0].data])


@pytest.mark.parametrize("regular", [True, False])
@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    count=st.sampled_from([20, 150]),
    ties=st.booleans(),
    limit=st.integers(1, 18),
    each=st.integers(1, 3),
    labels=st.booleans(),
)
def test_detections_are_the_best_of_what_suppression_leaves(
    regular: bool, seed: int, count: int, ties: bool, limit: int, each: int, labels: bool
) -> None:
    boxes, _ = some_boxes(seed, count)
    rng = np.random.default_rng(seed)
    scores = (rng.integers(0, 9, (1, count, 4)) / 8 if ties else rng.random((1, count, 4))).astype(np.float32)
    anchors = np.concatenate([boxes[:, :2], boxes[:, 2:] - boxes[:, :2]], axis=1)
    # Without deltas a box lies around the middle of its anchor.
    boxes = np.concatenate([anchors[:, :2] - anchors[:, 2:] / 2, anchors[:, :2] + anchors[:, 2:] / 2], axis=1)
    expected = (_by_class if regular else _by_box)(boxes, scores[0], limit, each)
    numbers = [*[scalar(1.0, F32)] * 4, scalar(regular, BOOL), scalar(limit), scalar(each), scalar(each)]
    tail = [scalar(0.3, F32), scalar(0.5, F32), scalar(labels, BOOL)]
    inputs = [tensor(scores), tensor(np.zeros((1, count, 4))), tensor(anchors), *numbers, *tail]
    best, where, classes, found = run(
        OperationCode.DETECTION_POSTPROCESSING, inputs, output(), output(), output(INTS), output(INTS)
    )
    assert found.tolist() == [len(expected)]
    assert classes[0, : len(expected)].tolist() == [label if labels else label - 1 for _, label in expected]
    np.testing.assert_array_equal(where[0, : len(expected)], [boxes[box] for box, _ in expected] or np.empty((0, 4)))
    np.testing.assert_array_equal(best[0, : len(expected)], [scores[0, box, label] for box, label in expected])
    assert not best[0, len(expected) :].any()


def _suppressed(boxes: Boxes, scores: Boxes, limit: int) -> list[int]:
    over = np.flatnonzero(scores > np.float32(0.3))
    found = picks(boxes[over], scores[over], lambda shared, _: bool(shared >= 0.5))
    return [int(over[k]) for k in islice(found, limit)]


def _by_class(boxes: Boxes, scores: Boxes, limit: int, each: int) -> list[tuple[int, int]]:
    found = [(box, label) for label in (1, 2, 3) for box in _suppressed(boxes, scores[:, label], each)]
    return sorted(found, key=lambda detection: -scores[detection])[:limit]


def _by_box(boxes: Boxes, scores: Boxes, limit: int, each: int) -> list[tuple[int, int]]:
    found = _suppressed(boxes, scores[:, 1:].max(axis=1), limit)
    return [(box, int(label) + 1) for box in found for label in np.argsort(-scores[box, 1:], kind="stable")[:each]]


def test_boxes_name_images_that_are_there() -> None:
    box, still, size = tensor([[0, 0, 2, 2]]), tensor([[0, 0, 0, 0]]), tensor([[4, 4]])
    inputs = [box, still, tensor([1], INTS), size]
    with pytest.raises(OpFailedError, match="image numbers below 1"):
        run(OperationCode.AXIS_ALIGNED_BBOX_TRANSFORM, inputs)


def test_a_box_at_the_floor_is_no_pick() -> None:
    # 62 boxes one upon another, one beside them that scores as much as the floor, and more that score less.
    boxes, scores = np.tile(np.float32([[0, 0, 4, 4]]), (70, 1)), np.linspace(1, 0.5, 70).astype(np.float32)
    boxes[62:] += 9
    assert first_picks(lambda chosen: boxes[chosen].T, scores, scores[62], 0.5, 2) == [0]


def test_proposals_have_their_middle_inside_the_image_along_both_axes() -> None:
    # Cut at the image of 10 by 10, the second and the third box have their middle on its far edge: not inside.
    anchors = [[2, 2, 6, 6], [12, 2, 16, 6], [2, 12, 6, 16]]
    inputs = [tensor([[[[0.5, 0.9, 0.8]]]]), tensor(np.zeros((1, 1, 1, 12))), tensor(anchors), tensor([[10, 10]])]
    limits = [scalar(-1), scalar(-1), scalar(0.5, F32), scalar(-1.0, F32), scalar(False, BOOL)]
    arguments = [*inputs, scalar(1.0, F32), scalar(1.0, F32), *limits]
    scores, boxes, _ = run(OperationCode.GENERATE_PROPOSALS, arguments, output(), output(), output(INTS))
    assert (scores.tolist(), boxes.tolist()) == ([0.5], [[2, 2, 6, 6]])


@pytest.mark.parametrize("anchor", [[6, 2, 2, 6], [2, 6, 6, 2]])
def test_proposals_of_anchors_whose_corners_are_not_in_order_are_refused(anchor: list[int]) -> None:
    inputs = [tensor([[[[0.5]]]]), tensor(np.zeros((1, 1, 1, 4))), tensor([anchor]), tensor([[10, 10]])]
    limits = [scalar(-1), scalar(-1), scalar(0.5, F32), scalar(-1.0, F32), scalar(False, BOOL)]
    with pytest.raises(OpFailedError, match="anchors: expected corners with x1 <= x2 and y1 <= y2"):
        run(OperationCode.GENERATE_PROPOSALS, [*inputs, *[scalar(1.0, F32)] * 2, *limits], output(), output(), output(INTS))


@pytest.mark.parametrize(("anchors", "image"), [((0.25, 0), (0.125, 0)), ((0.125, 0), (0.25, 0)), ((0.125, 0), (0.125, 1))])
@pytest.mark.parametrize("kind", [OperandCode.TENSOR_QUANT8_ASYMM, OperandCode.TENSOR_QUANT8_ASYMM_SIGNED])
def test_parameters_of_proposals_are_laid_down_for_unsigned_scores(
    kind: OperandCode, anchors: tuple[float, int], image: tuple[float, int]
) -> None:
    boxes, sizes = OperandCode.TENSOR_QUANT16_SYMM, OperandCode.TENSOR_QUANT16_ASYMM
    inputs = [
        tensor([[[[1]]]], kind, scale=0.5),
        tensor(np.zeros((1, 1, 1, 4)), kind, scale=0.5),
        tensor([[0, 0, 16, 16]], boxes, scale=anchors[0]),
        tensor([[80, 80]], sizes, scale=image[0], zero_point=image[1]),
    ]
    limits = [scalar(-1), scalar(-1), scalar(0.5, F32), scalar(-1.0, F32), scalar(False, BOOL)]
    arguments = [*inputs, *[scalar(1.0, F32)] * 2, *limits]
    outputs = output(kind, scale=0.5), output(sizes, scale=0.125), output(INTS)
    if kind == OperandCode.TENSOR_QUANT8_ASYMM_SIGNED:
        assert run(OperationCode.GENERATE_PROPOSALS, arguments, *outputs)[0].tolist() == [1]
    else:
        with pytest.raises(OpFailedError, match=r"expected scale 0\.125"):
            run(OperationCode.GENERATE_PROPOSALS, arguments, *outputs)


def one_detection(scales: list[float]) -> list[npt.NDArray[Any]]:
    """The result for one anchor with one class beside the background."""
    anchor, move = tensor([[4, 4, 2, 2]]), tensor([[[1, -1, 0, 0]]])
    limits = [scalar(False, BOOL), scalar(1), scalar(1), scalar(1), scalar(0.0, F32), scalar(0.5, F32), scalar(False, BOOL)]
    inputs = [tensor([[[0, 0.5]]]), move, anchor, *(scalar(scale, F32) for scale in scales), *limits]
    return run(OperationCode.DETECTION_POSTPROCESSING, inputs, output(), output(), output(INTS), output(INTS))


def test_deltas_move_an_anchor_s_centre_by_its_own_size() -> None:
    # dy = 1 / 2 of 2 is 1 down, dx = -1 / 4 of 2 is 1/2 to the left.
    scores, boxes, classes, count = one_detection([2, 4, 1, 1])
    assert boxes.tolist() == [[[4, 2.5, 6, 4.5]]]
    assert (scores.tolist(), classes.tolist(), count.tolist()) == ([[0.5]], [[0]], [1])


@pytest.mark.parametrize("axis", range(4))
def test_deltas_are_not_divided_by_0(axis: int) -> None:
    with pytest.raises(OpFailedError, match="a scale above 0, found 0"):
        one_detection([0 if k == axis else 1 for k in range(4)])
