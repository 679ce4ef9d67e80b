"""Drawn graphs beside LiteRT's reference kernels, and the operator at which a difference begins."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tests.differential import Failure, Verdict, computed, verdict_on
from tests.tflite import differential
from tests.tflite.differential import DRAWS, EXPLAINED, OPTIMISED, VERSIONS, Answer, content_of, either, evaluate, steps_apart
from tests.tflite.drawing import Case, Rng, Tensor, values
from tests.tflite.drawing_graphs import MOST_ELEMENTS, Graph, beginning, chosen_outputs, joined, names
from tests.tflite.explanations import rule

GRAPH = "GRAPH"
"""Stands for a graph among the names of operators."""
NAMES = sorted([*DRAWS, GRAPH])
OPTIMISED_DIFFERS = "LiteRT's reference kernel differs from its optimised one, which phones run"
FLOAT_STEPS = 1e-4
"""How far floats may be apart behind several operators, of the output's range."""


def _given(nodes: Sequence[Case]) -> list[Tensor]:
    """The tensors that a caller passes, in the order of the file's inputs."""
    written = {id(one) for node in nodes for one in node.outputs}
    read = {id(one): one for node in nodes for one in node.inputs if one is not None and one.value is None}
    return [one for identity, one in read.items() if identity not in written]


class _Growing:
    """A graph to which operators are joined, each computed by LiteRT at once: it states the shapes, and refuses."""

    def __init__(self, rng: Rng, versions: Sequence[int], answer: Answer) -> None:
        self._rng, self._versions, self._answer = rng, versions, answer
        self.graph = Graph()
        self.present = [beginning(rng)]
        self._feeds: dict[int, Any] = {}

    @property
    def feeds(self) -> list[Any]:
        """The values of the inputs."""
        return [self.feed(one) for one in _given(self.graph.nodes)]

    def feed(self, one: Tensor) -> Any:
        """The value of an input, the same at each call."""
        if id(one) not in self._feeds:
            self._feeds[id(one)] = values(self._rng, one.shape, one.type)
        return self._feeds[id(one)]

    def content(self, outputs: Sequence[Tensor]) -> bytes:
        """The file with these outputs."""
        return content_of(self.graph.nodes, outputs, {id(o): o.shape for node in self.graph.nodes for o in node.outputs})

    def join(self, name: str) -> None:
        """Join an operator of this name, if LiteRT computes it."""
        for node in joined(self._rng, name, self.present) or ():
            if not self._computed(node):
                return
            self.present += node.outputs

    def _computed(self, node: Case) -> bool:
        self.graph.nodes.append(node)
        for one in node.outputs:
            one.shape = one.shape or (1,)
        for node.version in self._versions:
            try:
                found = self._answer(self.content(node.outputs), self.feeds, "BUILTIN_REF")
            except RuntimeError as error:
                if "find op" in str(error):
                    continue
                break
            for one, array in zip(node.outputs, found, strict=True):
                one.shape = array.shape
            if all(0 < array.size <= MOST_ELEMENTS for array in found):
                return True
            break
        self.graph.nodes.pop()
        return False


def _close(ours: Sequence[Any], theirs: Sequence[Any]) -> list[str]:
    """The differences of each output."""
    floors = [
        FLOAT_STEPS * float(np.abs(array[np.isfinite(array)]).max(initial=0)) if array.dtype.kind == "f" else 0.0
        for array in theirs
    ]
    shaped = [a.reshape(b.shape) if b.ndim == 0 and a.size == 1 else a for a, b in zip(ours, theirs, strict=True)]
    return [steps_apart(a, b, floor)[0] for a, b, floor in zip(shaped, theirs, floors, strict=True)]


def _first(growing: _Growing, path: Path, mapping: str, answer: Answer) -> tuple[str, str]:
    """The start of a difference when every tensor is an output: the operator, and the rule that explains it, or neither."""
    nodes, feeds = growing.graph.nodes, growing.feeds
    outputs = [one for node in nodes for one in node.outputs]
    model = growing.content(outputs)
    path.write_bytes(model)
    theirs = dict(zip(map(id, outputs), answer(model, feeds, "BUILTIN_REF"), strict=True))
    try:
        found, placed = computed(path, mapping, feeds)
    except Failure as error:
        return str(error), ""
    ours = dict(zip(map(id, outputs), found, strict=True))
    given = {id(one): array for one, array in zip(_given(nodes), feeds, strict=True)}
    for node, mapped in zip(nodes, placed, strict=True):
        texts = _close([ours[id(o)] for o in node.outputs], [theirs[id(o)] for o in node.outputs])
        if not any(texts):
            continue
        read = next(one for one in node.inputs if one is not None)
        _, why = EXPLAINED.get((node.operator, str(mapped.mapping), read.type), (0, ""))
        values = [None if o is None else o.value if o.value is not None else (ours | given).get(id(o)) for o in node.inputs]
        written = [[known[id(o)] for o in node.outputs] for known in (theirs, ours)]
        why = why or rule(node, values, *written)
        read_by = {id(o): array for o, array in zip(node.inputs, values, strict=True) if o is not None and o.value is None}
        alone = content_of([node], node.outputs, {id(o): o.shape for o in node.outputs})
        others = _of_optimised(alone, list(read_by.values()), answer)
        if others and (either(*reversed(written), others) or not any(_close(written[1], others))):
            why = why or OPTIMISED_DIFFERS
        inexact = [o for o in node.inputs if o is not None and id(o) in ours and not np.array_equal(ours[id(o)], theirs[id(o)])]
        if inexact and node.outputs[0].type != "float32":
            why = why or "floats before it differ in their last digits"
        return f"{node.operator}, mapped {mapped.mapping}: {'; '.join(texts)}", why
    return "nothing differs if every tensor is an output", ""


def _of_optimised(model: bytes, feeds: Sequence[Any], answer: Answer) -> list[Any]:
    """The answers of LiteRT's optimised kernels; none if it has none."""
    try:
        return answer(model, feeds, OPTIMISED)
    except RuntimeError:
        return []


def evaluate_graph(number: int, seed: int, folder: Path, mapping: str, keep: Path | None, answer: Answer) -> Verdict:
    """Draw the graph of a number and compare."""
    rng = np.random.default_rng([seed, number, 1])
    growing, path = _Growing(rng, VERSIONS[number % 2], answer), folder / "case.tflite"
    for name in names(rng):
        growing.join(name)
    graph = growing.graph
    if not graph.nodes:
        return Verdict(number, GRAPH, "refused", "no operator fits")
    type = growing.present[0].type
    graph.outputs = chosen_outputs(rng, graph.nodes)
    feeds, model = growing.feeds, growing.content(graph.outputs)
    try:
        theirs = answer(model, feeds, "BUILTIN_REF")
    except RuntimeError as error:
        return Verdict(number, GRAPH, "refused", str(error)[:200], type)
    path.write_bytes(model)
    try:
        ours, _ = computed(path, mapping, feeds)
    except Failure as error:
        return verdict_on(number, GRAPH, "fails", f"{graph}: {error}", path, keep, type)
    texts = _close(ours, theirs) if len(ours) == len(theirs) else [f"{len(ours)} outputs for {len(theirs)}"]
    if not any(texts):
        return Verdict(number, GRAPH, "equal", "", type)
    where, why = _first(growing, folder / "whole.tflite", mapping, answer)
    optimised = [] if why else _of_optimised(model, feeds, answer)
    why = OPTIMISED_DIFFERS if optimised and not any(_close(ours, optimised)) else why
    message = why or f"{graph}\n  {texts}; first at {where}"
    return verdict_on(number, GRAPH, "explained" if why else "differs", message, path, keep, type)


def _evaluate(
    number: int, seed: int, names: Sequence[str], folder: Path, mapping: str, keep: Path | None, answer: Answer
) -> Verdict:
    """A graph, if its name is the one drawn; else an operator."""
    drawn = names[int(np.random.default_rng([seed, number]).integers(len(names)))]
    if drawn == GRAPH:
        return evaluate_graph(number, seed, folder, mapping, keep, answer)
    return evaluate(number, seed, names, folder, mapping, keep, answer)


def verdicts(
    numbers: range, seed: int, names: Sequence[str], mapping: str = "wide", keep: Path | None = None
) -> Iterator[Verdict]:
    """The verdicts on the cases of these numbers, graphs among them."""
    return differential.verdicts(numbers, seed, names, mapping, keep, _evaluate)
