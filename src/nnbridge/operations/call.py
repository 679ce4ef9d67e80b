"""The view of one operation for shape rules, checks and kernels: its operands by the names of the declaration."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from nnbridge.errors import OpFailedError, Reason, Why
from nnbridge.extensions import extension_dtype
from nnbridge.model import Array, ChannelQuant, Operand
from nnbridge.operations.declaration import OperationDef, Signature
from nnbridge.types import TYPE_FACTS, is_extension, type_name


class NeedsValue(Exception):
    """A shape rule or kernel reads a value that only execution knows."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Arg:
    """One operand of a call: its declaration and, where known, its value. Immutable; the value's elements are not copied."""

    type: int
    dims: tuple[int, ...] = ()
    scale: float = 0.0
    zero_point: int = 0
    channel_quant: ChannelQuant | None = None
    value: Array | None = None
    present: bool = True
    """False for an omitted operand."""
    constant: bool = False
    """The value is part of the model."""

    @classmethod
    def of(cls, operand: Operand, value: Array | None = None, *, present: bool = True) -> Arg:
        """The argument for a model's operand."""
        return cls(
            operand.type,
            operand.dims,
            operand.scale,
            operand.zero_point,
            operand.channel_quant,
            value,
            present,
            operand.is_constant,
        )

    def replace(self, **changes: Any) -> Arg:
        """A copy with some fields changed; TypeError for a name that is no field."""
        return replace(self, **changes)

    def with_value(self, value: Array | None, dims: tuple[int, ...]) -> Arg:
        """A copy with another value of these dimensions; several times faster than :meth:`replace`."""
        return Arg(self.type, dims, self.scale, self.zero_point, self.channel_quant, value, self.present, self.constant)

    @property
    def data(self) -> Array:
        """The value as an array; raises :class:`NeedsValue` if it is not known yet."""
        if self.value is None:
            raise NeedsValue
        return self.value

    @property
    def rank(self) -> int:
        """Number of dimensions."""
        return len(self.dims)

    @property
    def dtype(self) -> np.dtype[np.generic]:
        """NumPy's element type for this operand type."""
        dtype = extension_dtype(self.type) if is_extension(self.type) else TYPE_FACTS[self.type].dtype
        assert dtype is not None, f"{type_name(self.type)} has no element type"
        return dtype

    @property
    def real(self) -> npt.NDArray[np.float32]:
        """The value as real numbers in float32: ``(v - zero_point) * scale`` for quantised types."""
        data = self.data
        return data.astype(np.float32, copy=False) if data.dtype.kind == "f" else real_numbers(self)(data)

    @property
    def centred(self) -> npt.NDArray[np.int32]:
        """``v - zero_point`` in int32."""
        return self.data.astype(np.int32) - np.int32(self.zero_point)

    def __repr__(self) -> str:
        return f"Arg({type_name(self.type)}{list(self.dims)})"


_ABSENT = Arg(0, present=False)


def real_numbers(arg: Arg) -> Callable[[Array], npt.NDArray[np.float32]]:
    """From an operand's quantised values to the real numbers they represent: ``(v - zero_point) * scale`` in float32."""
    scale, zero_point = np.asarray(arg.scale, np.float32), np.float32(arg.zero_point)
    if arg.channel_quant is not None:
        shape = [1] * arg.rank
        shape[arg.channel_quant.channel_dim] = -1
        scale = np.asarray(arg.channel_quant.scales, np.float32).reshape(shape)

    def real(values: Array) -> npt.NDArray[np.float32]:
        numbers = values.astype(np.float32)
        if zero_point:
            numbers -= zero_point
        numbers *= scale
        return numbers

    return real


@lru_cache(maxsize=1024)
def _positions(signature: Signature, count: int) -> Mapping[str, int | tuple[int, ...]]:
    """Input name → position among ``count`` operands; a repeated input has a tuple of positions."""
    positions: dict[str, int | tuple[int, ...]] = {}
    for i, declared in enumerate(signature.expand(count)):
        earlier = positions.get(declared.name, ())
        positions[declared.name] = (*earlier, i) if declared.repeat and isinstance(earlier, tuple) else i
    return positions


@dataclass(frozen=True, slots=True, eq=False)
class Call:
    """The operands of one operation, immutable.

    ``call["input"]`` is the named :class:`Arg` (an omitted one has ``present`` False), ``call.scalar("axis")`` a
    scalar's value or its declared default, ``call.repeated("inputs")`` the operands of a repeated input and
    ``call.outs`` the outputs, as declared or as :func:`~nnbridge.operations.evaluate.resolve` computed them.
    """

    definition: OperationDef
    signature: Signature
    args: tuple[Arg, ...]
    outs: tuple[Arg, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The declared name of each argument."""
        return tuple(declared.name for declared in self.signature.expand(len(self.args)))

    def __getitem__(self, name: str) -> Arg:
        position = _positions(self.signature, len(self.args)).get(name)
        if position is None:
            return _ABSENT
        assert isinstance(position, int), f"{name} is a repeated input"
        return self.args[position]

    def get(self, name: str) -> Arg | None:
        """The named argument, or None where it is omitted or not part of this form."""
        arg = self[name]
        return arg if arg.present else None

    def repeated(self, name: str) -> list[Arg]:
        """The arguments of a repeated input."""
        positions = _positions(self.signature, len(self.args)).get(name, ())
        assert isinstance(positions, tuple), f"{name} is not a repeated input"
        return [self.args[i] for i in positions]

    def scalar(self, name: str) -> Any:
        """A scalar's value as a Python number; the declared default where the form leaves it out."""
        arg = self[name]
        if arg.present:
            data = arg.value if arg.value is not None else arg.data
            return data.item() if data.size == 1 else self.fail("a scalar", f"{data.size} values", name)
        default = self.definition.defaults.get(name)
        self.require(default is not None, "a value", "none", name)
        return default

    @property
    def out(self) -> Arg:
        """The first output."""
        return self.outs[0]

    def require(self, condition: object, rule: str, found: object = "", operand: str = "") -> None:
        """Refuse the call (OP_FAILED) unless the condition holds."""
        if not condition:
            self.fail(rule, found, operand)

    def fail(self, rule: str, found: object = "", operand: str = "") -> NoReturn:
        """Refuse the call (OP_FAILED)."""
        raise OpFailedError(Reason(rule, str(found), self.definition.name, operand, Why.OPERAND_VALUE))

    def axis(self, name: str, rank: int) -> int:
        """A scalar axis, negative values counted from the end; refused if outside ``[-rank, rank)``."""
        axis = int(self.scalar(name))
        self.require(-rank <= axis < rank, f"an axis in [{-rank}, {rank})", axis, name)
        return axis % rank if rank else axis
