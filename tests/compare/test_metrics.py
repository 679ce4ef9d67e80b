"""Metrics beside the verdict, tolerances from a file, agreement of answers."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

from nnbridge.compare import Metrics, OutputComparison, Tolerance, read_tolerances
from nnbridge.errors import InputError
from nnbridge.report.agreement import Agreement
from nnbridge.report.answers import Box, Classification, Detection, Pose, Ranked, Segmentation
from tests.commands import call
from tests.conftest import MODELS


def metrics(actual: object, expected: object, zero_point: int = 0) -> Metrics:
    found = Metrics()
    found.add(np.asarray(actual), np.asarray(expected), zero_point)
    return found


def test_rmse_sqnr_and_cosine_are_those_of_the_textbook() -> None:
    found = metrics(np.float64([3, 0]), np.float64([4, 0]))
    assert (found.rmse, found.cosine) == (math.sqrt(0.5), 1.0)
    assert found.sqnr == pytest.approx(10 * math.log10(16))
    assert metrics(np.float64([0, 1]), np.float64([1, 0])).cosine == 0


def test_signal_and_cosine_are_those_of_values_less_their_zero_point() -> None:
    found = metrics(np.uint8([127, 128]), np.uint8([126, 128]), zero_point=128)
    assert found.sqnr == pytest.approx(10 * math.log10(4))
    assert found.cosine == 1.0


def test_equal_outputs_have_no_noise() -> None:
    found = metrics(np.float64([1]), np.float64([1]))
    assert (found.rmse, found.sqnr) == (0, math.inf)
    assert metrics(np.float64([]), np.float64([])).as_dict() == {"rmse": None, "sqnr_db": None, "cosine": None, "histogram": {}}


def test_steps_are_counted_by_size_and_sign() -> None:
    found = metrics(np.uint8([0, 10, 11, 255, 0]), np.uint8([0, 11, 10, 0, 255]))
    assert found.histogram() == {"<-16": 1, "-1": 1, "0": 1, "1": 1, ">16": 1}


def test_values_that_are_not_finite_are_not_counted() -> None:
    comparison = OutputComparison("y", "")
    comparison.add(np.float32([np.inf, 2]), np.float32([np.inf, 1]))
    assert (comparison.metrics.elements, comparison.metrics.rmse) == (1, 1.0)


def tolerances(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "tolerances.toml"
    path.write_text(text)
    return path


def test_a_file_has_tolerances_for_all_outputs_and_for_single_ones(tmp_path: Path) -> None:
    path = tolerances(tmp_path, 'rtol = 0.5\n[output.scores]\natol = 1\n[output."a:0"]\nsteps = 3')
    found = read_tolerances(path, {"steps": 2})
    assert found.of("other") == Tolerance(None, 0.5, 2)
    assert found.of("scores") == Tolerance(1, 0.5, 2)
    assert found.of("a:0") == Tolerance(None, 0.5, 3)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("atol = -1", "a finite number from 0 for atol, found -1"),
        ("steps = 1.5", "a whole number from 0 for steps, found 1.5"),
        ("rtol = true", "a finite number from 0 for rtol, found True"),
        ("rtol = nan", "found nan"),
        ("quant = 1", "or a table [output.NAME], found quant"),
        ("output = 1", "expected tables [output.NAME], found 1"),
        ("[output]\nx = 1", "a table of atol, rtol and steps"),
        ("= 1", "a TOML file of tolerances"),
    ],
)
def test_mistakes_in_a_file_are_named(tmp_path: Path, text: str, found: str) -> None:
    with pytest.raises(InputError) as error:
        read_tolerances(tolerances(tmp_path, text), {})
    assert found in str(error.value)


def test_a_tolerance_for_an_output_that_there_is_not_is_refused(tmp_path: Path) -> None:
    path = tolerances(tmp_path, "[output.scores]\natol = 1")
    options = ["--reference", "litert", "--tolerances", str(path)]
    result = call("compare", MODELS / "digits_int8.tflite", *options)
    assert result.exit_code == 2
    assert "expected one of PartitionedCall:0, found scores" in result.stderr


def test_tolerances_decide_the_verdict_of_their_output(tmp_path: Path) -> None:
    model = [str(MODELS / "digits_dynamic.tflite"), "--reference", "litert", "--mapping", "wide", "--seeds", "2"]
    assert call("compare", *model).exit_code == 1
    path = tolerances(tmp_path, '[output."PartitionedCall:0"]\natol = 0.01')
    assert call("compare", *model, "--tolerances", path).exit_code == 0


def classes(*order: int) -> Classification:
    return Classification("y", tuple(Ranked(index, "", 1 / (k + 1)) for k, index in enumerate(order)))


def test_the_first_class_and_the_first_five_are_counted_apart() -> None:
    found = Agreement()
    found.add([classes(1, 2, 3, 4, 5)], [classes(1, 3, 2, 4, 5)])
    found.add([classes(2, 1, 3, 4, 5)], [classes(1, 2, 3, 4, 5)])
    found.add([], [classes(1, 2, 3, 4, 5)])
    assert found.as_dict()["classes"] == {"compared": 3, "top1": 1, "top5": 2}


def box(index: int, top: float, left: float, bottom: float, right: float, score: float = 0.5) -> Box:
    return Box(index, "", score, top, left, bottom, right)


def test_boxes_match_by_class_and_overlap() -> None:
    # Half of the other's height: 0.5 of a union of 1.
    found = Agreement()
    theirs = Detection("y", (box(1, 0, 0, 1, 1), box(2, 0, 0, 0.5, 0.5)))
    ours = Detection("y", (box(1, 0, 0, 0.5, 1, 0.75), box(3, 0, 0, 0.5, 0.5)))
    found.add([ours], [theirs])
    boxes = {"reference": 2, "own": 2, "matched": 1, "mean_iou": 0.5, "max_score_difference": 0.25}
    assert found.as_dict()["boxes"] == boxes


def test_the_mean_iou_of_masks_is_over_their_classes() -> None:
    found = Agreement()
    ours, theirs = (Segmentation("y", (), np.array(mask)) for mask in ([[0, 0], [1, 1]], [[0, 1], [1, 1]]))
    found.add([ours], [theirs])
    # Class 0: 1 of 2 pixels, class 1: 2 of 3.
    assert found.mean_iou == pytest.approx((1 / 2 + 2 / 3) / 2)


def test_points_have_distances() -> None:
    found = Agreement()
    found.add([Pose("y", (("nose", 0.3, 0.4, 1.0),))], [Pose("y", (("nose", 0.0, 0.0, 1.0),))])
    assert found.as_dict()["points"] == {"compared": 1, "mean_distance": 0.5, "max_distance": 0.5}


def test_json_has_the_metrics_of_each_output_and_the_agreement() -> None:
    options = ["--reference", "litert", "--seeds", "0-4", "--json"]
    data = json.loads(call("compare", MODELS / "digits_uint8.tflite", *options).stdout)
    assert (data["samples"], data["agreement"]["classes"]) == (5, {"compared": 5, "top1": 5, "top5": 5})
    output = data["outputs"][0]
    assert (output["rmse"], output["sqnr_db"], output["cosine"], output["histogram"]) == (0, None, 1, {"0": 50})
    assert data["causes"] == []
