"""The smallest models that decide what logs leave open: one operation each, which breaks one of several possible conditions."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from nnbridge.conformance.cases import Case, build
from nnbridge.devices.operation_facts import ModelFacts, OperationFacts
from nnbridge.errors import NnapiError, RefusalError
from nnbridge.export import saved
from nnbridge.export.cases import model_data, write
from nnbridge.learning.features import values
from nnbridge.learning.observations import AnsweredOperation
from nnbridge.learning.space import Atom, Rules
from nnbridge.model import Model
from nnbridge.runtime.partitioner import extract
from nnbridge.storage.atomic import written_together
from nnbridge.types import OperandCode

MAX_QUESTIONS = 50
_LARGEST = 1 << 16
"""Elements of a tensor; operations with larger ones are not made questions of."""


def write_questions(rules: Mapping[str, Rules], seen: Sequence[AnsweredOperation], folder: Path) -> list[Path]:
    """Write a conformance case and a saved model for each question; the paths of the models."""
    written: list[Path] = []
    for key, learned in sorted(rules.items()):
        bases = [o for o in seen if o.operation == key and o.supported and o.model is not None]
        for number, model in enumerate(questions(key, learned, bases)):
            if len(written) == MAX_QUESTIONS:
                return written
            folder.mkdir(parents=True, exist_ok=True)
            stem = f"{key.lower()}_{number + 1}"
            try:
                with written_together():
                    write(model, folder / f"{stem}.json.gz", stem)
                    written += saved.write(model, folder / f"{stem}.nnapi", stem)
            except NnapiError:  # The CPU cannot answer it, so that it is no case.
                continue
    return written


def questions(key: str, rules: Rules, bases: Sequence[AnsweredOperation]) -> Iterator[Model]:
    """One model for each condition that could explain a refusal as well as another one: it breaks this one only."""
    rivals = dict.fromkeys(atom for region in rules.refused if len(region) > 1 for atom, _ in region)
    limits = {atom: value for region in rules.refused for atom, value in region}
    alone = [_alone(base.model, base.index) for base in bases if base.model is not None]
    small = sorted((m for m in alone if m is not None and _size(m) <= _LARGEST), key=_size)
    candidates = [(each, _values(key, rules, each)) for model in small[:2] for each in _changed(model, limits.values())]
    known = list(rivals)
    for atom in known:
        for model, found in candidates:
            if atom.broken(found) and not any(other.broken(found) for other in known if other != atom):
                yield model
                break


def _values(key: str, rules: Rules, model: Model) -> list[Any]:
    return values(key, rules.features, OperationFacts(ModelFacts(model), model.main.operations[0]))


def _size(model: Model) -> int:
    return sum(max(1, math.prod(operand.dims)) for operand in model.main.operands)


def _alone(model: Model, index: int) -> Model | None:
    """A model of one operation."""
    operation = model.main.operations[index]
    operands = model.main.operands
    inputs = tuple(dict.fromkeys(i for i in operation.inputs if not operands[i].is_constant and operands[i].is_tensor))
    try:
        return extract(model, [index], inputs, operation.outputs) if inputs else None
    except RefusalError:
        return None


def _changed(model: Model, limits: Any) -> Iterator[Model]:
    """The model, and models with one scalar, type or constant changed."""
    data = model_data(model)
    numbers = dict.fromkeys(int(v) for v in limits if isinstance(v, (int, float)) and not isinstance(v, bool) and abs(v) < 2**31)
    for i in data["operations"][0]["inputs"]:
        operand = data["operands"][i]
        scalar = not operand["type"].startswith("TENSOR_")
        if scalar and operand.get("value") and operand["type"] == OperandCode.INT32.name:
            own = operand["value"][0]
            for value in dict.fromkeys((own + 1, own - 1, own * 2, *numbers)):
                yield from _built(model, data, i, value=[value])
        elif not scalar and operand["lifetime"].startswith("CONSTANT"):
            yield from _built(model, data, i, lifetime="SUBGRAPH_INPUT", value=None)


def _built(model: Model, data: Mapping[str, Any], index: int, **changes: Any) -> Iterator[Model]:
    """The changed model, with outputs of open sizes, if NNAPI has it."""
    changed = copy.deepcopy(dict(data))
    changed["operands"][index].update(changes)
    if changes.get("lifetime") == "SUBGRAPH_INPUT":
        changed["inputs"] = [*changed["inputs"], index]
    for place in changed["outputs"]:
        changed["operands"][place]["dims"] = [0] * len(changed["operands"][place]["dims"])
    try:
        yield build(Case("questions", model.name, {"name": "question", "relaxed": model.relaxed, "model": changed}))
    except (RefusalError, ValueError, LookupError, TypeError):
        return


__all__ = ["MAX_QUESTIONS", "Atom", "questions", "write_questions"]
