"""The declaration of a TFLite operator: one :class:`TfliteOperator` with everything that is known about it.

A module of :mod:`nnbridge_tflite.operators` creates it, which registers it, and decorates the lowerings, the host kernels and,
for operators that need more of a conversion than their operands, the handler with it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from enum import Enum
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from nnbridge.converters.declaration import OperatorDef, OperatorInput, OperatorOutput, Option, Registry
from nnbridge.converters.inspection import Mapped
from nnbridge.errors import ConversionError, Reason
from nnbridge.extensions import HostKernel, HostPrepare
from nnbridge.records import dataclass
from nnbridge.types import FuseCode
from nnbridge_tflite.dims import Dims, broadcast
from nnbridge_tflite.loads import Prepare, writes
from nnbridge_tflite.read.graph import Operator, Tensor
from nnbridge_tflite.rules import DelegateRule, OperatorView, Shape

if TYPE_CHECKING:
    pass

Handler: TypeAlias = "Callable[..., Mapped]"
"""From a conversion and an operator that needs more of it than its operands: control flow, variables, tables, streams of random
numbers."""

Check: TypeAlias = "Callable[[OperatorView], None]"
Waits: TypeAlias = "Callable[[Operator, Sequence[Tensor]], Sequence[int]]"
"""Inputs of an operator by position, for it and the tensors of its subgraph."""
NEVER_KNOWN = (-1,)
"""In place of inputs: TFLite's kernel leaves the dimensions to the run whatever it knows."""
AnyHandler = TypeVar("AnyHandler", bound=Handler)
AnyKernel = TypeVar("AnyKernel", bound=HostKernel)
AnyPrepare = TypeVar("AnyPrepare", bound=HostPrepare)

NO_MAPPING = "Android's delegate has no mapping for it"
NO_SUBGRAPHS = "Android's delegate passes no subgraphs, variables or tables"
NO_KERNEL = "an operator that LiteRT has a kernel for"
"""What a run requires of an operator that nothing computes."""

REGISTRY: Registry[TfliteOperator] = Registry("nnbridge_tflite.operators")


class OperandKind(Enum):
    """The operand types that one of an operator's host kernels computes."""

    HYBRID = "float activations beside 8-bit weights, as LiteRT computes them"
    FLOATS = "float32, bit for bit as TFLite's reference kernel; ValueError for what that does not compute"
    INTEGERS = "8- and 16-bit activations, bit for bit as TFLite"
    CHANNELS = "8-bit activations with a scale for each unit of the weights, whose sums NNAPI rounds twice"
    SIXTEEN_BITS = "16-bit activations, and 8-bit ones of ranks that NNAPI has not"


def _kernel_for(operands: OperandKind) -> Callable[[TfliteOperator, AnyKernel], AnyKernel]:
    """A decorator: the function computes the operator on these operands."""

    def register(self: TfliteOperator, kernel: AnyKernel) -> AnyKernel:
        assert operands not in self.kernels, f"{self.name} has two kernels for {operands.value}"
        self.kernels[operands] = kernel
        return kernel

    return register


@dataclass(eq=False)
class TfliteOperator(OperatorDef):
    """A TFLite operator. Builtins that LiteRT has no kernel for are not declared."""

    delegate: DelegateRule | str = NO_MAPPING
    """When Android's delegate hands it to NNAPI, or the sentence why it never does."""
    versions: tuple[int, int] | None = (1, 1)
    """The first and the last version that LiteRT 2.3.0 has a kernel for (``register.cc``); None if it has none at all."""
    loads: Sequence[Prepare] = ()
    """What its kernel requires when it is prepared, in its order: TFLite does not load a file in which it does not hold."""
    written: Mapping[str, tuple[float, int | None]] = field(default_factory=dict)
    """Element type → the scale and zero point that its kernel writes, whatever the file says; None for any zero point."""
    written_within: float = 0.0
    """By how much of it a written scale may differ from the file's."""
    dims: Dims | None = None
    """The dimensions that its kernel gives to its outputs when it is prepared, whatever the file says."""
    writes_type: int | str = ""
    """The element type that its kernel gives to its first output, whatever the file says: an input's, this one, or that of an
    option."""
    writes_all: bool = False
    """It gives the type to all outputs."""
    least_inputs: int = 0
    """The fewest inputs, where trailing optional ones must be listed (as -1)."""
    check: Check | None = None
    """What makes a file wrong whatever it is mapped to: conditions under which LiteRT refuses the operator, too."""
    kernels: dict[OperandKind, HostKernel] = field(default_factory=dict)
    """Its host kernels for some operands, beside :attr:`kernel`; the host tries them in an order by what they are for."""
    preparing: HostPrepare | None = None
    """Makes its host kernel of constants and dimensions; ValueError for operands that the other kernels are asked for."""
    elementwise: bool = False
    """It computes each element only from the inputs' elements at that place, after broadcasting."""
    rows: bool = False
    """It computes each row, along the last dimension, only from the input's row."""
    tabled: bool = False
    """For 8-bit integers TFLite fills a table, as the host does by the kernel."""
    as_stored: bool = False
    """Integers are read as they are stored, whatever real numbers they stand for."""
    folded_from_shape: Callable[[Shape], object] | None = None
    """For operators that need only their input's dimensions."""
    data_dependent: bool = False
    """Only a run knows the output's dimensions, unless what it reads is constant."""
    wide_constants: bool = False
    """The delegate reads constants of int64 itself, and passes them to NNAPI as int32."""
    dynamic_unless: Sequence[int] | Waits | None = None
    """Inputs whose values TFLite's kernel has to know when it is prepared, else its outputs are dynamic tensors, and TFLite
    refuses a delegate. None: those whose values decide dimensions. As LiteRT 2.3 does it (``compare_verdicts.py``)."""
    dynamic_unless_stored: bool = False
    """Of these, what an earlier kernel computed when it was prepared does not do; the file has to hold them."""
    known_when_prepared: bool = False
    """TFLite's kernel computes its output when it is prepared, if all that it reads is known then."""
    bodies: tuple[str, ...] = ()
    """Options with the indexes of subgraphs that it runs: a dynamic tensor of theirs makes its outputs dynamic."""
    needs_ranks: bool = False
    """Its output has as many dimensions more as an input has: its options list the inputs that are scalars in TFLite."""
    applies: str = ""
    """The option with the index of the subgraph that it applies to pairs of elements."""
    handler: Handler | None = None
    effects: bool = False
    """It may change more than its outputs."""
    control: str = ""
    """``if`` or ``while``: the host runs its bodies."""
    refusal: str = NO_KERNEL
    """Without a kernel: what a run requires."""
    custom: bool = False
    """A custom operator, whose name is its custom code."""

    def __post_init__(self) -> None:
        if self.dims is None and self.elementwise:
            self.dims = broadcast()
        if self.written:
            self.loads = (*self.loads, writes(self.written, self.written_within))
        REGISTRY.add(self)

    @cached_property
    def input_counts(self) -> tuple[int, int | None]:
        """The smallest and largest number of inputs; None for no limit."""
        least, most = super().input_counts
        return max(least, self.least_inputs), most

    @property
    def per_channel(self) -> bool:
        """True if the host kernel computes with a scale for each channel, or only moves elements."""
        return self.folding is not None and self.folding.moves_only

    @property
    def sixteen_bits(self) -> HostKernel | None:
        """Its host kernel for 16-bit activations."""
        return self.kernels.get(OperandKind.INTEGERS) or self.kernels.get(OperandKind.SIXTEEN_BITS)

    integer_kernel = _kernel_for(OperandKind.INTEGERS)
    kernel_16_bit = _kernel_for(OperandKind.SIXTEEN_BITS)
    channels_kernel = _kernel_for(OperandKind.CHANNELS)
    hybrid_kernel = _kernel_for(OperandKind.HYBRID)
    float_kernel = _kernel_for(OperandKind.FLOATS)

    def prepared_kernel(self, kernel: AnyPrepare) -> AnyPrepare:
        """Decorator: the function that makes what computes the operator, once constants and dimensions are known."""
        self.preparing = kernel
        return kernel

    def handles(self, handler: AnyHandler) -> AnyHandler:
        """Decorator: the function that converts the operator."""
        self.handler = handler
        return handler

    def complete(self, options: Any) -> dict[str, Any]:
        """Options with the declared defaults where the file has none; without a table of options, TFLite has zeros."""
        found = dict(options)
        for option in self.options:
            if found.get(option.name) is None:
                found[option.name] = self.default_of(option, options)
        return found

    def default_of(self, option: Option, options: Mapping[str, Any]) -> Any:
        """The value of an option that is not among those of the file: 0 if the file has none of them."""
        stated = self.custom or any(one.name in options for one in self.options)
        return option.default if stated else type(option.default)()

    def check_operator(self, operator: Operator) -> None:
        """Refuse too few or too many operands, an omitted one that is needed, and options outside of their bounds."""
        reason = self.check_counts(len(operator.inputs), len(operator.outputs), operator.label)
        if reason is not None:
            raise ConversionError(reason)
        for i, index in enumerate(operator.inputs):
            if index < 0 and not self.inputs[min(i, len(self.inputs) - 1)].optional:
                raise ConversionError(Reason(f"an input {i}", "none", operator.label))
        for option in self.options:
            value = operator.options.get(option.name)
            broken = "" if value is None else option.violation(value)
            if broken:
                raise ConversionError(Reason(broken, str(value), operator.label))


def definition_of(operator: Operator) -> TfliteOperator | None:
    """The declaration of a file's operator; None for builtins and custom operators that are not declared."""
    found = REGISTRY.get(operator.name)
    return found if found is not None and found.custom == operator.custom else None


def inputs(*names: str) -> tuple[OperatorInput, ...]:
    """Inputs by name: ``name?`` may be omitted, the values of ``name!`` decide dimensions, ``name*`` is any number of inputs."""
    return tuple(
        OperatorInput(name.rstrip("?!*"), optional="?" in name, repeat="*" in name, decides_shape="!" in name) for name in names
    )


def outputs(*names: str) -> tuple[OperatorOutput, ...]:
    """Outputs by name, marked as inputs are."""
    return tuple(OperatorOutput(name.rstrip("?*"), optional="?" in name, repeat="*" in name) for name in names)


FUSED = Option(
    "fused_activation_function",
    0,
    "activation of the result: 0 none, 1 RELU, 2 RELU1 (-1 to 1), 3 RELU6",
    # TFLite's feed-forward kernels would ignore TANH and SIGN_BIT.
    choices=tuple(map(int, FuseCode)),
    rule=f"a fused activation of {', '.join(FuseCode.__members__)}",
)
ACTIVATION = Option("fused_activation_function", 0, "activation of a recurrent cell: 0 none, 1 RELU, 3 RELU6, 4 TANH, 6 LOGISTIC")
PADDING = Option("padding", 0, "0 SAME, 1 VALID")
STRIDES = (Option("stride_w", 1, "columns", at_least=1), Option("stride_h", 1, "rows", at_least=1))
AXIS = Option("axis", 0, "counted from the end if negative")
KEEP_DIMS = Option("keep_dims", False, "reduced dimensions stay, with size 1")
ALIGNMENT = (
    Option("align_corners", False, "the outermost pixels of input and output are the same points"),
    Option("half_pixel_centers", False, "pixels are seen as squares around their centres"),
)
