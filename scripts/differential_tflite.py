"""Random single-operator TFLite files: nnbridge's answer beside that of LiteRT's reference kernels.

    python scripts/differential_tflite.py --cases 20000
    python scripts/differential_tflite.py --cases 500 --seed 3 --operators CONV_2D MEAN --keep found

Types, shapes, options, scales (ties and multipliers above 1 among them), zero points at the ends of their ranges, per-channel
weights, dilations and odd paddings are drawn at random. Integers must be equal bit for bit, floats within 1e-5 of the
reference plus 1e-5 of the output's range. What LiteRT refuses is not judged. Differences that a rule of docs/tflite.md explains
are counted as such (`EXPLAINED` in tests/tflite/differential.py names the rule and the most steps). Exit status 1 if one
difference or failure is left unexplained.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from script_support import argument_parser, one_line_errors

with one_line_errors():
    from tests.tflite.differential import DRAWS, Verdict, verdicts

BATCH = 200
OUTCOMES = ("equal", "explained", "refused", "differs", "fails")


def batch(first: int, count: int, seed: int, names: Sequence[str], mapping: str, keep: Path | None) -> list[Verdict]:
    return list(verdicts(range(first, first + count), seed, names, mapping, keep))


def in_parallel(options: argparse.Namespace) -> Iterator[Verdict]:
    with ProcessPoolExecutor(options.workers, get_context("spawn")) as pool:
        starts = range(0, options.cases, BATCH)
        common = (options.seed, options.operators, options.mapping, options.keep)
        for future in [pool.submit(batch, n, min(BATCH, options.cases - n), *common) for n in starts]:
            yield from future.result()


def main() -> None:
    parser = argument_parser()
    parser.add_argument("--cases", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--mapping", choices=("wide", "delegate"), default="wide")
    parser.add_argument("--operators", nargs="+", choices=sorted(DRAWS), default=sorted(DRAWS), metavar="NAME")
    parser.add_argument("--keep", type=Path, help="a folder for the files that differ or fail")
    options = parser.parse_args()
    if options.keep is not None:
        options.keep.mkdir(parents=True, exist_ok=True)
    counts: Counter[tuple[str, str]] = Counter()
    shown: Counter[tuple[str, str, str]] = Counter()
    for verdict in in_parallel(options):
        counts[verdict.operator, verdict.outcome] += 1
        key = (verdict.operator, verdict.type, verdict.outcome)
        if verdict.outcome in ("differs", "fails") and shown[key] < 2:
            shown[key] += 1
            print(f"case {verdict.number} {verdict.outcome}: {verdict.message}", flush=True)
    for name in options.operators:
        found = {outcome: counts[name, outcome] for outcome in OUTCOMES if counts[name, outcome]}
        if options.cases <= 2000 or "differs" in found or "fails" in found or not found.get("equal"):
            print(f"{name:<32} {found}")
    total = {outcome: sum(n for (_, o), n in counts.items() if o == outcome) for outcome in OUTCOMES}
    print(f"{sum(total.values())} cases of {len(options.operators)} operators: {total}")
    sys.exit(1 if total["differs"] or total["fails"] else 0)


if __name__ == "__main__":
    main()
