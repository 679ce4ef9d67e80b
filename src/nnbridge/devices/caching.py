"""``caching:NAME``: any driver as one that caches its compiled models, to try compilation caching with.

Its one model cache file is the step's model, saved as ``nnbridge convert`` does, so that the model is prepared from there
without the runtime.
"""

from __future__ import annotations

import io

from nnbridge.devices.device import CacheFiles, Device, ModelInterface, PreparedModel, PrepareModelConfig, require_driver
from nnbridge.devices.wrapped import WrappedDevice
from nnbridge.errors import ConversionError, OpFailedError
from nnbridge.model import Model
from nnbridge.storage import model_in, write_model
from nnbridge.types import POOL_ALIGNMENT

_SETTINGS = POOL_ALIGNMENT
"""Bytes before the model, the first two of which are preference and priority."""


class CachingDevice(WrappedDevice):
    """A driver with one model cache file in front of one that has none."""

    def __init__(self, inner: Device) -> None:
        require_driver(inner, '"caching:"')
        super().__init__(inner)
        self.name = f"caching:{inner.name}"

    def number_of_cache_files_needed(self) -> tuple[int, int]:
        """One model cache file."""
        return 1, 0

    def prepare_model_with_config(self, model: Model, config: PrepareModelConfig) -> PreparedModel:
        """On the driver; the model goes into the cache."""
        prepared = self.inner.prepare_model_with_config(model, config)
        if config.save is not None:
            file = io.BytesIO()
            file.write(bytes((config.preference & 255, config.priority & 255)).ljust(_SETTINGS, b"\0"))
            write_model(model, file)
            config.save(CacheFiles(model=(file.getbuffer(),)))
        return prepared

    def prepare_model_from_cache(self, files: CacheFiles, token: bytes, deadline: int | None = None) -> PreparedModel:
        """OP_FAILED (a driver's GENERAL_FAILURE) for a file that holds no model."""
        data = memoryview(files.model[0])
        try:
            model = model_in(data[_SETTINGS:], data, self.name)
        except ConversionError as error:
            raise OpFailedError(error.reason) from error
        prepared = self.inner.prepare_model_with_config(model, PrepareModelConfig(data[0], data[1], deadline))
        prepared.interface = ModelInterface.of(model)
        return prepared
