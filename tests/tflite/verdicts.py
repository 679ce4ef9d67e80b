"""Stock LiteRT's verdict on a file with the delegate library: is the interpreter created, and what does each graph hand over."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import numpy as np

from tests.tflite.case import Case
from tests.tflite.files import TfliteBuilder

STORED, COMPUTED_EARLY, GIVEN = "file", "prepared", "run"
"""Where an operand's value comes from: the file, a kernel that computes it when it is prepared, or the run."""
CREATED, REFUSED, FAILS, UNREADABLE = "created", "refused", "fails", "LiteRT does not load the file"
PERSISTENT = 5
"""The kind of memory of a tensor that a kernel computed when it was prepared (``kTfLitePersistentRo``)."""
_ONES = {0: np.float32, 2: np.int32, 4: np.int64}


@dataclass(frozen=True)
class GraphVerdict:
    """One graph of a file: the nodes that it has for a delegate, and each partition that NNAPI gets."""

    subgraph: int
    nodes: int
    partitions: tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Verdict:
    """The interpreter's outcome. ``refused``: TFLite refuses the delegate; ``fails``: the delegate fails."""

    outcome: str
    graphs: tuple[GraphVerdict, ...] = ()
    text: str = ""
    prepared: tuple[int, ...] = ()
    """Of the main graph, the tensors that kernels computed when they were prepared."""


def asked(model: bytes, device: str = "nnapi-sample_all", options: Mapping[str, object] | None = None) -> list[Verdict]:
    """Create an interpreter with the delegate, as a program does; for a fork, of which LiteRT may end the process."""
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    from nnbridge import delegate
    from nnbridge.delegate.delegating import Delegate

    graphs: dict[int, GraphVerdict] = {}
    prepared: list[int] = []
    offered: list[bool] = []
    prepare, write = Delegate.prepare, Delegate._write_plans

    def noted(self: Delegate, context: Any, replace: Any) -> int:
        if not offered:
            tensors = context._context.tensors
            prepared.extend(i for i in range(context._context.tensors_size) if tensors[i].allocation_type == PERSISTENT)
        offered.append(False)
        status = prepare(self, context, replace)
        offered[-1] = status == 0
        return status

    def written(self: Delegate, graph: Any, plan: Sequence[int], chosen: Any) -> None:
        graphs[graph.subgraph] = GraphVerdict(graph.subgraph, len(plan), tuple(sorted(p.nodes for p, _ in chosen)))
        write(self, graph, plan, chosen)

    resolver = OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    try:
        Interpreter(model_content=model, experimental_op_resolver_type=resolver).allocate_tensors()
    except (RuntimeError, ValueError) as error:
        return [Verdict(UNREADABLE, text=str(error))]
    with patch.object(Delegate, "prepare", noted), patch.object(Delegate, "_write_plans", written):
        found = [delegate.load(device, **(options or {}))]
        try:
            Interpreter(
                model_content=model, experimental_op_resolver_type=resolver, experimental_delegates=found
            ).allocate_tensors()
        except (RuntimeError, ValueError) as error:
            return [Verdict(REFUSED if all(offered) else FAILS, (), str(error))]
    return [Verdict(CREATED, tuple(graphs[k] for k in sorted(graphs)), "", tuple(prepared))]


def states(case: Case, type: str) -> Iterator[dict[int, str]]:
    """Every way in which a case's numbers without a scale may come: operand → where its value comes from."""
    builder = TfliteBuilder()
    case.add(builder, type)
    read = [(k, builder.tensors[i]) for k, i in enumerate(builder.operators[0]["inputs"]) if i >= 0]
    free = [(k, t) for k, t in read if t["type"] in _ONES and "quantization" not in t]
    # Data that is computed anyway is known early in one more case, together with all the rest.
    choices = [(STORED, COMPUTED_EARLY, GIVEN) if "buffer" in t else (GIVEN,) for _, t in free]
    if len([one for one in choices if len(one) > 1]) > 3:
        return
    for chosen in itertools.product(*choices):
        yield dict(zip([k for k, _ in free], chosen, strict=True))
    if free and len(free) == len(read):
        for everywhere in (STORED, COMPUTED_EARLY):
            yield dict.fromkeys([k for k, _ in free], everywhere)


def with_states(case: Case, type: str, chosen: Mapping[int, str]) -> bytes:
    """The file of a case whose operands' values come from elsewhere."""
    builder = TfliteBuilder()
    given, outputs = case.add(builder, type)
    last = builder.operators.pop()
    for k, state in chosen.items():
        index = last["inputs"][k]
        tensor = builder.tensors[index]
        if state == GIVEN:
            given = [*given, index] if tensor.pop("buffer", 0) else given
            continue
        if "buffer" not in tensor:
            shape = tuple(tensor["shape"])
            builder.buffers.append({"data": np.frombuffer(np.ones(shape, _ONES[tensor["type"]]).tobytes(), np.uint8)})
            tensor["buffer"] = len(builder.buffers) - 1
            given = [i for i in given if i != index]
        if state == COMPUTED_EARLY:
            stored = {**tensor, "name": f"{tensor['name']} stored"}
            del tensor["buffer"]
            builder.tensors.append(stored)
            one = builder.constant(np.ones((), _ONES[tensor["type"]]))
            builder.operator("MUL", [len(builder.tensors) - 2, one], [index], {"fused_activation_function": 0})
    # The operator's code was added before those of the products.
    builder.operators.append(last)
    return builder.content(given, outputs)
