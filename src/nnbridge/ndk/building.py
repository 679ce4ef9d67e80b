"""Devices, models and memories."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from functools import cache

from nnbridge import devices as device_list
from nnbridge.builder import ModelBuilder
from nnbridge.devices.device import Device
from nnbridge.errors import BadDataError, BadStateError, InputError, Reason, UnmappableError
from nnbridge.extensions import TYPES
from nnbridge.ndk.core import (
    CPU_ONLY_VARIABLE,
    DEVICES_VARIABLE,
    HANDLES,
    Buffer,
    Handle,
    ModelHandle,
    OperandType,
    SymmPerChannelQuantParams,
    exactly,
    free,
    function,
    not_null,
    sized,
    value_function,
)
from nnbridge.runtime.compilation import Compilation, supported_operations
from nnbridge.runtime.execution import MAX_LOOP_TIMEOUT_NS
from nnbridge.runtime.memory import Memory, MemoryDesc
from nnbridge.types import DEFAULT_LOOP_TIMEOUT_NS, RUNTIME_FEATURE_LEVEL, FeatureLevel

# -- devices ---------------------------------------------------------------------------------------------------------


def find_device(handle: Handle | None) -> Device:
    return HANDLES.get(handle, Device)  # type: ignore[type-abstract]  # devices of any class are meant


@cache
def devices_of_process() -> tuple[tuple[Handle, Device], ...]:
    """Drivers, then the CPU (fact D1): all that are installed, those that the environment names, or none (fact D20)."""
    if os.environ.get(CPU_ONLY_VARIABLE, "") not in ("", "0"):
        return ((HANDLES.add(device_list.cpu()), device_list.cpu()),)
    text = os.environ.get(DEVICES_VARIABLE, "")
    drivers = [_named(name.strip()) for name in text.split(",")] if text else list(device_list.drivers())
    listed = [device for device in drivers if device.kind == "device"]
    return tuple((HANDLES.add(device), device) for device in (*listed, device_list.cpu()))


def _named(name: str) -> Device:
    """A device that the environment names; NNAPI's CPU may be named, it comes last anyway."""
    if not name or name == device_list.HOST_NAME:
        raise InputError(Reason("names of drivers, joined by commas", name or "an empty one", operand=DEVICES_VARIABLE))
    try:
        return device_list.device(name)
    except InputError as error:
        place = error.reason.operand.removeprefix("--device")
        operand = f"{DEVICES_VARIABLE}: {place}" if place else DEVICES_VARIABLE
        raise InputError(replace(error.reason, operand=operand)) from error


@function(0)
def ANeuralNetworks_getDeviceCount() -> int:
    """How many devices there are, the CPU among them."""
    return len(devices_of_process())


@function(None)
def ANeuralNetworks_getDevice(index: int) -> Handle:
    """The handle of a device, the same at every call; it is not freed."""
    devices = devices_of_process()
    if not 0 <= index < len(devices):
        raise BadDataError(Reason(f"an index below {len(devices)}", str(index), "getDevice"))
    return devices[index][0]


@function(None)
def ANeuralNetworksDevice_getName(device: Handle) -> str:
    """Its name."""
    return find_device(device).name


@function(None)
def ANeuralNetworksDevice_getType(device: Handle) -> int:
    """Its ``DeviceTypeCode``."""
    return int(find_device(device).type)


@function(None)
def ANeuralNetworksDevice_getVersion(device: Handle) -> str:
    """The version of its driver."""
    return find_device(device).version


@function(None)
def ANeuralNetworksDevice_getFeatureLevel(device: Handle) -> int:
    """Android's public constant of its feature level."""
    return find_device(device).level.constant


@function(None)
def ANeuralNetworksDevice_getExtensionSupport(device: Handle, name: str) -> bool:
    """True if the device has the extension."""
    found = find_device(device)
    wanted = not_null(name, "a name")
    return any(extension.name == wanted for extension in found.supported_extensions())


@function()
def ANeuralNetworksDevice_wait(device: Handle) -> None:
    """Devices of this process are always ready."""
    find_device(device)


@value_function
def ANeuralNetworks_getRuntimeFeatureLevel() -> int:
    """Android's public constant of the runtime's feature level."""
    return FeatureLevel(RUNTIME_FEATURE_LEVEL).constant


@value_function
def ANeuralNetworks_getDefaultLoopTimeout() -> int:
    """2 s, in nanoseconds."""
    return DEFAULT_LOOP_TIMEOUT_NS


@value_function
def ANeuralNetworks_getMaximumLoopTimeout() -> int:
    """15 s, in nanoseconds."""
    return MAX_LOOP_TIMEOUT_NS


# -- models ----------------------------------------------------------------------------------------------------------


def _builder(model: Handle | None) -> ModelBuilder:
    return HANDLES.get(model, ModelHandle).builder


def _filled(builder: ModelBuilder, call: str, *lists: Sequence[int] | None) -> ModelBuilder:
    """The builder, if the lists are there and none is empty (facts M5 and M6)."""
    for given in lists:
        not_null(given, "a list of operands")
    builder.require_open(call)
    for given in lists:
        sized(given or None, call)
    return builder


@function(None)
def ANeuralNetworksModel_create() -> Handle:
    """An empty model."""
    return HANDLES.add(ModelHandle())


@value_function
def ANeuralNetworksModel_free(model: Handle | None) -> None:
    """Forget a model; NULL is ignored."""
    free(model, ModelHandle)


@function()
def ANeuralNetworksModel_finish(model: Handle) -> None:
    """Check the model and end its construction."""
    handle = HANDLES.get(model, ModelHandle)
    handle.model = handle.builder.finish()


@function()
def ANeuralNetworksModel_addOperand(model: Handle, type: OperandType) -> None:
    """Operands are numbered from 0 in order of addition."""
    builder, type = _builder(model), not_null(type, "an operand type")
    builder.require_open("addOperand")
    builder.add_operand(type.type, sized(type.dimensions, "addOperand"), scale=type.scale, zero_point=type.zeroPoint)


@function()
def ANeuralNetworksModel_setOperandValue(model: Handle, index: int, buffer: Buffer, length: int | None = None) -> None:
    """Up to 128 bytes are copied; a larger buffer must stay as it is until the model is freed. NULL: no value."""
    builder = _builder(model)
    builder.set_operand_value(index, exactly(buffer, length))


@function()
def ANeuralNetworksModel_setOperandValueFromMemory(model: Handle, index: int, memory: Handle, offset: int, length: int) -> None:
    """A constant that lies in a memory."""
    builder = _builder(model)
    builder.set_operand_value_from_memory(index, HANDLES.get(memory, Memory).as_pool(), offset, length)


@function()
def ANeuralNetworksModel_setOperandValueFromModel(model: Handle, index: int, value: Handle) -> None:
    """The finished model that an operand of type MODEL stands for."""
    builder, inner = _builder(model), HANDLES.get(value, ModelHandle)
    if inner.model is None:
        raise BadStateError(Reason("a model that finished", "one that did not", "setOperandValueFromModel"))
    builder.set_operand_value_from_model(index, inner.model)


@function()
def ANeuralNetworksModel_setOperandSymmPerChannelQuantParams(
    model: Handle, index: int, params: SymmPerChannelQuantParams
) -> None:
    """Scales of a TENSOR_QUANT8_SYMM_PER_CHANNEL operand."""
    builder, params = _builder(model), not_null(params, "parameters")
    builder.require_open("setOperandSymmPerChannelQuantParams")
    scales = sized(params.scales, "setOperandSymmPerChannelQuantParams")
    builder.set_operand_symm_per_channel_quant_params(index, list(scales), params.channelDim)


@function()
def ANeuralNetworksModel_addOperation(model: Handle, type: int, inputs: Sequence[int], outputs: Sequence[int]) -> None:
    """Operations may be added in any order."""
    _filled(_builder(model), "addOperation", inputs, outputs).add_operation(type, inputs, outputs)


@function()
def ANeuralNetworksModel_identifyInputsAndOutputs(model: Handle, inputs: Sequence[int], outputs: Sequence[int]) -> None:
    """The model's inputs and outputs, in order."""
    _filled(_builder(model), "identifyInputsAndOutputs", inputs, outputs).identify_inputs_and_outputs(inputs, outputs)


@function()
def ANeuralNetworksModel_relaxComputationFloat32toFloat16(model: Handle, allow: bool) -> None:
    """Float32 may be computed with float16's range and precision."""
    _builder(model).relax_computation_float32_to_float16(allow)


@function(None)
def ANeuralNetworksModel_getSupportedOperationsForDevices(model: Handle, devices: Sequence[Handle]) -> list[bool]:
    """For each operation in order of addition, whether one of the devices takes it."""
    call = "getSupportedOperationsForDevices"
    handle = HANDLES.get(model, ModelHandle)
    chosen = [find_device(device) for device in not_null(devices, "devices")]
    answers = supported_operations(handle.finished(call), chosen)
    added = [False] * len(answers)
    for place, answer in zip(handle.builder.run_order, answers, strict=True):
        added[place] = answer
    return added


@function(None)
def ANeuralNetworksModel_getExtensionOperandType(model: Handle, extensionName: str, operandCodeWithinExtension: int) -> int:
    """The operand type of a number within an extension."""
    _builder(model)
    return _extension_code(extensionName, operandCodeWithinExtension)


@function(None)
def ANeuralNetworksModel_getExtensionOperationType(model: Handle, extensionName: str, operationCodeWithinExtension: int) -> int:
    """The operation type of a number within an extension."""
    _builder(model)
    return _extension_code(extensionName, operationCodeWithinExtension)


def _extension_code(name: str, number: int) -> int:
    name = not_null(name, "an extension's name")
    if not 0 <= number < 1 << 16:
        raise BadDataError(Reason("a number of 16 bits within the extension", str(number), name))
    return TYPES.code(name, number)


@function()
def ANeuralNetworksModel_setOperandExtensionData(model: Handle, index: int, data: Buffer, length: int | None = None) -> None:
    """Bytes that go to the driver with an extension operand; NULL removes them."""
    builder, view = _builder(model), exactly(data, length)
    builder.set_operand_extension_data(index, None if view is None else bytes(view))


# -- memories --------------------------------------------------------------------------------------------------------


@function(None)
def ANeuralNetworksMemory_createFromFd(size: int, protect: int, fd: int, offset: int) -> Handle:
    """Memory behind a descriptor, which is duplicated."""
    return HANDLES.add(Memory.from_fd(size, protect, fd, offset))


@function(None)
def ANeuralNetworksMemory_createFromAHardwareBuffer(buffer: object) -> Handle:
    """There is no allocator of hardware buffers here: UNMAPPABLE."""
    not_null(buffer, "a hardware buffer")
    raise UnmappableError(Reason("memory that can be mapped", "a hardware buffer, of which there are none on a workstation"))


@function(None)
def ANeuralNetworksMemory_createFromDesc(desc: Handle) -> Handle:
    """A device memory."""
    return HANDLES.add(HANDLES.get(desc, MemoryDesc).create())


@function()
def ANeuralNetworksMemory_copy(src: Handle, dst: Handle) -> None:
    """Copy what is in one memory into another."""
    HANDLES.get(src, Memory).copy_to(HANDLES.get(dst, Memory))


@value_function
def ANeuralNetworksMemory_free(memory: Handle | None) -> None:
    """Forget a memory; NULL is ignored."""
    free(memory, Memory)


@function(None)
def ANeuralNetworksMemoryDesc_create() -> Handle:
    """An empty descriptor."""
    return HANDLES.add(MemoryDesc())


@value_function
def ANeuralNetworksMemoryDesc_free(desc: Handle | None) -> None:
    """Forget a descriptor; NULL is ignored."""
    free(desc, MemoryDesc)


@function()
def ANeuralNetworksMemoryDesc_addInputRole(desc: Handle, compilation: Handle, index: int, frequency: float) -> None:
    """The memory will be this input of the compilation."""
    HANDLES.get(desc, MemoryDesc).add_input_role(HANDLES.get(compilation, Compilation), index, frequency)


@function()
def ANeuralNetworksMemoryDesc_addOutputRole(desc: Handle, compilation: Handle, index: int, frequency: float) -> None:
    """The memory will be this output of the compilation."""
    HANDLES.get(desc, MemoryDesc).add_output_role(HANDLES.get(compilation, Compilation), index, frequency)


@function()
def ANeuralNetworksMemoryDesc_setDimensions(desc: Handle, dimensions: Sequence[int]) -> None:
    """Fill in what the roles leave open."""
    HANDLES.get(desc, MemoryDesc).set_dimensions(not_null(dimensions, "dimensions"))


@function()
def ANeuralNetworksMemoryDesc_finish(desc: Handle) -> None:
    """End the description."""
    HANDLES.get(desc, MemoryDesc).finish()
