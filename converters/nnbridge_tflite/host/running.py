"""Computation of host operations: by their own kernels, or lowered once more and computed by NNAPI's.

What the delegate mapping or a low feature level leaves to the host is computed as NNAPI's reference kernels would, which for
8-bit tensors is TFLite's integer arithmetic. Both ways are bound when an operation is prepared; only a lowering that requires
values which only execution knows (such as a computed axis) is repeated with them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from nnbridge.budget import conversion_budget
from nnbridge.converters.assembly import DraftedModel
from nnbridge.converters.draft import Draft, Step, Unmappable, Value
from nnbridge.errors import ConversionError, NnapiError
from nnbridge.extensions import TYPES, Arg, HostKernel, HostPrepare, ModelKernel, PreparedHostKernel
from nnbridge.model import Array
from nnbridge.operations.arithmetic import by_table
from nnbridge.operations.kernels import Function
from nnbridge.types import RUNTIME_FEATURE_LEVEL, TYPE_FACTS
from nnbridge_tflite.custom import required_of
from nnbridge_tflite.declaration import REGISTRY, OperandKind, TfliteOperator, definition_of
from nnbridge_tflite.host.codes import CHANNELS, PARAMETERS, SCALARS, STATES
from nnbridge_tflite.host.hybrid import is_hybrid
from nnbridge_tflite.host.kinds import check_kind, within_domain
from nnbridge_tflite.host.numbers import Options, Tensors, joined, quantised
from nnbridge_tflite.host.sixteen_bits import is_sixteen
from nnbridge_tflite.lowerer import Lowerer, UnknownValue
from nnbridge_tflite.passes.values import TensorValues
from nnbridge_tflite.read.graph import Operator, Quantisation, Tensor, element_of

Way: TypeAlias = "Callable[[Tensors], Sequence[Array]]"
"""Computes an operator's outputs; ValueError where it does not compute these operands."""

CUSTOM = "CUSTOM"
_CONSTANTS, _CONSTANTS_ALONE = 1 << 22, 1 << 28
"""Elements of new constants that a lowering may make, beside a kernel and where there is no other way."""


def host_tensor(value: Value, data: Array | None) -> Arg:
    """A drafted operand as host kernels see it."""
    dims = value.dims if data is None else data.shape
    return Arg(value.type, dims, value.scale, value.zero_point, value=data, present=not value.omitted)


def element_type(value: Value) -> np.dtype[Any]:
    """NumPy's element type of a value; bytes where none is declared."""
    declared = TYPES.operand_type(value.type) if value.extension else TYPE_FACTS.get(value.type)
    return np.dtype((declared.dtype if declared is not None else None) or "u1")


# -- host operations -----------------------------------------------------------------------------------------------------------


def computable(declared: TfliteOperator) -> bool:
    """True if the host can compute an operator."""
    return bool(declared.kernel or declared.sixteen_bits or declared.lowerings) or declared.name == CUSTOM


def preparation(declared: TfliteOperator, code: int) -> HostPrepare | None:
    """The preparation of an operation of the extension; None where nothing computes it."""
    return partial(prepare, declared, code) if computable(declared) else None


def prepare(
    declared: TfliteOperator, code: int, inputs: Tensors, outputs: Tensors, options: Options
) -> PreparedHostKernel | ModelKernel:
    """A kernel between NNAPI's operands and TFLite's tensors, for these dimensions and constants.

    Operands of extension types get their parameters from the options, and results the declared dimensions: what is a scalar in
    TFLite is a vector of one element here.
    """
    declared = REGISTRY.get(options.get("custom_code", "")) or declared
    if CHANNELS in options and not declared.per_channel and not declared.lowerings:
        raise ValueError("one scale for each tensor")
    options = declared.complete(options)
    carried, scalars = options.get(PARAMETERS, {}), options.get(SCALARS, ())
    inputs = [
        _reshaped(t, ()) if i in scalars and math.prod(t.dims) == 1 else t
        for i, t in enumerate(_with_parameters(inputs, carried.get("inputs", {})))
    ]
    outputs = _with_parameters(outputs, carried.get("outputs", {}))
    check_kind(declared.name, inputs, outputs)
    if declared.preparing is not None:
        with suppress(ValueError):
            prepared = declared.preparing(inputs, outputs, options)
            if prepared is not None:
                return prepared
    table = _table(declared, inputs, outputs, options)
    if table is not None:
        return within_domain(declared.name, inputs, lambda arrays: [_shaped(table(np.asarray(arrays[0])), outputs[0].dims)])
    ways = _ways(declared, code, inputs, outputs, options)
    if not ways:
        custom = options.get("custom_code")
        raise ValueError(declared.refusal if custom is None else required_of(custom))

    def run(arrays: Sequence[Array | None]) -> Sequence[Array]:
        tensors = [
            tensor if array is None else tensor.with_value(array.reshape(tensor.dims), tensor.dims)
            for tensor, array in zip(inputs, arrays, strict=True)
        ]
        # Kernels of recurrent operators always return their new states, which no operator may read.
        return shaped(_first(ways, tensors))

    def shaped(results: Sequence[Array]) -> Sequence[Array]:
        return [_shaped(np.asarray(result), out.dims) for result, out in zip(results[: len(outputs)], outputs, strict=True)]

    way = ways[0]
    return (way.kernel(shaped) if isinstance(way, _Drafted) else None) or within_domain(declared.name, inputs, run)


def _table(declared: TfliteOperator, inputs: Tensors, outputs: Tensors, options: Options) -> Function | None:
    """A function of 8-bit numbers that TFLite has a table for, by the results of all of them."""
    if not declared.tabled or declared.kernel is None or any(t.dtype.itemsize != 1 or t.scale == 0 for t in (*inputs, *outputs)):
        return None
    limits = np.iinfo(str(inputs[0].dtype))
    every = np.arange(limits.min, limits.max + 1).astype(inputs[0].dtype)
    with np.errstate(all="ignore"):  # As in a run.
        [found] = declared.kernel([inputs[0].with_value(every, (256,))], [outputs[0].with_value(None, (256,))], options)
    return by_table(inputs[0], outputs[0], found)


def _with_parameters(tensors: Tensors, parameters: Mapping[str, Sequence[float]]) -> Tensors:
    found = [parameters.get(str(i)) for i in range(len(tensors))]
    return [replace(t, scale=p[0], zero_point=int(p[1])) if p is not None else t for t, p in zip(tensors, found, strict=True)]


def _first(ways: Sequence[Way], tensors: Tensors) -> Sequence[Array]:
    """The results of the first way that computes these operands; ValueError with the reasons of all of them."""
    refused: dict[str, None] = {}
    for way in ways:
        try:
            return way(tensors)
        except ValueError as error:
            refused[str(error)] = None
    raise ValueError("; ".join(refused))


def _shaped(result: Array, dims: tuple[int, ...]) -> Array:
    if dims and 0 not in dims and math.prod(dims) == result.size:
        return result.reshape(dims)
    return result.reshape(1) if result.ndim == 0 else result


def _ways(declared: TfliteOperator, code: int, inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Way]:
    """The ways to compute an operator on these operands, in the order tried."""
    lowering: Way | None = None
    if declared.lowerings:
        lowering = _lowering(declared.name, code, *_joined(declared, inputs, outputs), options)
    kernels = {operands: partial(_computed, kernel, outputs, options) for operands, kernel in declared.kernels.items()}
    plain = None if declared.kernel is None else partial(_computed, declared.kernel, outputs, options)
    sixteen = kernels.get(OperandKind.INTEGERS) or kernels.get(OperandKind.SIXTEEN_BITS)
    integers, wide = any(map(quantised, inputs[:1])), is_sixteen((*inputs[:3], *outputs))
    ordered = [
        (kernels.get(OperandKind.HYBRID), is_hybrid(inputs)),
        (kernels.get(OperandKind.FLOATS), any(out.dtype == np.float32 for out in outputs[:1])),
        (kernels.get(OperandKind.INTEGERS), integers),
        (kernels.get(OperandKind.CHANNELS), integers and CHANNELS in options),
        (sixteen, wide),
        # NNAPI's kernels compute 8-bit integers as TFLite does.
        (lowering, any(t.dtype.itemsize == 1 and t.scale > 0 for t in (*inputs, *outputs))),
        (plain, True),
        (lowering, True),
        (sixteen, integers or not (plain or lowering)),
    ]
    return list(dict.fromkeys(way for way, fits in ordered if way is not None and fits))


def _computed(kernel: HostKernel, outputs: Tensors, options: Options, tensors: Tensors) -> Sequence[Array]:
    return kernel(tensors, outputs, options)


def _joined(declared: TfliteOperator, inputs: Tensors, outputs: Tensors) -> tuple[Tensors, Tensors]:
    """The operands of an operator on elements or rows, without the dimensions that NNAPI's operations have no place for."""
    shapes = [tensor.dims for tensor in (*inputs, *outputs)]
    apart = declared.elementwise or declared.rows
    if not apart or max(map(len, shapes)) <= 4 or any(0 in shape for shape in shapes):
        return inputs, outputs
    found = iter(joined(shapes) if declared.elementwise else [(math.prod(shape[:-1]), shape[-1]) for shape in shapes])
    return tuple(_reshaped(tensor, next(found)) for tensor in inputs), tuple(_reshaped(tensor, next(found)) for tensor in outputs)


def _reshaped(tensor: Arg, dims: tuple[int, ...]) -> Arg:
    return tensor.with_value(None if tensor.value is None else tensor.value.reshape(dims), dims)


class _Drafted:
    """A way by drafted operations: the computed inputs by place, and their model with the results that it computes."""

    def __init__(self, steps: Sequence[Step], inputs: Mapping[int, Value], results: Sequence[Value]) -> None:
        self._inputs, self._results = inputs, results
        self._drafted = DraftedModel(steps, list(inputs.values()), results)

    def __call__(self, tensors: Tensors) -> Sequence[Array]:
        return self._drafted(self._arguments([tensor.value for tensor in tensors]))

    def kernel(self, shaped: Callable[[Sequence[Array]], Sequence[Array]]) -> ModelKernel | None:
        """The kernel of the model; None where a result is not the model's own."""
        model = self._drafted.model
        return None if model is None or self._drafted.passed else ModelKernel(model, tuple(self._inputs), self._arguments, shaped)

    def _arguments(self, arrays: Sequence[Array | None]) -> list[Array | None]:
        return [_as_nnapi(arrays[i], value) for i, value in self._inputs.items()]


def _lowering(name: str, code: int, inputs: Tensors, outputs: Tensors, options: Options) -> Way:
    """The first lowering that fits: found now if constants are enough, else at each run with all values."""

    def bound(tensors: Tensors) -> Way:
        states = options.get(STATES, ())
        operands = [_tensor(i, t, options) for i, t in enumerate((*tensors, *outputs))]
        arrays = {i: t.value for i, t in enumerate(tensors) if t.value is not None}
        operator = Operator(
            index=0,
            name=options.get("custom_code", name),
            code=code,
            version=1,
            inputs=tuple(i if t.present else -1 for i, t in enumerate(tensors)),
            outputs=tuple(range(len(tensors), len(operands) - len(states))),
            intermediates=(),
            options=options,
            custom="custom_code" in options,
            custom_options=bytes.fromhex(options.get("custom_options", "")),
        )
        lowerer = lowered(operator, operands, arrays, states)
        computed = {i: lowerer.values.value(i) for i in operator.inputs if i >= 0 and i not in arrays}
        results = [*lowerer.outputs, *(lowerer.carried[i] for i in states)]
        return _Drafted(lowerer.draft.steps, computed, results)

    try:
        return bound([replace(t, present=True) if t.value is not None else t for t in inputs])
    except _NeedsValues:
        return lambda tensors: bound([replace(t, present=t.value is not None) for t in tensors])(tensors)
    except (ValueError, NnapiError) as error:
        return partial(_refused, ValueError(str(error)))


class _NeedsValues(ValueError):
    """No lowering fits, one of them because a value is not known yet."""


def _refused(error: ValueError, tensors: Tensors) -> Sequence[Array]:
    raise error


def _as_nnapi(array: Array | None, value: Value) -> Array:
    if array is None:
        raise ValueError("a required input is missing")
    return (array.view(np.uint8) if array.dtype == np.bool_ else array).reshape(value.dims)


def lowered(operator: Operator, tensors: Sequence[Tensor], arrays: Mapping[int, Array], states: Sequence[int] = ()) -> Lowerer:
    """An operator by the first of its lowerings that fits, at the highest feature level; ValueError if none does."""
    declared = definition_of(operator)
    errors: list[Exception] = []
    budget = _CONSTANTS if declared is not None and declared.kernel is not None else _CONSTANTS_ALONE
    for lowering in declared.lowerings if declared is not None else ():
        values = TensorValues.of_arrays(tensors, arrays, Draft(RUNTIME_FEATURE_LEVEL, conversion_budget(elements=budget)), states)
        lowerer = Lowerer(declared, operator, values)
        try:
            lowering.lower(lowerer)
        except (Unmappable, ConversionError) as error:
            errors.append(error)
            continue
        return lowerer
    kind = _NeedsValues if any(isinstance(error, UnknownValue) for error in errors) else ValueError
    raise kind("; ".join(map(str, errors)) or "an operator with a lowering")


def _tensor(index: int, tensor: Arg, options: Options) -> Tensor:
    channels = options.get(CHANNELS, {}).get(str(index))
    quantisation = Quantisation((tensor.scale,), (tensor.zero_point,)) if tensor.scale > 0 else Quantisation()
    if channels is not None:
        quantisation = Quantisation(tuple(channels["scales"]), tuple(channels["zero_points"]), channels["axis"])
    # NNAPI's 8-bit integers have a scale, its truth values have none.
    truth = tensor.dtype == np.uint8 and not quantisation.scales
    element = element_of(np.dtype(np.bool_) if truth else tensor.dtype)
    return Tensor(index, f"operand {index}", element, tensor.dims, quantisation=quantisation)
