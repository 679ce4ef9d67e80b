"""Drivers in processes of their own: the same answers, and what their deaths and silences become."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from nnbridge import devices
from nnbridge.devices.device import CacheFiles
from nnbridge.devices.remote.client import RemoteDevice
from nnbridge.devices.remote.session import TIMEOUT_VARIABLE
from nnbridge.devices.remote.wire import MAX_CHANNELS
from nnbridge.errors import (
    DeadObjectError,
    InputError,
    MissedDeadlineTransientError,
    OpFailedError,
    Reason,
)
from nnbridge.runtime.burst import Burst
from nnbridge.runtime.compilation import Compilation, supported_operations
from nnbridge.runtime.execution import Execution
from nnbridge.runtime.placement import answers_of
from nnbridge.types import DurationCode, OperationCode, ResultCode
from tests.conftest import REPOSITORY
from tests.devices import broken
from tests.graphs import add_then, constant_add, unary_chain

X = np.array([[-1, 0, 1, 2]], np.float32)
ADDED = X + 1


def driver(name: str) -> RemoteDevice:
    return RemoteDevice.process(f"tests.devices.broken:{name}")


@pytest.fixture
def good() -> Iterator[RemoteDevice]:
    device = driver("GOOD")
    yield device
    device.close()


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def compiled(device: RemoteDevice, *, fallback: bool = False) -> Compilation:
    make = Compilation.create if fallback else Compilation.create_for_devices
    compilation = make(add_then(), [device])
    compilation.finish()
    return compilation


def kill(device: RemoteDevice) -> None:
    pid = device.pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)


# -- as in this process ------------------------------------------------------------------------------------------------


def test_a_driver_describes_itself_as_it_does_in_this_process(good: RemoteDevice) -> None:
    assert good.pid not in (None, os.getpid())
    assert (good.version, good.feature_level, good.type) == (broken.GOOD.version, 8, broken.GOOD.type)
    assert good.capabilities == broken.GOOD.capabilities


def test_reasons_travel() -> None:
    there = devices.device("process:nnapi-sample_minimal")
    here = devices.device("nnapi-sample_minimal")
    model = unary_chain(OperationCode.RELU, OperationCode.TANH)
    answers = there.supported_operations(model)
    assert answers == here.supported_operations(model)
    assert isinstance(answers[0], Reason)


def test_models_travel_with_their_large_constants(good: RemoteDevice) -> None:
    value = np.arange(1000, dtype=np.float32)
    compilation = Compilation.create_for_devices(constant_add(value), [good])
    compilation.finish()
    assert np.array_equal(Execution(compilation).run([value])["y"], 2 * value)


def test_dynamic_outputs_report_their_dimensions(good: RemoteDevice) -> None:
    compilation = Compilation.create_for_devices(unary_chain(OperationCode.RELU, dims=(0, 4)), [good])
    compilation.finish()
    assert Execution(compilation).run([np.ones((3, 4), np.float32)])["y"].shape == (3, 4)


def test_bursts_timing_and_threads(good: RemoteDevice) -> None:
    compilation = compiled(good)
    execution = Execution(compilation)
    execution.set_measure_timing(True)
    out = np.empty_like(X)
    execution.set_input(0, X)
    execution.set_output(0, out)
    Burst(compilation).compute(execution)
    assert np.array_equal(out, ADDED)
    assert 0 < execution.duration(DurationCode.ON_HARDWARE) <= execution.duration(DurationCode.IN_DRIVER)
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda k: Execution(compilation).run([X + k])["y"], range(64)))
    assert all(np.array_equal(answer, ADDED + k) for k, answer in enumerate(answers))


def test_more_calls_than_channels_wait_for_each_other(good: RemoteDevice) -> None:
    compilation, barrier = compiled(good), threading.Barrier(MAX_CHANNELS + 20)

    def run(k: int) -> bool:
        barrier.wait()
        return np.array_equal(Execution(compilation).run([X + k])["y"], ADDED + k)

    with ThreadPoolExecutor(barrier.parties) as pool:
        assert all(pool.map(run, range(barrier.parties)))


def test_a_name_is_one_device_and_one_process() -> None:
    assert devices.device("process:nnapi-sample_quant") is devices.device("process:nnapi-sample_quant")


def test_a_driver_that_cannot_start_is_named() -> None:
    with pytest.raises(InputError, match="process:nobody"):
        devices.device("process:nobody")
    with pytest.raises(InputError, match="socket:/nowhere"):
        devices.device("socket:/nowhere/at/all")


@pytest.mark.parametrize("command", ["plan", "serve"])
def test_files_of_the_current_folder_do_not_stand_in_for_standard_modules(tmp_path: Path, command: str) -> None:
    for module in ("array", "random", "lzma", "argparse", "sitecustomize", "numpy"):
        (tmp_path / f"{module}.py").write_text("import sys\nprint('PLANTED', __file__, file=sys.stderr, flush=True)\n")
    mine = f"import sys\nsys.path.append({str(REPOSITORY)!r})\nfrom tests.devices.broken import GOOD\n"
    (tmp_path / "mine.py").write_text(mine)
    call = {
        "plan": ["plan", str(REPOSITORY / "models/digits_float32.tflite"), "--device", "process:mine:GOOD"],
        "serve": ["devices", "serve", "mine:GOOD", "--socket", "socket"],
    }[command]
    # As the installed command begins: its own folder is first on the path, the current one nowhere.
    code = "import sys; sys.path.remove(''); from nnbridge.cli import main; main()"
    started = subprocess.Popen([sys.executable, "-c", code, *call], cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    try:
        if command == "serve":
            started.stderr.readline()  # type: ignore[union-attr]
            RemoteDevice.at(str(tmp_path / "socket")).close()
            started.terminate()
        said = started.communicate(timeout=60)[1]
    finally:
        started.kill()
    assert "PLANTED" not in said
    assert started.returncode == 0


# -- death -------------------------------------------------------------------------------------------------------------


def test_t3_a_dead_driver_is_dead_object_and_its_prepared_models_stay_dead(good: RemoteDevice) -> None:
    compilation = compiled(good)
    kill(good)
    for _ in range(2):
        with pytest.raises(DeadObjectError, match="a driver that is alive"):
            Execution(compilation).run([X])
    assert np.array_equal(Execution(compiled(good)).run([X])["y"], ADDED)
    with pytest.raises(DeadObjectError):
        Execution(compilation).run([X])


def test_a_dead_driver_is_restarted_for_the_next_question(good: RemoteDevice) -> None:
    first = good.pid
    kill(good)
    assert good.supported_operations(add_then()) == [True]
    assert good.pid not in (None, first)


def test_executions_go_to_the_cpu_where_androids_would(good: RemoteDevice) -> None:
    compilation = compiled(good, fallback=True)
    assert compilation.plan.device_of(0) is good
    kill(good)
    execution = Execution(compilation)
    assert np.array_equal(execution.run([X])["y"], ADDED)
    assert execution.report.fallback is not None
    assert "its end during execute" in str(execution.report.fallback)


def test_killed_in_the_middle_of_executions_none_is_lost(good: RemoteDevice) -> None:
    compilation = compiled(good, fallback=True)

    def run(k: int) -> tuple[bool, bool]:
        if k == 40:
            kill(good)
        execution = Execution(compilation)
        right = np.array_equal(execution.run([X + k])["y"], ADDED + k)
        return right, execution.report.fallback is None

    with ThreadPoolExecutor(4) as pool:
        right, on_driver = zip(*pool.map(run, range(200)), strict=True)
    assert all(right)
    assert 0 < sum(on_driver) < 200


def test_a_driver_that_dies_whenever_it_prepares_leaves_the_model_to_the_cpu() -> None:
    device = driver("DIES_IN_PREPARE")
    with pytest.raises(DeadObjectError):
        compiled(device)
    compilation = compiled(device, fallback=True)
    assert compilation.plan.fallback is not None
    assert np.array_equal(Execution(compilation).run([X])["y"], ADDED)


def test_a_driver_that_comes_back_as_another_is_used_no_more() -> None:
    device = driver("CHANGES")
    kill(device)
    with pytest.raises(DeadObjectError, match="the same driver"):
        device.supported_operations(add_then())


def test_exceptions_of_a_driver_do_not_kill_it() -> None:
    device = driver("RAISES")
    compilation = compiled(device)
    pid = device.pid
    with pytest.raises(OpFailedError, match="ZeroDivisionError"):
        Execution(compilation).run([X])
    assert device.pid == pid


# -- silence -----------------------------------------------------------------------------------------------------------


def test_a_hung_execution_misses_its_deadline() -> None:
    compilation = compiled(driver("HANGS_IN_EXECUTE"))
    execution = Execution(compilation)
    execution.set_timeout(1_000_000)
    with pytest.raises(MissedDeadlineTransientError, match="answers in time"):
        execution.run([X])


def test_a_driver_that_is_silent_for_too_long_is_abandoned(monkeypatch: pytest.MonkeyPatch) -> None:
    device = driver("HANGS_IN_EXECUTE")
    compilation = compiled(device, fallback=True)
    monkeypatch.setenv(TIMEOUT_VARIABLE, "0.2")
    execution = Execution(compilation)
    assert np.array_equal(execution.run([X])["y"], ADDED)
    assert "answers in time" in str(execution.report.fallback)
    assert device.pid is None


def test_a_stopped_process_is_abandoned_as_well(good: RemoteDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    compilation = compiled(good)
    assert good.pid is not None
    os.kill(good.pid, signal.SIGSTOP)
    while _state(good.pid) != "T":
        time.sleep(0.01)
    monkeypatch.setenv(TIMEOUT_VARIABLE, "0.2")
    with pytest.raises(MissedDeadlineTransientError):
        Execution(compilation).run([X])


def test_a_hung_preparation_misses_the_compilations_deadline() -> None:
    compilation = Compilation.create_for_devices(add_then(), [driver("HANGS_IN_PREPARE")])
    compilation.set_timeout(1_000_000)
    with pytest.raises(MissedDeadlineTransientError):
        compilation.finish()


def test_the_time_limit_may_be_endless(good: RemoteDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TIMEOUT_VARIABLE, "inf")
    assert good.supported_operations(add_then()) == [True]


def test_the_time_limit_is_a_number_above_0(good: RemoteDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TIMEOUT_VARIABLE, "soon")
    with pytest.raises(InputError, match=TIMEOUT_VARIABLE):
        good.supported_operations(add_then())


# -- what is left behind -----------------------------------------------------------------------------------------------


def _gone(pid: int) -> bool:
    for _ in range(100):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        if _state(pid) == "Z":
            return True
        time.sleep(0.05)
    return False


def _named_memory() -> set[str]:
    """Shared memory with names that Python's modules or nnbridge give; other programs' files come and go."""
    return {name for name in os.listdir("/dev/shm") if name.startswith(("psm_", "nnbridge"))}


def test_kills_leave_no_shared_memory_descriptor_or_process_behind() -> None:
    device = driver("GOOD")
    shared, descriptors = _named_memory(), len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        compilation = compiled(device)
        Execution(compilation).run([X])
        pid = device.pid
        kill(device)
        assert pid is not None
        with pytest.raises(DeadObjectError):
            Execution(compilation).run([X])
        assert _gone(pid)
    del compilation
    assert _named_memory() == shared
    assert len(os.listdir("/proc/self/fd")) <= descriptors + 2


def test_a_driver_ends_with_a_client_that_is_killed() -> None:
    code = (
        "import os, signal\nfrom nnbridge.devices import device\n"
        "d = device('process:nnapi-sample_all')\nprint(d.pid, flush=True)\nos.kill(os.getpid(), signal.SIGKILL)"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert ended.returncode == -signal.SIGKILL
    assert _gone(int(ended.stdout))


def test_a_driver_ends_with_its_client_although_a_fork_of_it_lives() -> None:
    code = (
        "import os, signal, time\nfrom nnbridge.devices import device\nfrom tests.graphs import add_then\n"
        "d = device('process:nnapi-sample_all')\nd.supported_operations(add_then())\n"
        "child = os.fork()\nif not child:\n    time.sleep(60)\n    os._exit(0)\n"
        "print(d.pid, child, flush=True)\nos.kill(os.getpid(), signal.SIGKILL)"
    )
    client = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, cwd=REPOSITORY)
    assert client.stdout is not None
    driver_pid, fork = map(int, client.stdout.readline().split())
    try:
        assert _gone(driver_pid)
        os.kill(fork, 0)
    finally:
        os.kill(fork, signal.SIGKILL)
        client.communicate()


def test_answers_that_are_no_booleans_are_wrong_in_another_process_too() -> None:
    local, remote = broken.ANSWERS_NUMBERS, driver("ANSWERS_NUMBERS")
    assert supported_operations(add_then(), [local]) == supported_operations(add_then(), [remote]) == [False]


def test_a_fork_uses_a_driver_of_its_own(good: RemoteDevice) -> None:
    compilation = compiled(good)
    child = os.fork()
    if child == 0:  # pragma: no cover - in the child
        try:
            Execution(compilation).run([X])
            code = 1
        except DeadObjectError:
            code = 0 if np.array_equal(Execution(compiled(good)).run([X])["y"], ADDED) else 2
        finally:
            good.close()
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert np.array_equal(Execution(compilation).run([X])["y"], ADDED)


def test_the_result_of_an_execution_is_an_nnapi_code(good: RemoteDevice) -> None:
    compilation = compiled(good)
    kill(good)
    execution = Execution(compilation)
    execution.set_input(0, X)
    execution.set_output(0, np.empty_like(X))
    with execution.start_compute() as event:
        assert event.result is ResultCode.DEAD_OBJECT


def test_the_script_that_kills_drivers_loses_no_execution() -> None:
    script = "scripts/nets/kill_driver.py"
    command = [sys.executable, script, "models/digits_float32.tflite", "--executions", "100", "--kills", "3"]
    ended = subprocess.run(command, capture_output=True, text=True, cwd=REPOSITORY, timeout=120)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert ended.stdout.count("100 executions, 3 of 3 kills") == 2
    assert ended.stdout.count("0 lost") == ended.stdout.count("left behind: nothing") == 2


# -- caching and attributes ----------------------------------------------------------------------------------------------


def test_compiled_models_are_stored_by_drivers_in_other_processes_too(tmp_path: Path) -> None:
    device = RemoteDevice.process("caching:nnapi-sample_all")
    assert device.number_of_cache_files_needed() == (1, 0)
    for expected in ("written", "read"):
        compilation = Compilation.create_for_devices(add_then(OperationCode.RELU), [device])
        compilation.set_caching(tmp_path, bytes(32))
        compilation.finish()
        assert [record.result for record in compilation.plan.cache] == [expected]
        assert np.array_equal(Execution(compilation).run([X])["y"], np.maximum(ADDED, 0))


def test_a_damaged_cache_file_reaches_no_driver(tmp_path: Path) -> None:
    device = RemoteDevice.process("caching:nnapi-sample_all")
    with pytest.raises(OpFailedError):
        device.prepare_model_from_cache(CacheFiles((b"nonsense" * 40,)), bytes(32))
    assert device.supported_operations(add_then()) == [True]


def test_attributes_travel() -> None:
    compilation = Compilation.create_for_devices(add_then(), [driver("ATTRIBUTES")])
    compilation.add_extension_attribute("com.example", 7, b"\x00\xff")
    with pytest.raises(OpFailedError, match=r"\(\('com.example', 7, b'\\x00\\xff'\),\) 100 False"):
        compilation.finish()
    large = Compilation.create_for_devices(add_then(), [driver("ATTRIBUTES")])
    large.add_extension_attribute("com.example", 7, bytes(5_000_000))
    with pytest.raises(OpFailedError, match=r"found 25\d{6} bytes"):  # the driver's message would repeat them
        large.finish()
    execution = Execution(compiled(driver("ATTRIBUTES")))
    execution.add_extension_attribute("com.example", 7, b"one")
    execution.set_loop_timeout(5)
    with pytest.raises(OpFailedError, match=r"\(\('com.example', 7, b'one'\),\) 5"):
        execution.run([X])


def test_doubts_of_a_driver_cross_the_border(tmp_path: Path) -> None:
    profile = tmp_path / "npu.toml"
    profile.write_text('[[device]]\nname = "npu"\n[device.operations]\nFLOOR = { uncertain = "page 7 is missing" }\n')
    model = unary_chain(OperationCode.FLOOR, OperationCode.ABS)
    remote, plain = devices.device(f"process:{profile}"), devices.device(str(profile))
    assert answers_of(remote, model).uncertain == answers_of(plain, model).uncertain == ("page 7 is missing", "")


@pytest.mark.parametrize("name", ["process:process:nnapi-reference", "process:socket:driver.sock"])
def test_a_process_has_a_device_of_its_own(name: str) -> None:
    with pytest.raises(InputError, match='expected an in-process device after "process:", found'):
        devices.device(name)
