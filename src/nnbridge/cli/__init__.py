"""The command line ``nnbridge``; :mod:`nnbridge.cli.commands` holds its commands.

Exit status: 0 on success, 1 where a comparison or conformance run fails and for nothing else, 2 for bad input, output that
cannot be written and internal errors, with one message; 130 and 141 after an interrupt and where nobody reads the output, as
in shells.
"""

from __future__ import annotations

import io
import sys

from nnbridge.trust import clean_path

_INTERRUPTED = 128 + 2
"""The exit status that shells have for SIGINT; :mod:`nnbridge.cli.output`, which has it too, may not be imported yet."""


def main() -> None:
    """Entry point of the console script; a command that fails prints one message and no traceback."""
    clean_path()
    try:
        from nnbridge.platforms import collect_rarely

        collect_rarely()
        from nnbridge.cli.commands import cli, discard_output
    except ImportError as error:  # pragma: no cover - only in a broken installation
        sys.exit(f"nnbridge: the command line needs NumPy, click and rich ({error})")
    except KeyboardInterrupt:
        sys.exit(_INTERRUPTED)
    if sys.stdout is None:
        # The next file that is opened would have its descriptor, and be written to by drivers that print.
        print("nnbridge: standard output: closed", file=sys.stderr)
        sys.exit(2)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        cli.main(prog_name="nnbridge")
    except OSError as error:
        discard_output()
        print(f"nnbridge: {error.filename or 'standard output'}: {error.strerror or error}", file=sys.stderr)
        sys.exit(2)
