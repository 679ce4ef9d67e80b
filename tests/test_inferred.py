"""Shape inference of a conversion is not repeated for its model, and holds for that very model only."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from nnbridge.cpu import executor
from nnbridge.cpu.executor import Executor
from nnbridge.model import INFERRED, Model
from nnbridge.operations.call import Call
from nnbridge.operations.validation import verdicts_of
from nnbridge.runtime.partitioner import extract
from nnbridge.types import Lifetime, OperationCode
from tests.graphs import unary_chain
from tests.tflite.agreement import converted
from tests.tflite.files import TfliteBuilder


def _sum_and_floor(folder: Path) -> Model:
    """FLOOR(x + y) of [2, 3]."""
    builder = TfliteBuilder()
    x, y, total, out = (builder.tensor((2, 3), name=name) for name in ("x", "y", "sum", "floor"))
    builder.operator("ADD", [x, y], [total], {})
    builder.operator("FLOOR", [total], [out], {})
    return converted(builder.write(folder / "m.tflite", [x, y], [out]))[0]


def _resolved(monkeypatch: pytest.MonkeyPatch, model: Model) -> list[str]:
    """The operations that the executor infers shapes of while it prepares a model."""
    seen, resolve = [], executor.resolve

    def spy(call: Call) -> object:
        seen.append(call.definition.name)
        return resolve(call)

    monkeypatch.setattr(executor, "resolve", spy)
    Executor(model)
    return seen


def test_converted_operations_are_inferred_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = _sum_and_floor(tmp_path)
    assert model.main.known[INFERRED] == {0, 1}
    assert _resolved(monkeypatch, model) == []


def test_a_changed_copy_is_inferred_until_it_contradicts_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = _sum_and_floor(tmp_path)
    wrong = replace(model.main.operands[model.main.operations[0].outputs[0]], dims=(3, 2))
    changed = tuple(wrong if o.lifetime is Lifetime.TEMPORARY_VARIABLE else o for o in model.main.operands)
    assert _resolved(monkeypatch, replace(model, main=replace(model.main, operands=changed))) == ["ADD"]


def test_other_input_shapes_are_inferred(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    executor = Executor(_sum_and_floor(tmp_path))
    one = np.float32([[1.5, 2, 3]])
    assert executor.run([np.ones((2, 3), np.float32), one])[0].dims == (2, 3)


def test_models_of_a_builder_are_inferred_when_they_are_prepared(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _resolved(monkeypatch, unary_chain(OperationCode.FLOOR)) == ["FLOOR"]


def test_a_part_of_a_model_knows_what_the_model_does(tmp_path: Path) -> None:
    model = _sum_and_floor(tmp_path)
    floor = model.main.operations[1]
    part = extract(model, [1], floor.inputs, floor.outputs)
    assert part.main.known[INFERRED] == {0}


def test_verdicts_are_computed_once_for_a_subgraph(tmp_path: Path) -> None:
    main = _sum_and_floor(tmp_path).main
    assert verdicts_of(main) is verdicts_of(main)
    assert [verdict.valid for verdict in verdicts_of(main)] == [True, True]
