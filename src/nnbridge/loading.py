"""From a path to a model, or to what its file holds: a saved ``.nnapi`` file, or whatever an installed converter reads."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from nnbridge import storage
from nnbridge.converters import ConversionOptions, check_options, converter_for
from nnbridge.converters.inspection import Inspection, Mapped, inspect_model
from nnbridge.errors import ConversionError, Reason
from nnbridge.model import Model


def load(path: str | Path, options: ConversionOptions | None = None) -> Model:
    """A model file as a :class:`~nnbridge.model.Model`. ConversionError for anything that is wrong with it."""
    return load_with_report(path, options)[0]


def load_with_report(path: str | Path, options: ConversionOptions | None = None) -> tuple[Model, tuple[Mapped, ...]]:
    """The same, and the mapping of each operator if the converter reports it."""
    path, options = Path(path), options or ConversionOptions()
    if not path.is_file():
        raise ConversionError(Reason("a model file", "a folder" if path.is_dir() else "none at this path", str(path)))
    converter = None if is_saved(path) else converter_for(path)
    check_options(options, path, converter)
    if converter is None:
        model = storage.load(path)
        # Clients of the C library give their models no name.
        return (model if model.name else replace(model, name=path.stem)), ()
    return (converter.convert(path, options), ()) if converter.explain is None else converter.explain(path, options)


def inspect(path: str | Path, options: ConversionOptions | None = None) -> Inspection:
    """Look into a model file of any format that can be loaded; ConversionError for anything that is wrong with it."""
    path, options = Path(path), options or ConversionOptions()
    if not path.is_file() or is_saved(path):
        return inspect_model(load(path, options), path)
    converter = converter_for(path)
    check_options(options, path, converter)
    if converter.inspect is None:
        return inspect_model(converter.convert(path, options), path)
    return converter.inspect(path, options)


def is_saved(path: Path) -> bool:
    """True for a saved NNAPI model, by its mark or its suffix."""
    with path.open("rb") as file:
        return file.read(8)[4:8] == storage.MAGIC or path.suffix.lower() == storage.SUFFIX
