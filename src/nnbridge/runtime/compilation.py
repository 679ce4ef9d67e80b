"""Compilation: a model and a list of devices become a plan whose steps are prepared."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from functools import cached_property
from pathlib import Path

from nnbridge import devices as device_list
from nnbridge.devices.checks import description_fault
from nnbridge.devices.device import Device, PreparedModel, PrepareModelConfig, deadline_after
from nnbridge.errors import BadDataError, BadStateError, NnapiError, Reason, UnexpectedNullError
from nnbridge.extensions import host_operation
from nnbridge.model import Model, Operation, Subgraph, known
from nnbridge.runtime.caching import CacheRecord, prepare_cached
from nnbridge.runtime.driver_calls import prepared_by
from nnbridge.runtime.feature_level_slices import Slices
from nnbridge.runtime.partition_limits import limit_partitions
from nnbridge.runtime.partitioner import Partition, Step, check_step, make_steps
from nnbridge.runtime.placement import Placement, ask, place
from nnbridge.types import (
    BYTE_SIZE_OF_CACHE_TOKEN,
    FeatureLevel,
    OperationCode,
    PreferenceCode,
    PriorityCode,
    ResultCode,
    is_extension,
)

LEAST_ALIGNMENT = 16
"""Alignment of an input or output that no step uses."""
ALIGNMENT = 64
"""Alignment that devices prefer (fact D18)."""


LOG = logging.getLogger("nnbridge.devices")


class PartitioningMode(IntEnum):
    """What Android's property ``debug.nn.partition`` chooses."""

    NO = 0
    """Everything on the CPU; no device is asked."""
    WITH_FALLBACK = 1
    """Partition; if anything fails, the whole model goes to the CPU."""
    WITHOUT_FALLBACK = 2
    """Partition; failures are final. Always so for an explicit list of devices."""


@dataclass(frozen=True)
class Interpreter:
    """Who runs control flow that no device takes: the runtime itself (``NNAPI`` in Android's log)."""

    name: str = "NNAPI"
    kind: str = "runtime"


INTERPRETER = Interpreter()


@dataclass(frozen=True)
class Plan:
    """What a compilation decided. ``placements`` tell what was wanted of the main subgraph, ``partition`` what will run."""

    devices: tuple[Device, ...]
    placements: tuple[Placement, ...]
    partition: Partition
    prepared: tuple[PreparedModel, ...]
    """Each execution step's prepared model."""
    fallback: Reason | None = None
    """Why the whole model was moved to the CPU, if it was."""
    cache: tuple[CacheRecord, ...] = ()
    """What the compilation cache did for each step, if the client asked for one."""

    @property
    def steps(self) -> tuple[Step, ...]:
        """The execution steps, those of bodies of interpreted control flow among them."""
        return self.partition.steps

    @cached_property
    def has_dynamic_temporaries(self) -> bool:
        """True if a tensor of open size goes from step to step (facts P32, E54)."""
        crossing = (step.model.main.operands[i] for step in self.steps for i in step.crossing)
        return any(operand.is_tensor and not known(operand.dims) for operand in crossing)

    @property
    def has_fences(self) -> bool:
        """True if a driver takes part that knows fences, as those of feature level 4 on do (fact E57)."""
        devices = (self.devices[step.device] for step in self.steps)
        return any(device.kind == "device" and device.level >= FeatureLevel.LEVEL_4 for device in devices)

    @property
    def simple(self) -> bool:
        """True if one device runs the model as it is."""
        return len(self.partition.program) == 1

    def placed(self) -> Iterator[tuple[int, Placement]]:
        """Source and placement of every operation: the main subgraph's as they were wanted, then those of bodies."""
        yield from ((0, placement) for placement in self.placements)
        for number, source in enumerate(self.partition.sources[1:], 1):
            yield from ((number, placement) for placement in source.placements)

    def device_of(self, operation: int, source: int = 0) -> Device | Interpreter:
        """Who runs an operation of the main subgraph, or of another source."""
        home = self.partition.homes.get((source, operation))
        return INTERPRETER if home is None else self.devices[home]


@dataclass(frozen=True)
class Share:
    """What a driver that was offered a model got of it."""

    device: str
    operations: int
    of: int
    """Operations of the whole model, bodies that the runtime interprets included."""
    wrong_answer: str = ""
    """What it gave or raised instead of an answer to ``getSupportedOperations``."""

    def __str__(self) -> str:
        wrong = f"; its answer to getSupportedOperations was wrong: {self.wrong_answer}" if self.wrong_answer else ""
        return f"{self.device} took {self.operations} of {self.of} operation{'' if self.of == 1 else 's'}{wrong}"


class Compilation:
    """``ANeuralNetworksCompilation``: set preference and priority, then :meth:`finish`.

    Make one with :meth:`create` (all given drivers and the CPU, with fallback) or :meth:`create_for_devices` (exactly these
    devices, no fallback). The host is added by itself wherever a model holds operations of a host extension.
    """

    def __init__(self, model: Model, devices: Sequence[Device], mode: PartitioningMode, explicit: bool) -> None:
        if model is None:
            raise UnexpectedNullError("a compilation needs a model")
        self.model = model
        self.explicit = explicit
        self.mode = mode
        self.preference: int = PreferenceCode.FAST_SINGLE_ANSWER
        self.priority: int = PriorityCode.MEDIUM
        self.caching: tuple[Path, bytes] | None = None
        """Directory and token of :meth:`set_caching`."""
        self._timeout: int | None = None
        self._hints: list[tuple[str, int, bytes]] = []
        self._cache: list[CacheRecord] = []
        self.max_partitions = 0
        """Limit of :meth:`set_max_partitions`; 0 for none."""
        self._devices = tuple(devices)
        self._plan: Plan | None = None
        self._finished = False

    @classmethod
    def create(
        cls,
        model: Model,
        drivers: Sequence[Device] | None = None,
        mode: PartitioningMode = PartitioningMode.WITH_FALLBACK,
    ) -> Compilation:
        """``Compilation_create``: the drivers (default: every installed one), then the CPU.

        A CPU or host among ``drivers`` is not listed twice. A driver that describes itself wrongly is not listed at all.
        """
        chosen = [d for d in (device_list.drivers() if drivers is None else drivers) if d.kind == "device" and _listed(d)]
        cpu = next((d for d in drivers or () if d.kind == "cpu"), device_list.cpu())
        return cls(model, _with_host(model, [*chosen, cpu]), mode, explicit=False)

    @classmethod
    def create_for_devices(cls, model: Model, devices: Sequence[Device]) -> Compilation:
        """``Compilation_createForDevices``: BAD_DATA for an empty list, a device twice or one that describes itself wrongly."""
        _check_list(devices, "createForDevices")
        fault = next((fault for device in devices if (fault := description_fault(device))), None)
        if fault is not None:
            raise BadDataError(fault)
        return cls(model, _with_host(model, devices), PartitioningMode.WITHOUT_FALLBACK, explicit=True)

    def set_preference(self, preference: int) -> None:
        """``setPreference``: 0 LOW_POWER, 1 FAST_SINGLE_ANSWER (default), 2 SUSTAINED_SPEED; BAD_DATA above."""
        self._require_open("setPreference")
        if preference > PreferenceCode.SUSTAINED_SPEED:
            raise BadDataError(Reason("a preference of 0 to 2", str(preference), "setPreference"))
        self.preference = preference

    def set_priority(self, priority: int) -> None:
        """``setPriority``: 90, 100 (default) or 110 (feature level 4)."""
        self._require_open("setPriority")
        if priority not in tuple(PriorityCode):
            raise BadDataError(Reason("a priority of 90, 100 or 110", str(priority), "setPriority"))
        self.priority = priority

    def set_max_partitions(self, limit: int) -> None:
        """Limit on the partitions that go to drivers, as TFLite's NNAPI delegate has it; 0 for none, the default.

        What is given up goes to the CPU. BAD_DATA for a negative limit, and without the CPU among the devices. TFLite's own
        default is :data:`nnbridge.runtime.partition_limits.TFLITE_DEFAULT`.
        """
        self._require_open("set_max_partitions")
        if limit < 0:
            raise BadDataError(Reason("a limit of at least 0", str(limit), "set_max_partitions"))
        if limit and not any(device.kind == "cpu" for device in self._devices):
            names = ", ".join(device.name for device in self._devices)
            raise BadDataError(Reason("the CPU among the devices, for what is not delegated", names, "set_max_partitions"))
        self.max_partitions = limit

    def set_timeout(self, nanoseconds: int) -> None:
        """``setTimeout``: only with an explicit list of one device; 0 for none (feature level 4)."""
        self._require_open("setTimeout")
        if not self.explicit_single:
            raise BadDataError(Reason("a compilation for exactly one device", operation="setTimeout"))
        self._timeout = nanoseconds or None

    def set_caching(self, directory: str | Path, token: bytes) -> None:
        """``setCaching``: a directory and 32 bytes that stand for the model (feature level 3).

        What a device compiles is kept there if the device says that it has files to cache (``caching:NAME`` does). Nothing is
        touched before finish, and what goes wrong there is noted in the plan's ``cache``, never raised (facts C8, C16 to C21).
        """
        self._require_open("setCaching")
        if directory is None or token is None:
            raise UnexpectedNullError(Reason("a directory and a token", "None", "setCaching"))
        if len(token) != BYTE_SIZE_OF_CACHE_TOKEN:
            raise BadDataError(Reason(f"a token of {BYTE_SIZE_OF_CACHE_TOKEN} bytes", str(len(token)), "setCaching"))
        self.caching = (Path(directory), bytes(token))

    def add_extension_attribute(self, name: str, number: int, value: bytes) -> None:
        """``addExtensionAttribute``: a hint for the driver (fact C7; feature level 8).

        Only with an explicit list of one device; BAD_DATA for an attribute that is given twice. No device needs to know it.
        """
        call = "addExtensionAttribute"
        self._require_open(call)
        if not self.explicit_single:
            raise BadDataError(Reason("a compilation for exactly one device", operation=call))
        self._hints.append(attribute(self._hints, name, number, value, call))

    def finish(self) -> Plan:
        """``finish``: ask the devices, partition, prepare.

        UNEXPECTED_NULL and BAD_DATA are final; after any other error the whole model goes to the CPU if the mode allows
        it and the model holds nothing that the CPU cannot run (facts C10 to C15).
        """
        self._require_open("finish")
        self._finished = True
        deadline = deadline_after(self._timeout)
        if self.mode is PartitioningMode.NO:
            self._plan = self._on_cpu(Reason("partitioning is switched off"), (), deadline)
            return self._plan
        placements: tuple[Placement, ...] = ()
        try:
            placements = place(self.model, self._devices, self.preference)
            placements = limit_partitions(self.model.main, placements, self._devices, self.max_partitions)
            found = make_steps(self.model, placements, self._devices, self.preference)
            prepared = self._prepare_all(found, deadline)
            self._plan = Plan(self._devices, placements, found, prepared, cache=tuple(self._cache))
        except NnapiError as error:
            final = error.code in (ResultCode.UNEXPECTED_NULL, ResultCode.BAD_DATA)
            if final or self.mode is not PartitioningMode.WITH_FALLBACK or not self.has_fallback:
                raise
            self._plan = replace(self._on_cpu(error.reason, placements, deadline), cache=tuple(self._cache))
        return self._plan

    @property
    def plan(self) -> Plan:
        """The plan; BAD_STATE before a successful finish."""
        if self._plan is None:
            raise BadStateError(Reason("a compilation that finished", "one that did not"))
        return self._plan

    def shares(self) -> tuple[Share, ...]:
        """What each driver that was offered the model got of it, none where everything fell back to the CPU."""
        placed = list(self.plan.placed())
        homes = Counter(id(self.plan.device_of(placement.operation, source)) for source, placement in placed)
        answers = [answer for _, placement in placed for answer in placement.answers if answer.wrong]
        wrong = {answer.device: answer.reason.found for answer in answers if answer.reason}
        drivers = (device for device in self._devices if device.kind == "device")
        return tuple(Share(d.name, homes[id(d)], len(placed), wrong.get(d.name, "")) for d in drivers)

    @property
    def is_ready(self) -> bool:
        """True after a finish that succeeded."""
        return self._plan is not None

    @property
    def explicit_single(self) -> bool:
        """True for an explicit list of one device, the host apart."""
        return self.explicit and len([d for d in self._devices if d.kind != "host"]) == 1

    def preferred_alignment(self, direction: str, index: int) -> int:
        """``getPreferredMemoryAlignmentForInput`` and ``…Output``, in bytes (facts C22, C23; feature level 5)."""
        return max([LEAST_ALIGNMENT, *(ALIGNMENT for _ in self._users(direction, index))])

    def preferred_padding(self, direction: str, index: int) -> int:
        """``getPreferredMemoryPaddingForInput`` and ``…Output``, in bytes (facts D18, C23)."""
        return max([1, *(_padding_of(device) for device in self._users(direction, index))])

    def _users(self, direction: str, index: int) -> list[Device]:
        """The devices of the steps that read an input or write an output."""
        plan, main = self.plan, self.model.main
        operands = main.inputs if direction == "input" else main.outputs
        if not 0 <= index < len(operands):
            raise BadDataError(Reason(f"an index below {len(operands)}", str(index), f"getPreferredMemory ({direction})"))
        return [plan.devices[plan.steps[role.step].device] for role in plan.partition.roles((0, operands[index]))]

    @property
    def _cpu(self) -> Device:
        """The CPU of the list, else NNAPI's."""
        return next((device for device in self._devices if device.kind == "cpu"), device_list.cpu())

    @cached_property
    def has_fallback(self) -> bool:
        """True if the CPU, with the host's help, can run the whole model (facts C13, X16)."""
        beyond = (o for o in _operations(self.model.subgraphs()) if is_extension(o.type) or o.type == OperationCode.OEM_OPERATION)
        return all(_host_runs(self.model, operation) for operation in beyond)

    @property
    def allows_fallback(self) -> bool:
        """True if a failing execution may be repeated on the CPU."""
        return not self.explicit and self.mode is PartitioningMode.WITH_FALLBACK and self.has_fallback

    def cpu_plan(self) -> Plan:
        """The whole model on the CPU, as a failing execution falls back to it."""
        return self._on_cpu(Reason("an execution failed on a device"), (), None)

    def prepare_on_cpu(self, step: Step) -> PreparedModel:
        """One step on the CPU, as a failing step falls back to it (facts R17, R21)."""
        return self._cpu.prepare_model(step.model)

    def _on_cpu(self, why: Reason, placements: tuple[Placement, ...], deadline: int | None) -> Plan:
        """The whole model on the CPU as it is, control flow included; operations of the host on the host."""
        devices = _with_host(self.model, [self._cpu])
        # The CPU cannot run what belongs to the host in the bodies of control flow.
        interpret = any(_host_runs(self.model, o) for o in _operations(self.model.referenced))
        on_cpu = place(self.model, devices, self.preference, interpret=interpret)
        found = make_steps(self.model, on_cpu, devices, self.preference)
        prepared = tuple(devices[s.device].prepare_model(s.model, self.preference, self.priority, deadline) for s in found.steps)
        return Plan(devices, placements or on_cpu, found, prepared, why)

    def _prepare_all(self, found: Partition, deadline: int | None) -> tuple[PreparedModel, ...]:
        """Every step in order; only a simple plan's device is told the deadline (facts C29, P29, P31, P33)."""
        if len(found.program) == 1:
            return (self._prepare(found.steps[0], deadline),)
        prepared = []
        for step in found.steps:
            check_step(step, self._devices)
            prepared.append(self._prepare(step, None))
        return tuple(prepared)

    def _prepare(self, step: Step, deadline: int | None) -> PreparedModel:
        device = self._devices[step.device]
        hints = tuple(self._hints) if step.model is self.model else ()
        config = PrepareModelConfig(self.preference, self.priority, deadline, hints=hints)
        if device.kind != "device":
            return self._prepared(device, step, config)
        return prepared_by(device, lambda: self._prepared(device, step, config))

    def _prepared(self, device: Device, step: Step, config: PrepareModelConfig) -> PreparedModel:
        """On a driver, from the cache or into it if the client has given one; the CPU and the host never cache."""
        if self.caching is None or device.kind != "device":
            return device.prepare_model_with_config(step.model, config)
        operations = () if step.model is self.model else [(step.source, i) for i in step.operations]
        prepared, record = prepare_cached(device, step.model, config, *self.caching, operations)
        self._cache.append(record)
        return prepared

    def _require_open(self, call: str) -> None:
        if self._finished:
            raise BadStateError(Reason("a compilation that is not finished", "finished", call))


def _listed(device: Device) -> bool:
    fault = description_fault(device)
    if fault is not None:
        LOG.warning("not listed: %s", fault)
    return fault is None


def attribute(given: Sequence[tuple[str, int, bytes]], name: str, number: int, value: bytes, call: str) -> tuple[str, int, bytes]:
    """An extension attribute; BAD_DATA if it is among the given ones already (fact C7)."""
    if not 0 <= number < 1 << 16:
        raise BadDataError(Reason("a number of 16 bits within the extension", str(number), call, name))
    if any((name, number) == known[:2] for known in given):
        raise BadDataError(Reason("each attribute once", f"{name}#{number}", call))
    return name, number, bytes(value)


def _operations(subgraphs: Sequence[Subgraph]) -> Iterator[Operation]:
    return (operation for subgraph in subgraphs for operation in subgraph.operations)


def _host_runs(model: Model, operation: Operation) -> bool:
    return is_extension(operation.type) and not isinstance(host_operation(model, operation), Reason)


def _padding_of(device: Device) -> int:
    """64 bytes for the CPU and for drivers of feature level 5 on, 1 for older ones (fact D18)."""
    return 64 if device.kind != "device" or device.feature_level >= FeatureLevel.LEVEL_5 else 1


def supported_operations(model: Model, devices: Sequence[Device]) -> list[bool]:
    """``getSupportedOperationsForDevices``: for each operation of the main subgraph, whether one of the devices takes it.

    BAD_DATA for an empty list or a device named twice, UNEXPECTED_NULL for None.
    """
    _check_list(devices, "getSupportedOperationsForDevices")
    slices = Slices(model)
    answers = [ask(device, model, slices) for device in devices]
    return [None in said for said in zip(*answers, strict=True)]


def _check_list(devices: Sequence[Device | None], call: str) -> None:
    if not devices:
        raise BadDataError(Reason("at least one device", "none", call))
    if any(device is None for device in devices):
        raise UnexpectedNullError(Reason("devices", "None", call))
    if len({id(device) for device in devices}) != len(devices):
        raise BadDataError(Reason("each device once", ", ".join(d.name for d in devices if d is not None), call))


def _with_host(model: Model, devices: Sequence[Device]) -> tuple[Device, ...]:
    """The devices, and the host behind them if the model, or a body of its control flow, needs it."""
    kept = [d for d in devices if d.kind != "host"]
    needed = any(_host_runs(model, operation) for operation in _operations(model.subgraphs()))
    return (*kept, device_list.host()) if needed else tuple(kept)
