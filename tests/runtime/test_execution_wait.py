"""Executions that end in every way, on drivers of every level: Android's TestExecution.cpp (ExecutionTest10 to 13)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pytest

from nnbridge.devices.device import OutputShape, PreparedModel, Request, Result
from nnbridge.errors import BadStateError, NnapiError
from nnbridge.runtime.burst import Burst
from nnbridge.runtime.compilation import Compilation, PartitioningMode
from nnbridge.runtime.execution import Execution
from nnbridge.types import OperationCode, ResultCode
from tests.graphs import unary_chain
from tests.runtime.drivers import Driver

LEVELS = {"ExecutionTest10": 1, "ExecutionTest11": 2, "ExecutionTest12": 3, "ExecutionTest13": 4}
ENDS = [
    ResultCode.NO_ERROR,
    ResultCode.UNAVAILABLE_DEVICE,
    ResultCode.OP_FAILED,
    ResultCode.OUTPUT_INSUFFICIENT_SIZE,
    ResultCode.BAD_DATA,
]
WAYS: dict[str, Callable[[Execution], None]] = {
    "startCompute": lambda execution: execution.start_compute().wait(),
    "compute": lambda execution: execution.compute(),
    "burstCompute": lambda execution: Burst(execution.compilation).compute(execution),
    "startComputeWithDependencies": lambda execution: execution.start_compute_with_dependencies([]).wait(),
}


@dataclass
class Paused(Driver):
    """Ends every execution as its script says, once it may."""

    ends: ResultCode = ResultCode.NO_ERROR
    begun: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    go_on: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))

    def prepare_model(self, *args: object, **options: object) -> PreparedModel:
        return _Paused(self)


class _Paused(PreparedModel):
    def __init__(self, driver: Paused) -> None:
        self._driver = driver

    def execute(self, request: Request) -> Result:
        self._driver.begun.release()
        assert self._driver.go_on.acquire(timeout=10)
        if self._driver.ends is ResultCode.NO_ERROR:
            value, output = request.inputs[0], request.outputs[0]
            assert value is not None
            assert output.data is not None
            output.data.view(np.float32)[:] = np.floor(value)
            return Result(ResultCode.NO_ERROR, (OutputShape((1,)),))
        if self._driver.ends is ResultCode.OUTPUT_INSUFFICIENT_SIZE:
            return Result(self._driver.ends, (OutputShape((1,), sufficient=False),))
        return Result(self._driver.ends)


def compiled(driver: Paused, explicit: bool) -> Compilation:
    """Without a fallback, which would hide what the driver answers."""
    model = unary_chain(OperationCode.FLOOR, dims=(1,))
    if explicit:
        compilation = Compilation.create_for_devices(model, [driver])
    else:
        compilation = Compilation.create(model, [driver], PartitioningMode.WITHOUT_FALLBACK)
    compilation.finish()
    return compilation


def computed(execution: Execution, driver: Paused, way: str) -> ResultCode:
    """The code that one computation ends with; while it runs, nothing can be asked of it."""
    codes: list[ResultCode] = []

    def run() -> None:
        try:
            WAYS[way](execution)
            codes.append(ResultCode.NO_ERROR)
        except NnapiError as error:
            codes.append(error.code)

    thread = threading.Thread(target=run)
    thread.start()
    assert driver.begun.acquire(timeout=10)
    with pytest.raises(BadStateError):
        execution.output_dims(0)
    driver.go_on.release()
    thread.join(10)
    return codes[0]


@pytest.mark.parametrize("explicit", [False, True], ids=["", "introspection"])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("ends", ENDS)
@pytest.mark.parametrize("reusable", [False, True], ids=["Wait", "WaitReusable"])
@pytest.mark.parametrize("level", LEVELS)
def test_wait(level: str, reusable: bool, ends: ResultCode, way: str, explicit: bool) -> None:
    driver = Paused("test", feature_level=LEVELS[level], ends=ends)
    execution, out = Execution(compiled(driver, explicit)), np.zeros(1, np.float32)
    execution.set_reusable(reusable)
    execution.set_input(0, np.float32([3.14]))
    execution.set_output(0, out)
    for _ in range(2 if reusable else 1):
        out[:] = 0
        assert computed(execution, driver, way) is ends
        if ends is ResultCode.NO_ERROR:
            assert out[0] == 3
        if ends in (ResultCode.NO_ERROR, ResultCode.OUTPUT_INSUFFICIENT_SIZE):
            assert execution.output_dims(0) == (1,)
            # Fenced executions report no shapes (fact E61).
            assert execution.output_sufficient(0) is (ends is ResultCode.NO_ERROR or "Dependencies" in way)
        else:
            with pytest.raises(BadStateError):
                execution.output_dims(0)
    if not reusable:
        with pytest.raises(BadStateError):
            WAYS[way](execution)
