"""Graphs that LiteRT's MediaTek compiler passed by calls, read back as TFLite's operators.

The compiler makes one operation of each operator, with NNAPI's code or one of its own. Type numbers, the order of operands and
what is lost on the way were found by observing the compiler of ai-edge-litert 2.3; docs/neuron.md has them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NoReturn

import numpy as np

from nnbridge.converters.recorded import RecordedOperand, RecordedOperation, Recording
from nnbridge.errors import Reason, first_line
from nnbridge.records import dataclass
from nnbridge.types import OperandCode, OperationCode, is_extension, split_extension_code
from nnbridge_tflite.neuron.expressed import opaque
from nnbridge_tflite.read.flatbuffer import Span
from nnbridge_tflite.read.graph import Operator, Quantisation, Tensor, TfliteSubgraph, element_type
from nnbridge_tflite.read.schema import builtin_codes

INEXPRESSIBLE = 10001
"""The code of an operator that the compiler cannot pass on."""

_INT8_TYPES = (
    OperandCode.TENSOR_QUANT8_SYMM,
    OperandCode.TENSOR_QUANT8_ASYMM_SIGNED,
    OperandCode.TENSOR_QUANT8_SYMM_PER_CHANNEL,
    9008,
)
ELEMENTS: Mapping[int, str] = {
    OperandCode.TENSOR_FLOAT32: "FLOAT32",
    OperandCode.TENSOR_INT32: "INT32",
    OperandCode.TENSOR_QUANT8_ASYMM: "UINT8",
    OperandCode.TENSOR_QUANT16_SYMM: "INT16",
    OperandCode.TENSOR_FLOAT16: "FLOAT16",
    OperandCode.TENSOR_BOOL8: "BOOL",
    OperandCode.TENSOR_QUANT16_ASYMM: "UINT16",
    **dict.fromkeys(_INT8_TYPES, "INT8"),
    9002: "UINT8",
    9006: "INT16",
    # 4-bit and 2-bit integers come with one byte for each.
    9004: "INT8",
    9005: "INT8",
    9015: "INT8",
    9016: "INT8",
}
"""Type number → TFLite's element type."""
_NARROW = (9004, 9005, 9015, 9016, 9017, 9018)
_SCALARS: Mapping[int, str] = {
    OperandCode.FLOAT32: "f4",
    OperandCode.INT32: "i4",
    OperandCode.UINT32: "u4",
    OperandCode.BOOL: "?",
}


class _Refused(Exception):
    """An operation that cannot be read back."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(str(reason))
        self.reason = reason


@dataclass
class _RecordedOperation:
    """One operation while it becomes an operator."""

    graph: RecordedGraph
    number: int
    name: str
    operation: RecordedOperation
    tensors: list[int]
    scalars: dict[str, Any]
    outputs: tuple[int, ...]

    def refuse(self, rule: str, found: object) -> NoReturn:
        raise _Refused(Reason(rule, str(found), f"operation {self.number} {self.name}"))

    def dims(self, operand: int) -> tuple[int, ...]:
        """The declared dimensions of an operand."""
        return self.graph.recording.operands[operand].dims

    def operator(self, name: str, inputs: Sequence[int], **options: Any) -> Operator:
        """The operator."""
        return Operator(self.number, name, builtin_codes()[name], 1, tuple(inputs), self.outputs, (), options)


Read = Callable[[_RecordedOperation], Operator]


@dataclass(frozen=True)
class _RecordedForm:
    """The form of a recorded operation: TFLite's operator, the names of its scalars in order, and everything that is more than
    names."""

    operator: str
    scalars: tuple[str, ...] = ()
    read: Read | None = None
    optional: int = 0
    """The number of scalars, the last ones, that may be absent."""


def _plain(at: _RecordedOperation) -> Operator:
    """Tensors as inputs in order, scalars as options."""
    options = dict(at.scalars)
    if "padding" in options:
        # NNAPI counts from 1.
        options["padding"] = options["padding"] - 1
    if options.pop("channels_first", False):
        at.refuse("channels last", "channels first")
    return at.operator(at.name, at.tensors, **options)


def _fully_connected(at: _RecordedOperation) -> Operator:
    other_rank = len(at.dims(at.outputs[0])) != 2
    return at.operator(at.name, at.tensors, keep_num_dims=other_rank, **at.scalars)


def _transpose_conv(at: _RecordedOperation) -> Operator:
    plain = _plain(at)
    data, filter, bias, shape = at.tensors
    return replace(plain, inputs=(shape, filter, data, bias))


def _reshape(at: _RecordedOperation) -> Operator:
    shape = at.dims(at.outputs[0])
    known = [i for i in at.tensors[1:] if at.graph.recording.operands[i].value is not None or at.graph.computed(i)]
    return at.operator(at.name, [at.tensors[0], *known], new_shape=list(shape))


def _resize(at: _RecordedOperation) -> Operator:
    first, second = at.scalars.pop("first"), at.scalars.pop("second")
    out = at.dims(at.outputs[0])
    # The compiler has the height first for RESIZE_BILINEAR, where NNAPI has the width; the output's dimensions decide.
    size = next((size for size in ((first, second), (second, first)) if out[1:3] == size), None)
    if size is None:
        at.refuse(f"the output's size of {list(out[1:3])}", [first, second])
    at.scalars.pop("channels_first")
    return at.operator(at.name, [at.tensors[0], at.graph.constant(np.array(size, np.int32))], **at.scalars)


def _split(at: _RecordedOperation) -> Operator:
    data, axis = at.tensors
    return at.operator(at.name, [axis, data], **at.scalars)


def _prelu(at: _RecordedOperation) -> Operator:
    data, alpha = at.tensors
    operands = at.graph.recording.operands
    value = operands[alpha].value
    if ELEMENTS.get(operands[alpha].type) != "FLOAT32" or value is None or operands[alpha].dims != (1,):
        return at.operator(at.name, at.tensors)
    return at.operator("LEAKY_RELU", [data], alpha=float(np.frombuffer(value, "<f4")[0]))


def _unpack(at: _RecordedOperation) -> Operator:
    return at.operator("UNPACK", at.tensors, num=len(at.outputs), **at.scalars)


_FUSED = "fused_activation_function"
_STRIDES = ("padding", "stride_w", "stride_h")
_POOL = (*_STRIDES, "filter_width", "filter_height", _FUSED)
_CONV = (_FUSED, "channels_first", "dilation_w_factor", "dilation_h_factor")
_SIZES = ("first", "second", "channels_first", "align_corners", "half_pixel_centers")
_SLICE_MASKS = ("begin_mask", "end_mask", "shrink_axis_mask")
_UNARY = "LOGISTIC TANH RELU ABS SQRT RSQRT HARD_SWISH MAXIMUM MINIMUM GREATER LESS QUANTIZE DEQUANTIZE CAST"
_PLAIN = "SLICE TILE PAD TRANSPOSE L2_NORMALIZATION"

FORMS: Mapping[int, _RecordedForm] = {
    **{OperationCode[name]: _RecordedForm(name) for name in f"{_UNARY} {_PLAIN}".split()},
    **{OperationCode[name]: _RecordedForm(name, (_FUSED,)) for name in ("ADD", "MUL", "SUB", "DIV")},
    **{OperationCode[name]: _RecordedForm(name, _POOL) for name in ("AVERAGE_POOL_2D", "MAX_POOL_2D")},
    **{
        OperationCode[f"REDUCE_{name.removeprefix('REDUCE_')}"]: _RecordedForm(name, ("keep_dims",))
        for name in ("SUM", "REDUCE_MAX")
    },
    **{OperationCode[name]: _RecordedForm(name, _SIZES, _resize, 2) for name in ("RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR")},
    OperationCode.CONCATENATION: _RecordedForm("CONCATENATION", ("axis",)),
    OperationCode.CONV_2D: _RecordedForm("CONV_2D", (*_STRIDES, *_CONV)),
    OperationCode.DEPTHWISE_CONV_2D: _RecordedForm("DEPTHWISE_CONV_2D", (*_STRIDES, "depth_multiplier", *_CONV)),
    OperationCode.TRANSPOSE_CONV_2D: _RecordedForm("TRANSPOSE_CONV", (*_STRIDES, _FUSED, "channels_first"), _transpose_conv),
    OperationCode.FULLY_CONNECTED: _RecordedForm("FULLY_CONNECTED", (_FUSED,), _fully_connected),
    OperationCode.RESHAPE: _RecordedForm("RESHAPE", (), _reshape),
    OperationCode.SOFTMAX: _RecordedForm("SOFTMAX", ("beta",)),
    OperationCode.MEAN: _RecordedForm("MEAN", ("keep_dims",)),
    OperationCode.STRIDED_SLICE: _RecordedForm("STRIDED_SLICE", _SLICE_MASKS),
    OperationCode.PAD_V2: _RecordedForm("PADV2"),
    OperationCode.SPLIT: _RecordedForm("SPLIT", ("num_splits",), _split),
    OperationCode.BATCH_MATMUL: _RecordedForm("BATCH_MATMUL", ("adj_x", "adj_y")),
    OperationCode.PRELU: _RecordedForm("PRELU", (), _prelu),
    109: _RecordedForm("GELU", ("approximate",)),
}
"""Operation code → how it is read."""
EXTENDED: Mapping[str, _RecordedForm] = {
    "MTKEXT_SQUARED_DIFFERENCE": _RecordedForm("SQUARED_DIFFERENCE"),
    "unpackmtk": _RecordedForm("UNPACK", ("axis",), _unpack),
}
"""Operation of the compiler's extension, by the name that its last operand holds → how it is read."""


class RecordedGraph:
    """A recording as a file's subgraph."""

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self.pool = bytearray()
        self._written = {i for operation in recording.operations for i in operation.outputs}
        self._more: list[Tensor] = []
        self.unreadable: dict[int, Reason] = {}
        self.tensors = [self._tensor(i, operand) for i, operand in enumerate(recording.operands)]
        operators = [self._operator(number, operation) for number, operation in enumerate(recording.operations)]
        tensors = (*self.tensors, *self._more)
        self.subgraph = TfliteSubgraph(recording.name, tensors, tuple(operators), recording.inputs, recording.outputs)

    def computed(self, operand: int) -> bool:
        """True for what an operation writes, and for inputs."""
        return operand in self._written or operand in self.recording.inputs

    def constant(self, array: np.ndarray[Any, Any]) -> int:
        """A tensor of the operator's own."""
        index = len(self.tensors) + len(self._more)
        self._more.append(Tensor(index, "", element_type("INT32"), array.shape, data=self._placed(array.tobytes())))
        return index

    def _placed(self, value: bytes) -> Span:
        self.pool += bytes(-len(self.pool) % 16)
        self.pool += value
        return Span(len(self.pool) - len(value), len(value))

    def _tensor(self, index: int, operand: RecordedOperand) -> Tensor:
        element = element_type(ELEMENTS.get(operand.type, "VARIANT"))
        dims = tuple(max(d, 1) if d < 0 else d for d in operand.dims)
        data = None if operand.value is None or not operand.value else self._placed(operand.value)
        scales, points = operand.scales or (operand.scale,), operand.zero_points or (operand.zero_point,)
        quantised = any(scales)
        if quantised and len(points) < len(scales):
            points = points * len(scales)
        quantisation = Quantisation(scales, points, operand.channel_dim) if quantised else Quantisation()
        return Tensor(index, f"operand {index}", element, dims, operand.dims, data, quantisation)

    def _operator(self, number: int, operation: RecordedOperation) -> Operator:
        try:
            return self._read(number, operation)
        except _Refused as error:
            self.unreadable[number] = error.reason
            return opaque(Operator(number, "", 0, 1, operation.inputs, operation.outputs, (), {}))

    def _read(self, number: int, operation: RecordedOperation) -> Operator:
        operands = self.recording.operands
        label = f"operation {number}"
        if operation.code == INEXPRESSIBLE:
            raise _Refused(Reason("an operator that the compiler can pass on", f"code {INEXPRESSIBLE}", label))
        listed, form = list(operation.inputs), FORMS.get(operation.code)
        if form is None and is_extension(operation.code):
            prefix = split_extension_code(operation.code)[0]
            name = _extended_name(operands[listed.pop()]) if listed and prefix == self.recording.extension else ""
            form = EXTENDED.get(name)
            found = f"the compiler's extension operation {name!r}"
        else:
            found = f"code {operation.code}"
        if form is None:
            raise _Refused(Reason("an operation that nnbridge knows of the compiler", found, label))
        tensors = [i for i in listed if operands[i].type not in _SCALARS]
        scalars = [_scalar(operands[i]) for i in listed if operands[i].type in _SCALARS]
        label = f"{label} {form.operator}"
        if not len(form.scalars) - form.optional <= len(scalars) <= len(form.scalars):
            raise _Refused(Reason(f"{len(form.scalars)} scalars", str(len(scalars)), label))
        for i in (*tensors, *operation.outputs):
            self._check(i, label)
        named = dict(zip(form.scalars, scalars, strict=False))
        reading = _RecordedOperation(self, number, form.operator, operation, tensors, named, operation.outputs)
        try:
            return (form.read or _plain)(reading)
        except ValueError as error:
            raise _Refused(Reason("operands that fit the operator", first_line(error), label)) from error

    def _check(self, index: int, label: str) -> None:
        """Refuse tensors that the calls do not describe well enough."""
        operand, tensor = self.recording.operands[index], self.tensors[index]
        if operand.type in _NARROW and not operand.scale:
            raise _Refused(Reason("4-bit weights with one scale, others are not passed on", "none", label, tensor.name))
        if operand.type not in ELEMENTS:
            raise _Refused(Reason("a type that nnbridge knows of the compiler", f"{operand.type}", label, tensor.name))
        if tensor.data is None and not self.computed(index) and tensor.elements:
            raise _Refused(Reason("a constant with a value", "none", label, tensor.name))
        if tensor.data is not None and tensor.data.length != tensor.bytes_needed:
            raise _Refused(Reason(f"{tensor.bytes_needed} bytes for {tensor}", f"{tensor.data.length}", label, tensor.name))
        quantisation = tensor.quantisation
        if quantisation.per_channel and not (
            quantisation.axis < len(tensor.shape) and tensor.shape[quantisation.axis] == len(quantisation.scales)
        ):
            rule = f"one scale for each index of dimension {quantisation.axis} of {list(tensor.shape)}"
            raise _Refused(Reason(rule, f"{len(quantisation.scales)}", label, tensor.name))
        if not all(0 <= scale < math.inf for scale in quantisation.scales):
            raise _Refused(Reason("finite scales of at least 0", str(min(quantisation.scales)), label, tensor.name))


def _scalar(operand: RecordedOperand) -> Any:
    """The value of a scalar operand."""
    dtype = np.dtype(_SCALARS[operand.type]).newbyteorder("<")
    if operand.value is None or len(operand.value) != dtype.itemsize:
        raise _Refused(
            Reason(f"a scalar of {dtype.itemsize} bytes", "none" if operand.value is None else f"{len(operand.value)}")
        )
    return np.frombuffer(operand.value, dtype)[0].item()


def _extended_name(operand: RecordedOperand) -> str:
    """The name in an operand of the extension: length of a word, the word, length of the name, the name."""
    value = operand.value or b""
    at = 1 + (value[0] if value else 0)
    length = int.from_bytes(value[at : at + 4], "little")
    return value[at + 4 : at + 4 + length].decode("ascii", "replace")
