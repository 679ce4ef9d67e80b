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
from nnbridge.operations.declaration import Input
from nnbridge.operations.matching import allowed_types

TARGET = REPOSITORY / "docs" / "operations.md"
EXPERIMENTAL = 9


MOST_NAMES = 20
"""Inputs of an operation whose names the page lists."""


def document() -> str:
    """The whole page."""
    lines = [
        "# NNAPI operations",
        "",
        "Made by `python scripts/documentation/make_docs.py` from the declarations in `src/nnbridge/operations`; the",
        "[NDK](https://developer.android.com/ndk/reference/group/neural-networks) describes what each operation computes.",
        "",
        "- *Operations*: with their codes; in one row those with the same types and inputs. *Since*: the first feature level.",
        "- *Types* of the first tensor, without `TENSOR_`; a number is the first feature level of a type, if that is above the",
        "  operation's. *Float*: FLOAT32, FLOAT16 (3). *Usual*: float, QUANT8_ASYMM, QUANT8_ASYMM_SIGNED (4).",
        "- *Inputs* by the names that [profiles](profiles.md) use: `?` may be left out, `*` repeats; a dash separates forms; in",
        "  brackets how many there may be. `exp`: experimental.",
        "",
        "| operations | since | types | inputs → outputs |",
        "|---|---:|---|---|",
    ]
    alike: dict[tuple[str, str, str], list[str]] = {}
    for definition in definitions().values():
        cells = _level(definition.since), _types(definition), f"{_inputs(definition)} → {_outputs(definition)}"
        alike.setdefault(cells, []).append(f"{definition.name} {int(definition.code)}")
    lines += [f"| {', '.join(names)} | {' | '.join(cells)} |" for cells, names in alike.items()]
    lines += ["", f"{len(definitions())} operations.", ""]
    return "\n".join(lines)


def _types(definition: OperationDef) -> str:
    """Types of the first input that can be a tensor of several types, each with its level if that is above the operation's."""
    references = [i.type for s in definition.signatures for i in s.inputs if isinstance(i.type, str) and i.type != "*"]
    if not references:
        return "any" if definition.control_flow else "fixed"
    variable = references[0]
    levels: dict[str, int] = {}
    for kind in allowed_types(definition, variable):
        found = [max(s.level, definition.since) for s in definition.types if s.types.get(variable) == kind]
        levels[kind.name.removeprefix("TENSOR_")] = min(found)
    listed = [name + (f" {level}" if level > definition.since else "") for name, level in sorted(levels.items())]
    for short, members in SETS.items():
        names = [name + (f" {level}" if level > definition.since else "") for name, level in members.items()]
        if set(names) <= set(listed):
            return ", ".join([short, *(one for one in listed if one not in names)])
    return ", ".join(listed)


_FLOAT = {"FLOAT32": 1, "FLOAT16": 3}
SETS = {"usual": _FLOAT | {"QUANT8_ASYMM": 1, "QUANT8_ASYMM_SIGNED": 4}, "float": _FLOAT}
"""Types of many operations, described once."""


def _inputs(definition: OperationDef) -> str:
    """The names of each form's inputs; of operations with many, the numbers of inputs."""
    if any(len(signature.inputs) > MOST_NAMES for signature in definition.signatures):
        return _counts(definition)
    forms = (", ".join(_input(one) for one in signature.inputs) for signature in definition.signatures)
    counted = f" ({_counts(definition)})" if any(len(signature.counts) > 1 for signature in definition.signatures) else ""
    return " – ".join(dict.fromkeys(forms)) + counted


def _input(one: Input) -> str:
    """The name, with marks."""
    return one.name + "*" * one.repeat + "?" * (one.optional or one.default is not None)


def _outputs(definition: OperationDef) -> str:
    """The names of the outputs."""
    return ", ".join(one.name for one in definition.outputs)


def _counts(definition: OperationDef) -> str:
    counts = sorted({count for s in definition.signatures for count in s.counts})
    minimums = [f"{s.minimum} or more" for s in definition.signatures if s.minimum is not None]
    return ", ".join([*(str(count) for count in counts), *minimums])


def _level(level: int) -> str:
    return "exp" if level == EXPERIMENTAL else str(int(level))


if __name__ == "__main__":
    write_or_check(TARGET, document)
