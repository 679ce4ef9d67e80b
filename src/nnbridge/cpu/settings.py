"""Settings of CPU executors: the tier of kernels and the number of threads.

One rule for all of them: what the caller states, else what is in force where the executor is prepared (:func:`preparing`, which
compilations use, so that drivers that compute with the executor follow them), else the environment's ``NNBRIDGE_KERNELS``, else
``auto``: compiled kernels where there are any.
"""

from __future__ import annotations

import enum
import functools
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from nnbridge.cpu import compiled
from nnbridge.errors import InputError, Reason
from nnbridge.records import dataclass

_log = logging.getLogger(__name__)

ENVIRONMENT = "NNBRIDGE_KERNELS"
CHOICES = ("auto", "reference", "compiled")
"""``auto`` and ``compiled`` are compiled kernels where available; the reference kernels compute the rest."""
MOST_THREADS = 256


class Tier(enum.IntEnum):
    """The implementation of kernels; the highest tier that has one for an operation computes it."""

    REFERENCE = 0
    """NumPy. Always there, and what every other tier must equal: bit for bit in integers."""
    COMPILED = 1
    """Machine code."""


@dataclass(frozen=True)
class Settings:
    """Kernels and threads of executors; InputError for what is neither a choice nor a number of threads."""

    kernels: str = CHOICES[0]
    threads: int = 1

    def __post_init__(self) -> None:
        if self.kernels not in CHOICES:
            raise InputError(Reason(f"one of {', '.join(CHOICES)}", str(self.kernels), operand="kernels"))
        if not 1 <= self.threads <= MOST_THREADS:
            raise InputError(Reason(f"1 to {MOST_THREADS} threads", str(self.threads), operand="threads"))

    @property
    def tier(self) -> Tier:
        """The highest tier of kernels that is used; why there are no compiled ones is logged once at INFO level."""
        return Tier.REFERENCE if self.kernels == "reference" or compiled.unavailable() else Tier.COMPILED


def limit_blas(threads: int) -> None:
    """Let NumPy's BLAS, which has one pool for the process, compute on so many threads.

    Without threadpoolctl, or the /proc that it reads on Linux, it continues as it did, which is logged at INFO level.
    """
    try:
        _blas().limit(limits=threads, user_api="blas")
    except (ImportError, OSError) as error:
        _log.info("the threads of NumPy's BLAS are not limited (pip install '.[fast]' in a clone of nnbridge): %s", error)


@functools.cache
def _blas() -> Any:
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


_IN_FORCE: ContextVar[Settings | None] = ContextVar("settings", default=None)


def current() -> Settings:
    """The settings in force here; InputError for an unknown word in the environment."""
    found = _IN_FORCE.get()
    if found is not None:
        return found
    value = os.environ.get(ENVIRONMENT) or CHOICES[0]
    if value not in CHOICES:
        raise InputError(Reason(f"one of {', '.join(CHOICES)}", value, operand=ENVIRONMENT))
    return Settings(value)


@contextmanager
def preparing(settings: Settings) -> Iterator[None]:
    """Apply the settings to everything that is prepared in the block."""
    token = _IN_FORCE.set(settings)
    try:
        yield
    finally:
        _IN_FORCE.reset(token)
