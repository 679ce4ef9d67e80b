"""The ONNX converter: opsets 7 and up, float and quantised, to NNAPI and the host extension ``ai.onnx``."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from nnbridge.converters import ConversionOptions, Converter
from nnbridge.converters.edits import Adjustable, Edit

if TYPE_CHECKING:
    from nnbridge.converters.inspection import Inspection, Mapped
    from nnbridge.converters.runtime_graph import Claims, RuntimeGraph
    from nnbridge.converters.structure import FileGraph
    from nnbridge.model import Model


def _convert(path: Path, options: ConversionOptions) -> Model:
    # The onnx package is loaded when the first file is read, not when converters are listed.
    from nnbridge_onnx.passes.conversion import convert

    return convert(path, options)


def _explain(path: Path, options: ConversionOptions) -> tuple[Model, tuple[Mapped, ...]]:
    from nnbridge_onnx.passes.conversion import convert_with_report

    return convert_with_report(path, options)


def _inspect(path: Path, options: ConversionOptions) -> Inspection:
    from nnbridge_onnx.inspection import inspect

    return inspect(path, options)


def _edits(path: Path) -> Iterable[Edit]:
    from nnbridge_onnx.edits import edits

    return edits(path)


def _adjustable(path: Path, subgraph: int, index: int) -> Adjustable | None:
    from nnbridge_onnx.adjusting import adjustable

    return adjustable(path, subgraph, index)


def _part(path: Path, inputs: Mapping[str, tuple[int, ...]], outputs: Collection[str]) -> bytes:
    from nnbridge_onnx.part import part

    return part(path, inputs, outputs)


def _graphs(path: Path, options: ConversionOptions) -> Sequence[FileGraph]:
    from nnbridge_onnx.inspection import graphs

    return graphs(path, options)


def _claims(graph: RuntimeGraph, level: int, nchw: bool, stops: frozenset[str] | None) -> Claims:
    from nnbridge_onnx.runtime_graph import claims

    return claims(graph, level, nchw, stops)


CONVERTER = Converter(
    "onnx",
    (".onnx",),
    (),
    _convert,
    _inspect,
    _explain,
    part=_part,
    edits=_edits,
    adjustable=_adjustable,
    graphs=_graphs,
    mappings=("provider", "wide"),
    runtime_graph=_claims,
    options=("feature_level", "mapping", "layout", "shapes", "float64"),
)
"""Registered under the entry point group ``nnbridge.converters``. An ONNX file has no mark but its suffix."""
