"""Folding: what is known without running the model is worked out once, at conversion."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from nnbridge.errors import OpFailedError
from nnbridge_onnx.graph import Array, Node, dtype_of
from nnbridge_onnx.host import run_node
from nnbridge_onnx.values import Values

INT64 = 7
MAX_ELEMENTS = 1 << 22
"""Constants larger than this are not made at conversion; the operator runs instead."""

RANDOM = frozenset(["Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"])
_SIZES: dict[str, Callable[[Sequence[Array]], float]] = {
    "ConstantOfShape": lambda a: math.prod(map(int, np.ravel(a[0]))),
    "Range": lambda a: abs(a[1].item() - a[0].item()) / max(abs(a[2].item()), 1e-30),
    "Expand": lambda a: a[0].size * math.prod(map(int, np.ravel(a[1]))),
    "Tile": lambda a: a[0].size * math.prod(map(int, np.ravel(a[1]))),
    "OneHot": lambda a: a[0].size * float(np.ravel(a[1])[0]),
}
"""Operators whose results may be much larger than their inputs, and how large at most."""

_UNBOUNDED = frozenset(["Pad", "Resize", "Upsample", "Loop", "Scan", "If", "EyeLike"])
"""The others of that kind: folded only where inference knows how large."""


def fold(node: Node, values: Values) -> bool:
    """Work the node out if that needs no computed value; True if it is done."""
    if node.domain or node.type in RANDOM or not node.outputs:
        return False
    if node.type in ("Shape", "Size"):
        return _fold_shape(node, values)
    if node.type == "CastLike" and node.inputs[0] in values.constants:
        return _fold_cast(node, values)
    names = [name for name in (*node.inputs, *node.captured) if name]
    if any(name not in values.constants for name in names) or any(values.tensor(n).type == 0 for n in node.outputs if n):
        return False
    if not _small(node, values):
        return False
    arrays = {name: values.constants[name] for name in names}
    try:
        results = run_node(node, arrays, {name: values.tensor(name).type for name in names})
    except OpFailedError:
        return False
    outputs = [name for name in node.outputs if name]
    for name, result in zip(outputs, results, strict=True):
        type = values.tensor(name).type
        values.fold(name, np.asarray(result).astype(dtype_of(type), copy=False), type)
    return True


def _small(node: Node, values: Values) -> bool:
    for name in filter(None, node.outputs):
        shape = values.shape(name)
        if shape is None and node.type in _UNBOUNDED:
            return False
        if shape is not None and math.prod(shape) > MAX_ELEMENTS:
            return False
    arrays = [values.constants[name] for name in node.inputs if name]
    size = _SIZES.get(node.type)
    return all(a.size <= MAX_ELEMENTS for a in arrays) and (size is None or size(arrays) <= MAX_ELEMENTS)


def _fold_cast(node: Node, values: Values) -> bool:
    """A constant in the type of another value, of which nothing else needs to be known."""
    array, target = values.constants[node.inputs[0]], values.tensor(node.outputs[0]).type
    dtype = dtype_of(target)
    if dtype is None or array.dtype.kind not in "fiub" or dtype.kind not in "fiub":
        return False
    values.fold(node.outputs[0], array.astype(dtype), target)
    return True


def _fold_shape(node: Node, values: Values) -> bool:
    """The shape of a value, if it is known."""
    shape = values.tensor(node.inputs[0]).shape
    if shape is None:
        return False
    start, end = node.attributes.get("start", 0), node.attributes.get("end")
    part = shape[slice(start, end)] if node.type == "Shape" else shape
    if any(d < 0 for d in part):
        return False
    array: Array = np.array(part if node.type == "Shape" else math.prod(part), np.int64)
    values.fold(node.outputs[0], array, INT64)
    return True
