"""The TFLite converter: reader → graph → lowering tables → :class:`nnbridge.model.Model`."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from nnbridge.converters import ConversionOptions, Converter
from nnbridge.converters.delegation import InMemory
from nnbridge.converters.edits import Adjustable, Edit

if TYPE_CHECKING:
    from nnbridge.converters.delegation import Delegation, Places
    from nnbridge.converters.inspection import Inspection, Mapped, SignatureInfo
    from nnbridge.converters.recorded import Route
    from nnbridge.converters.structure import FileGraph
    from nnbridge.model import Model
    from nnbridge.source import SourceDeclaration, SourceGraph


def _convert(path: Path, options: ConversionOptions) -> Model:
    # The flatbuffer classes are loaded when the first file is read, not when converters are listed.
    from nnbridge_tflite.convert import convert

    return convert(path, options)


def _explain(path: Path, options: ConversionOptions) -> tuple[Model, tuple[Mapped, ...]]:
    from nnbridge_tflite.convert import convert_with_report

    return convert_with_report(path, options)


def _inspect(path: Path, options: ConversionOptions) -> Inspection:
    from nnbridge_tflite.inspection import inspect

    return inspect(path, options)


def _interface(path: Path, options: ConversionOptions) -> SignatureInfo:
    from nnbridge_tflite.inspection import interface

    return interface(path, options)


def _graphs(path: Path, options: ConversionOptions) -> Sequence[FileGraph]:
    from nnbridge_tflite.inspection import graphs

    return graphs(path)


def _operators(path: Path, options: ConversionOptions) -> SourceGraph:
    from nnbridge_tflite.source_graph import source_graph

    return source_graph(path, options)


def _declared() -> tuple[SourceDeclaration, ...]:
    from nnbridge_tflite.source_graph import declared

    return declared()


def _edits(path: Path) -> Iterable[Edit]:
    from nnbridge_tflite.edits import edits

    return edits(path)


def _adjustable(path: Path, subgraph: int, index: int) -> Adjustable | None:
    from nnbridge_tflite.adjusting import adjustable

    return adjustable(path, subgraph, index)


def _part(path: Path, inputs: Mapping[str, tuple[int, ...]], outputs: Collection[str]) -> bytes:
    from nnbridge_tflite.part import part

    return part(path, inputs, outputs)


def _places(data: memoryview) -> Places | None:
    from nnbridge_tflite.read.placed import placed_tensors

    return placed_tensors(data)


def _open(data: memoryview) -> Delegation:
    from nnbridge_tflite.delegation import TfliteDelegation

    return TfliteDelegation.of(data)


def _compiled(path: Path) -> bool:
    from nnbridge_tflite.read.reader import is_compiled

    return is_compiled(path)


def _route() -> Route:
    from nnbridge_tflite.neuron import NeuronRoute

    return NeuronRoute()


_MARK = (4, b"TFL3")
CONVERTER = Converter(
    "tflite",
    (".tflite",),
    (_MARK,),
    _convert,
    _inspect,
    _explain,
    _interface,
    graphs=_graphs,
    edits=_edits,
    adjustable=_adjustable,
    part=_part,
    mappings=("delegate", "wide"),
    options=("feature_level", "mapping", "signature", "shapes"),
    operators=_operators,
    declared=_declared,
    in_memory=InMemory(_MARK, _places, _open),
    compiled=_compiled,
    neuron=_route,
)
"""Registered under the entry point group ``nnbridge.converters``."""
