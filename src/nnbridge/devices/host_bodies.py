"""The bodies of the host's control flow: host operations and NNAPI's side by side, run one after another."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from nnbridge.errors import BadDataError, MissedDeadlineTransientError, NnapiError, OpFailedError, Reason
from nnbridge.extensions import OPTIONS_TYPE, TYPES, HostOperation, HostTensor, operand_dtype
from nnbridge.model import Model, Operand, Operation, Subgraph
from nnbridge.operations import definition
from nnbridge.operations.call import Arg
from nnbridge.operations.evaluate import evaluate, make_call
from nnbridge.types import Lifetime, OperationCode, is_extension, split_extension_code

Array: TypeAlias = npt.NDArray[Any]
Values: TypeAlias = "dict[int, Array | None]"

_CONTROL: Mapping[int, str] = {OperationCode.IF: "if", OperationCode.WHILE: "while"}


def host_operation(model: Model, operation: Operation) -> HostOperation | Reason:
    """The host's implementation of an extension operation, or why there is none."""
    extension = model.extension_of(operation.type)
    if extension is None:
        return Reason("an operation of a host extension", "one of NNAPI")
    name, number = extension
    hosted = TYPES.host_extensions().get(name)
    if hosted is None:
        return Reason("an installed host extension", name, f"{name}#{number}")
    found = hosted.operations.get(number)
    return found or Reason(f"an operation of {name}", str(number), f"{name}#{number}")


def is_options(operand: Operand) -> bool:
    """True for the operand that holds a host operation's options."""
    return is_extension(operand.type) and split_extension_code(operand.type)[1] == OPTIONS_TYPE.number


def options_of(model: Model, subgraph: Subgraph, operation: Operation) -> dict[str, Any]:
    """A host operation's options."""
    for i in operation.inputs:
        operand = subgraph.operands[i]
        if is_options(operand):
            options: dict[str, Any] = json.loads(bytes(model.bytes_of(operand)))
            return options
    return {}


@dataclass(frozen=True, slots=True)
class _Work:
    """One operation, ready to run: the host's implementation of it, or None for one of NNAPI's."""

    operation: Operation
    hosted: HostOperation | None
    options: dict[str, Any]

    @property
    def control(self) -> str:
        """``if`` or ``while`` for control flow."""
        return _CONTROL.get(self.operation.type, "") if self.hosted is None else self.hosted.control


class HostBodies:
    """The referenced models of a model. An execution ends with the NNAPI error that a method raises."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._subgraphs = model.referenced
        self._dtypes = [[operand_dtype(operand) for operand in subgraph.operands] for subgraph in self._subgraphs]
        self._work = [[_work(model, s, o) for o in s.operations] for s in self._subgraphs]
        self._limits = threading.local()

    def limit(self, deadline: int | None, loop_timeout: int | None) -> None:
        """Time limits of this thread's run, in ns: ``time.monotonic_ns`` at the latest, and for each loop; None for none."""
        self._limits.deadline, self._limits.loop = deadline, loop_timeout

    def _check_time(self, started: int) -> None:
        now, deadline, most = time.monotonic_ns(), getattr(self._limits, "deadline", None), getattr(self._limits, "loop", None)
        if deadline is not None and now > deadline:
            raise MissedDeadlineTransientError("the execution's deadline has passed")
        if most is not None and now - started > most:
            raise MissedDeadlineTransientError(Reason(f"a loop that ends within {most} ns", "more", "WHILE"))

    def branch(self, bodies: Sequence[int], condition: Array, inputs: Sequence[Array | None]) -> Sequence[Array]:
        """The answers of one of two bodies."""
        return self.run(bodies[0 if _truth(condition) else 1], inputs)

    def loop(self, bodies: Sequence[int], count: int, inputs: Sequence[Array | None]) -> Sequence[Array | None]:
        """The first ``count`` values once the first body says no; until then the second one makes the next values."""
        state, started = list(inputs), time.monotonic_ns()
        while _truth(self.run(bodies[0], state)[0]):
            self._check_time(started)
            made = self.run(bodies[1], state)
            state[: len(made)] = made
        return state[:count]

    def run(self, body: int, inputs: Sequence[Array | None]) -> list[Array]:
        """One body's outputs."""
        subgraph = self._subgraphs[body]
        values: Values = dict(zip(subgraph.inputs, inputs, strict=True))
        for work in self._work[body]:
            results = self._results(body, work, values)
            for i, result in zip(work.operation.outputs, results, strict=True):
                values[i] = self._settled(body, i, work, result)
        return [self._value(body, i, values) for i in subgraph.outputs]

    def control(self, subgraph: Subgraph, operation: Operation, kind: str, values: Sequence[Array | None]) -> Sequence[Any]:
        """An operation of control flow on the values of its operands, None for bodies."""
        indexes = [subgraph.operands[i].location.offset for i in operation.inputs if _is_body(subgraph.operands[i])]
        given = [v for i, v in zip(operation.inputs, values, strict=True) if not _is_body(subgraph.operands[i])]
        if kind == "while":
            return self.loop(indexes, len(operation.outputs), given)
        condition = given[0]
        if condition is None:
            raise OpFailedError(Reason("a condition", "none", "IF"))
        return self.branch(indexes, condition, given[1:])

    def _results(self, body: int, work: _Work, values: Values) -> Sequence[Any]:
        operands = self._subgraphs[body].operands
        if work.control:
            plain = [i for i in work.operation.inputs if not is_options(operands[i])]
            flow = Operation(work.operation.type, tuple(plain), work.operation.outputs)
            return self.control(self._subgraphs[body], flow, work.control, [self._optional(body, i, values) for i in plain])
        if work.hosted is None:
            return self._nnapi(body, work.operation, values)
        return self._hosted(body, work, values)

    def _hosted(self, body: int, work: _Work, values: Values) -> Sequence[Any]:
        hosted, operands = work.hosted, self._subgraphs[body].operands
        assert hosted is not None
        if hosted.kernel is None:
            raise OpFailedError(Reason(hosted.reason or "an operation that the host can run", "", _label(work)))
        inputs = [self._tensor(body, i, values) for i in work.operation.inputs if not is_options(operands[i])]
        outputs = [self._tensor(body, i, {}) for i in work.operation.outputs]
        try:
            with np.errstate(all="ignore"):
                return hosted.kernel(inputs, outputs, work.options)
        except NnapiError:
            raise
        except Exception as error:
            found = f"{type(error).__name__}: {error}"
            raise OpFailedError(Reason("a function that computes the operation", found, _label(work))) from error

    def _nnapi(self, body: int, operation: Operation, values: Values) -> Sequence[Any]:
        operands = self._subgraphs[body].operands
        declared = definition(operation.type)
        assert declared is not None
        args = []
        for i in operation.inputs:
            value = self._optional(body, i, values)
            arg = Arg.of(operands[i], value, present=operands[i].lifetime is not Lifetime.NO_VALUE)
            args.append(arg if value is None else arg.replace(dims=value.shape))
        answers = evaluate(make_call(declared, args, [Arg.of(operands[i]) for i in operation.outputs]))
        return [answer.value for answer in answers]

    # -- values ------------------------------------------------------------------------------------------------------

    def _settled(self, body: int, i: int, work: _Work, result: Any) -> Array:
        """A result of the operand's element type that fits what the operand declares."""
        dims = self._subgraphs[body].operands[i].dims
        array = np.asarray(result).astype(self._dtypes[body][i], copy=False)
        fits = len(dims) in (0, array.ndim) and all(want in (0, got) for want, got in zip(dims, array.shape, strict=False))
        if not fits:
            raise OpFailedError(Reason(f"an output of {list(dims)} as declared", str(list(array.shape)), _label(work)))
        return array

    def _optional(self, body: int, i: int, values: Mapping[int, Array | None]) -> Array | None:
        data, operand = values.get(i), self._subgraphs[body].operands[i]
        if data is None and operand.is_constant:
            return np.frombuffer(self._model.bytes_of(operand), self._dtypes[body][i]).reshape(operand.dims)
        return data

    def _value(self, body: int, i: int, values: Mapping[int, Array | None]) -> Array:
        value = self._optional(body, i, values)
        if value is None:
            raise OpFailedError(Reason("an operand with a value", "none", operand=f"operand {i}"))
        return value

    def _tensor(self, body: int, i: int, values: Mapping[int, Array | None]) -> HostTensor:
        operand, dtype = self._subgraphs[body].operands[i], self._dtypes[body][i]
        data = self._optional(body, i, values)
        dims = operand.dims if data is None else data.shape
        return HostTensor(data, dims, dtype, operand.scale, operand.zero_point, operand.extension_data)


def _is_body(operand: Operand) -> bool:
    return operand.lifetime is Lifetime.SUBGRAPH


def _truth(value: Array) -> bool:
    if value.size != 1:
        raise OpFailedError(Reason("a condition of one element", str(list(value.shape))))
    return bool(value.reshape(-1)[0])


def _label(work: _Work) -> str:
    name = work.hosted.name if work.hosted is not None else OperationCode(work.operation.type).name
    return f"{name} ({work.operation.name})" if work.operation.name else name


def _work(model: Model, subgraph: Subgraph, operation: Operation) -> _Work:
    if not is_extension(operation.type):
        return _Work(operation, None, {})
    found = host_operation(model, operation)
    if isinstance(found, Reason):
        raise BadDataError(found)
    return _Work(operation, found, options_of(model, subgraph, operation))
