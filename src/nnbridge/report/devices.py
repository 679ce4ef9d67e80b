"""Devices as JSON-ready data and as a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nnbridge.devices.device import Device
from nnbridge.report import PLACES
from nnbridge.report.terminal import Table
from nnbridge.types import OperandCode


def devices_as_dict(devices: Sequence[Device]) -> list[dict[str, Any]]:
    """Name, kind, level and performance of each device."""
    listed = []
    for device in devices:
        capabilities = device.capabilities
        codes = (OperandCode.TENSOR_FLOAT32, OperandCode.TENSOR_FLOAT16, OperandCode.TENSOR_QUANT8_ASYMM)
        performance = {code.name: capabilities.of(code, relaxed=False) for code in codes}
        performance["relaxed float32"] = capabilities.relaxed_tensor
        listed.append(
            {
                "name": device.name,
                "place": PLACES[device.kind],
                "version": device.version,
                "feature_level": int(device.level),
                "type": device.type.name,
                "performance": {
                    name: {"execTime": each.exec_time, "powerUsage": each.power_usage} for name, each in performance.items()
                },
                "extensions": [extension.name for extension in device.supported_extensions()],
            }
        )
    return listed


def devices_table(listed: list[dict[str, Any]]) -> Table:
    """One row for each device, with time and power relative to the CPU."""
    rows = []
    for device in listed:
        performance = (device["performance"][n] for n in ("TENSOR_FLOAT32", "relaxed float32", "TENSOR_QUANT8_ASYMM"))
        unknown = device["place"] == PLACES["host"]
        shown = ("-" if unknown or p["execTime"] > 1e30 else f"{p['execTime']:g} / {p['powerUsage']:g}" for p in performance)
        rows.append((device["name"], device["place"], str(device["feature_level"]), *shown))
    columns = ("name", "place", "level", "float32", "relaxed", "quant8")
    return Table("Devices", columns, rows, "execution time / power use, relative to the CPU's 1.0")
