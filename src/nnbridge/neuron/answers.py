"""What nnbridge's devices grant of a recorded graph, and a granted partition compiled for them."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from itertools import count
from pathlib import Path

from nnbridge import devices as device_list
from nnbridge.converters import converters
from nnbridge.converters.recorded import Expressed, Recording, Route
from nnbridge.devices.device import Device
from nnbridge.errors import InputError, Reason
from nnbridge.ndk.core import CPU_ONLY_VARIABLE, DEVICES_VARIABLE
from nnbridge.ndk.functions import devices_of_process
from nnbridge.runtime.compilation import Compilation, supported_operations
from nnbridge.storage.compiled import CompiledPartition

LOG = logging.getLogger("nnbridge.neuron")
_QUESTIONS = count()
"""Questions so far: the compiler asks once for each subgraph of a file, in order."""


@dataclass(frozen=True)
class Target:
    """The devices that stand for the NPU."""

    names: tuple[str, ...]
    """As the environment named them."""
    devices: tuple[Device, ...]


@cache
def target() -> Target:
    """The drivers that ``NNBRIDGE_DEVICES`` names, or all installed ones; NNAPI's CPU if there are none or it alone is named."""
    drivers = tuple(device for _, device in devices_of_process() if device.kind == "device")
    if not drivers:
        return Target((device_list.CPU_NAME,), (device_list.cpu(),))
    text = "" if os.environ.get(CPU_ONLY_VARIABLE, "") not in ("", "0") else os.environ.get(DEVICES_VARIABLE, "")
    named = [name.strip() for name in text.split(",") if name.strip() != device_list.CPU_NAME] if text else []
    return Target(tuple(named or (device.name for device in drivers)), drivers)


def route() -> Route:
    """The importer that reads what the compiler passes on. InputError if none is installed."""
    found = next((converter.neuron for converter in converters() if converter.neuron is not None), None)
    if found is None:
        raise InputError(Reason("an importer that takes part in LiteRT's route to MediaTek", "none"))
    return found()


def losses(path: Path, recording: Recording) -> Mapping[int, Reason]:
    """What the calls lost of a file's subgraph, the next one that is asked for."""
    subgraph = next(_QUESTIONS)
    found = {operator: reason for (number, operator), reason in route().losses(path).items() if number == subgraph}
    return {operator: reason for operator, reason in found.items() if operator < len(recording.operations)}


@dataclass(frozen=True)
class Granted:
    """The answer to a question."""

    refused: Mapping[int, Reason]
    """Operations that the devices do not take, and why."""


def granted(recording: Recording, lost: Mapping[int, Reason]) -> Granted:
    """Which operations of a graph the devices take. What is granted can be compiled and run, in any partition."""
    return answered(route().express(recording), target().devices, lost)


def answered(expressed: Expressed, devices: tuple[Device, ...], lost: Mapping[int, Reason]) -> Granted:
    """The same of a graph that is expressed already."""
    refused = {**expressed.refused, **lost}
    question = expressed.question()
    answers = supported_operations(question, devices) if question is not None else []
    for operation, supported in zip(question.main.operations if question is not None else (), answers, strict=True):
        if not supported and operation.source is not None:
            name = question.operation_name(operation) if question is not None else ""
            found = f"{name}, which {' and '.join(device.name for device in devices)} refuse"
            refused.setdefault(operation.source.index, Reason("an operation that a device supports", found))
    for number, writers in expressed.open.items():
        if any(writer in refused for writer in writers):
            refused.setdefault(number, Reason("known dimensions of what an operator that is refused writes", "open ones"))
    # A partition of constants alone would have no inputs: they go where all that reads them goes.
    for number, readers in reversed(expressed.constant.items()):
        left = [reader for reader in readers if reader < 0 or reader in refused]
        if left or not readers:
            rule = "a computed input, or readers that are all granted"
            refused.setdefault(number, Reason(rule, "constants alone"))
    return Granted(refused)


def compiled(recording: Recording, relaxed: bool) -> CompiledPartition:
    """A partition, compiled for the devices."""
    model = replace(route().express(recording).model(), relaxed=relaxed)
    Compilation.create_for_devices(model, target().devices).finish()
    return CompiledPartition(model, target().names)
