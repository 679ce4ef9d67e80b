"""What shape rules, checks and kernels see: the operands of one operation, by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from nnbridge.errors import OpFailedError, Reason
from nnbridge.types import TYPE_FACTS, is_extension, type_name

if TYPE_CHECKING:
    from nnbridge.model import Array, ChannelQuant, Operand
    from nnbridge.operations.declaration import OperationDef, Signature


Kept = TypeVar("Kept")


class NeedsValue(Exception):
    """A shape rule asked for a value that only execution knows."""


class Arg:
    """One operand of a call: declaration and, where known, value."""

    __slots__ = ("channel_quant", "constant", "dims", "name", "present", "scale", "type", "value", "zero_point")

    def __init__(
        self,
        type: int,
        dims: tuple[int, ...] = (),
        scale: float = 0.0,
        zero_point: int = 0,
        channel_quant: ChannelQuant | None = None,
        value: Array | None = None,
        *,
        name: str = "",
        present: bool = True,
        constant: bool = False,
    ) -> None:
        self.name = name
        self.type = type
        self.dims = dims
        self.scale = scale
        self.zero_point = zero_point
        self.channel_quant = channel_quant
        self.value = value
        self.present = present
        self.constant = constant

    @classmethod
    def of(cls, operand: Operand, value: Array | None = None, *, name: str = "", present: bool = True) -> Arg:
        """The argument for a model's operand."""
        return cls(
            operand.type,
            operand.dims,
            operand.scale,
            operand.zero_point,
            operand.channel_quant,
            value,
            name=name,
            present=present,
            constant=operand.is_constant,
        )

    def replace(self, **changes: Any) -> Arg:
        """A copy with some attributes changed."""
        copy = Arg.__new__(Arg)
        for slot in Arg.__slots__:
            setattr(copy, slot, changes.get(slot, getattr(self, slot)))
        return copy

    def with_value(self, value: Array | None, dims: tuple[int, ...]) -> Arg:
        """A copy with another value of these dimensions. Written out, because every step of every run comes here."""
        copy = Arg.__new__(Arg)
        copy.name = self.name
        copy.type = self.type
        copy.dims = dims
        copy.scale = self.scale
        copy.zero_point = self.zero_point
        copy.channel_quant = self.channel_quant
        copy.value = value
        copy.present = self.present
        copy.constant = self.constant
        return copy

    @property
    def data(self) -> npt.NDArray[Any]:
        """The value as an array; raises :class:`NeedsValue` if it is not known yet."""
        if self.value is None:
            raise NeedsValue(self.name)
        return self.value

    @property
    def rank(self) -> int:
        """Number of dimensions."""
        return len(self.dims)

    @property
    def dtype(self) -> np.dtype[np.generic]:
        """NumPy's element type for this operand type."""
        dtype = None if is_extension(self.type) else TYPE_FACTS[self.type].dtype
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
        return f"Arg({self.name!r}, {type_name(self.type)}{list(self.dims)})"


def real_numbers(arg: Arg) -> Callable[[npt.NDArray[Any]], npt.NDArray[np.float32]]:
    """From an operand's quantised values to the real numbers that they stand for: ``(v - zero_point) * scale`` in float32."""
    scale, zero_point = np.asarray(arg.scale, np.float32), np.float32(arg.zero_point)
    if arg.channel_quant is not None:
        shape = [1] * arg.rank
        shape[arg.channel_quant.channel_dim] = -1
        scale = np.asarray(arg.channel_quant.scales, np.float32).reshape(shape)

    def real(values: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
        numbers = values.astype(np.float32)
        if zero_point:
            numbers -= zero_point
        numbers *= scale
        return numbers

    return real


class Call:
    """The operands of one operation, by the names of its declaration.

    ``call["input"]`` is the named :class:`Arg` (an omitted one has ``present`` False), ``call.scalar("axis")`` a
    scalar's value with the declared default, ``call.repeated("inputs")`` the operands of a repeated input and
    ``call.outs`` the outputs as declared, then as resolved.
    """

    __slots__ = ("_kept", "_places", "args", "definition", "outs", "signature")

    def __init__(self, definition: OperationDef, signature: Signature, args: Sequence[Arg], outs: Sequence[Arg]) -> None:
        self.definition = definition
        self.signature = signature
        self.args = tuple(args)
        self.outs = list(outs)
        self._kept: dict[str, Any] = {}
        self._places: dict[str, int | list[int]] = {}
        for i, (declared, arg) in enumerate(zip(signature.expand(len(self.args)), self.args, strict=True)):
            arg.name = declared.name
            if declared.repeat:
                group = self._places.setdefault(declared.name, [])
                assert isinstance(group, list)
                group.append(i)
            else:
                self._places[declared.name] = i

    def with_args(self, args: Sequence[Arg], outs: list[Arg] | None = None) -> Call:
        """The same call on other arguments of the same names, and maybe other outputs."""
        copy = Call.__new__(type(self))
        copy.definition = self.definition
        copy.signature = self.signature
        copy.args = tuple(args)
        copy.outs = self.outs if outs is None else outs
        copy._places = self._places
        copy._kept = self._kept
        return copy

    def once(self, key: str, make: Callable[[], Kept], *constants: Arg) -> Kept:
        """What depends on types, parameters, known dimensions and the named constants alone: made by the first run of a
        bound call, kept for the next ones. With an argument among ``constants`` that is none it is made every time.
        """
        if key in self._kept:
            return self._kept[key]
        made = make()
        if all(arg.constant for arg in constants):
            self._kept[key] = made
        return made

    def __getitem__(self, name: str) -> Arg:
        place = self._places.get(name)
        if place is None:
            return Arg(0, name=name, present=False)
        assert isinstance(place, int), f"{name} is a repeated input"
        return self.args[place]

    def get(self, name: str) -> Arg | None:
        """The named argument, or None where it is omitted or not part of this form."""
        arg = self[name]
        return arg if arg.present else None

    def repeated(self, name: str) -> list[Arg]:
        """The arguments of a repeated input."""
        places = self._places.get(name, [])
        assert isinstance(places, list), f"{name} is not a repeated input"
        return [self.args[i] for i in places]

    def scalar(self, name: str) -> Any:
        """A scalar's value as a Python number; the declared default where the form leaves it out."""
        arg = self.get(name)
        if arg is not None and arg.constant:
            return self.once(f"scalar {name}", lambda: self._number(arg, name), arg)
        if arg is None:
            for signature in self.definition.signatures:
                for declared in signature.inputs:
                    if declared.name == name and declared.default is not None:
                        return declared.default
            self.fail("a value", "none", name)
        return self._number(arg, name)

    def _number(self, arg: Arg, name: str) -> Any:
        data = arg.data
        self.require(data.size == 1, "a scalar", f"{data.size} values", name)
        return data.reshape(()).item()

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
        raise OpFailedError(Reason(rule, str(found), self.definition.name, operand))

    def axis(self, name: str, rank: int) -> int:
        """A scalar axis, negative values counted from the end; refused if outside ``[-rank, rank)``."""
        axis = int(self.scalar(name))
        self.require(-rank <= axis < rank, f"an axis in [{-rank}, {rank})", axis, name)
        return axis % rank if rank else axis


Compute: TypeAlias = "Callable[..., Array | Sequence[Array]]"
"""From the arrays of a call's data to its results."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A kernel in two parts, as a driver has them: what can be decided without the data is decided once.

    ``prepare`` looks at types, parameters, dimensions and all arguments but the ``data``, and gives a function of the data's
    arrays, in the order of the arguments. That function holds no state: threads may share it.
    """

    prepare: Callable[[Call], Compute]
    data: frozenset[str]

    def __call__(self, call: Call) -> Array | Sequence[Array]:
        """The whole kernel."""
        fixed = (arg for arg in call.args if arg.present and arg.name not in self.data)
        compute = call.once("prepared", lambda: self.first_part(call), *fixed)
        return compute(*(arg.data for _, arg in self.places(call)))

    def first_part(self, call: Call) -> Compute:
        """What ``prepare`` makes of a call. It is shown none of the data, so that what it makes holds on to none."""
        return self.prepare(call.with_args([a.with_value(None, a.dims) if a.name in self.data else a for a in call.args]))

    def places(self, call: Call) -> Iterator[tuple[int, Arg]]:
        """The data that is there among a call's arguments, with their positions."""
        return ((i, arg) for i, arg in enumerate(call.args) if arg.present and arg.name in self.data)

    def ready(self, call: Call) -> bool:
        """True if all but the data is known before a run."""
        return all(arg.constant or not arg.present or arg.name in self.data for arg in call.args)


def prepared(*data: str) -> Callable[[Callable[[Call], Compute]], Prepared]:
    """Makes a :class:`Prepared` kernel of its first part; ``data`` names the inputs that the second part takes."""
    return lambda prepare: Prepared(prepare, frozenset(data))
