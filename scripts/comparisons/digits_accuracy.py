"""Accuracy of every digit classifier in models/ on every sample driver, and of LiteRT or ONNX Runtime (column "itself").

    python scripts/comparisons/digits_accuracy.py

Runs the held-out images whose reference outputs are stored. Exit status 1 if a float variant loses an image that its
reference gets right.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # scripts/

from script_support import MODELS, RUNTIMES, Array, argument_parser, finished, one_line_errors

from nnbridge import ConversionError, Execution, load
from nnbridge.compare import load_arrays, stored_samples
from nnbridge.devices import drivers

FLOAT_VARIANTS = ("float32", "float16")


def main() -> None:
    """Print the table."""
    argument_parser().parse_args()
    names = [device.name for device in drivers()]
    table = Table(title="Held-out digits classified right", padding=0)
    for column in ("model", "itself", *(name.removeprefix("nnapi-sample_") for name in names)):
        table.add_column(column, justify="left" if column == "model" else "right", no_wrap=True)
    lost = False
    for path in sorted([*MODELS.glob("digits_*.tflite"), *MODELS.glob("digits_*.onnx")]):
        stored = MODELS / f"{path.stem}.{RUNTIMES[path.suffix]}.npz"
        labels = load_arrays(stored)["labels"]
        try:
            model = load(path)
        except ConversionError:
            table.add_row(path.name, "not converted")
            continue
        expected = [next(iter(sample.outputs.values())) for sample in stored_samples(model, stored)]
        best = _right(np.stack(expected), labels)
        scores = []
        for device in drivers():
            compilation = finished(model, [device])
            answers = [next(iter(Execution(compilation).run(s.inputs).values())) for s in stored_samples(model, stored)]
            scores.append(_right(np.stack(answers), labels))
            lost |= scores[-1] < best and any(variant in path.stem for variant in FLOAT_VARIANTS)
        count = len(labels)
        table.add_row(path.name, f"{best}/{count}", *(f"{score}/{count}" for score in scores))
    Console().print(table)
    sys.exit(1 if lost else 0)


def _right(outputs: Array, labels: Array) -> int:
    return int((outputs.reshape(len(labels), -1).argmax(axis=1) == labels).sum())


if __name__ == "__main__":
    with one_line_errors():
        main()
