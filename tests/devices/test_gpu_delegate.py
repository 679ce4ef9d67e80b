"""Operators that TFLite's GPU delegate accepts, as the sources named in its profile state it: each with the delegate's words."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from nnbridge import devices
from nnbridge.devices.source_profiles import Claim, SourceProfile
from nnbridge.file import ModelFile
from tests.tflite.files import TfliteBuilder
from tests.tflite.reports import IMAGE, NONE, WINDOW, Made, Make, one, ones

LACKING = "requires"
"""The plan's own words: NewOperationParser has no case for the operator."""
TYPES = "OP is supported, but tensor type/shape isn't compatible."


def claims(make: Make, folder: Path) -> list[Claim]:
    builder = TfliteBuilder()
    device = devices.device("tflite-gpu-delegate")
    assert isinstance(device, SourceProfile)
    return list(device.claims(ModelFile(builder.write(folder / "file.tflite", *make(builder))).source_graph))


def comparison(name: str = "LESS", then: str = "CAST", to: str = "float32", twice: bool = False) -> Make:
    """Two images compared, and what reads the truths."""

    def make(b: TfliteBuilder) -> Made:
        x, y, truths = b.tensor(IMAGE), b.tensor(IMAGE), b.tensor(IMAGE, "bool")
        out = b.tensor(IMAGE, to)
        b.operator(name, [x, y], [truths], {})
        if then == "CAST":
            b.operator("CAST", [truths], [out], {"in_data_type": 6, "out_data_type": 0})
        elif then:
            b.operator(then, [truths, x, y], [out], {})
        outs = [out] if then else [truths]
        if twice:
            b.operator("CAST", [truths], [second := b.tensor(IMAGE)], {})
            outs.append(second)
        last = b.tensor(IMAGE, to)
        if then:
            b.operator("RELU", [out], [last], {})
            outs[0] = last
        return [x, y], outs

    return make


@pytest.mark.parametrize("name", ["EQUAL", "GREATER", "GREATER_EQUAL", "LESS", "LESS_EQUAL", "NOT_EQUAL"])
@pytest.mark.parametrize("then", ["CAST", "SELECT", "SELECT_V2"])
def test_a_comparison_for_floats_is_accepted_with_its_reader(name: str, then: str, tmp_path: Path) -> None:
    assert all(claim.accepted for claim in claims(comparison(name, then), tmp_path))


@pytest.mark.parametrize(
    "make",
    [comparison(then=""), comparison(twice=True), comparison(to="int32"), comparison(then="LOGICAL_AND", to="bool")],
    ids=["as an output", "read twice", "to integers", "read by another"],
)
def test_a_comparison_that_does_not_become_floats_is_not(make: Make, tmp_path: Path) -> None:
    found = claims(make, tmp_path)[0].reason
    assert found is not None
    assert found.says == "Not supported logical op case."


def test_a_cast_of_truths_to_an_output_of_the_file_stays_on_the_cpu(tmp_path: Path) -> None:
    def make(b: TfliteBuilder) -> Made:
        x, truths, out = b.tensor(IMAGE), b.tensor(IMAGE, "bool"), b.tensor(IMAGE)
        b.operator("LESS", [x, x], [truths], {})
        b.operator("CAST", [truths], [out], {"in_data_type": 6, "out_data_type": 0})
        return [x], [out]

    compared, cast = claims(make, tmp_path)
    assert compared.accepted
    assert cast.reason is not None
    assert cast.reason.says == "Cast from bool not supported for outputs"


def one_hot(axis: int = -1, dims: tuple[int, ...] = (1, 1, 5), on: float | np.ndarray = 1.0) -> Make:
    def make(b: TfliteBuilder) -> Made:
        x, y = b.tensor(dims, "int32"), b.tensor((*dims, 3))
        numbers = [b.constant(np.asarray(n, k)) for n, k in ((3, "i4"), (on, "f4"), (0, "f4"))]
        b.operator("ONE_HOT", [x, *numbers], [y], {"axis": axis})
        return [x], [y]

    return make


def chosen(condition: tuple[int, ...], part: tuple[int, ...], shape: tuple[int, ...] = IMAGE, constant: bool = False) -> Make:
    def make(b: TfliteBuilder) -> Made:
        c, x, y = b.tensor(condition, "bool"), b.tensor(shape), b.tensor(shape)
        a = b.constant(ones(*part)) if constant else b.tensor(part)
        b.operator("SELECT_V2", [c, a, x], [y], {})
        return [c, *([] if constant else [a]), x], [y]

    return make


def added(*shapes: tuple[int, ...]) -> Make:
    return one("ADD", list(shapes), np.broadcast_shapes(*shapes), **NONE)


def floats(name: str, *constants: np.ndarray, type: str = "float32", version: int = 1) -> Make:
    return one(name, IMAGE, IMAGE, *constants, type=type, version=version)


TOP = one("TOPK_V2", (1, 8), [(1, 2), (1, 2)], np.int32(2))
VERDICTS: dict[str, tuple[Make, str]] = {
    "ADD_N of two": (one("ADD_N", [IMAGE, IMAGE], IMAGE), ""),
    "ADD_N of three": (one("ADD_N", [IMAGE] * 3, IMAGE), "ADD_N only supports 2 inputs."),
    "ADD of a row to an image": (added((1, 4, 4, 2), (4, 4, 2)), ""),
    "ADD of a row to two images": (added((2, 4, 4, 2), (4, 4, 2)), "Doesn't support broadcasting"),
    "ADD of a number": (added(IMAGE, ()), ""),
    "ADD of channels": (added((1, 1, 4, 3), (1, 3)), ""),
    "ADD of a matrix to three dimensions": (added((2, 4, 2), (4, 2)), "Doesn't support broadcasting"),
    "MUL of one rank": (one("MUL", [(2, 4, 4, 2), (1, 1, 1, 2)], (2, 4, 4, 2), **NONE), ""),
    "CUMSUM": (floats("CUMSUM", np.int32(3)), ""),
    "CUMSUM of integers": (floats("CUMSUM", np.int32(3), type="int32"), TYPES),
    "ONE_HOT": (one_hot(), ""),
    "ONE_HOT of numbers for each": (one_hot(on=ones(2)), "Indices must be int32 type, on/off tensors must be constant, scalar"),
    "ONE_HOT along the first axis": (one_hot(axis=0), "Indices must be int32 type"),
    "ONE_HOT of rows": (one_hot(dims=(1, 4, 5)), "Unsupported non-singleton dim"),
    "SELECT_V2 of one size": (chosen(IMAGE, IMAGE), ""),
    "SELECT_V2 by a truth": (chosen((), IMAGE), ""),
    "SELECT_V2 by a column": (chosen((4, 1), IMAGE), ""),
    "SELECT_V2 of a number": (chosen(IMAGE, (), constant=True), ""),
    "SELECT_V2 of channels": (chosen(IMAGE, (2,), constant=True), "Cond must be float or bool type"),
    "SELECT_V2 of matrices": (chosen((4, 2), (4, 2), (4, 2)), "2-D if tensor only supported if constant."),
    "TOPK_V2": (TOP, LACKING),
    "CEIL": (floats("CEIL"), LACKING),
    "ROUND": (floats("ROUND"), LACKING),
    "REVERSE_V2": (floats("REVERSE_V2", np.int32([1])), LACKING),
    "ARG_MAX": (one("ARG_MAX", IMAGE, (1, 4, 4), np.int32(3), output_type=2), LACKING),
    "RELU_0_TO_1": (floats("RELU_0_TO_1"), ""),
    "UNPACK": (one("UNPACK", (2, 4), [(4,), (4,)], num=2, axis=0), ""),
    "five dimensions": (one("ABS", (1, 1, 4, 4, 2), (1, 1, 4, 4, 2)), TYPES),
    "16 bits": (floats("TANH", type="int16"), TYPES),
    "a version of 16 bits": (floats("TANH", version=3), "Max version supported: 2."),
    "DEPTHWISE_CONV_2D": (
        one("DEPTHWISE_CONV_2D", IMAGE, IMAGE, ones(1, 1, 1, 2), ones(2), depth_multiplier=1, **WINDOW), ""
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", VERDICTS)
def test_an_operator_has_the_delegates_verdict(name: str, tmp_path: Path) -> None:
    make, says = VERDICTS[name]
    (claim,) = claims(make, tmp_path)
    assert claim.accepted is not bool(says), claim.reason
    if says and says != LACKING:
        assert claim.reason is not None
        assert claim.reason.says.startswith(says)


def test_a_transposed_convolution_of_mediapipe_is_accepted(tmp_path: Path) -> None:
    def make(b: TfliteBuilder) -> Made:
        x, y = b.tensor(IMAGE), b.tensor((1, 8, 8, 2))
        b.operator("Convolution2DTransposeBias", [x, b.constant(ones(2, 2, 2, 2)), b.constant(ones(2))], [y], {})
        return [x], [y]

    assert claims(make, tmp_path)[0].accepted
