"""The compiled tier of the CPU executor: kernels emitted as machine code by llvmlite, run as programs over one arena.

The border to the executor is :func:`nnbridge.cpu.compiled.program.plan`: from operations whose calls are resolved to programs
that compute runs of them, and the reasons why the others are left to the reference tier. :func:`unavailable` states whether the
tier can be used at all. Importing this package imports no compiler. See docs/compiled-kernels.md.
"""

from __future__ import annotations

import functools
import importlib
import logging

_log = logging.getLogger(__name__)


@functools.cache
def unavailable() -> str | None:
    """Why there are no compiled kernels, reported once at INFO level; None if there are."""
    try:
        llvm = importlib.import_module("llvmlite.binding")
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
    except (ImportError, OSError, RuntimeError) as error:
        reason = f"compiled kernels need llvmlite (pip install 'nnbridge[fast]'): {error}"
        _log.info("%s", reason)
        return reason
    return None


def report() -> str:
    """The tier in use, its instruction set and cache, in one line."""
    reason = unavailable()
    if reason is not None:
        return f"reference ({reason})"
    from nnbridge.cpu.compiled.instructions import chosen, host_forms
    from nnbridge.cpu.compiled.objects import cache_directory

    forms = ", ".join(form.name for form in host_forms())
    return f"compiled, {chosen().name} (this processor runs {forms}), objects in {cache_directory() or 'memory only'}"
