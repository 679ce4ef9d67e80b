"""With ``--json`` an error of any command is one JSON object on standard output; the sentence and the exit status stay."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest

from nnbridge.cli.commands import cli
from nnbridge.cli.errors import KINDS
from nnbridge.errors import (
    BadDataError,
    ConversionError,
    InputError,
    NnbridgeError,
    OptionError,
    PackageError,
    Reason,
    ShortageError,
    Why,
)
from tests.commands import call
from tests.conftest import MODELS, REPOSITORY
from tests.test_schemas import RUNS, commands, mistakes, schema
from tests.test_streams import nnbridge

INT8 = str(MODELS / "digits_int8.tflite")
COMMANDS = [*commands(cli)]
DRIVER = ("--device", "nnapi-sample_minimal")


def failed(*arguments: object) -> dict[str, Any]:
    """The error of a command, which is the only thing on standard output; without ``--json`` it ends alike and prints none."""
    result, plain = call(*arguments, "--json"), call(*arguments)
    assert result.exit_code == plain.exit_code != 0
    assert result.stderr == plain.stderr
    assert len(result.stdout.splitlines()) == 1
    found = json.loads(result.stdout)
    assert mistakes("error", found) == []
    error: dict[str, Any] = found["error"]
    assert all(line in result.stderr for line in error["message"].split("\n")) or error["kind"] == "interrupted"
    return error


@pytest.mark.parametrize("name", COMMANDS)
def test_an_unknown_option(name: str) -> None:
    error = failed(*name.split(), "--nope")
    assert (error["kind"], error["operand"], error["hint"]) == ("usage", "--nope", f"cli {name} --help")


@pytest.mark.parametrize("name", [name for name in COMMANDS if name not in ("devices", "doctor", "build ndk-env", "matrix")])
def test_a_missing_argument(name: str) -> None:
    error = failed(*name.split())
    assert (error["kind"], error["message"].partition(" ")[0]) == ("usage", "Missing")
    assert error["operand"]


@pytest.mark.parametrize("before", [(), ("-q",), ("--config", "none")])
@pytest.mark.parametrize(
    "typed", [("plna",), ("devices", "finds", "x"), ("build", "nope"), ("--nope",), ("ndk", "build", "--nope")]
)
def test_a_command_line_that_is_no_command(before: tuple[str, ...], typed: tuple[str, ...]) -> None:
    assert failed(*before, *typed)["kind"] == "usage"


REFUSED: dict[str, tuple[tuple[str, ...], dict[str, str]]] = {
    "no model": (("plan", "no.tflite"), {"kind": "model", "file": "no.tflite", "found": "no such file"}),
    "a file that is no model": (("inspect", "{text}"), {"kind": "model", "file": "{text}"}),
    "a folder as model": (("bench", "{folder}"), {"kind": "model", "file": "{folder}", "found": "a folder"}),
    "an option for another input": (("run", INT8, "--shape", "a=1"), {"kind": "option", "operand": "--shape", "file": INT8}),
    "a word that is no value": (("plan", INT8, "--host", "x"), {"kind": "usage", "operand": "--host"}),
    "a number below the least": (("run", INT8, "--repeat", "0"), {"kind": "usage", "operand": "--repeat"}),
    "no device": (("compare", INT8, "--reference", "litert", "--device", "nope"), {"kind": "input", "operand": "--device"}),
    "no device to explain": (("devices", "explain", "nope"), {"kind": "input", "operand": "device"}),
    "no input": (("run", INT8, "--input", "no.npy"), {"kind": "input", "file": "no.npy"}),
    "no labels": (("run", INT8, "--input", "{image}", "--labels", "no.txt"), {"kind": "input", "file": "no.txt"}),
    "no reference": (("compare", INT8, "--reference", "no.npz"), {"kind": "input", "file": "no.npz"}),
    "no folder to write to": (("convert", INT8, "-o", "{folder}/no/m.nnapi"), {"kind": "input", "file": "{folder}/no/m.nnapi"}),
    "a suffix": (("report", INT8, "-o", "x.pdf"), {"kind": "input", "operand": "--output"}),
    "options that exclude each other": (("compare", INT8, "--layers", "--envelope"), {"kind": "usage"}),
    "no hardware": (("devices", "find", "zzz"), {"kind": "input", "operand": "NAME", "found": "zzz"}),
    "a profile that is no TOML": (("devices", "check", "{text}"), {"kind": "input", "file": "{text}"}),
    "a profile of one mistake": (("devices", "check", "{profile}"), {"kind": "input", "file": "{profile}"}),
    "no questions": (("devices", "ask", "nnapi-reference", "no.jsonl"), {"kind": "input", "file": "no.jsonl"}),
    "no log": (("devices", "learn", "no.log", "-o", "p.toml"), {"kind": "input", "file": "no.log"}),
    "no log of a phone": (("plan", INT8, "--explain-log", "no.log"), {"kind": "input", "file": "no.log"}),
    "no cases": (("vts", "{folder}"), {"kind": "input"}),
    "no models": (("matrix", "no/", "--devices", "samples"), {"kind": "input", "file": "no/"}),
    "no stores": (("matrix", "--diff", "a.db", "b.db"), {"kind": "input", "file": "a.db"}),
    "no number of advice": (
        ("rewrite", INT8, "--advice", "9", "-o", "{folder}/x.tflite"),
        {"kind": "input", "operand": "--advice"},
    ),
    "no device to search": (("bisect", INT8), {"kind": "input"}),
    "no device to reduce on": (("reduce", INT8), {"kind": "input"}),
    "a library that is missing": (("build", "ndk-env", "{folder}"), {"kind": "input"}),
    "files that nothing reads": (("doctor", INT8), {"kind": "usage"}),
    "no defaults": (("--config", "no.toml", "plan", INT8), {"kind": "input", "file": "no.toml"}),
    "a format of another": (
        ("build", "neuron-file", "{text}", "--device", "nnapi-reference", "-o", "x.tflite"),
        {"file": "{text}"},
    ),
}


@pytest.mark.parametrize(("typed", "parts"), REFUSED.values(), ids=REFUSED)
def test_what_is_refused_is_named_as_data(
    typed: tuple[str, ...], parts: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    made = {name: tmp_path / name for name in ("folder", "text", "profile", "image")}
    made["folder"].mkdir()
    made["text"].write_text("no model, no profile\n")
    made["profile"].write_text('[[device]]\nname = "a"\nfeature_level = 9\noperations.ADD = {}\n')
    made["image"] = made["image"].with_suffix(".txt")
    made["image"].write_text(" ".join(["0"] * 64))

    def filled(text: str) -> str:
        for name, path in made.items():
            text = text.replace(f"{{{name}}}", str(path))
        return text

    error = failed(*map(filled, typed))
    assert {key: error.get(key) for key in parts} == {key: filled(value) for key, value in parts.items()}


def raising(error: BaseException, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands raise an error in place of what they do."""
    invoke: Callable[..., Any] = click.Context.invoke

    def broken(context: click.Context, callback: Any, *arguments: Any, **options: Any) -> Any:
        if context.parent is None or context.invoked_subcommand is not None:
            return invoke(context, callback, *arguments, **options)
        raise error

    monkeypatch.setattr(click.Context, "invoke", broken)


ERRORS: dict[str, tuple[BaseException, int, dict[str, object]]] = {
    "Ctrl-C": (KeyboardInterrupt(), 130, {"kind": "interrupted", "message": "interrupted"}),
    "memory": (MemoryError(), 2, {"kind": "shortage", "message": "not enough memory"}),
    "descriptors": (OSError(errno.EMFILE, "Too many"), 2, {"kind": "shortage", "code": "RESOURCE_EXHAUSTED_TRANSIENT"}),
    "a full disk": (OSError(errno.ENOSPC, "No space left", "f.npz"), 2, {"kind": "shortage"}),
    "a fault": (RuntimeError("odd"), 2, {"kind": "internal"}),
    "a call": (BadDataError(Reason("x", "y", file="m.tflite")), 2, {"kind": "nnapi", "code": "BAD_DATA", "file": "m.tflite"}),
    "a driver": (
        ConversionError(Reason("x", "y", "0: ADD", "input 1", kind=Why.RANK)),
        2,
        {"kind": "model", "operation": "0: ADD", "operand": "input 1", "rule": "x", "found": "y", "refusal": "rank"},
    ),
    "a package": (
        PackageError.needed("Pillow", "'.[images]'", "none"),
        2,
        {"kind": "package", "hint": "pip install '.[images]'"},
    ),
    "a limit": (ShortageError("no thread"), 2, {"kind": "shortage", "message": "no thread"}),
    "several": (
        InputError.of([Reason("a"), Reason("b", file="f")]),
        2,
        {"mistakes": [{"rule": "a"}, {"rule": "b", "file": "f"}]},
    ),
}


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize(("raised", "status", "parts"), ERRORS.values(), ids=ERRORS)
def test_an_error_while_a_command_runs(
    name: str, raised: BaseException, status: int, parts: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    raising(raised, monkeypatch)
    typed = [option.format(folder="f", profiles="p", tests="t", real="r", vts="v") for option in RUNS[name][0]]
    error = failed(*name.split(), *typed)
    assert {key: error.get(key) for key in parts} == parts
    assert call(*name.split(), *typed).exit_code == status


def test_a_file_that_the_system_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    raising(PermissionError(errno.EACCES, "Permission denied", "locked.bin"), monkeypatch)
    result = call("inspect", INT8, "--json")
    error = json.loads(result.stdout)["error"]
    assert error == {"kind": "file", "message": "locked.bin: Permission denied", "code": "EACCES", "file": "locked.bin"}


def test_every_class_of_errors_has_a_kind_that_the_schema_knows() -> None:
    stated = schema("error")["properties"]["error"]["properties"]["kind"]["enum"]
    assert {kind for _, kind in KINDS} == set(stated)
    for known in (OptionError, PackageError):  # The more special class is first.
        order = [kind for kind, _ in KINDS]
        assert order.index(known) < min(order.index(base) for base in known.__mro__[1:] if base in order)
    assert issubclass(KINDS[0][0], click.UsageError)
    assert all(issubclass(kind, (BaseException, NnbridgeError)) for kind, _ in KINDS)


def test_a_plan_that_fails_has_its_refusals_beside_the_error() -> None:
    result = call("plan", INT8, *DRIVER, "--fallback", "none", "--json")
    found = json.loads(result.stdout)
    assert (result.exit_code, found["schema"], found["version"], found["model"]) == (2, "nnbridge/error", 1, INT8)
    assert (found["error"]["kind"], found["error"]["code"], found["error"]["file"]) == ("nnapi", "BAD_DATA", INT8)
    assert found["refusals"][0]["operator"] == {"index": 0, "operator": "CONV_2D", "subgraph": 0}


def test_an_error_after_the_result_has_it_in_the_same_object(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise InputError(Reason("a host", "none", operand="host"))

    monkeypatch.setattr("nnbridge.cli.commands.compare.tell_host", broken)
    result = call("compare", INT8, "--reference", "litert", "--seeds", "0", "--json")
    found = json.loads(result.stdout)
    assert (result.exit_code, found["schema"], found["error"]["operand"]) == (2, "nnbridge/error", "--host")
    assert found["outputs"][0]["pass"] is True


def test_an_error_among_lines_is_the_last_line(tmp_path: Path) -> None:
    lines = tmp_path / "models.jsonl"
    model = '{"operands": [], "operations": [], "inputs": [], "outputs": []}'
    lines.write_text(f'{{"model": {model}}}\nnot JSON\n')
    result = call("devices", "ask", "nnapi-reference", lines, "--json")
    last = json.loads(result.stdout.splitlines()[-1])
    assert (result.exit_code, last["error"]["kind"]) == (2, "input")


@pytest.mark.parametrize(
    ("typed", "as_json"),
    [
        (("plan", "no.tflite", "--json"), True),
        (("plan", "--json", "no.tflite", "--nope"), True),
        (("plan", "--", "--json"), False),  # the name of a file
        (("plan", "no.tflite", "--device", "--json"), False),  # the value of an option
        (("plan", "--nope", "--", "--json"), False),
        (("devices", "--json", "find", "x"), True),
        (("devices", "find", "zzz", "--json"), True),
        (("devices", "find", "zzz"), False),
    ],
)
def test_only_the_option_asks_for_json(typed: tuple[str, ...], as_json: bool) -> None:
    result = call(*typed)
    assert (result.exit_code, bool(result.stdout)) == (2, as_json)


@pytest.mark.parametrize("typed", [("plan", "no.tflite"), ("plan", "--nope"), ("devices", "find", "zzz")])
def test_a_file_of_defaults_asks_for_json(typed: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "d.toml").write_text("[plan]\njson = true\n[devices.find]\njson = true\n")
    result = call("--config", tmp_path / "d.toml", *typed)
    assert (result.exit_code, json.loads(result.stdout)["schema"]) == (2, "nnbridge/error")


def test_a_package_that_is_missing_is_named_with_what_installs_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    image = tmp_path / "cat.png"
    image.write_bytes(b"\x89PNG\r\n\x1a\n")
    monkeypatch.setitem(sys.modules, "PIL", None)
    error = failed("run", INT8, "--input", image)
    assert (error["kind"], error["hint"], error["file"]) == ("package", "pip install '.[images]'", str(image))


# -- in pipes ------------------------------------------------------------------------------------------------------------

_READ = "import json, sys; data = json.load(sys.stdin); print(data['schema'], data['version'], {})"


def piped(arguments: str, expression: str) -> tuple[str, str]:
    """The output of a program that reads a command's JSON, and the command's exit status."""
    command = f'"$PYTHON" -m nnbridge {arguments} --json 2>/dev/null | "$PYTHON" -c "$READ"; echo "${{PIPESTATUS[0]}}"'
    if shutil.which("bash") is None:
        pytest.skip("there is no bash on this machine")
    environment = {**os.environ, "READ": _READ.format(expression), "PYTHON": sys.executable}
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, cwd=REPOSITORY, env=environment, check=True)
    said, status = done.stdout.splitlines()
    return said, status


@pytest.mark.parametrize(
    ("arguments", "expression", "said", "status"),
    [
        ("plan models/digits_int8.tflite", "data['counts']['nnapi_cpu']", "nnbridge/plan 1 11", "0"),
        ("devices", "data['devices'][-1]['name']", "nnbridge/devices 1 host", "0"),
        ("plan no.tflite", "data['error']['file']", "nnbridge/error 1 no.tflite", "2"),
        ("plan models/digits_int8.tflite --nope", "data['error']['operand']", "nnbridge/error 1 --nope", "2"),
        ("plna", "data['error']['kind']", "nnbridge/error 1 usage", "2"),
    ],
)
def test_pipes(arguments: str, expression: str, said: str, status: str) -> None:
    assert piped(arguments, expression) == (said, status)


@pytest.mark.parametrize("arguments", [("plan", INT8), ("plan", "no.tflite"), ("devices", "--nope")])
def test_json_tool_reads_results_and_errors(arguments: tuple[str, ...]) -> None:
    result = nnbridge(*arguments, "--json")
    tool: Callable[..., Any] = subprocess.run
    assert tool([sys.executable, "-m", "json.tool"], input=result.stdout, text=True, capture_output=True).returncode == 0


def test_standard_output_that_is_full_is_an_error_without_json() -> None:
    if not Path("/dev/full").exists():
        pytest.skip("this system has no /dev/full")
    result = nnbridge("devices", "--json", redirect=">/dev/full")
    assert (result.returncode, result.stdout) == (2, "")
    assert "standard output: No space left on device" in result.stderr


def test_a_command_line_without_its_packages() -> None:
    code = "import sys; sys.modules['click'] = None; from nnbridge.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", code, "plan", "no.tflite", "--json"], capture_output=True, text=True)
    assert (done.returncode, json.loads(done.stdout)["error"]["kind"]) == (2, "package")
    assert done.stderr.startswith("nnbridge: the command line needs NumPy, click and rich")
