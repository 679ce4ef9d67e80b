"""The CPU executor: a model is bound once for given input shapes, then run as a loop over bound steps.

``nnapi-reference``, the sample drivers and the tests all compute here. Operations whose shapes are known at
preparation get a faster kernel where one exists (see :mod:`nnbridge.cpu.binding`) and the reference kernel of their
declaration otherwise; what only execution knows (dimensions, values that shapes depend on) is resolved as it runs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from nnbridge.cpu import kernels as _kernels  # noqa: F401 - registers the faster kernels
from nnbridge.cpu.binding import FASTER, Binding, Frame, Lease, Step, plan_arena
from nnbridge.cpu.steps import direct_step, prepared_step, reference_step, shares_memory
from nnbridge.errors import MissedDeadlineTransientError, OpFailedError, Reason
from nnbridge.model import Model, Operand, Operation, Subgraph
from nnbridge.operations import definition
from nnbridge.operations.call import Arg, Call, NeedsValue
from nnbridge.operations.declaration import OperationDef
from nnbridge.operations.evaluate import evaluate, make_call, merge_dims, resolve, runs_directly
from nnbridge.types import DEFAULT_LOOP_TIMEOUT_NS, Lifetime, OperandCode, OperationCode, operation_name

_BOUND_PROGRAMS = 8
"""How many sets of input shapes stay bound at a time."""

Arrays = Sequence["npt.NDArray[Any] | None"]


@dataclass(frozen=True)
class Limits:
    """Time limits of one run: an absolute deadline (``time.monotonic_ns``) and the time for each WHILE loop."""

    deadline: int | None = None
    loop_timeout: int = DEFAULT_LOOP_TIMEOUT_NS

    def check(self) -> None:
        """MISSED_DEADLINE_TRANSIENT once the deadline has passed."""
        if self.deadline is not None and time.monotonic_ns() > self.deadline:
            raise MissedDeadlineTransientError("the execution's deadline has passed")


NO_LIMITS = Limits()


class Executor:
    """A prepared model on the CPU. ``run`` may be called from several threads at once.

    ``numerics``: ``exact`` computes relaxed float32 in float32; ``float16`` rounds every float32 result of a relaxed
    model to float16, as an accelerator may. ``kernels``: ``fast`` or ``reference`` (declarations only).
    """

    def __init__(self, model: Model, *, numerics: str = "exact", kernels: str = "fast") -> None:
        self.model = model
        self._round = numerics == "float16" and model.relaxed
        self._fast = kernels == "fast"
        self._constants = [_constants(model, subgraph) for subgraph in model.subgraphs()]
        self._bound: dict[tuple[Any, ...], _Bound] = {}
        main = model.main
        if all(_fully_known(main.operands[i]) for i in main.inputs):
            self._bind(tuple(main.operands[i].dims for i in main.inputs))

    def run(self, inputs: Arrays, outputs: Arrays | None = None, limits: Limits = NO_LIMITS) -> list[Arg]:
        """Compute. ``inputs`` in model-input order, None for an omitted one, each of its true shape.

        ``outputs`` may hold arrays of exactly the output's shape and type to be written in place, if they are contiguous.
        Gives the outputs with their true dimensions; ``value`` is the given array where it was used.
        """
        limits.check()
        key = tuple([None if x is None else x.shape for x in inputs])
        bound = self._bound.get(key) or self._bind(key)
        return bound.run(inputs, outputs, limits)

    def _bind(self, key: tuple[Any, ...]) -> _Bound:
        while len(self._bound) >= _BOUND_PROGRAMS:
            self._bound.pop(next(iter(self._bound)), None)
        subgraph = self.model.main
        args = [_input(subgraph.operands[i], dims) for i, dims in zip(subgraph.inputs, key, strict=True)]
        # Constants may hold anything; what they overflow to is for the run to tell.
        with np.errstate(all="ignore"):
            bound = self._bound[key] = _Bound(self, subgraph, self._constants[0], args)
        return bound

    # -- subgraphs of control flow -----------------------------------------------------------------------------------

    def interpret(self, index: int, args: Sequence[Arg], limits: Limits) -> list[Arg]:
        """Run a referenced subgraph on argument values, operation by operation."""
        subgraph = self.model.referenced[index]
        values: list[Arg | None] = list(self._constants[index + 1])
        for i, arg in zip(subgraph.inputs, args, strict=True):
            values[i] = _as_operand(subgraph.operands[i], arg)
        for operation in subgraph.operations:
            limits.check()
            self.interpret_operation(subgraph, operation, values, limits)
        return [_known_arg(values, i) for i in subgraph.outputs]

    def interpret_operation(self, subgraph: Subgraph, operation: Operation, values: Values, limits: Limits) -> None:
        """Run one operation on the values at hand and store its results there."""
        if operation.type in _CONTROL_FLOW:
            inputs = [_known_arg(values, i) if values[i] else Arg.of(subgraph.operands[i]) for i in operation.inputs]
            results = _CONTROL_FLOW[operation.type](self, subgraph, operation, inputs, limits)
        else:
            inputs = [_known_arg(values, i).replace() for i in operation.inputs]
            call = make_call(_declared(operation), inputs, [Arg.of(subgraph.operands[i]) for i in operation.outputs])
            results = evaluate(call)
        for i, result in zip(operation.outputs, results, strict=True):
            values[i] = self.rounded(_settle(operation, subgraph.operands[i], result))

    def rounded(self, arg: Arg) -> Arg:
        """A float32 result as the executor's numerics leave it."""
        if self._round and arg.type == OperandCode.TENSOR_FLOAT32 and arg.value is not None:
            return arg.replace(value=_through_half(arg.value))
        return arg

    @property
    def rounds(self) -> bool:
        """True if float32 results are rounded to float16."""
        return self._round

    @property
    def uses_faster_kernels(self) -> bool:
        """False if only reference kernels run."""
        return self._fast


class _Bound:
    """The main subgraph bound for one set of input shapes."""

    def __init__(self, executor: Executor, subgraph: Subgraph, constants: list[Arg | None], inputs: list[Arg]) -> None:
        self.executor = executor
        self.subgraph = subgraph
        self._specs: list[Arg | None] = list(constants)
        for i, arg in zip(subgraph.inputs, inputs, strict=True):
            self._specs[i] = arg
        self._steps: list[Step] = []
        self._buffers: dict[int, tuple[tuple[int, ...], np.dtype[Any]]] = {}
        self._fills: list[tuple[int, float]] = []
        self._calls: list[tuple[int, Call]] = []
        self._size = len(subgraph.operands)
        self._dynamic: set[int] = set()
        scratch_step: dict[int, int] = {}
        for step, operation in enumerate(subgraph.operations):
            before = self._size
            self._steps.append(self._bind(operation))
            scratch_step.update(dict.fromkeys(range(before, self._size), step))
        self._release = self._last_uses()
        self._offsets, self._arena_size = plan_arena(self._leases(scratch_step))
        self._template: Frame = [None] * self._size
        for i, spec in enumerate(self._specs):
            if spec is not None and spec.constant:
                self._template[i] = spec.value
        operands = enumerate(subgraph.operands)
        self._foreign = [i for i, operand in operands if i not in self._offsets and not operand.is_constant]
        self._no_outputs = [None] * len(subgraph.outputs)
        self._idle: list[Frame] = []

    def run(self, inputs: Arrays, outputs: Arrays | None, limits: Limits) -> list[Arg]:
        frame = self._take_frame()
        run = _Run(self._specs, limits)
        try:
            for i, array in zip(self.subgraph.inputs, inputs, strict=True):
                frame[i] = array
            for i, array in zip(self.subgraph.outputs, outputs or self._no_outputs, strict=True):
                # Kernels write through reshaped views.
                if array is not None and i not in self._dynamic and array.flags.c_contiguous:
                    frame[i] = array
                elif i in self._buffers:
                    frame[i] = np.empty(*self._buffers[i])
            timed = limits.deadline is not None
            frame.append(run)
            with np.errstate(all="ignore"):
                for step in self._steps:
                    if timed:
                        limits.check()
                    step(frame)
            frame.pop()
            return [self._result(run, frame, i) for i in self.subgraph.outputs]
        finally:
            self._idle.append(self._reset(frame))

    # -- binding -----------------------------------------------------------------------------------------------------

    def _bind(self, operation: Operation) -> Step:
        """A step for one operation: a faster kernel, the reference kernel with resolved shapes, or as it comes."""
        specs = [self._specs[i] for i in operation.inputs]
        if operation.type not in _CONTROL_FLOW and all(s is not None for s in specs):
            inputs = [s.replace() for s in specs if s is not None]
            call = make_call(_declared(operation), inputs, [Arg.of(self.subgraph.operands[i]) for i in operation.outputs])
            resolved = self._resolve(operation, call)
            if resolved is not None:
                for i, spec in zip(operation.outputs, resolved, strict=True):
                    self._specs[i] = spec
                return self._static_step(operation, call)
        self._dynamic.update(operation.outputs)
        for i in operation.outputs:
            # Control flow leaves exactly what its outputs declare, so that what follows can still be bound.
            if operation.type in _CONTROL_FLOW and _fully_known(self.subgraph.operands[i]):
                self._specs[i] = Arg.of(self.subgraph.operands[i])
        return self._dynamic_step(operation)

    def _resolve(self, operation: Operation, call: Call) -> list[Arg] | None:
        """The outputs, if their shapes can be told now; refusals wait until the operation runs."""
        try:
            resolved = resolve(call)
            settled = [
                _settle(operation, self.subgraph.operands[i], spec) for i, spec in zip(operation.outputs, resolved, strict=True)
            ]
        except (NeedsValue, OpFailedError):
            return None
        except Exception as error:
            if getattr(error, "code", None) is None:
                raise
            return None
        if any(d <= 0 for spec in settled for d in spec.dims):
            return None
        call.outs = settled
        return settled

    def _static_step(self, operation: Operation, call: Call) -> Step:
        binder = FASTER.get(operation.type) if self.executor.uses_faster_kernels else None
        if binder is not None:
            binding = Binding(call, operation.inputs, operation.outputs, self._size)
            step = binder(binding)
            if step is not None:
                self._adopt(operation, call, binding)
                return self._with_rounding(operation, call, step)
        if self.executor.rounds or not runs_directly(call):
            return reference_step(call, operation, self.executor.rounded if self.executor.rounds else None)
        step = prepared_step(call, operation)
        if step is not None:
            return step
        slot = self._size
        self._size += 1
        self._calls.append((slot, call))
        return direct_step(call, operation, slot)

    def _adopt(self, operation: Operation, call: Call, binding: Binding) -> None:
        """Give the faster kernel its buffers."""
        for i, out in zip(operation.outputs, call.outs, strict=True):
            self._buffers[i] = (out.dims, out.dtype)
        for k, buffer in enumerate(binding.buffers):
            self._buffers[self._size + k] = buffer
        self._size += len(binding.buffers)
        self._fills.extend(binding.fills)

    def _with_rounding(self, operation: Operation, call: Call, step: Step) -> Step:
        floats = [
            i
            for i, out in zip(operation.outputs, call.outs, strict=True)
            if self.executor.rounds and out.type == OperandCode.TENSOR_FLOAT32
        ]
        if not floats:
            return step

        def rounding(frame: Frame) -> None:
            step(frame)
            for i in floats:
                frame[i][...] = _through_half(frame[i])

        return rounding

    def _dynamic_step(self, operation: Operation) -> Step:
        """An operation whose shapes only execution knows."""

        def step(frame: Frame) -> None:
            run: _Run = frame[-1]
            self.executor.interpret_operation(self.subgraph, operation, _Values(run, frame, operation.inputs), run.limits)

        return step

    # -- memory ------------------------------------------------------------------------------------------------------

    def _last_uses(self) -> dict[int, int]:
        last: dict[int, int] = {}
        for step, operation in enumerate(self.subgraph.operations):
            for i in (*operation.inputs, *operation.outputs):
                last[i] = step
        for i in self.subgraph.outputs:
            last[i] = len(self.subgraph.operations)
        return last

    def _leases(self, scratch_step: dict[int, int]) -> list[Lease]:
        filled = {i for i, _ in self._fills}
        leases = []
        for i, (shape, dtype) in self._buffers.items():
            if i in self.subgraph.outputs:
                continue
            size = int(np.prod(shape)) * dtype.itemsize
            if i in filled:
                leases.append(Lease(i, size, 0, len(self._steps)))
            elif i in scratch_step:
                leases.append(Lease(i, size, scratch_step[i], scratch_step[i]))
            else:
                leases.append(Lease(i, size, self.subgraph.producers[i], self._release[i]))
        return leases

    def _take_frame(self) -> Frame:
        try:
            return self._idle.pop()
        except IndexError:
            return self._new_frame()

    def _new_frame(self) -> Frame:
        raw = np.empty(self._arena_size + 64, np.uint8)
        start = -raw.ctypes.data % 64
        arena = raw[start : start + self._arena_size]
        frame = list(self._template)
        for i, at in self._offsets.items():
            shape, dtype = self._buffers[i]
            frame[i] = arena[at : at + int(np.prod(shape)) * dtype.itemsize].view(dtype).reshape(shape)
        for i, value in self._fills:
            frame[i].fill(value)
        for slot, call in self._calls:
            frame[slot] = call.with_args([arg.replace() for arg in call.args])
        return frame

    def _reset(self, frame: Frame) -> Frame:
        """Forget what belongs to the caller or to this run, so that an idle frame holds no foreign arrays."""
        del frame[self._size :]
        for i in self._foreign:
            frame[i] = None
        return frame

    def _result(self, run: _Run, frame: Frame, i: int) -> Arg:
        spec = run.args.get(i) or self._specs[i]
        assert spec is not None
        value = frame[i]
        return spec.with_value(value, spec.dims if value is None else value.shape)


class _Run:
    """What one run knows beyond its frame: limits, and the operands that it resolved itself."""

    __slots__ = ("args", "limits", "specs")

    def __init__(self, specs: list[Arg | None], limits: Limits) -> None:
        self.specs = specs
        self.limits = limits
        self.args: dict[int, Arg] = {}


class Values(Protocol):
    """Arguments with values, by operand index."""

    def __getitem__(self, i: int, /) -> Arg | None: ...

    def __setitem__(self, i: int, arg: Arg, /) -> None: ...


class _Values:
    """The operands of a bound run seen as arguments with values."""

    def __init__(self, run: _Run, frame: Frame, inputs: Sequence[int]) -> None:
        self._run = run
        self._frame = frame
        self._inputs = inputs

    def __getitem__(self, i: int) -> Arg | None:
        arg = self._run.args.get(i) or self._run.specs[i]
        return arg.replace(value=self._frame[i]) if arg is not None and arg.present else arg

    def __setitem__(self, i: int, arg: Arg) -> None:
        if arg.value is not None and shares_memory(arg.value, self._frame, self._inputs):
            arg = arg.with_value(arg.value.copy(), arg.dims)
        self._run.args[i] = arg
        self._frame[i] = arg.value


def _constants(model: Model, subgraph: Subgraph) -> list[Arg | None]:
    """Arguments of the operands that are known before a run: constants and omitted ones."""
    known: list[Arg | None] = []
    for operand in subgraph.operands:
        if operand.is_constant:
            value = model.value(operand)
            known.append(Arg.of(operand, value, present=value is None or value.size > 0))
        elif operand.lifetime is Lifetime.NO_VALUE:
            known.append(Arg.of(operand, present=False))
        else:
            known.append(None)
    return known


def _declared(operation: Operation) -> OperationDef:
    declared = definition(operation.type)
    if declared is None:
        name = operation_name(operation.type)
        raise OpFailedError(Reason("an operation that the CPU executor knows", name, name))
    return declared


def _fully_known(operand: Operand) -> bool:
    return not operand.is_tensor or (len(operand.dims) > 0 and 0 not in operand.dims)


def _input(operand: Operand, dims: tuple[int, ...] | None) -> Arg:
    arg = Arg.of(operand, present=dims is not None)
    return arg if dims is None else arg.replace(dims=tuple(dims))


def _as_operand(operand: Operand, arg: Arg) -> Arg:
    """An outer value as the inner operand that it stands for."""
    return Arg.of(operand, arg.value, present=arg.present).replace(dims=arg.dims)


def _known_arg(values: Values, i: int) -> Arg:
    arg = values[i]
    assert arg is not None, f"operand {i} is read before it is written"
    return arg


def _settle(operation: Operation, operand: Operand, computed: Arg) -> Arg:
    """A computed output against its declaration.

    Dimensions must agree with the declared ones. A model output must have the declared quantisation; a temporary takes
    the computed one, whatever it was declared with (facts U7 and U8).
    """
    name = operation_name(operation.type)
    dims = merge_dims(operand.dims, computed.dims)
    if dims is None:
        raise OpFailedError(
            Reason(f"an output of {list(operand.dims)} as declared", str(list(computed.dims)), name, operand.name)
        )
    if operand.lifetime is Lifetime.SUBGRAPH_OUTPUT and operand.scale != 0:
        same = np.float32(computed.scale) == np.float32(operand.scale) and computed.zero_point == operand.zero_point
        if not same:
            found = f"{computed.scale}, {computed.zero_point}"
            rule = f"an output with scale {operand.scale} and zero point {operand.zero_point} as declared"
            raise OpFailedError(Reason(rule, found, name, operand.name))
    return computed.replace(dims=dims)


def _through_half(x: npt.NDArray[Any]) -> npt.NDArray[Any]:
    with np.errstate(over="ignore"):
        return x.astype(np.float16).astype(np.float32)


# -- control flow ----------------------------------------------------------------------------------------------------


def _condition(arg: Arg, name: str) -> bool:
    if not arg.present or arg.value is None:
        raise OpFailedError(Reason("a condition with a value", "none", name, "condition"))
    return bool(np.ravel(arg.value)[0])


def _run_if(executor: Executor, subgraph: Subgraph, operation: Operation, inputs: list[Arg], limits: Limits) -> list[Arg]:
    """IF: one of two subgraphs (input 0 the condition, 1 then, 2 else)."""
    branch = operation.inputs[1 if _condition(inputs[0], "IF") else 2]
    body = subgraph.operands[branch].location.offset
    return _outer(subgraph, operation, executor.interpret(body, inputs[3:], limits))


def _run_while(executor: Executor, subgraph: Subgraph, operation: Operation, inputs: list[Arg], limits: Limits) -> list[Arg]:
    """WHILE: the value of the condition is looked at before the time (fact U24)."""
    condition, body = (subgraph.operands[i].location.offset for i in operation.inputs[:2])
    started = time.monotonic_ns()
    state = list(inputs[2:])
    while _condition(executor.interpret(condition, state, limits)[0], "WHILE"):
        if time.monotonic_ns() - started > limits.loop_timeout:
            raise MissedDeadlineTransientError(Reason(f"a loop that ends within {limits.loop_timeout} ns", "more", "WHILE"))
        results = executor.interpret(body, state, limits)
        state[: len(results)] = results
    return _outer(subgraph, operation, state[: len(operation.outputs)])


def _outer(subgraph: Subgraph, operation: Operation, results: list[Arg]) -> list[Arg]:
    """Inner results as the outer outputs."""
    return [_as_operand(subgraph.operands[i], arg) for i, arg in zip(operation.outputs, results, strict=True)]


_CONTROL_FLOW: dict[int, Callable[[Executor, Subgraph, Operation, list[Arg], Limits], list[Arg]]] = {
    OperationCode.IF: _run_if,
    OperationCode.WHILE: _run_while,
}
