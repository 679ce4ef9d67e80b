"""The first tensor with a difference: every tensor that both sides have, in run order, with drift and own error.

*Drift* compares both networks, run from the same inputs. *Own error* is what the operations between a tensor and the nearest
tensors that the reference has compute, on the same device, when they are fed the reference's values. Observing leaves plan,
fusion and numerics as they are (:mod:`nnbridge.compare.observation`); docs/layers.md describes the answers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from functools import cached_property
from typing import Any

import numpy as np

from nnbridge import devices as device_list
from nnbridge.compare.arrays import Array
from nnbridge.compare.causes import Cause, LoneOperation, explain
from nnbridge.compare.comparison import OutputComparison
from nnbridge.compare.observation import Observation, Position, observed_run
from nnbridge.compare.results import DeviceResult
from nnbridge.compare.samples import Endings, Sample, in_model, named_inputs
from nnbridge.compare.tensors import (
    DeviceReference,
    Tensors,
    TensorsByPosition,
    as_truth,
    fitted_value,
    tensors_of,
)
from nnbridge.compare.tolerance import DEFAULT_TOLERANCE, Tolerance, Tolerances, as_tolerances
from nnbridge.converters.inspection import Mapped
from nnbridge.devices.device import Device
from nnbridge.devices.evidence import Evidence, evidences, idle_devices
from nnbridge.errors import NnapiError, RefusalError
from nnbridge.extensions import operand_dtype, readable_operation
from nnbridge.model import Model, Operand, Operation, input_name
from nnbridge.records import dataclass
from nnbridge.runtime.compilation import Compilation
from nnbridge.runtime.execution import Execution
from nnbridge.runtime.partitioner import extract
from nnbridge.runtime.states import States
from nnbridge.types import WRITTEN, Lifetime

_OUTCOMES = {
    "folded": "the converter computed its operator",
    "dead": "no output depends on its operator",
    "inlined": "its operator is a call, replaced by what it calls",
    "state": "its operator reads or writes a state",
}


@dataclass(frozen=True)
class _Worst:
    """The sample at which an own error is largest."""

    size: tuple[float, int]
    """The largest difference, then the number of elements that differ."""
    case: LoneOperation
    part: Compilation


@dataclass
class Layer:
    """A tensor that an operation computes."""

    position: Position
    operator: str
    """The source file's operator, such as ``34 Conv``; NNAPI's operation where the converter added it."""
    operation: str
    """NNAPI's operation, the last one of the operator's that the tensor comes from."""
    tensor: str
    device: str = ""
    step: int = -1
    drift: OutputComparison | None = None
    own: OutputComparison | None = None
    note: str = ""
    """Why a comparison is missing."""
    reads: tuple[Position, ...] = ()
    """The tensors of the reference that the own error was computed from."""
    cause: Cause | None = None
    """Why there is an own error; None if there is none, or nothing explains it."""
    hidden: str = ""
    """Where operators without a tensor in the reference share an own error beyond tolerance: the first that computes differently
    than NNAPI's reference kernels, fed with what these compute."""
    worst: _Worst | None = field(default=None, repr=False)
    """The sample with the largest own error, whose cause is sought once all samples are known; None after that."""

    @property
    def why(self) -> str:
        """The kind of its cause; empty without one."""
        return self.cause.kind if self.cause is not None else ""

    @property
    def place(self) -> str:
        """The operation, its tensor, and the body where it is."""
        return place_of(self.operator, self.operation, self.tensor, self.position[0])

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        where = {"operator": self.operator, "operation": self.operation, "tensor": self.tensor, "body": self.position[0]}
        figures = {name: c and c.as_dict() for name, c in (("drift", self.drift), ("own_error", self.own))}
        cause = self.cause and self.cause.as_dict()
        why = {"note": self.note, "cause": cause, "hidden": self.hidden}
        return {**where, "device": self.device, "step": self.step, **figures, **why}


@dataclass(frozen=True, repr=False)
class LayerComparison(DeviceResult):
    """Every tensor of a model on some devices beside a reference's."""

    model: str
    reference: str
    samples: int
    layers: tuple[Layer, ...]
    unmatched: tuple[tuple[str, str], ...] = ()
    """Tensors that only the reference has, and why."""
    interrupted: bool = False
    ended: tuple[tuple[str, str], ...] = ()
    """Samples at which a runtime's process ended, and how: they are not compared."""
    evidence: tuple[Evidence, ...] = ()
    """The evidence of each driver that ran something."""
    idle: tuple[str, ...] = ()
    """The devices that were offered the model where none of them ran anything: others computed all that was compared."""

    @property
    def verdict(self) -> str:
        """``pass`` or ``FAIL``, or why that cannot be said of the devices."""
        return self.reservation or ("pass" if self.passed else "FAIL")

    @property
    def compared(self) -> tuple[Layer, ...]:
        """The layers that both sides have."""
        return tuple(layer for layer in self.layers if layer.drift is not None and layer.drift.elements)

    @cached_property
    def first(self) -> Layer | None:
        """The first tensor in run order whose drift is beyond tolerance."""
        return next((layer for layer in self.compared if not _within(layer.drift)), None)

    @cached_property
    def origin(self) -> Layer | None:
        """The origin of :attr:`first`: of it and its inputs, the first with an own error beyond tolerance, else the one with
        the largest own error. Without a first one, the same of all tensors. None if no own error is known."""
        layers = [layer for layer in self.layers if layer.own is not None and layer.own.mismatches]
        if self.first is not None:
            before = self._ancestors(self.first)
            layers = [layer for layer in layers if layer.position in before]
        beyond = next((layer for layer in layers if not _within(layer.own)), None)
        return beyond or max(layers, key=lambda layer: _severity(layer.own), default=None)

    @property
    def passed(self) -> bool:
        """True if something was compared and no drift is beyond tolerance."""
        return bool(self.compared) and self.first is None

    @property
    def failed(self) -> bool:
        """True if what was compared did not pass: samples at which a process ended are no judgement."""
        return (self.samples > 0 or not self.ended) and not self.passed

    def _ancestors(self, layer: Layer) -> set[Position]:
        by_position = {layer.position: layer for layer in self.layers}
        found, waiting = {layer.position}, [layer.position]
        while waiting:
            known = by_position.get(waiting.pop())
            new = set(() if known is None else known.reads) - found
            found |= new
            waiting += new
        return found

    @property
    def sentence(self) -> str:
        """The answer in one sentence."""
        return f"{self.reservation}; of what was computed: {self._found}" if self.reservation else self._found

    @property
    def _found(self) -> str:
        if not self.compared:
            return "no tensor could be compared"
        first, origin = self.first, self.origin
        if first is None:
            if origin is None:
                if any(layer.drift is not None and layer.drift.mismatches for layer in self.compared):
                    return "no difference beyond tolerance; no operation is known to have its own error"
                return f"no difference: {len(self.compared)} tensors are equal"
            why = f" ({origin.why})" if origin.why else ""
            return f"no difference beyond tolerance; largest own error: operator {origin.place}, {difference(origin.own)}{why}"
        own = "unknown" if first.own is None else difference(first.own)
        before = self.layers[: self.layers.index(first)]
        hidden = origin is not None and origin.hidden
        if before and not hidden and not any(layer.drift is not None for layer in before):
            where = f"at any of the {len(before) + 1} operators up to it, as the reference has no tensor before"
            return f"difference beyond tolerance at operator {first.place}, {difference(first.drift)}; it may start {where}"
        said = f"first difference beyond tolerance: operator {first.place}, {difference(first.drift)}; own error {own}"
        if first.note:
            said += f" ({first.note})"
        if origin is not None and origin is not first:
            said += f": inherited from {origin.place}, own error {difference(origin.own)}"
        if origin is not None and origin.hidden:
            said += f"; among the operators up to it without tensors in the reference, {origin.hidden} differs"
        return said

    def records(self) -> Sequence[Mapping[str, Any]]:
        """A row for each tensor that was compared."""
        return [
            {
                "operator": layer.operator,
                "operation": layer.operation,
                "tensor": layer.tensor,
                "body": layer.position[0],
                "device": layer.device,
                "step": layer.step,
                "drift": layer.drift and layer.drift.max_abs_diff,
                "own error": layer.own and layer.own.max_abs_diff,
                "unequal": layer.drift and layer.drift.mismatches / max(layer.drift.elements, 1),
                "within tolerance": layer.drift and _within(layer.drift),
                "cause": layer.why,
                "note": layer.note,
            }
            for layer in self.layers
            if layer.drift is not None or layer.own is not None
        ]

    @property
    def causes(self) -> tuple[Cause, ...]:
        """The causes of operations' own errors, as far as they are known, in run order; one for operations with several
        outputs."""
        return tuple(dict.fromkeys(layer.cause for layer in self.layers if layer.cause is not None))

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        unmatched = [{"tensor": name, "reason": why} for name, why in self.unmatched]
        ends = {"first": self.first and self.first.as_dict(), "origin": self.origin and self.origin.as_dict()}
        layers = [layer.as_dict() for layer in self.layers]
        why = {"causes": [cause.as_dict() for cause in self.causes], "interrupted": self.interrupted}
        head = {"model": self.model, "reference": self.reference, "samples": self.samples, "pass": self.passed}
        head["verdict"] = self.verdict
        head |= {"ended": [{"sample": label, "reason": why} for label, why in self.ended]} if self.ended else {}
        return self.judged({**head, "sentence": self.sentence, **ends, "layers": layers, "unmatched": unmatched, **why})


def difference(comparison: OutputComparison | None) -> str:
    """``0``, or the largest difference and the share of elements that are not equal."""
    if comparison is None:
        return "unknown"
    if not comparison.mismatches:
        return "0"
    percent = 100 * comparison.mismatches / comparison.elements
    share = f"in {percent:.0f} % of elements" if percent >= 10 else f"in {percent:.2g} % of elements"
    if comparison.max_quant_diff is not None:
        steps = comparison.max_quant_diff
        return f"{steps:,} step{'' if steps == 1 else 's'} {share}"
    return f"{'non-finite values' if comparison.max_abs_diff is None else f'{comparison.max_abs_diff:.2g}'} {share}"


def _within(comparison: OutputComparison | None) -> bool:
    return comparison is None or not comparison.elements or comparison.beyond == 0


def _severity(comparison: OutputComparison | None) -> tuple[float, float]:
    """The largest difference as a share of the range, then the share of elements that differ."""
    if comparison is None:
        return 0.0, 0.0
    return comparison.largest / (comparison.span or 1.0), comparison.mismatches / comparison.elements


def compare_layers(
    compilation: Compilation,
    reference: str,
    samples: Iterable[Sample],
    tensors: Callable[[int], Tensors],
    tolerance: Tolerance | Tolerances = DEFAULT_TOLERANCE,
    mapped: Sequence[Mapped] = (),
    *,
    explained: bool = True,
) -> LayerComparison:
    """Run every sample on a finished compilation, observe its values, and compare them with the reference's.

    ``tensors(n)`` is asked once sample n was drawn; ``mapped`` are the converter's outcomes, for tensors without operand;
    ``explained``: look for the cause of each own error. After KeyboardInterrupt the samples that are done are the result.
    """
    names = {operand.name for graph in compilation.model.subgraphs() for operand in graph.operands if operand.name}
    run = _Layers(compilation, as_tolerances(tolerance).check(names), reference, explained)
    states, count, values = States(compilation.model), 0, None
    interrupted, endings = False, Endings()
    try:
        for number, sample in endings.left(samples):
            with endings.at(sample):
                values = tensors(number)
                if not sample.continues:
                    states.reset()
                run.add(sample, values, states)
                count += 1
    except KeyboardInterrupt:
        if not count:
            raise
        interrupted = True
    run.explain()
    unmatched = [] if values is None else run.unmatched(values, mapped)
    layers, ended = tuple(run.in_order()), tuple(endings.rows)
    ran = {layer.device for layer in layers}
    known = tuple(evidences(device for device in compilation.devices if device.name in ran))
    idle = idle_devices(compilation.devices, ran) if count else ()
    return LayerComparison(compilation.model.name, reference, count, layers, tuple(unmatched), interrupted, ended, known, idle)


def place_of(operator: str, operation: str, tensor: str, within: str) -> str:
    """An operator of the file or its operation, its tensor, and the body where it is."""
    name = f" ({tensor})" if tensor else f": {operation}" if operation not in operator else ""
    return f"{operator}{name}" + (f" in {within}" if within else "")


@dataclass
class _Part:
    """The operations that compute one tensor from tensors of the reference, as a model of their own."""

    compilation: Compilation | None
    inputs: tuple[Position, ...]
    problem: str = ""


@dataclass
class _Layers:
    """A comparison in the making."""

    compilation: Compilation
    tolerances: Tolerances
    reference: str
    explained: bool = True
    layers: dict[Position, Layer] = field(default_factory=dict)
    _parts: dict[Position, _Part] = field(default_factory=dict)
    _models: dict[str, Model] = field(default_factory=dict)
    _carried: dict[int, Array] = field(default_factory=dict)
    """Input operand of a state → the reference's value after the last run."""
    _stored: dict[Position, dict[int, Array]] = field(default_factory=dict)
    """Tensor → constants of its part that the reference computed in the run before: what it stores from run to run."""

    def add(self, sample: Sample, tensors: Tensors, states: States) -> None:
        """One sample."""
        main = self.compilation.model.main
        self._stored = self._stored if sample.continues else {}
        first = {main.inputs[i]: value for i, value in states.inputs().items()}
        carried = {**first, **(self._carried if sample.continues else {})}
        _, observation, _ = observed_run(self.compilation, sample.inputs, states)
        self._models |= observation.models
        known = self._known(sample, carried, observation, tensors)
        for position, layer in self.layers.items():
            seen = observation.values.get(position)
            if seen is not None:
                layer.device, layer.step = seen.device, seen.step
            if position in known:
                self._compare(position, layer, observation, known, sample)
        self._stored = {at: _stored(part.compilation.model, tensors) for at, part in self._parts.items() if part.compilation}
        outputs = {state.input: main.outputs[state.output] for state in self.compilation.model.states}
        self._carried = {main.inputs[i]: known["", o] for i, o in outputs.items() if ("", o) in known}

    def _known(
        self, sample: Sample, carried: Mapping[int, Array], observation: Observation, tensors: Tensors
    ) -> dict[Position, Array]:
        """The reference's values to compute from: the inputs, states as it has them itself, and every tensor of it."""
        main = self.compilation.model.main
        known: dict[Position, Array] = {("", i): value for i, value in carried.items()}
        for k, i in enumerate(main.inputs):
            if i not in carried:
                known["", i] = sample.inputs[input_name(main.operands[i], k)]
        for label, model in self._models.items():
            first_in_file = next((o for o in model.main.operations if o.source is not None), None)
            # LiteRT's loops leave the next iteration's values in a body's inputs.
            loop = label.startswith("body of") and not isinstance(tensors, TensorsByPosition)
            for i in model.main.inputs if label and not loop else ():
                value, seen = tensors.find((label, i), model.main.operands[i], first_in_file), observation.values.get((label, i))
                if value is not None and seen is not None and value.size == seen.value.size:
                    known[label, i] = in_model(model.main.operands[i], value).reshape(seen.value.shape)
            for operation in model.main.operations:
                for i in operation.outputs:
                    self._find(label, i, operation, observation, tensors, known)
        return known

    def _compare(
        self, position: Position, layer: Layer, observation: Observation, known: Mapping[Position, Array], sample: Sample
    ) -> None:
        """A layer's drift, where its value was seen, and its own error."""
        seen = observation.values.get(position)
        if seen is not None:
            if layer.drift is None:
                layer.drift, layer.note = self._comparison(layer, self._models[position[0]].main.operands[position[1]]), ""
            layer.drift.add(self._as_truth(position, seen.value), known[position], sample.label)
        self._add_own(position, layer, observation, known, sample.label)

    def _find(
        self,
        label: str,
        i: int,
        operation: Operation,
        observation: Observation,
        tensors: Tensors,
        known: dict[Position, Array],
    ) -> None:
        """The reference's value of an operand, in our type and layout; a layer for the operand."""
        model = self._models[label]
        operand, position = model.main.operands[i], (label, i)
        layer = self.layers.get(position)
        if layer is None:
            layer = self.layers[position] = Layer(position, *titles(model, operation), operand.name)
        value, seen = tensors.find(position, operand, operation), observation.values.get(position)
        note = ""
        if value is None:
            note = "the reference has no tensor of this name" if operand.name else "an intermediate of the converter's"
        else:
            shape = operand.dims if seen is None else seen.value.shape
            if seen is None:
                note = "not seen: inside a step of a driver that shows only its outputs, or not run"
            same = isinstance(tensors, TensorsByPosition)
            fitted = as_truth(operand, value) if same else fitted_value(model, operation, operand, value, shape)
            if fitted is None:
                note = note or f"{value.dtype}{list(value.shape)} in the reference, {operand}, {list(shape)} here"
            elif seen is not None or not label:
                # What a driver hides can still be computed in isolation.
                known[position] = fitted
        if layer.drift is None:
            layer.note = note

    def _add_own(
        self,
        position: Position,
        layer: Layer,
        observation: Observation,
        known: Mapping[Position, Array],
        label: str,
    ) -> None:
        part = self._parts.get(position)
        if part is None:
            part = self._parts[position] = self._part(position, observation, known)
            layer.reads, layer.note = part.inputs, layer.note or part.problem
        if part.compilation is None or any(i not in known for i in part.inputs):
            return
        try:
            outputs = Execution(part.compilation).run([known[i] for i in part.inputs])
        except NnapiError as error:
            layer.note = layer.note or f"by itself: {error.reason}"
            return
        operand = part.compilation.model.main.operands[part.compilation.model.main.outputs[0]]
        if layer.own is None:
            layer.own = self._comparison(layer, operand)
        result = as_truth(operand, next(iter(outputs.values())))
        before = layer.own.mismatches
        layer.own.add(result, known[position], label)
        if layer.own.mismatches > before and result.shape == known[position].shape:
            inputs, model = [known[i] for i in part.inputs], part.compilation.model
            what = (layer.operator, layer.operation, self.reference, layer.device, self._stored.get(position, {}))
            case = LoneOperation(model, inputs, result, known[position], *what)
            found = _Worst(case.size, case, part.compilation)
            layer.worst = found if layer.worst is None else max(layer.worst, found, key=lambda one: one.size)

    def explain(self) -> None:
        """The causes of own errors, each sought at the sample where it is largest."""
        for layer in self.layers.values():
            worst, layer.worst = layer.worst, None
            if worst is None:
                continue
            if layer.own is not None and layer.own.beyond:
                layer.hidden = self._hidden(worst.part, worst.case.inputs)
            layer.cause = explain(worst.case) if self.explained else None

    def _hidden(self, part: Compilation, inputs: Sequence[Array]) -> str:
        """Of a part of several operators of the file, the one that computes differently from NNAPI's reference kernels."""
        if len({operation.source for operation in part.model.main.operations}) < 2:
            return ""
        kernels = DeviceReference(part.model, "reference")
        values = dict(zip(named_inputs(part.model), inputs, strict=True))
        try:
            sample = Sample("", values, kernels.run(values))
            found = compare_layers(part, kernels.name, [sample], tensors_of(kernels), self.tolerances, explained=False)
        except RefusalError:
            return ""
        return found.origin.place if found.origin is not None and not _within(found.origin.own) else ""

    def _comparison(self, layer: Layer, operand: Operand) -> OutputComparison:
        tolerance = self.tolerances.of(layer.tensor)
        return OutputComparison(layer.tensor, str(operand_dtype(operand)), tolerance, zero_point=operand.zero_point)

    def _as_truth(self, position: Position, value: Array) -> Array:
        return as_truth(self._models[position[0]].main.operands[position[1]], value)

    def _part(self, position: Position, observation: Observation, known: Mapping[Position, Array]) -> _Part:
        """Back from the tensor to what the reference knows, on the devices that computed it."""
        label, target = position
        model = self._models[label]
        main = model.main
        operations, inputs, waiting = set(), dict[int, None](), [target]
        while waiting:
            operation = main.producers[waiting.pop()]
            if operation in operations:
                continue
            operations.add(operation)
            for i in main.operations[operation].inputs:
                operand = main.operands[i]
                if operand.lifetime not in (*WRITTEN, Lifetime.SUBGRAPH_INPUT):
                    continue
                if (label, i) in known:
                    inputs[i] = None
                elif i in main.producers:
                    waiting.append(i)
                else:
                    return _Part(None, (), f"own error unknown: the reference shows no {operand.name or f'operand {i}'}")
        read = tuple((label, i) for i in inputs)
        order = sorted(operations)
        # What an operation of the part computes on its way is not fed to the part.
        produced = {i for k in order for i in main.operations[k].outputs}
        if inputs.keys() & produced:
            return _Part(None, (), "own error unknown: its operations read each other's known tensors")
        computed = [observation.values.get((label, i)) for k in order for i in main.operations[k].outputs]
        by = [None if o is None else o.computed_by for o in computed]
        if None in by and not label:
            by += [d for k in order if isinstance(d := self.compilation.plan.device_of(k), Device)]
        used = {id(device): device for device in by if device is not None}
        offered = [device for device in used.values() if device.kind != "host"] or [device_list.cpu()]
        try:
            part = extract(model, order, list(inputs), [target])
            compilation = Compilation.create_for_devices(part, offered)
            compilation.finish()
        except NnapiError as error:
            return _Part(None, read, f"by itself: {error.reason}")
        return _Part(compilation, read)

    def in_order(self) -> list[Layer]:
        """The main subgraph's layers in run order, then those of bodies."""
        return sorted(self.layers.values(), key=lambda layer: bool(layer.position[0]))

    def unmatched(self, tensors: Tensors, mapped: Sequence[Mapped]) -> list[tuple[str, str]]:
        """The reference's tensors that no operand stands for, and why."""
        found = [
            (model.main.operands[i], operation)
            for model in self._models.values()
            for operation in model.main.operations
            for i in operation.outputs
        ]
        outcomes = {outcome.key: str(outcome.mapping) for outcome in mapped}
        inside = "inside of an operation here"
        return [
            (name, _OUTCOMES.get(outcomes.get((subgraph, index), ""), inside)) for name, index, subgraph in tensors.others(found)
        ]


def _stored(part: Model, tensors: Tensors) -> dict[int, Array]:
    """Constants of a part of which the reference has other values after a run."""
    found = {}
    for operation in part.main.operations:
        for i in operation.inputs:
            operand = part.main.operands[i]
            held = part.value(operand) if operand.name and operand.lifetime not in (*WRITTEN, Lifetime.SUBGRAPH_INPUT) else None
            value = None if held is None else tensors.find(("", i), operand, operation)
            if held is not None and value is not None and value.shape == held.shape and not np.array_equal(value, held):
                found[i] = value.astype(held.dtype)
    return found


def titles(model: Model, operation: Operation) -> tuple[str, str]:
    """The operator with its index in the file, and NNAPI's operation or the host's."""
    number, _, rest = operation.name.partition(":")
    name = readable_operation(model, operation)
    if operation.source is not None:
        return f"{operation.source.index} {operation.source.operator}", name
    return (f"{number} {rest.split()[0]}" if number.isdecimal() and rest.split() else name), name
