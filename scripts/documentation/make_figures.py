"""Draw docs/figures/decision.svg: how a phone divides models/digits_uint8.tflite, from the plan of that model.

python scripts/documentation/make_figures.py           draw it
python scripts/documentation/make_figures.py --check   exit with 1 if it is not up to date
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # scripts/

from script_support import MODELS, REPOSITORY, write_or_check

from nnbridge import Compilation
from nnbridge.converters import ConversionOptions
from nnbridge.devices import device
from nnbridge.errors import Why
from nnbridge.file import load
from nnbridge.report.plan import plan_as_dict

TARGET = REPOSITORY / "docs" / "figures" / "decision.svg"
MODEL, DEVICE, LEVEL, LIMIT = "digits_uint8.tflite", "arm-nn-18.05", 5, 3
ROW, TOP, WIDTH, LEFT, COLUMN = 30, 92, 520, 172, 86
YES, NO, LEFT_OUT = ("#1b7f5c", "✓"), ("#b3422f", "✗"), ("#8a5a00", "–")
"""Colours on white have a contrast of 4.5 at least; the marks say the same without colours."""
COLUMNS = ("delegate", "driver", f"best {LIMIT}", "runs on")


class Row(NamedTuple):
    """An operation: its answers, and the step that runs it."""

    name: str
    accepted: bool
    limited: bool
    on_device: bool
    step: int


def document() -> str:
    """The whole drawing."""
    model = load(MODELS / MODEL, ConversionOptions(mapping="phone", feature_level=LEVEL))
    compilation = Compilation.create(model, [device(DEVICE)])
    compilation.set_max_partitions(LIMIT)
    compilation.finish()
    return "\n".join(_drawing(list(_rows(plan_as_dict(compilation))), f"{MODEL} on {DEVICE}, Android 12")) + "\n"


def _drawing(rows: list[Row], title: str) -> Iterator[str]:
    height = TOP + ROW * len(rows) + 44
    shape = f'viewBox="0 0 {WIDTH} {height}" role="img" font-family="sans-serif"'
    yield f'<svg xmlns="http://www.w3.org/2000/svg" {shape}>'
    yield f"<title>{escape(title)}: the delegate's rules, the driver's replies, the limit on partitions, the steps</title>"
    yield f'<rect width="{WIDTH}" height="{height}" rx="8" fill="#ffffff"/>'
    yield _text(16, 28, title, weight="bold", anchor="start")
    for number, name in enumerate(COLUMNS):
        yield _text(LEFT + COLUMN * (number + 0.5), 58, str(number + 1), colour="#5a6470", size=12)
        yield _text(LEFT + COLUMN * (number + 0.5), 76, name, weight="bold")
    for index, row in enumerate(rows):
        y = TOP + ROW * index
        if index == 0 or rows[index - 1].step != row.step:
            yield f'<line x1="12" x2="{WIDTH - 12}" y1="{y}" y2="{y}" stroke="#c5ccd3"/>'
        yield _text(16, y + 20, row.name, anchor="start", size=12)
        driver = YES if row.accepted else NO
        limit = LEFT_OUT if not row.accepted else NO if row.limited else YES
        for number, (colour, mark) in enumerate((YES, driver, limit)):
            yield _text(LEFT + COLUMN * (number + 0.5), y + 21, mark, colour=colour, weight="bold", size=16)
        colour = YES[0] if row.on_device else "#4a5560"
        x = LEFT + COLUMN * 3 + 7
        yield f'<rect x="{x}" y="{y + 4}" width="{COLUMN - 14}" height="{ROW - 8}" rx="4" fill="{colour}"/>'
        yield _text(LEFT + COLUMN * 3.5, y + 20, "driver" if row.on_device else "CPU", colour="#ffffff", size=12)
    yield _text(16, height - 16, "Lines divide the steps. ✓ yes   ✗ no   – not asked", colour="#5a6470", anchor="start", size=12)
    yield "</svg>"


def _rows(plan: Mapping[str, Any]) -> Iterator[Row]:
    steps = {index: number for number, step in enumerate(plan["steps"]) for index in step["operations"]}
    for operation in plan["operations"]:
        kinds = {reason["kind"] for reason in operation["reasons"] if reason["device"] == DEVICE}
        limited = Why.PARTITIONS.value in kinds
        on_device = operation["device"] == DEVICE
        yield Row(operation["type"], on_device or limited, limited, on_device, steps[operation["index"]])


def _text(
    x: float, y: float, text: str, *, colour: str = "#1d242b", weight: str = "normal", anchor: str = "middle", size: int = 14
) -> str:
    style = f'fill="{colour}" font-weight="{weight}" text-anchor="{anchor}" font-size="{size}"'
    return f'<text x="{x:g}" y="{y:g}" {style}>{escape(text)}</text>'


if __name__ == "__main__":
    write_or_check(TARGET, document)
