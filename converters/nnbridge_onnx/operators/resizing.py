"""Resizing of images."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from nnbridge.converters.declaration import Option, lowers
from nnbridge.errors import Why
from nnbridge.model import Array
from nnbridge_onnx.declaration import Quantised, operator
from nnbridge_onnx.host.evaluator import HostCall
from nnbridge_onnx.lowerer import C, Lowerer
from nnbridge_onnx.operators.gather import gather_along
from nnbridge_onnx.rules import FLOAT_OR_UINT8, Provider, Unit, condition, one_of, ranks, uint8_parameters


def _image_sizes(unit: Unit) -> bool:
    """Resize changes height and width only, and makes images smaller by whole factors only."""
    shape = unit.shape()
    if unit.has(2) and (scales := unit.constant(2)) is not None and scales.size == 4:
        found = [float(s) for s in np.ravel(scales)]
        first = found[1] == 1
        spatial = list(zip(shape[2:] if first else shape[1:3], found[2:] if first else found[1:3], strict=True))
        return found[0] == 1 and (first or found[3] == 1) and all(s >= 1 or (n * s).is_integer() for n, s in spatial)
    sizes = unit.constant(3)
    return sizes is not None and sizes.size == 4 and int(sizes[0]) == shape[0] and shape[1] in (int(sizes[1]), int(sizes[3]))


def _resize_positions(unit: Unit) -> bool:
    rule = unit.attribute("coordinate_transformation_mode", "half_pixel")
    if unit.attribute("mode", "nearest") == "linear":
        return rule == "asymmetric" or (rule in ("half_pixel", "align_corners") and unit.level >= 4)
    return rule == "asymmetric" and unit.attribute("nearest_mode", "round_prefer_floor") == "floor"


RESIZE = operator(
    "Resize", 148, "X roi? scales!? sizes!? -> Y", "Images of another size.", quantised=Quantised(),
    options=(
        Option("antialias", 0, "1 to smooth where images get smaller"),
        Option("axes", None, "the axes that scales and sizes are for"),
        Option("coordinate_transformation_mode", "half_pixel", "where a pixel of the output lies in the input"),
        Option("keep_aspect_ratio_policy", "stretch", "how sizes are meant"),
        Option("mode", "nearest", "how pixels are interpolated"),
        Option("nearest_mode", "round_prefer_floor", "how positions are rounded"),
    ),
    provider=Provider(
        2,
        FLOAT_OR_UINT8,
        (
            condition("feature level 3 for float images", lambda u: u.type() == "UINT8", lambda u: u.level, 3, Why.FEATURE_LEVEL),
            uint8_parameters(),
            ranks(4, 4),
            one_of("mode", "nearest", "linear"),
            one_of("exclude_outside", 0),
            condition(
                "linear at half_pixel or align_corners (feature level 4) or asymmetric, nearest at asymmetric rounded down",
                _resize_positions,
                lambda u: u.attribute("coordinate_transformation_mode", "half_pixel"),
                kind=Why.ARGUMENT,
            ),
            one_of("antialias", 0),
            condition("no axes", lambda u: not u.attribute("axes", []), lambda u: u.attribute("axes", []), kind=Why.ARGUMENT),
            one_of("keep_aspect_ratio_policy", "stretch"),
            condition(
                "constant scales or sizes",
                lambda u: u.constant(2) is not None or u.constant(3) is not None,
                kind=Why.NOT_CONSTANT,
            ),
            condition("new heights and widths, smaller ones by whole factors", _image_sizes, lambda u: "others"),
        ),
        opset=11,
        grouped=True,
        follows=True,
    ),
)  # fmt: skip
UPSAMPLE = operator(
    "Upsample", 201, "X scales!? -> Y", "Resize before opset 10: asymmetric positions, rounded down.",
    options=(Option("mode", "nearest", "how pixels are interpolated"), Option("scales", None, "the scales, before opset 9")),
)  # fmt: skip


def _positions(to: Lowerer) -> tuple[str, str]:
    """The rules for positions in the input and for rounding them."""
    if to.node.version < 11:
        return "asymmetric", "floor"
    return to.option("coordinate_transformation_mode"), to.option("nearest_mode")


def _stated_scales(to: Lowerer) -> list[float]:
    """The scales that the node states, none where it states sizes."""
    found = to.option("scales") if to.node.version < 9 else None
    if found is None:
        found = to.optional(1 if to.node.type == "Upsample" or to.node.version < 11 else 2)
    return [] if found is None else [float(s) for s in np.ravel(found)]


@lowers(RESIZE, UPSAMPLE)
def _resize(to: Lowerer) -> None:
    """RESIZE_BILINEAR and RESIZE_NEAREST_NEIGHBOR where ONNX's rule for positions is one of NNAPI's."""
    scales = _stated_scales(to)
    # The number of images may be open where it is stated that it stays.
    batches = int(bool(scales) and scales[0] == 1)
    shape, out = to.shape(open_dimensions=batches), to.out_shape(open_dimensions=batches)
    to.require(len(shape) == 4 and shape[:2] == out[:2], "images whose height and width change", [list(shape), list(out)])
    to.require(min(shape[1:]) > 0 and min(out[1:]) > 0, "known sizes of images (see --shape)", [list(shape), list(out)])
    (rule, nearest), mode = _positions(to), to.option("mode")
    to.require(not to.option("antialias") and not to.option("axes"), "no antialias, all axes", "others")
    # NNAPI knows only sizes: scales must say the same.
    for extent, target, scale in zip(shape, out, scales, strict=False):
        to.require(math.isclose(extent * scale, target, rel_tol=1e-6), "scales that give whole sizes", scale)
    x = to.image()
    to.require_float(x)
    size = [to.scalar(out[3]), to.scalar(out[2])]
    if mode == "linear":
        rules = {"asymmetric": (False, False), "align_corners": (True, False), "half_pixel": (False, True)}
        if rule == "pytorch_half_pixel" and min(out[2:]) > 1:
            rule = "half_pixel"
        to.require(rule in rules, ", ".join(rules), rule)
        aligned, half = rules[rule]
        flags = [to.flag(aligned), to.flag(half)] if aligned or half else []
        to.finish(C.RESIZE_BILINEAR, x, *size, *to.layout(needed=bool(flags)), *flags, images=True)
        return
    to.require(mode == "nearest", "mode linear or nearest", mode)
    to.require(rule in _SOURCES and nearest in _ROUNDINGS, "positions inside the input", [rule, nearest])
    to.draft.spend(sum(out[2:]))
    factors = scales[2:] or [target / extent for extent, target in zip(shape[2:], out[2:], strict=True)]
    same = all(
        np.array_equal(_chosen(rule, nearest, extent, target, scale), _chosen_by_nnapi(extent, target))
        for extent, target, scale in zip(shape[2:], out[2:], factors, strict=True)
    )
    to.require(same, "the pixels that asymmetric positions find when rounded down", f"{rule}, {nearest}")
    to.finish(C.RESIZE_NEAREST_NEIGHBOR, x, *size, *to.layout(needed=True), images=True)


_SOURCES: Mapping[str, Callable[[Array, float, int, int], Array]] = {
    "half_pixel": lambda i, s, n, m: (i + 0.5) / s - 0.5,
    "half_pixel_symmetric": lambda i, s, n, m: n / 2 * (1 - m / (s * n)) + (i + 0.5) / s - 0.5,
    "pytorch_half_pixel": lambda i, s, n, m: (i + 0.5) / s - 0.5 if m > 1 else i * 0.0,
    "align_corners": lambda i, s, n, m: i * (n - 1) / (m - 1) if m > 1 else i * 0.0,
    "asymmetric": lambda i, s, n, m: i / s,
    "tf_half_pixel_for_nn": lambda i, s, n, m: (i + 0.5) / s,
}
"""Rule → where an output's index i lies in the input, for a scale s from n to m elements."""

_ROUNDINGS: Mapping[str, Callable[[Array], Array]] = {
    "round_prefer_floor": lambda x: np.ceil(x - 0.5),
    "round_prefer_ceil": lambda x: np.floor(x + 0.5),
    "floor": np.floor,
    "ceil": np.ceil,
}


@lowers(RESIZE, UPSAMPLE)
def _nearest(to: Lowerer) -> None:
    """GATHER of nearest neighbours by any of ONNX's rules."""
    shape, out_shape = to.shape(), to.out_shape()
    rule, rounding = _positions(to)
    to.require(to.option("mode") == "nearest", "mode nearest", to.option("mode"))
    to.require(rule in _SOURCES and rounding in _ROUNDINGS, "positions inside the input", [rule, rounding])
    to.require(to.option("keep_aspect_ratio_policy", "stretch") == "stretch", "no ratio to keep", "another policy")
    scales = [out / size if size else 1.0 for size, out in zip(shape, out_shape, strict=True)]
    stated, axes = _stated_scales(to), [a % len(shape) for a in to.option("axes", range(len(shape)))]
    to.require(not stated or len(stated) == len(axes), "a scale for each axis", stated)
    for axis, number in zip(axes, stated, strict=False):
        to.require(number > 0 and math.isfinite(number), "scales above 0", number)
        scales[axis] = number
    chosen = {}
    for axis, (size, out, scale) in enumerate(zip(shape, out_shape, scales, strict=True)):
        if size != out or not math.isclose(scale, 1):
            to.draft.spend(out)
            chosen[axis] = _chosen(rule, rounding, size, out, scale).tolist()
    gather_along(to, chosen)


def _chosen(rule: str, rounding: str, size: int, out: int, scale: float) -> Array:
    """The input's pixel for each of the output's along one axis."""
    found = _ROUNDINGS[rounding](_SOURCES[rule](np.arange(out, dtype=np.float64), scale, size, out))
    return np.clip(found, 0, size - 1).astype(int)


def _chosen_by_nnapi(size: int, out: int) -> Array:
    """Those that RESIZE_NEAREST_NEIGHBOR chooses, which multiplies in float32."""
    found = np.floor(np.arange(out, dtype=np.float32) * (np.float32(size) / np.float32(out)))
    return np.minimum(found, size - 1).astype(int)


def cubic_far(x: Array, a: float) -> Array:
    """Cubic weights of pixels at distances from 1 to 2."""
    return a * (x**3 - 5 * x**2 + 8 * x - 4)


def _cubic(x: Array, a: float) -> Array:
    near, far = (a + 2) * x**3 - (a + 3) * x**2 + 1, cubic_far(x, a)
    return np.where(x <= 1, near, np.where(x < 2, far, 0.0))


_FILTERS: Mapping[str, tuple[int, Callable[[Array, float], Array]]] = {
    "linear": (1, lambda x, a: np.maximum(1 - x, 0)),
    "cubic": (2, _cubic),
}
"""Mode → how far its filter reaches, and a pixel's weight by its distance."""


def _whole(sizes: Array, dtype: np.dtype[Any]) -> Array:
    """Interpolated numbers in an element type: integers are rounded to nearest, halves to even, and clamped."""
    if dtype.kind not in "iu":
        return sizes.astype(dtype)
    limits = np.iinfo(dtype)
    return np.clip(np.rint(sizes), limits.min, limits.max).astype(dtype)


@RESIZE.host_kernel
def _resized(call: HostCall) -> Sequence[Array] | None:
    """Axis by axis, each pixel from those that the filter reaches; beyond the image its edge is repeated.

    A length is the whole number of elements, as ONNX defines it. Its own tests of interpolation between aligned corners take the
    number before it is rounded down.
    """
    if call.version < 11:
        return _upsample(call)
    x, scales, rule, mode = call.input(0), call.optional(2), call.option("coordinate_transformation_mode"), call.option("mode")
    if (
        rule not in _SOURCES
        or call.option("keep_aspect_ratio_policy") != "stretch"
        or (mode != "nearest" and mode not in _FILTERS)
    ):
        return None
    axes = [a % x.ndim for a in call.option("axes") or range(x.ndim)]
    if scales is None or not scales.size:
        sizes = [int(n) for n in call.input(3)]
        factors = [n / x.shape[a] if x.shape[a] else 1.0 for a, n in zip(axes, sizes, strict=True)]
    else:
        factors = [float(s) for s in scales]
        sizes = [int(np.floor(x.shape[a] * s)) for a, s in zip(axes, factors, strict=True)]
    if not x.size or min(sizes, default=1) < 1:
        return None
    made = x if mode == "nearest" else x.astype(np.float64)
    for axis, out, scale in zip(axes, sizes, factors, strict=True):
        size = x.shape[axis]
        if mode == "nearest":
            made = made.take(_chosen(rule, call.option("nearest_mode"), size, out, scale), axis)
        elif size != out or scale != 1:
            made = _interpolated(call, made, axis, out, scale)
    return [made if mode == "nearest" else _whole(made, x.dtype)]


def _interpolated(call: HostCall, x: Array, axis: int, out: int, scale: float) -> Array:
    rule, size = call.option("coordinate_transformation_mode"), x.shape[axis]
    length = scale * size if rule == "align_corners" else out
    positions = _SOURCES[rule](np.arange(out, dtype=np.float64), scale, size, length)[:, None]
    stretch = min(scale, 1.0) if call.option("antialias") else 1.0
    reach, weight = _FILTERS[call.option("mode")]
    reach = math.ceil(reach / stretch)
    taps = np.floor(positions).astype(int) + np.arange(1 - reach, reach + 1)
    weights = weight(np.abs(taps - positions) * stretch, call.option("cubic_coeff_a", -0.75))
    if call.option("exclude_outside", 0):
        weights = weights * ((taps >= 0) & (taps < size))
    weights = weights / weights.sum(1, keepdims=True)
    nearest, shape = np.clip(taps, 0, size - 1), (-1, *(1,) * (x.ndim - axis - 1))
    return sum(x.take(nearest[:, k], axis) * weights[:, k].reshape(shape) for k in range(taps.shape[1]))


@UPSAMPLE.host_kernel
def _upsample(call: HostCall) -> Sequence[Array] | None:
    """Axis by axis: the pixel at or below a position, or between it and the next one."""
    x, scales = call.input(0), call.option("scales") if call.version < 9 else call.input(1)
    mode = call.option("mode")
    if mode not in ("nearest", "linear", "bilinear"):
        return None
    made = x
    for axis, (size, scale) in enumerate(zip(x.shape, np.ravel(scales), strict=True)):
        places = np.arange(int(np.floor(size * np.float32(scale)))) / np.float64(scale)
        low = np.minimum(places.astype(int), size - 1)
        found = made.take(low, axis)
        if mode != "nearest" and scale != 1:
            share = (places - low).clip(0, 1).reshape(-1, *(1,) * (x.ndim - axis - 1))
            found = found + (made.take(np.minimum(low + 1, size - 1), axis) - found.astype(np.float64)) * share
        made = found
    return [made.astype(x.dtype)]
