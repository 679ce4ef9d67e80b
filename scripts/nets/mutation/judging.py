"""Search for the case or test that kills a mutant, in a fork of the process that has everything imported."""

from __future__ import annotations

import contextlib
import functools
import gc
import importlib
import os
import pickle
import resource
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import zip_longest
from pathlib import Path
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any

from mutation.drawing import OPERATIONS, ROOT, Mutant, codes_of
from mutation.reach import Import, Map, caches, noting_code
from mutation.suite import Session, passes, pytest_with, spread

if TYPE_CHECKING:
    from nnbridge.conformance.cases import Case

BYTES = 4 * 2**30
"""Memory that a mutant may take beyond what the process has."""
ENOUGH, TIMES = 1.0, 10.0
"""A case or test may take ``ENOUGH`` seconds of CPU and ``TIMES`` its time on the unchanged kernels."""
WAIT = 300.0
"""Seconds that it may wait on a busy machine."""


def exchange(mutant: Mutant) -> None:
    """Give every function of the mutant's module the mutant's code."""
    path = OPERATIONS / mutant.module
    exchanged = dict(zip(codes_of(noting_code(path)), codes_of(mutant.code()), strict=True))
    for code, new in exchanged.items():
        for function in functions_by_code().get(code, ()):
            function.__code__ = new


@functools.cache
def functions_by_code() -> dict[CodeType, list[FunctionType]]:
    """The functions of operations by their code; asked for before forks, which do not find what is frozen."""
    found: dict[CodeType, list[FunctionType]] = {}
    for function in gc.get_objects():
        # Not isinstance: it asks a weak proxy for the class of its object, which may be gone.
        if type(function) is FunctionType and os.path.dirname(function.__code__.co_filename) == str(OPERATIONS):
            found.setdefault(function.__code__, []).append(function)
    return found


def import_anew(mutant: Mutant) -> None:
    """Import nnbridge and the tests again, with the mutant."""
    for name in [name for name in sys.modules if name.partition("_")[0].partition(".")[0] in ("nnbridge", "tests")]:
        del sys.modules[name]
    sys.meta_path.insert(0, Import({mutant.module: mutant.code()}))
    importlib.import_module("nnbridge.operations").definitions()
    caches.cache_clear()


def limit(seconds: float) -> None:
    """End this process where what follows takes much longer than ``seconds``, be it at work or waiting."""
    for ending in (signal.SIGPROF, signal.SIGALRM):
        signal.signal(ending, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_PROF, ENOUGH + TIMES * seconds)
    signal.setitimer(signal.ITIMER_REAL, WAIT + 60 * TIMES * seconds)


def killer_of(mutant: Mutant, known: Map, cases: Mapping[str, Case], session: Session) -> str:
    """The killer of a mutant: ``import``, or the name of a case or test; empty if there is none."""
    names = known.reaching(mutant)
    chosen = spread([name for name in names if name in cases])
    tests = [name for name in names if name not in cases]
    if not known.imports(mutant):
        exchange(mutant)
        return _first_that_fails(chosen, tests, known, cases, session)
    limit(60.0)
    killer = "import"

    def work(anew: Session) -> None:
        nonlocal killer
        names = [name for name in (tests or session.items) if name in anew.items]
        killer = _first_that_fails(chosen or list(cases), names, known, cases, anew)

    with contextlib.suppress(BaseException):
        import_anew(mutant)
        files = sorted({name.partition("::")[0] for name in tests or session.items})
        pytest_with(Session(work), [str(ROOT / name) for name in files])
    return killer


def _first_that_fails(
    chosen: Sequence[str], tests: Sequence[str], known: Map, cases: Mapping[str, Case], session: Session
) -> str:
    from nnbridge.conformance.cases import Case

    for name in chosen:
        limit(known.seconds[name])
        if not passes(Case(cases[name].suite, cases[name].spec, cases[name].data)):
            return name
    for name, then in zip_longest(tests, tests[1:]):
        limit(known.seconds[name])
        if not session.passes(name, then):
            return name
    return ""


def forked(function: Callable[[], Any], more_bytes: int = 2**40) -> tuple[int, int]:
    """Call a function in a fork, which may take so much more memory: its process, and the pipe of its pickled answer.

    The answer is the function's result, or an exception.
    """
    answers, answer = os.pipe()
    child = os.fork()
    if child:
        os.close(answer)
        return child, answers
    try:
        had = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (had + more_bytes, had + more_bytes))
        told = pickle.dumps(function())
    except Exception:
        told = pickle.dumps(LookupError(traceback.format_exc()))
    with contextlib.suppress(BaseException), open(answer, "wb") as pipe:
        pipe.write(told)
    os._exit(0)


@dataclass
class Running:
    """Forks at work: process -> mutant, the pipe of its answer, and when it began."""

    judge: Callable[[Mutant], str]
    forks: dict[int, tuple[Mutant, int, float]] = field(default_factory=dict)

    def start(self, mutant: Mutant) -> None:
        """Fork for a mutant."""
        child, answers = forked(functools.partial(self.judge, mutant), BYTES)
        self.forks[child] = (mutant, answers, time.perf_counter())

    def ended(self) -> dict[str, Any]:
        """Wait for one to end: its mutant, its outcome, what killed it, seconds."""
        child, status = os.wait()
        mutant, answers, started = self.forks.pop(child)
        with open(answers, "rb") as pipe:
            told = pipe.read()
        killer = pickle.loads(told) if told else ""
        if isinstance(killer, LookupError):
            raise LookupError(f"{mutant} could not be judged: {killer}")
        if told:
            outcome = {"": "survives", "import": "import"}.get(killer, "tests" if "::" in killer else "conformance")
        else:
            slow = os.WIFSIGNALED(status) and os.WTERMSIG(status) in (signal.SIGPROF, signal.SIGALRM)
            outcome = "time" if slow else "end of process"
        seconds = round(time.perf_counter() - started, 2)
        return {**asdict(mutant), "outcome": outcome, "killer": killer, "seconds": seconds}


def judged(drawn: Sequence[Mutant], known: Map, judge: Callable[[Mutant], str], jobs: int) -> Iterator[dict[str, Any]]:
    """A row for each mutant, as they end."""
    running = Running(judge)
    for mutant in drawn:
        if not known.reaching(mutant) and not known.imports(mutant):
            yield {**asdict(mutant), "outcome": "not reached", "killer": "", "seconds": 0.0}
            continue
        if len(running.forks) == jobs:
            yield running.ended()
        running.start(mutant)
    while running.forks:
        yield running.ended()
