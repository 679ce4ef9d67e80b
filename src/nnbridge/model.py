"""The immutable NNAPI model: operands, operations, subgraphs and the pools that hold constants.

A :class:`Model` is the only thing that passes between nnbridge's stages. It is built by
:class:`nnbridge.builder.ModelBuilder` or read by :mod:`nnbridge.storage`.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property
from mmap import mmap
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from nnbridge.errors import ConversionError, Reason
from nnbridge.records import dataclass
from nnbridge.types import TYPE_FACTS, Lifetime, OperandCode, is_extension, operation_name, split_extension_code, type_name

_CONSTANT = (Lifetime.CONSTANT_COPY, Lifetime.CONSTANT_REFERENCE)
_FLOAT32 = struct.Struct("<f")
Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class ChannelQuant:
    """Parameters of TENSOR_QUANT8_SYMM_PER_CHANNEL: one scale for each index along ``channel_dim``."""

    scales: tuple[float, ...]
    channel_dim: int
    sound: bool = field(default=False, compare=False, repr=False)
    """True if who made it has seen that all scales are finite and above 0; others look for themselves."""


@dataclass(frozen=True, slots=True)
class Location:
    """The place of a constant: ``length`` bytes at ``offset`` of a pool, or an index of a referenced model."""

    pool: int = 0
    offset: int = 0
    length: int = 0


_NOWHERE = Location()


@dataclass(frozen=True, slots=True)
class Operand:
    """One operand: type, dimensions (0 = not known, ``()`` of a tensor = rank not known), quantisation, lifetime."""

    type: int
    dims: tuple[int, ...] = ()
    scale: float = 0.0
    zero_point: int = 0
    channel_quant: ChannelQuant | None = None
    lifetime: Lifetime = Lifetime.TEMPORARY_VARIABLE
    location: Location = _NOWHERE
    extension_data: bytes | None = None
    name: str = ""
    """The name in the source file; for reports only."""
    source_type: str = ""
    """The element type in the source file if another: ``int8`` of a TENSOR_QUANT8_ASYMM, which is offset by 128."""

    def at(self, lifetime: Lifetime, location: Location = _NOWHERE) -> Operand:
        """A copy of another lifetime whose value lies elsewhere; several times faster than ``dataclasses.replace``."""
        return Operand(
            self.type,
            self.dims,
            self.scale,
            self.zero_point,
            self.channel_quant,
            lifetime,
            location,
            self.extension_data,
            self.name,
            self.source_type,
        )

    @property
    def is_tensor(self) -> bool:
        """True for a tensor of a base type; :func:`nnbridge.extensions.is_tensor` knows extension types, too."""
        return not is_extension(self.type) and TYPE_FACTS[self.type].tensor

    @property
    def is_sign_flipped(self) -> bool:
        """True for int8 of the source file that the model has as uint8, offset by 128, below feature level 4."""
        return self.source_type == "int8" and self.type == OperandCode.TENSOR_QUANT8_ASYMM

    @property
    def is_constant(self) -> bool:
        """True if the value lies in the model."""
        return self.lifetime in _CONSTANT

    def __str__(self) -> str:
        dims = "x".join(str(d) for d in self.dims) if self.dims else ""
        return f"{type_name(self.type)}[{dims}]" if self.is_tensor or dims else type_name(self.type)


@dataclass(frozen=True, slots=True)
class Source:
    """The operator of the source file that an operation was converted from. Equal for all operations of one operator."""

    index: int
    """The operator's index in its subgraph (TFLite) or graph (ONNX)."""
    operator: str
    """The operator's name in the file's format, such as ``CONV_2D`` or ``Conv``."""
    subgraph: int = 0
    """The subgraph that contains the operator."""
    callers: tuple[int, ...] = ()
    """Indexes of the calling operators, outermost first, where the subgraph was inlined."""

    @property
    def key(self) -> tuple[int, int]:
        """Subgraph and index: the operator's place in the file."""
        return self.subgraph, self.index


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation: its code, operand indexes, and where it came from."""

    type: int
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    name: str = ""
    """The operation's place in the source file, such as ``3: CONV_2D conv/Relu6``; for reports only."""
    mapping: str = ""
    """How a converter came to this operation (``delegate``, ``wide``, ``host``); for reports only."""
    source: Source | None = None
    """The source file's operator, by which operations belong together; None where there is no file."""


INFERRED = "inferred"
"""In :attr:`Subgraph.known`: indexes of operations whose outputs have the dimensions and quantisation that NNAPI computes for the
inputs as they are declared."""


@dataclass(frozen=True)
class Subgraph:
    """Operands and operations in run order, with the indexes of inputs and outputs."""

    operands: tuple[Operand, ...]
    operations: tuple[Operation, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    relaxed: bool = False
    """Of a referenced model, its own ``relaxComputationFloat32toFloat16``; the main one's is the model's."""
    known: dict[str, Any] = field(default_factory=dict, init=False, compare=False, repr=False)
    """What stages found out about this very subgraph, so that later ones need not do it again; a changed copy starts empty."""

    @cached_property
    def producers(self) -> Mapping[int, int]:
        """Operand index → index of the operation that writes it."""
        return MappingProxyType({out: i for i, operation in enumerate(self.operations) for out in operation.outputs})

    def bodies(self, operation: Operation) -> list[int]:
        """Numbers of the referenced models that an operation runs."""
        operands = (self.operands[i] for i in operation.inputs)
        return [operand.location.offset for operand in operands if operand.lifetime is Lifetime.SUBGRAPH]

    @cached_property
    def consumers(self) -> Mapping[int, tuple[int, ...]]:
        """Operand index → indexes of the operations that read it, in run order."""
        readers: dict[int, list[int]] = {}
        for i, operation in enumerate(self.operations):
            for operand in dict.fromkeys(operation.inputs):
                readers.setdefault(operand, []).append(i)
        return MappingProxyType({operand: tuple(found) for operand, found in readers.items()})

    def __reduce__(self) -> tuple[Any, ...]:
        return Subgraph, (self.operands, self.operations, self.inputs, self.outputs, self.relaxed)


@dataclass(frozen=True, slots=True)
class State:
    """A value that goes from one execution to the next: positions among the model's inputs and outputs."""

    input: int
    output: int
    initial: bytes = b""
    """The first value's bytes; empty for zeros."""


@dataclass(frozen=True, eq=False)
class Pool:
    """Read-only bytes that constants refer to. ``owner`` holds a mapped file open; nothing is copied."""

    data: memoryview
    owner: object = field(default=None, repr=False)

    @classmethod
    def of(cls, buffer: object) -> Pool:
        """A pool over anything with the buffer protocol, seen read-only."""
        view = memoryview(buffer)  # type: ignore[arg-type]  # whatever has the buffer protocol, a TypeError otherwise
        return cls(view.toreadonly().cast("B"), buffer)

    def __len__(self) -> int:
        return len(self.data)

    def __reduce__(self) -> tuple[Any, ...]:
        return Pool.of, (bytes(self.data),)  # another process has the bytes, not the mapping

    def part(self, offset: int, length: int) -> memoryview:
        """Bytes of the pool. ConversionError where the mapped file was cut short: reading on would end the process (SIGBUS)."""
        self.check()
        return self.data[offset : offset + length]

    def check(self) -> None:
        """ConversionError where the mapped file was cut short."""
        file = _mapped_file(self.owner)
        if file is not None and (size := file.size()) < len(file):
            raise ConversionError(Reason(f"a model file that keeps its {len(file)} bytes while in use", f"{size} bytes"))


class ArrayPool(Pool):
    """An array's elements in row-major order. What has another order, such as a transposed view, is copied when it is read."""

    def __init__(self, array: Array) -> None:
        object.__setattr__(self, "owner", array)

    @cached_property
    def data(self) -> memoryview:
        return memoryview(np.ascontiguousarray(self.array).reshape(-1).view(np.uint8).data).toreadonly()

    @property
    def array(self) -> Array:
        """The array."""
        assert isinstance(self.owner, np.ndarray)
        return self.owner

    def __len__(self) -> int:
        return self.array.nbytes


def _mapped_file(owner: object) -> mmap | None:
    """The mapped file that an object sees, through however many arrays."""
    while isinstance(owner, np.ndarray):
        owner = owner.base
    owner = owner.obj if isinstance(owner, memoryview) else owner
    return owner if isinstance(owner, mmap) else None


@dataclass(frozen=True, repr=False)
class Model:
    """A finished NNAPI model, as devices see it. It pickles with a copy of its constants."""

    main: Subgraph
    referenced: tuple[Subgraph, ...] = ()
    operand_values: bytes = b""
    """The small constants (CONSTANT_COPY), packed as NNAPI packs them."""
    pools: tuple[Pool, ...] = ()
    relaxed: bool = False
    """``relaxComputationFloat32toFloat16``."""
    extensions: Mapping[str, int] = field(default_factory=dict)
    """Extension name → prefix, for the extensions in use."""
    name: str = ""
    states: tuple[State, ...] = ()
    """Values that go from one execution to the next; for NNAPI these are inputs and outputs like others."""
    resolution: Resolution | None = field(default=None, compare=False, repr=False)
    """The way to the model of known dimensions; None where nothing is open, and for models that no importer made."""

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "resolution": None}  # Another process has no open file.

    def resolved(self, dims: Sequence[tuple[int, ...]]) -> Model | None:
        """The same model for inputs of known dimensions, whose operations have known dimensions too; None if there is none.

        It has the same inputs and outputs in the same order. ConversionError for dimensions that do not fit.
        """
        # Parts of a model and changed copies are other models.
        if self.resolution is None or self.resolution.main is not self.main:
            return None
        found = self.resolution.at(dims)
        return found if _interface(found.main) == _interface(self.main) else None

    def __repr__(self) -> str:
        sides = (", ".join(str(self.main.operands[i]) for i in side) for side in (self.own_inputs, self.own_outputs))
        return f"Model({self.name!r}: {len(self.main.operations)} operations, {' -> '.join(sides)})"

    @cached_property
    def own_inputs(self) -> tuple[int, ...]:
        """The operands that a caller sets: the inputs without states."""
        states = {state.input for state in self.states}
        return tuple(operand for i, operand in enumerate(self.main.inputs) if i not in states)

    @cached_property
    def own_outputs(self) -> tuple[int, ...]:
        """The operands that a caller asks for: the outputs without states."""
        states = {state.output for state in self.states}
        return tuple(operand for i, operand in enumerate(self.main.outputs) if i not in states)

    def subgraphs(self) -> tuple[Subgraph, ...]:
        """The main subgraph, then the referenced ones."""
        return (self.main, *self.referenced)

    def value(self, operand: Operand, byte_size: int | None = None) -> Array | None:
        """The constant value of an operand as a read-only array that aliases the model, or None if it has none.

        Scalars have shape ``()``. Extension operands and OEM values come as bytes (uint8, flat)
        unless ``byte_size`` is the element size that their extension declares.
        """
        if not operand.is_constant:
            return None
        transposed = self._transposed(operand)
        if transposed is not None:
            return transposed
        data = self.bytes_of(operand)
        dtype = None if is_extension(operand.type) else TYPE_FACTS[operand.type].dtype
        if dtype is None:
            return np.frombuffer(data, np.uint8).reshape(-1, byte_size) if byte_size else np.frombuffer(data, np.uint8)
        return np.frombuffer(data, dtype).reshape(operand.dims)

    def _transposed(self, operand: Operand) -> Array | None:
        """A transposed matrix that lies as it does in its file, which planning must not read; products read it as it is."""
        if operand.lifetime is not Lifetime.CONSTANT_REFERENCE:
            return None
        pool = self.pools[operand.location.pool]
        if not isinstance(pool, ArrayPool) or pool.array.ndim != 2 or not pool.array.T.flags.c_contiguous:
            return None
        pool.check()
        view = pool.array.view()
        view.flags.writeable = False
        return view if view.shape == operand.dims and view.nbytes == operand.location.length else None

    def with_main(self, operands: Sequence[Operand], values: Mapping[int, Array]) -> Model:
        """A copy with these operands, some of which have other values; one pool more for each of them."""
        changed = list(operands)
        for number, (i, value) in enumerate(values.items(), len(self.pools)):
            changed[i] = changed[i].at(Lifetime.CONSTANT_REFERENCE, Location(number, 0, value.nbytes))
        pools = (*self.pools, *map(ArrayPool, values.values()))
        return replace(self, main=replace(self.main, operands=tuple(changed)), pools=pools)

    def bytes_of(self, operand: Operand) -> memoryview:
        """The bytes of a constant."""
        at = operand.location
        if operand.lifetime is Lifetime.CONSTANT_COPY:
            return memoryview(self.operand_values)[at.offset : at.offset + at.length]
        return self.pools[at.pool].part(at.offset, at.length)

    def extension_of(self, code: int) -> tuple[str, int] | None:
        """Extension name and number of an extension code of this model."""
        if not is_extension(code):
            return None
        prefix, number = split_extension_code(code)
        return next(((name, number) for name, known in self.extensions.items() if known == prefix), None)

    def operation_name(self, operation: Operation) -> str:
        """A readable operation name; extension operations as ``extension#number``."""
        extension = self.extension_of(operation.type)
        return f"{extension[0]}#{extension[1]}" if extension else operation_name(operation.type)


@dataclass(frozen=True, eq=False)
class Resolution:
    """The way from a model whose inputs have open dimensions to one of known dimensions: converted once more."""

    main: Subgraph
    """Of the model that it belongs to."""
    at: Callable[[Sequence[tuple[int, ...]]], Model]
    """From the dimensions of each input."""


def _interface(main: Subgraph) -> list[tuple[object, ...]]:
    ends = [main.operands[i] for i in (*main.inputs, *main.outputs)]
    return [(operand.type, operand.name, operand.scale, operand.zero_point) for operand in ends]


def float32(scale: float) -> float:
    """A scale as NNAPI's structures hold it: rounded to float32, infinite beyond its range."""
    if scale == 0:
        return 0.0
    try:
        return float(_FLOAT32.unpack(_FLOAT32.pack(scale))[0])
    except OverflowError:
        return math.copysign(math.inf, scale)


def known(dims: Sequence[int]) -> bool:
    """True if a tensor's dimensions are all known (and its rank is)."""
    return len(dims) > 0 and all(d > 0 for d in dims)


def input_name(operand: Operand, index: int) -> str:
    """The name of a model input; ``input0`` … where the file has none."""
    return operand.name or f"input{index}"


def output_name(operand: Operand, index: int) -> str:
    """The name of a model output; ``output0`` … where the file has none."""
    return operand.name or f"output{index}"
