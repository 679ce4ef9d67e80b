"""Conditions of ONNX Runtime's kernels when they are created: what they require of attributes and constants, beyond what the
operators' definitions do.

As the constructors of its CPU kernels have them (``core/providers/cpu/`` of ONNX Runtime 1.32, the header of each operator). A
node that breaks one ends the session, unless a provider takes it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from nnbridge.errors import Why
from nnbridge.records import dataclass

_NEVER = 1 << 30


@dataclass(frozen=True)
class CreatedNode:
    """A node as its kernel sees it when it is created."""

    node: Any
    version: int
    """That of the operator's definition."""
    attributes: Mapping[str, Any]
    constant: Callable[[int], Any]
    """The numbers of an input that is a constant; None for others."""

    def get(self, name: str, default: Any) -> Any:
        """An attribute, or what it is where the node has none."""
        return self.attributes.get(name, default)


@dataclass(frozen=True)
class Rule:
    """A condition, for versions from ``since`` on and before ``until``."""

    requires: str
    holds: Callable[[CreatedNode], object]
    shows: tuple[str, ...] = ()
    """The attributes that it looks at."""
    place: int = -1
    """The constant that it looks at; -1 for none."""
    since: int = 0
    until: int = _NEVER

    def found(self, node: CreatedNode) -> str:
        """The words for what it looks at."""
        if self.place >= 0:
            return str(node.constant(self.place).tolist())
        stated = [(name, node.attributes[name]) for name in self.shows if name in node.attributes]
        return ", ".join(f"{name} {_plain(value)}" for name, value in stated) or "none"


def broken_rule(node: CreatedNode) -> tuple[str, str, Why] | None:
    """The first rule that a node breaks, what was found, and the kind; None where its kernel is created."""
    for rule in _RULES.get(node.node.op_type, ()):
        if rule.since <= node.version < rule.until and not rule.holds(node):
            return rule.requires, rule.found(node), Why.ARGUMENT if rule.place < 0 else Why.OPERAND_VALUE
    return None


def _plain(value: Any) -> Any:
    """An attribute's value with its text as text."""
    if isinstance(value, bytes):
        return value.decode(errors="backslashreplace") or "''"
    return list(map(_plain, value)) if isinstance(value, (list, tuple)) else value


# -- one attribute -------------------------------------------------------------------------------------------------------------


def _attribute(name: str, words: str, holds: Callable[[Any], object], *, since: int = 0, until: int = _NEVER) -> Rule:
    """A rule for an attribute that is there."""
    return Rule(
        f"{name} {words}",
        lambda node: name not in node.attributes or holds(node.attributes[name]),
        (name,),
        since=since,
        until=until,
    )


def _above_0(name: str) -> Rule:
    return _attribute(name, "above 0", lambda value: value > 0)


def _at_least_0(name: str) -> Rule:
    return _attribute(name, "of 0 at least", lambda value: value >= 0)


def _all_above_0(name: str) -> Rule:
    return _attribute(name, "above 0", lambda value: all(one > 0 for one in value))


def _one_of(name: str, *words: str, since: int = 0, until: int = _NEVER) -> Rule:
    known = {word.encode() for word in words}
    listed = f"{', '.join(words[:-1])} or {words[-1]}"
    return _attribute(name, listed, lambda value: value in known, since=since, until=until)


def _switch(name: str) -> Rule:
    return _attribute(name, "0 or 1", lambda value: value in (0, 1))


def _stated(name: str) -> Rule:
    return Rule(f"a {name}", lambda node: name in node.attributes)


# -- several attributes --------------------------------------------------------------------------------------------------------


def _pads_itself(node: CreatedNode) -> bool:
    return node.get("auto_pad", b"") not in (b"", b"NOTSET")


def _pads_within(node: CreatedNode) -> bool:
    kernel, least = node.get("kernel_shape", ()), -math.inf if _pads_itself(node) else 0
    pads = node.get("pads", ()) or [0] * (2 * len(kernel))
    return len(pads) == 2 * len(kernel) and all(least <= pad < size for pad, size in zip(pads, [*kernel, *kernel], strict=True))


_GATED = frozenset(b"relu tanh sigmoid affine leakyrelu thresholdedrelu scaledtanh hardsigmoid elu softsign softplus".split())
_PLAIN = frozenset(b"Relu Tanh Sigmoid Affine LeakyRelu ThresholdedRelu ScaledTanh HardSigmoid Elu Softsign Softplus".split())


def _directions(node: CreatedNode) -> int:
    return 2 if node.get("direction", b"forward") == b"bidirectional" else 1


def _is_activated(node: CreatedNode) -> bool:
    """True for an RNN with a function for each direction; without, ONNX's default of two counts."""
    names, directions = node.get("activations", (b"Tanh", b"Tanh")), _directions(node)
    names = names[:1] if len(names) == 2 and directions == 1 else names
    return len(names) == directions and _PLAIN.issuperset(names)


def _activates(gates: int) -> Rule:
    """A rule for LSTM and GRU: a function for each gate of each direction, in any letters, or none."""
    return Rule(
        f"{gates} activations that it has for each direction",
        lambda node: (
            len(node.get("activations", ())) in (0, gates * _directions(node))
            and _GATED.issuperset(name.lower() for name in node.get("activations", ()))
        ),
        ("activations", "direction"),
    )


def _is_scanned(node: CreatedNode) -> bool:
    inputs = node.get("num_scan_inputs", 0)
    counts = {"input": inputs, "output": len(node.node.output) - (len(node.node.input) - inputs)}
    directions = [(node.get(f"scan_{side}_directions", [0] * count), count) for side, count in counts.items()]
    axes = [(node.get(f"scan_{side}_axes", [0] * count), count) for side, count in counts.items()]
    known = all(i in (0, 1) for one, _ in directions for i in one)
    return known and all(len(one) == count for one, count in (*directions, *axes))


def _excludes(node: CreatedNode) -> bool:
    mode = node.get("mode", b"nearest")
    return not node.get("exclude_outside", 0) or mode == b"cubic" or (mode == b"linear" and bool(node.get("antialias", 0)))


# -- constants -----------------------------------------------------------------------------------------------------------------


def _constant(place: int, words: str, holds: Callable[[Any], object]) -> Rule:
    """A rule for an input that is a constant."""
    return Rule(words, lambda node: (array := node.constant(place)) is None or holds(array), place=place)


def _single(place: int) -> Rule:
    return _constant(place, f"one number as input {place}", lambda array: array.size == 1 and array.ndim < 2)


def _interpolated(place: int, *, since: int = 0, until: int = _NEVER) -> Rule:
    """A rule for scales, an input: the dimensions that ONNX Runtime's CPU interpolates (``upsamplebase.h``)."""

    def holds(node: CreatedNode) -> bool:
        array = node.constant(place)
        return array is None or not array.size or _interpolates(node, array.ravel().tolist())

    return Rule("scales of dimensions that it interpolates", holds, place=place, since=since, until=until)


def _interpolates(node: CreatedNode, scales: Sequence[float]) -> bool:
    scaled = [i for i, scale in enumerate(scales) if scale != 1]
    rank, mode = len(scales), node.get("mode", b"nearest")
    if mode == b"nearest":
        return True
    if mode == b"cubic":
        return rank == 2 or (rank == 4 and scaled in ([], [2], [3], [2, 3]))
    last = all(i >= rank - 2 for i in scaled) or (rank == 4 and all(i in (1, 2) for i in scaled))
    return rank in (2, 3) or (rank == 4 and last) or (rank == 5 and not {0, 1} & {*scaled})


# -- by operator ---------------------------------------------------------------------------------------------------------------


_WINDOW = (
    _one_of("auto_pad", "NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER", ""),
    _all_above_0("strides"),
    _all_above_0("dilations"),
)
_CONVOLUTION = (
    *_WINDOW,
    Rule("pads or an auto_pad", lambda node: "pads" not in node.attributes or not _pads_itself(node), ("pads", "auto_pad")),
)
_POOLING = (
    *_WINDOW,
    _all_above_0("kernel_shape"),
    Rule("pads smaller than the window", _pads_within, ("pads", "kernel_shape", "auto_pad")),
)
_RECURRENT = (
    _stated("hidden_size"),
    _one_of("direction", "forward", "reverse", "bidirectional"),
    _attribute("layout", "0", lambda value: value == 0),
)
_GATES = (*_RECURRENT, _above_0("hidden_size"), _above_0("clip"))
_MODE = _one_of("mode", "nearest", "linear", "cubic")
_BORDER = _one_of("padding_mode", "zeros", "border", "reflection")
_BLOCKS = (_at_least_0("block_size"),)
_LOOKED_UP = (
    Rule("an output's zero point, which may have no name", lambda node: len(node.node.input) > 4),  # It looks beyond the last.
    *map(_single, (1, 2, 3, 4)),
)
_SUMS = (_switch("exclusive"), _switch("reverse"))
_FLOAT8 = (17, 18, 19, 20, 24)
"""The numbers of the element types of eight bits."""
_RULES: Mapping[str, Sequence[Rule]] = {
    "Attention": (
        _attribute("scale", "above 0, or NaN", lambda value: not value <= 0),
        Rule(
            "qk_matmul_output_mode from -1 to 3",
            lambda node: not any(node.node.output[3:4]) or -1 <= node.get("qk_matmul_output_mode", 0) <= 3,
            ("qk_matmul_output_mode",),
        ),
    ),
    "AveragePool": _POOLING,
    "BitShift": (_one_of("direction", "LEFT", "RIGHT"),),
    "Cast": (
        Rule(
            "saturate for float8 only",
            lambda node: node.get("saturate", 1) or node.get("to", 0) in _FLOAT8,
            ("saturate", "to"),
        ),
    ),
    "Clip": (
        Rule(
            "a min up to the max",
            lambda node: node.get("min", -math.inf) <= node.get("max", math.inf),
            ("min", "max"),
            until=11,
        ),
    ),
    "Col2Im": _WINDOW[1:],
    "Conv": _CONVOLUTION,
    "ConvInteger": _CONVOLUTION,
    "ConvTranspose": _CONVOLUTION,
    "CumProd": _SUMS,
    "CumSum": _SUMS,
    "DepthToSpace": (_one_of("mode", "DCR", "CRD"),),
    "DequantizeLinear": _BLOCKS,
    "Div": (
        _constant(1, "integers other than 0 as divisors", lambda array: array.dtype.kind not in "iu" or bool(np.all(array))),
    ),
    "GRU": (*_GATES, _activates(2)),
    "GridSample": (
        _one_of("mode", "bilinear", "nearest", "bicubic", until=20),
        _one_of("mode", "linear", "nearest", "cubic", since=20),
        _BORDER,
    ),
    "LRN": (
        _attribute("size", "that is odd and above 0", lambda value: value > 0 and value % 2 == 1),
        _above_0("alpha"),
        _above_0("beta"),
    ),
    "LSTM": (*_GATES, _activates(3)),
    "LpNormalization": (_attribute("p", "1 or 2", lambda value: value in (1, 2)),),
    "LpPool": _POOLING,
    "MaxPool": (*_POOLING, _switch("storage_order")),
    "MaxRoiPool": (_above_0("spatial_scale"),),
    "Mod": (_switch("fmod"),),
    "Pad": (_one_of("mode", "constant", "reflect", "edge", "wrap"),),
    "QLinearConv": _CONVOLUTION,
    "QLinearLeakyRelu": _LOOKED_UP,
    "QLinearSigmoid": _LOOKED_UP,
    "QuantizeLinear": _BLOCKS,
    "RNN": (*_RECURRENT, Rule("an activation that it has for each direction", _is_activated, ("activations", "direction"))),
    "Resize": (
        _MODE,
        _one_of(
            "coordinate_transformation_mode",
            *("half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "asymmetric", "align_corners"),
            *("tf_half_pixel_for_nn", "tf_crop_and_resize"),
        ),
        Rule(
            "nearest_mode round_prefer_floor, round_prefer_ceil, floor, ceil or ''",
            lambda node: (
                node.get("mode", b"nearest") != b"nearest"
                or node.get("nearest_mode", b"") in (b"round_prefer_floor", b"round_prefer_ceil", b"floor", b"ceil", b"")
            ),
            ("nearest_mode",),
        ),
        Rule("exclude_outside with mode cubic, or linear and antialias", _excludes, ("exclude_outside", "mode", "antialias")),
        Rule(
            "antialias with mode linear or cubic",
            lambda node: not node.get("antialias", 0) or node.get("mode", b"nearest") in (b"linear", b"cubic"),
            ("antialias", "mode"),
        ),
        _one_of("keep_aspect_ratio_policy", "stretch", "not_larger", "not_smaller"),
        _interpolated(1, until=11),
        _interpolated(2, since=11),
    ),
    "ReverseSequence": (
        *(_attribute(name, "below 2", lambda value: value < 2) for name in ("batch_axis", "time_axis")),
        Rule(
            "a batch_axis that is not the time_axis",
            lambda node: node.get("batch_axis", 1) != node.get("time_axis", 0),
            ("batch_axis", "time_axis"),
        ),
    ),
    "RoiAlign": (
        _attribute("mode", "avg or max", lambda value: value.lower() in (b"avg", b"max")),
        _at_least_0("sampling_ratio"),
    ),
    "RotaryEmbedding": (_at_least_0("num_heads"), _at_least_0("rotary_embedding_dim")),
    "Scan": (Rule("a direction and an axis for each scanned value", _is_scanned, since=9),),
    "SkipLayerNormalization": (_at_least_0("epsilon"),),
    "SkipSimplifiedLayerNormalization": (_at_least_0("epsilon"),),
    "TensorScatter": (_one_of("mode", "linear", "circular"),),
    "Transpose": (_attribute("perm", "of each dimension once", lambda value: sorted(value) == list(range(len(value)))),),
    "Upsample": (
        _MODE,
        Rule(
            "scales of dimensions that it interpolates",
            lambda node: _interpolates(node, node.get("scales", ())),
            ("scales", "mode"),
            since=7,
            until=9,
        ),
        _interpolated(1, since=9),
    ),
}
