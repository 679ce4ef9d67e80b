"""Hostile files: damage to the bytes and structure of intact ones, and limits of time and memory for converting them."""

from __future__ import annotations

import contextlib
import math
import os
import resource
import signal
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from nnbridge.compare import seeded_inputs
from nnbridge.converters import ConversionOptions
from nnbridge.errors import NnbridgeError
from nnbridge.file import ModelFile, load
from nnbridge.runtime.compilation import Compilation
from nnbridge.runtime.execution import Execution
from nnbridge.storage import save

SECONDS, BYTES = 1.0, 200 * 2**20
"""The most processor time and memory for one file."""
MAPPINGS = {"tflite": ("wide", "delegate"), "onnx": ("wide", "provider")}
"""File name ending → the mappings under which damaged files are converted."""
HANGS = 10
"""Seconds of processor time after which a case is ended."""
ADDRESS_SPACE = 2**30
"""Bytes of address space that a process that checks files may add: a wild allocation becomes an error there."""

EXTREMES = (
    0, 1, -1, 2, 3, 7, 127, 128, -128, 255, 256, 1000, 65535, 65536, 2**24,
    2**31 - 1, -(2**31), 2**31, 2**32 - 1, 2**63 - 1,
)  # fmt: skip
REALS = (0.0, -0.0, 1.0, -1.0, 1e-45, 1e-30, 3e38, float("inf"), float("-inf"), float("nan"))

_PROC = Path("/proc/self/clear_refs")
"""Writing to it resets a process's peak of memory on Linux; elsewhere memory is not checked."""


@dataclass(frozen=True)
class Verdict:
    """The outcome for one file."""

    outcome: str
    """``model``, ``refused``, ``untried`` (too large to run here), or the name of another error."""
    message: str = ""
    seconds: float = 0.0
    bytes: int = 0

    @property
    def good(self) -> bool:
        """True for a model or one of nnbridge's errors, within the limits."""
        return self.expected and self.seconds < SECONDS and self.bytes < BYTES

    @property
    def expected(self) -> bool:
        """True for a model or one of nnbridge's errors, whatever it cost."""
        return self.outcome in ("model", "refused", "untried")


def check_conversion(path: Path, options: ConversionOptions) -> Verdict:
    """Convert and plan a file; time and memory are those of both."""
    return verdict_of(lambda: _planned(path, options))


def check_run(path: Path, options: ConversionOptions, elements: int = 1 << 16) -> Verdict:
    """Run a file that converts, unless a tensor has more than ``elements`` elements; time and memory are not measured."""
    return replace(verdict_of(lambda: _run(_planned(path, options), elements)), seconds=0.0, bytes=0)


def check_all(path: Path, options: ConversionOptions, elements: int = 1 << 16) -> Verdict:
    """Inspect, convert and plan a file; run and save what converts. The first bad verdict, or that of the conversion."""
    found: list[Compilation] = []
    converted = verdict_of(lambda: found.append(_planned(path, options)))
    acts: list[Callable[[], object]] = [lambda: ModelFile(path, options).inspection]
    if found:
        acts += [lambda: save(found[0].model, path.with_suffix(".nnapi")), lambda: _run(found[0], elements)]
    verdicts = [converted, *(verdict_of(act) for act in acts)]
    if found:  # A run is bounded by the alarm alone.
        verdicts[-1] = replace(verdicts[-1], seconds=0.0, bytes=0)
    return next((verdict for verdict in verdicts if not verdict.good), converted)


class _UntriedError(Exception):
    """Too large to run here."""


def _planned(path: Path, options: ConversionOptions) -> Compilation:
    compilation = Compilation.create(load(path, options), [])
    compilation.finish()
    return compilation


def _run(compilation: Compilation, elements: int) -> None:
    model = compilation.model
    if any(np.prod(np.maximum(o.dims, 1), dtype=np.float64) > elements for g in model.subgraphs() for o in g.operands):
        raise _UntriedError
    Execution(compilation).run(seeded_inputs(model, 0))


def verdict_of(act: Callable[[], object]) -> Verdict:
    """The result of an act; time and memory are those of it."""
    before = _cost(b"VmRSS")
    outcome, message = "model", ""
    try:
        with _alarm():
            act()
    except NnbridgeError as error:
        outcome, message = "refused", str(error)
    except _UntriedError:
        outcome = "untried"
    except BaseException as error:  # Any other error is a finding.
        outcome, message = type(error).__name__, str(error)
    return Verdict(outcome, message, *_cost(b"VmHWM").since(before))


@dataclass(frozen=True)
class Source(ABC):
    """An intact file of any format, to be damaged."""

    path: Path

    @cached_property
    def content(self) -> bytes:
        """Its bytes."""
        return self.path.read_bytes()

    @cached_property
    @abstractmethod
    def places(self) -> np.ndarray:
        """Offsets of bytes outside of large constants."""

    @abstractmethod
    def altered(self, rng: np.random.Generator) -> bytes:
        """The file with a few fields changed."""

    def damaged(self, rng: np.random.Generator) -> bytes:
        """The file with a few bytes changed."""
        return damaged(self.content, self.places, rng)

    @property
    def ways(self) -> tuple[Callable[[np.random.Generator], bytes], ...]:
        """The kinds of damage."""
        return self.damaged, self.altered


def require_good(sources: Sequence[Source], rng: np.random.Generator, path: Path, count: int) -> None:
    """Damage files in every way in turn, write them to ``path``, and fail unless each verdict is good."""
    for n in range(count):
        source = sources[n // 2 % len(sources)]
        path.write_bytes(source.ways[n % len(source.ways)](rng))
        options = ConversionOptions(mapping=MAPPINGS[path.suffix[1:]][n // 2 % 2], feature_level=1 + n % 8)
        check = check_conversion if n % 10 else check_all
        verdict = check(path, options)
        if verdict.expected and not verdict.good:  # A process of an earlier test may have ended just then: its time counts, too.
            verdict = check(path, options)
        assert verdict.good, (n, source.path.name, verdict)


class Hanging(BaseException):
    """A case that does not end; a BaseException, so that no ``except Exception`` catches it."""


@contextlib.contextmanager
def _alarm() -> Iterator[None]:
    def ring(*_: object) -> None:
        raise Hanging(f"more than {HANGS} s")

    before = signal.signal(signal.SIGPROF, ring)
    signal.setitimer(signal.ITIMER_PROF, HANGS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def limit_process() -> None:
    """Bound what this process may still take of address space and processor time: the kernel ends what no alarm reaches."""
    now = _status(b"VmSize", os.getpid()) if _PROC.exists() else ADDRESS_SPACE
    resource.setrlimit(resource.RLIMIT_AS, (now + ADDRESS_SPACE, resource.getrlimit(resource.RLIMIT_AS)[1]))
    limit_time()


def limit_time() -> None:
    """Bound what this process may still take of processor time."""
    seconds = math.ceil(time.process_time()) + 3 * HANGS
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, resource.getrlimit(resource.RLIMIT_CPU)[1]))


@dataclass(frozen=True)
class _Cost:
    """The time and memory of processes: this one, and that which runs native code for ONNX files."""

    seconds: float
    """Processor time of all, those that have ended included."""
    bytes: dict[int, int]

    def since(self, before: _Cost) -> tuple[float, int]:
        """Processor time since then, and memory of the processes that lived then and now."""
        sizes = (now - before.bytes.get(process, now) for process, now in self.bytes.items())
        return self.seconds - before.seconds, sum(sizes)


def _cost(size: bytes) -> _Cost:
    """The time so far, and the present size or its peak, which is reset if the present one is asked."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = time.process_time() + ended.ru_utime + ended.ru_stime
    if not _PROC.exists():
        return _Cost(seconds, {})
    native = sys.modules.get("nnbridge_onnx.native")
    other = None if native is None else native.NATIVE.number
    processes = [os.getpid()] if other is None else [os.getpid(), other]
    if size == b"VmRSS":
        for process in processes:
            os.pwrite(_opened(f"/proc/{process}/clear_refs", os.O_WRONLY, os.getpid()), b"5", 0)
    seconds += 0.0 if other is None else _ticks(other) / os.sysconf("SC_CLK_TCK")
    return _Cost(seconds, {process: _status(size, process) for process in processes})


def _ticks(process: int) -> int:
    fields = os.pread(_opened(f"/proc/{process}/stat", os.O_RDONLY, os.getpid()), 8192, 0).rpartition(b")")[2].split()
    return int(fields[11]) + int(fields[12])


def _status(key: bytes, process: int) -> int:
    text = os.pread(_opened(f"/proc/{process}/status", os.O_RDONLY, os.getpid()), 8192, 0)
    return int(text[text.index(key + b":") + len(key) + 1 :].split(None, 1)[0]) * 1024


@lru_cache(maxsize=16)
def _opened(path: str, flags: int, process: int) -> int:
    """A descriptor of a file of /proc, opened once in each process: thousands of cases look into it."""
    return os.open(path, flags)


def damaged(content: bytes, places: np.ndarray, rng: np.random.Generator) -> bytes:
    """A copy with bytes changed, or words set to extremes or copied from elsewhere, at one to three of ``places``."""
    copy = bytearray(content)
    for _ in range(rng.integers(1, 4)):
        at = int(rng.choice(places))
        kind = rng.integers(4)
        if kind == 0:
            copy[at] = int(rng.integers(256))
        elif kind == 1:
            copy[at] ^= 1 << int(rng.integers(8))
        elif kind == 2:
            word = int(rng.choice([0, 1, 0x7F, 0xFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, len(content)]))
            copy[at : at + 4] = word.to_bytes(4, "little")[: len(copy) - at]
        else:
            source = int(rng.choice(places))
            piece = copy[source : source + 4][: len(copy) - at]
            copy[at : at + len(piece)] = piece
    return bytes(copy)


def number(low: int, high: int, old: Any, rng: np.random.Generator) -> int:
    """Another integer between two bounds: a neighbour of ``old``, a small or an extreme one."""
    kind = rng.integers(4)
    if kind == 0 and isinstance(old, (int, np.integer)):
        drawn = int(old) + int(rng.choice([-1, 1]))
    elif kind == 1:
        drawn = int(rng.integers(0, 40))
    else:
        drawn = int(rng.choice(np.array(EXTREMES, object)))
    return min(max(drawn, low), high)


def real(rng: np.random.Generator) -> float:
    """A normally distributed number or an extreme one."""
    return float(rng.choice(REALS)) if rng.integers(2) else float(rng.normal())


def rearranged(items: list[Any], other: Callable[[Any], Any], rng: np.random.Generator) -> list[Any]:
    """A list with elements removed, repeated, swapped or changed by ``other``."""
    kind = rng.integers(6)
    changed = list(items)
    if kind == 0 or not changed:
        return changed[: int(rng.integers(0, len(changed) + 1))]
    at = int(rng.integers(len(changed)))
    if kind == 1:
        changed.insert(at, changed[int(rng.integers(len(changed)))])
    elif kind == 2:
        other_at = int(rng.integers(len(changed)))
        changed[at], changed[other_at] = changed[other_at], changed[at]
    elif kind == 3 and len(changed) < 64:
        changed = changed * int(rng.choice([2, 50]))
    else:
        changed[at] = other(changed[at])
    return changed
