"""The commands as users call them: tables, JSON, exit status, messages."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib import import_module
from inspect import signature
from pathlib import Path
from time import sleep

import numpy as np
import pytest
from click.testing import CliRunner

import nnbridge
from nnbridge import storage
from nnbridge.cli import commands, output
from nnbridge.cli.commands import cli
from nnbridge.cli.sections import command
from tests.commands import call, data
from tests.conftest import MODELS
from tests.runtime.planning import nested, while_model
from tests.tflite.files import TfliteBuilder

DIGITS = str(MODELS / "digits_float32.tflite")
REFERENCE = str(MODELS / "digits_float32.litert.npz")
TERMINAL = {"COLUMNS": "80"}
"""The environment in which tables have the width of a terminal of 80 columns."""
FAST, MINIMAL = "nnapi-sample_float_fast", "nnapi-sample_minimal"


def refused(*arguments: str) -> str:
    """The message of a refusal: exit status 2, nothing on standard output."""
    result = call(*arguments)
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    assert len(result.stderr.strip().splitlines()) == 1
    return result.stderr


@pytest.mark.parametrize(
    "command",
    [
        "bisect",
        "reduce",
        "convert",
        "inspect",
        "plan",
        "rewrite",
        "run",
        "compare",
        "devices",
        "devices check",
        "devices serve",
        "build ndk",
        "build ndk-env",
        "build neuron-file",
        "vts",
    ],
)
def test_every_command_has_help_with_an_example_and_json(command: str) -> None:
    result = call(*command.split(), "--help")
    assert result.exit_code == 0
    assert f"nnbridge {command} " in result.stdout.partition("Example")[2]
    assert "--json" in result.stdout


def test_devices_are_listed_with_the_cpu_behind_the_drivers_and_the_host_last() -> None:
    names = [device["name"] for device in data("devices")["devices"]]
    assert names[-2:] == ["nnapi-reference", "host"]
    assert FAST in names
    assert call("devices").exit_code == 0


def test_a_plan_names_place_device_and_reasons_of_each_operation() -> None:
    plan = data("plan", DIGITS, "--device", f"{FAST},{MINIMAL}")
    by_type = {operation["type"]: operation for operation in plan["operations"]}
    assert by_type["CONV_2D"]["device"] == MINIMAL
    assert by_type["SOFTMAX"]["device"] == FAST
    assert by_type["SOFTMAX"]["place"] == "device"
    [reason] = [r for r in by_type["SOFTMAX"]["reasons"] if r["device"] == MINIMAL]
    assert reason["rule"] == "ADD or CONCATENATION or CONV_2D"
    count = len(plan["operations"])
    assert plan["counts"] == {"device": count, "transposes": 0, "interface_transposes": 0, "interface transposes": 0}
    assert sum(len(step["operations"]) for step in plan["steps"]) == len(plan["operations"])


def test_low_power_leaves_the_fast_driver_for_the_cpu() -> None:
    plan = data("plan", DIGITS, "--device", FAST, "--preference", "low-power", "--fallback", "cpu")
    assert {operation["device"] for operation in plan["operations"]} == {"nnapi-reference"}
    [reason] = plan["operations"][0]["reasons"]
    assert (reason["figure"], reason["best"]) == (1.2, 1.0)


def test_quantised_models_stay_on_the_cpu_with_every_float_driver() -> None:
    plan = data("plan", MODELS / "digits_uint8.tflite", "--device", FAST, "--fallback", "cpu")
    for operation in plan["operations"]:
        assert operation["place"] == "NNAPI CPU"
        assert operation["reasons"][0]["found"] == "TENSOR_QUANT8_ASYMM"


def test_partitioning_modes_are_androids() -> None:
    plan = data("plan", DIGITS, "--device", FAST, "--partitioning", "no")
    assert plan["counts"]["nnapi_cpu"] == plan["counts"]["NNAPI CPU"] == len(plan["operations"])
    assert plan["fallback"]["rule"] == "partitioning is switched off"
    broken = "tests.runtime.wrong:CANNOT_PREPARE"
    assert data("plan", DIGITS, "--device", broken, "--fallback", "cpu")["fallback"] is not None
    assert "cannot prepare" in refused("plan", DIGITS, "--device", broken, "--partitioning", "without-fallback")


def test_a_plan_shows_the_steps_of_bodies_that_the_runtime_interprets(tmp_path: Path) -> None:
    path = tmp_path / "nested.nnapi"
    storage.save(nested(), path)
    plan = data("plan", path, "--device", MINIMAL)
    within = [(operation["within"], operation["type"], operation["place"]) for operation in plan["operations"]]
    assert within[0] == ("", "WHILE", "NNAPI runtime")
    assert ("condition of WHILE 0", "LESS", "NNAPI CPU") in within
    assert ("then of IF 0 in body of WHILE 0", "ADD", "device") in within
    assert [next(iter(step)) for step in plan["program"]] == [
        "while",
        "step",
        "goto",
        "if",
        "step",
        "goto",
        "step",
        "step",
        "goto",
    ]
    shown = call("plan", path, "--device", MINIMAL).stdout
    assert "WHILE, condition 1, body 3" in shown
    assert "IF, then 4," in shown


def test_a_run_adds_up_the_steps_of_a_loop(tmp_path: Path) -> None:
    path = tmp_path / "loop.nnapi"
    storage.save(while_model(), path)
    for name, value in (("i", [0]), ("total", [1, 1]), ("n", [5])):
        np.save(tmp_path / f"{name}.npy", np.array(value, np.float32))
    given = [text for name in ("i", "total", "n") for text in ("--input", f"{name}={tmp_path / name}.npy")]
    steps = data("run", path, "--device", MINIMAL, *given)["steps"]
    # The condition is looked at six times; the body runs five times.
    assert [(step["device"], step["runs"]) for step in steps] == [("nnapi-reference", 6), (MINIMAL, 5)]


def test_the_limit_on_partitions_is_the_delegates_with_the_delegates_mapping() -> None:
    for arguments, limit in (((), 3), (("--mapping", "delegate"), 3), (("--mapping", "wide"), 0), (("--max-partitions", "1"), 1)):
        plan = data("plan", DIGITS, "--device", MINIMAL, *arguments)
        assert plan["max_partitions"] == limit
        assert sum(step["place"] == "device" for step in plan["steps"]) == (limit or 3)


def test_plan_tables_fit_a_terminal() -> None:
    shown = call("plan", DIGITS, "--device", f"{FAST},{MINIMAL}", env=TERMINAL).stdout
    assert "┃" in shown
    for line in shown.splitlines():
        assert len(line) <= 80


def test_compare_passes_against_stored_outputs() -> None:
    result = data("compare", DIGITS, "--device", FAST, "--reference", REFERENCE)
    assert result["pass"]
    assert result["samples"] == 64
    assert set(result["outputs"][0]) >= {
        "name",
        "type",
        "elements",
        "max_abs_diff",
        "max_quant_diff",
        "mean_abs_diff",
        "mismatches",
        "atol",
        "rtol",
        "pass",
    }


def test_compare_fails_with_status_1_where_outputs_differ(tmp_path: Path) -> None:
    with np.load(REFERENCE) as file:
        arrays = {name: file[name] for name in file.files}
    output = next(name for name in arrays if name.startswith("output:"))
    arrays[output] = arrays[output] + np.float32(0.01)
    np.savez(tmp_path / "off.npz", **arrays)
    result = call("compare", DIGITS, "--reference", tmp_path / "off.npz", "--json")
    assert result.exit_code == 1
    assert not json.loads(result.stdout)["pass"]


def test_compare_with_litert() -> None:
    pytest.importorskip("ai_edge_litert")
    assert data("compare", DIGITS, "--reference", "litert", "--seeds", "0,1")["pass"]


@pytest.mark.parametrize(("model", "runtime"), [("digits_int8.tflite", "litert"), ("digits_float32.onnx", "onnxruntime")])
def test_compare_without_a_reference_takes_the_runtime_of_the_format(model: str, runtime: str) -> None:
    pytest.importorskip("ai_edge_litert" if runtime == "litert" else runtime)
    assert data("compare", str(MODELS / model), "--seeds", "0")["reference"] == runtime


def test_a_saved_model_has_no_runtime_to_compare_with(tmp_path: Path) -> None:
    saved = tmp_path / "m.nnapi"
    call("convert", DIGITS, "-o", str(saved))
    result = call("compare", str(saved))
    assert result.exit_code == 2
    assert "no runtime reads it to compare with: --reference FILE.npz" in result.stderr


def test_run_writes_outputs_and_times(tmp_path: Path) -> None:
    target = tmp_path / "out.npz"
    result = data("run", DIGITS, "--seed", "0", "-o", target)
    with np.load(target) as file:
        assert file.files == [result["outputs"][0]["name"]]
    assert result["steps"][0]["milliseconds"] > 0
    measured = [step["on_device_milliseconds"] for step in result["steps"] if step["device"] != "nnapi-reference"]
    assert all(time > 0 for time in measured)


def test_a_converted_model_is_the_same_to_every_command(tmp_path: Path) -> None:
    target = str(tmp_path / "digits.nnapi")
    assert data("convert", DIGITS, "-o", target)["operations"] > 0
    ours, theirs = (data("plan", path, "--device", FAST, "--fallback", "cpu")["operations"] for path in (target, DIGITS))
    assert ours == theirs
    assert data("compare", target, "--reference", REFERENCE)["pass"]


def test_no_fallback_refuses_what_the_devices_do_not_cover() -> None:
    assert "a device that supports the operation" in refused("run", DIGITS, "--seed", "0", "--device", MINIMAL, "--no-fallback")


def test_without_nnapis_cpu_what_the_device_refuses_stays_with_tflite() -> None:
    plan = data("plan", DIGITS, "--device", MINIMAL, "--disallow-nnapi-cpu")
    found = {(one["operator"]["operator"], one["place"]) for one in plan["operations"]}
    assert {("CONV_2D", "device"), ("DEPTHWISE_CONV_2D", "host")} <= found
    assert {place for _, place in found} == {"device", "host"}


def test_bad_arguments_give_one_message_each(tmp_path: Path) -> None:
    text = tmp_path / "text.tflite"
    text.write_text("this is not a model")
    onnx = tmp_path / "model.onnx"
    onnx.write_bytes(b"\x08\x08")
    assert "text.tflite" in refused("plan", text)
    assert "missing.tflite" in refused("plan", tmp_path / "missing.tflite")
    assert "model.onnx: expected an opset" in refused("plan", onnx)
    assert "nnapi-nowhere" in refused("plan", DIGITS, "--device", "nnapi-nowhere")
    assert "--seeds" in refused("compare", DIGITS, "--reference", REFERENCE, "--seeds", "one")
    assert "--input" in refused("run", DIGITS)
    assert 'no input named "nothing"; this model\'s inputs are: ' in refused("run", DIGITS, "--input", "nothing=x.npy")
    assert "litert" in refused("compare", DIGITS, "--reference", "somebody")


@pytest.mark.parametrize("value", [np.zeros((1, 8, 8, 1), np.float64), np.zeros((1, 8, 8, 2), np.float32)])
def test_an_input_of_wrong_type_or_shape_is_named(value: np.ndarray, tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    np.save(path, value)
    name = data("plan", DIGITS)["steps"][0]["inputs"][0]
    message = refused("run", DIGITS, "--input", f"{name}={path}", "-o", tmp_path / "out.npz")
    assert name in message
    assert not (tmp_path / "out.npz").exists()


def test_a_truncated_model_writes_nothing(tmp_path: Path) -> None:
    half = tmp_path / "half.tflite"
    content = Path(DIGITS).read_bytes()
    half.write_bytes(content[: len(content) // 2])
    assert "half.tflite" in refused("convert", half, "-o", tmp_path / "out.nnapi")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["half.tflite"]


def test_importing_nnbridge_imports_neither_converters_nor_the_command_line() -> None:
    code = "import sys, nnbridge; print([m for m in ('click', 'rich', 'tflite', 'onnx', 'nnbridge_tflite') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_tflite_file_with_operators_of_the_host_imports_no_other_importer(tmp_path: Path) -> None:
    builder = TfliteBuilder()
    x, y = builder.tensor((2, 3)), builder.tensor((2, 3))
    builder.operator("GELU", [x], [y], {"approximate": False})
    path = builder.write(tmp_path / "gelu.tflite", [x], [y])
    code = (
        "import sys, nnbridge; model = nnbridge.load(sys.argv[1]); nnbridge.Compilation.create(model, []).finish();"
        "print([model.operation_name(o) for o in model.main.operations], "
        "[m for m in sys.modules if m.startswith(('onnx.', 'nnbridge_onnx.'))])"
    )
    done = subprocess.run([sys.executable, "-c", code, str(path)], check=True, capture_output=True, text=True)
    assert done.stdout == "['org.tensorflow.lite#150'] []\n"


def test_a_cache_directory_stores_what_a_caching_driver_compiled(tmp_path: Path) -> None:
    arguments = ("plan", DIGITS, "--device", f"caching:{FAST}", "--cache-dir", str(tmp_path / "made"))
    results = [[record["result"] for record in data(*arguments)["cache"]] for _ in range(2)]
    assert results[0] == ["written"] * len(results[0])
    assert results[1] == ["read"] * len(results[0])
    ran = data("run", DIGITS, "--seed", "0", *arguments[2:])
    assert [record["result"] for record in ran["cache"]] == results[1]
    damaged = next((tmp_path / "made").iterdir())
    damaged.write_bytes(b"")
    shown = " ".join(call(*arguments).stdout.split())
    assert "a cache file of this compilation, found 0 bytes" in shown


def test_a_cache_directory_that_cannot_be_made_is_bad_input(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    arguments = ("--device", f"caching:{FAST}", "--cache-dir", str(tmp_path / "file" / "under"))
    assert "--cache-dir" in refused("plan", DIGITS, *arguments)


@pytest.mark.parametrize("command", [("plan",), ("run", "--seed", "0"), ("compare", "--reference", REFERENCE)])
def test_a_cache_directory_that_no_device_uses_is_reported_and_not_created(command: tuple[str, ...], tmp_path: Path) -> None:
    result = call(command[0], DIGITS, *command[1:], "--device", FAST, "--cache-dir", tmp_path / "unused")
    assert result.exit_code == 0
    assert "Cache: no step runs on a device that caches compiled models" in result.output
    assert not (tmp_path / "unused").exists()


@pytest.mark.parametrize("arguments", [("convert", DIGITS), ("run", DIGITS, "--seed", "0")])
def test_an_output_that_is_a_folder_is_bad_input_and_leaves_nothing(arguments: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    message = refused(*arguments, "-o", tmp_path / "taken")
    assert f"{tmp_path / 'taken'}: expected a file that can be written, found a folder" in message
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]


def test_a_seed_below_0_is_bad_input() -> None:
    result = call("run", DIGITS, "--seed", "-1")
    assert result.exit_code == 2
    assert "-1 is not in the range" in result.stderr


def test_a_folder_is_no_model_file(tmp_path: Path) -> None:
    assert "a model file, found a folder" in refused("plan", tmp_path)


def test_nothing_but_the_answer_is_written_where_no_terminal_is() -> None:
    assert call("compare", DIGITS, "--reference", REFERENCE).stderr == ""


def test_reasons_keep_a_sample_drivers_name_whole() -> None:
    assert f"{FAST}: " in call("plan", DIGITS, "--device", f"{FAST},{MINIMAL}").stdout


def test_a_tie_is_called_one() -> None:
    assert "which wins" in call("plan", DIGITS, "--device", "nnapi-sample_full", "--fallback", "cpu").stdout


def test_a_model_is_not_converted_into_its_own_place(tmp_path: Path) -> None:
    source = tmp_path / "model.tflite"
    source.write_bytes(Path(DIGITS).read_bytes())
    assert "--output: expected a file other than the model" in refused("convert", source, "-o", source)
    assert source.read_bytes() == Path(DIGITS).read_bytes()


def test_a_new_file_is_a_new_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = 'import click\n\n\n@click.command()\ndef toy() -> None:\n    """Play."""\n    click.echo("played")\n'
    (tmp_path / "toy.py").write_text(code)
    monkeypatch.setattr(commands, "__path__", [*commands.__path__, str(tmp_path)])
    assert call("toy").stdout == "played\n"
    assert "toy Play." in " ".join(call("--help").stdout.split())
    monkeypatch.undo()
    sys.modules.pop("nnbridge.cli.commands.toy")
    assert "No such command 'toy'" in call("toy").stderr


def test_statistics_of_repeated_runs_leave_out_the_first() -> None:
    result = data("run", DIGITS, "--seed", "0", "--repeat", "3")
    assert len(result["milliseconds"]) == 3
    shown = call("run", DIGITS, "--seed", "0", "--repeat", "3").stderr
    assert "3 runs: first " in shown
    assert ", then mean " in shown


def test_the_preference_is_a_number_and_a_word() -> None:
    for name, number in (("low-power", 0), ("fast", 1), ("sustained", 2)):
        plan = data("plan", DIGITS, "--preference", name)
        assert (plan["preference"], plan["preference_name"]) == (number, name)


@pytest.mark.parametrize(("model", "mapping"), [("digits_float32.tflite", "delegate"), ("digits_float32.onnx", "provider")])
def test_the_phones_mapping_is_the_default_of_each_format(model: str, mapping: str) -> None:
    pytest.importorskip("onnx")
    path = str(MODELS / model)
    assert list(data("plan", path)["conversion"]) == list(data("plan", path, "--mapping", "phone")["conversion"]) == [mapping]
    assert next(iter(data("inspect", path)["mappings"])) == mapping


def test_a_saved_model_is_planned_whatever_the_default_mapping_is(tmp_path: Path) -> None:
    path = str(tmp_path / "digits.nnapi")
    assert call("convert", DIGITS, "-o", path).exit_code == 0
    assert data("plan", path)["counts"]


@pytest.mark.parametrize(("android", "level"), [("8.1", 1), ("9", 2), ("10", 3), ("11", 4), ("12", 5), ("13", 8), ("15", 8)])
def test_an_android_version_is_the_feature_level_of_its_runtime(android: str, level: int) -> None:
    by_version, by_level = (
        data("plan", MODELS / "digits_uint8.tflite", option, value)["conversion"]
        for option, value in (("--android", android), ("--feature-level", str(level)))
    )
    assert by_version == by_level


def test_an_android_version_and_another_level_are_refused() -> None:
    message = refused("plan", DIGITS, "--android", "10", "--feature-level", "4")
    assert "--feature-level: expected Android 10's feature level 3, found 4" in message


def completed(*typed: str) -> list[str]:
    """The words that bash is offered for the last word."""
    environment = {
        "COMP_WORDS": " ".join(("nnbridge", *typed)),
        "COMP_CWORD": str(len(typed)),
        "_NNBRIDGE_COMPLETE": "bash_complete",
    }
    return CliRunner().invoke(cli, prog_name="nnbridge", env=environment).stdout.split()


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        (
            ("plan", "m.tflite", "--device", "nnapi-sample_float"),
            {"plain,nnapi-sample_float_fast", "plain,nnapi-sample_float_slow"},
        ),
        (("report", "m.tflite", "--against-device", "nnapi-ref"), {"plain,nnapi-reference"}),
        (("matrix", "m.tflite", "--devices", "arm-nn-18.05,prof"), {"plain,arm-nn-18.05,profiles"}),
        (("devices", "explain", "arm-nn-18.0"), {"plain,arm-nn-18.05"}),
        (("devices", "explain", "arm-nn-18.05", "conv_2"), {"plain,CONV_2D"}),
        (("vts", "cases", "--device", "nnapi-ref"), {"plain,nnapi-reference"}),
        (("matrix", "m.tflite", "--android", "10,8"), {"plain,10,8.1"}),
        (("compare", "m.tflite", "--reference", "onnx"), {"plain,onnxruntime"}),
        (("compare", "m.tflite", "--reference", "answers.n"), {"file,answers.n"}),
        (("plan", "m.tflite", "--device", "my-npu.t"), {"file,my-npu.t"}),
        (("run", "m.tflite", "--input", "x=photos/"), {"file,photos/"}),
    ],
)
def test_shells_complete_values(typed: tuple[str, ...], offered: set[str]) -> None:
    assert set(completed(*typed)) == offered


def test_a_file_to_write_is_no_folder(tmp_path: Path) -> None:
    # A path type of its own: pathlib drops the slash, and a file of that name was written.
    assert f"--output: expected a file's name, found the folder '{tmp_path}/out/'" in refused(
        "convert", DIGITS, "-o", f"{tmp_path}/out/"
    )


def test_a_note_on_a_file_is_printed_once_however_often_it_is_converted(real_models: Path) -> None:
    model = real_models / "two_signature_keys.tflite"
    command = [sys.executable, "-m", "nnbridge", "plan", str(model), "--device", "arm-nn-21.11", "--advice"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    assert done.stderr.count("the signatures model_one, model_two differ") == 1


@pytest.mark.parametrize(
    ("options", "lines"),
    [((), ["work", "work: Reading x", "work: Runs: 1 of 3"]), (("--quiet",), [])],
)
def test_a_command_that_takes_long_says_in_a_log_what_it_does(
    options: tuple[str, ...], lines: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output, "_PAUSE", 0.05)

    @command()
    def work() -> None:
        sleep(0.5)
        with output.working("Reading x"):
            sleep(0.5)
        with output.progress("Runs", 3) as advance:
            advance(1)
            sleep(0.5)

    work.params += output.output_options()
    found = CliRunner().invoke(work, list(options))
    assert (found.exit_code, found.stdout) == (0, "")
    said = [line.rpartition(",")[0] for line in found.stderr.splitlines() if line.endswith(" s so far")]
    assert [line for line in dict.fromkeys(said) if "0 of 3" not in line] == lines


def test_an_option_that_a_command_lacks_suggests_only_what_is_close() -> None:
    assert "Did you mean" not in call("bench", DIGITS, "--device", "x").stderr
    assert "Did you mean '--seconds'" in call("bench", DIGITS, "--second", "1").stderr


def test_a_mistake_of_a_profile_has_its_line_as_a_number(tmp_path: Path) -> None:
    path = tmp_path / "npu.toml"
    path.write_text('[[device]]\nname = "npu"\nfeature_level = 99\n', encoding="utf-8")
    found = json.loads(call("devices", "check", str(path), "--json").stdout)["error"]
    first = found.get("mistakes", [found])[0]
    assert isinstance(first["line"], int)
    assert "operation" not in first


def test_the_number_of_rules_of_a_profile_is_a_number(tmp_path: Path) -> None:
    path = tmp_path / "npu.toml"
    path.write_text('[[device]]\nname = "npu"\nfeature_level = 4\n[device.operations]\nADD = {}\n', encoding="utf-8")
    result = call("devices", "check", str(path), "--json")
    assert [(p["operations"], p["others"]) for p in json.loads(result.stdout)["profiles"]] == [(1, False)]


def test_compare_report_and_python_draw_as_many_samples_by_default() -> None:
    commands_of = [getattr(import_module(f"nnbridge.cli.commands.{name}"), name) for name in ("compare", "report")]
    defaults = [option.default for one in commands_of for option in one.params if option.name == "seeds"]
    python = {f.__name__: signature(f).parameters["seeds"].default for f in (nnbridge.compare, nnbridge.report)}
    assert defaults == ["0,1,2"] * 2
    assert {*python.values()} == {(0, 1, 2)}


def test_errors_are_wrapped_on_terminals_only(monkeypatch: pytest.MonkeyPatch) -> None:
    from nnbridge.cli.output import for_errors

    monkeypatch.setenv("COLUMNS", "60")
    text = "nnbridge: model.tflite: " + "expected a file that is there, found none; " * 4 + "a" * 70
    assert for_errors(text) == text
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    lines = for_errors(text).split("\n")
    assert " ".join(line.strip() for line in lines) == text
    assert all(len(line) <= 60 for line in lines[:-1])
    assert lines[-1] == "  " + "a" * 70
    assert for_errors("short") == "short"
