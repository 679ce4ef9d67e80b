"""Rules of ONNX Runtime's NNAPI execution provider for handing an operator to NNAPI: node units, and conditions on them as data.

The provider looks at node units: a node by itself, or a group of DequantizeLinear nodes, the node that reads them and the
QuantizeLinear after it. What the provider's fused activations and ONNX Runtime's own optimiser do before that (batch
normalisation into convolutions) is what :mod:`nnbridge_onnx.passes.conversion` does here.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np

from nnbridge.converters.rules import Condition
from nnbridge.errors import Stage, Why
from nnbridge.model import Array
from nnbridge.records import dataclass
from nnbridge.releases import NEWEST, within
from nnbridge_onnx.read import graph as graphs
from nnbridge_onnx.read.graph import Dims, Graph, Node

FLOAT, UINT8 = ("FLOAT",), ("UINT8",)
FLOAT_OR_UINT8 = (*FLOAT, *UINT8)
MAX_RANK = 4
_STEP_256 = 1 / 256


@dataclass(frozen=True, slots=True)
class Io:
    """An input or output of a unit; names of its scale and zero point where it is quantised."""

    name: str
    scale: str = ""
    point: str = ""


@dataclass(frozen=True, slots=True)
class Unit:
    """A node, or a group around it, as a condition sees it."""

    node: Node
    graph: Graph
    inputs: tuple[Io, ...]
    outputs: tuple[Io, ...]
    grouped: bool
    """True for a group with DequantizeLinear and QuantizeLinear."""
    level: int
    nchw: bool
    kind: str = ""
    """The operator of com.microsoft that the provider sees, where the node is part of what it was expanded into."""

    @property
    def operator(self) -> str:
        """The operator that the provider looks up."""
        return self.kind or self.node.type

    @property
    def quantised(self) -> bool:
        """True if the unit computes on 8-bit values."""
        return bool(self.inputs and self.inputs[0].scale) or (not self.grouped and bool(self.outputs and self.outputs[0].scale))

    def type(self, i: int = 0) -> str:
        """The element type of input ``i``, empty if there is none."""
        return type_name(self.graph, self.inputs[i].name) if i < len(self.inputs) else ""

    def has(self, i: int) -> bool:
        """True if input ``i`` is not omitted."""
        return i < len(self.inputs) and bool(self.inputs[i].name)

    def constant(self, i: int) -> Array | None:
        """Input ``i`` if it is a constant."""
        return self.graph.constants.get(self.inputs[i].name) if i < len(self.inputs) else None

    def shape(self, i: int = 0) -> Dims:
        """The shape of input ``i``, which is known when conditions are checked; that of a scalar for an omitted one."""
        return (self.graph.tensors[self.inputs[i].name].shape or ()) if self.has(i) else ()

    def attribute(self, name: str, default: Any) -> Any:
        """An attribute's value."""
        return self.node.attributes.get(name, default)


def type_name(graph: Graph, name: str) -> str:
    """The element type of a value."""
    tensor = graph.tensors.get(name)
    return graphs.type_name(tensor.type if tensor is not None else 0)


UnitCondition: TypeAlias = Condition[Unit]


def condition(
    rule: str,
    holds: Callable[[Unit], object],
    found: Callable[[Unit], object] = lambda unit: unit.type(),
    below: int = 99,
    kind: Why = Why.OPERAND_VALUE,
    stage: Stage | None = None,
    says: Callable[[Unit], str] | None = None,
) -> UnitCondition:
    """A condition that must hold; the element type is the found value, unless ``found`` returns something else."""
    return Condition(rule, holds, found, below, kind, stage, says)


@dataclass(frozen=True)
class Provider:
    """The provider's conditions for accepting an operator, and for building it."""

    level: int = 1
    """First feature level."""
    types: tuple[str, ...] | None = FLOAT
    """Element types of input 0 of a unit that is not quantised; None for any."""
    conditions: tuple[UnitCondition, ...] = ()
    opset: int = 7
    """First opset."""
    grouped: bool = False
    """True if groups are passed as quantised operations."""
    copies: bool = False
    """True if it only copies: the provider does not accept one of them by itself."""
    follows: bool = False
    """True if it has no parameters of its own for UINT8 values: these come from a node that is accepted too."""
    builds: tuple[UnitCondition, ...] = ()
    """What else has to hold once it is accepted: what its builder presupposes, and what NNAPI refuses of what that adds. What
    NNAPI's validation requires of each operation is not repeated."""

    @cached_property
    def every(self) -> tuple[UnitCondition, ...]:
        """The conditions of the newest release's check, in the order of ``BaseOpBuilder::IsOpSupported``."""
        return tuple(one for one in self.of_any_release if within(NEWEST, one.since, one.until))

    @cached_property
    def of_any_release(self) -> tuple[UnitCondition, ...]:
        """The same with those of older releases."""
        return (*_common(self), *self.conditions)


def _common(rule: Provider) -> tuple[UnitCondition, ...]:
    """The conditions that every rule has."""
    types = () if rule.types is None else rule.types
    grouped = condition(
        "an operator that the provider maps between DequantizeLinear and QuantizeLinear",
        lambda u: not u.grouped or u.kind,
        lambda u: u.node.type,
        kind=Why.QUANTISATION_TYPE,
    )
    typed = condition(f"an input 0 of {' or '.join(types)}", lambda u: u.quantised or u.type() in types, kind=Why.INPUT_TYPE)
    return (
        *([] if rule.grouped else [grouped]),
        condition(f"feature level {rule.level}", lambda u: False, lambda u: u.level, rule.level, Why.FEATURE_LEVEL),
        condition(
            f"opset {rule.opset}",
            lambda u: u.node.domain or u.node.version >= rule.opset,
            lambda u: u.node.version,
            kind=Why.OPERATOR_VERSION,
        ),
        condition("inputs of known shape (see --shape)", lambda u: not _open_input(u), _open_input, kind=Why.DYNAMIC_SHAPE),
        condition("constants inside the file", lambda u: not _external(u), lambda u: f"{_external(u)} in another one"),
        *([] if rule.types is None else [typed]),
    )


def _open_input(unit: Unit) -> str:
    """An input whose dimensions are not known, with what is known about them; empty if there is none."""
    for io in unit.inputs:
        tensor = unit.graph.tensors.get(io.name)
        if io.name and (tensor is None or tensor.shape is None or any(d < 0 for d in tensor.shape)):
            return f"{None if tensor is None else tensor.shape} for {io.name}"
    return ""


def _external(unit: Unit) -> str:
    """A constant of the unit that is in another file; empty if there is none."""
    names = (name for io in unit.inputs for name in (io.name, io.scale, io.point))
    return next((name for name in names if name in unit.graph.external), "")


# -- conditions that several operators share -----------------------------------------------------------------------------


def ranks(low: int, high: int, *positions: int) -> UnitCondition:
    """Ranks of inputs, the first one unless others are named."""
    rule = f"rank {low}" if low == high else f"a rank from {low} to {high}"
    places = positions or (0,)
    return condition(
        rule,
        lambda unit: all(low <= len(unit.shape(i)) <= high for i in places),
        lambda unit: ", ".join(str(len(unit.shape(i))) for i in places),
        kind=Why.RANK,
    )


def constant_input(i: int, what: str) -> UnitCondition:
    """A constant input ``i``, if there is one."""
    kind = Why.NOT_CONSTANT
    return condition(
        f"a constant {what}", lambda u: not u.has(i) or u.constant(i) is not None, lambda u: "a computed one", kind=kind
    )


def one_of(name: str, *allowed: Any) -> UnitCondition:
    """An attribute that has one of these values; the first one is the default."""
    rule = f"{name} of {' or '.join(map(str, allowed))}"
    kind = Why.ARGUMENT
    return condition(rule, lambda u: u.attribute(name, allowed[0]) in allowed, lambda u: u.attribute(name, allowed[0]), kind=kind)


NCHW = condition("feature level 3 for the NCHW layout", lambda unit: not unit.nchw, lambda unit: unit.level, 3, Why.FEATURE_LEVEL)
CONSTANT_WEIGHTS = condition(
    "constant weights",
    lambda unit: unit.constant(1) is not None,
    lambda unit: "computed ones, or initialisers that are graph inputs too (--advice removes these from the inputs)",
    kind=Why.NOT_CONSTANT,
)
CONSTANT_BIAS = condition(
    "a constant bias", lambda u: not u.quantised or not u.has(2) or u.constant(2) is not None, kind=Why.NOT_CONSTANT
)
RANK_4 = ranks(1, MAX_RANK)


def weights_of_bytes(what: str) -> UnitCondition:
    """UINT8 data beside weights of 8 bits, signed or not, in a quantised unit."""
    return condition(
        f"UINT8 {what} and 8-bit weights",
        lambda u: not u.quantised or (u.type(0) == "UINT8" and u.type(1) in ("UINT8", "INT8")),
        lambda u: (u.type(0), u.type(1)),
        kind=Why.INPUT_TYPE,
    )


def _wrong_parameters(io: Io, unit: Unit, *, weights: bool = False, per_channel: bool = False) -> str:
    """The violation in type, scale or zero point of a quantised input or output; empty if there is none."""
    type, constants = type_name(unit.graph, io.name), unit.graph.constants
    signed = weights and type == "INT8"
    if type != "UINT8" and not signed:
        return type
    scale, point = constants.get(io.scale), constants.get(io.point)
    if scale is None or (io.point and point is None):
        return "computed parameters"
    tensor = unit.graph.tensors[io.name]
    of_rows = signed and unit.level >= 3 and per_channel and bool(tensor.shape) and (tensor.shape or (0,))[0] == scale.size
    if scale.size != 1 and not of_rows:
        return f"{scale.size} scales"
    if point is not None and signed and point.any():
        return "weights with a zero point other than 0"
    return "several zero points" if point is not None and point.size != 1 and not signed else ""


def uint8_parameters(*weights: int, per_channel: bool = False, all_inputs: bool = False) -> UnitCondition:
    """Parameters that the provider accepts; ``weights`` are inputs that may be signed (with a scale ``per_channel``)."""

    def wrong(unit: Unit) -> str:
        data = unit.inputs if all_inputs else unit.inputs[: max((0, *weights)) + 1]
        found = [
            _wrong_parameters(io, unit, weights=i in weights, per_channel=per_channel) for i, io in enumerate(data) if io.scale
        ]
        found += [_wrong_parameters(io, unit) for io in unit.outputs if io.scale]
        return next(filter(None, found), "")

    rule = "UINT8 values with one constant scale and zero point each (signed weights may have one for each channel)"
    return condition(rule, lambda unit: not unit.quantised or not wrong(unit), wrong, kind=Why.QUANTISATION_TYPE)


def parameters_of(unit: Unit, io: Io) -> tuple[float, int]:
    """Scale and zero point."""
    scale, point = unit.graph.constants.get(io.scale), unit.graph.constants.get(io.point)
    return (
        float(np.ravel(scale)[0]) if scale is not None and scale.size else 0.0,
        int(np.ravel(point)[0]) if point is not None and point.size else 0,
    )


UINT8_PAIR = condition(
    "two UINT8 operands",
    lambda u: not u.quantised or (u.type(0), u.type(1)) == ("UINT8", "UINT8"),
    lambda u: (u.type(0), u.type(1)),
    kind=Why.INPUT_TYPE,
)
SCALE_256 = condition(
    "an output of scale 1/256 and zero point 0",
    lambda u: not u.quantised or parameters_of(u, u.outputs[0]) == (_STEP_256, 0),
    lambda u: parameters_of(u, u.outputs[0]),
    kind=Why.QUANTISATION_PARAMETERS,
)
SAME_PARAMETERS = condition(
    "one scale and zero point for input and output",
    lambda u: not u.quantised or parameters_of(u, u.inputs[0]) == parameters_of(u, u.outputs[0]),
    lambda u: (parameters_of(u, u.inputs[0]), parameters_of(u, u.outputs[0])),
    kind=Why.QUANTISATION_PARAMETERS,
)
BINARY = (UINT8_PAIR, uint8_parameters(1), ranks(0, MAX_RANK, 0, 1))
SINCE_3 = Provider(3)
