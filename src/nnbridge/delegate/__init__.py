"""libnnbridge_delegate.so: a TFLite external delegate, with which TFLite's own interpreters run on nnbridge's devices."""

from __future__ import annotations

import sys
from functools import cache
from importlib import import_module
from typing import Any

from nnbridge.delegate.source import CALLED_BY_PYTHON, EXPORTED, INNER, REFUSALS, TYPES
from nnbridge.devices.device import Device
from nnbridge.embedding import EmbeddedLibrary
from nnbridge.errors import PackageError

LIBRARY = "libnnbridge_delegate.so"
RUNTIMES = ("ai_edge_litert.interpreter", "tflite_runtime.interpreter", "tensorflow.lite.python.interpreter")
"""Modules with TFLite's ``load_delegate``."""


_LIBRARY = EmbeddedLibrary(
    LIBRARY,
    "delegate",
    "the TFLite delegate",
    "nnbridge run --mapping delegate computes the same",
    TYPES,
    INNER,
    EXPORTED,
    "nnbridge.delegate.glue",
    REFUSALS,
    CALLED_BY_PYTHON,
)
build = _LIBRARY.put
"""Put the library into a folder; compiled once for each Python and version of nnbridge. InputError if that fails."""
library = cache(_LIBRARY.cached)
"""The compiled library in the user's cache."""


def load(device: str | Device = "", *, runtime: Any = None, **options: object) -> Any:
    """A delegate for ``Interpreter(experimental_delegates=[...])``, of the runtime that is imported or installed.

    ``device``: a device or its name, as ``--device`` has it; without one, all devices but NNAPI's CPU. ``runtime``: a module
    with ``load_delegate``. ``options``: the delegate's options by name. InputError if there is no runtime, ValueError from
    the runtime for wrong options.
    """
    from nnbridge.delegate.delegating import LOCAL

    if isinstance(device, Device):
        LOCAL[device.name] = device
        device = device.name
    named = {"accelerator_name": device} if device else {}
    return (runtime or _runtime()).load_delegate(str(library()), {**named, **options})


def _runtime() -> Any:
    """The TFLite runtime that is imported, else the first one that is installed."""
    imported = [name for name in RUNTIMES if name.partition(".")[0] in sys.modules]
    for name in (*imported, *RUNTIMES):
        try:
            return import_module(name)
        except ImportError:
            continue
    raise PackageError.needed("a TFLite runtime", "ai-edge-litert", "none", "delegate")
