"""TensorFlow Lite Micro, which is imported when it is used, as a reference: Cortex-M processors and Ethos-U run it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from nnbridge.compare.litert import NamedTensors
from nnbridge.engines.native import logged
from nnbridge.errors import InputError, PackageError, Reason, first_line
from nnbridge.reading import read_file

if TYPE_CHECKING:
    from nnbridge.compare.arrays import Array

_ARENAS = (1 << 20, 1 << 24, 1 << 28)
"""Bytes for tensors: the next larger ones where a file does not fit, as no one states how many it needs."""


class Micro:
    """TensorFlow Lite Micro's interpreter."""

    name = "tflm"

    def __init__(self, path: Path) -> None:
        try:
            from tflite.Model import Model
            from tflite_micro import runtime
        except ImportError as error:
            raise PackageError.needed("TensorFlow Lite Micro", "tflite-micro", error, "reference") from error
        content, words = read_file(path), ""
        graph = Model.GetRootAs(content).Subgraphs(0)
        self._names = [str((graph.Tensors(i).Name() or b"").decode(errors="replace")) for i in graph.OutputsAsNumpy()]
        self._last: list[Array] = []
        for arena in _ARENAS:
            found, log = logged(partial(runtime.Interpreter.from_bytes, content, arena_size=arena))
            if not isinstance(found, Exception):
                self._interpreter: Any = found
                return
            words = words or _reason(log, found)
        raise InputError(Reason("a model that TensorFlow Lite Micro runs", words, file=str(path)))

    def reset(self) -> None:
        """Reset variables."""
        self._interpreter.reset()

    def tensors(self) -> NamedTensors:
        """The outputs of the last run: the interpreter shares the memory of the others."""
        return NamedTensors({(0, name): value for name, value in zip(self._names, self._last, strict=False)})

    def run(self, inputs: Mapping[str, Array]) -> list[Array]:
        """Outputs in the file's order; inputs in the file's order, whatever their names."""
        interpreter = self._interpreter

        def run() -> list[Array]:
            for number, value in enumerate(inputs.values()):
                interpreter.set_input(np.ascontiguousarray(value), number)
            interpreter.invoke()
            return [np.array(interpreter.get_output(number)) for number in range(len(self._names))]

        found, log = logged(run)
        if isinstance(found, Exception):
            raise InputError(Reason("inputs that TensorFlow Lite Micro runs", _reason(log, found), operand="reference tflm"))
        self._last = found
        return found


def _reason(log: str, error: Exception) -> str:
    """The interpreter's first line, which says more than its error."""
    return next((line.strip() for line in log.splitlines() if line.strip()), first_line(error))


def opened(path: Path, signature: str, preserve: bool) -> Micro:
    """The reference, with every argument by its place."""
    return Micro(path)
