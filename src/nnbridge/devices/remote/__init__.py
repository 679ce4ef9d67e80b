"""Drivers in other processes: models and buffers in shared memory, calls over a local socket.

``process:NAME`` starts the driver NAME in a separate process and starts it again when it has died; ``socket:PATH`` talks
to one that ``nnbridge devices serve NAME --socket PATH`` serves. What is shared is anonymous memory (``memfd``) whose
descriptors travel with the calls, so that no files remain however a process ends.
"""

from __future__ import annotations

from nnbridge.devices.remote.client import RemoteDevice

__all__ = ["RemoteDevice"]
