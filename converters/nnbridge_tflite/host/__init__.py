"""The host extension ``org.tensorflow.lite`` and what its kernels share."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nnbridge.extensions import HostExtension


def __getattr__(name: str) -> HostExtension:
    # The operators' modules import this package's helpers, and the extension needs all operators.
    if name != "HOST":
        raise AttributeError(name)
    from nnbridge_tflite.host.extension import HOST

    return HOST
