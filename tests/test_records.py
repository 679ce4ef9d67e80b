"""Garbage is collected less often while records are created; frozen dataclasses of records are like Python's."""

from __future__ import annotations

import copy
import dataclasses
import gc
import inspect
import pickle
from collections.abc import Callable, Iterator
from dataclasses import field
from functools import cached_property
from typing import Any

import pytest

from nnbridge.records import dataclass, seldom_collected


@pytest.fixture
def usual() -> Iterator[tuple[int, int, int]]:
    """Thresholds below those of loading, whatever another library of this process has set."""
    before = gc.get_threshold()
    gc.set_threshold(700, 10, 10)
    yield gc.get_threshold()
    gc.set_threshold(*before)


def test_collections_are_as_usual_once_the_last_one_leaves(usual: tuple[int, int, int]) -> None:
    with seldom_collected():
        with seldom_collected():
            assert gc.get_threshold() == (10_000, *usual[1:])
        assert gc.get_threshold() != usual
    assert gc.get_threshold() == usual


def test_collections_are_as_usual_after_an_error(usual: tuple[int, int, int]) -> None:
    with pytest.raises(ZeroDivisionError), seldom_collected():
        raise ZeroDivisionError
    assert gc.get_threshold() == usual


def declared(dataclass: Callable[..., Any]) -> type[Any]:
    """A class with fields of every kind that records have, under a decorator."""

    @dataclass(frozen=True)
    class Point:
        """A place."""

        x: int
        y: list[int] = field(default_factory=list, compare=False)
        name: str = "origin"
        known: dict[str, int] = field(default_factory=dict, init=False, compare=False, repr=False)
        sign: int = field(default=1, kw_only=True)

        @cached_property
        def doubled(self) -> int:
            return 2 * self.x

    return Point


def slotted(dataclass: Callable[..., Any]) -> type[Any]:
    """A class with slots and a hook after its initialisation."""

    @dataclass(frozen=True, slots=True)
    class Pair:
        """Two things."""

        first: object
        second: object = None

        def __post_init__(self) -> None:
            if self.first is self.second:
                raise ValueError(self.first)

    return Pair


@dataclass(frozen=True, slots=True)
class Pickled:
    """A record that pickle finds by its name."""

    value: int


BOTH = pytest.mark.parametrize("decorator", [dataclasses.dataclass, dataclass], ids=["python", "records"])


@BOTH
def test_an_object_has_its_arguments_and_new_defaults(decorator: Callable[..., Any]) -> None:
    point = declared(decorator)
    assert point(3).y == []
    assert point(3).y is not point(3).y
    assert (point(3, [1], "here", sign=-1).y, point(3, name="there").name, point(3).sign) == ([1], "there", 1)
    assert point(3).doubled == 6
    with pytest.raises(TypeError, match="argument"):
        point()
    with pytest.raises(TypeError, match="argument"):
        point(1, [], "", -1)


@BOTH
def test_fields_are_not_set_or_deleted(decorator: Callable[..., Any]) -> None:
    made = declared(decorator)(3)
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot assign to field 'x'"):
        made.x = 4
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot assign to field 'z'"):
        made.z = 4
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot delete field 'x'"):
        del made.x


@BOTH
def test_a_class_that_derives_from_a_record_may_set_what_is_no_field(decorator: Callable[..., Any]) -> None:
    derived = type("Derived", (declared(decorator),), {})(3)
    derived.z = 4
    assert derived.z == 4
    with pytest.raises(dataclasses.FrozenInstanceError):
        derived.x = 4


@BOTH
def test_a_record_derives_from_a_record(decorator: Callable[..., Any]) -> None:
    further = dataclasses.make_dataclass("Further", [("z", int, 0)], bases=(declared(decorator),), frozen=True)
    assert (further(3, z=2).x, further(3, z=2).z) == (3, 2)
    with pytest.raises(dataclasses.FrozenInstanceError):
        further(3).x = 4


@BOTH
def test_objects_are_equal_by_the_compared_fields_of_one_class(decorator: Callable[..., Any]) -> None:
    point = declared(decorator)
    assert point(3, [1]) == point(3, [2])
    assert hash(point(3, [1])) == hash(point(3, [2])) == hash((3, "origin", 1))
    assert point(3) != point(4)
    assert point(3) != (3, "origin", 1)
    assert point(3) != type("Derived", (point,), {})(3)
    assert slotted(decorator)(3) != slotted(decorator)(3)  # two classes


@BOTH
def test_an_object_is_shown_by_its_fields(decorator: Callable[..., Any]) -> None:
    assert repr(declared(decorator)(3, [1])) == "declared.<locals>.Point(x=3, y=[1], name='origin', sign=1)"
    within: list[Any] = []
    within.append(slotted(decorator)(within))
    assert repr(within) == "[slotted.<locals>.Pair(first=[...], second=None)]"


@BOTH
def test_methods_of_the_class_come_first(decorator: Callable[..., Any]) -> None:
    @decorator(frozen=True)
    class Own:
        x: int

        def __repr__(self) -> str:
            return "own"

        def __eq__(self, other: object) -> bool:
            return True

    assert repr(Own(1)) == "own"
    assert Own(1) == Own(2)
    assert hash(Own(1)) == hash((1,))


@BOTH
def test_without_eq_objects_are_themselves_alone(decorator: Callable[..., Any]) -> None:
    @decorator(frozen=True, eq=False, repr=False)
    class Itself:
        x: list[int]

    made = Itself([1])
    assert made == made
    assert made != Itself([1])
    assert len({made, Itself([1])}) == 2
    assert "Itself object" in repr(made)


@BOTH
def test_the_hook_after_initialisation_runs(decorator: Callable[..., Any]) -> None:
    with pytest.raises(ValueError, match="1"):
        slotted(decorator)(1, 1)


@BOTH
def test_functions_of_dataclasses_know_records(decorator: Callable[..., Any]) -> None:
    made = declared(decorator)(3, [1])
    assert dataclasses.replace(made, name="there").name == "there"
    assert dataclasses.asdict(slotted(decorator)(1)) == {"first": 1, "second": None}
    assert slotted(decorator).__match_args__ == ("first", "second")
    assert str(inspect.signature(slotted(decorator))) == "(first: 'object', second: 'object' = None) -> None"


def test_records_with_slots_are_pickled_and_copied() -> None:
    made = Pickled(3)
    assert pickle.loads(pickle.dumps(made)) == made == copy.copy(made)
    assert not hasattr(made, "__dict__")
