"""Execution: bind inputs and outputs to a finished compilation and run its plan."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from enum import Enum
from typing import TypeVar

import numpy as np
import numpy.typing as npt
from numpy.typing import ArrayLike

from nnbridge.devices.device import OutputBuffer, OutputShape, Request, Result, deadline_after
from nnbridge.errors import ERROR_OF_CODE, BadDataError, BadStateError, InputError, NnapiError, Reason, UnexpectedNullError
from nnbridge.extensions import operand_dtype
from nnbridge.model import Array, Operand, input_name, known, output_name
from nnbridge.runtime.arguments import MAX_LENGTH, Argument, as_array, bytes_of, fixed_dims, input_array
from nnbridge.runtime.compilation import Compilation, attribute
from nnbridge.runtime.control_flow import shaped
from nnbridge.runtime.driver_calls import FINAL, size_of
from nnbridge.runtime.event import Event, wait_for
from nnbridge.runtime.memory import INPUT, OUTPUT, Memory, Role
from nnbridge.runtime.plan_runner import GROWTH_LIMIT, Observer, PlanRunner, RunReport, allocated
from nnbridge.runtime.states import States
from nnbridge.types import MAX_LOOP_TIMEOUT_NS, DurationCode, OperandCode, ResultCode

UNKNOWN_DURATION = 2**64 - 1  # what a device that does not measure says

_FIRST_CAPACITY = 1 << 12
"""Bytes that an output of unknown size gets first: small ones are then computed once."""

Item = TypeVar("Item")


class _State(Enum):
    PREPARATION = "preparation"
    COMPUTATION = "computation"
    COMPLETED = "completed"


class Execution:
    """``ANeuralNetworksExecution``.

    In one call with NumPy arrays: :meth:`run`. As in the NDK: set every input and output (from buffers or memories), then
    :meth:`compute`, :meth:`start_compute`, :meth:`start_compute_with_dependencies` or a :class:`Burst`.
    """

    def __init__(self, compilation: Compilation, states: States | None = None) -> None:
        self.compilation = compilation
        self.states = states or States(compilation.model)
        """What :meth:`run` carries on with; share one between executions that follow each other."""
        self._explicit_single = compilation.explicit_single
        _ = compilation.prepared_plan  # BAD_STATE if it is not finished
        main = compilation.model.main
        self._input_operands = [main.operands[i] for i in main.inputs]
        self._output_operands = [main.operands[i] for i in main.outputs]
        self._inputs: list[Argument | None] = [None] * len(self._input_operands)
        self._outputs: list[Argument | None] = [None] * len(self._output_operands)
        self._shapes: list[OutputShape] = []
        self._loop_timeout: int | None = None
        self._timeout: int | None = None
        self._padded = self._measured = self._reusable = self._any_set = False
        self._steps_measured = False
        self._fence_wait = 0  # nanoseconds that the last computation's driver waited for fences
        self._hints: list[tuple[str, int, bytes]] = []
        self._result = Result()
        self._state = _State.PREPARATION
        self._starting = threading.Lock()
        self._code = ResultCode.NO_ERROR
        self._report: RunReport | None = RunReport()
        self._bound: Callable[[], None] | None = None  # the computation on these arguments once more, where there is such
        self._elapsed, self._uses_memories, self._tried_to_bind = 0, False, False
        self.observer: Observer | None = None
        """Called with the values that computations report on their way; neither plan nor numerics depend on it."""

    @property
    def report(self) -> RunReport:
        """What the last computation did."""
        if self._report is None:
            self._report = RunReport.of_bound(self.compilation.plan, self._bound, self._elapsed)
        return self._report

    # -- arguments ---------------------------------------------------------------------------------------------------

    def set_input(self, index: int, value: ArrayLike | None) -> None:
        """``setInput`` of an array of the operand's element type, its shape filling in what the model leaves open.

        Numbers and lists of numbers are converted. None omits the input. BAD_STATE if it is set already or the execution has
        started; BAD_DATA for a wrong index, type or shape.
        """
        operand, _ = self._settable(self._inputs, self._input_operands, index, "setInput")
        array = None if value is None else as_array(operand, value, "setInput")
        self._inputs[index] = Argument(None, operand.dims if array is None else array.shape, None, array)
        self._any_set = True

    def set_input_buffer(self, index: int, buffer: object | None, dims: Sequence[int] | None = None) -> None:
        """``setInput`` of bytes: anything with the buffer protocol, read when computing; ``dims`` is the ``type`` argument.

        The length must be the operand's size, or more with padding enabled (facts E8 to E14).
        """
        self._set(INPUT, index, dims, "setInput", lambda: bytes_of(buffer, "setInput"))

    def set_input_from_memory(
        self, index: int, memory: Memory, offset: int = 0, length: int = 0, dims: Sequence[int] | None = None
    ) -> None:
        """``setInputFromMemory``: ``length`` bytes at ``offset``; 0 and 0 mean the whole of a device memory (fact E16)."""
        call, role = "setInputFromMemory", Role(self.compilation, INPUT, index)
        self._set(INPUT, index, dims, call, lambda: memory.part(offset, length, role, call), memory)

    def set_output(self, index: int, buffer: object | None, dims: Sequence[int] | None = None) -> None:
        """``setOutput``: a writable buffer to fill; None omits the output.

        ``dims`` may fix dimensions that the model leaves open. Where they stay open, the buffer's size is its capacity.
        A buffer that overlaps an input, a constant or another output gives undefined results, as on Android.
        """
        self._set(OUTPUT, index, dims, "setOutput", lambda: bytes_of(buffer, "setOutput"))

    def set_output_from_memory(
        self, index: int, memory: Memory, offset: int = 0, length: int = 0, dims: Sequence[int] | None = None
    ) -> None:
        """``setOutputFromMemory``."""
        call, role = "setOutputFromMemory", Role(self.compilation, OUTPUT, index)
        self._set(OUTPUT, index, dims, call, lambda: memory.part(offset, length, role, call), memory)

    def _set(
        self,
        direction: str,
        index: int,
        dims: Sequence[int] | None,
        call: str,
        bytes_now: Callable[[], npt.NDArray[np.uint8] | None],
        memory: Memory | None = None,
    ) -> None:
        is_input = direction == INPUT
        arguments, operands = (self._inputs, self._input_operands) if is_input else (self._outputs, self._output_operands)
        operand, fixed = self._settable(arguments, operands, index, call, dims)
        fixed = fixed if memory is None else memory.combined(fixed, call)
        data = bytes_now()
        if data is not None:
            if not is_input and memory is None and not data.flags.writeable:
                raise BadDataError(Reason("a contiguous, writable buffer", "another", call, operand.name))
            self._check_length(operand, fixed, len(data), call, is_input=is_input)
        arguments[index] = Argument(data, fixed, memory)
        self._any_set = True

    def _settable(
        self,
        arguments: Sequence[Argument | None],
        operands: Sequence[Operand],
        index: int,
        call: str,
        dims: Sequence[int] | None = None,
    ) -> tuple[Operand, tuple[int, ...]]:
        """The operand and its dimensions. Android's order of checks (fact E6): started, index, dimensions, already set."""
        self.require_preparation(call)
        operand = self._at(operands, index, call)
        fixed = fixed_dims(operand, dims, call)
        if arguments[index] is not None:
            what = "input" if call.startswith("setInput") else "output"
            raise BadStateError(Reason(f"an {what} that is not set", "set before", call, operand.name))
        return operand, fixed

    def _check_length(self, operand: Operand, dims: tuple[int, ...], length: int, call: str, *, is_input: bool = False) -> None:
        """Facts E9, E12, E13."""
        if length > MAX_LENGTH:
            raise BadDataError(Reason(f"{MAX_LENGTH} bytes at most", str(length), call, operand.name))
        self._any_set = True  # A refused size counts as well (fact E15).
        if operand.type == OperandCode.OEM_SCALAR:
            return
        if is_input and operand.is_tensor and not known(dims):
            raise BadDataError(Reason("known dimensions of an input", str(list(dims)), call, operand.name))
        size = size_of(operand, dims)
        if size is None:
            if length == 0:
                raise BadDataError(Reason("at least one byte", "0", call, operand.name))
            return
        if length < size or (length > size and not self._padded):
            rule = f"{size} bytes" + (" at least" if self._padded else "")
            raise BadDataError(Reason(rule, f"{length}", call, operand.name))

    # -- options -----------------------------------------------------------------------------------------------------

    def enable_input_and_output_padding(self, enable: bool) -> None:
        """``enableInputAndOutputPadding``: buffers may be longer than their operands; before anything is set (fact E15)."""
        self.require_preparation("enableInputAndOutputPadding")
        if self._any_set:
            raise BadStateError(Reason("no input or output set yet", "some are", "enableInputAndOutputPadding"))
        self._padded = bool(enable)

    def set_reusable(self, reusable: bool) -> None:
        """``setReusable``: computing may be repeated with the same arguments (feature level 5)."""
        self.require_preparation("setReusable")
        self._reusable = bool(reusable)

    def set_measure_timing(self, measure: bool) -> None:
        """``setMeasureTiming``: BAD_DATA unless the compilation has an explicit list of one device (fact E20)."""
        self._require_single("setMeasureTiming")
        self.require_preparation("setMeasureTiming")
        self._measured = bool(measure)

    def measure_steps(self) -> None:
        """Let every device of the plan measure its steps, which :attr:`report` then states; there is no such call in the NDK."""
        self.require_preparation("measure_steps")
        self._steps_measured = True

    def add_extension_attribute(self, name: str, number: int, value: bytes) -> None:
        """``addExtensionAttribute``: a hint for the driver, each once; for an explicit list of one device (fact E20; level 8)."""
        call = "addExtensionAttribute"
        self._require_single(call)
        self.require_preparation(call)
        self._hints.append(attribute(self._hints, name, number, value, call))

    def set_timeout(self, nanoseconds: int) -> None:
        """``setTimeout``: counted anew for each computing; 0 for none (feature level 4, fact E20)."""
        self._require_single("setTimeout")
        self.require_preparation("setTimeout")
        self._timeout = nanoseconds or None

    def set_loop_timeout(self, nanoseconds: int) -> None:
        """``setLoopTimeout``: time for each WHILE loop, at most 15 s (more is cut down to it)."""
        self.require_preparation("setLoopTimeout")
        self._loop_timeout = min(nanoseconds, MAX_LOOP_TIMEOUT_NS)

    # -- computing ---------------------------------------------------------------------------------------------------

    def compute(self) -> None:
        """``compute``: run synchronously. Raises the NNAPI error that it ends with."""
        self._begin("compute")
        if self._bound is not None and self.observer is None and self._compute_bound(self._bound):
            return
        self._check_memories()
        self._compute()

    def _compute_bound(self, bound: Callable[[], None]) -> bool:
        """Compute what was computed before; False if that fails, so that the whole way reports why."""
        if self._uses_memories:
            self._check_memories()
        started = time.perf_counter_ns()
        try:
            bound()
        except Exception:
            self._bound = None
            return False
        self._elapsed, self._report = time.perf_counter_ns() - started, None
        if self._uses_memories:
            self._finish(ResultCode.NO_ERROR, self._shapes)
        else:
            self._state = _State.COMPLETED
        return True

    def start_compute(self) -> Event:
        """``startCompute``: run in a thread; what is wrong with the arguments is raised now (fact E26)."""
        self._begin("startCompute")
        self._check_memories()
        return Event(self._compute)

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
            self._state = _State.COMPLETED
            raise BadDataError(Reason("a duration with an explicit list of one device alone", str(duration), call))
        for operand, argument in zip(self._output_operands, self._outputs, strict=True):
            if operand.is_tensor and argument is not None and argument.data is not None and not known(argument.dims):
                self._state = _State.COMPLETED
                raise BadDataError(Reason("outputs of known dimensions", str(list(argument.dims)), call, operand.name))
        plan = self.compilation.plan
        if plan.has_dynamic_temporaries:
            self._wait_for(dependencies)
            self._check_memories()
            return Event(self._compute)
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

        return Event(work, fence=True, waited=self._complete)

    def _wait_for(self, dependencies: Sequence[Event | None]) -> None:
        try:
            wait_for(dependencies)
        except NnapiError as error:
            self._finish(error.code, ())
            raise

    def _begin(self, call: str) -> None:
        """From preparation, or completed if reusable, to computation; every argument must be set (facts E1 to E4, E22)."""
        with self._starting:
            if not (self._reusable and self._state is _State.COMPLETED):
                self.require_preparation(call)
            self._state, self._fence_wait = _State.COMPUTATION, 0
        if self._bound is not None:
            return
        for group, operands in ((self._inputs, self._input_operands), (self._outputs, self._output_operands)):
            for argument, operand in zip(group, operands, strict=True):
                if argument is None:
                    self._state, self._code = _State.COMPLETED, ResultCode.BAD_DATA
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
        runner = PlanRunner(self.compilation, self.observer)
        self._report = runner.report
        try:
            request = self.request(limit)
            self._result = result = runner.execute(request)
        except BaseException as error:
            self._finish(getattr(error, "code", ResultCode.OP_FAILED), ())
            raise
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

    def request(self, limit: int | None = None) -> Request:
        """What a device that runs the whole model is asked, with a time limit in nanoseconds."""
        return Request(
            tuple(map(input_array, self._inputs, self._input_operands)),
            tuple(OutputBuffer(a.data, a.dims) for a in self._outputs if a is not None),
            deadline_after(limit),
            self._loop_timeout,
            self._measured or self._steps_measured,
            tuple(self._hints),
        )

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
        self._state = _State.COMPLETED

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
        if self._state is not _State.COMPLETED or self._code not in FINAL:
            ended = f"one that ended with {self._code.name}" if self._state is _State.COMPLETED else self._state.value
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
        done = self._state is _State.COMPLETED and self._code is ResultCode.NO_ERROR
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
        for i, value in enumerate(self._in_order(inputs)):
            self.set_input(i, value)
        sizes: list[int | None] = [None] * len(self._output_operands)
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
                sizes = grown
                self._outputs = [None] * len(self._output_operands)
                self._state = _State.PREPARATION
        answers = [
            shaped(buffer, operand, shape.dims)
            for operand, buffer, shape in zip(self._output_operands, buffers, self._shapes, strict=True)
        ]
        self.states.update(answers)
        own = set(self.compilation.model.own_outputs)
        named = zip(self.compilation.model.main.outputs, self._output_operands, answers, strict=True)
        return {output_name(operand, i): answer for i, (index, operand, answer) in enumerate(named) if index in own}

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
            names = [input_name(operand, i) for i, operand in enumerate(operands)]
            for name in inputs:
                if name not in names:
                    raise InputError(Reason(f"an input of the model ({', '.join(names)})", name))
            values: dict[str, ArrayLike] = {names[i]: value for i, value in self.states.inputs().items()}
            values.update(inputs)
            missing = [name for name in names if name not in values]
            if missing:
                raise InputError(Reason(f"a value for every input ({', '.join(names)})", f"none for {', '.join(missing)}"))
            return [values[name] for name in names]
        states = self.states.inputs()
        if len(inputs) != len(operands) - len(states):
            raise InputError(Reason(f"{len(operands) - len(states)} inputs", str(len(inputs))))
        rest = iter(inputs)
        return [states[i] if i in states else next(rest) for i in range(len(operands))]

    # -- helpers -----------------------------------------------------------------------------------------------------

    def require_preparation(self, call: str) -> None:
        """BAD_STATE unless the execution has not started yet."""
        if self._state is not _State.PREPARATION:
            raise BadStateError(Reason("an execution that has not started", self._state.value, call))

    def _require_single(self, call: str) -> None:
        if not self._explicit_single:
            raise BadDataError(Reason("a compilation for exactly one device", "another", call))

    @staticmethod
    def _at(items: Sequence[Item], index: int, call: str) -> Item:
        if not 0 <= index < len(items):
            raise BadDataError(Reason(f"an index below {len(items)}", str(index), call))
        return items[index]
