"""``--json`` of each command agrees with its schema in docs/schemas, key for key: one run or more of each command."""

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
from nnbridge.json_data import OLD_KEYS, VERSIONS, document
from tests.commands import call
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
    "devices family": (("arm-nn",), ("ethos-u",)),
    "devices ask": (("arm-nn-21.11", "{folder}/models.jsonl"), ("vsi-imx-1.3.0", "{folder}/models.jsonl")),
    "devices check": (("{profiles}/arm_nn.toml",),),
    "devices explain": (("arm-nn-18.05",), ("arm-nn-21.11", "CONV_2D"), ("ethos-u55-128",)),
    "devices find": (("i.MX 8M Plus",), ("pixel", "8")),
    "devices learn": (("{folder}/models.jsonl", "-o", "{folder}/npu.toml"),),
    "devices serve": (("nnapi-sample_minimal", "--socket", "{folder}/socket"),),
    "doctor": ((), ("--warm", INT8)),
    "inspect": ((INT8,), (QDQ,), ("{real}/two_signature_keys.tflite",)),
    "matrix": (
        (INT8, "--devices", "samples", "--store", "{folder}/matrix.db"),
        ("--diff", "{folder}/before.db@nnapi-sample_minimal", "{folder}/before.db@nnapi-sample_all"),
        (QDQ, "--device", "hexagon,vsi-nn-sl", "--reference", "auto", "--store", "{folder}/more.db"),
    ),
    "plan": (
        (INT8,),
        (QDQ, *DRIVER),
        (QDQ, "--device", "arm-nn-21.11", "--advice", "--cost", "--since"),
        (FLOAT32, "--device", "arm-nn-21.11", "--advice", "--max-partitions", "1"),
        (INT8, "--device", "ethos-u55-128", "--optimise"),
        ("{real}/ssd_mobilenet_v1_quant_postprocess.tflite", "--device", "vsi-imx-1.3.0", "--advice", "--since"),
        ("{real}/mnist_lstm_float.tflite", "--mapping", "wide"),
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
    "vts": (("{vts}", "--spec", "abs"), ("{vts}", "--spec", "conv_float_2", "--device", "tests.test_streams:NAN")),
}
"""Command → its options in each run. A file of schemas has hyphens in place of spaces."""


def schema(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((SCHEMAS / f"{name}.json").read_text())
    return found


def validator(name: str) -> Any:
    """Validates the closed form of a schema: keys that it does not describe are refused."""
    jsonschema, referencing = pytest.importorskip("jsonschema"), pytest.importorskip("referencing")
    jsonschema.Draft202012Validator.check_schema(schema(name))
    registry = referencing.Registry().with_resources(
        (f"{each}.json", referencing.Resource.from_contents(closed(schema(each)))) for each in ("common", "plan")
    )
    return jsonschema.Draft202012Validator(closed(schema(name)), registry=registry)


def closed(node: Any, part: bool = False) -> Any:
    """A schema without other keys than those it describes. ``part``: others are beside it, which describe more of an object."""
    if not isinstance(node, dict):
        return node
    found = dict(node)
    for key in ("anyOf", "allOf"):
        if key in found:
            found[key] = [closed(each, True) for each in found[key]]
    for key in ("properties", "$defs"):
        if key in found:
            found[key] = {name: closed(each, key == "$defs") for name, each in found[key].items()}
    for key in ("items", "additionalProperties"):
        if key in found:
            found[key] = closed(found[key])
    if not part and found.keys() & {"properties", "anyOf", "allOf", "$ref"} and "additionalProperties" not in found:
        found["unevaluatedProperties"] = False
    return found


def commands(command: click.Command, option: str = "", name: str = "") -> Iterator[str]:
    """The commands that run something, those with an option if it is named."""
    runs = not isinstance(command, click.Group) or command.invoke_without_command
    if runs and (not option or any(option in parameter.opts for parameter in command.params)):
        yield name
    if isinstance(command, click.Group):
        for inner in command.list_commands(click.Context(command)):
            found = command.get_command(click.Context(command), inner)
            assert found is not None
            yield from commands(found, option, f"{name} {inner}".strip())


def test_every_command_with_json_has_a_schema_and_a_run() -> None:
    known = {path.stem for path in SCHEMAS.glob("*.json")} - {"common"}
    assert known == VERSIONS.keys()
    assert known == {name.replace(" ", "-") for name in RUNS} | {"error", "delegate-plans", "provider-plans"}
    assert sorted(RUNS) == sorted(commands(cli)) == sorted(commands(cli, "--json"))


def test_schemas_state_their_name_and_version() -> None:
    for name, version in VERSIONS.items():
        head = schema(name)
        assert {"schema", "version"} <= set(head["required"])
        assert head["properties"]["schema"] == {"const": f"nnbridge/{name}"}
        assert head["properties"]["version"] == {"const": version}


def answer(name: str, options: Sequence[str]) -> Any:
    """The output of a command; of one that runs until it is stopped, the first line."""
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
    if any("before.db" in option for option in options):
        call("matrix", INT8, "--devices", "samples", "--store", tmp_path / "before.db")
    found = answer(name, typed)
    assert mistakes(name.replace(" ", "-"), found) == []
    assert set(spoken(found)) <= OLD


def mistakes(name: str, found: Any) -> list[str]:
    return [f"{error.json_path}: {error.message[:300]}" for error in leaves(validator(name).iter_errors(found))]


def leaves(errors: Any) -> Iterator[Any]:
    """The innermost errors of those that are about alternatives."""
    for error in errors:
        yield from leaves(error.context) if error.context else [error]


OLD = {old for keys in OLD_KEYS.values() for old in keys.values()}
NNAPI_TYPES = {"TENSOR_FLOAT32", "TENSOR_FLOAT16", "TENSOR_QUANT8_ASYMM"}


def described(node: Any) -> Iterator[str]:
    """The keys that a schema names."""
    if isinstance(node, dict):
        yield from node.get("properties", {})
        for each in node.values():
            yield from described(each)
    elif isinstance(node, list):
        for each in node:
            yield from described(each)


@pytest.mark.parametrize("name", ["common", *VERSIONS])
def test_keys_are_words_of_small_letters(name: str) -> None:
    others = {key for key in described(schema(name)) if not re.fullmatch(r"[a-z][a-z0-9_]*", key)}
    assert others <= OLD | NNAPI_TYPES


def spoken(found: Any) -> Iterator[str]:
    """The keys of an output with blanks or apostrophes, without those in objects of the last release."""
    if isinstance(found, dict):
        for key, each in found.items():
            yield from [key] if re.search(r"[ '\"]", key) else []
            yield from spoken(each) if key not in ("elsewhere", "missing", "first_answer") else ()
    elif isinstance(found, list):
        for each in found:
            yield from spoken(each)


def test_old_keys_are_beside_the_new_ones_and_listed() -> None:
    made = document(
        "plan", {"counts": {"nnapi_cpu": 3, "host": 1}, "performance": {"X": {"exec_time": 2.0}}, "steps": [{"counts": {}}]}
    )
    assert made["counts"] == {"nnapi_cpu": 3, "NNAPI CPU": 3, "host": 1}
    assert made["performance"]["X"] == {"exec_time": 2.0, "execTime": 2.0}
    assert made["steps"] == [{"counts": {}}]
    page = (SCHEMAS / "README.md").read_text()
    for keys in OLD_KEYS.values():
        for new, old in keys.items():
            assert f"| `{old}` | `{new}` |" in page


def test_no_result_has_other_meanings_for_the_keys_of_every_document() -> None:
    with pytest.raises(ValueError, match="version is a key of every document"):
        document("devices-explain", {"version": "1.3.0"})
    with pytest.raises(ValueError, match="error is a key of every document"):
        document("plan", {"error": {}})
    assert document("plan", document("plan", {"model": "m"})) == document("plan", {"model": "m"})


@pytest.mark.parametrize("change", [{"version": None}, {"schema": "nnbridge/run"}, {"other": 1}, {"counts": {"NNAPI": 1}}])
def test_a_closed_schema_refuses_other_keys_and_values(change: dict[str, Any]) -> None:
    found = json.loads(call("plan", INT8, "--json").stdout)
    assert mistakes("plan", found) == []
    assert mistakes("plan", {**found, **change}) != []
