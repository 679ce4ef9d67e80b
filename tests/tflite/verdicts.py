"""Stock LiteRT's verdict on a file with the delegate library: is the interpreter created, and what does each graph hand over."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from flatbuffers import flexbuffers

from nnbridge import devices
from nnbridge.converters.delegation import GraphVerdict
from nnbridge.errors import Stage
from nnbridge.file import ModelFile
from nnbridge.plan import delegate_verdict
from nnbridge.runtime.partition_limits import TFLITE_DEFAULT
from tests.tflite.case import Case
from tests.tflite.differential import DRAWS
from tests.tflite.drawing import Case as Drawn
from tests.tflite.drawing import Tensor
from tests.tflite.drawing_graphs import beginning, joined, names
from tests.tflite.files import TfliteBuilder

STORED, COMPUTED_EARLY, GIVEN = "file", "prepared", "run"
"""Where an operand's value comes from: the file, a kernel that computes it when it is prepared, or the run."""
CREATED, REFUSED, FAILS, UNREADABLE = "created", "refused", "fails", "LiteRT does not load the file"
PERSISTENT = 5
"""The kind of memory of a tensor that a kernel computed when it was prepared (``kTfLitePersistentRo``)."""
_ONES = {0: np.float32, 2: np.int32, 4: np.int64}


@dataclass(frozen=True)
class Verdict:
    """The interpreter's outcome. ``refused``: TFLite refuses the delegate; ``fails``: the delegate fails."""

    outcome: str
    graphs: tuple[GraphVerdict, ...] = ()
    """Of the graphs that are offered, in order: their operators, and those of each partition that NNAPI gets."""
    text: str = ""
    prepared: tuple[int, ...] = ()
    """Of the main graph, the tensors that kernels computed when they were prepared."""
    shapes: tuple[tuple[int, ...], ...] = ()
    """Of the main graph, the dimensions that kernels gave to tensors."""


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
        nodes = tuple(sorted(tuple(sorted(partition.nodes)) for partition, _ in chosen))
        graphs[graph.subgraph] = GraphVerdict(graph.subgraph, graph.delegation.subgraph_name(graph.subgraph), len(plan), nodes)
        write(self, graph, plan, chosen)

    resolver = OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    try:
        plain = Interpreter(model_content=model, experimental_op_resolver_type=resolver)
        plain.allocate_tensors()
        details = sorted(plain.get_tensor_details(), key=lambda detail: int(detail["index"]))
        shapes = tuple(tuple(map(int, detail["shape"])) for detail in details)
    except (RuntimeError, ValueError) as error:
        return [Verdict(UNREADABLE, text=str(error))]
    with patch.object(Delegate, "prepare", noted), patch.object(Delegate, "_write_plans", written):
        found = [delegate.load(device, **(options or {}))]
        try:
            Interpreter(
                model_content=model, experimental_op_resolver_type=resolver, experimental_delegates=found
            ).allocate_tensors()
        except (RuntimeError, ValueError) as error:
            return [Verdict(REFUSED if all(offered) else FAILS, (), str(error), (), shapes)]
    return [Verdict(CREATED, tuple(graphs[k] for k in sorted(graphs)), "", tuple(prepared), shapes)]


def planned(path: Path, device: str = "nnapi-sample_all", options: Mapping[str, Any] | None = None) -> Verdict:
    """nnbridge's verdict on a file, without an interpreter."""
    given = dict(options or {})
    limit = given.pop("max_number_delegated_partitions", TFLITE_DEFAULT)
    found = delegate_verdict(ModelFile(path).with_(**given), [devices.device(device)], limit)
    assert found is not None
    outcome = {None: CREATED, Stage.GRAPH: REFUSED, Stage.BUILDING: FAILS}[found.stage]
    graphs = tuple(replace(graph, groups=tuple(sorted(graph.groups))) for graph in found.graphs)
    return Verdict(outcome, graphs if found.created else (), str(found.reason or ""))


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


def drawn(kind: str, seed: int, number: int, version: int, shapes: Sequence[tuple[int, ...]] = ()) -> bytes | None:
    """The file of a drawn ``operator`` or ``graph``, some of its constants from elsewhere; None for what cannot be drawn.

    ``version``: of all operators; ``shapes``: what LiteRT gives to the tensors of the same file without them.
    """
    rng = np.random.default_rng([seed, number, kind == "graph"])
    try:
        nodes = _graph(rng) if kind == "graph" else _operator(rng, number)
        for node in nodes:
            node.version = version
    except (RuntimeError, ValueError, IndexError):
        return None
    return content_of(rng, nodes, shapes)


def _operator(rng: np.random.Generator, number: int) -> list[Drawn]:
    name = sorted(DRAWS)[number % len(DRAWS)]
    node = DRAWS[name](rng, name)
    return [node]


def _graph(rng: np.random.Generator) -> list[Drawn]:
    nodes: list[Drawn] = []
    present = [beginning(rng)]
    for name in names(rng):
        for node in joined(rng, name, present) or ():
            nodes.append(node)
            present.extend(node.outputs)
    if not nodes:
        raise ValueError("no operator fits")
    return nodes


def content_of(rng: np.random.Generator, nodes: Sequence[Drawn], shapes: Sequence[tuple[int, ...]] = ()) -> bytes:
    """The bytes of a file; about one in eight constants is given by the run, about as many are computed early."""
    builder, given, indexes = TfliteBuilder(), list[int](), dict[int, int]()
    written = [id(out) for node in nodes for out in node.outputs]
    read = {id(one) for node in nodes for one in node.inputs if one is not None}
    for node in nodes:
        for one in node.inputs:
            if one is not None and id(one) not in indexes:
                indexes[id(one)] = _tensor(rng, builder, one, given)
        for one in node.outputs:
            at = len(builder.tensors)
            shape = shapes[at] if at < len(shapes) else one.shape
            # Drawn in every case, so that the file is the same with and without shapes.
            more = {"shape_signature": [-1] * len(shape)} if rng.random() < 0.1 and shape else {}
            indexes[id(one)] = builder.tensor(shape, one.type, scale=one.scale, zero_point=one.zero_point, **more)
        operands = [-1 if one is None else indexes[id(one)] for one in node.inputs]
        outs = [indexes[id(one)] for one in node.outputs]
        if rng.random() < 0.15:
            _as_body(builder, node, operands, outs)
        else:
            builder.operator(node.operator, operands, outs, node.options, node.version)
    ends = [indexes[i] for i in written if i not in read] or [indexes[written[-1]]]
    return builder.content(given, ends)


def _tensor(rng: np.random.Generator, builder: TfliteBuilder, one: Tensor, given: list[int]) -> int:
    """A tensor that an operator reads: constant, given, or computed early."""
    parameters: dict[str, Any] = {"scale": one.scale, "zero_point": one.zero_point, "axis": one.axis}
    chance = rng.random()
    if one.value is not None and chance >= 0.25:
        return builder.constant(one.value, None, **parameters)
    if one.value is not None and chance >= 0.12 and one.type in ("float32", "int32", "int64") and not np.any(one.scale):
        index = builder.tensor(one.shape, one.type)
        unit = builder.constant(np.ones((), one.type))
        builder.operator("MUL", [builder.constant(one.value), unit], [index], {"fused_activation_function": 0})
        return index
    signature = {} if not one.shape or rng.random() > 0.1 else {"shape_signature": [-1, *one.shape[1:]]}
    index = builder.tensor(one.shape, one.type, is_variable=one.variable, **parameters, **signature)
    given += [] if one.variable else [index]
    return index


def _as_body(builder: TfliteBuilder, node: Drawn, operands: Sequence[int], outs: Sequence[int]) -> None:
    """The operator as the only one of a composite's decomposition, its operands passed."""
    body = builder.beside()
    passed = [i for i in dict.fromkeys(operands) if i >= 0]
    inner = {i: _like(body, builder.tensors[i]) for i in passed}
    results = [_like(body, builder.tensors[i]) for i in outs]
    body.operator(node.operator, [inner.get(i, -1) for i in operands], results, node.options, node.version)
    number = builder.add(body, list(inner.values()), results)
    options = {"name": "drawn", "decomposition_subgraph_index": number, "version": 1, "composite_attributes": _no_attributes()}
    builder.operator("STABLEHLO_COMPOSITE", passed, outs, options)


def _no_attributes() -> Any:
    builder = flexbuffers.Builder()
    with builder.Map():
        pass
    return np.frombuffer(bytes(builder.Finish()), np.uint8)


def _like(builder: TfliteBuilder, tensor: Mapping[str, Any]) -> int:
    builder.tensors.append(
        {k: v for k, v in tensor.items() if k not in ("buffer", "is_variable")} | {"name": f"t{len(builder.tensors)}"}
    )
    return len(builder.tensors) - 1
