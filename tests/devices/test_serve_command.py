"""``nnbridge devices serve``: a driver in a process of its own, restarted when it dies, behind a socket that comes and goes."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from nnbridge.devices.remote.client import RemoteDevice
from nnbridge.errors import DeadObjectError, InputError
from nnbridge.runtime.compilation import Compilation
from nnbridge.runtime.execution import Execution
from tests.graphs import add_then

X = np.array([[-1, 0, 1, 2]], np.float32)


class Served:
    """``nnbridge devices serve`` in a process of its own."""

    def __init__(self, path: str, device: str = "tests.devices.broken:GOOD", *options: str) -> None:
        code = "from nnbridge.cli import main; main()"
        command = [sys.executable, "-c", code, "devices", "serve", device, "--socket", path, *options]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def pid(self) -> int:
        """The next driver's process, as the supervisor reports it."""
        assert self.process.stderr is not None
        return int(self.process.stderr.readline().split()[-1])

    def __enter__(self) -> Served:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        self.process.communicate()


def test_a_served_driver_is_restarted_when_it_dies(tmp_path: Path) -> None:
    path = tmp_path / "driver"
    with Served(str(path)) as served:
        pid = served.pid()
        device = RemoteDevice.at(str(path))
        compilation = Compilation.create_for_devices(add_then(), [device])
        compilation.finish()
        assert np.array_equal(Execution(compilation).run([X])["y"], X + 1)
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(DeadObjectError):
            Execution(compilation).run([X])
        assert device.supported_operations(add_then()) == [True]
        assert served.pid() != pid
        assert path.stat().st_mode & 0o777 == 0o600
    assert not path.exists()
    assert served.process.returncode == 0


def test_a_killed_supervisor_takes_the_driver_and_the_socket_along(tmp_path: Path) -> None:
    path = tmp_path / "driver"
    with Served(str(path)) as served:
        pid = served.pid()
        RemoteDevice.at(str(path)).close()
        served.process.kill()
        served.process.wait()
        for _ in range(100):
            if not path.exists() and not Path(f"/proc/{pid}/exe").exists():
                break
            time.sleep(0.05)
    assert not path.exists()
    assert not Path(f"/proc/{pid}/exe").exists()


def test_an_abstract_address_leaves_no_file(tmp_path: Path) -> None:
    name = f"@nnbridge-test-{os.getpid()}"
    with Served(name) as served:
        served.pid()
        assert RemoteDevice.at(name).supported_operations(add_then()) == [True]


def test_a_driver_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(tmp_path / "driver"))
        other.listen()
        monkeypatch.setattr(os, "getuid", lambda: 65534)
        with pytest.raises(InputError, match=r"a driver that user 65534 serves, found user \d+ at"):
            RemoteDevice.at(str(tmp_path / "driver"))


def test_json_reports_device_address_and_process_in_one_line() -> None:
    name = f"@nnbridge-json-{os.getpid()}"
    with Served(name, "tests.devices.broken:GOOD", "--json") as served:
        assert served.process.stdout is not None
        printed = json.loads(served.process.stdout.readline())
        assert Path(f"/proc/{printed['pid']}").exists()
    assert (printed["device"], printed["socket"]) == ("tests.devices.broken:GOOD", name)


def test_a_path_in_use_is_refused_and_a_deserted_one_taken(tmp_path: Path) -> None:
    path = tmp_path / "driver"
    with socket.socket(socket.AF_UNIX) as deserted:
        deserted.bind(str(path))
    with Served(str(path)) as served:
        served.pid()
        with Served(str(path)) as second:
            _, said = second.process.communicate()
            assert second.process.returncode == 2
            assert "a free socket" in said
        assert RemoteDevice.at(str(path)).supported_operations(add_then()) == [True]


def test_a_driver_that_dies_at_its_start_over_and_over_is_abandoned(tmp_path: Path) -> None:
    with Served(str(tmp_path / "driver"), "tests.devices.broken:DIES_AT_ONCE") as served:
        said = served.process.communicate()[1]
    assert served.process.returncode == 2
    assert "died 5 times at its start" in said


def test_nobody_at_the_socket_is_an_input_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="a driver that starts"):
        RemoteDevice.at(str(tmp_path / "nobody"))


@pytest.mark.parametrize("path", ["", "@"])
def test_a_socket_without_a_name_is_refused_and_nothing_is_removed(path: str) -> None:
    with Served(path) as served:
        said = served.process.communicate()[1]
    assert said == f"nnbridge: --socket: expected a socket's path or @NAME, found '{path}'\n"
    with pytest.raises(InputError, match="a socket's path or @NAME"):
        RemoteDevice.at(path)


def test_a_device_that_is_not_there_is_blamed_on_the_argument_of_serve() -> None:
    with Served("@nnbridge-nobody", "no_such_module:NPU") as served:
        said = served.process.communicate()[1]
    assert said.startswith("nnbridge: device: expected a device that can be loaded, found no_such_module:NPU: ")
    assert said.count("\n") == 1


def test_a_driver_that_cannot_be_loaded_in_its_process_reports_why_once(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(InputError, match=r"^--device process:no_such_module:NPU: expected a device that can be loaded") as caught:
        RemoteDevice.process("no_such_module:NPU")
    assert "its end during" not in str(caught.value)
    assert capfd.readouterr().err == ""
