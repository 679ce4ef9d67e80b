"""Numbers of 16 bits: an operator computes on them in float32, and its results are rounded once.

ONNX Runtime's CPU provider, which a phone's host is, has no kernels for most operators of float16 and bfloat16: it converts
what they read to float32 and what they compute back. NumPy, and with it the ``onnx`` package's evaluator, rounds each step, and
sums of float16 end at 65,504. So kernels and evaluator see float32 and know nothing of this; what NNAPI computes rounds as NNAPI.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Any

import numpy as np

from nnbridge.model import Array
from nnbridge_onnx.read.graph import BFLOAT16, FLOAT, FLOAT16

HALVES = (FLOAT16, BFLOAT16)
_AS_THEY_ARE = frozenset(
    [
        *("Cast", "CastLike", "EyeLike", "Bernoulli", "RandomNormalLike", "RandomUniformLike"),
        *(
            "If",
            "Loop",
            "Scan",
            "Optional",
            "Identity",
            "Reshape",
            "Flatten",
            "Transpose",
            "Squeeze",
            "Unsqueeze",
            "Shape",
            "Size",
        ),
        *("Concat", "Split", "Slice", "Gather", "GatherElements", "GatherND", "Expand", "Tile", "Compress", "Where", "Pad"),
        *("ReverseSequence", "SpaceToDepth", "DepthToSpace", "Trilu", "NonZero"),
    ]
)
"""Operators that convert, move or pass on: their results depend on the type, or hold what they read."""


def _is_half(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.dtype.itemsize == 2 and value.dtype.kind in "fV"


def widened(value: Any) -> Any:
    """A value whose numbers of 16 bits are float32; others as they are."""
    return value.astype(np.float32) if _is_half(value) else value


def once(function: Callable[..., Array]) -> Callable[..., Array]:
    """A function of an array, and its result of the same type, as a function that rounds numbers of 16 bits once."""

    @wraps(function)
    def rounding(x: Array) -> Array:
        return function(x.astype(np.float32)).astype(x.dtype) if _is_half(x) else function(x)

    return rounding


class Rounding:
    """The rounding of an operator's results: to the types that its schema says are those of its inputs."""

    def __init__(self, proto: Any, version: int) -> None:
        import onnx

        try:
            schema = onnx.defs.get_schema(proto.op_type, version, "")
        except onnx.defs.SchemaError:
            schema = None
        self.applies = schema is not None and proto.op_type not in _AS_THEY_ARE and "Sequence" not in proto.op_type
        if schema is None or not self.applies:
            return
        self._inputs = [(name, _variable(schema.inputs, i)) for i, name in enumerate(proto.input) if name]
        self._outputs = [_variable(schema.outputs, i) for i, name in enumerate(proto.output) if name]
        if proto.op_type == "DequantizeLinear":  # The scale's type, if no other is named.
            named = any(a.name == "output_dtype" and a.i for a in proto.attribute)
            self._outputs = [""] if named else [_variable(schema.inputs, 1)]

    def types(self, types: Mapping[str, int]) -> Mapping[str, int]:
        """The types of what the operator computes on."""
        return {name: FLOAT if type in HALVES and self.applies else type for name, type in types.items()}

    def run(self, compute: Callable[[Mapping[str, Array]], Sequence[Any]], feeds: Mapping[str, Array]) -> Sequence[Any]:
        """The operator's results."""
        if not self.applies:
            return compute(feeds)
        halves = {type: feeds[name].dtype for name, type in self._inputs if _is_half(feeds.get(name))}
        if not halves:
            return compute(feeds)
        results = compute({name: widened(value) for name, value in feeds.items()})
        kinds = [halves.get(type) for type in self._outputs]
        with np.errstate(over="ignore"):
            return [
                result if kind is None or np.asarray(result).dtype != np.float32 else np.asarray(result).astype(kind)
                for result, kind in zip(results, kinds, strict=True)
            ]


def _variable(parameters: Sequence[Any], i: int) -> str:
    """The schema's name for the type of an input or output; the last one may be repeated."""
    return str(parameters[min(i, len(parameters) - 1)].type_str) if parameters else ""
