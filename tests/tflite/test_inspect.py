"""``nnbridge inspect`` and signatures: what files say of themselves."""

from __future__ import annotations

import zipfile
from pathlib import Path

import flatbuffers
import numpy as np
import pytest

from nnbridge.compare import compare, seeded_samples
from nnbridge.compare.litert import LiteRT
from nnbridge.converters import ConversionOptions
from nnbridge.converters.inspection import TensorMetadata
from nnbridge.errors import ConversionError
from nnbridge.file import ModelFile, load
from nnbridge.runtime.compilation import Compilation
from nnbridge_tflite.declaration import REGISTRY
from nnbridge_tflite.host import HOST
from nnbridge_tflite.read.metadata import NAME, metadata
from nnbridge_tflite.read.reader import read
from nnbridge_tflite.read.schema import builtin_names
from nnbridge_tflite.rules import DelegateRule
from tests.commands import call
from tests.conftest import MODELS
from tests.tflite.cases import cases
from tests.tflite.files import TfliteBuilder
from tests.tflite.shared import real_model


def test_the_interface_the_operators_and_the_weights() -> None:
    found = ModelFile(MODELS / "digits_int8.tflite", ConversionOptions()).inspection
    assert [(t.type, t.shape) for t in found.inputs] == [("INT8", (1, 8, 8, 1))]
    assert found.operators["CONV_2D"] == 3
    assert found.quantised_tensors > 0
    assert 0 < found.weight_bytes < found.file_bytes


def test_what_maps_is_reported_for_each_mapping_with_the_reasons_of_what_does_not() -> None:
    found = ModelFile(real_model("yamnet_wavin_quantized_mel_relu6"), ConversionOptions()).inspection
    left = {name: [m.operator for m in mapped if m.mapping == "host"] for name, mapped in found.mappings.items()}
    assert "RFFT2D" in left["delegate"]
    assert "RFFT2D" in left["wide"]
    assert all(m.reasons for mapped in found.mappings.values() for m in mapped if m.mapping == "host")


def test_a_file_that_cannot_be_converted_is_still_looked_into(tmp_path: Path) -> None:
    builder = TfliteBuilder()
    data, out = builder.tensor((1, 2, 2, 1)), builder.tensor((2, 2, 2, 1))
    inputs = [builder.constant([2, 2, 2, 1], "int32"), builder.constant(np.ones((1, 1, 1, 1)), "float32"), data]
    builder.operator("TRANSPOSE_CONV", inputs, [out], {"stride_h": 1, "stride_w": 1}, 1)
    found = ModelFile(builder.write(tmp_path / "m.tflite", [data], [out]), ConversionOptions()).inspection
    assert found.operators == {"TRANSPOSE_CONV": 1}
    assert "expected an output shape with the input's batch, 1" in found.notes[1]
    assert "not converted under the wide mapping" in found.notes[1]


def test_an_onnx_file() -> None:
    pytest.importorskip("onnx")
    found = ModelFile(MODELS / "digits_float32.onnx", ConversionOptions()).inspection
    assert (found.format, found.inputs[0].type) == ("onnx", "FLOAT")
    assert set(found.mappings) == {"provider", "wide"}


@pytest.mark.parametrize("key", ["model_one", "model_two"])
def test_each_signature_runs_by_its_own_names(key: str) -> None:
    path = real_model("two_signature_keys")
    compilation = Compilation.create(load(path, ConversionOptions(signature=key)), [])
    compilation.finish()
    model = compilation.model
    assert [model.main.operands[i].name for i in model.main.outputs] == ["output_0", "output_1", "output_2"]
    assert compare(compilation, "litert", seeded_samples(model, LiteRT(path, key), [0])).passed


def test_without_a_signature_the_choice_is_reported_and_all_of_them_are_inspected(caplog: pytest.LogCaptureFixture) -> None:
    path = real_model("two_signature_keys")
    assert [len(mapped) for mapped in ModelFile(path, ConversionOptions()).inspection.mappings.values()] == [6, 6]
    assert caplog.text == ""
    assert len(load(path).main.operations) == 3
    assert "the signatures model_one, model_two differ; without --signature, its main graph is converted" in caplog.text
    assert [len(m) for m in ModelFile(path, ConversionOptions(signature="model_two")).inspection.mappings.values()] == [3, 3]


def test_an_unknown_signature_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(ConversionError, match=r"a signature of the file \(model_one, model_two\), found three"):
        load(real_model("two_signature_keys"), ConversionOptions(signature="three"))


def labelled(folder: Path) -> Path:
    """A file with metadata: a name, a normalisation and a sample rate of the input, labels in an archive behind the file."""
    content = flatbuffers.Builder()

    def table(fields: dict[int, int]) -> int:
        content.StartObject(8)
        for slot, offset in fields.items():
            content.PrependUOffsetTRelativeSlot(slot, offset, 0)
        return int(content.EndObject())

    def vector(offsets: list[int]) -> int:
        content.StartVector(4, len(offsets), 4)
        for offset in reversed(offsets):
            content.PrependUOffsetTRelative(offset)
        return int(content.EndVector())

    mean = content.CreateNumpyVector(np.array([127.5], np.float32))
    deviation = content.CreateNumpyVector(np.array([128.0], np.float32))
    normalisation = table({0: mean, 1: deviation})
    content.StartObject(2)
    content.PrependUint8Slot(0, 1, 0)
    content.PrependUOffsetTRelativeSlot(1, normalisation, 0)
    unit = int(content.EndObject())
    content.StartObject(2)
    content.PrependUint32Slot(0, 16000, 0)
    sound = int(content.EndObject())
    content.StartObject(3)
    content.PrependUint8Slot(0, 4, 0)
    content.PrependUOffsetTRelativeSlot(1, sound, 0)
    sort = int(content.EndObject())
    image = table({0: content.CreateString("image"), 3: sort, 4: vector([unit])})
    file_name = content.CreateString("labels.txt")
    content.StartObject(5)
    content.PrependUOffsetTRelativeSlot(0, file_name, 0)
    content.PrependInt8Slot(2, 2, 0)
    file = int(content.EndObject())
    score = table({0: content.CreateString("score"), 6: vector([file])})
    subgraph = table({2: vector([image]), 3: vector([score])})
    content.Finish(table({0: content.CreateString("digits"), 3: vector([subgraph])}), file_identifier=b"M001")

    builder = TfliteBuilder()
    x, y = builder.tensor((1, 4), "float32"), builder.tensor((1, 4), "float32")
    builder.operator("RELU", [x], [y], {})
    entry, held = {"name": NAME, "buffer": len(builder.buffers)}, {"data": np.frombuffer(content.Output(), np.uint8)}
    path = folder / "labelled.tflite"
    path.write_bytes(builder.content([x], [y], metadata=[entry], buffers=[*builder.buffers, held]))
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("labels.txt", "zero\none\n")
    return path


def test_metadata_reports_normalisation_and_labels(tmp_path: Path) -> None:
    found = ModelFile(labelled(tmp_path), ConversionOptions()).inspection.metadata
    (subgraph,) = found["subgraph_metadata"]
    assert found["name"] == "digits"
    assert subgraph["input_tensor_metadata"][0]["process_units"] == [{"options": {"mean": [127.5], "std": [128.0]}}]
    assert found["labels"] == {"labels.txt": ["zero", "one"]}


def test_an_interface_has_normalisation_rate_and_labels_of_each_tensor(tmp_path: Path) -> None:
    found = ModelFile(labelled(tmp_path)).interface
    assert [tensor.metadata for tensor in found.inputs] == [TensorMetadata((127.5,), (128.0,), 16000)]
    assert [tensor.metadata for tensor in found.outputs] == [TensorMetadata(labels=("zero", "one"))]


def test_a_run_does_without_metadata_that_is_damaged(tmp_path: Path) -> None:
    path = labelled(tmp_path)
    content = bytearray(path.read_bytes())
    at = content.rindex(b"PK\x01\x02") + 16
    content[at : at + 4] = bytes(4)
    path.write_bytes(content)
    done = call("run", path, "--seed", "0")
    assert done.exit_code == 0
    assert f"metadata is not used: {path} archive labels.txt: expected an archive that can be read" in done.stderr


# Where a field stands in an archive's directory, and a value that cannot be read.
DAMAGES = {
    "a version that is not known": (6, b"\xff\x00", "archive: expected an archive that can be read, found zip file version 25.5"),
    "encryption": (8, b"\x01\x00", "archive labels.txt: expected an archive that can be read, found File .* is encrypted"),
    "a compression that is not known": (
        10,
        b"\x63\x00",
        "archive labels.txt: expected a file that is stored .* found method 99",
    ),
    "a wrong checksum": (16, b"\x01\x02\x03\x04", "archive labels.txt: .* found Bad CRC-32"),
    "a place outside": (42, b"\xff\xff\xff\x00", "archive labels.txt: .* found Truncated file header"),
}


@pytest.mark.parametrize(("at", "value", "message"), DAMAGES.values(), ids=DAMAGES)
def test_an_archive_of_labels_that_cannot_be_read_is_refused_with_its_place(
    at: int, value: bytes, message: str, tmp_path: Path
) -> None:
    path = labelled(tmp_path)
    content = bytearray(path.read_bytes())
    at += content.rindex(b"PK\x01\x02")
    content[at : at + len(value)] = value
    path.write_bytes(content)
    with pytest.raises(ConversionError, match=message):
        _ = ModelFile(path, ConversionOptions()).inspection


def test_damaged_metadata_is_refused_with_its_place(tmp_path: Path) -> None:
    path = labelled(tmp_path)
    content = path.read_bytes()
    at = content.index(b"M001")
    path.write_bytes(content[: at - 4] + b"\xff\xff\xff\x7f" + content[at:])
    with pytest.raises(ConversionError, match="metadata root: expected a table inside"):
        metadata(read(path))


def test_every_operator_that_the_delegate_maps_is_compared_with_litert() -> None:
    # The recurrent operators and FILL have tests of their own.
    own = {"FILL", "LSTM", "RNN", "SVDF", "BIDIRECTIONAL_SEQUENCE_LSTM"}
    own |= {f"UNIDIRECTIONAL_SEQUENCE_{kind}" for kind in ("LSTM", "RNN")}
    mapped = {declared.name for declared in REGISTRY if isinstance(declared.delegate, DelegateRule)}
    assert mapped - own == mapped & {case.operator for case in cases()}


def test_every_builtin_has_a_place() -> None:
    for operation in HOST.operations.values():
        assert operation.prepare is not None or operation.control or operation.reason
    assert {operation.name for operation in HOST.operations.values()} == set(builtin_names().values())


def test_a_signature_may_name_a_tensor_inside_its_graph(tmp_path: Path) -> None:
    builder = TfliteBuilder()
    x, inner, y = (builder.tensor((2,), "float32") for _ in range(3))
    builder.operator("NEG", [x], [inner])
    builder.operator("ABS", [inner], [y])
    outputs = [{"name": "inner", "tensor_index": inner}]
    signature = {"inputs": [{"name": "x", "tensor_index": x}], "outputs": outputs, "signature_key": "s", "subgraph_index": 0}
    path = builder.write(tmp_path / "m.tflite", [x], [y], signature_defs=[signature])
    [found] = ModelFile(path, ConversionOptions()).inspection.signatures
    assert [(output.name, output.shape) for output in found.outputs] == [("inner", (2,))]
