"""A comparison by layers: tables for people, rows for ``--csv``."""

from __future__ import annotations

from pathlib import Path

from nnbridge.compare.comparison import OutputComparison
from nnbridge.compare.layers import Layer, LayerComparison, difference
from nnbridge.report.csv_text import csv_text
from nnbridge.report.outputs import cause_lines, ended_lines
from nnbridge.report.terminal import Table, counted, short_name
from nnbridge.storage.atomic import atomic_write

_FEW = 3
"""Tensors that are not compared for the same reason and have their names in the table; ``--csv`` has all."""
_FIGURES = ("max_abs_diff", "max_quant_diff", "mean_abs_diff", "elements", "mismatches", "beyond")


def layer_tables(comparison: LayerComparison) -> list[Table | str]:
    """The sentence, a row for each tensor that both sides have, and what could not be compared."""
    shown = [layer for layer in comparison.layers if layer.drift or layer.own]
    places = {(layer.device, layer.step) for layer in shown}
    at = len(places) > 1
    words = ("outside tolerance", "within tolerance") if comparison.reservation else ("FAIL", "pass")
    rows = [
        (
            f"{layer.operator} in {layer.position[0]}" if layer.position[0] else layer.operator,
            short_name(layer.tensor or layer.operation),
            layer.device if at else "",
            str(layer.step) if at else "",
            *_figures(layer, words),
            layer.why,
            layer.note,
        )
        for layer in shown
    ]
    columns = ("operator", "tensor", "device", "step", "drift", "own error", "verdict", "cause", "note")
    title = f"{comparison.model} against {comparison.reference}, {counted(comparison.samples, 'sample')}"
    title += f": {len(comparison.compared)} of {counted(len(comparison.layers), 'tensor')} compared"
    title += f", all on {next(iter(places))[0]}" if len(places) == 1 else ""
    first = next((k for k, layer in enumerate(shown) if layer.drift is not None and layer.drift.beyond), 0)
    blocks: list[Table | str] = [comparison.sentence, Table(title, columns, rows, first=first)]
    blocks += cause_lines(comparison.causes, keys=True)
    blocks += ended_lines(comparison.ended)
    if comparison.interrupted:
        blocks.append("Interrupted: only the samples above were finished.")
    alone = [
        *((layer.place, "only in the plan", layer.note) for layer in comparison.layers if not layer.drift and not layer.own),
        *((name, "only in the reference", why) for name, why in comparison.unmatched),
    ]
    groups: dict[tuple[str, str], list[str]] = {}
    for name, where, why in alone:
        groups.setdefault((where, why), []).append(name)
    rows = [(_names(names), where, why) for (where, why), names in groups.items()]
    return [*blocks, *([Table("Not compared", ("tensor", "where", "why"), rows)] if rows else [])]


def _names(tensors: list[str]) -> str:
    more = f" and {len(tensors) - _FEW} more" if len(tensors) > _FEW else ""
    return ", ".join(tensors[:_FEW]) + more


def _figures(layer: Layer, words: tuple[str, str]) -> tuple[str, ...]:
    beyond = layer.drift is not None and layer.drift.beyond
    shown = (difference(side).removesuffix(" of elements").replace(" %", "%") for side in (layer.drift, layer.own))
    return *shown, words[not beyond] if layer.drift else "-"


def write_csv(comparison: LayerComparison, path: Path) -> None:
    """A row for each tensor."""
    sides = [f"{side} {name}" for side in ("drift", "own") for name in _FIGURES]
    rows: list[list[object]] = [["operator", "operation", "tensor", "body", "device", "step", *sides, "note", "cause"]]
    for layer in comparison.layers:
        where = [layer.operator, layer.operation, layer.tensor, layer.position[0], layer.device, layer.step]
        rows.append([*where, *_numbers(layer.drift), *_numbers(layer.own), layer.note, layer.why])
    for name, why in comparison.unmatched:
        rows.append(["", "", name, "", "", "", *_numbers(None), *_numbers(None), why, ""])
    with atomic_write(path) as file:
        file.write(csv_text(rows).encode())


def _numbers(comparison: OutputComparison | None) -> list[object]:
    return [""] * len(_FIGURES) if comparison is None else [getattr(comparison, name) for name in _FIGURES]
