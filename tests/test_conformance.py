"""Android's conformance cases on nnapi-reference, and how their outputs are checked."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from nnbridge.conformance.cases import Case, check_outputs, spec_files
from nnbridge.conformance.outcome import NOT_TAKEN, REFUSED, CaseResult, SuiteOutcome
from nnbridge.conformance.run import Setting, run_all, run_file
from nnbridge.conformance.variants import VARIANTS
from nnbridge.cpu.settings import Settings, preparing
from nnbridge.devices.device import Support
from nnbridge.errors import InputError
from nnbridge.model import Model
from tests.commands import call
from tests.conftest import shared_folder
from tests.runtime.drivers import Driver

CASES = shared_folder() / "vts"
SPECS = sorted(CASES.glob("*/*.json.gz")) if CASES.is_dir() else []
SUITES = sorted({path.parent.name for path in SPECS}) or ["none"]


def _float_case(expected: float, *, relaxed: bool = False) -> Case:
    operand = {"type": "TENSOR_FLOAT32", "dims": [1], "lifetime": "SUBGRAPH_OUTPUT"}
    model = {"operands": [operand], "operations": [], "inputs": [], "outputs": [0]}
    data = {"name": "one", "relaxed": relaxed, "expect_failure": False, "model": model, "inputs": [], "outputs": [[expected]]}
    return Case("suite", "spec", data)


@pytest.mark.parametrize(("found", "relaxed", "passes"), [(1.00001, False, True), (1.00002, False, False), (1.009, True, True)])
def test_floats_are_checked_at_the_harness_tolerance(found: float, relaxed: bool, passes: bool) -> None:
    # 1e-5 + 5 ulp of 1.0 = 1.06e-5; relaxed 2 * 5 * 2**-10 = 0.00977.
    failure = check_outputs(_float_case(1.0, relaxed=relaxed), [np.array([found], np.float32)])
    assert (failure is None) == passes


def test_wrong_dimensions_fail() -> None:
    failure = check_outputs(_float_case(1.0), [np.ones((1, 1), np.float32)])
    assert failure is not None
    assert "dimensions [1], found [1, 1]" in failure.message


@pytest.mark.parametrize(
    ("samples", "message"),
    [
        ([[0, 1, 0, 1]], None),
        ([[0, 1, 1, 1]], "class frequencies off by 0.25"),
        ([[0, -1, 0, 1]], "classes from 0 to 1, found from -1 to 1"),
        ([[0, 2, 0, 1]], "classes from 0 to 1, found from 0 to 2"),
        ([], "1 rows of classes, found dimensions [0]"),
    ],
)
def test_drawn_classes_are_checked_by_their_frequencies(samples: list[list[int]], message: str | None) -> None:
    model = {"operands": [{"type": "TENSOR_FLOAT32", "dims": [1, 2], "lifetime": "SUBGRAPH_INPUT"}], "inputs": [0]}
    case = Case("suite", "spec", {"model": model, "inputs": [[0.5, 0.5]], "multinomial_tolerance": 0.1})
    failure = check_outputs(case, [np.array(samples, np.int32)])
    assert failure is None if message is None else failure is not None and message in failure.message


@pytest.mark.parametrize("suite", SUITES)
@pytest.mark.parametrize("variant", [None, *VARIANTS])
def test_every_case_passes(cases: Path, suite: str, variant: str | None) -> None:
    """With compiled kernels, where there are any; ``tests/compiled/`` holds them to the reference kernels bit for bit."""
    files = [path for path in SPECS if path.parent.name == suite]
    outcome = run_all(files, Setting(variant=variant), jobs=1)
    assert outcome.failures == []
    if variant is None:
        assert outcome.suites[suite]["total"] > 0


@pytest.mark.parametrize("suite", SUITES)
def test_every_case_passes_split_over_three_devices_at_random(cases: Path, suite: str) -> None:
    outcome = run_all([path for path in SPECS if path.parent.name == suite], Setting(split=1), jobs=1)
    assert outcome.failures == []


@pytest.mark.parametrize("suite", SUITES)
def test_every_case_passes_on_the_reference_kernels(cases: Path, suite: str) -> None:
    files = [path for path in SPECS if path.parent.name == suite]
    with preparing(Settings("reference")):
        assert run_all(files, Setting(), jobs=1).failures == []


def test_a_device_that_answers_wrongly_fails(cases: Path) -> None:
    outcome = run_file(cases / "V1_0" / "add.json.gz", Setting(device="tests.runtime.wrong:WRONG"))
    assert outcome.failures
    assert not outcome.passed


def test_cases_that_a_driver_does_not_accept_whole_are_skipped_and_nothing_else_is(cases: Path) -> None:
    outcome = run_all(spec_files(cases, specs=("relu_float_1", "relu_quant8_2")), Setting("nnapi-sample_float_fast"), 1)
    tally = outcome.suites["V1_0"]
    assert (tally["passed"], tally["failed"], tally["not_taken"]) == (2, 0, 2)
    assert outcome.passed
    assert not run_all(spec_files(cases, specs=("relu_quant8_2",)), Setting("nnapi-sample_float_fast"), 1).passed


def test_a_variant_that_no_case_has_is_bad_input(cases: Path) -> None:
    result = call("vts", cases, "--spec", "relu_float_1", "--variant", "signed")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "cases that are of this variant, found none" in result.stderr


def test_a_device_that_accepts_no_case_whole_fails_and_that_is_reported(cases: Path) -> None:
    result = call("vts", cases, "--spec", "relu_float_1", "--device", "nnapi-sample_quant")
    assert result.exit_code == 1
    assert result.stdout.endswith("FAIL: no case ran; nnapi-sample_quant accepts none of them completely\n")


class _Raises(Driver):
    def supported_operations(self, model: Model) -> Sequence[Support]:
        raise RuntimeError("bug in my driver")


class _TooMany(Driver):
    def supported_operations(self, model: Model) -> Sequence[Support]:
        return [False] * 100


RAISES, TOO_MANY = _Raises("raises"), _TooMany("too-many")


@pytest.mark.parametrize(
    ("device", "message"),
    [
        ("RAISES", "getSupportedOperations: RuntimeError: bug in my driver"),
        ("TOO_MANY", "getSupportedOperations: 100 answers for 1 operations"),
    ],
)
def test_a_driver_that_cannot_be_asked_fails(device: str, message: str, cases: Path) -> None:
    arguments = ["vts", str(cases), "--spec", "relu_float_1", "--device", f"tests.test_conformance:{device}"]
    result = call(*arguments)
    assert result.exit_code == 1
    assert message in result.stdout


def test_models_that_must_be_refused_are_no_cases_that_ran() -> None:
    files = [path for path in SPECS if path.parent.name == "V1_2" and path.name.startswith("quantize_quant8")]
    refused = CaseResult("s", "p", "c", REFUSED)
    skipped = CaseResult("s", "p", "d", NOT_TAKEN)
    assert (SuiteOutcome([refused, skipped]).nothing_ran, SuiteOutcome([refused]).nothing_ran, SuiteOutcome([]).nothing_ran) == (
        True,
        False,
        True,
    )
    assert files == [] or not run_all(files, Setting(), 1).nothing_ran


def test_cases_that_are_not_taken_are_counted_by_operation_and_reason(cases: Path) -> None:
    arguments = ["vts", str(cases), "--spec", "relu_float_1", "--spec", "relu_quant8_2", "--device", "nnapi-sample_float_fast"]
    found = json.loads(call(*arguments, "--json").stdout)
    counts = {"passed": 2, "failed": 0, "refused_as_expected": 0, "not_taken": 2, "total": 4}
    assert found["operations"]["RELU"] == counts
    reasons = {reason["operation"]: reason for reason in found["unsupported"]}
    assert (reasons["RELU"]["found"], reasons["RELU"]["cases"]) == ("TENSOR_QUANT8_ASYMM", 2)
    shown = call(*arguments).stdout
    assert "Operations of cases that were not accepted" in shown
    assert "TENSOR_QUANT8_ASYMM" in shown


def test_junit_has_a_test_case_for_each_case(cases: Path, tmp_path: Path) -> None:
    specs = ("--spec", "relu_float_1", "--spec", "relu_quant8_2")
    for device, counts, status in (
        ("nnapi-sample_float_fast", ("4", "0", "2"), 0),
        ("tests.test_conformance:RAISES", ("4", "4", "0"), 1),
    ):
        path = tmp_path / "results.xml"
        arguments = ["vts", str(cases), *specs, "--device", device, "--junit", str(path)]
        assert call(*arguments).exit_code == status
        (suite,) = ElementTree.parse(path).getroot()
        assert suite.get("name") == "V1_0"
        assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == counts
        assert len(suite.findall("testcase")) == 4
        assert {case.get("classname") for case in suite} == {"V1_0.relu_float_1", "V1_0.relu_quant8_2"}
        assert len(suite.findall("testcase/failure")) == int(counts[1])
        assert len(suite.findall("testcase/skipped")) == int(counts[2])


def test_junit_does_not_replace_a_spec(tmp_path: Path) -> None:
    folder = _spec(tmp_path, {"cases": []})
    result = call("vts", folder, "--junit", folder / "V1_0" / "bad.json.gz")
    assert result.exit_code == 2
    assert "--junit: expected a file other than the cases" in result.stderr


def _spec(folder: Path, content: object) -> Path:
    (folder / "V1_0").mkdir(exist_ok=True)
    with gzip.open(folder / "V1_0" / "bad.json.gz", "wt") as file:
        json.dump(content, file)
    return folder


def _case(**changes: Any) -> dict[str, Any]:
    return {**_float_case(1.0).data, **changes}


WRONG_FORMS = {
    "an object with cases": {},
    "the file: expected an object, found a list": [],
    "the file: expected an object, found a whole number": 3,
    "the file.cases: expected a list, found a whole number": {"cases": 3},
    "the file.cases[0]: expected an object with name": {"cases": [{}]},
    "the file.cases[0].relaxed: expected true or false, found null": {"cases": [_case(relaxed=None)]},
    "case one: expected values for the model's 0 inputs, found 1": {"cases": [_case(inputs=[[1]])]},
    "case one: expected numbers, NaN, Infinity, -Infinity, found 'one'": {"cases": [_case(outputs=[["one"]])]},
    "case one: expected one of the 0 operands, found 0": {
        "cases": [_case(model={**_float_case(1.0).data["model"], "operands": []})]
    },
}


@pytest.mark.parametrize("message", WRONG_FORMS)
def test_json_of_another_form_is_bad_input_that_names_the_file(message: str, tmp_path: Path) -> None:
    result = call("vts", str(_spec(tmp_path, WRONG_FORMS[message])), "--jobs", "1")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith(f"nnbridge: {tmp_path / 'V1_0' / 'bad.json.gz'}: ")
    assert message in result.stderr


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--suite", "V1_0", "--suite", "nosuch"], "--suite: expected a suite of {} (V1_0), found nosuch"),
        (["--spec", "bad", "--spec", "bat"], "--spec: expected a spec of {} (1, such as bad), found bat"),
    ],
)
def test_a_suite_or_spec_that_is_not_there_is_bad_input(options: list[str], message: str, tmp_path: Path) -> None:
    result = call("vts", str(_spec(tmp_path, {"cases": [_case()]})), *options)
    assert (result.exit_code, result.stdout) == (2, "")
    assert message.format(tmp_path) in result.stderr


DAMAGED = {
    "empty": b"",
    "text": b"no gzip",
    "cut": gzip.compress(b"{", mtime=0)[:-4],
    "noise": gzip.compress(b"x" * 99, mtime=0)[:12] + b"\xff" * 20,
    "deep": gzip.compress(b"[" * 99999, mtime=0),
}


@pytest.mark.parametrize("damage", DAMAGED)
def test_a_damaged_spec_is_bad_input_that_names_the_file(damage: str, tmp_path: Path) -> None:
    path = _spec(tmp_path, {}) / "V1_0" / "bad.json.gz"
    path.write_bytes(DAMAGED[damage])
    result = call("vts", tmp_path)
    assert (result.exit_code, result.stdout) == (2, "")
    assert f"{path}: expected a gzipped JSON spec, found" in result.stderr


def test_the_first_failures_are_printed_the_others_counted_and_the_verdict_is_last(tmp_path: Path) -> None:
    cases = [_case(name=f"case{i}", expect_failure=False, inputs=[]) for i in range(30)]
    result = call("vts", str(_spec(tmp_path, {"cases": cases})), "--jobs", "1", "--top", 20)
    assert result.exit_code == 1
    lines = result.stdout.splitlines()
    assert sum(line.startswith("V1_0/bad case") for line in lines) == 20
    assert lines[-2:] == ["10 more rows: --top 0 shows all", "FAIL: 30 failed of 30 cases on nnapi-reference"]


@pytest.mark.parametrize(
    ("suites", "specs", "found"),
    [
        ((), ("a*",), ["V1_0/abs", "V1_2/add", "V1_3/abs"]),
        (("V1_[03]",), (), ["V1_0/abs", "V1_0/conv_1", "V1_3/abs"]),
        (("V1_0", "V1_2"), ("conv_?", "add"), ["V1_0/conv_1", "V1_2/add"]),
        ((), ("abs", "conv_*"), ["V1_0/abs", "V1_0/conv_1", "V1_3/abs"]),
    ],
)
def test_suites_and_specs_are_chosen_by_pattern(
    suites: Sequence[str], specs: Sequence[str], found: list[str], tmp_path: Path
) -> None:
    for name in ("V1_0/abs", "V1_0/conv_1", "V1_2/add", "V1_3/abs"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / f"{name}.json.gz").touch()
    files = spec_files(tmp_path, suites, specs)
    assert [f"{file.parent.name}/{file.name.removesuffix('.json.gz')}" for file in files] == found
    with pytest.raises(InputError, match=r"expected a spec of .*found conv_z\*"):
        spec_files(tmp_path, (), ("conv_z*",))


def test_cases_on_a_device_whose_arithmetic_nothing_emulates_do_not_pass_as_its_numbers(cases: Path) -> None:
    result = call("vts", cases, "--spec", "relu_float_1", "--device", "arm-nn-21.11")
    assert result.exit_code == 0
    assert "arm-nn-21.11: rules: ARM-software/android-nn-driver" in result.stdout
    assert result.stdout.endswith("numbers unknown (computed as NNAPI's CPU): 2 passed of 2 cases on arm-nn-21.11\n")
