"""Reading what is typed after options, and checking what is going to be written; errors state what was expected and found."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nnbridge.errors import InputError, Reason

if TYPE_CHECKING:
    from nnbridge.compare import Acceptance, Tolerances
    from nnbridge.inputs import Preparation


_WORDS = {
    "model": "the model",
    "models": "a model",
    "logs": "a log",
    "device": "a device's",
    "devices": "a device's",
    "against": "a device's",
    "inputs": "an input",
    "reference": "the reference",
}
"""Name of a parameter → what its files are; files of other parameters are called by their option."""


_LONGEST_PATH = 4096
"""Characters of a file's path: longer texts are not tried as paths, of which they hold one after each mark."""
DEFAULTS_FILE = "nnbridge.cli.defaults_file"
"""Where the root context's ``meta`` has the path of the file that defaults of options come from."""


def check_outputs(outputs: Mapping[str, Path | None], read: Mapping[str, Iterable[Path]] | None = None, suffix: str = "") -> None:
    """InputError for a file to write that is read, that another option writes too, or that has another suffix.

    ``outputs``: the path of each option that was typed. The file of defaults and all files that the command line names
    count as read; ``read`` has those that it does not name, by what they are.
    """
    in_use = [*_named_files(outputs), *((what, path) for what, paths in (read or {}).items() for path in paths)]
    for option, output in outputs.items():
        if output is None:
            continue
        if not output.name:
            raise InputError(Reason("a file's name", f"the folder {str(output)!r}", operand=option))
        if os.path.exists(output) and not os.path.isfile(output):
            continue  # Pipes and devices may be written to by several; a folder is refused when it is opened.
        for what, path in in_use:
            if _same(output, path):
                raise InputError(Reason(f"a file other than {what}", str(output), operand=option))
        if suffix and output.suffix.lower() != suffix:
            raise InputError(Reason(f"a file that ends in {suffix}", str(output), operand=option))
        in_use.append((f"{option} of the same command", output))


def _named_files(outputs: Iterable[str]) -> Iterator[tuple[str, Path]]:
    """The file of defaults, and what each file is that the arguments and options of the current command name, but ``outputs``."""
    context = click.get_current_context(silent=True)
    defaults: Path | None = None if context is None else context.find_root().meta.get(DEFAULTS_FILE)
    if defaults is not None:
        yield "the file of defaults", defaults
    while context is not None:
        for parameter in context.command.params:
            if not set(outputs) & set(parameter.opts):
                value = context.params.get(parameter.name or "")
                what = _WORDS.get(parameter.name or "", f"that of {parameter.opts[-1]}")
                found = _named_by(value if isinstance(value, tuple) else (value,), folders=parameter.name == "inputs")
                yield from ((what, path) for path in found)
        context = context.parent


def _named_by(values: Sequence[object], *, folders: bool) -> list[Path]:
    """Files, and folders if asked, that values of one parameter name: as such, after ``NAME=``, as devices, joined by ``+``."""
    typed = [str(value) for value in values if isinstance(value, (str, Path))]
    parts = [part for text in typed for part in text.split("+")]
    paths = {*map(Path, typed), *input_files(typed), *device_files([*typed, *parts])}
    return [path for path in sorted(paths) if os.path.isfile(path) or (folders and os.path.isdir(path))]


def _real(path: Path) -> Path:
    """A path without links; of a ring of links, a link: ``Path.resolve`` raises RuntimeError there, before Python 3.13."""
    return Path(os.path.realpath(path))


def _same(one: Path, other: Path) -> bool:
    """True where writing ``one`` changes ``other``, a file or the files of a folder."""
    if os.path.isfile(one) and os.path.isdir(other):
        return _real(other) in _real(one).parents
    try:
        return one.samefile(other)
    except OSError:
        return _real(one) == _real(other)


def device_files(devices: Sequence[str]) -> list[Path]:
    """The profiles and modules that names of devices may be read from."""
    found = []
    for name in dict.fromkeys(name.strip() for group in devices for name in group.split(",")):
        if len(name) > _LONGEST_PATH:
            continue
        parts = re.sub(r"(#.*|@\d+)$", "", name).split(":")
        for k, part in enumerate(parts):
            found += [Path(":".join(parts[k:])), Path(part), Path(part.replace(".", "/") + ".py")]
    return [path for path in found if os.path.isfile(path)]


def input_files(texts: Sequence[str]) -> list[Path]:
    """The files of ``--input FILE`` and ``--input NAME=FILE``; names may hold equals signs as well."""
    starts = ((text, k) for text in texts for k in (0, *(n + 1 for n, character in enumerate(text) if character == "=")))
    return [Path(text[k:]) for text, k in starts if len(text) - k <= _LONGEST_PATH]


def parse_preparation(
    *, resize: str, mean: str, std: str, scale: str, image_layout: str, rate: int | None, **others: Any
) -> tuple[Preparation, dict[str, Any]]:
    """The options of images and sound, and the other options."""
    from nnbridge.inputs import Preparation

    scales = _fractions("--scale", scale)
    if len(scales) > 1:
        raise InputError(Reason("one number, such as 1/255", repr(scale), operand="--scale"))
    how = Preparation(
        resize,
        _fractions("--mean", mean),
        _fractions("--std", std),
        scales[0] if scales else None,
        "" if image_layout == "auto" else image_layout,
        rate,
    )
    return how, others


def _fractions(option: str, text: str) -> tuple[float, ...]:
    """``127.5``, ``1/255``, ``0.485,0.456,0.406``."""
    try:
        numbers = tuple(float(over) / float(under or 1) for over, _, under in (t.partition("/") for t in text.split(",") if text))
    except (ValueError, ZeroDivisionError):
        numbers = (math.nan,)
    if not all(math.isfinite(number) for number in numbers) or (option != "--mean" and 0 in numbers):
        raise InputError(Reason("numbers such as 127.5 or 0.485,0.456,0.406", repr(text), operand=option))
    return numbers


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


MOST_SEEDS = 1_000_000


def parse_seeds(text: str) -> list[int]:
    """``0,1,2``, ``0-99``."""
    seeds: list[int] = []
    for part in text.split(","):
        found = re.fullmatch(r"\s*(\d{1,18})(?:-(\d{1,18}))?\s*", part)
        first, last = (int(found[1]), int(found[2] or found[1])) if found else (1, 0)
        if not first <= last < first + MOST_SEEDS:
            raise InputError(Reason("whole numbers such as 0,1,2 or 0-99", repr(text), operand="--seeds"))
        seeds += range(first, last + 1)
    return seeds


def typed_options() -> set[str]:
    """The names of the options of the current command that were typed."""
    context, typed = click.get_current_context(), click.core.ParameterSource.COMMANDLINE
    return {n for p in context.command.params if context.get_parameter_source(p.name or "") is typed for n in p.opts}


def refuse_options(*options: str, why: str) -> None:
    """UsageError for any of these options of the current command that was typed: it would do nothing."""
    typed = typed_options()
    for parameter in click.get_current_context().command.params:
        if set(options) & set(parameter.opts) & typed:
            raise click.UsageError(f"{parameter.opts[0]} does nothing here: {why}.")


def tolerances_of(atol: float | None, rtol: float | None, quant_steps: int) -> Tolerances:
    """The tolerance of every output. InputError for what is no tolerance."""
    from nnbridge.compare import Tolerance, Tolerances

    for typed, value in (("--atol", atol), ("--rtol", rtol)):
        if value is not None and not 0 <= value < math.inf:
            raise InputError(Reason("a finite number from 0", str(value), operand=typed))
    return Tolerances(Tolerance(atol, rtol, quant_steps))


def parse_acceptance(
    accept_iou: float | None, accept_score: float | None, score_threshold: float | None, accept_top1: float | None, **others: Any
) -> tuple[Acceptance, dict[str, Any]]:
    """The figures that are enough for outputs of known forms, and the other options."""
    from nnbridge.compare import Acceptance

    return Acceptance(accept_iou, accept_score, score_threshold, accept_top1), others


@contextmanager
def environment(name: str, value: str) -> Iterator[None]:
    """A variable of the environment has a value inside the block, in a command's other processes too."""
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        del os.environ[name]
        if before is not None:
            os.environ[name] = before
