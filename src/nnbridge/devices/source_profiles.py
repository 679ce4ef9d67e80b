"""Devices that look at a file's operators before NNAPI: ahead-of-time compilers and TFLite's delegates (``level = "tflite"``).

Such a device is asked once about a file (:meth:`SourceProfile.bound`). What it claims is planned and computed by it, operation by
operation as the importer mapped it, with the arithmetic that is known about it; everything else goes to the CPU.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from functools import partial
from types import MappingProxyType
from typing import ClassVar

from nnbridge.budget import WorkBudget
from nnbridge.devices.cpu import check_deadline
from nnbridge.devices.device import (
    Capabilities,
    Device,
    Performance,
    PreparedModel,
    PrepareModelConfig,
    Support,
    uniform_capabilities,
)
from nnbridge.devices.host import HostPreparedModel
from nnbridge.devices.requantise import prepared_with
from nnbridge.devices.rules import RuleCondition, Suspects, suspects
from nnbridge.devices.rules.facts import evaluations
from nnbridge.devices.source_facts import OperatorFacts
from nnbridge.errors import InapplicableError, InputError, Reason, Why
from nnbridge.estimate.numbers import Cost
from nnbridge.extensions import TYPES, Extension
from nnbridge.model import Model, Operation
from nnbridge.records import dataclass
from nnbridge.source import SourceGraph, SourceOperator
from nnbridge.types import DeviceTypeCode, is_extension

_FASTER = uniform_capabilities(Performance(0.1, 0.1))
"""A compiler's claim is final: the operation never runs on the CPU instead."""


@dataclass(frozen=True)
class SourceRules:
    """The rules of a device. A profile that is like another one shares them."""

    format: str
    operators: Mapping[str, tuple[tuple[RuleCondition, ...], ...]]
    """Operator → alternatives; the conditions of one of them must all hold."""
    unpacks: Mapping[str, tuple[tuple[RuleCondition, ...], ...]] = field(default_factory=dict)
    """Operator → when it is computed while the device is prepared: its output is a constant then."""
    faults: Mapping[str, tuple[tuple[RuleCondition, ...], ...]] = field(default_factory=dict)
    """Operator → what is computed right. One that is accepted and breaks a condition has wrong numbers on the device."""


@dataclass(frozen=True)
class Claim:
    """A device's answer for one operator of the file."""

    operator: SourceOperator
    reason: Reason | None = None
    """Why it is left to the CPU; None if the device takes it."""
    uncertain: str = ""
    """Why the answer is open."""
    fault: str = ""
    """The known fault of the device that makes its numbers wrong; empty where none is known."""
    fatal: bool = False
    """The device fails with the whole file for it."""

    @property
    def accepted(self) -> bool:
        """True if the device takes the operator."""
        return self.reason is None


@dataclass(frozen=True, repr=False)
class SourceProfile(Device):
    """A device that a profile at the level of a file format describes, before it has seen a file."""

    name: str
    rules: SourceRules
    version: str = "profile"
    source: str = ""
    verified: str = ""
    notes: tuple[str, ...] = ()
    """What the source leaves open, in sentences."""
    hardware: Mapping[str, float] = field(default_factory=dict)
    static: bool = False
    """A file with a tensor whose dimensions only a run computes is refused."""
    partitions: str = "all"
    """``all``, or ``first``: what follows the first refused operator is refused, too."""
    max_partitions: int = 0
    """Partitions that it takes unless the user states another number; 0: all."""
    cost: Cost | None = None
    type: DeviceTypeCode = DeviceTypeCode.ACCELERATOR
    aliases: tuple[str, ...] = ()
    numerics: str = "exact"
    """Its arithmetic: a name of :data:`~nnbridge.operations.numerics.NUMERICS`."""
    numerics_source: str = ""
    """Where that is stated; empty: nothing is public, and the CPU's arithmetic is used."""
    app: str = ""
    """The runtime of the compiled file where that is not TFLite, whose refusal of the file does not count then."""
    before_nnapi: ClassVar[bool] = True
    is_profile: ClassVar[bool] = True

    @property
    def format(self) -> str:
        """The format whose operators it looks at."""
        return self.rules.format

    @property
    def capabilities(self) -> Capabilities:
        """The capabilities of the operators that it says it runs."""
        return _FASTER

    def claims(self, graph: SourceGraph) -> tuple[Claim, ...]:
        """The answer for each operator of a file."""
        if graph.format != self.format:
            raise InapplicableError(Reason(f"a {self.format} file", f"a {graph.format} file", self.name))
        if self.static and graph.dynamic is not None:
            return tuple(Claim(o, replace(graph.dynamic, operation=o.label)) for o in graph.operators)
        asked = ((conditions, o) for o in graph.operators for conditions in self.rules.operators.get(o.name, ()))
        work = evaluations(len(graph.operators), self.name)
        unpacked = self._unpacked(graph, work)
        facts = partial(self._facts, graph, work, _stored(unpacked))
        left = suspects(asked, facts)
        found = [Claim(o) if o.index in unpacked else self._claim(facts, o, left) for o in graph.operators]
        fatal = next((c for c in found if c.fatal), None)
        if fatal is not None:
            return tuple(replace(claim, reason=claim.reason or fatal.reason) for claim in found)
        found = [self._checked(facts, claim) for claim in _read_by_the_device(graph, found, unpacked)]
        return tuple(_first_run(found) if self.partitions == "first" else found)

    def _checked(self, facts: Callable[[SourceOperator], OperatorFacts], claim: Claim) -> Claim:
        """A claim with the known fault that an accepted operator meets."""
        conditions = self.rules.faults.get(claim.operator.name, ()) if claim.accepted else ()
        if not conditions:
            return claim
        subject = facts(claim.operator)
        met = next((c for each in conditions for c in each if c.broken(subject)), None)
        return claim if met is None else replace(claim, fault=met.says or met.requirement)

    def _unpacked(self, graph: SourceGraph, work: WorkBudget) -> dict[int, SourceOperator]:
        """The operators that are computed when the device is prepared, by index."""
        found: dict[int, SourceOperator] = {}
        for operator in graph.operators if self.rules.unpacks else ():
            alternatives = self.rules.unpacks.get(operator.name, ())
            subject = self._facts(graph, work, _stored(found), operator)
            if any(not any(c.broken(subject) for c in conditions) for conditions in alternatives):
                found[operator.index] = operator
        return found

    def _facts(
        self, graph: SourceGraph, work: WorkBudget, unpacked: Mapping[int, str], operator: SourceOperator
    ) -> OperatorFacts:
        return OperatorFacts(graph, operator, self.hardware, work, unpacked)

    def _claim(self, facts: Callable[[SourceOperator], OperatorFacts], operator: SourceOperator, left: Suspects) -> Claim:
        alternatives = self.rules.operators.get(operator.name, ())
        if not alternatives:
            return Claim(operator, Reason("an operator that the profile lists", operator.name, operator.label, kind=Why.OPERATOR))
        subject = facts(operator)
        first: Claim | None = None
        for conditions in alternatives:
            broken = next((c for c in left.get((id(conditions), id(operator)), conditions) if c.broken(subject)), None)
            if broken is None:
                doubts = (c.uncertain for c in conditions if c.uncertain and (c.when is None or c.when.test(subject)))
                return Claim(operator, uncertain=next(doubts, ""))
            rule = _FATAL + broken.requirement if broken.fails_model else broken.requirement
            reason = Reason(rule, broken.found(subject) or "otherwise", operator.label, says=broken.says)
            first = first or Claim(operator, reason, broken.uncertain, fatal=bool(broken.fails_model))
        assert first is not None  # there is at least one alternative
        return first

    def bound(self, graph: SourceGraph) -> BoundDevice:
        """The device, asked about a file."""
        return BoundDevice(self, graph, self.claims(graph))

    def supported_operations(self, model: Model) -> Sequence[Support]:
        """Nothing: the operations of a model without a file are not what the device looks at."""
        reason = Reason(f"operators of a {self.format} file, which the device looks at", "NNAPI operations", self.name)
        return [reason] * len(model.main.operations)

    def prepare_model_with_config(self, model: Model, config: PrepareModelConfig) -> PreparedModel:
        """Refuses: the device has seen no file."""
        raise InputError(Reason(f"operators of a {self.format} file", "NNAPI operations", self.name))


_FATAL = "a file that can be compiled: "


def _stored(unpacked: Mapping[int, SourceOperator]) -> dict[int, str]:
    """Tensor → the type of the constant that an operator unpacks into it."""
    return {o.outputs[0].index: o.inputs[0].type for o in unpacked.values() if o.outputs and o.inputs and o.inputs[0] is not None}


def _read_by_the_device(graph: SourceGraph, claims: Sequence[Claim], unpacked: Mapping[int, SourceOperator]) -> list[Claim]:
    """Claims of which those of operators that unpack a constant for the CPU are refused."""
    refused = {claim.operator.index for claim in claims if not claim.accepted}
    found = []
    for claim in claims:
        operator = claim.operator
        readers = (r for t in operator.outputs for r in graph.readers.get(t.index, ())) if operator.index in unpacked else ()
        left = next((reader for reader in readers if reader.index in refused), None)
        rule = "operators that the device takes read the unpacked constant"
        found.append(claim if left is None else replace(claim, reason=Reason(rule, left.label, operator.label)))
    return found


def _first_run(claims: Sequence[Claim]) -> list[Claim]:
    """Only the operators before the first refused one that do not depend on a refused one."""
    rest: SourceOperator | None = None
    found = []
    for claim in claims:
        if claim.reason is not None:
            rest = rest or claim.operator
        elif rest is not None:
            # A doubt about its acceptance is of no interest any more.
            claim = replace(claim, reason=Reason("one partition only", f"after {rest.label}", claim.operator.label), uncertain="")
        found.append(claim)
    return found


class BoundDevice(Device):
    """A device with its answers for one file. It computes with its profile's arithmetic.

    ``left``: operators that it accepts and that are left to the CPU all the same, with the reason: for speed, for memory, or
    since they are beyond the limit on partitions.
    """

    is_profile: ClassVar[bool] = True

    def __init__(
        self,
        profile: SourceProfile,
        graph: SourceGraph,
        claims: tuple[Claim, ...],
        left: Mapping[int, Reason] = MappingProxyType({}),
    ) -> None:
        self.profile, self.graph, self.claims, self.left = profile, graph, claims, left
        self.name, self.version, self.type = profile.name, profile.version, profile.type

    @property
    def failure(self) -> Reason | None:
        """The reason why it fails with the whole file; None for files that it prepares."""
        return next((claim.reason for claim in self.claims if claim.fatal), None)

    @property
    def capabilities(self) -> Capabilities:
        """The profile's."""
        return self.profile.capabilities

    def without(self, left: Mapping[int, Reason]) -> BoundDevice:
        """The device that leaves these operators to the CPU, beside those that it left before."""
        return BoundDevice(self.profile, self.graph, self.claims, {**self.left, **left})

    def supported_extensions(self) -> Sequence[Extension]:
        """The host extensions: what NNAPI cannot express of a claimed operator."""
        return tuple(TYPES.host_extensions().values())

    def answer(self, index: int) -> Reason | None:
        """The reason why an operator of the file is left to the CPU; None if the device runs it."""
        return self.claims[index].reason or self.left.get(index)

    def supported_operations(self, model: Model) -> Sequence[Support]:
        """By the operator that each operation came from."""
        return [self._support(model, operation) for operation in model.main.operations]

    def _support(self, model: Model, operation: Operation) -> Support:
        source = operation.source
        if source is None:
            return Reason("an operation of the file's operators", "one without", model.operation_name(operation))
        index = source.callers[0] if source.callers else source.index
        if not source.callers and source.subgraph != self.graph.subgraph:
            return Reason("an operator of the main graph", f"one of subgraph {source.subgraph}", source.operator)
        return self.answer(index) or True

    def prepare_model_with_config(self, model: Model, config: PrepareModelConfig) -> PreparedModel:
        """The profile's arithmetic on the CPU's executor; the host where NNAPI has no operation for a claimed operator."""
        check_deadline(config.deadline)
        if any(is_extension(operation.type) for operation in model.main.operations):
            return HostPreparedModel(model, mixed=True)
        return prepared_with(model, self.profile.numerics)
