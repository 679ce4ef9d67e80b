"""The fenced blocks of the documentation's pages, and the comments before them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.conftest import REPOSITORY

DOCS = REPOSITORY / "docs"
PAGES = [REPOSITORY / "README.md", *sorted(DOCS.glob("*.md"))]
BLOCK = re.compile(r"^(?:<!-- ([\w-]+)(?:: (.+?))? -->\n)?```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"(?:! )?nnbridge ")
SHELL = re.compile(r"[$|>;`]|&&")


@dataclass(frozen=True)
class Block:
    """A fenced block, and the mark of the comment before it: ``file: NAME``, ``output``, or a name that means nothing here."""

    mark: str
    text_of_mark: str
    language: str
    text: str

    @property
    def file(self) -> str:
        """The file that it is, if any."""
        named = re.match(r"# ([\w.-]+\.(?:py|toml))\n", self.text)
        return self.text_of_mark if self.mark == "file" else named[1] if named else ""

    @property
    def is_sample(self) -> bool:
        """True for a command with its output, which scripts/documentation/make_samples.py writes and checks."""
        return self.text.startswith("$ nnbridge ")

    @property
    def lines(self) -> list[str]:
        """The lines of commands, joined where one goes on."""
        return [line for line in self.text.replace("\\\n", " ").splitlines() if line.strip() and not line.startswith("#")]

    @property
    def is_nnbridge_alone(self) -> bool:
        """True if every line is a command of nnbridge's without a shell's signs: such ones run in the tests' own process."""
        lines = [re.sub(r"\s+# .*|'[^']*'|\"[^\"]*\"", "", line) for line in self.lines]
        return all(COMMAND.match(line) and not SHELL.search(line) for line in lines)


def blocks(page: Path) -> Iterator[Block]:
    return (Block(*found) for found in BLOCK.findall(page.read_text(encoding="utf-8")))
