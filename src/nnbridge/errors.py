"""One exception per NNAPI result code, one base for all of nnbridge, and reasons as data."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterable
from dataclasses import asdict, field
from difflib import get_close_matches
from enum import Enum
from itertools import islice
from traceback import walk_tb
from typing import Any, ClassVar

from nnbridge.records import dataclass
from nnbridge.types import ResultCode


class Why(str, Enum):
    """Category of a refusal. Values are stable: JSON has them, and tools may count by them."""

    QUANTISATION_PARAMETERS = "quantisation-parameters"
    """A scale or zero point."""
    ARGUMENT = "argument"
    """An option or attribute, such as a stride."""
    INTERNAL = "internal"
    """The driver failed, or answered wrongly."""
    UNSTATED = "unstated"
    """The driver stated no reason."""
    RANGE = "range"
    """An index or axis beyond what it counts."""
    OPERATOR = "operator"
    """The whole operator."""
    FEATURE_LEVEL = "feature-level"
    OPERATOR_VERSION = "operator-version"
    INPUT_TYPE = "input-type"
    RESTRICTED_SCALE = "restricted-scale"
    """Feature levels 1 and 2: the input's scale times the filter's must be below the output's."""
    OUTPUT_TYPE = "output-type"
    OPERAND_SIZE = "operand-size"
    OPERAND_VALUE = "operand-value"
    """The value of an operand, or of several together."""
    HYBRID = "hybrid"
    """Quantised weights of float activations."""
    QUANTISATION_TYPE = "quantisation-type"
    """A scale for each channel, or none."""
    MISSING_OPERAND = "missing-operand"
    RANK = "rank"
    DYNAMIC_SHAPE = "dynamic-shape"
    """Dimensions that are not known before a run."""
    DYNAMIC_GRAPH = "dynamic-graph"
    """A tensor somewhere in the graph whose dimensions only a run knows, for which TFLite refuses the delegate for all of it."""
    VARIANT = "variant"
    """Another number of inputs or outputs."""
    ACTIVATION = "activation"
    """A fused activation."""
    NOT_CONSTANT = "not-constant"
    """A value that is computed where a constant is required."""
    PERFORMANCE = "performance"
    """Accepted, but another device is at least as fast."""
    PARTITIONS = "partitions"
    """Accepted, but beyond the limit on partitions."""
    FALLBACK = "fallback"
    """Accepted, but the whole model went to the CPU."""
    ENDED = "ended"
    """The process that computes it has ended, such as by a signal."""

    def __str__(self) -> str:
        return self.value

    @property
    def failure(self) -> str:
        """Its failure type in TFLite's ``compatibility_result.proto``; empty for what TFLite's checker does not look at."""
        return _FAILURES.get(self, "")


class Stage(str, Enum):
    """The part of a phone that refuses an operator of a file, in the order in which they are asked. Values are stable.

    The client is TFLite's NNAPI delegate, or ONNX Runtime's NNAPI provider.
    """

    LOADING = "loading"
    """The file's own runtime does not load the file."""
    GRAPH = "graph"
    """TFLite refuses the delegate for the whole file."""
    DELEGATE = "delegate"
    """The delegate leaves the operator to TFLite (its ``Validate``)."""
    PROVIDER = "provider"
    """The provider leaves the node to ONNX Runtime (``IsOpSupported`` of its builders)."""
    BUILDER = "provider-building"
    """The provider takes the node, and its builder fails to add it (``AddToModelBuilder``): there is no session."""
    BUILDING = "building"
    """The client takes the operator, and NNAPI refuses what it adds: there is no interpreter, no session."""
    DEVICE = "device"
    """The model is built, and a device of a lower feature level does not get the operation, which stays with TFLite."""
    RUNNING = "running"
    """The model is built, and NNAPI's own kernel fails to run the operation; a driver may refuse it, or compute it."""
    OWN = "nnbridge"
    """No part of a phone: nnbridge does not convert it."""

    def __str__(self) -> str:
        return self.value


_FAILURES = {
    Why.QUANTISATION_PARAMETERS: "DCC_UNSUPPORTED_QUANTIZATION_PARAMETERS",
    Why.ARGUMENT: "DCC_INVALID_ARGUMENT",
    Why.INTERNAL: "DCC_INTERNAL_ERROR",
    Why.UNSTATED: "DCC_UNIMPLEMENTED_ERROR",
    Why.RANGE: "DCC_OUT_OF_RANGE",
    Why.OPERATOR: "DCC_UNSUPPORTED_OPERATOR",
    Why.FEATURE_LEVEL: "DCC_UNSUPPORTED_VERSION",
    Why.OPERATOR_VERSION: "DCC_UNSUPPORTED_OPERATOR_VERSION",
    Why.INPUT_TYPE: "DCC_UNSUPPORTED_INPUT_TYPE",
    Why.RESTRICTED_SCALE: "DCC_NOT_RESTRICTED_SCALE_COMPLIANT",
    Why.OUTPUT_TYPE: "DCC_UNSUPPORTED_OUTPUT_TYPE",
    Why.OPERAND_SIZE: "DCC_UNSUPPORTED_OPERAND_SIZE",
    Why.OPERAND_VALUE: "DCC_UNSUPPORTED_OPERAND_VALUE",
    Why.HYBRID: "DCC_UNSUPPORTED_HYBRID_OPERATOR",
    Why.QUANTISATION_TYPE: "DCC_UNSUPPORTED_QUANTIZATION_TYPE",
    Why.MISSING_OPERAND: "DCC_MISSING_REQUIRED_OPERAND",
    Why.RANK: "DCC_UNSUPPORTED_OPERAND_RANK",
    Why.DYNAMIC_SHAPE: "DCC_INPUT_TENSOR_SHOULD_HAVE_CONSTANT_SHAPE",
    Why.VARIANT: "DCC_UNSUPPORTED_OPERATOR_VARIANT",
    Why.ACTIVATION: "DCC_NO_ACTIVATION_EXPECTED",
    Why.NOT_CONSTANT: "DCC_UNSUPPORTED_OPERAND_VALUE",
}


@dataclass(frozen=True, slots=True)
class Reason:
    """The reason of a refusal: the operation, the operand, the rule that was broken and what was found."""

    rule: str
    found: str = ""
    operation: str = ""
    operand: str = ""
    kind: Why | None = field(default=None, compare=False)
    """For refusals of an operation: what sort of "no" it is."""
    says: str = ""
    """The words of the driver itself, as they are in its log."""
    stage: Stage | None = field(default=None, compare=False)
    """For refusals of an operator under the mapping of a phone's client: which part of the phone refuses."""
    file: str = ""
    """The file that has it."""
    device: str = field(default="", compare=False)
    """The driver that refuses, where a client of NNAPI asked it and leaves the operator to itself."""
    hint: str = field(default="", compare=False)
    """What to do next, as words to type."""
    line: int = 0
    """The line of a text file, from 1; 0 for none."""
    column: int = 0

    def __str__(self) -> str:
        file = "" if self.file in (self.operation, self.operand) else self.file
        at = f"line {self.line}" * bool(self.line) + f" column {self.column}" * bool(self.column)
        place = " ".join(part for part in (file, self.operation, at, self.operand) if part)
        text = f"expected {self.rule}, found {self.found}" if self.found else self.rule
        # Of a file that is not there, what it should hold is of no interest.
        text = self.found if place and self.found == NO_SUCH_FILE else text
        text += f' (it says "{self.says}")' if self.says else ""
        return f"{place}: {text}" if place else text

    @staticmethod
    def of_kernel(error: Exception, rule: str, operation: str, *, named: bool = False) -> Reason:
        """The reason that a kernel states in a ValueError, "REQUIRED, found FOUND"; for other errors ``rule``, and what the
        library under the kernel says; of a driver's function with the error's class and place, if that is to be ``named``."""
        required, separator, found = str(error).partition(", found ")
        if separator and type(error) is ValueError and "expected " not in required:
            return Reason(required, found, operation)
        return Reason(rule, raised(error) if named else first_line(error), operation)

    def as_dict(self) -> dict[str, Any]:
        """The reason as JSON-ready data, empty parts left out."""
        return {key: value if key in ("line", "column") else str(value) for key, value in asdict(self).items() if value}


def listed(found: object) -> str:
    """The found value as a reader would write it: the members of a tuple without Python's marks."""
    return ", ".join(map(str, found)) if isinstance(found, tuple) else str(found)


_LONGEST_CAUSE, _LONGEST_READ = 400, 4000
"""Letters that are quoted of a message, and that are searched for its cause."""
_SURROUNDINGS = re.compile(
    r"\[ONNXRuntimeError\] : \d+ : \w+ : |Load model from .*? failed: ?|Exception during initialization: |Exception caught: "
    r"|This is an invalid model\. In Node, .* , Error "
    r"|(?<!\S)/?[\w./+-]+\.(?:cc|cpp|cu|h|hpp):\d+ (?:[\w:<>,&*~ ]+(?:<lambda\([^()]*\)>)?[\w:<>,&*~ ]*"
    r"\((?:[^()]|\([^()]*\))*\)(?: const)?(?: \[with [^\]]*\])? )?"
)
"""What is around the cause in messages of ONNX Runtime: its code, the file's path, the node's values, the place in its source."""


_RUNNING = re.compile(r"Non-zero status code returned while running (\w+) node\. Name:'([^']*)' Status Message: ")


_WITHOUT_MESSAGE = {"MemoryError": "not enough memory", "RecursionError": "nesting that is too deep"}
"""Classes of exceptions that need none → what is found then."""


def first_line(error: BaseException) -> str:
    """The cause in an exception's message, as one line; never its class, which is nothing that a file or a call holds. A longer
    one is cut after a word, and says so."""
    if isinstance(error, KeyError):
        return f"no entry {error}"
    if isinstance(error, UnicodeDecodeError):
        return f"bytes that are not UTF-8, at {error.start}"
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = next(iter(lines), _WITHOUT_MESSAGE.get(type(error).__name__, "an error without a message"))
    if text.endswith(":"):  # What is meant follows.
        text = " ".join(lines)
    text = _SURROUNDINGS.sub("", _RUNNING.sub(r"\1 '\2': ", text[:_LONGEST_READ])).strip() or text
    return text if len(text) <= _LONGEST_CAUSE else f"{text[:_LONGEST_CAUSE].rsplit(' ', 1)[0][:_LONGEST_CAUSE]} […]"


_NOT_OF_THE_DRIVER = ("nnbridge", "nnbridge_onnx", "nnbridge_tflite", "importlib", "numpy")
"""Packages between nnbridge and the code that it calls, and what both call."""


def raised(error: BaseException) -> str:
    """An exception of a driver's code with its place there: ``ValueError: no scale (my_npu.py line 12)``; others in words."""
    package, place = "", ""
    for frame, line in walk_tb(error.__traceback__):
        name = str(frame.f_globals.get("__name__", "")).partition(".")[0]
        if name not in _NOT_OF_THE_DRIVER and package in ("", name):
            # The deepest line of the first package that was called, not of the libraries below it.
            package, place = name, f" ({os.path.basename(frame.f_code.co_filename)} line {line})"
    return f"{type(error).__name__}: {error}{place}" if place else first_line(error)


NO_SUCH_FILE = "no such file"
_UNREADABLE: dict[type[OSError], str] = {
    FileNotFoundError: NO_SUCH_FILE,
    IsADirectoryError: "a folder",
    PermissionError: "no permission",
}


def cannot_read(error: BaseException) -> str:
    """The reason why a file cannot be read or written: plain words for the usual ones, else the system's, without its name and
    number; raises the shortage that it is."""
    pass_shortage(error)
    words = next((words for kind, words in _UNREADABLE.items() if isinstance(error, kind)), "")
    return words or getattr(error, "strerror", None) or first_line(error)


def counted(number: int, noun: str) -> str:
    """``1 step``, ``2 steps``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


_MAX_OPTIONS = 500
"""Words that one is compared with: a file that defines thousands may misspell thousands."""


_LONGEST_WORD = 200


def near(word: str, options: Iterable[str]) -> str:
    """A hint at what could have been meant, or nothing."""
    plain = {_plain(option): option for option in islice(options, _MAX_OPTIONS)}
    found = similar(_plain(word), plain, 1, 0.7)
    return f" (did you mean {plain[found[0]]}?)" if found else ""


def similar(word: str, options: Iterable[str], most: int = 3, least: float = 0.5) -> list[str]:
    """The options that are most like a word, none for one of hundreds of letters: comparing takes the square of its length."""
    return get_close_matches(word, options, most, least) if len(word) <= _LONGEST_WORD else []


def _plain(word: str) -> str:
    return word.upper().replace("_", "").replace("-", "")


class NnbridgeError(Exception):
    """Base of every error that nnbridge raises on purpose."""

    def __init__(self, message: str | Reason) -> None:
        super().__init__(str(message))
        self.reason = message if isinstance(message, Reason) else Reason(message)
        self.reasons: tuple[Reason, ...] = (self.reason,)
        """All mistakes, where one error has several."""


class RefusalError(NnbridgeError):
    """A file, a value, a driver or a model is at fault: every error but a shortage. What tries and goes on without catches it."""


class ConversionError(RefusalError):
    """A model file cannot be read or converted; the message names the file and the place in it."""


class OptionError(ConversionError):
    """An option of the conversion does not fit the file."""


class InapplicableError(ConversionError):
    """A device looks at the operators of another format than the file's: neither of them is at fault."""


class InputError(RefusalError):
    """A value of the user's does not fit: a missing input, a wrong shape or type, an unknown device."""

    @classmethod
    def of(cls, mistakes: Iterable[Reason]) -> InputError:
        """One error for all mistakes of a file, a line each."""
        reasons = tuple(mistakes)
        found = cls(reasons[0] if len(reasons) == 1 else "\n".join(map(str, reasons)))
        found.reasons = reasons
        return found


class PackageError(InputError):
    """A package is not installed, or cannot be imported."""

    @classmethod
    def needed(
        cls, name: str, package: str, found: object, operand: str = "", operation: str = "", file: str = ""
    ) -> PackageError:
        """The error that names a package, and how pip installs it; raises the shortage that keeps one from loading."""
        short = shortage_of(found) if isinstance(found, BaseException) else None
        if short is not None:  # It is installed.
            raise short
        command = f"pip install {package}"
        clone = " in a clone of nnbridge" if package.startswith("'.[") else ""
        return cls(Reason(f"{name} ({command}{clone})", str(found), operation, operand, file=file, hint=command))


class ShortageError(NnbridgeError):
    """This process, or its machine, lacks what a call needs: memory, descriptors, threads, processes, space on a disk.

    No file, driver or model is at fault, and none is blamed: the error passes through whatever else turns errors into facts about
    these. NNAPI clients see ``code``.
    """

    def __init__(self, message: str | Reason, code: ResultCode = ResultCode.RESOURCE_EXHAUSTED_TRANSIENT) -> None:
        super().__init__(message)
        self.code = code


class ExhaustedError(InputError):
    """A file of the user's asks for more work than is done for one; no device is at fault."""


class NnapiError(RefusalError):
    """An NNAPI call failed; ``code`` is Android's result code."""

    code: ClassVar[ResultCode] = ResultCode.OP_FAILED
    planned: Any = None
    """The plan (:class:`nnbridge.plan.Planned`) that failed, where it is one that did."""


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

_SHORTAGES = {
    errno.EMFILE: "no file could be opened (limit of this process's descriptors)",
    errno.ENFILE: "no file could be opened (limit of the machine's open files)",
    errno.EAGAIN: "no process could be started (limit of processes)",
    errno.ENOMEM: "not enough memory",
    errno.ENOBUFS: "not enough memory for a socket",
    errno.ENOSPC: "no space is left",
    errno.EFBIG: "no file or memory file of this size is allowed (limit of file sizes)",
    **{getattr(errno, name): "no space is left (quota)" for name in ("EDQUOT",) if hasattr(errno, name)},
}
"""What the system says → what is short."""
_NO_THREAD = "can't start new thread"
"""Python's own words, of a RuntimeError (``Modules/_threadmodule.c``)."""
_NOT_LOADED = ("failed to map segment", "annot allocate memory", "Too many open files")
"""The loader's words, of an ImportError for a library that is there (``elf/dl-map-segments.h`` of glibc, ``strerror``)."""
_NO_FOLDER = "No usable temporary directory found"
"""Python's own words, of an error for a file that is missing (``Lib/tempfile.py``)."""


def shortage_of(error: BaseException) -> ShortageError | None:
    """The shortage that an error of the system or of Python means; None for any other error.

    Not a MemoryError: who raises it may have asked for too much.
    """
    if isinstance(error, ShortageError):
        return error
    if isinstance(error, RuntimeError) and _NO_THREAD in str(error):
        return ShortageError("no thread could be started (limit of processes, or of memory)")
    if isinstance(error, ImportError) and any(words in str(error) for words in _NOT_LOADED):
        return ShortageError("not enough memory or descriptors to load a library", ResultCode.OUT_OF_MEMORY)
    if isinstance(error, SystemError) and "without" in str(error) and "exception set" in str(error):
        return ShortageError("not enough memory, or native code that failed without a reason", ResultCode.OUT_OF_MEMORY)
    if isinstance(error, FileNotFoundError) and str(error.strerror).startswith(_NO_FOLDER):
        return ShortageError(f"no folder for temporary files could be written to ({error.strerror})")
    said = _SHORTAGES.get(error.errno or 0) if isinstance(error, OSError) else None
    if said is None:
        return None
    name = getattr(error, "filename", None)
    code = ResultCode.OUT_OF_MEMORY if getattr(error, "errno", None) == errno.ENOMEM else ResultCode.RESOURCE_EXHAUSTED_TRANSIENT
    return ShortageError(said if name is None or isinstance(name, int) else f"{said}: {name}", code)


def lacking(error: BaseException) -> ShortageError | None:
    """:func:`shortage_of`, and where memory was short: for commands that go on with their other cells or cases."""
    out_of_memory = isinstance(error, MemoryError) or isinstance(error.__cause__, MemoryError)
    return ShortageError("not enough memory", ResultCode.OUT_OF_MEMORY) if out_of_memory else shortage_of(error)


def pass_shortage(error: BaseException) -> None:
    """Raise the shortage that an error means, if it means one. Each handler of all errors begins with this."""
    found = shortage_of(error)
    if found is not None:
        raise found from error
