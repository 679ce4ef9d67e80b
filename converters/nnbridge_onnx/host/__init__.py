"""The host extension ``ai.onnx``: what computes the operators that NNAPI cannot express."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nnbridge.extensions import HostExtension

    HOST: HostExtension
    """Registered under the entry point group ``nnbridge.host_extensions``."""


def __getattr__(name: str) -> Any:
    # Its operations are all operators, whose modules need this package.
    if name == "HOST":
        return _host()
    raise AttributeError(name)


@cache
def _host() -> HostExtension:
    from nnbridge_onnx.host.evaluator import host_extension

    return host_extension()
