"""Home-made words in documents, messages, docstrings and comments, each with the plain word that replaces it.

python scripts/documentation/check_words.py            exit with 1 if there are any
python scripts/documentation/check_words.py FILE…      look in these files only

A docstring begins with a noun or a verb. Patterns are whole words in any case. Code is not read: of pages no blocks, inline code,
comments and targets of links; of notebooks only text; of Python only strings, docstrings and comments, without what is between
backquotes; of JavaScript only strings and comments. Pages that scripts write are checked too: change the words at their source.
"""

from __future__ import annotations

import ast
import io
import json
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # scripts/

from script_support import REPOSITORY, argument_parser

EVERYWHERE = {
    r"nobody": "no one",
    r"anew": "again",
    r"one behind (?:the other|another)": "one after the other, contiguous",
    r"(?:begins?|lies?|lie|comes?|follows?|stands?) behind": "after",
    r"in (?:a process|processes) of (?:its|their) own": "in a separate process",
    r"of one's own": "custom, your",
    r"for ever": "forever; deadlock",
    r"as ever": "as usual",
    r"and its kin": "the … family",
    r"unmoved(?!\")": "unchanged",
    r"kept apart": "separate",
    r"quaint": "unusual",
    r"in vain": "without effect",
    r"alone(?! \(by itself\)|\*|, not in this file|[)=\"'])": "only; by itself, in isolation",
    r"behind(?![\"'])": "after; on (a device)",
    r"meanwhile": "in the meantime",
    r"(?:stands?|stood) (?:in|at|before)": "is in",
    r"brings? (?:a|the) (?:symptom|difference|failure|error)": "cause",
    r"at hand": "in question, available",
    r"where (?:it|they|an? \w+|\w+s) (?:stands?|lies?)": "position, index",
    r"(?:stands?|lies?) (?:together|apart|outside|inside|behind|on)": "is, are",
    r"laid down": "fixed, specified",
    r"weighed": "weighted",
    r"otherwise than|(?:comput|round|rescal|count)\w* otherwise": "differently from",
    r"by (?:a half|half|\w+ %) at least": "by at least …",
    r"(?<!there\s)(?:is|are) no (?:object|option|device|link|report|argument|file|tensor|constant|driver|phone's)": "is not a …",
    r"(?:knows?|known|said|says) of (?:it|them|this|one)": "about",
}
"""Checked in documents, and in strings, docstrings and comments of src and converters."""
DOCUMENTS = EVERYWHERE | {
    r"(?:stands?|stood) (?:for|beside|below|under)": "means, represents; is",
    r"lies?": "is",
    r"brings?": "causes, adds",
    r"seldom": "rarely",
    r"of your own": "your, custom",
    r"a \w+ of its own": "a separate …, its own …",
    r"tells?|told": "states, reports",
    r"mends?|mended|mending": "repair",
    r"settles?": "infers, decides",
    r"homes": "devices",
    r"(?<=[.]\s)What (?!is\b|are\b|does\b|do\b|happens\b)[^.?|]*[.]": "a noun first: Values that …",
    r"[Ss]o (?:is|are|does|do) (?:the|it|they|these|all|what)": "… , too; the same holds for …",
}
"""Checked in documents as well."""
ALLOWED = {
    "CONTRIBUTING.md": ("| tell, told |", "| settle |", "| homes |"),
    "docs/limits.md": ("only a phone can settle it",),
    "docs/how-android-decides.md": ("without telling the app",),
}
"""Lines that may have such a word: the list of words itself, and the ordinary meaning."""
PAGES = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "docs/*.md", "docs/*.ipynb", "tests/*.md")
SOURCES = ("src/*.py", "converters/*.py", "src/*.js")
WITH_DOCSTRINGS = ("src/*.py", "converters/*.py", "scripts/*.py", "tests/*.py", "examples/*.py")
_QUESTION = re.compile(r"(?:What|Who|Whose|How|Where|Whether|Why|Which|When|That)\b")
"""No docstring begins with one of these words."""
_NOT_PROSE = re.compile(r"^ *```.*?^ *```[^\n]*$|<!--.*?-->|`[^`\n]*`|\]\([^)\n]*\)", re.MULTILINE | re.DOTALL)
_SCRIPTS_PROSE = re.compile(r"/\*.*?\*/|//[^\n]*|\"(?:[^\"\\\n]|\\.)*\"|`[^`]*`", re.DOTALL)
_QUOTED = re.compile(r"``[^`]*``|`[^`\n]*`")


def found(path: Path) -> Iterator[tuple[int, str, str]]:
    """Line, word and replacement of each home-made word of a file."""
    text = path.read_text(encoding="utf-8")
    words, pieces_of = KINDS[path.suffix]
    pieces = [*pieces_of(text)]
    allowed = ALLOWED.get(path.relative_to(REPOSITORY).as_posix(), ())
    lines = text.splitlines()
    for pattern, better in words.items():
        for first, piece in pieces:
            for match in re.finditer(rf"\b(?:{pattern})(?!\w)".replace(" ", r"\s+(?:#\s+)?"), piece, re.IGNORECASE):
                number = first + piece.count("\n", 0, match.start())
                if not any(sentence in lines[number - 1] for sentence in allowed):
                    yield number, " ".join(match[0].replace("#", "").split()), better


def questions(path: Path) -> Iterator[tuple[int, str, str]]:
    """Line, first word and replacement of each docstring that begins with a question word."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            match = _QUESTION.match(ast.get_docstring(node) or "")
            if match:
                yield node.body[0].lineno, match[0], "a noun or a verb first"


def _blank(match: re.Match[str]) -> str:
    """As many lines without content."""
    return "\n" * match[0].count("\n") or "x"


def _page(text: str) -> Iterator[tuple[int, str]]:
    """A page without code."""
    yield 1, _NOT_PROSE.sub(_blank, text)


def _notebook(text: str) -> Iterator[tuple[int, str]]:
    """The lines of a notebook's text, without code."""
    for cell in json.loads(text)["cells"]:
        if cell["cell_type"] == "markdown":
            source = "".join(cell["source"])
            yield text.count("\n", 0, text.find(json.dumps(cell["source"][0]))) + 1, _NOT_PROSE.sub(_blank, source)


def _script(text: str) -> Iterator[tuple[int, str]]:
    """Comments of a script, and its strings of several words."""
    for match in _SCRIPTS_PROSE.finditer(text):
        if " " in match[0]:
            yield text.count("\n", 0, match.start()) + 1, match[0]


def _prose(source: str) -> Iterator[tuple[int, str]]:
    """Strings and comments of a module, with their lines; neighbouring comments are one text."""
    comment, at, last = "", 0, 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        name = tokenize.tok_name[token.type]
        if name == "COMMENT":
            if token.start[0] != last + 1:
                yield at, _QUOTED.sub(_blank, comment)
                comment, at = "", token.start[0]
            comment, last = f"{comment}\n{token.string}" if comment else token.string, token.start[0]
        elif name in ("STRING", "FSTRING_MIDDLE"):
            yield token.start[0], _QUOTED.sub(_blank, token.string)
    yield at, _QUOTED.sub(_blank, comment)


KINDS = {".md": (DOCUMENTS, _page), ".ipynb": (DOCUMENTS, _notebook), ".py": (EVERYWHERE, _prose), ".js": (EVERYWHERE, _script)}
"""Suffix → its words, and the pieces of a file that are read, with their first lines."""


def checked(*patterns: str) -> Iterator[Path]:
    """Every file of these patterns that git knows."""
    listed = subprocess.run(["git", "ls-files", *patterns], cwd=REPOSITORY, capture_output=True, text=True, check=True)
    for name in listed.stdout.splitlines():
        if (REPOSITORY / name).exists():
            yield REPOSITORY / name


def main() -> int:
    """Print what is found; 1 if there is anything."""
    parser = argument_parser()
    parser.add_argument("files", nargs="*", type=Path, help="files to look in; default: all")
    chosen = {path.resolve() for path in parser.parse_args().files}
    faults = [
        f"{path.relative_to(REPOSITORY)}:{line}: {word!r}: write {better!r}"
        for search, patterns in ((found, (*PAGES, *SOURCES)), (questions, WITH_DOCSTRINGS))
        for path in checked(*patterns)
        if not chosen or path in chosen
        for line, word, better in sorted(search(path))
    ]
    print("\n".join(faults) if faults else "no home-made words")
    return bool(faults)


if __name__ == "__main__":
    sys.exit(main())
