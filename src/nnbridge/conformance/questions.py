"""Models to ask a device about: one JSON object in a line, ``{"model": …}``, in the form of the conformance cases."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from nnbridge.budget import WorkBudget, parse_json, unpacked_limit
from nnbridge.conformance.cases import Case, build
from nnbridge.conformance.schema import question_error
from nnbridge.errors import InputError, NnapiError, Reason, cannot_read
from nnbridge.model import Model
from nnbridge.reading import open_file
from nnbridge.records import dataclass

MAX_LINE = 16 << 20
"""Bytes of a line; the longest of Android's own cases has a tenth of it."""

_LEAST_LINE = 64
"""Bytes that a line counts for at least: empty ones take time as well."""


@dataclass(frozen=True)
class Question:
    """One line: the model, and the object that contains it."""

    line: int
    data: Mapping[str, Any]
    model: Model


def read_questions(path: Path) -> Iterator[Question]:
    """The models of a ``.jsonl`` or ``.jsonl.gz`` file. InputError names the line of the first mistake; empty lines are none."""
    number = 0
    try:
        with open_file(path) as plain, gzip.open(plain) if path.suffix == ".gz" else plain as file:
            left = WorkBudget(unpacked_limit(path.stat().st_size), "bytes of lines")
            while line := file.readline(MAX_LINE):
                number += 1
                left.spend(max(len(line), _LEAST_LINE), f"{path} line {number}")
                if line.strip():
                    yield _question(line, path, number)
    except (OSError, EOFError, zlib.error) as error:
        where = f"after line {number}" if number else ""
        raise InputError(Reason("a readable file of models", cannot_read(error), operand=where, file=str(path))) from error


def _question(line: bytes, path: Path, number: int) -> Question:
    where = f"{path} line {number}"
    if len(line) >= MAX_LINE:
        raise InputError(Reason(f"lines of fewer than {MAX_LINE} bytes", "more", operand=where))
    try:
        data = parse_json(line)
    except (ValueError, RecursionError) as error:
        raise InputError(Reason("a JSON object in each line", str(error), operand=where)) from error
    wrong = question_error(data)
    if wrong is not None:
        raise InputError(replace(wrong, operand=f"{where}: {wrong.operand}"))
    case = Case("questions", path.name, {"relaxed": False, **data, "name": f"line {number}"})
    try:
        return Question(number, data, build(case))
    except (NnapiError, ArithmeticError, ValueError, TypeError, LookupError) as error:
        raise InputError(Reason("a model of NNAPI", str(error), operand=where)) from error
