"""``kill -9`` of a driver in the middle of executions: each must end with the right answer or the right error.

    python scripts/nets/kill_driver.py models/digits_float32.tflite --executions 1000 --kills 20

Runs the executions on several threads twice, on drivers in processes of their own which another thread kills at random
moments: with Android's fallback, where every answer must be right, and for an explicit list of devices, where an execution
may end with DEAD_OBJECT instead. A compilation that met a dead driver is made anew, which restarts it. Afterwards nothing may
be left: no process, shared memory, socket or descriptor. Exit status 1 if anything is wrong, lost, late or left behind, or if
the driver was killed less often than required.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from nnbridge import Compilation, Execution, load
from nnbridge.compare import fallbacks_of, seeded_inputs
from nnbridge.devices.remote import RemoteDevice
from nnbridge.errors import DeadObjectError, NnbridgeError
from nnbridge.model import Model

LATE = 10.0
"""Seconds after which an execution counts as one that hangs."""
APART = 4
"""Executions of each thread between two kills at least: enough to notice the death and to start the driver again."""


def main() -> None:
    """Run, print, and exit with 1 if anything went wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--device", default="nnapi-sample_minimal", help="the driver to kill (default nnapi-sample_minimal)")
    parser.add_argument("--executions", type=int, default=1000)
    parser.add_argument("--kills", type=int, default=20, help="at random moments while executions run (default 20)")
    parser.add_argument("--threads", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    least = options.threads * APART * (options.kills + 1)
    if min(options.threads, options.kills) < 1 or options.executions < least:
        required = f"a thread, a kill and, for {options.kills} kills on {options.threads} threads, {max(least, 0)} executions"
        parser.error(f"expected at least {required}, found {options.executions}")
    try:
        model, good = load(options.model), True
    except NnbridgeError as error:
        parser.error(str(error))
    for fallback in (True, False):
        before = left_behind()
        trial = Trial(model, options.device, fallback, options.threads)
        trial.run(options.executions, options.kills, random.Random(options.seed))
        trial.device.close()
        left = left_behind() - before
        trial.compilation = None
        good &= trial.report(options.executions, options.kills, left)
    sys.exit(0 if good else 1)


@dataclass
class Trial:
    """Executions on a driver that is killed again and again."""

    model: Model
    name: str
    fallback: bool
    threads: int
    device: RemoteDevice = field(init=False)
    compilation: Compilation | None = None
    ends: Counter[str] = field(default_factory=Counter)
    slowest: float = 0.0
    kills: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _progress: threading.Condition = field(default_factory=threading.Condition)

    def __post_init__(self) -> None:
        self.device = RemoteDevice.process(self.name)

    def run(self, executions: int, kills: int, chance: random.Random) -> None:
        """All executions; the driver dies while they run."""
        reference = Compilation.create(self.model, [])
        reference.finish()
        samples = [seeded_inputs(self.model, seed) for seed in range(8)]
        expected = [Execution(reference).run(inputs) for inputs in samples]
        spacing = executions // (kills + 1)
        moments = [spacing * (k + 1) - chance.randrange(spacing // 4) for k in range(kills)]

        def one(k: int) -> None:
            began = time.monotonic()
            end = self._execute(samples[k % 8], expected[k % 8])
            with self._progress:
                self.ends[end] += 1
                self.slowest = max(self.slowest, time.monotonic() - began)
                self._progress.notify_all()

        with ThreadPoolExecutor(self.threads) as pool:
            handed_out = 0
            for moment in (*moments, executions):
                # No thread runs far ahead of the kill, however late that comes on a busy machine.
                ahead = min(moment + 2 * self.threads, executions)
                for k in range(handed_out, ahead):
                    pool.submit(one, k)
                handed_out = ahead
                if moment == executions:
                    break
                with self._progress:
                    self._progress.wait_for(lambda moment=moment: sum(self.ends.values()) >= moment)
                time.sleep(chance.uniform(0, 0.002))
                self._kill()

    def _kill(self) -> None:
        pid = self.device.pid
        if pid is not None:
            os.kill(pid, signal.SIGKILL)
            self.kills += 1

    def _execute(self, inputs: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> str:
        compilation = None
        try:
            compilation = self._compiled()
            execution = Execution(compilation)
            outputs = execution.run(inputs)
        except DeadObjectError:
            self._forget(compilation)
            return "DEAD_OBJECT"
        except Exception as error:
            return f"wrong: {type(error).__name__}: {error}"
        on_cpu = bool(fallbacks_of(execution))
        if on_cpu:
            self._forget(compilation)
        right = all(np.allclose(outputs[name], value, atol=1e-5) for name, value in expected.items())
        return ("CPU" if on_cpu else "driver") if right else "wrong answer"

    def _compiled(self) -> Compilation:
        with self._lock:
            if self.compilation is None:
                create = Compilation.create if self.fallback else Compilation.create_for_devices
                devices = [self.device] if self.fallback else [self.device, *cpu()]
                self.compilation = create(self.model, devices)
                try:
                    self.compilation.finish()
                except BaseException:
                    self.compilation = None
                    raise
            return self.compilation

    def _forget(self, compilation: Compilation | None) -> None:
        with self._lock:
            if self.compilation is compilation:
                self.compilation = None

    def report(self, executions: int, kills: int, left: set[str]) -> bool:
        """Print what happened; True if all is well."""
        allowed = {"driver", "CPU"} if self.fallback else {"driver", "DEAD_OBJECT"}
        lost = executions - sum(self.ends.values())
        title = "with fallback" if self.fallback else "explicit devices"
        ends = ", ".join(f"{count} {end}" for end, count in self.ends.most_common())
        print(f"{title}: {executions} executions, {self.kills} of {kills} kills: {ends}")
        print(f"  {lost} lost; slowest {1000 * self.slowest:.0f} ms")
        print(f"  left behind: {', '.join(sorted(left)) or 'nothing'}")
        return set(self.ends) <= allowed and lost == 0 and self.slowest < LATE and not left and self.kills == kills


def cpu() -> list[object]:
    """NNAPI's CPU, for what the driver does not support."""
    from nnbridge import devices

    return [devices.cpu()]


def left_behind() -> set[str]:
    """The possible remains of a dead driver: shared memory, children, memory and sockets that are open here."""
    import gc

    gc.collect()
    # Other programs' semaphores come and go meanwhile; shared memory of Python's bears the first of these names.
    shared = {f"/dev/shm/{name}" for name in os.listdir("/dev/shm") if name.startswith(("psm_", "nnbridge"))}
    tasks = Path("/proc/self/task").iterdir()
    children = {f"process {pid}" for task in tasks for pid in (task / "children").read_text().split()}
    kinds: Counter[str] = Counter()
    for descriptor in Path("/proc/self/fd").iterdir():
        try:
            target = os.readlink(descriptor)
        except OSError:
            continue  # The listing's own.
        if "memfd:nnbridge" in target or target.startswith("socket:"):
            kinds["memory" if "memfd" in target else "socket"] += 1
    return shared | children | {f"{kind} {k + 1}" for kind, count in kinds.items() for k in range(count)}


if __name__ == "__main__":
    main()
