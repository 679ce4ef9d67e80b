"""``python -m nnbridge``: the command line."""

from nnbridge.cli import main

main()
