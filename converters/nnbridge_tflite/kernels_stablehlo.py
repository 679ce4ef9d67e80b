"""NumPy kernels of the STABLEHLO operators that LiteRT has kernels for."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from nnbridge.operations.philox import philox
from nnbridge_tflite.kernels import KERNELS, Array, Options, Tensors, given, kernel
from nnbridge_tflite.kernels_volumes import dilated, windows_reduced

BODY = "body"
"""Option with the name of the only operator of the subgraph that an operator applies."""

FUNCTIONS: Mapping[str, Callable[..., Array]] = {
    "STABLEHLO_ADD": np.add,
    "STABLEHLO_AND": np.bitwise_and,
    "STABLEHLO_MAXIMUM": np.maximum,
    "STABLEHLO_MINIMUM": np.minimum,
    "STABLEHLO_MULTIPLY": np.multiply,
    "STABLEHLO_OR": np.bitwise_or,
}
"""Operators that a body may consist of."""


def _elementwise(function: Callable[..., Array]) -> Any:
    def run(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
        return [function(given(inputs[0]), given(inputs[1]))]

    return run


_RUN = ("STABLEHLO_ADD", "STABLEHLO_MAXIMUM", "STABLEHLO_MINIMUM", "STABLEHLO_MULTIPLY")
KERNELS.update({name: _elementwise(FUNCTIONS[name]) for name in _RUN})


def _listed(options: Options, name: str) -> list[int]:
    return [int(v) for v in options.get(name) or ()]


def _function(options: Options) -> Callable[..., Array]:
    found = FUNCTIONS.get(options.get(BODY) or "")
    if found is None:
        raise ValueError(f"a body of one operator ({', '.join(FUNCTIONS)}), found {options.get(BODY) or 'another'}")
    return found


def padded(data: Array, filler: Any, low: Sequence[int], high: Sequence[int]) -> Array:
    """Padding at the edges; a negative width cuts."""
    made = np.pad(data, [(max(a, 0), max(b, 0)) for a, b in zip(low, high, strict=True)], constant_values=filler)
    ends = [n - max(-b, 0) for n, b in zip(made.shape, high, strict=True)]
    return made[tuple(slice(max(-a, 0), max(end, 0)) for a, end in zip(low, ends, strict=True))]


@kernel("STABLEHLO_PAD")
def pad(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    """Padding at the edges and between elements."""
    filler = given(inputs[1]).reshape(-1)[0]
    apart = dilated(given(inputs[0]), [1 + n for n in _listed(options, "interior_padding")], filler)
    return [padded(apart, filler, _listed(options, "edge_padding_low"), _listed(options, "edge_padding_high"))]


@kernel("STABLEHLO_REDUCE_WINDOW")
def reduce_window(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    """Windows of a padded array, gathered by the body from an initial value on."""
    data, first = given(inputs[0]), given(inputs[1]).reshape(-1)[0]
    shape = _listed(options, "window_dimensions")
    ones = [1] * len(shape)
    padding = _listed(options, "padding") or [0] * (2 * len(shape))
    apart = dilated(data, _listed(options, "base_dilations") or ones, first)
    wide = padded(apart, first, padding[0::2], padding[1::2])
    steps = [_listed(options, name) or ones for name in ("window_strides", "window_dilations")]
    return [windows_reduced(wide, first, _function(options), shape, *steps)]


def _index_vectors(indices: Array, axis: int) -> Array:
    """Indices [..., components]: the components along an axis, or single ones if the axis is one too far."""
    return indices[..., None] if axis == indices.ndim else np.moveaxis(indices, axis, -1)


@kernel("STABLEHLO_GATHER")
def gather(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    """Slices of an operand from start indices on, which are moved so that slices fit."""
    data, starts = given(inputs[0]), _index_vectors(given(inputs[1]), int(options.get("index_vector_dim") or 0))
    sizes, offsets = _listed(options, "slice_sizes"), _listed(options, "offset_dims")
    collapsed, axes = _listed(options, "collapsed_slice_dims"), _listed(options, "start_index_map")
    batch = starts.shape[:-1]
    kept = [n for axis, n in enumerate(sizes) if axis not in collapsed]
    made = np.empty((*batch, *kept), data.dtype)
    for place in np.ndindex(*batch):
        first = [0] * data.ndim
        for axis, start in zip(axes, starts[place], strict=True):
            first[axis] = int(np.clip(start, 0, data.shape[axis] - sizes[axis]))
        made[place] = data[tuple(slice(f, f + n) for f, n in zip(first, sizes, strict=True))].reshape(kept)
    others = [axis for axis in range(made.ndim) if axis not in offsets]
    order = dict(zip([*others, *offsets], range(made.ndim), strict=True))
    return [made.transpose([order[axis] for axis in range(made.ndim)])]


@kernel("STABLEHLO_SCATTER")
def scatter(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    """Updates combined by the body with an operand's elements; what falls outside is left out."""
    made, updates = given(inputs[0]).copy(), given(inputs[2])
    function = _function(options)
    starts = _index_vectors(given(inputs[1]), int(options.get("index_vector_dim") or 0))
    windows, inserted = _listed(options, "update_window_dims"), _listed(options, "inserted_window_dims")
    axes = _listed(options, "scatter_dims_to_operand_dims")
    scattered = [axis for axis in range(updates.ndim) if axis not in windows]
    inside = [axis for axis in range(made.ndim) if axis not in inserted]
    for place in itertools.product(*map(range, updates.shape)):
        index = [0] * made.ndim
        for axis, start in zip(axes, starts[tuple(place[a] for a in scattered)], strict=True):
            index[axis] += int(start)
        for axis, window in zip(inside, windows, strict=True):
            index[axis] += place[window]
        if all(0 <= i < n for i, n in zip(index, made.shape, strict=True)):
            made[tuple(index)] = function(made[tuple(index)], updates[place])
    return [made]


_THREEFRY, _ROTATIONS, _PARITY = 2, (13, 15, 26, 6, 17, 29, 16, 24), 0x1BD11BDA


@kernel("STABLEHLO_RNG_BIT_GENERATOR")
def random_bits(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    """Random words from a state of key and counter, and the state afterwards: Philox 4x32-10, or Threefry 2x32-20."""
    state, out = given(inputs[0]).reshape(-1).astype(np.uint64), outputs[1]
    size = int(np.prod(out.dims)) * out.dtype.itemsize
    threefry = options.get("algorithm") == _THREEFRY
    blocks = -(-size // (8 if threefry else 16))
    counters = state[1] + np.arange(blocks, dtype=np.uint64)
    low, high = counters & np.uint64(0xFFFFFFFF), counters >> np.uint64(32)
    key = (int(state[0]) & 0xFFFFFFFF, int(state[0]) >> 32)
    if threefry:
        words = _threefry(low, high, key)
    else:
        upper = int(state[2 if state.size > 2 else 0])
        rest = [np.full(blocks, part, np.uint64) for part in (upper & 0xFFFFFFFF, upper >> 32)]
        words = philox(np.stack([low, high, *rest], axis=-1), key)
    after = state.copy()
    after[1] += np.uint64(blocks)
    raw = words.astype(np.uint32).reshape(-1).view(np.uint8)[:size]
    return [after, raw.view(out.dtype).reshape(out.dims)]


def _threefry(low: Array, high: Array, key: tuple[int, int]) -> Array:
    mask = np.uint64(0xFFFFFFFF)
    keys = [np.uint64(k) for k in (*key, key[0] ^ key[1] ^ _PARITY)]
    a, b = (low + keys[0]) & mask, (high + keys[1]) & mask
    for turn in range(5):
        for rotation in _ROTATIONS[4 * (turn % 2) : 4 * (turn % 2) + 4]:
            a = (a + b) & mask
            b = ((b << np.uint64(rotation)) | (b >> np.uint64(32 - rotation))) & mask ^ a
        a = (a + keys[(turn + 1) % 3]) & mask
        b = (b + keys[(turn + 2) % 3] + np.uint64(turn + 1)) & mask
    return np.stack([a, b], axis=-1)
