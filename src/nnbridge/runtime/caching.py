"""Compilation caching: what devices compile is stored in a directory, under a token that stands for what was compiled.

Facts C16 to C21. Tokens and file names are Android's. The files' contents are the device's, after our header that shows
whether a file is whole and of this compilation; others are ignored, and noted. The checksums detect damage, not tampering:
who may write into the directory would decide what is computed, so that nothing is read or written where others may, and no file
is read that they own or may write. Nothing that goes wrong with the cache is ever an
error of the compilation.
"""

from __future__ import annotations

import errno
import hashlib
import logging
import os
import stat
import struct
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from nnbridge.caches import folder_fault
from nnbridge.devices.device import CacheFiles, Device, ModelInterface, PreparedModel, PrepareModelConfig, cache_files_needed
from nnbridge.errors import NnapiError, Reason, RefusalError, ShortageError, first_line, pass_shortage
from nnbridge.model import Model
from nnbridge.records import dataclass
from nnbridge.storage.atomic import atomic_write
from nnbridge.trust import foreign

LOG = logging.getLogger("nnbridge.cache")
FORMAT_VERSION = 1
_HEADER = struct.Struct("<4sI32s32s32sQ16s")
"""128 bytes: magic, version, token, checksum of the contents, checksum of all files' checksums, length of the contents, zeros."""
_MAGIC = b"NNCC"
_MODE = 0o600
_NO_WAIT: int = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0)
"""Flags of ``open``; Windows has neither, nor what they are for."""
_MODEL_CACHE, _DATA_CACHE = "1", "2"
_MOST_BYTES = 2**31
"""Longest cache file that is read."""

Identity = Sequence[tuple[int, int]]
"""A step's operations as (number of the source model, place in its run order); empty where a device has the whole model."""


@dataclass(frozen=True)
class CacheRecord:
    """The cache's result for one step."""

    device: str
    token: str
    """The device's token in hexadecimal; empty where the device does not cache."""
    read: bool = False
    """True if the device read its compiled model from the cache."""
    written: bool = False
    notes: tuple[Reason, ...] = ()
    """Why files were ignored or not written."""

    @property
    def result(self) -> str:
        """The record in one word."""
        return "read" if self.read else "written" if self.written else "not used"


def device_token(
    token: bytes,
    device: Device,
    preference: int,
    priority: int,
    operations: Identity = (),
    hints: Sequence[tuple[str, int, bytes]] = (),
) -> bytes:
    """The token that a device gets, of the client's 32 bytes and all that its compiled model depends on (fact C16)."""
    found = hashlib.sha256(token)
    for source, operation in operations:
        found.update(struct.pack("<Ii", source, operation))
    found.update(device.name.encode() + device.version.encode())
    found.update(struct.pack("<ii", preference, priority))
    for name, number, value in sorted(hints):
        found.update(name.encode() + struct.pack("<H", number) + value)
    return found.digest()


def file_name(token: bytes, kind: str, index: int) -> str:
    """Two letters for each byte of the token, low half first, then the kind and the index (fact C17)."""
    letters = "".join(chr(ord("A") + (byte & 15)) + chr(ord("A") + (byte >> 4)) for byte in token)
    return f"{letters}{kind}{index}"


class StepCache:
    """The files of one step's compiled model."""

    def __init__(self, directory: Path, token: bytes, counts: tuple[int, int]) -> None:
        self._token = token
        self._counts = counts
        self._directory = directory
        kinds = zip((_MODEL_CACHE, _DATA_CACHE), counts, strict=True)
        self._paths = [directory / file_name(token, kind, i) for kind, count in kinds for i in range(count)]
        self.written = False
        self.notes: list[Reason] = []

    def read(self) -> CacheFiles | None:
        """The files' contents; None if one is missing, or, with a note, if they do not hold together."""
        if self._is_of_others():
            return None
        contents, entries = [], set()
        for path in self._paths:
            try:
                found = _read(path, self._token)
            except FileNotFoundError:
                return None
            except (OSError, MemoryError) as error:
                what = (
                    "a symbolic link"
                    if getattr(error, "errno", None) == errno.ELOOP
                    else getattr(error, "strerror", None) or first_line(error)
                )
                self._note(Reason("a file that can be read", what, operand=str(path)))
                return None
            if isinstance(found, str):
                self._note(Reason("a cache file of this compilation", found, operand=str(path)))
                return None
            contents.append(found[0])
            entries.add(found[1])
        if entries != {_entry(contents)}:
            self._note(Reason("files of one compilation", "files of several", operand=str(self._paths[0])))
            return None
        models = self._counts[0]
        return CacheFiles(tuple(contents[:models]), tuple(contents[models:]))

    def write(self, files: CacheFiles) -> None:
        """Store a device's files; each appears whole or not at all. What is at its name, links too, is replaced."""
        if self._is_of_others():
            return
        contents = [*files.model, *files.data]
        counts = (len(files.model), len(files.data))
        if counts != self._counts:
            rule = f"{self._counts[0]} model and {self._counts[1]} data cache files, as the device reported"
            self._note(Reason(rule, f"{counts[0]} and {counts[1]}"))
            return
        entry = _entry(contents)
        try:
            for path, data in zip(self._paths, contents, strict=True):
                checksum = hashlib.sha256(data).digest()
                _remove_special(path)
                with atomic_write(path, _MODE, follow_links=False) as file:
                    file.write(_HEADER.pack(_MAGIC, FORMAT_VERSION, self._token, checksum, entry, len(data), b""))
                    file.write(data)
        except (RefusalError, ShortageError, OSError) as error:  # A cache that is full is none, as on a phone.
            self._note(Reason("a cache directory that can be written to", str(error)))
            return
        self.written = True

    def _is_of_others(self) -> bool:
        fault = folder_fault(self._directory)
        if fault:
            self._note(Reason("a cache directory to which only this user writes", fault, operand=str(self._directory)))
        return bool(fault)

    def _note(self, reason: Reason) -> None:
        if reason in self.notes:
            return
        LOG.warning("%s", reason)
        self.notes.append(reason)


def _entry(contents: Sequence[bytes | memoryview]) -> bytes:
    """One checksum over those of all files: the same in each file of one entry."""
    return hashlib.sha256(b"".join(hashlib.sha256(data).digest() for data in contents)).digest()


def _remove_special(path: Path) -> None:
    """Remove a FIFO, socket or device file, which would be written to."""
    with suppress(FileNotFoundError):
        mode = path.lstat().st_mode
        if not (stat.S_ISREG(mode) or stat.S_ISLNK(mode) or stat.S_ISDIR(mode)):
            path.unlink()


def _read(path: Path, token: bytes) -> tuple[memoryview, bytes] | str:
    """A file's contents and its entry's checksum, or what is wrong with it. Whoever may write there cannot make it wait."""
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | _NO_WAIT)) as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            return "no regular file"
        if refused := foreign(status):
            return refused
        header, length = file.read(_HEADER.size), status.st_size - _HEADER.size
        fault = _header_fault(header, token, length)
        if fault is not None:
            return fault
        contents = memoryview(file.read(length))
    checksum, entry = _HEADER.unpack(header)[3:5]
    return (contents, entry) if hashlib.sha256(contents).digest() == checksum else "a wrong checksum"


def _header_fault(header: bytes, token: bytes, found: int) -> str | None:
    """The mistake in the header of a file that has so many bytes after it."""
    if len(header) < _HEADER.size:
        return f"{len(header)} bytes"
    magic, version, written_for, _, _, length, zeros = _HEADER.unpack(header)
    if magic != _MAGIC:
        return "a file of another program"
    if version != FORMAT_VERSION:
        return f"format version {version}"
    if written_for != token:
        return "a file of another token"
    if any(zeros):
        return "a header with more than is known"
    if found != length:
        return f"{found} bytes instead of {length}"
    return f"{length} bytes, more than {_MOST_BYTES}" if length > _MOST_BYTES else None


def prepare_cached(
    device: Device, model: Model, config: PrepareModelConfig, directory: Path, token: bytes, operations: Identity
) -> tuple[PreparedModel, CacheRecord]:
    """Prepare a step from the cache if that can be done, else with the model, whose files are then stored (facts C17 to C21).

    ``token`` is the client's. Only what preparing with the model raises comes out of here.
    """
    counts = cache_files_needed(device)
    if isinstance(counts, Reason):
        LOG.warning("%s", counts)
        return device.prepare_model_with_config(model, config), CacheRecord(device.name, "", notes=(counts,))
    if counts == (0, 0):
        return device.prepare_model_with_config(model, config), CacheRecord(device.name, "")
    own = device_token(token, device, config.preference, config.priority, operations, config.hints)
    cache = StepCache(directory, own, counts)
    prepared = _from_cache(device, model, cache, own, config.deadline)
    read = prepared is not None
    if prepared is None:
        prepared = device.prepare_model_with_config(model, replace(config, token=own, save=cache.write))
    return prepared, CacheRecord(device.name, own.hex(), read, cache.written, tuple(cache.notes))


def _from_cache(device: Device, model: Model, cache: StepCache, token: bytes, deadline: int | None) -> PreparedModel | None:
    files = cache.read()
    if files is None:
        return None
    try:
        prepared = device.prepare_model_from_cache(files, token, deadline)
    except Exception as error:
        pass_shortage(error)
        why = f"{error.code.name}: {error}" if isinstance(error, NnapiError) else f"{type(error).__name__}: {error}"
        cache.notes.append(Reason("prepareModelFromCache without failure", why, device.name))
        return None
    if not isinstance(prepared, PreparedModel):
        cache.notes.append(Reason("a prepared model", type(prepared).__name__, "prepareModelFromCache", device.name))
        return None
    if prepared.interface is not None and prepared.interface != ModelInterface.of(model):
        rule = "a model with the step's inputs and outputs"
        cache.notes.append(Reason(rule, str(prepared.interface), "prepareModelFromCache", device.name))
        return None
    return prepared
