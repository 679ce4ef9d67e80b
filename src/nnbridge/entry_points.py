"""Entry points of installed packages: converters, host extensions and devices."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from importlib.metadata import EntryPoint, distributions
from typing import Any

from nnbridge import trust
from nnbridge.errors import pass_shortage


def entry_points(group: str, name: str | None = None) -> Iterator[EntryPoint]:
    """The entry points of installed packages, each once. Files of the current folder are no installed packages."""
    found: dict[EntryPoint, None] = {}
    for package in distributions(path=trust.search_path()):
        points = (point for point in package.entry_points if point.group == group and name in (None, point.name))
        found.update(dict.fromkeys(points))
    yield from found


def installed(group: str, name: str | None = None) -> Iterator[Any]:
    """The entry points that can be loaded, of one name if stated; the rest is left out with a warning in the log of the
    group's name."""
    for point in entry_points(group, name):
        try:
            yield point.load()
        except MemoryError:
            raise
        except Exception as error:
            pass_shortage(error)
            # A stranger's module may raise anything while it is imported.
            logging.getLogger(group).warning("not loaded: %s = %s: %s", point.name, point.value, error)
