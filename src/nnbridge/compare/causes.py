"""Known causes of differences between an operation's result and the reference's.

A cause is never guessed. The operation is computed again, from the reference's values and under the arithmetic that the
cause names; it explains the difference if that removes it (integers: all but a tenth of the unequal elements; real numbers: it
falls to a tenth), or if the difference is no larger than what that arithmetic changes (orders of sums).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, field, replace
from typing import Any

import numpy as np

from nnbridge.compare.arithmetics import arithmetic_device, operand_value
from nnbridge.compare.arrays import Array
from nnbridge.compare.litert_arithmetic import (
    Again,
    compared,
    compared_by_sign,
    hard_swish,
    leaky_relu,
    rescaled,
    resized_to_nearest,
    squared_difference,
)
from nnbridge.compare.samples import sign_flipped
from nnbridge.compare.ties import ORDERED, first_of_equals
from nnbridge.cpu.settings import Tier
from nnbridge.devices.cpu import CPU_NAME, CpuDevice
from nnbridge.devices.device import Device
from nnbridge.devices.requantise import in_float
from nnbridge.errors import NnapiError
from nnbridge.model import Model
from nnbridge.operations.arithmetic import saturate
from nnbridge.operations.numerics import EXACT, LAST_PLACES, NUMERICS, Numerics
from nnbridge.records import dataclass
from nnbridge.runtime.compilation import Compilation
from nnbridge.runtime.execution import Execution
from nnbridge.types import OperandCode, OperationCode, is_extension

SUMS = ("double_sums", "reversed_sums", "lane_sums", "sequential_sums")
_SUM_MARGIN = 4.0
"""How many times what other orders of sums change a difference may be: each order is one sample of the rounding errors."""
_TENTH = 0.1
_TWICE_ROUNDED = 0.75
"""Steps by which a number is off that was rounded to half a step first."""
ROUNDING = ("sum_order", "function_rounding")
"""Kinds that every real operation may have, and that no device could do without."""
_WITHOUT_SUMS = {
    *(OperationCode.ABS, OperationCode.ELU, OperationCode.EXP, OperationCode.FLOOR, OperationCode.HARD_SWISH),
    *(OperationCode.LOG, OperationCode.LOGISTIC, OperationCode.NEG, OperationCode.POW, OperationCode.PRELU),
    *(OperationCode.RELU, OperationCode.RELU1, OperationCode.RELU6, OperationCode.RSQRT, OperationCode.SIN),
    *(OperationCode.SQRT, OperationCode.TANH, OperationCode.ADD, OperationCode.SUB, OperationCode.MUL, OperationCode.DIV),
}
"""Operations of one element, or of two."""
_LITERT = ("litert", "litert-reference")
_DRAWING = ("Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike")
_FUNCTIONS = {OperationCode.LOGISTIC, OperationCode.SOFTMAX, OperationCode.TANH}
_OF_TABLES = "8-bit functions from tables of real numbers"
_OTHERWISE: Mapping[Again, str] = {
    rescaled: "rescales integers in fixed point, NNAPI real numbers between DEQUANTIZE and QUANTIZE",
    compared: "compares integers on a common scale in fixed point, NNAPI real numbers",
    compared_by_sign: "compares integers in fixed point, where a scale of 1 or more leaves only the sign, NNAPI real numbers",
    leaky_relu: "has another multiplier for LEAKY_RELU of numbers below 0 than NNAPI's PRELU",
    hard_swish: "computes HARD_SWISH as one operation and rounds it to 8 bits once, NNAPI as MUL and ADD below feature level 4",
    squared_difference: "computes SQUARED_DIFFERENCE in fixed point as one operation, NNAPI as SUB and MUL",
}
"""What LiteRT computes in integers differently from NNAPI → in which way."""
_HYBRID = (OperationCode.FULLY_CONNECTED, OperationCode.CONV_2D, OperationCode.DEPTHWISE_CONV_2D, OperationCode.TRANSPOSE_CONV_2D)


@dataclass(frozen=True)
class Cause:
    """The cause of one operation's difference from the reference."""

    kind: str
    """A key of :data:`_CAUSES`."""
    operation: str
    """NNAPI's operation; of several that compute the tensor, the last one, unless the kind is that of another."""
    operator: str
    """The source file's operator with its index."""
    sentence: str

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return asdict(self)


@dataclass(frozen=True)
class SharedCause:
    """A cause, and all operators that have it."""

    kind: str
    text: str
    operators: tuple[str, ...]
    """Their names; empty for a cause of the whole model."""


def shared_causes(causes: Iterable[Cause]) -> list[SharedCause]:
    """Causes with the operators that have each, that of most operators first."""
    found: dict[tuple[str, str], list[str]] = {}
    for cause in causes:
        text = cause.sentence.removeprefix(f"{cause.operator}: ")
        found.setdefault((cause.kind, text), []).extend([cause.operator] if text != cause.sentence else [])
    shared = [SharedCause(kind, text, tuple(dict.fromkeys(operators))) for (kind, text), operators in found.items()]
    return sorted(shared, key=lambda each: -len(each.operators))


@dataclass(frozen=True)
class LoneOperation:
    """An operation computed in isolation."""

    model: Model
    """The operations between the tensor and the reference's tensors that it is computed from."""
    inputs: Sequence[Array]
    actual: Array
    expected: Array
    operator: str
    operation: str
    reference: str
    device: str
    stored: Mapping[int, Array] = field(default_factory=dict)
    """Constants of the model that the reference has other values for, from its run before: by operand."""

    @property
    def size(self) -> tuple[float, int]:
        """The largest difference, infinite where only one side is finite, and how many elements differ."""
        apart = _apart(self.actual, self.expected)
        return float(apart.max(initial=0.0)), int((apart != 0).sum())

    def under(self, device: Device, inputs: Sequence[Array] | None = None, model: Model | None = None) -> Array | None:
        """The result on another device, of other inputs or by another model; None if it cannot be computed there."""
        try:
            compilation = Compilation.create(self.model if model is None else model, [device])
            compilation.finish()
            outputs = Execution(compilation).run(list(self.inputs if inputs is None else inputs))
        except NnapiError:
            return None
        result = next(iter(outputs.values()))
        if result.dtype == np.int8 and self.expected.dtype == np.uint8:
            result = _flipped(result)
        return result.astype(self.expected.dtype) if result.shape == self.expected.shape else None

    def off(self, result: Array) -> float:
        """The size of a result's difference: the number of elements of integers, the largest difference of real numbers."""
        if self.expected.dtype.kind != "f":
            return float((result != self.expected).sum())
        return float(_apart(result, self.expected).max(initial=0.0))

    def explained_by(self, result: Array | None) -> bool:
        """True if a result has at most a tenth of the difference."""
        return result is not None and np.inf > self.off(result) <= _TENTH * self.off(self.actual)

    def again(self, computed: Again) -> Array | None:
        """The result by LiteRT's arithmetic; None if it is not of that operation."""
        return computed(self.model, self.inputs, self.expected)

    @property
    def operations(self) -> set[int]:
        """The codes of the operations."""
        return {operation.type for operation in self.model.main.operations}


def explain(case: LoneOperation) -> Cause | None:
    """The first cause that is verified; None if none is."""
    for kind, find in _CAUSES.items():
        sentence = find(case)
        if sentence:
            operation = next((code.name for code in _OF_ONE.get(kind, ()) if code in case.operations), case.operation)
            return Cause(kind, operation, case.operator, f"{case.operator}: {sentence}")
    return None


def _random(case: LoneOperation) -> str:
    """An operator of the host that computes something else each time, or draws from a seed."""
    if not any(map(is_extension, case.operations)):
        return ""
    if case.operator.rpartition(" ")[2] in _DRAWING:
        return f"draws random numbers, which differ from {case.reference}'s"
    first, second = (case.under(CpuDevice(Tier.REFERENCE)) for _ in range(2))
    if first is None or second is None or first.tobytes() == second.tobytes():
        return ""
    return f"draws random numbers, which differ from {case.reference}'s and in each run"


def _state_dropped(case: LoneOperation) -> str:
    """Sequence operators, whose states TFLite's delegate does not pass from run to run."""
    if not case.stored:
        return ""
    resumed = case.model.with_main(case.model.main.operands, case.stored)
    if not case.explained_by(case.under(CpuDevice(Tier.REFERENCE), model=resumed)):
        return ""
    names = ", ".join(case.model.main.operands[i].name for i in case.stored)
    return f"starts each run from its first state; {case.reference} stores the state from run to run ({names})"


def _device(case: LoneOperation) -> str:
    if case.device == CPU_NAME:
        return ""
    plain = case.under(CpuDevice(Tier.REFERENCE))
    if plain is None or case.off(plain) == case.off(case.actual) or not case.explained_by(plain):
        return ""
    return f"{case.device} rounds differently (NNAPI's CPU agrees with {case.reference})"


def _mean(case: LoneOperation) -> str:
    if OperationCode.MEAN not in case.operations or case.expected.dtype.kind == "f":
        return ""
    nearest = case.under(arithmetic_device("single_rounding"))
    if case.explained_by(nearest) or case.explained_by(_rescaled_mean(case)):
        return f"NNAPI's 8-bit MEAN truncates where {case.reference} rounds"
    return ""


def _rescaled_mean(case: LoneOperation) -> Array | None:
    """The mean brought to the output's scale before it is rounded; NNAPI's truncated mean is rescaled by operations of their own.

    LiteRT rounds twice, first to half steps: its values are this mean's if they are 3/4 of a step off at most.
    """
    main = case.model.main
    first, last = main.operands[main.inputs[0]], main.operands[main.outputs[0]]
    axes = next((main.operands[o.inputs[1]] for o in main.operations if o.type == OperationCode.MEAN), None)
    listed = None if axes is None else case.model.value(axes)
    if listed is None or not first.scale or not last.scale:
        return None
    mean = (case.inputs[0].astype(np.float64) - first.zero_point).mean(axis=tuple(map(int, listed.reshape(-1))))
    limits = np.iinfo(case.expected.dtype)
    exact = (mean * first.scale / last.scale + last.zero_point).reshape(case.expected.shape).clip(limits.min, limits.max)
    return np.where(np.abs(exact - case.expected) <= _TWICE_ROUNDED, case.expected, np.rint(exact))


def _sign_flipped(case: LoneOperation) -> str:
    """Kernels of uint8 and of int8 round differently: averages halves; RESIZE_BILINEAR truncates uint8 only."""
    main = case.model.main
    flipped = {i for i, operand in enumerate(main.operands) if sign_flipped(operand, _A_BYTE).dtype == np.int8}
    if not flipped:
        return ""
    signed = OperandCode.TENSOR_QUANT8_ASYMM_SIGNED
    operands = [
        replace(o, type=signed, zero_point=o.zero_point - 128, source_type="") if i in flipped else o
        for i, o in enumerate(main.operands)
    ]
    constants = {i: _flipped(value) for i in flipped if (value := case.model.value(main.operands[i])) is not None}
    inputs = [_flipped(x) if i in flipped else x for i, x in zip(main.inputs, case.inputs, strict=True)]
    result = case.under(CpuDevice(Tier.REFERENCE), inputs, case.model.with_main(operands, constants))
    return (
        f"NNAPI has int8 as uint8 below feature level 4 and computes it as such; {case.reference} computes int8"
        if case.explained_by(result)
        else ""
    )


_A_BYTE = np.zeros(1, np.uint8)


def _flipped(array: Array) -> Array:
    """uint8 as int8 that is offset by 128, and back."""
    return (array.view(np.uint8) ^ np.uint8(0x80)).view(np.int8 if array.dtype == np.uint8 else np.uint8)


def _qdq(case: LoneOperation) -> str:
    if case.reference != "onnxruntime" or case.expected.dtype.kind == "f":
        return ""
    requantised = case.under(arithmetic_device("float_requantised"))
    if requantised is None or not (case.explained_by(requantised) or case.explained_by(_ties_to_even(case))):
        return ""
    return f"{case.reference} computes it in floats between DequantizeLinear and QuantizeLinear"


def _ties_to_even(case: LoneOperation) -> Array | None:
    """The same in floats, quantised with ties to even as by QuantizeLinear; NNAPI's QUANTIZE has them away from zero."""
    model = in_float(case.model)
    main = model.main
    made_by = main.producers.get(main.outputs[0])
    if made_by is None or main.operations[made_by].type != OperationCode.QUANTIZE:
        return None
    values = dict(zip(main.inputs, case.inputs, strict=True))
    real = operand_value(model, values, main.operations[made_by].inputs[0])
    if real is None:
        return None
    out = main.operands[main.outputs[0]]
    return saturate(np.rint(real / np.float32(out.scale)) + out.zero_point, case.expected.dtype)


def _rescaling(case: LoneOperation) -> str:
    if case.expected.dtype.kind == "f":
        return ""
    for again, text in _OTHERWISE.items() if case.reference in _LITERT else ():
        if case.explained_by(case.again(again)):
            return f"{case.reference} {text}"
    for numerics in NUMERICS.values():
        if _changes_integers(numerics, case.reference) and case.explained_by(case.under(arithmetic_device(numerics.name))):
            tables = numerics.real_functions and case.operations & _FUNCTIONS
            return f"{case.reference} has {_OF_TABLES if tables else numerics.text} ({numerics.name})"
    return ""


def _resize(case: LoneOperation) -> str:
    """Both compute float32 sums of uint8, NNAPI without rounding them; of int8 both compute in integers."""
    if case.explained_by(case.again(resized_to_nearest)):
        return f"NNAPI's RESIZE_BILINEAR of uint8 truncates where {case.reference} rounds"
    return ""


def _tie_order(case: LoneOperation) -> str:
    ordered = first_of_equals(case.model, case.inputs)
    if ordered is None or ordered.shape != case.expected.shape or not case.explained_by(ordered.astype(case.expected.dtype)):
        return ""
    return f"equal numbers come in another order: in {case.reference} the first one first, in NNAPI as Android lists them"


def _changes_integers(numerics: Numerics, reference: str) -> bool:
    """LiteRT's kernels of what NNAPI has in 8 bits rescale integers, never floats, whose values may yet be the same."""
    in_float = numerics.in_float or numerics.rounding == "float"
    if in_float and reference in _LITERT:
        return False
    return numerics.rounding != EXACT.rounding or (numerics.in_float and not numerics.halves)


def _dynamic_range(case: LoneOperation) -> str:
    """LiteRT quantises each row of a hybrid operator's input to 8 bits, symmetrically or over its range."""
    if case.expected.dtype != np.float32 or not case.operations & set(_HYBRID):
        return ""
    for quantised in (_symmetric, _asymmetric):
        inputs = [quantised(x) if k == 0 and x.dtype == np.float32 else x for k, x in enumerate(case.inputs)]
        if case.explained_by(case.under(arithmetic_device("exact"), inputs)):
            return f"only weights are quantised: {case.reference} quantises its input at run time, NNAPI computes on floats"
    return ""


def _rows(x: Array) -> Array:
    return x.reshape(len(x), -1) if x.ndim > 1 else x.reshape(1, -1)


def _symmetric(x: Array) -> Array:
    rows = _rows(x)
    scale = np.maximum(np.abs(rows).max(axis=1, keepdims=True), np.float32(1e-30)) / np.float32(127)
    steps = np.clip(np.rint(rows / scale), -127, 127)
    return (steps * scale).astype(np.float32).reshape(x.shape)


def _asymmetric(x: Array) -> Array:
    rows = _rows(x)
    low, high = np.minimum(rows.min(axis=1, keepdims=True), 0), np.maximum(rows.max(axis=1, keepdims=True), 0)
    scale = np.maximum(high - low, np.float32(1e-30)) / np.float32(255)
    zero = np.clip(np.rint(-128 - low / scale), -128, 127)
    steps = np.clip(np.rint(rows / scale) + zero, -128, 127)
    return ((steps - zero) * scale).astype(np.float32).reshape(x.shape)


def _sum_order(case: LoneOperation) -> str:
    """Rounding errors of sums: no larger than a few times what other orders change."""
    if case.expected.dtype != np.float32 or case.operations <= _WITHOUT_SUMS or case.off(case.actual) == np.inf:
        return ""
    results = [r for name in SUMS if (r := case.under(arithmetic_device(name))) is not None]
    spread = max((_largest(result, case.actual) for result in results), default=0.0)
    if spread == 0 or case.off(case.actual) > _SUM_MARGIN * spread:
        return ""
    return "float sums in another order; other orders of the sums change as much"


def _function(case: LoneOperation) -> str:
    """Differences of a few units in the last place, of the element or of the largest number that the operation reads."""
    if case.expected.dtype != np.float32:
        return ""
    with np.errstate(all="ignore"):
        numbers = [x for x in case.inputs if x.dtype == np.float32] or [case.expected]
        largest = max(np.abs(x[np.isfinite(x)]).max(initial=0.0) for x in numbers)
        magnitudes = np.maximum(np.where(np.isfinite(case.expected), np.abs(case.expected), 0), np.float32(largest))
        near = _apart(case.actual, case.expected) <= LAST_PLACES * np.spacing(magnitudes)
    return f"its function rounds differently, by {LAST_PLACES} units in the last place at most" if near.all() else ""


def _apart(a: Array, b: Array) -> Array:
    """The distance of numbers, complex ones too: infinite if only one is finite, 0 if they are the same."""
    with np.errstate(all="ignore"):
        difference = np.abs(a.astype(np.result_type(a.dtype, np.float64)) - b)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    return np.where(same, 0.0, np.where(np.isnan(difference), np.inf, difference))


def _largest(a: Array, b: Array) -> float:
    apart = _apart(a, b)
    return float(apart[np.isfinite(apart)].max(initial=0.0))


_CAUSES: Mapping[str, Callable[[LoneOperation], str]] = {
    "random_numbers": _random,
    "state_dropped": _state_dropped,
    "device_arithmetic": _device,
    "mean_truncates": _mean,
    "sign_flipped": _sign_flipped,
    "qdq_in_float": _qdq,
    "resize_truncates": _resize,
    "rescaling": _rescaling,
    "tie_order": _tie_order,
    "sum_order": _sum_order,
    "function_rounding": _function,
    "dynamic_range": _dynamic_range,
}
"""Kind → what explains a case, or an empty text. The cheap and narrow ones come first."""
KINDS = tuple(_CAUSES)
"""Of causes, in the order in which they are tried."""
_OF_ONE: Mapping[str, Sequence[OperationCode]] = {"mean_truncates": (OperationCode.MEAN,), "tie_order": ORDERED}
"""Kinds of one operation, which others may follow, such as those that bring a mean to the output's scale."""
