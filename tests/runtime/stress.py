"""Work that several threads may do at once, with known results: scripts/nets/stress_threads.py runs it."""

from __future__ import annotations

import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np

from nnbridge.builder import ModelBuilder
from nnbridge.cpu.executor import Executor
from nnbridge.cpu.settings import Tier
from nnbridge.devices.remote.client import RemoteDevice
from nnbridge.errors import BadStateError
from nnbridge.file import load
from nnbridge.model import Model
from nnbridge.runtime.compilation import Compilation
from nnbridge.runtime.execution import Execution
from nnbridge.runtime.repeated import MOST_KINDS, RepeatedRuns
from nnbridge.types import OperandCode, OperationCode
from tests.conftest import MODELS
from tests.runtime.differential import Dealt

Work = Callable[[int], None]
"""One piece of work of the thread of a number; raises where the answer is wrong."""
FLOAT = OperandCode.TENSOR_FLOAT32


def chain() -> Model:
    """y = relu(-x) · relu(-x) over any number of rows: more shapes than an executor has buffers for."""
    builder = ModelBuilder("chain")
    x, negative, positive, y = (builder.add_operand(FLOAT, (0, 4)) for _ in range(4))
    none = builder.add_operand(OperandCode.INT32)
    builder.set_operand_value(none, 0)
    builder.add_operation(OperationCode.NEG, [x], [negative])
    builder.add_operation(OperationCode.RELU, [negative], [positive])
    builder.add_operation(OperationCode.MUL, [positive, positive, none], [y])
    builder.identify_inputs_and_outputs([x], [y])
    return builder.finish()


def _check(compute: Callable[[Any], Any]) -> Work:
    def work(thread: int) -> None:
        x = np.random.standard_normal((np.random.randint(1, 40), 4)).astype(np.float32)
        np.testing.assert_array_equal(compute(x), np.maximum(-x, 0) ** 2)

    return work


def _executor(tier: Tier) -> Work:
    executor = Executor(chain(), kernels=tier)
    return _check(lambda x: executor.run([x])[0].value)


def _compilation(devices: list[Any]) -> Compilation:
    compilation = Compilation.create(chain(), devices)
    compilation.finish()
    return compilation


def _executions(devices: list[Any]) -> Work:
    compilation = _compilation(devices)
    return _check(lambda x: next(iter(Execution(compilation).run([x]).values())))


def _asynchronous() -> Work:
    compilation = _compilation([])

    def compute(x: Any) -> Any:
        execution, out = Execution(compilation), np.empty_like(x)
        execution.set_input(0, x)
        execution.set_output(0, out)
        with execution.start_compute() as event:
            event.wait()
        return out

    return _check(compute)


def _one_execution() -> Work:
    """An execution that is used by all threads: one computes, the others are refused."""
    compilation = _compilation([])
    execution, x = Execution(compilation), np.ones((1, 4), np.float32)
    execution.set_reusable(True)

    def work(thread: int) -> None:
        with suppress(BadStateError):
            execution.run([x])

    return work


def _host() -> Work:
    """A published classifier: compiled programs and host operations, equal to the answer of one thread."""
    model = load(MODELS / "digits_int8.tflite")
    compilation = Compilation.create(model, [])
    compilation.finish()
    operand = model.main.operands[model.main.inputs[0]]
    rng = np.random.default_rng(0)
    inputs = [rng.integers(-128, 128, operand.dims).astype(np.int8) for _ in range(16)]
    expected = [list(Execution(compilation).run([x]).values()) for x in inputs]

    def work(thread: int) -> None:
        found = list(Execution(compilation).run([inputs[thread % 16]]).values())
        for ours, theirs in zip(found, expected[thread % 16], strict=True):
            np.testing.assert_array_equal(ours, theirs)

    return work


def _repeated() -> Work:
    """Kinds of inputs of which a compilation remembers the last ones."""
    runs, arrays = RepeatedRuns(chain()), [np.zeros((1, 4), np.float32)]

    def work(thread: int) -> None:
        for number in range(4 * MOST_KINDS):
            kind = (number * 7 + thread,)
            if runs.is_worthwhile(kind, arrays, arrays):
                runs.put(kind, runs.borrow(kind))
        assert len(runs) <= MOST_KINDS + 32

    return work


def _loads() -> Work:
    counts = len(load(MODELS / "digits_int8.tflite").main.operations)

    def work(thread: int) -> None:
        assert len(load(MODELS / "digits_int8.tflite").main.operations) == counts

    return work


SUBJECTS: dict[str, Callable[[], Work]] = {
    "executor, reference kernels": lambda: _executor(Tier.REFERENCE),
    "executor, compiled kernels": lambda: _executor(Tier.COMPILED),
    "executions of one compilation": lambda: _executions([]),
    "executions over three devices": lambda: _executions([Dealt(f"driver {k}", share=k) for k in range(3)]),
    "executions in another process": lambda: _executions([RemoteDevice.process("tests.devices.broken:GOOD")]),
    "executions with events": _asynchronous,
    "one execution": _one_execution,
    "a quantised classifier": _host,
    "kinds of repeated runs": _repeated,
    "loading": _loads,
}


@contextmanager
def _switching(interval: float) -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(interval)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def stressed(subject: str, seconds: float, threads: int = 8) -> tuple[int, Counter[str]]:
    """Work of several threads that are switched as often as can be: pieces done, and errors."""
    work = SUBJECTS[subject]()
    errors: Counter[str] = Counter()
    done = [0] * threads
    end = time.monotonic() + seconds

    def run(thread: int) -> None:
        while time.monotonic() < end:
            try:
                work(thread)
            except BaseException as error:
                errors[f"{type(error).__name__}: {str(error)[:200]}"] += 1
            done[thread] += 1

    with _switching(1e-6):
        workers = [threading.Thread(target=run, args=(n,)) for n in range(threads)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    return sum(done), errors
