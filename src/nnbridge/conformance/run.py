"""Running conformance cases on a device, in parallel, and counting what came out."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy.typing as npt

from nnbridge import devices as device_list
from nnbridge.conformance.cases import Case, Failure, build, inputs_of, judge, read_cases
from nnbridge.conformance.variants import VARIANTS
from nnbridge.devices.device import Device, Performance, uniform_capabilities
from nnbridge.devices.samples import SampleDriver
from nnbridge.errors import NnapiError, Reason
from nnbridge.model import Model, Operation
from nnbridge.runtime.compilation import Compilation
from nnbridge.runtime.execution import Execution
from nnbridge.runtime.placement import place
from nnbridge.types import CONTROL_FLOW, PreferenceCode

INFINITE_LOOP_TIMEOUT_NS = 20_000_000
"""Loop time-out of the cases that must fail by it."""


@dataclass(frozen=True)
class Setting:
    """How cases are run."""

    device: str = device_list.CPU_NAME
    variant: str | None = None
    split: int | None = None
    """Seed: spread each model's operations over three devices at random."""


@dataclass
class Tally:
    """Counts of one suite."""

    passed: int = 0
    failed: int = 0
    refused_as_expected: int = 0
    not_taken: int = 0
    """Cases of which a driver does not take every operation; Android's suite skips them as well."""

    @property
    def total(self) -> int:
        """All cases."""
        return self.passed + self.failed + self.refused_as_expected + self.not_taken


@dataclass
class Outcome:
    """What a run of many cases came to."""

    suites: dict[str, Tally] = field(default_factory=dict)
    failures: list[Failure] = field(default_factory=list)

    def add(self, other: Outcome) -> None:
        """Count another outcome in."""
        for suite, tally in other.suites.items():
            mine = self.suites.setdefault(suite, Tally())
            mine.passed += tally.passed
            mine.failed += tally.failed
            mine.refused_as_expected += tally.refused_as_expected
            mine.not_taken += tally.not_taken
        self.failures.extend(other.failures)

    @property
    def total(self) -> int:
        """All cases of all suites."""
        return sum(tally.total for tally in self.suites.values())

    @property
    def nothing_ran(self) -> bool:
        """True if the device took no case whole."""
        return all(tally.not_taken == tally.total for tally in self.suites.values())

    @property
    def passed(self) -> bool:
        """True if nothing failed and something ran."""
        return not self.failures and not self.nothing_ran

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready counts and failures."""
        return {
            "pass": self.passed,
            "suites": {
                name: {
                    "passed": t.passed,
                    "failed": t.failed,
                    "refused_as_expected": t.refused_as_expected,
                    "not_taken": t.not_taken,
                    "total": t.total,
                }
                for name, t in sorted(self.suites.items())
            },
            "failures": [
                {
                    "suite": f.suite,
                    "spec": f.spec,
                    "case": f.case,
                    "output": f.output,
                    "index": f.index,
                    "expected": f.expected,
                    "actual": f.actual,
                    "tolerance": f.tolerance,
                    "message": f.message,
                }
                for f in self.failures
            ],
        }


def run_all(
    files: Sequence[Path], setting: Setting, jobs: int | None = None, progress: Callable[[int], None] | None = None
) -> Outcome:
    """Run every case of some spec files; ``progress`` is told the number of files done since it was last called."""
    outcome = Outcome()
    jobs = jobs or os.cpu_count() or 1
    work = partial(run_file, setting=setting)
    if jobs == 1 or len(files) == 1:
        results: Any = map(work, files)
        for result in results:
            outcome.add(result)
            if progress:
                progress(1)
        return outcome
    # The largest files first, so that no worker is left alone with one at the end.
    ordered = sorted(files, key=lambda f: -f.stat().st_size)
    with ProcessPoolExecutor(jobs) as pool:
        for result in pool.map(work, ordered, chunksize=1):
            outcome.add(result)
            if progress:
                progress(1)
    outcome.failures.sort(key=lambda f: (f.suite, f.spec, f.case))
    return outcome


def run_file(path: Path, setting: Setting) -> Outcome:
    """Run the cases of one spec file."""
    outcome = Outcome()
    turn = VARIANTS[setting.variant] if setting.variant else None
    for original in read_cases(path):
        case = turn(original) if turn else original
        if case is None:
            continue
        tally = outcome.suites.setdefault(case.suite, Tally())
        failure = run_case(case, setting)
        if isinstance(failure, NotTaken):
            tally.not_taken += 1
        elif failure is not None:
            tally.failed += 1
            outcome.failures.append(failure)
        elif case.expects_failure:
            tally.refused_as_expected += 1
        else:
            tally.passed += 1
    return outcome


class NotTaken:
    """What becomes of a case of which the driver does not take every operation."""


def run_case(case: Case, setting: Setting) -> Failure | NotTaken | None:
    """Build, compile, execute and judge one case; None if it ends as it should."""
    try:
        model = build(case)
        if not case.expects_failure and not _takes_all(model, setting):
            return NotTaken()
        outputs = answer(case, setting, model)
    except NnapiError as error:
        if case.expects_failure:
            return None
        return Failure(case.suite, case.spec, case.name, f"{error.code.name}: {error}")
    except Exception as error:
        return Failure(case.suite, case.spec, case.name, f"{type(error).__name__}: {error}")
    if case.expects_failure:
        return Failure(case.suite, case.spec, case.name, "the model must be refused, but it was answered")
    return judge(case, outputs)


def _takes_all(model: Model, setting: Setting) -> bool:
    """False for a single driver that does not get the whole model; the CPU has to take all of them."""
    device = device_list.device(setting.device)
    if setting.split is not None or device.kind != "device":
        return True
    return all(found.device is not None for found in place(model, [device], PreferenceCode.FAST_SINGLE_ANSWER))


def answer(case: Case, setting: Setting, model: Model) -> list[npt.NDArray[Any]]:
    """The outputs that a device gives for a case."""
    compilation = _compilation(model, case, setting)
    compilation.finish()
    execution = Execution(compilation)
    if case.expects_failure:
        execution.set_loop_timeout(INFINITE_LOOP_TIMEOUT_NS)
    return list(execution.run(inputs_of(case)).values())


def _compilation(model: Model, case: Case, setting: Setting) -> Compilation:
    if setting.split is not None:
        return Compilation.create(model, split_devices(model, f"{setting.split}/{case.spec}/{case.name}"))
    return Compilation.create_for_devices(model, [device_list.device(setting.device)])


def split_devices(model: Model, seed: str) -> list[Device]:
    """Three devices that take the operations of one model at random, each operation by exactly one.

    Control flow may be nobody's: then the runtime runs it, and its bodies are split in turn.
    """
    chooser = random.Random(seed)
    owner = {
        _key(operation): chooser.randrange(4 if operation.type in CONTROL_FLOW else 3)
        for subgraph in model.subgraphs()
        for operation in subgraph.operations
    }
    full = device_list.device("nnapi-sample_full")
    assert isinstance(full, SampleDriver)

    def claim(number: int, model: Model, operation: Operation) -> Reason | None:
        taken = owner.get(_key(operation), number) == number
        return None if taken else Reason("an operation dealt to this device", operation=model.operation_name(operation))

    # Faster than the CPU, so that it takes control flow at most; it is there for what Android falls back to it with.
    figures = uniform_capabilities(Performance(0.5, 0.5))
    return [replace(full, name=f"split-{n}", claim=partial(claim, n), figures=figures, limited=False) for n in range(3)]


def _key(operation: Operation) -> tuple[int, tuple[int, ...], tuple[int, ...]]:
    return operation.type, operation.inputs, operation.outputs
