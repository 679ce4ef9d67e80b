"""Reads logs: headers, lines that chatty left out, messages that were wrapped or cut; and finds the pattern of each line.

Lines may come from logcat in any of its forms, from Android Studio, from a terminal or from another program's log around them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from pathlib import Path

from nnbridge.errors import InputError, Reason, cannot_read
from nnbridge.foreign import ReadingBudget
from nnbridge.log_lines.patterns import LEAST_CUT, LEAST_WRAPPED, PATTERNS, Form, LinePattern, forms
from nnbridge.reading import read_at_most
from nnbridge.records import dataclass

MAX_BYTES = 256 * 2**20
MAX_LINE = 8_192
"""Characters of a line that are looked at; logcat's own limit is half of it."""
_MOST_WRAPPED = 3
"""Lines that a wrapped message continues on."""
_COLOURS = re.compile(r"\x1b\[[0-9;]{0,20}m")
_QUOTED = " \t>|"
"""What mailers and issues put before a line."""
_BEFORE_LISTED = re.compile(r"^\s*(?:[A-Z]+: )?(?=[A-Z][A-Z0-9_]*:)")
MAX_LINES = 3_000_000
_MOST_WRAPS = 100_000
"""Lines of one log that are looked at together with those after them."""
_CHATTY = re.compile(r"chatty\s*:")
_SAME = re.compile(r"\bidentical (\d+) lines?")
_STAMP = r"(?:\d{4}-)?(?:\d\d-\d\d )?\d\d:\d\d:\d\d\.\d+\s+"
_MOST_HEADER = 256
_FIRST = frozenset("0123456789[VDIWEFA")
"""How headers begin."""
_HEADERS = (
    # logcat -v long, whose message is on the next line
    re.compile(r"^\[ (?:\S+ ){1,3}\s*(?P<pid>\d+):\s*(?P<tid>\d+) (?P<level>[VDIWEFA])/\S+\s*\]"),
    # -v threadtime, with or without a year, a zone, a user; tags with the process's name in place of the thread's number
    re.compile(rf"^{_STAMP}(?:[+-]\d{{4}} )?(?:\w+ +)?(?P<pid>\d+) +(?P<tid>\d+) (?P<level>[VDIWEFA]) "),
    # Android Studio, before and since 2022
    re.compile(rf"^{_STAMP}(?P<pid>\d+)-(?P<tid>\d+)/\S+ (?P<level>[VDIWEFA])/"),
    re.compile(rf"^{_STAMP}(?P<pid>\d+)-(?P<tid>\d+)\s+\S.{{0,120}}?\s(?P<level>[VDIWEFA])  "),
    # -v time and -v brief
    re.compile(rf"^(?:{_STAMP})?(?P<level>[VDIWEFA])/[^(:]{{1,80}}\(\s*(?P<pid>\d+)\): "),
    # -v process and -v thread
    re.compile(r"^(?P<level>[VDIWEFA])\(\s*(?P<pid>\d+)(?::\s*(?P<tid>\d+))?\) "),
    # -v tag, and programs of their own on a terminal
    re.compile(rf"^(?:{_STAMP})?(?P<level>[VDIWEFA])/[\w.:-]{{1,80}}\s*: "),
    re.compile(rf"^{_STAMP}(?P<level>[VDIWEFA])\s"),
    re.compile(r"^(?P<level>VERBOSE|INFO|WARNING|ERROR): "),
)


@dataclass(frozen=True, slots=True)
class LogLine:
    """A line of a log."""

    number: int
    text: str
    """All of it; of one that chatty left out, the line that is repeated."""
    thread: str = ""
    """Process and thread, where the log has them: lines of several are mixed."""
    headed: bool = False
    """True if it begins as a line of a log does, and is no continuation."""
    times: str = "1"
    """In digits, how often it is there."""


@dataclass(frozen=True, slots=True)
class ReadLine:
    """A line of a log and its pattern."""

    line: LogLine
    pattern: LinePattern | None = None
    """None for a line that no pattern has."""
    fields: Mapping[str, str] = field(default_factory=dict)
    cut: bool = False
    """True if the line ends before its form does."""
    lines: int = 1
    """Over how many lines it was wrapped."""


def read_text(path: Path) -> str:
    """The text of a log; InputError if it cannot be read, or is too long."""
    return decoded(read_content(path), str(path))


def read_content(path: Path) -> bytes:
    """The bytes of a log, or one more than are read; InputError if it cannot be read."""
    try:
        return read_at_most(path, MAX_BYTES)
    except OSError as error:
        raise InputError(Reason("a readable log", cannot_read(error), file=str(path))) from error


def decoded(content: bytes, name: str) -> str:
    """Bytes of a log as text, in which every line ends with \\n; InputError for more than is read."""
    if len(content) > MAX_BYTES:
        raise InputError(Reason(f"a log of at most {MAX_BYTES:,} bytes", "more", operand=name))
    encoding = "utf-16" if content[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8"  # PowerShell's > writes UTF-16.
    return content.decode(encoding, errors="replace").replace("\r\n", "\n").replace("\r", "\n")


def numbered(text: str) -> Iterator[tuple[int, str]]:
    """Each line that is not empty, and its number; InputError for more lines than a phone's log has."""
    if (count := text.count("\n")) > MAX_LINES:
        raise InputError(Reason(f"a log of at most {MAX_LINES:,} lines", f"{count:,}"))
    return ((number, line) for number, line in enumerate(text.split("\n"), 1) if line)


def log_lines(text: str) -> Iterator[LogLine]:
    """The lines that are not empty. Those that chatty left out are there again."""
    last: dict[str, str] = {}
    long: re.Match[str] | None = None
    for number, line in numbered(text):
        if line[0] == "\x1b":  # logcat -v color, and programs that colour whole lines
            line = _COLOURS.sub("", line)
        found = _header(line)
        if found is not None and found.re is _HEADERS[0]:
            long = found
            continue
        header, long = found or long, None
        parts = {} if header is None else header.groupdict()
        thread = "-".join(parts[name] for name in ("pid", "tid") if parts.get(name))
        chatty = _CHATTY.search(line[:MAX_LINE]) if "chatty" in line else None
        same = _SAME.search(line[:MAX_LINE], chatty.end()) if chatty else None
        if same:
            yield LogLine(number, last.get(thread, ""), thread, True, same.group(1))
        else:
            last[thread] = line
            yield LogLine(number, line, thread, header is not None)


def _header(line: str) -> re.Match[str] | None:
    start = line[:_MOST_HEADER].lstrip(_QUOTED)
    for header in _HEADERS if start[:1] in _FIRST else ():
        if (match := header.match(start)) is not None:
            return match
    return None


def read_lines(text: str) -> Iterator[ReadLine]:
    """Each line that is not empty with its pattern, wrapped messages in one piece."""
    waiting: list[LogLine] = []
    known = _Known()
    for line in log_lines(text):
        waiting.append(line)
        if len(waiting) > _MOST_WRAPPED:
            yield known.next(waiting)
    while waiting:
        yield known.next(waiting)


@dataclass(frozen=True, slots=True)
class _Match:
    """A form that a text has."""

    rank: int
    """Its place in the table: of several forms that a wrapped line may have, the first is meant."""
    pattern: LinePattern
    form: Form
    found: re.Match[str]


class _Known:
    """Finds patterns of lines, one after another."""

    def __init__(self) -> None:
        known = list(forms())
        # A line is looked for the text first, which is a hundred times faster than an expression.
        self._whole = [(form.anchor, rank, pattern, form) for rank, (pattern, form) in enumerate(known)]
        self._begun = [(form.head, pattern, form) for pattern, form in known]
        self._wraps = ReadingBudget(_MOST_WRAPS, f"at most {_MOST_WRAPS:,} lines that the next one may continue", "the log,")
        self._lists = {pattern.within for pattern in PATTERNS} - {""}
        self._listing = ""
        """The pattern of the list whose lines follow."""

    def next(self, waiting: list[LogLine]) -> ReadLine:
        """The first of these lines, with those that continue it; they are taken out."""
        line = waiting.pop(0)
        text = line.text[:MAX_LINE]
        if self._listing and (listed := self._listed(text)) is not None:
            return ReadLine(line, *listed)
        match, count = self._read(text), 0
        if waiting and not waiting[0].headed and (self._is_begun(text) if match is None else match.form.is_open):
            match, count = self._wrapped(text, waiting, match)
            del waiting[:count]
        if match is not None:
            self._listing = match.pattern.name if match.pattern.name in self._lists else ""
            return ReadLine(line, match.pattern, match.found.groupdict(), lines=1 + count)
        for head, pattern, form in self._begun:
            if head in text and (fields := form.begun(text, LEAST_CUT)) is not None:
                return ReadLine(line, pattern, fields, cut=True)
        return ReadLine(line)

    def _wrapped(self, text: str, after: Sequence[LogLine], alone: _Match | None) -> tuple[_Match | None, int]:
        """The first form of the table that a line has with those that continue it, and how many these are."""
        self._wraps.spend(1, f" line {after[0].number}")
        best, lines = alone, 0
        for count, joined in _joined(text, after):
            match = self._read(joined)
            inside = match is not None and match.found.start() < len(text.rstrip()) < match.found.end()
            if match is not None and inside and (best is None or match.rank < best.rank):
                best, lines = match, count
        return best, lines

    def _read(self, text: str) -> _Match | None:
        for anchor, rank, pattern, form in self._whole:
            if anchor in text and (found := form.read(text)) is not None:
                return _Match(rank, pattern, form, found)
        return None

    def _is_begun(self, text: str) -> bool:
        return any(head in text and form.begun(text, LEAST_WRAPPED) is not None for head, _, form in self._begun)

    def _listed(self, text: str) -> tuple[LinePattern, Mapping[str, str]] | None:
        """The line as one of a list."""
        bare = _BEFORE_LISTED.sub("", text)
        for pattern, form in forms(self._listing):
            if (match := form.expression.match(bare)) is not None:
                return pattern, match.groupdict()
        return None


def _joined(text: str, after: Sequence[LogLine]) -> Iterator[tuple[int, str]]:
    """A message with one, two … lines that continue it: wrapped at a space, or within a word."""
    spaced, tight = text, text
    for count, line in enumerate(after, 1):
        if line.headed:
            return
        spaced, tight = f"{spaced.rstrip()} {line.text.strip()}"[:MAX_LINE], f"{tight}{line.text}"[:MAX_LINE]
        yield count, spaced
        yield count, tight
