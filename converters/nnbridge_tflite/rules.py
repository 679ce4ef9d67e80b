"""Rules of Android's TFLite delegate for handing an operator to NNAPI: versions, feature levels, types and conditions, as data.

The rules are in the operators' declarations; they state what the NNAPI delegate of TFLite checks before it accepts a node.
What NNAPI itself does not accept is not repeated there; NNAPI's own declarations have it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

from nnbridge.converters.rules import Condition as SharedCondition
from nnbridge.converters.rules import broken
from nnbridge.errors import ConversionError, Reason, Stage, Why
from nnbridge.records import dataclass
from nnbridge.releases import NEWEST, within
from nnbridge_tflite.read.graph import Operator, Tensor

if TYPE_CHECKING:
    from nnbridge_tflite.passes.values import TensorValues

FLOAT = ("FLOAT32",)
QUANT8 = ("UINT8", "INT8")
FLOAT_QUANT8 = (*FLOAT, *QUANT8)
NUMBERS = (*FLOAT_QUANT8, "INT32")
NUMBERS_HALF = (*NUMBERS, "FLOAT16")

Shape: TypeAlias = "tuple[int, ...]"


@dataclass(frozen=True, slots=True)
class OperatorView:
    """An operator with its tensors, as conditions and checks see it."""

    operator: Operator
    values: TensorValues
    level: int = 0
    accelerated: bool = False
    """True where the delegate compiles for devices without NNAPI's CPU."""

    def input(self, i: int) -> Tensor | None:
        """Input ``i``, or None if it is omitted."""
        inputs = self.operator.inputs
        return self.values.tensors[inputs[i]] if i < len(inputs) and inputs[i] >= 0 else None

    def constant(self, i: int) -> bool:
        """True if input ``i`` is a constant of the file."""
        tensor = self.input(i)
        return tensor is not None and self.values.stored(tensor.index)

    def output(self, i: int = 0) -> Tensor:
        """An output."""
        return self.values.tensors[self.operator.outputs[i]]

    def type(self, i: int) -> str:
        """The element type of input ``i``, empty if it is omitted."""
        tensor = self.input(i)
        return tensor.type.name if tensor is not None else ""

    def rank(self, i: int) -> int:
        """The rank of input ``i``, 0 if it is omitted."""
        tensor = self.input(i)
        return len(tensor.shape) if tensor is not None else 0

    def option(self, name: str) -> int:
        """A builtin option as a number."""
        return int(self.operator.options.get(name) or 0)

    def refuse(self, rule: str, found: object) -> NoReturn:
        """The file is wrong."""
        raise ConversionError(Reason(rule, str(found), self.operator.label))

    def require_ranks(self, ranks: Mapping[int, int]) -> None:
        """Ranks of inputs, as computed."""
        for i, rank in ranks.items():
            tensor = self.values.tensors[self.operator.inputs[i]]
            if len(self.values.value(tensor.index).dims) != rank:
                self.refuse(f"an input {i} of rank {rank}", f"{tensor.label} {tensor}")

    def require_weights(self, data: int, filter: int, bias: int) -> None:
        """Weights of at most 8 bits and a bias of 32, beside int16 also of 64: LiteRT refuses others, or reads them as these."""
        tensors, inputs = self.values.tensors, self.operator.inputs
        if inputs[data] < 0 or tensors[inputs[data]].type.name not in ("UINT8", "INT8", "INT16"):
            return
        names = [tensors[i].type.name if i >= 0 else "" for i in inputs]
        if names[filter] == "INT16" or (names[data] == "INT16" and names[filter] == "UINT8"):
            self.refuse("signed weights of at most 8 bits", f"{self.input(filter)}")
        allowed = ("INT32", "INT64") if names[data] == "INT16" else ("INT32",)
        if bias < len(names) and names[bias] not in ("", *allowed):
            self.refuse(f"a bias of {' or '.join(allowed).lower()} beside {names[data].lower()}", f"{self.input(bias)}")


Condition: TypeAlias = SharedCondition[OperatorView]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DelegateRule:
    """The delegate's conditions for accepting an operator."""

    version: int
    """Highest version of the operator."""
    level: int = 1
    """First feature level."""
    types: tuple[str, ...] | None = None
    """Element types of input ``of``."""
    of: int = 0
    conditions: tuple[Condition, ...] = ()
    since: str = ""
    """The first release of TFLite that maps the operator."""
    past: tuple[Past, ...] = ()
    """What older releases have in place of the above, oldest first."""

    @property
    def every(self) -> tuple[Condition, ...]:
        """Its conditions in the newest release, those on version, level and types among them."""
        return self.of_release(NEWEST)

    def of_release(self, release: str) -> tuple[Condition, ...]:
        """Its conditions in a release of TFLite."""
        return _conditions(self, release)


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """Limits of a rule up to a release; what is not stated is as later."""

    until: str
    version: int | None = None
    level: int | None = None
    types: tuple[str, ...] | None = None
    """() for any type."""

    @property
    def fields(self) -> dict[str, Any]:
        """The stated fields."""
        stated = {name: value for name in ("version", "level", "types") if (value := getattr(self, name)) is not None}
        return stated | ({"types": None} if self.types == () else {})


def refusals(
    rule: DelegateRule | str | None,
    operator: Operator,
    values: TensorValues,
    level: int,
    accelerated: bool = False,
    release: str = NEWEST,
) -> tuple[Reason, ...]:
    """Everything for which the delegate of a release leaves an operator to TFLite; empty if it accepts it."""
    if not isinstance(rule, DelegateRule):
        required = "an operator that the delegate supports"
        return (Reason(required, operator.name, operator.label, kind=Why.OPERATOR, stage=Stage.DELEGATE),)
    if not within(release, rule.since, ""):
        required = f"an operator that the delegate of TFLite {release} maps ({operator.name}: from {rule.since} on)"
        return (Reason(required, operator.name, operator.label, kind=Why.OPERATOR, stage=Stage.DELEGATE),)
    view = OperatorView(operator, values, level, accelerated)
    return tuple(broken(rule.of_release(release), view, level, operator.label, Stage.DELEGATE))


@cache
def _conditions(rule: DelegateRule, release: str) -> tuple[Condition, ...]:
    found: dict[str, Any] = {name: getattr(rule, name) for name in ("version", "level", "types")}
    for past in reversed(rule.past):
        if within(release, "", past.until):
            found |= past.fields
    conditions = (*_common(**found, of=rule.of), *rule.conditions)
    return tuple(one for one in conditions if within(release, one.since, one.until))


@cache
def _common(version: int, level: int, types: tuple[str, ...] | None, of: int) -> tuple[Condition, ...]:
    """The conditions that every rule has."""
    return (
        Condition(
            f"operator version {version} at most",
            lambda node: node.operator.version <= version,
            lambda node: node.operator.version,
            kind=Why.OPERATOR_VERSION,
        ),
        Condition(f"feature level {level}", lambda node: False, lambda node: node.level, level, Why.FEATURE_LEVEL),
        *([] if types is None else [type_in(of, *types)]),
    )


# -- conditions ----------------------------------------------------------------------------------------------------------------


def first_type(node: OperatorView) -> str:
    """The element type of the first input, which most conditions report as found."""
    return node.type(0)


def no_activation(types: tuple[str, ...]) -> Condition:
    return Condition(
        f"no fused activation for {' or '.join(types)}",
        lambda node: node.type(0) not in types or node.option("fused_activation_function") == 0,
        lambda node: node.option("fused_activation_function"),
        kind=Why.ACTIVATION,
    )


def version_at_most(version: int, exempt: Callable[[OperatorView], object]) -> Condition:
    """A highest version that some nodes may exceed; the rule's own is the highest of all."""
    return Condition(
        f"operator version {version} at most",
        lambda node: node.operator.version <= version or exempt(node),
        lambda node: node.operator.version,
        kind=Why.OPERATOR_VERSION,
    )


def constant(i: int, what: str) -> Condition:
    return Condition(f"a constant {what}", lambda node: node.constant(i), lambda node: "computed", kind=Why.NOT_CONSTANT)


def type_in(i: int, *types: str) -> Condition:
    rule = f"an input {i} of {' or '.join(types)}"
    return Condition(rule, lambda node: node.type(i) in types, lambda node: node.type(i), kind=Why.INPUT_TYPE)


def input_in(*types: str, below: int) -> Condition:
    rule = f"an input of {' or '.join(types)} below feature level {below}"
    return Condition(rule, lambda node: node.type(0) in types, first_type, below=below, kind=Why.INPUT_TYPE)


def output_in(*types: str, below: int = 99) -> Condition:
    rule = f"an output of {' or '.join(types)}"
    kind = Why.OUTPUT_TYPE
    return Condition(rule, lambda node: node.output().type.name in types, lambda node: node.output().type.name, below, kind)


def input_rank(rule: str, *ranks: int, below: int = 99) -> Condition:
    def holds(node: OperatorView) -> bool:
        return node.input(0) is None or node.rank(0) in ranks

    return Condition(rule, holds, lambda node: str(node.input(0)), below, Why.RANK)


def from_level(level: int, rule: str, exempt: Callable[[OperatorView], object]) -> Condition:
    return Condition(f"feature level {level} for {rule}", exempt, lambda node: node.level, level, Why.FEATURE_LEVEL)


def _hybrid(node: OperatorView) -> bool:
    # An LSTM's first weights may be omitted.
    weights = node.input(2 if "LSTM" in node.operator.name else 1)
    return node.type(0) == "FLOAT32" and weights is not None and weights.type.name in QUANT8


def _scales_restricted(node: OperatorView) -> bool:
    data, filter, out = node.input(0), node.input(1), node.output()
    if node.type(0) != "UINT8" or data is None or filter is None:
        return True
    return data.quantisation.scale * filter.quantisation.scale < out.quantisation.scale


NO_HYBRID = Condition(
    "float weights for float activations", lambda node: not _hybrid(node), lambda node: "8-bit weights", kind=Why.HYBRID
)
NO_OLD_HYBRID = replace(from_level(3, "8-bit weights of float activations", lambda node: not _hybrid(node)), kind=Why.HYBRID)
RESTRICTED_SCALES = Condition(
    "input scale x filter scale below the output's", _scales_restricted, first_type, 3, Why.RESTRICTED_SCALE
)
OLD_TYPES = Condition(
    "float32 or uint8 below feature level 3",
    lambda node: node.type(0) in ("FLOAT32", "UINT8"),
    first_type,
    3,
    Why.INPUT_TYPE,
)
OLD_PRODUCTS = (OLD_TYPES, RESTRICTED_SCALES)
"""Of products with weights, below feature level 3."""
OLD_FLOATS = Condition("float32 below feature level 3", lambda node: node.type(0) == "FLOAT32", first_type, 3, Why.INPUT_TYPE)
NO_SCALAR_OUT = Condition(
    "an output that is not a scalar", lambda node: node.output().shape, lambda node: "a scalar", kind=Why.RANK
)
NO_EMPTY = Condition(
    "an input with elements",
    lambda node: (data := node.input(0)) is None or 0 not in data.shape,
    lambda node: str(node.input(0)),
    kind=Why.OPERAND_SIZE,
)
MOST_4 = Condition("an input of rank 4 at most", lambda node: node.rank(0) <= 4, lambda node: str(node.input(0)), kind=Why.RANK)
RANK_4 = Condition(
    "inputs of rank 4 at most",
    lambda node: all(len(t.shape) <= 4 for i in (0, 1) if (t := node.input(i)) is not None),
    first_type,
    kind=Why.RANK,
)
