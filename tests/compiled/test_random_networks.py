"""Random networks of many operations: what aliases, joins, arenas and dropped steps do to one another."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from nnbridge.builder import ModelBuilder
from nnbridge.cpu.compiled.instructions import InstructionSet, host_sets
from nnbridge.model import Model
from nnbridge.types import OperandCode, OperationCode
from tests.compiled.hybrid import Hybrid
from tests.compiled.models import F32, I8, I32, U8, random_data

Dims = tuple[int, ...]


class Network:
    """A model that grows by operations on operands that are there."""

    def __init__(self, seed: int, kind: OperandCode) -> None:
        self.rng = np.random.default_rng(seed)
        self.kind, self.real = kind, kind == F32
        self.builder = ModelBuilder(f"random {seed}")
        height, width = (int(n) for n in self.rng.integers(3, 9, 2))
        self.input = self.tensor((int(self.rng.integers(1, 3)), height, width, int(self.rng.choice([1, 3, 8, 20, 33]))))
        self.images: list[tuple[int, Dims]] = [(self.input, self._dims[self.input])]
        self.outputs: list[int] = []
        growth: list[Callable[[int, Dims], tuple[int, Dims]]] = [
            self.relu,
            self.convolution,
            self.depthwise,
            self.sum,
            self.joined,
            self.pool,
            self.padded,
            self.flat,
            self.transposed,
            self.sine,
            self.gathered,
            self.smaller,
        ]
        for _ in range(int(self.rng.integers(4, 14))):
            operand, dims = self.images[int(self.rng.integers(0, len(self.images)))]
            made = growth[int(self.rng.integers(0, len(growth)))](operand, dims)
            if made[0] != operand:
                self.images.append(made)
                if self.rng.random() < 0.25:
                    self.outputs.append(made[0])
        if self.images[-1][0] not in self.outputs and self.images[-1][0] != self.input:
            self.outputs.append(self.images[-1][0])

    _dims: dict[int, Dims]

    def tensor(self, dims: Dims) -> int:
        """An operand; all 8-bit ones have the same parameters, so that any may be joined."""
        if not hasattr(self, "_dims"):
            self._dims = {}
        made = self.builder.add_operand(self.kind, dims, **({} if self.real else {"scale": 0.1, "zero_point": 7}))
        self._dims[made] = dims
        return made

    def number(self, value: int) -> int:
        """An INT32 scalar."""
        made = self.builder.add_operand(OperandCode.INT32)
        self.builder.set_operand_value(made, value)
        return made

    def values(self, value: np.ndarray) -> int:
        """A constant INT32 tensor."""
        made = self.builder.add_operand(I32, value.shape)
        self.builder.set_operand_value(made, value.astype(np.int32))
        return made

    def operation(self, code: OperationCode, inputs: list[int], dims: Dims) -> tuple[int, Dims]:
        """One more operation."""
        out = self.tensor(dims)
        self.builder.add_operation(code, inputs, [out])
        return out, dims

    def relu(self, x: int, dims: Dims) -> tuple[int, Dims]:
        return self.operation(OperationCode.RELU, [x], dims)

    def weights(self, shape: Dims, units: int) -> tuple[int, int]:
        """A filter and its bias."""
        w = self.builder.add_operand(
            self.kind, shape, **({} if self.real else {"scale": 0.02, "zero_point": 100 - 128 * (self.kind == I8)})
        )
        data = random_data(self.rng, self.kind, shape)
        self.builder.set_operand_value(w, data / np.float32(8) if self.real else data)
        scale = 0.0 if self.real else float(np.float32(0.1) * np.float32(0.02))
        bias = self.builder.add_operand(F32 if self.real else I32, (units,), scale=scale)
        self.builder.set_operand_value(bias, self.rng.integers(-50, 50, units).astype("f" if self.real else "i"))
        return w, bias

    def convolution(self, x: int, dims: Dims) -> tuple[int, Dims]:
        size, units = int(self.rng.choice([1, 3])), int(self.rng.choice([2, 16, 40]))
        w, bias = self.weights((units, size, size, dims[3]), units)
        numbers = [self.number(n) for n in (1, 1, 1, int(self.rng.integers(0, 2)))]
        return self.operation(OperationCode.CONV_2D, [x, w, bias, *numbers], (*dims[:3], units))

    def depthwise(self, x: int, dims: Dims) -> tuple[int, Dims]:
        w, bias = self.weights((1, 3, 3, dims[3]), dims[3])
        stride = int(self.rng.integers(1, 3))
        numbers = [self.number(n) for n in (1, stride, stride, 1, 0)]
        out = (dims[0], -(-dims[1] // stride), -(-dims[2] // stride), dims[3])
        return self.operation(OperationCode.DEPTHWISE_CONV_2D, [x, w, bias, *numbers], out)

    def other(self, dims: Dims) -> int:
        """Some operand of the same dimensions."""
        same = [operand for operand, found in self.images if found == dims]
        return int(self.rng.choice(same))

    def sum(self, x: int, dims: Dims) -> tuple[int, Dims]:
        return self.operation(OperationCode.ADD, [x, self.other(dims), self.number(0)], dims)

    def joined(self, x: int, dims: Dims) -> tuple[int, Dims]:
        axis = int(self.rng.choice([0, 1, 3]))
        out = tuple(2 * d if i == axis else d for i, d in enumerate(dims))
        if np.prod(out) > 40_000:
            return x, dims
        return self.operation(OperationCode.CONCATENATION, [x, self.other(dims), self.number(axis)], out)

    def pool(self, x: int, dims: Dims) -> tuple[int, Dims]:
        numbers = [self.number(n) for n in (1, 2, 2, 2, 2, 0)]
        code = OperationCode.MAX_POOL_2D if self.rng.random() < 0.5 else OperationCode.AVERAGE_POOL_2D
        return self.operation(code, [x, *numbers], (dims[0], -(-dims[1] // 2), -(-dims[2] // 2), dims[3]))

    def padded(self, x: int, dims: Dims) -> tuple[int, Dims]:
        pads = self.values(np.array([[0, 0], [1, 0], [0, 2], [0, 0]]))
        return self.operation(OperationCode.PAD, [x, pads], (dims[0], dims[1] + 1, dims[2] + 2, dims[3]))

    def flat(self, x: int, dims: Dims) -> tuple[int, Dims]:
        out = (dims[0], 1, dims[1] * dims[2], dims[3])
        return self.operation(OperationCode.RESHAPE, [x, self.values(np.array(out))], out)

    def gathered(self, x: int, dims: Dims) -> tuple[int, Dims]:
        """Some rows, each maybe several times."""
        rows = self.values(self.rng.integers(0, dims[1], dims[1]))
        return self.operation(OperationCode.GATHER, [x, self.number(1), rows], dims)

    def smaller(self, x: int, dims: Dims) -> tuple[int, Dims]:
        """Of two operands the smaller elements, by a comparison."""
        other = self.other(dims)
        less = self.builder.add_operand(OperandCode.TENSOR_BOOL8, dims)
        self.builder.add_operation(OperationCode.LESS, [x, other], [less])
        return self.operation(OperationCode.SELECT, [less, x, other], dims)

    def transposed(self, x: int, dims: Dims) -> tuple[int, Dims]:
        out = (dims[0], dims[2], dims[1], dims[3])
        return self.operation(OperationCode.TRANSPOSE, [x, self.values(np.array([0, 2, 1, 3]))], out)

    def sine(self, x: int, dims: Dims) -> tuple[int, Dims]:
        """An operation that no compiled kernel computes, so that programs end here."""
        return self.operation(OperationCode.SIN, [x], dims) if self.real else (x, dims)

    def finish(self) -> Model | None:
        """The model; None if nothing grew."""
        if not self.outputs:
            return None
        self.builder.identify_inputs_and_outputs([self.input], self.outputs)
        return self.builder.finish()


def same_as_the_reference(seed: int, kind: OperandCode, isa: InstructionSet) -> None:
    model = Network(seed, kind).finish()
    if model is None:
        return
    hybrid = Hybrid(model, isa)
    rng = np.random.default_rng(seed)
    for _ in range(2):
        x = random_data(rng, kind, model.main.operands[model.main.inputs[0]].dims)
        for expected, found in zip(hybrid.reference([x]), hybrid.run([x]), strict=True):
            if kind == F32:
                # Errors add up from operation to operation.
                np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-3 * (1 + float(np.abs(expected).max())))
            else:
                np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("kind", [F32, U8, I8], ids=lambda kind: kind.name)
@pytest.mark.parametrize("block", range(8))
def test_random_networks(kind: OperandCode, block: int) -> None:
    for seed in range(block * 12, block * 12 + 12):
        for isa in host_sets()[:2]:
            same_as_the_reference(seed, kind, isa)
