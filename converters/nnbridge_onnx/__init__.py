"""The ONNX importer: opsets 7 and up, float and quantised, to NNAPI and the host extension ``ai.onnx``."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import TYPE_CHECKING

from nnbridge.converters import ConversionOptions, Importer, late
from nnbridge.model import Resolution, known

if TYPE_CHECKING:
    from nnbridge.converters.edits import Adjustable, Edit
    from nnbridge.converters.hosted import SourceParts
    from nnbridge.converters.inspection import Inspection, Mapped
    from nnbridge.converters.structure import FileGraph
    from nnbridge.model import Model, Subgraph
    from nnbridge_onnx.read.graph import Graph


class OnnxModelFile(Importer):
    """An ONNX file, which has no mark but its suffix. Registered under the entry point group ``nnbridge.converters``."""

    name = "onnx"
    suffixes = (".onnx",)
    mappings = ("provider", "wide")
    options = ("feature_level", "mapping", "layout", "shapes", "float64", "ort")
    runtime_graph = staticmethod(late("nnbridge_onnx.runtime_graph:claims"))

    # What reads the format is imported when a file is read: importers are listed by every command.

    def graph(self, options: ConversionOptions) -> Graph:
        """The file as data, under the options that reading depends on; ConversionError for whatever is wrong with it."""
        from nnbridge_onnx.read.reader import read

        def key(wide: bool) -> tuple[bool, str, str]:
            return wide, options.float64, repr(options.shapes)

        wide = options.mapping == "wide"
        if key(wide) not in self._graphs:
            self._graphs[key(wide)] = found = read(self.path, options)
            if not found.loops:
                self._graphs[key(not wide)] = found
        return self._graphs[key(wide)]

    @cached_property
    def _graphs(self) -> dict[tuple[bool, str, str], Graph]:
        return {}

    def convert(self, options: ConversionOptions) -> tuple[Model, tuple[Mapped, ...]]:
        from nnbridge_onnx.passes.conversion import convert_graph

        model, outcomes = convert_graph(self.graph(options), options, str(self.path))
        if any(not known(model.main.operands[i].dims) for i in model.main.inputs):
            model = replace(model, resolution=Resolution(model.main, partial(self._at, options, model.main)))
        return model, outcomes

    def _at(self, options: ConversionOptions, main: Subgraph, dims: Sequence[tuple[int, ...]]) -> Model:
        """The model for inputs of known dimensions. What ONNX Runtime computes on a phone is computed as it does."""
        from nnbridge_onnx.passes.conversion import ROUNDED, convert_graph

        operands = [main.operands[i] for i in main.inputs]
        shapes = {o.name: d for o, d in zip(operands, dims, strict=True) if not known(o.dims)}
        stated = replace(options, mapping="wide", shapes={**options.shapes, **shapes})
        graph = self.graph(stated)
        if options.mapping == "wide" and self.graph(options).has_loops and any(t.type in ROUNDED for t in graph.tensors.values()):
            # Written out, bodies that the host computes would be NNAPI's, which rounds differently.
            graph = self.graph(replace(stated, mapping="provider"))
        return convert_graph(graph, stated, str(self.path), exact=options.mapping != "wide")[0]

    def inspect(self, options: ConversionOptions) -> Inspection:
        from nnbridge_onnx.inspection import inspect

        return inspect(self.path, self.graph(options), lambda mapping: self.convert(replace(options, mapping=mapping)))

    def graphs(self, options: ConversionOptions) -> Sequence[FileGraph]:
        from nnbridge_onnx.inspection import graphs

        return graphs(self.graph(options))

    def edits(self, options: ConversionOptions) -> Iterable[Edit]:
        from nnbridge_onnx.edits import edits

        return edits(self.path, options.shapes)

    def adjustable(self, subgraph: int, index: int) -> Adjustable | None:
        from nnbridge_onnx.adjusting import adjustable

        return adjustable(self.path, subgraph, index)

    def positions(self, options: ConversionOptions) -> Mapping[int, int]:
        from nnbridge_onnx.messages import positions

        return positions(self.path, self.graph(options))

    def part(self, inputs: Mapping[str, tuple[int, ...]], outputs: Collection[str]) -> bytes:
        from nnbridge_onnx.part import part

        return part(self.path, inputs, outputs)

    def hosted(self, options: ConversionOptions) -> SourceParts:
        from nnbridge_onnx.hosted import Parts

        return Parts(self.path, self.graph(options))


CONVERTER = OnnxModelFile
