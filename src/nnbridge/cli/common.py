"""What the commands share: ``--json``, printing, and a sign of life while they work."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])


def json_option(command: Command) -> Command:
    """``--json``."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON for machines.")(command)


def console(err: bool = False) -> Any:
    """A console on standard output or standard error; brackets and colons of names and messages are no markup."""
    from rich.console import Console

    return Console(stderr=err, markup=False, emoji=False)


@contextmanager
def working(what: str) -> Iterator[None]:
    """A spinner on standard error, where that is a terminal, until the work is done."""
    shown = console(err=True)
    if not shown.is_terminal:
        yield
        return
    with shown.status(what, refresh_per_second=4):
        yield


def print_tables(tables: Sequence[Any]) -> None:
    """Print one after another."""
    out = console()
    for table in tables:
        out.print(table)


def print_json(data: Any) -> None:
    """Print data for machines."""
    click.echo(json.dumps(data, indent=2, default=float))
