"""A saved model, ``.nnapi``."""

from __future__ import annotations

from pathlib import Path

from nnbridge import storage
from nnbridge.errors import InputError, Reason
from nnbridge.model import Model


def write(model: Model, path: Path, title: str) -> dict[Path, int]:
    """Write the model; InputError if its name is no UTF-8, as ``title`` then is not either."""
    try:
        model.name.encode()
    except UnicodeEncodeError as error:
        raise InputError(Reason("a file name in UTF-8, as saved models hold the model's name", title, operand="MODEL")) from error
    return {path: storage.save(model, path)}
