"""Systems that lack what Linux has: everything that they can do works there, the rest is refused in one sentence."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from nnbridge import clib, delegate, platforms, provider
from nnbridge.cpu import settings
from nnbridge.devices.remote import system
from nnbridge.errors import InputError, OpFailedError
from nnbridge.runtime.event import Event
from nnbridge.storage.atomic import atomic_write
from tests.conftest import MODELS, REPOSITORY

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="hides what other systems lack; Windows lacks it")
SYSTEMS = ("darwin", "win32")
DIGITS = MODELS / "digits_float32.tflite"
REFERENCE = ("--reference", str(MODELS / "digits_float32.litert.npz"))


def python(lacks: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A Python process, and its children, from which is hidden what a system lacks."""
    path = os.pathsep.join([str(Path(__file__).parent), *(p for p in sys.path if p), str(REPOSITORY)])
    environment = {**os.environ, "NNBRIDGE_TEST_LACKS": lacks, "PYTHONPATH": path}
    return subprocess.run([sys.executable, *arguments], env=environment, capture_output=True, text=True, timeout=240, check=False)


def nnbridge(lacks: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return python(lacks, "-c", "from nnbridge.cli import main; main()", *arguments)


@pytest.mark.parametrize("lacks", SYSTEMS)
def test_everything_can_be_imported(lacks: str) -> None:
    packages = [path.relative_to(REPOSITORY / "src") for path in (REPOSITORY / "src").rglob("*.py")]
    names = [".".join(path.with_suffix("").parts).removesuffix(".__init__") for path in packages if path.stem != "__main__"]
    if find_spec("model_explorer") is None:  # an extension's main module is imported by what it extends
        names.remove("nnbridge.explorer.main")
    ended = python(lacks, "-c", "import " + ", ".join(sorted(names)))
    assert ended.returncode == 0, ended.stderr


@pytest.mark.parametrize("lacks", SYSTEMS)
def test_a_model_is_planned_run_and_compared(lacks: str, tmp_path: Path) -> None:
    drivers = ("--device", "nnapi-sample_float_fast,nnapi-sample_minimal")
    ended = nnbridge(lacks, "compare", str(DIGITS), *drivers, *REFERENCE, "--plan", "--cache-dir", str(tmp_path))
    assert ended.returncode == 0, ended.stderr
    assert "nnapi-sample_minimal accepted 5 of 11 operations" in ended.stdout


@pytest.mark.parametrize("lacks", SYSTEMS)
@pytest.mark.parametrize("suffix", ["tflite", "onnx"])
def test_models_are_converted_saved_and_run(lacks: str, suffix: str, tmp_path: Path) -> None:
    if suffix == "onnx":
        pytest.importorskip("onnx")
    saved = str(tmp_path / "digits.nnapi")
    for arguments in (["convert", str(DIGITS.with_suffix(f".{suffix}")), "-o", saved], ["run", saved, "--seed", "0"]):
        ended = nnbridge(lacks, *arguments)
        assert ended.returncode == 0, ended.stderr


def test_a_driver_in_another_process_shares_files_without_names_where_there_is_no_memfd() -> None:
    ended = nnbridge("darwin", "compare", str(DIGITS), "--device", "process:nnapi-sample_float_fast", "--no-fallback", *REFERENCE)
    assert ended.returncode == 0, ended.stderr
    assert "process:nnapi-sample_float_fast accepted 11 of 11 operations" in ended.stdout


def test_a_driver_in_another_process_is_refused_where_sockets_pass_no_descriptors() -> None:
    for arguments in (
        ["plan", str(DIGITS), "--device", "process:nnapi-sample_all"],
        ["plan", str(DIGITS), "--device", "socket:x"],
        ["devices", "serve", "nnapi-sample_all", "--socket", "x"],
    ):
        ended = nnbridge("win32", *arguments)
        assert ended.returncode == 2
        assert "needs sockets that pass descriptors, which Linux lacks; drivers run in nnbridge's own process" in ended.stderr


def test_memory_without_seals_is_read_only_for_models_and_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(system, "_has_seals", lambda: False)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    model, shared = system.read_only_memory("model", lambda file: file.write(b"abc")), system.shared_memory(10)
    assert list(tmp_path.iterdir()) == []
    assert (system.sealed_size(model), system.sealed_size(shared)) == (3, 10)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.write(model, b"x")
    assert os.pwrite(shared, b"x", 9) == 1
    system.close_all([model, shared])


def test_the_user_of_a_peer_is_in_the_credentials_of_the_bsds(monkeypatch: pytest.MonkeyPatch) -> None:
    class Connection:
        def getsockopt(self, *asked: int) -> bytes:
            assert asked == (0, 1, 76)
            return b"\0\0\0\0" + (501).to_bytes(4, sys.byteorder) + bytes(68)

    monkeypatch.setattr(sys, "platform", "darwin")
    connection: Any = Connection()
    assert system.user_of_peer(connection) == 501


def test_abstract_addresses_are_refused_outside_of_linux(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(InputError, match=r"--device @npu needs an abstract space of addresses, which macOS lacks; a"):
        system.socket_address("@npu", "--device")


def test_descriptors_that_arrive_are_not_inherited_where_the_system_does_not_see_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(socket, "MSG_CMSG_CLOEXEC", raising=False)
    ours, theirs = socket.socketpair()
    received: list[int] = []
    with ours, theirs:
        system.send_descriptors(ours, b"x", [ours.fileno()])
        assert system.receive_descriptors(theirs, 1, received) == b"x"
    assert [os.get_inheritable(descriptor) for descriptor in received] == [False]
    system.close_all(received)


def test_descriptors_and_threads_are_left_as_they_are_where_proc_is_not_mounted(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: object) -> None:
        raise FileNotFoundError

    monkeypatch.setattr(os, "listdir", missing)
    assert system.open_descriptors() == 0
    monkeypatch.setattr(settings, "_blas", missing)
    settings.limit_blas(1)


def test_a_fence_is_a_pipe_without_eventfd(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "eventfd", raising=False)
    with Event(lambda: None, fence=True) as event:
        descriptor = event.sync_fence_fd()
        with Event.from_sync_fence_fd(descriptor) as other:
            other.wait()
            other.wait()
    os.close(descriptor)


def test_sync_fences_are_refused_without_poll(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.delattr("select.poll", raising=False)
    with pytest.raises(OpFailedError, match="createFromSyncFenceFd needs poll for descriptors, which Windows lacks; events"):
        Event.from_sync_fence_fd(1)


@pytest.mark.parametrize(("platform", "name"), [("darwin", "macOS"), ("win32", "Windows")])
def test_the_c_library_is_refused_outside_of_linux(
    platform: str, name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(sys, "platform", platform)
    with pytest.raises(InputError, match=f"the C library needs ELF libraries, which {name} lacks; nnbridge.ndk has the same"):
        clib.build(tmp_path)


@pytest.mark.parametrize(("platform", "name"), [("darwin", "macOS"), ("win32", "Windows")])
def test_the_delegate_is_refused_outside_of_linux(
    platform: str, name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(sys, "platform", platform)
    with pytest.raises(InputError, match=f"the TFLite delegate needs ELF libraries, which {name} lacks; nnbridge run --mapping"):
        delegate.build(tmp_path)


@pytest.mark.parametrize(("platform", "name"), [("darwin", "macOS"), ("win32", "Windows")])
def test_the_provider_is_refused_outside_of_linux(
    platform: str, name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(sys, "platform", platform)
    with pytest.raises(
        InputError, match=f"ONNX Runtime provider needs ELF libraries, which {name} lacks; nnbridge run --mapping"
    ):
        provider.build(tmp_path)


def test_no_process_forks_where_none_can(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "register_at_fork", raising=False)
    platforms.after_fork(lambda: pytest.fail("called"))


def test_files_get_their_mode_without_fchmod(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delattr(os, "fchmod", raising=False)
    with atomic_write(tmp_path / "file", 0o640) as file:
        file.write(b"a\nb")
    assert ((tmp_path / "file").stat().st_mode & 0o777, (tmp_path / "file").read_bytes()) == (0o640, b"a\nb")
