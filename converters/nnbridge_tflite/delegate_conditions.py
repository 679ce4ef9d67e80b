"""What the delegate's table looks at: an operator's tensors and options, and the conditions that are made of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from nnbridge_tflite.graph import Operator, Tensor
from nnbridge_tflite.values import Values

FLOAT = ("FLOAT32",)
QUANT8 = ("UINT8", "INT8")
FLOAT_QUANT8 = (*FLOAT, *QUANT8)
FLOAT_INT32 = ("FLOAT32", "INT32")
NUMBERS = (*FLOAT_QUANT8, "INT32")
NUMBERS_HALF = (*NUMBERS, "FLOAT16")


@dataclass(frozen=True, slots=True)
class Node:
    """An operator as a condition sees it."""

    operator: Operator
    values: Values
    level: int

    def input(self, i: int) -> Tensor | None:
        """Input ``i``, or None if it is not given."""
        inputs = self.operator.inputs
        return self.values.tensors[inputs[i]] if i < len(inputs) and inputs[i] >= 0 else None

    def constant(self, i: int) -> bool:
        """True if input ``i`` is a constant."""
        tensor = self.input(i)
        return tensor is not None and self.values.constant(tensor.index) is not None

    def output(self, i: int = 0) -> Tensor:
        """An output."""
        return self.values.tensors[self.operator.outputs[i]]

    def type(self, i: int) -> str:
        """The element type of input ``i``, empty if it is not given."""
        tensor = self.input(i)
        return tensor.type.name if tensor is not None else ""

    def option(self, name: str) -> int:
        """A builtin option as a number."""
        return int(self.operator.options.get(name) or 0)


@dataclass(frozen=True, slots=True)
class Condition:
    """What must hold, from one feature level up to another; ``found`` tells what was met instead."""

    rule: str
    holds: Callable[[Node], object]
    found: Callable[[Node], object] = lambda node: node.type(0)
    below: int = 99
    """Checked below this feature level only."""


Conditions: TypeAlias = "tuple[Condition, ...]"


def no_activation(types: tuple[str, ...]) -> Condition:
    return Condition(
        f"no fused activation for {' or '.join(types)}",
        lambda node: node.type(0) not in types or node.option("fused_activation_function") == 0,
        lambda node: node.option("fused_activation_function"),
    )


def constant(i: int, what: str) -> Condition:
    return Condition(f"a constant {what}", lambda node: node.constant(i), lambda node: "computed")


def type_in(i: int, *types: str) -> Condition:
    return Condition(f"an input {i} of {' or '.join(types)}", lambda node: node.type(i) in types, lambda node: node.type(i))


def from_level(level: int, rule: str, exempt: Callable[[Node], object]) -> Condition:
    return Condition(f"feature level {level} for {rule}", exempt, lambda node: node.level, below=level)


def _hybrid(node: Node) -> bool:
    # An LSTM's first weights may be left out.
    weights = node.input(2 if "LSTM" in node.operator.name else 1)
    return node.type(0) == "FLOAT32" and weights is not None and weights.type.name in QUANT8


def _scales_restricted(node: Node) -> bool:
    data, filter, out = node.input(0), node.input(1), node.output()
    if node.type(0) != "UINT8" or data is None or filter is None:
        return True
    return data.quantisation.scale * filter.quantisation.scale < out.quantisation.scale


NO_HYBRID = Condition("float weights for float activations", lambda node: not _hybrid(node), lambda node: "8-bit weights")
NO_OLD_HYBRID = from_level(3, "8-bit weights of float activations", lambda node: not _hybrid(node))
RESTRICTED_SCALES = Condition("input scale x filter scale below the output's", _scales_restricted, below=3)
OLD_TYPES = Condition("float32 or uint8 below feature level 3", lambda node: node.type(0) in ("FLOAT32", "UINT8"), below=3)
TENSOR_OUT = Condition("an output that is not a scalar", lambda node: node.output().shape, lambda node: "a scalar")
RANK_4 = Condition(
    "inputs of rank 4 at most",
    lambda node: all(len(t.shape) <= 4 for i in (0, 1) if (t := node.input(i)) is not None),
)
NO_DILATION = from_level(
    3, "dilations", lambda node: all(node.operator.options.get(f"dilation_{a}_factor", 1) == 1 for a in "wh")
)
NO_ALIGNMENT = from_level(
    4,
    "align_corners and half_pixel_centers",
    lambda node: not node.option("align_corners") and not node.option("half_pixel_centers"),
)
ANSWERS_INT32 = Condition(
    "an int32 output", lambda node: node.output().type.name == "INT32", lambda node: node.output().type.name
)


def answers(*types: str, below: int = 99) -> Condition:
    rule = f"an output of {' or '.join(types)}"
    return Condition(rule, lambda node: node.output().type.name in types, lambda node: node.output().type.name, below)


def input_in(*types: str, below: int) -> Condition:
    rule = f"an input of {' or '.join(types)} below feature level {below}"
    return Condition(rule, lambda node: node.type(0) in types, below=below)


def input_rank(i: int, rule: str, holds: Callable[[int], bool], below: int = 99) -> Condition:
    def checked(node: Node) -> bool:
        tensor = node.input(i)
        return tensor is None or holds(len(tensor.shape))

    return Condition(rule, checked, lambda node: str(node.input(i)), below)


def scalars_constant(node: Node) -> bool:
    return all(t is None or t.shape or node.constant(i) for i in (0, 1) for t in [node.input(i)])


def symmetric_int8(node: Node) -> bool:
    data = node.input(0)
    return data is None or data.type.name != "INT8" or data.quantisation.zero_point == 0


def lstm_weights(node: Node) -> str:
    weights = node.input(2 if node.option("kernel_type") == 1 else 4)
    return weights.type.name if weights is not None else ""


def _fixed_parameters(tensor: Tensor | None, scale: float, zero_point: int) -> bool:
    return tensor is not None and (tensor.quantisation.scale, tensor.quantisation.zero_point) == (scale, zero_point)


def basic_lstm(node: Node) -> bool:
    """The basic kernel is QUANTIZED_16BIT_LSTM: 8-bit weights, constants, fixed parameters."""
    if node.option("kernel_type") != 1:
        return True
    fixed = _fixed_parameters(node.input(0), 1 / 128, 128) and _fixed_parameters(node.output(), 1 / 128, 128)
    return lstm_weights(node) == "UINT8" and fixed and node.constant(2) and node.constant(3)


def full_lstm(node: Node) -> bool:
    allowed = ("FLOAT32", "UINT8") if node.level < 4 else ("FLOAT32", "UINT8", "INT8")
    fits = node.level >= 3 or len(node.operator.inputs) != 24
    return node.option("kernel_type") == 1 or (lstm_weights(node) in allowed and fits)


def projection(node: Node) -> bool:
    return node.option("type") != 1 or (node.level >= 3 and len(node.operator.inputs) == 2)


def whole_sizes(node: Node) -> bool:
    """Every size of SPLIT_V is above 0, also the one that is left open."""
    sizes = node.values.constant(node.operator.inputs[1])
    data, axis = node.input(0), node.values.constant(node.operator.inputs[2])
    if sizes is None or axis is None or data is None or not -len(data.shape) <= int(axis.reshape(-1)[0]) < len(data.shape):
        return False
    listed = [int(size) for size in sizes.reshape(-1)]
    rest = data.shape[int(axis.reshape(-1)[0])] - sum(size for size in listed if size > 0)
    return 0 not in listed and (-1 not in listed or rest != 0)


AXIS = (type_in(1, "INT32"), constant(1, "axis"))
SIZE = constant(1, "size")
