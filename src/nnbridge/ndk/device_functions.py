"""The NDK's functions of devices; which devices and partitioning the environment of a process states."""

from __future__ import annotations

import os
from dataclasses import replace
from functools import cache

from nnbridge import devices as device_list
from nnbridge.devices.device import Device
from nnbridge.errors import BadDataError, InputError, Reason
from nnbridge.ndk.core import (
    CPU_ONLY_VARIABLE,
    DEVICES_VARIABLE,
    HANDLES,
    PARTITION_VARIABLE,
    Handle,
    function,
    not_null,
    value_function,
)
from nnbridge.runtime.compilation import PartitioningMode
from nnbridge.types import (
    DEFAULT_LOOP_TIMEOUT_NS,
    MAX_LOOP_TIMEOUT_NS,
    RUNTIME_FEATURE_LEVEL,
    FeatureLevel,
)

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
        part = error.reason.operand.removeprefix("--device")
        operand = f"{DEVICES_VARIABLE}: {part}" if part else DEVICES_VARIABLE
        raise InputError(replace(error.reason, operand=operand)) from error


@function(0)
def ANeuralNetworks_getDeviceCount() -> int:
    """The number of devices, the CPU among them."""
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
    required = not_null(name, "a name")
    return any(extension.name == required for extension in found.supported_extensions())


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


def partitioning_mode() -> PartitioningMode:
    """The partitioning mode that the environment states; BAD_DATA for what is no mode."""
    if os.environ.get(CPU_ONLY_VARIABLE, "") not in ("", "0"):
        return PartitioningMode.NO
    text = os.environ.get(PARTITION_VARIABLE, "") or str(int(PartitioningMode.WITH_FALLBACK))
    modes = {str(int(mode)): mode for mode in PartitioningMode}
    if text not in modes:
        raise BadDataError(Reason(f"one of {', '.join(modes)}", text, operand=PARTITION_VARIABLE))
    return modes[text]


def check_environment() -> None:
    """InputError for a variable with a wrong value; the devices that the environment names are loaded."""
    try:
        partitioning_mode()
    except BadDataError as error:
        raise InputError(error.reason) from error
    devices_of_process()
