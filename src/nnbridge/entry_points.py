"""What installed packages offer by entry points: converters and host extensions."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from importlib.metadata import entry_points
from typing import Any

from nnbridge.errors import pass_shortage


def installed(group: str, name: str | None = None) -> Iterator[Any]:
    """What can be loaded, of one name if stated; the rest is left out with a warning in the log of the group's name."""
    for point in entry_points(group=group) if name is None else entry_points(group=group, name=name):
        try:
            yield point.load()
        except Exception as error:
            pass_shortage(error)
            # A stranger's module may raise anything while it is imported.
            logging.getLogger(group).warning("not loaded: %s = %s: %s", point.name, point.value, error)
