"""The host whose operators an inference runtime computes: groups of a step's operators, each as a part of the source file."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol, TypeAlias

import numpy as np

from nnbridge.apart import EndedError
from nnbridge.converters.hosted import Ends, GraphKey, Piece, SourceParts
from nnbridge.cpu.custom import Args, CustomKernel, Function, declared_argument
from nnbridge.cpu.executor import Executor
from nnbridge.cpu.settings import Tier
from nnbridge.devices.cpu import CpuPreparedModel
from nnbridge.devices.device import PreparedModel, PrepareModelConfig
from nnbridge.devices.host import Computing, HostDevice, HostPreparedModel, body_kernels, host_kernels, sign_flipped
from nnbridge.errors import BadDataError, ConversionError, InputError, OpFailedError, Reason, first_line, pass_shortage
from nnbridge.extensions import Arg
from nnbridge.model import Array, Model, Operation, Source, Subgraph
from nnbridge.types import WRITTEN, Lifetime

Run: TypeAlias = "Callable[[Sequence[Array], Mapping[int, Array]], tuple[Sequence[Array], Mapping[int, Array]]]"
"""``run(inputs, variables)`` returns the outputs, and the variables' new values by their indexes in the piece.

InputError for dimensions that the runtime does not take; what else it raises are errors of the run.
"""


class Engine(Protocol):
    """An inference runtime, for one file."""

    version: str
    fuses: bool
    """Nodes are computed differently together than one by one."""

    def open(self, piece: Piece, dims: Sequence[tuple[int, ...]]) -> Run:
        """Load a part of the file for inputs of these dimensions (0: not known yet). InputError for one that it does not run."""


class EngineHost(HostDevice):
    """The host of one source file, whose operators an inference runtime computes.

    ``strict``: what the runtime does not run is an error; else nnbridge's own host computes it.
    """

    def __init__(self, engine: Engine, parts: SourceParts, title: str, *, strict: bool = True) -> None:
        super().__init__()
        self.engine, self.parts, self.title, self.strict = engine, parts, title, strict
        self.version, self.late = engine.version, engine.fuses
        self._ran: set[Source] = set()
        self._refused: dict[Source, Reason] = {}

    def prepare_model_with_config(self, model: Model, config: PrepareModelConfig) -> PreparedModel:
        """Load the parts of the file; BAD_DATA for operators that are none of the file's, or that the runtime does not run."""
        try:
            found = _Loading(model, self)
        except (ConversionError, InputError) as error:
            raise BadDataError(replace(error.reason, operation=error.reason.operation or self.label)) from error
        self._ran.update(found.ran)
        self._refused.update(found.refused)
        return found.prepared()

    def computing(self, source: Source) -> Computing:
        """The runtime for what it has loaded."""
        if source in self._ran:
            return Computing(self.title, self.version)
        return Computing(reason=self._refused.get(source, _WRITTEN_OUT))

    @property
    def label(self) -> str:
        """The host in errors; with a way out where no one asked for the runtime."""
        return f"--host {self.title}" if self.strict else f"host {self.title} (--host {HostDevice.version} is another)"

    def leave(self, sources: Iterable[Source], why: Reason) -> None:
        """Leave to the host an operator that the runtime refused at the run, for dimensions that were not known before."""
        self._ran.difference_update(sources)
        self._refused.update(dict.fromkeys(sources, why))


_WRITTEN_OUT = Reason("operators as the file has them", "what the importer added or wrote out in others")


class _Loading:
    """A step's operations in groups, each of which is one function of the runtime, or the operations' own."""

    def __init__(self, model: Model, host: EngineHost) -> None:
        self._model, self._host = model, host
        self.refused: dict[Source, Reason] = {}
        """What the runtime does not run, where that is no error."""
        self._loaded: dict[tuple[int, ...], tuple[_HostedGroup, Function]] = {}
        self._ends = [self._ends_of(operation) for operation in model.main.operations]
        self._groups = self._grouped()
        while not all(map(self._load, self._groups)):
            self._groups = self._grouped()

    @property
    def ran(self) -> set[Source]:
        """The operators that the runtime has loaded."""
        operations = self._model.main.operations
        return {s for members in self._groups if self._ends[members[0]] for k in members if (s := operations[k].source)}

    def prepared(self) -> PreparedModel:
        """The step; as nnbridge's own host prepares it where the runtime has nothing of it."""
        main = self._model.main
        if not any(self._ends):
            return HostPreparedModel(self._model)
        own = {} if all(self._ends) else host_kernels(self._model, main)
        operations: list[Operation] = []
        kernels: list[CustomKernel] = []
        for members in self._groups:
            if self._ends[members[0]] is not None:
                group, function = self._loaded[tuple(members)]
                kernels.append(CustomKernel(self._host.title, group.reads, function))
                operations.append(Operation(main.operations[members[0]].type, group.reads, group.writes))
            else:
                kernels += [own[k] for k in members]
                operations += [main.operations[k] for k in members]
        model = replace(self._model, main=replace(main, operations=tuple(operations)))
        custom = [dict(enumerate(kernels)), *(body_kernels(model) if own else [{}] * len(model.referenced))]
        return CpuPreparedModel(model, kernels=Tier.REFERENCE, custom=custom)

    def _ends_of(self, operation: Operation) -> Ends | None:
        try:
            return self._host.parts.ends(self._model, operation)
        except ConversionError as error:
            if self._host.strict:
                raise
            self._leave(operation, error.reason)
            return None

    def _grouped(self) -> list[list[int]]:
        return _groups(self._model.main, [None if one is None else one.graph for one in self._ends])

    def _load(self, members: Sequence[int]) -> bool:
        """Load a group; False where operators of it are left to nnbridge's host, and the others have to be grouped once more."""
        if self._ends[members[0]] is None:
            return True
        try:
            self._open(members)
        except (ConversionError, InputError) as error:
            if self._host.strict:
                raise
            alone = {k: why for k in members if (why := self._refusal(k)) is not None} if len(members) > 1 else {}
            for k in alone or members:
                self._ends[k] = None
                self._leave(self._model.main.operations[k], alone.get(k, error.reason))
            return False
        return True

    def _open(self, members: Sequence[int]) -> None:
        if tuple(members) not in self._loaded:
            group = _HostedGroup(self._model, members, [one for k in members if (one := self._ends[k]) is not None])
            self._loaded[tuple(members)] = group, group.function(self._host)

    def _refusal(self, k: int) -> Reason | None:
        """The reason why the runtime does not run an operator by itself."""
        try:
            self._open([k])
        except (ConversionError, InputError) as error:
            return error.reason
        return None

    def _leave(self, operation: Operation, why: Reason) -> None:
        if operation.source is not None:
            self.refused[operation.source] = why


def _groups(main: Subgraph, kinds: Sequence[GraphKey | None]) -> list[list[int]]:
    """Operations that run as one: of one graph of the file, or (None) added by the importer, which come as soon as they can."""
    unknown = {i for operation in main.operations for i in operation.outputs}
    waiting, groups = list(range(len(kinds))), []
    while waiting:
        ready = [k for k in waiting if unknown.isdisjoint(main.operations[k].inputs)]
        kind = None if any(kinds[k] is None for k in ready) else kinds[ready[0]]
        members: list[int] = []
        for k in waiting:
            if kinds[k] == kind and unknown.isdisjoint(main.operations[k].inputs):
                members.append(k)
                unknown.difference_update(main.operations[k].outputs)
        waiting = [k for k in waiting if k not in set(members)]
        groups.append(members)
    return groups


class _HostedGroup:
    """Operators of one graph of the file that run as one part of it."""

    def __init__(self, model: Model, members: Sequence[int], ends: Sequence[Ends]) -> None:
        main = model.main
        self._model = model
        self._operations = [main.operations[k] for k in members]
        self._graph = ends[0].graph
        written = {i for k in members for i in main.operations[k].outputs}
        needed = {i for k, operation in enumerate(main.operations) if k not in set(members) for i in operation.inputs}
        needed.update(main.outputs)
        self._known = {t: i for one in ends for i, t in one.inputs if main.operands[i].is_constant}
        self._inputs = {
            t: i
            for one in ends
            for i, t in one.inputs
            if i not in written and main.operands[i].lifetime in (*WRITTEN, Lifetime.SUBGRAPH_INPUT)
        }
        self._outputs = {t: i for one in ends for i, t in one.outputs.items() if i in needed}
        self._states = {t: i for one in ends for i, t in one.states.items()}
        self.reads = (*self._inputs.values(), *self._known.values())
        self.writes = (*self._outputs.values(), *self._states.values())

    def function(self, host: EngineHost) -> Function:
        """Compute the group's outputs, then its variables."""
        operands = self._model.main.operands
        constants = {
            t: data for t, i in self._known.items() if (data := declared_argument(self._model, operands[i]).value) is not None
        }
        starts = [t for t in self._inputs if t not in self._states]
        piece = host.parts.piece(self._graph, starts, list(self._outputs), constants)
        places = {**self._known, **self._inputs}
        fed = [places[t] for t in piece.inputs]
        run = host.engine.open(piece, [operands[i].dims for i in fed])
        position = {i: k for k, i in enumerate(self.reads)}
        before = {piece.variables[t]: self._inputs.get(t, self._known.get(t)) for t in self._states}
        after = [piece.variables[t] for t in self._states]

        def compute(inputs: Args, outputs: Args) -> Sequence[Array]:
            def value(i: int) -> Array:
                array = inputs[position[i]].value
                assert array is not None
                return sign_flipped(array) if operands[i].is_sign_flipped else array

            fed_now, variables = [value(i) for i in fed], {k: value(i) for k, i in before.items() if i is not None}
            try:
                found, states = run(fed_now, variables)
            except InputError as error:
                # A program would end with its runtime: other kernels' values would hide that.
                if host.strict or isinstance(error, EndedError):
                    raise OpFailedError(replace(error.reason, operation=host.label)) from error
                host.leave([o.source for o in self._operations if o.source is not None], error.reason)
                return [out.data for out in self._own().run([arg.value for arg in inputs])]
            except Exception as error:
                pass_shortage(error)
                # The runtimes' errors have no common class.
                raise OpFailedError(Reason("operators that the runtime runs", first_line(error), host.label)) from error
            results = [
                _as_declared(array, out) for array, out in zip((*found, *(states[k] for k in after)), outputs, strict=True)
            ]
            return [sign_flipped(a) if operands[i].is_sign_flipped else a for a, i in zip(results, self.writes, strict=True)]

        return compute

    def _own(self) -> Executor:
        """The same operators by nnbridge's own host."""
        main = self._model.main
        part = replace(main, operations=tuple(self._operations), inputs=self.reads, outputs=self.writes)
        kernels = [host_kernels(self._model, part), *body_kernels(self._model)]
        return Executor(replace(self._model, main=part), kernels=Tier.REFERENCE, custom=kernels)


def _as_declared(array: Array, out: Arg) -> Array:
    """A result as NNAPI has it: a scalar is a vector of one element."""
    array = array.view(np.uint8) if array.dtype == np.bool_ and out.dtype == np.uint8 else array
    return array.reshape(out.dims or (1,)) if array.ndim == 0 and array.size == 1 and 0 not in out.dims else array
