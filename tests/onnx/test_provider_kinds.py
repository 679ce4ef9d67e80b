"""Every rule of ONNX Runtime's provider names the part of a phone that has it."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

from nnbridge.converters import ConversionOptions
from nnbridge.errors import NnbridgeError, Reason, Stage

onnx = pytest.importorskip("onnx")

from onnx.backend.test import loader  # noqa: E402

from nnbridge_onnx.builder_files import BUILDER_FILES  # noqa: E402
from nnbridge_onnx.declaration import REGISTRY, OnnxOperator  # noqa: E402
from nnbridge_onnx.passes.conversion import convert_proto  # noqa: E402
from nnbridge_onnx.rules import Provider  # noqa: E402

MAPPED = [definition for definition in REGISTRY if isinstance(definition.provider, Provider)]


def test_the_operators_with_a_rule_are_those_that_the_provider_has_a_builder_for() -> None:
    assert {definition.type for definition in MAPPED} == BUILDER_FILES.keys()


@pytest.mark.parametrize("definition", MAPPED, ids=lambda definition: definition.name)
def test_conditions_are_of_the_check_or_of_what_follows(definition: OnnxOperator) -> None:
    rule = definition.provider
    assert isinstance(rule, Provider)
    assert {condition.stage for condition in rule.every} <= {None, Stage.PROVIDER}
    assert {condition.stage for condition in rule.builds} <= {None, Stage.BUILDER, Stage.BUILDING, Stage.RUNNING}
    assert all(condition.rule for condition in (*rule.every, *rule.builds, *definition.loads))


def reasons(model: Any) -> list[Reason]:
    """The first reason of each node that stays with ONNX Runtime."""
    try:
        _, _, mapped = convert_proto(model, ConversionOptions(mapping="provider"))
    except NnbridgeError:
        return []
    return [one.reasons[0] for one in mapped if one.mapping == "host"]


def form(model: Any) -> tuple[Any, ...]:
    """The operator of a model, and the ranks of its inputs: two files of a form seldom differ in what refuses them."""
    return model.graph.node[0].op_type, *(len(one.type.tensor_type.shape.dim) for one in model.graph.input)


def test_no_refusal_of_onnxs_own_tests_lacks_its_kind() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        models = [case.model for case in loader.load_model_tests(kind="node") if case.model is not None]
    of_each_form = {form(model): model for model in models if len(model.graph.node) == 1}  # Others are functions written out.
    found = [reason for model in of_each_form.values() for reason in reasons(model)]
    assert len(found) > 200
    assert not [str(reason) for reason in found if reason.stage is None]
