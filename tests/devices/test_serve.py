"""Serving a driver: every call is validated, clients are apart, and sockets come and go."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nnbridge.devices.device import CacheFiles, Support
from nnbridge.devices.remote import server, wire
from nnbridge.devices.remote.client import RemoteDevice
from nnbridge.devices.remote.server import serve, serve_session
from nnbridge.devices.remote.wire import (
    MAX_CHANNELS,
    MAX_MESSAGE,
    Channel,
    Message,
    ModelMemory,
    OwnedBlock,
    cache_files,
    cache_memory,
    to_capabilities,
    to_extension,
)
from nnbridge.errors import DeadObjectError, InputError, OpFailedError, Reason
from nnbridge.model import Model
from nnbridge.runtime.compilation import Compilation
from nnbridge.runtime.execution import Execution
from nnbridge.types import PreferenceCode, PriorityCode, ResultCode
from tests.graphs import add_then
from tests.runtime.drivers import Driver

X = np.array([[-1, 0, 1, 2]], np.float32)
BAD_DATA = int(ResultCode.BAD_DATA)


def connected(driver: Driver) -> Channel:
    """A client's end of a session with a driver in this process."""
    ours, theirs = socket.socketpair()
    threading.Thread(target=serve_session, args=(driver, theirs), daemon=True).start()
    return Channel(ours)


@pytest.fixture
def channel() -> Iterator[Channel]:
    found = connected(Driver("served"))
    yield found
    found.shutdown()


def call(channel: Channel, name: str, descriptors: tuple[int, ...] = (), **message: Any) -> Message:
    channel.send({"call": name, **message}, descriptors)
    return channel.receive(time.monotonic() + 10)[0]


def prepared(channel: Channel) -> int:
    with ModelMemory(add_then()) as file:
        answer = call(channel, "prepare", (file,), preference=PreferenceCode.LOW_POWER, priority=PriorityCode.LOW)
    return int(answer["handle"])


# -- validation of calls -----------------------------------------------------------------------------------------------


def test_a_call_by_hand_computes(channel: Channel) -> None:
    handle, block = prepared(channel), OwnedBlock(128)
    block.bytes[:16] = X.reshape(-1).view(np.uint8)
    answer = call(channel, "execute", (block.descriptor,), handle=handle, inputs=[[0, 16, [1, 4]]], outputs=[[64, 16, [1, 4]]])
    assert answer["code"] == 0
    assert answer["shapes"] == [[[1, 4], True]]
    assert block.bytes[64:80].view(np.float32).tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(
    "wrong",
    [
        {"handle": 77},
        {"handle": "1"},
        {"inputs": []},
        {"inputs": "none"},
        {"inputs": [[0, 16]]},
        {"inputs": [[4090, 16, [1, 4]]]},
        {"inputs": [[-16, 16, [1, 4]]]},
        {"inputs": [[2, 16, [1, 4]]]},
        {"inputs": [[0, 12, [1, 4]]]},
        {"inputs": [[0, 16, [4, 1]]]},
        {"inputs": [[0, 0, []]]},
        {"inputs": [[0, 16, [1, 4.0]]]},
        {"outputs": [[2**62, 2**62, [1, 4]]]},
        {"outputs": [[64, 16, [2, 4]]]},
        {"outputs": []},
        {"deadline": "now"},
        {"loop_timeout": -1},
        {"release": [-1]},
    ],
    ids=str,
)
def test_wrong_arguments_of_execute_are_bad_data(channel: Channel, wrong: Message) -> None:
    handle, block = prepared(channel), OwnedBlock(128)
    right = {"handle": handle, "inputs": [[0, 16, [1, 4]]], "outputs": [[64, 16, [1, 4]]]}
    assert call(channel, "execute", (block.descriptor,), **{**right, **wrong})["code"] == BAD_DATA
    assert call(channel, "execute", (block.descriptor,), **right)["code"] == 0  # and the driver lives on


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=8,
)
_FIELDS = ("handle", "inputs", "outputs", "deadline", "loop_timeout", "release")


@given(st.dictionaries(st.sampled_from(_FIELDS), _JSON, min_size=1))
@settings(max_examples=80, deadline=None)
def test_nonsense_in_execute_is_answered_with_an_error(wrong: Message) -> None:
    channel = connected(Driver("served"))
    handle, block = prepared(channel), OwnedBlock(128)
    right = {"handle": handle, "inputs": [[0, 16, [1, 4]]], "outputs": [[64, 16, [1, 4]]]}
    answer = call(channel, "execute", (block.descriptor,), **{**right, **wrong})
    assert ResultCode(answer["code"]) is not ResultCode.DEAD_OBJECT
    assert prepared(channel) == handle + 1  # and the driver lives on
    channel.shutdown()


def test_an_execution_needs_memory(channel: Channel) -> None:
    handle = prepared(channel)
    assert call(channel, "execute", handle=handle, inputs=[None], outputs=[None])["code"] == BAD_DATA


def test_memory_of_no_bytes_is_bad_data_and_its_descriptor_is_closed_once(channel: Channel) -> None:
    empty = memory_of(b"", fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
    for _ in range(3):  # a descriptor that is closed twice ends the session
        assert call(channel, "execute", (empty,), handle=1, inputs=[], outputs=[])["code"] == BAD_DATA
    os.close(empty)
    assert prepared(channel) == 1


@pytest.mark.parametrize("wrong", [{"preference": 3}, {"preference": "fast"}, {"priority": 101}, {"deadline": -5}], ids=str)
def test_wrong_arguments_of_prepare_are_bad_data(channel: Channel, wrong: Message) -> None:
    right = {"preference": 1, "priority": 100}
    with ModelMemory(add_then()) as file:
        assert call(channel, "prepare", (file,), **{**right, **wrong})["code"] == BAD_DATA


@pytest.mark.parametrize(
    "wrong", [{"token": "00"}, {"token": 5}, {"hints": 5}, {"hints": [["a", -1, "00"]]}, {"hints": [[1]]}], ids=str
)
def test_wrong_tokens_and_attributes_are_bad_data(channel: Channel, wrong: Message) -> None:
    with ModelMemory(add_then()) as file:
        assert call(channel, "prepare", (file,), preference=1, priority=100, **wrong)["code"] == BAD_DATA


def test_attributes_need_the_memory_of_their_values(channel: Channel) -> None:
    with ModelMemory(add_then()) as file, pytest.raises(EOFError):
        call(channel, "prepare", (file,), preference=1, priority=100, hints=[["a", 1, 2], ["b", 1, 2]])


def test_a_message_beyond_the_limit_is_not_read(channel: Channel) -> None:
    channel.socket.sendall(struct.pack("<II", MAX_MESSAGE + 1, 0))
    with pytest.raises((EOFError, OSError)):
        channel.receive(time.monotonic() + 10)


def test_an_answer_that_would_be_too_large_is_op_failed_and_the_driver_lives_on() -> None:
    class Talks(Driver):
        def supported_operations(self, model: Model) -> list[Support]:
            return [Reason("x" * MAX_MESSAGE)]

    channel = connected(Talks("talks"))
    with ModelMemory(add_then()) as file:
        assert call(channel, "supported_operations", (file,))["code"] == ResultCode.OP_FAILED
    assert call(channel, "describe")["name"] == "talks"


def test_a_call_that_would_be_too_large_is_op_failed_and_nothing_is_sent(channel: Channel) -> None:
    with pytest.raises(OpFailedError, match="a message of at most 4194304 bytes"):
        channel.send({"call": "x" * MAX_MESSAGE})
    assert call(channel, "describe")["name"] == "served"


def test_an_answer_that_takes_too_long_to_read_is_late(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = socket.socketpair()
    Channel(theirs).send({"code": 0})
    until = time.monotonic() + 1
    loads = json.loads
    monkeypatch.setattr(json, "loads", lambda text: (time.sleep(1.1), loads(text))[1])
    with pytest.raises(TimeoutError):
        Channel(ours).receive(until)


def test_a_driver_without_a_cache_refuses_to_prepare_from_one(channel: Channel) -> None:
    memory, lengths = cache_memory(CacheFiles((b"one", b""), (b"three",)))
    assert call(channel, "prepare_from_cache", (memory,), cache=lengths, token="00" * 32)["code"] == ResultCode.OP_FAILED
    for wrong in ({"model": [3, 0], "data": [4]}, {"model": [8]}, {"model": [-1, 9], "data": []}, [8], None):
        with pytest.raises(EOFError):
            call(connected(Driver("served")), "prepare_from_cache", (memory,), cache=wrong, token="00" * 32)
    os.close(memory)


def test_cache_files_travel_as_they_are() -> None:
    files = CacheFiles((b"one", b""), (b"three",))
    memory, lengths = cache_memory(files)
    assert cache_files(memory, lengths) == files
    os.close(memory)


def memory_of(content: bytes, seals: int) -> int:
    descriptor = os.memfd_create("test", os.MFD_ALLOW_SEALING)
    os.write(descriptor, content)
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, seals)
    return descriptor


def test_a_model_that_does_not_hold_together_is_bad_data(channel: Channel) -> None:
    with ModelMemory(add_then()) as file:
        content = bytearray(os.pread(file, 1 << 20, 0))
    content[40:60] = b"\xff" * 20
    wrong = memory_of(bytes(content), fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE)
    assert call(channel, "supported_operations", (wrong,))["code"] == BAD_DATA
    os.close(wrong)


@pytest.mark.parametrize("kind", ["supported_operations", "prepare"])
def test_memory_that_its_owner_may_still_change_ends_the_session(channel: Channel, kind: str) -> None:
    unsealed = memory_of(b"x" * 100, 0)
    with pytest.raises(EOFError):
        call(channel, kind, (unsealed,))
    os.close(unsealed)


def test_what_makes_no_sense_ends_the_session_of_that_client_alone() -> None:
    driver = Driver("served")
    first, second = connected(driver), connected(driver)
    with pytest.raises(EOFError):
        call(first, "format_disk")
    first = connected(driver)
    first.socket.sendall(b"GET / HTTP/1.1\r\n\r\n")
    with pytest.raises((EOFError, OSError)):
        first.receive(time.monotonic() + 10)
    assert call(second, "describe")["name"] == "served"


@given(st.binary(min_size=1, max_size=64))
@settings(max_examples=60, deadline=None)
def test_any_bytes_end_their_session_at_most(sent: bytes) -> None:
    driver = Driver("served")
    wild, other = connected(driver), connected(driver)
    wild.socket.sendall(sent)
    wild.socket.shutdown(socket.SHUT_WR)
    with pytest.raises((EOFError, OSError)):
        wild.receive(time.monotonic() + 10)
    assert call(other, "describe")["name"] == "served"
    other.shutdown()


def test_descriptors_of_the_wrong_kind_end_the_session_and_stay_nobodys() -> None:
    before = len(os.listdir("/proc/self/fd"))
    for name in ("open", "execute", "supported_operations"):
        channel = connected(Driver("served"))
        with open(os.devnull, "rb") as wrong, pytest.raises(EOFError):
            call(channel, name, (wrong.fileno(),), handle=1, inputs=[], outputs=[])
        channel.socket.close()
    for _ in range(100):
        if len(os.listdir("/proc/self/fd")) <= before:
            break
        time.sleep(0.02)
    assert len(os.listdir("/proc/self/fd")) <= before


_HEAD = struct.pack("<II", 400, 0)
LINGERING = {
    "nothing": [],
    "a byte": [b"\x20"],
    "half a header": [_HEAD[:5]],
    "a header": [_HEAD],
    "half a message": [_HEAD, b'{"call": "des'],
    "a byte at a time": [_HEAD, *[b"{"] * 300],
    "half a second message": [struct.pack("<II", 19, 0) + b'{"call":"describe"}', _HEAD],
}
"""The parts that a client sends, one after another, and then no more; it stays connected."""


@pytest.mark.parametrize("parts", LINGERING.values(), ids=LINGERING)
def test_who_sends_half_a_message_holds_no_place(monkeypatch: pytest.MonkeyPatch, parts: list[bytes]) -> None:
    monkeypatch.setattr(wire, "_SEND_TIMEOUT", 0.3)
    monkeypatch.setattr(server, "_FIRST_CALL", 0.3)
    ours, theirs = socket.socketpair()
    session = threading.Thread(target=serve_session, args=(Driver("served"), theirs), daemon=True)
    session.start()
    try:
        for part in parts:
            ours.sendall(part)
            time.sleep(0.05 if len(parts) > 9 else 0)
            if not session.is_alive():
                break
    except OSError:  # It has ended in the meantime.
        pass
    session.join(10)
    assert not session.is_alive()
    ours.close()


def test_a_client_that_has_asked_once_may_be_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "_SEND_TIMEOUT", 0.2)
    monkeypatch.setattr(server, "_FIRST_CALL", 0.2)
    channel = connected(Driver("served"))
    assert call(channel, "describe")["name"] == "served"
    time.sleep(0.5)
    assert call(channel, "describe")["name"] == "served"


def test_a_client_that_reads_no_answers_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "_SEND_TIMEOUT", 0.3)
    ours, theirs = socket.socketpair()
    session = threading.Thread(target=serve_session, args=(Driver("served"), theirs), daemon=True)
    session.start()
    ours.settimeout(5)
    with suppress(OSError):
        while session.is_alive():
            ours.sendall(struct.pack("<II", 19, 0) + b'{"call":"describe"}')
    session.join(10)
    assert not session.is_alive()
    ours.close()


@pytest.mark.parametrize("part", [b"[],", b"{},", b"[[]],", b'{"":[]},', b'[{"a":[]}],'])
def test_a_message_of_little_else_than_empty_lists_ends_the_session(channel: Channel, part: bytes) -> None:
    body = b'{"call":"describe","release":[' + part * ((MAX_MESSAGE - 100) // len(part)) + b"0]}"
    with suppress(OSError):
        channel.socket.sendall(struct.pack("<II", len(body), 0) + body)
    with pytest.raises((EOFError, OSError)):
        channel.receive(time.monotonic() + 20)


def test_clients_cannot_name_each_others_models() -> None:
    driver = Driver("served")
    first, second = connected(driver), connected(driver)
    handle = prepared(first)
    answer = call(second, "execute", handle=handle, inputs=[None], outputs=[None])
    assert answer["code"] == BAD_DATA
    assert "this client" in answer["reason"]["rule"]


def test_a_released_model_is_gone(channel: Channel) -> None:
    handle, block = prepared(channel), OwnedBlock(128)
    right: Message = {"handle": handle, "inputs": [[0, 16, [1, 4]]], "outputs": [[64, 16, [1, 4]]]}
    answer = call(channel, "execute", (block.descriptor,), release=[handle], **right)
    assert answer["code"] == BAD_DATA


class Listener:
    """A listening socket whose ``accept`` fails so often with this error."""

    def __init__(self, error: int, times: int = 3) -> None:
        self.errors = [OSError(error, os.strerror(error))] * times
        self.ours, self.theirs = socket.socketpair()

    def accept(self) -> tuple[socket.socket, str]:
        if self.errors:
            raise self.errors.pop()
        if self.theirs.fileno() < 0:
            raise OSError(errno.EBADF, "closed")
        connection, self.theirs = self.theirs, socket.socket()
        self.theirs.close()
        return connection, ""


@pytest.mark.parametrize("error", [errno.EMFILE, errno.ENFILE, errno.ECONNABORTED, errno.EINTR])
def test_a_server_without_descriptors_waits_until_it_has_some(error: int) -> None:
    listener = Listener(error)
    serve(Driver("served"), listener)  # type: ignore[arg-type]
    assert call(Channel(listener.ours), "describe")["name"] == "served"


def test_a_crowded_server_lets_new_clients_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    crowded = [True, True, False]
    monkeypatch.setattr(server, "_is_crowded", lambda: crowded.pop(0) if crowded else False)
    listener = Listener(0, 0)
    serve(Driver("served"), listener)  # type: ignore[arg-type]
    assert crowded == []
    assert call(Channel(listener.ours), "describe")["name"] == "served"


def test_clients_of_another_user_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    listener = Listener(0, 0)
    monkeypatch.setattr(os, "getuid", lambda: 65534)
    serve(Driver("served"), listener)  # type: ignore[arg-type]
    with pytest.raises((EOFError, OSError)):
        call(Channel(listener.ours), "describe")


def test_a_client_has_a_limited_number_of_channels_and_lives_on(channel: Channel) -> None:
    ours, answers = [], []
    for _ in range(MAX_CHANNELS + 1):
        mine, theirs = socket.socketpair()
        ours.append(mine)
        with theirs:
            answers.append(call(channel, "open", (theirs.fileno(),)))
    assert answers[:-1] == [{}] * MAX_CHANNELS
    assert answers[-1]["code"] == ResultCode.RESOURCE_EXHAUSTED_TRANSIENT
    assert prepared(channel) == 1


def test_a_client_holds_a_quarter_of_the_descriptors_at_most(channel: Channel, monkeypatch: pytest.MonkeyPatch) -> None:
    limit = 4 * len(os.listdir("/proc/self/fd"))
    monkeypatch.setattr(server, "limit_of_descriptors", lambda: limit)
    answers = []
    with ModelMemory(add_then()) as file:
        for _ in range(limit):
            answers.append(call(channel, "prepare", (file,), preference=1, priority=100))
            if "code" in answers[-1]:
                break
    assert answers[-1]["code"] == ResultCode.RESOURCE_EXHAUSTED_TRANSIENT
    assert limit // 4 <= len(answers) <= limit // 4 + 2


# -- a hostile driver --------------------------------------------------------------------------------------------------

DESCRIPTION: Message = {
    "name": "hostile",
    "version": "1",
    "feature_level": 8,
    "type": 4,
    "extensions": [],
    "cache_files": [0, 0],
    "capabilities": {
        "operands": {"3": [0.5, 0.5]},
        "relaxed_scalar": [1, 1],
        "relaxed_tensor": [1, 1],
        "if_performance": [1, 1],
        "while_performance": [1, 1],
    },
}


def hostile(**answers: Any) -> RemoteDevice:
    """A driver that answers calls with these, whatever they ask."""

    def answer(channel: Channel) -> None:
        while True:
            try:
                message, descriptors = channel.receive()
            except (EOFError, OSError):
                return
            if message["call"] == "open":
                line = Channel(socket.socket(fileno=descriptors[0]))
                threading.Thread(target=answer, args=(line,), daemon=True).start()
            said = {"describe": DESCRIPTION, "open": {}, **answers}[message["call"]]
            if isinstance(said, bytes):
                channel.socket.sendall(said)
            else:
                channel.send(said)

    def start() -> tuple[socket.socket, None]:
        ours, theirs = socket.socketpair()
        threading.Thread(target=answer, args=(Channel(theirs),), daemon=True).start()
        return ours, None

    return RemoteDevice("hostile", start)


@pytest.mark.parametrize(
    "wrong",
    [
        {"feature_level": float("inf")},
        {"feature_level": float("nan")},
        {"feature_level": "9" * 5000},
        {"cache_files": [float("inf"), 0]},
        {"cache_files": [0]},
        {"type": 77},
        {"capabilities": {**DESCRIPTION["capabilities"], "relaxed_scalar": [10**400, 1]}},
        {"capabilities": {**DESCRIPTION["capabilities"], "operands": [1]}},
        {"extensions": [{"name": "a.b", "operand_types": [[1, 1, float("inf"), "x", None]]}]},
        {"extensions": [[]]},
        {"refused": [1]},
    ],
    ids=str,
)
def test_a_driver_that_describes_itself_wrongly_is_an_input_error(wrong: Message) -> None:
    with pytest.raises(InputError, match="a driver that describes itself"):
        hostile(describe={**DESCRIPTION, **wrong})


@pytest.mark.parametrize("said", [{}, {"answers": 3}, {"answers": [1, 2, 3]}, {"answers": [True, True]}], ids=str)
def test_wrong_answers_of_get_supported_operations_support_nothing(said: Message) -> None:
    compilation = Compilation.create(add_then(), [hostile(supported_operations=said)])
    assert compilation.finish().device_of(0).kind == "cpu"


@pytest.mark.parametrize(
    "said",
    [
        {},
        {"code": 0, "shapes": [[[1, 5], True]]},
        {"code": 0, "shapes": [[[-1], True]]},
        {"code": 0, "shapes": 5},
        {"code": 0, "shapes": [[[1, 4], False]]},
        {"code": 0, "shapes": [[[1, 4], True]] * 2},
        {"code": 9999},
        {"code": "good"},
    ],
    ids=str,
)
def test_wrong_answers_of_execute_are_op_failed(said: Message) -> None:
    device = hostile(supported_operations={"answers": [True]}, prepare={"handle": 1}, execute=said)
    compilation = Compilation.create_for_devices(add_then(), [device])
    compilation.finish()
    with pytest.raises(OpFailedError):
        Execution(compilation).run([X])


@pytest.mark.parametrize("said", [b"\xff" * 8, b"\x02\0\0\0\0\0\0\0hi", b"\x02\0\0\0\0\0\0\0[]", b"\x02\0\0\0\1\0\0\0{}"])
def test_a_driver_that_speaks_another_language_is_dead(said: bytes) -> None:
    device = hostile(supported_operations={"answers": [True]}, prepare={"handle": 1}, execute=said)
    compilation = Compilation.create_for_devices(add_then(), [device])
    compilation.finish()
    with pytest.raises(DeadObjectError, match="answers of a driver"):
        Execution(compilation).run([X])


@pytest.mark.parametrize("reason", [[1], "no object"])
def test_an_error_whose_reason_is_none_is_op_failed(reason: object) -> None:
    device = hostile(supported_operations={"code": 4, "reason": reason})
    with pytest.raises(OpFailedError, match="a reason that is not an object"):
        device.supported_operations(add_then())


@pytest.mark.parametrize("handle", [None, "1", [1]])
def test_a_prepared_model_without_a_handle_is_op_failed(handle: object) -> None:
    device = hostile(supported_operations={"answers": [True]}, prepare={"handle": handle})
    with pytest.raises(OpFailedError):
        Compilation.create_for_devices(add_then(), [device]).finish()


@pytest.mark.parametrize("read", [to_capabilities, to_extension])
@pytest.mark.parametrize("data", [{}, {"operands": {"x": [1, 1]}}, {"operands": 3}, {"operand_types": [[1]], "name": "a.b"}])
def test_descriptions_are_checked(read: Any, data: Message) -> None:
    with pytest.raises(Exception, match=r"no capabilities|no extension"):
        read(data)
