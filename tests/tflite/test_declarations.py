"""An operator is declared once: every declaration is complete, and one module is enough to add an operator."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from nnbridge.errors import ConversionError
from nnbridge_tflite import operators
from nnbridge_tflite.declaration import NO_KERNEL, REGISTRY, TfliteOperator
from nnbridge_tflite.read.schema import builtin_names, fields, options_table
from nnbridge_tflite.rules import DelegateRule
from tests.tflite.agreement import converted, run
from tests.tflite.files import TfliteBuilder

DECLARED = [pytest.param(declared, id=declared.name) for declared in REGISTRY]


@pytest.mark.parametrize("declared", DECLARED)
def test_a_declaration_is_complete(declared: TfliteOperator) -> None:
    assert declared.summary
    names = [one.name for one in declared.inputs]
    assert all(names)
    assert len(set(names)) == len(names)
    assert all(one.name for one in declared.outputs)
    assert all(option.meaning for option in declared.options)
    computed = declared.lowerings or declared.kernel or declared.sixteen_bits or declared.handler
    assert computed or declared.refusal != NO_KERNEL
    assert isinstance(declared.delegate, DelegateRule) or declared.delegate
    assert not [one.name for one in declared.inputs[:-1] if one.repeat], "inputs behind any number of inputs"


@pytest.mark.parametrize("declared", [p for p in DECLARED if p.id in builtin_names().values() and p.id != "CUSTOM"])
def test_options_are_those_of_the_schema(declared: TfliteOperator) -> None:
    table = options_table(declared.name)
    expected = [field.name for field in fields(table)] if table else []
    assert sorted(option.name for option in declared.options) == sorted(expected)


def test_builtins_have_the_schemas_names() -> None:
    assert {declared.name for declared in REGISTRY if not declared.custom} <= set(builtin_names().values())


TOY = """
from nnbridge.types import OperationCode
from nnbridge_tflite.declaration import TfliteOperator, inputs
from nnbridge_tflite.host.numbers import data_of

TOY = TfliteOperator("Toy", "|a + b|", inputs("a", "b"), custom=True)


@TOY.lowering(wide=True)
def toy(to):
    to.finish(OperationCode.ABS, to.emit(OperationCode.ADD, *to.inputs()))


@TOY.host_kernel
def host_toy(inputs, outputs, options):
    return [abs(data_of(inputs[0]) + data_of(inputs[1]))]
"""


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file of one custom operator that a module of its own declares."""
    folder = tmp_path / "more"
    folder.mkdir()
    (folder / "toy_operator_of_a_test.py").write_text(TOY)
    monkeypatch.setattr(operators, "__path__", [*operators.__path__, str(folder)])
    monkeypatch.setattr(REGISTRY, "_definitions", dict(REGISTRY._definitions))
    monkeypatch.setattr(REGISTRY, "_loaded", False)
    monkeypatch.delitem(sys.modules, "nnbridge_tflite.operators.toy_operator_of_a_test", raising=False)
    builder = TfliteBuilder()
    a, b, out = builder.tensor((2,)), builder.tensor((2,)), builder.tensor((2,))
    builder.operator("Toy", [a, b], [out], custom=b"")
    return builder.write(tmp_path / "toy.tflite", [a, b], [out])


@pytest.mark.parametrize(("mapping", "outcome"), [("wide", "wide"), ("delegate", "host")])
def test_one_module_adds_an_operator(mapping: str, outcome: str, toy: Path) -> None:
    model, placements = converted(toy, mapping=mapping)
    assert [placed.mapping for placed in placements] == [outcome]
    values = {"t0": np.array([1, -5], np.float32), "t1": np.array([2, 3], np.float32)}
    assert run(model, values)[0].tolist() == [3.0, 2.0]


def test_its_arity_is_the_declared_one(toy: Path, tmp_path: Path) -> None:
    builder = TfliteBuilder()
    a, out = builder.tensor((2,)), builder.tensor((2,))
    builder.operator("Toy", [a], [out], custom=b"")
    with pytest.raises(ConversionError, match="Toy: expected 2 inputs, found 1"):
        converted(builder.write(tmp_path / "m.tflite", [a], [out]))
