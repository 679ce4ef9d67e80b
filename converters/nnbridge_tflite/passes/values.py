"""TFLite tensors as NNAPI values: types, quantisation, constants without copies."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from nnbridge.converters.draft import Draft, Region, Value
from nnbridge.errors import ConversionError, Reason
from nnbridge.model import Array, ChannelQuant
from nnbridge.types import OperandCode
from nnbridge_tflite.host.codes import extension_code
from nnbridge_tflite.passes.states import Variables
from nnbridge_tflite.read.graph import Blocks, Tensor
from nnbridge_tflite.read.reader import TfliteFile
from nnbridge_tflite.read.sparse import dense

BASE_TYPES = {
    "FLOAT32": (OperandCode.TENSOR_FLOAT32, 1),
    "FLOAT16": (OperandCode.TENSOR_FLOAT16, 3),
    "INT32": (OperandCode.TENSOR_INT32, 1),
    "UINT8": (OperandCode.TENSOR_QUANT8_ASYMM, 1),
    "INT8": (OperandCode.TENSOR_QUANT8_ASYMM_SIGNED, 1),
    "INT4": (OperandCode.TENSOR_QUANT8_ASYMM_SIGNED, 1),
    "BOOL": (OperandCode.TENSOR_BOOL8, 3),
}
"""Element type → operand type and the feature level from which it exists; int8 goes as uint8 below level 4."""

SIGNED_LEVEL = 4
PER_CHANNEL_LEVEL = 3
_QUANTISED = ("UINT8", "INT8", "INT4")


class TensorValues:
    """The values of one subgraph's tensors, by tensor index."""

    def __init__(
        self,
        file: TfliteFile | None,
        tensors: Sequence[Tensor],
        written: frozenset[int],
        draft: Draft,
        variables: Variables | None = None,
        subgraph: int = 0,
    ) -> None:
        self.file = file
        self.tensors = tensors
        self.draft = draft
        self._written = written
        self.variables = Variables() if variables is None else variables
        self._subgraph = subgraph
        self._states: frozenset[int] = frozenset()
        self._inputs: frozenset[int] = frozenset()
        self._values: dict[int, Value] = {}
        self._constants: dict[int, Array | None] = {}
        self._foreseen: dict[int, Array] = {}
        self._nodes: set[int] = set()

    @classmethod
    def of_arrays(
        cls, tensors: Sequence[Tensor], arrays: Mapping[int, Array], draft: Draft, states: Iterable[int] = ()
    ) -> TensorValues:
        """Tensors without a file: those with an array are constants, the others are written; ``states`` are variables."""
        values = cls(None, tensors, frozenset(range(len(tensors))) - set(arrays), draft)
        values._constants.update(arrays)
        values._states = frozenset(states)
        return values

    # -- constants --------------------------------------------------------------------------------------------------

    def constant(self, index: int) -> Array | None:
        """A tensor's constant value, from the file or folded; None for computed tensors. Never written to."""
        if index not in self._constants:
            self._constants[index] = self._read(self.tensors[index])
        return self._constants[index]

    def _read(self, tensor: Tensor) -> Array | None:
        if tensor.index in self._written or tensor.type.dtype is None:
            return None
        if tensor.data is None:
            return self._without_data(tensor)
        assert self.file is not None
        raw = self.file.bytes_at(tensor.data)
        # Packed elements do not lie in the file one after the other.
        if tensor.sparsity is None and tensor.blocks is None and tensor.type.bits >= 8:
            return np.frombuffer(raw, tensor.type.dtype).reshape(tensor.shape)
        self.draft.spend(tensor.elements)
        if tensor.blocks is not None:
            return self._of_blocks(tensor, tensor.blocks, raw)
        return (
            unpacked(raw, tensor.shape, tensor.type.bits, tensor.type.dtype)
            if tensor.sparsity is None
            else dense(tensor, raw, self.file.bytes_at)
        )

    def _of_blocks(self, tensor: Tensor, blocks: Blocks, raw: memoryview) -> Array:
        """Each block times its scale."""
        stored = unpacked(raw, tensor.shape, 4) if blocks.stored.name == "INT4" else np.frombuffer(raw, np.int8)
        scales = self.constant(blocks.scales)
        if scales is None:
            raise ConversionError(Reason("constant scales of blocks", str(self.tensors[blocks.scales]), tensor.label))
        real = stored.reshape(-1, blocks.size) * scales.reshape(-1, 1).astype(np.float32)
        return real.reshape(tensor.shape)

    def _without_data(self, tensor: Tensor) -> Array | None:
        """A tensor of no elements is constant without a buffer, whatever TFLite takes it for."""
        return np.zeros(tensor.shape, tensor.type.dtype) if tensor.elements == 0 and tensor.shape else None

    def known(self, index: int) -> Array | None:
        """A tensor's constant value, or what an operator that stays in the graph computes whatever the inputs are."""
        return self._foreseen[index] if index in self._foreseen else self.constant(index)

    def foresee(self, index: int, array: Array) -> None:
        """Foresee the value of a computed tensor for shape inference; it stays computed."""
        self.draft.spend(array.size)
        self._foreseen[index] = array

    def stored(self, index: int) -> bool:
        """True for a constant that Android's delegate has as one: the file's, not what a node of the graph computes."""
        return index not in self._nodes and self.constant(index) is not None

    def fold(self, index: int, array: Array, *, node: bool = True) -> None:
        """Make a computed tensor a constant; ``node``: TFLite has a node that computes it."""
        self.draft.spend(array.size)
        if node:
            self._nodes.add(index)
        self._constants[index] = array
        value = self._declared(self.tensors[index])
        value.dims = array.shape or (1,)
        value.data = self._in_nnapi(array, value).reshape(value.dims)
        self._values[index] = value

    def is_state(self, index: int) -> bool:
        """True for a variable tensor: it starts at zero and holds its value from run to run."""
        tensor = self.tensors[index]
        listed = tensor.is_variable and tensor.data is None and tensor.elements > 0 and tensor.type.dtype is not None
        return index in self._states or (listed and index not in self._written and index not in self._inputs)

    def _state(self, tensor: Tensor) -> Value:
        """A variable tensor's present value; before the first run it is zero."""
        key = (self._subgraph, tensor.index)
        if self.variables.held(key) is None:
            self.draft.spend(tensor.elements)
            first = self._declared(tensor)
            start = tensor.quantisation.zero_point if tensor.type.name == "INT8" else 0
            first.data = self._in_nnapi(np.full(tensor.shape, start, tensor.type.dtype), first).reshape(first.dims)
            self.variables.begin(key, first)
        return self.variables.read(key)

    # -- values -----------------------------------------------------------------------------------------------------

    def value(self, index: int) -> Value:
        """A tensor's value."""
        if index not in self._values:
            self._values[index] = self._made(self.tensors[index])
        return self._values[index]

    def fresh_output(self, index: int) -> Value:
        """A value for a tensor that an operator is about to write."""
        return self._declared(self.tensors[index])

    def commit(self, index: int, value: Value) -> None:
        """The value that a tensor has from now on."""
        self._values[index] = value

    def adopt(self, index: int, value: Value, array: Array | None) -> None:
        """A tensor is what another subgraph has: a value, and what is known about it."""
        self._values[index] = value
        self._constants[index] = array

    def carry(self, index: int, value: Value) -> None:
        """Set the value of a variable tensor from now on, and for the next run."""
        value.name = value.name or f"{self.tensors[index].name} (next)"
        self._values[index] = value
        self.variables.assign((self._subgraph, index), value)

    def make_inputs(self, indexes: Sequence[int]) -> None:
        """Tensors that the caller passes, whatever the file holds for them."""
        self._inputs = frozenset(indexes)
        for i in indexes:
            self._constants[i] = None
            self._values[i] = self._declared(self.tensors[i])

    def shape(self, index: int) -> tuple[int, ...] | None:
        """A tensor's dimensions as TFLite counts them, or None while one is open."""
        dims = self.value(index).dims
        if not self.tensors[index].shape and dims == (1,):
            return ()
        return None if 0 in dims and self.constant(index) is None else dims

    def _made(self, tensor: Tensor) -> Value:
        value = self._declared(tensor)
        if self.is_state(tensor.index) and tensor.index not in self._states:
            return self._state(tensor)
        array = self.constant(tensor.index)
        if array is None and tensor.type.dtype is None and tensor.data is not None and self.file is not None:
            # Strings: the bytes as they lie in the file.
            array = np.frombuffer(self.file.bytes_at(tensor.data), np.uint8)
            value.dims = array.shape
        if array is None:
            return value
        if array.size == 0:
            value.omitted = True
            return value
        self._make_per_channel(value, tensor)
        stored = self._in_nnapi(array, value)
        value.data = stored.reshape(value.dims)
        in_place = tensor.sparsity is None and tensor.blocks is None and tensor.type.bits >= 8
        in_place = in_place and (stored is array or np.shares_memory(stored, array))
        if in_place and tensor.data is not None and self.file is not None:
            value.region = Region(self.file.pool, tensor.data.offset, tensor.data.length)
        return value

    def _declared(self, tensor: Tensor) -> Value:
        """The value that a tensor's declaration describes."""
        quantisation = tensor.quantisation
        base, since = BASE_TYPES.get(tensor.type.name, (None, 0))
        value = Value(base or 0, tensor.shape or (1,), name=tensor.name, open_dims=_open_dims(tensor))
        if tensor.type.name == "INT16" and quantisation.scale > 0 and quantisation.zero_point == 0:
            base, since = OperandCode.TENSOR_QUANT16_SYMM, 3
        if base is None or since > self.draft.feature_level or (quantisation.per_channel and tensor.type.name in _QUANTISED):
            # One scale for each channel is for constants, which get NNAPI's type for it.
            value.type = extension_code(tensor.type.code)
            return value
        value.type = base
        if tensor.type.name in _QUANTISED or base is OperandCode.TENSOR_QUANT16_SYMM:
            # NNAPI has no 8-bit integers without a scale; 1 leaves them as they are.
            value.scale = quantisation.scale or (quantisation.scales or (1.0,))[0] or 1.0
            value.zero_point = quantisation.zero_point
        if base is OperandCode.TENSOR_QUANT8_ASYMM_SIGNED and self.draft.feature_level < SIGNED_LEVEL:
            value.type = OperandCode.TENSOR_QUANT8_ASYMM
            value.zero_point += 128
            value.source_type = "int8"
        return value

    def _make_per_channel(self, value: Value, tensor: Tensor) -> None:
        """Constant int8 with a scale for each channel is NNAPI's symmetric per-channel type, also below level 4."""
        quantisation = tensor.quantisation
        points = quantisation.zero_points
        if tensor.type.name not in ("INT8", "INT4") or not quantisation.per_channel or points.count(0) < len(points):
            return
        if self.draft.feature_level < PER_CHANNEL_LEVEL or min(quantisation.scales) <= 0:
            return
        value.type, value.scale, value.zero_point = OperandCode.TENSOR_QUANT8_SYMM_PER_CHANNEL, 0.0, 0
        value.channel_quant = ChannelQuant(quantisation.scales, quantisation.axis, sound=self.file is not None)

    def _in_nnapi(self, array: Array, value: Value) -> Array:
        """A constant's elements as the operand type has them."""
        if array.dtype == np.int8 and value.type == OperandCode.TENSOR_QUANT8_ASYMM:
            self.draft.spend(array.size)
            return array.view(np.uint8) ^ np.uint8(0x80)
        return array.view(np.uint8) if array.dtype == np.bool_ else array


def _open_dims(tensor: Tensor) -> tuple[int, ...]:
    """A tensor's dimensions with 0 where the file leaves them open; empty if it leaves none open."""
    if -1 not in tensor.signature or len(tensor.signature) != len(tensor.shape):
        return ()
    return tuple(0 if known < 0 else size for known, size in zip(tensor.signature, tensor.shape, strict=True))


def unpacked(raw: memoryview, shape: tuple[int, ...], bits: int, dtype: npt.DTypeLike = np.int8) -> Array:
    """Integers of some bits from each byte, the low ones first, sign-extended if they have a sign."""
    packed = np.frombuffer(raw, dtype)
    both = np.stack([np.left_shift(packed, 8 - bits - at) >> (8 - bits) for at in range(0, 8, bits)], axis=-1).reshape(-1)
    count = int(np.prod(shape, dtype=np.int64))
    return np.ascontiguousarray(both[:count]).reshape(shape)
