"""Decisions of ONNX Runtime's NNAPI provider about a session's graph: devices, nodes, partitions, compilations."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from typing import Any

import numpy as np

from nnbridge import devices as device_list
from nnbridge.converters import converters
from nnbridge.converters.partitions import partitions
from nnbridge.converters.runtime_graph import Claims, RuntimeGraph, RuntimePart
from nnbridge.devices.device import Device
from nnbridge.errors import BadDataError, ConversionError, InputError, OpFailedError, Reason, Stage
from nnbridge.extensions import host_operation
from nnbridge.json_data import document, json_text
from nnbridge.model import Array
from nnbridge.ndk.core import TRACE, traced
from nnbridge.ndk.device_functions import devices_of_process, partitioning_mode
from nnbridge.plan_data import plan_as_dict
from nnbridge.provider.interface import INFO, WARNING
from nnbridge.provider.options import ProviderOptions
from nnbridge.records import dataclass
from nnbridge.runtime.compilation import Compilation, supported_operations
from nnbridge.runtime.execution import Execution
from nnbridge.storage.atomic import atomic_write
from nnbridge.types import RUNTIME_FEATURE_LEVEL

Log = Callable[[int, str], None]
LOCAL: dict[str, Device] = {}
"""Devices of this process by the names that :func:`nnbridge.provider.session_options` passed."""
_KINDS = {"device": 4, "cpu": 1}
"""Android's numbers for an accelerator of unknown kind, as ONNX Runtime prints them, and for the CPU."""


@dataclass(frozen=True, eq=False)
class ProviderPartition:
    """Nodes of a graph that run as one, by number, and their model."""

    nodes: frozenset[int]
    part: RuntimePart | None
    """None where the model cannot be built, or run."""
    writes: frozenset[str]
    """The values that the nodes write."""
    fails: Reason | None = None
    """Why it cannot."""


@dataclass(frozen=True)
class FailingKernel:
    """A partition whose model NNAPI builds and cannot run."""

    fails: Reason

    def compute(self, read: Callable[[int], Array]) -> list[Array]:
        """OP_FAILED, as each run on a phone."""
        raise OpFailedError(self.fails)


@dataclass
class ProviderKernel:
    """A partition, compiled."""

    part: RuntimePart
    compilation: Compilation
    inputs: tuple[int, ...]
    """For each of the model's inputs, which of ONNX Runtime's it is."""
    outputs: tuple[str, ...]
    """The values that ONNX Runtime asks for, in its order."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def compute(self, read: Callable[[int], Array]) -> list[Array]:
        """The outputs, for inputs that ``read`` returns by their positions."""
        arrays = [read(i) for i in self.inputs]
        operands = self.compilation.model.main.operands
        for array, i in zip(arrays, self.compilation.model.main.inputs, strict=True):
            if 0 not in operands[i].dims and (array.shape or (1,)) != operands[i].dims:
                rule = f"the input dimensions of the model, {list(operands[i].dims)}"
                raise InputError(Reason(rule, str(list(array.shape)), operand=operands[i].name))
        # As in Android's provider, a model runs once at a time.
        with self._lock:
            execution = Execution(self.compilation)
            ready = [array.reshape(array.shape or (1,)) for array in arrays]
            answers = traced("Execution_compute", lambda: execution.run(ready))
        computed = dict(zip(self.part.outputs, answers.values(), strict=True))
        return [self._result(name, computed) for name in self.outputs]

    def _result(self, name: str, computed: Mapping[str, Array]) -> Array:
        if name in self.part.constants:
            return self.part.constants[name]
        dtype, scalar = self.part.results[name]
        array = computed[name].astype(dtype, copy=False)
        return array.reshape(()) if scalar else np.ascontiguousarray(array)


@dataclass
class ProviderSession:
    """The provider of one session."""

    name: str
    options: ProviderOptions
    log: Log
    target: tuple[Device, ...]
    """The devices that a model may run on."""
    partitions: list[ProviderPartition] = field(default_factory=list)
    """What was claimed and is not compiled yet."""
    plans: list[dict[str, Any]] = field(default_factory=list)

    @classmethod
    def of(cls, name: str, options: ProviderOptions, log: Log) -> ProviderSession:
        """Find the devices. InputError for a name that no device has, and where the flags leave none."""
        named = tuple(LOCAL.get(n) or device_list.device(n) for n in options.nnbridge_devices)
        drivers = tuple(device for device in named if device.kind == "device")
        listed = (*drivers, device_list.cpu()) if named else tuple(device for _, device in devices_of_process())
        kinds = {"cpu"} if options.cpu_only else {"device"} if options.cpu_disabled else {"cpu", "device"}
        target = tuple(device for device in listed if device.kind in kinds)
        if not target:
            raise InputError(Reason("a device besides NNAPI's CPU for cpu_disabled", "none", operand="provider options"))
        return cls(name, options, log, target)

    @property
    def level(self) -> int:
        """The feature level that decides about nodes: the highest of the target devices'."""
        levels = [int(device.level) if device.kind == "device" else int(RUNTIME_FEATURE_LEVEL) for device in self.target]
        return min(max(levels), int(RUNTIME_FEATURE_LEVEL))

    def claim(self, graph: RuntimeGraph) -> list[ProviderPartition]:
        """The partitions that NNAPI gets; none, with a warning, of a graph that the importer refuses."""
        reader = next(c.runtime_graph for c in converters() if c.runtime_graph is not None)
        try:
            found = reader(graph, self.level, self.options.use_nchw, self.options.stops)
        except (ConversionError, InputError) as error:
            self.log(WARNING, f"{self.name}: nothing is handed to NNAPI: {error}")
            return []
        groups = partitions(graph.nodes, found.claimed, found.claimed - found.supported, found.units)
        chosen = [partition for group in groups if (partition := self._partition(graph, found, group)) is not None]
        count = sum(len(partition.nodes & found.supported) for partition in chosen)
        self.log(
            WARNING if len(chosen) > 1 else INFO,
            f"{self.name}::GetCapability, number of partitions supported by NNAPI: {len(chosen)} "
            f"number of nodes in the graph: {len(graph.nodes)} number of nodes supported by NNAPI: {count}",
        )
        self.partitions = chosen
        return chosen

    def _partition(self, graph: RuntimeGraph, found: Claims, nodes: frozenset[int]) -> ProviderPartition | None:
        if not nodes & found.supported:
            return None
        writes = frozenset(name for i in nodes for name in graph.nodes[i].outputs if name)
        fails = next((found.failing[i] for i in sorted(nodes) if i in found.failing), None)
        if fails is not None:
            return ProviderPartition(nodes, None, writes, fails)
        try:
            part = found.part(nodes)
        except ConversionError as error:
            self.log(WARNING, f"{self.name}: nodes {sorted(nodes)} stay with ONNX Runtime: {error}")
            return None
        if self.options.use_fp16:
            part = replace(part, model=replace(part.model, relaxed=True))
        return ProviderPartition(nodes, part, writes)

    def compile(self, inputs: Sequence[str], outputs: Sequence[str]) -> ProviderKernel | FailingKernel:
        """Compile the partition that has these outputs. NnapiError where NNAPI fails, as in Android's provider."""
        found = next((p for p in self.partitions if {*outputs} <= p.writes), None)
        if found is None:
            raise InputError(Reason("a partition that was claimed", f"one with the outputs {', '.join(outputs)}"))
        part = found.part
        if part is None:
            assert found.fails is not None
            if found.fails.stage is not Stage.RUNNING:
                raise BadDataError(found.fails)
            self.partitions.remove(found)
            return FailingKernel(found.fails)
        missing = [name for name in part.inputs if name not in inputs]
        if missing:
            raise InputError(Reason("inputs of the partition", f"none named {', '.join(missing)}"))
        compilation = self._compiled(part)
        self.partitions.remove(found)
        self.plans.append({"nodes": sorted(found.nodes), "plan": plan_as_dict(compilation)})
        return ProviderKernel(part, compilation, tuple(map(list(inputs).index, part.inputs)), tuple(outputs))

    def _compiled(self, part: RuntimePart) -> Compilation:
        model = part.model
        if TRACE is not None:
            traced("Model_finish", lambda: None, saved=lambda: TRACE.model(model) if TRACE is not None else "")
        if self.options.cpu_only or self.options.cpu_disabled:
            answers = traced("Model_getSupportedOperationsForDevices", lambda: supported_operations(model, self.target))
            pairs = zip(model.main.operations, answers, strict=True)
            # What the host computes beside a partition is no question to devices.
            refused = [o for o, fine in pairs if not fine and isinstance(host_operation(model, o), Reason)]
            if refused:
                names = ", ".join(f"[Name: [{d.name}], Type [{_KINDS[d.kind]}]]" for d in self.target)
                found = refused[0].name or refused[0].type
                raise OpFailedError(f"The model cannot run using current set of target devices, {names}: {found} is refused")
            compilation = Compilation.create_for_devices(model, self.target)
        else:
            compilation = Compilation.create(model, self.target, partitioning_mode())
        traced("Compilation_finish", compilation.finish, plan=lambda: TRACE.plan(compilation) if TRACE is not None else [])
        return compilation

    def write_plans(self) -> None:
        """Write the plans of all partitions so far, as ``nnbridge_plan`` asks."""
        if self.options.nnbridge_plan is None:
            return
        with atomic_write(self.options.nnbridge_plan, 0o644) as file:
            file.write(json_text(document("provider-plans", {"partitions": self.plans}), indent=2).encode() + b"\n")
