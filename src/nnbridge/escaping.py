"""Names of others in what nnbridge writes: text without control characters, and HTML that is built of elements, never of text.

CSV is written by :mod:`nnbridge.report.csv_text`, TOML by :mod:`nnbridge.toml`, JSON and XML by Python's own libraries.
"""

from __future__ import annotations

import re
from typing import TypeAlias

from nnbridge.records import dataclass

_CONTROL = re.compile(
    "[\x00-\x1f\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ufffe\uffff\ud800-\udfff"
    "\U000e0000-\U000e007f]"
)
"""Characters of control, of direction and without a width, lone halves of pairs, and tags. Joiners (U+200C and U+200D) belong to
words and pictures."""
_LOCKED = "default-src 'none'; base-uri 'none'; form-action 'none'"
"""A page requests nothing, and leads nowhere by forms or by another base of its addresses."""
_EMPTY = ("br", "meta", "wbr")
"""Elements that have nothing inside and no end."""
Part: TypeAlias = "str | Markup"


def printable(text: str) -> str:
    """A text whose control characters (escape sequences, line breaks, directions) and undecodable bytes are escaped."""
    return _CONTROL.sub(lambda found: _escape(found[0]), text)


def _escape(character: str) -> str:
    byte = ord(character) - 0xDC00  # what Python decodes bytes to that are not UTF-8
    return f"\\x{byte:02x}" if 0x80 <= byte <= 0xFF else ascii(character)[1:-1]


@dataclass(frozen=True)
class Markup:
    """Finished HTML, which only :func:`element` creates."""

    html: str


def element(tag: str, *inside: Part, **attributes: str) -> Markup:
    """An element of HTML. Text is text, whatever it holds; names of attributes are written with ``_`` for ``-``."""
    stated = "".join(f' {key.strip("_").replace("_", "-")}="{_escaped(value)}"' for key, value in attributes.items())
    if tag in _EMPTY:
        return Markup(f"<{tag}{stated}>")
    return Markup(f"<{tag}{stated}>{''.join(map(_escaped, inside))}</{tag}>")


def _escaped(part: Part) -> str:
    from html import escape  # what writes pages is imported when one is written: every command escapes text

    return part.html if isinstance(part, Markup) else escape(printable(part))


def page(title: str, style: str, *body: Markup, script: str = "") -> str:
    """A page that needs nothing else and that nothing leaves: no request, no form; the only styles and script are its own."""
    policy = f"{_LOCKED}; style-src '{_seal(style)}'" + (f"; script-src '{_seal(script)}'" if script else "")
    own = [Markup(f"<script>{script}</script>")] if script else []
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", http_equiv="Content-Security-Policy", content=policy),
        element("title", title),
        Markup(f"<style>{style}</style>"),
    )
    return f"<!doctype html>\n{element('html', head, element('body', *body, *own), lang='en').html}\n"


def _seal(text: str) -> str:
    """The checksum by which a policy knows a style or a script."""
    import base64
    import hashlib

    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
