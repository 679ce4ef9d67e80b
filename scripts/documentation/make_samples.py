"""Write the sample output of commands into README.md and docs/: the code blocks that begin with ``$ nnbridge``.

python scripts/documentation/make_samples.py           run the commands, write their output below them
python scripts/documentation/make_samples.py --check   exit with 1 if one is not up to date; numbers may differ
"""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # scripts/

from script_support import REPOSITORY, argument_parser

COLUMNS = "100"
ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
"""Bold text and the like."""
BLOCK = re.compile(r"^```\n(\$ nnbridge (?:[^\n]*\\\n)*[^\n]*\n)(.*?)^```$", re.MULTILINE | re.DOTALL)


def main() -> None:
    """Write or check the pages."""
    parser = argument_parser()
    parser.add_argument("--check", action="store_true", help="compare only; exit with 1 if a sample is not up to date")
    check = parser.parse_args().check
    for page in (REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").glob("*.md"))):
        text = page.read_text(encoding="utf-8")
        fresh = BLOCK.sub(lambda found: f"```\n{found[1]}{output(found[1])}```", text)
        if not check:
            page.write_text(fresh, encoding="utf-8")
        elif _comparable(text) != _comparable(fresh):
            sys.exit(f"{page.name} is not up to date: run python scripts/documentation/make_samples.py")


def output(line: str) -> str:
    """The output of a command line on a terminal in the repository's folder, without colours and spaces at the ends of lines."""
    command = [sys.executable, "-c", "from nnbridge.cli import main; main()", *line.replace("\\\n", " ").split()[2:]]
    # The last digits of floats, and with their lengths the widths of tables, depend on the processor where kernels are compiled
    # or chosen by it, as NumPy's matrix products are.
    environment = {
        **os.environ,
        "NNBRIDGE_KERNELS": "reference",
        "OPENBLAS_CORETYPE": "Haswell",
        "COLUMNS": COLUMNS,
        "TERM": "xterm",
        "NO_COLOR": "1",
        "PYTHONIOENCODING": "utf-8",
    }
    terminal, end = pty.openpty()
    with subprocess.Popen(
        command, cwd=REPOSITORY, env=environment, stdin=subprocess.DEVNULL, stdout=end, stderr=subprocess.PIPE
    ) as process:
        os.close(end)
        printed = b"".join(_pieces(terminal)).decode()
        _, errors = process.communicate()
    os.close(terminal)
    if process.returncode:
        sys.exit(f"{line}{errors.decode()}")
    return "".join(f"{row.rstrip()}\n" for row in ESCAPE.sub("", printed).splitlines())


def _pieces(terminal: int) -> Iterator[bytes]:
    # Linux reports the end of a terminal's output as an error.
    with suppress(OSError):
        while piece := os.read(terminal, 1 << 16):
            yield piece


def _comparable(text: str) -> str:
    return re.sub(r"\d[\d.e+-]*|[ ─━]+", "", text)


if __name__ == "__main__":
    main()
