"""The host extension ``org.tensorflow.lite``: TFLite's operators and element types that NNAPI does not have."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from nnbridge.extensions import OPTIONS_TYPE, ExtensionOperandType, HostExtension, HostKernel, HostOperation
from nnbridge_tflite import kernels_lstm, kernels_quantised, kernels_shapes
from nnbridge_tflite.draft import EXTENSION
from nnbridge_tflite.graph import ELEMENT_TYPES
from nnbridge_tflite.kernels import KERNELS, Array, Options, Tensors
from nnbridge_tflite.schema import builtin_names

KERNEL_MODULES = (kernels_lstm, kernels_quantised, kernels_shapes)
"""Imported for the kernels that they register."""

NO_KERNEL = "an operator that nnbridge's host computes"
"""Why an operation of the extension is refused when it runs."""


def _as_declared(kernel: HostKernel) -> HostKernel:
    """A kernel whose answers take the declared dimensions: what is a scalar in TFLite is a vector of one element here."""

    def run(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
        results = [np.asarray(result) for result in kernel(inputs, outputs, options)]
        return [_shaped(result, out.dims) for result, out in zip(results, outputs, strict=True)]

    return run


def _shaped(result: Array, dims: tuple[int, ...]) -> Array:
    if dims and 0 not in dims and math.prod(dims) == result.size:
        return result.reshape(dims)
    return result.reshape(1) if result.ndim == 0 else result


def _operations() -> dict[int, HostOperation]:
    made = {}
    for code, name in builtin_names().items():
        kernel = KERNELS.get(name)
        made[code] = HostOperation(name, None if kernel is None else _as_declared(kernel), "" if kernel else NO_KERNEL)
    return made


def _types() -> tuple[ExtensionOperandType, ...]:
    listed = []
    for element in ELEMENT_TYPES.values():
        dtype = None if element.dtype is None else element.dtype.str.lstrip("<|")
        # Strings and handles have no element size; their constants are bytes.
        listed.append(ExtensionOperandType(element.code, True, max(element.bits // 8, 1), element.name, dtype))
    return (*listed, OPTIONS_TYPE)


HOST = HostExtension(EXTENSION, _types(), _operations())
