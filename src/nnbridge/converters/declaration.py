"""The declaration of an operator of a file format: everything that is known about it is in one place.

An operator module creates a definition and decorates its lowerings and its host kernel with it::

    GATHER_ND = operator(
        "GATHER_ND",
        "Slices of params at tuples of indices.",
        inputs=(OperatorInput("params"), OperatorInput("indices", INTEGERS)),
        folding=Folding(lambda params, indices: params.size * indices.size),
    )

    @GATHER_ND.lowering(wide=True)
    def flattened(to: Lowerer) -> None: ...

    @GATHER_ND.host_kernel
    def gather_nd(inputs, outputs, options): ...

Arity, option bounds, the phone's rule, folding, inspection, the documentation tables and the tests read the definition.
Each importer extends :class:`OperatorDef` by what only its format knows, and has one :class:`Registry`, which finds the operator
modules of a package by itself: adding an operator touches one module and a test.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from functools import cached_property
from importlib import import_module
from typing import Any, Generic, TypeAlias, TypeVar

import numpy as np

from nnbridge.converters.folding import Folding
from nnbridge.errors import Reason
from nnbridge.operations.work import MultiplyAdds
from nnbridge.records import dataclass

Lower: TypeAlias = "Callable[[Any], None]"
"""Drafts NNAPI operations for one operator; raises ``Unmappable`` where NNAPI cannot express it."""

AnyLower = TypeVar("AnyLower", bound=Callable[..., None])
AnyKernel = TypeVar("AnyKernel", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class OperatorInput:
    """One input of an operator."""

    name: str
    types: tuple[str, ...] = ()
    """Element types by the format's names; empty for any."""
    optional: bool = False
    """May be omitted, in the middle of the list or at its end."""
    repeat: bool = False
    """The last input: any number of tensors, at least one unless ``optional``."""
    decides_shape: bool = False
    """Its values decide dimensions of the output."""


@dataclass(frozen=True, slots=True)
class OperatorOutput:
    """One output of an operator."""

    name: str = "output"
    optional: bool = False
    repeat: bool = False


@dataclass(frozen=True, slots=True)
class Option:
    """A builtin option (TFLite) or an attribute (ONNX)."""

    name: str
    default: Any = None
    """Its value where the file has none."""
    meaning: str = ""
    at_least: float | None = None
    choices: tuple[Any, ...] = ()
    rule: str = ""
    """The bounds in words, where numbers by themselves do not say it."""

    def violation(self, value: Any) -> str:
        """The rule that a value breaks; empty if it may have this value. Lists are checked element by element."""
        if self.at_least is None and not self.choices:
            return ""
        given = value.ravel().tolist() if isinstance(value, np.ndarray) else value
        values = given if isinstance(given, (list, tuple)) else [given]
        if self.at_least is not None and [v for v in values if v < self.at_least]:
            return self.rule or f"{self.name} of at least {self.at_least:g}"
        if self.choices and [v for v in values if v not in self.choices]:
            return self.rule or f"{self.name} of {' or '.join(map(str, self.choices))}"
        return ""


@dataclass(frozen=True, slots=True)
class Lowering:
    """One way of expressing an operator in NNAPI operations. The first one that applies is used."""

    lower: Lower
    wide: bool = False
    """True for a decomposition that Android's delegate never makes. ONNX declarations do not use it: ONNX Runtime's provider
    accepts or leaves whole nodes, by the rule ``provider``."""


@dataclass(eq=False)
class OperatorDef:
    """An operator of a file format as its importer knows it."""

    name: str
    summary: str
    """One line of documentation."""
    inputs: tuple[OperatorInput, ...] = (OperatorInput("input"),)
    outputs: tuple[OperatorOutput, ...] = (OperatorOutput(),)
    options: tuple[Option, ...] = ()
    folding: Folding | None = None
    """How it is computed at conversion when all inputs are known; None if that is never done."""
    lowerings: list[Lowering] = field(default_factory=list)
    """In the order in which they are tried."""
    kernel: Callable[..., Any] | None = None
    """Its host kernel."""
    work: MultiplyAdds | None = None
    """What counts its multiply-adds; None for an operator that has none."""

    def lowering(self, *, wide: bool = False) -> Callable[[AnyLower], AnyLower]:
        """Decorator: one more lowering, tried after the ones before it."""
        return lowers(self, wide=wide)

    def host_kernel(self, kernel: AnyKernel) -> AnyKernel:
        """Decorator: the function that computes the operator on the host."""
        assert self.kernel is None, f"{self.name} has two host kernels"
        self.kernel = kernel
        return kernel

    def option(self, name: str) -> Option | None:
        """A declared option."""
        return self._options.get(name)

    @cached_property
    def _options(self) -> Mapping[str, Option]:
        return {option.name: option for option in self.options}

    @cached_property
    def input_counts(self) -> tuple[int, int | None]:
        """The smallest and largest number of inputs; None for no limit."""
        return _counts(self.inputs)

    @cached_property
    def output_counts(self) -> tuple[int, int | None]:
        """The smallest and largest number of outputs; None for no limit."""
        return _counts(self.outputs)

    def check_counts(self, inputs: int, outputs: int, label: str) -> Reason | None:
        """The reason why an operator with so many inputs and outputs is not well formed; None if it is."""
        for side, found, (least, most) in (("inputs", inputs, self.input_counts), ("outputs", outputs, self.output_counts)):
            if found < least or (most is not None and found > most):
                limit = str(least) if most == least else f"at least {least}" if most is None else f"{least} to {most}"
                return Reason(f"{limit} {side}", str(found), label)
        return None


def _counts(declared: Sequence[OperatorInput | OperatorOutput]) -> tuple[int, int | None]:
    # Trailing optional ones may be left out altogether.
    least = max((i for i, one in enumerate(declared, 1) if not one.optional), default=0)
    return least, None if declared and declared[-1].repeat else len(declared)


def lowers(*definitions: OperatorDef, wide: bool = False) -> Callable[[AnyLower], AnyLower]:
    """Decorator: a lowering that several operators share."""

    def register(function: AnyLower) -> AnyLower:
        for definition in definitions:
            definition.lowerings.append(Lowering(function, wide))
        return function

    return register


Definition = TypeVar("Definition", bound=OperatorDef)


class Registry(Generic[Definition]):
    """The operators of one importer, by name. Their modules are imported when the first operator is asked for."""

    def __init__(self, package: str) -> None:
        self._package = package
        self._definitions: dict[str, Definition] = {}
        self._loaded = False

    def add(self, definition: Definition) -> Definition:
        """Register a definition; each name once."""
        assert definition.name not in self._definitions, f"{definition.name} is declared twice"
        self._definitions[definition.name] = definition
        return definition

    def load(self) -> None:
        """Import every module of the package, each of which registers its operators."""
        if not self._loaded:
            self._loaded = True
            for module in pkgutil.iter_modules(import_module(self._package).__path__):
                import_module(f"{self._package}.{module.name}")

    def get(self, name: str) -> Definition | None:
        """The operator of this name, or None if the importer does not know it."""
        if not self._loaded:
            self.load()
        return self._definitions.get(name)

    def __getitem__(self, name: str) -> Definition:
        self.load()
        return self._definitions[name]

    def __iter__(self) -> Iterator[Definition]:
        self.load()
        return iter(sorted(self._definitions.values(), key=lambda definition: definition.name))
