"""Running conformance cases on a device, in parallel."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from nnbridge import devices as device_list
from nnbridge.conformance.cases import Array, Case, build, check_outputs, inputs_of, read_cases
from nnbridge.conformance.outcome import FAILED, NOT_TAKEN, PASSED, REFUSED, CaseResult, Failure, SuiteOutcome
from nnbridge.conformance.variants import VARIANTS, Variant
from nnbridge.devices.device import Device, Performance, uniform_capabilities
from nnbridge.devices.samples import SampleDriver
from nnbridge.errors import NnapiError, Reason, lacking
from nnbridge.model import Model, Operation
from nnbridge.processes import computed
from nnbridge.records import dataclass
from nnbridge.runtime.compilation import Compilation
from nnbridge.runtime.execution import Execution
from nnbridge.runtime.placement import Answer, place
from nnbridge.types import CONTROL_FLOW, PreferenceCode

INFINITE_LOOP_TIMEOUT_NS = 20_000_000
"""Loop time-out of the cases that must fail by it."""


@dataclass(frozen=True)
class Setting:
    """The settings of a run of cases."""

    device: str | Device = device_list.CPU_NAME
    variant: str | None = None
    split: int | None = None
    """Seed: spread each model's operations over three devices at random."""

    @property
    def found(self) -> Device:
        """The device."""
        return device_list.device(self.device) if isinstance(self.device, str) else self.device


def run_all(
    files: Sequence[Path], setting: Setting, jobs: int | None = None, progress: Callable[[int], None] | None = None
) -> SuiteOutcome:
    """Run every case of some spec files; ``progress`` is called with the number of files that were completed since."""
    outcome = SuiteOutcome()
    jobs = jobs or os.cpu_count() or 1
    parts: Iterator[SuiteOutcome] = map(partial(run_file, setting=setting), files)
    if jobs > 1 and len(files) > 1:
        # The largest files first, so that no worker is left with one at the end.
        largest = sorted(files, key=lambda f: -f.stat().st_size)
        parts = computed(f"{__name__}:outcomes", [(path, setting) for path in largest], jobs)
    for part in parts:
        outcome.results += part.results
        if progress:
            progress(1)
    outcome.results.sort(key=lambda r: (r.suite, r.spec))
    return outcome


def run_file(path: Path, setting: Setting) -> SuiteOutcome:
    """Run the cases of one spec file."""
    variant: Variant = VARIANTS[setting.variant] if setting.variant else lambda case: case
    return SuiteOutcome([run_case(case, setting) for case in map(variant, read_cases(path)) if case is not None])


def outcomes(request: tuple[Path, Setting]) -> Iterator[SuiteOutcome]:
    """:func:`run_file` as a process calls it."""
    yield run_file(*request)


def run_case(case: Case, setting: Setting) -> CaseResult:
    """Build, compile and execute one case, and check its outputs."""
    started = time.perf_counter()

    def ended(status: str, failure: Failure | None = None, unsupported: Sequence[Reason] = ()) -> CaseResult:
        seconds = time.perf_counter() - started
        names = case.suite, case.spec, case.name
        return CaseResult(*names, status, case.operations, seconds, failure, tuple(dict.fromkeys(unsupported)))

    try:
        model = build(case)
        if not case.expects_failure:
            answers = _unsupported(model, setting)
            wrong = next((answer.reason for answer in answers if answer.wrong), None)
            if wrong is not None:
                return ended(FAILED, Failure(f"getSupportedOperations: {wrong.found}"))
            if answers:
                return ended(NOT_TAKEN, None, [answer.reason for answer in answers if answer.reason is not None])
        outputs = answer(case, setting, model)
    except Exception as error:
        if short := lacking(error):
            raise short from error
        if not isinstance(error, NnapiError):
            return ended(FAILED, Failure(f"{type(error).__name__}: {error}"))
        return ended(REFUSED) if case.expects_failure else ended(FAILED, Failure(f"{error.code.name}: {error}"))
    if case.expects_failure:
        return ended(FAILED, Failure("the model must be refused, but it was answered"))
    failure = check_outputs(case, outputs)
    return ended(FAILED if failure else PASSED, failure)


def _unsupported(model: Model, setting: Setting) -> list[Answer]:
    """The answers of a single driver for the operations that it does not accept; the CPU must accept all of them."""
    device = setting.found
    if setting.split is not None or device.kind != "device":
        return []
    placed = place(model, [device], PreferenceCode.FAST_SINGLE_ANSWER)
    return [found.answers[0] for found in placed if found.device is None]


def answer(case: Case, setting: Setting, model: Model) -> list[Array]:
    """A device's outputs for a case."""
    if setting.split is None:
        compilation = Compilation.create_for_devices(model, [setting.found])
    else:
        compilation = Compilation.create(model, split_devices(model, f"{setting.split}/{case.spec}/{case.name}"))
    compilation.finish()
    execution = Execution(compilation)
    if case.expects_failure:
        execution.set_loop_timeout(INFINITE_LOOP_TIMEOUT_NS)
    return list(execution.run(inputs_of(case)).values())


def split_devices(model: Model, seed: str) -> list[Device]:
    """Three devices that share the operations of one model at random, each operation accepted by exactly one.

    Control flow may be accepted by none: then the runtime interprets it, and its bodies are split in turn.
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
        accepted = owner.get(_key(operation), number) == number
        return None if accepted else Reason("an operation assigned to this device", operation=model.operation_name(operation))

    # Faster than the CPU, which gets control flow at most; it is there for what Android falls back to it with.
    faster = uniform_capabilities(Performance(0.5, 0.5))
    return [replace(full, name=f"split-{n}", claim=partial(claim, n), figures=faster, limited=False) for n in range(3)]


def _key(operation: Operation) -> tuple[int, tuple[int, ...], tuple[int, ...]]:
    return operation.type, operation.inputs, operation.outputs
