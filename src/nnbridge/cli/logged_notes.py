"""The library's warnings as a command prints them; ``--help`` needs no logging."""

from __future__ import annotations

import logging

from nnbridge.cli.output import echo_wrapped


class LibraryNotes(logging.Handler):
    """The library's warnings on standard error, ``--quiet`` or not, each once: a command may convert a file more than once."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._said: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        """Print a warning that was not printed before."""
        text = record.getMessage()
        if text not in self._said:
            self._said.add(text)
            echo_wrapped(text)
