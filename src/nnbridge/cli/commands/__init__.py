"""All commands: each module of this package is one, under the module's name; a new file is a new command.

Each imports what it needs when it runs, so that ``--help`` and ``devices`` stay quick.
"""

from __future__ import annotations

import os
import sys
import traceback
from contextlib import suppress
from importlib import import_module
from pkgutil import iter_modules
from typing import Any, NoReturn

import click

from nnbridge.cli.output import INTERRUPTED, echo
from nnbridge.errors import NnapiError, NnbridgeError
from nnbridge.report.terminal import printable

_NO_READER = 128 + 13
"""The exit status that shells have for SIGPIPE."""


class _Group(click.Group):
    """Finds the commands; errors end as one message on standard error and exit status 2."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(module.name for module in iter_modules(__path__) if not module.name.startswith("_"))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.list_commands(ctx):
            return None
        command: click.Command = getattr(import_module(f"{__name__}.{cmd_name}"), cmd_name)
        return command

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except NnapiError as error:
            _stop(f"{error.code.name}: {error}")
        except NnbridgeError as error:
            _stop(str(error))
        except KeyboardInterrupt:
            sys.exit(INTERRUPTED)
        except BrokenPipeError:
            discard_output()
            sys.exit(_NO_READER)
        except click.ClickException as error:
            vars(error)["message"] = printable(error.message)
            raise
        except (click.exceptions.Exit, click.Abort, OSError):
            raise
        except MemoryError:
            _stop("not enough memory")
        except Exception as error:
            # Exit status 1 stands for a comparison or conformance run that failed.
            if os.environ.get("NNBRIDGE_TRACEBACK"):
                traceback.print_exc()
            _stop(f"internal error: {type(error).__name__}: {error} (NNBRIDGE_TRACEBACK=1 shows where)")


def discard_output() -> None:
    """What cannot be written is not tried again when the interpreter ends."""
    with suppress(OSError, ValueError, AttributeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _stop(message: str) -> NoReturn:
    echo(f"nnbridge: {message}", err=True)
    sys.exit(2)


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="nnbridge")
def cli() -> None:
    """Android's Neural Networks API on a workstation: convert models, see what devices accept, run and compare.

    \b
    Examples:
      nnbridge plan model.tflite --device nnapi-sample_float_fast
      nnbridge compare model.tflite --device nnapi-sample_quant --reference litert --seeds 0,1,2
      nnbridge devices
    """
