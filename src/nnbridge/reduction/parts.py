"""Parts of a model as models of their own, with the values that reach them when the whole model runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from nnbridge.compare.arrays import Array
from nnbridge.compare.samples import named_inputs
from nnbridge.compare.tensors import DeviceReference
from nnbridge.devices import CPU_NAME
from nnbridge.errors import InputError, Reason
from nnbridge.extensions import is_tensor
from nnbridge.model import Model
from nnbridge.records import dataclass
from nnbridge.runtime.partitioner import extract
from nnbridge.types import WRITTEN, Lifetime


@dataclass(frozen=True)
class ReductionCandidate:
    """A model with values for its inputs, by name."""

    model: Model
    inputs: Mapping[str, Array]


def part(model: Model, operations: Iterable[int]) -> Model:
    """Some operations of the main subgraph as a model: what others compute is an input, what others read an output.

    Constants share the model's memory; states become inputs and outputs like others.
    """
    return _extracted(model, operations)[0]


def _extracted(model: Model, operations: Iterable[int]) -> tuple[Model, tuple[int, ...]]:
    """The part, and the whole model's operands that are its inputs."""
    main, chosen = model.main, sorted(set(operations))
    wrong = next((k for k in chosen if not 0 <= k < len(main.operations)), None)
    if not chosen or wrong is not None:
        raise InputError(Reason(f"operations from 0 to {len(main.operations) - 1}", "none" if wrong is None else str(wrong)))
    written = {i for k in chosen for i in main.operations[k].outputs}
    computed = (*WRITTEN, Lifetime.SUBGRAPH_INPUT)
    read = dict.fromkeys(i for k in chosen for i in main.operations[k].inputs if main.operands[i].lifetime in computed)
    inputs = [i for i in read if i not in written]
    inside, ends = set(chosen), set(main.outputs)
    outputs = [
        i
        for k in chosen
        for i in main.operations[k].outputs
        if i in ends or not inside.issuperset(readers := main.consumers.get(i, ())) or not readers
    ]
    found = extract(model, chosen, inputs, outputs)
    return _with_distinct_names(found), tuple(inputs)


def _with_distinct_names(model: Model) -> Model:
    """Inputs and outputs that have a name of their own each, by which values are saved."""
    operands = list(model.main.operands)
    for side in (model.main.inputs, model.main.outputs):
        seen: Counter[str] = Counter()
        for i in side:
            name = operands[i].name
            seen[name] += 1
            if name and seen[name] > 1:
                operands[i] = replace(operands[i], name=f"{name}#{seen[name]}")
    return replace(model, main=replace(model.main, operands=tuple(operands)))


@dataclass(frozen=True)
class Whole:
    """A model and every value of one run of it on the device that is the reference."""

    candidate: ReductionCandidate
    values: Mapping[int, Array]
    """Operand of the main subgraph → value."""
    reference: str = CPU_NAME
    """The device that computed them."""

    @classmethod
    def of(cls, model: Model, inputs: Mapping[str, Array], reference: str) -> Whole:
        """Run a model on a device by name; ``inputs`` in the model's types, states at their first values."""
        runtime = DeviceReference(model, reference)
        runtime.run(inputs)
        seen = runtime.tensors().observation.values
        fed = {i: inputs[name] for i, name in zip(model.own_inputs, named_inputs(model), strict=True)}
        values = fed | {i: found.value for (body, i), found in seen.items() if not body}
        alone = replace(model, states=())
        return cls(ReductionCandidate(alone, _named(alone, [values[i] for i in alone.main.inputs])), values, reference)

    def part(self, operations: Iterable[int]) -> ReductionCandidate | None:
        """The part with the values that reach it; None where the run shows one of them not."""
        model, read = _extracted(self.candidate.model, operations)
        if any(i not in self.values for i in read):
            return None
        return ReductionCandidate(model, _named(model, [self.values[i] for i in read]))


def _named(model: Model, values: Sequence[Array]) -> dict[str, Array]:
    """Values of a model's inputs by name."""
    operands = named_inputs(model).items()
    return {
        name: value if is_tensor(operand) else value.reshape(()) for (name, operand), value in zip(operands, values, strict=True)
    }
