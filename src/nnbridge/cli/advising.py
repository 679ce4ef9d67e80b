"""Advice on a file under a command's options: how its edits are planned."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nnbridge.cli.options import bound_to, compilation_of, conversion_of, finish, named_devices, summary_of
from nnbridge.errors import InputError, Reason, Why

if TYPE_CHECKING:
    from nnbridge.advice import Advised, Alone, Key, Outcome
    from nnbridge.converters.inspection import Mapped, TensorInfo
    from nnbridge.devices.device import Device
    from nnbridge.devices.source_profiles import BoundDevice
    from nnbridge.loading import Reader
    from nnbridge.runtime.compilation import Compilation

_ALONE: Mapping[str, Any] = {"shapes": (), "signature": ""}
"""Options that name parts of a file mean nothing to an operator alone."""


def advice_on(model: Path, options: Mapping[str, Any]) -> Advised:
    """Changes that bring more of a file to the requested devices. InputError without a device, and where they get all."""
    return FileAdvice(model).on(options)


class FileAdvice:
    """Advice on one file under any options: its edits are written and converted once, and planned once for equal answers."""

    def __init__(self, model: Path) -> None:
        from nnbridge.advice import Editing
        from nnbridge.loading import Reader, adjustable, edits

        self._editing = Editing(model, edits, adjustable)
        self._reader = Reader()
        self._outcomes: dict[Hashable, Outcome] = {}

    def on(self, options: Mapping[str, Any], *, prepare: bool = True) -> Advised:
        """The advice under a command's options; without ``prepare``, steps that a driver fails to prepare are not seen."""
        from nnbridge.advice import Planner, advise
        from nnbridge.loading import inspect

        if not options["devices"]:
            raise InputError(Reason("at least one --device, to advise on", "none", operand="--advice"))
        asked = conversion_of(options)
        fixed = {**options, "cache_dir": None, "kernels": "reference", "android": None, "feature_level": asked.feature_level}
        planning = _Planning(named_devices(options["devices"]), fixed, self._reader, self._outcomes, prepare)
        stated = () if asked.shapes else _open_shapes(inspect(self._editing.path, replace(asked, mapping="phone")).inputs)
        return advise(self._editing, Planner(planning.measure, planning.alone), asked.feature_level, stated)


def _open_shapes(inputs: Sequence[TensorInfo]) -> tuple[str, ...]:
    """The dimensions of inputs that leave some open, with 1 for these, as ``--shape`` reads them."""
    dims = {tensor.name: [max(d or 0, 0) for d in tensor.shape or ()] for tensor in inputs}
    return tuple(f"{name}={','.join(str(d or 1) for d in shape)}" for name, shape in dims.items() if 0 in shape)


def _bound(devices: Sequence[Device]) -> list[BoundDevice]:
    """The devices if all of them look at the file's own operators."""
    from nnbridge.devices.source_profiles import BoundDevice

    bound = [device for device in devices if isinstance(device, BoundDevice)]
    return bound if len(bound) == len(devices) else []


def _refused(bound: Sequence[BoundDevice]) -> dict[Key, frozenset[Why]]:
    """Operators of the file that none of the devices accepts, with the reasons."""
    subgraph, answers = bound[0].graph.subgraph, zip(*(device.claims for device in bound), strict=True)
    reasons = {(subgraph, claims[0].operator.index): [claim.reason for claim in claims] for claims in answers}
    return {key: frozenset(r.kind for r in each if r and r.kind) for key, each in reasons.items() if None not in each}


def _answers(compilation: Compilation, chosen: Sequence[Device]) -> Hashable | None:
    """All that an unprepared plan depends on; None where bodies of control flow are asked about as well.

    Models stay as long as their reader, so that each has a number of its own.
    """
    from nnbridge.runtime.placement import place

    if compilation.model.referenced:
        return None
    placed = place(compilation.model, compilation.devices, compilation.preference)
    answers = tuple((p.device, *(a.reason and a.reason.kind for a in p.answers)) for p in placed)
    claims = tuple((claim.operator.index, claim.reason and claim.reason.kind) for d in _bound(chosen) for claim in d.claims)
    kinds = tuple(device.kind for device in compilation.devices)
    return id(compilation.model), kinds, compilation.max_partitions, answers, claims


@dataclass(frozen=True)
class _Planning:
    """How files are planned under a command's options."""

    devices: Sequence[Device]
    options: Mapping[str, Any]
    reader: Reader
    outcomes: dict[Hashable, Outcome]
    """Of plans that nothing was prepared for."""
    may_prepare: bool

    def measure(self, path: Path, changed: Mapping[str, Any], prepare: bool) -> Outcome:
        """What a file's plan comes to, with some options changed."""
        options = {**self.options, **changed}
        chosen, compilation, mapped = self._compilation(path, options)
        if prepare and self.may_prepare:
            finish(compilation, path)
            return self._outcome(path, options, chosen, compilation, mapped)
        answers = _answers(compilation, chosen)
        if answers is None or answers not in self.outcomes:
            finish(compilation, path, prepare=False)
            outcome = self._outcome(path, options, chosen, compilation, mapped)
            if answers is None:
                return outcome
            self.outcomes[answers] = outcome
        return self.outcomes[answers]

    def _outcome(
        self,
        path: Path,
        options: Mapping[str, Any],
        chosen: Sequence[Device],
        compilation: Compilation,
        mapped: tuple[Mapped, ...],
    ) -> Outcome:
        from nnbridge.advice import Outcome
        from nnbridge.cost import driver_multiply_adds
        from nnbridge.report.summary import operator_outcomes, refusal_kinds

        found = operator_outcomes(compilation, mapped)
        if bound := _bound(chosen):
            kinds = _refused(bound)
            elsewhere = frozenset(kinds)
        else:
            kinds = refusal_kinds(compilation, mapped)
            elsewhere = frozenset(key for key, outcome in found.items() if outcome not in ("", "device"))
        return Outcome(
            elsewhere,
            list(found.values()).count("limited"),
            summary_of(compilation, mapped, path, options).partitions,
            len(compilation.plan.steps),
            driver_multiply_adds(compilation.plan),
            kinds,
        )

    def alone(self, path: Path) -> Alone:
        """What the devices answer for a file of one operator, or of what stands in its place."""
        from nnbridge.advice import Alone
        from nnbridge.runtime.placement import place

        chosen, compilation, mapped = self._compilation(path, {**self.options, **_ALONE})
        if bound := _bound(chosen):
            refused = _refused(bound)
            some = any(claim.accepted for device in bound for claim in device.claims)
            return Alone(not refused, some, frozenset().union(*refused.values()))
        devices, operations = compilation.devices, compilation.model.main.operations
        placed = place(compilation.model, devices, compilation.preference)
        places = [p for p in placed if operations[p.operation].mapping != "host"]
        accepted = [p.device is not None and devices[p.device].kind == "device" for p in places]
        host = [operator for operator in mapped if operator.mapping == "host"]
        answers = [a for p in places for a, device in zip(p.answers, devices, strict=True) if device.kind == "device"]
        reasons = [*(r for operator in host for r in operator.reasons), *(a.reason for a in answers if a.reason is not None)]
        return Alone(all(accepted) and not host, any(accepted), frozenset(r.kind for r in reasons if r.kind is not None))

    def _compilation(self, path: Path, options: Mapping[str, Any]) -> tuple[list[Device], Compilation, tuple[Mapped, ...]]:
        """The devices, bound to the file where they look at it, and a compilation for them."""
        chosen, limit = bound_to(path, self.devices, options, self.reader)
        return chosen, *compilation_of(path, chosen=chosen, limit=limit, reader=self.reader, **options)
