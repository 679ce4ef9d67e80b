"""From operations to steps: one function for each family, found by operation code.

A binding looks at a call whose constants and dimensions are known, decides everything that can be decided (kernel, packed
weights, exact form of requantisation) and adds steps, or raises :class:`~nnbridge.cpu.compiled.program.Unsupported` with what
would be required. To add a compiled kernel for an operation, write its kernel under :mod:`nnbridge.cpu.compiled.kernels` and a
binding here. Importing this package registers all bindings.
"""

from nnbridge.cpu.compiled import kernels as _kernels  # noqa: F401 - declares them
from nnbridge.cpu.compiled.bindings import elementwise, layers, matmul, moves, products, recurrent, selection, svdf, windows
from nnbridge.cpu.compiled.bindings.binding import bind

__all__ = ["bind", "elementwise", "layers", "matmul", "moves", "products", "recurrent", "selection", "svdf", "windows"]
