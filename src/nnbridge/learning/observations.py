"""Observations of the operations that a device answered for: operands, where the model is there, and the answer."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from nnbridge.devices.device import Device
from nnbridge.devices.operation_facts import ModelFacts, OperationFacts
from nnbridge.devices.rules import Subject
from nnbridge.learning.features import features, values
from nnbridge.learning.space import Example, Rules, learn
from nnbridge.model import Model
from nnbridge.operations import definition
from nnbridge.records import dataclass
from nnbridge.runtime.placement import answers_of
from nnbridge.types import RUNTIME_FEATURE_LEVEL, OperationCode, is_extension


@dataclass(frozen=True)
class AnsweredOperation:
    """One operation and a device's answer. ``subject`` is None where the log does not say what its operands are."""

    operation: str
    supported: bool
    subject: Subject | None = None
    where: str = ""
    model: Model | None = None
    index: int = -1


def of_model(model: Model, answers: Sequence[bool | None], where: str) -> list[AnsweredOperation]:
    """Observations of a model's main operations; None stands for no answer. Operations of extensions
    are left out, and those that no feature level has yet."""
    facts = ModelFacts(model)
    return [
        AnsweredOperation(OperationCode(o.type).name, answer, OperationFacts(facts, o), f"{where} operation {i}", model, i)
        for i, (o, answer) in enumerate(zip(model.main.operations, answers, strict=True))
        if answer is not None and _of_nnapi(o.type)
    ]


def _of_nnapi(code: int) -> bool:
    """True for operations that a profile can have rules for."""
    declared = None if is_extension(code) else definition(OperationCode(code))
    return declared is not None and declared.since <= RUNTIME_FEATURE_LEVEL


def asked(device: Device, model: Model, where: str) -> list[AnsweredOperation]:
    """Observations of a device that answers here."""
    return of_model(model, [reason is None for reason in answers_of(device, model).reasons], where)


def learned(observations: Iterable[AnsweredOperation]) -> dict[str, Rules]:
    """Operation → its rules."""
    by_operation: dict[str, list[AnsweredOperation]] = {}
    for observation in observations:
        # Logs name operations of hosts and vendors as well; a profile has rules for NNAPI's.
        if observation.operation not in OperationCode.__members__ or not _of_nnapi(OperationCode[observation.operation]):
            continue
        by_operation.setdefault(observation.operation, []).append(observation)
    return {key: _learned(key, found) for key, found in by_operation.items()}


def _learned(key: str, found: Sequence[AnsweredOperation]) -> Rules:
    subjects = [o.subject for o in found if o.subject is not None]
    chosen = features(key, subjects)
    unknown = (None,) * len(chosen)
    examples = {
        Example(unknown if o.subject is None else tuple(values(key, chosen, o.subject)), o.supported): o.where for o in found
    }
    return learn(chosen, [Example(e.values, e.supported, where) for e, where in examples.items()])
