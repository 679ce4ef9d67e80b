"""The envelope: what arithmetics compute, and whose answers are within."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from nnbridge.compare import Sample, seeded_samples
from nnbridge.compare.arithmetics import Runner, arithmetics
from nnbridge.compare.envelope import Envelope, envelope, reference_answers
from nnbridge.compare.litert import LiteRT
from nnbridge.file import load
from nnbridge.operations.arithmetic import mbqm, mbqm_once
from nnbridge.operations.numerics import NUMERICS, PRODUCTS, STORED, interpolated, using
from tests.commands import call
from tests.conftest import MODELS
from tests.tflite.files import TfliteBuilder

SMALL = np.float32([[1, 2**-24, 2**-24]]), np.ones((3, 1), np.float32)


@pytest.mark.parametrize(
    ("order", "expected"),
    # 1 + 2**-24 is 1 in float32; from the other end 2**-23 comes together first.
    [("sequential", 1.0), ("reversed", 1 + 2**-23), ("double", 1 + 2**-23), ("float16", 1.0)],
)
def test_sums_depend_on_their_order(order: str, expected: float) -> None:
    assert PRODUCTS[order](*SMALL).item() == expected


def test_lanes_add_every_eighth_term() -> None:
    terms = np.zeros((1, 17), np.float32)
    terms[0, [0, 8, 16]] = 1
    terms[0, 1] = 5
    assert PRODUCTS["lanes"](terms, np.ones((17, 1), np.float32)).item() == 8


def test_bfloat16_rounds_to_nearest_and_ties_to_even() -> None:
    # Between 1 and its neighbour 1 + 2**-7 lies 1 + 2**-8.
    values = np.float32([1 + 2**-8, 1 + 3 * 2**-8, 1 + 2**-8 + 2**-20, np.inf, 65536])
    assert STORED["bfloat16"](values).tolist() == [1, 1 + 2**-6, 1 + 2**-7, np.inf, 65536]
    assert np.isnan(STORED["bfloat16"](np.float32([np.nan])))[0]


@pytest.mark.parametrize(
    ("name", "expected"),
    # 5 / 4 * 2 = 2.5 for M = 2**30 and a shift of 0 is half of the value: -3 / 2, 3 / 2, 5 / 2.
    [("exact", [-1, 2, 3]), ("single_rounding", [-1, 2, 3]), ("float_rescaled", [-2, 2, 2])],
)
def test_ties_are_rounded_as_the_arithmetic_has_it(name: str, expected: list[int]) -> None:
    with using(NUMERICS[name]):
        assert mbqm(np.array([-3, 3, 5]), 1 << 30, 0).tolist() == expected


def test_two_roundings_differ_from_one() -> None:
    # 5 * 0.75 / 4 is 0.9375: 3.75 is 4, a quarter of it 1; 3 * 0.5 / 4 is 0.375: 1.5 is 2, a quarter of it 0.5 is 1.
    value = np.array([3])
    assert mbqm(value, 1 << 30, -2).item() == 1
    assert mbqm_once(value, 1 << 30, -2).item() == 0
    with using(NUMERICS["double_rounding"]):
        assert mbqm_once(value, 1 << 30, -2).item() == 1


def test_plain_depthwise_convolutions_round_ties_up(tmp_path: Path) -> None:
    builder, rng = TfliteBuilder(), np.random.default_rng(0)
    x, y = (builder.tensor((1, 24, 24, 32), "int8", scale=scale) for scale in (0.05, 1.0))
    weights = builder.constant(rng.integers(-127, 128, (1, 3, 3, 32)), "int8", scale=0.02)
    bias = builder.constant(np.zeros(32, np.int32), "int32", scale=0.001)
    strides = {"stride_w": 1, "stride_h": 1, "depth_multiplier": 1}
    builder.operator("DEPTHWISE_CONV_2D", [x, weights, bias], [y], strides, 3)
    path = builder.write(tmp_path / "m.tflite", [x], [y])
    model = load(path)
    (sample,) = seeded_samples(model, LiteRT(path, kernels="optimised"), [0])
    (expected,) = sample.outputs
    unequal = {
        name: int((next(iter(Runner(model, NUMERICS[name]).run(sample.inputs).values())) != expected).sum())
        for name in ("exact", "matrix_rounding")
    }
    assert unequal["matrix_rounding"] == 0 < unequal["exact"]


def test_tables_are_near_their_function() -> None:
    at = np.linspace(-12, 12, 1001, dtype=np.float32)
    found = interpolated(np.tanh, -10, 10)(at)
    assert 0 < np.abs(found - np.tanh(at)).max() < 1e-3


def test_only_arithmetics_that_matter_to_a_model_are_run() -> None:
    names = {numerics.name for numerics in arithmetics(load(MODELS / "digits_float32.tflite"))}
    assert {"exact", "reversed_sums", "float16_sums"} <= names
    assert not names & {"single_rounding", "float_rescaled", "float_requantised"}
    names = {numerics.name for numerics in arithmetics(load(MODELS / "digits_int8.tflite"))}
    assert "single_rounding" in names
    assert "reversed_sums" not in names


def test_each_arithmetic_is_within_its_own_envelope() -> None:
    model = load(MODELS / "digits_uint8.tflite")
    names = [numerics.name for numerics in arithmetics(model)]
    runners = {name: Runner(model, NUMERICS[name]) for name in names}
    others = {f"as {name}": (lambda sample, runner=runner: runner.run(sample.inputs)) for name, runner in runners.items()}
    found = envelope(model, seeded_samples(model, None, range(5)), others)
    assert found.passed
    assert {other.nearest_unequal for other in found.others} == {0}


def of_digits(name: str) -> Envelope:
    path = MODELS / name
    model, kernels = load(path), LiteRT(path)
    samples = seeded_samples(model, kernels, range(10))
    return envelope(model, samples, {"litert": reference_answers(model)})


@pytest.mark.parametrize("name", ["digits_float32.tflite", "digits_int8.tflite", "digits_uint8.tflite"])
def test_litert_is_within_the_envelope(name: str) -> None:
    found = of_digits(name)
    assert found.passed
    assert "litert is within the envelope" in found.sentence


def test_an_answer_that_no_arithmetic_has_is_outside() -> None:
    model = load(MODELS / "digits_float32.tflite")
    found = envelope(
        model, seeded_samples(model, None, [0]), {"ones": lambda sample: {"PartitionedCall:0": np.ones((1, 10), np.float32)}}
    )
    assert not found.passed
    assert (found.others[0].within, found.others[0].reached_by) == (False, "")


def test_an_interrupt_leaves_what_is_done() -> None:
    model = load(MODELS / "digits_int8.tflite")

    def stopped() -> Iterator[Sample]:
        yield from seeded_samples(model, None, [0, 1])
        raise KeyboardInterrupt

    found = envelope(model, stopped())
    assert (found.samples, found.interrupted) == (2, True)


def test_results_show_themselves_to_rich_and_notebooks_and_pandas() -> None:
    pandas = pytest.importorskip("pandas")
    found = of_digits("digits_float32.tflite")
    frame = found.to_pandas()
    assert isinstance(frame, pandas.DataFrame)
    assert next(iter(frame["arithmetic"])) == "exact"
    assert "<td>reversed_sums</td>" in found._repr_html_()


def test_the_command_prints_the_envelope() -> None:
    command = ["compare", str(MODELS / "digits_float32.tflite"), "--envelope", "--seeds", "0-4"]
    shown = call(*command)
    assert (shown.exit_code, shown.stdout.splitlines()[0]) == (0, "top-1 changes on none of 5 inputs")
    data = json.loads(call(*command, "--reference", "litert", "--json").stdout)
    assert data["outputs"][0]["others"][0]["within"] is True
    assert data["outputs"][0]["span"]["max_abs_diff"] > 0


def test_a_device_that_states_its_arithmetic_has_no_other() -> None:
    command = ["compare", str(MODELS / "digits_int8.tflite"), "--envelope", "--seeds", "0", "--device", "xnnpack", "--json"]
    data = json.loads(call(*command).stdout)
    assert data["stated"] == {"xnnpack": "float_rescaled"}
    assert [each["arithmetic"] for each in data["outputs"][0]["arithmetics"]] == ["exact", "float_rescaled"]
    assert data["outputs"][0]["others"][0]["nearest_mismatches"] == 0
    among = json.loads(call(*command, "--device", "nnapi-sample_all").stdout)
    assert len(among["outputs"][0]["arithmetics"]) > 2
