"""What a host operation is told beside its operands: the operator's options and quantisation that operands cannot carry."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from nnbridge_tflite.graph import Operator, Tensor
from nnbridge_tflite.kernels import CHANNELS, PARAMETERS, SCALARS
from nnbridge_tflite.kernels_stablehlo import BODY

RANK_OF_INDEXES = frozenset({"GATHER", "ONE_HOT"})
"""Operators whose output has as many dimensions more as the indexes have; NNAPI has no tensors without dimensions."""


def host_options(operator: Operator, tensors: Sequence[Tensor], body: str = "") -> Mapping[str, object]:
    """The builtin's options, a custom operator's code and bytes, and parameters of operands and intermediates.

    ``body`` is the only operator of the subgraph that the operator applies.
    """
    options: dict[str, object] = dict(operator.options)
    if operator.custom:
        options["custom_code"] = operator.name
        options["custom_options"] = operator.custom_options.hex()
    channels = {
        str(i): {"scales": list(q.scales), "zero_points": list(q.zero_points), "axis": q.axis}
        for i, index in enumerate(operator.inputs)
        if index >= 0 and (q := tensors[index].quantisation).per_channel
    }
    if channels:
        options[CHANNELS] = channels
    scalars = [i for i, index in enumerate(operator.inputs) if index >= 0 and not tensors[index].shape]
    if operator.name in RANK_OF_INDEXES and scalars:
        options[SCALARS] = scalars
    if body:
        options[BODY] = body
    if operator.intermediates:
        options["intermediates"] = [_parameters(tensors, i) for i in operator.intermediates]
    return options


def carried_parameters(
    operator: Operator, tensors: Sequence[Tensor], extensions: Mapping[str, Sequence[bool]]
) -> dict[str, object]:
    """Scale and zero point of operands whose type is the extension's, which NNAPI leaves without parameters."""
    found = {}
    for side, indexes in (("inputs", operator.inputs), ("outputs", operator.outputs)):
        listed = {
            str(i): [tensors[index].quantisation.scale, tensors[index].quantisation.zero_point]
            for i, (index, extension) in enumerate(zip(indexes, extensions[side], strict=True))
            if extension and index >= 0 and tensors[index].quantisation.scale > 0
        }
        if listed:
            found[side] = listed
    return {PARAMETERS: found} if found else {}


def _parameters(tensors: Sequence[Tensor], index: int) -> dict[str, float]:
    """Scale and zero point of a tensor that only lends them to its operator."""
    if index < 0:
        return {}
    quantisation = tensors[index].quantisation
    return {"scale": quantisation.scale, "zero_point": quantisation.zero_point}
