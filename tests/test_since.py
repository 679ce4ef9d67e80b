"""The first TFLite release and Android version that hand an operator over."""

from __future__ import annotations

from pathlib import Path

import pytest

import nnbridge
from nnbridge.errors import OptionError
from nnbridge.file import ModelFile
from nnbridge.since import Since, since
from tests.commands import call, data
from tests.tflite.files import TfliteBuilder
from tests.tflite.test_releases import SINCE, releases_of

DIGITS = Path(__file__).parent.parent / "models" / "digits_float32.onnx"
EXPECTED = {
    "ADD of int32": ("2.4", "Android 11"),
    "LEAKY_RELU": ("2.5", "Android 10"),
    "COS": ("2.14", "Android 10"),
    "PACK": ("2.6", "Android 11"),
    "PACK of uint8": ("2.8", "feature level 6"),
    "MIRROR_PAD": ("2.8", "feature level 7"),
    "FULLY_CONNECTED of kept dimensions": ("2.6", "Android 11"),
    "CONV_2D version 6": ("", ""),
}


@pytest.mark.parametrize("name", EXPECTED)
def test_the_first_release_and_the_first_android_with_it(tmp_path: Path, name: str) -> None:
    path = tmp_path / "m.tflite"
    releases_of(path, SINCE[name][0])
    (found,) = since(ModelFile(path))
    assert (found.first, found.android) == EXPECTED[name]


def test_what_nnapi_does_not_build_is_not_handed_over(tmp_path: Path) -> None:
    builder = TfliteBuilder()
    x, y = builder.tensor((2, 3), "int32"), builder.tensor((2, 3), "bool")
    builder.operator("LESS", [x, x], [y])
    (found,) = since(ModelFile(builder.write(tmp_path / "m.tflite", [x], [y])))
    assert (found.releases, found.android) == ("2.3 and newer", "Android 10")


def test_each_operator_is_asked_by_itself(tmp_path: Path) -> None:
    builder = TfliteBuilder()
    x, y, z = (builder.tensor((1, 4)) for _ in range(3))
    builder.operator("COS", [x], [y])
    builder.operator("GELU", [y], [z])
    found = since(ModelFile(builder.write(tmp_path / "m.tflite", [x], [z])))
    assert found == (Since(0, 0, "COS", "2.14 and newer", "2.14", 3), Since(0, 1, "GELU", ""))


def test_a_format_that_no_runtime_hands_over_has_no_releases(tmp_path: Path) -> None:
    saved = tmp_path / "m.nnapi"
    assert call("convert", DIGITS, "-o", saved).exit_code == 0
    with pytest.raises(OptionError, match="since: expected a TFLite or ONNX file"):
        since(ModelFile(saved))


def test_plan_prints_a_row_and_writes_it_to_json(tmp_path: Path) -> None:
    path = tmp_path / "m.tflite"
    releases_of(path, SINCE["COS"][0])
    assert "2.14 and newer" in call("plan", path, "--since").output
    assert data("plan", path, "--since", "--json")["since"][0]["android"] == "Android 10"
    assert nnbridge.plan(path, tflite="2.13").summary.handed_over == 0
