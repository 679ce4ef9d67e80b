"""Reading what is typed after options, and checking what is going to be written; errors state what was expected and found."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nnbridge.errors import BadDataError, InputError, Reason

if TYPE_CHECKING:
    from nnbridge.model import Model


def check_outputs(outputs: Mapping[str, Path | None], read: Mapping[str, Iterable[Path]], suffix: str = "") -> None:
    """InputError for a file to write that is read, that another option writes too, or that has another suffix.

    ``outputs``: the path of each option that was typed; ``read``: what a file is → its paths.
    """
    in_use = [(what, path) for what, paths in read.items() for path in paths]
    for option, output in outputs.items():
        if output is None or (output.exists() and not output.is_file()):
            continue  # Pipes and devices may be written to by several; a folder is refused when it is opened.
        for what, path in in_use:
            if _same(output, path):
                raise InputError(Reason(f"another file than {what}", str(output), operand=option))
        if suffix and output.suffix.lower() != suffix:
            raise InputError(Reason(f"a file that ends in {suffix}", str(output), operand=option))
        in_use.append((f"{option} of the same command", output))


def _same(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)
    except OSError:
        return one.resolve() == other.resolve()


def device_files(devices: Sequence[str]) -> list[Path]:
    """The profiles and modules that names of devices may be read from."""
    found = []
    for name in (name.strip() for group in devices for name in group.split(",")):
        parts = re.sub(r"(#.*|@\d+)$", "", name).split(":")
        for k, part in enumerate(parts):
            found += [Path(":".join(parts[k:])), Path(part), Path(part.replace(".", "/") + ".py")]
    return [path for path in found if path.is_file()]


def input_files(texts: Sequence[str]) -> list[Path]:
    """The files of ``--input NAME=FILE``; names may hold equals signs as well."""
    return [Path(text[k + 1 :]) for text in texts for k, character in enumerate(text) if character == "="]


def read_inputs(model: Model, texts: Sequence[str], seed: int | None) -> dict[str, Any]:
    """The model's inputs by name: those of ``NAME=FILE.npy``, the others drawn with the seed."""
    from nnbridge.compare import load_array, named_inputs, seeded_inputs
    from nnbridge.extensions import operand_dtype
    from nnbridge.runtime.arguments import check_array

    operands = named_inputs(model)
    files: dict[str, str] = {}
    values: dict[str, Any] = {} if seed is None else seeded_inputs(model, seed)
    for text in texts:
        name = next((name for name in operands if text.startswith(f"{name}=")), None)
        if name is None:
            known = ", ".join(f"{n} ({operand_dtype(o)} {[d or '?' for d in o.dims]})" for n, o in operands.items())
            typed, separator, _ = text.partition("=")
            rule = "NAME=FILE.npy with one of the model's inputs as NAME"
            raise InputError(Reason(f"{rule}: {known}", repr(typed if separator else text), operand="--input"))
        file = text[len(name) + 1 :]
        if name in files:
            raise InputError(Reason("each input once", f"{files[name]} and {file}", operand=f"--input {name}"))
        files[name] = file
        values[name] = load_array(Path(file), f"--input {name}")
        try:
            check_array(operands[name], values[name], "")
        except BadDataError as error:
            raise InputError(replace(error.reason, operation=f"--input {name}", operand=file)) from error
    missing = [name for name in operands if name not in values]
    if missing:
        raise InputError(Reason("--input for every input, or --seed", f"none for {', '.join(missing)}"))
    return {name: values[name] for name in operands}


def parse_shapes(texts: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """``NAME=1,224,224,3``, each input once."""
    shapes: dict[str, tuple[int, ...]] = {}
    for text in texts:
        name, separator, dims = text.rpartition("=")
        try:
            shape = tuple(int(d) for d in dims.split(","))
        except ValueError:
            shape = ()
        if not separator or not shape or any(d < 1 for d in shape):
            raise InputError(Reason("NAME=1,224,224,3", repr(text), operand="--shape"))
        if name in shapes:
            found = " and ".join(",".join(map(str, dims)) for dims in (shapes[name], shape))
            raise InputError(Reason("each input once", found, operand=f"--shape {name}"))
        shapes[name] = shape
    return shapes


def parse_seeds(text: str) -> list[int]:
    """``0,1,2``."""
    try:
        seeds = [int(part) for part in text.split(",")]
    except ValueError:
        seeds = []
    if not seeds or min(seeds) < 0:
        raise InputError(Reason("whole numbers such as 0,1,2", repr(text), operand="--seeds"))
    return seeds


def refuse_options(*options: str, why: str) -> None:
    """UsageError for any of these options of the command at hand that was typed: it would do nothing."""
    context = click.get_current_context()
    for parameter in context.command.params:
        typed = context.get_parameter_source(parameter.name or "") is click.core.ParameterSource.COMMANDLINE
        if typed and set(options) & set(parameter.opts):
            raise click.UsageError(f"{parameter.opts[0]} does nothing here: {why}.")
