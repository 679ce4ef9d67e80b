"""Questions of a running interpreter to an importer: which nodes of its graph NNAPI gets, and models of parts of the graph.

The file importer's rules decide, on the graph as the interpreter has it now: its dimensions, its groups of nodes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol, TypeAlias

from nnbridge.budget import WorkBudget
from nnbridge.converters.inspection import Mapped
from nnbridge.converters.mapping import MappingKind
from nnbridge.errors import ConversionError, NnapiError, Reason, Stage, counted
from nnbridge.model import Model
from nnbridge.records import dataclass
from nnbridge.releases import NEWEST

Dims: TypeAlias = "Sequence[tuple[int, ...]]"
"""The dimensions of a subgraph's tensors, by index."""
Place: TypeAlias = "tuple[int, int]"
"""Offset and length in a file."""
Places: TypeAlias = "Sequence[Sequence[tuple[Place | None, Place | None]]]"
"""For each subgraph where its tensors' names and constants lie."""


@dataclass(frozen=True)
class Part:
    """Some nodes of a graph as a model."""

    model: Model
    inputs: tuple[int, ...]
    """The tensor of each of the model's inputs; variables are the last ones."""
    outputs: tuple[int, ...]
    """The tensor of each of the model's outputs, likewise."""
    variables: int = 0
    """How many of the inputs, and of the outputs, are variables."""
    lasting: bool = False
    """True for a model that stays when inputs are resized: what the file leaves open is open in it."""


def whole_or_nothing(outcomes: Iterable[Mapped]) -> bool:
    """True for graphs with float16 weights: the delegate hands them over if devices accept all that it maps, else nothing.

    It reads such weights in place of the DEQUANTIZE operators before them, and undoes that where an operator is refused.
    """
    return any(one.operator == "DEQUANTIZE" and one.mapping == MappingKind.FOLDED for one in outcomes)


HALVES_RULE = "devices that accept all that the delegate maps, as it requires for float16 weights"


@dataclass(frozen=True)
class DelegateTarget:
    """The devices, level and options that a delegate compiles for."""

    feature_level: int
    """The lowest of its devices."""
    accelerated: bool = False
    """True for devices without NNAPI's CPU."""
    tflite: str = NEWEST
    """The release whose delegate it is."""


class Delegation(Protocol):
    """A file whose nodes are handed over."""

    def subgraph_name(self, subgraph: int) -> str:
        """The name that the file has for a subgraph."""

    def graphs(self) -> Sequence[int]:
        """The subgraphs that a delegate is offered, each by itself: bodies and decompositions too."""

    def stated(self, subgraph: int) -> Dims:
        """The dimensions that the file states for a subgraph's tensors."""

    def dynamic(self) -> Reason | None:
        """The reason why TFLite refuses a delegate that does not allow dynamic dimensions for the file, if it does."""

    def dynamic_operator(self) -> tuple[int, int] | None:
        """Subgraph and index of the operator that is why."""

    def weights(self, subgraph: int) -> Mapping[int, int]:
        """Tensors that are a constant in another type or form, and that constant: operators that the delegate reads through."""

    def preview(self, subgraph: int, nodes: Sequence[int]) -> Sequence[NodeGroup]:
        """TFLite's groups of nodes, in the order of their run."""

    def codes(self, subgraph: int) -> tuple[int, ...]:
        """The builtin codes of a subgraph's operators."""

    def outcomes(self, subgraph: int, dims: Dims, target: DelegateTarget) -> tuple[Mapped, ...]:
        """The outcome of each operator; what the importer refuses is left to the interpreter."""

    def declared(self, subgraph: int, dims: Dims) -> Dims:
        """Dimensions with 0 for those that the file leaves open, so that one model serves inputs that are resized."""

    def part(
        self,
        subgraph: int,
        nodes: Sequence[int],
        inputs: Sequence[int],
        outputs: Sequence[int],
        dims: Dims,
        target: DelegateTarget,
    ) -> Part:
        """A model of some operators; ConversionError if they are none that NNAPI gets."""


@dataclass(frozen=True, slots=True)
class NodeGroup:
    """Nodes that are handed over as one, the tensors that they read, and those of theirs that others read."""

    nodes: tuple[int, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


@dataclass(frozen=True)
class Decision:
    """The decision on one graph: the groups that NNAPI gets, or the operator for which it gets nothing."""

    outcomes: Mapping[int, Mapped]
    groups: tuple[tuple[NodeGroup, Part], ...] = ()
    fails: Mapped | None = None
    """The delegate takes it, and the model with it cannot be built."""


def taken(one: Mapped) -> bool:
    """True for an operator that the client takes, whatever comes of it."""
    taken_stages = (*FAILS_BUILDING, Stage.DEVICE, Stage.RUNNING)
    return one.mapping in (MappingKind.DELEGATE, MappingKind.PROVIDER) or stage_of(one) in taken_stages


FAILS_BUILDING = (Stage.BUILDER, Stage.BUILDING)
"""Stages at which the client has no model, so that the program has no interpreter or session."""


def stage_of(one: Mapped) -> Stage | None:
    """The part of a phone that refuses an operator; None for one that is not refused."""
    return one.reasons[0].stage if one.reasons and one.mapping == MappingKind.HOST else None


def decide(
    delegation: Delegation,
    subgraph: int,
    dims: Dims,
    target: DelegateTarget,
    plan: Sequence[int],
    *,
    preview: Callable[[Sequence[int]], Sequence[NodeGroup]],
    part: Callable[[NodeGroup], Part],
    supported: Callable[[Model], Sequence[bool]] | None,
    limit: int,
    log: Callable[[str], object],
) -> Decision:
    """Decide on a graph as Android's delegate does: validate nodes, build models of their groups, ask the devices, apply the
    limit.

    ``supported``: the devices' answers for each operation of a model; None where NNAPI's CPU may compute, and no device is asked.
    Groups whose model nnbridge cannot make stay with the interpreter, which ``log`` is told.
    """
    outcomes = {one.index: one for one in delegation.outcomes(subgraph, dims, target)}
    claimed = [node for node in plan if node in outcomes and taken(outcomes[node])]
    failing = {node for node in claimed if stage_of(outcomes[node]) == Stage.BUILDING}
    if failing:
        groups = preview(claimed)
        # With devices, a model of every group is built to ask them; without, of those within the limit.
        built = groups if supported is not None else _largest([(g, None) for g in groups], limit)
        numbers = (node for group, *_ in ((g, None) if isinstance(g, NodeGroup) else g for g in built) for node in group.nodes)
        first = min((node for node in numbers if node in failing), default=None)
        if first is not None:
            return Decision(outcomes, (), outcomes[first])
    nodes = [node for node in claimed if outcomes[node].mapping == MappingKind.DELEGATE]
    found = _models(preview, part, nodes, log)
    refused = {source for _, model in found for source in _refused(model.model, supported)}
    if refused:
        whole = whole_or_nothing(outcomes.values())
        found = _models(preview, part, [] if whole else [node for node in nodes if node not in refused], log)
    return Decision(outcomes, tuple(_largest(found, limit)))


def of_dims(part: Part, dims: Dims) -> Part:
    """A model whose outputs are as large as the tensors; ConversionError for one that TFLite has other dimensions for."""
    operands = (part.model.main.operands[i] for i in part.model.main.outputs)
    pairs = zip(part.outputs[: len(part.outputs) - part.variables], operands, strict=False)
    wrong = [
        f"tensor {tensor}: {list(operand.dims)} for {list(dims[tensor])}"
        for tensor, operand in pairs
        if 0 not in operand.dims and math.prod(operand.dims) != math.prod(dims[tensor])
    ]
    if wrong:
        raise ConversionError(Reason("the interpreter's dimensions", ", ".join(wrong)))
    return part


def _models(
    preview: Callable[[Sequence[int]], Sequence[NodeGroup]],
    part: Callable[[NodeGroup], Part],
    nodes: Sequence[int],
    log: Callable[[str], object],
) -> list[tuple[NodeGroup, Part]]:
    found = []
    for group in preview(nodes) if nodes else ():
        try:
            found.append((group, part(group)))
        except (ConversionError, NnapiError) as error:
            log(f"WARNING: nodes {list(group.nodes)} stay with TFLite: {error}\n")
    return found


def _refused(model: Model, supported: Callable[[Model], Sequence[bool]] | None) -> list[int]:
    """The nodes of which devices refuse an operation."""
    if supported is None:
        return []
    pairs = zip(model.main.operations, supported(model), strict=True)
    return [operation.source.index for operation, fine in pairs if not fine and operation.source is not None]


def _largest(groups: Sequence[tuple[NodeGroup, Any]], limit: int) -> list[tuple[NodeGroup, Any]]:
    """Groups within the limit (0 and below: no limit): those with the most nodes, the earlier ones where sizes are equal."""
    if not 0 < limit < len(groups):
        return list(groups)
    chosen = sorted(range(len(groups)), key=lambda k: -len(groups[k][0].nodes))[:limit]
    return [groups[k] for k in sorted(chosen)]


@dataclass(frozen=True, slots=True)
class ClientWords:
    """A client of NNAPI on a phone, and its words."""

    name: str
    runtime: str
    """What runs the rest of the file."""
    operator: str
    """The word for an operator of a file."""
    no_graph: str
    """What the program has where the runtime refuses the client for the whole file."""
    no_model: str
    """What it has where no model can be built."""
    no_run: str
    """What it has where NNAPI fails to run the model."""


CLIENTS: Mapping[str, ClientWords] = {
    MappingKind.DELEGATE: ClientWords(
        "TFLite's NNAPI delegate",
        "TFLite",
        "operator",
        "the app's interpreter is not created with it, unless it sets allow_dynamic_dimensions",
        "the app's interpreter is not created",
        "the app's invoke() fails",
    ),
    MappingKind.PROVIDER: ClientWords(
        "ONNX Runtime's NNAPI provider", "ONNX Runtime", "node", "no session", "no session", "each run fails"
    ),
}
"""Mapping → the client that maps so."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """The stage at which a phone fails, as the outcomes of a file's operators have it."""

    stage: Stage
    """``loading``, ``graph``, ``provider-building``, ``building`` or ``running``."""
    reason: Reason
    """The operator, and what it lacks; ``says``: the line in the phone's log."""
    taken: int
    """Operators that the client takes."""
    operators: int
    client: ClientWords

    @property
    def judgement(self) -> str:
        """The sentence in short; all of it where the file is not loaded."""
        client, place = self.client, " ".join(part for part in (self.reason.operation, self.reason.operand) if part)
        if self.stage is Stage.LOADING:
            return self.sentence
        if self.stage is Stage.GRAPH:
            return f"No {client.operator} runs on NNAPI: {client.runtime} refuses the delegate for this file"
        if self.stage in FAILS_BUILDING:
            who = "the provider's builder" if self.stage is Stage.BUILDER else "NNAPI"
            return f"{client.no_model[0].upper()}{client.no_model[1:]}: {who} refuses {place} when the model is built"
        return f"NNAPI's CPU fails to run {place}; a driver may run it"

    @property
    def sentence(self) -> str:
        """All of it in one sentence."""
        reason, client = self.reason, self.client
        log = f' (log: "{reason.says}")' if reason.says else ""
        place = " ".join(part for part in (reason.operation, reason.operand) if part)
        who = client.runtime if self.stage is Stage.LOADING else "its builder" if self.stage is Stage.BUILDER else "NNAPI"
        what = f"{place}: {who} requires {reason.rule}, found {reason.found}{log}"
        if self.stage is Stage.LOADING:
            return f"{client.runtime} does not load this file: {what}"
        if self.stage is Stage.GRAPH:
            return f"{client.runtime} refuses the delegate: {reason.found}{log}: {client.no_graph}"
        share = f"{client.name} takes {self.taken:,} of {counted(self.operators, client.operator)}"
        if self.stage in FAILS_BUILDING:
            return f"{share}; building fails at {what}: {client.no_model}"
        failing = f"NNAPI's CPU fails to run {what}; a driver may compute it, else {client.no_run}"
        return f"{share}; {failing}" if client is CLIENTS[MappingKind.PROVIDER] else failing


def refusal_of(outcomes: Iterable[Mapped], mapping: str = MappingKind.DELEGATE) -> Refusal | None:
    """The stage at which a phone fails with the client of a mapping: the first of all the operators' stages; None where it
    does not."""
    every = list(outcomes)
    listed = [one for one in every if one.mapping not in _NO_OPERATORS]
    client = CLIENTS.get(mapping)
    for stages in ((Stage.LOADING,), (Stage.GRAPH,), FAILS_BUILDING, (Stage.RUNNING,)) if client is not None else ():
        first = next((one for one in listed if stage_of(one) in stages), None)
        if first is None and stages == (Stage.LOADING,):
            # A runtime looks at operators before it folds them, or leaves them out.
            first = next((one for one in every if one.reasons and one.reasons[0].stage is Stage.LOADING), None)
        if first is not None and client is not None:
            stage, reason = first.reasons[0].stage, first.reasons[0]
            assert stage is not None
            placed = _required(first, first.subgraph, client.operator) if stage is Stage.RUNNING else reason
            return Refusal(stage, placed, sum(map(taken, listed)), len(listed), client)
    return None


def first_failure(outcomes: Iterable[Mapped], mapping: str) -> Reason | None:
    """The reason why the client gets no model at all: the file is not loaded, or a model cannot be built. None under other
    mappings."""
    client = CLIENTS.get(mapping)
    listed = list(outcomes)
    fatal = ((Stage.LOADING,), FAILS_BUILDING)
    first = next((one for stages in fatal for one in listed if stage_of(one) in stages), None)
    return None if client is None or first is None else _required(first, first.subgraph, client.operator)


_NO_OPERATORS = (MappingKind.FOLDED, MappingKind.DEAD)


@dataclass(frozen=True)
class GraphVerdict:
    """The nodes and partitions of one graph that NNAPI gets."""

    subgraph: int
    name: str
    operators: int
    groups: tuple[tuple[int, ...], ...] = ()
    """The operators of each partition that is handed over, by index."""


@dataclass(frozen=True)
class PhoneVerdict:
    """The verdict of a phone with TFLite's delegate on a file, before anything runs."""

    graphs: tuple[GraphVerdict, ...]
    stage: Stage | None = None
    """``graph``: TFLite refuses the delegate; ``building``: the delegate fails; None where the interpreter is created."""
    reason: Reason | None = None

    @property
    def created(self) -> bool:
        """True if the program has an interpreter with the delegate."""
        return self.stage is None

    @property
    def totals(self) -> tuple[int, int]:
        """The number of operators of all graphs, and of those that are delegated."""
        operators, delegated = (sum(counted) for counted in zip(*map(_counted, self.graphs), strict=True))
        return operators, delegated

    @property
    def counts(self) -> str:
        """Operators, graphs and partitions in words."""
        operators, delegated = self.totals
        groups = sum(len(graph.groups) for graph in self.graphs)
        place = f" in {len(self.graphs)} graphs" if len(self.graphs) > 1 else ""
        parts = f" in {groups} partition{'' if groups == 1 else 's'}" if groups else ""
        return f"{operators:,} operator{'' if operators == 1 else 's'}{place}; {delegated:,} delegated{parts}"


def _counted(graph: GraphVerdict) -> tuple[int, int]:
    return graph.operators, sum(map(len, graph.groups))


def verdict_of(
    delegation: Delegation,
    target: DelegateTarget,
    *,
    supported: Callable[[Model], Sequence[bool]] | None,
    limit: int,
    allow_dynamic_dimensions: bool = False,
    log: Callable[[str], object] = lambda text: None,
) -> PhoneVerdict:
    """The verdict of a phone on a file: each of its graphs is offered to the delegate in turn."""
    if not allow_dynamic_dimensions and (reason := delegation.dynamic()) is not None:
        graphs = [GraphVerdict(k, delegation.subgraph_name(k), len(delegation.codes(k))) for k in delegation.graphs()]
        return PhoneVerdict(tuple(graphs), Stage.GRAPH, reason)
    found, failure = [], None
    for subgraph in delegation.graphs():
        dims, count = delegation.stated(subgraph), len(delegation.codes(subgraph))

        def part(group: NodeGroup, subgraph: int = subgraph, dims: Dims = dims) -> Part:
            made = delegation.part(subgraph, group.nodes, group.inputs, group.outputs, dims, target)
            return made if allow_dynamic_dimensions else of_dims(made, dims)

        decision = decide(
            delegation,
            subgraph,
            dims,
            target,
            range(count),
            preview=lambda nodes: delegation.preview(subgraph, nodes),  # noqa: B023  # called at once
            part=part,
            supported=supported,
            limit=limit,
            log=log,
        )
        groups = tuple(group.nodes for group, _ in decision.groups)
        found.append(GraphVerdict(subgraph, delegation.subgraph_name(subgraph), count, groups))
        if failure is None and decision.fails is not None:
            failure = building_failure(decision.fails, subgraph)
    if failure is None:
        return PhoneVerdict(tuple(found))
    return PhoneVerdict(tuple(GraphVerdict(g.subgraph, g.name, g.operators) for g in found), Stage.BUILDING, failure)


def building_failure(one: Mapped, subgraph: int = 0) -> Reason:
    """The reason why no model can be built with an operator."""
    return _required(one, subgraph)


def _required(one: Mapped, subgraph: int, word: str = "operator") -> Reason:
    """An operator's first reason, with the operator's place in the file."""
    place = f" of subgraph {subgraph}" if subgraph else ""
    why = one.reasons[0]
    return replace(why, operation=f"{word} {one.index} {one.operator}{place}", found=why.found or "another")


@dataclass(frozen=True)
class InMemory:
    """The reader of a running interpreter's graph."""

    mark: tuple[int, bytes]
    """Where the format's mark lies, and what it is."""
    places: Callable[[memoryview, WorkBudget], Places | None]
    """Positions of the tensors' names and constants; None for what is not a file of the format. Decoding spends tables."""
    open: Callable[[memoryview], Delegation]
    """Read the file; the bytes after it are passed over. ConversionError for a wrong one."""
