"""``python -m nnbridge``: the command line. With ``-P``, Python looks for nothing in the current folder before this starts."""

from __future__ import annotations

from nnbridge.cli import main

main()
