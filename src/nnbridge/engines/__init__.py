"""Hosts that leave operators to the inference runtime itself, as on a phone: TFLite's or ONNX Runtime's own CPU kernels.

A host of this package runs each group of operators that stays with the runtime as a part of the source file, in that runtime.
It runs there in a separate process, which a file or a value may end. nnbridge's own host needs no other package and computes as
TFLite's reference kernels do. ``auto`` is the runtime where a phone would have it, and nnbridge's own host for what the runtime
does not run.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from nnbridge.errors import ConversionError, InputError, OptionError, Reason

if TYPE_CHECKING:
    from nnbridge.devices.device import Device
    from nnbridge.devices.host import HostDevice
    from nnbridge.engines.host import EngineHost
    from nnbridge.file import ModelFile

_LOG = logging.getLogger(__name__)
OWN = "nnbridge"
"""The name of nnbridge's own host."""
AUTO = "auto"
"""The name of the one that a phone has."""
_LITERT, _ONNX_RUNTIME = "nnbridge.engines.litert:LiteRTEngine", "nnbridge.engines.onnx_runtime:OnnxRuntimeEngine"
_ENGINES = {
    "xnnpack": ("tflite", _LITERT, "default"),
    "litert-plain": ("tflite", _LITERT, "optimised"),
    "litert-reference": ("tflite", _LITERT, "reference"),
    "onnxruntime": ("onnx", _ONNX_RUNTIME, "default"),
}
"""Name → the format that it reads, the engine, and the kernels that it computes with."""
REFERENCES = (
    "litert", "onnxruntime", "litert-reference", "litert-plain", "xnnpack", "litert-gpu", "litert-gpu-float32", "tflm",
)  # fmt: skip
"""Names of runtimes to compare with, as :data:`nnbridge.compare.references.REFERENCE_RUNTIMES` has them, which imports more."""
HOSTS = (AUTO, OWN, *_ENGINES)
OLD_HOSTS = {"litert": "xnnpack"}
"""Names of earlier releases → what they are called now: as a reference, ``litert`` is LiteRT's reference kernels."""


_PHONES = {"delegate": "xnnpack", "provider": "onnxruntime"}
"""Mapping → the host that a phone has beside it."""
_COMPILED = "xnnpack"
"""The host of files that a vendor's compiler has compiled: LiteRT's CompiledModel."""


def host_for(name: str, file: ModelFile) -> tuple[Device, ...]:
    """A host by name for the operators of a file, as devices of a compilation; none for nnbridge's own by its name.

    OptionError for a runtime that does not read the file, InputError for one that is not installed; ``auto`` raises neither, its
    :meth:`~nnbridge.devices.host.HostDevice.computing` has the reason.
    """
    if name in OLD_HOSTS:
        _LOG.warning("host %s is called %s now: LiteRT with XNNPACK, as on a phone", name, OLD_HOSTS[name])
        name = OLD_HOSTS[name]
    if name == OWN:
        return ()
    if name == AUTO:
        from nnbridge.engines.automatic import AutomaticHost

        return (AutomaticHost(lambda: _phones(file)),)
    if _ENGINES.get(name, ("",))[0] != file.format:
        known = [AUTO, OWN, *(host for host, of in _ENGINES.items() if of[0] == file.format)]
        raise OptionError(
            Reason(f"a host of {file.format} files ({', '.join(known)})", name, operand="host", file=str(file.path))
        )
    return (_engine_host(name, file, strict=True),)


def _phones(file: ModelFile) -> HostDevice:
    """The runtime that a phone has beside NNAPI, else nnbridge's own host and why."""
    from nnbridge.devices.host import HostDevice

    name = _COMPILED if file.importer.is_compiled else _PHONES.get(file.mapping, "")
    if file.format not in {of for of, _, _ in _ENGINES.values()}:
        return HostDevice(Reason("a file of TFLite or ONNX Runtime", f"the format {file.format}", str(file.path)))
    if not name:
        return HostDevice(Reason("the mapping of a phone's delegate or provider", file.mapping, operand="mapping"))
    try:
        return _engine_host(name, file, strict=False)
    except (ConversionError, InputError) as error:
        return HostDevice(error.reason)


def _engine_host(name: str, file: ModelFile, *, strict: bool) -> EngineHost:
    from nnbridge.engines.apart import ApartEngine
    from nnbridge.engines.host import EngineHost

    _, engine, kernels = _ENGINES[name]
    parts = file.hosted
    if parts is None:
        raise ConversionError(
            Reason("a format of which runtimes compute parts", file.format, operand="host", file=str(file.path))
        )
    return EngineHost(ApartEngine(engine, file.path, kernels), parts, name, strict=strict)
