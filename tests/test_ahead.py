"""Items in threads: order, bounds, errors, ends."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from nnbridge.ahead import in_order
from nnbridge.errors import InputError


def readers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "nnbridge-reader"]


def ended() -> bool:
    deadline = time.monotonic() + 5
    while readers() and time.monotonic() < deadline:
        time.sleep(0.02)
    return not readers()


def test_results_are_in_the_order_of_their_items() -> None:
    def slow_if_even(k: int) -> int:
        time.sleep(0.003 if k % 2 == 0 else 0)
        return k * k

    assert list(in_order(slow_if_even, range(30), 4)) == [k * k for k in range(30)]


def test_items_are_computed_at_the_same_time() -> None:
    meeting = threading.Barrier(2, timeout=5)
    assert list(in_order(lambda k: (meeting.wait(), k)[1], range(4), 2)) == [0, 1, 2, 3]


def test_no_more_is_taken_ahead_than_stated() -> None:
    taken: list[int] = []

    def items() -> Iterator[int]:
        for k in range(100):
            taken.append(k)
            yield k

    found = in_order(lambda k: k, items(), 2, ahead=2)
    assert next(found) == 0
    time.sleep(0.05)
    assert len(taken) <= 1 + 4


def test_short_turns_take_more_items_at_a_time() -> None:
    assert list(in_order(lambda k: k, range(1000), 2, most=64)) == list(range(1000))


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("most", [1, 8])
def test_an_error_of_the_function_comes_after_the_results_before_it(threads: int, most: int) -> None:
    def refuse_seven(k: int) -> int:
        if k == 7:
            raise InputError("seven")
        return k

    found = in_order(refuse_seven, range(100), threads, most=most)
    assert [next(found) for _ in range(7)] == list(range(7))
    with pytest.raises(InputError, match="seven"):
        next(found)
    assert ended()


def test_an_error_of_an_item_comes_after_the_results_before_it() -> None:
    def items() -> Iterator[int]:
        yield from range(5)
        raise InputError("damaged")

    found = in_order(lambda k: k, items(), 2, most=64)
    assert [next(found) for _ in range(5)] == list(range(5))
    with pytest.raises(InputError, match="damaged"):
        next(found)
    assert ended()


def test_no_items_have_no_results() -> None:
    assert list(in_order(lambda k: k, [], 3)) == []
    assert ended()


def test_threads_end_with_the_iterator() -> None:
    found = in_order(lambda k: k, iter(range(10**9)), 3)
    assert next(found) == 0
    found.close()  # type: ignore[attr-defined]
    assert ended()
