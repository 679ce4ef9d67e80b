"""The compiled kernels: importing this package declares all of them."""

from nnbridge.cpu.compiled.kernels import (
    depthwise,
    elementwise,
    loops,
    moves,
    packing,
    pooling,
    products,
    recurrent,
    resizing,
    selection,
    svdf,
    tiles,
)

__all__ = [
    "depthwise",
    "elementwise",
    "loops",
    "moves",
    "packing",
    "pooling",
    "products",
    "recurrent",
    "resizing",
    "selection",
    "svdf",
    "tiles",
]
