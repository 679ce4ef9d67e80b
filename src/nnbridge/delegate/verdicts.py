"""What a phone makes of a file with TFLite's delegate, without an interpreter."""

from __future__ import annotations

import mmap
from collections.abc import Sequence
from pathlib import Path

from nnbridge.converters import converter_for
from nnbridge.converters.delegation import PhoneVerdict, Target, verdict_of
from nnbridge.devices.device import Device
from nnbridge.model import Model
from nnbridge.runtime.compilation import supported_operations
from nnbridge.runtime.partition_limits import TFLITE_DEFAULT
from nnbridge.types import RUNTIME_FEATURE_LEVEL


def file_verdict(
    path: Path,
    devices: Sequence[Device],
    *,
    feature_level: int = RUNTIME_FEATURE_LEVEL,
    limit: int = TFLITE_DEFAULT,
    allow_dynamic_dimensions: bool = False,
) -> PhoneVerdict | None:
    """The verdict on a file for target devices; None for formats that no delegate reads. ConversionError for a wrong file.

    ``devices``: those that the delegate names or finds, without NNAPI's CPU; with none, NNAPI's CPU computes what is handed over.
    ``feature_level``: the phone's; the lowest of the devices counts. ``limit``: of partitions for each graph, 0 for none.
    """
    reader = converter_for(path).in_memory
    if reader is None:
        return None
    drivers = [device for device in devices if device.kind == "device"]

    def supported(model: Model) -> Sequence[bool]:
        return supported_operations(model, drivers)

    with path.open("rb") as file:
        data = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    return verdict_of(
        reader.open(data),
        Target(min([int(feature_level), *(int(device.level) for device in drivers)]), bool(drivers)),
        supported=supported if drivers else None,
        limit=limit,
        allow_dynamic_dimensions=allow_dynamic_dimensions,
    )
