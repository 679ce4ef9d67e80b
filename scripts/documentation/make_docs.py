"""Write docs/operations.md from the operations' declarations.

python scripts/documentation/make_docs.py           write the file
python scripts/documentation/make_docs.py --check   exit with 1 if it is not up to date
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # scripts/

from script_support import REPOSITORY, write_or_check

from nnbridge.operations import OperationDef, definitions
from nnbridge.operations.matching import allowed_types

TARGET = REPOSITORY / "docs" / "operations.md"
EXPERIMENTAL = 9


def document() -> str:
    """The whole page."""
    lines = [
        "# NNAPI operations",
        "",
        "Generated from the declarations by `python scripts/documentation/make_docs.py`. A type's number is the",
        "feature level from which the operation's first tensor may have it; `exp` marks the experimental level.",
        f"Types are without `TENSOR_`. *Usual*: {USUAL.format('from the first level')}.",
        "",
        "| operation | code | since | types by level | inputs | what it computes |",
        "|---|---:|---:|---|---|---|",
    ]
    lines += [_row(definition) for definition in definitions().values()]
    lines += ["", f"{len(definitions())} operations.", ""]
    return "\n".join(lines)


USUAL = "FLOAT32 {0}, QUANT8_ASYMM {0}, FLOAT16 3, QUANT8_ASYMM_SIGNED 4"
"""The types of most operations, described once."""


def _row(definition: OperationDef) -> str:
    cells = (
        definition.name,
        str(int(definition.code)),
        _level(definition.since),
        _types(definition),
        _counts(definition),
        definition.summary.replace("|", "\\|"),
    )
    return "| " + " | ".join(cells) + " |"


def _types(definition: OperationDef) -> str:
    """Types of the first input that can be a tensor of several types, each with its level."""
    references = [i.type for s in definition.signatures for i in s.inputs if isinstance(i.type, str) and i.type != "*"]
    if not references:
        return "any" if definition.control_flow else "fixed"
    variable = references[0]
    levels: dict[str, int] = {}
    for kind in allowed_types(definition, variable):
        found = [max(s.level, definition.since) for s in definition.types if s.types.get(variable) == kind]
        levels[kind.name.removeprefix("TENSOR_")] = min(found)
    listed = ", ".join(f"{name} {_level(level)}" for name, level in sorted(levels.items(), key=lambda item: (item[1], item[0])))
    return listed.replace(USUAL.format(_level(definition.since)), "usual")


def _counts(definition: OperationDef) -> str:
    counts = sorted({count for s in definition.signatures for count in s.counts})
    minimums = [f"{s.minimum} or more" for s in definition.signatures if s.minimum is not None]
    return ", ".join([*(str(count) for count in counts), *minimums])


def _level(level: int) -> str:
    return "exp" if level == EXPERIMENTAL else str(int(level))


if __name__ == "__main__":
    write_or_check(TARGET, document)
