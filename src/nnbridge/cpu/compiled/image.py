"""Kernels' object files brought into memory without the compiler, whose import costs more than preparing a small model.

Only what LLVM writes for kernels on Linux with x86-64 processors: ELF with read-only sections and absolute 64-bit addresses. Any
other object is left to LLVM's own loader.
"""

from __future__ import annotations

import ctypes
import functools
import platform
import struct
import sys
from typing import Any, NamedTuple

_PROGRAM_DATA, _RELOCATIONS, _SYMBOLS = 1, 4, 2
_WRITABLE, _LOADED = 1, 2
_ABSOLUTE_64 = 1
_UNDEFINED = 0
_PAGE = 4096
_READ, _WRITE, _EXECUTE, _PRIVATE_ANONYMOUS = 1, 2, 4, 0x22
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


def place(code: bytes, symbol: str) -> int | None:
    """The address of a function of an object file, now in memory to stay; None for an object of another kind."""
    known = sys.platform == "linux" and platform.machine() == "x86_64"
    if not known or code[:6] != _IDENTIFIER or code[16:20] != _RELOCATABLE_X86_64:
        return None
    (start,) = struct.unpack_from("<Q", code, 40)
    size, count, _ = struct.unpack_from("<HHH", code, 58)
    sections = [_Section(*_HEADER.unpack_from(code, start + k * size)) for k in range(count)]
    places, end = {}, 0
    for k, section in enumerate(sections):
        if section.flags & _LOADED and section.size:
            if section.type != _PROGRAM_DATA or section.flags & _WRITABLE:
                return None
            end += -end % max(section.alignment, 1)
            places[k] = end
            end += section.size
    base = _mapped(end)
    if base is None:
        return None
    found, symbols = None, {}
    table = next(section for section in sections if section.type == _SYMBOLS)
    names = sections[table.link].offset
    for k in range(table.size // _SYMBOL.size):
        at, _, _, section_number, value, _ = _SYMBOL.unpack_from(code, table.offset + k * _SYMBOL.size)
        name = code[names + at : code.index(b"\0", names + at)].decode()
        if section_number in places:
            symbols[k] = base + places[section_number] + value
            found = symbols[k] if name == symbol else found
        elif section_number == _UNDEFINED and name:
            symbols[k] = _function(name)
    image = bytearray(end)
    for k, at in places.items():
        image[at : at + sections[k].size] = code[sections[k].offset : sections[k].offset + sections[k].size]
    for section in sections:
        if section.type == _RELOCATIONS and section.info in places:
            for k in range(section.size // _RELOCATION.size):
                at, info, addend = _RELOCATION.unpack_from(code, section.offset + k * _RELOCATION.size)
                address = symbols.get(info >> 32)
                if info & 0xFFFFFFFF != _ABSOLUTE_64 or address is None:
                    return None
                struct.pack_into("<Q", image, places[section.info] + at, address + addend)
    ctypes.memmove(base, bytes(image), end)
    return found if _process().mprotect(base, end, _READ | _EXECUTE) == 0 else None


@functools.cache
def _process() -> Any:
    """The functions of this process."""
    process = ctypes.CDLL(None)
    process.mmap.restype = ctypes.c_void_p
    process.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    process.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    return process


def _mapped(size: int) -> int | None:
    """So many bytes of memory that can be written until they are made code."""
    address: int | None = _process().mmap(None, size + -size % _PAGE, _READ | _WRITE, _PRIVATE_ANONYMOUS, -1, 0)
    return None if address == ctypes.c_void_p(-1).value else address


def _function(name: str) -> int | None:
    """The address of one of this process's functions, such as ``memcpy``."""
    try:
        return ctypes.cast(getattr(_process(), name), ctypes.c_void_p).value
    except AttributeError:
        return None
