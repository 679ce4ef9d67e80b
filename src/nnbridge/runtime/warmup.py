"""Compiling kernels ahead of their first use, from models or from what common networks consist of."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from nnbridge.builder import ModelBuilder
from nnbridge.cpu.compiled.instructions import chosen
from nnbridge.cpu.compiled.objects import Variant, library
from nnbridge.model import Model
from nnbridge.runtime.compilation import Compilation
from nnbridge.types import FuseCode, OperandCode, OperationCode

KINDS = (OperandCode.TENSOR_FLOAT32, OperandCode.TENSOR_QUANT8_ASYMM, OperandCode.TENSOR_QUANT8_ASYMM_SIGNED)
_FLOAT = OperandCode.TENSOR_FLOAT32


def warm(model: Model) -> None:
    """Compile a model's kernels, and those that several threads use."""
    Compilation.create(model, [], kernels="compiled").finish()
    for name in ("run_steps", "run_shared", "help_out", "recruit"):
        library(chosen()).address(Variant(name))


def typical_models() -> Iterator[Model]:
    """The operations of MobileNets and their like on each kind of data."""
    for kind in KINDS:
        for activation in (FuseCode.RELU6, FuseCode.NONE, FuseCode.RELU):
            for weights in (90, 0):
                yield _Typical(kind, activation, weights).finish()


class _Typical:
    """A small network: convolutions, pooling, a sum, a classifier."""

    def __init__(self, kind: OperandCode, activation: FuseCode, weights_zero_point: int) -> None:
        self._builder = ModelBuilder(f"typical {kind.name}")
        self._kind, self._zero, self._activation = kind, weights_zero_point, int(activation)
        if kind != OperandCode.TENSOR_QUANT8_ASYMM:
            self._zero = 0

    def _tensor(self, *dims: int) -> int:
        lowest = -128 if self._kind == OperandCode.TENSOR_QUANT8_ASYMM_SIGNED else 0
        scale, zero_point = (0.0, 0) if self._kind == _FLOAT else (0.05, lowest)
        return self._builder.add_operand(self._kind, dims, scale=scale, zero_point=zero_point)

    def _constant(
        self, code: OperandCode, value: object, dims: tuple[int, ...] = (), scale: float = 0.0, zero_point: int = 0
    ) -> int:
        index = self._builder.add_operand(code, dims, scale=scale, zero_point=zero_point)
        self._builder.set_operand_value(index, value)
        return index

    def _number(self, value: int) -> int:
        return self._constant(OperandCode.INT32, value)

    def _weights(self, units: int, *dims: int) -> list[int]:
        if self._kind == _FLOAT:
            return [self._constant(_FLOAT, np.ones(shape, np.float32), shape) for shape in (dims, (units,))]
        dtype = np.int8 if self._kind == OperandCode.TENSOR_QUANT8_ASYMM_SIGNED else np.uint8
        weights = np.resize(np.array([0, 120], dtype), dims)
        bias_scale = float(np.float32(0.05) * np.float32(0.01))
        filters = self._constant(self._kind, weights, dims, scale=0.01, zero_point=self._zero)
        return [filters, self._constant(OperandCode.TENSOR_INT32, np.zeros(units, np.int32), (units,), scale=bias_scale)]

    def _add(self, code: OperationCode, inputs: list[int], *dims: int) -> int:
        out = self._tensor(*dims)
        self._builder.add_operation(code, inputs, [out])
        return out

    def finish(self) -> Model:
        """The model."""
        number, activation = self._number, self._number(self._activation)
        x = image = self._tensor(1, 16, 16, 3)
        strides = [number(n) for n in (1, 2, 2)]
        x = self._add(OperationCode.CONV_2D, [x, *self._weights(32, 32, 3, 3, 3), *strides, activation], 1, 8, 8, 32)
        for stride, side in ((1, 8), (2, 4)):
            steps = [number(n) for n in (1, stride, stride, 1)]
            filters = self._weights(32, 1, 3, 3, 32)
            x = self._add(OperationCode.DEPTHWISE_CONV_2D, [x, *filters, *steps, activation], 1, side, side, 32)
            flat = [number(n) for n in (1, 1, 1)]
            x = self._add(OperationCode.CONV_2D, [x, *self._weights(32, 32, 1, 1, 32), *flat, activation], 1, side, side, 32)
        wide = [number(n) for n in (1, 1, 1)]
        y = self._add(OperationCode.CONV_2D, [x, *self._weights(96, 96, 1, 1, 32), *wide, activation], 1, 4, 4, 96)
        z = self._add(OperationCode.CONV_2D, [y, *self._weights(32, 32, 1, 1, 96), *wide, activation], 1, 4, 4, 32)
        x = self._add(OperationCode.ADD, [x, z, number(0)], 1, 4, 4, 32)
        for code, side in ((OperationCode.MAX_POOL_2D, 2), (OperationCode.AVERAGE_POOL_2D, 1)):
            x = self._add(code, [x, *map(number, (1, 2, 2, 2, 2, 0))], 1, side, side, 32)
        x = self._add(OperationCode.FULLY_CONNECTED, [x, *self._weights(10, 10, 32), activation], 1, 10)
        self._builder.identify_inputs_and_outputs([image], [x])
        return self._builder.finish()
