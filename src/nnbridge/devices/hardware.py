"""Chips, boards and phones → profiles: ``hardware.toml`` and ``phones.toml``, and finding an entry by what a user types."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from difflib import SequenceMatcher
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from nnbridge import toml
from nnbridge.records import dataclass
from nnbridge.types import ANDROID_LEVELS

_FOLDER = Path(__file__).parent
_SIMILAR = 0.8
_MOST = 6
"""Entries that a text finds at most."""
_LONGEST = 100
"""Letters of a text that is compared with names."""
_WORDS = re.compile(r"[a-z]+|\d+")
_SPELLINGS = {"sd": "snapdragon", "rpi": "raspberrypi"}
"""First words that people shorten."""
SAME, PART, LONGER, SIMILAR, LINE, UNLISTED = "same", "part", "longer", "similar", "line", "unlisted"
"""Ways in which a text names an entry: by a name; a part of one; a name and more; one that is alike; its vendor or line only;
these and something that is not listed."""


@dataclass(frozen=True)
class Hardware:
    """One chip, or a family of chips and boards with the same answer."""

    name: str
    accelerator: str
    sources: tuple[str, ...]
    lines: tuple[str, ...] = ()
    """Its vendor, and product lines: names that other entries may have too."""
    chips: tuple[str, ...] = ()
    also: tuple[str, ...] = ()
    """Names of boards with it, and its other names."""
    driver: str = "not known"
    android: str = "not known"
    profiles: tuple[str, ...] = ()
    """Profiles of its driver or compiler, the one to try first before the others."""
    nearest: tuple[str, ...] = ()
    """Profiles that are not of it, where there is none."""
    unknown: str = ""
    """The part that no public rules are known of."""
    unwritten: str = ""
    """The part whose rules are public, but in no profile."""
    note: str = ""
    rest: tuple[str, ...] = ()
    """Lines of which the entry is for all chips that no other entry has."""

    @property
    def is_android(self) -> bool:
        """True unless it is known that it does not run Android."""
        return not self.android.startswith("not Android")

    @property
    def instead(self) -> tuple[str, ...]:
        """Options for what runs on it all the same, where a part of it has no public rules or no profile."""
        if not (self.unknown or self.unwritten):
            return ()
        phones = ("--device litert-gpu (LiteRT's GPU route)", "no --device (NNAPI's CPU)")
        return (*(phones if self.is_android else ()), "--device xnnpack (LiteRT's CPU)")

    @property
    def sentence(self) -> str:
        """The device to use for it, or that nothing is known."""
        return self.sentence_for("")

    def sentence_for(self, android: str) -> str:
        """The device to use for it under an Android version (empty: not stated), or that nothing is known."""
        known = [_device_of(self.profiles, android)] if self.profiles else []
        if self.unknown:
            known.append(f"no public rules are known for {self.unknown}")
        if self.unwritten:
            known.append(f"no profile has the rules of {self.unwritten}, which are public")
        if self.nearest:
            known.append(f"the nearest is {' or '.join(self.nearest)}, which is not it")
        if self.instead and not self.profiles:
            known.append(f"instead: {', '.join(self.instead)}")
        return f"{self.name}: {'; '.join(known)}"


def _device_of(profiles: Sequence[str], android: str) -> str:
    """The first profile as an option, and its Android versions where those of the others differ."""
    first, stated = profiles[0], androids_of(profiles[0])
    others = any(androids_of(name) not in ((), stated) for name in profiles[1:])
    if not (others or (android and stated)):
        return f"--device {first}"
    versions = f"of Android {' and '.join(stated)}" if stated else "whose Android is not known"
    if android in stated:
        return f"--device {first} --android {android}"
    if android:
        return f"no profile is of Android {android}; the nearest is --device {first}, {versions}"
    return f"--device {first}, which is {versions} (`nnbridge devices find … --android N` for another)"


@dataclass(frozen=True)
class Phone:
    """A phone or tablet, and where its chip is stated."""

    name: str
    chip: str
    source: str


@dataclass(frozen=True)
class Found:
    """An entry that a text names, and how."""

    typed: str
    entry: Hardware
    name: str
    """The name that the text is compared with."""
    how: str
    phone: Phone | None = None
    android: str = ""
    """The Android version that was asked for."""

    @property
    def near(self) -> bool:
        """True if the text has a name of the entry in it, or is a part of one."""
        return self.how in (SAME, PART, LONGER, LINE)

    @property
    def exact(self) -> bool:
        """True if the text is a name of the entry, its vendor or its line."""
        return self.how in (SAME, LINE)

    @property
    def note(self) -> str:
        """The name found instead of the text, and the chip of a phone; empty where the text is a name of the entry."""
        chip = f"{self.phone.name} has the {self.phone.chip}" if self.phone else ""
        if self.exact:
            return chip
        if self.how == UNLISTED:
            return f"{self.typed} is not listed{' by itself' if self.name in self.entry.rest else f'; of {self.name} there is'}"
        return f"{self.typed} is not listed by that name; {chip or f'{self.name} is'}"

    @property
    def sentence(self) -> str:
        """The note, and what to use for it."""
        said = self.entry.sentence_for(self.android)
        return f"{self.note}{'; ' if self.exact else ': '}{said}" if self.note else said


@dataclass(frozen=True, eq=False)
class _Name:
    """A name that a text is compared with."""

    text: str
    entry: Hardware
    line: bool = False
    phone: Phone | None = None

    @cached_property
    def words(self) -> tuple[str, ...]:
        return words_of(self.text)

    @cached_property
    def plain(self) -> str:
        return "".join(self.words)


@cache
def tables() -> dict[str, Any]:
    """The content of ``hardware.toml``."""
    return toml.parse((_FOLDER / "hardware.toml").read_text(encoding="utf-8"))


@cache
def hardware() -> tuple[Hardware, ...]:
    """All entries of the file."""
    listed: list[dict[str, Any]] = tables()["hardware"]
    frozen: list[dict[str, Any]] = [{k: tuple(v) if isinstance(v, list) else v for k, v in entry.items()} for entry in listed]
    return tuple(Hardware(**entry) for entry in frozen)


@cache
def phones() -> tuple[Phone, ...]:
    """All phones; a source without a protocol is the name of a file in the folder that ``phones.toml`` names."""
    content = toml.parse((_FOLDER / "phones.toml").read_text(encoding="utf-8"))
    found = []
    for chip, listed in content["chips"].items():
        for name, source in listed.items():
            found.append(Phone(name, chip, source if "://" in source else content["folder"].format(source)))
    return tuple(found)


def androids_of(profile: str) -> tuple[str, ...]:
    """The Android versions that a release of a driver belongs to; none where these are not known or not fixed."""
    return tuple(tables()["android"].get(profile, ()))


def for_android(profiles: Sequence[str], android: str) -> tuple[str, ...]:
    """Profiles with those of an Android version first, else those of the nearest version.

    Those that it may have follow: of no stated version, with a feature level no higher than Android's. Others are last.
    """
    from nnbridge.devices import device

    order = list(ANDROID_LEVELS)
    known = any(android in androids_of(name) for name in profiles)

    def rank(name: str) -> tuple[int, int]:
        stated = androids_of(name)
        if not stated:
            return 1 + (int(device(name).feature_level) > ANDROID_LEVELS[android]), 0
        away = min(abs(order.index(one) - order.index(android)) for one in stated)
        return 3 if known and away else 0, away

    return tuple(sorted(profiles, key=rank))


def plain(text: str) -> str:
    """A name without case and marks, to compare it with another."""
    return "".join(words_of(text))


def words_of(text: str) -> tuple[str, ...]:
    """Words and numbers of a name, without case, marks and accents between them: ``i.MX 8M+`` → i, mx, 8, m, plus."""
    found = _WORDS.findall(text.lower().replace("+", " plus "))
    return (*_WORDS.findall(_SPELLINGS.get(found[0], found[0])), *found[1:]) if found else ()


@cache
def _names() -> tuple[_Name, ...]:
    listed = [name for entry in hardware() for name in _names_of(entry)]
    by_chip = {plain(chip): entry for entry in hardware() for chip in entry.chips}
    lines = {name.plain for name in listed if name.line}
    makers: set[tuple[str, str]] = set()
    for phone in phones():
        entry = by_chip[plain(phone.chip)]
        maker = phone.name.partition(" ")[0]
        if plain(maker) not in lines and (maker, entry.name) not in makers:
            makers.add((maker, entry.name))
            listed.append(_Name(maker, entry, line=True))
        listed += [_Name(text, entry, phone=phone) for text in _short_forms(phone.name)]
    return tuple(listed)


def _names_of(entry: Hardware) -> Iterator[_Name]:
    of_lines = {word for line in entry.lines for word in words_of(line)}
    for line in dict.fromkeys((*entry.lines, *([entry.name] if of_lines.issuperset(words_of(entry.name)) else []))):
        yield _Name(line, entry, line=True)
    for name in (entry.name, *entry.chips, *entry.also, *entry.profiles):
        if of_lines.issuperset(words_of(name)):
            continue
        yield _Name(name, entry)
        vendor = entry.lines[0] if entry.lines else ""
        if vendor and not name.startswith(vendor):
            yield _Name(f"{vendor} {name}", entry)
        elif _tells(rest := name.removeprefix(vendor).strip()):
            yield _Name(rest, entry)


def _short_forms(phone: str) -> Iterator[str]:
    """The name, and what people leave out of it: the vendor, and Galaxy; what remains has to be more than one word."""
    yield phone
    rest = phone
    for first in (phone.partition(" ")[0], "Galaxy"):
        rest = rest.removeprefix(first).strip()
        if rest != phone and _tells(rest):
            yield rest


def _tells(rest: str) -> bool:
    """True if what remains of a name without its vendor is still one: more than a word or a number."""
    return len(words_of(rest)) > 1


def find(text: str, android: str = "") -> list[Found]:
    """The entries that a text names, the best first: by a name, by a part of one, by a similar one, by vendor or product line.

    ``android``: a version of Android, of which each entry's profiles come first.
    """
    words = words_of(text)
    letters = "".join(words)
    if not 2 <= len(letters) <= _LONGEST:
        return []
    chosen: list[tuple[_Name, str]] = []
    for way in (_same, _part, _longer, _similar, _line):
        chosen = way(words, letters)
        if chosen:
            break
    found: dict[str, Found] = {}
    for name, how in chosen:
        found.setdefault(name.entry.name, Found(text, name.entry, name.text, how, name.phone))
    listed = list(found.values())[:_MOST]
    if not android:
        return listed
    ordered = (replace(one.entry, profiles=for_android(one.entry.profiles, android)) for one in listed)
    return [replace(one, entry=entry, android=android) for one, entry in zip(listed, ordered, strict=True)]


def _same(words: Sequence[str], letters: str) -> list[tuple[_Name, str]]:
    same = [name for name in _names() if name.plain == letters]
    return [(name, LINE if name.line else SAME) for name in sorted(same, key=lambda name: name.line)]


def _part(words: Sequence[str], letters: str) -> list[tuple[_Name, str]]:
    """Names with the text in them, the shortest first; numbers and words are not cut: ``pixel 1`` is no part of ``Pixel 10``."""
    if len(letters) < 3:
        return []
    parts = [name for name in _names() if not name.line and _within(words, name.words)]
    return [(name, PART) for name in sorted(parts, key=lambda name: len(name.plain))]


def _longer(words: Sequence[str], letters: str) -> list[tuple[_Name, str]]:
    """The longest names that are in the text. One word says too little, unless it is a number's."""
    inside = [name for name in _names() if not name.line and len(name.plain) > 2 and _within(name.words, words)]
    inside = [name for name in inside if name.phone is None or len(name.words) > 1]
    longest = max((len(name.plain) for name in inside), default=0)
    return [(name, LONGER) for name in inside if len(name.plain) == longest]


def _similar(words: Sequence[str], letters: str) -> list[tuple[_Name, str]]:
    """Names that are alike; another number is another chip, and so are other letters that belong to it."""
    alike = [name for name in _names() if _codes(name.words) == _codes(words)]
    scores = {name: SequenceMatcher(None, letters, name.plain).ratio() for name in alike}
    best = sorted((name for name in alike if scores[name] >= _SIMILAR), key=lambda name: -scores[name])
    return [(name, SIMILAR) for name in best]


def _codes(words: Sequence[str]) -> list[str]:
    return [word for word in words if word.isdigit() or len(word) < 4]


def _line(words: Sequence[str], letters: str) -> list[tuple[_Name, str]]:
    """Entries of the last vendor or line in a text that names something else of it, or the entry for the rest of it."""
    places = {name: _place(name.words, words) for name in _names() if name.line}
    last = max(places.values(), default=-1)
    lines = [name for name, place in places.items() if place == last >= 0]
    return [(name, UNLISTED) for name in [n for n in lines if n.text in n.entry.rest] or lines]


def _within(part: Sequence[str], whole: Sequence[str]) -> bool:
    """True if the words are in the other ones, together and in their order."""
    return _place(part, whole) >= 0


def _place(part: Sequence[str], whole: Sequence[str]) -> int:
    """The last place where the words are in the other ones, -1 for none."""
    places = range(len(whole) - len(part), -1, -1)
    return next((at for at in places if tuple(whole[at : at + len(part)]) == tuple(part)), -1)
