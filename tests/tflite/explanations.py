"""Differences from LiteRT's kernels that rules of docs/tflite.md explain, as the numbers themselves show."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tests.tflite.drawing import F16, I8, I32, RANGES, Case, F

COMPARISONS = ("EQUAL", "NOT_EQUAL", "GREATER", "GREATER_EQUAL", "LESS", "LESS_EQUAL")


def rule(case: Case, read: Sequence[Any], theirs: Sequence[Any], ours: Sequence[Any]) -> str:
    """The rule behind an operator's difference, or nothing; ``read`` are the arrays of its inputs, None for omitted ones."""
    type = case.outputs[0].type
    integers = all(one is not None and one.type in RANGES and isinstance(one.scale, float) for one in case.inputs)
    if case.operator == "TOPK_V2" and _ties(read, theirs, ours):
        return "NNAPI orders equal numbers by their indexes from the last to the first"
    if case.operator == "DIV" and integers and _quotients(case, read, theirs, ours):
        return "quotients of float32, LiteRT's of fixed point, where C leaves open what comes of those far below a step"
    if case.operator == "POW" and type == I32 and _powers_beyond_32_bits(read, theirs, ours):
        return "C leaves open what LiteRT answers to powers beyond 32 bits"
    if case.operator == "FLOOR_DIV" and _beyond_the_type(read, theirs, ours):
        return "C leaves open what becomes of the lowest integer divided by -1"
    if case.operator == "RSQRT" and integers and (np.abs(ours[0].astype(int) - theirs[0]) <= 1).all():
        return "roots of floats, LiteRT's of fixed point: near halves"
    if case.operator in COMPARISONS and integers and _of_large_scales(case, read, ours):
        return "numbers of scale 1 or more, of which LiteRT for x86-64 compares the sign alone"
    if case.operator == "COS" and type in (F, F16) and _turned(read, theirs, ours):
        return "COS is NNAPI's SIN of what a quarter of a turn is added to"
    if case.operator in ("MAXIMUM", "MINIMUM") and type == F and _beside_nan(read, theirs, ours):
        return "beside NaN NNAPI answers the first operand, TFLite the second"
    if case.operator == "QUANTIZE" and _beyond_integers(case, read, theirs, ours):
        return "C leaves open which integers numbers beyond 32 bits become"
    if case.operator in PRODUCTS and type == F and _of_quantised_weights(case, theirs, ours):
        return "LiteRT quantises numbers beside weights of bytes, Android's delegate dequantises the weights"
    if case.operator in ("REDUCE_MAX", "REDUCE_MIN") and type == F and _from_the_ends(case, read, ours):
        return "NNAPI's extremes start at the ends of float32, which NaN and rows of infinity do not replace"
    if case.operator == "GELU" and type == F16 and _in_half(read, theirs, ours):
        return "LiteRT rounds each step of GELU to float16"
    if type == F and _ends(theirs, ours):
        return "operations of NNAPI that know a fused activation end at the largest number"
    if case.operator in SUMS and type == F and _beyond(read, theirs, ours):
        return "beyond float32, where sums end depends on the order of their terms"
    return ""


def _ties(read: Sequence[Any], theirs: Sequence[Any], ours: Sequence[Any]) -> bool:
    """True if TOPK_V2's numbers are equal and stand at the indexes listed, each listed once, equal ones from the last on."""
    (numbers, indexes), (expected, _) = ours, theirs
    same = np.array_equal(numbers, expected) and np.array_equal(np.take_along_axis(read[0], indexes, -1), numbers)
    falls = np.diff(indexes, axis=-1) < 0
    return bool(same and (falls | (np.diff(numbers.astype(np.float64), axis=-1) != 0)).all())


def _real(case: Case, read: Sequence[Any]) -> list[Any]:
    """The real numbers of quantised inputs with one scale each."""
    return [(a.astype(float) - one.zero_point) * one.scale for one, a in zip(case.inputs, read, strict=True) if one is not None]


def _quotients(case: Case, read: Sequence[Any], theirs: Sequence[Any], ours: Sequence[Any]) -> bool:
    """True if quotients differ by a step, or where they are below half a step, where LiteRT shifts too far."""
    (a, b), [out] = _real(case, read), case.outputs
    with np.errstate(all="ignore"):
        steps = np.broadcast_to(np.abs(a / b / out.scale), ours[0].shape)
    differs = np.abs(ours[0].astype(int) - theirs[0]) > 1
    return bool((steps[differs] < 0.5).all() and (ours[0][differs] == out.zero_point).all())


def _powers_beyond_32_bits(read: Sequence[Any], theirs: Sequence[Any], ours: Sequence[Any]) -> bool:
    """True if powers differ only where 32 bits do not hold them."""
    exact = np.broadcast_to(np.abs(read[0].astype(float)) ** read[1], ours[0].shape)
    return bool((exact[ours[0] != theirs[0]] >= 2**31).all())


def _beyond_the_type(read: Sequence[Any], theirs: Sequence[Any], ours: Sequence[Any]) -> bool:
    """True if quotients differ only where the type does not hold them."""
    a, b = (np.broadcast_to(one, ours[0].shape)[ours[0] != theirs[0]] for one in read)
    return a.dtype.kind == "i" and bool(((a == np.iinfo(a.dtype).min) & (b == -1)).all())


def _of_large_scales(case: Case, read: Sequence[Any], ours: Sequence[Any]) -> bool:
    """True for comparisons of integers with a scale of 1 or more that are those of the real numbers."""
    if all(one is None or one.scale < 1 for one in case.inputs):  # type: ignore[operator]  # one scale, by the caller
        return False
    compared = getattr(np, case.operator.lower())(*_real(case, read))
    return np.array_equal(ours[0].astype(bool), np.broadcast_to(compared, ours[0].shape))


def _turned(read: Sequence[Any], theirs: Sequence[Any], ours: Sequence[Any]) -> bool:
    """True if cosines are off by no more than a digit of the angle and a quarter of a turn, and one of theirs.

    The sum that is turned by ends at the largest number.
    """
    type = read[0].dtype
    angle = np.abs(read[0].astype(F)) + np.float32(np.pi / 2)
    with np.errstate(all="ignore"):
        apart = np.abs(ours[0].astype(F) - theirs[0].astype(F))
        return bool((np.isinf(angle) | (apart <= np.spacing(angle.astype(type)) + 2 * np.finfo(type).eps)).all())


def _beside_nan(read: Sequence[Any], theirs: Sequence[Any], ours: Sequence[Any]) -> bool:
    """True if two inputs' extremes differ only where one of them is NaN."""
    if ours[0].shape != theirs[0].shape:
        return False
    known = np.broadcast_to(~np.isnan(read[0] + read[1]), ours[0].shape)
    # In a graph the operators before have left other last digits.
    return np.allclose(ours[0][known], theirs[0][known], rtol=1e-5, atol=0)


def _beyond_integers(case: Case, read: Sequence[Any], theirs: Sequence[Any], ours: Sequence[Any]) -> bool:
    """True if quantised floats differ only where 32 bits do not hold their steps."""
    if read[0].dtype != F:
        return False
    with np.errstate(all="ignore"):
        steps = np.abs(read[0] / case.outputs[0].scale)
    return bool((steps[ours[0] != theirs[0]] > 2.0**30).all())


def _of_quantised_weights(case: Case, theirs: Sequence[Any], ours: Sequence[Any]) -> bool:
    """True if products of floats and bytes are apart by no more than a hundredth of their range."""
    mixed = {one.type for one in case.inputs[:3] if one is not None} >= {F, I8}
    with np.errstate(all="ignore"):
        near = np.abs(ours[0] - theirs[0]).max(initial=0) <= 0.01 * np.abs(theirs[0]).max(initial=0)
    return mixed and bool(near)


def _from_the_ends(case: Case, read: Sequence[Any], ours: Sequence[Any]) -> bool:
    """True if extremes of numbers that are not all finite are those that start at the ends of float32."""
    if np.isfinite(read[0]).all():
        return False
    choose, start = (np.fmax, -LARGEST) if case.operator == "REDUCE_MAX" else (np.fmin, LARGEST)
    over = tuple({int(axis) % read[0].ndim for axis in np.ravel(read[1])})
    return np.array_equal(np.ravel(choose.reduce(read[0], over, initial=start)), np.ravel(ours[0]))


def _in_half(read: Sequence[Any], theirs: Sequence[Any], ours: Sequence[Any]) -> bool:
    """True if products of float16 are apart by what a rounded factor near 1 leaves."""
    with np.errstate(all="ignore"):
        apart = np.abs(ours[0].astype(F) - theirs[0].astype(F))
        return bool((apart <= (np.abs(read[0].astype(F)) + 0.1) * 2.0**-10).all())


LARGEST = np.finfo(np.float32).max


def _ends(theirs: Sequence[Any], ours: Sequence[Any]) -> bool:
    """True if numbers differ only where TFLite's are infinite and NNAPI's the largest of that sign."""
    if ours[0].shape != theirs[0].shape:
        return False
    with np.errstate(all="ignore"):
        differs = ~np.isclose(ours[0], theirs[0], 1e-5, 1e-5, equal_nan=True)
    largest = np.copysign(LARGEST, theirs[0])
    return bool((np.isinf(theirs[0]) & (ours[0] == largest))[differs].all())


def _beyond(read: Sequence[Any], theirs: Sequence[Any], ours: Sequence[Any]) -> bool:
    """True if sums of huge numbers differ only where one of the two is huge or beyond float32, as the order of terms has it."""
    if not any(array is not None and (np.abs(array) > 1e30).any() for array in read if array is None or array.dtype == F):
        return False
    if ours[0].shape != theirs[0].shape:
        return False
    with np.errstate(all="ignore"):
        differs = ~np.isclose(ours[0], theirs[0], 1e-5, 1e-5, equal_nan=True)
        held = [np.abs(array[differs]) < 1e30 for array in (ours[0], theirs[0])]
    return not (held[0] & held[1]).any()


PRODUCTS = ("CONV_2D", "DEPTHWISE_CONV_2D", "TRANSPOSE_CONV", "CONV_3D", "CONV_3D_TRANSPOSE", "FULLY_CONNECTED", "BATCH_MATMUL")
SUMS = (
    *PRODUCTS,
    *("AVERAGE_POOL_2D", "L2_POOL_2D", "MEAN", "SUM", "CUMSUM", "RESIZE_BILINEAR"),
    *("REDUCE_PROD", "GELU"),
)
"""Operators whose results are sums, or products; infinity times 0 may be among the terms, or be left out."""
