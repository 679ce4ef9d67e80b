"""One exception per NNAPI result code, one base for all of nnbridge, and reasons as data."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import ClassVar

from nnbridge.types import ResultCode


@dataclass(frozen=True, slots=True)
class Reason:
    """Why something was refused: the operation, the operand, the rule that was broken and what was found."""

    rule: str
    found: str = ""
    operation: str = ""
    operand: str = ""
    says: str = ""
    """The words of the driver itself, as they stand in its log."""

    def __str__(self) -> str:
        place = " ".join(part for part in (self.operation, self.operand) if part)
        text = f"expected {self.rule}, found {self.found}" if self.found else self.rule
        text += f' (it says "{self.says}")' if self.says else ""
        return f"{place}: {text}" if place else text

    def as_dict(self) -> dict[str, str]:
        """The reason as JSON-ready data, empty parts left out."""
        return {key: value for key, value in asdict(self).items() if value}


def listed(found: object) -> str:
    """What was found, as a reader would write it: the members of a tuple without Python's marks."""
    return ", ".join(map(str, found)) if isinstance(found, tuple) else str(found)


class NnbridgeError(Exception):
    """Base of every error that nnbridge raises on purpose."""

    def __init__(self, message: str | Reason) -> None:
        super().__init__(str(message))
        self.reason = message if isinstance(message, Reason) else Reason(message)


class ConversionError(NnbridgeError):
    """A model file cannot be read or converted; the message names the file and the place in it."""


class OptionError(ConversionError):
    """An option of the conversion does not fit the file."""


class InputError(NnbridgeError):
    """A value of the user's does not fit: a missing input, a wrong shape or type, an unknown device."""


class NnapiError(NnbridgeError):
    """An NNAPI call failed; ``code`` is Android's result code."""

    code: ClassVar[ResultCode] = ResultCode.OP_FAILED


class OutOfMemoryError(NnapiError):
    """OUT_OF_MEMORY."""

    code = ResultCode.OUT_OF_MEMORY


class IncompleteError(NnapiError):
    """INCOMPLETE: a required earlier call is missing."""

    code = ResultCode.INCOMPLETE


class UnexpectedNullError(NnapiError):
    """UNEXPECTED_NULL: None where a value is required."""

    code = ResultCode.UNEXPECTED_NULL


class BadDataError(NnapiError):
    """BAD_DATA: an argument's value is wrong."""

    code = ResultCode.BAD_DATA


class OpFailedError(NnapiError):
    """OP_FAILED: an operation or a driver failed."""

    code = ResultCode.OP_FAILED


class BadStateError(NnapiError):
    """BAD_STATE: the call is not allowed now."""

    code = ResultCode.BAD_STATE


class UnmappableError(NnapiError):
    """UNMAPPABLE: a memory cannot be mapped."""

    code = ResultCode.UNMAPPABLE


class OutputInsufficientSizeError(NnapiError):
    """OUTPUT_INSUFFICIENT_SIZE: an output buffer is too small."""

    code = ResultCode.OUTPUT_INSUFFICIENT_SIZE


class UnavailableDeviceError(NnapiError):
    """UNAVAILABLE_DEVICE."""

    code = ResultCode.UNAVAILABLE_DEVICE


class MissedDeadlineTransientError(NnapiError):
    """MISSED_DEADLINE_TRANSIENT."""

    code = ResultCode.MISSED_DEADLINE_TRANSIENT


class MissedDeadlinePersistentError(NnapiError):
    """MISSED_DEADLINE_PERSISTENT."""

    code = ResultCode.MISSED_DEADLINE_PERSISTENT


class ResourceExhaustedTransientError(NnapiError):
    """RESOURCE_EXHAUSTED_TRANSIENT."""

    code = ResultCode.RESOURCE_EXHAUSTED_TRANSIENT


class ResourceExhaustedPersistentError(NnapiError):
    """RESOURCE_EXHAUSTED_PERSISTENT."""

    code = ResultCode.RESOURCE_EXHAUSTED_PERSISTENT


class DeadObjectError(NnapiError):
    """DEAD_OBJECT: the driver's process is gone."""

    code = ResultCode.DEAD_OBJECT


ERROR_OF_CODE: dict[ResultCode, type[NnapiError]] = {error.code: error for error in NnapiError.__subclasses__()}
"""Result code to exception class, for every code but NO_ERROR."""
