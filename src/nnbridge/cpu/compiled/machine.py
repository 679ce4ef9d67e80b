"""LLVM's description of this machine, and the folder where that and kernels are cached.

Importing LLVM takes longer than all else that a process with a filled cache does before its first answer. So what LLVM said is
stored beside the kernels, under a hash of what it depends on: a later process imports LLVM only to compile.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import platform
from dataclasses import asdict
from pathlib import Path

from nnbridge import caches
from nnbridge.records import dataclass

CACHE = "NNBRIDGE_CACHE"
_IDENTITY = (b"vendor_id", b"cpu family", b"model", b"stepping", b"flags", b"CPU ", b"Features")
"""How lines of /proc/cpuinfo begin that distinguish kinds of processors."""


_MOST_BYTES = 1 << 16
"""Bytes of a file about a machine."""


@dataclass(frozen=True)
class Machine:
    """This machine, and the compiler."""

    triple: str
    compiler: str
    """Versions of llvmlite and LLVM."""
    features: tuple[str, ...]
    """LLVM's names of what the processor has."""


@functools.cache
def machine() -> Machine:
    """This machine, from the cache or from LLVM; raises ImportError, OSError or RuntimeError where LLVM cannot be used."""
    import llvmlite

    folder, processor = cache_directory(), _processor()
    if folder is None or not processor:
        return _asked()
    parts = (llvmlite.__version__, llvmlite.__file__, platform.release(), platform.version(), platform.machine(), processor)
    name = f"machine-{hashlib.sha256(repr(parts).encode()).hexdigest()[:40]}.json"
    # Why nothing is read or can be written is said when objects are.
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        stored = json.loads(caches.read(folder, name, _MOST_BYTES) or b"{}")
        return Machine(stored["triple"], stored["compiler"], tuple(stored["features"]))
    made = _asked()
    with contextlib.suppress(OSError):
        caches.store(folder, name, json.dumps(asdict(made)).encode())
    return made


def _asked() -> Machine:
    import llvmlite
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    triple = llvm.get_process_triple()
    llvm.Target.from_triple(triple)
    try:
        features = tuple(name for name, has in llvm.get_host_cpu_features().items() if has)
    except RuntimeError:
        # LLVM does not know the features of every processor.
        features = ()
    return Machine(triple, f"{llvmlite.__version__} {llvm.llvm_version_info}", features)


def _processor() -> bytes:
    """A text that distinguishes this processor from others; empty where the system does not state it."""
    try:
        with open("/proc/cpuinfo", "rb") as file:
            first = file.read(1 << 14).split(b"\n\n")[0]
    except OSError:
        return b""
    return b"\n".join(line for line in first.splitlines() if line.startswith(_IDENTITY))


def cache_directory() -> Path | None:
    """The folder where objects are cached; None where no folder is known, or none is to be used."""
    return caches.user_folder("nnbridge", "kernels", variable=CACHE)


def cache_fault() -> str:
    """The reason why no object can be stored in the cache's folder; empty if it can."""
    folder = cache_directory()
    return f"no folder is known ({CACHE} names one)" if folder is None else caches.fault(folder)
