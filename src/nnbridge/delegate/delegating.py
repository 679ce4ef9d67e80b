"""Decisions of Android's NNAPI delegate about a graph: devices, nodes, partitions, compilations."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import field, replace
from typing import Any

from nnbridge import devices as device_list
from nnbridge.converters.delegation import (
    Decision,
    DelegateTarget,
    Dims,
    NodeGroup,
    Part,
    building_failure,
    decide,
    of_dims,
    stage_of,
)
from nnbridge.converters.inspection import Mapped
from nnbridge.converters.mapping import MappingKind
from nnbridge.delegate.interpreter import DELEGATED, InterpreterContext, OpenGraph
from nnbridge.delegate.kernel import DelegateKernel, compiled
from nnbridge.delegate.options import DelegateOptions
from nnbridge.devices.device import Device
from nnbridge.errors import BadDataError, ConversionError, InputError, NnapiError, Stage
from nnbridge.json_data import document, json_text
from nnbridge.log_lines.patterns import BY_NAME, DELEGATE_NAME
from nnbridge.model import Model
from nnbridge.ndk.core import traced
from nnbridge.ndk.device_functions import devices_of_process
from nnbridge.plan_data import plan_as_dict
from nnbridge.records import dataclass
from nnbridge.runtime.compilation import supported_operations
from nnbridge.storage.atomic import atomic_write
from nnbridge.types import RUNTIME_FEATURE_LEVEL

LOCAL: dict[str, Device] = {}
"""Devices of this process by the names that :func:`nnbridge.delegate.load` passed."""
Log = Callable[[str], None]


@dataclass
class DelegatePartition:
    """Nodes of an interpreter's graph that run as one."""

    graph: OpenGraph
    nodes: tuple[int, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    dims: Dims
    """The dimensions of all the file's tensors that it was decided for."""


@dataclass
class Delegate:
    """A delegate: options and devices, for any number of interpreters."""

    options: DelegateOptions
    log: Log
    target: tuple[Device, ...] = ()
    """The devices that are named, or all but the CPU; empty for all with fallback to the CPU."""
    listed: tuple[Device, ...] = ()
    """Every device that NNAPI lists, its CPU last."""
    useful: bool = True
    """False where NNAPI has no device but its CPU, and the CPU is not asked for: nothing is handed over then."""
    waiting: dict[int, list[tuple[DelegatePartition, DelegateKernel]]] = field(default_factory=dict)
    """Compiled partitions that TFLite has not created nodes for yet, by thread."""
    plans: list[dict[str, Any]] = field(default_factory=list)

    @classmethod
    def of(cls, options: DelegateOptions, log: Log) -> Delegate:
        """Find the devices. InputError for a name that no device has."""
        named = tuple(_device(name) for name in options.nnbridge_devices)
        found = (*(device for device in named if device.kind == "device"), device_list.cpu())
        listed = found if named else tuple(device for _, device in devices_of_process())
        drivers = tuple(device for device in listed if device.kind == "device")
        if bool(options.cache_dir) != bool(options.model_token):
            log("WARNING: cache_dir and model_token are used together only; nothing is cached.\n")
        if options.accelerator_name:
            target = (_accelerator(options.accelerator_name, listed),)
            return cls(options, log, target, listed)
        if options.disallow_nnapi_cpu:
            return cls(options, log, drivers, listed, bool(drivers))
        return cls(options, log, (), listed, bool(drivers))

    @property
    def decisive(self) -> DelegateTarget:
        """The facts that decide about nodes: the lowest feature level of the target devices, and whether there are such."""
        levels = [int(device.level) for device in self.target if device.kind == "device"]
        return DelegateTarget(min([*levels, int(RUNTIME_FEATURE_LEVEL)]), bool(levels))

    def prepare(self, context: InterpreterContext, replace_nodes: Callable[[Sequence[int]], int]) -> int:
        """Hand nodes of a graph to NNAPI; TFLite's status. NnapiError where NNAPI fails."""
        if not self.useful:
            return 0
        plan = [node for node in context.nodes() if context.builtin_code(node)[0] != DELEGATED]
        try:
            graph = context.open(plan)
        except ConversionError as error:
            self.log(f"WARNING: nothing is handed to NNAPI: {error}\n")
            return 0
        with context.reading(graph.delegation.weights(graph.subgraph)):
            return self._hand_over(context, graph, plan, replace_nodes)

    def _hand_over(
        self, context: InterpreterContext, graph: OpenGraph, plan: Sequence[int], replace_nodes: Callable[[Sequence[int]], int]
    ) -> int:
        dims = context.all_dims(graph.tensors)
        decision = self.decide(context, graph, dims, plan)
        if self.options.verbose_validation:
            self._say_refusals(context, plan, decision.outcomes)
        if decision.fails is not None:
            raise BadDataError(f"adding operation: {building_failure(decision.fails, graph.subgraph)}")
        partitions = [(DelegatePartition(graph, g.nodes, g.inputs, g.outputs, dims), part) for g, part in decision.groups]
        chosen = [(partition, self.compile(partition, part)) for partition, part in partitions]
        accepted = sorted(node for partition, _ in chosen for node in partition.nodes)
        self.waiting[threading.get_ident()] = chosen
        try:
            status = replace_nodes(accepted)
        finally:
            self.waiting.pop(threading.get_ident(), None)
        if status == 0 and accepted:
            self._say_replaced(context, graph, len(accepted), len(plan))
        self._write_plans(graph, plan, chosen)
        return status

    def claim(
        self, nodes: Sequence[int], inputs: Sequence[int], outputs: Sequence[int]
    ) -> tuple[DelegatePartition, DelegateKernel]:
        """The compiled partition of these nodes, while TFLite creates its node; another group is compiled now."""
        waiting = self.waiting[threading.get_ident()]
        found = next((pair for pair in waiting if set(pair[0].nodes) == set(nodes)), None)
        if found is not None:
            return found
        partition = replace(waiting[0][0], nodes=tuple(nodes), inputs=tuple(inputs), outputs=tuple(outputs))
        return partition, self.compile(partition)

    def compile(self, partition: DelegatePartition, part: Part | None = None) -> DelegateKernel:
        """Compile a partition for the dimensions that it was decided for."""
        part = part or self.part(partition)
        key = f"{partition.graph.subgraph} {partition.nodes} {[partition.dims[i] for i in part.inputs]} {self.options.allow_fp16}"
        compilation = compiled(part.model, self.options, self.listed, self.target, key)
        kernel = DelegateKernel(part, compilation, self.options, [partition.dims[i] for i in part.inputs])
        if part.lasting:
            kernel.resized(kernel.dims, self.computed(partition))
        return kernel

    def part(self, partition: DelegatePartition) -> Part:
        """The partition's model; with dynamic dimensions one that lasts, where NNAPI's operations can have what is open."""
        part = None
        if self.options.allow_dynamic_dimensions:
            declared = partition.graph.delegation.declared(partition.graph.subgraph, partition.dims)
            with suppress(ConversionError, NnapiError):
                part = replace(self._part(partition, declared), lasting=True)
        part = part or self._part(partition, partition.dims)
        return replace(part, model=replace(part.model, relaxed=True)) if self.options.allow_fp16 else part

    def computed(self, partition: DelegatePartition) -> list[tuple[int, ...]]:
        """The dimensions of a partition's outputs for the interpreter's of now; 0 for what only a run knows."""
        main = self._part(partition, partition.dims).model.main
        return [main.operands[i].dims for i in main.outputs]

    def _part(self, partition: DelegatePartition, dims: Dims) -> Part:
        graph, p = partition.graph, partition
        return graph.delegation.part(graph.subgraph, p.nodes, p.inputs, p.outputs, dims, self.decisive)

    def decide(self, context: InterpreterContext, graph: OpenGraph, dims: Dims, plan: Sequence[int]) -> Decision:
        """Decide on an interpreter's graph."""

        def part(group: NodeGroup) -> Part:
            made = self.part(DelegatePartition(graph, group.nodes, group.inputs, group.outputs, dims))
            # With open dimensions, those of outputs follow when the node is prepared.
            return made if self.options.allow_dynamic_dimensions else of_dims(made, dims)

        def supported(model: Model) -> Sequence[bool]:
            return traced("Model_getSupportedOperationsForDevices", lambda: supported_operations(model, self.target))

        return decide(
            graph.delegation,
            graph.subgraph,
            dims,
            self.decisive,
            plan,
            preview=lambda nodes: [NodeGroup(*map(tuple, listed)) for listed in context.partitions(nodes)],
            part=part,
            supported=supported if any(device.kind == "device" for device in self.target) else None,
            limit=self.options.max_number_delegated_partitions,
            log=self.log,
        )

    def _say_refusals(self, context: InterpreterContext, plan: Sequence[int], outcomes: Mapping[int, Mapped]) -> None:
        for node in plan:
            mapped = outcomes.get(node)
            if mapped is not None and stage_of(mapped) in (None, Stage.DELEGATE) and mapped.mapping != MappingKind.DELEGATE:
                version = context.builtin_code(node)[1]
                why = "; ".join(map(str, mapped.reasons)) or f"{mapped.mapping} at conversion"
                said = BY_NAME["delegate-refused"].format(operation=mapped.operator, version=version, rest=why)
                self.log(f"INFO: {said}\n")

    def _say_replaced(self, context: InterpreterContext, graph: OpenGraph, accepted: int, total: int) -> None:
        """TFLite's line, which its own log has at a level that is not shown."""
        name = graph.delegation.subgraph_name(graph.subgraph)
        delegated = [context.builtin_code(node)[0] == DELEGATED for node in context.nodes()]
        groups = sum(now or before for before, now in zip([True, *delegated], delegated, strict=False))
        counts = {"nodes": accepted, "total": total, "partitions": groups, "subgraph": graph.subgraph}
        self.log(f"INFO: {BY_NAME['replaced'].format(kernel=DELEGATE_NAME, name=name, **counts)}\n")

    def _write_plans(
        self, graph: OpenGraph, plan: Sequence[int], chosen: Sequence[tuple[DelegatePartition, DelegateKernel]]
    ) -> None:
        """The plans of all partitions so far, as ``nnbridge_plan`` asks."""
        if self.options.nnbridge_plan is None:
            return
        partitions = [{"nodes": list(p.nodes), "plan": plan_as_dict(k.compilation)} for p, k in chosen]
        self.plans.append({"subgraph": graph.subgraph, "nodes": len(plan), "partitions": partitions})
        with atomic_write(self.options.nnbridge_plan, 0o644) as file:
            file.write(json_text(document("delegate-plans", {"graphs": self.plans}), indent=2).encode() + b"\n")


def _device(name: str) -> Device:
    return LOCAL.get(name) or device_list.device(name)


def _accelerator(name: str, listed: Sequence[Device]) -> Device:
    """The device of a name: one that is listed, a profile's or a driver's of your own. InputError in Android's words."""
    found = next((device for device in listed if device.name == name), None)
    if found is not None and name not in LOCAL:
        return found
    try:
        return _device(name)
    except InputError as error:
        names = ",".join(device.name for device in listed)
        text = BY_NAME["no-accelerator-named"].format(device=name, devices=names)
        raise InputError(f"{text} {error}") from error
