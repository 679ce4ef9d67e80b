"""libneuralnetworks.so: a C client, and what the command line makes of it."""

from __future__ import annotations

import errno
import importlib
import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from nnbridge import clib, ndk
from nnbridge.clib.header import header
from nnbridge.clib.signatures import SIGNATURES
from nnbridge.ndk.trace import Trace
from tests.commands import call
from tests.conftest import REPOSITORY

pytest.importorskip("cffi")

HERE = Path(__file__).parent
compiler = pytest.mark.skipif(shutil.which("gcc") is None, reason="there is no gcc on this machine")


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the library and its header."""
    folder = tmp_path_factory.mktemp("ndk")
    clib.build(folder)
    return folder


def client(library: Path, *options: str) -> Path:
    """The C client, compiled."""
    program = library / "client"
    command = ["gcc", "-Wall", "-Werror", "-O1", *options, str(HERE / "client.c"), f"-I{library}"]
    subprocess.run([*command, f"-L{library}", "-lneuralnetworks", "-lpthread", "-o", str(program)], check=True)
    return program


def run(program: Path, library: Path, device: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """The client's answer on a device."""
    environment = {**os.environ, **clib.environment(library), **variables}
    return subprocess.run([str(program), device], env=environment, capture_output=True, text=True, timeout=120, check=False)


@compiler
@pytest.mark.parametrize("device", ["nnapi-reference", "nnapi-sample_float_fast"])
def test_a_c_client_computes_in_every_way_from_eight_threads(library: Path, device: str) -> None:
    result = run(client(library), library, device)
    assert (result.returncode, result.stdout) == (0, "all computed\n"), result.stderr


@compiler
def test_a_c_client_has_no_memory_error_under_address_sanitizer(library: Path) -> None:
    if (
        subprocess.run(["gcc", "-print-file-name=libasan.so"], capture_output=True, text=True, check=True).stdout.strip()
        == "libasan.so"
    ):
        pytest.skip("gcc has no AddressSanitizer here")
    # What the interpreter keeps at its end is not a leak of the library's.
    result = run(client(library, "-fsanitize=address", "-g"), library, "nnapi-reference", ASAN_OPTIONS="detect_leaks=0")
    assert (result.returncode, result.stdout) == (0, "all computed\n"), result.stderr


@compiler
def test_a_c_client_sees_the_devices_that_the_environment_names(library: Path) -> None:
    result = run(client(library), library, "nnapi-sample_float_fast", NNBRIDGE_DEVICES="nnapi-sample_minimal")
    assert result.returncode == 1
    assert "no device nnapi-sample_float_fast" in result.stderr


@compiler
def test_d20_with_the_cpu_alone_no_other_device_is_there(library: Path) -> None:
    refused = run(client(library), library, "nnapi-sample_float_fast", NNBRIDGE_CPU_ONLY="1")
    assert "no device nnapi-sample_float_fast" in refused.stderr
    assert run(client(library), library, "nnapi-reference", NNBRIDGE_CPU_ONLY="1").stdout == "all computed\n"


@compiler
def test_the_log_reports_where_operations_go_and_why_calls_are_refused(library: Path) -> None:
    result = run(client(library), library, "nnapi-sample_float_fast", NNBRIDGE_LOG="debug")
    assert "operation 0 ADD goes to nnapi-sample_float_fast (nnapi-sample_float_fast 0.8)" in result.stderr
    assert "setInput: expected 800 bytes, found 4" in result.stderr


@compiler
def test_the_trace_reports_what_a_client_did_and_holds_its_model(library: Path, tmp_path: Path) -> None:
    trace = tmp_path / "trace.jsonl"
    result = run(client(library), library, "nnapi-reference", NNBRIDGE_TRACE=str(trace))
    assert result.returncode == 0, result.stderr
    text = trace.read_text()
    assert '"call": "ANeuralNetworksExecution_compute"' in text
    (saved,) = tmp_path.glob("*.nnapi")
    planned = call("plan", saved, "--device", "nnapi-sample_minimal", "--json")
    assert planned.exit_code == 0
    assert '"nnapi-sample_minimal"' in planned.output


def test_every_function_has_a_signature_and_the_other_way_round() -> None:
    assert {signature.name for signature in SIGNATURES} == set(ndk.FUNCTIONS)


def test_the_header_has_androids_numbers() -> None:
    text = header()
    for line in (
        "ANEURALNETWORKS_CONV_2D = 3,",
        "ANEURALNETWORKS_TENSOR_QUANT8_ASYMM_SIGNED = 14,",
        "ANEURALNETWORKS_FEATURE_LEVEL_5 = 31,",
        "ANEURALNETWORKS_FENCED_DURATION_IN_DRIVER = 3,",
        "ANEURALNETWORKS_PREFER_SUSTAINED_SPEED = 2,",
        "ANEURALNETWORKS_PRIORITY_HIGH = 110,",
    ):
        assert line in text
    assert len(re.findall(r"^\w+ ANeuralNetworks\w+\(", text, re.MULTILINE)) == 75


def test_the_commands_build_and_report_the_environment(tmp_path: Path) -> None:
    built = call("ndk", "build", tmp_path)
    assert built.exit_code == 0
    assert (tmp_path / "libneuralnetworks.so").is_file()
    printed = call("ndk", "env", tmp_path)
    assert f"export LD_LIBRARY_PATH={tmp_path}" in printed.output


@pytest.mark.parametrize("command", ["build", "env"])
def test_a_folder_that_cannot_hold_the_library_is_bad_input(command: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    result = call("ndk", command, tmp_path / "file" / "below")
    assert (result.exit_code, result.stdout) == (2, "")
    assert f"{tmp_path / 'file' / 'below'}: expected a folder" in result.stderr


@compiler
def test_a_c_client_computes_on_a_driver_in_another_process(library: Path) -> None:
    result = run(client(library), library, "process:nnapi-sample_all", NNBRIDGE_DEVICES="process:nnapi-sample_all")
    assert (result.returncode, result.stdout) == (0, "all computed\n"), result.stderr


def fibonacci(library: Path) -> Path:
    """The C client of the example extension, compiled with the header that its vendor ships."""
    program = library / "fibonacci"
    sources = [str(HERE / "fibonacci.c"), f"-I{library}", f"-I{REPOSITORY / 'examples'}"]
    subprocess.run(["gcc", "-Wall", "-Werror", *sources, f"-L{library}", "-lneuralnetworks", "-o", str(program)], check=True)
    return program


@compiler
@pytest.mark.parametrize("device", ["examples.fibonacci:FIBONACCI", "process:examples.fibonacci:FIBONACCI"])
def test_a_c_client_uses_a_vendor_extension_by_its_header(library: Path, device: str) -> None:
    result = run(fibonacci(library), library, "", NNBRIDGE_DEVICES=device, PYTHONPATH=str(REPOSITORY))
    assert (result.returncode, result.stdout) == (0, "1 1 2 3 5 8 13 21 34 55 \n"), result.stderr


@compiler
def test_a_c_client_that_may_not_use_vendor_extensions_gets_bad_data(library: Path) -> None:
    variables = {"NNBRIDGE_DEVICES": "examples.fibonacci:FIBONACCI", "PYTHONPATH": str(REPOSITORY)}
    result = run(fibonacci(library), library, "", NNBRIDGE_CLIENT="/system/bin/tool", **variables)
    assert result.returncode == 1
    assert "ANeuralNetworksModel_addOperand(model, &scalar) gave 4" in result.stderr


WRONG_VARIABLES = {
    "NNBRIDGE_TRACE": (
        "missing/trace.jsonl",
        "NNBRIDGE_TRACE: expected a file that can be written to, found missing/trace.jsonl: no such file",
    ),
    "NNBRIDGE_PARTITION": ("7", "NNBRIDGE_PARTITION: expected one of 0, 1, 2, found 7"),
    "NNBRIDGE_LOG": ("loud", "NNBRIDGE_LOG: expected one of info, debug, warning, found loud"),
    "NNBRIDGE_DEVICES": ("nosuch", "NNBRIDGE_DEVICES: "),
}


@compiler
@pytest.mark.parametrize("variable", WRONG_VARIABLES)
def test_a_library_that_cannot_start_says_why_in_one_sentence_and_every_call_fails(variable: str, library: Path) -> None:
    value, message = WRONG_VARIABLES[variable]
    result = run(client(library), library, "nnapi-reference", **{variable: value})
    reason, call = result.stderr.splitlines()
    assert (result.returncode, result.stdout) == (1, "")
    assert reason.startswith(f"libneuralnetworks.so cannot start: {message}")
    assert "--device" not in reason
    assert call.endswith("ANeuralNetworksModel_create(&model) gave 5")


@compiler
def test_a_library_that_cannot_import_nnbridge_says_so_and_every_call_fails(library: Path, tmp_path: Path) -> None:
    (tmp_path / "numpy.py").write_text("raise ImportError('no numpy here')")
    result = run(client(library), library, "nnapi-reference", PYTHONPATH=str(tmp_path))
    reason, call = result.stderr.splitlines()
    assert result.returncode == 1
    assert reason == "libneuralnetworks.so cannot start: ImportError: no numpy here"
    assert call.endswith("gave 5")


@compiler
def test_a_c_client_finds_a_driver_in_its_current_folder(library: Path, tmp_path: Path) -> None:
    driver = "from nnbridge.devices import driver\n\n@driver('my-npu')\ndef NPU(model, operation):\n    return True\n"
    (tmp_path / "my_npu_of_a_client.py").write_text(driver)
    environment = {**os.environ, **clib.environment(library), "NNBRIDGE_DEVICES": "my_npu_of_a_client:NPU"}
    command = [str(client(library)), "my-npu"]
    result = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert (result.returncode, result.stdout) == (0, "all computed\n"), result.stderr


# -- a host that opens the library itself ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def host(library: Path) -> Path:
    """A plain C program that is not linked with the library and opens it with RTLD_LOCAL."""
    program = library / "misuse"
    command = ["gcc", "-Wall", "-Werror", str(HERE / "misuse.c"), f"-I{library}", "-ldl", "-lpthread", "-o", str(program)]
    subprocess.run(command, check=True)
    return program


def opened(host: Path, *checks: str | bytes, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, **clib.environment(host.parent), "NNBRIDGE_DEVICES": "nnapi-sample_all", **variables}
    return subprocess.run([host, *checks], env=environment, capture_output=True, text=True, timeout=120, check=False)


@compiler
@pytest.mark.parametrize("check", ["compute", "lengths", "dependencies", "forks"])
def test_a_host_that_opens_the_library_locally_gets_androids_codes_and_no_traceback(check: str, host: Path) -> None:
    ended = opened(host, check)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "all refused\n", "")


@compiler
def test_calls_whose_arguments_cannot_be_read_are_traced(host: Path, tmp_path: Path) -> None:
    opened(host, "lengths", NNBRIDGE_TRACE=str(tmp_path / "trace"))
    calls = [json.loads(line) for line in (tmp_path / "trace").read_text().splitlines()]
    assert [call["call"].removeprefix("ANeuralNetworks") for call in calls if call["code"] == 4] == [
        "Model_setOperandValue",
        "Model_setOperandValue",
        "Model_addOperand",
        "Model_addOperation",
        "Execution_setInput",
        "Execution_setOutput",
    ]


@compiler
def test_without_python_every_call_fails(host: Path, tmp_path: Path) -> None:
    (tmp_path / "_cffi_backend.py").write_text("raise ImportError('nothing here')")
    ended = opened(host, "start", PYTHONPATH=str(tmp_path))
    assert ended.returncode == 1
    assert "gave 5 instead of 0" in ended.stderr


@compiler
def test_a_cache_lies_in_the_clients_folder_whatever_bytes_its_name_has(host: Path, tmp_path: Path) -> None:
    folder = os.fsencode(tmp_path) + b"/cache\xff"
    os.mkdir(folder)
    opened(host, folder, NNBRIDGE_DEVICES="caching:nnapi-sample_float_fast")
    assert len(os.listdir(folder)) == 1
    assert os.listdir(tmp_path) == [os.fsdecode(os.path.basename(folder))]


# -- building ----------------------------------------------------------------------------------------------------------


def test_a_header_of_another_origin_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "NeuralNetworks.h").write_text("/* the NDK's */")
    refused = call("ndk", "build", tmp_path)
    assert (refused.exit_code, (tmp_path / "NeuralNetworks.h").read_text()) == (2, "/* the NDK's */")
    assert "a folder without a NeuralNetworks.h of another origin" in refused.stderr
    assert not (tmp_path / "libneuralnetworks.so").exists()
    (tmp_path / "NeuralNetworks.h").unlink()
    for _ in range(2):  # its own is replaced
        assert call("ndk", "build", tmp_path).exit_code == 0


def test_a_folder_without_a_name_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    refused = call("ndk", "build", "")
    assert (refused.exit_code, os.listdir(tmp_path)) == (2, [])
    assert "expected a folder's name" in refused.stderr


@compiler
def test_the_bytes_of_a_folders_name_are_printed_as_they_are(tmp_path: Path) -> None:
    folder = os.fsencode(tmp_path) + b"/ndk\xff"
    built = call("ndk", "build", os.fsdecode(folder))
    assert built.stdout_bytes == folder + b"/libneuralnetworks.so\n" + folder + b"/NeuralNetworks.h\n"
    printed = call("ndk", "env", os.fsdecode(folder))
    assert b"export LD_LIBRARY_PATH='" + folder in printed.stdout_bytes


def test_what_the_compiler_says_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = tmp_path / "cc"
    compiler.write_text("#!/bin/sh\necho 'fatal error: no header today' >&2\nexit 1\n")
    compiler.chmod(0o755)
    monkeypatch.setenv("CC", str(compiler))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    refused = call("ndk", "build", tmp_path / "ndk")
    assert refused.exit_code == 2
    assert "a C compiler that compiles the library" in refused.stderr
    assert "fatal error: no header today" in refused.stderr


@pytest.mark.parametrize("named", ["nosuch", ",", "host"])
def test_devices_of_the_environment_that_are_none_are_reported_in_one_line(
    named: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    functions = importlib.import_module("nnbridge.ndk.device_functions")
    monkeypatch.setenv("NNBRIDGE_DEVICES", named)
    monkeypatch.setattr(functions, "devices_of_process", functions.devices_of_process.__wrapped__)
    core = importlib.import_module("nnbridge.ndk.core")
    core._say_once.cache_clear()
    assert ndk.ANeuralNetworks_getDeviceCount() == (5, 0)
    (record,) = caplog.records
    assert record.getMessage().startswith("NNBRIDGE_DEVICES: ")
    assert record.exc_info is None


def test_a_trace_that_cannot_be_written_ends_and_the_calls_go_on(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    trace = Trace(tmp_path / "trace.jsonl")
    trace.call("first", 0, 0.0)
    trace._file = _Full()  # type: ignore[assignment]
    trace.call("second", 0, 0.0)
    trace.call("third", 0, 0.0)
    (record,) = caplog.records
    assert (
        record.getMessage()
        == f"NNBRIDGE_TRACE: {tmp_path / 'trace.jsonl'} cannot be written to any more: No space left on device"
    )


class _Full:
    def write(self, text: str) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
