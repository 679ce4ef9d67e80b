"""Hostile files: damage to the bytes and structure of intact ones, and limits of time and memory for converting them."""

from __future__ import annotations

import contextlib
import resource
import signal
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from nnbridge.compare import seeded_inputs
from nnbridge.converters import ConversionOptions
from nnbridge.errors import NnbridgeError
from nnbridge.loading import load
from nnbridge.runtime.compilation import Compilation
from nnbridge.runtime.execution import Execution

SECONDS, BYTES = 1.0, 200 * 2**20
"""The most processor time and memory for one file."""
MAPPINGS = {"tflite": ("wide", "delegate"), "onnx": ("wide", "provider")}
"""File name ending → the mappings under which damaged files are converted."""
HANGS = 10
"""Seconds of processor time after which a case is ended."""
ADDRESS_SPACE = 8 * 2**30
"""Bytes of address space of a process that checks files: a wild allocation becomes an error there."""

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
        return self.outcome in ("model", "refused", "untried") and self.seconds < SECONDS and self.bytes < BYTES


def check_conversion(path: Path, options: ConversionOptions) -> Verdict:
    """Convert and plan a file; time and memory are those of both."""
    before = _start()
    started = time.process_time()
    outcome, message = "model", ""
    try:
        with _alarm():
            Compilation.create(load(path, options), []).finish()
    except NnbridgeError as error:
        outcome, message = "refused", str(error)
    except BaseException as error:  # Any other error is a finding.
        outcome, message = type(error).__name__, str(error)
    return Verdict(outcome, message, time.process_time() - started, _peak() - before)


def check_run(path: Path, options: ConversionOptions, elements: int = 1 << 16) -> Verdict:
    """Run a file that converts, unless a tensor has more than ``elements`` elements."""
    try:
        with _alarm():
            model = load(path, options)
            if any(np.prod(np.maximum(o.dims, 1), dtype=np.float64) > elements for g in model.subgraphs() for o in g.operands):
                return Verdict("untried", "too large to run here")
            compilation = Compilation.create(model, [])
            compilation.finish()
            Execution(compilation).run(seeded_inputs(model, 0))
    except NnbridgeError as error:
        return Verdict("refused", str(error))
    except BaseException as error:  # As above.
        return Verdict(type(error).__name__, str(error))
    return Verdict("model")


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


def require_good(sources: Sequence[Source], rng: np.random.Generator, path: Path, count: int) -> None:
    """Damage files by bytes and by structure in turn, write them to ``path``, and fail unless each verdict is good."""
    for n in range(count):
        source = sources[n // 2 % len(sources)]
        path.write_bytes(source.altered(rng) if n % 2 else source.damaged(rng))
        options = ConversionOptions(mapping=MAPPINGS[path.suffix[1:]][n // 2 % 2], feature_level=1 + n % 8)
        verdict = check_conversion(path, options)
        assert verdict.good, (n, source.path.name, verdict)
        if n % 10 == 0:
            ran = check_run(path, options)
            assert ran.good, (n, source.path.name, ran)


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


def limit_address_space() -> None:
    """Bound this process's address space."""
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, resource.getrlimit(resource.RLIMIT_AS)[1]))


def _start() -> int:
    """Reset the process's peak of memory; return the present size in bytes."""
    if not _PROC.exists():
        return 0
    _PROC.write_text("5")
    return _status("VmRSS")


def _peak() -> int:
    return _status("VmHWM") if _PROC.exists() else 0


def _status(key: str) -> int:
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith(key)) * 1024


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
