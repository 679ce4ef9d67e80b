"""Resource variables and hash tables: handles, reads, assignments, look-ups."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from nnbridge.converters.declaration import Option
from nnbridge.converters.inspection import Mapped
from nnbridge.converters.mapping import MappingKind
from nnbridge.errors import ConversionError, Reason, Why
from nnbridge_tflite import dims
from nnbridge_tflite.declaration import NEVER_KNOWN, NO_SUBGRAPHS, TfliteOperator, inputs, outputs
from nnbridge_tflite.host.numbers import Array, Options, Tensors, data_of
from nnbridge_tflite.loads import (
    OUT,
    Prepare,
    PreparedOperator,
    UnknownError,
    alike,
    known_types,
    ranked,
    requires,
    same_shape,
    single,
    typed,
)
from nnbridge_tflite.passes.conversion import Conversion
from nnbridge_tflite.passes.states import Key
from nnbridge_tflite.read.graph import ELEMENT_TYPES, Operator, Tensor

_UNASSIGNED = "a variable that was assigned before it is read"
_NUMBERS = "a table of numbers; nnbridge's host holds no strings"


_TABLES = {("INT64", "STRING"), ("STRING", "INT64")}
"""Types of keys and values that TFLite has tables of."""
_HANDLE = (typed(0, "RESOURCE"), ranked(0, 1), single(0))


def _pairs(keys: int, values: int) -> Prepare:
    return requires(
        "keys of INT64 and values of STRING, or the other way round",
        lambda node: (node.type(keys), node.type(values)) in _TABLES,
        lambda node: (node.type(keys), node.type(values)),
        Why.INPUT_TYPE,
    )


def _named_types(node: PreparedOperator) -> tuple[str, ...]:
    return tuple(ELEMENT_TYPES[int(node.option(name))].name for name in ("key_dtype", "value_dtype"))


def _read(operator: Operator, tensors: Sequence[Tensor]) -> Sequence[int]:
    """READ_VARIABLE leaves the dimensions to the run where the file states none, as of a scalar."""
    return () if tensors[operator.outputs[0]].shape else NEVER_KNOWN


def _stated_dims(node: PreparedOperator) -> list[tuple[int, ...]]:
    """READ_VARIABLE's output has the dimensions that the file states; of a scalar only the run knows."""
    if not node.shape(OUT):
        raise UnknownError(OUT)
    return [node.shape(OUT)]


VAR_HANDLE = TfliteOperator(
    "VAR_HANDLE",
    "A variable's handle, known by container and name.",
    (),
    outputs("handle"),
    options=(Option("container", "", "of the variable"), Option("shared_name", "", "of the variable")),
    delegate=NO_SUBGRAPHS,
    effects=True,
    dynamic_unless=(),
    refusal=_UNASSIGNED,
    dims=lambda node: [node.shape(OUT)],
)
READ_VARIABLE = TfliteOperator(
    "READ_VARIABLE",
    "A variable's present value.",
    inputs("handle"),
    delegate=NO_SUBGRAPHS,
    dynamic_unless=_read,
    dims=_stated_dims,
    refusal=_UNASSIGNED,
    loads=(typed(0, "RESOURCE", "INT32"), single(0)),
)
ASSIGN_VARIABLE = TfliteOperator(
    "ASSIGN_VARIABLE",
    "A variable's value from now on.",
    inputs("handle", "value"),
    (),
    delegate=NO_SUBGRAPHS,
    effects=True,
    loads=(typed(0, "RESOURCE", "INT32"), single(0)),
)
HASHTABLE = TfliteOperator(
    "HASHTABLE",
    "A table's handle, known by number.",
    (),
    outputs("handle"),
    options=(
        Option("table_id", 0, "the table's number"),
        Option("key_dtype", 0, "the keys' TensorType; the tensors themselves state it"),
        Option("value_dtype", 0, "the values' TensorType; the tensors themselves state it"),
    ),
    delegate=NO_SUBGRAPHS,
    refusal=_NUMBERS,
    loads=(
        known_types("key_dtype", "value_dtype"),
        requires(
            "keys of INT64 and values of STRING, or the other way round",
            lambda node: _named_types(node) in _TABLES,
            _named_types,
            Why.INPUT_TYPE,
        ),
        typed(OUT, "RESOURCE"),
    ),
    dims=lambda node: [(1,)],
)
HASHTABLE_IMPORT = TfliteOperator(
    "HASHTABLE_IMPORT",
    "A table's contents.",
    inputs("handle", "keys", "values"),
    (),
    delegate=NO_SUBGRAPHS,
    effects=True,
    refusal="a table of constant numbers; nnbridge's host holds no strings",
    loads=(*_HANDLE, _pairs(1, 2), same_shape(1, 2)),
)
HASHTABLE_FIND = TfliteOperator(
    "HASHTABLE_FIND",
    "The values of keys in a table; a default for keys that it does not have.",
    inputs("handle", "keys", "default"),
    delegate=NO_SUBGRAPHS,
    loads=(*_HANDLE, alike(2, OUT), _pairs(1, OUT)),
    dims=dims.like(1),
)
HASHTABLE_SIZE = TfliteOperator(
    "HASHTABLE_SIZE",
    "The number of a table's keys.",
    inputs("handle"),
    delegate=NO_SUBGRAPHS,
    refusal=_NUMBERS,
    loads=(*_HANDLE, typed(OUT, "INT64")),
    dims=lambda node: [(1,)],
)
SKIP_GRAM = TfliteOperator(
    "SKIP_GRAM",
    "Sequences of words with some left out.",
    options=(
        Option("ngram_size", 0, "words of a sequence"),
        Option("max_skip_size", 0, "words left out between two"),
        Option("include_all_ngrams", False, "shorter sequences as well"),
    ),
    refusal="tensors of numbers; nnbridge's host holds no strings",
)


@VAR_HANDLE.handles
def var_handle(c: Conversion, operator: Operator) -> Mapped:
    """A variable's handle, known by container and name."""
    options = operator.options
    return _handle(c, operator, ("variable", options.get("container") or "", options.get("shared_name") or ""))


@HASHTABLE.handles
def hashtable(c: Conversion, operator: Operator) -> Mapped:
    """A table's handle, known by number."""
    return _handle(c, operator, ("table", operator.options.get("table_id") or 0))


def _handle(c: Conversion, operator: Operator, key: Key) -> Mapped:
    c.handles[operator.outputs[0]] = key
    return Mapped(operator.index, operator.name, MappingKind.FOLDED)


def _key(c: Conversion, operator: Operator) -> Key | None:
    """The variable or table that an operator's handle stands for; None for a handle of unknown origin."""
    return c.handles.get(operator.inputs[0])


_NO_TABLE = ("a table of numbers", "strings, or a table without contents")


def _refused(c: Conversion, operator: Operator, rule: str, found: str) -> Mapped:
    """An operation that the host refuses when it runs; handles are none of its operands."""
    data_of = tuple(c.values.value(i) for i in operator.inputs if not c.is_handle(i))
    out = c.values.fresh_output(operator.outputs[0])
    c.emit_host(operator, data_of, [out])
    c.values.commit(operator.outputs[0], out)
    return Mapped(operator.index, operator.name, MappingKind.HOST, (Reason(rule, found, operator.label, kind=Why.OPERAND_VALUE),))


def _named(c: Conversion, operator: Operator) -> Key:
    key = _key(c, operator)
    if key is None:
        label = c.graph.tensors[operator.inputs[0]].label
        raise ConversionError(Reason("a handle of a variable or a table", label, operator.label))
    return key


@READ_VARIABLE.handles
def read_variable(c: Conversion, operator: Operator) -> Mapped:
    """The variable's present value."""
    key = _key(c, operator)
    if key is None or c.variables.held(key) is None:
        return _refused(c, operator, "a variable that was assigned before it is read", "none yet")
    c.values.commit(operator.outputs[0], c.variables.read(key))
    return Mapped(operator.index, operator.name, MappingKind.STATE)


@ASSIGN_VARIABLE.handles
def assign_variable(c: Conversion, operator: Operator) -> Mapped:
    """The variable's value from now on."""
    c.variables.assign(_named(c, operator), c.values.value(operator.inputs[1]))
    return Mapped(operator.index, operator.name, MappingKind.STATE)


@HASHTABLE_IMPORT.handles
def hashtable_import(c: Conversion, operator: Operator) -> Mapped:
    """A table's contents, if they are constant numbers."""
    listed = [c.values.value(i) for i in operator.inputs[1:]]
    if all(c.values.constant(i) is not None for i in operator.inputs[1:]):
        c.context.tables.setdefault(_named(c, operator), (listed[0], listed[1]))
        return Mapped(operator.index, operator.name, MappingKind.FOLDED)
    return Mapped(
        operator.index,
        operator.name,
        MappingKind.FOLDED,
        (Reason("a table of constant numbers", "another", operator.label, kind=Why.OPERAND_VALUE),),
    )


@HASHTABLE_FIND.handles
def hashtable_find(c: Conversion, operator: Operator) -> Mapped:
    """A look-up on the host, which gets the table in the handle's place."""
    table = c.context.tables.get(_key(c, operator))
    if table is None:
        return _refused(c, operator, *_NO_TABLE)
    query, default = (c.values.value(i) for i in operator.inputs[1:])
    out = c.values.fresh_output(operator.outputs[0])
    out.dims = query.dims
    c.emit_host(operator, [*table, query, default], [out])
    c.values.commit(operator.outputs[0], out)
    return Mapped(operator.index, operator.name, MappingKind.HOST)


@HASHTABLE_SIZE.handles
def hashtable_size(c: Conversion, operator: Operator) -> Mapped:
    """The number of a table's keys."""
    table = c.context.tables.get(_key(c, operator))
    if table is None:
        return _refused(c, operator, *_NO_TABLE)
    c.values.fold(operator.outputs[0], np.array([table[0].dims[0]], np.int64))
    return Mapped(operator.index, operator.name, MappingKind.FOLDED)


@HASHTABLE_FIND.host_kernel
def host_table_values(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    if len(inputs) != 4:
        raise ValueError("a table of numbers; nnbridge's host holds no strings")
    keys, values, query, default = (data_of(tensor) for tensor in inputs)
    order = np.argsort(keys, kind="stable")
    positions = np.searchsorted(keys, query, sorter=order).clip(0, keys.size - 1)
    chosen = order[positions]
    return [np.where(keys[chosen] == query, values[chosen], default.reshape(-1)[0])]
