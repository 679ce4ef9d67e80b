"""``nnbridge extract``: some operations of a model as a model of their own."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nnbridge.cli.arguments import check_outputs
from nnbridge.cli.options import MODEL, WRITTEN, file_of, model_options, option, read_model
from nnbridge.cli.output import echo, json_option, print_json
from nnbridge.errors import InputError, Reason
from nnbridge.report.terminal import counted

if TYPE_CHECKING:
    from nnbridge.model import Model

_OPERATIONS = "NNAPI's operations by their number in the run order, from 0 (the operation of `plan --json` and of bisect)."
_OPERATORS = "Instead, the operations of the source file's operators, by their index there."
_OUTPUT = (
    "As for convert; or a file of the model's own format (.tflite, .onnx), with the operators that the operations come from."
)


@click.command(short_help="Write some operations of a model as a model.")
@MODEL
@option("--operations", metavar="N[-N][,…]", help=_OPERATIONS)
@option("--operators", metavar="N[-N][,…]", help=_OPERATORS)
@option("-o", "--output", type=WRITTEN, required=True, help=_OUTPUT)
@option("--samples", type=WRITTEN, metavar="FILE.npz", help="Write the values that reach the part, for compare.")
@option("--seed", type=click.IntRange(min=0), default=0, metavar="N", help="With --samples: draw the whole model's inputs so.")
@model_options
@json_option
def extract(
    model: Path,
    operations: str | None,
    operators: str | None,
    output: Path,
    samples: Path | None,
    seed: int,
    as_json: bool,
    **options: Any,
) -> None:
    """Write some operations of a model as a model, a conformance case, C source or a part of the source file.

    What other operations compute is an input of the part, what others read an output.

    \b
    Examples:
      nnbridge extract model.tflite --operations 12-20 -o part.nnapi --samples part.npz
      nnbridge extract model.tflite --operators 7 -o part.tflite
      nnbridge extract model.onnx --operations 3 -o cases/mine/conv.json.gz
    """
    from nnbridge import export
    from nnbridge.compare import seeded_inputs
    from nnbridge.devices import CPU_NAME
    from nnbridge.reduction import Whole, part
    from nnbridge.reduction.saving import save_sample
    from nnbridge.reduction.source_part import source_part
    from nnbridge.storage.atomic import atomic_write, written_together

    if (operations is None) == (operators is None):
        raise click.UsageError("One of --operations and --operators is required.")
    check_outputs({"--output": output, "--samples": samples})
    loaded = read_model(file_of(model, options))
    chosen = _operations(loaded, operations) if operations is not None else _of_operators(loaded, operators or "")
    found = part(loaded, chosen)
    with written_together():
        if output.suffix and output.suffix.lower() == model.suffix.lower() != ".nnapi":
            content = source_part(model, loaded, chosen)
            with atomic_write(output) as file:
                files = [output]
                file.write(content)
        else:
            files = [*export.write(found, output, model.name)]
        if samples is not None:
            candidate = Whole.of(loaded, seeded_inputs(loaded, seed), CPU_NAME).part(chosen)
            if candidate is None:
                raise InputError(Reason("values of every input of the part in a run", "none of some", operand="--samples"))
            save_sample(samples, candidate)
            files.append(samples)
    ends = {side: [_described(found, i) for i in getattr(found.main, side)] for side in ("inputs", "outputs")}
    if as_json:
        written = [str(file) for file in files]
        print_json({"model": str(model), "output": str(output), "files": written, "operations": chosen, **ends})
    else:
        echo(f"{output}: {counted(len(chosen), 'operation')} of {len(loaded.main.operations)}")
        for side, described in ends.items():
            for end in described:
                echo(f"{side.removesuffix('s')} {end['name'] or 'without name'}: {end['type']}")


def _described(model: Model, i: int) -> dict[str, str]:
    operand = model.main.operands[i]
    return {"name": operand.name, "type": str(operand)}


def _operations(model: Model, text: str) -> list[int]:
    return _numbers(text, range(len(model.main.operations)), "--operations")


def _of_operators(model: Model, text: str) -> list[int]:
    by_index: dict[int, list[int]] = {}
    for k, operation in enumerate(model.main.operations):
        if operation.source is not None:
            index = operation.source.callers[0] if operation.source.callers else operation.source.index
            by_index.setdefault(index, []).append(k)
    return sorted(k for index in _numbers(text, sorted(by_index), "--operators") for k in by_index[index])


def _numbers(text: str, known: Sequence[int], operand: str) -> list[int]:
    """``12-20,25``: those of a range that are known, single ones must be."""
    found: dict[int, None] = {}
    for piece in text.split(","):
        ends = re.fullmatch(r"\s*(\d{1,9})(?:-(\d{1,9}))?\s*", piece)
        first, last = (int(ends[1]), int(ends[2] or ends[1])) if ends else (1, 0)
        inside = [n for n in known if first <= n <= last]
        if not inside or (last not in known and first == last) or (isinstance(known, range) and last not in known):
            rule = f"numbers such as 3 or 12-20, from {known[0]} to {known[-1]}" if known else "a model with such numbers"
            raise InputError(Reason(rule, repr(text), operand=operand))
        found.update(dict.fromkeys(inside))
    return sorted(found)
