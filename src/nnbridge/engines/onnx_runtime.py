"""ONNX Runtime as the host's engine: a part of the file in a session on its CPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from nnbridge.engines.onnx_session import open_session
from nnbridge.errors import InputError, PackageError, Reason, first_line, pass_shortage

if TYPE_CHECKING:
    from nnbridge.converters.hosted import Piece
    from nnbridge.engines.host import Run
    from nnbridge.model import Array

_NAMES = {"float": "float32", "double": "float64"}
"""ONNX Runtime's names of element types that NumPy calls otherwise."""


class OnnxRuntimeEngine:
    """Sessions as programs create them without options, but for products that saturate on some processors; there is one set of
    kernels."""

    title, package = "ONNX Runtime", "onnxruntime"
    fuses = True

    def __init__(self, path: Path, kernels: str) -> None:
        try:
            import onnxruntime
        except ImportError as error:
            raise PackageError.needed("ONNX Runtime", "onnxruntime", error, "host") from error
        self.version = f"ONNX Runtime {onnxruntime.__version__}"
        self._module: Any = onnxruntime
        self._path = path

    def open(self, piece: Piece, dims: Sequence[tuple[int, ...]]) -> Run:
        """A session of the part."""
        options = self._module.SessionOptions()
        options.log_severity_level = 4  # what fails is raised as well
        try:
            session = open_session(piece.content, options)
        except Exception as error:
            pass_shortage(error)
            # ONNX Runtime's errors have no common class of their own.
            raise InputError(Reason("nodes that ONNX Runtime runs", first_line(error), file=str(self._path))) from error
        inputs = {declared.name: declared for declared in session.get_inputs()}
        for declared in (*session.get_inputs(), *session.get_outputs()):
            if _dtype(declared.type) is None:
                rule = "values between operators in types of NumPy's, in which ONNX Runtime takes and returns them"
                remedy = " (a classifier's probabilities are a tensor without its ZipMap: skl2onnx has zipmap=False)"
                found = f"{declared.type} {declared.name}{remedy if 'map(' in declared.type else ''}"
                raise InputError(Reason(rule, found, file=str(self._path)))

        def run(arrays: Sequence[Array], variables: Mapping[int, Array]) -> tuple[Sequence[Array], Mapping[int, Array]]:
            given = zip(piece.inputs, arrays, strict=True)
            feeds = {str(name): _typed(array, inputs[str(name)].type, name in piece.scalars) for name, array in given}
            return [np.asarray(output) for output in session.run([*map(str, piece.outputs)], feeds)], {}

        return run


def _dtype(declared: str) -> np.dtype[Any] | None:
    """NumPy's type for ONNX Runtime's name of a tensor's; None for text, sequences, maps and small floats."""
    name = declared.removeprefix("tensor(").removesuffix(")")
    if not name.isalnum():  # NumPy reads commas and brackets, as in "map(int64,tensor(float))", as lists of types.
        return None
    try:
        found = np.dtype(_NAMES.get(name, name))
    except TypeError:
        return None
    return found if found.kind in "biuf" and found.isbuiltin else None


def _typed(array: Array, type: str, scalar: bool) -> Array:
    """A value in ONNX's type: booleans are bytes in NNAPI, scalars vectors of one element, float64 may be narrowed."""
    dtype = _dtype(type)
    assert dtype is not None
    array = array.view(dtype) if dtype == np.bool_ and array.dtype == np.uint8 else array.astype(dtype, copy=False)
    return array.reshape(()) if scalar and array.size == 1 else array
