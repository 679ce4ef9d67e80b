"""Helper threads: where they run, and when they sleep."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from nnbridge.cpu.compiled import threads
from nnbridge.cpu.compiled.emitter import Emitter
from nnbridge.cpu.compiled.instructions import chosen
from nnbridge.cpu.compiled.objects import Library
from nnbridge.cpu.compiled.threads import Helper, HelperPool

TWO_CORES = pytest.mark.skipif(
    not hasattr(os, "sched_getaffinity") or len(os.sched_getaffinity(0)) < 2, reason="requires two cores"
)


class Jobs:
    """Jobs without steps for a helper of its own pool."""

    def __init__(self) -> None:
        (self.helper,) = HelperPool(chosen()).free(1)
        self.request = np.zeros(6, np.int64)
        self._inside, self._job = np.zeros(1, np.int64), np.zeros(4, np.int64)
        self._job[3] = self._inside.ctypes.data
        self.request[1:4] = self._job.ctypes.data, self._inside.ctypes.data, self.request[4:].ctypes.data

    def begin(self) -> None:
        """Recruit the helper."""
        self.helper.recruit(self._job, self.request, self.request.ctypes.data)

    @property
    def under_way(self) -> bool:
        """True until the helper has left the job."""
        return bool(self._inside[0])

    def run(self) -> None:
        """One job, until the helper has left it."""
        self.begin()
        self.wait()

    def wait(self) -> None:
        """Until the helper has left its job."""
        end = time.monotonic() + 10
        while self.under_way:
            assert time.monotonic() < end, "the helper has not come"
            time.sleep(0.001)


def processor_seconds(helper: Helper) -> float:
    """The processor time that the system states for a thread."""
    return int(Path(f"/proc/self/task/{helper.thread_id}/schedstat").read_text().split()[0]) / 1e9


@TWO_CORES
def test_helpers_stay_away_from_the_callers_core() -> None:
    jobs = Jobs()
    jobs.run()
    assert jobs.helper.thread_id is not None
    assert int(jobs.request[5]) not in os.sched_getaffinity(jobs.helper.thread_id)


def test_runs_leave_no_core_to_two_threads() -> None:
    helpers = HelperPool(chosen())
    for _ in range(helpers.processors):
        helpers.begin()
    assert helpers.free(3) == []
    helpers.end()
    assert len(helpers.free(3)) == 1


@TWO_CORES
@pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="requires Linux's account of threads")
def test_a_helper_takes_no_time_once_it_sleeps() -> None:
    jobs = Jobs()
    for _ in range(3):
        jobs.run()
        time.sleep(0.1)
        before = processor_seconds(jobs.helper)
        time.sleep(0.1)
        assert processor_seconds(jobs.helper) - before < 0.001


@TWO_CORES
@pytest.mark.skipif(sys.platform != "linux", reason="requires semaphores in any memory")
def test_a_helper_wakes_without_the_interpreter_lock() -> None:
    jobs = Jobs()
    jobs.run()
    time.sleep(0.1)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(60)
    try:
        jobs.begin()
        end = time.monotonic() + 10
        while jobs.under_way:
            assert time.monotonic() < end, "the helper waits for the interpreter lock"
    finally:
        sys.setswitchinterval(interval)


def test_a_helper_sleeps_in_python_where_there_are_no_semaphores(monkeypatch: pytest.MonkeyPatch) -> None:
    kernels = Library(chosen(), None)
    monkeypatch.setattr(Emitter, "has_semaphores", False)
    monkeypatch.setattr(threads, "_has_semaphore", lambda address: False)
    monkeypatch.setattr(threads, "library", lambda instructions: kernels)
    jobs = Jobs()
    for _ in range(5):
        jobs.run()
        time.sleep(0.05)
        jobs.begin()
        assert jobs.request[4] == 2, "the helper did not sleep"
        jobs.wait()
