"""Wrong caches of drivers in other processes leave no descriptor behind, on neither side."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
import pytest

from nnbridge.devices.cpu import CpuPreparedModel
from nnbridge.devices.device import CacheFiles, PreparedModel, PrepareModelConfig
from nnbridge.devices.remote import server
from nnbridge.devices.remote.client import RemoteDevice
from nnbridge.devices.remote.server import serve_session
from nnbridge.devices.remote.system import close_all, send_descriptors
from nnbridge.devices.remote.wire import Channel, Message, ModelMemory, cache_memory
from nnbridge.errors import NnapiError
from nnbridge.model import Model
from tests.devices.test_serve import DESCRIPTION
from tests.graphs import add_then, constant_add
from tests.runtime.drivers import Driver

FILES = CacheFiles((b"one", b""), (b"three",))
LENGTHS: Message = {"model": [3, 0], "data": [5]}
TIMES = 50


def open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def left_above(limit: int) -> int:
    """The number of descriptors beyond a number, once threads that end have closed theirs."""
    until = time.monotonic() + 2
    while open_descriptors() > limit and time.monotonic() < until:
        time.sleep(0.02)
    return max(0, open_descriptors() - limit)


# -- a driver that lies to nnbridge ------------------------------------------------------------------------------------


def memory() -> int:
    return cache_memory(FILES)[0]


def memory_that_may_change() -> int:
    made = os.memfd_create("test")
    os.write(made, b"onethree")
    return made


def pipe() -> int:
    ours, theirs = os.pipe()
    os.close(ours)
    return theirs


Lie = tuple[Message | bytes, list[Callable[[], int]]]
"""An answer to ``prepare``, or the bytes with which it breaks off, and its descriptors."""
LIES: dict[str, Lie] = {
    "no descriptor": ({"handle": 1, "cache": LENGTHS}, []),
    "two descriptors": ({"handle": 1, "cache": LENGTHS}, [memory, memory]),
    "more descriptors than are read": ({"handle": 1, "cache": LENGTHS}, [memory] * 9),
    "a descriptor of nothing": ({"handle": 1}, [memory]),
    "no lengths": ({"handle": 1, "cache": [8]}, [memory]),
    "wrong lengths": ({"handle": 1, "cache": {"model": [3, 0], "data": [6]}}, [memory]),
    "lengths that are no numbers": ({"handle": 1, "cache": {"model": [3.0, "0"], "data": [None]}}, [memory]),
    "too many files": ({"handle": 1, "cache": {"model": [8], "data": [0] * 100}}, [memory]),
    "memory that may change": ({"handle": 1, "cache": LENGTHS}, [memory_that_may_change]),
    "a pipe": ({"handle": 1, "cache": LENGTHS}, [pipe]),
    "no handle": ({"handle": "1", "cache": LENGTHS}, [memory]),
    "an error": ({"code": 4, "reason": None, "cache": LENGTHS}, [memory]),
    "an error without sense": ({"code": 4, "reason": 3, "cache": LENGTHS}, [memory]),
    "files that cannot be saved": ({"handle": 1, "cache": LENGTHS}, [memory]),
    "an end within the length": (b"\xff\0\0", [memory]),
    "an end within the message": (b"\xff\0\0\0\1\0\0\0{", [memory]),
}


def lying(said: Message | bytes, made: list[Callable[[], int]]) -> RemoteDevice:
    """A driver that answers ``prepare`` so. It closes what it has when its client goes."""

    def tell(connection: socket.socket) -> None:
        opened = [make() for make in made]
        try:
            if isinstance(said, bytes):
                send_descriptors(connection, said, opened)
                connection.shutdown(socket.SHUT_RDWR)
            else:
                Channel(connection).send(said, opened)
        finally:
            close_all(opened)

    def answer(connection: socket.socket) -> None:
        with suppress(EOFError, OSError), connection:
            while True:
                message, received = Channel(connection).receive()
                if message["call"] == "open":
                    start_answering(socket.socket(fileno=received.pop()))
                close_all(received)
                if message["call"] == "prepare":
                    tell(connection)
                else:
                    Channel(connection).send({"describe": DESCRIPTION, "open": {}}[message["call"]])

    def start_answering(connection: socket.socket) -> None:
        threading.Thread(target=answer, args=(connection,), daemon=True).start()

    def start() -> tuple[socket.socket, None]:
        ours, theirs = socket.socketpair()
        start_answering(theirs)
        return ours, None

    return RemoteDevice("lying", start)


def refuse(files: CacheFiles) -> None:
    raise NnapiError(f"no room for {len(files.model)} files")


@pytest.mark.parametrize("lie", LIES)
def test_nnbridge_keeps_no_descriptor_of_a_wrong_answer(lie: str) -> None:
    before, model = open_descriptors(), add_then()
    device = lying(*LIES[lie])
    for _ in range(TIMES):
        with suppress(NnapiError):
            device.prepare_model_with_config(model, PrepareModelConfig(save=refuse))
    device.close()
    assert left_above(before + 8) == 0  # those of a session


# -- a driver that lies to its own process -----------------------------------------------------------------------------


class Saving(Driver):
    """Saves what it is told to, whatever that is."""

    def __init__(self, saved: Any, *, prepares: bool) -> None:
        super().__init__("saving")
        self.saved, self.prepares = saved, prepares

    def prepare_model_with_config(self, model: Model, config: PrepareModelConfig) -> PreparedModel:
        assert config.save is not None
        config.save(self.saved)
        return CpuPreparedModel(model) if self.prepares else None  # type: ignore[return-value]


WRONG: dict[str, Saving] = {
    "no files": Saving(None, prepares=True),
    "numbers": Saving(CacheFiles((3,), ()), prepares=True),  # type: ignore[arg-type]
    "texts": Saving(CacheFiles(("one",), ()), prepares=True),  # type: ignore[arg-type]
    "files without a prepared model": Saving(FILES, prepares=False),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_drivers_process_keeps_nothing_of_a_model_whose_cache_is_wrong(wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server.LOG, "disabled", True)  # Who stores records stores their frames, which hold descriptors.
    before, model = open_descriptors(), constant_add(np.ones(1000, np.float32))
    ours, theirs = socket.socketpair()
    threading.Thread(target=serve_session, args=(WRONG[wrong], theirs), daemon=True).start()
    with ours:
        channel = Channel(ours)
        for _ in range(TIMES):
            with ModelMemory(model) as file:
                channel.send({"call": "prepare", "preference": 1, "priority": 100, "token": "00" * 32, "save": True}, (file,))
            answer, received = channel.receive()
            close_all(received)
            assert "handle" not in answer
        assert left_above(before + 8) == 0  # those of a session
