"""Declarations of kernels: a function that emits IR for its parameters, by the name of the function."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from nnbridge.cpu.compiled.values import IrValue
from nnbridge.records import dataclass


class Fields:
    """The argument block of a kernel that is being emitted: each field as a 64-bit value."""

    def __init__(self, values: dict[str, IrValue]) -> None:
        self._values = values

    def __getattr__(self, name: str) -> IrValue:
        try:
            return self._values[name]
        except KeyError:
            raise AttributeError(name) from None


Emission: TypeAlias = Callable[..., None]
"""From an emitter, the argument block, the part and the number of parts, and parameters by name, to a function body."""


@dataclass(frozen=True)
class Kernel:
    """A kernel's declaration: its name, the fields of its argument block and what emits it."""

    name: str
    fields: tuple[str, ...]
    emission: Emission


KERNELS: dict[str, Kernel] = {}


def kernel(fields: str) -> Callable[[Emission], Emission]:
    """Declare a kernel by decorating its emission; ``fields`` names the arguments in order."""

    def register(emission: Emission) -> Emission:
        name: str = emission.__name__
        assert name not in KERNELS, f"{name} is declared twice"
        KERNELS[name] = Kernel(name, tuple(fields.split()), emission)
        return emission

    return register
