"""Operators of model files as conditions of profiles see them, beside :mod:`nnbridge.devices.operation_facts` for operations."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from types import MappingProxyType
from typing import Any

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
)
from nnbridge.entry_points import installed
from nnbridge.source import SourceDeclaration, SourceGraph, SourceOperator, SourceTensor

_STATED = ("shape", "axis", "axes", "paddings", "begin", "end", "size", "sizes", "strides", "permutation", "multiples")
PARAMETERS = frozenset((*_STATED, "output_shape", "filter", "weights", "bias", "value", "alpha"))
"""Inputs that say how to compute, by name; the others and the outputs are maps."""
WEIGHTS = ("filter", "weights")
_ENUMERATED = {"SAME": 0, "VALID": 1, "NONE": 0, "RELU": 1, "RELU_N1_TO_1": 2, "RELU6": 3, "TANH": 4, "SIGN_BIT": 5}
_COMPUTED: Mapping[str, Mapping[str, str]] = {
    "TRANSPOSE": {
        "identity": TRUTH,
        "swaps_hw": TRUTH,
        "swaps_wc": TRUTH,
        "inner_only": TRUTH,
        "outer": NUMBER,
        "height": NUMBER,
    },
}
"""Operator → names that are computed: what a permutation does with rows, columns and channels, ``outer``: what is above them."""
_COMMON: Mapping[str, str] = {
    "inputs": OPERANDS,
    "outputs": OPERANDS,
    "output": OPERAND,
    "maps": OPERANDS,
    "version": NUMBER,
    "open_dims": LIST,
    "runtime_inputs": NUMBER,
    "constant_inputs": NUMBER,
    "unstated": OPERANDS,
    "scaleless": NUMBER,
    "largest_weight_sum": NUMBER,
    "largest_bias": NUMBER,
    "zero_inputs": NUMBER,
    "readers": NUMBER,
    "input_readers": NUMBER,
    "input_written": TRUTH,
    "becomes_floats": TRUTH,
}
"""Names of every operator: ``maps`` are inputs and outputs without parameters, ``open_dims`` the dimensions that the file leaves
open, ``runtime_inputs`` and ``constant_inputs`` how many inputs a run computes and the file stores, ``unstated`` the maps and
weights without quantisation parameters, ``scaleless`` how many have no positive scale, ``largest_weight_sum`` the largest sum of
absolute weights of an output channel, ``largest_bias`` the largest bias, ``zero_inputs`` how many inputs are constants that are
all zero, ``readers`` and ``input_readers`` how many operators read the first output and the first input, ``input_written``
whether an operator computes the first input, ``becomes_floats`` whether only a CAST or SELECT to floats reads that output."""
_SELECTING = ("CAST", "SELECT", "SELECT_V2")


@cache
def declarations(format: str) -> Mapping[str, SourceDeclaration]:
    """The operators of a format, by name."""
    found = next((c for c in installed("nnbridge.converters") if c.name == format), None)
    return {} if found is None else {each.name: each for each in found.declared()}


@cache
def source_vocabulary(format: str, operator: str) -> Vocabulary:
    """The names that conditions of an operator may use; numbers of the hardware are added by the reader."""
    declared = declarations(format).get(operator)
    names = {**_COMMON, **_COMPUTED.get(operator, {})}
    if declared is not None:
        names |= {each.name: OPERANDS if each.repeat else OPERAND for each in declared.inputs}
        names |= {option: _kind(default) for option, default in declared.options.items()}
    types = {name: (TYPE, name) for name in (declared.types if declared is not None else ())}
    words = {**types, **{name: (NUMBER, number) for name, number in _ENUMERATED.items()}}
    return Vocabulary(names, words, title=operator)


def _kind(default: object) -> str:
    return TRUTH if isinstance(default, bool) else LIST if isinstance(default, (list, tuple)) else NUMBER


class OperatorFacts:
    """One operator; what is costly to find is found when a condition asks for it."""

    def __init__(
        self,
        graph: SourceGraph,
        operator: SourceOperator,
        hardware: Mapping[str, float],
        work: WorkBudget,
        unpacked: Mapping[int, str] = MappingProxyType({}),
    ) -> None:
        self.operator = operator
        self.work = work
        self._graph, self._hardware, self._unpacked = graph, hardware, unpacked
        self._names = declarations(graph.format)
        self._found: dict[str, Value] = {}

    def get(self, name: str) -> Value:
        """The value of a name; None if the operator has nothing of this name."""
        if name not in self._found:
            self._found[name] = self._find(name)
        return self._found[name]

    def _find(self, name: str) -> Value:
        if name in _COMMON:
            return getattr(self, f"_{name}")()
        if name in _COMPUTED.get(self.operator.name, {}):
            return self._permutation().get(name)
        declared = self._names.get(self.operator.name)
        for place, each in enumerate(declared.inputs if declared is not None else ()):
            if each.name == name and each.repeat:
                return tuple(self._fact(t) for t in self.operator.inputs[place:])
            if each.name == name:
                return self._fact(self.operator.input(place), single=name == "axis")
        if name in self._hardware:
            return self._hardware[name]
        value = self.operator.options.get(name)
        return tuple(value) if isinstance(value, list) else value

    def _fact(self, tensor: SourceTensor | None, *, single: bool = False) -> Fact:
        found = _fact(tensor, single=single)
        if tensor is None:
            return found
        if tensor.index in self._unpacked:
            found = replace(found, constant=True, stored=self._unpacked[tensor.index])
        readers = self._graph.readers.get(tensor.index, ())
        delivered = self._graph.delivers(tensor)
        reader = readers[0].name if len(readers) == 1 else ""
        return replace(found, used=bool(readers) or delivered, delivered=delivered, reader=reader)

    def _inputs(self) -> Value:
        return tuple(self._fact(tensor) for tensor in self.operator.inputs if tensor is not None)

    def _outputs(self) -> Value:
        return tuple(self._fact(tensor) for tensor in self.operator.outputs)

    def _output(self) -> Value:
        return self._fact(self.operator.outputs[0]) if self.operator.outputs else None

    def _version(self) -> Value:
        return self.operator.version

    def _permutation(self) -> Mapping[str, Value]:
        source, order = self.operator.input(0), self.operator.input(1)
        if source is None or order is None or order.value is None or len(order.value) != len(source.shape):
            return {}
        rank = len(source.shape)
        places = [int(k) % rank for k in order.value.reshape(-1)]
        # As of rank 4: rows, columns and channels last.
        moved = [*range(4 - rank), *(k + 4 - rank for k in places)] if rank < 4 else [k - rank + 4 for k in places]
        sides = (1,) * (3 - rank) + source.shape
        return {
            "identity": places == sorted(places),
            "swaps_hw": moved[-3:] == [2, 1, 3] and moved[:-3] == sorted(moved[:-3]),
            "swaps_wc": moved[-3:] == [1, 3, 2] and moved[:-3] == sorted(moved[:-3]),
            "inner_only": places[:-3] == list(range(max(rank - 3, 0))),
            "outer": math.prod(sides[:-3]),
            "height": sides[-3],
        }

    def _named(self) -> list[tuple[str, SourceTensor]]:
        declared = self._names.get(self.operator.name)
        names = [each.name for each in declared.inputs] if declared is not None and declared.inputs else ["input"]
        return [(names[min(k, len(names) - 1)], t) for k, t in enumerate(self.operator.inputs) if t is not None]

    def _map_tensors(self) -> list[SourceTensor]:
        if "LSTM" in self.operator.name:
            return [t for _, t in self._named()[:1]] + list(self.operator.outputs)
        return [t for name, t in self._named() if name not in PARAMETERS] + list(self.operator.outputs)

    def _maps(self) -> Value:
        return tuple(self._fact(tensor) for tensor in self._map_tensors())

    def _weight_tensors(self) -> list[SourceTensor]:
        return [t for name, t in self._named() if name in WEIGHTS]

    def _open_dims(self) -> Value:
        tensors = [*(t for t in self.operator.inputs if t is not None), *self.operator.outputs]
        return tuple(sorted({dim for tensor in tensors for dim in tensor.open_dims}))

    def _runtime_inputs(self) -> Value:
        return sum(not fact.constant for fact in self._inputs())

    def _constant_inputs(self) -> Value:
        return sum(fact.constant for fact in self._inputs())

    def _unstated(self) -> Value:
        return tuple(self._fact(t) for t in (*self._map_tensors(), *self._weight_tensors()) if not (t.scales and t.zero_points))

    def _scaleless(self) -> Value:
        return sum(not (t.scales and min(t.scales) > 0) for t in (*self._map_tensors(), *self._weight_tensors()))

    def _largest_weight_sum(self) -> Value:
        return max((_weight_sum(self.operator.name, t) for t in self._weight_tensors()), default=0)

    def _largest_bias(self) -> Value:
        bias = next((t for name, t in self._named() if name == "bias"), None)
        return 0 if bias is None or bias.value is None or not bias.elements else int(bias.value.max())

    def _readers(self) -> Value:
        return len(self._reading(self.operator.outputs[0])) if self.operator.outputs else 0

    def _input_readers(self) -> Value:
        source = self.operator.input(0)
        return 0 if source is None else len(self._reading(source))

    def _input_written(self) -> Value:
        source = self.operator.input(0)
        return source is not None and source.index in self._graph.producers

    def _becomes_floats(self) -> Value:
        found = self._reading(self.operator.outputs[0]) if self.operator.outputs else ()
        return len(found) == 1 and found[0].name in _SELECTING and found[0].outputs[0].type in ("FLOAT16", "FLOAT32")

    def _reading(self, tensor: SourceTensor) -> tuple[SourceOperator, ...]:
        return self._graph.readers.get(tensor.index, ())

    def _zero_inputs(self) -> Value:
        return sum(t.value is not None and not t.value.any() for t in self.operator.inputs if t is not None)


def _weight_sum(operator: str, tensor: SourceTensor) -> int:
    if tensor.value is None or not tensor.elements or tensor.value.dtype.kind not in "iu":
        return 0
    axis = tensor.value.ndim - 1 if operator == "DEPTHWISE_CONV_2D" else 0
    points = np.asarray(tensor.zero_points or (0,), np.int64)
    shape = [1] * tensor.value.ndim
    shape[axis] = len(points)
    centred = tensor.value.astype(np.int64) - points.reshape(shape)
    others = tuple(k for k in range(tensor.value.ndim) if k != axis)
    return int(np.abs(centred).sum(axis=others).max())


def _fact(tensor: SourceTensor | None, *, single: bool = False) -> Fact:
    if tensor is None:
        return Fact(omitted=True)
    several = len(tensor.scales) > 1
    return Fact(
        tensor.name,
        tensor.type,
        tensor.shape,
        scale=0.0 if several or not tensor.scales else tensor.scales[0],
        zero_point=tensor.zero_points[0] if tensor.zero_points else 0,
        scales=tensor.scales if several else (),
        channel_dim=tensor.axis if several else -1,
        zero_points=tensor.zero_points if tensor.scales else (),
        quantised_dim=tensor.axis,
        constant=tensor.constant,
        itemsize=tensor.bits // 8,
        identity=tensor.index,
        read=lambda: _numbers(tensor, single),
    )


def _numbers(tensor: SourceTensor, single: bool) -> Any:
    """A constant's numbers in order; the number of a scalar, or of what must be a ``single`` one."""
    if tensor.value is None or tensor.elements > MAX_ELEMENTS:
        return None
    numbers = tensor.value.reshape(-1).tolist()
    return numbers[0] if single or not tensor.shape else tuple(numbers)
