"""MkDocs runs this: links of notebooks, and links of pages that leave docs/, hold in the site as they do in the repository.

A file that a page links outside of docs/ becomes a file of the site, under its path in the repository. README.md is the
repository's first page, index.md the site's.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable
from pathlib import Path
from posixpath import dirname, join, normpath, relpath
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page
from mkdocs.utils import get_relative_url

LINK = re.compile(r"\]\((?!\w+:|#)([^)#\s]+)")
TABLE_ROW = re.compile(r"^\|.*$", re.MULTILINE)
CODE = re.compile(r"`[^`\n]*`")
PAGE_LINK = re.compile(r'href="(?!\w+:)([^"#]+\.md)')
LOG = logging.getLogger("mkdocs.hooks.site")
PROJECT = ("CONTRIBUTING.md", "CHANGELOG.md")
"""Pages of the repository that are pages of the site."""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add what pages link, and what those link in turn."""
    root = _root(config)
    found, ahead = set(PROJECT), [*PROJECT, *(f"docs/{file.src_uri}" for file in files.documentation_pages())]
    while ahead:
        page = ahead.pop()
        for target in _targets(page, root):
            if not target.startswith("docs/") and target not in found and target != "README.md":
                found.add(target)
                ahead += [target] if target.endswith(".md") else []
    for path in sorted(found):
        if (root / path).is_file():
            listed = InclusionLevel.UNDEFINED if path in PROJECT else InclusionLevel.NOT_IN_NAV
            files.append(File.generated(config, path, abs_src_path=str(root / path), inclusion=listed))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, **_: Any) -> str:
    """Rewrite links from the repository's folders to the site's."""
    source = page.file.src_uri
    path = source if source in PROJECT or not (_root(config) / "docs" / source).exists() else f"docs/{source}"

    def moved(link: re.Match[str]) -> str:
        return f"]({relpath(_in_site(normpath(join(dirname(path), link[1]))), dirname(source) or '.')}"

    # A bar in code in a table has a backslash on a code host, which Python-Markdown would print.
    markdown = TABLE_ROW.sub(lambda row: CODE.sub(lambda code: code[0].replace("\\|", "|"), row[0]), markdown)
    return LINK.sub(moved, markdown)


def on_page_content(html: str, page: Page, files: Files, **_: Any) -> str:
    """Rewrite a notebook's links to pages, which MkDocs does for Markdown alone."""
    source = page.file.src_uri
    if not source.endswith(".ipynb"):
        return html

    def moved(link: re.Match[str]) -> str:
        target = files.get_file_from_path(normpath(join(dirname(source), link[1])))
        if target is None:
            LOG.warning("%s links %s, which is no page", source, link[1])
            return link[0]
        return f'href="{get_relative_url(target.url, page.url)}'

    return PAGE_LINK.sub(moved, html)


def _targets(page: str, root: Path) -> Iterable[str]:
    if page.endswith(".md"):
        yield from (normpath(join(dirname(page), link)) for link in LINK.findall((root / page).read_text(encoding="utf-8")))


def _in_site(path: str) -> str:
    return "index.md" if path == "README.md" else path.removeprefix("docs/")


def _root(config: MkDocsConfig) -> Path:
    return Path(config.config_file_path).parent
