"""How scripts end where something is missing: one line and exit status 2 instead of a traceback."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def plainly(extra: str = "dev") -> Iterator[None]:
    """Tell what is not installed, naming the extra that brings it, and what nnbridge refuses."""
    try:
        yield
    except ImportError as error:
        _end(f"{error} (pip install '.[{extra}]')")
    except Exception as error:
        from nnbridge import NnbridgeError

        if not isinstance(error, NnbridgeError):
            raise
        _end(str(error))


def _end(message: str) -> None:
    print(f"{sys.argv[0]}: {message}", file=sys.stderr)
    sys.exit(2)
