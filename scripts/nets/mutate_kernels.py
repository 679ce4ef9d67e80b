"""Change one constant, comparison, rounding or sign of a kernel at a time: the project's own tests must notice.

    python scripts/nets/mutate_kernels.py --count 1000 --results mutants.jsonl
    python scripts/nets/mutate_kernels.py --count 50 --only reductions.py --seed 3
    python scripts/nets/mutate_kernels.py --again mutants.jsonl --results again.jsonl --tests tests/operations tests/compiled

Mutants are drawn from the functions of src/nnbridge/operations. Once, each of Android's conformance cases (on the reference
kernels) and each of the tests runs, noting the statements that it executes; this is kept beside the results, for the same source.
Then every mutant has a fork of that process, with everything imported, in which the code of the function is exchanged; where
imports execute the statement, all is imported anew. The cases that reach the statement run first, the cheapest of each spec
before its others, then the tests that reach it. The mutant is killed by the first that fails, that ends the process or that takes
ten times as long as it did. One whose statement nothing reaches is ``not reached``. Results are appended to a file line by line;
what stands there is not done again. Exit status 0 whatever survives, 2 if a case or test fails on the unchanged kernels.
"""

from __future__ import annotations

import argparse
import functools
import gc
import hashlib
import json
import os
import pickle
import random
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

os.environ["OPENBLAS_NUM_THREADS"] = "1"  # forks of a process with threads may hang

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # scripts/

from script_support import argument_parser, one_line_errors

with one_line_errors():
    from mutation.drawing import MACHINERY, OPERATIONS, ROOT, Mutant, mutants
    from mutation.judging import forked, functions_by_code, judged, killer_of
    from mutation.reach import Map, forget
    from mutation.suite import Session, conformance_cases, passes, pytest_with

if TYPE_CHECKING:
    from nnbridge.conformance.cases import Case

WARM = 200
"""Cases and tests that run before there are forks."""
LEFT = ("survives", "not reached")
"""Outcomes of mutants that nothing notices."""


def mapped(session: Session, cases: Mapping[str, Case], jobs: int, file: Path) -> Map:
    """The map of a file, if it is of this source, and what is not in it: found in so many processes, and kept there."""
    if not session.imported:
        raise LookupError(f"nnbridge is not imported from {OPERATIONS} (PYTHONPATH)")
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in sorted((ROOT / "src").rglob("*.py")))).digest()
    kept, known = pickle.loads(file.read_bytes()) if file.is_file() else (b"", Map())
    if kept != digest:
        known = Map()
    names = [*cases, *session.items]
    noted(names[:: max(1, len(names) // WARM)], session, cases)  # imports what forks would import
    missing = [name for name in names if name not in known.seconds]
    parts = [forked(functools.partial(noted, missing[k::jobs], session, cases)) for k in range(jobs)]
    for child, pipe in parts:
        with open(pipe, "rb") as answers:
            answer = pickle.load(answers)
        os.waitpid(child, 0)
        if isinstance(answer, LookupError):
            raise answer
        known.join(answer)
    known.imported = session.imported
    file.write_bytes(pickle.dumps((digest, known)))
    forget()
    return known.only(names)


def noted(names: Sequence[str], session: Session, cases: Mapping[str, Case]) -> Map:
    """The statements that some cases and tests execute."""
    known = Map()
    for name in names:
        with known.noting(name):
            passed = passes(cases[name]) if name in cases else session.passes(name)
        if not passed:
            raise LookupError(f"{name} fails on the unchanged kernels")
    return known


def drawn_of(options: argparse.Namespace) -> list[Mutant]:
    """The mutants that are asked for."""
    if options.again:
        rows = [json.loads(line) for line in options.again.read_text().splitlines()]
        return [mutant_of(row) for row in rows if row["outcome"] in LEFT]
    paths = [path for path in sorted(OPERATIONS.glob("*.py")) if options.only in (None, path.name) and path.name not in MACHINERY]
    drawn = [mutant for path in paths for mutant in mutants(path)]
    random.Random(options.seed).shuffle(drawn)
    return drawn[: options.count]


def mutant_of(row: Mapping[str, Any]) -> Mutant:
    """The mutant of a line of results."""
    return Mutant(**{key: row[key] for key in Mutant.__dataclass_fields__})


def evaluate(options: argparse.Namespace, session: Session) -> None:
    """Evaluate what is asked for and not done yet; append to the results."""
    done = [json.loads(line) for line in options.results.read_text().splitlines()] if options.results.is_file() else []
    rows = {mutant_of(row): row for row in done}
    drawn = drawn_of(options)
    started = time.perf_counter()
    cases = {} if options.again else conformance_cases()
    known = mapped(session, cases, options.jobs, options.results.with_suffix(".map"))
    say(f"{len(cases)} cases and {len(session.items)} tests, mapped in {time.perf_counter() - started:.0f} s")
    functions_by_code()
    gc.freeze()  # forks leave what is frozen where it is
    judge = functools.partial(killer_of, known=known, cases=cases, session=session)
    with options.results.open("a") as file:
        for row in judged([mutant for mutant in drawn if mutant not in rows], known, judge, options.jobs):
            rows[mutant_of(row)] = row
            file.write(json.dumps(row) + "\n")
            file.flush()
            if row["outcome"] in LEFT:
                say(f"{mutant_of(row)} ({row['outcome']})")
    counts = Counter(rows[mutant]["outcome"] for mutant in drawn)
    killed = sum(count for outcome, count in counts.items() if outcome not in LEFT)
    say(f"{killed} of {len(drawn)} mutants killed: {dict(counts.most_common())}, {time.perf_counter() - started:.0f} s")


def say(text: str) -> None:
    """Print to where the script was started, while pytest has the standard output."""
    print(text, file=sys.__stdout__, flush=True)


def main() -> int:
    """Draw, evaluate, append; print the share that is killed, and what survives."""
    parser = argument_parser()
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", help="one module, such as reductions.py")
    parser.add_argument(
        "--again",
        type=Path,
        metavar="FILE",
        help="what survived or was not reached in these results; by tests alone, for cases stay",
    )
    parser.add_argument("--tests", nargs="+", default=["tests/operations"], help="folders and files of tests that must notice")
    parser.add_argument("--jobs", type=int, default=2, help="mutants at once")
    parser.add_argument(
        "--results", type=Path, default=Path("mutants.jsonl"), help="file to append to; its mutants are not done again"
    )
    options = parser.parse_args()
    failure: LookupError | None = None

    def work(session: Session) -> None:
        nonlocal failure
        try:
            evaluate(options, session)
        except LookupError as error:
            failure = error

    status = pytest_with(Session(work), [str(ROOT / name) for name in options.tests])
    if failure is None and status != 0:
        failure = LookupError(f"pytest ends with {status} for {' '.join(options.tests)}")
    if failure is not None:
        print(f"{sys.argv[0]}: {failure}", file=sys.stderr)
    return 2 if failure else 0


if __name__ == "__main__":
    sys.exit(main())
