"""What the commands print: tables, lines and JSON on standard output, progress and messages on standard error."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import click

from nnbridge.json_data import json_text
from nnbridge.report.terminal import Table, printable, show

if TYPE_CHECKING:
    from rich.console import Console

Command = TypeVar("Command", bound=Callable[..., Any])
T = TypeVar("T")
INTERRUPTED = 128 + 2
"""The exit status that shells have for SIGINT."""


def json_option(command: Command) -> Command:
    """``--json``."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON.")(command)


_META = "nnbridge.cli."


def _stored(context: click.Context, parameter: click.Parameter, value: Any) -> None:
    if value:
        context.meta[f"{_META}{parameter.name}"] = value


def _asked(name: str) -> bool:
    """True if an option of :func:`output_options` was typed, before the command or after it."""
    context = click.get_current_context(silent=True)
    return context is not None and bool(context.meta.get(f"{_META}{name}"))


def verbose() -> bool:
    """True if decisions are to be printed as well."""
    return _asked("verbose")


def output_options() -> list[click.Option]:
    """``-v``, ``-q`` and ``--no-color``, allowed before every command or after it."""
    flag: dict[str, Any] = {"is_flag": True, "expose_value": False, "callback": _stored}
    return [
        click.Option(["-v", "--verbose"], **flag, help="The phone's log on standard error, as logcat shows it."),
        click.Option(["-q", "--quiet"], **flag, help="Only the result and errors: no notes, no progress."),
        click.Option(["--no-color"], **flag, help="No colours on terminals, as with NO_COLOR in the environment."),
    ]


def _console(err: bool = False) -> Console:
    """A console on standard output or standard error; brackets and colons of names and messages are no markup."""
    from rich.console import Console

    shown: Any = Console(stderr=err, markup=False, emoji=False, highlight=False, no_color=_asked("no_color") or None)
    # Rich would exit with 1, which stands for a comparison that failed.
    shown.on_broken_pipe = _no_reader
    return shown


def _no_reader() -> NoReturn:
    raise BrokenPipeError


def echo(line: str, err: bool = False) -> None:
    """Print one line, notes on standard error unless ``--quiet``; control characters of names in it are escaped."""
    if not (err and _asked("quiet")):
        click.echo(printable(line), err=err)


class LibraryNotes(logging.Handler):
    """The library's warnings on standard error, ``--quiet`` or not, each once: a command may convert a file more than once."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._said: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        """Print a warning that was not printed before."""
        text = record.getMessage()
        if text not in self._said:
            self._said.add(text)
            click.echo(printable(text), err=True)


def print_blocks(blocks: Iterable[Table | str]) -> None:
    """Print tables and lines one after another."""
    show(blocks, _console())


def print_json(data: Any) -> None:
    """Print data for machines; numbers that are not finite, which JSON does not have, are null."""
    click.echo(json_text(data, indent=2))


def build_command(group: click.Group, name: str, summary: str) -> Callable[[Callable[[str], dict[str, object]]], click.Command]:
    """Makes a command of ``build`` from a function that puts libraries into a folder and returns what ``--json`` prints.

    Without ``--json`` the paths in it are printed, as the file system has them.
    """

    def added(build: Callable[[str], dict[str, object]]) -> click.Command:
        @group.command(name, short_help=summary, help=build.__doc__)
        @click.argument("folder", type=click.Path(file_okay=False))
        @json_option
        def command(folder: str, as_json: bool) -> None:
            built = build(folder)
            if as_json:
                print_json({key: str(value) if isinstance(value, Path) else value for key, value in built.items()})
                return
            for path in (value for value in built.values() if isinstance(value, Path)):
                click.echo(os.fsencode(path))

        return command

    return added


class Interruption:
    """Ctrl-C in a loop: what is done stays."""

    def __init__(self) -> None:
        self.happened = False

    def until(self, items: Iterable[T]) -> Iterator[T]:
        """Items until Ctrl-C while one is being made."""
        iterator = iter(items)
        while not self.happened:
            try:
                yield next(iterator)
            except StopIteration:
                return
            except KeyboardInterrupt:
                self.happened = True

    def leave(self) -> None:
        """End the command with its exit status if Ctrl-C was pressed, after what is done was shown."""
        if self.happened:
            sys.exit(INTERRUPTED)


@contextmanager
def working(what: str) -> Iterator[None]:
    """A spinner on standard error, where that is a terminal; what drivers print during it goes to standard error."""
    shown = _console(err=True)
    with drivers_apart():
        if not shown.is_terminal or _asked("quiet"):
            yield
            return
        with shown.status(printable(what), refresh_per_second=4):
            yield


@contextmanager
def progress(what: str, total: int, quiet: bool = False) -> Iterator[Callable[[int], None]]:
    """A bar on standard error, where that is a terminal, with how much is done of the total; the function advances it."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    shown = _console(err=True)
    columns = (TextColumn(what), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    bar = Progress(*columns, console=shown, transient=True, disable=quiet or _asked("quiet") or not shown.is_terminal)
    with drivers_apart(), bar:
        task = bar.add_task(what, total=total)
        yield lambda done: bar.advance(task, done)


@contextmanager
def drivers_apart() -> Iterator[None]:
    """What drivers and their processes print goes to standard error: standard output is only for the command's result."""
    out = sys.stdout
    with redirect_stdout(sys.stderr):
        try:
            number, errors = out.fileno(), sys.stderr.fileno()
        except (AttributeError, OSError):
            # A stream that is closed, or one in memory, has no descriptor that others could write to.
            yield
            return
        out.flush()
        own = os.dup(number)
        os.dup2(errors, number)
        try:
            yield
        finally:
            with suppress(OSError):
                out.flush()
            os.dup2(own, number)
            os.close(own)
