"""Stock LiteRT asked whether it loads a file, in a separate process, which some files end; its verdict beside nnbridge's."""

from __future__ import annotations

from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Protocol

from nnbridge.apart import Apart, EndedError
from nnbridge.errors import NnbridgeError, first_line

_PACKAGE = "ai_edge_litert"
_LONGEST = 300
"""Characters of LiteRT's words that are shown."""


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
        """Have it load the file as :func:`load` does; False where it is not LiteRT, or cannot read the file its own way."""


class LoadingQuestion:
    """LiteRT asked whether it loads a file, while nnbridge works on the same file; :meth:`disagreement` waits for the result.

    Nothing is asked of other formats, or where LiteRT is not installed.
    """

    def __init__(self, path: Path, format: str, begun: Loading | None = None) -> None:
        """``begun``: a reference that reads the file already; if it is LiteRT, it is asked, and no further process."""
        self._path, self._begun = path, begun
        self._asked: Apart | None = None
        self._failure = ""
        self._asks = format == "tflite" and find_spec(_PACKAGE) is not None
        if begun is None:
            self._ask()

    def _ask(self) -> None:
        if not self._asks:
            return
        try:
            self._asked = Apart("LiteRT", f"{__name__}:load", self._path, wait=False)
        except NnbridgeError as error:
            self._failure = str(error)

    def refusal(self) -> str:
        """LiteRT's words where it does not load the file, empty where it does. NnbridgeError where it cannot be asked."""
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

    def disagreement(self, loads: bool | None) -> str:
        """A sentence where nnbridge's rules (None: they do not say) and LiteRT differ on whether it loads a file; else empty."""
        if loads is None or not self._asks:
            return ""
        try:
            theirs = "" if self._failure else self.refusal()
        except NnbridgeError as error:
            self._failure = str(error)
        if self._failure:
            return f"LiteRT was not asked whether it loads this file: {self._failure}"
        if loads != bool(theirs):
            return ""
        name = f"LiteRT {version('ai-edge-litert')}"
        if theirs:
            return f"By nnbridge's rules TFLite loads this file; {name}, which was asked, does not: {theirs}"
        return f"By nnbridge's rules TFLite does not load this file; {name}, which was asked, does"
