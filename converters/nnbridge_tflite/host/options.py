"""Parameters of a host operation beside its operands: the operator's options, and values that operands cannot hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from nnbridge.converters.draft import Value
from nnbridge.types import OperandCode
from nnbridge_tflite.declaration import definition_of
from nnbridge_tflite.host.codes import BODY, CHANNELS, PARAMETERS, SCALARS, VERSION
from nnbridge_tflite.read.graph import Operator, Tensor


def host_options(operator: Operator, tensors: Sequence[Tensor], body: str = "") -> dict[str, object]:
    """The builtin's options, a custom operator's code and bytes, and parameters of channels and intermediates.

    ``body`` is the only operator of the subgraph that the operator applies.
    """
    options: dict[str, object] = dict(operator.options)
    if operator.custom:
        options["custom_code"] = operator.name
        options["custom_options"] = operator.custom_options.hex()
        options |= {VERSION: operator.version} if operator.version != 1 else {}
    channels = {
        str(i): {"scales": list(q.scales), "zero_points": list(q.zero_points), "axis": q.axis}
        for i, index in enumerate(operator.inputs)
        if index >= 0 and (q := tensors[index].quantisation).per_channel
    }
    if channels:
        options[CHANNELS] = channels
    declared = definition_of(operator)
    scalars = [i for i, index in enumerate(operator.inputs) if index >= 0 and not tensors[index].shape]
    if declared is not None and declared.needs_ranks and scalars:
        options[SCALARS] = scalars
    if body:
        options[BODY] = body
    if operator.intermediates:
        # Tensors that only lend their parameters to the operator.
        lent = [tensors[i].quantisation if i >= 0 else None for i in operator.intermediates]
        options["intermediates"] = [{} if q is None else {"scale": q.scale, "zero_point": q.zero_point} for q in lent]
    return options


def carried_parameters(
    operator: Operator, tensors: Sequence[Tensor], inputs: Sequence[Value], outputs: Sequence[Value]
) -> Mapping[str, object]:
    """Scale and zero point of operands whose type has no parameters in NNAPI: the extension's types, and int32 outputs."""
    found = {}
    for side, indexes, values in (("inputs", operator.inputs, inputs), ("outputs", operator.outputs, outputs)):
        listed = {
            str(i): [tensors[index].quantisation.scale, tensors[index].quantisation.zero_point]
            for i, (index, value) in enumerate(zip(indexes, values, strict=True))
            if (value.extension or (values is outputs and value.type == OperandCode.TENSOR_INT32))
            and index >= 0
            and tensors[index].quantisation.scale > 0
        }
        if listed:
            found[side] = listed
    return {PARAMETERS: found} if found else {}
