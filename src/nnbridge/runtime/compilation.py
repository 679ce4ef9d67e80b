"""Compilation: a model and a list of devices become a plan whose steps are prepared."""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from enum import IntEnum
from functools import cached_property
from pathlib import Path

from nnbridge import devices as device_list
from nnbridge.cpu import settings
from nnbridge.devices.checks import description_fault
from nnbridge.devices.device import Device, PreparedModel, PrepareModelConfig, deadline_after
from nnbridge.errors import BadDataError, BadStateError, NnapiError, NnbridgeError, Reason, RefusalError, UnexpectedNullError
from nnbridge.extensions import host_operation
from nnbridge.model import Model, Operation, Subgraph
from nnbridge.runtime.caching import CacheRecord, prepare_cached
from nnbridge.runtime.driver_calls import called, prepared_by
from nnbridge.runtime.feature_level_slices import Slices
from nnbridge.runtime.partition_limits import limit_partitions
from nnbridge.runtime.partitioner import ExecutionStep, Partition, check_step, make_steps
from nnbridge.runtime.placement import Placement, ask, place
from nnbridge.runtime.plan import ALIGNMENT, LEAST_ALIGNMENT, Plan, Share
from nnbridge.runtime.repeated import RepeatedRuns
from nnbridge.types import (
    BYTE_SIZE_OF_CACHE_TOKEN,
    FeatureLevel,
    OperationCode,
    PreferenceCode,
    PriorityCode,
    ResultCode,
    is_extension,
)

LOG = logging.getLogger("nnbridge.devices")
_MOST_RESOLVED = 4
"""Combinations of input dimensions that a compilation stays prepared for, each with packed weights."""


class PartitioningMode(IntEnum):
    """The choices of Android's property ``debug.nn.partition``."""

    NO = 0
    """Everything on the CPU; no device is asked."""
    WITH_FALLBACK = 1
    """Partition; if anything fails, the whole model goes to the CPU."""
    WITHOUT_FALLBACK = 2
    """Partition; failures are final. Always so for an explicit list of devices."""


class Compilation:
    """``ANeuralNetworksCompilation``: set preference and priority, then :meth:`finish`.

    Use :meth:`create` (all drivers of a list and the CPU, with fallback) or :meth:`create_for_devices` (exactly these
    devices, no fallback). The host is added by itself wherever a model holds operations of a host extension:
    the one among the devices (:func:`nnbridge.engines.host_for`), else nnbridge's own.

    ``kernels`` and ``threads`` say how devices that compute with nnbridge's CPU executor do: with ``auto``, ``reference`` or
    ``compiled`` kernels (default: the environment's ``NNBRIDGE_KERNELS``, else auto), on so many threads (1).
    """

    def __init__(
        self,
        model: Model,
        devices: Sequence[Device],
        mode: PartitioningMode,
        explicit: bool,
        kernels: str | None = None,
        threads: int | None = None,
    ) -> None:
        if model is None:
            raise UnexpectedNullError("a compilation needs a model")
        in_force = settings.current()
        self.settings = settings.Settings(
            in_force.kernels if kernels is None else kernels, in_force.threads if threads is None else threads
        )
        """Kernels and threads."""
        self._limits_blas = threads is not None
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
        self.placements: tuple[Placement, ...] = ()
        """What every device answered to :meth:`finish`, after one that failed as well."""
        self.not_run: NnbridgeError | None = None
        """Why the app never comes to run the model, if that is so; raised where an execution begins."""
        self.refused: Collection[int] = ()
        """Operators of the file's main graph that drivers were asked about before, and that stay with the app since."""
        self._finished = False
        self._falling_back = threading.Lock()
        self._cpu_plan: Plan | None = None
        self._cpu_steps: dict[int, PreparedModel] = {}
        self._resolved: dict[tuple[tuple[int, ...], ...], Compilation | None] = {}

    @classmethod
    def create(
        cls,
        model: Model,
        drivers: Sequence[Device | str] | None = None,
        mode: PartitioningMode = PartitioningMode.WITH_FALLBACK,
        *,
        kernels: str | None = None,
        threads: int | None = None,
    ) -> Compilation:
        """``Compilation_create``: the drivers or their names (default: every installed one), then the CPU.

        A CPU or host among ``drivers`` is not listed twice. A driver that describes itself wrongly is not listed at all.
        BAD_DATA for a driver twice.
        """
        requested = device_list.drivers() if drivers is None else [_device(d, "create") for d in _list(drivers, "create")]
        if requested:
            _check_list(requested, "create")
        chosen = [d for d in requested if d.kind == "device" and _listed(d)]
        cpu = next((d for d in requested if d.kind == "cpu"), device_list.cpu())
        hosts = [d for d in requested if d.kind == "host"]
        return cls(model, _with_host(model, [*chosen, cpu, *hosts]), mode, explicit=False, kernels=kernels, threads=threads)

    @classmethod
    def create_for_devices(
        cls, model: Model, devices: Sequence[Device | str], *, kernels: str | None = None, threads: int | None = None
    ) -> Compilation:
        """``Compilation_createForDevices``: BAD_DATA for an empty list, a device twice or one that describes itself wrongly."""
        requested = [_device(d, "createForDevices") for d in _list(devices, "createForDevices")]
        _check_list(requested, "createForDevices")
        fault = next((fault for device in requested if (fault := description_fault(device))), None)
        if fault is not None:
            raise BadDataError(fault)
        mode = PartitioningMode.WITHOUT_FALLBACK
        return cls(model, _with_host(model, requested), mode, explicit=True, kernels=kernels, threads=threads)

    @property
    def threads(self) -> int:
        """Threads that each execution computes on, on devices that use nnbridge's CPU executor; answers do not depend on it.

        Stated before finish it holds for NumPy's BLAS too, in the whole process, so that both do not use every core at a time.
        """
        return self.settings.threads

    @threads.setter
    def threads(self, count: int) -> None:
        self._require_open("threads")
        self.settings = replace(self.settings, threads=count)
        self._limits_blas = True

    @property
    def kernels(self) -> str:
        """``auto``, ``reference`` or ``compiled``."""
        return self.settings.kernels

    @kernels.setter
    def kernels(self, choice: str) -> None:
        self._require_open("kernels")
        self.settings = replace(self.settings, kernels=choice)

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

        The other partitions go to the CPU. BAD_DATA for a negative limit, and without the CPU among the devices. TFLite's own
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

        What a device compiles is stored there if the device has files to cache (``caching:NAME`` does). Nothing is
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

        Only with an explicit list of one device; BAD_DATA for an attribute that is added twice. No device needs to know it.
        """
        call = "addExtensionAttribute"
        self._require_open(call)
        if not self.explicit_single:
            raise BadDataError(Reason("a compilation for exactly one device", operation=call))
        self._hints.append(attribute(self._hints, name, number, value, call))

    def finish(self, *, prepare: bool = True) -> Plan:
        """``finish``: ask the devices, partition, prepare; without ``prepare`` the plan can be looked at, and not run.

        UNEXPECTED_NULL and BAD_DATA are final; after any other error the whole model goes to the CPU if the mode allows
        it and the model holds nothing that the CPU cannot run (facts C10 to C15).
        """
        self._require_open("finish")
        self._finished = True
        deadline = deadline_after(self._timeout)
        if self._limits_blas:
            settings.limit_blas(self.threads)
        if self.mode is PartitioningMode.NO:
            self._plan = self._on_cpu(Reason("partitioning is switched off"), (), deadline)
            return self._plan
        placements: tuple[Placement, ...] = ()
        try:
            self.placements = placements = place(self.model, self._devices, self.preference)
            placements = limit_partitions(self.model.main, placements, self._devices, self.max_partitions)
            found = make_steps(self.model, placements, self._devices, self.preference)
            with settings.preparing(self.settings):
                prepared = self._prepare_all(found, deadline, prepare)
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

    @property
    def prepared_plan(self) -> Plan:
        """The plan for executions; BAD_STATE before a successful finish that prepared its steps, :attr:`not_run` if it is set."""
        if self.not_run is not None:
            raise self.not_run
        if not self.is_ready:
            raise BadStateError(Reason("a compilation that finished and prepared its steps", "one that did not"))
        return self.plan

    @property
    def devices(self) -> tuple[Device, ...]:
        """The devices that the model is offered to, the CPU and the host among them."""
        return self._devices

    def shares(self) -> tuple[Share, ...]:
        """The share of the model of each driver that was offered it, none where everything fell back to the CPU."""
        return self.plan.shares(self._devices, self.refused)

    @property
    def is_ready(self) -> bool:
        """True after a finish that succeeded and prepared every step."""
        return self._plan is not None and len(self._plan.prepared) == len(self._plan.steps)

    def at(self, dims: Sequence[tuple[int, ...]]) -> Compilation:
        """The compilation that computes inputs of these dimensions: of the model with known dimensions where it has open ones.

        It is prepared once and kept, the last few of them. Only what nnbridge's own kernels compute is resolved: a device's
        steps are those of the plan, and a runtime that is the host knows its dimensions itself.
        """
        plan = self.plan
        if self.model.resolution is None or not plan.computed_here:
            return self
        with self._falling_back:
            key = tuple(dims)
            found = self._resolved.pop(key) if key in self._resolved else self._resolve(key)
            self._resolved[key] = found
            while len(self._resolved) > _MOST_RESOLVED:
                del self._resolved[next(iter(self._resolved))]
        return found or self

    def _resolve(self, dims: tuple[tuple[int, ...], ...]) -> Compilation | None:
        """The compilation for these dimensions, None where the model cannot have them: a run says why."""
        try:
            model = self.model.resolved(dims)
            if model is None:
                return None
            devices = _with_host(model, [device for device in self._devices if device.kind != "device"])
            found = Compilation(model, devices, self.mode, self.explicit, self.settings.kernels, self.settings.threads)
            found.finish()
        except RefusalError as error:
            LOG.info("computed without known dimensions: %s", error)
            return None
        return found

    @cached_property
    def repeated(self) -> RepeatedRuns:
        """The bound run that :meth:`Execution.run` repeats."""
        return RepeatedRuns(self.model)

    @cached_property
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
        """The whole model on the CPU, as a failing execution falls back to it; prepared once."""
        with self._falling_back:
            if self._cpu_plan is None:
                self._cpu_plan = self._on_cpu(Reason("an execution failed on a device"), (), None)
            return self._cpu_plan

    def prepare_on_cpu(self, step: ExecutionStep) -> PreparedModel:
        """One step of the plan on the CPU, as a failing step falls back to it (facts R17, R21); prepared once."""
        with self._falling_back:
            if step.number not in self._cpu_steps:
                with settings.preparing(self.settings):
                    self._cpu_steps[step.number] = self._cpu.prepare_model(step.model)
            return self._cpu_steps[step.number]

    def _on_cpu(self, why: Reason, placements: tuple[Placement, ...], deadline: int | None) -> Plan:
        """The whole model on the CPU as it is, control flow included; operations of the host on the host."""
        devices = _with_host(self.model, [self._cpu, *(d for d in self._devices if d.kind == "host")])
        # The CPU cannot run what belongs to the host in the bodies of control flow.
        interpret = any(_host_runs(self.model, o) for o in _operations(self.model.referenced))
        on_cpu = place(self.model, devices, self.preference, interpret=interpret)
        found = make_steps(self.model, on_cpu, devices, self.preference)
        asked = self.preference, self.priority, deadline
        with settings.preparing(self.settings):
            prepared = tuple(devices[step.device].prepare_model(step.model, *asked) for step in found.steps)
        return Plan(devices, placements or on_cpu, found, prepared, why)

    def _prepare_all(self, found: Partition, deadline: int | None, prepare: bool) -> tuple[PreparedModel, ...]:
        """Every step in order; only a simple plan's device gets the deadline (facts C29, P29, P31, P33)."""
        simple = len(found.program) == 1
        prepared = []
        for step in found.steps:
            if not simple:
                check_step(step, self._devices)
            if prepare:
                prepared.append(self._prepare(step, deadline if simple else None))
        return tuple(prepared)

    def _prepare(self, step: ExecutionStep, deadline: int | None) -> PreparedModel:
        device = self._devices[step.device]
        hints = tuple(self._hints) if step.model is self.model else ()
        config = PrepareModelConfig(self.preference, self.priority, deadline, hints=hints)
        if device.kind != "device":
            return called(lambda: device.prepare_model_with_config(step.model, config), "prepareModel", device.name)
        return prepared_by(device, lambda: self._prepared(device, step, config))

    def _prepared(self, device: Device, step: ExecutionStep, config: PrepareModelConfig) -> PreparedModel:
        """On a driver, from the cache or into it if the client uses one; the CPU and the host never cache."""
        if self.caching is None:
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


def attribute(added: Sequence[tuple[str, int, bytes]], name: str, number: int, value: bytes, call: str) -> tuple[str, int, bytes]:
    """An extension attribute; BAD_DATA if it was added before (fact C7)."""
    if not 0 <= number < 1 << 16:
        raise BadDataError(Reason("a number of 16 bits within the extension", str(number), call, name))
    if any((name, number) == known[:2] for known in added):
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
    """``getSupportedOperationsForDevices``: for each operation of the main subgraph, whether one of the devices supports it.

    BAD_DATA for an empty list or a device named twice, UNEXPECTED_NULL for None.
    """
    devices = [_device(device, "getSupportedOperationsForDevices") for device in devices]
    _check_list(devices, "getSupportedOperationsForDevices")
    slices = Slices(model)
    answers = [ask(device, model, slices) for device in devices]
    return [any(answer.supported for answer in of_operation) for of_operation in zip(*answers, strict=True)]


def _list(devices: Sequence[Device | str], call: str) -> Sequence[Device | str]:
    """BAD_DATA for a single device or name, whose letters would be taken for devices."""
    if isinstance(devices, (str, Device)):
        name = devices if isinstance(devices, str) else devices.name
        raise BadDataError(Reason("a list of devices or names, such as [device]", f"{name!r} without a list", call))
    return devices


def _device(device: object, call: str) -> Device:
    """A device, or the one of a name; UNEXPECTED_NULL for None."""
    if device is None:
        raise UnexpectedNullError(Reason("devices", "None", call))
    if isinstance(device, str):
        device = device_list.device(device)
    if not isinstance(device, Device):
        raise BadDataError(Reason("devices or their names", type(device).__name__, call))
    if device.before_nnapi:
        rule = (
            "a device that takes NNAPI operations; call nnbridge.plan(FILE, device=NAME) for one that looks at a file's operators"
        )
        raise BadDataError(Reason(rule, device.name, call))
    return device


def _check_list(devices: Sequence[Device], call: str) -> None:
    if not devices:
        raise BadDataError(Reason("at least one device", "none", call))
    if len({device.name for device in devices}) != len(devices):
        raise BadDataError(Reason("each device once", ", ".join(d.name for d in devices), call))


def _with_host(model: Model, devices: Sequence[Device]) -> tuple[Device, ...]:
    """The devices, and the host after them if the model, or a body of its control flow, needs it: theirs, else nnbridge's."""
    others = [d for d in devices if d.kind != "host"]
    host = next((d for d in devices if d.kind == "host"), None)
    needed = any(_host_runs(model, operation) for operation in _operations(model.subgraphs()))
    return (*others, host or device_list.host()) if needed else tuple(others)
