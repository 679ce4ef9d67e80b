"""Graphs for which TFLite refuses the delegate: each file's verdict is worked out from LiteRT's kernels, and LiteRT is asked."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nnbridge.converters import ConversionOptions
from nnbridge.errors import Why
from nnbridge.file import ModelFile
from tests.differential import Fork
from tests.tflite.files import TfliteBuilder
from tests.tflite.verdicts import CREATED, REFUSED, asked

NO_ACTIVATION = {"fused_activation_function": 0}
MASKS = dict.fromkeys(("begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask", "shrink_axis_mask"), 0)
Make = Callable[[TfliteBuilder], tuple[list[int], list[int]]]


def behind_a_product(name: str, out: tuple[int, ...], *more: Any, type: str = "float32", **options: Any) -> Make:
    """MUL, then an operator: arrays are constants, tuples the shapes of computed int32 tensors."""

    def make(b: TfliteBuilder) -> tuple[list[int], list[int]]:
        x, m = b.tensor((1, 8)), b.tensor((1, 8))
        b.operator("MUL", [x, b.constant(np.float32(2))], [m], NO_ACTIVATION)
        made = [b.tensor(one, "int32") if isinstance(one, tuple) else b.constant(one) for one in more]
        y = b.tensor(out, type, **({"shape_signature": [-1] * len(out)} if name == "SLICE" else {}))
        b.operator(name, [m, *made], [y], options)
        return [x, *[i for i, one in zip(made, more, strict=True) if isinstance(one, tuple)]], [y]

    return make


def of_its_shape(through: str) -> Make:
    """RESHAPE to dimensions that are computed from SHAPE: by a slice and a list that TFLite folds, or by one that it does not."""

    def make(b: TfliteBuilder) -> tuple[list[int], list[int]]:
        x, y = b.tensor((2, 4), shape_signature=[-1, 4]), b.tensor((2, 4), shape_signature=[-1, 4])
        packed = through == "PACK"
        shape, first, both = b.tensor((2,), "int32"), b.tensor(() if packed else (1,), "int32"), b.tensor((2,), "int32")
        b.operator("SHAPE", [x], [shape], {"out_type": 2})
        ranges = [b.constant(np.int32([number])) for number in (0, 1, 1)]
        b.operator("STRIDED_SLICE", [shape, *ranges], [first], {**MASKS, "shrink_axis_mask": int(packed)})
        if packed:
            b.operator("PACK", [first, b.constant(np.int32(4))], [both], {"values_count": 2, "axis": 0})
        else:
            b.operator("CONCATENATION", [first, b.constant(np.int32([4]))], [both], {"axis": 0, **NO_ACTIVATION})
        b.operator("RESHAPE", [x, both], [y], {})
        return [x], [y]

    return make


def scalar(stored: bool) -> Make:
    """RESHAPE of one element to a scalar: a shape without elements is a constant to TFLite if its buffer has a list."""

    def make(b: TfliteBuilder) -> tuple[list[int], list[int]]:
        x, y = b.tensor((1, 1)), b.tensor(())
        shape = b.constant(np.zeros(0, np.int32)) if stored else b.tensor((0,), "int32")
        b.operator("RESHAPE", [x, shape], [y], {})
        return [x], [y]

    return make


def topk(signature: list[int]) -> Make:
    """TOPK_V2 of a constant k, of dimensions that the file states or leaves open."""

    def make(b: TfliteBuilder) -> tuple[list[int], list[int]]:
        x, values, indices = b.tensor((1, 8), shape_signature=signature), b.tensor((1, 2)), b.tensor((1, 2), "int32")
        b.operator("TOPK_V2", [x, b.constant(np.int32(2))], [values, indices], {})
        return [x], [values, indices]

    return make


def branches(*widths: int) -> Make:
    """IF whose bodies have outputs of these widths."""

    def make(b: TfliteBuilder) -> tuple[list[int], list[int]]:
        c, x, y = b.tensor((1,), "bool"), b.tensor((1, 2)), b.tensor((1, widths[0]))
        numbers = []
        for width in widths:
            body = b.beside()
            i, o = body.tensor((1, 2)), body.tensor((1, width))
            body.operator("TILE", [i, body.constant(np.int32([1, width // 2]))], [o], {})
            numbers.append(b.add(body, [i], [o]))
        b.operator("IF", [c, x], [y], {"then_subgraph_index": numbers[0], "else_subgraph_index": numbers[1]})
        return [c, x], [y]

    return make


def loop(grows: bool) -> Make:
    """WHILE whose body keeps its value's dimensions, or joins it to itself."""

    def make(b: TfliteBuilder) -> tuple[list[int], list[int]]:
        test, body = b.beside(), b.beside()
        i, least, sum_, o = test.tensor((1, 2)), test.tensor((1,)), test.constant(np.int32([0, 1])), test.tensor((1,), "bool")
        test.operator("SUM", [i, sum_], [least], {"keep_dims": False})
        test.operator("LESS", [least, test.constant(np.float32([10]))], [o], {})
        p, q = body.tensor((1, 2)), body.tensor((1, 4 if grows else 2))
        joined = "CONCATENATION" if grows else "ADD"
        body.operator(joined, [p, p], [q], {**NO_ACTIVATION, **({"axis": 1} if grows else {})})
        numbers = [b.add(test, [i], [o]), b.add(body, [p], [q])]
        x, y = b.tensor((1, 2)), b.tensor((1, 2))
        b.operator("WHILE", [x], [y], {"cond_subgraph_index": numbers[0], "body_subgraph_index": numbers[1]})
        return [x], [y]

    return make


def other_signature(dynamic: bool) -> Make:
    """A graph beside the main one that nothing calls; TFLite offers it to the delegate all the same."""

    def make(b: TfliteBuilder) -> tuple[list[int], list[int]]:
        beside = b.beside()
        i, o = beside.tensor((1, 8)), beside.tensor((0, 2) if dynamic else (1, 8), "int64" if dynamic else "float32")
        beside.operator("WHERE" if dynamic else "ABS", [i], [o], {})
        b.add(beside, [i], [o])
        x, y = b.tensor((1, 8)), b.tensor((1, 8))
        b.operator("ABS", [x], [y], {})
        return [x], [y]

    return make


def variable(shape: tuple[int, ...]) -> Make:
    """VAR_HANDLE and READ_VARIABLE of a variable of these dimensions."""

    def make(b: TfliteBuilder) -> tuple[list[int], list[int]]:
        x, y, handle, z = b.tensor(shape), b.tensor(shape), b.tensor((), "resource"), b.tensor(shape)
        b.operator("VAR_HANDLE", [], [handle], {"container": "", "shared_name": "v"})
        b.operator("ASSIGN_VARIABLE", [handle, x], [], {})
        b.operator("READ_VARIABLE", [handle], [y], {})
        b.operator("ABS", [y], [z], {})
        return [x], [z]

    return make


def transposed(early: bool) -> Make:
    """TRANSPOSE_CONV whose output shape is the file's, or computed by a kernel when it is prepared."""

    def make(b: TfliteBuilder) -> tuple[list[int], list[int]]:
        x, y, shape = b.tensor((1, 2, 2, 1)), b.tensor((1, 2, 2, 1)), b.constant(np.int32([1, 2, 2, 1]))
        if early:
            shape = b.tensor((4,), "int32")
            b.operator("SHAPE", [x], [shape], {"out_type": 2})
        b.operator("TRANSPOSE_CONV", [shape, b.constant(np.ones((1, 1, 1, 1), np.float32)), x], [y],
                   {"padding": 0, "stride_w": 1, "stride_h": 1}, 1)  # fmt: skip
        return [x], [y]

    return make


FILES: dict[str, tuple[Make, str]] = {
    "WHERE": (behind_a_product("WHERE", (0, 2), type="int64"), "operator 1 WHERE"),
    "RESHAPE to a given shape": (behind_a_product("RESHAPE", (4, 2), (2,)), "operator 1 RESHAPE"),
    "RESHAPE to a stored shape": (behind_a_product("RESHAPE", (4, 2), np.int32([4, 2])), ""),
    "TILE by given multiples": (behind_a_product("TILE", (1, 16), (2,)), "operator 1 TILE"),
    "PAD by given paddings": (behind_a_product("PAD", (1, 10), (2, 2)), "operator 1 PAD"),
    "TRANSPOSE by a given order": (behind_a_product("TRANSPOSE", (8, 1), (2,)), "operator 1 TRANSPOSE"),
    "MEAN over given axes": (behind_a_product("MEAN", (1,), (1,), keep_dims=False), "operator 1 MEAN"),
    "STRIDED_SLICE to a given end": (
        behind_a_product("STRIDED_SLICE", (1, 4), np.int32([0, 0]), (2,), np.int32([1, 1]), **MASKS),
        "operator 1 STRIDED_SLICE",
    ),
    "SLICE of a given size": (behind_a_product("SLICE", (1, 4), np.int32([0, 0]), (2,)), "operator 1 SLICE"),
    "SLICE of a stored size": (behind_a_product("SLICE", (1, 4), np.int32([0, 0]), np.int32([1, 4])), ""),
    "a shape that kernels fold": (of_its_shape("CONCATENATION"), ""),
    "a shape through PACK": (of_its_shape("PACK"), "operator 3 RESHAPE"),
    "RESHAPE to a shape without elements": (scalar(stored=True), ""),
    "RESHAPE to a shape without a buffer": (scalar(stored=False), "operator 0 RESHAPE"),
    "TOPK_V2 of stated dimensions": (topk([1, 8]), ""),
    "TOPK_V2 of an open batch": (topk([-1, 8]), "operator 0 TOPK_V2"),
    "IF of equal widths": (branches(4, 4), ""),
    "IF of two widths": (branches(4, 6), "operator 0 IF"),
    "WHILE": (loop(grows=False), ""),
    "WHILE that grows": (loop(grows=True), "operator 0 WHILE"),
    "another graph": (other_signature(dynamic=False), ""),
    "another graph that is dynamic": (other_signature(dynamic=True), "operator 0 WHERE of subgraph 1"),
    "a variable": (variable((1, 2)), ""),
    "a variable without dimensions": (variable(()), "operator 2 READ_VARIABLE"),
    "TRANSPOSE_CONV": (transposed(early=False), ""),
    "TRANSPOSE_CONV of an early shape": (transposed(early=True), "operator 1 TRANSPOSE_CONV"),
}  # fmt: skip


@pytest.fixture(params=FILES)
def file(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, str]:
    """A file, and the operator for which TFLite refuses the delegate; empty if it does not."""
    make, where = FILES[request.param]
    builder = TfliteBuilder()
    return builder.write(tmp_path / "file.tflite", *make(builder)), where


def test_nothing_of_a_graph_is_delegated_where_tflite_refuses_the_delegate(file: tuple[Path, str]) -> None:
    path, where = file
    placed = ModelFile(path, ConversionOptions(mapping="delegate")).converted[1]
    refused = [reason for one in placed for reason in one.reasons if reason.kind is Why.DYNAMIC_GRAPH]
    assert {reason.found for reason in refused} == ({f"{where} with an output of computed shape"} if where else set())
    if where:
        assert not [one for one in placed if one.mapping == "delegate"]


def test_dynamic_dimensions_are_allowed_on_request(file: tuple[Path, str]) -> None:
    placed = ModelFile(file[0], ConversionOptions(mapping="delegate", allow_dynamic_dimensions=True)).converted[1]
    assert not [reason for one in placed for reason in one.reasons if reason.kind is Why.DYNAMIC_GRAPH]


def test_litert_refuses_the_delegate_for_the_same_files(file: tuple[Path, str]) -> None:
    pytest.importorskip("ai_edge_litert.interpreter")
    path, where = file
    fork = Fork(asked)
    try:
        (verdict,) = fork.run(path.read_bytes())
    finally:
        fork.close()
    assert verdict.outcome == (REFUSED if where else CREATED), verdict.text


def test_the_reason_has_the_line_that_tflite_logs(tmp_path: Path) -> None:
    builder = TfliteBuilder()
    path = builder.write(tmp_path / "file.tflite", *behind_a_product("WHERE", (0, 2), type="int64")(builder))
    first = ModelFile(path, ConversionOptions(mapping="delegate")).converted[1][0]
    assert first.reasons[0].operation == "operator 0 MUL"
    # Tensors: the input, the product, the factor, the output.
    assert first.reasons[0].says.endswith("(tensor#3 is a dynamic-sized tensor).")


def test_the_wide_mapping_knows_no_delegate_to_refuse(file: tuple[Path, str]) -> None:
    placed = ModelFile(file[0], ConversionOptions(mapping="wide")).converted[1]
    assert not [reason for one in placed for reason in one.reasons if reason.kind is Why.DYNAMIC_GRAPH]
