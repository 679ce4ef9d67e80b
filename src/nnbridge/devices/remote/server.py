"""The driver's side: serves a device to clients, one session for each, and validates every call as NNAPI demands.

Sessions share the device and nothing else: no client can name what another prepared. When a client ends, its prepared
models are released.
"""

from __future__ import annotations

import errno
import logging
import math
import mmap
import os
import re
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from nnbridge.devices.device import (
    CacheFiles,
    Device,
    OutputBuffer,
    PreparedModel,
    PrepareModelConfig,
    Request,
    Result,
)
from nnbridge.devices.remote.system import (
    ProtocolError,
    close_all,
    limit_of_descriptors,
    open_descriptors,
    process_of_peer,
    sealed_size,
    this_user,
    user_of_peer,
)
from nnbridge.devices.remote.wire import (
    MAX_CHANNELS,
    Channel,
    Hints,
    Message,
    SharedBlock,
    cache_files,
    cache_memory,
    from_capabilities,
    from_extension,
    to_hints,
)
from nnbridge.errors import (
    BadDataError,
    ConversionError,
    NnapiError,
    OpFailedError,
    Reason,
    ResourceExhaustedTransientError,
    raised,
    shortage_of,
)
from nnbridge.extensions import operand_dtype
from nnbridge.model import Model, Operand, known
from nnbridge.operations.evaluate import merge_dims
from nnbridge.records import dataclass
from nnbridge.storage import read_model
from nnbridge.types import BYTE_SIZE_OF_CACHE_TOKEN, OperandCode, PreferenceCode, PriorityCode, is_extension

LOG = logging.getLogger(__name__)
_ELEMENT_TYPE = re.compile(r"[<|](f[248]|[iu][1248]|b1|V[1-9]\d{0,4})")
_TOKEN = re.compile(r"[0-9a-f]{64}")
MAX_PREPARED = 4096
"""Prepared models that one client may hold."""
MAX_SESSIONS, MAX_SESSIONS_OF_A_CLIENT = 256, 64
"""Connections that a served driver has at a time, each of which takes a thread, and how many of them one process may hold."""
_FIRST_CALL = 30.0
"""Seconds in which a client asks for the description: connections that only hold their place end."""
_PASSING_ERRORS = frozenset(
    {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.ECONNABORTED, errno.EINTR, errno.EPROTO, errno.EPERM}
)
"""Errors of ``accept`` that concern one connection or pass once others end."""
_PAUSE = 0.05
"""Seconds until a crowded server looks again."""


def _is_crowded() -> bool:
    """True where the clients together hold so many descriptors that the rest is left to the driver and to new sessions."""
    return open_descriptors() > limit_of_descriptors() * 3 // 4


@dataclass
class _Prepared:
    model: Model | None
    """What requests are checked against; None for a model from a cache."""
    prepared: PreparedModel


@dataclass
class _Session:
    """The state of one client."""

    device: Device
    models: dict[int, _Prepared] = field(default_factory=dict)
    channels: list[Channel] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)
    next_handle: int = 1
    last: tuple[tuple[int, int], Model, mmap.mmap] | None = None
    """The model that was received last, by the identity of its memory, whose content cannot change; mapped, it stays its own."""

    def model(self, descriptors: list[int]) -> Model:
        """The model of a call; a client usually sends it twice, for ``getSupportedOperations`` and ``prepareModel``."""
        status = os.fstat(_only(descriptors))
        identity, last = (status.st_dev, status.st_ino), self.last
        if last is not None and last[0] == identity:
            return last[1]
        model = _received_model(descriptors[0])
        self.last = identity, model, mmap.mmap(descriptors[0], 0, access=mmap.ACCESS_READ)
        return model

    def add(self, found: _Prepared) -> int:
        with self.lock:
            self._check_capacity(len(self.models) < MAX_PREPARED, f"at most {MAX_PREPARED} prepared models of a client")
            handle = self.next_handle
            self.next_handle += 1
            self.models[handle] = found
            return handle

    def open(self, connection: socket.socket) -> Channel:
        """A further channel."""
        with self.lock:
            self._check_capacity(len(self.channels) < MAX_CHANNELS, f"at most {MAX_CHANNELS} channels of a client")
            self.channels.append(Channel(connection))
            return self.channels[-1]

    def _check_capacity(self, allowed: bool, rule: str) -> None:
        """RESOURCE_EXHAUSTED_TRANSIENT beyond a client's limit, its quarter of all descriptors, or where all clients crowd."""
        if not allowed:
            raise ResourceExhaustedTransientError(Reason(rule, "more", self.device.name))
        # A channel has a socket and a mapping, each of which holds a descriptor; a model has a mapping.
        if 2 * len(self.channels) + len(self.models) > limit_of_descriptors() // 4 or _is_crowded():
            raise ResourceExhaustedTransientError(Reason("descriptors for another channel or model", "none", self.device.name))

    def close(self) -> None:
        with self.lock:
            self.models.clear()
            self.last = None
            for channel in self.channels:
                channel.shutdown()


def serve_session(device: Device, connection: socket.socket) -> None:
    """Serve one client until it closes its first connection."""
    session = _Session(device)
    try:
        _Worker(session, Channel(connection)).run(time.monotonic() + _FIRST_CALL)
    finally:
        session.close()


def refuse_session(why: Reason, connection: socket.socket) -> None:
    """Answer a client's first call, for the description, with the reason why there is no driver."""
    channel = Channel(connection)
    with suppress(EOFError, OSError, ProtocolError):
        channel.receive()
        channel.send({"refused": why.as_dict()})


def serve(device: Device, listener: socket.socket) -> None:
    """Serve every client of this user, until the listening socket is closed; while descriptors are scarce, new ones wait."""
    sessions = _Sessions(device)
    while True:
        if _is_crowded():
            time.sleep(_PAUSE)
            continue
        try:
            connection, _ = listener.accept()
        except OSError as error:
            if error.errno not in _PASSING_ERRORS:
                return
            time.sleep(_PAUSE)
            continue
        sessions.begin(connection)


class _Sessions:
    """The sessions of a served driver. What goes wrong with one connection ends that connection only."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._of: Counter[int] = Counter()
        self._said = ""
        self._lock = threading.Lock()

    def begin(self, connection: socket.socket) -> None:
        """Serve a client in a thread of its own, or close its connection."""
        try:
            why = self._refusal(connection)
            if why is not None:
                self._say(f"a client was refused: {why}")
                Channel(connection).send({"refused": why.as_dict()})
                connection.close()
        except Exception as error:
            self._say(f"a client's connection was closed: {shortage_of(error) or error}")
            connection.close()

    def _say(self, line: str) -> None:
        """A warning, once until another one: a client may try a thousand times."""
        if line != self._said:
            LOG.warning("%s: %s", self._device.name, line)
        self._said = line

    def _refusal(self, connection: socket.socket) -> Reason | None:
        """The reason why there is no session with the client; None for one that has begun."""
        user, process = user_of_peer(connection), process_of_peer(connection)
        if user != this_user():
            return Reason(f"a client of user {this_user()}, the only one that the driver serves", f"user {user}")
        with self._lock:
            if self._of[process] >= MAX_SESSIONS_OF_A_CLIENT or self._of.total() >= MAX_SESSIONS:
                limits = f"at most {MAX_SESSIONS_OF_A_CLIENT} connections of a process, and {MAX_SESSIONS} of all"
                return Reason(limits, "one more", self._device.name)
            self._of[process] += 1
        try:
            threading.Thread(target=self._serve, args=(connection, process), name="nnbridge-session", daemon=True).start()
        except BaseException:
            self._end(process)
            raise
        return None

    def _serve(self, connection: socket.socket, process: int) -> None:
        try:
            serve_session(self._device, connection)
        finally:
            self._end(process)

    def _end(self, process: int) -> None:
        with self._lock:
            self._of[process] -= 1
            self._of += Counter()  # Without those that have none.


class _Worker:
    """Answers the calls of one channel, one after another."""

    def __init__(self, session: _Session, channel: Channel) -> None:
        self._session = session
        self._channel = channel
        self._memory: SharedBlock | None = None
        self._sent: list[int] = []
        """Descriptors that go with the next answer."""
        self._calls: dict[str, Callable[[Message, list[int]], Message]] = {
            "describe": self._describe,
            "open": self._open,
            "supported_operations": self._supported_operations,
            "prepare": self._prepare,
            "prepare_from_cache": self._prepare_from_cache,
            "execute": self._execute,
        }

    def run(self, first: float | None = None) -> None:
        """Answer calls until the client closes the channel or breaks the protocol, or makes no call until ``first``."""
        try:
            while True:
                message, descriptors = self._channel.receive(first)
                first = None
                try:
                    answer = self._answer(message, descriptors)
                finally:
                    close_all(descriptors)
                sent, self._sent = self._sent, []
                try:
                    self._channel.send(answer, sent)
                except OpFailedError as error:
                    self._channel.send(_refusal(error))
                finally:
                    close_all(sent)
        except (EOFError, OSError):
            pass  # The client is gone, or the session was closed.
        except ProtocolError as error:
            LOG.warning("a client of %s broke the protocol: %s", self._session.device.name, error)
        finally:
            self._channel.shutdown()
            self._channel.socket.close()
            with self._session.lock, suppress(ValueError):
                self._session.channels.remove(self._channel)

    def _answer(self, message: Message, descriptors: list[int]) -> Message:
        call = self._calls.get(str(message.get("call")))
        if call is None:
            raise ProtocolError(f"an unknown call {message.get('call')!r}")
        try:
            for handle in _numbers(message.get("release", []), "release"):
                self._session.models.pop(handle, None)
            return call(message, descriptors)
        except ProtocolError:
            raise
        except NnapiError as error:
            return _refusal(error)
        except Exception as error:
            short = shortage_of(error)
            if short is not None:
                return _refusal(ResourceExhaustedTransientError(replace(short.reason, operation=self._session.device.name)))
            LOG.exception("%s failed in %s", message["call"], self._session.device.name)
            why = Reason("a driver without failure", raised(error), self._session.device.name)
            return _refusal(OpFailedError(why))

    # -- calls -------------------------------------------------------------------------------------------------------

    def _describe(self, message: Message, descriptors: list[int]) -> Message:
        device = self._session.device
        return {
            "name": device.name,
            "version": device.version,
            "feature_level": int(device.feature_level),
            "type": int(device.type),
            "capabilities": from_capabilities(device.capabilities),
            "extensions": [from_extension(e) for e in device.supported_extensions()],
            "cache_files": list(device.number_of_cache_files_needed()),
        }

    def _open(self, message: Message, descriptors: list[int]) -> Message:
        """A further channel of the session, so that calls can run side by side."""
        try:
            connection = socket.socket(fileno=_only(descriptors))
        except OSError as error:
            raise ProtocolError(f"no socket: {error}") from error
        descriptors.clear()  # It is the socket's now.
        try:
            channel = self._session.open(connection)
        except NnapiError:
            connection.close()
            raise
        worker = _Worker(self._session, channel)
        try:
            threading.Thread(target=worker.run, name="nnbridge-channel", daemon=True).start()
        except RuntimeError as error:
            with self._session.lock:
                self._session.channels.remove(channel)
            channel.socket.close()
            why = Reason("a thread for another channel", str(shortage_of(error) or error), self._session.device.name)
            raise ResourceExhaustedTransientError(why) from error
        return {}

    def _supported_operations(self, message: Message, descriptors: list[int]) -> Message:
        model = self._session.model(descriptors)
        answers = self._session.device.supported_operations(model)
        found: Message = {"answers": [_as_json(answer) for answer in answers]}
        doubts = list(self._session.device.uncertainties(model))
        return {**found, "uncertain": doubts} if any(doubts) else found

    def _prepare(self, message: Message, descriptors: list[int]) -> Message:
        hints = to_hints(message.get("hints"), descriptors)
        model = self._session.model(descriptors)
        preference, priority = message.get("preference"), message.get("priority")
        if preference not in tuple(PreferenceCode):
            raise BadDataError(Reason("a preference of 0 to 2", str(preference), "prepareModel"))
        if priority not in tuple(PriorityCode):
            raise BadDataError(Reason("a priority of 90, 100 or 110", str(priority), "prepareModel"))
        saved: list[CacheFiles] = []
        config = PrepareModelConfig(
            preference,
            priority,
            _optional_number(message.get("deadline"), "deadline"),
            _token(message.get("token")),
            saved.append if message.get("save") is True else None,
            hints,
        )
        answer = self._prepared(model, self._session.device.prepare_model_with_config(model, config))
        if saved:
            try:
                descriptor, answer["cache"] = cache_memory(saved[-1])
            except BaseException:
                # What a driver saves may be no files: its client gets an error, and could not release the model.
                self._session.models.pop(answer["handle"], None)
                raise
            self._sent.append(descriptor)
        return answer

    def _prepare_from_cache(self, message: Message, descriptors: list[int]) -> Message:
        """``prepareModelFromCache``: the model is the driver's secret, so that requests come with the types of their inputs."""
        files, token = cache_files(_only(descriptors), message.get("cache")), _token(message.get("token"))
        deadline = _optional_number(message.get("deadline"), "deadline")
        return self._prepared(None, self._session.device.prepare_model_from_cache(files, token, deadline))

    def _prepared(self, model: Model | None, prepared: object) -> Message:
        if not isinstance(prepared, PreparedModel):
            raise OpFailedError(Reason("a prepared model", type(prepared).__name__, self._session.device.name))
        return {"handle": self._session.add(_Prepared(model, prepared))}

    def _execute(self, message: Message, descriptors: list[int]) -> Message:
        hints = to_hints(message.get("hints"), descriptors)
        if descriptors:
            self._memory = SharedBlock.received(_only(descriptors))
        found = self._session.models.get(_numbers([message.get("handle")], "execute")[0])
        if found is None:
            raise BadDataError(Reason("a model that this client prepared", str(message.get("handle")), "execute"))
        request = _request(message, hints, found.model, self._memory)
        result = found.prepared.execute(request)
        if not isinstance(result, Result):
            raise OpFailedError(Reason("a Result from execute", type(result).__name__, self._session.device.name))
        return {
            "code": int(result.code),
            "shapes": [[list(map(int, shape.dims)), bool(shape.sufficient)] for shape in result.shapes],
            "reason": None if result.reason is None else result.reason.as_dict(),
            "on_device": result.on_device,
            "in_driver": result.in_driver,
        }


def _refusal(error: NnapiError) -> Message:
    return {"code": int(error.code), "reason": error.reason.as_dict()}


# -- validation of calls -----------------------------------------------------------------------------------------------


def _received_model(descriptor: int) -> Model:
    """The model of a call: BAD_DATA unless it is a whole, valid model (facts B4, V1 to V28)."""
    sealed_size(descriptor)
    try:
        return read_model(descriptor, "the client's model", foreign=True)
    except ConversionError as error:
        raise BadDataError(error.reason) from error


def _request(message: Mapping[str, Any], hints: Hints, model: Model | None, memory: SharedBlock | None) -> Request:
    """The request of a call: every buffer inside the memory, every shape as the model has it (facts V36 to V38)."""
    if memory is None:
        raise BadDataError(Reason("memory for the execution", "none", "execute"))
    inputs_at, outputs_at, types = (_listed(message.get(what), what) for what in ("inputs", "outputs", "types"))
    if model is None:
        inputs = [_typed_input(part, text, memory) for part, text in _pairs(inputs_at, types, "types")]
        outputs = [_output(Operand(OperandCode.TENSOR_OEM_BYTE), part, memory) for part in outputs_at]
    else:
        operands, main = model.main.operands, model.main
        inputs = [_input(operands[i], part, memory) for i, part in _pairs(main.inputs, inputs_at, "inputs")]
        outputs = [_output(operands[i], part, memory) for i, part in _pairs(main.outputs, outputs_at, "outputs")]
    return Request(
        tuple(inputs),
        tuple(outputs),
        _optional_number(message.get("deadline"), "deadline"),
        _optional_number(message.get("loop_timeout"), "loop_timeout"),
        message.get("measure") is True,
        hints,
    )


def _listed(listed: object, what: str) -> list[Any]:
    if listed is None and what == "types":
        return []
    if not isinstance(listed, list):
        raise BadDataError(Reason(f"a list of {what}", type(listed).__name__, "execute"))
    return listed


def _pairs(required: Sequence[Any], listed: Sequence[Any], what: str) -> list[tuple[Any, Any]]:
    if len(listed) != len(required):
        raise BadDataError(Reason(f"{len(required)} {what}", str(len(listed)), "execute"))
    return list(zip(required, listed, strict=True))


def _typed_input(part: object, text: object, memory: SharedBlock) -> npt.NDArray[Any] | None:
    """An input of a model that this side does not know, by the name of its element type."""
    if part is None:
        return None
    if not isinstance(text, str) or not _ELEMENT_TYPE.fullmatch(text):
        raise BadDataError(Reason("an element type", str(text), "execute"))
    dtype = np.dtype(text)
    data, dims = _part(Operand(OperandCode.TENSOR_OEM_BYTE), part, memory)
    size = math.prod(dims) * dtype.itemsize
    if len(data) != size or data.ctypes.data % dtype.itemsize:
        raise BadDataError(Reason(f"{size} aligned bytes", str(len(data)), "execute"))
    return data.view(dtype).reshape(dims)


def _input(operand: Operand, part: object, memory: SharedBlock) -> npt.NDArray[Any] | None:
    if part is None:
        return None
    data, dims = _part(operand, part, memory)
    dtype = operand_dtype(operand)
    tensor = operand.is_tensor or (is_extension(operand.type) and bool(operand.dims))
    if tensor and not known(dims):
        raise BadDataError(Reason("known dimensions of an input", str(list(dims)), "execute", operand.name))
    size = math.prod(dims) * dtype.itemsize
    if len(data) != size and operand.type != OperandCode.OEM_SCALAR:
        raise BadDataError(Reason(f"{size} bytes for {operand}", str(len(data)), "execute", operand.name))
    return data if operand.type == OperandCode.OEM_SCALAR else data.view(dtype).reshape(dims)


def _output(operand: Operand, part: object, memory: SharedBlock) -> OutputBuffer:
    if part is None:
        return OutputBuffer(None, operand.dims)
    return OutputBuffer(*_part(operand, part, memory))


def _part(operand: Operand, part: object, memory: SharedBlock) -> tuple[npt.NDArray[np.uint8], tuple[int, ...]]:
    """The bytes ``[offset, length, dims]`` of the memory, dimensions filling in what the operand leaves open."""
    if not isinstance(part, list) or len(part) != 3:
        raise BadDataError(Reason("[offset, length, dimensions]", str(part), "execute", operand.name))
    (offset, length), dims = _numbers(part[:2], "execute"), tuple(_numbers(part[2], "execute"))
    if offset + length > len(memory.bytes) or offset % operand_dtype(operand).itemsize:
        rule = f"an aligned part of {len(memory.bytes)} bytes"
        raise BadDataError(Reason(rule, f"{offset}+{length}", "execute", operand.name))
    if merge_dims(operand.dims, dims) is None:
        raise BadDataError(Reason(f"dimensions that fit {list(operand.dims)}", str(list(dims)), "execute", operand.name))
    return memory.bytes[offset : offset + length], dims


def _numbers(values: object, call: str) -> list[int]:
    if not isinstance(values, list) or not all(type(v) is int and 0 <= v < 2**63 for v in values):
        raise BadDataError(Reason("numbers from 0", str(values), call))
    return values


def _token(value: object) -> bytes:
    if value is None:
        return bytes(BYTE_SIZE_OF_CACHE_TOKEN)
    if not isinstance(value, str) or not _TOKEN.fullmatch(value):
        raise BadDataError(Reason(f"{BYTE_SIZE_OF_CACHE_TOKEN} bytes in hexadecimal", str(value), "token"))
    return bytes.fromhex(value)


def _optional_number(value: object, what: str) -> int | None:
    return None if value is None else _numbers([value], what)[0]


def _only(descriptors: Sequence[int]) -> int:
    if len(descriptors) != 1:
        raise ProtocolError(f"{len(descriptors)} descriptors where one belongs")
    return descriptors[0]


def _as_json(answer: object) -> Message | bool:
    """A driver's answer for one operation; TypeError for what a driver in the client's own process may not answer either."""
    if isinstance(answer, Reason):
        return answer.as_dict()
    if not isinstance(answer, (bool, np.bool_)):
        raise TypeError(f"{answer!r} instead of True, False or a Reason")
    return bool(answer)
