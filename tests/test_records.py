"""Records that are created quickly are those of ``dataclass`` otherwise."""

import gc
import pickle
from collections.abc import Iterator
from dataclasses import FrozenInstanceError, dataclass, replace

import pytest

from nnbridge.records import quick, seldom_collected


@quick
@dataclass(frozen=True, slots=True)
class Point:
    """A record with a default."""

    x: int
    y: int = 2


def test_fields_are_set_by_position_by_name_and_by_default() -> None:
    assert (Point(1).y, Point(1, 3).y, Point(x=1, y=4).y) == (2, 3, 4)


def test_a_record_stays_frozen() -> None:
    with pytest.raises(FrozenInstanceError):
        Point(1).x = 2  # type: ignore[misc]


def test_records_of_equal_fields_are_equal_and_hash_alike() -> None:
    assert Point(1) == Point(1, 2) != Point(1, 3)
    assert hash(Point(1)) == hash(Point(1, 2))


def test_copies_and_pickles_are_records_of_the_same_class() -> None:
    made = pickle.loads(pickle.dumps(replace(Point(1), y=5)))
    assert type(made) is Point
    assert made == Point(1, 5)


def test_a_missing_field_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="x"):
        Point()  # type: ignore[call-arg]


class Named(Point):
    """A subclass without fields of its own."""


def test_objects_of_a_subclass_are_its_own() -> None:
    assert type(Named(3)) is Named
    assert Named(3).x == 3


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
