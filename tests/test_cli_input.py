"""Bad input to the commands: refused with one message that names the option or file, what was expected and what was found."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from nnbridge.cli.commands import cli
from nnbridge.compare import load_arrays
from tests.conftest import MODELS

DIGITS = str(MODELS / "digits_float32.tflite")
ONNX = str(MODELS / "digits_float32.onnx")
REFERENCE = str(MODELS / "digits_float32.litert.npz")
INPUT = "serving_default_image:0"
RUN = ("run", DIGITS)
BY_REFERENCE = ("compare", DIGITS, "--reference")


def refused(*arguments: str) -> str:
    """The message of a refusal: exit status 2, nothing on standard output, no break inside."""
    result = CliRunner().invoke(cli, arguments)
    assert (result.exit_code, result.stdout) == (2, ""), result.output
    return " ".join(result.stderr.split())


@pytest.fixture
def saved(tmp_path: Path) -> str:
    path = str(tmp_path / "digits.nnapi")
    assert CliRunner().invoke(cli, ["convert", DIGITS, "-o", path]).exit_code == 0
    return path


@pytest.mark.parametrize("command", [("plan", DIGITS), ("vts", ".")])
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("", "--device: expected a device (one of `nnbridge devices` or"),
        ("host", "--device: expected a driver or the CPU; the host is added by itself, found host"),
        ("nnapi-sample_qant", "expected a device (such as nnapi-sample_quant or"),
        ("nnapi-sample_qant", "`nnbridge devices --profiles` list all), found nnapi-sample_qant"),
    ],
)
def test_a_device_that_is_none_is_refused(command: tuple[str, ...], name: str, message: str) -> None:
    assert message in refused(*command, "--device", name)


@pytest.mark.parametrize("names", [",", "nnapi-sample_all,", " "])
def test_an_empty_name_among_devices_is_refused(names: str) -> None:
    assert refused("plan", DIGITS, "--device", names).endswith("found no name")


def test_no_fallback_without_a_device_names_the_option() -> None:
    assert "--no-fallback: expected at least one --device, found none" in refused("plan", DIGITS, "--no-fallback")


def test_an_operation_that_no_device_takes_is_named_with_its_model() -> None:
    message = refused("plan", DIGITS, "--device", "nnapi-sample_minimal", "--no-fallback")
    assert message.startswith(f"nnbridge: BAD_DATA: {DIGITS} ")


def test_an_input_given_twice_is_refused(tmp_path: Path) -> None:
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
        told = refused(*BY_REFERENCE, str(path))
        assert str(path) in told
        assert message in told


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
    assert "--seeds: expected whole numbers such as 0,1,2, found ''" in refused(*BY_REFERENCE, "litert", "--seeds", "")
    assert "or a file ending in .npz, found ''" in refused(*BY_REFERENCE, "")
    assert f"--input: expected NAME=FILE.npy with a name of {INPUT}, found ''" in refused(*RUN, "--input", "")
    assert "nofile.npz: expected a .npz file of numbers, found No such file or directory" in refused(*BY_REFERENCE, "nofile.npz")


def test_a_split_below_0_is_refused() -> None:
    assert "-1 is not in the range" in refused("vts", ".", "--split", "-1")


def test_a_device_beside_a_split_is_refused() -> None:
    assert "--device does nothing here" in refused("vts", ".", "--split", "1", "--device", "nnapi-sample_all")


def test_a_reference_that_reads_other_files_is_refused(saved: str) -> None:
    for model, reference, known in (
        (saved, "litert", ""),
        (DIGITS, "onnxruntime", "litert, "),
        (ONNX, "litert", "onnxruntime, "),
    ):
        message = refused("compare", model, "--reference", reference)
        assert f"--reference: expected {known}FILE.npz for {model}, a " in message
        assert message.endswith(f"found {reference}")


def test_every_command_gives_the_model_by_its_path_in_json() -> None:
    for arguments in (("plan", DIGITS), (*RUN, "--seed", "0"), (*BY_REFERENCE, REFERENCE, "--plan")):
        found = json.loads(CliRunner().invoke(cli, [*arguments, "--json"]).stdout)
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
    assert f"{saved}: expected no --{option}, which does nothing with a saved model, found" in message
    if option != "mapping":
        assert f"expected no --{option}" in refused("inspect", saved, f"--{option}", value)


@pytest.mark.parametrize("command", ["plan", "inspect"])
@pytest.mark.parametrize(
    ("model", "option", "value", "message"),
    [
        (DIGITS, "--layout", "nchw", "expected no --layout, which does nothing with tflite files, found nchw"),
        (DIGITS, "--float64", "narrow", "expected no --float64"),
        (ONNX, "--signature", "x", "expected no --signature, which does nothing with onnx files, found x"),
        (DIGITS, "--signature", "nope", "--signature: expected a signature of the file"),
        (DIGITS, "--shape", "nosuch=1,2", f"--shape: expected an input ({INPUT}), found nosuch"),
        (ONNX, "--shape", "nosuch=1,2", "--shape: expected an input (image[4 dimensions]), found nosuch=[1, 2]"),
    ],
)
def test_an_option_that_does_not_fit_the_file_is_refused(command: str, model: str, option: str, value: str, message: str) -> None:
    told = refused(command, model, option, value)
    assert told.startswith(f"nnbridge: {model}")
    assert message in told


def test_a_file_that_is_no_model_says_what_was_expected_and_found(tmp_path: Path) -> None:
    text, empty = tmp_path / "text.txt", tmp_path / "empty.tflite"
    text.write_bytes(b"some text")
    empty.touch()
    found = refused("plan", str(text))
    assert f"{text}: expected a model file (" in found
    assert ".nnapi), found a file that begins with b'some tex'" in found
    assert f"{empty}: expected a readable TFLite file, found an empty file" in refused("plan", str(empty))
    assert "missing.tflite: expected a model file, found none at this path" in refused("plan", str(tmp_path / "missing.tflite"))
