"""Immutable records that are created by the thousand while a model is loaded and prepared."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import MISSING, fields
from typing import Any, TypeVar

Record = TypeVar("Record")
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


def quick(cls: type[Record]) -> type[Record]:
    """Decorator above ``@dataclass(frozen=True, slots=True)``: objects are created in less than half of the time.

    What ``dataclass`` generates sets each field by a call that passes by the object's own, refusing ``__setattr__``. Here fields
    are set while the object is one of a class of the same slots that refuses nothing; objects of subclasses are created as ever.
    Fields with a factory are not supported.
    """
    declared = fields(cls)  # type: ignore[arg-type]  # whatever it decorates is a dataclass
    assert all(field.init and field.default_factory is MISSING for field in declared), cls
    assert not hasattr(cls, "__post_init__"), cls
    names: dict[str, Any] = {f"_{field.name}": field.default for field in declared if field.default is not MISSING}
    arguments = [f"{field.name}=_{field.name}" if f"_{field.name}" in names else field.name for field in declared]
    lines = [
        f"def __init__(self, {', '.join(arguments)}):",
        "    if self.__class__ is not _frozen:",
        f"        return _slow(self, {', '.join(field.name for field in declared)})",
        "    _set(self, '__class__', _open)",
        *(f"    self.{field.name} = {field.name}" for field in declared),
        "    self.__class__ = _frozen",
    ]
    slots = cls.__slots__  # type: ignore[attr-defined]
    names.update(_slow=cls.__init__, _set=object.__setattr__, _open=type(cls.__name__, (), {"__slots__": slots}), _frozen=cls)
    exec("\n".join(lines), names)  # as ``dataclass`` does
    made = names["__init__"]
    made.__annotations__, made.__qualname__ = cls.__init__.__annotations__, cls.__init__.__qualname__
    cls.__init__ = made  # type: ignore[method-assign]
    return cls
