"""libnnbridge_provider.so: an ONNX Runtime execution provider, with which stock ONNX Runtime runs on nnbridge's devices."""

from __future__ import annotations

from functools import cache
from typing import Any

from nnbridge.devices.device import Device
from nnbridge.embedding import EmbeddedLibrary
from nnbridge.errors import InputError, PackageError, Reason
from nnbridge.provider.source import CALLED_BY_PYTHON, EXPORTED, INNER, NAMES, TYPES

LIBRARY = "libnnbridge_provider.so"
REGISTRATION = "nnbridge"
"""The name under which :func:`register` registers the library."""
_REFUSALS: dict[str, int | None] = {name: None if p.startswith("void ") else 0 for name, p in INNER.items()}


_LIBRARY = EmbeddedLibrary(
    LIBRARY,
    "provider",
    "the ONNX Runtime provider",
    "nnbridge run --mapping provider computes the same",
    TYPES,
    INNER,
    EXPORTED,
    "nnbridge.provider.glue",
    _REFUSALS,
    CALLED_BY_PYTHON,
)
build = _LIBRARY.put
"""Put the library into a folder; compiled once for each Python and version of nnbridge. InputError if that fails."""
library = cache(_LIBRARY.cached)
"""The compiled library in the user's cache."""


def register() -> list[Any]:
    """Register the library with the installed ONNX Runtime; its devices, one for each name of the provider.

    InputError without ONNX Runtime 1.23 or later.
    """
    try:
        import onnxruntime as ort
    except ImportError as error:
        raise PackageError.needed("ONNX Runtime", "onnxruntime", error, "provider") from error
    if not hasattr(ort, "register_execution_provider_library"):
        raise InputError(Reason("ONNX Runtime 1.23 or later", ort.__version__, operand="provider"))
    if not any(device.ep_name in NAMES for device in ort.get_ep_devices()):
        ort.register_execution_provider_library(REGISTRATION, str(library()))
    return [device for device in ort.get_ep_devices() if device.ep_name in NAMES]


def session_options(device: str | Device = "", *, options: Any = None, **settings: object) -> Any:
    """ONNX Runtime's ``SessionOptions`` with the provider added.

    ``device``: a device or its name, as ``--device`` has it, beside NNAPI's CPU; without one, all installed ones. ``options``:
    the ``SessionOptions`` that it is added to. ``settings``: the provider's options by name.
    """
    from nnbridge.provider.session import LOCAL

    if isinstance(device, Device):
        LOCAL[device.name] = device
        device = device.name
    named = {"nnbridge_devices": device} if device else {}
    devices = [found for found in register() if found.ep_name == NAMES[0]]
    if options is None:
        import onnxruntime as ort

        options = ort.SessionOptions()
    options.add_provider_for_devices(devices[:1], {key: str(value) for key, value in {**named, **settings}.items()})
    return options
