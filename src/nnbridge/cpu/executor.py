"""The CPU executor: a subgraph is bound once for given input shapes, then run as a loop over its steps.

``nnapi-reference``, the sample drivers and the tests all compute here. There are three kinds of step:

* *prepared*: the shapes are known when the subgraph is bound, and the kernel's first part has run (see
  :mod:`nnbridge.operations.kernels`);
* *whole call*: the shapes are known, but the kernel looks at values, or its first part refuses, which the run reports;
* *dynamic*: only the run knows the shapes, or which body of IF and WHILE comes next. Bodies are bound as the main subgraph is.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np

from nnbridge.cpu import compiled
from nnbridge.cpu.arena import Lease, allocate, plan_arena
from nnbridge.cpu.settings import current
from nnbridge.errors import MissedDeadlineTransientError, NnapiError, OpFailedError, Reason
from nnbridge.model import Array, Model, Operand, Operation, Subgraph
from nnbridge.operations import definition
from nnbridge.operations.call import Arg, Call, NeedsValue
from nnbridge.operations.evaluate import evaluate, make_call, merge_dims, prepare, resolve, run_kernel
from nnbridge.operations.kernels import KERNELS, InPlace, Tier
from nnbridge.types import DEFAULT_LOOP_TIMEOUT_NS, Lifetime, OperationCode, operation_name

_BOUND_PROGRAMS = 8
"""How many sets of input shapes of a subgraph stay bound."""

Arrays: TypeAlias = Sequence["Array | None"]


@dataclass(frozen=True)
class Limits:
    """What bounds one run, an absolute deadline (``time.monotonic_ns``) and the time for each WHILE loop, and who observes it."""

    deadline: int | None = None
    loop_timeout: int = DEFAULT_LOOP_TIMEOUT_NS
    observe: Callable[[int, int, Array], None] | None = None
    """Called with subgraph, operand and value: bodies' inputs, and each value as it is computed; valid during the call alone."""

    def check(self) -> None:
        """MISSED_DEADLINE_TRANSIENT once the deadline has passed."""
        if self.deadline is not None and time.monotonic_ns() > self.deadline:
            raise MissedDeadlineTransientError("the execution's deadline has passed")


NO_LIMITS = Limits()


class Executor:
    """A prepared model on the CPU. ``run`` may be called from several threads at once.

    ``numerics``: ``exact`` computes relaxed float32 in float32; ``float16`` rounds every float32 result of a relaxed
    model to float16, as an accelerator may. ``kernels``: the highest tier of kernels that is used; default: as
    :mod:`nnbridge.cpu.settings` has it.
    """

    def __init__(self, model: Model, *, numerics: str = "exact", kernels: Tier | None = None) -> None:
        settings = current()
        self.model = model
        self.kernels = settings.tier if kernels is None else kernels
        self.threads = settings.threads
        self.rounds = numerics == "float16" and model.relaxed
        self._subgraphs = [_Bindings(self, number, subgraph) for number, subgraph in enumerate(model.subgraphs())]
        main = model.main
        if all(_fully_known(main.operands[i]) for i in main.inputs):
            self._subgraphs[0].bound(tuple(main.operands[i].dims for i in main.inputs))

    def run(self, inputs: Arrays, outputs: Arrays | None = None, limits: Limits = NO_LIMITS) -> list[Arg]:
        """Compute. ``inputs`` in model-input order, None for an omitted one, each of its true shape.

        ``outputs`` may hold arrays of exactly the output's shape and type to be written in place, if they are contiguous.
        Returns the outputs with their true dimensions; ``value`` is the caller's array where it was used.
        """
        limits.check()
        return self._subgraphs[0].run(inputs, outputs, limits)

    def run_body(self, subgraph: Subgraph, operand: int, args: Sequence[Arg], limits: Limits) -> list[Arg]:
        """Run the subgraph that a MODEL operand refers to."""
        body = self._subgraphs[subgraph.operands[operand].location.offset + 1]
        return body.run([arg.value if arg.present else None for arg in args], None, limits)


class _Bindings:
    """A subgraph and what it was bound to last: one program for each set of input shapes."""

    def __init__(self, executor: Executor, number: int, subgraph: Subgraph) -> None:
        self._executor = executor
        self._number = number
        self._subgraph = subgraph
        self._constants = [_constant(executor.model, operand) for operand in subgraph.operands]
        self._programs: OrderedDict[tuple[Any, ...], _Program] = OrderedDict()
        self._lock = threading.Lock()

    def run(self, inputs: Arrays, outputs: Arrays | None, limits: Limits) -> list[Arg]:
        shapes = tuple([None if x is None else x.shape for x in inputs])
        return self.bound(shapes, limits.observe is not None).run(inputs, outputs, limits)

    def bound(self, shapes: tuple[Any, ...], observed: bool = False) -> _Program:
        """The program for these input shapes (None for an omitted input). Two threads may bind the same one; either serves.

        An observed one computes the same by the same kernels, and stores all values on the way.
        """
        key = (shapes, observed)
        with self._lock:
            program = self._programs.get(key)
            if program is not None:
                self._programs.move_to_end(key)
                return program
        # Constants may hold anything; the run reports what they overflow to.
        with np.errstate(all="ignore"):
            program = _Program(self._executor, self._number, self._subgraph, self._constants, shapes, observed)
        with self._lock:
            self._programs[key] = program
            while len(self._programs) > _BOUND_PROGRAMS:
                self._programs.popitem(last=False)
        return program


class _Run:
    """One run: the arrays by operand index, then scratch buffers (None where nothing is held), and what it resolved itself."""

    __slots__ = ("limits", "resolved", "values")

    def __init__(self, values: list[Any], limits: Limits) -> None:
        self.values = values
        self.limits = limits
        self.resolved: dict[int, Arg] = {}


Step: TypeAlias = Callable[[_Run], None]


def _nothing(_: _Run) -> None:
    """The step of an operation that a program computes."""


class _Program:
    """A subgraph bound for one set of input shapes."""

    def __init__(
        self,
        executor: Executor,
        number: int,
        subgraph: Subgraph,
        constants: Sequence[Arg | None],
        shapes: Sequence[tuple[int, ...] | None],
        observed: bool = False,
    ) -> None:
        self._executor = executor
        self._number = number
        self._subgraph = subgraph
        self._specs = list(constants)
        for i, dims in zip(subgraph.inputs, shapes, strict=True):
            arg = Arg.of(subgraph.operands[i], present=dims is not None)
            self._specs[i] = arg if dims is None else arg.with_value(None, tuple(dims))
        self._buffers: dict[int, tuple[tuple[int, ...], np.dtype[Any]]] = {}
        """Shape and element type of what kernels write in place: outputs, then scratch buffers."""
        self._scratch: list[int] = []
        """The step of each scratch buffer."""
        self._dynamic: set[int] = set()
        self._calls: dict[int, Call] = {}
        steps = [self._bind(step, operation) for step, operation in enumerate(subgraph.operations)]
        self._starts: dict[int, int] = {}
        self._compile(steps, observed)
        self._plan(steps)

    def _compile(self, steps: list[Step], observed: bool) -> None:
        """Put programs of compiled kernels in the place of the operations that they cover."""
        executor, subgraph = self._executor, self._subgraph
        if executor.kernels < Tier.COMPILED or executor.rounds or compiled.unavailable():
            return
        from nnbridge.cpu.compiled.program import Candidate, Program, plan  # llvmlite is imported when it is used

        reason = "requires dimensions that are known before a run"
        # An operation for which a kernel of its own is registered is computed by that.
        calls = {k: call for k, call in self._calls.items() if Tier.COMPILED not in KERNELS[call.definition.code]}
        found = plan(
            [Candidate(k, o.inputs, o.outputs, calls.get(k), reason) for k, o in enumerate(subgraph.operations)],
            [i for o in subgraph.operations for i in o.outputs] if observed else subgraph.outputs,
        )

        def step_of(program: Program) -> Step:
            def run_program(run: _Run) -> None:
                values = run.values
                inputs = [np.ascontiguousarray(values[i]) for i in program.inputs]
                program.run(inputs, [values[i] for i in program.outputs], executor.threads)

            return run_program

        for program in found.programs:
            for k in program.operations:
                steps[k] = _nothing
                for i in subgraph.operations[k].outputs:
                    self._buffers.pop(i, None)
            first = program.operations[0]
            steps[first] = step_of(program)
            self._buffers.update(zip(program.outputs, program.shapes, strict=True))
            self._starts.update(dict.fromkeys(program.outputs, first))

    def run(self, inputs: Arrays, outputs: Arrays | None, limits: Limits) -> list[Arg]:
        try:
            values = self._idle.pop()
        except IndexError:
            values = self._new_values()
        run = _Run(values, limits)
        try:
            for i, array in zip(self._subgraph.inputs, inputs, strict=True):
                values[i] = array
            if limits.observe is not None and self._number:
                for i, array in zip(self._subgraph.inputs, inputs, strict=True):
                    if array is not None:
                        limits.observe(self._number, i, array)
            for i, array in zip(self._subgraph.outputs, outputs or self._no_outputs, strict=True):
                # Kernels write through reshaped views.
                if array is not None and i not in self._dynamic and array.flags.c_contiguous:
                    values[i] = array
                elif i in self._buffers:
                    values[i] = np.empty(*self._buffers[i])
            timed, observe = limits.deadline is not None, limits.observe
            with np.errstate(all="ignore"):
                for (step, released), operation in zip(self._steps, self._subgraph.operations, strict=True):
                    if timed:
                        limits.check()
                    step(run)
                    if observe is not None:
                        for i in operation.outputs:
                            observe(self._number, i, values[i])
                    for i in released:
                        values[i] = None
            return [self._result(run, i) for i in self._subgraph.outputs]
        finally:
            # An idle list holds nothing of the caller's or of this run.
            for i in self._foreign:
                values[i] = None
            self._idle.append(values)

    def _result(self, run: _Run, i: int) -> Arg:
        spec, value = run.resolved.get(i) or self._specs[i], run.values[i]
        assert spec is not None
        return spec.with_value(value, spec.dims if value is None else value.shape)

    # -- memory ------------------------------------------------------------------------------------------------------

    def _plan(self, steps: list[Step]) -> None:
        subgraph, last = self._subgraph, {}
        for k, operation in enumerate(subgraph.operations):
            last.update(dict.fromkeys((*operation.inputs, *operation.outputs), k))
        count = len(subgraph.operands)
        leases = []
        for i, (shape, dtype) in self._buffers.items():
            if i in subgraph.outputs:
                continue
            if i < count:
                # What a program writes lives from the program's first operation on.
                first, final = self._starts.get(i, subgraph.producers.get(i, 0)), last[i]
            else:
                first = final = self._scratch[i - count]
            leases.append(Lease(i, int(np.prod(shape)) * dtype.itemsize, first, final))
        self._offsets, self._arena_size = plan_arena(leases)
        self._foreign = [i for i, o in enumerate(subgraph.operands) if i not in self._offsets and not o.is_constant]
        ended: list[list[int]] = [[] for _ in steps]
        for i in self._foreign:
            if i in last and i not in subgraph.outputs:
                ended[last[i]].append(i)
        self._steps = list(zip(steps, ended, strict=True))
        self._no_outputs = [None] * len(subgraph.outputs)
        self._idle: list[list[Any]] = []

    def _new_values(self) -> list[Any]:
        values: list[Any] = [spec.value if spec is not None and spec.constant else None for spec in self._specs]
        values += [None] * len(self._scratch)
        arena = allocate(self._arena_size)
        for i, at in self._offsets.items():
            shape, dtype = self._buffers[i]
            values[i] = arena[at : at + int(np.prod(shape)) * dtype.itemsize].view(dtype).reshape(shape)
        return values

    # -- binding -----------------------------------------------------------------------------------------------------

    def _bind(self, position: int, operation: Operation) -> Step:
        """The step of one operation, and what it leaves known of its outputs."""
        operands, control_flow = self._subgraph.operands, operation.type in _CONTROL_FLOW
        specs = [self._specs[i] for i in operation.inputs]
        inputs = [spec for spec in specs if spec is not None]
        if not control_flow and len(inputs) == len(specs):
            call = self._resolved(operation, inputs)
            if call is not None:
                self._calls[position] = call
                for i, spec in zip(operation.outputs, call.outs, strict=True):
                    self._specs[i] = spec
                return self._static_step(position, operation, call)
        self._dynamic.update(operation.outputs)
        for i in operation.outputs:
            # Control flow leaves exactly what its outputs declare, so that what follows can still be bound.
            if control_flow and _fully_known(operands[i]):
                self._specs[i] = Arg.of(operands[i])
        return self._dynamic_step(operation)

    def _resolved(self, operation: Operation, inputs: Sequence[Arg]) -> Call | None:
        """The call with its outputs, if their shapes can be inferred now; refusals wait until the operation runs."""
        operands = self._subgraph.operands
        call = make_call(_declared(operation), inputs, [Arg.of(operands[i]) for i in operation.outputs])
        try:
            resolved = zip(operation.outputs, resolve(call), strict=True)
            outs = tuple(_as_declared(operation, operands[i], spec) for i, spec in resolved)
        except (NeedsValue, NnapiError):
            return None
        return None if any(d <= 0 for out in outs for d in out.dims) else replace(call, outs=outs)

    def _static_step(self, position: int, operation: Operation, call: Call) -> Step:
        outputs, inputs, rounds = operation.outputs, operation.inputs, self._executor.rounds
        found = prepare(call, self._executor.kernels)
        if found is None:
            run_time = [
                (k, i) for k, (i, arg) in enumerate(zip(inputs, call.args, strict=True)) if arg.present and not arg.constant
            ]

            def whole_call(run: _Run) -> None:
                args = list(call.args)
                for k, i in run_time:
                    args[k] = args[k].with_value(run.values[i], args[k].dims)
                _store(run.values, outputs, inputs, run_kernel(replace(call, args=tuple(args))), rounds)

            return whole_call
        positions, second = found
        sources = [inputs[k] for k in positions]
        if not isinstance(second, InPlace):

            def from_data(run: _Run) -> None:
                values = run.values
                _store(values, outputs, inputs, second(*[values[i] for i in sources]), rounds)

            return from_data
        first_scratch = len(self._subgraph.operands) + len(self._scratch)
        buffers = [*outputs, *range(first_scratch, first_scratch + len(second.scratch))]
        self._buffers.update(zip(buffers, [*((out.dims, out.dtype) for out in call.outs), *second.scratch], strict=True))
        self._scratch += [position] * len(second.scratch)
        write = second.write
        rounded = [i for i, out in zip(outputs, call.outs, strict=True) if rounds and out.dtype == np.float32]

        def in_place(run: _Run) -> None:
            values = run.values
            write([values[i] for i in buffers], *[values[i] for i in sources])
            for i in rounded:
                values[i][...] = _through_half(values[i])

        return in_place

    def _dynamic_step(self, operation: Operation) -> Step:
        """An operation whose shapes only the run knows."""
        executor, subgraph, specs = self._executor, self._subgraph, self._specs
        outs = [subgraph.operands[i] for i in operation.outputs]
        control_flow = _CONTROL_FLOW.get(operation.type)

        def dynamic(run: _Run) -> None:
            args = []
            for i in operation.inputs:
                arg, value = run.resolved.get(i) or specs[i] or Arg.of(subgraph.operands[i]), run.values[i]
                args.append(arg.with_value(value, arg.dims) if arg.present else arg)
            if control_flow is None:
                results = evaluate(make_call(_declared(operation), args, [Arg.of(out) for out in outs]))
            else:
                inner = control_flow(executor, subgraph, operation, args, run.limits)
                results = [_as_operand(out, arg) for out, arg in zip(outs, inner, strict=True)]
            for i, out, result in zip(operation.outputs, outs, results, strict=True):
                run.resolved[i] = _as_declared(operation, out, result)
            _store(run.values, operation.outputs, operation.inputs, [r.data for r in results], executor.rounds)

        return dynamic


def _store(values: list[Any], outputs: Sequence[int], inputs: Sequence[int], results: Sequence[Array], rounds: bool) -> None:
    """Put results where they belong: into the caller's array, or as they are, or copied if they are views of an input.

    The arena may reuse that input's buffer while the result is still needed, and the caller may change the arrays on either side.
    """
    for i, result in zip(outputs, results, strict=True):
        value = _through_half(result) if rounds and result.dtype == np.float32 else result
        if values[i] is not None:
            np.copyto(values[i], value)
        elif value.base is None:
            values[i] = value.copy() if any(values[k] is value for k in inputs) else value
        else:
            shared = any(np.may_share_memory(values[k], value) for k in inputs if values[k] is not None)
            values[i] = value.copy() if shared else value


def _constant(model: Model, operand: Operand) -> Arg | None:
    """The argument for an operand that is known before a run: a constant or an omitted one."""
    if operand.is_constant:
        value = model.value(operand)
        return Arg.of(operand, value, present=value is None or value.size > 0)
    return Arg.of(operand, present=False) if operand.lifetime is Lifetime.NO_VALUE else None


def _declared(operation: Operation) -> Any:
    declared = definition(operation.type)
    if declared is None:
        name = operation_name(operation.type)
        raise OpFailedError(Reason("an operation that the CPU executor knows", name, name))
    return declared


def _fully_known(operand: Operand) -> bool:
    return not operand.is_tensor or (len(operand.dims) > 0 and 0 not in operand.dims)


def _as_operand(operand: Operand, arg: Arg) -> Arg:
    """A body's value as the operand outside that it stands for."""
    return Arg.of(operand, present=arg.present).with_value(arg.value, arg.dims)


def _as_declared(operation: Operation, operand: Operand, computed: Arg) -> Arg:
    """A computed output checked against its declaration.

    Dimensions must agree with the declared ones. A model output must have the declared quantisation; a temporary takes
    the computed one, whatever it was declared with (facts U7 and U8).
    """
    name = operation_name(operation.type)
    dims = merge_dims(operand.dims, computed.dims)
    if dims is None:
        rule = f"an output of {list(operand.dims)} as declared"
        raise OpFailedError(Reason(rule, str(list(computed.dims)), name, operand.name))
    if operand.lifetime is Lifetime.SUBGRAPH_OUTPUT and operand.scale != 0:
        same = np.float32(computed.scale) == np.float32(operand.scale) and computed.zero_point == operand.zero_point
        if not same:
            found = f"{computed.scale}, {computed.zero_point}"
            rule = f"an output with scale {operand.scale} and zero point {operand.zero_point} as declared"
            raise OpFailedError(Reason(rule, found, name, operand.name))
    return computed.with_value(computed.value, dims)


def _through_half(x: Array) -> Array:
    return x.astype(np.float16).astype(np.float32)


# -- control flow ----------------------------------------------------------------------------------------------------


def _condition(arg: Arg, name: str) -> bool:
    if not arg.present or arg.value is None:
        raise OpFailedError(Reason("a condition with a value", "none", name, "condition"))
    return bool(np.ravel(arg.value)[0])


def _run_if(executor: Executor, subgraph: Subgraph, operation: Operation, inputs: list[Arg], limits: Limits) -> list[Arg]:
    """IF: one of two subgraphs (input 0 the condition, 1 then, 2 else)."""
    branch = operation.inputs[1 if _condition(inputs[0], "IF") else 2]
    return executor.run_body(subgraph, branch, inputs[3:], limits)


def _run_while(executor: Executor, subgraph: Subgraph, operation: Operation, inputs: list[Arg], limits: Limits) -> list[Arg]:
    """WHILE: the value of the condition is looked at before the time (fact U24)."""
    condition, body = operation.inputs[:2]
    started = time.monotonic_ns()
    state = list(inputs[2:])
    while _condition(executor.run_body(subgraph, condition, state, limits)[0], "WHILE"):
        if time.monotonic_ns() - started > limits.loop_timeout:
            raise MissedDeadlineTransientError(Reason(f"a loop that ends within {limits.loop_timeout} ns", "more", "WHILE"))
        results = executor.run_body(subgraph, body, state, limits)
        state[: len(results)] = results
    return state[: len(operation.outputs)]


_CONTROL_FLOW: dict[int, Callable[[Executor, Subgraph, Operation, list[Arg], Limits], list[Arg]]] = {
    OperationCode.IF: _run_if,
    OperationCode.WHILE: _run_while,
}
