"""Kernels as machine code: emitted on demand, cached on disk.

A kernel is a function that emits IR for its parameters. It becomes ``void kernel(i64 arguments, i64 part, i64 parts)``: the
address of a block of 64-bit arguments, and which share of the work to do. Objects are cached in
``$NNBRIDGE_CACHE`` or ``~/.cache/nnbridge/kernels`` under a hash of everything that they depend on; without a directory that can
be written they live in memory only.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import logging
import os
import threading
import time
from collections.abc import Callable
from dataclasses import field
from pathlib import Path
from typing import Any

from llvmlite import ir

from nnbridge import caches
from nnbridge.cpu.compiled.declared import KERNELS, Fields
from nnbridge.cpu.compiled.emitter import Emitter
from nnbridge.cpu.compiled.image import Unloadable, place
from nnbridge.cpu.compiled.instructions import InstructionSet
from nnbridge.cpu.compiled.machine import cache_directory, machine
from nnbridge.cpu.compiled.values import I64, VOID, IrValue
from nnbridge.records import dataclass

_log = logging.getLogger(__name__)
_MOST_BYTES = 1 << 24
"""Bytes of an object; kernels have some thousands."""


@dataclass(frozen=True)
class Variant:
    """A kernel with its parameters: what one piece of machine code is made for."""

    kernel: str
    parameters: tuple[tuple[str, Any], ...] = ()

    @property
    def symbol(self) -> str:
        """The function's name in its object."""
        return f"nnbridge_{hashlib.sha256(repr(self).encode()).hexdigest()[:16]}"


@dataclass
class Statistics:
    """Origin of the compiled kernels, for reports."""

    compiled: int = 0
    loaded: int = 0
    seconds: float = 0.0


@dataclass
class Library:
    """The machine code of one instruction set, for the whole process."""

    instructions: InstructionSet
    directory: Path | None
    statistics: Statistics = field(default_factory=Statistics)

    def __post_init__(self) -> None:
        self._unlock()
        if hasattr(os, "register_at_fork"):
            # The thread that held the lock does not follow into a forked process.
            os.register_at_fork(after_in_child=self._unlock)
        self._addresses: dict[Variant, int] = {}
        self._stamp = f"{sources()} {machine().compiler} {machine().triple} {self.instructions}"

    def _unlock(self) -> None:
        self._lock = threading.Lock()

    @functools.cached_property
    def _compiler(self) -> tuple[Any, Any]:
        """LLVM's target machine and its loader of objects, imported when they are first used."""
        import llvmlite.binding as llvm

        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        target = llvm.Target.from_triple(machine().triple).create_target_machine(
            cpu=self.instructions.cpu,
            features=self.instructions.features,
            opt=2,
            reloc="default",
            codemodel="jitdefault",
            jit=True,
        )
        return target, llvm.create_mcjit_compiler(llvm.parse_assembly(""), target)

    def address(self, variant: Variant) -> int:
        """The address of a variant's function."""
        with self._lock:
            found = self._addresses.get(variant)
            if found is None:
                start = time.perf_counter()
                found = self._addresses[variant] = self._load(variant)
                self.statistics.seconds += time.perf_counter() - start
        return found

    def _load(self, variant: Variant) -> int:
        key = hashlib.sha256(f"{self._stamp} {variant!r}".encode()).hexdigest()[:40]
        code = self._read(key)
        if code is None:
            code = self.compile(variant)
            self.statistics.compiled += 1
            self._write(key, code)
        else:
            self.statistics.loaded += 1
        try:
            return place(code, variant.symbol)
        except Unloadable as reason:
            _report_unloadable(str(reason))
        import llvmlite.binding as llvm

        _, engine = self._compiler
        engine.add_object_file(llvm.ObjectFileRef.from_data(code))
        engine.finalize_object()
        return int(engine.get_function_address(variant.symbol))

    def module(self, variant: Variant, triple: str = "") -> Any:
        """The IR of a variant, for this process or another target."""
        from nnbridge.cpu.compiled import kernels  # noqa: F401 - declares them; needed where nothing is cached

        declared = KERNELS[variant.kernel]
        module = ir.Module(variant.symbol)
        module.triple = triple or machine().triple
        function = ir.Function(module, ir.FunctionType(VOID, [I64, I64, I64]), variant.symbol)
        function.attributes.add("nounwind")
        builder = ir.IRBuilder(function.append_basic_block())
        emitter = Emitter(builder, self.instructions)
        block, part, parts = (IrValue(emitter, argument) for argument in function.args)
        values = {name: emitter.load(block, I64, 8 * i) for i, name in enumerate(declared.fields)}
        declared.emission(emitter, Fields(values), part, parts, **dict(variant.parameters))
        builder.ret_void()
        return module

    def compile(self, variant: Variant) -> bytes:
        """The object file of a variant."""
        return bytes(self._compiler[0].emit_object(self._parsed(variant)))

    def assembly(self, variant: Variant) -> str:
        """The assembly of a variant, for looking at."""
        return str(self._compiler[0].emit_assembly(self._parsed(variant)))

    def _parsed(self, variant: Variant) -> Any:
        import llvmlite.binding as llvm

        parsed = llvm.parse_assembly(str(self.module(variant)))
        parsed.verify()
        return parsed

    def _read(self, key: str) -> bytes | None:
        """The object, if the cache has it whole: one that is missing, cut or damaged is compiled again."""
        if self.directory is None:
            return None
        try:
            return caches.read(self.directory, f"{key}.o", _MOST_BYTES)
        except caches.UnsafeError as error:
            caches.say_once(f"compiled kernels are not cached in {self.directory}: {error.strerror}")
            self.directory = None
            return None

    def _write(self, key: str, code: bytes) -> None:
        if self.directory is None:
            return
        try:
            caches.store(self.directory, f"{key}.o", code)
        except OSError as error:
            _log.info("compiled kernels are not cached: %s", error)
            self.directory = None


@functools.cache
def _report_unloadable(reason: str) -> None:
    """Once for each reason."""
    _log.info("compiled kernels are loaded by LLVM, as nnbridge's own loader %s", reason)


@functools.cache
def sources() -> str:
    """A hash of this package's source: kernels of other versions are not used."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


LIBRARIES: dict[InstructionSet, Library] = {}
"""The process's libraries, which :func:`library` makes."""


def library(instructions: InstructionSet) -> Library:
    """The process's library for one instruction set.

    Of two that threads create at once, one is for all: kernels of the other would end with it, while programs call them.
    """
    found = LIBRARIES.get(instructions)
    return found if found is not None else LIBRARIES.setdefault(instructions, Library(instructions, cache_directory()))


_FUNCTION = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)


def whole_run(job: int) -> tuple[Any, Any, Any]:
    """The arguments for part 0 of 1 of a job, converted once: that takes half of the time of a call."""
    return ctypes.c_int64(job), ctypes.c_int64(0), ctypes.c_int64(1)


def function(address: int) -> Callable[[Any, Any, Any], None]:
    """A kernel as a Python function, which releases the interpreter lock as it runs."""
    return _FUNCTION(address)
