"""Called subgraphs written out in the place of the calls."""

from __future__ import annotations

from collections.abc import Sequence

from nnbridge.converters.inspection import Mapped
from nnbridge.converters.mapping import MappingKind
from nnbridge.errors import ConversionError, Reason
from nnbridge_tflite.passes.conversion import Conversion
from nnbridge_tflite.read.graph import Operator


def inlined(c: Conversion, operator: Operator, number: int, arguments: Sequence[int]) -> Mapped:
    callee = c.callee(number, operator, c.draft, c.variables)
    callee.check_interface(main=False)
    require_counts(callee, operator, arguments)
    for inner, outer in zip(callee.graph.inputs, arguments, strict=True):
        pass_value(c, callee, outer, inner)
    callee.convert()
    callee.report()
    for inner, outer in zip(callee.graph.outputs, operator.outputs, strict=True):
        pass_value(callee, c, inner, outer)
    return Mapped(operator.index, operator.name, MappingKind.INLINED)


def pass_value(source: Conversion, target: Conversion, index: int, to: int) -> None:
    """Hand on a tensor's value, or what it stands for."""
    if not pass_handle(source, target, index, to):
        target.values.adopt(to, source.values.value(index), source.values.constant(index))


def pass_handle(source: Conversion, target: Conversion, index: int, to: int) -> bool:
    """Hand on what a resource tensor stands for; False for other tensors."""
    if not target.is_handle(to):
        return False
    if index in source.handles:
        target.handles[to] = source.handles[index]
    return True


def require_counts(callee: Conversion, operator: Operator, arguments: Sequence[int]) -> None:
    for what, inner, outer in (("inputs", callee.graph.inputs, arguments), ("outputs", callee.graph.outputs, operator.outputs)):
        if len(inner) != len(outer):
            raise ConversionError(Reason(f"{len(outer)} {what} of subgraph {callee.number}", str(len(inner)), operator.label))
    if any(i < 0 for i in arguments):
        raise ConversionError(Reason("every input", "an omitted one", operator.label))
