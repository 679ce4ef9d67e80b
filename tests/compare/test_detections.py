"""Detections beside a reference's: boxes matched at any position, and the verdict by them; the class in first place."""

from __future__ import annotations

import itertools
import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nnbridge
from nnbridge.builder import ModelBuilder
from nnbridge.compare import Acceptance, Comparison, Sample, Tolerances, compare, named_outputs
from nnbridge.compare.acceptance import Checks
from nnbridge.compare.comparison import add_sample, new_comparisons
from nnbridge.compare.detections import Boxes, overlaps, pairs, recognised
from nnbridge.compare.envelope import envelope
from nnbridge.compare.samples import as_samples
from nnbridge.errors import InputError
from nnbridge.matrix.cells import Cell
from nnbridge.matrix.tables import difference
from nnbridge.model import Model
from nnbridge.runtime.compilation import Compilation
from nnbridge.storage import save
from nnbridge.types import OperandCode, OperationCode
from tests.commands import call
from tests.conftest import MODELS

FLOAT, BYTES = OperandCode.TENSOR_FLOAT32, OperandCode.TENSOR_QUANT8_ASYMM
ROLES = ("boxes", "classes", "scores", "count")
LEFT, RIGHT, BELOW = (0.0, 0.0, 0.5, 0.5), (0.0, 0.5, 0.5, 1.0), (0.5, 0.0, 1.0, 1.0)
Row = tuple[Sequence[float], float, float]
"""Corners, class, score."""
THREE: tuple[Row, ...] = ((LEFT, 1, 0.9), (RIGHT, 1, 0.8), (BELOW, 2, 0.7))


def passing_on(shapes: Mapping[str, Sequence[int]], scales: Mapping[str, float] | None = None) -> Model:
    """A model whose outputs are its inputs: what is put in is what a device computes."""
    builder = ModelBuilder("detector")
    inputs, outputs = [], []
    for name, dims in shapes.items():
        scale = (scales or {}).get(name, 0.0)
        kind = BYTES if scale else FLOAT
        inputs.append(builder.add_operand(kind, dims, scale=scale, name=f"in_{name}"))
        outputs.append(builder.add_operand(kind, dims, scale=scale, name=name))
        builder.add_operation(OperationCode.RELU, [inputs[-1]], [outputs[-1]])
    builder.identify_inputs_and_outputs(inputs, outputs)
    return builder.finish()


def detections(*images: Sequence[Row], most: int = 4) -> dict[str, Any]:
    """Images' detections as TFLite_Detection_PostProcess writes them, what is beyond the count as 0."""
    arrays = {
        "boxes": np.zeros((len(images), most, 4), np.float32),
        "classes": np.zeros((len(images), most), np.float32),
        "scores": np.zeros((len(images), most), np.float32),
        "count": np.float32([len(rows) for rows in images]),
    }
    for k, rows in enumerate(images):
        for n, row in enumerate(rows):
            arrays["boxes"][k, n], arrays["classes"][k, n], arrays["scores"][k, n] = row
    return arrays


def verdict(ours: Any, theirs: Any, accept: Acceptance = Acceptance(), scales: Mapping[str, float] | None = None) -> Comparison:  # noqa: B008
    """The comparison of outputs, or of a list of samples' outputs, with a reference's."""
    samples = list(zip(ours, theirs, strict=True)) if isinstance(ours, list) else [(ours, theirs)]
    model = passing_on({name: array.shape for name, array in samples[0][0].items()}, scales)
    compilation = Compilation.create(model, [])
    compilation.finish()
    listed = [
        Sample(f"sample {k}", {f"in_{name}": array for name, array in here.items()}, there)
        for k, (here, there) in enumerate(samples)
    ]
    return compare(compilation, "stored", listed, Tolerances(accept=accept))


def test_boxes_that_change_places_pass_by_matched_boxes() -> None:
    swapped = (THREE[1], THREE[0], THREE[2])
    found = verdict(detections(swapped), detections(THREE))
    assert (found.passed, found.verdict) == (True, "pass by matched boxes")
    # Four corners and two scores.
    assert found.check_sentences == ["pass by matched boxes (3 of 3, worst IoU 1.000); by position 6 values are beyond tolerance"]
    assert [output.beyond for output in found.outputs] == [4, 0, 2, 0]


def test_outputs_within_tolerance_by_position_need_no_boxes() -> None:
    found = verdict(detections(THREE), detections(THREE))
    assert (found.verdict, found.checks) == ("pass", [])


@pytest.mark.parametrize("order", [1, -1])
def test_a_box_that_is_on_both_sides_makes_up_for_no_missing_one(order: int) -> None:
    # Both others overlap the one that is the same by 7 of 13, and each other by 4 of 16: of two possible pairs one is right.
    same, there, here = ((0, 0, 10, 1), 1, 0.6), ((-3, 0, 7, 1), 1, 0.4), ((3, 0, 13, 1), 1, 0.3)
    found = pairs(boxes(*(same, there)[::order]), boxes(*(same, here)[::order]))
    assert [pair.iou for pair in found] == [1]
    # With another score it is not the same.
    other = ((0, 0, 10, 1), 1, 0.5)
    assert len(pairs(boxes(*(same, there)[::order]), boxes(*(other, here)[::order]))) == 2


def test_no_order_of_the_boxes_changes_the_verdict() -> None:
    for order in itertools.permutations(THREE):
        assert verdict(detections(order), detections(THREE)).passed
        assert verdict(detections(order), detections(THREE), Acceptance(iou=1)).passed


@pytest.mark.parametrize(
    ("rows", "counts"),
    [
        ((THREE[1], THREE[0]), "2 of 3, worst IoU 1.000"),
        ((*THREE[::-1], (BELOW, 3, 0.6)), "3 of 3, 1 more here, worst IoU 1.000"),
        (((LEFT, 3, 0.9), *THREE[1:]), "2 of 3, 1 more here, worst IoU 1.000"),
        ((THREE[0], THREE[0], THREE[0]), "1 of 3, 2 more here, worst IoU 1.000"),
        ((), "0 of 3"),
        (((LEFT, 1, 0.9), (RIGHT, 1, np.nan), THREE[2]), "2 of 3, 1 more here, worst IoU 1.000"),
        (((LEFT, 1, 0.9), ((0, np.nan, 0.5, 1), 1, 0.8), THREE[2]), "2 of 3, 1 more here, worst IoU 1.000"),
    ],
    ids=[
        "one box fewer",
        "one box more",
        "other class",
        "one box three times",
        "none",
        "score is no number",
        "corner is no number",
    ],
)
@pytest.mark.parametrize("accept", [Acceptance(), Acceptance(iou=0.5)], ids=["within tolerance", "by overlap"])
def test_what_is_missing_or_too_much_fails(rows: Sequence[Row], counts: str, accept: Acceptance) -> None:
    found = verdict(detections(rows), detections(THREE), accept)
    assert not found.passed
    assert counts in found.check_sentences[0]


def test_boxes_that_are_near_pass_only_where_overlap_is_enough() -> None:
    # 0.45 of a height of 0.5: an intersection over union of 0.9.
    near = (THREE[2], ((0.05, 0, 0.5, 0.5), 1, 0.85), THREE[1])
    found = verdict(detections(near), detections(THREE))
    assert not found.passed
    assert "(3 of 3, worst IoU 0.899; 2 of their values beyond tolerance)" in found.check_sentences[0]
    assert ["--accept-iou 0.5" in line for line in found.checks[0][0].why] == [True]
    strict = verdict(detections(near), detections(THREE), Acceptance(iou=0.89, score=0.01))
    assert not any("--accept-iou" in line for line in strict.checks[0][0].why)
    assert verdict(detections(near), detections(THREE), Acceptance(iou=0.89)).passed
    assert not verdict(detections(near), detections(THREE), Acceptance(iou=0.91)).passed
    assert not verdict(detections(near), detections(THREE), Acceptance(iou=0.89, score=0.01)).passed
    assert verdict(detections(near), detections(THREE), Acceptance(iou=0.89, score=0.06)).passed


def test_boxes_of_scores_below_the_threshold_need_no_counterpart() -> None:
    faint = ((0.0, 0.0, 0.1, 0.1), 5, 0.2)
    accept = Acceptance(iou=0.9, score_threshold=0.5)
    for ours, theirs in ((THREE, (*THREE, faint)), ((*THREE, faint), THREE)):
        assert not verdict(detections(ours), detections(theirs), replace(accept, score_threshold=None)).passed
        assert verdict(detections(ours), detections(theirs), accept).passed
    # A score that falls below the threshold here is still the reference's box.
    fallen = (*THREE[:2], (BELOW, 2, 0.4))
    assert verdict(detections(fallen), detections(THREE), accept).passed


def test_what_is_beyond_the_count_is_not_compared() -> None:
    ours = detections(THREE)
    ours["boxes"][0, 3], ours["scores"][0, 3] = np.nan, 7
    assert verdict(ours, detections(THREE)).passed


def test_no_boxes_on_either_side_pass() -> None:
    ours = detections(())
    ours["scores"][0, 0] = 0.5
    found = verdict(ours, detections(()))
    assert found.passed
    assert "0 of 0" in found.check_sentences[0]


def test_boxes_as_pixels_match_like_shares() -> None:
    def pixels(rows: Sequence[Row]) -> dict[str, Any]:
        return detections([(tuple(300 * c for c in corners), index, score) for corners, index, score in rows])

    assert verdict(pixels(THREE[::-1]), pixels(THREE)).passed
    assert "worst IoU 1.000" in verdict(pixels(THREE[::-1]), pixels(THREE), Acceptance(iou=0.99)).check_sentences[0]


def test_each_image_of_a_batch_has_its_own_boxes() -> None:
    one, other = THREE[:2], THREE[1:]
    assert verdict(detections(one[::-1], other[::-1]), detections(one, other)).passed
    # The same boxes over both images, but in the other one's place.
    crossed = verdict(detections((THREE[0],), other), detections(other, (THREE[0],)))
    assert not crossed.passed
    assert "of sample 0, image 0" in crossed.checks[0][0].missed


def test_boxes_are_counted_over_samples_and_the_worst_is_the_worst_of_all() -> None:
    near = (THREE[2], ((0.05, 0, 0.5, 0.5), 1, 0.9), THREE[1])
    found = verdict([detections(THREE), detections(near)], [detections(THREE), detections(THREE)], Acceptance(iou=0.5))
    figures = found.as_dict()["checks"][0]
    assert (figures["images"], figures["reference"], figures["found"], figures["extra"]) == (2, 6, 6, 0)
    assert figures["worst_iou"] == pytest.approx(0.9)
    failing = verdict([detections(THREE), detections(THREE[:2])], [detections(THREE), detections(THREE)])
    assert failing.checks[0][0].missed.endswith("of sample 1")


def test_quantised_outputs_match_as_real_numbers() -> None:
    scales = {"boxes": 1 / 128, "classes": 1.0, "scores": 1 / 128, "count": 1.0}

    def stored(rows: Sequence[Row]) -> dict[str, Any]:
        return {name: np.uint8(np.rint(array / scales[name])) for name, array in detections(rows).items()}

    stepped = stored((THREE[2], ((1 / 128, 0, 0.5, 0.5), 1, 0.9), THREE[1]))
    found = verdict(stepped, stored(THREE), scales=scales)
    # A step is within the tolerance of integers. 63 of 64 rows.
    assert found.passed
    assert found.check_sentences[0].startswith("pass by matched boxes (3 of 3, worst IoU 0.984)")


def test_detections_without_a_count_end_where_scores_do() -> None:
    ours, theirs = detections(THREE[::-1]), detections(THREE)
    del ours["count"], theirs["count"]
    assert verdict(ours, theirs).passed
    ours["scores"][0, 3], ours["boxes"][0, 3] = 0.5, LEFT
    assert "1 more here" in verdict(ours, theirs).check_sentences[0]


def test_sides_with_another_number_of_rows_match_as_far_as_they_do() -> None:
    def unbatched(rows: Sequence[Row]) -> dict[str, Any]:
        found = detections(rows, most=len(rows))
        return {name: found[name][0] for name in ("boxes", "classes", "scores")}

    fewer = verdict(unbatched(THREE[:2]), unbatched(THREE), Acceptance(iou=0.9))
    assert not fewer.passed
    assert fewer.check_sentences[0].startswith(
        "FAIL by matched boxes (2 of 3, worst IoU 1.000, 0.9 required); by position the outputs"
    )
    assert "3 of 3, 1 more here" in verdict(unbatched((*THREE, THREE[0])), unbatched(THREE)).check_sentences[0]
    # A third one that the reference's threshold leaves out.
    accept = Acceptance(iou=0.9, score_threshold=0.75)
    assert verdict(unbatched(THREE[:2]), unbatched(THREE), accept).passed


def test_rows_of_corners_score_and_class_are_detections() -> None:
    def rows(*listed: Row) -> dict[str, Any]:
        return {"output0": np.float32([[[*corners, score, index] for corners, index, score in listed]])}

    assert verdict(rows(*THREE[::-1]), rows(*THREE)).verdict == "pass by matched boxes"
    assert not verdict(rows(*THREE[:2], (BELOW, 3, 0.7)), rows(*THREE)).passed


def test_the_roles_of_classes_and_scores_follow_names_before_values() -> None:
    arrays = detections(THREE)
    arrays["scores"][0, :3] = 1  # As whole as a class.
    reordered = {name: arrays[name] for name in ("boxes", "scores", "classes", "count")}
    layout = recognised(named_outputs(passing_on({n: a.shape for n, a in reordered.items()})), reordered)
    assert layout is not None
    assert (layout.classes, layout.scores) == ("classes", "scores")


@pytest.mark.parametrize(
    "change",
    [
        {"boxes": np.float32([[[0.5, 0.5, 0.2, 0.2]] * 4])},  # Centres and sizes: no corners.
        {"classes": np.float32([[0.5, 1.5, 2.5, 0]])},
        {"count": np.float32([np.nan])},
        {"boxes": np.zeros((1, 4, 5), np.float32)},
    ],
)
def test_other_outputs_are_no_detections(change: dict[str, Any]) -> None:
    arrays = {**detections(THREE), **change}
    operands = named_outputs(passing_on({name: array.shape for name, array in arrays.items()}))
    assert recognised(operands, arrays) is None
    assert recognised(operands, detections(THREE)) is not None


@pytest.mark.parametrize(
    "arrays",
    [
        {"y": np.float32([[0, 0, 0, 0, 1, 0]])},
        {"a": np.float32([[0.1, 0.2, 0.3, 0.4]]), "b": np.float32([1]), "c": np.float32([0.5])},
    ],
    ids=["six classes", "four classes and two numbers"],
)
def test_scores_of_classes_are_no_detections(arrays: dict[str, Any]) -> None:
    assert recognised(named_outputs(passing_on({name: array.shape for name, array in arrays.items()})), arrays) is None


def test_rows_of_zeros_pass_nothing_that_differs() -> None:
    zeros = {"output0": np.zeros((1, 3, 6), np.float32)}
    other = {"output0": np.float32([[[0, 0, 5, 7, 0, 0], [0] * 6, [0] * 6]])}
    assert verdict(other, zeros).verdict == "FAIL"


# Two boxes of 1 x 1 that share a half: 0.5 of 1.5. pycocotools' maskUtils.iou has the same three numbers.
@pytest.mark.parametrize(
    ("box", "iou"),
    [((0, 0, 1, 1), 1.0), ((0.5, 0, 1.5, 1), 1 / 3), ((0, 0, 0.5, 1), 0.5), ((2, 2, 3, 3), 0.0), ((1, 1, 0, 0), 0.0)],
)
def test_intersection_over_union(box: Sequence[float], iou: float) -> None:
    assert overlaps(np.array([(0, 0, 1, 1)]), np.array([box]))[0, 0] == pytest.approx(iou)


def test_boxes_without_area_are_the_same_where_their_corners_are() -> None:
    line, near, other = (0.2, 0.2, 0.2, 0.8), (0.2, 0.2, 0.2, 0.80001), (0.2, 0.2, 0.2, 0.5)
    assert overlaps(np.array([line]), np.array([line, near, other, (0, 0, 1, 1)])).tolist() == [[1, 1, 0, 0]]
    assert np.isnan(overlaps(np.array([line]), np.array([(np.nan, 0, 1, 1)]))).all()


def boxes(*rows: Row) -> Boxes:
    numbers = np.array([[*corners, index, score] for corners, index, score in rows])
    return Boxes(numbers[:, :4], numbers[:, 4], numbers[:, 5])


def test_equal_boxes_pair_by_their_scores() -> None:
    found = pairs(boxes((LEFT, 1, 0.9), (LEFT, 1, 0.4)), boxes((LEFT, 1, 0.4), (LEFT, 1, 0.9)))
    assert [(pair.theirs, pair.ours) for pair in found] == [(0, 1), (1, 0)]


def test_a_better_overlap_takes_no_counterpart_that_another_box_needs() -> None:
    # Heights of 10: the second box here overlaps the first there by 9 of 11, and nothing else overlaps the second there.
    first, second = (0, 0, 10, 1), (2, 0, 12, 1)
    ours = boxes(((1, 0, 11, 1), 1, 0.9), ((-1, 0, 9, 1), 1, 0.9))
    found = pairs(boxes((first, 1, 0.9), (second, 1, 0.9)), ours, iou=0.8)
    assert [(pair.theirs, pair.ours) for pair in found] == [(0, 1), (1, 0)]
    assert [pair.iou for pair in found] == pytest.approx([9 / 11, 9 / 11])


def test_figures_for_detections_are_refused_where_there_are_none() -> None:
    scores = {"scores": np.float32([[0.1, 0.9]])}
    with pytest.raises(InputError, match=r"--accept-iou: expected detections among the outputs .* found scores float32\[1, 2\]"):
        verdict(scores, scores, Acceptance(iou=0.9))
    with pytest.raises(InputError, match=r"--accept-top1: expected .* found detections \(boxes\), which --accept-iou is for"):
        verdict(detections(THREE), detections(THREE), Acceptance(top1=0.9))


@pytest.mark.parametrize(
    ("figures", "found"),
    [
        ({"iou": 1.5}, "--accept-iou: expected a number from 0 to 1, found 1.5"),
        ({"top1": float("nan")}, "--accept-top1: expected a number from 0 to 1, found nan"),
        ({"iou": 0.5, "score": -1}, "--accept-score: expected a number from 0, found -1"),
        ({"score": 0.1}, "--accept-score: expected --accept-iou beside it"),
        ({"iou": 0.5, "score_threshold": float("inf")}, "--score-threshold: expected a finite number"),
    ],
)
def test_figures_that_are_none_are_refused(figures: dict[str, float], found: str) -> None:
    with pytest.raises(InputError) as error:
        Acceptance(**figures)
    assert found in str(error.value)


def classes(*rows: Sequence[float]) -> dict[str, Any]:
    return {"y": np.float32(rows)}


def test_classes_pass_by_the_share_of_samples_whose_first_is_the_same() -> None:
    ours = [classes((5, 1, 0)), classes((0, 3, 2)), classes((0, 2, 3)), classes((7, 1, 0))]
    theirs = [classes((4, 1, 0)), classes((0, 3, 2)), classes((0, 3, 2)), classes((9, 1, 0))]
    assert verdict(ours, theirs).verdict == "FAIL"
    found = verdict(ours, theirs, Acceptance(top1=0.75))
    assert found.check_sentences == [
        "pass by top class (3 of 4 samples, 0.75 required); by element 4 values are beyond tolerance"
    ]
    failing = verdict(ours, theirs, Acceptance(top1=0.76))
    assert not failing.passed
    assert failing.checks[0][0].missed == "class 2 here, 1 in the reference, of sample 2"


def test_elements_within_tolerance_do_not_pass_where_the_first_class_is_another() -> None:
    found = verdict(classes((1, 0.99999)), classes((0.99999, 1)), Acceptance(top1=1))
    assert found.outputs[0].within
    assert not found.passed


def test_each_row_of_a_batch_counts_as_a_sample() -> None:
    found = verdict(classes((1, 0), (0, 1)), classes((2, 0), (3, 1)), Acceptance(top1=0.5))
    assert found.check_sentences[0].startswith("pass by top class (1 of 2 samples")


def test_of_classes_that_share_the_first_place_each_is_right() -> None:
    assert verdict(classes((0, 2, 3)), classes((0, 5, 5)), Acceptance(top1=1)).passed
    # Equal numbers for all are no choice: the first of them is not the reference's.
    assert not verdict(classes((1, 1, 1)), classes((0, 5, 5)), Acceptance(top1=1)).passed
    assert not verdict(classes((np.nan, 1, 5)), classes((0, 5, 5)), Acceptance(top1=1)).passed


def test_outputs_beside_detections_are_compared_by_element() -> None:
    ours, theirs = ({**detections(rows), "mask": np.float32([[mask, 1]])} for rows, mask in ((THREE[::-1], 1), (THREE, 2)))
    found = verdict(ours, theirs)
    assert not found.passed
    assert found.sentence.endswith("beyond tolerance; beyond tolerance: mask")
    assert [output.passed for output in found.outputs] == [True, True, True, True, False]


def test_the_scores_of_detections_are_no_classes_of_an_envelope() -> None:
    model = passing_on({name: array.shape for name, array in detections(THREE).items()})
    inputs = {f"in_{name}": array for name, array in detections(THREE).items()}
    found = envelope(model, [Sample("", inputs, {})]).as_dict()
    assert {row["classified"] for output in found["outputs"] for row in output["arithmetics"]} == {0}


def swapped_files(folder: Path) -> tuple[Path, Path]:
    """A saved detector and its stored reference, in which two boxes are in each other's place."""
    ours, theirs = detections(THREE), detections((THREE[1], THREE[0], THREE[2]))
    save(passing_on({name: array.shape for name, array in ours.items()}), folder / "detector.nnapi")
    with (folder / "stored.npz").open("wb") as file:
        np.savez(file, **as_samples({f"in_{name}": array for name, array in ours.items()}, theirs))  # type: ignore[arg-type]
    return folder / "detector.nnapi", folder / "stored.npz"


def test_the_command_prints_what_the_verdict_is_by(tmp_path: Path) -> None:
    model, reference = swapped_files(tmp_path)
    swapped = ["compare", str(model), "--reference", str(reference)]
    result = call(*swapped)
    assert result.exit_code == 0
    text = " ".join(result.stdout.split())
    assert "Pass by matched boxes (3 of 3, worst IoU 1.000); by position 6 values are beyond tolerance" in text
    data = json.loads(call(*swapped, "--accept-iou", "0.9", "--json").stdout)
    assert (data["pass"], data["checks"][0]["pass"], data["checks"][0]["beyond"]) == (True, True, 6)
    assert {output["name"]: output["pass_by"] for output in data["outputs"]} == dict.fromkeys(ROLES, "boxes")
    assert call(*swapped, "--accept-iou", "0.9", "--accept-score", "0.5").exit_code == 0
    assert call(*swapped, "--accept-iou", "2").exit_code == 2


def test_options_for_detections_are_refused_without_them() -> None:
    model = ["compare", str(MODELS / "digits_uint8.tflite"), "--reference", "litert", "--seeds", "0"]
    result = call(*model, "--accept-iou", "0.9")
    assert result.exit_code == 2
    assert "--accept-iou: expected detections among the outputs" in result.stderr
    assert call(*model, "--layers", "--accept-iou", "0.9").exit_code == 2
    assert call(*model, "--accept-top1", "1").exit_code == 0


def test_python_has_the_same_figures(tmp_path: Path) -> None:
    model, reference = swapped_files(tmp_path)
    assert nnbridge.compare(model, str(reference)).verdict == "pass by matched boxes"
    assert nnbridge.compare(model, str(reference), accept_iou=0.9, accept_score=0.01).passed
    facts = nnbridge.report(model, tmp_path / "page.html", reference=str(reference), accept_iou=0.9)
    assert facts.comparison is not None
    assert facts.comparison.checks[0][0].figures()["min_iou"] == 0.9
    with pytest.raises(InputError, match="--accept-top1"):
        nnbridge.report(model, tmp_path / "page.html", reference=str(reference), accept_top1=0.9)


def test_the_command_fails_where_a_box_is_missing(tmp_path: Path) -> None:
    model, reference = swapped_files(tmp_path)
    arrays = dict(np.load(reference))
    arrays["output:count"][:] = 2  # The reference has the first two only.
    np.savez(reference, **arrays)
    result = call("compare", model, "--reference", reference, "--accept-iou", "0.9")
    assert result.exit_code == 1
    assert "FAIL by matched boxes (2 of 2, 1 more here" in " ".join(result.stdout.split())


def test_a_cell_of_a_matrix_says_what_its_verdict_is_by() -> None:
    cell = Cell("m", "d", 8, within=True, difference=70.0, passed_by="matched boxes")
    assert difference(cell) == "70 by matched boxes"
    assert difference(replace(cell, within=False)) == "70 by matched boxes, outside tolerance"


def judged(found: Comparison) -> dict[str, bool]:
    return {output.name: output.passed for output in found.outputs}


@pytest.mark.parametrize(
    ("changed", "failing"),
    [
        ({"scores": 0.05}, ["scores"]),
        ({"classes": 1}, ["classes"]),
        ({"boxes": 0.05}, ["boxes"]),
        ({"scores": 0.05, "boxes": 0.05}, ["boxes", "scores"]),
        ({"count": -1}, ["count"]),
    ],
)
def test_only_outputs_that_differ_fail_where_boxes_do(changed: dict[str, float], failing: list[str]) -> None:
    theirs = detections(THREE)
    ours = {name: array + np.float32(changed.get(name, 0)) for name, array in theirs.items()}
    found = verdict(ours, theirs)
    assert found.failed
    assert [name for name, passed in judged(found).items() if not passed] == failing


def test_equal_outputs_that_boxes_do_not_pass_fail_by_the_boxes() -> None:
    near = {**detections(THREE), "boxes": detections(THREE)["boxes"] * np.float32(1 + 1e-6)}
    found = verdict(near, detections(THREE), Acceptance(iou=1.0))
    assert found.failed
    assert judged(found)["boxes"] is False


CANDIDATES = np.float32([[[0, 0, 2, 2], [0, 0, 2, 2.1], [4, 4, 6, 6], [8, 8, 9, 9]]])
SCORES = np.float32([[[0.9, 0.8, 0.7, 0.1], [0.2, 0.2, 0.2, 0.6]]])
ROWS = ((0, 0, 0), (0, 0, 2), (0, 1, 3))
"""Image, class and box of what a NonMaxSuppression takes of these."""


def taken(*rows: tuple[int, int, int], boxes: Any = CANDIDATES, scores: Any = SCORES) -> dict[str, Any]:
    found = np.array(rows, np.int64).reshape(-1, 3)
    return {"boxes": boxes, "scores": scores, "selected": found}


def suppressed(
    ours: Mapping[str, Any], theirs: Mapping[str, Any], names: Sequence[str] = ("boxes", "scores", "selected"), **asked: Any
) -> Comparison:
    """The comparison of the outputs of a file that ends in NonMaxSuppression."""
    model = nnbridge.load(nms_file(names))
    found = new_comparisons(model)
    checks = Checks(model, Acceptance(**asked), lambda of: [o for o in new_comparisons(model) if o.name in of])
    mine, expected = ({name: side[name] for name in names} for side in (ours, theirs))
    add_sample(model, found, mine, expected)
    checks.add(mine, expected)
    for check in checks.deciding(found):
        for output in found:
            output.check = check if output.name in check.outputs else output.check
    return Comparison("nms", "host", "stored", 1, tuple(found))


@cache
def nms_file(names: Sequence[str]) -> Path:
    onnx = pytest.importorskip("onnx")
    helper, numpy_helper = onnx.helper, onnx.numpy_helper
    shapes = {"boxes": (1, [1, 4, 4]), "scores": (1, [1, 2, 4]), "selected": (7, ["n", 3])}
    values = {"one": np.float32(1), "most": np.int64([3]), "iou": np.float32([0.5]), "least": np.float32([0.3])}
    graph = helper.make_graph(
        [
            *(helper.make_node("Mul", [f"in_{name}", "one"], [name]) for name in ("boxes", "scores")),
            helper.make_node("NonMaxSuppression", ["boxes", "scores", "most", "iou", "least"], ["selected"]),
        ],
        "g",
        [helper.make_tensor_value_info(f"in_{name}", *shapes[name]) for name in ("boxes", "scores")],
        [helper.make_tensor_value_info(name, *shapes[name]) for name in names],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in values.items()],
    )
    path = Path(tempfile.mkdtemp()) / "nms.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), path)
    return path


@pytest.mark.parametrize("names", [("boxes", "scores", "selected"), ("selected",)])
def test_boxes_that_a_suppression_takes_in_another_order_pass(names: Sequence[str]) -> None:
    found = suppressed(taken(*ROWS[::-1]), taken(*ROWS), names)
    assert (found.passed, found.verdict) == (True, "pass by matched boxes")
    assert found.check_sentences[0].startswith("pass by matched boxes (3 of 3, worst IoU 1.000); by position ")


@pytest.mark.parametrize(
    ("rows", "counts"),
    [
        (ROWS[:2], "2 of 3"),
        ((*ROWS, (0, 1, 0)), "3 of 3, 1 more here"),
        (((0, 1, 0), *ROWS[1:]), "2 of 3, 1 more here"),
        ((), "0 of 3"),
    ],
)
@pytest.mark.parametrize("names", [("boxes", "scores", "selected"), ("selected",)])
def test_boxes_that_a_suppression_does_not_take_fail(rows: Any, counts: str, names: Sequence[str]) -> None:
    found = suppressed(taken(*rows), taken(*ROWS), names)
    assert found.failed
    assert f"FAIL by matched boxes ({counts}" in found.check_sentences[0]


def test_another_box_that_shows_the_same_object_passes_only_as_far_as_its_numbers_do() -> None:
    ours = taken((0, 0, 1), *ROWS[1:])
    assert suppressed(ours, taken(*ROWS)).failed
    assert suppressed(ours, taken(*ROWS), iou=0.9).passed
    assert suppressed(ours, taken(*ROWS), ("selected",)).failed


def test_boxes_as_centre_and_size_match() -> None:
    centres = np.concatenate([(CANDIDATES[..., :2] + CANDIDATES[..., 2:]) / 2, CANDIDATES[..., 2:] - CANDIDATES[..., :2]], -1)
    moved = centres + np.float32([0.1, 0, 0, 0])
    found = suppressed(taken(*ROWS[::-1], boxes=moved), taken(*ROWS, boxes=centres), iou=0.8)
    assert found.check_sentences[0].startswith("pass by matched boxes (3 of 3, worst IoU 0.818")


def test_rows_of_three_integers_that_no_suppression_computes_have_positions() -> None:
    assert verdict({"faces": np.float32(ROWS[::-1])}, {"faces": np.float32(ROWS)}).verdict == "FAIL"
