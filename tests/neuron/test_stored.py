"""Compiled partitions in files, and the calls that a compiler makes, without a compiler."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import flatbuffers
import numpy as np
import pytest
from flatbuffers import flexbuffers
from hypothesis import given
from hypothesis import strategies as st

from nnbridge import Compilation, Execution
from nnbridge.builder import ModelBuilder
from nnbridge.converters import ConversionOptions
from nnbridge.errors import ConversionError
from nnbridge.file import ModelFile, load
from nnbridge.model import Model
from nnbridge.ndk.core import OperandType, SymmPerChannelQuantParams
from nnbridge.neuron.functions import FUNCTIONS
from nnbridge.neuron.signatures import NEURON_SIGNATURES
from nnbridge.storage.compiled import CompiledPartition, partition_in, read_partition
from nnbridge.types import OperandCode, OperationCode
from tests.tflite.files import TfliteBuilder

NO_ERROR, BAD_DATA, BAD_STATE = 0, 4, 6
X = np.array([[-1.5, 2.0, 0.5]], np.float32)


def relu(operation: OperationCode = OperationCode.RELU) -> Model:
    """A model of one operation."""
    builder = ModelBuilder("relu")
    x, y = (builder.add_operand(OperandCode.TENSOR_FLOAT32, (1, 3), name=name) for name in "xy")
    builder.add_operation(operation, [x], [y])
    builder.identify_inputs_and_outputs([x], [y])
    return replace(builder.finish(), relaxed=True)


def container(name: str, content: bytes, kind: int = 1, index: int = 0) -> bytes:
    """The compiler's container with one partition."""
    b = flatbuffers.Builder(1024)
    data, identifier, entry = b.CreateByteVector(content), b.CreateString(""), b.CreateString(name)
    b.StartObject(1)
    b.PrependInt32Slot(0, index, -1)
    place = b.EndObject()
    b.StartObject(4)
    b.PrependUOffsetTRelativeSlot(0, entry, 0)
    b.PrependInt8Slot(1, 2, 0)
    b.PrependUint8Slot(2, kind, 0)
    b.PrependUOffsetTRelativeSlot(3, place, 0)
    subgraph = b.EndObject()
    b.StartObject(2)
    b.PrependUOffsetTRelativeSlot(0, identifier, 0)
    b.PrependUOffsetTRelativeSlot(1, data, 0)
    buffer = b.EndObject()
    vectors = []
    for offset in (subgraph, buffer):
        b.StartVector(4, 1, 4)
        b.PrependUOffsetTRelative(offset)
        vectors.append(b.EndVector())
    b.StartObject(3)
    b.PrependInt16Slot(0, 1, 0)
    b.PrependUOffsetTRelativeSlot(1, vectors[0], 0)
    b.PrependUOffsetTRelativeSlot(2, vectors[1], 0)
    b.Finish(b.EndObject())
    return bytes(b.Output())


STORED = CompiledPartition(relu(), ("nnapi-sample_all",)).stored()


def of_version(version: int) -> bytes:
    """The stored partition, of another format version."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("nnbridge.storage.compiled.FORMAT_VERSION", version)
        return CompiledPartition(relu(), ("nnapi-sample_all",)).stored()


def compiled_file(path: Path, content: bytes = STORED, shape: tuple[int, ...] = (1, 3), **options: Any) -> Path:
    """A TFLite file with one DISPATCH_OP and an ABS behind it."""

    def written(start: int) -> bytes:
        builder = TfliteBuilder()
        x, y, z = (builder.tensor(shape, name=name) for name in ("in", "between", "out"))
        named = {"bytecode_offset": start, "bytecode_size": len(inside), "name": "Partition_0", **options}
        builder.operator("DISPATCH_OP", [x], [y], custom=bytes(flexbuffers.Dumps(named)))
        builder.operator("ABS", [y], [z], {})
        return builder.content([x], [z])

    inside = container("Partition_0", content)
    # Offsets of 4 bytes from the beginning, so that the length does not change.
    length = len(written(1 << 20))
    start = 1 << 20
    path.write_bytes(written(start) + bytes(start - length) + inside)
    return path


def test_a_partition_is_stored_with_its_devices_and_read_back() -> None:
    found = partition_in(memoryview(container("Partition_3", STORED)), "Partition_3", "file")
    assert found.devices == ("nnapi-sample_all",)
    assert found.model.relaxed
    assert [operation.type for operation in found.model.main.operations] == [OperationCode.RELU]


def test_a_compiled_file_is_run_by_nnbridge(tmp_path: Path) -> None:
    model, mapped = ModelFile(compiled_file(tmp_path / "m.tflite"), ConversionOptions()).converted
    assert [(m.operator, str(m.mapping)) for m in mapped] == [("DISPATCH_OP", "wide"), ("ABS", "host")]
    assert model.relaxed
    compilation = Compilation.create(model, ["nnapi-sample_all"])
    compilation.finish()
    first = compilation.plan.steps[0].model
    assert first.operation_name(first.main.operations[0]) == "RELU"
    (out,) = Execution(compilation).run([X]).values()
    np.testing.assert_array_equal(out, np.maximum(X, 0))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"bytecode_offset": 1 << 40}, "compiled partitions inside the file's"),
        ({"bytecode_size": -1}, "compiled partitions inside the file's"),
        ({"name": "Partition_7"}, "expected a partition of the container (Partition_0), found Partition_7"),
        ({"name": 3}, "expected name as str, found 3"),
        ({"content": STORED[:-200]}, "Partition_0"),
        ({"content": of_version(7)}, "expected format version 1, found 7"),
        ({"shape": (2, 3)}, "expected TENSOR_FLOAT32[1x3], as the partition has"),
    ],
)
def test_a_wrong_dispatch_op_is_refused(tmp_path: Path, settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ConversionError) as caught:
        load(compiled_file(tmp_path / "m.tflite", **settings))
    assert words in str(caught.value)
    assert "operator 0 DISPATCH_OP" in str(caught.value)


def test_another_compilers_partition_is_left_to_it(tmp_path: Path) -> None:
    file = ModelFile(compiled_file(tmp_path / "m.tflite", content=b"MediaTek's own" * 9))
    assert [(m.operator, str(m.mapping)) for m in file.mapped] == [("DISPATCH_OP", "host"), ("ABS", "host")]


@given(st.integers(0, 10_000), st.binary(min_size=1, max_size=8))
def test_damaged_partitions_are_refused(at: int, put: bytes) -> None:
    good = container("Partition_0", STORED)
    at %= len(good)
    damaged = (good[:at] + put + good[at + len(put) :])[: len(good)]
    for content in (damaged, good[:at]):
        try:
            partition_in(memoryview(content), "Partition_0", "file")
        except ConversionError:
            continue


def test_another_index_of_the_container_is_refused() -> None:
    with pytest.raises(ConversionError, match="expected an index below 1, found 5"):
        partition_in(memoryview(container("P", STORED, index=5)), "P", "file")


# -- the compiler's calls ------------------------------------------------------------------------------------------------


class Calls:
    """A model passed by calls, as the compiler does it."""

    def __init__(self, name: str) -> None:
        _, self.model = self("Model_create")
        self("Model_setName", self.model, name)
        self.operands = 0

    def __call__(self, name: str, *arguments: Any) -> Any:
        return FUNCTIONS[f"Neuron{name}"](*arguments)

    def operand(self, type: int, dims: tuple[int, ...] = (), value: Any = None, **more: Any) -> int:
        """Add an operand; its index."""
        assert self("Model_addOperand", self.model, OperandType(type, dims, **more)) == NO_ERROR
        if value is not None:
            data = np.asarray(value).tobytes()
            assert self("Model_setOperandValue", self.model, self.operands, bytearray(data), len(data)) == NO_ERROR
        self.operands += 1
        return self.operands - 1

    def operation(self, code: int, inputs: list[int], outputs: list[int]) -> None:
        """Add an operation."""
        assert self("Model_addOperation", self.model, code, inputs, outputs) == NO_ERROR

    def compilation(self, inputs: list[int], outputs: list[int]) -> Any:
        """The compilation of the finished model."""
        assert self("Model_identifyInputsAndOutputs", self.model, inputs, outputs) == NO_ERROR
        assert self("Model_finish", self.model) == NO_ERROR
        assert self("Model_relaxComputationFloat32toFloat16", self.model, True) == NO_ERROR
        code, compilation = self("Compilation_createWithOptions", self.model, "--opt 3")
        assert code == NO_ERROR
        return compilation


def test_every_function_that_the_compiler_looks_for_is_there() -> None:
    assert len(NEURON_SIGNATURES) == 42
    assert {signature.name for signature in NEURON_SIGNATURES} == set(FUNCTIONS)
    assert FUNCTIONS["Neuron_getVersion"]() == (NO_ERROR, [8, 2, 24])


def test_what_is_granted_is_compiled_and_stored() -> None:
    calls = Calls("Partition_0")
    x, y = calls.operand(3, (1, 3)), calls.operand(3, (1, 3))
    calls.operation(OperationCode.TANH, [x], [y])
    compilation = calls.compilation([x], [y])
    assert calls("Compilation_getSupportedOperations", compilation, 1) == (NO_ERROR, [True])
    assert calls("Compilation_getCompiledNetworkSize", compilation)[0] == BAD_STATE
    assert calls("Compilation_finish", compilation) == NO_ERROR
    _, size = calls("Compilation_getCompiledNetworkSize", compilation)
    buffer = bytearray(size)
    assert calls("Compilation_storeCompiledNetwork", compilation, buffer, size) == NO_ERROR
    stored = read_partition(memoryview(buffer), "stored")
    assert [operation.type for operation in stored.model.main.operations] == [OperationCode.TANH]
    assert stored.model.relaxed
    calls("Compilation_free", compilation)
    calls("Model_free", calls.model)


def test_what_the_compiler_cannot_pass_on_is_refused_alone() -> None:
    calls = Calls("get supported graph")
    x, y, z = (calls.operand(3, (1, 3)) for _ in "xyz")
    calls.operation(10001, [x], [y])
    calls.operation(OperationCode.RELU, [y], [z])
    assert calls("Compilation_getSupportedOperations", calls.compilation([x], [z]), 2) == (NO_ERROR, [False, True])


def test_weights_of_zero_point_0_and_a_missing_bias_are_read() -> None:
    calls = Calls("get supported graph")
    x, y = calls.operand(13, (1, 4, 4, 1), scale=0.5), calls.operand(14, (1, 4, 4, 2), scale=0.5, zeroPoint=3)
    weights = calls.operand(11, (2, 1, 1, 1), np.ones(2, np.int8))
    given = SymmPerChannelQuantParams(0, (0.5, 0.25))
    assert calls("Model_setOperandSymmPerChannelQuantParams", calls.model, weights, given) == NO_ERROR
    one, none = calls.operand(1, value=np.int32(1)), calls.operand(1, value=np.int32(0))
    flag = calls.operand(6, value=np.bool_(False))
    calls.operation(OperationCode.CONV_2D, [x, weights, one, one, one, none, flag, one, one], [y])
    assert calls("Compilation_getSupportedOperations", calls.compilation([x], [y]), 1) == (NO_ERROR, [True])


@pytest.mark.parametrize(
    ("code", "scalars"),
    [
        (OperationCode.SOFTMAX, []),  # without its beta
        (OperationCode.RELU, [np.int32(1)]),
        (OperationCode.FLOOR, []),  # which the compiler never passes on
    ],
)
def test_operations_that_are_not_as_the_compiler_writes_them_are_refused(code: int, scalars: list[Any]) -> None:
    calls = Calls("get supported graph")
    x, y = calls.operand(3, (1, 3)), calls.operand(3, (1, 3))
    calls.operation(code, [x, *(calls.operand(1, value=scalar) for scalar in scalars)], [y])
    assert calls("Compilation_getSupportedOperations", calls.compilation([x], [y]), 1) == (NO_ERROR, [False])


def test_operands_that_do_not_exist_are_bad_data() -> None:
    calls = Calls("wrong")
    assert calls("Model_addOperation", calls.model, 19, [0], [1]) == BAD_DATA
    assert calls("Model_setOperandValue", calls.model, 0, bytearray(4), 4) == BAD_DATA
    assert calls("Execution_compute", 0) == BAD_STATE
