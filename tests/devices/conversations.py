"""Conversations with drivers' processes as bytes: what a client or a driver sends, line by line, read by the real other side.

The first line names who sends: ``client`` or ``driver``. Each further line is one message: letters for its descriptors (`KINDS`),
then JSON. Any bytes make a conversation, so that a fuzzer can change them.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import struct
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache

import numpy as np

from nnbridge.devices.device import (
    CacheFiles,
    Capabilities,
    Device,
    OutputBuffer,
    OutputShape,
    PreparedModel,
    PrepareModelConfig,
    Request,
    Result,
)
from nnbridge.devices.remote import server
from nnbridge.devices.remote.client import RemoteDevice
from nnbridge.devices.remote.server import serve_session
from nnbridge.devices.remote.system import ProtocolError, close_all, send_descriptors
from nnbridge.devices.remote.wire import Channel, ModelMemory, OwnedBlock, cache_memory, from_hints
from nnbridge.errors import NnbridgeError, Reason
from nnbridge.extensions import Extension, ExtensionOperandType
from nnbridge.types import OperationCode, ResultCode
from tests.graphs import unary_chain

MODEL = unary_chain(OperationCode.ABS, OperationCode.RELU)
FILES = CacheFiles((memoryview(b"model"),), (memoryview(b"data"), memoryview(b"")))
HINTS = (("com.example.hint", 1, b"\1\0\0\0"), ("com.example.hint", 2, b""))
MESSAGES = 16
"""At most, of a conversation: their answers fit into a socket's buffer."""


class _Driver(Device):
    """Computes nothing, but uses all parts of the protocol."""

    name = "com.example-driver"
    capabilities = Capabilities()

    def supported_extensions(self) -> Sequence[Extension]:
        return [Extension("com.example.hint", (ExtensionOperandType(1, True, 4, "WORDS", "<u4"),))]

    def supported_operations(self, model: object) -> Sequence[Reason | bool]:
        return [Reason("a filter of 1", "3", "ABS"), True]

    def number_of_cache_files_needed(self) -> tuple[int, int]:
        return 1, 2

    def prepare_model_with_config(self, model: object, config: PrepareModelConfig) -> PreparedModel:
        if config.save is not None:
            config.save(FILES)
        return _Prepared()

    def prepare_model_from_cache(self, files: CacheFiles, token: bytes, deadline: int | None = None) -> PreparedModel:
        return _Prepared()


class _Prepared(PreparedModel):
    def execute(self, request: Request) -> Result:
        for buffer in request.outputs:
            if buffer.data is not None:
                buffer.data[:] = sum(value.size > 1 for value in request.inputs if value is not None)
        return Result(ResultCode.NO_ERROR, tuple(OutputShape(b.dims) for b in request.outputs), None, 5, 9)


_MEMORY, _BLOCK = ModelMemory(MODEL), OwnedBlock(4096)


@cache
def _kept(kind: str) -> int:
    """A descriptor of a kind, for as long as the process lives."""
    made: dict[str, Callable[[], int]] = {
        "M": lambda: _MEMORY.descriptor,
        "S": lambda: _BLOCK.descriptor,
        "C": lambda: cache_memory(FILES)[0],
        "A": lambda: from_hints(HINTS)[1][0],
        "E": lambda: cache_memory(CacheFiles((memoryview(b""),), ()))[0],
        "F": lambda: os.open(__file__, os.O_RDONLY),
        "P": lambda: os.pipe()[0],
    }
    return made[kind]()


KINDS = "MSCAEFPK"
"""A model, an execution's memory, cache files, attributes; empty memory, a file, a pipe, and a socket that is closed at once."""


def _send(connection: socket.socket, line: bytes) -> None:
    """Send a line's message; ``x`` among its letters makes its length one too many, ``y`` the number of its descriptors.

    EOFError after a length that is wrong: the sender ends there.
    """
    letters = line[: max(0, line.find(b"{"))].decode("latin-1")
    body = line[len(letters) :]
    opened: list[int] = []
    for letter in letters[:8]:
        if letter == "K":
            pair = socket.socketpair()
            pair[0].close()
            opened.append(pair[1].detach())
        elif letter in KINDS:
            opened.append(os.dup(_kept(letter)))
    data = struct.pack("<II", len(body) + ("x" in letters), len(opened) + ("y" in letters)) + body
    try:
        sent = send_descriptors(connection, data, opened) if opened else 0
        connection.sendall(data[sent:])
    finally:
        close_all(opened)
    if "x" in letters:
        raise EOFError


class _Failures(logging.Handler):
    """The failures that the server reports of its driver, which has none."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.found.append(self.format(record))


def hold(content: bytes) -> None:
    """Hold a conversation; errors that are not nnbridge's own come out, an AssertionError for those that the server reports."""
    first, *lines = content[: 1 << 15].split(b"\n")[: MESSAGES + 1]
    failures = _Failures()
    server.LOG.addHandler(failures)
    server.LOG.propagate = False  # Who stores records stores errors with them, whose frames hold descriptors.
    try:
        (_with_server if first.startswith(b"client") else _with_client)(lines)
    finally:
        server.LOG.propagate = True
        server.LOG.removeHandler(failures)
    assert not failures.found, failures.found[0]


def _with_server(lines: Sequence[bytes]) -> None:
    ours, theirs = socket.socketpair()
    with ours:
        with suppress(EOFError):
            for line in lines:
                _send(ours, line)
        ours.shutdown(socket.SHUT_WR)
        serve_session(_Driver(), theirs)


def _with_client(lines: Sequence[bytes]) -> None:
    """All calls of a client, answered by one line each: the description, the further channel, then the calls."""
    ours, theirs = socket.socketpair()
    answers = threading.Thread(target=_answer, args=(theirs, list(lines)), daemon=True)
    answers.start()
    connections = [ours]

    def start() -> tuple[socket.socket, None]:
        if not connections:
            raise ConnectionRefusedError("ended")
        return connections.pop(), None

    try:
        with suppress(NnbridgeError):
            device = RemoteDevice("com.example-driver", start)
            try:
                _call_all(device)
            finally:
                device.close()
    finally:
        ours.close()
        answers.join()


def _call_all(device: RemoteDevice) -> None:
    saved: list[CacheFiles] = []
    value, out = np.zeros((1, 4), np.float32), np.zeros(16, np.uint8)
    request = Request((value,), (OutputBuffer(out, (1, 4)),), hints=HINTS)
    calls: list[Callable[[], PreparedModel | object]] = [
        lambda: device.supported_operations(MODEL),
        lambda: device.uncertainties(MODEL),
        lambda: device.prepare_model_with_config(MODEL, PrepareModelConfig(save=saved.append, hints=HINTS)),
        lambda: device.prepare_model_from_cache(FILES, bytes(32)),
    ]
    for call in calls:
        with suppress(NnbridgeError):
            found = call()
            if isinstance(found, PreparedModel):
                found.execute(request)


def _answer(connection: socket.socket, lines: list[bytes]) -> None:
    """A driver that answers by lines, whatever it is asked; the connection that is opened goes on with them."""
    with suppress(OSError, EOFError, ProtocolError), connection:
        received, line = [], connection
        for answer in lines:
            message, descriptors = Channel(line).receive()
            if message["call"] == "open":
                received.append(socket.socket(fileno=descriptors.pop()))
            close_all(descriptors)
            _send(line, answer)
            line = received[-1] if received else line
        for further in received:
            further.close()


def _recorded() -> dict[str, list[bytes]]:
    """Both sides of a real conversation, by who sends: all calls of a client with the driver above."""
    sides: dict[str, list[bytes]] = {"client": [], "driver": []}
    letters = {"supported_operations": "M", "prepare": "MA", "prepare_from_cache": "C", "execute": "SA", "open": "K"}
    send = Channel.send

    def recording(channel: Channel, message: dict[str, object], descriptors: Sequence[int] = ()) -> None:
        side = "client" if "call" in message else "driver"
        kinds = letters.get(str(message.get("call")), "")[: len(descriptors)] if side == "client" else "C" * len(descriptors)
        kinds = "A" if message.get("call") == "execute" and len(descriptors) == 1 else kinds
        sides[side].append(kinds.encode() + json.dumps(message).encode())
        send(channel, message, descriptors)

    Channel.send = recording  # type: ignore[method-assign]
    try:
        ours, theirs = socket.socketpair()
        serving = threading.Thread(target=serve_session, args=(_Driver(), theirs), daemon=True)
        serving.start()
        device = RemoteDevice("com.example-driver", lambda: (ours, None))
        _call_all(device)
        device.close()
        serving.join()
    finally:
        Channel.send = send  # type: ignore[method-assign]
    return sides


def seeds() -> list[bytes]:
    """Both sides of a whole conversation, each call and each answer alone, and refusals."""
    sides = _recorded()
    client, driver = sides["client"], sides["driver"]
    described = driver[0]
    reason = json.dumps({"code": 4, "reason": Reason("a filter of 1", "3", "CONV_2D", "filter").as_dict()}).encode()
    calls = [line for line in client if b'"open"' not in line]
    wholes = [b"\n".join([b"client", *calls]), b"\n".join([b"driver", *driver])]
    return [
        *wholes,
        *(b"client\n" + line for line in client),
        *(b"\n".join([b"driver", described, b"{}", line]) for line in [*driver[2:], reason]),
        *(b"\n".join([b"driver", *driver[:at], reason, *driver[at:]]) for at in range(len(driver))),
        b'driver\n{"refused": ' + json.dumps(Reason("a driver", "none").as_dict()).encode() + b"}",
    ]
