"""The STABLEHLO operators that LiteRT has kernels for, but for control flow and random numbers."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from nnbridge.converters.declaration import Option
from nnbridge_tflite.declaration import TfliteOperator, inputs
from nnbridge_tflite.host.codes import BODY
from nnbridge_tflite.host.numbers import Array, Options, Tensors, data_of, first
from nnbridge_tflite.loads import INDEXES, OUT, SAME, PreparedOperator, alike, ranked, requires, same_shape, single, typed
from nnbridge_tflite.operators.elementwise import host_as_stored
from nnbridge_tflite.operators.pooling import dilated, windows_reduced

FUNCTIONS: Mapping[str, Callable[..., Array]] = {
    "STABLEHLO_ADD": np.add,
    "STABLEHLO_AND": np.bitwise_and,
    "STABLEHLO_MAXIMUM": np.maximum,
    "STABLEHLO_MINIMUM": np.minimum,
    "STABLEHLO_MULTIPLY": np.multiply,
    "STABLEHLO_OR": np.bitwise_or,
}
"""Operators that a body may consist of."""
_SIZED = requires(
    "a slice size for each dimension of the operand",
    lambda node: len(node.operator.options.get("slice_sizes") or ()) == len(node.shape(0)),
)
_VECTORS = requires(
    "index_vector_dim within the indexes' dimensions, and offset_dims within the output's",
    lambda node: (
        0 <= node.option("index_vector_dim") <= len(node.shape(1))
        and len(node.option("collapsed_slice_dims") or ()) <= len(node.option("slice_sizes") or ())
        and ((out := node.at(OUT)) is None or len(node.option("offset_dims") or ()) <= len(out.shape))
    ),
)
_PADDINGS = ("edge_padding_low", "edge_padding_high", "interior_padding")


def _padded(node: PreparedOperator) -> bool:
    """True if there are as many paddings of each kind, for 8 dimensions at most."""
    listed = [node.operator.options.get(name) for name in _PADDINGS]
    counts = {-1 if one is None else len(one) for one in listed}
    return len(counts) == 1 and 0 <= min(counts) <= 8


_PADDED = requires(f"as many numbers as {', '.join(_PADDINGS)}", _padded)
_SPREAD = requires("interior padding of 0 at least", lambda node: min(node.option("interior_padding") or (0,)) >= 0)
_PAIRS = (alike(0, 1), same_shape(0, 1))
STABLEHLO_ADD, STABLEHLO_AND, STABLEHLO_MAXIMUM, STABLEHLO_MINIMUM, STABLEHLO_MULTIPLY, STABLEHLO_SHIFT_LEFT = (
    TfliteOperator(name, summary, inputs("a", "b"), loads=_PAIRS, kernel=host_as_stored(FUNCTIONS.get(name, np.left_shift)))
    for name, summary in (
        ("STABLEHLO_ADD", "a + b"),
        ("STABLEHLO_AND", "a and b, bit by bit."),
        ("STABLEHLO_MAXIMUM", "The larger of a and b."),
        ("STABLEHLO_MINIMUM", "The smaller of a and b."),
        ("STABLEHLO_MULTIPLY", "a · b"),
        ("STABLEHLO_SHIFT_LEFT", "a · 2^b, bits that do not fit dropped."),
    )
)
_INDEX_VECTOR = Option("index_vector_dim", 0, "the dimension of the indexes' components")
STABLEHLO_PAD = TfliteOperator(
    "STABLEHLO_PAD",
    "Padding at the edges and between elements.",
    inputs("input", "value"),
    options=(
        Option("edge_padding_low", (), "elements before each dimension; negative ones are cut"),
        Option("edge_padding_high", (), "elements after each dimension; negative ones are cut"),
        Option("interior_padding", (), "elements between two neighbours"),
    ),
    loads=(_PADDED, alike(0, 1), single(1), ranked(0, 1, 8), SAME, _SPREAD),
)
STABLEHLO_REDUCE_WINDOW = TfliteOperator(
    "STABLEHLO_REDUCE_WINDOW",
    "Windows of a padded array, gathered by the body from an initial value on.",
    inputs("input", "init_value"),
    options=(
        Option("window_dimensions", (), "sizes of the window"),
        Option("window_strides", (), "1 where there are none"),
        Option("base_dilations", (), "how far the array's elements are moved apart; 1 where there are none"),
        Option("window_dilations", (), "how far the window's cells are apart; 1 where there are none"),
        Option("padding", (), "elements before and after each dimension, in turn"),
        Option("body_subgraph_index", 0, "the subgraph that combines two elements"),
    ),
    applies="body_subgraph_index",
    loads=(alike(0, 1),),
)
STABLEHLO_GATHER = TfliteOperator(
    "STABLEHLO_GATHER",
    "Slices of an operand from start indexes on, which are shifted so that slices fit.",
    inputs("operand", "start_indices"),
    options=(
        Option("offset_dims", (), "dimensions of the result that are the slices'"),
        Option("collapsed_slice_dims", (), "dimensions of the slices that go"),
        Option("start_index_map", (), "the operand's dimension of each component of an index"),
        _INDEX_VECTOR,
        Option("slice_sizes", (), "sizes of a slice"),
        Option("indices_are_sorted", False, "a hint"),
    ),
    loads=(typed(1, *INDEXES), _SIZED, _VECTORS),
)
STABLEHLO_SCATTER = TfliteOperator(
    "STABLEHLO_SCATTER",
    "Updates combined by the body with an operand's elements; what falls outside is left out.",
    inputs("operand", "scatter_indices", "updates"),
    options=(
        Option("indices_are_sorted", False, "a hint"),
        Option("update_window_dims", (), "dimensions of the updates that are the windows'"),
        Option("inserted_window_dims", (), "dimensions of the operand that windows do not have"),
        Option("scatter_dims_to_operand_dims", (), "the operand's dimension of each component of an index"),
        _INDEX_VECTOR,
        Option("unique_indices", False, "a hint"),
        Option("update_computation_subgraph_index", 0, "the subgraph that combines two elements"),
    ),
    applies="update_computation_subgraph_index",
)


def _numbers(options: Options, name: str) -> list[int]:
    return [int(v) for v in options[name]]


def _function(options: Options) -> Callable[..., Array]:
    found = FUNCTIONS.get(options.get(BODY) or "")
    if found is None:
        raise ValueError(f"a body of one operator ({', '.join(FUNCTIONS)}), found {options.get(BODY) or 'another'}")
    return found


def padded(data: Array, filler: Any, low: Sequence[int], high: Sequence[int]) -> Array:
    """Padding at the edges; a negative width cuts."""
    result = np.pad(data, [(max(a, 0), max(b, 0)) for a, b in zip(low, high, strict=True)], constant_values=filler)
    ends = [n - max(-b, 0) for n, b in zip(result.shape, high, strict=True)]
    return result[tuple(slice(max(-a, 0), max(end, 0)) for a, end in zip(low, ends, strict=True))]


@STABLEHLO_PAD.host_kernel
def host_pad(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    filler = first(inputs[1])
    apart = dilated(data_of(inputs[0]), [1 + n for n in _numbers(options, "interior_padding")], filler)
    return [padded(apart, filler, _numbers(options, "edge_padding_low"), _numbers(options, "edge_padding_high"))]


@STABLEHLO_REDUCE_WINDOW.host_kernel
def host_reduce_window(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    data, start = data_of(inputs[0]), first(inputs[1])
    shape = _numbers(options, "window_dimensions")
    ones = [1] * len(shape)
    padding = _numbers(options, "padding") or [0] * (2 * len(shape))
    apart = dilated(data, _numbers(options, "base_dilations") or ones, start)
    wide = padded(apart, start, padding[0::2], padding[1::2])
    steps = [_numbers(options, name) or ones for name in ("window_strides", "window_dilations")]
    return [windows_reduced(wide, start, _function(options), shape, *steps)]


def _index_vectors(indices: Array, axis: int) -> Array:
    """Indices [..., components]: the components along an axis, or single ones if the axis is one too far."""
    return indices[..., None] if axis == indices.ndim else np.moveaxis(indices, axis, -1)


@STABLEHLO_GATHER.host_kernel
def host_gather(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    data, starts = data_of(inputs[0]), _index_vectors(data_of(inputs[1]), int(options["index_vector_dim"]))
    sizes, offsets = _numbers(options, "slice_sizes"), _numbers(options, "offset_dims")
    collapsed, axes = _numbers(options, "collapsed_slice_dims"), _numbers(options, "start_index_map")
    batch = starts.shape[:-1]
    sizes_left = [n for axis, n in enumerate(sizes) if axis not in collapsed]
    result = np.empty((*batch, *sizes_left), data.dtype)
    for position in np.ndindex(*batch):
        first = [0] * data.ndim
        for axis, start in zip(axes, starts[position], strict=True):
            first[axis] = int(np.clip(start, 0, data.shape[axis] - sizes[axis]))
        result[position] = data[tuple(slice(f, f + n) for f, n in zip(first, sizes, strict=True))].reshape(sizes_left)
    others = [axis for axis in range(result.ndim) if axis not in offsets]
    order = dict(zip([*others, *offsets], range(result.ndim), strict=True))
    return [result.transpose([order[axis] for axis in range(result.ndim)])]


@STABLEHLO_SCATTER.host_kernel
def host_scatter(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    result, updates = data_of(inputs[0]).copy(), data_of(inputs[2])
    function = _function(options)
    starts = _index_vectors(data_of(inputs[1]), int(options["index_vector_dim"]))
    windows, inserted = _numbers(options, "update_window_dims"), _numbers(options, "inserted_window_dims")
    axes = _numbers(options, "scatter_dims_to_operand_dims")
    scattered = [axis for axis in range(updates.ndim) if axis not in windows]
    inside = [axis for axis in range(result.ndim) if axis not in inserted]
    for position in itertools.product(*map(range, updates.shape)):
        index = [0] * result.ndim
        for axis, start in zip(axes, starts[tuple(position[a] for a in scattered)], strict=True):
            index[axis] += int(start)
        for axis, window in zip(inside, windows, strict=True):
            index[axis] += position[window]
        if all(0 <= i < n for i, n in zip(index, result.shape, strict=True)):
            result[tuple(index)] = function(result[tuple(index)], updates[position])
    return [result]
