"""libneuralnetworks.so: NNAPI's C interface in front of :mod:`nnbridge.ndk`, for clients that know nothing of nnbridge."""

from __future__ import annotations

import ctypes
import os
from functools import cache
from pathlib import Path

from nnbridge import trust
from nnbridge.clib import header
from nnbridge.clib.signatures import SIGNATURES
from nnbridge.embedding import EmbeddedLibrary
from nnbridge.errors import InputError, Reason

LIBRARY = "libneuralnetworks.so"
HEADER = "NeuralNetworks.h"
VARIABLES = {
    "NNBRIDGE_DEVICES": "names of the devices that clients see, separated by commas; default: all installed ones",
    "NNBRIDGE_CPU_ONLY": "1: the CPU is the only device",
    "NNBRIDGE_PARTITION": "as Android's debug.nn.partition; 0: no, 1: with fallback to the CPU (the default), 2: without",
    "NNBRIDGE_LOG": "info: where each operation of a compilation goes; debug: why a call was refused as well (standard error)",
    "NNBRIDGE_TRACE": "a file that every call is written to; finished models are saved beside it",
}
"""Environment variables that a client's process may have."""


def _library() -> EmbeddedLibrary:
    """The library's code."""
    return EmbeddedLibrary(
        LIBRARY,
        "ndk",
        "the C library",
        "nnbridge.ndk has the same functions in Python",
        f"{header.opaque_types()}\n{header.STRUCTURES}",
        {signature.inner: signature.prototype(signature.inner) for signature in SIGNATURES},
        "\n".join(signature.definition for signature in SIGNATURES),
        "nnbridge.clib.glue",
        {signature.inner: signature.failed for signature in SIGNATURES},
    )


def build(folder: str | Path) -> Path:
    """Put the library and its header into a folder; compiled once for each Python and version of nnbridge.

    InputError for a folder without a name, and for one with a NeuralNetworks.h that is not nnbridge's.
    """
    declared = Path(folder) / HEADER
    if str(folder) and declared.exists() and header.GUARD.encode() not in declared.read_bytes():
        raise InputError(Reason(f"a folder without a {HEADER} of another origin", "one", operand=str(folder)))
    return _library().put(folder, **{HEADER: header.header().encode()})


@cache
def preload() -> Path:
    """Load the library for clients in this process, which find it by its name from then on."""
    compiled = _library().cached()
    ctypes.CDLL(str(compiled), mode=ctypes.RTLD_GLOBAL)
    return compiled


def environment(folder: Path) -> dict[str, str]:
    """The environment of a client's process: the library's path, and the variables that nnbridge reads with their values now."""
    if not (folder / LIBRARY).is_file():
        raise InputError(Reason(f"a folder with {LIBRARY} (nnbridge build ndk)", "none", operand=str(folder)))
    path = trust.environment().get("LD_LIBRARY_PATH", "")
    found = {"LD_LIBRARY_PATH": f"{folder.resolve()}{os.pathsep + path if path else ''}"}
    found.update({name: os.environ[name] for name in VARIABLES if name in os.environ})
    return found
