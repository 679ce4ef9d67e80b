"""Running a plan: steps, control flow between them, buffers of sizes that only execution knows, and fallback to the CPU."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import field, replace
from functools import partial
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from nnbridge.devices.cpu import CPU_NAME
from nnbridge.devices.device import OutputBuffer, OutputShape, PreparedModel, Request, Result
from nnbridge.errors import OutOfMemoryError, Reason
from nnbridge.extensions import is_tensor, operand_dtype
from nnbridge.model import Array, Operand, known
from nnbridge.operations.validation import byte_size
from nnbridge.records import dataclass
from nnbridge.runtime.compilation import Compilation
from nnbridge.runtime.control_flow import ControlFlowError, Interpretation, OperandValue, shaped
from nnbridge.runtime.driver_calls import FINAL, executed, named, size_of
from nnbridge.runtime.partitioner import ExecutionStep, GotoStep, IfStep, SourceOperand
from nnbridge.runtime.plan import ALIGNMENT, Plan
from nnbridge.types import FeatureLevel, ResultCode

GROWTH_LIMIT = 2**31
"""Bytes that a buffer may grow to."""

_WASTE = 0.2
"""Share of a buffer that may be unused before a smaller one is allocated."""

_HOST_CAPACITY = 1 << 16
"""Bytes that a temporary of unknown size has first where the host writes it: most operations are then not computed twice."""

_MISSED = (ResultCode.MISSED_DEADLINE_TRANSIENT, ResultCode.MISSED_DEADLINE_PERSISTENT)


@dataclass
class StepReport:
    """The time of one step, and on which device; all runs of a loop's step together."""

    device: str
    nanoseconds: int = 0
    fallback: Reason | None = None
    """Why the step ran on the CPU instead of its device, the last time that it did."""
    step: int = 0
    """Number of the execution step."""
    runs: int = 0
    failed: int = 0
    """Runs that ended with an error."""
    on_device: int | None = None
    """Nanoseconds that the device itself measured, if it was asked to and does."""
    in_driver: int | None = None


@dataclass(frozen=True, slots=True)
class StepSpan:
    """One run of a step, for timelines."""

    plan: Plan
    step: int
    device: str
    thread: int
    started: int
    """Nanoseconds of a clock without a fixed start."""
    nanoseconds: int
    inputs: tuple[int, ...]
    """Bytes of each input."""
    fallback: Reason | None = None
    """Why the step ran on the CPU instead of its device."""
    failure: Reason | None = None
    on_device: int | None = None
    in_driver: int | None = None

    @property
    def ended(self) -> int:
        """The end time, by the clock of :attr:`started`."""
        return self.started + self.nanoseconds


_MOST_SPANS = 100_000


@dataclass
class RunReport:
    """The work of an execution, step by step in order of their first runs."""

    steps: list[StepReport] = field(default_factory=list)
    fallback: Reason | None = None
    """Why the whole model was repeated on the CPU."""
    spans: list[StepSpan] = field(default_factory=list, repr=False)
    """Each run of a step in order, of executions that measure; of endless loops the first hundred thousand."""
    _found: dict[tuple[object, ...], StepReport] = field(default_factory=dict, repr=False)

    @property
    def devices(self) -> tuple[str, ...]:
        """Those that ran something to its end."""
        return tuple(dict.fromkeys(step.device for step in self.steps if step.runs > step.failed))

    @classmethod
    def of_bound(cls, plan: Plan, bound: Callable[[], None] | None, nanoseconds: int) -> RunReport:
        """Of a run by a bound function, which took so long."""
        times = bound.times if isinstance(bound, BoundSteps) else {plan.steps[0].number: nanoseconds}
        steps = ((step, times[step.number]) for step in plan.steps if step.number in times)
        return cls([StepReport(plan.devices[step.device].name, time, step=step.number, runs=1) for step, time in steps])

    def as_planned(self, plan: Plan) -> RunReport:
        """The report of a run with known dimensions as one of the plan that it stands for, where that has one step.

        Its spans are those of the run.
        """
        if len(plan.steps) != 1:
            return self
        [step] = plan.steps
        failed = any(one.failed for one in self.steps)
        time = sum(one.nanoseconds for one in self.steps)
        whole = StepReport(plan.devices[step.device].name, time, step=step.number, runs=1, failed=int(failed))
        return RunReport([whole], self.fallback, self.spans)

    def add(
        self, plan: Plan, step: ExecutionStep, device: str, nanoseconds: int, fallback: Reason | None, result: Result
    ) -> None:
        """One run of a step."""
        key = (id(plan), step.number, device, fallback is None)
        found = self._found.get(key)
        if found is None:
            found = self._found[key] = StepReport(device, step=step.number)
            self.steps.append(found)
        found.nanoseconds += nanoseconds
        found.runs += 1
        found.failed += result.code not in FINAL
        found.on_device = _sum(found.on_device, result.on_device)
        found.in_driver = _sum(found.in_driver, result.in_driver)
        found.fallback = fallback


def _sum(before: int | None, time: int | None) -> int | None:
    return before if time is None else (before or 0) + time


class BoundSteps:
    """The items of a plan's flat list on buffers bound before: functions, the IF among them, and jumps."""

    def __init__(self, items: Sequence[BoundItem], steps: Sequence[int]) -> None:
        self._items = items
        self._steps = steps
        """The number of the execution step at each function's place."""
        self.times: dict[int, int] = {}
        """Nanoseconds of each execution step of the last run, by number."""

    def __call__(self) -> None:
        items, times, at = self._items, dict[int, int](), 0
        started = time.perf_counter_ns()
        while at < len(items):
            item = items[at]
            if isinstance(item, int):
                at = item
            elif isinstance(item, BoundChoice):
                at = item.then if item.condition.reshape(-1)[:1].view(np.uint8)[0] else item.otherwise
            else:
                item()
                ended = time.perf_counter_ns()
                times[self._steps[at]] = ended - started
                started = ended
                at += 1
        self.times = times


@dataclass(frozen=True)
class BoundChoice:
    """An IF between bound steps: the places where its branches begin."""

    condition: Array
    then: int
    otherwise: int


BoundItem: TypeAlias = "Callable[[], None] | BoundChoice | int"
"""A bound step, an IF, or the place that a jump goes to."""

Observer: TypeAlias = "Callable[[Plan, ExecutionStep, str, int, int, Array], None]"
"""``observer(plan, step, device, subgraph, operand, value)``: a value that a step computed on the named device, of an operand of
``step.model.subgraphs()[subgraph]``. Devices report what they can, the runtime each step's inputs, and the
outputs of those that succeed."""


class PlanRunner:
    """One run of a finished compilation; :attr:`report` states what happened."""

    def __init__(self, compilation: Compilation, observer: Observer | None = None) -> None:
        self._compilation = compilation
        self._observer = observer
        self.plan = self._plan = compilation.plan
        self._dims: dict[SourceOperand, tuple[int, ...]] = {}
        """Of operands between steps, as the last run computed them."""
        self.report = RunReport()

    def execute(self, request: Request) -> Result:
        """Run the plan; what fails on a device goes to the CPU where Android's would (facts E29 to E32, R17)."""
        plan, allowed = self._plan, self._compilation.allows_fallback
        if plan.simple:
            step = plan.steps[0]
            result = self._run_step(plan, step, plan.prepared[0], request)
            if result.code in FINAL or not allowed or plan.devices[step.device].kind != "device":
                return result
        else:
            result, fall_back = self._run_steps(plan, request, allowed)
            if not fall_back or not allowed:
                return result
        self.report.fallback = result.reason or Reason(result.code.name)
        cpu = self._compilation.cpu_plan()
        if cpu.simple:
            return self._run_step(cpu, cpu.steps[0], cpu.prepared[0], request)
        return self._run_steps(cpu, request, False)[0]

    def bound(self, request: Request) -> Callable[[], None] | None:
        """A function that computes again what :meth:`execute` computed, without fallback; None if there is none.

        It raises something where dimensions differ from those before.
        """
        plan = self._plan
        if self.report.fallback is not None or self._observer is not None or any(step.fallback for step in self.report.steps):
            return None
        if plan.simple:
            return plan.prepared[0].bind(request)
        run, items = Interpretation(plan.partition, request), list[BoundItem]()
        found: BoundItem | None
        for item in plan.partition.program:
            if isinstance(item, ExecutionStep):
                found = self._bound_step(plan, item, run, request)
            elif isinstance(item, IfStep):
                found = self._bound_choice(item, run)
            else:
                found = item.target if isinstance(item, GotoStep) else None
            if found is None:
                return None
            items.append(found)
        return BoundSteps(items, [getattr(item, "number", -1) for item in plan.partition.program])

    def _bound_step(self, plan: Plan, step: ExecutionStep, run: Interpretation, request: Request) -> Callable[[], None] | None:
        """A step on buffers that hold what it computes; None if a size is not known."""
        places = [(step.source, i) for i in step.outputs]
        slots = [run.slot(place) for place in places]
        if not all(self._sized(run, place) for place in places):
            return None
        buffers = [slot.buffer for slot in slots if slot.buffer is not None]
        inputs = tuple(run.slot((step.source, i)).value for i in step.inputs)
        return plan.prepared[step.number].bind(replace(request, inputs=inputs, outputs=tuple(buffers)))

    def _bound_choice(self, step: IfStep, run: Interpretation) -> BoundChoice | None:
        """An IF whose branches write to the same buffers; None if a size or the condition's place is not known."""
        condition = run.slot(step.condition).value
        if condition is None or not all(self._sized(run, place) for place in step.outputs):
            return None
        for branch in (step.then, step.otherwise):
            run.enter(step, branch)
        return BoundChoice(condition, step.then.start, step.otherwise.start)

    def _sized(self, run: Interpretation, place: SourceOperand) -> bool:
        """True if an operand has a buffer of the size that it had in the last run, or that it always has."""
        slot = run.slot(place)
        slot.dims = self._dims.get(place, slot.dims)
        size = size_of(slot.operand, slot.dims)
        if size is None:
            return False
        slot.buffer = slot.buffer or OutputBuffer(allocated(size), slot.dims)
        _store([slot], [slot.buffer], Result(ResultCode.NO_ERROR, (OutputShape(slot.dims),)))
        return True

    def _run_step(
        self, plan: Plan, step: ExecutionStep, prepared: PreparedModel, request: Request, fallback: Reason | None = None
    ) -> Result:
        """One call to a prepared model, its device's or with a reason the CPU's; the answer is checked (facts E34, E35)."""
        device = plan.devices[step.device]
        name = device.name if fallback is None else CPU_NAME
        # Android's CPU never measures, drivers do from level 3 on (fact E42); the runtime's own clock runs for all.
        measures = request.measure and fallback is None and device.kind == "device" and device.level >= FeatureLevel.LEVEL_3
        traced = request.measure
        request = request if measures == request.measure else replace(request, measure=measures)
        if self._observer is not None:
            observe = partial(self._observer, plan, step, name)
            request = replace(request, observe=observe)
            for i, value in zip(step.model.main.inputs, request.inputs, strict=True):
                if value is not None:
                    observe(0, i, value)
        started = time.perf_counter_ns()
        checked = executed(prepared, request, step.output_operands, name)
        elapsed = time.perf_counter_ns() - started
        if not measures and (checked.on_device, checked.in_driver) != (None, None):
            checked = replace(checked, on_device=None, in_driver=None)
        if checked.code not in FINAL and device.kind == "device" and fallback is None:
            checked = replace(checked, reason=named(checked.reason or Reason(checked.code.name), name))
        self.report.add(plan, step, name, elapsed, fallback, checked)
        if traced and len(self.report.spans) < _MOST_SPANS:
            sizes = tuple(0 if value is None else value.nbytes for value in request.inputs)
            failure = None if checked.code in FINAL else checked.reason or Reason(checked.code.name)
            times = checked.on_device, checked.in_driver
            thread = threading.get_native_id()
            self.report.spans.append(
                StepSpan(plan, step.number, name, thread, started, elapsed, sizes, fallback, failure, *times)
            )
        if request.observe is not None and checked.code is ResultCode.NO_ERROR:
            answers = zip(step.model.main.outputs, step.output_operands, request.outputs, checked.shapes, strict=True)
            for i, operand, buffer, shape in answers:
                if buffer.data is not None:
                    request.observe(0, i, shaped(buffer.data, operand, shape.dims))
        return checked

    def _run_steps(self, plan: Plan, request: Request, allowed: bool) -> tuple[Result, bool]:
        """Steps one after another; the result and whether the whole model should be repeated on the CPU."""
        run = Interpretation(plan.partition, request)
        while True:
            try:
                step = run.next_step()
            except ControlFlowError as error:
                # A loop that exceeds its time would exceed it again (fact R19).
                return Result(error.code, (), error.reason), error.code not in _MISSED
            if step is None:
                self._dims = run.dims()
                return Result(ResultCode.NO_ERROR, run.shapes()), False
            result, fall_back = self._run_in_plan(plan, step, run, request, allowed)
            if result.code is not ResultCode.NO_ERROR:
                return Result(result.code, run.shapes() if result.code in FINAL else (), result.reason), fall_back

    def _run_in_plan(
        self, plan: Plan, step: ExecutionStep, run: Interpretation, request: Request, allowed: bool
    ) -> tuple[Result, bool]:
        """One step of several, on the CPU if its device fails; also whether to repeat the whole model there (R16 to R18)."""
        result = self._run_growing(plan, step, plan.prepared[step.number], run, request)
        kind = plan.devices[step.device].kind
        if result.code not in FINAL and allowed:
            if kind != "device":
                # What failed on the host would fail there again.
                return result, kind == "cpu"
            why = result.reason or Reason(result.code.name)
            prepared = self._compilation.prepare_on_cpu(step)
            result = self._run_growing(plan, step, prepared, run, request, why)
            if result.code not in FINAL:
                return result, True
        if result.code is ResultCode.NO_ERROR:
            return _without_zero_size(plan, step, run, result), True
        return result, False

    def _run_growing(
        self,
        plan: Plan,
        step: ExecutionStep,
        prepared: PreparedModel,
        run: Interpretation,
        request: Request,
        fallback: Reason | None = None,
    ) -> Result:
        """A step whose dynamic temporaries grow until it succeeds (facts R9 to R11)."""
        slots = [run.slot((step.source, i)) for i in step.outputs]
        # The host is not a driver of Android's: its temporaries need not start with one element.
        hosted = plan.devices[step.device].kind == "host"
        places = [(step.source, i) for i in step.outputs]
        least = [plan.grown.get(place, _HOST_CAPACITY) if hosted else 0 for place in places]
        buffers = [slot.buffer or _temporary(slot.operand, size) for slot, size in zip(slots, least, strict=True)]
        inputs = tuple(run.slot((step.source, i)).value for i in step.inputs)
        while True:
            inner = replace(request, inputs=inputs, outputs=tuple(buffers))
            result = self._run_step(plan, step, prepared, inner, fallback)
            if result.code not in FINAL:
                return result
            _store(slots, buffers, result)
            if result.code is ResultCode.NO_ERROR:
                return result
            found = list(zip(slots, buffers, result.shapes, strict=True))
            excessive = next((s for s, b, shape in found if _is_dynamic(s) and _required(s, b, shape) > GROWTH_LIMIT), None)
            if excessive is not None:
                rule = f"a temporary below {GROWTH_LIMIT} bytes"
                return Result(ResultCode.OP_FAILED, (), Reason(rule, "a larger one", operand=excessive.operand.name))
            grown = [_grown(slot, buffer, shape) for slot, buffer, shape in found]
            if hosted:
                plan.grown.update(
                    (place, len(new.data))
                    for place, new, old in zip(places, grown, buffers, strict=True)
                    if new is not old and new.data is not None
                )
            stuck = all(new is old for new, old in zip(grown, buffers, strict=True))
            if stuck or any(s.buffer is not None and not s.sufficient for s in slots):
                return result
            buffers = grown


def _without_zero_size(plan: Plan, step: ExecutionStep, run: Interpretation, result: Result) -> Result:
    """OP_FAILED if another step would read a tensor without elements, as 0 means "not known" there (fact R15).

    Plans with the host's operations are not Android's; what stands between their steps need not be a request of NNAPI's.
    """
    if any(device.kind == "host" for device in plan.devices):
        return result
    for i in step.outputs:
        slot = run.slot((step.source, i))
        if is_tensor(slot.operand) and 0 in slot.dims and (step.source, i) in plan.partition.read:
            rule = "a tensor with elements between steps"
            return Result(ResultCode.OP_FAILED, (), Reason(rule, str(list(slot.dims)), operand=slot.operand.name))
    return result


def _store(slots: Sequence[OperandValue], buffers: Sequence[OutputBuffer], result: Result) -> None:
    """Store a step's values and dimensions (facts R7, R13)."""
    for slot, buffer, shape in zip(slots, buffers, result.shapes, strict=True):
        slot.dims, slot.sufficient = shape.dims, shape.sufficient
        if buffer.data is not None and shape.sufficient:
            slot.value = shaped(buffer.data, slot.operand, shape.dims)


def _temporary(operand: Operand, least: int = 0) -> OutputBuffer:
    """A buffer for a temporary between steps; one element (fact R9), or ``least`` bytes, where its size is not known."""
    size = byte_size(operand)
    return OutputBuffer(allocated(size or max(operand_dtype(operand).itemsize, least)), operand.dims)


def allocated(size: int) -> npt.NDArray[np.uint8]:
    """So many bytes at the alignment that every device prefers at most (facts D18, R1); OUT_OF_MEMORY if there are not."""
    try:
        raw = np.empty(size + ALIGNMENT - 1, np.uint8)
    except MemoryError as error:
        raise OutOfMemoryError(Reason(f"memory for a buffer of {size} bytes", "none")) from error
    start = -raw.__array_interface__["data"][0] % ALIGNMENT
    return raw[start : start + size]


def _is_dynamic(slot: OperandValue) -> bool:
    """True for a temporary whose size only execution knows (fact P32)."""
    return slot.buffer is None and is_tensor(slot.operand) and not known(slot.operand.dims)


def _required(slot: OperandValue, buffer: OutputBuffer, shape: OutputShape) -> int:
    """Bytes that a dynamic temporary should have: the reported size if known, else twice as many if they were too few."""
    assert buffer.data is not None
    size = size_of(slot.operand, shape.dims)
    return size if size is not None else len(buffer.data) * (1 if shape.sufficient else 2)


def _grown(slot: OperandValue, buffer: OutputBuffer, shape: OutputShape) -> OutputBuffer:
    """A dynamic temporary's buffer by the shape reported; the same one if nothing new was reported (facts R11, R12)."""
    if not _is_dynamic(slot):
        return buffer
    assert buffer.data is not None
    length, required = len(buffer.data), _required(slot, buffer, shape)
    if required == length and shape.dims == buffer.dims:
        return buffer
    reusable = required <= length <= required * (1 + _WASTE)
    return OutputBuffer(buffer.data if reusable else allocated(required), shape.dims)
