"""NNAPI operations as conditions of profiles see them: operands by their declared names, and names for all of them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, partial
from typing import Any, TypeAlias

import numpy as np

from nnbridge.budget import WorkBudget
from nnbridge.devices.rules.facts import (
    LIST,
    MAX_ELEMENTS,
    NUMBER,
    OPERAND,
    OPERANDS,
    TRUTH,
    TYPE,
    Fact,
    Value,
    Vocabulary,
    evaluations,
    expansions,
)
from nnbridge.errors import NnapiError, Reason
from nnbridge.model import Model, Operand, Operation
from nnbridge.operations import definition
from nnbridge.operations.call import Arg, NeedsValue
from nnbridge.operations.declaration import Input, OperationDef, Output, Signature
from nnbridge.operations.evaluate import make_call, merge_dims, resolve
from nnbridge.operations.matching import match
from nnbridge.types import TYPE_FACTS, FuseCode, Lifetime, OperandCode, OperationCode

ALIASES: Mapping[str, tuple[str, str]] = {
    "batch": ("input", "n"),
    "channels": ("input", "c"),
    "filter_h": ("filter", "h"),
    "filter_w": ("filter", "w"),
}
"""Short names of sides → the operand and its side, where the operation has no input of that name."""
_SIDES = {"n": (0, 0), "h": (1, 2), "w": (2, 3), "c": (3, 1)}
_EVERYWHERE = {
    "first_input": OPERAND,
    "first_output": OPERAND,
    "every_input": OPERANDS,
    "every_output": OPERANDS,
    "every_tensor": OPERANDS,
    "outputs_as_computed": TRUTH,
}
"""Names that every operation has."""
_PADDINGS = {"SAME": 1, "VALID": 2}

Place: TypeAlias = "tuple[str, int, int]"
"""Where a name's operands stand: ``in`` or ``out``, in capitals for a list; the first, and one past the last."""


def type_words() -> dict[str, tuple[str, Value]]:
    """FLOAT32 is TENSOR_FLOAT32, as everywhere in profiles; a scalar's type that a tensor type hides is SCALAR_FLOAT32."""
    words: dict[str, tuple[str, Value]] = {}
    for name, code in OperandCode.__members__.items():
        words[name.removeprefix("TENSOR_")] = words[name] = (TYPE, code)
        if not name.startswith("TENSOR_"):
            words[f"SCALAR_{name}"] = (TYPE, code)
    for name, code in OperandCode.__members__.items():
        if name.startswith("TENSOR_"):
            words[name.removeprefix("TENSOR_")] = (TYPE, code)
    return words


_WORDS: Mapping[str, tuple[str, Value]] = {
    **type_words(),
    **{name: (NUMBER, code.value) for name, code in FuseCode.__members__.items()},
    **{name: (NUMBER, value) for name, value in _PADDINGS.items()},
    "true": (TRUTH, True),
    "false": (TRUTH, False),
}


def vocabulary(
    key: str,
    hardware: Mapping[str, int | float] | None = None,
    sets: Mapping[str, tuple[Any, ...]] | None = None,
    conditions: Mapping[str, str] | None = None,
    work: WorkBudget | None = None,
) -> Vocabulary:
    """The names that conditions of an operation may use; ``others`` has those that every operation has."""
    own = {**{n: (NUMBER, v) for n, v in (hardware or {}).items()}, **{n: (LIST, v) for n, v in (sets or {}).items()}}
    return Vocabulary(_names(key), {**own, **_WORDS}, conditions or {}, key, work or expansions())


def operand_vocabulary(hardware: Mapping[str, int | float], work: WorkBudget) -> Vocabulary:
    """The names of conditions on any operand of a model."""
    own = {n: (NUMBER, v) for n, v in hardware.items()}
    return Vocabulary({"operand": OPERAND}, {**own, **_WORDS}, {}, "a model's operand", work)


def reserved(name: str) -> bool:
    """True for names that a profile cannot define: types, constants, names of all operations."""
    return name in _WORDS or name in _EVERYWHERE


@cache
def _names(key: str) -> dict[str, str]:
    declared = definition(OperationCode[key]) if key in OperationCode.__members__ else None
    names = dict(_EVERYWHERE)
    if declared is not None:
        listed: list[Input | Output] = [*(i for s in declared.signatures for i in s.inputs), *declared.outputs]
        for item in listed:
            names[item.name] = OPERANDS if item.repeat else OPERAND
        names |= {alias: NUMBER for alias, (tensor, _) in ALIASES.items() if tensor in names and alias not in names}
    return names


class ModelFacts:
    """The operands of a model as facts, each created once."""

    def __init__(self, model: Model, device: str = "") -> None:
        self.model = model
        self.work = evaluations(len(model.main.operations), device)
        """What one device may still evaluate for the model."""
        self._facts: dict[tuple[int, bool], Fact] = {}

    def fact(self, index: int, nchw: bool = False) -> Fact:
        """The operand with this index."""
        found = self._facts.get((index, nchw))
        if found is None:
            found = self._facts[index, nchw] = _fact(self.model, index, self.model.main.operands[index], nchw)
        return found


class OperationFacts:
    """One operation: the subject of conditions."""

    __slots__ = ("_defaults", "_facts", "_known", "_layout", "_operation", "_places", "work")

    def __init__(self, facts: ModelFacts, operation: Operation) -> None:
        self._facts, self.work = facts, facts.work
        self._operation = operation
        self._known: dict[str, Value] = {}
        operands = facts.model.main.operands
        declared = definition(operation.type)
        self._places, self._defaults, self._layout = _places(
            declared, tuple(operands[i].type for i in operation.inputs), tuple(operands[i].type for i in operation.outputs)
        )

    def get(self, name: str) -> Value:
        """The operand, or operands, of a name; None if this form of the operation has none."""
        if name not in self._known:
            self._known[name] = self._found(name)
        return self._known[name]

    def _found(self, name: str) -> Value:
        place = self._places.get(name)
        if place is None:
            return self._defaults[name] if name in self._defaults else self._alias(name)
        side, low, high = place
        listed = self._operation.inputs if side in ("in", "IN") else self._operation.outputs
        if side.isupper():
            return tuple(self._facts.fact(i) for i in listed[low:high])
        return self._facts.fact(listed[low], name in self._layout and self._nchw())

    def _nchw(self) -> bool:
        flag = self.get("nchw")
        return bool(flag.value) if isinstance(flag, Fact) else bool(flag)

    def _alias(self, name: str) -> Value:
        if name == "every_tensor":
            return tuple(f for i in (*self._operation.inputs, *self._operation.outputs) if (f := self._facts.fact(i)).tensor)
        if name == "outputs_as_computed":
            return self._outputs_as_computed()
        tensor, side = ALIASES.get(name, ("", ""))
        fact = self.get(tensor) if tensor in self._places else None
        if not isinstance(fact, Fact) or len(fact.dims) != 4:
            return None
        return fact.dims[_SIDES[side][fact.nchw]] or None

    def _outputs_as_computed(self) -> Value:
        """True if NNAPI computes outputs of the declared dimensions; None where it computes none, or only execution knows."""
        model, declared = self._facts.model, definition(self._operation.type)
        inputs, outputs = ([model.main.operands[i] for i in side] for side in (self._operation.inputs, self._operation.outputs))
        if (
            declared is None
            or declared.control_flow
            or any(o.is_tensor and (not o.dims or 0 in o.dims) for o in (*inputs, *outputs) if _present(o))
        ):
            return None
        args = [Arg.of(o, model.value(o) if o.is_constant else None, present=_present(o)) for o in inputs]
        try:
            found = resolve(make_call(declared, args, [Arg.of(o) for o in outputs]))
        except (NeedsValue, NnapiError):
            return None
        return all(merge_dims(out.dims, arg.dims) is not None for out, arg in zip(outputs, found, strict=True))


class OperandFacts:
    """One operand: the subject of conditions on all operands of a model."""

    def __init__(self, facts: ModelFacts, index: int) -> None:
        self._fact, self.work = facts.fact(index), facts.work
        self.name = self._fact.name

    def get(self, name: str) -> Value:
        """The operand."""
        return self._fact if name == "operand" else None


@cache
def _places(
    declared: OperationDef | None, inputs: tuple[int, ...], outputs: tuple[int, ...]
) -> tuple[dict[str, Place], dict[str, Value], frozenset[str]]:
    """Names → places for operands of these types, values of inputs left out, names whose layout the flag ``nchw`` changes."""
    places: dict[str, Place] = {"every_input": ("IN", 0, len(inputs)), "every_output": ("OUT", 0, len(outputs))}
    places |= {"first_input": ("in", 0, 1)} if inputs else {}
    places |= {"first_output": ("out", 0, 1)} if outputs else {}
    if declared is None:
        return places, {}, frozenset()
    defaults: dict[str, Value] = {}
    form = _form(declared, inputs, outputs)
    if form is not None:
        listed = form.expand(len(inputs))
        for item in form.inputs[len(listed) :]:
            if item.default is not None and not item.repeat:
                defaults[item.name] = item.default
        for position, item in reversed(list(enumerate(listed))):
            high = max(p for p, other in enumerate(listed) if other is item) + 1
            places[item.name] = ("IN" if item.repeat else "in", position, high)
    for position, output in enumerate(declared.expand_outputs(len(outputs)) or ()):
        if output.name not in places:
            places[output.name] = ("OUT" if output.repeat else "out", position, len(outputs))
    layout = declared.layout
    transposed = (
        {*layout.inputs, *(declared.outputs[i].name for i in layout.outputs if i < len(declared.outputs))} if layout else ()
    )
    return places, defaults, frozenset(transposed)


def _form(declared: OperationDef, inputs: tuple[int, ...], outputs: tuple[int, ...]) -> Signature | None:
    """The signature of an operation; of one with types that NNAPI does not have together, the first with as many inputs."""
    found = match(declared, inputs, outputs)
    if not isinstance(found, Reason):
        return found.signature
    return next((form for form in declared.signatures if form.admits(len(inputs))), None)


def _present(operand: Operand) -> bool:
    return operand.lifetime is not Lifetime.NO_VALUE


def _fact(model: Model, index: int, operand: Operand, nchw: bool) -> Fact:
    facts = TYPE_FACTS.get(operand.type)
    quant = operand.channel_quant
    return Fact(
        name=operand.name or f"operand {index}",
        type=OperandCode(operand.type) if facts is not None else operand.type,
        dims=operand.dims,
        tensor=facts is not None and facts.tensor,
        scale=operand.scale,
        zero_point=operand.zero_point,
        scales=quant.scales if quant else (),
        channel_dim=quant.channel_dim if quant else -1,
        constant=operand.is_constant,
        omitted=not _present(operand),
        model_input=operand.lifetime is Lifetime.SUBGRAPH_INPUT,
        copied=operand.lifetime is Lifetime.CONSTANT_COPY,
        nchw=nchw,
        itemsize=facts.dtype.itemsize if facts is not None and facts.dtype is not None else 0,
        identity=index,
        read=partial(_value, model, operand),
    )


def _value(model: Model, operand: Operand) -> Value:
    """A constant's number or numbers; None if it is none, or has more elements than conditions read."""
    if not operand.is_constant or operand.type not in TYPE_FACTS or operand.location.length > 8 * MAX_ELEMENTS:
        return None
    value = model.value(operand)
    if value is None or value.size > MAX_ELEMENTS:
        return None
    if not operand.is_tensor:
        return value.reshape(-1)[0].item() if value.size else None
    return tuple(np.asarray(value).reshape(-1).tolist())
