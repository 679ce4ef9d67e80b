"""16-bit activations, which NNAPI computes nothing with: the operator runs on float32 between two conversions on the host."""

from __future__ import annotations

import json

import numpy as np

from nnbridge.converters.draft import Step, Value
from nnbridge_tflite.extension import extension_code, options_value
from nnbridge_tflite.graph import Operator, Subgraph, Tensor
from nnbridge_tflite.kernels import AS_STORED, PARAMETERS
from nnbridge_tflite.lowering import FLOAT32, Lowerer
from nnbridge_tflite.schema import builtin_codes

TAKEN_AS_STORED = AS_STORED | {"CAST", "LOG", "LSH_PROJECTION"}
"""Operators that do not compute with the real numbers that integers stand for, or not everywhere."""


class FloatLowerer(Lowerer):
    """Sees quantised operands as float32, and writes quantised outputs from float32."""

    def input(self, i: int) -> Value:
        """Input ``i`` as float32 if it is quantised."""
        tensor, value = self.tensor(i), super().input(i)
        if not tensor.quantisation.scales:
            return value
        array = self.values.constant(tensor.index)
        if array is None:
            return self._on_host("DEQUANTIZE", value, Value(FLOAT32, value.dims), tensor)
        self.draft.spend(array.size)
        scales = np.asarray(tensor.quantisation.scales, np.float64)
        if tensor.quantisation.per_channel:
            shape = [1] * array.ndim
            shape[tensor.quantisation.axis] = -1
            scales = scales.reshape(shape)
        centred = array.astype(np.float64) - tensor.quantisation.zero_point
        return Value(FLOAT32, value.dims, name=tensor.name, data=(centred * scales).astype(np.float32).reshape(value.dims))

    def carry(self, i: int, value: Value) -> Value:
        """States of integers are not kept as floats."""
        self.require(not self.is_state(i), "float states", self.tensor(i))
        return value

    def open_outputs(self) -> list[Value]:
        """Put float32 values in the place of quantised outputs; gives the quantised ones."""
        quantised = self.outputs
        pairs = zip(self.operator.outputs, quantised, strict=True)
        self.outputs = [
            Value(FLOAT32, value.dims) if self.values.tensors[index].quantisation.scales else value for index, value in pairs
        ]
        return quantised

    def close_outputs(self, quantised: list[Value]) -> None:
        """Write the quantised outputs."""
        for index, made, value in zip(self.operator.outputs, self.outputs, quantised, strict=True):
            if made is not value:
                value.dims = made.dims
                self._on_host("QUANTIZE", made, value, self.values.tensors[index])
        self.outputs = quantised

    def _on_host(self, name: str, value: Value, out: Value, tensor: Tensor) -> Value:
        step_name = f"{self.operator.index}: {self.name} {self.output_tensor().name} ({name})"
        code = extension_code(builtin_codes()[name])
        self.draft.add(Step(code, (value, options_value(_parameters(value, tensor, out))), (out,), step_name, "host"))
        return out


def _parameters(value: Value, tensor: Tensor, out: Value) -> bytes:
    """A conversion's options: the parameters, where the operand's type cannot have them."""
    side = "inputs" if value.extension else "outputs" if out.extension else ""
    listed = {side: {"0": [tensor.quantisation.scale, tensor.quantisation.zero_point]}}
    return json.dumps({PARAMETERS: listed} if side else {}).encode()


def has_sixteen_bits(operator: Operator, graph: Subgraph) -> bool:
    """True if the operator reads or answers quantised 16-bit data (state alone does not count)."""
    if operator.name in TAKEN_AS_STORED:
        return False
    found = (graph.tensors[i] for i in (*operator.inputs[:3], *operator.outputs) if i >= 0)
    return any(t.type.name == "INT16" and t.quantisation.scales for t in found)
