"""Several references side by side: who agrees with whom, who is absent and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest

from nnbridge.compare import Sample
from nnbridge.compare.references import reference
from nnbridge.compare.samples import named_inputs
from nnbridge.compare.several import SideBySide, present, side_by_side
from nnbridge.errors import InputError, Reason
from nnbridge.model import Array
from nnbridge.runtime.compilation import Compilation
from nnbridge.types import OperationCode
from tests.commands import call, data
from tests.conftest import MODELS
from tests.graphs import unary_chain

DIGITS = MODELS / "digits_float32.tflite"
VALUES = np.array([[1.0, -2.0]], np.float32)


class Fixed:
    """A reference with one output, or a process that ends."""

    def __init__(self, output: Sequence[float] | None) -> None:
        self.name, self._output = "fixed", output

    def reset(self) -> None:
        """There is nothing to reset."""

    def run(self, inputs: Mapping[str, Array]) -> list[Array]:
        if self._output is None:
            raise InputError(Reason("the engine ended with signal SIGSEGV"))
        return [np.array([self._output], np.float32)]


def beside(**references: Sequence[float] | None) -> SideBySide:
    """RELU of [1, -2], which is [1, 0], beside references by name."""
    compilation = Compilation.create(unary_chain(OperationCode.RELU, dims=(1, 2)), [])
    compilation.finish()
    runtimes = {name: Fixed(output) for name, output in references.items()}
    first = next(iter(runtimes.values())).run({})
    sample = Sample("one", dict.fromkeys(named_inputs(compilation.model), VALUES), first)
    return side_by_side(compilation, runtimes, [sample])


def test_sides_that_agree_are_a_group_and_the_other_one_is_named() -> None:
    found = beside(plain=[1, 0], gpu=[1, -2], micro=[1, 0])
    assert [len(group) for group in found.groups] == [3, 1]
    assert found.groups[1] == ["gpu"]
    assert found.failed
    assert found.sentence.endswith("gpu agrees with none")


def test_two_camps_are_two_groups() -> None:
    found = beside(a=[1, 0], b=[5, 5], c=[5, 5])
    assert [group[-1] for group in found.groups] == ["a", "c"]
    assert "b and c agree with each other only" in found.sentence


def test_everyone_agrees() -> None:
    found = beside(a=[1, 0], b=[1, 0])
    assert not found.failed
    assert len(found.pairs) == 3
    assert len(found.groups) == 1


def test_a_reference_that_ends_is_absent_with_its_reason() -> None:
    found = beside(a=[1, 0], b=None)
    assert found.absent == {"b": "the engine ended with signal SIGSEGV"}
    assert not found.failed


def test_other_shapes_do_not_agree() -> None:
    found = beside(a=[1, 0], b=[1, 0, 0])
    assert found.failed
    assert found.pairs[-1].worst.problem


def test_a_reference_that_is_not_installed_is_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ai_edge_litert")
    absent: dict[str, str] = {}
    known = present({"litert": reference("litert", DIGITS, wait=False)}, absent)
    assert list(known) == ["litert"]
    assert absent == {}


def test_the_command_prints_a_table_and_json() -> None:
    pytest.importorskip("ai_edge_litert")
    asked = ("compare", DIGITS, "--reference", "litert,litert-plain", "--seeds", "0")
    found = data(*asked)
    assert found["pass"]
    assert found["groups"] == [["nnapi-reference", "litert", "litert-plain"]]
    assert "agree" in call(*asked).stdout


def test_the_command_refuses_layers_of_several() -> None:
    result = call("compare", DIGITS, "--reference", "litert,xnnpack", "--layers")
    assert result.exit_code == 2
    assert "--layers" in result.output


def test_kernels_by_name_are_not_replaced_by_others(tmp_path: Path) -> None:
    pytest.importorskip("ai_edge_litert")
    from tests.tflite.files import TfliteBuilder

    file = TfliteBuilder()
    value, out = file.tensor((2,)), file.tensor((2,))
    file.operator("CEIL", [value], [out], {})  # which has no reference kernel of its own
    path = file.write(tmp_path / "m.tflite", [value], [out])
    assert reference("litert", path).run({"x": np.ones(2, np.float32)})
    with pytest.raises(InputError, match="reference kernels run"):
        reference("litert-reference", path)
