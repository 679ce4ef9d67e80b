"""A plan and several references side by side: who agrees with whom, from which one sees which side is wrong."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from typing import TYPE_CHECKING, Any

from nnbridge.compare.arrays import Array
from nnbridge.compare.comparison import OutputComparison, add_sample, new_comparisons
from nnbridge.compare.results import DeviceResult, judged
from nnbridge.compare.samples import Missing, Reference, Sample, answered, outputs_in_model
from nnbridge.compare.tolerance import DEFAULT_TOLERANCE, Tolerances
from nnbridge.devices.evidence import Evidence, evidences, idle_devices
from nnbridge.errors import InputError, Reason
from nnbridge.model import Model
from nnbridge.records import dataclass
from nnbridge.runtime.compilation import Compilation
from nnbridge.runtime.execution import Execution
from nnbridge.runtime.states import States

if TYPE_CHECKING:
    from nnbridge.compare.references import ApartReference


@dataclass(frozen=True)
class SidePair:
    """Two sides, and every output of the first beside the second's."""

    first: str
    second: str
    outputs: tuple[OutputComparison, ...]

    @property
    def agrees(self) -> bool:
        """True if every output is within tolerance."""
        return all(output.within for output in self.outputs)

    @property
    def worst(self) -> OutputComparison:
        """The output with the largest difference as a share of its range; one that cannot be compared comes first."""
        return max(self.outputs, key=lambda output: (bool(output.problem), output.non_finite_unequal > 0, share(output)))

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        sides = {"first": self.first, "second": self.second, "pass": self.agrees}
        return {**sides, "outputs": [output.as_dict() for output in self.outputs]}


def share(output: OutputComparison) -> float:
    """The largest difference as a share of the output's range."""
    return output.largest / (output.span or 1.0)


@dataclass(frozen=True, repr=False)
class SideBySide(DeviceResult):
    """A plan's outputs and several references', each beside each."""

    model: str
    samples: int
    names: tuple[str, ...]
    """The plan's devices, then references that have outputs."""
    pairs: tuple[SidePair, ...]
    absent: Mapping[str, str]
    """References without outputs, and why."""
    interrupted: bool = False
    ended: tuple[tuple[str, str], ...] = ()
    """None: a reference whose process ended is absent."""
    evidence: tuple[Evidence, ...] = ()
    """The evidence of each driver that ran something."""
    idle: tuple[str, ...] = ()
    """The devices that were offered the model where none of them ran anything."""

    @property
    def groups(self) -> list[list[str]]:
        """Sides that agree with each other, directly or by others; the largest group first."""
        found = {name: [name] for name in self.names}
        for pair in self.pairs:
            one, other = found[pair.first], found[pair.second]
            if pair.agrees and one is not other:
                one += other
                found.update(dict.fromkeys(other, one))
        groups = {id(group): sorted(group, key=self.names.index) for group in found.values()}
        return sorted(groups.values(), key=len, reverse=True)

    @property
    def failed(self) -> bool:
        """True if two sides do not agree."""
        return any(not pair.agrees for pair in self.pairs)

    @property
    def sentence(self) -> str:
        """The answer in one sentence."""
        first, *others = self.groups
        agree = f"{_listed(first)} agree" if len(first) > 1 else "no two sides agree"
        apart = others if len(first) > 1 else []
        found = [agree, *(f"{_listed(group)} {_differs(group)}" for group in apart)]
        missing = [f"{name} has no outputs ({why})" for name, why in self.absent.items()]
        known = f"{self.reservation}; of what was computed: " if self.reservation else ""
        return f"{self.model}: {known}{'; '.join([*found, *missing])}"

    @property
    def verdict(self) -> str:
        """``pass`` if all sides agree, else ``FAIL``; or why that cannot be said of the devices."""
        return self.reservation or ("FAIL" if self.failed else "pass")

    def records(self) -> Sequence[Mapping[str, Any]]:
        """A row for each pair."""
        return [
            {"first": p.first, "second": p.second, "output": p.worst.name, "max diff": p.worst.largest, "agree": p.agrees}
            for p in self.pairs
        ]

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready; what references say of each other holds whatever is known of the devices."""
        return {
            "model": self.model,
            "samples": self.samples,
            **self.judged({"pass": not self.failed}),
            "verdict": self.verdict,
            "evidence": [each.as_dict() for each in self.evidence],
            "idle": list(self.idle),
            "sentence": self.sentence,
            "references": list(self.names),
            "groups": self.groups,
            "pairs": [judged(p.as_dict(), bool(self.reservation) and p.first == self.names[0]) for p in self.pairs],
            "absent": [{"reference": name, "reason": why} for name, why in self.absent.items()],
            "interrupted": self.interrupted,
        }


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _differs(group: Sequence[str]) -> str:
    return "agrees with none" if len(group) == 1 else "agree with each other only"


def present(begun: Mapping[str, ApartReference], absent: dict[str, str]) -> dict[str, ApartReference]:
    """The references that read the file; why the others do not is added to ``absent``. InputError where none does."""
    found = {}
    for name, runtime in begun.items():
        try:
            runtime.ready()
        except InputError as error:
            absent[name] = str(error.reason)
        else:
            found[name] = runtime
    if not found:
        raise InputError(Reason("a reference that reads the file", "; ".join(map(": ".join, absent.items()))))
    return found


def side_by_side(
    compilation: Compilation,
    references: Mapping[str, Reference],
    samples: Iterable[Sample],
    tolerances: Tolerances | None = None,
    absent: Mapping[str, str] | None = None,
) -> SideBySide:
    """Every sample on a finished compilation and by each reference, all beside each other.

    ``samples`` have the outputs of the first reference. One whose process ends or that refuses a sample is absent from then on.
    InputError where none is left.
    """
    table = _SideColumns(compilation, references, dict(absent or {}))
    interrupted = False
    try:
        for sample in samples:
            table.add(sample)
    except KeyboardInterrupt:
        if not table.labels:
            raise
        interrupted = True
    names = table.names
    if len(names) < 2:
        why = "; ".join(f"{name}: {reason}" for name, reason in table.absent.items())
        raise InputError(Reason("references that compute outputs", why or "none", operand="reference"))
    pairs = tuple(table.pair(one, other, tolerances) for one, other in combinations(names, 2))
    sides, devices = tuple(names.values()), compilation.devices
    known = tuple(evidences(device for device in devices if device.name in table.ran))
    idle = idle_devices(devices, table.ran)
    model, count = compilation.model.name, len(table.labels)
    return SideBySide(model, count, sides, pairs, table.absent, interrupted, evidence=known, idle=idle)


_PLAN = ""
"""The plan among the columns."""


class _SideColumns:
    """Every side's outputs for each sample."""

    def __init__(self, compilation: Compilation, references: Mapping[str, Reference], absent: dict[str, str]) -> None:
        self._compilation, self._references, self.absent = compilation, references, absent
        self._states = States(compilation.model)
        self.ran: dict[str, None] = {}
        self._outputs: dict[str, list[Mapping[str, Array]]] = {name: [] for name in (_PLAN, *references)}
        self.labels: list[str] = []

    @property
    def names(self) -> dict[str, str]:
        """The sides with outputs for every sample, and their titles."""
        return {name: name or ", ".join(self.ran) for name in self._outputs if name not in self.absent}

    def add(self, sample: Sample) -> None:
        """Run a sample on every side."""
        if not sample.continues:
            self._states.reset()
        execution = Execution(self._compilation, self._states)
        self._outputs[_PLAN].append(execution.run(sample.inputs))
        self.ran.update(dict.fromkeys(execution.report.devices))
        for number, (name, runtime) in enumerate(self._references.items()):
            if name in self.absent:
                continue
            try:
                self._outputs[name].append(_outputs(self._compilation.model, runtime, sample, came=number == 0))
            except InputError as error:
                self.absent[name] = str(error.reason)
        self.labels.append(sample.label)

    def pair(self, one: str, other: str, tolerances: Tolerances | None) -> SidePair:
        """Two sides beside each other."""
        model, names = self._compilation.model, self.names
        outputs = new_comparisons(model, tolerances or DEFAULT_TOLERANCE)
        for label, ours, theirs in zip(self.labels, self._outputs[one], self._outputs[other], strict=True):
            add_sample(model, outputs, ours, theirs, label)
        return SidePair(names[one], names[other], tuple(outputs))


def _outputs(model: Model, runtime: Reference, sample: Sample, *, came: bool) -> Mapping[str, Array]:
    """A reference's outputs as the model has them; those of the first one came with the sample."""
    if not came:
        if not sample.continues:
            runtime.reset()
        return outputs_in_model(model, answered(model, runtime, sample.inputs))
    if isinstance(sample.outputs, Missing):
        raise InputError(sample.outputs.why)
    return outputs_in_model(model, sample.outputs)
