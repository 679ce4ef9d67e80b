"""Drivers that misbehave in their own processes: name one ``process:tests.devices.broken:NAME``."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Sequence

from nnbridge.devices.device import PreparedModel, PrepareModelConfig, Request, Result
from nnbridge.errors import OpFailedError
from nnbridge.extensions import Extension
from nnbridge.model import Model
from tests.runtime.drivers import Driver


class _Prepared(PreparedModel):
    def __init__(self, run: object) -> None:
        self._run = run

    def execute(self, request: Request) -> Result:
        return self._run()  # type: ignore[operator]


class _HangsInPrepare(Driver):
    def prepare_model(self, *args: object, **options: object) -> PreparedModel:
        time.sleep(60)
        raise AssertionError("killed before")


class _DiesInPrepare(Driver):
    def prepare_model(self, *args: object, **options: object) -> PreparedModel:
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError("unreachable")


class _HangsInExecute(Driver):
    def prepare_model(self, model: Model, *args: object, **options: object) -> PreparedModel:
        return _Prepared(lambda: time.sleep(60))


class _Raises(Driver):
    def prepare_model(self, model: Model, *args: object, **options: object) -> PreparedModel:
        return _Prepared(lambda: 1 // 0)


class _Changes(Driver):
    """Comes back from the dead with another version."""

    @property
    def version(self) -> str:  # type: ignore[override]
        return str(os.getpid())


class _AnswersNumbers(Driver):
    def supported_operations(self, model: Model) -> list[bool]:
        return [2 for _ in model.main.operations]  # type: ignore[misc]


HANGS_IN_PREPARE = _HangsInPrepare("hangs")
DIES_IN_PREPARE = _DiesInPrepare("dies")
HANGS_IN_EXECUTE = _HangsInExecute("hangs")
RAISES = _Raises("raises")
CHANGES = _Changes("changes")
GOOD = Driver("good")
ANSWERS_NUMBERS = _AnswersNumbers("numbers")


class _DiesAtOnce(Driver):
    """Dies in every process that serves it, and lives in the one that checks its name."""

    def supported_extensions(self) -> Sequence[Extension]:
        if "nnbridge.devices.remote.server" in sys.modules:
            os._exit(3)
        return ()


DIES_AT_ONCE = _DiesAtOnce("dies-at-once")


class _Attributes(Driver):
    """Refuses to prepare, and says with which token and attributes it was asked."""

    def prepare_model_with_config(self, model: Model, config: PrepareModelConfig) -> PreparedModel:
        if config.hints:
            raise OpFailedError(f"{config.hints} {config.priority} {config.save is not None}")
        return _Told()


class _Told(PreparedModel):
    def execute(self, request: Request) -> Result:
        raise OpFailedError(f"{request.hints} {request.loop_timeout}")


ATTRIBUTES = _Attributes("attributes")
