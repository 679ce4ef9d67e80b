"""Quantised arithmetic as accelerators with a float requantisation do it.

Each 8-bit operation that NNAPI also has in float32 is computed on dequantised values and quantised again, rounded once to
the nearest step; Android's own arithmetic multiplies by a fixed-point factor instead. Answers differ by a step now and then.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from nnbridge.builder import ModelBuilder
from nnbridge.devices.cpu import CpuPreparedModel
from nnbridge.errors import Reason
from nnbridge.model import Model, Operand, Operation
from nnbridge.operations import definition
from nnbridge.operations.matching import input_places, match
from nnbridge.operations.numerics import BY_NAME
from nnbridge.types import WRITTEN, Lifetime, OperandCode, OperationCode

_STEPS = frozenset(
    {
        OperandCode.TENSOR_QUANT8_ASYMM,
        OperandCode.TENSOR_QUANT8_ASYMM_SIGNED,
        OperandCode.TENSOR_QUANT8_SYMM,
        OperandCode.TENSOR_QUANT8_SYMM_PER_CHANNEL,
    }
)
_BIAS = "bias"
_KEPT = frozenset({OperationCode.QUANTIZE, OperationCode.DEQUANTIZE, OperationCode.CAST})
_FLOAT = OperandCode.TENSOR_FLOAT32


def in_float(model: Model) -> Model:
    """The same model with every quantised operation between DEQUANTIZE and QUANTIZE, where NNAPI has it in float32.

    Models with control flow or extensions are left as they are.
    """
    return model if model.referenced or model.extensions else _Rewriter(model).rewritten()


def prepared_with(model: Model, numerics: str) -> CpuPreparedModel:
    """A model on the CPU executor with an arithmetic of :data:`~nnbridge.operations.numerics.BY_NAME`."""
    if not BY_NAME[numerics].in_float:
        return CpuPreparedModel(model, numerics)
    rewritten = in_float(model)
    return CpuPreparedModel(rewritten, numerics, observed=original_operands(model, rewritten))


def original_operands(model: Model, rewritten: Model) -> dict[int, int]:
    """Computed operands and inputs of what :func:`in_float` returned → those of the model that it rewrote."""
    return dict(zip(_variables(rewritten), _variables(model), strict=False))


def _variables(model: Model) -> list[int]:
    """The rewriter copies operands in order, and those that it adds come after them; only constants may go."""
    return [i for i, o in enumerate(model.main.operands) if o.lifetime in (*WRITTEN, Lifetime.SUBGRAPH_INPUT)]


class _Rewriter:
    """One model being built again."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._builder = ModelBuilder(model.name)
        self._floats: dict[int, int] = {}

    def rewritten(self) -> Model:
        main = self._model.main
        for operand in main.operands:
            self._copy(operand)
        for operation in main.operations:
            self._rewrite(operation)
        self._builder.identify_inputs_and_outputs(main.inputs, main.outputs)
        self._builder.relax_computation_float32_to_float16(self._model.relaxed)
        return self._builder.finish()

    def _copy(self, operand: Operand) -> None:
        builder = self._builder
        index = builder.add_operand(
            operand.type, operand.dims, scale=operand.scale, zero_point=operand.zero_point, name=operand.name
        )
        if operand.channel_quant is not None:
            builder.set_operand_symm_per_channel_quant_params(
                index, operand.channel_quant.scales, operand.channel_quant.channel_dim
            )
        if operand.lifetime == Lifetime.NO_VALUE:
            builder.set_operand_value(index, None)
        elif operand.is_constant:
            builder.set_operand_value(index, self._model.bytes_of(operand))

    def _rewrite(self, operation: Operation) -> None:
        operands = self._model.main.operands
        bias = input_places(self._model, operation).get(_BIAS, -1)
        bias = bias if bias >= 0 and operands[operation.inputs[bias]].is_constant else -1
        inputs = [self._wanted(i, place == bias) for place, i in enumerate(operation.inputs)]
        outputs = [self._wanted(i) for i in operation.outputs]
        if not self._has_float_form(operation, inputs, outputs):
            self._builder.add_operation(operation.type, operation.inputs, operation.outputs)
            return
        codes = [operands[i].type for i in operation.inputs]
        sources = [
            i if required == code else self._bias(operation, i) if place == bias else self._dequantised(i)
            for place, (i, required, code) in enumerate(zip(operation.inputs, inputs, codes, strict=True))
        ]
        results = [self._float_like(i) if operands[i].type in _STEPS else i for i in operation.outputs]
        self._builder.add_operation(operation.type, sources, results)
        for i, result in zip(operation.outputs, results, strict=True):
            if result != i:
                self._builder.add_operation(OperationCode.QUANTIZE, [result], [i])

    def _wanted(self, index: int, is_bias: bool = False) -> int:
        code = self._model.main.operands[index].type
        return _FLOAT if code in _STEPS or (is_bias and code == OperandCode.TENSOR_INT32) else code

    def _has_float_form(self, operation: Operation, inputs: Sequence[int], outputs: Sequence[int]) -> bool:
        operands = self._model.main.operands
        if operation.type in _KEPT or not any(operands[i].type in _STEPS for i in (*operation.inputs, *operation.outputs)):
            return False
        declared = definition(operation.type)
        return declared is not None and not isinstance(match(declared, inputs, outputs), Reason)

    def _float_like(self, index: int) -> int:
        operand = self._model.main.operands[index]
        return self._builder.add_operand(_FLOAT, operand.dims, name=operand.name)

    def _dequantised(self, index: int) -> int:
        """The float32 twin of an operand: a constant, or the result of DEQUANTIZE."""
        if index not in self._floats:
            operand = self._model.main.operands[index]
            twin = self._floats[index] = self._float_like(index)
            if operand.is_constant:
                self._builder.set_operand_value(twin, self._real(operand, _scales(operand)))
            else:
                self._builder.add_operation(OperationCode.DEQUANTIZE, [index], [twin])
        return self._floats[index]

    def _bias(self, operation: Operation, index: int) -> int:
        """A bias in float32: its step is that of input times filter, for each channel where the filter has such."""
        operands = self._model.main.operands
        source, filter = (operands[i] for i in operation.inputs[:2])
        twin = self._float_like(index)
        step = np.float32(source.scale) * _scales(filter).reshape(-1)
        self._builder.set_operand_value(twin, self._real(operands[index], step))
        return twin

    def _real(self, operand: Operand, scale: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        steps = self._model.value(operand)
        assert steps is not None
        return (steps.astype(np.float32) - np.float32(operand.zero_point)) * scale


def _scales(operand: Operand) -> npt.NDArray[np.float32]:
    """Scales that broadcast against the operand."""
    if operand.channel_quant is None:
        return np.asarray(operand.scale, np.float32)
    shape = [1] * len(operand.dims)
    shape[operand.channel_quant.channel_dim] = -1
    return np.asarray(operand.channel_quant.scales, np.float32).reshape(shape)
