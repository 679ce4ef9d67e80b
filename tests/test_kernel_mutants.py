"""The mutation check of the kernels tells what tests notice from what they do not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.conftest import REPOSITORY

SCRIPT = REPOSITORY / "scripts" / "nets" / "mutate_kernels.py"
LINES = (REPOSITORY / "src" / "nnbridge" / "operations" / "reductions.py").read_text(encoding="utf-8").splitlines()


def mutant(inside: str, kind: str, before: str, after: str) -> dict[str, Any]:
    """A row of results for a change of the first line that has some text."""
    line = next(number for number, text in enumerate(LINES) if inside in text)
    column = LINES[line].index(inside) + inside.index(before)
    place = {"module": "reductions.py", "line": line + 1, "column": column}
    return {**place, "kind": kind, "before": before, "after": after, "outcome": "survives"}


MUTANTS = {
    "tests": mutant("// count", "arithmetic", "//", "*"),
    "not reached": mutant("rint(x.mean", "rounding", "rint", "floor"),
    "survives": mutant("others), -1)", "constant", "1", "(1 + 1)"),
}


def test_mutants_are_killed_survive_or_are_not_reached(tmp_path: Path) -> None:
    # Without conformance cases. NumPy infers the size of any negative dimension: -2 is as good as -1.
    before, after = tmp_path / "before.jsonl", tmp_path / "after.jsonl"
    before.write_text("".join(json.dumps(row) + "\n" for row in MUTANTS.values()))
    script: list[str | Path] = [
        sys.executable,
        REPOSITORY / "scripts" / "nets" / "mutate_kernels.py",
        "--again",
        before,
        "--results",
        after,
    ]
    environment = {**os.environ, "NNBRIDGE_SHARED": str(tmp_path / "none")}
    done = subprocess.run(
        [*script, "--tests", "tests/operations/test_reductions.py", "--jobs", "1"],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env=environment,
    )
    assert (done.returncode, done.stderr) == (0, "")
    rows = [json.loads(line) for line in after.read_text().splitlines()]
    assert {row["outcome"]: row["line"] for row in rows} == {outcome: row["line"] for outcome, row in MUTANTS.items()}
    assert "1 of 3 mutants killed" in done.stdout
