"""One process of a driver: how it starts, the channels to it, and the errors that its end causes.

A driver that dies is DEAD_OBJECT (fact T3). One that does not answer in time has missed its deadline and is ended.
"""

from __future__ import annotations

import math
import os
import socket
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from weakref import WeakSet, finalize

from nnbridge.devices.remote.system import ProtocolError, close_all, local_socket, socket_address, this_user, user_of_peer
from nnbridge.devices.remote.wire import (
    MAX_CHANNELS,
    Channel,
    Message,
    OwnedBlock,
    cache_files,
    to_reason,
)
from nnbridge.errors import (
    ERROR_OF_CODE,
    DeadObjectError,
    InputError,
    MissedDeadlineTransientError,
    NnapiError,
    OpFailedError,
    Reason,
    ResourceExhaustedTransientError,
    pass_shortage,
)
from nnbridge.platforms import after_fork
from nnbridge.records import dataclass
from nnbridge.trust import environment, python_command
from nnbridge.types import ResultCode

TIMEOUT_VARIABLE = "NNBRIDGE_DRIVER_TIMEOUT"
DEFAULT_TIMEOUT = 60.0
"""Seconds for a call without a deadline of its own."""
GRACE = 1.0
"""Seconds beyond a call's deadline until a driver that does not answer counts as hung."""


def _timeout() -> float:
    text = os.environ.get(TIMEOUT_VARIABLE, "")
    try:
        seconds = float(text) if text else DEFAULT_TIMEOUT
    except ValueError:
        seconds = math.nan
    if not seconds > 0:
        raise InputError(Reason("seconds above 0", text, operand=TIMEOUT_VARIABLE))
    return seconds


@dataclass
class Line:
    """A channel with the memory that its executions use."""

    channel: Channel
    memory: OwnedBlock | None = None

    def reserve(self, size: int) -> list[int]:
        """Provide at least ``size`` bytes; the descriptor to send along if the memory is new."""
        if self.memory is not None and len(self.memory.bytes) >= size:
            return []
        if self.memory is not None:
            self.memory.close()
        self.memory = OwnedBlock(size)
        return [self.memory.descriptor]


_SESSIONS: WeakSet[Session] = WeakSet()


def _close_in_fork() -> None:
    for session in _SESSIONS:
        session.close_in_fork()


after_fork(_close_in_fork)


class Session:
    """The channels to one process of a driver, and that process where it is a child of this one. Dead once, it stays dead."""

    def __init__(self, name: str, control: socket.socket, process: subprocess.Popen[bytes] | None = None) -> None:
        self.name = name
        self.owner = os.getpid()
        self.process = process
        self.dead: Reason | None = None
        self._lock = threading.Condition()
        self._control = Channel(control)
        self._idle: list[Line] = []
        self._lines: list[Line] = []
        self._released: list[int] = []
        _SESSIONS.add(self)
        # However this object ends, the driver sees the end of its connection and ends as well.
        finalize(self, _reap, self.owner, self._control, process)

    def call(self, message: Message, descriptors: Sequence[int] = (), deadline: int | None = None) -> Message:
        """One call and its answer; the driver's error is raised."""
        with self.line() as line:
            return answered(self.exchange(line, message, descriptors, deadline))

    def exchange(self, line: Line, message: Message, descriptors: Sequence[int], deadline: int | None) -> Message:
        """Send a message and wait for the answer on the same channel."""
        with self._lock:
            released, self._released = self._released, []
        if released:
            message = {**message, "release": released}
        limit = time.monotonic() + _timeout() if deadline is None else deadline / 1e9 + GRACE
        return self._talk(line.channel, message, descriptors, limit)

    def describe(self) -> Message:
        """The driver's description, read once when it starts."""
        with self._lock:
            # Its process has to start first, however short calls are to be.
            answer = answered(self._controlled({"call": "describe"}, least=DEFAULT_TIMEOUT))
        refused = to_reason(answer.get("refused"))
        if refused is not None:
            self.end(refused)
            place = " ".join(part for part in (refused.operation, refused.operand) if part not in ("", "device"))
            raise InputError(replace(refused, operation=f"--device {self.name}", operand=place and f"({place})"))
        return answer

    def release(self, handle: int) -> None:
        """Release a prepared model; the next call carries its handle."""
        self._released.append(handle)

    @contextmanager
    def line(self) -> Iterator[Line]:
        """A channel for one call; new ones are opened while all are in use, up to as many as the driver accepts."""
        with self._lock:
            line = self._free_line()
        try:
            yield line
        except NnapiError:
            self._return(line)
            raise
        except BaseException:
            # An interrupted call leaves an answer in the channel, which must not be read as the next call's.
            with self._lock:
                if line in self._lines:
                    self._lines.remove(line)
                self._lock.notify()
            line.channel.shutdown()
            raise
        self._return(line)

    def _free_line(self) -> Line:
        """A line that no one uses; waits while there is none and the driver opens no more."""
        while True:
            if self.dead is not None:
                raise DeadObjectError(self.dead)
            if self._idle:
                return self._idle.pop()
            if len(self._lines) < MAX_CHANNELS:
                try:
                    return self._open()
                except ResourceExhaustedTransientError:
                    if not self._lines:
                        raise
            self._lock.wait()

    def _return(self, line: Line) -> None:
        with self._lock:
            if self.dead is None:
                self._idle.append(line)
            self._lock.notify()

    def _open(self) -> Line:
        try:
            ours, theirs = socket.socketpair()
        except OSError as error:
            pass_shortage(error)
            raise
        with theirs:
            answered(self._controlled({"call": "open"}, [theirs.fileno()]))
        self._lines.append(Line(Channel(ours)))
        return self._lines[-1]

    def _controlled(self, message: Message, descriptors: Sequence[int] = (), least: float = 0.0) -> Message:
        """A call on the channel that all threads share, under the lock; if it is interrupted, the session ends."""
        try:
            return self._talk(self._control, message, descriptors, time.monotonic() + max(_timeout(), least))
        except BaseException:
            self.end(Reason("a driver that can be called", f"{message['call']} interrupted", self.name))
            raise

    def _talk(self, channel: Channel, message: Message, descriptors: Sequence[int], until: float) -> Message:
        try:
            channel.send(message, descriptors)
            answer, found = channel.receive(until)
            try:
                if "cache" in answer and len(found) == 1:
                    answer["cache"] = cache_files(found[0], answer["cache"])
            finally:
                close_all(found)
            return answer
        except TimeoutError as error:
            self.end(Reason("a driver that answers in time", f"none to {message['call']}", self.name))
            assert self.dead is not None
            raise MissedDeadlineTransientError(self.dead) from error
        except (EOFError, OSError) as error:
            self.end(Reason("a driver that is alive", f"its end during {message['call']}", self.name))
            assert self.dead is not None
            raise DeadObjectError(self.dead) from error
        except ProtocolError as error:
            self.end(Reason("answers of a driver", str(error), self.name))
            assert self.dead is not None
            raise DeadObjectError(self.dead) from error

    def end(self, why: Reason) -> None:
        """End the session: wake all threads that wait for the driver, and end its process if it is a child of this one."""
        if self.dead is None:
            self.dead = why
        for line in list(self._lines):
            line.channel.shutdown()
        # Lines that no one uses are closed with this; whoever still waits for an answer ends with an error.
        self._lines.clear()
        self._idle.clear()
        _reap(self.owner, self._control, self.process)
        with self._lock:
            self._lock.notify_all()

    def close_in_fork(self) -> None:
        """Close a forked process's copies of the sockets, so that the driver sees the end of its client before the fork's."""
        self._lock = threading.Condition()
        for channel in (self._control, *(line.channel for line in self._lines)):
            channel.socket.close()


def _reap(owner: int, control: Channel, process: subprocess.Popen[bytes] | None) -> None:
    if owner != os.getpid():
        return  # In a fork: the driver belongs to the parent.
    control.shutdown()
    control.socket.close()
    if process is not None:
        process.kill()
        process.wait()


def answered(answer: Message) -> Message:
    """The answer of a call; an error in it is raised."""
    if "code" in answer:
        raise error_of(answer["code"], _reason(answer.get("reason")))
    return answer


def _reason(data: object) -> Reason | None:
    """A reason from an answer; OP_FAILED for what is none."""
    try:
        return to_reason(data)
    except ProtocolError as error:
        raise OpFailedError(Reason("answers of a driver", str(error))) from error


def error_of(code: Any, reason: Reason | None) -> NnapiError:
    """The exception of a code; OP_FAILED for what is no code."""
    known = code in tuple(ResultCode) and code != ResultCode.NO_ERROR
    kind = ERROR_OF_CODE[ResultCode(code)] if known else OpFailedError
    return kind(reason or Reason("a call that succeeds", str(code)))


def driver_command(name: str, *options: str) -> list[str]:
    """The command of a driver's process."""
    return python_command("nnbridge.devices.remote.__main__", name, *options)


def spawn(name: str) -> tuple[socket.socket, subprocess.Popen[bytes]]:
    """Start a driver's process."""
    try:
        ours, theirs = socket.socketpair()
        command = driver_command(name, "--session", str(theirs.fileno()))
        with theirs:
            # What a driver prints must not mix with this process's output, and Ctrl-C at the terminal is not for the driver.
            process = subprocess.Popen(
                command,
                env=environment(),
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=2,
                start_new_session=True,
            )
    except OSError as error:
        pass_shortage(error)
        raise
    return ours, process


def connected(path: str) -> socket.socket:
    """A connection to a driver that this user serves: whoever comes first may listen at an address."""
    connection = local_socket()
    try:
        connection.connect(socket_address(path, "device"))
        user = user_of_peer(connection)
        if user != this_user():
            raise InputError(Reason(f"a driver that user {this_user()} serves", f"user {user} at {path}", operand="device"))
    except BaseException:
        connection.close()
        raise
    return connection
