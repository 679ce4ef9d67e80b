"""A driver whose answers are off by one, for ``nnbridge vts --device tests.runtime.wrong:WRONG``."""

from __future__ import annotations

import numpy as np

from nnbridge.devices.cpu import CpuPreparedModel
from nnbridge.devices.device import PreparedModel, Request, Result
from nnbridge.model import Model
from tests.runtime.drivers import CannotPrepare, Driver


class _OffByOne(PreparedModel):
    def __init__(self, model: Model) -> None:
        self._right = CpuPreparedModel(model)

    def execute(self, request: Request) -> Result:
        result = self._right.execute(request)
        for output in request.outputs:
            if output.data is not None:
                output.data.view(np.float32)[...] += 1
        return result


class _Wrong(Driver):
    def prepare_model(self, model: Model, *args: object, **options: object) -> PreparedModel:
        return _OffByOne(model)


WRONG = _Wrong("wrong")
CANNOT_PREPARE = CannotPrepare("cannot prepare")
"""A driver that takes everything and then prepares nothing."""
