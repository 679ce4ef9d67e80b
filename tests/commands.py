"""The command line in this process."""

from __future__ import annotations

import json
from typing import Any

from click.testing import CliRunner, Result

from nnbridge.cli.commands import cli


def call(*arguments: object, **settings: Any) -> Result:
    """The output of a command, and its exit status."""
    return CliRunner().invoke(cli, [str(argument) for argument in arguments], **settings)


def data(*arguments: object) -> Any:
    """The data that a command prints with ``--json`` when it succeeds."""
    result = call(*arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def refused(*arguments: object) -> str:
    """The message of a refusal in one line: exit status 2, nothing on standard output."""
    result = call(*arguments)
    assert (result.exit_code, result.stdout) == (2, ""), result.output
    return " ".join(result.stderr.split())
