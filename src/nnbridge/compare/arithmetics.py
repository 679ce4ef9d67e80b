"""A model under other arithmetics: devices that differ from NNAPI's CPU in nothing but how they round and add.

:func:`operand_value` is for what no such device computes: one operand, by values of others.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from functools import cache

from nnbridge.compare.arrays import Array
from nnbridge.cpu.settings import Tier
from nnbridge.devices.cpu import CpuDevice
from nnbridge.devices.device import Device, Performance, uniform_capabilities
from nnbridge.devices.profiles import ProfileDevice, ProfileRule
from nnbridge.devices.source_profiles import BoundDevice
from nnbridge.errors import NnapiError
from nnbridge.model import Model, input_name
from nnbridge.operations.numerics import EXACT, NUMERICS, Numerics, using
from nnbridge.runtime.compilation import Compilation
from nnbridge.runtime.execution import Execution
from nnbridge.runtime.partitioner import extract
from nnbridge.runtime.states import States
from nnbridge.types import FLOATS, QUANT8


@cache
def arithmetic_device(name: str) -> Device:
    """A device that supports every NNAPI operation and computes with an arithmetic of NUMERICS, or DISTURBED."""
    faster = uniform_capabilities(Performance(0.5, 0.5))
    return ProfileDevice(name, {}, faster, numerics=name, others=(ProfileRule(),))


def matters(numerics: Numerics, model: Model) -> bool:
    """True if an arithmetic can change a result of a model: it has operations of the types that the arithmetic concerns."""
    types = {graph.operands[i].type for graph in model.subgraphs() for o in graph.operations for i in o.outputs}
    real, integers = bool(types & set(FLOATS)), bool(types & set(QUANT8))
    if numerics.in_float or numerics.rounding != "nnapi":
        return integers
    return real or numerics.name == "exact"


def arithmetics(model: Model, stated: Mapping[str, str] | None = None) -> tuple[Numerics, ...]:
    """The arithmetics that matter to a model, from the mildest; the first is NNAPI's CPU.

    ``float16``, which concerns relaxed models only, is among them: any model may be compiled so. ``stated``: those of devices,
    by name, without all others.
    """
    only = {EXACT.name, *stated.values()} if stated else NUMERICS.keys()
    return tuple(numerics for numerics in NUMERICS.values() if numerics.name in only and matters(numerics, model))


def stated(devices: Collection[Device]) -> dict[str, str]:
    """Device → the arithmetic that its profile states with a source; empty unless each of the devices does."""
    profiles = {device.name: device.profile for device in devices if isinstance(device, BoundDevice)}
    known = {name: profile.numerics for name, profile in profiles.items() if profile.numerics_source}
    return known if len(known) == len(devices) else {}


class Runner:
    """A model under one arithmetic, over samples; one with open dimensions is compiled for those of each."""

    def __init__(self, model: Model, numerics: Numerics, *, host: bool = False) -> None:
        """``host``: what the host computes, too, which no device does otherwise."""
        self.numerics = numerics
        self._model, self._of_host = model, numerics if host else EXACT
        self._compiled: dict[tuple[tuple[int, ...], ...], tuple[Compilation, States]] = {}

    def run(self, inputs: Mapping[str, Array], *, continues: bool = False) -> dict[str, Array]:
        """Outputs by name."""
        main, resolution = self._model.main, self._model.resolution
        dims = (
            () if resolution is None else tuple(inputs[input_name(main.operands[i], k)].shape for k, i in enumerate(main.inputs))
        )
        if dims not in self._compiled:
            self._compiled = {dims: self._compile(dims)}
        compilation, states = self._compiled[dims]
        if not continues:
            states.reset()
        return Execution(compilation, states).run(inputs)

    def _compile(self, dims: tuple[tuple[int, ...], ...]) -> tuple[Compilation, States]:
        model = (self._model.resolved(dims) if dims else None) or self._model
        model = replace(model, relaxed=True) if self.numerics.relaxed_only else model
        compilation = Compilation.create(model, [arithmetic_device(self.numerics.name)])
        with using(self._of_host):
            compilation.finish()
        return compilation, States(model)


def operand_value(model: Model, values: Mapping[int, Array], target: int) -> Array | None:
    """An operand's value on NNAPI's CPU by values of others; None if it cannot be computed, or if that writes one of these."""
    if target in values:
        return values[target]
    main, needed, waiting = model.main, set[int](), [target]
    while waiting:
        i = waiting.pop()
        made_by = None if i in values else main.producers.get(i)
        if made_by is not None and made_by not in needed:
            needed.add(made_by)
            waiting += main.operations[made_by].inputs
    operations = [main.operations[k] for k in sorted(needed)]
    if any(i in values for operation in operations for i in operation.outputs):
        return None
    read = {i for operation in operations for i in operation.inputs}
    used = {i: value for i, value in values.items() if i in read}
    try:
        compilation = Compilation.create(extract(model, sorted(needed), list(used), [target]), [CpuDevice(Tier.REFERENCE)])
        compilation.finish()
        return next(iter(Execution(compilation).run(list(used.values())).values()))
    except NnapiError:
        return None
