"""The whole way from an ONNX file to a :class:`~nnbridge.model.Model`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from nnbridge.converters import ConversionOptions
from nnbridge.converters.assembly import Assembly, live_steps
from nnbridge.converters.draft import Draft, Step, Unmappable, Value
from nnbridge.converters.inspection import Mapped
from nnbridge.errors import ConversionError, NnapiError, Reason
from nnbridge.extensions import TYPES
from nnbridge.model import Model
from nnbridge.types import FuseCode, OperationCode
from nnbridge_onnx import families
from nnbridge_onnx.chains import ChainFinder
from nnbridge_onnx.delegated import refusals
from nnbridge_onnx.extension import operation_code, options_value
from nnbridge_onnx.fold import fold
from nnbridge_onnx.fusing import Group, find_groups, linear_group
from nnbridge_onnx.graph import Array, Graph, Node
from nnbridge_onnx.host import HOST, options_of
from nnbridge_onnx.lower_quantised import lower_group
from nnbridge_onnx.lowering import LOWERINGS, Lower, Lowerer
from nnbridge_onnx.quantisation import find_quantisation
from nnbridge_onnx.reader import graph_of, read
from nnbridge_onnx.values import FLOAT, FLOAT16, Values

WIDE, PROVIDER, HOST_MAPPING, FOLDED, DEAD = "wide", "provider", "host", "folded", "dead"
_BUDGET = 1 << 28


def convert(path: Path, options: ConversionOptions) -> Model:
    """Convert a file. ConversionError names the file and what is wrong in it."""
    return convert_with_report(path, options)[0]


def convert_with_report(path: Path, options: ConversionOptions) -> tuple[Model, tuple[Mapped, ...]]:
    """Convert a file, and say what became of each node."""
    return _converted(read(path, options), options, str(path))


def convert_proto(model: Any, options: ConversionOptions | None = None) -> tuple[Model, Graph, tuple[Mapped, ...]]:
    """Convert a ``ModelProto``: the model, the graph as it was read, and what became of each node."""
    options = options or ConversionOptions()
    graph = graph_of(model, options, model.graph.name or "model")
    return (*_reordered(graph, options),)


def _reordered(graph: Graph, options: ConversionOptions) -> tuple[Model, Graph, tuple[Mapped, ...]]:
    model, placements = _converted(graph, options, graph.name)
    return model, graph, placements


def _converted(graph: Graph, options: ConversionOptions, source: str) -> tuple[Model, tuple[Mapped, ...]]:
    try:
        return _Conversion(graph, options).run()
    except NnapiError as error:
        raise ConversionError(_in_file(error.reason, source)) from error
    except (ConversionError, Unmappable) as error:
        raise ConversionError(_in_file(error.reason, source)) from error


def _in_file(reason: Reason, source: str) -> Reason:
    """The reason with the file's name before the place in it."""
    return replace(reason, operation=f"{source} {reason.operation}".rstrip())


@dataclass(frozen=True)
class _Form:
    """A node as it may be lowered."""

    node: Node
    lowerings: tuple[Lower, ...]
    fused: tuple[int, ...] = ()
    """Indexes of the nodes behind it that the form stands for."""
    activation: FuseCode = FuseCode.NONE
    grouped: bool = False
    """True on 8-bit values that stand for numbers."""


class _Conversion:
    """One conversion of a main graph."""

    def __init__(self, graph: Graph, options: ConversionOptions) -> None:
        TYPES.register(HOST)
        families.load()
        self._graph = graph
        self._options = options
        self._draft = Draft(options.feature_level, _BUDGET)
        self._values = Values(graph, self._draft)
        self._values.mapping = options.mapping
        self._groups: dict[int, Group] = {}
        self._folded: frozenset[int] = frozenset()
        self._fused: set[int] = set()
        self._refusals: Mapping[int, Reason] = {}
        self._placements: list[Mapped] = []

    def run(self) -> tuple[Model, tuple[Mapped, ...]]:
        self._check_names()
        needed = self._needed()
        self._prepare(needed)
        inputs = [self._values.value(name) for name in self._graph.inputs]
        for node in self._graph.nodes:
            with np.errstate(all="ignore"):
                self._placements.append(self._place(node) if node.index in needed else Mapped(node.index, node.type, DEAD))
        outputs = self._outputs(inputs)
        model = Assembly(self._graph.name).build(inputs, outputs, live_steps(self._draft.steps, outputs))
        return model, tuple(self._placements)

    def _prepare(self, needed: frozenset[int]) -> None:
        """Fold what is known, and find what nodes do together."""
        nodes = (node for node in self._graph.nodes if node.index in needed)
        with np.errstate(all="ignore"):
            self._folded = frozenset(node.index for node in nodes if fold(node, self._values))
        known = self._values.known(self._graph)
        self._values.quantised = find_quantisation(known)
        self._groups = find_groups(known, self._values.quantised)
        self._chains = ChainFinder(known, self._values)
        if self._options.mapping == PROVIDER:
            nchw = self._options.layout == "nchw"
            self._refusals = refusals(known, self._folded, self._options.feature_level, nchw=nchw)

    def _check_names(self) -> None:
        """Every value is made before it is read, and once."""
        known = {*self._graph.inputs, *self._graph.constants}
        for node in self._graph.nodes:
            for name in (*node.inputs, *node.captured):
                if name and name not in known:
                    raise ConversionError(Reason("inputs that exist before the node", name, node.label))
            for name in filter(None, node.outputs):
                if name in known:
                    raise ConversionError(Reason("outputs that are made once", name, node.label))
                known.add(name)
        missing = [name for name in self._graph.outputs if name not in known]
        if missing or not self._graph.outputs:
            raise ConversionError(Reason("outputs that are made", ", ".join(missing) or "no outputs"))

    def _needed(self) -> frozenset[int]:
        """Nodes that an output depends on."""
        wanted, needed = set(self._graph.outputs), set()
        for node in reversed(self._graph.nodes):
            if wanted.intersection(node.outputs):
                needed.add(node.index)
                wanted.update((*node.inputs, *node.captured))
        return frozenset(needed)

    # -- one node ---------------------------------------------------------------------------------------------------

    def _place(self, node: Node) -> Mapped:
        """Fold, lower in the first way that works, or hand to the host."""
        if node.index in self._fused:
            return Mapped(node.index, node.type, self._options.mapping)
        # Some shapes are known only once NNAPI has computed them: folding is tried again.
        if node.index in self._folded or fold(node, self._values):
            return Mapped(node.index, node.type, FOLDED)
        refused = self._refusals.get(node.index)
        if refused is not None:
            self._host(node)
            return Mapped(node.index, node.type, HOST_MAPPING, (refused,))
        reasons: list[Reason] = []
        for form in self._forms(node):
            for lower in form.lowerings:
                refused = self._try(form, lower)
                if refused is None:
                    self._fused.update(form.fused)
                    return Mapped(node.index, node.type, self._options.mapping, tuple(reasons))
                reasons.append(refused)
        self._host(node)
        return Mapped(
            node.index, node.type, HOST_MAPPING, tuple(reasons) or (Reason("an operator that NNAPI can express", node.type),)
        )

    def _forms(self, node: Node) -> Iterator[_Form]:
        """The node as a quantised group, with what follows it, and alone."""
        group, linear = self._groups.get(node.index), linear_group(node, self._values.constants, self._values.quantised)
        if linear is not None:
            group, added = linear
            self._add_constants(added)
        if group is not None:
            yield _Form(group.node, (partial(lower_group, group=group),), group.fused, group.activation, grouped=True)
        lowerings = tuple(LOWERINGS.get(node.type, ())) if not node.domain else ()
        chain = self._chains.chain(node) if lowerings else None
        if chain is not None and chain.fused[-1] not in self._refusals:
            self._add_constants(chain.constants)
            yield _Form(chain.node, lowerings, chain.fused, chain.activation)
        yield _Form(node, lowerings)

    def _add_constants(self, added: Mapping[str, Array]) -> None:
        for name, array in added.items():
            self._values.fold(name, array, FLOAT16 if array.dtype == np.float16 else FLOAT)

    def _try(self, form: _Form, lower: Lower) -> Reason | None:
        """Lower a node: None, or why it does not work, with nothing left behind."""
        mark = self._values.mark()
        try:
            lowerer = Lowerer(form.node, self._values, self._options.layout, self._inner, form.activation, grouped=form.grouped)
            lower(lowerer)
            lowerer.require(lowerer.activated, "an operation that takes an activation", form.activation.name)
        except Unmappable as error:
            self._values.restore(mark)
            return error.reason
        except (ValueError, IndexError, TypeError, ArithmeticError, KeyError) as error:
            # Attributes may hold anything; what a lowering cannot make sense of is the file's fault.
            self._values.restore(mark)
            return Reason("operands and attributes that fit the operator", f"{type(error).__name__}: {error}", form.node.label)
        return None

    def _inner(self, model: Any) -> Model:
        """The model that control flow refers to."""
        return convert_proto(model, replace(self._options, shapes={}))[0]

    def _host(self, node: Node) -> None:
        """Emit the node as an operation of the host extension."""
        values = self._values
        names = list(node.inputs) + [name for name in node.captured if name not in node.inputs]
        inputs = [values.value(name) if name else self._draft.omitted(0) for name in names]
        listed = [name for name in node.outputs if name]
        outputs = [values.declared(name) for name in listed]
        if not outputs:
            raise ConversionError(Reason("a node with outputs", "none", node.label))
        types = {name: values.tensor(name).type for name in names if name}
        options = options_of(node, types)
        options["inputs"] = names
        options["scalars"] = [i for i, name in enumerate(names) if name and values.tensor(name).shape == ()]
        options["empty"] = {
            str(i): list(values.constants[name].shape)
            for i, name in enumerate(names)
            if name in values.constants and values.constants[name].size == 0
        }
        unknown = [name for name in (*types, *listed) if values.tensor(name).type == 0]
        if unknown:
            options["refused"] = f"'{unknown[0]}', {values.tensor(unknown[0]).instead}"
        text = json.dumps(options, separators=(",", ":")).encode()
        code = operation_code(node.type, node.domain)
        self._draft.add(Step(code, (*inputs, options_value(text)), tuple(outputs), node.title, HOST_MAPPING))
        for name, value in zip(listed, outputs, strict=True):
            values.set(name, value)

    # -- the interface ----------------------------------------------------------------------------------------------

    def _outputs(self, inputs: list[Value]) -> list[Value]:
        """One written value for each output: inputs, constants and outputs listed twice are copied."""
        taken = set(map(id, inputs))
        outputs = []
        for name in self._graph.outputs:
            value = self._values.value(name)
            if id(value) in taken or value.constant or value.omitted:
                value = self._copy(value, name)
            value.name = name
            taken.add(id(value))
            outputs.append(value)
        return outputs

    def _copy(self, value: Value, name: str) -> Value:
        copy = value.like(name=name)
        if value.dims and 0 not in value.dims and not value.extension:
            try:
                shape = self._draft.ints(value.dims)
                self._draft.add(Step(OperationCode.RESHAPE, (value, shape), (copy,), f"copy {name}", WIDE))
                return copy
            except Unmappable:
                pass
        self._host(_identity(name, self._values, self._graph))
        return self._values.value(f"{name} copy")


def _identity(name: str, values: Values, graph: Graph) -> Node:
    """A node that copies a value."""
    from onnx import helper

    copied = f"{name} copy"
    values.describe(copied, values.tensor(name))
    proto = helper.make_node("Identity", [name], [copied])
    return Node(len(graph.nodes), "Identity", "", "", graph.opsets.get("", 13), (name,), (copied,), {}, proto)
