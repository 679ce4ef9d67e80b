"""The declaration of an NNAPI operation: signature by feature level, shape rule and reference kernel in one place.

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

:mod:`nnbridge.operations.kernels` explains ``prepared``. Everything else reads the declaration:
validation, ``getSupportedOperations`` filters, shape inference, the executor, the documentation tables and the list of what a
converter may emit. A module of this package is found by itself; a new operation needs its code in :mod:`nnbridge.types`, a
declaration like this one, and a test.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import InitVar, field
from functools import cached_property
from typing import Any, TypeAlias, TypeVar

from nnbridge.errors import Reason
from nnbridge.operations.work import MultiplyAdds
from nnbridge.records import dataclass
from nnbridge.types import OperandCode, OperationCode

TypeRef: TypeAlias = "OperandCode | str"
"""A fixed operand type, a type variable of the type sets such as ``"T"``, or ``"*"`` for any type."""

Shapes: TypeAlias = "tuple[int, ...] | list[tuple[int, ...]]"
"""The result of a shape rule: the dimensions of the only output, or a list with those of each."""

DATA_DEPENDENT = -1
"""In the result of a shape rule: this dimension is known only after the kernel has run."""

ShapeRule: TypeAlias = "Callable[..., Shapes]"
"""Of a call (:mod:`nnbridge.operations.call`, which is about a declaration), as the rules below."""
LevelRule: TypeAlias = "Callable[..., tuple[int, str] | None]"
BuildCheck: TypeAlias = "Callable[..., Reason | None]"
AnyKernel = TypeVar("AnyKernel")


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
    """May have no value (lifetime NO_VALUE)."""
    default: int | float | bool | None = None
    """The value that applies where a shorter form leaves the input out."""
    repeat: bool = False
    """Stands for any number of operands (one such input for a signature)."""


@dataclass(frozen=True, slots=True)
class OutputQuantisation:
    """The scale and zero point of an output when the operation runs; by default those that the model declares."""

    like: str | None = None
    """The input whose parameters the output has too."""
    fixed: Mapping[OperandCode, tuple[float, int]] = field(default_factory=dict)
    """Scale and zero point by output type."""


DECLARED = OutputQuantisation()


def like(name: str) -> OutputQuantisation:
    """The output has the scale and zero point of this input."""
    return OutputQuantisation(like=name)


def fixed(values: Mapping[OperandCode, tuple[float, int]]) -> OutputQuantisation:
    """The output has this scale and zero point."""
    return OutputQuantisation(fixed=values)


@dataclass(frozen=True, slots=True)
class Output:
    """One output."""

    name: str
    type: TypeRef
    role: str = ""
    quantisation: OutputQuantisation = DECLARED
    repeat: bool = False


@dataclass(frozen=True, slots=True)
class TypeSet:
    """One allowed combination of types and the feature level that it needs."""

    level: int
    types: Mapping[str, OperandCode]


def types(level: int, **variables: OperandCode) -> TypeSet:
    """A type set: ``types(3, T=OperandCode.TENSOR_FLOAT16)``."""
    return TypeSet(level, variables)


def tensors(**levels: int) -> list[TypeSet]:
    """A type set for each type of the variable ``T``, named without ``TENSOR_``: ``tensors(FLOAT32=1, FLOAT16=3)``."""
    return [types(level, T=OperandCode[f"TENSOR_{name}"]) for name, level in levels.items()]


@dataclass(frozen=True, eq=False)
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

    @cached_property
    def names(self) -> frozenset[str]:
        """The inputs' names."""
        return frozenset(declared.name for declared in self.inputs)

    @cached_property
    def _repeated(self) -> int:
        """The position of the input that stands for any number of operands; -1 for none."""
        return next((i for i, declared in enumerate(self.inputs) if declared.repeat), -1)

    def expand(self, count: int) -> tuple[Input, ...]:
        """The input declared for each of ``count`` positions."""
        at = self._repeated
        if at < 0:
            return self.inputs[:count]
        return (*self.inputs[:at], *[self.inputs[at]] * (count - len(self.inputs) + 1), *self.inputs[at + 1 :])[:count]


def signature(
    inputs: Sequence[Input], counts: Mapping[int, int] | int, *, name: str = "", minimum: int | None = None
) -> Signature:
    """A signature; ``counts`` as a number means: this form only, from feature level 1."""
    return Signature(tuple(inputs), {counts: 1} if isinstance(counts, int) else dict(counts), name, minimum)


@dataclass(frozen=True)
class Layout:
    """The inputs and outputs that the operation's ``nchw`` flag applies to."""

    inputs: tuple[str, ...]
    outputs: tuple[int, ...] = (0,)


REGISTRY: dict[int, OperationDef] = {}
"""Operation code → declaration."""


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)  # Those of records have no InitVar.
class OperationDef:
    """The declaration of one operation. As a decorator it registers itself and the decorated reference kernel.

    Specify either ``inputs`` (one signature; ``counts`` if shorter forms exist) or ``signatures``.
    """

    code: OperationCode = field(kw_only=False)
    since: int
    summary: str
    types: Sequence[TypeSet]
    outputs: Sequence[Output]
    shape: ShapeRule
    inputs: InitVar[Sequence[Input] | None] = None
    counts: InitVar[Mapping[int, int] | None] = None
    signatures: Sequence[Signature] = ()
    output_counts: Mapping[int, int] | None = None
    """Allowed numbers of outputs → feature level; None: exactly the declared ones."""
    level_rules: Sequence[LevelRule] = ()
    build_checks: Sequence[BuildCheck] = ()
    layout: Layout | None = None
    zero_sized: bool = False
    """Zero-sized inputs are computed (otherwise they are refused when it runs)."""
    omitted: bool = False
    """The kernel itself checks omitted operands (otherwise a missing required operand is refused)."""
    handled: str = "resolver"
    """``resolver``: a failed precondition is OP_FAILED; ``executor`` (older operations): BAD_DATA."""
    half: str = "widen"
    """TENSOR_FLOAT16: ``widen`` computes in float32 and rounds once, ``native`` passes float16 to the kernel."""
    control_flow: bool = False
    work: MultiplyAdds | None = None
    """What counts its multiply-adds; None for an operation that has none."""
    kernel: Any = field(init=False)
    """The reference kernel (:data:`nnbridge.operations.kernels.Kernel`): what the declaration decorates."""

    def __post_init__(self, inputs: Sequence[Input] | None, counts: Mapping[int, int] | None) -> None:
        if inputs is not None:
            object.__setattr__(self, "signatures", (signature(inputs, counts or {len(inputs): self.since}),))
        assert self.signatures, f"{self.code.name}: inputs or signatures"

    def __call__(self, reference: AnyKernel) -> AnyKernel:
        assert self.code not in REGISTRY, f"{self.code.name} is declared twice"
        REGISTRY[self.code] = self
        object.__setattr__(self, "kernel", reference)
        return reference

    @property
    def name(self) -> str:
        """NNAPI's name."""
        return self.code.name

    def expand_outputs(self, count: int) -> list[Output] | None:
        """The output declared for each of ``count`` outputs; None if there must be another number of them."""
        declared = self.outputs
        if self.output_counts is not None:
            return list(declared[:count]) if count in self.output_counts else None
        if declared and declared[-1].repeat:
            return [*declared[:-1], *[declared[-1]] * (count - len(declared) + 1)] if count >= len(declared) else None
        return list(declared) if count == len(declared) else None

    @cached_property
    def defaults(self) -> Mapping[str, int | float | bool]:
        """The value of each input that has one where a form leaves it out."""
        declared = [i for signature in reversed(self.signatures) for i in reversed(signature.inputs)]
        return {i.name: i.default for i in declared if i.default is not None}

    @property
    def accepts_omitted(self) -> bool:
        """True if any operand may be omitted."""
        return self.omitted or any(declared.optional for signature in self.signatures for declared in signature.inputs)


operation = OperationDef
"""What a family module writes above a reference kernel."""
