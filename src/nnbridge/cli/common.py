"""What the commands share: ``--json``, printing, and a sign of life while they work."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from numbers import Integral, Real
from typing import Any, NoReturn, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])


def json_option(command: Command) -> Command:
    """``--json``."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON for machines.")(command)


def console(err: bool = False) -> Any:
    """A console on standard output or standard error; brackets and colons of names and messages are no markup."""
    from rich.console import Console

    shown: Any = Console(stderr=err, markup=False, emoji=False)
    # Rich would exit with 1, which stands for a comparison that failed.
    shown.on_broken_pipe = _no_reader
    return shown


def _no_reader() -> NoReturn:
    raise BrokenPipeError


@contextmanager
def working(what: str) -> Iterator[None]:
    """A spinner on standard error, where that is a terminal, until the work is done; drivers print there too."""
    shown = console(err=True)
    with drivers_apart():
        if not shown.is_terminal:
            yield
            return
        with shown.status(what, refresh_per_second=4):
            yield


@contextmanager
def drivers_apart() -> Iterator[None]:
    """What drivers and their processes print goes to standard error: standard output is for the command's answer alone."""
    with _descriptor_apart(), redirect_stdout(sys.stderr):
        yield


@contextmanager
def _descriptor_apart() -> Iterator[None]:
    out = sys.stdout
    try:
        number, errors = out.fileno(), sys.stderr.fileno()
    except (AttributeError, OSError):
        # A stream that is closed, or one in memory, has no descriptor that others could write to.
        yield
        return
    out.flush()
    kept = os.dup(number)
    os.dup2(errors, number)
    try:
        yield
    finally:
        with suppress(OSError):
            out.flush()
        os.dup2(kept, number)
        os.close(kept)


def print_tables(tables: Sequence[Any]) -> None:
    """Print one after another."""
    out = console()
    for table in tables:
        out.print(table)


def print_json(data: Any) -> None:
    """Print data for machines; numbers that are not finite, which JSON does not have, are null."""
    click.echo(json.dumps(_plain(data), indent=2, allow_nan=False))


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, Integral):
        return value if isinstance(value, int) else int(value)
    if isinstance(value, Real):
        return float(value) if math.isfinite(value) else None
    return value
