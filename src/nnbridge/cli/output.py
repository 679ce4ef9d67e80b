"""Printing of the commands: tables, lines and JSON on standard output, progress and messages on standard error."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from pathlib import Path
from shutil import get_terminal_size
from threading import Event, Thread
from time import monotonic
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import click

from nnbridge.json_data import document, error_document, json_text
from nnbridge.report.terminal import Table, printable, show

if TYPE_CHECKING:
    from rich.console import Console

Command = TypeVar("Command", bound=Callable[..., Any])
T = TypeVar("T")
INTERRUPTED = 128 + 2
"""The exit status that shells have for SIGINT."""


_META = "nnbridge.cli."
_JSON, _RESULT = f"{_META}json", f"{_META}result"


def json_option(command: Command) -> Command:
    """``--json``; read before all else, so that errors of other options are JSON, too."""
    settings: dict[str, Any] = {"is_flag": True, "is_eager": True, "callback": _json_stored}
    return click.option("--json", "as_json", **settings, help="Print JSON, also for errors.")(command)


def _json_stored(context: click.Context, _: click.Parameter, value: bool) -> bool:
    if value or not isinstance(context.command, click.Group):  # Of a group it is not yet known: a command below may have it.
        context.meta[_JSON] = value
    return value


def json_asked(context: click.Context | None, typed: Sequence[str]) -> bool:
    """True if ``--json`` was typed; where words could not be read as options, if it is one of the words."""
    read = None if context is None else context.meta.get(_JSON)
    if read is not None:
        return bool(read)
    options = list(typed[: typed.index("--")] if "--" in typed else typed)
    return "--json" in options or bool(context and context.lookup_default("as_json"))


def _stored(context: click.Context, parameter: click.Parameter, value: Any) -> None:
    if value not in (None, False):
        context.meta[f"{_META}{parameter.name}"] = value


def _asked(name: str) -> bool:
    """True if an option of :func:`output_options` was typed, before the command or after it."""
    return bool(_typed(name))


def _typed(name: str) -> Any:
    context = click.get_current_context(silent=True)
    return None if context is None else context.meta.get(f"{_META}{name}")


def verbose() -> bool:
    """True if decisions are to be printed as well."""
    return _asked("verbose")


def output_options() -> list[click.Option]:
    """``-v``, ``-q``, ``--top`` and ``--no-color``, allowed before every command or after it."""
    stored: dict[str, Any] = {"expose_value": False, "callback": _stored}
    flag = {"is_flag": True, **stored}
    rows = "Rows of each table; 0 for all. Default: 20 on a terminal without --full, otherwise all."
    return [
        click.Option(["-v", "--verbose"], **flag, help="The phone's log on standard error, as logcat shows it."),
        click.Option(["-q", "--quiet"], **flag, help="Only the result and errors: no notes, no progress."),
        click.Option(["--top"], **stored, type=click.IntRange(min=0), metavar="N", help=rows),
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
        echo_wrapped(line) if err else click.echo(printable(line))


def echo_wrapped(line: str, indent: str = "  ") -> None:
    """Print a line on standard error, on terminals in as many lines as its width needs; no word is broken."""
    click.echo(for_errors(line, indent=indent), err=True)


def for_errors(line: str, before: str = "", indent: str = "  ") -> str:
    """A line as standard error shows it: on terminals broken at spaces, the second part and those after it indented.

    ``before``: what is printed in front of it.
    """
    text = printable(line)
    width = get_terminal_size().columns
    if sys.stderr is None or not sys.stderr.isatty() or len(before) + len(text) <= width:
        return text
    from textwrap import wrap

    words: dict[str, Any] = {"break_long_words": False, "break_on_hyphens": False, "replace_whitespace": False}
    return "\n".join(wrap(text, max(width, 40), initial_indent=before, subsequent_indent=indent, **words)).removeprefix(before)


def shown_rows(default: int) -> int:
    """The rows of each table that ``--top`` asks for; 0 for all."""
    typed = _typed("top")
    return default if typed is None else typed


def print_blocks(blocks: Iterable[Table | str], *, top: int | None = None, verdict: str = "") -> None:
    """Print tables and lines one after another; ``top`` is the number of rows where ``--top`` states none."""
    typed = _typed("top")
    show(blocks, _console(), top if typed is None else typed, verdict)


def print_json(schema: str, data: Mapping[str, Any]) -> None:
    """The command's result for machines, of a schema of docs/schemas; numbers that are not finite are null.

    It is printed when the command ends: if an error comes first, as a part of it. Standard output is one object.
    """
    click.get_current_context().meta[_RESULT] = document(schema, data)


def print_json_line(schema: str, data: Mapping[str, Any]) -> None:
    """One of several results, in a line, at once."""
    click.echo(json_text(document(schema, data)))


@contextmanager
def result_last(context: click.Context) -> Iterator[None]:
    """Prints the result of :func:`print_json` at the end, whatever the exit status is."""
    try:
        yield
    except SystemExit:
        _print_result(context)
        raise
    _print_result(context)


def _print_result(context: click.Context) -> None:
    found = context.meta.pop(_RESULT, None)
    if found is not None:
        click.echo(json_text(found, indent=2))


def print_error(context: click.Context | None, error: Mapping[str, Any]) -> None:
    """Print an error for machines in a line, with the result that was found before it."""
    found = {} if context is None else context.meta.pop(_RESULT, {})
    click.echo(json_text(error_document(error, found)))


def build_command(group: click.Group, name: str, summary: str) -> Callable[[Callable[[str], dict[str, object]]], click.Command]:
    """Makes a command of ``build`` from a function that puts libraries into a folder and returns what ``--json`` prints.

    Without ``--json`` the paths in it are printed, as the file system has them.
    """

    def added(build: Callable[[str], dict[str, object]]) -> click.Command:
        @group.command(name, short_help=summary, help=build.__doc__)
        @click.argument("folder", type=click.Path(file_okay=False))
        @json_option
        def command(folder: str, as_json: bool) -> None:
            from nnbridge.storage.atomic import written_together

            with written_together():
                built = build(folder)
            if as_json:
                data = {key: str(value) if isinstance(value, Path) else value for key, value in built.items()}
                print_json(f"build-{name}", data)
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


_PAUSE = 15.0
"""Seconds between lines of progress where standard error is no terminal: logs of builds, pipes."""
_doing: list[Callable[[], str]] = []
"""What the command does at present, the innermost last."""


@contextmanager
def progress_lines(command: str) -> Iterator[None]:
    """A line on standard error every 15 seconds that says what a command does, where spinners and bars cannot be seen."""
    if _asked("quiet") or sys.stderr is None or sys.stderr.isatty():
        yield
        return
    ended, start = Event(), monotonic()

    def report() -> None:
        while not ended.wait(_PAUSE):
            what = f": {text}" if (text := next((doing() for doing in _doing[-1:]), "")) else ""
            with suppress(OSError, ValueError):  # A stream that is closed.
                click.echo(printable(f"{command}{what}, {monotonic() - start:.0f} s so far"), err=True)

    thread = Thread(target=report, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


@contextmanager
def _does(text: Callable[[], str]) -> Iterator[None]:
    _doing.append(text)
    try:
        yield
    finally:
        _doing.remove(text)


@contextmanager
def working(what: str) -> Iterator[None]:
    """A spinner on standard error, where that is a terminal; what drivers print during it goes to standard error."""
    shown = _console(err=True)
    with drivers_apart(), _does(lambda: what):
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

        def text() -> str:
            done = int(bar.tasks[task].completed)
            return f"{what}: {done:,} of {total:,}" if done <= total else f"{what}: {done:,}"

        with _does(text):
            yield lambda done: bar.advance(task, done)


@contextmanager
def drivers_apart() -> Iterator[None]:
    """Send the output of drivers and their processes to standard error: standard output is only for the command's result."""
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
