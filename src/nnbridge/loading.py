"""From a path to a model: a saved ``.nnapi`` file, or whatever an installed converter reads."""

from __future__ import annotations

from pathlib import Path

from nnbridge import storage
from nnbridge.converters import ConversionOptions, converter_for
from nnbridge.errors import ConversionError, Reason
from nnbridge.model import Model


def load(path: str | Path, options: ConversionOptions | None = None) -> Model:
    """A model file as a :class:`~nnbridge.model.Model`. ConversionError for anything that is wrong with it."""
    path = Path(path)
    if not path.is_file():
        raise ConversionError(Reason("a model file", "none at this path", str(path)))
    if is_saved(path):
        return storage.load(path)
    return converter_for(path).convert(path, options or ConversionOptions())


def is_saved(path: Path) -> bool:
    """True for a saved NNAPI model, by its mark or its suffix."""
    with path.open("rb") as file:
        return file.read(8)[4:8] == storage.MAGIC or path.suffix.lower() == storage.SUFFIX
