"""LiteRT's MediaTek route: libneuron_adapter.so, against which LiteRT's compiler compiles for nnbridge's devices."""

from __future__ import annotations

import ctypes
from pathlib import Path

from nnbridge import __version__
from nnbridge.clib import header
from nnbridge.embedding import EmbeddedLibrary
from nnbridge.neuron import dispatch_source
from nnbridge.neuron.signatures import NEURON_SIGNATURES, STRUCTURES

ADAPTER = "libneuron_adapter.so"
DISPATCH = "libLiteRtDispatch_nnbridge.so"
_WHAT = ("LiteRT's MediaTek route", "nnbridge plan shows what devices accept")
"""What the libraries are called in refusals, and what there is where they cannot be built."""


def build(folder: str | Path) -> list[Path]:
    """Put the libraries into a folder; compiled once for each Python and version of nnbridge. InputError if that fails."""
    return [library.put(folder) for library in (adapter(), dispatch_library())]


def preload() -> Path:
    """Load the adapter for a LiteRT environment of this process, which compiles when a model is opened; the folder of the
    dispatch library, for ``Environment.create(dispatch_library_path=...)``.
    """
    ctypes.CDLL(str(adapter().cached()))
    return dispatch_library().cached().parent


def adapter() -> EmbeddedLibrary:
    """The adapter's code. Structures are NNAPI's."""
    return EmbeddedLibrary(
        ADAPTER,
        "neuron",
        *_WHAT,
        f"{header.opaque_types()}\n{header.STRUCTURES}\n{STRUCTURES}",
        {signature.inner: signature.prototype(signature.inner) for signature in NEURON_SIGNATURES},
        "\n".join(signature.definition for signature in NEURON_SIGNATURES),
        "nnbridge.neuron.glue",
        {signature.inner: signature.failed for signature in NEURON_SIGNATURES},
    )


def dispatch_library() -> EmbeddedLibrary:
    """The dispatch library's code."""
    return EmbeddedLibrary(
        DISPATCH,
        "neuron_dispatch",
        *_WHAT,
        dispatch_source.TYPES,
        dispatch_source.INNER,
        f'#define NNBRIDGE_VERSION "{__version__}"\n{dispatch_source.EXPORTED}',
        "nnbridge.neuron.dispatch",
        dispatch_source.REFUSALS,
    )
