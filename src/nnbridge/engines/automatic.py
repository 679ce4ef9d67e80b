"""The host that a phone has: the file's own runtime where it can be had, else nnbridge's own."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

from nnbridge.devices.device import PreparedModel, PrepareModelConfig
from nnbridge.devices.host import Computing, HostDevice
from nnbridge.model import Model, Source


class AutomaticHost(HostDevice):
    """A host that is created when there is something for it: an inference runtime, else nnbridge's own with the reason."""

    def __init__(self, create: Callable[[], HostDevice]) -> None:
        super().__init__()
        self._create = create

    @cached_property
    def _host(self) -> HostDevice:
        return self._create()

    @property
    def late(self) -> bool:  # type: ignore[override]  # asked only where something is left to the host
        """As the runtime has it."""
        return self._host.late

    @property
    def version(self) -> str:  # type: ignore[override]
        """As the runtime has it."""
        return self._host.version

    def prepare_model_with_config(self, model: Model, config: PrepareModelConfig) -> PreparedModel:
        """Load the parts of the file; what the runtime does not run is prepared by nnbridge's own host."""
        return self._host.prepare_model_with_config(model, config)

    def computing(self, source: Source) -> Computing:
        """The runtime that computes an operator of the file, once it is prepared."""
        return self._host.computing(source)
