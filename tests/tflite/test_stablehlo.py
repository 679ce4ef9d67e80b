"""StableHLO operators that apply a subgraph, against LiteRT."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from flatbuffers import flexbuffers

from nnbridge.errors import NnapiError
from tests.tflite.agreement import converted, differences, run
from tests.tflite.files import TfliteBuilder

BODIES = ["STABLEHLO_ADD", "STABLEHLO_MULTIPLY", "STABLEHLO_MAXIMUM", "STABLEHLO_MINIMUM"]


def _body(main: TfliteBuilder, *names: str) -> int:
    """A subgraph over two scalars, of these operators in a row."""
    body = main.beside()
    a, b = body.tensor(()), body.tensor(())
    made = a
    for name in names:
        given, made = made, body.tensor(())
        body.operator(name, [given, b], [made], {})
    return main.add(body, [a, b], [made])


def _scatter(folder: Path, *body: str) -> Path:
    main = TfliteBuilder()
    data, updates, out = main.tensor((3, 4, 2), name="x"), main.tensor((2, 3, 2, 2), name="u"), main.tensor((3, 4, 2), name="y")
    starts = main.constant([[[0, 2], [1, 0], [2, 1]], [[0, 1], [1, 0], [0, 9]]], "int64")
    options = {
        "update_window_dims": [2, 3],
        "inserted_window_dims": [0],
        "scatter_dims_to_operand_dims": [1, 0],
        "index_vector_dim": 2,
        "update_computation_subgraph_index": _body(main, *body),
    }
    main.operator("STABLEHLO_SCATTER", [data, starts, updates], [out], options)
    return main.write(folder / "m.tflite", [data, updates], [out])


@pytest.mark.parametrize("body", BODIES)
def test_scatter_agrees(body: str, tmp_path: Path) -> None:
    found, placements = differences(_scatter(tmp_path, body))
    assert [p.mapping for p in placements] == ["host"]
    assert max(found) < 1e-6


@pytest.mark.parametrize("body", BODIES)
def test_reduce_window_agrees(body: str, tmp_path: Path) -> None:
    main = TfliteBuilder()
    data, out = main.tensor((4, 5), name="x"), main.tensor((3, 4), name="y")
    options = {
        "window_dimensions": [2, 3],
        "window_strides": [2, 1],
        "base_dilations": [2, 1],
        "window_dilations": [1, 2],
        "padding": [0, 0, 1, 2],
        "body_subgraph_index": _body(main, body),
    }
    main.operator("STABLEHLO_REDUCE_WINDOW", [data, main.constant(0.5, "float32")], [out], options)
    found, _ = differences(main.write(tmp_path / "m.tflite", [data], [out]))
    assert max(found) < 1e-6


def test_a_body_of_several_operators_is_refused_when_it_runs(tmp_path: Path) -> None:
    model, _ = converted(_scatter(tmp_path, "STABLEHLO_ADD", "STABLEHLO_MULTIPLY"))
    with pytest.raises(NnapiError, match="a body of one operator"):
        run(model, {"x": np.zeros((3, 4, 2), np.float32), "u": np.zeros((2, 3, 2, 2), np.float32)})


def test_a_composite_is_its_decomposition(tmp_path: Path) -> None:
    main = TfliteBuilder()
    inner = main.beside()
    a, b = inner.tensor((2, 3)), inner.tensor((2, 3))
    inner.operator("NEG", [a], [b], {})
    x, y = main.tensor((2, 3), name="x"), main.tensor((2, 3), name="y")
    attributes = np.frombuffer(bytes(flexbuffers.Dumps({})), np.uint8)
    number = main.add(inner, [a], [b])
    options = {"name": "my.negate", "decomposition_subgraph_index": number, "composite_attributes": attributes, "version": 1}
    main.operator("STABLEHLO_COMPOSITE", [x], [y], options)
    found, placements = differences(main.write(tmp_path / "m.tflite", [x], [y]))
    assert [p.mapping for p in placements] == ["inlined"]
    assert found == [0]


def test_a_stablehlo_operator_that_litert_has_no_kernel_for_is_refused_when_it_runs(tmp_path: Path) -> None:
    main = TfliteBuilder()
    x, y = main.tensor((2, 3), name="x"), main.tensor((2, 3), name="y")
    main.operator("STABLEHLO_CBRT", [x], [y])
    model, _ = converted(main.write(tmp_path / "m.tflite", [x], [y]))
    with pytest.raises(NnapiError, match=r"STABLEHLO_CBRT.*LiteRT has a kernel for"):
        run(model, {"x": np.zeros((2, 3), np.float32)})
