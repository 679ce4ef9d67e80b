"""Kernels' object files brought into memory without the compiler.

A process that finds all of its kernels in the cache thereby never imports LLVM, which takes 18 ms and 40 MiB (one run of
models/digits_int8.tflite: 55 MiB in place of 103)::

    python -c "import resource, llvmlite.ir; m = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss; a = m()
    import llvmlite.binding; print(m() - a, 'KiB')"

Only what LLVM writes for kernels on Linux with x86-64 processors: ELF with read-only sections and absolute 64-bit addresses. Any
other object is left to LLVM's own loader.
"""

from __future__ import annotations

import ctypes
import functools
import os
import platform
import struct
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

_PROGRAM_DATA, _SYMBOLS, _RELOCATIONS, _RELOCATIONS_IN_PLACE = 1, 2, 4, 9
_WRITABLE, _LOADED = 1, 2
_ABSOLUTE_64 = 1
_UNDEFINED = 0
_READ, _WRITE, _EXECUTE, _PRIVATE_ANONYMOUS = 1, 2, 4, 0x22
_PAGE = 4096
_IDENTIFIER = b"\x7fELF\x02\x01"
_RELOCATABLE_X86_64 = struct.pack("<HH", 1, 62)
_HEADER = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_RELOCATION = struct.Struct("<QQq")


class _Section(NamedTuple):
    name: int
    type: int
    flags: int
    address: int
    offset: int
    size: int
    link: int
    info: int
    alignment: int
    entry_size: int


class Unloadable(Exception):
    """An object file that is left to LLVM's loader; the text says what would be required, and what was found."""


def place(code: bytes, symbol: str) -> int:
    """The address of a function of an object file, now in memory to stay; raises :class:`Unloadable`."""
    if sys.platform != "linux" or platform.machine() != "x86_64":
        raise Unloadable(f"requires Linux on x86_64, found {sys.platform} on {platform.machine()}")
    _require(code[:6] == _IDENTIFIER, "an ELF file of 64 bits", code[:6].hex())
    _require(code[16:20] == _RELOCATABLE_X86_64, "relocatable code of x86_64", code[16:20].hex())
    try:
        return _placed(code, symbol)
    except (struct.error, LookupError, ValueError, OverflowError) as error:
        # Offsets or indexes that lead out of the file.
        raise Unloadable(f"requires a whole object file, found {len(code)} bytes: {error}") from error


def executable_fault() -> str:
    """The reason why memory cannot be made code here, as security modules may forbid it; empty if it can, or if it is not
    known."""
    if sys.platform != "linux":
        return ""
    try:
        base = _mapped(1)
        try:
            _make_code(base, 1)
        finally:
            _process().munmap(base, 1)
    except Unloadable as error:
        return str(error)
    return ""


def _require(condition: object, rule: str, found: object) -> None:
    if not condition:
        raise Unloadable(f"requires {rule}, found {found}")


def _placed(code: bytes, symbol: str) -> int:
    (start,) = struct.unpack_from("<Q", code, 40)
    size, count, _ = struct.unpack_from("<HHH", code, 58)
    sections = [_Section(*_HEADER.unpack_from(code, start + k * size)) for k in range(count)]
    places, image = {}, bytearray()
    for k, section in enumerate(sections):
        if section.flags & _LOADED and section.size:
            _require(
                section.type == _PROGRAM_DATA and not section.flags & _WRITABLE, "read-only sections", f"type {section.type}"
            )
            _require(section.alignment <= _PAGE, f"sections aligned to {_PAGE} bytes at most", section.alignment)
            image += bytes(-len(image) % max(section.alignment, 1))
            places[k] = len(image)
            image += _content(code, section)
    _require(places, "a section to load", "none")
    base = _mapped(len(image))
    try:
        symbols, found = _symbols(code, sections, {k: base + at for k, at in places.items()}, symbol)
        for section in sections:
            if section.info in places and section.type in (_RELOCATIONS, _RELOCATIONS_IN_PLACE):
                _require(section.type == _RELOCATIONS, "relocations with addends", "others")
                last = places[section.info] + sections[section.info].size - 8
                _relocate(image, places[section.info], last, _content(code, section), symbols)
        _require(found is not None, f"a function {symbol}", "none")
        ctypes.memmove(base, bytes(image), len(image))
        _make_code(base, len(image))
    except BaseException:
        _process().munmap(base, len(image))
        raise
    assert found is not None
    return found


def _content(code: bytes, section: _Section) -> bytes:
    found = code[section.offset : section.offset + section.size]
    if len(found) != section.size:
        raise ValueError(f"a section of {section.size} bytes at {section.offset}")
    return found


def _symbols(
    code: bytes, sections: Sequence[_Section], addresses: Mapping[int, int], symbol: str
) -> tuple[dict[int, int], int | None]:
    """Addresses by the number of the symbol, those of this process's functions among them; and that of one function."""
    table = next((section for section in sections if section.type == _SYMBOLS), None)
    if table is None:
        raise Unloadable("requires a table of symbols, found none")
    names, found, symbols = _content(code, sections[table.link]), None, {}
    for k, (at, _, _, number, value, _) in enumerate(_SYMBOL.iter_unpack(_content(code, table))):
        name = names[at : names.index(b"\0", at)].decode()
        if number in addresses:
            symbols[k] = addresses[number] + value
            found = symbols[k] if name == symbol else found
        elif number == _UNDEFINED and name:
            address = _function(name)
            _require(address is not None, "functions of this process", name)
            symbols[k] = address or 0
    return symbols, found


def _relocate(image: bytearray, first: int, last: int, entries: bytes, symbols: Mapping[int, int]) -> None:
    """Write the addresses that a section holds; the last of them begins at ``last`` at most."""
    for at, info, addend in _RELOCATION.iter_unpack(entries):
        kind = info & 0xFFFFFFFF
        _require(kind == _ABSOLUTE_64, f"relocations of kind {_ABSOLUTE_64} (absolute, 64 bits)", f"kind {kind}")
        if first + at > last:
            raise ValueError(f"a relocation at {at}")
        struct.pack_into("<Q", image, first + at, (symbols[info >> 32] + addend) % 2**64)


@functools.cache
def _process() -> Any:
    """The functions of this process."""
    process = ctypes.CDLL(None, use_errno=True)
    process.mmap.restype = ctypes.c_void_p
    process.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    process.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    process.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    return process


def _mapped(size: int) -> int:
    """So many bytes of memory that can be written until they are made code."""
    address: int | None = _process().mmap(None, size, _READ | _WRITE, _PRIVATE_ANONYMOUS, -1, 0)
    if address is None or address == ctypes.c_void_p(-1).value:
        raise Unloadable(f"requires {size} bytes of memory, found {os.strerror(ctypes.get_errno())}")
    return address


def _make_code(address: int, size: int) -> None:
    if _process().mprotect(address, size, _READ | _EXECUTE) != 0:
        raise Unloadable(f"requires memory that may become code, found {os.strerror(ctypes.get_errno())}")


def _function(name: str) -> int | None:
    """The address of one of this process's functions, such as ``memcpy``."""
    try:
        return ctypes.cast(getattr(_process(), name), ctypes.c_void_p).value
    except AttributeError:
        return None
