"""Parts shared by the comparisons of random operators with another runtime: its results from a fork, verdicts, and their
summary."""

from __future__ import annotations

import argparse
import faulthandler
import logging
import shutil
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np

from nnbridge import Compilation, Execution
from nnbridge.converters import ConversionOptions
from nnbridge.converters.inspection import Mapped
from nnbridge.engines import OWN, host_for
from nnbridge.errors import NnbridgeError
from nnbridge.file import ModelFile

OUTCOMES = ("equal", "explained", "refused", "differs", "fails")
BATCH = 250
SECONDS = 60
FORK = get_context("fork")
D = TypeVar("D", bound=Callable[..., object])


class Draws(dict[str, D], Generic[D]):
    """Operator -> the function that draws a case of it."""

    def of(self, *names: str) -> Callable[[D], D]:
        """Decorator: the function draws these operators."""

        def register(function: D) -> D:
            self.update(dict.fromkeys(names, function))
            return function

        return register


@dataclass(frozen=True)
class Verdict:
    """One case: ``outcome`` is ``equal``, ``refused`` (by the reference), ``explained``, ``differs``, ``fails``."""

    number: int
    operator: str
    outcome: str
    message: str = ""
    type: str = ""


class Fork:
    """A function that runs in a fork of this process: what ends the process ends the fork alone."""

    def __init__(self, function: Callable[..., list[Any]]) -> None:
        self._function = function
        self._child: Any = None
        self._pipe: Any = None

    def run(self, *arguments: Any) -> list[Any]:
        """The function's result; RuntimeError for whatever it raises, and where it ends the process."""
        if self._child is None:
            self._pipe, inner = FORK.Pipe()
            self._child = FORK.Process(target=_serve, args=(inner, self._function), daemon=True)
            self._child.start()
            inner.close()
        self._pipe.send(arguments)
        try:
            found = self._pipe.recv() if self._pipe.poll(SECONDS) else None
        except EOFError:
            found = None
        if found is None:
            self.close()
            raise RuntimeError("the reference ended the process, or took too long")
        if isinstance(found, str):
            raise RuntimeError(found)
        return list(found)

    def close(self) -> None:
        """End the fork; the next run makes another one."""
        if self._child is not None:
            self._child.kill()
            self._child.join()
            self._pipe.close()
            self._child = None


def _serve(pipe: Connection, function: Callable[..., list[Any]]) -> None:
    faulthandler.disable()  # pytest's would print a traceback for each process that ends.
    warnings.simplefilter("ignore")
    while True:
        arguments = pipe.recv()
        try:
            pipe.send(function(*arguments))
        except Exception as error:
            pipe.send(str(error) or "refused")


class Failure(Exception):
    """nnbridge did not compute a file."""


def computed(path: Path, mapping: str, feeds: Sequence[Any], host: str = OWN) -> tuple[list[Any], tuple[Mapped, ...]]:
    """nnbridge's outputs, and the outcome of each operator; Failure with the reason."""
    try:
        file = ModelFile(path, ConversionOptions(mapping=mapping))
        model, outcomes = file.converted
        compilation = Compilation.create(model, host_for(host, file))
        compilation.finish()
        return list(Execution(compilation).run([np.atleast_1d(feed) for feed in feeds]).values()), outcomes
    except NnbridgeError as error:
        raise Failure(str(error)[-300:]) from error
    except Exception as error:
        raise Failure(f"not an error of nnbridge's: {error.__class__.__name__}: {error}") from error


def verdict_on(number: int, name: str, outcome: str, message: str, path: Path, keep: Path | None, type: str = "") -> Verdict:
    """A verdict; files that differ or fail are moved to ``keep``."""
    if keep is not None and outcome in ("differs", "fails"):
        shutil.move(path, keep / f"{number}-{name}{path.suffix}")
    return Verdict(number, name, outcome, message, type)


@contextmanager
def quietly() -> Iterator[Path]:
    """A folder for files, without warnings."""
    logging.disable(logging.WARNING)
    try:
        with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield Path(folder)
    finally:
        logging.disable(logging.NOTSET)


Batch = Callable[..., Iterator[Verdict]]
"""From numbers of cases, seed, names of operators, mapping, folder to keep files in, and the host where there are several."""


def _listed(batch: Batch, *arguments: Any) -> list[Verdict]:
    return list(batch(*arguments))


def main(
    parser: argparse.ArgumentParser,
    names: Sequence[str],
    mappings: Sequence[str],
    batch: Batch,
    hosts: Sequence[str] = (OWN,),
) -> int:
    """The command line of a comparison: 0, or 1 if a difference or failure is left unexplained."""
    parser.add_argument("--cases", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="the number of the first case")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--mapping", choices=mappings, default=mappings[0])
    parser.add_argument("--host", choices=hosts, default=hosts[0], help="what computes operators that NNAPI has not")
    parser.add_argument("--operators", nargs="+", choices=sorted(names), default=sorted(names), metavar="NAME")
    parser.add_argument("--keep", type=Path, help="a folder for the files that differ or fail")
    options = parser.parse_args()
    if options.keep is not None:
        options.keep.mkdir(parents=True, exist_ok=True)
    counts: Counter[tuple[str, str]] = Counter()
    shown: Counter[tuple[str, str, str]] = Counter()
    for verdict in _in_parallel(partial(batch, host=options.host) if len(hosts) > 1 else batch, options):
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
    return 1 if total["differs"] or total["fails"] else 0


def _in_parallel(batch: Batch, options: argparse.Namespace) -> Iterator[Verdict]:
    common = (options.seed, options.operators, options.mapping, options.keep)
    end = options.first + options.cases
    with ProcessPoolExecutor(options.workers, get_context("spawn")) as pool:
        starts = range(options.first, end, BATCH)
        for future in [pool.submit(partial(_listed, batch), range(n, min(n + BATCH, end)), *common) for n in starts]:
            yield from future.result()
