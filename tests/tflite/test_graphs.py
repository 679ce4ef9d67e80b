"""Bodies and decompositions are graphs of their own for a delegate: counted without an interpreter, and as LiteRT has it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from flatbuffers import flexbuffers

from nnbridge import Compilation, plan
from nnbridge.converters import ConversionOptions
from nnbridge.converters.delegation import DelegateTarget, verdict_of
from nnbridge.devices import device
from nnbridge.engines import host_for
from nnbridge.errors import Stage
from nnbridge.file import ModelFile
from nnbridge.model import Model
from nnbridge.plan import delegate_verdict
from nnbridge.summary import summarise
from nnbridge_tflite.convert import OF_A_BODY
from nnbridge_tflite.delegation import TfliteDelegation
from tests.differential import Fork
from tests.tflite.files import TfliteBuilder
from tests.tflite.verdicts import asked, planned

NONE = {"fused_activation_function": 0}
Made = tuple[list[int], list[int]]


def composites(count: int) -> Callable[[TfliteBuilder], Made]:
    """MUL and a composite, in turn; each decomposition is a SOFTMAX."""
    attributes = flexbuffers.Builder()
    with attributes.Map():
        attributes.Int("axis", -1)
    given = np.frombuffer(bytes(attributes.Finish()), np.uint8)

    def make(b: TfliteBuilder) -> Made:
        x = at = b.tensor((1, 8))
        for _ in range(count):
            body, m, s = b.beside(), b.tensor((1, 8)), b.tensor((1, 8))
            i, o = body.tensor((1, 8)), body.tensor((1, 8))
            body.operator("SOFTMAX", [i], [o], {"beta": 1.0}, 2)
            options = {"name": "odml.softmax", "decomposition_subgraph_index": b.add(body, [i], [o]), "version": 1}
            b.operator("MUL", [at, b.constant(np.float32([2]))], [m], NONE)
            b.operator("STABLEHLO_COMPOSITE", [m], [s], {**options, "composite_attributes": given})
            at = s
        return [x], [at]

    return make


def branch(b: TfliteBuilder) -> Made:
    """IF of an ADD or a MUL, then a MUL."""
    x, c, y, z = b.tensor((1, 8)), b.tensor((1,), "bool"), b.tensor((1, 8)), b.tensor((1, 8))
    bodies = []
    for name in ("ADD", "MUL"):
        body = b.beside()
        i, o = body.tensor((1, 8)), body.tensor((1, 8))
        body.operator(name, [i, i], [o], NONE)
        bodies.append(b.add(body, [i], [o]))
    b.operator("IF", [c, x], [y], {"then_subgraph_index": bodies[0], "else_subgraph_index": bodies[1]})
    b.operator("MUL", [y, y], [z], NONE)
    return [c, x], [z]


def body_that_nnapi_refuses(b: TfliteBuilder) -> Made:
    """IF of a TRANSPOSE of int32, which the delegate takes and NNAPI does not build, or an ABS."""
    x, c, y = b.tensor((2, 2), "int32"), b.tensor((1,), "bool"), b.tensor((2, 2), "int32")
    first, second = b.beside(), b.beside()
    i, o = first.tensor((2, 2), "int32"), first.tensor((2, 2), "int32")
    first.operator("TRANSPOSE", [i, first.constant(np.int32([1, 0]))], [o], {})
    p, q = second.tensor((2, 2), "int32"), second.tensor((2, 2), "int32")
    second.operator("ABS", [p], [q], {})
    numbers = [b.add(first, [i], [o]), b.add(second, [p], [q])]
    b.operator("IF", [c, x], [y], {"then_subgraph_index": numbers[0], "else_subgraph_index": numbers[1]})
    return [c, x], [y]


def every(model: Model) -> list[bool]:
    """The answers of a device that supports all."""
    return [True] * len(model.main.operations)


FILES = {
    "IF": (branch, "4 operators in 3 graphs; 3 delegated in 3 partitions"),
    # The decompositions are delegated, three of the four MUL too: each is a partition, and three is the limit of a graph.
    "four composites": (composites(4), "12 operators in 5 graphs; 7 delegated in 7 partitions"),
    "one composite": (composites(1), "3 operators in 2 graphs; 2 delegated in 2 partitions"),
}


@pytest.mark.parametrize("name", FILES)
def test_each_graph_is_offered_partitioned_and_limited_by_itself(name: str) -> None:
    make, counts = FILES[name]
    builder = TfliteBuilder()
    delegation = TfliteDelegation.of(memoryview(builder.content(*make(builder))))
    assert verdict_of(delegation, DelegateTarget(7, True), supported=every, limit=3).counts == counts


@pytest.mark.parametrize("name", FILES)
def test_litert_hands_over_the_same_of_each_graph(name: str, tmp_path: Path) -> None:
    pytest.importorskip("ai_edge_litert.interpreter")
    builder = TfliteBuilder()
    path = builder.write(tmp_path / "file.tflite", *FILES[name][0](builder))
    fork = Fork(asked)
    try:
        (theirs,) = fork.run(path.read_bytes())
    finally:
        fork.close()
    assert theirs.graphs == planned(path).graphs


def test_an_operator_of_a_body_has_its_own_reason(tmp_path: Path) -> None:
    builder = TfliteBuilder()
    path = builder.write(tmp_path / "if.tflite", *branch(builder))
    found = {(one.subgraph, one.operator): one for one in ModelFile(path, ConversionOptions(mapping="delegate")).converted[1]}
    assert found[1, "ADD"].reasons[0].rule == OF_A_BODY
    assert found[0, "IF"].reasons[0].stage is Stage.DELEGATE


def test_a_composite_is_not_handed_over_as_its_decomposition(tmp_path: Path) -> None:
    builder = TfliteBuilder()
    path = builder.write(tmp_path / "composite.tflite", *composites(1)(builder))
    placed = ModelFile(path, ConversionOptions(mapping="delegate")).converted[1]
    assert {one.operator: one.mapping for one in placed} == {
        "MUL": "delegate",
        "STABLEHLO_COMPOSITE": "inlined",
        "SOFTMAX": "host",
    }


def test_a_body_that_cannot_be_built_leaves_the_program_without_an_interpreter(tmp_path: Path) -> None:
    builder = TfliteBuilder()
    path = builder.write(tmp_path / "if.tflite", *body_that_nnapi_refuses(builder))
    verdict = planned(path)
    assert (verdict.outcome, verdict.text.partition(":")[0]) == ("fails", "operator 0 TRANSPOSE of subgraph 1 input")
    placed = ModelFile(path, ConversionOptions(mapping="delegate")).converted[1]
    assert {reason.stage for one in placed for reason in one.reasons} == {Stage.BUILDING, Stage.DELEGATE}


def test_the_main_graph_alone_is_counted_without_graphs() -> None:
    builder = TfliteBuilder()
    x, y = builder.tensor((1, 8)), builder.tensor((1, 8))
    builder.operator("ABS", [x], [y], {})
    delegation = TfliteDelegation.of(memoryview(builder.content([x], [y])))
    found = verdict_of(delegation, DelegateTarget(7, True), supported=every, limit=3)
    assert found.counts == "1 operator; 1 delegated in 1 partition"


def test_the_first_line_of_a_plan_counts_graphs(tmp_path: Path) -> None:
    builder = TfliteBuilder()
    path = builder.write(tmp_path / "if.tflite", *branch(builder))
    model, mapped = ModelFile(path, ConversionOptions(mapping="delegate")).converted
    compilation = Compilation.create(model, ["nnapi-sample_all"])
    compilation.finish(prepare=False)
    verdict = delegate_verdict(ModelFile(path), [device("nnapi-sample_all")], 3)
    line = "On nnapi-sample_all, Android 14: TFLite's NNAPI delegate: 4 operators in 3 graphs; 3 delegated in 3 partitions"
    assert summarise(compilation, mapped, "delegate", "Android 14", verdict=verdict).sentence == line


def test_the_first_line_of_a_plan_of_several_graphs_is_a_judgement(tmp_path: Path) -> None:
    builder = TfliteBuilder()
    path = builder.write(tmp_path / "if.tflite", *branch(builder))
    found = plan(path, device="nnapi-sample_all").summary
    assert found.judgement == "3 of 4 operators of the file's graphs run on nnapi-sample_all"
    assert plan(path, device="nnapi-sample_all", fallback="cpu").summary.judgement == ""


def test_the_wide_mapping_has_no_delegate_that_fails(tmp_path: Path) -> None:
    builder = TfliteBuilder()
    x, y = builder.tensor((2, 2, 1, 1, 1), "int64"), builder.tensor((2, 2, 1, 1, 1), "int64")
    builder.operator("TRANSPOSE", [x, builder.constant(np.int32([1, 0, 2, 3, 4]))], [y], {})
    file = ModelFile(builder.write(tmp_path / "t.tflite", [x], [y]), ConversionOptions(mapping="wide"))
    model, mapped = file.converted
    compilation = Compilation.create(model, ["nnapi-sample_all", *host_for("nnbridge", file)])
    compilation.finish(prepare=False)
    assert summarise(compilation, mapped, "wide", "Android 14").refusal == ""
    assert summarise(compilation, mapped, "delegate", "Android 14").refusal.startswith("TFLite's NNAPI delegate takes 1 of 1")


def test_a_plan_counts_partitions_as_its_sentence_does(real_models: Path) -> None:
    # Operators on variables are no operations of the model; LiteRT's interpreter has three partitions (compare_doors.py).
    file = real_models.parent / "street" / "mww_alexa.tflite"
    if not file.exists():
        pytest.skip("needs the published file mww_alexa.tflite (shared models, street)")
    summary = plan(file, device="arm-nn-21.11").summary
    assert "22 delegated in 3 partitions" in summary.sentence
    assert summary.partitions == 3
