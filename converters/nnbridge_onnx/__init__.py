"""The ONNX converter: convolutional networks, plain and with QuantizeLinear/DequantizeLinear."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from nnbridge.converters import ConversionOptions, Converter

if TYPE_CHECKING:
    from nnbridge.model import Model


def _convert(path: Path, options: ConversionOptions) -> Model:
    # The onnx package is loaded when the first file is read, not when converters are listed.
    from nnbridge_onnx.convert import convert

    return convert(path, options)


CONVERTER = Converter("onnx", (".onnx",), (), _convert)
"""Registered under the entry point group ``nnbridge.converters``. An ONNX file has no mark; its suffix tells."""
