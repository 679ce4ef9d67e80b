"""What commands print on a terminal of 80 columns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result
from rich.console import Console
from rich.table import Table

from nnbridge.cli.commands import cli
from nnbridge.report_words import Names, counted
from tests.conftest import MODELS

FLOAT32, REFERENCE = MODELS / "digits_float32.tflite", MODELS / "digits_float32.litert.npz"


def narrow(*arguments: Any) -> Result:
    """A command's result on a terminal of 80 columns."""
    return CliRunner().invoke(cli, [str(argument) for argument in arguments], env={"COLUMNS": "80"})


def test_an_output_of_another_shape_is_named_and_told_below_the_table(tmp_path: Path) -> None:
    wrong = {name: np.tile(array, 2) if name.startswith("output:") else array for name, array in np.load(REFERENCE).items()}
    np.savez(tmp_path / "wrong.npz", **wrong)
    result = narrow("compare", FLOAT32, "--reference", tmp_path / "wrong.npz")
    assert result.exit_code == 1
    for column in ("output", "type", "elements", "max diff", "mean diff", "unequal", "allowed", "verdict"):
        assert f"┃{column}" in result.stdout
    assert "│PartitionedCall:0│float32│       0│       -│" in result.stdout
    assert result.stdout.endswith("PartitionedCall:0: float32[1, 20] in the reference, float32[1, 10] here\n"), result.stdout


def printed(table: Table, width: int) -> list[str]:
    """A table's lines."""
    console = Console(width=width)
    with console.capture() as capture:
        console.print(table)
    return capture.get().splitlines()


@pytest.mark.parametrize("width", range(30, 60, 5))
def test_names_break_behind_separators_only(width: int) -> None:
    table = Table(padding=(0, 0))
    names = "process:add_class:AddDriver", "org.tensorflow.lite.COMPLEX_ABS×2 (host), CONV_2D"
    for _ in names:
        table.add_column("a")
    table.add_row(*map(Names, names))
    cells = [line.strip("│").split("│") for line in printed(table, width) if line.startswith("│")]
    for column, name in enumerate(names):
        parts = [row[column].rstrip() for row in cells if row[column].strip()]
        assert "".join(parts).replace(" ", "") == name.replace(" ", "")
        assert all(part[-1] in ":._," or name.endswith(part) or f"{part} " in name for part in parts), parts


def test_words_are_counted_as_a_reader_would() -> None:
    assert (counted(1, "step"), counted(0, "step"), counted(1001, "label")) == ("1 step", "0 steps", "1,001 labels")
