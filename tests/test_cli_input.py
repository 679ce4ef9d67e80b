"""Bad input to the commands: refused with one message that names the option or file, what was expected and what was found."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nnbridge import storage
from nnbridge.cli.arguments import device_files
from nnbridge.compare import load_arrays
from nnbridge.reading import read_at_most
from nnbridge.runtime.execution import Execution
from nnbridge.types import OperationCode
from tests.commands import call, refused
from tests.conftest import MODELS
from tests.graphs import unary_chain
from tests.test_cli import TERMINAL

DIGITS = str(MODELS / "digits_float32.tflite")
ONNX = str(MODELS / "digits_float32.onnx")
REFERENCE = str(MODELS / "digits_float32.litert.npz")
INPUT = "serving_default_image:0"
RUN = ("run", DIGITS)
BY_REFERENCE = ("compare", DIGITS, "--reference")


@pytest.fixture
def saved(tmp_path: Path) -> str:
    path = str(tmp_path / "digits.nnapi")
    assert call("convert", DIGITS, "-o", path).exit_code == 0
    return path


@pytest.mark.parametrize("command", [("plan", DIGITS), ("vts", ".")])
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("", "--device: no device has an empty name; `nnbridge devices` lists names; FILE.toml"),
        ("host", "--device: expected a driver or the CPU; the host is added by itself, found host"),
        ("nnapi-sample_qant", "no device is called nnapi-sample_qant; did you mean nnapi-sample_quant or"),
        ("nnapi-sample_qant", "nnapi-sample_all? `nnbridge devices --all` lists all"),
    ],
)
def test_a_device_that_is_none_is_refused(command: tuple[str, ...], name: str, message: str) -> None:
    assert message in refused(*command, "--device", name)


@pytest.mark.parametrize("names", [",", "nnapi-sample_all,", " "])
def test_an_empty_name_among_devices_is_refused(names: str) -> None:
    assert "no device has an empty name" in refused("plan", DIGITS, "--device", names)


def test_only_tflites_delegate_disallows_nnapis_cpu() -> None:
    message = refused("plan", ONNX, "--device", "nnapi-sample_all", "--disallow-nnapi-cpu")
    assert "--fallback: expected the mapping of TFLite's delegate" in message
    assert "--fallback app: expected at least one device, found none" in refused("plan", DIGITS, "--disallow-nnapi-cpu")


def test_no_fallback_without_a_device_names_the_option() -> None:
    assert "--fallback none: expected at least one device, found none" in refused("plan", DIGITS, "--no-fallback")


def test_an_operation_that_no_device_accepts_is_named_with_its_model() -> None:
    message = refused("run", DIGITS, "--seed", "0", "--device", "nnapi-sample_minimal", "--no-fallback")
    assert message.startswith(f"nnbridge: BAD_DATA: {DIGITS} ")


def test_an_input_stated_twice_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "image.npy"
    np.save(path, np.zeros((1, 8, 8, 1), np.float32))
    message = refused(*RUN, *("--input", f"{INPUT}={path}") * 2)
    assert f"--input {INPUT}: expected each input once, found {path} and {path}" in message


def test_a_wrong_input_names_option_and_file(tmp_path: Path) -> None:
    path = tmp_path / "wide.npy"
    np.save(path, np.zeros((1, 8, 9, 1), np.float32))
    message = refused(*RUN, "--input", f"{INPUT}={path}")
    assert f"--input {INPUT} {path}: expected shape [1, 8, 8, 1], found [1, 8, 9, 1]" in message


def test_stored_samples_that_do_not_fit_name_file_and_array(tmp_path: Path) -> None:
    path = tmp_path / "samples.npz"
    arrays = load_arrays(Path(REFERENCE))
    for changed, message in (
        ({name: array[:0] for name, array in arrays.items()}, "at least one sample in every array, found an array without any"),
        ({**arrays, f"input:{INPUT}": arrays[f"input:{INPUT}"][:3]}, "as many samples in every array, found 3 and 64"),
        ({**arrays, f"input:{INPUT}": np.zeros((64, 1, 8, 9, 1), np.float32)}, f"a sample of input:{INPUT}: expected shape"),
    ):
        np.savez(path, **changed)
        message_shown = refused(*BY_REFERENCE, path)
        assert str(path) in message_shown
        assert message in message_shown


@pytest.mark.parametrize(("content", "found"), [(b"some text", "a file that begins with b'some tex"), (b"", "an empty file")])
def test_a_text_file_is_no_array(content: bytes, found: str, tmp_path: Path) -> None:
    for suffix, arguments in ((".npy", (*RUN, "--input", f"{INPUT}=%s")), (".npz", (*BY_REFERENCE, "%s"))):
        path = tmp_path / f"text{suffix}"
        path.write_bytes(content)
        message = refused(*(text.replace("%s", str(path)) for text in arguments))
        assert f"{path}: expected a {suffix} file of numbers, found {found}" in message
    assert f"{REFERENCE}: expected a .npy file of numbers, found" in refused(*RUN, "--input", f"{INPUT}={REFERENCE}")


def test_seeds_and_steps_with_stored_samples_are_refused() -> None:
    assert "--seeds does nothing here" in refused(*BY_REFERENCE, REFERENCE, "--seeds", "1")
    assert "--steps does nothing here" in refused(*BY_REFERENCE, REFERENCE, "--steps", "2")


def test_what_was_found_is_said_of_empty_lists() -> None:
    assert "--seeds: expected whole numbers such as 0,1,2 or 0-99, found ''" in refused(*BY_REFERENCE, "litert", "--seeds", "")
    assert "or a file ending in .npz, found ''" in refused(*BY_REFERENCE, "")
    known = f"this model's inputs are: {INPUT} (float32 [1, 8, 8, 1])"
    assert f"--input: expected FILE or NAME=FILE; {known}, found ''" in refused(*RUN, "--input", "")
    assert f'--input: no input named "foo"; {known}' in refused(*RUN, "--input", "foo=x.npy")
    assert "nofile.npz: no such file" in refused(*BY_REFERENCE, "nofile.npz")


def test_a_split_below_0_is_refused() -> None:
    assert "-1 is not in the range" in refused("vts", ".", "--split", "-1")


def test_a_device_beside_a_split_is_refused() -> None:
    assert "--device does nothing here" in refused("vts", ".", "--split", "1", "--device", "nnapi-sample_all")


def test_a_reference_that_reads_other_files_is_refused(saved: str) -> None:
    for model, reference, known in (
        (saved, "litert", ""),
        (DIGITS, "onnxruntime", "litert, litert-reference, litert-plain, xnnpack, litert-gpu, litert-gpu-float32, tflm, "),
        (ONNX, "litert", "onnxruntime, "),
    ):
        message = refused("compare", model, "--reference", reference)
        assert f"--reference: expected {known}FILE.npz for {model}, a " in message
        assert message.endswith(f"found {reference}")


def test_every_command_gives_the_model_by_its_path_in_json() -> None:
    for arguments in (("plan", DIGITS), (*RUN, "--seed", "0"), (*BY_REFERENCE, REFERENCE, "--plan")):
        found = json.loads(call(*arguments, "--json").stdout)
        assert found["model"] == DIGITS
        assert found.get("plan", found)["model"] == DIGITS


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("shape", "a=1"),
        ("signature", "x"),
        ("mapping", "delegate"),
        ("layout", "nchw"),
        ("float64", "narrow"),
        ("feature-level", "3"),
    ],
)
def test_conversion_options_of_a_saved_model_are_refused(option: str, value: str, saved: str) -> None:
    message = refused("plan", saved, f"--{option}", value)
    assert f"{saved} --{option}: does nothing with nnapi files; leave it out" in message
    if option != "mapping":
        assert f"--{option}: does nothing with nnapi files" in refused("inspect", saved, f"--{option}", value)


@pytest.mark.parametrize("command", ["plan", "inspect"])
@pytest.mark.parametrize(
    ("model", "option", "value", "message"),
    [
        (DIGITS, "--layout", "nchw", "--layout: does nothing with tflite files; leave it out"),
        (DIGITS, "--float64", "narrow", "--float64: does nothing with tflite files"),
        (ONNX, "--signature", "x", "--signature: does nothing with onnx files"),
        (DIGITS, "--signature", "nope", "--signature: expected a signature of the file"),
        (DIGITS, "--shape", "nosuch=1,2", f"--shape: expected an input ({INPUT}), found nosuch"),
        (ONNX, "--shape", "nosuch=1,2", "--shape: expected an input (image[4 dimensions]), found nosuch=[1, 2]"),
    ],
)
def test_an_option_that_does_not_fit_the_file_is_refused(command: str, model: str, option: str, value: str, message: str) -> None:
    message_shown = refused(command, model, option, value)
    assert message_shown.startswith(f"nnbridge: {model}")
    assert message in message_shown


def test_a_file_that_is_no_model_says_what_was_expected_and_found(tmp_path: Path) -> None:
    text, empty = tmp_path / "text.txt", tmp_path / "empty.tflite"
    text.write_bytes(b"some text")
    empty.touch()
    found = refused("plan", text)
    assert f"{text}: expected a model file (" in found
    assert "(.nnapi, .onnx, .tflite), found a file that begins with b'some tex'" in found
    assert f"{empty}: expected a model file, found an empty file" in refused("plan", empty)
    assert "missing.tflite: no such file" in refused("plan", tmp_path / "missing.tflite")


@pytest.mark.parametrize("name", ["model.tflite", "model.onnx", "model.nnapi"])
@pytest.mark.parametrize(
    ("content", "found"),
    [
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n", "a Git LFS pointer"),
        (b"\xef\xbb\xbf\n<!DOCTYPE html><html></html>", "an HTML page"),
        (b"<html>", "an HTML page"),
        (b"", "an empty file"),
    ],
)
def test_a_file_that_is_often_taken_for_a_model_is_named(name: str, content: bytes, found: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    for command in ("plan", "inspect"):
        assert f"{path}: expected a model file, found {found}" in refused(command, path)


def test_a_pipe_is_no_model_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in ("/dev/null", str(tmp_path / "pipe")):
        assert f"{path}: expected a model file, found a device or pipe" in refused("inspect", path)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.tflite"
    path.write_bytes(Path(DIGITS).read_bytes())
    return path


def test_outputs_do_not_replace_what_is_read(model: Path, tmp_path: Path) -> None:
    image, profile = tmp_path / "image.npy", tmp_path / "mine.toml"
    np.save(image, np.zeros((1, 8, 8, 1), np.float32))
    profile.write_text('[[device]]\nname = "mine"\n[device.operations]\nothers = {}\n')
    link = tmp_path / "link.npz"
    link.symlink_to(model)
    for written, read in ((model, "the model"), (link, "the model"), (image, "an input"), (profile, "a device's")):
        before = written.read_bytes()
        for option, name in (("-o", "--output"), ("--samples", "--samples")):
            arguments = (str(model), "--input", f"{INPUT}={image}", "--device", f"process:{profile}#mine", option, str(written))
            assert f"{name}: expected a file other than {read}, found {written}" in refused("run", *arguments)
        assert written.read_bytes() == before
    assert set(device_files([f"caching:{profile}@4,a"])) == {profile}


def test_no_command_replaces_a_file_that_its_command_line_names(model: Path, tmp_path: Path) -> None:
    image, profile, labels = tmp_path / "image.npy", tmp_path / "mine.toml", tmp_path / "labels.txt"
    np.save(image, np.zeros((1, 8, 8, 1), np.float32))
    profile.write_text('[[device]]\nname = "mine"\n[device.operations]\nothers = {}\n')
    labels.write_text("zero\n")
    hard = tmp_path / "hard.csv"
    hard.hardlink_to(model)
    stored = tmp_path / "stored.npz"
    np.savez(stored, np.zeros((1, 8, 8, 1), np.float32))
    layers = ("compare", model, "--layers", "--csv")
    cases: list[tuple[str, Path, tuple[object, ...]]] = [
        ("--csv", image, (*layers, image, "--reference", "litert", "--input", f"{INPUT}={image}")),
        ("--csv", labels, (*layers, labels, "--reference", "litert", "--input", image, "--labels", labels)),
        ("--csv", profile, (*layers, profile, "--against", profile)),
        ("--csv", hard, (*layers, hard, "--reference", "litert")),
        ("--output", stored, ("run", model, "--input", tmp_path, "-o", stored)),
        ("--html", profile, ("matrix", model, "--devices", f"process:{profile}", "--html", profile)),
        ("--output", image, ("devices", "learn", image, "-o", image)),
        ("--output", model, ("neuron", "compile", model, "--device", profile, "-o", model)),
    ]
    for option, written, arguments in cases:
        before = written.read_bytes()
        assert f"{option}: expected a file other than " in refused(*arguments), arguments
        assert written.read_bytes() == before


def test_a_file_that_any_option_names_is_not_replaced(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    profile, defaults, store = tmp_path / "mine.toml", tmp_path / "nnbridge.toml", tmp_path / "matrix.db"
    profile.write_text('[[device]]\nname = "mine"\n[device.operations]\nothers = {}\n')
    defaults.write_text("[matrix]\njobs = 1\n")
    store.write_bytes(b"")
    (tmp_path / "hard.tflite").hardlink_to(model)
    matrix = ("matrix", model, "--devices", f"nnapi-sample_minimal,{profile}#mine")
    device = ("--device", f"{profile}#mine")
    (tmp_path / "photos").mkdir()
    np.savez(tmp_path / "photos" / "one.npz", **{INPUT: np.zeros((1, 8, 8, 1), np.float32)})
    for arguments, what in (
        ((*matrix, "--csv", profile), "a device's"),
        ((*matrix, "--html", defaults), "the file of defaults"),
        ((*matrix, "--markdown", store), "--store of the same command"),
        (("compare", model, "--layers", "--against", "reference", "--csv", defaults), "the file of defaults"),
        (("run", model, "--input", "photos", "--samples", "photos/one.npz"), "an input"),
        (("neuron", "compile", model, *device, "-o", "hard.tflite"), "the model"),
        (("neuron", "compile", model, *device, "-o", profile), "a device's"),
        (("devices", "learn", profile, "--models", tmp_path, "-o", profile), "a log"),
        (("devices", "learn", profile, "--models", tmp_path, "-o", model), "a model"),
        (("reduce", model, *device, "--input", "photos/one.npz", "-o", "photos/one"), "an input"),
    ):
        before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
        assert f"expected a file other than {what}" in refused(*map(str, arguments)), arguments
        assert before == {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}


def test_a_pipe_without_a_writer_is_refused_at_once(model: Path, tmp_path: Path) -> None:
    if not hasattr(os, "mkfifo"):
        pytest.skip("no pipes with names")
    pipes = {suffix: tmp_path / f"pipe{suffix}" for suffix in (".toml", ".npz", ".txt", ".jsonl", ".log")}
    for pipe in pipes.values():
        os.mkfifo(pipe)
    for arguments in (
        ("--config", pipes[".toml"], "inspect", model),
        ("compare", model, "--reference", "litert", "--tolerances", pipes[".toml"]),
        ("compare", model, "--reference", pipes[".npz"]),
        ("run", model, "--seed", "0", "--labels", pipes[".txt"]),
        ("devices", "ask", "nnapi-sample_all", pipes[".jsonl"]),
        ("devices", "learn", pipes[".log"], "-o", tmp_path / "mine.toml"),
    ):
        assert "pipe" in refused(*map(str, arguments)).rpartition("found")[2], arguments


@pytest.mark.skipif(not os.path.exists("/dev/zero"), reason="no /dev/zero")
def test_labels_without_end_are_refused(model: Path) -> None:
    assert "found more than 16,777,216 bytes" in refused("run", model, "--seed", "0", "--labels", "/dev/zero")


def test_what_a_command_writes_into_a_pipe_is_read_to_its_end(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.write(writing, b"a" * 1000)
    os.close(writing)
    if not Path(f"/dev/fd/{reading}").exists():
        pytest.skip("no /dev/fd")
    assert read_at_most(Path(f"/dev/fd/{reading}"), 2000) == b"a" * 1000
    os.close(reading)


@pytest.mark.parametrize("name", ["", ".", "/"])
@pytest.mark.parametrize("command", ["convert", "report", "reduce", "matrix"])
def test_an_output_needs_a_name(command: str, name: str, model: Path) -> None:
    more = ("--device", "nnapi-sample_minimal") if command == "reduce" else ()
    option = ("--devices", "nnapi-sample_minimal", "--store") if command == "matrix" else ("--output",)
    assert f"{option[-1]}: expected a" in refused(command, str(model), *more, *option, name)


def test_commands_run_in_a_folder_that_was_removed(model: Path, tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    program = tmp_path / "command.py"  # A file, as the installed command is: NumPy on Python 3.13.0 fails with -c there.
    program.write_text(f"import os; os.chdir({str(gone)!r}); os.rmdir({str(gone)!r}); from nnbridge.cli import main; main()")
    done = subprocess.run([sys.executable, str(program), "plan", str(model)], capture_output=True, text=True, check=False)
    assert (done.returncode, "Traceback" in done.stderr, "Plan of" in done.stdout) == (0, False, True), done.stderr


@pytest.mark.parametrize("imported", ["nnbridge.cli.commands", "numpy"])
def test_an_interrupt_while_commands_are_imported_has_the_status_of_interrupts(imported: str) -> None:
    program = f"""
import sys
from nnbridge.cli import main
class Interrupted:
    def find_spec(self, name, path=None, target=None):
        if name == {imported!r}:
            raise KeyboardInterrupt
sys.meta_path.insert(0, Interrupted())
main()
"""
    done = subprocess.run([sys.executable, "-c", program, "devices"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (130, "")


def test_outputs_do_not_replace_each_other(model: Path, tmp_path: Path) -> None:
    both = str(tmp_path / "both.npz")
    message = refused("run", model, "--seed", "0", "-o", both, "--samples", tmp_path / "." / "both.npz")
    assert f"--samples: expected a file other than --output of the same command, found {both}" in message
    assert not Path(both).exists()


def test_a_file_of_arrays_has_its_suffix(model: Path, tmp_path: Path) -> None:
    message = refused("run", model, "--seed", "0", "-o", tmp_path / "outputs.txt")
    assert "--output: expected a file that ends in .npz" in message


def test_an_input_whose_shape_is_stated_twice_is_refused() -> None:
    message = refused("plan", DIGITS, "--shape", f"{INPUT}=1,8,8,1", "--shape", f"{INPUT}=2,8,8,1")
    assert f"--shape {INPUT}: expected each input once, found 1,8,8,1 and 2,8,8,1" in message


@pytest.mark.skipif(sys.platform != "linux", reason="file names are bytes on Linux")
def test_a_file_name_that_is_not_utf8_is_refused_where_it_cannot_be_used(tmp_path: Path) -> None:
    path = os.fsdecode(os.fsencode(tmp_path) + b"/m\xff.tflite")
    Path(path).write_bytes(Path(DIGITS).read_bytes())
    shown = f"found {tmp_path}/m\\xff.tflite"
    if find_spec("ai_edge_litert"):
        assert shown in refused("compare", path, "--reference", "litert")
    assert shown in refused("convert", path, "-o", tmp_path / "m.nnapi")
    assert call("compare", path, "--reference", REFERENCE).exit_code == 0
    assert "/m\\xff.tflite: tflite" in call("inspect", path).stdout


def test_control_characters_of_names_are_escaped(tmp_path: Path) -> None:
    hostile = "x\x1b]0;pwn\x07\n\u202e"
    escaped = "x\\x1b]0;pwn\\x07\\n\\u202e"
    chain = unary_chain(OperationCode.FLOOR)
    operands = tuple(replace(operand, name=f"{hostile}{k}") for k, operand in enumerate(chain.main.operands))
    model = replace(chain, name=hostile, main=replace(chain.main, operands=operands))
    path = tmp_path / f"{hostile}.nnapi"
    storage.save(model, path)
    for command in (("inspect",), ("plan", "--full"), ("run", "--seed", "0"), ("run", "--input", "a=b")):
        for environment in ({}, TERMINAL):
            result = call(command[0], path, *command[1:], env=environment)
            assert not {"\x1b", "\x07", "\u202e"} & set(result.output), command
            assert escaped[:8] in result.output


def test_a_seeded_tolerance_that_is_no_number_is_refused() -> None:
    for option in ("--atol", "--rtol"):
        for value in ("nan", "inf", "-1"):
            assert f"{option}: expected a finite number from 0" in refused(*BY_REFERENCE, REFERENCE, option, value)


def test_tolerances_decide_the_verdict() -> None:
    def status(*options: str) -> int:
        return call(*BY_REFERENCE, REFERENCE, *options).exit_code

    assert [status(), status("--atol", "0", "--rtol", "0"), status("--atol", "1e-5", "--rtol", "0")] == [0, 1, 0]


def test_an_open_dimension_is_named_with_its_option(shared: Path) -> None:
    pytest.importorskip("onnxruntime")
    path = shared / "models" / "onnx" / "silero_vad_16k_op15.onnx"
    message = refused("compare", path, "--reference", "onnxruntime")
    assert "input input leaves dimensions 0, 1 of [?, ?] open and 1 was used: state it with --shape input=N,N" in message
    shapes = ("--shape", "input=1,512", "--shape", "state=2,1,128")
    assert call("compare", path, "--reference", "onnxruntime", *shapes).exit_code == 0


def test_an_error_of_our_own_is_no_failed_comparison(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise OverflowError("too large")

    monkeypatch.setattr("nnbridge_tflite.TfliteModelFile.convert", broken)
    assert "nnbridge: internal error: OverflowError: too large (NNBRIDGE_TRACEBACK=1" in refused(*BY_REFERENCE, REFERENCE)


def test_ctrl_c_leaves_the_samples_that_are_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.save(tmp_path / "digits.npy", np.zeros((4, 8, 8, 1), np.float32))
    samples, runs, whole = tmp_path / "done.npz", [], Execution.run

    def run(self: Execution, *arguments: Any) -> Any:
        runs.append(1)
        if len(runs) == 3:
            raise KeyboardInterrupt
        return whole(self, *arguments)

    monkeypatch.setattr(Execution, "run", run)
    command = [*RUN, "--input", str(tmp_path / "digits.npy"), "--samples", str(samples), "--json"]
    result = call(*command)
    found = json.loads(result.stdout)
    assert (result.exit_code, found["interrupted"], len(found["samples"])) == (130, True, 2)
    assert all(len(array) == 2 for array in load_arrays(samples).values())


def test_ctrl_c_before_anything_is_done_prints_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(self: Execution, *arguments: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(Execution, "run", run)
    result = call(*RUN, "--seed", "0")
    assert (result.exit_code, result.stdout) == (130, "")
