"""A driver in front of another one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from nnbridge.devices.device import (
    BufferRole,
    CacheFiles,
    Capabilities,
    Device,
    PreparedModel,
    PrepareModelConfig,
    Support,
    require_driver,
)
from nnbridge.extensions import Extension
from nnbridge.model import Model, Operand


class WrappedDevice(Device):
    """Every answer is the inner driver's, but for those that a subclass replaces."""

    def __init__(self, inner: Device) -> None:
        if inner.before_nnapi:
            require_driver(inner, type(self).__name__)
        self.inner = inner
        self.name, self.version, self.kind = inner.name, inner.version, inner.kind
        self.feature_level, self.type = inner.feature_level, inner.type

    @property
    def capabilities(self) -> Capabilities:
        """The inner driver's."""
        return self.inner.capabilities

    def supported_operations(self, model: Model) -> Sequence[Support]:
        """The inner driver's answers."""
        return self.inner.supported_operations(model)

    def uncertainties(self, model: Model) -> Sequence[str]:
        """The inner driver's."""
        return self.inner.uncertainties(model)

    def supported_extensions(self) -> Sequence[Extension]:
        """The inner driver's."""
        return self.inner.supported_extensions()

    def number_of_cache_files_needed(self) -> tuple[int, int]:
        """The inner driver's."""
        return self.inner.number_of_cache_files_needed()

    def prepare_model_with_config(self, model: Model, config: PrepareModelConfig) -> PreparedModel:
        """On the inner driver."""
        return self.inner.prepare_model_with_config(model, config)

    def prepare_model_from_cache(self, files: CacheFiles, token: bytes, deadline: int | None = None) -> PreparedModel:
        """On the inner driver."""
        return self.inner.prepare_model_from_cache(files, token, deadline)

    def allocate(self, operand: Operand, roles: Sequence[BufferRole]) -> npt.NDArray[np.uint8]:
        """By the inner driver."""
        return self.inner.allocate(operand, roles)
