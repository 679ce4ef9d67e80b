"""Files that cannot be read: one clear error each, naming the file and the place."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import flatbuffers
import numpy as np
import pytest

from nnbridge.errors import ConversionError
from nnbridge.file import load
from nnbridge_tflite.read.flatbuffer import Decoder, Malformed
from nnbridge_tflite.read.reader import read
from nnbridge_tflite.read.schema import Kind, builtin_codes, fields
from nnbridge_tflite.write import pack
from tests.tflite.files import TfliteBuilder


def _adder(**options: Any) -> TfliteBuilder:
    builder = TfliteBuilder()
    data, out = builder.tensor((2, 3), name="data"), builder.tensor((2, 3), name="sum")
    constant = builder.constant(np.arange(3, dtype=np.float32), name="bias")
    builder.operator("ADD", [data, constant], [out], {"fused_activation_function": 0, **options})
    return builder


def _content() -> bytes:
    return _adder().content([0], [1])


def _refused(tmp_path: Path, content: bytes) -> str:
    path = tmp_path / "model.tflite"
    path.write_bytes(content)
    with pytest.raises(ConversionError) as caught:
        load(path)
    assert str(path) in str(caught.value)
    return str(caught.value)


def test_intact_file_converts(tmp_path: Path) -> None:
    path = tmp_path / "model.tflite"
    path.write_bytes(_content())
    assert len(load(path).main.operations) == 1


def test_constants_are_views_of_the_mapped_file(tmp_path: Path) -> None:
    builder = TfliteBuilder()
    data, out = builder.tensor((1, 40)), builder.tensor((1, 40))
    weights = builder.constant(np.random.default_rng(0).standard_normal((40, 40)), "float32")
    builder.operator("FULLY_CONNECTED", [data, weights], [out], {})
    model = load(builder.write(tmp_path / "m.tflite", [data], [out]))
    constant = next(o for o in model.main.operands if o.is_constant and o.dims == (40, 40))
    assert len(model.pools[constant.location.pool]) == (tmp_path / "m.tflite").stat().st_size


@pytest.mark.parametrize("content", [b"", b"abc", b"hello, this is a text file\n" * 9, b"\x08\0\0\0ONNX" + bytes(64)])
def test_other_files_are_refused(content: bytes, tmp_path: Path) -> None:
    assert ("TFLite file" if content else "expected a model file, found an empty file") in _refused(tmp_path, content)


def test_every_truncation_is_refused(tmp_path: Path) -> None:
    content = _content()
    for length in range(8, len(content) - 16, 7):
        path = tmp_path / "short.tflite"
        path.write_bytes(content[:length])
        with pytest.raises(ConversionError):
            read(path)


def test_root_offset_past_the_end(tmp_path: Path) -> None:
    content = struct.pack("<I", 2**31) + _content()[4:]
    assert "bytes" in _refused(tmp_path, content)


def test_schema_version_is_checked(tmp_path: Path) -> None:
    assert "schema version 3, found 7" in _refused(tmp_path, _adder().content([0], [1], version=7))


def test_missing_subgraph(tmp_path: Path) -> None:
    assert "at least one subgraph" in _refused(tmp_path, _adder().content([0], [1], subgraphs=[]))


def _tensor(**changes: Any) -> Callable[[TfliteBuilder], None]:
    return lambda builder: builder.tensors[2].update(changes)


def _operator(**changes: Any) -> Callable[[TfliteBuilder], None]:
    return lambda builder: builder.operators[0].update(changes)


def _scales(*scales: float, points: int | None = None, axis: int = 0) -> Callable[[TfliteBuilder], None]:
    zeros = [0] * (len(scales) if points is None else points)
    return _tensor(quantization={"scale": list(scales), "zero_point": zeros, "quantized_dimension": axis})


WRONG = {
    "tensor 2 'bias': expected a buffer of 16 bytes for FLOAT32[4], found 12 bytes": _tensor(shape=[4]),
    "tensor 2 'bias': expected a buffer below 2, found 9": _tensor(buffer=9),
    "tensor 2 'bias': expected dimensions of at least 0, found [-3]": _tensor(shape=[-3]),
    "tensor 2 'bias': expected a tensor of at most 4294967295 bytes": _tensor(shape=[2**31 - 1, 2**31 - 1], buffer=0),
    "tensor 2 'bias': expected a known element type, found 99": _tensor(type=99),
    "tensor 2 'bias': expected one scale, or 3 along dimension 0 of [3], found 2 scales": _scales(1.0, 2.0),
    "tensor 2 'bias': expected as many zero points as scales (3), found 2": _scales(1.0, 2.0, 3.0, points=2),
    "tensor 2 'bias': expected finite scales of at least 0, found nan": _scales(1.0, float("nan"), 3.0),
    "operator 0: expected an operator code below 1, found 5": _operator(opcode_index=5),
    "inputs of operator 0 ADD: expected a tensor index below 3, found 77": _operator(inputs=[0, 77]),
    "outputs of operator 0 ADD: expected a tensor index below 3, found -1": _operator(outputs=[-1]),
    "operator 0 ADD: expected 2 inputs, found 1": _operator(inputs=[0]),
    "operator 0 ADD: expected 1 outputs, found 0": _operator(outputs=[]),
    "operator 0 ADD: expected an input 1, found none": _operator(inputs=[0, -1]),
    "operator 0 ADD: expected inputs that an earlier operator writes, found tensor 1 'sum'": _operator(inputs=[0, 1]),
    "operator 0 ADD: expected outputs that are written once, found tensor 0 'data'": _operator(outputs=[0]),
}


@pytest.mark.parametrize("message", WRONG)
def test_wrong_part_is_named(message: str, tmp_path: Path) -> None:
    builder = _adder()
    WRONG[message](builder)
    assert message in _refused(tmp_path, builder.content([0], [1]))


def test_unknown_operator_code(tmp_path: Path) -> None:
    builder = _adder()
    builder.codes[0].update(builtin_code=9999)
    assert "a known builtin operator code, found 9999" in _refused(tmp_path, builder.content([0], [1]))


def test_unwritten_output(tmp_path: Path) -> None:
    builder = _adder()
    lost = builder.tensor((2,), name="lost")
    assert f"found tensor {lost} 'lost'" in _refused(tmp_path, builder.content([0], [lost]))


def test_cyclic_operators(tmp_path: Path) -> None:
    builder = TfliteBuilder()
    data, a, b = (builder.tensor((2,)) for _ in range(3))
    builder.operator("ADD", [data, b], [a], {})
    builder.operator("ADD", [data, a], [b], {})
    assert "inputs that an earlier operator writes" in _refused(tmp_path, builder.content([data], [b]))


def test_activation_that_kernels_pass_over(tmp_path: Path) -> None:
    content = _adder(fused_activation_function=4).content([0], [1])
    assert "a fused activation of NONE, RELU, RELU1, RELU6, found 4" in _refused(tmp_path, content)


def test_buffer_behind_the_flatbuffer(tmp_path: Path) -> None:
    builder = _adder()
    weights = np.arange(3, dtype=np.float32).tobytes()
    builder.buffers[1] = {"offset": 1 << 20, "size": len(weights)}
    assert "buffers[1]" in _refused(tmp_path, builder.content([0], [1]))
    size = len(builder.content([0], [1]))
    builder.buffers[1]["offset"] = size
    path = tmp_path / "large.tflite"
    path.write_bytes(builder.content([0], [1]) + weights)
    assert len(load(path).main.operations) == 1


def _shared(builder: flatbuffers.Builder, table: str, name: str, child: int, count: int) -> int:
    """A table whose vector ``name`` has the same offset ``count`` times."""
    builder.StartVector(4, count, 4)
    for _ in range(count):
        builder.PrependUOffsetTRelative(child)
    vector = builder.EndVector()
    slot = next(f.slot for f in fields(table) if f.name == name)
    builder.StartObject(8)
    builder.PrependUOffsetTRelativeSlot(slot // 2 - 2, vector, 0)
    return int(builder.EndObject())


def test_table_that_many_offsets_point_at_is_decoded_once() -> None:
    builder = flatbuffers.Builder(1 << 16)
    tensor = pack(builder, "Tensor", {"name": "t"})
    subgraph = _shared(builder, "SubGraph", "tensors", tensor, 3000)
    builder.Finish(_shared(builder, "Model", "subgraphs", subgraph, 3000), b"TFL3")
    subgraphs = Decoder(memoryview(bytes(builder.Output()))).root("Model")["subgraphs"]
    assert len(subgraphs) == 3000
    assert len({id(tensor) for subgraph in subgraphs for tensor in subgraph["tensors"]}) == 1


def test_fields_that_share_bytes_are_each_read() -> None:
    # A vtable of Buffer whose fields offset (slot 6) and size (slot 8) both stand at byte 4 of the table.
    vtable, table = struct.pack("<5H", 10, 12, 0, 4, 4), struct.pack("<iq", 10, 77)
    found = Decoder(memoryview(struct.pack("<I", 14) + vtable + table)).root("Buffer")
    assert (found["offset"], found["size"], found["data"]) == (77, 77, None)


def test_a_vtable_longer_than_the_schema_is_read_as_far_as_that_is_known() -> None:
    vtable, table = struct.pack("<40H", 80, 12, 0, 4, 0, *([9] * 35)), struct.pack("<iq", 80, 77)
    assert Decoder(memoryview(struct.pack("<I", 84) + vtable + table)).root("Buffer")["offset"] == 77


def test_work_has_a_ceiling(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nnbridge_tflite.read.flatbuffer.MAX_TABLES", 3)
    with pytest.raises(Malformed, match="tables"):
        Decoder(memoryview(_content())).root("Model")


def test_schema_knows_every_kind_of_field() -> None:
    known = {field.name: field for table in ("Model", "Tensor", "Operator", "OperatorCode") for field in fields(table)}
    assert (known["subgraphs"].kind, known["subgraphs"].target) == (Kind.TABLES, "SubGraph")
    assert (known["shape"].kind, known["shape"].format) == (Kind.SCALARS, "i")
    assert (known["builtin_options"].kind, known["builtin_options"].target) == (Kind.UNION, "BuiltinOptions")
    assert (known["version"].slot, known["version"].default) == (8, 1)
    assert known["builtin_code"].slot == 10
    assert builtin_codes()["CONV_2D"] == 3


def test_a_vtable_may_stand_behind_its_table() -> None:
    vtable, table = struct.pack("<5H", 10, 12, 0, 4, 4), struct.pack("<iq", -12, 77)
    assert Decoder(memoryview(struct.pack("<I", 4) + table + vtable)).root("Buffer")["offset"] == 77


@pytest.mark.parametrize(
    ("to_vtable", "reason"), [(0, "a vtable of even length"), (5, "a vtable inside"), (-100, "a vtable inside")]
)
def test_a_vtable_outside_the_file_or_inside_its_own_table_is_refused(to_vtable: int, reason: str) -> None:
    with pytest.raises(Malformed, match=reason):
        Decoder(memoryview(struct.pack("<Ii2I", 4, to_vtable, 0, 0))).root("Model")


def test_offsets_count_forwards_so_that_no_table_holds_itself() -> None:
    # Model's fields of slots 4 to 12 all lead from byte 4 of the table to the table, which would be 4 bytes back.
    vtable = struct.pack("<7H", 14, 8, 4, 4, 4, 4, 4)
    with pytest.raises(Malformed):
        Decoder(memoryview(struct.pack("<I", 18) + vtable + struct.pack("<iI", 14, 2**32 - 4))).root("Model")
