"""The compiled tier of the CPU executor: kernels emitted as machine code by llvmlite, run as programs over one arena.

The border to the executor is :func:`nnbridge.cpu.compiled.planning.plan`: from operations whose calls are resolved to programs
that compute runs of them, and the reasons why the others are left to the reference tier. :func:`unavailable` states whether the
tier can be used at all. Importing this package imports no compiler. See docs/compiled-kernels.md.
"""

from __future__ import annotations

import functools
import importlib.util
import logging

from nnbridge.errors import shortage_of
from nnbridge.records import dataclass

_log = logging.getLogger(__name__)


@functools.cache
def unavailable() -> str | None:
    """The reason why there are no compiled kernels, reported once at INFO level; None if there are."""
    try:
        if importlib.util.find_spec("llvmlite.binding") is None:
            raise ImportError("No module named 'llvmlite.binding'")
        from nnbridge.cpu.compiled.machine import machine

        machine()
    except (ImportError, OSError, RuntimeError) as error:
        missing = f"need llvmlite (pip install '.[fast]' in a clone of nnbridge): {error}"
        reason = f"compiled kernels {shortage_of(error) or missing}"
    else:
        from nnbridge.cpu.compiled.image import executable_fault

        fault = executable_fault()
        if not fault:
            return None
        reason = f"compiled kernels: {fault}"
    _log.info("%s", reason)
    return reason


@dataclass(frozen=True)
class Status:
    """The state of the compiled tier on this machine."""

    available: bool
    reason: str = ""
    """Why it is not available."""
    instructions: str = ""
    """The instruction set that kernels are emitted for."""
    forms: tuple[str, ...] = ()
    """The instruction sets of this processor, best first."""
    cache: str = ""
    """The folder of the object code; empty for memory only."""
    cached: int = 0
    """Kernels in that folder."""
    cached_bytes: int = 0
    cache_fault: str = ""
    """Why nothing can be stored there."""


def status() -> Status:
    """The compiled tier's state; imports the compiler."""
    reason = unavailable()
    if reason is not None:
        return Status(False, reason)
    from nnbridge.cpu.compiled.instructions import chosen, host_sets
    from nnbridge.cpu.compiled.machine import cache_directory, cache_fault

    folder = cache_directory()
    sizes = [path.stat().st_size for path in folder.glob("*.o")] if folder is not None and folder.is_dir() else []
    names = tuple(isa.name for isa in host_sets())
    return Status(True, "", chosen().name, names, str(folder or ""), len(sizes), sum(sizes), cache_fault())
