"""Placements by choice: drivers that accept a part of what they accept otherwise.

A limited driver answers ``getSupportedOperations`` for the same models as without limits, and then refuses what was not
chosen. All else is the driver's own: the runtime places, partitions and prepares as it always does.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cached_property

from nnbridge.compare.layers import place_of, titles
from nnbridge.devices.device import (
    Device,
    Support,
)
from nnbridge.devices.wrapped import WrappedDevice
from nnbridge.errors import Reason
from nnbridge.model import Model, Subgraph
from nnbridge.records import dataclass
from nnbridge.runtime.compilation import Compilation
from nnbridge.runtime.feature_level_slices import Slices
from nnbridge.runtime.partition_limits import limit_partitions
from nnbridge.runtime.partitioner import Partition, make_steps
from nnbridge.runtime.placement import Answer, place
from nnbridge.types import PreferenceCode


@dataclass(frozen=True)
class Placed:
    """An operation that a driver gets."""

    source: int
    """0 for the main subgraph, others for bodies of control flow that the runtime interprets."""
    index: int
    """Of the operation in its subgraph, in run order."""
    device: str
    operator: str
    """The source file's operator, such as ``34 Conv``."""
    operation: str
    tensor: str
    """The name of its first output."""
    within: str = ""
    """The body that contains it."""

    def __str__(self) -> str:
        return place_of(self.operator, self.operation, self.tensor, self.within)


class Limited(WrappedDevice):
    """A driver that accepts only chosen operations of the models that it is asked about."""

    def __init__(self, inner: Device, chosen: Mapping[Subgraph, Collection[int]]) -> None:
        super().__init__(inner)
        self._chosen = chosen

    def supported_operations(self, model: Model) -> Sequence[Support]:
        """The driver's answers for what was chosen."""
        answers = self.inner.supported_operations(model)
        chosen = self._chosen.get(model.main, ())
        refused = Reason("an operation that was chosen for the device")
        return [answer if k in chosen else refused for k, answer in enumerate(answers)]


@dataclass(frozen=True)
class Placements:
    """The parts of a model that drivers get, and the same with less."""

    drivers: tuple[Device, ...]
    partition: Partition
    placed: tuple[Placed, ...]
    """In run order."""
    wrong: tuple[Answer, ...]
    """Wrong answers of ``getSupportedOperations``."""

    @classmethod
    def of(
        cls,
        model: Model,
        drivers: Sequence[Device],
        preference: int = PreferenceCode.FAST_SINGLE_ANSWER,
        max_partitions: int = 0,
    ) -> Placements:
        """Ask the drivers and partition; nothing is prepared."""
        devices = Compilation.create(model, drivers).devices
        placements = place(model, devices, preference)
        wrong = tuple(answer for placement in placements for answer in placement.answers if answer.wrong)
        placements = limit_partitions(model.main, placements, devices, max_partitions)
        found = make_steps(model, placements, devices, preference)
        placed = []
        for step in found.steps:
            device, source = devices[step.device], found.sources[step.source].model
            for i in step.operations if device.kind == "device" else ():
                operation = source.main.operations[i]
                tensor = source.main.operands[operation.outputs[0]].name if operation.outputs else ""
                placed.append(Placed(step.source, i, device.name, *titles(source, operation), tensor, found.within(step.source)))
        return cls(tuple(d for d in devices if d.kind == "device"), found, tuple(placed), wrong)

    def limited(self, chosen: Iterable[Placed]) -> list[Device]:
        """The drivers, accepting nothing but these operations."""
        accepted = {(placed.device, placed.source, placed.index) for placed in chosen}
        return [Limited(driver, self._chosen(driver, accepted)) for driver in self.drivers]

    @cached_property
    def _slices(self) -> list[Slices]:
        return [Slices(source.model) for source in self.partition.sources]

    def _chosen(self, driver: Device, accepted: Collection[tuple[str, int, int]]) -> dict[Subgraph, set[int]]:
        """For each model that the driver is asked about, the positions in it."""
        found: dict[Subgraph, set[int]] = {}
        for number, slices in enumerate(self._slices):
            asked = slices.for_device(driver)
            if asked.model is not None:
                positions = {k for k, i in enumerate(asked.included) if (driver.name, number, i) in accepted}
                found.setdefault(asked.model.main, set()).update(positions)
        return found
