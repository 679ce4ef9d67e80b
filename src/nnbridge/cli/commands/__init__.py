"""All commands: each module of this package is one, under its name with hyphens; a new file is a new command.

Each imports what it needs when it runs, so that ``--help`` and ``devices`` stay quick.
"""

from __future__ import annotations

import errno
import os
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from pkgutil import iter_modules
from typing import Any, NoReturn

import click
from click.core import ParameterSource

from nnbridge.cli.arguments import DEFAULTS_FILE
from nnbridge.cli.defaults import Defaults, read_defaults
from nnbridge.cli.errors import error_as_dict, message_of
from nnbridge.cli.old_names import NEW_NAMES, note, old_name
from nnbridge.cli.output import (
    INTERRUPTED,
    echo,
    echo_wrapped,
    for_errors,
    json_asked,
    output_options,
    print_error,
    result_last,
    verbose,
)
from nnbridge.cli.sections import FoldedHelp, option_sections, write_sections
from nnbridge.errors import NnbridgeError, near, pass_shortage

SECTIONS = {
    "Look": ("inspect", "plan", "devices"),
    "Run and compare": ("run", "compare", "report", "bench"),
    "Find what is wrong": ("bisect", "reduce"),
    "Many models and devices": ("matrix",),
    "Change": ("convert", "rewrite"),
    "Drivers": ("vts",),
    "Set up": ("doctor", "build"),
}
"""Commands as ``nnbridge --help`` lists them; a new one is listed last until it has a place here."""
_OTHERS = "Others"
_FIRST_STEPS = """With your file, model.tflite or model.onnx:

  nnbridge inspect model.tflite                       what it holds, and what NNAPI can express of it
  nnbridge plan model.tflite --device vsi-nn-sl       what runs on that device, and why not the rest
  nnbridge report model.tflite --device vsi-nn-sl -o model.html
                                                      the same as a page, with figures

Devices by chip, board or phone: nnbridge devices find "i.MX 8M Plus"
All commands: nnbridge --help
"""
"""What is printed without arguments."""
_FULL = frozenset(getattr(errno, name) for name in ("ENOSPC", "EFBIG", "EDQUOT") if hasattr(errno, name))
"""Of a file without a name: standard output, as files that commands write have theirs in the message."""
_NO_READER = 128 + 13
"""The exit status that shells have for SIGPIPE."""
_TYPED = "nnbridge.cli.typed"
"""Where the root context's ``meta`` has the words of the command line."""


class _Group(FoldedHelp, click.Group):
    """Finds the commands; errors end as one message on standard error and exit status 2."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        found = sorted(module.name.replace("_", "-") for module in iter_modules(__path__) if not module.name.startswith("_"))
        listed = [name for names in SECTIONS.values() for name in names]
        return sorted(found, key=lambda name: listed.index(name) if name in listed else len(listed))

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Commands are before options: they are what a reader looks for."""
        self.format_commands(ctx, formatter)
        write_sections(option_sections(self, ctx), formatter)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands by what they are for."""
        write_sections([*self.command_sections(ctx)], formatter)

    def command_sections(self, ctx: click.Context) -> Iterator[tuple[str, list[tuple[str, str]]]]:
        """Each section's name with its commands and what they do."""
        found = self.list_commands(ctx)
        listed = {name for names in SECTIONS.values() for name in names}
        for title, names in {**SECTIONS, _OTHERS: [name for name in found if name not in listed]}.items():
            commands = [(name, self.get_command(ctx, name)) for name in names]
            shown = [(name, command.get_short_help_str(limit=100)) for name, command in commands if command is not None]
            if shown:
                yield title, shown

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.list_commands(ctx):
            return None
        name = cmd_name.replace("-", "_")
        command: click.Command = getattr(import_module(f"{__name__}.{name}"), name)
        _add_output_options(command)
        return command

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Without arguments, what to try first is printed."""
        if not args and not ctx.resilient_parsing:
            click.echo(_FIRST_STEPS, nl=False)
            ctx.exit()
        return super().parse_args(ctx, args)

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        """The command, also by its old name, with the user's own defaults."""
        known = self.list_commands(ctx)
        old = () if args and args[0] in known else old_name(args)
        notes = [note(old)] if old else []
        if old:
            args = [*NEW_NAMES[old], *args[len(old) :]]
        if args and args[0] not in known and not args[0].startswith("-"):
            raise click.UsageError(f"No such command '{args[0]}'.{near(args[0], known)}", ctx)
        name, command, rest = super().resolve_command(ctx, args)
        defaults = read_defaults(ctx.params.get("config"), self, notes, old) if name and not _asks_for_help(rest) else None
        if name and command and defaults:
            found = defaults.left_for(name, rest)
            ctx.default_map = {name: found}
            ctx.meta[DEFAULTS_FILE] = defaults.path
        if command and (defaults or notes):
            command = _WithDefaults(command, defaults, notes)
        return name, command, rest

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        """Parse the typed arguments; ``--help`` prints here."""
        typed = tuple(args)
        with _ending(None, typed):
            context = super().make_context(info_name, args, parent, **extra)
        context.meta[_TYPED] = typed
        return context

    def invoke(self, ctx: click.Context) -> Any:
        with _ending(ctx, ctx.meta[_TYPED]), result_last(ctx):
            return super().invoke(ctx)


@contextmanager
def _ending(context: click.Context | None, typed: Sequence[str]) -> Iterator[None]:
    """Errors as one message, with ``--json`` as an object too, and an exit status; click's own ends have theirs.

    Only a failed comparison has exit status 1.
    """
    try:
        with _as_json(context, typed):
            yield
    except NnbridgeError as error:
        _stop(message_of(error))
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except BrokenPipeError:
        discard_output()
        sys.exit(_NO_READER)
    except click.ClickException as error:
        vars(error)["message"] = for_errors(error.message, "Error: ")
        raise
    except (click.exceptions.Exit, click.Abort, OSError):
        raise
    except Exception as error:
        if os.environ.get("NNBRIDGE_TRACEBACK"):
            traceback.print_exc()
        _stop(message_of(error))


@contextmanager
def _as_json(context: click.Context | None, typed: Sequence[str]) -> Iterator[None]:
    """Prints an error for machines, if ``--json`` asks for it, and passes it on; what is short is an error of its own."""
    try:
        try:
            yield
        except Exception as error:
            if not (_of_standard_output(error) and getattr(error, "errno", None) in _FULL):
                pass_shortage(error)
            raise
    except (click.exceptions.Exit, click.Abort, BrokenPipeError):
        raise
    except (Exception, KeyboardInterrupt) as error:
        of_command = getattr(error, "ctx", None) or context  # of a usage error
        if json_asked(of_command, typed) and not _of_standard_output(error):
            print_error(context, error_as_dict(error))
        raise


def _of_standard_output(error: BaseException) -> bool:
    """True where standard output itself failed: files that commands read and write have their names in the message."""
    return isinstance(error, OSError) and error.filename is None


class _WithDefaults(click.Command):
    """A command whose defaults come from a file, which is stated on standard error: one that was found, or with ``-v``.

    ``notes`` are lines to print there as well: the command's name was an old one, a file of defaults is not used.
    """

    def __init__(self, command: click.Command, defaults: Defaults | None, notes: Sequence[str]) -> None:
        super().__init__(command.name)
        self._command, self._defaults, self._notes = command, defaults, notes

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        """The command's own context."""
        context = self._command.make_context(info_name, args, parent, **extra)
        if context.resilient_parsing:  # A shell completes.
            return context
        for line in self._notes:
            echo(line, err=True)
        used = [p for p in self._command.params if context.get_parameter_source(p.name or "") is ParameterSource.DEFAULT_MAP]
        if self._defaults and (verbose() or (used and not self._defaults.named)):
            values = (f"{p.opts[0]} {context.params.get(p.name or '')}" for p in used)
            echo(f"defaults of {self._defaults.path}: {'; '.join(values) or 'none that this command uses'}", err=True)
        return context


def _asks_for_help(args: list[str]) -> bool:
    """True for what is answered without running anything: no file of defaults is in its way."""
    return bool({"-h", "--help"} & set(args))


def _add_output_options(command: click.Command) -> None:
    """Once for each command and those below it."""
    if not any(parameter.name == "verbose" for parameter in command.params):
        command.params += output_options()
    if isinstance(command, click.Group):
        for below in command.commands.values():
            _add_output_options(below)


def discard_output() -> None:
    """Discard output that cannot be written, so that the interpreter does not try it once more when it ends."""
    with suppress(OSError, ValueError, AttributeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _stop(message: str) -> NoReturn:
    first, *others = message.split("\n")  # several mistakes of one file
    echo_wrapped(f"nnbridge: {first}")
    for other in others:
        echo_wrapped(f"  {other}", indent="    ")
    sys.exit(2)


_CONFIG = """Read defaults of options from this TOML file, or from none. Without it: from nnbridge.toml, or [tool.nnbridge] of
pyproject.toml, in the current folder or above (docs/defaults.md, docs/security.md)."""


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120})
@click.version_option(package_name="nnbridge")
@click.option("--config", metavar="FILE|none", help=_CONFIG)
def cli(config: str | None) -> None:
    """Android's Neural Networks API on a workstation: convert models, see what devices accept, run and compare.

    \b
    Examples:
      nnbridge plan model.tflite --device nnapi-sample_float_fast
      nnbridge compare model.tflite --device nnapi-sample_quant --reference litert --seeds 0,1,2
      nnbridge devices find "i.MX 8M Plus"
    """
    import logging

    from nnbridge.cli.logged_notes import LibraryNotes

    logging.lastResort = LibraryNotes()


cli.params += output_options()
