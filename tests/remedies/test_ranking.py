"""Ranking of remedies: a change that gives the program an interpreter or a session is first."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nnbridge.advice import Advice, Alone, Editing, Outcome, Planner, advise, found_by
from nnbridge.converters.edits import WHOLE, Answers, Content, Edit
from nnbridge.file import ModelFile
from nnbridge.target import Target
from nnbridge_onnx import edits as onnx_edits
from nnbridge_tflite import edits as tflite_edits
from nnbridge_tflite.retyping import RETYPINGS
from tests.remedies.files import PHONE, advice, npu, same_bits, splits, written
from tests.tflite.files import TfliteBuilder


def outcome(elsewhere: int, standing: int = 0) -> Outcome:
    return Outcome(frozenset((0, k) for k in range(elsewhere)), 0, 1, 1, 0, {}, "refused" * bool(standing), standing)


@pytest.mark.parametrize(
    ("one", "other", "better"),
    [
        (outcome(3), outcome(3, 1), True),
        # An interpreter that leaves everything to TFLite's CPU is better than none.
        (outcome(9), outcome(3, 1), True),
        (outcome(3, 1), outcome(9), False),
        # A delegate that TFLite refuses is better than a file that it does not load.
        (outcome(3, 1), outcome(3, 2), True),
        (outcome(2, 1), outcome(3, 1), True),
        (outcome(3, 1), outcome(3, 1), False),
        (outcome(2), outcome(3), True),
    ],
)
def test_an_outcome_with_an_interpreter_is_better_than_one_without(one: Outcome, other: Outcome, better: bool) -> None:
    assert one.better_than(other) is better


def test_what_creates_the_interpreter_ranks_first(tmp_path: Path) -> None:
    path = tmp_path / "model"
    outcomes = {"model": outcome(5, 1), "fewer": outcome(1, 1), "created": outcome(4)}

    def measure(path: Path, changed: Mapping[str, Any], prepare: bool) -> Outcome:
        return outcomes[path.read_text() if path.exists() else "model"]

    edits = [Edit(0, WHOLE, "", text, lambda text=text: Content.of(text.encode())) for text in ("fewer", "created")]
    editing = Editing(path, lambda path: edits, lambda path, subgraph, index: None)
    found = found_by(editing, Planner(measure, lambda path: Alone(False, False, frozenset())), 8).advice
    assert [one.text for one in found] == ["whole file: created", "whole file: fewer"]


def tile(folder: Path) -> Path:
    """MUL, then a TILE of computed multiples: TFLite refuses the delegate."""
    file = TfliteBuilder()
    x, m, times, y = file.tensor((1, 8)), file.tensor((1, 8)), file.tensor((2,), "int32"), file.tensor((1, 8))
    file.operator("MUL", [x, file.constant(np.float32(2))], [m], {"fused_activation_function": 0})
    file.operator("TILE", [m, times], [y], {})
    return file.write(folder / "tile.tflite", [x, times], [y])


def test_a_refused_graph_is_advised_the_delegates_option(tmp_path: Path) -> None:
    found = advice(tile(tmp_path), npu(tmp_path, "MUL"))
    (allowed,) = (one for one in found if one.options == {"allow_dynamic_dimensions": True})
    assert (allowed.before.standing, allowed.after.standing) == (1, 0)
    assert allowed.as_dict()["before"]["refusal"].startswith("TFLite refuses the delegate: operator 1 TILE")
    assert allowed.as_dict()["after"]["refusal"] == ""


def test_of_a_refused_graph_only_the_operator_that_is_why_is_searched(tmp_path: Path) -> None:
    advised = advise(ModelFile(tile(tmp_path), PHONE), Target.of(npu(tmp_path, "ADD"), fallback="app"))
    assert [one.operator for one in advised.unmoved] == ["TILE"]


def test_operators_that_are_refused_alike_have_one_advice(tmp_path: Path) -> None:
    pytest.importorskip("ai_edge_litert")
    path = splits(tmp_path)
    (found,) = (one for one in advice(path, npu(tmp_path, "ADD", "STRIDED_SLICE")) if one.kind == "rewrite")
    assert (found.text, len(found.after.elsewhere)) == ("2 SPLIT: a STRIDED_SLICE for each part", 0)
    assert same_bits("litert", path, written(found, tmp_path, ".tflite"))


def test_nodes_that_are_refused_alike_have_one_advice(tmp_path: Path) -> None:
    onnx, _ = pytest.importorskip("onnx"), pytest.importorskip("onnxruntime")
    path = tmp_path / "clips.onnx"
    x, y = (onnx.helper.make_tensor_value_info(name, 1, [2, 3]) for name in "xy")
    bounds = [onnx.numpy_helper.from_array(np.float32(v), name) for name, v in (("low", -0.5), ("high", 0.25))]
    nodes = [("Clip", ["x", "low", "high"], ["a"]), ("Neg", ["a"], ["b"]), ("Clip", ["b", "low", "high"], ["y"])]
    graph = onnx.helper.make_graph([onnx.helper.make_node(*one) for one in nodes], "g", [x], [y], bounds)
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 13)], ir_version=8), str(path))
    clips = [edit for edit in ModelFile(path).edits if edit.text == "Max, then Min"]
    assert [edit.index for edit in clips] == [0, 2]
    assert clips[0].several is not None
    after = tmp_path / "after.onnx"
    clips[0].several([(0, 0), (0, 2)]).write(after)
    assert [node.op_type for node in onnx.load(str(after)).graph.node] == ["Max", "Min", "Neg", "Max", "Min"]
    assert same_bits("onnxruntime", path, after)


def test_every_edit_of_a_file_says_what_does_the_same_at_the_source() -> None:
    rows = (*tflite_edits.REWRITES, *RETYPINGS, *onnx_edits.REWRITES, *onnx_edits.WHOLE_FILE)
    assert [row.text for row in rows if not row.converter] == []


def test_advice_as_data_has_the_sentence() -> None:
    edit = Edit(0, WHOLE, "", "text", lambda: Content.of(b""), Answers.SAME, converter="there")
    assert Advice("text", outcome(1), outcome(0), edit=edit).as_dict()["converter"] == "there"
