"""Errors of commands as sentences and as data: docs/schemas/error.json."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import click

from nnbridge.errors import (
    ConversionError,
    InputError,
    NnapiError,
    NnbridgeError,
    OptionError,
    PackageError,
    Reason,
    ShortageError,
)

KINDS: tuple[tuple[type[BaseException], str], ...] = (
    (click.UsageError, "usage"),
    (click.FileError, "file"),
    (ShortageError, "shortage"),
    (MemoryError, "shortage"),
    (PackageError, "package"),
    (OptionError, "option"),
    (ConversionError, "model"),
    (InputError, "input"),
    (NnapiError, "nnapi"),
    (OSError, "file"),
    (KeyboardInterrupt, "interrupted"),
    (BaseException, "internal"),
)
"""The first class that fits → the error's ``kind``. Kinds are stable."""
_TRACEBACK = "NNBRIDGE_TRACEBACK=1 shows where"


def message_of(error: BaseException) -> str:
    """An error in a sentence, a line for each of several mistakes."""
    if isinstance(error, NnapiError):
        return f"{error.code.name}: {_text(error)}"
    if isinstance(error, NnbridgeError):
        return _text(error)
    if isinstance(error, click.ClickException):
        return error.format_message()
    if isinstance(error, OSError):
        return f"{error.filename}: {error.strerror or error}"
    if isinstance(error, MemoryError):
        return "not enough memory"
    if isinstance(error, KeyboardInterrupt):
        return "interrupted"
    return f"internal error: {type(error).__name__}: {error} ({_TRACEBACK})"


def error_as_dict(error: BaseException) -> dict[str, Any]:
    """``kind`` and ``message``, and what is known of the file, the operation, the operand and what to do."""
    kind = next(kind for known, kind in KINDS if isinstance(error, known))
    return {"kind": kind, "message": message_of(error), **{key: part for key, part in _parts(error) if part}}


def _parts(error: BaseException) -> Iterator[tuple[str, Any]]:
    if isinstance(error, NnbridgeError):
        code = getattr(error, "code", None)
        yield "code", "" if code is None else code.name
        first, *others = [_reason(as_typed(reason)) for reason in error.reasons]
        yield from [("mistakes", [first, *others])] if others else first.items()
    elif isinstance(error, click.UsageError):
        yield "operand", _operand(error)
        yield "hint", "" if error.ctx is None else f"{error.ctx.command_path} --help"
    elif isinstance(error, click.FileError):
        yield "file", error.ui_filename
    elif isinstance(error, OSError):
        yield "code", errno.errorcode.get(error.errno or 0, "")
        yield "file", str(error.filename)


def _reason(reason: Reason) -> dict[str, Any]:
    """A reason's parts; its own ``kind``, that of a refusal, is ``refusal``."""
    parts = reason.as_dict()
    refusal = parts.pop("kind", "")
    return {**parts, "refusal": refusal} if refusal else parts


def _operand(error: click.UsageError) -> str:
    """The option or argument that a usage error is about."""
    if isinstance(error, (click.NoSuchOption, click.BadOptionUsage)):
        return error.option_name
    if isinstance(error, click.BadParameter) and error.param is not None:
        return max(error.param.opts, key=len) if isinstance(error.param, click.Option) else error.param.human_readable_name
    return ""


def _text(error: NnbridgeError) -> str:
    typed = as_typed(error.reason)
    return str(error) if typed is error.reason else str(typed)


def as_typed(reason: Reason) -> Reason:
    """A reason in the words of the command line. The library names Python's arguments; here they are the command's options."""
    context = click.get_current_context(silent=True)
    if context is None or reason.operation or reason.line:  # An operand of an operation is not an option.
        return reason
    word, space, rest = reason.operand.partition(" ")
    options = {o[2:].replace("-", "_"): o for o in _options(context.command, context) if o.startswith("--")}
    option = options.get(word) or options.get(word.removesuffix("s"))
    return reason if option is None else replace(reason, operand=f"{option}{space}{rest}")


def _options(command: click.Command, context: click.Context) -> Iterator[str]:
    """The options of a command, or of all below a group."""
    yield from (name for parameter in command.params for name in parameter.opts)
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            if below is not None and name == context.invoked_subcommand:
                yield from _options(below, context)
