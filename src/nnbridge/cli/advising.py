"""Advice on a file under a command's options: how its edits are planned."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nnbridge.cli.options import compiled, conversion_of, summary_of
from nnbridge.errors import InputError, Reason

if TYPE_CHECKING:
    from nnbridge.advice import Advised, Outcome
    from nnbridge.converters.inspection import TensorInfo


def advice_on(model: Path, options: Mapping[str, Any]) -> Advised:
    """Changes that bring more of a file to the requested devices. InputError without a device, and where they get all."""
    from nnbridge.advice import advise
    from nnbridge.loading import adjustable, edits, inspect

    if not options["devices"]:
        raise InputError(Reason("at least one --device, to advise on", "none", operand="--advice"))

    def measure(path: Path, changed: Mapping[str, Any]) -> Outcome:
        return _outcome(path, {**options, "cache_dir": None, "kernels": "reference", **changed})

    asked = conversion_of(options)
    stated = () if asked.shapes else _open_shapes(inspect(model, replace(asked, mapping="phone")).inputs)
    return advise(model, edits(model), measure, asked.feature_level, stated, adjustable)


def _open_shapes(inputs: Sequence[TensorInfo]) -> tuple[str, ...]:
    """The dimensions of inputs that leave some open, with 1 for these, as ``--shape`` reads them."""
    dims = {tensor.name: [max(d or 0, 0) for d in tensor.shape or ()] for tensor in inputs}
    return tuple(f"{name}={','.join(str(d or 1) for d in shape)}" for name, shape in dims.items() if 0 in shape)


def _outcome(path: Path, options: Mapping[str, Any]) -> Outcome:
    from nnbridge.advice import Outcome
    from nnbridge.cost import cost_of
    from nnbridge.report.summary import operator_outcomes, refusal_kinds

    compilation, mapped = compiled(path, **options)
    found = operator_outcomes(compilation, mapped)
    names = {device.name for device in compilation.plan.devices if device.kind == "device"}
    return Outcome(
        frozenset(key for key, outcome in found.items() if outcome not in ("", "device")),
        list(found.values()).count("limited"),
        summary_of(compilation, mapped, path, options).partitions,
        len(compilation.plan.steps),
        sum(step.multiply_adds or 0 for step in cost_of(compilation.plan).steps if step.device in names),
        refusal_kinds(compilation, mapped),
    )
