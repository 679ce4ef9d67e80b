"""Causes of 8-bit operations that LiteRT's reference kernels compute otherwise, beside LiteRT's own values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from nnbridge.builder import ModelBuilder
from nnbridge.compare import seeded_samples
from nnbridge.compare.arithmetics import arithmetic_device
from nnbridge.compare.causes import Cause, LoneOperation, explain
from nnbridge.compare.layers import compare_layers
from nnbridge.compare.litert import LiteRT
from nnbridge.compare.litert_arithmetic import resized_to_nearest
from nnbridge.compare.references import reference
from nnbridge.compare.tensors import tensors_of
from nnbridge.converters import ConversionOptions
from nnbridge.errors import Reason
from nnbridge.file import ModelFile
from nnbridge.model import Model
from nnbridge.runtime.compilation import Compilation
from nnbridge.runtime.execution import Execution
from nnbridge.types import OperandCode as T
from nnbridge.types import OperationCode
from tests.tflite.files import TfliteBuilder

POSITIONS = [(False, False), (True, False), (False, True)]
"""align_corners, half_pixel_centers."""
SIZES = [((5, 7), (13, 9)), ((5, 7), (10, 14)), ((17, 23), (6, 11)), ((9, 4), (3, 11))]
"""Images that grow, double, shrink, and both."""


def lone(
    code: OperationCode, kind: T, dims: Sequence[Sequence[int]], quantisation: Sequence[tuple[float, int]], *scalars: int
) -> Model:
    builder = ModelBuilder("lone")
    x, y = (
        builder.add_operand(kind, shape, scale=scale, zero_point=zero)
        for shape, (scale, zero) in zip(dims, quantisation, strict=True)
    )
    sizes = [builder.add_operand(T.INT32) for _ in scalars]
    for size, value in zip(sizes, scalars, strict=True):
        builder.set_operand_value(size, np.int32(value))
    builder.add_operation(code, [x, *sizes], [y])
    builder.identify_inputs_and_outputs([x], [y])
    return builder.finish()


def resized_row(expected: list[int]) -> LoneOperation:
    """Two pixels as four, at 0, 1/2, 1 and, beyond the last one, 1: NNAPI truncates the second one's 2 1/2."""
    same = [(0.5, 7), (0.5, 7)]
    model = lone(OperationCode.RESIZE_BILINEAR, T.TENSOR_QUANT8_ASYMM, [(1, 1, 2, 1), (1, 1, 4, 1)], same, 4, 1)
    image, actual, theirs = (np.uint8(row).reshape(1, 1, -1, 1) for row in ([2, 3], [2, 2, 3, 3], expected))
    return LoneOperation(model, [image], actual, theirs, "0 RESIZE_BILINEAR", "RESIZE_BILINEAR", "litert", "nnapi-reference")


def test_a_resized_image_that_the_reference_rounds_is_explained() -> None:
    cause = explain(resized_row([2, 3, 3, 3]))
    assert cause is not None
    assert (cause.kind, cause.operation) == ("resize_truncates", "RESIZE_BILINEAR")
    assert cause.sentence == "0 RESIZE_BILINEAR: NNAPI's RESIZE_BILINEAR of uint8 truncates where litert rounds"


def test_a_resized_image_of_other_values_is_not_explained() -> None:
    assert explain(resized_row([2, 4, 3, 3])) is None


@pytest.mark.parametrize(("reference", "in_float"), [("litert", False), ("npu", True)])
def test_real_numbers_are_never_named_beside_litert(reference: str, in_float: bool) -> None:
    model = lone(OperationCode.L2_NORMALIZATION, T.TENSOR_QUANT8_ASYMM, [(99, 9)] * 2, [(0.1, 128), (1 / 128, 128)])
    x = np.random.default_rng(0).integers(0, 256, (99, 9)).astype(np.uint8)
    case = LoneOperation(model, [x], x, x, "0 L2", "L2_NORMALIZATION", reference, "nnapi-reference")
    ours, real = (case.under(arithmetic_device(name)) for name in ("exact", "float_requantised"))
    assert ours is not None
    assert real is not None
    assert (ours != real).any()
    cause = explain(LoneOperation(model, [x], ours, real, "0 L2", "L2_NORMALIZATION", reference, "nnapi-reference"))
    assert (cause is not None and "real numbers" in cause.sentence) == in_float


def resize_file(path: Path, kind: str, size: tuple[int, int], target: tuple[int, int], flags: tuple[bool, bool]) -> Path:
    builder = TfliteBuilder()
    x, y = (builder.tensor((2, *dims, 3), kind, scale=0.1, zero_point=3) for dims in (size, target))
    options = dict(zip(("align_corners", "half_pixel_centers"), flags, strict=True))
    builder.operator("RESIZE_BILINEAR", [x, builder.constant(np.int32(target))], [y], options, 3)
    return builder.write(path, [x], [y])


def normalisation_file(path: Path) -> Path:
    builder = TfliteBuilder()
    x = builder.tensor((99, 9), "int8", scale=0.1, zero_point=5)
    y = builder.tensor((99, 9), "int8", scale=1 / 128)
    builder.operator("L2_NORMALIZATION", [x], [y], {}, 2)
    return builder.write(path, [x], [y])


def difference_file(path: Path) -> Path:
    builder = TfliteBuilder()
    x, y, z = (
        builder.tensor((999,), "int8", scale=scale, zero_point=zero) for scale, zero in ((0.1, 4), (0.13, -9), (0.9, -128))
    )
    builder.operator("SQUARED_DIFFERENCE", [x, y], [z], {}, 2)
    return builder.write(path, [x, y], [z])


def comparison_file(path: Path) -> Path:
    builder = TfliteBuilder()
    x, y = (builder.tensor((999,), "uint8", scale=scale, zero_point=128) for scale in (0.5, 1.5))
    out = builder.tensor((999,), "bool")
    builder.operator("LESS", [x, y], [out], {}, 2)
    return builder.write(path, [x, y], [out])


def leaky_file(path: Path) -> Path:
    # A step below 0 is 2 1/2 steps of the output: what it is rounded to hangs on the multiplier's last digits.
    builder = TfliteBuilder()
    x, y = (builder.tensor((1, 9, 9, 9), "uint8", scale=scale, zero_point=128) for scale in (0.5, 0.02))
    builder.operator("LEAKY_RELU", [x], [y], {"alpha": 0.1}, 1)
    return builder.write(path, [x], [y])


def hard_swish_file(path: Path) -> Path:
    builder = TfliteBuilder()
    x, y = (builder.tensor((999,), "uint8", scale=scale, zero_point=zero) for scale, zero in ((0.05, 3), (0.03, 11)))
    builder.operator("HARD_SWISH", [x], [y], {}, 1)
    return builder.write(path, [x], [y])


def logistic_file(path: Path) -> Path:
    builder = TfliteBuilder()
    x, y = (builder.tensor((999,), "int8", scale=scale, zero_point=zero) for scale, zero in ((4.2, 0), (1 / 256, -128)))
    builder.operator("LOGISTIC", [x], [y], {}, 1)
    return builder.write(path, [x], [y])


def causes_of(path: Path, mapping: str = "delegate", level: int = 8) -> list[Cause | None]:
    """Of what NNAPI's CPU computes otherwise than LiteRT, operation by operation."""
    pytest.importorskip("ai_edge_litert")
    model, mapped = ModelFile(path, ConversionOptions(mapping=mapping, feature_level=level)).converted
    compilation = Compilation.create(model)
    compilation.finish()
    runtime = reference("litert", path, preserve=True)
    samples = seeded_samples(model, runtime, [0])
    found = compare_layers(compilation, runtime.name, samples, tensors_of(runtime), mapped=mapped)
    return [layer.cause for layer in found.layers if layer.own is not None and layer.own.mismatches]


@pytest.mark.parametrize("flags", POSITIONS)
@pytest.mark.parametrize(("size", "target"), SIZES)
def test_resized_uint8_has_litert_s_values(
    size: tuple[int, int], target: tuple[int, int], flags: tuple[bool, bool], tmp_path: Path
) -> None:
    pytest.importorskip("ai_edge_litert")
    path = resize_file(tmp_path / "one.tflite", "uint8", size, target, flags)
    image = np.random.default_rng(1).integers(0, 256, (2, *size, 3)).astype(np.uint8)
    [theirs] = LiteRT(path).run({"x": image})
    ours = resized_to_nearest(ModelFile(path, ConversionOptions(mapping="wide")).converted[0], [image], theirs)
    assert np.array_equal(ours, theirs)


@pytest.mark.parametrize("flags", POSITIONS)
@pytest.mark.parametrize(("kind", "kinds"), [("uint8", ["resize_truncates"]), ("int8", [])])
def test_nnapi_truncates_resized_uint8_alone(kind: str, kinds: list[str], flags: tuple[bool, bool], tmp_path: Path) -> None:
    path = resize_file(tmp_path / "one.tflite", kind, (9, 8), (21, 13), flags)
    assert [cause and cause.kind for cause in causes_of(path)] == kinds


@pytest.mark.parametrize("flags", POSITIONS)
@pytest.mark.parametrize("kind", ["uint8", "int8", "int16"])
@pytest.mark.parametrize(("size", "target"), SIZES)
def test_the_host_resizes_as_litert(
    kind: str, size: tuple[int, int], target: tuple[int, int], flags: tuple[bool, bool], tmp_path: Path
) -> None:
    pytest.importorskip("ai_edge_litert")
    path = resize_file(tmp_path / "one.tflite", kind, size, target, flags)
    left = {0: Reason("an operator that stays", "RESIZE_BILINEAR")}
    compilation = Compilation.create(ModelFile(path, ConversionOptions(mapping="delegate", left=left)).converted[0])
    compilation.finish()
    limits = np.iinfo(kind)
    image = np.random.default_rng(1).integers(limits.min, limits.max + 1, (2, *size, 3)).astype(kind)
    [theirs], [ours] = LiteRT(path).run({"x": image}), Execution(compilation).run([image]).values()
    assert np.array_equal(ours, theirs)


def test_resized_int8_that_nnapi_has_as_uint8_is_explained(tmp_path: Path) -> None:
    path = resize_file(tmp_path / "one.tflite", "int8", (9, 8), (21, 13), (False, False))
    assert [cause and cause.kind for cause in causes_of(path, level=3)] == ["sign_flipped"]


def test_int8_is_normalised_as_litert_does_but_where_nnapi_has_it_as_uint8(tmp_path: Path) -> None:
    path = normalisation_file(tmp_path / "one.tflite")
    assert causes_of(path) == []
    assert [cause and cause.kind for cause in causes_of(path, level=3)] == ["sign_flipped"]


@pytest.mark.parametrize(
    ("write", "mapping", "level", "said"),
    [
        (difference_file, "delegate", 8, "NNAPI as SUB and MUL"),
        (comparison_file, "delegate", 8, "only the sign"),
        (leaky_file, "delegate", 8, "than NNAPI's PRELU"),
        (hard_swish_file, "delegate", 3, "NNAPI as MUL and ADD"),
        (logistic_file, "wide", 8, "from tables of real numbers"),
    ],
)
def test_what_litert_computes_as_one_or_rounds_otherwise_is_named(
    write: Callable[[Path], Path], mapping: str, level: int, said: str, tmp_path: Path
) -> None:
    [cause] = causes_of(write(tmp_path / "one.tflite"), mapping, level)
    assert cause is not None
    assert cause.kind == "rescaling"
    assert said in cause.sentence
