"""Use by several threads at once, under forced switching: the work of scripts/nets/stress_threads.py, in short."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.runtime.stress import SUBJECTS, stressed


@pytest.mark.parametrize("subject", SUBJECTS)
def test_threads_that_switch_all_the_time_get_right_answers(subject: str) -> None:
    done, errors = stressed(subject, 0.3, 4)
    assert done > 0
    assert not errors


def test_threads_that_ask_for_kernels_at_once_share_one_library() -> None:
    pytest.importorskip("llvmlite", reason="llvmlite is not installed")
    from nnbridge.cpu.compiled.instructions import host_sets
    from nnbridge.cpu.compiled.objects import LIBRARIES, library

    isa, gate = host_sets()[0], threading.Barrier(4)
    before = LIBRARIES.pop(isa, None)
    try:
        with ThreadPoolExecutor(4) as pool:
            found = list(pool.map(lambda _: (gate.wait(), library(isa))[1], range(4)))
    finally:
        if before is not None:  # programs hold its kernels
            LIBRARIES[isa] = before
    assert len(set(map(id, found))) == 1
