"""LiteRT (TFLite) as the host's engine: a part of the file in an interpreter of its own.

Its process imports little (:mod:`nnbridge.engines.apart`), so that it is ready soon.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from nnbridge.engines.native import without_infos
from nnbridge.errors import InputError, PackageError, Reason, first_line

if TYPE_CHECKING:
    from nnbridge.converters.hosted import Piece
    from nnbridge.engines.host import Run
    from nnbridge.model import Array

RESOLVERS = {
    "default": "BUILTIN",
    "optimised": "BUILTIN_WITHOUT_DEFAULT_DELEGATES",
    "reference": "BUILTIN_REF",
}
"""nnbridge's names for TFLite's sets of kernels: what programs have without an option (XNNPACK), plain ones for the processor,
and reference kernels."""


_SHOWN = {"default": " with XNNPACK", "optimised": " (plain kernels)", "reference": " (reference kernels)"}
"""What follows the version where it is said who computed."""
UNPREPARED = "failed to prepare"
"""TFLite's words for an operator that it does not know, or not with these types and dimensions; of a run: `failed to invoke`."""


class LiteRTEngine:
    """An interpreter as programs create it without options, but for the set of kernels."""

    title, package = "LiteRT", "ai_edge_litert"
    fuses = False

    def __init__(self, path: Path, kernels: str) -> None:
        try:
            from ai_edge_litert import __version__, interpreter
        except ImportError as error:
            raise PackageError.needed("LiteRT", "ai-edge-litert", error, "host") from error
        self.version = f"LiteRT {__version__}{_SHOWN[kernels]}"
        self._module: Any = interpreter
        self._path, self._kernels = path, kernels

    def open(self, piece: Piece, dims: Sequence[tuple[int, ...]]) -> Run:
        """An interpreter of the part; its runs take turns."""
        with without_infos():
            loaded = _Loaded(self._created(model_content=piece.content), str(self._path))
            if all(0 not in known for known in dims):
                loaded.fit(dims)
        return loaded.run

    def _created(self, **source: Any) -> Any:
        resolver = getattr(self._module.OpResolverType, RESOLVERS[self._kernels])
        try:
            return self._module.Interpreter(**source, experimental_op_resolver_type=resolver)
        except (RuntimeError, ValueError) as error:
            raise InputError(Reason("a file that LiteRT runs", first_line(error), file=str(self._path))) from error


class _Loaded:
    """A part of the file, ready to run."""

    def __init__(self, interpreter: Any, path: str) -> None:
        self._interpreter, self._path = interpreter, path
        self._inputs = interpreter.get_input_details()
        self._outputs = [detail["index"] for detail in interpreter.get_output_details()]
        self._shapes: list[tuple[int, ...]] = [tuple(map(int, detail["shape"])) for detail in self._inputs]
        self._allocated = False
        self._lock = threading.Lock()

    def fit(self, dims: Sequence[tuple[int, ...]]) -> None:
        """Allocate for inputs of these dimensions; scalars stay such. InputError for operators that LiteRT does not prepare."""
        try:
            self._fit(dims)
        except (RuntimeError, ValueError) as error:
            raise self._refusal(error) from error

    def _refusal(self, error: Exception) -> InputError:
        self._allocated = False
        return InputError(Reason("operators that LiteRT runs", first_line(error), operand=self._path))

    def _fit(self, dims: Sequence[tuple[int, ...]]) -> None:
        for k, found in enumerate(dims):
            if self._shapes[k] != found and (self._shapes[k] or found != (1,)):
                self._interpreter.resize_tensor_input(self._inputs[k]["index"], found)
                self._shapes[k], self._allocated = found, False
        if not self._allocated:
            self._interpreter.allocate_tensors()
            self._allocated = True

    def run(self, arrays: Sequence[Array], variables: Mapping[int, Array]) -> tuple[Sequence[Array], Mapping[int, Array]]:
        """Outputs, and the variables' new values by index."""
        interpreter = self._interpreter
        with self._lock:
            self.fit([array.shape for array in arrays])
            for detail, array, shape in zip(self._inputs, arrays, self._shapes, strict=True):
                interpreter.set_tensor(detail["index"], _typed(array.reshape(shape), detail["dtype"]))
            for index, array in variables.items():
                interpreter.set_tensor(index, array)
            try:
                interpreter.invoke()
            except RuntimeError as error:
                # What reads values of dimensions that only a run knows is prepared by it.
                if UNPREPARED in str(error):
                    raise self._refusal(error) from error
                raise
            found = [np.array(interpreter.get_tensor(index)) for index in self._outputs]
            return found, {index: np.array(interpreter.get_tensor(index)) for index in variables}


def _typed(array: Array, dtype: Any) -> Array:
    """Booleans are bytes in NNAPI."""
    dtype = np.dtype(dtype)
    return array.view(dtype) if dtype == np.bool_ and array.dtype == np.uint8 else array
