"""Comparisons, logic and choices by condition."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from nnbridge.converters.declaration import lowers
from nnbridge.converters.folding import Folding, elements_broadcast
from nnbridge.converters.mapping import MappingKind
from nnbridge.errors import Why
from nnbridge.types import OperationCode
from nnbridge_tflite import dims
from nnbridge_tflite.declaration import TfliteOperator, inputs
from nnbridge_tflite.host.numbers import Array, Options, Tensors, data_of
from nnbridge_tflite.loads import BINARY, OUT, SAME, PreparedOperator, alike, broadcast, not_typed, requires, typed
from nnbridge_tflite.lowerer import BOOL8, Lowerer
from nnbridge_tflite.operators.arithmetic import binary
from nnbridge_tflite.operators.elementwise import unary
from nnbridge_tflite.rules import NUMBERS, Condition, DelegateRule, Past, first_type


def _chooses(node: PreparedOperator) -> bool:
    """True if the condition has the shape of what is chosen, or is one truth value for each of its rows, or for all."""
    condition, first, second = node.shape(0), node.shape(1), node.shape(2)
    if {math.prod(one.shape) for one in node.there((0, 1, 2, OUT))} == {1}:
        return True
    return first == second and (condition == first or condition == () or condition == first[:1])


_ORDERED = (not_typed(0, "STRING"), *BINARY)
_ROWS_CHOSEN = requires("a condition of the inputs' shape, or of their rows", _chooses, kind=Why.OPERAND_SIZE)

_FROM_2_7 = (Past(until="2.6", level=2),)
"""Older releases hand over, at feature level 2, what NNAPI has from level 3 on."""
_COMPARISON = DelegateRule(version=2, level=3, types=("FLOAT32", "UINT8", "INT8", "BOOL", "INT32"), past=_FROM_2_7)
_LOGICAL = DelegateRule(version=1, level=3, types=("BOOL",))

EQUAL, NOT_EQUAL, GREATER, GREATER_EQUAL, LESS, LESS_EQUAL = (
    binary(
        name, summary, function, OperationCode[name], delegate=_COMPARISON, versions=(1, last), loads=loads, writes_type="BOOL"
    )
    for name, summary, function, last, loads in (
        ("EQUAL", "a = b", np.equal, 5, BINARY),
        ("NOT_EQUAL", "a ≠ b", np.not_equal, 4, BINARY),
        ("GREATER", "a > b", np.greater, 2, _ORDERED),
        ("GREATER_EQUAL", "a ≥ b", np.greater_equal, 3, _ORDERED),
        ("LESS", "a < b", np.less, 3, _ORDERED),
        ("LESS_EQUAL", "a ≤ b", np.less_equal, 2, _ORDERED),
    )
)
LOGICAL_AND, LOGICAL_OR = (
    binary(name, summary, function, OperationCode[name], delegate=_LOGICAL, loads=(*BINARY, typed(0, "BOOL")), writes_type=0)
    for name, summary, function in (("LOGICAL_AND", "a and b", np.logical_and), ("LOGICAL_OR", "a or b", np.logical_or))
)
LOGICAL_NOT = unary(
    "LOGICAL_NOT",
    "not x",
    np.logical_not,
    OperationCode.LOGICAL_NOT,
    delegate=_LOGICAL,
    loads=(SAME, typed(0, "BOOL")),
)
SELECT = TfliteOperator(
    "SELECT",
    "Elements of the second input where the condition holds, of the third elsewhere.",
    inputs("condition", "a", "b"),
    folding=Folding(elements_broadcast),
    delegate=DelegateRule(
        version=2,
        level=3,
        types=NUMBERS,
        of=1,
        past=_FROM_2_7,
        conditions=(
            Condition(
                "a condition of the tensors' shape",
                lambda node: (a := node.input(0)) is not None and (b := node.input(1)) is not None and a.shape == b.shape,
                first_type,
            ),
        ),
    ),
    versions=(1, 4),
    loads=(typed(0, "BOOL"), alike(1, 2), _ROWS_CHOSEN),
    dims=dims.like(1),
    writes_type=1,
)
_BROADCAST_RANK = requires(
    "inputs of one shape, or of rank 8 at most",
    lambda node: len({node.dims(one) for one in node.inputs}) < 2 or max(len(node.dims(one)) for one in node.inputs) <= 8,
    kind=Why.RANK,
)
SELECT_V2 = TfliteOperator(
    "SELECT_V2",
    "SELECT with broadcasting.",
    SELECT.inputs,
    folding=SELECT.folding,
    versions=(1, 2),
    loads=(typed(0, "BOOL"), alike(1, 2), broadcast(0, 1, 2), _BROADCAST_RANK),
    dims=dims.broadcast(),
)
WHERE = TfliteOperator(
    "WHERE",
    "The indices of elements that are not zero.",
    inputs("condition"),
    data_dependent=True,
    dynamic_unless=(0,),
    kernel=lambda inputs, outputs, options: [np.argwhere(data_of(inputs[0])).astype(np.int64)],
    versions=(1, 2),
    loads=(typed(0, "BOOL", "FLOAT32", "INT64", "INT32", "INT8", "UINT8", "UINT32"),),
    dims=dims.coordinates,
    writes_type="INT64",
)


@lowers(SELECT, SELECT_V2)
def select(to: Lowerer) -> None:
    """SELECT of tensors of one shape."""
    shapes = [value.dims for value in to.inputs()]
    # The delegate compares the shapes that the interpreter has then.
    same = len(set(shapes)) == 1 or to.mapping == MappingKind.DELEGATE
    to.require(same, "a condition and tensors of one shape", list(map(list, shapes)))
    to.finish(OperationCode.SELECT, to.input(0), to.input(1), to.input(2))


@lowers(SELECT, SELECT_V2, wide=True)
def select_broadcast(to: Lowerer) -> None:
    """SELECT of tensors that are broadcast first: the condition by LOGICAL_OR, values by TILE."""
    to.require(to.count == 3, "a condition and two tensors", to.count)
    dims = to.out.dims
    condition, *values = to.inputs()
    to.require(condition.type == BOOL8 and 0 not in dims, "a boolean condition and known dimensions", list(dims))
    to.require(to.name != "SELECT" or condition.rank == len(dims), "a condition of the tensors' rank", condition.rank)
    to.finish(OperationCode.SELECT, to.broadcast(condition, dims), *(to.broadcast(v, dims) for v in values))


@SELECT.host_kernel
@SELECT_V2.host_kernel
def host_select(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    """Elements of the second input where the condition holds, of the third elsewhere."""
    condition, a, b = (data_of(t) for t in inputs)
    if condition.ndim == 1 and a.ndim > 1 and condition.shape[0] == a.shape[0] and condition.shape != a.shape[-1:]:
        condition = condition.reshape(-1, *[1] * (a.ndim - 1))
    return [np.where(condition.astype(bool), a, b)]
