"""Reference runtimes that answers are compared with; each is imported when it is used."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING

from nnbridge.apart import Apart
from nnbridge.compare.arrays import Array
from nnbridge.compare.litert import NamedTensors
from nnbridge.converters import opened
from nnbridge.engines import accelerator
from nnbridge.errors import InputError, Reason, RefusalError
from nnbridge.records import dataclass

if TYPE_CHECKING:
    from nnbridge.compare.litert_compiled import CompiledLiteRT

_LOG = logging.getLogger(__name__)
COMPILED = "litert"
"""The reference of files that a vendor's compiler has compiled: LiteRT's CompiledModel."""


@dataclass(frozen=True)
class ReferenceRuntime:
    """A runtime that computes outputs to compare with."""

    format: str
    """The converter of the files that it reads."""
    title: str
    package: str
    """The module that it is in."""
    distribution: str
    opened: str
    """What creates it in its process, as ``module:function``: of path, signature, whether to retain tensors, and the settings."""
    settings: tuple[str | bool, ...] = ()
    shows_tensors: bool = True
    """It has every tensor of a run, not outputs only."""

    def absent(self) -> Reason | None:
        """The first thing that is missing here; None if nothing is. Nothing is loaded."""
        if find_spec(self.package) is None:
            return Reason(f"{self.distribution} (pip install {self.distribution})", "not installed")
        return accelerator.unavailable() if self.opened == _GPU else None


_LITERT, _GPU = "nnbridge.compare.litert:opened", "nnbridge.engines.accelerator:opened"
_WHEEL = ("ai_edge_litert", "ai-edge-litert")
REFERENCE_RUNTIMES: Mapping[str, ReferenceRuntime] = {
    "litert": ReferenceRuntime("tflite", "LiteRT", *_WHEEL, _LITERT, ("reference", False)),
    "onnxruntime": ReferenceRuntime("onnx", "ONNX Runtime", "onnxruntime", "onnxruntime", "nnbridge.compare.onnx_runtime:opened"),
    "litert-reference": ReferenceRuntime("tflite", "LiteRT's reference kernels", *_WHEEL, _LITERT, ("reference", True)),
    "litert-plain": ReferenceRuntime("tflite", "LiteRT's plain kernels", *_WHEEL, _LITERT, ("optimised", True)),
    "xnnpack": ReferenceRuntime("tflite", "LiteRT with XNNPACK", *_WHEEL, _LITERT, ("xnnpack", True), False),
    "litert-gpu": ReferenceRuntime("tflite", accelerator.TITLE, *_WHEEL, _GPU, (False,), False),
    "litert-gpu-float32": ReferenceRuntime("tflite", f"{accelerator.TITLE} in float32", *_WHEEL, _GPU, (True,), False),
    "tflm": ReferenceRuntime(
        "tflite", "TensorFlow Lite Micro", "tflite_micro", "tflite-micro", "nnbridge.compare.micro:opened", (), False
    ),
}
"""By the name on the command line; ``litert`` computes with other kernels where the reference kernels do not load a file."""
OF_FORMAT = {"tflite": "litert", "onnx": "onnxruntime"}
"""The runtime that a file is compared with where none is named, by format."""


class ApartReference:
    """A reference in a separate process: what ends that process is an EndedError of the call, and the next one has another."""

    def __init__(self, name: str, path: Path, signature: str, *, compiled: bool, preserve: bool, wait: bool = True) -> None:
        self.name = name
        runtime = REFERENCE_RUNTIMES[name]
        target, settings = (f"{__name__}:_compiled", ()) if compiled else (runtime.opened, runtime.settings)
        if find_spec(runtime.package) is None:
            resolve_name(target)(path, signature, preserve, *settings)  # raises what is missing
        self._apart = Apart(runtime.title, target, path, signature, preserve, *settings, wait=wait)
        self._loads = runtime.opened == _LITERT and not compiled
        self._is_gpu = runtime.opened == _GPU
        self.notes: list[str] = []
        """Sentences of the runtime on how it reads the file, once it does."""
        self.lacks_float16 = False
        """It computes in float32 where it would in float16."""
        self._said = False

    def start(self, *, quiet: bool = False) -> None:
        """Wait until the runtime has read the file; its errors are raised. ``quiet``: nothing warns of what it says."""
        self._apart.start()
        if self._is_gpu and not self._said:
            self.notes, self.lacks_float16 = self._apart.call("notes"), self._apart.call("lacks_float16")
        self._said = self._said or quiet

    def ready(self) -> None:
        """:meth:`start`; what the runtime says of the file is a warning."""
        self.start()
        for note in () if self._said else self.notes:
            _LOG.warning("%s", note)
        self._said = True

    def load(self) -> bool:
        """As :meth:`nnbridge.engines.loading.Loading.load`."""
        try:
            self._apart.start()
        except RefusalError:  # :meth:`ready` raises it.
            return self.name == "onnxruntime"
        if self._loads:
            self._apart.call("load")
        return self._loads or self.name == "onnxruntime"  # which opens a file only as an app does

    def reset(self) -> None:
        """Reset states to their first values."""
        self.ready()
        self._apart.call("reset")

    def run(self, inputs: Mapping[str, Array]) -> Sequence[Array] | Mapping[str, Array]:
        """Outputs in the file's order, those of a signature by name; inputs in the file's order or by name."""
        found: Sequence[Array] | Mapping[str, Array] = self._apart.call("run", inputs)
        return found

    def tensors(self) -> NamedTensors:
        """Every tensor of the last run, or those that the runtime shows."""
        return NamedTensors(*self._apart.call("tensors"))


def _compiled(path: Path, _: str, __: bool) -> CompiledLiteRT:
    from nnbridge.compare.litert_compiled import CompiledLiteRT  # with LiteRT's MediaTek route

    return CompiledLiteRT(path)


def reference(name: str, path: Path, signature: str = "", *, preserve: bool = False, wait: bool = True) -> ApartReference:
    """A reference runtime by name for a model file, and maybe one signature of it; ``preserve`` retains every tensor.

    It runs in a separate process, which reads the file in the meantime where this one is not to ``wait``: until ``ready``.
    """
    if name not in REFERENCE_RUNTIMES:
        raise InputError(Reason(f"{', '.join(REFERENCE_RUNTIMES)} or a file ending in .npz", repr(name), operand="reference"))
    file = opened(path)
    form = file.name
    of_format = [each for each, runtime in REFERENCE_RUNTIMES.items() if runtime.format == form]
    known = [each for each in of_format if each == COMPILED] if file.is_compiled else of_format
    if name not in known:
        rule = f"{', '.join([*known, 'FILE.npz'])} for {path}, a {'compiled ' if file.is_compiled else ''}{form} model"
        raise InputError(Reason(rule, name, operand="reference"))
    try:
        str(path).encode()
    except UnicodeEncodeError as error:
        raise InputError(Reason(f"a path in UTF-8, which {name} can open", str(path), operand="MODEL")) from error
    return ApartReference(name, path, signature, compiled=file.is_compiled, preserve=preserve, wait=wait)
