"""Files that TFLite itself does not load: its kernels refuse an operator when the graph is prepared, before any delegate sees it.

Conditions of the kernels' ``Prepare`` in LiteRT 2.3.0 (``tflite/kernels/``, the file of each operator) that neither the delegate
nor NNAPI has. What makes a file wrong everywhere is an error of the reader or of an operator's check.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from nnbridge.converters.rules import Condition, first_refusal
from nnbridge.errors import Reason, Stage, Why
from nnbridge.types import RUNTIME_FEATURE_LEVEL
from nnbridge_tflite.host.kinds import WRITTEN_QUANTISATION
from nnbridge_tflite.read.graph import Graph, Operator, Tensor, TfliteSubgraph


@dataclass(frozen=True)
class PreparedOperator:
    """An operator with its tensors, as its kernel sees it when it is prepared."""

    graph: TfliteSubgraph
    operator: Operator

    def input(self, number: int) -> Tensor | None:
        """Input ``number``; None if it is omitted."""
        return self._tensor(self.operator.inputs, number)

    @property
    def inputs(self) -> list[Tensor]:
        """The inputs that are there."""
        return [self.graph.tensors[i] for i in self.operator.inputs if i >= 0]

    @property
    def output(self) -> Tensor:
        """The first output."""
        return self.graph.tensors[self.operator.outputs[0]]

    def _tensor(self, indexes: Sequence[int], number: int) -> Tensor | None:
        return self.graph.tensors[indexes[number]] if number < len(indexes) and indexes[number] >= 0 else None


Prepare = Condition[PreparedOperator]


def _parameters(tensor: Tensor) -> tuple[float, int]:
    return tensor.quantisation.scale, tensor.quantisation.zero_point


def _same_parameters(types: Sequence[str], title: str, most: int | None = None) -> Prepare:
    """Inputs of some types, the first ``most`` of them or all, have the output's scale and zero point."""

    def wrong(node: PreparedOperator) -> list[Tensor]:
        applies = not types or node.inputs[0].type.name in types
        return [one for one in node.inputs[:most] if _parameters(one) != _parameters(node.output)] if applies else []

    def found(node: PreparedOperator) -> str:
        pairs = (_parameters(wrong(node)[0]), _parameters(node.output))
        return " for ".join(f"{scale:g}, {point}" for scale, point in pairs)

    return Condition(f"{title} of the output's scale and zero point", lambda node: not wrong(node), found)


def _bias(weights_dim: int, number: int = 2, weights: int = 1) -> Prepare:
    """A bias has as many elements as the weights' dimension."""

    def pair(node: PreparedOperator) -> tuple[int, int] | None:
        bias, filter = node.input(number), node.input(weights)
        if bias is None or filter is None or weights_dim >= len(filter.shape):
            return None
        return bias.elements, filter.shape[weights_dim]

    def holds(node: PreparedOperator) -> bool:
        sizes = pair(node)
        return sizes is None or sizes[0] == sizes[1]

    def found(node: PreparedOperator) -> str:
        sizes = pair(node) or (0, 0)
        return f"{sizes[0]} for {sizes[1]} outputs"

    return Condition("a bias element for each output channel", holds, found)


def _no_zero_point(rule: str, types: Sequence[str], tensors: Callable[[PreparedOperator], Sequence[Tensor | None]]) -> Prepare:
    """Tensors of some types have only zero points of 0."""

    def points(node: PreparedOperator) -> list[int]:
        listed = (one for one in tensors(node) if one is not None and one.type.name in types)
        return [point for one in listed for point in one.quantisation.zero_points if point]

    return Condition(rule, lambda node: not points(node), lambda node: points(node)[0])


def _data(*numbers: int) -> Prepare:
    """16-bit inputs and outputs have a zero point of 0."""
    rule = "16-bit integers with a zero point of 0"
    return _no_zero_point(rule, ("INT16",), lambda node: [*map(node.input, numbers), node.output])


_WEIGHTS = _no_zero_point("8-bit weights with zero points of 0", ("INT8",), lambda node: [node.input(1)])


def _written(node: PreparedOperator) -> tuple[float, int] | None:
    """The scale and zero point that a kernel writes, where they are fixed."""
    return WRITTEN_QUANTISATION.get(node.operator.name, {}).get(node.output.type.name.lower())


def _is_written(node: PreparedOperator) -> bool:
    fixed = _written(node)
    if fixed is None or not node.output.quantisation.scales or node.inputs[0].type != node.output.type:
        return True
    scale, point = _parameters(node.output)
    return abs(scale - fixed[0]) <= fixed[0] * 1e-3 and point == fixed[1]


_MOVED = (_same_parameters(("UINT8", "INT8", "INT16"), "an input", 1), _data(0))
"""Operators that only move elements."""
_OWN_SIXTEEN: Prepare = _no_zero_point(
    "16-bit integers with a zero point of 0",
    ("INT16",),
    lambda node: [node.input(0), node.output] if node.inputs[0].type.name == "INT16" else [],
)
_REVERSED = ("FLOAT32", "INT32", "UINT8", "INT16", "INT64")
_FIXED: Prepare = Condition(
    "an output of the scale and zero point that the kernel writes",
    _is_written,
    lambda node: "{:g}, {} for {:g}, {}".format(*_parameters(node.output), *(_written(node) or (0.0, 0))),
)
_ONE_TYPE: Prepare = Condition(
    "inputs of one type", lambda node: len({one.type.name for one in node.inputs}) == 1,
    lambda node: [one.type.name for one in node.inputs], kind=Why.INPUT_TYPE,
)  # fmt: skip


CONDITIONS: Mapping[str, Sequence[Prepare]] = {
    "CONCATENATION": (_ONE_TYPE, _same_parameters(("INT8",), "inputs"), _no_zero_point(
        "16-bit inputs with a zero point of 0", ("INT16",), lambda node: node.inputs)),
    "PACK": (_ONE_TYPE, _same_parameters((), "inputs")),
    "CONV_2D": (_bias(0), _WEIGHTS, _data(0)),
    "DEPTHWISE_CONV_2D": (_bias(3), _data(0)),
    "FULLY_CONNECTED": (_bias(0), _data(0)),
    "TRANSPOSE_CONV": (_bias(0, number=3), _no_zero_point(
        "16-bit integers with a zero point of 0", ("INT16",), lambda node: [node.input(2), node.output])),
    "ADD": (_ONE_TYPE, _data(0, 1)),
    "SUB": (_ONE_TYPE, _data(0, 1)),
    "MUL": (_ONE_TYPE,),
    "SOFTMAX": (_FIXED, _OWN_SIXTEEN),
    "MIRROR_PAD": _MOVED,
    "BATCH_TO_SPACE_ND": _MOVED,
    "SPACE_TO_BATCH_ND": _MOVED,
    "EXPAND_DIMS": (_same_parameters((), "an input", 1), _data(0)),
    "UNPACK": (_same_parameters((), "an input", 1),),
    "EXP": (_data(0),),
    "LOG": (_data(0),),
    "RELU": (_data(0),),
    "RELU6": (_data(0),),
    "RELU_N1_TO_1": (_data(0),),
    "REDUCE_PROD": (_data(0),),
    "REVERSE_SEQUENCE": (Condition(
        f"an input of {', '.join(_REVERSED)}", lambda node: node.inputs[0].type.name in _REVERSED,
        lambda node: node.inputs[0].type.name, kind=Why.INPUT_TYPE),),
    "LOG_SOFTMAX": (_FIXED,),
    "TANH": (_FIXED, _data(0)),
    "LOGISTIC": (_FIXED, _data(0)),
    "L2_NORMALIZATION": (_FIXED,),
}  # fmt: skip
"""Operator → what its kernel requires when it is prepared, in its order."""


def not_loaded(graph: Graph) -> Reason | None:
    """The reason why TFLite does not load a file, as far as these conditions have it; None where they all hold."""
    return next(_refusals(graph), None)


def _refusals(graph: Graph) -> Iterator[Reason]:
    for number, subgraph in enumerate(graph.subgraphs):
        place = f" of subgraph {number}" if number else ""
        for operator in subgraph.operators:
            if not _is_whole(subgraph, operator):
                continue
            node = PreparedOperator(subgraph, operator)
            conditions = CONDITIONS.get(operator.name, ())
            label = f"{operator.label}{place}"
            reason = first_refusal(conditions, node, RUNTIME_FEATURE_LEVEL, label, Stage.LOADING)
            if reason is not None:
                yield reason


def _is_whole(graph: TfliteSubgraph, operator: Operator) -> bool:
    """True if an operator has an input and an output and all its tensors exist; the conversion refuses others."""
    known = range(len(graph.tensors))
    read = [i for i in operator.inputs if i != -1]
    return bool(read and operator.outputs) and all(i in known for i in (*read, *operator.outputs))
