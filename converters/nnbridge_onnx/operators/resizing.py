"""Resizing of images."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from nnbridge.converters.declaration import Option, lowers
from nnbridge.converters.rules import since, until
from nnbridge.errors import Why
from nnbridge.model import Array
from nnbridge.records import dataclass
from nnbridge_onnx.declaration import Quantised, operator
from nnbridge_onnx.host.evaluator import HostCall
from nnbridge_onnx.lowerer import C, Lowerer
from nnbridge_onnx.operators.gather import gather_along
from nnbridge_onnx.rules import FLOAT_OR_UINT8, Provider, Unit, condition, one_of, ranks, uint8_parameters

_CLOSE = 1e-4


def _image_sizes(unit: Unit, *, whole: bool = True) -> bool:
    """Resize changes height and width only, and makes images smaller by ``whole`` factors only."""
    shape = unit.shape()
    if unit.has(2) and (scales := unit.constant(2)) is not None and scales.size == 4:
        found = [float(s) for s in np.ravel(scales)]
        first = found[1] == 1
        spatial = list(zip(shape[2:] if first else shape[1:3], found[2:] if first else found[1:3], strict=True))
        smaller = any(s < 1 for _, s in spatial)
        divides = not whole or not smaller or all(_divides(n, s) for n, s in spatial)
        return found[0] == 1 and (first or found[3] == 1) and divides and (unit.level > 2 or not first)
    sizes = () if (array := unit.constant(3)) is None else [int(one) for one in np.ravel(array)]
    if len(sizes) != 4 or sizes[0] != shape[0]:
        return False
    return unit.level > 2 if sizes[1] == shape[1] else sizes[3] == shape[3]


def _divides(size: int, scale: float) -> bool:
    """True if a size is a multiple of the reciprocal of a scale (``ReciprocalIsAFactorOfN``)."""
    factor = 1 / scale if scale else 0.0
    return round(factor) > 0 and abs(factor - round(factor)) < _CLOSE and size % round(factor) == 0


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
        Option("coordinate_transformation_mode", "half_pixel", "the position of an output pixel in the input"),
        Option("cubic_coeff_a", -0.75, "the coefficient of cubic weights"),
        Option("exclude_outside", 0, "1 to leave out pixels beyond the image"),
        Option("extrapolation_value", 0.0, "what is beyond the image, by tf_crop_and_resize"),
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
            since("1.16", one_of("antialias", 0)),
            since(
                "1.16",
                condition("no axes", lambda u: not u.attribute("axes", []), lambda u: u.attribute("axes", []), kind=Why.ARGUMENT),
            ),
            since("1.16", one_of("keep_aspect_ratio_policy", "stretch")),
            condition(
                "constant scales or sizes",
                lambda u: u.constant(2) is not None or u.constant(3) is not None,
                kind=Why.NOT_CONSTANT,
            ),
            since("1.19", condition("new heights and widths, smaller ones by whole factors", _image_sizes, lambda u: "others")),
            until("1.18", condition("new heights and widths", lambda u: _image_sizes(u, whole=False), lambda u: "others")),
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
    return _rules(to.node.version, to.option)


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
    if rule != "align_corners":  # NNAPI knows only sizes: scales must say the same, but where corners are aligned sizes decide.
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
    _require_inside(to, rule, nearest)
    to.draft.spend(sum(out[2:]))
    stated: Sequence[float | None] = scales[2:] or [None] * len(out[2:])
    changes = [_Axis.of(*sizes) for sizes in zip(shape[2:], out[2:], stated, strict=True)]
    same = all(np.array_equal(change.chosen(rule, nearest), _chosen_by_nnapi(change.size, change.out)) for change in changes)
    to.require(same, "the pixels that asymmetric positions find when rounded down", f"{rule}, {nearest}")
    to.finish(C.RESIZE_NEAREST_NEIGHBOR, x, *size, *to.layout(needed=True), images=True)


@RESIZE.provider_lowering
def _resize_as_built(to: Lowerer) -> None:
    """By the sizes of the output, whatever the scales are."""
    x, out = to.image(), to.out_shape()
    linear, rule = to.option("mode") == "linear", to.option("coordinate_transformation_mode")
    level = to.draft.feature_level
    layout = [to.flag(not to.channels_last)] if level > 2 else []
    flags = []
    if linear and level > 3 and rule in ("align_corners", "half_pixel"):
        flags = [to.flag(rule == "align_corners"), *([to.flag(True)] if rule == "half_pixel" else [])]
    code = C.RESIZE_BILINEAR if linear else C.RESIZE_NEAREST_NEIGHBOR
    to.finish(code, x, to.scalar(out[3]), to.scalar(out[2]), *layout, *flags, images=True)


def _require_inside(to: Lowerer, rule: str, rounding: str) -> None:
    known = rule in _SOURCES and rule not in _CROPPING and rounding in _ROUNDINGS
    to.require(known, "positions inside the input", [rule, rounding])


def _rules(version: int, option: Callable[[str], Any]) -> tuple[str, str]:
    """The rules for positions in the input and for rounding them, which opset 11 made attributes."""
    return ("asymmetric", "simple") if version < 11 else (option("coordinate_transformation_mode"), option("nearest_mode"))


_F = np.float32
_NONE, _WHOLE = _F(0), _F(1)


def resized_length(size: int, scale: float) -> int:
    """The length of an axis of ``size`` elements by a scale: whole, of a product in float32, as ONNX Runtime computes it."""
    return int(_F(size) * _F(scale))


@dataclass(frozen=True)
class _Axis:
    """One axis that changes from ``size`` to ``out`` elements; positions are float32, by ONNX Runtime's expressions.

    Where a position meets a half or a whole number, other expressions of the same value would choose another pixel.
    """

    size: int
    out: int
    scale: np.float32
    start: np.float32 = _NONE
    """Where the region begins and ends that tf_crop_and_resize shows, as shares of the axis."""
    end: np.float32 = _WHOLE

    @staticmethod
    def of(size: int, out: int, scale: float | None = None) -> _Axis:
        """By a stated scale, else by the lengths."""
        return _Axis(size, out, _F(scale) if scale is not None else _F(out) / _F(size) if size else _F(1))

    def positions(self, rule: str) -> Array:
        """The position in the input of each element of the output."""
        at = np.arange(self.out, dtype=_F)
        return at if self.scale == 1 else _SOURCES[rule](at, self).astype(_F)

    def chosen(self, rule: str, rounding: str) -> Array:
        """The input's element for each of the output's."""
        found = _ROUNDINGS[rounding](self.positions(rule).astype(np.float64), bool(self.scale < 1))
        return np.clip(found, 0, self.size - 1).astype(int)

    def outside(self, rule: str) -> Array:
        """True for elements of the output that lie beyond the input."""
        at = self.positions(rule)
        return np.asarray((at < 0) | (at > self.size - 1))


def _half_pixel(at: Array, axis: _Axis) -> Array:
    return np.asarray((at + _F(0.5)) / axis.scale - _F(0.5))


def _symmetric(at: Array, axis: _Axis) -> Array:
    """In float64 but for the offset."""
    share = _F(axis.out) / (axis.scale * _F(axis.size))
    return np.float64(_F(axis.size) / _F(2) * (_F(1) - share)) + (at + np.float64(0.5)) / np.float64(axis.scale) - 0.5


def _aligned(at: Array, axis: _Axis) -> Array:
    return at * _F(axis.size - 1) / _F(axis.out - 1) if axis.out > 1 else at * _F(0)


def _cropped(at: Array, axis: _Axis) -> Array:
    """Between both ends of a region; its middle where there is one element."""
    last = _F(axis.size - 1)
    if axis.out == 1:
        return at + 0.5 * np.float64(axis.start + axis.end) * np.float64(last)
    return axis.start * last + at * (axis.end - axis.start) * last / _F(axis.out - 1)


_SOURCES: Mapping[str, Callable[[Array, _Axis], Array]] = {
    "half_pixel": _half_pixel,
    "half_pixel_symmetric": _symmetric,
    "pytorch_half_pixel": lambda at, axis: _half_pixel(at, axis) if axis.out > 1 else at * _F(0),
    "align_corners": _aligned,
    "asymmetric": lambda at, axis: at / axis.scale,
    "tf_half_pixel_for_nn": lambda at, axis: (at + _F(0.5)) / axis.scale,
    "tf_crop_and_resize": _cropped,
}
"""Rule → where the output's elements lie in the input."""
_CROPPING = ("tf_crop_and_resize",)
"""Rules by which elements may lie beyond the input, where they have a value of their own."""

_NEAR = 1e-6
"""How far from a half ONNX Runtime 1.32 takes a position for a half."""
_ROUNDINGS: Mapping[str, Callable[[Array, bool], Array]] = {
    "round_prefer_floor": lambda x, smaller: np.ceil(x - 0.5 - _NEAR),
    "round_prefer_ceil": lambda x, smaller: np.floor(x + 0.5 + _NEAR),
    "floor": lambda x, smaller: np.floor(x),
    "ceil": lambda x, smaller: np.ceil(x),
    "simple": lambda x, smaller: np.ceil(x) if smaller else np.trunc(x),
}
"""Rule → rounded positions, of an axis that may get smaller; ``simple`` is the only one before opset 11."""


@lowers(RESIZE, UPSAMPLE)
def _nearest(to: Lowerer) -> None:
    """GATHER of nearest neighbours by any of ONNX's rules."""
    shape, out_shape = to.shape(), to.out_shape()
    rule, rounding = _positions(to)
    to.require(to.option("mode") == "nearest", "mode nearest", to.option("mode"))
    _require_inside(to, rule, rounding)
    to.require(
        to.option("keep_aspect_ratio_policy", "stretch") == "stretch",
        "keep_aspect_ratio_policy stretch",
        to.option("keep_aspect_ratio_policy"),
    )
    changes = [_Axis.of(size, out) for size, out in zip(shape, out_shape, strict=True)]
    stated, axes = _stated_scales(to), [a % len(shape) for a in to.option("axes", range(len(shape)))]
    to.require(not stated or len(stated) == len(axes), "a scale for each axis", stated)
    for axis, number in zip(axes, stated, strict=False):
        to.require(number > 0 and math.isfinite(number), "scales above 0", number)
        changes[axis] = _Axis.of(shape[axis], out_shape[axis], number)
    chosen = {}
    for axis, change in enumerate(changes):
        if shape != out_shape and change.scale != 1:
            to.draft.spend(change.out)
            chosen[axis] = change.chosen(rule, rounding).tolist()
    gather_along(to, chosen)


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
@UPSAMPLE.host_kernel
def _resized(call: HostCall) -> Sequence[Array] | None:
    """Axis by axis, each pixel from those that the filter reaches; beyond the image its edge is repeated."""
    x, mode = call.input(0), {"bilinear": "linear"}.get(call.option("mode"), call.option("mode"))
    rule, rounding = _rules(call.version, call.option)
    if rule not in _SOURCES or (mode != "nearest" and mode not in _FILTERS):
        return None
    changes = _changes(call)
    if not x.size or min((change.out for change in changes.values()), default=1) < 1:
        return None
    if all(change.out == change.size for change in changes.values()):
        return [x]
    made = x if mode == "nearest" else x.astype(np.float64)
    for axis, change in changes.items():
        if change.scale == 1 or (call.option("antialias") and change.out == change.size):
            continue
        if mode == "nearest":
            made = made.take(change.chosen(rule, rounding), axis)
        else:
            made = _interpolated(call, made, axis, change, mode, rule)
    made = made if mode == "nearest" else _whole(made, x.dtype)
    if rule in _CROPPING:
        for axis, change in changes.items():
            made[(slice(None),) * axis + (change.outside(rule),)] = np.asarray(call.option("extrapolation_value")).astype(x.dtype)
    return [made]


def _stated_by(call: HostCall) -> tuple[Array | None, Array | None]:
    """Scales and sizes, one of which is None."""
    if call.node.proto.op_type == "Upsample" and call.version < 9:
        return np.asarray(call.option("scales")), None
    scales = call.optional(1 if call.version < 11 else 2)
    return (scales, None) if scales is not None and scales.size else (None, call.input(3))


def _changes(call: HostCall) -> Mapping[int, _Axis]:
    """The change of each axis, by scales or by sizes."""
    shape, (scales, sizes) = call.input(0).shape, _stated_by(call)
    axes = [a % len(shape) for a in call.option("axes") or range(len(shape))]
    if sizes is None:
        assert scales is not None
        stated = zip(axes, np.ravel(scales).tolist(), strict=True)
        changes = {a: _Axis.of(shape[a], resized_length(shape[a], scale), scale) for a, scale in stated}
    else:
        changes = {a: _Axis.of(shape[a], int(n)) for a, n in zip(axes, np.ravel(sizes), strict=True)}
        policy = call.option("keep_aspect_ratio_policy")
        if policy != "stretch":
            scale = (min if policy == "not_larger" else max)(change.scale for change in changes.values())
            length = {a: int(np.floor(np.float64(scale * _F(shape[a])) + 0.5)) for a in axes}
            changes = {a: _Axis.of(shape[a], length[a], float(scale)) for a in axes}
    region = call.optional(1) if call.version >= 11 else None
    if region is not None and region.size:
        ends = np.ravel(region).astype(_F).reshape(2, -1)
        changes = {a: replace(changes[a], start=ends[0, i], end=ends[1, i]) for i, a in enumerate(axes)}
    return changes


def _interpolated(call: HostCall, x: Array, axis: int, change: _Axis, mode: str, rule: str) -> Array:
    positions = change.positions(rule).astype(np.float64)[:, None]
    stretch = min(float(change.scale), 1.0) if call.option("antialias") else 1.0
    reach, weight = _FILTERS[mode]
    reach = math.ceil(reach / stretch)
    taps = np.floor(positions).astype(int) + np.arange(1 - reach, reach + 1)
    weights = weight(np.abs(taps - positions) * stretch, call.option("cubic_coeff_a", -0.75))
    if call.option("exclude_outside", 0):
        weights = weights * ((taps >= 0) & (taps < change.size))
    total = weights.sum(1, keepdims=True)
    weights = weights / np.where(total == 0, 1, total)  # Positions whose pixels are all left out have a value of their own.
    nearest, shape = np.clip(taps, 0, change.size - 1), (-1, *(1,) * (x.ndim - axis - 1))
    return np.sum([x.take(nearest[:, k], axis) * weights[:, k].reshape(shape) for k in range(taps.shape[1])], axis=0)
