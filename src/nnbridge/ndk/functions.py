"""The NDK's functions: devices, models, memories, compilations, executions, events and bursts."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from nnbridge.builder import ModelBuilder
from nnbridge.errors import BadDataError, BadStateError, Reason, UnmappableError
from nnbridge.extensions import TYPES
from nnbridge.ndk.core import (
    FUNCTIONS,
    HANDLES,
    LOG,
    NO_ERROR,
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
from nnbridge.ndk.device_functions import devices_of_process, find_device, partitioning_mode
from nnbridge.operations.validation import check_operand_type
from nnbridge.runtime.burst import Burst
from nnbridge.runtime.compilation import Compilation, supported_operations
from nnbridge.runtime.event import Event
from nnbridge.runtime.execution import UNKNOWN_DURATION, Execution
from nnbridge.runtime.memory import Memory, MemoryDesc
from nnbridge.types import (
    ResultCode,
)

# -- models ----------------------------------------------------------------------------------------------------------


def _builder(model: Handle | None) -> ModelBuilder:
    return HANDLES.get(model, ModelHandle).builder


def _filled(builder: ModelBuilder, call: str, *lists: Sequence[int] | None) -> ModelBuilder:
    """The builder, if the lists are there and none is empty (facts M5 and M6)."""
    for indexes in lists:
        not_null(indexes, "a list of operands")
    builder.require_open(call)
    for indexes in lists:
        sized(indexes or None, call)
    return builder


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
    """For each operation in order of addition, whether one of the devices supports it."""
    call = "getSupportedOperationsForDevices"
    handle = HANDLES.get(model, ModelHandle)
    chosen = [find_device(device) for device in not_null(devices, "devices")]
    answers = supported_operations(handle.finished(call), chosen)
    added = [False] * len(answers)
    for index, answer in zip(handle.builder.run_order, answers, strict=True):
        added[index] = answer
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
    """Memory of a descriptor, which is duplicated."""
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


# -- compilations ----------------------------------------------------------------------------------------------------


@function(None)
def ANeuralNetworksCompilation_create(model: Handle) -> Handle:
    """For all devices, with fallback to the CPU."""
    finished = HANDLES.get(model, ModelHandle).finished("Compilation_create")
    drivers = [device for _, device in devices_of_process() if device.kind == "device"]
    return HANDLES.add(Compilation.create(finished, drivers, partitioning_mode()))


@function(None)
def ANeuralNetworksCompilation_createForDevices(model: Handle, devices: Sequence[Handle]) -> Handle:
    """For these devices and no others."""
    finished = HANDLES.get(model, ModelHandle).finished("createForDevices")
    chosen = [find_device(device) for device in not_null(devices, "devices")]
    return HANDLES.add(Compilation.create_for_devices(finished, chosen))


@function()
def ANeuralNetworksCompilation_setCaching(compilation: Handle, cacheDir: str, token: Buffer) -> None:
    """Set the folder for cached compilations, with a token of 32 bytes."""
    HANDLES.get(compilation, Compilation).set_caching(not_null(cacheDir, "a directory"), bytes(not_null(token, "a token")))


@function()
def ANeuralNetworksCompilation_finish(compilation: Handle) -> None:
    """Partition and prepare."""
    found = HANDLES.get(compilation, Compilation)
    found.finish()
    if LOG.isEnabledFor(logging.INFO):
        for line in placements(found):
            LOG.info("%s", line)


def placements(compilation: Compilation) -> Iterator[str]:
    """The device of each operation of a finished compilation, and the relative performance that the devices offered."""
    plan = compilation.plan
    for source, placement in plan.placed():
        model, within = plan.partition.sources[source].model, plan.partition.within(source)
        name = model.operation_name(model.main.operations[placement.operation])
        offers = (
            f"{a.device}: {a.reason}" if a.performance is None else f"{a.device} {a.performance:g}" for a in placement.answers
        )
        goes = f"{name} goes to {plan.device_of(placement.operation, source).name} ({'; '.join(offers)})"
        yield f"operation {placement.operation} {f'({within}) ' if within else ''}{goes}"


# -- executions ------------------------------------------------------------------------------------------------------


@function(None)
def ANeuralNetworksExecution_create(compilation: Handle) -> Handle:
    """An execution whose inputs and outputs are to be set."""
    return HANDLES.add(Execution(HANDLES.get(compilation, Compilation)))


def _dims(execution: Execution, type: OperandType | None, call: str) -> Sequence[int] | None:
    """The dimensions of a type, which must be valid; its code and quantisation are not used (fact E8)."""
    if type is None:
        return None
    execution.require_preparation(call)
    dims = sized(type.dimensions, call)
    reason = check_operand_type(type.type, dims, type.scale, type.zeroPoint)
    if reason is not None:
        raise BadDataError(reason)
    return dims


@function(None)
def ANeuralNetworksExecution_startCompute(execution: Handle) -> Handle:
    """Run in the background; the event is signalled at the end."""
    return HANDLES.add(HANDLES.get(execution, Execution).start_compute())


@function(None)
def ANeuralNetworksExecution_startComputeWithDependencies(
    execution: Handle, dependencies: Sequence[Handle | None], duration: int
) -> Handle:
    """Run when the events are done."""
    found = HANDLES.get(execution, Execution)
    events = [HANDLES.get(event, Event) for event in not_null(dependencies, "dependencies")]
    return HANDLES.add(found.start_compute_with_dependencies(events, duration))


@function()
def ANeuralNetworksExecution_burstCompute(execution: Handle, burst: Handle) -> None:
    """Run as part of a burst."""
    found = HANDLES.get(execution, Execution)
    HANDLES.get(burst, Burst).compute(found)


@value_function
def ANeuralNetworksExecution_getOutputOperandDimensions(execution: Handle, index: int) -> tuple[int, tuple[int, ...]]:
    """The dimensions of an output after computing; OUTPUT_INSUFFICIENT_SIZE with them where the buffer was too small."""
    code, dims, sufficient = _output_dimensions(execution, index)
    return (code if code != NO_ERROR or sufficient else int(ResultCode.OUTPUT_INSUFFICIENT_SIZE)), dims


@function((), True)
def _output_dimensions(execution: Handle, index: int) -> tuple[tuple[int, ...], bool]:
    found = HANDLES.get(execution, Execution)
    return found.output_dims(index), found.output_sufficient(index)


# -- events and bursts -----------------------------------------------------------------------------------------------


@value_function
def ANeuralNetworksEvent_wait(event: Handle) -> int:
    """Wait; the code is that of the execution."""
    code, result = _event_result(event)
    return code if code != NO_ERROR else result


@function(NO_ERROR)
def _event_result(event: Handle) -> int:
    return int(HANDLES.get(event, Event).result)


@function(None)
def ANeuralNetworksEvent_createFromSyncFenceFd(sync_fence_fd: int) -> Handle:
    """An event that is done when the descriptor becomes readable."""
    return HANDLES.add(Event.from_sync_fence_fd(sync_fence_fd))


@function(None)
def ANeuralNetworksBurst_create(compilation: Handle) -> Handle:
    """A burst of executions."""
    return HANDLES.add(Burst(HANDLES.get(compilation, Compilation)))


# -- functions of one form ---------------------------------------------------------------------------------------------

_METHODS: dict[str, tuple[type[Any], str, str, tuple[object, ...]]] = {
    "MemoryDesc_finish": (MemoryDesc, "finish", "End the description.", ()),
    "Compilation_setPreference": (Compilation, "set_preference", "Low power, fast single answer or sustained speed.", ()),
    "Compilation_setPriority": (Compilation, "set_priority", "90, 100 or 110.", ()),
    "Compilation_setTimeout": (Compilation, "set_timeout", "Nanoseconds for compiling; 0 for no limit.", ()),
    "Execution_enableInputAndOutputPadding": (Execution, "enable_input_and_output_padding", "Buffers may be longer.", ()),
    "Execution_setReusable": (Execution, "set_reusable", "The execution may be computed again.", ()),
    "Execution_setMeasureTiming": (Execution, "set_measure_timing", "Measure durations.", ()),
    "Execution_setTimeout": (Execution, "set_timeout", "Nanoseconds for computing; 0 for no limit.", ()),
    "Execution_setLoopTimeout": (Execution, "set_loop_timeout", "Nanoseconds for each WHILE loop.", ()),
    "Execution_compute": (Execution, "compute", "Run and wait.", ()),
    "Execution_getDuration": (Execution, "duration", "Measured nanoseconds.", (UNKNOWN_DURATION,)),
    "Execution_getOutputOperandRank": (Execution, "output_rank", "The rank of an output after computing.", (0,)),
    "Event_getSyncFenceFd": (Event, "sync_fence_fd", "A descriptor of the caller's own, readable at the end.", (-1,)),
}
"""Function → the class of its handle, the method that it calls with its other arguments, what it does, results of a failure."""


def _export(name: str, body: Callable[..., Any], doc: str, *failed: object) -> None:
    body.__name__ = body.__qualname__ = f"ANeuralNetworks{name}"
    body.__doc__ = doc
    globals()[body.__name__] = function(*failed)(body)


def _method(kind: type[Any], method: str, *first: object) -> Callable[..., Any]:
    return lambda handle, *arguments: getattr(HANDLES.get(handle, kind), method)(*first, *arguments)


def _attribute(kind: type[Any]) -> Callable[..., None]:
    def add(
        handle: Handle, extensionName: str, attributeCodeWithinExtension: int, data: Buffer, length: int | None = None
    ) -> None:
        found, name = HANDLES.get(handle, kind), not_null(extensionName, "an extension's name")
        found.add_extension_attribute(name, attributeCodeWithinExtension, bytes(exactly(data, length) or b""))

    return add


def _from_buffer(direction: str, method: str) -> Callable[..., None]:
    def set_argument(execution: Handle, index: int, type: OperandType | None, buffer: Buffer, length: int | None = None) -> None:
        found = HANDLES.get(execution, Execution)
        getattr(found, method)(index, exactly(buffer, length), _dims(found, type, f"set{direction}"))

    return set_argument


def _from_memory(direction: str, method: str) -> Callable[..., None]:
    def set_argument(execution: Handle, index: int, type: OperandType | None, memory: Handle, offset: int, length: int) -> None:
        found, call = HANDLES.get(execution, Execution), f"set{direction}FromMemory"
        getattr(found, method)(index, HANDLES.get(memory, Memory), offset, length, _dims(found, type, call))

    return set_argument


for _name, _method_name, _verb in (("Input", "set_input_buffer", "Read from"), ("Output", "set_output", "Write into")):
    _doc = f"{_verb} a buffer; NULL of length 0 omits the {_name.lower()}."
    _export(f"Execution_set{_name}", _from_buffer(_name, _method_name), _doc)
    _export(f"Execution_set{_name}FromMemory", _from_memory(_name, f"set_{_name.lower()}_from_memory"), f"{_verb} a memory.")
for _name, (_kind, _method_name, _doc, _failed) in _METHODS.items():
    _export(_name, _method(_kind, _method_name), _doc, *_failed)
for _kind in (Compilation, Execution):
    _export(f"{_kind.__name__}_addExtensionAttribute", _attribute(_kind), "A hint for the driver.")
for _what in ("alignment", "padding"):
    for _direction in ("input", "output"):
        _name = f"Compilation_getPreferredMemory{_what.capitalize()}For{_direction.capitalize()}"
        _doc = f"Preferred {_what} in bytes of memory for an {_direction}."
        _export(_name, _method(Compilation, f"preferred_{_what}", _direction), _doc, None)
for _name, _kind in {"Model": ModelHandle, "MemoryDesc": MemoryDesc}.items():
    _export(f"{_name}_create", lambda kind=_kind: HANDLES.add(kind()), "A new, empty object.", None)
for _kind in (ModelHandle, Memory, MemoryDesc, Compilation, Execution, Event, Burst):
    _name = f"ANeuralNetworks{_kind.__name__.removesuffix('Handle')}_free"
    globals()[_name] = FUNCTIONS[_name] = partial(free, kind=_kind)
