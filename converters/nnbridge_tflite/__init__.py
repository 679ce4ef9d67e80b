"""The TFLite converter: reader → graph → lowering tables → :class:`nnbridge.model.Model`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from nnbridge.converters import ConversionOptions, Converter

if TYPE_CHECKING:
    from nnbridge.converters.inspection import Inspection, Mapped, SignatureInfo
    from nnbridge.model import Model


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


CONVERTER = Converter(
    "tflite",
    (".tflite",),
    ((4, b"TFL3"),),
    _convert,
    _inspect,
    _explain,
    _interface,
    mappings=("delegate", "wide"),
    options=("feature_level", "mapping", "signature", "shapes"),
)
"""Registered under the entry point group ``nnbridge.converters``."""
