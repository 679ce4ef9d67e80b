"""The TFLite converter: reader → graph → lowering tables → :class:`nnbridge.model.Model`."""

from __future__ import annotations

from nnbridge.converters import Converter, late
from nnbridge.converters.delegation import InMemory

_MARK = (4, b"TFL3")
CONVERTER = Converter(
    "tflite",
    (".tflite",),
    (_MARK,),
    late("nnbridge_tflite.convert:convert"),
    late("nnbridge_tflite.inspection:inspect"),
    late("nnbridge_tflite.convert:convert_with_report"),
    late("nnbridge_tflite.inspection:interface"),
    graphs=late("nnbridge_tflite.inspection:graphs"),
    edits=late("nnbridge_tflite.edits:edits"),
    adjustable=late("nnbridge_tflite.adjusting:adjustable"),
    part=late("nnbridge_tflite.part:part"),
    hosted=late("nnbridge_tflite.hosted:Parts"),
    mappings=("delegate", "wide"),
    options=("feature_level", "mapping", "signature", "shapes", "accelerated", "allow_dynamic_dimensions", "left"),
    operators=late("nnbridge_tflite.source_graph:source_graph"),
    declared=late("nnbridge_tflite.source_graph:declared"),
    in_memory=InMemory(
        _MARK, late("nnbridge_tflite.read.placed:placed_tensors"), late("nnbridge_tflite.delegation:TfliteDelegation.of")
    ),
    compiled=late("nnbridge_tflite.read.reader:is_compiled"),
    neuron=late("nnbridge_tflite.neuron:NeuronRoute"),
)
"""Registered under the entry point group ``nnbridge.converters``."""
