"""The ONNX converter. Reading is not implemented yet; files are recognised and refused by name."""

from __future__ import annotations

from pathlib import Path

from nnbridge.converters import ConversionOptions, Converter
from nnbridge.errors import ConversionError, Reason
from nnbridge.model import Model


def _convert(path: Path, options: ConversionOptions) -> Model:
    raise ConversionError(Reason("a TFLite or .nnapi file, as ONNX files cannot be converted yet", "an ONNX file", str(path)))


CONVERTER = Converter("onnx", (".onnx",), (), _convert)
"""Registered under the entry point group ``nnbridge.converters``."""
