"""Budgets of what is read, expanded and evaluated of a file that others wrote.

A limit on the bytes of a file does not bound what they ask for: references that are followed, text that is unpacked, bodies that
are inlined, conditions that are evaluated. Whoever follows, unpacks, inlines or evaluates spends from a budget first.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from nnbridge.errors import ConversionError, ExhaustedError, InputError, Reason, first_line
from nnbridge.records import dataclass

_UNPACKED, _UNPACKED_TIMES = 128 << 20, 32
"""What a packed file may hold: so many bytes, or so many times its own."""
_CONTAINERS, _CONTAINERS_EACH = 200_000, 16
"""Lists and objects of a JSON text: so many, or one in so many bytes. Each takes a hundred bytes of memory."""

_OPERATIONS, _BYTES_OF_OPERATION = 12_288, 96
"""Operators of a file and operations that they become: so many, or one for so many bytes. Converting and planning one takes
about 0.15 ms; published files have 300 bytes or more for each."""
_ELEMENTS = 1 << 24
_STEPS, _BYTES_OF_STEP = 1_000, 1_024
"""Steps of a plan: so many, or one for so many bytes of constants. Preparing one takes 2 ms, without its operations."""


def unpacked_limit(packed: int, least: int = _UNPACKED, times: int = _UNPACKED_TIMES) -> int:
    """The most bytes that a packed file of so many may unpack to."""
    return max(least, times * packed)


def parse_json(text: bytes | bytearray) -> Any:
    """The value of a JSON text; ValueError and RecursionError for what is none, or consists of little else than empty lists."""
    containers, most = text.count(b"[") + text.count(b"{"), max(_CONTAINERS, len(text) // _CONTAINERS_EACH)
    if containers > most:
        raise ValueError(f"{containers:,} lists and objects, more than {most:,}")
    try:
        decoded = text.decode("utf-8-sig")  # json.loads would guess at UTF-16 and UTF-32.
    except UnicodeDecodeError:
        raise ValueError("bytes that are not text in UTF-8") from None
    return json.loads(decoded)


def parsed(text: str, what: str, where: str) -> Any:
    """The value of JSON text; InputError where it is none, is too deep, or has numbers of thousands of digits, or has more
    containers than text."""
    try:
        return parse_json(text.encode(errors="surrogatepass"))
    except (ValueError, RecursionError) as error:
        raise InputError(Reason(what, first_line(error)[:200], operand=where)) from error


def refused(rule: str, found: str, operand: str) -> Exception:
    """The error of a budget that no reader has made its own."""
    return InputError(Reason(rule, found, operand=operand))


class WorkBudget:
    """So much of something for one file; ``spend`` raises when it is used up.

    ``refuse`` makes the error from the rule, what was found, and the place: the reader's own error with the file's name.
    """

    __slots__ = ("_of", "_refuse", "left", "most")

    def __init__(self, most: int, of: str, refuse: Callable[[str, str, str], Exception] = refused) -> None:
        self.most = self.left = most
        self._of, self._refuse = of, refuse

    def spend(self, count: int = 1, place: str = "") -> None:
        """Take so much of it, for what is at ``place``."""
        self.left -= count
        if self.left < 0:
            raise self._refuse(f"at most {self.most:,} {self._of}", "more", place)


def operations_limit(size: int) -> int:
    """The most operators that a file of ``size`` bytes may have, those of bodies, functions and expansions each time."""
    return max(_OPERATIONS, size // _BYTES_OF_OPERATION)


@dataclass(frozen=True, eq=False, slots=True)
class ConversionBudget:
    """The most that one conversion of a file computes, the bodies of its operators among it."""

    elements: WorkBudget
    """Elements of constants that the file does not hold."""
    operations: WorkBudget
    """Operators that are placed, and operations that are tried for them."""


def conversion_budget(size: int = 0, elements: int = _ELEMENTS) -> ConversionBudget:
    """The budget for a file of ``size`` bytes; ConversionError beyond it."""

    def refuse(rule: str, found: str, place: str) -> Exception:
        return ConversionError(Reason(rule, found, place))

    operations = "operators and operations that they become, for a file of this size"
    return ConversionBudget(
        WorkBudget(elements, "elements of new constants (zeros, unpacked weights)", refuse),
        WorkBudget(operations_limit(size), operations, refuse),
    )


def steps_budget(size: int) -> WorkBudget:
    """The steps that a model with ``size`` bytes of constants may be cut into; ExhaustedError beyond it."""

    def refuse(rule: str, found: str, place: str) -> Exception:
        return ExhaustedError(Reason(rule, found, operand=place))

    return WorkBudget(max(_STEPS, size // _BYTES_OF_STEP), "steps of a plan, for a model of this size", refuse)
