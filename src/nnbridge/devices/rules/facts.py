"""The subjects of conditions: an operation's operands, seen the same way for NNAPI operations and for operators of files."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from functools import reduce
from typing import Any, Protocol

from nnbridge.budget import WorkBudget, refused
from nnbridge.errors import ExhaustedError, Reason
from nnbridge.records import dataclass

Value = Any
"""Of a condition's part: a number, a truth, a type, a tuple, a :class:`Fact`, or None where it is not known."""

NUMBER, TRUTH, TYPE, LIST, OPERAND, OPERANDS, ANY = "number", "truth", "type", "list", "operand", "operands", "any"
"""Kinds of values. An operand stands for its value where a number, truth or list is required."""

MAX_ELEMENTS = 1_024
"""Of a constant whose value conditions can read; of more, the value counts as not known."""
_EVALUATED, _EVALUATED_EACH = 4_000_000, 10_000
"""Parts of loops, lists and terms that a device evaluates for a model: for the first operation, and for each further one."""
_EXPANDED = 500_000
"""Names and parts that the conditions of a profile consist of, those of terms and common conditions each time."""


ENTRY_WEIGHT, RULE_WEIGHT = 10, 100
"""What a condition of a rule, and an operation's rule, take of that: they need as long as so many parts."""


def _no_value() -> Value:
    return None


@dataclass(frozen=True, slots=True)
class Fact:
    """One operand as conditions see it."""

    name: str = ""
    type: Value = None
    """Of whatever sort the vocabulary's types are."""
    dims: tuple[int, ...] = ()
    tensor: bool = True
    scale: float = 0.0
    zero_point: int = 0
    scales: tuple[float, ...] = ()
    """One for each index along ``channel_dim``; empty if the operand has one scale."""
    channel_dim: int = -1
    zero_points: tuple[int, ...] = ()
    """All that the file states; empty for what is not quantised."""
    quantised_dim: int = 0
    """The dimension that the file states for its scales, also where there is one scale."""
    stored: Value = None
    """The type of the constant that the file stores for what is unpacked when the device is prepared; else the type."""
    used: bool = True
    """Something reads it, or it is an output of the file."""
    delivered: bool = False
    """It is an output of the file."""
    reader: str = ""
    """The operator that reads it, if only one does."""
    constant: bool = False
    omitted: bool = False
    model_input: bool = False
    copied: bool = False
    """A constant that is stored in the model itself, at most 128 bytes."""
    nchw: bool = False
    itemsize: int = 0
    identity: int = -1
    """Equal for uses of one operand."""
    read: Callable[[], Value] = field(default=_no_value, compare=False, repr=False)

    @property
    def value(self) -> Value:
        """A scalar's number or a tensor's numbers in order; None if they are not constant."""
        return self.read()


def evaluations(operations: int, device: str = "") -> WorkBudget:
    """The number of evaluations that one device may spend on a model, by its operations."""

    def refuse(rule: str, found: str, place: str) -> ExhaustedError:
        return ExhaustedError(Reason(rule, found, f"device {device}", place))

    return WorkBudget(_EVALUATED + _EVALUATED_EACH * operations, "evaluations of parts of conditions for this model", refuse)


def expansions(refuse: Callable[[str, str, str], Exception] = refused) -> WorkBudget:
    """The size to which the conditions of one profile may expand."""
    return WorkBudget(_EXPANDED, "parts of conditions, those of terms and common conditions each time", refuse)


class Subject(Protocol):
    """One operation, or operator, that conditions are evaluated for."""

    work: WorkBudget
    """What may still be evaluated."""

    def get(self, name: str) -> Value:
        """The value of a name of the vocabulary: a Fact, a tuple of them, a plain value; None if this form has none."""
        ...


@dataclass(frozen=True)
class Vocabulary:
    """The names that conditions of one operation may use."""

    names: Mapping[str, str]
    """Name → kind; the subject has their values."""
    words: Mapping[str, tuple[str, Value]] = field(default_factory=dict)
    """Name → kind and value: types, enumerated values, numbers of the hardware."""
    conditions: Mapping[str, str] = field(default_factory=dict)
    """Name → the text of a condition or term that stands elsewhere."""
    title: str = "the operation"
    """In messages: whose names these are."""
    work: WorkBudget = field(default_factory=expansions, compare=False, repr=False)
    """What the conditions of the profile may still expand to."""
    compiled: dict[str, Any] = field(default_factory=dict, init=False, compare=False, repr=False)
    """Those of ``conditions`` that were compiled before, by name."""


_SIDES = {"n": (0, 0), "h": (1, 2), "w": (2, 3), "c": (3, 1)}
"""Side → dimension in NHWC and in NCHW."""


def _side(name: str) -> Callable[[Fact], Value]:
    places = _SIDES[name]

    def side(fact: Fact) -> Value:
        return (fact.dims[places[fact.nchw]] or None) if len(fact.dims) == 4 else None

    return side


_REDUCTIONS = ("SUM", "MEAN", "REDUCE_MAX", "REDUCE_MIN", "REDUCE_PROD", "REDUCE_ANY", "REDUCE_ALL")
_WEIGHTING = ("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED", "TRANSPOSE_CONV")
ATTRIBUTES: Mapping[str, tuple[str, Callable[[Fact], Value], str]] = {
    "type": (TYPE, lambda f: f.type, "the type of {}"),
    "rank": (NUMBER, lambda f: len(f.dims), "the rank of {}"),
    "dims": (LIST, lambda f: f.dims, "the dimensions of {}"),
    "elements": (NUMBER, lambda f: math.prod(f.dims), "the number of elements of {}"),
    "bytes": (NUMBER, lambda f: math.prod(f.dims) * f.itemsize, "the bytes of {}"),
    "scale": (NUMBER, lambda f: f.scale, "the scale of {}"),
    "scales": (LIST, lambda f: f.scales or (f.scale,), "the scales of {}"),
    "zero_point": (NUMBER, lambda f: f.zero_point, "the zero point of {}"),
    "zero_points": (LIST, lambda f: f.zero_points, "the zero points of {}"),
    "quantised_dim": (NUMBER, lambda f: f.quantised_dim, "the quantised dimension of {}"),
    "used": (TRUTH, lambda f: f.used, "{} is read or an output of the file"),
    "delivered": (TRUTH, lambda f: f.delivered, "{} is an output of the file"),
    "reduced": (TRUTH, lambda f: f.reader in _REDUCTIONS, "only a reduction reads {}"),
    "weighted": (TRUTH, lambda f: f.reader in _WEIGHTING, "only a product with weights reads {}"),
    "stored": (TYPE, lambda f: f.stored or f.type, "the type that the file stores of {}"),
    "channel_dim": (NUMBER, lambda f: f.channel_dim, "the channel dimension of {}"),
    "per_channel": (TRUTH, lambda f: bool(f.scales), "{} has a scale for each channel"),
    "constant": (TRUTH, lambda f: f.constant, "{} is a constant"),
    "copied": (TRUTH, lambda f: f.copied, "{} is a constant of at most 128 bytes"),
    "omitted": (TRUTH, lambda f: f.omitted, "{} is omitted"),
    "model_input": (TRUTH, lambda f: f.model_input, "{} is an input of the model"),
    "tensor": (TRUTH, lambda f: f.tensor, "{} is a tensor"),
    "known": (TRUTH, lambda f: 0 not in f.dims and (bool(f.dims) or f.constant or not f.tensor), "{} has known dimensions"),
    "value": (ANY, lambda f: f.value, "the value of {}"),
    "identity": (NUMBER, lambda f: f.identity, "the identity of {}"),
    "n": (NUMBER, _side("n"), "the batch of {}"),
    "h": (NUMBER, _side("h"), "the height of {}"),
    "w": (NUMBER, _side("w"), "the width of {}"),
    "c": (NUMBER, _side("c"), "the channels of {}"),
}
"""Attribute of an operand → kind, how it is read, how a sentence names it."""


def same_pad(side: int, stride: int, window: int, dilation: int = 1) -> int:
    """Both pads together that SAME padding needs in one direction."""
    outputs = -(-side // stride)
    return max(0, (outputs - 1) * stride + (window - 1) * dilation + 1 - side)


def broadcastable(first: Sequence[int], second: Sequence[int]) -> bool:
    """True if sides, compared from the last one, are equal or 1."""
    return all(a == b or 1 in (a, b) for a, b in zip(reversed(first), reversed(second), strict=False))


def extended(sides: Sequence[int], before: int, count: int) -> tuple[int, ...] | None:
    """As many sides as ``count``: ``before`` ones, the sides, then ones; None where there are more already."""
    behind = int(count) - int(before) - len(sides)
    return (1,) * int(before) + tuple(sides) + (1,) * behind if before >= 0 <= behind and count <= MAX_ELEMENTS else None


def bit(number: int, place: int) -> bool:
    """True if a bit of a mask is set."""
    return 0 <= place < 64 and bool(int(number) >> int(place) & 1)


def nested(items: Sequence[Value]) -> Value:
    """A list of these; None for lists in lists in lists, whose items are more than they seem."""
    deep = any(isinstance(item, tuple) and any(isinstance(inner, tuple) for inner in item) for item in items)
    return None if deep else tuple(items)


def small(number: Value) -> Value:
    """The number; ArithmeticError for integers of hundreds of digits, which products of products soon have."""
    if isinstance(number, int) and number.bit_length() > _MAX_BITS:
        raise ArithmeticError
    return number


def single(number: float) -> float:
    """The float32 that is nearest to a number; ArithmeticError beyond its range."""
    return float(struct.unpack("<f", struct.pack("<f", number))[0])


def up_to(count: int) -> tuple[int, ...] | None:
    """0 up to a number; None above what conditions may go through."""
    return tuple(range(int(count))) if count <= MAX_ELEMENTS else None


def _most(values: Sequence[Any]) -> Value:
    return max(values) if values else None


def _product(values: Sequence[Any]) -> Value:
    return None if any(isinstance(value, tuple) for value in values) else reduce(lambda a, b: small(a * b), values, 1)


def _least(values: Sequence[Any]) -> Value:
    return min(values) if values else None


_MAX_BITS = 1_024
"""Of an integer in a condition; the largest float has as many."""
KNOWN = "known"
"""The function that is true for what is known, and never unknown itself."""

FUNCTIONS: Mapping[str, tuple[str, tuple[str, ...], int, Callable[..., Value]]] = {
    KNOWN: (TRUTH, (ANY,), 1, bool),
    "abs": (NUMBER, (NUMBER,), 1, abs),
    "single": (NUMBER, (NUMBER,), 1, single),
    "floor": (NUMBER, (NUMBER,), 1, math.floor),
    "ceil": (NUMBER, (NUMBER,), 1, math.ceil),
    "len": (NUMBER, (LIST,), 1, len),
    "sum": (NUMBER, (LIST,), 1, sum),
    "product": (NUMBER, (LIST,), 1, _product),
    "most": (NUMBER, (LIST,), 1, _most),
    "least": (NUMBER, (LIST,), 1, _least),
    "max": (NUMBER, (NUMBER, NUMBER), 2, max),
    "min": (NUMBER, (NUMBER, NUMBER), 2, min),
    "bit": (TRUTH, (NUMBER, NUMBER), 2, bit),
    "unique": (LIST, (LIST,), 1, lambda values: tuple(dict.fromkeys(values))),
    "distinct": (TRUTH, (LIST,), 1, lambda values: len(set(values)) == len(values)),
    "broadcastable": (TRUTH, (LIST, LIST), 2, broadcastable),
    "same_pad": (NUMBER, (NUMBER, NUMBER, NUMBER, NUMBER), 3, same_pad),
    "extended": (LIST, (LIST, NUMBER, NUMBER), 3, extended),
    "range": (LIST, (NUMBER,), 1, up_to),
}
"""Function → kind of its result, kinds of its arguments, how many are required, what computes it."""

EACH: Mapping[str, str] = {"all": TRUTH, "any": TRUTH, "list": LIST}
"""Functions of ``body for name in list`` → kind of their result."""
