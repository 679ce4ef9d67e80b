"""Immutable records: their classes cost less to create than Python's; garbage is collected less often beside them.

``dataclass`` is Python's. Of a frozen class Python compiles seven functions, which was a quarter of the time of ``nnbridge
plan`` (204 classes: 121 of 465 ms). Here only ``__init__`` is compiled, the others are shared (40 ms).
"""

from __future__ import annotations

import dataclasses
import gc
import threading
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import MISSING, Field, FrozenInstanceError
from functools import partial
from operator import attrgetter
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any

_BETWEEN_COLLECTIONS = 10_000
_collecting = threading.Lock()
_usual: list[tuple[int, int, int]] = []
"""The thresholds outside, once for each entry that is open."""


@contextmanager
def seldom_collected() -> Iterator[None]:
    """Thousands of records that stay would set off a search for unreachable cycles every 700 of them; here every 10,000.

    For all threads of the process, until the last one leaves. Where collection is off, it stays off.
    """
    with _collecting:
        _usual.append(_usual[0] if _usual else gc.get_threshold())
        if 0 < _usual[0][0] < _BETWEEN_COLLECTIONS:
            gc.set_threshold(_BETWEEN_COLLECTIONS, *_usual[0][1:])
    try:
        yield
    finally:
        with _collecting:
            usual = _usual.pop()
            if not _usual:
                gc.set_threshold(*usual)


def _dataclass(
    cls: type[Any] | None = None, /, *, frozen: bool = False, eq: bool = True, repr: bool = True, **options: bool
) -> Any:
    """Python's ``dataclass``; a frozen class that derives from no other dataclass has the methods of this module."""
    if cls is None:
        return partial(_dataclass, frozen=frozen, eq=eq, repr=repr, **options)
    if not frozen or dataclasses.is_dataclass(cls):
        return dataclasses.dataclass(frozen=frozen, eq=eq, repr=repr, **options)(cls)
    own = dict(vars(cls))
    record = dataclasses.dataclass(init=False, repr=False, eq=False, **options)(cls)
    record.__dataclass_params__.frozen = True  # Python asks where a class derives from this one.
    fields = dataclasses.fields(record)
    methods: dict[str, Callable[..., Any]] = {
        "__init__": _initialiser(record, fields),
        **_refusals(record, {field.name for field in fields}),
    }
    if repr:
        methods["__repr__"] = _repr
    if eq:
        hashed = _values(field for field in fields if (field.compare if field.hash is None else field.hash))
        methods["__eq__"] = _comparison(_values(field for field in fields if field.compare))
        methods["__hash__"] = lambda self: hash(hashed(self))
    if options.get("slots"):
        methods |= {"__getstate__": _state, "__setstate__": _set_state}
    for name, method in methods.items():
        if own.get(name) is None:  # A class with its own __eq__ has a __hash__ of None.
            setattr(record, name, method)
    return record


def _initialiser(record: type[Any], fields: Sequence[Field[Any]]) -> Callable[..., None]:
    """``__init__``, which sets the fields past the record's refusing ``__setattr__``: in the slots, or in the object's dict.

    A call of ``object.__setattr__`` for each, as Python has it, takes up to twice as long.
    """
    names: dict[str, Any] = {"__name__": record.__module__, "_made": MISSING}
    slots = "__slots__" in vars(record)
    arguments, keywords, lines = ["self"], ["*"], [] if slots else ["    _own = self.__dict__"]
    for field in fields:
        name, default, value = field.name, f"_default_{field.name}", field.name
        if field.default_factory is not MISSING:
            names[default], missing = field.default_factory, "=_made"
            value = f"{default}() if {name} is _made else {name}" if field.init else f"{default}()"
        elif field.default is not MISSING:
            names[default], missing = field.default, f"={default}"
            value = name if field.init else default
        else:
            missing = ""
        if field.init:
            (keywords if field.kw_only else arguments).append(name + missing)
        if field.init or missing:
            lines.append(f"    _set_{name}(self, {value})" if slots else f"    _own[{name!r}] = {value}")
            names[f"_set_{name}"] = getattr(getattr(record, name, None), "__set__", None)
    if hasattr(record, "__post_init__"):
        lines.append("    self.__post_init__()")
    signature = ", ".join(arguments + keywords[len(keywords) == 1 :])
    exec(f"def __init__({signature}):\n" + ("\n".join(lines) or "    pass"), names)  # as Python's dataclass does
    initialiser: Callable[..., None] = names["__init__"]
    initialiser.__annotations__ = {field.name: field.type for field in fields if field.init} | {"return": None}
    initialiser.__qualname__ = f"{record.__qualname__}.__init__"
    return initialiser


def _refusals(record: type[Any], fields: Container[str]) -> dict[str, Callable[..., None]]:
    """Setting and deleting attributes: refused for fields, and for every name on objects of the class itself."""

    def setting(self: Any, name: str, value: object) -> None:
        if type(self) is record or name in fields:
            raise FrozenInstanceError(f"cannot assign to field {name!r}")
        super(record, self).__setattr__(name, value)

    def deleting(self: Any, name: str) -> None:
        if type(self) is record or name in fields:
            raise FrozenInstanceError(f"cannot delete field {name!r}")
        super(record, self).__delattr__(name)

    return {"__setattr__": setting, "__delattr__": deleting}


@recursive_repr()
def _repr(self: Any) -> str:
    shown = (f"{field.name}={getattr(self, field.name)!r}" for field in dataclasses.fields(self) if field.repr)
    return f"{type(self).__qualname__}({', '.join(shown)})"


def _values(fields: Iterable[Field[Any]]) -> Callable[[Any], tuple[Any, ...]]:
    """The function that reads these fields of a record."""
    names = [field.name for field in fields]
    if len(names) > 1:
        return attrgetter(*names)
    return lambda self: tuple(getattr(self, name) for name in names)


def _comparison(values: Callable[[Any], tuple[Any, ...]]) -> Callable[[Any, object], Any]:
    def equal(self: Any, other: object) -> Any:
        return values(self) == values(other) if type(other) is type(self) else NotImplemented

    return equal


def _state(self: Any) -> list[Any]:
    """The values of an object with slots, for pickle and copy."""
    return [getattr(self, field.name) for field in dataclasses.fields(self)]


def _set_state(self: Any, state: list[Any]) -> None:
    for field, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, field.name, value)


if TYPE_CHECKING:  # Checkers see Python's, since the interface is the same.
    from dataclasses import dataclass as dataclass
else:
    dataclass = _dataclass
