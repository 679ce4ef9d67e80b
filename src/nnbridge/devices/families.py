"""Families of profiles: the releases, sizes or variants of one driver, compiler or delegate (``hardware.toml``)."""

from __future__ import annotations

from functools import cache

from nnbridge.devices.device import Device
from nnbridge.devices.hardware import plain, tables
from nnbridge.devices.samples import SampleDriver
from nnbridge.records import dataclass

SAMPLES, OWN, INSTALLED = "sample drivers", "nnbridge", "installed"
"""Groups of devices that no profile describes: AOSP's drivers in Python; NNAPI's CPU and the host; other packages'."""


@dataclass(frozen=True)
class Family:
    """One driver, compiler or delegate."""

    name: str
    title: str
    vendor: str
    chips: str
    door: str
    """NNAPI driver, NNAPI support library, compiler or delegate."""
    members: str
    """The kind of its profiles: releases, sizes or variants."""
    profiles: tuple[tuple[str, str], ...]
    """The name and date of each, the oldest or smallest first; an empty date is not known."""

    @property
    def names(self) -> tuple[str, ...]:
        """The names of its profiles."""
        return tuple(name for name, _ in self.profiles)

    @property
    def dates(self) -> str:
        """The first and the last date."""
        known = sorted({date for _, date in self.profiles if date})
        return " to ".join(dict.fromkeys((known[0], known[-1]))) if known else "undated"

    @property
    def choice(self) -> str:
        """The names to choose from, the newest or largest first, and where to read of them."""
        order = {"releases": ", newest first", "sizes": ", largest first"}.get(self.members, "")
        listed = ", ".join(reversed(self.names))
        return f"one of the {self.members} of {self.name}{order}: {listed}; `nnbridge devices {self.name}` compares them"


@cache
def families() -> tuple[Family, ...]:
    """All families of the file."""
    return tuple(Family(**{**entry, "profiles": tuple(map(tuple, entry["profiles"]))}) for entry in tables()["family"])


@cache
def _by_profile() -> dict[str, Family]:
    return {name: family for family in families() for name in family.names}


def family_of(profile: str) -> Family | None:
    """The family of a shipped profile, None for other devices."""
    return _by_profile().get(profile)


def group_of(device: Device) -> str:
    """The family of a device, or the group of one that has none."""
    family = family_of(device.name)
    if family is not None:
        return family.name
    if device.kind != "device":
        return OWN
    return SAMPLES if isinstance(device, SampleDriver) else INSTALLED


def family_named(text: str) -> Family | None:
    """The family of that name, whatever its case and the marks in it."""
    requested = plain(text)
    return next((family for family in families() if plain(family.name) == requested), None)
