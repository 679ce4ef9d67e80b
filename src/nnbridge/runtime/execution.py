"""Execution: bind inputs and outputs to a finished compilation and run its plan."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from nnbridge.devices.device import OutputBuffer, OutputShape, Request, Result
from nnbridge.errors import (
    ERROR_OF_CODE,
    BadDataError,
    BadStateError,
    InputError,
    NnapiError,
    Reason,
    ShortageError,
    UnexpectedNullError,
    pass_shortage,
)
from nnbridge.extensions import operand_dtype
from nnbridge.model import Array, Operand, known
from nnbridge.runtime.arguments import as_array
from nnbridge.runtime.compilation import Compilation
from nnbridge.runtime.control_flow import shaped
from nnbridge.runtime.driver_calls import FINAL, size_of
from nnbridge.runtime.event import Event, wait_for
from nnbridge.runtime.execution_arguments import ExecutionArguments, ExecutionState
from nnbridge.runtime.plan_runner import GROWTH_LIMIT, BoundSteps, Observer, PlanRunner, RunReport, allocated
from nnbridge.runtime.repeated import BoundRun, Kind, kind_of
from nnbridge.runtime.states import States
from nnbridge.types import DurationCode, ResultCode

UNKNOWN_DURATION = 2**64 - 1  # what a device that does not measure says

_COMPLETED, _COMPUTATION, _now = ExecutionState.COMPLETED, ExecutionState.COMPUTATION, time.perf_counter_ns
_FIRST_CAPACITY = 1 << 12
"""Bytes that an output of unknown size gets first: small ones are then computed once."""


class Execution(ExecutionArguments):
    """``ANeuralNetworksExecution``.

    In one call with NumPy arrays: :meth:`run`. As in the NDK: set every input and output (from buffers or memories), then
    :meth:`compute`, :meth:`start_compute`, :meth:`start_compute_with_dependencies` or a :class:`Burst`.
    """

    def __init__(self, compilation: Compilation, states: States | None = None) -> None:
        super().__init__(compilation)
        self.states = states or States(compilation.model)
        """What :meth:`run` carries on with; share one between executions that follow each other."""
        self._shapes: list[OutputShape] = []
        self._fence_wait = 0  # nanoseconds that the last computation's driver waited for fences
        self._result = Result()
        self._starting = threading.Lock()
        self._code = ResultCode.NO_ERROR
        self._report: RunReport | None = RunReport()
        self._runner: PlanRunner | None = None  # of the last computation
        self._bound: Callable[[], None] | None = None  # the computation on these arguments once more, where there is such
        self._elapsed, self._uses_memories, self._tried_to_bind = 0, False, False
        self.observer: Observer | None = None
        """Called with the values that computations report on their way; neither plan nor numerics depend on it."""

    @property
    def report(self) -> RunReport:
        """The report of the last computation."""
        if self._report is None:
            run = self.compilation.plan if self._runner is None else self._runner.plan
            self._report = RunReport.of_bound(run, self._bound, self._elapsed)
            if run is not self.compilation.plan:
                self._report = self._report.as_planned(self.compilation.plan)
        return self._report

    # -- computing ---------------------------------------------------------------------------------------------------

    def compute(self) -> None:
        """``compute``: run synchronously. Raises the NNAPI error that it ends with.

        What was computed before on these arguments is computed in one call; if that fails, the whole way reports why.
        """
        bound = self._bound
        if bound is None or self.observer is not None:
            self._begin("compute")
            self._check_memories()
            self._compute()
            return
        # All that is not a call of the bound function counts here: models of a few operations take a microsecond.
        with self._starting:
            if self._state is not _COMPLETED:
                self.require_preparation("compute")
            self._state = _COMPUTATION
        if self._uses_memories:
            self._check_memories()
        started = _now()
        try:
            bound()
        except Exception:
            self._bound, self._fence_wait = None, 0
            self._check_memories()
            self._compute()
            return
        self._elapsed, self._report = _now() - started, None
        if self._uses_memories:
            self._finish(ResultCode.NO_ERROR, self._shapes)
        else:
            self._state = _COMPLETED

    def start_compute(self) -> Event:
        """``startCompute``: run in a thread; what is wrong with the arguments is raised now (fact E26)."""
        self._begin("startCompute")
        self._check_memories()
        return self._started(self._compute)

    def start_compute_with_dependencies(self, dependencies: Sequence[Event | None], duration: int = 0) -> Event:
        """``startComputeWithDependencies``: run when the events are done, at most ``duration`` ns from then (0: no limit).

        A driver of feature level 4 on runs in the background, and the event has a fence; the CPU and older drivers are waited
        for, errors are raised now and there is no fence. A plan with temporaries of open size is started as by
        :meth:`start_compute`. BAD_DATA for a duration without an explicit list of one device, and for an output whose
        dimensions are open (facts E52 to E58).
        """
        call = "startComputeWithDependencies"
        if any(event is None for event in dependencies):
            raise UnexpectedNullError(Reason("an event as dependency", "none", call))
        self._begin(call)
        if duration and not self._explicit_single:
            self._state = ExecutionState.COMPLETED
            raise BadDataError(Reason("a duration measurement only for exactly one listed device", str(duration), call))
        for operand, argument in zip(self._output_operands, self._outputs, strict=True):
            if operand.is_tensor and argument is not None and argument.data is not None and not known(argument.dims):
                self._state = ExecutionState.COMPLETED
                raise BadDataError(Reason("outputs of known dimensions", str(list(argument.dims)), call, operand.name))
        plan = self.compilation.plan
        if plan.has_dynamic_temporaries:
            self._wait_for(dependencies)
            self._check_memories()
            return self._started(self._compute)
        # Once it has begun, the execution computes until somebody waits for the event or frees it (fact E58).
        if not plan.has_fences:
            self._wait_for(dependencies)
            self._compute(duration or None, fenced=True)
            return Event(waited=self._complete)
        # Fences are the driver's to wait for, other events the runtime's (fact E53).
        self._wait_for([event for event in dependencies if event is not None and not event.has_fence])

        def work() -> None:
            if dependencies:
                started = time.perf_counter_ns()
                wait_for(dependencies)
                self._fence_wait = time.perf_counter_ns() - started
            self._compute(duration or None, fenced=True)

        return self._started(work, fence=True, waited=self._complete)

    def _started(self, work: Callable[[], None], **how: Any) -> Event:
        """The event of work that runs in a thread; the execution is over where no thread or descriptor is left for it."""
        try:
            return Event(work, **how)
        except (ShortageError, OSError) as error:
            self._finish(ResultCode.RESOURCE_EXHAUSTED_TRANSIENT, ())
            pass_shortage(error)
            raise

    def _wait_for(self, dependencies: Sequence[Event | None]) -> None:
        try:
            wait_for(dependencies)
        except NnapiError as error:
            self._finish(error.code, ())
            raise

    def _begin(self, call: str) -> None:
        """From preparation, or completed if reusable, to computation; every argument must be set (facts E1 to E4, E22)."""
        with self._starting:
            if not (self._reusable and self._state is ExecutionState.COMPLETED):
                self.require_preparation(call)
            self._state, self._fence_wait = ExecutionState.COMPUTATION, 0
        if self._bound is not None:
            return
        for group, operands in ((self._inputs, self._input_operands), (self._outputs, self._output_operands)):
            for argument, operand in zip(group, operands, strict=True):
                if argument is None:
                    self._state, self._code = ExecutionState.COMPLETED, ResultCode.BAD_DATA
                    raise BadDataError(Reason("every input and output set", f"{operand.name or operand} is not", call))

    def _check_memories(self) -> None:
        """Device memories as inputs must be ready before anything starts; fenced executions look later (facts E23, E26)."""
        try:
            for argument in self._inputs:
                if argument is not None and argument.memory is not None:
                    argument.memory.check_input(argument.dims)
        except NnapiError as error:
            self._finish(error.code, ())
            raise

    def _compute(self, duration: int | None = None, *, fenced: bool = False) -> None:
        limit = duration if duration is not None else self._timeout
        try:
            request = self.request(limit)
            runner = self._runner = PlanRunner(self._resolved(request.inputs), self.observer)
            self._report = runner.report
            self._result = result = runner.execute(request)
        except BaseException as error:
            self._finish(getattr(error, "code", ResultCode.OP_FAILED), ())
            raise
        if runner.plan is not self.compilation.plan:
            self._report = runner.report.as_planned(self.compilation.plan)
        if self._reusable and not self._tried_to_bind and result.code is ResultCode.NO_ERROR:
            self._tried_to_bind = True
            self._uses_memories = any(a is not None and a.memory is not None for a in (*self._inputs, *self._outputs))
            found = zip(request.outputs, result.shapes, strict=True)
            self._bound = runner.bound(replace(request, outputs=tuple(OutputBuffer(b.data, s.dims) for b, s in found)))
        # Fenced executions report no shapes; their outputs have known ones (facts E56, E61).
        shapes = [OutputShape(a.dims) for a in self._outputs if a is not None] if fenced else result.shapes
        self._finish(result.code, shapes, complete=not fenced or result.code is not ResultCode.NO_ERROR)
        if result.code is not ResultCode.NO_ERROR:
            raise ERROR_OF_CODE[result.code](result.reason or Reason(result.code.name))

    def _resolved(self, inputs: Sequence[Array | None]) -> Compilation:
        """The compilation that computes these inputs: of known dimensions, unless somebody observes the plan as it is."""
        if self.observer is not None or self.compilation.model.resolution is None:
            return self.compilation
        return self.compilation.at([() if value is None else value.shape for value in inputs])

    def _finish(self, code: ResultCode, shapes: Sequence[OutputShape], *, complete: bool = True) -> None:
        """Facts E63 and E64."""
        self._code, self._shapes = code, list(shapes)
        good = code is ResultCode.NO_ERROR
        for i, argument in enumerate(self._outputs):
            if argument is not None and argument.memory is not None:
                argument.memory.written(shapes[i].dims if good else None)
        if complete:
            self._complete()

    def _complete(self) -> None:
        self._state = ExecutionState.COMPLETED

    # -- answers -----------------------------------------------------------------------------------------------------

    def output_dims(self, index: int) -> tuple[int, ...]:
        """``getOutputOperandDimensions``: known after success and after OUTPUT_INSUFFICIENT_SIZE, else BAD_STATE.

        BAD_DATA for a scalar and for an output of unknown rank (fact E38).
        """
        dims = self._shape(index, "getOutputOperandDimensions").dims
        if not dims:
            raise BadDataError(Reason("an output with a rank", "none", "getOutputOperandDimensions"))
        return dims

    def output_rank(self, index: int) -> int:
        """``getOutputOperandRank``: 0 for a scalar and for a rank that stayed unknown."""
        return len(self._shape(index, "getOutputOperandRank").dims)

    def output_sufficient(self, index: int) -> bool:
        """True if the output's buffer was large enough (fact E37)."""
        return self._shape(index, "getOutputOperandDimensions").sufficient

    def _shape(self, index: int, call: str) -> OutputShape:
        if self._state is not ExecutionState.COMPLETED or self._code not in FINAL:
            ended = f"one that ended with {self._code.name}" if self._state is ExecutionState.COMPLETED else self._state.value
            raise BadStateError(Reason("an execution that has completed", ended, call))
        operand: Operand = self._at(self._output_operands, index, call)
        shape = self._shapes[index] if index < len(self._shapes) else OutputShape(operand.dims)
        argument = self._outputs[index]
        omitted = argument is not None and argument.data is None
        return OutputShape((), shape.sufficient) if omitted else shape  # fact E40

    def duration(self, code: int = DurationCode.ON_HARDWARE) -> int:
        """``getDuration`` in nanoseconds; 2**64 - 1 where the device does not measure (facts E41 to E44)."""
        if code not in tuple(DurationCode):
            raise BadDataError(Reason("a duration code of 0 to 3", str(code), "getDuration"))
        done = self._state is ExecutionState.COMPLETED and self._code is ResultCode.NO_ERROR
        if not done or not self._measured:
            raise BadStateError(Reason("a measured execution that succeeded", self._state.value, "getDuration"))
        on_hardware = code in (DurationCode.ON_HARDWARE, DurationCode.FENCED_ON_HARDWARE)
        measured = self._result.on_device if on_hardware else self._result.in_driver
        if code == DurationCode.IN_DRIVER and measured is not None:
            measured += self._fence_wait  # which is spent in the driver, and not counted by the fenced durations
        return UNKNOWN_DURATION if measured is None else min(measured, UNKNOWN_DURATION - 1)

    # -- in one call -------------------------------------------------------------------------------------------------

    def run(self, inputs: Mapping[str, ArrayLike] | Sequence[ArrayLike | None]) -> dict[str, Array]:
        """Compute and return the outputs by name, allocating what is needed.

        ``inputs`` by operand name or in model-input order. Outputs whose size only execution knows get a few kilobytes, and are
        computed again with the size that NNAPI reports if that was too little. States that are not among the inputs come from
        :attr:`states`, which gets their new values.
        """
        ordered, repeated = self._in_order(inputs), self.compilation.repeated
        arrays = self._checked(ordered)
        resolved = self.compilation if arrays is None else self._resolved(arrays)
        if arrays is not None and resolved is not self.compilation:
            return self._run_resolved(Execution(resolved), arrays)
        kind = None if arrays is None else kind_of(arrays)
        answers = None if arrays is None or kind is None else self._compute_again(kind, arrays)
        if answers is None:
            answers = self._compute_whole(ordered if arrays is None else arrays)
            if arrays is not None and kind is not None and repeated.is_worthwhile(kind, arrays, answers):
                repeated.put(kind, self._bound_like(arrays))
        self.states.update(answers)
        return {name: answers[i] for i, name in repeated.outputs}

    def _run_resolved(self, execution: Execution, arrays: Sequence[Array | None]) -> dict[str, Array]:
        """The outputs by an execution of the model with known dimensions, whose report becomes this one's."""
        try:
            found = execution.run(arrays)
        finally:
            self._state, self._code, self._shapes = execution._state, execution._code, execution._shapes
            self._report = execution.report.as_planned(self.compilation.plan)
        return found

    def _checked(self, inputs: Sequence[ArrayLike | None]) -> list[Array | None] | None:
        """Arrays that inputs may be; None if one may not, or if this execution is asked for more than to compute."""
        options = self._reusable, self._padded, self._measured, self._steps_measured, self._any_set, self._hints
        limited = self._timeout is not None or self._loop_timeout is not None
        if limited or any(options) or self.observer is not None or self._state is not ExecutionState.PREPARATION:
            return None
        try:
            values = zip(self._input_operands, inputs, strict=True)
            return [None if value is None else as_array(operand, value, "setInput") for operand, value in values]
        except NnapiError:
            return None

    def _compute_again(self, kind: Kind, arrays: Sequence[Array | None]) -> list[Array] | None:
        """All outputs by a bound run; None if there is none, or if it fails: the whole way reports why."""
        repeated = self.compilation.repeated
        run = repeated.borrow(kind)
        if run is None:
            return None
        with self._starting:
            self.require_preparation("compute")
            self._state = ExecutionState.COMPUTATION
        started = time.perf_counter_ns()
        try:
            answers = run.answers(arrays)
        except BaseException as error:
            repeated.put(kind, None)
            if not isinstance(error, Exception):
                self._finish(ResultCode.OP_FAILED, ())
                raise
            self._state = ExecutionState.PREPARATION
            return None
        self._elapsed, self._shapes, self._runner = time.perf_counter_ns() - started, list(run.shapes), None
        several = isinstance(run.compute, BoundSteps)
        self._report = RunReport.of_bound(self.compilation.plan, run.compute, self._elapsed) if several else None
        repeated.put(kind, run)
        self._state = ExecutionState.COMPLETED
        return answers

    def _bound_like(self, arrays: Sequence[Array | None]) -> BoundRun | None:
        """The computation that has succeeded, bound to other arrays; None if it cannot be."""
        runner, dims = self._runner, [shape.dims for shape in self._shapes]
        sizes = [size_of(operand, each) for operand, each in zip(self._output_operands, dims, strict=True)]
        inputs = tuple(None if array is None else np.array(array, order="C") for array in arrays)
        buffers = tuple(OutputBuffer(allocated(size or 0), each) for size, each in zip(sizes, dims, strict=True))
        try:
            compute = None if runner is None or None in sizes else runner.bound(Request(inputs, buffers))
        except NnapiError:
            return None
        places = zip(buffers, self._output_operands, strict=True)
        outputs = [shaped(b.data, operand, b.dims) for b, operand in places if b.data is not None]
        return None if compute is None else BoundRun(inputs, outputs, tuple(self._shapes), compute)

    def _compute_whole(self, inputs: Sequence[ArrayLike | None]) -> list[Array]:
        """All outputs, by buffers that grow until they suffice."""
        for i, value in enumerate(inputs):
            self.set_input(i, value)
        sizes = self.compilation.repeated.sizes
        while True:
            buffers = []
            for i, operand in enumerate(self._output_operands):
                size = size_of(operand, operand.dims)
                capacity = size if size is not None else sizes[i] or _FIRST_CAPACITY
                buffers.append(allocated(capacity))
                self.set_output(i, buffers[-1])
            try:
                self.compute()
                break
            except ERROR_OF_CODE[ResultCode.OUTPUT_INSUFFICIENT_SIZE]:
                grown = self._grown(sizes)
                if grown == sizes:  # None of the outputs was too small.
                    raise
                self.compilation.repeated.sizes = sizes = grown
                self._outputs = [None] * len(self._output_operands)
                self._state = ExecutionState.PREPARATION
        return [
            shaped(buffer, operand, shape.dims)
            for operand, buffer, shape in zip(self._output_operands, buffers, self._shapes, strict=True)
        ]

    def _grown(self, sizes: list[int | None]) -> list[int | None]:
        """A size for each output as reported; doubled where only "too small" is known."""
        grown: list[int | None] = []
        for operand, shape, size in zip(self._output_operands, self._shapes, sizes, strict=True):
            itemsize = operand_dtype(operand).itemsize
            reported = int(np.prod(shape.dims)) * itemsize if shape.dims and 0 not in shape.dims else 0
            grown.append(max(reported, (size or itemsize) * (1 if shape.sufficient else 2)))
        if max(size or 0 for size in grown) > GROWTH_LIMIT:
            raise ERROR_OF_CODE[ResultCode.OUTPUT_INSUFFICIENT_SIZE](Reason("outputs below 2 GiB", "more"))
        return grown

    def _in_order(self, inputs: Mapping[str, ArrayLike] | Sequence[ArrayLike | None]) -> list[ArrayLike | None]:
        operands = self._input_operands
        if isinstance(inputs, Mapping):
            names = self.compilation.repeated.inputs
            for name in inputs:
                if name not in names:
                    raise InputError(Reason(f"an input of the model ({', '.join(names)})", name))
            values: dict[str, ArrayLike] = {names[i]: value for i, value in self.states.inputs().items()}
            values.update(inputs)
            missing = [name for name in names if name not in values]
            if missing:
                raise InputError(Reason(f"a value for every input ({', '.join(names)})", f"none for {', '.join(missing)}"))
            return [values[name] for name in names]
        states = self.states.inputs() if self.compilation.model.states else {}
        if len(inputs) != len(operands) - len(states):
            raise InputError(Reason(f"{len(operands) - len(states)} inputs", str(len(inputs))))
        if not states:
            return list(inputs)
        rest = iter(inputs)
        return [states[i] if i in states else next(rest) for i in range(len(operands))]
