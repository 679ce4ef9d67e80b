"""Branches whose condition never changes, and decompositions, in the place of the operators that call them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from nnbridge.advice import advise
from nnbridge.file import ModelFile
from nnbridge.target import Target
from nnbridge_tflite.read.reader import read
from tests.remedies.files import PHONE, advice, same_bits, written
from tests.tflite.files import TfliteBuilder
from tests.tflite.reports import Made, composite

BEFORE_NNAPI = ("ethos-u55-128", "ethos-u85-256", "edgetpu", "tflite-gpu-delegate", "xnnpack", "hexagon")
SHAPE = (1, 4, 4, 8)
EIGHT = {"type": "int8", "scale": 0.1}


def body(b: TfliteBuilder, *names: str, twice: bool = False, states: bool = False) -> int:
    """A subgraph of operators one after the other; of none, its output is its input."""
    inner = b.beside()
    first = last = inner.tensor(SHAPE, **EIGHT)
    for name in names:
        out = inner.tensor(SHAPE, **EIGHT)
        inner.operator(name, [last], [out], {})
        last = out
    if states:
        inner.tensor(SHAPE, **EIGHT, is_variable=True)
    return b.add(inner, [first], [last] * (1 + twice))


def chosen(
    then: tuple[str, ...] = ("RELU", "ABS"),
    other: tuple[str, ...] = ("RELU6",),
    *,
    condition: str = "true",
    twice: bool = False,
    last: bool = False,
    states: bool = False,
) -> Callable[[TfliteBuilder], Made]:
    """RELU, an IF, and an ABS unless the IF is the last operator."""

    def make(b: TfliteBuilder) -> Made:
        numbers = body(b, *then, twice=twice, states=states), body(b, *other, twice=twice)
        x, y, z = (b.tensor(SHAPE, **EIGHT) for _ in range(3))
        ends = [b.tensor(SHAPE, **EIGHT) for _ in range(1 + twice)]
        inputs = [x]
        if condition == "compared":
            truth = b.tensor((), "bool")
            b.operator("LESS", [b.constant(np.int32(1)), b.constant(np.int32(2))], [truth], {})
        elif condition == "computed":
            truth = b.tensor((1,), "bool")
            inputs = [x, truth]
        else:
            truth = b.constant(np.array([condition == "true"]))
        b.operator("RELU", [x], [y], {})
        b.operator("IF", [truth, y], ends, {"then_subgraph_index": numbers[0], "else_subgraph_index": numbers[1]})
        if not last:
            b.operator("ABS", [ends[0]], [z], {})
        return inputs, ends if last else [z, *ends[1:]]

    return make


def nested(b: TfliteBuilder) -> Made:
    """An IF whose branch has an IF with a constant condition."""
    deep, inner = body(b, "ABS"), b.beside()
    i, o = inner.tensor(SHAPE, **EIGHT), inner.tensor(SHAPE, **EIGHT)
    options = {"then_subgraph_index": deep, "else_subgraph_index": deep}
    inner.operator("IF", [inner.constant(np.array([True])), i], [o], options)
    number = b.add(inner, [i], [o])
    x, y = b.tensor(SHAPE, **EIGHT), b.tensor(SHAPE, **EIGHT)
    b.operator("IF", [b.constant(np.array([False])), x], [y], {"then_subgraph_index": number, "else_subgraph_index": number})
    return [x], [y]


def file(make: Callable[[TfliteBuilder], Made], folder: Path) -> Path:
    builder = TfliteBuilder()
    return builder.write(folder / "before.tflite", *make(builder))


def names(path: Path) -> list[str]:
    return [operator.name for operator in read(path).graph.main.operators]


CASES: dict[str, tuple[Callable[[TfliteBuilder], Made], list[str]]] = {
    "then": (chosen(), ["RELU", "RELU", "ABS", "ABS"]),
    "else": (chosen(condition="false"), ["RELU", "RELU6", "ABS"]),
    "a condition of constants": (chosen(condition="compared"), ["LESS", "RELU", "RELU", "ABS", "ABS"]),
    "an empty branch": (chosen(condition="false", other=()), ["RELU", "ABS"]),
    "an empty branch at the end": (chosen(condition="false", other=(), last=True), ["RELU", "RESHAPE"]),
    "at the end": (chosen(last=True), ["RELU", "RELU", "ABS"]),
    "a branch in a branch": (nested, ["IF"]),
    "a composite": (composite, ["MUL", "SOFTMAX"]),
}


@pytest.mark.parametrize("case", CASES)
def test_what_an_operator_calls_takes_its_place_with_the_same_bits(case: str, tmp_path: Path) -> None:
    pytest.importorskip("ai_edge_litert")
    make, expected = CASES[case]
    path, after = file(make, tmp_path), tmp_path / "after.tflite"
    texts = ("the branch that its condition, which never changes, chooses", "its decomposition")
    edit = next(one for one in ModelFile(path, PHONE).edits if one.text in texts and one.subgraph == 0)
    edit.content().write(after)
    assert names(after) == expected
    assert same_bits("litert", path, after, seeds=2)


def test_a_result_that_a_branch_has_twice_is_copied(tmp_path: Path) -> None:
    """LiteRT's IF writes only the last of equal outputs."""
    path, after = file(chosen(twice=True, last=True), tmp_path), tmp_path / "after.tflite"
    next(one for one in ModelFile(path, PHONE).edits if one.operator == "IF").content().write(after)
    assert names(after) == ["RELU", "RELU", "ABS", "RESHAPE"]


@pytest.mark.parametrize("make", [chosen(condition="computed"), chosen(states=True)], ids=["computed", "states"])
def test_an_if_stays_whose_condition_is_computed_or_whose_branch_has_states(
    make: Callable[[TfliteBuilder], Made], tmp_path: Path
) -> None:
    assert not [one for one in ModelFile(file(make, tmp_path), PHONE).edits if one.operator == "IF" and "branch" in one.text]


@pytest.mark.parametrize("device", BEFORE_NNAPI[:4])
def test_a_compiler_is_advised_the_branch(device: str, tmp_path: Path) -> None:
    pytest.importorskip("ai_edge_litert")
    path = file(chosen(("RELU",), last=True), tmp_path)
    found = next(one for one in advice(path, device) if "branch" in one.text)
    assert (found.kind, len(found.after.elsewhere)) == ("rewrite", 0)
    assert same_bits("litert", path, written(found, tmp_path, ".tflite"), seeds=1)


@pytest.mark.parametrize("device", BEFORE_NNAPI)
def test_where_data_decides_the_model_is_split(device: str, tmp_path: Path) -> None:
    found = advise(ModelFile(file(chosen(condition="computed"), tmp_path), PHONE), Target.of(device, fallback="app"))
    (branch,) = (one for one in found.unmoved if one.operator == "IF")
    assert "the model split at the operator" in branch.as_dict()["converter"]


def test_an_onnx_if_that_data_decides_is_split_too(tmp_path: Path) -> None:
    helper = pytest.importorskip("onnx.helper")
    value = helper.make_tensor_value_info
    sides = {
        f"{side}_branch": helper.make_graph([helper.make_node(name, ["x"], [side])], side, [], [value(side, 1, [2])])
        for side, name in (("then", "Relu"), ("else", "Abs"))
    }
    node = helper.make_node("If", ["c"], ["y"], **sides)
    graph = helper.make_graph([node], "graph", [value("x", 1, [2]), value("c", 9, [])], [value("y", 1, [2])])
    path = tmp_path / "if.onnx"
    path.write_bytes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9).SerializeToString())
    (branch,) = advise(ModelFile(path, PHONE), Target.of("aosp-float-fast")).unmoved
    assert "the model split at the node" in branch.as_dict()["converter"]
