"""The provider in programs of its own: a C++ program on ONNX Runtime's library without Python, and the example of the guide."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from nnbridge import Compilation, Execution, provider
from nnbridge.converters import ConversionOptions
from nnbridge.file import ModelFile
from tests.conftest import MODELS, REPOSITORY
from tests.provider.sessions import DEVICE, needs

needs()

DIGITS = MODELS / "digits_float32.onnx"
IMAGE = np.random.default_rng(0).random((1, 1, 8, 8), np.float32)


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program, linked with the wheel's ONNX Runtime and the provider's library beside it."""
    import onnxruntime

    libraries = sorted((Path(onnxruntime.__file__).parent / "capi").glob("libonnxruntime.so.*"))
    if not libraries:
        pytest.skip("the onnxruntime package has no libonnxruntime.so")
    if shutil.which("c++") is None:
        pytest.skip("there is no C++ compiler on this machine")
    folder = tmp_path_factory.mktemp("host")
    (folder / "libonnxruntime.so.1").symlink_to(libraries[-1])
    for shared in libraries[-1].parent.glob("libonnxruntime_providers_shared.so"):  # 1.23 looks for it beside itself
        (folder / shared.name).symlink_to(shared)
    linked = [folder / "libonnxruntime.so.1", provider.build(folder)]
    command = ["c++", "-std=c++17", "-Wall", "-Wextra", "-Werror", Path(__file__).with_name("host.cpp"), "-o", folder / "host"]
    subprocess.run([*command, *linked, "-lpthread", f"-Wl,-rpath,{folder}"], check=True)
    return folder / "host"


def run(host: Path, *arguments: str, registered: bool = True, **variables: str) -> subprocess.CompletedProcess[bytes]:
    library = str(host.with_name(provider.LIBRARY)) if registered else "-"
    command = [host, library, DIGITS, "image", "probabilities", "1,1,8,8", *arguments]
    environment = {**os.environ, **variables}
    return subprocess.run(command, input=IMAGE.tobytes(), env=environment, capture_output=True, timeout=120, check=False)


def expected() -> bytes:
    """The results of ``nnbridge run --mapping provider``."""
    model, _ = ModelFile(DIGITS, ConversionOptions(mapping="provider")).converted
    compilation = Compilation.create(model, [DEVICE])
    compilation.finish()
    (answer,) = Execution(compilation).run([IMAGE]).values()
    return answer.tobytes()


def test_a_cpp_program_registers_the_library_and_gets_nnbridges_answers(host: Path) -> None:
    ended = run(host, "3", f"nnbridge_devices={DEVICE}")
    assert (ended.returncode, ended.stdout) == (0, expected()), ended.stderr


def test_a_program_for_android_runs_as_it_is(host: Path, tmp_path: Path) -> None:
    variables = {"NNBRIDGE_DEVICES": DEVICE, "NNBRIDGE_TRACE": str(tmp_path / "trace")}
    ended = run(host, "1", "0", registered=False, **variables)
    assert (ended.returncode, ended.stdout) == (0, expected()), ended.stderr
    calls = [json.loads(line)["call"].removeprefix("ANeuralNetworks") for line in (tmp_path / "trace").read_text().splitlines()]
    assert calls == ["Model_finish", "Compilation_finish", "Execution_compute", "Execution_compute"]


@pytest.mark.parametrize(
    ("arguments", "registered", "text"),
    [
        (("1", "nonsense=1"), True, "provider options: expected an option of use_fp16, use_nchw"),
        (("1", "12"), False, "expected one of cpu_disabled and cpu_only, found both"),
    ],
)
def test_what_is_refused_is_a_status_of_the_program(host: Path, arguments: tuple[str, ...], registered: bool, text: str) -> None:
    ended = run(host, *arguments, registered=registered)
    assert (ended.returncode, ended.stdout) == (3, b"")
    assert text in ended.stderr.decode()


def test_a_library_that_cannot_start_says_why(host: Path) -> None:
    ended = run(host, registered=False, NNBRIDGE_LOG="loud")
    assert ended.returncode == 3
    assert "libnnbridge_provider.so cannot start: NNBRIDGE_LOG: expected one of info, debug, warning" in ended.stderr.decode()


def test_the_example_agrees_with_onnx_runtime() -> None:
    command = [sys.executable, str(REPOSITORY / "examples" / "provider.py"), str(DIGITS), DEVICE]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    lines = ended.stdout.splitlines()
    assert lines[0] == "15 nodes on NnapiExecutionProvider in 1 partition, 0 on CPUExecutionProvider"
    name, _, difference = lines[1].partition(": ")
    assert name == "greatest difference to ONNX Runtime's CPU in probabilities"
    assert float(difference) < 1e-6
