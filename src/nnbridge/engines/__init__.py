"""Hosts that leave operators to the inference runtime itself, as on a phone: TFLite's or ONNX Runtime's own CPU kernels.

A host of this package runs each group of operators that stays with the runtime as a part of the source file, in that runtime.
It runs there in a process of its own, which a file or a value may end. nnbridge's own host needs no other package and computes as
TFLite's reference kernels do. ``auto`` is the runtime where a phone would have it, and nnbridge's own host for what the runtime
does not run.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from nnbridge.errors import ConversionError, InputError, OptionError, Reason

if TYPE_CHECKING:
    from nnbridge.converters import ConversionOptions, Converter
    from nnbridge.devices.device import Device
    from nnbridge.devices.host import HostDevice
    from nnbridge.engines.host import EngineHost

OWN = "nnbridge"
"""The name of nnbridge's own host."""
AUTO = "auto"
"""The name of the one that a phone has."""
_LITERT, _ONNX_RUNTIME = "nnbridge.engines.litert:LiteRTEngine", "nnbridge.engines.onnx_runtime:OnnxRuntimeEngine"
_ENGINES = {
    "litert": ("tflite", _LITERT, "default"),
    "litert-plain": ("tflite", _LITERT, "optimised"),
    "litert-reference": ("tflite", _LITERT, "reference"),
    "onnxruntime": ("onnx", _ONNX_RUNTIME, "default"),
}
"""Name → the format that it reads, the engine, and the kernels that it computes with."""
HOSTS = (AUTO, OWN, *_ENGINES)


_PHONES = {"delegate": "litert", "provider": "onnxruntime"}
"""Mapping → the host that a phone has beside it."""
_COMPILED = "litert"
"""The host of files that a vendor's compiler has compiled: LiteRT's CompiledModel."""


def host_for(name: str, path: str | Path, options: ConversionOptions | None = None) -> tuple[Device, ...]:
    """A host by name for the operators of a file, as devices of a compilation; none for nnbridge's own by its name.

    ``options``: those of the conversion. OptionError for a runtime that does not read the file, InputError for one that is not
    installed; ``auto`` raises neither, its :meth:`~nnbridge.devices.host.HostDevice.computing` has the reason.
    """
    if name == OWN:
        return ()
    path = Path(path)
    if name == AUTO:
        from nnbridge.engines.automatic import AutomaticHost

        return (AutomaticHost(lambda: _phones(path, options)),)
    converter, asked = _resolved(path, options)
    if converter is None or converter.hosted is None or _ENGINES.get(name, ("",))[0] != converter.name:
        found = "saved models" if converter is None else f"{converter.name} files"
        known = [AUTO, OWN, *(host for host, of in _ENGINES.items() if converter is not None and of[0] == converter.name)]
        raise OptionError(Reason(f"a host of {found} ({', '.join(known)})", name, str(path), "--host"))
    return (_engine_host(name, path, asked, strict=True),)


def _resolved(path: Path, options: ConversionOptions | None) -> tuple[Converter | None, ConversionOptions]:
    """The converter of a file, None for a saved model, and the options with the mapping's own name."""
    from nnbridge.converters import ConversionOptions, converter_for, resolved
    from nnbridge.loading import is_saved

    converter = None if is_saved(path) else converter_for(path)
    return converter, resolved(options or ConversionOptions(), converter, path)


def _phones(path: Path, options: ConversionOptions | None) -> HostDevice:
    """The runtime that a phone has beside NNAPI, else nnbridge's own host and why."""
    from nnbridge.devices.host import HostDevice

    converter, asked = _resolved(path, options)
    if converter is None:
        return HostDevice(Reason("a file of TFLite or ONNX Runtime", "a saved model", str(path)))
    name = _PHONES.get(asked.mapping, "") if converter.hosted is not None else ""
    if not name and converter.compiled is not None and converter.compiled(path):
        name = _COMPILED
    if not name:
        return HostDevice(Reason("the mapping of a phone's delegate or provider", asked.mapping, operand="--mapping"))
    try:
        return _engine_host(name, path, asked, strict=False)
    except (ConversionError, InputError) as error:
        return HostDevice(error.reason)


def _engine_host(name: str, path: Path, options: ConversionOptions, *, strict: bool) -> EngineHost:
    from nnbridge.converters import converter_for
    from nnbridge.engines.apart import ApartEngine
    from nnbridge.engines.host import EngineHost

    converter, (_, engine, kernels) = converter_for(path), _ENGINES[name]
    assert converter.hosted is not None
    runtime = ApartEngine(engine, path, kernels)
    return EngineHost(runtime, converter.hosted(path, options), name, strict=strict)
