"""Arithmetics that devices have where NNAPI leaves them a choice: how sums are added, rescaled and stored.

Kernels read :func:`current` when they are prepared and when they run; outside of :func:`using` it is :data:`EXACT`, the
arithmetic of NNAPI's CPU. Executors enter one (``Executor(model, numerics=NAME)``); compiled kernels have :data:`EXACT` only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeAlias

import numpy as np

from nnbridge.model import Array
from nnbridge.records import dataclass

Product: TypeAlias = Callable[..., Array]
"""``product(left, right, out=None)``: a matrix product, as ``np.matmul``."""


@dataclass(frozen=True)
class Numerics:
    """One arithmetic."""

    name: str
    text: str
    """What it does, in a few words."""
    rounding: str = "nnapi"
    """Of integers that are rescaled: ``nnapi`` rounds twice, sums of FULLY_CONNECTED once, as LiteRT's reference kernels;
    ``matrix`` sums of products twice with ties up, as its plain kernels; ``double`` and ``single`` round all of them so often;
    ``float`` multiplies in float32 and rounds ties to even."""
    real_functions: bool = False
    """True where 8-bit SOFTMAX, LOGISTIC and TANH are tables of real numbers, not computed in fixed point."""
    means: str = "truncated"
    """Of 8-bit MEAN: ``truncated`` as NNAPI's, or ``nearest``."""
    sums: str = "blas"
    """Of real products: a key of :data:`PRODUCTS`."""
    stored: str = "float32"
    """What real numbers are rounded to: each result, and each input and constant with ``all_stored``."""
    all_stored: bool = False
    relaxed_only: bool = False
    """True where ``stored`` holds only for models that allow it (``relaxComputationFloat32toFloat16``)."""
    tables: bool = False
    """True where exponential functions are interpolated between the entries of a table."""
    in_float: bool = False
    """True where 8-bit operations are computed on real numbers."""

    @property
    def halves(self) -> bool:
        """True if real numbers lose digits when they are stored or added up."""
        return self.stored != "float32" or self.sums == "float16"


EXACT = Numerics("exact", "NNAPI's CPU")
_ALL = (
    EXACT,
    Numerics("matrix_rounding", "sums of products rescaled with ties up", rounding="matrix", real_functions=True),
    Numerics("double_rounding", "integer sums rescaled with two roundings everywhere", rounding="double"),
    Numerics("single_rounding", "integer sums rescaled with one rounding everywhere", rounding="single", means="nearest"),
    Numerics("float_rescaled", "integer sums rescaled in float32, ties to even", "float", True, "nearest"),
    Numerics("float_requantised", "8-bit operations on real numbers, rounded once", in_float=True),
    Numerics("double_sums", "real sums in float64, rounded once", sums="double"),
    Numerics("reversed_sums", "real sums from the last term to the first", sums="reversed"),
    Numerics("lane_sums", "real sums in eight lanes that are added at the end", sums="lanes"),
    Numerics("sequential_sums", "real sums one term after another", sums="sequential"),
    Numerics("tables", "exponential functions from tables of 512 segments", tables=True),
    Numerics("float16", "results of relaxed models rounded to float16", stored="float16", relaxed_only=True),
    Numerics("float16_stored", "values, weights and results in float16", stored="float16", all_stored=True),
    Numerics("bfloat16_stored", "values, weights and results in bfloat16", stored="bfloat16", all_stored=True),
    Numerics("float16_sums", "values and sums in float16", stored="float16", all_stored=True, sums="float16"),
    Numerics("float16_requantised", "8-bit operations in float16", stored="float16", all_stored=True, in_float=True),
)
NUMERICS: Mapping[str, Numerics] = {numerics.name: numerics for numerics in _ALL}
"""Name → arithmetic, from the mildest."""
LAST_PLACES = 8
"""Units in the last place by which two libraries' functions may differ."""
DISTURBED = Numerics("last_place", "real results moved by units in the last place", stored="last place")
"""No device's arithmetic: how much it changes outputs is how much a model amplifies rounding."""
BY_NAME: Mapping[str, Numerics] = {**NUMERICS, DISTURBED.name: DISTURBED}

_CURRENT: ContextVar[Numerics] = ContextVar("nnbridge_numerics", default=EXACT)


def current() -> Numerics:
    """The arithmetic that kernels compute with."""
    return _CURRENT.get()


@contextmanager
def using(numerics: Numerics) -> Iterator[None]:
    """Kernels that are prepared or run inside have this arithmetic."""
    token = _CURRENT.set(numerics)
    try:
        yield
    finally:
        _CURRENT.reset(token)


# -- stored numbers ------------------------------------------------------------------------------------------------------


def _through_half(x: Array) -> Array:
    with np.errstate(over="ignore"):
        return x.astype(np.float16).astype(np.float32)


def _through_bfloat(x: Array) -> Array:
    """The upper 16 bits of float32, to nearest, ties to even; infinities and NaN as they are."""
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    with np.errstate(over="ignore"):
        rounded = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) & np.uint32(0xFFFF0000)
    return np.where(np.isfinite(x), rounded.view(np.float32), x).astype(np.float32).reshape(x.shape)


def _moved(x: Array) -> Array:
    """Each number moved by some units in its last place, in a pattern that only the shape decides."""
    units = np.random.default_rng(0).integers(-LAST_PLACES, LAST_PLACES, x.shape, endpoint=True).astype(np.float32)
    with np.errstate(all="ignore"):
        return np.where(np.isfinite(x), x + units * np.spacing(x), x).astype(np.float32)


STORED: Mapping[str, Callable[[Array], Array]] = {
    "float32": lambda x: x,
    "float16": _through_half,
    "bfloat16": _through_bfloat,
    "last place": _moved,
}
"""Type that numbers are stored in → from float32 to the float32 numbers that it has."""


# -- sums ----------------------------------------------------------------------------------------------------------------

_LANES = 8
_DOT = 4
"""Products that a float16 unit adds up before it rounds the sum."""


def _into(out: Array | None, result: Array) -> Array:
    if out is None:
        return result
    np.copyto(out, result, casting="same_kind")
    return out


def _in_blocks(left: Array, right: Array, block: int, dtype: type) -> Array:
    """Partial products one after another; their sum is rounded to the type after each."""
    total = np.zeros((*left.shape[:-1], right.shape[-1]), dtype)
    for k in range(0, left.shape[-1], block):
        with np.errstate(over="ignore", invalid="ignore"):
            total += (left[..., k : k + block] @ right[..., k : k + block, :]).astype(dtype, copy=False)
    return total.astype(left.dtype, copy=False)


def _lanes(left: Array, right: Array) -> Array:
    parts = [left[..., k::_LANES] @ right[..., k::_LANES, :] for k in range(min(_LANES, max(left.shape[-1], 1)))]
    while len(parts) > 1:
        half = (len(parts) + 1) // 2
        parts = [a + b for a, b in zip(parts, parts[half:], strict=False)] + parts[len(parts) - half : half]
    return parts[0]


def _doubles(left: Array, right: Array) -> Array:
    return (left.astype(np.float64) @ right.astype(np.float64)).astype(left.dtype)


_ORDERS: Mapping[str, Callable[[Array, Array], Array]] = {
    "sequential": lambda a, b: _in_blocks(a, b, 1, np.float32),
    "reversed": lambda a, b: _in_blocks(a[..., ::-1], b[..., ::-1, :], 1, np.float32),
    "lanes": _lanes,
    "double": _doubles,
    "float16": lambda a, b: _in_blocks(a, b, _DOT, np.float16),
}


def _ordered(order: Callable[[Array, Array], Array]) -> Product:
    def product(left: Array, right: Array, out: Array | None = None) -> Array:
        if left.dtype != np.float32:
            return np.matmul(left, right, out=out)
        return _into(out, order(left, right))

    return product


PRODUCTS: Mapping[str, Product] = {"blas": np.matmul, **{name: _ordered(order) for name, order in _ORDERS.items()}}
"""Order of sums → matrix product of real numbers."""


def real_product() -> Product:
    """The current matrix product of real numbers; exact sums of integers use ``np.matmul``, as their order does not matter."""
    return PRODUCTS[current().sums]


# -- tables --------------------------------------------------------------------------------------------------------------

_SEGMENTS = 512
"""LiteRT's 16-bit kernels interpolate exp, logistic and tanh in tables of as many segments."""


def interpolated(function: Callable[[Array], Array], low: float, high: float) -> Callable[[Array], Array]:
    """A function as a table between two arguments; beyond them it has the values at the ends."""
    at = np.linspace(low, high, _SEGMENTS + 1)
    values = function(at)

    def look_up(x: Array) -> Array:
        return np.interp(x, at, values).astype(x.dtype)

    return look_up
