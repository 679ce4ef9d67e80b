"""Advice and rewrites: each applies to small files, helps where it is advised, and leaves every bit of the answers."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from nnbridge import load
from nnbridge.cli.commands import cli
from nnbridge.compare import seeded_inputs
from nnbridge.compare.references import reference
from nnbridge.converters import ConversionOptions
from nnbridge.converters.edits import Answers
from nnbridge.file import ModelFile
from nnbridge_tflite.edits import REWRITES
from nnbridge_tflite.read.reader import read
from nnbridge_tflite.tables import decoded
from nnbridge_tflite.write import encode
from tests.conftest import MODELS
from tests.tflite.files import TfliteBuilder
from tests.tflite.shared import real_model
from tests.tflite.test_engine_edits import CASES

Made = tuple[TfliteBuilder, list[int], list[int]]


def add_relu6() -> Made:
    file = TfliteBuilder()
    a, b, out = (file.tensor((1, 4, 4, 2)) for _ in range(3))
    file.operator("ADD", [a, b], [out], {"fused_activation_function": 3})
    return file, [a, b], [out]


def split(type: str = "float32") -> Made:
    file = TfliteBuilder()
    quantised = {"scale": 0.5, "zero_point": 3} if type == "int8" else {}
    data, outs = file.tensor((2, 6, 3), type, **quantised), [file.tensor((2, 2, 3), type, **quantised) for _ in range(3)]
    file.operator("SPLIT", [file.constant(1, "int32"), data], outs, {"num_splits": 3}, version=2 if type == "int8" else 1)
    return file, [data], outs


def split_int8() -> Made:
    return split("int8")


def unpack() -> Made:
    file = TfliteBuilder()
    data, outs = file.tensor((2, 3, 4)), [file.tensor((2, 4)) for _ in range(3)]
    file.operator("UNPACK", [data], outs, {"num": 3, "axis": -2})
    return file, [data], outs


def pack_axis_1() -> Made:
    file = TfliteBuilder()
    parts, out = [file.tensor((2, 4)) for _ in range(3)], file.tensor((2, 3, 4))
    file.operator("PACK", parts, [out], {"values_count": 3, "axis": 1})
    return file, parts, [out]


def squeeze() -> Made:
    file = TfliteBuilder()
    data, out = file.tensor((1, 3, 1, 4)), file.tensor((3, 4))
    file.operator("SQUEEZE", [data], [out], {"squeeze_dims": np.asarray([0, 2], "<i4")})
    return file, [data], [out]


def expand_dims() -> Made:
    file = TfliteBuilder()
    data, out = file.tensor((3, 4)), file.tensor((3, 1, 4))
    file.operator("EXPAND_DIMS", [data, file.constant(1, "int32")], [out])
    return file, [data], [out]


def cut() -> Made:
    file = TfliteBuilder()
    data, out = file.tensor((4, 5)), file.tensor((2, 4))
    file.operator("SLICE", [data, file.constant([1, 1], "int32"), file.constant([2, -1], "int32")], [out])
    return file, [data], [out]


def square() -> Made:
    file = TfliteBuilder()
    data, out = file.tensor((3, 4)), file.tensor((3, 4))
    file.operator("SQUARE", [data], [out])
    return file, [data], [out]


def squared_difference() -> Made:
    file = TfliteBuilder()
    a, b, out = (file.tensor((3, 4)) for _ in range(3))
    file.operator("SQUARED_DIFFERENCE", [a, b], [out])
    return file, [a, b], [out]


def leaky_relu() -> Made:
    file = TfliteBuilder()
    data, out = file.tensor((1, 2, 2, 3)), file.tensor((1, 2, 2, 3))
    file.operator("LEAKY_RELU", [data], [out], {"alpha": 0.3})
    return file, [data], [out]


def rank_5() -> Made:
    file = TfliteBuilder()
    data, out = file.tensor((2, 3, 2, 2, 2)), file.tensor((2, 3, 2, 2, 2))
    file.operator("SUB", [data, file.constant(np.float32([0.7]))], [out])
    return file, [data], [out]


def product_without_bias() -> Made:
    file = TfliteBuilder()
    data, out = file.tensor((2, 3)), file.tensor((2, 4))
    filter = file.constant(np.linspace(-1, 1, 12, dtype=np.float32).reshape(4, 3))
    file.operator("FULLY_CONNECTED", [data, filter, -1], [out], {})
    return file, [data], [out]


def transposed_in_five_dimensions() -> Made:
    """A shuffle of channels."""
    file = TfliteBuilder()
    data, out = file.tensor((1, 2, 3, 2, 4)), file.tensor((1, 2, 3, 4, 2))
    file.operator("TRANSPOSE", [data, file.constant(np.int32([0, 1, 2, 4, 3]))], [out], {})
    return file, [data], [out]


def last_step() -> Made:
    file = TfliteBuilder()
    data, out = file.tensor((2, 4, 3)), file.tensor((2, 3))
    ranges = [file.constant(np.int32(v)) for v in ([0, -1, 0], [0, 0, 0], [1, 1, 1])]
    masks = {"begin_mask": 5, "end_mask": 5, "ellipsis_mask": 0, "new_axis_mask": 0, "shrink_axis_mask": 2}
    file.operator("STRIDED_SLICE", [data, *ranges], [out], masks)
    return file, [data], [out]


def product_of_four_bits(scales: int = 1) -> Made:
    file = TfliteBuilder()
    data, out = file.tensor((2, 4)), file.tensor((2, 2))
    file.buffers.append({"data": np.uint8([0x87, 0x12, 0xF3, 0x40])})  # 7, -8, 2, 1, 3, -1, 0, 4
    weights = file.tensor((2, 4), "INT4", scale=[0.5, 0.25][:scales], buffer=len(file.buffers) - 1)
    file.operator("FULLY_CONNECTED", [data, weights, -1], [out], {"weights_format": 0}, 9)
    return file, [data], [out]


def product_of_four_bits_by_channel() -> Made:
    return product_of_four_bits(2)


FILES = (
    last_step,
    product_of_four_bits,
    product_of_four_bits_by_channel,
    transposed_in_five_dimensions,
    product_without_bias,
    rank_5,
    add_relu6,
    split,
    split_int8,
    unpack,
    pack_axis_1,
    squeeze,
    expand_dims,
    cut,
    square,
    squared_difference,
    leaky_relu,
)


def call(*arguments: str, status: int = 0) -> Any:
    result = CliRunner().invoke(cli, [*arguments, "--json"])
    assert result.exit_code == status, result.output
    return json.loads(result.stdout) if status == 0 else " ".join(result.stderr.split())


@pytest.mark.parametrize("make", FILES)
def test_a_rewritten_file_has_the_same_bits_in_litert(make: Callable[[], Made], tmp_path: Path) -> None:
    pytest.importorskip("ai_edge_litert")
    path, target = tmp_path / "before.tflite", tmp_path / "after.tflite"
    file, inputs, outputs = make()
    file.write(path, inputs, outputs)
    before, model = reference("litert", path), load(path)
    exact = [edit for edit in ModelFile(path).edits if edit.answers is Answers.SAME]
    assert exact
    for edit in exact:
        edit.content().write(target)
        after = reference("litert", target)
        for seed in range(20):
            values = seeded_inputs(model, seed)
            for one, other in zip(before.run(values), after.run(values), strict=True):
                assert one.tobytes() == other.tobytes(), edit.text


def test_every_rewrite_has_a_file_here(tmp_path: Path) -> None:
    texts = set()
    for number, make in enumerate([*FILES, *(make for make, _ in CASES.values())]):
        file, inputs, outputs = make()
        found = ModelFile(file.write(tmp_path / f"{number}.tflite", inputs, outputs)).edits
        texts |= {edit.text for edit in found if edit.answers is Answers.SAME}
    # LiteRT has no answers for a bias of one element: it does not load such files, or reads beyond the bias.
    one_bias = {"a bias for each output channel in place of one for all"}
    # Files with bodies are in tests/remedies/test_branches.py.
    of_bodies = {"its decomposition", "the branch that its condition, which never changes, chooses"}
    assert texts == {rewrite.text for rewrite in REWRITES if rewrite.answers is Answers.SAME} - one_bias - of_bodies


@pytest.mark.parametrize("name", ["digits_float32", "digits_uint8", "digits_dynamic"])
def test_a_file_that_is_written_again_is_the_same_model(name: str, tmp_path: Path) -> None:
    path, again = MODELS / f"{name}.tflite", tmp_path / f"{name}.tflite"
    again.write_bytes(encode(decoded(read(path))))
    before, after = load(path), load(again)
    assert after.main.operations == before.main.operations
    for one, other in zip(before.main.operands, after.main.operands, strict=True):
        assert replace(one, location=other.location) == other
        if one.is_constant:
            assert np.array_equal(before.value(one), after.value(other))


def test_advice_is_what_planning_the_rewritten_file_shows(tmp_path: Path) -> None:
    model, target = str(real_model("split_concat")), str(tmp_path / "after.tflite")
    (advice,) = call("plan", model, "--device", "arm-nn-21.11", "--advice")["advice"]
    assert (advice["before"]["elsewhere"], advice["after"]["elsewhere"]) == (1, 0)
    call("rewrite", model, "--device", "arm-nn-21.11", "--advice", "1", "-o", target)
    planned = call("plan", target, "--device", "arm-nn-21.11")
    assert (planned["summary"]["elsewhere"], len(planned["steps"])) == ({}, advice["after"]["steps"])


def test_a_rewrite_is_saved_as_an_nnapi_model_too(tmp_path: Path) -> None:
    target = tmp_path / "after.nnapi"
    call("rewrite", str(real_model("split_concat")), "--device", "arm-nn-21.11", "--advice", "1", "-o", str(target))
    assert "SPLIT" not in {operation["type"] for operation in call("plan", str(target))["operations"]}


def test_a_later_android_is_advised_where_it_helps() -> None:
    advice = call("plan", str(MODELS / "digits_int8.tflite"), "--device", "arm-nn-21.11", "--android", "9", "--advice")["advice"]
    assert [one["options"] for one in advice if one["kind"] == "setting"] == [{"feature_level": 3}]


def test_advice_needs_a_device() -> None:
    message = call("plan", str(MODELS / "digits_uint8.tflite"), "--advice", status=2)
    assert "--advice: expected at least one device, to advise on, found none" in message


def test_a_number_that_is_not_advised_is_refused(tmp_path: Path) -> None:
    digits, target = str(MODELS / "digits_uint8.tflite"), str(tmp_path / "out.tflite")
    message = call("rewrite", digits, "--device", "arm-nn-21.11", "--advice", "7", "-o", target, status=2)
    assert "--advice: expected a model and device with advice (nnbridge plan --advice lists it), found none" in message


def test_the_document_lists_every_rewrite() -> None:
    page = (MODELS.parent / "docs" / "advice.md").read_text(encoding="utf-8")
    rows = [f"| {', '.join(rewrite.operators)} | {rewrite.text} |" for rewrite in REWRITES]
    assert [row for row in rows if row not in page.splitlines()] == []


def test_labels_behind_the_tables_stay(tmp_path: Path) -> None:
    path, target = real_model("mobilenet_v2_1.0_224_quant"), tmp_path / "after.tflite"
    next(iter(ModelFile(path).edits)).content().write(target)
    assert ModelFile(target, ConversionOptions()).inspection.metadata == ModelFile(path, ConversionOptions()).inspection.metadata
    assert "labels" in ModelFile(target, ConversionOptions()).inspection.metadata


def test_what_is_computed_of_constants_alone_stays_in_its_dimensions() -> None:
    # Weights in float16: between RESHAPEs the delegate would see no constant, and leave the convolution to the host.
    found = [edit.text for edit in ModelFile(MODELS / "digits_float16.tflite").edits if edit.operator == "DEQUANTIZE"]
    assert found
    assert not [text for text in found if "four dimensions" in text]
