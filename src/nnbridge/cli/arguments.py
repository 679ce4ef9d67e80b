"""What is typed after ``--input``, ``--shape`` and ``--seeds``, read; errors say what was expected and found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nnbridge.model import Model


def read_inputs(model: Model, given: Sequence[str], seed: int | None) -> dict[str, Any]:
    """The model's inputs by name: those of ``NAME=FILE.npy``, the others drawn with the seed."""
    from nnbridge.compare import load_array, seeded_inputs
    from nnbridge.errors import BadDataError, InputError, Reason
    from nnbridge.model import input_name
    from nnbridge.runtime.arguments import check_array

    operands = {input_name(model.main.operands[i], k): model.main.operands[i] for k, i in enumerate(model.own_inputs)}
    files: dict[str, str] = {}
    values: dict[str, Any] = {} if seed is None else seeded_inputs(model, seed)
    for text in given:
        name, separator, file = text.partition("=")
        if not separator or name not in operands:
            raise InputError(Reason(f"NAME=FILE.npy with a name of {', '.join(operands)}", repr(text), operand="--input"))
        if name in files:
            raise InputError(Reason("each input once", f"{files[name]} and {file}", operand=f"--input {name}"))
        files[name] = file
        values[name] = load_array(Path(file), f"--input {name}")
        try:
            check_array(operands[name], values[name], "")
        except BadDataError as error:
            found = replace(error.reason, operation=f"--input {name}", operand=file)
            raise InputError(found) from error
    missing = [name for name in operands if name not in values]
    if missing:
        raise InputError(Reason("--input for every input, or --seed", f"none for {', '.join(missing)}"))
    return {name: values[name] for name in operands}


def parse_shape(text: str) -> tuple[str, tuple[int, ...]]:
    """``NAME=1,224,224,3``."""
    from nnbridge.errors import InputError, Reason

    name, separator, dims = text.rpartition("=")
    try:
        shape = tuple(int(d) for d in dims.split(","))
    except ValueError:
        shape = ()
    if not separator or not shape or any(d < 1 for d in shape):
        raise InputError(Reason("NAME=1,224,224,3", repr(text), operand="--shape"))
    return name, shape


def parse_seeds(text: str) -> list[int]:
    """``0,1,2``."""
    from nnbridge.errors import InputError, Reason

    try:
        seeds = [int(part) for part in text.split(",")]
    except ValueError:
        seeds = []
    if not seeds or min(seeds) < 0:
        raise InputError(Reason("whole numbers such as 0,1,2", repr(text), operand="--seeds"))
    return seeds


def refuse_given(*options: str, why: str) -> None:
    """UsageError for any of these options of the command at hand that was typed: it would do nothing."""
    import click

    context = click.get_current_context()
    for parameter in context.command.params:
        typed = context.get_parameter_source(parameter.name or "") is click.core.ParameterSource.COMMANDLINE
        if typed and set(options) & set(parameter.opts):
            raise click.UsageError(f"{parameter.opts[0]} does nothing here: {why}.")
