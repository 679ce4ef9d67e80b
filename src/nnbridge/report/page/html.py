"""The page around the data: one file that needs nothing else and lets no script run but its own."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from functools import cache
from pathlib import Path

from nnbridge.errors import InputError, Reason
from nnbridge.json_data import json_ready
from nnbridge.report.page.schema import PageData
from nnbridge.report.terminal import printable

_ESCAPED = str.maketrans({sign: f"\\u{ord(sign):04x}" for sign in "<>&\u2028\u2029"})
"""What could end the element that holds the data, or a line of a script."""

_MARK = b'<meta name="generator" content="nnbridge report">'
_HEAD = 4096
"""Bytes of a file that have the mark, if it is a page."""


def page(data: PageData) -> bytes:
    """The finished page."""
    template, style, script = _assets()
    devices = ", ".join(runner["name"] for runner in data["plan"]["runners"] if runner["place"] == "device") or "NNAPI's CPU"
    parts = {
        "TITLE": html.escape(printable(f"{data['model']['name']} on {devices} – nnbridge")),
        "STYLE": style,
        "SCRIPT": script,
        "SEAL": base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        "DATA": json.dumps(json_ready(data), separators=(",", ":"), allow_nan=False).translate(_ESCAPED),
    }
    # One pass: a model that is named like a mark stays a name.
    return re.sub(r"__(TITLE|STYLE|SCRIPT|SEAL|DATA)__", lambda mark: parts[mark[1]], template).encode()


def default_page(model: Path) -> Path:
    """MODEL.html in the current folder. InputError where that exists and is no page: it is overwritten only if it is named."""
    path = Path(f"{model.stem}.html")
    if path.exists() and not _is_page(path):
        raise InputError(Reason("the name of a page to write", f"none, and {path} is not a report", operand="output"))
    return path


def _is_page(path: Path) -> bool:
    """True for a file that :func:`page` wrote."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return _MARK in file.read(_HEAD)


@cache
def _assets() -> tuple[str, str, str]:
    """Template, styles and script: the parts in order of their names, the scripts in one function of their own."""
    folder = Path(__file__).parent / "assets"
    scripts = "\n".join(_parts(folder / "script"))
    template = (folder / "page.html").read_text("utf-8")
    return template, "\n".join(_parts(folder / "style")), f'"use strict";\n(() => {{\n{scripts}}})();\n'


def _parts(folder: Path) -> list[str]:
    return [part.read_text("utf-8") for part in sorted(folder.iterdir())]
