"""Reference runtimes that answers are compared with; each is imported when it is used."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING

from nnbridge.apart import Apart
from nnbridge.compare.arrays import Array
from nnbridge.compare.litert import NamedTensors
from nnbridge.converters import opened
from nnbridge.errors import InputError, NnbridgeError, Reason

if TYPE_CHECKING:
    from nnbridge.compare.litert_compiled import CompiledLiteRT

FORMATS = {"litert": "tflite", "onnxruntime": "onnx"}
"""Name on the command line → the converter of the files that the reference reads."""
_OPENED = {"litert": "nnbridge.compare.litert:opened", "onnxruntime": "nnbridge.compare.onnx_runtime:opened"}
"""What creates it in its process."""
_RUNTIMES = {"litert": ("LiteRT", "ai_edge_litert"), "onnxruntime": ("ONNX Runtime", "onnxruntime")}


class ApartReference:
    """A reference in a separate process: what ends that process is an EndedError of the call, and the next one has another."""

    def __init__(self, name: str, path: Path, signature: str, *, compiled: bool, preserve: bool, wait: bool = True) -> None:
        self.name = name
        title, package = _RUNTIMES[name]
        target = f"{__name__}:_compiled" if compiled else _OPENED[name]
        if find_spec(package) is None:
            resolve_name(target)(path, signature, preserve)  # raises what is missing
        self._apart = Apart(title, target, path, signature, preserve, wait=wait)
        self._loads = name == "litert" and not compiled

    def ready(self) -> None:
        """Wait until the runtime has read the file; its errors are raised."""
        self._apart.start()

    def load(self) -> bool:
        """As :meth:`nnbridge.engines.loading.Loading.load`."""
        try:
            self._apart.start()
        except NnbridgeError:  # :meth:`ready` raises it.
            return self.name == "onnxruntime"
        if self._loads:
            self._apart.call("load")
        return self._loads or self.name == "onnxruntime"  # which opens a file only as an app does

    def reset(self) -> None:
        """Reset states to their first values."""
        self._apart.call("reset")

    def run(self, inputs: Mapping[str, Array]) -> Sequence[Array] | Mapping[str, Array]:
        """Outputs in the file's order, those of a signature by name; inputs in the file's order or by name."""
        found: Sequence[Array] | Mapping[str, Array] = self._apart.call("run", inputs)
        return found

    def tensors(self) -> NamedTensors:
        """Every tensor of the last run."""
        return NamedTensors(*self._apart.call("tensors"))


def _compiled(path: Path, _: str, __: bool) -> CompiledLiteRT:
    from nnbridge.compare.litert_compiled import CompiledLiteRT  # with LiteRT's MediaTek route

    return CompiledLiteRT(path)


def reference(name: str, path: Path, signature: str = "", *, preserve: bool = False, wait: bool = True) -> ApartReference:
    """A reference runtime by name for a model file, and maybe one signature of it; ``preserve`` retains every tensor.

    It runs in a separate process, which reads the file in the meantime where this one is not to ``wait``: until ``ready``.
    """
    if name not in FORMATS:
        raise InputError(Reason(f"{', '.join(FORMATS)} or a file ending in .npz", repr(name), operand="reference"))
    file = opened(path)
    form = file.name
    if form != FORMATS[name]:
        known = [reference for reference, read in FORMATS.items() if read == form]
        rule = f"{', '.join([*known, 'FILE.npz'])} for {path}, a {form} model"
        raise InputError(Reason(rule, name, operand="reference"))
    try:
        str(path).encode()
    except UnicodeEncodeError as error:
        raise InputError(Reason(f"a path in UTF-8, which {name} can open", str(path), operand="MODEL")) from error
    return ApartReference(name, path, signature, compiled=file.is_compiled, preserve=preserve, wait=wait)
