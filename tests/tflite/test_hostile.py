"""Hostile files: each is refused with a clear message, quickly and in little memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import flatbuffers
import numpy as np
import pytest

from nnbridge.converters import ConversionOptions
from nnbridge.errors import ConversionError
from nnbridge.file import ModelFile
from nnbridge_tflite.read.metadata import FIELDS as METADATA
from nnbridge_tflite.read.metadata import NAME
from nnbridge_tflite.read.schema import Field, fields
from tests.hostile import check_conversion, check_run
from tests.tflite.agreement import converted, run
from tests.tflite.files import TfliteBuilder

BIG = 2**31 - 1
Made = tuple[TfliteBuilder, list[int], list[int]]


def _of(name: str, inputs: list[object], out: tuple[int, ...], type: str = "float32", **options: int) -> Made:
    """One operator on data (a shape) and constants (arrays)."""
    builder = TfliteBuilder()
    operands = [builder.constant(v) if isinstance(v, np.ndarray) else builder.tensor(v) for v in inputs]
    made = builder.tensor(out, type)
    builder.operator(name, operands, [made], options)
    return builder, [i for i, v in zip(operands, inputs, strict=True) if not isinstance(v, np.ndarray)], [made]


def _numbers(*values: int) -> np.ndarray:
    return np.array(values, np.int32)


_KERNEL = np.ones((2, 3, 3, 2), np.float32)
_IMAGE = (1, 4, 4, 2)
REFUSED: dict[str, tuple[Callable[[], Made], str]] = {
    "negative dimension": (lambda: _of("RELU", [(-1, 3)], (2, 3)), "dimensions of at least 0, found [-1, 3]"),
    "2^31 elements": (lambda: _of("RELU", [(BIG,)], (BIG,)), "a tensor of at most 4294967295 bytes"),
    "2^62 elements": (lambda: _of("RELU", [(BIG, BIG)], (BIG, BIG)), "a tensor of at most 4294967295 bytes"),
    "no element of 2^94": (
        lambda: _of("AVERAGE_POOL_2D", [(BIG, BIG, BIG, 0)], (1, 1, 1, 0), padding=1, stride_w=1, stride_h=1),
        "a tensor of at most 4294967295 bytes, found FLOAT32[2147483647, 2147483647, 2147483647, 0]",
    ),
    "rank 33": (lambda: _of("RELU", [(1,) * 33], (1,) * 33), "at most 32 dimensions, found 33"),
    "negative stride": (
        lambda: _of("CONV_2D", [_IMAGE, _KERNEL], (1, 2, 2, 2), padding=1, stride_w=-1, stride_h=1),
        "stride_w of at least 1, found -1",
    ),
    "huge dilation": (
        lambda: _of("CONV_2D", [_IMAGE, _KERNEL], (1, 2, 2, 2), padding=1, stride_w=1, stride_h=1, dilation_w_factor=BIG),
        "",
    ),
    "huge repetition": (lambda: _of("TILE", [(2,), _numbers(BIG)], (2,)), "an output of 4294967295 bytes at most"),
    "huge padding": (lambda: _of("PAD", [(2,), _numbers(BIG, BIG).reshape(1, 2)], (2,)), "an output of 4294967295 bytes at most"),
    "huge fill": (lambda: _of("FILL", [_numbers(BIG, BIG), np.float32([1]).reshape(())], (2,)), "4294967295 bytes at most"),
    "huge range": (
        lambda: _of("RANGE", [_numbers(v).reshape(()) for v in (0, BIG, 1)], (2,), "int32"),
        "at most 268435456 elements, found [2147483647]",
    ),
    "huge image": (lambda: _of("RESIZE_BILINEAR", [(1, 2, 2, 1), _numbers(BIG, BIG)], (1, 2, 2, 1)), "4294967295 bytes at most"),
    "axis far away": (lambda: _of("PACK", [(2,)], (1, 2), values_count=1, axis=-(2**31)), "an axis in [-2, 2)"),
    "huge transform": (lambda: _of("RFFT2D", [(1, 8), _numbers(1, BIG)], (1, 5), "complex64"), ""),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_hostile_file_is_refused_before_or_at_the_run(name: str, tmp_path: Path) -> None:
    make, message = REFUSED[name]
    builder, inputs, outputs = make()
    path = builder.write(tmp_path / "m.tflite", inputs, outputs)
    verdict = check_conversion(path, ConversionOptions())
    assert verdict.good, verdict
    if verdict.outcome == "model":
        verdict = check_run(path, ConversionOptions())
    assert verdict.outcome == "refused", verdict
    assert message in verdict.message


def test_windows_far_larger_than_the_image_see_the_image(tmp_path: Path) -> None:
    options = {"padding": 0, "stride_w": 2, "stride_h": 2, "filter_width": BIG, "filter_height": BIG}
    builder, inputs, outputs = _of("MAX_POOL_2D", [(1, 4, 4, 1)], (1, 2, 2, 1), **options)
    model, _ = converted(builder.write(tmp_path / "m.tflite", inputs, outputs))
    [answer] = run(model, {"t0": np.arange(16, dtype=np.float32).reshape(1, 4, 4, 1)})
    assert answer.reshape(-1).tolist() == [15, 15, 15, 15]


def test_nothing_plus_nothing_is_nothing(tmp_path: Path) -> None:
    builder, inputs, outputs = _of("ADD", [(0, 3), (0, 3)], (0, 3))
    path = builder.write(tmp_path / "m.tflite", inputs, outputs)
    assert check_conversion(path, ConversionOptions()).good
    assert check_run(path, ConversionOptions()).good


@pytest.mark.parametrize("depth", [1 << 24, 1 << 27])
def test_a_large_answer_of_the_host_takes_no_large_constants(depth: int, tmp_path: Path) -> None:
    """Up to half a gigabyte of ones and zeros by the host's kernel: SELECT would need two constants as large."""
    builder = TfliteBuilder()
    indices, made = builder.tensor((1,), "int32"), builder.tensor((1, depth))
    values = [builder.constant(value) for value in (np.int32(depth), np.float32(1), np.float32(0))]
    builder.operator("ONE_HOT", [indices, *values], [made], {"axis": -1})
    verdict = check_conversion(builder.write(tmp_path / "m.tflite", [indices], [made]), ConversionOptions(mapping="delegate"))
    assert (verdict.outcome, verdict.good) == ("model", True), verdict
    assert verdict.bytes < 100 << 20


@pytest.mark.parametrize("name", ["AVERAGE_POOL_2D", "MAX_POOL_2D"])
def test_a_window_of_a_hundred_million_cells_costs_what_the_image_costs(name: str, tmp_path: Path) -> None:
    """16-bit numbers stay on the host. Without paddings the window fits nowhere; with them it sees the whole image."""
    answers = {}
    for padding, wide in enumerate((0, 8)):
        builder, window = TfliteBuilder(), {"filter_width": 2**27, "filter_height": 2**27, "stride_w": 1, "stride_h": 2}
        data = builder.tensor((1, 2, 2, 2 + wide), "int16", scale=0.5)
        out = builder.tensor((1, 1, 2, 2 + wide), "int16", scale=0.5)
        builder.operator(name, [data], [out], {"padding": padding, **window}, 3)
        answers[padding] = builder.write(tmp_path / f"{padding}.tflite", [data], [out])
    refused = check_run(answers[1], ConversionOptions())
    assert refused.good
    assert "a window that fits into the padded input" in refused.message
    model, _ = converted(answers[0])
    found = run(model, {"t0": np.arange(8, dtype=np.int16).reshape(1, 2, 2, 2)})[0].reshape(-1).tolist()
    assert found == ([3, 4, 3, 4] if name == "AVERAGE_POOL_2D" else [6, 7, 6, 7])


def test_buffers_may_lie_over_each_other(tmp_path: Path) -> None:
    builder, inputs, outputs = _of("ADD", [(2,), np.float32([1, 2])], (2,))
    second = builder.constant(np.float32([1, 2]))
    total = builder.tensor((2,))
    builder.operator("MUL", [outputs[0], second], [total], {})
    values = np.arange(4, dtype=np.float32)
    for i in (1, 2):
        builder.buffers[i] = {"offset": 1 << 20, "size": 8}
    size = len(builder.content(inputs, [total]))
    for i, first in ((1, 0), (2, 1)):
        builder.buffers[i]["offset"] = size + 4 * first
    path = tmp_path / "m.tflite"
    path.write_bytes(builder.content(inputs, [total]) + values.tobytes())
    model, _ = converted(path)
    assert run(model, {"t0": np.float32([10, 20])})[0].tolist() == [10, 42]


def test_an_output_listed_a_thousand_times_is_refused(tmp_path: Path) -> None:
    builder, inputs, outputs = _of("RELU", [(2,)], (2,))
    verdict = check_conversion(builder.write(tmp_path / "m.tflite", inputs, outputs * 1000), ConversionOptions())
    assert "listed at most 100 times, found 1000" in verdict.message


def _tables(builder: flatbuffers.Builder, table: Sequence[Field], **offsets: int) -> int:
    """A table of fields that are offsets."""
    slots = {field.name: field.slot // 2 - 2 for field in table}
    builder.StartObject(max(slots.values()) + 2)
    for name, offset in offsets.items():
        builder.PrependUOffsetTRelativeSlot(slots[name], offset, 0)
    return int(builder.EndObject())


def _vector(builder: flatbuffers.Builder, offsets: Sequence[int]) -> int:
    builder.StartVector(4, len(offsets), 4)
    for offset in reversed(offsets):
        builder.PrependUOffsetTRelative(offset)
    return int(builder.EndVector())


@pytest.mark.parametrize(
    ("shared", "message"),
    [
        ("operator", "operators: expected each operator listed once, found 2000"),
        ("inputs", "numbers in tensors, operators"),
        ("subgraph", "subgraphs: expected each subgraph listed once, found 2000"),
        ("subgraph inputs", "numbers in tensors, operators"),
        ("signature", "numbers in tensors, operators"),
    ],
)
def test_what_tables_share_is_not_copied_for_each(shared: str, message: str, tmp_path: Path) -> None:
    builder = flatbuffers.Builder(1024)
    ints = [builder.CreateNumpyVector(np.array(v, np.int32)) for v in ([1, 4], [0], [1])]
    many = builder.CreateNumpyVector(np.zeros(99_999, np.int32))
    custom = builder.CreateByteVector(bytes(1 << 20))
    tensor = _tables(builder, fields("Tensor"), shape=ints[0])
    more = {"inputs": ints[1], "custom_options": custom} if shared == "operator" else {"inputs": many}
    first = _tables(builder, fields("Operator"), outputs=ints[2], **more)
    each = (first if shared == "operator" else _tables(builder, fields("Operator"), outputs=ints[2], **more) for _ in range(1999))
    parts = {"tensors": _vector(builder, [tensor] * 2), "operators": _vector(builder, [first, *each])}
    if shared in ("subgraph", "subgraph inputs", "signature"):
        parts["operators"] = _vector(builder, [])
    ends = [many if shared == "subgraph inputs" else ints[1], ints[2]]
    count = 2000 if shared == "subgraph inputs" else 1
    graphs = [_tables(builder, fields("SubGraph"), inputs=ends[0], outputs=ends[1], **parts) for _ in range(count)]
    lists = {
        "subgraphs": graphs * 2000 if shared == "subgraph" else graphs,
        "operator_codes": [_tables(builder, fields("OperatorCode"))],
    }
    if shared == "signature":
        mapped = _vector(builder, [_tables(builder, fields("TensorMap"))] * 99_999)
        lists["signature_defs"] = [_tables(builder, fields("SignatureDef"), inputs=mapped) for _ in range(2000)]
    lists["buffers"] = [_tables(builder, fields("Buffer"))]
    offsets = {name: _vector(builder, listed) for name, listed in lists.items()}
    slots = {field.name: field.slot // 2 - 2 for field in fields("Model")}
    builder.StartObject(max(slots.values()) + 1)
    builder.PrependUint32Slot(slots["version"], 3, 0)
    for name, offset in offsets.items():
        builder.PrependUOffsetTRelativeSlot(slots[name], offset, 0)
    builder.Finish(builder.EndObject(), file_identifier=b"TFL3")
    path = tmp_path / "m.tflite"
    path.write_bytes(bytes(builder.Output()))
    verdict = check_conversion(path, ConversionOptions())
    assert verdict.good
    assert message in verdict.message


def test_what_metadata_shares_is_not_copied_for_each(tmp_path: Path) -> None:
    builder = flatbuffers.Builder(1024)
    tensor = _tables(builder, METADATA["TensorMetadata"], name=builder.CreateString("x"))
    tensors = _vector(builder, [tensor] * 200)
    subgraph = _tables(builder, METADATA["SubGraphMetadata"], input_tensor_metadata=tensors, output_tensor_metadata=tensors)
    subgraphs = _vector(builder, [subgraph] * 400)
    builder.Finish(_tables(builder, METADATA["ModelMetadata"], subgraph_metadata=subgraphs), file_identifier=b"M001")
    made, inputs, outputs = _of("RELU", [(2,)], (2,))
    held = [*made.buffers, {"data": np.frombuffer(bytes(builder.Output()), np.uint8)}]
    entry = {"name": NAME, "buffer": len(made.buffers)}
    path = tmp_path / "m.tflite"
    path.write_bytes(made.content(inputs, outputs, metadata=[entry], buffers=held))
    with pytest.raises(ConversionError, match="at most 100,000 values, found more"):
        _ = ModelFile(path, ConversionOptions()).inspection


def test_dimensions_of_a_large_16_bit_convolution_are_found_without_its_sums(tmp_path: Path) -> None:
    # 90 million sums, to learn their dimensions alone, would take 1.4 GB. The bias fits no lowering.
    builder = TfliteBuilder()
    x, y = (builder.tensor((1, 2, 2, depth), "int16", scale=0.1) for depth in (3, 1001))
    weights = builder.constant(np.ones((1001, 3, 3, 3), np.int8), None, scale=0.1)
    bias = builder.constant(np.ones(7, np.int64), None, scale=0.01)
    builder.operator("CONV_2D", [x, weights, bias], [y], {"stride_w": 1, "stride_h": 1})
    path = builder.write(tmp_path / "large.tflite", [x], [y])
    model, _ = converted(path, shapes={"t0": (1, 300, 300, 3)})
    assert model.main.operands[1].dims == (1, 300, 300, 1001)


def _dense(size: int) -> dict[str, int]:
    return {"format": 0, "dense_size": size}


@pytest.mark.parametrize(
    ("shape", "blocks", "message"),
    [
        ((3000, 4000), [], "expected 12000000 stored values, found 4"),
        ((1000, 1000), [0] * 64, "at most 2 dimensions in blocks, found 64"),
        ((2, 2), [0, 0], "blocks of different dimensions"),
        ((2, 2), [7], "blocks of different dimensions below 2"),
        ((3, 2), [0], "blocks that divide a dimension of 3, found 2"),
    ],
)
def test_four_bytes_do_not_ask_for_a_tree_of_millions(
    shape: tuple[int, int], blocks: list[int], message: str, tmp_path: Path
) -> None:
    builder = TfliteBuilder()
    x, weights, out, y = builder.tensor(shape), builder.constant(np.ones(4, np.int8)), *(builder.tensor(shape) for _ in range(2))
    levels = [_dense(size) for size in shape] + [_dense(2 if shape[0] == 3 else 1)] * len(blocks)
    sparsity = {"traversal_order": list(range(len(levels))), "dim_metadata": levels, "block_map": blocks}
    builder.tensors[weights].update(shape=shape, sparsity=sparsity)
    builder.operator("DENSIFY", [weights], [out], {})
    builder.operator("ADD", [x, out], [y], {})
    verdict = check_conversion(builder.write(tmp_path / "m.tflite", [x], [y]), ConversionOptions())
    assert (verdict.outcome, verdict.good) == ("refused", True), verdict
    assert message in verdict.message


@pytest.mark.parametrize("mapping", ["wide", "delegate"])
@pytest.mark.parametrize(("type", "per_byte"), [("float16", 0.5), ("int8", 1), ("int4", 2), ("blocks", 2), ("sparse", 1)])
def test_weights_that_share_a_buffer_are_not_expanded_without_end(
    type: str, per_byte: float, mapping: str, tmp_path: Path
) -> None:
    """A megabyte of packed weights, which each of 500 operators reads as a constant of its own."""
    builder, size = TfliteBuilder(), 1 << 20
    rows = int(size * per_byte) // 32
    x, outs = builder.tensor((1, 32)), []
    builder.buffers.append({"data": np.ones(size, np.uint8)})
    packed, quantised = len(builder.buffers) - 1, {"scale": 0.5} if type in ("int8", "int4", "sparse") else {}
    scales = builder.constant(np.ones(rows, np.float16))
    for _ in range(500):
        stored = {"blocks": "int4", "sparse": "int8"}.get(type, type)
        weights = builder.tensor((rows, 32), stored, buffer=packed, **quantised)
        if type == "blocks":
            details = {"scales": scales, "zero_points": -1, "block_size": 32}
            builder.tensors[weights]["quantization"] = {"details_type": 2, "details": details}
        if type == "sparse":
            builder.tensors[weights]["sparsity"] = {"traversal_order": [0, 1], "dim_metadata": [_dense(rows), _dense(32)]}
            weights, of = builder.tensor((rows, 32), "int8", **quantised), weights
            builder.operator("DENSIFY", [of], [weights], {})
        if type != "blocks":
            weights, of = builder.tensor((rows, 32)), weights
            builder.operator("DEQUANTIZE", [of], [weights], {}, 2)
        outs.append(builder.tensor((1, rows)))
        builder.operator("FULLY_CONNECTED", [x, weights], [outs[-1]], {})
    total = builder.tensor((1, rows))
    builder.operator("ADD_N", outs, [total], {})
    verdict = check_conversion(builder.write(tmp_path / "m.tflite", [x], [total]), ConversionOptions(mapping=mapping))
    assert (verdict.outcome, verdict.good) == ("refused", True), verdict
    assert "elements of new constants" in verdict.message
