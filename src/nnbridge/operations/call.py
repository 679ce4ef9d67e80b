"""The view of one operation for shape rules, checks and kernels: its operands by the names of the declaration."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NoReturn

from nnbridge.errors import OpFailedError, Reason, Why
from nnbridge.extensions import Arg, NeedsValue
from nnbridge.operations.declaration import OperationDef, Signature
from nnbridge.records import dataclass

__all__ = ["Arg", "Call", "NeedsValue"]


_ABSENT = Arg(0, present=False)


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
