"""Evidence of a device: where its rules come from, what was verified of them, and whether its numbers are emulated."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Sequence
from dataclasses import asdict, replace
from typing import Any

from nnbridge.devices.device import Device
from nnbridge.devices.functions import FunctionDriver
from nnbridge.devices.profiles import ProfileDevice
from nnbridge.devices.samples import SampleDriver
from nnbridge.devices.source_profiles import BoundDevice, SourceProfile
from nnbridge.devices.wrapped import WrappedDevice
from nnbridge.operations.numerics import EXACT
from nnbridge.records import dataclass

NUMBERS_UNKNOWN = "numbers unknown (computed as NNAPI's CPU)"
"""The verdict on numbers of a device whose arithmetic nothing emulates."""
IDLE = "nothing on the device"
"""The verdict where no driver ran anything: what was compared says nothing of the device."""
_PROCESS = "process:"
_SHOWN = 80
"""Characters of a text of a profile that a clause has at most."""
_COUNTS = re.compile(r"([\d,]+) (?:random operations|answered)\b")
_DISAGREEMENTS = re.compile(r"([\d,]+) disagreements?\b")
_JUDGES = (
    (re.compile(r"\bto ((?:the|this)\b[^,()]*?)(?: and [^,()]*)? \(g\+\+ build\)"), "{} on a workstation"),
    (re.compile(r"^([\w.-]+ \d[\d.]*(?: on \w+)?)(?= for |:)"), "{}"),
)
"""Forms in which a text of a profile names what answered beside it, and how a clause does: no board is meant."""
_VERIFIED_AS = re.compile(r" for ([\w.-]+), ")


@dataclass(frozen=True)
class Evidence:
    """Evidence of one device."""

    device: str
    rules: str
    """Where the rules come from."""
    verified: str
    """What was verified of the rules."""
    numbers: str
    """Where the arithmetic comes from."""
    emulated: bool
    """True if the numbers are the device's, as far as is known; False if NNAPI's CPU is in."""

    @property
    def clause(self) -> str:
        """The evidence in one clause."""
        return f"rules: {self.rules}; {self.verified}; {self.numbers}"

    def as_dict(self) -> dict[str, Any]:
        """For ``--json``."""
        return asdict(self)


def evidence(device: Device) -> Evidence:
    """The evidence of a device."""
    from nnbridge.devices import device as opened
    from nnbridge.devices import runs_code

    found = device
    while isinstance(found, WrappedDevice):
        found = found.inner
    if found.name.startswith(_PROCESS) and not runs_code(inner := found.name.removeprefix(_PROCESS)):
        return replace(evidence(opened(inner)), device=device.name)
    profile = found.profile if isinstance(found, BoundDevice) else found
    if isinstance(profile, (ProfileDevice, SourceProfile)):
        emulated = bool(profile.numerics_source) or profile.numerics != EXACT.name
        numbers = f"numbers emulated ({profile.numerics})" if emulated else "numbers not emulated (computed as NNAPI's CPU)"
        faults = (
            [c for c in found.claims if c.fault and found.answer(c.operator.index) is None]
            if isinstance(found, BoundDevice)
            else []
        )
        if faults:
            emulated, numbers = False, f"numbers wrong on the device: {faults[0].operator.label}, {faults[0].fault}"
        rules = _rules(profile.source) if profile.source else "the profile names no source"
        return Evidence(device.name, rules, _verified(profile.verified, profile.name), numbers, emulated)
    if isinstance(profile, SampleDriver):
        return Evidence(device.name, "AOSP's sample driver", "ported to Python", "numbers are NNAPI's CPU's, as in AOSP", True)
    if device.kind != "device":
        return Evidence(device.name, "AOSP's", "compared with Android's conformance cases", "numbers are its own", True)
    computed = (
        f"numbers are NNAPI's CPU's ({found.numerics})" if isinstance(found, FunctionDriver) else "numbers are the driver's own"
    )
    return Evidence(device.name, "the driver's own replies", "nothing to verify", computed, True)


def evidences(devices: Iterable[Device]) -> list[Evidence]:
    """The evidence of each driver among devices."""
    return [evidence(device) for device in devices if device.kind == "device"]


def _rules(source: str) -> str:
    """A source without its protocol and the folders of its files: ``VeriSilicon/nn-sl, commit 4ecc84063cc8 (2025-01-21)``."""
    place, _, rest = source.partition(", ")
    place = re.sub(r"^https?://(github\.com/)?", "", place).rstrip("/")
    parts = re.split(r"/(?:blob|tree)/[0-9a-f]+/", place)
    last = parts[1].rsplit("/", 1)[-1] if len(parts) == 2 else ""
    return _short(", ".join(text for text in (parts[0], last, rest.partition(", ")[0]) if text))


def _verified(text: str, name: str) -> str:
    """A clause on the number of operations that were put to the device's own code, and of answers that differed."""
    if not text:
        return "not compared with the driver itself"
    counts, others = _counted(text)
    if not counts or not _DISAGREEMENTS.search(text):
        return f"verified: {_short(text)}"
    stated = _VERIFIED_AS.search(text)
    by = f" of {stated[1]}" if stated and stated[1] != name else ""
    return f"verified: {counts:,} random operations{by}, {others:,} disagreements{_judge(text)}"


def _judge(text: str) -> str:
    """The code that the answers were compared with, such as `` with the library's own code on a workstation``; else empty."""
    named = (form.format(match[1]) for pattern, form in _JUDGES if (match := pattern.search(text)))
    return next((f" with {judge}" for judge in named), "")


def _counted(text: str) -> tuple[int, int]:
    """The operations that a text of a profile names, and the disagreements."""
    return _sum(_COUNTS, text), _sum(_DISAGREEMENTS, text)


def _sum(form: re.Pattern[str], text: str) -> int:
    return sum(int(count.replace(",", "")) for count in form.findall(text))


def shared_evidence(profiles: Sequence[ProfileDevice | SourceProfile]) -> Evidence:
    """The evidence of the profiles of a family as that of one device."""
    each = [evidence(profile) for profile in profiles]
    if len(each) == 1:
        return each[0]
    counts = [_counted(profile.verified) for profile in profiles if profile.verified]
    least, most = min(counts, default=(0, 0))[0], max(counts, default=(0, 0))[0]
    amount = f"{least:,} to {most:,}" if least != most else f"{most:,}"
    who = "each" if len(counts) == len(each) else f"{len(counts)} of {len(each)}"
    wrong = sum(disagreements for _, disagreements in counts)
    judges = {_judge(profile.verified).replace("this release", "each release") for profile in profiles if profile.verified}
    judge = judges.pop() if len(judges) == 1 else ""
    verified = f"verified: {amount} random operations {who}, {wrong:,} disagreements{judge}" if most else each[0].verified
    rules = {one.rules.partition(",")[0] for one in each}
    numbers = {one.numbers for one in each}
    return Evidence("", " and ".join(sorted(rules)), verified, " or ".join(sorted(numbers)), all(one.emulated for one in each))


def _short(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1].rstrip()}…"


def unknown_numbers(found: Iterable[Evidence]) -> list[str]:
    """The devices whose arithmetic nothing emulates: NNAPI's CPU computes in their place."""
    return [each.device for each in found if not each.emulated]


def idle_devices(offered: Iterable[Device], ran: Container[str]) -> tuple[str, ...]:
    """The drivers that were offered a model, or NNAPI's CPU without any, where none of them ran anything: others computed all of
    the outputs."""
    known = list(offered)
    asked = [d.name for d in known if d.kind == "device"] or [d.name for d in known if d.kind == "cpu"]
    return () if any(name in ran for name in asked) else tuple(asked)


def reservation(found: Iterable[Evidence], idle: Sequence[str]) -> str:
    """The reason why a comparison says nothing of its devices, as a verdict: their numbers are unknown, or none of those that
    were offered the model ran anything. Empty where it does.

    ``found``: the evidence of each driver that ran something; ``idle``: :func:`idle_devices`.
    """
    return NUMBERS_UNKNOWN if unknown_numbers(found) else IDLE if idle else ""


def next_step(reference: str = "") -> str:
    """A clause on what helps where numbers are unknown; ``reference``: what they are compared with, if anything."""
    engines = "; `--reference litert,xnnpack` shows how far two engines do" if reference.startswith("litert") else ""
    return f"`compare --envelope` shows how far arithmetics that devices have change these outputs{engines}"


def evidence_lines(found: Iterable[Evidence]) -> list[str]:
    """A line for each device: where its rules come from, what was verified, whether its numbers are emulated."""
    return [f"{each.device}: {each.clause}" for each in found]
