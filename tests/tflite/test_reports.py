"""Every kind of public report on TFLite's delegates, as a small file with the verdict that the report's phone or runtime gave.

Threads are of tensorflow/tensorflow and google-ai-edge/LiteRT, unless another repository is named. Judges: LiteRT with the
delegate library for NNAPI, LiteRT itself for what it loads and for numbers. Rules of other chips come from their sources.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.commands import call
from tests.conftest import REPOSITORY
from tests.differential import Fork
from tests.tflite import reports
from tests.tflite.agreement import differences
from tests.tflite.files import TfliteBuilder
from tests.tflite.reports import IMAGE, MASKS, NONE, Q8, Q16, WINDOW, Make, one, ones
from tests.tflite.verdicts import CREATED, FAILS, REFUSED, UNREADABLE, asked

SAMPLE = "nnapi-sample_all"


@dataclass(frozen=True)
class Report:
    """A file, and how ``plan`` begins for it on a device."""

    thread: str
    make: Make
    says: str
    outcome: str = ""
    """What LiteRT does with the delegate library; empty where the report is of another device, or of another Android."""
    partitions: tuple[int, ...] = ()
    """Of each graph, the operators that LiteRT hands over."""
    device: str = SAMPLE
    android: str = "13"


def resized(type: str, **options: bool) -> Make:
    return one("RESIZE_BILINEAR", (1, 4, 4, 1), (1, 8, 8, 1), np.int32([8, 8]), type=type, of=Q8, version=3, **options)


def weighed(scales: list[float], axis: int, data: str = "float32", **more: Any) -> Make:
    """CONV_2D of three units with int8 weights."""
    kind = np.int32 if data == "int8" else np.float32
    weights = ones(3, 1, 1, 2, type="int8"), {"scale": scales, "axis": axis}
    return one("CONV_2D", IMAGE, (1, 4, 4, 3), weights, np.zeros(3, kind), type=data, **WINDOW, **more)


def dense(b: TfliteBuilder) -> tuple[list[int], list[int]]:
    """RELU, and an int8 FULLY_CONNECTED with a scale for each unit, as TensorFlow writes Dense layers since 2024."""
    x, r, y = (b.tensor((1, n), "int8", scale=0.1) for n in (4, 4, 2))
    weights = b.constant(ones(2, 4, type="int8"), scale=[0.1, 0.2], axis=0)
    b.operator("RELU", [x], [r], {}, 2)
    b.operator("FULLY_CONNECTED", [r, weights, b.constant(np.zeros(2, np.int32), scale=[0.01, 0.02])], [y], {}, 5)
    return [x], [y]


def sliced(mask: str, begin: list[int], end: list[int], step: list[int], shape: Any, out: Any, type: str = "float32") -> Make:
    of = Q8 if type == "uint8" else {}
    masks = {**MASKS, **({mask: 1} if mask else {})}
    return one("STRIDED_SLICE", shape, out, *map(np.int32, (begin, end, step)), type=type, of=of, **masks)


HALF = resized("int8", half_pixel_centers=True)
COS = one("COS", (1, 8), (1, 8))
FLAT = one("FULLY_CONNECTED", (1, 1, 1, 1, 1, 1, 6), (1, 1, 1, 1, 1, 1, 2), ones(2, 6), None, version=5, keep_num_dims=True)
DENSE_16 = one("FULLY_CONNECTED", (1, 3, 4), (1, 3, 2), (ones(2, 4, type="int8"), {"scale": 0.01}), None, type="int16", of=Q16,
               version=4, keep_num_dims=True)  # fmt: skip
STEPS = one("CONV_2D", (1, 24, 24, 2), (1, 3, 3, 2), ones(2, 1, 1, 2), np.zeros(2, np.float32),
            **{**WINDOW, "stride_w": 10, "stride_h": 10})  # fmt: skip
MEAN = one("MEAN", (1, 5, 7, 8), (1, 8), np.int32([1, 2]), type="int8", of=Q8, version=2, keep_dims=False)
BACKWARDS = sliced("", [-1], [-5], [-1], (4,), (4,))
PACKED = one("PACK", [(1, 4)] * 2, (2, 1, 4), type="int8", of=Q8, axis=0, values_count=2, version=2)
SQUARES = one("SQUARED_DIFFERENCE", [(1, 8)] * 2, (1, 8), type="int16", of=Q16, to={"scale": 0.02})
ROOTS = one("RSQRT", (1, 5), (1, 5), type="int16", of=Q16, version=2)

HYBRID = one("FULLY_CONNECTED", (1, 4), (1, 2), (ones(2, 4, type="int8"), {"scale": [0.1, 0.2]}), np.zeros(2, np.float32))
JOINED = one("CONCATENATION", [(1, 4)] * 2, (1, 8), type="int8", of=Q8, to={"scale": 0.2}, axis=1, version=2)

REPORTS = (
    Report("3596", dense, "not created: NNAPI refuses operator 1 FULLY_CONNECTED weights when the model is built", FAILS),
    Report("60234", reports.lstm, "NNAPI refuses operator 0 UNIDIRECTIONAL_SEQUENCE_LSTM when the model is built", FAILS),
    Report("38036, 42190, 46388", reports.dynamic, "TFLite refuses the delegate for this file", REFUSED),
    Report("46426, 54507, 97941", reports.loop, "6 operators in 3 graphs; 5 delegated in 3 partitions", CREATED, (1, 2, 2)),
    Report("google-ai-edge/litert-torch 1105, 1136", reports.composite, "3 operators in 2 graphs; 2 delegated in 2 partitions",
           CREATED, (1, 1)),
    Report("53682", reports.halves, "All 2 operators run on nnapi-sample_all, in 1 partition", CREATED, (2,)),
    Report("53758", reports.halves, "devices that accept all that the delegate maps, as it requires for float16 weights",
           device="nnapi-sample_quant", android="11"),
    Report("45207 on Android 10", HALF, "required: feature level 4 for align_corners and half_pixel_centers", android="10"),
    Report("45207 on Android 11", HALF, "The operator runs on", CREATED, (1,), android="11"),
    Report("46098 on Android 9", reports.transposed_conv("float32"), "required: feature level 3", android="9"),
    Report("46098 on Android 10", reports.transposed_conv("int8"), "The operator runs on", CREATED, (1,), android="10"),
    Report("62091 on Android 9", COS, "required: feature level 3", android="9"),
    Report("62091 on Android 10", COS, "The operator runs on", CREATED, (1,), android="10"),
    Report("61126", weighed([0.1, 0.2, 0.3], 0, version=5), "The operator runs on", CREATED, (1,)),
    Report("43541", HYBRID, "The operator runs on", CREATED, (1,)),
    Report("9215", FLAT, "The file does not run with xnnpack: it fails at operator 0 FULLY_CONNECTED", device="xnnpack"),
    Report("7441", MEAN, "The operator runs on", CREATED, (1,)),
    Report("9249", one("SUM", (1, 4, 4, 2), (1, 1, 1, 2), np.int32([1, 2]), keep_dims=True), "The operator runs on",
           device="tflite-gpu-delegate"),
    Report("67216", one("ADD", IMAGE, IMAGE, np.float32(2), **NONE), "The operator runs on", device="tflite-gpu-delegate"),
    Report("5307", reports.tail, "All 4 operators run on litert-gpu", device="litert-gpu"),
    Report("5307 on the older GPU delegate", reports.tail, "except 3 operators: TOPK_V2, FLOOR_DIV, FLOOR_MOD",
           device="tflite-gpu-delegate"),
    Report("9249 on the older GPU delegate", reports.sums, "All 2 operators run on tflite-gpu-delegate",
           device="tflite-gpu-delegate"),
    Report("5307 on NNAPI", reports.tail, "except 2 operators: FLOOR_DIV, FLOOR_MOD", CREATED, (2,)),
    Report("4383", SQUARES, "1 has no kernel in TFLite", CREATED, (0,)),
    Report("5006", ROOTS, "required: an input 0 of FLOAT32 or UINT8 or INT8", CREATED, (0,)),
    Report("48959", DENSE_16, "required: no int16 output", CREATED, (0,)),
    Report("alibaba/TinyNeuralNetwork 354", JOINED, "TFLite does not load this file: operator 0 CONCATENATION", UNREADABLE),
    Report("alibaba/TinyNeuralNetwork 385", one("TANH", (1, 8), (1, 8), type="int16", of=Q16, to={"scale": 3e-5}, version=3),
           "TFLite does not load this file: operator 0 TANH", UNREADABLE),
    Report("4847", STEPS, "The operator runs on", CREATED, (1,)),
    Report("tensorflow/tflite-micro 197", reports.computed_reshape, "except 3 operators: SHAPE, STRIDED_SLICE, PACK",
           device="ethos-u55-128"),
    Report("renesas/ruhmi 2", reports.attention, "All 3 operators run on ethos-u55-128", device="ethos-u55-128"),
    Report("google-coral/edgetpu 828", sliced("", [0, 0], [1, 8], [1, 2], (1, 8), (1, 4), "uint8"), "No operator runs on edgetpu",
           device="edgetpu"),
    Report("google-coral/edgetpu 31", resized("uint8"), "uncertain", device="edgetpu"),
    Report("66081", weighed([0.1, 0.2], 3, "int8", of=Q8, version=3), "TFLite does not load this file: operator 0 CONV_2D",
           UNREADABLE),
    Report("42481, ellipsis", sliced("ellipsis_mask", [0, 0], [0, 2], [1, 1], (2, 3, 4), (2, 3, 2)),
           "NNAPI's CPU fails to run operator 0 STRIDED_SLICE", CREATED, (0,)),
    Report("42481, new axis", sliced("new_axis_mask", [0, 0], [0, 4], [1, 1], (4,), (1, 4)),
           "NNAPI's CPU fails to run operator 0 STRIDED_SLICE", CREATED, (0,)),
    Report("42481, backwards", BACKWARDS, "The operator runs on", CREATED, (1,)),
    Report("VeriSilicon/tflite-vx-delegate 62", PACKED, "The operator runs on", CREATED, (1,)),
    Report("35053", one("SPLIT", (1, 5), [(1, 2), (1, 2)], np.int32(1), front=True, num_splits=2),
           "TFLite does not load this file: operator 0 SPLIT", UNREADABLE),
)  # fmt: skip
ELSEWHERE = {
    "60234, states from run to run": "tests/compare/test_causes_of_runs.py::test_a_state_that_the_delegate_drops_is_the_cause",
    "7441, the cause": "tests/compare/test_causes.py::test_a_mean_that_the_reference_rounds_is_explained",
    "124409": "tests/test_apart.py::test_a_division_that_ends_litert_is_a_message",
    "tensorflow/tflite-micro 3196, 60570": "tests/remedies/test_large_files.py::"
    "test_a_tflite_file_is_advised_and_written_with_its_weights_after_the_tables",
}
"""Reports whose verdict is no first line of a plan, and the test that shows it."""


def written(make: Make, folder: Path) -> Path:
    builder = TfliteBuilder()
    return builder.write(folder / "report.tflite", *make(builder))


@pytest.mark.parametrize("report", REPORTS, ids=lambda report: report.thread)
def test_a_plan_begins_with_the_verdict_of_the_report(report: Report, tmp_path: Path) -> None:
    result = call("plan", written(report.make, tmp_path), "--device", report.device, "--android", report.android)
    assert result.exit_code == 0, result.output
    assert report.says in " ".join(result.stdout.split()), result.stdout


@pytest.mark.parametrize("report", [one for one in REPORTS if one.outcome], ids=lambda report: report.thread)
def test_litert_with_the_delegate_library_has_the_same_verdict(report: Report, tmp_path: Path) -> None:
    pytest.importorskip("ai_edge_litert.interpreter", reason="LiteRT is not installed")
    fork = Fork(asked)
    try:
        (verdict,) = fork.run(written(report.make, tmp_path).read_bytes())
    finally:
        fork.close()
    assert verdict.outcome == report.outcome, verdict.text
    assert tuple(sum(map(len, graph.groups)) for graph in verdict.graphs) == report.partitions


EQUAL = {"46098": reports.transposed_conv("int8"), "48959": DENSE_16, "4847": STEPS, "42481": BACKWARDS, "62": PACKED,
         "42481, ellipsis": sliced("ellipsis_mask", [0, 0], [0, 2], [1, 1], (2, 3, 4), (2, 3, 2)),
         "61126": weighed([0.1, 0.2, 0.3], 0, version=5)}  # fmt: skip


@pytest.mark.parametrize("thread", EQUAL)
def test_numbers_of_the_report_are_litert_s(thread: str, tmp_path: Path) -> None:
    found, _ = differences(written(EQUAL[thread], tmp_path), mapping="wide")
    assert max(found) <= (0.01 if thread == "61126" else 1e-6)


def test_what_litert_s_kernel_refuses_at_a_run_is_refused_with_its_words(tmp_path: Path) -> None:
    pytest.importorskip("ai_edge_litert.interpreter", reason="LiteRT is not installed")
    for make, words in ((ROOTS, "Rsqrt is only defined for positive values"), (SQUARES, "only supports FLOAT32 and INT32")):
        path, values = written(make, tmp_path), -np.ones((1, 5 if make is ROOTS else 8), np.int16)
        np.savez(tmp_path / "values.npz", **dict.fromkeys(["t0"] if make is ROOTS else ["t0", "t1"], values))
        result = call("run", path, "--input", tmp_path / "values.npz")
        assert result.exit_code == 2
        assert words in " ".join(result.stderr.split())


def test_the_steps_of_a_normalisation_in_8_bits_are_traced_to_the_mean(tmp_path: Path) -> None:
    # 7441, ARM-software/CMSIS-NN 214: rounding of one operator grows to several steps at the end.
    pytest.importorskip("ai_edge_litert.interpreter", reason="LiteRT is not installed")
    path = written(reports.normalised, tmp_path)
    shown = call("compare", path, "--reference", "litert", "--layers", "--seeds", "0-19", "--json")
    found = json.loads(shown.stdout)
    assert [row["operator"] for row in found["layers"] if row["cause"]] == ["1 MEAN"]
    assert "operator 4 MUL (t" in found["sentence"]
    assert "inherited from 1 MEAN" in found["sentence"]


def test_a_sum_of_halves_is_infinite_and_the_operator_is_named(tmp_path: Path) -> None:
    # 9249: the sum of 65536 twos is 131072, and float16 ends at 65504; the mean of them would be 2.
    pytest.importorskip("ai_edge_litert.interpreter", reason="LiteRT is not installed")
    path, values, device = written(reports.sums, tmp_path), tmp_path / "twos.npz", tmp_path / "halves.toml"
    np.savez(values, t0=np.full((1, 256, 256, 1), 2, np.float32))
    spread = json.loads(call("compare", path, "--envelope", "--input", values, "--json").stdout)["outputs"][0]["arithmetics"]
    infinite = {row["arithmetic"] for row in spread if row["max_abs_diff"] is None or not np.isfinite(float(row["max_abs_diff"]))}
    assert infinite == {"float16", "float16_stored", "float16_sums"}
    device.write_text(
        '[[device]]\nname = "halves"\nfeature_level = 8\nnumerics = "float16_stored"\nnumerics_source = "a GPU"\n'
        "[device.performance]\nother = [0.1, 0.1]\n[device.operations]\nREDUCE_SUM = {}\nMUL = {}\n"
    )
    shown = call("compare", path, "--layers", "--reference", "litert", "--device", device, "--input", values).stdout
    assert shown.startswith("first difference beyond tolerance: operator 0 SUM (t1), non-finite values in 100 % of elements")


@pytest.mark.parametrize("whole", [True, False])
def test_weights_beyond_two_gibibytes_are_planned_without_being_read(whole: bool, tmp_path: Path) -> None:
    # tensorflow/tflite-micro 3196, 60570: the file is sparse, so that its 2.25 GiB take no space.
    b = TfliteBuilder()
    x, y = b.tensor((1, 24576)), b.tensor((1, 24576))
    weights = b.tensor((24576, 24576))
    b.buffers.append({"offset": 4096, "size": 4 * 24576**2})
    b.tensors[weights]["buffer"] = len(b.buffers) - 1
    b.operator("FULLY_CONNECTED", [x, weights, b.constant(np.zeros(24576, np.float32))], [y], {})
    b.buffers[1]["offset"] = -(-len(b.content([x], [y])) // 4096) * 4096
    path = b.write(tmp_path / "large.tflite", [x], [y])
    with path.open("r+b") as file:
        file.truncate(b.buffers[1]["offset"] + 4 * 24576**2 - (0 if whole else 1))
    shown = call("plan", path, "--device", SAMPLE)
    assert shown.exit_code == (0 if whole else 2)
    said = " ".join((shown.stdout or shown.stderr).split())
    assert "The operator runs on nnapi-sample_all" in said if whole else "buffers[1]: expected bytes inside" in said


@pytest.mark.parametrize("device", ["tflite-gpu-delegate", "edgetpu"])
@pytest.mark.parametrize("operator", ["ADD", "MUL", "SUB", "MAXIMUM", "MINIMUM"])
def test_the_dimensions_of_a_constant_scalar_are_known(operator: str, device: str, tmp_path: Path) -> None:
    # 67216 and its kin.
    make = one(
        operator, IMAGE, IMAGE, (np.uint8(2), Q8), type="uint8", of=Q8, **(NONE if operator in ("ADD", "MUL", "SUB") else {})
    )
    shown = call("plan", written(make, tmp_path), "--device", device).stdout
    assert shown.startswith(f"The operator runs on {device}")


@pytest.mark.parametrize(
    ("operator", "type"), [("POW", "int8"), ("CUMSUM", "int16"), ("SIGN", "uint8"), ("SPACE_TO_DEPTH", "int16")]
)
def test_a_plan_says_that_tflite_has_no_kernel_for_the_types_of_an_operator(operator: str, type: str, tmp_path: Path) -> None:
    # 4383 and its kin; of the same types as the table that LiteRT is asked for.
    more = [np.int32(1)] if operator == "CUMSUM" else [(np.ones((1, 4, 4, 2), type), Q8)] if operator == "POW" else []
    out = (1, 2, 2, 8) if operator == "SPACE_TO_DEPTH" else IMAGE
    make = one(operator, IMAGE, out, *more, type=type, of={"scale": 0.1}, **({"block_size": 2} if out != IMAGE else {}))
    shown = " ".join(call("plan", written(make, tmp_path), "--device", SAMPLE).stdout.split())
    assert "1 has no kernel in TFLite" in shown or "TFLite does not load this file" in shown, shown
    assert "runs on TFLite's CPU" not in shown


@pytest.mark.parametrize("report", ELSEWHERE)
def test_the_other_reports_have_a_test(report: str) -> None:
    file, name = ELSEWHERE[report].split("::")
    assert f"def {name}(" in (REPOSITORY / file).read_text()
