"""Hosts that leave operators to the inference runtime itself, as on a phone: TFLite's or ONNX Runtime's own CPU kernels.

nnbridge's own host, the default, needs no other package and computes as TFLite's reference kernels do. A host of this package
runs each group of operators that stays with the runtime as a part of the source file, in that runtime.
"""

from __future__ import annotations

from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING

from nnbridge.errors import OptionError, Reason

if TYPE_CHECKING:
    from nnbridge.converters import ConversionOptions
    from nnbridge.devices.device import Device

OWN = "nnbridge"
"""The name of nnbridge's own host."""
_LITERT, _ONNX_RUNTIME = "nnbridge.engines.litert:LiteRTEngine", "nnbridge.engines.onnx_runtime:OnnxRuntimeEngine"
_ENGINES = {
    "litert": ("tflite", _LITERT, "default"),
    "litert-plain": ("tflite", _LITERT, "optimised"),
    "litert-reference": ("tflite", _LITERT, "reference"),
    "onnxruntime": ("onnx", _ONNX_RUNTIME, "default"),
}
"""Name → the format that it reads, the engine, and the kernels that it computes with."""
HOSTS = (OWN, *_ENGINES)


def host_for(name: str, path: str | Path, options: ConversionOptions | None = None) -> tuple[Device, ...]:
    """A host by name for the operators of a file, as devices of a compilation; none for nnbridge's own.

    ``options``: those of the conversion. OptionError for a runtime that does not read the file, InputError for one that is not
    installed.
    """
    if name == OWN:
        return ()
    from nnbridge.converters import ConversionOptions, converter_for, resolved
    from nnbridge.engines.host import EngineHost
    from nnbridge.loading import is_saved

    path = Path(path)
    converter = None if is_saved(path) else converter_for(path)
    form, engine, kernels = _ENGINES.get(name, ("", "", ""))
    if converter is None or converter.name != form or converter.hosted is None:
        found = "saved models" if converter is None else f"{converter.name} files"
        known = [OWN, *(host for host, of in _ENGINES.items() if converter is not None and of[0] == converter.name)]
        raise OptionError(Reason(f"a host of {found} ({', '.join(known)})", name, str(path), "--host"))
    asked = resolved(options or ConversionOptions(), converter, path)
    return (EngineHost(resolve_name(engine)(path, kernels), converter.hosted(path, asked), name),)
