"""Advice on a file under a command's options: how its edits are planned."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nnbridge.cli.options import bound_to, compilation_of, conversion_of, finish, named_devices, summary_of
from nnbridge.errors import InputError, Reason, Why

if TYPE_CHECKING:
    from nnbridge.advice import Advised, Key, Outcome
    from nnbridge.converters.inspection import TensorInfo
    from nnbridge.devices.device import Device

_ALONE: Mapping[str, Any] = {"shapes": (), "signature": ""}
"""Options that name parts of a file mean nothing to an operator alone."""


def advice_on(model: Path, options: Mapping[str, Any]) -> Advised:
    """Changes that bring more of a file to the requested devices. InputError without a device, and where they get all."""
    from nnbridge.advice import Planner, advise
    from nnbridge.loading import adjustable, edits, inspect

    if not options["devices"]:
        raise InputError(Reason("at least one --device, to advise on", "none", operand="--advice"))

    asked, devices = conversion_of(options), named_devices(options["devices"])
    fixed = {**options, "cache_dir": None, "kernels": "reference", "android": None, "feature_level": asked.feature_level}
    planner = Planner(
        lambda path, changed: _outcome(path, devices, {**fixed, **changed}),
        lambda path: _accepted(path, devices, {**fixed, **_ALONE}),
    )
    stated = () if asked.shapes else _open_shapes(inspect(model, replace(asked, mapping="phone")).inputs)
    return advise(model, edits(model), planner, asked.feature_level, stated, adjustable)


def _open_shapes(inputs: Sequence[TensorInfo]) -> tuple[str, ...]:
    """The dimensions of inputs that leave some open, with 1 for these, as ``--shape`` reads them."""
    dims = {tensor.name: [max(d or 0, 0) for d in tensor.shape or ()] for tensor in inputs}
    return tuple(f"{name}={','.join(str(d or 1) for d in shape)}" for name, shape in dims.items() if 0 in shape)


def _refused(devices: Sequence[Device]) -> dict[Key, frozenset[Why]] | None:
    """Operators that none of the devices takes, which look at the file's own, with the reasons; None for other devices."""
    from nnbridge.devices.source_profiles import BoundDevice

    bound = [device for device in devices if isinstance(device, BoundDevice)]
    if len(bound) < len(devices):
        return None
    subgraph, answers = bound[0].graph.subgraph, zip(*(device.claims for device in bound), strict=True)
    reasons = {(subgraph, claims[0].operator.index): [claim.reason for claim in claims] for claims in answers}
    return {key: frozenset(r.kind for r in each if r and r.kind) for key, each in reasons.items() if None not in each}


def _accepted(path: Path, devices: Sequence[Device], options: Mapping[str, Any]) -> bool:
    """True if every operator goes to a device. Devices are asked; nothing is prepared."""
    from nnbridge.runtime.placement import place

    chosen, limit = bound_to(path, devices, options)
    refused = _refused(chosen)
    if refused is not None:
        return not refused
    compilation, mapped = compilation_of(path, chosen=chosen, limit=limit, **options)
    if any(operator.mapping == "host" for operator in mapped):
        return False
    places = place(compilation.model, compilation.devices, compilation.preference)
    return all(p.device is not None and compilation.devices[p.device].kind == "device" for p in places)


def _outcome(path: Path, devices: Sequence[Device], options: Mapping[str, Any]) -> Outcome:
    from nnbridge.advice import Outcome
    from nnbridge.cost import cost_of
    from nnbridge.report.summary import operator_outcomes, refusal_kinds

    chosen, limit = bound_to(path, devices, options)
    compilation, mapped = compilation_of(path, chosen=chosen, limit=limit, **options)
    finish(compilation, path)
    found, refused = operator_outcomes(compilation, mapped), _refused(chosen)
    names = {device.name for device in compilation.plan.devices if device.kind == "device"}
    return Outcome(
        frozenset(key for key, outcome in found.items() if outcome not in ("", "device"))
        if refused is None
        else frozenset(refused),
        list(found.values()).count("limited"),
        summary_of(compilation, mapped, path, options).partitions,
        len(compilation.plan.steps),
        sum(step.multiply_adds or 0 for step in cost_of(compilation.plan).steps if step.device in names),
        refusal_kinds(compilation, mapped) if refused is None else refused,
    )
