"""Shell completion of free text: names of devices, files, the words of a metavar such as ``litert|FILE.npz``."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import click
from click.shell_completion import CompletionItem

Completion = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


def files(_: click.Context, __: click.Parameter, typed: str) -> list[CompletionItem]:
    """Files, by the shell itself."""
    return [CompletionItem(typed, type="file")]


def devices(_: click.Context, parameter: click.Parameter, typed: str) -> list[CompletionItem]:
    """Devices and profiles, the last one of a list with commas; files where none begins so, as profiles and modules are files."""
    from nnbridge.devices import known_names

    listed, comma, last = typed.rpartition(",")
    groups = ("profiles", "samples") if parameter.name == "devices" and "--devices" in parameter.opts else ()
    found = [name for name in (*known_names(), *groups) if name.startswith(last)]
    return [CompletionItem(listed + comma + name) for name in found] or files(_, parameter, typed)


def words(known: Callable[[], Iterable[str]]) -> Completion:
    """Names that are read when a shell asks, the last one of a list with commas."""

    def complete(_: click.Context, __: click.Parameter, typed: str) -> list[CompletionItem]:
        listed, comma, last = typed.rpartition(",")
        return [CompletionItem(listed + comma + name) for name in known() if name.lower().startswith(last.lower())]

    return complete


def by_metavar(metavar: str) -> Completion | None:
    """The completion of an option, by what its help says of the value; None where nothing is known."""
    if metavar in ("NAME[,NAME…]", "DEVICE"):
        return devices
    parts = metavar.split("|")
    if not any("FILE" in part for part in parts):
        return None
    known = [part for part in parts if part.islower()]

    def complete(context: click.Context, parameter: click.Parameter, typed: str) -> list[CompletionItem]:
        listed, comma, last = typed.rpartition(",")
        found = [CompletionItem(listed + comma + word) for word in known if word.startswith(last)]
        return found or files(context, parameter, typed.rpartition("=")[2] if "=" in metavar else typed)

    return complete
