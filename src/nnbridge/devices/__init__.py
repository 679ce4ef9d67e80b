"""Devices: the protocol for drivers, NNAPI's CPU, the host, AOSP's sample drivers, and the list of all of them.

A third party's device is published under the entry point group ``nnbridge.devices`` (an instance of
:class:`~nnbridge.devices.device.Device`, or a function that returns one).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from copy import copy
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from nnbridge.devices.caching import CachingDevice
from nnbridge.devices.checks import description_fault
from nnbridge.devices.cpu import CPU_NAME, CpuDevice
from nnbridge.devices.device import Device, require_driver
from nnbridge.devices.functions import driver
from nnbridge.devices.host import HOST_NAME, HostDevice
from nnbridge.devices.samples import SAMPLE_DRIVERS
from nnbridge.entry_points import entry_points
from nnbridge.errors import InputError, NnbridgeError, Reason, RefusalError, near, pass_shortage, raised, similar
from nnbridge.extensions import TYPES
from nnbridge.trust import import_named, named_path

if TYPE_CHECKING:
    from nnbridge.devices.profile_file import shipped
    from nnbridge.devices.profile_levels import shipped_at_source

LOG = logging.getLogger("nnbridge.devices")
_CACHING = "caching:"
_REMOTE = ("process:", "socket:")
DEVICES_GROUP = "nnbridge.devices"
_MOST = 5
"""Names that an error lists."""
_ALIKE = 0.8
"""How similar a device's name is at least that is named instead of hardware of a similar name."""


_PROFILES = {"shipped": "profile_file", "shipped_at_source": "profile_levels"}
"""Names of this package that take the reading of profiles, which a run without them does not import."""


def __getattr__(name: str) -> Any:
    if name not in _PROFILES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_PROFILES[name]}"), name)


@cache
def drivers() -> tuple[Device, ...]:
    """Every driver, in discovery order: AOSP's samples, then installed ones. The CPU and the host are apart."""
    found: list[Device] = list(SAMPLE_DRIVERS)
    for point in entry_points(DEVICES_GROUP):
        try:
            found.append(_load(point.value, import_module))
        except RefusalError as error:
            # As on Android: a driver that cannot be loaded is logged and not listed; the others are.
            LOG.warning("not listed: %s", error)
    return tuple(_registered(device) for device in found)


@cache
def cpu() -> CpuDevice:
    """NNAPI's CPU reference device."""
    return CpuDevice()


@cache
def host() -> HostDevice:
    """The host device."""
    return HostDevice()


def all_devices() -> tuple[Device, ...]:
    """Drivers, then the CPU, as NNAPI lists them, then the host."""
    return (*drivers(), cpu(), host())


def device(name: str) -> Device:
    """A device by name: installed or of a shipped profile; ``FILE.toml`` or ``FILE.toml#NAME`` reads a profile of your own,
    ``module:Attribute`` loads a device from Python code. ``NAME@LEVEL`` is the driver as one of a lower feature level.

    ``process:NAME`` is the device NAME in a separate process, ``socket:PATH`` one that is served there; each of these gives
    the same device at every call. ``caching:NAME`` is the driver NAME as one that caches its compiled models.
    """
    if name.startswith(_CACHING):
        return CachingDevice(device(name.removeprefix(_CACHING)))
    if name.startswith(_REMOTE):
        return _remote(name)
    base, _, level = name.rpartition("@")
    if base and level.isdecimal():
        return _at_level(device(base), int(level))
    found = next((d for d in all_devices() if d.name == name), None)
    if found is not None and found.kind == "host":
        raise InputError(Reason("a driver or the CPU; the host is added by itself", name, operand="device"))
    if found is not None:
        return found
    from nnbridge.devices.profile_file import SUFFIX, shipped_device
    from nnbridge.devices.profile_levels import shipped_at_source

    if SUFFIX in name:
        return _from_file(name)
    found = shipped_device(name)
    if found is not None:
        return found
    at_source = next((d for d in shipped_at_source() if name in (d.name, *d.aliases)), None)
    if at_source is not None:
        if name != at_source.name:
            LOG.warning("%s is another name of %s", name, at_source.name)
        return at_source
    if ":" in name:
        return _load(name)
    called = f"is called {name}" if name else "has an empty name"
    raise InputError(Reason(f"no device {called}; {_near(name)}", operand="device"))


def name_of(found: Device) -> str:
    """The name by which another process opens the same device. InputError for an object that no name opens."""
    try:
        if type(device(found.name)) is type(found):
            return found.name
    except InputError:
        pass
    raise InputError(
        Reason("a device that a name opens, to be passed to other processes", f"the object {found.name!r}", operand="device")
    )


def runs_code(name: str) -> bool:
    """True for names by which :func:`device` imports a module, starts a process or connects to one."""
    from nnbridge.devices.profile_file import SUFFIX

    name = name.removeprefix(_CACHING)
    return name.startswith((*_REMOTE, _CACHING)) or (":" in name and SUFFIX not in name)


def known_names() -> list[str]:
    """The names of registered drivers, NNAPI's CPU and the profiles that come with nnbridge."""
    from nnbridge.devices.profile_file import shipped
    from nnbridge.devices.profile_levels import shipped_at_source

    return [found.name for found in (*drivers(), cpu(), *shipped(), *shipped_at_source())]


def _all_names() -> list[str]:
    """The known names, and other names of profiles."""
    from nnbridge.devices.profile_file import shipped
    from nnbridge.devices.profile_levels import shipped_at_source

    profiles = (*shipped(), *shipped_at_source())
    return [*known_names(), *(alias for profile in profiles for alias in getattr(profile, "aliases", ()))]


def _near(name: str) -> str:
    """A hint at what could have been meant: a device, one of a family, or that of the chip, board or phone of that name."""
    from nnbridge.devices.families import family_named
    from nnbridge.devices.hardware import find, plain

    spelling = plain(name)
    spelled = [known for known in _all_names() if name and plain(known) == spelling]
    if spelled:
        return f"did you mean {spelled[0]}?"
    family = family_named(name)
    if family:
        return family.choice
    known = known_names()
    beginning = [full for full in reversed(known) if name and full.startswith(name.lower())]
    meant = [] if beginning else find(name)
    alike = beginning or similar(name, known, least=0.5 if not meant else 1 if meant[0].near else _ALIKE)
    if alike:
        *others, last = alike[:_MOST]
        return f"did you mean {' or '.join([', '.join(others)] * bool(others) + [last])}? `nnbridge devices --all` lists all"
    if meant:
        more = f"; {len(meant) - 2} more" if len(meant) > 2 else ""
        return f"{'; or '.join(one.sentence for one in meant[:2])}{more}; `nnbridge devices find` says more"
    listed = "`nnbridge devices` lists names; FILE.toml and module:Attribute are devices, too"
    return f"{listed}; `nnbridge devices find` knows chips, boards and phones"


def _at_level(found: Device, level: int) -> Device:
    require_driver(found, f"a feature level (@{level})")
    if not 1 <= level <= found.feature_level:
        rule = f"a driver's name and a feature level of 1 to {found.feature_level}"
        raise InputError(Reason(rule, f"{found.name}@{level}", operand="device"))
    lowered = copy(found)
    # Devices may be frozen; the copy is not in use yet.
    object.__setattr__(lowered, "feature_level", level)
    object.__setattr__(lowered, "name", f"{found.name}@{level}")
    return lowered


def _from_file(name: str) -> Device:
    from nnbridge.devices.profile_levels import load_any

    path, _, requested = name.partition("#")
    found = load_any(Path(named_path(path)))
    chosen = [device for device in found if requested in ("", device.name)]
    if len(chosen) != 1:
        names = ", ".join(device.name for device in found)
        raise InputError(Reason(f"one device of the file ({path}#NAME, of {names})", requested or "none", operand="device"))
    return chosen[0]


@cache
def _remote(name: str) -> Device:
    from nnbridge.devices.remote import RemoteDevice

    kind, _, rest = name.partition(":")
    if kind == "process" and rest.startswith(_REMOTE):
        raise InputError(Reason('an in-process device after "process:"', rest, operand="device"))
    return _registered(RemoteDevice.process(rest) if kind == "process" else RemoteDevice.at(rest))


def _load(name: str, find: Callable[[str], ModuleType] = import_named) -> Device:
    module, _, attribute = name.partition(":")
    try:
        found = find(module)
        if not hasattr(found, attribute):
            # A file of the current folder may have the name of an installed module, which is then the one that is found.
            hint, place = near(attribute, vars(found)), getattr(found, "__file__", None) or "built-in"
            raise InputError(Reason(f"an attribute of {module} ({place}){hint}", attribute, operand="device"))
        made = getattr(found, attribute)
        loaded = made if isinstance(made, Device) else made()
    except NnbridgeError:
        raise
    except Exception as error:
        pass_shortage(error)
        raise InputError(Reason("a device that can be loaded", f"{name}: {raised(error)}", operand="device")) from error
    if not isinstance(loaded, Device):
        raise InputError(Reason("an nnbridge Device", f"{name}: {type(loaded).__name__}", operand="device"))
    return _registered(loaded)


def _registered(device: Device) -> Device:
    """The device, whose extensions' types can be used from now on."""
    fault = description_fault(device)
    if fault is not None:
        raise InputError(fault)
    for extension in device.supported_extensions():
        TYPES.register(extension)
    return device


__all__ = [
    "CPU_NAME",
    "HOST_NAME",
    "Device",
    "all_devices",
    "cpu",
    "device",
    "driver",
    "drivers",
    "host",
    "known_names",
    "shipped",
    "shipped_at_source",
]
