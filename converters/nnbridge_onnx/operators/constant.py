"""Constants and sequences of numbers."""

from __future__ import annotations

import numpy as np

from nnbridge.converters.folding import Folding
from nnbridge_onnx.declaration import MOVED, by_shape, operator
from nnbridge_onnx.passes.folding import Known
from nnbridge_onnx.read.graph import Node, dtype_of


def _fold(node: Node, known: Known) -> bool:
    """A dense tensor is known as it was read; the host knows the other forms."""
    name, value = node.outputs[0], node.attributes.get("value")
    type = known.tensor(name).type
    dtype = dtype_of(type)
    if len(node.attributes) != 1 or not isinstance(value, np.ndarray) or dtype is None:
        return False
    known.fold(name, value.astype(dtype, copy=False), type)
    return True


operator("Constant", 35, "-> output", "A constant of the file.", folding=MOVED, fold=_fold)
operator("ConstantOfShape", 36, "input! -> output", "One number in a shape.", folding=Folding(by_shape))
operator(
    "Range", 133, "start! limit! delta! -> output", "Numbers from a start to a limit by steps.",
    folding=Folding(lambda start, limit, delta: abs(limit.item() - start.item()) / max(abs(delta.item()), 1e-30)),
)  # fmt: skip
