"""The host: runs the operations of host extensions, which no NNAPI device can.

It stands for what a TFLite or ONNX interpreter does on a phone with the operators that its delegate leaves. It
goes through the vendor-extension machinery like any other device and accepts nothing else. The bodies of its control flow
hold host operations and NNAPI's side by side.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeAlias, TypeVar

import numpy as np

from nnbridge.cpu.executor import Executor
from nnbridge.cpu.settings import Settings, Tier, current
from nnbridge.devices.device import (
    Capabilities,
    Device,
    Observe,
    Performance,
    PreparedModel,
    PrepareModelConfig,
    Request,
    Result,
    Support,
)
from nnbridge.devices.functions import Function, FunctionGraph, FunctionPreparedModel, Tensor
from nnbridge.errors import BadDataError, MissedDeadlineTransientError, OpFailedError, Reason, pass_shortage
from nnbridge.extensions import (
    TYPES,
    Extension,
    HostOperation,
    ModelKernel,
    PreparedHostKernel,
    StatedKernel,
    host_operation,
    host_options,
    is_options,
)
from nnbridge.model import Array, Model, Operand, Operation, Source, Subgraph, known
from nnbridge.operations import definition
from nnbridge.operations.call import Arg
from nnbridge.operations.evaluate import evaluate, make_call
from nnbridge.types import DeviceTypeCode, Lifetime, OperationCode, is_extension, operation_name

HOST_NAME = "host"
_Item = TypeVar("_Item")
Body: TypeAlias = "Callable[[Sequence[Array | None]], Sequence[Array]]"
"""Runs a subgraph of control flow."""
_CONTROL: Mapping[int, str] = {OperationCode.IF: "if", OperationCode.WHILE: "while"}
_MOST_PREPARED = 16
"""Combinations of input shapes that one operation stays prepared for."""


class HostPreparedModel(FunctionPreparedModel):
    """Host operations in run order."""

    def __init__(self, model: Model, *, mixed: bool = False) -> None:
        """``mixed``: NNAPI's operations, too, each by its reference kernel."""
        self._bodies = _Bodies(model)
        kernels = [self._bodies.function(model, model.main, operation, mixed) for operation in model.main.operations]
        super().__init__(model, kernels, [name_of(kernel, o) for kernel, o in zip(kernels, model.main.operations, strict=True)])
        for kernel, operation in zip(kernels, model.main.operations, strict=True):
            if isinstance(kernel, _HostKernel):
                ends = ([self._graph.declared[i] for i in side] for side in (operation.inputs, operation.outputs))
                kernel.prepare_declared(*ends)

    def bind(self, request: Request) -> Callable[[], None] | None:
        """None where limits of loops have to be set."""
        return None if self._bodies.present else super().bind(request)

    def execute(self, request: Request) -> Result:
        """Run every operation; loops are stopped at the deadline and at the loop timeout."""
        self._bodies.limit(request.deadline, request.loop_timeout, request.observe)
        return super().execute(request)


_FLIP = 128


def sign_flipped(array: Array) -> Array:
    """int8 as uint8 that is offset by 128, and back."""
    return (array.view(np.uint8) ^ np.uint8(_FLIP)).view(np.int8 if array.dtype == np.uint8 else np.uint8)


def _signed(tensor: Tensor) -> Tensor:
    """The int8 tensor that a uint8 tensor stands for."""
    data = None if tensor.data is None else sign_flipped(tensor.data)
    return replace(tensor, data=data, dtype=np.dtype(np.int8), zero_point=tensor.zero_point - _FLIP)


def _in_place(items: Sequence[_Item], chosen: Sequence[bool], change: Callable[[_Item], _Item]) -> Sequence[_Item]:
    """Items of which the chosen ones are changed."""
    return [change(item) if here else item for item, here in zip(items, chosen, strict=True)] if any(chosen) else items


class _HostKernel:
    """The function of one host operation: its kernel with the options bound, prepared once for each combination of shapes.

    It computes in the source file's types, as a phone's host does.
    """

    def __init__(self, model: Model, subgraph: Subgraph, operation: Operation, hosted: HostOperation, bodies: _Bodies) -> None:
        self.name = hosted.name
        self._hosted = hosted
        self._options = host_options(model, subgraph, operation)
        self._places = [k for k, i in enumerate(operation.inputs) if not is_options(subgraph.operands[i])]
        self._operands = [subgraph.operands[operation.inputs[k]] for k in self._places]
        # On phones the delegate converts int8 back for the host.
        self._signed = [operand.is_sign_flipped for operand in self._operands]
        self._signed_outputs = [subgraph.operands[i].is_sign_flipped for i in operation.outputs]
        self._outputs = len(operation.outputs)
        self._bodies = bodies
        self._label = f"{hosted.name} ({operation.name})" if operation.name else hosted.name
        self._settings = current()
        self._prepared: dict[tuple[tuple[int, ...] | None, ...], PreparedHostKernel | None] = {}
        self._lock = threading.Lock()

    def __call__(self, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> Sequence[Array]:
        operands = [inputs[k] for k in self._places]
        if self._hosted.control:
            return self._bodies.control(self._hosted.control, self._operands, [t.data for t in operands], self._outputs)
        run = self._prepare(operands, outputs) if self._hosted.prepare is not None else None
        if run is not None:
            return run([tensor.data for tensor in operands])
        if self._hosted.kernel is None:
            raise OpFailedError(Reason(self._hosted.reason or "an operation that the host can run", "", self._label))
        ends = _in_place(operands, self._signed, _signed), _in_place(outputs, self._signed_outputs, _signed)
        return self._as_declared(self._hosted.kernel(*ends, self._options))

    def _as_declared(self, results: Sequence[Array]) -> Sequence[Array]:
        """Results in the model's types; kernels may return fewer than there are."""
        return _in_place(results, self._signed_outputs[: len(results)], sign_flipped)

    def bind(self, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> PreparedHostKernel | None:
        """A function of all inputs' arrays, prepared for their dimensions; None where each run has to look at them."""
        if self._hosted.prepare is None or self._hosted.control:
            return None
        run, places = self._prepare([inputs[k] for k in self._places], outputs), self._places
        return None if run is None else lambda arrays: run([arrays[k] for k in places])

    def prepare_declared(self, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> None:
        """Prepare for the declared dimensions if all are known; what goes wrong is raised when the operation runs."""
        operands = [inputs[k] for k in self._places]
        if self._hosted.prepare is None or not all(t.data is not None or t.omitted or known(t.dims) for t in operands):
            return
        try:
            self._prepare(operands, outputs)
        except Exception as error:
            pass_shortage(error)
            return

    def _prepare(self, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> PreparedHostKernel | None:
        key = tuple(None if tensor.omitted else tensor.dims for tensor in inputs)
        with self._lock:
            if key in self._prepared:
                # Taken out and put back: the combination that was not used for longest comes first.
                found = self._prepared[key] = self._prepared.pop(key)
                return found
        assert self._hosted.prepare is not None
        seen = [
            tensor
            if operand.is_constant
            else Tensor(
                None, tensor.dims, tensor.dtype, tensor.scale, tensor.zero_point, tensor.extension_data, omitted=tensor.omitted
            )
            for tensor, operand in zip(inputs, self._operands, strict=True)
        ]
        ends = _in_place(seen, self._signed, _signed), _in_place(outputs, self._signed_outputs, _signed)
        prepared = self._in_models_types(_faster(self._hosted.prepare(*ends, self._options), self._settings))
        with self._lock:
            self._prepared[key] = prepared
            if len(self._prepared) > _MOST_PREPARED:
                del self._prepared[next(iter(self._prepared))]
        return prepared

    def _in_models_types(self, prepared: PreparedHostKernel | None) -> PreparedHostKernel | None:
        """A function of the source file's types as one of the model's."""
        if prepared is None or not any((*self._signed, *self._signed_outputs)):
            return prepared

        def run(arrays: Sequence[Array | None]) -> Sequence[Array]:
            return self._as_declared(prepared(_in_place(arrays, self._signed, _flipped_or_none)))

        return run


def _flipped_or_none(array: Array | None) -> Array | None:
    return None if array is None else sign_flipped(array)


def _faster(prepared: PreparedHostKernel | None, settings: Settings) -> PreparedHostKernel | None:
    """The same function by the executor's kernels, or by a compiled kernel of its own, where there is such."""
    if isinstance(prepared, ModelKernel):
        kernel, executor = prepared, Executor(prepared.model, kernels=settings.tier)
        return lambda arrays: kernel.results([out.data for out in executor.run(kernel.arguments(arrays))])
    if isinstance(prepared, StatedKernel) and settings.tier >= Tier.COMPILED:
        from nnbridge.cpu.compiled.routines import routine  # llvmlite is imported when it is used

        return routine(prepared, settings.threads) or prepared
    return prepared


def _host_kernel(model: Model, subgraph: Subgraph, operation: Operation, bodies: _Bodies) -> _HostKernel:
    hosted = host_operation(model, operation)
    if isinstance(hosted, Reason):
        raise BadDataError(hosted)
    return _HostKernel(model, subgraph, operation, hosted, bodies)


def name_of(function: Function, operation: Operation) -> str:
    """The name of what a function computes."""
    return function.name if isinstance(function, _HostKernel) else operation_name(operation.type)


class _Bodies:
    """The referenced models of a model. An execution ends with the NNAPI error that a method raises."""

    def __init__(self, model: Model) -> None:
        self._graphs = [self._graph(model, subgraph) for subgraph in model.referenced]
        self._limits = threading.local()

    @property
    def present(self) -> bool:
        """True for a model with control flow."""
        return bool(self._graphs)

    def _graph(self, model: Model, subgraph: Subgraph) -> FunctionGraph:
        functions = [self.function(model, subgraph, operation, True) for operation in subgraph.operations]
        names = [name_of(function, operation) for function, operation in zip(functions, subgraph.operations, strict=True)]
        return FunctionGraph(model, subgraph, functions, names)

    def function(self, model: Model, subgraph: Subgraph, operation: Operation, mixed: bool) -> Function:
        """The function that computes an operation: the host's kernel, or NNAPI's where these are ``mixed``."""
        if mixed and not is_extension(operation.type):
            return self._nnapi(subgraph, operation)
        return _host_kernel(model, subgraph, operation, self)

    def _nnapi(self, subgraph: Subgraph, operation: Operation) -> Function:
        """The function of one of NNAPI's operations."""
        operands = [subgraph.operands[i] for i in operation.inputs]
        results = [subgraph.operands[i] for i in operation.outputs]
        kind, declared = _CONTROL.get(operation.type, ""), definition(operation.type)

        def control(inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> Sequence[Array]:
            return self.control(kind, operands, [tensor.data for tensor in inputs], len(outputs))

        def compute(inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> Sequence[Array]:
            assert declared is not None
            args = []
            for operand, tensor in zip(operands, inputs, strict=True):
                arg = Arg.of(operand, tensor.data, present=operand.lifetime is not Lifetime.NO_VALUE)
                args.append(arg if tensor.data is None else arg.replace(dims=tensor.data.shape))
            answers = evaluate(make_call(declared, args, [Arg.of(operand) for operand in results]))
            return [answer.value for answer in answers if answer.value is not None]

        return control if kind else compute

    def limit(self, deadline: int | None, loop_timeout: int | None, observe: Observe | None) -> None:
        """Time limits of this thread's run, in ns: ``time.monotonic_ns`` at the latest, and for each loop; None for none."""
        self._limits.deadline, self._limits.loop, self._limits.observe = deadline, loop_timeout, observe

    def control(self, kind: str, operands: Sequence[Operand], values: Sequence[Array | None], outputs: int) -> Sequence[Array]:
        """Control flow (``if`` or ``while``) on the values of its operands, None for bodies."""
        bodies = [self._body(o.location.offset) for o in operands if o.lifetime is Lifetime.SUBGRAPH]
        inputs = [v for o, v in zip(operands, values, strict=True) if o.lifetime is not Lifetime.SUBGRAPH]
        if kind == "while":
            return self._loop(bodies[0], bodies[1], inputs)[:outputs]
        if inputs[0] is None:
            raise OpFailedError(Reason("a condition", "none", "IF"))
        return bodies[0 if _truth(inputs[0]) else 1](inputs[1:])

    def _body(self, number: int) -> Body:
        observe = getattr(self._limits, "observe", None)
        observed = None if observe is None else partial(observe, number + 1)
        return partial(self._graphs[number].run, observe=observed)

    def _loop(self, condition: Body, body: Body, inputs: Sequence[Array | None]) -> list[Any]:
        """The values once the condition is false; until then the body computes the next values."""
        state, started = list(inputs), time.monotonic_ns()
        while _truth(condition(state)[0]):
            now, deadline, most = (
                time.monotonic_ns(),
                getattr(self._limits, "deadline", None),
                getattr(self._limits, "loop", None),
            )
            if deadline is not None and now > deadline:
                raise MissedDeadlineTransientError("the execution's deadline has passed")
            if most is not None and now - started > most:
                raise MissedDeadlineTransientError(Reason(f"a loop that ends within {most} ns", "more", "WHILE"))
            results = body(state)
            state[: len(results)] = results
        return state


def _truth(value: Array) -> bool:
    if value.size != 1:
        raise OpFailedError(Reason("a condition of one element", str(list(value.shape))))
    return bool(value.reshape(-1)[0])


def host_functions(model: Model) -> list[Function]:
    """The function that computes each operation of a model of host operations."""
    bodies = _Bodies(model)
    return [bodies.function(model, model.main, operation, False) for operation in model.main.operations]


@dataclass(frozen=True)
class Computing:
    """The runtime that computes an operator that stays with the host."""

    by: str = "nnbridge"
    """nnbridge's own kernels, or a runtime by the name of ``--host``."""
    version: str = ""
    reason: Reason | None = None
    """Why nnbridge, where the runtime was expected to."""


class HostDevice(Device):
    """Accepts the operations of installed host extensions and nothing else.

    ``why``: why nnbridge's own host computes, where an inference runtime might be expected.
    """

    name = HOST_NAME
    version = "nnbridge"
    type = DeviceTypeCode.OTHER
    kind = "host"

    def __init__(self, why: Reason | None = None) -> None:
        self.why = why

    def computing(self, source: Source) -> Computing:
        """The runtime that computes an operator of the file, once it is prepared."""
        return Computing(reason=self.why)

    @property
    def capabilities(self) -> Capabilities:
        """1.0 for all; no device competes with it."""
        return Capabilities({}, Performance(1.0, 1.0), Performance(1.0, 1.0))

    def supported_operations(self, model: Model) -> Sequence[Support]:
        """True for operations of host extensions, also for those that will be refused when they run."""
        found = [host_operation(model, operation) for operation in model.main.operations]
        return [answer if isinstance(answer, Reason) else True for answer in found]

    def supported_extensions(self) -> Sequence[Extension]:
        """Every installed host extension."""
        return tuple(TYPES.host_extensions().values())

    def prepare_model_with_config(self, model: Model, config: PrepareModelConfig) -> PreparedModel:
        """Look up every operation, and prepare those that can be."""
        return HostPreparedModel(model)
