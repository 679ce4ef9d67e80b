"""The CPU executor: a subgraph is bound once for one set of input shapes, then run as a loop over its steps.

``nnapi-reference``, sample drivers, the host, drivers with custom kernels and tests all compute here. The kinds of step:

* *prepared*: the shapes are known when the subgraph is bound, and the kernel's first part has run (see
  :mod:`nnbridge.operations.kernels`);
* *whole call*: the shapes are known, but the kernel looks at values, or its first part refuses, which the run reports;
* *dynamic*: only the run knows the shapes, or which body of IF and WHILE comes next. Bodies are bound as the main subgraph is;
* *custom*: a function of the device's, see :mod:`nnbridge.cpu.custom`.
"""

from __future__ import annotations

import threading
import timeit
import weakref
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from nnbridge.cpu import compiled
from nnbridge.cpu.arena import Lease, allocate, plan_arena
from nnbridge.cpu.control_flow import CONTROL_FLOW, ControlFlow, Limits
from nnbridge.cpu.custom import CustomKernel, CustomStep, typed
from nnbridge.cpu.settings import Tier, current
from nnbridge.errors import NnapiError, OpFailedError, Reason
from nnbridge.extensions import is_tensor, operand_dtype
from nnbridge.model import INFERRED, Array, Model, Operand, Operation, Subgraph
from nnbridge.operations import definition
from nnbridge.operations.call import Arg, Call, NeedsValue
from nnbridge.operations.evaluate import evaluate, make_call, merge_dims, prepare, resolve, run_kernel
from nnbridge.operations.kernels import InPlace
from nnbridge.operations.numerics import BY_NAME, EXACT, STORED, using
from nnbridge.records import seldom_collected
from nnbridge.types import TYPE_FACTS, Lifetime, OperandCode, is_extension, operation_name

if TYPE_CHECKING:
    from nnbridge.cpu.compiled.program import Program


Store: TypeAlias = Callable[[Array], Array]
"""What float32 numbers are rounded with before they are stored."""


def store_results(
    values: list[Any], outputs: Sequence[int], inputs: Sequence[int], results: Sequence[Array], store: Store | None
) -> None:
    """Put results where they belong: into the caller's array, or as they are, or copied if they are views of an input.

    The arena may reuse that input's buffer while the result is still needed, and the caller may change the arrays on either side.
    """
    for i, result in zip(outputs, results, strict=True):
        value = store(result) if store is not None and result.dtype == np.float32 else result
        if values[i] is not None:
            np.copyto(values[i], value)
        elif value.base is None:
            values[i] = value.copy() if any(values[k] is value for k in inputs) else value
        else:
            shared = any(np.may_share_memory(values[k], value) for k in inputs if values[k] is not None)
            values[i] = value.copy() if shared else value


_SCALARS = frozenset(code for code, facts in TYPE_FACTS.items() if not facts.tensor and facts.dtype is not None)


@lru_cache(maxsize=1024)
def _scalar(code: int, content: bytes) -> Arg:
    """A scalar's argument: networks have a few of them many times."""
    return Arg(code, value=np.frombuffer(content, TYPE_FACTS[OperandCode(code)].dtype).reshape(()), constant=True)


def constant(model: Model, operand: Operand, store: Store | None, empty: bool = False) -> Arg | None:
    """The argument for an operand that is known before a run: a constant or an omitted one.

    NNAPI knows no constants without elements, which are omitted operands there; with ``empty`` they are constants.
    """
    if operand.lifetime is Lifetime.CONSTANT_COPY and operand.type in _SCALARS and store is None:
        at = operand.location
        return _scalar(operand.type, model.operand_values[at.offset : at.offset + at.length])
    if operand.is_constant:
        value = model.value(operand)
        if is_extension(operand.type) and value is not None:
            value = value.view(operand_dtype(operand)).reshape(operand.dims)
        if store is not None and value is not None and value.dtype == np.float32:
            value = store(value)
        return Arg.of(operand, value, present=empty or value is None or value.size > 0)
    return Arg.of(operand, present=False) if operand.lifetime is Lifetime.NO_VALUE else None


def declaration_of(operation: Operation) -> Any:
    declared = definition(operation.type)
    if declared is None:
        name = operation_name(operation.type)
        raise OpFailedError(Reason("an operation that the CPU executor knows", name, name))
    return declared


def fully_known(operand: Operand) -> bool:
    return not is_tensor(operand) or (len(operand.dims) > 0 and 0 not in operand.dims)


def as_operand(operand: Operand, arg: Arg) -> Arg:
    """A body's value as the operand outside that it stands for."""
    return Arg.of(operand, present=arg.present).with_value(arg.value, arg.dims)


def as_declared(operation: Operation, operand: Operand, computed: Arg) -> Arg:
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


def resolved_call(subgraph: Subgraph, operation: Operation, inputs: Sequence[Arg]) -> Call | None:
    """The call with its outputs, if their shapes can be inferred now; refusals wait until the operation runs."""
    operands = subgraph.operands
    call = make_call(declaration_of(operation), inputs, [Arg.of(operands[i]) for i in operation.outputs])
    try:
        resolved = zip(operation.outputs, resolve(call), strict=True)
        outs = tuple(as_declared(operation, operands[i], spec) for i, spec in resolved)
    except (NeedsValue, NnapiError):
        return None
    return None if any(d <= 0 for out in outs for d in out.dims) else Call(call.definition, call.signature, call.args, outs)


def declared_call(subgraph: Subgraph, operation: Operation, inputs: Sequence[Arg]) -> Call:
    """The call of an operation whose outputs were inferred from inputs as they are declared."""
    return make_call(declaration_of(operation), inputs, [Arg.of(subgraph.operands[i]) for i in operation.outputs])


class Run:
    """One run: the arrays by operand index, then scratch buffers (None where nothing is held), and what it resolved itself."""

    __slots__ = ("limits", "resolved", "values")

    def __init__(self, values: list[Any], limits: Limits) -> None:
        self.values = values
        self.limits = limits
        self.resolved: dict[int, Arg] = {}


Step: TypeAlias = Callable[[Run], None]


class PreparedRun(NamedTuple):
    """An operation whose shapes a run brought: its outputs, the operands that it reads, and its kernel."""

    outs: tuple[Arg, ...]
    sources: list[int]
    compute: Callable[..., Any]


def nothing(_: Run) -> None:
    """The step of an operation that a program computes."""


def ignoring(function: Callable[[], None]) -> Step:
    """A function of nothing as a step."""
    return lambda _: function()


_BOUND_PROGRAMS = 8
"""How many sets of input shapes of a subgraph stay bound."""

_OPEN = -1, 0
"""Of an input in the key of a program: of any shape."""

Arrays: TypeAlias = Sequence["Array | None"]

NO_LIMITS = Limits()


class Executor:
    """A prepared model on the CPU. ``run`` may be called from several threads at once.

    ``numerics`` names an arithmetic of :data:`~nnbridge.operations.numerics.BY_NAME`: ``exact`` is NNAPI's CPU, which computes
    relaxed float32 in float32; ``float16`` rounds every float32 result of a relaxed model to float16, as an accelerator may.
    ``kernels``: the highest tier of kernels that is used; default: as :mod:`nnbridge.cpu.settings` has it.
    ``custom``: for each subgraph the operations, by position, that the device computes itself. Programs are then bound for inputs
    as declared, and open for those of other shapes.
    """

    @seldom_collected()
    def __init__(
        self,
        model: Model,
        *,
        numerics: str = "exact",
        kernels: Tier | None = None,
        custom: Sequence[Mapping[int, CustomKernel]] | None = None,
    ) -> None:
        settings = current()
        self.model = model
        self.kernels = settings.tier if kernels is None else kernels
        self.threads = settings.threads
        self.numerics = BY_NAME[numerics]
        stored = self.numerics.stored if model.relaxed or not self.numerics.relaxed_only else "float32"
        self.store = None if stored == "float32" else STORED[stored]
        """What float32 numbers are rounded with before they are stored."""
        each = [None] * (1 + len(model.referenced)) if custom is None else custom
        self._subgraphs = [
            _Bindings(self, number, subgraph, kernels)
            for number, (subgraph, kernels) in enumerate(zip(model.subgraphs(), each, strict=True))
        ]
        main = model.main
        if custom is not None or all(fully_known(main.operands[i]) for i in main.inputs):
            with using(self.numerics):
                self._subgraphs[0].bound(tuple(main.operands[i].dims for i in main.inputs))

    def run(self, inputs: Arrays, outputs: Arrays | None = None, limits: Limits = NO_LIMITS) -> list[Arg]:
        """Compute. ``inputs`` in model-input order, None for an omitted one, each of its true shape.

        ``outputs`` may hold arrays of exactly the output's shape and type to be written in place, if they are contiguous.
        Returns the outputs with their true dimensions; ``value`` is the caller's array where it was used.
        """
        limits.check()
        if self.numerics is EXACT:
            return self._subgraphs[0].run(inputs, outputs, limits)
        if self.store is not None and self.numerics.all_stored:
            inputs = [x if x is None or x.dtype != np.float32 else self.store(x) for x in inputs]
        with using(self.numerics):
            return self._subgraphs[0].run(inputs, outputs, limits)

    def bind(self, inputs: Arrays, outputs: Arrays) -> Callable[[], None] | None:
        """A run on these arrays, for one thread at a time; None if shapes depend on values or an array is of no use in place."""
        return self._subgraphs[0].bound(_shapes(inputs)).bind(inputs, outputs) if self.numerics is EXACT else None

    def profile(self, inputs: Arrays, outputs: Arrays, rounds: int) -> list[tuple[int, str, list[float]]]:
        """Operation, tier and the microseconds of each round of each step, in run order; empty where a run cannot be bound.

        Operation -1 is what a program spends on its inputs and outputs.
        """
        return self._subgraphs[0].bound(_shapes(inputs)).profile(inputs, outputs, rounds) if self.numerics is EXACT else []

    def run_body(self, subgraph: Subgraph, operand: int, args: Sequence[Arg], limits: Limits) -> list[Arg]:
        """Run the subgraph that a MODEL operand refers to."""
        body = self._subgraphs[subgraph.operands[operand].location.offset + 1]
        return body.run([arg.value if arg.present else None for arg in args], None, limits)


def _shapes(inputs: Arrays) -> tuple[Any, ...]:
    return tuple([None if x is None else x.shape for x in inputs])


class _Bindings:
    """A subgraph and what it was bound to last: one program for each set of input shapes."""

    def __init__(
        self, executor: Executor, number: int, subgraph: Subgraph, custom: Mapping[int, CustomKernel] | None = None
    ) -> None:
        # Without a cycle, a prepared model's memory is free as soon as no one holds it.
        self._executor: Executor = weakref.proxy(executor)
        self._number = number
        self._subgraph = subgraph
        store = executor.store if executor.numerics.all_stored else None
        empty = custom is not None
        self._constants = [constant(executor.model, operand, store, empty) for operand in subgraph.operands]
        self._custom = {
            k: CustomStep(executor.model, subgraph, subgraph.operations[k], kernel) for k, kernel in (custom or {}).items()
        }
        self._declared: list[tuple[int, ...] | None] | None = None
        """Of a subgraph for a device's own functions, the shapes of the inputs as far as they are known."""
        if custom is not None:
            operands = [subgraph.operands[i] for i in subgraph.inputs]
            self._declared = [operand.dims if fully_known(operand) else None for operand in operands]
        self._programs: OrderedDict[tuple[Any, ...], _Program] = OrderedDict()
        self._last: tuple[tuple[Any, ...], _Program] | None = None
        """The program that was asked for last, which most runs ask for again: read without the lock."""
        self._lock = threading.Lock()

    def run(self, inputs: Arrays, outputs: Arrays | None, limits: Limits) -> list[Arg]:
        return self.bound(_shapes(inputs), limits.observe is not None).run(inputs, outputs, limits)

    def bound(self, shapes: tuple[Any, ...], observed: bool = False) -> _Program:
        """The program for these input shapes (None for an omitted input). Two threads may bind the same one; either serves.

        An observed one computes the same by the same kernels, and stores all values on the way.
        """
        if self._declared is not None:
            pairs = zip(shapes, self._declared, strict=True)
            shapes = tuple([dims if dims is None or dims == declared else _OPEN for dims, declared in pairs])
        key = (shapes, observed)
        last = self._last
        if last is not None and last[0] == key:
            return last[1]
        with self._lock:
            program = self._programs.get(key)
            if program is not None:
                self._programs.move_to_end(key)
                self._last = key, program
                return program
        # Constants may hold anything; the run reports what they overflow to.
        with np.errstate(all="ignore"):
            program = _Program(self._executor, self._number, self._subgraph, self._constants, self._custom, shapes, observed)
        with self._lock:
            self._programs[key] = program
            self._last = key, program
            while len(self._programs) > _BOUND_PROGRAMS:
                self._programs.popitem(last=False)
        return program


class _Program:
    """A subgraph bound for one set of input shapes."""

    def __init__(
        self,
        executor: Executor,
        number: int,
        subgraph: Subgraph,
        constants: Sequence[Arg | None],
        custom: Mapping[int, CustomStep],
        shapes: Sequence[tuple[int, ...] | None],
        observed: bool = False,
    ) -> None:
        self._executor = executor
        self._number = number
        self._subgraph = subgraph
        self._custom = custom
        self._specs = list(constants)
        self._dynamic: set[int] = set()
        for i, dims in zip(subgraph.inputs, shapes, strict=True):
            if dims == _OPEN:
                self._specs[i] = None
                self._dynamic.add(i)
                continue
            arg = Arg.of(subgraph.operands[i], present=dims is not None)
            self._specs[i] = arg if dims is None else arg.with_value(None, tuple(dims))
        as_declared = all(dims == subgraph.operands[i].dims for i, dims in zip(subgraph.inputs, shapes, strict=True))
        self._inferred: frozenset[int] = subgraph.known.get(INFERRED, frozenset()) if as_declared else frozenset()
        """Operations whose outputs need not be inferred again, as long as what they read is as declared."""
        self._others = set(self._dynamic)
        """Operands that may differ from what is declared."""
        self._buffers: dict[int, tuple[tuple[int, ...], np.dtype[Any]]] = {}
        """Shape and element type of what kernels write in place: outputs, then scratch buffers."""
        self._scratch: list[int] = []
        """The step of each scratch buffer."""
        self._calls: dict[int, Call] = {}
        for position, operation in enumerate(subgraph.operations):
            self._infer(position, operation)
        self._starts: dict[int, int] = {}
        self._compiled: dict[int, Program] = {}
        """Programs of compiled kernels by the step that runs them."""
        covered = self._compile(observed)
        self._plan([covered.get(k) or self._step(k, operation) for k, operation in enumerate(subgraph.operations)])

    def _compile(self, observed: bool) -> dict[int, Step]:
        """Steps of the operations that programs of compiled kernels cover, by position."""
        executor, subgraph = self._executor, self._subgraph
        if executor.kernels < Tier.COMPILED or executor.numerics is not EXACT or compiled.unavailable():
            return {}
        from nnbridge.cpu.compiled.planning import plan  # llvmlite is imported when it is used
        from nnbridge.cpu.compiled.program import Candidate

        found = plan(
            [Candidate(k, o.inputs, o.outputs, self._calls.get(k)) for k, o in enumerate(subgraph.operations)],
            [i for o in subgraph.operations for i in o.outputs] if observed else subgraph.outputs,
        )

        def step_of(program: Program, threads: int = executor.threads) -> Step:
            def run_program(run: Run) -> None:
                values = run.values
                inputs = [np.ascontiguousarray(values[i]) for i in program.inputs]
                program.run(inputs, [values[i] for i in program.outputs], threads)

            return run_program

        steps: dict[int, Step] = {}
        for program in found.programs:
            steps.update(dict.fromkeys(program.operations, nothing))
            first = program.operations[0]
            steps[first] = step_of(program)
            self._compiled[first] = program
            self._buffers.update(zip(program.outputs, program.shapes, strict=True))
            self._starts.update(dict.fromkeys(program.outputs, first))
        return steps

    def run(self, inputs: Arrays, outputs: Arrays | None, limits: Limits) -> list[Arg]:
        try:
            values = self._idle.pop()
        except IndexError:
            values = self._new_values()
        run = Run(values, limits)
        try:
            self._place(values, inputs, outputs, limits)
            with np.errstate(all="ignore"):
                self._compute(run)
            return [self._result(run, i) for i in self._subgraph.outputs]
        finally:
            # An idle list holds nothing of the caller's or of this run.
            for i in self._foreign:
                values[i] = None
            self._idle.append(values)

    def _place(self, values: list[Any], inputs: Arrays, outputs: Arrays | None, limits: Limits) -> None:
        """Set the values of inputs and outputs, of outputs to arrays that steps write into."""
        for i, array in zip(self._subgraph.inputs, inputs, strict=True):
            values[i] = array
        if limits.observe is not None and self._number:
            for i, array in zip(self._subgraph.inputs, inputs, strict=True):
                if array is not None:
                    limits.observe(self._number, i, array)
        for i, array in zip(self._subgraph.outputs, outputs or self._no_outputs, strict=True):
            # Kernels write through reshaped views.
            if array is not None and self._fits(i, array):
                values[i] = array
            elif i in self._buffers:
                values[i] = np.empty(*self._buffers[i])

    def _compute(self, run: Run) -> None:
        """All steps, as long as the deadline allows."""
        values, limits = run.values, run.limits
        timed, observe = limits.deadline is not None, limits.observe
        if not timed and observe is None:
            for step, released in self._steps:
                step(run)
                for i in released:
                    values[i] = None
            return
        for (step, released), operation in zip(self._steps, self._subgraph.operations, strict=True):
            if timed:
                limits.check()
            step(run)
            if observe is not None:
                for i in operation.outputs:
                    observe(self._number, i, values[i])
            for i in released:
                values[i] = None

    def _fits(self, i: int, array: Array) -> bool:
        """True for an output's array that steps may write into: a client may state other dimensions than the run computes."""
        spec = self._specs[i]
        return i not in self._dynamic and array.flags.c_contiguous and spec is not None and array.shape == spec.dims

    def _bound_values(self, inputs: Arrays, outputs: Arrays) -> list[Any] | None:
        """The values of a run on these arrays; None if only a run knows what to do with them."""
        if self._dynamic and not self._custom:
            return None
        subgraph, values = self._subgraph, self._new_values()
        read, written = frozenset(subgraph.inputs), frozenset(subgraph.outputs)
        for i, array in zip((*subgraph.inputs, *subgraph.outputs), (*inputs, *outputs), strict=True):
            spec, as_is = self._specs[i], array is not None and array.flags.c_contiguous
            if not (as_is or (i in read and array is None)):
                return None
            if i in self._dynamic:
                values[i] = array if i in read else None
                continue
            if spec is None or (array is not None and (array.shape != spec.dims or (i in written and array.dtype != spec.dtype))):
                return None
            values[i] = array
        return values

    def bind(self, inputs: Arrays, outputs: Arrays) -> Callable[[], None] | None:
        """A run on these arrays, with all else that it needs of its own; None if only a run knows what to do with them."""
        subgraph, values = self._subgraph, self._bound_values(inputs, outputs)
        if values is None or any(subgraph.bodies(operation) for operation in subgraph.operations):
            return None
        late = [(i, array) for i, array in zip(subgraph.outputs, outputs, strict=True) if i in self._dynamic]
        """Outputs whose shapes each run finds out."""
        stays = {*self._offsets, *subgraph.inputs, *subgraph.outputs}
        run, steps = Run(values, NO_LIMITS), []
        for k, (step, ended) in enumerate(self._steps):
            released = [i for i in ended if i not in stays]
            program = self._compiled.get(k)
            if program is not None and stays.issuperset((*program.inputs, *program.outputs)):
                read, written = ([values[i] for i in side] for side in (program.inputs, program.outputs))
                compiled_run = program.bind(read, written, self._executor.threads)
                if all(other is nothing for n, (other, _) in enumerate(self._steps) if n != k):
                    return compiled_run
                steps.append((ignoring(compiled_run), released))
            elif step is not nothing or released:
                steps.append((step, released))

        def run_bound() -> None:
            with np.errstate(all="ignore"):
                for step, released in steps:
                    step(run)
                    for i in released:
                        values[i] = None
            for i, array in late:
                found, values[i] = values[i], None
                if array is None or found.shape != array.shape or found.dtype != array.dtype:
                    raise OpFailedError(Reason("an output of the dimensions that it had before", str(list(found.shape))))
                np.copyto(array, found)

        return run_bound

    def profile(self, inputs: Arrays, outputs: Arrays, rounds: int) -> list[tuple[int, str, list[float]]]:
        """Operation, tier and microseconds of each step, after one round that is not measured."""
        values = None if self._dynamic else self._bound_values(inputs, outputs)
        if values is None:
            return []
        found, run = [], Run(values, NO_LIMITS)
        with np.errstate(all="ignore"):
            for k, (step, _) in enumerate(self._steps):
                program = self._compiled.get(k)
                if program is not None:
                    read = [np.ascontiguousarray(values[i]) for i in program.inputs]
                    parts = program.profile(read, [values[i] for i in program.outputs], rounds)
                    found += [(part.operation, "compiled", times) for part, times in parts]
                elif step is not nothing:
                    seconds = timeit.repeat(partial(step, run), number=1, repeat=rounds + 1)[1:]
                    found.append((k, "reference", [1e6 * each for each in seconds]))
        return found

    def _result(self, run: Run, i: int) -> Arg:
        spec, value = run.resolved.get(i) or self._specs[i] or Arg.of(self._subgraph.operands[i]), run.values[i]
        if value is None:
            raise OpFailedError(
                Reason("an operand with a value", "none", operand=self._subgraph.operands[i].name or f"operand {i}")
            )
        return spec.with_value(value, value.shape)

    # -- memory ------------------------------------------------------------------------------------------------------

    def _plan(self, steps: list[Step]) -> None:
        subgraph, last = self._subgraph, {}
        outputs = frozenset(subgraph.outputs)
        for k, operation in enumerate(subgraph.operations):
            last.update(dict.fromkeys((*operation.inputs, *operation.outputs), k))
        count = len(subgraph.operands)
        leases = []
        for i, (shape, dtype) in self._buffers.items():
            if i in outputs:
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
            if i in last and i not in outputs:
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

    def _infer(self, position: int, operation: Operation) -> None:
        """The known properties of one operation's outputs, and its call if that is known before a run."""
        operands, custom = self._subgraph.operands, self._custom.get(position)
        stated = custom is not None or operation.type in CONTROL_FLOW
        specs = [self._specs[i] for i in operation.inputs]
        inputs = [spec for spec in specs if spec is not None]
        if not stated and len(inputs) == len(specs):
            known = position in self._inferred and self._others.isdisjoint(operation.inputs)
            if not known:
                self._others.update(operation.outputs)
            call = (declared_call if known else resolved_call)(self._subgraph, operation, inputs)
            if call is not None:
                self._calls[position] = call
                for i, spec in zip(operation.outputs, call.outs, strict=True):
                    self._specs[i] = spec
                return
        self._others.update(operation.outputs)
        for i in operation.outputs:
            # Control flow and custom kernels leave exactly what their outputs declare, so that what follows can still be bound.
            as_declared = stated and fully_known(operands[i])
            if as_declared:
                self._specs[i] = Arg.of(operands[i])
            if custom is None or custom.kernel.control or not as_declared:
                self._dynamic.add(i)

    def _step(self, position: int, operation: Operation) -> Step:
        """The step of an operation that no program covers."""
        custom = self._custom.get(position)
        if custom is not None:
            return self._custom_step(custom) if not custom.kernel.control else self._control_step(operation, custom)
        if operation.type in CONTROL_FLOW:
            return self._control_step(operation)
        call = self._calls.get(position)
        return self._dynamic_step(operation) if call is None else self._static_step(position, operation, call)

    def _static_step(self, position: int, operation: Operation, call: Call) -> Step:
        outputs, inputs, store = operation.outputs, operation.inputs, self._executor.store
        found = prepare(call)
        if found is None:
            run_time = [
                (k, i) for k, (i, arg) in enumerate(zip(inputs, call.args, strict=True)) if arg.present and not arg.constant
            ]

            def whole_call(run: Run) -> None:
                args = list(call.args)
                for k, i in run_time:
                    args[k] = args[k].with_value(run.values[i], args[k].dims)
                store_results(run.values, outputs, inputs, run_kernel(replace(call, args=tuple(args))), store)

            return whole_call
        positions, second = found
        sources = [inputs[k] for k in positions]
        if not isinstance(second, InPlace):

            def from_data(run: Run) -> None:
                values = run.values
                store_results(values, outputs, inputs, second(*[values[i] for i in sources]), store)

            return from_data
        first_scratch = len(self._subgraph.operands) + len(self._scratch)
        buffers = [*outputs, *range(first_scratch, first_scratch + len(second.scratch))]
        self._buffers.update(zip(buffers, [*((out.dims, out.dtype) for out in call.outs), *second.scratch], strict=True))
        self._scratch += [position] * len(second.scratch)
        write = second.write
        rounded = [i for i, out in zip(outputs, call.outs, strict=True) if out.dtype == np.float32]

        def in_place(run: Run) -> None:
            values = run.values
            write([values[i] for i in buffers], *[values[i] for i in sources])
            if store is not None:
                for i in rounded:
                    values[i][...] = store(values[i])

        return in_place

    def _custom_step(self, custom: CustomStep) -> Step:
        """An operation that the device computes."""
        if not self._number:
            custom.prepare_declared()
        planned = [i for i in custom.kernel.inputs if i in self._buffers]

        def run_custom(run: Run) -> None:
            values = run.values
            for i, value in zip(custom.outputs, custom.compute(values), strict=True):
                if values[i] is not None:
                    np.copyto(values[i], value)
                else:
                    # The arena reuses the memory of what it plans; other memory lives as long as what is seen of it.
                    shared = planned and any(np.may_share_memory(values[k], value) for k in planned)
                    values[i] = value.copy() if shared else value

        return run_custom

    def _arguments(self, run: Run, inputs: Sequence[int]) -> list[Arg]:
        """Operands with the values and dimensions of a run."""
        args = []
        for i in inputs:
            arg, value = run.resolved.get(i) or self._specs[i] or Arg.of(self._subgraph.operands[i]), run.values[i]
            args.append(arg.with_value(value, arg.dims if value is None else value.shape) if arg.present else arg)
        return args

    def _control_step(self, operation: Operation, custom: CustomStep | None = None) -> Step:
        """IF, WHILE or a host operation like them, on bodies that the executor runs."""
        executor, subgraph = self._executor, self._subgraph
        control_flow: ControlFlow = CONTROL_FLOW[operation.type if custom is None else custom.kernel.control]
        outs = [(i, subgraph.operands[i]) for i in operation.outputs]
        if custom is not None:
            operation = replace(operation, inputs=custom.kernel.inputs)

        def run_control(run: Run) -> None:
            results = control_flow(executor.run_body, subgraph, operation, self._arguments(run, operation.inputs), run.limits)
            stored = []
            for (i, out), inner in zip(outs, results, strict=True):
                result = as_operand(out, inner)
                run.resolved[i] = as_declared(operation, out, result)
                stored.append(result.data if custom is None else typed(result.data, operand_dtype(out), custom.kernel.label))
            store_results(run.values, operation.outputs, operation.inputs, stored, executor.store)

        return run_control

    def _dynamic_step(self, operation: Operation) -> Step:
        """An operation whose shapes only the run knows."""
        executor, subgraph, specs = self._executor, self._subgraph, self._specs
        outs = [subgraph.operands[i] for i in operation.outputs]
        known: dict[tuple[Any, ...], PreparedRun | None] = {}
        """What was prepared for the shapes that came; None where values decide as well."""

        def prepared_for(run: Run) -> PreparedRun | None:
            values = run.values
            key = tuple([None if (value := values[i]) is None else value.shape for i in operation.inputs])
            if key in known:
                return known[key]
            args = [run.resolved.get(i) or specs[i] or Arg.of(subgraph.operands[i]) for i in operation.inputs]
            shaped = [
                arg if arg.constant or dims is None else arg.with_value(None, dims) for arg, dims in zip(args, key, strict=True)
            ]
            call = resolved_call(subgraph, operation, shaped)
            found = None if call is None else prepare(call)
            if len(known) >= _BOUND_PROGRAMS:
                known.clear()
            if call is None or found is None:
                known[key] = None
            else:
                positions, second = found
                compute = second.allocating([(o.dims, o.dtype) for o in call.outs]) if isinstance(second, InPlace) else second
                known[key] = PreparedRun(call.outs, [operation.inputs[k] for k in positions], compute)
            return known[key]

        def dynamic(run: Run) -> None:
            found = prepared_for(run)
            if found is not None:
                values = run.values
                run.resolved.update(zip(operation.outputs, found.outs, strict=True))
                results = found.compute(*[values[i] for i in found.sources])
                store_results(values, operation.outputs, operation.inputs, results, executor.store)
                return
            args = self._arguments(run, operation.inputs)
            evaluated = evaluate(make_call(declaration_of(operation), args, [Arg.of(out) for out in outs]))
            for i, out, result in zip(operation.outputs, outs, evaluated, strict=True):
                run.resolved[i] = as_declared(operation, out, result)
            store_results(run.values, operation.outputs, operation.inputs, [r.data for r in evaluated], executor.store)

        return dynamic
