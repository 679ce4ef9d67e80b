"""The desktop twin of a file's own runtime asked whether it loads a file, in a separate process, which some files end; its
verdict beside nnbridge's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Protocol

from nnbridge.apart import Apart, EndedError
from nnbridge.errors import RefusalError, first_line
from nnbridge.records import dataclass

_LONGEST = 300
"""Characters of a runtime's words that are shown."""


def load(path: Path) -> None:
    """Have LiteRT load a file without a delegate; RuntimeError with its words where it does not."""
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    kernels = OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    try:
        Interpreter(str(path), experimental_op_resolver_type=kernels).allocate_tensors()
    except ValueError as error:
        raise RuntimeError(str(error)) from error


class Loading(Protocol):
    """A runtime in a separate process that reads a file."""

    def load(self) -> bool:
        """Have it load the file as an app's runtime does; False where it reads the file in other ways only."""


def load_by_onnx_runtime(path: Path) -> None:
    """Have ONNX Runtime load a file on its CPU, without its optimiser; its own error where it does not."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    options.add_session_config_entry("session.disable_prepacking", "1")  # It is not run.
    onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


@dataclass(frozen=True)
class _Twin:
    """A package that is asked: its module, distribution and title, the function that loads, and the phone's runtime."""

    module: str
    distribution: str
    title: str
    load: Callable[[Path], None]
    runtime: str

    @property
    def name(self) -> str:
        """The title with the installed release, as far as the package states it: ONNX Runtime has several distributions."""
        try:
            return f"{self.title} {version(self.distribution)}"
        except PackageNotFoundError:
            return self.title


_TWINS: Mapping[str, _Twin] = {
    "tflite": _Twin("ai_edge_litert", "ai-edge-litert", "LiteRT", load, "TFLite"),
    "onnx": _Twin("onnxruntime", "onnxruntime", "ONNX Runtime", load_by_onnx_runtime, "ONNX Runtime"),
}
"""By format."""


class LoadingQuestion:
    """A runtime asked whether it loads a file, while nnbridge works on the same file; :meth:`disagreement` waits for the result.

    Nothing is asked of other formats, or where the runtime is not installed.
    """

    def __init__(self, path: Path, format: str, begun: Loading | None = None) -> None:
        """``begun``: a reference that reads the file already; it is asked, and no further process if it loads as an app does."""
        self._path, self._begun = path, begun
        self._asked: Apart | None = None
        self._failure = ""
        self._answer: str | None = None
        self._twin = _TWINS.get(format)
        self._asks = self._twin is not None and find_spec(self._twin.module) is not None
        if begun is None:
            self._ask()

    def _ask(self) -> None:
        if self._twin is None or not self._asks:
            return
        try:
            self._asked = Apart(self._twin.title, f"{__name__}:{self._twin.load.__name__}", self._path.absolute(), wait=False)
        except RefusalError as error:
            self._failure = str(error)

    def refusal(self) -> str:
        """The runtime's words where it does not load the file, empty where it does. NnbridgeError where it cannot be asked."""
        try:
            if self._begun is not None and self._asks and not self._begun.load():
                self._ask()
            if self._asked is not None:
                self._asked.start()
        except RuntimeError as error:
            words = " ".join(str(error).split()) or "it gives no reason"
            return words if len(words) <= _LONGEST else "…" + words[-_LONGEST:]
        except EndedError as error:
            return first_line(error)
        return ""

    def answer(self) -> str:
        """:meth:`refusal`, asked once."""
        if self._answer is None:
            self._answer = self.refusal()
        return self._answer

    def disagreement(self, loads: bool | None) -> str:
        """A sentence where nnbridge's rules (None: they do not say) and the runtime differ on whether it loads a file; else
        empty."""
        if loads is None or self._twin is None or not self._asks:
            return ""
        try:
            theirs = "" if self._failure else self.answer()
        except RefusalError as error:
            self._failure = str(error)
        if self._failure:
            return f"{self._twin.title} was not asked whether it loads this file: {self._failure}"
        if loads != bool(theirs):
            return ""
        name, runtime = self._twin.name, self._twin.runtime
        if theirs:
            return f"By nnbridge's rules {runtime} loads this file; {name}, which was asked, does not: {theirs}"
        return f"By nnbridge's rules {runtime} does not load this file; {name}, which was asked, does"


_REMEMBERED = 64
"""Files whose questions a process remembers."""
_QUESTIONS: dict[tuple[Path, int, int, str], LoadingQuestion] = {}


def question_of(path: Path, format: str, begun: Loading | None = None) -> LoadingQuestion:
    """The question about a file as it is now, asked once in a process however often the file is planned."""
    try:
        found = path.stat()
    except OSError:  # It is read later, with an error that names it.
        return LoadingQuestion(path, "")
    key = (path.absolute(), found.st_mtime_ns, found.st_size, format)
    if begun is not None or key not in _QUESTIONS:
        while len(_QUESTIONS) >= _REMEMBERED:
            del _QUESTIONS[next(iter(_QUESTIONS))]
        _QUESTIONS[key] = LoadingQuestion(path, format, begun)
    return _QUESTIONS[key]
