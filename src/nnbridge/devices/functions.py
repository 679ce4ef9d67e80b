"""Prepared models whose operations are Python functions of NumPy arrays: the host's, and those of drivers with own kernels."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeAlias

import numpy as np

from nnbridge.devices.cpu import CpuPreparedModel, check_deadline
from nnbridge.devices.device import (
    Capabilities,
    Device,
    OutputBuffer,
    OutputShape,
    Performance,
    PreparedModel,
    PrepareModelConfig,
    Request,
    Result,
    Support,
    uniform_capabilities,
)
from nnbridge.errors import BadDataError, MissedDeadlineTransientError, NnapiError, OpFailedError, Reason, Why, pass_shortage
from nnbridge.extensions import HostTensor, operand_dtype
from nnbridge.model import Array, Model, Operand, Operation, Subgraph, known
from nnbridge.types import RUNTIME_FEATURE_LEVEL, DeviceTypeCode, Lifetime, OperandCode, ResultCode

Tensor: TypeAlias = HostTensor
"""An operand as a function sees it."""
Function: TypeAlias = "Callable[[Sequence[Tensor], Sequence[Tensor]], Sequence[Array]]"
"""``function(inputs, outputs)`` returns the output arrays; ``outputs`` carry the declared types, dimensions and parameters."""


class FunctionGraph:
    """A subgraph whose operations run in order, each by its function.

    A function refuses its operands with an :class:`~nnbridge.errors.NnapiError` or by whatever else it raises; an output
    that does not fit its declaration is refused for it.
    """

    def __init__(self, model: Model, subgraph: Subgraph, functions: Sequence[Function], names: Sequence[str]) -> None:
        self.declared = [_declared(model, operand) for operand in subgraph.operands]
        """Each operand as declared, with data if it is a constant."""
        self._subgraph = subgraph
        labels = [f"{name} ({o.name})" if o.name else name for name, o in zip(names, subgraph.operations, strict=True)]
        self._steps = [
            (o.inputs, o.outputs, [self.declared[i] for i in o.outputs], function, label)
            for o, function, label in zip(subgraph.operations, functions, labels, strict=True)
        ]

    def run(
        self, inputs: Sequence[Array | None], deadline: int | None = None, observe: Callable[[int, Array], None] | None = None
    ) -> list[Array]:
        """The subgraph's outputs; NnapiError if an operation fails or the deadline (``time.monotonic_ns``) passes."""
        values: dict[int, Array | None] = dict(zip(self._subgraph.inputs, inputs, strict=True))
        if observe is not None:
            for i, value in values.items():
                if value is not None:
                    observe(i, value)
        for operands, outputs, declared, function, label in self._steps:
            if deadline is not None and time.monotonic_ns() > deadline:
                raise MissedDeadlineTransientError("the execution's deadline has passed")
            results = _computed(function, [self._tensor(i, values) for i in operands], declared, label)
            values.update(zip(outputs, results, strict=True))
            if observe is not None:
                for i, result in zip(outputs, results, strict=True):
                    observe(i, result)
        return [self._value(i, values) for i in self._subgraph.outputs]

    def bind(self, inputs: Sequence[Array | None], outputs: Sequence[tuple[int, ...]]) -> Callable[[], list[Array]]:
        """A run on these arrays each time, for outputs of these dimensions. Raises what a run reports."""
        values: dict[int, Array | None] = {i: tensor.data for i, tensor in enumerate(self.declared)}
        values.update(zip(self._subgraph.inputs, inputs, strict=True))
        steps = [
            (operands, tuple(zip(written, declared, strict=True)), self._compute(operands, declared, function, values), label)
            for operands, written, declared, function, label in self._steps
        ]
        ends = list(zip(self._subgraph.outputs, outputs, strict=True))

        def run() -> list[Array]:
            with np.errstate(all="ignore"):
                for operands, written, compute, label in steps:
                    results = compute([values[i] for i in operands])
                    for (i, declared), result in zip(written, results, strict=True):
                        value = values[i] = _typed(np.asarray(result), declared, label)
                        if value.shape != declared.dims and not _fits(value, declared):
                            raise OpFailedError(Reason(f"an output of {list(declared.dims)}", str(list(value.shape)), label))
            found = []
            for i, dims in ends:
                found.append(self._value(i, values))
                if found[-1].shape != dims:
                    raise OpFailedError(Reason(f"an output of {list(dims)} as before", str(list(found[-1].shape))))
            return found

        return run

    def _compute(
        self, operands: Sequence[int], outputs: Sequence[Tensor], function: Function, values: Mapping[int, Array | None]
    ) -> Callable[[Sequence[Array | None]], Sequence[Array]]:
        """A function of arrays: prepared for dimensions that are known before it runs, where it can be."""
        tensors = [self._seen(i, values) for i in operands]
        prepare = getattr(function, "bind", None)
        ready = all(t.omitted or t.data is not None or known(t.dims) for t in tensors)
        prepared = prepare(tensors, outputs) if prepare is not None and ready else None
        if prepared is not None:
            return prepared
        return lambda arrays: function(
            [t if array is None else replace(t, data=array, dims=array.shape) for t, array in zip(tensors, arrays, strict=True)],
            outputs,
        )

    def _seen(self, i: int, values: Mapping[int, Array | None]) -> Tensor:
        """An operand as far as it is known before a run on bound arrays."""
        declared, value = self.declared[i], values[i]
        if self._absent(i, values):
            return replace(declared, omitted=True)
        return declared if value is None else replace(declared, dims=value.shape)

    def _absent(self, i: int, values: Mapping[int, Array | None]) -> bool:
        return i in self._subgraph.inputs and values[i] is None

    def _tensor(self, i: int, values: dict[int, Array | None]) -> Tensor:
        tensor, data = self.declared[i], values.get(i)
        if data is None:
            return tensor if tensor.data is not None or tensor.omitted else replace(tensor, omitted=True)
        return Tensor(data, data.shape, tensor.dtype, tensor.scale, tensor.zero_point, tensor.extension_data)

    def _value(self, i: int, values: dict[int, Array | None]) -> Array:
        value = values.get(i)
        value = self.declared[i].data if value is None else value
        if value is None:
            raise OpFailedError(Reason("an operand with a value", "none", operand=f"operand {i}"))
        return value


def _declared(model: Model, operand: Operand) -> Tensor:
    dtype, data = operand_dtype(operand), None
    if operand.is_constant:
        data = np.frombuffer(model.bytes_of(operand), dtype)
        # An OEM scalar has as many bytes as its maker likes.
        data = data if operand.type == OperandCode.OEM_SCALAR else data.reshape(operand.dims)
    dims = operand.dims if data is None else data.shape
    omitted = operand.lifetime is Lifetime.NO_VALUE
    return Tensor(data, dims, dtype, operand.scale, operand.zero_point, operand.extension_data, omitted)


def _computed(function: Function, inputs: Sequence[Tensor], outputs: Sequence[Tensor], label: str) -> list[Array]:
    """The results in their operands' types and of the declared dimensions; OP_FAILED for whatever goes wrong."""
    try:
        with np.errstate(all="ignore"):
            results = [_typed(np.asarray(r), out, label) for r, out in zip(function(inputs, outputs), outputs, strict=True)]
    except NnapiError:
        raise
    except Exception as error:
        pass_shortage(error)
        found = f"{type(error).__name__}: {error}"
        raise OpFailedError(Reason("a function that computes the operation", found, label)) from error
    for array, out in zip(results, outputs, strict=True):
        if not _fits(array, out):
            raise OpFailedError(Reason(f"an output of {list(out.dims)} as declared", str(list(array.shape)), label))
    return results


def _fits(array: Array, declared: Tensor) -> bool:
    """True for dimensions that only fill in what is not declared."""
    rank_fits = len(declared.dims) in (0, array.ndim)
    return rank_fits and all(stated in (0, found) for stated, found in zip(declared.dims, array.shape, strict=False))


def _typed(array: Array, declared: Tensor, label: str) -> Array:
    """A result in its operand's type; an imaginary part is never dropped."""
    if array.dtype.kind == "c" and declared.dtype.kind != "c":
        raise OpFailedError(Reason(f"a result of {declared.dtype}", str(array.dtype), label))
    return array.astype(declared.dtype, copy=False)


class FunctionPreparedModel(PreparedModel):
    """Runs a model's operations in order, each by its function; what goes wrong ends the execution with a code and a reason."""

    def __init__(self, model: Model, functions: Sequence[Function], names: Sequence[str] | None = None) -> None:
        """One function for each operation of the main subgraph; ``names`` are those that errors state."""
        names = [model.operation_name(o) for o in model.main.operations] if names is None else names
        self._graph = FunctionGraph(model, model.main, functions, names)

    def execute(self, request: Request) -> Result:
        """Run every operation's function."""
        started = time.perf_counter_ns()
        if request.deadline is not None and time.monotonic_ns() > request.deadline:
            return Result(ResultCode.MISSED_DEADLINE_PERSISTENT)
        try:
            observe = None if request.observe is None else partial(request.observe, 0)
            values = self._graph.run(request.inputs, request.deadline, observe)
        except NnapiError as error:
            return Result(error.code, reason=error.reason)
        shapes = tuple(_deliver(value, buffer) for value, buffer in zip(values, request.outputs, strict=True))
        took = time.perf_counter_ns() - started if request.measure else None
        sufficient = all(shape.sufficient for shape in shapes)
        return Result(ResultCode.NO_ERROR if sufficient else ResultCode.OUTPUT_INSUFFICIENT_SIZE, shapes, None, took, took)

    def bind(self, request: Request) -> Callable[[], None] | None:
        """Every operation's function on the request's arrays."""
        if request.deadline is not None or request.measure or request.observe is not None:
            return None
        places = [buffer.data for buffer in request.outputs]
        if any(place is None for place in places):
            return None
        run = self._graph.bind(request.inputs, [buffer.dims for buffer in request.outputs])

        def run_bound() -> None:
            for value, place in zip(run(), places, strict=True):
                assert place is not None
                place[: value.nbytes] = np.ascontiguousarray(value).reshape(-1).view(np.uint8)

        return run_bound


def _deliver(value: Array, buffer: OutputBuffer) -> OutputShape:
    """Copy a result into its buffer; its shape and whether it fitted."""
    fits = buffer.data is not None and len(buffer.data) >= value.nbytes
    if fits and buffer.data is not None:
        buffer.data[: value.nbytes] = np.ascontiguousarray(value).reshape(-1).view(np.uint8)
    return OutputShape(value.shape, fits)


# -- a driver from a function ------------------------------------------------------------------------------------------

Claim: TypeAlias = "Callable[[Model, Operation], Support]"
"""A driver's reply for an operation of a model: True, False, or better the reason for a refusal."""


@dataclass(frozen=True)
class FunctionDriver(Device):
    """A driver that is one function; what it supports is computed by NNAPI's CPU kernels."""

    name: str
    claim: Claim
    figures: Capabilities
    feature_level: int = RUNTIME_FEATURE_LEVEL
    type: DeviceTypeCode = DeviceTypeCode.OTHER
    version: str = "1"
    numerics: str = "exact"

    @property
    def capabilities(self) -> Capabilities:
        """The same figures for every type."""
        return self.figures

    def supported_operations(self, model: Model) -> Sequence[Support]:
        """The function's answer for each operation."""
        return [self.claim(model, operation) for operation in model.main.operations]

    def prepare_model_with_config(self, model: Model, config: PrepareModelConfig) -> PreparedModel:
        """BAD_DATA for a model with an operation that the function does not support."""
        check_deadline(config.deadline)
        for operation, answer in zip(model.main.operations, self.supported_operations(model), strict=True):
            if isinstance(answer, Reason) or not answer:
                name = model.operation_name(operation)
                refused = (
                    answer
                    if isinstance(answer, Reason)
                    else Reason("an operation that the device supports", name, kind=Why.UNSTATED)
                )
                raise BadDataError(refused)
        return CpuPreparedModel(model, self.numerics)


def driver(
    name: str,
    *,
    exec_time: float = 0.5,
    power_usage: float = 0.5,
    feature_level: int = RUNTIME_FEATURE_LEVEL,
    type: DeviceTypeCode = DeviceTypeCode.OTHER,
    numerics: str = "exact",
) -> Callable[[Claim], FunctionDriver]:
    """Make a function a driver: it returns for each operation whether the driver supports it.

    Figures are relative to the CPU's 1.0. ``numerics`` is how the driver computes: ``exact`` or ``float16``.
    """
    figures = uniform_capabilities(Performance(exec_time, power_usage))

    def create(claim: Claim) -> FunctionDriver:
        return FunctionDriver(name, claim, figures, feature_level, type, numerics=numerics)

    return create
