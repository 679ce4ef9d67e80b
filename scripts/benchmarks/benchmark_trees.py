"""Time of commands and functions with two versions of nnbridge, which take turns.

    python scripts/benchmarks/benchmark_trees.py --base ../base/.venv/bin/python FOLDER
    python scripts/benchmarks/benchmark_trees.py --base ../base/.venv/bin/python --only compare --rounds 41

The commands of the README are run on models of this repository, ``plan`` and ``run`` on every file of the folders; ``load`` and
``plan`` are also called in Python, after the import. Printed are medians in milliseconds of the processor's time, child
processes included, and of the clock, and their ratios to the base's. What is refused by both is left out, with its reason.
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # scripts/

from script_support import MODELS, argument_parser

FLOAT, QUANT = MODELS / "digits_float32.tflite", MODELS / "digits_int8.tflite"
DEVICE = ("--device", "arm-nn-21.11")
SAMPLES = ("--device", "nnapi-sample_float_fast,nnapi-sample_minimal")
TIMED = """
import resource, sys, time
from pathlib import Path
import nnbridge
path = Path(sys.argv[1])
def used():
    ours, theirs = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return ours.ru_utime + ours.ru_stime + theirs.ru_utime + theirs.ru_stime
before, clock = used(), time.perf_counter()
{statement}
print(used() - before, time.perf_counter() - clock)
"""


@dataclass
class Case:
    """A command, or a statement in Python, and its times with each version."""

    name: str
    arguments: Sequence[str]
    times: tuple[list[tuple[float, float]], list[tuple[float, float]]] = field(default_factory=lambda: ([], []))

    def run(self, python: str, which: int, scratch: Path) -> str:
        """Run once, with the base (0) or this version (1); the message of a refusal."""
        before, clock = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        environment = {**os.environ, "XDG_CACHE_HOME": str(scratch / f"cache{which}")}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)  # Who installs a package has its bytecode.
        program = python if self.arguments[0] == "-c" else str(Path(python).with_name("nnbridge"))
        done = subprocess.run([program, *self.arguments], cwd=scratch, env=environment, capture_output=True, text=True)
        after, elapsed = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter() - clock
        if done.returncode:
            return done.stderr.strip() or f"exit status {done.returncode}"
        spent = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
        if self.arguments[0] == "-c":
            spent, elapsed = map(float, done.stdout.split()[-2:])
        self.times[which].append((spent, elapsed))
        return ""

    def row(self) -> str:
        """Medians of both versions, and the ratio of this one to the base."""
        base, this = ([statistics.median(part) * 1000 for part in zip(*times, strict=True)] for times in self.times)
        shown = "".join(f"{a:10.1f}{b:9.1f}{b / a:7.2f}" for a, b in zip(base, this, strict=True))
        return f"{self.name[:64]:64}{shown}"


def commands() -> Iterator[Case]:
    """The README's commands."""
    answers = ("--reference", str(MODELS / "digits_float32.litert.npz"), "--plan")
    for words in (
        ("compare", FLOAT, *SAMPLES, *answers),
        ("inspect", FLOAT),
        ("plan", FLOAT, *SAMPLES),
        ("plan", QUANT, *DEVICE, "--android", "12"),
        ("plan", QUANT, *DEVICE, "--android", "12", "--advice"),
        ("compare", QUANT, *DEVICE, "--reference", "litert"),
        ("compare", FLOAT, *DEVICE, "--reference", "litert", "--seeds", "0-9"),
        ("compare", MODELS / "digits_float32.onnx", *DEVICE, "--reference", "onnxruntime"),
        ("report", QUANT, *DEVICE, "--reference", "litert", "-o", "report.html"),
        ("matrix", QUANT, "--devices", "nnapi-sample_all", "--fresh", "--html", "matrix.html", "--jobs", "1"),
        ("devices",),
    ):
        texts = [str(word) for word in words]
        yield Case(" ".join(Path(text).name for text in texts), texts)


def of_file(path: Path) -> Iterator[Case]:
    """Plan and run of a file as commands, its ``load`` and ``plan`` in Python."""
    yield Case(f"plan {path.name}", ("plan", str(path), *DEVICE))
    yield Case(f"run {path.name}", ("run", str(path), *DEVICE, "--seed", "0"))
    for name, statement in {
        "load()": "nnbridge.load(path)",
        "plan()": "nnbridge.plan(path, device='arm-nn-21.11')",
    }.items():
        yield Case(f"{name} {path.name}", ("-c", TIMED.format(statement=statement), str(path)))


def main() -> None:
    """Print a row for each case."""
    parser = argument_parser()
    parser.add_argument("folders", nargs="*", type=Path, metavar="FOLDER")
    parser.add_argument("--base", required=True, help="the Python of an environment with the other version")
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--only", default="", help="cases whose name has this text")
    given = parser.parse_args()
    found = (path.resolve() for folder in given.folders for path in sorted(folder.rglob("*")))
    files = [path for path in found if path.suffix in (".tflite", ".onnx")]
    cases = [case for case in (*commands(), *(case for path in files for case in of_file(path))) if given.only in case.name]
    pythons = (os.path.abspath(given.base), sys.executable)
    print(f"{'':64}{'processor, ms':>26}{'clock, ms':>26}\n{'':64}" + f"{'base':>10}{'this':>9}{'ratio':>7}" * 2)
    with tempfile.TemporaryDirectory() as scratch:
        for case in cases:
            refused = [case.run(python, which, Path(scratch)) for which, python in enumerate(pythons)]  # and fill caches
            if any(refused):
                print(f"{case.name[:64]:64}  {' / '.join(text.splitlines()[-1][:80] if text else 'runs' for text in refused)}")
                continue
            for times in case.times:
                times.clear()
            for n in range(given.rounds):
                for which in (0, 1) if n % 2 else (1, 0):
                    case.run(pythons[which], which, Path(scratch))
            print(case.row(), flush=True)


if __name__ == "__main__":
    main()
