"""Conformance cases made from specs of Android's test generator: AOSP's own where it is named, else a stand-in."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nnbridge import export
from nnbridge.conformance.cases import read_cases, spec_files
from tests.commands import call
from tests.conftest import REPOSITORY
from tests.export.test_cases import MODELS

GENERATOR = Path("tools/test_generator/test_generator.py")
RELU = """
x, y, z = Input("x", ("TENSOR_FLOAT32", [2])), Output("y", ("TENSOR_FLOAT32", [2])), IgnoredOutput("z", ("TENSOR_FLOAT32", [2]))
model = Model().IntroducedIn("V1_0").Operation("RELU", x).To(y).Operation("RELU", x).To(z)
print("not shown")
Example({x: [-1.0, 0.1], y: [0.0, 0.1], z: [0, 0]}, model=model)
"""


def checkout() -> Path:
    """The checkout of AOSP that NNBRIDGE_AOSP names; skips the test where it names none."""
    if "NNBRIDGE_AOSP" not in os.environ:
        pytest.skip("needs a checkout of AOSP's packages/modules/NeuralNetworks, which NNBRIDGE_AOSP names")
    return Path(os.environ["NNBRIDGE_AOSP"])


@pytest.fixture(params=["stand-in", "AOSP"])
def aosp(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A folder laid out as AOSP's, with no spec."""
    source = Path(__file__).with_name("generator_stand_in.py")
    if request.param == "AOSP":
        source = checkout() / GENERATOR
    (tmp_path / "aosp" / GENERATOR).parent.mkdir(parents=True)
    shutil.copy(source, tmp_path / "aosp" / GENERATOR)
    return tmp_path / "aosp"


def spec_path(aosp: Path, name: str = "relu", suite: str = "V1_0") -> Path:
    path = aosp / "runtime/test/specs" / suite / f"{name}.mod.py"
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def made(aosp: Path, *arguments: str, folder: Path | None = None) -> subprocess.CompletedProcess[str]:
    script = str(REPOSITORY / "scripts/conformance/make_cases.py")
    command = [sys.executable, script, str(aosp), str(folder or aosp.parent / "cases"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)


def numbered(case: Mapping[str, Any]) -> dict[str, Any]:
    """A case with its operands numbered as they are named by inputs, outputs and operations, and its numbers as float32."""
    graphs = [case["model"], *case["model"].get("referenced", [])]

    def graph(content: Mapping[str, Any]) -> dict[str, Any]:
        order: list[int] = []
        for holder in (content, *content["operations"]):
            order += [i for i in (*holder["inputs"], *holder["outputs"]) if i not in order]
        roles = ("inputs", "outputs")
        return {
            "operands": [operand(content["operands"][i]) for i in order],
            "operations": [
                {"type": o["type"]} | {r: [order.index(i) for i in o[r]] for r in roles} for o in content["operations"]
            ],
        } | {role: [order.index(i) for i in content[role]] for role in roles}

    def operand(content: Mapping[str, Any]) -> dict[str, Any]:
        if content["type"] == "SUBGRAPH":
            return {"body": graph(graphs[content["value"][0] + 1])}
        # Where a constant lies is not said by a spec.
        plain = {"scale": 0, "zero_point": 0} | content | {"lifetime": content["lifetime"].replace("REFERENCE", "COPY")}
        return plain | ({"value": numbers(content["value"])} if "value" in content else {})

    def numbers(values: Any) -> list[float]:
        return np.array(values, np.float32).tolist()  # type: ignore[no-any-return]

    values = {role: [numbers(v) for v in case[role]] for role in ("inputs", "outputs")}
    return {"name": case["name"], "relaxed": case["relaxed"], "model": graph(case["model"])} | values


@pytest.mark.parametrize("name", MODELS)
def test_an_exported_spec_makes_the_exported_case(aosp: Path, name: str) -> None:
    model, written = MODELS[name](), aosp.parent / "V1_0" / f"{name}.json.gz"
    written.parent.mkdir()
    export.write(model, written, name)
    export.write(model, spec_path(aosp, name), name)
    done = made(aosp)
    assert (done.returncode, done.stderr) == (0, "")
    first = next(read_cases(aosp.parent / "cases/V1_0" / f"{name}.json.gz"))
    assert numbered(first.data) == numbered(next(read_cases(written)).data)


def test_values_are_as_short_as_the_type_allows_and_ignored_outputs_have_none(aosp: Path) -> None:
    spec_path(aosp).write_text(RELU.replace("-1.0, 0.1]", "-1.0, 0.10000000149]"))
    assert made(aosp).stdout.endswith("1 specs; 0 specs have no example, 0 failed\n")
    data = next(read_cases(aosp.parent / "cases/V1_0/relu.json.gz")).data
    assert (data["inputs"], data["outputs"]) == ([[-1, 0.1]], [[0, 0.1], None])
    assert (data["min_version"], data["ignored_outputs"], data["expect_failure"]) == ("V1_0", [1], False)
    (entry,) = json.loads((aosp.parent / "cases/index.json").read_text())
    assert (entry["suite"], entry["spec"], entry["operations"]) == ("V1_0", "relu", ["RELU"])
    assert call("vts", aosp.parent / "cases").exit_code == 0


KINDS = """
scales = SymmPerChannelQuantParams(channelDim=1, scales=[0.5, 0.25])
ins = [
    Input("half", ("TENSOR_FLOAT16", [3])),
    Input("float", ("TENSOR_FLOAT32", [4])),
    Input("flag", ("TENSOR_BOOL8", [2])),
    Input("byte", ("TENSOR_QUANT8_ASYMM", [1], 0.1, 128)),
    Input("omitted", ("TENSOR_INT32", [4])),
    Input("hidden", ("TENSOR_INT32", [2]), extraParams=SymmPerChannelQuantParams(1, [0.5, 0.25], hide=True)),
    Parameter("channels", ("TENSOR_QUANT8_SYMM_PER_CHANNEL", [1, 2]), [1, -1], extraParams=scales),
    Parameter("none", ("TENSOR_INT32", [0]), None),
]
out = Output("out", ("TENSOR_INT32", [0]))
values = [[2049.0, 1.6666666, 1e6], [float("nan"), -0.0, 16777217.0, 1e-6], [0, 1], [130], [], [7, 8], [3]]
operands = [*ins[:6], out]
model = Model().IntroducedIn("V1_2").Operation("PACK", *ins).To(out)
Example(dict(zip(operands, values)), model=model).ExpectFailure()
"""


def test_values_and_operands_of_every_kind(aosp: Path) -> None:
    spec_path(aosp).write_text(KINDS)
    assert made(aosp).stderr == ""
    data = next(read_cases(aosp.parent / "cases/V1_0/relu.json.gz")).data
    # Halves by hand: 2049 is between 2048 and 2050, and the even one is taken; 1.6669921875 is 1.667; 65504 is the largest.
    half, floats, *others = data["inputs"]
    assert half == [2048, 1.667, "Infinity"]
    assert [str(value) for value in floats] == ["NaN", "-0.0", "16777216", "1e-06"]
    assert others == [[False, True], [130], [], [7, 8]]
    assert (data["outputs"], data["expect_failure"], data["min_version"]) == ([[3]], True, "V1_2")
    operands = data["model"]["operands"]
    assert operands[3] == {
        "type": "TENSOR_QUANT8_ASYMM",
        "dims": [1],
        "lifetime": "SUBGRAPH_INPUT",
        "scale": 0.1,
        "zero_point": 128,
    }
    assert "channel_quant" not in operands[5]
    assert operands[6]["channel_quant"] == {"scales": [0.5, 0.25], "channel_dim": 1}
    assert (operands[6]["lifetime"], operands[6]["value"]) == ("CONSTANT_COPY", [1, -1])
    assert operands[7] == {"type": "TENSOR_INT32", "dims": [0], "lifetime": "NO_VALUE"}


FAULTS = {
    "crash": ("import os; os._exit(3)", "the process that ran it crashed"),
    "end": ("raise SystemExit('a\\nb')", "SystemExit: a b"),
    "missing": ("Missing()", "NameError: name 'Missing' is not defined"),
    "operation": (RELU.replace("RELU", "SOFT_RELU"), "expected an operation type of NNAPI's, found SOFT_RELU"),
    "syntax": ("1 +", "SyntaxError: invalid syntax"),
    "text": (RELU.replace("x: [-1.0, 0.1]", "x: ['one', 0.1]"), "could not convert string to float: 'one'"),
}


def test_specs_that_fail_are_named_and_the_others_are_written(aosp: Path) -> None:
    for name, (text, _) in FAULTS.items():
        spec_path(aosp, name).write_text(text)
    spec_path(aosp).write_text(RELU)
    spec_path(aosp, "none").write_text("")
    done = made(aosp)
    assert (done.returncode, done.stdout.partition(": ")[2]) == (1, "1 cases of 1 specs; 1 specs have no example, 6 failed\n")
    for line, (name, (_, reason)) in zip(done.stderr.splitlines(), FAULTS.items(), strict=True):
        assert line.startswith(f"V1_0/{name}: ")
        assert reason in line
    assert [path.name for path in (aosp.parent / "cases/V1_0").iterdir()] == ["relu.json.gz"]


def test_only_picks_specs_by_suite_and_name(aosp: Path) -> None:
    for suite, name in (("V1_0", "relu"), ("V1_0", "tanh"), ("V1_2", "relu")):
        spec_path(aosp, name, suite).write_text(RELU)
    assert made(aosp, "--only", "V1_0/r*", "--only", "V1_2/*").returncode == 0
    found = sorted((aosp.parent / "cases").glob("*/*"))
    assert [(path.parent.name, path.name) for path in found] == [("V1_0", "relu.json.gz"), ("V1_2", "relu.json.gz")]
    assert "expected a pattern of the 3 specs, such as V1_0/relu, found V9/*" in made(aosp, "--only", "V9/*").stderr


def test_every_case_is_as_in_the_stored_ones(cases: Path, tmp_path: Path) -> None:
    """The stored cases were made from Android 13's specs by other code."""
    made(checkout(), folder=tmp_path)
    stored = {path.relative_to(cases): [case.data for case in read_cases(path)] for path in spec_files(cases)}
    assert stored == {name: [case.data for case in read_cases(tmp_path / name)] for name in stored}


@pytest.mark.parametrize(
    ("generator", "message"),
    [
        (None, "expected AOSP's packages/modules/NeuralNetworks with tools/test_generator/test_generator.py, found none"),
        ("", "expected the test generator of Android 11 or newer, found ValueError: older than Android 11's"),
        ("import no_such_module", "found ModuleNotFoundError: No module named 'no_such_module'"),
        ("import os; os._exit(1)", "found the process that ran it crashed"),
    ],
)
def test_a_folder_without_a_generator_that_can_be_used_is_one_error(tmp_path: Path, generator: str | None, message: str) -> None:
    spec_path(tmp_path / "aosp").write_text(RELU)
    if generator is not None:
        (tmp_path / "aosp" / GENERATOR).parent.mkdir(parents=True)
        (tmp_path / "aosp" / GENERATOR).write_text(generator)
    done = made(tmp_path / "aosp")
    (line,) = done.stderr.splitlines()
    assert (done.returncode, done.stdout) == (2, "")
    assert message in line


def test_an_output_that_is_a_file_is_one_error(aosp: Path) -> None:
    spec_path(aosp).write_text(RELU)
    (aosp.parent / "cases").write_text("")
    done = made(aosp)
    (line,) = done.stderr.splitlines()
    assert done.returncode == 2
    assert "cases" in line


def test_a_folder_without_specs_is_one_error(aosp: Path) -> None:
    assert "expected specs, runtime/test/specs/SUITE/SPEC.mod.py, found none" in made(aosp).stderr
