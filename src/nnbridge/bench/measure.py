"""Latencies of contenders that take turns, and first answers of fresh processes."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any

import numpy as np

from nnbridge.bench.contenders import LITERT, OURS, Contenders, Run, contenders
from nnbridge.bench.profiling import OperationTime
from nnbridge.compare.arrays import Array
from nnbridge.cpu import compiled
from nnbridge.model import Model
from nnbridge.records import dataclass
from nnbridge.storage.temporary import TemporaryFolder
from nnbridge.trust import environment, python_command

FIRST_ANSWER_TIMEOUT = 120.0
"""Seconds for a fresh process."""


@dataclass(frozen=True)
class Latency:
    """Milliseconds of one contender's runs."""

    contender: str
    threads: int
    least: float
    median: float
    p95: float
    runs: int


@dataclass(frozen=True)
class Bench:
    """All that was measured of a model."""

    latencies: Sequence[Latency]
    missing: Mapping[str, str]
    operations: Sequence[OperationTime] = ()
    first: Mapping[str, Mapping[str, float | None]] = field(default_factory=dict)
    """Milliseconds and bytes of fresh processes, by the contender's name."""

    def time(self, contender: str, threads: int, least: bool = False) -> float | None:
        """A contender's median, or its least time; None if it was not measured."""
        found = next((e for e in self.latencies if (e.contender, e.threads) == (contender, threads)), None)
        return None if found is None else found.least if least else found.median


_WARMING = 0.003
"""Seconds for which a contender runs unmeasured before each measured run: caches, clocks and helper threads are then its own."""


def alternating(runs: Mapping[str, Run], rounds: int, seconds: float) -> dict[str, list[float]]:
    """Milliseconds of each contender in each round: they take turns, so that a busy machine slows all of them alike.

    Their order changes from round to round, so that no one always follows the same one: what ran before slows small files down
    by half. At most so many rounds, and three at least; no more begin once the seconds are over.
    """
    for run in runs.values():
        run()
    times: dict[str, list[float]] = {name: [] for name in runs}
    end = time.perf_counter() + seconds
    order = random.Random(0)
    for number in range(rounds):
        if number >= 3 and time.perf_counter() > end:
            break
        for name in order.sample(list(runs), len(runs)):
            run = runs[name]
            begin = start = time.perf_counter()
            run()
            end_of_run = time.perf_counter()
            while start - begin < _WARMING:
                start = end_of_run
                run()
                end_of_run = time.perf_counter()
            times[name].append((end_of_run - start) * 1e3)
    return times


def measure(
    path: Path,
    model: Model,
    inputs: Mapping[str, Array],
    threads: Sequence[int],
    rounds: int = 100,
    seconds: float = 20.0,
    tiers: tuple[str, ...] = OURS,
    few: bool = False,
) -> Bench:
    """Latencies at each number of threads; ``few``: of LiteRT's kernels only its default ones."""
    latencies: list[Latency] = []
    missing: dict[str, str] = {}
    for count in threads:
        found: Contenders = contenders(path, model, inputs, count, tiers, few=few)
        missing.update(found.missing)
        for name, times in alternating(found.runs, rounds, seconds).items():
            least, median, p95 = (float(np.percentile(times, q)) for q in (0, 50, 95))
            latencies.append(Latency(name, count, least, median, p95, len(times)))
    return Bench(latencies, missing)


def first_answers(path: Path) -> dict[str, dict[str, float | None]]:
    """Fresh processes: nnbridge with a cache of kernels that is filled and with an empty one, and the file's own runtime."""
    sides: dict[str, tuple[str, dict[str, str]]] = {"nnbridge": ("nnbridge", {})}
    with TemporaryFolder() as empty:
        if compiled.unavailable() is None:
            sides["nnbridge, empty cache"] = ("nnbridge", {"NNBRIDGE_CACHE": str(Path(empty) / "kernels")})
        peer = {".tflite": next(iter(LITERT)), ".onnx": "ONNX Runtime"}.get(path.suffix)
        if peer is not None:
            sides[peer] = (peer, {})
        found = {}
        # Installed packages have their bytecode stored; here it is stored, too, where the environment forbids it elsewhere.
        stored = {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(Path(empty) / "bytecode")}
        for name, (side, changes) in sides.items():
            settings = {**changes, **(stored if sys.dont_write_bytecode else {})}
            if name == side:
                _first_answer(side, path, settings)  # fills the caches of kernels, of bytecode and of files
            answer = _first_answer(side, path, settings)
            if answer is not None:
                found[name] = answer
    return found


def _first_answer(side: str, path: Path, settings: Mapping[str, str]) -> dict[str, Any] | None:
    start = time.perf_counter()
    try:
        done = subprocess.run(
            python_command("nnbridge.bench.first", side, str(path)),
            env=environment(settings),
            capture_output=True,
            text=True,
            check=True,
            timeout=FIRST_ANSWER_TIMEOUT,
        )
        parts: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    except (subprocess.SubprocessError, ValueError, IndexError):
        return None
    return {"total": (time.perf_counter() - start) * 1e3, **parts}
