"""Search for the operations that cause a symptom, on models with planted faults."""

from __future__ import annotations

from math import log2
from pathlib import Path

import numpy as np
import pytest

from nnbridge.compare import Sample, Tolerance, Tolerances, seeded_samples
from nnbridge.compare.observation import observed_run
from nnbridge.compare.tensors import DeviceReference
from nnbridge.converters import ConversionOptions
from nnbridge.devices import CPU_NAME, device
from nnbridge.devices.device import Device
from nnbridge.errors import InputError
from nnbridge.file import load
from nnbridge.model import Model
from nnbridge.reduction import Bisection, Search, bisect
from nnbridge.reduction.placing import Placements
from nnbridge.runtime.compilation import Compilation
from nnbridge.runtime.states import States
from nnbridge.types import OperationCode
from tests.compare.faults import FaultyDriver
from tests.conftest import MODELS
from tests.graphs import unary_chain
from tests.reduction.drivers import STEP, THIRD, Misbehaving
from tests.tflite.test_control_flow import _loop

EXACT = Tolerances(Tolerance(steps=0))


@pytest.fixture(scope="module")
def digits() -> Model:
    return load(MODELS / "digits_int8.tflite")


def samples(model: Model) -> list[Sample]:
    return list(seeded_samples(model, DeviceReference(model, CPU_NAME), [0]))


def found(model: Model, *drivers: Device, kinds: tuple[str, ...] = ("fails", "falls-back", "differs")) -> Bisection:
    return bisect(model, Search(drivers, kinds, EXACT, slower_by=0.04), samples(model))


def test_one_operation_is_found_in_log2_n_plus_2_runs(digits: Model) -> None:
    bisection = found(digits, STEP)
    assert [(c.placed.index, c.symptom.kind) for c in bisection.culprits] == [(2, "differs")]
    assert bisection.found
    assert bisection.runs <= log2(bisection.placed) + 2


@pytest.mark.parametrize(("how", "kinds"), [("raise", ("fails",)), ("raise", ("falls-back",)), ("slow", ("slow",))])
def test_what_fails_falls_back_or_is_slow_is_found_as_such(digits: Model, how: str, kinds: tuple[str, ...]) -> None:
    bisection = found(digits, Misbehaving(how=how), kinds=kinds)
    assert [(c.placed.operation, c.symptom.kind) for c in bisection.culprits] == [("AVERAGE_POOL_2D", kinds[0])]


def test_several_operations_are_all_found(digits: Model) -> None:
    several = (OperationCode.ADD, OperationCode.MAX_POOL_2D, OperationCode.SOFTMAX)
    bisection = found(digits, Misbehaving(how="raise", types=several))
    assert [c.placed.operation for c in bisection.culprits] == ["ADD", "MAX_POOL_2D", "SOFTMAX"]
    assert bisection.found


def test_a_search_that_has_no_runs_left_ends_with_what_it_found(digits: Model) -> None:
    search = Search((Misbehaving(how="raise", types=tuple(OperationCode)),), tolerances=EXACT)
    bisection = bisect(digits, search, samples(digits), max_runs=10)
    assert (bisection.runs, bisection.found) == (10, False)
    assert 0 < len(bisection.culprits) < bisection.placed


def test_where_every_operation_is_at_fault_all_are_found(digits: Model) -> None:
    bisection = found(digits, Misbehaving(how="raise", types=tuple(OperationCode)))
    assert (len(bisection.culprits), bisection.found) == (11, True)


def test_a_difference_without_the_device_is_not_the_devices(digits: Model) -> None:
    wrong = [Sample(s.label, s.inputs, {k: v + 1 for k, v in s.outputs.items()}) for s in samples(digits)]  # type: ignore[union-attr]
    bisection = bisect(digits, Search((FaultyDriver("", ""),), tolerances=EXACT), wrong)
    assert bisection.elsewhere is not None
    assert not bisection.culprits
    assert "the device is not the cause" in bisection.sentence


def test_a_right_device_has_no_culprits(digits: Model) -> None:
    bisection = found(digits, FaultyDriver("", ""))
    assert not bisection.culprits
    assert "no fault found" in bisection.sentence


def test_a_driver_that_accepts_nothing_is_refused(digits: Model) -> None:
    with pytest.raises(InputError, match="a device that accepts an operation of this model, found none: nnapi-sample_float_fast"):
        found(digits, device("nnapi-sample_float_fast"))


def test_ctrl_c_leaves_what_is_known(digits: Model) -> None:
    runs: list[int] = []

    def stop(done: int) -> None:
        runs.append(done)
        if len(runs) == 2:
            raise KeyboardInterrupt

    bisection = bisect(digits, Search((STEP,), tolerances=EXACT), samples(digits), progress=stop)
    assert (bisection.interrupted, bisection.found, bisection.runs) == (True, False, 2)


@pytest.mark.parametrize(("level", "count"), [(8, 4), (1, 2)])
def test_all_operations_chosen_are_the_plan_without_limits(level: int, count: int) -> None:
    # ABS and EXP need level 3. A driver below it is asked about a slice, in which operations have other numbers.
    model = unary_chain(OperationCode.ABS, OperationCode.FLOOR, OperationCode.EXP, OperationCode.LOGISTIC)
    driver = FaultyDriver("", "")
    object.__setattr__(driver, "feature_level", level)
    placements = Placements.of(model, [driver])
    plans = []
    for drivers in ([driver], placements.limited(placements.placed)):
        compilation = Compilation.create(model, drivers)
        compilation.finish()
        plans.append([(s.device, s.operations) for s in compilation.plan.steps])
    assert plans[0] == plans[1]
    assert len(placements.placed) == count


def test_a_limited_driver_gets_what_was_chosen_and_computes_it_as_before(digits: Model) -> None:
    placements = Placements.of(digits, [STEP])
    third = next(placed for placed in placements.placed if placed.index == 2)
    compilation = Compilation.create(digits, placements.limited([third]))
    compilation.finish()
    kinds = [compilation.plan.device_of(i).kind for i in range(len(digits.main.operations))]
    assert kinds == ["cpu", "cpu", "device", *["cpu"] * 8]
    (sample,) = samples(digits)
    limited, _, _ = observed_run(compilation, sample.inputs, States(digits))
    whole = Compilation.create(digits, [STEP])
    whole.finish()
    expected, _, _ = observed_run(whole, sample.inputs, States(digits))
    # The other operations are right on both.
    assert all(np.array_equal(limited[name], value) for name, value in expected.items())
    assert digits.main.operations[2].name == THIRD


def test_operations_of_bodies_that_the_runtime_interprets_are_found(tmp_path: Path) -> None:
    # The driver refuses WHILE, so the runtime interprets it and its body's operations are placed.
    model = load(_loop(tmp_path), ConversionOptions(mapping="wide"))
    bisection = found(model, Misbehaving(how="raise", types=(OperationCode.ABS,), refused=(OperationCode.WHILE,)))
    assert [(c.placed.operation, c.placed.within.split()[0]) for c in bisection.culprits] == [("ABS", "body")]
    assert bisection.found
