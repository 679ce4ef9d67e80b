"""Drivers that end their process or never answer."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from nnbridge import devices
from nnbridge.devices.device import Support
from nnbridge.devices.samples import SampleDriver
from nnbridge.model import Model

_FAST = devices.device("nnapi-sample_float_fast")
assert isinstance(_FAST, SampleDriver)


@dataclass(frozen=True)
class _Killed(SampleDriver):
    def supported_operations(self, model: Model) -> Sequence[Support]:
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError


@dataclass(frozen=True)
class _Endless(SampleDriver):
    def supported_operations(self, model: Model) -> Sequence[Support]:
        time.sleep(600)
        raise AssertionError


def _like(kind: type[SampleDriver], name: str) -> SampleDriver:
    return kind(**{**{key: getattr(_FAST, key) for key in _FAST.__dataclass_fields__}, "name": name})


KILLED, ENDLESS = _like(_Killed, "killed"), _like(_Endless, "endless")
SLOWED = replace(_FAST, name="slowed")
