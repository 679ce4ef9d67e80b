"""The part of a phone that refuses an operator: the delegate's Validate, NNAPI while a model is built, NNAPI when it runs.

Facts: tensorflow/lite/delegates/nnapi/nnapi_delegate.cc as LiteRT has it (f674577), Validate from line 2358 on, Map from 3658 on.
LiteRT 3596 has a phone's log of an int8 FULLY_CONNECTED with a scale for each unit, which NNAPI refuses.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nnbridge.converters import ConversionOptions
from nnbridge.converters.delegation import refusal_of, stage_of
from nnbridge.converters.inspection import Mapped
from nnbridge.errors import NnbridgeError, Stage
from nnbridge.file import ModelFile
from tests.differential import Fork
from tests.tflite.cases import cases
from tests.tflite.differential import DRAWS, content_of
from tests.tflite.files import TfliteBuilder
from tests.tflite.verdicts import CREATED, FAILS, asked

Made = tuple[list[int], list[int]]
Make = Callable[[TfliteBuilder], Made]
Q8 = {"scale": 0.1, "zero_point": 3}
WINDOW = {"padding": 0, "stride_w": 1, "stride_h": 1, "dilation_w_factor": 1, "dilation_h_factor": 1}
MASKS = dict.fromkeys(("begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask", "shrink_axis_mask"), 0)
NONE = {"fused_activation_function": 0}


def one(
    name: str,
    shape: tuple[int, ...],
    out: tuple[int, ...],
    *constants: Any,
    type: str = "float32",
    out_type: str = "",
    version: int = 1,
    parameters: tuple[dict[str, Any], dict[str, Any]] = ({}, {}),
    **options: Any,
) -> Make:
    """An operator of one computed input and constants; constants are arrays, or an array and what else its tensor has."""

    def make(b: TfliteBuilder) -> Made:
        x, y = b.tensor(shape, type, **parameters[0]), b.tensor(out, out_type or type, **parameters[1])
        known = [b.constant(c[0], **c[1]) if isinstance(c, tuple) else b.constant(c) for c in constants]
        b.operator(name, [x, *known], [y], options, version)
        return [x], [y]

    return make


def pair(name: str, shape: tuple[int, ...], out: tuple[int, ...], **more: Any) -> Make:
    """An operator of a tensor and itself."""

    def make(b: TfliteBuilder) -> Made:
        kinds = {key: more[key] for key in ("type", "scale") if key in more}
        x, y = b.tensor(shape, **kinds), b.tensor(out, **kinds | more.get("result", {}))
        b.operator(name, [x, x], [y], more.get("options", NONE), more.get("version", 1))
        return [x], [y]

    return make


def weighed(name: str, data: str, *, axis: int | None = None, version: int = 1, bias: bool = True, units: int = 2) -> Make:
    """A product with int8 weights, one scale or one for each unit."""

    def make(b: TfliteBuilder) -> Made:
        dense = name == "FULLY_CONNECTED"
        quantised = Q8 if data == "int8" else {}
        x = b.tensor((1, 4) if dense else (1, 3, 3, 2), data, **quantised)
        y = b.tensor((1, units) if dense else (1, 3, 3, units), data, **quantised)
        size = {"FULLY_CONNECTED": (units, 4), "DEPTHWISE_CONV_2D": (1, 1, 1, units)}.get(name, (units, 1, 1, 2))
        scales = [0.01] if axis is None else list(np.linspace(0.01, 0.02, size[axis]))
        w = b.constant(np.ones(size, np.int8), scale=scales, zero_point=[0] * len(scales), axis=axis or 0)
        kind = np.int32 if data == "int8" else np.float32
        zero = {"scale": [0.1 * scale for scale in scales], "zero_point": [0] * len(scales)} if data == "int8" else {}
        known = [w, b.constant(np.zeros(units, kind), **zero)] if bias else [w]
        shape = [b.constant(np.int32([1, 3, 3, units]))] if name == "TRANSPOSE_CONV" else []
        options = NONE if dense else {**WINDOW, **NONE, **({"depth_multiplier": 1} if name.startswith("DEPTH") else {})}
        operands = [*shape, known[0], x, *known[1:]] if shape else [x, *known]
        b.operator(name, operands, [y], {k: v for k, v in options.items() if not (shape and "dilation" in k)}, version)
        return [x], [y]

    return make


LAST = {**MASKS, "begin_mask": 5, "end_mask": 5, "shrink_axis_mask": 2}
BUILDING: dict[str, tuple[Make, str]] = {
    "FULLY_CONNECTED int8, a scale for each unit": (
        weighed("FULLY_CONNECTED", "int8", axis=0, version=5), "TENSOR_QUANT8_ASYMM_SIGNED",
    ),
    # NNAPI casts int8 to int8 alone.
    "CAST from int8": (
        one("CAST", (2, 3), (2, 3), type="int8", out_type="float32", parameters=(Q8, {})), "TENSOR_QUANT8_ASYMM_SIGNED",
    ),
    "TRANSPOSE of int32": (one("TRANSPOSE", (2, 3), (3, 2), np.int32([1, 0]), type="int32"), "TENSOR_FLOAT16 or"),
    "TRANSPOSE of rank 5": (one("TRANSPOSE", (1, 1, 1, 2, 3), (1, 1, 1, 3, 2), np.int32([0, 1, 2, 4, 3])), "rank 0 to 4"),
    "SQUEEZE of int32": (one("SQUEEZE", (1, 3), (3,), type="int32", squeeze_dims=[0]), "TENSOR_FLOAT16 or"),
    "SPACE_TO_BATCH_ND of int32": (
        one("SPACE_TO_BATCH_ND", (1, 2, 2, 1), (4, 1, 1, 1), np.int32([2, 2]), np.zeros((2, 2), np.int32), type="int32"),
        "TENSOR_FLOAT16 or",
    ),
    "FULLY_CONNECTED of rank 5": (
        one("FULLY_CONNECTED", (1, 1, 1, 2, 4), (2, 2), np.ones((2, 4), np.float32), np.zeros(2, np.float32), **NONE), "rank",
    ),
    "TRANSPOSE by an int64 order": (one("TRANSPOSE", (2, 3), (3, 2), np.int64([1, 0])), "a tensor of FLOAT32"),
    "DEPTHWISE_CONV_2D of floats by int8": (weighed("DEPTHWISE_CONV_2D", "float32", axis=3, version=3), "TENSOR_FLOAT32"),
    "DEPTHWISE_CONV_2D without a bias": (weighed("DEPTHWISE_CONV_2D", "int8", version=3, bias=False), "a bias"),
    "TRANSPOSE_CONV of floats by int8": (weighed("TRANSPOSE_CONV", "float32"), "TENSOR_FLOAT32"),
    "MUL of a small output scale": (
        pair("MUL", (2, 3), (2, 3), type="int8", scale=0.5, result={"scale": 0.1}, version=2), "an output scale above 0.25",
    ),
    "LEAKY_RELU of int8 by 0": (
        one("LEAKY_RELU", (2, 3), (2, 3), type="int8", parameters=(Q8, Q8), alpha=0.0), "an alpha above 0 for 8-bit tensors",
    ),
}  # fmt: skip
RUNNING: dict[str, tuple[Make, str]] = {
    "x[:, -1, :]": (
        one("STRIDED_SLICE", (1, 6, 4), (1, 4), np.int32([0, -1, 0]), np.int32([0, 0, 0]), np.int32([1, 1, 1]), **LAST),
        "exactly one element along a dropped axis",
    ),
    "a new axis": (
        one("STRIDED_SLICE", (4,), (1, 4), *map(np.int32, ([0, 0], [0, 4], [1, 1])), **MASKS | {"new_axis_mask": 1}),
        "no new_axis_mask",
    ),
    "batches of a GATHER": (
        one("GATHER", (2, 3), (2, 1), np.int32([[0], [1]]), version=1, axis=1, batch_dims=1), "no batch dimensions",
    ),
}  # fmt: skip
DELEGATE: dict[str, tuple[Make, str]] = {
    **{
        f"{name} of rank 5": (pair(name, (1, 1, 1, 2, 3), (1, 1, 1, 2, 3)), "inputs of rank 4 at most")
        for name in ("ADD", "MUL", "DIV")
    },
    "RESHAPE of rank 5": (one("RESHAPE", (1, 1, 1, 2, 3), (2, 3), np.int32([2, 3])), "an input of rank 4 at most"),
    "RESHAPE to rank 5": (one("RESHAPE", (2, 3), (1, 1, 1, 2, 3), np.int32([1, 1, 1, 2, 3])), "an output of rank 4 at most"),
    "MEAN of rank 5": (one("MEAN", (1, 1, 1, 2, 3), (1, 1, 1, 2), np.int32([4]), keep_dims=False), "an input of rank 4 at most"),
    "STRIDED_SLICE of float16": (
        one("STRIDED_SLICE", (4,), (2,), *map(np.int32, ([0], [2], [1])), type="float16", **MASKS),
        "an input 0 of FLOAT32 or UINT8 or INT8",
    ),
    "GATHER of one index": (one("GATHER", (4,), (), np.int32(1), axis=0), "indices of rank 1 or more"),
    "QUANTIZE to int16": (
        one("QUANTIZE", (4,), (4,), out_type="int16", parameters=({}, {"scale": 0.1})), "an output of UINT8 or INT8",
    ),
    "BATCH_TO_SPACE_ND with crops": (
        one("BATCH_TO_SPACE_ND", (4, 2, 2, 1), (1, 3, 4, 1), np.int32([2, 2]), np.int32([[0, 1], [0, 0]])), "two crops of 0",
    ),
    "PAD of nothing": (one("PAD", (0, 2), (0, 4), np.int32([[0, 0], [1, 1]])), "an input with elements"),
}  # fmt: skip
TAKEN: dict[str, Make] = {
    "CONV_2D of floats by int8, a scale for each unit": weighed("CONV_2D", "float32", axis=0, version=5),
    "CONV_2D of floats by int8": weighed("CONV_2D", "float32", version=2),
    "FULLY_CONNECTED v1 of floats by int8, a scale for each unit": weighed("FULLY_CONNECTED", "float32", axis=0),
    "RESHAPE by its options": one("RESHAPE", (2, 3), (3, 2), new_shape=[3, 2]),
}


def placed(make: Make, folder: Path, **options: Any) -> Mapped:
    """The outcome of the only operator."""
    builder = TfliteBuilder()
    path = builder.write(folder / "one.tflite", *make(builder))
    return ModelFile(path, ConversionOptions(mapping="delegate", accelerated=True, **options)).converted[1][-1]


@pytest.mark.parametrize("name", BUILDING)
def test_nnapi_refuses_while_the_model_is_built(name: str, tmp_path: Path) -> None:
    make, rule = BUILDING[name]
    found = placed(make, tmp_path)
    assert stage_of(found) is Stage.BUILDING
    assert rule in found.reasons[0].rule
    refusal = refusal_of([found])
    assert refusal is not None
    assert "takes 1 of 1 operator; building fails at operator 0" in refusal.sentence


@pytest.mark.parametrize("name", RUNNING)
def test_nnapi_fails_to_run(name: str, tmp_path: Path) -> None:
    make, rule = RUNNING[name]
    found = placed(make, tmp_path)
    assert stage_of(found) is Stage.RUNNING
    assert found.reasons[0].rule == rule


@pytest.mark.parametrize("name", DELEGATE)
def test_the_delegates_validate_refuses(name: str, tmp_path: Path) -> None:
    make, rule = DELEGATE[name]
    found = placed(make, tmp_path)
    assert stage_of(found) is Stage.DELEGATE
    assert found.reasons[0].rule == rule


@pytest.mark.parametrize("name", TAKEN)
def test_nothing_refuses(name: str, tmp_path: Path) -> None:
    assert placed(TAKEN[name], tmp_path).mapping == "delegate"


@pytest.mark.parametrize("name", [*BUILDING, *DELEGATE, *TAKEN])
def test_the_delegate_library_goes_the_same_way_in_litert(name: str) -> None:
    pytest.importorskip("ai_edge_litert.interpreter")
    make = TAKEN.get(name) or ({**BUILDING, **DELEGATE}[name])[0]
    builder = TfliteBuilder()
    fork = Fork(asked)
    try:
        (verdict,) = fork.run(builder.content(*make(builder)))
    finally:
        fork.close()
    if verdict.outcome.startswith("LiteRT"):
        pytest.skip(f"LiteRT has no kernel: {verdict.text}")
    assert verdict.outcome == (FAILS if name in BUILDING else CREATED), verdict.text
    assert "ANEURALNETWORKS_BAD_DATA" in verdict.text or name not in BUILDING


def test_what_the_delegate_takes_stays_with_tflite_where_the_model_cannot_be_built(tmp_path: Path) -> None:
    builder = TfliteBuilder()
    x, y, z = builder.tensor((2, 3), "int32"), builder.tensor((2, 3), "int32"), builder.tensor((3, 2), "int32")
    builder.operator("ADD", [x, x], [y], NONE, 1)
    builder.operator("TRANSPOSE", [y, builder.constant(np.int32([1, 0]))], [z], {})
    n = builder.tensor((3, 2), "int32")
    builder.operator("ABS", [z], [n], {})
    found = ModelFile(builder.write(tmp_path / "m.tflite", [x], [n]), ConversionOptions(mapping="delegate")).converted[1]
    # ABS of int32 is the delegate's own refusal; the others it takes.
    assert [stage_of(one) for one in found] == [Stage.BUILDING, Stage.BUILDING, Stage.DELEGATE]
    refusal = refusal_of(found)
    assert refusal is not None
    assert (refusal.taken, refusal.operators, refusal.reason.operation) == (2, 3, "operator 1 TRANSPOSE")


def refused(path: Path) -> Iterator[Mapped]:
    """Operators that nnbridge does not hand over, of all single-operator files and of drawn ones."""
    rng = np.random.default_rng(11)
    for level in (8, 2):
        for case in cases():
            for type in case.types:
                builder = TfliteBuilder()
                yield from of_content(path, builder.content(*case.add(builder, type)), level)
    for name in sorted(DRAWS):
        for version in (1, 2, 3):
            drawn = DRAWS[name](rng, name)
            drawn.version = version
            shapes = {id(out): out.shape for out in drawn.outputs}
            yield from of_content(path, content_of([drawn], drawn.outputs, shapes), 8)


def of_content(path: Path, content: bytes, level: int) -> list[Mapped]:
    path.write_bytes(content)
    options = ConversionOptions(level, "delegate", allow_dynamic_dimensions=True)
    try:
        return [one for one in ModelFile(path, options).converted[1] if one.mapping == "host"]
    except NnbridgeError:
        return []


def test_each_refusal_says_which_part_of_the_phone_refuses(tmp_path: Path) -> None:
    logging.disable(logging.WARNING)
    try:
        found = list(refused(tmp_path / "case.tflite"))
    finally:
        logging.disable(logging.NOTSET)
    assert len(found) > 500
    assert not {(one.operator, reason.rule) for one in found for reason in one.reasons if reason.stage is None}
