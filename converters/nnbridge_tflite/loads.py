"""Conditions under which TFLite loads an operator: what its kernel requires when it is prepared, before any delegate.

The declarations in ``operators/`` list them in their kernel's order (``loads=``), as ``Prepare`` of LiteRT 2.3.0 has them
(``tflite/kernels/``, the file of each operator). Numbers of operands: inputs from 0 on, outputs from -1 down.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from nnbridge.converters.rules import Condition
from nnbridge.errors import Why
from nnbridge.records import dataclass
from nnbridge_tflite.read.graph import ELEMENT_TYPES, Operator, Tensor, TfliteSubgraph

if TYPE_CHECKING:
    from nnbridge.model import Array

OUT = -1
_INT32 = (1 << 32) - 1
"""TFLite retains this much of a zero point."""
_LAST_ACTIVATION = 5
_LAST_DIMENSION = (1 << 31) - 1
_MOST_BITS = 8 << 34
"""16 GiB: more has the memory of no phone."""
_MOST_PADDING = (1 << 15) - 1
INDEXES = ("INT32", "INT64")
REALS = ("FLOAT32", "UINT8", "INT8", "INT16")
QUANTISED = ("UINT8", "INT8", "INT16")


Result: TypeAlias = "tuple[str, tuple[int, ...] | None]"
"""The element type and the dimensions of a graph's output, None where they are not known here."""


class UnknownError(LookupError):
    """Something that is not known here: an omitted operand, or dimensions that only TFLite infers."""


@dataclass(frozen=True)
class PreparedOperator:
    """An operator with its tensors, as its kernel sees it when it is prepared."""

    graph: TfliteSubgraph
    operator: Operator
    stored: Callable[[Tensor], Array | None]
    """The numbers of a tensor that are known then; None if only a run knows them."""
    bytes_from: Callable[[Tensor, int], bytes | None]
    """So many bytes of the file from where a tensor's begin; None for what a file does not hold."""
    inferred: Mapping[int, tuple[int, ...] | None] = field(default_factory=dict)
    """Tensors whose dimensions TFLite infers, whatever the file states: these dimensions, None where they are not known here."""
    graphs: Sequence[TfliteSubgraph] = ()
    """All graphs of the file."""
    results: Mapping[int, Sequence[Result]] = field(default_factory=dict)
    """The outputs of graphs that were prepared, as they are then."""

    def at(self, number: int) -> Tensor | None:
        """Input ``number``, or an output counted from -1 down; None if there is none."""
        listed, i = (self.operator.inputs, number) if number >= 0 else (self.operator.outputs, -1 - number)
        return self._tensor(listed[i]) if i < len(listed) and listed[i] >= 0 else None

    def _tensor(self, index: int) -> Tensor:
        """A tensor with the dimensions that it gets, where they are known."""
        found, dims = self.graph.tensors[index], self.inferred.get(index)
        return found if dims is None or dims == found.shape else replace(found, shape=dims)

    def there(self, numbers: Sequence[int]) -> list[Tensor]:
        """Those of these operands that are not omitted."""
        return [tensor for number in numbers if (tensor := self.at(number)) is not None]

    @property
    def inputs(self) -> list[Tensor]:
        """The inputs that are there."""
        return [self._tensor(i) for i in self.operator.inputs if i >= 0]

    def type(self, number: int = 0) -> str:
        """The name of an operand's element type, empty if it is omitted."""
        tensor = self.at(number)
        return "" if tensor is None else tensor.type.name

    def shape(self, number: int) -> tuple[int, ...]:
        """An operand's dimensions. UnknownError if it is omitted."""
        tensor = self.at(number)
        if tensor is None:
            raise UnknownError(number)
        return self.dims(tensor)

    def dims(self, tensor: Tensor) -> tuple[int, ...]:
        """A tensor's dimensions. UnknownError for those that TFLite infers, which a file may state otherwise."""
        if tensor.index not in self.inferred:
            return tensor.shape
        inferred, array = self.inferred[tensor.index], self.stored(tensor)
        if inferred is not None:
            return inferred
        if array is None:
            raise UnknownError(tensor.label)
        return array.shape

    def known_dims(self, tensor: Tensor) -> tuple[int, ...] | None:
        """A tensor's dimensions; None where they are not known."""
        try:
            return self.dims(tensor)
        except UnknownError:
            return None

    def results_of(self, option: str) -> Sequence[Result] | None:
        """The outputs of the graph whose index an option has; None where it was not prepared."""
        return self.results.get(int(self.option(option)))

    def runs(self, option: str) -> TfliteSubgraph | None:
        """The graph whose index an option has; None if the file has no such graph."""
        number = int(self.option(option))
        return self.graphs[number] if 0 <= number < len(self.graphs) else None

    def numbers(self, number: int) -> list[int] | None:
        """The integers of a constant input, one after the other; None if it is computed or omitted."""
        tensor = self.at(number)
        array = None if tensor is None else self.stored(tensor)
        return None if array is None else [int(one) for one in np.ravel(array)]

    def words(self, number: int, dtype: str = "<i4", least: int = 0) -> list[int] | None:
        """A constant input as kernels read it that take any type for INT32, and ``least`` numbers: what is smaller is read beyond
        its end. IndexError where that is not in the file."""
        tensor, wanted = self.at(number), np.dtype(dtype)
        array = None if tensor is None else self.stored(tensor)
        if array is None or tensor is None:
            return None
        found: bytes | None = array.tobytes()
        count = max(array.size, least)
        if array.dtype.itemsize < wanted.itemsize or array.size < least:
            found = self.bytes_from(tensor, count * wanted.itemsize)
        if found is None and least:
            raise IndexError(number)
        return None if found is None else [int(one) for one in np.frombuffer(found, wanted, count)]

    @property
    def activation(self) -> int:
        """The fused activation; TFLite takes unknown ones for none."""
        stated = int(self.option("fused_activation_function"))
        return stated if 0 <= stated <= _LAST_ACTIVATION else 0

    def option(self, name: str) -> Any:
        """A builtin option, 0 where the file has none."""
        return self.operator.options.get(name) or 0


Prepare: TypeAlias = Condition[PreparedOperator]


def known_types(*options: str) -> Prepare:
    """Options that name an element type of the schema."""

    def unknown(node: PreparedOperator) -> list[str]:
        return [f"{name} {node.option(name)}" for name in options if int(node.option(name)) not in ELEMENT_TYPES]

    return requires(
        f"element types as {' and '.join(options)}", lambda node: not unknown(node), lambda node: tuple(unknown(node))
    )


def requires(
    rule: str,
    holds: Callable[[PreparedOperator], object],
    found: Callable[[PreparedOperator], object] = lambda node: ", ".join(map(str, node.inputs)),
    kind: Why = Why.OPERAND_VALUE,
) -> Prepare:
    """A condition on its own; what it cannot look at, because operands lack, is left to the conversion."""
    return Condition(rule, holds, found, kind=kind)


def named(number: int) -> str:
    """An operand in a rule."""
    return f"input {number}" if number >= 0 else "the output" if number == OUT else f"output {-1 - number}"


def _types(node: PreparedOperator, numbers: Sequence[int]) -> tuple[str, ...]:
    return tuple(tensor.type.name for tensor in node.there(numbers))


# -- element types -------------------------------------------------------------------------------------------------------------


def typed(number: int, *types: str) -> Prepare:
    """An operand of one of these element types."""
    kind = Why.INPUT_TYPE if number >= 0 else Why.OUTPUT_TYPE
    rule = f"{named(number)} of {' or '.join(types)}"
    return requires(rule, lambda node: node.type(number) in ("", *types), lambda node: node.type(number), kind)


def not_typed(number: int, *types: str) -> Prepare:
    """An operand of any element type but these."""
    rule = f"{named(number)} of a type that is not {' or '.join(types)}"
    return requires(rule, lambda node: node.type(number) not in types, lambda node: node.type(number), Why.INPUT_TYPE)


def if_known(number: int, *conditions: Prepare) -> tuple[Prepare, ...]:
    """Conditions that hold where an input is computed by the run."""

    def guarded(condition: Prepare) -> Prepare:
        def holds(node: PreparedOperator) -> object:
            tensor = node.at(number)
            return tensor is None or node.stored(tensor) is None or condition.holds(node)

        return replace(condition, holds=holds)

    return tuple(map(guarded, conditions))


def alike(*numbers: int) -> Prepare:
    """Operands of one element type."""
    kind = Why.INPUT_TYPE if min(numbers) >= 0 else Why.OUTPUT_TYPE
    rule = f"one element type for {' and '.join(map(named, numbers))}"
    return requires(rule, lambda node: len(set(_types(node, numbers))) < 2, lambda node: _types(node, numbers), kind)


ONE_TYPE = requires(
    "inputs of one type",
    lambda node: len({one.type.name for one in node.inputs}) < 2,
    lambda node: tuple(one.type.name for one in node.inputs),
    Why.INPUT_TYPE,
)
SAME = alike(0, OUT)
NOT_ACTIVATED = requires(
    "no fused activation",
    lambda node: not node.activation,
    lambda node: node.activation,
    Why.ACTIVATION,
)
ONE_SHAPE = requires("inputs of one shape", lambda node: len({node.dims(one) for one in node.inputs}) < 2, kind=Why.OPERAND_SIZE)


# -- dimensions ----------------------------------------------------------------------------------------------------------------


def ranked(number: int, least: int, most: int | None = None) -> Prepare:
    """An operand of a rank, or of one between two; ``most`` 0: of any above ``least``."""
    end = least if most is None else most or 1 << 30
    words = (
        str(least)
        if end == least
        else f"{least} at least"
        if not most
        else f"{most} at most"
        if not least
        else f"{least} to {most}"
    )
    rule = f"{named(number)} of rank {words}"

    def holds(node: PreparedOperator) -> bool:
        tensor = node.at(number)
        shape = None if tensor is None else node.known_dims(tensor)
        return shape is None or least <= len(shape) <= end

    return requires(rule, holds, lambda node: str(node.at(number)), Why.RANK)


def single(number: int, *, known: bool = False) -> Prepare:
    """An operand of one element; where it is ``known``, if only then."""

    def holds(node: PreparedOperator) -> bool:
        tensor = node.at(number)
        return tensor is None or math.prod(node.dims(tensor)) == 1 or (known and node.stored(tensor) is None)

    return requires(f"{named(number)} of one element", holds, lambda node: str(node.at(number)), Why.OPERAND_SIZE)


def do_broadcast(*shapes: tuple[int, ...]) -> bool:
    try:
        np.broadcast_shapes(*shapes)
    except ValueError:
        return False
    return True


def broadcast(*numbers: int) -> Prepare:
    """Inputs whose dimensions are equal or 1."""
    return requires(
        "inputs that broadcast",
        lambda node: do_broadcast(*(node.dims(one) for one in node.there(numbers))),
        lambda node: tuple(str(list(one.shape)) for one in node.there(numbers)),
        Why.OPERAND_SIZE,
    )


BINARY = (alike(0, 1), broadcast(0, 1))
"""What all kernels of two broadcast inputs require."""


def same_shape(*numbers: int) -> Prepare:
    """Operands of one shape."""
    return requires(
        f"one shape for {' and '.join(map(named, numbers))}",
        lambda node: len({node.dims(one) for one in node.there(numbers)}) < 2,
        lambda node: tuple(str(list(one.shape)) for one in node.there(numbers)),
        Why.OPERAND_SIZE,
    )


def fits(*specs: str, of: Callable[[PreparedOperator], Mapping[str, str]] = lambda node: {}) -> Prepare:
    """Inputs whose dimensions fit together: for each input a letter for each dimension, the same letter for the same size.

    ``*`` stands for any dimensions, "+" for more of them, "|" is between alternatives, and "=" before letters asks for as many
    elements as they say. ``of``: other letters of the first input, from the options.
    """

    def holds(node: PreparedOperator) -> bool:
        sizes, named = dict[str, int](), of(node)
        here = ((i, node.at(i), spec) for i, spec in enumerate(specs) if spec != "*")
        found = ((i, node.known_dims(one), spec) for i, one, spec in here if one is not None)
        listed = [(i, shape, spec) for i, shape, spec in found if shape is not None]
        for i, shape, spec in listed:
            spec = next((one for one in spec.split("|") if len(one.split()) == len(shape)), spec)
            letters = [named.get(letter, letter) if i == 0 else letter for letter in spec.split()]
            if spec.startswith("="):
                continue
            more = letters[-1:] == ["+"]
            if len(shape) != len(letters) and not (more and len(shape) >= len(letters) - 1):
                return False
            if any(sizes.setdefault(a, d) != d for a, d in zip(letters, shape, strict=False) if a != "+"):
                return False
        counted = ((shape, spec[1:].split()) for _, shape, spec in listed if spec.startswith("="))
        # Letters that no known dimension has say nothing.
        known = ((shape, letters) for shape, letters in counted if sizes.keys() >= {*letters})
        return all(math.prod(shape) == math.prod(sizes[one] for one in letters) for shape, letters in known)

    return requires("inputs whose dimensions fit together", holds, kind=Why.OPERAND_SIZE)


def variable(*numbers: int) -> Prepare:
    """States, which are variables of the file."""
    return requires(
        f"variables as {' and '.join(map(named, numbers))}",
        lambda node: all((one := node.at(i)) is not None and one.is_variable for i in numbers),
        lambda node: tuple(str(node.at(i)) for i in numbers if (one := node.at(i)) is None or not one.is_variable),
    )


def passing(*options: str, inputs_from: int = 0) -> Prepare:
    """Graphs of as many inputs and outputs as the operator passes, from the input ``inputs_from`` on."""

    def counts(node: PreparedOperator) -> tuple[int, int]:
        return len(node.operator.inputs) - inputs_from, len(node.operator.outputs)

    def wrong(node: PreparedOperator) -> list[str]:
        graphs = ((name, node.runs(name)) for name in options)
        found = ((name, None if one is None else (len(one.inputs), len(one.outputs))) for name, one in graphs)
        return [f"{name} {node.option(name)}: {sizes} for {counts(node)}" for name, sizes in found if sizes != counts(node)]

    return requires("graphs with the operator's numbers of inputs and outputs", lambda node: not wrong(node), wrong, Why.VARIANT)


def positive(*options: str) -> Prepare:
    """Options above 0, such as strides."""

    def values(node: PreparedOperator) -> tuple[int, ...]:
        return tuple(int(node.option(name)) for name in options)

    return requires(f"{', '.join(options)} above 0", lambda node: min(values(node)) > 0, values)


def axis_within(number: int, name: str = "axis", beyond: int = 0) -> Prepare:
    """An option that names a dimension of an operand; negative ones count from the end."""

    def holds(node: PreparedOperator) -> bool:
        rank = len(node.shape(number)) + beyond
        return -rank <= int(node.option(name)) < max(rank, 1)

    return requires(f"{name} within the dimensions of {named(number)}", holds, lambda node: f"{name} {node.option(name)}")


def constant_axes(axes: int, number: int, beyond: int = 0, most: int | None = None) -> Prepare:
    """An input whose numbers, or the first ``most`` of them, name dimensions of an operand where they are known."""

    def holds(node: PreparedOperator) -> bool:
        found = node.words(axes, "<i8" if node.type(axes) == "INT64" else "<i4", most or 0)
        rank = len(node.shape(number)) + beyond
        # Of 64 bits kernels retain 32.
        return found is None or not rank or all(-rank <= np.int64(axis).astype(np.int32) < rank for axis in found[:most])

    return requires(f"{named(axes)} that names dimensions of {named(number)}", holds, lambda node: str(node.numbers(axes)))


def rows_per_dimension(number: int, of: int, *, of_scalars: bool = True) -> Prepare:
    """A matrix of two numbers for each dimension of an operand, such as paddings; ``of_scalars``: scalars may have any."""
    return requires(
        f"{named(number)} of two numbers for each dimension of {named(of)}",
        lambda node: (of_scalars and not node.shape(of)) or node.shape(number) == (len(node.shape(of)), 2),
        lambda node: f"{node.at(number)} for {node.at(of)}",
        Why.OPERAND_SIZE,
    )


# -- quantisation --------------------------------------------------------------------------------------------------------------


def parameters(tensor: Tensor) -> tuple[float, int]:
    """The one scale and zero point; 0 and 0 for none, or one for each channel."""
    found = tensor.quantisation
    return (found.scale, found.zero_point) if len(found.scales) == 1 else (0.0, 0)


def same_parameters(types: Sequence[str] = (), most: int | None = None) -> Prepare:
    """Inputs of some types (all without), the first ``most`` of them, have the output's scale and zero point."""

    def wrong(node: PreparedOperator) -> list[tuple[Tensor, Tensor]]:
        applies = not types or node.type(0) in types
        outputs = node.there([-1 - i for i in range(len(node.operator.outputs))])
        pairs = [(one, out) for out in outputs for one in node.inputs[:most]]
        return [pair for pair in pairs if parameters(pair[0]) != parameters(pair[1])] if applies else []

    def found(node: PreparedOperator) -> str:
        return " for ".join(f"{scale:g}, {point}" for scale, point in map(parameters, wrong(node)[0]))

    title = "an input" if most == 1 else "inputs"
    return requires(f"{title} of the output's scale and zero point", lambda node: not wrong(node), found)


def no_zero_point(rule: str, types: Sequence[str], *numbers: int, beside: Sequence[str] = (), each: bool = False) -> Prepare:
    """Operands of some types have a zero point of 0; all inputs without ``numbers``. ``beside``: types of the first input.

    Kernels see the zero points of channels as one of 0, unless they look at ``each``.
    """

    def points(node: PreparedOperator) -> list[int]:
        applies = not beside or node.type(0) in beside
        listed = (one for one in (node.there(numbers) if numbers else node.inputs) if one.type.name in types)
        stated = (one.quantisation.zero_points if each else (parameters(one)[1],) for one in listed)
        return [point for points in stated for point in points if point & _INT32] if applies else []

    return requires(rule, lambda node: not points(node), lambda node: points(node)[0])


def zero_centred(data: int, *more: int) -> Prepare:
    """Beside 16-bit data, operands with a zero point of 0, the data among them."""

    def points(node: PreparedOperator) -> list[int]:
        return [parameters(one)[1] for one in node.there((data, *more))] if node.type(data) == "INT16" else []

    rule = "16-bit integers with a zero point of 0"
    return requires(rule, lambda node: not any(point & _INT32 for point in points(node)), lambda node: tuple(points(node)))


def affine(types: Sequence[str], *numbers: int, at: int = 0, loose: Sequence[str] = ()) -> Prepare:
    """Operands with scales, where the operand ``at`` is of some types. ``loose``: types that may have none at all."""

    def bare(node: PreparedOperator) -> list[int]:
        if node.type(at) not in types:
            return []
        first = node.at(at)
        if node.type(at) in loose and first is not None and not first.quantisation.scales:
            return []
        return [i for i in numbers if (one := node.at(i)) is not None and not one.quantisation.scales]

    return requires(
        f"scales of {' and '.join(map(named, numbers))} beside {' or '.join(types)}",
        lambda node: not bare(node),
        lambda node: f"none of {named(bare(node)[0])}",
        Why.QUANTISATION_TYPE,
    )


def writes(types: Mapping[str, tuple[float, int | None]], within: float) -> Prepare:
    """An output, of the input's type, with the scale and zero point that the kernel writes; None for any zero point.

    ``within``: by how much of it the scale may differ.
    """

    def fixed(node: PreparedOperator) -> tuple[float, int | None] | None:
        return types.get(node.type(OUT)) if node.type(0) == node.type(OUT) else None

    def stated(node: PreparedOperator) -> tuple[float, int]:
        out = node.at(OUT)
        return (0.0, 0) if out is None else parameters(out)

    def holds(node: PreparedOperator) -> bool:
        written, (scale, point) = fixed(node), stated(node)
        return written is None or (abs(scale - written[0]) <= written[0] * within and written[1] in (None, point))

    def found(node: PreparedOperator) -> str:
        written = fixed(node) or (0.0, None)
        return "{:g}, {} for ".format(*stated(node)) + ", ".join(f"{one:g}" for one in written if one is not None)

    return requires("an output of the scale and zero point that the kernel writes", holds, found)


# -- dimensions of outputs -----------------------------------------------------------------------------------------------------


def sized(dims: Callable[[PreparedOperator], Sequence[int] | None], most: int = 0) -> Prepare:
    """An output of these dimensions is one that TFLite counts and allocates (``BytesRequired`` in ``util.cc``).

    ``most``: as many elements.
    """

    def holds(node: PreparedOperator) -> bool:
        found, out = dims(node), node.at(OUT)
        if found is None or out is None:
            return True
        elements = math.prod(found)
        return all(0 <= d <= _LAST_DIMENSION for d in found) and elements < (most or _MOST_BITS // max(out.type.bits, 8))

    rule = "an output of no negative dimensions, which fits into memory"
    return requires(rule, holds, lambda node: str(list(dims(node) or ())), Why.OPERAND_SIZE)


Sliding: TypeAlias = tuple[int, int, int, int]
"""A dimension, and size, stride and dilation of the windows over it."""


def windowed(windows: Callable[[PreparedOperator], Iterable[Sliding] | None], *, lenient: bool = False) -> Prepare:
    """Windows over dimensions, by ``padding``: SAME adds 32767 elements at most to a side, VALID leaves no negative dimension.

    As ``ComputePaddingHeightWidthChecked`` of ``padding.h`` has it. ``lenient``: an output without elements where VALID, or a
    padding that there is not, leaves nothing.
    """

    def fits(size: int, filter: int, stride: int, dilation: int, *, same: bool) -> bool:
        extent = (filter - 1) * dilation + 1
        if not same:
            return lenient or size + stride - extent > -stride  # Division rounds towards 0.
        return ((-(-size // stride) - 1) * stride + extent - size) // 2 <= _MOST_PADDING

    def holds(node: PreparedOperator) -> bool:
        padding, found = node.option("padding"), windows(node)
        return (lenient or padding in (0, 1)) and all(fits(*one, same=padding == 0) for one in found or ())

    return requires(
        f"padding SAME of {_MOST_PADDING} elements at most on a side, or VALID and windows that the input reaches",
        holds,
        lambda node: f"padding {node.option('padding')} with " + ", ".join(f"{f} of {d}" for d, f, *_ in windows(node) or ()),
        Why.OPERAND_SIZE,
    )


_BIASES = {2: "INT32", 4: "INT64"}
# -- products with weights -----------------------------------------------------------------------------------------------------


def bias_for_each(dimension: int, number: int = 2, weights: int = 1) -> Prepare:
    """A bias has as many elements as the weights' dimension."""

    def pair(node: PreparedOperator) -> tuple[int, int] | None:
        bias, filter = node.at(number), node.at(weights)
        if bias is None or filter is None or dimension >= len(filter.shape):
            return None
        return math.prod(node.dims(bias)), node.dims(filter)[dimension]

    def holds(node: PreparedOperator) -> bool:
        sizes = pair(node)
        return sizes is None or sizes[0] == sizes[1]

    def found(node: PreparedOperator) -> str:
        sizes = pair(node) or (0, 0)
        return f"{sizes[0]} for {sizes[1]} outputs"

    return requires("a bias element for each output channel", holds, found, Why.OPERAND_SIZE)


def bias_typed(number: int, data: int, types: Mapping[str, Sequence[str]]) -> Prepare:
    """A bias of a type that fits the data's: element type of the data → those of the bias."""

    def holds(node: PreparedOperator) -> bool:
        allowed = types.get(node.type(data))
        return allowed is None or node.type(number) in ("", *allowed)

    def found(node: PreparedOperator) -> str:
        return f"{node.type(number)} beside {node.type(data)}"

    return requires("a bias of the type that goes with the input's", holds, found, Why.INPUT_TYPE)


def bias_scaled(data: int = 0, weights: int = 1, bias: int = 2, types: Sequence[str] = ("UINT8",)) -> Prepare:
    """A bias whose scale differs from input scale x weights' scale by 2 % of the output's at most (``kernel_util.cc``)."""

    def difference(node: PreparedOperator) -> float:
        tensors = [node.at(i) for i in (data, weights, bias, OUT)]
        per_channel = (one := node.at(weights)) is not None and len(one.quantisation.scales) > 1
        if node.type(data) not in types or per_channel or any(one is None for one in tensors):
            return 0.0
        of_data, of_weights, of_bias, of_out = (parameters(one)[0] for one in tensors if one is not None)
        return abs(of_data * of_weights - of_bias) / of_out if of_out else math.inf

    return requires(
        "a bias of the scale input x weights",
        lambda node: difference(node) <= 0.02,
        lambda node: f"{difference(node):g} of the output's scale beside it",
        Why.QUANTISATION_PARAMETERS,
    )


def activated(node: PreparedOperator, *, scaled: bool = False) -> bool:
    """True if the ends of the fused activation, in steps of a quantised output, are integers of 32 bits (``kernel_util.cc``).

    ``scaled``: 16-bit numbers without a scale are as they are stored, and their ends are not computed.
    """
    ends, out = {1: (0,), 2: (-1, 1), 3: (0, 6)}.get(node.activation, ()), node.at(OUT)
    if out is None or out.type.name not in QUANTISED or (node.type(0) == "FLOAT32" and not scaled):
        return True
    scale, point = parameters(out)
    if scale <= 0:
        return not ends or (scaled and out.type.name == "INT16" and not out.quantisation.scales)
    return all(abs(round(end / scale) + point) < 1 << 31 for end in ends)


ACTIVATED = requires("an activation within 32 bits of steps", activated, kind=Why.QUANTISATION_PARAMETERS)
ACTIVATED_IF_SCALED = replace(ACTIVATED, holds=lambda node: activated(node, scaled=True))


def stated_bias(number: int, data: int = 0) -> Prepare:
    """A bias of 16-bit products has the type that the option names, if it names one."""

    def holds(node: PreparedOperator) -> bool:
        stated = int(node.option("quantized_bias_type"))
        if stated not in ELEMENT_TYPES:
            return False
        if not stated or node.type(data) != "INT16" or node.type(OUT) != "INT16":
            return True
        return node.type(number) in ("", _BIASES[stated]) if stated in _BIASES else False

    return requires("the bias that quantized_bias_type names", holds, kind=Why.INPUT_TYPE)


def channelled(
    dimension: int, weights: int = 1, data: int = 0, types: Sequence[str] = QUANTISED, signed: Sequence[str] = ("INT8", "INT4")
) -> Prepare:
    """Weights beside quantised data have one scale, or one for each output channel if they are of ``signed`` types."""

    def counts(node: PreparedOperator) -> tuple[int, int] | None:
        tensor = node.at(weights)
        if tensor is None or node.type(data) not in types:
            return None
        return len(tensor.quantisation.scales), node.dims(tensor)[dimension]

    def holds(node: PreparedOperator) -> bool:
        found = counts(node)
        several = found is not None and found[0] == found[1] and node.type(data) != "UINT8" and node.type(weights) in signed
        return found is None or found[0] == 1 or several

    return requires(
        "weights of one scale, or one for each output channel",
        holds,
        lambda node: "{} scales for {} outputs".format(*(counts(node) or (0, 0))),
        Why.QUANTISATION_TYPE,
    )
