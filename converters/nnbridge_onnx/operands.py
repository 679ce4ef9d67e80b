"""A graph's values as NNAPI operands: types, constants, and images in either order of their axes.

Every value exists in ONNX's own order of axes; what convolutions and pooling write or read exists channels-last as well or
instead, and a TRANSPOSE is drafted only where one order is required and the other one exists.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from nnbridge.budget import WorkBudget
from nnbridge.converters.draft import Draft, Region, Step, Unmappable, Value
from nnbridge.converters.mapping import MappingKind
from nnbridge.errors import Reason
from nnbridge.model import Array, ArrayPool, Source
from nnbridge.types import MAX_SIZE_OF_IMMEDIATELY_COPIED_VALUES, OperandCode, OperationCode
from nnbridge_onnx.declaration import declared
from nnbridge_onnx.host.extension import UNSUPPORTED, operation_code, options_of, options_value, type_code
from nnbridge_onnx.host.messages import encode
from nnbridge_onnx.passes.folding import Known
from nnbridge_onnx.passes.qdq import BYTES, QdqParameters
from nnbridge_onnx.read.graph import (
    BOOL,
    ELEMENT_TYPES,
    FLOAT,
    FLOAT16,
    INT8,
    INT32,
    INT64,
    MESSAGES,
    UINT8,
    Dims,
    Graph,
    Node,
    Tensor,
)  # fmt: skip

LAST = {3: (0, 2, 1), 4: (0, 2, 3, 1)}
"""Orders that bring channels to the last axis, by rank: images are lines or planes."""
FIRST = {3: (0, 2, 1), 4: (0, 3, 1, 2)}
"""Orders that bring them back."""
_TRANSPOSE_OPSET = 13
PLAIN = {
    FLOAT: (OperandCode.TENSOR_FLOAT32, 1),
    FLOAT16: (OperandCode.TENSOR_FLOAT16, 3),
    INT32: (OperandCode.TENSOR_INT32, 1),
    BOOL: (OperandCode.TENSOR_BOOL8, 3),
}
"""``TensorProto.DataType`` → operand type, and the feature level from which it exists."""
QUANTISED = {UINT8: (OperandCode.TENSOR_QUANT8_ASYMM, 1), INT8: (OperandCode.TENSOR_QUANT8_ASYMM_SIGNED, 4)}
_COMPARISONS = frozenset(["Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"])
TRANSPOSABLE = frozenset([FLOAT, FLOAT16, UINT8, INT8])
"""Types that TRANSPOSE accepts."""


def dims_of(shape: Dims | None) -> Dims:
    """NNAPI's dimensions for a shape: 0 where one is not known, a vector of one element for a scalar."""
    if shape is None:
        return ()
    return tuple(max(d, 0) for d in shape) or (1,)


def moved(dims: Sequence[int], order: Sequence[int]) -> Dims:
    """Dimensions in another order of axes."""
    return tuple(dims[i] for i in order)


def keeps_order(dims: Sequence[int], order: Sequence[int]) -> bool:
    """True if a new order of axes leaves all elements where they are."""
    places = [axis for axis in order if dims[axis] != 1]
    return places == sorted(places)


def in_place(value: Value) -> Value:
    """A large constant as the model may hold it: in the place where it is."""
    data = value.data
    if data is not None and data.nbytes > MAX_SIZE_OF_IMMEDIATELY_COPIED_VALUES:
        value.region = Region(ArrayPool(data), 0, data.nbytes)
    return value


class Operands(Known):
    """The values of a graph's main level, by name. Lowerings of a node can be undone: :meth:`mark`, :meth:`restore`."""

    def __init__(
        self,
        graph: Graph,
        draft: Draft,
        mapping: MappingKind,
        quantised: Mapping[str, QdqParameters],
        caller: Source | None,
        bodies: WorkBudget,
    ) -> None:
        super().__init__(graph)
        self.draft = draft
        self.bodies = bodies
        """Bytes of bodies that the file's control flow may still have converted."""
        self.mapping = mapping
        """What emitted operations are reported to come of."""
        self.quantised = quantised
        """Scale and zero point of 8-bit values."""
        # The bodies of a node are numbered from 1.
        self._subgraph = 0 if caller is None else caller.subgraph
        self._callers = () if caller is None else (*caller.callers, caller.index)
        self.source: Source | None = None
        self._nodes, self._outputs = graph.nodes, graph.outputs
        self._producers = {name: node for node in graph.nodes for name in node.outputs}
        self._inputs = frozenset(graph.inputs)
        self._first: dict[str, Value] = {}
        self._last: dict[str, Value] = {}
        self._flat: dict[str, tuple[Value, str]] = {}
        self._narrow: dict[str, Value] = {}
        self._journal: list[tuple[dict[str, Any], str, Any]] = []
        """What the four tables held before each change."""

    def begin(self, node: Node | None) -> None:
        """Begin a node: everything emitted from here on comes of it."""
        self.source = None if node is None else Source(node.index, node.operator, self._subgraph, self._callers)

    # -- what is known --------------------------------------------------------------------------------------------------

    def may_be_infinite(self, name: str) -> bool:
        """True if a constant that a value is computed from holds an infinity, as masks do."""
        return any(map(self._is_infinite, self._origins([name], _is_bounded)))

    @cached_property
    def questioned(self) -> frozenset[str]:
        """Values whose infinities the file asks for, and what these come of, up to products.

        It does so by IsInf and IsNaN, by comparisons with infinity, and by outputs that an infinite constant reaches.
        """
        asked = set(self._origins((name for node in self._nodes if self._asks(node) for name in node.inputs), _begins_anew))
        for output in self._outputs:
            origins = set(self._origins([output], _begins_anew))
            if any(map(self._is_infinite, origins)):
                asked |= origins
        return frozenset(asked)

    def _asks(self, node: Node) -> bool:
        if node.type in ("IsInf", "IsNaN"):
            return True
        floats = node.type in _COMPARISONS and self.tensor(node.inputs[0]).type in (FLOAT, FLOAT16)
        return floats and any(self.may_be_infinite(name) for name in node.inputs)

    def _origins(self, names: Iterable[str], ends: Callable[[Node], bool]) -> Iterator[str]:
        """Values and what they come of, up to constants and the outputs of nodes that ``ends`` holds for."""
        pending, seen = list(names), {""}
        while pending:
            name = pending.pop()
            if name in seen:
                continue
            seen.add(name)
            yield name
            producer = self._producers.get(name)
            if name not in self.constants and producer is not None and not ends(producer):
                pending.extend((*producer.inputs, *producer.captured))

    def _is_infinite(self, name: str) -> bool:
        """True for constants that hold an infinity."""
        array = self.constants.get(name)
        return array is not None and array.dtype.kind == "f" and bool(np.isinf(array).any())

    def producer(self, name: str) -> Node | None:
        """The node that writes a value."""
        return self._producers.get(name)

    def alias(self, name: str, source: str) -> None:
        """One name more for a value."""
        if source in self.constants:
            self.fold(name, self.constants[source], self.tensor(source).type)
            return
        self._tensors[name] = self.tensor(source)
        forms = (self._first, self._last, self._narrow)
        for form in forms:
            if source in form:
                self._put(form, name, form[source])
        if not any(name in form for form in forms):
            self._put(self._first, name, self.value(source))

    def mark(self) -> tuple[int, int]:
        """A state to return to."""
        return len(self.draft.steps), len(self._journal)

    def restore(self, mark: tuple[int, int]) -> None:
        """Undo what was drafted since a mark."""
        steps, changes = mark
        del self.draft.steps[steps:]
        while len(self._journal) > changes:
            table, name, before = self._journal.pop()
            if before is None:
                del table[name]
            else:
                table[name] = before

    def _put(self, table: dict[str, Any], name: str, value: Any) -> None:
        self._journal.append((table, name, table.get(name)))
        table[name] = value

    # -- values -----------------------------------------------------------------------------------------------------

    def value(self, name: str) -> Value:
        """The value in ONNX's own order of axes."""
        if name not in self._first:
            if name in self._last:
                self._put(self._first, name, self._reordered(self._last[name], name, last=False))
            elif name in self._flat:
                rows, image = self._flat[name]
                self._put(self._first, name, self._reshaped(self.value(image), rows.dims, name))
            elif name in self._narrow:
                self._put(self._first, name, self._cast(name, self._narrow[name], self.declared(name), INT32, INT64))
            elif name in self.constants:
                self._put(self._first, name, self.constant(self.constants[name], self.tensor(name).type, name))
            else:
                self._put(self._first, name, self.declared(name))
        return self._first[name]

    def is_narrow(self, name: str) -> bool:
        """True for INT64 values that exist as INT32, those of constants and of the model's inputs among them."""
        return self.tensor(name).type == INT64 and (name in self._narrow or name in self.constants or name in self._inputs)

    def narrow(self, name: str) -> Value:
        """An INT64 value as INT32; numbers that do not fit are refused, constants here and computed ones when they are met."""
        if name not in self._narrow:
            array = self.constants.get(name)
            if array is None:
                made = Value(OperandCode.TENSOR_INT32, dims_of(self.tensor(name).shape), name=f"{name} INT32")
                self._put(self._narrow, name, self._cast(name, self.value(name), made, INT64, INT32))
            else:
                self._put(self._narrow, name, self._narrow_constant(name, array))
        return self._narrow[name]

    def _narrow_constant(self, name: str, array: Array) -> Value:
        bad = next((int(v) for v in np.ravel(array) if not -(2**31) <= v < 2**31), None)
        if bad is not None:
            raise Unmappable(Reason("values that fit into 32 bits", str(bad), operand=name))
        return self.constant(array.astype(np.int32), INT32, name)

    def set_narrow(self, name: str, value: Value) -> None:
        """A node's INT64 result as INT32."""
        self._put(self._narrow, name, value)
        if self.shape(name) is None and value.dims and 0 not in value.dims:
            self._tensors[name] = Tensor(INT64, value.dims)

    def image(self, name: str) -> Value:
        """The value with channels last."""
        if name not in self._last:
            self._put(self._last, name, self._reordered(self.value(name), name, last=True))
        return self._last[name]

    def is_image(self, name: str) -> bool:
        """True if the value exists with channels last."""
        return name in self._last

    def prefers_first(self, names: Sequence[str]) -> bool:
        """True if fewer of these values have to be transposed for ONNX's own order than for channels last."""
        computed = [n for n in dict.fromkeys(names) if n not in self.constants and math.prod(self.shape(n) or (0,)) != 1]
        backwards = sum(n in self._last and n not in self._first for n in computed)
        return backwards < sum(n not in self._last for n in computed)

    def set_flat(self, name: str, rows: Value, image: str) -> None:
        """A node's result is an image as rows whose numbers are in the order of the channels-last image."""
        self._put(self._flat, name, (rows, image))

    def flat(self, name: str) -> tuple[Value, Dims] | None:
        """Such rows, and the image's channels, height and width."""
        if name not in self._flat:
            return None
        rows, image = self._flat[name]
        shape = self.shape(image)
        return None if shape is None else (rows, shape[1:])

    def declared(self, name: str) -> Value:
        """A new computed value, as inference describes it."""
        tensor = self.tensor(name)
        type, quantisation = self._type(tensor.type, name)
        dims = (0,) if tensor.type in MESSAGES else dims_of(tensor.shape)
        if quantisation is None:
            return Value(type, dims, name=name)
        return Value(type, dims, quantisation.scale, quantisation.zero_point, name=name)

    def set(self, name: str, value: Value) -> None:
        """A node's result."""
        self._put(self._first, name, value)
        if self.shape(name) is None and value.dims and 0 not in value.dims:
            self._tensors[name] = Tensor(self.tensor(name).type, value.dims)

    def set_image(self, name: str, value: Value) -> None:
        """A node's result with channels last."""
        self._put(self._last, name, value)
        if self.shape(name) is None and value.rank in FIRST and 0 not in value.dims:
            self._tensors[name] = Tensor(self.tensor(name).type, moved(value.dims, FIRST[value.rank]))

    def _type(self, type: int, name: str) -> tuple[int, QdqParameters | None]:
        plain, since = PLAIN.get(type, (None, 0))
        if plain is not None and since <= self.draft.feature_level:
            return plain, None
        quantised, since = QUANTISED.get(type, (None, 0))
        found = self.quantised.get(name, BYTES)
        if quantised is not None and found is not None and since <= self.draft.feature_level:
            return quantised, found
        return type_code(type if type in ELEMENT_TYPES else UNSUPPORTED), None

    def constant(self, array: Array, type: int, name: str = "") -> Value:
        """A constant as the file has it; one without elements is an omitted operand."""
        if type in MESSAGES:
            array = encode(array, type)
        code, quantisation = self._type(type, name)
        if array.size == 0:
            value = Value(code, (0,), name=name, omitted=True)
        else:
            stored = array.view(np.uint8) if array.dtype == np.bool_ else array
            stored = stored.reshape(array.shape or (1,))
            value = Value(code, stored.shape, name=name, data=stored)
        if quantisation is not None:
            value.scale, value.zero_point = quantisation.scale, quantisation.zero_point
        return value if value.omitted else in_place(value)

    def _reordered(self, value: Value, name: str, *, last: bool) -> Value:
        order = (LAST if last else FIRST).get(value.rank)
        if order is None or value.extension:
            raise Unmappable(Reason("an image of rank 3 or 4 that NNAPI can hold", f"rank {value.rank}", operand=name))
        if value.data is not None:
            return value.like(dims=moved(value.dims, order), data=np.ascontiguousarray(value.data.transpose(order)), name=name)
        dims, title = moved(value.dims, order), f"{name} {'NHWC' if last else 'NCHW'}"
        made = value.like(dims=dims, name=title)
        reshapes = 0 not in dims and keeps_order(value.dims, order)
        code, numbers = (OperationCode.RESHAPE, dims) if reshapes else (OperationCode.TRANSPOSE, order)
        try:
            self._add(code, (value, self.draft.ints(numbers)), made, f"{code.name} {title if reshapes else name}")
        except Unmappable:
            if last:
                raise
            # NNAPI has no TRANSPOSE yet, or the operation does not support the type.
            self._on_host("Transpose", name, value, made, self.tensor(name).type, perm=order)
        return made

    def _cast(self, name: str, value: Value, made: Value, source: int, target: int) -> Value:
        """A value in another type; the host checks that it holds its numbers."""
        self._on_host("Cast", name, value, made, source, to=target)
        return made

    def _on_host(self, kind: str, name: str, value: Value, made: Value, type: int, **attributes: Any) -> None:
        """An operator of one input on the host."""
        from onnx import helper

        proto = helper.make_node(kind, [name], [made.name], **attributes)
        node = Node(0, kind, "", "", _TRANSPOSE_OPSET, (name,), (made.name,), attributes, proto)
        options = {**options_of(node, {name: type}), "inputs": [name], "scalars": [], "empty": {}, "checked": True}
        self._add(operation_code(kind), (value, options_value(options)), made, f"{kind} {name}", MappingKind.HOST)

    def _reshaped(self, value: Value, dims: Dims, name: str) -> Value:
        made = value.like(dims=dims, name=name)
        self._add(OperationCode.RESHAPE, (value, self.draft.ints(dims)), made, f"RESHAPE {name}")
        return made

    def _add(self, code: int, inputs: tuple[Value, ...], made: Value, name: str, mapping: str = "") -> None:
        self.draft.add(Step(code, inputs, (made,), name, mapping or self.mapping, self.source))


def _is_bounded(node: Node) -> bool:
    found = declared(node)
    return found is not None and found.bounded


def _begins_anew(node: Node) -> bool:
    """The case in which no one asks for the infinities before a value: products, and what is bounded or not known."""
    found = declared(node)
    return found is None or found.bounded or found.product is not None
