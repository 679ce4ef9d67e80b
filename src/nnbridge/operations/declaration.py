"""How an NNAPI operation is declared: signature by feature level, shape rule and reference kernel in one place.

A family module declares an operation by decorating its reference kernel::

    @operation(
        OperationCode.FLOOR,
        since=1,
        summary="Element-wise floor.",
        types=[types(1, T=OperandCode.TENSOR_FLOAT32), types(3, T=OperandCode.TENSOR_FLOAT16)],
        inputs=[Input("input", "T", rank=up_to(4, build=True))],
        outputs=[Output("output", "T")],
        shape=same_as_input,
    )
    @prepared("input")
    def floor(call: Call) -> Function:
        return np.floor

A kernel is a function from a call to its results. ``prepared`` makes one of two parts: the decorated function looks at all that
is known before the data comes (types, parameters, dimensions, constants) and gives a function of the data's arrays alone. The
executor runs the first part when a model is prepared, so that a run does nothing twice. Without ``prepared`` the decorated
function takes the call with its values, which is for kernels that have little to decide or must look at values to decide it.
Everything else reads the declaration: validation, ``getSupportedOperations`` filters, shape inference, the executor,
the documentation tables and the list of what a converter may emit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from nnbridge.types import FeatureLevel, OperandCode, OperationCode

if TYPE_CHECKING:
    from nnbridge.errors import Reason
    from nnbridge.model import Array
    from nnbridge.operations.call import Call

TypeRef: TypeAlias = "OperandCode | str"
"""A fixed operand type, a type variable of the type sets such as ``"T"``, or ``"*"`` for any type."""

Shapes: TypeAlias = "tuple[int, ...] | list[tuple[int, ...]]"
"""What a shape rule answers: the dimensions of the only output, or a list with those of each."""

DATA_DEPENDENT = -1
"""In a shape rule's answer: this dimension is known only after the kernel has run."""

ShapeRule: TypeAlias = "Callable[[Call], Shapes]"
Kernel: TypeAlias = "Callable[[Call], Array | Sequence[Array]]"
LevelRule: TypeAlias = "Callable[[Call], tuple[int, str] | None]"
BuildCheck: TypeAlias = "Callable[[Call], Reason | None]"


@dataclass(frozen=True, slots=True)
class Rank:
    """Allowed ranks; ``build``: Android refuses others when the operation is added, not only when it runs."""

    low: int
    high: int | None
    build: bool = False

    def admits(self, rank: int) -> bool:
        """True if a tensor of this rank is allowed."""
        return self.low <= rank and (self.high is None or rank <= self.high)

    def __str__(self) -> str:
        if self.high is None:
            return f"at least {self.low}"
        return str(self.low) if self.low == self.high else f"{self.low} to {self.high}"


def rank(n: int, *, build: bool = False) -> Rank:
    """Exactly this rank."""
    return Rank(n, n, build)


def up_to(n: int, *, low: int = 0, build: bool = False) -> Rank:
    """At most this rank."""
    return Rank(low, n, build)


def at_least(n: int, *, build: bool = False) -> Rank:
    """At least this rank."""
    return Rank(n, None, build)


@dataclass(frozen=True, slots=True)
class Input:
    """One input of a signature."""

    name: str
    type: TypeRef
    role: str = ""
    rank: Rank | None = None
    """Checked when the operation runs, and at build time if the rank says so."""
    optional: bool = False
    """May be given without a value (lifetime NO_VALUE)."""
    default: int | float | bool | None = None
    """The value that applies where a shorter form leaves the input out."""
    repeat: bool = False
    """Stands for any number of operands (one such input for a signature)."""


@dataclass(frozen=True, slots=True)
class Quantisation:
    """What scale and zero point an output gets when the operation runs."""

    like: str | None = None
    """The input whose parameters the output takes over."""
    fixed: Mapping[OperandCode, tuple[float, int]] = field(default_factory=dict)
    """Scale and zero point by output type."""
    build: bool = False
    """Compared already when the operation is added."""


DECLARED = Quantisation()
"""The output keeps the parameters that the model declares."""


def like(name: str, *, build: bool = False) -> Quantisation:
    """The output takes over scale and zero point of this input."""
    return Quantisation(like=name, build=build)


def fixed(values: Mapping[OperandCode, tuple[float, int]], *, build: bool = False) -> Quantisation:
    """The output has this scale and zero point."""
    return Quantisation(fixed=values, build=build)


@dataclass(frozen=True, slots=True)
class Output:
    """One output."""

    name: str
    type: TypeRef
    role: str = ""
    quantisation: Quantisation = DECLARED
    repeat: bool = False


@dataclass(frozen=True, slots=True)
class TypeSet:
    """One allowed combination of types and the feature level that it needs."""

    level: int
    types: Mapping[str, OperandCode]


def types(level: int, **variables: OperandCode) -> TypeSet:
    """A type set: ``types(3, T=OperandCode.TENSOR_FLOAT16)``."""
    return TypeSet(level, variables)


@dataclass(frozen=True)
class Signature:
    """One list of inputs. ``counts`` maps each allowed number of inputs to its feature level."""

    inputs: tuple[Input, ...]
    counts: Mapping[int, int]
    name: str = ""
    minimum: int | None = None
    """For signatures with a repeated input: the least number of operands, instead of ``counts``."""

    def admits(self, count: int) -> bool:
        """True if an operation may have this number of inputs."""
        return count >= self.minimum if self.minimum is not None else count in self.counts

    def level(self, count: int) -> int:
        """Feature level of the form with this number of inputs."""
        return self.counts.get(count, 1)

    def expand(self, count: int) -> list[Input]:
        """The input that stands at each of ``count`` positions."""
        expanded: list[Input] = []
        for declared in self.inputs:
            repeats = count - len(self.inputs) + 1 if declared.repeat else 1
            expanded.extend([declared] * repeats)
        return expanded[:count]


def signature(
    inputs: Sequence[Input], counts: Mapping[int, int] | int, *, name: str = "", minimum: int | None = None
) -> Signature:
    """A signature; ``counts`` as a number means: this form only, from feature level 1."""
    return Signature(tuple(inputs), {counts: 1} if isinstance(counts, int) else dict(counts), name, minimum)


@dataclass(frozen=True)
class Layout:
    """Which inputs and outputs the operation's ``nchw`` flag is about."""

    inputs: tuple[str, ...]
    outputs: tuple[int, ...] = (0,)
    flag: str = "nchw"


@dataclass(frozen=True)
class OperationDef:
    """The declaration of one operation."""

    code: OperationCode
    since: FeatureLevel
    summary: str
    types: tuple[TypeSet, ...]
    signatures: tuple[Signature, ...]
    outputs: tuple[Output, ...]
    shape: ShapeRule
    kernel: Kernel
    output_counts: Mapping[int, int] | None = None
    """Allowed numbers of outputs → feature level; None: exactly the declared ones."""
    level_rules: tuple[LevelRule, ...] = ()
    build_checks: tuple[BuildCheck, ...] = ()
    layout: Layout | None = None
    zero_sized: bool = False
    """Zero-sized inputs are computed (otherwise they are refused when it runs)."""
    omitted: bool = False
    """The kernel itself judges omitted operands (otherwise a missing required operand is refused)."""
    handled: str = "resolver"
    """``resolver``: a failed precondition is OP_FAILED; ``executor`` (older operations): BAD_DATA."""
    half: str = "widen"
    """TENSOR_FLOAT16: ``widen`` computes in float32 and rounds once, ``native`` hands float16 to the kernel."""
    control_flow: bool = False

    @property
    def name(self) -> str:
        """NNAPI's name."""
        return self.code.name

    @property
    def takes_omitted(self) -> bool:
        """True if any operand may be omitted."""
        return self.omitted or any(declared.optional for signature in self.signatures for declared in signature.inputs)


REGISTRY: dict[int, OperationDef] = {}


def operation(
    code: OperationCode,
    *,
    since: int,
    summary: str,
    types: Sequence[TypeSet],
    outputs: Sequence[Output],
    shape: ShapeRule,
    inputs: Sequence[Input] | None = None,
    counts: Mapping[int, int] | None = None,
    signatures: Sequence[Signature] | None = None,
    **options: Any,
) -> Callable[[Kernel], Kernel]:
    """Declare an operation; decorates its reference kernel.

    Give either ``inputs`` (one signature; ``counts`` if shorter forms exist) or ``signatures``.
    ``options`` are the remaining fields of :class:`OperationDef`.
    """
    if signatures is None:
        assert inputs is not None, f"{code.name}: inputs or signatures"
        signatures = [signature(inputs, counts or {len(inputs): since})]

    def register(kernel: Kernel) -> Kernel:
        assert code not in REGISTRY, f"{code.name} is declared twice"
        REGISTRY[code] = OperationDef(
            code=code,
            since=FeatureLevel(since),
            summary=summary,
            types=tuple(types),
            signatures=tuple(signatures),
            outputs=tuple(outputs),
            shape=shape,
            kernel=kernel,
            **options,
        )
        return kernel

    return register
