"""Garbage is collected less often while records are created, and as usual afterwards."""

import gc
from collections.abc import Iterator

import pytest

from nnbridge.records import seldom_collected


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
