"""Compilations, executions, events and bursts."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence

from nnbridge.errors import BadDataError, InputError, Reason
from nnbridge.ndk.building import devices_of_process, find_device
from nnbridge.ndk.core import (
    CPU_ONLY_VARIABLE,
    HANDLES,
    LOG,
    NO_ERROR,
    PARTITION_VARIABLE,
    Buffer,
    Handle,
    ModelHandle,
    OperandType,
    exactly,
    free,
    function,
    not_null,
    sized,
    value_function,
)
from nnbridge.operations.validation import check_operand_type
from nnbridge.runtime.burst import Burst
from nnbridge.runtime.compilation import Compilation, PartitioningMode
from nnbridge.runtime.event import Event
from nnbridge.runtime.execution import UNKNOWN_DURATION, Execution
from nnbridge.runtime.memory import Memory
from nnbridge.types import ResultCode

# -- compilations ----------------------------------------------------------------------------------------------------


def _mode() -> PartitioningMode:
    """What the environment says of partitioning; BAD_DATA for what is no mode."""
    if os.environ.get(CPU_ONLY_VARIABLE, "") not in ("", "0"):
        return PartitioningMode.NO
    text = os.environ.get(PARTITION_VARIABLE, "") or str(int(PartitioningMode.WITH_FALLBACK))
    modes = {str(int(mode)): mode for mode in PartitioningMode}
    if text not in modes:
        raise BadDataError(Reason(f"one of {', '.join(modes)}", text, operand=PARTITION_VARIABLE))
    return modes[text]


def check_environment() -> None:
    """InputError for a variable whose value means nothing; the devices that the environment names are there from then on."""
    try:
        _mode()
    except BadDataError as error:
        raise InputError(error.reason) from error
    devices_of_process()


@function(None)
def ANeuralNetworksCompilation_create(model: Handle) -> Handle:
    """For all devices, with the CPU to fall back to."""
    finished = HANDLES.get(model, ModelHandle).finished("Compilation_create")
    drivers = [device for _, device in devices_of_process() if device.kind == "device"]
    return HANDLES.add(Compilation.create(finished, drivers, _mode()))


@function(None)
def ANeuralNetworksCompilation_createForDevices(model: Handle, devices: Sequence[Handle]) -> Handle:
    """For these devices and no others."""
    finished = HANDLES.get(model, ModelHandle).finished("createForDevices")
    chosen = [find_device(device) for device in not_null(devices, "devices")]
    return HANDLES.add(Compilation.create_for_devices(finished, chosen))


@value_function
def ANeuralNetworksCompilation_free(compilation: Handle | None) -> None:
    """Forget a compilation; NULL is ignored."""
    free(compilation, Compilation)


@function()
def ANeuralNetworksCompilation_setCaching(compilation: Handle, cacheDir: str, token: Buffer) -> None:
    """Where compiled models may be kept, under a token of 32 bytes."""
    HANDLES.get(compilation, Compilation).set_caching(not_null(cacheDir, "a directory"), bytes(not_null(token, "a token")))


@function()
def ANeuralNetworksCompilation_setPreference(compilation: Handle, preference: int) -> None:
    """Low power, fast single answer or sustained speed."""
    HANDLES.get(compilation, Compilation).set_preference(preference)


@function()
def ANeuralNetworksCompilation_setPriority(compilation: Handle, priority: int) -> None:
    """90, 100 or 110."""
    HANDLES.get(compilation, Compilation).set_priority(priority)


@function()
def ANeuralNetworksCompilation_setTimeout(compilation: Handle, duration: int) -> None:
    """Nanoseconds for compiling; 0 for no limit."""
    HANDLES.get(compilation, Compilation).set_timeout(duration)


@function()
def ANeuralNetworksCompilation_finish(compilation: Handle) -> None:
    """Partition and prepare."""
    found = HANDLES.get(compilation, Compilation)
    found.finish()
    if LOG.isEnabledFor(logging.INFO):
        for line in placements(found):
            LOG.info("%s", line)


@function()
def ANeuralNetworksCompilation_addExtensionAttribute(
    compilation: Handle, extensionName: str, attributeCodeWithinExtension: int, data: Buffer, length: int | None = None
) -> None:
    """A hint for the driver."""
    found, name = HANDLES.get(compilation, Compilation), not_null(extensionName, "an extension's name")
    found.add_extension_attribute(name, attributeCodeWithinExtension, bytes(exactly(data, length) or b""))


def placements(compilation: Compilation) -> Iterator[str]:
    """Where each operation of a finished compilation goes, and at which figures the devices offered it."""
    plan = compilation.plan
    for source, placement in plan.placed():
        model, within = plan.partition.sources[source].model, plan.partition.within(source)
        name = model.operation_name(model.main.operations[placement.operation])
        offers = (
            f"{a.device}: {a.reason}" if a.performance is None else f"{a.device} {a.performance:g}" for a in placement.answers
        )
        goes = f"{name} goes to {plan.device_of(placement.operation, source).name} ({'; '.join(offers)})"
        yield f"operation {placement.operation} {f'({within}) ' if within else ''}{goes}"


def _memory_preference(name: str, direction: str) -> None:
    """Export the four questions for memories in one form."""
    method = getattr(Compilation, f"preferred_{name}")

    def ask(compilation: Handle, index: int) -> int:
        return int(method(HANDLES.get(compilation, Compilation), direction, index))

    ask.__name__ = ask.__qualname__ = (
        f"ANeuralNetworksCompilation_getPreferredMemory{name.capitalize()}For{direction.capitalize()}"
    )
    ask.__doc__ = f"Preferred {name} in bytes of memory for an {direction}."
    globals()[ask.__name__] = function(None)(ask)


for _name in ("alignment", "padding"):
    for _direction in ("input", "output"):
        _memory_preference(_name, _direction)


# -- executions ------------------------------------------------------------------------------------------------------


@function(None)
def ANeuralNetworksExecution_create(compilation: Handle) -> Handle:
    """An execution whose inputs and outputs are to be set."""
    return HANDLES.add(Execution(HANDLES.get(compilation, Compilation)))


@value_function
def ANeuralNetworksExecution_free(execution: Handle | None) -> None:
    """Forget an execution; NULL is ignored."""
    free(execution, Execution)


def _dims(execution: Execution, type: OperandType | None, call: str) -> Sequence[int] | None:
    """The dimensions of a type, which must be right by itself; its code and quantisation count for no more (fact E8)."""
    if type is None:
        return None
    execution.require_preparation(call)
    dims = sized(type.dimensions, call)
    reason = check_operand_type(type.type, dims, type.scale, type.zeroPoint)
    if reason is not None:
        raise BadDataError(reason)
    return dims


@function()
def ANeuralNetworksExecution_setInput(
    execution: Handle, index: int, type: OperandType | None, buffer: Buffer, length: int | None = None
) -> None:
    """Read from a buffer; NULL of length 0 omits the input."""
    found = HANDLES.get(execution, Execution)
    found.set_input_buffer(index, exactly(buffer, length), _dims(found, type, "setInput"))


@function()
def ANeuralNetworksExecution_setInputFromMemory(
    execution: Handle, index: int, type: OperandType | None, memory: Handle, offset: int, length: int
) -> None:
    """Read from a memory."""
    found = HANDLES.get(execution, Execution)
    found.set_input_from_memory(index, HANDLES.get(memory, Memory), offset, length, _dims(found, type, "setInputFromMemory"))


@function()
def ANeuralNetworksExecution_setOutput(
    execution: Handle, index: int, type: OperandType | None, buffer: Buffer, length: int | None = None
) -> None:
    """Write into a buffer; NULL of length 0 omits the output."""
    found = HANDLES.get(execution, Execution)
    found.set_output(index, exactly(buffer, length), _dims(found, type, "setOutput"))


@function()
def ANeuralNetworksExecution_setOutputFromMemory(
    execution: Handle, index: int, type: OperandType | None, memory: Handle, offset: int, length: int
) -> None:
    """Write into a memory."""
    found = HANDLES.get(execution, Execution)
    found.set_output_from_memory(index, HANDLES.get(memory, Memory), offset, length, _dims(found, type, "setOutputFromMemory"))


@function()
def ANeuralNetworksExecution_enableInputAndOutputPadding(execution: Handle, enable: bool) -> None:
    """Buffers may be longer than their operands."""
    HANDLES.get(execution, Execution).enable_input_and_output_padding(enable)


@function()
def ANeuralNetworksExecution_setReusable(execution: Handle, reusable: bool) -> None:
    """The execution may be computed again."""
    HANDLES.get(execution, Execution).set_reusable(reusable)


@function()
def ANeuralNetworksExecution_setMeasureTiming(execution: Handle, measure: bool) -> None:
    """Measure durations."""
    HANDLES.get(execution, Execution).set_measure_timing(measure)


@function()
def ANeuralNetworksExecution_setTimeout(execution: Handle, duration: int) -> None:
    """Nanoseconds for computing; 0 for no limit."""
    HANDLES.get(execution, Execution).set_timeout(duration)


@function()
def ANeuralNetworksExecution_setLoopTimeout(execution: Handle, duration: int) -> None:
    """Nanoseconds for each WHILE loop."""
    HANDLES.get(execution, Execution).set_loop_timeout(duration)


@function()
def ANeuralNetworksExecution_addExtensionAttribute(
    execution: Handle, extensionName: str, attributeCodeWithinExtension: int, data: Buffer, length: int | None = None
) -> None:
    """A hint for the driver."""
    found, name = HANDLES.get(execution, Execution), not_null(extensionName, "an extension's name")
    found.add_extension_attribute(name, attributeCodeWithinExtension, bytes(exactly(data, length) or b""))


@function()
def ANeuralNetworksExecution_compute(execution: Handle) -> None:
    """Run and wait."""
    HANDLES.get(execution, Execution).compute()


@function(None)
def ANeuralNetworksExecution_startCompute(execution: Handle) -> Handle:
    """Run in the background; the event tells the end."""
    return HANDLES.add(HANDLES.get(execution, Execution).start_compute())


@function(None)
def ANeuralNetworksExecution_startComputeWithDependencies(
    execution: Handle, dependencies: Sequence[Handle | None], duration: int
) -> Handle:
    """Run when the events are done."""
    found = HANDLES.get(execution, Execution)
    events = [HANDLES.get(event, Event) for event in dependencies or ()]
    return HANDLES.add(found.start_compute_with_dependencies(events, duration))


@function()
def ANeuralNetworksExecution_burstCompute(execution: Handle, burst: Handle) -> None:
    """Run as part of a burst."""
    found = HANDLES.get(execution, Execution)
    HANDLES.get(burst, Burst).compute(found)


@function(UNKNOWN_DURATION)
def ANeuralNetworksExecution_getDuration(execution: Handle, durationCode: int) -> int:
    """Measured nanoseconds."""
    return HANDLES.get(execution, Execution).duration(durationCode)


@function(0)
def ANeuralNetworksExecution_getOutputOperandRank(execution: Handle, index: int) -> int:
    """The rank of an output after computing."""
    return HANDLES.get(execution, Execution).output_rank(index)


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


@value_function
def ANeuralNetworksEvent_free(event: Handle | None) -> None:
    """Wait, then forget an event; NULL is ignored."""
    free(event, Event)


@function(None)
def ANeuralNetworksEvent_createFromSyncFenceFd(sync_fence_fd: int) -> Handle:
    """An event that is done when the descriptor becomes readable."""
    return HANDLES.add(Event.from_sync_fence_fd(sync_fence_fd))


@function(-1)
def ANeuralNetworksEvent_getSyncFenceFd(event: Handle) -> int:
    """A descriptor of the caller's own that becomes readable at the end."""
    return HANDLES.get(event, Event).sync_fence_fd()


@function(None)
def ANeuralNetworksBurst_create(compilation: Handle) -> Handle:
    """A burst of executions."""
    return HANDLES.add(Burst(HANDLES.get(compilation, Compilation)))


@value_function
def ANeuralNetworksBurst_free(burst: Handle | None) -> None:
    """Forget a burst; NULL is ignored."""
    free(burst, Burst)
