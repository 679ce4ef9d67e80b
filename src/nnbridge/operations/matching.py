"""Which signature and type set of a declaration some operand types fit, and why they fit none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nnbridge.errors import Reason
from nnbridge.extensions import TYPES
from nnbridge.model import Model, Operation
from nnbridge.operations import definition as definition_of
from nnbridge.operations.declaration import Input, OperationDef, Output, Signature, TypeRef, TypeSet
from nnbridge.types import OperandCode


@dataclass(frozen=True, slots=True)
class Match:
    """A signature and type set that fit, and the feature level that they need."""

    signature: Signature
    types: TypeSet
    level: int


def match(definition: OperationDef, inputs: Sequence[int], outputs: Sequence[int]) -> Match | Reason:
    """The fitting signature and type set of lowest feature level, or the reason why none fits."""
    forms = [s for s in definition.signatures if s.admits(len(inputs))]
    if not forms:
        return Reason(f"{_counts(definition)} inputs", str(len(inputs)), definition.name)
    declared_outputs = _expand_outputs(definition, len(outputs))
    if declared_outputs is None:
        return Reason(f"{_output_counts(definition)} outputs", str(len(outputs)), definition.name)
    best: Match | None = None
    misfit: tuple[int, Reason] | None = None
    for form in forms:
        declared_inputs = form.expand(len(inputs))
        for type_set in definition.types:
            broken = _misfit(definition, declared_inputs, declared_outputs, inputs, outputs, type_set)
            if broken is not None:
                # The combination that fits longest is the one whose refusal helps most.
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
    return _widest(definition, forms, inputs, misfit)


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
    definition: OperationDef,
    declared_inputs: list[Input],
    declared_outputs: list[Output],
    inputs: Sequence[int],
    outputs: Sequence[int],
    type_set: TypeSet,
) -> tuple[int, Reason] | None:
    """How many operands fit before the first that does not, and that one's reason; None if all fit."""
    declarations: list[Input | Output] = [*declared_inputs, *declared_outputs]
    pairs = zip(declarations, [*inputs, *outputs], strict=True)
    for place, (declared, code) in enumerate(pairs):
        want = type_set.types.get(declared.type, declared.type) if isinstance(declared.type, str) else declared.type
        if want not in ("*", code):
            name = want.name if isinstance(want, OperandCode) else str(want)
            return place, Reason(name, TYPES.readable(code), definition.name, declared.name)
    return None


def _widest(definition: OperationDef, forms: list[Signature], inputs: Sequence[int], misfit: tuple[int, Reason]) -> Reason:
    """The reason of the misfit with all the types that some set would have admitted at that place."""
    place, reason = misfit
    admitted: set[str] = set()
    for form in forms:
        expanded = form.expand(len(inputs))
        if place < len(expanded) and expanded[place].name == reason.operand:
            admitted |= {t.name for t in allowed_types(definition, expanded[place].type)}
    if place == 0 and admitted:
        return Reason(" or ".join(sorted(admitted)), reason.found, reason.operation, reason.operand)
    return reason


def _expand_outputs(definition: OperationDef, count: int) -> list[Output] | None:
    declared = definition.outputs
    if definition.output_counts is not None:
        return list(declared[:count]) if count in definition.output_counts else None
    if declared and declared[-1].repeat:
        return [*declared[:-1], *[declared[-1]] * (count - len(declared) + 1)] if count >= len(declared) else None
    return list(declared) if count == len(declared) else None


def _counts(definition: OperationDef) -> str:
    counts = sorted({n for s in definition.signatures for n in s.counts})
    minimums = [s.minimum for s in definition.signatures if s.minimum is not None]
    if minimums:
        return f"at least {min(minimums)}"
    return " or ".join(str(n) for n in counts)


def _output_counts(definition: OperationDef) -> str:
    if definition.output_counts is not None:
        return " or ".join(str(n) for n in sorted(definition.output_counts))
    if definition.outputs and definition.outputs[-1].repeat:
        return f"at least {len(definition.outputs)}"
    return str(len(definition.outputs))
