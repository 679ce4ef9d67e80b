"""Partitions that LiteRT's MediaTek compiler compiled with nnbridge's adapter: operators that stand for saved models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from nnbridge.converters.draft import Region, Step, Unmappable, Value
from nnbridge.converters.inspection import Mapped
from nnbridge.converters.mapping import MappingKind
from nnbridge.errors import ConversionError, Reason, Stage, Why
from nnbridge.model import Model, Operand
from nnbridge.storage.compiled import IDENTIFIER, partition_in
from nnbridge.types import Lifetime
from nnbridge_tflite.declaration import TfliteOperator, inputs, outputs
from nnbridge_tflite.operators.detection import flexbuffer
from nnbridge_tflite.passes.conversion import Conversion
from nnbridge_tflite.read.graph import DISPATCH, Operator
from nnbridge_tflite.read.reader import contains

DISPATCH_OP = TfliteOperator(
    DISPATCH,
    "A partition that LiteRT's compiler compiled for a device ([neuron.md](neuron.md)): its saved model is written out.",
    inputs("arguments?*"),
    outputs("results*"),
    delegate="Android's delegate maps no custom operator",
    custom=True,
    refusal="a partition whose saved model is written out at conversion",
)
_FIELDS = {"bytecode_offset": int, "bytecode_size": int, "name": str}


@DISPATCH_OP.handles
def dispatch(c: Conversion, operator: Operator) -> Mapped:
    """The operations of the partition's model, on the operator's operands."""
    file = c.context.file
    if not contains(file.pool, IDENTIFIER):
        rule, found = "a partition that nnbridge compiled (nnbridge build neuron-file)", "another compiler's"
        return c.host(operator, [Reason(rule, found, operator.label, kind=Why.OPERATOR, stage=Stage.OWN)])
    options = _options(operator)
    start, size = options["bytecode_offset"], options["bytecode_size"]
    if start < 0 or size < 0 or start + size > len(file.pool):
        rule = f"compiled partitions inside the file's {len(file.pool)} bytes"
        raise ConversionError(Reason(rule, f"{size} at byte {start}", operator.label))
    partition = partition_in(file.pool.data[start : start + size], options["name"], operator.label)
    model = partition.model
    c.context.relaxed |= model.relaxed
    arguments = [c.values.value(i) for i in operator.inputs if i >= 0]
    results = [c.values.fresh_output(i) for i in operator.outputs]
    values = {**_bound(operator, model, model.main.inputs, arguments), **_bound(operator, model, model.main.outputs, results)}
    _write_out(c, operator, model, values)
    for i, value in zip(operator.outputs, results, strict=True):
        c.values.commit(i, value)
    return Mapped(operator.index, operator.name, MappingKind.WIDE)


def _options(operator: Operator) -> dict[str, Any]:
    found = flexbuffer(operator.custom_options, operator.label)
    for name, kind in _FIELDS.items():
        if not isinstance(found.get(name), kind):
            raise ConversionError(Reason(f"{name} as {kind.__name__}", repr(found.get(name)), operator.label))
    return found


def _bound(operator: Operator, model: Model, side: Sequence[int], values: Sequence[Value]) -> Mapping[int, Value]:
    """Operand of the model → the operator's value for it."""
    operands = [model.main.operands[i] for i in side]
    if len(operands) != len(values):
        raise ConversionError(Reason(f"{len(operands)} operands, as the partition has", str(len(values)), operator.label))
    for operand, value in zip(operands, values, strict=True):
        if value.dims and 0 in value.dims and len(value.dims) == len(operand.dims):
            value.dims = operand.dims
        if (operand.type, operand.dims) != (value.type, value.dims):
            raise ConversionError(Reason(f"{operand}, as the partition has", str(value.operand()), operator.label, value.name))
    return dict(zip(side, values, strict=True))


def _write_out(c: Conversion, operator: Operator, model: Model, values: Mapping[int, Value]) -> None:
    @cache
    def value(index: int) -> Value:
        return values.get(index) or _value(model, model.main.operands[index])

    for operation in model.main.operations:
        operands = tuple(map(value, operation.inputs)), tuple(map(value, operation.outputs))
        name = f"{operator.index}: {DISPATCH} {operation.name}"
        try:
            c.draft.add(Step(operation.type, *operands, name, operation.mapping, c.source(operator)))
        except Unmappable as error:
            raise ConversionError(error.reason) from error


def _value(model: Model, operand: Operand) -> Value:
    """A constant, an omitted operand, or a value between two operations."""
    value = Value(
        operand.type,
        operand.dims,
        operand.scale,
        operand.zero_point,
        operand.channel_quant,
        data=model.value(operand),
        omitted=operand.lifetime is Lifetime.NO_VALUE,
    )
    if operand.lifetime is Lifetime.CONSTANT_REFERENCE:
        at = operand.location
        value.region = Region(model.pools[at.pool], at.offset, at.length)
    return value
