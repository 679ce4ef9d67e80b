"""Answers of nnbridge's devices to a recorded graph, and compilation of a granted partition for them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from functools import cache

from nnbridge import devices as device_list
from nnbridge.converters import converters
from nnbridge.converters.recorded import Expressed, Route
from nnbridge.devices.device import Device
from nnbridge.errors import InputError, Reason
from nnbridge.ndk.core import CPU_ONLY_VARIABLE, DEVICES_VARIABLE
from nnbridge.ndk.device_functions import devices_of_process
from nnbridge.records import dataclass
from nnbridge.runtime.compilation import Compilation, supported_operations
from nnbridge.storage.compiled import CompiledPartition


@dataclass(frozen=True)
class NpuTarget:
    """The devices that represent the NPU."""

    names: tuple[str, ...]
    """As the environment named them."""
    devices: tuple[Device, ...]


@cache
def target() -> NpuTarget:
    """The drivers that ``NNBRIDGE_DEVICES`` names, or all installed ones; NNAPI's CPU if there are none or only it is named."""
    drivers = tuple(device for _, device in devices_of_process() if device.kind == "device")
    if not drivers:
        return NpuTarget((device_list.CPU_NAME,), (device_list.cpu(),))
    text = "" if os.environ.get(CPU_ONLY_VARIABLE, "") not in ("", "0") else os.environ.get(DEVICES_VARIABLE, "")
    named = [name.strip() for name in text.split(",") if name.strip() != device_list.CPU_NAME] if text else []
    return NpuTarget(tuple(named or (device.name for device in drivers)), drivers)


def route() -> Route:
    """The importer that reads what the compiler passes on. InputError if none is installed."""
    found = next((converter.neuron for converter in converters() if converter.neuron is not None), None)
    if found is None:
        raise InputError(Reason("an importer that supports LiteRT's MediaTek route", "none"))
    return found()


@dataclass(frozen=True)
class Granted:
    """The operators of a graph that the devices accept."""

    names: tuple[str, ...]
    """The operators' names, empty for those that the compiler does not pass on."""
    refused: Mapping[int, Reason]
    """Operators that the devices do not accept, by index, and why."""

    def runs(self) -> list[tuple[int, ...]]:
        """The partitions that LiteRT makes of what is granted: operators that follow each other in the file."""
        found: list[tuple[int, ...]] = []
        for number in range(len(self.names)):
            if number in self.refused:
                continue
            if found and found[-1][-1] == number - 1:
                found[-1] = (*found[-1], number)
            else:
                found.append((number,))
        return found


def answered(expressed: Expressed, devices: tuple[Device, ...], lost: Mapping[int, Reason]) -> Granted:
    """The operators of a graph that the devices accept. They can be compiled and run in any partition of LiteRT's."""
    names = expressed.names
    while True:
        refused = _refused(expressed, devices, lost)
        # What reads such an operator's output gets it from outside then, and does not know its value.
        more = {number: refused[number] for number in expressed.constant if number in refused}
        if not more:
            return Granted(names, refused)
        expressed = expressed.without(more)


def _refused(expressed: Expressed, devices: tuple[Device, ...], lost: Mapping[int, Reason]) -> dict[int, Reason]:
    refused = {**expressed.refused, **lost}
    spoilt = _unsupported(expressed, devices)
    for number in sorted(spoilt):
        # One operand may make a driver refuse a whole model.
        refused.update(_unsupported(expressed, devices, (number,)))
    for run in Granted(expressed.names, refused).runs() if spoilt else ():
        refused.update(_unsupported(expressed, devices, run))
    for number, writers in expressed.open.items():
        if any(writer in refused for writer in writers):
            refused.setdefault(number, Reason("known dimensions of what an operator that is refused writes", "open ones"))
    for number, readers in reversed(list(expressed.constant.items())):
        # A partition with only constants would have no inputs: they go where all that reads them goes.
        together = readers and min(readers) >= 0 and refused.keys().isdisjoint(range(number + 1, max(readers) + 1))
        if not together:
            refused.setdefault(number, Reason("a computed input, or readers in the same partition", "only constants"))
    return refused


def _unsupported(
    expressed: Expressed, devices: tuple[Device, ...], operators: tuple[int, ...] | None = None
) -> dict[int, Reason]:
    """The operators of which the devices refuse an operation, asked as one model of these operators or of all."""
    question = expressed.question(operators)
    found: dict[int, Reason] = {}
    supported = supported_operations(question, devices) if question is not None else ()
    for operation, good in zip(question.main.operations if question is not None else (), supported, strict=True):
        if not good and operation.source is not None and question is not None:
            what = f"{question.operation_name(operation)}, refused by {', '.join(device.name for device in devices)}"
            found.setdefault(operation.source.index, Reason("an operation that a device supports", what))
    return found


def compiled(expressed: Expressed, relaxed: bool) -> CompiledPartition:
    """A partition, compiled for the devices."""
    model = replace(expressed.model(), relaxed=relaxed)
    Compilation.create_for_devices(model, target().devices).finish()
    return CompiledPartition(model, target().names)
