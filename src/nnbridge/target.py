"""The phone that a file is planned for: its devices, its Android version, what may fall back where."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nnbridge.engines import HOSTS, OLD_HOSTS, OWN
from nnbridge.errors import InputError, Reason, near
from nnbridge.records import dataclass
from nnbridge.releases import NEWEST, within
from nnbridge.types import ANDROID_LEVELS, RUNTIME_FEATURE_LEVEL, FeatureLevel, PreferenceCode, android_name

if TYPE_CHECKING:
    from nnbridge.devices.device import Device

PREFERENCES = {
    "low-power": PreferenceCode.LOW_POWER,
    "fast": PreferenceCode.FAST_SINGLE_ANSWER,
    "sustained": PreferenceCode.SUSTAINED_SPEED,
}
"""Name of a preference → NNAPI's number."""
PARTITIONING = ("no", "with-fallback", "without-fallback")
"""Partitioning modes, by number, as Android's property ``debug.nn.partition`` has them."""


class Fallback(str, Enum):
    """The place of operations that the devices do not get."""

    CPU = "cpu"
    """NNAPI's CPU: Android's runtime computes them, and the whole model if a driver fails (``createForDevices`` is not used)."""
    APP = "app"
    """The app's own runtime, such as TFLite: its delegate names the device and leaves the rest (``disallow_nnapi_cpu``)."""
    NONE = "none"
    """Nothing: the plan fails if a device refuses an operation (``createForDevices`` without the CPU)."""


@dataclass(frozen=True)
class Target:
    """A phone, and everything else that decides where operations run.

    Attributes are what the command's options of these names are. InputError for words and numbers that none of them has.
    """

    devices: tuple[Device | str, ...] = ()
    """Drivers to offer the model to, in order, before NNAPI's CPU: names as ``nnbridge devices`` has them, or objects."""
    android: str = ""
    """The phone's Android version, such as ``"12"``; it stands for a feature level."""
    feature_level: int = 0
    """The NNAPI feature level, 1 to 8; 0: that of ``android``, else 8."""
    fallback: Fallback | None = None
    """None: as on a phone (:meth:`fallback_for`)."""
    max_partitions: int | None = None
    """Groups of operations that may go to the devices, 0 for no limit; None: as on a phone (:meth:`partition_limit`)."""
    preference: str = "fast"
    """``low-power``, ``fast`` or ``sustained``."""
    partitioning: str = "with-fallback"
    """``no``, ``with-fallback`` or ``without-fallback``, as Android's property ``debug.nn.partition``."""
    host: str = OWN
    """What computes operators that stay with the app's runtime: one of :data:`nnbridge.engines.HOSTS`."""
    kernels: str | None = None
    """``auto``, ``reference`` or ``compiled`` kernels of the CPU; None: ``NNBRIDGE_KERNELS``, else ``auto``."""
    threads: int | None = None
    """Threads of each run; None: 1."""
    cache_dir: Path | None = None
    """A folder for what devices compile, for devices that cache."""

    def __post_init__(self) -> None:
        words = {"preference": PREFERENCES, "partitioning": PARTITIONING, "host": (*HOSTS, *OLD_HOSTS)}
        for name, known in words.items():
            _require_word(name, getattr(self, name), known)
        if self.android:
            _require_word("android", self.android, ANDROID_LEVELS)
        if self.feature_level and not 1 <= self.feature_level <= RUNTIME_FEATURE_LEVEL:
            raise InputError(Reason(f"1 to {int(RUNTIME_FEATURE_LEVEL)}", str(self.feature_level), operand="feature_level"))
        if self.android and self.feature_level not in (0, ANDROID_LEVELS[self.android]):
            rule = f"Android {self.android}'s feature level {int(ANDROID_LEVELS[self.android])}"
            raise InputError(Reason(rule, str(self.feature_level), operand="feature_level"))
        if self.max_partitions is not None and self.max_partitions < 0:
            raise InputError(Reason("0 for no limit, or more", str(self.max_partitions), operand="max_partitions"))
        if self.fallback in (Fallback.APP, Fallback.NONE) and not self.devices:
            raise InputError(Reason("at least one device", "none", operand=f"fallback {self.fallback.value}"))

    @classmethod
    def of(cls, device: str | Device | Iterable[str | Device] = (), fallback: str | None = None, **words: Any) -> Target:
        """A target from a command's words: ``device`` is a name, several joined by commas, a device, or a list of these."""
        devices = _devices(device)
        if fallback is not None:
            _require_word("fallback", fallback, [one.value for one in Fallback])
        return cls(devices, fallback=None if fallback is None else Fallback(fallback), **words)

    def with_(self, **changes: Any) -> Target:
        """The same target with other values."""
        return replace(self, **changes)

    def __getstate__(self) -> dict[str, Any]:
        """Devices by name, so that other processes open their own. InputError for a device that has no name to open it by."""
        from nnbridge.devices import name_of

        return {**self.__dict__, "devices": tuple(one if isinstance(one, str) else name_of(one) for one in self.devices)}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        self.__dict__.update(state)

    @property
    def level(self) -> int:
        """The NNAPI feature level of the phone."""
        return int(self.feature_level or ANDROID_LEVELS.get(self.android, RUNTIME_FEATURE_LEVEL))

    @property
    def android_name(self) -> str:
        """The phone's Android version in words, else its feature level."""
        return f"Android {self.android}" if self.android else android_name(self.level)

    # What limits a plan, in one place. The file's mapping is the app's runtime: TFLite's delegate, ONNX Runtime's provider.

    def fallback_for(self, mapping: str, tflite: str = NEWEST) -> Fallback:
        """The fallback that was asked for, else the phone's.

        From Android 10 on TFLite's delegate compiles for the device that its user names, without NNAPI's CPU: what that device
        does not take stays with TFLite (``disallow_nnapi_cpu``, true by default from TFLite 2.5 on). Elsewhere NNAPI's CPU
        takes it, and where ``partitioning`` was changed, which concerns that CPU only.
        """
        if self.fallback is not None:
            return self.fallback
        delegated = mapping == "delegate" and bool(self.devices) and self.level >= FeatureLevel.LEVEL_3
        delegated = delegated and self.partitioning == PARTITIONING[1] and within(tflite, "2.5", "")
        return Fallback.APP if delegated else Fallback.CPU

    def partition_limit(self, mapping: str, of_devices: int | None, tflite: str = NEWEST) -> int:
        """The first of these that is there: the limit that was asked for; that of devices before NNAPI (``of_devices``);
        none without NNAPI's CPU and the app; that of TFLite's delegate, 3; none.
        """
        from nnbridge.runtime.partition_limits import TFLITE_DEFAULT

        if self.max_partitions is not None:
            return self.max_partitions
        if of_devices is not None:
            return of_devices
        if self.fallback_for(mapping, tflite) is Fallback.NONE:
            return 0
        return TFLITE_DEFAULT if mapping == "delegate" else 0


def _devices(device: str | Device | Iterable[str | Device]) -> tuple[Device | str, ...]:
    if isinstance(device, str):
        return tuple(name.strip() for name in device.split(",") if name.strip())
    if isinstance(device, Iterable):
        return tuple(found for one in device for found in (_devices(one) if isinstance(one, str) else (one,)))
    return (device,)


def _require_word(name: str, value: object, known: Iterable[str]) -> None:
    words = list(known)
    if value not in words:
        raise InputError(Reason(f"one of {', '.join(words)}{near(str(value), words)}", str(value), operand=name))
