"""Check that every link of the built site holds, anchors included: ``python scripts/documentation/site/check_links.py FOLDER``.

``mkdocs build --strict`` checks links of Markdown. This checks those of the pages that it writes: of docstrings, notebooks, the
theme, and of pages outside of docs/. Addresses of other sites are not visited.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit


class _Page(HTMLParser):
    """The links of a page, and the anchors that it has."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: set[str] = set()
        self.anchors: set[str] = {"", "top"}
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """One element."""
        for name, value in attrs:
            if name in ("href", "src") and value:
                self.links.add(value)
            elif (name == "id" or (name == "name" and tag == "a")) and value:
                self.anchors.add(value)


def broken(site: Path) -> Iterator[str]:
    """One line for each link of the site to a file or an anchor that is not there."""
    pages = {path.resolve(): _Page(path) for path in sorted(site.rglob("*.html"))}
    for path, page in pages.items():
        # A host serves this page at any address, so its links begin with /.
        for link in sorted(page.links) if path.name != "404.html" else ():
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = path if not parts.path else (path.parent / unquote(parts.path)).resolve()
            target = target / "index.html" if target.is_dir() else target
            if not target.is_file():
                yield f"{path.relative_to(site.resolve())}: {link}: expected a file of the site, found none"
            elif target in pages and unquote(parts.fragment) not in pages[target].anchors:
                yield f"{path.relative_to(site.resolve())}: {link}: expected an anchor of {target.name}, found none"


if __name__ == "__main__":
    lines = list(broken(Path(sys.argv[1])))
    sys.exit("\n".join(lines) if lines else 0)
