"""Events: the completion of an execution that runs while its caller continues."""

from __future__ import annotations

import os
import select
import sys
import threading
from collections.abc import Callable, Sequence

from nnbridge.errors import (
    BadDataError,
    NnapiError,
    OpFailedError,
    Reason,
    ShortageError,
    UnexpectedNullError,
    pass_shortage,
    raised,
)
from nnbridge.platforms import lacks
from nnbridge.runtime.driver_calls import AS_IN_DRIVERS
from nnbridge.types import ResultCode

_ONE = (1).to_bytes(8, sys.byteorder)
"""What an eventfd adds to its counter; a pipe transports it as it is."""


def _fence() -> tuple[int, int]:
    """A descriptor that is readable once ``_ONE`` was written to the other: one eventfd, or the ends of a pipe."""
    if hasattr(os, "eventfd"):
        fence: int = os.eventfd(0, getattr(os, "EFD_CLOEXEC", 0))
        return fence, fence
    return os.pipe()


class Event:
    """``ANeuralNetworksEvent``. :meth:`wait` returns or raises the same however often it is called."""

    def __init__(
        self, work: Callable[[], None] | None = None, *, fence: bool = False, waited: Callable[[], None] | None = None
    ) -> None:
        """``waited`` is called when somebody has waited for the end or frees the event."""
        self._fence = self._signal = -1
        self._waited = waited
        self._error: NnapiError | ShortageError | None = None
        self._done = threading.Event()
        if fence:
            self._fence, self._signal = _fence()
        self._thread: threading.Thread | None = None
        if work is not None:
            thread = threading.Thread(target=self._run, args=(work,), name="nnbridge-execution", daemon=True)
            try:
                thread.start()
            except RuntimeError as error:
                self._close_fence()
                pass_shortage(error)
                raise
            self._thread = thread

    @classmethod
    def from_sync_fence_fd(cls, fd: int) -> Event:
        """``createFromSyncFenceFd``: done when the descriptor becomes readable; it is duplicated (fact E59)."""
        if fd <= 0:
            raise BadDataError(Reason("a descriptor above 0", str(fd), "createFromSyncFenceFd"))
        if not hasattr(select, "poll"):
            raise OpFailedError(lacks("createFromSyncFenceFd", "poll for descriptors", "events of executions can be waited for"))
        event = cls()
        try:
            event._fence = os.dup(fd)
        except OSError as error:
            raise BadDataError(Reason("an open descriptor", f"{fd}: {error}", "createFromSyncFenceFd")) from error
        return event

    def _run(self, work: Callable[[], None]) -> None:
        try:
            work()
        except (NnapiError, ShortageError) as error:
            self._error = error
        except Exception as error:
            self._error = OpFailedError(Reason("an execution without failure", raised(error)))
        finally:
            if self._fence >= 0:
                os.write(self._signal, _ONE)
            self._done.set()

    def wait(self) -> None:
        """``Event_wait``: raises the error that the execution ended with."""
        self.block()
        self._report()
        if self._error is not None:
            raise self._error

    def block(self) -> None:
        """Wait for the end without reporting it, as a driver waits for a fence."""
        if self._thread is None and self._fence >= 0:
            # poll, as select refuses descriptors from 1024 on.
            if sys.platform == "win32":
                raise NotImplementedError
            poll = select.poll()
            poll.register(self._fence, select.POLLIN)
            if not any(state & select.POLLIN for _, state in poll.poll()):
                raise OpFailedError(Reason("a fence that is signalled", "another end", "Event_wait"))
            return
        if self._thread is not None:
            self._done.wait()

    @property
    def has_fence(self) -> bool:
        """True if a descriptor signals the end."""
        return self._fence >= 0

    def _report(self) -> None:
        if self._waited is not None:
            self._waited()
            self._waited = None

    @property
    def result(self) -> ResultCode:
        """The result code, as it comes through a driver's errors."""
        try:
            self.wait()
        except (NnapiError, ShortageError) as error:
            # Fact E28: results of asynchronous executions go through the drivers' smaller set of errors and back.
            return AS_IN_DRIVERS.get(error.code, error.code)
        return ResultCode.NO_ERROR

    def sync_fence_fd(self) -> int:
        """``getSyncFenceFd``: a descriptor of the caller's own that becomes readable when the work is done.

        BAD_DATA for an event without a fence (fact E59).
        """
        if self._fence < 0:
            raise BadDataError(Reason("an event with a fence", "one without", "getSyncFenceFd"))
        return os.dup(self._fence)

    def close(self) -> None:
        """``Event_free``: waits first (fact E27)."""
        if self._thread is not None:
            self._done.wait()
        self._report()
        self._close_fence()

    def _close_fence(self, close: Callable[[int], None] = os.close) -> None:
        # Bound above, as ``os`` may be gone when the interpreter ends.
        for descriptor in {self._fence, self._signal} - {-1}:
            close(descriptor)
        self._fence = self._signal = -1

    def __enter__(self) -> Event:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        # The thread holds the event while it works: dropping it closes the descriptor, and nothing waits.
        self._report()
        self._close_fence()


def wait_for(dependencies: Sequence[Event | None]) -> None:
    """Wait for all, ignoring how they ended (fact E53); UNEXPECTED_NULL for a missing one, OP_FAILED for a broken fence."""
    if any(event is None for event in dependencies):
        raise UnexpectedNullError(Reason("an event as dependency", "none", "startComputeWithDependencies"))
    for event in dependencies:
        assert event is not None
        event.block()
