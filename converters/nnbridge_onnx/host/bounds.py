"""Operands that choose places in other operands, and operands with a number for each of something: checked before a node runs.

A kernel in C++ that trusts them reads or writes beyond its memory, and ends its process or returns what happens to be there, as
ONNX Runtime 1.23 does for most operators here. NumPy would count negative ones from the end, and repeat a single number. Found by
running each operator with such values in a separate process.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from nnbridge.errors import OpFailedError, Reason
from nnbridge.model import Array
from nnbridge.records import dataclass

MICROSOFT = "com.microsoft."


@dataclass(frozen=True)
class BoundOperands:
    """The inputs of a node, by position."""

    names: Sequence[str]
    feeds: Mapping[str, Array]
    attributes: Mapping[str, Any]

    def value(self, i: int) -> Array | None:
        """An input; None where it is omitted, or no tensor."""
        found = self.feeds.get(self.names[i]) if i < len(self.names) else None
        return found if isinstance(found, np.ndarray) else None

    def size(self, i: int, axis: int) -> int:
        """A dimension of an input; 0 where it has none."""
        shape = getattr(self.value(i), "shape", ())
        return int(shape[axis]) if -len(shape) <= axis < len(shape) else 0

    def number(self, name: str, default: int = 0) -> int:
        """An attribute that is a whole number."""
        return int(self.attributes.get(name, default))


Wrong: TypeAlias = "tuple[int, str, str]"
"""The input that does not fit, what is required, and what was found."""
Rule: TypeAlias = "Callable[[BoundOperands], Iterator[Wrong]]"


def _indexes(at: int, among: int, axis: int = 0) -> Rule:
    """Input ``at`` chooses among an axis of input ``among``."""
    return _within(at, lambda given: given.size(among, axis))


def _within(at: int, count: Callable[[BoundOperands], int | None]) -> Rule:
    """Whole numbers of 0 to ``count`` - 1, or, where that is None, from 0 on."""

    def rule(given: BoundOperands) -> Iterator[Wrong]:
        found = given.value(at)
        if found is None or not found.size or found.dtype.kind not in "iu":
            return
        most, (least, largest) = count(given), (int(found.min()), int(found.max()))
        if least < 0 or (most is not None and largest >= most):
            required = "whole numbers from 0 on" if most is None else f"indexes from 0 to {most - 1}"
            yield at, required, str(least if least < 0 else largest)

    return rule


def _sized(at: int, count: Callable[[BoundOperands], int], what: str) -> Rule:
    """An input of so many numbers in all."""

    def rule(given: BoundOperands) -> Iterator[Wrong]:
        found = given.value(at)
        if found is not None and found.size != count(given):
            yield at, f"{count(given)} {what}", str(list(found.shape))

    return rule


def _channels(places: Sequence[int], source: int, axis: int, times: Callable[[BoundOperands], int] = lambda _: 1) -> Rule:
    """Inputs with a number for each channel, which an axis of ``source`` counts."""

    def rule(given: BoundOperands) -> Iterator[Wrong]:
        channels = given.size(source, axis) * times(given)
        for place in places:
            found = given.value(place)
            if found is not None and found.shape != (channels,):
                yield place, f"a number for each of {channels} channels", str(list(found.shape))

    return rule


def _rotary_offset(given: BoundOperands) -> Iterator[Wrong]:
    """A single position is that of the first of a sequence; others are each one's."""
    positions, rows = given.value(1), given.size(2, 0)
    several = positions is not None and positions.ndim == 1 and positions.size == 1
    yield from _within(1, lambda _: rows - (given.size(0, -2) - 1 if several else 0))(given)


def _lengths(given: BoundOperands) -> Iterator[Wrong]:
    """The last position of each sequence, in the buffer of keys; past ones, unless this is the first prompt, are before it."""
    length, capacity, total = given.size(0, 1), given.size(3, 2), given.value(6)
    whole = 0 if total is None else int(total.reshape(-1)[0]) if total.size else 0
    yield from _within(5, lambda _: max(capacity, whole))(given)
    found = given.value(5)
    if found is not None and found.size and length != whole and int(found.min()) + 1 < length:
        yield 5, f"lengths of at least the {length} new elements", str(int(found.min()) + 1)


def _masks(at: int) -> Rule:
    """The ends and beginnings of sequences, if they are not masks of elements."""
    within = _within(at, lambda _: None)

    def rule(given: BoundOperands) -> Iterator[Wrong]:
        mask = given.value(at)
        if mask is not None and mask.ndim == 1:
            yield from within(given)

    return rule


def _parts(given: BoundOperands) -> Iterator[Wrong]:
    """Lengths of parts, which are whole and make up the axis."""
    lengths = given.value(1)
    if lengths is None or lengths.ndim != 1:
        return
    yield from _within(1, lambda _: None)(given)
    whole = given.size(0, given.number("axis"))
    if int(lengths.sum()) != whole:
        yield 1, f"lengths whose sum is {whole}", str(int(lengths.sum()))


def _experts(given: BoundOperands) -> Iterator[Wrong]:
    count, experts = given.number("k", 1), given.size(1, -1)
    if not 1 <= count <= experts:
        yield 1, f"k from 1 to the {experts} experts", str(count)


def _four_bits(given: BoundOperands) -> int:
    return given.number("K") * given.number("N")


def _groups(given: BoundOperands) -> int:
    return math.ceil(given.number("K") / max(1, given.number("block_size")))


_GROUP: Callable[[BoundOperands], int] = lambda given: given.number("group", 1)  # noqa: E731 - one of a table's
RULES: Mapping[str, Sequence[Rule]] = {
    "Conv": (_channels((2,), 1, 0),),
    "ConvTranspose": (_channels((2,), 1, 1, _GROUP),),
    "DeformConv": (_channels((3,), 1, 0),),
    "QLinearConv": (_channels((8,), 3, 0),),
    "InstanceNormalization": (_channels((1, 2), 0, 1),),
    "RoiAlign": (_indexes(2, 0),),
    "RotaryEmbedding": (_indexes(3, 1),),
    "Split": (_parts,),
    "SplitToSequence": (_parts,),
    f"{MICROSOFT}Attention": (_masks(3),),
    f"{MICROSOFT}CropAndResize": (_indexes(2, 0),),
    f"{MICROSOFT}EmbedLayerNormalization": (_indexes(0, 2), _indexes(1, 4), _indexes(8, 3)),
    f"{MICROSOFT}FusedConv": (_channels((2,), 1, 0),),
    f"{MICROSOFT}GroupQueryAttention": (_lengths,),
    f"{MICROSOFT}MatMulBnb4": (
        _sized(1, lambda given: math.ceil(_four_bits(given) / 2), "bytes of two numbers"),
        _sized(2, lambda given: math.ceil(_four_bits(given) / max(1, given.number("block_size"))), "scales"),
    ),
    f"{MICROSOFT}MatMulNBits": (_within(4, _groups),),
    f"{MICROSOFT}MoE": (_experts,),
    f"{MICROSOFT}MultiHeadAttention": (_masks(4),),
    f"{MICROSOFT}QAttention": (_masks(5),),
    f"{MICROSOFT}QMoE": (_experts,),
    f"{MICROSOFT}RotaryEmbedding": (_rotary_offset,),
    f"{MICROSOFT}WordConvEmbedding": (_indexes(0, 3),),
}
"""Operators and what their operands must fulfil, with the domain of those that are not ONNX's own."""


def check(rules: Sequence[Rule], given: BoundOperands, label: str) -> None:
    """OP_FAILED for the first operand that does not fit."""
    for rule in rules:
        for at, required, found in rule(given):
            raise OpFailedError(Reason(required, found, label, given.names[at]))
