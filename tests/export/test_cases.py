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
from click.testing import CliRunner

from nnbridge import export
from nnbridge.cli.commands import cli
from nnbridge.conformance.cases import build, inputs_of, read_cases
from nnbridge.errors import InputError
from nnbridge.export.cases import Example, case_data, example
from nnbridge.extensions import TYPES
from nnbridge.model import Location, Model
from nnbridge.types import OperationCode
from tests.export.test_c_source import if_model
from tests.graphs import add_then, constant_add

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
    result = CliRunner().invoke(cli, ["vts", str(tmp_path), "--json"])
    assert (result.exit_code, json.loads(result.output)["suites"]["mine"]["passed"]) == (0, 1)


def test_a_case_that_is_read_again_is_the_same_case(cases: Path) -> None:
    for spec in ("V1_3/depthwise_conv2d_quant8_signed", "V1_3/while_fib", "V1_2/split_float_1"):
        for case in read_cases(cases / f"{spec}.json.gz"):
            if case.expects_failure:
                continue
            model = build(case)
            inputs = inputs_of(case)
            written = case_data(Example(model, inputs, [np.zeros(1)] * len(model.main.outputs)), case.name)
            again = build(type(case)(case.suite, case.spec, written))
            for found, graph in zip(again.subgraphs(), model.subgraphs(), strict=True):
                assert [replace(o, location=Location()) for o in found.operands] == [
                    replace(o, location=Location()) for o in graph.operands
                ]
                assert sorted(map(str, found.operations)) == sorted(map(str, graph.operations))


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
    """What a spec says, in place of Android's test generator."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        self.arguments, self.named, self.calls = arguments, named, []

    def __getattr__(self, call: str) -> Callable[..., Recorded]:
        def record(*arguments: Any) -> Recorded:
            self.calls.append((call, arguments))
            return self

        return record


@pytest.mark.parametrize("name", MODELS)
def test_a_spec_declares_every_operand_and_operation(name: str, tmp_path: Path) -> None:
    model = MODELS[name]()
    path = tmp_path / f"{name}.mod.py"
    export.write(model, path, f"{name}\nimport os")
    kinds = ("Input", "Output", "Internal", "Parameter", "Model", "SymmPerChannelQuantParams")
    spec: dict[str, Any] = {kind: type(kind, (Recorded,), {}) for kind in kinds}
    examples: list[tuple[dict[Any, Any], Any]] = []
    spec["Example"] = lambda values, model: examples.append((values, model))
    exec(path.read_text(), spec)  # what was written one line above
    ((values, built),) = examples
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
