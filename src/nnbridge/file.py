"""A model file under conversion options, opened once: its importer, its NNAPI model, what became of each operator."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any

from nnbridge.converters import ConversionOptions, Importer, opened
from nnbridge.converters.edits import Adjustable, Edit
from nnbridge.converters.hosted import SourceParts
from nnbridge.converters.inspection import Inspection, Mapped, SignatureInfo
from nnbridge.converters.structure import FileGraph, graphs_of_model
from nnbridge.errors import ConversionError, Reason
from nnbridge.model import Model
from nnbridge.records import seldom_collected
from nnbridge.source import SourceGraph


class ModelFile:
    """A model file under conversion options. It is opened once, and read as far as it is asked about, each part once.

    Constants stay mapped while a model of the file is in use: replace a file by another, never write into one.
    ConversionError for anything that is wrong with the file, at the first question that meets it.

    Parameters
    ----------
    path
        A TFLite, ONNX or saved ``.nnapi`` file, or one of a format that an installed importer reads.
    options
        How it is converted; by default as a phone does it (``mapping="phone"``).
    """

    def __init__(self, path: str | Path, options: ConversionOptions | None = None) -> None:
        self.path = Path(path)
        self.asked = options or ConversionOptions(mapping="phone")
        self._importer: Importer | None = opened(self.path)
        self._converted: dict[str, tuple[Model, tuple[Mapped, ...]]] = {}
        self._source_graphs: dict[str, SourceGraph] = {}

    def __repr__(self) -> str:
        return f"ModelFile({str(self.path)!r}, mapping={self.asked.mapping!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return ModelFile, (self.path, self.asked)

    def __enter__(self) -> ModelFile:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the file, which stays mapped while one of its models is in use. ConversionError for questions after it."""
        self._importer = None
        self._converted.clear()
        self._source_graphs.clear()
        for name in ("options", "inspection", "interface", "edits"):
            self.__dict__.pop(name, None)

    def with_(self, **changes: Any) -> ModelFile:
        """The same file under other options (fields of ConversionOptions); what has been read is shared."""
        same = object.__new__(ModelFile)
        same.path, same.asked = self.path, replace(self.asked, **changes)
        same._importer, same._converted, same._source_graphs = self._importer, self._converted, self._source_graphs
        return same

    @property
    def importer(self) -> Importer:
        """The opened file as the importer of its format has it."""
        if self._importer is None:
            raise ConversionError(Reason("an open file", "one that was closed", file=str(self.path)))
        return self._importer

    @property
    def format(self) -> str:
        """The name of the file's format: ``tflite``, ``onnx``, ``nnapi`` or an installed importer's."""
        return self.importer.name

    @cached_property
    def options(self) -> ConversionOptions:
        """The options with the mapping's own name. OptionError for options that would do nothing with the file."""
        return self.importer.resolved(self.asked)

    @property
    def mapping(self) -> str:
        """The mapping that it is converted under: ``delegate``, ``provider`` or ``wide``."""
        return self.options.mapping

    @property
    def converted(self) -> tuple[Model, tuple[Mapped, ...]]:
        """The NNAPI model and the outcome of each operator."""
        options = self.options
        key = repr(options)
        if key not in self._converted:
            with seldom_collected():
                self._converted[key] = self.importer.convert(options)
        return self._converted[key]

    def converts_as(self, other: ModelFile) -> None:
        """Take the result of the same file under other options, which do not change it, for that of these options."""
        self._converted[repr(self.options)] = other.converted

    @property
    def model(self) -> Model:
        """The NNAPI model."""
        return self.converted[0]

    @property
    def mapped(self) -> tuple[Mapped, ...]:
        """The outcome of each operator of the file; empty for saved models, which have NNAPI operations only."""
        return self.converted[1]

    @cached_property
    def inspection(self) -> Inspection:
        """The description of the file, without running it."""
        return self.importer.inspect(self.options)

    @cached_property
    def interface(self) -> SignatureInfo:
        """The file's inputs and outputs with its metadata for them; empty where the format has none."""
        return self.importer.interface(self.asked)

    @property
    def graphs(self) -> Sequence[FileGraph]:
        """The graphs of the file; those of its NNAPI model where the format has none of its own."""
        return self.importer.graphs(self.options) or graphs_of_model(self.model)

    @property
    def has_graphs(self) -> bool:
        """True if :attr:`graphs` are the file's own."""
        return bool(self.importer.graphs(self.options))

    @property
    def source_graph(self) -> SourceGraph:
        """The file's own operators as devices before NNAPI see them; signature and shapes of the options decide.

        InapplicableError for formats whose operators no device looks at.
        """
        asked = ConversionOptions(signature=self.asked.signature, shapes=self.asked.shapes)
        key = repr(asked)
        if key not in self._source_graphs:
            self.importer.resolved(asked)
            self._source_graphs[key] = self.importer.operators(asked)
        return self._source_graphs[key]

    @cached_property
    def edits(self) -> tuple[Edit, ...]:
        """Rewrites of operators that leave the outputs as they are, and edits of the whole file."""
        return tuple(self.importer.edits(self.asked))

    def adjustable(self, subgraph: int, index: int) -> Adjustable | None:
        """The parameters of an operator that can be changed; None if nothing can."""
        return self.importer.adjustable(subgraph, index)

    def part(self, inputs: Mapping[str, tuple[int, ...]], outputs: Iterable[str]) -> bytes:
        """The bytes of a file with the operators that compute some tensors from others, by names."""
        return self.importer.part(inputs, tuple(outputs))

    @property
    def hosted(self) -> SourceParts | None:
        """Parts of the file for the operators that stay with its own runtime; None where no runtime computes them."""
        return self.importer.hosted(self.options)


def load(path: str | Path, options: ConversionOptions | None = None) -> Model:
    """A model file as a :class:`~nnbridge.model.Model`, for those who build compilations by hand.

    The default options map all that NNAPI can express (``wide``); :func:`nnbridge.plan` converts as a phone does.
    ConversionError for anything that is wrong with the file. Constants stay mapped: replace a file by another, never write into
    one while its model is in use.
    """
    return ModelFile(path, options or ConversionOptions()).model
