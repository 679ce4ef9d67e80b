"""Operators that TFLite's releases hand to NNAPI: ``Validate`` of nnapi_delegate.cc in tensorflow/tensorflow at v2.3.0 to
v2.14.0."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nnbridge
from nnbridge.converters import ConversionOptions
from nnbridge.converters.delegation import taken
from nnbridge.errors import InputError, OptionError, Stage
from nnbridge.file import ModelFile
from nnbridge.releases import TFLITE, order
from nnbridge.target import Fallback, Target
from nnbridge_tflite.declaration import REGISTRY
from nnbridge_tflite.kernel_versions import LAST_VERSIONS
from tests.commands import data
from tests.tflite.files import TfliteBuilder
from tests.tflite.test_delegate_rules import WINDOW, operator

Make = Callable[[TfliteBuilder], tuple[list[int], list[int]]]


def _dense(version: int = 1, bias: bool = True, **options: Any) -> Make:
    def make(b: TfliteBuilder) -> tuple[list[int], list[int]]:
        x, y = b.tensor((1, 4)), b.tensor((1, 2))
        weights = b.constant(np.ones((2, 4)), "float32")
        b.operator("FULLY_CONNECTED", [x, weights, *([b.constant([0.0, 0.0], "float32")] if bias else [])], [y], options, version)
        return [x], [y]

    return make


def _convolution(version: int = 1, channels: int = 4) -> Make:
    def make(b: TfliteBuilder) -> tuple[list[int], list[int]]:
        x, y = b.tensor((1, 2, 2, 4)), b.tensor((1, 2, 2, 2))
        weights, bias = b.constant(np.ones((2, 1, 1, channels)), "float32"), b.constant([0.0, 0.0], "float32")
        b.operator("CONV_2D", [x, weights, bias], [y], {**WINDOW, "dilation_w_factor": 1, "dilation_h_factor": 1}, version)
        return [x], [y]

    return make


def _transposed(version: int) -> Make:
    def make(b: TfliteBuilder) -> tuple[list[int], list[int]]:
        x, y = b.tensor((1, 2, 2, 1)), b.tensor((1, 2, 2, 1))
        weights = b.constant(np.ones((1, 1, 1, 1)), "float32")
        b.operator("TRANSPOSE_CONV", [b.constant([1, 2, 2, 1], "int32"), weights, x], [y], WINDOW, version)
        return [x], [y]

    return make


def _halves(b: TfliteBuilder) -> tuple[list[int], list[int]]:
    x, weights, y = b.tensor((1, 4)), b.tensor((1, 4)), b.tensor((1, 4))
    b.operator("DEQUANTIZE", [b.constant(np.ones((1, 4)), "float16")], [weights])
    b.operator("ADD", [x, weights], [y])
    return [x], [y]


def _scaled_mean(b: TfliteBuilder) -> tuple[list[int], list[int]]:
    x, y = b.tensor((1, 4), "int8", scale=0.1, zero_point=3), b.tensor((1,), "int8", scale=0.2, zero_point=3)
    b.operator("MEAN", [x, b.constant([1], "int32")], [y])
    return [x], [y]


def _pair(name: str, type: str = "float32", rank: int = 2, version: int = 1, **options: Any) -> Make:
    shape = (1,) * (rank - 1) + (4,)
    return operator(name, [shape, shape], [shape], options, type=type, version=version)


def _one(
    name: str, type: str = "float32", *constants: Any, version: int = 1, shape: tuple[int, ...] = (1, 4), **more: Any
) -> Make:
    return operator(name, [shape], [more.pop("out", shape)], more, *constants, type=type, version=version)


def releases_of(path: Path, make: Make, level: int = 8) -> str:
    """The releases whose delegate takes the last operator of a file, whatever NNAPI makes of it."""
    builder = TfliteBuilder()
    builder.write(path, *make(builder))
    file = ModelFile(path, ConversionOptions(level, "delegate"))
    return TFLITE.spans(name for name in TFLITE.names if taken(file.with_(tflite=name).mapped[-1]))


SINCE: dict[str, tuple[Make, str]] = {
    "ADD of int32": (_pair("ADD", "int32"), "2.4 and newer"),
    "MUL of int32": (_pair("MUL", "int32"), "2.4 and newer"),
    "SUB of int32": (_pair("SUB", "int32"), "2.4 and newer"),
    "ADD of rank 5": (_pair("ADD", rank=5), "2.3 to 2.11"),
    "MUL of rank 5": (_pair("MUL", rank=5), "2.3 to 2.11"),
    "DIV of rank 5": (_pair("DIV", rank=5), "2.3 to 2.11"),
    "PRELU of int8": (_pair("PRELU", "int8"), "2.4 and newer"),
    "SQUARED_DIFFERENCE": (_pair("SQUARED_DIFFERENCE"), "2.7 and newer"),
    "LEAKY_RELU": (_one("LEAKY_RELU", alpha=0.5), "2.5 and newer"),
    "RSQRT of int8": (_one("RSQRT", "int8", version=2), "2.8 and newer"),
    "COS": (_one("COS"), "2.14 and newer"),
    "STRIDED_SLICE of int32": (_one("STRIDED_SLICE", "int32", [0, 0], [1, 2], [1, 1], out=(1, 2)), "2.3 to 2.7"),
    "RESHAPE of int32": (_one("RESHAPE", "int32", [4, 1], out=(4, 1)), "2.8 and newer"),
    "RESHAPE of rank 5": (_one("RESHAPE", "float32", [1, 1, 1, 1, 4], out=(1, 1, 1, 1, 4)), "2.3 to 2.8"),
    "RESHAPE by its options": (_one("RESHAPE", out=(4, 1), new_shape=[4, 1]), "2.5 and newer"),
    "MIRROR_PAD": (_one("MIRROR_PAD", "float32", [[0, 0], [1, 1]], out=(1, 6)), "2.8 and newer"),
    "REVERSE_V2": (_one("REVERSE_V2", "float32", [1]), "2.8 and newer"),
    "UNPACK": (operator("UNPACK", [(2, 4)], [(4,), (4,)], {"num": 2, "axis": 0}), "2.8 and newer"),
    "PACK": (operator("PACK", [(4,), (4,)], [(2, 4)], {"values_count": 2, "axis": 0}), "2.6 and newer"),
    "PACK of uint8": (operator("PACK", [(4,), (4,)], [(2, 4)], {"values_count": 2}, type="uint8"), "2.8 and newer"),
    "PACK along the last axis": (operator("PACK", [(4,), (4,)], [(4, 2)], {"values_count": 2, "axis": 1}), "2.8 and newer"),
    "MEAN to another scale": (_scaled_mean, "2.7 and newer"),
    "FULLY_CONNECTED version 5": (_dense(5), "2.4 and newer"),
    "FULLY_CONNECTED without a bias": (_dense(bias=False), "2.6 and newer"),
    "FULLY_CONNECTED of kept dimensions": (_dense(keep_num_dims=True), "2.6 and newer"),
    "CONV_2D": (_convolution(), "2.3 and newer"),
    "CONV_2D version 5": (_convolution(5), "2.7 and newer"),
    "CONV_2D version 6": (_convolution(6), ""),
    "TRANSPOSE_CONV version 1": (_transposed(1), "2.3 and newer"),
    "TRANSPOSE_CONV version 2": (_transposed(2), "2.5 and newer"),
    "TRANSPOSE_CONV version 3": (_transposed(3), "2.6 and newer"),
    "TRANSPOSE_CONV version 4": (_transposed(4), "2.15 and newer"),
    "ADD of float16 weights": (_halves, "2.3 and newer"),
}


@pytest.mark.parametrize("name", SINCE)
def test_the_releases_that_hand_an_operator_over(tmp_path: Path, name: str) -> None:
    make, releases = SINCE[name]
    assert releases_of(tmp_path / "m.tflite", make) == releases


def test_groups_are_handed_over_as_conv_2d_before_2_9_which_nnapi_fails_to_run(tmp_path: Path) -> None:
    path = tmp_path / "m.tflite"
    assert releases_of(path, _convolution(channels=2)) == "2.3 and newer"
    assert ModelFile(path, ConversionOptions(8, "delegate", tflite="2.9")).mapped[0].mapping == "delegate"
    older = ModelFile(path, ConversionOptions(8, "delegate", tflite="2.8")).mapped[0]
    assert [reason.stage for reason in older.reasons] == [Stage.RUNNING]


def test_weights_of_float16_are_read_by_the_delegate_from_2_6_on(tmp_path: Path) -> None:
    path = tmp_path / "m.tflite"
    releases_of(path, _halves)
    mappings = {name: ModelFile(path, ConversionOptions(8, "delegate", tflite=name)).mapped[0].mapping for name in ("2.5", "2.6")}
    assert mappings == {"2.5": "host", "2.6": "folded"}


@pytest.mark.parametrize("name", ["LESS", "GREATER", "EQUAL", "NOT_EQUAL", "LESS_EQUAL"])
def test_comparisons_on_android_9_cost_the_interpreter_before_2_7(tmp_path: Path, name: str) -> None:
    def make(b: TfliteBuilder) -> tuple[list[int], list[int]]:
        x, y, z = b.tensor((1, 4)), b.tensor((1, 4)), b.tensor((1, 4), "bool")
        b.operator(name, [x, y], [z])
        return [x, y], [z]

    path = tmp_path / "m.tflite"
    assert releases_of(path, make, level=2) == "2.3 to 2.6"
    stages = {
        release: ModelFile(path, ConversionOptions(2, "delegate", tflite=release)).mapped[0].reasons[0].stage
        for release in ("2.6", "2.7")
    }
    assert stages == {"2.6": Stage.BUILDING, "2.7": Stage.DELEGATE}


@pytest.mark.parametrize("release", ["2.2", "2.16", "1.15", "2", "latest"])
def test_a_release_that_was_not_read_is_refused_with_those_that_were(tmp_path: Path, release: str) -> None:
    path = tmp_path / "m.tflite"
    releases_of(path, _one("RELU"))
    with pytest.raises(InputError, match=r"tflite: expected a release .*2\.3, .*2\.15, newest\), found " + release):
        nnbridge.plan(path, tflite=release)


@pytest.mark.parametrize(
    ("release", "fallback"), [("2.3", "cpu"), ("2.4", "cpu"), ("2.5", "app"), ("2.14", "app"), ("newest", "app")]
)
def test_nnapis_cpu_is_disallowed_by_default_from_2_5_on(release: str, fallback: str) -> None:
    assert Target.of("nnapi-sample_minimal").fallback_for("delegate", release) is Fallback(fallback)


def test_a_plan_names_its_release_in_its_sentence_its_data_and_its_pickle(tmp_path: Path) -> None:
    path = tmp_path / "m.tflite"
    releases_of(path, _one("RELU"))
    planned = nnbridge.plan(path, tflite="2.5")
    assert "TFLite 2.5's NNAPI delegate hands over 1 of 1 operator" in planned.summary.sentence
    assert planned.to_dict()["tflite"] == "2.5"
    assert pickle.loads(pickle.dumps(planned)).to_dict()["tflite"] == "2.5"


def test_dynamic_dimensions_cannot_be_allowed_before_2_4(tmp_path: Path) -> None:
    path = tmp_path / "m.tflite"
    releases_of(path, _one("RELU"))
    nnbridge.plan(path, tflite="2.4", allow_dynamic_dimensions=True)
    with pytest.raises(OptionError, match=r"expected TFLite 2\.4 or newer"):
        nnbridge.plan(path, tflite="2.3", allow_dynamic_dimensions=True)


def test_a_matrix_computes_a_cell_again_for_another_release(tmp_path: Path) -> None:
    path = tmp_path / "m.tflite"
    releases_of(path, _one("COS"))
    hosts = {}
    for release in ("2.13", "2.14"):
        found = data("matrix", path, "--devices", "nnapi-sample_all", "--tflite", release, "--store", tmp_path / "matrix.db")
        hosts[release] = found["cells"][0]["on_host"]
    assert hosts["2.13"] == 1
    assert hosts["2.14"] == 0


# Of the wheels themselves: scripts/comparisons/compare_kernels.py.
KERNELS: dict[str, tuple[Make, str]] = {
    "GELU": (_one("GELU"), "2.8 and newer"),
    "CUMSUM": (_one("CUMSUM", "float32", 1), "2.4 and newer"),
    "SIGN": (_one("SIGN"), "2.11 and newer"),
    "BITWISE_XOR": (_pair("BITWISE_XOR", "int32"), "2.13 and newer"),
    "ADD of version 4": (_pair("ADD", version=4), "2.4, 2.6 and newer"),
    "CONV_2D of version 5": (_convolution(5), "2.4 and newer"),
    "FULLY_CONNECTED of version 9": (_dense(9), "2.4 and newer"),
    "RSQRT of int8": (_one("RSQRT", "int8", version=2), "2.5 and newer"),
    "COS of version 1": (_one("COS"), "2.3 and newer"),
}


def loaded_by(path: Path, make: Make) -> str:
    """The releases that load a file."""
    builder = TfliteBuilder()
    builder.write(path, *make(builder))
    return TFLITE.spans(name for name in TFLITE.names if nnbridge.plan(path, tflite=name).not_loaded is None)


@pytest.mark.parametrize("case", KERNELS)
def test_a_release_loads_the_operator_versions_that_it_has_kernels_for(case: str, tmp_path: Path) -> None:
    make, expected = KERNELS[case]
    assert loaded_by(tmp_path / "one.tflite", make) == expected


def test_the_first_line_names_the_release_and_what_it_lacks(tmp_path: Path) -> None:
    builder = TfliteBuilder()
    path = builder.write(tmp_path / "gelu.tflite", *_one("GELU")(builder))
    of_2_4, lacking = nnbridge.plan(path, tflite="2.4").summary.judgement, "TFLite requires an operator that 2.4 has a kernel for"
    assert f"operator 0 GELU: {lacking}" in of_2_4
    builder = TfliteBuilder()
    path = builder.write(tmp_path / "add.tflite", *_pair("ADD", version=5)(builder))
    assert "requires a version from 1 to 4 of the operator in 2.8, found 5" in nnbridge.plan(path, tflite="2.8").summary.judgement


def test_last_versions_of_releases_are_below_the_newest_ones() -> None:
    newest = {one.name: one.versions for one in REGISTRY if one.versions is not None}
    for names, last in LAST_VERSIONS:
        for name in names.split():
            assert name in newest, name
            assert list(last) == sorted(last, key=order)
            assert max(last.values()) < newest[name][1] or name == "ADD"
