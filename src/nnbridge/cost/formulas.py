"""How many multiply-adds an operation takes: one row for each family, by the names of its declared operands.

A multiply-add is a product that is added to a sum. Biases, activations, pooling and element-wise arithmetic count nothing, as
in the figures that are published with networks. Padding counts as if it were computed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from nnbridge.extensions import Dims as DimsOfAll
from nnbridge.extensions import HostOperation, host_operation, host_options, is_options
from nnbridge.model import Model, Operation
from nnbridge.operations.matching import input_places
from nnbridge.types import Lifetime, is_extension
from nnbridge.types import OperationCode as C

Dims = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Operands:
    """Dimensions of an operation's tensors: inputs by name, and the outputs."""

    inputs: Mapping[str, Dims]
    outputs: tuple[Dims, ...]

    def __getitem__(self, name: str) -> Dims:
        return self.inputs[name]

    @property
    def out(self) -> int:
        """Elements of the first output."""
        return math.prod(self.outputs[0])

    def matrices(self, *prefixes: str) -> int:
        """Elements of all weight matrices that are present, whose names begin so."""
        named = (dims for name, dims in self.inputs.items() if name.endswith("weights") and name.startswith(prefixes or ("",)))
        return sum(math.prod(dims) for dims in named if len(dims) == 2)


@dataclass(frozen=True, slots=True)
class Formula:
    """The multiply-adds of a family of operations."""

    operations: tuple[C, ...]
    text: str
    count: Callable[[Operands], int]


def _filter(o: Operands) -> int:
    return o.out * math.prod(o["filter"][1:])


def _steps(o: Operands) -> int:
    return math.prod(o["input"][:-1]) * o.matrices()


FORMULAS = (
    Formula((C.CONV_2D, C.GROUPED_CONV_2D), "output elements × filter height × width × depth", _filter),
    Formula((C.DEPTHWISE_CONV_2D,), "output elements × filter height × width", lambda o: o.out * math.prod(o["filter"][1:3])),
    Formula(
        (C.TRANSPOSE_CONV_2D,),
        "input elements × filter height × width × output depth",
        lambda o: math.prod(o["input"]) * math.prod(o["filter"][:3]),
    ),
    Formula((C.FULLY_CONNECTED,), "output elements × input size", lambda o: o.out * o["weights"][1]),
    Formula(
        (C.BATCH_MATMUL,),
        "output elements × length of the rows that are multiplied",
        lambda o: o.out * math.prod(o["input1"][-2:]) // o.outputs[0][-2],
    ),
    Formula((C.LSTM, C.RNN, C.QUANTIZED_LSTM, C.QUANTIZED_16BIT_LSTM), "batch × elements of all weight matrices", _steps),
    Formula(
        (C.UNIDIRECTIONAL_SEQUENCE_LSTM, C.UNIDIRECTIONAL_SEQUENCE_RNN),
        "batch × time steps × elements of all weight matrices",
        _steps,
    ),
    Formula(
        (C.BIDIRECTIONAL_SEQUENCE_LSTM, C.BIDIRECTIONAL_SEQUENCE_RNN),
        "batch × time steps × elements of all weight matrices, of both directions",
        _steps,
    ),
    Formula(
        (C.SVDF,),
        "batch × elements of weights_feature and weights_time",
        lambda o: o["input"][0] * (math.prod(o["weights_feature"]) + math.prod(o["weights_time"])),
    ),
)

_OF = {code: formula for formula in FORMULAS for code in formula.operations}
_CODES = frozenset(C)


def has_formula(operation: Operation) -> bool:
    """True for an operation of a family that multiplies and adds."""
    return operation.type in _CODES and C(operation.type) in _OF


def multiply_adds(model: Model, operation: Operation) -> int | None:
    """Multiply-adds of an operation of the main subgraph; None while a dimension that counts is not known.

    0 for operations of no family, among them those of vendor extensions, whose work is not declared. The host's state theirs.
    """
    operands = model.main.operands
    outputs = tuple(operands[i].dims for i in operation.outputs)
    if has_formula(operation):
        found = {name: operands[operation.inputs[i]] for name, i in input_places(model, operation).items()}
        inputs = {name: operand.dims for name, operand in found.items() if operand.lifetime is not Lifetime.NO_VALUE}
        known = bool(inputs) and not any(0 in dims for dims in (*inputs.values(), *outputs))
        count = partial(_OF[C(operation.type)].count, Operands(inputs, outputs))
    else:
        counted = _host_work(model, operation)
        if counted is None:
            return 0
        given = [operands[i] for i in operation.inputs if not is_options(operands[i])]
        stated = [operand.dims for operand in given if operand.lifetime is not Lifetime.NO_VALUE]
        known = all(dims and 0 not in dims for dims in (*stated, *outputs))
        dims = tuple(() if operand.lifetime is Lifetime.NO_VALUE else operand.dims for operand in given)
        count = partial(counted, dims, outputs)
    try:
        return count() if known else None
    except (KeyError, IndexError, ZeroDivisionError):
        return None


def _host_work(model: Model, operation: Operation) -> Callable[[DimsOfAll, DimsOfAll], int] | None:
    hosted = host_operation(model, operation) if is_extension(operation.type) else None
    if not isinstance(hosted, HostOperation) or hosted.work is None:
        return None
    return hosted.work(host_options(model, model.main, operation))
