"""What ``--json`` prints is what docs/schemas describes: one schema for each command, one run or more of each."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from nnbridge import devices, load
from nnbridge.cli.commands import cli
from nnbridge.export.cases import model_data
from tests.conftest import MODELS
from tests.devices.test_serve_command import Served
from tests.neuron.litert import needs as neuron_needs

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
    "build delegate": (("{folder}/delegate",),),
    "build ndk": (("{folder}/ndk",),),
    "build ndk-env": (("{folder}",),),
    "build neuron": (("{folder}/neuron",),),
    "build neuron-file": ((INT8, "--device", "nnapi-reference", "-o", "{folder}/compiled.tflite"),),
    "build provider": (("{folder}/provider",),),
    "compare": (
        (INT8, "--reference", "litert", "--seeds", "0"),
        (QDQ, "--reference", "onnxruntime", "--seeds", "2", "--plan", *DRIVER),
        (DYNAMIC, "--reference", "litert", "--layers", "--seeds", "0"),
        (INT8, "--envelope", "--reference", "litert", "--seeds", "0"),
    ),
    "convert": (
        (INT8, "-o", "{folder}/model.nnapi"),
        (INT8, "-o", "{folder}/model.c"),
        (INT8, "--operations", "2-3", "-o", "{folder}/part.tflite", "--samples", "{folder}/part.npz"),
    ),
    "devices": ((), ("--profiles",)),
    "devices ask": (("arm-nn-21.11", "{folder}/models.jsonl"), ("vsi-imx-1.3.0", "{folder}/models.jsonl")),
    "devices check": (("{profiles}/arm_nn.toml",),),
    "devices explain": (("arm-nn-21.11",), ("arm-nn-21.11", "CONV_2D")),
    "devices find": (("i.MX 8M Plus",), ("pixel", "8")),
    "devices learn": (("{folder}/models.jsonl", "-o", "{folder}/npu.toml"),),
    "devices serve": (("nnapi-sample_minimal", "--socket", "{folder}/socket"),),
    "doctor": ((), ("--warm", INT8)),
    "inspect": ((INT8,), (QDQ,)),
    "matrix": (
        (INT8, "--devices", "samples", "--store", "{folder}/matrix.db"),
        (QDQ, "--device", "hexagon,vsi-nn-sl", "--reference", "auto", "--store", "{folder}/more.db"),
    ),
    "plan": (
        (INT8,),
        (QDQ, *DRIVER),
        (QDQ, "--device", "arm-nn-21.11", "--advice"),
        (INT8, *DRIVER, "--explain-log", "{tests}/site/phone.log"),
    ),
    "reduce": ((INT8, "--device", "tests.reduction.drivers:STEP", "--same-process", "-o", "{folder}/part"),),
    "report": (
        (INT8, "-o", "{folder}/page.html"),
        (INT8, "-o", "{folder}/page.html", "--reference", "litert", "--seeds", "0", *DRIVER),
        (INT8, "-o", "{folder}/overlay.json", "--reference", "litert", "--time", *DRIVER),
        (INT8, "-o", "{folder}/page.html", "--overlay", "{folder}/overlay.json"),
    ),
    "rewrite": (("{real}/split_concat.tflite", "--device", "arm-nn-21.11", "--advice", "1", "-o", "{folder}/out.tflite"),),
    "run": ((INT8, "--seed", "0"), (QDQ, "--seed", "0", "--repeat", "2", "--profile", *DRIVER)),
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


def commands_with_json(command: click.Command, name: str = "") -> Iterator[str]:
    if any("--json" in parameter.opts for parameter in command.params):
        yield name
    if isinstance(command, click.Group):
        for inner in command.list_commands(click.Context(command)):
            found = command.get_command(click.Context(command), inner)
            assert found is not None
            yield from commands_with_json(found, f"{name} {inner}".strip())


def test_every_command_with_json_has_a_schema_and_a_run() -> None:
    known = {path.stem for path in SCHEMAS.glob("*.json")} - {"common"}
    assert known == {name.replace(" ", "-") for name in RUNS}
    assert sorted(RUNS) == sorted(commands_with_json(cli))


def answer(name: str, options: Sequence[str]) -> Any:
    """What a command prints; of one that runs until it is stopped, the first line."""
    if name == "devices serve":
        path = options[options.index("--socket") + 1]
        with Served(path, options[0], "--json") as served:
            assert served.process.stdout is not None
            return json.loads(served.process.stdout.readline())
    result = CliRunner().invoke(cli, [*name.split(), *options, "--json"])
    assert result.exit_code in (0, 1), result.stderr
    return json.loads(result.stdout)


@pytest.mark.parametrize(("name", "options"), [(name, options) for name, runs in RUNS.items() for options in runs])
def test_json_is_as_its_schema_says(name: str, options: tuple[str, ...], tmp_path: Path, request: pytest.FixtureRequest) -> None:
    folders = {"{folder}": tmp_path, "{profiles}": PROFILES, "{tests}": Path(__file__).parent}
    for mark, fixture in (("{vts}", "cases"), ("{real}", "real_models")):
        if any(mark in option for option in options):
            folders[mark] = request.getfixturevalue(fixture)
    if name.startswith("build ") and name.removeprefix("build ") in ("ndk", "delegate", "provider", "neuron"):
        pytest.importorskip("cffi")
        if shutil.which("cc") is None and shutil.which("gcc") is None:
            pytest.skip("there is no C compiler on this machine")
    if name == "build neuron-file":
        neuron_needs()
    typed = [re.sub(r"\{\w+\}", lambda found: str(folders[found[0]]), option) for option in options]
    (tmp_path / "libneuralnetworks.so").touch()  # what `build ndk-env` looks for
    question = {"model": model_data(load(INT8)), "supported": [True] * 11, "device": "npu"}
    (tmp_path / "models.jsonl").write_text(json.dumps(question))
    found = validator(name.replace(" ", "-")).iter_errors(answer(name, typed))
    assert [f"{error.json_path}: {error.message[:200]}" for error in found] == []


def test_a_schema_refuses_an_answer_without_its_keys() -> None:
    assert list(validator("plan").iter_errors({"model": "m"}))
