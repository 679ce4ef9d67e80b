"""Families of profiles as tables and data: a row for each, and one opened, with what changed from release to release."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from nnbridge.devices import device
from nnbridge.devices.evidence import Evidence, evidence, shared_evidence
from nnbridge.devices.families import INSTALLED, OWN, SAMPLES, Family, families
from nnbridge.devices.hardware import androids_of
from nnbridge.devices.profiles import ProfileDevice
from nnbridge.devices.source_profiles import SourceProfile
from nnbridge.records import dataclass
from nnbridge.report.plan import devices_table
from nnbridge.report.profiles import OTHERS, profile_as_dict, source_profile_as_dict
from nnbridge.report.terminal import Table, counted

_Alternatives: TypeAlias = "tuple[tuple[tuple[str, str], ...], ...]"
_Rules: TypeAlias = "dict[str, _Alternatives]"
_NAMED = 3
"""Operations of a change that are named in a table."""
_TITLES = {INSTALLED: "Devices of installed packages", SAMPLES: "AOSP's sample drivers", OWN: "NNAPI's CPU and the host"}


@dataclass(frozen=True)
class RuleChange:
    """The operations of a profile beside those of another one: new ones, missing ones, and those with other rules."""

    count: int
    """Operations that the profile lists as supported."""
    others: bool
    """True if it has rules for all other operations."""
    since: str
    """The other profile; empty for the first of a family."""
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()

    @property
    def lines(self) -> Iterator[str]:
        """The change in short lines."""
        if not self.since:
            listed = [counted(self.count, "operation")] if self.count else []
            yield " and ".join([*listed, *([f"rules for all {'others' if listed else 'operations'}"] if self.others else [])])
        elif not (self.added or self.removed or self.changed):
            yield f"rules as {self.since}"
        else:
            signs = {"new": self.added, "gone": self.removed, "changed": self.changed}
            yield from (f"{len(names)} {word}: {_some(names)}" for word, names in signs.items() if names)

    def as_dict(self) -> dict[str, Any]:
        """For ``--json``."""
        lists = {key: list(getattr(self, key)) for key in ("added", "removed", "changed")}
        return {"operations": self.count, "others": self.others, "since": self.since, **lists}


def _some(names: Sequence[str]) -> str:
    shown = ["all others" if name == OTHERS else name for name in names[:_NAMED]]
    return ", ".join(shown) + (f" and {len(names) - _NAMED} more" if len(names) > _NAMED else "")


def profiles_of(family: Family) -> list[ProfileDevice | SourceProfile]:
    """The profiles of a family, in its order."""
    return [found for name in family.names if isinstance(found := device(name), (ProfileDevice, SourceProfile))]


def rules_of(profile: ProfileDevice | SourceProfile) -> dict[str, Any]:
    """A profile's description and its rules as sentences, whichever kind of rules it has."""
    return source_profile_as_dict(profile) if isinstance(profile, SourceProfile) else profile_as_dict(profile)


def changes_of(family: Family) -> list[RuleChange]:
    """The change from each profile of a family to the next one, the count of operations for the first."""
    found: list[RuleChange] = []
    before: _Rules = {}
    for profile in profiles_of(family):
        rules = {name: _bare(operation) for name, operation in rules_of(profile)["operations"].items()}
        since = family.names[len(found) - 1] if found else ""
        pairs = {name: (_rule(before, name), _rule(rules, name)) for name in {**rules, **before}} if since else {}
        count = sum(bool(rule) for name, rule in rules.items() if name != OTHERS)
        added = tuple(name for name, (old, new) in pairs.items() if new and not old)
        removed = tuple(name for name, (old, new) in pairs.items() if old and not new)
        changed = tuple(name for name, (old, new) in pairs.items() if old and new and old != new)
        found.append(RuleChange(count, bool(_rule(rules, OTHERS)), since, added, removed, changed))
        before = rules
    return found


def _rule(rules: _Rules, name: str) -> _Alternatives:
    """The rules of an operation, those of all others where a profile does not list it; none where it is never supported."""
    return rules.get(name, rules.get(OTHERS, ()))


def _bare(operation: Mapping[str, Any]) -> _Alternatives:
    """The rules of an operation without the places where they were read."""
    if not operation["supported"]:
        return ()
    return tuple(tuple((rule["rule"], str(rule.get("terms", ""))) for rule in way["rules"]) for way in operation["alternatives"])


def level_of(profile: ProfileDevice | SourceProfile) -> str:
    """The feature level of a driver's profile; the kind of file that a compiler or delegate looks at."""
    return profile.format if isinstance(profile, SourceProfile) else str(profile.feature_level)


def families_tables(listed: Iterable[Mapping[str, Any]]) -> Iterator[Table | str]:
    """A row for each family, then the other devices by their group."""
    rows = []
    for family in families():
        known = shared_evidence(profiles_of(family))
        rules = "verified" if known.verified.startswith("verified") else "not compared"
        numbers = _numbers(known).removeprefix("numbers ")
        years = "–".join(dict.fromkeys(date.partition("-")[0] for date in family.dates.split(" to ")))
        chips = (f"{family.vendor}: {family.chips}", family.door)
        rows.append((family.name, chips, (str(len(family.names)), years), (rules, numbers)))
    opens = "`nnbridge devices FAMILY` opens a row; `nnbridge devices --all` lists every device; `--device NAME` uses one."
    yield Table("Families", ("family", "vendor: chips", "devices", "rules, numbers"), rows, opens, ruled=True)
    others = list(listed)
    for group, title in _TITLES.items():
        members = [dict(item) for item in others if item["family"] == group]
        if members:
            yield devices_table(members, title)


def _numbers(known: Evidence) -> str:
    return known.numbers.partition(" (")[0]


def members_of(family: Family) -> str:
    """The first and the last of a family, without what all of their names begin with, and how many there are."""
    parts = [name.split("-") for name in family.names]
    begin = min(range(len(parts[0])), key=lambda k: len({tuple(part[: k + 1]) for part in parts}) == 1)
    short = ["-".join(part[begin:]) for part in parts]
    return f"{short[0]} … {short[-1]} ({len(short)})" if len(short) > 1 else "1"


def family_as_dict(family: Family) -> dict[str, Any]:
    """A family and its profiles for ``--json``."""
    texts = {key: getattr(family, key) for key in ("name", "title", "vendor", "chips", "door", "members")}
    profiles = zip(family.profiles, profiles_of(family), changes_of(family), strict=True)
    return {
        **texts,
        "profiles": [
            {
                "name": name,
                "date": date,
                "androids": list(androids_of(name)),
                "level": level_of(profile),
                "driver_version": profile.version,
                "change": change.as_dict(),
                "evidence": evidence(profile).as_dict(),
            }
            for (name, date), profile, change in profiles
        ],
    }


def family_blocks(family: Family) -> Iterator[Table | str]:
    """A family opened: a row for each profile, with its date, level, evidence and what changed."""
    profiles = profiles_of(family)
    each = [(known.verified, _numbers(known)) for known in map(evidence, profiles)]
    shared = len(set(each)) == 1
    yield f"{family.title} ({family.door})"
    facts = {"vendor": family.vendor, "chips": family.chips, "rules": shared_evidence(profiles).rules}
    yield from (f"  {key}: {text}" for key, text in (facts | ({"evidence": "; ".join(each[0])} if shared else {})).items())
    rows = [
        (name, date or "-", ", ".join(androids_of(name)), level_of(profile), *(() if shared else (known,)), tuple(change.lines))
        for (name, date), profile, known, change in zip(family.profiles, profiles, each, changes_of(family), strict=True)
    ]
    columns = ("name", "date", "Android", "level", *(() if shared else ("evidence",)), "changes")
    below = f"`--device {family.names[-1]}` uses one; `nnbridge devices explain {family.names[-1]}` prints its rules."
    yield Table(family.members.capitalize(), columns, rows, below, ruled=True)
