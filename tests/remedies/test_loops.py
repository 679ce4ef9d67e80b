"""Loops of known steps that are written out."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from nnbridge.advice import advise
from nnbridge.file import ModelFile
from nnbridge.target import Target
from nnbridge_tflite.read.reader import read
from tests.remedies.files import MASKS, PHONE, RELU, advice, npu, same_bits, written
from tests.tflite.files import TfliteBuilder


@dataclass
class Loop:
    """y = y / 2 + x[i] for some steps, as converters write recurrent layers: a WHILE of counter, state and sequence."""

    first: int = 0
    step: int = 1
    least: int = 5
    both: bool = False
    """The condition is a LOGICAL_AND of two."""
    computed: bool = False
    """The first counter is an input of the file."""

    def write(self, folder: Path, loops: int = 1) -> Path:
        file = TfliteBuilder()
        x, start = file.tensor((5, 1, 3), name="x"), file.tensor((), "int32", name="start")
        state = file.constant(np.zeros((1, 3), np.float32))
        counter = start if self.computed else file.constant(np.int32(self.first))
        for _ in range(loops):
            numbers = self._condition(file), self._body(file)
            outs = [file.tensor((), "int32"), file.tensor((1, 3)), file.tensor((5, 1, 3))]
            options = dict(zip(("cond_subgraph_index", "body_subgraph_index"), numbers, strict=True))
            file.operator("WHILE", [counter, state, x], outs, options)
            state = file.tensor((1, 3))
            file.operator("MUL", [outs[1], file.constant(np.float32(2))], [state], RELU)
        return file.write(folder / "loop.tflite", [x, *[start] * self.computed], [state, outs[1], outs[0]])

    def _condition(self, file: TfliteBuilder) -> int:
        test = file.beside()
        ends = [test.tensor((), "int32"), test.tensor((1, 3)), test.tensor((5, 1, 3))]
        less, out = test.tensor((), "bool"), test.tensor((), "bool")
        test.operator("LESS", [ends[0], test.constant(np.int32(self.least))], [less], {})
        if self.both:
            other = test.tensor((), "bool")
            test.operator("LESS", [ends[0], test.constant(np.int32(100))], [other], {})
            test.operator("LOGICAL_AND", [less, other], [out], {})
        return file.add(test, ends, [out if self.both else less])

    def _body(self, file: TfliteBuilder) -> int:
        body = file.beside()
        i, y, x = body.tensor((), "int32"), body.tensor((1, 3)), body.tensor((5, 1, 3))
        row, half, total, after = body.tensor((1, 3)), body.tensor((1, 3)), body.tensor((1, 3)), body.tensor((), "int32")
        body.operator("GATHER", [x, i], [row], {"axis": 0, "batch_dims": 0})
        body.operator("MUL", [y, body.constant(np.float32(0.5))], [half], RELU)
        body.operator("ADD", [half, row], [total], RELU)
        body.operator("ADD", [i, body.constant(np.int32(self.step))], [after], RELU)
        return file.add(body, [i, y, x], [after, total, x])


@pytest.mark.parametrize(
    ("loop", "steps"),
    [
        (Loop(), 5),
        (Loop(first=1, step=2), 2),
        (Loop(both=True), 5),
        (Loop(least=1), 1),
        (Loop(first=3, least=4, both=True), 1),
        (Loop(first=9), 0),
    ],
)
def test_a_loop_of_known_steps_is_written_out_with_the_same_bits(loop: Loop, steps: int, tmp_path: Path) -> None:
    pytest.importorskip("ai_edge_litert")
    path = loop.write(tmp_path)
    (edit,) = (one for one in ModelFile(path, PHONE).edits if one.text == "its body for each step")
    assert "unroll=True" in edit.converter
    after = tmp_path / "after.tflite"
    edit.content().write(after)
    made = read(after).graph
    assert len(made.subgraphs) == 1
    names = [operator.name for operator in made.main.operators]
    assert (names.count("GATHER"), names.count("WHILE")) == (steps, 0)
    assert same_bits("litert", path, after)


def test_two_loops_are_written_out_together(tmp_path: Path) -> None:
    pytest.importorskip("ai_edge_litert")
    path = Loop(least=2).write(tmp_path, loops=2)
    found = advice(path, npu(tmp_path, "MUL", "ADD", "GATHER", "RESHAPE"))[0]
    assert (found.text, found.kind) == ("2 WHILE: its body for each step", "round")
    assert len(found.after.elsewhere) < len(found.before.elsewhere)
    after = written(found, tmp_path, ".tflite")
    assert len(read(after).graph.subgraphs) == 1
    assert same_bits("litert", path, after)


@pytest.mark.parametrize("loop", [Loop(computed=True), Loop(step=0)])
def test_loops_of_unknown_or_endless_steps_stay(loop: Loop, tmp_path: Path) -> None:
    assert [
        one.text for one in ModelFile(loop.write(tmp_path), PHONE).edits if one.operator == "WHILE" and "body" in one.text
    ] == []


def test_the_last_step_of_a_sequence_is_counted_from_the_front(tmp_path: Path) -> None:
    """``x[:, -1]``, of which NNAPI's kernel finds no element from -1 to 0."""
    pytest.importorskip("ai_edge_litert")
    file = TfliteBuilder()
    x, m, y = file.tensor((1, 4, 3)), file.tensor((1, 4, 3)), file.tensor((1, 3))
    file.operator("MUL", [x, file.constant(np.float32(2))], [m], RELU)
    ranges = [file.constant(np.int32(v)) for v in ([0, -1, 0], [0, 0, 0], [1, 1, 1])]
    file.operator("STRIDED_SLICE", [m, *ranges], [y], {**MASKS, "begin_mask": 5, "end_mask": 5, "shrink_axis_mask": 2})
    path = file.write(tmp_path / "last.tflite", [x], [y])
    found = advice(path, npu(tmp_path, "MUL", "STRIDED_SLICE"))[0]
    assert (found.kind, len(found.before.elsewhere), len(found.after.elsewhere)) == ("rewrite", 1, 0)
    assert same_bits("litert", path, written(found, tmp_path, ".tflite"))


def test_an_operator_on_a_sequence_that_no_edit_moves_names_the_option_of_keras(tmp_path: Path) -> None:
    found = advise(ModelFile(Loop(computed=True).write(tmp_path), PHONE), Target.of(npu(tmp_path, "MUL"), fallback="app"))
    (loop,) = (one for one in found.unmoved if one.operator == "WHILE")
    assert "unroll=True" in loop.as_dict()["converter"]
