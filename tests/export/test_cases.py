"""Models as conformance cases and as specs of Android's test generator."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nnbridge import export
from nnbridge.conformance.cases import Case, build, check_outputs, inputs_of, read_cases
from nnbridge.errors import InputError
from nnbridge.export.cases import ComputedCase, case_data, example
from nnbridge.export.spec import _lines
from nnbridge.extensions import TYPES
from nnbridge.model import Location, Model
from nnbridge.types import OperationCode
from tests.commands import call
from tests.export.test_c_source import if_model
from tests.graphs import add_then, constant_add
from tests.runtime.test_partition_random import COUNT, X, models

MODELS: dict[str, Callable[[], Model]] = {
    "small": lambda: add_then(OperationCode.EXP),
    "large": lambda: constant_add(np.linspace(-1, 1, 100, dtype=np.float32)),
    "if": if_model,
}


@pytest.mark.parametrize("name", MODELS)
def test_a_written_case_passes_on_the_cpu(name: str, tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    export.write(MODELS[name](), folder / f"{name}.json.gz", name)
    result = call("vts", tmp_path, "--json")
    assert (result.exit_code, json.loads(result.output)["suites"]["mine"]["passed"]) == (0, 1)


def test_a_case_that_is_read_again_is_the_same_case(cases: Path) -> None:
    for spec in ("V1_3/depthwise_conv2d_quant8_signed", "V1_3/while_fib", "V1_2/split_float_1"):
        for case in read_cases(cases / f"{spec}.json.gz"):
            if case.expects_failure:
                continue
            model = build(case)
            inputs = inputs_of(case)
            written = case_data(ComputedCase(model, inputs, [np.zeros(1)] * len(model.main.outputs)), case.name)
            assert_same(build(type(case)(case.suite, case.spec, written)), model)


def assert_same(found: Model, model: Model) -> None:
    """Assert that two models have the same operands and operations, wherever their constants are."""
    for here, there in zip(found.subgraphs(), model.subgraphs(), strict=True):
        assert [replace(o, location=Location(), name="") for o in here.operands] == [
            replace(o, location=Location(), name="") for o in there.operands
        ]
        assert sorted((o.type, o.inputs, o.outputs) for o in here.operations) == sorted(
            (o.type, o.inputs, o.outputs) for o in there.operations
        )


def drawn_inputs(flag: bool) -> list[np.ndarray]:
    """Inputs of a random model."""
    return [COUNT, np.array([flag]), X, X[::-1] / 3]


@settings(max_examples=20, deadline=None)
@given(models(dead=False), st.booleans())
def test_a_random_model_comes_back_from_its_case_with_its_answers(model: Model, flag: bool) -> None:
    text = json.dumps(case_data(example(model, drawn_inputs(flag)), "random"), allow_nan=False)
    case = Case("mine", "random", json.loads(text))
    assert_same(build(case), model)
    assert check_outputs(case, example(build(case), inputs_of(case)).outputs) is None
    again = case_data(example(build(case), inputs_of(case)), "random")
    assert again["outputs"] == case.data["outputs"]


@settings(max_examples=20, deadline=None)
@given(models(dead=False), st.booleans())
def test_a_random_model_comes_back_from_its_spec_with_its_answers(model: Model, flag: bool) -> None:
    found = example(model, drawn_inputs(flag))
    built, values = spec_data("\n".join(_lines(found, "random")))
    case = Case("mine", "random", {"name": "", "model": built, "relaxed": False, "inputs": values[: len(model.main.inputs)]})
    assert sum(len(g.operations) for g in build(case).subgraphs()) == sum(len(g.operations) for g in model.subgraphs())
    again = example(build(case), inputs_of(case)).outputs
    assert [a.tobytes() for a in again] == [b.tobytes() for b in found.outputs]


def test_numbers_that_json_lacks_are_written_as_text(tmp_path: Path) -> None:
    model = add_then()
    values = np.array([[np.nan, np.inf, -np.inf, 1]], np.float32)
    export_case = case_data(example(model, [values]), "special")
    assert export_case["inputs"] == [["NaN", "Infinity", "-Infinity", 1.0]]
    json.loads(json.dumps(export_case, allow_nan=False))


def test_a_vendors_operation_has_no_case(tmp_path: Path) -> None:
    model = add_then(OperationCode.ABS)
    code = TYPES.code("com.example.case", 1)
    operations = tuple(replace(o, type=code) if o.type == OperationCode.ABS else o for o in model.main.operations)
    model = replace(
        model, main=replace(model.main, operations=operations), extensions={"com.example.case": TYPES.prefix("com.example.case")}
    )
    with pytest.raises(InputError, match=r"expected operations of NNAPI's own, found 1 others: com.example.case#1"):
        export.write(model, tmp_path / "x.json.gz", "x")
    assert not list(tmp_path.iterdir())


class Recorded:
    """The content of a spec, in place of Android's test generator."""

    kind = ""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        self.arguments, self.named, self.calls = arguments, named, []

    def __getattr__(self, call: str) -> Callable[..., Recorded]:
        def record(*arguments: Any) -> Recorded:
            self.calls.append((call, arguments))
            return self

        return record


def executed(text: str) -> tuple[dict[str, Any], dict[Any, Any], Recorded]:
    """The names that a spec defines, its example's values and the example's model."""
    kinds = ("Input", "Output", "Internal", "Parameter", "Model", "SymmPerChannelQuantParams")
    spec: dict[str, Any] = {kind: type(kind, (Recorded,), {"kind": kind}) for kind in kinds}
    examples: list[tuple[dict[Any, Any], Recorded]] = []
    spec["Example"] = lambda values, model: examples.append((values, model))
    exec(text, spec)  # what was just written
    ((values, built),) = examples
    return spec, values, built


def spec_data(text: str) -> tuple[dict[str, Any], list[list[Any]]]:
    """A spec's model in the form of the conformance data, with the values of inputs and outputs."""
    _, values, main = executed(text)
    bodies: list[dict[str, Any]] = []

    def graph(built: Recorded) -> dict[str, Any]:
        roles = {"Input": "SUBGRAPH_INPUT", "Output": "SUBGRAPH_OUTPUT", "Internal": "TEMPORARY_VARIABLE"}
        operands: list[dict[str, Any]] = []
        places: dict[Recorded, int] = {}

        def place(operand: Recorded) -> int:
            if operand not in places:
                places[operand] = len(operands)
                operands.append({})
                operands[places[operand]] |= declared(operand)
            return places[operand]

        def declared(operand: Recorded) -> dict[str, Any]:
            if operand.kind == "Model":
                bodies.append(content := graph(operand))
                return {"type": "SUBGRAPH", "dims": [], "lifetime": "SUBGRAPH", "value": [bodies.index(content)]}
            code, dims, scale, point = operand.arguments[1]
            found = {"type": code, "dims": dims, "scale": scale, "zero_point": point}
            if operand.kind == "Parameter":
                return found | {"lifetime": "CONSTANT_COPY", "value": operand.arguments[2]}
            return found | {"lifetime": roles[operand.kind]}

        calls = built.calls
        inputs, outputs = ([place(o) for o in arguments] for _, arguments in calls[:2])
        pairs = zip(calls[2::2], calls[3::2], strict=True)
        operations = [
            {"type": one[0], "inputs": [place(o) for o in one[1:]], "outputs": [place(o) for o in results]}
            for (_, one), (_, (results,)) in pairs
        ]
        return {"operands": operands, "operations": operations, "inputs": inputs, "outputs": outputs}

    content = graph(main)
    return content | ({"referenced": bodies} if bodies else {}), list(values.values())


@pytest.mark.parametrize("name", MODELS)
def test_a_spec_declares_every_operand_and_operation(name: str, tmp_path: Path) -> None:
    model = MODELS[name]()
    path = tmp_path / f"{name}.mod.py"
    export.write(model, path, f"{name}\nimport os")
    spec, values, built = executed(path.read_text())
    operations = [arguments for call, arguments in built.calls if call == "Operation"]
    assert [arguments[0] for arguments in operations] == [OperationCode(o.type).name for o in model.main.operations]
    x = spec[f"op{model.main.inputs[-1]}"]
    assert x.arguments[1] == ("TENSOR_FLOAT32", [*model.main.operands[model.main.inputs[-1]].dims], 0.0, 0)
    assert len(values[x]) == np.prod(x.arguments[1][1])


def test_a_spec_file_is_written_compressed_and_reproducibly(tmp_path: Path) -> None:
    path = tmp_path / "a.json.gz"
    export.write(add_then(), path, "a")
    first = path.read_bytes()
    export.write(add_then(), path, "a")
    assert path.read_bytes() == first
    assert json.loads(gzip.decompress(first))["spec"] == "a"
