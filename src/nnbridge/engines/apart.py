"""Inference runtimes of hosts in a separate process: what ends it is an error of the run, and the next run has another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

from nnbridge.apart import Apart
from nnbridge.records import dataclass

if TYPE_CHECKING:
    from nnbridge.converters.hosted import Piece, Tensor
    from nnbridge.engines.host import Run
    from nnbridge.model import Array


class ApartEngine:
    """An engine in another process; its runs take turns."""

    def __init__(self, engine: str, path: Path, kernels: str) -> None:
        """``engine``: its class as ``module:name``, created there for the file and the set of kernels."""
        kind = resolve_name(engine)
        if find_spec(kind.package) is None:
            kind(path, kernels)  # raises what is missing
        self._apart = Apart(kind.title, f"{__name__}:Served", engine, path, kernels)
        self.version = str(self._apart.call("version"))
        self.fuses = bool(kind.fuses)

    def open(self, piece: Piece, dims: Sequence[tuple[int, ...]]) -> Run:
        """Load a part of the file there; once more where the process has ended since."""
        apart, loaded = self._apart, dict[int, int]()

        def load() -> int:
            generation = apart.start()
            if generation not in loaded:
                loaded.clear()
                parts = piece.content, piece.inputs, piece.outputs, piece.variables, list(piece.scalars)
                loaded[generation] = apart.call("open", *parts, list(dims))
            return loaded[generation]

        def run(arrays: Sequence[Array], variables: Mapping[int, Array]) -> tuple[Sequence[Array], Mapping[int, Array]]:
            outputs, states = apart.call("run", load(), list(arrays), variables)
            return outputs, states

        load()
        return run


@dataclass(frozen=True)
class _Piece:
    content: bytes
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    variables: Mapping[Tensor, int]
    scalars: Sequence[Tensor]


class Served:
    """In the other process: an engine, and the parts that it has loaded."""

    def __init__(self, engine: str, path: Path, kernels: str) -> None:
        self._engine: Any = resolve_name(engine)(path, kernels)
        self._runs: list[Run] = []

    def version(self) -> str:
        """The runtime's name and version."""
        return str(self._engine.version)

    def open(
        self, content: bytes, inputs: Any, outputs: Any, variables: Any, scalars: Any, dims: Sequence[tuple[int, ...]]
    ) -> int:
        """Load a part; its number."""
        self._runs.append(self._engine.open(_Piece(content, inputs, outputs, variables, scalars), dims))
        return len(self._runs) - 1

    def run(self, number: int, arrays: Sequence[Array], variables: Mapping[int, Array]) -> tuple[list[Array], dict[int, Array]]:
        """Run a part."""
        outputs, states = self._runs[number](arrays, variables)
        return list(outputs), dict(states)
