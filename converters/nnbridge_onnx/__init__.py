"""The ONNX converter: opsets 7 and up, float and quantised, to NNAPI and the host extension ``ai.onnx``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from nnbridge.converters import ConversionOptions, Converter

if TYPE_CHECKING:
    from nnbridge.converters.inspection import Inspection, Mapped
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


def _graphs(path: Path, options: ConversionOptions) -> Sequence[FileGraph]:
    from nnbridge_onnx.inspection import graphs

    return graphs(path, options)


CONVERTER = Converter(
    "onnx",
    (".onnx",),
    (),
    _convert,
    _inspect,
    _explain,
    graphs=_graphs,
    mappings=("provider", "wide"),
    options=("feature_level", "mapping", "layout", "shapes", "float64"),
)
"""Registered under the entry point group ``nnbridge.converters``. An ONNX file has no mark but its suffix."""
