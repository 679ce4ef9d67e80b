"""What ``--json`` prints is what docs/schemas describes: one schema for each command, one run or more of each."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from nnbridge import devices, load
from nnbridge.cli.commands import cli
from nnbridge.export.cases import model_data
from tests.conftest import MODELS

SCHEMAS = Path(__file__).parents[1] / "docs" / "schemas"
INT8, QDQ, DYNAMIC = (str(MODELS / name) for name in ("digits_int8.tflite", "digits_qdq.onnx", "digits_dynamic.tflite"))
FLOAT32 = str(MODELS / "digits_float32.tflite")
PROFILES = Path(devices.__file__).parent / "data"
DRIVER = ("--device", "nnapi-sample_minimal")
RUNS: dict[str, tuple[tuple[str, ...], ...]] = {
    "bench": ((INT8, "--rounds", "3", "--no-first"),),
    "bisect": (
        (FLOAT32, *DRIVER, "--predicate", "differs"),
        (INT8, "--device", "tests.reduction.drivers:STEP", "--same-process"),
    ),
    "compare": (
        (INT8, "--reference", "litert", "--seeds", "0"),
        (QDQ, "--reference", "onnxruntime", "--seeds", "2", "--plan", *DRIVER),
        (DYNAMIC, "--reference", "litert", "--layers", "--seeds", "0"),
        (INT8, "--envelope", "--reference", "litert", "--seeds", "0"),
    ),
    "convert": ((INT8, "-o", "{folder}/model.nnapi"), (INT8, "-o", "{folder}/model.c")),
    "delegate": (("build", "{folder}/delegate"),),
    "devices": ((), ("--profiles",)),
    "devices ask": (("arm-nn-21.11", "{folder}/models.jsonl"), ("vsi-imx-1.3.0", "{folder}/models.jsonl")),
    "devices check": (("{profiles}/arm_nn.toml",),),
    "devices explain": (("arm-nn-21.11",), ("arm-nn-21.11", "CONV_2D")),
    "devices learn": (("{folder}/models.jsonl", "-o", "{folder}/npu.toml"),),
    "doctor": ((),),
    "extract": ((INT8, "--operations", "2-3", "-o", "{folder}/part.tflite", "--samples", "{folder}/part.npz"),),
    "export-overlay": ((INT8, "-o", "{folder}/overlay.json", "--reference", "litert", "--time", *DRIVER),),
    "inspect": ((INT8,), (QDQ,)),
    "matrix": ((INT8, "--devices", "samples", "--store", "{folder}/matrix.db"),),
    "neuron": (("build", "{folder}/neuron"),),
    "ndk": (("env", "{folder}"),),
    "plan": ((INT8,), (QDQ, *DRIVER), (QDQ, "--device", "arm-nn-21.11", "--advice")),
    "provider": (("build", "{folder}/provider"),),
    "reduce": ((INT8, "--device", "tests.reduction.drivers:STEP", "--same-process", "-o", "{folder}/part"),),
    "report": (
        (INT8, "-o", "{folder}/page.html"),
        (INT8, "-o", "{folder}/page.html", "--reference", "litert", "--seeds", "0", *DRIVER),
    ),
    "rewrite": (("{real}/split_concat.tflite", "--device", "arm-nn-21.11", "--advice", "1", "-o", "{folder}/out.tflite"),),
    "run": ((INT8, "--seed", "0"), (QDQ, "--seed", "0", "--repeat", "2", "--profile", *DRIVER)),
    "warmup": ((INT8,),),
    "vts": (("{vts}", "--spec", "abs"),),
}
"""Command → its options in each run. A file of schemas has hyphens in place of spaces."""


def schema(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((SCHEMAS / f"{name}.json").read_text())
    return found


def validator(name: str) -> Any:
    jsonschema, referencing = pytest.importorskip("jsonschema"), pytest.importorskip("referencing")
    jsonschema.Draft202012Validator.check_schema(schema(name))
    common = referencing.Resource.from_contents(schema("common"))
    registry = referencing.Registry().with_resource("common.json", common)
    return jsonschema.Draft202012Validator(schema(name), registry=registry)


def test_every_command_has_a_schema_and_a_run() -> None:
    known = {path.stem for path in SCHEMAS.glob("*.json")} - {"common"}
    assert known == {name.replace(" ", "-") for name in RUNS}
    assert {name.split()[0] for name in RUNS} == set(cli.list_commands(click.Context(cli)))


@pytest.mark.parametrize(("name", "options"), [(name, options) for name, runs in RUNS.items() for options in runs])
def test_json_is_as_its_schema_says(name: str, options: tuple[str, ...], tmp_path: Path, request: pytest.FixtureRequest) -> None:
    folders = {"{folder}": tmp_path, "{profiles}": PROFILES}
    for mark, fixture in (("{vts}", "cases"), ("{real}", "real_models")):
        if any(mark in option for option in options):
            folders[mark] = request.getfixturevalue(fixture)
    if name in ("delegate", "neuron"):
        pytest.importorskip("cffi")
    typed = [re.sub(r"\{\w+\}", lambda found: str(folders[found[0]]), option) for option in options]
    (tmp_path / "libneuralnetworks.so").touch()  # what `ndk env` looks for
    question = {"model": model_data(load(INT8)), "supported": [True] * 11, "device": "npu"}
    (tmp_path / "models.jsonl").write_text(json.dumps(question))
    result = CliRunner().invoke(cli, [*name.split(), *typed, "--json"])
    assert result.exit_code in (0, 1), result.stderr
    found = validator(name.replace(" ", "-")).iter_errors(json.loads(result.stdout))
    assert [f"{error.json_path}: {error.message[:200]}" for error in found] == []


def test_a_schema_refuses_an_answer_without_its_keys() -> None:
    assert list(validator("plan").iter_errors({"model": "m"}))
