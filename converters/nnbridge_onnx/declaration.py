"""The declaration of an ONNX operator: one definition with everything that is known about it.

    RELU = operator(
        "Relu", 155, "X -> Y", "The larger of a number and 0.", provider=Provider(), folding=MOVED, quantised=Quantised(), ...
    )

    @RELU.lowering()
    def relu(to: Lowerer) -> None: ...

    @RELU.host_kernel
    def compute(call: HostCall) -> Sequence[Array] | None: ...

Fusion, groups on 8-bit values, folding, the provider's partition, the host extension, the documentation and the tests read the
definitions. Adding an operator touches one module of :mod:`nnbridge_onnx.operators` and a test.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np

from nnbridge.converters.declaration import AnyLower, Lower, OperatorDef, OperatorInput, OperatorOutput, Option, Registry
from nnbridge.converters.folding import Folding, elements_broadcast, elements_multiplied
from nnbridge.converters.mapping import MappingKind
from nnbridge.converters.rules import Condition
from nnbridge.errors import Why
from nnbridge.extensions import StatedKernel
from nnbridge.model import Array
from nnbridge.records import dataclass
from nnbridge.types import FuseCode
from nnbridge_onnx.read.graph import Dims, Node
from nnbridge_onnx.rules import Provider

CONTRIB = "com.microsoft"
"""The domain of ONNX Runtime's own operators."""
ML = "ai.onnx.ml"
"""The domain of ONNX's operators for trees, linear models and text."""

RUNTIME_DOMAINS = frozenset(["", "ai.onnx", ML, CONTRIB, "com.microsoft.nchwc", "com.ms.internal.nhwc", "runtime"])
"""Domains that ONNX Runtime has operators of, and that of nodes which it has loaded already."""
KNOWN_DOMAIN: Condition[Node] = Condition(
    "a library with the operator's domain (SessionOptions.register_custom_ops_library), or an operator that ONNX Runtime has",
    lambda node: node.domain in RUNTIME_DOMAINS,
    lambda node: node.domain,
    kind=Why.OPERATOR,
    says=lambda node: f"{node.domain}:{node.type}(-1) is not a registered function/op",
)

NO_BUILDER = "an operator that the provider maps"
"""Why ONNX Runtime's NNAPI provider never accepts an operator: it has no builder for it."""

MOVED = Folding(lambda *arrays: sum(array.size * max(array.ndim, 1) for array in arrays))
"""Folding of operators whose results are no larger than their inputs, for each axis that NonZero lists."""
BROADCAST = Folding(elements_broadcast)
"""Folding of operators whose results are as large as their inputs broadcast."""
MULTIPLIED = Folding(elements_multiplied)
"""Folding of operators whose results and whose work are no larger than their inputs multiplied."""


@dataclass(frozen=True, slots=True)
class Quantised:
    """An operator between DequantizeLinear and QuantizeLinear: it becomes one operation on 8-bit values."""

    data: int = 1
    """The number of first inputs that hold data; 0 for all."""
    activation: bool = False
    """True if Relu or Clip after it belongs to the group."""
    moves: bool = False
    """True if it only moves 8-bit values; else it computes on what they stand for."""


@dataclass(frozen=True)
class Affine:
    """``x * factor + offset`` for each channel, in float64."""

    factor: Array
    offset: Array


@dataclass(frozen=True, slots=True)
class Product:
    """A convolution or matrix product, whose weights and bias take in an affine operator after it."""

    axis: int
    """The channels' axis of the result."""
    channels: Callable[[Node, Array], int]
    """The number of channels, by the weights."""
    scale: Callable[[Node, Array, Array], Array]
    """The weights with each channel multiplied by a factor."""


@dataclass(frozen=True, slots=True)
class QuantisedIo:
    """Positions of a quantised operator's inputs: (value, scale, zero point), and the output's scale and zero point."""

    inputs: tuple[tuple[int, ...], ...]
    output: tuple[int, int] | None = None
    computes: str = ""
    """The float operator that it computes, where it is one operation on 8-bit values."""


@dataclass(frozen=True, slots=True)
class Channels:
    """The channels of a product's result."""

    count: int
    axis: int
    shape: Dims | None
    """The shape of the result."""

    def numbers(self, array: Array) -> Array | None:
        """An array that broadcasts against the result as one number for each channel; None if it varies along other axes."""
        if self.shape is None or array.ndim > len(self.shape) or array.dtype not in (np.float32, np.float16):
            return None
        shape, axis = (1,) * (len(self.shape) - array.ndim) + array.shape, self.axis % len(self.shape)
        if any(d != 1 for i, d in enumerate(shape) if i != axis) or shape[axis] not in (1, self.count):
            return None
        return np.broadcast_to(array.astype(np.float64).reshape(-1), (self.count,))


AffineOf: TypeAlias = "Callable[[Node, str, Mapping[str, Array], Channels], Affine | None]"
"""From a node, the name of the input that it scales, constants, and the channels."""
ActivationOf: TypeAlias = "Callable[[Node, Mapping[str, Array]], FuseCode | None]"


@dataclass(eq=False, kw_only=True)
class OnnxOperator(OperatorDef):
    """An operator of ONNX's own domain or of com.microsoft."""

    type: str
    """Its name in its domain; ``name`` has the domain before it."""
    number: int
    """The number of its operation in the host extension, which saved models hold; 0 for none of its own."""
    domain: str = ""
    loads: tuple[Condition[Node], ...] = ()
    """What ONNX Runtime requires to load a file with it."""
    provider: Provider | str = NO_BUILDER
    """When ONNX Runtime's NNAPI provider accepts it, or why it never does."""
    quantised: Quantised | None = None
    quantised_io: QuantisedIo | None = None
    keeps_quantisation: bool = False
    """True if output 0 has the scale and zero point of input 0."""
    fuses_activation: bool = False
    """True if its NNAPI operation takes an activation."""
    product: Product | None = None
    affine: AffineOf | None = None
    """What it does to each channel, for operators that go into the product before them."""
    activation: ActivationOf | None = None
    """The activation that it is, for operators that go into the operation before them."""
    bounded: bool = False
    """True if its results are finite whatever it reads."""
    fold: Callable[..., bool] | None = None
    """From a node and what is known of its graph (:mod:`nnbridge_onnx.passes.folding`): folds it where not all of its
    inputs have to be known; returns True if it is done."""
    lower_quantised: Callable[..., None] | None = None
    """The lowering of a group on 8-bit values, where the first lowering does not serve."""
    expand: Callable[..., None] | None = None
    """From an expansion (:mod:`nnbridge_onnx.passes.contrib`): writes the node out in ONNX's own operators (com.microsoft)."""

    preparing: Callable[..., StatedKernel | None] | None = None
    """Makes a host kernel that says what it computes of the node, its operands' names, inputs and outputs, and the function that
    runs it; None for forms that have none."""

    built: Lower | None = None
    """What the provider's builder adds, where the first lowering adds something else."""

    def provider_lowering(self, lower: AnyLower) -> AnyLower:
        """Decorator: the operations that the provider's builder adds, by its own choice of them."""
        self.built = lower
        return lower

    def lowerings_for(self, mapping: MappingKind) -> tuple[Lower, ...]:
        """The lowerings that are tried: under the provider's mapping what its builder adds."""
        if mapping is MappingKind.PROVIDER and (self.built or self.lowerings):
            return (self.built or self.lowerings[0].lower,)
        return tuple(one.lower for one in self.lowerings)

    def quantised_lowering(self, lower: AnyLower) -> AnyLower:
        """Decorator: the lowering of a group on 8-bit values."""
        self.lower_quantised = lower
        return lower

    def value(self, attributes: Mapping[str, Any], name: str, default: Any = None) -> Any:
        """An attribute's value: the file's, else the declared default, else ``default``."""
        if name in attributes:
            return attributes[name]
        declared = self.option(name)
        return default if declared is None or declared.default is None else declared.default


REGISTRY: Registry[OnnxOperator] = Registry("nnbridge_onnx.operators")


def operator(name: str, number: int, signature: str, summary: str, *, domain: str = "", **facts: Any) -> OnnxOperator:
    """Declare an operator.

    ``signature`` lists inputs and outputs, ``X W B? -> Y``: ``?`` marks optional ones, ``*`` any number, ``+`` at least one,
    ``!`` before that inputs whose values decide dimensions of the outputs.
    """
    inputs, _, outputs = signature.partition("->")
    return REGISTRY.add(
        OnnxOperator(
            name=f"{domain}.{name}" if domain else name,
            type=name,
            number=number,
            domain=domain,
            summary=summary,
            inputs=tuple(
                OperatorInput(word.rstrip("!?*+"), optional=word[-1] in "?*", repeat=word[-1] in "*+", decides_shape="!" in word)
                for word in inputs.split()
            ),
            outputs=tuple(
                OperatorOutput(word.rstrip("?*+"), optional=word[-1] in "?*", repeat=word[-1] in "*+") for word in outputs.split()
            ),
            **facts,
        )
    )


def declared(node: Node) -> OnnxOperator | None:
    """The definition of a node's operator."""
    return REGISTRY.get(f"{node.domain}.{node.type}" if node.domain else node.type)


def attribute(node: Node, name: str, default: Any = None) -> Any:
    """A node's attribute: the file's value, else the declared default, else ``default``."""
    found = declared(node)
    return node.attributes.get(name, default) if found is None else found.value(node.attributes, name, default)


def by_shape(array: Array, elements: int = 1) -> float:
    """So many elements times the product of a shape."""
    return elements * float(np.prod([int(v) for v in np.ravel(array)], dtype=object))


AUTO_PAD = Option("auto_pad", "NOTSET", "how paddings are found", choices=("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"))
WINDOW = (
    AUTO_PAD,
    Option("dilations", None, "steps inside the window, 1 by default", at_least=1),
    Option("kernel_shape", None, "size of the window"),
    Option("pads", None, "begin padding of each axis, then end padding; 0 by default"),
    Option("strides", None, "steps of the window, 1 by default", at_least=1),
)
"""Attributes of a window that slides over an image."""
AXIS = Option("axis", None, "an axis, from the end if below 0")
EPSILON = Option("epsilon", 1e-5, "what is added to the variance")
