"""A user's own defaults: ``[tool.nnbridge]`` of pyproject.toml, or nnbridge.toml, from the current folder upwards.

Keys are the long options of commands. Those of the table itself hold for every command that has the option, those of a table
with a command's name for that command only. What is typed wins.

A file that is found, and not named by ``--config``, counts only if no one else can have written it, and never decides what is
run, imported, written or connected to: it may have come with what somebody else made (docs/security.md).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from nnbridge.cli.old_names import with_new_names
from nnbridge.cli.options import Written
from nnbridge.errors import InputError, Reason, near
from nnbridge.records import dataclass
from nnbridge.trust import foreign_file

NONE = "none"
"""In place of a file's name: no defaults."""
_OWN, _SHARED = "nnbridge.toml", "pyproject.toml"
_WHAT = "a TOML file of defaults"
_NAMED_ONLY = frozenset(("predicate", "scheduler", "cache_dir", "store", "reports", "path", "flags"))
_DEVICES = frozenset(("devices", "device", "against"))
"""Parameters that have to be named whatever their value, and those that have to for some devices."""
_NOT_DEFAULTS = ("--help", "--version", "--config")
_FILES = (".toml", ".npz")
_MAX_MISTAKES = 100
_ONE_OF = (("--android", "--feature-level"), ("--reference", "--against"), ("--layers", "--envelope"))
"""Options that exclude each other: the one that is typed silences the others' defaults."""


@dataclass(frozen=True)
class Defaults:
    """The defaults of all commands."""

    path: Path
    table: Mapping[str, Any]
    """As click's ``default_map`` has them: command → parameter → value."""
    refused: Mapping[str, Mapping[str, Reason]]
    """Command → option → why it does not take a value: a common one that it does not know, one that has to be named."""
    named: bool
    """True if ``--config`` names the file."""

    def left_for(self, command: str, typed: Sequence[str]) -> dict[str, Any]:
        """The common values left for a command whose other arguments are typed; InputError for those that it does not take."""
        found = dict(self.table.get(command, {}))
        options = {text.partition("=")[0] for text in typed}
        for option, reason in self.refused.get(command, {}).items():
            if option not in options:
                raise InputError(reason)
        for group in _ONE_OF:
            if options & set(group):
                for name in group:
                    found.pop(name[2:].replace("-", "_"), None)
        return found


def read_defaults(
    config: str | None, root: click.Group, passed_over: list[str] | None = None, old_name: tuple[str, ...] = ()
) -> Defaults | None:
    """The defaults of a file, of the nearest one without a name; None where there is none. InputError names every mistake.

    ``passed_over`` gets a line for each file that is not this user's. ``old_name``: the old name of a command that was typed,
    whose table counts as the new one's; tables of other old names are for those.
    """
    if config == NONE:
        return None
    if config is not None:
        path = Path(config)
        found: tuple[Path, dict[str, Any]] | None = path, _table(path, _content(path))
    else:
        found = _nearest(_here(), [] if passed_over is None else passed_over)
    if found is None:
        return None
    reader = _DefaultsReader(*found, config is not None)
    table = reader.commands(root, with_new_names(found[1], old_name), {}, "")
    if reader.mistakes:
        raise InputError.of(dict.fromkeys(reader.mistakes))
    return Defaults(found[0], table, reader.refused, config is not None)


def _here() -> Path:
    """The current folder; the root where it was removed."""
    try:
        return Path.cwd()
    except OSError:
        return Path("/")


def _nearest(folder: Path, passed_over: list[str]) -> tuple[Path, dict[str, Any]] | None:
    for place in (folder, *folder.parents):
        for name in (_OWN, _SHARED):
            path = place / name
            if not os.path.isfile(path):
                continue
            fault = foreign_file(path)
            if fault:
                if name == _OWN or _mentions_nnbridge(path):
                    passed_over.append(f"defaults of {path} are not used: {fault}")
                continue
            content = _content(path)
            if name == _OWN or b"nnbridge" in content:
                table = _table(path, content)
                if name == _OWN or table:
                    return path, table
    return None


def _mentions_nnbridge(path: Path) -> bool:
    try:
        return b"nnbridge" in _content(path)
    except InputError:
        return False


def _content(path: Path) -> bytes:
    from nnbridge.toml import content_of  # imported when there is a file of defaults

    return content_of(path, _WHAT)


def _table(path: Path, content: bytes) -> dict[str, Any]:
    """``[tool.nnbridge]``, or the whole file if it has only nnbridge's settings."""
    from nnbridge.toml import table_of

    data = table_of(content, path, _WHAT)
    tool = data.get("tool", {})
    own = tool.get("nnbridge") if isinstance(tool, dict) else None
    found = data if own is None and path.name != _SHARED else own if own is not None else {}
    if not isinstance(found, dict):
        raise InputError(Reason("a table", repr(found), operand=f"{path} [tool.nnbridge]"))
    return found


class _DefaultsReader:
    """One file being read; mistakes are collected."""

    def __init__(self, path: Path, table: dict[str, Any], named: bool) -> None:
        self._path = path
        self._named = named
        self._head = "tool.nnbridge" if path.name == _SHARED else ""
        self.mistakes: list[Reason] = []
        self.refused: dict[str, dict[str, Reason]] = {}

    def commands(self, command: click.Command, table: Mapping[str, Any], common: Mapping[str, Any], name: str) -> dict[str, Any]:
        """The defaults of a command and of those below it; ``common`` are options of the tables around."""
        if not isinstance(command, click.Group):
            return self._options(command, table, common, name)
        context = click.Context(command, info_name=name or None)
        below = {n: found for n in command.list_commands(context) if (found := command.get_command(context, n)) is not None}
        inside = {key: value for key, value in table.items() if isinstance(value, dict) and key in below}
        others = {key: value for key, value in table.items() if key not in inside}
        known = {option for found in (command, *below.values()) for option in _names(found)}
        for key in others.keys() - known:
            self._unknown(name, key, (*known, *below))
        shared = {**common, **{key: value for key, value in others.items() if key in known}}
        made = {n: self.commands(found, inside.get(n, {}), shared, f"{name}.{n}" if name else n) for n, found in below.items()}
        return {**(self._options(command, {}, shared, name) if name else {}), **made}

    def _options(self, command: click.Command, table: Mapping[str, Any], common: Mapping[str, Any], name: str) -> dict[str, Any]:
        known = dict(_options(command))
        found = {}
        for source, values in (("", common), (name, table)):
            for key, value in values.items():
                if key in known:
                    option = known[key]
                    made = self._value(command, option, value, self._where(source, key))
                    forbidden = None if self._named or isinstance(made, Reason) else _forbidden(option, made)
                    if forbidden is not None:
                        rule = f"{forbidden}, or a file that --config names"
                        reason = Reason(rule, _shown(value), operand=self._where(source, key))
                        self.refused.setdefault(name.partition(".")[0], {})[option.opts[0]] = reason
                    elif not isinstance(made, Reason):
                        found[option.name or key] = made
                    elif source:
                        self._mistaken(made)
                    elif key not in table:
                        self.refused.setdefault(name.partition(".")[0], {})[option.opts[0]] = made
                elif source:
                    self._unknown(name, key, tuple(known))
        return found

    def _unknown(self, name: str, key: str, known: Sequence[str]) -> None:
        at = f" of {name}" if name else ""
        rule = f"a long option{at} without its dashes{' or a command' if not name else ''}{near(key, known)}"
        self._mistaken(Reason(rule, key[:80], operand=self._where(name, key[:80])))

    def _mistaken(self, mistake: Reason) -> None:
        self.mistakes.append(mistake)
        if len(self.mistakes) >= _MAX_MISTAKES:
            raise InputError.of(self.mistakes)

    def _where(self, name: str, key: str) -> str:
        section = ".".join(filter(None, (self._head, name)))
        return f"{self._path} [{section}] {key}" if section else f"{self._path} {key}"

    def _value(self, command: click.Command, option: click.Option, value: Any, where: str) -> Any:
        """The value as click takes it, or why it does not."""
        context = click.Context(command, info_name=command.name)
        try:
            made = self._readable(option, value)
            option.type_cast_value(context, made)
        except click.BadParameter as error:
            return Reason(f"a value of {option.opts[0]} ({error.message.rstrip('.')})", _shown(value), operand=where)
        return made

    def _readable(self, option: click.Option, value: Any) -> Any:
        if option.is_flag or isinstance(value, bool):
            if option.is_flag and isinstance(value, bool):
                return value
            raise click.BadParameter("true or false" if option.is_flag else "no true or false")
        listed = value if isinstance(value, list) else [value]
        if not all(isinstance(item, (str, int, float)) and not isinstance(item, bool) for item in listed):
            raise click.BadParameter("a text, a number, or a list of them")
        texts = [self._placed(option, str(item)) for item in listed]
        return texts if option.multiple else ",".join(texts)

    def _placed(self, option: click.Option, text: str) -> str:
        """Files are named from the folder of the file of defaults."""
        if isinstance(option.type, click.Path):
            return str(self._path.parent / text)
        return ",".join(map(self._found, text.split(",")))

    def _found(self, text: str) -> str:
        name, sign, member = text.partition("#")
        path = self._path.parent / name.strip()
        return f"{path}{sign}{member}" if name.endswith(_FILES) and os.path.isfile(path) else text


def _forbidden(option: click.Option, value: Any) -> str | None:
    """The rule that a value breaks which has to be named: typed, or in a file that is."""
    texts = [str(item) for item in (value if isinstance(value, list) else [value])]
    if option.name in _NAMED_ONLY or isinstance(option.type, Written) or "-o" in option.opts:
        return f"{option.opts[0]} typed, as it runs, writes or connects"
    if any("://" in text for text in texts):
        return f"{option.opts[0]} typed, as it connects"
    if option.name in _DEVICES and any(_runs_code(part) for text in texts for part in text.replace("+", ",").split(",")):
        return f"{option.opts[0]} typed, as it imports, starts or connects to what is neither an installed device nor a profile"
    return None


def _runs_code(device: str) -> bool:
    from nnbridge.devices import runs_code

    return runs_code(device.strip())


def _options(command: click.Command) -> Iterator[tuple[str, click.Option]]:
    """The names under which a file of defaults has each option: its long names, and the plural that a list reads best with."""
    for parameter in command.params:
        if isinstance(parameter, click.Option) and parameter.expose_value:
            names = [name[2:] for name in parameter.opts if name.startswith("--") and name not in _NOT_DEFAULTS]
            if names and parameter.multiple:
                names.append(f"{names[0]}s")
            yield from ((name, parameter) for name in dict.fromkeys(names))


def _names(command: click.Command) -> set[str]:
    """The names of a command and of all below it."""
    found = {name for name, _ in _options(command)}
    if isinstance(command, click.Group):
        context = click.Context(command)
        below = (command.get_command(context, name) for name in command.list_commands(context))
        found |= {name for each in below if each is not None for name in _names(each)}
    return found


def _shown(value: Any) -> str:
    return repr(value)[:80]
