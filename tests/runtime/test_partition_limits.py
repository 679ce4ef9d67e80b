"""The limit on delegated partitions, as TFLite's NNAPI delegate chooses them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nnbridge.errors import BadDataError, Reason
from nnbridge.model import Model, Source, Subgraph
from nnbridge.runtime.compilation import Compilation
from nnbridge.runtime.execution import Execution
from nnbridge.runtime.partition_limits import delegated_partitions, undelegated
from nnbridge.types import OperationCode
from tests.graphs import unary_chain
from tests.runtime.drivers import Driver
from tests.runtime.planning import Graph, picky, places

ABS, NEG = OperationCode.ABS, OperationCode.NEG
CPU = "nnapi-reference"


def chain(pattern: str) -> Model:
    """``A`` is ABS, which a driver takes, ``N`` is NEG, which stays."""
    return unary_chain(*(ABS if letter == "A" else NEG for letter in pattern))


def limited(model: Model, limit: int, *drivers: Driver) -> Compilation:
    compilation = Compilation.create(model, drivers or [Driver("takes ABS", frozenset({ABS}))])
    compilation.set_max_partitions(limit)
    compilation.finish()
    return compilation


def kept(pattern: str, limit: int) -> str:
    """``A`` where the driver runs the operation, ``.`` where the CPU does."""
    return "".join("." if place == CPU else "A" for place in places(limited(chain(pattern), limit)))


@pytest.mark.parametrize(
    ("limit", "expected"),
    [(0, "A.AAA.AA.A"), (4, "A.AAA.AA.A"), (3, "A.AAA.AA.."), (2, "..AAA.AA.."), (1, "..AAA.....")],
)
def test_the_largest_partitions_are_retained_the_earlier_ones_of_equal_size(limit: int, expected: str) -> None:
    assert kept("ANAAANAANA", limit) == expected


def test_the_reason_names_the_limit() -> None:
    compilation = limited(chain("ANAA"), 1)
    [answer] = [a for a in compilation.plan.placements[0].answers if a.device == "takes ABS"]
    assert "--max-partitions 1" in str(answer.reason)
    assert "1 largest of 2" in str(answer.reason)
    assert compilation.plan.placements[0].answers[1].supported


def test_a_limited_plan_computes_the_same() -> None:
    x = np.array([[-1, 2, -3, 4]], np.float32)
    for limit in range(4):
        [y] = Execution(limited(chain("ANAAANAN"), limit)).run([x]).values()
        np.testing.assert_array_equal(y, -np.abs(x))


def test_partitions_alternate_from_the_first_operation_that_is_ready() -> None:
    # Two branches from x: a delegated one of two operations, and one that stays first. The sum joins when both are there.
    graph = Graph()
    x = graph.operand("x")
    a = graph.add("ABS", [x])
    b = graph.add("ABS", [a])
    c = graph.add("NEG", [x])
    d = graph.add("ABS", [c])
    model = graph.finish([x], [graph.add("ADD0", [b, d])])
    delegated = [o.type in (ABS, OperationCode.ADD) for o in model.main.operations]
    # Android's order takes the last operation that is ready first, so NEG is the first one here and its turn comes first:
    # everything else is then one partition.
    assert model.main.operations[0].type == NEG
    assert [len(members) for members in delegated_partitions(model.main, delegated)] == [4]


def by_passes(main: Subgraph, delegated: list[bool]) -> list[set[int]]:
    """TFLite's way: passes over all nodes, each taking those that are ready and of the kind whose turn it is."""
    written = {i for o in main.operations for i in o.outputs}
    left, there, found = set(range(len(main.operations))), set(), []
    while left:
        turn, members, again = None, set(), True
        while again:
            again = False
            for i in sorted(left):
                operation = main.operations[i]
                if any(k in written and k not in there for k in operation.inputs):
                    continue
                turn = delegated[i] if turn is None else turn
                if delegated[i] == turn:
                    left.remove(i)
                    members.add(i)
                    there.update(operation.outputs)
                    again = True
        if turn:
            found.append(members)
    return found


@given(st.data())
def test_partitions_are_those_of_passes_over_the_nodes(data: st.DataObject) -> None:
    graph = Graph()
    values = [graph.operand("x")]
    for _ in range(data.draw(st.integers(1, 25))):
        inputs = [data.draw(st.sampled_from(values)) for _ in range(2)]
        values.append(graph.add("ADD0", inputs))
    model = graph.finish(values[:1], values[1:])
    delegated = [data.draw(st.booleans()) for _ in model.main.operations]
    found = delegated_partitions(model.main, delegated)
    assert [set(members) for members in found] == by_passes(model.main, delegated)


def sourced(model: Model, sources: Sequence[Source | None]) -> Model:
    """The model with these operators of the source file."""
    pairs = zip(model.main.operations, sources, strict=True)
    return replace(model, main=replace(model.main, operations=tuple(replace(o, source=source) for o, source in pairs)))


def test_operations_of_one_operator_count_as_one() -> None:
    # One SPLIT became three operations, which still count less than two operators.
    split = Source(0, "SPLIT")
    model = sourced(chain("AAANAA"), [split, split, split, Source(1, "NEG"), Source(2, "ABS"), Source(3, "ABS")])
    assert places(limited(model, 1)) == [CPU] * 4 + ["takes ABS"] * 2


def test_an_operator_that_drivers_accept_only_in_part_stays_on_the_cpu() -> None:
    prelu = Source(1, "PRELU")
    model = sourced(chain("AANAA"), [Source(0, "ABS"), prelu, prelu, Source(2, "ABS"), Source(3, "ABS")])
    compilation = limited(model, 3)
    assert places(compilation) == ["takes ABS", CPU, CPU, "takes ABS", "takes ABS"]
    assert "whole" in str(compilation.plan.placements[1].answers[0].reason)
    # NNAPI itself knows no operators.
    assert places(limited(model, 0)) == ["takes ABS", "takes ABS", CPU, "takes ABS", "takes ABS"]


def test_operations_without_a_source_are_operators_of_their_own() -> None:
    # Names decide nothing, whatever they look like.
    model = chain("ANAA")
    names = ["0: ABS", "1: NEG", "2: ABS", "2: ABS"]
    operations = tuple(replace(o, name=name) for o, name in zip(model.main.operations, names, strict=True))
    named = replace(model, main=replace(model.main, operations=operations))
    assert places(limited(named, 1)) == [CPU, CPU, "takes ABS", "takes ABS"]


def test_operators_of_inlined_subgraphs_come_where_their_caller_stands() -> None:
    # In the file: 3 NEG, 4 a call of a subgraph whose operator 0 is ABS, 5 ABS of the first. NEG is the first node and stays, so
    # that both ABS are ready afterwards and make one partition; with the inner index alone they would make two.
    graph = Graph()
    x = graph.operand("x")
    negated = graph.add("NEG", [x])
    made = graph.finish([x], [graph.add("ABS", [x]), graph.add("ABS", [negated])])
    after = made.main.consumers[next(o for o in made.main.operations if o.type == NEG).outputs[0]]
    operators = {
        i: Source(3, "NEG") if o.type == NEG else Source(5, "ABS") if i in after else Source(0, "ABS", 1, (4,))
        for i, o in enumerate(made.main.operations)
    }
    model = sourced(made, [operators[i] for i in range(3)])
    delegated = [o.type == ABS for o in model.main.operations]
    assert [len(members) for members in delegated_partitions(model.main, delegated)] == [2]


def test_a_partition_may_be_shared_by_several_drivers() -> None:
    graph = Graph()
    x = graph.operand("x")
    model = graph.finish([x], [graph.add("FLOOR", [graph.add("ABS", [x])])])
    assert places(limited(model, 1, picky("a", 0.5, "ABS"), picky("f", 0.5, "FLOOR"))) == ["a", "f"]


def test_the_limit_needs_the_cpu_for_what_is_not_delegated() -> None:
    compilation = Compilation.create_for_devices(chain("A"), [Driver("alone")])
    with pytest.raises(BadDataError, match="the CPU among the devices"):
        compilation.set_max_partitions(1)


def test_a_negative_limit_is_bad_data() -> None:
    with pytest.raises(BadDataError):
        Compilation.create(chain("A"), []).set_max_partitions(-1)


def test_an_operation_that_the_cpu_cannot_run_has_no_device_beyond_the_limit() -> None:
    graph = Graph()
    x = graph.operand("x")
    oem = graph.add("OEM_OPERATION", [x])
    model = graph.finish([x], [graph.add("ABS", [graph.add("ABS", [graph.add("NEG", [oem])])])])
    with pytest.raises(BadDataError, match="max-partitions"):
        limited(model, 1, picky("oem", 0.5, "OEM_OPERATION", "ABS"))


def left(pattern: str, limit: int) -> set[int]:
    """The operators that stay where NNAPI's CPU is disallowed; ``N`` is refused."""
    model = sourced(chain(pattern), [Source(i, letter) for i, letter in enumerate(pattern)])
    refusals = [None if letter == "A" else Reason("ABS", "NEG") for letter in pattern]
    return set(undelegated(model.main, refusals, limit))


def test_without_the_cpu_refused_operators_stay_with_the_file() -> None:
    assert left("ANAAN", 0) == {1, 4}


def test_without_the_cpu_smaller_partitions_beyond_the_limit_stay_with_the_file() -> None:
    assert left("ANAAN", 1) == {0, 1, 4}
