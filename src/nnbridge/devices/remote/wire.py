"""Messages between nnbridge and a driver's process: with descriptors, and memory that both sides map.

A message is JSON after its length; nothing that it holds is ever executed. :mod:`.system` has the kinds of memory.
"""

from __future__ import annotations

import json
import mmap
import os
import socket
import struct
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import accumulate, pairwise
from typing import IO, Any
from weakref import finalize

import numpy as np
import numpy.typing as npt

from nnbridge import storage  # a module: storage itself imports devices
from nnbridge.budget import parse_json
from nnbridge.devices.device import MAX_CACHE_FILES, CacheFiles, Capabilities, Performance
from nnbridge.devices.remote.system import (
    FIXED_SIZE,
    ProtocolError,
    close_all,
    read_only_memory,
    receive_descriptors,
    sealed_size,
    send_descriptors,
    shared_memory,
)
from nnbridge.errors import BadDataError, OpFailedError, Reason, Why
from nnbridge.extensions import Extension, ExtensionOperandType
from nnbridge.model import Model

ALIGNMENT = 64
"""Of each buffer in an execution's memory."""
MAX_MESSAGE = 4 * 2**20
"""Bytes: the reasons of 20,000 operations. What may be larger (models, tensors, caches, attributes) travels by descriptor."""
MAX_CHANNELS = 64
"""Calls that one client may have side by side; further ones wait."""
_HEADER = struct.Struct("<II")
_SEND_TIMEOUT = 30.0
"""Seconds: messages are small, so that only a process that reads nothing at all lets a sender wait."""
_LONGEST_WAIT = 86_400.0
"""Seconds: more does not fit into every system's clock, and no one waits that long for an answer."""

Message = dict[str, Any]
Hints = tuple[tuple[str, int, bytes], ...]
MAX_NUMBER = 0xFFFF
"""Of a type, an operation or an attribute within an extension."""


class Channel:
    """One side of a stream socket. A lost connection is an OSError or EOFError, a late answer a TimeoutError."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection

    def send(self, message: Message, descriptors: Sequence[int] = ()) -> None:
        """Send a message; the descriptors are duplicated on their way. OP_FAILED, with nothing sent, if it is too large."""
        body = json.dumps(message, separators=(",", ":")).encode()
        if len(body) > MAX_MESSAGE:
            raise OpFailedError(Reason(f"a message of at most {MAX_MESSAGE} bytes", f"{len(body)} bytes"))
        self.socket.settimeout(_SEND_TIMEOUT)
        header = _HEADER.pack(len(body), len(descriptors))
        if descriptors:
            # One byte must carry them; the rest follows as plain bytes.
            sent = send_descriptors(self.socket, header, descriptors)
            self.socket.sendall(header[sent:] + body)
        else:
            self.socket.sendall(header + body)

    def receive(self, until: float | None = None) -> tuple[Message, list[int]]:
        """The next message and its descriptors, which the caller closes; TimeoutError at ``until`` (``time.monotonic``), or half
        a minute after the beginning of one that does not end."""
        descriptors: list[int] = []
        try:
            length, count = _HEADER.unpack(self._exactly(_HEADER.size, until, descriptors))
            if length > MAX_MESSAGE:
                raise ProtocolError(f"a message of {length} bytes")
            body = self._exactly(length, _whole(until), descriptors)
            if len(descriptors) != count:
                raise ProtocolError(f"{len(descriptors)} descriptors instead of {count}")
            try:
                message = parse_json(body)
            except (ValueError, RecursionError) as error:
                raise ProtocolError(f"not JSON: {error}") from error
            if not isinstance(message, dict):
                raise ProtocolError("a message that is not an object")
            if until is not None and time.monotonic() >= until:
                raise TimeoutError("an answer that was read too late")
        except BaseException:
            close_all(descriptors)
            raise
        return message, descriptors

    def _exactly(self, count: int, until: float | None, descriptors: list[int]) -> bytes:
        """``count`` bytes; descriptors that come with them are collected."""
        parts = bytearray()
        while len(parts) < count:
            left = None if until is None else until - time.monotonic()
            if left is not None and left <= 0:
                raise TimeoutError("no answer in time")
            self.socket.settimeout(None if left is None else min(left, _LONGEST_WAIT))
            data = receive_descriptors(self.socket, min(count - len(parts), 2**20), descriptors)
            if not data:
                raise EOFError("the other side has closed the connection")
            parts += data
            until = _whole(until)
        return bytes(parts)

    def shutdown(self) -> None:
        """End the connection; a thread that waits for it wakes up. The descriptor goes with the object."""
        with suppress(OSError):  # It may have ended already.
            self.socket.shutdown(socket.SHUT_RDWR)


def _whole(until: float | None) -> float:
    """The time until which a message that has begun is there; who sends half of one holds no one."""
    return time.monotonic() + _SEND_TIMEOUT if until is None else until


class SharedBlock:
    """Memory that two processes map: ``bytes`` is all of it."""

    def __init__(self, descriptor: int, size: int) -> None:
        self.bytes: npt.NDArray[np.uint8] = np.frombuffer(mmap.mmap(descriptor, size), np.uint8)

    @classmethod
    def received(cls, descriptor: int) -> SharedBlock:
        """Memory of the other side, whose descriptor stays the caller's.

        ProtocolError unless its size is sealed, BAD_DATA for memory that cannot be mapped.
        """
        size = sealed_size(descriptor, FIXED_SIZE)
        try:
            return cls(descriptor, size)
        except (ValueError, OSError, OverflowError) as error:
            raise BadDataError(Reason("memory that can be mapped", f"{size} bytes ({error})", "execute")) from error


class OwnedBlock(SharedBlock):
    """Memory of this side, of at least so many bytes, with the descriptor to send; ``close`` closes the descriptor."""

    def __init__(self, size: int) -> None:
        size = max(mmap.PAGESIZE, -(-size // mmap.PAGESIZE) * mmap.PAGESIZE)
        self.descriptor = shared_memory(size)
        self.close = finalize(self, os.close, self.descriptor)
        super().__init__(self.descriptor, size)


class ModelMemory:
    """A model as a read-only ``.nnapi`` file in memory, for as long as this object lives."""

    def __init__(self, model: Model) -> None:
        self.descriptor = read_only_memory("nnbridge-model", lambda file: storage.write_model(model, file))
        self.close = finalize(self, os.close, self.descriptor)

    def __enter__(self) -> int:
        return self.descriptor

    def __exit__(self, *_: object) -> None:
        self.close()


def _joined(name: str, parts: Sequence[bytes | memoryview]) -> int:
    """The descriptor of a read-only memory that holds the parts one after another."""

    def fill(memory: IO[bytes]) -> None:
        for part in parts:
            memory.write(part)

    return read_only_memory(name, fill)


def _parts(descriptor: int, lengths: Sequence[Any]) -> tuple[memoryview, ...]:
    """The parts of a memory of the other side, whose descriptor may be closed afterwards."""
    size = sealed_size(descriptor)
    if not all(type(n) is int and n >= 0 for n in lengths) or sum(lengths) != size:
        raise ProtocolError(f"parts of {lengths} bytes in a memory of {size}")
    view = memoryview(mmap.mmap(descriptor, size, access=mmap.ACCESS_READ)) if size else memoryview(b"")
    return tuple(view[start:end] for start, end in pairwise([0, *accumulate(lengths)]))


def cache_memory(files: CacheFiles) -> tuple[int, Message]:
    """Cache files as one read-only memory: its descriptor, and the files' lengths."""
    lengths = {"model": [len(content) for content in files.model], "data": [len(content) for content in files.data]}
    return _joined("nnbridge-cache", (*files.model, *files.data)), lengths


def cache_files(descriptor: int, lengths: object) -> CacheFiles:
    """The cache files in a memory of the other side, which may be closed afterwards."""
    models, data = (lengths.get(kind) if isinstance(lengths, dict) else None for kind in ("model", "data"))
    if not (isinstance(models, list) and isinstance(data, list) and max(len(models), len(data)) <= MAX_CACHE_FILES):
        raise ProtocolError(f"no lengths of cache files: {lengths}")
    parts = _parts(descriptor, [*models, *data])
    return CacheFiles(parts[: len(models)], parts[len(models) :])


def from_hints(hints: Hints) -> tuple[list[list[Any]], list[int]]:
    """Extension attributes as JSON-ready data (name, number, length), and the descriptor of their values, if there are any."""
    listed = [[name, number, len(value)] for name, number, value in hints]
    return listed, [_joined("nnbridge-attributes", [value for *_, value in hints])] if hints else []


def to_hints(listed: object, descriptors: list[int]) -> Hints:
    """Extension attributes from a message. The descriptor of their values is the message's last; it is closed and removed.

    BAD_DATA for what is no list of name, number and length.
    """
    found: list[tuple[str, int, int]] = []
    for hint in [] if listed is None else listed if isinstance(listed, list) else [listed]:
        match hint:
            case [str(name), int(number), int(length)] if 0 <= number <= MAX_NUMBER:
                found.append((name, number, length))
            case _:
                raise BadDataError(Reason("attributes of a name, a number and a length", str(hint), "attributes"))
    if not found:
        return ()
    if not descriptors:
        raise ProtocolError("attributes without the memory of their values")
    values = [bytes(part) for part in _parts(descriptors[-1], [length for *_, length in found])]
    os.close(descriptors.pop())
    return tuple((name, number, value) for (name, number, _), value in zip(found, values, strict=True))


def aligned(size: int) -> int:
    """A size rounded up to the alignment of buffers."""
    return -(-size // ALIGNMENT) * ALIGNMENT


# -- values in messages ------------------------------------------------------------------------------------------------


def from_capabilities(found: Capabilities) -> Message:
    """Capabilities as JSON-ready data."""
    named = ("relaxed_scalar", "relaxed_tensor", "if_performance", "while_performance")
    return {
        "operands": {str(int(code)): _pair(performance) for code, performance in found.operands.items()},
        **{name: _pair(getattr(found, name)) for name in named},
    }


def to_capabilities(data: Mapping[str, Any]) -> Capabilities:
    """Capabilities from a message; ProtocolError for anything else."""
    try:
        return Capabilities(
            {int(code): _performance(pair) for code, pair in data["operands"].items()},
            _performance(data["relaxed_scalar"]),
            _performance(data["relaxed_tensor"]),
            _performance(data["if_performance"]),
            _performance(data["while_performance"]),
        )
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise ProtocolError(f"no capabilities: {error}") from error


def _pair(found: Performance) -> list[float]:
    return [found.exec_time, found.power_usage]


def _performance(pair: Sequence[Any]) -> Performance:
    exec_time, power_usage = pair
    return Performance(float(exec_time), float(power_usage))


def from_extension(extension: Extension) -> Message:
    """An extension as JSON-ready data."""
    types = [[t.number, t.is_tensor, t.byte_size, t.name, t.dtype] for t in extension.operand_types]
    return {"name": extension.name, "operand_types": types}


def to_extension(data: Mapping[str, Any]) -> Extension:
    """An extension from a message."""
    try:
        types = [
            ExtensionOperandType(int(number), bool(is_tensor), int(size), str(name), None if dtype is None else str(dtype))
            for number, is_tensor, size, name, dtype in data["operand_types"]
        ]
        return Extension(str(data["name"]), tuple(types))
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise ProtocolError(f"no extension: {error}") from error


def to_reason(data: object) -> Reason | None:
    """A reason from a message; None for none."""
    if data is None:
        return None
    if not isinstance(data, dict):
        raise ProtocolError("a reason that is not an object")
    kind = data.get("kind")
    known = Why(kind) if kind in list(Why) else None
    rule, found, operation, operand, says, file = (
        str(data.get(part, "")) for part in ("rule", "found", "operation", "operand", "says", "file")
    )
    return Reason(rule, found, operation, operand, known, says, file=file)
