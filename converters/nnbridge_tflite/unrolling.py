"""Subgraphs of a TFLite file in the place of what calls them: loops of known steps, chosen branches, decompositions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any

import numpy as np

from nnbridge.errors import ConversionError, Reason
from nnbridge.records import dataclass
from nnbridge_tflite.tables import LETTERS, EditedGraph, Table, listed, operator_name

_MAX_STEPS = 256
_MAX_OPERATORS = 8192
"""Operators that the steps may have together."""
_SCALARS: Mapping[str, Callable[..., Any]] = {
    "ADD": np.add,
    "SUB": np.subtract,
    "MUL": np.multiply,
    "LESS": np.less,
    "LESS_EQUAL": np.less_equal,
    "GREATER": np.greater,
    "GREATER_EQUAL": np.greater_equal,
    "EQUAL": np.equal,
    "NOT_EQUAL": np.not_equal,
    "LOGICAL_AND": np.logical_and,
    "LOGICAL_OR": np.logical_or,
    "LOGICAL_NOT": np.logical_not,
    "MINIMUM": np.minimum,
    "MAXIMUM": np.maximum,
}
"""What counts steps, and decides whether there is another one."""
_COUNTED = ("INT32", "INT64", "BOOL")
REFERRING = "subgraph"
"""What the names of options that refer to subgraphs have in common."""


def unroll(graph: EditedGraph) -> bool:
    """Place the body of a WHILE once for each step; False where the number of steps depends on data, or is large."""
    graphs = graph.model["subgraphs"]
    numbers = [int(graph.option(f"{name}_subgraph_index")) for name in ("cond", "body")]
    if max(numbers) >= len(graphs):
        raise ConversionError(Reason("the bodies of a loop", "a file without them", "WHILE"))
    condition, body = (graphs[number] for number in numbers)
    known = [_number(graph.model, graph.subgraph, t) for t in listed(graph.operator["inputs"])]
    steps: list[dict[int, Any]] = []
    while True:
        again = _counted(graph.model, condition, known).get(listed(condition["outputs"])[0])
        if again is None or len(steps) > min(_MAX_STEPS, _MAX_OPERATORS // max(len(body["operators"]), 1)):
            return False
        if not again:
            break
        steps.append(_counted(graph.model, body, known))
        known = [steps[-1].get(t) for t in listed(body["outputs"])]
    if _has_states(body):
        return False
    current = listed(graph.operator["inputs"])
    shared: dict[int, int] = {}
    for number, counted in enumerate(steps):
        current = _LoopStep(
            graph, body, f"step {number}", counted, shared, dict(zip(listed(body["inputs"]), current, strict=True))
        ).placed()
    _replace(graph, dict(zip(listed(graph.operator["outputs"]), current, strict=True)))
    return True


def branch(graph: EditedGraph) -> bool:
    """Place the branch that the condition of an IF chooses; False where the condition depends on data."""
    condition, *inputs = listed(graph.operator["inputs"])
    chosen = _counted(graph.model, graph.subgraph, [None] * len(listed(graph.subgraph["inputs"]))).get(condition)
    if chosen is None:
        return False
    return _placed_once(graph, f"{'then' if chosen else 'else'}_subgraph_index", inputs)


def decomposition(graph: EditedGraph) -> bool:
    """Place the decomposition of a STABLEHLO_COMPOSITE, which TFLite runs for it."""
    return _placed_once(graph, "decomposition_subgraph_index", listed(graph.operator["inputs"]))


def _placed_once(graph: EditedGraph, option: str, inputs: list[int]) -> bool:
    """Place the operators of a subgraph for the operator that calls it; False for bodies with states of their own."""
    number = next((int(stated[option]) for _, stated in _options(graph.operator) if option in stated), 0)
    if not 0 < number < len(graph.model["subgraphs"]):
        raise ConversionError(Reason("the subgraph that an operator calls", "a file without it", graph.name))
    body, outputs = graph.model["subgraphs"][number], listed(graph.operator["outputs"])
    if _has_states(body) or len(inputs) != len(listed(body["inputs"])):
        return False
    ends, computed = listed(body["outputs"]), {t for operator in body["operators"] for t in listed(operator["outputs"])}
    # What an operator of the body computes is the output itself; the same tensor twice, an input or a constant is copied.
    direct = {end: out for end, out in zip(reversed(ends), reversed(outputs), strict=True) if end in computed}
    known = dict(zip(listed(body["inputs"]), inputs, strict=True))
    results = _LoopStep(graph, body, "body", {}, {}, direct | known).placed()
    _replace(graph, {out: made for out, made in zip(outputs, results, strict=True) if out != made})
    return True


def _has_states(body: Table) -> bool:
    return any(tensor.get("is_variable") for tensor in body["tensors"])


def _number(model: Table, graph: Table, tensor: int) -> Any | None:
    """The only element of a stored integer; None for other tensors."""
    found = graph["tensors"][tensor]
    name = EditedGraph.type_name(found)
    data = model["buffers"][found.get("buffer") or 0].get("data")
    if name not in _COUNTED or data is None or len(data) != np.dtype(LETTERS[name]).itemsize:
        return None
    return np.asarray(data).view(LETTERS[name])[0]


def _counted(model: Table, graph: Table, inputs: list[Any | None]) -> dict[int, Any]:
    """Single integers that a subgraph has or computes, where they follow from what is known of its inputs."""
    known = {t: value for t, value in zip(listed(graph["inputs"]), inputs, strict=True) if value is not None}
    for tensor in range(len(graph["tensors"])):
        if tensor not in known and (stored := _number(model, graph, tensor)) is not None:
            known[tensor] = stored
    for operator in graph["operators"]:
        compute = _SCALARS.get(operator_name(model, operator))
        outputs, values = listed(operator["outputs"]), [known.get(t) for t in listed(operator["inputs"])]
        fused = (operator.get("builtin_options") or {}).get("fused_activation_function")
        if compute is not None and len(outputs) == 1 and not fused and all(value is not None for value in values):
            name = EditedGraph.type_name(graph["tensors"][outputs[0]])
            if name in _COUNTED:
                known[outputs[0]] = np.asarray(compute(*values)).astype(LETTERS[name])[()]
    return known


@dataclass
class _LoopStep:
    """One step of a loop while its operators are placed."""

    graph: EditedGraph
    body: Table
    place: str
    """The end of the names of its tensors."""
    counted: Mapping[int, Any]
    shared: dict[int, int]
    """The body's constants → tensors of the graph, for all steps."""
    tensors: dict[int, int]
    """The body's tensors → those of the graph."""
    _written: set[int] = field(default_factory=set)

    def placed(self) -> list[int]:
        """Place the step; the tensors of the graph that are the next step's inputs."""
        for operator in self.body["operators"]:
            outputs = listed(operator["outputs"])
            if all(t in self.counted for t in outputs):
                continue
            inputs = [-1 if t < 0 else self._tensor(t) for t in listed(operator["inputs"])]
            self._written.update(outputs)
            made = [self._tensor(t) for t in outputs]
            self.graph.placed.append({**operator, "inputs": np.asarray(inputs, "<i4"), "outputs": np.asarray(made, "<i4")})
        return [self._tensor(t) for t in listed(self.body["outputs"])]

    def _tensor(self, tensor: int) -> int:
        """The graph's tensor for one of the body's: a number, a constant of all steps, or what the step computes."""
        found = self.body["tensors"][tensor]
        if tensor in self.counted and tensor not in self.tensors:
            name = EditedGraph.type_name(found)
            value = np.asarray(self.counted[tensor], LETTERS[name]).reshape(listed(found.get("shape")))
            self.tensors[tensor] = self.graph.data(value, name, self._name(found))
        elif tensor not in self.tensors:
            stored = self.graph.model["buffers"][found.get("buffer") or 0].get("data")
            constant = tensor not in self._written and stored is not None and len(stored) > 0
            if not constant:
                self.tensors[tensor] = self.graph.append({**found, "name": self._name(found), "buffer": 0})
            else:
                if tensor not in self.shared:
                    self.shared[tensor] = self.graph.append(found)
                self.tensors[tensor] = self.shared[tensor]
        return self.tensors[tensor]

    def _name(self, tensor: Mapping[str, Any]) -> str:
        return f"{tensor.get('name') or 'value'} {self.place}"


def _replace(graph: EditedGraph, last: Mapping[int, int]) -> None:
    """Let readers of the loop's results read those of the last step; outputs of the graph are copies of them."""
    ends = listed(graph.subgraph["outputs"])
    for tensor, value in last.items():
        if tensor in ends:
            shape = np.asarray(graph.shape(tensor), "<i4")
            graph.place("RESHAPE", [value, graph.data(shape, "INT32", "shape")], [tensor], new_shape=shape)
    graph.gone = not graph.placed
    operators = graph.subgraph["operators"]
    for k, operator in enumerate(operators):
        inputs = listed(operator["inputs"])
        if any(t in last for t in inputs):
            operators[k] = {**operator, "inputs": np.asarray([last.get(t, t) for t in inputs], "<i4")}


def without_unread_bodies(model: Table, before: Table) -> Table:
    """The file without subgraphs that operators called before, and none does now; the others with their new numbers."""
    gone = _called(before) - _called(model)
    if not gone:
        return model
    rest = [k for k in range(len(model["subgraphs"])) if k not in gone]
    moved = {old: new for new, old in enumerate(rest)}
    graphs = [{**model["subgraphs"][k]} for k in rest]
    for graph in graphs:
        graph["operators"] = [_renumbered(operator, moved) for operator in graph["operators"]]
    signatures = model.get("signature_defs")
    if signatures is not None:
        signatures = [{**one, "subgraph_index": moved[one.get("subgraph_index") or 0]} for one in signatures]
    return without_unread_bodies({**model, "subgraphs": graphs, "signature_defs": signatures}, model)


def _called(model: Table) -> set[int]:
    """Subgraphs that operators call, those that a program runs left out."""
    entries = {0, *(one.get("subgraph_index") or 0 for one in model.get("signature_defs") or ())}
    options = (o for graph in model["subgraphs"] for operator in graph["operators"] for o in _options(operator))
    numbers = {int(value) for _, stated in options for name, value in stated.items() if REFERRING in name}
    return {number for number in numbers if 0 < number < len(model["subgraphs"])} - entries


def _options(operator: Table) -> list[tuple[str, Table]]:
    return [(name, value) for name, value in operator.items() if isinstance(value, dict)]


def _renumbered(operator: Table, moved: Mapping[int, int]) -> Table:
    changed = dict(operator)
    for name, stated in _options(operator):
        changed[name] = {key: moved.get(int(v), int(v)) if REFERRING in key else v for key, v in stated.items()}
    return changed
