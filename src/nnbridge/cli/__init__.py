"""The command line: ``nnbridge convert | inspect | plan | run | compare | devices | ndk | vts``.

Exit status: 0 on success, 1 where a comparison or conformance run fails, 2 for bad input, with one clear message.
"""

from __future__ import annotations

import os
import sys


def main() -> None:
    """Entry point of the console script; a failing command says why in one message and never shows a traceback."""
    # ``--device my_module:MyDriver`` is found in the current folder as well, behind everything that is installed.
    sys.path.append(os.getcwd())
    try:
        from nnbridge.cli.commands import cli
    except ImportError as error:  # pragma: no cover - only in a broken installation
        sys.exit(f"nnbridge: the command line needs click and rich ({error})")
    cli.main(prog_name="nnbridge")
