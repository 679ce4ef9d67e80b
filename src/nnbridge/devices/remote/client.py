"""nnbridge's side: a device whose driver lives in another process.

Failures there become NNAPI's errors. A driver that dies is DEAD_OBJECT (fact T3). Calls of the *device*
(``getSupportedOperations``, ``prepareModel``) are then repeated once on the restarted driver, as Android's
``ResilientDevice`` does; a *prepared model* stays dead, and the runtime runs its work on the CPU where it may. A driver
that does not answer in time has missed its deadline and is ended like one that died.
"""

from __future__ import annotations

import os
import socket
import subprocess
import threading
from collections.abc import Callable, Sequence
from typing import Any, TypeVar
from weakref import WeakSet, finalize, ref

import numpy as np

from nnbridge.devices.device import (
    CacheFiles,
    Capabilities,
    Device,
    OutputShape,
    PreparedModel,
    PrepareModelConfig,
    Request,
    Result,
    Support,
)
from nnbridge.devices.remote.session import Line, Session, connected, spawn
from nnbridge.devices.remote.system import ProtocolError, close_all, require_descriptors
from nnbridge.devices.remote.wire import (
    Message,
    ModelMemory,
    aligned,
    cache_memory,
    from_hints,
    to_capabilities,
    to_extension,
    to_reason,
)
from nnbridge.errors import (
    DeadObjectError,
    InputError,
    NnapiError,
    OpFailedError,
    Reason,
    pass_shortage,
)
from nnbridge.extensions import Extension
from nnbridge.model import Model
from nnbridge.platforms import after_fork
from nnbridge.types import DeviceTypeCode, ResultCode

_Answer = TypeVar("_Answer")

_DEVICES: WeakSet[RemoteDevice] = WeakSet()


def _unlock_all() -> None:
    for device in _DEVICES:
        device.unlock()


after_fork(_unlock_all)

_NO_MODEL: tuple[Callable[[], Model | None], ModelMemory | None] = (lambda: None, None)


class RemoteDevice(Device):
    """A device that another process serves. ``start`` begins a session with a living driver."""

    def __init__(self, name: str, start: Callable[[], tuple[socket.socket, subprocess.Popen[bytes] | None]]) -> None:
        self.name = name
        self._start = start
        self._lock = threading.Lock()
        self._queried: tuple[Callable[[], Model | None], ModelMemory | None] = _NO_MODEL
        """The model of the last ``getSupportedOperations``, as a weak reference, and the memory that it lies in."""
        self._doubts: tuple[Callable[[], Model | None], list[str]] | None = None
        """Of the last model that the driver was asked about, where it has doubts."""
        _DEVICES.add(self)
        self._session = self._connect()
        try:
            self._described = described = self._session.describe()
            self.version = str(described["version"])
            self.feature_level = int(described["feature_level"])
            self.type = DeviceTypeCode(described["type"])
            self._extensions = tuple(to_extension(e) for e in described["extensions"])
            self._capabilities = to_capabilities(described["capabilities"])
            models, data = described["cache_files"]
            self._cache_files = int(models), int(data)
        except (KeyError, TypeError, ValueError, OverflowError, ProtocolError) as error:
            reason = Reason("a driver that describes itself", str(error), operand=name)
            self._session.end(reason)
            raise InputError(reason) from error

    @classmethod
    def process(cls, name: str) -> RemoteDevice:
        """A driver in a separate process, by the name that it has in this one."""
        return cls._checked(f"process:{name}", lambda: spawn(name))

    @classmethod
    def at(cls, path: str) -> RemoteDevice:
        """A driver that is served at a socket; ``@name`` is an abstract one."""
        return cls._checked(f"socket:{path}", lambda: (connected(path), None))

    @classmethod
    def _checked(cls, name: str, start: Callable[[], tuple[socket.socket, subprocess.Popen[bytes] | None]]) -> RemoteDevice:
        require_descriptors(f"--device {name}")
        try:
            return cls(name, start)
        except (OSError, NnapiError) as error:
            pass_shortage(error)
            why = (error.strerror if isinstance(error, OSError) else "") or str(error)
            found = why if name in why else f"{name}: {why}"
            raise InputError(Reason("a driver that starts", found, operand="device")) from error

    @property
    def capabilities(self) -> Capabilities:
        """As the driver described itself when it started (fact D21)."""
        return self._capabilities

    def supported_extensions(self) -> Sequence[Extension]:
        """As the driver described itself when it started."""
        return self._extensions

    @property
    def pid(self) -> int | None:
        """The driver's process, if it is a child of this one and running."""
        process = self._session.process
        return None if process is None or process.poll() is not None else process.pid

    def supported_operations(self, model: Model) -> Sequence[Support]:
        """The driver's answers; a dead driver is restarted and the call repeated, once."""
        memory = ModelMemory(model)
        answer = self._protected(lambda session: session.call({"call": "supported_operations"}, [memory.descriptor]))
        # A driver that supports the whole model prepares it next.
        self._queried = ref(model), memory
        answers, doubts = answer.get("answers"), answer.get("uncertain")
        self._doubts = (ref(model), doubts) if isinstance(doubts, list) else None
        if not isinstance(answers, list):
            raise OpFailedError(Reason("answers of getSupportedOperations", type(answers).__name__, self.name))
        return [to_reason(a) or False if isinstance(a, dict) else a for a in answers]

    def uncertainties(self, model: Model) -> Sequence[str]:
        """As the driver has them; one without any when it was last asked for its support is not asked again."""
        certain = [""] * len(model.main.operations)
        if self._doubts is not None and self._doubts[0]() is not model:
            self.supported_operations(model)
        doubts = self._doubts[1] if self._doubts is not None else certain
        return doubts if len(doubts) == len(certain) and all(isinstance(text, str) for text in doubts) else certain

    def prepare_model_with_config(self, model: Model, config: PrepareModelConfig) -> PreparedModel:
        """Prepare in the driver's process; a dead driver is restarted and the call repeated, once."""
        hints, attributes = from_hints(config.hints)
        message = {
            "call": "prepare",
            "preference": int(config.preference),
            "priority": int(config.priority),
            "deadline": config.deadline,
            "token": config.token.hex(),
            "save": config.save is not None,
            "hints": hints,
        }
        with self._lock:
            (queried, memory), self._queried = self._queried, _NO_MODEL
        try:
            with memory if memory is not None and queried() is model else ModelMemory(model) as file:
                sent = [file, *attributes]
                answer, prepared = self._protected(lambda session: self._prepare(session, message, sent, config.deadline))
        finally:
            close_all(attributes)
        files = answer.get("cache")
        if config.save is not None and isinstance(files, CacheFiles):
            config.save(files)
        return prepared

    def number_of_cache_files_needed(self) -> tuple[int, int]:
        """As the driver described itself when it started."""
        return self._cache_files

    def prepare_model_from_cache(self, files: CacheFiles, token: bytes, deadline: int | None = None) -> PreparedModel:
        """The files travel as the model does."""
        memory, lengths = cache_memory(files)
        message = {"call": "prepare_from_cache", "cache": lengths, "token": token.hex(), "deadline": deadline}
        try:
            return self._protected(lambda session: self._prepare(session, message, [memory], deadline, typed=True))[1]
        finally:
            os.close(memory)

    def _prepare(
        self, session: Session, message: Message, descriptors: list[int], deadline: int | None, *, typed: bool = False
    ) -> tuple[Message, RemotePreparedModel]:
        answer = session.call(message, descriptors, deadline)
        handle = answer.get("handle")
        if type(handle) is not int:
            raise OpFailedError(Reason("a prepared model", str(handle), self.name))
        return answer, RemotePreparedModel(session, handle, typed=typed)

    def close(self) -> None:
        """End the session, and the driver's process if it is ours. The next call starts it again."""
        self._session.end(Reason("an open driver", "one that was closed", self.name))

    def unlock(self) -> None:
        """Begin again in a forked process: another thread of the parent may have held the lock, which no one releases here."""
        self._lock = threading.Lock()

    # -- restarting -------------------------------------------------------------------------------------------------

    def _protected(self, call: Callable[[Session], _Answer]) -> _Answer:
        """A call, repeated once where the driver was dead and could be restarted."""
        session = self._session
        if session.owner != os.getpid():
            # Two processes on one channel would read each other's answers.
            session = self._restarted(session)
        try:
            return call(session)
        except DeadObjectError as error:
            try:
                session = self._restarted(session)
            except (OSError, NnapiError, InputError, ProtocolError) as failure:
                found = f"{error}, and no restart: {failure}"
                raise DeadObjectError(Reason("a driver that is alive", found, self.name)) from error
            return call(session)

    def _restarted(self, failed: Session) -> Session:
        with self._lock:
            if self._session is not failed:
                return self._session
            session = self._connect()
            if session.describe() != self._described:
                # As in Android: a driver that came back as another one is not used any more.
                session.end(Reason("the same driver after a restart", "another", self.name))
            self._session = session
            return session

    def _connect(self) -> Session:
        return Session(self.name, *self._start())


class RemotePreparedModel(PreparedModel):
    """A model that a driver in another process has prepared. It ends with that process."""

    def __init__(self, session: Session, handle: int, *, typed: bool = False) -> None:
        """``typed``: the driver's side does not know the model, so that requests state the types of their inputs."""
        self._session = session
        self._typed = typed
        self._handle = handle
        self._owner = os.getpid()
        finalize(self, session.release, handle)

    def execute(self, request: Request) -> Result:
        """Run in the driver's process. Its end is DEAD_OBJECT, no answer in time a missed deadline."""
        try:
            if self._owner != os.getpid():
                raise DeadObjectError(Reason("the process that prepared the model", "a fork of it", self._session.name))
            with self._session.line() as line:
                return self._execute(line, request)
        except NnapiError as error:
            return Result(error.code, reason=error.reason)

    def _execute(self, line: Line, request: Request) -> Result:
        inputs = [None if value is None else np.ascontiguousarray(value) for value in request.inputs]
        sizes = [0 if v is None else v.nbytes for v in inputs] + [0 if o.data is None else len(o.data) for o in request.outputs]
        offsets = np.cumsum([0, *map(aligned, sizes)]).tolist()
        descriptors = line.reserve(offsets[-1])
        assert line.memory is not None
        shared = line.memory.bytes
        for value, offset in zip(inputs, offsets, strict=False):
            if value is not None:
                shared[offset : offset + value.nbytes] = value.reshape(-1).view(np.uint8)
        outputs = list(zip(request.outputs, offsets[len(inputs) : -1], strict=True))
        hints, attributes = from_hints(request.hints)
        message = {
            "call": "execute",
            "handle": self._handle,
            "inputs": [None if v is None else [o, v.nbytes, v.shape] for v, o in zip(inputs, offsets, strict=False)],
            "outputs": [None if b.data is None else [o, len(b.data), b.dims] for b, o in outputs],
            "deadline": request.deadline,
            "loop_timeout": request.loop_timeout,
            "measure": request.measure,
            "hints": hints,
        }
        if self._typed:
            message["types"] = [None if value is None else value.dtype.str for value in inputs]
        try:
            answer = self._session.exchange(line, message, [*descriptors, *attributes], request.deadline)
        finally:
            close_all(attributes)
        result = _result(answer, self._session.name)
        if result.code is ResultCode.NO_ERROR:
            for buffer, offset in outputs:
                if buffer.data is not None:
                    buffer.data[:] = shared[offset : offset + len(buffer.data)]
        return result


def _result(answer: Message, driver: str) -> Result:
    """The result in a message; OP_FAILED for one without."""
    try:
        shapes = tuple(OutputShape(_dims(dims), sufficient is True) for dims, sufficient in answer.get("shapes", ()))
        return Result(
            ResultCode(answer["code"]),
            shapes,
            to_reason(answer.get("reason")),
            _time(answer.get("on_device")),
            _time(answer.get("in_driver")),
        )
    except (KeyError, TypeError, ValueError, ProtocolError) as error:
        return Result(ResultCode.OP_FAILED, (), Reason("a result of execute", str(error), driver))


def _dims(values: Any) -> tuple[int, ...]:
    if not all(type(d) is int and 0 <= d < 2**32 for d in values):
        raise ValueError(f"dimensions {values}")
    return tuple(values)


def _time(value: object) -> int | None:
    return value if type(value) is int and value >= 0 else None
