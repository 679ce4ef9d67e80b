"""The group of all commands. Each imports what it needs when it runs, so that ``--help`` and ``devices`` stay quick."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import Any, NoReturn

import click

from nnbridge.cli.devices import devices
from nnbridge.cli.models import compare, convert, inspect, plan, run
from nnbridge.cli.ndk import ndk
from nnbridge.cli.vts import vts
from nnbridge.errors import NnapiError, NnbridgeError

_INTERRUPTED, _NO_READER = 128 + 2, 128 + 13
"""Exit statuses as shells give them for SIGINT and SIGPIPE."""


class _Group(click.Group):
    """Turns nnbridge's errors into one message on standard error and exit status 2."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except NnapiError as error:
            _stop(f"{error.code.name}: {error}")
        except NnbridgeError as error:
            _stop(str(error))
        except KeyboardInterrupt:
            sys.exit(_INTERRUPTED)
        except BrokenPipeError:
            discard_output()
            sys.exit(_NO_READER)


def discard_output() -> None:
    """What cannot be written is not tried again when the interpreter ends."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _stop(message: str) -> NoReturn:
    click.echo(f"nnbridge: {message}", err=True)
    sys.exit(2)


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="nnbridge")
def cli() -> None:
    """Android's Neural Networks API on a workstation: convert models, see what devices take, run and compare.

    \b
    Examples:
      nnbridge plan model.tflite --device nnapi-sample_float_fast
      nnbridge compare model.tflite --device nnapi-sample_quant --reference litert --seeds 0,1,2
      nnbridge devices
    """


for command in (convert, inspect, plan, run, compare, devices, ndk, vts):
    cli.add_command(command)
