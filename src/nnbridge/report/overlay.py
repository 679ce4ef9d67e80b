"""Facts of a plan and of a comparison by layers as node data for Model Explorer, which draws them over the plain file.

A file of node data is an object of the graphs' names; each has ``results``, a value and colours for a key, which is the name of
an operator's output tensor or the operator's number (ai-edge-model-explorer, ``node_data_builder.py``). The viewer shows one
kind of facts for each file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from nnbridge.compare.comparison import OutputComparison
from nnbridge.compare.layers import Layer, LayerComparison
from nnbridge.compare.tensors import file_names
from nnbridge.converters.structure import FileGraph, FileOperator
from nnbridge.report.outcomes import Key, OperatorOutcome

DEVICES = ("#123f94", "#2b9677", "#a748d6", "#474c08")
"""Backgrounds of operators on the first, second, ... device; from the fifth on, the last one's."""
PLACES = {"cpu": "#b85a00", "host": "#56122e", "runtime": "#525a68", "": "#c9d1db"}
"""The same for other kinds of place, and for operators that nothing runs."""
EQUAL, WITHIN, BEYOND = "#dcebd0", "#f5d97a", "#b3261e"
"""Backgrounds of tensors that are equal to the reference's, within tolerance, and beyond it."""
_FAST, _SLOW = "#ffffff", "#d9480f"

Values = dict[Key, dict[str, Any]]


def operator_key(graph: FileGraph, operator: FileOperator) -> str | None:
    """The key of an operator: the first output with a name that no other tensor has, else its number.

    None where that number is the name of another operator's tensor, as viewers look for names first.
    """
    names = (graph.tensors[i] for i in operator.outputs)
    number = str(operator.index)
    return next((n for n in names if n and graph.counts[n] == 1), None if number in graph.counts else number)


def colours(devices: Sequence[str]) -> Callable[[OperatorOutcome], str]:
    """The background of an operator; ``devices`` are those that were offered the model, in order."""
    known = dict(zip(devices, (*DEVICES, *DEVICES[-1:] * len(devices)), strict=False))

    def colour(facts: OperatorOutcome) -> str:
        if facts.kind == "device":
            return next((known[d] for d in facts.devices if d in known), DEVICES[-1])
        return PLACES[facts.kind]

    return colour


def overlays(
    graphs: Sequence[FileGraph],
    facts: Mapping[Key, OperatorOutcome],
    devices: Sequence[str],
    layers: LayerComparison | None = None,
    times: Mapping[Key, float] | None = None,
) -> dict[str, dict[str, Any]]:
    """Kind of facts → its node data; placement first. Errors need a comparison, times a measurement (milliseconds)."""
    colour = colours(devices)
    kinds: dict[str, tuple[str, Values, dict[str, Any]]] = {
        "placement": (
            "placement",
            {key: {"value": each.placement, "bgColor": colour(each)} for key, each in facts.items()},
            _SUMMARY,
        ),
        "reason": (
            "why not elsewhere",
            {key: {"value": "; ".join(each.reasons), "bgColor": colour(each)} for key, each in facts.items() if each.reasons},
            {**_NO_SUMS, "hideInChildrenStatsTable": True},
        ),
    }
    if layers is not None:
        at = _positions(graphs, layers, facts)
        for name in ("own", "drift"):
            compared = {key: found for key, layer in at.items() if (found := getattr(layer, name)) is not None}
            unit, number = _unit(list(compared.values()))
            values = {key: {"value": number(found), "bgColor": _verdict(found)} for key, found in compared.items()}
            kinds["own-error" if name == "own" else name] = f"{'own error' if name == 'own' else name} ({unit})", values, {}
    if times:
        gradient = {"gradient": [{"stop": 0, "bgColor": _FAST}, {"stop": 1, "bgColor": _SLOW}]}
        kinds["time"] = "time here (ms)", {key: {"value": round(ms, 4)} for key, ms in times.items()}, gradient
    return {kind: _node_data(graphs, *parts) for kind, parts in kinds.items()}


_NO_SUMS = {"hideInAggregatedStatsTable": True}
_SUMMARY = {**_NO_SUMS, "showExpandedSummaryOnGroupNode": True, "showLabelCountColumnsInChildrenStatsTable": True}


def _node_data(graphs: Sequence[FileGraph], name: str, values: Values, more: Mapping[str, Any]) -> dict[str, Any]:
    data: dict[str, Any] = {}
    for graph in graphs:
        keys = {(graph.number, operator.index): operator_key(graph, operator) for operator in graph.operators}
        results = {key: values[at] for at, key in keys.items() if key is not None and at in values}
        if results:
            # Viewers cannot distinguish graphs of one name either: the first one's operators stand.
            first = data.setdefault(graph.name, {"name": name, "results": {}, **more})
            first["results"] = {**results, **first["results"]}
    return data


def _positions(graphs: Sequence[FileGraph], layers: LayerComparison, facts: Mapping[Key, OperatorOutcome]) -> dict[Key, Layer]:
    """The operator that computes each compared tensor: by the tensor's name, of several by the operator's number as well."""
    by_name: dict[str, list[tuple[Key, str]]] = {}
    for graph in graphs:
        for operator in graph.operators:
            for i in operator.outputs:
                if graph.tensors[i] and (graph.number, operator.index) in facts:
                    title = f"{operator.index} {operator.operator}"
                    by_name.setdefault(graph.tensors[i], []).append(((graph.number, operator.index), title))
    found: dict[Key, Layer] = {}
    for layer in (layer for layer in layers.layers if layer.drift is not None or layer.own is not None):
        places = next((by_name[name] for name in file_names(layer.tensor) if name in by_name), [])
        key = next((k for k, title in places if title == layer.operator), places[0][0] if places else None)
        if key is not None:
            found.setdefault(key, layer)
    return found


def _unit(compared: Sequence[OutputComparison]) -> tuple[str, Callable[[OutputComparison], float]]:
    """A unit that all of them have: steps of integers, else differences of floats, else shares of each tensor's range."""
    integers = {each.max_quant_diff is not None for each in compared}
    if integers == {True}:
        return "steps", lambda each: each.max_quant_diff or 0
    if integers <= {False}:
        return "largest difference", lambda each: _finite(each.max_abs_diff)
    return "largest difference / range", lambda each: _finite(
        None if each.max_abs_diff is None else each.largest / (each.span or 1.0)
    )


def _finite(value: float | None) -> float:
    """JSON has no infinity; a difference without a number is the largest that there is."""
    return 1e308 if value is None else min(value, 1e308)


def _verdict(compared: OutputComparison) -> str:
    return EQUAL if not compared.mismatches else BEYOND if compared.beyond else WITHIN
