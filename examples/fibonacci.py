"""The Fibonacci extension: a vendor extension with its driver, after AOSP's example.

``com.example.fibonacci`` defines a scalar type, a tensor type and one operation, which returns the first n Fibonacci numbers. The
runtime knows the sizes of the types and nothing else: the driver validates operands and operation.

    nnbridge plan model.nnapi --device examples.fibonacci:FIBONACCI
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

import numpy as np

from nnbridge.devices.cpu import check_deadline
from nnbridge.devices.device import Capabilities, Device, Performance, PreparedModel, Support
from nnbridge.devices.functions import Array, FunctionPreparedModel, Tensor
from nnbridge.errors import BadDataError, OpFailedError, Reason
from nnbridge.extensions import Extension, ExtensionOperandType
from nnbridge.model import Model, Operation
from nnbridge.types import DeviceTypeCode, OperandCode, PreferenceCode, PriorityCode

NAME = "com.example.fibonacci"
EXAMPLE_INT64 = 0
"""A 64-bit integer, a scalar."""
EXAMPLE_TENSOR_QUANT64_ASYMM = 1
"""A tensor of 64-bit integers; its extension data is a :data:`PARAMS`: real = (value - zero point) * scale."""
EXAMPLE_FIBONACCI = 0
"""Input 0: n, an EXAMPLE_INT64 or a TENSOR_FLOAT32 of one element. Output 0: the first n Fibonacci numbers, of shape [n]."""

PARAMS = struct.Struct("=dq")
"""Scale (double) and zero point (int64)."""

EXTENSION = Extension(
    NAME,
    (
        ExtensionOperandType(EXAMPLE_INT64, is_tensor=False, byte_size=8, name="INT64", dtype="i8"),
        ExtensionOperandType(EXAMPLE_TENSOR_QUANT64_ASYMM, is_tensor=True, byte_size=8, name="QUANT64_ASYMM", dtype="i8"),
    ),
)
INPUTS = ((NAME, EXAMPLE_INT64), OperandCode.TENSOR_FLOAT32)
OUTPUTS = ((NAME, EXAMPLE_TENSOR_QUANT64_ASYMM), OperandCode.TENSOR_FLOAT32)
MAX_N = 92
"""The last Fibonacci number below 2**63."""


class FibonacciDriver(Device):
    """Supports EXAMPLE_FIBONACCI and nothing else."""

    name = "fibonacci-driver"
    version = "JUST_AN_EXAMPLE"
    type = DeviceTypeCode.OTHER

    @property
    def capabilities(self) -> Capabilities:
        """No other device has the operation: its performance does not matter."""
        return Capabilities({OperandCode.TENSOR_FLOAT32: Performance(1.0, 1.0)})

    def supported_extensions(self) -> Sequence[Extension]:
        """The extension with the sizes of its types."""
        return (EXTENSION,)

    def supported_operations(self, model: Model) -> Sequence[Support]:
        """True, or the reason of the refusal, for each operation."""
        return [_refused(model, operation) or True for operation in model.main.operations]

    def prepare_model(
        self,
        model: Model,
        preference: int = PreferenceCode.FAST_SINGLE_ANSWER,
        priority: int = PriorityCode.MEDIUM,
        deadline: int | None = None,
    ) -> PreparedModel:
        """BAD_DATA for a model with other operations."""
        check_deadline(deadline)
        for operation in model.main.operations:
            refused = _refused(model, operation)
            if refused is not None:
                raise BadDataError(refused)
        return FunctionPreparedModel(model, [fibonacci] * len(model.main.operations))


def _refused(model: Model, operation: Operation) -> Reason | None:
    """The validation that the runtime leaves to the driver. The model's own prefixes resolve the names."""
    name = model.operation_name(operation)
    if model.extension_of(operation.type) != (NAME, EXAMPLE_FIBONACCI):
        return Reason(f"{NAME}#{EXAMPLE_FIBONACCI}", name, name)
    for what, indexes, types in (("input", operation.inputs, INPUTS), ("output", operation.outputs, OUTPUTS)):
        if len(indexes) != 1:
            return Reason(f"one {what}", str(len(indexes)), name)
        operand = model.main.operands[indexes[0]]
        if (model.extension_of(operand.type) or operand.type) not in types:
            return Reason("a type of the extension, or TENSOR_FLOAT32", str(operand), name, f"{what} 0")
        if operand.type == OperandCode.TENSOR_FLOAT32 and what == "input" and operand.dims not in ((1,), (0,), ()):
            return Reason("one element", str(operand), name, "input 0")
        if model.extension_of(operand.type) == OUTPUTS[0] and len(operand.extension_data or b"") != PARAMS.size:
            return Reason(f"{PARAMS.size} bytes of parameters", str(operand.extension_data), name, "output 0")
    return None


def fibonacci(inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> Sequence[Array]:
    """The first n numbers; OP_FAILED unless n is a whole number from 1 to 92."""
    n = float(inputs[0].data.item())
    if not (n.is_integer() and 1 <= n <= MAX_N):
        raise OpFailedError(Reason(f"a whole number from 1 to {MAX_N}", str(n), NAME, "input 0"))
    numbers = [1, 1]
    while len(numbers) < n:
        numbers.append(numbers[-1] + numbers[-2])
    values = np.array(numbers[: int(n)], np.float64 if outputs[0].extension_data is None else np.int64)
    if outputs[0].extension_data is None:
        return [values]
    scale, zero_point = PARAMS.unpack(outputs[0].extension_data)
    return [np.rint(values / scale).astype(np.int64) + zero_point]


FIBONACCI = FibonacciDriver()
