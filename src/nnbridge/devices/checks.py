"""Checks of a device's description of itself, once when it is found. NNAPI does not list a device that describes itself
wrongly."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from nnbridge.devices.device import Capabilities, Device, Performance, cache_files_needed
from nnbridge.errors import Reason, pass_shortage, raised
from nnbridge.extensions import Extension, ExtensionOperandType
from nnbridge.types import DeviceTypeCode, OperandCode

_MAX_TYPE = 0xFFFF
_OTHERS = ("relaxed_scalar", "relaxed_tensor", "if_performance", "while_performance")


def description_fault(device: Device) -> Reason | None:
    """The mistake in a device's name, version, level, type, capabilities, extensions or cache files; None if there is none."""
    name = getattr(device, "name", None)
    label = name if isinstance(name, str) and name else type(device).__name__
    try:
        fault = _identity_fault(device) or _capabilities_fault(device.capabilities) or _extensions_fault(device)
    except Exception as error:
        pass_shortage(error)
        fault = Reason("a device that describes itself", raised(error))
    if fault is not None:
        return Reason(fault.rule, fault.found, label, fault.operand)
    needed = cache_files_needed(device)
    return needed if isinstance(needed, Reason) else None


def _identity_fault(device: Device) -> Reason | None:
    for what in ("name", "version"):
        text = getattr(device, what, None)
        if not isinstance(text, str) or not text:
            return Reason(f"a {what}", repr(text))
    if type(device.feature_level) is bool or not isinstance(device.feature_level, int) or device.feature_level < 1:
        return Reason("a feature level from 1", repr(device.feature_level))
    if not isinstance(device.type, DeviceTypeCode):
        return Reason("a device type of NNAPI", repr(device.type))
    return None


def _capabilities_fault(found: object) -> Reason | None:
    """Facts D4 and D6: figures above 0; none for MODEL."""
    if not isinstance(found, Capabilities) or not isinstance(found.operands, Mapping):
        return Reason("Capabilities", type(found).__name__, operand="capabilities")
    if OperandCode.MODEL in found.operands:
        return Reason("no figures for MODEL", "some", operand="capabilities")
    named: dict[str, Any] = {f"operand type {code}": figures for code, figures in found.operands.items()}
    named |= {name: getattr(found, name) for name in _OTHERS}
    for what, figures in named.items():
        if not isinstance(figures, Performance) or not all(map(_positive, (figures.exec_time, figures.power_usage))):
            return Reason("figures above 0", repr(figures), operand=what)
    return None


def _positive(figure: object) -> bool:
    return isinstance(figure, (int, float)) and math.isfinite(figure) and figure > 0


def _extensions_fault(device: Device) -> Reason | None:
    """Fact X1; not of the host, which would import every importer's extension to list it."""
    listed: Sequence[Extension] = () if device.kind == "host" else device.supported_extensions()
    if len({extension.name for extension in listed}) != len(listed):
        return Reason("each extension once", ", ".join(extension.name for extension in listed), operand="extensions")
    return next((fault for extension in listed if (fault := extension_fault(extension))), None)


def extension_fault(extension: Extension) -> Reason | None:
    """The mistake in an extension's operand types."""
    numbers = [declared.number for declared in extension.operand_types]
    if len(set(numbers)) != len(numbers):
        return Reason("each operand type once", str(numbers), operand=extension.name)
    for declared in extension.operand_types:
        if not _right_type(declared):
            return Reason("a number of 16 bits and a size of at least 1 byte", str(declared), operand=extension.name)
    return None


def _right_type(declared: ExtensionOperandType) -> bool:
    return 0 <= declared.number <= _MAX_TYPE and 0 < declared.byte_size < 2**32
