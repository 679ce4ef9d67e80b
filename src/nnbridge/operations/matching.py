"""Match of operand types with a declaration's signatures and type sets, or the reason why none fits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

from nnbridge.errors import Reason, Why
from nnbridge.extensions import TYPES
from nnbridge.model import Model, Operation
from nnbridge.operations import definition as definition_of
from nnbridge.operations.declaration import Input, OperationDef, Output, Signature, TypeRef, TypeSet
from nnbridge.records import dataclass
from nnbridge.types import OperandCode, is_extension


@dataclass(frozen=True, slots=True)
class Match:
    """A signature and type set that fit, and the feature level that they need."""

    signature: Signature
    types: TypeSet
    level: int


def match(definition: OperationDef, inputs: Sequence[int], outputs: Sequence[int]) -> Match | Reason:
    """The fitting signature and type set of lowest feature level, or the reason why none fits.

    Networks repeat the same few combinations of types, so answers are cached. What names an extension type is not: the prefix
    in its code stands for another extension once the process registers it so.
    """
    find = _match if is_extension(max((*inputs, *outputs), default=0)) else _cached_match
    return find(definition, tuple(inputs), tuple(outputs))


def _match(definition: OperationDef, inputs: tuple[int, ...], outputs: tuple[int, ...]) -> Match | Reason:
    forms = [s for s in definition.signatures if s.admits(len(inputs))]
    if not forms:
        return Reason(f"{_counts(definition)} inputs", str(len(inputs)), definition.name, kind=Why.VARIANT)
    declared_outputs = definition.expand_outputs(len(outputs))
    if declared_outputs is None:
        return Reason(f"{_output_counts(definition)} outputs", str(len(outputs)), definition.name, kind=Why.VARIANT)
    best: Match | None = None
    misfit: tuple[int, Reason] | None = None
    for form in forms:
        declared: list[Input | Output] = [*form.expand(len(inputs)), *declared_outputs]
        for type_set in definition.types:
            broken = _misfit(definition, declared, (*inputs, *outputs), type_set)
            if broken is not None:
                # The refusal of the combination that fits longest helps most.
                misfit = broken if misfit is None or broken[0] > misfit[0] else misfit
                continue
            level = max(definition.since, type_set.level, form.level(len(inputs)))
            if definition.output_counts is not None:
                level = max(level, definition.output_counts[len(outputs)])
            if best is None or level < best.level:
                best = Match(form, type_set, level)
    if best is not None:
        return best
    assert misfit is not None
    return _widest(definition, forms, len(inputs), *misfit)


_cached_match = lru_cache(maxsize=4096)(_match)


def input_places(model: Model, operation: Operation) -> dict[str, int]:
    """Declared names of an operation's inputs → positions; empty where no signature fits."""
    declared = definition_of(operation.type)
    if declared is None:
        return {}
    operands = model.main.operands
    found = match(declared, [operands[i].type for i in operation.inputs], [operands[i].type for i in operation.outputs])
    if isinstance(found, Reason):
        return {}
    names = [declared_input.name for declared_input in found.signature.expand(len(operation.inputs))]
    return {name: position for position, name in reversed(list(enumerate(names)))}


def allowed_types(definition: OperationDef, reference: TypeRef) -> list[OperandCode]:
    """Every type that a type reference of this declaration can stand for."""
    if isinstance(reference, OperandCode):
        return [reference]
    return sorted({s.types[reference] for s in definition.types if reference in s.types})


def _misfit(
    definition: OperationDef, declared: Sequence[Input | Output], codes: Sequence[int], types: TypeSet
) -> tuple[int, Reason] | None:
    """The first operand that does not fit: its position and the reason; None if all fit."""
    for position, (operand, code) in enumerate(zip(declared, codes, strict=True)):
        required = types.types.get(operand.type, operand.type) if isinstance(operand.type, str) else operand.type
        if required not in ("*", code):
            name = required.name if isinstance(required, OperandCode) else str(required)
            kind = Why.INPUT_TYPE if isinstance(operand, Input) else Why.OUTPUT_TYPE
            return position, Reason(name, TYPES.readable(code), definition.name, operand.name, kind)
    return None


def _widest(definition: OperationDef, forms: list[Signature], count: int, position: int, reason: Reason) -> Reason:
    """The refusal of a first operand with all the types that some set would have admitted there."""
    expanded = [form.expand(count) for form in forms]
    admitted = {
        t.name
        for inputs in expanded
        if position == 0 and inputs and inputs[0].name == reason.operand
        for t in allowed_types(definition, inputs[0].type)
    }
    if not admitted:
        return reason
    return replace(reason, rule=" or ".join(sorted(admitted)))


def _counts(definition: OperationDef) -> str:
    minimums = [s.minimum for s in definition.signatures if s.minimum is not None]
    if minimums:
        return f"at least {min(minimums)}"
    return " or ".join(str(n) for n in sorted({n for s in definition.signatures for n in s.counts}))


def _output_counts(definition: OperationDef) -> str:
    if definition.output_counts is not None:
        return " or ".join(str(n) for n in sorted(definition.output_counts))
    if definition.outputs and definition.outputs[-1].repeat:
        return f"at least {len(definition.outputs)}"
    return str(len(definition.outputs))
