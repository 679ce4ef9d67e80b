"""Sections of ``--help``: options of a command under headings, commands of the root under what they are for."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from difflib import get_close_matches
from typing import Any

import click

from nnbridge.cli.output import Command, progress_lines

DEVICES, CONVERSION, INPUTS, COMPARISON, OUTPUT = "Devices", "Conversion", "Inputs", "Comparison", "Output"
SEARCH, ESTIMATE, RUN = "Search", "Estimate", "Run"
_ORDER = ("Options", ESTIMATE, SEARCH, RUN, DEVICES, CONVERSION, INPUTS, COMPARISON, OUTPUT)
"""Options without a section, the most used ones, are first."""
_NAMES = 30
"""Characters of the first column at most, as click has it; longer names have a line."""
_CLOSE = 0.75
"""How alike an unknown option and a suggestion are at least: ``--device`` is no mistake for ``--resize``."""
_OUTPUT_OPTIONS = frozenset(("as_json", "verbose", "quiet", "top", "no_color"))
"""Parameters of every command."""


class SectionOption(click.Option):
    """An option that knows the section of ``--help`` that it is listed in."""

    def __init__(self, *names: Any, section: str = "", **settings: Any) -> None:
        super().__init__(*names, **settings)
        self.section = section


def folded(text: str, width: int) -> str:
    """A help text whose examples fit a width: they continue in the next line as a shell has it."""
    return "\n".join(part for line in text.split("\n") for part in (_continued(line, width) if line[:1] == " " else [line]))


def _continued(line: str, width: int) -> Iterator[str]:
    indent = " " * (len(line) - len(line.lstrip()) + 4)
    while len(line) > width:
        spaces = [k for k in range(len(indent) + 1, width - 1) if line[k] == " " and not line.count("'", 0, k) % 2]
        whole = [k for k in spaces if not line.count('"', 0, k) % 2]
        before = [k for k in whole if line[k + 1] == "-"] or whole
        if not before:
            break
        yield f"{line[: before[-1]]} \\"
        line = indent + line[before[-1] + 1 :]
    yield line


class FoldedHelp(click.Command):
    """A command whose examples fit the terminal."""

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the help text."""
        formatter.write_paragraph()
        with formatter.indentation():
            text = inspect.cleandoc(self.help or "").partition("\f")[0]
            formatter.write_text(folded(text, formatter.width - formatter.current_indent))


class SectionCommand(FoldedHelp):
    """A command whose options are listed by section."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write every section that has options."""
        write_sections(option_sections(self, ctx), formatter)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Of an unknown option only names that are close to it are suggested."""
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            close = get_close_matches(error.option_name, error.possibilities or (), cutoff=_CLOSE)
            raise click.NoSuchOption(error.option_name, possibilities=close, ctx=error.ctx) from None

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command, with lines of progress for logs."""
        with progress_lines(ctx.command_path):
            return super().invoke(ctx)


class SectionGroup(FoldedHelp, click.Group):
    """A group whose commands list their options by section."""

    command_class = SectionCommand

    def list_commands(self, ctx: click.Context) -> list[str]:
        """In the order in which they are defined."""
        return list(self.commands)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write every section that has options, then the commands."""
        write_sections(option_sections(self, ctx), formatter)
        self.format_commands(ctx, formatter)


def command(**settings: Any) -> Callable[[Command], click.Command]:
    """``click.command`` with options by section."""
    return click.command(cls=SectionCommand, **settings)


def group(**settings: Any) -> Callable[[Command], click.Group]:
    """``click.group`` with options by section."""
    return click.group(cls=SectionGroup, **settings)


def option_sections(command: click.Command, context: click.Context) -> list[tuple[str, list[tuple[str, str]]]]:
    """Each section's name with the options and meanings that are in it."""
    found: dict[str, list[tuple[str, str]]] = {name: [] for name in _ORDER}
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context) if isinstance(parameter, click.Option) else None
        if record is not None:
            found.setdefault(_section(parameter), []).append(record)
    return [(name, records) for name, records in found.items() if records]


def _section(parameter: click.Parameter) -> str:
    if parameter.name in _OUTPUT_OPTIONS:
        return OUTPUT
    return getattr(parameter, "section", "") or "Options"


def write_sections(sections: Sequence[tuple[str, Sequence[tuple[str, str]]]], formatter: click.HelpFormatter) -> None:
    """Lists under headings, with one column of names for all of them."""
    widest = max((len(name) for _, records in sections for name, _ in records), default=0)
    for title, records in sections:
        with formatter.section(title):
            # The first column of each list is as wide as that of the longest.
            formatter.write_dl([(name.ljust(min(widest, _NAMES)), text) for name, text in records])
