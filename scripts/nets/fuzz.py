"""Convert thousands of damaged model files: each gives a model or one of nnbridge's errors, quickly and in little memory.

    python scripts/nets/fuzz.py models --cases 20000
    python scripts/nets/fuzz.py folder --format onnx --cases 20000 --seed 1 --keep found

By turns, the cases have bytes changed, fields of the structure (indexes, dimensions, types, options, constants, whole tables),
and, in TFLite files, offsets that lead to what others lead to. Sources are the files of the folder and single operators: those of
the tests for TFLite, of ONNX's own suite for ONNX. Each case has its own feature level and mapping; it is inspected, converted
and planned; what converts is saved, and run if it is small. Exit status 1 if a case ends in another error, hangs, or takes
a second of processor time or 200 MB; the kernel's limits end what goes far beyond.
"""

from __future__ import annotations

import logging
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from importlib import import_module
from multiprocessing import get_context
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # scripts/

from script_support import argument_parser, one_line_errors

from nnbridge.converters import ConversionOptions
from nnbridge.errors import NnbridgeError
from nnbridge.file import load
from tests.hostile import MAPPINGS, Source, Verdict, check_all, limit_process

BATCH = 250

# Warnings about accepted files would appear thousands of times, from every worker.
logging.disable(logging.WARNING)


def sources(format: str, folder: Path, scratch: Path) -> list[Path]:
    """Intact files."""
    found = [p for p in sorted(folder.rglob(f"*.{format}")) if _converts(p)]
    if format == "tflite":
        from tests.tflite.cases import cases

        for i, case in enumerate(case for case in cases() if case.types):
            own = scratch / f"{i}"
            own.mkdir()
            found.append(case.write(own, case.types[0]))
    if format == "onnx":
        from tests.onnx.mutations import operators

        for i, content in enumerate(operators()):
            path = scratch / f"operator{i}.onnx"
            path.write_bytes(content)
            found.append(path)
    return found


def _converts(path: Path) -> bool:
    try:
        load(path)
    except NnbridgeError:
        return False
    return True


@cache
def _source(path: Path) -> Source:
    """An intact file, opened once in each process."""
    opened: Source = import_module(f"tests.{path.suffix[1:]}.mutations").Source(path)
    return opened


def batch(format: str, files: list[Path], first: int, count: int, seed: int, keep: Path | None) -> list[tuple[int, str, Verdict]]:
    """Check some damaged files; their numbers, sources and verdicts."""
    done = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"case.{format}"
        for n in range(first, first + count):
            rng = np.random.default_rng([seed, n])
            origin = files[int(rng.integers(len(files)))]
            ways = _source(origin).ways
            content = ways[n % len(ways)](rng)
            path.write_bytes(content)
            options = ConversionOptions(mapping=MAPPINGS[format][int(rng.integers(2))], feature_level=int(rng.integers(1, 9)))
            limit_process()
            verdict = check_all(path, options)
            if not verdict.good and keep is not None:
                (keep / f"{seed}-{n}-{origin.stem}.{format}").write_bytes(content)
            done.append((n, origin.name, verdict))
    return done


def main() -> None:
    """Run the cases in parallel; print the failures, and the slowest and largest cases."""
    parser = argument_parser()
    parser.add_argument("folder", type=Path, help="a folder of intact files")
    parser.add_argument("--format", choices=("tflite", "onnx"), default="tflite")
    parser.add_argument("--cases", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--keep", type=Path, help="a folder for the files that fail")
    options = parser.parse_args()
    if options.keep is not None:
        options.keep.mkdir(parents=True, exist_ok=True)
    started, found = time.monotonic(), []
    with tempfile.TemporaryDirectory() as scratch, ProcessPoolExecutor(options.workers, get_context("spawn")) as pool:
        files = sources(options.format, options.folder, Path(scratch))
        firsts = range(0, options.cases, BATCH)
        work = [
            pool.submit(batch, options.format, files, n, min(BATCH, options.cases - n), options.seed, options.keep)
            for n in firsts
        ]
        for future in work:
            for n, name, verdict in future.result():
                found.append((verdict, n, name))
                if not verdict.good:
                    figures = f"{verdict.seconds:.2f} s, {verdict.bytes / 1e6:.0f} MB"
                    print(f"case {n} of {name}: {verdict.outcome} {verdict.message[:160]} ({figures})", flush=True)
    outcomes = Counter(verdict.outcome for verdict, _, _ in found)
    slowest, largest = (max(found, key=key) for key in (lambda f: f[0].seconds, lambda f: f[0].bytes))
    print(f"{len(found)} cases from {len(files)} files: {', '.join(f'{n} {name}' for name, n in outcomes.most_common())}")
    print(f"slowest: {slowest[0].seconds:.2f} s (case {slowest[1]} of {slowest[2]})")
    print(f"largest: {largest[0].bytes / 1e6:.0f} MB (case {largest[1]} of {largest[2]})")
    wrong = sum(not verdict.good for verdict, _, _ in found)
    print(f"{wrong} wrong, {time.monotonic() - started:.0f} s")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    with one_line_errors():
        main()
