"""Nodes that run as one: ONNX Runtime's rule, on graphs by hand."""

from __future__ import annotations

from nnbridge.converters.partitions import partitions
from nnbridge.converters.runtime_graph import RuntimeNode


def graph(*edges: str) -> list[RuntimeNode]:
    """Nodes as ``inputs>output``, values of one letter."""
    return [RuntimeNode("Op", "", "", tuple(e.partition(">")[0]), (e.partition(">")[2],)) for e in edges]


def groups(nodes: list[RuntimeNode], claimed: set[int], folded: set[int] = frozenset(), units: tuple[set[int], ...] = ()) -> list:  # type: ignore[assignment, type-arg]
    return [sorted(g) for g in partitions(nodes, frozenset(claimed), frozenset(folded), [frozenset(u) for u in units])]


def test_a_node_that_is_not_claimed_divides_a_chain() -> None:
    assert groups(graph("x>a", "a>b", "b>c"), {0, 2}) == [[0], [2]]


def test_branches_beside_such_a_node_stay_together() -> None:
    # x ─ a ─┬─ b(not claimed) ─┬─ d
    #        └─ c ──────────────┘
    assert groups(graph("x>a", "a>b", "a>c", "bc>d"), {0, 2, 3}) == [[0, 2], [3]]


def test_nodes_without_a_path_between_them_are_one_group() -> None:
    assert groups(graph("x>a", "y>b"), {0, 1}) == [[0, 1]]


def test_what_is_not_behind_a_group_does_not_close_it() -> None:
    assert groups(graph("x>a", "a>b", "b>c"), {1, 2}) == [[1, 2]]


def test_a_unit_is_one_node() -> None:
    # Without the unit, 1, which reads an input, would run before 0's unclaimed reader.
    nodes = graph("x>a", "a>b", "y>c", "bc>d")
    assert groups(nodes, {0, 2, 3}) == [[0, 2], [3]]
    assert groups(nodes, {0, 2, 3}, units=({2, 3},)) == [[0], [2, 3]]


def test_a_node_of_two_units_orders_neither_after_the_other() -> None:
    # 0 is dequantised for 1 and for 3, which reads what 1 makes: x ─ 0 ─ 1 ─ 2 ─ 3
    nodes = graph("x>q", "q>a", "a>b", "qb>c")
    assert groups(nodes, {0, 1, 2, 3}, units=({0, 1}, {0, 3})) == [[0, 1, 2, 3]]
    assert groups(nodes, {0, 1, 3}, units=({0, 1}, {0, 3})) == [[1], [0, 3]]


def test_what_depends_on_nothing_runs_with_its_first_reader() -> None:
    nodes = graph("w>v", "x>a", "a>b", "bv>c", "cv>d")
    assert groups(nodes, {0, 1, 3, 4}, folded={0}) == [[1], [0, 3, 4]]


def test_nothing_is_claimed_of_nothing() -> None:
    assert groups([], set()) == []
    assert groups(graph("x>a"), set()) == []
