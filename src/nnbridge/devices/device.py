"""The Device protocol: capabilities, supported operations, preparation, execution.

The protocol is that of NNAPI's drivers (``IDevice``, ``IPreparedModel``, HAL 1.3 and AIDL), in Python's terms. A driver
answers with values; what it may raise is an :class:`~nnbridge.errors.NnapiError`. Anything else it does wrong becomes
the NNAPI error that Android reports.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any, ClassVar, TypeAlias

import numpy as np
import numpy.typing as npt

from nnbridge.errors import InputError, OpFailedError, Reason, pass_shortage, raised
from nnbridge.extensions import Extension, value_size
from nnbridge.model import Model, Operand, known
from nnbridge.records import dataclass
from nnbridge.types import (
    BYTE_SIZE_OF_CACHE_TOKEN,
    RUNTIME_FEATURE_LEVEL,
    DeviceTypeCode,
    FeatureLevel,
    OperandCode,
    PreferenceCode,
    PriorityCode,
    ResultCode,
    is_extension,
)

Support: TypeAlias = "bool | Reason"
"""A device's answer for one operation: True, or False, or better the reason of the no."""

UNLISTED = float(np.finfo(np.float32).max)
"""Figure of an operand type that a device does not list (FLT_MAX)."""


@dataclass(frozen=True, slots=True)
class Performance:
    """Figures relative to the CPU's 1.0, lower is better (``PerformanceInfo``)."""

    exec_time: float = UNLISTED
    power_usage: float = UNLISTED

    def value(self, preference: int) -> float:
        """The figure that a preference compares: power for LOW_POWER, time otherwise."""
        return self.power_usage if preference == PreferenceCode.LOW_POWER else self.exec_time


@dataclass(frozen=True)
class Capabilities:
    """A device's statement of its speed and power (``Capabilities``)."""

    operands: Mapping[int, Performance] = field(default_factory=dict)
    """Figures by operand type; a type that is missing performs at FLT_MAX."""
    relaxed_scalar: Performance = Performance()
    """FLOAT32 in relaxed models."""
    relaxed_tensor: Performance = Performance()
    """TENSOR_FLOAT32 in relaxed models."""
    if_performance: Performance = Performance()
    while_performance: Performance = Performance()

    def of(self, code: int, relaxed: bool) -> Performance:
        """Figures for an operation whose first input has this type."""
        if relaxed and code == OperandCode.FLOAT32:
            return self.relaxed_scalar
        if relaxed and code == OperandCode.TENSOR_FLOAT32:
            return self.relaxed_tensor
        return self.operands.get(code, Performance())


_RATED = [code for code in OperandCode if code < OperandCode.MODEL]


def uniform_capabilities(
    other: Performance, float32: Performance | None = None, relaxed: Performance | None = None
) -> Capabilities:
    """Figures as the sample drivers have them: one for most types, one for float32, one for relaxed float32."""
    float32 = float32 or other
    relaxed = relaxed or float32
    floats = (OperandCode.FLOAT32, OperandCode.TENSOR_FLOAT32)
    return Capabilities({code: float32 if code in floats else other for code in _RATED}, relaxed, relaxed, other, other)


@dataclass(frozen=True, slots=True)
class OutputBuffer:
    """The memory of an output: writable bytes (flat uint8; None for an omitted output) and its shape as far as it is known."""

    data: npt.NDArray[np.uint8] | None
    dims: tuple[int, ...] = ()


Observe: TypeAlias = "Callable[[int, int, npt.NDArray[Any]], None]"
"""``observe(subgraph, operand, value)``: a value as computed, or a body's input, of an operand of
``model.subgraphs()[subgraph]``. The array is valid during the call only; loops report each iteration."""


@dataclass(frozen=True, slots=True)
class Request:
    """One execution: inputs in model-input order with their true shapes (None: omitted), and where outputs go."""

    inputs: tuple[npt.NDArray[Any] | None, ...]
    outputs: tuple[OutputBuffer, ...]
    deadline: int | None = None
    """``time.monotonic_ns`` after which the execution need not go on."""
    loop_timeout: int | None = None
    """Nanoseconds for each WHILE loop; None for NNAPI's default of 2 s."""
    measure: bool = False
    hints: tuple[tuple[str, int, bytes], ...] = ()
    """Extension attributes: extension name, number within the extension, value."""
    observe: Observe | None = None
    """Where a device that can report intermediate values reports them; devices may ignore it."""


LONGEST_TIMEOUT_NS = 20 * 86_400 * 1_000_000_000
"""20 days: the system's waits end at 2**31 ms, and a time-out of more is none to speak of."""


def deadline_after(nanoseconds: int | None) -> int | None:
    """The deadline of a time-out that starts now; None for none."""
    return None if nanoseconds is None or nanoseconds > LONGEST_TIMEOUT_NS else time.monotonic_ns() + nanoseconds


@dataclass(frozen=True, slots=True)
class OutputShape:
    """An execution's statement on an output: its dimensions, and whether the buffer was large enough."""

    dims: tuple[int, ...]
    sufficient: bool = True


@dataclass(frozen=True, slots=True)
class Result:
    """The outcome of an execution. Times are nanoseconds, None where not measured."""

    code: ResultCode = ResultCode.NO_ERROR
    shapes: tuple[OutputShape, ...] = ()
    reason: Reason | None = None
    on_device: int | None = None
    in_driver: int | None = None


MAX_CACHE_FILES = 32
"""Most files of either kind that a device may ask for."""


@dataclass(frozen=True, slots=True)
class CacheFiles:
    """The cache of a compiled model: the contents of its model cache files and of its data cache files.

    The model cache is for what must not be tampered with, the data cache for what only would change the answer (constants).
    """

    model: tuple[bytes | memoryview, ...] = ()
    data: tuple[bytes | memoryview, ...] = ()


@dataclass(frozen=True, slots=True)
class PrepareModelConfig:
    """The settings with which a model is prepared (``PrepareModelConfig``)."""

    preference: int = PreferenceCode.FAST_SINGLE_ANSWER
    priority: int = PriorityCode.MEDIUM
    deadline: int | None = None
    """``time.monotonic_ns`` after which preparing need not go on."""
    token: bytes = bytes(BYTE_SIZE_OF_CACHE_TOKEN)
    """Stands for what is prepared here; all zero where nothing is cached."""
    save: Callable[[CacheFiles], None] | None = None
    """Where the device hands over its cache files; None if the client requests none."""
    hints: tuple[tuple[str, int, bytes], ...] = ()
    """Extension attributes: extension name, number within the extension, value."""


@dataclass(frozen=True)
class ModelInterface:
    """Type, dimensions, scale and zero point of each input and output of a model."""

    inputs: tuple[tuple[int, tuple[int, ...], float, int], ...]
    outputs: tuple[tuple[int, tuple[int, ...], float, int], ...]

    @classmethod
    def of(cls, model: Model) -> ModelInterface:
        """A model's interface."""
        main = model.main
        sides = ([main.operands[i] for i in side] for side in (main.inputs, main.outputs))
        return cls(*(tuple((o.type, o.dims, o.scale, o.zero_point) for o in side) for side in sides))


class PreparedModel(ABC):
    """A model that a device is ready to run (``IPreparedModel``). May be executed from several threads."""

    interface: ModelInterface | None = None
    """Of a model that was prepared from the cache, if the device knows it: the runtime compares it with the step's."""

    @abstractmethod
    def execute(self, request: Request) -> Result:
        """Run once, synchronously."""

    def bind(self, request: Request) -> Callable[[], None] | None:
        """A function that repeats a request that succeeded: from the same arrays into the same buffers, of the same shapes.

        It is called by one thread at a time. If it raises anything, the request is executed again, which reports what is wrong.
        None, the default, if every run has to be executed.
        """
        return None


@dataclass(frozen=True, slots=True)
class BufferRole:
    """A use of a device memory: an input or output of a model that the device prepared (``BufferRole``)."""

    model: PreparedModel
    direction: str
    """``input`` or ``output``."""
    index: int
    frequency: float
    """How likely the memory is used so, above 0 and at most 1."""


def _with_config(prepare: Callable[..., PreparedModel]) -> Callable[..., PreparedModel]:
    """``prepareModelWithConfig`` of a class that has ``prepareModel``."""

    def prepare_model_with_config(self: Device, model: Model, config: PrepareModelConfig) -> PreparedModel:
        return prepare(self, model, config.preference, config.priority, config.deadline)

    return prepare_model_with_config


def _without_config(prepare: Callable[..., PreparedModel]) -> Callable[..., PreparedModel]:
    """``prepareModel`` of a class that has ``prepareModelWithConfig``."""

    def prepare_model(
        self: Device,
        model: Model,
        preference: int = PreferenceCode.FAST_SINGLE_ANSWER,
        priority: int = PriorityCode.MEDIUM,
        deadline: int | None = None,
    ) -> PreparedModel:
        return prepare(self, model, PrepareModelConfig(preference, priority, deadline))

    return prepare_model


def require_driver(device: Device, what: str) -> None:
    """InputError for a device that is not a driver: NNAPI's CPU, the host or one that judges a file's operators before NNAPI.

    ``what``: the form of a device that only a driver has.
    """
    if device.kind != "device":
        raise InputError(Reason(f"a driver for {what}", device.name, operand="device"))
    if device.before_nnapi:
        rule = f"a driver for {what}, which takes NNAPI operations ({device.name} looks at a file's operators: name it by itself)"
        raise InputError(Reason(rule, device.name, operand="device"))


class Device(ABC):
    """An NNAPI device (``IDevice``)."""

    name: str
    version: str = "1"
    feature_level: int = RUNTIME_FEATURE_LEVEL
    type: DeviceTypeCode = DeviceTypeCode.OTHER
    kind: str = "device"
    """``device`` for drivers, ``cpu`` for NNAPI's own CPU, ``host`` for what NNAPI cannot express."""
    late: bool = False
    """Operations that only later steps of this device read run there: a host that fuses them with what reads them."""
    before_nnapi: ClassVar[bool] = False
    """True for a device that looks at a file's operators and was not asked about one yet: it takes nothing of an NNAPI model."""
    is_profile: ClassVar[bool] = False
    """True for a device that a profile describes: one chip's, or one driver's."""

    def __repr__(self) -> str:
        return f"<{self.kind} {self.name}>"

    @property
    @abstractmethod
    def capabilities(self) -> Capabilities:
        """Figures for the partitioner; asked once."""

    @abstractmethod
    def supported_operations(self, model: Model) -> Sequence[Support]:
        """``getSupportedOperations``: an answer for each operation of the main subgraph, in order."""

    def uncertainties(self, model: Model) -> Sequence[str]:
        """For each operation of the main subgraph why the device's answer is open; empty texts for a driver, which knows."""
        return [""] * len(model.main.operations)

    def supported_extensions(self) -> Sequence[Extension]:
        """``getSupportedExtensions``."""
        return ()

    def prepare_model(
        self,
        model: Model,
        preference: int = PreferenceCode.FAST_SINGLE_ANSWER,
        priority: int = PriorityCode.MEDIUM,
        deadline: int | None = None,
    ) -> PreparedModel:
        """``prepareModel``: raise an NnapiError if it cannot be done.

        A device has this method or :meth:`prepare_model_with_config`; each calls the other by default.
        """
        return self.prepare_model_with_config(model, PrepareModelConfig(preference, priority, deadline))

    def prepare_model_with_config(self, model: Model, config: PrepareModelConfig) -> PreparedModel:
        """``prepareModelWithConfig``, which the runtime calls: for devices that cache or that read attributes.

        ``config.save`` accepts the cache files, as many as :meth:`number_of_cache_files_needed` states, before this returns.
        """
        return self.prepare_model(model, config.preference, config.priority, config.deadline)

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        # A class that has one of the two replaces both of the class that it derives from. The other calls this class's own
        # one, not that of the object: a derived class that calls it through super() would come back to itself.
        own = vars(cls)
        for name, other, by in (
            ("prepare_model", "prepare_model_with_config", _with_config),
            ("prepare_model_with_config", "prepare_model", _without_config),
        ):
            if name in own and other not in own:
                setattr(cls, other, by(own[name]))
                break
        if cls.prepare_model is Device.prepare_model and cls.prepare_model_with_config is Device.prepare_model_with_config:
            raise TypeError(f"{cls.__name__} has neither prepare_model nor prepare_model_with_config")

    def number_of_cache_files_needed(self) -> tuple[int, int]:
        """``getNumberOfCacheFilesNeeded``: model cache files and data cache files, at most 32 each; two 0s: no caching."""
        return 0, 0

    def prepare_model_from_cache(self, files: CacheFiles, token: bytes, deadline: int | None = None) -> PreparedModel:
        """``prepareModelFromCache``: from the files that were handed over under this token; any error means to prepare again."""
        raise OpFailedError(Reason("a device that caches compiled models", self.name, "prepareModelFromCache"))

    def allocate(self, operand: Operand, roles: Sequence[BufferRole]) -> npt.NDArray[np.uint8]:
        """``allocate``: bytes for a device memory of this type and these dimensions (0: not known), which serves in these roles.

        Asked from feature level 4 on. Devices here see the host's memory, so that bytes stand for Android's buffers and tokens.
        This default is the sample drivers': OP_FAILED for extension types and for sizes that are not known.
        """
        if is_extension(operand.type) or (operand.is_tensor and not known(operand.dims)):
            raise OpFailedError(Reason("a base type and known dimensions", str(operand), "allocate"))
        return np.empty(value_size(operand), np.uint8)

    @property
    def level(self) -> FeatureLevel:
        """The smaller of the device's and the runtime's feature level."""
        return FeatureLevel(min(self.feature_level, RUNTIME_FEATURE_LEVEL))


def cache_files_needed(device: Device) -> tuple[int, int] | Reason:
    """The number of cache files that a device needs, or the mistake in its answer; NNAPI does not list such a device (fact
    D12)."""
    rule = f"0 to {MAX_CACHE_FILES} model cache files and as many data cache files"
    try:
        models, data = device.number_of_cache_files_needed()
        if 0 <= models <= MAX_CACHE_FILES and 0 <= data <= MAX_CACHE_FILES:
            return models, data
        return Reason(rule, f"{models} and {data}", device.name)
    except Exception as error:
        pass_shortage(error)
        return Reason(rule, raised(error), device.name)
