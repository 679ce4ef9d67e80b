"""Stock LiteRT asked whether it loads a file, in a separate process, which some files end; its verdict beside nnbridge's."""

from __future__ import annotations

from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from nnbridge.apart import Apart, EndedError
from nnbridge.errors import NnbridgeError, first_line

_PACKAGE = "ai_edge_litert"
_LONGEST = 300
"""Characters of LiteRT's words that are shown."""


class Loaded:
    """A file that LiteRT has loaded, without a delegate; RuntimeError with its words where it does not load it."""

    def __init__(self, path: Path) -> None:
        from ai_edge_litert.interpreter import Interpreter, OpResolverType

        kernels = OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
        try:
            Interpreter(str(path), experimental_op_resolver_type=kernels).allocate_tensors()
        except ValueError as error:
            raise RuntimeError(str(error)) from error


class LoadingQuestion:
    """LiteRT asked whether it loads a file, while nnbridge works on the same file; :meth:`disagreement` waits for the result.

    Nothing is asked of other formats, or where LiteRT is not installed.
    """

    def __init__(self, path: Path, format: str) -> None:
        self._asked: Apart | None = None
        self._failure = ""
        if format != "tflite" or find_spec(_PACKAGE) is None:
            return
        try:
            self._asked = Apart("LiteRT", f"{__name__}:Loaded", path, wait=False)
        except NnbridgeError as error:
            self._failure = str(error)

    def refusal(self) -> str:
        """LiteRT's words where it does not load the file, empty where it does. NnbridgeError where it cannot be asked."""
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
        """A sentence where nnbridge's rules (None: they do not say) and LiteRT differ on whether it loads a file; else empty."""
        if loads is None or (self._asked is None and not self._failure):
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
