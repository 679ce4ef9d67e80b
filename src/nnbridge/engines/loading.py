"""Stock LiteRT asked whether it loads a file, in a separate process, which some files end; its verdict beside nnbridge's."""

from __future__ import annotations

from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from nnbridge.apart import Apart, EndedError
from nnbridge.converters.inspection import Inspection
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


def litert_refusal(path: Path) -> str:
    """LiteRT's words where it does not load a file, empty where it does."""
    try:
        Apart("LiteRT", f"{__name__}:Loaded", path)
    except RuntimeError as error:
        words = " ".join(str(error).split()) or "it gives no reason"
        return words if len(words) <= _LONGEST else "…" + words[-_LONGEST:]
    except EndedError as error:
        return first_line(error)
    return ""


def loading_disagreement(found: Inspection) -> str:
    """A sentence where nnbridge's rules and LiteRT, which is asked, differ on whether a TFLite file loads; else empty.

    Nothing is asked where LiteRT is not installed, or cannot be started.
    """
    if found.format != "tflite" or find_spec(_PACKAGE) is None:
        return ""
    try:
        theirs = litert_refusal(Path(found.path))
    except NnbridgeError as error:
        return f"LiteRT was not asked whether it loads this file: {error}"
    if found.loads is None or found.loads != bool(theirs):
        return ""
    name = f"LiteRT {version('ai-edge-litert')}"
    if theirs:
        return f"By nnbridge's rules TFLite loads this file; {name}, which was asked, does not: {theirs}"
    return f"By nnbridge's rules TFLite does not load this file; {name}, which was asked, does"
