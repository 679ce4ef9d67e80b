"""What recurrent operators share: their operands, directions and layouts, and their results."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from nnbridge.converters.draft import Value
from nnbridge.types import OperandCode, OperationCode
from nnbridge_onnx.graph import Dims
from nnbridge_onnx.lowering import Lowerer

C = OperationCode
_DIRECTIONS = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}


class Recurrence:
    """An RNN, GRU or LSTM node: sizes, weights by gate, and initial states."""

    def __init__(self, to: Lowerer, gates: int) -> None:
        self.to = to
        self.gates = gates
        self.batch_first = bool(to.attribute("layout", 0))
        name = to.attribute("direction", "forward")
        to.require(name in _DIRECTIONS, ", ".join(_DIRECTIONS), name, "direction")
        self.backwards = _DIRECTIONS[name]
        shape = to.shape()
        to.require(len(shape) == 3 and 0 not in shape, "a sequence of rank 3 with elements", list(shape))
        self.batch, self.steps = shape[:2] if self.batch_first else shape[1::-1]
        self.size, self.units = shape[2], to.shape(2)[2]
        to.require(to.shape(1) == (len(self.backwards), gates * self.units, self.size), "weights of all gates", to.shape(1))
        self.x = to.value()
        to.require(to.is_float(self.x), "floating values", OperandCode(self.x.type).name, self.x.name)
        to.require(not to.attribute("clip"), "no clip of what goes into activations", to.attribute("clip"))
        self._check_lengths()

    def _check_lengths(self) -> None:
        """Every sequence has to be as long as the longest."""
        lengths = self.to.optional_constant(4)
        full = lengths is None or all(int(n) == self.steps for n in np.ravel(lengths))
        self.to.require(full, f"sequences of {self.steps} steps each", "shorter ones", self.to.name(4))

    def activations(self, defaults: Sequence[str]) -> list[str]:
        """The activations of one direction, which both directions must share."""
        given = list(self.to.attribute("activations", [*defaults] * len(self.backwards)))
        count = len(defaults)
        to = self.to
        to.require(len(given) == count * len(self.backwards), f"{count} activations for each direction", given)
        to.require(given[:count] == given[-count:], "the same activations in both directions", given)
        return given[:count]

    # -- operands -----------------------------------------------------------------------------------------------------

    def matrix(self, position: int, direction: int, gates: Sequence[int]) -> Value:
        """Rows of the weights for some gates that stand side by side: [gates x units, columns]."""
        columns = self.size if position == 1 else self.units
        first, count = gates[0] * self.units, len(gates) * self.units
        return self._part(position, direction, first, count, (count, columns))

    def bias(self, direction: int, gates: Sequence[int], *, recurrent: bool | None = None) -> Value:
        """The biases of gates; both of each gate are added unless one of them is chosen."""
        count = len(gates) * self.units
        if not self.to.name(3):
            return self.to.real(np.zeros(count), self.x)
        first, half = gates[0] * self.units, self.gates * self.units
        parts = [self._part(3, direction, first + side * half, count, (count,)) for side in _sides(recurrent)]
        return parts[0] if len(parts) == 1 else self._sum(*parts)

    def peephole(self, direction: int, gate: int) -> Value | None:
        """What the cell adds to a gate of an LSTM."""
        return self._part(7, direction, gate * self.units, self.units, (self.units,)) if self.to.name(7) else None

    def state(self, position: int, direction: int) -> Value:
        """An initial state [batch, units], zeros if it is not given."""
        dims = (self.batch, self.units)
        if not self.to.name(position):
            self.to.values.draft.spend(self.batch * self.units)
            return self.to.real(np.zeros(dims), self.x)
        constant = self.to.values.constants.get(self.to.name(position))
        if constant is not None:
            return self.to.real(np.take(constant, direction, 1 if self.batch_first else 0), self.x)
        return self._sliced(position, 1 if self.batch_first else 0, direction, 1, dims)

    def _part(self, position: int, direction: int, first: int, count: int, dims: Dims) -> Value:
        constant = self.to.values.constants.get(self.to.name(position))
        if constant is not None:
            return self.to.real(constant[direction, first : first + count], self.x, dims)
        shape = self.to.shape(position)
        starts, sizes = [direction, first, *[0] * (len(shape) - 2)], [1, count, *shape[2:]]
        part = self._emit(C.SLICE, [self.to.value(position), self.to.vector(starts), self.to.vector(sizes)])
        return self._emit(C.RESHAPE, [part, self.to.vector(dims)])

    def _sliced(self, position: int, axis: int, first: int, count: int, dims: Dims) -> Value:
        shape = list(self.to.shape(position))
        starts = [first if i == axis else 0 for i in range(len(shape))]
        sizes = [count if i == axis else d for i, d in enumerate(shape)]
        part = self._emit(C.SLICE, [self.to.value(position), self.to.vector(starts), self.to.vector(sizes)])
        return self._emit(C.RESHAPE, [part, self.to.vector(dims)])

    def _sum(self, a: Value, b: Value) -> Value:
        if a.data is not None and b.data is not None:
            return self.to.real(a.data + b.data, self.x)
        return self._emit(C.ADD, [a, b, self.to.scalar(0)])

    def _emit(self, code: OperationCode, inputs: Sequence[Value]) -> Value:
        return self.to.emit(code, inputs, self.to.temporary(self.x))

    def reversed(self, x: Value) -> Value:
        """A sequence from its end to its beginning."""
        axis, to = (1 if self.batch_first else 0), self.to
        starts = [d - 1 if i == axis else 0 for i, d in enumerate(x.dims)]
        ends = [0 if i == axis else d for i, d in enumerate(x.dims)]
        strides = [-1 if i == axis else 1 for i in range(x.rank)]
        # The end lies before the first step, which only the mask can say.
        masks = [to.scalar(0), to.scalar(1 << axis), to.scalar(0)]
        return self._emit(C.STRIDED_SLICE, [x, to.vector(starts), to.vector(ends), to.vector(strides), *masks])

    # -- results ------------------------------------------------------------------------------------------------------

    def finish(self, sequences: Sequence[Value], states: Sequence[Sequence[Value]]) -> None:
        """The outputs: the whole sequence, and last states [batch, units] by output and direction."""
        if self._wanted(0):
            dims = (self.batch, self.steps, 1, self.units) if self.batch_first else (self.steps, 1, self.batch, self.units)
            self._joined(0, sequences, dims, 2 if self.batch_first else 1)
        for position, found in enumerate(states, 1):
            if self._wanted(position):
                single = (self.batch, 1, self.units) if self.batch_first else (1, self.batch, self.units)
                self._joined(position, found, single, 1 if self.batch_first else 0)

    def _wanted(self, position: int) -> bool:
        return position < len(self.to.node.outputs) and bool(self.to.node.outputs[position])

    def _joined(self, position: int, parts: Sequence[Value], dims: Dims, axis: int) -> None:
        shape = self.to.vector(dims)
        if len(parts) == 1:
            self.to.finish(C.RESHAPE, [parts[0], shape], position)
            return
        turned = [self._emit(C.RESHAPE, [part, shape]) for part in parts]
        self.to.finish(C.CONCATENATION, [*turned, self.to.scalar(axis)], position)

    def last(self, sequence: Value, *, backward: bool) -> Value:
        """The last step of a sequence in its own direction."""
        axis = 1 if self.batch_first else 0
        starts, sizes = [0] * 3, list(sequence.dims)
        starts[axis], sizes[axis] = (0 if backward else self.steps - 1), 1
        part = self._emit(C.SLICE, [sequence, self.to.vector(starts), self.to.vector(sizes)])
        return self._emit(C.RESHAPE, [part, self.to.vector((self.batch, self.units))])


def _sides(recurrent: bool | None) -> tuple[int, ...]:
    return (0, 1) if recurrent is None else (int(recurrent),)
