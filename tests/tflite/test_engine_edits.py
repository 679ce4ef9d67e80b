"""Rewrites for LiteRT's GPU accelerator: a known fault before, none after; the bits of the reference kernels stay, and the engine
is right where it is installed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from nnbridge.advice import advise
from nnbridge.compare.references import reference
from nnbridge.engines import accelerator
from nnbridge.file import ModelFile
from nnbridge.model import Array
from nnbridge.target import Target
from tests.commands import data
from tests.tflite.files import TfliteBuilder

DEVICE = "litert-gpu-float32"
Made = tuple[TfliteBuilder, list[int], list[int]]
CASES: dict[str, tuple[Callable[[], Made], str]] = {}
"""Name → the file, and the advice that repairs it."""
NONE = {"fused_activation_function": 0}


def case(text: str) -> Callable[[Callable[[], Made]], Callable[[], Made]]:
    def register(made: Callable[[], Made]) -> Callable[[], Made]:
        CASES[made.__name__] = (made, text)
        return made

    return register


def with_constant(name: str, shape: tuple[int, ...], constant: tuple[int, ...], *, left: bool = False) -> Made:
    file = TfliteBuilder()
    value, out = file.tensor(shape), file.tensor(np.broadcast_shapes(shape, constant))
    other = file.constant(np.arange(1, 1 + np.prod(constant)).reshape(constant), "float32")
    file.operator(name, [other, value] if left else [value, other], [out], NONE)
    return file, [value], [out]


@case("four dimensions")
def a_constant_of_rank_2() -> Made:
    return with_constant("ADD", (8, 16), (8, 16))


@case("four dimensions")
def a_constant_of_higher_rank() -> Made:
    return with_constant("MUL", (3, 4), (2, 3, 4))


@case("four dimensions")
def a_larger_constant_on_the_left() -> Made:
    return with_constant("SUB", (4,), (2, 3, 4), left=True)


@case("four dimensions")
def numbers_of_8_bits_and_different_ranks() -> Made:
    file = TfliteBuilder()
    a, b, out = (file.tensor(shape, "int8", scale=0.1) for shape in ((2, 3, 4), (4,), (2, 3, 4)))
    file.operator("MAXIMUM", [a, b], [out], {})
    return file, [a, b], [out]


@case("padding in four dimensions")
def padding_of_rank_3() -> Made:
    file = TfliteBuilder()
    value, out = file.tensor((2, 3, 4)), file.tensor((2, 5, 4))
    file.operator("PAD", [value, file.constant(np.array([[0, 0], [1, 1], [0, 0]]), "int32")], [out], {})
    return file, [value], [out]


@case("a last dimension of 1 more")
def the_last_axis_reversed() -> Made:
    file = TfliteBuilder()
    value, out = file.tensor((3, 5)), file.tensor((3, 5))
    file.operator("REVERSE_V2", [value, file.constant(np.array([1]), "int32")], [out], {})
    return file, [value], [out]


@case("the same axis of four dimensions")
def sums_along_the_first_axis() -> Made:
    file = TfliteBuilder()
    value, out = file.tensor((2, 3, 6)), file.tensor((2, 3, 6))
    file.operator("CUMSUM", [value, file.constant(np.array(0), "int32")], [out], {"exclusive": False, "reverse": False})
    return file, [value], [out]


@case("one image of all rows")
def depth_to_space_of_two_images() -> Made:
    file = TfliteBuilder()
    value, out = file.tensor((2, 2, 2, 8)), file.tensor((2, 4, 4, 2))
    file.operator("DEPTH_TO_SPACE", [value], [out], {"block_size": 2})
    return file, [value], [out]


@case("one image of all rows")
def space_to_depth_of_three_images() -> Made:
    file = TfliteBuilder()
    value, out = file.tensor((3, 4, 2, 2)), file.tensor((3, 2, 1, 8))
    file.operator("SPACE_TO_DEPTH", [value], [out], {"block_size": 2})
    return file, [value], [out]


@case("RESHAPE of its only part")
def a_concatenation_of_one() -> Made:
    file = TfliteBuilder()
    value, out = file.tensor((1, 2, 2, 4)), file.tensor((1, 2, 2, 4))
    file.operator("CONCATENATION", [value], [out], {"axis": 3, **NONE})
    return file, [value], [out]


@case("a copy of it")
def a_sum_that_is_reduced_too() -> Made:
    file, shape = TfliteBuilder(), (1, 4, 4, 8)
    a, b, total, out = file.tensor(shape), file.tensor(shape), file.tensor(shape), file.tensor((1, 1, 1, 8))
    file.operator("ADD", [a, b], [total], NONE)
    file.operator("SUM", [total, file.constant(np.array([1, 2]), "int32")], [out], {"keep_dims": True})
    return file, [a, b], [total, out]


@case("rows by a RESHAPE")
def an_image_that_is_flattened() -> Made:
    file = TfliteBuilder()
    value, out = file.tensor((2, 2, 3)), file.tensor((2, 4))
    weights, bias = file.constant(np.arange(24).reshape(4, 6), "float32"), file.constant(np.ones(4), "float32")
    file.operator("FULLY_CONNECTED", [value, weights, bias], [out], NONE)
    return file, [value], [out]


@case("the constant on the right")
def a_constant_left_matrix() -> Made:
    file = TfliteBuilder()
    value, out = file.tensor((1, 1, 3, 5)), file.tensor((1, 1, 2, 5))
    left = file.constant(np.arange(6).reshape(1, 1, 2, 3), "float32")
    file.operator("BATCH_MATMUL", [left, value], [out], {"adj_x": False, "adj_y": False})
    return file, [value], [out]


@case("float32 numbers as a constant")
def weights_of_8_bits_under_floats() -> Made:
    file = TfliteBuilder()
    value, out, unpacked = file.tensor((1, 4)), file.tensor((1, 3)), file.tensor((3, 4))
    packed = file.constant(np.arange(12).reshape(3, 4), "int8", scale=0.25)
    file.operator("DEQUANTIZE", [packed], [unpacked], {}, 2)
    file.operator("FULLY_CONNECTED", [value, unpacked, -1], [out], NONE)
    return file, [value], [out]


def drawn(path: Path) -> dict[str, Array]:
    """Values for the file's inputs."""
    rng, graph = np.random.default_rng(4), ModelFile(path).source_graph
    draw = {"FLOAT32": lambda s: rng.standard_normal(s).astype(np.float32), "INT8": lambda s: rng.integers(-90, 90, s, np.int8)}
    return {str(tensor.index): draw[tensor.type](tensor.shape) for tensor in graph.inputs}


@pytest.mark.parametrize("name", CASES)
def test_a_known_fault_has_a_rewrite_of_equal_bits_that_the_engine_computes_right(name: str, tmp_path: Path) -> None:
    made, text = CASES[name]
    file, inputs, outputs = made()
    path, edited = file.write(tmp_path / "m.tflite", inputs, outputs), tmp_path / "edited.tflite"
    found = advise(ModelFile(path), Target.of(DEVICE)).advice
    advice = next((one for one in found if text in one.text), None)
    assert advice is not None, [one.text for one in found]
    assert advice.edit is not None
    assert len(advice.after.faulty) + len(advice.after.elsewhere) == 0
    advice.edit.content().write(edited)
    pytest.importorskip("ai_edge_litert")
    values = drawn(path)
    before, after = (list(reference("litert-reference", each).run(values)) for each in (path, edited))
    for one, other in zip(before, after, strict=True):
        np.testing.assert_array_equal(one, other)
    if (missing := accelerator.unavailable()) is not None:
        pytest.skip(str(missing))
    for ours, right in zip(reference(DEVICE, edited).run(values), before, strict=True):
        np.testing.assert_allclose(ours, right, rtol=1e-4, atol=1e-5)  # type: ignore[arg-type]


def test_a_file_without_faults_has_no_such_advice(tmp_path: Path) -> None:
    file, inputs, outputs = with_constant("ADD", (1, 1, 8, 16), (1, 1, 8, 16))
    path = file.write(tmp_path / "m.tflite", inputs, outputs)
    assert not advise(ModelFile(path), Target.of(DEVICE)).advice


def test_the_command_writes_the_file_and_proves_it_on_the_engine(tmp_path: Path) -> None:
    if (missing := accelerator.unavailable()) is not None:
        pytest.skip(str(missing))
    file, inputs, outputs = a_constant_of_rank_2()
    path, output = file.write(tmp_path / "m.tflite", inputs, outputs), tmp_path / "better.tflite"
    found = data("rewrite", path, "--device", DEVICE, "--advice", 1, "-o", output)
    sides = found["proof"][DEVICE]
    assert (sides["before"]["verdict"], sides["after"]["verdict"]) == ("no", "yes")
    assert found["exact"]
