"""Change one constant, comparison, rounding or sign of a kernel at a time: the project's own tests must notice.

    python scripts/mutate_kernels.py --count 1000 --results mutants.jsonl
    python scripts/mutate_kernels.py --count 50 --only reductions.py --seed 3

Mutants are drawn from the functions of src/nnbridge/operations. Each is imported in a fork of its own, in place of the module
that it changes; first Android's conformance cases that reach the changed function run on it (where their folder is there), then
the tests of tests/operations that reach it (all, if none does). It is killed by the first that fails, or by taking too long.
Results are appended to a file line by line; what stands there is not done again. Exit status 0 whatever survives.
"""

from __future__ import annotations

import ast
import contextlib
import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import random
import re
import resource
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from pathlib import Path
from types import CodeType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
OPERATIONS = ROOT / "src" / "nnbridge" / "operations"
sys.path[:0] = [str(ROOT), str(ROOT / "scripts")]
os.environ["OPENBLAS_NUM_THREADS"] = "1"  # forks of a process with threads may hang

TESTS = ROOT / "tests" / "operations"
PER_SPEC, PER_MUTANT = 12, 60
"""Conformance cases of one spec that are drawn from; cases that run on one mutant."""
CPU_SECONDS, BYTES = 120, 6 * 2**30
MACHINERY = ("__init__.py", "call.py", "declaration.py", "evaluate.py", "kernels.py", "validation.py")
"""Modules that compute no values."""
COMPARISONS = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "=="}
ARITHMETIC = {"+": "-", "-": "+", "*": "+", "//": "*", "/": "*", "<<": ">>", ">>": "<<", "&": "|", "|": "&", "%": "//"}
ROUNDINGS = {"floor": "ceil", "ceil": "floor", "rint": "floor", "round": "floor", "trunc": "floor", "around": "floor"}
ROUNDINGS |= {"maximum": "minimum", "minimum": "maximum", "max": "min", "min": "max", "any": "all", "all": "any"}


@dataclass(frozen=True)
class Mutant:
    """One change of one line of a module."""

    module: str
    line: int
    column: int
    kind: str
    before: str
    after: str

    def source(self) -> str:
        """The module's text with the change."""
        lines = (OPERATIONS / self.module).read_text(encoding="utf-8").split("\n")
        # Positions of ast count bytes; kernels are ASCII where they compute.
        text = lines[self.line - 1]
        lines[self.line - 1] = text[: self.column] + self.after + text[self.column + len(self.before) :]
        return "\n".join(lines)


def mutants(path: Path) -> Iterator[Mutant]:
    """Every mutant of the functions of a module."""
    text = path.read_text(encoding="utf-8")
    lines = text.split("\n")
    for node in _computing(ast.parse(text)):
        line = getattr(node, "lineno", 0)
        if not line or not lines[line - 1].isascii():
            continue

        def made(kind: str, line: int, column: int, before: str, after: str) -> Iterator[Mutant]:
            if lines[line - 1][column : column + len(before)] == before:
                yield Mutant(path.name, line, column, kind, before, after)

        if isinstance(node, ast.Constant) and type(node.value) in (int, float):
            before = lines[line - 1][node.col_offset : node.end_col_offset]
            yield from made("constant", line, node.col_offset, before, f"({before} + 1)")
        elif isinstance(node, ast.Attribute) and node.attr in ROUNDINGS and node.end_lineno is not None:
            column = (node.end_col_offset or 0) - len(node.attr)
            yield from made("rounding", node.end_lineno, column, node.attr, ROUNDINGS[node.attr])
        elif isinstance(node, ast.BinOp | ast.Compare):
            left, right = (node.left, node.right) if isinstance(node, ast.BinOp) else (node.left, node.comparators[0])
            if left.end_lineno == right.lineno:
                between = lines[right.lineno - 1][left.end_col_offset : right.col_offset]
                table = ARITHMETIC if isinstance(node, ast.BinOp) else COMPARISONS
                sign = re.sub(r"[()\s]", "", between)
                if sign in table:
                    column = (left.end_col_offset or 0) + between.index(sign)
                    yield from made(
                        "arithmetic" if table is ARITHMETIC else "comparison", right.lineno, column, sign, table[sign]
                    )


def _computing(tree: ast.AST) -> Iterator[ast.AST]:
    """The nodes of functions' bodies: no decorators, annotations, defaults or texts of messages."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            for statement in node.body:
                if not isinstance(statement, ast.FunctionDef):
                    yield from _below(statement)


def _below(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.JoinedStr | ast.Raise | ast.FunctionDef):
        return
    yield node
    for child in ast.iter_child_nodes(node):
        if child is not getattr(node, "annotation", None):
            yield from _below(child)


class _Import(importlib.abc.MetaPathFinder):
    """Imports a mutant in place of its module."""

    def __init__(self, mutant: Mutant) -> None:
        self.path = OPERATIONS / mutant.module
        self.name = f"nnbridge.operations.{self.path.stem}"
        self.code = compile(mutant.source(), str(self.path), "exec")

    def find_spec(self, name: str, path: Any, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        """The mutant's spec."""
        if name != self.name:
            return None
        loader = importlib.machinery.SourceFileLoader(name, str(self.path))
        loader.get_code = lambda fullname: self.code  # type: ignore[method-assign, assignment]
        return importlib.util.spec_from_file_location(name, self.path, loader=loader)


def in_fork(function: Callable[..., Any], *arguments: Any) -> Any:
    """The function's result from a fork; None if it ends otherwise."""
    fork = get_context("fork")
    pipe, inner = fork.Pipe(duplex=False)

    def run() -> None:
        resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS + 5))
        resource.setrlimit(resource.RLIMIT_AS, (BYTES, BYTES))
        inner.send(function(*arguments))

    child = fork.Process(target=run)
    child.start()
    inner.close()
    try:
        return pipe.recv()
    except EOFError:
        return None
    finally:
        child.join()
        pipe.close()


Stored = tuple[str, str, dict[str, Any]]
"""Suite, spec and data of a conformance case: no class of nnbridge's, which forks import anew."""


Place = tuple[str, int]
"""A module of operations and a line in it."""


@contextlib.contextmanager
def traced() -> Iterator[set[Place]]:
    """All places of the functions of operations that are called meanwhile: to trace each line takes minutes."""
    seen: set[Place] = set()
    codes: set[CodeType] = set()
    sys.settrace(lambda frame, event, _: codes.add(frame.f_code))
    try:
        yield seen
    finally:
        sys.settrace(None)
        for code in codes:
            if code.co_filename.startswith(str(OPERATIONS)):
                seen |= {(os.path.basename(code.co_filename), line) for _, _, line in code.co_lines() if line}


class _Reaching:
    """A plugin of pytest: which tests reach a place."""

    def __init__(self) -> None:
        self.tests: dict[Place, list[str]] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        """Note the places of one test."""
        with traced() as seen:
            yield
        for place in seen:
            self.tests.setdefault(place, []).append(f"{ROOT}/{item.nodeid}")


def run_tests(names: Sequence[str], *plugins: object) -> int:
    """Pytest's exit status; it prints nothing."""
    options = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--rootdir", str(ROOT)]
    with open(os.devnull, "w") as nothing, contextlib.redirect_stdout(nothing), contextlib.redirect_stderr(nothing):
        return int(pytest.main([*options, *names], plugins=plugins))


def reached_by_tests() -> dict[Place, list[str]]:
    """Place -> the tests of tests/operations that reach it."""
    found = _Reaching()
    run_tests([str(TESTS)], found)
    return found.tests


def reached() -> tuple[list[Stored], dict[Place, list[int]]]:
    """Conformance cases, and place -> the cases that reach it."""
    from nnbridge.conformance.cases import read_cases, spec_files
    from tests.conftest import shared_folder

    folder = shared_folder() / "vts"
    cases: list[Stored] = []
    lines: dict[Place, list[int]] = {}
    rng = random.Random(0)
    for path in spec_files(folder) if folder.is_dir() else []:
        if path.stat().st_size > 100_000:
            continue
        found = [case for case in read_cases(path) if not case.expects_failure]
        for case in rng.sample(found, min(PER_SPEC, len(found))):
            with traced() as seen:
                passed = passes((case.suite, case.spec, dict(case.data)))
            if passed:
                cases.append((case.suite, case.spec, dict(case.data)))
                for place in seen:
                    lines.setdefault(place, []).append(len(cases) - 1)
    return cases, lines


def passes(stored: Stored) -> bool:
    """True if a conformance case passes on the reference kernels."""
    from nnbridge.conformance.cases import Case, build, check_outputs, inputs_of
    from nnbridge.cpu.executor import Executor
    from nnbridge.operations.kernels import Tier

    case = Case(*stored)
    try:
        found = Executor(build(case), kernels=Tier.REFERENCE).run(inputs_of(case))
        return check_outputs(case, [argument.value for argument in found]) is None
    except Exception:
        return False


def outcome_of(mutant: Mutant, cases: list[Stored], tests: list[str]) -> str:
    """What kills a mutant: ``import``, ``conformance`` or ``tests``; ``survives`` if nothing does."""
    sys.meta_path.insert(0, _Import(mutant))
    try:
        import nnbridge.cpu.executor
        import nnbridge.operations

        nnbridge.operations.definitions()
    except Exception:
        return "import"
    if not all(passes(case) for case in cases):
        return "conformance"
    return "survives" if run_tests(tests) == 0 else "tests"


def main() -> None:
    """Draw, evaluate, append; print the share that is killed, and what survives."""
    from script_support import argument_parser

    parser = argument_parser()
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", help="one module, such as reductions.py")
    parser.add_argument(
        "--results", type=Path, default=Path("mutants.jsonl"), help="file to append to; its mutants are not done again"
    )
    options = parser.parse_args()
    paths = [path for path in sorted(OPERATIONS.glob("*.py")) if options.only in (None, path.name) and path.name not in MACHINERY]
    drawn = [mutant for path in paths for mutant in mutants(path)]
    random.Random(options.seed).shuffle(drawn)
    done = [json.loads(line) for line in options.results.read_text().splitlines()] if options.results.is_file() else []
    known = {Mutant(**{key: row[key] for key in Mutant.__dataclass_fields__}): row["outcome"] for row in done}
    for name in ("numpy", "pytest", "hypothesis.strategies", "hypothesis.extra.numpy", "flatbuffers", "click"):
        importlib.import_module(name)
    cases, lines = in_fork(reached)
    tests = in_fork(reached_by_tests)
    counts: Counter[str] = Counter()
    with options.results.open("a") as file:
        for mutant in drawn[: options.count]:
            if mutant not in known:
                place = mutant.module, mutant.line
                reaching = lines.get(place, [])
                chosen = [cases[k] for k in random.Random(mutant.line).sample(reaching, min(PER_MUTANT, len(reaching)))]
                known[mutant] = in_fork(outcome_of, mutant, chosen, tests.get(place, [str(TESTS)])) or "time"
                file.write(json.dumps({**asdict(mutant), "outcome": known[mutant]}) + "\n")
                file.flush()
            counts[known[mutant]] += 1
            if known[mutant] == "survives":
                print(f"{mutant.module}:{mutant.line} {mutant.kind}: {mutant.before} -> {mutant.after}", flush=True)
    total = sum(counts.values())
    killed = total - counts["survives"]
    print(f"{killed} of {total} mutants killed ({len(drawn)} possible): {dict(counts)}")


if __name__ == "__main__":
    main()
