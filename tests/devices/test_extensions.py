"""Facts X1 to X27 of Android 13's runtime, and counterparts of TestExtensions.cpp."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from examples import fibonacci as example

from nnbridge import devices, ndk, storage
from nnbridge.allowlist import (
    CLIENT_VARIABLE,
)
from nnbridge.builder import ModelBuilder
from nnbridge.devices.checks import description_fault, extension_fault
from nnbridge.devices.device import Device, OutputBuffer, PreparedModel, Request
from nnbridge.devices.functions import FunctionPreparedModel
from nnbridge.errors import BadDataError, ConversionError, OpFailedError
from nnbridge.extensions import TYPES, Arg, Extension, ExtensionOperandType, TypeManager
from nnbridge.model import Model
from nnbridge.ndk.core import HANDLES
from nnbridge.operations.validation import byte_size, validate_model
from nnbridge.runtime.compilation import Compilation, PartitioningMode, supported_operations
from nnbridge.runtime.execution import Execution
from nnbridge.runtime.memory import MemoryDesc
from nnbridge.types import FeatureLevel, OperandCode, OperationCode, ResultCode
from tests.runtime.drivers import Driver

FLOAT = OperandCode.TENSOR_FLOAT32
WIDE = ExtensionOperandType(3, True, 12)
POINT = ExtensionOperandType(4, False, 6)
VENDOR = Extension("com.example.vendor", (WIDE, POINT))
MAKE, USE = 0, 1
"""Operations: FLOAT → WIDE, WIDE → FLOAT."""


def code(number: int) -> int:
    return TYPES.code(VENDOR.name, number)


@dataclass
class Vendor(Driver):
    """A driver of the vendor's extension that takes some of its operations."""

    operations: tuple[int, ...] = (MAKE, USE)

    def supported_extensions(self) -> tuple[Extension, ...]:
        return (VENDOR,)

    def supported_operations(self, model: Model) -> list[bool]:
        self.asked.append(model)
        return [model.extension_of(o.type) in [(VENDOR.name, n) for n in self.operations] for o in model.main.operations]

    def prepare_model(self, model: Model, *args: object, **options: object) -> PreparedModel:
        self.prepared.append(model)
        by_number = {MAKE: _make, USE: _use}
        numbers = [model.extension_of(o.type) for o in model.main.operations]
        return FunctionPreparedModel(model, [by_number[n[1]] for n in numbers if n is not None])


def _make(inputs: list[Arg], outputs: list[Arg]) -> list[np.ndarray]:
    """Each element three times, as one 12-byte element."""
    return [np.repeat(inputs[0].data.reshape(-1), 3).view("V12").reshape(inputs[0].dims)]


def _use(inputs: list[Arg], outputs: list[Arg]) -> list[np.ndarray]:
    """The sum of each element's three parts."""
    return [np.ascontiguousarray(inputs[0].data).view(np.float32).reshape(*inputs[0].dims, 3).sum(-1)]


@pytest.fixture(autouse=True, scope="module")
def _registered() -> None:
    assert TYPES.register(VENDOR)


def chain(*numbers: int, dims: tuple[int, ...] = (2, 2)) -> Model:
    """Operations of the extension one after another; MAKE and USE take turns."""
    builder = ModelBuilder()
    previous = first = builder.add_operand(FLOAT if numbers[0] == MAKE else code(WIDE.number), dims, name="x")
    for number in numbers:
        made = builder.add_operand(code(WIDE.number) if number == MAKE else FLOAT, dims, name="y")
        builder.add_operation(code(number), [previous], [made])
        previous = made
    builder.identify_inputs_and_outputs([first], [previous])
    return builder.finish()


# -- definition --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "types",
    [
        (WIDE, ExtensionOperandType(3, False, 4)),
        (ExtensionOperandType(0x10000, True, 4),),
        (ExtensionOperandType(-1, True, 4),),
        (ExtensionOperandType(0, True, 0),),
    ],
    ids=["a number twice", "17 bits", "negative", "no size"],
)
def test_x1_type_numbers_are_unique_and_have_16_bits_and_a_size(types: tuple[ExtensionOperandType, ...]) -> None:
    assert extension_fault(Extension("com.example.wrong", types)) is not None
    assert extension_fault(VENDOR) is None


def test_x1_a_device_names_each_extension_once() -> None:
    class Twice(Driver):
        def supported_extensions(self) -> tuple[Extension, ...]:
            return (VENDOR, VENDOR)

    assert "each extension once" in str(description_fault(Twice("twice")))


def test_x2_the_order_of_types_does_not_matter_and_other_types_disable_an_extension_for_good() -> None:
    types = TypeManager()
    assert types.register(VENDOR)
    assert types.register(Extension(VENDOR.name, (POINT, WIDE)))
    assert not types.register(Extension(VENDOR.name, (POINT,)))
    assert not types.register(VENDOR)
    assert types.extension(VENDOR.name) is None
    assert types.operand_type(types.code(VENDOR.name, WIDE.number)) is None


def test_x3_x4_codes_hold_the_prefix_above_16_bits() -> None:
    prefix = TYPES.prefix(VENDOR.name)
    assert code(WIDE.number) == prefix << 16 | 3
    assert 0 < code(0xFFFF) < 2**31


def test_x5_prefixes_count_from_1_in_order_of_first_request_and_stay() -> None:
    types = TypeManager()
    assert [types.prefix(name) for name in ("b.b", "a.a", "b.b")] == [1, 2, 1]


def test_types_are_shown_by_the_extensions_name_and_its_own() -> None:
    types = TypeManager()
    types.register(Extension("com.example.shown", (ExtensionOperandType(3, True, 8, "PAIR"), ExtensionOperandType(4, True, 8))))
    shown = [types.readable(types.code("com.example.shown", number)) for number in (3, 4)]
    assert [*shown, types.readable(OperandCode.TENSOR_INT32)] == [
        "com.example.shown PAIR",
        "com.example.shown#4",
        "TENSOR_INT32",
    ]


def test_x6_any_name_gets_a_prefix_until_they_are_used_up() -> None:
    types = TypeManager()
    assert types.prefix("not even a NAME") == 1
    for k in range(2, 65536):
        types.prefix(str(k))
    assert types.prefix("2") == 2
    with pytest.raises(BadDataError, match="65535"):
        types.prefix("one more")


def test_x7_operands_of_unregistered_extensions_and_types_are_refused() -> None:
    builder = ModelBuilder()
    for unknown in (TYPES.code("com.example.unregistered", 0), code(77)):
        with pytest.raises(BadDataError):
            builder.add_operand(unknown, (1,))


def test_x8_operations_of_unregistered_extensions_are_refused_by_finish() -> None:
    builder = ModelBuilder()
    x, y = builder.add_operand(FLOAT, (1,)), builder.add_operand(FLOAT, (1,))
    builder.add_operation(TYPES.code("com.example.unregistered", 0), [x], [y])
    builder.identify_inputs_and_outputs([x], [y])
    with pytest.raises(BadDataError, match="extension name"):
        builder.finish()


def test_x9_operation_numbers_are_the_drivers_to_check() -> None:
    model = chain(MAKE)
    assert supported_operations(model, [Vendor("v", operations=(USE,))]) == [False]
    builder = ModelBuilder()
    x, y = builder.add_operand(FLOAT, (1,)), builder.add_operand(FLOAT, (1,))
    assert builder.add_operation(code(0xFFFF), [x], [y]) == 0


# -- operands ----------------------------------------------------------------------------------------------------------


def test_x10_scalars_have_no_dimensions_and_no_type_has_scale_or_zero_point() -> None:
    builder = ModelBuilder()
    builder.add_operand(code(POINT.number))
    builder.add_operand(code(WIDE.number))
    builder.add_operand(code(WIDE.number), (0, 3))
    for type, dims, scale, zero_point in ((POINT, (1,), 0.0, 0), (WIDE, (1,), 0.5, 0), (WIDE, (1,), 0.0, 1)):
        with pytest.raises(BadDataError):
            builder.add_operand(code(type.number), dims, scale=scale, zero_point=zero_point)


def test_x10_extension_data_is_opaque_and_for_extension_operands_alone() -> None:
    builder = ModelBuilder()
    plain, wide = builder.add_operand(FLOAT, (1,)), builder.add_operand(code(WIDE.number), (1,))
    builder.set_operand_extension_data(wide, b"anything")
    builder.set_operand_extension_data(wide, None)
    with pytest.raises(BadDataError, match="an extension operand"):
        builder.set_operand_extension_data(plain, b"anything")


def test_x11_values_have_the_declared_size() -> None:
    builder = ModelBuilder()
    wide, point = builder.add_operand(code(WIDE.number), (2, 2)), builder.add_operand(code(POINT.number))
    builder.set_operand_value(wide, bytes(48))
    builder.set_operand_value(point, bytes(6))
    for operand, size in ((wide, 47), (point, 12)):
        with pytest.raises(BadDataError):
            builder.set_operand_value(operand, bytes(size))


def test_x12_ordinary_operations_refuse_extension_types_and_extension_operations_take_any() -> None:
    builder = ModelBuilder()
    wide, made, number = (builder.add_operand(c, d) for c, d in ((code(3), (1,)), (code(3), (1,)), (OperandCode.INT32, ())))
    with pytest.raises(BadDataError):
        builder.add_operation(OperationCode.RELU, [wide], [made])
    other = builder.add_operand(TYPES.code(example.NAME, example.EXAMPLE_INT64)) if _fibonacci() else wide
    builder.add_operation(code(MAKE), [number, other], [made])


def _fibonacci() -> Device:
    return devices.device("examples.fibonacci:FIBONACCI")


def test_x13_a_driver_below_level_3_is_never_offered_an_extension() -> None:
    assert validate_model(chain(MAKE)).level == FeatureLevel.LEVEL_3
    old = Vendor("old", feature_level=FeatureLevel.LEVEL_2)
    assert supported_operations(chain(MAKE), [old]) == [False]
    assert old.asked == []
    assert supported_operations(chain(MAKE), [Vendor("new", feature_level=FeatureLevel.LEVEL_3)]) == [True]


def test_x14_drivers_get_the_names_of_the_extensions_in_use() -> None:
    driver = Vendor("v")
    Compilation.create_for_devices(chain(MAKE), [driver]).finish()
    assert driver.prepared[0].extensions == {VENDOR.name: TYPES.prefix(VENDOR.name)}


# -- execution ---------------------------------------------------------------------------------------------------------


def test_x15_buffers_have_the_sizes_that_the_device_declared() -> None:
    compilation = Compilation.create_for_devices(chain(MAKE), [Vendor("v")])
    compilation.finish()
    execution = Execution(compilation)
    for size in (47, 49):
        with pytest.raises(BadDataError):
            execution.set_output(0, bytearray(size))
    out = bytearray(48)
    execution.set_output(0, out)
    execution.set_input(0, np.array([[1, 2], [3, 4]], np.float32))
    execution.compute()
    assert np.frombuffer(out, np.float32).tolist() == [1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 4]


def test_x16_there_is_no_cpu_for_extension_operations() -> None:
    assert supported_operations(chain(MAKE), [devices.cpu()]) == [False]
    for mode in PartitioningMode:
        with pytest.raises(BadDataError):
            Compilation.create(chain(MAKE), [], mode).finish()
    compilation = Compilation.create(chain(MAKE), [_Fails("fails")])
    compilation.finish()
    with pytest.raises(OpFailedError, match="on purpose"):
        Execution(compilation).run([np.zeros((2, 2), np.float32)])


class _Fails(Vendor):
    def prepare_model(self, model: Model, *args: object, **options: object) -> PreparedModel:
        def fail(inputs: object, outputs: object) -> list[np.ndarray]:
            raise OpFailedError("on purpose")

        return FunctionPreparedModel(model, [fail])


def test_x17_the_cpu_executor_refuses_extension_operations_and_their_temporaries() -> None:
    prepared = devices.cpu().prepare_model(chain(MAKE, USE))
    outputs = tuple(OutputBuffer(None) for _ in chain(MAKE, USE).main.outputs)
    inputs = tuple(None for _ in chain(MAKE, USE).main.inputs)
    assert prepared.execute(Request(inputs, outputs)).code is ResultCode.OP_FAILED


def test_x18_drivers_refuse_memories_of_extension_types_and_the_runtime_has_its_own() -> None:
    for compilation in (
        Compilation.create_for_devices(chain(MAKE), [Vendor("v")]),
        Compilation.create(chain(MAKE), [Vendor("v")]),
    ):
        compilation.finish()
        desc = MemoryDesc()
        desc.add_output_role(compilation, 0, 1.0)
        desc.finish()
        if compilation.explicit:
            with pytest.raises(OpFailedError):
                desc.create()
        else:
            assert (desc.create().size, desc.create().allocator) == (48, "")


def test_x19_temporaries_of_extension_types_pass_between_steps() -> None:
    model = chain(MAKE, USE)
    maker, user = Vendor("maker", operations=(MAKE,)), Vendor("user", operations=(USE,))
    compilation = Compilation.create_for_devices(model, [maker, user])
    assert len(compilation.finish().steps) == 2
    x = np.array([[1, 2], [3, 4]], np.float32)
    assert np.array_equal(Execution(compilation).run([x])["y"], 3 * x)
    assert byte_size(model.main.operands[1]) == 48


def test_x22_without_leave_types_can_be_asked_for_and_not_be_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    storage.save(chain(MAKE), tmp_path / "m.nnapi")
    wide, make = code(WIDE.number), code(MAKE)
    monkeypatch.setitem(TYPES.__dict__, "allowed", False)
    builder = ModelBuilder()
    x, y = builder.add_operand(FLOAT, (1,)), builder.add_operand(FLOAT, (1,))
    with pytest.raises(BadDataError, match="may use vendor extensions"):
        builder.add_operand(wide, (1,))
    with pytest.raises(BadDataError, match="may use vendor extensions"):
        builder.add_operation(make, [x], [y])
    with pytest.raises(BadDataError, match="may use vendor extensions"):
        storage.load(tmp_path / "m.nnapi")
    assert code(WIDE.number) == wide
    assert Vendor("v").supported_extensions() == (VENDOR,)


def test_x22_is_decided_once_for_a_process_and_leaves_host_extensions_alone(tmp_path: Path) -> None:
    program = """
import os
from nnbridge.builder import ModelBuilder
from nnbridge.errors import BadDataError
from nnbridge.extensions import TYPES
assert not TYPES.allowed
os.environ["NNBRIDGE_CLIENT"] = "com.foo"
assert not TYPES.allowed
name = next(iter(TYPES.host_extensions()))
ModelBuilder().add_operand(TYPES.code(name, 0xFFFF), (1,))
"""
    environment = {**os.environ, CLIENT_VARIABLE: "/system/bin/tool"}
    subprocess.run([sys.executable, "-c", program], check=True, env=environment)


# -- OEM ---------------------------------------------------------------------------------------------------------------


def oem(*, claimed: bool = True) -> tuple[Model, Driver]:
    builder = ModelBuilder()
    scalar = builder.add_operand(OperandCode.OEM_SCALAR)
    bytes_ = builder.add_operand(OperandCode.TENSOR_OEM_BYTE, (3,), scale=-1.5, zero_point=999)
    made = builder.add_operand(OperandCode.TENSOR_OEM_BYTE, (3,), name="y")
    builder.set_operand_value(scalar, b"any length of bytes")
    builder.add_operation(OperationCode.OEM_OPERATION, [scalar, bytes_], [made])
    builder.identify_inputs_and_outputs([bytes_], [made])
    return builder.finish(), _Oem("oem", frozenset({OperationCode.OEM_OPERATION} if claimed else ()))


class _Oem(Driver):
    """Turns its bytes around."""

    def prepare_model(self, model: Model, *args: object, **options: object) -> PreparedModel:
        return FunctionPreparedModel(model, [lambda inputs, outputs: [inputs[1].data[::-1]]])


def test_x24_oem_scalars_have_any_length_and_oem_bytes_any_quantisation() -> None:
    model, _ = oem()
    assert model.main.operands[0].location.length == 19
    assert validate_model(model).level == FeatureLevel.LEVEL_1
    builder = ModelBuilder()
    with pytest.raises(BadDataError):
        builder.set_operand_value(builder.add_operand(OperandCode.TENSOR_OEM_BYTE, (3,)), bytes(4))
    with pytest.raises(BadDataError):
        builder.add_operation(OperationCode.OEM_OPERATION, [77], [0])


def test_x25_the_oem_operation_is_its_drivers_alone() -> None:
    model, driver = oem()
    assert supported_operations(model, [devices.cpu()]) == [False]
    compilation = Compilation.create(model, [driver])
    assert compilation.finish().device_of(0) is driver
    assert Execution(compilation).run([np.array([1, 2, 3], np.uint8)])["y"].tolist() == [3, 2, 1]
    with pytest.raises(BadDataError):
        Compilation.create(model, [oem(claimed=False)[1]]).finish()


def test_x25_oem_types_are_deprecated_and_said_so_once(caplog: pytest.LogCaptureFixture) -> None:
    from nnbridge import builder as building

    building.warn_of_oem.cache_clear()
    with caplog.at_level(logging.WARNING):
        oem()
        oem()
    assert [record.getMessage() for record in caplog.records if "OEM" in record.getMessage()] == [
        "OEM types and operations are deprecated since Android 10; use vendor extensions"
    ]


def test_x26_sample_drivers_and_the_oem_operation() -> None:
    model, _ = oem()
    answers = {name: supported_operations(model, [devices.device(f"nnapi-sample_{name}")])[0] for name in ("all", "full")}
    assert answers == {"all": True, "full": False}
    assert supported_operations(chain(MAKE), [devices.device("nnapi-sample_all")]) == [False]


def test_x27_the_example_extension() -> None:
    assert example.EXTENSION.name == "com.example.fibonacci"
    assert [(t.number, t.is_tensor, t.byte_size) for t in example.EXTENSION.operand_types] == [(0, False, 8), (1, True, 8)]
    assert example.PARAMS.size == 16


# -- TestExtensions.cpp ------------------------------------------------------------------------------------------------


def test_device_reports_supported_extensions() -> None:
    device = HANDLES.add(_fibonacci())
    asked = ("com.example.fibonacci", "vendor.test.unknown", "asdfasdfas")
    assert [ndk.ANeuralNetworksDevice_getExtensionSupport(device, name) for name in asked] == [(0, True), (0, False), (0, False)]


def test_a_saved_model_of_an_unregistered_type_is_refused_with_its_file(tmp_path: Path) -> None:
    program = f"""
from nnbridge.builder import ModelBuilder
from nnbridge import storage
from nnbridge.extensions import *
from pathlib import Path
TYPES.register(Extension("com.example.elsewhere", (ExtensionOperandType(0, True, 4),)))
b = ModelBuilder()
x, y = (b.add_operand(TYPES.code("com.example.elsewhere", 0), (1,)) for _ in range(2))
b.add_operation(TYPES.code("com.example.elsewhere", 0), [x], [y])
b.identify_inputs_and_outputs([x], [y])
storage.save(b.finish(), Path({str(tmp_path / "m.nnapi")!r}))
"""
    subprocess.run([sys.executable, "-c", program], check=True)
    with pytest.raises(ConversionError, match=r"m\.nnapi"):
        storage.load(tmp_path / "m.nnapi")
