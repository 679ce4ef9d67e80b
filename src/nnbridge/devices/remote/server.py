"""The driver's side: serves a device to clients, one session for each, and validates every call as NNAPI demands.

Sessions share the device and nothing else: what one client prepared no other can name. A client that ends, however it
ends, takes its prepared models along.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from nnbridge.devices.device import Device, OutputBuffer, PreparedModel, Request, Result
from nnbridge.devices.remote.wire import (
    Channel,
    Message,
    ProtocolError,
    SharedBlock,
    close_all,
    from_capabilities,
    from_extension,
    sealed_size,
)
from nnbridge.errors import BadDataError, ConversionError, NnapiError, OpFailedError, Reason
from nnbridge.extensions import operand_dtype
from nnbridge.model import Model, Operand, known
from nnbridge.operations.evaluate import merge_dims
from nnbridge.operations.validation import validate_model
from nnbridge.storage import read_model
from nnbridge.types import OperandCode, PreferenceCode, PriorityCode, is_extension

LOG = logging.getLogger(__name__)
MAX_PREPARED = 4096
"""Prepared models that one client may hold."""


@dataclass
class _Prepared:
    model: Model
    prepared: PreparedModel


@dataclass
class _Session:
    """What one client has."""

    device: Device
    models: dict[int, _Prepared] = field(default_factory=dict)
    channels: list[Channel] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)
    next_handle: int = 1

    def add(self, found: _Prepared) -> int:
        with self.lock:
            if len(self.models) >= MAX_PREPARED:
                raise OpFailedError(Reason(f"at most {MAX_PREPARED} prepared models of a client", "more", "prepareModel"))
            handle = self.next_handle
            self.next_handle += 1
            self.models[handle] = found
            return handle

    def close(self) -> None:
        with self.lock:
            self.models.clear()
            for channel in self.channels:
                channel.shutdown()


def serve_session(device: Device, connection: socket.socket) -> None:
    """Serve one client until it closes its first connection."""
    session = _Session(device)
    try:
        _Worker(session, Channel(connection)).run()
    finally:
        session.close()


def serve(device: Device, listener: socket.socket) -> None:
    """Serve every client that connects, until the listening socket is closed."""
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        threading.Thread(target=serve_session, args=(device, connection), name="nnbridge-session", daemon=True).start()


class _Worker:
    """Answers the calls of one channel, one after another."""

    def __init__(self, session: _Session, channel: Channel) -> None:
        self._session = session
        self._channel = channel
        self._memory: SharedBlock | None = None
        self._calls: dict[str, Callable[[Message, list[int]], Message]] = {
            "describe": self._describe,
            "open": self._open,
            "supported_operations": self._supported_operations,
            "prepare": self._prepare,
            "execute": self._execute,
        }

    def run(self) -> None:
        """Until the client closes the channel or sends what makes no sense."""
        try:
            while True:
                message, descriptors = self._channel.receive()
                try:
                    answer = self._answer(message, descriptors)
                finally:
                    close_all(descriptors)
                self._channel.send(answer)
        except (EOFError, OSError):
            pass  # The client is gone, or the session was closed.
        except ProtocolError as error:
            LOG.warning("a client of %s broke the protocol: %s", self._session.device.name, error)
        finally:
            self._channel.shutdown()

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
            return {"code": int(error.code), "reason": error.reason.as_dict()}
        except Exception as error:
            LOG.exception("%s failed in %s", message["call"], self._session.device.name)
            why = Reason("a driver without failure", f"{type(error).__name__}: {error}", self._session.device.name)
            return {"code": int(OpFailedError.code), "reason": why.as_dict()}

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
        }

    def _open(self, message: Message, descriptors: list[int]) -> Message:
        """A further channel of the session, so that calls can run side by side."""
        connection = socket.socket(fileno=os.dup(_only(descriptors)))
        channel = Channel(connection)
        with self._session.lock:
            self._session.channels.append(channel)
        worker = _Worker(self._session, channel)
        threading.Thread(target=worker.run, name="nnbridge-channel", daemon=True).start()
        return {}

    def _supported_operations(self, message: Message, descriptors: list[int]) -> Message:
        model = _received_model(descriptors)
        answers = self._session.device.supported_operations(model)
        return {"answers": [a.as_dict() if isinstance(a, Reason) else bool(a) for a in answers]}

    def _prepare(self, message: Message, descriptors: list[int]) -> Message:
        model = _received_model(descriptors)
        preference, priority = message.get("preference"), message.get("priority")
        if preference not in tuple(PreferenceCode):
            raise BadDataError(Reason("a preference of 0 to 2", str(preference), "prepareModel"))
        if priority not in tuple(PriorityCode):
            raise BadDataError(Reason("a priority of 90, 100 or 110", str(priority), "prepareModel"))
        deadline = _optional_number(message.get("deadline"), "deadline")
        prepared = self._session.device.prepare_model(model, preference, priority, deadline)
        if not isinstance(prepared, PreparedModel):
            raise OpFailedError(Reason("a prepared model", type(prepared).__name__, self._session.device.name))
        return {"handle": self._session.add(_Prepared(model, prepared))}

    def _execute(self, message: Message, descriptors: list[int]) -> Message:
        if descriptors:
            if self._memory is not None:
                self._memory.close()
            self._memory = SharedBlock.received(os.dup(_only(descriptors)))
        found = self._session.models.get(_numbers([message.get("handle")], "execute")[0])
        if found is None:
            raise BadDataError(Reason("a model that this client prepared", str(message.get("handle")), "execute"))
        request = _request(message, found.model, self._memory)
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


# -- validation of calls -----------------------------------------------------------------------------------------------


def _received_model(descriptors: list[int]) -> Model:
    """The model of a call: BAD_DATA unless it is a whole, valid model (facts B4, V1 to V28)."""
    descriptor = _only(descriptors)
    sealed_size(descriptor)
    try:
        model = read_model(descriptor, "the client's model")
    except ConversionError as error:
        raise BadDataError(error.reason) from error
    verdict = validate_model(model)
    if verdict.reason is not None:
        raise BadDataError(verdict.reason)
    return model


def _request(message: Mapping[str, Any], model: Model, memory: SharedBlock | None) -> Request:
    """The request of a call: every place inside the memory, every shape as the model has it (facts V36 to V38)."""
    if memory is None:
        raise BadDataError(Reason("memory for the execution", "none", "execute"))
    main = model.main
    given, taken = message.get("inputs"), message.get("outputs")
    for what, listed, wanted in (("inputs", given, main.inputs), ("outputs", taken, main.outputs)):
        if not isinstance(listed, list) or len(listed) != len(wanted):
            found = len(listed) if isinstance(listed, list) else type(listed).__name__
            raise BadDataError(Reason(f"{len(wanted)} {what}", str(found), "execute"))
    assert isinstance(given, list)
    assert isinstance(taken, list)
    return Request(
        tuple(_input(main.operands[i], place, memory) for i, place in zip(main.inputs, given, strict=True)),
        tuple(_output(main.operands[i], place, memory) for i, place in zip(main.outputs, taken, strict=True)),
        _optional_number(message.get("deadline"), "deadline"),
        _optional_number(message.get("loop_timeout"), "loop_timeout"),
        message.get("measure") is True,
    )


def _input(operand: Operand, place: object, memory: SharedBlock) -> npt.NDArray[Any] | None:
    if place is None:
        return None
    data, dims = _part(operand, place, memory)
    dtype = operand_dtype(operand)
    tensor = operand.is_tensor or (is_extension(operand.type) and bool(operand.dims))
    if tensor and not known(dims):
        raise BadDataError(Reason("known dimensions of an input", str(list(dims)), "execute", operand.name))
    size = int(np.prod(dims, dtype=object)) * dtype.itemsize
    if len(data) != size and operand.type != OperandCode.OEM_SCALAR:
        raise BadDataError(Reason(f"{size} bytes for {operand}", str(len(data)), "execute", operand.name))
    return data if operand.type == OperandCode.OEM_SCALAR else data.view(dtype).reshape(dims)


def _output(operand: Operand, place: object, memory: SharedBlock) -> OutputBuffer:
    if place is None:
        return OutputBuffer(None, operand.dims)
    return OutputBuffer(*_part(operand, place, memory))


def _part(operand: Operand, place: object, memory: SharedBlock) -> tuple[npt.NDArray[np.uint8], tuple[int, ...]]:
    """The bytes ``[offset, length, dims]`` of the memory, dimensions filling in what the operand leaves open."""
    if not isinstance(place, list) or len(place) != 3:
        raise BadDataError(Reason("[offset, length, dimensions]", str(place), "execute", operand.name))
    (offset, length), dims = _numbers(place[:2], "execute"), tuple(_numbers(place[2], "execute"))
    if offset + length > len(memory.bytes) or offset % operand_dtype(operand).itemsize:
        rule = f"an aligned place inside {len(memory.bytes)} bytes"
        raise BadDataError(Reason(rule, f"{offset}+{length}", "execute", operand.name))
    if merge_dims(operand.dims, dims) is None:
        raise BadDataError(Reason(f"dimensions that fit {list(operand.dims)}", str(list(dims)), "execute", operand.name))
    return memory.bytes[offset : offset + length], dims


def _numbers(values: object, call: str) -> list[int]:
    if not isinstance(values, list) or not all(type(v) is int and 0 <= v < 2**63 for v in values):
        raise BadDataError(Reason("numbers from 0", str(values), call))
    return values


def _optional_number(value: object, what: str) -> int | None:
    return None if value is None else _numbers([value], what)[0]


def _only(descriptors: Sequence[int]) -> int:
    if len(descriptors) != 1:
        raise ProtocolError(f"{len(descriptors)} descriptors where one belongs")
    return descriptors[0]
