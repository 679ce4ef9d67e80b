"""The driver's process: ``python -m nnbridge.devices.remote DEVICE``, started by nnbridge with descriptors to serve."""

from __future__ import annotations

import argparse
import io
import os
import socket
import sys
import threading
from pathlib import Path

from nnbridge import devices as device_list
from nnbridge.devices.device import require_driver
from nnbridge.devices.remote.server import refuse_session, serve, serve_session
from nnbridge.errors import NnbridgeError, shortage_of


def main() -> None:
    """Serve one session, or every client of a listening socket for as long as the parent lives."""
    try:
        _serve()
    except (MemoryError, RuntimeError, OSError) as error:
        short = "not enough memory" if isinstance(error, MemoryError) else shortage_of(error)
        if short is None:
            raise
        sys.exit(f"nnbridge: {short}")


def _serve() -> None:
    parser = argparse.ArgumentParser(prog="python -m nnbridge.devices.remote")
    parser.add_argument("device")
    parser.add_argument("--session", type=int, help="descriptor of a connected socket")
    parser.add_argument("--listen", type=int, help="descriptor of a listening socket")
    parser.add_argument("--parent", type=int, help="descriptor that ends with the parent process")
    parser.add_argument("--path", type=Path, help="socket file to remove if the parent ends first")
    arguments = parser.parse_args()
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)  # What a driver prints is seen when it prints it, and if it is killed.
    try:
        device = device_list.device(arguments.device)
        if device.before_nnapi:
            require_driver(device, "a separate process")
    except NnbridgeError as error:
        if arguments.session is None:
            sys.exit(f"nnbridge: {error}")
        refuse_session(error.reason, socket.socket(fileno=arguments.session))
        sys.exit(1)
    if arguments.session is not None:
        serve_session(device, socket.socket(fileno=arguments.session))
    else:
        threading.Thread(target=_end_with, args=(arguments.parent, arguments.path), daemon=True).start()
        serve(device, socket.socket(fileno=arguments.listen))
    # Kernels that still run must not keep a process alive that no one listens to.
    os._exit(0)


def _end_with(parent: int, path: Path | None) -> None:
    """End as soon as the parent has ended, however it ended."""
    while os.read(parent, 1):
        pass
    if path is not None:
        path.unlink(missing_ok=True)
    os._exit(0)


if __name__ == "__main__":
    main()
