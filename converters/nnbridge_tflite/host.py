"""The host extension ``org.tensorflow.lite``: TFLite's operators and element types that NNAPI does not have."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from nnbridge.extensions import OPTIONS_TYPE, ExtensionOperandType, HostExtension, HostKernel, HostOperation
from nnbridge_tflite import (
    kernels_lstm,
    kernels_quantised,
    kernels_random,
    kernels_selection,
    kernels_shapes,
    kernels_stablehlo,
    kernels_volumes,
)
from nnbridge_tflite.extension import EXTENSION
from nnbridge_tflite.fold import MOVES
from nnbridge_tflite.graph import ELEMENT_TYPES
from nnbridge_tflite.host_reference import can_lower, reference
from nnbridge_tflite.kernels import CHANNELS, KERNELS, PARAMETERS, SCALARS, Array, Options, Tensors, quantised
from nnbridge_tflite.kernels_sixteen import SIXTEEN, is_sixteen
from nnbridge_tflite.schema import builtin_names

KERNEL_MODULES = (
    kernels_lstm,
    kernels_quantised,
    kernels_random,
    kernels_selection,
    kernels_shapes,
    kernels_stablehlo,
    kernels_volumes,
)
"""Imported for the kernels that they register."""

PER_CHANNEL = MOVES | {"DEQUANTIZE", "DENSIFY"}
"""Operators whose kernels take a scale for each channel, or do not care."""

CONTROL = {"IF": "if", "WHILE": "while", "STABLEHLO_WHILE": "while"}
"""Operators whose bodies the host runs."""

ROUNDED_ONCE = frozenset({"FULLY_CONNECTED"})
"""Operators with a scale for each unit whose 8-bit sums TFLite rounds once, where NNAPI's convolutions round twice."""

NO_KERNEL = "an operator that LiteRT has a kernel for"
REASONS = {
    "CALL_ONCE": "a subgraph that is run at conversion",
    "CUSTOM": "a custom operator that nnbridge knows",
    "HASHTABLE": "a table of numbers; nnbridge's host holds no strings",
    "HASHTABLE_IMPORT": "a table of constant numbers; nnbridge's host holds no strings",
    "HASHTABLE_SIZE": "a table of numbers; nnbridge's host holds no strings",
    "READ_VARIABLE": "a variable that was assigned before it is read",
    "SKIP_GRAM": "tensors of numbers; nnbridge's host holds no strings",
    "VAR_HANDLE": "a variable that was assigned before it is read",
}
"""Why operations of the extension are refused when they run."""


def _adapted(name: str, kernel: HostKernel) -> HostKernel:
    """A kernel between NNAPI's operands and TFLite's tensors.

    Operands of extension types get their parameters from the options, and answers take the declared dimensions: what is a
    scalar in TFLite is a vector of one element here.
    """

    def run(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
        if CHANNELS in options and name not in PER_CHANNEL and not can_lower(name):
            raise ValueError("one scale for each tensor")
        carried = options.get(PARAMETERS, {})
        inputs = _with_parameters(_without_dimensions(inputs, options.get(SCALARS, ())), carried.get("inputs", {}))
        outputs = _with_parameters(outputs, carried.get("outputs", {}))
        # Kernels of recurrent operators always tell their new states; nobody may want them.
        results = [np.asarray(result) for result in kernel(inputs, outputs, options)][: len(outputs)]
        return [_shaped(result, out.dims) for result, out in zip(results, outputs, strict=True)]

    return run


def _without_dimensions(tensors: Tensors, scalars: Sequence[int]) -> Tensors:
    return [
        replace(t, data=t.data.reshape(()), dims=()) if i in scalars and t.data is not None and t.data.size == 1 else t
        for i, t in enumerate(tensors)
    ]


def _with_parameters(tensors: Tensors, parameters: Mapping[str, Sequence[float]]) -> Tensors:
    if not parameters:
        return tensors
    found = [parameters.get(str(i)) for i in range(len(tensors))]
    return [replace(t, scale=p[0], zero_point=int(p[1])) if p is not None else t for t, p in zip(tensors, found, strict=True)]


def _shaped(result: Array, dims: tuple[int, ...]) -> Array:
    if dims and 0 not in dims and math.prod(dims) == result.size:
        return result.reshape(dims)
    return result.reshape(1) if result.ndim == 0 else result


def _integer_first(name: str, code: int, kernel: HostKernel | None) -> HostKernel:
    """A kernel that computes what has a lowering as NNAPI's reference kernels do, where that is exact or there is no other."""

    def run(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
        integers = any(t.dtype.itemsize == 1 and t.scale > 0 for t in (*inputs, *outputs))
        ways: list[HostKernel] = [partial(reference, name, code), *([kernel] if kernel is not None else [])]
        first, *rest = ways if integers else ways[::-1]
        try:
            return first(inputs, outputs, options)
        except ValueError:
            if not rest:
                raise
            return rest[0](inputs, outputs, options)

    return run


def _by_width(name: str, narrow: HostKernel | None, wide: HostKernel) -> HostKernel:
    """A kernel for 16-bit activations, and another for what it does not compute."""

    def run(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
        by_unit = name in ROUNDED_ONCE and CHANNELS in options and quantised(inputs[0])
        if narrow is None or by_unit or is_sixteen((*inputs[:3], *outputs)):
            try:
                return wide(inputs, outputs, options)
            except ValueError:
                if narrow is None:
                    raise
        return narrow(inputs, outputs, options)

    return run


def _operations() -> dict[int, HostOperation]:
    made = {}
    for code, name in builtin_names().items():
        kernel = KERNELS.get(name)
        if can_lower(name):
            kernel = _integer_first(name, code, kernel)
        if name in SIXTEEN:
            kernel = _by_width(name, kernel, SIXTEEN[name])
        refused = "" if kernel or name in CONTROL else REASONS.get(name, NO_KERNEL)
        made[code] = HostOperation(name, None if kernel is None else _adapted(name, kernel), refused, CONTROL.get(name, ""))
    return made


def _types() -> tuple[ExtensionOperandType, ...]:
    listed = []
    for element in ELEMENT_TYPES.values():
        dtype = None if element.dtype is None else element.dtype.str.lstrip("<|")
        # Strings and handles have no element size; their constants are bytes.
        listed.append(ExtensionOperandType(element.code, True, max(element.bits // 8, 1), element.name, dtype))
    return (*listed, OPTIONS_TYPE)


HOST = HostExtension(EXTENSION, _types(), _operations())
