"""The functions of NeuralNetworks.h and NeuralNetworksExtensions.h, name for name, over nnbridge's own objects.

Every function gives a result code (``ResultCode``'s number) and never raises; what C gives back through pointers comes behind
the code as a tuple: ``code, model = ANeuralNetworksModel_create()``. NULL is None. Handles are numbers that are never used
twice, so that a stale one is refused (BAD_DATA) and NULL as well (UNEXPECTED_NULL). Buffers are anything with the buffer
protocol and are not copied (values of up to 128 bytes are, as in Android).

An error inside nnbridge becomes OP_FAILED and is logged with its traceback, once for each place.
"""

from __future__ import annotations

import ctypes
import itertools
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache, wraps
from typing import Any, TypeVar

from nnbridge import devices as device_list
from nnbridge.builder import ModelBuilder
from nnbridge.devices.device import Device
from nnbridge.errors import BadDataError, BadStateError, NnapiError, Reason, UnexpectedNullError, UnmappableError
from nnbridge.extensions import TYPES
from nnbridge.model import Model
from nnbridge.runtime.burst import Burst
from nnbridge.runtime.compilation import Compilation, PartitioningMode, supported_operations
from nnbridge.runtime.event import Event
from nnbridge.runtime.execution import DEFAULT_LOOP_TIMEOUT_NS, MAX_LOOP_TIMEOUT_NS, UNKNOWN_DURATION, Execution
from nnbridge.runtime.memory import Memory, MemoryDesc
from nnbridge.trace import from_environment
from nnbridge.types import RUNTIME_FEATURE_LEVEL, FeatureLevel, ResultCode

LOG = logging.getLogger("nnbridge.ndk")
Handle = int
Buffer = Any
NO_ERROR = int(ResultCode.NO_ERROR)
DEVICES_VARIABLE, CPU_ONLY_VARIABLE = "NNBRIDGE_DEVICES", "NNBRIDGE_CPU_ONLY"

TRACE = from_environment()
"""The trace of this process's calls, if the environment asks for one."""

FUNCTIONS: dict[str, Callable[..., Any]] = {}
"""Every exported function by name."""

_Object = TypeVar("_Object")


@dataclass(frozen=True)
class OperandType:
    """``ANeuralNetworksOperandType``."""

    type: int
    dimensions: Sequence[int] = ()
    scale: float = 0.0
    zeroPoint: int = 0


@dataclass(frozen=True)
class SymmPerChannelQuantParams:
    """``ANeuralNetworksSymmPerChannelQuantParams``."""

    channelDim: int
    scales: Sequence[float]


@dataclass
class _ModelHandle:
    """``ANeuralNetworksModel``: under construction, then finished."""

    builder: ModelBuilder = field(default_factory=ModelBuilder)
    model: Model | None = None

    def finished(self, call: str) -> Model:
        """The model; BAD_STATE before a finish that succeeded."""
        if self.model is None:
            raise BadStateError(Reason("a model that finished", "one that did not", call))
        return self.model


# -- handles ---------------------------------------------------------------------------------------------------------


class _Handles:
    """Objects by number. Numbers are not used again."""

    def __init__(self) -> None:
        self._numbers = itertools.count(0x1000, 16)
        self._objects: dict[int, object] = {}
        self._lock = threading.Lock()

    def add(self, made: object) -> Handle:
        with self._lock:
            number = next(self._numbers)
            self._objects[number] = made
        return number

    def get(self, handle: Handle | None, kind: type[_Object]) -> _Object:
        if not handle:
            raise UnexpectedNullError(Reason(f"a handle of a {kind.__name__.strip('_')}", "NULL"))
        found = self._objects.get(handle)
        if not isinstance(found, kind):
            raise BadDataError(Reason(f"a handle of a {kind.__name__.strip('_')}", f"{handle:#x}"))
        return found

    def remove(self, handle: Handle | None, kind: type[_Object]) -> _Object | None:
        with self._lock:
            found = self._objects.get(handle) if handle else None
            return self._objects.pop(handle) if handle and isinstance(found, kind) else None  # type: ignore[return-value]


HANDLES = _Handles()


def _function(*failed: object) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Turn errors into codes, and export what has a public name. ``failed`` stands for the results of a failure."""

    def export(body: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(body)
        def call(*arguments: Any) -> Any:
            code, results = NO_ERROR, None
            began = time.perf_counter() if TRACE is not None else 0.0
            try:
                results = body(*arguments)
            except NnapiError as error:
                code = int(error.code)
                LOG.debug("%s: %s: %s", body.__name__, error.code.name, error)
            except Exception:
                code = int(ResultCode.OP_FAILED)
                _log_once(body.__name__)
            if TRACE is not None and not body.__name__.startswith("_"):
                TRACE.call(body.__name__, code, began, **_more(body.__name__, code, arguments))
            if not failed:
                return code
            if code != NO_ERROR or results is None:
                return (code, *failed)
            return (code, *(results if isinstance(results, tuple) else (results,)))

        if not body.__name__.startswith("_"):
            FUNCTIONS[body.__name__] = call
        return call

    return export


def _more(name: str, code: int, arguments: Sequence[Any]) -> dict[str, Any]:
    """What a trace says beside the call: where a finished model was saved, what a compilation planned."""
    if TRACE is None or code != NO_ERROR:
        return {}
    if name == "ANeuralNetworksModel_finish":
        return {"saved": TRACE.model(HANDLES.get(arguments[0], _ModelHandle).finished(name))}
    if name == "ANeuralNetworksCompilation_finish":
        return {"plan": TRACE.plan(HANDLES.get(arguments[0], Compilation))}
    return {}


def _value(body: Callable[..., Any]) -> Callable[..., Any]:
    """Export a function without a result code."""
    FUNCTIONS[body.__name__] = body
    return body


@cache
def _log_once(name: str) -> None:
    LOG.exception("%s failed inside nnbridge", name)


def _free(handle: Handle | None, kind: type[Any]) -> None:
    freed = HANDLES.remove(handle, kind)
    close = getattr(freed, "close", None)
    if close is not None:
        close()


def _not_null(value: _Object | None, what: str) -> _Object:
    if value is None:
        raise UnexpectedNullError(Reason(what, "NULL"))
    return value


def _exactly(buffer: Buffer, length: int | None) -> Buffer:
    """The first ``length`` bytes of a buffer; NULL stays NULL, and is refused with a length (fact E11)."""
    if buffer is None:
        if length:
            raise UnexpectedNullError(Reason("a buffer", f"NULL of {length} bytes"))
        return None
    view = memoryview(buffer)
    view = view.cast("B") if view.contiguous and view.nbytes else view
    if length is None:
        return view
    if length > view.nbytes:
        raise BadDataError(Reason(f"a buffer of {length} bytes", str(view.nbytes)))
    return view[:length] if length != view.nbytes else view


# -- devices ---------------------------------------------------------------------------------------------------------


def _device(handle: Handle | None) -> Device:
    return HANDLES.get(handle, Device)  # type: ignore[type-abstract]  # devices of any class are meant


@cache
def _devices() -> tuple[tuple[Handle, Device], ...]:
    """Drivers, then the CPU (fact D1): all that are installed, or those that the environment names."""
    named = [name.strip() for name in os.environ.get(DEVICES_VARIABLE, "").split(",") if name.strip()]
    drivers = [device_list.device(name) for name in named] if named else list(device_list.drivers())
    listed = [device for device in drivers if device.kind == "device"]
    return tuple((HANDLES.add(device), device) for device in (*listed, device_list.cpu()))


@_function(0)
def ANeuralNetworks_getDeviceCount() -> int:
    """How many devices there are, the CPU among them."""
    return len(_devices())


@_function(None)
def ANeuralNetworks_getDevice(index: int) -> Handle:
    """The handle of a device, the same at every call; it is not freed."""
    devices = _devices()
    if not 0 <= index < len(devices):
        raise BadDataError(Reason(f"an index below {len(devices)}", str(index), "getDevice"))
    return devices[index][0]


@_function(None)
def ANeuralNetworksDevice_getName(device: Handle) -> str:
    """Its name."""
    return _device(device).name


@_function(None)
def ANeuralNetworksDevice_getType(device: Handle) -> int:
    """Its ``DeviceTypeCode``."""
    return int(_device(device).type)


@_function(None)
def ANeuralNetworksDevice_getVersion(device: Handle) -> str:
    """The version of its driver."""
    return _device(device).version


@_function(None)
def ANeuralNetworksDevice_getFeatureLevel(device: Handle) -> int:
    """Android's public constant of its feature level."""
    return _device(device).level.constant


@_function(None)
def ANeuralNetworksDevice_getExtensionSupport(device: Handle, name: str) -> bool:
    """True if the device has the extension."""
    found = _device(device)
    wanted = _not_null(name, "a name")
    return any(extension.name == wanted for extension in found.supported_extensions())


@_function()
def ANeuralNetworksDevice_wait(device: Handle) -> None:
    """Devices of this process are always ready."""
    _device(device)


@_value
def ANeuralNetworks_getRuntimeFeatureLevel() -> int:
    """Android's public constant of the runtime's feature level."""
    return FeatureLevel(RUNTIME_FEATURE_LEVEL).constant


@_value
def ANeuralNetworks_getDefaultLoopTimeout() -> int:
    """2 s, in nanoseconds."""
    return DEFAULT_LOOP_TIMEOUT_NS


@_value
def ANeuralNetworks_getMaximumLoopTimeout() -> int:
    """15 s, in nanoseconds."""
    return MAX_LOOP_TIMEOUT_NS


# -- models ----------------------------------------------------------------------------------------------------------


def _builder(model: Handle | None) -> ModelBuilder:
    return HANDLES.get(model, _ModelHandle).builder


@_function(None)
def ANeuralNetworksModel_create() -> Handle:
    """An empty model."""
    return HANDLES.add(_ModelHandle())


@_value
def ANeuralNetworksModel_free(model: Handle | None) -> None:
    """Forget a model; NULL is ignored."""
    _free(model, _ModelHandle)


@_function()
def ANeuralNetworksModel_finish(model: Handle) -> None:
    """Check the model and end its construction."""
    handle = HANDLES.get(model, _ModelHandle)
    handle.model = handle.builder.finish()


@_function()
def ANeuralNetworksModel_addOperand(model: Handle, type: OperandType) -> None:
    """Operands are numbered from 0 in order of addition."""
    builder, type = _builder(model), _not_null(type, "an operand type")
    builder.add_operand(type.type, type.dimensions, scale=type.scale, zero_point=type.zeroPoint)


@_function()
def ANeuralNetworksModel_setOperandValue(model: Handle, index: int, buffer: Buffer, length: int | None = None) -> None:
    """Up to 128 bytes are copied; a larger buffer must stay as it is until the model is freed. NULL: no value."""
    builder = _builder(model)
    builder.set_operand_value(index, _exactly(buffer, length))


@_function()
def ANeuralNetworksModel_setOperandValueFromMemory(model: Handle, index: int, memory: Handle, offset: int, length: int) -> None:
    """A constant that lies in a memory."""
    builder = _builder(model)
    builder.set_operand_value_from_memory(index, HANDLES.get(memory, Memory).as_pool(), offset, length)


@_function()
def ANeuralNetworksModel_setOperandValueFromModel(model: Handle, index: int, value: Handle) -> None:
    """The finished model that an operand of type MODEL stands for."""
    builder, inner = _builder(model), HANDLES.get(value, _ModelHandle)
    if inner.model is None:
        raise BadStateError(Reason("a model that finished", "one that did not", "setOperandValueFromModel"))
    builder.set_operand_value_from_model(index, inner.model)


@_function()
def ANeuralNetworksModel_setOperandSymmPerChannelQuantParams(
    model: Handle, index: int, params: SymmPerChannelQuantParams
) -> None:
    """Scales of a TENSOR_QUANT8_SYMM_PER_CHANNEL operand."""
    builder, params = _builder(model), _not_null(params, "parameters")
    builder.set_operand_symm_per_channel_quant_params(index, list(params.scales), params.channelDim)


@_function()
def ANeuralNetworksModel_addOperation(model: Handle, type: int, inputs: Sequence[int], outputs: Sequence[int]) -> None:
    """Operations may be added in any order."""
    builder = _builder(model)
    builder.add_operation(type, _not_null(inputs, "inputs"), _not_null(outputs, "outputs"))


@_function()
def ANeuralNetworksModel_identifyInputsAndOutputs(model: Handle, inputs: Sequence[int], outputs: Sequence[int]) -> None:
    """The model's inputs and outputs, in order."""
    builder = _builder(model)
    builder.identify_inputs_and_outputs(_not_null(inputs, "inputs"), _not_null(outputs, "outputs"))


@_function()
def ANeuralNetworksModel_relaxComputationFloat32toFloat16(model: Handle, allow: bool) -> None:
    """Float32 may be computed with float16's range and precision."""
    _builder(model).relax_computation_float32_to_float16(allow)


@_function(None)
def ANeuralNetworksModel_getSupportedOperationsForDevices(model: Handle, devices: Sequence[Handle]) -> list[bool]:
    """For each operation in order of addition, whether one of the devices takes it."""
    call = "getSupportedOperationsForDevices"
    handle = HANDLES.get(model, _ModelHandle)
    chosen = [_device(device) for device in _not_null(devices, "devices")]
    answers = supported_operations(handle.finished(call), chosen)
    added = [False] * len(answers)
    for place, answer in zip(handle.builder.run_order, answers, strict=True):
        added[place] = answer
    return added


@_function(None)
def ANeuralNetworksModel_getExtensionOperandType(model: Handle, extensionName: str, operandCodeWithinExtension: int) -> int:
    """The operand type of a number within an extension."""
    _builder(model)
    return _extension_code(extensionName, operandCodeWithinExtension)


@_function(None)
def ANeuralNetworksModel_getExtensionOperationType(model: Handle, extensionName: str, operationCodeWithinExtension: int) -> int:
    """The operation type of a number within an extension."""
    _builder(model)
    return _extension_code(extensionName, operationCodeWithinExtension)


def _extension_code(name: str, number: int) -> int:
    name = _not_null(name, "an extension's name")
    if not 0 <= number < 1 << 16:
        raise BadDataError(Reason("a number of 16 bits within the extension", str(number), name))
    return TYPES.code(name, number)


@_function()
def ANeuralNetworksModel_setOperandExtensionData(model: Handle, index: int, data: Buffer, length: int | None = None) -> None:
    """Bytes that go to the driver with an extension operand; NULL removes them."""
    builder, view = _builder(model), _exactly(data, length)
    builder.set_operand_extension_data(index, None if view is None else bytes(view))


# -- memories --------------------------------------------------------------------------------------------------------


@_function(None)
def ANeuralNetworksMemory_createFromFd(size: int, protect: int, fd: int, offset: int) -> Handle:
    """Memory behind a descriptor, which is duplicated."""
    return HANDLES.add(Memory.from_fd(size, protect, fd, offset))


@_function(None)
def ANeuralNetworksMemory_createFromAHardwareBuffer(buffer: object) -> Handle:
    """There is no allocator of hardware buffers here: UNMAPPABLE."""
    _not_null(buffer, "a hardware buffer")
    raise UnmappableError(Reason("memory that can be mapped", "a hardware buffer, of which there are none on a workstation"))


@_function(None)
def ANeuralNetworksMemory_createFromDesc(desc: Handle) -> Handle:
    """A device memory."""
    return HANDLES.add(HANDLES.get(desc, MemoryDesc).create())


@_function()
def ANeuralNetworksMemory_copy(src: Handle, dst: Handle) -> None:
    """Copy what is in one memory into another."""
    HANDLES.get(src, Memory).copy_to(HANDLES.get(dst, Memory))


@_value
def ANeuralNetworksMemory_free(memory: Handle | None) -> None:
    """Forget a memory; NULL is ignored."""
    _free(memory, Memory)


@_function(None)
def ANeuralNetworksMemoryDesc_create() -> Handle:
    """An empty descriptor."""
    return HANDLES.add(MemoryDesc())


@_value
def ANeuralNetworksMemoryDesc_free(desc: Handle | None) -> None:
    """Forget a descriptor; NULL is ignored."""
    _free(desc, MemoryDesc)


@_function()
def ANeuralNetworksMemoryDesc_addInputRole(desc: Handle, compilation: Handle, index: int, frequency: float) -> None:
    """The memory will be this input of the compilation."""
    HANDLES.get(desc, MemoryDesc).add_input_role(HANDLES.get(compilation, Compilation), index, frequency)


@_function()
def ANeuralNetworksMemoryDesc_addOutputRole(desc: Handle, compilation: Handle, index: int, frequency: float) -> None:
    """The memory will be this output of the compilation."""
    HANDLES.get(desc, MemoryDesc).add_output_role(HANDLES.get(compilation, Compilation), index, frequency)


@_function()
def ANeuralNetworksMemoryDesc_setDimensions(desc: Handle, dimensions: Sequence[int]) -> None:
    """Fill in what the roles leave open."""
    HANDLES.get(desc, MemoryDesc).set_dimensions(_not_null(dimensions, "dimensions"))


@_function()
def ANeuralNetworksMemoryDesc_finish(desc: Handle) -> None:
    """End the description."""
    HANDLES.get(desc, MemoryDesc).finish()


# -- compilations ----------------------------------------------------------------------------------------------------


def _mode() -> PartitioningMode:
    return PartitioningMode.NO if os.environ.get(CPU_ONLY_VARIABLE, "") not in ("", "0") else PartitioningMode.WITH_FALLBACK


@_function(None)
def ANeuralNetworksCompilation_create(model: Handle) -> Handle:
    """For all devices, with the CPU to fall back to."""
    finished = HANDLES.get(model, _ModelHandle).finished("Compilation_create")
    drivers = [device for _, device in _devices() if device.kind == "device"]
    return HANDLES.add(Compilation.create(finished, drivers, _mode()))


@_function(None)
def ANeuralNetworksCompilation_createForDevices(model: Handle, devices: Sequence[Handle]) -> Handle:
    """For these devices and no others."""
    finished = HANDLES.get(model, _ModelHandle).finished("createForDevices")
    chosen = [_device(device) for device in _not_null(devices, "devices")]
    return HANDLES.add(Compilation.create_for_devices(finished, chosen))


@_value
def ANeuralNetworksCompilation_free(compilation: Handle | None) -> None:
    """Forget a compilation; NULL is ignored."""
    _free(compilation, Compilation)


@_function()
def ANeuralNetworksCompilation_setCaching(compilation: Handle, cacheDir: str, token: Buffer) -> None:
    """Where compiled models may be kept, under a token of 32 bytes."""
    HANDLES.get(compilation, Compilation).set_caching(_not_null(cacheDir, "a directory"), bytes(_not_null(token, "a token")))


@_function()
def ANeuralNetworksCompilation_setPreference(compilation: Handle, preference: int) -> None:
    """Low power, fast single answer or sustained speed."""
    HANDLES.get(compilation, Compilation).set_preference(preference)


@_function()
def ANeuralNetworksCompilation_setPriority(compilation: Handle, priority: int) -> None:
    """90, 100 or 110."""
    HANDLES.get(compilation, Compilation).set_priority(priority)


@_function()
def ANeuralNetworksCompilation_setTimeout(compilation: Handle, duration: int) -> None:
    """Nanoseconds for compiling; 0 for no limit."""
    HANDLES.get(compilation, Compilation).set_timeout(duration)


@_function()
def ANeuralNetworksCompilation_finish(compilation: Handle) -> None:
    """Partition and prepare."""
    found = HANDLES.get(compilation, Compilation)
    found.finish()
    if LOG.isEnabledFor(logging.INFO):
        for line in placements(found):
            LOG.info("%s", line)


@_function()
def ANeuralNetworksCompilation_addExtensionAttribute(
    compilation: Handle, extensionName: str, attributeCodeWithinExtension: int, data: Buffer, length: int | None = None
) -> None:
    """None of nnbridge's extensions has attributes: BAD_DATA."""
    HANDLES.get(compilation, Compilation)
    _refuse_attribute(extensionName, attributeCodeWithinExtension)


def _refuse_attribute(name: str, number: int) -> None:
    raise BadDataError(Reason("an attribute that a device's extension has", f"{_not_null(name, 'a name')}#{number}"))


def placements(compilation: Compilation) -> Iterator[str]:
    """Where each operation of a finished compilation goes, and at which figures the devices offered it."""
    plan, model = compilation.plan, compilation.model
    for placement in plan.placements:
        name = model.operation_name(model.main.operations[placement.operation])
        offers = (f"{a.device} {a.figure:g}" if a.figure is not None else f"{a.device}: {a.reason}" for a in placement.answers)
        yield f"operation {placement.operation} {name} goes to {plan.device_of(placement.operation).name} ({'; '.join(offers)})"


def _memory_preference(name: str, direction: str) -> None:
    """Export the four questions for memories in one form."""
    method = getattr(Compilation, f"preferred_{name}")

    def ask(compilation: Handle, index: int) -> int:
        return int(method(HANDLES.get(compilation, Compilation), direction, index))

    ask.__name__ = ask.__qualname__ = (
        f"ANeuralNetworksCompilation_getPreferredMemory{name.capitalize()}For{direction.capitalize()}"
    )
    ask.__doc__ = f"Preferred {name} in bytes of memory for an {direction}."
    globals()[ask.__name__] = _function(None)(ask)


for _name in ("alignment", "padding"):
    for _direction in ("input", "output"):
        _memory_preference(_name, _direction)


# -- executions ------------------------------------------------------------------------------------------------------


@_function(None)
def ANeuralNetworksExecution_create(compilation: Handle) -> Handle:
    """An execution whose inputs and outputs are to be set."""
    return HANDLES.add(Execution(HANDLES.get(compilation, Compilation)))


@_value
def ANeuralNetworksExecution_free(execution: Handle | None) -> None:
    """Forget an execution; NULL is ignored."""
    _free(execution, Execution)


def _dims(type: OperandType | None) -> Sequence[int] | None:
    return None if type is None else type.dimensions


@_function()
def ANeuralNetworksExecution_setInput(
    execution: Handle, index: int, type: OperandType | None, buffer: Buffer, length: int | None = None
) -> None:
    """Read from a buffer; NULL of length 0 omits the input."""
    found = HANDLES.get(execution, Execution)
    found.set_input_buffer(index, _exactly(buffer, length), _dims(type))


@_function()
def ANeuralNetworksExecution_setInputFromMemory(
    execution: Handle, index: int, type: OperandType | None, memory: Handle, offset: int, length: int
) -> None:
    """Read from a memory."""
    found = HANDLES.get(execution, Execution)
    found.set_input_from_memory(index, HANDLES.get(memory, Memory), offset, length, _dims(type))


@_function()
def ANeuralNetworksExecution_setOutput(
    execution: Handle, index: int, type: OperandType | None, buffer: Buffer, length: int | None = None
) -> None:
    """Write into a buffer; NULL of length 0 omits the output."""
    found = HANDLES.get(execution, Execution)
    found.set_output(index, _exactly(buffer, length), _dims(type))


@_function()
def ANeuralNetworksExecution_setOutputFromMemory(
    execution: Handle, index: int, type: OperandType | None, memory: Handle, offset: int, length: int
) -> None:
    """Write into a memory."""
    found = HANDLES.get(execution, Execution)
    found.set_output_from_memory(index, HANDLES.get(memory, Memory), offset, length, _dims(type))


@_function()
def ANeuralNetworksExecution_enableInputAndOutputPadding(execution: Handle, enable: bool) -> None:
    """Buffers may be longer than their operands."""
    HANDLES.get(execution, Execution).enable_input_and_output_padding(enable)


@_function()
def ANeuralNetworksExecution_setReusable(execution: Handle, reusable: bool) -> None:
    """The execution may be computed again."""
    HANDLES.get(execution, Execution).set_reusable(reusable)


@_function()
def ANeuralNetworksExecution_setMeasureTiming(execution: Handle, measure: bool) -> None:
    """Measure durations."""
    HANDLES.get(execution, Execution).set_measure_timing(measure)


@_function()
def ANeuralNetworksExecution_setTimeout(execution: Handle, duration: int) -> None:
    """Nanoseconds for computing; 0 for no limit."""
    HANDLES.get(execution, Execution).set_timeout(duration)


@_function()
def ANeuralNetworksExecution_setLoopTimeout(execution: Handle, duration: int) -> None:
    """Nanoseconds for each WHILE loop."""
    HANDLES.get(execution, Execution).set_loop_timeout(duration)


@_function()
def ANeuralNetworksExecution_addExtensionAttribute(
    execution: Handle, extensionName: str, attributeCodeWithinExtension: int, data: Buffer, length: int | None = None
) -> None:
    """None of nnbridge's extensions has attributes: BAD_DATA."""
    HANDLES.get(execution, Execution)
    _refuse_attribute(extensionName, attributeCodeWithinExtension)


@_function()
def ANeuralNetworksExecution_compute(execution: Handle) -> None:
    """Run and wait."""
    HANDLES.get(execution, Execution).compute()


@_function(None)
def ANeuralNetworksExecution_startCompute(execution: Handle) -> Handle:
    """Run in the background; the event tells the end."""
    return HANDLES.add(HANDLES.get(execution, Execution).start_compute())


@_function(None)
def ANeuralNetworksExecution_startComputeWithDependencies(
    execution: Handle, dependencies: Sequence[Handle | None], duration: int
) -> Handle:
    """Run when the events are done."""
    found = HANDLES.get(execution, Execution)
    events = [HANDLES.get(event, Event) for event in dependencies or ()]
    return HANDLES.add(found.start_compute_with_dependencies(events, duration))


@_function()
def ANeuralNetworksExecution_burstCompute(execution: Handle, burst: Handle) -> None:
    """Run as part of a burst."""
    found = HANDLES.get(execution, Execution)
    HANDLES.get(burst, Burst).compute(found)


@_function(UNKNOWN_DURATION)
def ANeuralNetworksExecution_getDuration(execution: Handle, durationCode: int) -> int:
    """Measured nanoseconds."""
    return HANDLES.get(execution, Execution).duration(durationCode)


@_function(0)
def ANeuralNetworksExecution_getOutputOperandRank(execution: Handle, index: int) -> int:
    """The rank of an output after computing."""
    return HANDLES.get(execution, Execution).output_rank(index)


@_value
def ANeuralNetworksExecution_getOutputOperandDimensions(execution: Handle, index: int) -> tuple[int, tuple[int, ...]]:
    """The dimensions of an output after computing; OUTPUT_INSUFFICIENT_SIZE with them where the buffer was too small."""
    code, dims, sufficient = _output_dimensions(execution, index)
    return (code if code != NO_ERROR or sufficient else int(ResultCode.OUTPUT_INSUFFICIENT_SIZE)), dims


@_function((), True)
def _output_dimensions(execution: Handle, index: int) -> tuple[tuple[int, ...], bool]:
    found = HANDLES.get(execution, Execution)
    return found.output_dims(index), found.output_sufficient(index)


# -- events and bursts -----------------------------------------------------------------------------------------------


@_value
def ANeuralNetworksEvent_wait(event: Handle) -> int:
    """Wait; the code is that of the execution."""
    code, result = _event_result(event)
    return code if code != NO_ERROR else result


@_function(NO_ERROR)
def _event_result(event: Handle) -> int:
    return int(HANDLES.get(event, Event).result)


@_value
def ANeuralNetworksEvent_free(event: Handle | None) -> None:
    """Wait, then forget an event; NULL is ignored."""
    _free(event, Event)


@_function(None)
def ANeuralNetworksEvent_createFromSyncFenceFd(sync_fence_fd: int) -> Handle:
    """An event that is done when the descriptor becomes readable."""
    return HANDLES.add(Event.from_sync_fence_fd(sync_fence_fd))


@_function(-1)
def ANeuralNetworksEvent_getSyncFenceFd(event: Handle) -> int:
    """A descriptor of the caller's own that becomes readable at the end."""
    return HANDLES.get(event, Event).sync_fence_fd()


@_function(None)
def ANeuralNetworksBurst_create(compilation: Handle) -> Handle:
    """A burst of executions."""
    return HANDLES.add(Burst(HANDLES.get(compilation, Compilation)))


@_value
def ANeuralNetworksBurst_free(burst: Handle | None) -> None:
    """Forget a burst; NULL is ignored."""
    _free(burst, Burst)


def address(pointer: int, length: int) -> memoryview:
    """The bytes at an address of this process, for callers that have no buffer object; nothing is copied."""
    return memoryview((ctypes.c_char * length).from_address(pointer)).cast("B")
