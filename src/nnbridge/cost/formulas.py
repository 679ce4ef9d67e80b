"""How many multiply-adds an operation takes: one row for each family, by the names of its declared operands.

A multiply-add is a product that is added to a sum. Biases, activations, pooling and element-wise arithmetic count nothing, as
in the figures that are published with networks. Padding counts as if it were computed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from nnbridge.model import Model, Operation
from nnbridge.operations.matching import input_places
from nnbridge.types import Lifetime
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

    0 for operations of no family, among them vendor extensions and the host's, whose work is not declared.
    """
    if not has_formula(operation):
        return 0
    formula = _OF[C(operation.type)]
    operands = model.main.operands
    present = {name: operands[operation.inputs[i]] for name, i in input_places(model, operation).items()}
    inputs = {name: operand.dims for name, operand in present.items() if operand.lifetime is not Lifetime.NO_VALUE}
    found = Operands(inputs, tuple(operands[i].dims for i in operation.outputs))
    if not inputs or any(0 in dims for dims in (*inputs.values(), *found.outputs)):
        return None
    try:
        return formula.count(found)
    except (KeyError, IndexError, ZeroDivisionError):
        return None
