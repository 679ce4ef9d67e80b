"""The whole way from an ONNX file to a :class:`~nnbridge.model.Model`: passes, then lowering node by node, then assembly."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import partial
from typing import Any

import numpy as np

from nnbridge.budget import ConversionBudget, WorkBudget, conversion_budget
from nnbridge.converters import ConversionOptions
from nnbridge.converters.assembly import Assembly, in_file, live_steps, own_outputs
from nnbridge.converters.declaration import Lower
from nnbridge.converters.delegation import first_failure
from nnbridge.converters.draft import Draft, Step, Unmappable, Value
from nnbridge.converters.inspection import Mapped
from nnbridge.converters.mapping import MappingKind
from nnbridge.errors import ConversionError, NnapiError, Reason, Stage, Why, first_line
from nnbridge.extensions import TYPES
from nnbridge.model import Array, Model, Source
from nnbridge.records import dataclass
from nnbridge.types import FuseCode, OperationCode
from nnbridge_onnx.declaration import REGISTRY, Affine, Channels, attribute, declared
from nnbridge_onnx.host import HOST
from nnbridge_onnx.host.extension import operation_code, options_of, options_value
from nnbridge_onnx.lowerer import Lowerer
from nnbridge_onnx.operands import Operands
from nnbridge_onnx.passes import GRAPH_PASSES, Facts
from nnbridge_onnx.passes.folding import Known, fold
from nnbridge_onnx.passes.provider import without_kernel
from nnbridge_onnx.passes.qdq import QdqGroup, linear_group, sole_readers
from nnbridge_onnx.read.graph import BFLOAT16, FLOAT, FLOAT16, INT8, MESSAGES, UINT8, Graph, Node, type_name
from nnbridge_onnx.read.reader import graph_of
from nnbridge_onnx.releases import not_loaded_by


@dataclass(frozen=True)
class Chain:
    """A node together with what follows it."""

    node: Node
    """The node with the chain's result as its output, and new constants as its inputs."""
    fused: tuple[int, ...]
    """Indexes of the nodes after it that the chain stands for."""
    activation: FuseCode = FuseCode.NONE
    constants: Mapping[str, Array] = field(default_factory=dict)


class ChainFinder:
    """Finds the chains of a graph, by what is known when a node is lowered."""

    def __init__(self, graph: Graph, known: Known) -> None:
        self._known = known
        self._readers = sole_readers(graph)

    def chain(self, node: Node) -> Chain | None:
        """The chain that a node begins, None where nothing follows that it can take in."""
        definition = declared(node)
        if definition is None or node.domain or not definition.fuses_activation or len(node.outputs) != 1:
            return None
        chain = self._with_constants(Chain(node, ()))
        reader = self._readers.get(chain.node.outputs[0])
        behind = None if reader is None else declared(reader)
        if reader is not None and behind is not None and behind.activation is not None:
            code = behind.activation(reader, self._known.constants)
            if code is not None:
                node = replace(chain.node, outputs=reader.outputs)
                chain = replace(chain, node=node, activation=code, fused=(*chain.fused, reader.index))
        return chain if chain.fused else None

    def _with_constants(self, chain: Chain) -> Chain:
        """The chain with products and sums that follow in its weights."""
        node, definition = chain.node, declared(chain.node)
        product = None if definition is None else definition.product
        weights = self._weights(node)
        reader = self._readers.get(node.outputs[0])
        follows = None if reader is None else declared(reader)
        if product is None or weights is None or follows is None or follows.affine is None:
            return chain
        bias = self._bias(node, product.channels(node, weights))
        if bias is None:
            return chain
        factor, offset, last, fused = np.ones(len(bias)), bias, node, chain.fused
        with np.errstate(all="ignore"):
            while (reader := self._readers.get(last.outputs[0])) is not None:
                affine = self._affine(reader, last.outputs[0], product.axis, len(offset))
                if affine is None:
                    break
                factor = factor * affine.factor
                offset = offset * affine.factor + affine.offset
                last, fused = reader, (*fused, reader.index)
            if last is node:
                return chain
            constants = {
                f"{node.inputs[1]} of node {node.index}": product.scale(node, weights, factor).astype(weights.dtype),
                f"bias of node {node.index}": offset.astype(weights.dtype),
            }
        if not all(np.isfinite(array).all() for array in constants.values()):
            return chain
        # The bias holds Gemm's beta already.
        attributes = {**node.attributes, "beta": 1.0} if "beta" in node.attributes else node.attributes
        fusing = replace(node, inputs=(node.inputs[0], *constants), outputs=last.outputs, attributes=attributes)
        return Chain(fusing, fused, constants=constants)

    def _weights(self, node: Node) -> Array | None:
        """Constant weights: of a matrix product, a matrix."""
        array = self._known.constants.get(node.name_of(1))
        if array is None or array.dtype not in (np.float32, np.float16) or not array.size or array.ndim < 2:
            return None
        definition = declared(node)
        matrix = definition is not None and definition.product is not None and definition.product.axis == -1
        return None if matrix and array.ndim != 2 else array

    def _bias(self, node: Node, count: int) -> Array | None:
        """One number for each channel, None where the node's bias is something else."""
        if not node.name_of(2):
            return np.zeros(count)
        array = self._known.constants.get(node.inputs[2])
        if array is None or array.size not in (1, count) or array.shape[-1:] not in ((), (1,), (count,)):
            return None
        return np.broadcast_to(np.ravel(array).astype(np.float64) * float(attribute(node, "beta", 1.0)), (count,))

    def _affine(self, node: Node, name: str, axis: int, count: int) -> Affine | None:
        """The scale and offset that a node applies to each channel of its input ``name``, None if it is not a product and a
        sum."""
        definition = declared(node)
        if definition is None or definition.affine is None or len(node.results) != 1:
            return None
        return definition.affine(node, name, self._known.constants, Channels(count, axis, self._known.tensor(name).shape))


ROUNDED = frozenset([UINT8, INT8, FLOAT16, BFLOAT16])
"""Types whose results NNAPI rounds differently from ONNX Runtime, or more often."""
_ELEMENTS = 1 << 28
_BODIES, _BODIES_TIMES = 32 << 20, 8
"""Bytes of bodies that are converted, those of bodies in bodies and what they read among them: so many, or so many times the
file's constants. An operator whose body goes beyond runs on the host as it is."""


@dataclass(frozen=True, eq=False)
class Budget:
    """The most that a file's conversion computes, the bodies of its nodes among it."""

    conversion: ConversionBudget
    bodies: WorkBudget


def _budget_for(graph: Graph) -> Budget:
    held = sum(array.nbytes for array in graph.constants.values())
    bodies = WorkBudget(max(_BODIES, _BODIES_TIMES * held), "bytes of bodies", _unmappable)
    return Budget(conversion_budget(max(graph.size, held), _ELEMENTS), bodies)


def convert_proto(model: Any, options: ConversionOptions | None = None) -> tuple[Model, Graph, tuple[Mapped, ...]]:
    """Convert a ``ModelProto``: the model, the graph as it was read, and the outcome of each node."""
    options = options or ConversionOptions()
    graph = graph_of(model, options, model.graph.name or "model")
    converted, outcomes = convert_graph(graph, options, graph.name)
    return converted, graph, outcomes


def convert_graph(
    graph: Graph,
    options: ConversionOptions,
    source: str,
    caller: Source | None = None,
    budget: Budget | None = None,
    exact: bool = False,
) -> tuple[Model, tuple[Mapped, ...]]:
    """Convert a graph that was read, and report the outcome of each node. ConversionError names the file and what is wrong.

    ``exact``: NNAPI gets only what it computes as ONNX Runtime does, which float16 and 8-bit numbers are not.

    Where a phone fails to build the provider's models there is no session: what the provider takes stays with ONNX Runtime.
    ``budget`` is what is left of the file's whose body the graph is, ``caller`` the operator.
    """
    if graph.refused is None:
        graph = replace(graph, refused=not_loaded_by(options.ort, graph.opsets.get("", 0), graph.ir_version))
    try:
        facts = facts_of(graph, options)
        model, outcomes = Conversion(facts, options, caller, budget, exact=exact).run()
        failure = first_failure(outcomes, options.mapping)
        if failure is not None:
            model, outcomes = Conversion(facts, options, caller, budget, failure).run()
        return model, outcomes if options.mapping != MappingKind.PROVIDER else tuple(_with_refusals(graph, outcomes))
    except (NnapiError, ConversionError, Unmappable) as error:
        raise ConversionError(in_file(graph.refused or error.reason, source)) from error
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        if graph.refused is None:
            raise
        raise ConversionError(in_file(graph.refused, source)) from error  # Nothing here is made for such files.


def _with_refusals(graph: Graph, outcomes: Sequence[Mapped]) -> Iterator[Mapped]:
    """Outcomes with the reasons why ONNX Runtime does not load the file, those of folded nodes too: it looks at all of them."""
    nodes = {node.index: node for node in graph.nodes}
    for one in outcomes:
        gone = one.mapping in (MappingKind.FOLDED, MappingKind.DEAD)
        reason = graph.refused or (without_kernel(graph, nodes[one.index]) if gone and one.index in nodes else None)
        yield replace(one, reasons=one.reasons or (reason,)) if reason is not None else one


def facts_of(graph: Graph, options: ConversionOptions) -> Facts:
    """The facts that the passes find about a graph."""
    TYPES.register(HOST)
    facts = Facts(graph)
    for run in GRAPH_PASSES:
        facts = run(facts, options)
    return facts


@dataclass(frozen=True)
class _Form:
    """A node as it may be lowered."""

    node: Node
    lowerings: tuple[Lower, ...]
    fused: tuple[int, ...] = ()
    """Indexes of the nodes after it that the form stands for."""
    activation: FuseCode = FuseCode.NONE
    group: QdqGroup | None = None
    """The group on 8-bit values that it is."""


def _unmappable(rule: str, found: str, place: str) -> Unmappable:
    return Unmappable(Reason(rule, found, operand=place))


class Conversion:
    """One conversion of a main graph."""

    def __init__(
        self,
        facts: Facts,
        options: ConversionOptions,
        caller: Source | None = None,
        budget: Budget | None = None,
        failure: Reason | None = None,
        exact: bool = False,
    ) -> None:
        self._facts = facts
        self._failure = failure
        """Why the models of what the provider takes cannot be built."""
        self._options = options
        self._exact = exact
        self._budget = budget or _budget_for(facts.graph)
        self._draft = Draft(options.feature_level, self._budget.conversion)
        bodies, mapping = self._budget.bodies, MappingKind(options.mapping)
        self._operands = Operands(facts.graph, self._draft, mapping, facts.quantised, caller, bodies)
        self._chains = ChainFinder(facts.graph, self._operands)
        self._fused: set[int] = set()

    def run(self) -> tuple[Model, tuple[Mapped, ...]]:
        graph = self._facts.graph
        self._draft.place(len(graph.nodes), "")
        inputs = [self._operands.value(name) for name in graph.inputs]
        outcomes = []
        with np.errstate(all="ignore"):
            for node in graph.nodes:
                self._operands.begin(node)
                outcomes.append(self._place(node))
        outputs = self._outputs(inputs)
        steps = live_steps(self._draft.steps, outputs)
        return Assembly(graph.name).build(inputs, outputs, steps, self._draft.checked), tuple(outcomes)

    def known(self) -> Graph:
        """The graph with all that the conversion has found out about its values."""
        return replace(self._facts.graph, constants=self._operands.constants, tensors=self._operands.tensors)

    # -- one node -----------------------------------------------------------------------------------------------------------

    def _place(self, node: Node) -> Mapped:
        """Fold, lower in the first way that works, or hand to the host."""
        facts, mapping = self._facts, self._operands.mapping
        if node.index not in facts.live:
            return Mapped(node.index, node.type, MappingKind.DEAD)
        if node.index in self._fused:
            return Mapped(node.index, node.type, mapping)
        # Some shapes are known only once NNAPI has computed them: folding is tried again.
        if node.index in facts.folded or fold(node, self._operands):
            return Mapped(node.index, node.type, MappingKind.FOLDED)
        reasons: list[Reason] = []
        verdicts = facts.provider
        refusal = verdicts.refused.get(node.index) or self._failure or verdicts.failing.get(node.index)
        refusal = refusal or (self._inexact(node) if self._exact else None)
        if refusal is not None:
            reasons.append(refusal)
        else:
            for form in self._forms(node):
                for lower in form.lowerings:
                    refused = self._try(form, lower)
                    if refused is None:
                        self._fused.update(form.fused)
                        return Mapped(node.index, node.type, mapping, tuple(reasons))
                    reasons.append(refused)
        self._host(node)
        reasons = reasons or [Reason("an operator that NNAPI can express", node.type, kind=Why.OPERATOR)]
        # Of several forms the node itself is what a phone builds.
        return Mapped(node.index, node.type, MappingKind.HOST, tuple(sorted(reasons, key=lambda r: r.stage is Stage.OWN)))

    def _inexact(self, node: Node) -> Reason | None:
        """The reason why NNAPI does not compute a node as ONNX Runtime does: types of its values."""
        names = filter(None, (*node.inputs, *node.captured, *node.results))
        found = next((name for name in names if self._operands.tensor(name).type in ROUNDED), None)
        if found is None:
            return None
        return Reason(
            "numbers that NNAPI rounds as ONNX Runtime does", type_name(self._operands.tensor(found).type), operand=found
        )

    def _forms(self, node: Node) -> Iterator[_Form]:
        """The node as a quantised group, with what follows it, and by itself."""
        operands = self._operands
        group, linear = self._facts.groups.get(node.index), linear_group(node, operands.constants, operands.quantised)
        if linear is not None:
            group, added = linear
            self._add_constants(added)
        if group is not None and not self._exact:
            yield _Form(group.node, (_lower_group,), group.fused, group.activation, group)
        definition = declared(node)
        lowerings = () if definition is None else definition.lowerings_for(operands.mapping)
        chain = self._chains.chain(node) if lowerings else None
        if chain is not None and chain.fused[-1] not in self._facts.provider.refused:
            self._add_constants(chain.constants)
            yield _Form(chain.node, lowerings, chain.fused, chain.activation)
        yield _Form(node, lowerings)

    def _add_constants(self, added: Mapping[str, Array]) -> None:
        for name, array in added.items():
            self._operands.fold(name, array, FLOAT16 if array.dtype == np.float16 else FLOAT)

    def _try(self, form: _Form, lower: Lower) -> Reason | None:
        """Lower a node: None, or why it does not work, with nothing left."""
        mark = self._operands.mark()
        try:
            to = Lowerer(form.node, self._operands, self._options.layout, self._body, form.activation, form.group)
            lower(to)
            to.require(to.activated, "an operation that takes an activation", form.activation.name)
        except Unmappable as error:
            reason = error.reason
            if reason.stage is Stage.DEVICE and self._operands.mapping is MappingKind.PROVIDER:
                reason = replace(reason, stage=Stage.BUILDING)  # The phone's own NNAPI has no such operation.
        except (ValueError, IndexError, TypeError, ArithmeticError, KeyError) as error:
            # Attributes may hold anything; what a lowering cannot make sense of is the file's fault.
            rule, found = "operands and attributes that fit the operator", first_line(error)
            reason = Reason(rule, found, form.node.label, kind=Why.ARGUMENT)
        else:
            return None
        self._operands.restore(mark)
        return reason

    def _body(self, model: Any, caller: Source | None) -> Model:
        """The model that control flow refers to."""
        options = replace(self._options, shapes={})
        graph = graph_of(model, options, model.graph.name, checked=True)
        unknown = next((name for name in graph.outputs if graph.tensors[name].shape is None), None)
        if unknown is not None:
            raise ConversionError(Reason("results of known ranks", "one without", operand=unknown))
        return convert_graph(graph, options, graph.name, caller, self._budget)[0]

    def _host(self, node: Node) -> None:
        """Emit the node as an operation of the host extension."""
        operands = self._operands
        names = list(node.inputs) + [name for name in node.captured if name not in node.inputs]
        inputs = [operands.value(name) if name else self._draft.omitted(0) for name in names]
        outputs = [operands.declared(name) for name in node.results]
        if not outputs:
            raise ConversionError(Reason("a node with outputs", "none", node.label))
        types = {name: operands.tensor(name).type for name in names if name}
        constants = {i: operands.constants[name] for i, name in enumerate(names) if name in operands.constants}
        options = {
            **options_of(node, types),
            "inputs": names,
            "scalars": [i for i, name in enumerate(names) if name and operands.tensor(name).shape == ()],
            "empty": {str(i): list(array.shape) for i, array in constants.items() if array.size == 0 and inputs[i].omitted},
        }
        written = [operands.tensor(name).type for name in node.results]
        if not MESSAGES.isdisjoint(written):
            options["written"] = written
        unknown = next((name for name in (*types, *node.results) if operands.tensor(name).type == 0), None)
        if unknown is not None:
            options["refused"] = f"'{unknown}', {operands.tensor(unknown).instead}"
        code, step_inputs = operation_code(node.type, node.domain), (*inputs, options_value(options))
        self._draft.add(Step(code, step_inputs, tuple(outputs), node.title, MappingKind.HOST, operands.source))
        for name, value in zip(node.results, outputs, strict=True):
            operands.set(name, value)

    # -- the interface ------------------------------------------------------------------------------------------------------

    def _outputs(self, inputs: list[Value]) -> list[Value]:
        """One written value for each output, under its name."""
        outputs: list[Value] = []
        used = set(map(id, inputs))
        for name in self._facts.graph.outputs:
            self._operands.begin(self._operands.producer(name))
            value = self._operands.value(name)
            # Layouts of an output may be drafted first, so that outputs are copied one by one.
            [own] = own_outputs([value], used, partial(self._copy, name=name))
            own.name = name
            outputs.append(own)
        return outputs

    def _copy(self, value: Value, name: str) -> Value:
        copy = value.like(name=name)
        if value.dims and 0 not in value.dims and not value.extension:
            try:
                inputs, source = (value, self._draft.ints(value.dims)), self._operands.source
                self._draft.add(Step(OperationCode.RESHAPE, inputs, (copy,), f"copy {name}", MappingKind.WIDE, source))
                return copy
            except Unmappable:
                pass
        self._host(self._identity(name))
        return self._operands.value(f"{name} copy")

    def _identity(self, name: str) -> Node:
        """A node that copies a value."""
        from onnx import helper

        graph, copied = self._facts.graph, f"{name} copy"
        self._operands.describe(copied, self._operands.tensor(name))
        proto = helper.make_node("Identity", [name], [copied])
        return Node(len(graph.nodes), "Identity", "", "", graph.opsets.get("", 13), (name,), (copied,), {}, proto)


def _lower_group(to: Lowerer) -> None:
    """A group as one operation on 8-bit values; Unmappable where NNAPI cannot express it."""
    group, definition = to.group, REGISTRY[to.node.type]
    assert group is not None
    if definition.quantised is not None and (definition.quantised.moves or "Pool" in to.node.type):
        # NNAPI hands on the input's scale: one that is almost the same is another one.
        found = [to.operands.quantised.get(name) for name in (to.name(0), to.node.outputs[0])]
        scales = [one.scale for one in found if one is not None]
        close = len(scales) == 2 and scales[0] != scales[1] and math.isclose(*scales, rel_tol=1e-4)
        to.require(not close, "an output with the input's scale", scales)
    if definition.lower_quantised is not None:
        definition.lower_quantised(to)
        return
    repeated = definition.inputs[0].repeat
    to.require(not group.constants or repeated, "computed inputs", "constants")
    definition.lowerings_for(to.operands.mapping)[0](to)
