"""Host operations that have a lowering: lowered once more at the highest level, for their shapes and for their answers.

What the delegate mapping or a low feature level leaves to the host is computed as NNAPI's reference kernels would, which
for 8-bit tensors is TFLite's integer arithmetic.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from nnbridge.converters.draft import Draft, Step, Unmappable
from nnbridge.extensions import HostTensor
from nnbridge.types import RUNTIME_FEATURE_LEVEL
from nnbridge_tflite import families
from nnbridge_tflite.evaluation import evaluated
from nnbridge_tflite.graph import ELEMENT_TYPES, Operator, Quantisation, Tensor
from nnbridge_tflite.kernels import CHANNELS, STATES, Array, Options, Tensors
from nnbridge_tflite.lowering import LOWERINGS, Lowerer
from nnbridge_tflite.values import Values

_TYPES = {e.dtype: e for e in reversed(tuple(ELEMENT_TYPES.values())) if e.dtype is not None}
_BUDGET = 1 << 28


def can_lower(name: str) -> bool:
    """True if the operator has a lowering, or may have one under a custom operator's name."""
    families.load()
    return name in LOWERINGS or name == "CUSTOM"


def reference(name: str, code: int, inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    """The operator's outputs; ValueError if no form of it fits these operands."""
    tensors = [_tensor(i, t, options) for i, t in enumerate((*inputs, *outputs))]
    arrays = {i: t.data for i, t in enumerate(inputs) if t.data is not None}
    custom = "custom_code" in options
    states = options.get(STATES, ())
    count = len(outputs) - len(states)
    operator = Operator(
        index=0,
        name=options.get("custom_code", name),
        code=code,
        version=1,
        inputs=tuple(i if i in arrays else -1 for i in range(len(inputs))),
        outputs=tuple(range(len(inputs), len(inputs) + count)),
        intermediates=(),
        options=options,
        custom=custom,
        custom_options=bytes.fromhex(options.get("custom_options", "")),
    )
    steps, lowerer = _lowered(operator, tensors, arrays, states)
    return evaluated(steps, [*lowerer.outputs, *(lowerer.carried[place] for place in states)])


def shapes(operator: Operator, values: Values) -> list[tuple[int, ...]] | None:
    """The output dimensions that follow from what is known of the inputs; None if no form of the operator fits them."""
    operands = (*operator.inputs, *operator.outputs)
    given = {i: values.constant(i) for i in operator.inputs if i >= 0}
    tensors = []
    for place, index in enumerate(operands):
        tensor = values.tensors[max(index, 0)]
        known = tensor.shape if index in operator.outputs or index < 0 else values.value(index).dims
        tensors.append(replace(tensor, index=place, shape=known if tensor.shape or known != (1,) else ()))
    local = replace(
        operator,
        inputs=tuple(i if index >= 0 else -1 for i, index in enumerate(operator.inputs)),
        outputs=tuple(range(len(operator.inputs), len(operands))),
    )
    arrays = {i: a for i, index in enumerate(operator.inputs) if index >= 0 and (a := given[index]) is not None}
    try:
        return [value.dims for value in _lowered(local, tensors, arrays)[1].outputs]
    except ValueError:
        return None


def _lowered(
    operator: Operator, tensors: Sequence[Tensor], arrays: Mapping[int, Array], states: Sequence[int] = ()
) -> tuple[Sequence[Step], Lowerer]:
    """The first form that fits: its steps, and what it made of the operator."""
    reasons = []
    for form in families.forms(operator):
        values = Values.of_arrays(tensors, arrays, Draft(RUNTIME_FEATURE_LEVEL, _BUDGET), states)
        lowerer = Lowerer(operator, values, "wide")
        try:
            form.lower(lowerer)
        except Unmappable as error:
            reasons.append(str(error.reason))
            continue
        return values.draft.steps, lowerer
    raise ValueError("; ".join(reasons) or "an operator with a lowering")


def _tensor(index: int, tensor: HostTensor, options: Options) -> Tensor:
    element = _TYPES[tensor.dtype]
    channels = options.get(CHANNELS, {}).get(str(index))
    quantisation = Quantisation((tensor.scale,), (tensor.zero_point,)) if tensor.scale > 0 else Quantisation()
    if channels is not None:
        quantisation = Quantisation(tuple(channels["scales"]), tuple(channels["zero_points"]), channels["axis"])
    return Tensor(index, f"operand {index}", element, tensor.dims, quantisation=quantisation)
