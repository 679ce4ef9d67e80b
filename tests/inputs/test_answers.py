"""Results in outputs of known forms, and how they are drawn."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from nnbridge.inputs import Picture
from nnbridge.model import Model, Operand
from nnbridge.report.answers import (
    Accuracy,
    Classification,
    Detection,
    Pose,
    Segmentation,
    answer_as_dict,
    answers,
    real_numbers,
)
from nnbridge.report.pictures import colour, draw
from nnbridge.types import OperandCode, OperationCode
from tests.graphs import unary_chain

UINT8 = OperandCode.TENSOR_QUANT8_ASYMM


def model(*shapes: tuple[int, ...], code: OperandCode = OperandCode.TENSOR_FLOAT32, scale: float = 0.0) -> Model:
    """Outputs ``y0``, ``y1``, ... of these shapes, and nothing else."""
    base = unary_chain(OperationCode.FLOOR)
    operands = tuple(Operand(code, dims, scale, name=f"y{k}") for k, dims in enumerate(shapes))
    numbers = tuple(range(len(shapes)))
    return replace(base, main=replace(base.main, operands=operands, operations=(), inputs=(), outputs=numbers))


def found(*arrays: np.ndarray, labels: tuple[str, ...] = (), **outputs: object) -> list[object]:
    built = model(*(array.shape for array in arrays), **outputs)  # type: ignore[arg-type]
    named = {f"y{k}": array for k, array in enumerate(arrays)}
    return list(answers(built, named, dict.fromkeys(named, labels) if labels else {}))


def floats(values: object) -> np.ndarray:
    return np.array(values, np.float32)


def test_scores_are_ranked_with_labels_and_ties_in_the_order_of_classes() -> None:
    scores = floats([[0.1, 0.2, 0.4, 0.1, 0.1, 0.1, 0]])
    [answer] = found(scores, labels=tuple("abcdefg"))
    assert isinstance(answer, Classification)
    assert [(r.index, r.label) for r in answer.top] == [(2, "c"), (1, "b"), (0, "a"), (3, "d"), (4, "e")]
    assert answer.lines()[:2] == ["y0: the top 5", "  0.4000     2  c"]


def test_quantised_scores_are_ranked_as_real_numbers() -> None:
    [answer] = found(np.array([[0, 192, 64]], np.uint8), code=UINT8, scale=1 / 256)
    assert isinstance(answer, Classification)
    assert [(r.index, r.score) for r in answer.top] == [(1, 0.75), (2, 0.25), (0, 0.0)]


def test_numbers_that_are_no_scores_are_ranked_only_with_labels() -> None:
    logits = floats([[-3, 12]])
    assert found(logits) == []
    assert [r.label for r in found(logits, labels=("no", "yes"))[0].top] == ["yes", "no"]  # type: ignore[attr-defined]
    assert found(floats([[np.nan, 1]]), labels=("no", "yes")) == []


BOXES, SCORES = floats([[[0.1, 0.2, 0.5, 0.6], [0, 0, 1, 1]]]), floats([[0.9, 0.25]])


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (2, 0, 3, 1)])
def test_boxes_are_those_that_are_counted(order: tuple[int, ...]) -> None:
    arrays = (BOXES, floats([[1, 0]]), SCORES, floats([1]))
    [answer] = found(*(arrays[k] for k in order), labels=("cat", "dog"))
    assert isinstance(answer, Detection)
    assert answer.lines() == ["1 box as shares of height and width", "  dog 0.90: rows 0.100 to 0.500, columns 0.200 to 0.600"]
    assert answer_as_dict(answer)["boxes"][0]["index"] == 1


def test_counts_and_classes_out_of_range_are_no_errors() -> None:
    for count in (-1, 0, 99):
        [answer] = found(BOXES, floats([[-5, 2**30]]), SCORES, floats([count]), labels=("cat",))
        assert isinstance(answer, Detection)
        assert len(answer.boxes) == (2 if count == 99 else 0)
        assert {box.label for box in answer.boxes} <= {""}


@pytest.mark.parametrize("first", [False, True])
def test_a_mask_is_the_class_of_each_pixel(first: bool) -> None:
    scores = np.zeros((1, 20, 20, 5), np.float32)
    scores[0, :5, :, 3] = 1
    [answer] = found(np.moveaxis(scores, -1, 1) if first else scores)
    assert isinstance(answer, Segmentation)
    assert [(r.index, r.score) for r in answer.classes] == [(0, 0.75), (3, 0.25)]
    assert (answer.mask[:5] == 3).all()
    assert "mask" not in answer_as_dict(answer)


def test_a_mask_of_classes_is_taken_as_it_is() -> None:
    classes = np.zeros((1, 20, 20), np.int32)
    classes[0, 0] = 7
    [answer] = found(classes, code=OperandCode.TENSOR_INT32)
    assert [(r.index, r.score) for r in answer.classes] == [(0, 0.95), (7, 0.05)]  # type: ignore[attr-defined]


@pytest.mark.parametrize("shape", [(1, 20, 20, 1), (1, 1, 20, 20), (1, 20, 20)])
@pytest.mark.parametrize(("low", "high", "labels"), [(0.1, 0.9, ()), (0.2, 0.6, ("person",)), (-4, 3, ("person",))])
def test_a_mask_of_one_channel_is_where_its_numbers_are_large(
    shape: tuple[int, ...], low: float, high: float, labels: tuple[str, ...]
) -> None:
    plane = np.full((20, 20), low, np.float32)
    plane[:5] = high
    [answer] = found(plane.reshape(shape), labels=labels)
    assert isinstance(answer, Segmentation)
    assert [(r.index, r.label, r.score) for r in answer.classes] == [(0, "background", 0.75), (1, "".join(labels), 0.25)]
    assert np.array_equal(answer.mask == 1, plane == np.float32(high))
    assert answer.threshold == (0.5 if low > 0 else 0)


def test_a_mask_of_one_channel_may_have_no_foreground() -> None:
    [answer] = found(np.zeros((1, 20, 20, 1), np.float32), labels=("person",))
    assert answer.lines()[1:] == ["  100.00%     0  background", "    0.00%     1  person"]


def test_two_labels_name_both_sides_of_a_mask_of_one_channel() -> None:
    [answer] = found(np.full((1, 20, 20, 1), 0.7, np.float32), labels=("road", "sky"))
    assert [r.label for r in answer.classes] == ["sky", "road"]  # type: ignore[union-attr]


def test_numbers_of_one_channel_without_a_label_are_no_mask_if_they_are_no_shares() -> None:
    assert found(np.linspace(-3, 8, 400, dtype=np.float32).reshape(1, 20, 20, 1)) == []


def test_images_and_features_are_no_masks() -> None:
    for shape in ((1, 64, 64, 3), (1, 7, 7, 1280), (1, 1, 20)):
        assert found(np.zeros(shape, np.float32)) == []


def test_points_of_a_body_have_names() -> None:
    [answer] = found(np.tile(floats([0.25, 0.5, 0.75]), (1, 1, 17, 1)))
    assert isinstance(answer, Pose)
    assert answer.points[0] == ("nose", 0.25, 0.5, 0.75)


def test_accuracy_counts_first_and_first_five() -> None:
    accuracy = Accuracy()
    [answer] = found(floats([[0.1, 0.6, 0.3, 0, 0, 0, 0]]))
    for label in ("1", "2", "6", "bird", ""):
        accuracy.add([answer], label, {})  # type: ignore[list-item]
    assert accuracy.as_dict() == {"labelled": 3, "top1": 1, "top5": 2, "unknown_labels": ["bird"]}
    assert accuracy.lines("accuracy") == ["accuracy: top-1 1 of 3 (33.33%), top-5 2 (66.67%)", "labels of no class: bird"]


def test_values_are_real_numbers() -> None:
    [item] = real_numbers(model((1, 2), code=UINT8, scale=0.5), {"y0": np.array([[0, 3]], np.uint8)}, values=True)
    assert item == {"name": "y0", "scale": 0.5, "zero_point": 0, "real_min": 0, "real_max": 1.5, "values": [[0, 1.5]]}


def test_a_box_is_drawn_where_the_image_has_it(tmp_path: Path) -> None:
    Image.new("RGB", (200, 100)).save(tmp_path / "in.png")
    [answer] = found(floats([[[0.25, 0.5, 0.75, 1]]] * 1), floats([[0]]), floats([[0.9]]), floats([1]))
    # Fitted into 100 x 100: half as large, 25 rows below the upper border; the box is the image's lower right part.
    draw(tmp_path / "out.png", Picture(tmp_path / "in.png", (100, 100), (0.5, 0.5), (0, 25)), [answer])  # type: ignore[list-item]
    pixels = np.asarray(Image.open(tmp_path / "out.png"))
    assert pixels.shape == (100, 200, 3)
    assert tuple(pixels[60, 100]) == tuple(pixels[99, 150]) == colour(0)
    assert not pixels[:, :99].any()
    assert not pixels[60:95, 105:195].any()


def test_a_mask_is_drawn_over_what_the_model_saw(tmp_path: Path) -> None:
    Image.new("RGB", (40, 20), (100, 100, 100)).save(tmp_path / "in.png")
    scores = np.zeros((1, 20, 20, 2), np.float32)
    scores[0, :10, :, 1] = 1
    [answer] = found(scores)
    # Cropped: 20 of 40 columns, of which the upper half is of class 1.
    draw(tmp_path / "out.png", Picture(tmp_path / "in.png", (20, 20), (1, 1), (-10, 0)), [answer])  # type: ignore[list-item]
    changed = (np.asarray(Image.open(tmp_path / "out.png")) != 100).any(-1)
    expected = np.zeros((20, 40), bool)
    expected[:10, 10:30] = True
    np.testing.assert_array_equal(changed, expected)
