"""The desktop twin of a file's own runtime asked whether it loads a file, in a separate process, which some files end; its
verdict beside nnbridge's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

from nnbridge.apart import Apart, EndedError
from nnbridge.errors import NnbridgeError, first_line

_LONGEST = 300
"""Characters of a runtime's words that are shown."""


class LiteRtLoaded:
    """A file that LiteRT has loaded, without a delegate; RuntimeError with its words where it does not load it."""

    def __init__(self, path: Path) -> None:
        from ai_edge_litert.interpreter import Interpreter, OpResolverType

        kernels = OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
        try:
            Interpreter(str(path), experimental_op_resolver_type=kernels).allocate_tensors()
        except ValueError as error:
            raise RuntimeError(str(error)) from error


class OnnxRuntimeLoaded:
    """A file that ONNX Runtime has loaded, on its CPU and without its optimiser; its own error where it does not."""

    def __init__(self, path: Path) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 4
        options.add_session_config_entry("session.disable_prepacking", "1")  # It is not run.
        onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


@dataclass(frozen=True)
class _Twin:
    """A package that is asked: its module, distribution and title, the class that loads, and the phone's runtime."""

    module: str
    distribution: str
    title: str
    loaded: type
    runtime: str

    @property
    def name(self) -> str:
        """The title with the installed release, as far as the package states it: ONNX Runtime has several distributions."""
        try:
            return f"{self.title} {version(self.distribution)}"
        except PackageNotFoundError:
            return self.title


_TWINS: Mapping[str, _Twin] = {
    "tflite": _Twin("ai_edge_litert", "ai-edge-litert", "LiteRT", LiteRtLoaded, "TFLite"),
    "onnx": _Twin("onnxruntime", "onnxruntime", "ONNX Runtime", OnnxRuntimeLoaded, "ONNX Runtime"),
}
"""By format."""


class LoadingQuestion:
    """A runtime asked whether it loads a file, while nnbridge works on the same file; :meth:`disagreement` waits for the result.

    Nothing is asked of other formats, or where the runtime is not installed.
    """

    def __init__(self, path: Path, format: str) -> None:
        self._asked: Apart | None = None
        self._failure = ""
        twin = _TWINS.get(format)
        if twin is None or find_spec(twin.module) is None:
            return
        self._twin = twin
        try:
            self._asked = Apart(twin.title, f"{__name__}:{twin.loaded.__name__}", path.absolute(), wait=False)
        except NnbridgeError as error:
            self._failure = str(error)

    def refusal(self) -> str:
        """The runtime's words where it does not load the file, empty where it does. NnbridgeError where it cannot be asked."""
        try:
            if self._asked is not None:
                self._asked.start()
        except RuntimeError as error:
            words = " ".join(str(error).split()) or "it gives no reason"
            return words if len(words) <= _LONGEST else "…" + words[-_LONGEST:]
        except EndedError as error:
            return first_line(error)
        return ""

    def disagreement(self, loads: bool | None) -> str:
        """A sentence where nnbridge's rules (None: they do not say) and the runtime differ on whether it loads a file; else
        empty."""
        if loads is None or (self._asked is None and not self._failure):
            return ""
        try:
            theirs = "" if self._failure else self.refusal()
        except NnbridgeError as error:
            self._failure = str(error)
        if self._failure:
            return f"{self._twin.title} was not asked whether it loads this file: {self._failure}"
        if loads != bool(theirs):
            return ""
        name, runtime = self._twin.name, self._twin.runtime
        if theirs:
            return f"By nnbridge's rules {runtime} loads this file; {name}, which was asked, does not: {theirs}"
        return f"By nnbridge's rules {runtime} does not load this file; {name}, which was asked, does"
