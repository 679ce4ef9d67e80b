"""Smaller shapes and plainer values of a candidate that still shows a symptom."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from nnbridge.compare.arrays import Array
from nnbridge.compare.samples import named_inputs
from nnbridge.extensions import is_tensor
from nnbridge.model import ChannelQuant, Model, Operand
from nnbridge.reduction.parts import ReductionCandidate, Whole
from nnbridge.types import FLOATS, WRITTEN

Holds = Callable[[ReductionCandidate], bool]


def simplified(candidate: ReductionCandidate, reference: str, holds: Holds) -> Iterator[str]:
    """The parts that were made smaller or plainer, in order; ``holds`` is asked about each attempt and retains those that it
    accepts.

    Each size that occurs in dimensions becomes 1, 2, a quarter or a half wherever it occurs, and every input and constant
    of real or 8-bit numbers becomes zeros or ones. Models with control flow remain as they are.
    """
    if candidate.model.referenced:
        return
    for size in sorted(_sizes(candidate.model), reverse=True):
        for smaller in sorted({1, 2, size // 4, size // 2} - {0, size}):
            attempt = _resized(candidate, size, smaller, reference) if smaller < size else None
            if attempt is not None and holds(attempt):
                candidate = attempt
                yield f"size {size}: {smaller}"
                break
    for name, plainer in _plainer(candidate.model):
        attempts = ((number, plainer(candidate, number)) for number in (0, 1))
        found = next(((n, attempt) for n, attempt in attempts if attempt is not None and holds(attempt)), None)
        if found is not None:
            candidate = found[1]
            yield f"{name}: all {found[0]}"


def _sizes(model: Model) -> set[int]:
    return {size for operand in model.main.operands if is_tensor(operand) for size in operand.dims if size > 1}


def _resized(candidate: ReductionCandidate, size: int, smaller: int, reference: str) -> ReductionCandidate | None:
    """Every dimension of a size cut; computed ones are those that follow. None where the model has no such form."""
    model, operands = candidate.model, list(candidate.model.main.operands)
    constants: dict[int, Array] = {}
    inputs = {name: _cut(array, size, smaller) for name, array in candidate.inputs.items()}
    for i, operand in enumerate(operands):
        if operand.lifetime in WRITTEN and operand.dims:
            operands[i] = replace(operand, dims=(0,) * len(operand.dims))
        elif size in operand.dims:
            operands[i] = _cut_operand(operand, size, smaller)
            value = model.value(operand)
            if value is not None:
                constants[i] = _cut(value, size, smaller)
    try:
        changed = model.with_main(operands, constants)
        values = Whole.of(changed, inputs, reference).values
        known = [replace(o, dims=values[i].shape) if 0 in o.dims else o for i, o in enumerate(changed.main.operands)]
    except Exception:
        return None  # The operations have no such form; errors are of any class, as no builder has checked the operands.
    return ReductionCandidate(changed.with_main(known, {}), inputs)


def _cut_operand(operand: Operand, size: int, smaller: int) -> Operand:
    channels = operand.channel_quant
    if channels is not None and operand.dims[channels.channel_dim] == size:
        channels = ChannelQuant(channels.scales[:smaller], channels.channel_dim)
    return replace(operand, dims=tuple(smaller if d == size else d for d in operand.dims), channel_quant=channels)


def _cut(array: Array, size: int, smaller: int) -> Array:
    return np.ascontiguousarray(array[tuple(slice(smaller) if d == size else slice(None) for d in array.shape)])


def _plainer(model: Model) -> Iterator[tuple[str, Callable[[ReductionCandidate, int], ReductionCandidate | None]]]:
    """Inputs and constants by name, with what gives a candidate one number for all their elements."""
    for name, operand in named_inputs(model).items():
        if _numbers(operand):
            yield name, lambda candidate, number, name=name: _with_input(candidate, name, number)  # type: ignore[misc]
    for i, operand in enumerate(model.main.operands):
        if operand.is_constant and _numbers(operand):
            yield (
                operand.name or f"operand {i}",
                lambda candidate, number, i=i: _with_constant(candidate, i, number),  # type: ignore[misc]
            )


def _numbers(operand: Operand) -> bool:
    """True for what may have any value: real numbers and quantised ones, not sizes or axes."""
    return is_tensor(operand) and (operand.scale > 0 or operand.channel_quant is not None or operand.type in FLOATS)


def _with_input(candidate: ReductionCandidate, name: str, number: int) -> ReductionCandidate | None:
    plain = _all(candidate.inputs[name], named_inputs(candidate.model)[name], number)
    return None if plain is None else ReductionCandidate(candidate.model, {**candidate.inputs, name: plain})


def _with_constant(candidate: ReductionCandidate, i: int, number: int) -> ReductionCandidate | None:
    operands = candidate.model.main.operands
    value = candidate.model.value(operands[i])
    plain = None if value is None else _all(value, operands[i], number)
    return None if plain is None else ReductionCandidate(candidate.model.with_main(operands, {i: plain}), candidate.inputs)


def _all(array: Array, operand: Operand, number: int) -> Array | None:
    """An array of so many steps or this number everywhere; None where it is so already or has no such step."""
    value = operand.zero_point + number
    if array.dtype.kind in "iu" and not np.iinfo(array.dtype).min <= value <= np.iinfo(array.dtype).max:
        return None
    plain = np.full_like(array, value)
    return None if np.array_equal(plain, array) else plain
