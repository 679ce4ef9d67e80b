"""System functions for drivers in other processes: memory that both sides map, sockets that pass descriptors, users.

On Linux the memory is a ``memfd`` with seals: its size cannot change any more, nor can a model's content, so that no side
can make the other fault by cutting it short. Elsewhere it is a temporary file that has lost its name: a model's descriptor is
for reading only, but a side that shortens its file ends the other with SIGBUS, which is a driver's death like any other.
"""

from __future__ import annotations

import array
import os
import socket
import struct
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import IO

from nnbridge.errors import InputError, Reason, ShortageError, first_line, shortage_of
from nnbridge.platforms import lacks

with suppress(ImportError):  # Windows has neither; require_descriptors refuses there before they are used.
    import fcntl
    import resource

_MAX_DESCRIPTORS = 4
FIXED_SIZE = 2 | 4
"""Linux's F_SEAL_SHRINK and F_SEAL_GROW."""
READ_ONLY = FIXED_SIZE | 8
"""With F_SEAL_WRITE."""
_XUCRED, _SOL_LOCAL, _LOCAL_PEERCRED, _LOCAL_PEERPID = struct.Struct("=II68x"), 0, 1, 2
"""macOS: version and user of ``struct xucred`` (``sys/ucred.h``), before its groups; the options that read it and the process
(``sys/un.h``)."""


class ProtocolError(Exception):
    """The other side broke the protocol; the channel cannot be used any more."""


def require_descriptors(what: str) -> None:
    """InputError where sockets pass no descriptors, as on Windows; ``what`` was asked for."""
    if not (hasattr(socket, "AF_UNIX") and hasattr(socket, "SCM_RIGHTS")):
        raise InputError(lacks(what, "sockets that pass descriptors", "drivers run in nnbridge's own process (--device NAME)"))


# -- memory ------------------------------------------------------------------------------------------------------------


@contextmanager
def _own_memory() -> Iterator[None]:
    """Report a failure with memory of this side as a shortage of this process, whatever the system's word for it."""
    try:
        yield
    except OSError as error:
        short = shortage_of(error)
        raise ShortageError(f"no memory to share with a driver's process: {short or first_line(error)}") from error


@_own_memory()
def shared_memory(size: int) -> int:
    """The descriptor of new memory of this size, to read and write."""
    if _has_seals():
        return _sealed_memory("nnbridge-execution", lambda descriptor: os.ftruncate(descriptor, size), FIXED_SIZE)
    with tempfile.NamedTemporaryFile(prefix="nnbridge-execution-") as file:
        os.ftruncate(file.fileno(), size)
        return os.dup(file.fileno())


@_own_memory()
def read_only_memory(name: str, fill: Callable[[IO[bytes]], object]) -> int:
    """The descriptor of memory through which no one can change what ``fill`` has written."""
    if _has_seals():

        def write(descriptor: int) -> None:
            with os.fdopen(os.dup(descriptor), "wb") as file:
                fill(file)

        return _sealed_memory(name, write, READ_ONLY)
    with tempfile.NamedTemporaryFile(prefix=f"{name}-") as file:
        fill(file)
        file.flush()
        return os.open(file.name, os.O_RDONLY)


def sealed_size(descriptor: int, seals: int = READ_ONLY) -> int:
    """The size of a memory of the other side; ProtocolError unless it is sealed, where this system has seals."""
    if sys.platform == "linux" and _has_seals():
        try:
            found = fcntl.fcntl(descriptor, fcntl.F_GET_SEALS)
        except OSError as error:
            raise ProtocolError(f"no sealed memory: {error}") from error
        if found & seals != seals:
            raise ProtocolError("memory whose size or content may still change")
    return os.fstat(descriptor).st_size


def _has_seals() -> bool:
    return hasattr(os, "memfd_create") and hasattr(fcntl, "F_ADD_SEALS")


def _sealed_memory(name: str, fill: Callable[[int], object], seals: int) -> int:
    if sys.platform != "linux":
        raise NotImplementedError
    descriptor = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        fill(descriptor)
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, seals | fcntl.F_SEAL_SEAL)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


# -- descriptors and sockets -------------------------------------------------------------------------------------------


def close_all(descriptors: Sequence[int]) -> None:
    """Close what came with a message."""
    for descriptor in descriptors:
        os.close(descriptor)


def send_descriptors(connection: socket.socket, data: bytes, descriptors: Sequence[int]) -> int:
    """Send the beginning of ``data``, one byte at least, with the descriptors; the number of bytes that were sent."""
    if sys.platform == "win32":
        raise NotImplementedError
    return connection.sendmsg([data], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))])


def receive_descriptors(connection: socket.socket, count: int, descriptors: list[int]) -> bytes:
    """Up to ``count`` bytes; the descriptors that come with them are appended."""
    if sys.platform == "win32":
        raise NotImplementedError
    cloexec: int = getattr(socket, "MSG_CMSG_CLOEXEC", 0)
    data, rights, flags, _ = connection.recvmsg(count, socket.CMSG_LEN(_MAX_DESCRIPTORS * 4), cloexec)
    for level, kind, content in rights:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            found = array.array("i", content[: len(content) // 4 * 4])
            descriptors += found
            if not cloexec:
                for descriptor in found:
                    os.set_inheritable(descriptor, False)
    if flags & socket.MSG_CTRUNC:
        raise ProtocolError(f"more than {_MAX_DESCRIPTORS} descriptors")
    return data


def limit_of_descriptors() -> int:
    """The number of descriptors that this process may have."""
    if sys.platform == "win32":
        raise NotImplementedError
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def open_descriptors() -> int:
    """The number that it has; 0 where neither folder of them is mounted."""
    for folder in ("/proc/self/fd", "/dev/fd"):
        with suppress(OSError):
            return len(os.listdir(folder))
    return 0


def local_socket() -> socket.socket:
    """A stream socket for processes of this machine."""
    if sys.platform == "win32":
        raise NotImplementedError
    return socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)


def this_user() -> int:
    """The user of this process."""
    if sys.platform == "win32":
        raise NotImplementedError
    return os.getuid()


def process_of_peer(connection: socket.socket) -> int:
    """The process at the other end, which connected; 0 where the system does not say."""
    if sys.platform == "linux":
        credentials = struct.Struct("3i")
        return int(credentials.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, credentials.size))[0])
    return int.from_bytes(connection.getsockopt(_SOL_LOCAL, _LOCAL_PEERPID, 4), sys.byteorder)


def user_of_peer(connection: socket.socket) -> int:
    """The user of the process at the other end: who connected, or who listens."""
    if sys.platform == "linux":
        credentials = struct.Struct("3i")
        return int(credentials.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, credentials.size))[1])
    return int(_XUCRED.unpack(connection.getsockopt(_SOL_LOCAL, _LOCAL_PEERCRED, _XUCRED.size))[1])


def socket_address(path: str, option: str) -> str:
    """The address of a socket; ``@name`` lies in Linux's abstract space, where no file remains."""
    if path in ("", "@"):
        raise InputError(Reason("a socket's path or @NAME", repr(path), operand=option))
    if path.startswith("@") and sys.platform != "linux":
        raise InputError(lacks(f"{option} {path}", "an abstract space of addresses", "a socket's path is an address as well"))
    return "\0" + path[1:] if path.startswith("@") else path
