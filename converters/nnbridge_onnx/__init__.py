"""The ONNX converter: opsets 7 and up, float and quantised, to NNAPI and the host extension ``ai.onnx``."""

from __future__ import annotations

from nnbridge.converters import Converter, late

CONVERTER = Converter(
    "onnx",
    (".onnx",),
    (),
    late("nnbridge_onnx.passes.conversion:convert"),
    late("nnbridge_onnx.inspection:inspect"),
    late("nnbridge_onnx.passes.conversion:convert_with_report"),
    part=late("nnbridge_onnx.part:part"),
    hosted=late("nnbridge_onnx.hosted:Parts"),
    edits=late("nnbridge_onnx.edits:edits"),
    adjustable=late("nnbridge_onnx.adjusting:adjustable"),
    graphs=late("nnbridge_onnx.inspection:graphs"),
    mappings=("provider", "wide"),
    runtime_graph=late("nnbridge_onnx.runtime_graph:claims"),
    options=("feature_level", "mapping", "layout", "shapes", "float64"),
)
"""Registered under the entry point group ``nnbridge.converters``. An ONNX file has no mark but its suffix."""
