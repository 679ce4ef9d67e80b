"""The decisions of a compilation: the plan, and each driver's part of the model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import field
from functools import cached_property

from nnbridge.devices.cpu import CpuPreparedModel
from nnbridge.devices.device import Device, PreparedModel
from nnbridge.errors import Reason, counted
from nnbridge.extensions import HostExtension
from nnbridge.model import known
from nnbridge.records import dataclass
from nnbridge.runtime.caching import CacheRecord
from nnbridge.runtime.partitioner import ExecutionStep, Partition, SourceOperand
from nnbridge.runtime.placement import Placement
from nnbridge.types import FeatureLevel

LEAST_ALIGNMENT = 16
"""Alignment of an input or output that no step uses."""
ALIGNMENT = 64
"""Alignment that devices prefer (fact D18)."""


@dataclass(frozen=True)
class Interpreter:
    """Runs control flow that no device supports: the runtime itself (``NNAPI`` in Android's log)."""

    name: str = "NNAPI"
    kind: str = "runtime"


INTERPRETER = Interpreter()


@dataclass(frozen=True)
class Plan:
    """The decisions of a compilation. ``placements`` are those of the main subgraph before any fallback, ``partition`` runs."""

    devices: tuple[Device, ...]
    placements: tuple[Placement, ...]
    partition: Partition
    prepared: tuple[PreparedModel, ...]
    """Each execution step's prepared model."""
    fallback: Reason | None = None
    """Why the whole model was moved to the CPU, if it was."""
    cache: tuple[CacheRecord, ...] = ()
    """What the compilation cache did for each step, if the client asked for one."""
    grown: dict[SourceOperand, int] = field(default_factory=dict, compare=False, repr=False)
    """Bytes that the host's temporaries of open size needed last: the next run begins with as many, so that none runs twice."""

    @property
    def steps(self) -> tuple[ExecutionStep, ...]:
        """The execution steps, those of bodies of interpreted control flow among them."""
        return self.partition.steps

    @cached_property
    def has_dynamic_temporaries(self) -> bool:
        """True if a tensor of open size goes from step to step (facts P32, E54)."""
        crossing = (step.model.main.operands[i] for step in self.steps for i in step.crossing)
        return any(operand.is_tensor and not known(operand.dims) for operand in crossing)

    @property
    def has_fences(self) -> bool:
        """True if a driver with fences takes part, as those of feature level 4 on do (fact E57)."""
        devices = (self.devices[step.device] for step in self.steps)
        return any(device.kind == "device" and device.level >= FeatureLevel.LEVEL_4 for device in devices)

    @cached_property
    def computed_here(self) -> bool:
        """True if nnbridge's executor computes every step as NNAPI's CPU or as the host, without a device or another runtime."""
        steps = list(zip(self.steps, self.prepared, strict=False))
        return len(steps) == len(self.steps) and all(
            self.devices[step.device].kind != "device" and isinstance(prepared, CpuPreparedModel) for step, prepared in steps
        )

    @property
    def simple(self) -> bool:
        """True if one device runs the model as it is."""
        return len(self.partition.program) == 1

    def placed(self) -> Iterator[tuple[int, Placement]]:
        """Source and placement of every operation: the main subgraph's before any fallback, then those of bodies."""
        yield from ((0, placement) for placement in self.placements)
        for number, source in enumerate(self.partition.sources[1:], 1):
            yield from ((number, placement) for placement in source.placements)

    def device_of(self, operation: int, source: int = 0) -> Device | Interpreter:
        """The device that runs an operation of the main subgraph, or of another source."""
        device = self.partition.device_of.get((source, operation))
        return INTERPRETER if device is None else self.devices[device]

    def shares(self, offered: Sequence[Device], refused: Collection[int] = ()) -> tuple[Share, ...]:
        """The operations that each of these drivers accepted and runs: none where everything fell back to the CPU.

        ``refused``: operators of the file's main graph that drivers were asked about before, and that stay with the app since.
        """
        placed = list(self.placed())
        counts = Counter(id(self.device_of(placement.operation, source)) for source, placement in placed)
        wrong = {a.device: a.reason.found for _, placement in placed for a in placement.answers if a.wrong and a.reason}
        accepted = Counter(a.device for _, placement in placed for a in placement.answers if a.supported)
        kept = sum(self._kept(source, placement, refused) for source, placement in placed)
        asked = {id(d): len(placed) - (0 if _takes_host_extensions(d) else kept) for d in offered}
        return tuple(
            Share(d.name, counts[id(d)], len(placed), wrong.get(d.name, ""), accepted[d.name], asked[id(d)])
            for d in offered
            if d.kind == "device"
        )

    def _kept(self, source: int, placement: Placement, refused: Collection[int]) -> bool:
        """True for an operation that no driver was asked about: its operator is not handed to NNAPI."""
        operation = self.partition.sources[source].model.main.operations[placement.operation]
        asked = source == 0 and operation.source is not None and operation.source.index in refused
        return operation.mapping == "host" and not asked


def _takes_host_extensions(device: Device) -> bool:
    """True for a device that is asked about what NNAPI cannot express, too: one that looks at the file's operators."""
    return any(isinstance(extension, HostExtension) for extension in device.supported_extensions())


@dataclass(frozen=True)
class Share:
    """The part of a model that a driver accepted and runs, of those that were offered it."""

    device: str
    operations: int
    """Operations that it runs; others that it accepted run on a device with less execution time."""
    of: int
    """Operations of the whole model, bodies that the runtime interprets included."""
    wrong_answer: str = ""
    """What it returned or raised instead of an answer to ``getSupportedOperations``."""
    accepted: int = 0
    """Operations that it supports."""
    asked: int = 0
    """Operations that it was asked about: without those that are not handed to NNAPI."""

    def __str__(self) -> str:
        wrong = f"; its reply to getSupportedOperations was malformed: {self.wrong_answer}" if self.wrong_answer else ""
        runs = "" if self.operations == self.accepted else f" and runs {self.operations}"
        kept = f"; {self.of - self.asked} of the model's {self.of} not handed to NNAPI" if self.asked < self.of else ""
        return f"{self.device} accepted {self.accepted} of {counted(self.asked, 'operation')}{runs}{kept}{wrong}"
