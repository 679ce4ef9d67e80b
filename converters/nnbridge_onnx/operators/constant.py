"""Constants and sequences of numbers."""

from __future__ import annotations

from nnbridge.converters.folding import Folding
from nnbridge_onnx.declaration import MOVED, by_shape, operator

operator("Constant", 35, "-> output", "A constant of the file.", folding=MOVED)
operator("ConstantOfShape", 36, "input! -> output", "One number in a shape.", folding=Folding(by_shape))
operator(
    "Range", 133, "start! limit! delta! -> output", "Numbers from a start to a limit by steps.",
    folding=Folding(lambda start, limit, delta: abs(limit.item() - start.item()) / max(abs(delta.item()), 1e-30)),
)  # fmt: skip
