"""The TFLite importer: reader → graph → lowering tables → :class:`nnbridge.model.Model`."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from nnbridge.converters import ConversionOptions, Importer, late
from nnbridge.converters.delegation import InMemory
from nnbridge.errors import ConversionError

if TYPE_CHECKING:
    from nnbridge.converters.delegation import Delegation
    from nnbridge.converters.edits import Adjustable, Edit
    from nnbridge.converters.hosted import SourceParts
    from nnbridge.converters.inspection import Inspection, Mapped, SignatureInfo
    from nnbridge.converters.structure import FileGraph
    from nnbridge.model import Model, Pool
    from nnbridge.source import SourceDeclaration, SourceGraph
    from nnbridge_tflite.read.reader import TfliteFile

_MARK = (4, b"TFL3")


class TfliteModelFile(Importer):
    """A TFLite file: mapped once, its tables decoded once. Registered under the entry point group ``nnbridge.converters``."""

    name = "tflite"
    suffixes = (".tflite",)
    magic = (_MARK,)
    mappings = ("delegate", "wide")
    options = ("feature_level", "mapping", "signature", "shapes", "accelerated", "allow_dynamic_dimensions", "tflite", "left")
    in_memory = InMemory(
        _MARK, late("nnbridge_tflite.read.placed:placed_tensors"), late("nnbridge_tflite.delegation:TfliteDelegation.of")
    )
    neuron = staticmethod(late("nnbridge_tflite.neuron:NeuronRoute"))

    # What reads the format is imported when a file is read: importers are listed by every command.

    @cached_property
    def pool(self) -> Pool:
        """The file's bytes, mapped."""
        from nnbridge_tflite.read.reader import mapped

        return mapped(self.path)

    @cached_property
    def file(self) -> TfliteFile:
        """The file as LiteRT reads it. ConversionError for what is wrong in it."""
        from nnbridge_tflite.read.reader import read_pool

        return read_pool(self.path, self.pool)

    @cached_property
    def tables(self) -> dict[str, Any]:
        """The file's tables, to be forked by edits. ConversionError for files whose weights are outside of them."""
        from nnbridge_tflite.tables import decoded

        return decoded(self.file)

    @classmethod
    def declared(cls) -> tuple[SourceDeclaration, ...]:
        from nnbridge_tflite.source_graph import declared

        return declared()

    def convert(self, options: ConversionOptions) -> tuple[Model, tuple[Mapped, ...]]:
        from nnbridge_tflite.convert import convert

        return convert(self.file, options)

    def inspect(self, options: ConversionOptions) -> Inspection:
        from nnbridge_tflite.inspection import inspect

        return inspect(self.file, options)

    def interface(self, options: ConversionOptions) -> SignatureInfo:
        from nnbridge_tflite.inspection import interface

        return interface(self.file, options)

    @cached_property
    def remarks(self) -> Sequence[str]:
        from nnbridge_tflite.custom import remarks

        return remarks(self.file)

    @property
    def foreign(self) -> Collection[tuple[int, int]]:
        from nnbridge_tflite.custom import foreign
        from nnbridge_tflite.host.kinds import without_kernel

        return foreign(self.file.graph) | without_kernel(self.file.graph)

    def graphs(self, options: ConversionOptions) -> Sequence[FileGraph]:
        from nnbridge_tflite.inspection import graphs

        return graphs(self.file)

    def edits(self, options: ConversionOptions) -> Iterable[Edit]:
        from nnbridge_tflite.edits import edits

        return edits(self.tables, self.file, options.shapes)

    def adjustable(self, subgraph: int, index: int) -> Adjustable | None:
        from nnbridge_tflite.adjusting import adjustable

        return adjustable(self.tables, self.path, subgraph, index)

    def part(self, inputs: Mapping[str, tuple[int, ...]], outputs: Collection[str]) -> bytes:
        from nnbridge_tflite.part import part

        return part(self.file, inputs, outputs)

    def hosted(self, options: ConversionOptions) -> SourceParts:
        from nnbridge_tflite.hosted import Parts

        return Parts(self.file, self.tables)

    def delegation(self) -> Delegation:
        from nnbridge_tflite.delegation import TfliteDelegation

        return TfliteDelegation(self.file)

    @cached_property
    def is_compiled(self) -> bool:
        from nnbridge.converters.edits import is_large
        from nnbridge_tflite.read.graph import DISPATCH
        from nnbridge_tflite.read.reader import contains

        try:
            # To look at the operators of a large file takes less time than to search all of its weights for their name.
            return (is_large(len(self.pool)) or contains(self.pool, DISPATCH.encode())) and self.file.graph.is_compiled
        except ConversionError:
            return False  # what no one can read, no compiler compiled

    def operators(self, options: ConversionOptions) -> SourceGraph:
        from nnbridge_tflite.source_graph import source_graph

        return source_graph(self.file, options)


CONVERTER = TfliteModelFile
