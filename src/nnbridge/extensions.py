"""Vendor extensions: their definition, their prefixes in a process, and host extensions.

An extension is a name, a table of operand types and (for a host extension) operations. NNAPI identifies an
extension inside a model by a 16-bit prefix that is handed out per process in order of first use
(``TypeManager`` of Android's runtime, feature level 3); saved models therefore store names.

A *host extension* holds what NNAPI cannot express: a converter emits such operations and nnbridge's host device runs
them. Converters publish theirs under the entry point group ``nnbridge.host_extensions``.
"""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property
from importlib import import_module
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from nnbridge.allowlist import process_may_use_extensions
from nnbridge.entry_points import installed
from nnbridge.errors import BadDataError, Reason, Why, first_line
from nnbridge.model import Array, ChannelQuant, Model, Operand, Operation, Subgraph
from nnbridge.records import dataclass
from nnbridge.types import EXTENSION_PREFIX_SHIFT, TYPE_FACTS, OperationCode, is_extension, split_extension_code, type_name

MAX_PREFIXES = 65535
HOST_EXTENSIONS_GROUP = "nnbridge.host_extensions"


@dataclass(frozen=True, slots=True)
class Codec:
    """Values that are several arrays, or arrays of text, as the bytes that operands of a type hold."""

    pack: Callable[[Sequence[Array]], Array]
    """TypeError for arrays that are no such value."""
    unpack: Callable[[Array], list[Array]]
    """OP_FAILED for bytes that are none."""
    several: bool = True
    """False for values that are always one array."""


@dataclass(frozen=True, slots=True)
class ExtensionOperandType:
    """One operand type of an extension: its number, whether it is a tensor, bytes of one element."""

    number: int
    is_tensor: bool
    byte_size: int
    name: str = ""
    dtype: str | None = None
    """NumPy's element type, where one exists; host extensions use it, NNAPI knows bytes only."""
    codec: Codec | None = None
    """How the bytes are read, where they represent other values."""


@dataclass(frozen=True)
class Extension:
    """A device's statement on an extension (``IDevice::getSupportedExtensions``)."""

    name: str
    operand_types: tuple[ExtensionOperandType, ...] = ()

    def operand_type(self, number: int) -> ExtensionOperandType | None:
        """The operand type with this number."""
        return next((t for t in self.operand_types if t.number == number), None)


class NeedsValue(Exception):
    """A shape rule or kernel reads a value that only execution knows."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Arg:
    """One operand as kernels see it, NNAPI's, the host's and drivers': its declaration and, where known, its value.

    Immutable; the value's elements are not copied. ``value`` is None for an omitted operand, for outputs, and while preparing for
    what only execution knows.
    """

    type: int
    dims: tuple[int, ...] = ()
    scale: float = 0.0
    zero_point: int = 0
    channel_quant: ChannelQuant | None = None
    value: Array | None = None
    present: bool = True
    """False for an omitted operand."""
    constant: bool = False
    """The value is part of the model."""
    extension_data: bytes | None = None
    """What ``setOperandExtensionData`` attached."""

    @classmethod
    def of(cls, operand: Operand, value: Array | None = None, *, present: bool = True) -> Arg:
        """The argument for a model's operand."""
        return cls(
            operand.type,
            operand.dims,
            operand.scale,
            operand.zero_point,
            operand.channel_quant,
            value,
            present,
            operand.is_constant,
            operand.extension_data,
        )

    def replace(self, **changes: Any) -> Arg:
        """A copy with some fields changed; TypeError for a name that is no field."""
        return replace(self, **changes)

    def with_value(self, value: Array | None, dims: tuple[int, ...]) -> Arg:
        """A copy with another value of these dimensions; several times faster than :meth:`replace`."""
        more = self.present, self.constant, self.extension_data
        return Arg(self.type, dims, self.scale, self.zero_point, self.channel_quant, value, *more)

    @property
    def data(self) -> Array:
        """The value as an array; raises :class:`NeedsValue` if it is not known yet."""
        if self.value is None:
            raise NeedsValue
        return self.value

    @property
    def rank(self) -> int:
        """Number of dimensions."""
        return len(self.dims)

    @property
    def dtype(self) -> np.dtype[np.generic]:
        """NumPy's element type for this operand type."""
        dtype = extension_dtype(self.type) if is_extension(self.type) else TYPE_FACTS[self.type].dtype
        assert dtype is not None, f"{type_name(self.type)} has no element type"
        return dtype

    @property
    def real(self) -> npt.NDArray[np.float32]:
        """The value as real numbers in float32: ``(v - zero_point) * scale`` for quantised types."""
        data = self.data
        return data.astype(np.float32, copy=False) if data.dtype.kind == "f" else real_numbers(self)(data)

    @property
    def centred(self) -> npt.NDArray[np.int32]:
        """``v - zero_point`` in int32."""
        return self.data.astype(np.int32) - np.int32(self.zero_point)

    def __repr__(self) -> str:
        return f"Arg({type_name(self.type)}{list(self.dims)})"


def real_numbers(arg: Arg) -> Callable[[Array], npt.NDArray[np.float32]]:
    """From an operand's quantised values to the real numbers they represent: ``(v - zero_point) * scale`` in float32."""
    scale, zero_point = np.asarray(arg.scale, np.float32), np.float32(arg.zero_point)
    if arg.channel_quant is not None:
        shape = [1] * arg.rank
        shape[arg.channel_quant.channel_dim] = -1
        scale = np.asarray(arg.channel_quant.scales, np.float32).reshape(shape)

    def real(values: Array) -> npt.NDArray[np.float32]:
        numbers = values.astype(np.float32)
        if zero_point:
            numbers -= zero_point
        numbers *= scale
        return numbers

    return real


HostKernel: TypeAlias = "Callable[[Sequence[Arg], Sequence[Arg], Mapping[str, Any]], Sequence[Array]]"
"""``kernel(inputs, outputs, options)`` returns the output arrays; ``outputs`` carry the declared types and dimensions."""

PreparedHostKernel: TypeAlias = "Callable[[Sequence[Array | None]], Sequence[Array]]"
"""``run(inputs)`` returns the output arrays. The inputs have the shapes that were prepared for, None for omitted ones."""

HostPrepare: TypeAlias = "Callable[[Sequence[Arg], Sequence[Arg], Mapping[str, Any]], PreparedHostKernel | ModelKernel | None]"
"""``prepare(inputs, outputs, options)`` returns the kernel for these dimensions and constants.

Constants have data, other inputs have none; all dimensions of inputs are known. None where values are needed to prepare.
"""


Dims: TypeAlias = "Sequence[tuple[int, ...]]"
Work: TypeAlias = "Callable[[Mapping[str, Any]], Callable[[Dims, Dims], int] | None]"
"""``work(options)`` returns what counts multiply-adds, by the dimensions of inputs, () of omitted ones, and outputs; None: 0."""


class StatedKernel:
    """A prepared host kernel that says what it computes, so that a device may compute it otherwise; its call is the reference."""

    inputs: Sequence[Arg]
    """All inputs of the operation."""
    outputs: Sequence[Arg]
    places: tuple[int, ...]
    """The inputs that runs provide."""

    def __call__(self, arrays: Sequence[Array | None]) -> Sequence[Array]:
        raise NotImplementedError


@dataclass(frozen=True, eq=False)
class ModelKernel:
    """A prepared host kernel that is a model, of NNAPI's operations and the host's, which the device runs."""

    model: Model
    places: tuple[int, ...]
    """The operation's inputs that the model's are."""
    arguments: Callable[[Sequence[Array | None]], list[Array | None]]
    """From the operation's inputs to the model's."""
    results: Callable[[Sequence[Array]], Sequence[Array]]
    """From the model's outputs to the operation's."""


@dataclass(frozen=True)
class HostOperation:
    """An operation of a host extension: it can be planned, and run if it has a kernel; else it is refused with ``reason``."""

    name: str
    kernel: HostKernel | None = None
    reason: str = ""
    control: str = ""
    """``if`` or ``while``: operands as those of NNAPI's operation of this name, bodies of any operations."""
    prepare: HostPrepare | None = None
    """Called once for each combination of input dimensions: at prepareModel where they are declared, else when they first
    occur. What it returns runs instead of ``kernel``, from several threads at once; ``kernel`` serves where it returns None."""
    work: Work | None = None
    """What counts its multiply-adds; None for operations that have none."""


@dataclass(frozen=True)
class HostExtension(Extension):
    """An extension whose operations nnbridge's host device runs.

    The last input of each operation is a tensor of the extension's ``OPTIONS`` type: the operator's options as UTF-8 JSON.
    """

    operations: Mapping[int, HostOperation] = field(default_factory=dict)


OPTIONS_TYPE = ExtensionOperandType(0xFFFF, True, 1, "OPTIONS", "u1")
"""The operand type of a host operation's options; part of every host extension."""


class TypeManager:
    """Extensions known to this process, and the prefixes of names in order of first request."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._prefixes: dict[str, int] = {}
        self._names: list[str] = [""]
        self._extensions: dict[str, Extension] = {}
        self._disabled: set[str] = set()
        self._hosts_loaded: set[str | None] = set()
        """Names whose host extension was looked for; None: all of them are loaded."""

    @cached_property
    def allowed(self) -> bool:
        """True if this process may use vendor extensions, decided once (facts X20, X21)."""
        return process_may_use_extensions()

    def check_allowed(self, code: int, call: str) -> None:
        """BAD_DATA for a vendor extension's code in a process that may not use them (fact X22).

        Host extensions are nnbridge's own and need no leave.
        """
        if not is_extension(code) or self.allowed:
            return
        name = self.name(code) or f"{code:#x}"
        if self.host_extension(name) is None:
            rule = "a client that may use vendor extensions (docs/drivers.md)"
            raise BadDataError(Reason(rule, f"one that may not use {name}", call))

    def register(self, extension: Extension) -> bool:
        """Make an extension's types usable; False if another device declared the name with other types.

        Such a clash disables the extension for everybody, as in Android.
        """
        with self._lock:
            known = self._extensions.get(extension.name)
            if known is not None and _shape(known) != _shape(extension):
                self._disabled.add(extension.name)
            if extension.name in self._disabled:
                return False
            self._extensions.setdefault(extension.name, extension)
            return True

    def prefix(self, name: str, most: int = MAX_PREFIXES) -> int:
        """The prefix of a name, a new one if it has none; any name gets one, unless ``most`` are assigned already."""
        known = self._prefixes.get(name)  # never taken back, so that it can be read without the lock
        if known is not None:
            return known
        with self._lock:
            if name not in self._prefixes:
                if len(self._names) > most:
                    raise BadDataError(Reason(f"at most {most} extension prefixes", name))
                self._prefixes[name] = len(self._names)
                self._names.append(name)
            return self._prefixes[name]

    def code(self, name: str, number: int) -> int:
        """The operand or operation code of a number within a named extension."""
        return self.prefix(name) << EXTENSION_PREFIX_SHIFT | number

    def name(self, code: int) -> str | None:
        """The extension name of a code's prefix, if there is one."""
        prefix, _ = split_extension_code(code)
        return self._names[prefix] if 0 < prefix < len(self._names) else None

    def extension(self, name: str) -> Extension | None:
        """A registered extension by name; host extensions are found on first need."""
        self._load_host(name)
        return None if name in self._disabled else self._extensions.get(name)

    def registered_name(self, code: int) -> str:
        """The name of a code's prefix; empty while no device has registered it (fact X8)."""
        name = self.name(code)
        return name if name and self.extension(name) is not None else ""

    def operand_type(self, code: int) -> ExtensionOperandType | None:
        """The registered operand type of an extension code."""
        name = self.name(code)
        extension = self.extension(name) if name else None
        return extension.operand_type(split_extension_code(code)[1]) if extension else None

    def readable(self, code: int) -> str:
        """An operand type for readers: NNAPI's name, or the extension's and what it calls the type."""
        name = self.name(code) if is_extension(code) else None
        if name is None:
            return type_name(code)
        declared = self.operand_type(code)
        return f"{name} {declared.name}" if declared and declared.name else f"{name}#{split_extension_code(code)[1]}"

    def host_extension(self, name: str) -> HostExtension | None:
        """An installed host extension by name. Others are not imported for it."""
        self._load_host(name)
        found = self._extensions.get(name)
        return found if isinstance(found, HostExtension) else None

    def host_extensions(self) -> dict[str, HostExtension]:
        """Name → host extension, for all that are installed."""
        self._load_hosts()
        return {name: e for name, e in self._extensions.items() if isinstance(e, HostExtension)}

    def _load_host(self, name: str) -> None:
        """Entry points have the names of their extensions; where none has it, all are looked at."""
        if not self._hosts_loaded.isdisjoint((name, None)):
            return
        for extension in installed(HOST_EXTENSIONS_GROUP, name):
            self.register(extension)
        if name not in self._extensions:
            self._load_hosts()
        self._hosts_loaded.add(name)

    def _load_hosts(self) -> None:
        if None in self._hosts_loaded:
            return
        for extension in installed(HOST_EXTENSIONS_GROUP):
            self.register(extension)
        self._hosts_loaded.add(None)


def _shape(extension: Extension) -> frozenset[tuple[int, bool, int]]:
    return frozenset((t.number, t.is_tensor, t.byte_size) for t in extension.operand_types)


TYPES = TypeManager()
"""The process's type manager."""


def readable_operation(model: Model, operation: Operation) -> str:
    """An operation's name for readers: NNAPI's, or the extension's with its name in a host extension.

    Of an operator that the extension has no number for, it is the file's own name.
    """
    extension = model.extension_of(operation.type)
    if extension is not None and extension[1] == 0 and operation.source is not None:
        return operation.source.operator
    hosted = TYPES.host_extension(extension[0]) if extension else None
    found = hosted.operations.get(extension[1]) if hosted and extension else None
    return f"{extension[0]}.{found.name}" if extension and found else model.operation_name(operation)


_RUNTIMES = ("org.tensorflow.lite.", "ai.onnx.")
"""What the names of TFLite's and ONNX's own operators begin with."""


def plain_operation(name: str) -> str:
    """A name of :func:`readable_operation` as the file has it: without the host extension that it is an operation of."""
    return next((name.removeprefix(start) for start in _RUNTIMES if name.startswith(start)), name)


def host_operation(model: Model, operation: Operation) -> HostOperation | Reason:
    """The host's implementation of an extension operation, or why there is none."""
    extension = model.extension_of(operation.type)
    if extension is None:
        return Reason("an operation of a host extension", "one of NNAPI", kind=Why.OPERATOR)
    name, number = extension
    hosted = TYPES.host_extension(name)
    if hosted is None:
        return Reason("an installed host extension", name, f"{name}#{number}", kind=Why.OPERATOR)
    unknown = Reason(f"an operation of {name}", str(number), f"{name}#{number}", kind=Why.OPERATOR)
    return hosted.operations.get(number) or unknown


def body_roles(model: Model, operation: Operation) -> tuple[str, str]:
    """The roles of the two bodies of an operation of control flow, NNAPI's or a host extension's."""
    loop = operation.type == OperationCode.WHILE or getattr(host_operation(model, operation), "control", "") == "while"
    return ("condition", "body") if loop else ("then", "else")


def is_options(operand: Operand) -> bool:
    """True for the operand that holds a host operation's options."""
    return is_extension(operand.type) and split_extension_code(operand.type)[1] == OPTIONS_TYPE.number


def host_options(model: Model, subgraph: Subgraph, operation: Operation) -> dict[str, Any]:
    """A host operation's options, none without an OPTIONS operand; BAD_DATA unless they are a constant JSON object in UTF-8."""
    operand = next((subgraph.operands[i] for i in operation.inputs if is_options(subgraph.operands[i])), None)
    if operand is None:
        return {}
    label = operation.name or model.operation_name(operation)
    try:
        options = json.loads(bytes(model.bytes_of(operand))) if operand.is_constant else operand.lifetime.name
    except (ValueError, RecursionError) as error:
        raise BadDataError(Reason("options as JSON in UTF-8", first_line(error), label)) from error
    if not isinstance(options, dict):
        raise BadDataError(Reason("options as a constant JSON object", str(options)[:40], label))
    return options


def operand_dtype(operand: Operand) -> np.dtype[Any]:
    """NumPy's element type of an operand, extension types included; bytes where none is declared."""
    return extension_dtype(operand.type) if is_extension(operand.type) else TYPE_FACTS[operand.type].dtype or np.dtype(np.uint8)


def extension_dtype(code: int) -> np.dtype[Any]:
    """NumPy's element type of an extension's operand type; bytes where none is declared."""
    declared = TYPES.operand_type(code)
    if declared is not None and declared.dtype is not None:
        return numpy_type(declared.dtype)
    size = declared.byte_size if declared is not None else 1
    return np.dtype(f"V{size}") if size > 1 else np.dtype(np.uint8)


def codec_of(operand: Operand) -> Codec | None:
    """The codec of an operand whose bytes stand for a sequence, text or the like."""
    declared = TYPES.operand_type(operand.type) if is_extension(operand.type) else None
    return None if declared is None else declared.codec


def value_size(operand: Operand) -> int:
    """Bytes of a value of known dimensions."""
    return math.prod(operand.dims) * operand_dtype(operand).itemsize


def is_tensor(operand: Operand) -> bool:
    """True for a tensor, of an extension's type too."""
    if not is_extension(operand.type):
        return operand.is_tensor
    declared = TYPES.operand_type(operand.type)
    return bool(operand.dims) if declared is None else declared.is_tensor


def numpy_type(name: str) -> np.dtype[Any]:
    """An element type by name; those that NumPy does not have come from ml_dtypes, which the onnx package installs."""
    try:
        return np.dtype(name)
    except TypeError:
        return np.dtype(getattr(import_module("ml_dtypes"), name))
