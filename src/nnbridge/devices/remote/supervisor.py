"""Serving a driver at a socket: what init and the service manager are to a driver on a phone.

The supervisor holds the listening socket and starts the driver's process, again whenever that has died, so that clients
who call in between wait for the new one. When it ends, by a signal as well, driver and socket file go with it.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from nnbridge.devices.remote.session import driver_command
from nnbridge.devices.remote.system import local_socket, require_descriptors, socket_address
from nnbridge.errors import InputError, Reason, cannot_read
from nnbridge.trust import environment

SHORT_LIFE = 10.0
"""Seconds below which a driver that ends by itself counts as one that died at its start, on a busy machine as well."""
_FROM_OUTSIDE = (-signal.SIGTERM, -getattr(signal, "SIGKILL", signal.SIGTERM))
MAX_SHORT_LIVES = 5
_BACKLOG = 64


def supervise(name: str, path: str, started: Callable[[int], None]) -> None:
    """Serve the device ``name`` at ``path`` until SIGINT or SIGTERM; ``started`` is called with each process's id.

    ``@name`` stands for an address in Linux's abstract space, which leaves no file. InputError for a path that is in use, and
    for a driver that dies at its start over and over.
    """
    require_descriptors(f"--socket {path}")
    file = None if path.startswith("@") else Path(path)
    listener = _listen(path, file)
    driver: subprocess.Popen[bytes] | None = None

    def stop(*_: object) -> None:
        raise SystemExit(0)

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    # The driver reads the other end: it sees the end of this process even if that is killed.
    watched, alive = os.pipe()
    short = 0
    try:
        while short < MAX_SHORT_LIVES:
            driver = _start(name, listener, watched, file)
            began = time.monotonic()
            started(driver.pid)
            by_itself = driver.wait() not in _FROM_OUTSIDE
            short = short + 1 if by_itself and time.monotonic() - began < SHORT_LIFE else 0
        raise InputError(Reason("a driver that stays alive", f"{name} died {short} times at its start", operand="DEVICE"))
    finally:
        if driver is not None:
            driver.kill()
            driver.wait()
        listener.close()
        os.close(watched)
        os.close(alive)
        if file is not None:
            file.unlink(missing_ok=True)


def _start(name: str, listener: socket.socket, watched: int, file: Path | None) -> subprocess.Popen[bytes]:
    descriptors = [listener.fileno(), watched]
    command = driver_command(name, "--listen", str(listener.fileno()), "--parent", str(watched))
    if file is not None:
        command += ["--path", str(file.absolute())]
    return subprocess.Popen(command, env=environment(), pass_fds=descriptors, stdin=subprocess.DEVNULL, start_new_session=True)


def _listen(path: str, file: Path | None) -> socket.socket:
    """A listening socket for this user only, in place of one that no one serves any more."""
    address = socket_address(path, "--socket")
    listener = local_socket()
    if file is not None and file.is_socket() and not _answers(address):
        file.unlink(missing_ok=True)
    umask = os.umask(0o177)
    try:
        listener.bind(address)
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        raise InputError(Reason("a free socket", f"{path}: {cannot_read(error)}", operand="socket")) from error
    finally:
        os.umask(umask)
    return listener


def _answers(address: str) -> bool:
    with local_socket() as probe, suppress(OSError):
        probe.connect(address)
        return True
    return False
