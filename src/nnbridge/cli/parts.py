"""Some operations of a model as a model of their own: ``nnbridge convert`` with ``--operations`` or ``--operators``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nnbridge.cli.output import echo
from nnbridge.errors import InputError, Reason
from nnbridge.report.terminal import counted

if TYPE_CHECKING:
    from nnbridge.model import Model


def write_part(
    path: Path, loaded: Model, numbers: tuple[str | None, str | None], output: Path, samples: Path | None, seed: int
) -> tuple[dict[Path, int], dict[str, Any]]:
    """Write the part of a model that ``--operations`` or ``--operators`` chooses: the files with their sizes, and what it is."""
    from nnbridge import export
    from nnbridge.compare import seeded_inputs
    from nnbridge.devices import CPU_NAME
    from nnbridge.reduction import Whole, part
    from nnbridge.reduction.saving import save_sample
    from nnbridge.reduction.source_part import source_part
    from nnbridge.storage.atomic import atomic_write, written_together

    operations, operators = numbers
    chosen = _operations(loaded, operations) if operations is not None else _of_operators(loaded, operators or "")
    found = part(loaded, chosen)
    with written_together():
        if output.suffix and output.suffix.lower() == path.suffix.lower() != ".nnapi":
            content = source_part(path, loaded, chosen)
            with atomic_write(output) as file:
                files = {output: file.write(content)}
        else:
            files = dict(export.write(found, output, path.name))
        if samples is not None:
            candidate = Whole.of(loaded, seeded_inputs(loaded, seed), CPU_NAME).part(chosen)
            if candidate is None:
                raise InputError(Reason("values of every input of the part in a run", "none of some", operand="--samples"))
            save_sample(samples, candidate)
    if samples is not None:
        files[samples] = samples.stat().st_size
    ends = {side: [_described(found, i) for i in getattr(found.main, side)] for side in ("inputs", "outputs")}
    return files, {"operations": chosen, **ends}


def show_part(output: Path, part: dict[str, Any], total: int) -> None:
    """Print what was written: how many operations, and what goes in and comes out."""
    echo(f"{output}: {counted(len(part['operations']), 'operation')} of {total}")
    for side in ("inputs", "outputs"):
        for end in part[side]:
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
