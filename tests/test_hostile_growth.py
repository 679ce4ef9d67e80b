"""No small file takes the machine: what each reader expands and evaluates is bounded, and refused in one sentence beyond it."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

from nnbridge import devices as device_list
from nnbridge.budget import WorkBudget, operations_limit, steps_budget
from nnbridge.cpu.arena import Lease, plan_arena
from nnbridge.devices.profile_levels import load_any
from nnbridge.errors import ConversionError, ExhaustedError
from nnbridge.runtime.feature_level_slices import Slices
from nnbridge.runtime.partitioner import make_steps
from nnbridge.runtime.placement import Placement, ask
from nnbridge.types import OperationCode
from nnbridge_tflite.read.placed import placed_tensors
from tests.graphs import add_then, unary_chain
from tests.hostile_growth import READERS

SECONDS, BYTES = 4.0, 256 << 20
"""Of processor time and memory for a file of a megabyte. Readers need half of the time; machines that others use need more."""


@pytest.mark.parametrize("reader", READERS)
def test_no_small_file_takes_the_machine(reader: str) -> None:
    if reader == "onnx":
        pytest.importorskip("onnx", reason="onnx is not installed")
    if reader == "images":
        pytest.importorskip("PIL", reason="Pillow is not installed")
    command = [sys.executable, "-m", "tests.hostile_growth", reader]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    verdicts = [json.loads(line) for line in done.stdout.splitlines()]
    assert [verdict["name"] for verdict in verdicts] == list(READERS[reader].hostile), done.stderr
    assert all(verdict["size"] <= 2 << 20 for verdict in verdicts)
    bad = [v for v in verdicts if v["outcome"] not in ("model", "refused") or v["seconds"] > SECONDS or v["bytes"] > BYTES]
    assert not bad


def test_a_profile_whose_conditions_ask_for_too_much_is_at_fault_and_no_driver(tmp_path: Path) -> None:
    rule = "all(all(i * j >= 0 for i in range(1024)) for j in range(1024))"
    path = tmp_path / "h.toml"
    path.write_text(f'[[device]]\nname = "h"\n[device.operations.ADD]\nrules = ["{rule}"]\n')
    (device,), model = load_any(path), add_then(OperationCode.RELU)
    with pytest.raises(ExhaustedError, match=r"device h all\(all\(i .* at most 4,020,000 evaluations of parts of conditions"):
        ask(device, model, Slices(model))


def test_buffers_that_are_all_alive_are_placed_without_overlap() -> None:
    leases = [Lease(i, 64 * (1 + i % 3), 0, 1) for i in range(900)]
    offsets, size = plan_arena(leases)
    ends = sorted((offsets[lease.index], offsets[lease.index] + lease.size) for lease in leases)
    assert size == sum(lease.size for lease in leases)
    assert all(end <= start for (_, end), (start, _) in pairwise(ends))


_MANY = 100_000
_LEASES: dict[str, Callable[[int], tuple[int, int, int]]] = {
    "all alive": lambda i: (64, 0, _MANY),
    "all alive, of different sizes": lambda i: (64 * (i + 1), 0, _MANY),
    "one more each step": lambda i: (64 * (i % 97 + 1), i, _MANY),
    "inside each other": lambda i: (64 * (i + 1), i, 2 * _MANY - i),
    "short ones between long ones": lambda i: (64, i // 2, _MANY) if i % 2 else (1 << 20, i // 2, i // 2 + 1),
    "of no order": lambda i: (64 * (i * 7919 % 4096 + 1), i * 104729 % _MANY, i * 104729 % _MANY + i * 31 % 50_000),
    "empty": lambda i: (0, 0, _MANY),
}
"""Size, first and last step of the ``i``th of many buffers."""


@pytest.mark.parametrize("lives", _LEASES)
def test_many_buffers_are_placed_in_little_time(lives: str) -> None:
    leases = [Lease(i, *_LEASES[lives](i)) for i in range(_MANY)]
    start = time.process_time()
    offsets, size = plan_arena(leases)
    assert (len(offsets), time.process_time() - start < SECONDS) == (_MANY, True)
    assert size >= max(offsets[lease.index] + lease.size for lease in leases)


def test_the_search_for_a_file_in_memory_ends_when_its_budget_is_used_up() -> None:
    data, work = memoryview(struct.pack("<I4s", 0xFFFFFFF0, b"TFL3")), WorkBudget(0, "tables", lambda *at: ConversionError(at[0]))
    with pytest.raises(ConversionError, match="at most 0 tables"):
        placed_tensors(data, work)


@pytest.mark.parametrize(("size", "most"), [(0, 12_288), (1 << 20, 12_288), (100 << 20, 1_092_266)])
def test_long_files_may_have_more_operators(size: int, most: int) -> None:
    assert operations_limit(size) == most


def test_a_plan_of_too_many_steps_is_refused() -> None:
    steps = steps_budget(0)
    steps.spend(1_000)
    with pytest.raises(ExhaustedError, match="model: expected at most 1,000 steps of a plan"):
        steps.spend(1, "model")


def test_the_steps_of_a_plan_are_counted() -> None:
    model = unary_chain(*[OperationCode.RELU, OperationCode.TANH] * 501)
    placements = tuple(Placement(i, i % 2, ()) for i in range(1_002))
    with pytest.raises(ExhaustedError, match="at most 1,000 steps of a plan, for a model of this size"):
        make_steps(model, placements, [device_list.cpu()] * 2, 0)
