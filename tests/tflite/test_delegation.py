"""One table, two front doors: an interpreter's graph gets the answers that the same file gets."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from nnbridge.converters import ConversionOptions
from nnbridge.converters.delegation import DelegateTarget, refusal_of
from nnbridge.errors import ConversionError
from nnbridge.file import ModelFile
from nnbridge_tflite.delegation import TfliteDelegation
from nnbridge_tflite.read.placed import placed_tensors
from tests.conftest import MODELS
from tests.tflite.cases import cases
from tests.tflite.files import TfliteBuilder

BEHIND = bytes(64)
"""What lies behind a file in memory."""


def in_memory(path: Path, level: int = 8) -> list[str]:
    """The outcomes of the main graph's operators, as an interpreter without resized inputs asks for them."""
    delegation = TfliteDelegation.of(memoryview(path.read_bytes() + BEHIND))
    dims = [tensor.shape for tensor in delegation.file.graph.main.tensors]
    return [str(outcome.mapping) for outcome in delegation.outcomes(0, dims, DelegateTarget(level))]


def in_file(path: Path, level: int = 8) -> list[str]:
    """The outcomes that ``nnbridge plan --mapping delegate`` has."""
    # An interpreter asks for graphs alone for which TFLite does not refuse the delegate.
    options = ConversionOptions(feature_level=level, mapping="delegate", allow_dynamic_dimensions=True)
    return [str(mapped.mapping) for mapped in ModelFile(path, options).mapped if mapped.subgraph == 0]


@pytest.mark.parametrize("level", [8, 2])
def test_single_operators_have_equal_outcomes(level: int, tmp_path: Path) -> None:
    compared = 0
    for case in cases():
        path = case.write(tmp_path, case.types[0])
        try:
            expected = in_file(path, level)
        except ConversionError:
            continue
        outcomes = in_memory(path, level)
        assert [o if o == "delegate" else "" for o in outcomes] == [o if o == "delegate" else "" for o in expected], case
        compared += 1
    assert compared > 100


def test_the_digits_have_equal_outcomes() -> None:
    for path in MODELS.glob("*.tflite"):
        assert in_memory(path) == in_file(path), path.name


def test_published_files_have_equal_outcomes(real_models: Path) -> None:
    for path in sorted(real_models.glob("*.tflite")):
        try:
            expected = in_file(path)
        except ConversionError:
            continue
        options = ConversionOptions(mapping="delegate", allow_dynamic_dimensions=True)
        if refusal_of(ModelFile(path, options).mapped) is None:
            assert in_memory(path) == expected, path.name
        else:
            assert "delegate" not in expected, path.name


def test_an_operator_that_the_file_importer_refuses_is_left_and_the_others_are_not(tmp_path: Path) -> None:
    builder = TfliteBuilder()
    x, y, z = (builder.tensor((2, 3), name=name) for name in "xyz")
    builder.operator("ADD", [x, x], [y], {"fused_activation_function": 4})
    builder.operator("ABS", [y], [z], {})
    path = builder.write(tmp_path / "m.tflite", [x], [z])
    with pytest.raises(ConversionError, match="expected a fused activation of"):
        in_file(path)
    assert in_memory(path) == ["host", "delegate"]


def test_a_part_has_the_interpreters_dimensions(tmp_path: Path) -> None:
    builder = TfliteBuilder()
    x, y, z = (builder.tensor((2, 3), name=name) for name in "xyz")
    builder.operator("ABS", [x], [y], {})
    builder.operator("NEG", [y], [z], {})
    path = builder.write(tmp_path / "m.tflite", [x], [z])
    part = TfliteDelegation.of(memoryview(path.read_bytes())).part(0, [1], [y], [z], [(5, 3)] * 3, DelegateTarget(8))
    main = part.model.main
    assert [main.operands[i].dims for i in (*main.inputs, *main.outputs)] == [(5, 3), (5, 3)]
    assert (part.inputs, part.outputs, part.variables) == ((y,), (z,), 0)


def test_names_and_constants_are_found_where_they_lie(tmp_path: Path) -> None:
    builder = TfliteBuilder()
    x, y, one = builder.tensor((2,), name="first"), builder.tensor((2,)), builder.constant([7.0, 8.0], "float32")
    builder.operator("ADD", [x, one], [y], {})
    data = memoryview(builder.write(tmp_path / "m.tflite", [x], [y]).read_bytes())
    places = placed_tensors(data)
    assert places is not None
    (name, nothing), _, (_, constant) = places[0]
    assert name is not None
    assert nothing is None
    assert constant is not None
    assert bytes(data[name.offset : name.offset + name.length]) == b"first"
    assert np.frombuffer(data, np.float32, 2, constant.offset).tolist() == [7, 8]
    assert placed_tensors(data[:40]) is None
