"""Symptoms of a run and their predicates, as searches use them.

``fails``: the model cannot be compiled or run without the CPU in the drivers' place. ``falls-back``: it is answered, but the CPU
computed what a driver should have, or a driver answered ``getSupportedOperations`` wrongly. ``differs``: an output is beyond
tolerance. ``slow``: it takes longer than on the CPU by so many seconds.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import TypeAlias

from nnbridge import storage
from nnbridge.compare.arrays import Array, save_arrays
from nnbridge.compare.comparison import add_sample, fallbacks_of, new_comparisons
from nnbridge.compare.layers import difference
from nnbridge.compare.samples import as_samples, named_outputs
from nnbridge.compare.tensors import DeviceReference
from nnbridge.compare.tolerance import Tolerances
from nnbridge.devices import CPU_NAME
from nnbridge.devices.device import Device
from nnbridge.errors import InputError, NnapiError, Reason, RefusalError, pass_shortage
from nnbridge.model import Model
from nnbridge.records import dataclass
from nnbridge.reduction.parts import ReductionCandidate
from nnbridge.runtime.compilation import Compilation, PartitioningMode
from nnbridge.runtime.execution import Execution
from nnbridge.storage.temporary import TemporaryFolder
from nnbridge.types import PreferenceCode

FAILS, FALLS_BACK, DIFFERS, SLOW = SYMPTOMS = ("fails", "falls-back", "differs", "slow")
_REPEATS = 3
"""Runs of which the shortest counts."""
_NOT_STARTED = (126, 127)
"""Exit statuses by which shells report a command that cannot be started."""


@dataclass(frozen=True)
class Symptom:
    """A symptom of a run."""

    kind: str
    """One of :data:`SYMPTOMS`, or ``holds`` of a predicate of your own."""
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.kind}: {self.detail}" if self.detail else self.kind


@dataclass(frozen=True)
class Search:
    """The symptom and devices of a search."""

    drivers: tuple[Device, ...] = ()
    kinds: tuple[str, ...] = (FAILS, FALLS_BACK, DIFFERS)
    tolerances: Tolerances = field(default_factory=Tolerances)
    slower_by: float = 0.1
    """Seconds beyond the CPU's time from which a run is slow."""
    preference: int = PreferenceCode.FAST_SINGLE_ANSWER
    reference: str = CPU_NAME
    """The device whose answers count as right; ``reference`` is NNAPI's CPU with its reference kernels."""


def symptom_of(
    search: Search, candidate: ReductionCandidate, expected: Mapping[str, Array] | Sequence[Array], drivers: Sequence[Device]
) -> Symptom | None:
    """The symptom of a model on drivers and the CPU, beside a reference's outputs; the first kind that the search looks for."""
    mode = PartitioningMode.WITHOUT_FALLBACK if search.kinds == (FAILS,) else PartitioningMode.WITH_FALLBACK
    model = candidate.model
    try:
        compilation = Compilation.create(model, drivers, mode)
        compilation.set_preference(search.preference)
        compilation.finish()
        execution = Execution(compilation)
        answers = execution.run(candidate.inputs)
    except NnapiError as error:
        return Symptom(FAILS, f"{error.code.name}: {error}") if FAILS in search.kinds else None
    if FALLS_BACK in search.kinds:
        wrong = [f"{share.device}: {share.wrong_answer}" for share in compilation.shares() if share.wrong_answer]
        found = next(iter([*fallbacks_of(execution), *wrong]), None)
        if found is not None:
            return Symptom(FALLS_BACK, found)
    if DIFFERS in search.kinds and (found := _difference(model, search.tolerances, answers, expected)):
        return Symptom(DIFFERS, found)
    if SLOW in search.kinds:
        excess = _seconds(compilation, candidate) - _seconds(_on_cpu(model), candidate)
        if excess >= search.slower_by:
            return Symptom(SLOW, f"{excess:.3f} s more than on {CPU_NAME}")
    return None


def _difference(
    model: Model, tolerances: Tolerances, answers: Mapping[str, Array], expected: Mapping[str, Array] | Sequence[Array]
) -> str | None:
    """The first output beyond its tolerance."""
    names = named_outputs(model)
    mine = replace(tolerances, by_name={name: own for name, own in tolerances.by_name.items() if name in names})
    outputs = new_comparisons(model, mine)
    add_sample(model, outputs, answers, expected)
    wrong = next((output for output in outputs if output.problem or output.beyond), None)
    return None if wrong is None else f"{wrong.name}: {wrong.problem or difference(wrong)}"


def _on_cpu(model: Model) -> Compilation:
    compilation = Compilation.create(model, [])
    compilation.finish()
    return compilation


def _seconds(compilation: Compilation, candidate: ReductionCandidate) -> float:
    times = []
    for _ in range(_REPEATS):
        started = time.perf_counter()
        Execution(compilation).run(candidate.inputs)
        times.append(time.perf_counter() - started)
    return min(times)


Predicate: TypeAlias = "Callable[[ReductionCandidate], Symptom | None]"
"""What a candidate shows; None if not what is looked for."""


def on_devices(search: Search) -> Predicate:
    """True for what shows a symptom beside the reference device's answers."""

    def predicate(candidate: ReductionCandidate) -> Symptom | None:
        try:
            expected = DeviceReference(candidate.model, search.reference).run(candidate.inputs)
        except RefusalError:
            return None  # No model that anything can be said of.
        return symptom_of(search, candidate, expected, search.drivers)

    return predicate


def by_command(text: str, timeout: float) -> Predicate:
    """True for what a command of the user's exits with status 0 for; ``.py`` files are run by this Python.

    The command gets the paths of the model (.nnapi) and of its inputs with NNAPI's CPU's outputs (.npz) in place of
    ``{model}`` and ``{inputs}``, or at its end. A command that takes longer than ``timeout`` seconds does not hold. InputError
    if it cannot be started.
    """
    words = [text] if os.path.isfile(text) else shlex.split(text)
    if not words:
        raise InputError(Reason(f"{', '.join(SYMPTOMS)}, a script or a command", repr(text), operand="predicate"))
    if words[0].endswith(".py"):
        words = [sys.executable, *words]

    def predicate(candidate: ReductionCandidate) -> Symptom | None:
        with TemporaryFolder() as folder:
            model, inputs = Path(folder) / "candidate.nnapi", Path(folder) / "candidate.npz"
            storage.save(candidate.model, model)
            try:
                outputs = DeviceReference(candidate.model, CPU_NAME).run(candidate.inputs)
            except RefusalError:
                return None
            save_arrays(inputs, as_samples(candidate.inputs, outputs))
            named = [word.replace("{model}", str(model)).replace("{inputs}", str(inputs)) for word in words]
            command = named if named != words else [*words, str(model), str(inputs)]
            return Symptom("holds", text) if _exits_with_0(command, timeout) else None

    return predicate


def _exits_with_0(command: Sequence[str], timeout: float) -> bool:
    try:
        status = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=2, timeout=timeout, check=False, start_new_session=True
        ).returncode
    except subprocess.TimeoutExpired:
        return False
    except OSError as error:
        pass_shortage(error)
        raise InputError(
            Reason("a command that can be started", f"{command[0]}: {error.strerror}", operand="predicate")
        ) from error
    if status in _NOT_STARTED:
        raise InputError(Reason("a command that can be started", f"exit status {status}: {command[0]}", operand="predicate"))
    return status == 0
