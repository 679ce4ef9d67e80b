"""Searches over sets, without models."""

from __future__ import annotations

from math import log2

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nnbridge.reduction.search import minimised, shortest_prefix


@given(st.integers(1, 2000), st.data())
def test_the_shortest_prefix_is_found_in_few_steps(count: int, data: st.DataObject) -> None:
    first, asked = data.draw(st.integers(1, count)), []

    def shows(k: int) -> bool:
        asked.append(k)
        return k >= first

    assert shortest_prefix(count, shows) == first
    # One more run, of everything else, makes log2(n) + 2 at most.
    assert len(asked) + 1 <= log2(count) + 2


def test_no_prefix_is_found_where_none_shows_anything() -> None:
    assert shortest_prefix(7, lambda k: False) is None


@given(st.sets(st.integers(0, 40), min_size=1))
def test_what_is_minimised_is_exactly_what_is_needed_together(needed: set[int]) -> None:
    assert minimised(range(41), needed.issubset) == tuple(sorted(needed))


def test_nothing_is_tested_twice() -> None:
    seen: list[tuple[int, ...]] = []

    def holds(chosen: tuple[int, ...]) -> bool:
        seen.append(chosen)
        return {1, 6} <= set(chosen)

    assert minimised(range(8), holds) == (1, 6)
    assert len(seen) == len(set(seen))


@pytest.mark.parametrize("items", [(), (5,)])
def test_fewer_than_two_items_need_no_test(items: tuple[int, ...]) -> None:
    assert minimised(items, lambda chosen: pytest.fail("tested")) == items
