"""The compiled kernels: importing this package declares all of them."""

from nnbridge.cpu.compiled.kernels import depthwise, elementwise, moves, pooling, products

__all__ = ["depthwise", "elementwise", "moves", "pooling", "products"]
